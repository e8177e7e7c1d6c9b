//! `npubench show`: lists the cases of a run.

use super::prelude::*;
use crate::{
    base::print::output_has_colors,
    measure::{case_numbers::RunNumbers, filtered_cases::filter_run_cases},
    show::{
        cases::{CaseTables, run_summary, shown_cases},
        run_trace::{timeline_json, write_timeline},
    },
};

/// Shows every case of a run: verdict, median, interval, change, ratio to production, device, reason, log
///
/// The median and the 95 % interval are those of the row that the run wrote (`+-%` is half the width of the interval, which is around an
/// estimate without the effects of the collections, so that the median of the samples can be outside); once a later run has
/// replaced the row, the median is that of the run's samples alone. `change %` compares with the row before the run, `prod %` with
/// production profiles. On a terminal the table fits its width and is shown by a pager (NPUBENCH_PAGER, else PAGER, else `less -FRX`).
///
/// A timeline opens in Perfetto (ui.perfetto.dev) and in chrome://tracing: one track per device, one slice per
/// collection, the verdicts as counters.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  npubench show --db a3
  npubench show --db a3 --filter verdict=noisy
  npubench show --db a3 --wide | grep MatMul
  npubench show --db a3 --format json")]
pub(super) struct ShowOptions {
    /// Id of the run, or an unambiguous prefix of it; `last` is the latest with cases
    #[arg(value_name = "RUN", default_value = "last")]
    run: String,
    #[command(flatten)]
    database: DatabaseFolder,
    #[command(flatten)]
    filter: FilterOption,
    #[command(flatten)]
    common: CommonOptions<TableOptions>,
    /// Write the run as a trace to this file instead, or to standard output with `-`
    #[arg(long, value_name = "FILE")]
    timeline: Option<PathBuf>,
}

pub(super) fn run(options: &ShowOptions) -> Result<ExitStatus, CommandError> {
    let database = Database::open(&options.database.db)?;
    let (ledger, runs) = past_runs(&database)?;
    let past = find_run(&database, &runs, &options.run)?;
    let Some(ledger) = ledger else { return Ok(ExitStatus::Done) };
    let collections = ledger.run_collections(&past.record.run)?;
    let mut cases = ledger.run_cases(&past.record.run)?;
    let cache = run_cache(&past.record)?;
    let numbers = RunNumbers::read(&database, &ledger, (&past.record.run, &past.folder, cache), &cases)?;
    if let Some(filter) = &options.filter.filter {
        let catalogue = Catalogue::load(&options.common.assets.load()?)?;
        let all = cases.len();
        filter_run_cases(filter, &database, &catalogue, &past.record, (&mut cases, &numbers))?;
        print_note(&format!("{} of {} match the filter", cases.len(), format_count(all, "case")));
    }
    if let Some(path) = &options.timeline {
        let trace = timeline_json(past, &collections, &cases);
        if path.as_os_str() == "-" {
            print_data(&trace);
            return Ok(ExitStatus::Done);
        }
        write_timeline(path, &trace)?;
        print_note(&format!("the timeline of run {} is in {}", past.record.run, path.display()));
        return Ok(ExitStatus::Done);
    }
    for problem in &numbers.unread_tables {
        print_warning(&format!("without production and intervals of {problem}"));
    }
    let cases = shown_cases(cases, &numbers, &past.folder);
    // A large run needs the memory for its table.
    drop((numbers, ledger));
    emit_paged(options.common.output.format, &cases, || {
        let (folder, width) = (past.folder.as_path(), options.common.output.wide.width());
        let tables = CaseTables { cases: &cases, folder, width, is_painted: output_has_colors() };
        let separator = if cases.is_empty() { "" } else { "\n" };
        let text = tables.all() + separator + &tables.notable();
        text + &run_summary(past, &collections, Timestamp::now())
    });
    Ok(ExitStatus::Done)
}
