//! Jobs of Slurm for the shards of a plan: submission, state and cancellation by the programs of Slurm.

use std::{ffi::OsString, fs, io, iter, path::PathBuf, sync::atomic::AtomicBool};

use serde::{Deserialize, Serialize};

use super::{
    ShardPlan,
    shard_database::{ShardState, shard_states},
    slurm_output::{QUEUE_FORMAT, QueuedTask, parse_devices_of_job, parse_job_number, parse_queue},
};
use crate::{
    base::{
        assets::AssetFiles,
        command_error::CommandError,
        count_text::number_ranges,
        files::{FolderLock, ScratchFolder, read_json, write_atomic},
        process::{CommandSpec, ExitKind, Question, find_program, read_query},
        shell_argument::quoted_path,
    },
    database::{Database, DatabaseError, check_path},
    kernel::{
        render::{SlurmJob, SlurmShardScripts, SlurmSweep, slurm_sweep_script},
        timestamp::Timestamp,
    },
    measure::device::search_path,
};

const SUBMISSION_FILE: &str = "slurm.json";
const ARRAY_SCRIPT: &str = "slurm_array.sh";
const MERGE_SCRIPT: &str = "slurm_merge.sh";
const LOGS: &str = "logs";

#[derive(Debug)]
pub(crate) struct SlurmRequest<'a> {
    pub(crate) database: &'a Database,
    pub(crate) plan: &'a ShardPlan,
    pub(crate) assets: &'a AssetFiles,
    pub(crate) job: SlurmJob,
    pub(crate) max_running: Option<u32>,
    pub(crate) run_options: Vec<String>,
    pub(crate) merge_options: Vec<String>,
    pub(crate) merges: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct SlurmJobScripts {
    pub(crate) array: String,
    pub(crate) merge: Option<String>,
    pub(crate) shards: Vec<u32>,
    /// One of them that another process measures, with its name.
    used: Option<(usize, String)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SlurmSubmission {
    pub(crate) plan: String,
    pub(crate) array_job: String,
    pub(crate) merge_job: Option<String>,
    pub(crate) shards: Vec<u32>,
    pub(crate) submitted: Timestamp,
}

fn plan_folder(database: &Database, plan: &str) -> PathBuf {
    database.shards_folder().join(plan)
}

impl SlurmRequest<'_> {
    pub(crate) fn render(&self) -> Result<Option<SlurmJobScripts>, CommandError> {
        check_path(self.database.folder(), self.database.kind())?;
        check_sbatch_values(&self.job)?;
        let states = shard_states(self.database, self.plan)?;
        let open: Vec<&ShardState> = states.iter().filter(|state| !state.is_complete).collect();
        let used = open.iter().find_map(|state| Some((state.number, state.used_by.clone()?)));
        let shards: Vec<u32> = open.iter().filter_map(|state| u32::try_from(state.number).ok()).collect();
        if shards.is_empty() {
            return Ok(None);
        }
        let id = self.plan.id();
        let limit = self.max_running.map_or_else(String::new, |tasks| format!("%{tasks}"));
        let array = number_ranges(&shards) + &limit;
        let logs = plan_folder(self.database, &id).join(LOGS);
        let scripts = SlurmShardScripts {
            job: &self.job,
            plan: &id,
            count: self.plan.shards.len(),
            array: &array,
            db: self.database.folder(),
            logs: &logs,
            run_options: &self.run_options,
            merge_options: &self.merge_options,
        };
        let array = scripts.render(self.assets, "slurm_array.sh.hbs")?;
        let merge = self.merges.then(|| scripts.render(self.assets, "slurm_merge.sh.hbs")).transpose()?;
        Ok(Some(SlurmJobScripts { array, merge, shards, used }))
    }

    /// Submits the jobs. The array may not start until the plan, the scripts and the numbers of the jobs are stored; if one of these steps
    /// fails, it is cancelled, and if Slurm refuses it, nothing was written.
    pub(crate) fn submit(
        &self,
        scripts: &SlurmJobScripts,
        lock: &mut FolderLock,
    ) -> Result<SlurmSubmission, CommandError> {
        let slurm = SlurmPrograms::new()?;
        if let Some(earlier) = SlurmSubmission::load(self.database, self.plan)? {
            refuse_queued(&slurm, self.database, &earlier)?;
        }
        if let Some((number, owner)) = &scripts.used {
            return Err(CommandError::bad_input(
                format!("shard {number} is being measured by {owner}"),
                "submit the shards when it has ended; one shard is never measured by two runs at a time",
            ));
        }
        // Slurm accepts held jobs that no node can ever run, but not those that begin later.
        let begins_later =
            self.job.options.iter().any(|option| option.starts_with("--begin") || option.starts_with("-b"));
        let begin: &[&str] = if begins_later { &[] } else { &["--begin=now+1hour"] };
        let array_job = slurm.submit(&scripts.array, begin)?;
        let stored = self.store_and_start(&slurm, scripts, lock, &array_job, begins_later);
        if stored.is_err() {
            // The first error is the one to report.
            let _ = slurm.cancel(&[], &array_job);
        }
        stored
    }

    fn store_and_start(
        &self,
        slurm: &SlurmPrograms,
        scripts: &SlurmJobScripts,
        lock: &mut FolderLock,
        array_job: &str,
        begins_later: bool,
    ) -> Result<SlurmSubmission, CommandError> {
        self.plan.store(self.database, lock, false)?;
        let id = self.plan.id();
        let folder = plan_folder(self.database, &id);
        let logs = folder.join(LOGS);
        fs::create_dir_all(&logs).map_err(DatabaseError::io("create", &logs))?;
        write_atomic(&folder.join(ARRAY_SCRIPT), scripts.array.as_bytes())?;
        let mut merge_job = None;
        if let Some(merge) = &scripts.merge {
            write_atomic(&folder.join(MERGE_SCRIPT), merge.as_bytes())?;
            merge_job = Some(slurm.submit(merge, &[&format!("--dependency=afterany:{array_job}")])?);
        }
        let submission = SlurmSubmission {
            plan: id,
            array_job: array_job.to_owned(),
            merge_job: merge_job.clone(),
            shards: scripts.shards.clone(),
            submitted: Timestamp::now(),
        };
        let text = serde_json::to_string(&submission).expect("numbers and texts are JSON") + "\n";
        let stored = write_atomic(&folder.join(SUBMISSION_FILE), text.as_bytes())
            .map_err(CommandError::from)
            .and_then(|()| {
                let start = ["update", &format!("JobId={array_job}"), "StartTime=now"];
                if begins_later { Ok(()) } else { slurm.require("scontrol", start).map(drop) }
            });
        if let (Err(_), Some(job)) = (&stored, &merge_job) {
            let _ = slurm.cancel(&[], job);
        }
        stored.map(|()| submission)
    }
}

