//! Audits of databases and of grids: all rows, or all candidates, added to the audit of their kernel.

use rayon::prelude::*;

use super::{KernelAudit, kernel_audit::KernelAxes};
use crate::{
    catalogue::Catalogue,
    database::{Database, DatabaseError, for_each_measured_case},
    domain::KernelName,
    grid::{
        CandidateSource, ExistingCases, SelectionRequest,
        definition::{AuditedAxis, DensityFile, GridFiles},
        select_rows,
    },
};

/// Auditor of kernels against a density standard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GridAuditor<'a> {
    /// Catalogue entries, whose shape rules read the axes.
    pub(crate) catalogue: &'a Catalogue,
    pub(crate) density: &'a DensityFile,
}

impl<'a> GridAuditor<'a> {
    pub(crate) fn covers(&self, kernel: &KernelName) -> bool {
        !self.axes(kernel).is_empty()
    }

    /// Audits the rows of some kernels, on all cores; kernels without a catalogue entry are skipped. Rows under other
    /// names of a kernel count, and those of kernels with the same call: a row of a grid is measured under the kernel that
    /// CANN chooses for it.
    pub(crate) fn audit_database(
        &self,
        kernels: &[KernelName],
        database: &Database,
    ) -> Result<Vec<KernelAudit<'a>>, DatabaseError> {
        let audits = kernels.par_iter().map(|kernel| {
            let Some(mut axes) = self.kernel_axes(kernel) else { return Ok(None) };
            for name in self.catalogue.names_with_same_call(kernel) {
                let table = database.kernel_csv(&name)?;
                if !table.is_empty() {
                    let unread =
                        for_each_measured_case(&name, &table, |case, measured| axes.add(case, measured))?;
                    axes.unread += unread;
                }
            }
            Ok(Some(axes.audit(kernel)))
        });
        audits.collect::<Vec<_>>().into_iter().filter_map(Result::transpose).collect()
    }

    /// Audits all valid candidates of some kernels' grids as measured cases, on all cores.
    pub(crate) fn audit_grids(
        &self,
        kernels: &[KernelName],
        grids: &GridFiles,
        budget: u64,
    ) -> Vec<KernelAudit<'a>> {
        let audits = kernels.par_iter().filter_map(|kernel| {
            let mut axes = self.kernel_axes(kernel)?;
            let request =
                SelectionRequest { entry: self.catalogue.entry(kernel), budget, rows: None, seed: 0 };
            let candidates = CandidateSource::Grid(grids.spaces_of_kernel(kernel).collect());
            let selected = select_rows(kernel, candidates, &request, &ExistingCases::default());
            selected.for_each(|row| axes.add(row.case, true));
            Some(axes.audit(kernel))
        });
        audits.collect()
    }

    fn axes(&self, kernel: &KernelName) -> &'a [AuditedAxis] {
        self.catalogue.entry(kernel).map_or(&[], |entry| self.density.axes(kernel, entry))
    }

    fn kernel_axes(&self, kernel: &KernelName) -> Option<KernelAxes<'a>> {
        Some(KernelAxes::new(self.catalogue.entry(kernel)?, self.axes(kernel)))
    }
}
