//! The plan of a run from a database and its ledger, and the state of an interrupted run.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    base::{command_error::CommandError, stats::PrecisionAim},
    cases::plan::{
        CaseSelection, EqualCallEvidence, MissingTable, PlannedCase, RefusedCall, RunPlan, select_cases,
    },
    database::{
        Database,
        ledger::{CaseRecord, Ledger, StoredCheck},
    },
    kernel::{
        CacheState, CaseId, CaseOutcome, Cause, CheckMethod, CheckOutcome, CheckVerdict, IdentifiedCase,
        KernelName, Verdict, catalogue::Catalogue, device::DeviceProfile,
    },
    measure::{
        engine::ResumedRun, evidence::LedgerRows, filtered_cases::row_filter, run_options::RunOptions,
        vendor_check::installed_software, verify::JointEstimates,
    },
};

/// Cases with accepted results in the ledger count as measured, even if their CSV was not written.
pub(crate) fn plan_of_database(
    database: &Database,
    catalogue: &Catalogue,
    profile: &DeviceProfile,
    options: &RunOptions,
    kernels: &[KernelName],
) -> Result<RunPlan, CommandError> {
    let mut plan = unmerged_plan(database, catalogue, profile, options, kernels)?;
    plan.merge_equal_calls();
    Ok(plan)
}

pub(crate) fn unmerged_plan(
    database: &Database,
    catalogue: &Catalogue,
    profile: &DeviceProfile,
    options: &RunOptions,
    kernels: &[KernelName],
) -> Result<RunPlan, CommandError> {
    let existing = database.existing_ledger()?;
    if let Some(sweep) = &options.sweep {
        let accepted = |ledger: &Ledger| {
            accepted_cases(ledger, &LedgerRows::read(ledger, options.cache)?, options.cache)
        };
        let measured = existing.as_ref().map(accepted).transpose()?.unwrap_or_default();
        return sweep.plan(database, catalogue, profile, options, &measured);
    }
    let (mut measured, mut imprecise) = (BTreeSet::new(), BTreeSet::new());
    let (mut equal_calls, mut withdrawn) = (EqualCallEvidence::default(), BTreeMap::new());
    let mut refused = BTreeMap::new();
    if let Some(ledger) = &existing {
        let rows = LedgerRows::read(ledger, options.cache)?;
        measured = accepted_cases(ledger, &rows, options.cache)?;
        if let Some(aim) = options.precision_aim() {
            imprecise = imprecise_cases(&rows.estimates, aim);
        }
        let as_other = rows.ran_as_other.into_iter();
        equal_calls.ran_as_other_reasons = as_other.map(|(case, attempt)| (case, attempt.reason)).collect();
        equal_calls.cases_with_samples = ledger.cases_with_samples(options.cache)?;
        withdrawn = rows.withdrawn;
        withdrawn.retain(|case, _| !equal_calls.cases_with_samples.contains(case));
        if !options.ignore_check {
            let installed = || installed_software(&options.python).ok().map(|software| software.to_string());
            refused = refused_calls(ledger, installed)?;
        }
    }
    let filter = row_filter(options.filter.as_deref(), database, catalogue, options.cache)?;
    let selection = CaseSelection {
        update: options.update,
        cache: options.cache,
        kernels,
        cases: &options.cases,
        filter: filter.as_ref(),
        measured: &measured,
        withdrawn: &withdrawn,
        imprecise: &imprecise,
        refused_calls: Some(&refused),
        equal_calls: &equal_calls,
        weight_column: options.weight_column.as_deref(),
        case_weights: &options.case_weights,
    };
    let mut plan = select_cases(database, catalogue, profile, &selection)?;
    if let Some(ledger) = &existing {
        plan.missing_tables = missing_tables(database, ledger, kernels, &plan.rows_to_insert)?;
    }
    plan.note_skew(options.expert_skew);
    Ok(plan)
}

/// A row can be noisy although one of its collections is not.
fn accepted_cases(
    ledger: &Ledger,
    rows: &LedgerRows,
    cache: CacheState,
) -> Result<BTreeSet<CaseId>, CommandError> {
    let mut cases = ledger.measured_cases(cache)?;
    cases.retain(|case| rows.row(case).is_none_or(|row| row.outcome.verdict != Verdict::Noisy));
    Ok(cases)
}

fn imprecise_cases(estimates: &JointEstimates, aim: PrecisionAim) -> BTreeSet<CaseId> {
    let mut cases: Vec<&CaseId> = estimates.cases.keys().collect();
    cases.sort();
    let repeated = estimates.cases_to_repeat(&cases, aim).into_iter().map(|case| cases[case]);
    let unconfirmed = cases.iter().copied().filter(|case| estimates.needs_confirmation(case, None));
    repeated.chain(unconfirmed).cloned().collect()
}

