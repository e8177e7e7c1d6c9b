//! `npubench show`: lists the cases of a run.

use std::path::PathBuf;

use clap::Args;

use super::{
    options::{AssetOptions, DatabaseFolder, FilterOption, OutputFormat, OutputOptions},
    runs::{find_run, past_runs},
};
use crate::{
    catalogue::Catalogue,
    database::Database,
    exit::ExitStatus,
    report::{
        Timestamp, cases_table, print_data, print_note, run_summary, shown_cases, timeline_json,
        write_timeline,
    },
    session::{CommandError, filter_run_cases},
};

/// Shows every case of a run: verdict, reason, device, attempts, collections, log
///
/// A timeline opens in Perfetto (ui.perfetto.dev) and in chrome://tracing: one track per device, one slice per
/// collection, the verdicts as counters.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  npubench show --db a3
  npubench show --db a3 --filter verdict=noisy
  npubench show --db a3 --format json")]
pub(super) struct ShowOptions {
    /// Id of the run, or an unambiguous prefix of it; `last` is the latest
    #[arg(value_name = "RUN", default_value = "last")]
    run: String,
    #[command(flatten)]
    database: DatabaseFolder,
    #[command(flatten)]
    filter: FilterOption,
    #[command(flatten)]
    assets: AssetOptions,
    #[command(flatten)]
    output: OutputOptions,
    /// Write the run as a trace to this file instead
    #[arg(long, value_name = "FILE")]
    timeline: Option<PathBuf>,
}

pub(super) fn run(options: &ShowOptions) -> Result<ExitStatus, CommandError> {
    let database = Database::open(&options.database.db)?;
    let (ledger, runs) = past_runs(&database)?;
    let past = find_run(&runs, &options.run)?;
    let Some(ledger) = ledger else { return Ok(ExitStatus::Done) };
    let collections = ledger.run_collections(&past.record.run)?;
    let mut cases = ledger.run_cases(&past.record.run)?;
    if let Some(filter) = &options.filter.filter {
        let catalogue = Catalogue::load(&options.assets.load()?)?;
        filter_run_cases(filter, &database, &catalogue, &past.record, &mut cases)?;
    }
    if let Some(path) = &options.timeline {
        write_timeline(path, &timeline_json(past, &collections, &cases))?;
        print_note(&format!("the timeline of run {} is in {}", past.record.run, path.display()));
        return Ok(ExitStatus::Done);
    }
    let cases = shown_cases(cases, &past.folder);
    match options.output.format {
        OutputFormat::Json => {
            let lines = cases.iter().map(|case| serde_json::to_string(case).unwrap_or_default() + "\n");
            print_data(&lines.collect::<String>());
        }
        OutputFormat::Plain => {
            if !cases.is_empty() {
                print_data(&(cases_table(&cases, &past.folder) + "\n"));
            }
            print_data(&run_summary(past, &collections, Timestamp::now()));
        }
    }
    Ok(ExitStatus::Done)
}
