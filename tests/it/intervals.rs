//! Published intervals of rows with several collections, compared with the samples in the ledger.

use std::{collections::BTreeMap, fs, process::Stdio};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::prelude::*;

/// Durations of the accepted samples of each collection of each case, in nanoseconds.
fn samples(context: &Context) -> BTreeMap<String, Vec<Vec<i64>>> {
    let ledger = ledger(context).expect("a ledger");
    let sql = "SELECT a.case_id, a.attempt, s.duration_ns FROM attempts a JOIN samples s USING (attempt)
               WHERE a.verdict IN ('ok', 'noisy') AND s.is_accepted ORDER BY a.attempt, s.number";
    let mut statement = ledger.prepare(sql).expect("a query");
    let rows = statement
        .query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?)));
    let mut by_case: BTreeMap<String, BTreeMap<i64, Vec<i64>>> = BTreeMap::new();
    for row in rows.expect("rows") {
        let (case, attempt, duration) = row.expect("a sample");
        by_case.entry(case).or_default().entry(attempt).or_default().push(duration);
    }
    by_case.into_iter().map(|(case, attempts)| (case, attempts.into_values().collect())).collect()
}

fn median(samples: &[i64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    let middle = sorted.len() / 2;
    match sorted.len() % 2 {
        0 => (sorted[middle - 1] + sorted[middle]) as f64 / 2.0,
        _ => sorted[middle] as f64,
    }
}

fn measured_rows(context: &Context) -> Vec<BTreeMap<String, String>> {
    let tables = context.snapshot("db").into_keys();
    let kernels = tables.filter_map(|path| {
        let name = path.file_name()?.to_str()?.strip_suffix(".csv")?.to_owned();
        path.parent()
            .is_some_and(|folder| folder.ends_with("db") || folder.as_os_str().is_empty())
            .then_some(name)
    });
    let rows = kernels.flat_map(|kernel| context.rows("db", &kernel));
    rows.filter(|row| !row["MicroBench Case"].is_empty()).collect()
}

fn number(row: &BTreeMap<String, String>, column: &str) -> f64 {
    row[column].parse().unwrap_or_else(|_| panic!("{column}: `{}`", row[column]))
}

/// Lower end, centre and upper end of a row's interval.
fn interval_cells(row: &BTreeMap<String, String>) -> [f64; 3] {
    ["MicroBench CI95 Low(us)", "MicroBench Estimate(us)", "MicroBench CI95 High(us)"]
        .map(|column| number(row, column))
}

/// Runs the cases of a decoder layer, which are 20, once more each time.
#[test]
fn repeated_cases_have_the_interval_of_the_joint_fit() {
    let context = Context::of_layer();
    context.done(&LIFELIKE_RUN);
    let first = samples(&context);
    for row in measured_rows(&context) {
        assert_eq!(row["MicroBench CI95 Method"], "launches");
        assert_eq!(
            (row["MicroBench Estimate(us)"].as_str(), row["MicroBench Correction(%)"].as_str()),
            (row["MicroBench Median Duration(us)"].as_str(), "")
        );
    }
    context.done(&(LIFELIKE_RUN, "--update all"));
    let all = samples(&context);
    let rows = measured_rows(&context);
    assert_eq!(rows.len(), 20);
    for row in &rows {
        let collections = &all[&row["MicroBench Case"]];
        assert_eq!(collections.len(), 2);
        assert_eq!(collections[0], first[&row["MicroBench Case"]][0]);
        assert_ne!(collections[0], collections[1], "the repeated run has samples of its own");
        assert_eq!(row["MicroBench CI95 Method"], "joint fit");
        let [low, estimate, high] = interval_cells(row);
        // Half a step of the timer on each side, at least.
        assert!(low <= estimate - 0.0099 && estimate + 0.0099 <= high, "{row:?}");
        let logarithms: Vec<f64> = collections.iter().map(|samples| (median(samples) / 1e3).ln()).collect();
        let mean = (logarithms.iter().sum::<f64>() / 2.0).exp();
        let uncorrected = estimate * (1.0 + number(row, "MicroBench Correction(%)") / 100.0);
        assert!((uncorrected / mean - 1.0).abs() < 1e-6, "{uncorrected} {mean}");
    }
    // The draws depend on the order in which devices become free, and the cases of a collection miss the truth together: a
    // test of the share of intervals with the truth would fail now and then. Three times the half width is never exceeded.
    let truth = context.true_medians_by_case();
    for row in &rows {
        let [low, estimate, high] = interval_cells(row);
        let distance = (truth[&row["MicroBench Case"]] - estimate).abs();
        assert!(distance <= 1.5 * (high - low), "{row:?}");
    }
    // A run that measures nothing changes no byte.
    let before = tables(&context);
    context.done(&LIFELIKE_RUN);
    assert_eq!(tables(&context), before);
}

/// Devices of the measurements of each case.
fn devices(context: &Context) -> BTreeMap<String, Vec<i64>> {
    let ledger = ledger(context).expect("a ledger");
    let sql = "SELECT a.case_id, c.device FROM attempts a JOIN collections c USING (collection)
               WHERE a.verdict IN ('ok', 'noisy') ORDER BY a.attempt";
    let mut statement = ledger.prepare(sql).expect("a query");
    let rows = statement.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?)));
    let mut by_case: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for row in rows.expect("rows") {
        let (case, device) = row.expect("a device");
        by_case.entry(case).or_default().push(device);
    }
    by_case
}

