//! Result of a comparison of two databases or runs, as a table with a summary or as lines of JSON.

use strum::IntoEnumIterator as _;

use super::{cases::distinguishable_inputs, prelude::*};
use crate::{
    base::stats::{ComparisonVerdict, FALSE_DISCOVERY_RATE},
    kernel::signature_parts,
    measure::evidence::{CaseDifference, FailedCase, LedgerDifference, MeasuredSide},
};

fn case_parts(case: &CaseDifference) -> [&str; 4] {
    let Ok(kernel) = KernelName::new(&case.kernel) else { return [&case.kernel, "", "", ""] };
    let [inputs, outputs, attributes] = signature_parts(&kernel, &case.signature);
    [&case.kernel, inputs, outputs, attributes]
}

pub(crate) fn diff_table(difference: &LedgerDifference, lists_all: bool, width: Option<usize>) -> String {
    let is_changed = |case: &&CaseDifference| {
        lists_all || matches!(case.verdict, ComparisonVerdict::Slow | ComparisonVerdict::Fast)
    };
    let cases: Vec<&CaseDifference> = difference.cases.iter().filter(is_changed).collect();
    let inputs = distinguishable_inputs(&cases.iter().map(|case| case_parts(case)).collect::<Vec<_>>());
    let percent = |value: Option<f64>| or_empty(value.map(|value| signed(value, 2)));
    let interval = |[low, high]: [f64; 2]| format!("{low:+.2} to {high:+.2}");
    Table::new(cases.into_iter().zip(&inputs))
        .text("verdict", 0, |(case, _)| case.verdict)
        .text("kernel", rank(0).min(8), |(case, _)| &case.kernel)
        .text("case", 2, |(case, _)| &case.case)
        .text("inputs", rank(1).min(12).wanted(20), |(_, inputs)| inputs)
        .number("A us", 0, |(case, _)| or_empty(case.medians_us[0].map(decimals3)))
        .number("B us", 0, |(case, _)| or_empty(case.medians_us[1].map(decimals3)))
        .number("change %", 0, |(case, _)| percent(case.change_percent))
        .number("95 % interval", 3, |(case, _)| or_empty(case.interval_percent.map(interval)))
        .number("cycles %", DETAIL, |(case, _)| percent(case.cycles_percent))
        .text("remark", rank(DETAIL).min(16), |(case, _)| case.remark.as_deref().unwrap_or_default())
        .print(width)
}

/// Returns the lines below the table: what was compared, the change of all cases together, and the number of each
/// verdict. `names` are the names of the two sides; `margin` is relative.
pub(crate) fn diff_summary(
    difference: &LedgerDifference,
    names: [&str; 2],
    sides: [&MeasuredSide; 2],
    margin: f64,
) -> String {
    let mut lines = Vec::new();
    for (letter, (name, side)) in ["A", "B"].into_iter().zip(names.into_iter().zip(sides)) {
        let software = side.software.as_ref().map_or("unknown software".to_owned(), ToString::to_string);
        let cases = format_count(side.cases.len(), "measured case");
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
    let count = |verdict| (verdict, counts.get(&verdict).copied().unwrap_or_default());
    lines.push(format!(
        "{} at a margin of {} %; at most {:.0} % of SLOW and FAST, and of SAME, are expected to be wrong",
        counted(ComparisonVerdict::iter().map(count)),
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
    let withdrawn = cases.iter().filter(|case| case.attempt.is_withdrawn).count();
    let withdrawn = or_empty((withdrawn > 0).then(|| format!("; {withdrawn} of them withdrawn")));
    Some(format!(
        "{} of the cases only in {side} failed in {other}: {}{withdrawn}; the first is {kernel} {case}: {}",
        cases.len(),
        counted(verdicts),
        attempt.outcome.reason
    ))
}

fn common_change(difference: &LedgerDifference) -> Option<String> {
    let mut changes: Vec<f64> = difference.cases.iter().filter_map(|case| case.change_percent).collect();
    changes.sort_unstable_by(f64::total_cmp);
    let last = changes.len().checked_sub(1)?;
    let [low, median, high] = [1, 2, 3].map(|quarter| changes[last * quarter / 4]);
    Some(format!(
        "B against A over {}: median {median:+.2} %, middle half {low:+.2} to {high:+.2} %",
        format_count(changes.len(), "case")
    ))
}
