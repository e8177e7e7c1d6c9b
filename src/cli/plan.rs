//! `npubench plan`: predicts a run.

use clap::Args;

use super::{
    measurement_options::WARM_UP,
    options::{
        AssetOptions, CacheChoice, DeviceList, OutputFormat, OutputOptions, ProfilerOptions, PythonOption,
        ResourceOptions, SelectionOptions, WideOption,
    },
};
use crate::{
    base::{
        command_error::CommandError,
        deadline::Deadline,
        exit::ExitStatus,
        files::ScratchFolder,
        print::{print_data, print_note},
        stats::{PrecisionAim, least_repeats},
    },
    cases::plan::{InitialCosts, LaunchCount, PlannedCase, RunPlan},
    database::Database,
    kernel::{DataKind, IdentifiedCase, catalogue::Catalogue, device::DeviceProfile, timestamp::Timestamp},
    measure::run_options::RunOptions,
    measure::{
        device,
        device_choice::{CORRECT_DEVICE, host_chips, soc_contradiction},
        engine::{PlanPreview, dry_run},
        run_plan::plan_of_database,
    },
    show::{
        emit::json_lines,
        plan::{FurtherCollections, PlanTotals, PlannedAction, RecordedShares, plan_table, planned_cases},
    },
};

/// Predicts the order, the devices and the duration of a run
///
/// Nothing is launched and nothing is written. Times are predictions: until a run has measured the costs of this host,
/// they may be wrong by a factor.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  npubench plan --db a3 --until 07:30
  npubench plan --db a3 --kernels MatMulV2 --devices 0-7 --budget 2h")]
pub(super) struct PlanOptions {
    #[command(flatten)]
    selection: SelectionOptions,
    #[command(flatten)]
    profiler: ProfilerOptions,
    #[command(flatten)]
    python: PythonOption,
    #[command(flatten)]
    output: OutputOptions,
    #[command(flatten)]
    wide: WideOption,
    #[command(flatten)]
    assets: AssetOptions,
}

pub(super) fn run(options: &PlanOptions) -> Result<ExitStatus, CommandError> {
    let assets = options.assets.load()?;
    let catalogue = Catalogue::load(&assets)?;
    let selection = &options.selection;
    let database = Database::open(&selection.database.db)?;
    let profile = DeviceProfile::load(&assets, database.device())?;
    let base = RunOptions {
        update: selection.update,
        cases: selection.cases.clone(),
        filter: selection.filter.filter.clone(),
        python: options.python.program()?,
        weight_column: selection.weight_column.clone(),
        profiler: options.profiler.settings(),
        precision: selection.resources.precision.aim().map(|aim| aim.half_width),
        max_collections: selection.resources.precision.max_collections,
        ..RunOptions::default()
    };
    let chips = host_chips(database.kind()).unwrap_or_default();
    if let Some(problem) = soc_contradiction(&profile, &chips, &base.python, &[]) {
        return Err(CommandError::bad_input(problem, CORRECT_DEVICE));
    }
    let devices = planned_devices(&selection.resources, database.kind())?;
    let kernels = selection.kernels.names()?;
    let mut budget = selection.resources.deadline.deadline().map(Deadline::rest);
    let mut starts_in = 0.0;
    let states = selection.cache.states();
    for &cache in states {
        let run_options = RunOptions { cache, ..base.clone() };
        let mut plan = plan_of_database(&database, &catalogue, &profile, &run_options, &kernels)?;
        plan.refuse_larger_gangs(devices.len());
        let costs = InitialCosts::new(WARM_UP, LaunchCount::Adaptive).with_cache(cache, &profile);
        let preview = dry_run(database.kind(), &costs, &plan.cases, &devices, budget);
        let further = further_collections(selection.resources.precision.aim(), &preview);
        match options.output.format {
            OutputFormat::Plain => {
                if selection.cache == CacheChoice::Both {
                    print_data(&format!("with a {cache} cache:\n"));
                }
                let time = PlannedTime { budget, starts_in, is_followed: Some(&cache) != states.last() };
                print_plan(&plan, &preview, (time, further), options.wide.width());
            }
            OutputFormat::Json => {
                let state = (selection.cache != CacheChoice::Hot).then_some(cache);
                print_data(&json_lines(&planned_cases(&plan, &preview, &costs, state)));
            }
        }
        // A run of both states shares its time.
        let taken = preview.duration + further.as_ref().map_or(0.0, |further| further.least);
        budget = budget.map(|budget| (budget - taken).max(0.0));
        starts_in += taken;
    }
    Ok(ExitStatus::Done)
}

