//! Merge of rows with one signature, without loss.

use super::{NormalizeChange, NormalizeReport, row_cells};
use crate::database::{KernelCsv, columns, lint::join_list};

/// Limit of the rows that each further row of a signature is compared with, against quadratic time.
const MAX_COMPARED: usize = 64;

const GROUPS: usize = 3;

/// Returns the group of columns that are merged completely or not at all: a measurement and its provenance, so that no row
/// shows one run's average beside another's counters or verdict. `None` for a column that is merged alone.
fn column_group(column: &str) -> Option<usize> {
    match column {
        _ if columns::is_cold_column(column) => Some(0),
        columns::AVERAGE => Some(1),
        _ if column.starts_with("MicroBench ") => Some(1),
        _ if column.starts_with("Profiling ") => Some(2),
        _ => None,
    }
}

pub(crate) fn merge_rows(table: &mut KernelCsv, rows: &[usize], report: &mut NormalizeReport) {
    let groups: Vec<Option<usize>> = table.column_names().iter().map(|name| column_group(name)).collect();
    let mut kept: Vec<(usize, Vec<String>)> = rows.iter().map(|row| (*row, row_cells(table, *row))).collect();
    // A filled row may now contain all values of a later one.
    loop {
        let before = kept.len();
        let mut next: Vec<(usize, Vec<String>)> = Vec::with_capacity(before);
        for (row, cells) in kept {
            let fits =
                next.iter_mut().take(MAX_COMPARED).find(|(_, into)| is_mergeable(&groups, into, &cells));
            if let Some((into, into_cells)) = fits {
                let line = table.row_line(*into);
                let is_equal = *into_cells == cells;
                let text = if is_equal {
                    format!("the same row as line {line}: one was removed")
                } else {
                    let gained = fill_empty_cells(into_cells, &cells);
                    let gained = gained.iter().map(|&index| table.column_names()[index].as_str());
                    let gains = match gained.len() {
                        0 => "which has all its values".to_owned(),
                        _ => format!("which gets {}", join_list(gained)),
                    };
                    format!("the same signature as line {line}, {gains}")
                };
                report.done.push(NormalizeChange { line: table.row_line(row), text });
                table.remove_row(row);
                if !is_equal {
                    table.set_cells(*into, into_cells.clone());
                }
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
            report.left.push(NormalizeChange {
                line: table.row_line(*row),
                text: describe_difference(table, *first, first_cells, cells),
            });
        }
    }
}

fn is_empty(cell: &str) -> bool {
    cell.trim().is_empty()
}

/// Returns true if two rows can be merged: no cell differs, and one row has all values of each column group.
fn is_mergeable(groups: &[Option<usize>], one: &[String], other: &[String]) -> bool {
    // For each column group: true if the first row, and the second, has a value that the other lacks.
    let mut has_more = [[false; 2]; GROUPS];
    for ((group, one), other) in groups.iter().zip(one).zip(other) {
        match (is_empty(one), is_empty(other)) {
            (true, true) => {}
            (false, false) if one == other => {}
            (false, false) => return false,
            (is_less, _) => {
                if let Some(group) = *group {
                    has_more[group][usize::from(is_less)] = true;
                }
            }
        }
    }
    !has_more.contains(&[true, true])
}

fn fill_empty_cells(into: &mut [String], from: &[String]) -> Vec<usize> {
    let mut gained = Vec::new();
    for (index, (into, from)) in into.iter_mut().zip(from).enumerate() {
        if is_empty(into) && !is_empty(from) {
            into.clone_from(from);
            gained.push(index);
        }
    }
    gained
}

fn describe_difference(table: &KernelCsv, first: usize, one: &[String], other: &[String]) -> String {
    let line = table.row_line(first);
    let cells = table.column_names().iter().zip(one.iter().zip(other));
    let differs = cells.filter(|(_, (a, b))| !is_empty(a) && !is_empty(b) && a != b);
    let differs: Vec<&str> = differs.map(|(name, _)| name.as_str()).collect();
    let why = if differs.is_empty() {
        "each has a part of a measurement".to_owned()
    } else {
        format!("they contradict each other in {}", join_list(differs.into_iter()))
    };
    format!("the same signature as line {line}, both are kept: {why}")
}
