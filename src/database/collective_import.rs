//! Results of other benchmarks as rows of tables of collectives.

use super::{
    DatabaseError, KernelCsv,
    collective_rows::{
        CollectiveKey, DURATION, DURATION_METHOD, IMPORTED_FROM, RESULT_CHECK, duration_cells, keyed_rows,
        new_row_cells,
    },
    columns,
};
use crate::kernel::CollectiveCase;

#[derive(Clone, Debug)]
pub(crate) struct ImportedDuration {
    pub(crate) collective: CollectiveCase,
    pub(crate) micros: f64,
    /// What the duration is, such as `hccl_test average`.
    pub(crate) method: String,
    pub(crate) check: String,
    pub(crate) source: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ImportReport {
    pub(crate) added: usize,
    /// Rows of an earlier import, or without a duration, with new numbers.
    pub(crate) updated: usize,
    pub(crate) same: usize,
    pub(crate) kept: usize,
}

/// Writes durations into the rows of their keys. A row with a duration that is no import keeps it.
pub(crate) fn import_durations(
    table: &mut KernelCsv,
    durations: &[ImportedDuration],
) -> Result<ImportReport, DatabaseError> {
    let mut report = ImportReport::default();
    let mut rows = keyed_rows(table);
    for imported in durations {
        let key = CollectiveKey::of_case(&imported.collective);
        let mut cells = new_row_cells(&imported.collective);
        cells.extend(duration_cells(&imported.collective, imported.micros * 1e3));
        cells.extend([
            (DURATION_METHOD, imported.method.clone()),
            (RESULT_CHECK, imported.check.clone()),
            (IMPORTED_FROM, imported.source.clone()),
        ]);
        let present: Vec<usize> =
            rows.iter().filter(|(present, _)| *present == key).map(|(_, row)| *row).collect();
        let is_filled = |row: usize, column: &str| {
            table.cell_text(row, column).is_some_and(|cell| !matches!(cell.trim(), "" | "N/A"))
        };
        // A verdict without a duration belongs to a failed measurement, which later runs repeat.
        let is_own = |row: usize| {
            is_filled(row, columns::VERDICT) || (is_filled(row, DURATION) && !is_filled(row, IMPORTED_FROM))
        };
        match present.as_slice() {
            [] => {
                rows.push((key, table.len()));
                table.append_row(&cells);
                report.added += 1;
            }
            rows if rows.iter().any(|row| is_own(*row)) => report.kept += 1,
            [row, ..] => match table.update_row(*row, &cells)? {
                true => report.updated += 1,
                false => report.same += 1,
            },
        }
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::kernel::{CollectiveKind, Dtype, PartWeights};

    fn imported(message: u64, micros: f64) -> ImportedDuration {
        ImportedDuration {
            collective: CollectiveCase {
                kind: CollectiveKind::AllReduce,
                message,
                ranks: 8,
                tier: 1,
                dtype: Dtype::Float16,
                parts: PartWeights::Equal,
                environment: String::new(),
            },
            micros,
            method: "hccl_test average".to_owned(),
            check: "success".to_owned(),
            source: "out.txt".to_owned(),
        }
    }

    #[test]
    fn an_import_never_replaces_a_measurement() {
        let text = "message_bytes,num_devices,dtype,topology_tier,Duration(us),bandwidth_gbps,MicroBench Verdict\n\
                    1024,8,FLOAT16,1,5,0.2,ok\n2048,8,DT_FP16,1,6,0.3,\n4096,8,FLOAT16,1,,,hung\n8192,8,FLOAT16,1,,,\n";
        let path = Path::new("hcom_allReduce_.csv");
        let mut table = KernelCsv::from_bytes(path, text.as_bytes().to_vec()).expect("a table");
        let all: Vec<ImportedDuration> =
            [1024, 2048, 4096, 8192, 16384].into_iter().map(|message| imported(message, 9.0)).collect();
        let report = import_durations(&mut table, &all).expect("imported");
        assert_eq!(report, ImportReport { added: 1, updated: 1, same: 0, kept: 3 });
        let cell = |table: &KernelCsv, row, column| table.cell_text(row, column).unwrap_or_default();
        let durations: Vec<String> = (0..5).map(|row| cell(&table, row, DURATION)).collect();
        assert_eq!(durations, ["5", "6", "", "9.000000", "9.000000"]);
        assert_eq!(cell(&table, 4, IMPORTED_FROM), "out.txt");
        assert_eq!(cell(&table, 4, DURATION_METHOD), "hccl_test average");
        assert_eq!(cell(&table, 4, columns::VERDICT), "");
        let again =
            import_durations(&mut table, &[imported(16384, 9.0), imported(8192, 8.0)]).expect("imported");
        assert_eq!(again, ImportReport { added: 0, updated: 1, same: 1, kept: 0 });
        // Two files with the same size have one row.
        let twice =
            import_durations(&mut table, &[imported(65536, 7.0), imported(65536, 8.0)]).expect("imported");
        assert_eq!((twice, table.len()), (ImportReport { added: 1, updated: 1, same: 0, kept: 0 }, 6));
    }
}
