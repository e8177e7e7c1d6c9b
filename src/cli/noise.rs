//! `npubench noise`: shows where the width of the intervals comes from.

use super::prelude::*;
use crate::{
    measure::evidence::NoiseBudget,
    show::noise::{NoiseRecord, noise_text},
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
    output: TableOptions,
}

pub(super) fn run(options: &NoiseOptions) -> Result<ExitStatus, CommandError> {
    let database = Database::open(&options.database.db)?;
    let (ledger, _) = past_runs(&database)?;
    let of_ledger = |ledger| NoiseBudget::from_ledger(ledger, options.cache.state);
    let budget = ledger.as_ref().map(of_ledger).transpose()?.flatten().ok_or_else(|| {
        CommandError::bad_input(
            format!("no case of `{}` is measured in two collections", database.folder().display()),
            format!(
                "{} measures cases in further collections until `--precision` is reached",
                run_command(&database)
            ),
        )
    })?;
    let record = NoiseRecord::new(&budget, database.kind());
    options.output.emit([&record], |width| noise_text(&record, &budget, width));
    note_simulated(database.kind());
    Ok(ExitStatus::Done)
}
