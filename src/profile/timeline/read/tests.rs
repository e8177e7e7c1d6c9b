use std::{
    fs,
    path::{Path, PathBuf},
};

use proptest::{prelude::*, sample::Index};
use rusqlite::Connection;
use tempfile::TempDir;

use super::*;
use crate::base::command_error::Failure;
use crate::profile::timeline::{
    CollectiveArrival, GapCause, MODULE_DOMAIN, StepTimes, TimeSpan, collective_arrivals, module_table,
    run::{MissingPart, TaskRole},
    step_times, waits_by_rank,
};

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/fixtures/timeline");

fn fixture(name: &str) -> String {
    fs::read_to_string(Path::new(FIXTURES).join(name)).expect("a fixture")
}

/// Writes a file into a folder, which is created.
fn write(folder: &TempDir, name: &str, content: &[u8]) -> PathBuf {
    let path = folder.path().join(name);
    fs::create_dir_all(path.parent().expect("below the folder")).expect("created");
    fs::write(&path, content).expect("written");
    path
}

/// Returns the database of the fixture after some statements.
fn database(statements: &str) -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run.db");
    let connection = Connection::open(&path).expect("created");
    let head = "PRAGMA page_size = 1024; PRAGMA synchronous = OFF; PRAGMA journal_mode = MEMORY; BEGIN;";
    connection.execute_batch(&format!("{head} {} {statements}; COMMIT;", fixture("run.sql"))).expect("valid");
    connection.close().expect("closed");
    fs::read(&path).expect("written")
}

fn read_bytes(name: &str, content: &[u8]) -> Result<RunTimeline, ProfileError> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = write(&folder, name, content);
    read_runs(&path).map(|mut runs| runs.remove(0))
}

fn read_database_after(statements: &str) -> RunTimeline {
    read_bytes("ascend_pytorch_profiler_0.db", &database(statements)).expect("read")
}

/// Text of the figures of a run, without its files.
fn figures(run: &RunTimeline) -> Vec<String> {
    let name = |id| run.names.text(id).to_owned();
    let of_step = |step: &StepTimes| {
        let gaps: Vec<_> = step
            .gaps
            .iter()
            .map(|gap| {
                let inside = gap.other_tasks.map(|(kind, time)| (name(kind), time));
                (gap.span, gap.cause, name(gap.before), name(gap.after), inside)
            })
            .collect();
        format!(
            "{:?} {:?} {:?} {} {} {} {} {} {} {} {} {:?} {gaps:?} {:?}",
            step.device,
            step.step,
            step.span,
            step.computing,
            step.communication,
            step.collective,
            step.point_to_point,
            step.overlapped,
            step.not_overlapped,
            step.free,
            step.bubble,
            step.preparing,
            step.streams
        )
    };
    let table = module_table(run, MODULE_DOMAIN);
    let rows = table.rows.iter().chain(&table.outside).map(|row| {
        let kernels: Vec<String> = row.kernels.iter().map(|kernel| name(*kernel)).collect();
        let operator = name(row.operator);
        format!("{}/{} {operator} {kernels:?} {} {}", row.parent, row.module, row.total, row.calls.len())
    });
    step_times(0, run).iter().map(of_step).chain(rows).collect()
}

/// Checks that all sums add up.
fn assert_totals(run: &RunTimeline) {
    for step in step_times(0, run) {
        let busy = step.computing + step.not_overlapped;
        assert_eq!(busy + step.free, step.span.length(), "{step:?}");
        assert_eq!(step.overlapped + step.not_overlapped, step.communication, "{step:?}");
        assert_eq!(step.gaps.iter().map(|gap| gap.span.length()).sum::<i64>(), step.free, "{step:?}");
        assert_eq!(step.free_by_cause.values().sum::<i64>(), step.free, "{step:?}");
        assert!(step.computing <= step.span.length() && step.free >= 0, "{step:?}");
    }
    let table = module_table(run, MODULE_DOMAIN);
    let collectives = run.collectives.iter().map(|collective| collective.span.length());
    let lengths = run.kernels().map(|task| task.span.length()).chain(collectives);
    assert_eq!(table.device_time(), sum_lengths(lengths));
}

