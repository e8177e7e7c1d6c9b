//! Databases and files from somebody else, and hosts at their limits: nothing outside the folder is written, no foreign
//! program is executed or ended, and no input takes the process down.

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use rusqlite::Connection;

use crate::{
    context::{Context, Ran},
    kill_resume::ingested,
};

const RUN: [&str; 6] = ["run", "--host", "rehearsal", "--devices", "0-1", "--db"];

fn run_on(context: &Context, database: &str) -> Ran {
    context.run(&[&RUN[..], &[database]].concat())
}

#[test]
fn lock_file_that_is_a_link_does_not_empty_its_target() {
    let context = Context::new();
    context.small_database("db");
    let mine = context.write("mine.txt", "precious\n");
    fs::create_dir_all(context.path("db/.npubench")).expect("created");
    symlink(&mine, context.path("db/.npubench/lock")).expect("linked");
    let ran = run_on(&context, "db");
    assert_eq!(ran.code, 3);
    insta::assert_snapshot!(ran.stderr, @"
    error: `ROOT/db/.npubench/lock` is a symbolic link
    hint: npubench writes no file through a link in its state folder; remove the link
    ");
    assert_eq!(fs::read_to_string(mine).expect("read"), "precious\n");
}

/// A copy taken during a run has the records of its processes, and must not end them.
#[test]
fn a_run_on_a_copy_ends_no_collection_of_the_original() {
    let context = ingested();
    let slow = context.write("slow.yaml", "speed: 1\ncosts: {start: 1}\n");
    let slow = slow.to_string_lossy().into_owned();
    let arguments = [&RUN[..], &["db", "--rehearsal-faults", &slow, "--kernels", "Add,SwiGlu"]].concat();
    let mut original =
        context.command(&arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("started");
    let records = context.path("db/.npubench/processes");
    while fs::read_dir(&records).map_or(0, Iterator::count) == 0 {
        assert_eq!(original.try_wait().expect("waited"), None, "it ended before its first collection");
        thread::sleep(Duration::from_millis(2));
    }
    copy_folder(&context.path("db"), &context.path("copy"));
    let on_copy = context.run(&[&RUN[..], &["copy", "--kernels", "RmsNorm"]].concat());
    assert!(!on_copy.stderr.contains("ended"), "{}", on_copy.stderr);
    let original = context.ran(&original.wait_with_output().expect("ended"));
    assert!(!original.stderr.contains("signal"), "{}", original.stderr);
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
        let context = ingested();
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
            let ran = context.run(&arguments);
            assert_eq!(ran.code, 3, "{arguments:?}: {}", ran.stderr);
            assert!(
                ran.stderr.contains("has a run with the id") && ran.stderr.contains(shown),
                "{}",
                ran.stderr
            );
        }
        let after = context.snapshot("");
        let new: Vec<_> = after.keys().filter(|path| !before.contains_key(*path)).collect();
        assert!(new.iter().all(|path| path.starts_with("db/.npubench")), "{new:?}");
    }
}

#[test]
fn resume_prints_the_programs_that_the_ledger_names() {
    let context = ingested();
    let python = context.path("python-of-mine");
    symlink(interpreter(), &python).expect("linked");
    let python = python.to_string_lossy().into_owned();
    let ran = context.run(&[&RUN[..], &["db", "--python", &python, "--kernels", "Add"]].concat());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let ledger = Connection::open(context.path("db/.npubench/ledger.db")).expect("a ledger");
    ledger.execute("UPDATE runs SET ended_ns = NULL, exit_code = NULL", []).expect("changed");
    drop(ledger);
    let ran = context.run(&["resume", "--db", "db"]);
    assert!(ran.stderr.contains("uses the interpreter `ROOT/python-of-mine`"), "{}", ran.stderr);
}

/// Path of the interpreter itself: `python3` may be a script that selects one by its name.
fn interpreter() -> String {
    let output = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output();
    String::from_utf8(output.expect("python3 runs").stdout).expect("a path").trim().to_owned()
}

#[test]
fn an_expression_of_many_terms_is_refused_with_its_place() {
    let context = Context::new();
    let sum = vec!["t"; 20_000].join("+");
    let grid = format!(
        "summary: s\npatterns:\n  p:\n    kernels: [RmsNorm]\n    axes: {{t: [1], d: [8]}}\n    \
         inputs: {{shapes: \"{sum},d; d\", dtypes: DT_BF16}}\n    \
         outputs: {{shapes: \"t,d; t,1\", dtypes: \"DT_BF16; FLOAT\"}}\n"
    );
    context.write("long.yaml", &grid);
    context.write(
        "deep.yaml",
        &format!("patterns: {{p: {{axes: {{t: {}{}}}}}}}\n", "[".repeat(100_000), "]".repeat(100_000)),
    );
    let refused = |file: &str| {
        let ran = context.run(&["grid", "--db", "x", "--grids", file, "--dry-run"]);
        assert_eq!(ran.code, 3, "{}", ran.stderr);
        ran.stderr
    };
    insta::assert_snapshot!(refused("long.yaml"), @"
    error: long.yaml:6:22: pattern `p`: `t+t+t+t+t+t+t+t+t+t+t+t+t+t+t+t+t+t+t+t+t+t+t+t+t+t+t+t+t+t+t+t+t+t+t+t+t+t+t+t+t+t+t+t+t+t+t+t+t+t…`: more than 800 operators at column 1602
    hint: docs/grids.md explains every key
    ");
    insta::assert_snapshot!(refused("deep.yaml"), @"
    error: deep.yaml:1:55: is nested too deeply, the limit is 32 levels
    hint: correct the file and try again
    ");
}

/// With no thread left, tables are read and grids expanded on one.
#[test]
fn commands_work_at_the_process_limit() {
    let context = ingested();
    let program = context.path("npubench");
    fs::copy(assert_cmd::cargo::cargo_bin!("npubench"), &program).expect("copied");
    let script = "import os, resource, sys\n\
        if os.getuid() == 0: os.setgroups([]); os.setuid(65534)\n\
        resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))\n\
        os.execv(sys.argv[1], sys.argv[1:])\n";
    for folder in [context.path(""), context.path("db")] {
        let mut open = fs::metadata(&folder).expect("a folder").permissions();
        std::os::unix::fs::PermissionsExt::set_mode(&mut open, 0o777);
        fs::set_permissions(&folder, open).expect("changed");
    }
    let profile = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/decoder-layer/kernel_details.csv");
    fs::copy(profile, context.path("kernel_details.csv")).expect("copied");
    for arguments in [
        &["grid", "--db", "new", "--rows", "9", "--kind", "rehearsal", "--dry-run"][..],
        &["ingest", "kernel_details.csv", "--db", "other", "--kind", "rehearsal"],
        &["grid", "audit", "--db", "db"],
    ] {
        let output = Command::new("python3")
            .args(["-c", script])
            .arg(&program)
            .args(arguments)
            .current_dir(context.path(""))
            .env("TMPDIR", context.path(""))
            .output()
            .expect("python3 runs");
        let ran = context.ran(&output);
        assert!([0, 1].contains(&ran.code), "{arguments:?}: {} {}", ran.code, ran.stderr);
    }
}
