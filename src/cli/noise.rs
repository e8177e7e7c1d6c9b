//! `npubench noise`: shows where the width of the intervals comes from.

use clap::Args;

use super::{
    options::{CacheOption, DatabaseFolder, OutputOptions, WideOption},
    runs::past_runs,
};
use crate::{
    base::{command_error::CommandError, exit::ExitStatus, shell_argument::quoted_path},
    database::Database,
    measure::evidence::NoiseBudget,
    show::{
        emit::{emit, note_simulated},
        noise::{NoiseRecord, noise_text},
    },
};

/// Shows the variance of the measurements by launch, collection, device and run, and what would reduce it most
///
/// The measurements with the newest software are used. Nothing is written.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  npubench noise --db a3")]
pub(super) struct NoiseOptions {
    #[command(flatten)]
    database: DatabaseFolder,
    #[command(flatten)]
    cache: CacheOption,
    #[command(flatten)]
    output: OutputOptions,
    #[command(flatten)]
    wide: WideOption,
}

pub(super) fn run(options: &NoiseOptions) -> Result<ExitStatus, CommandError> {
    let database = Database::open(&options.database.db)?;
    let (ledger, _) = past_runs(&database)?;
    let budget = match &ledger {
        Some(ledger) => NoiseBudget::from_ledger(ledger, options.cache.state)?,
        None => None,
    };
    let folder = database.folder().display();
    let Some(budget) = budget else {
        return Err(CommandError::bad_input(
            format!("no case of `{folder}` is measured in two collections"),
            format!(
                "`npubench run --db {}{}` measures cases in further collections until `--precision` is reached",
                quoted_path(database.folder()),
                database.kind().host_option()
            ),
        ));
    };
    let record = NoiseRecord::new(&budget, database.kind());
    emit(options.output.format, &[record], |record| noise_text(&record[0], &budget, options.wide.width()));
    note_simulated(database.kind());
    Ok(ExitStatus::Done)
}
