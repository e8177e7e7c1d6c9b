//! The command line: one file per command. It parses arguments, calls the library, and prints errors as text with hint
//! and exit code.

/// Declares the commands below a command with the functions that run them.
macro_rules! subcommands {
    ($(#[$attribute:meta])* $visible:vis enum $name:ident { $($command:ident($options:ty) => $run:path,)+ }) => {
        $(#[$attribute])*
        $visible enum $name {
            $($command($options),)+
        }

        impl $name {
            pub(super) fn run(&self) -> Result<ExitStatus, CommandError> {
                match self {
                    $(Self::$command(options) => $run(options),)+
                }
            }
        }
    };
}

mod adapt;
mod check;
mod collect;
mod comm;
mod compare;
mod config_file;
mod coverage;
mod db;
mod diff;
mod doctor;
mod fia_backfill;
mod fill;
mod grid;
mod grid_audit;
mod grid_options;
mod ingest;
mod kernels;
mod m6;
mod measurement_options;
mod models;
mod modules;
mod new_kernel;
mod noise;
mod option_values;
mod options;
mod pause;
mod plan;
mod prelude;
mod query;
mod question_options;
mod render;
mod reparse;
mod resume;
mod rules;
mod run;
mod run_report;
mod runs;
mod selftest;
mod shard;
mod shell_files;
mod show;
mod slurm;
mod slurm_comm;
mod slurm_job_options;
mod status;
mod step_options;
mod timeline;
mod volcano;
mod why;

use std::{ffi::OsString, panic, sync::Arc};

use clap::{ColorChoice, CommandFactory as _, FromArgMatches as _, Parser, builder::Styles};
use nix::sys::signal::Signal;

use self::config_file::ConfigFiles;
use self::prelude::*;
use crate::{
    base::{
        print::{self, Verbosity},
        process::guard_processes,
    },
    rehearsal,
};

/// Measures Ascend NPU kernels and writes verified per-kernel CSV databases.
#[derive(Debug, Parser)]
#[command(name = "npubench", version, max_term_width = 100)]
#[command(after_help = "Examples: profiles of all ranks, measured until the morning
  npubench ingest profiles/ --db a3
  npubench doctor --db a3
  npubench selftest --db a3
  npubench plan --db a3 --until 07:30
  npubench run --db a3 --until 07:30
  npubench report --db a3

A step of a model that no profile has
  npubench grid --db a3 --models Qwen3-32B --tp 4 --phase decode --batch 64
  npubench run --db a3 --until 07:30
  npubench comm run --db a3 --model Qwen3-32B --tp 4 --batch 64 --ranks 4
  npubench coverage --db a3 --model Qwen3-32B --tp 4 --batch 64

The evidence of a number
  npubench show --db a3
  npubench why MatMulV2.csv:2 --db a3

A rehearsal without an NPU: `ingest` or `grid` with `--kind rehearsal` makes the database, `--host rehearsal` measures in it
  npubench ingest profiles/ --db rehearse --kind rehearsal
  npubench run --db rehearse --host rehearsal
  npubench comm run --db rehearse-comm --ranks 4 --device ATLAS_800_A3_910_9372_DIE --host rehearsal")]
struct CommandLine {
    #[command(subcommand)]
    command: TopCommand,
    #[command(flatten)]
    screen: ScreenOptions,
}

#[derive(Clone, Copy, Debug, Args)]
struct ScreenOptions {
    /// Colours; `auto` uses them on a terminal, unless NO_COLOR is set
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        default_value = "auto",
        hide_possible_values = true,
        help_heading = "Screen",
        long_help = "Colours: `auto` (on a terminal, unless NO_COLOR is set), `always` or `never`"
    )]
    color: ColorChoice,
    /// Print only errors and warnings on standard error
    #[arg(short, long, global = true, help_heading = "Screen")]
    quiet: bool,
    /// Print a line for each case and collection of a run
    #[arg(short, long, global = true, conflicts_with = "quiet", help_heading = "Screen")]
    verbose: bool,
}

