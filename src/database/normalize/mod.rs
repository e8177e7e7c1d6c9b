//! `db normalize`: mends what can be mended in a database folder without losing anything.

mod duplicates;

use std::{collections::HashMap, path::Path};

use csv::StringRecord;
use duplicates::merge_rows;

use super::{
    Database, DatabaseError, KernelCsv, columns,
    lint::{FileContent, FileIssues, check_table, collective_key, file_names, read, table_stem},
    row_cases::RowColumns,
    zero_placeholders::ZeroFilled,
};
use crate::{
    domain::{DataKind, KernelName},
    files::{FolderLock, write_atomic},
    table::raw_records::BOM,
};

/// One thing that was done, or left, at its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NormalizeChange {
    /// Line in the file as it was, from 1; 1 for what is about the whole file.
    pub line: u64,
    /// In words.
    pub text: String,
}

/// What was done to one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NormalizeReport {
    /// Name of the file in the folder.
    pub file: String,
    /// What was mended.
    pub done: Vec<NormalizeChange>,
    /// Duplicates that contradict each other; all of them stay.
    pub left: Vec<NormalizeChange>,
    /// Why the file was not touched, where it was not sound enough.
    pub refused: Option<NormalizeChange>,
}

/// Mends every table of a database, each file at once or not at all, under the database's lock. Says what
/// was done to the files where there is something to say; with `dry_run`, what would be, and nothing is
/// written or locked.
///
/// # Errors
/// [`DatabaseError::NotADatabase`], [`DatabaseError::File`], [`DatabaseError::LedgerKind`], and [`DatabaseError::File`] where the folder cannot be
/// listed or written. A file that cannot be mended is no error here, and does not stop the others.
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
        let (mut mended, bytes) = match read(&path) {
            Ok(bytes) => mend(&name, stem, database.kind(), &bytes),
            Err(error) => (refused(&name, 1, format!("cannot be read: {error}")), None),
        };
        if let (Some(bytes), Some(lock)) = (bytes, &mut lock)
            && let Err(error) = write(database, lock, &path, &bytes)
        {
            mended = refused(&name, 1, error.to_string());
        }
        if !mended.done.is_empty() || !mended.left.is_empty() || mended.refused.is_some() {
            all.push(mended);
        }
    }
    Ok(all)
}

fn write(database: &Database, lock: &mut FolderLock, path: &Path, bytes: &[u8]) -> Result<(), DatabaseError> {
    database.initialise(lock)?;
    Ok(write_atomic(path, bytes)?)
}

fn refused(name: &str, line: u64, text: String) -> NormalizeReport {
    NormalizeReport {
        file: name.to_owned(),
        refused: Some(NormalizeChange { line, text }),
        ..NormalizeReport::default()
    }
}

/// Mends the bytes of a table; the new ones are `None` where they are the old ones.
fn mend(name: &str, stem: &str, kind: DataKind, original: &[u8]) -> (NormalizeReport, Option<Vec<u8>>) {
    let content = FileContent::from_stem(stem);
    let mut remarks = FileIssues::new(name);
    check_table(&content, stem, Some(kind), original, &mut remarks);
    remarks.list.sort_by_key(|remark| remark.line);
    if let Some(remark) = remarks.list.into_iter().find(|remark| remark.kind.blocks_normalize()) {
        return (refused(name, remark.line, remark.text), None);
    }
    let mut mended = NormalizeReport { file: name.to_owned(), ..NormalizeReport::default() };
    let mut bytes = original;
    while let Some(rest) = bytes.strip_prefix(BOM) {
        bytes = rest;
    }
    let whole = |text: &str| NormalizeChange { line: 1, text: text.to_owned() };
    if bytes.len() < original.len() {
        mended.done.push(whole("the byte-order mark is gone"));
    }
    let Ok(mut table) = KernelCsv::from_bytes(Path::new(name), bytes.to_vec()) else { return (mended, None) };
    if let Some(newline) = table.unify_newlines() {
        mended.done.push(whole(&format!("every line ends in {newline:?} now, as the header does")));
    }
    let groups = match &content {
        FileContent::Collective => collective_groups(&table),
        FileContent::Kernel(kernel) => {
            if table.rename_column(columns::OLD_AVERAGE, columns::AVERAGE) {
                let text = format!("`{}` is called `{}` now", columns::OLD_AVERAGE, columns::AVERAGE);
                mended.done.push(whole(&text));
            }
            empty_zeros(&mut table, &mut mended);
            kernel.as_ref().map(|kernel| kernel_groups(kernel, &table)).unwrap_or_default()
        }
    };
    for rows in groups {
        merge_rows(&mut table, &rows, &mut mended);
    }
    mended.done.sort_by_key(|change| change.line);
    mended.left.sort_by_key(|change| change.line);
    let bytes = (!mended.done.is_empty()).then(|| table.to_bytes());
    (mended, bytes)
}