#[test]
fn database_and_text_of_one_run_have_the_same_figures() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = "text_ascend_pt/ASCEND_PROFILER_OUTPUT";
    for name in ["trace_view.json", "kernel_details.csv"] {
        write(&folder, &format!("{output}/{name}"), fixture(name).as_bytes());
    }
    write(&folder, "text_ascend_pt/profiler_info_0.json", b"{}");
    let text = read_runs(folder.path()).expect("read").remove(0);
    let of_database = read_database_after("");
    assert_eq!((text.rank, of_database.rank), (Some(0), Some(0)));
    assert_eq!(figures(&text), figures(&of_database));
    assert_eq!((text.repeated, of_database.repeated), (1, 0), "the table repeats one collective");
    let role = |role| text.tasks.iter().filter(|task| task.role == role).count();
    assert_eq!(role(TaskRole::CollectiveKernel), 1);
    assert_eq!(role(TaskRole::CollectiveTask), 2);
    let steps = step_times(0, &of_database);
    let [seven, eight] = &*steps else { panic!("{} steps", steps.len()) };
    // The last kernel of step 7 runs while the host is in step 8.
    assert_eq!(
        (seven.kernels, seven.span.length(), eight.kernels, eight.span.length()),
        (4, 120_000, 1, 20_000)
    );
    assert_eq!((seven.computing, seven.communication, seven.overlapped), (24_500, 35_000, 1_500));
    assert_eq!((seven.not_overlapped, seven.free, seven.bubble), (33_500, 62_000, 15_000));
    assert_eq!((seven.collective, seven.point_to_point, seven.preparing), (16_000, 19_000, Some(10_000)));
    let causes: Vec<_> = seven.gaps.iter().map(|gap| (gap.span.length(), gap.cause)).collect();
    assert_eq!(
        causes,
        [(30_000, GapCause::Framework), (30_000, GapCause::Framework), (2_000, GapCause::Wait)]
    );
    let copy = seven.gaps[0].other_tasks.map(|(kind, time)| (of_database.names.text(kind), time));
    assert_eq!(copy, Some(("PCIE_DMA_SQE", 4_000)), "a wait for an event is no work");
    for run in [&text, &of_database] {
        assert_totals(run);
    }
}

#[test]
fn names_behind_their_events_count() {
    let trace = fixture("trace_view.json");
    let expected = figures(&read_bytes("trace_view.json", trace.as_bytes()).expect("read"));
    let mut events: Vec<&str> = trace.lines().map(|line| line.trim_end_matches(',')).collect();
    events.retain(|line| line.starts_with('{'));
    let (names, others): (Vec<&str>, Vec<&str>) =
        events.iter().partition(|line| line.contains("\"ph\": \"M\""));
    let of_threads = |line: &&str| line.contains("thread_name");
    let (threads, processes): (Vec<&str>, Vec<&str>) = names.iter().copied().partition(of_threads);
    for order in
        [[&others, &names, &vec![]], [&processes, &others, &threads], [&threads, &others, &processes]]
    {
        let trace = format!(
            "[{}]",
            order
                .map(|part| part.join(","))
                .into_iter()
                .filter(|part| !part.is_empty())
                .collect::<Vec<_>>()
                .join(",\n")
        );
        assert_eq!(figures(&read_bytes("trace_view.json", trace.as_bytes()).expect("read")), expected);
    }
}

#[test]
fn kernels_of_a_trace_alone_have_task_types_of_old_and_new_versions() {
    let trace = fixture("trace_view.json");
    let of_trace = |trace: &str| figures(&read_bytes("trace_view.json", trace.as_bytes()).expect("read"));
    let expected = of_trace(&trace);
    let renamed =
        trace.replace("\"AI_CORE\"", "\"KERNEL_AICORE\"").replace("\"AI_VECTOR_CORE\"", "\"KERNEL_AIVEC\"");
    assert_ne!(renamed, trace);
    assert_eq!(of_trace(&renamed), expected);
    // Nothing is computed for types that are no kernels, and the output says so.
    let unknown = renamed.replace("\"KERNEL_", "\"OTHER_");
    let run = read_bytes("trace_view.json", unknown.as_bytes()).expect("read");
    assert_eq!((run.kernels().count(), run.missing[0]), (0, MissingPart::Kernels));
}

#[test]
fn arguments_may_be_text_and_odd_ones_are_left_out_alone() {
    let trace = fixture("trace_view.json");
    let expected = figures(&read_bytes("trace_view.json", trace.as_bytes()).expect("read"));
    let quoted = quote_numbers(&trace, "\"connection_id\": ");
    assert_eq!(figures(&read_bytes("trace_view.json", quoted.as_bytes()).expect("read")), expected);
    // A stream that is no number is not recorded; the number of the thread stands in.
    let odd = trace.replace("\"Physic Stream Id\": 2", "\"Physic Stream Id\": -1");
    assert_eq!(figures(&read_bytes("trace_view.json", odd.as_bytes()).expect("read")), expected);
}

