//! `npubench diff`: compares two databases or runs.

use super::prelude::*;
use crate::{
    base::shell_argument::quoted_argument,
    measure::{
        evidence::{MeasuredSide, compare_sides, repeat_commands},
        filtered_cases::filter_sides,
    },
    show::diff::{diff_summary, diff_table, failed_note},
};

/// Maximum number of cases that a note names; of more, it prints the command that does.
const MAX_NAMED_CASES: usize = 50;

/// Compares two databases or runs case by case: SLOW, FAST, SAME or AMBIGUOUS
///
/// A case is SLOW or FAST if B differs from A by at least the margin and the difference cannot be chance, SAME if the
/// difference is shown to be smaller than the margin, else AMBIGUOUS. The share of wrong statements over all cases is
/// controlled at 5 %. Two nights, two hosts and two versions of CANN are compared alike; nothing is written.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  npubench diff monday tuesday
  npubench diff a3@last a3-new-cann")]
pub(super) struct DiffOptions {
    /// Database folder, or `DIR@RUN` for the measurements of one run: an id as in `npubench runs`, the beginning of one, or
    /// `last` for the newest run with measurements
    #[arg(value_name = "A")]
    first: String,
    /// The same for the other side
    #[arg(value_name = "B")]
    second: String,
    #[command(flatten)]
    cache: CacheOption,
    #[command(flatten)]
    kernels: KernelFilter,
    #[command(flatten)]
    filter: FilterOption,
    #[command(flatten)]
    common: CommonOptions<TableOptions>,
    /// Smallest difference that matters, in percent of the time
    #[arg(long, value_name = "PERCENT", default_value = "2", 
          value_parser = |text: &str| parse_percent(text, 100.0).map(|percent| percent / 100.0))]
    margin: f64,
    /// List all cases, not only those that are SLOW or FAST
    #[arg(long)]
    all: bool,
    /// Print only the commands that measure again the AMBIGUOUS cases that are known less well on this side
    #[arg(long, value_enum, value_name = "SIDE", conflicts_with = "fail_on_slow")]
    repeat: Option<RepeatedSide>,
    /// Exit with 1 if a case is SLOW
    #[arg(long)]
    fail_on_slow: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum RepeatedSide {
    /// The first side
    #[value(name = "A")]
    First,
    /// The second side
    #[value(name = "B")]
    Second,
}

/// A database with a run if one is named: `DIR` or `DIR@RUN`.
struct NamedSide<'a> {
    database: Database,
    run: Option<&'a str>,
}

impl<'a> NamedSide<'a> {
    fn open(argument: &'a str) -> Result<Self, CommandError> {
        // A folder may have an `@` in its name.
        let split = argument.rsplit_once('@').filter(|_| !Path::new(argument).exists());
        let (folder, run) = split.map_or((argument, None), |(folder, run)| (folder, Some(run)));
        Ok(Self { database: Database::open(Path::new(folder))?, run })
    }

    fn read(&self, cache: CacheState) -> Result<(String, MeasuredSide), CommandError> {
        let (ledger, runs) = past_runs(&self.database)?;
        let folder = self.database.folder().display();
        let unmeasured = |problem: String| {
            CommandError::bad_input(problem, format!("{} measures its rows", run_command(&self.database)))
        };
        let ledger = ledger.ok_or_else(|| {
            let missing = "has no measurements of npubench, so that its numbers have no intervals";
            unmeasured(format!("`{folder}` {missing}"))
        })?;
        let (run, name) = match self.run {
            None => (None, folder.to_string()),
            Some("last") => {
                let run = ledger.newest_measured_run(cache)?.ok_or_else(|| {
                    unmeasured(format!("no run of `{folder}` has measurements with a {cache} cache"))
                })?;
                let later = runs.iter().rev().take_while(|past| past.record.run != run).count();
                let later = or_empty(
                    (later > 0).then(|| format!("; {} later without one", format_count(later, "run"))),
                );
                let name = format!("{folder}@{run} (its last run with measurements{later})");
                (Some(run), name)
            }
            Some(run) => {
                let run = find_run(&self.database, &runs, run)?.record.run.clone();
                let name = format!("{folder}@{run}");
                (Some(run), name)
            }
        };
        Ok((name, MeasuredSide::read(&ledger, run.as_deref(), cache)?))
    }
}

