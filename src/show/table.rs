//! Tables that fit the width of a terminal: columns are shortened, then left out.

use std::fmt::{Display, Write as _};

use crate::base::{
    print::{TextStyle, painted},
    printable::printable_cell,
};

const GAP: &str = "...";
/// Smallest rank of columns of details, which are left out before the wanted widths of others become smaller.
pub(crate) const DETAIL: u8 = 5;
const SPACE: usize = 2;
const INDENT: usize = 4;

/// Room of a column: how it gives way on a narrow terminal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Columns with greater ranks are left out first; those with 0 never.
    rank: u8,
    /// Width to which cells may be shortened in the middle; `None` if they are never shortened.
    min: Option<usize>,
    /// Width to which cells are not shortened for columns of details.
    wanted: usize,
    /// True if the header may be shortened as well, such as a name that a user has chosen.
    has_long_header: bool,
}

pub(crate) const fn rank(rank: u8) -> Room {
    Room { rank, min: None, wanted: 0, has_long_header: false }
}

impl Room {
    pub(crate) const fn min(self, min: usize) -> Self {
        Self { min: Some(min), ..self }
    }

    pub(crate) const fn wanted(self, wanted: usize) -> Self {
        Self { wanted, ..self }
    }

    pub(crate) const fn with_long_header(self) -> Self {
        Self { has_long_header: true, ..self }
    }
}

impl From<u8> for Room {
    fn from(number: u8) -> Self {
        rank(number)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub(crate) header: String,
    pub(crate) is_number: bool,
    room: Room,
    /// Texts of all cells, so that a column of many rows has two allocations.
    text: String,
    ends: Vec<usize>,
    /// Styles of the cells; empty without styles.
    styles: Vec<TextStyle>,
    /// For each row, true if the cell is printed below it when the column is left out; empty if none is.
    below: Vec<bool>,
}

impl Column {
    pub(crate) fn cell(&self, row: usize) -> &str {
        let start = if row == 0 { 0 } else { self.ends[row - 1] };
        &self.text[start..self.ends[row]]
    }

    pub(crate) const fn rows(&self) -> usize {
        self.ends.len()
    }

    fn wanted_width(&self, width: usize) -> usize {
        self.room.wanted.min(width).max(self.min_width(width))
    }

    /// Returns the width to which a column that needs `width` can be shortened.
    fn min_width(&self, width: usize) -> usize {
        let header = if self.room.has_long_header { 0 } else { self.header.chars().count() };
        self.room.min.map_or(width, |min| min.max(header).min(width))
    }
}

/// A table without borders of rows, from which each column makes its cells.
#[derive(Clone, Debug)]
pub(crate) struct Table<T> {
    rows: Vec<T>,
    pub(crate) columns: Vec<Column>,
}

impl<T: Copy> Table<T> {
    pub(crate) fn new(rows: impl IntoIterator<Item = T>) -> Self {
        Self { rows: rows.into_iter().collect(), columns: Vec::new() }
    }

    pub(crate) fn text<S: Display>(
        self,
        header: impl Into<String>,
        room: impl Into<Room>,
        cell: impl FnMut(T) -> S,
    ) -> Self {
        self.column(&header.into(), false, room.into(), cell)
    }

    pub(crate) fn number<S: Display>(
        self,
        header: impl Into<String>,
        room: impl Into<Room>,
        cell: impl FnMut(T) -> S,
    ) -> Self {
        self.column(&header.into(), true, room.into(), cell)
    }

    fn column<S: Display>(
        mut self,
        header: &str,
        is_number: bool,
        room: Room,
        mut cell: impl FnMut(T) -> S,
    ) -> Self {
        let header = printable_cell(header).into_owned();
        let mut text = String::new();
        let ends = self.rows.iter().map(|row| {
            text.push_str(&printable_cell(&cell(*row).to_string()));
            text.len()
        });
        let ends = ends.collect();
        let (styles, below) = (Vec::new(), Vec::new());
        self.columns.push(Column { header, is_number, room, text, ends, styles, below });
        self
    }

    pub(crate) fn styled(mut self, style: impl FnMut(T) -> TextStyle) -> Self {
        if let Some(column) = self.columns.last_mut() {
            column.styles = self.rows.iter().copied().map(style).collect();
        }
        self
    }