/// Quotes the numbers behind a key.
fn quote_numbers(text: &str, key: &str) -> String {
    let mut parts = text.split(key);
    let mut quoted = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(part.len());
        quoted.push_str(&format!("{key}\"{}\"{}", &part[..end], &part[end..]));
    }
    quoted
}

#[test]
fn trace_cut_off_anywhere_is_refused_with_its_place() {
    let trace = fixture("trace_view.json");
    let end = trace.rfind(']').expect("a list");
    let folder = tempfile::tempdir().expect("a folder");
    for length in (1..=end).step_by(7).chain(end - 60..=end) {
        let path = write(&folder, "trace_view.json", &trace.as_bytes()[..length]);
        let error = read_runs(&path).expect_err("refused").to_string();
        let lines = trace[..length].matches('\n').count() + 1;
        assert!(error.contains(&format!("trace_view.json`: line {lines}, column ")), "{length}: {error}");
        assert!(error.contains("incomplete"), "{length}: {error}");
    }
    assert!(read_runs(&write(&folder, "trace_view.json", &trace.as_bytes()[..=end])).is_ok());
}

#[test]
fn kernel_table_alone_states_what_is_missing() {
    let run = read_bytes("kernel_details.csv", fixture("kernel_details.csv").as_bytes()).expect("read");
    assert_eq!(run.missing, [MissingPart::Operators, MissingPart::Launches, MissingPart::OtherTasks]);
    let steps = step_times(0, &run);
    assert_eq!(steps.iter().map(|step| step.step).collect::<Vec<_>>(), [Some(7), Some(8)]);
    assert_eq!((steps[0].computing, steps[0].free, steps[0].preparing), (24_500, 62_000, None));
    assert!(steps[0].gaps.iter().all(|gap| gap.cause == GapCause::NotRecorded), "{:?}", steps[0].gaps);
    assert_totals(&run);
    // Profiler level 0: eight columns, no types.
    let level0 = "Device_id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),Step Id\n\
                  0,aclnnAdd_Add,N/A,N/A,1000.000\t,2.000,0,\n0,hcom_allReduce__1_0_1,N/A,N/A,1003.000\t,4.000,0,\n";
    let run = read_bytes("kernel_details.csv", level0.as_bytes()).expect("read");
    let missing = [
        MissingPart::KernelTypes,
        MissingPart::Shapes,
        MissingPart::Operators,
        MissingPart::Launches,
        MissingPart::Steps,
        MissingPart::OtherTasks,
    ];
    assert_eq!(run.missing, missing);
    let step = &step_times(0, &run)[0];
    assert_eq!((step.step, step.computing, step.communication, step.free), (None, 2_000, 4_000, 1_000));
    assert_eq!(step.collectives, 1);
}

/// A kernel on cores of both kinds is two tasks; the outer one is the scheduler's, and its number is that of a later copy, too.
#[test]
fn outer_task_of_a_mixed_kernel_is_no_other_work() {
    const NO_CONTEXT: &str = "4294967295";
    let whole = read_database_after("");
    let run = read_database_after(&format!(
        "ALTER TABLE TASK ADD COLUMN taskId INTEGER; ALTER TABLE TASK ADD COLUMN contextId INTEGER;
         UPDATE TASK SET taskId = globalTaskId, contextId = iif(globalTaskId = 1, 0, {NO_CONTEXT});
         INSERT INTO TASK VALUES
           (1700000000000009000, 1700000000000020800, 0, 1, 90, 14, 2, 1, {NO_CONTEXT}),
           (1700000000000180000, 1700000000000190000, 0, 1, 91, 14, 2, 1, {NO_CONTEXT}),
           (1700000000000022000, 1700000000000025500, 0, 1, 92, 14, 2, 2, {NO_CONTEXT});"
    ));
    let others = |run: &RunTimeline| run.tasks.iter().filter(|task| task.role == TaskRole::Other).count();
    assert_eq!((run.mixed_kernels, run.scheduling), (1, 1_800));
    assert_eq!(
        others(&run),
        others(&whole) + 2,
        "only a task around a kernel with a context is an outer one"
    );
}

