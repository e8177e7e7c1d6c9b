//! Positions of the rows of a table in its bytes, found in parallel.

use std::ops::Range;

use rayon::prelude::*;

use super::{CsvIndex, NeedsFullParser, raw_records::CsvPosition, split_blocks};

/// Bytes of a piece: large enough for a negligible overhead, small enough for the cache of a core.
pub(crate) const PIECE: usize = 1 << 18;
/// Maximum number of workers; more wait for memory.
const MAX_WORKERS: usize = 8;

/// Finds the rows of `width` cells in a text that starts with a row.
pub(crate) fn row_places(text: &[u8], width: usize) -> Result<Vec<CsvPosition>, NeedsFullParser> {
    let pieces = split_blocks(text, PIECE);
    let workers = rayon::current_num_threads().min(MAX_WORKERS);
    let shares = pieces.par_chunks(pieces.len().div_ceil(workers).max(1));
    let found: Vec<_> = shares.map(|share| places_in(text, share, width)).collect::<Result<_, _>>()?;
    let (mut places, mut lines) = (Vec::new(), 0);
    for (more, more_lines) in found {
        places.extend(more.into_iter().map(|place| place.shifted_by(0, lines)));
        lines += more_lines;
    }
    // Each row starts at the end of the previous one: blank lines belong to the row after them.
    let mut end = 0;
    for place in &mut places {
        place.range.start = end;
        end = place.range.end;
    }
    Ok(places)
}

/// Returns the rows of consecutive pieces, and their number of lines.
fn places_in(
    text: &[u8],
    pieces: &[Range<usize>],
    width: usize,
) -> Result<(Vec<CsvPosition>, u64), NeedsFullParser> {
    let mut index = CsvIndex::default();
    let mut places = Vec::new();
    let mut lines = 0;
    let newlines = |bytes: &[u8]| memchr::memchr_iter(b'\n', bytes).count() as u64;
    for piece in pieces {
        let bytes = &text[piece.clone()];
        index.index_rows(bytes, width)?;
        let mut counted = 0;
        for row in index.rows(bytes) {
            lines += newlines(&bytes[counted..row.begin() as usize]);
            counted = row.begin() as usize;
            let range = piece.start + counted..piece.start + row.end();
            places.push(CsvPosition { range, line: lines });
        }
        lines += newlines(&bytes[counted..]);
    }
    Ok((places, lines))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Several pieces for each worker, with blank lines and line breaks inside of cells.
    #[test]
    fn row_positions_agree_with_csv_crate() {
        let row = |number: usize| match number % 4 {
            0 => format!("{number},\"\"\"1,2\"\"\",\"a\nb\"\n"),
            1 => format!("{number},,\r\n\n\n"),
            _ => format!("{number},{},x\n", "y".repeat(number % 100)),
        };
        let text: String = (0..40_000).map(row).collect();
        assert!(text.len() > 4 * PIECE);
        let places = row_places(text.as_bytes(), 3).expect("regular");
        assert_eq!(places.len(), 40_000);
        let (mut line, mut end) = (0, 0);
        for (number, place) in places.iter().enumerate() {
            assert_eq!(place.range.start, end, "row {number}");
            let bytes = &text[place.range.clone()];
            let blank = bytes.len() - bytes.trim_start_matches('\n').len();
            assert_eq!(place.line, line + blank as u64, "row {number}");
            assert_eq!(bytes.trim_start_matches('\n'), row(number).trim_end_matches("\n\n"), "row {number}");
            line += bytes.matches('\n').count() as u64;
            end = place.range.end;
        }
    }

    #[test]
    fn ragged_rows_need_full_parser() {
        let text = "1,2\n".repeat(200_000);
        assert!(row_places(text.as_bytes(), 2).is_ok());
        assert_eq!(row_places(text.as_bytes(), 3).expect_err("too few"), NeedsFullParser);
        assert_eq!(row_places(format!("{text}1\n").as_bytes(), 2).expect_err("one too few"), NeedsFullParser);
        assert_eq!(row_places(b"", 2).expect("nothing").len(), 0);
    }
}