/// Returns the tables that are missing although the ledger has results of their kernels, except those that the run creates.
fn missing_tables(
    database: &Database,
    ledger: &Ledger,
    selected: &[KernelName],
    rows_to_insert: &[IdentifiedCase],
) -> Result<Vec<MissingTable>, CommandError> {
    let present = database.kernels_and_collectives()?;
    let is_missing =
        |kernel: &str| selected.is_empty() || selected.iter().any(|name| name.as_str() == kernel);
    let lost = |(kernel, count): (String, u32)| {
        let written = rows_to_insert.iter().filter(|case| case.kernel.as_str() == kernel).count();
        let count = count.saturating_sub(u32::try_from(written).unwrap_or(u32::MAX));
        (count > 0 && is_missing(&kernel)).then_some(MissingTable { kernel, cases: count })
    };
    Ok(ledger.measured_kernels_without(&present)?.into_iter().filter_map(lost).collect())
}

/// Outcome and digest of each call that the installed torch_npu refused in `npubench check`, or whose operator has another schema
/// there. Outcomes of other versions do not count; without an installed torch_npu (on the rehearsal host) all outcomes count.
fn refused_calls(
    ledger: &Ledger,
    installed: impl Fn() -> Option<String>,
) -> Result<BTreeMap<CaseId, RefusedCall>, CommandError> {
    let checks = ledger.stored_checks()?;
    if checks.is_empty() {
        return Ok(BTreeMap::new());
    }
    let installed = installed();
    let counts = |check: &StoredCheck| {
        let is_refused = matches!(check.outcome.verdict, CheckVerdict::Rejected | CheckVerdict::Unsupported);
        is_refused
            && check.outcome.by != CheckMethod::Rule
            && installed.as_ref().is_none_or(|installed| *installed == check.software)
    };
    let refused = checks.into_iter().filter(|(_, check)| counts(check)).filter_map(|(case, check)| {
        let CheckOutcome { verdict, message, .. } = check.outcome;
        let cause = Cause::Checked { verdict: verdict.to_string(), software: check.software, message };
        let outcome = CaseOutcome::new(verdict.run_verdict()?, cause);
        Some((case, RefusedCall { digest: check.digest, outcome }))
    });
    Ok(refused.collect())
}

/// Refuses a skew that differs from earlier runs: samples of different routings do not belong to one case.
pub(crate) fn check_expert_skew(database: &Database, skew: f64) -> Result<(), CommandError> {
    let Some(ledger) = database.existing_ledger()? else { return Ok(()) };
    match run_with_other_skew(&ledger.run_options()?, skew) {
        None => Ok(()),
        Some((run, earlier)) => Err(CommandError::bad_input(
            format!("run {run} of this database used an expert skew of {earlier}, not {skew}"),
            "measure another skew in a copy: `npubench db copy DIR NEW --kind KIND`",
        )),
    }
}

pub(crate) fn run_with_other_skew(runs: &[(String, String)], skew: f64) -> Option<(&str, f64)> {
    runs.iter().find_map(|(run, options)| {
        let earlier = expert_skew_of(options)?;
        (earlier != skew).then_some((run.as_str(), earlier))
    })
}

pub(crate) fn expert_skew_of(options: &str) -> Option<f64> {
    let options: serde_json::Value = serde_json::from_str(options).ok()?;
    Some(options["expert_skew"].as_f64().unwrap_or(0.0))
}

/// Divides the plan of all rows by what the ledger has of an interrupted run: the cases that are still to be measured, with those
/// that the rounds of a demanded precision may repeat, and what the run has already.
///
/// Rows that were added to the database after the run started are not part of it. `last_collection` is the
/// highest number of its collections, 0 if it has none. Measured cases stay planned if the run `has_rounds`.
pub(crate) fn resume_plan(
    plan: RunPlan,
    records: &[CaseRecord],
    last_collection: u32,
    has_rounds: bool,
) -> (RunPlan, ResumedRun) {
    let by_case: BTreeMap<&CaseId, &CaseRecord> = records.iter().map(|one| (&one.case, one)).collect();
    let mut outcomes = Vec::new();
    let mut measured = BTreeMap::new();
    let mut keep_open = |case: IdentifiedCase, record: &CaseRecord| match final_outcome(record) {
        Some(outcome) => {
            outcomes.push((case, outcome));
            None
        }
        None => Some(case),
    };
    let mut open = Vec::new();
    for planned in plan.cases {
        let Some(record) = by_case.get(planned.case.id()) else { continue };
        if has_rounds
            && let Some(outcome) = final_outcome(record).filter(|outcome| outcome.verdict.is_recorded())
        {
            measured.insert(planned.case.id().clone(), outcome);
            open.push(planned);
            continue;
        }
        let case = keep_open(planned.case.clone(), record);
        open.extend(case.map(|case| PlannedCase { case, ..planned }));
    }
    let mut not_launched = Vec::new();
    for (case, outcome) in plan.not_launched {
        let Some(record) = by_case.get(case.id()) else { continue };
        not_launched.extend(keep_open(case, record).map(|case| (case, outcome)));
    }
    let unfinished = records.iter().filter(|record| record.outcome.is_none());
    let attempted = unfinished
        .flat_map(|record| record.attempts.iter().map(|attempt| (record.case.clone(), attempt.collection)));
    let resumed =
        ResumedRun { collections: last_collection, outcomes, measured, attempted: attempted.collect() };
    (RunPlan { cases: open, not_launched, already_measured: 0, ..plan }, resumed)
}

