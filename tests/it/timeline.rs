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

/// Parses microseconds with three decimals into nanoseconds, digit by digit.
fn nanoseconds(text: &str) -> i64 {
    let (whole, part) = text.trim().split_once('.').unwrap_or((text.trim(), "0"));
    let part = format!("{part:0<3}");
    whole.parse::<i64>().expect("a number") * 1000 + part[..3].parse::<i64>().expect("decimals")
}

/// Row of a kernel table.
type RawRow = BTreeMap<String, String>;

fn raw_rows(table: &Path) -> Vec<RawRow> {
    let mut csv = csv::Reader::from_path(table).expect("opened");
    csv.deserialize().map(|row| row.expect("a row")).collect()
}

/// Returns the times of rows.
fn raw_spans<'a>(rows: impl Iterator<Item = &'a RawRow>) -> Vec<(i64, i64)> {
    rows.map(|row| {
        let start = nanoseconds(&row["Start Time(us)"]);
        (start, start + nanoseconds(&row["Duration(us)"]))
    })
    .collect()
}

/// Returns the time in at least one of some spans, by a sweep over their ends.
fn covered(spans: &[(i64, i64)]) -> i64 {
    let mut ends: Vec<(i64, i64)> = spans.iter().flat_map(|(start, end)| [(*start, 1), (*end, -1)]).collect();
    ends.sort_unstable_by_key(|(time, step)| (*time, -step));
    let (mut open, mut since, mut sum) = (0, 0, 0);
    for (time, step) in ends {
        if open == 0 {
            since = time;
        }
        open += step;
        if open == 0 {
            sum += time - since;
        }
    }
    sum
}

/// The only step of a profile.
fn only_step(output: &[Value]) -> &Value {
    let [step] = *items(output, "step") else { panic!("one step") };
    step
}

fn whole_number(value: &Value) -> i64 {
    value.as_i64().unwrap_or_else(|| panic!("a whole number: {value}"))
}

/// The vendor's `Bubble` is 0 in this pipeline, although three quarters of its communication are transfers between two
/// ranks.
#[test]
fn transfers_of_a_pipeline_are_shown_although_the_vendors_bubble_is_zero() {
    let Some(profile) = shared("real/llm_step_rank0") else { return };
    let rows = raw_rows(&profile.join("ASCEND_PROFILER_OUTPUT/kernel_details.csv"));
    let is_pair = |row: &&RawRow| row["Name"].starts_with("hcom_batchSendRecv");
    let collectives = || rows.iter().filter(|row| row["Name"].starts_with("hcom_"));
    let pairs = covered(&raw_spans(collectives().filter(is_pair)));
    let others = covered(&raw_spans(collectives().filter(|row| !is_pair(row))));
    let all = covered(&raw_spans(collectives()));
    assert_eq!((pairs, all), (313_877_800, 420_174_260));
    let output = timeline(&Context::new(), &profile);
    let step = only_step(&output);
    assert_eq!(whole_number(&step["point_to_point_ns"]), pairs);
    assert_eq!(whole_number(&step["communication_ns"]), all);
    assert_eq!(whole_number(&step["collective_ns"]), others);
    let vendor = raw_rows(&profile.join("ASCEND_PROFILER_OUTPUT/step_trace_time.csv"));
    assert_eq!((&*vendor[0]["Bubble"], whole_number(&step["bubble_ns"])), ("0", 0));
}

/// The vendor's CSV computes differences of times since the epoch in floating point, in steps of 0.25 us; the trace has
/// three decimals.
#[test]
fn stage_and_preparing_are_exact_where_the_vendors_table_is_rounded() {
    let context = Context::new();
    for name in ["cnn_level0_rank0", "cnn_level1_rank0"] {
        let Some(profile) = shared(&format!("real/{name}")) else { return };
        let folder = profile.join("ASCEND_PROFILER_OUTPUT");
        let trace: Value =
            serde_json::from_str(&fs::read_to_string(folder.join("trace_view.json")).expect("read"))
                .expect("JSON");
        let mut events = trace.as_array().expect("a list").iter();
        let begin = events.find(|event| event["name"] == "ProfilerStep#50").expect("a step");
        let begin = nanoseconds(begin["ts"].as_str().expect("a text"));
        let spans = raw_spans(raw_rows(&folder.join("kernel_details.csv")).iter());
        let first = spans.iter().map(|span| span.0).min().expect("kernels");
        let last = spans.iter().map(|span| span.1).max().expect("kernels");
        let output = timeline(&context, &profile);
        let step = only_step(&output);
        assert_eq!(whole_number(&step["preparing_ns"]), first - begin, "{name}");
        assert_eq!(whole_number(&step["stage_ns"]), last - first, "{name}");
        let vendor = &raw_rows(&folder.join("step_trace_time.csv"))[0];
        for (column, own) in [("Preparing", first - begin), ("Stage", last - first)] {
            let theirs = nanoseconds(&vendor[column]);
            assert!(theirs % 250 == 0 && theirs != own && (theirs - own).abs() <= 500, "{name}: {column}");
        }
    }
}

