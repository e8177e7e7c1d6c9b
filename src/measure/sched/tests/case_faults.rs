//! Cost of faulty cases in collections.

use super::*;

/// Runs with and without one faulty case; returns the additional collections.
fn extra_collections(fault: CaseFault, at: usize, cases: usize) -> (FaultyHost, usize) {
    let jobs: Vec<SchedCase> = (0..cases).map(|_| job(0, 0.05)).collect();
    let run = |case_faults: Vec<CaseFault>| {
        let mut host = FaultyHost::new(jobs.clone(), case_faults);
        host.run(2);
        host
    };
    let healthy = run(vec![CaseFault::No; cases]).collections.len();
    let mut one = vec![CaseFault::No; cases];
    one[at] = fault;
    let host = run(one);
    let collections = host.collections.len();
    (host, collections.saturating_sub(healthy))
}

#[test]
fn one_faulty_case_among_500_costs_no_more_than_a_bisection() {
    // A collection has up to 256 cases; a bisection takes log2 of that, and two more.
    for (fault, verdict, most) in [
        (CaseFault::Crashes, Verdict::Quarantined, 4),
        (CaseFault::Hangs, Verdict::Quarantined, 4),
        (CaseFault::CrashesUnnamed, Verdict::Quarantined, 10),
        (CaseFault::TooLarge, Verdict::Oom, 2),
        (CaseFault::AlwaysLost, Verdict::LostRecords, 3),
    ] {
        for at in [0, 3, 100, 250, 499] {
            let (host, extra) = extra_collections(fault, at, 500);
            assert_eq!(host.concluded[&at].verdict, verdict, "{fault:?} at {at}");
            assert_eq!(host.count(Verdict::Ok), 499, "{fault:?} at {at}");
            assert!(extra <= most, "{fault:?} at {at} cost {extra} collections more: {:?}", host.collections);
        }
    }
}

/// The predictions are too short by a factor of 40: each collection ends in time to export what it has measured.
#[test]
fn slow_collections_end_by_themselves_and_keep_their_results() {
    let mut host = FaultyHost::healthy(300);
    host.jobs.iter_mut().for_each(|job| job.seconds = 0.5);
    host.case_slowdown = 40.0;
    host.run(2);
    assert_eq!((host.count(Verdict::Ok), host.ended_by_limit), (300, 0), "{:?}", host.collections);
    assert!(host.attempts.iter().all(|attempts| *attempts == 1));
}

/// Each fiftieth case breaks its collection, which costs the results of the others.
#[test]
fn night_with_many_crashes_has_smaller_collections() {
    let mut host = FaultyHost::healthy(2000);
    host.jobs.iter_mut().enumerate().for_each(|(case, job)| (job.kernel, job.seconds) = (case % 60, 0.3));
    (0..40).for_each(|number| host.case_faults[number * 50 + 17] = CaseFault::Crashes);
    let ended = host.run(4);
    assert_eq!((host.count(Verdict::Ok), host.count(Verdict::Quarantined)), (1960, 40));
    let attempts: u32 = host.attempts.iter().sum();
    assert!(attempts < 3000, "{attempts} attempts, {ended:.0} s");
}

#[test]
fn reason_of_a_quarantined_case_names_the_devices() {
    let (host, _) = extra_collections(CaseFault::Crashes, 7, 20);
    let reason = &host.concluded[&7].reason;
    assert!(
        reason.starts_with("crashed: ") && reason.contains("; on device ") && reason.contains(" and device "),
        "{reason}"
    );
}

#[test]
fn case_out_of_memory_in_a_collection_is_repeated_alone() {
    let mut host = FaultyHost::healthy(40);
    host.case_faults[5] = CaseFault::Crowded;
    host.run(1);
    assert_eq!((host.count(Verdict::Ok), host.attempts[5]), (40, 2));
}

#[test]
fn cases_as_large_as_one_out_of_memory_run_alone_until_one_succeeds() {
    let mut host = FaultyHost::healthy(400);
    host.case_faults[0] = CaseFault::TooLarge;
    host.jobs[0].value = 9.0;
    for case in [0, 100, 200, 300] {
        host.jobs[case].memory = 1 << 35;
    }
    host.run(1);
    assert_eq!((host.count(Verdict::Ok), host.count(Verdict::Oom)), (399, 1));
    let alone = host.collections.iter().filter(|(purpose, _)| *purpose == CollectionPurpose::Alone).count();
    // The second one succeeded alone, and the others are no larger.
    assert_eq!(alone, 2, "{:?}", host.collections);
}

