//! Databases and files from somebody else, and hosts at their limits: nothing outside the folder is written, no foreign
//! program is executed or ended, and no input takes the process down.

use std::{fs, os::unix::fs::symlink, path::Path, process::Command, thread, time::Duration};

use rusqlite::Connection;

use crate::prelude::*;

const RUN: [&str; 6] = ["run", "--host", "rehearsal", "--devices", "0-1", "--db"];

fn run_on(context: &Context, database: &str) -> Ran {
    context.run(&(RUN, &[database]))
}

#[test]
fn lock_file_that_is_a_link_does_not_empty_its_target() {
    let context = Context::new();
    context.small_database("db");
    let mine = context.write("mine.txt", "precious\n");
    fs::create_dir_all(context.path("db/.npubench")).expect("created");
    symlink(&mine, context.path("db/.npubench/lock")).expect("linked");
    let ran = run_on(&context, "db").ended(3);
    insta::assert_snapshot!(ran.stderr, @"
    error: `ROOT/db/.npubench/lock` is a symbolic link
    hint: npubench writes no file through a link in its state folder; remove the link
    ");
    assert_eq!(fs::read_to_string(mine).expect("read"), "precious\n");
}

/// A copy taken during a run has the records of its processes, and must not end them.
#[test]
fn a_run_on_a_copy_ends_no_collection_of_the_original() {
    let context = Context::of_layer();
    let slow = context.write("slow.yaml", "speed: 1\ncosts: {start: 1}\n");
    let slow = slow.to_string_lossy().into_owned();
    let arguments = [&RUN[..], &["db", "--rehearsal-faults", &slow, "--kernels", "Add,SwiGlu"]].concat();
    let mut original = context.start(&arguments);
    let records = context.path("db/.npubench/processes");
    while fs::read_dir(&records).map_or(0, Iterator::count) == 0 {
        assert_eq!(original.try_wait().expect("waited"), None, "it ended before its first collection");
        thread::sleep(Duration::from_millis(2));
    }
    copy_folder(&context.path("db"), &context.path("copy"));
    let on_copy = context.run(&(RUN, "copy --kernels RmsNorm"));
    on_copy.err_lacks("ended");
    let original = context.ran(&original.wait_with_output().expect("ended"));
    original.err_lacks("signal");
    assert_eq!(original.code, 0, "{}", original.stderr);
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("created");
    for entry in fs::read_dir(from).expect("listed").flatten() {
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        match entry.file_type().expect("a type") {
            kind if kind.is_dir() => copy_folder(&path, &target),
            // Sockets and files that end meanwhile are no part of the copy.
            kind if kind.is_file() => drop(fs::copy(&path, &target)),
            _ => {}
        }
    }
}

/// Run ids become parts of paths and of the collection's shell script.
#[test]
fn run_ids_that_npubench_did_not_create_are_refused() {
    for (id, shown) in
        [("x\ntouch PWN", r#""x\ntouch PWN""#), ("../../escape", "../../escape"), ("", r#""""#)]
    {
        let context = Context::of_layer();
        assert!([0, 1].contains(&run_on(&context, "db").code));
        let ledger = Connection::open(context.path("db/.npubench/ledger.db")).expect("a ledger");
        let tables = ["planned", "collections", "verdicts", "device_readings"];
        ledger.execute_batch("PRAGMA foreign_keys = OFF").expect("set");
        ledger.execute("UPDATE runs SET run = ?1, ended_ns = NULL, exit_code = NULL", [id]).expect("changed");
        for table in tables {
            ledger.execute(&format!("UPDATE {table} SET run = ?1"), [id]).expect("changed");
        }
        drop(ledger);
        let before = context.snapshot("");
        for arguments in [["resume", "--db", "db"], ["show", "--db", "db"], ["runs", "--db", "db"]] {
            let ran = context.exits(3, &arguments);
            ran.err_has("has a run with the id");
            ran.err_has(shown);
        }
        let after = context.snapshot("");
        let new: Vec<_> = after.keys().filter(|path| !before.contains_key(*path)).collect();
        assert!(new.iter().all(|path| path.starts_with("db/.npubench")), "{new:?}");
    }
}

#[test]
fn resume_prints_the_programs_that_the_ledger_names() {
    let context = Context::of_layer();
    let python = context.path("python-of-mine");
    symlink(interpreter(), &python).expect("linked");
    let python = python.to_string_lossy().into_owned();
    context.done(&(RUN, &["db", "--python", &python, "--kernels", "Add"]));
    let ledger = Connection::open(context.path("db/.npubench/ledger.db")).expect("a ledger");
    ledger.execute("UPDATE runs SET ended_ns = NULL, exit_code = NULL", []).expect("changed");
    drop(ledger);
    let ran = context.run("resume --db db");
    ran.err_has("uses the interpreter `ROOT/python-of-mine`");
}

/// Path of the interpreter itself: `python3` may be a script that selects one by its name.
fn interpreter() -> String {
    let output = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output();
    String::from_utf8(output.expect("python3 runs").stdout).expect("a path").trim().to_owned()
}

/// What a terminal would execute is escaped in messages and tables: of profiles, lists, options, files and the configuration.
#[test]
fn control_characters_of_others_do_not_reach_the_terminal() {
    const EVIL: &str = "\u{1b}]0;t\u{7}\u{202e}\u{9b}";
    let context = Context::new();
    context.small_database("db");
    for (at, record) in [SWIGLU.replacen("SwiGlu", EVIL, 1), ADD.replace("FLOAT", EVIL)].iter().enumerate() {
        context.write(&format!("{at}.csv"), &profile(&[record]));
    }
    context.write(&format!("{EVIL}.csv"), "no table");
    context
        .write("list.yaml", &format!("name: \"{}\"\nquestions:\n- {{op: \"\\e[31m\"}}\n", r"\e[31m\u202e"));
    context.write("key.yaml", "\"\\e]0;t\\a\": 1\n");
    let file = format!("{EVIL}.csv");
    for arguments in [
        &["ingest", "0.csv", "--db", "new"][..],
        &["ingest", "1.csv", "--db", "new"],
        &["ingest", &file, "--db", "new"],
        &["coverage", "--db", "db", "--workload", "list.yaml"],
        &["coverage", "--db", "db", "--workload", "key.yaml"],
        &["run", "--db", EVIL],
        &["run", &file],
        &["grid", "Add", "--db", EVIL],
    ] {
        let ran = context.run(arguments);
        assert!(ran.code != 0, "{arguments:?}");
        let shown = ran.stdout + &ran.stderr;
        let is_harmful = |c: char| c != '\n' && (c.is_control() || c == '\u{202e}');
        assert!(!shown.contains(is_harmful) && shown.contains("\\x1b"), "{arguments:?}: {shown:?}");
    }
}
