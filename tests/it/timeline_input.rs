//! `npubench timeline` on wrong, damaged and incomplete profiles.

use std::{fs, path::Path};

use crate::prelude::*;
use crate::timeline::{TABLE, TRACE, items, timeline, whole_number, write_database, write_text_profile};

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
    assert_eq!(context.read(&trace), TRACE);
    // A damaged table of the vendor's costs the comparison only.
    context.write(&format!("{output}/analysis.db"), "no database");
    let ran = context.run("timeline p_ascend_pt");
    assert!(ran.code == 0 && ran.stderr.contains("the vendor's table of steps is not compared: "), "{ran:?}");
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
        let ran = context.run("timeline killed");
        let expected = format!(
            "error: `killed/ascend_pytorch_profiler_0.db` was not closed: `killed/{log}` holds changes that belong to it\nhint: "
        );
        assert!(ran.code == 3 && ran.stderr.starts_with(&expected), "{mode}: {ran:?}");
        ran.err_has("PRAGMA journal_mode=DELETE");
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