fn repeat_note(
    options: &DiffOptions,
    side: &NamedSide<'_>,
    letter: &str,
    cases: &[CaseId],
) -> Option<String> {
    let command = match repeat_commands(&side.database, options.cache.state, cases).as_slice() {
        [] => return None,
        [command] if cases.len() <= MAX_NAMED_CASES => command.clone(),
        _ => {
            let mut command = format!(
                "npubench diff {} {} --repeat {letter} --margin {}",
                quoted_argument(&options.first),
                quoted_argument(&options.second),
                options.margin * 100.0
            );
            if !options.cache.state.is_hot() {
                command += &format!(" --cache {}", options.cache.state);
            }
            if !options.kernels.kernels.is_empty() {
                command += &format!(" --kernels {}", quoted_argument(&options.kernels.kernels.join(",")));
            }
            if let Some(filter) = &options.filter.filter {
                command += &format!(" --filter {}", quoted_argument(filter));
            }
            command + " | sh"
        }
    };
    let afterwards = match side.run {
        None | Some("last") => "",
        Some(_) => ", as a run of its own, and shows better how much collections differ",
    };
    let (are, them) = if cases.len() == 1 { ("is", "it") } else { ("are", "them") };
    let cases = format_count(cases.len(), "AMBIGUOUS case");
    Some(format!("{cases} {are} known less well in {letter}: `{command}` measures {them} again{afterwards}"))
}

pub(super) fn run(options: &DiffOptions) -> Result<ExitStatus, CommandError> {
    let sides = [NamedSide::open(&options.first)?, NamedSide::open(&options.second)?];
    let kinds = [sides[0].database.kind(), sides[1].database.kind()];
    if kinds[0] != kinds[1] {
        return Err(CommandError::bad_input(
            format!("A is of kind {} and B of kind {}", kinds[0], kinds[1]),
            "simulated durations are not compared with measurements",
        ));
    }
    let kernels = options.kernels.names()?;
    let (first_name, mut first) = sides[0].read(options.cache.state)?;
    let (second_name, mut second) = sides[1].read(options.cache.state)?;
    if !kernels.is_empty() {
        [&mut first, &mut second].into_iter().for_each(|side| side.keep_kernels(&kernels));
    }
    if let Some(filter) = &options.filter.filter {
        let catalogue = Catalogue::load(&options.common.assets.load()?)?;
        let database = &sides[1].database;
        filter_sides(filter, database, &catalogue, options.cache.state, [&mut first, &mut second])?;
        if first.cases.is_empty() && second.cases.is_empty() {
            print_note("no case of either side matches the filter");
        }
    }
    let difference = compare_sides([&first, &second], options.margin);
    if let Some(side) = options.repeat {
        let (side, cases) = (&sides[side as usize], &difference.ambiguous[side as usize]);
        for command in repeat_commands(&side.database, options.cache.state, cases) {
            print_data(&(command + "\n"));
        }
        return Ok(ExitStatus::Done);
    }
    emit_paged(options.common.output.format, &difference.cases, || {
        let names = [first_name.as_str(), second_name.as_str()];
        let summary = diff_summary(&difference, names, [&first, &second], options.margin);
        diff_table(&difference, options.all, options.common.output.wide.width()) + &summary
    });
    for (cases, [side, other]) in difference.failed_in_other.iter().zip([["A", "B"], ["B", "A"]]) {
        failed_note(cases, side, other).iter().for_each(|note| print_note(note));
    }
    if difference.without_interval > 0 {
        print_note(&format!(
            "{} of the cases of both sides have no interval over collections",
            difference.without_interval
        ));
    }
    for ((side, letter), cases) in sides.iter().zip(["A", "B"]).zip(&difference.ambiguous) {
        repeat_note(options, side, letter, cases).iter().for_each(|note| print_note(note));
    }
    Ok(ExitStatus::done_if(!(options.fail_on_slow && difference.has_slow_case())))
}
