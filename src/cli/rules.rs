//! `npubench rules`: lists the rules of the verdicts.

use super::prelude::*;
use crate::{measure::verify::verification_rules, show::rules::rules_table};

/// Lists the rules by which measurements get their verdicts, with their limits
///
/// A measurement that fulfils all of them is `ok`; the first broken one gives the verdict and the reason.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  npubench rules")]
pub(super) struct RulesOptions {
    #[command(flatten)]
    output: TableOptions,
}

pub(super) fn run(options: &RulesOptions) -> Result<ExitStatus, CommandError> {
    let rules = verification_rules();
    options.output.emit(&rules, |width| rules_table(&rules, width));
    Ok(ExitStatus::Done)
}
