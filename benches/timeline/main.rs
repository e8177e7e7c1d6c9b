//! Computing time and peak memory of the analyses of recorded runs, each in a process of its own.
//!
//! `cargo bench --bench timeline` makes a trace of 309 MB and a database of 47 MB from the run in
//! `tests/it/fixtures/timeline`, as many events for each kernel as in the trace of a training step; 1 MB each with
//! `NPUBENCH_BENCH_SMALL=1`. `cargo bench --bench timeline -- PROFILE...` measures profiles of a user instead, and
//! with `NPUBENCH_MSPROF_ANALYZE=FILE`, the vendor's program, that one beside it in the same run. Computing time is that
//! of the user and the system of all threads.

#![expect(clippy::print_stdout, reason = "a benchmark prints its result")]

mod inputs;
#[path = "../size/mod.rs"]
mod size;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use nix::sys::{
    resource::{UsageWho, getrusage},
    time::TimeValLike as _,
};
use serde::de::IgnoredAny;

/// Word before a command that is measured in this program's stead.
const MEASURE: &str = "--measure-command";
/// Word before a trace whose JSON is parsed in this program's stead.
const PARSE: &str = "--parse-json";
/// Program of the vendor.
const VENDOR: &str = "NPUBENCH_MSPROF_ANALYZE";

/// Limits for the trace.
const TRACE_SECONDS: f64 = 2.0;
const TRACE_MEGABYTES: f64 = 150.0;
/// The vendor's computing time in relation to ours for a database.
const DATABASE_RATIO: f64 = 10.0;

/// Cost of one process.
#[derive(Clone, Copy)]
struct Cost {
    seconds: f64,
    megabytes: f64,
}

fn main() {
    let words: Vec<String> = env::args().skip(1).filter(|word| word != "--bench").collect();
    match words.first().map(String::as_str) {
        Some(MEASURE) => return measure_command(&words[1..]),
        Some(PARSE) => return parse_json(Path::new(&words[1])),
        _ => {}
    }
    let profiles: Vec<PathBuf> =
        words.iter().filter(|word| !word.starts_with('-')).map(PathBuf::from).collect();
    if !profiles.is_empty() {
        profiles.iter().for_each(|profile| measure_profile(profile, true));
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let trace = folder.path().join("trace_ascend_pt");
    inputs::write_trace_profile(&trace, size::full_or_small(309, 1) * 1_000_000);
    measure_profile(&trace, false);
    let database = folder.path().join("database_ascend_pt");
    inputs::write_database_profile(&database, size::full_or_small(47, 1) * 1_000_000);
    measure_profile(&database, false);
}

/// Measures all analyses of a profile. The ratio to the vendor's program is judged for recorded databases only: in a generated
/// one it stops at tables that only the profiler writes.
fn measure_profile(profile: &Path, is_recorded: bool) {
    let output = profile.join("ASCEND_PROFILER_OUTPUT");
    let trace = Some(output.join("trace_view.json")).filter(|trace| trace.is_file());
    let files = fs::read_dir(&output).expect("a profile with ASCEND_PROFILER_OUTPUT").flatten();
    let bytes: u64 = files.map(|file| file.metadata().expect("readable").len()).sum();
    let form = if trace.is_some() { "trace and kernel table" } else { "database" };
    println!("{form}, {} MB", bytes / 1_000_000);
    if let Some(trace) = &trace {
        let own = env::current_exe().expect("this program");
        let floor = cost_of(&[own.as_os_str().into(), PARSE.into(), trace.into()]);
        println!("  all values of the JSON skipped by serde_json: {}", text_of(floor));
    }
    let npubench = PathBuf::from(env!("CARGO_BIN_EXE_npubench"));
    let mut overall = None;
    for command in ["timeline", "modules", "compare"] {
        let mut words = vec![npubench.clone(), command.into(), profile.to_owned()];
        words.extend((command == "compare").then(|| profile.to_owned()));
        let cost = cost_of(&words);
        let judged = match (&trace, command) {
            (Some(_), "timeline" | "modules") => {
                let is_kept = cost.seconds <= TRACE_SECONDS && cost.megabytes <= TRACE_MEGABYTES;
                format!(", limit {TRACE_SECONDS:.1} s and {TRACE_MEGABYTES:.0} MB: {}", size::judged(is_kept))
            }
            _ => String::new(),
        };
        println!("  npubench {command}: {}{judged}", text_of(cost));
        overall = Some(cost);
    }
    let Some(vendor) = env::var_os(VENDOR).filter(|program| !program.is_empty()) else {
        println!("  the vendor's program was not measured: {VENDOR} is not set");
        return;
    };
    let ours = overall.expect("measured").seconds;
    for (figures, options) in
        [("overall figures alone", &["--enable_profiling_compare"][..]), ("all figures", &[])]
    {
        let result = tempfile::tempdir().expect("a temporary folder");
        let mut words: Vec<PathBuf> = vec![PathBuf::from(&vendor), "compare".into(), "--force".into()];
        for (option, value) in [("-d", profile), ("-bp", profile), ("-o", result.path())] {
            words.extend([PathBuf::from(option), value.to_owned()]);
        }
        words.extend(options.iter().map(PathBuf::from));
        let cost = cost_of(&words);
        let ratio = cost.seconds / ours;
        let is_judged = is_recorded && trace.is_none() && options.is_empty();
        let judged = match is_judged {
            true => format!(", limit {DATABASE_RATIO:.0}: {}", size::judged(ratio >= DATABASE_RATIO)),
            false => String::new(),
        };
        println!(
            "  msprof-analyze compare, {figures}: {}, {ratio:.1} times npubench compare{judged}",
            text_of(cost)
        );
    }
}

fn text_of(cost: Cost) -> String {
    format!("{:.2} CPU s, {:.0} MB", cost.seconds, cost.megabytes)
}

/// Runs a command in a process that has no other children, of which the system states time and memory.
fn cost_of(words: &[PathBuf]) -> Cost {
    let own = env::current_exe().expect("this program");
    let output =
        Command::new(own).arg(MEASURE).args(words).stderr(Stdio::inherit()).output().expect("started");
    let text = String::from_utf8_lossy(&output.stdout);
    let mut numbers = text.split_whitespace().filter_map(|number| number.parse().ok());
    match (output.status.success(), numbers.next(), numbers.next()) {
        (true, Some(seconds), Some(megabytes)) => Cost { seconds, megabytes },
        _ => panic!("{words:?} failed: {}", String::from_utf8_lossy(&output.stderr)),
    }
}

/// Prints computing time in seconds and peak memory in megabytes of a command.
fn measure_command(words: &[String]) {
    let status = Command::new(&words[0]).args(&words[1..]).stdout(Stdio::null()).status().expect("started");
    assert!(status.success(), "{words:?}: {status}");
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).expect("known");
    #[expect(clippy::cast_precision_loss, reason = "both have fewer than 53 bits")]
    let (micros, kilobytes) =
        ((usage.user_time() + usage.system_time()).num_microseconds() as f64, usage.max_rss() as f64);
    println!("{} {}", micros / 1e6, kilobytes * 1024.0 / 1e6);
}

/// Skips all values of a trace.
fn parse_json(trace: &Path) {
    let text = fs::read(trace).expect("readable");
    serde_json::from_slice::<IgnoredAny>(&text).expect("JSON");
}
