//! Options of `npubench grid --fill-audit`: rows that an audit of workloads and steps of models misses.

use std::path::{Path, PathBuf};

use clap::Args;

use super::grid_steps::GridStepOptions;
use crate::{
    answer::{audit_fill::missing_cases, workload::parse_weighted_path},
    base::{assets::AssetFiles, command_error::CommandError},
    cases::grid::ListedCases,
    kernel::{KernelName, catalogue::Catalogue},
};

/// Heading of the options in the help.
const HEADING: &str = "Rows that an audit misses";

/// Workloads that are audited.
#[derive(Debug, Args)]
pub(super) struct FillAuditOptions {
    /// Instead of grids: the rows that `npubench grid audit` misses for workloads and for the steps of `--models`
    #[arg(long, help_heading = HEADING, conflicts_with_all = ["grids", "plot", "mutate"])]
    fill_audit: bool,
    /// Workloads whose questions are audited
    #[arg(long = "workload", help_heading = HEADING, value_name = "FILE[=WEIGHT]", num_args = 1..,
          requires = "fill_audit", value_parser = parse_weighted_path)]
    workloads: Vec<(PathBuf, f64)>,
}

impl FillAuditOptions {
    pub(super) const fn is_requested(&self) -> bool {
        self.fill_audit
    }

    /// Returns the cases that rows do not answer as the density standard requires, of the wanted kernels or of all.
    pub(super) fn missing_cases(
        &self,
        (assets, catalogue): (&AssetFiles, &Catalogue),
        folder: &Path,
        (models, steps): (&[String], &GridStepOptions),
        wanted: &[KernelName],
    ) -> Result<ListedCases, CommandError> {
        missing_cases(folder, &self.workloads, models, &steps.selection(), wanted, assets, catalogue)
    }
}
