//! `npubench timeline`: references of the vendor's tools on real profiles, and a synthetic run in all forms.

use std::{collections::BTreeMap, fs, path::Path};

use serde_json::Value;

use crate::{context::Context, requirements::shared};

/// The synthetic run: trace, kernel table, statements for the database, and the vendor's table of steps.
const TRACE: &str = include_str!("fixtures/timeline/trace_view.json");
const TABLE: &str = include_str!("fixtures/timeline/kernel_details.csv");
const DATABASE: &str = include_str!("fixtures/timeline/run.sql");
const STEPS: &str = include_str!("fixtures/timeline/step_trace_time.csv");
/// Error of a sum of rounded durations in a kernel table, in nanoseconds.
const ROUNDING: i64 = 30;

/// Writes the synthetic run as trace and table of a rank.
pub(crate) fn write_text_profile(context: &Context, folder: &str, rank: u32) {
    let output = format!("{folder}/ASCEND_PROFILER_OUTPUT");
    for (name, content) in
        [("trace_view.json", TRACE), ("kernel_details.csv", TABLE), ("step_trace_time.csv", STEPS)]
    {
        context.write(&format!("{output}/{name}"), content);
    }
    context.write(&format!("{folder}/profiler_info_{rank}.json"), "{}");
}

/// Writes the synthetic run as a database, after some statements.
pub(crate) fn write_database(path: &Path, statements: &str) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("created");
    let connection = rusqlite::Connection::open(path).expect("created");
    let sql = format!("PRAGMA synchronous = OFF; BEGIN; {DATABASE} {statements}; COMMIT;");
    connection.execute_batch(&sql).expect("valid");
    connection.close().expect("closed");
}

/// Returns the objects of JSON lines.
pub(crate) fn objects(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn items<'a>(objects: &'a [Value], item: &str) -> Vec<&'a Value> {
    objects.iter().filter(|object| object["item"] == item).collect()
}

fn timeline(context: &Context, profile: &Path) -> Vec<Value> {
    let ran = context.run(&["timeline", &profile.to_string_lossy(), "--format", "json"]);
    assert_eq!((ran.code, &*ran.stderr), (0, ""), "{}", profile.display());
    objects(&ran.stdout)
}

#[test]
fn real_steps_equal_the_independent_computation() {
    let Some(reference) = shared("real/model_analysis/timeline.json") else { return };
    let reference: BTreeMap<String, Value> =
        serde_json::from_str(&fs::read_to_string(reference).expect("read")).expect("JSON");
    let context = Context::new();
    let mut compared = 0;
    for (name, expected) in &reference {
        let Some(profile) = shared(&format!("real/{name}")) else { return };
        let output = timeline(&context, &profile);
        let [step] = *items(&output, "step") else { panic!("{name}: one step") };
        // From a database all values are exact.
        let (expected, tolerance) = match expected.get("from_db") {
            Some(expected) => (expected, 0),
            None => (&expected["from_kernel_details"], ROUNDING),
        };
        for (ours, theirs) in [
            ("computing_ns", "computing_ns"),
            ("communication_ns", "communication_ns"),
            ("not_overlapped_ns", "communication_not_overlapped_ns"),
            ("overlapped_ns", "overlapped_ns"),
            ("free_ns", "free_ns"),
            ("stage_ns", "stage_ns"),
            ("bubble_ns", "bubble_ns"),
            ("start_ns", "first_task_ns"),
            ("kernels", "compute_tasks"),
            ("collectives", "comm_ops"),
            ("gaps", "free_gaps"),
        ] {
            let number = |value: &Value| value.as_i64().expect("a whole number");
            let (own, wanted) = (number(&step[ours]), number(&expected[theirs]));
            assert!((own - wanted).abs() <= tolerance, "{name}: {ours} {own}, {theirs} {wanted}");
            compared += 1;
        }
        // The vendor's table beside the profile has the same times, too.
        assert!(items(&output, "vendor_difference").is_empty(), "{name}");
    }
    assert_eq!(compared, 44);
}

