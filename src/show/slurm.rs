//! State of the jobs of a plan: the queue of Slurm beside the ledgers of the shards.

use super::prelude::*;
use crate::measure::fleet::{QueuedTask, ShardState, SlurmStatus, SlurmSubmission, state_word};

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

record! {
    ShardRecord<'a>(shard: &ShardState, task: Option<&'a QueuedTask>, job: &str) {
        cases: usize = shard.cases,
        complete: bool = shard.is_complete,
        done: usize = shard.done,
        failed: usize = shard.failed,
        job: String = format!("{job}_{}", shard.number),
        job_state: Option<&'a str> = task.map(|task| &*task.state),
        node: Option<&'a str> = task.map(|task| &*task.node),
        reason: Option<&'a str> = task.map(|task| &*task.reason),
        shard: usize = shard.number,
        state: String = state_word(shard, task),
    }
}

record! {
    MergeRecord<'a>(merge_job: &'a str, task: Option<&'a QueuedTask>) {
        job_state: Option<&'a str> = task.map(|task| &*task.state),
        merge_job: &'a str = merge_job,
        reason: Option<&'a str> = task.map(|task| &*task.reason),
    }
}

pub(crate) fn slurm_status_records(status: &SlurmStatus) -> Vec<Box<RawValue>> {
    let SlurmSubmission { array_job, merge_job, .. } = &status.submission;
    let shards = status.shards.iter();
    let shards = shards.map(|(shard, task)| json_record(&ShardRecord::new(shard, task.as_ref(), array_job)));
    let merge = merge_job.iter().map(|job| json_record(&MergeRecord::new(job, status.merge.as_ref())));
    shards.chain(merge).collect()
}
