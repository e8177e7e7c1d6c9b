//! Evidence of published numbers: rows are compared with the ledger.

use std::{fs, time::Duration};

use crate::{
    context::{Context, LIFELIKE_RUN, Ran},
    kill_resume::{ingested, killed_after, tables},
};

fn measure(context: &Context, more: &[&str]) -> Ran {
    let ran = context.run(&[&LIFELIKE_RUN[..], more].concat());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    ran
}

/// Checks the database; returns exit code and issues without the notes about missing columns.
fn check(context: &Context) -> (i32, String) {
    let ran = context.run(&["db", "check", "db"]);
    let lines = ran.stdout.lines().filter(|line| !line.ends_with("[missing-columns]"));
    (ran.code, lines.map(|line| format!("{line}\n")).collect())
}

/// Replaces a cell of the first row of a table.
fn edit(context: &Context, kernel: &str, column: &str, change: impl Fn(&str) -> String) {
    let path = context.path(&format!("db/{kernel}.csv"));
    let text = fs::read_to_string(&path).expect("a table");
    let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(text.as_bytes());
    let rows: Vec<csv::StringRecord> = reader.records().map(|row| row.expect("a row")).collect();
    let index = rows[0].iter().position(|name| name == column).expect("a column");
    let mut writer = csv::Writer::from_path(&path).expect("created");
    for (number, row) in rows.iter().enumerate() {
        let cells = row.iter().enumerate().map(|(cell, text)| match (number, cell == index) {
            (1, true) => change(text),
            _ => text.to_owned(),
        });
        writer.write_record(cells).expect("written");
    }
    writer.flush().expect("written");
}

fn double(cell: &str) -> String {
    format!("{:.6}", cell.parse::<f64>().expect("a number") * 2.0)
}

/// Each measured cell is found, and the next run writes the ledger's values.
#[test]
fn measured_cell_changed_by_hand_is_found_and_written_again() {
    let context = ingested();
    measure(&context, &[]);
    measure(&context, &["--update", "all"]);
    assert_eq!(check(&context), (0, String::new()));
    let expected = tables(&context);
    let columns = [
        "Average Duration(us)",
        "MicroBench Median Duration(us)",
        "MicroBench Std Duration(us)",
        "MicroBench Min Duration(us)",
        "MicroBench P95 Duration(us)",
        "MicroBench CI95 Low(us)",
        "MicroBench CI95 High(us)",
        "MicroBench Estimate(us)",
        "MicroBench aiv_time(us)",
    ];
    for column in columns {
        edit(&context, "SwiGlu", column, double);
        let (code, issues) = check(&context);
        assert_eq!(code, 1, "{column}");
        assert!(issues.starts_with("db/SwiGlu.csv:2: error: `") && issues.contains(column), "{issues}");
        assert_eq!(issues.lines().count(), 1, "{issues}");
        measure(&context, &[]);
        assert_eq!(check(&context), (0, String::new()), "{column}");
        assert!(tables(&context) == expected, "{column}");
    }
}

#[test]
fn issue_names_both_values_and_the_way_out() {
    let context = ingested();
    measure(&context, &["--seed", "7"]);
    let row = context.rows("db", "SwiGlu").remove(0);
    edit(&context, "SwiGlu", "Average Duration(us)", |_| "1.5".to_owned());
    let (code, issues) = check(&context);
    assert_eq!(code, 1);
    let expected = format!(
        "db/SwiGlu.csv:2: error: `Average Duration(us)` is `1.5`, the ledger has `{}`: the next `npubench run` writes \
         the values of the ledger [ledger-mismatch]\n",
        row["Average Duration(us)"]
    );
    assert_eq!(issues, expected);
    // More samples than the ledger has are not overwritten.
    edit(&context, "SwiGlu", "MicroBench Samples", |_| "400".to_owned());
    let (_, issues) = check(&context);
    assert!(
        issues.contains(
            "`MicroBench Samples` is `400`, the ledger has `20`: empty the measured cells of the row"
        ),
        "{issues}"
    );
}

