//! Options of commands that measure: host, launches, scripts and assets.

use std::sync::Arc;

use super::prelude::*;
use crate::{
    answer::fill::FillSession,
    measure::{recorder::LogLevel, run_options::BusyPolicy},
    rehearsal::{NoiseModel, fault_plan::FaultPlan},
};

pub(super) const WARM_UP: u32 = 5;

#[derive(Debug, Args)]
pub(super) struct MeasurementOptions {
    /// Treatment of devices on which foreign processes run
    #[arg(long, value_enum, default_value = "wait")]
    busy: BusyPolicy,
    /// Host of the launches
    #[arg(long, value_enum, default_value = "npu")]
    pub(super) host: DataKind,
    /// Model of the durations of the rehearsal host
    #[arg(long, value_enum, default_value = "lifelike")]
    rehearsal_model: NoiseModel,
    /// Fault plan of the rehearsal host, with the speed of its clock; see docs/rehearsal.md
    #[arg(long, value_name = "FILE")]
    rehearsal_faults: Option<PathBuf>,
    /// Seed of input values and of the durations of the rehearsal host
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Samples per case and collection; `auto` takes 10 to 64, the fewer the longer the kernel
    ///
    /// `auto` is the number that gives the narrowest interval for a device time, by the predicted duration of the kernel.
    #[arg(long, value_name = "N", default_value_t, env = "NPUBENCH_LAUNCHES")]
    launches: LaunchCount,
    /// Launches of a case before its samples
    #[arg(long, default_value_t = WARM_UP, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    warm_up: u32,
    #[command(flatten)]
    python: PythonOption,
    #[command(flatten)]
    profiler: ProfilerOptions,
    /// Also launch cases that `npubench check` found rejected by the vendor's code
    #[arg(long)]
    ignore_check: bool,
    /// Measure without a passed selftest of this host; the rows get a remark
    #[arg(long)]
    without_selftest: bool,
    /// Detail of the file npubench.log in the folder of each run
    #[arg(long, value_enum, value_name = "LEVEL", default_value = "info")]
    log: LogLevel,
    #[command(flatten)]
    fail_on: FailOnOption,
    #[command(flatten)]
    pub(super) leases: LeaseOption,
    #[command(flatten)]
    pub(super) skew: SkewOption,
    #[command(flatten)]
    pub(super) assets: AssetOptions,
}

impl MeasurementOptions {
    pub(super) fn print_notes(&self) {
        if let Some(missing) = self.launches.unjudged_patterns() {
            print_note(&format!("note: {missing}"));
        }
    }

    pub(super) fn run_options(
        &self,
        resources: &ResourceOptions,
        assets: &AssetFiles,
    ) -> Result<RunOptions, CommandError> {
        Ok(RunOptions {
            chosen_devices: resources.devices.as_ref().map(|list| list.0.clone()),
            precision: resources.precision.aim().map(|aim| aim.half_width),
            max_collections: resources.precision.max_collections,
            log: self.log,
            ..self.options_of_one_collection(assets)?
        })
    }

    pub(super) fn fill_session(
        &self,
        db: &Path,
        assets: AssetFiles,
        options: RunOptions,
        deadline: Option<Deadline>,
        format: OutputFormat,
    ) -> FillSession {
        let (db, screen) = (db.to_owned(), run_screen(format));
        FillSession { db, kind: self.host, assets, options, deadline, screen, stop: Arc::default() }
    }

    /// Returns the options of a run on all devices that measures each case in one collection.
    pub(super) fn options_of_one_collection(&self, assets: &AssetFiles) -> Result<RunOptions, CommandError> {
        Ok(RunOptions {
            max_collections: 1,
            python: self.python.program()?,
            assets: self.assets.assets.clone(),
            warm_up: self.warm_up,
            launches: self.launches,
            seed: self.seed,
            expert_skew: self.skew.expert_skew,
            rehearsal_model: self.rehearsal_model,
            ignore_check: self.ignore_check,
            without_selftest: self.without_selftest,
            failing: self.fail_on.verdicts(),
            busy: self.busy,
            leases: self.leases.folder(),
            profiler: self.profiler.settings(),
            faults: FaultPlan::load(self.rehearsal_faults.as_deref(), self.host, assets)?,
            ..RunOptions::default()
        })
    }
}
