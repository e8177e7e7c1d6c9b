//! Tests of the ledger as a whole.

use std::{collections::BTreeSet, slice};

use strum::VariantArray as _;

use super::{measurements::MeasuredAttempt, *};
use crate::base::{command_error::Failure as _, stats::CycleRate};
use crate::kernel::{
    Attempt, Case, CaseAttributes, CollectionSamples, Dtype, EqualCallAttempt, KernelName, Launch,
    RecordedTask, SoftwareFingerprint, Tensor, Verdict,
};

const fn collection_on(device: u32) -> NewCollection<'static> {
    let devices: &[u32] = match device {
        3 => &[3],
        _ => &[0],
    };
    let purpose = CollectionPurpose::Measure;
    let cache = CacheState::Hot;
    NewCollection { run: "r1", number: 1, devices, purpose, cache, predicted: 1.5, started: Nanos(2) }
}

#[test]
fn several_processes_may_open_a_new_ledger_at_once() {
    for _ in 0..20 {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ledger.db");
        std::thread::scope(|scope| {
            for opened in [0; 4].map(|_| scope.spawn(|| Ledger::open(&path).map(drop))) {
                opened.join().expect("no panic").expect("each finds it complete");
            }
        });
    }
}

pub(super) fn case(rows: u64) -> IdentifiedCase {
    let tensor = Some(Tensor::new(vec![rows, 8], Dtype::Float));
    IdentifiedCase::new(Case {
        kernel: KernelName::new("Add").expect("a name"),
        inputs: vec![tensor.clone(), tensor.clone()],
        outputs: vec![tensor],
        attributes: CaseAttributes::default(),
    })
}

fn attempt(case: &IdentifiedCase, verdict: Verdict, durations: &[i64]) -> Attempt {
    let launches = durations.iter().zip(0..).map(|(&duration, number)| Launch {
        number,
        is_measured: number > 0,
        is_accepted: number > 0 && duration < 1000,
        start: Nanos(i64::from(number) * 2000),
        duration: Nanos(duration),
    });
    Attempt {
        case: case.id().clone(),
        launched: u32::try_from(durations.len()).expect("few"),
        launches: launches.collect(),
        fastest_ranks: Vec::new(),
        counters: vec![Some(1.5), None],
        task: RecordedTask {
            state: "dynamic".to_owned(),
            core: "AI_CORE".to_owned(),
            operator: "aclnnAdd_AddAiCore_Add".to_owned(),
        },
        cycle_rate: None,
        outcome: CaseOutcome::new(verdict, "because"),
        of_equal_calls: Vec::new(),
    }
}

fn run(id: &str) -> NewRun<'_> {
    NewRun {
        run: id,
        kind: DataKind::Rehearsal,
        seed: u64::MAX,
        options: "{}",
        host: "{}",
        started: Nanos(1),
    }
}

