//! State of an interrupted run: cases that keep their verdict, and cases that are still to be measured.

use std::collections::BTreeMap;

use crate::{
    cases::plan::{PlannedCase, RunPlan},
    database::ledger::CaseRecord,
    kernel::{CaseId, CaseOutcome, IdentifiedCase, Verdict},
    measure::engine::ResumedRun,
};

/// An interrupted run, divided into what is open and what has its verdict.
#[derive(Debug)]
pub(crate) struct ResumeState {
    /// The cases that are still to be measured, and those that the rounds of a demanded precision may repeat.
    pub(crate) plan: RunPlan,
    /// Outcomes and attempts that the run has already.
    pub(crate) resumed: ResumedRun,
}

impl ResumeState {
    /// Divides the plan of all rows by what the ledger has of the run.
    ///
    /// Rows that were added to the database after the run started are not part of it. `last_collection` is the
    /// highest number of its collections, 0 if it has none. Measured cases stay planned if the run `has_rounds`.
    pub(crate) fn new(plan: RunPlan, records: &[CaseRecord], last_collection: u32, has_rounds: bool) -> Self {
        let by_case: BTreeMap<&CaseId, &CaseRecord> =
            records.iter().map(|record| (&record.case, record)).collect();
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
        let attempted = unfinished.flat_map(|record| {
            record.attempts.iter().map(|attempt| (record.case.clone(), attempt.collection))
        });
        let resumed =
            ResumedRun { collections: last_collection, outcomes, measured, attempted: attempted.collect() };
        Self { plan: RunPlan { cases: open, not_launched, already_measured: 0, ..plan }, resumed }
    }
}

/// The verdict of a case, else that of its last attempt: the run may have been killed between the two.
///
/// An attempt that would be repeated, and one that ran out of memory (which is repeated alone), gives no verdict.
fn final_outcome(record: &CaseRecord) -> Option<CaseOutcome> {
    let is_final = |outcome: &&CaseOutcome| outcome.verdict != Verdict::NotRun;
    if let Some(outcome) = record.outcome.as_ref().filter(is_final) {
        return Some(outcome.clone());
    }
    let last = record.attempts.last().map(|attempt| &attempt.outcome);
    // A case that ran as another kernel is tried on another device first.
    let is_first = record.attempts.len() == 1;
    let last = last.filter(|outcome| !(is_first && outcome.verdict == Verdict::WrongKernel));
    last.filter(|outcome| !outcome.verdict.is_worth_a_retry() && outcome.verdict != Verdict::Oom).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        database::ledger::runs::AttemptRecord,
        kernel::{Case, CaseAttributes, KernelName},
    };

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
        let ResumeState { plan, resumed } = ResumeState::new(plan, &records, 4, false);
        let names: Vec<&str> = plan.not_launched.iter().map(|(case, _)| case.kernel.as_str()).collect();
        assert_eq!((names, plan.already_measured), (vec!["Open"], 0));
        assert_eq!(resumed.collections, 4);
        assert_eq!(resumed.outcomes.len(), 1);
        assert_eq!(resumed.attempted, [(case("Open").id(), 1)]);
    }
}
