//! Audits: the values that cases of a kernel have along its axes, held against the density standard.
//!
//! Each axis is judged over all cases. An axis by which a lookup interpolates, such as the rows of a product, is
//! judged besides for each of what must stay the same there. What is not seen is which combinations of other axes
//! there are.

mod auditor;
mod gaps;

use std::collections::{BTreeMap, BTreeSet};

pub use auditor::GridAuditor;
pub use gaps::{AxisGap, AxisShortfall};

use super::definition::{AuditedAxis, AxisPoint};
use crate::{catalogue::CatalogueEntry, domain::Case};

/// The cases of one kernel, as its axes see them.
#[derive(Debug)]
pub struct KernelAudit<'a> {
    entry: &'a CatalogueEntry,
    axes: Vec<ObservedAxis<'a>>,
    /// Cases that count as measured.
    pub measured: usize,
    /// Cases that nobody has measured.
    pub planned: usize,
    /// Cases that the catalogue's rule does not read.
    pub unread: usize,
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

/// One axis.
#[derive(Debug)]
pub struct AxisAudit<'a> {
    /// The axis.
    pub axis: &'a AuditedAxis,
    /// Least and greatest value that was measured.
    pub range: Option<(i64, i64)>,
    /// How many different ones were.
    pub values: usize,
    /// Values that only cases have that nobody has measured, ascending.
    pub planned: Vec<i64>,
    /// What measured values lack.
    pub shortfall: AxisShortfall,
    /// The points that are missing beside those that are planned.
    pub proposed: Vec<i64>,
    /// The axis judged by itself for each of what stays the same, the worst first; empty where it is not.
    pub groups: Vec<AxisGroup>,
}

/// What stays the same, and the values of the axis there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AxisGroup {
    /// What stays the same.
    pub key: Vec<i64>,
    /// How many values were measured.
    pub values: usize,
    /// The points that are missing beside those that are planned.
    pub proposed: Vec<i64>,
    /// Whether measured values lack nothing.
    pub is_complete: bool,
}

impl AxisValues {
    fn add(&mut self, value: i64, is_measured: bool) {
        let values = if is_measured { &mut self.measured } else { &mut self.planned };
        values.insert(value);
    }

    fn all(&self) -> BTreeSet<i64> {
        self.measured.union(&self.planned).copied().collect()
    }
}

impl<'a> KernelAudit<'a> {
    /// An audit without cases.
    #[must_use]
    pub fn new(entry: &'a CatalogueEntry, axes: &'a [AuditedAxis]) -> Self {
        let axes = axes.iter().map(|axis| ObservedAxis {
            axis,
            values: AxisValues::default(),
            groups: BTreeMap::new(),
        });
        Self { entry, axes: axes.collect(), measured: 0, planned: 0, unread: 0 }
    }

    /// Counts a case.
    pub fn add(&mut self, case: &Case, is_measured: bool) {
        let Ok(points) = self.entry.axis_points(case, self.axes.iter().map(|seen| seen.axis)) else {
            self.unread += 1;
            return;
        };
        let count = if is_measured { &mut self.measured } else { &mut self.planned };
        *count += 1;
        for (seen, point) in self.axes.iter_mut().zip(points) {
            let Some(AxisPoint { value, group }) = point else { continue };
            seen.values.add(value, is_measured);
            if !group.is_empty() {
                seen.groups.entry(group).or_default().add(value, is_measured);
            }
        }
    }

    /// Judges every axis.
    #[must_use]
    pub fn axes(&self) -> Vec<AxisAudit<'a>> {
        self.axes.iter().map(ObservedAxis::judge).collect()
    }
}

impl<'a> ObservedAxis<'a> {
    fn judge(&self) -> AxisAudit<'a> {
        let standard = &self.axis.standard;
        let AxisValues { measured, planned } = &self.values;
        let mut groups: Vec<AxisGroup> =
            self.groups.iter().map(|(key, values)| self.group(key, values)).collect();
        groups.sort_by_key(|group| std::cmp::Reverse(group.proposed.len()));
        AxisAudit {
            axis: self.axis,
            range: measured.first().copied().zip(measured.last().copied()),
            values: measured.len(),
            planned: planned.difference(measured).copied().collect(),
            shortfall: AxisShortfall::from_values(standard, measured),
            proposed: AxisShortfall::from_values(standard, &self.values.all()).points,
            groups,
        }
    }

    fn group(&self, key: &[i64], values: &AxisValues) -> AxisGroup {
        let standard = &self.axis.standard;
        AxisGroup {
            key: key.to_vec(),
            values: values.measured.len(),
            proposed: AxisShortfall::from_values(standard, &values.all()).points,
            is_complete: AxisShortfall::from_values(standard, &values.measured).is_none(),
        }
    }
}

impl AxisAudit<'_> {
    /// Whether nothing is missing, over all cases and for each group.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.shortfall.is_none() && self.groups.iter().all(|group| group.is_complete)
    }
}
