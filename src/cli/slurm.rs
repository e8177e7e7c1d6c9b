//! `npubench slurm`: the shards of a plan as jobs of Slurm.

use super::{
    prelude::*,
    run::RunCommandOptions,
    shard::divide_database,
    slurm_comm::{self, SlurmCommOptions},
};
use crate::{
    base::count_text::number_ranges,
    database::ShardNumber,
    kernel::render::SlurmJob,
    measure::fleet::{SlurmRequest, SlurmStatus, SlurmSubmission, devices_of_job},
    show::slurm::{slurm_status_records, slurm_status_text},
};

subcommands! {
    /// Measures the shards of a plan, or collectives over nodes, as jobs of Slurm
    #[derive(Debug, Subcommand)]
    #[command(after_help = "Examples:
  npubench slurm submit --db a3 --shards 12 --gres npu:8 --time 8:00:00
  npubench slurm status --db a3")]
    pub(super) enum SlurmCommand {
        Submit(Box<SubmitOptions>) => submit,
        Status(SlurmStatusOptions) => show_status,
        Cancel(SlurmCancelOptions) => cancel,
        Comm(Box<SlurmCommOptions>) => slurm_comm::run,
        Devices(SlurmDevicesOptions) => print_devices,
    }
}

/// Submits the shards that are not complete as an array of jobs, and a job that merges them
///
/// Each task runs `npubench run --shard` on the devices that Slurm gives to it. A task continues its shard after the loss of its node and
/// after `scontrol requeue`; near the time limit it ends its running collections and is queued again. Options of `npubench run` follow
/// behind `--`. The scripts are templates (`slurm_array.sh.hbs`, `slurm_merge.sh.hbs`). If Slurm refuses the jobs, nothing is changed.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  npubench slurm submit --db a3 --shards 12 --gres npu:8 --partition atlas --time 8:00:00
  npubench slurm submit --db a3 --gres npu:8 --time 8:00:00 --sbatch=--account=team --sbatch=--cpus-per-task=64 -- --precision 0.5
  npubench slurm submit --db a3 --shards 12 --gres npu:8 --dry-run > array.sh")]
pub(super) struct SubmitOptions {
    #[command(flatten)]
    database: DatabaseFolder,
    /// Number of shards; needed if the database has no plan of `npubench shard`
    #[arg(long, value_name = "N",
          value_parser = parse_shard_count)]
    shards: Option<usize>,
    /// Maximum number of tasks that run at the same time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_running: Option<u32>,
    /// Submit no job that merges the shards
    #[arg(long)]
    no_merge: bool,
    /// Print the scripts, and neither submit nor write anything
    #[arg(long)]
    dry_run: bool,
    /// Options of `npubench run`
    #[arg(last = true, value_name = "RUN OPTIONS")]
    run_options: Vec<String>,
    #[command(flatten)]
    common: CommonOptions<OutputOptions>,
    #[command(flatten)]
    job: SlurmJob,
}

/// Shows the jobs of the last submission with the progress of their shards
///
/// Joins `squeue` with the ledgers of the shards. Ends with 1 if a shard is neither complete nor in the queue.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  npubench slurm status --db a3")]
pub(super) struct SlurmStatusOptions {
    #[command(flatten)]
    database: DatabaseFolder,
    #[command(flatten)]
    output: TableOptions,
}

/// Cancels the waiting tasks of the last submission, and stops the running ones
///
/// Running collections end first, and their results are stored. The job that merges the shards stays in the queue, and merges what was
/// measured. `npubench slurm submit` continues later.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  npubench slurm cancel --db a3
  npubench slurm cancel --db a3 --now")]
pub(super) struct SlurmCancelOptions {
    #[command(flatten)]
    database: DatabaseFolder,
    /// End running collections at once; their results are lost
    #[arg(long)]
    now: bool,
}

/// Prints the devices of the job of Slurm that runs this command
///
/// Slurm sets no variable for devices that are not GPUs; `scontrol show job -d` has them if `gres.conf` names the device files.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  npubench slurm devices --gres npu")]
pub(super) struct SlurmDevicesOptions {
    /// Name of the generic resource
    #[arg(long, value_name = "NAME", default_value = "npu")]
    gres: String,
}

fn print_devices(options: &SlurmDevicesOptions) -> Result<ExitStatus, CommandError> {
    print_data(&format!("{}\n", number_ranges(&devices_of_job(&options.gres)?)));
    Ok(ExitStatus::Done)
}

impl SubmitOptions {
    fn parsed_run_options(&self) -> Result<(Vec<String>, Box<RunCommandOptions>), CommandError> {
        let words: Vec<String> =
            self.run_options.iter().cloned().chain(self.common.assets.absolute_option()).collect();
        let shard = ShardNumber { number: 1, count: self.shards.unwrap_or(1) }.to_string();
        let db = self.database.db.to_string_lossy();
        match self.job.parse_command(&["run", "--db", &db, "--shard", &shard], &words)? {
            TopCommand::Run(options) => Ok((words, options)),
            _ => Err(CommandError::usage(
                "the words behind `--` are no options",
                "`npubench run --help` lists them",
            )),
        }
    }

