//! Density of the values that cases of a kernel have along its axes, compared with the density standard: over all cases
//! and, for an axis by which a lookup interpolates, for each combination of the numbers that the lookup keeps fixed.
//! Combinations of several audited axes are not checked.

mod gaps;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    fmt,
};

pub(crate) use gaps::{AxisGap, AxisShortfall};
use rayon::prelude::*;

use super::{
    CandidateSource, ExistingCases, SelectionRequest,
    definition::{AuditedAxis, AxisPoint, DensityFile, DensityStandard, GridFiles},
    select_rows,
};
use crate::{
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

#[derive(Clone, Copy, Debug)]
pub(crate) struct GridAuditor<'a> {
    pub(crate) catalogue: &'a Catalogue,
    pub(crate) density: &'a DensityFile,
}

impl<'a> GridAuditor<'a> {
    /// Audits the rows of some kernels, on all cores; kernels without a catalogue entry are skipped. Rows under other
    /// names of a kernel count, and those of kernels with the same call: a row of a grid is measured under the kernel that
    /// CANN chooses for it.
    pub(crate) fn audit_database(
        &self,
        kernels: &[KernelName],
        database: &Database,
    ) -> Result<Vec<KernelAudit<'a>>, DatabaseError> {
        let audits = kernels.par_iter().map(|kernel| {
            self.audit(kernel, |add| {
                let mut unread = 0;
                for name in self.catalogue.names_with_same_call(kernel) {
                    let table = database.kernel_csv(&name)?;
                    if !table.is_empty() {
                        unread += for_each_measured_case(&name, &table, &mut *add)?;
                    }
                }
                Ok(unread)
            })
        });
        audits.collect::<Vec<_>>().into_iter().filter_map(Result::transpose).collect()
    }

    pub(crate) fn audit_grids(
        &self,
        kernels: &[KernelName],
        grids: &GridFiles,
        budget: u64,
    ) -> Vec<KernelAudit<'a>> {
        let audits = kernels.par_iter().filter_map(|kernel| {
            let entry = self.catalogue.entry(kernel);
            let request = SelectionRequest { entry, budget, rows: None, seed: 0, filter: None };
            let candidates = CandidateSource::Grid(grids.spaces_of_kernel(kernel).collect());
            let Ok(audit) = self.audit(kernel, |add| {
                let selected = select_rows(kernel, candidates, &request, &ExistingCases::default());
                selected.for_each(|row| add(row.case, true));
                Ok::<_, Infallible>(0)
            });
            audit
        });
        audits.collect()
    }

    /// Returns the first audited axis along which a case lies between two of the `used` cases that are further apart
    /// than the standard allows; `None` for kernels that the standard does not cover.
    pub(crate) fn sparse_axis(&self, case: &Case, used: &[Case]) -> Option<SparseAxis> {
        let entry = self.catalogue.entry(&case.kernel)?;
        let axes = self.axes(&case.kernel);
        let points_of = |case: &Case| entry.axis_points(case, axes).ok();
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

    pub(crate) fn axes(&self, kernel: &KernelName) -> &'a [AuditedAxis] {
        self.catalogue.entry(kernel).map_or(&[], |entry| self.density.axes(kernel, entry))
    }

    /// Audits the cases of `visit_cases`, each with true if measured, which returns the number of rows that are no case.
    fn audit<E>(
        &self,
        kernel: &KernelName,
        visit_cases: impl FnOnce(&mut dyn FnMut(&Case, bool)) -> Result<usize, E>,
    ) -> Result<Option<KernelAudit<'a>>, E> {
        let Some(entry) = self.catalogue.entry(kernel) else { return Ok(None) };
        let axes = self.axes(kernel);
        let mut observed: Vec<(AxisValues, BTreeMap<Vec<i64>, AxisValues>)> = Vec::new();
        observed.resize_with(axes.len(), Default::default);
        let mut audit =
            KernelAudit { kernel: kernel.clone(), measured: 0, planned: 0, unread: 0, axes: Vec::new() };
        let unread = visit_cases(&mut |case, is_measured| {
            let Ok(points) = entry.axis_points(case, axes) else {
                audit.unread += 1;
                return;
            };
            *if is_measured { &mut audit.measured } else { &mut audit.planned } += 1;
            for ((values, groups), point) in observed.iter_mut().zip(points) {
                let Some(AxisPoint { value, group }) = point else { continue };
                values.add(value, is_measured);
                if !group.is_empty() {
                    groups.entry(group).or_default().add(value, is_measured);
                }
            }
        })?;
        audit.unread += unread;
        let observed = axes.iter().zip(observed);
        audit.axes = observed.map(|(axis, (values, groups))| AxisAudit::new(axis, &values, groups)).collect();
        Ok(Some(audit))
    }
}

#[derive(Debug)]
pub struct KernelAudit<'a> {
    pub(crate) kernel: KernelName,
    pub(crate) measured: usize,
    pub(crate) planned: usize,
    pub(crate) unread: usize,
    pub(crate) axes: Vec<AxisAudit<'a>>,
}

#[derive(Debug, Default)]
struct AxisValues {
    measured: BTreeSet<i64>,
    planned: BTreeSet<i64>,
}

#[derive(Debug)]
pub(crate) struct AxisAudit<'a> {
    pub(crate) axis: &'a AuditedAxis,
    pub(crate) range: Option<(i64, i64)>,
    pub(crate) values: usize,
    pub(crate) planned: Vec<i64>,
    pub(crate) shortfall: AxisShortfall,
    /// Missing points that are not planned, ascending.
    pub(crate) proposed: Vec<i64>,
    /// Result for each group of fixed numbers, the one with most missing points first; empty for an axis without groups.
    pub(crate) groups: Vec<AxisGroup>,
}

/// Values of an axis for one combination of fixed numbers.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, schemars::JsonSchema)]
pub(crate) struct AxisGroup {
    pub(crate) key: Vec<i64>,
    /// Missing points that are not planned, ascending.
    pub(crate) proposed: Vec<i64>,
    pub(crate) values: usize,
    #[serde(skip)]
    pub(crate) is_complete: bool,
}

impl AxisValues {
    fn add(&mut self, value: i64, is_measured: bool) {
        let values = if is_measured { &mut self.measured } else { &mut self.planned };
        values.insert(value);
    }

    fn proposed(&self, standard: &DensityStandard) -> Vec<i64> {
        AxisShortfall::from_values(standard, &self.measured.union(&self.planned).copied().collect()).points
    }
}

impl<'a> AxisAudit<'a> {
    fn new(axis: &'a AuditedAxis, values: &AxisValues, groups: BTreeMap<Vec<i64>, AxisValues>) -> Self {
        let (standard, AxisValues { measured, planned }) = (&axis.standard, values);
        let groups = groups.into_iter().map(|(key, values)| AxisGroup {
            key,
            proposed: values.proposed(standard),
            values: values.measured.len(),
            is_complete: AxisShortfall::from_values(standard, &values.measured).is_empty(),
        });
        let mut groups: Vec<AxisGroup> = groups.collect();
        groups.sort_by_key(|group| Reverse(group.proposed.len()));
        Self {
            axis,
            range: measured.first().copied().zip(measured.last().copied()),
            values: measured.len(),
            planned: planned.difference(measured).copied().collect(),
            shortfall: AxisShortfall::from_values(standard, measured),
            proposed: values.proposed(standard),
            groups,
        }
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.shortfall.is_empty() && self.groups.iter().all(|group| group.is_complete)
    }
}