#[test]
fn database_without_optional_parts_is_read_and_the_rest_is_stated() {
    let drop_tables =
        |tables: &[&str]| tables.iter().map(|table| format!("DROP TABLE {table};")).collect::<String>();
    let bare = drop_tables(&[
        "PYTORCH_API",
        "CONNECTION_IDS",
        "CANN_API",
        "TASK_PMU_INFO",
        "COMMUNICATION_TASK_INFO",
        "STEP_TIME",
    ]);
    let run = read_database_after(&bare);
    assert_eq!(run.missing, [MissingPart::Operators, MissingPart::Launches, MissingPart::Steps]);
    let steps = step_times(0, &run);
    assert_eq!(
        (steps.len(), steps[0].step, steps[0].computing, steps[0].communication),
        (1, None, 44_500, 35_000)
    );
    assert_totals(&run);
    let without_kernels = read_database_after(&drop_tables(&["COMPUTE_TASK_INFO", "COMMUNICATION_OP"]));
    assert_eq!(without_kernels.missing[0], MissingPart::Kernels);
    assert!(step_times(0, &without_kernels).is_empty());
    // Columns of other versions, and one more.
    let renamed = read_database_after(
        "ALTER TABLE TASK DROP COLUMN streamId; ALTER TABLE TASK ADD COLUMN later INTEGER;
         ALTER TABLE COMPUTE_TASK_INFO DROP COLUMN inputShapes;
         CREATE TABLE META_DATA (name TEXT, value TEXT); INSERT INTO META_DATA VALUES ('SCHEMA_VERSION', '9.9.9');",
    );
    assert_eq!(step_times(0, &renamed)[0].computing, 24_500);
    for (statement, expected) in [
        ("DROP TABLE TASK", "has no table `TASK`"),
        ("DROP TABLE STRING_IDS", "has no table `STRING_IDS`"),
        ("ALTER TABLE TASK DROP COLUMN endNs", "endNs"),
        ("UPDATE TASK SET startNs = 1.5 WHERE globalTaskId = 2", "floating point"),
    ] {
        let error = read_bytes("ascend_pytorch_profiler_0.db", &database(statement)).expect_err("refused");
        assert!(error.to_string().contains(expected), "{statement}: {error}");
        assert!(!error.hint().is_empty());
    }
}

/// A wrong cell is an error with table, row and cell; a time that is missing or impossible is left out and counted.
#[test]
fn wrong_times_of_databases_are_named_or_left_out() {
    for (table, place) in [
        ("TASK", " (globalTaskId 2)"),
        ("COMMUNICATION_OP", " (COMMUNICATION_OP, opId 2)"),
        ("STEP_TIME", " (STEP_TIME, row 2)"),
        ("PYTORCH_API", " (PYTORCH_API, row 2)"),
        ("CANN_API", " (CANN_API, row 2)"),
    ] {
        let read = |cell: &str| {
            let statement = format!("UPDATE {table} SET startNs = {cell} WHERE rowid = 2");
            read_bytes("ascend_pytorch_profiler_0.db", &database(&statement))
        };
        for cell in ["'abc'", "x'00ff'", "1.5", "9e300", "'NaN'"] {
            let error = read(cell).expect_err("refused").to_string();
            let expected = format!("ascend_pytorch_profiler_0.db{place}: `");
            assert!(error.contains(&expected), "{table} {cell}: {error}");
        }
        for cell in ["-5", "NULL", "''", "9223372036854775807"] {
            assert_eq!(read(cell).expect("read").untimed, 1, "{table} {cell}");
        }
    }
}

#[test]
fn missing_rows_of_databases_are_stated() {
    for (statement, expected) in [
        ("DELETE FROM COMPUTE_TASK_INFO", "kernels: without them computing"),
        ("UPDATE COMPUTE_TASK_INFO SET globalTaskId = globalTaskId + 1000", "kernels: "),
        ("DELETE FROM TASK", "kernels: "),
        ("DELETE FROM STRING_IDS", "names of some kernels"),
        ("UPDATE COMPUTE_TASK_INFO SET name = 99, opType = 99", "names of some kernels"),
        ("UPDATE COMPUTE_TASK_INFO SET inputShapes = NULL, outputShapes = 32", "shapes of kernels"),
        ("DELETE FROM STEP_TIME", "steps"),
        ("DELETE FROM PYTORCH_API", "host operators"),
        ("DELETE FROM CANN_API", "launches by CANN"),
        (
            "UPDATE STEP_TIME SET id = 'seven' WHERE id = 7",
            "(STEP_TIME, row 1): `seven` in column `id` is not",
        ),
        (
            "CREATE TABLE MSTX_EVENTS (startNs, endNs, eventType, message, domainId, globalTid);
             INSERT INTO MSTX_EVENTS VALUES ('abc', 5, 2, 'a', 'Module', 1)",
            "(MSTX_EVENTS, row 1): `abc` in column `startNs` is not a whole number",
        ),
    ] {
        let found = match read_bytes("ascend_pytorch_profiler_0.db", &database(statement)) {
            Ok(run) => run.missing.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"),
            Err(error) => error.to_string(),
        };
        assert!(found.contains(expected), "{statement}: {found}");
    }
}

