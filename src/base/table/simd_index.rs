//! SIMD index of rows and cells of a table in the form that profilers write.
//!
//! The csv crate defines the meaning of a table. This index supports only the forms that profilers write (bare cells,
//! `"x"`, and shapes in `"""x"""`) and returns [`NeedsFullParser`] for everything else, upon which the table is read
//! again by the csv crate. It exists because it is several times as fast, and splitting limits the speed of reading
//! profiles.
//!
//! Each step converts 64 bytes to bit masks, one bit per byte, as simdjson does: the exclusive or of all preceding
//! quotes marks quoted bytes, and rules about adjacent bytes become shifts.

use wide::u8x16;

/// Input that the csv crate must parse: other quotes, a lone carriage return, another number of cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NeedsFullParser;

/// Bytes of one step, as many as a mask has bits.
const STEP: usize = 64;

/// Index of the rows and cells of a text. Its memory is reused for the next text.
#[derive(Debug, Default)]
pub(crate) struct CsvIndex {
    width: usize,
    /// Ends of the cells, row by row.
    ends: Vec<u32>,
    starts: Vec<u32>,
    /// End of the last row, after its line ending.
    end: u32,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct RowCellIndex<'a> {
    text: &'a [u8],
    begin: u32,
    ends: &'a [u32],
}

impl CsvIndex {
    /// Indexes the rows of `width` cells in a text that starts and ends at a row.
    pub(crate) fn index_rows(&mut self, text: &[u8], width: usize) -> Result<(), NeedsFullParser> {
        // Every position, and those of the padding after the end, must fit.
        let length = u32::try_from(text.len() + 2 * STEP).map_err(|_| NeedsFullParser)? - 2 * STEP as u32;
        (self.width, self.end) = (width, 0);
        self.ends.clear();
        self.starts.clear();
        let mut quotes = QuoteState::default();
        let (steps, rest) = text.as_chunks::<STEP>();
        let mut base = 0;
        for step in steps {
            self.add_step(quotes.scan_block(step)?, base)?;
            base += STEP as u32;
        }
        let mut last = [0; STEP];
        last[..rest.len()].copy_from_slice(rest);
        // The last row may lack its line ending.
        if text.last().is_some_and(|last| *last != b'\n') {
            last[rest.len()] = b'\n';
        }
        self.add_step(quotes.scan_block(&last)?, base)?;
        if quotes.inside != 0 {
            return Err(NeedsFullParser);
        }
        self.end = self.end.min(length);
        Ok(())
    }

    /// Adds the ends of cells and rows of one step.
    #[inline]
    fn add_step(&mut self, ends: CellEnds, base: u32) -> Result<(), NeedsFullParser> {
        let mut complete = self.starts.len() * self.width;
        let before = self.ends.len();
        self.push_positions(ends.cells, base);
        let (mut rows, mut blank) = (ends.rows, 0);
        while rows != 0 {
            let at = rows.trailing_zeros();
            let cells = before + (ends.cells << (63 - at)).count_ones() as usize - blank - complete;
            if cells == 1 && self.ends[complete] == self.end {
                // The csv crate skips blank lines.
                self.ends.remove(complete);
                blank += 1;
            } else if cells == self.width {
                self.starts.push(self.end);
                complete += cells;
            } else {
                return Err(NeedsFullParser);
            }
            self.end = base + at + 1;
            rows &= rows - 1;
        }
        Ok(())
    }

    #[inline]
    /// Appends the position of each bit. Batches of sixteen are faster than a loop with an unpredictable end.
    fn push_positions(&mut self, mut bits: u64, base: u32) {
        let mut left = bits.count_ones() as usize;
        loop {
            let mut batch = [0; 16];
            for position in &mut batch {
                *position = base + bits.trailing_zeros();
                bits &= bits.wrapping_sub(1);
            }
            let length = self.ends.len() + left.min(batch.len());
            self.ends.extend_from_slice(&batch);
            self.ends.truncate(length);
            left = left.saturating_sub(batch.len());
            if left == 0 {
                return;
            }
        }
    }

    pub(crate) const fn len(&self) -> usize {
        self.starts.len()
    }

    pub(crate) fn rows<'a>(&'a self, text: &'a [u8]) -> impl Iterator<Item = RowCellIndex<'a>> {
        let cells = self.ends.chunks_exact(self.width.max(1));
        self.starts.iter().zip(cells).map(|(&begin, ends)| RowCellIndex { text, begin, ends })
    }
}

impl<'a> RowCellIndex<'a> {
    pub(crate) const fn begin(&self) -> u32 {
        self.begin
    }

    /// Returns the end of the row, after its line ending if it has one.
    pub(crate) fn end(&self) -> usize {
        let end = self.ends.last().map_or(self.begin, |end| *end) as usize;
        let line_ending = if self.text.get(end) == Some(&b'\r') { 2 } else { 1 };
        self.text.len().min(end + line_ending)
    }

