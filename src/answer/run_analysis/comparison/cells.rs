//! Cells, lines and filters that the forms of a comparison share.

use crate::{
    base::count_text::format_count,
    profile::timeline::{ComparedPart, ComparedRow, TimeSum},
};

/// Returns a difference with its sign; one that is rounded to 0 has none.
pub(super) fn signed(value: String) -> String {
    let digits = value.trim_start_matches('-');
    if digits.bytes().all(|byte| matches!(byte, b'0' | b'.')) {
        return digits.to_owned();
    }
    if value.starts_with('-') { value } else { format!("+{value}") }
}

/// Returns the line below a table that leaves out this number of rows; empty for none.
pub(super) fn more_rows(more: usize) -> String {
    match more {
        0 => String::new(),
        _ => format!("{}: `--rows N`, `--format csv` or `--html FILE`\n", format_count(more, "more row")),
    }
}

/// Returns a total in the unit of its table.
pub(super) fn amount(part: ComparedPart, total: f64) -> String {
    match part {
        ComparedPart::Memory => format!("{:.3}", total / 1_048_576.0),
        _ => format!("{:.3}", total / 1e6),
    }
}

pub(super) fn amount_cell(part: ComparedPart, sum: Option<TimeSum>) -> String {
    sum.map_or_else(|| "-".to_owned(), |sum| amount(part, sum.total))
}

/// Additional columns of calls of the host: the time without the calls inside.
pub(super) const SELF_COLUMNS: [&str; 2] = ["base self", "other self"];

pub(super) fn self_cell(sum: Option<TimeSum>) -> String {
    let time = sum.and_then(|sum| sum.self_total);
    time.map_or_else(|| "-".to_owned(), |time| amount(ComparedPart::HostCall, time))
}

pub(super) fn calls_cell(sum: Option<TimeSum>) -> String {
    match sum {
        Some(sum) if sum.calls > 0.0 => format!("{}", (sum.calls * 100.0).round() / 100.0),
        _ => "-".to_owned(),
    }
}

pub(super) fn ratio_cell(row: &ComparedRow) -> String {
    row.ratio().map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.4}"))
}

/// Returns true for a row in which something was recorded: operators without kernels have only calls.
pub(super) fn has_amount(row: &ComparedRow) -> bool {
    let total = |sum: Option<TimeSum>| sum.is_some_and(|sum| sum.total != 0.0);
    total(row.base) || total(row.other)
}