/// Waits for events fill most of a stream, and neither compute nor hide free time.
#[test]
fn waits_for_events_are_shown_apart_and_are_no_work() {
    let context = Context::new();
    let waits_of = |output: &[Value]| {
        let streams = only_step(output)["streams"].as_array().expect("streams").clone();
        let compute = streams.iter().find(|stream| stream["stream"] == 2).expect("the stream of kernels");
        (whole_number(&compute["waiting_ns"]), whole_number(&compute["computing_ns"]))
    };
    if let Some(profile) = shared("real/cnn_level1_rank0") {
        let trace = fs::read_to_string(profile.join("ASCEND_PROFILER_OUTPUT/trace_view.json")).expect("read");
        let trace: Value = serde_json::from_str(&trace).expect("JSON");
        let events = trace.as_array().expect("a list").iter().filter(|event| {
            event["args"]["Task Type"] == "EVENT_WAIT_SQE" && event["args"]["Physic Stream Id"] == 2
        });
        let spans: Vec<(i64, i64)> = events
            .map(|event| {
                let start = nanoseconds(event["ts"].as_str().expect("a text"));
                let micros = event["dur"].as_f64().expect("a number");
                #[expect(clippy::cast_possible_truncation, reason = "durations of a step")]
                let length = (micros * 1000.0).round() as i64;
                (start, start + length)
            })
            .collect();
        let (waiting, computing) = waits_of(&timeline(&context, &profile));
        assert_eq!((waiting, covered(&spans)), (91_684_352, 91_684_352));
        assert!(computing < 8_900_000, "{computing}");
    }
    if let Some(profile) = shared("real/cnn_db_level1_rank0") {
        let database = raw_database(&profile);
        let sum = |what: &str| -> i64 {
            let query = format!("SELECT sum(endNs - startNs) FROM TASK {what} AND streamId = 2");
            database.query_row(&query, [], |row| row.get(0)).expect("a sum")
        };
        let waiting = sum("JOIN STRING_IDS ON id = taskType WHERE value = 'EVENT_WAIT'");
        let computing = sum("WHERE globalTaskId IN (SELECT globalTaskId FROM COMPUTE_TASK_INFO)");
        assert_eq!(waits_of(&timeline(&context, &profile)), (waiting, computing));
    }
}

/// Opens the database of a profile, and creates no file beside it.
pub(crate) fn raw_database(profile: &Path) -> rusqlite::Connection {
    let file =
        profile.join("ASCEND_PROFILER_OUTPUT/ascend_pytorch_profiler_0.db").canonicalize().expect("there");
    let uri = format!("file://{}?immutable=1", file.display());
    rusqlite::Connection::open_with_flags(
        uri,
        rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY | rusqlite::OpenFlags::SQLITE_OPEN_URI,
    )
    .expect("opened")
}

fn raw_database_spans(database: &rusqlite::Connection, query: &str) -> Vec<(i64, i64)> {
    let mut statement = database.prepare(query).expect("valid");
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).expect("rows");
    rows.map(|row| row.expect("a row")).collect()
}

