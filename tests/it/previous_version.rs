//! Databases, ledgers and CSVs written by an earlier version, in `fixtures/previous-version`: the current program opens
//! them, keeps their rows, and writes the same CSVs from the same profile and grids.
//!
//! Messages, JSON keys and option names may differ between versions, so these tests compare CSV bytes, ledger rows,
//! verdicts and counts. Options are in [`Command`] alone.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use rusqlite::{Connection, OpenFlags, types::Value};
use sha2::{Digest as _, Sha256};

use crate::context::{Context, Ran};

/// Columns whose cells differ between two runs of one seed (the run's id and the reason, which is prose), and columns that
/// the earlier version did not have: the software, and the evidence of production rows.
const UNSTABLE_COLUMNS: [&str; 6] = [
    "MicroBench Run",
    "MicroBench Reason",
    "MicroBench Software",
    "Profiling Records",
    "Profiling Ranks",
    "Profiling Profiles",
];

/// The commands of these tests as the current version spells them.
enum Command<'a> {
    Ingest { database: &'a str },
    GridOfModel { database: &'a str },
    GridOfLadders { database: &'a str },
    Mutants { database: &'a str },
    Runs,
    Show,
    Plan,
    CheckDatabase,
    Pause { device: &'a str },
    RunMissing { database: &'a str, devices: &'a str },
    RunAll { kernels: &'a str },
    Resume,
}

impl Command<'_> {
    fn arguments(&self) -> Vec<&str> {
        const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/decoder-layer");
        const REHEARSAL: [&str; 6] = ["--host", "rehearsal", "--rehearsal-model", "steady", "--seed", "5"];
        let grid = |database, more: &[&'static str]| {
            [&["grid", "--db", database, "--kind", "rehearsal", "--seed", "7"], more].concat()
        };
        match *self {
            Self::Ingest { database } => vec!["ingest", EXAMPLE, "--db", database, "--kind", "rehearsal"],
            Self::GridOfModel { database } => grid(database, &["--rows", "30", "--models", "Qwen3-32B"]),
            Self::GridOfLadders { database } => grid(database, &["--rows", "30"]),
            Self::Mutants { database } => grid(database, &["--rows", "30", "--mutate", "--from", EXAMPLE]),
            Self::Runs => vec!["runs", "--db", "db", "--format", "json"],
            Self::Show => vec!["show", "--db", "db", "--format", "json"],
            Self::Plan => vec!["plan", "--db", "db", "--devices", "0-1", "--format", "json"],
            Self::CheckDatabase => vec!["db", "check", "db"],
            Self::Pause { device } => vec!["pause", "--db", "db", "--devices", device],
            Self::RunMissing { database, devices } => {
                [&["run", "--db", database, "--devices", devices], &REHEARSAL[..]].concat()
            }
            Self::RunAll { kernels } => {
                let selected = ["run", "--db", "db", "--devices", "0-1", "--kernels", kernels];
                [&selected[..], &["--update", "all"], &REHEARSAL].concat()
            }
            Self::Resume => vec!["resume", "--db", "db"],
        }
    }

    /// Runs the command and fails unless it ends with `code`.
    fn expect_code(&self, context: &Context, code: i32) -> Ran {
        let ran = context.run(&self.arguments());
        assert_eq!(ran.code, code, "{:?}\n{}{}", self.arguments(), ran.stdout, ran.stderr);
        ran
    }
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fixtures/previous-version").join(name)
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("the parent is writable");
    for entry in fs::read_dir(from).expect("the fixture is readable") {
        let path = entry.expect("the fixture is readable").path();
        let target = to.join(path.file_name().expect("an entry has a name"));
        if path.is_dir() {
            copy_folder(&path, &target);
        } else {
            fs::copy(&path, &target).expect("the target is writable");
        }
    }
}

/// The first page of a ledger has the places of the tables, which are others in ledgers of earlier versions.
#[test]
fn first_page_of_another_layout_is_not_replaced() {
    for updates in [false, true] {
        let context = opened("measured");
        if updates {
            assert_eq!(context.run(&["runs", "--db", "db"]).code, 0);
        }
        let ledger = context.path("db/.npubench/ledger.db");
        let mut bytes = fs::read(&ledger).expect("a ledger");
        bytes[..4096].fill(0);
        fs::write(&ledger, &bytes).expect("written");
        let rows = context.csv_files();
        let ran = context.run(&["db", "rebuild", "db"]);
        assert_eq!(ran.code, 3, "{}{}", ran.stdout, ran.stderr);
        assert!(ran.stderr.contains("hint: keep it under another name"), "{}", ran.stderr);
        assert!(context.csv_files() == rows && fs::read(&ledger).expect("a ledger") == bytes);
    }
}

/// Creates a context with a copy of a database of the earlier version in `db`.
fn opened(name: &str) -> Context {
    let context = Context::new();
    copy_folder(&fixture(name), &context.path("db"));
    context
}

/// The CSVs of a folder by file name.
fn csv_files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let paths = fs::read_dir(folder).expect("the folder exists").map(|entry| entry.expect("readable").path());
    paths
        .filter(|path| path.extension().is_some_and(|extension| extension == "csv"))
        .map(|path| {
            let name = path.file_name().expect("an entry has a name").to_string_lossy().into_owned();
            (name, fs::read(&path).expect("the file is readable"))
        })
        .collect()
}

/// Returns the names of the files that one folder lacks or that differ.
fn differing(left: &BTreeMap<String, Vec<u8>>, right: &BTreeMap<String, Vec<u8>>) -> Vec<String> {
    let names: BTreeSet<&String> = left.keys().chain(right.keys()).collect();
    names.into_iter().filter(|name| left.get(*name) != right.get(*name)).cloned().collect()
}

/// Returns true for columns of simulated numbers. They follow the rates of the device profile, which were corrected since
/// the earlier version.
fn is_simulated(column: &str) -> bool {
    let is_duration = column.ends_with("Duration(us)") && !column.starts_with("Profiling");
    let others = [
        "MicroBench ai",
        "MicroBench cube",
        "MicroBench CI95",
        "MicroBench Estimate",
        "MicroBench Correction",
    ];
    is_duration || others.iter().any(|start| column.starts_with(start))
}

/// Rows of a kernel's CSV by column, without [`UNSTABLE_COLUMNS`] and simulated numbers.
fn stable_rows(csv: &[u8]) -> Vec<BTreeMap<String, String>> {
    let mut reader = csv::Reader::from_reader(csv);
    let rows = reader.deserialize().map(|row| row.expect("a row"));
    rows.map(|mut row: BTreeMap<String, String>| {
        row.retain(|column, _| !UNSTABLE_COLUMNS.contains(&column.as_str()) && !is_simulated(column));
        row
    })
    .collect()
}

/// The CSVs of the 20 rows that [`Command::Ingest`] makes, measured by the earlier version with seed 5. Rows that
/// follow in the same files are grid rows and mutants, which came later.
fn measured_by_previous_version() -> BTreeMap<String, Vec<BTreeMap<String, String>>> {
    let ingested = csv_files(&fixture("ingested"));
    let measured = csv_files(&fixture("measured"));
    ingested
        .iter()
        .map(|(name, csv)| {
            let mut rows = stable_rows(&measured[name]);
            rows.truncate(stable_rows(csv).len());
            for row in &mut rows {
                // The column came with the grid rows.
                row.remove("Grid");
            }
            (name.clone(), rows)
        })
        .collect()
}

/// All rows of the named tables of a fixture's ledger, and the same columns of the ledger in `db`.
fn ledger_rows(context: &Context, name: &str, tables: &[&str]) -> [BTreeMap<String, Vec<Vec<Value>>>; 2] {
    let old = Connection::open_with_flags(
        fixture(name).join(".npubench/ledger.db"),
        OpenFlags::SQLITE_OPEN_READ_ONLY,
    );
    let old = old.expect("the fixture's ledger");
    let new = Connection::open(context.path("db/.npubench/ledger.db")).expect("the ledger");
    let columns = |table: &str| -> String {
        let statement = old.prepare(&format!("SELECT * FROM {table}")).expect("a table of the fixture");
        statement.column_names().collect::<Vec<_>>().join(", ")
    };
    let read = |connection: &Connection, table: &str| -> Vec<Vec<Value>> {
        let columns = columns(table);
        let sql = format!("SELECT {columns} FROM {table} ORDER BY {columns}");
        let mut statement = connection.prepare(&sql).expect("the fixture's columns");
        let count = statement.column_count();
        let rows = statement.query_map([], |row| (0..count).map(|column| row.get(column)).collect());
        rows.expect("rows").collect::<Result<_, _>>().expect("rows")
    };
    let all = |connection: &Connection| {
        tables.iter().map(|table| ((*table).to_owned(), read(connection, table))).collect()
    };
    [all(&old), all(&new)]
}

const ALL_TABLES: [&str; 9] = [
    "runs",
    "cases",
    "planned",
    "collections",
    "attempts",
    "launches",
    "device_readings",
    "verdicts",
    "checks",
];

fn assert_ledger_is_unchanged(context: &Context, name: &str) {
    let [old, new] = ledger_rows(context, name, &ALL_TABLES);
    for (table, rows) in &old {
        assert_eq!(rows.len(), new[table].len(), "rows of {table}");
        assert!(*rows == new[table], "rows of {table} differ");
    }
}

/// Fails unless every row of the fixture's tables is still in the ledger with the same values.
fn assert_ledger_rows_survive(context: &Context, name: &str, tables: &[&str]) {
    let [old, new] = ledger_rows(context, name, tables);
    for (table, rows) in &old {
        assert!(!rows.is_empty() || table == "checks", "the fixture has no rows of {table}");
        for row in rows {
            assert!(new[table].contains(row), "{table} lost {row:?}");
        }
    }
}

fn json_lines(text: &str) -> Vec<serde_json::Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

#[test]
fn ingest_writes_the_same_bytes() {
    let context = Context::new();
    Command::Ingest { database: "new" }.expect_code(&context, 0);
    let expected = csv_files(&fixture("ingested"));
    assert_eq!(expected.len(), 10);
    let new = csv_files(&context.path("new"));
    assert!(new.keys().eq(expected.keys()));
    for (name, old) in &expected {
        assert_extends(name, old, &new[name]);
    }
    // The old rows are found again, and get the evidence of their profiling columns.
    let context = opened("ingested");
    Command::Ingest { database: "db" }.expect_code(&context, 0);
    Command::CheckDatabase.expect_code(&context, 0);
    let again = csv_files(&context.path("db"));
    for (name, old) in &expected {
        assert_extends(name, old, &again[name]);
    }
    Command::Ingest { database: "db" }.expect_code(&context, 0);
    assert_eq!(differing(&again, &csv_files(&context.path("db"))), Vec::<String>::new());
}

/// Fails unless a table has the lines of the earlier version, which sorted them by signature, each followed by the cells of
/// the columns that were added: records, ranks and profiles.
fn assert_extends(name: &str, old: &[u8], new: &[u8]) {
    let (old, new) = (String::from_utf8_lossy(old), String::from_utf8_lossy(new));
    assert_eq!(old.lines().count(), new.lines().count(), "{name}");
    let sorted = |text: &str| -> Vec<String> {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines[1..].sort();
        lines
    };
    for (number, (old, new)) in sorted(&old).iter().zip(sorted(&new)).enumerate() {
        let more = new.strip_prefix(old).unwrap_or_else(|| panic!("{name}:{}: {new}", number + 1));
        if number == 0 {
            assert_eq!(more, ",Profiling Records,Profiling Ranks,Profiling Profiles", "{name}");
        } else {
            let counts: Vec<u32> =
                more.split(',').skip(1).map(|count| count.parse().expect("a count")).collect();
            assert!(matches!(counts.as_slice(), [records, 1, 1] if *records > 0), "{name}: {more}");
        }
    }
}

#[test]
fn grids_and_mutations_write_the_same_bytes() {
    let context = Context::new();
    let commands = [
        ("grid-of-a-model", Command::GridOfModel { database: "grid-of-a-model" }),
        ("grid-of-ladders", Command::GridOfLadders { database: "grid-of-ladders" }),
        ("mutants", Command::Mutants { database: "mutants" }),
    ];
    let mut written = BTreeMap::new();
    for (folder, command) in commands {
        command.expect_code(&context, 0);
        for (name, bytes) in csv_files(&context.path(folder)) {
            let digest = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
            written.insert(format!("{folder}/{name}"), digest);
        }
    }
    let listed = fs::read_to_string(fixture("csv.sha256")).expect("UTF-8");
    let expected: BTreeMap<String, String> = listed
        .lines()
        .map(|line| line.split_once("  ").expect("a digest, two spaces and a path"))
        .map(|(digest, path)| (path.to_owned(), digest.to_owned()))
        .collect();
    assert_eq!(expected.len(), 160);
    // Products have more forms since, of which mutants are made. Products are rows of one kernel since, and those with a
    // batch are not rows of its name in graphs; the layers of 6144 have a pattern of their own; rows of attention and of its
    // caches have all recorded slots. Kernels without a grid in the earlier version have no digest.
    let changed = [
        "MatMulV3.csv",
        "BatchMatMulV2.csv",
        "BatchMatMulNd.csv",
        "DispatchFFNCombine.csv",
        "FusedInferAttentionScore.csv",
        "KvRmsNormRopeCache.csv",
    ];
    let is_kept = |name: &&String| {
        let is_changed = |folder: &str, file: &str| {
            let mutated = ["MatMulV2.csv", "MatMulV3.csv"];
            if folder == "mutants" { mutated.contains(&file) } else { changed.contains(&file) }
        };
        name.split_once('/').is_none_or(|(folder, file)| !is_changed(folder, file))
    };
    let names = expected.keys().filter(is_kept);
    let wrong: Vec<_> = names.filter(|name| expected.get(*name) != written.get(*name)).collect();
    assert!(wrong.is_empty(), "{} of {} CSVs differ: {wrong:?}", wrong.len(), expected.len());
}

#[test]
fn reading_a_measured_database_changes_nothing() {
    let context = opened("measured");
    let files = || {
        let mut files = context.snapshot("db");
        // A new layout of the ledger changes bytes of the file, not its rows.
        files.retain(|path, _| !path.ends_with("ledger.db"));
        files
    };
    let before = files();
    let runs = json_lines(&Command::Runs.expect_code(&context, 0).stdout);
    assert_eq!(runs.len(), 1);
    assert_eq!(runs[0]["verdicts"], serde_json::json!({"ok": 20, "unsupported": 1}));
    assert_eq!((&runs[0]["seed"], &runs[0]["cases"]), (&5.into(), &21.into()));
    let shown = json_lines(&Command::Show.expect_code(&context, 0).stdout);
    let ok = shown.iter().filter(|case| case["verdict"] == "ok").count();
    assert_eq!((shown.len(), ok), (21, 20));
    // 4 grid rows and 4 mutants; the row of UnknownKernel is refused again.
    let planned = json_lines(&Command::Plan.expect_code(&context, 0).stdout);
    let kernels = planned.iter().filter(|line| line["collection"].is_u64()).map(|line| &line["kernel"]);
    let mut count = BTreeMap::new();
    for kernel in kernels {
        *count.entry(kernel.as_str().expect("a name")).or_insert(0) += 1;
    }
    assert_eq!(count, BTreeMap::from([("MatMulV2", 2), ("RmsNorm", 2), ("SwiGlu", 4)]));
    Command::CheckDatabase.expect_code(&context, 0);
    assert!(files() == before, "a command that only reads changed a file");
    assert_ledger_is_unchanged(&context, "measured");
}

#[test]
fn a_new_run_adds_rows_and_keeps_the_measured_ones() {
    let context = opened("measured");
    // Device 7 was paused by the earlier version.
    let run = Command::RunMissing { database: "db", devices: "0-1,7" };
    run.expect_code(&context, 0);
    let (old, new) = (csv_files(&fixture("measured")), csv_files(&context.path("db")));
    // The earlier version ran each product as the kernel of its row.
    assert_eq!(differing(&old, &new), ["MatMulV2.csv", "MatMulV3.csv", "RmsNorm.csv", "SwiGlu.csv"]);
    for name in ["MatMulV2.csv", "MatMulV3.csv", "RmsNorm.csv", "SwiGlu.csv"] {
        let (old, new) = (String::from_utf8_lossy(&old[name]), String::from_utf8_lossy(&new[name]));
        let measured: Vec<&str> = old.lines().filter(|line| line.contains(",ok,")).collect();
        // New columns are appended.
        let is_kept = |new: &str, old: &str| {
            new.strip_prefix(old).is_some_and(|more| more.trim_matches(',').is_empty())
        };
        // New rows may be between them.
        let mut lines = new.lines();
        let survives = measured.iter().all(|old| lines.any(|new| is_kept(new, old)));
        assert!(survives && new.lines().count() > measured.len(), "{name} lost a measured row");
    }
    let verdicts = |context: &Context| -> Vec<String> {
        let rows = ["MatMulV2", "RmsNorm", "SwiGlu"].map(|kernel| context.rows("db", kernel));
        rows.iter().flatten().map(|row| row["MicroBench Verdict"].clone()).collect()
    };
    let (elsewhere, measured): (Vec<String>, Vec<String>) =
        verdicts(&context).into_iter().partition(|verdict| verdict == "ran_as_other");
    assert_eq!(elsewhere.len() + measured.len(), 1 + 2 + 3 + 2 + 1 + 4);
    assert!(measured.iter().all(|verdict| verdict == "ok"), "{measured:?}");
    let lines =
        |files: &BTreeMap<String, Vec<u8>>| String::from_utf8_lossy(&files["MatMulV3.csv"]).lines().count();
    assert!(!elsewhere.is_empty() && lines(&new) - lines(&old) == elsewhere.len(), "a row for each");
    let tables = ["runs", "planned", "collections", "attempts", "launches", "verdicts", "checks"];
    assert_ledger_rows_survive(&context, "measured", &tables);
    let ledger = Connection::open(context.path("db/.npubench/ledger.db")).expect("the ledger");
    let on_paused = "SELECT count(*) FROM collections WHERE device = 7";
    assert_eq!(ledger.query_row(on_paused, [], |row| row.get::<_, i64>(0)), Ok(0));
    // A device paused now joins the one that was paused then.
    let paused = Command::Pause { device: "3" }.expect_code(&context, 0);
    assert!(paused.stdout.contains("3,7"), "{}", paused.stdout);
}

/// The earlier version did not record the software of its samples, so new ones are not pooled with them.
#[test]
fn new_samples_start_a_generation_beside_those_of_the_earlier_version() {
    let context = opened("measured");
    let ran = Command::RunAll { kernels: "SwiGlu" }.expect_code(&context, 0);
    assert!(ran.stderr.contains("unknown version of the software"), "{}", ran.stderr);
    let rows = context.rows("db", "SwiGlu");
    let samples = rows.iter().map(|row| {
        let [samples, collections] = ["MicroBench Samples", "MicroBench Collections"].map(|name| &*row[name]);
        (samples, collections)
    });
    // The first row was measured before, the grid rows and mutants were not.
    assert_eq!(samples.collect::<Vec<_>>(), [("20", "1"); 5]);
    let (old, new) = (csv_files(&fixture("measured")), csv_files(&context.path("db")));
    assert_eq!(differing(&old, &new), ["SwiGlu.csv"]);
    assert_ledger_rows_survive(&context, "measured", &ALL_TABLES);
}

#[test]
fn an_interrupted_run_is_resumed_to_the_same_rows() {
    let context = opened("interrupted");
    let runs = json_lines(&Command::Runs.expect_code(&context, 0).stdout);
    assert_eq!((runs.len(), &runs[0]["cases"]), (1, &20.into()));
    assert_eq!(runs[0]["verdicts"], serde_json::json!({"ok": 7}));
    let run = runs[0]["run"].as_str().expect("an id").to_owned();
    Command::Resume.expect_code(&context, 0);
    let resumed = csv_files(&context.path("db"));
    for (name, expected) in measured_by_previous_version() {
        assert_eq!(stable_rows(&resumed[&name]), expected, "{name}");
        for row in context.rows("db", name.trim_end_matches(".csv")) {
            assert_eq!((&row["MicroBench Run"], &*row["MicroBench Verdict"]), (&run, "ok"));
        }
    }
    // The run and the collection that was running have an end now, and every verdict has the time of that end.
    let tables = ["cases", "planned", "attempts", "launches", "device_readings"];
    assert_ledger_rows_survive(&context, "interrupted", &tables);
    let ledger = Connection::open(context.path("db/.npubench/ledger.db")).expect("the ledger");
    for (sql, expected) in [
        ("SELECT count(*) FROM runs WHERE exit_code = 0", 1),
        ("SELECT count(*) FROM collections WHERE ended_ns IS NULL", 0),
        ("SELECT count(*) FROM attempts WHERE verdict = 'ok'", 20),
    ] {
        assert_eq!(ledger.query_row(sql, [], |row| row.get::<_, i64>(0)), Ok(expected), "{sql}");
    }
    // What the killed process recorded of its children is gone.
    let processes = fs::read_dir(context.path("db/.npubench/processes"));
    assert_eq!(processes.map_or(0, Iterator::count), 0);
}

#[test]
fn a_run_of_the_same_seed_gives_the_same_rows() {
    let context = Context::new();
    Command::Ingest { database: "db" }.expect_code(&context, 0);
    Command::RunMissing { database: "db", devices: "0-1" }.expect_code(&context, 0);
    let measured = csv_files(&context.path("db"));
    let expected = measured_by_previous_version();
    assert_eq!(expected.values().map(Vec::len).sum::<usize>(), 20);
    // The earlier version sorted the rows of a profile by signature.
    let sorted = |mut rows: Vec<BTreeMap<String, String>>| {
        rows.sort_by(|one, other| one["MicroBench Case"].cmp(&other["MicroBench Case"]));
        rows
    };
    for (name, rows) in expected {
        assert_eq!(sorted(stable_rows(&measured[&name])), sorted(rows), "{name}");
    }
}

/// A check changes nothing: the ledger is not updated to the current layout, and its evidence is not compared.
#[test]
fn check_with_evidence_leaves_an_earlier_ledger_unchanged() {
    let context = opened("measured");
    let ledger = context.path("db/.npubench/ledger.db");
    let before = fs::read(&ledger).expect("a ledger");
    let plain = context.run(&["db", "check", "db"]);
    let with_evidence = context.run(&["db", "check", "db", "--evidence"]);
    assert!(plain.stdout.contains("it has the layout of an earlier version"), "{}", plain.stdout);
    assert_eq!(
        (with_evidence.code, &with_evidence.stdout),
        (plain.code, &plain.stdout),
        "{}",
        with_evidence.stderr
    );
    let planned = context.run(&["db", "rebuild", "db", "--dry-run"]);
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    assert!(planned.stdout.contains("the ledger is intact"), "{}", planned.stdout);
    assert!(fs::read(&ledger).expect("a ledger") == before, "the ledger was changed");
}
