//! `npubench fill`: measures what workloads lack in a database.

use super::{plan::devices_of_host, prelude::*};
use crate::{
    answer::fill::{FillPreview, FillState, PredictedHost},
    show::fill::{FillResult, fill_records, fill_result_text, fill_text},
};

/// Measures what workloads lack in a database, the cases that stand for most time first
///
/// Gaps of `npubench coverage` that a case closes become rows: the exact case, or two to four cases between which others are
/// interpolated. They are measured as `npubench run` does it, together with the rows that answer by durations of production
/// profiles only, and the coverage is printed before and after. With a deadline (`--until`, `--budget`), time that is left is
/// spent on the cases between brackets, then on further collections of the rows that the workloads use. An interrupted run
/// is continued by `npubench resume`.
#[derive(Debug, Args)]
#[command(mut_arg("model", |arg| arg.alias("models")))]
#[command(group(ArgGroup::new("questions").args(["workloads", "model"]).multiple(true).required(true)))]
#[command(after_help = "Examples:
  npubench fill --db a3 --workload kernel_details.csv --until 07:30
  npubench fill --db a3 --model Qwen3-32B --tp 4 --batch 64 --dry-run")]
pub(super) struct FillOptions {
    #[command(flatten)]
    database: DatabaseFolder,
    #[command(flatten)]
    questions: QuestionOptions,
    #[command(flatten)]
    resources: ResourceOptions,
    /// Print the cases and the coverage that they would reach, without writing or launching anything
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    measurement: MeasurementOptions,
    #[command(flatten)]
    output: TableOptions,
}

pub(super) fn run(options: &FillOptions) -> Result<ExitStatus, CommandError> {
    let FillOptions { database: folder, questions, resources, measurement, .. } = options;
    let deadline = resources.deadline.deadline();
    let (assets, catalogue) = measurement.assets.load_catalogue()?;
    let database = questions.open(&folder.db)?;
    let format = options.output.format;
    let analyzer = CoverageAnalyzer { engine: &database.engine, catalogue: &catalogue };
    let workloads = questions.load(&assets, &database, &analyzer)?;
    workloads.iter().flat_map(|workload| &workload.notes).for_each(|note| print_note(note));
    let run_options = measurement.run_options(resources, &assets)?;
    let profile = database.device(&assets)?;
    let host = PredictedHost {
        kind: database.kind,
        profile: &profile,
        devices: &devices_of_host(resources.devices.as_ref(), database.kind)?,
        costs: InitialCosts::new(run_options.warm_up, run_options.launches),
        budget: deadline.map(Deadline::rest),
    };
    let preview = FillPreview::new(&analyzer, &workloads, &host, &folder.db)?;
    options.output.emit(fill_records(&preview), |width| fill_text(&preview, width));
    if options.dry_run {
        note_simulated(database.kind);
        return Ok(ExitStatus::done_if(preview.measures_all()));
    }
    measurement.print_notes();
    let session = measurement.fill_session(&folder.db, assets, run_options, deadline, format);
    let state = || {
        let changed = questions.open(&folder.db)?;
        let analyzer = CoverageAnalyzer { engine: &changed.engine, catalogue: &catalogue };
        FillState::new(&analyzer, &workloads, &folder.db)
    };
    let outcome = session.measure(&preview.fill, state)?;
    let result = FillResult::new(&outcome, &preview, state()?.share);
    emit(format, [&result], || fill_result_text(&result));
    outcome.stop_note("fill", &folder.db).iter().for_each(|note| print_note(note));
    Ok(if outcome.is_stopped { ExitStatus::Interrupted } else { outcome.exit })
}
