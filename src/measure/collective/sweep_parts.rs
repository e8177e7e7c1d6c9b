//! Parts of a sweep that do not follow from its options: the messages of workloads, and sizes around changes of the
//! algorithm.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use crate::{
    answer::lookup_database::{LookupDatabase, WorkloadSelection},
    base::command_error::CommandError,
    measure::{
        collective::{
            measured_sweeps::DatabaseSweeps,
            sweep_session::{CollectiveSweep, SweepGroup, SweepPart, WantedGroups},
        },
        run_context::RunContext,
    },
};
use crate::{
    answer::{coverage::CoverageAnalyzer, lookup::LookupEngine, workload::Workload},
    database::Database,
    kernel::{CollectiveKind, Dtype},
    measure::collective::{SweepFit, SweepKey},
};

/// Parts of a sweep for the messages of workloads, with notes on those that have none.
#[derive(Debug, Default)]
pub(crate) struct WorkloadMessages {
    pub(crate) parts: Vec<SweepPart>,
    pub(crate) notes: Vec<String>,
}

impl WorkloadMessages {
    /// Finds the collectives of workloads with their message sizes, types and groups. `wanted` has the numbers of
    /// ranks of questions that state none, and the tiers of those without one.
    pub(crate) fn find(
        workloads: &[Workload],
        engine: &LookupEngine,
        wanted: &WantedGroups,
        find_groups: impl Fn(&WantedGroups) -> Result<Vec<SweepGroup>, CommandError>,
    ) -> Result<Self, CommandError> {
        let mut sizes: BTreeMap<(CollectiveKind, String, u64, Option<u64>), BTreeSet<u64>> = BTreeMap::new();
        let mut notes: BTreeSet<String> = BTreeSet::new();
        for query in workloads.iter().flat_map(|workload| &workload.questions).map(|question| &question.query)
        {
            let queries = match (query.ranks, wanted.ranks.as_slice()) {
                (None, ranks @ [_, ..]) => ranks
                    .iter()
                    .map(|ranks| {
                        let mut query = query.clone();
                        query.ranks = Some(*ranks as u64);
                        query
                    })
                    .collect(),
                _ => vec![query.clone()],
            };
            for query in queries {
                let Some((kernel, message)) = engine.collective_of_query(&query) else { continue };
                let kind = CollectiveKind::of_kernel(&kernel);
                let dtype = message.dtype.as_ref().and_then(Dtype::torch_name);
                match (kind, dtype) {
                    (Some(kind), Some(dtype)) if message.ranks > 1 => {
                        let key = (kind, dtype.to_owned(), message.ranks, message.tier);
                        sizes.entry(key).or_default().insert(message.bytes);
                    }
                    (Some(_), Some(_)) => {}
                    (Some(kind), None) => {
                        notes.insert(format!("{kind} without an element type is left out"));
                    }
                    (None, _) => {
                        notes.insert(format!("{kernel} is left out: no sweep measures it"));
                    }
                }
            }
        }
        let mut parts = Vec::new();
        for ((kind, dtype, ranks, tier), sizes) in sizes {
            let tiers = tier
                .and_then(|tier| usize::try_from(tier).ok())
                .map_or_else(|| wanted.tiers.clone(), |tier| vec![tier]);
            let groups = WantedGroups { ranks: vec![usize::try_from(ranks).unwrap_or(usize::MAX)], tiers };
            match find_groups(&groups) {
                Ok(groups) => parts.push(SweepPart {
                    kinds: vec![kind],
                    dtypes: vec![dtype],
                    sizes: sizes.into_iter().collect(),
                    groups,
                }),
                Err(error) => {
                    notes.insert(format!("{kind} over {ranks} ranks is left out: {}", error.message));
                }
            }
        }
        let notes: Vec<String> = notes.into_iter().collect();
        if parts.is_empty() {
            let (reason, hint) = match notes.is_empty() {
                false => (notes.join("; "), "`npubench comm groups` lists the groups of the devices"),
                true => (
                    "they have no collective with a size and a number of ranks".to_owned(),
                    "give `--ranks` for questions without a number of ranks; `npubench coverage` lists the collectives of a workload",
                ),
            };
            return Err(CommandError::bad_input(format!("the workloads give no message: {reason}"), hint));
        }
        Ok(Self { parts, notes })
    }
}

impl RunContext {
    /// Finds the messages of workloads among the devices of the run.
    pub(crate) fn messages_of_workloads(
        &self,
        selection: &WorkloadSelection<'_>,
        mapping: Option<&Path>,
        wanted: &WantedGroups,
    ) -> Result<WorkloadMessages, CommandError> {
        let database = LookupDatabase::open(self.database.folder(), mapping)?;
        let analyzer = CoverageAnalyzer { engine: &database.engine, catalogue: &self.catalogue };
        let workloads = selection.load_with_durations(&self.assets, &database, &analyzer)?;
        WorkloadMessages::find(&workloads, &database.engine, wanted, |groups| self.find_groups(groups))
    }
}

impl CollectiveSweep {
    /// Returns the parts with the sizes that locate the changes of the algorithm in the rows of this sweep; empty if
    /// all are located within a quarter.
    pub(crate) fn refining_parts(&self, database: &Database) -> Result<Vec<SweepPart>, CommandError> {
        let kinds: BTreeSet<CollectiveKind> =
            self.parts.iter().flat_map(|part| part.kinds.iter().copied()).collect();
        let names: Vec<String> = kinds.iter().map(ToString::to_string).collect();
        let sweeps = DatabaseSweeps::read(database, &names)?.sweeps;
        let mut parts = Vec::new();
        for sweep in sweeps {
            let Some((group, dtype)) = self.group_of(sweep.kind, &sweep.key) else { continue };
            let fit = SweepFit::from_sweep(sweep);
            let sizes: BTreeSet<u64> =
                fit.switches.iter().flat_map(|switch| switch.refining_sizes.iter().copied()).collect();
            if !sizes.is_empty() {
                parts.push(SweepPart {
                    kinds: vec![fit.sweep.kind],
                    dtypes: vec![dtype],
                    sizes: sizes.into_iter().collect(),
                    groups: vec![group.clone()],
                });
            }
        }
        Ok(parts)
    }

    /// Returns the group of a sweep with this key and its type by torch's name; `None` if it is not of this sweep.
    fn group_of(&self, kind: CollectiveKind, key: &SweepKey) -> Option<(&SweepGroup, String)> {
        let dtype = key.dtype.as_ref()?.torch_name()?.to_owned();
        let is_of_parts = kind != CollectiveKind::AllToAllV || key.parts == self.part_weights;
        if key.environment != self.environment || !is_of_parts {
            return None;
        }
        let has_key =
            |group: &&SweepGroup| group.ranks as u64 == key.ranks && Some(group.tier as u64) == key.tier;
        let parts =
            self.parts.iter().filter(|part| part.kinds.contains(&kind) && part.dtypes.contains(&dtype));
        let group = parts.flat_map(|part| &part.groups).find(has_key)?;
        Some((group, dtype))
    }
}
