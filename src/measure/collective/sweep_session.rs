//! A sweep of collectives: its cases, and their plan from tables and ledger.

use std::collections::{BTreeMap, BTreeSet};

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{NodeLayout, devices_for, reachable_groups};
use crate::{
    base::command_error::CommandError,
    cases::plan::{InitialCosts, PlannedCase, RunPlan, UpdateMode, planned_case},
    database::{Database, row_cases},
    kernel::{
        Case, CaseId, CollectiveCase, CollectiveKind, Dtype, IdentifiedCase, KernelName, PartWeights,
        catalogue::Catalogue,
        device::DeviceProfile,
        earlier_hccl_environment, hccl_environment, hccl_variables, is_in_hccl_environment,
        render::{PinnedEnvironment, ScriptCommunication},
    },
    measure::{engine::dry_run, run_context::RunContext, run_options::RunOptions},
};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CollectiveSweep {
    pub(crate) parts: Vec<SweepPart>,
    /// Key of the variables of HCCL.
    pub(crate) environment: String,
    /// Sizes of the parts of `all_to_all_v`.
    #[serde(default, skip_serializing_if = "is_equal")]
    pub(crate) part_weights: PartWeights,
    pub(crate) communication: ScriptCommunication,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) nodes: Option<NodeLayout>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SweepPart {
    pub(crate) kinds: Vec<CollectiveKind>,
    /// Element types by torch's names.
    pub(crate) dtypes: Vec<String>,
    pub(crate) sizes: Vec<u64>,
    pub(crate) groups: Vec<SweepGroup>,
}

/// Groups of devices with the same number of ranks and tier.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SweepGroup {
    pub(crate) ranks: usize,
    pub(crate) tier: usize,
    /// Devices by rank of each group, the preferred group first.
    pub(crate) devices: Vec<Vec<u32>>,
}

/// Wanted groups: numbers of ranks and tiers; all reachable ones if they are empty.
#[derive(Clone, Debug, Default)]
pub(crate) struct WantedGroups {
    pub(crate) ranks: Vec<usize>,
    pub(crate) tiers: Vec<usize>,
}

/// Cases of one collective in one kind of group.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct SweepLine {
    pub(crate) collective: String,
    pub(crate) ranks: usize,
    pub(crate) tier: usize,
    pub(crate) dtype: String,
    /// Devices of the preferred group.
    pub(crate) devices: Vec<u32>,
    /// Number of further groups of devices.
    pub(crate) other_groups: usize,
    /// Message sizes of the cases that are measured.
    pub(crate) sizes: Vec<u64>,
    /// Predicted seconds of their launches.
    pub(crate) seconds: f64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct SweepPreview {
    pub(crate) lines: Vec<SweepLine>,
    pub(crate) already_measured: usize,
    pub(crate) not_launched: Vec<String>,
    /// Collectives that no group can run, with the reason.
    pub(crate) left_out: Vec<String>,
    /// Measured rows, by kernel, whose key has not the following variables of HCCL.
    pub(crate) rows_of_earlier_keys: BTreeMap<KernelName, usize>,
    pub(crate) new_variables: Vec<String>,
    pub(crate) collections: u32,
    pub(crate) seconds: f64,
}

