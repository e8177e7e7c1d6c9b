//! `npubench run`: measures the cases of a database.
//! Its options are in `measurement_options.rs` and `options.rs`; `measure/run_options.rs` names what else a new one needs.

use super::{
    prelude::*,
    resume::{is_interrupted, resume_run},
};
use crate::{
    database::ShardNumber,
    measure::{
        fleet::{ShardProgress, open_shard, shard_progress},
        run_context::{EndedRun, new_run_id},
        run_plan::check_expert_skew,
    },
};

/// Smallest rest of a budget in seconds for another state of the cache: few collections on devices end in less.
const MIN_REST: f64 = 60.0;

/// Measures the cases of a database and writes their rows
///
/// Cases are divided into collections; a collection is one msprof run on one device, or on several devices for a
/// kernel that communicates. Every launch and verdict is in the ledger before it is printed. Ctrl-C once lets running
/// collections end, twice ends them at once; `npubench resume` continues from there, also after a crash of the host.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  npubench run --db a3 --until 07:30
  npubench run --db a3 --kernels MatMulV2 --devices 0-7 --precision 0.5
  npubench run --db a3 --update all --filter verdict=noisy
  npubench run --db a3 --shard 3/12 --until 07:30
  npubench run --db rehearse --host rehearsal --devices 0-3")]
pub(super) struct RunCommandOptions {
    #[command(flatten)]
    pub(super) selection: SelectionOptions,
    /// Measure this part of the plan of `npubench shard`, in a ledger of its own; started again, it continues
    #[arg(long, value_name = "K/N",
          conflicts_with_all = ["kernels", "cases", "filter", "weight_column", "update", "cache"])]
    shard: Option<ShardNumber>,
    #[command(flatten)]
    pub(super) measurement: MeasurementOptions,
    #[command(flatten)]
    output: OutputOptions,
}

pub(super) fn run(options: &RunCommandOptions) -> Result<ExitStatus, CommandError> {
    let selection = &options.selection;
    match options.shard {
        Some(shard) => run_shard(options, shard),
        None => {
            let (db, states) = (&selection.database.db, selection.cache.states());
            measure(options, db, states, selection.rows.weight_column.as_ref())
        }
    }
}

fn run_shard(options: &RunCommandOptions, shard: ShardNumber) -> Result<ExitStatus, CommandError> {
    let divided = Database::open_as(&options.selection.database.db, options.measurement.host)?;
    let plan = ShardPlan::load_existing(&divided)?;
    check_expert_skew(&divided, options.measurement.skew.expert_skew)?;
    let database = open_shard(&divided, &plan, shard)?;
    if plan.shards[shard.number - 1].cases.is_empty() {
        print_note(&format!("shard {shard} has no cases"));
        return Ok(ExitStatus::Done);
    }
    let resources = &options.selection.resources;
    let devices = resources.devices.as_ref().map(|list| list.0.as_slice());
    match shard_progress(&database, devices)? {
        ShardProgress::Complete { run, exit } => {
            print_note(&format!("shard {shard} is complete by run {run}"));
            Ok(exit)
        }
        ShardProgress::Interrupted { run } => {
            print_note(&format!("shard {shard} continues run {run}"));
            let (leases, format) = (options.measurement.leases.folder(), options.output.format);
            resume_run(database.folder(), Some(&run), &resources.deadline, leases, format)
        }
        ShardProgress::Open => {
            measure(options, database.folder(), &[plan.cache], plan.weight_column.as_ref())
        }
    }
}

fn measure(
    options: &RunCommandOptions,
    db: &Path,
    states: &[CacheState],
    weight_column: Option<&String>,
) -> Result<ExitStatus, CommandError> {
    let kind = options.measurement.host;
    let assets = options.measurement.assets.load()?;
    let selection = &options.selection;
    let kernels = selection.rows.kernels.names()?;
    let base = RunOptions {
        weight_column: weight_column.cloned(),
        ..selection.rows.add_to(options.measurement.run_options(&selection.resources, &assets)?)
    };
    options.measurement.print_notes();
    let deadline = selection.resources.deadline.deadline();
    // Held over all runs of the command.
    let mut held = None;
    let (mut exit, mut is_interrupted) = (ExitStatus::Done, false);
    for &cache in states {
        let is_first = held.is_none();
        if !is_first {
            if is_interrupted || !matches!(exit, ExitStatus::Done | ExitStatus::SomeNotOk) {
                print_note(&format!("the {cache} cache was not measured: {}", measure_later(options, cache)));
                return Ok(if is_interrupted { ExitStatus::Interrupted } else { exit });
            }
            if deadline.is_some_and(|deadline| deadline.rest() < MIN_REST) {
                let later = measure_later(options, cache);
                print_note(&format!("no time is left for the {cache} cache: {later}"));
                return Ok(ExitStatus::SomeNotOk);
            }
        }
        let run_options = RunOptions { cache, ..base.clone() };
        let screen = run_screen(options.output.format);
        let context = RunContext::find(db, kind, assets.clone(), &run_options, screen)?;
        if is_first {
            context.require_host(&run_options)?;
        }
        let lock = match &mut held {
            Some(lock) => lock,
            None => held.insert(context.database.lock()?),
        };
        if is_first && let Some(ledger) = context.database.existing_ledger()? {
            print_interrupted_run(&context.database, &ledger)?;
        }
        let plan = context.plan(&run_options, &kernels)?;
        // The first write: from here on the run has results to keep.
        context.database.initialise(lock)?;
        let run = new_run_id(&context.database, cache);
        if selection.cache == CacheChoice::Both {
            print_note(&format!("run {run} measures with a {cache} cache"));
        }
        let EndedRun { exit: ended, is_stopped } =
            context.measure(&run, run_options, plan, None, deadline)?;
        exit = if ended == ExitStatus::Done { exit } else { ended };
        is_interrupted = is_stopped;
    }
    Ok(exit)
}

fn print_interrupted_run(database: &Database, ledger: &Ledger) -> Result<(), CommandError> {
    if let Some(last) = ledger.list_runs()?.last().filter(|run| is_interrupted(run)) {
        print_note(&format!(
            "run {} was interrupted: this is a new run, which measures what is missing; `npubench resume --db {}` would continue \
             the other with its options",
            last.run,
            quoted_path(database.folder())
        ));
    }
    Ok(())
}

fn measure_later(options: &RunCommandOptions, cache: CacheState) -> String {
    let db = quoted_path(&options.selection.database.db);
    format!("`npubench run --db {db} --cache {cache}` with the same options measures it")
}
