//! Runs programs with limits of their time and of their output, and ends them with all their descendants. All programs
//! of others are started here; the pager alone, which belongs to the user's terminal, is not.

use std::{
    ffi::OsString,
    fs,
    io::{self, IsTerminal as _, Read as _},
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _, process::ExitStatusExt as _},
    path::{Path, PathBuf},
    sync::{
        Once,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    sys::signal::{Signal, killpg},
    unistd::Pid,
};

mod guard;
mod orphans;
mod query;
mod time_limit;

use crate::base::{
    files::{read_end, scratch::temporary_folder},
    print::print_note,
};
pub(crate) use guard::{ProcessGuard, guard_processes};
use orphans::ProcessRecord;
pub(crate) use orphans::{ProcessOrigin, end_orphans, process_origin, sees_host_processes};
pub(crate) use query::{Question, use_short_limits};
use time_limit::{ProcessActivity, TimeLimit};

const GRACE: Duration = Duration::from_secs(5);
const AFTER_KILL: Duration = Duration::from_secs(30);
const QUERY_KILL: Duration = Duration::from_secs(1);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Time after which a program that is waited for is named.
pub(crate) const SILENT_WAIT: Duration = Duration::from_secs(5);
/// Maximum output of a program; a script that fails in a loop would fill the disk.
const MAX_LOG: u64 = 64 << 20;
const MAX_ANSWER: u64 = 16 << 20;

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
    /// Record of the program while it runs, by which a later npubench can end it if this one is killed; `None` for one in
    /// the folder of the user's programs.
    pub record: Option<&'a Path>,
    /// True if what the program leaves running when it ends is ended, too, also outside of its process group.
    pub ends_descendants: bool,
    /// Bytes of output after which the program is ended.
    pub max_output: u64,
}

impl<'a> CommandSpec<'a> {
    pub fn new(command: Vec<OsString>, folder: &'a Path, log: &'a Path, limit: Duration) -> Self {
        Self {
            command,
            folder,
            environment: &[],
            log,
            limit,
            cut_off: None,
            stdin: None,
            record: None,
            ends_descendants: true,
            max_output: MAX_LOG,
        }
    }

    /// A program that answers a question.
    pub(crate) fn query(command: Vec<OsString>, folder: &'a Path, log: &'a Path, question: Question) -> Self {
        let limit = question.limit();
        // A program that never sleeps on a busy host would have ten times the limit.
        let cut_off = Some(limit.saturating_mul(3));
        Self { cut_off, max_output: MAX_ANSWER, ..Self::new(command, folder, log, limit) }
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
    /// npubench ended it, because it printed more than it may.
    TooMuchOutput,
    Stopped,
}

impl ExitKind {
    /// Returns what a program has done in place of an answer, as the rest of a sentence about it.
    pub(crate) fn problem(self, job: &CommandSpec<'_>) -> String {
        match self {
            Self::Exited(code) => format!("ended with exit code {code}"),
            Self::Signalled(signal) => format!("was ended by signal {signal}"),
            Self::TimedOut | Self::CutOff => format!("did not end within {} s", job.limit.as_secs()),
            Self::TooMuchOutput => format!("printed more than {} MiB", job.max_output >> 20),
            Self::Stopped => "was interrupted".to_owned(),
        }
    }