impl WantedGroups {
    /// Finds the groups among the devices of a run. Fails if a number of ranks cannot span a tier that is given, or
    /// none of the tiers.
    pub(crate) fn find(
        &self,
        profile: &DeviceProfile,
        devices: &[u32],
        nodes: Option<&NodeLayout>,
    ) -> Result<Vec<SweepGroup>, CommandError> {
        let network = profile.comm.as_ref().ok_or_else(|| no_network(profile))?;
        let grid = &network.grid;
        let all = nodes.map(|nodes| nodes.all_devices(devices));
        let devices = all.as_deref().unwrap_or(devices);
        let group = |ranks: usize, tier: usize| -> Result<SweepGroup, CommandError> {
            let mut found = devices_for(grid, devices, ranks, tier)?;
            // Node 0 starts the collections, with the script of its first device.
            found.retain(|group| nodes.is_none_or(|nodes| group.iter().any(|id| nodes.node_of(*id) == 0)));
            if found.is_empty() {
                return Err(CommandError::bad_input(
                    format!("no group of {ranks} ranks on tier {tier} has a device of node 0"),
                    "give other devices, or other numbers of ranks",
                ));
            }
            Ok(SweepGroup { ranks, tier, devices: found })
        };
        let reachable = reachable_groups(grid, devices)?;
        let mut wanted: Vec<(usize, usize)> = Vec::new();
        for &ranks in &self.ranks {
            let before = wanted.len();
            let found = reachable.iter().filter(|size| size.0 == ranks).map(|size| size.1);
            match self.tiers.as_slice() {
                [] => wanted.extend(found.map(|tier| (ranks, tier))),
                tiers => wanted.extend(tiers.iter().map(|tier| (ranks, *tier))),
            }
            if wanted.len() == before {
                // The innermost tier names the reason why no tier has such a group.
                wanted.push((ranks, grid.len().saturating_sub(1)));
            }
        }
        if self.ranks.is_empty() {
            let of_tiers = |tier: usize| self.tiers.is_empty() || self.tiers.contains(&tier);
            wanted
                .extend(reachable.iter().filter(|(ranks, tier)| ranks.is_power_of_two() && of_tiers(*tier)));
        }
        if wanted.is_empty() {
            let count = devices.len();
            return Err(CommandError::bad_input(
                format!("no group of the {count} devices spans a wanted tier of the grid {grid:?}"),
                "`npubench comm groups` lists the groups of each tier",
            ));
        }
        wanted.into_iter().map(|(ranks, tier)| group(ranks, tier)).collect()
    }
}

/// Returns true for parts without weights, which stored options leave out.
fn is_equal(weights: &PartWeights) -> bool {
    *weights == PartWeights::Equal
}

fn no_network(profile: &DeviceProfile) -> CommandError {
    CommandError::bad_input(
        format!("the device profile `{}` declares no network", profile.device),
        "add the key `comm` to the profile; docs/device-profiles.md describes it",
    )
}

pub(crate) fn current_hccl_environment() -> String {
    hccl_environment(&set_hccl_variables())
}

/// Returns the variables of this process that can be part of the key.
pub(crate) fn set_hccl_variables() -> BTreeMap<String, String> {
    let texts = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    texts.filter(|(name, _)| is_in_hccl_environment(name)).collect()
}

fn can_run(group: &SweepGroup, kind: CollectiveKind) -> bool {
    kind != CollectiveKind::SendReceive || group.ranks == 2
}

impl CollectiveSweep {
    /// Returns the cases with the groups that may measure them, each once: options may name a type or a group twice.
    /// Fails if a size has no call.
    pub(crate) fn cases(&self) -> Result<Vec<(IdentifiedCase, &SweepGroup)>, CommandError> {
        let (mut cases, mut known) = (Vec::new(), BTreeSet::new());
        for part in &self.parts {
            for group in &part.groups {
                for &kind in part.kinds.iter().filter(|kind| can_run(group, **kind)) {
                    let sizes = |dtype| part.sizes.iter().map(move |size| (dtype, *size));
                    for (dtype, message) in part.dtypes.iter().flat_map(sizes) {
                        let case = IdentifiedCase::new(self.case(kind, message, dtype, group)?);
                        if known.insert(case.id().clone()) {
                            cases.push((case, group));
                        }
                    }
                }
            }
        }
        if cases.is_empty() {
            return Err(CommandError::bad_input(
                "the sweep has no case: transfers are between 2 ranks",
                "add 2 to `--ranks`, or further collectives to `--ops`",
            ));
        }
        Ok(cases)
    }

