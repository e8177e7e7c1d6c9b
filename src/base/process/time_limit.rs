//! Time limit of a program, without the time in which it waits for a core.
//!
//! On a host with more runnable processes than cores, a program that waits for a core is slow, not hung. An interval
//! counts in full while all processes of the program sleep, and by their CPU time while one of them is runnable. A
//! program that spins on a free core therefore has its limit in wall time, like one that sleeps.
//!
//! The descendants of the program are read from `/proc/PID/task/TID/children`. On kernels without that file
//! (`CONFIG_PROC_CHILDREN`), only the program itself is read.

use std::{collections::BTreeMap, fs, time::Duration};

use super::{ExitKind, orphans::stat_fields};

/// Maximum ratio of wall time to the limit, for a hung program with a process that is always runnable.
const MAX_STRETCH: u32 = 10;
const INTERVAL: Duration = Duration::from_secs(1);
const READINGS: u32 = 40;
/// Milliseconds of a tick of the CPU times in `/proc/PID/stat`, on x86 and ARM.
const TICK_MS: u64 = 10;

#[derive(Clone, Debug, Default)]
pub(super) struct ProcessActivity {
    is_runnable: bool,
    cpu: BTreeMap<i32, Duration>,
}

impl ProcessActivity {
    pub(super) fn read(root: i32) -> Self {
        let mut activity = Self::default();
        let mut waiting = vec![root];
        while let Some(pid) = waiting.pop() {
            let Some(fields) = stat_fields(pid) else { continue };
            activity.is_runnable |= fields.first().is_some_and(|state| state == "R");
            let ticks = |field: usize| fields.get(field).and_then(|text| text.parse().ok()).unwrap_or(0_u64);
            let cpu = Duration::from_millis(TICK_MS.saturating_mul(ticks(11).saturating_add(ticks(12))));
            if activity.cpu.insert(pid, cpu).is_none() {
                waiting.extend(children(pid));
            }
        }
        activity
    }
}

fn children(pid: i32) -> Vec<i32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_ascii_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<_>>())
        .collect()
}

#[derive(Debug)]
pub(super) struct TimeLimit {
    limit: Duration,
    cut_off: Option<Duration>,
    used: Duration,
    read_at: Duration,
    cpu: BTreeMap<i32, Duration>,
}

impl TimeLimit {
    pub(super) const fn new(limit: Duration, cut_off: Option<Duration>) -> Self {
        Self { limit, cut_off, used: Duration::ZERO, read_at: Duration::ZERO, cpu: BTreeMap::new() }
    }

    /// Returns the reason to end the program after `elapsed` of wall time; `None` if it may continue. `read` is called
    /// only if the state of the processes is needed.
    pub(super) fn expiry(
        &mut self,
        elapsed: Duration,
        read: impl FnOnce() -> ProcessActivity,
    ) -> Option<ExitKind> {
        if self.cut_off.is_some_and(|cut_off| elapsed >= cut_off) {
            return Some(ExitKind::CutOff);
        }
        let interval = elapsed.saturating_sub(self.read_at);
        if interval >= (self.limit / READINGS).min(INTERVAL) || self.used + interval >= self.limit {
            self.count(elapsed, interval, read());
        }
        let is_over = self.used >= self.limit || elapsed >= self.limit.saturating_mul(MAX_STRETCH);
        is_over.then_some(ExitKind::TimedOut)
    }

    fn count(&mut self, elapsed: Duration, interval: Duration, activity: ProcessActivity) {
        let before = |pid: &i32| self.cpu.get(pid).copied().unwrap_or_default();
        let cpu: Duration = activity.cpu.iter().map(|(pid, cpu)| cpu.saturating_sub(before(pid))).sum();
        self.used += if activity.is_runnable { cpu.min(interval) } else { interval };
        self.read_at = elapsed;
        self.cpu = activity.cpu;
    }
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::process::CommandExt as _,
        process::{Command, Stdio},
        thread,
        time::Instant,
    };

    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn activity(is_runnable: bool, cpu: Duration) -> ProcessActivity {
        ProcessActivity { is_runnable, cpu: BTreeMap::from([(7, cpu)]) }
    }

    /// Returns the second at which a program with this activity is ended, and the reason.
    fn ended_at(mut limit: TimeLimit, activity_at: impl Fn(u64) -> ProcessActivity) -> (u64, ExitKind) {
        let mut seconds_since_start = 1..1000;
        seconds_since_start
            .find_map(|at| Some((at, limit.expiry(seconds(at), || activity_at(at))?)))
            .expect("it is ended")
    }

    #[test]
    fn sleeping_or_spinning_program_is_ended_after_its_limit_in_wall_time() {
        let limit = || TimeLimit::new(seconds(20), None);
        assert_eq!(ended_at(limit(), |_| activity(false, seconds(0))), (20, ExitKind::TimedOut));
        assert_eq!(ended_at(limit(), |at| activity(true, seconds(at))), (20, ExitKind::TimedOut));
        // Several processes that spin use no more than the wall time.
        let two = |at| ProcessActivity {
            is_runnable: true,
            cpu: BTreeMap::from([(7, seconds(at)), (8, seconds(at))]),
        };
        assert_eq!(ended_at(limit(), two), (20, ExitKind::TimedOut));
    }

    #[test]
    fn spinning_descendant_of_a_sleeping_process_is_found() {
        let mut child = Command::new("sh")
            .args(["-c", "sh -c 'while :; do :; done' & wait"])
            .process_group(0)
            .stdin(Stdio::null())
            .spawn()
            .expect("sh runs");
        let root = child.id().cast_signed();
        let deadline = Instant::now() + seconds(60);
        // If the CPU time of a process grows, it is the loop, not the start of a shell.
        let finds_loop = || {
            let read = ProcessActivity::read(root);
            read.is_runnable && read.cpu.iter().any(|(pid, cpu)| *pid != root && *cpu >= seconds(1) / 10)
        };
        let mut is_found = false;
        while !is_found && Instant::now() < deadline {
            is_found = finds_loop();
            thread::sleep(Duration::from_millis(5));
        }
        super::super::signal_group(root, nix::sys::signal::Signal::SIGKILL);
        child.wait().expect("reaped");
        assert!(is_found, "the loop is not among the descendants");
    }
}
