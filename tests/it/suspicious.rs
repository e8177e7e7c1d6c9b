//! Durations that contradict other known durations of their case.

use std::fs;

use crate::{
    context::{Context, DECODER_KERNELS, profile},
    kill_resume::{ingested, ledger},
};

/// Record of an `Add` of two vectors.
fn add_record(size: &u32) -> String {
    format!("Add,2.060,\"\"\"{size};{size}\"\"\",FLOAT;FLOAT,ND;ND,\"\"\"{size}\"\"\",FLOAT,ND")
}

/// Verdicts and reasons of all rows of the decoder layer.
fn rows(context: &Context) -> Vec<[String; 3]> {
    let rows = DECODER_KERNELS.into_iter().flat_map(|kernel| context.rows("db", kernel));
    let cells = ["MicroBench Verdict", "MicroBench Reason", "MicroBench Collections"];
    rows.map(|row| cells.map(|column| row[column].clone())).collect()
}

/// The example's profile is of the rehearsal host, so that production can be compared. All devices are slow alike, so that
/// neither clocks nor other collections show it.
#[test]
fn durations_far_from_production_are_suspicious_on_all_devices() {
    let context = ingested();
    context.write("faults.yaml", "faults:\n- slow_kernels: {factor: 1.6}\n");
    let arguments = ["run", "--db", "db", "--host", "rehearsal", "--devices", "0-3"];
    let mut command = context.command(&arguments);
    command.args(["--rehearsal-faults", "faults.yaml", "--rehearsal-model", "lifelike"]);
    command.env_remove("NPUBENCH_MAX_COLLECTIONS");
    let ran = context.ran(&command.output().expect("it runs"));
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    let text = "20 suspicious results, `npubench why` explains each; the first is ";
    assert!(ran.stderr.contains(text), "{}", ran.stderr);
    for [verdict, reason, collections] in rows(&context) {
        assert_eq!(verdict, "suspicious", "{reason}");
        assert!(reason.starts_with("the median is 1."), "{reason}");
        assert!(reason.contains(" times that of production, "), "{reason}");
        assert!(collections.parse::<u32>().expect("a number") >= 2, "measured again elsewhere: {reason}");
    }
    assert_eq!(context.run(&["db", "check", "db"]).code, 0);
    let why = context.run(&["why", "SwiGlu.csv:2", "--db", "db"]);
    let rule = why.stdout.lines().find(|line| line.contains("production")).expect("a line");
    assert!(why.stdout.contains("verdict    suspicious: the median is 1."), "{}", why.stdout);
    assert!(rule.contains("production"), "{rule}");
    let broken = why.stdout.lines().find(|line| line.trim_start().starts_with("production          "));
    assert!(broken.is_some_and(|line| line.contains(" broken ")), "{}", why.stdout);
    // Two devices agree: measuring again would change nothing.
    let ran = context.run(&arguments);
    assert!(ran.stderr.contains(": 0 cases on devices 0-3; 20 already measured"), "{}", ran.stderr);
    let verdicts: Vec<String> = rows(&context).into_iter().map(|[verdict, ..]| verdict).collect();
    assert!(verdicts.iter().all(|verdict| verdict == "suspicious"), "{verdicts:?}");
}

#[test]
fn healthy_durations_are_not_suspicious() {
    let context = ingested();
    let mut command = context.command(&["run", "--db", "db", "--host", "rehearsal", "--devices", "0-3"]);
    command.args(["--rehearsal-model", "lifelike"]).env_remove("NPUBENCH_MAX_COLLECTIONS");
    let ran = context.ran(&command.output().expect("it runs"));
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(!ran.stderr.contains("suspicious"), "{}", ran.stderr);
}