    fn plan(&self, database: &Database) -> Result<ShardPlan, CommandError> {
        let db = quoted_path(database.folder());
        match (ShardPlan::load(database)?, self.shards) {
            (Some(plan), Some(count)) if plan.shards.len() != count => Err(CommandError::bad_input(
                format!(
                    "`{}` has a plan of {}, not of {count}",
                    database.folder().display(),
                    format_count(plan.shards.len(), "shard")
                ),
                format!(
                    "leave out `--shards` to submit them; or merge them with `npubench db merge {db} --shards`, then divide again with \
                     `npubench shard --db {db} --shards {count} --replace`"
                ),
            )),
            (Some(plan), _) => Ok(plan),
            (None, Some(count)) => divide_database(database, &self.common.assets, count),
            (None, None) => Err(CommandError::bad_input(
                format!("`{}` has no shards", database.folder().display()),
                format!(
                    "give their number with `--shards N`, or divide its plan with `npubench shard --db {db} --shards N`"
                ),
            )),
        }
    }
}

record! {
    SubmissionRecord<'a>(submission: &'a SlurmSubmission) {
        job: &'a str = &submission.array_job,
        merge_job: Option<&'a str> = submission.merge_job.as_deref(),
        plan: &'a str = &submission.plan,
        shards: &'a [u32] = &submission.shards,
    }
}

fn submit(options: &SubmitOptions) -> Result<ExitStatus, CommandError> {
    let (run_options, parsed) = options.parsed_run_options()?;
    options.job.require_devices(parsed.selection.resources.devices.is_some())?;
    let assets = options.common.assets.load()?;
    let host = parsed.measurement.host;
    let database = Database::open_as_given(&options.database.db, host, "-- --host rehearsal")?;
    let mut lock = if options.dry_run { None } else { Some(database.lock()?) };
    let plan = options.plan(&database)?;
    let request = SlurmRequest {
        database: &database,
        plan: &plan,
        assets: &assets,
        job: options.job.with_program()?,
        max_running: options.max_running,
        run_options,
        merge_options: options.common.assets.absolute_option().into_iter().collect(),
        merges: !options.no_merge,
    };
    let db = quoted_path(database.folder());
    let Some(scripts) = request.render()? else {
        print_note(&format!(
            "all shards of plan {} are complete: `npubench db merge {db} --shards` merges them; `npubench shard --db {db} --shards N \
             --replace` divides what is missing then",
            plan.id()
        ));
        return Ok(ExitStatus::Done);
    };
    let Some(lock) = &mut lock else {
        print_data(&scripts.array);
        if let Some(merge) = &scripts.merge {
            print_data(&format!("\n{merge}"));
        }
        return Ok(ExitStatus::Done);
    };
    let submission = request.submit(&scripts, lock)?;
    emit(options.common.output.format, [SubmissionRecord::new(&submission)], || {
        let merge = submission.merge_job.as_ref().map(|job| format!("; job {job} merges them"));
        format!(
            "job {} measures {} of plan {}: {}{}\n",
            submission.array_job,
            format_count(submission.shards.len(), "shard"),
            submission.plan,
            number_ranges(&submission.shards),
            or_empty(merge)
        )
    });
    print_note(&format!("`npubench slurm status --db {db}` shows the progress"));
    Ok(ExitStatus::Done)
}

fn planned_database(options: &DatabaseFolder) -> Result<(Database, ShardPlan), CommandError> {
    let database = Database::open(&options.db)?;
    let plan = ShardPlan::load(&database)?.ok_or_else(|| {
        CommandError::bad_input(
            format!("`{}` has no shards", database.folder().display()),
            format!(
                "`npubench slurm submit --db {} --shards N --gres npu:8` submits some",
                quoted_path(database.folder())
            ),
        )
    })?;
    Ok((database, plan))
}

fn show_status(options: &SlurmStatusOptions) -> Result<ExitStatus, CommandError> {
    let (database, plan) = planned_database(&options.database)?;
    let status = SlurmStatus::read(&database, &plan)?;
    options.output.emit(slurm_status_records(&status), |width| slurm_status_text(&status, width));
    Ok(match status.left_note(&database) {
        None => ExitStatus::Done,
        Some(note) => {
            print_note(&note);
            ExitStatus::SomeNotOk
        }
    })
}

fn cancel(options: &SlurmCancelOptions) -> Result<ExitStatus, CommandError> {
    let (database, plan) = planned_database(&options.database)?;
    let submission = SlurmSubmission::require(&database, &plan)?;
    if !submission.cancel(options.now)? {
        print_note(&format!("job {} has ended: no task of it is in the queue", submission.array_job));
        return Ok(ExitStatus::Done);
    }
    let what = if options.now { "was cancelled" } else { "ends after its running collections" };
    let merge = submission.merge_job.map_or_else(String::new, |job| {
        format!("; job {job} then merges what was measured, unless you cancel it: `scancel {job}`")
    });
    print_note(&format!("job {} {what}{merge}", submission.array_job));
    Ok(ExitStatus::Done)
}
