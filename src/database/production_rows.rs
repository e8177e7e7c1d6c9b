//! Rows with durations of production profiles.

use super::{DatabaseError, KernelCsv, columns, row_cases};
use crate::kernel::{Case, KernelName, Nanos};

/// A row with the duration of production records.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ProductionRow {
    pub(crate) case: Case,
    /// Median of the production records.
    pub(crate) median: Nanos,
    /// Number of production records; 1 in tables that do not state it.
    pub(crate) records: u64,
    /// True if the recorded kernel ran on an AI CPU.
    pub(crate) is_on_ai_cpu: bool,
}

impl ProductionRow {
    /// Returns the time of all records in seconds, if each took as long as the median.
    pub(crate) fn total_seconds(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a count of records")]
        let records = self.records as f64;
        self.median.seconds() * records
    }
}

/// Reads the rows of a table that have a production duration; rows that are no cases are left out.
pub(crate) fn production_rows(
    kernel: &KernelName,
    table: &KernelCsv,
) -> Result<Vec<ProductionRow>, DatabaseError> {
    if table.column_index(columns::PROFILING[1]).is_none() {
        return Ok(Vec::new());
    }
    let rows = row_cases(kernel, table)?.into_iter().filter_map(|row| {
        Some(ProductionRow {
            median: row.production?,
            records: row.production_records,
            is_on_ai_cpu: row.is_on_ai_cpu,
            case: row.case.ok()?,
        })
    });
    Ok(rows.collect())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn rows_without_a_production_duration_are_left_out() {
        let header = "OP State,Accelerator Core,Input Shapes,Input Data Types,Input Formats,Output Shapes,\
            Output Data Types,Output Formats,Profiling Median Duration(us),Profiling Records";
        let row = |shape: &str, median: &str, records: &str| {
            format!("dynamic,AI_VECTOR_CORE,\"{shape}\",FLOAT,ND,\"{shape}\",FLOAT,ND,{median},{records}\n")
        };
        let text = [row("4,4", "12.500000", "7"), row("8,8", "", ""), row("2,2", "3.0", "")].concat();
        let table = KernelCsv::from_bytes(Path::new("Neg.csv"), format!("{header}\n{text}").into_bytes());
        let kernel = KernelName::new("Neg").expect("a name");
        let rows = production_rows(&kernel, &table.expect("a table")).expect("rows");
        let found: Vec<_> = rows.iter().map(|row| (row.case.shapes(), row.median.0, row.records)).collect();
        assert_eq!(found, [("4,4 -> 4,4".to_owned(), 12_500, 7), ("2,2 -> 2,2".to_owned(), 3_000, 1)]);
        assert!((rows[0].total_seconds() - 87.5e-6).abs() < 1e-12);
    }
}
