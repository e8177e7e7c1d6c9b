//! Merge of profile statistics into the rows of their signatures.

use std::collections::HashMap;

use serde::Serialize;

use super::{
    DatabaseError, KernelCsv,
    columns::{self, COMPLETENESS, format_decimals, format_micros},
    row_cases::RowColumns,
};
use crate::{
    base::stats::SampleSummary,
    kernel::{AttentionCase, CacheState, Case, CaseAttributes, KernelName, ingest_option},
    profile::{GroupStatistics, ProfileRanks, RecordGroup},
};

/// Counts of rows changed by a merge of one kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct MergeReport {
    pub added: usize,
    pub updated: usize,
    /// Rows with the same values as the profile.
    #[serde(rename = "unchanged")]
    pub same: usize,
    /// Rows with more evidence than the profile, which are kept.
    pub kept: usize,
}

/// Merges the groups of a profile into a kernel's table: profiling columns of rows with the same signature are set,
/// other signatures become new rows. Attributes and their explanations are written into empty cells. Other cells are
/// not changed.
///
/// A row is not replaced by a profile with less evidence, see [`has_less_evidence`], unless `replace` is set. A group without
/// attributes whose numbers equal those of a row with the same shapes belongs to that row, whose attributes were added
/// later. Fails with [`DatabaseError::MissingColumn`] if a column of the signature is missing.
pub fn merge_groups(
    kernel: &KernelName,
    table: &mut KernelCsv,
    groups: Vec<RecordGroup>,
    ranks: &ProfileRanks,
    replace: bool,
) -> Result<MergeReport, DatabaseError> {
    let rows = RowsOfGroups::find_rows(kernel, table)?;
    let mut merged = MergeReport::default();
    for group in groups {
        let (case, signature) = (group.case.clone(), group.cells.clone());
        let (state, core, extra) = (group.state.clone(), group.core.clone(), group.extra.clone());
        let evidence = ProfilingEvidence::of_records(group.record_count(), group.files(), ranks);
        let profiling = profiling_cells(group.into_statistics());
        let news = ProfiledRow { case: &case, profiling: &profiling, extra: &extra, evidence, replace };
        if move_records_of_other_ranks(table, &rows, &news, &mut merged)? {
            continue;
        }
        if let Some(known) = rows.rows_of_case(&case) {
            known.iter().try_for_each(|row| update_group_row(table, row, &news, &mut merged))?;
            continue;
        }
        if let Some(row) =
            rows.rows_without_attributes(&case).iter().find(|row| row_has_cells(table, row.index, &profiling))
        {
            if !(case.attributes.allows_hf32() && is_measured(table, row.index)) {
                update_group_row(table, row, &news, &mut merged)?;
                continue;
            }
            // It was measured without HF32, and these are no records of it.
            let names = profiling.iter().map(|(column, _)| *column);
            table.empty_cells(row.index, names.chain(columns::EVIDENCE_COLUMNS))?;
            merged.updated += 1;
        }
        if case.attributes.is_empty()
            && rows.rows_with_attributes(&case).iter().any(|row| row_has_cells(table, row.index, &profiling))
        {
            merged.same += 1;
            continue;
        }
        let mut cells: Vec<(&str, String)> = columns::SIGNATURE.into_iter().zip(signature).collect();
        cells.extend([(columns::STATE, state), (columns::CORE, core)]);
        cells.extend(profiling.into_iter().chain(named_cells(&extra)).chain(evidence.cells()));
        table.append_row(&cells);
        merged.added += 1;
    }
    Ok(merged)
}

