//! Tables that fit the width of a terminal: columns are shortened, then left out.

use crate::base::print::{TextStyle, painted};

/// Text in place of what is left out of a cell.
const GAP: &str = "...";
/// Least rank of columns of details, which are left out before the wanted widths of others become smaller.
pub(crate) const DETAIL: u8 = 5;
/// Spaces between two columns.
const SPACE: usize = 2;
/// Spaces in front of a line below a row.
const INDENT: usize = 4;

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FittedColumn<'a> {
    pub(crate) header: &'a str,
    /// True if cells are aligned to the right.
    pub(crate) is_number: bool,
    /// Width to which cells may be shortened in the middle; `None` if they are never shortened.
    pub(crate) least: Option<usize>,
    /// True if the header may be shortened as well, such as a name that a user has chosen.
    pub(crate) has_long_header: bool,
    /// Width to which cells are not shortened for columns of details.
    pub(crate) wanted: usize,
    /// Columns with greater numbers are left out first; those with 0 never.
    pub(crate) rank: u8,
}

impl<'a> FittedColumn<'a> {
    pub(crate) const fn text(header: &'a str, rank: u8) -> Self {
        Self { header, is_number: false, least: None, has_long_header: false, wanted: 0, rank }
    }

    pub(crate) const fn number(header: &'a str, rank: u8) -> Self {
        Self { is_number: true, ..Self::text(header, rank) }
    }

    pub(crate) const fn with_long_header(self) -> Self {
        Self { has_long_header: true, ..self }
    }

    pub(crate) const fn shortened_to(self, least: usize) -> Self {
        Self { least: Some(least), ..self }
    }

    pub(crate) const fn wanted(self, wanted: usize) -> Self {
        Self { wanted, ..self }
    }
}

/// A row of a table, with a cell for each column.
#[derive(Clone, Debug, Default)]
pub(crate) struct FittedRow {
    /// Texts of all cells, so that a row has two allocations.
    pub(crate) text: String,
    /// Ends of the cells in the text.
    pub(crate) ends: Vec<usize>,
    /// Style of the cell in [`FittedTable::styled`].
    pub(crate) style: Option<TextStyle>,
    /// True if the cell of [`FittedTable::below`] is printed below the row when its column is left out.
    pub(crate) has_line_below: bool,
}

impl FittedRow {
    /// Creates a row without style.
    pub(crate) fn from_cells(cells: &[String]) -> Self {
        let mut end = 0;
        let ends = cells.iter().map(|cell| {
            end += cell.len();
            end
        });
        Self { ends: ends.collect(), text: cells.concat(), ..Self::default() }
    }

    /// Returns a cell; empty if the row is shorter.
    pub(crate) fn cell(&self, index: usize) -> &str {
        let start = index.checked_sub(1).map_or(Some(0), |before| self.ends.get(before).copied());
        let range = start.zip(self.ends.get(index).copied());
        range.and_then(|(start, end)| self.text.get(start..end)).unwrap_or_default()
    }
}

/// A table without borders.
#[derive(Clone, Debug, Default)]
pub(crate) struct FittedTable<'a> {
    pub(crate) columns: Vec<FittedColumn<'a>>,
    pub(crate) rows: Vec<FittedRow>,
    /// Index of the column with a style.
    pub(crate) styled: Option<usize>,
    /// Index of the column whose cells may stand below their rows.
    pub(crate) below: Option<usize>,
}

/// Returns the text of a table without styles.
pub(crate) fn fitted_text(
    columns: Vec<FittedColumn<'_>>,
    rows: impl IntoIterator<Item = Vec<String>>,
    width: Option<usize>,
) -> String {
    let rows = rows.into_iter().map(|cells| FittedRow::from_cells(&cells)).collect();
    FittedTable { columns, rows, ..FittedTable::default() }.print(width, false)
}

/// A column that is printed, and its width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PlacedColumn {
    index: usize,
    width: usize,
}

