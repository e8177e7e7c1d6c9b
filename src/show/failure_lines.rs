//! Lines at the end of a run about cases that failed, and about kernels without a catalogue entry.

use std::collections::BTreeMap;

use crate::{
    base::count_text::format_count,
    cases::plan::RecordedTime,
    kernel::{CaseOutcome, FailingVerdicts, IdentifiedCase, KernelName, Verdict},
};

/// Number of kernels that a line names.
const MOST_KERNELS: usize = 8;

/// Returns a line about the cases whose verdicts make the exit code 1, or about a run without any case, then one about those that
/// were not run, and one about kernels without a catalogue entry, if there are any. Each has its share of the recorded time of the
/// rows, if they have one.
pub(crate) fn failure_lines(
    findings: &[(IdentifiedCase, CaseOutcome)],
    failing: &FailingVerdicts,
    recorded: &RecordedTime,
) -> Vec<String> {
    let is_failed = |verdict: Verdict| verdict != Verdict::NotRun && failing.contains(verdict);
    let share = |is_counted: &dyn Fn(Verdict) -> bool| {
        let counted = findings.iter().filter(|(_, outcome)| is_counted(outcome.verdict));
        let share = recorded.share(counted.map(|(case, _)| case.id()));
        share.map_or_else(String::new, |share| format!(", {:.2} % of the recorded time", 100.0 * share))
    };
    let mut verdicts: BTreeMap<Verdict, usize> = BTreeMap::new();
    let mut without_entry: BTreeMap<&KernelName, usize> = BTreeMap::new();
    for (case, outcome) in findings {
        *verdicts.entry(outcome.verdict).or_default() += 1;
        if outcome.verdict == Verdict::NoEntry {
            *without_entry.entry(&case.kernel).or_default() += 1;
        }
    }
    let failed: Vec<(&Verdict, &usize)> =
        verdicts.iter().filter(|(verdict, _)| is_failed(**verdict)).collect();
    let all = format_count(findings.len(), "case");
    let mut lines = vec![if findings.is_empty() {
        "no case was left to measure".to_owned()
    } else if failed.is_empty() {
        format!("failed: none of {all}")
    } else {
        let count: usize = failed.iter().map(|(_, count)| **count).sum();
        let words: Vec<String> = failed.iter().map(|(verdict, count)| format!("{count} {verdict}")).collect();
        format!("failed: {count} of {all}{}: {}", share(&is_failed), words.join(", "))
    }];
    if let Some(count) = verdicts.get(&Verdict::NotRun) {
        let share = share(&|verdict| verdict == Verdict::NotRun);
        lines.push(format!("not run: {}{share}", format_count(*count, "case")));
    }
    if let Some(count) = verdicts.get(&Verdict::NoEntry) {
        let share = share(&|verdict| verdict == Verdict::NoEntry);
        let named = without_entry.iter().take(MOST_KERNELS);
        let mut kernels =
            named.map(|(kernel, count)| format!("{kernel} {count}")).collect::<Vec<_>>().join(", ");
        let others = without_entry.len().saturating_sub(MOST_KERNELS);
        if others > 0 {
            kernels += &format!(" and {}", format_count(others, "other kernel"));
        }
        let fails = if failing.contains(Verdict::NoEntry) {
            ""
        } else {
            "; they do not count as failed without `--require-entries`"
        };
        lines.push(format!(
            "without a catalogue entry: {}{share}: {kernels}{fails}",
            format_count(*count, "case")
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_without_any_case_states_it() {
        let lines = failure_lines(&[], &FailingVerdicts::default(), &RecordedTime::default());
        assert_eq!(lines, ["no case was left to measure"]);
    }

    #[test]
    fn cases_without_an_entry_have_a_line_of_their_own() {
        let case = IdentifiedCase::without_tensors;
        let verdicts = [
            ("Add", Verdict::Ok),
            ("Mul", Verdict::RanAsOther),
            ("Cast", Verdict::Noisy),
            ("Mystery", Verdict::NoEntry),
            ("Sub", Verdict::NotRun),
        ];
        let mut findings: Vec<_> =
            verdicts.map(|(kernel, verdict)| (case(kernel), CaseOutcome::new(verdict, ""))).to_vec();
        let mut recorded = RecordedTime::default();
        let mut failing = FailingVerdicts::default();
        let mut texts = vec![failure_lines(&findings, &failing, &recorded).join("\n")];
        for ((case, _), seconds) in findings.iter().zip([4.0, 3.0, 2.0, 0.5, 0.5]) {
            recorded.add_row(case.id(), seconds);
        }
        failing.add(Verdict::NoEntry);
        texts.push(failure_lines(&findings, &failing, &recorded).join("\n"));
        findings.truncate(2);
        texts.push(failure_lines(&findings, &failing, &recorded).join("\n"));
        insta::assert_snapshot!(texts.join("\n---\n"), @r"
        failed: 1 of 5 cases: 1 noisy
        not run: 1 case
        without a catalogue entry: 1 case: Mystery 1; they do not count as failed without `--require-entries`
        ---
        failed: 2 of 5 cases, 25.00 % of the recorded time: 1 noisy, 1 no_entry
        not run: 1 case, 5.00 % of the recorded time
        without a catalogue entry: 1 case, 5.00 % of the recorded time: Mystery 1
        ---
        failed: none of 2 cases
        ");
    }
}
