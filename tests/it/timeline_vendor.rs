//! `npubench timeline` on real profiles: the figures of the vendor's tools, and computations from the raw files.

use std::{collections::BTreeMap, fs, path::Path};

use serde_json::Value;

use crate::prelude::*;
use crate::timeline::{ROUNDING, items, only_step, timeline, whole_number};

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
    plain.out_has("\ncopies and other tasks outside of the spans of the rows: 0.");
}

/// Sums of the vendor by type of kernel and of collective, from `compare` of a profile with itself.
#[test]
fn sums_by_type_are_those_of_the_vendors_analysis() {
    let context = Context::new();
    let sums_of = |profile: &Path, part: &str| -> BTreeMap<String, [i64; 4]> {
        let path = profile.to_string_lossy();
        let ran = context.done(&["compare", &path, &path, "--format", "json"]);
        let mut sums: BTreeMap<String, [i64; 4]> = BTreeMap::new();
        for row in ran.json().iter().filter(|row| row["part"] == part) {
            let number = |key: &str| row["base"][key].float();
            #[expect(clippy::cast_possible_truncation, reason = "whole nanoseconds of one step")]
            let [calls, total, shortest, longest] =
                ["calls", "total", "shortest", "longest"].map(|key| number(key).round() as i64);
            let name = row["name"].text().to_owned();
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