#[test]
fn longest_gaps_are_those_of_the_vendors_analysis() {
    let Some(table) = shared("real/model_analysis/free_analysis_cnn_db.csv") else { return };
    let Some(profile) = shared("real/cnn_db_level1_rank0") else { return };
    let output = timeline(&Context::new(), &profile);
    let gaps = output[0]["longest_gaps"].as_array().expect("gaps");
    let mut csv = csv::Reader::from_path(table).expect("opened");
    let rows: Vec<BTreeMap<String, String>> = csv.deserialize().map(|row| row.expect("a row")).collect();
    assert_eq!((rows.len(), gaps.len()), (10, 10));
    for (row, gap) in rows.iter().zip(gaps) {
        let nanos = |column: &str| row[column].parse::<npubench::domain::Nanos>().expect("a time").0;
        assert_eq!(gap["gap_ns"], nanos("Duration(us)"));
        assert_eq!(gap["start_ns"], nanos("Start Time(us)"));
        match &*row["Reason"] {
            reason if reason.starts_with("Idle Pytorch layer") => assert_eq!(gap["cause"], "framework"),
            reason if reason.starts_with("Abnormal CANN layer") => assert_eq!(gap["cause"], "launch"),
            // A copy of 2.6 of 892.7 us is shown, and is not the cause.
            reason => {
                assert!(reason.starts_with("Device task running: 1 MEMCPY_ASYNC"), "{reason}");
                assert_eq!(gap["inside_ns"], 2_560);
                assert_eq!(gap["cause"], "framework");
            }
        }
    }
}

#[test]
fn times_of_all_real_profiles_add_up() {
    let Some(real) = shared("real") else { return };
    let context = Context::new();
    for name in [
        "cnn_db_level1_rank0",
        "cnn_level0_rank0",
        "cnn_level1_rank0",
        "cnn_level1_rank0/ASCEND_PROFILER_OUTPUT/trace_view.json",
        "cnn_level1_rank0/ASCEND_PROFILER_OUTPUT/kernel_details.csv",
        "llm_step_rank0",
        "excerpts/kernel_details_910b_fractal_nz.csv",
    ] {
        let path = real.join(name);
        let mut device_times = 0;
        for step in items(&timeline(&context, &path), "step") {
            let time = |key: &str| step[key].as_i64().expect("a whole number");
            assert_eq!(
                time("computing_ns") + time("not_overlapped_ns") + time("free_ns"),
                time("span_ns"),
                "{name}"
            );
            assert_eq!(time("overlapped_ns") + time("not_overlapped_ns"), time("communication_ns"), "{name}");
            let causes = step["free_by_cause_ns"].as_object().expect("causes").values();
            assert_eq!(
                causes.map(|time| time.as_i64().expect("a time")).sum::<i64>(),
                time("free_ns"),
                "{name}"
            );
            device_times += time("kernels") + time("collectives");
        }
        assert!(device_times > 0, "{name}");
        let ran = context.run(&["modules", &path.to_string_lossy(), "--format", "json"]);
        assert_eq!(ran.code, 0, "{name}: {}", ran.stderr);
        let rows = objects(&ran.stdout);
        let sum: i64 =
            items(&rows, "operator").iter().map(|row| row["total_ns"].as_i64().expect("a time")).sum();
        let [rank] = *items(&rows, "rank") else { panic!("{name}: one rank") };
        let time = |key: &str| rank[key].as_i64().expect("a time");
        assert_eq!(
            (sum, time("modules_ns") + time("outside_ns")),
            (time("device_ns"), time("device_ns")),
            "{name}"
        );
    }
}

