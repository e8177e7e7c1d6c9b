//! `npubench kernels`: what can be replayed.

use clap::Args;

use super::options::{AssetOptions, OutputFormat};
use crate::{
    catalogue::Catalogue,
    exit::ExitStatus,
    report::{kernels_table, print_data},
    session::CommandError,
};

/// Lists the kernels that can be replayed
///
/// For each: the function that launches it, what it needs besides torch_npu, what judges its calls without a
/// device, and whether the rehearsal host plays it.
#[derive(Debug, Args)]
pub(super) struct KernelsOptions {
    /// How the list is printed
    #[arg(long, value_enum, default_value = "plain")]
    format: OutputFormat,
    #[command(flatten)]
    assets: AssetOptions,
}

pub(super) fn run(options: &KernelsOptions) -> Result<ExitStatus, CommandError> {
    let catalogue = Catalogue::load(&options.assets.load()?)?;
    match options.format {
        OutputFormat::Plain => print_data(&kernels_table(&catalogue)),
        OutputFormat::Json => {
            for entry in catalogue.entries() {
                let object = serde_json::json!({
                    "kernel": entry.kernel.as_str(), "also_named": entry.also_named, "api": entry.api,
                    "summary": entry.summary, "needs": entry.needs.words(), "judged_by": entry.judged_by.as_str(),
                    "rehearsed": entry.can_be_launched(),
                    "forms": entry.forms.iter().map(|form| form.rule.source()).collect::<Vec<_>>(),
                });
                print_data(&format!("{object}\n"));
            }
        }
    }
    Ok(ExitStatus::Done)
}
