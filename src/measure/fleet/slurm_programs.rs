//! The programs of Slurm.

use std::{collections::BTreeSet, ffi::OsString, fs, iter, sync::atomic::AtomicBool, time::Duration};

use super::slurm_output::{QUEUE_FORMAT, QueuedTask, parse_job_number, parse_queue};
use crate::{
    base::{
        command_error::CommandError,
        files::ScratchFolder,
        process::{CommandSpec, ExitKind, find_program, run_query},
    },
    measure::device::search_path,
};

/// Time limit of a program; a busy controller answers late.
const LIMIT: Duration = Duration::from_secs(120);

/// Answer of `squeue` and `scancel` for jobs that the controller has forgotten.
const UNKNOWN_JOB: &str = "Invalid job id specified";

/// Causes of refused jobs in messages of Slurm in lower case, and what to do about them; the first one that fits counts.
const CAUSES: [(&str, &str); 9] = [
    ("account", "give an account with `--sbatch=--account=NAME`"),
    ("partition", "`sinfo` lists the partitions; give one with `--partition`"),
    (
        "generic resource",
        "`sinfo -o '%P %G'` lists the resources of each partition; give one with `--gres`, such as `npu:8`",
    ),
    (
        "node configuration is not available",
        "`sinfo -o '%P %G %c'` lists what the nodes of each partition have; give less with `--gres`",
    ),
    (
        "job array",
        "`scontrol show config` has the greatest number of tasks, MaxArraySize; divide into fewer shards",
    ),
    ("--time", "give a time such as `--time 8:00:00`"),
    (
        "time limit",
        "`sinfo -o '%P %l'` lists the time limits of the partitions; give another one with `--time`",
    ),
    ("contact slurm controller", "`scontrol ping` shows whether the controller of the cluster answers"),
    (
        "unrecognized option",
        "give options of sbatch as `--sbatch=--account=NAME`; `sbatch --help` lists them",
    ),
];

#[derive(Debug)]
pub(super) struct SlurmPrograms {
    scratch: ScratchFolder,
}

impl SlurmPrograms {
    pub(super) fn new() -> Result<Self, CommandError> {
        ScratchFolder::create().map(|scratch| Self { scratch }).map_err(CommandError::no_temporary_folder)
    }

