//! `npubench report`: the page of one run.

use super::prelude::*;
use crate::{
    answer::coverage_change::coverage_changes,
    show::{junit::run_junit, run_markdown::run_markdown, run_page::report_page, run_results::RunResults},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ReportFormat {
    /// A page that needs no other file and no network
    Html,
    /// Markdown on standard output, for a chat
    Markdown,
}

/// Writes the report of a run: what was measured, what failed and why, the devices over the night, and the cases to look at
///
/// The page has every case with its numbers, the logs of failed cases, the precision, the ratio to production by kernel, and,
/// with workloads, their coverage before and after the run. It is one file that opens without a network.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  npubench report --db a3
  npubench report --db a3 --workload kernel_details.csv --output night.html
  npubench report --db a3 --format markdown --junit results.xml")]
pub(super) struct ReportOptions {
    /// Id of the run, or an unambiguous prefix of it; `last` is the latest with cases
    #[arg(value_name = "RUN", default_value = "last")]
    run: String,
    #[command(flatten)]
    database: DatabaseFolder,
    /// Form of the report
    #[arg(long, value_enum, default_value = "html")]
    format: ReportFormat,
    /// File of the page; by default `RUN.html` in the current folder
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Writes the cases as JUnit, too, for the pages of CI systems
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    #[command(flatten)]
    questions: QuestionOptions,
    #[command(flatten)]
    assets: AssetOptions,
}

pub(super) fn run(options: &ReportOptions) -> Result<ExitStatus, CommandError> {
    if options.format == ReportFormat::Markdown
        && (options.output.is_some() || options.questions.is_requested())
    {
        return Err(CommandError::usage(
            "`--format markdown` has neither a file nor workloads",
            "leave `--output` and the workloads out, or write the page with `--format html`",
        ));
    }
    let database = Database::open(&options.database.db)?;
    let (ledger, runs) = past_runs(&database)?;
    let past = find_run(&database, &runs, &options.run)?;
    let Some(ledger) = ledger else { return Ok(ExitStatus::Done) };
    let file = |path: &PathBuf, extension| ResultFile::new(path, Some(database.folder()), extension);
    let junit = options.junit.as_ref().map(|path| file(path, "xml")).transpose()?;
    let page = match options.format {
        ReportFormat::Html => {
            let named = PathBuf::from(format!("{}.html", past.record.run));
            Some(file(options.output.as_ref().unwrap_or(&named), "html")?)
        }
        ReportFormat::Markdown => None,
    };
    let assets = options.assets.load()?;
    let results = RunResults::read(&database, &ledger, past, run_cache(&past.record)?)?;
    for problem in &results.unread_tables {
        print_warning(&format!("without production and intervals of {problem}"));
    }
    if let Some(junit) = junit {
        junit.write(run_junit(&results))?;
        print_note(&format!("wrote `{}`", junit.path.display()));
    }
    let Some(page) = page else {
        print_data(&run_markdown(&results));
        return Ok(ExitStatus::Done);
    };
    let coverage = match options.questions.is_requested() {
        true => coverage_changes(&database, &ledger, &past.record, &assets, |database, analyzer| {
            options.questions.load(&assets, database, analyzer)
        })?,
        false => Vec::new(),
    };
    page.write(&report_page(&assets, &results, &coverage)?)?;
    print_note(&format!("wrote `{}`", page.path.display()));
    Ok(ExitStatus::Done)
}