fn refuse_queued(
    slurm: &SlurmPrograms,
    database: &Database,
    earlier: &SlurmSubmission,
) -> Result<(), CommandError> {
    let tasks = slurm.list_jobs(&[&earlier.array_job])?;
    let Some(QueuedTask { task, state, .. }) = tasks.iter().find(|task| !task.has_ended()) else {
        return Ok(());
    };
    let db = quoted_path(database.folder());
    Err(CommandError::bad_input(
        format!(
            "job {} of this plan is still in the queue: task {} is {}",
            earlier.array_job,
            task.unwrap_or_default(),
            state.to_lowercase()
        ),
        format!("`npubench slurm status --db {db}` shows it, `npubench slurm cancel --db {db}` cancels it"),
    ))
}

impl SlurmSubmission {
    pub(crate) fn load(database: &Database, plan: &ShardPlan) -> Result<Option<Self>, CommandError> {
        let hint = || {
            "check with `squeue --me` that no job of the plan is in the queue, then remove the file"
                .to_owned()
        };
        read_json(&plan_folder(database, &plan.id()).join(SUBMISSION_FILE), "submission to Slurm", hint)
    }

    pub(crate) fn require(database: &Database, plan: &ShardPlan) -> Result<Self, CommandError> {
        Self::load(database, plan)?.ok_or_else(|| {
            let db = quoted_path(database.folder());
            CommandError::bad_input(
                format!("no job of plan {} of `{}` was submitted", plan.id(), database.folder().display()),
                format!("`npubench slurm submit --db {db} --gres npu:8` submits its shards"),
            )
        })
    }

