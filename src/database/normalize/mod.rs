//! `db normalize`: fixes issues of a database folder that can be fixed without loss.

mod duplicates;

use std::{collections::BTreeMap, path::Path};

use csv::{ByteRecord, StringRecord};
use duplicates::merge_rows;

use schemars::JsonSchema;
use serde::Serialize;

use super::{
    Database, DatabaseError, KernelCsv,
    collective_rows::CollectiveKeyColumns,
    columns,
    folder::{file_names, table_stem},
    lint::{FileIssues, TableContent, check_table},
    row_cases::RowColumns,
    zero_placeholders::ZeroFilled,
};
use crate::{
    base::{
        count_text::format_count,
        files::{MAX_TABLE, read_regular, write_atomic},
        table::raw_records::BOM,
    },
    kernel::DataKind,
};

/// A change, or a contradiction that was left, with its location.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct NormalizeChange {
    /// Line in the file before the change, from 1; 1 for changes of the whole file.
    pub line: u64,
    pub text: String,
}

/// Changes of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct NormalizeReport {
    pub file: String,
    #[serde(rename = "repaired")]
    pub done: Vec<NormalizeChange>,
    /// Duplicates that contradict each other; all of them are kept.
    pub left: Vec<NormalizeChange>,
    /// Issue because of which the file was not changed.
    pub refused: Option<NormalizeChange>,
}

/// Normalizes every table of a database, each file atomically, under the database's lock. Returns the files with changes
/// or contradictions; with `dry_run`, the changes that would be made, without writing and locking. A file that cannot be
/// fixed is not an error here, and does not stop the others.
pub fn normalize_database(database: &Database, dry_run: bool) -> Result<Vec<NormalizeReport>, DatabaseError> {
    let names = file_names(database.folder())?;
    let mut lock = if dry_run { None } else { Some(database.lock()?) };
    if lock.is_some() {
        database.existing_ledger()?;
    }
    let mut all = Vec::new();
    for name in names {
        let Some(stem) = table_stem(&name) else { continue };
        let path = database.folder().join(&name);
        let (mut report, bytes) = match read_regular(&path, MAX_TABLE) {
            Ok(bytes) => normalize_table(&name, stem, database.kind(), &bytes),
            Err(error) => (refused_file(&name, whole(format!("cannot be read: {error}"))), None),
        };
        if let (Some(bytes), Some(lock)) = (bytes, &mut lock) {
            let written = database.initialise(lock).and_then(|()| Ok(write_atomic(&path, &bytes)?));
            if let Err(error) = written {
                report = refused_file(&name, whole(error.to_string()));
            }
        }
        if !report.done.is_empty() || !report.left.is_empty() || report.refused.is_some() {
            all.push(report);
        }
    }
    Ok(all)
}

fn whole(text: String) -> NormalizeChange {
    NormalizeChange { line: 1, text }
}

fn refused_file(name: &str, issue: NormalizeChange) -> NormalizeReport {
    NormalizeReport { file: name.to_owned(), refused: Some(issue), ..NormalizeReport::default() }
}

/// Normalizes the bytes of a table; the new bytes are `None` if nothing changed.
fn normalize_table(
    name: &str,
    stem: &str,
    kind: DataKind,
    original: &[u8],
) -> (NormalizeReport, Option<Vec<u8>>) {
    let content = TableContent::from_stem(stem);
    let mut remarks = FileIssues::new(name);
    check_table(&content, stem, Some(kind), original, &mut remarks);
    remarks.list.sort_by_key(|remark| remark.line);
    if let Some(remark) = remarks.list.into_iter().find(|remark| remark.kind.blocks_normalize()) {
        return (refused_file(name, NormalizeChange { line: remark.line, text: remark.text }), None);
    }
    let mut report = NormalizeReport { file: name.to_owned(), ..NormalizeReport::default() };
    let mut bytes = original;
    while let Some(rest) = bytes.strip_prefix(BOM) {
        bytes = rest;
    }
    if bytes.len() < original.len() {
        report.done.push(whole("the byte-order mark was removed".to_owned()));
    }
    let mut table = match KernelCsv::from_bytes(Path::new(name), bytes.to_vec()) {
        Ok(table) => table,
        Err(error) => return (refused_file(name, whole(error.to_string())), None),
    };
    if let Some(newline) = table.unify_newlines() {
        report.done.push(whole(format!("every line now ends in {newline:?}, as the header does")));
    }
    let groups = match &content {
        TableContent::Collective => {
            let keys = CollectiveKeyColumns::find(table.column_names());
            duplicates(&table, |record| keys.key(record).ok())
        }
        TableContent::Kernel(kernel) => {
            if table.rename_column(columns::OLD_AVERAGE, columns::AVERAGE) {
                let (old, new) = (columns::OLD_AVERAGE, columns::AVERAGE);
                report.done.push(whole(format!("`{old}` was renamed to `{new}`")));
            }
            empty_zeros(&mut table, &mut report);
            match (kernel, RowColumns::find_columns(table.column_names())) {
                (Some(kernel), Ok(columns)) => {
                    duplicates(&table, |record| Some(columns.parse_case(kernel, record).ok()?.id()))
                }
                _ => Vec::new(),
            }
        }
    };
    for rows in groups {
        merge_rows(&mut table, &rows, &mut report);
    }
    report.done.sort_by_key(|change| change.line);
    report.left.sort_by_key(|change| change.line);
    let bytes = (!report.done.is_empty()).then(|| table.to_bytes());
    (report, bytes)
}

fn empty_zeros(table: &mut KernelCsv, report: &mut NormalizeReport) {
    let zeros = ZeroFilled::from_header(table.column_names());
    let mut rows: Vec<(usize, Vec<usize>)> = Vec::new();
    table.for_each_row(|row, record| {
        let cells = zeros.find_zeros(&StringRecord::from_byte_record_lossy(record.clone()));
        if !cells.is_empty() {
            rows.push((row, cells));
        }
    });
    let Some((first, _)) = rows.first() else { return };
    let (first_line, count) = (table.row_line(*first), rows.len());
    let cells: usize = rows.iter().map(|(_, zeros)| zeros.len()).sum();
    for (row, zeros) in rows {
        let mut cells = row_cells(table, row);
        for index in zeros {
            cells[index].clear();
        }
        table.set_cells(row, cells);
    }
    report.done.push(NormalizeChange {
        line: first_line,
        text: format!(
            "{} from here on had 0 in place of measurements that do not exist: {} emptied",
            format_count(count, "row"),
            format_count(cells, "cell")
        ),
    });
}

fn row_cells(table: &KernelCsv, row: usize) -> Vec<String> {
    let cells = StringRecord::from_byte_record_lossy(table.row_byte_cells(row));
    cells.iter().map(str::to_owned).collect()
}

fn duplicates<K: Ord>(table: &KernelCsv, key: impl Fn(&ByteRecord) -> Option<K>) -> Vec<Vec<usize>> {
    let mut groups: BTreeMap<K, Vec<usize>> = BTreeMap::new();
    table.for_each_row(|row, record| {
        if let Some(key) = key(record) {
            groups.entry(key).or_default().push(row);
        }
    });
    groups.into_values().filter(|rows| rows.len() > 1).collect()
}

#[cfg(test)]
mod tests;
