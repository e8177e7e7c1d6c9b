//! The fault plan of the rehearsal host, from the file that a command names.

use std::path::Path;

use crate::{
    base::{assets::AssetFiles, command_error::CommandError},
    kernel::{CollectiveKind, DataKind, catalogue::Catalogue},
    rehearsal::{
        DEVICES,
        fault_plan::{FaultPlan, ValidNames},
    },
};

/// Loads the fault plan of the rehearsal host; without a file the plan is empty.
pub(crate) fn load_fault_plan(
    file: Option<&Path>,
    kind: DataKind,
    assets: &AssetFiles,
) -> Result<FaultPlan, CommandError> {
    let Some(file) = file else { return Ok(FaultPlan::default()) };
    if kind == DataKind::Npu {
        return Err(CommandError::usage(
            format!("`{}` is a fault plan, which only the rehearsal host supports", file.display()),
            "add `--host rehearsal`, or remove `--rehearsal-faults`",
        ));
    }
    let catalogue = Catalogue::load(assets)?;
    let collectives = CollectiveKind::ALL.iter().map(|kind| kind.kernel_name());
    let kernels: Vec<&str> = catalogue.kernel_names().chain(collectives).collect();
    Ok(FaultPlan::load(file, &ValidNames { kernels: &kernels, devices: DEVICES })?)
}