#[test]
fn committed_results_survive_reopening() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("ledger.db");
    let (first, second) = (case(1), case(2));
    {
        let mut ledger = Ledger::open(&path).expect("created");
        ledger.begin_run(&run("r1"), &[first.clone(), second.clone()]).expect("started");
        let collection = ledger.begin_collection(&collection_on(3)).expect("started");
        let attempts =
            [attempt(&first, Verdict::Ok, &[9, 10, 11, 5000]), attempt(&second, Verdict::LostRecords, &[9])];
        ledger
            .finish_collection(collection, Nanos(3), "done", &SoftwareFingerprint::default(), &attempts)
            .expect("finished");
        ledger
            .set_verdicts("r1", Nanos(4), &[(first.id().clone(), CaseOutcome::new(Verdict::Ok, "fine"))])
            .expect("set");
    }
    let ledger = Ledger::open(&path).expect("there");
    assert_eq!(ledger.run_kinds().expect("read"), [DataKind::Rehearsal]);
    let evidence = ledger.attempt_samples(first.id(), CacheState::Hot).expect("read");
    assert_eq!(evidence.len(), 1);
    assert_eq!(evidence[0].samples.to_vec(), [10, 11], "warm-up and outlier are not samples");
    assert_eq!(evidence[0].outliers, 1);
    assert_eq!(evidence[0].counters, vec![Some(1.5), None].into());
    assert_eq!(*evidence[0].task, attempt(&first, Verdict::Ok, &[]).task);
    assert!(
        ledger.attempt_samples(second.id(), CacheState::Hot).expect("read").is_empty(),
        "no measurement, no evidence"
    );
    let mut measurements = Vec::new();
    ledger
        .for_each_measurement(CacheState::Hot, |measured| measurements.push(measured.clone()))
        .expect("read");
    let expected = CollectionSamples {
        case: first.id().clone(),
        collection: 1,
        software: None,
        samples: vec![10, 11],
        device: 3,
        noise: None,
    };
    assert_eq!(measurements, [expected]);
    let cases = ledger.run_cases("r1").expect("read");
    assert_eq!(cases[0].outcome, Some(CaseOutcome::new(Verdict::Ok, "fine")));
    assert_eq!((&cases[1].case, &cases[1].outcome), (second.id(), &None));
    assert_eq!(ledger.measured_cases(CacheState::Hot).expect("read").len(), 1);
}

/// A case of another kernel as which planned calls ran may have been noisy first.
#[test]
fn unplanned_verdicts_are_those_of_the_newest_attempts() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut ledger = Ledger::open(&folder.path().join("ledger.db")).expect("created");
    let (planned, repeated, noisy) = (case(1), case(2), case(3));
    let attempts = [
        ("r1", 1, vec![(&repeated, Verdict::Noisy), (&noisy, Verdict::Ok)]),
        ("r1", 2, vec![(&repeated, Verdict::Ok), (&noisy, Verdict::Noisy)]),
        ("r2", 1, vec![(&repeated, Verdict::Implausible)]),
    ];
    for id in ["r1", "r2"] {
        ledger.begin_run(&run(id), slice::from_ref(&planned)).expect("started");
    }
    for (run, number, unplanned) in attempts {
        let new = NewCollection { run, number, ..collection_on(0) };
        let collection = ledger.begin_collection(&new).expect("started");
        let of_equal_calls = unplanned.into_iter().map(|(case, verdict)| EqualCallAttempt {
            case: case.clone(),
            attempt: attempt(case, verdict, &[9, 10]),
        });
        let of_equal_calls = of_equal_calls.collect();
        let attempt = Attempt { of_equal_calls, ..attempt(&planned, Verdict::Throttled, &[9, 10]) };
        let software = SoftwareFingerprint::default();
        ledger.finish_collection(collection, Nanos(3), "done", &software, &[attempt]).expect("finished");
    }
    let verdicts = |run| ledger.unplanned_verdicts(run).expect("read");
    assert_eq!(verdicts("r1"), BTreeSet::from([Verdict::Ok, Verdict::Noisy]));
    assert_eq!(verdicts("r2"), BTreeSet::from([Verdict::Implausible]));
}

/// Each collection of each case on the page of a number reads them, and a night has thousands of readings.
#[test]
fn readings_of_a_collection_are_found_by_an_index() {
    let folder = tempfile::tempdir().expect("a folder");
    let ledger = Ledger::open(&folder.path().join("ledger.db")).expect("created");
    for (sql, index) in [
        (evidence::READINGS_DURING, "readings_by_device"),
        ("SELECT case_id FROM attempts WHERE is_withdrawn", "withdrawn_attempts"),
    ] {
        let steps: Vec<String> = ledger
            .connection
            .prepare(&format!("EXPLAIN QUERY PLAN {sql}"))
            .and_then(|mut plan| plan.raw_query().mapped(|row| row.get("detail")).collect())
            .expect("a plan");
        let is_used = |step: &String| step.contains(index) || !step.starts_with("SCAN");
        assert!(steps.iter().all(is_used), "{steps:?}");
    }
}

