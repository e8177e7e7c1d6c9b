//! Pipes, sockets and devices in place of files, and damaged ledgers: each is refused at once, with its path and reason.

use std::{
    fs,
    os::unix::{fs::FileExt as _, fs::symlink, net::UnixListener},
    path::Path,
    process::{Child, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::{sys::stat::Mode, unistd::mkfifo};

use crate::{
    context::{Context, Ran, STEADY_RUN},
    kill_resume::{ingested, tables},
};

/// Time limit of a command that reads a pipe without a writer.
const LIMIT: Duration = Duration::from_secs(120);

/// Runs a command, which must end by itself.
fn run_limited(context: &Context, arguments: &[&str]) -> Ran {
    let mut command = context.command(arguments);
    let mut child: Child =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("npubench starts");
    let deadline = Instant::now() + LIMIT;
    while child.try_wait().expect("a status").is_none() {
        if Instant::now() > deadline {
            let _ = child.kill();
            panic!("{arguments:?} does not end");
        }
        thread::sleep(Duration::from_millis(10));
    }
    context.ran(&child.wait_with_output().expect("output"))
}

fn pipe(path: &Path) {
    let _ = fs::remove_file(path);
    fs::create_dir_all(path.parent().expect("below the root")).expect("created");
    mkfifo(path, Mode::S_IRWXU).expect("a pipe");
}

#[test]
fn pipe_in_place_of_any_file_is_refused_at_once() {
    const REHEARSE: [&str; 4] = ["--host", "rehearsal", "--devices", "0"];
    let plan = ["plan", "--db", "db"];
    let run = [&["run", "--db", "db"], &REHEARSE[..]].concat();
    let faults = [&run[..], &["--rehearsal-faults", "faults.yaml"]].concat();
    let commands: [(&str, &[&str]); 14] = [
        ("db/Add.csv", &plan),
        ("db/Add.csv", &run),
        ("db/Add.csv", &["grid", "Add", "--db", "db", "--rows", "3"]),
        ("db/database.yaml", &plan),
        ("db/.npubench/ledger.db", &plan),
        ("db/.npubench/ledger.db", &run),
        ("db/.npubench/ledger.db", &["runs", "--db", "db"]),
        ("p/op_summary_1.csv", &["ingest", "p", "--db", "new"]),
        ("p/op_summary_1.csv", &["ingest", "p/op_summary_1.csv", "--db", "new"]),
        ("p/kernel_details.csv", &["ingest", "p/kernel_details.csv", "--db", "new"]),
        ("p/msprof_1.db", &["ingest", "p/msprof_1.db", "--db", "new"]),
        ("dump.jsonl", &["fia-backfill", "--db", "db", "--dump", "dump.jsonl"]),
        ("grid.yaml", &["grid", "--db", "db", "--grids", "grid.yaml"]),
        ("faults.yaml", &faults),
    ];
    for (file, arguments) in commands {
        let context = Context::new();
        context.small_database("db");
        pipe(&context.path(file));
        let ran = run_limited(&context, arguments);
        let name = Path::new(file).file_name().expect("a name").to_string_lossy();
        assert!(matches!(ran.code, 3) && ran.stderr.contains(&*name), "{arguments:?}: {}", ran.stderr);
        assert!(ran.stderr.contains("not a regular file"), "{arguments:?}: {}", ran.stderr);
    }
}

#[test]
fn socket_and_device_in_place_of_a_table_are_refused() {
    let context = Context::new();
    context.small_database("db");
    let table = context.path("db/Add.csv");
    fs::remove_file(&table).expect("removed");
    let listener = UnixListener::bind(&table).expect("a socket");
    let ran = run_limited(&context, &["plan", "--db", "db"]);
    assert!(ran.code == 3 && ran.stderr.contains("it is a socket, not a regular file"), "{}", ran.stderr);
    drop(listener);
    fs::remove_file(&table).expect("removed");
    symlink("/dev/zero", &table).expect("linked");
    let ran = run_limited(&context, &["plan", "--db", "db"]);
    assert!(ran.code == 3 && ran.stderr.contains("it is a device, not a regular file"), "{}", ran.stderr);
    let ran = run_limited(&context, &["db", "check", "db"]);
    assert!(ran.code == 1 && ran.stdout.contains("it is a device"), "{}", ran.stdout);
}

/// Damage of a file: from an offset, so many bytes.
fn overwrite(path: &Path, offset: u64, length: usize) {
    let file = fs::File::options().write(true).open(path).expect("a file");
    file.write_all_at(&vec![0xA5; length], offset).expect("written");
}

#[test]
fn damaged_ledger_has_one_exit_code_and_its_hint_leads_out() {
    let original = ingested();
    assert_eq!(original.run(&STEADY_RUN).code, 0);
    let ledger = original.path("db/.npubench/ledger.db");
    let intact = fs::read(&ledger).expect("a ledger");
    let expected = tables(&original);
    let all = [&STEADY_RUN[..], &["--update", "all"]].concat();
    // The header, and everything after the first page.
    for (offset, length) in [(0, 100), (4096, intact.len() - 4096)] {
        fs::write(&ledger, &intact).expect("restored");
        overwrite(&ledger, offset, length);
        let commands: [&[&str]; 6] = [
            &["plan", "--db", "db"],
            &["runs", "--db", "db"],
            &["show", "--db", "db"],
            &["status", "--db", "db"],
            &["resume", "--db", "db"],
            &all,
        ];
        for arguments in commands {
            let ran = original.run(arguments);
            assert_eq!(ran.code, 3, "{arguments:?} {offset}: {}", ran.stderr);
            assert!(ran.stderr.contains("ledger.db` is damaged"), "{arguments:?} {offset}: {}", ran.stderr);
        }
        let ran = original.run(&["db", "check", "db"]);
        assert!(ran.code == 1 && ran.stdout.contains("[damaged-ledger]"), "{offset}: {}", ran.stdout);
        // Evidence cannot be compared with such a ledger, and the issues are printed as without it.
        let with_evidence = original.run(&["db", "check", "db", "--evidence"]);
        assert_eq!((with_evidence.code, &with_evidence.stdout), (1, &ran.stdout), "{}", with_evidence.stderr);
    }
    let ran = original.run(&all);
    insta::assert_snapshot!(ran.stderr, @r"
    error: the ledger `ROOT/db/.npubench/ledger.db` is damaged: database disk image is malformed
    hint: `npubench db rebuild ROOT/db` restores it from its copy and the evidence, and keeps the damaged one; the CSVs keep their results
    ");
    let rebuild = original.run(&["db", "rebuild", "db"]);
    assert_eq!(rebuild.code, 0, "{}{}", rebuild.stdout, rebuild.stderr);
    assert!(rebuild.stdout.contains("ledger.db.damaged-"), "{}", rebuild.stdout);
    // The rows keep their results, so that nothing is left to measure.
    let ran = original.run(&STEADY_RUN);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(tables(&original), expected);
    assert_eq!(original.run(&["db", "check", "db"]).code, 0);
}

#[test]
fn ledger_that_is_damaged_during_a_run_ends_it_as_bad_input() {
    let context = ingested();
    let mut child =
        context.command(&STEADY_RUN).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it runs");
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
    let ran = context.ran(&child.wait_with_output().expect("output"));
    assert_eq!(ran.code, 3, "{}", ran.stderr);
    assert!(ran.stderr.contains("is damaged"), "{}", ran.stderr);
}
