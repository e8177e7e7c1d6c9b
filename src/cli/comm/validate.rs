//! `npubench comm validate`: sweeps beside the analytic model of a device profile.

use std::ops::Bound;

use super::super::prelude::*;
use crate::{
    measure::collective::{ModelVerdict, compare_with_model, read_sweeps},
    show::collectives::{ModelRecord, model_text},
};

/// Compares measured collectives with the analytic model of a device profile
///
/// A row passes if measured and predicted time differ by at most the tolerance as a ratio, is a warning up to twice the
/// tolerance, and fails beyond it. Both times are of the bytes that the table means. Exits with 1 if a row fails; without a
/// row that can be compared, nothing has passed, and the command is an error.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  npubench comm validate --db comm")]
pub(in crate::cli) struct ValidateOptions {
    /// Collectives, such as all_reduce or hcom_allReduce_; by default all of the database
    #[arg(value_name = "COLLECTIVE")]
    collectives: Vec<String>,
    #[command(flatten)]
    database: DatabaseFolder,
    /// Device profile with the network, by default that of the database
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// Ratio up to which a row passes, above 1
    #[arg(long, value_name = "RATIO", default_value = "2", 
          value_parser = |text: &str| parse_within(text, (Bound::Excluded(1.0), Bound::Included(1000.0)), "not a number above 1, up to 1000"))]
    tolerance: f64,
    #[command(flatten)]
    common: CommonOptions<TableOptions>,
}

pub(super) fn run(options: &ValidateOptions) -> Result<ExitStatus, CommandError> {
    let database = Database::open(&options.database.db)?;
    let device = options.device.as_deref().unwrap_or_else(|| database.device());
    let network = network_of_profile(&options.common.assets.load()?, device)?;
    let (sweeps, notes) = read_sweeps(&database, &options.collectives)?;
    let comparisons = compare_with_model(&network, &sweeps, options.tolerance);
    let (kind, tolerance) = (database.kind(), options.tolerance);
    let records = comparisons.iter().map(|row| ModelRecord::new(row, device, kind, tolerance));
    options.common.output.emit(records, |width| model_text(&comparisons, device, kind, tolerance, width));
    note_simulated(database.kind());
    notes.iter().for_each(|note| print_note(note));
    let has = |verdict: ModelVerdict| comparisons.iter().any(|row| row.verdict == verdict);
    if comparisons.iter().all(|row| row.verdict == ModelVerdict::NoModel) {
        return Err(CommandError::bad_input(
            format!("no row has a model in the network of `{device}`, so that nothing is validated"),
            "give a device profile whose network has the tiers of the rows with `--device`",
        ));
    }
    Ok(ExitStatus::done_if(!(has(ModelVerdict::Fail))))
}
