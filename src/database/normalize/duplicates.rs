//! Rows of one signature made one, where nothing is lost by it.

use std::collections::HashMap;

use super::{NormalizeChange, NormalizeReport, line, row_cells};
use crate::database::{KernelCsv, columns, lint::join_list};

/// Rows of one signature that are compared with each further one; a table with more that contradict each
/// other is not a table of results, and would take for ever.
const MOST: usize = 64;

/// Columns that belong together: a row's measurement and its provenance are taken whole or not at all, so
/// that no row shows one run's average beside another's counters or verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ColumnGroup {
    Replay,
    Profile,
    Alone,
}

fn block(column: &str) -> ColumnGroup {
    if column == columns::AVERAGE || column.starts_with("MicroBench ") {
        ColumnGroup::Replay
    } else if column.starts_with("Profiling ") {
        ColumnGroup::Profile
    } else {
        ColumnGroup::Alone
    }
}

/// Merges the rows of one signature, given in the order of the file.
pub(crate) fn merge_rows(table: &mut KernelCsv, rows: &[usize], mended: &mut NormalizeReport) {
    let blocks: Vec<ColumnGroup> = table.columns().iter().map(|name| block(name)).collect();
    let mut kept: Vec<(usize, Vec<String>)> = Vec::new();
    let mut whole: HashMap<Vec<String>, usize> = HashMap::new();
    for &row in rows {
        let cells = row_cells(table, row);
        if let Some(&first) = whole.get(&cells) {
            table.remove_row(row);
            let text = format!("the same row as line {}: one of them stays", line(table, first));
            mended.done.push(NormalizeChange { line: line(table, row), text });
        } else {
            whole.insert(cells.clone(), row);
            kept.push((row, cells));
        }
    }
    // A row that was filled may now hold all that a later one says.
    loop {
        let before = kept.len();
        let mut next: Vec<(usize, Vec<String>)> = Vec::with_capacity(before);
        for (row, cells) in kept {
            let fits = next.iter_mut().take(MOST).find(|(_, into)| is_mergeable(&blocks, into, &cells));
            if let Some((into, into_cells)) = fits {
                let gained = fill(into_cells, &cells);
                let gained = gained.iter().map(|&index| table.columns()[index].as_str());
                let gains = if gained.len() == 0 {
                    "which says all of it".to_owned()
                } else {
                    format!("which gets {}", join_list(gained))
                };
                let text = format!("the same signature as line {}, {gains}", line(table, *into));
                mended.done.push(NormalizeChange { line: line(table, row), text });
                table.remove_row(row);
                table.set_cells(*into, into_cells.clone());
            } else {
                next.push((row, cells));
            }
        }
        kept = next;
        if kept.len() == before {
            break;
        }
    }
    if let Some(((first, first_cells), others)) = kept.split_first() {
        for (row, cells) in others {
            mended.left.push(NormalizeChange {
                line: line(table, *row),
                text: contradiction(table, *first, first_cells, cells),
            });
        }
    }
}

fn is_empty(cell: &str) -> bool {
    cell.trim().is_empty()
}

/// Whether one row can say what both say: no cell differs, and of each block one row has all that the
/// other has.
fn is_mergeable(blocks: &[ColumnGroup], one: &[String], other: &[String]) -> bool {
    // Per block: whether the one, and the other, has something that its counterpart lacks.
    let (mut replay, mut profile) = ((false, false), (false, false));
    for ((block, one), other) in blocks.iter().zip(one).zip(other) {
        let more = match (is_empty(one), is_empty(other)) {
            (true, true) => continue,
            (false, false) if one == other => continue,
            (false, false) => return false,
            (is_less, _) => (!is_less, is_less),
        };
        let seen = match block {
            ColumnGroup::Replay => &mut replay,
            ColumnGroup::Profile => &mut profile,
            ColumnGroup::Alone => continue,
        };
        *seen = (seen.0 || more.0, seen.1 || more.1);
    }
    replay != (true, true) && profile != (true, true)
}

/// Fills empty cells; returns which.
fn fill(into: &mut [String], from: &[String]) -> Vec<usize> {
    let mut gained = Vec::new();
    for (index, (into, from)) in into.iter_mut().zip(from).enumerate() {
        if is_empty(into) && !is_empty(from) {
            into.clone_from(from);
            gained.push(index);
        }
    }
    gained
}

/// Why two rows of one signature both stay.
fn contradiction(table: &KernelCsv, first: usize, one: &[String], other: &[String]) -> String {
    let line = line(table, first);
    let cells = table.columns().iter().zip(one.iter().zip(other));
    let differs = cells.filter(|(_, (a, b))| !is_empty(a) && !is_empty(b) && a != b);
    let differs: Vec<&str> = differs.map(|(name, _)| name.as_str()).collect();
    let why = if differs.is_empty() {
        "each has a part of a measurement".to_owned()
    } else {
        format!("they contradict each other in {}", join_list(differs.into_iter()))
    };
    format!("the same signature as line {line}, both stay: {why}")
}
