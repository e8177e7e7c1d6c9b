//! Options that decide the results of a run. They are stored in the ledger, so that `resume` uses the same ones.
//!
//! The command line reads them in `cli/measurement_options.rs` (how to measure) and `cli/options.rs` (which rows); `cli/plan.rs`
//! and `cli/shard.rs` have options of their own. An option that changes what is launched is also a value of `node_agreement` in
//! `nodes/session.rs`: all nodes of a sweep must have the same. An option that the replay script
//! reads is a field of `Manifest` in `kernel/render/manifest.rs`. docs/runs.md describes the options.

use std::{collections::BTreeMap, path::PathBuf};

use serde::{Deserialize, Serialize};

use crate::{
    base::{command_error::CommandError, stats::PrecisionAim},
    cases::plan::{LaunchCount, UpdateMode},
    database::ledger::RunRecord,
    kernel::{
        CacheState, FailingVerdicts, ProfilerSettings,
        render::{PinnedEnvironment, ScriptCommunication},
    },
    measure::{collective::sweep_session::CollectiveSweep, recorder::LogLevel},
    rehearsal::{NoiseModel, fault_plan::FaultPlan},
};

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct RunOptions {
    pub(crate) update: UpdateMode,
    #[serde(skip_serializing_if = "CacheState::is_hot")]
    pub(crate) cache: CacheState,
    pub(crate) kernels: Vec<String>,
    pub(crate) log: LogLevel,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) cases: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) filter: Option<String>,
    pub(crate) chosen_devices: Option<Vec<u32>>,
    pub(crate) devices: Vec<u32>,
    pub(crate) python: String,
    pub(crate) assets: Option<PathBuf>,
    pub(crate) warm_up: u32,
    pub(crate) launches: LaunchCount,
    pub(crate) seed: u64,
    pub(crate) expert_skew: f64,
    /// Relative half width of the 95 % interval for which cases are measured in further collections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) precision: Option<f64>,
    pub(crate) max_collections: usize,
    pub(crate) rehearsal_model: NoiseModel,
    pub(crate) ignore_check: bool,
    /// True if the run was allowed without a passed selftest of the host, which its rows state.
    pub(crate) without_selftest: bool,
    pub(crate) failing: FailingVerdicts,
    pub(crate) weight_column: Option<String>,
    /// Weights of cases by id, which are preferred to weights of rows.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) case_weights: BTreeMap<String, f64>,
    pub(crate) busy: BusyPolicy,
    pub(crate) leases: Option<PathBuf>,
    pub(crate) profiler: ProfilerSettings,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) environment: Option<PinnedEnvironment>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sweep: Option<CollectiveSweep>,
    /// Command of node 0 of a sweep over several nodes, which `resume` prints.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) command: Option<String>,
    #[serde(skip_serializing_if = "FaultPlan::is_empty")]
    pub(crate) faults: FaultPlan,
}

impl RunOptions {
    pub(crate) fn of_run(run: &RunRecord) -> Result<Self, CommandError> {
        serde_json::from_str(&run.options).map_err(|error| {
            CommandError::bad_input(
                format!("the options of run {} cannot be read: {error}", run.run),
                "start a new run with `npubench run`; it measures what is missing",
            )
        })
    }

    pub(crate) fn pinned_environment(&self) -> PinnedEnvironment {
        self.sweep.as_ref().map_or_else(PinnedEnvironment::default, CollectiveSweep::pinned_environment)
    }

    pub(crate) fn communication(&self) -> ScriptCommunication {
        self.sweep.as_ref().map(|sweep| sweep.communication).unwrap_or_default()
    }

    pub(crate) fn precision_aim(&self) -> Option<PrecisionAim> {
        let max_collections = self.max_collections;
        self.precision.map(|half_width| PrecisionAim { half_width, max_collections })
    }
}

/// Treatment of devices on which foreign processes run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BusyPolicy {
    /// Start no collection on the device until it is free
    #[default]
    Wait,
    /// Leave the device out of the run
    Skip,
}
