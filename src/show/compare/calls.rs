//! Single calls of operators and modules in a comparison: tables and CSV cells.

use std::cmp::Reverse;

use super::{Section, signed};
use crate::{
    profile::timeline::{CallKind, ComparedCall, RecordedCall},
    show::table::{DETAIL, FittedColumn},
};

/// Largest number of calls of a kind in a page: a run of minutes has a million.
pub(super) const PAGE_ROWS: usize = 1000;
const KINDS: [CallKind; 2] = [CallKind::OperatorCall, CallKind::ModuleCall];

/// Columns of calls in CSV, behind those of the other rows.
pub(super) const CALL_COLUMNS: [&str; 10] = [
    "thread",
    "base step",
    "other step",
    "base call",
    "other call",
    "other shapes",
    "base kernels",
    "other kernels",
    "base copies",
    "other copies",
];

const fn heading(kind: CallKind) -> &'static str {
    match kind {
        CallKind::OperatorCall => {
            "calls of operators with the time of their kernels, us; by the differences of kernels and copies"
        }
        CallKind::ModuleCall => "calls of modules, us; by the larger difference of total and self",
    }
}

/// Returns the columns of a table with text, and those behind them.
fn columns(kind: CallKind) -> (&'static [&'static str], [&'static str; 8]) {
    let numbers = |base, other| ["step", "call", "base", "other", "difference", "ratio", base, other];
    match kind {
        CallKind::OperatorCall => (&["name", "shapes and kernels"], numbers("base copies", "other copies")),
        CallKind::ModuleCall => (&["name"], numbers("base self", "other self")),
    }
}

#[expect(clippy::cast_precision_loss, reason = "times of runs have fewer than 53 bits")]
fn micros(time: i64) -> String {
    format!("{:.3}", time as f64 / 1e3)
}

/// Returns a value of both sides, once if they have the same.
fn both_cells(call: &ComparedCall<'_>, cell: &dyn Fn(&RecordedCall<'_>) -> String) -> String {
    let of = |side: Option<&RecordedCall<'_>>| side.map_or_else(|| "-".to_owned(), cell);
    let (base, other) = (of(call.base), of(call.other));
    match base == other || other.is_empty() {
        true => base,
        false if base.is_empty() => other,
        false => format!("{base} / {other}"),
    }
}

/// Returns shapes, and behind them what ran on the device: the longest kernel and the number of others.
fn shapes_and_kernels(call: &RecordedCall<'_>) -> String {
    let longest = call.kernels.iter().rev().max_by_key(|(_, time)| *time);
    let kernels = longest.map_or_else(String::new, |(name, _)| match call.kernels.len() {
        1 => (*name).to_owned(),
        count => format!("{name} +{}", count - 1),
    });
    [call.shapes, &kernels].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Returns how much a time of both calls differs. That of a call without a match is the difference; one that a side does not
/// record is none.
fn time_difference(call: &ComparedCall<'_>, time: &dyn Fn(&RecordedCall<'_>) -> Option<i64>) -> u64 {
    match (call.base, call.other) {
        (Some(base), Some(other)) => {
            time(base).zip(time(other)).map_or(0, |(base, other)| other.abs_diff(base))
        }
        (base, other) => base.or(other).and_then(time).map_or(0, i64::unsigned_abs),
    }
}

/// Returns the difference by which calls are ordered. Copies of an operator are beside its kernels, the self time of a
/// module is part of its total.
fn ordered_difference(call: &ComparedCall<'_>) -> u64 {
    let total = time_difference(call, &|own| Some(own.total));
    match call.kind {
        CallKind::OperatorCall => total.saturating_add(time_difference(call, &|own| own.copies)),
        CallKind::ModuleCall => total.max(time_difference(call, &|own| own.self_time)),
    }
}

/// Returns the calls of a kind in which anything ran, those that differ most first.
fn largest_differences<'a, 'c>(calls: &'a [ComparedCall<'c>], kind: CallKind) -> Vec<&'a ComparedCall<'c>> {
    let has_time = |call: &&ComparedCall<'_>| {
        call.base
            .into_iter()
            .chain(call.other)
            .any(|own| own.total != 0 || own.copies.unwrap_or_default() != 0)
    };
    let mut rows: Vec<&ComparedCall<'c>> =
        calls.iter().filter(|call| call.kind == kind).filter(has_time).collect();
    rows.sort_by_key(|call| Reverse(ordered_difference(call)));
    rows
}

