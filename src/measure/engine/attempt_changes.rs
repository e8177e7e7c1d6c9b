//! Comparison of the attempts of a collection with another assessment of its evidence.

use std::collections::{BTreeMap, BTreeSet};

use super::disk_failures;
use crate::{
    database::ledger::{AttemptChange, AttemptState, StoredAttempt},
    kernel::{Attempt, CaseId, CaseOutcome, Cause, IdentifiedCase, RecordedTask, Verdict},
};

/// Returns the changes that make the `stored` attempts of a collection those of another assessment. `is_complete` is
/// true if every case of the collection was assessed.
///
/// An attempt that was withdrawn for a clock that deviates, as other collections show, stays withdrawn if it would be a
/// measurement and its launches have the same cycles. An accepted attempt that is no measurement any more is withdrawn.
pub(crate) fn find_changes(
    stored: Vec<StoredAttempt>,
    assessed: &[(IdentifiedCase, Attempt)],
    is_complete: bool,
) -> Vec<AttemptChange> {
    let order: Vec<CaseId> = stored.iter().map(|attempt| attempt.case.clone()).collect();
    let mut stored: BTreeMap<CaseId, StoredAttempt> =
        stored.into_iter().map(|attempt| (attempt.case.clone(), attempt)).collect();
    let mut seen = BTreeSet::new();
    // Attempts of planned cases are stored first, and of several attempts at a case the first one.
    let mut planned: Vec<(usize, &IdentifiedCase, &Attempt)> = Vec::new();
    let mut equal: Vec<(usize, &IdentifiedCase, &Attempt)> = Vec::new();
    for (index, (case, attempt)) in assessed.iter().enumerate() {
        planned.push((index, case, attempt));
        equal.extend(attempt.of_equal_calls.iter().map(|equal| (index, &equal.case, &equal.attempt)));
    }
    let all = planned.into_iter().chain(equal);
    let first: Vec<_> = all.filter(|(_, case, _)| seen.insert(case.id().clone())).collect();
    let other_cycles = first.iter().filter(|(_, case, attempt)| {
        stored.get(case.id()).is_some_and(|stored| stored.state.cycle_rate != attempt.cycle_rate)
    });
    let other_cycles: BTreeSet<usize> = other_cycles.map(|(index, ..)| *index).collect();
    let changes = first.into_iter().filter_map(|(index, case, attempt)| {
        change(stored.get(case.id()), case, attempt, !other_cycles.contains(&index))
    });
    let mut changes: Vec<AttemptChange> = changes.collect();
    seen.iter().for_each(|case| drop(stored.remove(case)));
    let unassessed = order.iter().filter_map(|case| stored.remove(case)).filter(|attempt| {
        let AttemptState { outcome, launches, .. } = &attempt.state;
        is_complete && (is_measurement(outcome.verdict) || !launches.is_empty())
    });
    changes.extend(unassessed.map(|attempt| {
        let StoredAttempt { attempt: key, case, kernel, state } = attempt;
        let after = AttemptState {
            launched: state.launched,
            launches: Vec::new(),
            counters: "[]".to_owned(),
            task: RecordedTask::default(),
            cycle_rate: None,
            outcome: CaseOutcome::new(Verdict::NotRun, Cause::NotItsLaunches),
            is_withdrawn: true,
        };
        AttemptChange { case, kernel, before: Some((key, state)), after, new_case: None }
    }));
    changes
}

fn change(
    stored: Option<&StoredAttempt>,
    case: &IdentifiedCase,
    assessed: &Attempt,
    has_same_cycles: bool,
) -> Option<AttemptChange> {
    let mut after = AttemptState::from(assessed);
    let kernel = case.kernel.as_str().to_owned();
    let Some(StoredAttempt { attempt, state, .. }) = stored else {
        let new_case = Some(case.clone());
        return Some(AttemptChange { case: case.id().clone(), kernel, before: None, after, new_case });
    };
    let is_measured = is_measurement(after.outcome.verdict);
    let has_deviating_clock = state.is_withdrawn && state.outcome.verdict == Verdict::Throttled;
    if has_deviating_clock && is_measured && has_same_cycles {
        after.outcome = state.outcome.clone();
        after.is_withdrawn = true;
    } else {
        after.is_withdrawn = !is_measured && (state.is_withdrawn || is_measurement(state.outcome.verdict));
    }
    if disk_failures::stays_excused(&state.outcome, &after.outcome) {
        after.outcome = state.outcome.clone();
        after.launches.clear();
    } else if is_unreadable(&state.outcome) && is_unreadable(&after.outcome) {
        // The messages may differ in the place of the folder.
        after.outcome = state.outcome.clone();
    }
    let before = Some((*attempt, state.clone()));
    (after != *state).then(|| AttemptChange {
        case: case.id().clone(),
        kernel,
        before,
        after,
        new_case: None,
    })
}

/// Returns true for an attempt that counts: a measurement, or one of the kernel as which the call ran.
const fn is_measurement(verdict: Verdict) -> bool {
    verdict.has_samples() || matches!(verdict, Verdict::RanAsOther)
}

