//! Tables of the kernels of the catalogue and of the rules; tables without borders.

use comfy_table::{CellAlignment, Row, Table, presets::NOTHING};

use crate::{catalogue::Catalogue, verify::VerificationRule};

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