/// The vendor's summary of a cluster subtracts copies from the free time of the span, also those before the span.
#[test]
fn free_time_is_that_of_the_span_with_its_copies() {
    let Some(profile) = shared("real/cnn_db_level1_rank0") else { return };
    let Some(summary) = shared("real/model_analysis/cluster_time_summary_cnn_db.csv") else { return };
    let summary = &raw_rows(&summary)[0];
    let theirs = |column: &str| nanoseconds(&summary[column]);
    let database = raw_database(&profile);
    let kernels = "SELECT startNs, endNs FROM TASK NATURAL JOIN (SELECT globalTaskId FROM COMPUTE_TASK_INFO)";
    let mut work = raw_database_spans(&database, kernels);
    let computing = covered(&work);
    let collectives = raw_database_spans(&database, "SELECT startNs, endNs FROM COMMUNICATION_OP");
    let communication = covered(&collectives);
    work.extend(collectives);
    let (first, last) = (
        work.iter().map(|span| span.0).min().expect("work"),
        work.iter().map(|span| span.1).max().expect("work"),
    );
    let copies = raw_database_spans(
        &database,
        "SELECT startNs, endNs FROM TASK JOIN STRING_IDS ON id = taskType WHERE value = 'MEMCPY_ASYNC'",
    );
    let outside_of_work = |copies: &[(i64, i64)]| covered(&[&work, copies].concat()) - covered(&work);
    let in_span: Vec<(i64, i64)> =
        copies.iter().copied().filter(|(start, end)| first <= *start && *end <= last).collect();
    let free = last - first - covered(&work);
    // Their free time lacks the copies of the inputs, which precede the first kernel.
    assert_eq!(theirs("Memory(us)"), covered(&copies));
    assert_eq!(theirs("Memory Not Overlap Computation Communication(us)"), outside_of_work(&copies));
    assert_eq!(theirs("Free(us)"), free - outside_of_work(&copies));
    assert_eq!((outside_of_work(&copies), outside_of_work(&in_span)), (841_618, 11_001));
    let before: Vec<(i64, i64)> = copies.iter().copied().filter(|copy| copy.0 < first).collect();
    let behind: Vec<(i64, i64)> = copies.iter().copied().filter(|copy| copy.0 > last).collect();
    let context = Context::new();
    let output = timeline(&context, &profile);
    let step = only_step(&output);
    for (key, own, column) in [
        ("computing_ns", computing, "Computation(us)"),
        ("communication_ns", communication, "Communication(us)"),
        ("not_overlapped_ns", covered(&work) - computing, "Communication Not Overlap Computation(us)"),
    ] {
        assert_eq!((whole_number(&step[key]), theirs(column)), (own, own), "{key}");
    }
    assert_eq!((whole_number(&step["free_ns"]), free), (25_258_144, 25_258_144));
    // No copy is left out silently.
    assert_eq!(whole_number(&step["other_tasks_before_ns"]), covered(&before));
    assert_eq!(whole_number(&step["other_tasks_behind_ns"]), covered(&behind));
    assert_eq!(covered(&before) + covered(&behind), 841_618 - 11_001);
    let plain = context.run(&["timeline", &profile.to_string_lossy()]);
    assert!(
        plain.stdout.contains("\ncopies and other tasks outside of the spans of the rows: 0."),
        "{}",
        plain.stdout
    );
}

/// Task types of a trace do not separate matrix and vector kernels, but all of them are kernels.
#[test]
fn a_trace_alone_has_the_kernels_of_its_table() {
    let context = Context::new();
    for name in ["cnn_level0_rank0", "cnn_level1_rank0"] {
        let Some(profile) = shared(&format!("real/{name}/ASCEND_PROFILER_OUTPUT")) else { return };
        let rows = raw_rows(&profile.join("kernel_details.csv"));
        let (collectives, kernels): (Vec<&RawRow>, Vec<&RawRow>) =
            rows.iter().partition(|row| row["Name"].starts_with("hcom_"));
        let output = timeline(&context, &profile.join("trace_view.json"));
        let step = only_step(&output);
        assert_eq!(whole_number(&step["kernels"]), i64::try_from(kernels.len()).expect("few"), "{name}");
        for (key, rows) in [("computing_ns", &kernels), ("communication_ns", &collectives)] {
            let expected = covered(&raw_spans(rows.iter().copied()));
            assert!((whole_number(&step[key]) - expected).abs() <= ROUNDING, "{name}: {key} {expected}");
        }
        let missing = step["not_recorded"].to_string();
        assert!(missing.contains("types of kernels") && missing.contains("shapes of kernels"), "{missing}");
    }
}

