//! Rows of grids: the candidates that some kernels' patterns declare.

use crate::{
    catalogue::Catalogue,
    database::{Database, DatabaseError, KernelCsv},
    domain::KernelName,
    grid::{
        ExistingCases, GridRows, GrownTable, SelectedCandidates, SelectionRequest, definition::GridFiles,
        in_parallel, select_candidates, tenants,
    },
};

/// What is to be grown.
#[derive(Clone, Copy, Debug)]
pub struct GridWriter<'a> {
    /// The patterns.
    pub grids: &'a GridFiles,
    /// How kernels are called.
    pub catalogue: &'a Catalogue,
    /// The kernels that get rows.
    pub kernels: &'a [KernelName],
    /// Bytes of device memory.
    pub budget: u64,
    /// Rows of each kernel, those of earlier growths included; all where `None`.
    pub rows: Option<usize>,
    /// Decides the sample.
    pub seed: u64,
}

/// A kernel and its candidates.
type KernelCandidates<'a> = (&'a KernelName, SelectedCandidates<'a>);

impl<'a> GridWriter<'a> {
    /// Grows all kernels in memory, on all cores; without a database candidates are held against nothing.
    ///
    /// # Errors
    /// [`DatabaseError`] where a table cannot be read.
    pub fn grow(
        &self,
        database: Option<&Database>,
    ) -> Result<Vec<GrownTable<KernelCandidates<'a>>>, DatabaseError> {
        let kernels = self.kernels;
        let done = in_parallel(kernels.len(), |index| {
            let table = database.map(|database| database.kernel_csv(&kernels[index])).transpose()?;
            self.grow_kernel(&kernels[index], table)
        });
        done.into_iter().collect()
    }

    fn grow_kernel(
        &self,
        kernel: &'a KernelName,
        table: Option<KernelCsv>,
    ) -> Result<GrownTable<KernelCandidates<'a>>, DatabaseError> {
        let tenants = table.as_ref().map(|table| tenants(kernel, table)).transpose()?.unwrap_or_default();
        let mut known = ExistingCases::with_rows(tenants.grown);
        for case in &tenants.cases {
            known.insert(case);
        }
        let order = SelectionRequest {
            entry: self.catalogue.entry(kernel),
            budget: self.budget,
            rows: self.rows,
            seed: self.seed,
        };
        let grown = select_candidates(self.grids.spaces_of_kernel(kernel).collect(), &order, &known);
        let Some(mut table) = table.filter(|_| grown.rows() > 0) else {
            return Ok(GrownTable { outcome: (kernel, grown), table: None });
        };
        let mut rows = GridRows::new(kernel, &mut table);
        grown.for_each(|space, numbers, draft| {
            // A candidate whose attributes have no value was refused.
            let attributes = draft.cells(numbers).unwrap_or_default();
            rows.append(draft.filled(), &attributes, &space.provenance(self.seed));
            Ok::<(), DatabaseError>(())
        })?;
        Ok(GrownTable { outcome: (kernel, grown), table: Some(table) })
    }
}
