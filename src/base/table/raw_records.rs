//! Records of a table with their bytes and line endings.

use std::{borrow::Cow, fmt::Display, ops::Range};

use csv::{ByteRecord, ReaderBuilder};

/// UTF-8 byte-order mark, which older tools sometimes wrote.
pub(crate) const BOM: &[u8] = b"\xef\xbb\xbf";
pub(crate) const LFS: &[u8] = b"version https://git-lfs";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CsvPosition {
    /// Bytes of the record, with preceding blank lines and its own line ending.
    pub(crate) range: Range<usize>,
    pub(crate) line: u64,
}

#[derive(Debug)]
pub(crate) struct RawRecords<'a> {
    bytes: &'a [u8],
    reader: csv::Reader<&'a [u8]>,
    at: usize,
}

impl<'a> RawRecords<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        let reader = ReaderBuilder::new().has_headers(false).flexible(true).from_reader(bytes);
        Self { bytes, reader, at: 0 }
    }

    pub(crate) fn read_record(&mut self, record: &mut ByteRecord) -> Option<CsvPosition> {
        // Reading from memory does not fail, and records may have any length.
        if !self.reader.read_byte_record(record).unwrap_or(false) {
            return None;
        }
        let bytes = self.bytes;
        let at = usize::try_from(self.reader.position().byte()).unwrap_or(usize::MAX).min(bytes.len());
        // The csv reader stops between `\r` and `\n`.
        let end = at + usize::from(at > 0 && bytes[at - 1] == b'\r' && bytes.get(at) == Some(&b'\n'));
        // The csv reader counts the line of a record from the end of the previous one, whose `\n` it may not have
        // read.
        let started = record.position().map_or(1, csv::Position::line);
        let from = record.position().map_or(self.at, |p| usize::try_from(p.byte()).unwrap_or(self.at));
        let blank = bytes[from.min(end)..end].iter().take_while(|byte| is_newline(**byte));
        let line = started + blank.filter(|byte| **byte == b'\n').map(|_| 1).sum::<u64>();
        let range = self.at..end;
        self.at = end;
        Some(CsvPosition { range, line })
    }
}

const fn is_newline(byte: u8) -> bool {
    matches!(byte, b'\n' | b'\r')
}

/// Splits bytes into preceding blank lines, the record, and its line ending.
fn split_newlines(line: &[u8]) -> (&[u8], &[u8], &[u8]) {
    let start = line.iter().position(|byte| !is_newline(*byte)).unwrap_or(line.len());
    let end = line.iter().rposition(|byte| !is_newline(*byte)).map_or(start, |last| last + 1);
    (&line[..start], &line[start..end], &line[end..])
}

fn line_endings(mut text: &[u8]) -> impl Iterator<Item = &'static str> {
    std::iter::from_fn(move || {
        let (ending, rest) = match text {
            [b'\r', b'\n', rest @ ..] => ("\r\n", rest),
            [b'\r', rest @ ..] => ("\r", rest),
            [_, rest @ ..] => ("\n", rest),
            [] => return None,
        };
        text = rest;
        Some(ending)
    })
}

/// Returns the line ending of a record; `\n` if the file ends without one.
pub(crate) fn line_ending(line: &[u8]) -> &'static str {
    line_endings(split_newlines(line).2).next().unwrap_or("\n")
}

/// Returns true if every line in a record's bytes has the ending; line breaks in cells are ignored.
pub(crate) fn has_uniform_endings(line: &[u8], newline: &str) -> bool {
    let (before, _, after) = split_newlines(line);
    line_endings(before).chain(line_endings(after)).all(|ending| ending == newline)
}

pub(crate) fn unify_endings<'a>(line: &'a [u8], newline: &str) -> Cow<'a, [u8]> {
    if has_uniform_endings(line, newline) {
        return line.into();
    }
    let (before, record, after) = split_newlines(line);
    let mut bytes = newline.repeat(line_endings(before).count()).into_bytes();
    bytes.extend_from_slice(record);
    bytes.extend(newline.repeat(line_endings(after).count()).bytes());
    bytes.into()
}

/// Describes a wrong number of fields, with the first missing column; `None` for the right number.
pub(crate) fn describe_raggedness(len: usize, header: &[String]) -> Option<String> {
    let expected = header.len();
    if len == expected {
        return None;
    }
    let fields = if len == 1 { "1 field".to_owned() } else { format!("{len} fields") };
    Some(format!(
        "{fields}, the header has {expected}; {}",
        missing_field_text(len, expected, header.get(len))
    ))
}

/// Describes the place of missing or surplus fields of a record; `column` is the first one without a field. A field may also be
/// missing before it, in the middle of the record.
pub(crate) fn missing_field_text(fields: usize, columns: usize, column: Option<impl Display>) -> String {
    match column {
        Some(column) => format!("fields are missing at or before `{column}` (column {})", fields + 1),
        None => format!("field {} has no column", columns + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_records_have_byte_ranges_and_lines() {
        let text = b"\xef\xbb\xbfA,B\r\n\r\n1,\"x\ny\"\r\n\n2,3\n4\r5,6\r\r\n7,8";
        let mut records = RawRecords::new(text);
        let mut record = ByteRecord::new();
        let mut seen = Vec::new();
        while let Some(place) = records.read_record(&mut record) {
            seen.push((String::from_utf8_lossy(&text[place.range]).into_owned(), place.line));
        }
        let expected = [
            ("\u{feff}A,B\r\n", 1),
            ("\r\n1,\"x\ny\"\r\n", 3),
            ("\n2,3\n", 6),
            ("4\r", 7),
            ("5,6\r", 7),
            ("\r\n7,8", 8),
        ];
        assert_eq!(seen, expected.map(|(text, line)| (text.to_owned(), line)));
    }

    #[test]
    fn unified_line_endings_keep_cell_line_breaks() {
        let line = b"\n\r\n1,\"a\r\nb\"\r\n";
        assert!(!has_uniform_endings(line, "\n") && !has_uniform_endings(line, "\r\n"));
        assert_eq!(&*unify_endings(line, "\n"), b"\n\n1,\"a\r\nb\"\n");
        assert_eq!(&*unify_endings(line, "\r\n"), b"\r\n\r\n1,\"a\r\nb\"\r\n");
        assert_eq!(line_ending(b"A,B\r"), "\r");
    }
}