/// Sums of the vendor by type of kernel and of collective, from `compare` of a profile with itself.
#[test]
fn sums_by_type_are_those_of_the_vendors_analysis() {
    let context = Context::new();
    let sums_of = |profile: &Path, part: &str| -> BTreeMap<String, [i64; 4]> {
        let path = profile.to_string_lossy();
        let ran = context.run(&["compare", &path, &path, "--format", "json"]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let mut sums: BTreeMap<String, [i64; 4]> = BTreeMap::new();
        for row in objects(&ran.stdout).iter().filter(|row| row["part"] == part) {
            let number = |key: &str| row["base"][key].as_f64().expect("a number");
            #[expect(clippy::cast_possible_truncation, reason = "whole nanoseconds of one step")]
            let [calls, total, shortest, longest] =
                ["calls", "total", "shortest", "longest"].map(|key| number(key).round() as i64);
            let name = row["name"].as_str().expect("a text").to_owned();
            let sum = sums.entry(name).or_insert([0, 0, i64::MAX, 0]);
            *sum = [sum[0] + calls, sum[1] + total, sum[2].min(shortest), sum[3].max(longest)];
        }
        sums
    };
    let compare = |own: &BTreeMap<String, [i64; 4]>, table: &Path, columns: [&str; 5], tolerance: i64| {
        let mut types = 0;
        for row in raw_rows(table) {
            let name = &row[columns[0]];
            let theirs = [
                row[columns[1]].parse().expect("a count"),
                nanoseconds(&row[columns[2]]),
                nanoseconds(&row[columns[3]]),
                nanoseconds(&row[columns[4]]),
            ];
            let own = own.get(name).unwrap_or_else(|| panic!("{name} is missing"));
            assert_eq!(own[0], theirs[0], "{name}");
            for (own, theirs) in own.iter().zip(theirs).skip(1) {
                assert!((own - theirs).abs() <= tolerance, "{name}: {own}, {theirs}");
            }
            types += 1;
        }
        assert_eq!(own.len(), types, "{own:?}");
    };
    let columns = ["OpType", "Count", "Sum(Us)", "Min(Us)", "Max(Us)"];
    for (name, part) in
        [("compute_op_sum_by_optype_cnn_db.csv", "kernel"), ("hccl_sum_cnn_db.csv", "collective")]
    {
        let Some(profile) = shared("real/cnn_db_level1_rank0") else { return };
        let Some(table) = shared(&format!("real/model_analysis/{name}")) else { return };
        compare(&sums_of(&profile, part), &table, columns, 0);
    }
    let Some(profile) = shared("real/cnn_level1_rank0") else { return };
    let table = profile.join("ASCEND_PROFILER_OUTPUT/op_statistic.csv");
    let columns = ["OP Type", "Count", "Total Time(us)", "Min Time(us)", "Max Time(us)"];
    compare(&sums_of(&profile, "kernel"), &table, columns, ROUNDING);
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
        "excerpts/op_summary_a2_dsa.csv",
        "excerpts/op_summary_minimal.csv",
        "model_analysis/gpu_alexnet_a100.pt.trace.json",
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
            .filter(|event| event["ph"] == "X" && event["tid"] == 1 + lane && event["pid"] == 1 + process);
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

/// Perfetto takes numbers of 32 bits for processes and threads, drops events before time 0, and draws the slices of a lane
/// wrongly if they overlap without one enclosing the other.
#[test]
fn lanes_are_valid_for_perfetto_and_have_the_times_of_the_steps() {
    let context = Context::new();
    // The host starts a module before the first task, on a thread whose number has 64 bits.
    let ranges = "CREATE TABLE MSTX_EVENTS (startNs, endNs, eventType, message, domainId, globalTid);
        INSERT INTO MSTX_EVENTS VALUES
            (1699999999999000000, 1700000000000050000, 2, 'Decoder', 'Module', 17179869184001),
            (1700000000000001000, 1700000000000040000, 2, 'Mlp', 'Module', 17179869184001),
            (1700000000000002000, 1700000000000002000, 0, 'mark', 'mine', 17179869184007),
            (1700000000000003000, 1700000000000030000, 2, 'loader', 'default', 17179869184009)";
    write_database(&context.path("all/ascend_pytorch_profiler_0.db"), ranges);
    write_database(&context.path("all/ascend_pytorch_profiler_1.db"), "DELETE FROM STEP_TIME WHERE id = 7");
    let ran = context.run(&["timeline", "all", "--trace", "lanes.json", "--format", "json", "--gaps", "99"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let text = fs::read_to_string(context.path("lanes.json")).expect("written");
    let trace: Value = serde_json::from_str(&text).expect("JSON");
    let origin: i64 =
        trace["otherData"]["origin_ns"].as_str().and_then(|text| text.parse().ok()).expect("a number");
    assert_eq!(origin, 1_699_999_999_999_000_000);
    let mut names: BTreeMap<(u64, Option<u64>), String> = BTreeMap::new();
    let mut lanes: BTreeMap<(u64, u64), Vec<(i64, i64)>> = BTreeMap::new();
    let nanos = |value: &Value| {
        let micros = value.as_f64().expect("a number");
        assert!(micros.is_finite() && micros >= 0.0, "{value}");
        #[expect(clippy::cast_possible_truncation, reason = "times of a step")]
        let nanos = (micros * 1000.0).round() as i64;
        nanos
    };
    for event in trace["traceEvents"].as_array().expect("events") {
        let id = |key: &str| {
            let id = event[key].as_u64();
            assert!(id.is_none_or(|id| (1..=u64::from(u32::MAX)).contains(&id)), "{event}");
            id
        };
        let (process, thread) = (id("pid").expect("a process"), id("tid"));
        match event["ph"].as_str().expect("a kind") {
            "M" if event["name"] == "thread_sort_index" => {}
            "M" => {
                let name = event["args"]["name"].as_str().expect("a name").to_owned();
                assert_eq!(names.insert((process, thread), name), None, "named once: {event}");
            }
            "X" => {
                let start = nanos(&event["ts"]);
                let span = (origin + start, origin + start + nanos(&event["dur"]));
                lanes.entry((process, thread.expect("a lane"))).or_default().push(span);
            }
            "i" => assert_eq!((&event["s"], nanos(&event["ts"])), (&"t".into(), 1_002_000)),
            kind => panic!("{kind}"),
        }
    }
    for ((process, lane), spans) in &mut lanes {
        assert!(names.contains_key(&(*process, None)) && names.contains_key(&(*process, Some(*lane))));
        spans.sort_unstable_by_key(|(start, end)| (*start, -end));
        let is_host = names[&(*process, None)].ends_with("host");
        for pair in spans.windows(2) {
            let [first, second] = [pair[0], pair[1]];
            assert!(
                second.0 >= first.1 || is_host && second.1 <= first.1,
                "{process} {lane}: {first:?} {second:?}"
            );
        }
    }
    // `Decoder` and a module of torch cross each other on one thread, which has two lanes.
    let threads = names.iter().filter(|(_, name)| name.starts_with("Thread "));
    let threads: Vec<(u64, &str)> = threads.map(|((process, _), name)| (*process, &**name)).collect();
    assert_eq!(threads, [(3, "Thread 1"), (3, "Thread 1"), (3, "Thread 9"), (4, "Thread 1")]);
    // The slices of the lanes are the times of the steps.
    let output = objects(&ran.stdout);
    for (process, rank) in [(1, 0), (2, 1)] {
        assert_eq!(names[&(process, None)], format!("rank {rank}, device 0"));
        let steps = items(&output, "step").into_iter().filter(|step| step["rank"] == rank);
        let steps: Vec<&Value> = steps.collect();
        for (lane, key) in [
            (1, "span_ns"),
            (2, "computing_ns"),
            (3, "communication_ns"),
            (4, "not_overlapped_ns"),
            (5, "free_ns"),
        ] {
            let sum: i64 = steps.iter().map(|step| whole_number(&step[key])).sum();
            let lane: i64 = lanes[&(process, lane)].iter().map(|(start, end)| end - start).sum();
            assert_eq!(lane, sum, "{key}");
        }
        let starts: Vec<i64> = steps.iter().map(|step| whole_number(&step["start_ns"])).collect();
        assert_eq!(lanes[&(process, 1)].iter().map(|span| span.0).collect::<Vec<_>>(), starts);
    }
}

/// Tasks before, between and behind the steps have rows of their own, so that no step between them counts as free.
#[test]
fn tasks_outside_of_steps_do_not_make_the_steps_free() {
    let context = Context::new();
    write_database(&context.path("ascend_pytorch_profiler_0.db"), &kernels_outside_of_steps());
    let output = timeline(&context, Path::new("ascend_pytorch_profiler_0.db"));
    let rows: Vec<_> = items(&output, "step")
        .into_iter()
        .map(|row| {
            let [span, computing, free] =
                ["span_ns", "computing_ns", "free_ns"].map(|key| whole_number(&row[key]));
            (row["step"].as_u64(), span, computing, free)
        })
        .collect();
    let outside = |span, computing, free| (None, span, computing, free);
    assert_eq!(
        rows,
        [
            outside(1_000, 1_000, 0),
            (Some(7), 120_000, 24_500, 62_000),
            (Some(8), 20_000, 20_000, 0),
            outside(3_000, 2_000, 1_000)
        ]
    );
}

/// Statements for copies in the synthetic run, in nanoseconds behind its start: before the first kernel and into the free time
/// of step 7, from its last kernel on, between the steps and into step 8, and behind this one.
pub(crate) fn copies_around_steps() -> String {
    let copies = [(5_000, 22_000), (125_000, 140_000), (145_000, 160_000), (165_000, 200_000)];
    let start = 1_700_000_000_000_000_000_i64;
    let statement = |(id, (from, to)): (i32, (i64, i64))| {
        format!("INSERT INTO TASK VALUES ({}, {}, 0, 100, {id}, 35, 2);", start + from, start + to)
    };
    (900..).zip(copies).map(statement).collect()
}

/// Copies are counted once, without the time in the spans, and in the step in whose window they start.
#[test]
fn copies_around_the_spans_belong_to_the_nearest_step() {
    let context = Context::new();
    write_database(&context.path("ascend_pytorch_profiler_0.db"), &copies_around_steps());
    let output = timeline(&context, Path::new("ascend_pytorch_profiler_0.db"));
    let rows: Vec<_> = items(&output, "step")
        .into_iter()
        .map(|row| {
            let [before, behind] =
                ["other_tasks_before_ns", "other_tasks_behind_ns"].map(|key| whole_number(&row[key]));
            (row["step"].as_u64(), before, behind)
        })
        .collect();
    assert_eq!(rows, [(Some(7), 5_000, 10_000), (Some(8), 5_000, 30_000)]);
    let plain = context.run(&["timeline", "ascend_pytorch_profiler_0.db"]);
    assert!(plain.stdout.contains("rows: 0.010 ms before them, 0.040 ms behind them\n"), "{}", plain.stdout);
}

/// Statements for kernels of 1000 ns outside of the steps of the synthetic run: one 900 us before them, and two behind them.
pub(crate) fn kernels_outside_of_steps() -> String {
    let task = |(id, start): (i64, i64)| {
        format!(
            "INSERT INTO TASK VALUES ({start}, {}, 0, {id}, {id}, 14, 2);
             INSERT INTO COMPUTE_TASK_INFO VALUES (25, {id}, 26, 27, 28, 29, 20, 21, 30, 23);",
            start + 1000
        )
    };
    let steps = 1_700_000_000_000_000_000;
    [(901, steps - 900_000), (902, steps + 500_000), (903, steps + 502_000)].map(task).concat()
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

/// Changes of the synthetic database, and what the program says about them: an error with table, row and cell, a note, or a
/// part that is not recorded.
#[test]
fn wrong_cells_and_missing_rows_of_databases_are_named() {
    let context = Context::new();
    let file = context.path("ascend_pytorch_profiler_0.db");
    for (table, place) in [
        ("TASK", " (globalTaskId 2)"),
        ("COMMUNICATION_OP", " (COMMUNICATION_OP, opId 2)"),
        ("STEP_TIME", " (STEP_TIME, row 2)"),
        ("PYTORCH_API", " (PYTORCH_API, row 2)"),
        ("CANN_API", " (CANN_API, row 2)"),
    ] {
        for (cell, is_error) in [
            ("'abc'", true),
            ("x'00ff'", true),
            ("1.5", true),
            ("9e300", true),
            ("'NaN'", true),
            ("-5", false),
            ("NULL", false),
            ("''", false),
            ("9223372036854775807", false),
        ] {
            write_database(&file, &format!("UPDATE {table} SET startNs = {cell} WHERE rowid = 2"));
            let ran = context.run(&["timeline", "ascend_pytorch_profiler_0.db"]);
            fs::remove_file(&file).expect("there");
            let expected = match is_error {
                true => format!("error: `ascend_pytorch_profiler_0.db`{place}: `"),
                false => "1 record without a valid time is left out".to_owned(),
            };
            assert!(ran.stderr.contains(&expected), "{table} {cell}: {ran:?}");
            assert_eq!((ran.code, ran.stdout.is_empty()), if is_error { (3, true) } else { (0, false) });
        }
    }
    for (statement, expected) in [
        ("DELETE FROM COMPUTE_TASK_INFO", "not recorded: kernels: without them computing"),
        ("DROP TABLE COMPUTE_TASK_INFO", "not recorded: kernels: without them computing"),
        ("UPDATE COMPUTE_TASK_INFO SET globalTaskId = globalTaskId + 1000", "not recorded: kernels: "),
        ("DELETE FROM TASK", "not recorded: kernels: "),
        (
            "DELETE FROM COMPUTE_TASK_INFO; DELETE FROM COMMUNICATION_OP",
            "have neither a kernel nor a collective",
        ),
        ("DELETE FROM STRING_IDS", "not recorded: names of some kernels"),
        ("UPDATE COMPUTE_TASK_INFO SET name = 99, opType = 99", "not recorded: names of some kernels"),
        (
            "UPDATE COMPUTE_TASK_INFO SET inputShapes = NULL, outputShapes = 32",
            "not recorded: shapes of kernels",
        ),
        ("DELETE FROM STEP_TIME", "not recorded: steps"),
        (
            "UPDATE STEP_TIME SET id = 'seven' WHERE id = 7",
            "(STEP_TIME, row 1): `seven` in column `id` is not",
        ),
        ("DELETE FROM PYTORCH_API", "not recorded: host operators"),
        ("DELETE FROM CANN_API", "not recorded: launches by CANN"),
        (
            "CREATE TABLE META_DATA (name TEXT, value TEXT); INSERT INTO META_DATA VALUES ('SCHEMA_VERSION', '2.0.0')",
            "SCHEMA_VERSION `2.0.0` is not known",
        ),
        (
            "UPDATE TASK SET startNs = 5 WHERE globalTaskId = 1",
            "span 19675 days, so that at least one is wrong",
        ),
        (
            "CREATE TABLE MSTX_EVENTS (startNs, endNs, eventType, message, domainId, globalTid);
             INSERT INTO MSTX_EVENTS VALUES ('abc', 5, 2, 'a', 'Module', 1)",
            "(MSTX_EVENTS, row 1): `abc` in column `startNs` is not a whole number",
        ),
    ] {
        write_database(&file, statement);
        let ran = context.run(&["timeline", "ascend_pytorch_profiler_0.db"]);
        fs::remove_file(&file).expect("there");
        assert!(format!("{}{}", ran.stderr, ran.stdout).contains(expected), "{statement}: {ran:?}");
        assert_eq!(ran.code == 3, ran.stderr.starts_with("error: ") && ran.stderr.contains("\nhint: "));
    }
    // Known versions are no news.
    let version = "CREATE TABLE META_DATA (name TEXT, value TEXT); INSERT INTO META_DATA VALUES ('SCHEMA_VERSION', '1.2.0')";
    write_database(&file, version);
    assert_eq!(context.run(&["timeline", "ascend_pytorch_profiler_0.db"]).stderr, "");
}

/// Times that are unknown without kernels are neither zero nor free.
#[test]
fn times_that_need_kernels_are_not_printed_without_them() {
    let context = Context::new();
    write_database(&context.path("ascend_pytorch_profiler_0.db"), "DROP TABLE COMPUTE_TASK_INFO");
    let output = timeline(&context, Path::new("ascend_pytorch_profiler_0.db"));
    let step = only_step(&output);
    for key in ["computing_ns", "overlapped_ns", "not_overlapped_ns", "free_ns", "free_by_cause_ns", "gaps"] {
        assert!(step[key].is_null(), "{key}: {step}");
    }
    assert_eq!((whole_number(&step["communication_ns"]), whole_number(&step["collectives"])), (35_000, 3));
    let plain = context.run(&["timeline", "ascend_pytorch_profiler_0.db", "--trace", "lanes.json"]);
    assert!(
        !plain.stdout.contains("largest part") && !plain.stdout.contains("free time by cause"),
        "{plain:?}"
    );
    let lanes = fs::read_to_string(context.path("lanes.json")).expect("written");
    assert!(
        lanes.contains("\"name\":\"Communication\",\"ph\":\"X\"") && !lanes.contains("\"Free: "),
        "{lanes}"
    );
}

/// Changes that are only in the log or the journal of a database are never left out silently.
#[test]
fn databases_with_an_open_log_or_a_hot_journal_are_refused() {
    let context = Context::new();
    let file = context.path("ascend_pytorch_profiler_0.db");
    for (mode, suffix) in [("WAL", "-wal"), ("DELETE", "-journal")] {
        write_database(&file, "");
        let connection = rusqlite::Connection::open(&file).expect("opened");
        // A cache of one page writes changes to the file before the end of the transaction.
        let change = format!(
            "PRAGMA journal_mode = {mode}; PRAGMA wal_autocheckpoint = 0; PRAGMA cache_size = 1; BEGIN IMMEDIATE;
             UPDATE TASK SET endNs = endNs + 1; UPDATE PYTORCH_API SET name = name + 0"
        );
        connection.execute_batch(&change).expect("changed");
        if mode == "WAL" {
            connection.execute_batch("COMMIT").expect("committed");
        }
        // The state that a killed writer leaves.
        fs::create_dir_all(context.path("killed")).expect("created");
        let log = format!("ascend_pytorch_profiler_0.db{suffix}");
        for name in ["ascend_pytorch_profiler_0.db", &log] {
            fs::copy(context.path(name), context.path("killed").join(name)).expect("copied");
        }
        drop(connection);
        let ran = context.run(&["timeline", "killed"]);
        let expected = format!(
            "error: `killed/ascend_pytorch_profiler_0.db` was not closed: `killed/{log}` holds changes that belong to it\nhint: "
        );
        assert!(ran.code == 3 && ran.stderr.starts_with(&expected), "{mode}: {ran:?}");
        assert!(ran.stderr.contains("PRAGMA journal_mode=DELETE"), "{ran:?}");
        let before = context.snapshot("killed");
        // What the hint says makes it readable.
        let closed =
            rusqlite::Connection::open(context.path("killed/ascend_pytorch_profiler_0.db")).expect("opened");
        closed.execute_batch("PRAGMA journal_mode = DELETE").expect("written back");
        let kernels: i64 =
            closed.query_row("SELECT count(*) FROM TASK", [], |row| row.get(0)).expect("a count");
        closed.close().expect("closed");
        assert_eq!((kernels, before.len()), (10, 2));
        let output = timeline(&context, Path::new("killed"));
        // Each of the four kernels of step 7 is 1 ns longer if the changes were committed.
        let computing = whole_number(&items(&output, "step")[0]["computing_ns"]);
        assert_eq!(computing, 24_500 + if mode == "WAL" { 4 } else { 0 }, "{mode}");
        fs::remove_dir_all(context.path("killed")).expect("removed");
        fs::remove_file(&file).expect("removed");
        drop(fs::remove_file(context.path(&log)));
    }
}

/// The text forms: cells of the table and events of the trace.
#[test]
fn wrong_times_of_text_profiles_are_named() {
    let context = Context::new();
    for (cell, expected) in [
        ("abc", "kernel_details.csv`:2: `abc` in column `Duration(us)`"),
        ("NaN", "kernel_details.csv`:2: `NaN` in column `Duration(us)`"),
        ("inf", "kernel_details.csv`:2: `inf` in column `Duration(us)`"),
        ("-10.000", "kernel_details.csv`:2: `-10.000` in column `Duration(us)`"),
        (
            "99999999999.000",
            "kernel_details.csv`:2: `99999999999.000` in column `Duration(us)` is not between",
        ),
        ("N/A", "1 record without a valid time is left out"),
        ("", "1 record without a valid time is left out"),
    ] {
        context.write("t/kernel_details.csv", &TABLE.replacen(",10.000,", &format!(",{cell},"), 1));
        let ran = context.run(&["timeline", "t"]);
        assert!(ran.stderr.contains(expected), "{cell}: {ran:?}");
    }
    let without_names: String = TRACE.lines().filter(|line| !line.contains("process_name")).collect();
    for (trace, expected) in [
        // NaN and Infinity are no JSON.
        (TRACE.replacen("\"dur\": ", "\"dur\": NaN, \"other\": ", 1), "trace_view.json`: line "),
        (TRACE.replacen("\"dur\": ", "\"dur\": -", 3), "without a valid time"),
        (TRACE.replacen("\"dur\": ", "\"dur\": \"long\", \"other\": ", 3), "without a valid time"),
        (TRACE.replace("\"dur\": ", "\"dur\": 1e300, \"other\": "), "have neither a kernel nor a collective"),
        (without_names.replace("}, ]", "}]").replace("},]", "}]"), "have neither a kernel nor a collective"),
        (TRACE.replacen("process_name", "process_nam", 1), "of a process without a `process_name`"),
    ] {
        context.write("j/trace_view.json", &trace);
        let ran = context.run(&["timeline", "j"]);
        assert!(
            ran.stderr.contains(expected) || ran.stderr.contains(&expected.replace("a process", "processes")),
            "{expected}: {ran:?}\n{trace}"
        );
    }
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
    for command in ["timeline", "modules", "compare"] {
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
        ["collective", "comparison", "difference", "operator", "rank", "row", "step", "vendor_difference"]
    );
}