    /// Cancels the waiting tasks of the array, and stops the running ones: at once, or after their running collections. The merge is left
    /// in the queue, and merges what was measured.
    ///
    /// Returns false if no task is left in the queue.
    pub(crate) fn cancel(&self, at_once: bool) -> Result<bool, CommandError> {
        let slurm = SlurmPrograms::new()?;
        if slurm.list_jobs(&[&self.array_job])?.iter().all(QueuedTask::has_ended) {
            return Ok(false);
        }
        if at_once {
            slurm.cancel(&[], &self.array_job)?;
        } else {
            slurm.cancel(&["--state=PENDING"], &self.array_job)?;
            slurm.cancel(&["--state=RUNNING", "--batch", "--signal=USR2"], &self.array_job)?;
        }
        Ok(true)
    }
}

pub(crate) fn devices_of_job(resource: &str) -> Result<Vec<u32>, CommandError> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let (Some(job), Some(node)) = (variable("SLURM_JOB_ID"), variable("SLURMD_NODENAME")) else {
        return Err(CommandError::bad_input(
            "SLURM_JOB_ID or SLURMD_NODENAME is not set, so this process is not part of a job of Slurm",
            "use the command in a batch script, or behind `srun`",
        ));
    };
    let text = SlurmPrograms::new()?.require("scontrol", ["show", "job", "-d", &job])?;
    parse_devices_of_job(&text, &job, &node, resource)
}

pub(crate) fn own_program() -> Result<PathBuf, CommandError> {
    std::env::current_exe().map_err(|error: io::Error| {
        let problem = format!("the path of npubench cannot be read: {error}");
        CommandError::bad_input(problem, "give it with `--npubench PATH`")
    })
}

/// Options of sbatch that the scripts set or need as they are, in their long and short forms.
const OPTIONS_OF_SCRIPTS: [(&str, &str); 8] = [
    ("--array", "-a"),
    ("--nodes", "-N"),
    ("--ntasks", "-n"),
    ("--output", "-o"),
    ("--wait", "-W"),
    ("--signal", "--signal"),
    ("--wrap", "--wrap"),
    ("--test-only", "--test-only"),
];

fn check_sbatch_values(job: &SlurmJob) -> Result<(), CommandError> {
    let contradicts = |option: &&String| {
        OPTIONS_OF_SCRIPTS.iter().any(|(long, short)| {
            let is_short = !short.starts_with("--") && option.starts_with(short) && !option.starts_with("--");
            is_short || option.split('=').next() == Some(long)
        })
    };
    if let Some(option) = job.options.iter().find(contradicts) {
        return Err(CommandError::bad_input(
            format!("`--sbatch={option}` contradicts the script of the jobs"),
            "leave it out; the templates `slurm_array.sh.hbs` and `slurm_comm.sh.hbs` can be replaced with `--assets`",
        ));
    }
    match job.texts().find(|value| value.chars().any(char::is_control)) {
        None => Ok(()),
        Some(value) => Err(CommandError::bad_input(
            format!("the value {value:?} contains a control character"),
            "give each option of sbatch on its own, as `--sbatch=--account=NAME`",
        )),
    }
}

pub(crate) fn render_slurm_sweep(
    assets: &AssetFiles,
    job: &SlurmJob,
    sweep: &SlurmSweep<'_>,
) -> Result<String, CommandError> {
    check_sbatch_values(job)?;
    Ok(slurm_sweep_script(assets, job, sweep)?)
}

pub(crate) fn submit_script(script: &str) -> Result<String, CommandError> {
    SlurmPrograms::new()?.submit(script, &[])
}

#[derive(Clone, Debug)]
pub(crate) struct SlurmStatus {
    pub(crate) submission: SlurmSubmission,
    pub(crate) shards: Vec<(ShardState, Option<QueuedTask>)>,
    pub(crate) merge: Option<QueuedTask>,
}

