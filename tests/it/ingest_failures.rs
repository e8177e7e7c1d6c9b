//! Ingest into a database that is there, with the program killed, or the disk full, at any call.
//!
//! Whatever happens: each table is the old or the new one, byte for byte; nothing else is touched; the same
//! command ends in the bytes of an undisturbed one; and what an interrupted one left is reported by `db check`.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use nix::{
    libc::{self, PTRACE_SYSCALL_INFO_ENTRY},
    sys::{
        ptrace,
        signal::{self, Signal},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};

use crate::prelude::*;
use crate::requirements;

type Files = BTreeMap<PathBuf, Vec<u8>>;

/// A database before and after an undisturbed ingest.
struct Story {
    context: Context,
    old: Files,
    new: Files,
}

impl Story {
    /// `old` gets rows of `kernels` kernels; `next.csv` changes each of them and brings one more.
    fn new(kernels: usize, signatures: usize) -> Self {
        let context = Context::new();
        context.write("first.csv", &profile(kernels, signatures, 10));
        context.write("next.csv", &profile(kernels + 1, signatures + 1, 11));
        context.done("ingest first.csv --db old");
        let old = below(context.snapshot("old"));
        let mut story = Self { context, old, new: Files::new() };
        story.set_up();
        story.context.exits(0, "ingest next.csv --db db");
        story.new = story.files();
        assert_eq!(tables(&story.new).count(), kernels + 1);
        assert!(tables(&story.old).all(|(name, bytes)| story.new[name] != *bytes), "every table changes");
        story
    }

    /// Makes the database as it was before.
    fn set_up(&self) {
        let folder = self.context.path("db");
        if folder.exists() {
            fs::remove_dir_all(&folder).expect("removed");
        }
        for (name, bytes) in &self.old {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("created");
            fs::write(path, bytes).expect("written");
        }
    }

    fn files(&self) -> Files {
        below(self.context.snapshot("db"))
    }

    fn ingest(&self) -> Command {
        let mut command = self.context.command("ingest next.csv --db db");
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// Looks at what an ingest left that did not end well, and ends it. Says how many tables were new already.
    fn check(&self, when: &str) -> usize {
        let mut written = 0;
        let mut left_behind = 0;
        let files = self.files();
        for (name, bytes) in &files {
            if name.starts_with(".npubench") {
                // The lock; it belongs to nobody any more.
            } else if name.to_string_lossy().starts_with(".npubench-") {
                left_behind += 1;
            } else if self.new.get(name) == Some(bytes) {
                written += usize::from(self.old.get(name) != Some(bytes));
            } else {
                assert!(self.old.get(name) == Some(bytes), "{when}: {} is damaged", name.display());
            }
        }
        assert!(self.old.keys().all(|name| files.contains_key(name)), "{when}: a file is gone");
        let checked = self.context.run("db check db");
        assert_eq!(checked.stdout.matches("left-behind").count(), left_behind, "{when}: {}", checked.stdout);
        self.context.exits(0, "ingest next.csv --db db");
        let (ended, undisturbed) = (self.files(), &self.new);
        for (name, bytes) in visible(undisturbed) {
            assert!(ended.get(name) == Some(bytes), "{when}: {} ended differently", name.display());
        }
        assert_eq!(visible(&ended).count(), visible(undisturbed).count(), "{when}: there are other files");
        written
    }
}

/// With names from the database's folder on.
fn below(files: Files) -> Files {
    let strip = |(name, bytes): (PathBuf, Vec<u8>)| (name.components().skip(1).collect(), bytes);
    files.into_iter().map(strip).collect()
}

fn tables(files: &Files) -> impl Iterator<Item = (&PathBuf, &Vec<u8>)> {
    visible(files).filter(|(name, _)| name.extension().is_some_and(|extension| extension == "csv"))
}

/// Names of the files that are not hidden.
fn visible(files: &Files) -> impl Iterator<Item = (&PathBuf, &Vec<u8>)> {
    files
        .iter()
        .filter(|(name, _)| !name.starts_with(".npubench") && !name.to_string_lossy().starts_with('.'))
}

fn profile(kernels: usize, signatures: usize, duration: usize) -> String {
    let mut text = format!("{HEADER}\n");
    for kernel in 0..kernels {
        for signature in 1..=signatures {
            let _ = writeln!(
                text,
                "1,0,4294967295,1,2,aclnn,Kernel{kernel},dynamic,AI_VECTOR_CORE,1764246877073501.640\t,{duration}.5,0,40,0,\
                 NO,\"\"\"{signature},64\"\"\",DT_BF16,ND,\"\"\"{signature},32\"\"\",DT_BF16,ND,N/A",
            );
        }
    }
    text
}

/// A program that stops at every call to the system.
struct Traced {
    child: Child,
    pid: Pid,
}

impl Traced {
    /// Starts a command that waits for its tracer; `None` where tracing is not allowed.
    fn start(command: &Command) -> Option<Self> {
        let mut shell = shell("kill -STOP $$", command);
        let child = shell.spawn().expect("a shell");
        let pid = Pid::from_raw(i32::try_from(child.id()).expect("a pid"));
        let mut traced = Self { child, pid };
        waitpid(pid, Some(WaitPidFlag::WUNTRACED)).expect("it stops");
        let options = ptrace::Options::PTRACE_O_TRACESYSGOOD | ptrace::Options::PTRACE_O_EXITKILL;
        if ptrace::seize(pid, options).is_err() {
            traced.kill();
            return None;
        }
        signal::kill(pid, Signal::SIGCONT).expect("it goes on");
        Some(traced)
    }

