//! Index of the rows and cells of a table in the form that profilers write.
//!
//! The csv crate defines the meaning of a table. This index supports only the forms that profilers write (bare cells,
//! `"x"`, and shapes in `"""x"""`) and returns [`NeedsFullParser`] for everything else, upon which the table is read
//! again by the csv crate. It exists because splitting a table into cells limits the speed of reading profiles, and
//! this index copies no cell.

/// Input that the csv crate must parse: other quotes, a lone carriage return, another number of cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NeedsFullParser;

/// Index of the rows and cells of a text. Its memory is reused for the next text.
#[derive(Debug, Default)]
pub(crate) struct CsvIndex {
    width: usize,
    starts: Vec<u32>,
    /// Ends of the cells, row by row.
    ends: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct RowCells<'a> {
    text: &'a [u8],
    begin: u32,
    ends: &'a [u32],
}

/// Bytes that end a bare cell, or that a bare cell must not contain.
const SPECIAL: [bool; 256] = {
    let mut special = [false; 256];
    special[b',' as usize] = true;
    special[b'\n' as usize] = true;
    special[b'\r' as usize] = true;
    special[b'"' as usize] = true;
    special
};

impl CsvIndex {
    /// Indexes the rows of `width` cells in a text that starts and ends at a row.
    pub(crate) fn index_rows(&mut self, text: &[u8], width: usize) -> Result<(), NeedsFullParser> {
        if width == 0 || u32::try_from(text.len()).is_err() {
            return Err(NeedsFullParser);
        }
        self.width = width;
        self.starts.clear();
        self.ends.clear();
        let mut at = 0;
        while at < text.len() {
            // The csv crate skips blank lines.
            if let Some(blank @ 1..) = line_ending_length(&text[at..]) {
                at += blank;
                continue;
            }
            self.starts.push(at as u32);
            for left in (0..width).rev() {
                let end = cell_end(text, at).ok_or(NeedsFullParser)?;
                self.ends.push(end as u32);
                at = match left {
                    0 => end + line_ending_length(&text[end..]).ok_or(NeedsFullParser)?,
                    _ if text.get(end) == Some(&b',') => end + 1,
                    _ => return Err(NeedsFullParser),
                };
            }
        }
        Ok(())
    }

    pub(crate) const fn len(&self) -> usize {
        self.starts.len()
    }

    pub(crate) fn rows<'a>(&'a self, text: &'a [u8]) -> impl Iterator<Item = RowCells<'a>> {
        let cells = self.ends.chunks_exact(self.width.max(1));
        self.starts.iter().zip(cells).map(move |(&begin, ends)| RowCells { text, begin, ends })
    }
}

/// Returns the length of the line ending with which a text starts, 0 for an empty text; `None` if the text starts with
/// anything else.
fn line_ending_length(text: &[u8]) -> Option<usize> {
    match text {
        [] => Some(0),
        [b'\n', ..] => Some(1),
        [b'\r', b'\n', ..] => Some(2),
        _ => None,
    }
}

/// Returns the end of the cell that starts at the given place; `None` for a form that profilers do not write.
#[inline]
fn cell_end(text: &[u8], at: usize) -> Option<usize> {
    let rest = &text[at..];
    if rest.first() != Some(&b'"') {
        let length = rest.iter().position(|byte| SPECIAL[usize::from(*byte)]).unwrap_or(rest.len());
        return (rest.get(length) != Some(&b'"')).then_some(at + length);
    }
    let quotes = |from: usize| rest[from..].iter().take_while(|byte| **byte == b'"').count();
    match quotes(0) {
        // The quotes around an empty cell, and around a shape that is empty.
        both @ (2 | 6) => Some(at + both),
        opening @ (1 | 3) => {
            let close = opening + memchr::memchr(b'"', &rest[opening..])?;
            (quotes(close) == opening).then_some(at + close + opening)
        }
        _ => None,
    }
}

impl<'a> RowCells<'a> {
    pub(crate) const fn begin(&self) -> u32 {
        self.begin
    }

