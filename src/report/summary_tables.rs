//! Tables of the verdicts at the end of a run and of the kernels of the catalogue.

use std::collections::BTreeMap;

use comfy_table::{Cell, CellAlignment, Row, Table, presets::NOTHING};

use crate::{
    catalogue::Catalogue,
    domain::{CaseOutcome, IdentifiedCase, KernelName, Verdict},
    verify::VerificationRule,
};

/// Returns a table of cases by kernel and verdict, with totals; verdicts that did not occur have no column.
pub(crate) fn verdict_table(findings: &[(IdentifiedCase, CaseOutcome)]) -> String {
    let mut counts: BTreeMap<&KernelName, BTreeMap<Verdict, usize>> = BTreeMap::new();
    for (case, outcome) in findings {
        *counts.entry(&case.kernel).or_default().entry(outcome.verdict).or_default() += 1;
    }
    let occurs = |verdict: &&Verdict| counts.values().any(|row| row.contains_key(verdict));
    let verdicts: Vec<Verdict> = Verdict::ALL.iter().filter(occurs).copied().collect();
    let header = ["kernel".to_owned(), "cases".to_owned()];
    let mut table = plain_table(header.into_iter().chain(verdicts.iter().map(ToString::to_string)));
    let row = |name: &str, count: &dyn Fn(Option<Verdict>) -> usize| {
        let numbers =
            std::iter::once(count(None)).chain(verdicts.iter().map(|&verdict| count(Some(verdict))));
        let cells = numbers.map(|number| if number == 0 { String::new() } else { number.to_string() });
        std::iter::once(name.to_owned()).chain(cells).map(Cell::new).collect::<Vec<_>>()
    };
    for (kernel, by_verdict) in &counts {
        table.add_row(row(kernel.as_str(), &|verdict| match verdict {
            None => by_verdict.values().sum(),
            Some(verdict) => by_verdict.get(&verdict).copied().unwrap_or_default(),
        }));
    }
    table.add_row(row("all", &|verdict| {
        findings.iter().filter(|(_, outcome)| verdict.is_none_or(|wanted| outcome.verdict == wanted)).count()
    }));
    align_right(&mut table, 1..);
    table.trim_fmt() + "\n"
}

/// Returns a table of the kernels of a catalogue: API, method of the vendor check, rehearsal, requirements.
pub(crate) fn kernels_table(catalogue: &Catalogue) -> String {
    let mut table = plain_table(["kernel", "launched by", "checked by", "launchable", "needs"]);
    for entry in catalogue.entries() {
        let launchable = if entry.can_be_launched() { "yes" } else { "no" };
        let cells = [
            entry.kernel.as_str().to_owned(),
            entry.main_operator().api.clone(),
            entry.check_method.as_str().to_owned(),
            launchable.to_owned(),
            entry.needs.words().join(", "),
        ];
        table.add_row(cells);
    }
    table.trim_fmt() + "\n"
}

/// Returns a table of the rules by which measurements are judged.
pub(crate) fn rules_table(rules: &[VerificationRule]) -> String {
    let mut table = plain_table(["rule", "of", "verdict", "condition of ok"]);
    for VerificationRule { rule, scope, verdict, condition } in rules {
        table.add_row([(*rule).to_owned(), scope.to_string(), verdict.to_string(), condition.clone()]);
    }
    trim_lines(&table)
}

/// Returns a table without borders.
pub(crate) fn plain_table(header: impl Into<Row>) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING);
    table.set_header(header);
    table
}

/// Aligns columns to the right, up to the first index that does not exist.
pub(crate) fn align_right(table: &mut Table, columns: impl IntoIterator<Item = usize>) {
    for index in columns {
        let Some(column) = table.column_mut(index) else { return };
        column.set_cell_alignment(CellAlignment::Right);
    }
}

/// Returns the text of a table without trailing spaces.
pub(crate) fn trim_lines(table: &Table) -> String {
    table.trim_fmt().lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{Case, CaseAttributes};

    #[test]
    fn only_verdicts_that_occur_have_columns() {
        let case = |kernel: &str| {
            IdentifiedCase::new(Case {
                kernel: KernelName::new(kernel).expect("a name"),
                inputs: Vec::new(),
                outputs: Vec::new(),
                attributes: CaseAttributes::default(),
            })
        };
        let findings = [
            (case("MatMulV2"), CaseOutcome::new(Verdict::Ok, "")),
            (case("MatMulV2"), CaseOutcome::new(Verdict::Noisy, "")),
            (case("Cast"), CaseOutcome::new(Verdict::Unsupported, "")),
        ];
        insta::assert_snapshot!(verdict_table(&findings), @r"
         kernel    cases  ok  noisy  unsupported
         Cast          1                       1
         MatMulV2      2   1      1
         all           3   1      1            1
        ");
    }
}