impl MergeReport {
    pub(super) fn count_row(&mut self, is_changed: bool, has_fewer: bool) {
        *match (is_changed, has_fewer) {
            (true, _) => &mut self.updated,
            (false, true) => &mut self.kept,
            (false, false) => &mut self.same,
        } += 1;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProfilingEvidence {
    records: usize,
    ranks: usize,
    profiles: usize,
}

impl ProfilingEvidence {
    pub(super) fn of_records(records: usize, files: &[u64], ranks: &ProfileRanks) -> Self {
        let (ranks, profiles) = ranks.count_files(files);
        Self { records, ranks, profiles }
    }

    fn of_row(table: &KernelCsv, row: usize) -> Option<Self> {
        let count = |column: &str| table.cell_text(row, column)?.trim().parse().ok();
        Some(Self {
            records: count(columns::PROFILING_RECORDS)?,
            ranks: count(columns::PROFILING_RANKS)?,
            profiles: count(columns::PROFILING_PROFILES).unwrap_or(1),
        })
    }

    pub(super) fn cells(self) -> [(&'static str, String); 3] {
        [
            (columns::PROFILING_RECORDS, self.records.to_string()),
            (columns::PROFILING_RANKS, self.ranks.to_string()),
            (columns::PROFILING_PROFILES, self.profiles.to_string()),
        ]
    }
}

struct ProfiledRow<'a> {
    case: &'a Case,
    profiling: &'a [(&'static str, String)],
    extra: &'a [(String, String)],
    evidence: ProfilingEvidence,
    replace: bool,
}

fn update_group_row(
    table: &mut KernelCsv,
    row: &SignatureRow,
    profiled: &ProfiledRow<'_>,
    merged: &mut MergeReport,
) -> Result<(), DatabaseError> {
    let ProfiledRow { case, profiling, extra, evidence, replace } = *profiled;
    let is_open = |(column, _): &(&str, String)| !table.has_value(row.index, column);
    let mut news: Vec<(&str, String)> = named_cells(extra).filter(is_open).collect();
    if let Some((_, completeness)) = news.iter_mut().find(|(column, _)| *column == COMPLETENESS) {
        // Completeness counts the attributes of the row as well.
        let attributes = row.attributes.merged_over(&case.attributes);
        *completeness = AttentionCase::new(&Case { attributes, ..case.clone() }).completeness();
    }
    let has_fewer = !replace && has_less_evidence(table, row.index, profiling, evidence);
    if !has_fewer {
        news.extend(profiling.iter().cloned());
        news.extend(evidence.cells());
    }
    merged.count_row(table.update_row(row.index, &news)?, has_fewer);
    Ok(())
}

/// Withdraws records from rows that show them by another number of ranks, which no profile records: the user has corrected it. The
/// first row without a measurement gets the number if no row has it; others lose their profiling columns. Returns true if the
/// records have their row.
fn move_records_of_other_ranks(
    table: &mut KernelCsv,
    rows: &RowsOfGroups,
    profiled: &ProfiledRow<'_>,
    merged: &mut MergeReport,
) -> Result<bool, DatabaseError> {
    let ProfiledRow { case, profiling, evidence, .. } = *profiled;
    let is_rank_count = |name: &str| ingest_option(name).is_some();
    let counts = case.attributes.iter().filter(|(name, _)| is_rank_count(name));
    let counts: Vec<(&str, String)> = counts.map(|(name, value)| (name, value.to_owned())).collect();
    let has_other_ranks = |row: &&SignatureRow| {
        case.attributes
            .iter()
            .all(|(name, value)| row.attributes.get(name) == Some(value) || is_rank_count(name))
            && counts.iter().any(|(name, value)| row.attributes.get(name).is_some_and(|known| known != value))
    };
    let shows_records = |row: &&SignatureRow| {
        row_has_cells(table, row.index, profiling)
            && ProfilingEvidence::of_row(table, row.index) == Some(evidence)
    };
    let withdrawn = rows.rows_with_attributes(case).iter().filter(has_other_ranks).filter(shows_records);
    let withdrawn: Vec<usize> = withdrawn.map(|row| row.index).collect();
    let mut has_row = rows.rows_of_case(case).is_some();
    let mut is_moved = false;
    for row in withdrawn {
        if has_row || is_measured(table, row) {
            let names = profiling.iter().map(|(column, _)| *column);
            table.empty_cells(row, names.chain(columns::EVIDENCE_COLUMNS))?;
        } else {
            table.update_row(row, &counts)?;
            (has_row, is_moved) = (true, true);
        }
        merged.updated += 1;
    }
    Ok(is_moved)
}