    /// Goes on until the program is about to change something; tells the number of the call, `None` at its end.
    fn next_change(&mut self) -> Option<i64> {
        let mut is_entry = false;
        loop {
            let status = waitpid(self.pid, None).expect("it is there");
            let signal = match status {
                WaitStatus::Exited(..) | WaitStatus::Signaled(..) => return None,
                WaitStatus::PtraceSyscall(_) => {
                    is_entry =
                        ptrace::syscall_info(self.pid).expect("it stopped").op == PTRACE_SYSCALL_INFO_ENTRY;
                    None
                }
                WaitStatus::Stopped(_, signal) => Some(signal),
                _ => None,
            };
            let change = if is_entry { self.change() } else { None };
            is_entry = false;
            if change.is_some() {
                return change;
            }
            self.go_on(signal);
        }
    }

    fn go_on(&self, signal: Option<Signal>) {
        // Where it was killed meanwhile, the next wait tells.
        let _ = ptrace::syscall(self.pid, signal);
    }

    /// The call that it is about to make, if that changes files.
    fn change(&self) -> Option<i64> {
        let line = fs::read_to_string(format!("/proc/{}/syscall", self.pid)).ok()?;
        let mut words = line.split_whitespace();
        let call: i64 = words.next()?.parse().ok()?;
        let flags = words.nth(2).and_then(|word| i64::from_str_radix(word.trim_start_matches("0x"), 16).ok());
        let makes_a_file =
            call == libc::SYS_openat && flags? & i64::from(libc::O_CREAT | libc::O_TMPFILE) != 0;
        (makes_a_file || CHANGES.contains(&call)).then_some(call)
    }

    fn kill(&mut self) {
        self.child.kill().expect("it is there");
        self.child.wait().expect("it ends");
    }
}

/// Calls that change files.
const CHANGES: &[i64] = &[
    libc::SYS_write,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_ftruncate,
    libc::SYS_fchmod,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_linkat,
    libc::SYS_unlinkat,
    libc::SYS_mkdirat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rename,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_link,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mkdir,
];

fn shell(before: &str, command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(format!("{before}; exec \"$0\" \"$@\"")).arg(command.get_program());
    shell.args(command.get_args()).stdout(Stdio::null()).stderr(Stdio::null());
    shell.current_dir(command.get_current_dir().expect("it has one")).env_remove("NPUBENCH_ASSETS");
    shell
}

#[test]
fn ingest_killed_at_any_system_call_leaves_complete_tables() {
    let story = Story::new(3, 2);
    let mut written = Vec::new();
    for calls in 0.. {
        story.set_up();
        let Some(mut program) = Traced::start(&story.ingest()) else {
            return requirements::skip("ptrace is not permitted");
        };
        let mut at = program.next_change();
        for _ in 0..calls {
            program.go_on(None);
            at = program.next_change();
            if at.is_none() {
                break;
            }
        }
        let Some(call) = at else { break };
        program.kill();
        written.push(story.check(&format!("killed at its change {calls}, call {call}")));
    }
    // Draft, write, mode, sync, rename, and sync of the folder, for each of four tables.
    assert!(written.len() >= 4 * 5, "only {} changes were seen", written.len());
    assert!(written.is_sorted(), "{written:?}");
    assert_eq!((written.first(), written.last()), (Some(&0), Some(&4)), "{written:?}");
}

#[test]
fn ingest_on_full_disk_leaves_complete_tables() {
    const BLOCK: usize = 512;
    let story = Story::new(3, 8);
    let largest = tables(&story.new).map(|(_, bytes)| bytes.len()).max().expect("some") / BLOCK;
    let mut failed = 0;
    for blocks in 0..=largest + 1 {
        story.set_up();
        // Without the trap the program would be killed instead of receiving the error.
        let limited = shell(&format!("trap '' XFSZ; ulimit -f {blocks}"), &story.ingest()).status();
        let code = limited.expect("a shell").code();
        let left: Vec<PathBuf> =
            story.files().into_keys().filter(|name| !story.new.contains_key(name)).collect();
        assert!(left.is_empty(), "{blocks} blocks: {left:?}");
        let written = story.check(&format!("files of at most {blocks} blocks"));
        match code {
            Some(0) => assert_eq!(written, 4, "{blocks} blocks"),
            // Tables that fit the limit were written.
            Some(3) if written == 0 => failed += 1,
            Some(5) if written > 0 => failed += 1,
            other => panic!("{blocks} blocks: {other:?}"),
        }
    }
    assert!(failed > 2 && failed <= largest + 1, "{failed} of {largest} failed");
}
