//! Selects the cases of a run from the rows of a database.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, iter,
};

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::{
    EqualCallEvidence, FilteredTable, RowFilter, collectives::collective_call, equal_calls::EqualRows,
};
use crate::{
    base::{command_error::CommandError, shell_argument::quoted_path, suggest::nearest_name},
    database::{Database, DatabaseError, KernelCsv, RowCells, row_cases},
    kernel::{
        CONFIRMING_COLLECTIONS, CacheState, Case, CaseId, CaseOutcome, Cause, CollectiveKind, IdentifiedCase,
        KernelName, Nanos, Verdict, WithdrawnAttempts,
        catalogue::{Catalogue, FillKind, NotReplayable, ResolvedCall, group_size},
        device::DeviceProfile,
        render::call_digest,
    },
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum UpdateMode {
    /// Rows without an accepted result
    #[default]
    Missing,
    /// All rows; new samples are added to earlier ones
    All,
}

#[derive(Debug)]
pub(crate) struct CaseSelection<'a> {
    pub update: UpdateMode,
    /// State of the cache that is measured; results in another one do not count.
    pub(crate) cache: CacheState,
    /// Kernels to measure; all if empty.
    pub kernels: &'a [KernelName],
    /// Ids of cases, or their first digits; all cases if empty.
    pub(crate) cases: &'a [String],
    pub(crate) filter: Option<&'a RowFilter>,
    pub measured: &'a BTreeSet<CaseId>,
    /// Cases whose measurements were all withdrawn. Rows of their runs do not count as measured.
    pub(crate) withdrawn: &'a BTreeMap<CaseId, WithdrawnAttempts>,
    /// Measured cases that are measured again, because their intervals are wider than demanded.
    pub(crate) imprecise: &'a BTreeSet<CaseId>,
    /// Calls refused by the vendor check, which are not launched, by case. `None` if the plan is not for launches.
    pub(crate) refused_calls: Option<&'a BTreeMap<CaseId, RefusedCall>>,
    pub(crate) equal_calls: &'a EqualCallEvidence,
    pub weight_column: Option<&'a str>,
    pub(crate) case_weights: &'a BTreeMap<String, f64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RefusedCall {
    /// Digest of the call. Another call of the case is not refused.
    pub(crate) digest: String,
    pub(crate) outcome: CaseOutcome,
}

#[derive(Clone, Debug)]
pub(crate) struct PlannedCase {
    pub case: IdentifiedCase,
    pub call: ResolvedCall,
    /// Roofline bound of its duration on the device.
    pub fastest: Nanos,
    /// Weight of its result; the greatest is measured first.
    pub value: f64,
    pub devices: usize,
    /// Groups of devices, the preferred one first, of which it needs one; any devices if empty.
    pub(crate) device_groups: Vec<Vec<u32>>,
    /// True if the row was recorded on an AI CPU, so that the replay may run there.
    pub(crate) is_on_ai_cpu: bool,
    /// Cases of other rows with the same call, which share its launches.
    pub(crate) equal_cases: Vec<IdentifiedCase>,
}

impl PlannedCase {
    pub(crate) fn cases(&self) -> impl Iterator<Item = &IdentifiedCase> {
        iter::once(&self.case).chain(&self.equal_cases)
    }
}

#[derive(Debug, Default)]
pub(crate) struct RunPlan {
    pub cases: Vec<PlannedCase>,
    pub(crate) not_launched: Vec<(IdentifiedCase, CaseOutcome)>,
    pub unreadable_rows: Vec<String>,
    pub(crate) missing_tables: Vec<MissingTable>,
    pub already_measured: usize,
    pub(crate) recorded: RecordedTime,
    /// Medians in production profiles with which results are compared, by case.
    pub(crate) production: BTreeMap<CaseId, Nanos>,
    pub(crate) earlier_results: BTreeMap<CaseId, EarlierResult>,
    /// Cases with an accepted result in the ledger that their row does not show, by kernel.
    pub missing_in_csv: BTreeMap<KernelName, Vec<CaseId>>,
    /// Verdicts of calls that ran as another kernel in an earlier run, which their rows do not show.
    pub(crate) ran_as_other_verdicts: Vec<(IdentifiedCase, CaseOutcome)>,
    /// Cases of the kernels as which such calls ran, with measurements in the ledger that no row shows.
    pub(crate) rows_to_insert: Vec<IdentifiedCase>,
    /// Measured rows of the planned collectives, by kernel, whose key lacks variables of HCCL that were no part of it earlier.
    pub(crate) rows_of_earlier_keys: BTreeMap<KernelName, usize>,
}

