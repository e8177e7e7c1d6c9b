//! A sweep of collectives: its cases, and their plan from tables and ledger.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::measure::run_options::RunOptions;
use crate::{
    base::command_error::CommandError,
    cases::plan::{InitialCosts, PlannedCase, RunPlan, UpdateMode, planned_case},
    database::{Database, row_cases},
    kernel::{
        Case, CaseId, CollectiveCase, CollectiveKind, Dtype, HCCL_VARIABLES, IdentifiedCase, KernelName,
        PartWeights,
        catalogue::Catalogue,
        device::DeviceProfile,
        hccl_environment, hccl_variables,
        render::{PinnedEnvironment, ScriptCommunication},
    },
    measure::{
        collective::{NodeLayout, devices_for, reachable_groups},
        engine::dry_run,
        run_context::RunContext,
    },
};

/// Cases of a sweep, stored with the options of its run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CollectiveSweep {
    pub(crate) parts: Vec<SweepPart>,
    /// Key of the variables of HCCL.
    pub(crate) environment: String,
    /// Sizes of the parts of `all_to_all_v`.
    #[serde(default, skip_serializing_if = "is_equal")]
    pub(crate) part_weights: PartWeights,
    pub(crate) communication: ScriptCommunication,
    /// Nodes of the sweep; `None` for one host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) nodes: Option<NodeLayout>,
}

/// Cases of all combinations of some collectives, types, sizes and groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SweepPart {
    pub(crate) kinds: Vec<CollectiveKind>,
    /// Element types by torch's names.
    pub(crate) dtypes: Vec<String>,
    /// Message sizes in bytes.
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

/// Prediction of a sweep.
#[derive(Clone, Debug, Default)]
pub(crate) struct SweepPreview {
    pub(crate) lines: Vec<SweepLine>,
    pub(crate) already_measured: usize,
    /// Cases that are not launched, with their reasons.
    pub(crate) not_launched: Vec<String>,
    /// Collectives that no group can run, with the reason.
    pub(crate) left_out: Vec<String>,
    pub(crate) collections: u32,
    /// Predicted seconds of the run.
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
        if self.ranks.is_empty() {
            let is_wanted = |ranks: usize, tier: usize| {
                ranks.is_power_of_two() && (self.tiers.is_empty() || self.tiers.contains(&tier))
            };
            let wanted = reachable.into_iter().filter(|size| is_wanted(size.ranks, size.tier));
            let found: Vec<SweepGroup> =
                wanted.map(|size| group(size.ranks, size.tier)).collect::<Result<_, _>>()?;
            return match found.is_empty() {
                false => Ok(found),
                true => Err(CommandError::bad_input(
                    format!(
                        "no group of the {} devices spans a wanted tier of the grid {grid:?}",
                        devices.len()
                    ),
                    "`npubench comm groups` lists the groups of each tier",
                )),
            };
        }
        let mut found = Vec::new();
        for &ranks in &self.ranks {
            let tiers: Vec<usize> = match self.tiers.is_empty() {
                false => self.tiers.clone(),
                true => reachable.iter().filter(|size| size.ranks == ranks).map(|size| size.tier).collect(),
            };
            if tiers.is_empty() {
                // The innermost tier that fails names the reason.
                found.push(group(ranks, grid.len().saturating_sub(1))?);
            }
            for tier in tiers {
                found.push(group(ranks, tier)?);
            }
        }
        Ok(found)
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

/// Returns the key of the variables of HCCL in the user's environment.
pub(crate) fn current_hccl_environment() -> String {
    let set = HCCL_VARIABLES.iter().filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?)));
    hccl_environment(&set.collect::<BTreeMap<_, _>>())
}

impl SweepPart {
    /// Returns the collectives of each group; transfers are between two ranks.
    fn groups_with_kinds(&self) -> impl Iterator<Item = (&SweepGroup, CollectiveKind)> {
        let of_group = |group: &SweepGroup, kind: CollectiveKind| {
            kind != CollectiveKind::SendReceive || group.ranks == 2
        };
        self.groups.iter().flat_map(move |group| {
            self.kinds
                .iter()
                .copied()
                .filter(move |kind| of_group(group, *kind))
                .map(move |kind| (group, kind))
        })
    }
}