    /// Returns the sweep with further parts, of its own collectives, types and groups, with sizes in its range. `None` if one
    /// is of another sweep.
    pub(crate) fn refined(&self, parts: Vec<SweepPart>) -> Option<Self> {
        let own = |part: &SweepPart| {
            let covers = |own: &&SweepPart| {
                part.kinds.iter().all(|kind| own.kinds.contains(kind))
                    && part.dtypes.iter().all(|dtype| own.dtypes.contains(dtype))
                    && part.groups.iter().all(|group| own.groups.contains(group))
            };
            self.parts
                .iter()
                .filter(covers)
                .flat_map(|own| own.sizes.iter().copied())
                .collect::<BTreeSet<u64>>()
        };
        let is_own = |part: &SweepPart| {
            let sizes = own(part);
            let range = sizes.first().zip(sizes.last());
            range.is_some_and(|(least, most)| part.sizes.iter().all(|size| (least..=most).contains(&size)))
        };
        parts.iter().all(is_own).then(|| Self { parts, ..self.clone() })
    }

    fn left_out(&self) -> Vec<String> {
        let kind = CollectiveKind::SendReceive;
        let is_left_out = self.parts.iter().any(|SweepPart { kinds, groups, .. }| {
            kinds.contains(&kind) && !groups.is_empty() && !groups.iter().any(|group| can_run(group, kind))
        });
        let reason = || "send_receive: transfers are between 2 ranks; add 2 to `--ranks`".to_owned();
        is_left_out.then(reason).into_iter().collect()
    }

    fn case(
        &self,
        kind: CollectiveKind,
        message: u64,
        dtype: &str,
        group: &SweepGroup,
    ) -> Result<Case, CommandError> {
        let parsed = Dtype::from_torch(dtype).ok_or_else(|| {
            CommandError::bad_input(
                format!("`{dtype}` is no element type"),
                "use types of torch, such as bfloat16, float16, float32 or int8",
            )
        })?;
        let collective = CollectiveCase {
            kind,
            message,
            ranks: group.ranks as u64,
            tier: group.tier as u64,
            dtype: parsed,
            environment: self.environment.clone(),
            parts: match kind {
                CollectiveKind::AllToAllV => self.part_weights.clone(),
                _ => PartWeights::Equal,
            },
        };
        let refused = |problem: String, hint: &str| {
            CommandError::bad_input(format!("{kind} over {} ranks: {problem}", group.ranks), hint)
        };
        collective.parts.check_ranks(collective.ranks).map_err(|problem| {
            let hint = "give its number of ranks with `--ranks`, or a matrix with as many rows (`--parts`)";
            refused(problem.to_string(), hint)
        })?;
        collective.case().map_err(|problem| {
            let hint =
                "give sizes that each rank can share with `--sizes`, or begin with a larger one (`--from`)";
            refused(problem.to_string(), hint)
        })
    }

    /// Returns the variables of the collections of the sweep: those of HCCL have the values of its key.
    pub(crate) fn pinned_environment(&self) -> PinnedEnvironment {
        let mut pinned = PinnedEnvironment::default();
        let variables = hccl_variables(&self.environment).into_iter();
        pinned.variables.extend(variables.map(|(name, value)| (name, Some(value))));
        pinned
    }

