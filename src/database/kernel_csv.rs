//! Kernel CSV in memory, with changes by row.
//!
//! Unknown columns, the order of rows, line endings and a byte-order mark are kept. An unchanged row is copied byte
//! by byte; if columns were appended, it gets empty cells at its end.

use std::{
    cell::RefCell,
    collections::HashMap,
    io::{self, Write},
    ops::Range,
    path::{Path, PathBuf},
};

use csv::{ByteRecord, StringRecord, Terminator, WriterBuilder};
use csv_core::ReadRecordResult;
use rayon::prelude::*;
use simd_csv::TotalReaderBuilder;

use super::DatabaseError;
use crate::{
    base::{
        files::{MAX_TABLE, atomic::write_atomic_by, read_regular},
        table::{
            NeedsFullParser,
            format::{encoding_problem, separator_problem},
            raw_records::{
                CsvPosition, LFS, RawRecords, describe_raggedness, has_uniform_endings, line_ending,
                unify_endings,
            },
            row_places,
        },
    },
    kernel::CaseAttributes,
};

pub(crate) const CUT_HEADER: &str =
    "the header has no line break and no rows follow: the file was cut, or its last line lacks a line break";

#[derive(Debug, Default)]
pub struct KernelCsv {
    path: PathBuf,
    original: Vec<u8>,
    header_end: usize,
    header: Vec<String>,
    columns: HashMap<String, usize, foldhash::fast::FixedState>,
    columns_in_file: usize,
    newline: &'static str,
    rows: Vec<CsvRow>,
    tail: Range<usize>,
    header_renamed: bool,
    changed: bool,
    /// True if `simd-csv` reads the rows of the file as the csv crate does.
    is_regular: bool,
}

/// Returns true if a file ends within its header: npubench ends every line, so columns and rows are missing.
pub(crate) fn is_cut_header(bytes: &[u8], header: &Range<usize>) -> bool {
    header.end == bytes.len() && !bytes.ends_with(b"\n") && !bytes.ends_with(b"\r")
}

#[derive(Debug)]
enum CsvRow {
    Original(CsvPosition),
    /// Cells, and the line of a row of the file; 0 for another row.
    Changed(StringRecord, u64),
    Removed(CsvPosition),
}

impl KernelCsv {
    pub fn new(path: &Path, columns: &[String]) -> Self {
        let mut table = Self { path: path.to_owned(), newline: "\n", ..Self::default() };
        for column in columns {
            table.ensure_column(column);
        }
        table
    }

    /// Loads a table. Fails if the file cannot be read, is a Git LFS pointer, is empty or is ragged.
    pub fn load(path: &Path) -> Result<Self, DatabaseError> {
        Self::from_bytes(path, read_regular(path, MAX_TABLE).map_err(DatabaseError::io("read", path))?)
    }

    /// Parses the bytes of a table; `path` is the place in messages and of [`KernelCsv::save`].
    pub(crate) fn from_bytes(path: &Path, original: Vec<u8>) -> Result<Self, DatabaseError> {
        if original.starts_with(LFS) {
            return Err(DatabaseError::LfsPointer { path: path.to_owned() });
        }
        let error = |line, problem: &str| {
            Err(DatabaseError::Csv { path: path.to_owned(), line, problem: problem.to_owned() })
        };
        let not_csv = |problem| Err(DatabaseError::NotCsv { path: path.to_owned(), problem });
        if let Some(problem) = encoding_problem(&original) {
            return not_csv(problem.to_owned());
        }
        let mut table = Self::new(path, &[]);
        let mut records = RawRecords::new(&original);
        let mut record = ByteRecord::new();
        let Some(CsvPosition { range: header, .. }) = records.read_record(&mut record) else {
            return error(1, "the file is empty, expected a header");
        };
        if let Some(problem) = separator_problem(&record) {
            return not_csv(problem);
        }
        for name in &record {
            table.ensure_column(String::from_utf8_lossy(name).trim());
        }
        if table.header.len() != record.len() {
            return error(1, "a column name stands twice in the header");
        }
        if is_cut_header(&original, &header) {
            return error(1, CUT_HEADER);
        }
        table.columns_in_file = table.header.len();
        table.header_end = header.end;
        match row_places(&original, header.end, table.header.len()) {
            Ok(places) => {
                table.is_regular = true;
                table.rows = places.into_iter().map(CsvRow::Original).collect();
            }
            // The csv crate parses the rest, and finds the invalid line.
            Err(NeedsFullParser) => {
                while let Some(place) = records.read_record(&mut record) {
                    if let Some(problem) = describe_raggedness(record.len(), &table.header) {
                        return error(place.line, &problem);
                    }
                    table.rows.push(CsvRow::Original(place));
                }
            }
        }
        let end = match table.rows.last() {
            Some(CsvRow::Original(place)) => place.range.end,
            _ => header.end,
        };
        table.tail = end..original.len();
        table.newline = line_ending(&original[header]);
        table.original = original;
        table.changed = false;
        Ok(table)
    }

