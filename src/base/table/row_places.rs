//! Rows of a table, found by the `simd-csv` crate, which is several times as fast as the csv crate.
//!
//! The csv crate defines the meaning of a table. The two differ for quotes inside of cells and for lone carriage returns.

use simd_csv::ZeroCopyReaderBuilder;

use super::raw_records::CsvPosition;

/// Input that the csv crate must parse: quotes inside of cells, a lone carriage return, another number of cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NeedsFullParser;

/// Finds the rows of `width` cells behind the header, which ends at `start`.
pub(crate) fn row_places(
    text: &[u8],
    mut start: usize,
    width: usize,
) -> Result<Vec<CsvPosition>, NeedsFullParser> {
    let rows = &text[start..];
    let is_lone = |at: usize| rows.get(at + 1) != Some(&b'\n');
    // simd-csv reads the first row twice; the second time, it adds a quote to a cell that ends the text with one.
    if rows.ends_with(b"\"") || !has_regular_quotes(rows) || memchr::memchr_iter(b'\r', rows).any(is_lone) {
        return Err(NeedsFullParser);
    }
    let newlines = |bytes: &[u8]| memchr::memchr_iter(b'\n', bytes).count() as u64;
    let mut reader = ZeroCopyReaderBuilder::new().has_headers(false).flexible(true).from_reader(rows);
    let (mut places, mut lines, header) = (Vec::new(), 1 + newlines(&text[..start]), start);
    // Reading from memory does not fail.
    while let Ok(Some(record)) = reader.read_byte_record() {
        if record.len() != width {
            return Err(NeedsFullParser);
        }
        let end = header + usize::try_from(reader.position()).map_err(|_| NeedsFullParser)?;
        // Blank lines belong to the row after them.
        let bytes = &text[start..end];
        let blank = bytes.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
        places.push(CsvPosition { range: start..end, line: lines + newlines(&bytes[..blank]) });
        lines += newlines(bytes);
        start = end;
    }
    Ok(places)
}

/// Returns true if each quote encloses a cell, or is a doubled one within such a cell.
fn has_regular_quotes(text: &[u8]) -> bool {
    let mut quotes = memchr::memchr_iter(b'"', text);
    while let Some(open) = quotes.next() {
        let is_start = open == 0 || matches!(text[open - 1], b',' | b'\n' | b'"');
        if !is_start || quotes.next().is_none() {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use csv::ByteRecord;
    use proptest::prelude::*;

    use super::{super::raw_records::RawRecords, *};

    /// Cells, bytes and line of each row, as the two crates find them.
    fn rows(text: &[u8], width: usize) -> Option<[Vec<(Vec<Vec<u8>>, CsvPosition)>; 2]> {
        let places = row_places(text, 0, width).ok()?;
        let mut reader = simd_csv::TotalReaderBuilder::new().has_headers(false).from_bytes(text);
        let cells = reader.byte_records().map(|row| row.iter().map(<[u8]>::to_vec).collect());
        let fast = cells.zip(places).collect();
        let (mut records, mut record, mut full) = (RawRecords::new(text), ByteRecord::new(), Vec::new());
        while let Some(place) = records.read_record(&mut record) {
            full.push((record.iter().map(<[u8]>::to_vec).collect(), place));
        }
        Some([fast, full])
    }

    #[test]
    fn rows_have_byte_positions_and_lines() {
        let text = b"1,\"\"\"4096,1;64\"\"\",N/A,\"a,b\"\r\n,\"\"\"\"\"\",,x\n\n\"\",2\t,\"\n\",4\r\n\r\n1,2,,\"\"\"1\"\"\"\n";
        let [fast, full] = rows(text, 4).expect("regular");
        assert_eq!(fast, full);
        assert_eq!(fast.iter().map(|(_, place)| place.line).collect::<Vec<_>>(), [1, 2, 4, 7]);
    }

    #[test]
    fn rows_may_cross_the_ends_of_buffers() {
        for padding in 0..24 {
            let text = format!("{},\"x,\ny\"\"\"\r\n", "a".repeat(padding)).repeat(1000);
            let [fast, full] = rows(text.as_bytes(), 2).expect("regular");
            assert_eq!(fast.len(), 1000);
            assert_eq!(fast, full);
        }
    }

    #[test]
    fn unusual_csv_needs_full_parser() {
        for text in [
            "a,b\n1\n",
            "a,b,c\n",
            "a\"b\",c\n",
            "a\"\",c\n",
            " \"a\",c\n",
            "a\rb,c\n",
            "\"a,b\n",
            "a,\"",
            "a,\"b\"",
        ] {
            assert_eq!(row_places(text.as_bytes(), 0, 2).err(), Some(NeedsFullParser), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn accepted_rows_agree_with_csv_crate(
            text in "[a,;\"\n\r ]{0,40}",
            cells in proptest::collection::vec((0_usize..7, "[a,\n]{0,2}", 0_usize..7), 0..9),
            width in 1_usize..4,
        ) {
            let quoted = |(opening, cell, closing): &(usize, String, usize)| {
                format!("{}{cell}{},{}", "\"".repeat(*opening), "\"".repeat(*closing), "z\n")
            };
            let quotes = cells.iter().map(quoted).collect::<String>();
            for (text, width) in [(text, width), (quotes, 2)] {
                if let Some([fast, full]) = rows(text.as_bytes(), width) {
                    prop_assert_eq!(fast, full);
                }
            }
        }
    }
}
