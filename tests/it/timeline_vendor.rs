//! `npubench timeline` on real profiles: the figures of the vendor's tools, and computations from the raw files.

use std::{collections::BTreeMap, fs, path::Path};

use serde_json::Value;

use crate::{
    context::Context,
    requirements::shared,
    timeline::{ROUNDING, items, objects, only_step, timeline, whole_number},
};

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
        let nanos = |column: &str| row[column].parse::<npubench::kernel::Nanos>().expect("a time").0;
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
