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

subcommands! {
    /// Collectives: sweeps, groups of devices, fits, comparison with a model, results of other benchmarks
    #[derive(Debug, Subcommand)]
    #[command(after_help = "Examples:
  npubench comm run --db comm --ranks 2,4,8 --from 1K --to 512M
  npubench comm fit --db comm")]
    pub(super) enum CommCommand {
        Run(Box<run::CommRunOptions>) => run::run,
        Groups(groups::GroupsOptions) => groups::run,
        Fit(fit::FitOptions) => fit::run,
        Validate(validate::ValidateOptions) => validate::run,
        Import(Box<import::ImportOptions>) => import::run,
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
