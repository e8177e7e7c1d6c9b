//! Reader of tables into groups.

use simd_csv::{ByteRecord, ReaderBuilder};

use super::{
    KernelRow, RecordReader,
    groups::RecordOrder,
    prelude::*,
    records::{BUFFER, MAX_ROW, RecordTable, RowLimitReader},
};
use crate::base::table::NeedsFullParser;

/// Adds every record of a table, CSV or database, to the groups; returns the error of the first invalid record. Records of the
/// rehearsal host are invalid unless they are accepted.
pub fn add_table(
    groups: &mut RecordGroups,
    file: &Path,
    file_number: u64,
    accept_rehearsed: bool,
) -> Result<(), ProfileError> {
    if sqlite::is_database(file)? {
        return sqlite::add_database(groups, file, file_number, accept_rehearsed);
    }
    let table = RecordTable::open(file, NeededColumns::Signatures)?;
    match read_rows(&table, file_number, accept_rehearsed) {
        Ok(read) => groups.merge_groups(read),
        // After an error or an unusual form, the csv crate reads the table again and finds the line.
        Err(NeedsFullParser) => {
            let mut reader = RecordReader::of_table(table)?;
            while let Some(record) = reader.read_record()? {
                add_row(groups, &record, (file_number, record.line()), accept_rehearsed)?;
            }
        }
    }
    Ok(())
}

/// Reads the records by the `simd-csv` crate, which is several times as fast as the csv crate.
fn read_rows(
    table: &RecordTable,
    file_number: u64,
    accept_rehearsed: bool,
) -> Result<RecordGroups, NeedsFullParser> {
    let input = RowLimitReader { input: table.open_rows().map_err(|_| NeedsFullParser)?, left: MAX_ROW };
    let mut reader =
        ReaderBuilder::with_capacity(BUFFER).has_headers(false).flexible(true).from_reader(input);
    let (mut groups, mut cells) = (RecordGroups::default(), ByteRecord::new());
    let mut number = 0;
    while reader.read_byte_record(&mut cells).map_err(|_| NeedsFullParser)? {
        // A quote inside of a cell may hide the end of a row or of a cell from this reader. Shapes stand in two quotes of their own.
        let is_quoted = |cell: &[u8]| cell.len() > 1 && cell.starts_with(b"\"") && cell.ends_with(b"\"");
        let is_regular = |cell: &[u8]| match memchr::memchr_iter(b'"', cell).count() {
            0 => true,
            2 => is_quoted(cell),
            _ => false,
        };
        if cells.len() != table.header.len()
            || memchr::memchr2(b'\n', b'\r', cells.as_slice()).is_some()
            || (memchr::memchr(b'"', cells.as_slice()).is_some() && !cells.iter().all(is_regular))
        {
            return Err(NeedsFullParser);
        }
        number += 1;
        add_row(&mut groups, &KernelRow::unplaced(table, &cells), (file_number, number), accept_rehearsed)
            .map_err(|_| NeedsFullParser)?;
        reader.get_mut().left = MAX_ROW;
    }
    Ok(groups)
}

fn add_row(
    groups: &mut RecordGroups,
    row: &KernelRow<'_>,
    position: RecordOrder,
    accept_rehearsed: bool,
) -> Result<(), ProfileError> {
    groups.add_record(&row.as_record(), row.duration(), position, accept_rehearsed, |sums| {
        for counter in 0..COUNTERS.len() {
            if let Some(millionths) = row.counter(counter) {
                sums.add_value(counter, millionths);
            }
        }
    })
}

/// Returns the problems of all records of a table in text; none if its header cannot be read. Records behind one that is no row
/// of a table are not read.
pub(crate) fn record_problems(file: &Path) -> Vec<ProfileError> {
    let Ok(mut reader) = RecordReader::open(file) else { return Vec::new() };
    let mut groups = RecordGroups::default();
    let mut problems = Vec::new();
    loop {
        match reader.read_record() {
            Ok(Some(record)) => {
                problems.extend(add_row(&mut groups, &record, (0, record.line()), true).err());
            }
            Ok(None) => return problems,
            Err(error @ ProfileError::Ragged { .. }) => problems.push(error),
            Err(error) => {
                problems.push(error);
                return problems;
            }
        }
    }
}
