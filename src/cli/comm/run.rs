//! `npubench comm run`: measures collectives over message sizes.

use super::{super::prelude::*, message_options::MessageOptions, node_options::NodeOptions};
use crate::{
    kernel::render::ScriptCommunication,
    measure::{
        collective::{
            sweep_rounds::{SweepDatabase, SweepRounds},
            sweep_session::{CollectiveSweep, current_hccl_environment},
        },
        nodes::{NodeListener, session::SweepFollower},
        vendor_check::require_gloo,
    },
    show::collectives::{sweep_summary, sweep_table},
};

/// Measures collectives over message sizes, numbers of ranks, tiers and types
///
/// A collective of one size is a case as that of a kernel: `status`, `resume`, `why`, `show` and `reparse` work for
/// it, too. The results are written into `hcom_*.csv`; docs/collectives.md describes their columns. Sizes are bytes,
/// and K, M and G are powers of 1024, as in nccl-tests.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  npubench comm run --db comm --ranks 2,4,8,16 --from 1K --to 512M
  srun --nodes=2 --ntasks-per-node=1 npubench comm run --db comm --ranks 32 --shared $HOME/nodes")]
pub(in crate::cli) struct CommRunOptions {
    #[command(flatten)]
    database: DatabaseFolder,
    #[command(flatten)]
    messages: MessageOptions,
    /// Measure further sizes around each change of the algorithm, in up to four further runs, until it is located
    /// within a quarter
    #[arg(long, conflicts_with = "dry_run")]
    refine: bool,
    /// Devices to use, by the numbers of `npu-smi info`, such as `0-15`; by default all of this host
    #[arg(long, value_name = "LIST", value_parser = parse_devices)]
    pub(in crate::cli) devices: Option<DeviceList>,
    #[command(flatten)]
    deadline: DeadlineOptions,
    /// Rows to measure
    #[arg(long, value_enum, default_value = "missing")]
    update: UpdateMode,
    /// Device profile of a database that does not exist yet
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// Backend of torch.distributed; `gloo` runs on the CPU of this host with the torch of `--python`, and its times,
    /// by the host's clock, are only for databases of the rehearsal host
    #[arg(long, value_enum, default_value = "hccl")]
    backend: BackendArg,
    /// Print groups, sizes and the predicted time; nothing is launched and nothing is written
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    pub(in crate::cli) nodes: NodeOptions,
    #[command(flatten)]
    measurement: MeasurementOptions,
    #[command(flatten)]
    output: TableOptions,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum BackendArg {
    Hccl,
    Gloo,
}

impl CommRunOptions {
    fn communication(&self) -> Result<ScriptCommunication, CommandError> {
        match self.backend {
            BackendArg::Hccl => Ok(ScriptCommunication::Hccl),
            BackendArg::Gloo if self.measurement.host == DataKind::Npu => Err(CommandError::usage(
                "times of gloo are those of the CPU, and are for databases of the rehearsal host only",
                "add `--host rehearsal` with a database of its own, or remove `--backend gloo`",
            )),
            BackendArg::Gloo => Ok(ScriptCommunication::Gloo),
        }
    }
}

pub(super) fn run(options: &CommRunOptions) -> Result<ExitStatus, CommandError> {
    let kind = options.measurement.host;
    let communication = options.communication()?;
    let assets = options.measurement.assets.load()?;
    let place = options.nodes.place()?;
    let environment = current_hccl_environment();
    let arguments = env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned());
    let arguments: Vec<String> = arguments.collect();
    let base = RunOptions {
        command: place.as_ref().map(|place| place.command(&arguments, &environment)),
        update: options.update,
        chosen_devices: options.devices.as_ref().map(|list| list.0.clone()),
        ..options.measurement.options_of_one_collection(&assets)?
    };
    options.measurement.print_notes();
    // Before anything takes time.
    options.messages.combinations()?;
    // Nodes compare their versions of torch when they agree on the sweep.
    if communication == ScriptCommunication::Gloo && !options.dry_run && place.is_none() {
        require_gloo(&base.python).map_err(|error| {
            let problem = format!("the backend gloo cannot run: {}", error.message);
            CommandError::cannot_measure(problem, "give a Python with torch by `--python`")
        })?;
    }
    let part_weights = options.messages.parts.clone();
    let sweep = CollectiveSweep { parts: Vec::new(), environment, part_weights, communication, nodes: None };
    if let Some(place) = place.as_ref().filter(|place| place.node > 0) {
        if options.dry_run {
            print_note("node 0 prints the preview of the sweep");
            return Ok(ExitStatus::Done);
        }
        let screen = run_screen(options.output.format);
        let follower = SweepFollower { kind, assets, options: &base, sweep: &sweep, place, screen };
        return follower.follow(|context| options.messages.sweep_parts(context));
    }
    check_device(options.device.as_deref(), &options.measurement.assets, &options.database.db)?;
    // Before the hosts are looked at, which takes seconds.
    let listener = match &place {
        Some(place) if !options.dry_run => {
            end_programs_of_killed_run(&options.database.db);
            Some(NodeListener::open(place)?)
        }
        _ => None,
    };
    let database = SweepDatabase::find(&options.database.db, kind, &assets, options.device.as_deref())?;
    let (planned, screen) = (database.planning_folder(), run_screen(options.output.format));
    let mut context = RunContext::find(&planned, kind, assets.clone(), &base, screen)?;
    if let Some(place) = &place {
        context.set_node_count(place.nodes)?;
    }
    let parts = options.messages.sweep_parts(&context)?;
    let sweep = CollectiveSweep { parts, nodes: context.layout, ..sweep };
    let run_options = RunOptions { sweep: Some(sweep.clone()), ..base.clone() };
    let preview = context.preview_sweep(&run_options, options.deadline.deadline().map(Deadline::rest))?;
    if options.dry_run {
        database.announce("would create");
        options.output.emit(&preview.lines, |width| sweep_table(&preview, width));
        return Ok(ExitStatus::Done);
    }
    print_note(&sweep_summary(&preview));
    context.require_host(&run_options)?;
    let received = ScratchFolder::create().map_err(CommandError::no_temporary_folder)?;
    let nodes = match (&place, listener) {
        (Some(place), Some(listener)) => {
            Some(context.admit_nodes(listener, place, &run_options, received.path())?)
        }
        _ => None,
    };
    drop(context);
    let exit = database.create().and_then(|folder| {
        let rounds = SweepRounds {
            folder: &folder,
            kind,
            assets,
            options: base,
            deadline: options.deadline.deadline(),
            screen: run_screen(options.output.format),
            nodes: nodes.clone(),
        };
        rounds.measure(&sweep, options.refine)
    });
    if let Some(nodes) = &nodes {
        nodes.cluster.end(exit.as_ref().map_or_else(|error| error.exit, |exit| *exit).code());
    }
    exit
}

/// Ends the programs of a killed sweep, one of which listens on the port of torchrun; the lock ends them. Another run keeps
/// its own: it holds the lock.
fn end_programs_of_killed_run(folder: &Path) {
    drop(Database::open(folder).and_then(|database| database.lock()));
}