const fn is_unreadable(outcome: &CaseOutcome) -> bool {
    matches!(outcome.reason.cause, Cause::UnreadableProfile { .. })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        base::stats::CycleRate,
        kernel::{EqualCallAttempt, Reason, cause::with_replaced_texts},
    };

    fn attempt(kernel: &str, verdict: Verdict, rate: f64) -> (IdentifiedCase, Attempt) {
        let case = IdentifiedCase::without_tensors(kernel);
        let outcome = CaseOutcome::new(verdict, "assessed");
        let cycle_rate = Some(CycleRate { per_microsecond: rate, error: 0.001 });
        let attempt = Attempt { cycle_rate, ..Attempt::without_launches(case.id().clone(), 25, outcome) };
        (case, attempt)
    }

    fn stored(
        kernel: &str,
        verdict: Verdict,
        reason: impl Into<Reason>,
        is_withdrawn: bool,
    ) -> StoredAttempt {
        let (case, attempt) = attempt(kernel, verdict, 1_700.0);
        let outcome = CaseOutcome::new(verdict, reason);
        let state = AttemptState { outcome, is_withdrawn, ..AttemptState::from(&attempt) };
        StoredAttempt { attempt: 7, case: case.id().clone(), kernel: kernel.to_owned(), state }
    }

    fn ends(changes: &[AttemptChange]) -> Vec<(&str, Verdict, bool)> {
        let end = |change: &AttemptChange| (change.after.outcome.verdict, change.after.is_withdrawn);
        changes.iter().map(|change| (change.kernel.as_str(), end(change).0, end(change).1)).collect()
    }

    #[test]
    fn withdrawal_for_a_clock_holds_while_the_cycles_are_the_same() {
        let throttled = || vec![stored("Add", Verdict::Throttled, "the clock was lower", true)];
        let find = |rate| find_changes(throttled(), &[attempt("Add", Verdict::Ok, rate)], true);
        assert!(find(1_700.0).is_empty());
        assert_eq!(ends(&find(1_600.0)), [("Add", Verdict::Ok, false)]);
        // A row of the same call follows the launches, also without cycles of its own.
        let (equal, mut shared) = attempt("Mul", Verdict::RanAsOther, 1_700.0);
        shared.cycle_rate = None;
        let mut both = throttled();
        both.push(stored("Mul", Verdict::Throttled, "the clock was lower; ran as Add", true));
        both[1].state.cycle_rate = None;
        let find = |rate| {
            let (case, own) = attempt("Add", Verdict::Ok, rate);
            let of_equal_calls = vec![EqualCallAttempt { case: equal.clone(), attempt: shared.clone() }];
            find_changes(both.clone(), &[(case, Attempt { of_equal_calls, ..own })], true)
        };
        assert!(find(1_700.0).is_empty());
        assert_eq!(ends(&find(1_600.0)), [("Add", Verdict::Ok, false), ("Mul", Verdict::RanAsOther, false)]);
    }

    #[test]
    fn accepted_attempt_that_is_no_measurement_any_more_is_withdrawn() {
        let find = |verdict, is_withdrawn, assessed| {
            let stored = vec![stored("Add", verdict, "assessed", is_withdrawn)];
            find_changes(stored, &[attempt("Add", assessed, 1_700.0)], true)
        };
        let changes = find(Verdict::Ok, false, Verdict::Implausible);
        assert_eq!(ends(&changes), [("Add", Verdict::Implausible, true)]);
        assert_eq!(changes[0].before.as_ref().map(|(key, _)| *key), Some(7));
        assert!(find(Verdict::Implausible, true, Verdict::Implausible).is_empty());
        assert_eq!(ends(&find(Verdict::Implausible, true, Verdict::Ok)), [("Add", Verdict::Ok, false)]);
        assert_eq!(ends(&find(Verdict::LostRecords, false, Verdict::Hung)), [("Add", Verdict::Hung, false)]);
    }

    /// A case as which a call ran by the rules of another version, and by those of this one.
    #[test]
    fn attempts_without_a_counterpart_are_withdrawn_or_new() {
        let stored =
            || vec![stored("Add", Verdict::Ok, "assessed", false), stored("Mul", Verdict::Ok, "", false)];
        let assessed = || vec![attempt("Add", Verdict::Ok, 1_700.0)];
        assert_eq!(ends(&find_changes(stored(), &assessed(), true)), [("Mul", Verdict::NotRun, true)]);
        assert!(find_changes(stored(), &assessed(), false).is_empty(), "its planned case was not assessed");
        let mut gone = stored();
        gone[1].state = find_changes(stored(), &assessed(), true).remove(0).after;
        assert!(find_changes(gone, &assessed(), true).is_empty(), "the second time nothing changes");
        let (case, attempt) = attempt("Sub", Verdict::Ok, 1_700.0);
        let mut with_equal = assessed();
        with_equal[0].1.of_equal_calls = vec![EqualCallAttempt { case: case.clone(), attempt }];
        let changes = find_changes(stored(), &with_equal, false);
        assert_eq!(ends(&changes), [("Sub", Verdict::Ok, false)]);
        assert!(changes[0].before.is_none() && changes[0].new_case == Some(case));
    }

    #[test]
    fn attempts_excused_for_a_full_disk_and_unreadable_profiles_stay() {
        let find = |before: &Cause, verdict, assessed: Verdict, cause: &Cause| {
            let (case, mut attempt) = attempt("Add", assessed, 1_700.0);
            attempt.outcome.reason = cause.clone().into();
            let stored = stored("Add", verdict, before.clone(), false);
            find_changes(vec![stored], &[(case, attempt)], true).len()
        };
        let check = || {
            let lost = Cause::RecordCount { launches: 25, records: 3 };
            let excused = Cause::DiskFull { failure: Box::new(lost.clone().into()) };
            assert_eq!(find(&excused, Verdict::NotRun, Verdict::LostRecords, &lost), 0);
            assert_eq!(find(&excused, Verdict::NotRun, Verdict::Ok, &Cause::EveryLaunchRecorded), 1);
            let [here, there] =
                ["/a", "/b"].map(|place| Cause::UnreadableProfile { message: format!("`{place}/x.csv`") });
            assert_eq!(find(&here, Verdict::LostRecords, Verdict::LostRecords, &there), 0);
            assert_eq!(find(&here, Verdict::LostRecords, Verdict::LostRecords, &lost), 1);
        };
        check();
        with_replaced_texts(check);
    }
}
