//! Faults of the host around a run: a hung `npu-smi`, limits of open files, tables that are deleted, a wrong clock.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use crate::prelude::*;

/// Time limit of a query of `npu-smi`.
const QUERY: Duration = Duration::from_secs(60);

fn find_file(folder: PathBuf, name: &str) -> Option<PathBuf> {
    let mut folders = vec![folder];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_name() == name {
                return Some(entry.path());
            }
            if entry.path().is_dir() {
                folders.push(entry.path());
            }
        }
    }
    None
}

#[test]
fn run_does_not_wait_for_a_hung_npu_smi_at_its_end() {
    let context = Context::of_layer();
    let mut child = context.start(&STEADY_RUN);
    let runs = context.path("db/.npubench/runs");
    // The run has read its devices when the first collection has a folder.
    while find_file(runs.clone(), "00001").is_none() {
        assert!(child.try_wait().expect("a status").is_none(), "the run ended before its first collection");
        thread::sleep(Duration::from_millis(2));
    }
    let program = find_file(runs, "npu-smi").expect("a stand-in");
    let began = context.path("began");
    let draft = context
        .write("hangs", &format!("#!/bin/sh\ntrap '' TERM\n>'{}'\nexec sleep 1000\n", began.display()));
    fs::set_permissions(&draft, fs::Permissions::from_mode(0o755)).expect("set");
    fs::rename(&draft, &program).expect("replaced");
    assert_eq!(child.wait().expect("reaped").code(), Some(0));
    // A query that never began, because the run was short, shows nothing.
    if let Ok(began) = fs::metadata(&began).and_then(|found| found.modified()) {
        assert!(began.elapsed().is_ok_and(|waited| waited < QUERY), "the run waited for the query");
    }
    assert_eq!(processes_in(&context.path("db")), Vec::<String>::new());
}

#[test]
fn limit_of_open_files_ends_a_run_as_a_fault_of_the_host() {
    let context = Context::of_layer();
    let program = assert_cmd::cargo::cargo_bin!("npubench");
    let mut codes = Vec::new();
    for files in (4..30).step_by(3) {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -n {files}; exec \"$0\" \"$@\"")]).arg(program).args(STEADY_RUN);
        let output = command.current_dir(context.path(".")).output().expect("a shell");
        let ran = context.ran(&output);
        if ran.code == 0 {
            break;
        }
        // Which program lacks files first depends on the limit: the loader, the ledger, the run, or its programs.
        assert!(matches!(ran.code, 1 | 3 | 4 | 5 | 127), "{files} files: {}: {}", ran.code, ran.stderr);
        if ran.stderr.contains("the system refused") {
            assert_eq!(ran.code, 4, "{files} files: {}", ran.stderr);
        }
        codes.push(ran.code);
    }
    assert!(codes.contains(&4), "{codes:?}");
    context.done(&(STEADY_RUN, "--update all"));
}

#[test]
fn tables_deleted_during_a_run_are_named_at_its_end_and_written_later() {
    let undisturbed = Context::of_measured_layer();
    let context = Context::of_layer();
    let before = tables(&context);
    let originals: Vec<(PathBuf, Vec<u8>)> = before
        .iter()
        .map(|(name, _)| context.path("db").join(name))
        .map(|path| (path.clone(), fs::read(&path).expect("a table")))
        .collect();
    let mut child = context.start(&STEADY_RUN);
    while find_file(context.path("db/.npubench/runs"), "00001").is_none() {
        assert!(child.try_wait().expect("a status").is_none(), "the run ended before its first collection");
        thread::sleep(Duration::from_millis(2));
    }
    let deadline = Instant::now() + QUERY * 2;
    while child.try_wait().expect("a status").is_none() {
        assert!(Instant::now() < deadline, "the run does not end");
        // Also those that the run has written meanwhile.
        originals.iter().for_each(|(path, _)| drop(fs::remove_file(path)));
        thread::sleep(Duration::from_millis(2));
    }
    let ran = context.finish(child).ended(1);
    let note =
        ran.stderr.lines().find(|line| line.starts_with("rows of ") && line.contains("could not be written"));
    let note = note.unwrap_or_else(|| panic!("no table is named: {}", ran.stderr));
    let named = before.iter().filter(|(name, _)| note.contains(name.trim_end_matches(".csv"))).count();
    assert_eq!(named, before.len(), "{note}");
    // Tables that stay deleted are named by the next run as well.
    fs::write(&originals[0].0, &originals[0].1).expect("restored");
    let ran = context.exits(1, &STEADY_RUN);
    let missing = ran.stderr.lines().filter(|line| line.contains("whose table is missing: restore it"));
    assert_eq!(missing.count(), before.len() - 1, "{}", ran.stderr);
    originals.iter().for_each(|(path, bytes)| fs::write(path, bytes).expect("restored"));
    context.done(&STEADY_RUN);
    assert_eq!(tables(&context), tables(&undisturbed));
}