    pub(crate) fn contains_cell_prefix(&self, text: &str) -> bool {
        let finder = memchr::memmem::Finder::new(text);
        finder.find_iter(&self.original).any(|at| at > 0 && matches!(self.original[at - 1], b',' | b'"'))
    }

    pub const fn is_changed(&self) -> bool {
        self.changed
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub fn column_names(&self) -> &[String] {
        &self.header
    }

    pub fn column_index(&self, name: &str) -> Option<usize> {
        self.columns.get(name).copied()
    }

    /// Returns the line of a row in the file, from 1; 0 for an appended row.
    pub fn row_line(&self, row: usize) -> u64 {
        match &self.rows[row] {
            CsvRow::Original(place) | CsvRow::Removed(place) => place.line,
            CsvRow::Changed(_, line) => *line,
        }
    }

    /// Returns a cell of a row; `None` if the column does not exist or the row is not UTF-8.
    pub fn cell_text(&self, row: usize, column: &str) -> Option<String> {
        let index = self.column_index(column)?;
        Some(self.row_cells(row).ok()?.get(index).unwrap_or_default().to_owned())
    }

    /// Returns true if a row has a value in a column: not empty, and not `N/A`.
    pub(crate) fn has_value(&self, row: usize, column: &str) -> bool {
        self.cell_text(row, column).is_some_and(|cell| CaseAttributes::has_value(&cell))
    }

    /// Returns the cells of a row; cells of appended columns are missing at the end. Fails if the row is not UTF-8.
    pub fn row_cells(&self, row: usize) -> Result<StringRecord, DatabaseError> {
        StringRecord::from_byte_record(self.row_byte_cells(row)).map_err(|_| DatabaseError::Csv {
            path: self.path.clone(),
            line: self.row_line(row),
            problem: "is not UTF-8".to_owned(),
        })
    }

    /// Visits some cells of all rows in order. A cell is empty if a row of another length lacks it; removed rows are left out.
    pub(crate) fn for_each_cells(&self, columns: &[usize], mut visit: impl FnMut(usize, &[&[u8]])) {
        let are_originals =
            |one: &CsvRow, other: &CsvRow| matches!((one, other), (CsvRow::Original(_), CsvRow::Original(_)));
        let mut next = 0;
        for run in self.rows.chunk_by(are_originals) {
            match (&run[0], &run[run.len() - 1]) {
                (CsvRow::Original(first), CsvRow::Original(last)) if self.is_regular => {
                    let bytes = &self.original[first.range.start..last.range.end];
                    let mut reader = TotalReaderBuilder::new().has_headers(false).from_bytes(bytes);
                    let (mut row, mut cells) = (next, simd_csv::ByteRecord::new());
                    while reader.read_byte_record(&mut cells) {
                        let picked = columns.iter().map(|column| cells.get(*column).unwrap_or_default());
                        visit(row, &picked.collect::<Vec<_>>());
                        row += 1;
                    }
                }
                (CsvRow::Removed(_), _) => {}
                _ => {
                    for row in next..next + run.len() {
                        let cells = self.row_byte_cells(row);
                        let picked = columns.iter().map(|column| cells.get(*column).unwrap_or_default());
                        visit(row, &picked.collect::<Vec<_>>());
                    }
                }
            }
            next += run.len();
        }
    }

    pub fn row_byte_cells(&self, row: usize) -> ByteRecord {
        let range = match &self.rows[row] {
            CsvRow::Changed(cells, _) => return cells.as_byte_record().clone(),
            CsvRow::Original(place) | CsvRow::Removed(place) => place.range.clone(),
        };
        parse_row(&self.original[range])
    }

    /// Visits the cells of all rows in order, much faster than [`Self::row_byte_cells`] for each row.
    pub fn for_each_row(&self, mut visit: impl FnMut(usize, &ByteRecord)) {
        let columns: Vec<usize> = (0..self.header.len()).collect();
        let mut record = ByteRecord::new();
        self.for_each_cells(&columns, |row, cells| {
            record.clear();
            cells.iter().for_each(|cell| record.push_field(cell));
            visit(row, &record);
        });
    }

    pub fn ensure_column(&mut self, name: &str) -> usize {
        if let Some(index) = self.columns.get(name) {
            return *index;
        }
        self.header.push(name.to_owned());
        self.columns.insert(name.to_owned(), self.header.len() - 1);
        self.changed = true;
        self.header.len() - 1
    }

    /// Appends a row with cells in the named columns, of which missing ones are appended; all others are empty.
    pub fn append_row(&mut self, cells: &[(impl AsRef<str>, String)]) {
        let places: Vec<usize> = cells.iter().map(|(name, _)| self.ensure_column(name.as_ref())).collect();
        let mut row = vec![""; self.header.len()];
        for (place, (_, text)) in places.into_iter().zip(cells) {
            row[place] = text;
        }
        self.rows.push(CsvRow::Changed(StringRecord::from(row), 0));
        self.changed = true;
    }

    /// Inserts rows before those with the given ascending indices, the number of rows for the end; returns the new indices.
    pub(crate) fn insert_rows(&mut self, new: &[(usize, Vec<(impl AsRef<str>, String)>)]) -> Vec<usize> {
        let mut indices = Vec::with_capacity(new.len());
        let mut present = std::mem::take(&mut self.rows).into_iter();
        let mut passed = 0;
        for (place, cells) in new {
            self.rows.extend(present.by_ref().take(place.saturating_sub(passed)));
            passed = passed.max(*place);
            indices.push(self.rows.len());
            self.append_row(cells);
        }
        self.rows.extend(present);
        indices
    }

    /// Sets cells of a row and appends missing columns; returns false if nothing changes. Fails if the row is not UTF-8.
    pub fn update_row(
        &mut self,
        row: usize,
        cells: &[(impl AsRef<str>, String)],
    ) -> Result<bool, DatabaseError> {
        let mut fields: Vec<String> = self.row_cells(row)?.iter().map(String::from).collect();
        let mut differs = false;
        for (name, value) in cells {
            let index = self.ensure_column(name.as_ref());
            fields.resize(fields.len().max(self.header.len()), String::new());
            differs |= fields[index] != *value;
            fields[index].clone_from(value);
        }
        if differs {
            self.set_cells(row, fields);
        }
        Ok(differs)
    }

    pub(crate) fn empty_cells<'c>(
        &mut self,
        row: usize,
        columns: impl Iterator<Item = &'c str>,
    ) -> Result<bool, DatabaseError> {
        let cells: Vec<(&str, String)> = columns.map(|column| (column, String::new())).collect();
        self.update_row(row, &cells)
    }

