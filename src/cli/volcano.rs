//! `npubench volcano`: a job manifest for the shards of a plan.

use super::prelude::*;
use crate::measure::fleet::{VOLCANO_VALUES, volcano_manifest};

/// Renders a job of Kubernetes' scheduler Volcano for the shards of a plan
///
/// `npubench shard` divides the plan first. Each pod measures one shard; a pod that is lost starts again and continues.
#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  npubench volcano render --db a3 --values values.yaml")]
pub(super) enum VolcanoCommand {
    /// Prints the manifest of a job, one pod for each shard
    #[command(after_help = "Examples:
  npubench volcano values > values.yaml
  npubench volcano render --db a3 --values values.yaml | kubectl apply -f -")]
    Render(RenderOptions),
    /// Prints the values of a site, with their defaults and explanations
    #[command(after_help = "Examples:
  npubench volcano values > values.yaml")]
    Values {
        #[command(flatten)]
        assets: AssetOptions,
    },
}

#[derive(Debug, Args)]
pub(super) struct RenderOptions {
    #[command(flatten)]
    database: DatabaseFolder,
    /// File with the values of the site
    #[arg(long, value_name = "FILE")]
    values: PathBuf,
    #[command(flatten)]
    assets: AssetOptions,
}

pub(super) fn run(command: &VolcanoCommand) -> Result<ExitStatus, CommandError> {
    let text = match command {
        VolcanoCommand::Render(options) => {
            let assets = options.assets.load()?;
            volcano_manifest(&Database::open(&options.database.db)?, &assets, &options.values)?
        }
        VolcanoCommand::Values { assets } => assets.load()?.template(VOLCANO_VALUES)?,
    };
    print_data(&text);
    Ok(ExitStatus::Done)
}
