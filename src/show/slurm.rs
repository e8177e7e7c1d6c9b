//! State of the jobs of a plan: the queue of Slurm beside the ledgers of the shards.

use serde_json::json;

use super::prelude::*;
use crate::measure::fleet::{ShardState, SlurmStatus, SlurmSubmission, state_word};

/// Returns a line about the jobs, then a table with a row per shard.
pub(crate) fn slurm_status_text(status: &SlurmStatus, width: Option<usize>) -> String {
    let SlurmSubmission { plan, array_job, merge_job, submitted, .. } = &status.submission;
    let merge = match (merge_job, &status.merge) {
        (None, _) => "no merge job".to_owned(),
        (Some(job), Some(task)) => {
            let reason = if task.reason.is_empty() { String::new() } else { format!(" ({})", task.reason) };
            format!("merge job {job} {}{reason}", task.state.to_lowercase())
        }
        (Some(job), None) => format!("merge job {job} not in the queue"),
    };
    let [cases, done] = [|shard: &ShardState| shard.cases, |shard: &ShardState| shard.done]
        .map(|of| status.shards.iter().map(|(shard, _)| of(shard)).sum::<usize>());
    let complete = status.shards.iter().filter(|(shard, _)| shard.is_complete).count();
    let mut text = format!(
        "plan {plan}, array job {array_job} of {}, {merge}\n{complete} of {} complete, {done} of {} done\n",
        submitted.local_date_time(),
        format_count(status.shards.len(), "shard"),
        format_count(cases, "case"),
    );
    text += &Table::new(&status.shards)
        .number("shard", 0, |(shard, _)| shard.number)
        .text("state", 0, |(shard, task)| state_word(shard, task.as_ref()))
        .text("node", rank(1).min(8), |(_, task)| task.as_ref().map_or("", |task| &task.node))
        .number("cases", 0, |(shard, _)| shard.cases)
        .number("done", 0, |(shard, _)| shard.done)
        .number("failed", 0, |(shard, _)| shard.failed)
        .text("reason", rank(2).min(16), |(_, task)| task.as_ref().map_or("", |task| &task.reason))
        .print(width);
    text
}

/// Returns a JSON line per shard, and one for the merge job.
pub(crate) fn slurm_status_json(status: &SlurmStatus) -> String {
    let job = &status.submission.array_job;
    let shards = status.shards.iter().map(|(shard, task)| {
        let queued = task.as_ref();
        json!({
            "shard": shard.number, "state": state_word(shard, queued), "job": format!("{job}_{}", shard.number),
            "job_state": queued.map(|task| &task.state), "node": queued.map(|task| &task.node),
            "reason": queued.map(|task| &task.reason), "cases": shard.cases, "done": shard.done,
            "failed": shard.failed, "complete": shard.is_complete,
        })
    });
    let merge = status.submission.merge_job.iter().map(|job| {
        let task = status.merge.as_ref();
        json!({
            "merge_job": job, "job_state": task.map(|task| &task.state), "reason": task.map(|task| &task.reason),
        })
    });
    shards.chain(merge).map(|line| format!("{line}\n")).collect()
}
