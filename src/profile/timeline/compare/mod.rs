//! Comparison of two runs: sums of each by kernel, operator, collective, module and memory, and the difference of their
//! steps divided among them.

mod call_order;
mod calls;
mod common_sequence;
mod communication;
mod selected_steps;
mod sums;

use std::collections::{BTreeMap, BTreeSet};

pub(crate) use call_order::{ComparedCall, compare_calls};
pub(crate) use calls::{CallKind, RecordedCall};
pub(crate) use sums::{RunSums, TimeSum};

/// Section of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::Display, strum::IntoStaticStr)]
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

/// Row of a comparison. Times are nanoseconds, and memory bytes, per step.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ComparedRow {
    pub(crate) part: ComparedPart,
    pub(crate) name: String,
    /// Shapes of a kernel, unit of a class, core of a type of kernels, type of a task; empty for others.
    pub(crate) shapes: String,
    /// Sum of the base; `None` if it has nothing of the name.
    pub(crate) base: Option<TimeSum>,
    pub(crate) other: Option<TimeSum>,
}

impl ComparedRow {
    /// Returns true for a row with times or bytes: the number of steps has none.
    pub(crate) fn has_total(&self) -> bool {
        self.part != ComparedPart::Overall || self.name != sums::STEPS
    }

    /// Returns other minus base; a part without anything counts as 0, because it was recorded and did not occur.
    pub(crate) fn difference(&self) -> f64 {
        self.other.unwrap_or_default().total - self.base.unwrap_or_default().total
    }

    /// Returns other in relation to base; `None` if one of them has nothing.
    pub(crate) fn ratio(&self) -> Option<f64> {
        let (base, other) = (self.base?.total, self.other?.total);
        (base > 0.0).then(|| other / base)
    }
}

/// Part of the difference of two steps.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AttributedTime {
    /// Computing, communication that is not overlapped, or free time.
    pub(crate) kind: &'static str,
    pub(crate) name: String,
    pub(crate) shapes: String,
    /// Difference in nanoseconds per step.
    pub(crate) difference: f64,
    /// True for a remainder that no row explains.
    pub(crate) is_remainder: bool,
}

/// Comparison of two runs.
#[derive(Clone, Debug)]
pub(crate) struct RunComparison {
    pub(crate) rows: Vec<ComparedRow>,
    /// Parts of the difference of the spans, the largest first; their sum is the difference.
    pub(crate) attribution: Vec<AttributedTime>,
    pub(crate) span_difference: f64,
    /// Parts that one of the profiles does not have, so that they are not compared.
    pub(crate) not_compared: Vec<String>,
    /// True if kernels are compared by name, because one of the profiles has no types.
    pub(crate) by_kernel_name: bool,
}

type Keyed<'a> = &'a BTreeMap<(String, String), TimeSum>;

fn compared(part: ComparedPart, base: Keyed<'_>, other: Keyed<'_>) -> Vec<ComparedRow> {
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

/// Adds the differences of rows, and the remainder to the difference of their whole.
fn attribute(
    kind: &'static str,
    rows: &[(String, String, f64)],
    whole: f64,
    remainder: &str,
    found: &mut Vec<AttributedTime>,
) {
    let explained: f64 = rows.iter().map(|(.., difference)| difference).sum();
    for (name, shapes, difference) in rows.iter().filter(|(.., difference)| *difference != 0.0) {
        let (name, shapes) = (name.clone(), shapes.clone());
        found.push(AttributedTime { kind, name, shapes, difference: *difference, is_remainder: false });
    }
    let rest = whole - explained;
    // Sums of numbers that are not whole differ in their last digits.
    if rest.abs() > 1e-3 {
        found.push(AttributedTime {
            kind,
            name: remainder.to_owned(),
            shapes: String::new(),
            difference: rest,
            is_remainder: true,
        });
    }
}

/// Returns the names of the runs without a part, which at least one of them does not have.
const fn side_without(base_has: bool, other_has: bool) -> &'static str {
    match (base_has, other_has) {
        (false, true) => "base",
        (true, false) => "other",
        _ => "base and other",
    }
}