/// Durations that a row shows, in microseconds. Rows of older tools have a mean alone.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct EarlierResult {
    pub(crate) median_us: Option<f64>,
    pub(crate) average_us: Option<f64>,
}

/// A table that does not exist although the ledger has results of its kernel: it was deleted or renamed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MissingTable {
    pub(crate) kernel: String,
    pub(crate) cases: u32,
}

impl fmt::Display for MissingTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kernel, cases } = self;
        let cases = if *cases == 1 { "a case".to_owned() } else { format!("{cases} cases") };
        write!(
            f,
            "the ledger has results of {cases} of {kernel}, whose table is missing: restore it or ingest its profile \
             again, then `npubench run` writes them"
        )
    }
}

impl RunPlan {
    pub(crate) fn refuse_larger_gangs(&mut self, devices: usize) {
        self.refuse_cases(|planned| {
            let needed = planned.devices;
            (needed > devices).then_some(Cause::MoreDevicesThanHost { needed, devices })
        });
    }

    /// Leaves out the cases with a cause as `unsupported`.
    pub(crate) fn refuse_cases(&mut self, cause: impl Fn(&PlannedCase) -> Option<Cause>) {
        for planned in std::mem::take(&mut self.cases) {
            let Some(cause) = cause(&planned) else {
                self.cases.push(planned);
                continue;
            };
            let outcome = CaseOutcome::new(Verdict::Unsupported, cause);
            self.not_launched.extend(planned.cases().map(|case| (case.clone(), outcome.clone())));
        }
    }

    /// Returns true if the call of a case ran as another kernel in an earlier run and was measured as a case of that, and
    /// adds what its rows do not show. `is_shown` is true if the case's row shows the verdict.
    fn add_ran_as_other(
        &mut self,
        case: &IdentifiedCase,
        is_shown: bool,
        rows: &mut EqualRows<'_>,
    ) -> Result<bool, DatabaseError> {
        let evidence = rows.evidence;
        let earlier = evidence.ran_as_other_reasons.get(case.id());
        if !is_shown && earlier.is_none() {
            return Ok(false);
        }
        let Some((measured, has_row)) = rows.find(case)? else { return Ok(false) };
        if !has_row {
            self.rows_to_insert.push(measured);
        }
        if let Some(reason) = earlier.filter(|_| !is_shown) {
            let outcome = CaseOutcome::new(Verdict::RanAsOther, reason.clone());
            self.ran_as_other_verdicts.push((case.clone(), outcome));
        }
        Ok(true)
    }

    pub(crate) fn note_skew(&mut self, skew: f64) {
        if skew == 0.0 {
            return;
        }
        for PlannedCase { call, .. } in &mut self.cases {
            let mut tensors = call.arguments.iter().flat_map(|argument| argument.value.tensors());
            let is_routed = tensors.any(|tensor| {
                matches!(tensor.fill.kind, FillKind::Experts | FillKind::Counts | FillKind::Cumulative)
            });
            if is_routed {
                call.notes.push(Cause::ExpertSkew { skew: skew.into() });
            }
        }
    }
}

