//! `npubench kernels`: lists the kernels that can be replayed.

use clap::Args;

use super::options::{AssetOptions, OutputFormat, OutputOptions};
use crate::{
    catalogue::Catalogue,
    exit::ExitStatus,
    report::{kernels_table, print_data},
    session::CommandError,
};

/// Lists the kernels that can be replayed
///
/// For each kernel: the function that launches it, its requirements besides torch_npu, the method that checks its calls
/// without a device, and support by the rehearsal host.
#[derive(Debug, Args)]
pub(super) struct KernelsOptions {
    #[command(flatten)]
    output: OutputOptions,
    #[command(flatten)]
    assets: AssetOptions,
}

pub(super) fn run(options: &KernelsOptions) -> Result<ExitStatus, CommandError> {
    let catalogue = Catalogue::load(&options.assets.load()?)?;
    match options.output.format {
        OutputFormat::Plain => print_data(&kernels_table(&catalogue)),
        OutputFormat::Json => {
            for entry in catalogue.entries() {
                let object = serde_json::json!({
                    "kernel": entry.kernel.as_str(), "also_named": entry.also_named, "api": entry.main_operator().api,
                    "summary": entry.summary, "needs": entry.needs.words(), "check_method": entry.check_method.as_str(),
                    "launchable": entry.can_be_launched(),
                    "forms": entry.forms.iter().map(|form| &form.rule.source).collect::<Vec<_>>(),
                });
                print_data(&format!("{object}\n"));
            }
        }
    }
    Ok(ExitStatus::Done)
}