pub(crate) fn state_word(shard: &ShardState, task: Option<&QueuedTask>) -> String {
    match task {
        Some(task) if !task.has_ended() => task.state.to_lowercase(),
        _ if shard.is_complete => "complete".to_owned(),
        Some(task) if task.state != "COMPLETED" => task.state.to_lowercase(),
        _ if shard.used_by.is_some() => "in use".to_owned(),
        _ if shard.is_started => "interrupted".to_owned(),
        _ => "not started".to_owned(),
    }
}

impl SlurmStatus {
    pub(crate) fn read(database: &Database, plan: &ShardPlan) -> Result<Self, CommandError> {
        let submission = SlurmSubmission::require(database, plan)?;
        let jobs = iter::once(submission.array_job.as_str()).chain(submission.merge_job.as_deref());
        let tasks = SlurmPrograms::new()?.list_jobs(&jobs.collect::<Vec<_>>())?;
        let states = shard_states(database, plan)?;
        Ok(Self::join(submission, states, &tasks))
    }

    fn join(submission: SlurmSubmission, states: Vec<ShardState>, tasks: &[QueuedTask]) -> Self {
        let task_of = |job: &str, number: Option<usize>| {
            tasks.iter().find(|task| task.job == job && task.task == number).cloned()
        };
        let shards = states.into_iter().map(|state| {
            let task = task_of(&submission.array_job, Some(state.number));
            (state, task)
        });
        let shards = shards.collect();
        let merge = submission.merge_job.as_deref().and_then(|job| task_of(job, None));
        Self { shards, merge, submission }
    }

    pub(crate) fn left_shards(&self) -> Vec<usize> {
        let is_queued = |task: &Option<QueuedTask>| task.as_ref().is_some_and(|task| !task.has_ended());
        let left = self.shards.iter().filter(|(shard, task)| !shard.is_complete && !is_queued(task));
        left.map(|(shard, _)| shard.number).collect()
    }

    pub(crate) fn left_note(&self, database: &Database) -> Option<String> {
        let left = self.left_shards();
        let first = left.first()?;
        let log = plan_folder(database, &self.submission.plan).join(LOGS).join(format!("{first}.log"));
        Some(format!(
            "{} of the shards are neither complete nor in the queue: `npubench slurm submit --db {}` with the options of the first \
             submission measures the rest; the log of shard {first} is {}",
            left.len(),
            quoted_path(database.folder()),
            log.display()
        ))
    }
}

/// Answer of `squeue` and `scancel` for jobs that the controller has forgotten.
const UNKNOWN_JOB: &str = "Invalid job id specified";

fn refused(name: &str, text: &str) -> CommandError {
    CommandError::bad_input(
        format!("`{name}` of Slurm failed: {text}"),
        "`sinfo -o '%P %G'` lists the partitions and their resources; give them with `--partition` and `--gres`, and \
         other options as `--sbatch=--account=NAME`. `scontrol ping` shows whether the controller answers, and `scontrol show \
         config` the limit of tasks, MaxArraySize",
    )
}

#[derive(Debug)]
struct SlurmPrograms {
    scratch: ScratchFolder,
}

