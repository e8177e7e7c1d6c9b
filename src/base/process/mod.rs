//! Runs programs with a time limit, and ends them with all their descendants.

use std::{
    ffi::OsString,
    fs, io,
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _, process::ExitStatusExt as _},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    sys::signal::{Signal, killpg},
    unistd::Pid,
};

mod guard;
mod orphans;
mod time_limit;

use crate::base::files::scratch::temporary_folder;
pub(crate) use guard::{ProcessGuard, guard_processes};
use orphans::ProcessRecord;
pub(crate) use orphans::{ProcessOrigin, end_orphans, process_origin, sees_host_processes};
use time_limit::{ProcessActivity, TimeLimit};

const GRACE: Duration = Duration::from_secs(5);
const AFTER_KILL: Duration = Duration::from_secs(30);
const QUERY_KILL: Duration = Duration::from_secs(1);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A program to run.
#[derive(Debug)]
pub struct CommandSpec<'a> {
    /// Name or path, then arguments.
    pub command: Vec<OsString>,
    pub folder: &'a Path,
    /// Variables added to the environment.
    pub environment: &'a [(String, String)],
    /// File for standard output and standard error.
    pub log: &'a Path,
    /// Time limit. Time in which the program waits for a core of a busy host does not count, up to nine times the
    /// limit.
    pub limit: Duration,
    /// Wall time after which the program is ended in any case.
    pub cut_off: Option<Duration>,
    /// File for standard input. A lock on it is held until the last descendant has ended, even if npubench is killed.
    pub stdin: Option<fs::File>,
    /// Record of the program while it runs, by which a later npubench can end it if this one is killed.
    pub record: Option<&'a Path>,
}

impl<'a> CommandSpec<'a> {
    pub fn new(command: Vec<OsString>, folder: &'a Path, log: &'a Path, limit: Duration) -> Self {
        Self { command, folder, environment: &[], log, limit, cut_off: None, stdin: None, record: None }
    }

    fn program(&self) -> String {
        self.command.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitKind {
    Exited(i32),
    /// It was ended by this signal, which npubench did not send.
    Signalled(i32),
    TimedOut,
    /// npubench ended it at its cut-off.
    CutOff,
    Stopped,
}

#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    #[error("there is no program `{program}`")]
    NotFound { program: String },
    #[error("`{program}` (process {pid}) does not end, not even by SIGKILL")]
    Stuck { program: String, pid: i32 },
    #[error("cannot run `{program}`: {source}")]
    Io {
        program: String,
        #[source]
        source: io::Error,
    },
}

/// Time limits for a program to end after SIGTERM and after SIGKILL.
type EndLimits = [Duration; 2];

/// Runs a program until it ends, its time limit passes, or `stop` is set.
pub fn run_command(job: &CommandSpec<'_>, stop: &AtomicBool) -> Result<ExitKind, ProcessError> {
    run_until(job, stop, [GRACE, AFTER_KILL])
}

/// Runs a program that only reads, as [`run_command`] does. When it must end, it is killed at once; a process that
/// waits for a hung driver is left to the system.
pub(crate) fn run_query(job: &CommandSpec<'_>, stop: &AtomicBool) -> Result<ExitKind, ProcessError> {
    run_until(job, stop, [Duration::ZERO, QUERY_KILL])
}

/// Runs a program as [`run_query`] does, and returns its end and what it printed.
pub(crate) fn read_query(
    job: &CommandSpec<'_>,
    stop: &AtomicBool,
) -> Result<(ExitKind, String), ProcessError> {
    let ended = run_query(job, stop)?;
    let program = || job.command.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    let output = fs::read(job.log).map_err(|source| ProcessError::Io { program: program(), source })?;
    Ok((ended, String::from_utf8_lossy(&output).into_owned()))
}

/// Returns the last line of an output that is not blank, for messages.
pub(crate) fn last_line(output: &str) -> &str {
    output.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or("no output")
}

fn run_until(
    job: &CommandSpec<'_>,
    stop: &AtomicBool,
    end_limits: EndLimits,
) -> Result<ExitKind, ProcessError> {
    let program = job.program();
    let failed = |source: io::Error| ProcessError::Io { program: program.clone(), source };
    let log = fs::File::create(job.log).map_err(failed)?;
    let (first, arguments) = (job.command.first().cloned().unwrap_or_default(), job.command.iter().skip(1));
    let mut expression = duct::cmd(first, arguments)
        .dir(job.folder)
        .stderr_to_stdout()
        .stdout_file(log)
        .unchecked()
        .before_spawn(|command| {
            command.process_group(0);
            Ok(())
        });
    expression = match &job.stdin {
        Some(file) => expression.stdin_file(file.try_clone().map_err(failed)?),
        None => expression.stdin_null(),
    };
    for (name, value) in job.environment {
        expression = expression.env(name, value);
    }
    if let Some(record) = job.record {
        expression = expression.env(orphans::MARK, record);
    }
    // A relative path would be resolved in the working directory of the program.
    if std::env::var_os("TMPDIR").is_some_and(|folder| Path::new(&folder).is_relative()) {
        expression = expression.env("TMPDIR", temporary_folder());
    }
    let record = job.record.map(ProcessRecord::reserve).transpose().map_err(failed)?;
    let handle = expression.start().map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => ProcessError::NotFound { program: program.clone() },
        _ => failed(source),
    })?;
    let group = handle.pids().first().map_or(0, |pid| pid.cast_signed());
    if let Some(record) = &record {
        record.fill(group);
    }
    tracing::info!(pid = group, command = ?job.command, "program started");
    let end = wait_until(&handle, job, stop, (group, end_limits));
    match &end {
        Ok(end) => tracing::info!(pid = group, ?end, "program ended"),
        Err(error) => tracing::info!(pid = group, %error, "program not ended"),
    }
    end
}

