//! Merge of the collectives of production profiles into the rows of their keys.

use super::{
    DatabaseError, KernelCsv, MergeReport,
    collective_rows::{
        CollectiveKey, PROFILING_ALGORITHM_TYPE, PROFILING_GROUP_SOURCE, RECORDED_GROUP, STATED_GROUP,
        keyed_rows, new_row_cells,
    },
    merge::{ProfilingEvidence, has_less_evidence, is_measured, production_cells, row_has_cells},
};
use crate::{
    base::stats::SampleSummary,
    kernel::{CollectiveCase, CollectiveKind},
    profile::{ProfileRanks, RecordedDurations},
};

/// Sets the profiling columns of the rows of collectives; other keys become new rows. Measurements are not changed: a
/// duration in a model contains the time that its rank waits for the others. The algorithm is given if all records have
/// the same one, else it is empty. A row with more evidence keeps it unless `replace` is set. Records that a row shows
/// by a number of ranks that the user had stated move to the row of their ranks.
pub(crate) fn merge_collectives(
    table: &mut KernelCsv,
    collectives: Vec<(CollectiveCase, RecordedDurations)>,
    ranks: &ProfileRanks,
    replace: bool,
) -> Result<MergeReport, DatabaseError> {
    let mut rows = keyed_rows(table);
    let mut merged = MergeReport::default();
    for (case, mut recorded) in collectives {
        let key = CollectiveKey::of_case(&case);
        let evidence = ProfilingEvidence::of_records(recorded.durations.len(), &recorded.files, ranks);
        let profiling = production_cells(SampleSummary::from_samples(&mut recorded.durations));
        let mut cells = profiling.clone();
        cells.extend(evidence.cells());
        let is_withdrawn = |(known, row): &&(CollectiveKey, usize)| {
            are_of_other_ranks(case.kind, known, &key)
                && table.cell_text(*row, PROFILING_GROUP_SOURCE).as_deref() == Some(STATED_GROUP)
                && row_has_cells(table, *row, &cells)
        };
        let withdrawn: Vec<usize> = rows.iter().filter(is_withdrawn).map(|(_, row)| *row).collect();
        let algorithm = recorded.algorithms.first().filter(|_| recorded.algorithms.len() == 1);
        let source = if recorded.are_ranks_stated { STATED_GROUP } else { RECORDED_GROUP };
        cells.push((PROFILING_ALGORITHM_TYPE, algorithm.cloned().unwrap_or_default()));
        cells.push((PROFILING_GROUP_SOURCE, source.to_owned()));
        let mut moved: Option<usize> = None;
        for row in withdrawn {
            if is_measured(table, row) {
                table.empty_cells(row, cells.iter().map(|(column, _)| *column))?;
            } else if rows.iter().any(|(known, _)| *known == key) {
                table.remove_row(row);
                rows.retain(|(_, known)| *known != row);
            } else {
                table.update_row(row, &new_row_cells(&case))?;
                rows.retain(|(_, known)| *known != row);
                rows.push((key.clone(), row));
                moved = Some(row);
                continue;
            }
            merged.updated += 1;
        }
        let mut of_key = rows.iter().filter(|(row, _)| *row == key).peekable();
        if of_key.peek().is_none() {
            let mut all = new_row_cells(&case);
            all.extend(cells);
            table.append_row(&all);
            merged.added += 1;
            continue;
        }
        for (_, row) in of_key {
            let has_fewer = !replace && has_less_evidence(table, *row, &profiling, evidence);
            let is_changed = !has_fewer && (table.update_row(*row, &cells)? || moved == Some(*row));
            merged.count_row(is_changed, has_fewer);
        }
    }
    Ok(merged)
}

/// Returns true if two keys differ in their ranks, and the messages that follow from these, only.
fn are_of_other_ranks(kind: CollectiveKind, one: &CollectiveKey, other: &CollectiveKey) -> bool {
    let count = |key: &CollectiveKey| key.message.checked_div(kind.message_of_count(1, 1, key.ranks?)?);
    (one.ranks, one.tier) != (other.ranks, other.tier)
        && (&one.dtype, &one.environment, &one.parts) == (&other.dtype, &other.environment, &other.parts)
        && count(one).is_some_and(|elements| Some(elements) == count(other))
}