/// The verdict of a case, else the verdict of its last attempt: the run may have been killed before the verdict of the
/// case was stored.
fn final_outcome(record: &CaseRecord) -> Option<CaseOutcome> {
    let is_final = |outcome: &&CaseOutcome| outcome.verdict != Verdict::NotRun;
    if let Some(outcome) = record.outcome.as_ref().filter(is_final) {
        return Some(outcome.clone());
    }
    let mut outcomes = record.attempts.iter().map(|attempt| &attempt.outcome);
    let tried = outcomes.clone().filter(is_final).count();
    outcomes.next_back().filter(|outcome| outcome.ends_a_resumed_case(tried)).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        database::ledger::runs::AttemptRecord,
        kernel::{Case, CaseAttributes, KernelName},
    };

    #[test]
    fn a_different_skew_of_any_earlier_run_is_found() {
        let runs = [("a".to_owned(), "{}".to_owned()), ("b".to_owned(), r#"{"expert_skew":0.8}"#.to_owned())];
        assert_eq!(run_with_other_skew(&runs, 0.0), Some(("b", 0.8)));
        assert_eq!(run_with_other_skew(&runs, 0.8), Some(("a", 0.0)));
        assert_eq!(run_with_other_skew(&runs[..1], 0.0), None);
        assert_eq!(run_with_other_skew(&[("a".to_owned(), "not JSON".to_owned())], 1.0), None);
    }

    fn case(kernel: &str) -> Case {
        Case {
            kernel: KernelName::new(kernel).expect("a kernel's name"),
            inputs: Vec::new(),
            outputs: Vec::new(),
            attributes: CaseAttributes::default(),
        }
    }

    fn record(kernel: &str, verdict: Option<Verdict>, attempts: &[Verdict]) -> CaseRecord {
        let outcome = |verdict| CaseOutcome::new(verdict, "a reason");
        let attempts = attempts.iter().zip(1..);
        let case = case(kernel);
        CaseRecord {
            case: case.id(),
            kernel: case.kernel,
            signature: String::new(),
            outcome: verdict.map(outcome),
            concluded: None,
            attempts: attempts
                .map(|(verdict, collection)| AttemptRecord {
                    collection,
                    device: 0,
                    outcome: outcome(*verdict),
                })
                .collect(),
        }
    }

    #[test]
    fn a_verdict_is_final_unless_the_case_was_not_run() {
        let verdict = |record: &CaseRecord| final_outcome(record).map(|outcome| outcome.verdict);
        assert_eq!(verdict(&record("A", Some(Verdict::Noisy), &[])), Some(Verdict::Noisy));
        assert_eq!(verdict(&record("A", Some(Verdict::NotRun), &[])), None);
        assert_eq!(verdict(&record("A", None, &[])), None);
    }

    /// A run killed between the last attempt and the verdict does not measure the case again.
    #[test]
    fn the_last_attempt_is_final_unless_it_would_be_repeated() {
        let verdict =
            |attempts: &[Verdict]| final_outcome(&record("A", None, attempts)).map(|outcome| outcome.verdict);
        assert_eq!(verdict(&[Verdict::LostRecords, Verdict::Ok]), Some(Verdict::Ok));
        assert_eq!(verdict(&[Verdict::WrongKernel]), None, "another device is tried");
        assert_eq!(verdict(&[Verdict::WrongKernel; 2]), Some(Verdict::WrongKernel));
        assert_eq!(verdict(&[Verdict::Ok, Verdict::LostRecords]), None);
        assert_eq!(verdict(&[Verdict::Oom]), None);
    }

    #[test]
    fn rows_added_after_the_start_are_left_out_and_open_cases_keep_their_attempts() {
        let unsupported =
            |kernel| (IdentifiedCase::new(case(kernel)), CaseOutcome::new(Verdict::Unsupported, "no entry"));
        let plan = RunPlan {
            not_launched: vec![unsupported("Done"), unsupported("Open"), unsupported("Added")],
            already_measured: 7,
            ..RunPlan::default()
        };
        let records = [
            record("Done", Some(Verdict::Ok), &[Verdict::Ok]),
            record("Open", None, &[Verdict::LostRecords]),
        ];
        let (plan, resumed) = resume_plan(plan, &records, 4, false);
        let names: Vec<&str> = plan.not_launched.iter().map(|(case, _)| case.kernel.as_str()).collect();
        assert_eq!((names, plan.already_measured), (vec!["Open"], 0));
        assert_eq!(resumed.collections, 4);
        assert_eq!(resumed.outcomes.len(), 1);
        assert_eq!(resumed.attempted, [(case("Open").id(), 1)]);
    }
}
