//! `db check`: finds invalid content of a database folder. It writes nothing and takes no lock.

mod cells;
mod remark;
mod table;

use std::{collections::BTreeMap, fs, path::Path};

pub(crate) use remark::{FileIssues, join_list};
pub(crate) use remark::{IssueSeverity, LintIssue, LintIssueKind};
pub(crate) use table::check_table;

use super::{
    Database, DatabaseError,
    folder::{STATE_FOLDER, file_names, ledger_path, table_stem},
};
use crate::base::command_error::Failure;
use crate::{
    base::{
        files::{FileError, MAX_DOCUMENT, MAX_TABLE, is_missing, read_regular, read_regular_text},
        table::{format::quote_cell, raw_records::LFS},
        yaml::check_yaml,
    },
    database::ledger::{Ledger, LedgerError, check_not_lost},
    kernel::{DataKind, KernelName},
};

const DATABASE: &str = "database.yaml";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LintReport {
    pub files: usize,
    pub remarks: Vec<LintIssue>,
}

impl LintReport {
    pub(crate) fn add_issues(&mut self, issues: Vec<LintIssue>) {
        self.remarks.extend(issues);
        // Issues of the ledger are listed behind the issues of the tables.
        let key = |issue: &LintIssue| (issue.file.starts_with(".npubench/"), issue.file.clone(), issue.line);
        self.remarks.sort_by_key(key);
    }

    pub fn count_severity(&self, severity: IssueSeverity) -> usize {
        self.remarks.iter().filter(|remark| remark.kind.severity() == severity).count()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TableContent {
    Kernel(Option<KernelName>),
    Collective,
}

impl TableContent {
    pub(crate) fn from_stem(stem: &str) -> Self {
        match KernelName::from_file_stem(stem) {
            Some(kernel) if kernel.is_collective() => Self::Collective,
            kernel => Self::Kernel(kernel),
        }
    }
}

/// Checks every table of a database, its `database.yaml` and `op_mapping.yaml`; not its ledger, see [`check_ledger`]. An
/// invalid file does not stop the check of the others.
pub fn lint_database(folder: &Path) -> Result<LintReport, DatabaseError> {
    let mut of_database = FileIssues::new(DATABASE);
    let kind = match Database::open(folder) {
        Ok(database) => Some(database.kind()),
        Err(DatabaseError::Yaml(error)) => {
            let line = error.line.and_then(|line| u64::try_from(line).ok()).unwrap_or(1);
            of_database.add_issue(line, LintIssueKind::Unreadable, quote_cell(&error.problem));
            None
        }
        Err(DatabaseError::File(FileError::Io { source, .. })) => {
            of_database.add_issue(1, LintIssueKind::Unreadable, format!("cannot be read: {source}"));
            None
        }
        Err(error) => return Err(error),
    };
    let mut checked = LintReport::default();
    let names = file_names(folder)?;
    let mut alike: BTreeMap<String, &str> = BTreeMap::new();
    for name in &names {
        let mut remarks = FileIssues::new(name);
        // Locks of Excel and of LibreOffice.
        if name.starts_with("~$") || (name.starts_with(".~lock.") && name.ends_with('#')) {
            let text = "a spreadsheet program locks an open table by this file; remove it if none has the table open";
            remarks.add_issue(1, LintIssueKind::LeftBehind, text);
        } else if let Some(stem) = table_stem(name) {
            if let Some(other) = alike.insert(name.to_lowercase(), name) {
                let other = quote_cell(other);
                let text = format!("`{other}` differs only by case; some file systems keep one of them");
                remarks.add_issue(1, LintIssueKind::NameCase, text);
            }
            checked.files += 1;
            match read_regular(&folder.join(name), MAX_TABLE) {
                Ok(bytes) => check_table(&TableContent::from_stem(stem), stem, kind, &bytes, &mut remarks),
                Err(error) => {
                    remarks.add_issue(1, LintIssueKind::Unreadable, format!("cannot be read: {error}"));
                }
            }
        } else if name.starts_with(".npubench-") {
            let text = "a temporary file of an interrupted npubench; remove it when none is running";
            remarks.add_issue(1, LintIssueKind::LeftBehind, text);
        } else if matches!(name.as_str(), DATABASE | "op_mapping.yaml") {
            checked.files += 1;
            if read_regular(&folder.join(name), MAX_DOCUMENT).is_ok_and(|bytes| bytes.starts_with(LFS)) {
                let text = "a Git LFS pointer, not the data; `git lfs pull` fetches it";
                remarks.add_issue(1, LintIssueKind::LfsPointer, text);
            } else if name == DATABASE {
                remarks.list.append(&mut of_database.list);
            } else if let Err((line, problem)) = check_mapping(&folder.join(name)) {
                remarks.add_issue(line, LintIssueKind::Unreadable, problem);
            }
        }
        remarks.list.sort_by_key(|remark| remark.line);
        checked.remarks.append(&mut remarks.list);
    }
    if !names.iter().any(|name| name == DATABASE) && folder.join(STATE_FOLDER).is_dir() {
        let kind = kind.unwrap_or(DataKind::Npu);
        let text = format!(
            "is missing: the folder is read as one of kind `{kind}`; restore it from version control"
        );
        of_database.add_issue(1, LintIssueKind::NoDatabaseFile, text);
        checked.remarks.append(&mut of_database.list);
    }
    Ok(checked)
}

/// Checks the structure of the ledger, if there is one. A ledger that is in use is no issue; fails if it cannot be read.
pub(crate) fn check_ledger(folder: &Path) -> Result<Option<LintIssue>, LedgerError> {
    let path = ledger_path(folder);
    let file = path.strip_prefix(folder).unwrap_or(&path).to_string_lossy().into_owned();
    let problem = match check_not_lost(&path).and_then(|()| Ledger::find_damage(&path)) {
        // A run that was killed at its start leaves an empty file.
        Ok(_) if fs::metadata(&path).is_ok_and(|found| found.is_file() && found.len() == 0) => {
            return Ok(None);
        }
        Ok(None) => return Ok(None),
        Ok(Some(problem)) | Err(LedgerError::Damaged { problem, .. }) => problem,
        // The comparison of the rows has a note of these.
        Err(error) if error.is_temporary() || matches!(error, LedgerError::OtherLayout { .. }) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let kind = match is_missing(&path) {
        Ok(true) => LintIssueKind::MissingLedger,
        _ => LintIssueKind::DamagedLedger,
    };
    let hint = LedgerError::Damaged { path, problem: String::new() }.hint();
    Ok(Some(LintIssue { file, line: 1, kind, text: format!("{}; {hint}", quote_cell(&problem)) }))
}

fn check_mapping(path: &Path) -> Result<(), (u64, String)> {
    let text =
        read_regular_text(path, MAX_DOCUMENT).map_err(|error| (1, format!("cannot be read: {error}")))?;
    check_yaml(path, &text).map_err(|error| (error.line.unwrap_or(1) as u64, error.problem))
}