    pub(crate) fn set_cells(&mut self, row: usize, cells: Vec<String>) {
        self.rows[row] = CsvRow::Changed(StringRecord::from(cells), self.row_line(row));
        self.changed = true;
    }

    /// Removes a row of the file; the indices of the other rows stay.
    pub(crate) fn remove_row(&mut self, row: usize) {
        self.rows[row] = CsvRow::Removed(CsvPosition { range: 0..0, line: self.row_line(row) });
        self.changed = true;
    }

    pub(crate) fn rename_column(&mut self, old: &str, new: &str) -> bool {
        let Some(index) = self.column_index(old).filter(|_| self.column_index(new).is_none()) else {
            return false;
        };
        self.columns.remove(old);
        self.columns.insert(new.to_owned(), index);
        new.clone_into(&mut self.header[index]);
        self.header_renamed = true;
        self.changed = true;
        true
    }

    /// Replaces the line endings by the ending of the header, which is returned if a line had another one.
    pub(crate) fn unify_newlines(&mut self) -> Option<&'static str> {
        let newline = self.newline;
        let mut header = 0..self.header_end;
        let places = self.rows.iter_mut().filter_map(|row| match row {
            CsvRow::Original(place) => Some(&mut place.range),
            CsvRow::Changed(..) | CsvRow::Removed(_) => None,
        });
        let lines: Vec<&mut Range<usize>> =
            std::iter::once(&mut header).chain(places).chain([&mut self.tail]).collect();
        if lines.iter().all(|line| has_uniform_endings(&self.original[Range::clone(line)], newline)) {
            return None;
        }
        let mut bytes = Vec::with_capacity(self.original.len());
        for line in lines {
            let start = bytes.len();
            bytes.extend_from_slice(&unify_endings(&self.original[line.clone()], newline));
            *line = start..bytes.len();
        }
        self.header_end = header.end;
        self.original = bytes;
        self.changed = true;
        Some(newline)
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.original.len());
        // Writing to memory does not fail.
        let _ = self.write_to(&mut bytes);
        bytes
    }

    /// Saves the table if it changed; returns true if it was written. On an error the old file is unchanged.
    pub fn save(&self) -> Result<bool, DatabaseError> {
        if self.changed {
            self.save_as(&self.path)?;
        }
        Ok(self.changed)
    }

    pub fn save_as(&self, path: &Path) -> Result<(), DatabaseError> {
        Ok(write_atomic_by(path, |out| self.write_to(out))?)
    }

    fn write_to(&self, out: &mut dyn Write) -> io::Result<()> {
        let appended = self.header.len() - self.columns_in_file;
        if self.columns_in_file == 0 || self.header_renamed {
            self.write_records(out, [self.header.iter().map(String::as_str)])?;
        } else {
            let mut names = vec![b','];
            self.write_records(&mut names, [self.header[self.columns_in_file..].iter().map(String::as_str)])?;
            names.truncate(if appended == 0 { 0 } else { names.len() - self.newline.len() });
            self.copy_line(out, &self.original[..self.header_end], &names)?;
        }
        let empty_cells = vec![b','; appended];
        // Adjacent changed rows are formatted together. The last line of the file may lack its ending.
        let last = self.rows.iter().rposition(|row| !matches!(row, CsvRow::Removed(_)));
        let are_changed =
            |one: &CsvRow, other: &CsvRow| matches!((one, other), (CsvRow::Changed(..), CsvRow::Changed(..)));
        let mut next = 0;
        for rows in self.rows.chunk_by(are_changed) {
            match &rows[0] {
                CsvRow::Original(place) if appended == 0 && last == Some(next) => {
                    out.write_all(&self.original[place.range.clone()])?;
                }
                CsvRow::Original(place) => {
                    self.copy_line(out, &self.original[place.range.clone()], &empty_cells)?;
                }
                CsvRow::Removed(_) => {}
                CsvRow::Changed(..) => {
                    let changed = rows.iter().filter_map(|row| match row {
                        CsvRow::Changed(cells, _) => Some(cells),
                        CsvRow::Original(_) | CsvRow::Removed(_) => None,
                    });
                    // Columns may have been appended after the change.
                    let missing = |cells: &StringRecord| self.header.len().saturating_sub(cells.len());
                    self.write_records(
                        out,
                        changed.map(|cells| cells.iter().chain(std::iter::repeat_n("", missing(cells)))),
                    )?;
                }
            }
            next += rows.len();
        }
        out.write_all(&self.original[self.tail.clone()])
    }

    fn copy_line(&self, out: &mut dyn Write, line: &[u8], appended: &[u8]) -> io::Result<()> {
        let body_end =
            line.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r')).map_or(0, |last| last + 1);
        let (body, ending) = line.split_at(body_end);
        out.write_all(body)?;
        out.write_all(appended)?;
        out.write_all(if ending.is_empty() { self.newline.as_bytes() } else { ending })
    }

    fn write_records<'c>(
        &self,
        out: &mut dyn Write,
        records: impl IntoIterator<Item = impl Iterator<Item = &'c str>>,
    ) -> io::Result<()> {
        let terminator = match self.newline {
            "\r\n" => Terminator::CRLF,
            "\r" => Terminator::Any(b'\r'),
            _ => Terminator::Any(b'\n'),
        };
        let mut writer = WriterBuilder::new().terminator(terminator).from_writer(out);
        for record in records {
            writer.write_record(record)?;
        }
        writer.flush()
    }
}

