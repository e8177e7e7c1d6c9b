//! `npubench adapt`: measures cases of grids where interpolations are worst, until their estimated error is small enough.

use super::{
    grid::{load_grids, select_kernels},
    prelude::*,
};
use crate::{
    answer::{
        adapt::{AdaptSession, AdaptSettings, KernelDesign},
        adaptive::{AdaptiveOptions, grid_candidates},
        fill::FillOutcome,
    },
    cases::grid::{SelectionRequest, definition::CandidateSpace},
    show::adapt::{AdaptRecord, ChosenRecord, adapt_line, adapt_table, chosen_table},
};

/// Measures cases of grids where interpolations are worst, until their estimated error is small enough
///
/// Candidates are the cases of the grids, with more numbers of tokens than the ladders have. Each batch divides the
/// brackets between rows with the greatest expected error of lookups, and measures some random candidates. The 90th
/// percentile of the error is estimated from the answers for random candidates before they were measured, and
/// published in `interpolation_error.yaml`. Ends when it is at most the target; a repeated command goes on from the
/// rows that exist. `--seed` is also that of the random choices.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  npubench adapt MatMulV2 --db a3 --models Qwen3-32B --target-error 5 --until 07:30")]
pub(super) struct AdaptCommandOptions {
    #[command(flatten)]
    kernels: KernelArguments,
    #[command(flatten)]
    database: DatabaseFolder,
    /// Wanted 90th percentile of the error of answers in percent of the measurement
    #[arg(long, value_name = "PERCENT", default_value = "5", allow_negative_numbers = true,
          value_parser = parse_percentage)]
    target_error: f64,
    /// Most cases to measure, of all kernels together
    #[arg(long, value_name = "N", value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    max_cases: Option<usize>,
    /// Cases of each kernel in a batch
    #[arg(long, value_name = "N", default_value_t = 32,
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=10_000))]
    batch: usize,
    /// Models whose layer sizes are used instead of ladders, such as Qwen3-32B,Qwen3-8B, or paths of a config.json
    #[arg(long, alias = "model", value_name = "ID,ID", value_delimiter = ',')]
    models: Vec<String>,
    /// Grid files to use instead of the built-in ones and those of `--assets`
    #[arg(long, value_name = "FILE,FILE", value_delimiter = ',')]
    grids: Vec<PathBuf>,
    /// Device memory in GiB that a case may need; by default 15/16 of the memory of the database's device
    #[arg(long, value_name = "G", allow_negative_numbers = true, value_parser = parse_gib)]
    max_hbm_gib: Option<u64>,
    #[command(flatten)]
    resources: ResourceOptions,
    /// Print the first batch with the reason of each case, without writing or launching anything
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    measurement: MeasurementOptions,
    #[command(flatten)]
    output: TableOptions,
}

pub(super) fn run(options: &AdaptCommandOptions) -> Result<ExitStatus, CommandError> {
    let AdaptCommandOptions { database: folder, resources, measurement, .. } = options;
    let format = options.output.format;
    let (assets, catalogue) = measurement.assets.load_catalogue()?;
    let models = GridModels::load(&assets, &options.models)?;
    let grids = load_grids(&assets, &models, &options.grids)?;
    let wanted = options.kernels.names()?;
    if wanted.is_empty() {
        return Err(CommandError::usage(
            "no kernel is given",
            "give the kernels whose grids are measured, such as `npubench adapt MatMulV2`",
        ));
    }
    let kernels = select_kernels(&grids, &wanted, &assets, &catalogue)?;
    let mut database = LookupDatabase::open(&folder.db, None)?;
    let run_options = measurement.run_options(resources, &assets)?;
    let device = database.device(&assets)?;
    let adaptive = AdaptiveOptions {
        target: (options.target_error / 100.0).ln_1p(),
        batch: options.batch,
        seed: run_options.seed,
    };
    let settings = AdaptSettings {
        options: adaptive,
        max_cases: options.max_cases,
        models: options.models.clone(),
        folder: folder.db.clone(),
    };
    let mut designs = Vec::new();
    for kernel in kernels {
        let spaces: Vec<&CandidateSpace> = grids.spaces_of_kernel(&kernel).collect();
        let request = SelectionRequest {
            entry: catalogue.entry(&kernel),
            budget: options.max_hbm_gib.unwrap_or_else(|| default_memory_budget(device.hbm_bytes())),
            rows: None,
            seed: 0,
            filter: None,
        };
        let candidates = grid_candidates(&kernel, &spaces, &request);
        if candidates.is_empty() {
            return Err(CommandError::bad_input(
                format!("the grids of `{kernel}` have no candidate that can be measured"),
                format!(
                    "`npubench grid {kernel} --db {} --dry-run` shows why each is rejected",
                    quoted_path(&folder.db)
                ),
            ));
        }
        designs.push(KernelDesign::new(kernel, candidates, &settings, &database)?);
    }
    let mut session = AdaptSession::new(settings, designs);
    if options.dry_run {
        let chosen = session.choose(&mut database.engine)?;
        if chosen.is_empty() {
            print_note("no case is left to choose");
        }
        options.output.emit(chosen.iter().map(ChosenRecord::new), |width| chosen_table(&chosen, width));
        note_simulated(database.kind);
        return Ok(ExitStatus::Done);
    }
    drop(database);
    measurement.print_notes();
    let deadline = resources.deadline.deadline();
    let fill = measurement.fill_session(&folder.db, assets, run_options, deadline, format);
    let target = adaptive.target;
    let outcome = session.measure(&fill, |kernel| print_note(&adapt_line(kernel, target)))?;
    let FillOutcome { exit, is_stopped, .. } = outcome;
    options.output.emit(session.kernels.iter().map(|kernel| AdaptRecord::new(kernel, target)), |width| {
        adapt_table(&session.kernels, target, width)
    });
    outcome.stop_note("adapt", &folder.db).iter().for_each(|note| print_note(note));
    Ok(if is_stopped { ExitStatus::Interrupted } else { exit })
}
