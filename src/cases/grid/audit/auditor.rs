//! Audits of databases and of grids: all rows, or all candidates, added to the audit of their kernel.

use std::{collections::BTreeSet, fmt};

use rayon::prelude::*;

use super::{AxisGap, KernelAudit, kernel_audit::KernelAxes};
use crate::{
    cases::grid::{
        CandidateSource, ExistingCases, SelectionRequest,
        definition::{AuditedAxis, DensityFile, GridFiles},
        select_rows,
    },
    database::{Database, DatabaseError, for_each_measured_case},
    kernel::{Case, KernelName, catalogue::Catalogue},
};

/// Axis along which the neighbours of a value are further apart than the standard allows.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SparseAxis {
    pub(crate) axis: String,
    pub(crate) gap: AxisGap,
}

impl fmt::Display for SparseAxis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AxisGap { from, to, allowed } = &self.gap;
        write!(f, "{} {from} to {to} ({allowed})", self.axis)
    }
}

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
            let request = SelectionRequest {
                entry: self.catalogue.entry(kernel),
                budget,
                rows: None,
                seed: 0,
                filter: None,
            };
            let candidates = CandidateSource::Grid(grids.spaces_of_kernel(kernel).collect());
            let selected = select_rows(kernel, candidates, &request, &ExistingCases::default());
            selected.for_each(|row| axes.add(row.case, true));
            Some(axes.audit(kernel))
        });
        audits.collect()
    }

    /// Returns the first audited axis along which a case lies between two of the `used` cases that are further apart
    /// than the standard allows; `None` for kernels that the standard does not cover.
    pub(crate) fn sparse_axis(&self, case: &Case, used: &[Case]) -> Option<SparseAxis> {
        let entry = self.catalogue.entry(&case.kernel)?;
        let axes = self.axes(&case.kernel);
        let points_of = |case: &Case| entry.axis_points(case, axes.iter()).ok();
        let wanted = points_of(case)?;
        // Rows of other names of the call have the same arguments.
        let used =
            used.iter().filter_map(|row| points_of(&Case { kernel: case.kernel.clone(), ..row.clone() }));
        let used: Vec<_> = used.collect();
        axes.iter().zip(wanted).enumerate().find_map(|(index, (axis, point))| {
            let value = point?.value;
            let values: BTreeSet<i64> =
                used.iter().filter_map(|points| Some(points.get(index)?.as_ref()?.value)).collect();
            let (from, to) = (*values.range(..=value).next_back()?, *values.range(value..).next()?);
            let allowed = axis.standard.forbids(from, to)?;
            Some(SparseAxis { axis: axis.name.clone(), gap: AxisGap { from, to, allowed } })
        })
    }

    fn axes(&self, kernel: &KernelName) -> &'a [AuditedAxis] {
        self.catalogue.entry(kernel).map_or(&[], |entry| self.density.axes(kernel, entry))
    }

    fn kernel_axes(&self, kernel: &KernelName) -> Option<KernelAxes<'a>> {
        Some(KernelAxes::new(self.catalogue.entry(kernel)?, self.axes(kernel)))
    }
}
