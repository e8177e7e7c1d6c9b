//! `npubench timeline`: references of the vendor's tools on real profiles, and a synthetic run in all forms.

use std::{collections::BTreeMap, fs, path::Path};

use serde_json::Value;

use crate::prelude::*;

/// The synthetic run: trace, kernel table, statements for the database, and the vendor's table of steps.
pub(crate) const TRACE: &str = include_str!("fixtures/timeline/trace_view.json");

pub(crate) const TABLE: &str = include_str!("fixtures/timeline/kernel_details.csv");

const DATABASE: &str = include_str!("fixtures/timeline/run.sql");

const STEPS: &str = include_str!("fixtures/timeline/step_trace_time.csv");

/// Error of a sum of rounded durations in a kernel table, in nanoseconds.
pub(crate) const ROUNDING: i64 = 30;

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

pub(crate) fn items<'a>(objects: &'a [Value], item: &str) -> Vec<&'a Value> {
    objects.iter().filter(|object| object["item"] == item).collect()
}

pub(crate) fn timeline(context: &Context, profile: &Path) -> Vec<Value> {
    let ran = context.run(&["timeline", &profile.to_string_lossy(), "--format", "json"]);
    // Outer tasks of mixed kernels are a fact of a profile, and no problem.
    let problems = ran.stderr.lines().filter(|line| !line.contains("inside a task of the scheduler"));
    assert_eq!((ran.code, problems.count()), (0, 0), "{}: {}", profile.display(), ran.stderr);
    ran.json()
}

pub(crate) fn only_step(output: &[Value]) -> &Value {
    let [step] = *items(output, "step") else { panic!("one step") };
    step
}

pub(crate) fn whole_number(value: &Value) -> i64 {
    value.as_i64().unwrap_or_else(|| panic!("a whole number: {value}"))
}

#[test]
fn both_forms_of_a_run_are_printed_alike() {
    let context = Context::new();
    write_text_profile(&context, "text_ascend_pt", 0);
    write_database(&context.path("db_ascend_pt/ASCEND_PROFILER_OUTPUT/ascend_pytorch_profiler_0.db"), "");
    context.write("db_ascend_pt/ASCEND_PROFILER_OUTPUT/step_trace_time.csv", &STEPS.replace("62.0", "62.5"));
    let text = context.run("timeline text_ascend_pt");
    let note = "`text_ascend_pt/ASCEND_PROFILER_OUTPUT/trace_view.json`: 1 record of a collective that repeats \
                another on another stream, not counted\n";
    assert_eq!((text.code, &*text.stderr), (0, note));
    insta::assert_snapshot!(text.stdout);
    let database = context.run("timeline db_ascend_pt");
    let body = |stdout: &str| stdout.split("\n`").next().expect("text").to_owned();
    assert_eq!(body(&database.stdout), body(&text.stdout));
    database.out_has("step_trace_time.csv` differs in 1 time of 2 steps");
    // One step only, from the folder of the output itself.
    let mut command = context.command("timeline . --step 8 --format json --gaps 99999999999");
    let ran = context.ran(
        &command.current_dir(context.path("text_ascend_pt/ASCEND_PROFILER_OUTPUT")).output().expect("runs"),
    );
    let output = ran.json();
    let [step] = *items(&output, "step") else { panic!("one step: {}", ran.stderr) };
    assert_eq!((&step["rank"], &step["step"], &step["span_ns"]), (&0.into(), &8.into(), &20_000.into()));
}

