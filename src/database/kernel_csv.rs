//! One kernel's CSV, changed row by row: what is not touched keeps its bytes.
//!
//! Unknown columns, the order of rows, line endings and a byte-order mark survive. A row that is not
//! changed is copied as it stands; where columns were appended it gets empty cells at its end.

use std::{
    collections::HashMap,
    fs,
    io::{self, Write},
    ops::Range,
    path::{Path, PathBuf},
};

use csv::{ByteRecord, ErrorKind, ReaderBuilder, StringRecord, Terminator, WriterBuilder};

use super::DatabaseError;
use crate::{
    files::atomic::write_atomic_by,
    table::{
        CsvIndex, NeedsFullParser,
        row_ranges::{PIECE, RowPlace, row_places},
    },
};

/// Changed rows that are printed at once.
const BATCH: usize = 1024;

/// A kernel's CSV in memory.
#[derive(Debug)]
pub struct KernelCsv {
    path: PathBuf,
    original: Vec<u8>,
    header_end: usize,
    header: Vec<String>,
    columns: HashMap<String, usize>,
    columns_in_file: usize,
    newline: &'static str,
    rows: Vec<CsvRow>,
    rows_in_file: usize,
    /// Blank lines behind the last row.
    tail: Range<usize>,
    changed: bool,
}

#[derive(Debug)]
enum CsvRow {
    /// Bytes of the file, with the line they start at.
    Original(Range<usize>, u64),
    Changed(StringRecord),
}

impl KernelCsv {
    /// An empty table with the given columns.
    #[must_use]
    pub fn new(path: &Path, columns: &[String]) -> Self {
        let mut table = Self {
            path: path.to_owned(),
            original: Vec::new(),
            header_end: 0,
            header: Vec::new(),
            columns: HashMap::new(),
            columns_in_file: 0,
            newline: "\n",
            rows: Vec::new(),
            rows_in_file: 0,
            tail: 0..0,
            changed: false,
        };
        for column in columns {
            table.ensure_column(column);
        }
        table
    }

    /// Loads a table.
    ///
    /// # Errors
    /// [`DatabaseError`] where the file cannot be read, is a Git LFS pointer, is empty or is ragged.
    pub fn load(path: &Path) -> Result<Self, DatabaseError> {
        let original = fs::read(path).map_err(DatabaseError::io("read", path))?;
        if original.starts_with(b"version https://git-lfs") {
            return Err(DatabaseError::LfsPointer { path: path.to_owned() });
        }
        let mut table = Self::new(path, &[]);
        let mut reader =
            ReaderBuilder::new().has_headers(false).flexible(false).from_reader(original.as_slice());
        let mut record = ByteRecord::new();
        if !reader.read_byte_record(&mut record).map_err(|error| read_error(path, &error, &[]))? {
            let problem = "the file is empty, expected a header".to_owned();
            return Err(DatabaseError::Csv { path: path.to_owned(), line: 1, problem });
        }
        for name in &record {
            table.ensure_column(String::from_utf8_lossy(name).trim());
        }
        if table.header.len() != record.len() {
            let problem = "a column name stands twice in the header".to_owned();
            return Err(DatabaseError::Csv { path: path.to_owned(), line: 1, problem });
        }
        table.columns_in_file = table.header.len();
        table.header_end = line_end(&original, reader.position());
        let start = table.header_end;
        table.rows = match row_places(&original[start..], table.header.len()) {
            Ok(places) => {
                let lines = 1 + memchr::memchr_iter(b'\n', &original[..start]).count() as u64;
                let row = |RowPlace { range, line }| {
                    CsvRow::Original(start + range.start..start + range.end, lines + line)
                };
                places.into_iter().map(row).collect()
            }
            // The csv crate says what is wrong, or takes what is only unusual.
            Err(NeedsFullParser) => rows_by_csv(&original, reader, start)
                .map_err(|error| read_error(path, &error, &table.header))?,
        };
        table.rows_in_file = table.rows.len();
        let end = match table.rows.last() {
            Some(CsvRow::Original(range, _)) => range.end,
            _ => start,
        };
        table.tail = end..original.len();
        table.newline = if original[..table.header_end].ends_with(b"\r\n") { "\r\n" } else { "\n" };
        table.original = original;
        table.changed = false;
        Ok(table)
    }

    /// Whether a cell of the file begins with that text.
    #[must_use]
    pub(crate) fn contains(&self, text: &str) -> bool {
        let finder = memchr::memmem::Finder::new(text);
        finder.find_iter(&self.original).any(|at| at > 0 && matches!(self.original[at - 1], b',' | b'"'))
    }