/// Empties the zeros that stand for "not measured".
fn empty_zeros(table: &mut KernelCsv, mended: &mut NormalizeReport) {
    let zeros = ZeroFilled::from_header(table.columns());
    let mut rows: Vec<(usize, Vec<usize>)> = Vec::new();
    table.for_each_row(|row, record| {
        let cells = zeros.cells(&StringRecord::from_byte_record_lossy(record.clone()));
        if !cells.is_empty() {
            rows.push((row, cells));
        }
    });
    let Some((first, _)) = rows.first() else { return };
    let (first_line, count) = (line(table, *first), rows.len());
    for (row, zeros) in rows {
        let mut cells = row_cells(table, row);
        for index in zeros {
            cells[index].clear();
        }
        table.set_cells(row, cells);
    }
    let rows = if count == 1 { "row".to_owned() } else { format!("{count} rows from here on") };
    mended.done.push(NormalizeChange {
        line: first_line,
        text: format!("{rows} never measured: the zeros are empty cells now"),
    });
}

/// Returns the cells of a row. Tables that are not UTF-8 are refused before.
fn row_cells(table: &KernelCsv, row: usize) -> Vec<String> {
    let cells = StringRecord::from_byte_record_lossy(table.byte_cells(row));
    cells.iter().map(str::to_owned).collect()
}

/// Returns the line of a row in the file, from 1.
fn line(table: &KernelCsv, row: usize) -> u64 {
    table.line(row).unwrap_or_default()
}

/// Rows of each signature that has more than one, in the order of the file.
fn kernel_groups(kernel: &KernelName, table: &KernelCsv) -> Vec<Vec<usize>> {
    let Ok(columns) = RowColumns::find(table.columns()) else { return Vec::new() };
    let mut groups = DuplicateGroups::default();
    table.for_each_row(|row, record| {
        if let Ok(case) = columns.case(kernel, record) {
            groups.add(case.id(), row);
        }
    });
    groups.with_duplicates()
}

fn collective_groups(table: &KernelCsv) -> Vec<Vec<usize>> {
    let mut groups = DuplicateGroups::default();
    table.for_each_row(|row, record| {
        let cells = StringRecord::from_byte_record_lossy(record.clone());
        if let Some(key) = collective_key(table.columns(), &cells) {
            groups.add(key, row);
        }
    });
    groups.with_duplicates()
}

/// Rows by what makes them the same.
struct DuplicateGroups<K>(HashMap<K, usize>, Vec<Vec<usize>>);

impl<K> Default for DuplicateGroups<K> {
    fn default() -> Self {
        Self(HashMap::new(), Vec::new())
    }
}

impl<K: std::hash::Hash + Eq> DuplicateGroups<K> {
    fn add(&mut self, key: K, row: usize) {
        let next = self.1.len();
        let group = *self.0.entry(key).or_insert(next);
        if group == next {
            self.1.push(Vec::new());
        }
        self.1[group].push(row);
    }

    fn with_duplicates(self) -> Vec<Vec<usize>> {
        self.1.into_iter().filter(|rows| rows.len() > 1).collect()
    }
}

#[cfg(test)]
mod tests;
