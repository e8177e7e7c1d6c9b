//! What is printed at the end of a run: tables of its cases, lines about failures, and the next command.

use super::{
    cases::{CaseTables, shown_cases},
    prelude::*,
    terminal::output_width,
};
use crate::{
    base::{
        exit::ExitStatus, print::output_has_colors, shell_argument::quoted_path, stats::median_of_floats,
    },
    cases::plan::RecordedTime,
    database::ledger::LedgerError,
    kernel::{CaseOutcome, FailingVerdicts, IdentifiedCase, render::ScriptCommunication},
    measure::{
        case_numbers::CaseNumbers,
        events::RunEnd,
        evidence::{ProductionStates, clock_limits},
    },
};

/// Returns a table of cases by kernel and verdict, with totals and the medians of their numbers; verdicts that did not occur have no
/// column.
fn verdict_table(
    findings: &[(IdentifiedCase, CaseOutcome)],
    numbers: &RunNumbers,
    width: Option<usize>,
) -> String {
    let mut all: Vec<(&KernelName, Verdict, CaseNumbers)> = findings
        .iter()
        .map(|(case, outcome)| (&case.kernel, outcome.verdict, numbers.of_case(case.id())))
        .collect();
    all.sort_by_key(|(kernel, ..)| *kernel);
    let kernels = all.chunk_by(|(one, ..), (other, ..)| one == other);
    let rows = kernels.map(|found| (found[0].0.as_str(), found)).chain([("all", all.as_slice())]);
    let mut table =
        Table::new(rows)
            .text("kernel", rank(0).min(8), |(name, _)| name)
            .number("cases", 0, |(_, found)| unless_zero(found.len()));
    for verdict in all.iter().map(|(_, verdict, _)| *verdict).collect::<BTreeSet<_>>() {
        let count = |found: &[(_, Verdict, _)]| found.iter().filter(|(_, of, _)| *of == verdict).count();
        table = table.number(verdict.as_str(), 0, |(_, found)| unless_zero(count(found)));
    }
    let median = |found: &[(_, _, CaseNumbers)], of: fn(&CaseNumbers) -> Option<f64>| {
        median_of_floats(&mut found.iter().filter_map(|(.., numbers)| of(numbers)).collect::<Vec<_>>())
    };
    let half = |value: Option<f64>| or_empty(value.map(|half| format!("{half:.2}")));
    let change = |value: Option<f64>| or_empty(value.map(|value| signed(value, 1)));
    table
        .number("+-%", 1, |(_, found)| half(median(found, CaseNumbers::half_width_percent)))
        .number("change %", 3, |(_, found)| change(median(found, CaseNumbers::change_percent)))
        .number("prod %", 2, |(_, found)| change(median(found, CaseNumbers::production_percent)))
        .print(width)
}

