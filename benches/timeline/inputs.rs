//! Profiles of any size: copies of a small run, one millisecond apart, with the events around kernels that only fill
//! the files of a profiler.

use std::{
    fs::{self, File},
    io::{BufWriter, Write as _},
    path::Path,
};

use rusqlite::Connection;
use serde_json::{Map, Value, json};

const TRACE: &str = include_str!("../../tests/it/fixtures/timeline/trace_view.json");
const TABLE: &str = include_str!("../../tests/it/fixtures/timeline/kernel_details.csv");
const DATABASE: &str = include_str!("../../tests/it/fixtures/timeline/run.sql");
/// Start of the run in microseconds since the epoch.
const START: u64 = 1_700_000_000_000_000;
/// Distance of two copies in microseconds.
const DISTANCE: u64 = 1000;
/// Distance of the ids of two copies.
const IDS: u64 = 1000;
/// Steps of a copy.
const STEPS: u64 = 2;

/// Event with a number at a time.
type Filler = fn(usize, &str) -> Value;

/// Events for the seven kernels of a copy, in the proportions of a trace of a training step at profiler level 1 with
/// call stacks, which has 54 events for each kernel: counters, functions of Python, operators without a kernel, calls of
/// the runtime.
const FILLERS: [(usize, Filler); 5] = [
    (
        150,
        |_, time| json!({"name": "read_bandwidth", "ts": time, "pid": 4096256, "tid": 0, "args": {"value": 17, "acc_id": 0}, "ph": "C"}),
    ),
    (46, |n, time| {
        json!({"ph": "X", "name": "<built-in method run of a model>", "pid": 4000, "tid": 9, "ts": time, "dur": 0.4,
            "cat": "python_function", "args": {"Python id": n, "Python parent id": n / 2}})
    }),
    (30, |_, time| {
        json!({"ph": "X", "name": "aten::empty", "pid": 4000, "tid": 9, "ts": time, "dur": 0.3, "cat": "cpu_op",
            "args": {"Sequence number": -1, "Fwd thread id": 0, "Call stack": CALL.repeat(16)}})
    }),
    (12, |n, time| {
        json!({"ph": "X", "name": "Dequeue@aclnnMul", "pid": 4000, "tid": 10, "ts": time, "dur": 0.4, "cat": "dequeue",
            "args": {"correlation_id": n}})
    }),
    (90, |_, time| {
        json!({"name": "AscendCL@aclCreateDataBuffer", "pid": 4096032, "tid": 9, "ts": time, "dur": 0.2, "args":
            {"Thread Id": 9, "Mode": "ACL_OP", "level": "acl", "id": "aclCreateDataBuffer", "item_id": "0"}, "ph": "X"})
    }),
];
const CALL: &str = "/usr/lib/python3/site-packages/framework/module.py(1527): call;\r\n";

/// Writes a profile with a trace of about so many bytes, and its table of kernels.
pub(crate) fn write_trace_profile(folder: &Path, bytes: usize) {
    let output = folder.join("ASCEND_PROFILER_OUTPUT");
    fs::create_dir_all(&output).expect("created");
    fs::write(folder.join("profiler_info_0.json"), "{}").expect("written");
    let events: Vec<Map<String, Value>> = serde_json::from_str(TRACE).expect("events");
    let mut trace = BufWriter::new(File::create(output.join("trace_view.json")).expect("created"));
    let mut table = BufWriter::new(File::create(output.join("kernel_details.csv")).expect("created"));
    let (header, rows) = TABLE.split_once('\n').expect("a header");
    writeln!(table, "{header}").expect("written");
    trace.write_all(b"[").expect("written");
    let (mut written, mut copy) = (1, 0);
    while written < bytes {
        let is_first = copy == 0;
        let copied = events.iter().filter(|event| is_first || event["ph"] != "M");
        let copied = copied.map(|event| Value::Object(shifted_event(event, copy)));
        let fillers = FILLERS.iter().flat_map(|(count, event)| {
            (0..*count).map(move |n| event(n, &time_text(START + copy * DISTANCE + n as u64)))
        });
        for (place, event) in copied.chain(fillers).enumerate() {
            let comma = if is_first && place == 0 { "" } else { "," };
            let text = format!("{comma}{event}");
            trace.write_all(text.as_bytes()).expect("written");
            written += text.len();
        }
        for row in rows.lines() {
            writeln!(table, "{}", shifted_row(row, copy)).expect("written");
        }
        copy += 1;
    }
    trace.write_all(b"]").expect("written");
    trace.flush().expect("written");
    table.flush().expect("written");
}

fn time_text(micros: u64) -> String {
    format!("{micros}.000")
}

/// Shifts microseconds with their decimals.
fn shifted_time(text: &str, copy: u64) -> String {
    let (micros, decimals) = text.split_once('.').expect("decimals");
    format!("{}.{decimals}", micros.parse::<u64>().expect("microseconds") + copy * DISTANCE)
}