/// Compares the sums of two runs.
pub(crate) fn compare_runs(base: &RunSums, other: &RunSums) -> RunComparison {
    let mut not_compared = Vec::new();
    let by_kernel_name = base.has_kernel_types != other.has_kernel_types;
    let (base_kernels, other_kernels) = match by_kernel_name {
        true => (&base.kernels_by_name, &other.kernels_by_name),
        false => (&base.kernels, &other.kernels),
    };
    if by_kernel_name {
        let side = side_without(base.has_kernel_types, other.has_kernel_types);
        not_compared.push(format!("types, shapes and classes of kernels: not recorded in {side}"));
    }
    let mut rows = compared(ComparedPart::Overall, &base.overall, &other.overall);
    rows.sort_by_key(|row| sums::OVERALL.iter().position(|name| *name == row.name));
    for (name, what) in sums::OPTIONAL_OVERALL {
        let is_recorded = |sums: &RunSums| sums.overall.keys().any(|(own, _)| own == name);
        if !(is_recorded(base) && is_recorded(other)) {
            rows.retain(|row| row.name != name);
            let side = side_without(is_recorded(base), is_recorded(other));
            not_compared.extend(what.map(|what| format!("{what}: not recorded in {side}")));
        }
    }
    if !by_kernel_name {
        let mut classes = compared(ComparedPart::KernelClass, &base.classes, &other.classes);
        classes.sort_by(|a, b| a.name.cmp(&b.name));
        rows.extend(classes);
        rows.extend(match base.has_cores && other.has_cores {
            true => compared(ComparedPart::KernelType, &base.kernel_types, &other.kernel_types),
            false => {
                let side = side_without(base.has_cores, other.has_cores);
                not_compared.push(format!("types of cores: not recorded in {side}"));
                let [base, other] = [base, other].map(|sums| sums::without_cores(&sums.kernel_types));
                compared(ComparedPart::KernelType, &base, &other)
            }
        });
    }
    rows.extend(compared(ComparedPart::Kernel, base_kernels, other_kernels));
    for (part, base, other, what) in [
        (ComparedPart::Operator, base.operators.as_ref(), other.operators.as_ref(), "operators"),
        (ComparedPart::HostCall, base.host_calls.as_ref(), other.host_calls.as_ref(), "calls of the host"),
        (
            ComparedPart::CollectiveTask,
            base.collective_tasks.as_ref(),
            other.collective_tasks.as_ref(),
            "tasks of collectives",
        ),
        (ComparedPart::Module, base.modules.as_ref(), other.modules.as_ref(), "modules"),
        (ComparedPart::Memory, base.memory.as_ref(), other.memory.as_ref(), "memory"),
    ] {
        match base.zip(other) {
            Some((base, other)) => rows.extend(compared(part, base, other)),
            None => {
                let side = side_without(base.is_some(), other.is_some());
                not_compared.push(format!("{what}: not recorded in {side}"));
            }
        }
    }
    let collectives = compared(ComparedPart::Collective, &base.collectives, &other.collectives);
    let total = |sums: &RunSums, name: &str| {
        sums.overall.get(&(name.to_owned(), String::new())).copied().unwrap_or_default().total
    };
    let whole = |name: &str| total(other, name) - total(base, name);
    let mut attribution = Vec::new();
    let differences = |rows: &[ComparedRow]| {
        let rows = rows.iter().map(|row| (row.name.clone(), row.shapes.clone(), row.difference()));
        rows.collect::<Vec<_>>()
    };
    let kernels = compared(ComparedPart::Kernel, base_kernels, other_kernels);
    attribute(
        "computing",
        &differences(&kernels),
        whole(sums::COMPUTING),
        "kernels that overlap each other",
        &mut attribution,
    );
    let uncovered = compared(ComparedPart::Collective, &base.uncovered, &other.uncovered);
    attribute(
        "communication",
        &differences(&uncovered),
        whole(sums::NOT_OVERLAPPED),
        "collectives that overlap each other",
        &mut attribution,
    );
    let free = compared(ComparedPart::Overall, &base.free_by_cause, &other.free_by_cause);
    attribute("free", &differences(&free), whole(sums::FREE), "free time without a cause", &mut attribution);
    attribution.sort_by(|a, b| b.difference.abs().total_cmp(&a.difference.abs()));
    rows.extend(collectives);
    // Tasks of one collective are adjacent.
    rows.sort_by_cached_key(|row| {
        let is_task = row.part == ComparedPart::CollectiveTask;
        (row.part, if is_task { row.name.clone() } else { String::new() })
    });
    RunComparison { rows, attribution, span_difference: whole(sums::SPAN), not_compared, by_kernel_name }
}