    /// Whether there is something to save.
    #[must_use]
    pub const fn is_changed(&self) -> bool {
        self.changed
    }

    /// Where it is kept.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Names of the columns, in their order.
    #[must_use]
    pub fn columns(&self) -> &[String] {
        &self.header
    }

    /// The index of a column.
    #[must_use]
    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns.get(name).copied()
    }

    /// Line of a row in the file, from 1; `None` for one that is not in it yet.
    #[must_use]
    pub fn line(&self, row: usize) -> Option<u64> {
        match &self.rows[row] {
            CsvRow::Original(_, line) => Some(*line),
            CsvRow::Changed(_) => None,
        }
    }

    /// One cell of a row; `None` where there is no such column or the row is not UTF-8.
    #[must_use]
    pub fn cell(&self, row: usize, column: &str) -> Option<String> {
        let index = self.column(column)?;
        Some(self.cells(row).ok()?.get(index).unwrap_or_default().to_owned())
    }

    /// All cells of a row, by the columns that the file had; appended ones are missing at the end.
    ///
    /// # Errors
    /// Where the row is not UTF-8.
    pub fn cells(&self, row: usize) -> Result<StringRecord, DatabaseError> {
        StringRecord::from_byte_record(self.byte_cells(row)).map_err(|_| DatabaseError::Csv {
            path: self.path.clone(),
            line: self.line(row).unwrap_or_default(),
            problem: "is not UTF-8".to_owned(),
        })
    }

    /// Goes through one cell of all rows in order, much faster than going through whole rows. A cell is
    /// empty where a row of another length lacks it.
    ///
    /// # Errors
    /// Those of `visit`.
    pub fn for_each_cell(
        &self,
        column: usize,
        mut visit: impl FnMut(usize, &[u8]) -> Result<(), DatabaseError>,
    ) -> Result<(), DatabaseError> {
        let mut index = CsvIndex::default();
        let mut next = 0;
        while next < self.rows.len() {
            let (piece, rows) = self.untouched(next);
            let bytes = &self.original[piece];
            if index.find(bytes, self.columns_in_file) == Ok(()) && index.len() == rows {
                for cells in index.rows(bytes) {
                    visit(next, cells.get(column))?;
                    next += 1;
                }
            } else {
                for row in next..next + rows {
                    visit(row, self.byte_cells(row).get(column).unwrap_or_default())?;
                }
                next += rows;
            }
        }
        Ok(())
    }

    /// Bytes of rows that nobody touched, from `first` on as far as they make a handy piece, and how many rows
    /// that are; one that was changed is alone and has no bytes.
    fn untouched(&self, first: usize) -> (Range<usize>, usize) {
        let mut piece = 0..0;
        let mut count = 0;
        for row in &self.rows[first..] {
            match row {
                CsvRow::Original(range, _) if count == 0 => piece = range.clone(),
                CsvRow::Original(range, _) if piece.len() < PIECE => piece.end = range.end,
                _ => break,
            }
            count += 1;
        }
        (piece, count.max(1))
    }

    /// The cells of a row as they are, be they text or not.
    #[must_use]
    pub fn byte_cells(&self, row: usize) -> ByteRecord {
        let range = match &self.rows[row] {
            CsvRow::Changed(cells) => return cells.as_byte_record().clone(),
            CsvRow::Original(range, _) => range.clone(),
        };
        let bytes = &self.original[range];
        let mut reader = ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .buffer_capacity(bytes.len().max(64))
            .from_reader(bytes);
        let mut record = ByteRecord::new();
        // Reading from memory does not fail.
        let _ = reader.read_byte_record(&mut record);
        record
    }

    /// Goes through all rows in order, much faster than asking for each one's cells.
    ///
    /// # Errors
    /// Those of `visit`.
    pub fn for_each_row(
        &self,
        mut visit: impl FnMut(usize, &ByteRecord) -> Result<(), DatabaseError>,
    ) -> Result<(), DatabaseError> {
        let body = &self.original[self.header_end..];
        let mut reader = ReaderBuilder::new().has_headers(false).flexible(true).from_reader(body);
        let mut record = ByteRecord::new();
        for (index, row) in self.rows.iter().enumerate() {
            // The rows of the file come first, whether they were changed since or not.
            if index < self.rows_in_file {
                let read = reader.read_byte_record(&mut record);
                read.map_err(|error| read_error(&self.path, &error, &self.header))?;
            }
            match row {
                CsvRow::Original(..) => visit(index, &record)?,
                CsvRow::Changed(cells) => visit(index, cells.as_byte_record())?,
            }
        }
        Ok(())
    }

    /// Adds a column at the end unless it is there; returns its index.
    pub fn ensure_column(&mut self, name: &str) -> usize {
        if let Some(index) = self.columns.get(name) {
            return *index;
        }
        self.header.push(name.to_owned());
        self.columns.insert(name.to_owned(), self.header.len() - 1);
        self.changed = true;
        self.header.len() - 1
    }

    /// Adds a row; cells go to the named columns, which must exist.
    pub fn append(&mut self, cells: &[(&str, String)]) {
        let mut row = vec![String::new(); self.header.len()];
        for (name, value) in cells {
            if let Some(index) = self.columns.get(*name) {
                row[*index].clone_from(value);
            }
        }
        self.rows.push(CsvRow::Changed(StringRecord::from(row)));
        self.changed = true;
    }

    /// Adds a row of so many cells by the indices of their columns; all others are empty.
    pub(crate) fn append_cells(&mut self, cells: &[(usize, String)]) {
        let mut row = vec![""; self.header.len()];
        for (column, text) in cells {
            row[*column] = text;
        }
        self.rows.push(CsvRow::Changed(StringRecord::from(row)));
        self.changed = true;
    }

    /// Sets cells of a row; columns that are missing are appended. Nothing changes where every cell
    /// already has its value.
    ///
    /// # Errors
    /// Where the row is not UTF-8.
    pub fn update(&mut self, row: usize, cells: &[(&str, String)]) -> Result<bool, DatabaseError> {
        let mut fields: Vec<String> = self.cells(row)?.iter().map(String::from).collect();
        let mut differs = false;
        for (name, value) in cells {
            let index = self.ensure_column(name);
            fields.resize(fields.len().max(self.header.len()), String::new());
            differs |= fields[index] != *value;
            fields[index].clone_from(value);
        }
        if differs {
            self.rows[row] = CsvRow::Changed(StringRecord::from(fields));
            self.changed = true;
        }
        Ok(differs)
    }

    /// Writes the table back, unless nothing changed. Says whether it wrote.
    ///
    /// # Errors
    /// [`DatabaseError::File`]; the old file is then as it was.
    pub fn save(&self) -> Result<bool, DatabaseError> {
        if self.changed {
            self.save_as(&self.path)?;
        }
        Ok(self.changed)
    }

    /// Writes the table to another path.
    ///
    /// # Errors
    /// [`DatabaseError::File`].
    pub fn save_as(&self, path: &Path) -> Result<(), DatabaseError> {
        Ok(write_atomic_by(path, |out| self.write_to(out))?)
    }

    fn write_to(&self, out: &mut dyn Write) -> io::Result<()> {
        let appended = self.header.len() - self.columns_in_file;
        if self.columns_in_file == 0 {
            out.write_all(&self.print(self.header.iter().map(String::as_str)))?;
        } else {
            self.copy_line(out, &self.original[..self.header_end], &self.header[self.columns_in_file..])?;
        }
        let empty = vec![String::new(); appended];
        // Neighbours that nobody touched are written in one piece.
        let mut untouched: Range<usize> = 0..0;
        let mut rows = self.rows.iter();
        while let Some(row) = rows.next() {
            match row {
                CsvRow::Original(range, _) if appended == 0 => {
                    if untouched.end != range.start {
                        self.copy_rows(out, &untouched)?;
                        untouched.start = range.start;
                    }
                    untouched.end = range.end;
                }
                CsvRow::Original(range, _) => self.copy_line(out, &self.original[range.clone()], &empty)?,
                CsvRow::Changed(cells) => {
                    self.copy_rows(out, &std::mem::take(&mut untouched))?;
                    // So are neighbours that were all changed.
                    let behind = rows.as_slice();
                    let more = behind.iter().take(BATCH).take_while(|row| matches!(row, CsvRow::Changed(_)));
                    let more = more.count();
                    let changed = behind[..more].iter().filter_map(|row| match row {
                        CsvRow::Changed(cells) => Some(cells),
                        CsvRow::Original(..) => None,
                    });
                    out.write_all(&self.print_all(std::iter::once(cells).chain(changed)))?;
                    rows = behind[more..].iter();
                }
            }
        }
        self.copy_rows(out, &untouched)?;
        out.write_all(&self.original[self.tail.clone()])
    }

    /// Copies rows of the original as they stand; the last of the file may lack its line ending.
    fn copy_rows(&self, out: &mut dyn Write, range: &Range<usize>) -> io::Result<()> {
        let bytes = &self.original[range.clone()];
        out.write_all(bytes)?;
        if bytes.last().is_none_or(|last| matches!(last, b'\n' | b'\r')) {
            Ok(())
        } else {
            out.write_all(self.newline.as_bytes())
        }
    }

    /// Copies a line of the original, with cells appended in front of its line ending.
    fn copy_line(&self, out: &mut dyn Write, line: &[u8], appended: &[String]) -> io::Result<()> {
        let body_end =
            line.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r')).map_or(0, |last| last + 1);
        out.write_all(&line[..body_end])?;
        if !appended.is_empty() {
            out.write_all(b",")?;
            let cells = self.print(appended.iter().map(String::as_str));
            // One empty cell alone prints as `""`; behind a comma nothing is needed.
            let plain = cells.as_slice() == [b"\"\"", self.newline.as_bytes()].concat();
            out.write_all(if plain { &[] } else { &cells[..cells.len() - self.newline.len()] })?;
        }
        let ending = &line[body_end..];
        out.write_all(if ending.is_empty() { self.newline.as_bytes() } else { ending })
    }

    fn print<'a>(&self, cells: impl IntoIterator<Item = &'a str>) -> Vec<u8> {
        let mut writer = self.printer();
        // Writing to memory does not fail.
        let _ = writer.write_record(cells);
        writer.into_inner().unwrap_or_default()
    }

    /// Rows with empty cells at their ends where columns were appended since.
    fn print_all<'a>(&self, rows: impl Iterator<Item = &'a StringRecord>) -> Vec<u8> {
        let mut writer = self.printer();
        for cells in rows {
            let missing = self.header.len().saturating_sub(cells.len());
            let _ = writer.write_record(cells.iter().chain(std::iter::repeat_n("", missing)));
        }
        writer.into_inner().unwrap_or_default()
    }

    fn printer(&self) -> csv::Writer<Vec<u8>> {
        let terminator = if self.newline == "\r\n" { Terminator::CRLF } else { Terminator::Any(b'\n') };
        WriterBuilder::new().terminator(terminator).from_writer(Vec::new())
    }
}