/// Returns true if a row has a measurement, or a verdict in place of one.
pub(super) fn is_measured(table: &KernelCsv, row: usize) -> bool {
    let measured = [columns::VERDICT, columns::AVERAGE, columns::OLD_AVERAGE, columns::OLD_DURATION];
    let cold = columns::result_column(CacheState::Cold, columns::VERDICT);
    measured.into_iter().chain(cold).any(|column| table.has_value(row, column))
}

/// Returns true if the row has more evidence than the profile: more ranks, or as many and more records; counters where the
/// profile has none. In a row of unknown evidence, as other tools write it, a deviation shows several records.
pub(super) fn has_less_evidence(
    table: &KernelCsv,
    row: usize,
    profiling: &[(&str, String)],
    evidence: ProfilingEvidence,
) -> bool {
    let (durations, counters) = profiling.split_at(columns::PROFILING.len());
    let is_less = match ProfilingEvidence::of_row(table, row) {
        Some(known) => (evidence.ranks, evidence.records) < (known.ranks, known.records),
        None => {
            durations.last().is_some_and(|(column, value)| value.is_empty() && table.has_value(row, column))
        }
    };
    let is_bare = counters.iter().all(|(_, value)| value.is_empty())
        && counters.iter().any(|(column, _)| table.has_value(row, column));
    is_less || is_bare
}

fn named_cells(cells: &[(String, String)]) -> impl Iterator<Item = (&str, String)> {
    cells.iter().map(|(name, value)| (name.as_str(), value.clone()))
}

pub(super) fn row_has_cells(table: &KernelCsv, row: usize, cells: &[(&str, String)]) -> bool {
    cells.iter().all(|(column, value)| table.cell_text(row, column).unwrap_or_default().trim() == value)
}

pub(super) fn production_cells(durations: Option<SampleSummary>) -> Vec<(&'static str, String)> {
    let durations = durations.map_or([None; 3], |s| [Some(s.mean), Some(s.median), s.std]);
    let text = |value: Option<f64>| value.map_or_else(String::new, format_micros);
    columns::PROFILING.into_iter().zip(durations.map(text)).collect()
}

fn profiling_cells(statistics: GroupStatistics) -> Vec<(&'static str, String)> {
    let means = statistics.counters.into_iter().map(|mean| mean.map_or_else(String::new, format_decimals));
    let mut cells = production_cells(statistics.durations);
    cells.extend(columns::profiling_counters().zip(means));
    cells
}

#[derive(Clone)]
struct SignatureRow {
    index: usize,
    attributes: CaseAttributes,
}

struct RowsOfGroups {
    by_signature: HashMap<String, Vec<SignatureRow>>,
    completed: HashMap<String, Vec<SignatureRow>>,
}

impl RowsOfGroups {
    fn find_rows(kernel: &KernelName, table: &KernelCsv) -> Result<Self, DatabaseError> {
        let columns = RowColumns::from_table(table)?;
        let mut found = Self { by_signature: HashMap::new(), completed: HashMap::new() };
        table.for_each_row(|index, cells| {
            let Ok(case) = columns.parse_case(kernel, cells) else { return };
            let row = SignatureRow { index, attributes: case.attributes.clone() };
            if !case.attributes.is_empty() {
                found.completed.entry(bare_signature(&case)).or_default().push(row.clone());
            }
            found.by_signature.entry(case.signature()).or_default().push(row);
        });
        Ok(found)
    }

    fn rows_of_case(&self, case: &Case) -> Option<&[SignatureRow]> {
        self.by_signature.get(&case.signature()).map(Vec::as_slice)
    }

    fn rows_without_attributes(&self, case: &Case) -> &[SignatureRow] {
        if case.attributes.is_empty() {
            return &[];
        }
        self.by_signature.get(&bare_signature(case)).map_or(&[], Vec::as_slice)
    }

    fn rows_with_attributes(&self, case: &Case) -> &[SignatureRow] {
        self.completed.get(&bare_signature(case)).map_or(&[], Vec::as_slice)
    }
}

fn bare_signature(case: &Case) -> String {
    Case { attributes: CaseAttributes::default(), ..case.clone() }.signature()
}
