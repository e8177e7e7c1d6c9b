//! Pipes, sockets and devices in place of files, and damaged ledgers: each is refused at once, with its path and reason.

use std::{
    fs,
    os::unix::fs::FileExt as _,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use nix::{sys::stat::Mode, unistd::mkfifo};

use crate::prelude::*;

/// Time limit of a command that reads a pipe without a writer.
const LIMIT: Duration = Duration::from_secs(120);

/// Runs a command, which must end by itself.
fn run_limited(context: &Context, arguments: &str) -> Ran {
    let mut child = context.start(arguments);
    let deadline = Instant::now() + LIMIT;
    while child.try_wait().expect("a status").is_none() {
        if Instant::now() > deadline {
            let _ = child.kill();
            panic!("{arguments:?} does not end");
        }
        thread::sleep(Duration::from_millis(10));
    }
    context.finish(child)
}

fn pipe(path: &Path) {
    let _ = fs::remove_file(path);
    fs::create_dir_all(path.parent().expect("below the root")).expect("created");
    mkfifo(path, Mode::S_IRWXU).expect("a pipe");
}

#[test]
fn pipe_in_place_of_any_file_is_refused_at_once() {
    for (file, arguments) in [
        ("db/Add.csv", "plan --db db"),
        ("db/database.yaml", "plan --db db"),
        ("db/.npubench/ledger.db", "run --db db --host rehearsal --devices 0"),
        ("p/op_summary_1.csv", "ingest p --db new"),
        ("p/kernel_details.csv", "ingest p/kernel_details.csv --db new"),
        ("p/msprof_1.db", "ingest p/msprof_1.db --db new"),
        ("dump.jsonl", "fia-backfill --db db --dump dump.jsonl"),
        ("grid.yaml", "grid --db db --grids grid.yaml"),
        ("faults.yaml", "run --db db --host rehearsal --rehearsal-faults faults.yaml"),
    ] {
        let context = Context::new();
        context.small_database("db");
        pipe(&context.path(file));
        let ran = run_limited(&context, arguments).ended(3);
        let name = Path::new(file).file_name().expect("a name").to_string_lossy();
        ran.err_has(&name);
        ran.err_has("not a regular file");
    }
}

/// Damage of a file: from an offset, so many bytes.
fn overwrite(path: &Path, offset: u64, length: usize) {
    let file = fs::File::options().write(true).open(path).expect("a file");
    file.write_all_at(&vec![0xA5; length], offset).expect("written");
}

#[test]
fn damaged_ledger_has_one_exit_code_and_its_hint_leads_out() {
    let original = Context::of_measured_layer();
    let ledger = original.path("db/.npubench/ledger.db");
    let intact = fs::read(&ledger).expect("a ledger");
    let expected = tables(&original);
    // The header, and everything after the first page.
    for (offset, length) in [(0, 100), (4096, intact.len() - 4096)] {
        fs::write(&ledger, &intact).expect("restored");
        overwrite(&ledger, offset, length);
        for command in ["plan", "runs", "show", "status", "resume", "run --host rehearsal --update all"] {
            original.exits(3, &(command, "--db db")).err_has("ledger.db` is damaged");
        }
        let ran = original.run("db check db");
        assert!(ran.code == 1 && ran.stdout.contains("[damaged-ledger]"), "{offset}: {}", ran.stdout);
        // Evidence cannot be compared with such a ledger, and the issues are printed as without it.
        let with_evidence = original.run("db check db --evidence");
        assert_eq!((with_evidence.code, &with_evidence.stdout), (1, &ran.stdout), "{}", with_evidence.stderr);
    }
    let ran = original.run(&(STEADY_RUN, "--update all"));
    insta::assert_snapshot!(ran.stderr, @r"
    error: the ledger `ROOT/db/.npubench/ledger.db` is damaged: database disk image is malformed
    hint: `npubench db rebuild ROOT/db` restores it from its copy and the evidence, and keeps the damaged one; the CSVs keep their results
    ");
    let rebuild = original.run("db rebuild db").ended(0);
    rebuild.out_has("ledger.db.damaged-");
    // The rows keep their results, so that nothing is left to measure.
    original.run(&STEADY_RUN).ended(0);
    assert_eq!(tables(&original), expected);
    assert_eq!(original.run("db check db").code, 0);
}

#[test]
fn ledger_that_is_damaged_during_a_run_ends_it_as_bad_input() {
    let context = Context::of_layer();
    let mut child = context.start(&STEADY_RUN);
    let ledger = context.path("db/.npubench/ledger.db");
    let deadline = Instant::now() + LIMIT;
    while fs::metadata(&ledger).map_or(0, |found| found.len()) < 20_000 {
        assert!(Instant::now() < deadline, "no ledger is written");
        thread::sleep(Duration::from_millis(1));
    }
    while child.try_wait().expect("a status").is_none() {
        // SQLite keeps pages in memory until another program changes the file.
        overwrite(&ledger, 0, 4096);
        thread::sleep(Duration::from_millis(20));
    }
    let ran = context.finish(child).ended(3);
    ran.err_has("is damaged");
}