impl CollectiveSweep {
    /// Returns the cases with the groups that may measure them, each once: options may name a type or a group twice.
    /// Fails if a size has no call.
    pub(crate) fn cases(&self) -> Result<Vec<(IdentifiedCase, &SweepGroup)>, CommandError> {
        let (mut cases, mut known) = (Vec::new(), BTreeSet::new());
        for part in &self.parts {
            for (group, kind) in part.groups_with_kinds() {
                for (dtype, &message) in
                    part.dtypes.iter().flat_map(|dtype| part.sizes.iter().map(move |size| (dtype, size)))
                {
                    let case = IdentifiedCase::new(self.case(kind, message, dtype, group)?);
                    if known.insert(case.id().clone()) {
                        cases.push((case, group));
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

    /// Returns the collectives that no group of their part can run.
    fn left_out(&self) -> Vec<String> {
        let has_transfers =
            |part: &SweepPart| part.groups.iter().any(|group| group.ranks == 2) || part.groups.is_empty();
        let is_left_out =
            |part: &&SweepPart| part.kinds.contains(&CollectiveKind::SendReceive) && !has_transfers(part);
        let is_any = self.parts.iter().any(|part| is_left_out(&part));
        is_any
            .then(|| "send_receive: transfers are between 2 ranks; add 2 to `--ranks`".to_owned())
            .into_iter()
            .collect()
    }

    fn case(
        &self,
        kind: CollectiveKind,
        message: u64,
        dtype: &str,
        group: &SweepGroup,
    ) -> Result<Case, CommandError> {
        let unknown = || {
            CommandError::bad_input(
                format!("`{dtype}` is no element type"),
                "use types of torch, such as bfloat16, float16, float32 or int8",
            )
        };
        let dtype = Dtype::from_torch(dtype).ok_or_else(unknown)?;
        let collective = CollectiveCase {
            kind,
            message,
            ranks: group.ranks as u64,
            tier: group.tier as u64,
            dtype,
            environment: self.environment.clone(),
            parts: match kind {
                CollectiveKind::AllToAllV => self.part_weights.clone(),
                _ => PartWeights::Equal,
            },
        };
        collective.parts.check_ranks(collective.ranks).map_err(|problem| {
            CommandError::bad_input(
                format!("{kind} over {} ranks: {problem}", group.ranks),
                "give its number of ranks with `--ranks`, or a matrix with as many rows (`--parts`)",
            )
        })?;
        collective.case().map_err(|problem| {
            CommandError::bad_input(
                format!("{kind} over {} ranks: {problem}", group.ranks),
                "give sizes that each rank can share with `--sizes`, or begin with a larger one (`--from`)",
            )
        })
    }

    /// Returns the variables of the collections of the sweep: those of HCCL have the values of its key, all others
    /// are unset.
    pub(crate) fn pinned_environment(&self) -> PinnedEnvironment {
        let mut pinned = PinnedEnvironment::default();
        let variables = hccl_variables(&self.environment);
        for name in HCCL_VARIABLES {
            let value = variables.get(name).cloned();
            let default = pinned.variables.get(name).cloned().flatten();
            pinned.variables.insert(name.to_owned(), value.or(default));
        }
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
            let Ok(kernel) = KernelName::new(kind.kernel_name()) else { continue };
            let table = database.kernel_csv(&kernel)?;
            let rows = row_cases(&kernel, &table)?.into_iter();
            let rows = rows.filter(|row| row.cells(options.cache).run.is_some());
            shown.extend(rows.filter_map(|row| Some(row.case.ok()?.id())));
        }
        let mut plan = RunPlan::default();
        for (case, group) in self.cases()? {
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
    /// Finds the groups among the devices of the run.
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

    /// Predicts the run of a sweep. Nothing is written.
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
        let mut lines: Vec<SweepLine> = Vec::new();
        for planned in &plan.cases {
            let Some(collective) = CollectiveCase::of_case(&planned.case) else { continue };
            let CollectiveCase { kind, message, ranks, tier, dtype, environment: _, parts: _ } = collective;
            let [ranks, tier] = [ranks, tier].map(|number| usize::try_from(number).unwrap_or(usize::MAX));
            let new = SweepLine {
                collective: kind.to_string(),
                ranks,
                tier,
                dtype: dtype.as_str().to_owned(),
                devices: planned.device_groups.first().cloned().unwrap_or_default(),
                other_groups: planned.device_groups.len().saturating_sub(1),
                sizes: Vec::new(),
                seconds: 0.0,
            };
            let is_same = |line: &SweepLine| {
                let key =
                    |line: &SweepLine| (line.collective.clone(), line.ranks, line.tier, line.dtype.clone());
                key(line) == key(&new)
            };
            let place = lines.iter().position(is_same).unwrap_or_else(|| {
                lines.push(new.clone());
                lines.len() - 1
            });
            lines[place].sizes.push(message);
            lines[place].seconds += costs.case_seconds(planned.predicted_launch());
        }
        let refused = plan.not_launched.iter();
        let refused =
            refused.map(|(case, outcome)| format!("{} {}: {}", case.kernel, case.shapes(), outcome.reason));
        Ok(SweepPreview {
            lines,
            already_measured: plan.already_measured,
            not_launched: refused.collect(),
            left_out: options.sweep.as_ref().map(CollectiveSweep::left_out).unwrap_or_default(),
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
        assert_eq!(pinned.variables["HCCL_OP_EXPANSION_MODE"], None);
        let default = CollectiveSweep { environment: String::new(), ..sweep(Vec::new()) };
        assert_eq!(default.pinned_environment().values(), PinnedEnvironment::default().values());
    }
}
