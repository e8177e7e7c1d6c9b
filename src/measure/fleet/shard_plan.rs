//! Plan of a run cut into shards.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{
    base::{
        command_error::CommandError,
        count_text::format_count,
        files::{FolderLock, named_entries, read_json, write_atomic},
        shell_argument::quoted_path,
    },
    cases::plan::{InitialCosts, RunPlan},
    database::{
        Database, DatabaseError, ShardIdentity, ShardNumber,
        ledger::{Ledger, StoredCheck},
    },
    kernel::{CacheState, CaseId, Nanos, short_hash},
};

const PLAN_FILE: &str = "plan.json";
const LAYOUT: u32 = 1;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ShardPlan {
    layout: u32,
    pub(crate) cache: CacheState,
    pub(crate) weight_column: Option<String>,
    pub(crate) shards: Vec<PlannedShard>,
    checks: BTreeMap<CaseId, StoredCheck>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct PlannedShard {
    pub(crate) cases: Vec<CaseId>,
    /// Predicted time of all devices together, in seconds.
    pub(crate) device_seconds: f64,
}

/// Cases that stay together, because they share their launches.
#[derive(Clone, Debug)]
struct ShardItem {
    /// Case that decides its place.
    id: CaseId,
    cases: Vec<CaseId>,
    device_seconds: f64,
}

fn items_of_plan(plan: &RunPlan, costs: &InitialCosts) -> Vec<ShardItem> {
    let launched = plan.cases.iter().map(|planned| ShardItem {
        id: planned.case.id().clone(),
        cases: planned.cases().map(|case| case.id().clone()).collect(),
        device_seconds: costs.case_seconds(planned.predicted_launch()) * planned.devices as f64,
    });
    let not_launched = plan.not_launched.iter().map(|(case, _)| ShardItem {
        id: case.id().clone(),
        cases: vec![case.id().clone()],
        device_seconds: 0.0,
    });
    launched.chain(not_launched).collect()
}

/// Divides items into shards, at most as many as there are items: in the order of their ids, cut where the sum of the times reaches
/// k/N of the whole, with at least one item in each shard.
fn divide(mut items: Vec<ShardItem>, count: usize) -> Vec<PlannedShard> {
    items.sort_by(|one, other| one.id.cmp(&other.id));
    let total: f64 = items.iter().map(|item| item.device_seconds).sum();
    let mut shards = vec![PlannedShard::default(); count];
    let (mut before, mut previous, number_of_items) = (0.0, None, items.len());
    for (place, ShardItem { mut cases, device_seconds, .. }) in items.into_iter().enumerate() {
        let share = match total > 0.0 {
            // Half of the item, so that rounding of the sums cannot move it beyond a cut.
            true => ((before + device_seconds / 2.0) / total * count as f64) as usize,
            false => place * count / number_of_items,
        };
        // No shard is left out, and the items that are left suffice for the shards that are left.
        let next = previous.map_or(0, |previous: usize| previous + 1).min(count - 1);
        let number = share.min(next).max(count.saturating_sub(number_of_items - place));
        previous = Some(number);
        let shard = &mut shards[number];
        shard.cases.append(&mut cases);
        shard.device_seconds += device_seconds;
        before += device_seconds;
    }
    shards.iter_mut().for_each(|shard| shard.cases.sort_unstable());
    shards
}

/// Rounds seconds to a number that is the same after it was stored as JSON and read: the id of a plan is a digest of its text.
fn whole_milliseconds(seconds: f64) -> f64 {
    (seconds * 1e3).round() / 1e3
}

impl ShardPlan {
    pub(crate) fn new(
        database: &Database,
        plan: &RunPlan,
        costs: &InitialCosts,
        cache: CacheState,
        weight_column: Option<String>,
        count: usize,
    ) -> Result<Self, CommandError> {
        let items = items_of_plan(plan, costs);
        if items.is_empty() {
            return Err(CommandError::bad_input(
                format!("`{}` has no case to measure", database.folder().display()),
                "every row has an accepted result; `--update all` measures all of them again",
            ));
        }
        if count > items.len() {
            return Err(CommandError::bad_input(
                format!("the plan has {}, fewer than {count} shards", format_count(items.len(), "call")),
                format!("give at most `--shards {}`", items.len()),
            ));
        }
        let cases: BTreeSet<CaseId> = items.iter().flat_map(|item| &item.cases).cloned().collect();
        let stored = database.existing_ledger()?.map(|ledger| ledger.stored_checks()).transpose()?;
        let stored = stored.unwrap_or_default().into_iter();
        let checks = stored.filter(|(case, _)| cases.contains(case)).collect();
        let mut shards = divide(items, count);
        for shard in &mut shards {
            shard.device_seconds = whole_milliseconds(shard.device_seconds);
        }
        Ok(Self { layout: LAYOUT, cache, weight_column, shards, checks })
    }

    pub(crate) fn id(&self) -> String {
        short_hash(serde_json::to_string(self).expect("numbers and texts are JSON").as_bytes())
    }

    pub(crate) fn load(database: &Database) -> Result<Option<Self>, CommandError> {
        let path = database.shards_folder().join(PLAN_FILE);
        let hint = || damaged_plan_hint(database, &path);
        let Some(plan) = read_json::<Self>(&path, "plan of shards", hint)? else { return Ok(None) };
        if plan.layout != LAYOUT {
            let (path, layout) = (path.display(), plan.layout);
            return Err(CommandError::bad_input(
                format!(
                    "`{path}` is no plan of shards: layout {layout}, this npubench reads layout {LAYOUT}"
                ),
                hint(),
            ));
        }
        Ok(Some(plan))
    }

    pub(crate) fn load_existing(database: &Database) -> Result<Self, CommandError> {
        Self::load(database)?.ok_or_else(|| {
            CommandError::bad_input(
                format!("`{}` has no shards", database.folder().display()),
                format!(
                    "`npubench shard --db {} --shards N` divides its plan",
                    quoted_path(database.folder())
                ),
            )
        })
    }

    /// Stores the plan. Another stored plan is replaced only if `replaces`. `lock` is the lock of the database.
    pub(crate) fn store(
        &self,
        database: &Database,
        lock: &mut FolderLock,
        replaces: bool,
    ) -> Result<(), CommandError> {
        let db = quoted_path(database.folder());
        if let Some(earlier) =
            Self::load(database).or_else(|error| if replaces { Ok(None) } else { Err(error) })?
        {
            if earlier.id() == self.id() {
                return Ok(());
            }
            if !replaces {
                return Err(CommandError::bad_input(
                    format!(
                        "`{}` has another plan of {} shards, {}",
                        database.folder().display(),
                        earlier.shards.len(),
                        earlier.id()
                    ),
                    format!(
                        "merge its shards with `npubench db merge {db} --shards`, then repeat this command with `--replace`"
                    ),
                ));
            }
        }
        database.initialise(lock)?;
        let folder = database.shards_folder();
        fs::create_dir_all(&folder).map_err(DatabaseError::io("create", &folder))?;
        let text = serde_json::to_string(self).expect("numbers and texts are JSON") + "\n";
        Ok(write_atomic(&folder.join(PLAN_FILE), text.as_bytes())?)
    }

    pub(crate) fn identity(&self, number: usize) -> ShardIdentity {
        ShardIdentity { plan: self.id(), shard: ShardNumber { number, count: self.shards.len() } }
    }

    pub(super) fn store_checks(&self, cases: &BTreeSet<CaseId>, path: &Path) -> Result<(), DatabaseError> {
        let checks: Vec<_> = self.checks.iter().filter(|(case, _)| cases.contains(case)).collect();
        if checks.is_empty() {
            return Ok(());
        }
        // The time of the check is in the ledger of the divided database.
        let checks = checks.into_iter().map(|(case, StoredCheck { digest, software, outcome })| {
            (case, software.as_str(), digest.as_str(), outcome)
        });
        Ok(Ledger::open(path)?.add_checks(Nanos(0), checks)?)
    }
}

pub(super) fn all_shards(database: &Database) -> Vec<PathBuf> {
    let entries = |folder: &Path| {
        named_entries(folder, "", "").unwrap_or_default().into_iter().filter(|path| path.is_dir())
    };
    entries(&database.shards_folder()).flat_map(|plan| entries(&plan)).collect()
}

fn damaged_plan_hint(database: &Database, file: &Path) -> String {
    let [db, file, shards] = [database.folder(), file, &database.shards_folder()].map(quoted_path);
    if all_shards(database).is_empty() {
        return format!(
            "no shard of it was started: `npubench shard --db {db} --shards N --replace` writes a new one"
        );
    }
    format!(
        "`mv {file} {file}.damaged`, then `npubench db merge {db} {shards}/*/[0-9]*/` to merge what its shards have measured, then \
         `npubench shard --db {db} --shards N` for a new one"
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn id(number: u64) -> CaseId {
        CaseId::from_stored(short_hash(&number.to_le_bytes()))
    }

    fn item(number: u64, device_seconds: f64) -> ShardItem {
        let id = id(number);
        ShardItem { cases: vec![id.clone()], id, device_seconds }
    }

    /// Returns an item with further cases of the same call, whose ids are anywhere in the order.
    fn item_of_calls(number: u64, calls: u64, device_seconds: f64) -> ShardItem {
        let further = (1..calls).map(|call| id(number * 10 + 1_000_000 + call));
        let mut item = item(number, device_seconds);
        item.cases.extend(further);
        item
    }

    proptest! {
        #[test]
        fn stored_seconds_are_read_as_they_were_written(seconds in 0.0..1e8_f64) {
            let seconds = whole_milliseconds(seconds);
            let text = serde_json::to_string(&seconds).expect("JSON");
            prop_assert_eq!(serde_json::from_str::<f64>(&text).expect("a number").to_bits(), seconds.to_bits());
        }

        #[test]
        fn every_case_is_in_one_shard_and_no_shard_differs_by_more_than_its_largest_case(
            costs in proptest::collection::vec((0.01..20.0_f64, 1..4_u64), 1..300), count in 1..40_usize
        ) {
            let items: Vec<ShardItem> =
                costs.iter().zip(0..).map(|((seconds, calls), number)| item_of_calls(number, *calls, *seconds)).collect();
            let count = count.min(items.len());
            let shards = divide(items.clone(), count);
            let place = |case: &CaseId| shards.iter().position(|shard| shard.cases.binary_search(case).is_ok());
            let mut by_id: Vec<&ShardItem> = items.iter().collect();
            by_id.sort_by_key(|item| &item.id);
            let places: Vec<Option<usize>> = by_id.iter().map(|item| place(&item.id)).collect();
            prop_assert!(places.is_sorted() && places[0].is_some(), "shards are ranges of ids");
            for item in &items {
                prop_assert!(item.cases.iter().all(|case| place(case) == place(&item.id)), "cases of a call stay together");
            }
            let planned: usize = shards.iter().map(|shard| shard.cases.len()).sum();
            prop_assert_eq!(planned, items.iter().map(|item| item.cases.len()).sum::<usize>());
            prop_assert!(shards.iter().all(|shard| !shard.cases.is_empty()), "no shard is empty");
            let seconds: Vec<f64> = costs.iter().map(|(seconds, _)| *seconds).collect();
            let mean = seconds.iter().sum::<f64>() / count as f64;
            let largest = seconds.iter().copied().fold(0.0, f64::max);
            for shard in &shards {
                prop_assert!((shard.device_seconds - mean).abs() <= largest + 1e-6, "{} of {mean}", shard.device_seconds);
            }
            let reversed = items.into_iter().rev().collect();
            prop_assert_eq!(divide(reversed, count), shards, "the order of the rows does not matter");
        }
    }

    #[test]
    fn one_more_case_moves_few_others() {
        let items: Vec<ShardItem> = (0..2_000).map(|number| item(number, 1.0)).collect();
        let place = |shards: &[PlannedShard]| -> BTreeMap<CaseId, usize> {
            let numbered = shards.iter().enumerate();
            numbered
                .flat_map(|(number, shard)| shard.cases.iter().map(move |case| (case.clone(), number)))
                .collect()
        };
        let before = place(&divide(items.clone(), 16));
        let after = place(&divide([items, vec![item(5_000, 1.0)]].concat(), 16));
        let moved = before.iter().filter(|(case, number)| after[*case] != **number).count();
        assert!(moved <= 16, "{moved}");
    }

    #[test]
    fn cases_without_launches_are_divided_evenly() {
        let sizes: Vec<usize> = divide((0..8).map(|number| item(number, 0.0)).collect(), 4)
            .iter()
            .map(|shard| shard.cases.len())
            .collect();
        assert_eq!(sizes, [2; 4]);
    }
}