#[test]
fn wrong_times_of_text_profiles_are_named_or_left_out() {
    let table = fixture("kernel_details.csv");
    let read = |cell: &str| {
        let table = table.replacen(",10.000,", &format!(",{cell},"), 1);
        read_bytes("kernel_details.csv", table.as_bytes())
    };
    for cell in ["abc", "NaN", "inf", "-10.000", "99999999999.000"] {
        let error = read(cell).expect_err("refused").to_string();
        assert!(
            error.contains(&format!("kernel_details.csv:2: `{cell}` in column `Duration(us)`")),
            "{error}"
        );
    }
    for cell in ["N/A", ""] {
        assert_eq!(read(cell).expect("read").untimed, 1, "{cell}");
    }
    let trace = fixture("trace_view.json");
    let read = |trace: String| read_bytes("trace_view.json", trace.as_bytes());
    // NaN and Infinity are no JSON.
    let error = read(trace.replacen("\"dur\": ", "\"dur\": NaN, \"other\": ", 1)).expect_err("refused");
    assert!(error.to_string().contains("trace_view.json`: line "), "{error}");
    for wrong in ["-", "\"long\", \"other\": "] {
        let run = read(trace.replacen("\"dur\": ", &format!("\"dur\": {wrong}"), 3)).expect("read");
        assert!(run.untimed > 0, "{wrong}");
    }
    let run = read(trace.replace("\"dur\": ", "\"dur\": 1e300, \"other\": ")).expect("read");
    assert_eq!(run.hull(), None);
    assert!(read(trace.replacen("process_name", "process_nam", 1)).expect("read").unnamed > 0);
}

#[test]
fn hostile_times_are_left_out_and_counted() {
    let run = read_database_after(
        "UPDATE TASK SET startNs = NULL WHERE globalTaskId = 1;
         UPDATE TASK SET endNs = 9223372036854775807 WHERE globalTaskId = 2;
         UPDATE TASK SET startNs = -9223372036854775808, endNs = -9223372036854775808 WHERE globalTaskId = 4;
         UPDATE COMMUNICATION_OP SET endNs = startNs - 1 WHERE opId = 1;
         UPDATE CANN_API SET startNs = -9223372036854775808 WHERE connectionId = 7;
         UPDATE STEP_TIME SET startNs = -9223372036854775808, endNs = -9223372036854775808 WHERE id = 7;
         UPDATE PYTORCH_API SET endNs = '9223372036854775807' WHERE connectionId = 20;
         CREATE TABLE MSTX_EVENTS (startNs, endNs, eventType, message, domainId, globalTid);
         INSERT INTO MSTX_EVENTS SELECT 1700000000000000100, NULL, 2, 'Net', 'Module', 1
            UNION ALL SELECT -9223372036854775808, 9223372036854775807, 2, 'Net', 'Module', 1
            UNION ALL SELECT 9223372036854775807, 0, 0, 'mark', 'Module', 1;",
    );
    // Three tasks, a collective, a launch, a step, an operator and a mark.
    assert_eq!((run.untimed, run.unfinished_ranges, run.kernels().count(), run.steps.len()), (8, 2, 2, 1));
    assert_totals(&run);
    // Tasks of more than an hour.
    let limit = Nanos::MAX_KERNEL.0 + 1;
    let run = read_database_after(&format!(
        "UPDATE TASK SET startNs = 0, endNs = {limit}; UPDATE COMMUNICATION_OP SET startNs = 0, endNs = {limit};
         DROP TABLE STEP_TIME;"
    ));
    assert_eq!((run.kernels().count(), run.collectives.len()), (0, 0));
    assert!(run.untimed >= 4, "{}", run.untimed);
}

