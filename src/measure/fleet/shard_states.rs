//! Progress of all shards of a plan, by their ledgers.

use super::{ShardPlan, ShardProgress, merge::owner_of, shard_progress};
use crate::{
    base::command_error::CommandError,
    database::Database,
    kernel::{FailingVerdicts, Verdict},
};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ShardState {
    /// From 1.
    pub(crate) number: usize,
    pub(crate) cases: usize,
    pub(crate) done: usize,
    /// Cases whose verdict is a failure.
    pub(crate) failed: usize,
    pub(crate) is_started: bool,
    /// True if no case is left to measure.
    pub(crate) is_complete: bool,
    /// Process that measures it, as far as this host can detect.
    pub(crate) used_by: Option<String>,
}

/// Returns the progress of the shards of a plan, in their order.
pub(crate) fn shard_states(divided: &Database, plan: &ShardPlan) -> Result<Vec<ShardState>, CommandError> {
    (1..=plan.shards.len()).map(|number| shard_state(divided, plan, number)).collect()
}

fn shard_state(divided: &Database, plan: &ShardPlan, number: usize) -> Result<ShardState, CommandError> {
    let cases = plan.shards[number - 1].cases.len();
    let state = ShardState { number, cases, is_complete: cases == 0, ..ShardState::default() };
    let folder = divided.shard_folder(&plan.identity(number));
    if Database::is_new(&folder)? {
        return Ok(state);
    }
    let database = Database::open_as(&folder, divided.kind())?;
    let used_by = owner_of(&database);
    let verdicts = match database.existing_ledger()? {
        Some(ledger) => ledger.newest_verdict_counts()?,
        None => Default::default(),
    };
    let failing = FailingVerdicts::default();
    let count = |is_counted: &dyn Fn(Verdict) -> bool| {
        verdicts.iter().filter(|(verdict, _)| is_counted(**verdict)).map(|(_, count)| count).sum()
    };
    let is_done = |verdict: Verdict| verdict != Verdict::NotRun;
    Ok(ShardState {
        done: count(&is_done),
        failed: count(&|verdict| is_done(verdict) && failing.contains(verdict)),
        is_started: true,
        is_complete: matches!(shard_progress(&database, None)?, ShardProgress::Complete { .. }),
        used_by,
        ..state
    })
}
