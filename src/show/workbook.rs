//! Workbook of one sheet, as Office Open XML (ECMA-376) in a ZIP archive.

use std::{
    fmt::Write as _,
    io::{self, Write as _},
};

use flate2::{Compression, Crc, write::DeflateEncoder};
use indexmap::IndexSet;

use super::{junit::escaped, table::cut_in_middle};

/// Longest text of a cell in characters; Excel refuses a file with a longer one.
const MAX_CELL: usize = 32_767;
const MAX_ROWS: usize = 1 << 20;
/// Greatest width of a column in characters.
const MAX_WIDTH: usize = 255;

const XML: &str = r#"<?xml version="1.0" encoding="UTF-8" standalone="yes"?>"#;
const SHEETS: &str = "http://schemas.openxmlformats.org/spreadsheetml/2006/main";
const PACKAGE: &str = "http://schemas.openxmlformats.org/package/2006";
const RELATIONS: &str = "http://schemas.openxmlformats.org/officeDocument/2006/relationships";
const CONTENT: &str = "application/vnd.openxmlformats-";

pub(super) enum TableCell {
    Text(String),
    Number(f64),
    Empty,
}

/// Returns the bytes of a workbook. Columns are as wide as their texts, and the first row stays in view.
pub(super) fn workbook_bytes(name: &str, rows: &[Vec<TableCell>]) -> io::Result<Vec<u8>> {
    if rows.len() > MAX_ROWS {
        return Err(io::Error::other(format!("{} rows are more than the {MAX_ROWS} of a sheet", rows.len())));
    }
    let mut texts: IndexSet<String> = IndexSet::new();
    let mut widths: Vec<usize> = Vec::new();
    let mut cells = String::new();
    for (row, number) in rows.iter().zip(1..) {
        let _ = write!(cells, r#"<row r="{number}">"#);
        for (place, cell) in row.iter().enumerate() {
            if place == widths.len() {
                widths.push(8);
            }
            let column = column_letters(place);
            let width = match cell {
                TableCell::Text(text) => {
                    let text = cut_in_middle(text, MAX_CELL);
                    let width = text.chars().count();
                    let text = texts.insert_full(text).0;
                    let _ = write!(cells, r#"<c r="{column}{number}" t="s"><v>{text}</v></c>"#);
                    width
                }
                TableCell::Number(value) => {
                    let _ = write!(cells, r#"<c r="{column}{number}"><v>{value}</v></c>"#);
                    value.to_string().len()
                }
                TableCell::Empty => 0,
            };
            widths[place] = widths[place].max(width + 1).min(MAX_WIDTH);
        }
        cells.push_str("</row>");
    }
    let columns: String = (widths.iter().zip(1..))
        .map(|(width, at)| format!(r#"<col min="{at}" max="{at}" width="{width}" customWidth="1"/>"#))
        .collect();
    let texts: String = texts
        .iter()
        .map(|text| format!(r#"<si><t xml:space="preserve">{}</t></si>"#, escaped(text)))
        .collect();
    let part = |path: &str, kind: &str| {
        format!(
            r#"<Override PartName="/xl/{path}.xml" ContentType="{CONTENT}officedocument.spreadsheetml.{kind}+xml"/>"#
        )
    };
    let relation = |id: &str, kind: &str, target: &str| {
        format!(r#"<Relationship Id="{id}" Type="{RELATIONS}/{kind}" Target="{target}"/>"#)
    };
    let relations = |inside: String| {
        format!(r#"<Relationships xmlns="{PACKAGE}/relationships">{inside}</Relationships>"#)
    };
    let parts = [
        (
            "[Content_Types].xml",
            format!(
                r#"<Types xmlns="{PACKAGE}/content-types"><Default Extension="rels" ContentType="{CONTENT}package.relationships+xml"/>{}{}{}</Types>"#,
                part("workbook", "sheet.main"),
                part("worksheets/sheet1", "worksheet"),
                part("sharedStrings", "sharedStrings"),
            ),
        ),
        ("_rels/.rels", relations(relation("rId1", "officeDocument", "xl/workbook.xml"))),
        (
            "xl/workbook.xml",
            format!(
                r#"<workbook xmlns="{SHEETS}" xmlns:r="{RELATIONS}"><bookViews><workbookView/></bookViews><sheets><sheet name="{}" sheetId="1" r:id="rId1"/></sheets></workbook>"#,
                escaped(name)
            ),
        ),
        (
            "xl/_rels/workbook.xml.rels",
            relations(
                relation("rId1", "worksheet", "worksheets/sheet1.xml")
                    + &relation("rId2", "sharedStrings", "sharedStrings.xml"),
            ),
        ),
        (
            "xl/worksheets/sheet1.xml",
            format!(
                r#"<worksheet xmlns="{SHEETS}"><sheetViews><sheetView tabSelected="1" workbookViewId="0"><pane ySplit="1" topLeftCell="A2" activePane="bottomLeft" state="frozen"/></sheetView></sheetViews><cols>{columns}</cols><sheetData>{cells}</sheetData></worksheet>"#
            ),
        ),
        ("xl/sharedStrings.xml", format!(r#"<sst xmlns="{SHEETS}">{texts}</sst>"#)),
    ];
    zip_archive(&parts)
}

/// Returns the name of a column: A to Z, then AA and so on.
fn column_letters(place: usize) -> String {
    let rest = if place < 26 { String::new() } else { column_letters(place / 26 - 1) };
    format!("{rest}{}", char::from(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"[place % 26]))
}

/// Returns a ZIP archive of compressed XML files.
fn zip_archive(parts: &[(&str, String)]) -> io::Result<Vec<u8>> {
    const VERSION: [u8; 2] = [20, 0];
    let size = |length: usize| {
        u32::try_from(length).map_err(|_| io::Error::new(io::ErrorKind::FileTooLarge, "above 4 GiB"))
    };
    let (mut archive, mut directory) = (Vec::new(), Vec::new());
    for (name, text) in parts {
        let text = format!("{XML}{text}");
        let mut crc = Crc::new();
        crc.update(text.as_bytes());
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text.as_bytes())?;
        let compressed = encoder.finish()?;
        // Version, flags, method 8 (deflate), time and date, the first of January 1980.
        let mut header = [&VERSION[..], &[0, 0, 8, 0, 0, 0, 0x21, 0]].concat();
        for number in [crc.sum(), size(compressed.len())?, size(text.len())?, size(name.len())?] {
            header.extend_from_slice(&number.to_le_bytes());
        }
        // The length of the name has four bytes with that of the extra fields, of which there are none.
        directory.extend_from_slice(&[b"PK\x01\x02", &VERSION[..], &header, &[0; 10]].concat());
        directory.extend_from_slice(&size(archive.len())?.to_le_bytes());
        directory.extend_from_slice(name.as_bytes());
        archive.extend_from_slice(&[b"PK\x03\x04", &header[..], name.as_bytes(), &compressed].concat());
    }
    let (start, length) = (size(archive.len())?, size(directory.len())?);
    archive.append(&mut directory);
    let count = size(parts.len())?.to_le_bytes();
    archive.extend_from_slice(&[b"PK\x05\x06\0\0\0\0", &count[..2], &count[..2]].concat());
    archive.extend_from_slice(&length.to_le_bytes());
    archive.extend_from_slice(&start.to_le_bytes());
    archive.extend_from_slice(&[0, 0]);
    Ok(archive)
}