#[test]
fn profiles_of_several_ranks_in_one_folder_are_all_read() {
    let folder = tempfile::tempdir().expect("a folder");
    for rank in [0, 1, 2] {
        // Rank 1 arrives 6 us after rank 0, rank 2 1 us before rank 1; the transfer ends at the same time for all.
        let late = [0, 6_000, 5_000][rank];
        let statements = format!("UPDATE COMMUNICATION_OP SET startNs = startNs + {late} WHERE opId = 1");
        write(&folder, &format!("ascend_pytorch_profiler_{rank}.db"), &database(&statements));
    }
    let runs = read_runs(folder.path()).expect("read");
    assert_eq!(runs.iter().map(|run| run.rank).collect::<Vec<_>>(), [Some(0), Some(1), Some(2)]);
    let arrivals = collective_arrivals(&runs);
    assert_eq!(arrivals.len(), 1, "transfers between two ranks are not matched");
    assert_eq!((&*arrivals[0].name, arrivals[0].step), ("hcom_allReduce__612_0_1", Some(7)));
    assert_eq!(arrivals[0].straggler(), Some((1, 10_000)));
    assert_eq!((arrivals[0].longest_wait(), arrivals[0].total_wait()), (Some((0, 6_000)), 7_000));
    assert_eq!(arrivals[0].last_rank(), Some(1));
    // Nobody waited: no rank was late.
    let durations = arrivals[0].durations.keys().map(|rank| (*rank, 10_000)).collect();
    assert_eq!(CollectiveArrival { durations, ..arrivals[0].clone() }.last_rank(), None);
    let waits = waits_by_rank(&arrivals);
    assert_eq!((waits[&0].waited, waits[&1].caused, waits[&2].waited), (6_000, 7_000, 1_000));
    // Two runs of one rank are of different executions.
    let twice =
        [folder.path(), folder.path()].map(|path| read_runs(path).expect("read")).into_iter().flatten();
    assert!(collective_arrivals(&twice.collect::<Vec<_>>()).is_empty());
}

#[test]
fn files_of_one_run_are_read_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let (table, trace) = (fixture("kernel_details.csv"), fixture("trace_view.json"));
    let count = |expected: usize, what: &str| {
        let runs = read_runs(folder.path()).expect("read");
        assert_eq!(
            runs.len(),
            expected,
            "{what}: {:?}",
            runs.iter().map(|run| &run.files).collect::<Vec<_>>()
        );
        runs
    };
    let (header, rows) = table.split_once('\n').expect("rows");
    let half = rows.lines().take(4).map(str::len).sum::<usize>() + 4;
    // An old export, and the slices of a newer one.
    for (name, rows) in [
        ("slice_0_20260102000000", &rows[..half]),
        ("slice_1_20260102000000", &rows[half..]),
        ("20260101000000", rows),
    ] {
        let path = format!("a_ascend_pt/PROF_1/mindstudio_profiler_output/op_summary_{name}.csv");
        write(&folder, &path, format!("{header}\n{rows}").as_bytes());
    }
    write(&folder, "a_ascend_pt/profiler_info_5.json", b"{}");
    let runs = count(1, "slices of one export");
    assert_eq!((runs[0].rank, runs[0].files.len(), runs[0].kernels().count()), (Some(5), 2, 5));
    assert_eq!(
        figures(&runs[0]),
        figures(&read_bytes("kernel_details.csv", table.as_bytes()).expect("read"))
    );
    write(&folder, "a_ascend_pt/PROF_1/msprof_20260102000000.db", &database(""));
    count(1, "the text beside a database of msprof");
    write(&folder, "a_ascend_pt/ASCEND_PROFILER_OUTPUT/trace_view.json", b"");
    write(&folder, "a_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv", table.as_bytes());
    let runs = count(1, "an empty trace gives way");
    assert_eq!(runs[0].form, Some(ProfileForm::Table));
    write(&folder, "a_ascend_pt/ASCEND_PROFILER_OUTPUT/trace_view.json", trace.as_bytes());
    assert_eq!(count(1, "with the trace")[0].form, Some(ProfileForm::TraceAndTable));
    write(&folder, "a_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details_1.csv", table.as_bytes());
    count(2, "two tables in one folder");
}

