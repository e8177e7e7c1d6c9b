//! Splits the rows of a block into cells, as fast as memory allows, where they look as profilers write them.
//!
//! The csv crate is the judge of what a table means. This splitter knows only the forms that profilers
//! write (bare cells, `"x"`, and shapes in `"""x"""`) and calls everything else [`Irregular`], upon which
//! the table is read again by the csv crate. It exists because it is several times as fast, and reading
//! profiles is limited by splitting.

/// Something that the csv crate must judge: other quotes, a lone carriage return, another number of cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Irregular;

/// Goes through the rows of a block that begins and ends with a row.
#[derive(Debug)]
pub(super) struct Splitter<'b> {
    block: &'b [u8],
    at: usize,
    width: usize,
    cells: Vec<(u32, u32)>,
}

impl<'b> Splitter<'b> {
    /// Splits rows of `width` cells. Blocks are shorter than 4 GiB.
    pub(super) fn new(block: &'b [u8], width: usize) -> Self {
        Self { block, at: 0, width, cells: Vec::with_capacity(width) }
    }

    /// Where the next row begins.
    pub(super) const fn position(&self) -> usize {
        self.at
    }

    /// The cells of the next row as ranges of the block, `None` at its end.
    pub(super) fn next(&mut self) -> Result<Option<&[(u32, u32)]>, Irregular> {
        // The csv crate passes over blank lines.
        while matches!(self.block.get(self.at), Some(b'\n' | b'\r')) {
            self.at += 1;
        }
        if self.at >= self.block.len() {
            return Ok(None);
        }
        self.cells.clear();
        loop {
            let (from, to, after) = self.cell()?;
            let narrow = |at: usize| u32::try_from(at).map_err(|_| Irregular);
            self.cells.push((narrow(from)?, narrow(to)?));
            self.at = after + 1;
            match self.block.get(after) {
                Some(b',') => {}
                None | Some(b'\n') => break,
                Some(b'\r') if self.block.get(after + 1) == Some(&b'\n') => {
                    self.at += 1;
                    break;
                }
                Some(_) => return Err(Irregular),
            }
        }
        if self.cells.len() == self.width { Ok(Some(&self.cells)) } else { Err(Irregular) }
    }

    /// Begin and end of a cell's content, and where its delimiter is.
    fn cell(&self) -> Result<(usize, usize, usize), Irregular> {
        let from = self.at;
        let rest = &self.block[from.min(self.block.len())..];
        if rest.first() != Some(&b'"') {
            // Delimiters are among the lowest characters; one comparison passes over nearly all others.
            let ends = |byte: &u8| *byte <= b',' && matches!(byte, b',' | b'\n' | b'\r');
            let length = rest.iter().position(ends).unwrap_or(rest.len());
            return Ok((from, from + length, from + length));
        }
        // A shape arrives in quotes of its own inside the cell's: the outer pair goes, the doubled
        // quotes become one each, and what is left stands in the block as it is.
        let tripled = rest.starts_with(b"\"\"\"");
        let opening = if tripled { 3 } else { 1 };
        let length = memchr::memchr(b'"', &rest[opening..]).ok_or(Irregular)?;
        let closing = opening + length;
        if tripled && !rest[closing..].starts_with(b"\"\"\"") {
            return Err(Irregular);
        }
        let after = closing + opening;
        if rest.get(after) == Some(&b'"') {
            return Err(Irregular);
        }
        let inner = if tripled { 1 } else { 0 };
        Ok((from + opening - inner, from + closing + inner, from + after))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Rows by this splitter, or that it gave up.
    fn split(text: &[u8], width: usize) -> Result<Vec<Vec<Vec<u8>>>, Irregular> {
        let mut splitter = Splitter::new(text, width);
        let mut rows = Vec::new();
        while let Some(cells) = splitter.next()? {
            rows.push(cells.iter().map(|&(from, to)| text[from as usize..to as usize].to_vec()).collect());
        }
        Ok(rows)
    }

    fn by_the_csv_crate(text: &[u8]) -> Vec<Vec<Vec<u8>>> {
        let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(text);
        let rows = reader.byte_records().map(|row| row.expect("memory"));
        rows.map(|row| row.iter().map(<[u8]>::to_vec).collect()).collect()
    }

    #[test]
    fn rows_of_profilers_are_split() {
        let text = b"1,\"\"\"4096,1;64\"\"\",N/A,\"a,b\"\r\n,\"\"\"\"\"\",,x\n\n\"\",2\t,3,4";
        let rows = split(text, 4);
        // `""""""` is an empty shape in its quotes; its inside has no third quote in front of the closing ones.
        assert!(rows == Err(Irregular) || rows == Ok(by_the_csv_crate(text)));
        let text = b"1,\"\"\"4096,1;64\"\"\",N/A,\"a,b\"\r\n,\"\",,x\n\n\"\",2\t,3,4";
        assert_eq!(split(text, 4).expect("regular"), by_the_csv_crate(text));
    }

    #[test]
    fn what_profilers_do_not_write_is_left_to_the_csv_crate() {
        for text in [
            "a,b\n1\n",
            "a,b,c\n",
            "\"a\"x,b\n",
            "\"a\"\"b\",c\n",
            "\"\"\"a\"\"b\"\"\",c\n",
            "a\rb,c\n",
            "\"a,b\n",
        ] {
            assert_eq!(split(text.as_bytes(), 2), Err(Irregular), "{text:?}");
        }
    }

    proptest! {
        /// Whatever is accepted is what the csv crate reads.
        #[test]
        fn accepted_rows_are_those_of_the_csv_crate(text in "[a,;\"\n\r ]{0,40}", width in 1_usize..4) {
            if let Ok(rows) = split(text.as_bytes(), width) {
                prop_assert_eq!(rows, by_the_csv_crate(text.as_bytes()));
            }
        }

        /// Real-shaped rows are accepted.
        #[test]
        fn rows_of_profilers_are_accepted(rows in proptest::collection::vec(("[0-9,;]{1,9}", "[A-Z_0-9;.\t]{0,6}"), 0..9)) {
            let lines: Vec<String> =
                rows.iter().map(|(shape, cell)| format!("{cell},\"\"\"{shape}\"\"\",x\n")).collect();
            let text = lines.concat();
            prop_assert_eq!(split(text.as_bytes(), 3), Ok(by_the_csv_crate(text.as_bytes())));
        }
    }
}
