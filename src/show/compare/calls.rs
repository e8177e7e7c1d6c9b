//! Single calls of operators and modules in a comparison: tables and CSV cells.

use std::cmp::Reverse;

use super::{super::prelude::*, Section, with_sign};
use crate::profile::timeline::{CallKind, RecordedCall};

/// Largest number of calls of a kind in a page: a run of minutes has a million.
pub(super) const MAX_PAGE_ROWS: usize = 1000;
const KINDS: [CallKind; 2] = [CallKind::OperatorCall, CallKind::ModuleCall];

pub(super) const CALL_COLUMNS: &str = "thread,base step,other step,base call,other call,other shapes,base kernels,other kernels,\
    base copies,other copies";

const fn heading(kind: CallKind) -> &'static str {
    match kind {
        CallKind::OperatorCall => {
            "calls of operators with the time of their kernels, us; by the differences of kernels and copies"
        }
        CallKind::ModuleCall => "calls of modules, us; by the larger difference of total and self",
    }
}

fn both_cells(call: &ComparedCall<'_>, cell: &dyn Fn(&RecordedCall<'_>) -> String) -> String {
    let of = |side: Option<&RecordedCall<'_>>| or_dash(side.map(cell));
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
    let kernels = or_empty(longest.map(|(name, _)| match call.kernels.len() {
        1 => (*name).to_owned(),
        count => format!("{name} +{}", count - 1),
    }));
    joined([call.shapes, &kernels].into_iter().filter(|text| !text.is_empty()), " ")
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

pub(super) fn sections(calls: &[ComparedCall<'_>], max: usize) -> impl Iterator<Item = Section> {
    KINDS.into_iter().filter_map(move |kind| {
        let rows = largest_differences(calls, kind);
        let more = rows.len().saturating_sub(max);
        let is_operator = kind == CallKind::OperatorCall;
        let own = move |own: &RecordedCall<'_>| if is_operator { own.copies } else { own.self_time };
        let own = move |side: Option<&RecordedCall<'_>>| or_dash(side.and_then(own).map(micros));
        let total = |side: Option<&RecordedCall<'_>>| or_dash(side.map(|side| micros(side.total)));
        let mut table =
            Table::new(rows.into_iter().take(max)).text("name", rank(0).min(16).wanted(24), |call| {
                or_empty(call.base_or_other().map(|own| &own.name))
            });
        if is_operator {
            let room = rank(2).min(16).wanted(24);
            table = table.text("shapes and kernels", room, |call| both_cells(call, &shapes_and_kernels));
        }
        let [base_own, other_own] =
            if is_operator { ["base copies", "other copies"] } else { ["base self", "other self"] };
        let table = table
            .number("step", 3, |call| both_cells(call, &|own| or_dash(own.step)))
            .number("call", 3, |call| both_cells(call, &|own| own.number.to_string()))
            .number("base", 0, |call| total(call.base))
            .number("other", 0, |call| total(call.other))
            .number("difference", 0, |call| with_sign(micros(call.difference())))
            .number("ratio", 1, |call| or_dash(call.ratio().map(|ratio| format!("{ratio:.4}"))))
            .number(base_own, DETAIL, |call| own(call.base))
            .number(other_own, DETAIL, |call| own(call.other));
        Section::new(heading(kind), table, more)
    })
}

/// Returns a call as cells of the CSV, in which the columns of calls begin at `first`.
pub(super) fn call_cells(call: &ComparedCall<'_>, first: usize) -> Vec<String> {
    let pair = |cell: fn(&RecordedCall<'_>) -> Option<String>| {
        [call.base, call.other].map(|side| or_empty(side.and_then(cell)))
    };
    fn text<D: ToString>(value: Option<D>) -> Option<String> {
        value.map(|value| value.to_string())
    }
    let [base, other] = pair(|own| text(Some(own.total)));
    let [base_calls, other_calls] = pair(|_| text(Some(1)));
    let own = call.base_or_other();
    let mut cells = vec![
        call.kind.to_string(),
        or_empty(own.map(|own| &own.name)),
        or_empty(own.map(|own| own.shapes)),
        base,
        base_calls,
        other,
        other_calls,
        call.difference().to_string(),
        or_empty(call.ratio()),
    ];
    cells.extend(pair(|own| text(own.self_time)));
    cells.resize(first, String::new());
    cells.push(call.thread.to_string());
    cells.extend(pair(|own| text(own.step)));
    cells.extend(pair(|own| text(Some(own.number))));
    cells.push(or_empty(call.other.map(|own| own.shapes)));
    cells.extend(pair(|own| {
        Some(joined(own.kernels.iter().map(|(name, time)| format!("{name} {time}")), "; "))
    }));
    cells.extend(pair(|own| text(own.copies)));
    cells
}