/// An error of unclear cause is final after a second attempt, on another device where there is one; in a gang alone. No error
/// that is told by an exception costs a search, or the cases of its collection more than another attempt.
#[test]
fn errors_that_may_not_be_of_the_call_are_tried_once_more_elsewhere() {
    use CaseFault::{FaultOnce, Refused, Unclear, UnclearLate, UnclearOnce};
    for devices in [1, 2] {
        for (fault, attempts, failed) in
            [(Unclear, 2, 3), (UnclearOnce, 2, 0), (UnclearLate, 2, 0), (FaultOnce, 2, 0), (Refused, 1, 3)]
        {
            let mut host = FaultyHost::healthy(500);
            let faulty = [7, 8, 200];
            faulty.iter().for_each(|case| host.case_faults[*case] = fault);
            host.jobs[8].devices = devices;
            host.run(2);
            assert_eq!(host.count(Verdict::Rejected), failed, "{fault:?}");
            assert_eq!(host.count(Verdict::Ok), 500 - failed, "{fault:?}");
            assert!(
                faulty.iter().all(|case| host.attempts[*case] == attempts),
                "{fault:?}: {:?}",
                host.attempts
            );
            assert!(host.quarantined.is_empty(), "{fault:?} on {devices} devices");
            assert!(host.collections.iter().all(|one| one.0 != CollectionPurpose::Search), "{fault:?}");
        }
    }
    let jobs = vec![job(0, 1.0)];
    let mut state = SchedulerState::new(jobs, &[0, 1], SchedLimits::default(), 0);
    let first = started_on(&state.on_event(0.0, SchedEvent::Started));
    let cause = Cause::Unclear { class: "RuntimeError".to_owned(), message: "?".to_owned() };
    let outcome = CaseOutcome::new(Verdict::Rejected, cause);
    let ended = ended(1, vec![CaseResult { case: 0, outcome, seconds: None }], CollectionExit::Completed);
    let second = started_on(&state.on_event(1.0, SchedEvent::Finished(ended)));
    assert_ne!(first, second);
}

/// A half of a search ends at an error: the cases that it did not reach are not cleared by that.
#[test]
fn search_goes_on_with_the_cases_that_were_not_reached() {
    let mut state = SchedulerState::new(vec![job(0, 0.05); 8], &[0], SchedLimits::default(), 0);
    state.on_event(0.0, SchedEvent::Started);
    let started = |actions: &[SchedAction]| {
        let mut starts = actions.iter().filter_map(|action| match action {
            SchedAction::Start(start) => Some((start.collection, start.cases.clone())),
            _ => None,
        });
        starts.next_back().expect("a collection")
    };
    let mut end = |(collection, cases): &(u32, Vec<usize>), exit, refused: Option<usize>| {
        let outcome = |case: usize| match refused == Some(case) {
            true => {
                let cause = Cause::Refused { class: "E".to_owned(), message: "?".to_owned() };
                CaseOutcome::new(Verdict::Rejected, cause)
            }
            false => CaseOutcome::new(Verdict::NotRun, Cause::RunStopped),
        };
        let result = |case: &usize| CaseResult { case: *case, outcome: outcome(*case), seconds: None };
        let ended = ended(*collection, cases.iter().map(result).collect(), exit);
        started(&state.on_event(f64::from(*collection), SchedEvent::Finished(ended)))
    };
    let all = (1, (0..8).collect());
    let half = end(&all, CollectionExit::Broken, None);
    let rest = end(&half, CollectionExit::EndedByCase, Some(half.1[0]));
    assert_eq!((half.1.len(), rest.1), (4, half.1[1..].to_vec()));
}

fn ended(collection: u32, results: Vec<CaseResult>, exit: CollectionExit) -> CollectionFinished {
    CollectionFinished {
        collection,
        results,
        exit,
        has_readable_profile: true,
        failed_devices: Vec::new(),
        startup: None,
        total: 1.0,
        message: String::new(),
    }
}

fn started_on(actions: &[SchedAction]) -> Vec<u32> {
    let start = actions.iter().find_map(|action| match action {
        SchedAction::Start(start) => Some(start.devices.clone()),
        _ => None,
    });
    start.unwrap_or_else(|| panic!("{actions:?}"))
}