/// Profiles of devices say nothing of simulated durations.
#[test]
fn rehearsals_are_not_compared_with_profiles_of_devices() {
    let context = Context::new();
    context.small_database("db");
    let ran = context.run(&["run", "--db", "db", "--host", "rehearsal", "--devices", "0"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let why = context.run(&["why", "SwiGlu.csv:2", "--db", "db"]);
    assert!(why.stdout.contains("no production profile with which it can be compared"), "{}", why.stdout);
}

/// A duration that a new software changes is measured in a second collection; if that agrees, the change is a remark.
#[test]
fn changes_by_software_need_a_second_collection() {
    let context = Context::new();
    context.small_database("db");
    let run = |plan: &str, more: &[&str]| {
        context.write("host.yaml", plan);
        let command = ["run", "--db", "db", "--host", "rehearsal", "--devices", "0,1"];
        context.run(&[&command[..], &["--rehearsal-faults", "host.yaml"], more].concat())
    };
    let swiglu = || context.rows("db", "SwiGlu").remove(0);
    assert_eq!(run("software: {cann: 8.3.RC1}\n", &[]).code, 0);
    let slow = "software: {cann: 8.5.0}\nfaults:\n- slow_kernels: {factor: 1.5}\n";
    let ran = run(slow, &["--update", "all"]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    let row = swiglu();
    assert_eq!(row["MicroBench Verdict"], "suspicious");
    assert!(row["MicroBench Reason"].starts_with("the median is 1."), "{}", row["MicroBench Reason"]);
    assert!(row["MicroBench Reason"].contains(" times that with earlier software, "));
    assert_eq!(context.run(&["db", "check", "db"]).code, 0);
    assert_eq!(run(slow, &[]).code, 0);
    let row = swiglu();
    assert_eq!((row["MicroBench Verdict"].as_str(), row["MicroBench Collections"].as_str()), ("ok", "2"));
    assert!(row["MicroBench Reason"].ends_with(", in 2 collections"), "{}", row["MicroBench Reason"]);
    assert_eq!(context.run(&["db", "check", "db"]).code, 0);
}

/// One of eleven sizes takes four times as long as its neighbours in one collection.
#[test]
fn durations_far_from_cases_of_other_sizes_are_suspicious() {
    let context = Context::new();
    let sizes: Vec<u32> = (12..23).map(|power| 1 << power).collect();
    let records: Vec<String> = sizes.iter().map(add_record).collect();
    context.write("db.csv", &profile(&records.iter().map(String::as_str).collect::<Vec<_>>()));
    assert_eq!(context.run(&["ingest", "db.csv", "--db", "db", "--kind", "rehearsal"]).code, 0);
    let fault =
        "unsteady_kernel: {pattern: step, factor: 4, launch: 1}\n  where: {shapes: \"131072;131072\"}";
    context.write("faults.yaml", &format!("faults:\n- {fault}\n"));
    let arguments = ["run", "--db", "db", "--host", "rehearsal", "--devices", "0,1"];
    let ran = context.run(&[&arguments[..], &["--rehearsal-faults", "faults.yaml"]].concat());
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    let verdicts = || -> Vec<String> {
        context
            .rows("db", "Add")
            .into_iter()
            .map(|mut row| row.remove("MicroBench Verdict").expect("a cell"))
            .collect()
    };
    let expected = |verdict: &str| -> Vec<String> {
        sizes.iter().map(|size| if *size == 131_072 { verdict } else { "ok" }.to_owned()).collect()
    };
    assert_eq!(verdicts(), expected("suspicious"));
    // The next run confirms it, or not.
    let ran = context.run(&arguments);
    assert!(ran.stderr.contains(": 1 case on devices 0-1; 10 already measured"), "{}", ran.stderr);
    assert_eq!(verdicts(), expected("noisy"));
}

/// The verdict of a run is that of its own attempts: a case that fails is not suspicious by the numbers of an earlier run.
#[test]
fn failed_cases_keep_their_verdict() {
    let context = ingested();
    let run = |plan: &str, more: &[&str]| {
        context.write("faults.yaml", plan);
        let command = ["run", "--db", "db", "--host", "rehearsal", "--devices", "0-3"];
        context.run(&[&command[..], &["--rehearsal-faults", "faults.yaml"], more].concat())
    };
    assert_eq!(run("faults:\n- slow_kernels: {factor: 1.6}\n", &[]).code, 1);
    let earlier = context.csv_files();
    let faults = "faults:\n- slow_kernels: {factor: 1.6}\n- out_of_memory:\n  where: {kernel: SwiGlu}\n";
    let ran = run(faults, &["--update", "all"]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert!(ran.stderr.contains("19 suspicious results, "), "{}", ran.stderr);
    let ledger = ledger(&context).expect("a ledger");
    let sql = "SELECT v.verdict FROM verdicts v JOIN cases c USING (case_id)
               WHERE c.kernel = 'SwiGlu' ORDER BY v.at_ns DESC LIMIT 1";
    let verdict: String = ledger.query_row(sql, [], |row| row.get(0)).expect("a verdict");
    assert_eq!(verdict, "oom");
    assert_eq!(context.run(&["db", "check", "db"]).code, 0);
    // Rows of the first run are behind the ledger, not wrong.
    for (path, bytes) in earlier {
        fs::write(context.path(&path.to_string_lossy()), bytes).expect("written");
    }
    let checked = context.run(&["db", "check", "db"]);
    assert_eq!(checked.code, 0, "{}", checked.stdout);
    assert!(checked.stdout.contains("without the newest result of the ledger"), "{}", checked.stdout);
}

/// New sizes of a kernel contradict a row of an earlier run, which is named and measured again by the next run.
#[test]
fn rows_of_earlier_runs_that_become_suspicious_are_counted() {
    let context = Context::new();
    let ingest = |sizes: &[u32]| {
        let records: Vec<String> = sizes.iter().map(add_record).collect();
        context.write("db.csv", &profile(&records.iter().map(String::as_str).collect::<Vec<_>>()));
        assert_eq!(context.run(&["ingest", "db.csv", "--db", "db", "--kind", "rehearsal"]).code, 0);
    };
    let arguments = ["run", "--db", "db", "--host", "rehearsal", "--devices", "0,1"];
    ingest(&[131_072]);
    context.write("faults.yaml", "faults:\n- unsteady_kernel: {pattern: step, factor: 4, launch: 1}\n");
    assert_eq!(context.run(&[&arguments[..], &["--rehearsal-faults", "faults.yaml"]].concat()).code, 0);
    let sizes: Vec<u32> = (12..23).map(|power| 1 << power).filter(|size| *size != 131_072).collect();
    ingest(&sizes);
    let ran = context.run(&arguments);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let text = "1 result of earlier runs became suspicious by new measurements; the next `npubench run` measures it again";
    assert!(ran.stderr.contains(text), "{}", ran.stderr);
    let ran = context.run(&arguments);
    assert!(ran.stderr.contains(": 1 case on devices 0-1; 10 already measured"), "{}", ran.stderr);
}
