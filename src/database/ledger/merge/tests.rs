//! Tests of the merge of ledgers.

use std::{
    fs,
    path::{Path, PathBuf},
};

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::{
    database::ledger::{DeviceReading, NewCollection, NewRun, journal_path, tests::case},
    kernel::{
        Attempt, CacheState, CaseOutcome, CollectionEnd, CollectionPurpose, ControlKernel, ControlReading,
        DataKind, IdentifiedCase, Launch, Nanos, Verdict,
    },
};

const RUNS: [&str; 3] = ["20260101-000000-00001", "20260101-000000-00002", "20260102-000000-00001"];
const CASES: u64 = 4;

/// State of a run in a ledger: how far it was when the ledger was copied.
#[derive(Clone, Copy, Debug)]
struct RunState {
    run: usize,
    /// Number of ended collections.
    collections: u32,
    /// True if another one was being measured.
    is_measuring: bool,
    /// True if the run was stopped or has ended.
    has_ended: bool,
    /// True if the attempts of its first collection were withdrawn.
    is_withdrawn: bool,
    /// Number of readings of its device.
    readings: u32,
}

fn software() -> SoftwareFingerprint {
    SoftwareFingerprint { cann: Some("8.3.RC1".to_owned()), ..SoftwareFingerprint::default() }
}

/// Start of a collection; two runs have the same times.
fn start_of(run: usize, number: u32) -> i64 {
    1_000 * i64::from(run == 2) + 10 * i64::from(number)
}

fn attempt(run: usize, number: u32, rows: u64) -> Attempt {
    let duration = |launch: u32| 500 + i64::from(launch) + i64::from(number) * 7 + run as i64;
    let launches = (0..4).map(|launch| Launch {
        number: launch,
        is_measured: launch > 0,
        is_accepted: launch > 0,
        start: Nanos(start_of(run, number) + i64::from(launch)),
        duration: Nanos(duration(launch)),
    });
    Attempt {
        launches: launches.collect(),
        counters: vec![Some(1.5), None],
        ..Attempt::without_launches(case(rows).id().clone(), 4, CaseOutcome::new(Verdict::Ok, "fine"))
    }
}