/// Selects cases; a case with several rows is selected once.
pub(crate) fn select_cases(
    database: &Database,
    catalogue: &Catalogue,
    device: &DeviceProfile,
    selection: &CaseSelection<'_>,
) -> Result<RunPlan, CommandError> {
    let kernels = chosen_kernels(database, selection.kernels, catalogue)?;
    let mut plan = RunPlan::default();
    let compares_production = database.has_comparable_production();
    let mut seen = BTreeSet::new();
    let mut has_weights = false;
    // For each of the given first digits of ids: true if the id of a case begins with them.
    let mut found = vec![false; selection.cases.len()];
    let CaseSelection { cache, equal_calls: evidence, .. } = *selection;
    let mut equal_rows = EqualRows { database, catalogue, cache, evidence, tables: BTreeMap::new() };
    let judge = RowJudge { catalogue, device, selection };
    let mut has_match = false;
    let mut selected = Vec::new();
    let default_value = if selection.weight_column.is_some() { 0.0 } else { 1.0 };
    for kernel in kernels {
        let table = database.kernel_csv(&kernel)?;
        let filter =
            selection.filter.map(|filter| FilteredTable::new(filter, &table, catalogue.entry(&kernel)));
        let weights = selection.weight_column.and_then(|column| row_weights(&table, column));
        has_weights |= weights.is_some();
        for row in row_cases(&kernel, &table)? {
            let (shown_cells, recorded_seconds) =
                (row.cells(selection.cache).clone(), row.recorded_seconds());
            let case = match row.case {
                Ok(case) => IdentifiedCase::new(case),
                Err(problem) => {
                    plan.unreadable_rows.push(format!("{}:{}: {problem}", table.path().display(), row.line));
                    continue;
                }
            };
            if !is_selected(&case, selection.cases, &mut found) {
                continue;
            }
            let cells = (row.row, &shown_cells, row.production);
            if filter.as_ref().is_some_and(|filter| !filter.matches(&filter.values(&case, case.id(), cells)))
            {
                continue;
            }
            has_match = true;
            plan.recorded.add_row(case.id(), recorded_seconds);
            let value = selection.case_weights.get(case.id().as_str()).copied();
            let value = value.or_else(|| Some(weights.as_ref()?[row.row])).unwrap_or(default_value);
            let in_ledger = selection.measured.contains(case.id());
            let withdrawn = selection.withdrawn.get(case.id()).zip(shown_cells.run.as_ref());
            let is_withdrawn = withdrawn.is_some_and(|(withdrawn, run)| withdrawn.runs.contains(run));
            if let Some(median) = row.production.filter(|_| compares_production) {
                plan.production.entry(case.id().clone()).or_insert(median);
            }
            let shown = shown_cells.shown.as_ref().map(|shown| shown.verdict).filter(|_| !is_withdrawn);
            let is_unconfirmed = shown == Some(Verdict::Suspicious)
                && shown_cells.collections.is_none_or(|count| count < CONFIRMING_COLLECTIONS);
            let is_accepted = shown == Some(Verdict::Ok)
                || (shown == Some(Verdict::Suspicious) && in_ledger && !is_unconfirmed);
            if in_ledger && !is_accepted {
                plan.missing_in_csv.entry(kernel.clone()).or_default().push(case.id().clone());
            }
            let is_on_ai_cpu = row.is_on_ai_cpu;
            // Rows of one case differ in what they record: a complete row counts wherever it stands.
            if !seen.insert(case.id().clone()) {
                let (earlier, counts_as_measured) = (None, false);
                let row =
                    SelectedRow { case, value, is_on_ai_cpu, earlier, counts_as_measured, is_further: true };
                selected.push(row);
                continue;
            }
            let ran_as_other =
                !is_accepted && plan.add_ran_as_other(&case, shown_cells.ran_as_other, &mut equal_rows)?;
            let counts_as_measured = selection.update == UpdateMode::Missing
                && !selection.imprecise.contains(case.id())
                && !is_unconfirmed
                && (is_accepted || in_ledger || ran_as_other);
            let RowCells { median: median_us, average: average_us, .. } = shown_cells;
            let earlier = (shown_cells.shown.is_some() && !is_withdrawn)
                .then_some(EarlierResult { median_us, average_us });
            let row =
                SelectedRow { case, value, is_on_ai_cpu, earlier, counts_as_measured, is_further: false };
            selected.push(row);
        }
    }
    judge.add_rows(&mut plan, selected);
    if let Some((case, _)) = selection.cases.iter().zip(found).find(|(_, is_found)| !is_found) {
        return Err(CommandError::bad_input(
            format!("no row of the database is a case whose id begins with `{case}`"),
            "the column `MicroBench Case` and `npubench show` have the ids of cases that were planned",
        ));
    }
    if let Some(filter) = selection.filter.filter(|_| !has_match) {
        return Err(CommandError::bad_input(
            format!("no row of the database matches the filter `{}`", filter.filter.as_str()),
            "a comparison with a missing value is false, such as of the verdict of a row that was never measured; \
             `has NAME` is true for rows with a value",
        ));
    }
    match selection.weight_column {
        Some(column) if !has_weights => Err(CommandError::bad_input(
            format!("no kernel of the database has a column `{column}`"),
            "use the column name of the CSV header; rows without a number in it have weight 0",
        )),
        _ => Ok(plan),
    }
}

/// Returns true if the id of a case begins with one of the prefixes, or if there are none. Marks the prefixes that match.
fn is_selected(case: &IdentifiedCase, prefixes: &[String], found: &mut [bool]) -> bool {
    let mut is_selected = prefixes.is_empty();
    for (prefix, is_found) in prefixes.iter().zip(found) {
        if case.id().as_str().starts_with(prefix.as_str()) {
            (*is_found, is_selected) = (true, true);
        }
    }
    is_selected
}

