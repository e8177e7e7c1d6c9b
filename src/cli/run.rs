//! `npubench run`: measures the cases of a database.

use std::{path::PathBuf, process, time::Instant};

use clap::Args;

use super::options::{
    AssetOptions, CacheChoice, DataKindArg, FailOnOption, LeaseOption, OutputOptions, ProfilerOptions,
    PythonOption, SelectionOptions, SkewOption,
};
use crate::{
    database::REHEARSAL_RUN,
    domain::{CacheState, DataKind},
    exit::ExitStatus,
    plan::LaunchCount,
    report::print_note,
    session::{BusyArg, CommandError, EndedRun, NoiseModelArg, RunContext, RunOptions, load_fault_plan},
};

/// Launches of a case before its samples.
pub(super) const WARM_UP: u32 = 5;

/// Least rest of a budget in seconds, as of the option: no collection ends in less.
const LEAST_REST: f64 = 60.0;

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
    let base = RunOptions {
        update: selection.update,
        cache: CacheState::Hot,
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
    if let Some(missing) = options.launches.unjudged_patterns() {
        print_note(&format!("note: {missing}"));
    }
    let (started, budget) = (Instant::now(), selection.deadline.seconds());
    // Held over all runs of the command.
    let mut held = None;
    let (mut exit, mut is_interrupted) = (ExitStatus::Done, false);
    for &cache in selection.cache.states() {
        let rest = budget.map(|budget| budget - started.elapsed().as_secs_f64());
        let is_first = held.is_none();
        if !is_first {
            if is_interrupted || !matches!(exit, ExitStatus::Done | ExitStatus::SomeNotOk) {
                print_note(&format!("the {cache} cache was not measured: {}", measure_later(options, cache)));
                return Ok(if is_interrupted { ExitStatus::Interrupted } else { exit });
            }
            if rest.is_some_and(|rest| rest < LEAST_REST) {
                print_note(&format!(
                    "no time is left for the {cache} cache: {}",
                    measure_later(options, cache)
                ));
                return Ok(ExitStatus::SomeNotOk);
            }
        }
        let run_options = RunOptions { cache, ..base.clone() };
        let context = RunContext::find(&selection.database.db, kind, assets.clone(), &run_options)?;
        if is_first {
            context.require_host(&run_options)?;
        }
        let lock = match &mut held {
            Some(lock) => lock,
            None => held.insert(context.database.lock()?),
        };
        let plan = context.plan(&run_options, &kernels)?;
        // The first write: from here on the run has results to keep.
        context.database.initialise(lock)?;
        let run = run_id(kind, cache);
        if selection.cache == CacheChoice::Both {
            print_note(&format!("run {run} measures with a {cache} cache"));
        }
        let EndedRun { exit: ended, is_stopped } =
            context.measure(&run, run_options, plan, None, rest, options.output.format)?;
        exit = if ended == ExitStatus::Done { exit } else { ended };
        is_interrupted = is_stopped;
    }
    Ok(exit)
}

/// Returns what measures a state of the cache that the command did not reach.
fn measure_later(options: &RunCommandOptions, cache: CacheState) -> String {
    let db = options.selection.database.db.display();
    format!("`npubench run --db {db} --cache {cache}` with the same options measures it")
}

/// Id of a new run: sorted by time, distinct for two runs of one second, marked if durations are simulated or the cache
/// is cold.
fn run_id(kind: DataKind, cache: CacheState) -> String {
    let mark = if kind == DataKind::Rehearsal { REHEARSAL_RUN } else { "" };
    let state = if cache.is_hot() { "" } else { "-cold" };
    format!(
        "{mark}{}-{:05}{state}",
        jiff::Timestamp::now().strftime("%Y%m%d-%H%M%S"),
        process::id() % 100_000
    )
}
