//! Orphans: programs of a killed npubench that still run.
//!
//! Each program of a run has a record file while it runs: its process id, its start time, and the boot id of the host.
//! The program and its descendants have the path of the file in an environment variable, so that a process outside the
//! process group is found too. No other process is ever signalled: a reused process id has another start time.

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

use super::signal_group;

/// Environment variable with the record path of a program and its descendants.
pub(super) const MARK: &str = "NPUBENCH_PROCESS";

/// Content of a record file.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct StartedProcess {
    pid: i32,
    /// Start time in clock ticks since boot.
    start: u64,
    /// Boot id of the host.
    boot: String,
}

/// Record file of a running program; removed on drop.
#[derive(Debug)]
pub(super) struct ProcessRecord(PathBuf);

impl ProcessRecord {
    /// Writes the record of a program. Errors are ignored: the record is needed only if npubench is killed.
    pub(super) fn save(file: &Path, pid: i32) -> Self {
        let started = StartedProcess { pid, start: start_of(pid).unwrap_or_default(), boot: boot_id() };
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

/// Ends all programs that have a record in a folder and still run; returns their number. The caller holds the lock
/// that excludes a second run.
pub fn end_orphans(folder: &Path) -> usize {
    let mut ended = 0;
    let files = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    for file in files {
        let started = fs::read_to_string(&file).ok().and_then(|text| serde_json::from_str(&text).ok());
        let is_ours = started.as_ref().is_some_and(is_running);
        if let Some(started) = started.filter(|_| is_ours) {
            signal_group(started.pid, Signal::SIGKILL);
        }
        ended += usize::from(end_marked(&file) > 0 || is_ours);
        let _ = fs::remove_file(&file);
    }
    ended
}

/// Returns true if the program, or another process of its group, still runs.
fn is_running(started: &StartedProcess) -> bool {
    if started.boot != boot_id() {
        return false;
    }
    match start_of(started.pid) {
        Some(start) => start == started.start,
        // The id of a group is not reused while one of its processes runs.
        None => other_processes().any(|pid| group_of(pid) == Some(started.pid)),
    }
}

/// Ends all processes with the path of a record in their environment; returns their number.
pub(super) fn end_marked(record: &Path) -> usize {
    let mut mark = format!("{MARK}=").into_bytes();
    mark.extend_from_slice(record.as_os_str().as_bytes());
    let carries = |pid: &i32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == mark)
    };
    let marked: Vec<i32> = other_processes().filter(carries).collect();
    for pid in &marked {
        // It may have ended already.
        let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
    }
    marked.len()
}

/// Returns true if a process or one of its ancestors was started by npubench with a record in this folder.
pub fn is_own_process(pid: u32, folder: &Path) -> bool {
    mark_of(pid).is_some_and(|mark| Path::new(&mark).starts_with(folder))
}

/// Returns true if the environment of a process can be read and has no record of this folder. The environment of a
/// process in another container or of another user cannot be read, so that its origin is unknown.
pub fn is_foreign_process(pid: u32, folder: &Path) -> bool {
    fs::read(format!("/proc/{pid}/environ")).is_ok_and(|text| !text.is_empty())
        && !is_own_process(pid, folder)
}

fn mark_of(pid: u32) -> Option<OsString> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let prefix = format!("{MARK}=");
    let found =
        environment.split(|byte| *byte == 0).find_map(|variable| variable.strip_prefix(prefix.as_bytes()));
    found.map(|path| OsStr::from_bytes(path).to_owned())
}

fn other_processes() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let own = std::process::id().cast_signed();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(move |pid| *pid != own)
}

/// Returns the fields of `/proc/PID/stat` after the program's name; `None` if the process does not run or is a zombie.
pub(super) fn stat_fields(pid: i32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<String> = text.rsplit_once(')')?.1.split_ascii_whitespace().map(str::to_owned).collect();
    fields.first().is_some_and(|state| state != "Z").then_some(fields)
}

/// Returns a field of `/proc/PID/stat`, counted from the one after the program's name.
fn stat_field(pid: i32, field: usize) -> Option<String> {
    stat_fields(pid)?.into_iter().nth(field)
}

fn start_of(pid: i32) -> Option<u64> {
    stat_field(pid, 19)?.parse().ok()
}

fn group_of(pid: i32) -> Option<i32> {
    stat_field(pid, 2)?.parse().ok()
}

fn boot_id() -> String {
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
        // Its environment is set once it has printed.
        let mut word = [0; 3];
        std::io::Read::read_exact(child.stdout.as_mut().expect("piped"), &mut word).expect("up");
        child
    }

    fn ends(child: &mut Child) -> bool {
        let deadline = Instant::now() + Duration::from_secs(30);
        while Instant::now() < deadline {
            if child.try_wait().expect("waited").is_some() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    }

    #[test]
    fn only_recorded_programs_are_ended() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("1.json");
        let (mut marked, mut other) = (sleeper(Some(&file)), sleeper(None));
        std::mem::forget(ProcessRecord::save(&file, marked.id().cast_signed()));
        assert_eq!(end_orphans(folder.path()), 1);
        assert!(ends(&mut marked));
        assert_eq!(other.try_wait().expect("waited"), None);
        assert!(!file.exists());
        // A process with another start time is not the recorded one.
        let restarted = StartedProcess { pid: other.id().cast_signed(), start: 1, boot: boot_id() };
        fs::write(&file, serde_json::to_string(&restarted).expect("json")).expect("written");
        assert_eq!(end_orphans(folder.path()), 0);
        let before = StartedProcess {
            pid: other.id().cast_signed(),
            start: start_of(other.id().cast_signed()).expect("it runs"),
            boot: "another boot".to_owned(),
        };
        fs::write(&file, serde_json::to_string(&before).expect("json")).expect("written");
        assert_eq!(end_orphans(folder.path()), 0);
        assert_eq!(other.try_wait().expect("waited"), None);
        other.kill().expect("killed");
        other.wait().expect("reaped");
    }

    #[test]
    fn process_outside_its_group_is_found_by_its_environment() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("2.json");
        let mut marked = sleeper(Some(&file));
        assert_eq!(end_marked(&folder.path().join("3.json")), 0);
        assert_eq!(end_marked(&file), 1);
        assert!(ends(&mut marked));
    }
}
