//! Databases of profilers: the real one beside the project, and trees with several forms of one profile.

use std::{collections::BTreeMap, fs, path::Path, process::Command};

use crate::prelude::*;

/// Groups the kernels of a database with Python's own sqlite3, fractions and statistics modules, and holds
/// the CSVs against it.
const ORACLE: &str = r#"
import collections, csv, fractions, glob, os, sqlite3, statistics, sys
source, database = sys.argv[1:]
signature = {"Input Shapes": "inputShapes", "Input Data Types": "inputDataTypes", "Input Formats": "inputFormats",
             "Output Shapes": "outputShapes", "Output Data Types": "outputDataTypes", "Output Formats": "outputFormats"}
connection = sqlite3.connect("file:" + source + "?immutable=1", uri=True)
strings = dict(connection.execute("SELECT id, value FROM STRING_IDS"))
times = {task: (int(end) - int(start), int(start))
         for task, start, end in connection.execute("SELECT globalTaskId, startNs, endNs FROM TASK")}
counters = collections.defaultdict(dict)
for task, name, value in connection.execute("SELECT globalTaskId, name, value FROM TASK_PMU_INFO"):
    name, value = strings[name], fractions.Fraction(value)
    if name.endswith("_time"):
        name = {"aic_total_time": "aicore_time", "aiv_total_time": "aiv_time"}.get(name, name) + "(us)"
        value /= 1000
    counters[task][name] = value
groups = collections.defaultdict(list)
columns = ["globalTaskId", "opType", "taskType", *signature.values()]
for task, *names in connection.execute("SELECT " + ", ".join(columns) + " FROM COMPUTE_TASK_INFO"):
    kernel, core, *cells = [strings.get(name, "N/A") for name in names]
    if cells[0] not in ("", "N/A"):
        groups[(kernel, *cells)].append((times[task][1], times[task][0], core, counters[task]))
found = {}
header = set()
for path in glob.glob(os.path.join(database, "*.csv")):
    for row in csv.DictReader(open(path, newline="")):
        key = (os.path.basename(path)[:-4], *(row[name] for name in signature))
        assert key not in found, key
        found[key] = row
        header.update(row)
assert found.keys() == groups.keys(), sorted(found.keys() ^ groups.keys())
compared = 0
for key, records in groups.items():
    records.sort(key=lambda record: record[0])
    durations = [fractions.Fraction(duration, 1000) for _, duration, _, _ in records]
    assert found[key]["Accelerator Core"] == records[0][2], key
    expected = {"Profiling Average Duration(us)": statistics.mean(durations),
                "Profiling Median Duration(us)": statistics.median(durations)}
    for counter in set().union(*(record[3] for record in records)):
        column = "Profiling Average " + counter
        if column in header:
            expected[column] = statistics.mean([record[3][counter] for record in records if counter in record[3]])
    for column, value in expected.items():
        written = fractions.Fraction(found[key][column])
        assert abs(written - value) <= fractions.Fraction(1, 10**6), (key, column, float(written), float(value))
        compared += 1
    deviation = found[key]["Profiling Std Duration(us)"]
    if len(durations) == 1:
        assert deviation == "", key
    else:
        assert abs(float(deviation) - statistics.stdev(map(float, durations))) < 2e-6, key
print(len(groups), sum(map(len, groups.values())), len({key[0] for key in groups}), compared)
"#;

fn listing(folder: &Path) -> BTreeMap<String, (Vec<u8>, std::time::SystemTime)> {
    let entries = fs::read_dir(folder).expect("listed").map(|entry| entry.expect("listed"));
    entries
        .map(|entry| {
            let modified = entry.metadata().and_then(|metadata| metadata.modified()).expect("known");
            let content = fs::read(entry.path()).unwrap_or_default();
            (entry.file_name().to_string_lossy().into_owned(), (content, modified))
        })
        .collect()
}