pub(super) fn print_run_end(end: &RunEnd<'_>) {
    let RunEnd { recorded, database, ledger, run, folder, options, outcome, nodes, elapsed } = *end;
    if !outcome.outcomes.is_empty() {
        match run_end_tables(database, ledger, (run, folder, options.cache), &outcome.outcomes) {
            Ok(tables) => print_data(&tables),
            // The results are stored.
            Err(error) => print_warning(&format!("the cases cannot be shown: {error}")),
        }
    }
    if !outcome.outcomes.is_empty() || !outcome.is_stopped {
        let lines = failure_lines(&outcome.outcomes, &options.failing, recorded);
        lines.iter().for_each(|line| print_note(line));
    }
    print_note(&format!("{} elapsed", format_clock(elapsed.as_secs_f64())));
    let is_gloo =
        options.sweep.as_ref().is_some_and(|sweep| sweep.communication == ScriptCommunication::Gloo);
    let mark = match database.kind() {
        DataKind::Rehearsal if is_gloo => " (rehearsal: times of the CPU of this host)",
        kind => kind.mark(),
    };
    if outcome.has_written_rows {
        print_note(&format!("rows are in {}{mark}", database.folder().display()));
    }
    let db = quoted_path(database.folder());
    if !outcome.unwritten.is_empty() {
        print_note(&format!(
            "rows of {} could not be written: repair or restore the tables, then `npubench run --db {db}` \
             writes the results from the ledger",
            joined(&outcome.unwritten, ", ")
        ));
    }
    match ProductionStates::read(database) {
        Ok(states) => states.iter().for_each(|states| print_note(&states.to_string())),
        Err(error) => print_warning(&format!("the state of the cache in production is unknown: {error}")),
    }
    match clock_limits(ledger, run) {
        Ok(limits) => limits.iter().for_each(|line| print_note(line)),
        Err(error) => print_warning(&format!("the limits of the clocks are unknown: {error}")),
    }
    print_note(&format!("scripts, logs and raw output are in {}", folder.display()));
    let again = match options.sweep {
        Some(_) => format!("`npubench resume --db {db}`"),
        None => format!("`npubench run --db {db}`"),
    };
    match (outcome.exit, nodes) {
        (ExitStatus::Interrupted, Some(nodes)) => {
            nodes.cluster.node_failures().iter().for_each(|line| print_note(line));
            print_note("the same command on all nodes measures what is missing");
        }
        (ExitStatus::Interrupted, None) => {
            print_note(&format!("`npubench resume --db {db}` continues this run"));
        }
        (ExitStatus::CannotMeasure, _) => print_note(&format!(
            "this host cannot measure: no collection launched a case and left a readable profile; the last \
             reasons are above, the scripts' output is in `collections` of that folder, and `npubench doctor \
             --db {db}` checks the host. After a repair, {again} measures what is missing"
        )),
        _ => {}
    }
}

/// Returns the tables at the end of a run with this folder: verdicts and numbers by kernel, then its measured cases if they are few,
/// else the slowest and those that deviate most. Fails with [`LedgerError`] if the ledger cannot be read.
fn run_end_tables(
    database: &Database,
    ledger: &Ledger,
    (run, folder, cache): (&str, &Path, CacheState),
    findings: &[(IdentifiedCase, CaseOutcome)],
) -> Result<String, LedgerError> {
    let records = ledger.run_cases(run)?;
    let numbers = RunNumbers::read(database, ledger, (run, folder, cache), &records)?;
    let width = output_width();
    let verdicts = verdict_table(findings, &numbers, width);
    let cases = shown_cases(records, &numbers, folder);
    let cases =
        CaseTables { cases: &cases, folder, width, is_painted: output_has_colors() }.measured_or_notable();
    Ok(if cases.is_empty() { verdicts } else { format!("{verdicts}\n{}\n", cases.trim_end()) })
}

const MAX_KERNELS: usize = 8;

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
        or_empty(share.map(|share| format!(", {:.2} % of the recorded time", 100.0 * share)))
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
        format!("failed: {count} of {all}{}: {}", share(&is_failed), counted(failed))
    }];
    if let Some(count) = verdicts.get(&Verdict::NotRun) {
        let share = share(&|verdict| verdict == Verdict::NotRun);
        lines.push(format!("not run: {}{share}", format_count(*count, "case")));
    }
    if let Some(count) = verdicts.get(&Verdict::NoEntry) {
        let share = share(&|verdict| verdict == Verdict::NoEntry);
        let mut kernels = with_counts(without_entry.iter().take(MAX_KERNELS));
        let others = without_entry.len().saturating_sub(MAX_KERNELS);
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
    fn only_verdicts_that_occur_have_columns() {
        let case = IdentifiedCase::without_tensors;
        let findings = [
            (case("MatMulV2"), CaseOutcome::new(Verdict::Ok, "")),
            (case("MatMulV2"), CaseOutcome::new(Verdict::Noisy, "")),
            (case("Cast"), CaseOutcome::new(Verdict::Unsupported, "")),
        ];
        insta::assert_snapshot!(verdict_table(&findings, &RunNumbers::default(), None), @r"
         kernel    cases  ok  noisy  unsupported
         Cast          1                       1
         MatMulV2      2   1      1
         all           3   1      1            1
        ");
    }

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