    /// Plans the cases: those that the ledger has accepted are measured already, and get a row if they have none.
    pub(crate) fn plan(
        &self,
        database: &Database,
        catalogue: &Catalogue,
        profile: &DeviceProfile,
        options: &RunOptions,
        measured: &BTreeSet<CaseId>,
    ) -> Result<RunPlan, CommandError> {
        let mut shown: BTreeSet<CaseId> = BTreeSet::new();
        let kinds: BTreeSet<CollectiveKind> =
            self.parts.iter().flat_map(|part| part.kinds.iter().copied()).collect();
        for kind in kinds {
            let kernel = KernelName::new(kind.kernel_name()).expect("the name of a table");
            let table = database.kernel_csv(&kernel)?;
            let rows = row_cases(&kernel, &table)?.into_iter();
            let rows = rows.filter(|row| row.cells(options.cache).run.is_some());
            shown.extend(rows.filter_map(|row| Some(row.case.ok()?.id())));
        }
        let mut plan = RunPlan::default();
        let earlier = earlier_hccl_environment(&self.environment);
        let earlier_id = |case: &IdentifiedCase| {
            let environment = earlier.as_ref()?.0.clone();
            let case = CollectiveCase { environment, ..CollectiveCase::of_case(case)? }.case().ok()?;
            Some(case.id())
        };
        for (case, group) in self.cases()? {
            if earlier_id(&case).is_some_and(|id| shown.contains(&id)) {
                *plan.rows_of_earlier_keys.entry(case.kernel.clone()).or_default() += 1;
            }
            if options.update == UpdateMode::Missing && measured.contains(case.id()) {
                plan.already_measured += 1;
                if !shown.contains(case.id()) {
                    plan.rows_to_insert.push(case);
                }
                continue;
            }
            match planned_case(catalogue, profile, case) {
                Ok(planned) => {
                    plan.cases.push(PlannedCase { device_groups: group.devices.clone(), ..planned });
                }
                Err((case, outcome)) => plan.not_launched.push((*case, outcome)),
            }
        }
        Ok(plan)
    }
}

impl RunContext {
    pub(crate) fn find_groups(&self, wanted: &WantedGroups) -> Result<Vec<SweepGroup>, CommandError> {
        let devices: Vec<u32> = self.chips.iter().map(|chip| chip.physical_id).collect();
        wanted.find(&self.profile, &devices, self.layout.as_ref())
    }

    /// Sets the number of nodes whose devices the groups may have, each with as many as this host. Fails without a
    /// network.
    pub(crate) fn set_node_count(&mut self, nodes: usize) -> Result<(), CommandError> {
        let listed = self.info.chips.iter().map(|chip| chip.physical_id + 1).max().unwrap_or_default();
        let network = self.profile.comm.as_ref().ok_or_else(|| no_network(&self.profile))?;
        self.layout = Some(NodeLayout::new(&network.grid, nodes, listed));
        Ok(())
    }