#[test]
fn real_profiler_database_agrees_with_independent_computation() {
    let Some(folder) = shared("real/cnn_db_level1_rank0") else { return };
    let context = Context::new();
    let output = folder.join("ASCEND_PROFILER_OUTPUT");
    let before = listing(&output);
    let ran = context.done(&["ingest", &folder.to_string_lossy(), "--db", "db"]);
    assert!(ran.stdout.starts_with("191 records of 1 file in db: "), "{}", ran.stdout);
    assert!(listing(&output) == before, "reading it left a trace");
    let oracle = Command::new("python3")
        .args(["-c", ORACLE])
        .arg(output.join("ascend_pytorch_profiler_0.db"))
        .arg(context.path("db"))
        .output()
        .expect("python3 runs");
    assert!(oracle.status.success(), "{}", String::from_utf8_lossy(&oracle.stderr));
    // Groups, their records, kernels, and numbers that were compared: 24 counters and two of durations each.
    assert_eq!(String::from_utf8_lossy(&oracle.stdout).trim(), "131 174 31 3406");
    let first = context.snapshot("db");
    let again = context.run(&[
        "ingest",
        &output.join("ascend_pytorch_profiler_0.db").to_string_lossy(),
        "--db",
        "db",
    ]);
    again.out_has(" 0 rows added, 0 updated");
    assert_eq!(context.snapshot("db"), first, "the same by its path, and the same bytes");
}

fn database(path: &Path, kernel: &str, microseconds: u32) {
    fs::create_dir_all(path.parent().expect("below")).expect("created");
    let connection = rusqlite::Connection::open(path).expect("created");
    connection
        .execute_batch(&format!(
            "CREATE TABLE STRING_IDS (id INTEGER PRIMARY KEY, value TEXT);
             CREATE TABLE TASK (startNs INTEGER, endNs INTEGER, globalTaskId INTEGER);
             CREATE TABLE COMPUTE_TASK_INFO (globalTaskId INTEGER PRIMARY KEY, opType, inputShapes, inputDataTypes,
                inputFormats, outputShapes, outputDataTypes, outputFormats);
             INSERT INTO STRING_IDS VALUES (1, '{kernel}'), (2, '\"8,8\"'), (3, 'FLOAT'), (4, 'ND');
             INSERT INTO TASK VALUES (1000, {microseconds}000 + 1000, 5);
             INSERT INTO COMPUTE_TASK_INFO VALUES (5, 1, 2, 3, 4, 2, 3, 4);"
        ))
        .expect("valid");
}

#[test]
fn every_profile_below_folder_is_read_once() {
    let context = Context::new();
    let at = |name: &str| context.path(name);
    // Rank 0 has a CSV and databases of the same records; rank 1 only databases; rank 2 an op_summary.
    context.write("t/h1/r0_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv", &profile(&[SWIGLU]));
    database(&at("t/h1/r0_ascend_pt/ASCEND_PROFILER_OUTPUT/ascend_pytorch_profiler_0.db"), "SwiGlu", 7);
    database(&at("t/h1/r0_ascend_pt/PROF_1/msprof_20260101000000.db"), "SwiGlu", 7);
    database(&at("t/h1/r1_ascend_pt/ASCEND_PROFILER_OUTPUT/ascend_pytorch_profiler_1.db"), "Mul", 10);
    database(&at("t/h1/r1_ascend_pt/PROF_1/msprof_20260101000000.db"), "Mul", 7);
    let summary = profile(&[ADD]);
    context.write("t/h2/PROF_2/mindstudio_profiler_output/op_summary_20260101000000.csv", &summary);
    database(&at("t/h2/PROF_2/msprof_20260101000000.db"), "Add", 7);
    // Exported twice, and an export of which nothing but the name was written.
    database(&at("t/h2/PROF_3/msprof_20260101000000.db"), "Mul", 7);
    database(&at("t/h2/PROF_3/msprof_20260102000000.db"), "Mul", 30);
    context.write("t/h2/PROF_3/mindstudio_profiler_output/op_summary_20260101000000.csv", "");
    database(&at("t/h2/PROF_3/device_0/sqlite/ascend_task.db"), "Mul", 7);
    let ran = context.done("ingest t --db db");
    assert_eq!(ran.stdout, "4 records of 4 files in db: 3 kernels, 3 rows added, 0 updated, 0 unchanged\n");
    let mul = &context.rows("db", "Mul")[0];
    assert_eq!(mul["Profiling Average Duration(us)"], "20.000000");
    assert_eq!(context.rows("db", "SwiGlu")[0]["Profiling Average Duration(us)"], "59.730000");
    for inside in ["t/h1/r1_ascend_pt", "t/h1/r1_ascend_pt/ASCEND_PROFILER_OUTPUT"] {
        assert!(context.run(&["ingest", inside, "--db", "one"]).stdout.starts_with("1 record of 1 file"));
    }
}
