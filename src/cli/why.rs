//! `npubench why`: explains one number.

use super::prelude::*;
use crate::{
    measure::evidence::{EvidenceSources, find_case},
    show::why::why_page,
};

/// Explains one number on a page: its samples, collections, devices, clock, references and raw records
///
/// Also explains where a case without a measurement stands. The last line is the command that measures it again.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  npubench why SwiGlu.csv:2 --db a3")]
pub(super) struct WhyOptions {
    /// Id of a case as in `MicroBench Case`, its first digits, or a row such as `SwiGlu.csv:2`
    #[arg(value_name = "CASE")]
    case: String,
    #[command(flatten)]
    database: DatabaseFolder,
    #[command(flatten)]
    cache: CacheOption,
    #[command(flatten)]
    common: CommonOptions<TableOptions>,
}

pub(super) fn run(options: &WhyOptions) -> Result<ExitStatus, CommandError> {
    let database = Database::open(&options.database.db)?;
    let (assets, catalogue) = options.common.assets.load_catalogue()?;
    let device = DeviceProfile::load(&assets, database.device())?;
    let ledger = database.existing_ledger()?;
    let known = find_case(&database, ledger.as_ref(), &options.case)?;
    let sources = EvidenceSources {
        database: &database,
        ledger: ledger.as_ref(),
        catalogue: &catalogue,
        device: &device,
    };
    let evidence = sources.collect(&known, options.cache.state)?;
    emit_paged(options.common.output.format, [&evidence], || {
        why_page(&evidence, options.common.output.wide.width())
    });
    Ok(ExitStatus::Done)
}
