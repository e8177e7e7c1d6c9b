//! Evidence of published numbers: rows are compared with the ledger.

use std::{fs, time::Duration};

use crate::prelude::*;

fn measure(context: &Context, more: &(impl Words + ?Sized)) -> Ran {
    context.done(&(LIFELIKE_RUN, more))
}

/// Checks the database; returns exit code and issues without the notes about missing columns.
fn check(context: &Context) -> (i32, String) {
    let ran = context.run("db check db");
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
    let context = Context::of_layer();
    measure(&context, "");
    measure(&context, "--update all");
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
        measure(&context, "");
        assert_eq!(check(&context), (0, String::new()), "{column}");
        assert!(tables(&context) == expected, "{column}");
    }
}

#[test]
fn verdicts_and_shapes_without_evidence_are_found() {
    let context = Context::of_layer();
    let faults =
        context.write("faults.yaml", "faults:\n- out_of_memory: {at: arguments}\n  where: {kernel: Sort}\n");
    context.exits(1, &(LIFELIKE_RUN, &["--rehearsal-faults", &faults.to_string_lossy()]));
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

/// Rows of a killed run may be behind the ledger, which is a note. A ledger whose transaction was interrupted cannot be read
/// without changing it, until the next run.
#[test]
fn rows_of_a_killed_run_are_behind_the_ledger_until_it_is_resumed() {
    for delay in [400, 900, 1500] {
        let context = Context::of_layer();
        measure(&context, "");
        let again = [&LIFELIKE_RUN[..], &["--update", "all"]].concat();
        killed_after(&context, &again, Duration::from_millis(delay));
        let (code, issues) = check(&context);
        // The kill may hit the write of a table.
        let is_of_kill =
            |line: &str| ["[behind-ledger]", "[left-behind]"].iter().any(|kind| line.ends_with(kind));
        let is_note = |line: &str| line.contains(": note: ") && is_of_kill(line);
        assert!(code == 0 && issues.lines().all(is_note), "{issues}");
        let resumed = context.run("resume --db db");
        let ended = if resumed.code == 3 { measure(&context, "") } else { resumed };
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        assert_eq!(check(&context), (0, String::new()));
    }
}

/// The archive has the tables that were read, and a changed one is found.
#[test]
fn compressed_evidence_of_each_collection_is_checked() {
    let context = Context::new();
    context.small_database("db");
    measure(&context, "");
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
