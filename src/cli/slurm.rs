//! `npubench slurm`: the shards of a plan as jobs of Slurm.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Parser as _, Subcommand};
use serde_json::json;

use super::{
    CommandLine, TopCommand,
    option_values::parse_limit,
    options::{AssetOptions, DatabaseFolder, OutputFormat, OutputOptions},
    run::RunCommandOptions,
    shard::divide_database,
};
use crate::{
    database::{Database, ShardNumber},
    domain::quoted_path,
    exit::ExitStatus,
    fleet::{ShardPlan, SlurmRequest, SlurmStatus, SlurmSubmission, devices_of_job, own_program},
    report::{device_ranges, format_count, print_data, print_note},
    session::CommandError,
};

/// Measures the shards of a plan as jobs of Slurm
#[derive(Debug, Subcommand)]
pub(super) enum SlurmCommand {
    Submit(Box<SubmitOptions>),
    Status(SlurmStatusOptions),
    Cancel(SlurmCancelOptions),
    Devices(SlurmDevicesOptions),
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
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..100_000))]
    shards: Option<usize>,
    /// Devices of each task as a generic resource of Slurm; without it, give `--devices` to `npubench run`
    #[arg(long, value_name = "NAME:N")]
    gres: Option<String>,
    /// Partition; by default that of the cluster
    #[arg(long, value_name = "NAME")]
    partition: Option<String>,
    /// Time limit of a task, as sbatch reads it, such as 8:00:00; by default that of the partition
    #[arg(long, value_name = "TIME")]
    time: Option<String>,
    /// Time before the time limit at which no collection is started any more; a collection takes up to five minutes
    #[arg(long, value_name = "TIME", default_value = "6m", value_parser = parse_grace)]
    grace: Duration,
    /// Number of times that a task at its time limit is queued again
    #[arg(long, value_name = "N", default_value_t = 10)]
    requeues: u32,
    /// Maximum number of tasks that run at the same time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_running: Option<u32>,
    /// Further option of sbatch for all jobs, such as `--sbatch=--account=team`; can be repeated
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    sbatch: Vec<String>,
    /// Path of npubench on the nodes; by default that of this program
    #[arg(long, value_name = "PATH")]
    npubench: Option<PathBuf>,
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
    output: OutputOptions,
    #[command(flatten)]
    assets: AssetOptions,
}

/// Parses the time before a limit, of which Slurm takes up to 65535 s.
fn parse_grace(text: &str) -> Result<Duration, String> {
    let grace = parse_limit(text)?;
    let is_valid = (1..=65_535).contains(&grace.as_secs());
    is_valid.then_some(grace).ok_or_else(|| format!("`{text}` is not between 1 s and 65535 s"))
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
    output: OutputOptions,
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

impl SlurmCommand {
    pub(super) fn run(self) -> Result<ExitStatus, CommandError> {
        match self {
            Self::Submit(options) => submit(&options),
            Self::Status(options) => show_status(&options),
            Self::Cancel(options) => cancel(&options),
            Self::Devices(SlurmDevicesOptions { gres }) => {
                print_data(&format!("{}\n", device_ranges(&devices_of_job(&gres)?)));
                Ok(ExitStatus::Done)
            }
        }
    }
}

fn usage(message: impl Into<String>, hint: impl Into<String>) -> CommandError {
    CommandError { message: message.into(), hint: hint.into(), exit: ExitStatus::Usage }
}

impl SubmitOptions {
    /// Returns the options of `npubench run` as the tasks give them, and as they are parsed.
    fn parsed_run_options(&self) -> Result<(Vec<String>, Box<RunCommandOptions>), CommandError> {
        let mut words = self.run_options.clone();
        words.extend(self.assets_option());
        let shard = ShardNumber { number: 1, count: self.shards.unwrap_or(1) }.to_string();
        let db = self.database.db.to_string_lossy();
        let devices = self.gres.is_some().then_some(["--devices", "0"]).into_iter().flatten();
        let command = ["npubench", "run", "--db", &*db, "--shard", &shard].into_iter().chain(devices);
        let parsed = CommandLine::try_parse_from(command.chain(words.iter().map(String::as_str)));
        match parsed.map(|parsed| parsed.command) {
            Ok(TopCommand::Run(options)) => Ok((words, options)),
            Ok(_) => Err(usage("the words behind `--` are no options", "`npubench run --help` lists them")),
            Err(error) => {
                let text = error.to_string();
                let first = text.lines().next().unwrap_or_default();
                Err(usage(
                    format!("options of `npubench run`: {}", first.trim_start_matches("error: ")),
                    "`npubench run --help` lists them; devices are given by `--gres` or by `-- --devices LIST`",
                ))
            }
        }
    }

    /// Returns the option of the assets, which the jobs use as well.
    fn assets_option(&self) -> Option<String> {
        let folder = self.assets.assets.as_ref()?;
        let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.clone());
        Some(format!("--assets={}", folder.display()))
    }

    /// Returns the plan of the database, or a new one of so many shards.
    fn plan(&self, database: &Database) -> Result<ShardPlan, CommandError> {
        let db = quoted_path(database.folder());
        match (ShardPlan::load(database)?, self.shards) {
            (Some(plan), Some(count)) if plan.shards.len() != count => Err(CommandError::bad_input(
                format!(
                    "`{}` has a plan of {} shards, not {count}",
                    database.folder().display(),
                    plan.shards.len()
                ),
                format!(
                    "leave out `--shards` to submit them; or merge them with `npubench db merge {db} --shards`, then divide again with \
                     `npubench shard --db {db} --shards {count} --replace`"
                ),
            )),
            (Some(plan), _) => Ok(plan),
            (None, Some(count)) => divide_database(database, &self.assets, count),
            (None, None) => Err(CommandError::bad_input(
                format!("`{}` has no shards", database.folder().display()),
                "give their number with `--shards N`, or divide its plan with `npubench shard`",
            )),
        }
    }
}