fn wait_until(
    handle: &duct::Handle,
    job: &CommandSpec<'_>,
    stop: &AtomicBool,
    (group, [terminate, kill]): (i32, EndLimits),
) -> Result<ExitKind, ProcessError> {
    let program = job.program();
    let failed = |source: io::Error| ProcessError::Io { program: program.clone(), source };
    let started = Instant::now();
    let mut limit = TimeLimit::new(job.limit, job.cut_off);
    loop {
        if let Some(output) = handle.wait_timeout(POLL_INTERVAL).map_err(failed)? {
            let (code, signal) = (output.status.code(), output.status.signal());
            kill_leftovers(group, job.record);
            return Ok(code.map_or(ExitKind::Signalled(signal.unwrap_or_default()), ExitKind::Exited));
        }
        let reason = if stop.load(Ordering::Relaxed) {
            Some(ExitKind::Stopped)
        } else {
            limit.expiry(started.elapsed(), || ProcessActivity::read(group))
        };
        if let Some(reason) = reason {
            signal_group(group, Signal::SIGTERM);
            handle.wait_timeout(terminate).map_err(failed)?;
            signal_group(group, Signal::SIGKILL);
            // A program that waits for a hung driver does not end.
            let has_ended = handle.wait_timeout(kill).map_err(failed)?.is_some();
            kill_leftovers(group, job.record);
            return if has_ended { Ok(reason) } else { Err(ProcessError::Stuck { program, pid: group }) };
        }
    }
}

/// Ends the remaining processes of a group whose leader has ended, and descendants outside the group.
fn kill_leftovers(group: i32, record: Option<&Path>) {
    signal_group(group, Signal::SIGKILL);
    if let Some(record) = record {
        orphans::end_marked(record);
    }
}

fn signal_group(group: i32, signal: Signal) {
    if group > 1 {
        match killpg(Pid::from_raw(group), signal) {
            // The group has ended, or has only zombies left.
            Ok(()) | Err(Errno::ESRCH | Errno::EPERM) => {}
            Err(error) => debug_assert!(false, "killpg: {error}"),
        }
    }
}

