//! `npubench rules`.

use crate::{
    measure::verify::VerificationRule,
    show::table::{FittedColumn, FittedRow, FittedTable},
};

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
