//! Failures of collections, devices and of the host: what is repeated, waited for, paused, or ends the run.

use super::*;
use crate::{base::command_error::Failure, kernel::cause::in_tests::with_replaced_texts};

#[test]
fn collection_that_cannot_be_started_is_repeated() {
    let fixture = Fixture::new(4);
    let observed = fixture.run_all(&[0], &|context, _, start| {
        (1.0, if start.collection == 1 { missing_program() } else { success(context, start) })
    });
    observed.assert_end(ExitStatus::Done, &[(Verdict::Ok, 4)]);
}

/// Results of collections on a full disk are no evidence: neither a device nor a case is blamed.
#[test]
fn collection_that_fails_on_a_full_disk_is_repeated_without_blame() {
    let fixture = Fixture::new(12);
    let full = |path: &str| EngineError::Io {
        path: PathBuf::from(path),
        source: std::io::Error::from(std::io::ErrorKind::StorageFull),
    };
    let respond = |context: &LaneContext, _, start: &StartCollection| match start.collection {
        1..=5 => (1.0, Err(full("manifest.json"))),
        // Observed as full when it ends: the failed start of another one.
        6 => (1.0, Ok(collection_result(context, start, Verdict::Crashed, CollectionExit::Broken))),
        _ => (1.0, success(context, start)),
    };
    let observed = fixture.run_all(&[0, 1], &respond);
    observed.assert_end(ExitStatus::Done, &[(Verdict::Ok, 12)]);
    let count =
        |matches: fn(&RunEvent) -> bool| observed.events.iter().filter(|(_, event)| matches(event)).count();
    assert_eq!(count(|event| matches!(event, RunEvent::DevicePaused { .. })), 0);
    let full = count(|event| matches!(event, RunEvent::DiskFull { .. }));
    assert!(full > 0 && full == count(|event| matches!(event, RunEvent::DiskFreed { .. })), "{full}");
}

/// A transaction that another program blocks is tried again; a second stop request ends the wait.
#[test]
fn locked_ledger_is_waited_for_and_a_stop_request_ends_the_wait() {
    for stops in [&[][..], &[1.0, 2.0]] {
        let fixture = Fixture::new(8);
        let path = fixture.database.ledger_path();
        drop(Ledger::open(&path).expect("created"));
        let blocker = RefCell::new(None);
        let waits = RefCell::new(0);
        let observe = |_: &LaneContext, event: &RunEvent| match event {
            RunEvent::CollectionStarted { collection: 1, .. } => {
                let connection = rusqlite::Connection::open(&path).expect("a second connection");
                connection.execute_batch("BEGIN IMMEDIATE").expect("locked");
                *blocker.borrow_mut() = Some(connection);
            }
            RunEvent::LedgerWaiting { .. } => {
                *waits.borrow_mut() += 1;
                if stops.is_empty() {
                    blocker.borrow_mut().take();
                }
            }
            _ => {}
        };
        let plan = fixture.plan(&BTreeSet::new());
        let respond = |context: &LaneContext, _, start: &StartCollection| (0.5, success(context, start));
        let observed = fixture.run(plan, &[0], None, stops, &respond, &observe);
        assert_eq!(*waits.borrow(), 1);
        if stops.is_empty() {
            assert_eq!(observed.verdicts(), BTreeMap::from([(Verdict::Ok, 8)]));
            assert!(
                observed.events.iter().any(|(_, event)| matches!(event, RunEvent::LedgerWritable { .. }))
            );
        } else {
            let error = observed.outcome.expect_err("the result is not stored");
            assert!(matches!(error, EngineError::StoppedWaiting { .. }), "{error}");
            assert_eq!(error.exit_status(), ExitStatus::Interrupted);
        }
    }
}

#[test]
fn run_gives_up_if_no_collection_can_be_started() {
    let fixture = Fixture::new(40);
    let observed = fixture.run_all(&[0], &|_, _, _| (1.0, missing_program()));
    observed.assert_end(ExitStatus::CannotMeasure, &[(Verdict::NotRun, 40)]);
    assert_eq!(
        observed.reasons(),
        BTreeSet::from(
            [
                "there is no program `sh`",
                "3 collections in a row launched nothing on each device: there is no program `sh`"
            ]
            .map(str::to_owned)
        )
    );
    assert_eq!(observed.started.len(), 3);
}

/// The exit code says that the host cannot measure, although an interrupted run measured cases before.
#[test]
fn resumed_run_gives_up_if_no_collection_can_be_started() {
    let mut fixture = Fixture::new(40);
    let measured = fixture.plan(&BTreeSet::new()).cases.remove(0).case;
    let open = fixture.plan(&BTreeSet::from([measured.id().clone()]));
    assert_eq!(open.cases.len(), 39);
    fixture.predecided = vec![(measured, CaseOutcome::new(Verdict::Ok, "every launch recorded, steady"))];
    let observed = fixture.run(open, &[0], None, &[], &|_, _, _| (1.0, missing_program()), &|_, _| {});
    observed.assert_end(ExitStatus::CannotMeasure, &[(Verdict::Ok, 1), (Verdict::NotRun, 39)]);
}