fn shifted_event(event: &Map<String, Value>, copy: u64) -> Map<String, Value> {
    let mut event = event.clone();
    if let Some(Value::String(time)) = event.get_mut("ts") {
        *time = shifted_time(time, copy);
    }
    // The id of a flow to a device is the start of the task in nanoseconds.
    let is_start = event.get("cat").is_some_and(|category| category == "async_npu");
    let distance = if is_start { DISTANCE * 1000 } else { IDS };
    match event.get_mut("id") {
        Some(Value::String(id)) => *id = (id.parse::<u64>().expect("an id") + copy * distance).to_string(),
        Some(id) => *id = (id.as_u64().expect("an id") + copy * distance).into(),
        None => {}
    }
    if let Some(connection) = event.get_mut("args").and_then(|arguments| arguments.get_mut("connection_id")) {
        *connection = (connection.as_u64().expect("a connection") + copy * IDS).into();
    }
    if let Some(Value::String(name)) = event.get_mut("name")
        && let Some(number) = name.strip_prefix("ProfilerStep#")
    {
        *name = format!("ProfilerStep#{}", number.parse::<u64>().expect("a step") + copy * STEPS);
    }
    event
}

/// Shifts the step and the start of a kernel.
fn shifted_row(row: &str, copy: u64) -> String {
    let cells = row.split(',').enumerate().map(|(place, cell)| match place {
        0 if !cell.is_empty() => (cell.parse::<u64>().expect("a step") + copy * STEPS).to_string(),
        9 => format!("{}\t", shifted_time(cell.trim_end(), copy)),
        _ => cell.to_owned(),
    });
    cells.collect::<Vec<_>>().join(",")
}

/// Columns of the database's tables with the distance between copies; other columns are the same in all.
const TABLES: [(&str, &[(&str, u64)]); 9] = [
    ("PYTORCH_API", &[("startNs", DISTANCE * 1000), ("endNs", DISTANCE * 1000), ("connectionId", IDS)]),
    ("CONNECTION_IDS", &[("id", IDS), ("connectionId", IDS)]),
    ("CANN_API", &[("startNs", DISTANCE * 1000), ("endNs", DISTANCE * 1000), ("connectionId", IDS)]),
    (
        "TASK",
        &[
            ("startNs", DISTANCE * 1000),
            ("endNs", DISTANCE * 1000),
            ("connectionId", IDS),
            ("globalTaskId", IDS),
        ],
    ),
    ("COMPUTE_TASK_INFO", &[("globalTaskId", IDS)]),
    ("TASK_PMU_INFO", &[("globalTaskId", IDS)]),
    ("COMMUNICATION_TASK_INFO", &[("opId", IDS), ("globalTaskId", IDS)]),
    (
        "COMMUNICATION_OP",
        &[("startNs", DISTANCE * 1000), ("endNs", DISTANCE * 1000), ("connectionId", IDS), ("opId", IDS)],
    ),
    ("STEP_TIME", &[("id", STEPS), ("startNs", DISTANCE * 1000), ("endNs", DISTANCE * 1000)]),
];
/// Calls of the runtime in each copy without a kernel, 13 for each kernel as in a real database.
const CALLS: u32 = 80;

/// Writes a profile with a database of about so many bytes.
pub(crate) fn write_database_profile(folder: &Path, bytes: usize) {
    let output = folder.join("ASCEND_PROFILER_OUTPUT");
    fs::create_dir_all(&output).expect("created");
    fs::write(folder.join("profiler_info_0.json"), "{}").expect("written");
    let file = output.join("ascend_pytorch_profiler_0.db");
    let connection = Connection::open(&file).expect("created");
    connection.execute_batch(&format!("PRAGMA synchronous = OFF; BEGIN; {DATABASE} COMMIT;")).expect("valid");
    // A copy takes about 4,600 bytes.
    let copies = bytes / 4_600;
    let copies = format!(
        "WITH RECURSIVE copies(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM copies WHERE n < {copies})"
    );
    let mut statements = "BEGIN;".to_owned();
    for (table, shifted) in TABLES {
        let mut columns = connection.prepare(&format!("PRAGMA table_info({table})")).expect("a table");
        let columns = columns.query_map((), |row| row.get::<_, String>(1)).expect("columns");
        let columns = columns.map(|column| {
            let column = column.expect("a name");
            match shifted.iter().find(|(name, _)| *name == column) {
                Some((_, distance)) => format!("{column} + n * {distance}"),
                None => column,
            }
        });
        let columns = columns.collect::<Vec<_>>().join(", ");
        statements += &format!("INSERT INTO {table} {copies} SELECT {columns} FROM {table}, copies;\n");
    }
    let start = START * 1000;
    statements += &format!(
        "INSERT INTO CANN_API {copies}, calls(m) AS (SELECT 1 UNION ALL SELECT m + 1 FROM calls WHERE m < {CALLS})
             SELECT {start} + n * {step} + m * 1000, {start} + n * {step} + m * 1000 + 500, -n * {CALLS} - m, 20000
             FROM copies, calls;
         COMMIT;",
        step = DISTANCE * 1000
    );
    connection.execute_batch(&statements).expect("valid");
    connection.close().expect("closed");
}
