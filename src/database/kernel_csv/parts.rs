//! Tables in parts, so that a large one is not in memory as a whole.

use std::{io::Read as _, path::Path};

use super::{CsvRow, KernelCsv};
use crate::{database::DatabaseError, files::open_regular};

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

impl KernelCsv {
    /// Loads a table in parts, each with the header and whole rows, which have the lines of the file. Fails with [`DatabaseError`]
    /// as [`Self::load`] does, or if `visit` does; the parts before an error were visited, and its line is that of a part. A
    /// table with quotes inside of cells may fail although it can be loaded as a whole.
    pub(crate) fn for_each_part(
        path: &Path,
        visit: impl FnMut(&Self) -> Result<(), DatabaseError>,
    ) -> Result<(), DatabaseError> {
        Self::for_each_part_of(path, PART, visit)
    }

    fn for_each_part_of(
        path: &Path,
        size: usize,
        mut visit: impl FnMut(&Self) -> Result<(), DatabaseError>,
    ) -> Result<(), DatabaseError> {
        let mut file = open_regular(path).map_err(DatabaseError::io("read", path))?;
        let mut bytes = Vec::new();
        let mut ends = RowEnds::default();
        let mut lines_before = 0;
        let mut is_first = true;
        loop {
            let read = file.by_ref().take(size as u64).read_to_end(&mut bytes);
            let is_end = read.map_err(DatabaseError::io("read", path))? == 0;
            ends.search(&bytes);
            let header = ends.header.unwrap_or(0);
            let rest = if is_end { Vec::new() } else { bytes.split_off(ends.last) };
            let has_rows = bytes.len() > header;
            if has_rows || (is_end && is_first) {
                let next = bytes[..header].to_vec();
                let lines = memchr::memchr_iter(b'\n', &bytes[header..]).count() as u64;
                let mut table = Self::from_bytes(path, std::mem::take(&mut bytes))?;
                table.shift_lines(lines_before);
                visit(&table)?;
                lines_before += lines;
                is_first = false;
                bytes = next;
            }
            if is_end {
                return Ok(());
            }
            bytes.extend_from_slice(&rest);
            ends.last = header;
            ends.searched = bytes.len();
        }
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
    type Rows = Vec<(Option<u64>, Vec<String>)>;

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