/// Saves tables on all cores. Fails with [`DatabaseError::PartlyWritten`] if only some were written.
pub(crate) fn save_tables(tables: &[&KernelCsv]) -> Result<(), DatabaseError> {
    let saved: Vec<_> = tables.par_iter().map(|table| table.save()).collect();
    let name =
        |table: &KernelCsv| table.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
    let written = tables.iter().zip(&saved).filter(|(_, saved)| saved.is_ok()).map(|(table, _)| name(table));
    let (written, total): (Vec<String>, usize) = (written.collect(), tables.len());
    match saved.into_iter().find_map(Result::err) {
        None => Ok(()),
        Some(error) if written.is_empty() => Err(error),
        Some(error) => Err(DatabaseError::PartlyWritten { written, total, source: Box::new(error) }),
    }
}

thread_local! {
    /// Parser of rows: its tables take longer to build than a row to parse.
    static ROW_PARSER: RefCell<csv_core::Reader> = RefCell::new(csv_core::ReaderBuilder::new().build());
}

/// Parses the bytes of one row, with preceding blank lines and its line ending.
fn parse_row(bytes: &[u8]) -> ByteRecord {
    let mut cells = vec![0; bytes.len()];
    let mut ends = vec![0; 1 + bytes.iter().filter(|byte| **byte == b',').count()];
    let (mut read, mut cell_length, mut end_count) = (0, 0, 0);
    ROW_PARSER.with_borrow_mut(|parser| {
        parser.reset();
        loop {
            let (result, input, output, fields) =
                parser.read_record(&bytes[read..], &mut cells[cell_length..], &mut ends[end_count..]);
            (read, cell_length, end_count) = (read + input, cell_length + output, end_count + fields);
            // An empty input behind the last byte ends the record. There is room for all cells.
            if !matches!(result, ReadRecordResult::InputEmpty) {
                break;
            }
        }
    });
    let starts = std::iter::once(0).chain(ends[..end_count].iter().copied());
    starts.zip(&ends[..end_count]).map(|(start, end)| &cells[start..*end]).collect()
}

#[cfg(test)]
mod tests;