/// Ranges and a mark of mstx in a database.
const MSTX_ROWS: &str = "CREATE TABLE MSTX_EVENTS (startNs, endNs, eventType, message, domainId, globalTid);
    INSERT INTO STRING_IDS VALUES (900, 'Decoder'), (901, 'Module'), (902, 'mine'), (903, 'here');
    INSERT INTO MSTX_EVENTS VALUES (1700000000000000000, 1700000000000050000, 2, 900, 901, 1),
        (1700000000000000000, 1700000000000150000, 1, 900, 902, 1), (1700000000000003000, 1700000000000003000, 0, 903, 902, 1);";

/// Returns the trace with the same ranges and mark.
fn trace_with_mstx() -> String {
    let event = |name: &str, start: &str, length: &str, kind: &str, domain: &str| {
        format!(
            r#"{{"ph": "X", "name": "{name}", "pid": 4000, "tid": 1, "ts": "{start}", "dur": {length}, "args": {{"event_type": "{kind}", "domain": "{domain}"}}}}"#
        )
    };
    let events = [
        event("Decoder", "1700000000000000.000", "50.0", "start/end", "Module"),
        event("Decoder", "1700000000000000.000", "150", "push/pop", "mine"),
        event("here", "1700000000000003.000", "0", "marker", "mine"),
    ];
    let trace = fixture("trace_view.json");
    let (events_before, end) = trace.rsplit_once(']').expect("a list");
    format!("{},\n{}]{end}", events_before.trim_end(), events.join(",\n"))
}

/// Trace of a GPU: an operator with the kernel that it launched.
const GPU_TRACE: &str = r#"{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "A100"}], "traceEvents": [
    {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 100, "dur": 20, "args": {}},
    {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 105, "dur": 5, "args": {"correlation": 7}},
    {"ph": "X", "cat": "kernel", "name": "sgemm", "pid": 0, "tid": 7, "ts": 120, "dur": 30, "args": {"device": 0, "stream": 7, "correlation": 7}},
    {"ph": "X", "cat": "kernel", "name": "ncclAllReduce", "pid": 0, "tid": 8, "ts": 140, "dur": 30, "args": {"device": 0, "stream": 8}}]}"#;

#[test]
fn ranges_of_mstx_are_the_same_in_trace_and_database() {
    let text = read_bytes("trace_view.json", trace_with_mstx().as_bytes()).expect("read");
    let of_database = read_database_after(MSTX_ROWS);
    let ranges = |run: &RunTimeline, domain: &str| -> Vec<(String, TimeSpan)> {
        let of_domain = run.ranges.iter().filter(|range| run.names.text(range.domain) == domain);
        of_domain.map(|range| (run.names.text(range.name).to_owned(), range.span)).collect()
    };
    for domain in ["Module", "mine"] {
        assert_eq!(ranges(&text, domain).len(), 1, "{domain}");
        assert_eq!(ranges(&text, domain), ranges(&of_database, domain));
        let rows = |run| {
            let table = module_table(run, domain);
            (table.ranges, table.attributed(), table.outside_time())
        };
        assert_eq!(rows(&text), rows(&of_database), "{domain}");
    }
    let marks = |run: &RunTimeline| -> Vec<(i64, String)> {
        run.marks.iter().map(|mark| (mark.at, run.names.text(mark.name).to_owned())).collect()
    };
    assert_eq!(marks(&text), [(1_700_000_000_000_003_000, "here".to_owned())]);
    assert_eq!(marks(&text), marks(&of_database));
}

/// Change of a file.
type Damage = (Index, u8, bool, usize);

