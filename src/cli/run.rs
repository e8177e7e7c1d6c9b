//! `npubench run`: measures the cases of a database.

use std::{path::PathBuf, process};

use clap::Args;

use super::options::{
    AssetOptions, DataKindArg, FailOnOption, LeaseOption, OutputOptions, ProfilerOptions, PythonOption,
    SelectionOptions, SkewOption,
};
use crate::{
    database::REHEARSAL_RUN,
    domain::DataKind,
    exit::ExitStatus,
    plan::LaunchCount,
    session::{BusyArg, CommandError, NoiseModelArg, RunContext, RunOptions, load_fault_plan},
};

/// Launches of a case before its samples.
pub(super) const WARM_UP: u32 = 5;

/// Measures the cases of a database and writes their rows
///
/// Cases are divided into collections; a collection is one msprof run on one device, or on several devices for a
/// kernel that communicates. Every launch and verdict is in the ledger before it is printed. Ctrl-C once lets running
/// collections end, twice ends them at once; `npubench resume` continues from there, also after a crash of the host.
#[derive(Debug, Args)]
pub(super) struct RunCommandOptions {
    #[command(flatten)]
    selection: SelectionOptions,
    /// Treatment of devices on which foreign processes run
    #[arg(long, value_enum, default_value = "wait")]
    busy: BusyArg,
    /// Host of the launches
    #[arg(long, value_enum, default_value = "npu")]
    host: DataKindArg,
    /// Model of the durations of the rehearsal host
    #[arg(long, value_enum, default_value = "lifelike")]
    rehearsal_model: NoiseModelArg,
    /// Fault plan of the rehearsal host, with the speed of its clock; see docs/rehearsal.md
    #[arg(long, value_name = "FILE")]
    rehearsal_faults: Option<PathBuf>,
    /// Seed of input values and of the durations of the rehearsal host
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Samples per case and collection; `auto` takes 8 to 64, the fewer the longer the kernel
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
    #[command(flatten)]
    fail_on: FailOnOption,
    #[command(flatten)]
    output: OutputOptions,
    #[command(flatten)]
    leases: LeaseOption,
    #[command(flatten)]
    skew: SkewOption,
    #[command(flatten)]
    assets: AssetOptions,
}

pub(super) fn run(options: &RunCommandOptions) -> Result<ExitStatus, CommandError> {
    let kind = DataKind::from(options.host);
    let assets = options.assets.load()?;
    let faults = load_fault_plan(options.rehearsal_faults.as_deref(), kind, &assets)?;
    let selection = &options.selection;
    let kernels = selection.kernels.names()?;
    let run_options = RunOptions {
        update: selection.update,
        kernels: selection.kernels.kernels.clone(),
        cases: selection.cases.clone(),
        chosen_devices: selection.devices.as_ref().map(|list| list.0.clone()),
        devices: Vec::new(),
        python: options.python.program()?,
        assets: options.assets.assets.clone(),
        warm_up: options.warm_up,
        launches: options.launches,
        seed: options.seed,
        expert_skew: options.skew.expert_skew,
        precision: selection.precision.aim().map(|aim| aim.half_width),
        max_collections: selection.precision.max_collections,
        rehearsal_model: options.rehearsal_model,
        ignore_check: options.ignore_check,
        without_selftest: options.without_selftest,
        failing: options.fail_on.verdicts(),
        weight_column: selection.weight_column.clone(),
        busy: options.busy,
        leases: options.leases.folder(),
        profiler: options.profiler.settings(),
        environment: None,
        faults,
    };
    let context = RunContext::find(&selection.database.db, kind, assets, &run_options)?;
    context.require_host(&run_options)?;
    let mut lock = context.database.lock()?;
    let plan = context.plan(&run_options, &kernels)?;
    // The first write: from here on the run has results to keep.
    context.database.initialise(&mut lock)?;
    context.measure(&run_id(kind), run_options, plan, None, &selection.deadline, options.output.format)
}

/// Id of a new run: sorted by time, distinct for two runs of one second, marked if durations are simulated.
fn run_id(kind: DataKind) -> String {
    let mark = if kind == DataKind::Rehearsal { REHEARSAL_RUN } else { "" };
    format!("{mark}{}-{:05}", jiff::Timestamp::now().strftime("%Y%m%d-%H%M%S"), process::id() % 100_000)
}
