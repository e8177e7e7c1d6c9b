//! Ids of new runs.

use std::process;

use crate::{
    database::{Database, REHEARSAL_RUN, ShardIdentity, ShardNumber},
    kernel::{CacheState, DataKind},
};

/// Returns the id of a new run of a database: sorted by time, distinct from all others, marked if durations are simulated or the
/// cache is cold. Runs of shards have the shard in their id: several hosts may start them in the same second, with processes of
/// one number.
pub(crate) fn new_run_id(database: &Database, cache: CacheState) -> String {
    let mark = if database.kind() == DataKind::Rehearsal { REHEARSAL_RUN } else { "" };
    let state = if cache.is_hot() { "" } else { "-cold" };
    let shard = database.shard().ok().flatten().map(|ShardIdentity { shard, .. }| shard);
    let shard =
        shard.map_or_else(String::new, |ShardNumber { number, count }| format!("-shard-{number}-of-{count}"));
    let time = jiff::Timestamp::now().strftime("%Y%m%d-%H%M%S").to_string();
    let numbered = |number: u32| {
        let number = if number == 0 { String::new() } else { format!("-{number}") };
        format!("{mark}{time}-{:05}{number}{shard}{state}", process::id() % 100_000)
    };
    // A command may start several runs within a second.
    let mut ids = (0..).map(numbered).skip_while(|id| database.run_folder(id).exists());
    ids.next().unwrap_or(time)
}
