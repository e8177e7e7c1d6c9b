//! Messages of workloads: the parts of a sweep that measures them.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use super::{
    coverage::CoverageAnalyzer,
    lookup::OpQuery,
    lookup_database::{LookupDatabase, WorkloadSelection},
};
use crate::{
    base::command_error::CommandError,
    kernel::{CollectiveKind, Dtype},
    measure::{
        collective::sweep_session::{SweepPart, WantedGroups},
        run_context::RunContext,
    },
};

#[derive(Debug, Default)]
pub(crate) struct WorkloadMessages {
    pub(crate) parts: Vec<SweepPart>,
    pub(crate) notes: Vec<String>,
}

impl WorkloadMessages {
    /// Finds the collectives of workloads with their message sizes, types and groups. `wanted` has the numbers of
    /// ranks of questions that state none, and the tiers of those without one.
    pub(crate) fn of_run(
        context: &RunContext,
        selection: &WorkloadSelection<'_>,
        mapping: Option<&Path>,
        wanted: &WantedGroups,
    ) -> Result<Self, CommandError> {
        let database = LookupDatabase::open(context.database.folder(), mapping)?;
        let analyzer = CoverageAnalyzer { engine: &database.engine, catalogue: &context.catalogue };
        let workloads = selection.load_with_durations(&context.assets, &database, &analyzer)?;
        let mut sizes: BTreeMap<(CollectiveKind, String, u64, Option<u64>), BTreeSet<u64>> = BTreeMap::new();
        let mut notes: BTreeSet<String> = BTreeSet::new();
        for question in workloads.iter().flat_map(|workload| &workload.questions) {
            let query = &question.query;
            let ranks: Vec<Option<u64>> = match (query.ranks, wanted.ranks.as_slice()) {
                (None, ranks @ [_, ..]) => ranks.iter().map(|ranks| Some(*ranks as u64)).collect(),
                (ranks, _) => vec![ranks],
            };
            for ranks in ranks {
                let query = OpQuery { ranks, ..query.clone() };
                let Some((kernel, message)) = database.engine.collective_of_query(&query) else { continue };
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
            match context.find_groups(&groups) {
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
