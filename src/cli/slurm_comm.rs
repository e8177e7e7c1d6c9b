//! `npubench slurm comm`: a sweep of collectives over nodes as a job of Slurm.

use super::{comm::CommCommand, prelude::*};
use crate::{
    kernel::render::{SlurmJob, SlurmSweep},
    measure::fleet::{render_slurm_sweep, submit_script},
};

/// Submits a sweep of collectives over several nodes
///
/// The job starts `npubench comm run` once on each node with srun; torchrun connects the ranks of all nodes. Options of
/// `npubench comm run` follow behind `--`; without `--shared` or a secret, the nodes share a folder beside the log of the job. Near the time limit the running collection ends, and the job is queued again; started again, it
/// measures what is missing. The script is a template (`slurm_comm.sh.hbs`).
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  npubench slurm comm --db comm --nodes 2 --gres npu:16 --partition atlas --time 1:00:00 -- --ranks 2,16,32 --from 1K --to 1G
  npubench slurm comm --db comm --nodes 2 --gres npu:16 --dry-run -- --ranks 32 > sweep.sh")]
pub(super) struct SlurmCommOptions {
    #[command(flatten)]
    database: DatabaseFolder,
    /// Number of nodes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    nodes: u16,
    /// Print the script, and do not submit it
    #[arg(long)]
    dry_run: bool,
    /// Options of `npubench comm run`
    #[arg(last = true, value_name = "COMM RUN OPTIONS")]
    comm_options: Vec<String>,
    #[command(flatten)]
    common: CommonOptions<OutputOptions>,
    #[command(flatten)]
    job: SlurmJob,
}

#[derive(Serialize, JsonSchema)]
struct SweepJobRecord<'a> {
    job: &'a str,
    nodes: u16,
}

pub(super) fn run(options: &SlurmCommOptions) -> Result<ExitStatus, CommandError> {
    let db = &options.database.db;
    let db = std::path::absolute(db).unwrap_or_else(|_| db.clone()).to_string_lossy().into_owned();
    let mut words = options.comm_options.clone();
    words.extend(options.common.assets.absolute_option());
    let parsed = options.job.parse_command(&["comm", "run", "--db", &db], &words)?;
    let TopCommand::Comm(CommCommand::Run(parsed)) = parsed else {
        return Err(CommandError::usage(
            "the words behind `--` are no options",
            "`npubench comm run --help` lists them",
        ));
    };
    options.job.require_devices(parsed.devices.is_some())?;
    let arguments: Vec<String> = ["--db".to_owned(), db].into_iter().chain(words).collect();
    let sweep =
        SlurmSweep { nodes: options.nodes, has_meeting: parsed.nodes.have_meeting(), arguments: &arguments };
    let script = render_slurm_sweep(&options.common.assets.load()?, &options.job.with_program()?, &sweep)?;
    if options.dry_run {
        print_data(&script);
        return Ok(ExitStatus::Done);
    }
    let job = submit_script(&script)?;
    let record = SweepJobRecord { job: &job, nodes: options.nodes };
    emit(options.common.output.format, &[record], || {
        format!("job {job} measures on {}\n", format_count(options.nodes, "node"))
    });
    print_note(&format!(
        "its log is npubench-comm-{job}.log in this folder; `squeue --jobs={job}` shows its state, `scancel --batch --signal=USR2 {job}` \
         stops it after the running collection"
    ));
    Ok(ExitStatus::Done)
}