impl FittedTable<'_> {
    /// Returns the text, which is empty without rows. Columns without any content are left out; `width` limits the lines as far as
    /// the columns that are never left out allow, `None` does not.
    pub(crate) fn print(&self, width: Option<usize>, is_painted: bool) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let placed = self.place_columns(width);
        let mut text = String::new();
        let headers: Vec<&str> = self.columns.iter().map(|column| column.header).collect();
        self.push_line(&mut text, &placed, |index| headers[index], None);
        let below = self.below.filter(|below| !placed.iter().any(|column| column.index == *below));
        for row in &self.rows {
            let style = row.style.filter(|_| is_painted);
            self.push_line(&mut text, &placed, |index| row.cell(index), style);
            let line = below.filter(|_| row.has_line_below).map(|below| row.cell(below));
            if let Some(line) = line.filter(|line| !line.is_empty()) {
                let room = width.map_or(usize::MAX, |width| width.saturating_sub(INDENT).max(GAP.len() + 1));
                text.push_str(&" ".repeat(INDENT));
                text.push_str(&cut_at_end(line, room));
                text.push('\n');
            }
        }
        text
    }

    /// Returns the columns that fit with their widths.
    fn place_columns(&self, width: Option<usize>) -> Vec<PlacedColumn> {
        let mut placed: Vec<PlacedColumn> = Vec::new();
        for (index, column) in self.columns.iter().enumerate() {
            let cells = self.rows.iter().map(|row| row.cell(index));
            let longest = cells.map(|cell| cell.chars().count()).max().unwrap_or_default();
            if longest > 0 {
                placed.push(PlacedColumn { index, width: longest.max(column.header.chars().count()) });
            }
        }
        let Some(width) = width else { return placed };
        self.leave_out(&mut placed, DETAIL, |placed| {
            total_width(placed, |column| self.wanted_width(column)) > width
        });
        self.leave_out(&mut placed, 1, |placed| {
            total_width(placed, |column| self.least_width(column)) > width
        });
        // The widest of the columns that can be shortened gives way.
        while total_width(&placed, |column| column.width) > width {
            let can_shrink = |column: &&mut PlacedColumn| column.width > self.least_width(column);
            let widest = placed.iter_mut().filter(can_shrink).max_by_key(|column| column.width);
            let Some(widest) = widest else { break };
            widest.width -= 1;
        }
        placed
    }

    /// Leaves out the columns of the greatest ranks, down to `lowest`, while there are too many.
    fn leave_out(
        &self,
        placed: &mut Vec<PlacedColumn>,
        lowest: u8,
        are_too_many: impl Fn(&[PlacedColumn]) -> bool,
    ) {
        while are_too_many(placed) {
            let rank = |column: &PlacedColumn| self.columns[column.index].rank;
            let last = placed.iter().enumerate().max_by_key(|(place, column)| (rank(column), *place));
            match last {
                Some((place, column)) if rank(column) >= lowest => placed.remove(place),
                _ => break,
            };
        }
    }

    fn wanted_width(&self, placed: &PlacedColumn) -> usize {
        let wanted = self.columns[placed.index].wanted.min(placed.width);
        wanted.max(self.least_width(placed))
    }

    fn least_width(&self, placed: &PlacedColumn) -> usize {
        let column = &self.columns[placed.index];
        let header = if column.has_long_header { 0 } else { column.header.chars().count() };
        let least = column.least.map(|least| least.max(header));
        least.map_or(placed.width, |least| least.min(placed.width))
    }

    /// Adds a line with the texts of the columns, without spaces at its end.
    fn push_line<'b>(
        &self,
        text: &mut String,
        placed: &[PlacedColumn],
        cell: impl Fn(usize) -> &'b str,
        style: Option<TextStyle>,
    ) {
        let mut spaces = 1;
        for PlacedColumn { index, width } in placed {
            let shown = cut_in_middle(cell(*index), *width);
            let free = width.saturating_sub(shown.chars().count());
            let (before, after) = if self.columns[*index].is_number { (free, 0) } else { (0, free) };
            spaces += before;
            if !shown.is_empty() {
                text.push_str(&" ".repeat(spaces));
                spaces = 0;
                match style.filter(|_| self.styled == Some(*index)) {
                    Some(style) => text.push_str(&painted(&shown, style)),
                    None => text.push_str(&shown),
                }
            }
            spaces += after + SPACE;
        }
        text.push('\n');
    }
}

/// Returns the width of a line of these columns.
fn total_width(placed: &[PlacedColumn], width: impl Fn(&PlacedColumn) -> usize) -> usize {
    1 + placed.iter().map(width).sum::<usize>() + SPACE * placed.len().saturating_sub(1)
}

/// Returns a text of at most this many characters: its start and its end.
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

/// Returns the first line of a text, with at most this many characters.
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

    fn table() -> FittedTable<'static> {
        let columns = vec![
            FittedColumn::text("name", 0).shortened_to(6),
            FittedColumn::number("us", 0),
            FittedColumn::number("never", 9),
            FittedColumn::text("shape", 1).shortened_to(8),
            FittedColumn::text("reason", 2).shortened_to(10),
        ];
        let row = |cells: [&str; 5], has_line_below| FittedRow {
            style: Some(TextStyle::Bad),
            has_line_below,
            ..FittedRow::from_cells(&cells.map(str::to_owned))
        };
        FittedTable {
            columns,
            rows: vec![
                row(["Add", "1.25", "", "4096;4096", "steady"], false),
                row(
                    ["FusedInferAttentionScore", "", "", "1,2,3,4,5,6,7,8,9,10", "the process ended early"],
                    true,
                ),
            ],
            styled: Some(0),
            below: Some(4),
        }
    }

    #[test]
    fn columns_are_shortened_before_they_are_left_out() {
        let all = [None, Some(60), Some(44), Some(30), Some(5)].map(|width| table().print(width, false));
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
            let text = table().print(Some(width), false);
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}: {text}");
        }
    }

    #[test]
    fn headers_that_users_choose_are_shortened() {
        let column = FittedColumn::number("a/long/path/of/a/profile", 0).shortened_to(8);
        let table = FittedTable {
            columns: vec![column.with_long_header()],
            rows: vec![FittedRow::from_cells(&["7.5".to_owned()])],
            ..FittedTable::default()
        };
        assert_eq!(table.print(Some(12), false), " a/lo...file\n         7.5\n");
    }

    #[test]
    fn styles_do_not_change_the_columns() {
        let (plain, painted) = (table().print(Some(60), false), table().print(Some(60), true));
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
