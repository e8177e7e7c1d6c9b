//! Copies of ledgers: a copy beside each ledger, from which a damaged ledger is restored, and temporary copies of
//! ledgers that another process may be writing.

use std::{
    collections::BTreeSet,
    fs::{self, Permissions},
    io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use super::{Ledger, LedgerError, file_length};
use crate::base::files::{entries, is_missing, sync_folder};

/// Temporary copy of a ledger, which has been checked; the ledger itself is not opened.
#[derive(Debug)]
pub(crate) struct LedgerCopy {
    pub(super) original: PathBuf,
    pub(super) copy: PathBuf,
}

impl LedgerCopy {
    /// Copies a ledger into a file and checks it. Fails with [`LedgerError::Damaged`] also for an empty file, and if
    /// rows refer to rows that are lost.
    pub(crate) fn create(original: &Path, copy: &Path) -> Result<Self, LedgerError> {
        let damaged =
            |problem: &str| LedgerError::Damaged { path: original.to_owned(), problem: problem.to_owned() };
        file_length(original)?;
        let length = copy_with_journal(original, copy)
            .map_err(|source| LedgerError::Copy { path: original.to_owned(), problem: source.to_string() })?;
        if length == 0 {
            return Err(damaged("it is empty"));
        }
        let check = || -> Result<Option<String>, LedgerError> {
            if let Some(problem) = Ledger::find_damage(copy)? {
                return Ok(Some(problem));
            }
            let ledger = Ledger::open(copy)?;
            ledger.list_runs()?;
            let lost: Option<String> =
                ledger.read_first("SELECT \"table\" FROM pragma_foreign_key_check", [])?;
            Ok(lost.map(|table| format!("rows of its table `{table}` refer to lost ones")))
        };
        match check().map_err(|error| error.with_path(original))? {
            Some(problem) => Err(damaged(&problem)),
            None => Ok(Self { original: original.to_owned(), copy: copy.to_owned() }),
        }
    }

    pub(crate) fn open(&self) -> Result<Ledger, LedgerError> {
        Ledger::open(&self.copy).map_err(|error| error.with_path(&self.original))
    }
}

impl Ledger {
    /// Replaces the copy beside the ledger, at [`copy_path`]. SQLite reads every row of the ledger for it, so a ledger with a
    /// damaged row fails here and keeps its last copy, and so does one that [lacks runs](Self::check_runs_of_copy).
    pub(crate) fn write_copy(&self) -> Result<(), LedgerError> {
        self.check_runs_of_copy()?;
        let path = copy_path(&self.path);
        let folder = path.parent().unwrap_or(Path::new("."));
        let failed = |problem: String| LedgerError::Copy { path: self.path.clone(), problem };
        let draft = tempfile::Builder::new().prefix(".npubench-").suffix(".tmp").tempfile_in(folder);
        let draft = draft.map_err(|error| failed(error.to_string()))?;
        self.limit.restart();
        self.connection
            .execute("VACUUM INTO ?1", [draft.path().to_string_lossy()])
            .map_err(self.sqlite_error())?;
        let replaced =
            draft.as_file().sync_all().and_then(|()| draft.persist(&path).map_err(|error| error.error));
        replaced.map_err(|error| failed(error.to_string()))?;
        sync_folder(folder).map_err(|error| failed(error.to_string()))
    }
}

impl Ledger {
    /// Fails with [`LedgerError::Damaged`] if the ledger lacks a run that its copy has, as an older ledger of a backup does.
    pub(crate) fn check_runs_of_copy(&self) -> Result<(), LedgerError> {
        const RUNS: &str = "SELECT run FROM runs ORDER BY started_ns, run";
        let path = copy_path(&self.path);
        if file_length(&path)?.is_none() {
            return Ok(());
        }
        let copied: Vec<String> = match Self::open_to_read(&path).and_then(|copy| copy.read_column(RUNS, []))
        {
            // A damaged copy has nothing to lose.
            Err(LedgerError::Damaged { .. }) => return Ok(()),
            copied => copied?,
        };
        let own: BTreeSet<String> = self.read_column(RUNS, [])?;
        match copied.into_iter().find(|run| !own.contains(run)) {
            Some(run) => {
                let problem = format!("it lacks run {run}, which its copy has");
                Err(LedgerError::Damaged { path: self.path.clone(), problem })
            }
            None => Ok(()),
        }
    }
}

/// Fails with [`LedgerError::Damaged`] if a ledger is missing or empty, although its copy or the folders of runs beside it show that
/// there was one. A run that was killed at its start leaves an empty file and neither of them.
pub(crate) fn check_not_lost(ledger: &Path) -> Result<(), LedgerError> {
    let problem = match file_length(ledger)? {
        Some(0) => "the file is empty",
        None => "the file is missing, although there were runs",
        Some(_) => return Ok(()),
    };
    let unreadable =
        |error: io::Error| LedgerError::Unreadable { path: ledger.to_owned(), problem: error.to_string() };
    let runs = entries(&ledger.with_file_name("runs")).map_err(unreadable)?;
    let mut has_collections = false;
    for run in runs {
        has_collections |= !entries(&run.join("collections")).map_err(unreadable)?.is_empty();
    }
    if has_collections || file_length(&copy_path(ledger))?.is_some() {
        return Err(LedgerError::Damaged { path: ledger.to_owned(), problem: problem.to_owned() });
    }
    Ok(())
}

pub(crate) fn copy_path(ledger: &Path) -> PathBuf {
    ledger.with_file_name("ledger.copy.db")
}

/// Copies an SQLite file and the journal that SQLite rolls back when it opens the file; returns the length of the file in bytes.
pub(crate) fn copy_with_journal(original: &Path, copy: &Path) -> io::Result<u64> {
    let copy_writable = |original: &Path, copy: &Path| {
        let length = fs::copy(original, copy)?;
        // A copy has the mode of its original, which may not be writable.
        let mode = fs::metadata(copy)?.permissions().mode();
        fs::set_permissions(copy, Permissions::from_mode(mode | 0o600))?;
        Ok(length)
    };
    if !is_missing(&journal_path(original))? {
        copy_writable(&journal_path(original), &journal_path(copy))?;
    }
    copy_writable(original, copy)
}

pub(crate) fn journal_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-journal");
    name.into()
}
