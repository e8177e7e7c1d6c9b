//! Processes that outlived the npubench that started them.
//!
//! Each program that a run starts is written down in a file while it runs: its process id, when it was started, and
//! on which boot of the host. It and its descendants carry the file's path in an environment variable, so that one
//! that left its process group is found too. Nothing else is ever signalled: an id that belongs to another process
//! by now is told by its start.

use std::{
    ffi::{OsStr, OsString},
    fs,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde::{Deserialize, Serialize};

use super::signal;

/// The variable that a program and its descendants carry.
pub(super) const MARK: &str = "NPUBENCH_PROCESS";

/// A program that runs.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct StartedProcess {
    pid: i32,
    /// Clock ticks from boot to its start.
    start: u64,
    /// The host's boot.
    boot: String,
}

/// The file of a program that runs; taken away when it has ended.
#[derive(Debug)]
pub(super) struct ProcessRecord(PathBuf);

impl ProcessRecord {
    /// Writes a program down. Where that fails the run goes on: only a killed npubench would miss it.
    pub(super) fn write(file: &Path, pid: i32) -> Self {
        let started = StartedProcess { pid, start: start_of(pid).unwrap_or_default(), boot: boot() };
        if let Some(folder) = file.parent() {
            let _ = fs::create_dir_all(folder);
        }
        let _ = fs::write(file, serde_json::to_string(&started).unwrap_or_default());
        Self(file.to_owned())
    }
}

impl Drop for ProcessRecord {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Ends everything that is written down in a folder and still runs; says how many programs there were. Whoever
/// calls it holds what keeps a second run away.
pub fn end_orphans(folder: &Path) -> usize {
    let mut ended = 0;
    let files = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    for file in files {
        let started = fs::read_to_string(&file).ok().and_then(|text| serde_json::from_str(&text).ok());
        let is_ours = started.as_ref().is_some_and(is_running);
        if let Some(started) = started.filter(|_| is_ours) {
            signal(started.pid, Signal::SIGKILL);
        }
        ended += usize::from(end_marked(&file) > 0 || is_ours);
        let _ = fs::remove_file(&file);
    }
    ended
}

/// Whether the program, or its group without it, is still there.
fn is_running(started: &StartedProcess) -> bool {
    if started.boot != boot() {
        return false;
    }
    match start_of(started.pid) {
        Some(start) => start == started.start,
        // A group keeps its id from being given away for as long as one of its processes lives.
        None => processes().any(|pid| group_of(pid) == Some(started.pid)),
    }
}

/// Ends every process that carries the path of a record; says how many there were.
pub(super) fn end_marked(record: &Path) -> usize {
    let mut mark = format!("{MARK}=").into_bytes();
    mark.extend_from_slice(record.as_os_str().as_bytes());
    let carries = |pid: &i32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == mark)
    };
    let marked: Vec<i32> = processes().filter(carries).collect();
    for pid in &marked {
        // It may have ended by itself.
        let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
    }
    marked.len()
}

/// Whether a process, or what started it, was started by npubench with a record in this folder.
#[must_use]
pub fn is_marked(pid: u32, folder: &Path) -> bool {
    mark_of(pid).is_some_and(|mark| Path::new(&mark).starts_with(folder))
}

/// Whether a process of this host was surely not started with a record in this folder. What cannot be read, as in
/// another container or of another user, may be anybody's.
#[must_use]
pub fn is_known_stranger(pid: u32, folder: &Path) -> bool {
    fs::read(format!("/proc/{pid}/environ")).is_ok_and(|text| !text.is_empty()) && !is_marked(pid, folder)
}

fn mark_of(pid: u32) -> Option<OsString> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let prefix = format!("{MARK}=");
    let found =
        environment.split(|byte| *byte == 0).find_map(|variable| variable.strip_prefix(prefix.as_bytes()));
    found.map(|path| OsStr::from_bytes(path).to_owned())
}

fn processes() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let own = std::process::id().cast_signed();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(move |pid| *pid != own)
}

/// Fields of `/proc/PID/stat` behind the program's name; `None` where the process does not run. A zombie does not.
pub(super) fn stat_fields(pid: i32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<String> = text.rsplit_once(')')?.1.split_ascii_whitespace().map(str::to_owned).collect();
    fields.first().is_some_and(|state| state != "Z").then_some(fields)
}

/// A field of `/proc/PID/stat`, counted from the one behind the program's name.
fn stat(pid: i32, field: usize) -> Option<String> {
    stat_fields(pid)?.into_iter().nth(field)
}

fn start_of(pid: i32) -> Option<u64> {
    stat(pid, 19)?.parse().ok()
}

fn group_of(pid: i32) -> Option<i32> {
    stat(pid, 2)?.parse().ok()
}

fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use std::{
        process::{Child, Command, Stdio},
        time::{Duration, Instant},
    };

    use super::*;

    fn sleeper(mark: Option<&Path>) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", "echo up; read x"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        if let Some(mark) = mark {
            command.env(MARK, mark);
        }
        let mut child = command.spawn().expect("sh runs");
        // It has its environment once it has said something.
        let mut word = [0; 3];
        std::io::Read::read_exact(child.stdout.as_mut().expect("piped"), &mut word).expect("up");
        child
    }

    fn ends(child: &mut Child) -> bool {
        let deadline = Instant::now() + Duration::from_secs(30);
        while Instant::now() < deadline {
            if child.try_wait().expect("asked").is_some() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    }

    #[test]
    fn only_what_is_written_down_is_ended() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("1.json");
        let (mut marked, mut other) = (sleeper(Some(&file)), sleeper(None));
        std::mem::forget(ProcessRecord::write(&file, marked.id().cast_signed()));
        assert_eq!(end_orphans(folder.path()), 1);
        assert!(ends(&mut marked));
        assert_eq!(other.try_wait().expect("asked"), None);
        assert!(!file.exists());
        // The id of a process that started at another moment is not the one that was written down.
        let stranger = StartedProcess { pid: other.id().cast_signed(), start: 1, boot: boot() };
        fs::write(&file, serde_json::to_string(&stranger).expect("json")).expect("written");
        assert_eq!(end_orphans(folder.path()), 0);
        let before = StartedProcess {
            pid: other.id().cast_signed(),
            start: start_of(other.id().cast_signed()).expect("it runs"),
            boot: "another boot".to_owned(),
        };
        fs::write(&file, serde_json::to_string(&before).expect("json")).expect("written");
        assert_eq!(end_orphans(folder.path()), 0);
        assert_eq!(other.try_wait().expect("asked"), None);
        other.kill().expect("killed");
        other.wait().expect("reaped");
    }

    #[test]
    fn what_left_its_group_is_found_by_its_mark() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("2.json");
        let mut marked = sleeper(Some(&file));
        assert_eq!(end_marked(&folder.path().join("3.json")), 0);
        assert_eq!(end_marked(&file), 1);
        assert!(ends(&mut marked));
    }
}
