//! Merge of the collectives of production profiles into the rows of their keys.

use super::{
    DatabaseError, KernelCsv, MergeReport,
    collective_rows::{CollectiveKey, CollectiveKeyColumns, PROFILING_ALGORITHM_TYPE, new_row_cells},
    merge::{ProfilingEvidence, RowChange, has_less_evidence, named_cells, production_cells},
};
use crate::{
    domain::CollectiveCase,
    profile::{ProfileRanks, RecordedDurations},
    stats::SampleSummary,
};

/// Sets the profiling columns of the rows of collectives; other keys become new rows. Measurements are not changed: a duration
/// in a model contains the time that its rank waits for the others. The algorithm is that of all records, or empty. A row
/// with more evidence keeps it unless `replace` is set.
pub(crate) fn merge_collectives(
    table: &mut KernelCsv,
    collectives: Vec<(CollectiveCase, RecordedDurations)>,
    ranks: &ProfileRanks,
    replace: bool,
) -> Result<MergeReport, DatabaseError> {
    let keys = CollectiveKeyColumns::find(table.column_names());
    let mut rows: Vec<(CollectiveKey, usize)> = Vec::new();
    table.for_each_row(|row, cells| rows.extend(keys.key(cells).ok().map(|key| (key, row))));
    let mut merged = MergeReport::default();
    for (case, mut recorded) in collectives {
        let key = CollectiveKey::of_case(&case);
        let evidence = ProfilingEvidence::of_records(recorded.durations.len(), &recorded.files, ranks);
        let profiling = production_cells(SampleSummary::from_samples(&mut recorded.durations));
        let mut cells: Vec<(&str, String)> = named_cells(&profiling).collect();
        cells.extend(evidence.cells());
        let algorithm = recorded.algorithms.first().filter(|_| recorded.algorithms.len() == 1);
        cells.push((PROFILING_ALGORITHM_TYPE, algorithm.cloned().unwrap_or_default()));
        let mut of_key = rows.iter().filter(|(row, _)| *row == key).peekable();
        if of_key.peek().is_none() {
            let mut all = new_row_cells(&case);
            all.extend(cells);
            for (column, _) in &all {
                table.ensure_column(column);
            }
            table.append_row(&all);
            merged.added += 1;
            continue;
        }
        for (_, row) in of_key {
            let has_fewer = !replace && has_less_evidence(table, *row, &profiling, evidence);
            merged.count_change(match has_fewer {
                true => RowChange::Kept,
                false if table.update_row(*row, &cells)? => RowChange::Updated,
                false => RowChange::Same,
            });
        }
    }
    Ok(merged)
}
