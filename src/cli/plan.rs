//! `npubench plan`: what a run would do.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::{
    options::{AssetOptions, DeviceList, OutputFormat, kernels, parse_devices, python_program},
    run::{LAUNCHES, WARM_UP},
};
use crate::{
    catalogue::Catalogue,
    config::DeviceProfile,
    database::Database,
    device,
    domain::DataKind,
    engine::{PlanPreview, dry_run},
    exit::ExitStatus,
    plan::{InitialCosts, RunPlan},
    report::{PlanTotals, PlannedAction, plan_table, print_data, print_note},
    session::{CommandError, DeadlineOptions, REHEARSED_DEVICES, RunOptions, UpdateArg, plan_of},
};

/// Tells what a run would do, and how long it would take
///
/// Nothing is launched and nothing is written. Times are predictions: until a run has learned what this host takes,
/// they may be wrong by a factor.
#[derive(Debug, Args)]
pub(super) struct PlanOptions {
    /// Database folder
    #[arg(long, value_name = "DIR")]
    db: PathBuf,
    /// Only these kernels, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    kernels: Vec<String>,
    /// Devices to use, such as `0-3,8`; those of this host where not given
    #[arg(long, value_name = "LIST", value_parser = parse_devices)]
    devices: Option<DeviceList>,
    #[command(flatten)]
    end: DeadlineOptions,
    /// Column of the rows that says what each is worth; the greatest are measured first
    #[arg(long, value_name = "NAME")]
    weight_column: Option<String>,
    /// Which rows are measured
    #[arg(long, value_enum, default_value = "missing")]
    update: UpdateArg,
    /// Python that has torch and torch_npu
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: String,
    /// `json` prints an object for each case, in the order of the plan
    #[arg(long, value_enum, default_value = "plain")]
    format: OutputFormat,
    #[command(flatten)]
    assets: AssetOptions,
}

pub(super) fn run(options: &PlanOptions) -> Result<ExitStatus, CommandError> {
    let assets = options.assets.load()?;
    let catalogue = Catalogue::load(&assets)?;
    let database = Database::open(&options.db)?;
    let profile = DeviceProfile::load(&assets, database.device())?;
    let recipe = RunOptions {
        update: options.update,
        python: python_program(&options.python)?,
        weight_column: options.weight_column.clone(),
        ..RunOptions::default()
    };
    let plan = plan_of(&database, &catalogue, &profile, &recipe, &kernels(&options.kernels)?)?;
    let devices = devices(options, database.kind())?;
    let costs = InitialCosts::new(WARM_UP + LAUNCHES);
    let budget = options.end.seconds();
    let preview = dry_run(database.kind(), &costs, &plan.cases, &devices, budget);
    match options.format {
        OutputFormat::Plain => {
            let places = preview.cases.iter().zip(&plan.cases).map(|(place, planned)| {
                let fate = place
                    .as_ref()
                    .map_or_else(|reason| PlannedAction::Left(reason.clone()), |_| PlannedAction::Measured);
                (&planned.case.kernel, fate)
            });
            let refused = plan.rejected.iter().map(|(case, finding)| {
                (&case.kernel, PlannedAction::Refused(format!("{}: {}", finding.verdict, finding.reason)))
            });
            let sum = PlanTotals {
                collections: usize::try_from(preview.collections).unwrap_or_default(),
                devices: preview.devices.len(),
                seconds: preview.duration,
                already: plan.already_measured,
            };
            print_data(&plan_table(&places.chain(refused).collect::<Vec<_>>(), sum));
            for place in &plan.unreadable_rows {
                print_note(&format!("left out: {place}"));
            }
        }
        OutputFormat::Json => print_data(&lines(&plan, &preview, &costs)),
    }
    Ok(ExitStatus::Done)
}

fn devices(options: &PlanOptions, kind: DataKind) -> Result<Vec<u32>, CommandError> {
    if let Some(list) = &options.devices {
        return Ok(list.0.clone());
    }
    if kind == DataKind::Rehearsal {
        return Ok((0..REHEARSED_DEVICES).collect());
    }
    let scratch = tempfile::tempdir().map_err(|error| {
        CommandError::bad_input(
            format!("cannot make a temporary folder: {error}"),
            "check TMPDIR and its free space",
        )
    })?;
    let info = device::query_npu_smi(&[], scratch.path()).map_err(|error| CommandError {
        message: error.to_string(),
        hint: "say with `--devices 0-15` on which devices the run will be".to_owned(),
        exit: ExitStatus::CannotMeasure,
    })?;
    Ok(device::select_devices(&info, None)?.chips.iter().map(|chip| chip.device).collect())
}

/// A line of JSON for each case: those that would be measured in the order of the plan, then those refused.
fn lines(plan: &RunPlan, preview: &PlanPreview, costs: &InitialCosts) -> String {
    let mut text = String::new();
    for (planned, place) in plan.cases.iter().zip(&preview.cases) {
        let mut line = json!({
            "case": planned.case.id().as_str(),
            "kernel": planned.case.kernel.as_str(),
            "inputs": planned.case.shapes(),
            "value": planned.value,
            "seconds": costs.case_seconds(planned.fastest),
        });
        let more = match place {
            Ok(place) => json!({
                "collection": place.collection,
                "device": place.device,
                "begins": place.starts_at,
                "ends": place.ends_at,
            }),
            Err(reason) => json!({ "left_out": reason }),
        };
        if let (Some(line), Some(more)) = (line.as_object_mut(), more.as_object()) {
            line.extend(more.clone());
        }
        text += &format!("{line}\n");
    }
    for (case, finding) in &plan.rejected {
        let line = json!({
            "case": case.id().as_str(),
            "kernel": case.kernel.as_str(),
            "inputs": case.shapes(),
            "left_out": format!("{}: {}", finding.verdict, finding.reason),
        });
        text += &format!("{line}\n");
    }
    text
}