impl ScreenOptions {
    fn apply(self) {
        print::set_colors(self.color);
        print::set_verbosity(match self {
            Self { quiet: true, .. } => Verbosity::Quiet,
            Self { verbose: true, .. } => Verbosity::Verbose,
            _ => Verbosity::Normal,
        });
    }
}

/// Declares the commands with the functions that run them.
macro_rules! commands {
    ($($(#[$attribute:meta])* $name:ident($options:ty) => $run:expr,)+) => {
        #[derive(Debug, Subcommand)]
        enum TopCommand {
            $($(#[$attribute])* $name($options),)+
            Config(config_file::ConfigOptions),
            Completions(shell_files::CompletionsOptions),
            Man(shell_files::ManOptions),
            /// Ends the programs of a node when its standard input ends.
            #[command(hide = true)]
            Guard {
                /// Folder of the records of running programs.
                processes: PathBuf,
            },
            /// Acts as one of the vendor's programs on the rehearsal host.
            #[command(hide = true, disable_help_flag = true)]
            StandIn {
                /// The program's name and its arguments.
                #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
                arguments: Vec<OsString>,
            },
        }

        impl TopCommand {
            fn run(self, config: &ConfigFiles) -> Result<ExitStatus, CommandError> {
                match self {
                    $(Self::$name(options) => $run(&options),)+
                    Self::Config(options) => config_file::run(&options, config),
                    Self::Completions(options) => shell_files::completions(&options, &CommandLine::command()),
                    Self::Man(options) => shell_files::man(&options, CommandLine::command()),
                    Self::Guard { processes } => {
                        guard_processes(&processes);
                        Ok(ExitStatus::Done)
                    }
                    // The caller starts it.
                    Self::StandIn { .. } => Ok(ExitStatus::Done),
                }
            }
        }
    };
}

commands! {
    Doctor(doctor::DoctorOptions) => doctor::run,
    Ingest(ingest::IngestOptions) => ingest::run,
    Grid(Box<GridCommand>) => GridCommand::run,
    Check(check::CheckOptions) => check::run,
    Plan(plan::PlanOptions) => plan::run,
    Shard(Box<shard::ShardOptions>) => shard::run,
    #[command(subcommand)]
    Volcano(volcano::VolcanoCommand) => volcano::run,
    Run(Box<run::RunCommandOptions>) => run::run,
    Resume(resume::ResumeOptions) => resume::run,
    Status(status::StatusOptions) => status::run,
    Pause(pause::PauseOptions) => pause::pause,
    Unpause(pause::UnpauseOptions) => pause::unpause,
    Runs(runs::RunsOptions) => runs::run,
    Selftest(Box<selftest::SelftestOptions>) => selftest::run,
    Show(show::ShowOptions) => show::run,
    Why(why::WhyOptions) => why::run,
    Diff(diff::DiffOptions) => diff::run,
    Noise(noise::NoiseOptions) => noise::run,
    Report(run_report::ReportOptions) => run_report::run,
    Rules(rules::RulesOptions) => rules::run,
    Reparse(reparse::ReparseOptions) => reparse::run,
    Render(render::RenderOptions) => render::run,
    Query(query::QueryOptions) => query::run,
    Coverage(coverage::CoverageOptions) => coverage::run,
    M6(Box<m6::M6Options>) => m6::run,
    Timeline(timeline::TimelineOptions) => timeline::run,
    Modules(Box<modules::ModulesOptions>) => modules::run,
    Compare(Box<compare::CompareOptions>) => compare::run,
    #[command(subcommand)]
    Collect(collect::CollectCommand) => collect::CollectCommand::run,
    Fill(Box<fill::FillOptions>) => fill::run,
    Adapt(Box<adapt::AdaptCommandOptions>) => adapt::run,
    Models(models::ModelsOptions) => models::run,
    Kernels(kernels::KernelsOptions) => kernels::run,
    NewKernel(new_kernel::NewKernelOptions) => new_kernel::run,
    #[command(subcommand)]
    Comm(comm::CommCommand) => comm::CommCommand::run,
    #[command(subcommand)]
    Slurm(slurm::SlurmCommand) => slurm::SlurmCommand::run,
    #[command(subcommand)]
    Db(db::DbCommand) => db::DbCommand::run,
    FiaBackfill(fia_backfill::BackfillOptions) => fia_backfill::run,
}

/// Expands grids into cases without measurements, or audits their density
///
/// Candidates that violate a grid's constraints or the catalogue's shape rule, do not fit the memory, or exist in the
/// database are rejected; a sample of the rest over small and large shapes becomes rows.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_help = "Examples:
  npubench grid --db a3 --models Qwen3-32B --rows 500 --dry-run
  npubench grid --db a3 --models Qwen3-32B --tp 4 --phase decode --batch 64
  npubench grid --db a3 --mutate --rows 100")]
struct GridCommand {
    #[command(flatten)]
    options: grid::GridOptions,
    #[command(subcommand)]
    other: Option<GridOther>,
}

#[derive(Debug, Subcommand)]
enum GridOther {
    Audit(grid_audit::AuditOptions),
}

impl GridCommand {
    fn run(&self) -> Result<ExitStatus, CommandError> {
        match &self.other {
            Some(GridOther::Audit(options)) => grid_audit::run(options),
            None => grid::run(&self.options),
        }
    }
}

fn start_thread_pool() {
    // A failed global pool cannot be built a second time, so that a pool of its own shows whether threads can start.
    if rayon::ThreadPoolBuilder::new().build().is_err() {
        let _ = rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread().build_global();
    }
}

const fn needs_thread_pool(command: &TopCommand) -> bool {
    matches!(
        command,
        TopCommand::Ingest(_)
            | TopCommand::Collect(_)
            | TopCommand::Grid(_)
            | TopCommand::Kernels(_)
            | TopCommand::Reparse(_)
            | TopCommand::Coverage(_)
            | TopCommand::Fill(_)
            | TopCommand::Adapt(_)
    )
}

/// Reads the files with options. Commands that npubench starts itself have none. A wrong file does not matter for help, the
/// version, completions and manual pages: the hint of the error names help.
fn read_config(commands: &Command, arguments: &[OsString]) -> Result<ConfigFiles, CommandError> {
    let command = arguments.get(1).and_then(|word| commands.find_subcommand(word));
    if command.is_some_and(Command::is_hide_set) {
        return Ok(ConfigFiles::default());
    }
    ConfigFiles::read(commands).or_else(|failure| {
        let needs_no_options = match commands.clone().try_get_matches_from(arguments) {
            Ok(matches) => matches!(matches.subcommand_name(), Some("completions" | "man")),
            Err(error) => !error.use_stderr(),
        };
        if needs_no_options { Ok(ConfigFiles::default()) } else { Err(failure) }
    })
}

/// Returns true for a command that writes times or makes names of them.
const fn needs_clock(command: &TopCommand) -> bool {
    use TopCommand::{
        Compare, Completions, Config, Coverage, Guard, Kernels, M6, Man, Models, Modules, NewKernel, Query,
        Render, Report, Rules, Runs, Show, StandIn, Status, Timeline, Why,
    };
    !matches!(
        command,
        Compare(_)
            | Completions(_)
            | Config(_)
            | Coverage(_)
            | Guard { .. }
            | Kernels(_)
            | M6(_)
            | Man(_)
            | Models(_)
            | Modules(_)
            | NewKernel(_)
            | Query(_)
            | Render(_)
            | Report(_)
            | Rules(_)
            | Runs(_)
            | Show(_)
            | StandIn { .. }
            | Status(_)
            | Timeline(_)
            | Why(_)
    )
}

/// Runs the program; a panic in it is [`ExitStatus::Bug`], and its message is printed as every other.
pub fn main() -> u8 {
    panic::set_hook(Box::new(print::print_panic));
    let exit = panic::catch_unwind(run).unwrap_or(ExitStatus::Bug.code());
    if print::has_panicked() { ExitStatus::Bug.code() } else { exit }
}

fn run() -> u8 {
    let arguments: Vec<OsString> = env::args_os().collect();
    let commands = CommandLine::command();
    let config = match read_config(&commands, &arguments) {
        Ok(config) => config,
        Err(failure) => {
            print::print_error(&failure.message, &failure.hint);
            return failure.exit.code();
        }
    };
    let mut commands = config.apply(commands, &arguments);
    let parsed = commands.try_get_matches_from_mut(arguments.clone());
    let parsed = parsed.and_then(|matches| {
        CommandLine::from_arg_matches(&matches).map_err(|error| error.format(&mut commands))
    });
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) => {
            // Help and the version are printed to standard output, errors to standard error.
            if !error.use_stderr() {
                let _ = error.print();
                return ExitStatus::Done.code();
            }
            // Words of the user stand between clap's styles, so that it is made again without them.
            let plain = config.apply(CommandLine::command().styles(Styles::plain()), &arguments);
            let plain = plain.try_get_matches_from(arguments).err();
            let text = plain.map_or_else(|| error.to_string(), |plain| plain.render().ansi().to_string());
            print::print_usage_error(&text);
            config.places_of(&error).iter().for_each(|place| print_note(place));
            return ExitStatus::Usage.code();
        }
    };
    cli.screen.apply();
    // With a handler, a file that reaches the size limit (`ulimit -f`) makes the write fail with an error instead of
    // ending the program.
    let _ = signal_hook::flag::register(Signal::SIGXFSZ as i32, Arc::default());
    if needs_thread_pool(&cli.command) {
        start_thread_pool();
    }
    if let TopCommand::StandIn { arguments } = &cli.command {
        return rehearsal::stand_in(arguments);
    }
    let clock = if needs_clock(&cli.command) { Timestamp::now().check_clock() } else { Ok(()) };
    match clock.and_then(|()| cli.command.run(&config)) {
        Ok(ExitStatus::Done | ExitStatus::SomeNotOk) if print::is_output_incomplete() => {
            ExitStatus::BadInput.code()
        }
        Ok(exit) => exit.code(),
        Err(failure) => {
            print::print_error(&failure.message, &failure.hint);
            failure.exit.code()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program checks the definition only of the command that it is started with.
    #[test]
    fn options_of_all_commands_refer_to_existing_ones() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn models_have_both_spellings_in_all_commands() {
        for arguments in [
            "coverage --db a3 --models Qwen3-32B --tp 4",
            "fill --db a3 --models Qwen3-32B --tp 4",
            "m6 a_ascend_pt --db a3 --models Qwen3-32B --tp 4",
            "comm run --db a3 --models Qwen3-32B --tp 4 --ranks 4",
            "adapt Add --db a3 --model Qwen3-32B",
            "grid --db a3 --model Qwen3-32B --tp 4",
            "grid --db a3 --fill-audit --model Qwen3-32B --tp 4",
            "grid audit --models Qwen3-32B",
            "grid audit --db a3 --model Qwen3-32B",
        ] {
            let words = format!("npubench {arguments}");
            if let Err(error) = CommandLine::try_parse_from(words.split(' ')) {
                panic!("`{words}`: {error}");
            }
        }
    }

    /// Returns the examples of a command and of those below it, with the names of the commands in front.
    fn examples(command: &Command, name: &str, found: &mut Vec<(String, Vec<String>)>) {
        let visible = command.get_subcommands().filter(|inner| !inner.is_hide_set());
        for inner in visible.filter(|inner| inner.get_name() != "help") {
            examples(inner, &format!("{name} {}", inner.get_name()), found);
        }
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let lines = help.lines().filter_map(|line| line.strip_prefix("  "));
        found.push((name.to_owned(), lines.map(str::to_owned).collect()));
    }

    /// Help that does not work is worse than none.
    #[test]
    fn every_command_has_examples_that_its_options_accept() {
        let mut found = Vec::new();
        examples(&CommandLine::command(), "npubench", &mut found);
        assert!(found.len() > 40, "{found:?}");
        for (name, lines) in found {
            assert!(lines.iter().any(|line| line.contains(&name)), "`{name}` has no example");
            for line in lines {
                let command = line.split(['>', '|', '#']).next().unwrap_or_default();
                let Some(start) = command.find("npubench") else { panic!("`{line}` does not call npubench") };
                let words = command[start..].split_whitespace().map(|word| word.trim_matches('"'));
                if let Err(error) = CommandLine::try_parse_from(words) {
                    panic!("`{line}`: {error}");
                }
            }
        }
    }
}
