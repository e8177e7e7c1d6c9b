//! Rows of a table that answer a lookup: those with a latency.

use super::{
    DatabaseError, KernelCsv,
    columns::{self, OLD_DURATION},
    row_cases::RowColumns,
};
use crate::kernel::{Case, KernelName};

/// Visits the case of each row, with true if the row has a latency: a positive finite number in one of the columns that
/// readers of such databases use. Returns the number of rows that are not cases. Fails with
/// [`DatabaseError::MissingColumn`] if a column of the signature is missing.
pub(crate) fn for_each_measured_case(
    kernel: &KernelName,
    table: &KernelCsv,
    mut visit: impl FnMut(&Case, bool),
) -> Result<usize, DatabaseError> {
    let columns = RowColumns::from_table(table)?;
    let latencies = [columns::AVERAGE, columns::PROFILING[0], columns::OLD_AVERAGE, OLD_DURATION];
    let latencies: Vec<usize> = latencies.iter().filter_map(|name| table.column_index(name)).collect();
    let mut unread = 0;
    table.for_each_row(|_, cells| {
        let is_latency = |column: &usize| {
            let text = cells.get(*column).and_then(|cell| std::str::from_utf8(cell).ok());
            let number = text.and_then(|text| text.trim().parse::<f64>().ok());
            number.is_some_and(|number| number.is_finite() && number > 0.0)
        };
        match columns.parse_case(kernel, cells) {
            Ok(case) => visit(&case, latencies.iter().any(is_latency)),
            Err(_) => unread += 1,
        }
    });
    Ok(unread)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn only_positive_finite_numbers_are_latencies() {
        let text =
            "Input Shapes,Input Data Types,Input Formats,Output Shapes,Output Data Types,Output Formats,\
                    Average Duration(us),Profiling Average Duration(us)\n"
                .to_owned()
                + &[("1.5", ""), ("", "2"), ("0", "0"), ("inf", ""), ("nan", "-1"), ("", ""), ("n/a", "3")]
                    .map(|(average, profiled)| format!("8,DT_BF16,ND,8,DT_BF16,ND,{average},{profiled}\n"))
                    .concat()
                + ",,,,,,1,1\n";
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("Neg.csv");
        std::fs::write(&path, text).expect("written");
        let table = KernelCsv::load(Path::new(&path)).expect("a table");
        let mut seen = Vec::new();
        let kernel = KernelName::new("Neg").expect("a name");
        let unread =
            for_each_measured_case(&kernel, &table, |_, measured| seen.push(measured)).expect("rows");
        assert_eq!(seen, [true, true, false, false, false, false, true]);
        assert_eq!(unread, 1);
    }
}