/// Returns the path of the program that a shell would start, `None` if there is none.
pub fn find_program(name: &str, path: &str) -> Option<PathBuf> {
    let runs = |file: &Path| {
        fs::metadata(file).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(|file| runs(file));
    }
    path.split(':')
        .filter(|folder| !folder.is_empty())
        .map(|folder| Path::new(folder).join(name))
        .find(|f| runs(f))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limit: Duration, stop: &AtomicBool) -> (ExitKind, String) {
        shell_until(script, limit, None, stop)
    }

    fn shell_until(
        script: &str,
        limit: Duration,
        cut_off: Option<Duration>,
        stop: &AtomicBool,
    ) -> (ExitKind, String) {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join("log");
        let job = CommandSpec {
            environment: &[("NAME".to_owned(), "value".to_owned())],
            cut_off,
            ..CommandSpec::new(vec!["sh".into(), "-c".into(), script.into()], folder.path(), &log, limit)
        };
        let ended = run_command(&job, stop).expect("sh runs");
        (ended, fs::read_to_string(&log).expect("a log"))
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn status_and_both_outputs_are_returned() {
        let never = AtomicBool::new(false);
        let (ended, log) = shell("echo $NAME; echo wrong >&2; exit 3", LONG, &never);
        assert_eq!((ended, log.as_str()), (ExitKind::Exited(3), "value\nwrong\n"));
        assert_eq!(shell("kill -SEGV $$", LONG, &never).0, ExitKind::Signalled(11));
    }

    #[test]
    fn program_that_ignores_sigterm_is_killed() {
        let stop = AtomicBool::new(true);
        let started = Instant::now();
        let (ended, _) = shell("trap '' TERM; sleep 1000 & wait; sleep 1000", LONG, &stop);
        assert_eq!(ended, ExitKind::Stopped);
        assert!(started.elapsed() < LONG);
    }

    #[test]
    fn time_limit_ends_the_whole_group() {
        let (ended, log) =
            shell("sleep 1000 & echo $!; wait", Duration::from_millis(200), &AtomicBool::new(false));
        assert_eq!(ended, ExitKind::TimedOut);
        let grandchild: i32 = log.trim().parse().expect("a process id");
        // SIGKILL was sent before `run_command` returned; the system delivers it shortly after.
        let ended = || {
            let state = fs::read_to_string(format!("/proc/{grandchild}/stat")).unwrap_or_default();
            state.is_empty() || state.contains(") Z ")
        };
        let deadline = Instant::now() + LONG;
        while !ended() {
            assert!(Instant::now() < deadline, "the grandchild still runs");
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    #[test]
    fn program_that_waits_for_a_core_is_not_timed_out() {
        const LIMIT: Duration = Duration::from_millis(300);
        const SPINNING_THREADS_PER_CORE: usize = 8;
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let (never, has_ended) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for _ in 0..cores * SPINNING_THREADS_PER_CORE {
                scope.spawn(|| {
                    while !has_ended.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            // Twice as much work in each round, until it takes more than twice the limit beside the threads: a limit in
            // wall time is noticed by then. The CPU time stays below the limit.
            let mut rounds = (0..40).map(|round| {
                let script = format!("i=0; while [ $i -lt {} ]; do i=$((i+1)); done", 1000_u64 << round);
                let started = Instant::now();
                (shell(&script, LIMIT, &never).0, started.elapsed())
            });
            let last = rounds.find(|(ended, elapsed)| *ended != ExitKind::Exited(0) || *elapsed > 2 * LIMIT);
            has_ended.store(true, Ordering::Relaxed);
            assert_eq!(last.map(|(ended, _)| ended), Some(ExitKind::Exited(0)));
        });
    }

    #[test]
    fn cut_off_ends_a_program_before_its_limit() {
        let cut_off = Some(Duration::from_millis(200));
        let (ended, _) = shell_until("sleep 1000", LONG, cut_off, &AtomicBool::new(false));
        assert_eq!(ended, ExitKind::CutOff);
    }

    #[test]
    fn error_names_a_missing_program() {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join("log");
        let job = CommandSpec::new(vec!["no-such-program".into()], folder.path(), &log, LONG);
        let error = run_command(&job, &AtomicBool::new(false)).expect_err("not there");
        assert_eq!(error.to_string(), "there is no program `no-such-program`");
    }
}