/// Cases that were launched keep the fault of the table as their reason; the others were not run.
#[test]
fn run_gives_up_if_no_profile_can_be_read() {
    let respond = |context: &LaneContext, _, start: &StartCollection| {
        let exit = CollectionExit::Completed;
        (10.0, Ok(collection_result(context, start, Verdict::LostRecords, exit)))
    };
    // A few cases are tried as often.
    let few = Fixture::new(4).run_all(&[0, 1], &respond);
    few.assert_end(ExitStatus::CannotMeasure, &[(Verdict::LostRecords, 4)]);
    let observed = Fixture::new(2000).run_all(&[0, 1], &respond);
    assert_eq!(observed.exit(), ExitStatus::CannotMeasure);
    assert_eq!(observed.started.len(), 6);
    assert_eq!(
        observed.reasons(),
        BTreeSet::from(
            [
                "prepared lost_records",
                "3 collections in a row left no readable profile on each device: prepared lost_records"
            ]
            .map(str::to_owned)
        )
    );
    let verdicts = observed.verdicts();
    assert!(verdicts[&Verdict::LostRecords] > 0 && verdicts[&Verdict::NotRun] > 0, "{verdicts:?}");
}

#[test]
fn panic_of_a_lane_ends_the_run_as_a_defect() {
    let fixture = Fixture::new(4);
    let observed = fixture.run_all(&[0], &|_, _, _| (1.0, Err(EngineError::Panicked { device: 0 })));
    let error = observed.outcome.expect_err("the run fails");
    assert_eq!(error.exit_status(), ExitStatus::Bug);
}

#[test]
fn failing_device_is_paused_and_readmitted() {
    let fixture = Fixture::new(96);
    let observed = fixture.run_all(&[0, 1], &|context, now, start| match start.devices[0] {
        0 if now < 300.0 => (1.0, missing_program()),
        _ => (200.0, success(context, start)),
    });
    observed.assert_end(ExitStatus::Done, &[(Verdict::Ok, 96)]);
    let pauses: Vec<(Seconds, Seconds)> = observed
        .events
        .iter()
        .filter_map(|(at, event)| match event {
            RunEvent::DevicePaused { device: 0, retry_in_s, .. } => Some((*at, retry_in_s.expect("a retry"))),
            _ => None,
        })
        .collect();
    // Each pause is three times as long as the one before it.
    for (pause, (_, retry_in_s)) in pauses.iter().enumerate() {
        let expected = 0.5 * 3_f64.powi(i32::try_from(pause).expect("a few"));
        assert!((retry_in_s - expected).abs() < 0.1, "{pauses:?}");
    }
    let (at, retry_in_s) = *pauses.last().expect("the device is paused");
    let readmitted = observed
        .events
        .iter()
        .find_map(|(at, event)| matches!(event, RunEvent::DeviceReadmitted { device: 0 }).then_some(*at));
    let readmitted = readmitted.expect("the device is used again");
    assert!(readmitted >= at + retry_in_s, "{readmitted}");
    let used = |(started, start): &&(Seconds, StartCollection)| {
        start.devices == [0] && (at..at + retry_in_s).contains(started)
    };
    assert_eq!(observed.started.iter().find(used), None);
}

/// A night with failures of every kind is the same if each cause has another text: only what is shown changes.
#[test]
fn texts_of_causes_decide_nothing() {
    let night = || {
        let fixture = Fixture::new(60);
        let observed = fixture.run_all(&[0, 1], &|context, _, start| {
            let failed = |verdict, exit| Ok(collection_result(context, start, verdict, exit));
            match start.collection % 7 {
                1 => (5.0, failed(Verdict::LostRecords, CollectionExit::Completed)),
                2 => (5.0, failed(Verdict::Crashed, CollectionExit::Broken)),
                3 => (1.0, missing_program()),
                4 => (5.0, failed(Verdict::Throttled, CollectionExit::Completed)),
                5 => (5.0, failed(Verdict::Rejected, CollectionExit::Completed)),
                _ => (10.0, success(context, start)),
            }
        });
        let outcomes = &observed.outcome.as_ref().expect("the run ended").outcomes;
        let decided: Vec<(CaseId, Verdict, &str)> = outcomes
            .iter()
            .map(|(case, outcome)| (case.id().clone(), outcome.verdict, outcome.reason.cause.name()))
            .collect();
        (observed.exit(), decided, observed.started.len(), observed.reasons())
    };
    let (exit, decided, started, texts) = night();
    let (other_exit, other_decided, other_started, other_texts) = with_replaced_texts(night);
    assert_eq!((exit, decided, started), (other_exit, other_decided, other_started));
    assert!(texts.is_disjoint(&other_texts), "{texts:?} {other_texts:?}");
}
