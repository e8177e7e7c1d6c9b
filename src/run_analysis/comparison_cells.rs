//! Text that the tables of a comparison share.

/// Returns a difference with its sign; one that is rounded to 0 has none.
pub(super) fn signed(value: String) -> String {
    let digits = value.trim_start_matches('-');
    if digits.bytes().all(|byte| matches!(byte, b'0' | b'.')) {
        return digits.to_owned();
    }
    if value.starts_with('-') { value } else { format!("+{value}") }
}

/// Returns the line below a table that leaves out rows.
pub(super) fn more_rows(more: usize) -> String {
    format!("{more} more rows: `--rows N`, `--format csv` or `--html FILE`\n")
}