/// Time of the cases of one state of the cache.
#[derive(Clone, Copy, Debug)]
struct PlannedTime {
    /// Given time in seconds; `None` without a deadline.
    budget: Option<f64>,
    /// Seconds until the start.
    starts_in: f64,
    /// True if another state follows.
    is_followed: bool,
}

fn print_plan(
    plan: &RunPlan,
    preview: &PlanPreview,
    (time, further): (PlannedTime, Option<FurtherCollections>),
    width: Option<usize>,
) {
    let scheduled = preview.cases.iter().zip(&plan.cases).flat_map(|(slot, planned)| {
        let action = slot
            .as_ref()
            .map_or_else(|cause| PlannedAction::NotInTime(cause.clone()), |_| PlannedAction::Measured);
        planned.cases().map(move |case| (&case.kernel, action.clone()))
    });
    let not_launched = plan
        .not_launched
        .iter()
        .map(|(case, outcome)| (&case.kernel, PlannedAction::NotLaunched(outcome.clone())));
    let totals = PlanTotals {
        collections: usize::try_from(preview.collections).unwrap_or_default(),
        devices: preview.devices.len(),
        seconds: preview.duration,
        already_measured: plan.already_measured,
        equal_cases: plan.cases.iter().map(|planned| planned.equal_cases.len()).sum(),
        further,
        budget: time.budget,
        starts_in: time.starts_in,
        is_followed: time.is_followed,
        recorded: recorded_shares(plan, preview),
    };
    let cases = scheduled.chain(not_launched).collect::<Vec<_>>();
    print_data(&plan_table(&cases, totals, Timestamp::now(), width));
    for row in &plan.unreadable_rows {
        print_note(&format!("left out: {row}"));
    }
    for table in &plan.missing_tables {
        print_note(&table.to_string());
    }
}

/// Returns the shares of the plan in the time of the production records of its rows.
fn recorded_shares(plan: &RunPlan, preview: &PlanPreview) -> Option<RecordedShares> {
    let share_of = |is_scheduled: bool| {
        let slots = preview.cases.iter().zip(&plan.cases);
        let planned = slots.filter(|(slot, _)| slot.is_ok() == is_scheduled).map(|(_, planned)| planned);
        plan.recorded.share(planned.flat_map(PlannedCase::cases).map(IdentifiedCase::id))
    };
    Some(RecordedShares {
        to_measure: share_of(true)?,
        not_in_time: share_of(false)?,
        not_launched: plan.recorded.share(plan.not_launched.iter().map(|(case, _)| case.id()))?,
    })
}

/// Predicts the time of the collections after the first of each case: in proportion to the first ones.
#[expect(clippy::cast_precision_loss, reason = "numbers of cases")]
fn further_collections(aim: Option<PrecisionAim>, preview: &PlanPreview) -> Option<FurtherCollections> {
    let aim = aim?;
    let cases = preview.cases.iter().filter(|slot| slot.is_ok()).count();
    let least = least_repeats(cases, aim.max_collections) as f64;
    (cases > 0).then(|| FurtherCollections {
        percent: aim.half_width * 100.0,
        least: preview.duration * least / cases as f64,
        most: preview.duration * (aim.max_collections - 1) as f64,
    })
}

/// The devices of the prediction: those given, else those of the host.
pub(super) fn planned_devices(options: &ResourceOptions, kind: DataKind) -> Result<Vec<u32>, CommandError> {
    devices_of_host(options.devices.as_ref(), kind)
}

/// Returns the given devices, else those of the host.
pub(super) fn devices_of_host(given: Option<&DeviceList>, kind: DataKind) -> Result<Vec<u32>, CommandError> {
    if let Some(list) = given {
        return Ok(list.0.clone());
    }
    if kind == DataKind::Rehearsal {
        return Ok((0..crate::rehearsal::DEVICES).collect());
    }
    let scratch = ScratchFolder::create().map_err(CommandError::no_temporary_folder)?;
    let info = device::query_npu_smi(&[], scratch.path()).map_err(|error| CommandError {
        message: error.to_string(),
        hint: "give the devices of the run, such as `--devices 0-15`".to_owned(),
        exit: ExitStatus::CannotMeasure,
    })?;
    Ok(device::select_devices(&info, None)?.chips.iter().map(|chip| chip.physical_id).collect())
}
