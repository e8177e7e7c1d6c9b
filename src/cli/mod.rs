//! The command line: one file per command. It parses, calls the library, and turns errors into text,
//! hint and exit code.
//!
//! Layer 5: imports everything below and holds no logic of its own.

mod check;
mod db;
mod doctor;
mod fia_backfill;
mod grid;
mod grid_audit;
mod grid_mutate;
mod ingest;
mod kernels;
mod new_kernel;
pub(crate) mod options;
mod pause;
mod plan;
mod render;
mod resume;
mod run;
mod runs;
mod show;
mod status;

use std::{ffi::OsString, sync::Arc};

use crate::session::Failure;
use clap::{Args, Parser, Subcommand};
use nix::sys::signal::Signal;

use crate::{exit::Exit, rehearsal, report};

/// Measures Ascend NPU kernels and writes verified per-kernel CSV databases.
#[derive(Debug, Parser)]
#[command(name = "npubench", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Doctor(doctor::Options),
    Ingest(ingest::Options),
    Grid(Box<GridCommand>),
    Check(check::Options),
    Plan(plan::Options),
    Run(run::Options),
    Resume(resume::Options),
    Status(status::Options),
    Pause(pause::PauseOptions),
    Unpause(pause::UnpauseOptions),
    Runs(runs::Options),
    Show(show::Options),
    Render(render::Options),
    Kernels(kernels::Options),
    NewKernel(new_kernel::Options),
    #[command(subcommand)]
    Db(db::Command),
    FiaBackfill(fia_backfill::Options),
    /// Stands in for one of the vendor's programs on the rehearsal host.
    #[command(hide = true, disable_help_flag = true)]
    StandIn {
        /// The program's name and its arguments.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
}

/// Expands grids into cases without measurements, or audits how dense they are
///
/// Candidates that contradict a grid's constraints or the catalogue's shape rule, do not fit the memory, or stand
/// in the database already are left out; of the rest a sample over small and large shapes becomes rows.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
struct GridCommand {
    #[command(flatten)]
    grow: grid::Options,
    #[command(subcommand)]
    other: Option<GridOther>,
}

#[derive(Debug, Subcommand)]
enum GridOther {
    Audit(grid_audit::Options),
}

impl GridCommand {
    fn run(self) -> Result<Exit, Failure> {
        match self.other {
            Some(GridOther::Audit(options)) => grid_audit::run(&options),
            None => grid::run(&self.grow),
        }
    }
}

/// Runs the program on the arguments of the process; returns the exit code.
#[must_use]
pub fn main() -> u8 {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are data, and no error.
            let _ = error.print();
            return if error.use_stderr() { Exit::Usage.code() } else { Exit::Done.code() };
        }
    };
    // A file that reaches the limit of its size (`ulimit -f`) is an error to be told, and no sudden end: what catches
    // the signal makes the write fail.
    let _ = signal_hook::flag::register(Signal::SIGXFSZ as i32, Arc::default());
    let result = match cli.command {
        Command::Doctor(options) => doctor::run(&options),
        Command::Ingest(options) => ingest::run(&options),
        Command::Grid(command) => command.run(),
        Command::Check(options) => check::run(&options),
        Command::Plan(options) => plan::run(&options),
        Command::Run(options) => run::run(&options),
        Command::Resume(options) => resume::run(&options),
        Command::Status(options) => status::run(&options),
        Command::Pause(options) => pause::pause(&options),
        Command::Unpause(options) => pause::unpause(&options),
        Command::Runs(options) => runs::run(&options),
        Command::Show(options) => show::run(&options),
        Command::Render(options) => render::run(&options),
        Command::Kernels(options) => kernels::run(&options),
        Command::NewKernel(options) => new_kernel::run(&options),
        Command::Db(command) => db::run(&command),
        Command::FiaBackfill(options) => fia_backfill::run(&options),
        Command::StandIn { arguments } => return rehearsal::stand_in(&arguments),
    };
    match result {
        Ok(Exit::Done | Exit::SomeNotOk) if report::is_data_lost() => Exit::BadInput.code(),
        Ok(exit) => exit.code(),
        Err(failure) => {
            report::print_note(&failure.to_string());
            failure.exit.code()
        }
    }
}
