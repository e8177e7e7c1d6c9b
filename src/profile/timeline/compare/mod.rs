//! Comparison of two runs: sums of each by kernel, operator, collective, module and memory, and the difference of their
//! steps divided among them.

mod call_order;
mod calls;
mod common_sequence;
mod communication;
mod selected_steps;
mod sums;

use std::collections::BTreeSet;

pub(crate) use call_order::{ComparedCall, compare_calls};
pub(crate) use calls::{CallKind, RecordedCall};
use sums::Sums;
pub(crate) use sums::{RunSums, TimeSum};

#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::Display, strum::EnumIter, strum::IntoStaticStr,
)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum ComparedPart {
    Overall,
    KernelClass,
    KernelType,
    Kernel,
    Operator,
    HostCall,
    Collective,
    CollectiveTask,
    Module,
    Memory,
}

/// Times in nanoseconds, memory in bytes, each per step.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ComparedRow {
    pub(crate) part: ComparedPart,
    pub(crate) name: String,
    /// Shapes of a kernel, unit of a class, core of a type of kernels, type of a task; empty for others.
    pub(crate) shapes: String,
    pub(crate) base: Option<TimeSum>,
    pub(crate) other: Option<TimeSum>,
}

impl ComparedRow {
    pub(crate) fn has_total(&self) -> bool {
        self.part != ComparedPart::Overall || self.name != sums::STEPS
    }

    /// Returns other minus base; a part without anything counts as 0, because it was recorded and did not occur.
    pub(crate) fn difference(&self) -> f64 {
        self.other.unwrap_or_default().total - self.base.unwrap_or_default().total
    }