    /// Returns the bytes from one cell to another, with the quotes and commas between.
    #[inline]
    pub(crate) fn cell_range(&self, first: usize, last: usize) -> &'a [u8] {
        let (begin, end) = (self.begin_of(first), self.end_of(last));
        self.text.get(begin..end).unwrap_or_default()
    }

    /// Returns the eight bytes before a cell's end, and the cell's length; `None` near the start of the text.
    #[inline]
    pub(crate) fn last_eight_bytes(&self, column: usize) -> Option<(u64, usize)> {
        let (begin, end) = (self.begin_of(column), self.end_of(column));
        let word = self.text.get(..end)?.last_chunk()?;
        Some((u64::from_le_bytes(*word), end.wrapping_sub(begin)))
    }

    #[inline]
    fn begin_of(&self, column: usize) -> usize {
        let before =
            column.checked_sub(1).map(|before| self.ends.get(before).map_or(u32::MAX, |end| end + 1));
        before.unwrap_or(self.begin) as usize
    }

    #[inline]
    fn end_of(&self, column: usize) -> usize {
        self.ends.get(column).copied().unwrap_or_default() as usize
    }

    #[inline]
    pub(crate) fn get(&self, column: usize) -> &'a [u8] {
        let raw = self.cell_range(column, column);
        // A shape has its own quotes inside the cell's: the outer pair is removed, each doubled quote becomes one,
        // and the rest is a slice of the text.
        let quotes = match raw {
            [b'"', b'"', b'"', ..] => 2,
            [b'"', ..] => 1,
            _ => 0,
        };
        raw.get(quotes..raw.len() - quotes).unwrap_or_default()
    }
}

/// Ends of cells and rows of one step, one bit per byte.
#[derive(Clone, Copy)]
struct CellEnds {
    cells: u64,
    rows: u64,
}

/// State that a step passes to the next.
#[derive(Debug)]
struct QuoteState {
    /// All ones inside quotes.
    inside: u64,
    /// All ones between the quotes around a shape.
    in_shape: u64,
    boundary: u64,
    close: u64,
    carriage: u64,
    first: u64,
    doubled: u64,
    head: u64,
}

impl Default for QuoteState {
    fn default() -> Self {
        // The start of a text is the start of a cell.
        let boundary = 1 << (STEP - 1);
        let (inside, in_shape, close, carriage, first, doubled, head) = (0, 0, 0, 0, 0, 0, 0);
        Self { inside, in_shape, boundary, close, carriage, first, doubled, head }
    }
}

impl QuoteState {
    /// Returns the ends of cells and rows outside quotes.
    #[inline]
    fn scan_block(&mut self, step: &[u8; STEP]) -> Result<CellEnds, NeedsFullParser> {
        let [quote, comma, newline, carriage] = [b'"', b',', b'\n', b'\r'].map(|byte| byte_mask(step, byte));
        let pending = self.inside | self.in_shape | ((self.close | self.doubled) >> (STEP - 2));
        if quote | pending == 0 {
            return self.pass_bare(comma, newline, carriage);
        }
        let inside = running_xor(quote) ^ self.inside;
        let (open, close) = (quote & inside, quote & !inside);
        let [comma, newline, carriage] = [comma, newline, carriage].map(|mask| mask & !inside);
        let boundary = comma | newline | carriage;
        let behind_close = shift_from_previous(close, self.close, 1);
        let behind_carriage = shift_from_previous(carriage, self.carriage, 1);
        let first = open & shift_from_previous(boundary, self.boundary, 1);
        // An opening quote is at the start of a cell, or follows a closing one: the two represent one quote.
        let doubled = open & behind_close;
        let mut wrong = open & !(first | doubled);
        wrong |= behind_close & !(boundary | open);
        wrong |= behind_carriage & !newline;
        // Doubled quotes are allowed as second and third byte of a cell together with the third and second last. Four
        // quotes alone are not allowed.
        let head = doubled & shift_from_previous(first, self.first, 2);
        let tail = boundary & behind_close & shift_from_previous(doubled, self.doubled, 2);
        wrong |= shift_from_previous(doubled ^ head, self.doubled ^ self.head, 2) ^ tail;
        let in_shape = running_xor(head ^ tail) ^ self.in_shape;
        wrong |= in_shape & boundary;
        if wrong != 0 {
            return Err(NeedsFullParser);
        }
        let lasts = |mask: u64| 0_u64.wrapping_sub(mask >> (STEP - 1));
        *self = Self {
            inside: lasts(inside),
            in_shape: lasts(in_shape),
            boundary,
            close,
            carriage,
            first,
            doubled,
            head,
        };
        // The last cell of a row ends before `\r\n`.
        Ok(CellEnds { cells: boundary & !behind_carriage, rows: newline })
    }

    /// Scans a step without quotes whose predecessor has no open state, the most frequent case.
    #[inline]
    fn pass_bare(&mut self, comma: u64, newline: u64, carriage: u64) -> Result<CellEnds, NeedsFullParser> {
        let behind_carriage = shift_from_previous(carriage, self.carriage, 1);
        if behind_carriage & !newline != 0 {
            return Err(NeedsFullParser);
        }
        let boundary = comma | newline | carriage;
        *self = Self { boundary, carriage, ..Self::default() };
        Ok(CellEnds { cells: boundary & !behind_carriage, rows: newline })
    }
}

