//! A table's bytes with what is to be changed in them. Rows that are not touched keep their bytes.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use csv::{ByteRecord, StringRecord, Terminator, WriterBuilder};

use crate::table::raw_records::{CsvPosition, RawRecords, ending, is_unified, unified};

/// A table of sound rows, without a byte-order mark.
#[derive(Debug)]
pub(crate) struct CsvEditor<'a> {
    bytes: &'a [u8],
    header: Vec<String>,
    header_place: CsvPosition,
    rows: Vec<CsvPosition>,
    newline: &'static str,
    renamed: bool,
    unify: bool,
    changed: BTreeMap<usize, Vec<String>>,
    removed: BTreeSet<usize>,
}

impl<'a> CsvEditor<'a> {
    /// `None` where there is no header.
    pub(crate) fn new(bytes: &'a [u8]) -> Option<Self> {
        let mut records = RawRecords::new(bytes);
        let mut record = ByteRecord::new();
        let header_place = records.read(&mut record)?;
        let header = record.iter().map(|name| String::from_utf8_lossy(name).trim().to_owned()).collect();
        let newline = ending(&bytes[header_place.range.clone()]);
        let rows = std::iter::from_fn(|| records.read(&mut record)).collect();
        Some(Self {
            bytes,
            header,
            header_place,
            rows,
            newline,
            renamed: false,
            unify: false,
            changed: BTreeMap::new(),
            removed: BTreeSet::new(),
        })
    }

    pub(crate) fn header(&self) -> &[String] {
        &self.header
    }

    /// Line of a row, from 1.
    pub(crate) fn line(&self, row: usize) -> u64 {
        self.rows[row].line
    }

    /// Goes through all rows of the file as they are there.
    pub(crate) fn for_each_row(&self, mut visit: impl FnMut(usize, &ByteRecord)) {
        let mut records = RawRecords::new(self.bytes);
        let mut record = ByteRecord::new();
        let _ = records.read(&mut record);
        for row in 0..self.rows.len() {
            let _ = records.read(&mut record);
            visit(row, &record);
        }
    }

    /// The cells of a row as they are now.
    pub(crate) fn cells(&self, row: usize) -> Vec<String> {
        if let Some(cells) = self.changed.get(&row) {
            return cells.clone();
        }
        let mut record = ByteRecord::new();
        let _ = RawRecords::new(&self.bytes[self.rows[row].range.clone()]).read(&mut record);
        // Rows that are not UTF-8 were refused before.
        StringRecord::from_byte_record_lossy(record).iter().map(str::to_owned).collect()
    }

    pub(crate) fn set(&mut self, row: usize, cells: Vec<String>) {
        self.changed.insert(row, cells);
    }

    pub(crate) fn remove(&mut self, row: usize) {
        self.removed.insert(row);
    }

    /// Gives a column another name, where the one is there and the other is not.
    pub(crate) fn rename(&mut self, old: &str, new: &str) -> bool {
        let position = |name: &str| self.header.iter().position(|column| column == name);
        match (position(old), position(new)) {
            (Some(index), None) => {
                new.clone_into(&mut self.header[index]);
                self.renamed = true;
                true
            }
            _ => false,
        }
    }

    /// Gives every line the header's ending; returns how it ends where a line had another.
    pub(crate) fn unify(&mut self) -> Option<&'static str> {
        let places = [&self.header_place].into_iter().chain(&self.rows);
        let mut lines = places.map(|place| place.range.clone()).chain([self.tail()]);
        self.unify = lines.any(|line| !is_unified(&self.bytes[line], self.newline));
        self.unify.then_some(self.newline)
    }

    /// Blank lines behind the last row.
    fn tail(&self) -> Range<usize> {
        self.rows.last().unwrap_or(&self.header_place).range.end..self.bytes.len()
    }

    /// The table as it is now.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.bytes.len());
        if self.renamed {
            out.extend(self.print(&self.header));
        } else {
            self.copy(&mut out, self.header_place.range.clone());
        }
        for (row, place) in self.rows.iter().enumerate() {
            match self.changed.get(&row) {
                _ if self.removed.contains(&row) => {}
                Some(cells) => out.extend(self.print(cells)),
                None => self.copy(&mut out, place.range.clone()),
            }
        }
        self.copy(&mut out, self.tail());
        out
    }

    fn copy(&self, out: &mut Vec<u8>, range: Range<usize>) {
        let line = &self.bytes[range];
        if self.unify {
            out.extend_from_slice(&unified(line, self.newline));
        } else {
            out.extend_from_slice(line);
        }
    }

    fn print(&self, cells: &[String]) -> Vec<u8> {
        let terminator = match self.newline {
            "\r\n" => Terminator::CRLF,
            "\r" => Terminator::Any(b'\r'),
            _ => Terminator::Any(b'\n'),
        };
        let mut writer = WriterBuilder::new().terminator(terminator).from_writer(Vec::new());
        // Writing to memory does not fail.
        let _ = writer.write_record(cells);
        writer.into_inner().unwrap_or_default()
    }
}