/// Each case is measured on two devices at least, and a run with the same precision has nothing left to measure. Killed or
/// stopped in a later round, the run is completed by the same command and by `resume`.
#[test]
fn demanded_precision_repeats_cases_on_other_devices_also_after_an_interruption() {
    for (signal, command) in [(Signal::SIGKILL, "run"), (Signal::SIGINT, "resume")] {
        // On a busy host, the run may have measured everything before the signal arrives.
        let is_interrupted = (0..INTERRUPTIONS).any(|_| completes_interrupted_rounds(signal, command));
        assert!(is_interrupted, "{signal} {command}: no signal was in time");
    }
}

/// Tries to interrupt a run before its last collection.
const INTERRUPTIONS: usize = 10;

/// Interrupts a run in its second round and completes it; false if nothing was left to measure.
fn completes_interrupted_rounds(signal: Signal, completion: &str) -> bool {
    let precise = (LIFELIKE_RUN, "--precision 1.5");
    let context = Context::of_layer();
    let mut method = "joint fit";
    // Cases of a small plan need three collections, so that a run stopped in the second round is never complete.
    if signal == Signal::SIGINT {
        fs::remove_file(context.path("db/SwiGlu.csv")).expect("removed");
        method = "collections";
    }
    let rows = if method == "collections" { 19 } else { 20 };
    // Up to eight collections by default.
    let mut command = context.command(&precise);
    command.env_remove("NPUBENCH_MAX_COLLECTIONS");
    let mut child = command.stderr(Stdio::null()).stdout(Stdio::null()).spawn().expect("it runs");
    let has_repeated = || {
        ledger(&context).is_some_and(|ledger| {
            let sql = "SELECT count(*) - count(DISTINCT case_id) FROM attempts";
            ledger.query_row(sql, [], |row| row.get::<_, i64>(0)).is_ok_and(|repeated| repeated > 0)
        })
    };
    while !has_repeated() && child.try_wait().expect("a status").is_none() {
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    kill(Pid::from_raw(child.id().cast_signed()), signal).expect("a signal");
    let status = child.wait().expect("reaped");
    if status.code() == Some(0) {
        return false;
    }
    if signal == Signal::SIGINT {
        assert_eq!(status.code(), Some(5), "further rounds are needed");
    }
    let completed = match completion {
        "run" => context.run_all_rounds(&precise),
        _ => context.run_all_rounds("resume --db db"),
    };
    assert_eq!(completed.code, 0, "{signal} {completion}: {}", completed.stderr);
    let Some(summary) = completed.stderr.lines().find(|line| line.contains("within 1.5 %")) else {
        completed.err_has(": 0 cases on devices");
        return false;
    };
    assert!(summary.starts_with(char::is_numeric), "{}", completed.stderr);
    let devices = devices(&context);
    assert_eq!(devices.len(), rows);
    for (case, devices) in &devices {
        assert!(devices.len() > 1 && devices[0] != devices[1], "{signal} {completion}: {case}: {devices:?}");
    }
    assert!(measured_rows(&context).iter().all(|row| row["MicroBench CI95 Method"] == method));
    let again = context.run_all_rounds(&precise);
    let nothing = format!(": 0 cases on devices 0-1; {rows} already measured");
    again.err_has(&nothing);
    context.done("db check db");
    true
}

#[test]
fn invalid_precision_is_refused() {
    let context = Context::of_layer();
    for (wrong, problem) in [
        ("0", "`0` is not between 0.1 and 50 percent"),
        ("1e9", "`1e9` is not between 0.1 and 50 percent"),
        ("nan", "`nan` is not between 0.1 and 50 percent"),
        ("fine", "`fine` is no number"),
    ] {
        let ran = context.exits(2, &(LIFELIKE_RUN, &["--precision", wrong]));
        ran.err_has(problem);
    }
    let none = context.exits(2, &(LIFELIKE_RUN, "--max-collections 0"));
    none.err_has("0 is not in 1..=100");
}