    /// Prints cells of the last column below their rows when it is left out, in rows for which `is_below` is true.
    pub(crate) fn below(mut self, is_below: impl FnMut(T) -> bool) -> Self {
        if let Some(column) = self.columns.last_mut() {
            column.below = self.rows.iter().copied().map(is_below).collect();
        }
        self
    }

    pub(crate) fn without_details(mut self) -> Self {
        self.columns.retain(|column| column.room.rank < DETAIL);
        self
    }

    pub(crate) fn print(&self, width: Option<usize>) -> String {
        columns_text(&self.columns, width)
    }
}

#[derive(Clone, Copy, Debug)]
struct PlacedColumn<'c> {
    column: &'c Column,
    width: usize,
}

/// Returns a table as text, which is empty without rows. Columns without any content are left out; `width` limits the lines as far
/// as the columns that are never left out allow, `None` does not.
pub(crate) fn columns_text(columns: &[Column], width: Option<usize>) -> String {
    let rows = columns.first().map_or(0, Column::rows);
    if rows == 0 {
        return String::new();
    }
    let placed = place_columns(columns, width);
    let mut text = String::new();
    push_line(&mut text, &placed, |column| (&column.header, None));
    let is_left_out = |below: &&Column| !placed.iter().any(|one| std::ptr::eq(one.column, *below));
    let below = columns.iter().find(|column| !column.below.is_empty()).filter(is_left_out);
    for row in 0..rows {
        push_line(&mut text, &placed, |column| (column.cell(row), column.styles.get(row).copied()));
        let line = below.filter(|below| below.below[row]).map(|below| below.cell(row));
        if let Some(line) = line.filter(|line| !line.is_empty()) {
            let room = width.map_or(usize::MAX, |width| width.saturating_sub(INDENT).max(GAP.len() + 1));
            let _ = writeln!(text, "{:INDENT$}{}", "", cut_at_end(line, room));
        }
    }
    text
}

fn place_columns(columns: &[Column], width: Option<usize>) -> Vec<PlacedColumn<'_>> {
    let mut placed: Vec<PlacedColumn<'_>> = Vec::new();
    for column in columns {
        let longest =
            (0..column.rows()).map(|row| column.cell(row).chars().count()).max().unwrap_or_default();
        if longest > 0 {
            placed.push(PlacedColumn { column, width: longest.max(column.header.chars().count()) });
        }
    }
    let Some(width) = width else { return placed };
    leave_out(&mut placed, DETAIL, width, Column::wanted_width);
    leave_out(&mut placed, 1, width, Column::min_width);
    // The widest of the columns that can be shortened gives way.
    while total_width(&placed, |_, width| width) > width {
        let can_shrink = |one: &&mut PlacedColumn<'_>| one.width > one.column.min_width(one.width);
        let Some(widest) = placed.iter_mut().filter(can_shrink).max_by_key(|one| one.width) else { break };
        widest.width -= 1;
    }
    placed
}

/// Leaves out the columns of the greatest ranks, down to `lowest`, while those that are left need more than `width`.
fn leave_out(
    placed: &mut Vec<PlacedColumn<'_>>,
    lowest: u8,
    width: usize,
    needed: impl Fn(&Column, usize) -> usize + Copy,
) {
    while total_width(placed, needed) > width {
        let rank = |one: &PlacedColumn<'_>| one.column.room.rank;
        match placed.iter().enumerate().max_by_key(|(place, one)| (rank(one), *place)) {
            Some((place, last)) if rank(last) >= lowest => placed.remove(place),
            _ => break,
        };
    }
}

