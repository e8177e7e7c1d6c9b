//! `npubench reparse`: assesses collections again from their artefacts.

use super::prelude::*;
use crate::{
    measure::reparse::reparse_runs,
    show::repair::{reparse_summary, reparse_table},
};

/// Assesses collections again from their artefacts, and compares the result with the ledger
///
/// The compressed evidence of each collection is read again and judged by the rules of this version. Without `--write`
/// the differences from the ledger are listed, and nothing is written. Evidence that was removed or changed is named,
/// and its results are left as they are. Ends with 1 if the ledger differs or evidence cannot be used.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  npubench reparse --db a3
  npubench reparse --db a3 --write")]
pub(super) struct ReparseOptions {
    /// Id of a run, an unambiguous prefix of it, or `last`; by default all runs
    #[arg(value_name = "RUN")]
    run: Option<String>,
    #[command(flatten)]
    database: DatabaseFolder,
    /// Replace the results of the ledger that differ, and write the rows that follow from it
    #[arg(long)]
    write: bool,
    #[command(flatten)]
    common: CommonOptions<TableOptions>,
}

pub(super) fn run(options: &ReparseOptions) -> Result<ExitStatus, CommandError> {
    let database = Database::open(&options.database.db)?;
    let (ledger, runs) = past_runs(&database)?;
    let Some(mut ledger) = ledger else {
        print_note("no run has been started on this database");
        return Ok(ExitStatus::Done);
    };
    let _lock = match options.write {
        true => Some(database.lock()?),
        false => database.lock_for_reading()?,
    };
    let run = match &options.run {
        Some(name) => Some(find_run(&database, &runs, name)?.record.run.as_str()),
        None => None,
    };
    let assets = options.common.assets.load()?;
    let report = reparse_runs(&database, &mut ledger, &assets, run, options.write)?;
    options.common.output.emit([&report], |width| reparse_table(&report, width) + &reparse_summary(&report));
    Ok(ExitStatus::done_if(report.is_complete()))
}
