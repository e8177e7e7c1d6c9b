//! `npubench run`: measures what a database lacks.

use std::{
    path::{Path, PathBuf},
    process,
};

use clap::Args;

use super::options::{
    AssetOptions, DataKindArg, DeviceList, OutputFormat, kernels, parse_devices, parse_skew, python_program,
};
use crate::{
    catalogue::{Catalogue, CatalogueEntry},
    config::AssetFiles,
    database::REHEARSAL_RUN,
    domain::DataKind,
    exit::ExitStatus,
    rehearsal::fault_plan,
    session::{
        BusyArg, CommandError, DeadlineOptions, NoiseModelArg, REHEARSED_DEVICES, RunContext, RunOptions,
        UpdateArg, now,
    },
};

/// Launches of a case before its samples.
pub(super) const WARM_UP: u32 = 5;
/// Samples of a case in one collection.
pub(super) const LAUNCHES: u32 = 20;

/// Measures the cases of a database and writes their rows
///
/// Cases are divided into collections, each one msprof run on one device, or on several where a kernel talks
/// to others. Every launch and verdict is in the ledger before anything is said about it. Ctrl-C once lets running collections end, twice ends
/// them at once; `npubench resume` goes on from there, also after a crash of the host.
#[derive(Debug, Args)]
pub(super) struct RunCommandOptions {
    /// Database folder
    #[arg(long, value_name = "DIR")]
    db: PathBuf,
    /// Only these kernels, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    kernels: Vec<String>,
    /// Devices to use, such as `0-3,8`; all where not given
    #[arg(long, value_name = "LIST", value_parser = parse_devices)]
    devices: Option<DeviceList>,
    #[command(flatten)]
    end: DeadlineOptions,
    /// Column of the rows that says what each is worth; the greatest are measured first
    #[arg(long, value_name = "NAME")]
    weight_column: Option<String>,
    /// What is done about a device that somebody else uses
    #[arg(long, value_enum, default_value = "wait")]
    busy: BusyArg,
    /// Which rows are measured
    #[arg(long, value_enum, default_value = "missing")]
    update: UpdateArg,
    /// Where the launches run
    #[arg(long, value_enum, default_value = "npu")]
    host: DataKindArg,
    /// How the rehearsal host makes durations
    #[arg(long, value_enum, default_value = "lifelike")]
    rehearsal_model: NoiseModelArg,
    /// What goes wrong on the rehearsal host, and how fast its time passes: a fault plan, see docs/rehearsal.md
    #[arg(long, value_name = "FILE")]
    rehearsal_faults: Option<PathBuf>,
    /// Seed of values and of the rehearsal host's durations
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Samples per case and collection
    #[arg(long, default_value_t = LAUNCHES, value_parser = clap::value_parser!(u32).range(6..=10_000))]
    launches: u32,
    /// Launches of a case before its samples
    #[arg(long, default_value_t = WARM_UP, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    warm_up: u32,
    /// Python that has torch and torch_npu
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: String,
    /// Launches also what `npubench check` found rejected by the vendor's code
    #[arg(long)]
    ignore_check: bool,
    /// `json` prints every event as a line of JSON
    #[arg(long, value_enum, default_value = "plain")]
    format: OutputFormat,
    /// How unevenly tokens go to experts: the n-th has a share of n^-S; 0 is even
    #[arg(long, value_name = "S", default_value_t = 0.0, value_parser = parse_skew)]
    expert_skew: f64,
    #[command(flatten)]
    assets: AssetOptions,
}

pub(super) fn run(options: &RunCommandOptions) -> Result<ExitStatus, CommandError> {
    let kind = DataKind::from(options.host);
    let assets = options.assets.load()?;
    let faults = fault_plan(options.rehearsal_faults.as_deref(), kind, &assets)?;
    let kernels = kernels(&options.kernels)?;
    let recipe = RunOptions {
        update: options.update,
        kernels: options.kernels.clone(),
        chosen_devices: options.devices.as_ref().map(|list| list.0.clone()),
        devices: Vec::new(),
        python: python_program(&options.python)?,
        assets: options.assets.assets.clone(),
        warm_up: options.warm_up,
        launches: options.launches,
        seed: options.seed,
        expert_skew: options.expert_skew,
        rehearsal_model: options.rehearsal_model,
        ignore_check: options.ignore_check,
        weight_column: options.weight_column.clone(),
        busy: options.busy,
        faults,
    };
    let host = RunContext::find(&options.db, kind, assets, &recipe)?;
    let mut lock = host.database.lock()?;
    let plan = host.plan(&recipe, &kernels)?;
    // From here on there is something to keep.
    host.database.initialise(&mut lock)?;
    host.measure(run_id(kind), recipe, plan, None, &options.end, options.format)
}

/// What is to go wrong on the rehearsal host: nothing where nothing is said.
fn fault_plan(
    file: Option<&Path>,
    kind: DataKind,
    assets: &AssetFiles,
) -> Result<fault_plan::FaultPlan, CommandError> {
    match file {
        None => Ok(fault_plan::FaultPlan::default()),
        Some(file) if kind == DataKind::Npu => Err(CommandError {
            message: format!(
                "`{}` is a plan for the rehearsal host; real devices fail by themselves",
                file.display()
            ),
            hint: "add `--host rehearsal`, or leave `--rehearsal-faults` out".to_owned(),
            exit: ExitStatus::Usage,
        }),
        Some(file) => {
            let catalogue = Catalogue::load(assets)?;
            let kernels: Vec<&str> = catalogue.entries().flat_map(CatalogueEntry::names).collect();
            Ok(fault_plan::FaultPlan::load(
                file,
                &fault_plan::ValidNames { kernels: &kernels, devices: REHEARSED_DEVICES },
            )?)
        }
    }
}

/// Sorts by time, tells two runs of one second apart, and marks rows whose durations are simulated.
fn run_id(kind: DataKind) -> String {
    let mark = if kind == DataKind::Rehearsal { REHEARSAL_RUN } else { "" };
    format!("{mark}{}-{:05}", now().strftime("%Y%m%d-%H%M%S"), process::id() % 100_000)
}
