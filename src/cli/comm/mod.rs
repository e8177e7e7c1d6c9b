//! `npubench comm`: collectives.

mod groups;
mod run;

use clap::Subcommand;

use crate::{exit::ExitStatus, session::CommandError};

/// Collectives: the groups of devices for them
#[derive(Debug, Subcommand)]
pub(super) enum CommCommand {
    Groups(groups::GroupsOptions),
    Run(Box<run::CommRunOptions>),
}

impl CommCommand {
    pub(super) fn run(&self) -> Result<ExitStatus, CommandError> {
        match self {
            Self::Groups(options) => groups::run(options),
            Self::Run(options) => run::run(options),
        }
    }
}