fn rows_by_csv(
    original: &[u8],
    mut reader: csv::Reader<&[u8]>,
    mut start: usize,
) -> Result<Vec<CsvRow>, csv::Error> {
    let mut record = ByteRecord::new();
    let mut rows = Vec::new();
    while reader.read_byte_record(&mut record)? {
        let end = line_end(original, reader.position());
        rows.push(CsvRow::Original(start..end, record.position().map_or(0, csv::Position::line)));
        start = end;
    }
    Ok(rows)
}

/// Where the line ends that the reader has just read: it stops between `\r` and `\n`.
fn line_end(bytes: &[u8], position: &csv::Position) -> usize {
    let at = usize::try_from(position.byte()).unwrap_or(usize::MAX).min(bytes.len());
    at + usize::from(at > 0 && bytes[at - 1] == b'\r' && bytes.get(at) == Some(&b'\n'))
}

fn read_error(path: &Path, error: &csv::Error, header: &[String]) -> DatabaseError {
    let line = error.position().map_or(1, csv::Position::line);
    let problem = match error.kind() {
        ErrorKind::UnequalLengths { expected_len, len, .. } => {
            let missing = usize::try_from(*len).ok().and_then(|index| header.get(index));
            let place = match missing {
                Some(column) => format!("`{column}` (column {}) is the first that is missing", len + 1),
                None => format!("field {} has no column", expected_len + 1),
            };
            format!("{len} fields, the header has {expected_len}; {place}")
        }
        other => format!("cannot be read: {other:?}"),
    };
    DatabaseError::Csv { path: path.to_owned(), line, problem }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::files::atomic::faults;

    fn table(text: &str) -> KernelCsv {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("K.csv");
        fs::write(&path, text).expect("written");
        KernelCsv::load(&path).expect("a table")
    }

    fn printed(table: &KernelCsv) -> String {
        let mut bytes = Vec::new();
        table.write_to(&mut bytes).expect("memory");
        String::from_utf8(bytes).expect("UTF-8")
    }

    #[test]
    fn untouched_rows_keep_their_bytes() {
        let text = "\u{feff}A,\"B\",C\r\n\"\"\"1,2\"\"\",x,\r\n\"a\",\"multi\nline\",3\r\n1,2,3";
        let mut table = table(text);
        assert_eq!(table.len(), 3);
        assert_eq!(&table.cells(0).expect("UTF-8")[0], "\"1,2\"");
        assert!(table.update(2, &[("B", "9,9".to_owned())]).expect("UTF-8"));
        assert_eq!(printed(&table), text.replace("1,2,3", "1,\"9,9\",3\r\n"));
    }

    #[test]
    fn appended_columns_pad_the_other_rows() {
        let mut table = table("A,B\n1,2\n3,4\n");
        table.update(1, &[("New", "x".to_owned())]).expect("UTF-8");
        assert_eq!(printed(&table), "A,B,New\n1,2,\n3,4,x\n");
        table.update(1, &[("Other", "y".to_owned())]).expect("UTF-8");
        assert_eq!(printed(&table), "A,B,New,Other\n1,2,,\n3,4,x,y\n");
    }

    #[test]
    fn setting_what_is_there_changes_nothing() {
        let mut table = table("A,B\n1,2\n");
        assert!(!table.update(0, &[("A", "1".to_owned())]).expect("UTF-8"));
        assert!(!table.save().expect("nothing to write"));
    }

    #[test]
    fn ragged_and_doubled_files_are_refused_with_their_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("K.csv");
        for (text, said) in [
            ("A,B\n1,2\n1\n", ":3: 1 fields, the header has 2"),
            ("A,A\n1,2\n", ":1: a column name stands twice"),
            ("", ":1: the file is empty"),
            ("version https://git-lfs.github.com/spec/v1\noid x\n", "Git LFS pointer"),
        ] {
            fs::write(&path, text).expect("written");
            let error = KernelCsv::load(&path).expect_err("refused").to_string();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn failed_system_call_leaves_each_of_several_tables_complete() {
        let folder = tempfile::tempdir().expect("a folder");
        let paths = ["A", "B", "C"].map(|name| folder.path().join(format!("{name}.csv")));
        let (old, new) = ("K,V\n1,2\n3,4\n", "K,V,W\n1,2,\n3,5,6\n");
        let save = |path: &Path| {
            let mut table = KernelCsv::load(path)?;
            table.update(1, &[("V", "5".to_owned()), ("W", "6".to_owned())])?;
            table.save()
        };
        let mut failures = 0;
        loop {
            paths.iter().for_each(|path| fs::write(path, old).expect("written"));
            faults::fail_after(failures);
            let result = paths.iter().try_for_each(|path| save(path).map(drop));
            let failed = faults::happened();
            assert_eq!(result.is_err(), failed);
            let contents = paths.each_ref().map(|path| fs::read_to_string(path).expect("it is there"));
            assert!(contents.iter().all(|content| content == old || content == new), "{contents:?}");
            assert!(contents.is_sorted_by_key(|content| content == old), "in their order: {contents:?}");
            assert_eq!(fs::read_dir(folder.path()).expect("listed").count(), paths.len(), "a draft is left");
            // Saving again ends as if nothing had happened.
            assert!(paths.iter().all(|path| save(path).is_ok()));
            assert!(paths.iter().all(|path| fs::read_to_string(path).expect("there") == new));
            if !failed {
                break;
            }
            failures += 1;
        }
        assert_eq!(failures, 18, "six calls for each table");
    }

    proptest! {
        #[test]
        fn loading_and_printing_keep_every_byte(rows in proptest::collection::vec(("[a-z\",; ]{0,6}", "[a-z\",\n]{0,6}"), 0..8), crlf: bool) {
            let mut writer = WriterBuilder::new()
                .terminator(if crlf { Terminator::CRLF } else { Terminator::Any(b'\n') })
                .from_writer(Vec::new());
            writer.write_record(["A", "B"]).expect("memory");
            for (a, b) in &rows {
                writer.write_record([a, b]).expect("memory");
            }
            let text = String::from_utf8(writer.into_inner().expect("memory")).expect("UTF-8");
            let table = table(&text);
            prop_assert_eq!(table.len(), rows.len());
            prop_assert_eq!(printed(&table), text);
            for (index, (a, b)) in rows.iter().enumerate() {
                let cells = table.cells(index).expect("UTF-8");
                prop_assert_eq!((&cells[0], &cells[1]), (a.as_str(), b.as_str()));
            }
        }
    }
}
