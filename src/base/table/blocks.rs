//! Division of a table into blocks that start and end at a record, for parallel parsing.
//!
//! A newline ends a record if an even number of quotes precedes it. That holds if quotes only enclose cells, as in
//! everything a profiler writes; a lone quote inside a cell would shift it. A division at a wrong byte leaves records
//! with too few fields on both sides, so the parser of the blocks detects it and reads the table again in one piece.

use std::{
    io::{ErrorKind, Read},
    ops::Range,
};

use super::NeedsFullParser;

/// A part of a table that starts and ends at a record.
#[derive(Debug)]
pub(crate) struct CsvBlock {
    memory: Vec<u8>,
    length: usize,
    /// Offset of its first byte from the end of the header.
    pub(crate) offset: u64,
}

impl CsvBlock {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.memory[..self.length]
    }

    pub(crate) fn into_memory(self) -> Vec<u8> {
        self.memory
    }
}

/// Reader of consecutive blocks.
#[derive(Debug)]
pub(crate) struct CsvBlocks<R> {
    input: R,
    /// Bytes that were read after the end of the last block.
    rest: Vec<u8>,
    offset: u64,
    size: usize,
    at_end: bool,
}

/// Maximum number of blocks without the end of a record.
const MAX_BLOCKS: usize = 16;

impl<R: Read> CsvBlocks<R> {
    /// Creates a reader of blocks of about `size` bytes from an input that starts with a record.
    pub(crate) fn new(input: R, size: usize) -> Self {
        Self { input, rest: Vec::new(), offset: 0, size, at_end: false }
    }

    /// Reads the next block into the memory of a processed one. Fails if the file cannot be read, and without the end of a
    /// record in many blocks: quotes are not placed as a profiler places them.
    pub(crate) fn next_block(&mut self, mut memory: Vec<u8>) -> Result<Option<CsvBlock>, NeedsFullParser> {
        let mut read = self.rest.len();
        // The memory keeps its length, so that it is not zeroed for each block.
        memory.resize(memory.len().max(read + self.size), 0);
        memory[..read].copy_from_slice(&self.rest);
        let mut length = 0;
        while length == 0 && !self.at_end {
            if read + self.size > memory.len() {
                if read > self.size * MAX_BLOCKS {
                    return Err(NeedsFullParser);
                }
                memory.resize(read + self.size, 0);
            }
            let wanted = read + self.size;
            while read < wanted && !self.at_end {
                match self.input.read(&mut memory[read..wanted]) {
                    Ok(0) => self.at_end = true,
                    Ok(more) => read += more,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(_) => return Err(NeedsFullParser),
                }
            }
            length = if self.at_end { read } else { last_record_end(&memory[..read]) };
        }
        self.rest.clear();
        self.rest.extend_from_slice(&memory[length..read]);
        let block = CsvBlock { memory, length, offset: self.offset };
        self.offset += u64::try_from(length).unwrap_or_default();
        Ok((length > 0).then_some(block))
    }
}

/// Divides a text that starts with a record into pieces of about `size` bytes that start with a record.
pub(crate) fn split_blocks(text: &[u8], size: usize) -> Vec<Range<usize>> {
    let mut pieces = Vec::new();
    let (mut begin, mut seen) = (0, 0);
    while seen < text.len() {
        seen = text.len().min(seen + size);
        if seen - begin > size * MAX_BLOCKS {
            seen = text.len();
        }
        let end = if seen == text.len() { seen } else { begin + last_record_end(&text[begin..seen]) };
        if end > begin {
            pieces.push(begin..end);
            begin = end;
        }
    }
    pieces
}

/// Returns the end of the last complete record in `bytes`; 0 without one.
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

    fn blocks(text: &[u8], size: usize) -> Vec<CsvBlock> {
        let mut blocks = CsvBlocks::new(text, size);
        std::iter::from_fn(|| blocks.next_block(Vec::new()).expect("short records")).collect()
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
    fn block_offsets_are_file_offsets() {
        let text = b"1\n2\n\"3\n4\"\n5\n6\n";
        for block in blocks(text, 3) {
            let offset = usize::try_from(block.offset).expect("small");
            assert!(text[offset..].starts_with(block.bytes()));
        }
    }

    proptest! {
        /// The blocks hold the records that the whole holds, wherever quotes enclose cells.
        #[test]
        fn blocks_contain_all_records(
            cells in proptest::collection::vec(("[a,\n\" ]{0,6}", any::<bool>()), 0..20),
            size in 20_usize..64,
        ) {
            let mut text = String::new();
            for (cell, is_last) in cells {
                text.push_str(&format!("\"{}\"{}", cell.replace('"', "\"\""), if is_last { '\n' } else { ',' }));
            }
            let joined: Vec<csv::ByteRecord> =
                blocks(text.as_bytes(), size).iter().flat_map(|b| records(b.bytes())).collect();
            prop_assert_eq!(joined, records(text.as_bytes()));
            let pieces = split_blocks(text.as_bytes(), size);
            let joined = pieces.into_iter().flat_map(|piece| records(&text.as_bytes()[piece]));
            prop_assert_eq!(joined.collect::<Vec<_>>(), records(text.as_bytes()));
        }
    }
}