struct RowJudge<'a> {
    catalogue: &'a Catalogue,
    device: &'a DeviceProfile,
    selection: &'a CaseSelection<'a>,
}

struct SelectedRow {
    case: IdentifiedCase,
    value: f64,
    is_on_ai_cpu: bool,
    earlier: Option<EarlierResult>,
    counts_as_measured: bool,
    /// True if it follows another row of its case.
    is_further: bool,
}

impl RowJudge<'_> {
    /// Returns true for a row that contradicts itself: another tool may have measured another call for it.
    fn contradicts_itself(&self, case: &Case) -> bool {
        let entry = self.catalogue.entry(&case.kernel);
        entry.is_some_and(|entry| entry.resolve_call(case).is_err_and(|refusal| refusal.is_contradiction))
    }

    /// Adds rows to the cases to measure, or to the refused ones. A further row of a case counts if only it is a call.
    fn add_rows(&self, plan: &mut RunPlan, rows: Vec<SelectedRow>) {
        let resolve = |row: SelectedRow| {
            let SelectedRow { case, value, is_on_ai_cpu, earlier, counts_as_measured, is_further } = row;
            if counts_as_measured && !self.contradicts_itself(&case) {
                return None;
            }
            let planned = planned_case(self.catalogue, self.device, case);
            let planned = planned.map(|planned| PlannedCase { value, is_on_ai_cpu, ..planned });
            let outcome =
                planned.as_ref().ok().and_then(|it| not_launched_outcome(self.catalogue, it, self.selection));
            Some((planned, outcome, earlier, is_further))
        };
        let mut refused = BTreeSet::new();
        for row in rows.into_par_iter().map(resolve).collect::<Vec<_>>() {
            let Some((planned, outcome, earlier, is_further)) = row else {
                plan.already_measured += 1;
                continue;
            };
            if let Some(earlier) = earlier {
                let case = planned.as_ref().map_or_else(|(case, _)| case.id(), |planned| planned.case.id());
                plan.earlier_results.insert(case.clone(), earlier);
            }
            match (planned, outcome) {
                (Ok(planned), _) if is_further && !refused.remove(planned.case.id()) => {}
                (Ok(planned), outcome) => {
                    if is_further {
                        plan.not_launched.retain(|(case, _)| case.id() != planned.case.id());
                    }
                    match outcome {
                        Some(outcome) => plan.not_launched.push((planned.case, outcome)),
                        None => plan.cases.push(planned),
                    }
                }
                (Err(_), _) if is_further => {}
                (Err((case, outcome)), _) => {
                    refused.insert(case.id().clone());
                    plan.not_launched.push((*case, outcome));
                }
            }
        }
    }
}

/// Resolves a case, with a weight of 1. The error is the case with the verdict of one that cannot be replayed.
pub(crate) fn planned_case(
    catalogue: &Catalogue,
    device: &DeviceProfile,
    case: IdentifiedCase,
) -> Result<PlannedCase, (Box<IdentifiedCase>, CaseOutcome)> {
    let resolved = match case.kernel.is_collective() {
        true => collective_call(&case),
        false => resolve_call(catalogue, &case),
    };
    let resolved = resolved.and_then(|(call, devices)| {
        if case.bytes() <= device.hbm_bytes() {
            return Ok((call, devices));
        }
        let gib = case.bytes().div_ceil(1 << 30);
        let (device, device_gib) = (device.device.clone(), device.hbm_gib);
        Err(CaseOutcome::new(Verdict::Oom, Cause::NotEnoughMemory { gib, device, device_gib }))
    });
    match resolved {
        Ok((call, devices)) => {
            let fastest = device.fastest(&call.work);
            let (value, device_groups, is_on_ai_cpu, equal_cases) = (1.0, Vec::new(), false, Vec::new());
            Ok(PlannedCase { case, call, fastest, value, devices, device_groups, is_on_ai_cpu, equal_cases })
        }
        Err(outcome) => Err((Box::new(case), outcome)),
    }
}

/// Reads the weight of each row; a cell without a finite number has weight 0. `None` without the column.
fn row_weights(table: &KernelCsv, column: &str) -> Option<Vec<f64>> {
    let index = table.column_index(column)?;
    let mut weights = vec![0.0; table.len()];
    table.for_each_row(|row, cells| {
        let text = cells.get(index).and_then(|cell| std::str::from_utf8(cell).ok());
        let weight =
            text.and_then(|text| text.trim().parse::<f64>().ok()).filter(|weight| weight.is_finite());
        weights[row] = weight.unwrap_or(0.0);
    });
    Some(weights)
}

