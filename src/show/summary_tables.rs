//! Tables of the kernels of the catalogue and of the rules.

use crate::{
    kernel::catalogue::Catalogue,
    measure::verify::VerificationRule,
    show::table::{FittedColumn, FittedRow, FittedTable},
};

/// Returns a table of the kernels of a catalogue: API, method of the vendor check, rehearsal, requirements.
pub(crate) fn kernels_table(catalogue: &Catalogue, width: Option<usize>) -> String {
    let columns = vec![
        FittedColumn::text("kernel", 0).shortened_to(12),
        FittedColumn::text("launched by", 1).shortened_to(16),
        FittedColumn::text("checked by", 3),
        FittedColumn::text("launchable", 2),
        FittedColumn::text("needs", 4).shortened_to(16),
    ];
    let mut rows = Vec::new();
    for entry in catalogue.entries() {
        let launchable = if entry.can_be_launched() { "yes" } else { "no" };
        let cells = [
            entry.kernel.as_str().to_owned(),
            entry.main_operator().api.clone(),
            entry.check_method.as_str().to_owned(),
            launchable.to_owned(),
            entry.needs.words().join(", "),
        ];
        rows.push(FittedRow::from_cells(&cells));
    }
    FittedTable { columns, rows, ..FittedTable::default() }.print(width, false)
}

/// Returns a table of the rules by which measurements are judged.
pub(crate) fn rules_table(rules: &[VerificationRule], width: Option<usize>) -> String {
    let columns = vec![
        FittedColumn::text("rule", 0).shortened_to(16),
        FittedColumn::text("of", 2),
        FittedColumn::text("verdict", 0),
        FittedColumn::text("condition of ok", 1).shortened_to(60),
    ];
    let row = |rule: &VerificationRule| {
        let VerificationRule { rule, scope, verdict, condition } = rule;
        let cells = [(*rule).to_owned(), scope.to_string(), verdict.to_string(), condition.clone()];
        FittedRow { has_line_below: true, ..FittedRow::from_cells(&cells) }
    };
    let rows = rules.iter().map(row).collect();
    FittedTable { columns, rows, below: Some(3), ..FittedTable::default() }.print(width, false)
}