fn damaged(whole: &[u8], damages: &[Damage]) -> Vec<u8> {
    const TEXTS: [&[u8]; 8] = [b"-", b"9223372036854775807", b"\"", b",", b"\xff", b"1e308", b"}", b"\0"];
    let mut bytes = whole.to_vec();
    for (at, byte, inserts, length) in damages {
        let at = at.index(bytes.len().max(1)).min(bytes.len());
        if *inserts {
            bytes.splice(at..at, TEXTS[usize::from(*byte) % TEXTS.len()].iter().copied());
        } else if *length > 2 {
            bytes.drain(at..(at + length).min(bytes.len()));
        } else if let Some(old) = bytes.get_mut(at) {
            *old = *byte;
        }
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    /// What stands in a file gives a run whose sums add up, or an error that names the file.
    #[test]
    fn damaged_files_are_read_or_refused(
        damages in prop::collection::vec((any::<Index>(), any::<u8>(), any::<bool>(), 0_usize..60), 1..5),
        form in 0_usize..6,
    ) {
        thread_local!(static DATABASE: Vec<u8> = database(MSTX_ROWS));
        let folder = tempfile::tempdir().expect("a folder");
        let texts = ["trace_view.json", "kernel_details.csv", "run.sql"].map(fixture);
        match form {
            0 => drop(write(&folder, "trace_view.json", &damaged(texts[0].as_bytes(), &damages))),
            1 => drop(write(&folder, "kernel_details.csv", &damaged(texts[1].as_bytes(), &damages))),
            2 => {
                write(&folder, "trace_view.json", &damaged(texts[0].as_bytes(), &damages));
                write(&folder, "kernel_details.csv", texts[1].as_bytes());
            }
            3 => drop(write(&folder, "trace_view.json", &damaged(trace_with_mstx().as_bytes(), &damages))),
            4 => drop(write(&folder, "trace_view.json", &damaged(GPU_TRACE.as_bytes(), &damages))),
            _ => drop(write(&folder, "msprof_0.db", &DATABASE.with(|whole| damaged(whole, &damages)))),
        }
        match read_runs(folder.path()) {
            Ok(runs) => {
                runs.iter().for_each(assert_totals);
                collective_arrivals(&runs);
            }
            Err(error) => {
                let text = error.to_string();
                prop_assert!(text.contains(&*folder.path().to_string_lossy()), "{}", text);
                prop_assert!(!error.hint().is_empty(), "{}", text);
            }
        }
    }

    /// Cells of any type in any column of a database.
    #[test]
    fn any_cells_of_a_database_are_read_or_refused(
        cells in prop::collection::vec((any::<Index>(), any::<Index>(), 0_i64..12, any::<Index>()), 1..5),
    ) {
        const TABLES: [&str; 12] = [
            "TASK", "COMPUTE_TASK_INFO", "COMMUNICATION_OP", "COMMUNICATION_TASK_INFO", "STEP_TIME", "PYTORCH_API",
            "CANN_API", "CONNECTION_IDS", "STRING_IDS", "TASK_PMU_INFO", "MSTX_EVENTS", "META_DATA",
        ];
        const VALUES: [&str; 14] = [
            "NULL", "''", "'abc'", "'N/A'", "x'00ff'", "x''", "1.5", "9e999", "-9e999", "-1", "0",
            "9223372036854775807", "-9223372036854775808", "'1700000000000010000'",
        ];
        thread_local!(static DATABASE: Vec<u8> = database(
            &format!("{MSTX_ROWS} CREATE TABLE META_DATA (name TEXT, value TEXT); INSERT INTO META_DATA VALUES ('SCHEMA_VERSION', '1.0.0')")
        ));
        let folder = tempfile::tempdir().expect("a folder");
        let path = write(&folder, "ascend_pytorch_profiler_0.db", &DATABASE.with(Clone::clone));
        let connection = Connection::open(&path).expect("opened");
        connection.execute_batch("PRAGMA synchronous = OFF; PRAGMA journal_mode = MEMORY").expect("set");
        for (table, column, row, value) in &cells {
            let table = TABLES[table.index(TABLES.len())];
            let names: Vec<String> = {
                let mut names = connection.prepare("SELECT name FROM pragma_table_info(?1)").expect("valid");
                let names = names.query_map([table], |row| row.get(0)).expect("columns");
                names.map(|name| name.expect("a name")).collect()
            };
            let column = &names[column.index(names.len())];
            let value = VALUES[value.index(VALUES.len())];
            // Row 0 stands for all of them. A primary key takes whole numbers only, each once.
            let change = format!("UPDATE OR IGNORE {table} SET {column} = {value} WHERE {row} IN (0, rowid)");
            if let Err(error) = connection.execute_batch(&change) {
                let code = error.sqlite_error_code();
                prop_assert!(code == Some(rusqlite::ErrorCode::TypeMismatch), "{}: {}", change, error);
            }
        }
        connection.close().expect("closed");
        match read_runs(&path) {
            Ok(runs) => runs.iter().for_each(assert_totals),
            Err(error) => {
                let text = error.to_string();
                // A record is named behind the file.
                let forms = ["ascend_pytorch_profiler_0.db`", "ascend_pytorch_profiler_0.db ("];
                prop_assert!(forms.iter().any(|form| text.contains(form)), "{}", text);
                prop_assert!(!error.hint().is_empty(), "{}", text);
            }
        }
    }
}