/// Creates a ledger with these states of runs, in their order.
fn ledger_with(folder: &Path, name: &str, states: &[RunState]) -> PathBuf {
    let path = folder.join(name);
    let mut ledger = Ledger::open(&path).expect("created");
    // The tests need no durable files.
    ledger.connection.execute_batch("PRAGMA synchronous = OFF").expect("set");
    let plan: Vec<IdentifiedCase> = (1..=CASES).map(case).collect();
    for &RunState { run, collections, is_measuring, has_ended, is_withdrawn, readings } in states {
        let id = RUNS[run];
        let host = format!(r#"{{"host":"node{run}"}}"#);
        let started = Nanos(start_of(run, 0));
        let new = NewRun { run: id, kind: DataKind::Rehearsal, seed: 1, options: "{}", host: &host, started };
        ledger.begin_run(&new, &plan).expect("started");
        let device = u32::try_from(run).expect("few");
        for number in 1..=collections + u32::from(is_measuring) {
            let key = ledger
                .begin_collection(&NewCollection {
                    run: id,
                    number,
                    devices: &[device],
                    purpose: CollectionPurpose::Measure,
                    cache: CacheState::Hot,
                    predicted: 1.0,
                    started: Nanos(start_of(run, number)),
                })
                .expect("started");
            if number > collections {
                continue;
            }
            let measured = [u64::from(number) % CASES + 1, u64::from(number + 1) % CASES + 1];
            let attempts = measured.map(|rows| attempt(run, number, rows));
            // Collections end in another order than they have started.
            let ended = Nanos(start_of(run, number) + 25 - i64::from(number % 2) * 12);
            ledger.finish_collection(key, ended, "done", &software(), &attempts).expect("finished");
            let reading = |end| ControlReading {
                control: ControlKernel::Matmul,
                end,
                device,
                kernel: "MatMulV2".to_owned(),
                durations: vec![500_000; 8],
                cycle_rate: None,
            };
            ledger.set_controls(key, &[reading(CollectionEnd::Begin)]).expect("stored");
            ledger.set_archive(key, &format!("{run}-{number}")).expect("stored");
            if number == 1 && is_withdrawn {
                let outcome = CaseOutcome::new(Verdict::Throttled, "its clock was low");
                let keys = ledger.collection_attempts(key).expect("read");
                let keys: Vec<_> = keys.iter().map(|stored| (stored.attempt, outcome.clone())).collect();
                ledger.withdraw_attempts(&keys).expect("withdrawn");
            }
        }
        for number in 0..readings {
            let at = Nanos(start_of(run, number));
            let health = "OK".to_owned();
            let (temperature, power, memory_used_mb) = (Some(40), Some(90.5), None);
            ledger
                .add_readings(id, &[DeviceReading { device, at, health, temperature, power, memory_used_mb }])
                .expect("stored");
        }
        if has_ended {
            let verdict = |rows: u64| match rows <= u64::from(collections) {
                true => (case(rows).id().clone(), CaseOutcome::new(Verdict::Ok, "fine")),
                false => (case(rows).id().clone(), CaseOutcome::new(Verdict::NotRun, "no time is left")),
            };
            let verdicts: Vec<_> = (1..=CASES).map(verdict).collect();
            let at = Nanos(start_of(run, collections + 1));
            ledger.set_verdicts(id, at, &verdicts).expect("stored");
            ledger.end_run(id, at, 5).expect("ended");
        }
    }
    path
}

/// Merges ledgers and returns the path of the new one.
fn merge(folder: &Path, name: &str, ledgers: &[&PathBuf]) -> Result<PathBuf, LedgerError> {
    let scratch = tempfile::tempdir().expect("a folder");
    let copies: Vec<LedgerCopy> = ledgers
        .iter()
        .enumerate()
        .map(|(number, path)| LedgerCopy::create(path, &scratch.path().join(number.to_string())))
        .collect::<Result<_, _>>()?;
    let target = folder.join(name);
    merge_ledgers(&copies.iter().collect::<Vec<_>>(), &scratch.path().join("union.db"), &target)?;
    Ok(target)
}

fn bytes(path: &Path) -> Vec<u8> {
    fs::read(path).expect("a ledger")
}

fn run_state(run: usize) -> impl Strategy<Value = RunState> {
    (0..4_u32, any::<bool>(), any::<bool>(), any::<bool>(), 0..3_u32).prop_map(
        move |(collections, is_measuring, has_ended, is_withdrawn, readings)| RunState {
            run,
            collections,
            is_measuring,
            has_ended,
            is_withdrawn,
            readings,
        },
    )
}

fn ledger_states() -> impl Strategy<Value = Vec<RunState>> {
    let subsequence = proptest::sample::subsequence(vec![0_usize, 1, 2], 1..=3).prop_shuffle();
    subsequence.prop_flat_map(|runs| runs.into_iter().map(run_state).collect::<Vec<_>>())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    #[test]
    fn a_merge_has_the_same_bytes_in_any_order_in_steps_and_when_it_is_repeated(
        states in proptest::collection::vec(ledger_states(), 3)
    ) {
        let folder = tempfile::tempdir().expect("a folder");
        let place = folder.path();
        let ledgers: Vec<PathBuf> =
            states.iter().enumerate().map(|(number, states)| ledger_with(place, &format!("{number}.db"), states)).collect();
        let [a, b, c] = [&ledgers[0], &ledgers[1], &ledgers[2]];
        let all = merge(place, "abc.db", &[a, b, c]).expect("merged");
        let expected = bytes(&all);
        for (name, order) in [("bca.db", [b, c, a]), ("cab.db", [c, a, b]), ("cba.db", [c, b, a])] {
            prop_assert!(bytes(&merge(place, name, &order).expect("merged")) == expected, "{name}");
        }
        let two = merge(place, "ca.db", &[c, a]).expect("merged");
        prop_assert!(bytes(&merge(place, "ca+b.db", &[&two, b]).expect("merged")) == expected, "in steps");
        let again = merge(place, "again.db", &[a, &all, b, a]).expect("merged");
        prop_assert!(bytes(&again) == expected, "again");
        prop_assert_eq!(Ledger::find_damage(&all).expect("read"), None);
    }
}

fn ended(run: usize, collections: u32) -> RunState {
    RunState { run, collections, is_measuring: false, has_ended: true, is_withdrawn: false, readings: 1 }
}

#[test]
fn union_has_every_object_once_and_the_later_state_of_each() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path();
    let early = RunState { is_measuring: true, ..ended(0, 1) };
    let early = ledger_with(place, "early.db", &[early, ended(1, 2)]);
    let late = ledger_with(place, "late.db", &[RunState { is_withdrawn: true, ..ended(0, 4) }]);
    let merged = Ledger::open(&merge(place, "m.db", &[&late, &early]).expect("merged")).expect("a ledger");
    let size = merged.size().expect("read");
    assert_eq!(size, LedgerSize { runs: 2, collections: 6, attempts: 12, samples: 36 });
    let cases = merged.run_cases(RUNS[0]).expect("read");
    let verdicts: Vec<Verdict> =
        cases.iter().filter_map(|case| Some(case.outcome.as_ref()?.verdict)).collect();
    assert_eq!(verdicts, [Verdict::Ok; 4], "a verdict replaces `not_run`");
    let collections = merged.run_collections(RUNS[0]).expect("read");
    assert!(collections.iter().all(|collection| collection.ended.is_some()), "{collections:?}");
    let withdrawn = merged.withdrawn_attempts(CacheState::Hot, None).expect("read");
    assert_eq!(withdrawn.len(), 2, "withdrawn attempts are not accepted again: {withdrawn:?}");
    let started: Vec<i64> = merged
        .read_rows("SELECT started_ns FROM collections ORDER BY collection", [], |row| row.get(0))
        .expect("read");
    assert!(started.is_sorted(), "keys are in the order of time: {started:?}");
    assert_eq!(merged.newest_software().expect("read"), Some((Nanos(start_of(0, 4)), software())));
}