/// Each query reads the attempts of one state of the cache.
#[test]
fn states_of_the_cache_are_apart() {
    let folder = tempfile::tempdir().expect("a folder");
    let measured = case(1);
    let mut ledger = Ledger::open(&folder.path().join("ledger.db")).expect("created");
    ledger.begin_run(&run("r1"), slice::from_ref(&measured)).expect("started");
    let software = SoftwareFingerprint::default();
    let new = NewCollection { number: 7, devices: &[5], ..collection_on(3) };
    let collection = ledger.begin_collection(&new).expect("started");
    let cycle_rate = Some(CycleRate { per_microsecond: 1700.0, error: 0.001 });
    let hot = Attempt { cycle_rate, ..attempt(&measured, Verdict::Ok, &[1, 100]) };
    ledger.finish_collection(collection, Nanos(3), "done", &software, &[hot]).expect("finished");
    let states = |ledger: &Ledger| {
        [CacheState::Hot, CacheState::Cold].map(|cache| {
            let mut samples = Vec::new();
            let read = |one: &CollectionSamples| samples.extend(one.samples.clone());
            ledger.for_each_measurement(cache, read).expect("read");
            let of_case = ledger.attempt_samples(measured.id(), cache).expect("read");
            assert!(of_case.iter().all(|attempt| attempt.cache == cache));
            let mut of_all = Vec::new();
            let read = |one: MeasuredAttempt| {
                of_all.extend((one.measured.case == *measured.id()).then_some(one.samples));
            };
            ledger.for_each_attempt(cache, read).expect("read");
            assert_eq!(of_all, of_case);
            let of_case: Vec<i64> =
                of_case.into_iter().flat_map(|attempt| attempt.samples.to_vec()).collect();
            assert_eq!(of_case, samples);
            let devices = ledger.measuring_devices(cache).expect("read").remove(measured.id());
            let is_measured = [
                ledger.measured_cases(cache).expect("read").contains(measured.id()),
                ledger.cases_with_samples(cache).expect("read").contains(measured.id()),
                ledger.has_measurement(measured.id(), cache).expect("read"),
            ];
            let rates = ledger.cycle_rates(cache).expect("read").len();
            (samples, devices.unwrap_or_default(), is_measured, rates)
        })
    };
    let none = (vec![], vec![], [false; 3], 0);
    let hot = (vec![100], vec![5], [true; 3], 1);
    assert_eq!(states(&ledger), [hot.clone(), none]);
    let new = NewCollection { cache: CacheState::Cold, ..collection_on(3) };
    let collection = ledger.begin_collection(&new).expect("started");
    let cold = attempt(&measured, Verdict::Ok, &[1, 900, 901]);
    ledger.finish_collection(collection, Nanos(3), "done", &software, &[cold]).expect("finished");
    assert_eq!(states(&ledger), [hot, (vec![900, 901], vec![3], [true; 3], 0)]);
    let unknown = "UPDATE collections SET cache = 'warm'";
    ledger.connection.execute_batch(unknown).expect_err("no such state");
}

#[test]
fn ledger_of_another_layout_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    for layout in [1, 99] {
        let path = folder.path().join(layout.to_string());
        let other = format!("PRAGMA user_version = {layout}");
        Ledger::open(&path).expect("created").connection.execute_batch(&other).expect("set");
        let errors = [
            Ledger::open(&path).expect_err("another layout"),
            Ledger::open_to_read(&path).expect_err("another layout"),
            Ledger::find_damage(&path).expect_err("another layout"),
        ];
        for error in errors {
            let text = format!("layout {layout}, this npubench reads layout {LAYOUT}");
            assert!(error.to_string().ends_with(&text), "{error}");
            assert!(error.hint().starts_with("use the npubench that wrote it, or set "), "{}", error.hint());
        }
    }
}

