//! `npubench rules`: lists the rules of the verdicts.

use clap::Args;

use super::options::{OutputFormat, OutputOptions, WideOption};
use crate::{
    base::{command_error::CommandError, exit::ExitStatus, print::print_data},
    measure::verify::verification_rules,
    show::summary_tables::rules_table,
};

/// Lists the rules by which measurements get their verdicts, with their limits
///
/// A measurement that fulfils all of them is `ok`; the first broken one gives the verdict and the reason.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  npubench rules")]
pub(super) struct RulesOptions {
    #[command(flatten)]
    output: OutputOptions,
    #[command(flatten)]
    wide: WideOption,
}

#[expect(clippy::unnecessary_wraps, reason = "the signature of all commands")]
pub(super) fn run(options: &RulesOptions) -> Result<ExitStatus, CommandError> {
    let rules = verification_rules();
    print_data(&match options.output.format {
        OutputFormat::Json => {
            rules.iter().map(|rule| serde_json::to_string(rule).unwrap_or_default() + "\n").collect()
        }
        OutputFormat::Plain => rules_table(&rules, options.wide.width()),
    });
    Ok(ExitStatus::Done)
}