#[test]
fn two_histories_of_one_run_are_refused_with_both_ledgers() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path();
    let one = ledger_with(place, "one.db", &[ended(0, 2)]);
    let change = |name: &str, sql: &str| {
        let other = place.join(name);
        fs::copy(&one, &other).expect("copied");
        rusqlite::Connection::open(&other).expect("a ledger").execute_batch(sql).expect("changed");
        let error = merge(place, &format!("{name}.merged"), &[&one, &other]).expect_err("a contradiction");
        let text = error.to_string();
        assert!(text.contains("one.db") && text.contains(name), "{text}");
        text
    };
    let text = change("host.db", r#"UPDATE runs SET host = '{"host":"node9"}'"#);
    assert!(text.contains("node9") && text.contains("node0"), "{text}");
    let text = change("seed.db", "UPDATE runs SET seed = 2");
    assert!(text.contains("seed 2, not 1"), "{text}");
    let text = change("device.db", "UPDATE collections SET device = 5 WHERE number = 2");
    assert!(text.contains(&format!("collection 2 of run {} has device 5, not 0", RUNS[0])), "{text}");
}

#[test]
fn truncated_and_incomplete_ledgers_are_refused_with_their_own_paths() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path();
    let whole = ledger_with(place, "whole.db", &[ended(0, 3)]);
    let content = bytes(&whole);
    let refused = |name: &str| {
        let other = place.join(name);
        let before = bytes(&other);
        let error = merge(place, &format!("{name}.merged"), &[&whole, &other]).expect_err("damaged");
        assert!(matches!(&error, LedgerError::Damaged { path, .. } if *path == other), "{error}");
        assert!(bytes(&other) == before, "{name} was changed");
        error.to_string()
    };
    for (name, length) in [("empty.db", 0), ("page.db", 4096 * 3), ("half.db", content.len() / 2 + 7)] {
        fs::write(place.join(name), &content[..length]).expect("written");
        refused(name);
    }
    fs::write(place.join("lost.db"), &content).expect("written");
    let lost = rusqlite::Connection::open(place.join("lost.db")).expect("a ledger");
    lost.execute_batch("PRAGMA foreign_keys = OFF; DELETE FROM attempts WHERE attempt = 1").expect("deleted");
    drop(lost);
    assert!(refused("lost.db").contains("`launch_lists`"));
}

#[test]
fn a_transaction_that_a_kill_interrupted_is_not_merged_and_stays_in_the_source() {
    let folder: TempDir = tempfile::tempdir().expect("a folder");
    let place = folder.path();
    let whole = ledger_with(place, "whole.db", &[ended(0, 2)]);
    let expected = bytes(&merge(place, "expected.db", &[&whole]).expect("merged"));
    let killed = place.join("killed.db");
    fs::copy(&whole, &killed).expect("copied");
    let writer = rusqlite::Connection::open(&killed).expect("a ledger");
    // The cache of a page is written before the transaction ends, as in a long transaction.
    writer
        .execute_batch(
            "PRAGMA cache_size = 1; PRAGMA cache_spill = 1; BEGIN IMMEDIATE; UPDATE launch_lists SET durations_ns = '[7]';
             UPDATE attempts SET remarks = printf('[\"%.5000c\"]', 'x'); UPDATE runs SET ended_ns = 7;",
        )
        .expect("changed");
    let copy = place.join("copy.db");
    fs::copy(&killed, &copy).expect("copied");
    fs::copy(journal_path(&killed), journal_path(&copy)).expect("its journal");
    drop(writer);
    assert!(bytes(&copy) != bytes(&whole), "the transaction was written in part");
    let before = bytes(&copy);
    assert!(bytes(&merge(place, "merged.db", &[&copy]).expect("merged")) == expected);
    assert!(bytes(&copy) == before && journal_path(&copy).exists());
}