fn table_cells(call: &ComparedCall<'_>) -> Vec<String> {
    let time = |side: Option<&RecordedCall<'_>>, time: &dyn Fn(&RecordedCall<'_>) -> Option<i64>| {
        side.and_then(time).map_or_else(|| "-".to_owned(), micros)
    };
    let mut cells = vec![call.base_or_other().map_or_else(String::new, |own| own.name.clone().into_owned())];
    if call.kind == CallKind::OperatorCall {
        cells.push(both_cells(call, &shapes_and_kernels));
    }
    cells.extend([
        both_cells(call, &|own| own.step.map_or_else(|| "-".to_owned(), |step| step.to_string())),
        both_cells(call, &|own| own.number.to_string()),
        time(call.base, &|own| Some(own.total)),
        time(call.other, &|own| Some(own.total)),
        signed(micros(call.difference())),
        call.ratio().map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.4}")),
    ]);
    let more: &dyn Fn(&RecordedCall<'_>) -> Option<i64> = match call.kind {
        CallKind::OperatorCall => &|own| own.copies,
        CallKind::ModuleCall => &|own| own.self_time,
    };
    cells.extend([call.base, call.other].map(|side| time(side, more)));
    cells
}

/// Returns a table of each kind of calls with the largest differences.
pub(super) fn sections(calls: &[ComparedCall<'_>], most: usize) -> impl Iterator<Item = Section> {
    KINDS.into_iter().filter_map(move |kind| {
        let rows = largest_differences(calls, kind);
        let (texts, numbers) = columns(kind);
        let texts = texts.iter().zip([0, 2]);
        let mut columns: Vec<_> =
            texts.map(|(name, rank)| FittedColumn::text(name, rank).shortened_to(16).wanted(24)).collect();
        let ranks = [3, 3, 0, 0, 0, 1, DETAIL, DETAIL];
        columns.extend(numbers.into_iter().zip(ranks).map(|(name, rank)| FittedColumn::number(name, rank)));
        let shown = rows.iter().take(most).map(|call| table_cells(call)).collect();
        let more = rows.len().saturating_sub(most);
        (!rows.is_empty()).then_some(Section { heading: heading(kind), columns, rows: shown, more })
    })
}

/// Returns a call as cells of the CSV with `alone` columns of kernels in a database.
pub(super) fn call_cells(call: &ComparedCall<'_>, alone: usize) -> Vec<String> {
    fn cell<T: ToString>(value: Option<T>) -> String {
        value.map_or_else(String::new, |value| value.to_string())
    }
    let sides = [call.base, call.other];
    let [base, other] = sides.map(|side| cell(side.map(|own| own.total)));
    let [base_calls, other_calls] = sides.map(|side| cell(side.map(|_| 1)));
    let [base_self, other_self] = sides.map(|side| cell(side.and_then(|own| own.self_time)));
    let [base_step, other_step] = sides.map(|side| cell(side.and_then(|own| own.step)));
    let [base_number, other_number] = sides.map(|side| cell(side.map(|own| own.number)));
    let [base_kernels, other_kernels] = sides.map(|side| {
        let kernels = side.into_iter().flat_map(|own| &own.kernels);
        kernels.map(|(name, time)| format!("{name} {time}")).collect::<Vec<_>>().join("; ")
    });
    let [base_copies, other_copies] = sides.map(|side| cell(side.and_then(|own| own.copies)));
    let own = call.base_or_other();
    let mut cells = vec![
        call.kind.to_string(),
        cell(own.map(|own| &own.name)),
        cell(own.map(|own| own.shapes)),
        base,
        base_calls,
        other,
        other_calls,
        call.difference().to_string(),
        cell(call.ratio()),
        base_self,
        other_self,
    ];
    cells.extend(std::iter::repeat_n(String::new(), alone));
    cells.extend([
        call.thread.to_string(),
        base_step,
        other_step,
        base_number,
        other_number,
        cell(call.other.map(|own| own.shapes)),
        base_kernels,
        other_kernels,
        base_copies,
        other_copies,
    ]);
    cells
}
