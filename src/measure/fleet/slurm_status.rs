//! State of the jobs of a plan: the queue of Slurm beside the ledgers of the shards.

use serde_json::json;

use super::{
    ShardPlan,
    shard_states::{ShardState, shard_states},
    slurm_jobs::{SlurmSubmission, log_of_job},
    slurm_output::QueuedTask,
    slurm_programs::SlurmPrograms,
};
use crate::{
    base::{command_error::CommandError, count_text::format_count, shell_argument::quoted_path},
    database::Database,
    show::table::{FittedColumn, fitted_text},
};

/// State of all jobs of a plan.
#[derive(Clone, Debug)]
pub(crate) struct SlurmStatus {
    pub(crate) submission: SlurmSubmission,
    /// Shards in their order, each with its task in the queue.
    shards: Vec<(ShardState, Option<QueuedTask>)>,
    merge: Option<QueuedTask>,
}

/// Returns the state of a shard in one word.
fn state_word(shard: &ShardState, task: Option<&QueuedTask>) -> String {
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
    /// Reads the jobs of the last submission from the controller, and the ledgers.
    pub(crate) fn read(database: &Database, plan: &ShardPlan) -> Result<Self, CommandError> {
        let submission = SlurmSubmission::require(database, plan)?;
        let jobs = std::iter::once(submission.array_job.as_str()).chain(submission.merge_job.as_deref());
        let tasks = SlurmPrograms::new()?.list_jobs(&jobs.collect::<Vec<_>>())?;
        let states = shard_states(database, plan)?;
        Ok(Self::join(submission, states, &tasks))
    }

    /// Joins the shards with the tasks of the queue.
    fn join(submission: SlurmSubmission, states: Vec<ShardState>, tasks: &[QueuedTask]) -> Self {
        let of_shard = |number: usize| {
            let mut tasks = tasks.iter().filter(|task| task.job == submission.array_job);
            tasks.find(|task| task.task == Some(number)).cloned()
        };
        let shards = states.into_iter().map(|state| {
            let task = of_shard(state.number);
            (state, task)
        });
        let merge = tasks.iter().find(|task| Some(&task.job) == submission.merge_job.as_ref()).cloned();
        Self { shards: shards.collect(), merge, submission }
    }

    /// Returns the shards that are neither complete nor in the queue.
    pub(crate) fn left_shards(&self) -> Vec<usize> {
        let is_queued = |task: &Option<QueuedTask>| task.as_ref().is_some_and(|task| !task.has_ended());
        let left = self.shards.iter().filter(|(shard, task)| !shard.is_complete && !is_queued(task));
        left.map(|(shard, _)| shard.number).collect()
    }

    /// Returns a line about the jobs, then a table with a row per shard.
    pub(crate) fn text(&self, width: Option<usize>) -> String {
        let SlurmSubmission { plan, array_job, merge_job, submitted, .. } = &self.submission;
        let merge = match (merge_job, &self.merge) {
            (None, _) => "no merge job".to_owned(),
            (Some(job), Some(task)) => {
                let reason =
                    if task.reason.is_empty() { String::new() } else { format!(" ({})", task.reason) };
                format!("merge job {job} {}{reason}", task.state.to_lowercase())
            }
            (Some(job), None) => format!("merge job {job} not in the queue"),
        };
        let [cases, done] = [|shard: &ShardState| shard.cases, |shard: &ShardState| shard.done]
            .map(|of| self.shards.iter().map(|(shard, _)| of(shard)).sum::<usize>());
        let complete = self.shards.iter().filter(|(shard, _)| shard.is_complete).count();
        let mut text = format!(
            "plan {plan}, array job {array_job} of {}, {merge}\n{complete} of {} complete, {done} of {} done\n",
            submitted.local_date_time(),
            format_count(self.shards.len(), "shard"),
            format_count(cases, "case"),
        );
        let columns = vec![
            FittedColumn::number("shard", 0),
            FittedColumn::text("state", 0),
            FittedColumn::text("node", 1).shortened_to(8),
            FittedColumn::number("cases", 0),
            FittedColumn::number("done", 0),
            FittedColumn::number("failed", 0),
            FittedColumn::text("reason", 2).shortened_to(16),
        ];
        let cells = |(shard, task): &(ShardState, Option<QueuedTask>)| {
            let (node, reason) =
                task.as_ref().map_or(("", ""), |task| (task.node.as_str(), task.reason.as_str()));
            vec![
                shard.number.to_string(),
                state_word(shard, task.as_ref()),
                node.to_owned(),
                shard.cases.to_string(),
                shard.done.to_string(),
                shard.failed.to_string(),
                reason.to_owned(),
            ]
        };
        text.push_str(&fitted_text(columns, self.shards.iter().map(cells), width));
        text
    }

    /// Returns a JSON line per shard, and one for the merge job.
    pub(crate) fn json(&self) -> String {
        let job = &self.submission.array_job;
        let shards = self.shards.iter().map(|(shard, task)| {
            let queued = task.as_ref();
            json!({
                "shard": shard.number, "state": state_word(shard, queued), "job": format!("{job}_{}", shard.number),
                "job_state": queued.map(|task| &task.state), "node": queued.map(|task| &task.node),
                "reason": queued.map(|task| &task.reason), "cases": shard.cases, "done": shard.done,
                "failed": shard.failed, "complete": shard.is_complete,
            })
        });
        let merge = self.submission.merge_job.iter().map(|job| {
            let task = self.merge.as_ref();
            json!({
                "merge_job": job, "job_state": task.map(|task| &task.state), "reason": task.map(|task| &task.reason),
            })
        });
        shards.chain(merge).map(|line| format!("{line}\n")).collect()
    }

    /// Returns what to do about shards that are neither complete nor in the queue; `None` without one.
    pub(crate) fn left_note(&self, database: &Database) -> Option<String> {
        let left = self.left_shards();
        let first = left.first()?;
        let log = log_of_job(database, &self.submission.plan, Some(*first));
        Some(format!(
            "{} neither complete nor in the queue: `npubench slurm submit --db {}` with the options of the first submission measures the \
             rest; the log of shard {first} is {}",
            match left.len() {
                1 => format!("shard {first} is"),
                count => format!("{count} shards are"),
            },
            quoted_path(database.folder()),
            log.display()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::timestamp::Timestamp;

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
            // Of another array.
            task("9", Some(4), "RUNNING"),
        ];
        let status = status(states, &tasks);
        let words: Vec<String> =
            status.shards.iter().map(|(shard, task)| state_word(shard, task.as_ref())).collect();
        assert_eq!(words, ["complete", "running", "timeout", "not started", "interrupted"]);
        assert_eq!(status.left_shards(), [3, 4, 5]);
        assert!(status.text(None).contains("merge job 7 pending"), "{}", status.text(None));
        assert!(status.text(None).contains("1 of 5 shards complete"), "{}", status.text(None));
    }
}