#[test]
fn both_forms_of_a_run_are_printed_alike() {
    let context = Context::new();
    write_text_profile(&context, "text_ascend_pt", 0);
    write_database(&context.path("db_ascend_pt/ASCEND_PROFILER_OUTPUT/ascend_pytorch_profiler_0.db"), "");
    context.write("db_ascend_pt/ASCEND_PROFILER_OUTPUT/step_trace_time.csv", &STEPS.replace("62.0", "62.5"));
    let text = context.run(&["timeline", "text_ascend_pt"]);
    let note = "`text_ascend_pt/ASCEND_PROFILER_OUTPUT/trace_view.json`: 1 record of a collective repeats another on \
                another stream and does not count\n";
    assert_eq!((text.code, &*text.stderr), (0, note));
    insta::assert_snapshot!(text.stdout);
    let database = context.run(&["timeline", "db_ascend_pt"]);
    let body = |stdout: &str| stdout.split("\n`").next().expect("text").to_owned();
    assert_eq!(body(&database.stdout), body(&text.stdout));
    assert!(
        database.stdout.contains("step_trace_time.csv` differs in 1 time of 2 steps"),
        "{}",
        database.stdout
    );
    // One step only, from the folder of the output itself.
    let mut command =
        context.command(&["timeline", ".", "--step", "8", "--format", "json", "--gaps", "99999999999"]);
    let ran = context.ran(
        &command.current_dir(context.path("text_ascend_pt/ASCEND_PROFILER_OUTPUT")).output().expect("runs"),
    );
    let output = objects(&ran.stdout);
    let [step] = *items(&output, "step") else { panic!("one step: {}", ran.stderr) };
    assert_eq!((&step["rank"], &step["step"], &step["span_ns"]), (&0.into(), &8.into(), &20_000.into()));
}

#[test]
fn ranks_are_compared_and_lanes_are_written() {
    let context = Context::new();
    write_database(&context.path("all/ascend_pytorch_profiler_0.db"), "");
    let late = "UPDATE COMMUNICATION_OP SET startNs = startNs + 6000 WHERE opId = 1";
    write_database(&context.path("all/ascend_pytorch_profiler_1.db"), late);
    let ran = context.run(&["timeline", "all", "--trace", "lanes.json", "--step", "7"]);
    assert_eq!((ran.code, &*ran.stderr), (0, "wrote `lanes.json`: open it in https://ui.perfetto.dev\n"));
    insta::assert_snapshot!(ran.stdout);
    let lanes: Value =
        serde_json::from_str(&fs::read_to_string(context.path("lanes.json")).expect("read")).expect("JSON");
    let events = lanes["traceEvents"].as_array().expect("events");
    let time_of = |lane: i64, process: i64| -> f64 {
        let own = events
            .iter()
            .filter(|event| event["ph"] == "X" && event["tid"] == lane && event["pid"] == process);
        own.map(|event| event["dur"].as_f64().expect("a duration")).sum()
    };
    assert_eq!([0, 1, 2, 3, 4].map(|lane| time_of(lane, 0)), [120.0, 24.5, 35.0, 33.5, 62.0]);
    // Rank 1 communicates 6 us less: 1.5 of them overlapped, and the gap before grows by the rest.
    assert_eq!([0, 1, 2, 3, 4].map(|lane| time_of(lane, 1)), [120.0, 24.5, 29.0, 29.0, 66.5]);
    // A folder and a profile in it are read once.
    let once = context.run(&["timeline", "all/../all/ascend_pytorch_profiler_0.db", "all", "--step", "7"]);
    assert_eq!((once.code, &*once.stderr, once.stdout), (0, "", ran.stdout));
    // Two profiles of one rank keep their own names and times.
    let again = "UPDATE STRING_IDS SET value = 'Other' || value WHERE value IN ('Mul', 'Add')";
    write_database(&context.path("again/ascend_pytorch_profiler_0.db"), again);
    let ran = context.run(&["timeline", "all/ascend_pytorch_profiler_0.db", "again", "--format", "json"]);
    assert!(ran.stderr.starts_with("rank 0 has several profiles"), "{}", ran.stderr);
    let output = objects(&ran.stdout);
    assert_eq!(output.len(), 4, "{}", ran.stdout);
    assert_eq!(output[0]["longest_gaps"][0]["after"], "Add");
    assert_eq!(output[2]["longest_gaps"][0]["after"], "OtherAdd");
}

