//! Databases of shards: their creation, and how far their runs have come.

use std::{collections::BTreeSet, path::Path};

use super::{ShardPlan, merge::owner_of};
use crate::{
    base::{command_error::CommandError, exit::ExitStatus, files::entries, shell_argument::quoted_path},
    database::{Database, DatabaseError, ShardIdentity, ShardNumber, copy_rows},
    kernel::{CaseId, FailingVerdicts, Verdict},
    measure::run_options::RunOptions,
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ShardProgress {
    Open,
    /// A run of this host on the same devices was interrupted.
    Interrupted {
        run: String,
    },
    Complete {
        run: String,
        exit: ExitStatus,
    },
}

pub(crate) fn open_shard(
    divided: &Database,
    plan: &ShardPlan,
    shard: ShardNumber,
) -> Result<Database, CommandError> {
    let identity = plan.identity(shard.number);
    if identity.shard != shard {
        let (db, count) = (quoted_path(divided.folder()), plan.shards.len());
        return Err(CommandError::bad_input(
            format!(
                "the plan {} of `{}` has {count} shards, so shard {shard} is of another plan",
                identity.plan,
                divided.folder().display()
            ),
            format!(
                "give `--shard {}/{count}`, or divide again: `npubench shard --db {db} --shards {} --replace`",
                shard.number.min(count),
                shard.count
            ),
        ));
    }
    let folder = divided.shard_folder(&identity);
    if Database::is_new(&folder)? {
        create_shard(divided, plan, &identity, &folder)?;
    }
    let database = Database::open_as(&folder, divided.kind())?;
    if database.shard()?.as_ref() != Some(&identity) {
        return Err(CommandError::bad_input(
            format!("`{}` is not shard {shard} of plan {}", folder.display(), identity.plan),
            "move the folder away; the same command creates it again",
        ));
    }
    // A shard that has lost its ledger is refused: its rows would count as measured, but a merge takes results from
    // ledgers.
    let runs = database.state_folder().join("runs");
    let has_runs = !entries(&runs).map_err(DatabaseError::io("read", &runs))?.is_empty();
    if has_runs && DatabaseError::is_missing(&database.ledger_path())? {
        return Err(CommandError::bad_input(
            format!("shard {shard} in `{}` has lost its ledger", folder.display()),
            "`npubench db rebuild` of the folder restores it from its copy; without one, move the folder away: the same command measures \
             the shard again",
        ));
    }
    Ok(database)
}

fn create_shard(
    divided: &Database,
    plan: &ShardPlan,
    identity: &ShardIdentity,
    folder: &Path,
) -> Result<(), CommandError> {
    let cases: BTreeSet<CaseId> = plan.shards[identity.shard.number - 1].cases.iter().cloned().collect();
    // An empty folder is what a killed creation may leave.
    let _ = std::fs::remove_dir(folder);
    let copied = copy_rows(divided, folder, divided.kind(), Some(&cases), |draft| {
        identity.store_in(draft)?;
        plan.store_checks(&cases, &draft.join(".npubench").join("ledger.db"))
    });
    match copied {
        // Another process has created it.
        Ok(_) | Err(DatabaseError::CreatedConcurrently { .. } | DatabaseError::Exists { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Returns the state of a shard for a run on these devices. A run of another host, or on other devices, is not continued: all
/// collections of a run are of one host.
pub(crate) fn shard_progress(
    database: &Database,
    devices: Option<&[u32]>,
) -> Result<ShardProgress, CommandError> {
    let Some(ledger) = database.existing_ledger()? else { return Ok(ShardProgress::Open) };
    let Some(last) = ledger.list_runs()?.pop() else { return Ok(ShardProgress::Open) };
    let mut exits = [ExitStatus::Done, ExitStatus::SomeNotOk].into_iter();
    let has_exit = |exit: &ExitStatus| last.ended.is_some() && last.exit == Some(i64::from(exit.code()));
    if let Some(exit) = exits.find(has_exit) {
        return Ok(match last.verdicts.contains_key(Verdict::NotRun.as_str()) {
            true => ShardProgress::Open,
            false => ShardProgress::Complete { run: last.run, exit },
        });
    }
    let is_interrupted = last.ended.is_none() || last.exit == Some(i64::from(ExitStatus::Interrupted.code()));
    let host = nix::unistd::gethostname().unwrap_or_default().to_string_lossy().into_owned();
    let is_same_host = ledger.run_hosts()?.get(&last.run) == Some(&host);
    let is_same = RunOptions::of_run(&last)?.chosen_devices.as_deref() == devices;
    Ok(match is_interrupted && is_same_host && is_same {
        true => ShardProgress::Interrupted { run: last.run },
        false => ShardProgress::Open,
    })
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ShardState {
    pub(crate) number: usize,
    pub(crate) cases: usize,
    pub(crate) done: usize,
    pub(crate) failed: usize,
    pub(crate) is_started: bool,
    pub(crate) is_complete: bool,
    /// Process that measures it, as far as this host can detect.
    pub(crate) used_by: Option<String>,
}

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
    let done = verdicts.iter().filter(|(verdict, _)| **verdict != Verdict::NotRun);
    let failed = done.clone().filter(|(verdict, _)| failing.contains(**verdict));
    Ok(ShardState {
        done: done.map(|(_, count)| count).sum(),
        failed: failed.map(|(_, count)| count).sum(),
        is_started: true,
        is_complete: matches!(shard_progress(&database, None)?, ShardProgress::Complete { .. }),
        used_by,
        ..state
    })
}
