//! Temporary files and folders of killed commands: the next command removes them, and nothing else.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::prelude::*;

const KILLS: u32 = 12;

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .expect("listed")
        .map(|entry| entry.expect("listed").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

fn with_foreign_files() -> Context {
    let context = Context::new();
    fs::create_dir_all(context.path("tmp/npubench-other")).expect("created");
    context.write("tmp/npubench-tmp-notes", "text");
    context.write("tmp/.tmpAbCdEf/file", "text");
    context
}

/// Runs a command with its own folder for temporary files; kills it after a part of `whole`, if given.
fn run_in_folder(context: &Context, arguments: &[&str], kill_after: Option<Duration>) -> Option<i32> {
    let mut command: Command = context.command(arguments);
    let mut child = command
        .env("TMPDIR", context.path("tmp"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("npubench starts");
    if let Some(delay) = kill_after {
        thread::sleep(delay);
        let _ = child.kill();
    }
    child.wait().expect("reaped").code()
}

#[test]
fn next_command_removes_temporary_folders_of_killed_ones() {
    let context = with_foreign_files();
    let foreign = names(&context.path("tmp"));
    context.small_database("db");
    let started = Instant::now();
    assert_eq!(run_in_folder(&context, &STEADY_RUN, None), Some(0));
    let whole = started.elapsed();
    assert_eq!(names(&context.path("tmp")), foreign);
    let mut left = 0;
    for kill in 0..KILLS {
        let again = [&STEADY_RUN[..], &["--update", "all"]].concat();
        run_in_folder(&context, &again, Some(whole * kill / KILLS));
        left += names(&context.path("tmp")).len() - foreign.len();
    }
    assert!(left > 0, "no kill left a folder");
    // Collections of the last killed run are ended by the next one, after it has removed folders: theirs are left to a further
    // command that needs a folder.
    let deadline = Instant::now() + Duration::from_secs(60);
    assert_eq!(run_in_folder(&context, &STEADY_RUN, None), Some(0));
    while names(&context.path("tmp")) != foreign {
        assert!(Instant::now() < deadline, "{:?}", names(&context.path("tmp")));
        assert_eq!(run_in_folder(&context, &STEADY_RUN, None), Some(0));
    }
}

#[test]
fn temporary_folder_may_be_relative() {
    let context = Context::new();
    context.small_database("db");
    fs::create_dir(context.path("tmp")).expect("created");
    let mut command = context.command(&STEADY_RUN);
    context.ran(&command.env("TMPDIR", "tmp").output().expect("npubench runs")).ended(0);
    assert_eq!(names(&context.path("tmp")), Vec::<String>::new());
}
