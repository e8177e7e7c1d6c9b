//! Tables in parts, so that a large one is not in memory as a whole.

use std::{fs::File, io::Read as _, path::Path};

use super::{CsvRow, KernelCsv};
use crate::{base::files::open_regular, database::DatabaseError};

/// Bytes that are read for a part.
const PART: usize = 4 << 20;

/// Ends of lines outside of quotes in bytes that grow.
#[derive(Debug, Default)]
struct RowEnds {
    /// Number of bytes that were searched.
    searched: usize,
    is_quoted: bool,
    /// End of the first line.
    header: Option<usize>,
    /// End of the last line.
    last: usize,
}

impl RowEnds {
    /// Searches the bytes behind those that were searched.
    fn search(&mut self, bytes: &[u8]) {
        for at in memchr::memchr2_iter(b'"', b'\n', &bytes[self.searched..]) {
            let at = self.searched + at;
            if bytes[at] == b'"' {
                self.is_quoted = !self.is_quoted;
            } else if !self.is_quoted {
                self.header.get_or_insert(at + 1);
                self.last = at + 1;
            }
        }
        self.searched = bytes.len();
    }
}

/// Reader of a table in parts, each with the header and whole rows.
#[derive(Debug)]
struct PartReader<'p> {
    path: &'p Path,
    file: File,
    size: usize,
    /// Header, and bytes after the last part.
    bytes: Vec<u8>,
    ends: RowEnds,
    /// Number of lines after the header in the parts before.
    lines_before: u64,
    has_parts: bool,
    is_at_end: bool,
}

impl<'p> PartReader<'p> {
    fn open(path: &'p Path, size: usize) -> Result<Self, DatabaseError> {
        Ok(Self {
            path,
            file: open_regular(path).map_err(DatabaseError::io("read", path))?,
            size,
            bytes: Vec::new(),
            ends: RowEnds::default(),
            lines_before: 0,
            has_parts: false,
            is_at_end: false,
        })
    }

    /// Reads the next part; `None` at the end of the file. A file without rows has one part.
    fn next_part(&mut self) -> Result<Option<KernelCsv>, DatabaseError> {
        while !self.is_at_end {
            let read = self.file.by_ref().take(self.size as u64).read_to_end(&mut self.bytes);
            self.is_at_end = read.map_err(DatabaseError::io("read", self.path))? == 0;
            self.ends.search(&self.bytes);
            let header = self.ends.header.unwrap_or(0);
            let rest = if self.is_at_end { Vec::new() } else { self.bytes.split_off(self.ends.last) };
            let has_rows = self.bytes.len() > header;
            let mut part = None;
            if has_rows || (self.is_at_end && !self.has_parts) {
                let next = self.bytes[..header].to_vec();
                let lines = memchr::memchr_iter(b'\n', &self.bytes[header..]).count() as u64;
                let mut table = KernelCsv::from_bytes(self.path, std::mem::replace(&mut self.bytes, next))?;
                table.shift_lines(self.lines_before);
                self.lines_before += lines;
                self.has_parts = true;
                part = Some(table);
            }
            self.bytes.extend_from_slice(&rest);
            self.ends.last = header;
            self.ends.searched = self.bytes.len();
            if part.is_some() {
                return Ok(part);
            }
        }
        Ok(None)
    }
}

impl KernelCsv {
    /// Loads a table in parts, each with the header and whole rows, which have the lines of the file; the next part is read while
    /// one is visited. Fails with [`DatabaseError`] as [`Self::load`] does, or if `visit` does; the parts before an error were
    /// visited, and its line is that of a part. A table with quotes inside of cells may fail although it can be loaded as a
    /// whole.
    pub(crate) fn for_each_part(
        path: &Path,
        visit: impl FnMut(&Self) -> Result<(), DatabaseError> + Send,
    ) -> Result<(), DatabaseError> {
        Self::for_each_part_of(path, PART, visit)
    }

    fn for_each_part_of(
        path: &Path,
        size: usize,
        mut visit: impl FnMut(&Self) -> Result<(), DatabaseError> + Send,
    ) -> Result<(), DatabaseError> {
        let mut reader = PartReader::open(path, size)?;
        let mut part = reader.next_part()?;
        while let Some(table) = part {
            let (visited, next) = rayon::join(|| visit(&table), || reader.next_part());
            visited?;
            part = next?;
        }
        Ok(())
    }

    /// Adds the number of lines that precede in the file to those of all rows.
    fn shift_lines(&mut self, lines: u64) {
        for row in &mut self.rows {
            if let CsvRow::Original(place) = row {
                place.line += lines;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;

    /// Lines and cells of all rows.
    type Rows = Vec<(u64, Vec<String>)>;

    fn rows_of(table: &KernelCsv, rows: &mut Rows) {
        for row in 0..table.len() {
            let cells = table.row_cells(row).expect("UTF-8");
            rows.push((table.row_line(row), cells.iter().map(str::to_owned).collect()));
        }
    }

    proptest! {
        /// Cells with commas, quotes and line breaks, blank lines, either line ending and any size of the parts.
        #[test]
        fn parts_have_the_rows_and_lines_of_the_whole_table(
            cells in prop::collection::vec(prop::collection::vec("[a-c,\"\n]{0,5}", 2), 0..30),
            blank in 0_usize..30, newline in prop::sample::select(vec!["\n", "\r\n"]),
            ends_line in any::<bool>(), size in 1_usize..200,
        ) {
            let quoted = |cell: &String| format!("\"{}\"", cell.replace('"', "\"\""));
            let mut lines: Vec<String> = vec!["Type,Input".to_owned()];
            lines.extend(cells.iter().map(|row| row.iter().map(quoted).collect::<Vec<_>>().join(",")));
            if blank > 0 && blank < lines.len() {
                lines.insert(blank, String::new());
            }
            let mut text = lines.join(newline);
            if ends_line || lines.len() == 1 {
                text.push_str(newline);
            }
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("Add.csv");
            fs::write(&path, &text).expect("written");
            let (mut whole, mut parts, mut visited) = (Rows::new(), Rows::new(), 0);
            rows_of(&KernelCsv::load(&path).expect("a table"), &mut whole);
            KernelCsv::for_each_part_of(&path, size, |table| {
                visited += 1;
                rows_of(table, &mut parts);
                Ok(())
            }).expect("a table");
            prop_assert_eq!(parts, whole, "{:?}", text);
            prop_assert!(visited >= 1);
        }
    }

    #[test]
    fn faults_are_those_of_the_whole_table() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("Add.csv");
        let visit =
            |path: &Path| KernelCsv::for_each_part_of(path, 8, |_| Ok(())).expect_err("a fault").to_string();
        for text in ["", "a,a\n1,2\n", "a,b", "a\tb\n1\t2\n"] {
            fs::write(&path, text).expect("written");
            assert_eq!(visit(&path), KernelCsv::load(&path).expect_err("a fault").to_string(), "{text:?}");
        }
        fs::write(&path, "a,b\n1,2\n3,4\n5\n6,7\n").expect("written");
        visit(&path);
        visit(folder.path());
    }
}