    /// Runs a program; returns its output, and as an error what it printed when it failed.
    fn run_program<'a>(
        &self,
        name: &'static str,
        arguments: impl IntoIterator<Item = &'a str>,
    ) -> Result<Result<String, String>, CommandError> {
        let path = search_path(&[]);
        let Some(program) = find_program(name, &path) else {
            return Err(CommandError::bad_input(
                format!("the program `{name}` of Slurm was not found"),
                "run the command on a host of the cluster that submits jobs, or add the folder of Slurm's programs to PATH; \
                 `npubench slurm submit --dry-run` prints the scripts without Slurm",
            ));
        };
        let failed = |problem: String| {
            CommandError::bad_input(format!("`{name}` failed: {problem}"), "run it by hand to see its output")
        };
        let log = self.scratch.path().join("slurm.log");
        let words = iter::once(program.into_os_string()).chain(arguments.into_iter().map(OsString::from));
        let folder = std::env::current_dir().map_err(|error| failed(error.to_string()))?;
        let job = CommandSpec::new(words.collect(), &folder, &log, LIMIT);
        let ended = run_query(&job, &AtomicBool::new(false)).map_err(|error| failed(error.to_string()))?;
        let text = fs::read(&log).map_err(|error| failed(format!("its output cannot be read: {error}")))?;
        let text = String::from_utf8_lossy(&text).into_owned();
        match ended {
            ExitKind::Exited(0) => Ok(Ok(text)),
            ExitKind::TimedOut => Err(failed(format!("no answer in {} s", LIMIT.as_secs()))),
            _ => Ok(Err(text.trim().replace('\n', "; "))),
        }
    }

    /// Runs a program whose failure ends the command.
    fn require<'a>(
        &self,
        name: &'static str,
        arguments: impl IntoIterator<Item = &'a str>,
    ) -> Result<String, CommandError> {
        self.run_program(name, arguments)?.map_err(|text| self.refused(name, &text))
    }

    /// Returns the error of a program with a hint for its cause.
    fn refused(&self, name: &str, text: &str) -> CommandError {
        let lower = text.to_ascii_lowercase();
        let cause = CAUSES.iter().find(|(cause, _)| lower.contains(cause));
        let unknown = "the message is Slurm's; run the program by hand to see more";
        let mut hint = cause.map_or(unknown, |(_, hint)| hint).to_owned();
        if cause.is_some_and(|(cause, _)| *cause == "partition")
            && let Ok(Ok(listed)) = self.run_program("sinfo", ["--noheader", "--format=%R"])
        {
            let names: BTreeSet<&str> = listed.split_whitespace().collect();
            let names = names.into_iter().collect::<Vec<_>>().join(", ");
            if !names.is_empty() {
                hint = format!("give a partition of this cluster with `--partition`: {names}");
            }
        }
        CommandError::bad_input(format!("`{name}` of Slurm failed: {text}"), hint)
    }

    /// Writes a script into a temporary file and submits it with further options; returns the number of its job.
    pub(super) fn submit(&self, text: &str, options: &[&str]) -> Result<String, CommandError> {
        let script = self.scratch.path().join("npubench.sh");
        fs::write(&script, text).map_err(CommandError::no_temporary_folder)?;
        let script = script.to_string_lossy();
        let options = options.iter().copied();
        let text = self.require("sbatch", ["--parsable"].into_iter().chain(options).chain([&*script]))?;
        parse_job_number(&text).ok_or_else(|| {
            CommandError::bad_input(
                format!("`sbatch --parsable` printed no number of a job: {}", text.trim()),
                "`squeue --me` lists the jobs; cancel the submitted one with `scancel`",
            )
        })
    }

    /// Lets a job start now that was submitted for a later time.
    pub(super) fn start_now(&self, job: &str) -> Result<(), CommandError> {
        self.require("scontrol", ["update", &format!("JobId={job}"), "StartTime=now"]).map(|_| ())
    }

    /// Returns the jobs with these numbers, an array by its tasks, also those that ended a short time ago. Jobs that the controller does not
    /// know any more are missing.
    pub(super) fn list_jobs(&self, jobs: &[&str]) -> Result<Vec<QueuedTask>, CommandError> {
        let (jobs, format) = (format!("--jobs={}", jobs.join(",")), format!("--format={QUEUE_FORMAT}"));
        let text =
            match self.run_program("squeue", ["--noheader", "--array", "--states=all", &jobs, &format])? {
                Ok(text) => text,
                Err(text) if text.contains(UNKNOWN_JOB) => return Ok(Vec::new()),
                Err(text) => return Err(self.refused("squeue", &text)),
            };
        parse_queue(&text).map_err(|line| {
            CommandError::bad_input(
                format!("`squeue` printed `{line}`, expected job, state, node and reason"),
                format!("compare with `squeue --array --states=all {jobs} {format}`"),
            )
        })
    }

    /// Cancels jobs; `options` select the tasks, or a signal. Jobs that have ended meanwhile are no error.
    pub(super) fn cancel(&self, options: &[&str], job: &str) -> Result<(), CommandError> {
        match self.run_program("scancel", options.iter().copied().chain([job]))? {
            Ok(_) => Ok(()),
            Err(text) if text.contains(UNKNOWN_JOB) || text.contains("already completing or completed") => {
                Ok(())
            }
            Err(text) => Err(self.refused("scancel", &text)),
        }
    }

    pub(super) fn describe_job(&self, job: &str) -> Result<String, CommandError> {
        self.require("scontrol", ["show", "job", "-d", job])
    }
}