fn total_width(placed: &[PlacedColumn<'_>], width: impl Fn(&Column, usize) -> usize) -> usize {
    let cells: usize = placed.iter().map(|one| width(one.column, one.width)).sum();
    1 + cells + SPACE * placed.len().saturating_sub(1)
}

fn push_line<'c>(
    text: &mut String,
    placed: &[PlacedColumn<'c>],
    cell: impl Fn(&'c Column) -> (&'c str, Option<TextStyle>),
) {
    let mut spaces = 1;
    for PlacedColumn { column, width } in placed {
        let (full, style) = cell(column);
        let shown = cut_in_middle(full, *width);
        let free = width.saturating_sub(shown.chars().count());
        let (before, after) = if column.is_number { (free, 0) } else { (0, free) };
        spaces += before;
        if !shown.is_empty() {
            text.push_str(&" ".repeat(spaces));
            spaces = 0;
            text.push_str(&style.map_or(shown.clone(), |style| painted(&shown, style)));
        }
        spaces += after + SPACE;
    }
    text.push('\n');
}

pub(crate) fn cut_in_middle(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width || width <= GAP.len() {
        return text.chars().take(width).collect();
    }
    let rest = width - GAP.len();
    let end = rest / 2;
    let start: String = text.chars().take(rest - end).collect();
    let end: String = text.chars().skip(length - end).collect();
    format!("{start}{GAP}{end}")
}

fn cut_at_end(text: &str, width: usize) -> String {
    let line = text.lines().next().unwrap_or_default();
    if line.chars().count() <= width {
        return line.to_owned();
    }
    let start: String = line.chars().take(width.saturating_sub(GAP.len())).collect();
    format!("{start}{GAP}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(is_painted: bool) -> Table<[&'static str; 5]> {
        let rows = [
            ["Add", "1.25", "", "4096;4096", "steady"],
            ["FusedInferAttentionScore", "", "", "1,2,3,4,5,6,7,8,9,10", "the process ended early"],
        ];
        let table = Table::new(rows).text("name", rank(0).min(6), |row| row[0]);
        let table = if is_painted { table.styled(|_| TextStyle::Bad) } else { table };
        table
            .number("us", 0, |row| row[1])
            .number("never", 9, |row| row[2])
            .text("shape", rank(1).min(8), |row| row[3])
            .text("reason", rank(2).min(10), |row| row[4])
            .below(|row| row[0] != "Add")
    }

    #[test]
    fn columns_are_shortened_before_they_are_left_out() {
        let all = [None, Some(60), Some(44), Some(30), Some(5)].map(|width| table(false).print(width));
        insta::assert_snapshot!(all.join("-\n"), @r"
         name                        us  shape                 reason
         Add                       1.25  4096;4096             steady
         FusedInferAttentionScore        1,2,3,4,5,6,7,8,9,10  the process ended early
        -
         name                 us  shape             reason
         Add                1.25  4096;4096         steady
         FusedIn...onScore        1,2,3,4...8,9,10  the pro... early
        -
         name           us  shape        reason
         Add          1.25  4096;4096    steady
         Fuse...core        1,2,...9,10  the ...arly
        -
         name           us  shape
         Add          1.25  4096;4096
         Fuse...core        1,2,...,10
            the process ended early
        -
         name      us
         Add     1.25
         Fu...e
            t...
        ");
    }

    #[test]
    fn no_line_is_longer_than_the_width() {
        for width in 30..120 {
            let text = table(false).print(Some(width));
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}: {text}");
        }
    }

    #[test]
    fn headers_that_users_choose_are_shortened() {
        let room = rank(0).min(8).with_long_header();
        let table = Table::new([7.5]).number("a/long/path/of/a/profile", room, |us: f64| us);
        assert_eq!(table.print(Some(12)), " a/lo...file\n         7.5\n");
    }

    #[test]
    fn styles_do_not_change_the_columns() {
        let (plain, painted) = (table(false).print(Some(60)), table(true).print(Some(60)));
        assert!(painted.contains("\u{1b}["), "{painted}");
        let mut without = painted;
        for code in ["\u{1b}[31m", "\u{1b}[0m"] {
            without = without.replace(code, "");
        }
        assert_eq!(without, plain);
    }

    #[test]
    fn both_ends_of_a_long_text_are_kept() {
        let cut = [2, 3, 4, 9, 10, 26].map(|width| cut_in_middle("abcdefghijklmnopqrstuvwxyz", width));
        assert_eq!(cut, ["ab", "abc", "a...", "abc...xyz", "abcd...xyz", "abcdefghijklmnopqrstuvwxyz"]);
        assert_eq!(cut_in_middle("µµµµµµ", 5), "µ...µ");
    }
}