#[test]
fn failed_transaction_stores_no_attempt() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut ledger = Ledger::open(&folder.path().join("ledger.db")).expect("created");
    ledger.begin_run(&run("r1"), &[case(1)]).expect("started");
    let collection = ledger.begin_collection(&collection_on(0)).expect("started");
    let unknown = attempt(&case(7), Verdict::Ok, &[1, 2]);
    let good = attempt(&case(1), Verdict::Ok, &[1, 2]);
    let software = SoftwareFingerprint::default();
    let stored = ledger.finish_collection(collection, Nanos(3), "done", &software, &[good, unknown]);
    stored.expect_err("no such case");
    assert!(ledger.attempt_samples(case(1).id(), CacheState::Hot).expect("read").is_empty());
}

#[test]
fn listed_verdicts_are_those_with_samples() {
    let with_samples = Verdict::VARIANTS.iter().filter(|verdict| verdict.has_samples());
    let names: Vec<String> = with_samples.map(|verdict| format!("'{verdict}'")).collect();
    assert_eq!(names.join(", "), WITH_SAMPLES);
}

/// Stores one collection with an attempt for each list of durations; the first launch of each is a warm-up, and a duration of 1000
/// or more is an outlier.
fn ledger_with_launches(path: &Path, durations: &[Vec<i64>]) -> Vec<Attempt> {
    let cases: Vec<IdentifiedCase> = (1..).map(case).take(durations.len()).collect();
    let attempts: Vec<Attempt> =
        cases.iter().zip(durations).map(|(case, durations)| attempt(case, Verdict::Ok, durations)).collect();
    let mut ledger = Ledger::open(path).expect("created");
    ledger.begin_run(&run("r1"), &cases).expect("started");
    let collection = ledger.begin_collection(&collection_on(0)).expect("started");
    let software = SoftwareFingerprint::default();
    ledger.finish_collection(collection, Nanos(2), "done", &software, &attempts).expect("stored");
    attempts
}

/// Rows of the view of launches.
fn launch_rows(path: &Path) -> Vec<[i64; 6]> {
    let connection = Connection::open(path).expect("a ledger");
    let sql =
        "SELECT attempt, number, is_measured, is_accepted, start_ns, duration_ns FROM launches ORDER BY 1, 2";
    let mut statement = connection.prepare(sql).expect("a query");
    let rows = statement.query_map([], |row| {
        Ok([row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?])
    });
    rows.expect("rows").collect::<rusqlite::Result<Vec<_>>>().expect("numbers")
}

fn expected_rows(attempts: &[Attempt]) -> Vec<[i64; 6]> {
    let of_attempt = |(key, attempt): (i64, &Attempt)| {
        let row = move |launch: &Launch| {
            let Launch { number, is_measured, is_accepted, start, duration } = *launch;
            [key, number.into(), is_measured.into(), is_accepted.into(), start.0, duration.0]
        };
        attempt.launches.iter().map(row).collect::<Vec<_>>()
    };
    (1..).zip(attempts).flat_map(of_attempt).collect()
}

fn stored_launches(path: &Path, attempts: &[Attempt]) -> Vec<Vec<Launch>> {
    let ledger = Ledger::open(path).expect("a ledger");
    let launches = |attempt: &Attempt| {
        let mut found = ledger.case_attempts(&attempt.case).expect("read");
        found.pop().expect("an attempt").launches
    };
    attempts.iter().map(launches).collect()
}

#[test]
fn views_have_a_row_for_each_launch() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("ledger.db");
    let attempts = ledger_with_launches(&path, &[vec![100, 120, 5000, 140], vec![], vec![90]]);
    assert_eq!(launch_rows(&path), expected_rows(&attempts));
    let launches: Vec<Vec<Launch>> = attempts.iter().map(|attempt| attempt.launches.clone()).collect();
    assert_eq!(stored_launches(&path, &attempts), launches);
}

