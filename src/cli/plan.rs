//! `npubench plan`: predicts a run.

use std::sync::atomic::AtomicBool;

use super::prelude::*;
use crate::{
    measure::{
        device::{
            self,
            diagnosis::{OCCUPIED_FIX, describe_occupied},
        },
        device_choice::{listed_devices, soc_contradiction},
        engine::dry_run,
        run_plan::plan_of_database,
    },
    show::plan::{FurtherCollections, PlanReport, planned_cases},
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
    common: CommonOptions<TableOptions>,
}

pub(super) fn run(options: &PlanOptions) -> Result<ExitStatus, CommandError> {
    let (assets, catalogue) = options.common.assets.load_catalogue()?;
    let selection = &options.selection;
    let database = Database::open(&selection.database.db)?;
    let profile = DeviceProfile::load(&assets, database.device())?;
    let base = selection.rows.add_to(RunOptions {
        python: options.python.program()?,
        profiler: options.profiler.settings(),
        precision: selection.resources.precision.aim().map(|aim| aim.half_width),
        max_collections: selection.resources.precision.max_collections,
        ..RunOptions::default()
    });
    let mut listed = listed_devices(database.kind()).unwrap_or_default();
    if let Some(problem) = soc_contradiction(&profile, &listed.chips, &base.python, &[]) {
        return Err(CommandError::bad_input(problem, CORRECT_DEVICE));
    }
    let devices = devices_of_host(selection.resources.devices.as_ref(), database.kind())?;
    listed.chips.retain(|chip| devices.contains(&chip.physical_id));
    let occupied = describe_occupied(&listed);
    if !occupied.is_empty() {
        print_note(&format!("devices in use: {}; {OCCUPIED_FIX}", occupied.join(", ")));
    }
    let kernels = selection.rows.kernels.names()?;
    let mut budget = selection.resources.deadline.deadline().map(Deadline::rest);
    let mut starts_in = 0.0;
    let states = selection.cache.states();
    for &cache in states {
        let run_options = RunOptions { cache, ..base.clone() };
        let mut plan = plan_of_database(&database, &catalogue, &profile, &run_options, &kernels)?;
        plan.refuse_larger_gangs(devices.len());
        let costs = InitialCosts::new(WARM_UP, LaunchCount::Adaptive).with_cache(cache, &profile);
        let preview = dry_run(database.kind(), &costs, &plan.cases, &devices, budget);
        let aim = selection.resources.precision.aim();
        let further = aim.and_then(|aim| FurtherCollections::new(aim, &preview));
        match options.common.output.format {
            OutputFormat::Plain => {
                if selection.cache == CacheChoice::Both {
                    print_data(&format!("with a {cache} cache:\n"));
                }
                let is_followed = Some(&cache) != states.last();
                let report =
                    PlanReport { plan: &plan, preview: &preview, further, budget, starts_in, is_followed };
                print_data(&report.text(Timestamp::now(), options.common.output.wide.width()));
                plan.unreadable_rows.iter().for_each(|row| print_note(&format!("left out: {row}")));
                plan.missing_tables.iter().for_each(|table| print_note(&table.to_string()));
            }
            OutputFormat::Json => {
                let state = (selection.cache != CacheChoice::Hot).then_some(cache);
                print_data(&json_lines(planned_cases(&plan, &preview, &costs, state)));
            }
        }
        // A run of both states shares its time.
        let taken = preview.duration + further.as_ref().map_or(0.0, |further| further.least);
        budget = budget.map(|budget| (budget - taken).max(0.0));
        starts_in += taken;
    }
    Ok(ExitStatus::Done)
}

pub(super) fn devices_of_host(given: Option<&DeviceList>, kind: DataKind) -> Result<Vec<u32>, CommandError> {
    if let Some(list) = given {
        return Ok(list.0.clone());
    }
    if kind == DataKind::Rehearsal {
        return Ok((0..crate::rehearsal::DEVICES).collect());
    }
    let scratch = ScratchFolder::create().map_err(CommandError::no_temporary_folder)?;
    let info = device::query_npu_smi(&[], scratch.path(), &AtomicBool::new(false)).map_err(|error| {
        CommandError::cannot_measure(
            error.to_string(),
            "give the devices of the run, such as `--devices 0-15`",
        )
    })?;
    Ok(device::select_devices(&info, None)?.chips.iter().map(|chip| chip.physical_id).collect())
}