    /// Returns true if npubench ended the program, which may have printed nothing that helps.
    pub(crate) const fn is_hung(self) -> bool {
        matches!(self, Self::TimedOut | Self::CutOff | Self::TooMuchOutput)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    #[error("there is no program `{program}`")]
    NotFound { program: String },
    #[error("`{program}` did not end when it was started before, and is not started again")]
    HungBefore { program: String },
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
    run_until(job, stop, ([GRACE, AFTER_KILL], None))
}

/// Runs a program that only reads, as [`run_command`] does. When it must end, it is killed at once; a process that
/// waits for a hung driver is left to the system.
/// After some seconds, a note names it and its limit.
pub(crate) fn run_query(job: &CommandSpec<'_>, stop: &AtomicBool) -> Result<ExitKind, ProcessError> {
    if query::was_hung(job) {
        return Err(ProcessError::HungBefore { program: job.program() });
    }
    let ended = run_until(job, stop, ([Duration::ZERO, QUERY_KILL], Some(SILENT_WAIT)))?;
    if ended.is_hung() {
        query::set_hung(job);
    }
    Ok(ended)
}

pub(crate) fn announce_wait(program: &str, limit: Duration) {
    print_note(&format!("waiting for `{program}`, for at most {} s", limit.as_secs()));
}

/// Runs a program as [`run_query`] does, and returns its end and what it printed, up to its limit.
pub(crate) fn read_query(
    job: &CommandSpec<'_>,
    stop: &AtomicBool,
) -> Result<(ExitKind, String), ProcessError> {
    let ended = run_query(job, stop)?;
    let mut output = Vec::new();
    fs::File::open(job.log)
        .and_then(|log| log.take(job.max_output).read_to_end(&mut output))
        .map_err(|source| ProcessError::Io { program: job.program(), source })?;
    Ok((ended, String::from_utf8_lossy(&output).into_owned()))
}

/// Size of the end of a log in which messages are searched.
const LOG_END: u64 = 64 << 10;

/// Returns the end of a log, which may still grow; empty if it cannot be read.
pub(crate) fn end_of_log(log: &Path) -> String {
    read_end(log, LOG_END).unwrap_or_default()
}

/// Returns the last line of an output that is not blank, for messages.
pub(crate) fn last_line(output: &str) -> &str {
    output.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or("no output")
}

fn run_until(
    job: &CommandSpec<'_>,
    stop: &AtomicBool,
    wait: (EndLimits, Option<Duration>),
) -> Result<ExitKind, ProcessError> {
    static FIRST: Once = Once::new();
    FIRST.call_once(|| {
        let ended = orphans::end_orphans_of_user();
        tracing::info!(ended, "programs of killed commands");
        // Programs of any killed command are no part of the output of this one.
        if io::stderr().is_terminal() {
            note_ended(ended);
        }
    });
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
    let of_user = job.record.is_none().then(orphans::record_of_user).flatten();
    let record_path = job.record.or(of_user.as_deref());
    let mark = record_path.filter(|_| job.ends_descendants);
    expression = match mark {
        Some(record) => expression.env(orphans::MARK, record),
        None => expression.env_remove(orphans::MARK),
    };
    // A relative path would be resolved in the working directory of the program.
    if std::env::var_os("TMPDIR").is_some_and(|folder| Path::new(&folder).is_relative()) {
        expression = expression.env("TMPDIR", temporary_folder());
    }
    let record = record_path.map(ProcessRecord::reserve).transpose().map_err(failed)?;
    let handle = expression.start().map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => ProcessError::NotFound { program: program.clone() },
        _ => failed(source),
    })?;
    let group = handle.pids().first().map_or(0, |pid| pid.cast_signed());
    if let Some(record) = &record {
        record.fill(group);
    }
    tracing::info!(pid = group, command = ?job.command, "program started");
    let end = wait_until(&handle, job, stop, (group, mark, wait));
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
    (group, mark, ([terminate, kill], mut silent)): (i32, Option<&Path>, (EndLimits, Option<Duration>)),
) -> Result<ExitKind, ProcessError> {
    let program = job.program();
    let failed = |source: io::Error| ProcessError::Io { program: program.clone(), source };
    let started = Instant::now();
    let mut limit = TimeLimit::new(job.limit, job.cut_off);
    loop {
        if let Some(output) = handle.wait_timeout(POLL_INTERVAL).map_err(failed)? {
            let (code, signal) = (output.status.code(), output.status.signal());
            kill_leftovers(group, mark);
            return Ok(code.map_or(ExitKind::Signalled(signal.unwrap_or_default()), ExitKind::Exited));
        }
        if let Some(wait) = silent
            && started.elapsed() >= wait
        {
            silent = None;
            announce_wait(&program, job.limit);
        }
        let reason = if stop.load(Ordering::Relaxed) {
            Some(ExitKind::Stopped)
        } else if fs::metadata(job.log).is_ok_and(|log| log.len() > job.max_output) {
            Some(ExitKind::TooMuchOutput)
        } else {
            limit.expiry(started.elapsed(), || ProcessActivity::read(group))
        };
        if let Some(reason) = reason {
            signal_group(group, Signal::SIGTERM);
            handle.wait_timeout(terminate).map_err(failed)?;
            signal_group(group, Signal::SIGKILL);
            // A program that waits for a hung driver does not end.
            let has_ended = handle.wait_timeout(kill).map_err(failed)?.is_some();
            kill_leftovers(group, mark);
            return if has_ended { Ok(reason) } else { Err(ProcessError::Stuck { program, pid: group }) };
        }
    }
}

/// Tells the user about ended programs of killed commands.
pub(crate) fn note_ended(programs: usize) {
    if programs > 0 {
        let plural = if programs == 1 { "" } else { "s" };
        print_note(&format!("ended {programs} program{plural} that a killed npubench had left"));
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