/// Returns a mask with a bit for each byte equal to `byte`.
#[inline]
fn byte_mask(step: &[u8; STEP], byte: u8) -> u64 {
    let wanted = u8x16::splat(byte);
    let (lanes, _) = step.as_chunks::<16>();
    lanes
        .iter()
        .rev()
        .fold(0, |mask, lane| (mask << 16) | u64::from(u8x16::new(*lane).simd_eq(wanted).to_bitmask()))
}

/// Returns the exclusive or of each bit and all lower ones.
#[inline]
const fn running_xor(mut bits: u64) -> u64 {
    let mut distance = 1;
    while distance < u64::BITS {
        bits ^= bits << distance;
        distance *= 2;
    }
    bits
}

/// Returns the bytes at `distance` after those of a mask, whose predecessor is `last`.
#[inline]
const fn shift_from_previous(mask: u64, last: u64, distance: u32) -> u64 {
    (mask << distance) | (last >> (u64::BITS - distance))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Rows by this index, or that it gave up.
    fn split(text: &[u8], width: usize) -> Result<Vec<Vec<Vec<u8>>>, NeedsFullParser> {
        let mut index = CsvIndex::default();
        index.index_rows(text, width)?;
        let cells =
            |row: RowCellIndex<'_>| (0..row.ends.len()).map(|column| row.get(column).to_vec()).collect();
        Ok(index.rows(text).map(cells).collect())
    }

    fn by_the_csv_crate(text: &[u8]) -> Vec<Vec<Vec<u8>>> {
        let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(text);
        let rows = reader.byte_records().map(|row| row.expect("memory"));
        rows.map(|row| row.iter().map(<[u8]>::to_vec).collect()).collect()
    }

    /// The same text at every place in a step, behind a row of bare cells.
    fn shifted(text: &str, width: usize) -> impl Iterator<Item = String> {
        let commas = ",".repeat(width - 1);
        (1..=STEP).map(move |length| format!("{}{commas}\n{text}", "x".repeat(length)))
    }

    #[test]
    fn rows_of_profilers_are_split() {
        let text = "1,\"\"\"4096,1;64\"\"\",N/A,\"a,b\"\r\n,\"\"\"\"\"\",,x\n\n\"\",2\t,\"\n\",4\r\n\r\n1,2,,\"\"\"1\"\"\"";
        for text in shifted(text, 4) {
            assert_eq!(split(text.as_bytes(), 4).expect("regular"), by_the_csv_crate(text.as_bytes()));
        }
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
            for text in [text.to_owned()].into_iter().chain(shifted(text, 2)) {
                assert_eq!(split(text.as_bytes(), 2), Err(NeedsFullParser), "{text:?}");
            }
        }
    }

    #[test]
    fn index_rows_have_byte_positions() {
        let text = b"\na,b\r\n\n\"\n\",d\ne,f";
        let mut index = CsvIndex::default();
        index.index_rows(text, 2).expect("regular");
        let spans = index.rows(text).map(|row| &text[row.begin() as usize..row.end()]);
        assert_eq!(spans.collect::<Vec<_>>(), [&b"a,b\r\n"[..], b"\"\n\",d\n", b"e,f"]);
    }

    proptest! {
        /// Whatever is accepted is what the csv crate reads.
        #[test]
        fn rows_accepted_by_index_agree_with_csv_crate(
            before in 0_usize..STEP, text in "[a,;\"\n\r ]{0,40}", width in 1_usize..4,
        ) {
            let text = format!("{}{}\n{text}", "x".repeat(before), ",".repeat(width - 1));
            if let Ok(rows) = split(text.as_bytes(), width) {
                prop_assert_eq!(rows, by_the_csv_crate(text.as_bytes()));
            }
        }

        /// Cells in any number of quotes, closed or not.
        #[test]
        fn quotes_accepted_by_index_agree_with_csv_crate(
            before in 0_usize..STEP,
            cells in proptest::collection::vec((0_usize..7, "[a,\n]{0,2}", 0_usize..7), 0..9),
        ) {
            let quoted = |(opening, cell, closing): &(usize, String, usize)| {
                format!("{}{cell}{},{}", "\"".repeat(*opening), "\"".repeat(*closing), "z\n")
            };
            let text = format!("{},\n{}", "x".repeat(before), cells.iter().map(quoted).collect::<String>());
            if let Ok(rows) = split(text.as_bytes(), 2) {
                prop_assert_eq!(rows, by_the_csv_crate(text.as_bytes()));
            }
        }

        /// Real-shaped rows are accepted.
        #[test]
        fn rows_of_profilers_are_accepted(
            rows in proptest::collection::vec(("[0-9,;]{1,9}", "[A-Z_0-9;.\t]{0,6}"), 0..9),
            newline in "\r?\n",
        ) {
            let lines: Vec<String> = rows
                .iter()
                .map(|(shape, cell)| format!("{cell},\"\"\"{shape}\"\"\",x{newline}"))
                .collect();
            let text = lines.concat();
            prop_assert_eq!(split(text.as_bytes(), 3), Ok(by_the_csv_crate(text.as_bytes())));
        }
    }
}