impl SlurmPrograms {
    fn new() -> Result<Self, CommandError> {
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
            return Err(CommandError::cannot_measure(
                format!("the program `{name}` of Slurm was not found"),
                "run the command on a host of the cluster that submits jobs, or add the folder of Slurm's programs to PATH; \
                 `npubench slurm submit --dry-run` prints the scripts without Slurm",
            ));
        };
        let failed = |problem: String| {
            CommandError::cannot_measure(format!("`{name}` {problem}"), "run it by hand to see its output")
        };
        let log = self.scratch.path().join("slurm.log");
        let words = iter::once(program.into_os_string()).chain(arguments.into_iter().map(OsString::from));
        let folder = std::env::current_dir().map_err(|error| failed(error.to_string()))?;
        let job = CommandSpec::query(words.collect(), &folder, &log, Question::Cluster);
        // A job on this host inherits the environment of `sbatch`, and must not be taken for its descendant.
        let job = CommandSpec { ends_descendants: false, ..job };
        match read_query(&job, &AtomicBool::new(false)).map_err(|error| failed(error.to_string()))? {
            (ExitKind::Exited(0), text) => Ok(Ok(text)),
            (end, _) if end.is_hung() || matches!(end, ExitKind::Signalled(_)) => {
                Err(failed(end.problem(&job)))
            }
            (_, text) => Ok(Err(text.trim().replace('\n', "; "))),
        }
    }

    fn require<'a>(
        &self,
        name: &'static str,
        arguments: impl IntoIterator<Item = &'a str>,
    ) -> Result<String, CommandError> {
        self.run_program(name, arguments)?.map_err(|text| refused(name, &text))
    }

    fn submit(&self, text: &str, options: &[&str]) -> Result<String, CommandError> {
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

    /// Returns the jobs with these numbers, an array by its tasks, also those that ended a short time ago. Jobs that the controller does not
    /// know any more are missing.
    fn list_jobs(&self, jobs: &[&str]) -> Result<Vec<QueuedTask>, CommandError> {
        let (jobs, format) = (format!("--jobs={}", jobs.join(",")), format!("--format={QUEUE_FORMAT}"));
        let text =
            match self.run_program("squeue", ["--noheader", "--array", "--states=all", &jobs, &format])? {
                Ok(text) => text,
                Err(text) if text.contains(UNKNOWN_JOB) => return Ok(Vec::new()),
                Err(text) => return Err(refused("squeue", &text)),
            };
        parse_queue(&text).map_err(|line| {
            CommandError::bad_input(
                format!("`squeue` printed `{line}`, expected job, state, node and reason"),
                format!("compare with `squeue --array --states=all {jobs} {format}`"),
            )
        })
    }

    fn cancel(&self, options: &[&str], job: &str) -> Result<(), CommandError> {
        match self.run_program("scancel", options.iter().copied().chain([job]))? {
            Ok(_) => Ok(()),
            Err(text) if text.contains(UNKNOWN_JOB) || text.contains("already completing or completed") => {
                Ok(())
            }
            Err(text) => Err(refused("scancel", &text)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(states: Vec<ShardState>, tasks: &[QueuedTask]) -> SlurmStatus {
        let submission = SlurmSubmission {
            plan: "0f".to_owned(),
            array_job: "6".to_owned(),
            merge_job: Some("7".to_owned()),
            shards: vec![1, 2, 3, 4],
            submitted: Timestamp::default(),
        };
        SlurmStatus::join(submission, states, tasks)
    }

    fn task(job: &str, task: Option<usize>, state: &str) -> QueuedTask {
        let (job, state, node) = (job.to_owned(), state.to_owned(), "node1".to_owned());
        QueuedTask { job, task, state, node, reason: String::new() }
    }

    #[test]
    fn state_of_a_shard_is_that_of_its_task_until_it_is_complete() {
        let shard = |number: usize, is_started: bool, is_complete: bool| ShardState {
            number,
            cases: 2,
            is_started,
            is_complete,
            ..ShardState::default()
        };
        let states = vec![
            shard(1, true, true),
            shard(2, true, false),
            shard(3, true, false),
            shard(4, false, false),
            shard(5, true, false),
        ];
        let tasks = [
            // A complete shard whose job ended with 1, because a case failed.
            task("6", Some(1), "FAILED"),
            task("6", Some(2), "RUNNING"),
            task("6", Some(3), "TIMEOUT"),
            task("7", None, "PENDING"),
            // Task of another array.
            task("9", Some(4), "RUNNING"),
        ];
        let status = status(states, &tasks);
        let words: Vec<String> =
            status.shards.iter().map(|(shard, task)| state_word(shard, task.as_ref())).collect();
        assert_eq!(words, ["complete", "running", "timeout", "not started", "interrupted"]);
        assert_eq!(status.left_shards(), [3, 4, 5]);
        assert_eq!(status.merge.as_ref().map(|task| task.state.as_str()), Some("PENDING"));
    }
}