fn submit(options: &SubmitOptions) -> Result<ExitStatus, CommandError> {
    let (run_options, parsed) = options.parsed_run_options()?;
    if options.gres.is_none() && !parsed.has_devices() {
        return Err(usage(
            "the devices of the tasks are not given",
            "give the resource of Slurm with `--gres npu:8`, or devices of whole nodes: `--sbatch=--exclusive -- --devices 0-7`",
        ));
    }
    let assets = options.assets.load()?;
    let database = Database::open_as(&options.database.db, parsed.kind())?;
    let mut lock = if options.dry_run { None } else { Some(database.lock()?) };
    let plan = options.plan(&database)?;
    let npubench = match &options.npubench {
        Some(path) => path.clone(),
        None => own_program()?,
    };
    let request = SlurmRequest {
        database: &database,
        plan: &plan,
        assets: &assets,
        npubench,
        gres: options.gres.clone(),
        partition: options.partition.clone(),
        time: options.time.clone(),
        warning_seconds: u32::try_from(options.grace.as_secs()).unwrap_or(u32::MAX),
        requeues: options.requeues,
        max_running: options.max_running,
        options: options.sbatch.clone(),
        run_options,
        merge_options: options.assets_option().into_iter().collect(),
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
    print_data(&match options.output.format {
        OutputFormat::Json => {
            json!({
                "plan": submission.plan, "job": submission.array_job, "merge_job": submission.merge_job,
                "shards": submission.shards,
            })
            .to_string()
                + "\n"
        }
        OutputFormat::Plain => {
            let merge =
                submission.merge_job.map_or_else(String::new, |job| format!("; job {job} merges them"));
            format!(
                "job {} measures {} of plan {}: {}{merge}\n",
                submission.array_job,
                format_count(submission.shards.len(), "shard"),
                submission.plan,
                device_ranges(&submission.shards)
            )
        }
    });
    print_note(&format!("`npubench slurm status --db {db}` shows the progress"));
    Ok(ExitStatus::Done)
}

/// Returns the database with its plan.
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
    print_data(&match options.output.format {
        OutputFormat::Plain => status.text(),
        OutputFormat::Json => status.json(),
    });
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
    submission.cancel(options.now)?;
    let what = if options.now { "was cancelled" } else { "ends after its running collections" };
    let merge = submission.merge_job.map_or_else(String::new, |job| {
        format!("; job {job} then merges what was measured, unless you cancel it: `scancel {job}`")
    });
    print_note(&format!("job {} {what}{merge}", submission.array_job));
    Ok(ExitStatus::Done)
}