    pub(crate) fn preview_sweep(
        &self,
        options: &RunOptions,
        budget: Option<f64>,
    ) -> Result<SweepPreview, CommandError> {
        let plan = self.plan(options, &[])?;
        let devices: Vec<u32> = self.chips.iter().map(|chip| chip.physical_id).collect();
        let nodes = options.sweep.as_ref().and_then(|sweep| sweep.nodes);
        let devices = nodes.map_or(devices.clone(), |nodes| nodes.all_devices(&devices));
        let costs = InitialCosts::new(options.warm_up, options.launches);
        let predicted = dry_run(self.database.kind(), &costs, &plan.cases, &devices, budget);
        let mut lines: IndexMap<_, SweepLine> = IndexMap::new();
        for planned in &plan.cases {
            let Some(collective) = CollectiveCase::of_case(&planned.case) else { continue };
            let CollectiveCase { kind, message, ranks, tier, dtype, .. } = collective;
            let [ranks, tier] = [ranks, tier].map(|number| usize::try_from(number).expect("of this host"));
            let groups = &planned.device_groups;
            let new = || SweepLine {
                collective: kind.to_string(),
                ranks,
                tier,
                dtype: dtype.as_str().to_owned(),
                devices: groups.first().cloned().unwrap_or_default(),
                other_groups: groups.len().saturating_sub(1),
                sizes: Vec::new(),
                seconds: 0.0,
            };
            let line = lines.entry((kind, ranks, tier, dtype.clone())).or_insert_with(new);
            line.sizes.push(message);
            line.seconds += costs.case_seconds(planned.predicted_launch());
        }
        let refused = plan.not_launched.iter();
        let refused =
            refused.map(|(case, outcome)| format!("{} {}: {}", case.kernel, case.shapes(), outcome.reason));
        Ok(SweepPreview {
            lines: lines.into_values().collect(),
            already_measured: plan.already_measured,
            not_launched: refused.collect(),
            left_out: options.sweep.as_ref().map(CollectiveSweep::left_out).unwrap_or_default(),
            new_variables: options
                .sweep
                .as_ref()
                .and_then(|sweep| Some(earlier_hccl_environment(&sweep.environment)?.1))
                .unwrap_or_default(),
            rows_of_earlier_keys: plan.rows_of_earlier_keys,
            collections: predicted.collections,
            seconds: predicted.duration,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(kinds: Vec<CollectiveKind>, sizes: Vec<u64>) -> SweepPart {
        let groups = vec![SweepGroup { ranks: 3, tier: 1, devices: vec![vec![0, 2, 4]] }];
        SweepPart { kinds, dtypes: vec!["bfloat16".to_owned()], sizes, groups }
    }

    fn sweep(parts: Vec<SweepPart>) -> CollectiveSweep {
        CollectiveSweep {
            parts,
            environment: "HCCL_ALGO=level0:ring;HCCL_BUFFSIZE=400".to_owned(),
            part_weights: PartWeights::Equal,
            communication: ScriptCommunication::Hccl,
            nodes: None,
        }
    }

    #[test]
    fn a_size_that_the_ranks_cannot_share_is_an_error() {
        let odd = sweep(vec![part(vec![CollectiveKind::AllReduce, CollectiveKind::AllToAll], vec![1024])]);
        let error = odd.cases().expect_err("512 elements by 3").to_string();
        assert!(error.contains("all_to_all over 3 ranks: 1024 bytes are 512 elements"), "{error}");
        assert!(sweep(vec![part(vec![CollectiveKind::SendReceive], vec![1024])]).cases().is_err(), "3 ranks");
        assert_eq!(
            sweep(vec![part(vec![CollectiveKind::AllToAll], vec![1536])]).cases().expect("divides").len(),
            1
        );
        let twice = SweepPart {
            dtypes: vec!["bfloat16".to_owned(), "bfloat16".to_owned()],
            ..part(vec![CollectiveKind::AllReduce; 2], vec![1536])
        };
        let twice = sweep(vec![twice.clone(), twice]);
        assert_eq!(twice.cases().expect("divides").len(), 1, "options that repeat a case");
    }

    #[test]
    fn collections_have_the_variables_of_the_key() {
        let pinned = sweep(Vec::new()).pinned_environment();
        assert_eq!(pinned.variables["HCCL_BUFFSIZE"].as_deref(), Some("400"));
        assert_eq!(pinned.variables["HCCL_ALGO"].as_deref(), Some("level0:ring"));
        let default = CollectiveSweep { environment: String::new(), ..sweep(Vec::new()) };
        assert_eq!(default.pinned_environment().values(), PinnedEnvironment::default().values());
    }

    #[test]
    fn further_parts_differ_from_the_sweep_in_sizes_of_its_range_only() {
        let own = part(vec![CollectiveKind::AllReduce], vec![1024, 4096]);
        let sweep = sweep(vec![own.clone()]);
        let further = |part: &SweepPart| sweep.refined(vec![own.clone(), part.clone()]).is_some();
        assert!(further(&SweepPart { sizes: vec![1536, 4096], ..own.clone() }));
        let mut other_group = own.clone();
        other_group.groups[0].devices = vec![vec![0, 2, 5]];
        for other in [
            SweepPart { sizes: vec![1 << 40], ..own.clone() },
            SweepPart { sizes: vec![0], ..own.clone() },
            SweepPart { kinds: vec![CollectiveKind::AllGather], ..own.clone() },
            SweepPart { dtypes: vec!["float16; touch x".to_owned()], ..own.clone() },
            other_group,
        ] {
            assert!(!further(&other), "{other:?}");
        }
    }
}
