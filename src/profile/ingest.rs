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
            loop {
                match reader.read_record() {
                    Ok(Some(record)) => {
                        add_row(groups, &record, (file_number, record.line()), accept_rehearsed)?;
                    }
                    Ok(None) => break,
                    Err(error @ ProfileError::CommaInName { .. }) => groups.add_comma_row(error),
                    Err(error) => return Err(error),
                }
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
    groups.add_record(&row.as_record(), row.duration(), position, accept_rehearsed, |sums, damaged| {
        for (counter, name) in COUNTERS.iter().enumerate() {
            if let Some(millionths) = row.counter(counter) {
                sums.add_value(counter, millionths);
            } else if row.has_damaged_counter(counter) {
                *damaged.entry(*name).or_default() += 1;
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
            Err(ProfileError::CommaInName { .. }) => {}
            Err(error @ ProfileError::Ragged { .. }) => problems.push(error),
            Err(error) => {
                problems.push(error);
                return problems;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{RecordGroup, UNNAMED};

    const HEADER: &str = "Op Name,OP Type,OP State,Task Type,Task Duration(us),Input Shapes,Input Data Types,Input Formats,\
        Output Shapes,Output Data Types,Output Formats\n";

    fn read(rows: &[&str]) -> Result<RecordGroups, ProfileError> {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("op_summary_1.csv");
        fs::write(&file, format!("{HEADER}{}\n", rows.join("\n"))).expect("written");
        let mut groups = RecordGroups::default();
        add_table(&mut groups, &file, 0, false)?;
        groups.leave_out_cut_records();
        Ok(groups)
    }

    fn kernels(groups: RecordGroups) -> Vec<(String, Vec<usize>)> {
        let counts = |groups: Vec<RecordGroup>| groups.iter().map(RecordGroup::record_count).collect();
        groups
            .into_kernels()
            .into_iter()
            .map(|(kernel, groups)| (kernel.to_string(), counts(groups)))
            .collect()
    }

    /// A row of so many inputs and outputs.
    fn row(name: &str, kernel: &str, inputs: usize, outputs: usize) -> String {
        let cells = |slots: usize| match slots {
            0 => "N/A,N/A,N/A".to_owned(),
            _ => [("8,4", "\"\"\"", ";"), ("DT_BF16", "", ";"), ("ND", "", ";")]
                .map(|(each, quote, between)| format!("{quote}{}{quote}", vec![each; slots].join(between)))
                .join(","),
        };
        format!("{name},{kernel},static,AI_CORE,10.000,{},{}", cells(inputs), cells(outputs))
    }

    #[test]
    fn commas_in_a_name_cost_at_most_their_row() {
        let good = row("aclnnAdd_Add", "Add", 2, 1);
        let named = row("layer,0,aclnnAdd_Add", "Add", 2, 1);
        let groups = read(&[&good, &named]).expect("read");
        assert!(groups.comma_rows.is_none());
        assert_eq!(kernels(groups), [("Add".to_owned(), vec![2])], "read from its end");
        // The type has a comma as well, or the name does not show where it ends.
        for hidden in [row("op,with\"quote", "My,Op", 2, 1), row("layer,0", "Add", 2, 1)] {
            let groups = read(&[&hidden, &good, &hidden]).expect("read");
            let (error, rows) = groups.comma_rows.as_ref().expect("left out");
            assert!(*rows == 2 && error.to_string().contains(":2: "), "{rows}: {error}");
            assert_eq!(kernels(groups), [("Add".to_owned(), vec![1])]);
        }
        // Any other row with more cells is damaged.
        let merged = format!("{good},{good}");
        assert!(matches!(read(&[&merged]), Err(ProfileError::Ragged { .. })));
        assert!(matches!(read(&[&good[..40]]), Err(ProfileError::Ragged { .. })));
    }

    #[test]
    fn records_with_a_part_of_their_tensors_are_no_cases() {
        let all = [
            row("a", "Fused", 7, 2),
            row("a", "Fused", 5, 0),
            row("b", "Adam", 7, 0),
            row("b", "Adam", 5, 0),
        ];
        let groups = read(&all.each_ref().map(String::as_str)).expect("read");
        let cut: Vec<_> =
            groups.without_shapes.iter().map(|(kernel, cut)| (&**kernel, cut.cut_short)).collect();
        assert_eq!(cut, [("Adam", 1), ("Fused", 1)]);
        assert_eq!(kernels(groups), [("Adam".to_owned(), vec![1]), ("Fused".to_owned(), vec![1])]);
        // Kernels that work in place have no outputs, and others any number of inputs.
        let whole = [
            row("b", "Adam", 5, 0),
            row("c", "Concat", 4, 1),
            row("c", "Concat", 9, 1),
            row("d", "Set", 3, 0),
            row("d", "Set", 4, 0),
        ];
        let groups = read(&whole.each_ref().map(String::as_str)).expect("read");
        assert!(groups.without_shapes.is_empty(), "{:?}", groups.without_shapes);
    }

    #[test]
    fn kernels_named_by_a_hash_are_counted() {
        let hashed = row("15498687887147256048", "8465461662775286891", 2, 1);
        let groups = read(&[&hashed, &row("a", "Add", 2, 1), &hashed]).expect("read");
        assert_eq!((groups.records, groups.without_shapes[UNNAMED].count), (3, 2));
        assert_eq!(kernels(groups), [("Add".to_owned(), vec![1])]);
    }
}