    pub(crate) fn ratio(&self) -> Option<f64> {
        let (base, other) = (self.base?.total, self.other?.total);
        (base > 0.0).then(|| other / base)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AttributedTime {
    pub(crate) kind: &'static str,
    pub(crate) name: String,
    pub(crate) shapes: String,
    /// Nanoseconds per step.
    pub(crate) difference: f64,
    pub(crate) is_remainder: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct RunComparison {
    pub(crate) rows: Vec<ComparedRow>,
    pub(crate) attribution: Vec<AttributedTime>,
    /// Nanoseconds per step.
    pub(crate) span_difference: f64,
    pub(crate) not_compared: Vec<String>,
    /// True if kernels are compared by name, because one of the profiles has no types.
    pub(crate) by_kernel_name: bool,
}

fn compared(part: ComparedPart, base: &Sums, other: &Sums) -> Vec<ComparedRow> {
    let keys: BTreeSet<&(String, String)> = base.keys().chain(other.keys()).collect();
    let mut rows: Vec<ComparedRow> = keys
        .into_iter()
        .map(|key| ComparedRow {
            part,
            name: key.0.clone(),
            shapes: key.1.clone(),
            base: base.get(key).copied(),
            other: other.get(key).copied(),
        })
        .collect();
    rows.sort_by(|a, b| b.difference().abs().total_cmp(&a.difference().abs()));
    rows
}

fn attribute(
    kind: &'static str,
    rows: &[ComparedRow],
    whole: f64,
    remainder: &str,
    found: &mut Vec<AttributedTime>,
) {
    let part = |name: &str, shapes: &str, difference: f64, is_remainder: bool| {
        let (name, shapes) = (name.to_owned(), shapes.to_owned());
        AttributedTime { kind, name, shapes, difference, is_remainder }
    };
    let parts = rows.iter().map(|row| part(&row.name, &row.shapes, row.difference(), false));
    found.extend(parts.filter(|part| part.difference != 0.0));
    let rest = whole - rows.iter().map(ComparedRow::difference).sum::<f64>();
    // Sums of numbers that are not whole differ in their last digits.
    if rest.abs() > 1e-3 {
        found.push(part(remainder, "", rest, true));
    }
}

pub(crate) fn compare_runs(base: &RunSums, other: &RunSums) -> RunComparison {
    let mut not_compared = Vec::new();
    let mut is_in_both = |what: Option<&str>, has: &dyn Fn(&RunSums) -> bool| {
        let (base_has, other_has) = (has(base), has(other));
        if !(base_has && other_has) {
            let side = match (base_has, other_has) {
                (false, true) => "base",
                (true, false) => "other",
                _ => "base and other",
            };
            not_compared.extend(what.map(|what| format!("{what}: not recorded in {side}")));
        }
        base_has && other_has
    };
    let by_part = |part: ComparedPart| compared(part, base.known_part(part), other.known_part(part));
    let by_kernel_name = base.has_kernel_types != other.has_kernel_types;
    if by_kernel_name {
        is_in_both(Some("types, shapes and classes of kernels"), &|sums| sums.has_kernel_types);
    }
    let mut rows = by_part(ComparedPart::Overall);
    rows.sort_by_key(|row| sums::OVERALL.iter().position(|name| *name == row.name));
    for (name, what) in sums::OPTIONAL_OVERALL {
        let is_recorded =
            |sums: &RunSums| sums.known_part(ComparedPart::Overall).contains_key(&sums::key(name));
        if !is_in_both(what, &is_recorded) {
            rows.retain(|row| row.name != name);
        }
    }
    if !by_kernel_name {
        let mut classes = by_part(ComparedPart::KernelClass);
        classes.sort_by(|a, b| a.name.cmp(&b.name));
        rows.extend(classes);
        rows.extend(match is_in_both(Some("types of cores"), &|sums| sums.has_cores) {
            true => by_part(ComparedPart::KernelType),
            false => {
                let types =
                    [base, other].map(|sums| sums::without_cores(sums.known_part(ComparedPart::KernelType)));
                compared(ComparedPart::KernelType, &types[0], &types[1])
            }
        });
    }
    let kernels = match by_kernel_name {
        true => compared(ComparedPart::Kernel, &base.kernels_by_name, &other.kernels_by_name),
        false => by_part(ComparedPart::Kernel),
    };
    for (part, what) in [
        (ComparedPart::Operator, "operators"),
        (ComparedPart::HostCall, "calls of the host"),
        (ComparedPart::CollectiveTask, "tasks of collectives"),
        (ComparedPart::Module, "modules"),
        (ComparedPart::Memory, "memory"),
    ] {
        if is_in_both(Some(what), &|sums| sums.part(part).is_some()) {
            rows.extend(by_part(part));
        }
    }
    let whole = |name: &str| {
        let [base, other] = [base, other].map(|sums| {
            let sum = sums.known_part(ComparedPart::Overall).get(&sums::key(name)).copied();
            sum.unwrap_or_default().total
        });
        other - base
    };
    let uncovered = compared(ComparedPart::Collective, &base.uncovered, &other.uncovered);
    let free = compared(ComparedPart::Overall, &base.free_by_cause, &other.free_by_cause);
    let mut attribution = Vec::new();
    for (kind, rows, name, remainder) in [
        ("computing", &kernels, sums::COMPUTING, "kernels that overlap each other"),
        ("communication", &uncovered, sums::NOT_OVERLAPPED, "collectives that overlap each other"),
        ("free", &free, sums::FREE, "free time without a cause"),
    ] {
        attribute(kind, rows, whole(name), remainder, &mut attribution);
    }
    attribution.sort_by(|a, b| b.difference.abs().total_cmp(&a.difference.abs()));
    rows.extend(kernels);
    rows.extend(by_part(ComparedPart::Collective));
    // Tasks of one collective are adjacent.
    rows.sort_by_cached_key(|row| {
        let is_task = row.part == ComparedPart::CollectiveTask;
        (row.part, if is_task { row.name.clone() } else { String::new() })
    });
    RunComparison { rows, attribution, span_difference: whole(sums::SPAN), not_compared, by_kernel_name }
}
