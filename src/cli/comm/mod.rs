//! `npubench comm`: collectives.

mod fit;
mod groups;
mod import;
mod message_options;
mod node_options;
mod run;
mod validate;

use super::prelude::*;
use crate::kernel::collective::CommNetwork;

/// Collectives: sweeps, groups of devices, fits, comparison with a model, results of other benchmarks
#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  npubench comm run --db comm --ranks 2,4,8 --from 1K --to 512M
  npubench comm fit --db comm")]
pub(super) enum CommCommand {
    Run(Box<run::CommRunOptions>),
    Groups(groups::GroupsOptions),
    Fit(fit::FitOptions),
    Validate(validate::ValidateOptions),
    Import(Box<import::ImportOptions>),
}

impl CommCommand {
    pub(super) fn run(&self) -> Result<ExitStatus, CommandError> {
        match self {
            Self::Run(options) => run::run(options),
            Self::Groups(options) => groups::run(options),
            Self::Fit(options) => fit::run(options),
            Self::Validate(options) => validate::run(options),
            Self::Import(options) => import::run(options),
        }
    }
}

pub(super) fn network_of_profile(assets: &AssetFiles, name: &str) -> Result<CommNetwork, CommandError> {
    DeviceProfile::load(assets, name)?.comm.ok_or_else(|| {
        CommandError::bad_input(
            format!("the device profile `{name}` declares no network"),
            "add its key `comm` in a profile of your own (`--assets`); docs/device-profiles.md describes it",
        )
    })
}