#[test]
fn verdicts_and_shapes_without_evidence_are_found() {
    let context = ingested();
    let faults =
        context.write("faults.yaml", "faults:\n- out_of_memory: {at: arguments}\n  where: {kernel: Sort}\n");
    let ran = context.run(&[&LIFELIKE_RUN[..], &["--rehearsal-faults", &faults.to_string_lossy()]].concat());
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert_eq!(context.rows("db", "Sort")[0]["MicroBench Verdict"], "oom");
    assert_eq!(check(&context), (0, String::new()));
    edit(&context, "Sort", "MicroBench Verdict", |_| "hung".to_owned());
    edit(&context, "SwiGlu", "MicroBench Verdict", |_| "noisy".to_owned());
    edit(&context, "RmsNorm", "Input Shapes", |cell| cell.replacen("1,", "3,", 1).replacen("6,", "5,", 1));
    edit(&context, "RmsNorm", "Output Shapes", |cell| cell.replacen("1,", "3,", 1).replacen("6,", "5,", 1));
    let (code, issues) = check(&context);
    assert_eq!(code, 1);
    insta::with_settings!({filters => vec![
        (r"rehearsal-[-0-9]+", "RUN"), (r"case [0-9a-f]{16}", "case ID"), (r"`[0-9]+\.[0-9]{6}`", "`TIME`"),
    ]}, {
        insta::assert_snapshot!(issues, @r"
        db/RmsNorm.csv:2: error: `Average Duration(us)` is `TIME`, the ledger has no measurement of case ID: restore the row's shapes, or empty its measured cells, so that `npubench run` measures it [ledger-mismatch]
        db/Sort.csv:2: error: `MicroBench Verdict` is `hung`, which is not a verdict of this case in run RUN: restore the row, or empty its `MicroBench` cells [ledger-mismatch]
        db/SwiGlu.csv:2: error: `MicroBench Verdict` is `noisy`, the ledger has `ok`: the next `npubench run` writes the values of the ledger [ledger-mismatch]
        ");
    });
}

/// Runs, repetitions, demanded precision, and a kernel measured alone, after which the intervals of all others change.
#[test]
fn rows_of_all_runs_agree_with_the_ledger() {
    let context = ingested();
    measure(&context, &[]);
    assert_eq!(check(&context), (0, String::new()), "one collection of each case");
    measure(&context, &["--update", "all"]);
    assert_eq!(check(&context), (0, String::new()), "joint fit");
    measure(&context, &["--update", "all", "--kernels", "SwiGlu,RmsNorm"]);
    assert_eq!(check(&context), (0, String::new()), "two kernels again");
    let software = context.write("host.yaml", "software: {cann: 8.5.0}\n").to_string_lossy().into_owned();
    measure(&context, &["--update", "all", "--kernels", "MatMulV3", "--rehearsal-faults", &software]);
    assert_eq!(check(&context), (0, String::new()), "another generation of software");
    measure(&context, &["--precision", "2", "--max-collections", "4"]);
    assert_eq!(check(&context), (0, String::new()), "further rounds");
}

/// Rows of a killed run may be behind the ledger, which is a note. A ledger whose transaction was interrupted cannot be read
/// without changing it, until the next run.
#[test]
fn rows_of_a_killed_run_are_behind_the_ledger_until_it_is_resumed() {
    for delay in [400, 900, 1500] {
        let context = ingested();
        measure(&context, &[]);
        let again = [&LIFELIKE_RUN[..], &["--update", "all"]].concat();
        killed_after(&context, &again, Duration::from_millis(delay));
        let (code, issues) = check(&context);
        // The kill may hit the write of a table.
        let is_of_kill =
            |line: &str| ["[behind-ledger]", "[left-behind]"].iter().any(|kind| line.ends_with(kind));
        let is_note = |line: &str| line.contains(": note: ") && is_of_kill(line);
        assert!(code == 0 && issues.lines().all(is_note), "{issues}");
        let resumed = context.run(&["resume", "--db", "db"]);
        let ended = if resumed.code == 3 { measure(&context, &[]) } else { resumed };
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        assert_eq!(check(&context), (0, String::new()));
    }
}

/// A transaction that a kill interrupted is rolled back by the first reader, so that rows are compared with what was committed.
#[test]
fn interrupted_transactions_are_rolled_back_by_a_reader() {
    let context = ingested();
    measure(&context, &[]);
    let path = context.path("db/.npubench/ledger.db");
    let committed = fs::read(&path).expect("the ledger");
    // A transaction of more pages than the cache has is partly in the file, with the old pages in its journal.
    let ledger = rusqlite::Connection::open(&path).expect("the ledger");
    ledger.execute_batch("PRAGMA cache_size = 2; PRAGMA cache_spill = 1; BEGIN IMMEDIATE").expect("started");
    ledger.execute_batch("UPDATE attempts SET remarks = remarks || hex(randomblob(3000))").expect("written");
    ledger.execute_batch("UPDATE cases SET signature = signature || hex(randomblob(3000))").expect("written");
    // Copies of both files are what a kill leaves.
    let journal = fs::read(context.path("db/.npubench/ledger.db-journal")).expect("a journal");
    let interrupted = fs::read(&path).expect("the ledger");
    drop(ledger);
    assert_ne!(interrupted, committed);
    fs::write(&path, interrupted).expect("written");
    fs::write(context.path("db/.npubench/ledger.db-journal"), journal).expect("written");
    assert_eq!(check(&context), (0, String::new()));
    assert_eq!(fs::read(&path).expect("the ledger"), committed);
}

/// A clone of the folder has no ledger, and a ledger of its own after its first run.
#[test]
fn rows_of_other_ledgers_are_not_compared() {
    let context = ingested();
    measure(&context, &[]);
    fs::remove_dir_all(context.path("db/.npubench")).expect("as in a clone of the folder");
    edit(&context, "SwiGlu", "Average Duration(us)", double);
    let note = "db/.npubench/ledger.db:1: note: rows are not compared with the ledger: there is none, and 20 rows name a run [not-compared]\n";
    assert_eq!(check(&context), (0, note.to_owned()));
    measure(&context, &["--update", "all", "--kernels", "RmsNorm"]);
    let (code, issues) = check(&context);
    assert_eq!(code, 0, "{issues}");
    let note = "db/SwiGlu.csv:2: note: 1 row from here on with results of runs that are not in the ledger [not-compared]";
    assert!(issues.contains(note), "{issues}");
    assert!(!issues.contains("RmsNorm"), "{issues}");
}

/// A number that was changed with the name of its run is found, as the ledger has a result of the case.
#[test]
fn row_of_an_unknown_run_is_compared_if_the_ledger_has_its_case() {
    let context = ingested();
    measure(&context, &[]);
    let row = context.rows("db", "SwiGlu").remove(0);
    let before = tables(&context);
    let ledger = rusqlite::Connection::open(context.path("db/.npubench/ledger.db")).expect("the ledger");
    edit(&context, "SwiGlu", "Average Duration(us)", double);
    for run in ["rehearsal-20250101-000000-1", ""] {
        edit(&context, "SwiGlu", "MicroBench Run", |_| run.to_owned());
        let (code, issues) = check(&context);
        assert_eq!(code, 1, "{issues}");
        let expected = format!(
            "db/SwiGlu.csv:2: warning: `MicroBench Run` is `{run}`, which is not a run of the ledger, although it has a result \
             of this case; `Average Duration(us)` is `{}`, the ledger has `{}`: empty the measured cells of the row, so that \
             `npubench run` writes the ledger's, unless it is of another host [unknown-run]\n",
            double(&row["Average Duration(us)"]),
            row["Average Duration(us)"]
        );
        assert_eq!(issues, expected);
        // The run that it names is another one of the ledger.
        ledger
            .execute_batch("INSERT INTO runs SELECT 'rehearsal-20250101-000000-1', kind, seed, options, host, 1, 2, 0 FROM runs")
            .expect("a run");
        let (_, issues) = check(&context);
        assert!(run.is_empty() || issues.ends_with("[ledger-mismatch]\n"), "{issues}");
        ledger.execute_batch("DELETE FROM runs WHERE run = 'rehearsal-20250101-000000-1'").expect("removed");
    }
    // The next run keeps the row: it may be of another host.
    measure(&context, &[]);
    let average = || context.rows("db", "SwiGlu")[0]["Average Duration(us)"].clone();
    assert_eq!(average(), double(&row["Average Duration(us)"]));
    let written = context.run(&["reparse", "--db", "db", "--write"]);
    assert_eq!((written.code, average()), (0, double(&row["Average Duration(us)"])), "{}", written.stderr);
    // A row with more samples is of another ledger.
    edit(&context, "SwiGlu", "MicroBench Run", |_| "rehearsal-20250101-000000-1".to_owned());
    edit(&context, "SwiGlu", "MicroBench Samples", |_| "400".to_owned());
    let (code, issues) = check(&context);
    assert!(code == 0 && issues.ends_with("[not-compared]\n"), "{issues}");
    // Emptied results are written again.
    for column in row.keys() {
        if column == "Average Duration(us)" || column.starts_with("MicroBench ") {
            edit(&context, "SwiGlu", column, |_| String::new());
        }
    }
    let note = "db/SwiGlu.csv:2: note: 1 row from here on without the newest result of the ledger; the next `npubench run` \
                writes it [behind-ledger]\n";
    assert_eq!(check(&context), (0, note.to_owned()));
    measure(&context, &[]);
    assert!(tables(&context) == before);
    assert_eq!(check(&context), (0, String::new()));
}

/// A database does not have the profiles of its production values.
#[test]
fn production_values_are_stated_not_to_be_compared() {
    let context = ingested();
    let text = "are not compared: the database does not have the profiles";
    assert!(
        !context.run(&["db", "check", "db"]).stderr.contains(text),
        "nothing is compared without a ledger"
    );
    measure(&context, &[]);
    edit(&context, "SwiGlu", "Profiling Average Duration(us)", double);
    let ran = context.run(&["db", "check", "db"]);
    assert!(ran.stderr.contains(&format!("the `Profiling` cells of 20 rows {text}")), "{}", ran.stderr);
    let ran = context.run(&["db", "check", "db", "--format", "json"]);
    let checked: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON");
    assert_eq!(checked["production_not_compared"], 20);
}

/// The archive has the tables that were read, and a changed one is found.
#[test]
fn compressed_evidence_of_each_collection_is_checked() {
    let context = Context::new();
    context.small_database("db");
    measure(&context, &[]);
    let ledger = rusqlite::Connection::open(context.path("db/.npubench/ledger.db")).expect("the ledger");
    let sql = "SELECT run, number FROM collections WHERE length(archive) = 64";
    let mut statement = ledger.prepare(sql).expect("a query");
    let found = statement.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, u32>(1)?)));
    let found: Vec<(String, u32)> = found.expect("rows").map(|row| row.expect("a collection")).collect();
    let all: i64 = ledger
        .query_row("SELECT count(*) FROM collections", [], |row| row.get(0))
        .expect("a number of collections");
    assert!(!found.is_empty() && found.len() == usize::try_from(all).expect("few"), "{found:?} of {all}");
    let (run, number) = &found[0];
    let folder = context.path(&format!("db/.npubench/runs/{run}/collections/{number:05}"));
    let archive = folder.join("evidence.tar.gz");
    let bytes = fs::read(&archive).expect("an archive");
    let mut names = Vec::new();
    for entry in tar::Archive::new(flate2::read::GzDecoder::new(&*bytes)).entries().expect("entries") {
        let mut entry = entry.expect("an entry");
        let name = entry.path().expect("a path").into_owned();
        let mut text = Vec::new();
        std::io::Read::read_to_end(&mut entry, &mut text).expect("content");
        assert_eq!(text, fs::read(folder.join(&name)).expect("a file"), "{}", name.display());
        names.push(name.to_string_lossy().into_owned());
    }
    for part in ["manifest.json", "replay.py", "collect.sh", "launched.jsonl", "op_summary"] {
        assert!(names.iter().any(|name| name.contains(part)), "{part}: {names:?}");
    }
    assert_eq!(check(&context), (0, String::new()));
    fs::write(&archive, [&bytes[..], b"x"].concat()).expect("written");
    let (code, issues) = check(&context);
    let place = format!(
        "db/.npubench/runs/{run}/collections/{number:05}/evidence.tar.gz:1: error: was changed after"
    );
    assert!(code == 1 && issues.starts_with(&place) && issues.ends_with(" [changed-evidence]\n"), "{issues}");
    fs::remove_file(&archive).expect("removed");
    assert_eq!(check(&context), (0, String::new()));
    fs::create_dir(&archive).expect("another kind of file");
    let (code, issues) = check(&context);
    assert!(
        code == 0 && issues.contains("evidence.tar.gz:1: note: cannot be compared with its SHA-256"),
        "{issues}"
    );
    assert!(issues.ends_with(" [not-compared]\n"), "{issues}");
}
