//! Cuts a table into blocks that begin and end with a record, so that several cores can parse it.
//!
//! A newline ends a record where an even number of quotes stands before it. That holds wherever quotes
//! only enclose cells, as in everything a profiler writes; a lone quote inside a cell would shift it. A
//! cut at a wrong place leaves records with too few fields on both sides, so whoever parses the blocks
//! notices and reads the table again in one piece.

use std::io::Read;

/// A part of a table that begins and ends with a record.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) bytes: Vec<u8>,
    /// Where it begins, behind the header.
    pub(super) offset: u64,
}

/// Reads blocks one after the other.
#[derive(Debug)]
pub(super) struct Blocks<R> {
    input: R,
    /// Read, but behind the end of the last block.
    rest: Vec<u8>,
    offset: u64,
    size: usize,
    at_end: bool,
}

/// Why a table is not cut.
#[derive(Debug)]
pub(super) enum CutError {
    /// The file cannot be read.
    Io,
    /// No end of a record for many blocks: quotes do not stand where a profiler writes them.
    NoEnd,
}

/// So many blocks without the end of a record are no table of a profiler.
const LONGEST: usize = 16;

impl<R: Read> Blocks<R> {
    /// Blocks of about `size` bytes of an input that begins with a record.
    pub(super) fn new(input: R, size: usize) -> Self {
        Self { input, rest: Vec::new(), offset: 0, size, at_end: false }
    }

    /// The next block, in the memory of one that was done with.
    pub(super) fn next(&mut self, mut bytes: Vec<u8>) -> Result<Option<Block>, CutError> {
        bytes.clear();
        bytes.append(&mut self.rest);
        let mut end = 0;
        while end == 0 && !self.at_end {
            let wanted = u64::try_from(self.size).unwrap_or(u64::MAX);
            let read = self.input.by_ref().take(wanted).read_to_end(&mut bytes).map_err(|_| CutError::Io)?;
            self.at_end = read < self.size;
            end = last_record_end(&bytes);
            if end == 0 && bytes.len() > self.size * LONGEST {
                return Err(CutError::NoEnd);
            }
        }
        if self.at_end {
            end = bytes.len();
        }
        if end == 0 {
            return Ok(None);
        }
        self.rest.extend_from_slice(&bytes[end..]);
        bytes.truncate(end);
        let block = Block { offset: self.offset, bytes };
        self.offset += u64::try_from(block.bytes.len()).unwrap_or_default();
        Ok(Some(block))
    }
}

/// Where the last record that ends inside of `bytes` ends; 0 where none does.
fn last_record_end(bytes: &[u8]) -> usize {
    let mut quotes_are_even = memchr::memchr_iter(b'"', bytes).count().is_multiple_of(2);
    let mut end = bytes.len();
    while let Some(at) = memchr::memrchr2(b'\n', b'"', &bytes[..end]) {
        match bytes[at] {
            b'"' => quotes_are_even = !quotes_are_even,
            _ if quotes_are_even => return at + 1,
            _ => {}
        }
        end = at;
    }
    0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn blocks(text: &[u8], size: usize) -> Vec<Block> {
        let mut blocks = Blocks::new(text, size);
        std::iter::from_fn(|| blocks.next(Vec::new()).expect("short records")).collect()
    }

    fn records(bytes: &[u8]) -> Vec<csv::ByteRecord> {
        let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(bytes);
        reader
            .byte_records()
            .map(|record| record.expect("memory"))
            .map(|mut record| {
                record.set_position(None);
                record
            })
            .collect()
    }

    #[test]
    fn newlines_inside_quotes_do_not_cut() {
        let text = b"a,\"x\ny\",b\nc,\"\"\"1,2\"\"\",\"\n\"\nlast,12,\"\"";
        for size in 1..text.len() + 2 {
            let joined: Vec<csv::ByteRecord> =
                blocks(text, size).iter().flat_map(|b| records(&b.bytes)).collect();
            assert_eq!(joined, records(text), "blocks of {size}");
        }
    }

    #[test]
    fn offsets_are_places_in_the_file() {
        let text = b"1\n2\n\"3\n4\"\n5\n6\n";
        for block in blocks(text, 3) {
            let offset = usize::try_from(block.offset).expect("small");
            assert!(text[offset..].starts_with(&block.bytes));
        }
    }

    proptest! {
        /// The blocks hold the records that the whole holds, wherever quotes enclose cells.
        #[test]
        fn blocks_hold_the_records_of_the_whole(
            cells in proptest::collection::vec(("[a,\n\" ]{0,6}", any::<bool>()), 0..20),
            size in 20_usize..64,
        ) {
            let mut text = String::new();
            for (cell, is_last) in cells {
                text.push_str(&format!("\"{}\"{}", cell.replace('"', "\"\""), if is_last { '\n' } else { ',' }));
            }
            let joined: Vec<csv::ByteRecord> =
                blocks(text.as_bytes(), size).iter().flat_map(|b| records(&b.bytes)).collect();
            prop_assert_eq!(joined, records(text.as_bytes()));
        }
    }
}