fn not_launched_outcome(
    catalogue: &Catalogue,
    planned: &PlannedCase,
    selection: &CaseSelection<'_>,
) -> Option<CaseOutcome> {
    let refused = selection.refused_calls?;
    let entry = catalogue.entry(&planned.case.kernel);
    if entry.is_some_and(|entry| !entry.can_be_launched()) {
        return Some(CaseOutcome::new(Verdict::Unsupported, Cause::NoProcessGroup));
    }
    let call = refused.get(planned.case.id())?;
    let digest = call_digest(&planned.case, &planned.call, entry);
    (call.digest == digest).then(|| call.outcome.clone())
}

fn chosen_kernels(
    database: &Database,
    wanted: &[KernelName],
    catalogue: &Catalogue,
) -> Result<Vec<KernelName>, CommandError> {
    let known = database.kernels()?;
    let db = quoted_path(database.folder());
    let fill = || format!("fill the database with `npubench ingest PROFILE --db {db}`");
    if known.is_empty() {
        return Err(CommandError::bad_input("the database has no kernels", fill()));
    }
    if let Some(missing) = wanted.iter().find(|kernel| !known.contains(kernel)) {
        if missing.is_collective() && database.has_table(missing).is_ok_and(|has_table| has_table) {
            let ops =
                CollectiveKind::of_kernel(missing).map_or_else(String::new, |kind| format!(" --ops {kind}"));
            let host = database.kind().host_option();
            return Err(CommandError::bad_input(
                format!("`{missing}` is a collective, which is measured by `npubench comm run`"),
                format!(
                    "`npubench comm run --db {db}{ops}{host}` measures a sweep of it; `npubench why {missing}.csv:2 --db {db}` prints \
                     the command of one row"
                ),
            ));
        }
        let entry = |kernel: &KernelName| catalogue.entry(kernel).map(|entry| &entry.kernel);
        let other_name =
            known.iter().find(|kernel| entry(missing).is_some() && entry(kernel) == entry(missing));
        let nearest = other_name
            .map(KernelName::as_str)
            .or_else(|| nearest_name(missing.as_str(), known.iter().map(KernelName::as_str)));
        let hint = nearest.map_or_else(fill, |nearest| format!("did you mean `{nearest}`?"));
        return Err(CommandError::bad_input(format!("the database has no rows of `{missing}`"), hint));
    }
    Ok(known.into_iter().filter(|kernel| wanted.is_empty() || wanted.contains(kernel)).collect())
}

fn resolve_call(catalogue: &Catalogue, case: &Case) -> Result<(ResolvedCall, usize), CaseOutcome> {
    let Some(entry) = catalogue.entry(&case.kernel) else {
        let cause = match catalogue.not_launchable_reason(case.kernel.as_str()) {
            Some(explanation) => Cause::NotLaunchedAlone { explanation: explanation.to_owned() },
            None => Cause::NoEntry,
        };
        return Err(CaseOutcome::new(Verdict::NoEntry, cause));
    };
    let call = entry.resolve_call(case).map_err(|NotReplayable { is_contradiction, problem, form }| {
        let verdict = if is_contradiction { Verdict::InvalidArgs } else { Verdict::Unsupported };
        let empty = (is_contradiction && case.may_have_empty_input()).then_some(Cause::MayBeEmpty);
        let cause = Cause::NoForm { kernel: case.kernel.to_string(), form, problem };
        CaseOutcome::with_remarks(verdict, cause, empty)
    })?;
    let processes = group_size(&call.arguments).and_then(|ranks| usize::try_from(ranks).ok());
    Ok((call, processes.unwrap_or(1).max(1)))
}

#[derive(Clone, Debug, Default)]
pub(crate) struct RecordedTime {
    seconds: BTreeMap<CaseId, f64>,
    total: f64,
}

impl RecordedTime {
    pub(crate) fn add_row(&mut self, case: &CaseId, seconds: f64) {
        if seconds > 0.0 {
            *self.seconds.entry(case.clone()).or_default() += seconds;
            self.total += seconds;
        }
    }

    /// Returns the share of distinct cases in the time of all rows; `None` without a recorded time.
    pub(crate) fn share<'a>(&self, cases: impl IntoIterator<Item = &'a CaseId>) -> Option<f64> {
        // The sum of no number would be -0.
        let time = cases
            .into_iter()
            .filter_map(|case| self.seconds.get(case))
            .fold(0.0, |sum, seconds| sum + seconds);
        (self.total > 0.0).then(|| time / self.total)
    }
}

#[cfg(test)]
mod tests;
