//! `npubench diff`: compares two databases or runs.

use std::path::Path;

use clap::Args;

use super::{
    options::{CacheOption, KernelFilter, OutputFormat, OutputOptions},
    runs::{find_run, no_database, past_runs},
};
use crate::{
    database::Database,
    domain::CacheState,
    evidence::{MeasuredSide, compare_sides},
    exit::ExitStatus,
    report::{diff_json, diff_summary, diff_table, failed_note, print_data, print_note},
    session::CommandError,
};

/// Compares two databases or runs case by case: SLOW, FAST, SAME or AMBIGUOUS
///
/// A case is SLOW or FAST if B differs from A by at least the margin and the difference cannot be chance, SAME if the
/// difference is shown to be smaller than the margin, else AMBIGUOUS. The share of wrong statements over all cases is
/// controlled at 5 %. Two nights, two hosts and two versions of CANN are compared alike; nothing is written.
#[derive(Debug, Args)]
pub(super) struct DiffOptions {
    /// Database folder, or `DIR@RUN` for the measurements of one run (an id as in `npubench runs`, the beginning of one, or
    /// `last`)
    #[arg(value_name = "A")]
    first: String,
    /// The same for the other side
    #[arg(value_name = "B")]
    second: String,
    #[command(flatten)]
    cache: CacheOption,
    #[command(flatten)]
    kernels: KernelFilter,
    /// Smallest difference that matters, in percent of the time
    #[arg(long, value_name = "PERCENT", default_value = "2", value_parser = parse_margin)]
    margin: f64,
    /// List all cases, not only those that are SLOW or FAST
    #[arg(long)]
    all: bool,
    /// Exit with 1 if a case is SLOW
    #[arg(long)]
    fail_on_slow: bool,
    #[command(flatten)]
    output: OutputOptions,
}

fn parse_margin(text: &str) -> Result<f64, String> {
    let percent: f64 = text.parse().map_err(|_| format!("`{text}` is no number"))?;
    match (0.1..=100.0).contains(&percent) {
        true => Ok(percent / 100.0),
        false => Err(format!("`{text}` is not between 0.1 and 100 percent")),
    }
}

/// A database with a run if one is named.
struct NamedSide {
    database: Database,
    run: Option<String>,
}

impl NamedSide {
    /// Opens `DIR` or `DIR@RUN`.
    fn open(text: &str) -> Result<Self, CommandError> {
        // A folder may have an `@` in its name.
        let split = text.rsplit_once('@').filter(|_| !Path::new(text).exists());
        let (folder, run) = split.map_or((text, None), |(folder, run)| (folder, Some(run.to_owned())));
        let database = Database::open(Path::new(folder))?;
        if !database.has_tables() {
            return Err(no_database(&database));
        }
        Ok(Self { database, run })
    }

    fn read(&self, cache: CacheState) -> Result<(String, MeasuredSide), CommandError> {
        let (ledger, runs) = past_runs(&self.database)?;
        let run = match &self.run {
            Some(run) => Some(find_run(&runs, run)?.record.run.clone()),
            None => None,
        };
        let folder = self.database.folder().display();
        let Some(ledger) = ledger else {
            return Err(CommandError::bad_input(
                format!("`{folder}` has no measurements of npubench, so that its numbers have no intervals"),
                format!("`npubench run --db {folder}` measures its rows"),
            ));
        };
        let name = run.as_ref().map_or_else(|| folder.to_string(), |run| format!("{folder}@{run}"));
        Ok((name, MeasuredSide::read(&ledger, run.as_deref(), cache)?))
    }
}

pub(super) fn run(options: &DiffOptions) -> Result<ExitStatus, CommandError> {
    let [first, second] = [NamedSide::open(&options.first)?, NamedSide::open(&options.second)?];
    let kinds = [first.database.kind(), second.database.kind()];
    if kinds[0] != kinds[1] {
        return Err(CommandError::bad_input(
            format!("A is of kind {} and B of kind {}", kinds[0], kinds[1]),
            "simulated durations are not compared with measurements",
        ));
    }
    let kernels = options.kernels.names()?;
    let (first_name, mut first) = first.read(options.cache.state)?;
    let (second_name, mut second) = second.read(options.cache.state)?;
    if !kernels.is_empty() {
        [&mut first, &mut second].into_iter().for_each(|side| side.keep_kernels(&kernels));
    }
    let difference = compare_sides([&first, &second], options.margin);
    match options.output.format {
        OutputFormat::Json => print_data(&diff_json(&difference)),
        OutputFormat::Plain => {
            print_data(&diff_table(&difference, options.all));
            let names = [first_name.as_str(), second_name.as_str()];
            print_data(&diff_summary(&difference, names, [&first, &second], options.margin));
        }
    }
    for (cases, [side, other]) in difference.failed_in_other.iter().zip([["A", "B"], ["B", "A"]]) {
        failed_note(cases, side, other).iter().for_each(|note| print_note(note));
    }
    if difference.without_interval > 0 {
        print_note(&format!(
            "{} of the cases of both sides have no interval over collections: `npubench run --db DIR` measures them again \
             until they have one",
            difference.without_interval
        ));
    }
    Ok(match options.fail_on_slow && difference.has_slow_case() {
        true => ExitStatus::SomeNotOk,
        false => ExitStatus::Done,
    })
}
