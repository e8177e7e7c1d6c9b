//! Result of a comparison of two databases or runs, as a table with a summary or as lines of JSON.

use std::collections::BTreeMap;

use strum::IntoEnumIterator as _;

use crate::{
    base::{
        count_text::format_count,
        stats::{ComparisonVerdict, FALSE_DISCOVERY_RATE},
    },
    kernel::{KernelName, Verdict, signature_attributes, split_signature},
    measure::evidence::{CaseDifference, FailedCase, LedgerDifference, MeasuredSide},
    show::{
        inputs::{SignatureParts, distinguishable_inputs},
        table::{DETAIL, FittedColumn, FittedRow, FittedTable},
    },
};

fn signature_parts(case: &CaseDifference) -> SignatureParts<'_> {
    let Ok(kernel) = KernelName::new(&case.kernel) else { return [&case.kernel, "", "", ""] };
    let (inputs, outputs) = split_signature(&kernel, &case.signature);
    [&case.kernel, inputs, outputs, signature_attributes(&kernel, &case.signature)]
}

/// Returns a table of the cases that differ, or of all cases; empty without one.
pub(crate) fn diff_table(difference: &LedgerDifference, lists_all: bool, width: Option<usize>) -> String {
    let is_changed = |case: &&CaseDifference| {
        lists_all || matches!(case.verdict, ComparisonVerdict::Slow | ComparisonVerdict::Fast)
    };
    let cases: Vec<&CaseDifference> = difference.cases.iter().filter(is_changed).collect();
    if cases.is_empty() {
        return String::new();
    }
    let columns = vec![
        FittedColumn::text("verdict", 0),
        FittedColumn::text("kernel", 0).shortened_to(8),
        FittedColumn::text("case", 2),
        FittedColumn::text("inputs", 1).shortened_to(12).wanted(20),
        FittedColumn::number("A us", 0),
        FittedColumn::number("B us", 0),
        FittedColumn::number("change %", 0),
        FittedColumn::number("95 % interval", 3),
        FittedColumn::number("cycles %", DETAIL),
        FittedColumn::text("remark", DETAIL).shortened_to(16),
    ];
    let mut rows = Vec::new();
    let parts: Vec<SignatureParts<'_>> = cases.iter().map(|case| signature_parts(case)).collect();
    for (case, inputs) in cases.iter().zip(distinguishable_inputs(&parts)) {
        let [first, second] = case.medians_us.map(|median| number(median, 3));
        let interval = case.interval_percent.map(|[low, high]| format!("{low:+.2} to {high:+.2}"));
        rows.push(FittedRow::from_cells(&[
            case.verdict.to_string(),
            case.kernel.clone(),
            case.case.to_string(),
            inputs,
            first,
            second,
            signed(case.change_percent),
            interval.unwrap_or_default(),
            signed(case.cycles_percent),
            case.remark.clone().unwrap_or_default(),
        ]));
    }
    FittedTable { columns, rows, ..FittedTable::default() }.print(width, false)
}

fn number(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(String::new, |value| format!("{value:.decimals$}"))
}

fn signed(value: Option<f64>) -> String {
    value.map_or_else(String::new, |value| format!("{value:+.2}"))
}

/// Returns the lines below the table: what was compared, the change of all cases together, and the number of each verdict.
/// `names` are those of the two sides; `margin` is relative.
pub(crate) fn diff_summary(
    difference: &LedgerDifference,
    names: [&str; 2],
    sides: [&MeasuredSide; 2],
    margin: f64,
) -> String {
    let mut lines = Vec::new();
    for (letter, (name, side)) in ["A", "B"].into_iter().zip(names.into_iter().zip(sides)) {
        let software = side.software.as_ref().map_or("unknown software".to_owned(), ToString::to_string);
        let cases = format_count(side.case_count(), "measured case");
        lines.push(format!("{letter}: {name}: {cases}, {software}"));
    }
    if let [Some(first), Some(second)] = sides.map(|side| side.software.as_ref())
        && first != second
    {
        lines.push(format!("software of B: {}", second.differences_from(first)));
    }
    let [only_first, only_second] = difference.only;
    lines.push(format!(
        "{} in both, {only_first} only in A, {only_second} only in B",
        format_count(difference.cases.len(), "case")
    ));
    lines.extend(common_change(difference));
    let mut counts: BTreeMap<ComparisonVerdict, usize> = BTreeMap::new();
    difference.cases.iter().for_each(|case| *counts.entry(case.verdict).or_default() += 1);
    let count = |verdict: ComparisonVerdict| counts.get(&verdict).copied().unwrap_or_default();
    let verdicts = ComparisonVerdict::iter().map(|verdict| format!("{} {verdict}", count(verdict)));
    let verdicts: Vec<String> = verdicts.collect();
    lines.push(format!(
        "{} at a margin of {} %; at most {:.0} % of SLOW and FAST, and of SAME, are expected to be wrong",
        verdicts.join(", "),
        margin * 100.0,
        FALSE_DISCOVERY_RATE * 100.0,
    ));
    lines.join("\n") + "\n"
}

/// Returns a note about the cases that only `side` has measured and `other` has attempted; `None` without one.
pub(crate) fn failed_note(cases: &[FailedCase], side: &str, other: &str) -> Option<String> {
    let FailedCase { kernel, case, attempt } = cases.first()?;
    let mut verdicts: BTreeMap<Verdict, usize> = BTreeMap::new();
    cases.iter().for_each(|case| *verdicts.entry(case.attempt.outcome.verdict).or_default() += 1);
    let verdicts: Vec<String> =
        verdicts.iter().map(|(verdict, count)| format!("{count} {verdict}")).collect();
    let withdrawn = cases.iter().filter(|case| case.attempt.is_withdrawn).count();
    let withdrawn = if withdrawn > 0 { format!("; {withdrawn} of them withdrawn") } else { String::new() };
    Some(format!(
        "{} of the cases only in {side} failed in {other}: {}{withdrawn}; the first is {kernel} {case}: {}",
        cases.len(),
        verdicts.join(", "),
        attempt.outcome.reason
    ))
}

/// Returns the median and the quartiles of the changes of all cases.
fn common_change(difference: &LedgerDifference) -> Option<String> {
    let mut changes: Vec<f64> = difference.cases.iter().filter_map(|case| case.change_percent).collect();
    changes.sort_unstable_by(f64::total_cmp);
    let at = |quarter: usize| changes.get((changes.len() - 1) * quarter / 4).copied();
    if changes.is_empty() {
        return None;
    }
    let (low, median, high) = (at(1)?, at(2)?, at(3)?);
    Some(format!(
        "B against A over {}: median {median:+.2} %, middle half {low:+.2} to {high:+.2} %",
        format_count(changes.len(), "case")
    ))
}
