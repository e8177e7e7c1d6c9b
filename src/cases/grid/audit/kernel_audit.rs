//! Values of the audited axes over the cases of one kernel, and their comparison with the density standard.

use std::collections::{BTreeMap, BTreeSet};

use super::AxisShortfall;
use crate::{
    cases::grid::definition::{AuditedAxis, AxisPoint},
    kernel::{Case, KernelName, catalogue::CatalogueEntry},
};

/// Values of the audited axes over the cases of one kernel.
#[derive(Debug)]
pub(super) struct KernelAxes<'a> {
    entry: &'a CatalogueEntry,
    axes: Vec<ObservedAxis<'a>>,
    measured: usize,
    planned: usize,
    pub(super) unread: usize,
}

#[derive(Debug)]
pub struct KernelAudit<'a> {
    pub(crate) kernel: KernelName,
    pub(crate) measured: usize,
    pub(crate) planned: usize,
    /// Number of cases that the catalogue's shape rule cannot read.
    pub(crate) unread: usize,
    pub(crate) axes: Vec<AxisAudit<'a>>,
}

#[derive(Debug)]
struct ObservedAxis<'a> {
    axis: &'a AuditedAxis,
    values: AxisValues,
    groups: BTreeMap<Vec<i64>, AxisValues>,
}

#[derive(Debug, Default)]
struct AxisValues {
    measured: BTreeSet<i64>,
    planned: BTreeSet<i64>,
}

#[derive(Debug)]
pub(crate) struct AxisAudit<'a> {
    pub(crate) axis: &'a AuditedAxis,
    /// Least and greatest measured value.
    pub(crate) range: Option<(i64, i64)>,
    pub(crate) values: usize,
    /// Values of cases without a measurement that no measured case has, ascending.
    pub(crate) planned: Vec<i64>,
    /// Points that the measured values lack.
    pub(crate) shortfall: AxisShortfall,
    /// Missing points that are not planned, ascending.
    pub(crate) proposed: Vec<i64>,
    /// Result for each group of fixed numbers, the one with most missing points first; empty for an axis without groups.
    pub(crate) groups: Vec<AxisGroup>,
}

/// Values of an axis for one combination of fixed numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AxisGroup {
    pub(crate) key: Vec<i64>,
    pub(crate) values: usize,
    /// Missing points that are not planned, ascending.
    pub(crate) proposed: Vec<i64>,
    pub(crate) is_complete: bool,
}

impl AxisValues {
    fn add(&mut self, value: i64, is_measured: bool) {
        let values = if is_measured { &mut self.measured } else { &mut self.planned };
        values.insert(value);
    }

    fn measured_or_planned(&self) -> BTreeSet<i64> {
        self.measured.union(&self.planned).copied().collect()
    }
}

impl<'a> KernelAxes<'a> {
    pub(super) fn new(entry: &'a CatalogueEntry, axes: &'a [AuditedAxis]) -> Self {
        let axes = axes.iter().map(|axis| ObservedAxis {
            axis,
            values: AxisValues::default(),
            groups: BTreeMap::new(),
        });
        Self { entry, axes: axes.collect(), measured: 0, planned: 0, unread: 0 }
    }

    pub(super) fn add(&mut self, case: &Case, is_measured: bool) {
        let Ok(points) = self.entry.axis_points(case, self.axes.iter().map(|observed| observed.axis)) else {
            self.unread += 1;
            return;
        };
        let count = if is_measured { &mut self.measured } else { &mut self.planned };
        *count += 1;
        for (observed, point) in self.axes.iter_mut().zip(points) {
            let Some(AxisPoint { value, group }) = point else { continue };
            observed.values.add(value, is_measured);
            if !group.is_empty() {
                observed.groups.entry(group).or_default().add(value, is_measured);
            }
        }
    }

    pub(super) fn audit(&self, kernel: &KernelName) -> KernelAudit<'a> {
        let axes = self.axes.iter().map(ObservedAxis::audit).collect();
        let Self { measured, planned, unread, .. } = *self;
        KernelAudit { kernel: kernel.clone(), measured, planned, unread, axes }
    }
}

impl<'a> ObservedAxis<'a> {
    fn audit(&self) -> AxisAudit<'a> {
        let standard = &self.axis.standard;
        let AxisValues { measured, planned } = &self.values;
        let mut groups: Vec<AxisGroup> =
            self.groups.iter().map(|(key, values)| self.audit_group(key, values)).collect();
        groups.sort_by_key(|group| std::cmp::Reverse(group.proposed.len()));
        AxisAudit {
            axis: self.axis,
            range: measured.first().copied().zip(measured.last().copied()),
            values: measured.len(),
            planned: planned.difference(measured).copied().collect(),
            shortfall: AxisShortfall::from_values(standard, measured),
            proposed: AxisShortfall::from_values(standard, &self.values.measured_or_planned()).points,
            groups,
        }
    }

    fn audit_group(&self, key: &[i64], values: &AxisValues) -> AxisGroup {
        let standard = &self.axis.standard;
        AxisGroup {
            key: key.to_vec(),
            values: values.measured.len(),
            proposed: AxisShortfall::from_values(standard, &values.measured_or_planned()).points,
            is_complete: AxisShortfall::from_values(standard, &values.measured).is_empty(),
        }
    }
}

impl AxisAudit<'_> {
    /// Returns true if no point is missing, over all cases and for each group.
    pub(crate) fn is_complete(&self) -> bool {
        self.shortfall.is_empty() && self.groups.iter().all(|group| group.is_complete)
    }
}