#[test]
fn wrong_input_is_refused_with_a_hint() {
    let context = Context::new();
    write_text_profile(&context, "p_ascend_pt", 0);
    let output = "p_ascend_pt/ASCEND_PROFILER_OUTPUT";
    context.write("empty/readme.txt", "nothing");
    context.write("zero/ascend_pytorch_profiler_0.db", "");
    context.write("notes.md", "text");
    context.write("negative/kernel_details.csv", &TABLE.replace(",10.000,", ",-10.000,"));
    context.write("cut/trace_view.json", &TRACE[..1000]);
    context.write("list.json", "[]");
    context.write("other.json", "{}");
    write_database(&context.path("wal/ascend_pytorch_profiler_0.db"), "");
    context.write("wal/ascend_pytorch_profiler_0.db-wal", "7\u{7f}");
    let trace = format!("{output}/trace_view.json");
    let mut report = String::new();
    for arguments in [
        &["timeline"][..],
        &["timeline", "nowhere"],
        &["timeline", "empty"],
        &["timeline", "zero"],
        &["timeline", "notes.md"],
        &["timeline", "negative"],
        &["timeline", "cut"],
        &["timeline", "list.json"],
        &["timeline", "wal"],
        &["timeline", "other.json"],
        &["timeline", "p_ascend_pt", "--step", "7,9"],
        &["timeline", "p_ascend_pt", "--trace", &trace],
        &["timeline", "p_ascend_pt", "--trace", "lanes.txt"],
        &["timeline", "p_ascend_pt", "--step", "-1"],
        &["timeline", "p_ascend_pt", "--gaps", "-1"],
    ] {
        let ran = context.run(arguments);
        assert!(matches!(ran.code, 2 | 3) && ran.stdout.is_empty(), "{arguments:?}: {ran:?}");
        let first = ran.stderr.lines().filter(|line| line.starts_with("error") || line.starts_with("hint"));
        let lines: Vec<&str> = first.collect();
        report.push_str(&format!("{}\n  {}\n", arguments.join(" "), lines.join("\n  ")));
    }
    insta::assert_snapshot!(report);
    assert_eq!(fs::read_to_string(context.path(&trace)).expect("there"), TRACE);
    // A damaged table of the vendor's costs the comparison only.
    context.write(&format!("{output}/analysis.db"), "no database");
    let ran = context.run(&["timeline", "p_ascend_pt"]);
    assert!(ran.code == 0 && ran.stderr.contains("the vendor's table of steps is not compared: "), "{ran:?}");
}

#[test]
fn keys_of_json_are_documented() {
    let context = Context::new();
    write_text_profile(&context, "p_ascend_pt", 0);
    let late = "UPDATE COMMUNICATION_OP SET startNs = startNs + 6000 WHERE opId = 1";
    write_database(&context.path("late/ascend_pytorch_profiler_1.db"), late);
    context.write("late/step_trace_time.csv", STEPS);
    let document = include_str!("../../docs/timeline.md");
    let mut items = std::collections::BTreeSet::new();
    for command in ["timeline", "modules"] {
        let ran = context.run(&[command, "p_ascend_pt", "late", "--format", "json"]);
        for object in objects(&ran.stdout) {
            items.insert(object["item"].as_str().expect("a text").to_owned());
            for key in object.as_object().expect("an object").keys() {
                assert!(document.contains(&format!("`{key}`")), "`{key}` is not in docs/timeline.md");
            }
        }
    }
    assert_eq!(
        items.into_iter().collect::<Vec<_>>(),
        ["collective", "operator", "rank", "step", "vendor_difference"]
    );
}
