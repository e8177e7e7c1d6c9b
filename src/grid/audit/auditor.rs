//! Audits: the points of all rows, or of all candidates of grids, held against the density standard.

use std::convert::Infallible;

use crate::{
    catalogue::Catalogue,
    database::{Database, DatabaseError, for_each_measured_case},
    domain::KernelName,
    grid::{
        ExistingCases, KernelAudit, SelectionRequest,
        definition::{AuditedAxis, DensityFile, GridFiles},
        in_parallel, select_candidates,
    },
};

/// What rows are held against.
#[derive(Clone, Copy, Debug)]
pub struct GridAuditor<'a> {
    /// How kernels are called.
    pub catalogue: &'a Catalogue,
    /// How dense their axes must be.
    pub density: &'a DensityFile,
}

/// A kernel and its audit.
type AuditedKernel<'a> = (KernelName, KernelAudit<'a>);

impl<'a> GridAuditor<'a> {
    /// Whether the standard speaks of a kernel.
    #[must_use]
    pub fn judges(&self, kernel: &KernelName) -> bool {
        !self.axes(kernel).is_empty()
    }

    /// Audits the rows of some kernels, on all cores; those that have no entry are left out.
    ///
    /// # Errors
    /// [`DatabaseError`] where a table cannot be read.
    pub fn database(
        &self,
        kernels: &[KernelName],
        database: &Database,
    ) -> Result<Vec<AuditedKernel<'a>>, DatabaseError> {
        let audits = in_parallel(kernels.len(), |index| {
            let kernel = &kernels[index];
            let Some(mut audit) = self.audit(kernel) else { return Ok::<_, DatabaseError>(None) };
            let table = database.kernel_csv(kernel)?;
            if !table.is_empty() {
                let unread =
                    for_each_measured_case(kernel, &table, |case, is_measured| audit.add(case, is_measured))?;
                audit.unread += unread;
            }
            Ok(Some((kernel.clone(), audit)))
        });
        audits.into_iter().filter_map(Result::transpose).collect()
    }

    /// Audits all valid candidates of some kernels' grids as if they were measured, on all cores.
    #[must_use]
    pub fn grids(&self, kernels: &[KernelName], grids: &GridFiles, budget: u64) -> Vec<AuditedKernel<'a>> {
        let audits = in_parallel(kernels.len(), |index| {
            let kernel = &kernels[index];
            let mut audit = self.audit(kernel)?;
            let order = SelectionRequest { entry: self.catalogue.entry(kernel), budget, rows: None, seed: 0 };
            let grown = select_candidates(
                grids.spaces_of_kernel(kernel).collect(),
                &order,
                &ExistingCases::default(),
            );
            let Ok(()) = grown.for_each(|_, _, draft| {
                audit.add(draft.filled(), true);
                Ok::<(), Infallible>(())
            });
            Some((kernel.clone(), audit))
        });
        audits.into_iter().flatten().collect()
    }

    fn axes(&self, kernel: &KernelName) -> &'a [AuditedAxis] {
        self.catalogue.entry(kernel).map_or(&[], |entry| self.density.axes(kernel, entry))
    }

    fn audit(&self, kernel: &KernelName) -> Option<KernelAudit<'a>> {
        Some(KernelAudit::new(self.catalogue.entry(kernel)?, self.axes(kernel)))
    }
}
