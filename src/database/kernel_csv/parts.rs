//! Tables in parts, so that a large one is not in memory as a whole.

use std::{fs::File, io::Read as _, path::Path};

use super::{CsvRow, KernelCsv};
use crate::{base::files::open_regular, database::DatabaseError};

const PART: usize = 4 << 20;

/// Returns the ends of the first and the last line outside of quotes; 0 without a line.
fn line_ends(bytes: &[u8]) -> (usize, usize) {
    let (mut first, mut last, mut is_quoted) = (0, 0, false);
    for at in memchr::memchr2_iter(b'"', b'\n', bytes) {
        if bytes[at] == b'"' {
            is_quoted = !is_quoted;
        } else if !is_quoted {
            last = at + 1;
            first = if first == 0 { last } else { first };
        }
    }
    (first, last)
}

/// Reader of a table in parts, each with the header and whole rows.
#[derive(Debug)]
struct PartReader<'p> {
    path: &'p Path,
    file: File,
    size: usize,
    /// Header, and bytes after the last part.
    bytes: Vec<u8>,
    /// Number of lines after the header in the parts before.
    lines_before: u64,
    has_parts: bool,
    is_at_end: bool,
}

impl PartReader<'_> {
    /// Reads the next part; `None` at the end of the file. A file without rows has one part.
    fn next_part(&mut self) -> Result<Option<KernelCsv>, DatabaseError> {
        let mut bytes = std::mem::take(&mut self.bytes);
        while !self.is_at_end {
            let read = self.file.by_ref().take(self.size as u64).read_to_end(&mut bytes);
            self.is_at_end = read.map_err(DatabaseError::io("read", self.path))? == 0;
            let (header, last) = line_ends(&bytes);
            let end = if self.is_at_end { bytes.len() } else { last };
            if end > header || (self.is_at_end && !self.has_parts) {
                self.bytes = [&bytes[..header], &bytes[end..]].concat();
                bytes.truncate(end);
                let lines = memchr::memchr_iter(b'\n', &bytes[header..]).count() as u64;
                let mut table = KernelCsv::from_bytes(self.path, bytes)?;
                table.shift_lines(self.lines_before);
                self.lines_before += lines;
                self.has_parts = true;
                return Ok(Some(table));
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
        let file = open_regular(path).map_err(DatabaseError::io("read", path))?;
        let (bytes, lines_before, has_parts, is_at_end) = (Vec::new(), 0, false, false);
        let mut reader = PartReader { path, file, size, bytes, lines_before, has_parts, is_at_end };
        let mut part = reader.next_part()?;
        while let Some(table) = part {
            let (visited, next) = rayon::join(|| visit(&table), || reader.next_part());
            visited?;
            part = next?;
        }
        Ok(())
    }

    /// Adds the number of preceding lines in the file to the line numbers of all rows.
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