    /// Returns the end of the row, after its line ending if it has one.
    pub(crate) fn end(&self) -> usize {
        let end = self.ends.last().map_or(self.begin, |end| *end) as usize;
        end + line_ending_length(&self.text[end..]).unwrap_or_default()
    }

    /// Returns a cell; empty beyond the last column.
    #[inline]
    pub(crate) fn get(&self, column: usize) -> &'a [u8] {
        let Some(end) = self.ends.get(column) else { return b"" };
        let begin = column.checked_sub(1).map_or(self.begin, |before| self.ends[before] + 1);
        let raw = &self.text[begin as usize..*end as usize];
        // A shape has its own quotes inside the cell's: the outer pair is removed, each doubled quote becomes one,
        // and the rest is a slice of the text.
        match raw {
            [b'"', b'"', b'"', ..] => &raw[2..raw.len() - 2],
            [b'"', ..] => &raw[1..raw.len() - 1],
            _ => raw,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The rows that this index finds, or the fact that it gave up.
    fn split(text: &[u8], width: usize) -> Result<Vec<Vec<Vec<u8>>>, NeedsFullParser> {
        let mut index = CsvIndex::default();
        index.index_rows(text, width)?;
        let cells = |row: RowCells<'_>| (0..row.ends.len()).map(|column| row.get(column).to_vec()).collect();
        Ok(index.rows(text).map(cells).collect())
    }

    fn by_the_csv_crate(text: &[u8]) -> Vec<Vec<Vec<u8>>> {
        let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(text);
        let rows = reader.byte_records().map(|row| row.expect("memory"));
        rows.map(|row| row.iter().map(<[u8]>::to_vec).collect()).collect()
    }

    #[test]
    fn rows_of_profilers_are_split_and_have_byte_positions() {
        let text = "1,\"\"\"4096,1;64\"\"\",N/A,\"a,b\"\r\n,\"\"\"\"\"\",,x\n\n\"\",2\t,\"\n\",4\r\n\r\n1,2,,\"\"\"1\"\"\"";
        assert_eq!(split(text.as_bytes(), 4).expect("regular"), by_the_csv_crate(text.as_bytes()));
        let text = b"\na,b\r\n\n\"\n\",d\ne,f";
        let mut index = CsvIndex::default();
        index.index_rows(text, 2).expect("regular");
        let spans = index.rows(text).map(|row| &text[row.begin() as usize..row.end()]);
        assert_eq!(spans.collect::<Vec<_>>(), [&b"a,b\r\n"[..], b"\"\n\",d\n", b"e,f"]);
    }

    #[test]
    fn unusual_csv_needs_full_parser() {
        for text in [
            "a,b\n1\n",
            "a,b,c\n",
            "\"a\"x,b\n",
            "\"a\"\"b\",c\n",
            "\"a\"\"\",c\n",
            "\"\"\"a\",c\n",
            "\"\"\"a,c\",\"b\"\"\"\n",
            "\"\"\"\",b\n",
            "\"\"\"a\"\"b\"\"\",c\n",
            "a\"b\",c\n",
            "a\"\",c\n",
            " \"a\",c\n",
            "a\rb,c\n",
            "\"a,b\n",
            "a,\"",
        ] {
            assert_eq!(split(text.as_bytes(), 2), Err(NeedsFullParser), "{text:?}");
        }
    }

    proptest! {
        /// If the index accepts a text, the csv crate reads the same cells, also with any number of quotes, closed or
        /// not.
        #[test]
        fn rows_accepted_by_index_agree_with_csv_crate(
            text in "[a,;\"\n\r ]{0,40}",
            cells in proptest::collection::vec((0_usize..7, "[a,\n]{0,2}", 0_usize..7), 0..9),
            width in 1_usize..4,
        ) {
            let quoted = |(opening, cell, closing): &(usize, String, usize)| {
                format!("{}{cell}{},{}", "\"".repeat(*opening), "\"".repeat(*closing), "z\n")
            };
            let quotes = cells.iter().map(quoted).collect::<String>();
            for (text, width) in [(text, width), (quotes, 2)] {
                if let Ok(rows) = split(text.as_bytes(), width) {
                    prop_assert_eq!(rows, by_the_csv_crate(text.as_bytes()));
                }
            }
        }
    }
}