#[test]
fn ranks_are_compared_and_lanes_are_written() {
    let context = Context::new();
    write_database(&context.path("all/ascend_pytorch_profiler_0.db"), "");
    let late = "UPDATE COMMUNICATION_OP SET startNs = startNs + 6000 WHERE opId = 1";
    write_database(&context.path("all/ascend_pytorch_profiler_1.db"), late);
    let ran = context.run("timeline all --trace lanes.json --step 7");
    assert_eq!((ran.code, &*ran.stderr), (0, "wrote `lanes.json`: open it in https://ui.perfetto.dev\n"));
    insta::assert_snapshot!(ran.stdout);
    let lanes: Value = serde_json::from_str(&context.read("lanes.json")).expect("JSON");
    let events = lanes["traceEvents"].list();
    let time_of = |lane: i64, process: i64| -> f64 {
        let own = events
            .iter()
            .filter(|event| event["ph"] == "X" && event["tid"] == 1 + lane && event["pid"] == 1 + process);
        own.map(|event| event["dur"].float()).sum()
    };
    assert_eq!([0, 1, 2, 3, 4].map(|lane| time_of(lane, 0)), [120.0, 24.5, 35.0, 33.5, 62.0]);
    // Rank 1 communicates 6 us less: 1.5 of them overlapped, and the gap before grows by the rest.
    assert_eq!([0, 1, 2, 3, 4].map(|lane| time_of(lane, 1)), [120.0, 24.5, 29.0, 29.0, 66.5]);
    // A folder and a profile in it are read once.
    let once = context.run("timeline all/../all/ascend_pytorch_profiler_0.db all --step 7");
    assert_eq!((once.code, &*once.stderr, once.stdout), (0, "", ran.stdout));
    // Two profiles of one rank keep their own names and times.
    let again = "UPDATE STRING_IDS SET value = 'Other' || value WHERE value IN ('Mul', 'Add')";
    write_database(&context.path("again/ascend_pytorch_profiler_0.db"), again);
    let ran = context.run("timeline all/ascend_pytorch_profiler_0.db again --format json");
    assert!(ran.stderr.starts_with("rank 0 has several profiles"), "{}", ran.stderr);
    let output = ran.json();
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
    let ran = context.done("timeline all --trace lanes.json --format json --gaps 99");
    let text = context.read("lanes.json");
    let trace: Value = serde_json::from_str(&text).expect("JSON");
    let origin: i64 =
        trace["otherData"]["origin_ns"].as_str().and_then(|text| text.parse().ok()).expect("a number");
    assert_eq!(origin, 1_699_999_999_999_000_000);
    let mut names: BTreeMap<(u64, Option<u64>), String> = BTreeMap::new();
    let mut lanes: BTreeMap<(u64, u64), Vec<(i64, i64)>> = BTreeMap::new();
    let nanos = |value: &Value| {
        let micros = value.float();
        assert!(micros.is_finite() && micros >= 0.0, "{value}");
        #[expect(clippy::cast_possible_truncation, reason = "times of a step")]
        let nanos = (micros * 1000.0).round() as i64;
        nanos
    };
    for event in trace["traceEvents"].list() {
        let id = |key: &str| {
            let id = event[key].as_u64();
            assert!(id.is_none_or(|id| (1..=u64::from(u32::MAX)).contains(&id)), "{event}");
            id
        };
        let (process, thread) = (id("pid").expect("a process"), id("tid"));
        match event["ph"].text() {
            "M" if event["name"] == "thread_sort_index" => {}
            "M" => {
                let name = event["args"]["name"].text().to_owned();
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
    let output = ran.json();
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

/// Each range and mark belongs to a domain; modules of torch have none.
#[test]
fn a_trace_has_the_ranges_and_marks_of_the_wanted_domain() {
    let context = Context::new();
    let ranges = "CREATE TABLE MSTX_EVENTS (startNs, endNs, eventType, message, domainId, globalTid);
        INSERT INTO MSTX_EVENTS VALUES
            (1700000000000001000, 1700000000000040000, 2, 'Mlp', 'Module', 1),
            (1700000000000002000, 1700000000000002000, 0, 'mark', 'mine', 7),
            (1700000000000003000, 1700000000000030000, 2, 'loader', 'mine', 9)";
    write_database(&context.path("ascend_pytorch_profiler_0.db"), ranges);
    let shown = |domain: &str| {
        let arguments = "timeline ascend_pytorch_profiler_0.db --trace lanes.json";
        let ran = context.done(&(arguments, domain));
        let text = context.read("lanes.json");
        let trace: Value = serde_json::from_str(&text).expect("JSON");
        let events = trace["traceEvents"].list().clone();
        fs::remove_file(context.path("lanes.json")).expect("removed");
        let of_domain = events.iter().filter(|event| event["args"].get("domain").is_some());
        let names: Vec<String> = of_domain.map(|event| event["name"].text().to_owned()).collect();
        let steps = events.iter().filter(|event| event["name"] == "Computing" && event["ph"] == "X").count();
        (names, steps, ran.stderr)
    };
    let (all, steps, _) = shown("");
    assert!(["Mlp", "mark", "loader"].iter().all(|name| all.iter().any(|found| found == name)), "{all:?}");
    assert!(all.len() > 3, "modules of torch: {all:?}");
    let (mine, steps_of_mine, _) = shown("--domain mine");
    assert_eq!((mine.as_slice(), steps_of_mine), (["loader", "mark"].map(str::to_owned).as_slice(), steps));
    let (none, _, note) = shown("--domain other");
    assert!(none.is_empty(), "{none:?}");
    let expected = "no range or mark of mstx is recorded in the domain `other`; there are `Module`, `mine`\n";
    assert!(note.starts_with(expected), "{note}");
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
        for object in ran.json() {
            items.insert(object["item"].text().to_owned());
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