/// A launch list that is no list, or has another length, is damage that names the attempt.
#[test]
fn damaged_launch_lists_are_found() {
    let lists = [
        ("durations_ns = '[1,2'", "attempt 2"),
        ("durations_ns = '[1,2]'", "a list of 2 values for 3 launches"),
        ("offsets_ns = '{}'", "attempt 2"),
        ("states = 'wax'", "unknown state 'x'"),
    ];
    for (change, named) in lists {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ledger.db");
        let attempts = ledger_with_launches(&path, &[vec![100, 120], vec![7, 8, 9], vec![90, 80]]);
        assert_eq!(Ledger::find_damage(&path).expect("read"), None);
        let opened = Connection::open(&path).expect("opened");
        opened
            .execute_batch(&format!("UPDATE launch_lists SET {change} WHERE attempt = 2"))
            .expect("changed");
        drop(opened);
        let problem = Ledger::find_damage(&path).expect("read").expect("damage");
        assert!(problem.contains(named), "{problem}");
        let error =
            Ledger::open(&path).expect("a ledger").case_attempts(&attempts[1].case).expect_err("damage");
        assert!(matches!(error, LedgerError::Damaged { .. }), "{error}");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("ledger.db");
    ledger_with_launches(&path, &[vec![7, 0]]);
    let problem = Ledger::find_damage(&path).expect("read").expect("damage");
    assert!(problem.contains("0e0 us, which is no duration of a kernel"), "{problem}");
}

/// A copy has every row. A ledger with an unreadable page keeps its last copy.
#[test]
fn copy_beside_the_ledger_has_its_rows() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("ledger.db");
    let attempts = ledger_with_launches(&path, &[vec![100, 120], vec![7, 8, 9]]);
    Ledger::open(&path).expect("a ledger").write_copy().expect("copied");
    let copy = copy_path(&path);
    assert_eq!(launch_rows(&copy), expected_rows(&attempts));
    assert_eq!(stored_launches(&copy, &attempts), stored_launches(&path, &attempts));
    let before = fs::read(&copy).expect("a copy");
    let page: u64 = Connection::open(&path)
        .and_then(|opened| {
            let sql = "SELECT rootpage FROM sqlite_schema WHERE name = 'attempts'";
            opened.query_row(sql, [], |row| row.get::<_, i64>(0))
        })
        .expect("a page")
        .cast_unsigned();
    let mut bytes = fs::read(&path).expect("a ledger");
    let start = usize::try_from((page - 1) * 4096).expect("a place");
    bytes[start..start + 4096].fill(0xA5);
    fs::write(&path, bytes).expect("written");
    Ledger::open(&path).expect("a ledger").write_copy().expect_err("damage");
    assert_eq!(fs::read(&copy).expect("a copy"), before);
    assert_eq!(fs::read_dir(folder.path()).expect("listed").count(), 2, "no temporary file is left");
}

/// A ledger that was lost, or that lacks a run of its copy, does not replace the copy.
#[test]
fn copy_shows_what_a_ledger_has_lost() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("ledger.db");
    check_not_lost(&path).expect("no run yet");
    ledger_with_launches(&path, &[vec![100, 120]]);
    Ledger::open(&path).expect("a ledger").write_copy().expect("copied");
    let copied = fs::read(copy_path(&path)).expect("a copy");
    let is_damage = |found: Result<(), LedgerError>| matches!(found, Err(LedgerError::Damaged { .. }));
    fs::write(&path, "").expect("emptied");
    assert!(is_damage(check_not_lost(&path)));
    fs::remove_file(&path).expect("removed");
    assert!(is_damage(check_not_lost(&path)));
    assert!(is_damage(Ledger::open(&path).expect("a new ledger").write_copy()));
    assert_eq!(fs::read(copy_path(&path)).expect("a copy"), copied);
}
