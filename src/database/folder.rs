//! Database folder: kind, kernel files and state folder.

use std::{
    collections::{BTreeSet, HashMap},
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::SystemTime,
};

use super::{
    COMPUTE_COLUMNS, DatabaseError, KernelCsv, RowCase, collective_rows::collective_columns, columns,
    row_cases,
};
pub(crate) use crate::base::result_file::DATABASE_FILE;
use crate::{
    base::{
        files::{
            FolderLock, LockState, MAX_DOCUMENT, entries, read_regular, read_regular_text,
            scratch::{DRAFT, remove_abandoned},
            stale, write_atomic,
        },
        process::{end_orphans, note_ended},
    },
    database::{
        database_file::DatabaseFile,
        ledger::{Ledger, check_not_lost},
    },
    kernel::{CacheState, CaseId, DataKind, KernelName},
};

pub(crate) const REHEARSAL_RUN: &str = "rehearsal-";

pub(crate) fn collection_path(collection: u32) -> PathBuf {
    Path::new("collections").join(format!("{collection:05}"))
}

const MAPPING_FILE: &str = "op_mapping.yaml";
pub(super) const STATE_FOLDER: &str = ".npubench";

pub(super) fn ledger_path(folder: &Path) -> PathBuf {
    folder.join(STATE_FOLDER).join("ledger.db")
}

/// Returns true for a folder with `database.yaml`, a table, or files of npubench. Others can become a database.
pub(super) fn has_database_files(folder: &Path) -> Result<bool, DatabaseError> {
    let has_own =
        [DATABASE_FILE, STATE_FOLDER].iter().any(|name| folder.join(name).symlink_metadata().is_ok());
    Ok(has_own || file_names(folder)?.iter().any(|name| table_stem(name).is_some()))
}

pub(super) fn file_names(folder: &Path) -> Result<Vec<String>, DatabaseError> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(DatabaseError::io("list", folder))? {
        let entry = entry.map_err(DatabaseError::io("list", folder))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        // A folder in the place of a table is no missing table: reading it is an error.
        let is_table = table_stem(&name).is_some();
        if is_table || entry.file_type().is_ok_and(|kind| kind.is_file()) || !entry.path().is_dir() {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

pub(crate) fn table_stem(name: &str) -> Option<&str> {
    name.strip_suffix(".csv").filter(|stem| !stem.starts_with('.'))
}

/// Returns true for a folder of the profiler: by its own name, or by what it has. A database has its file, or tables.
pub(super) fn is_profile(folder: &Path) -> bool {
    let is_of_profiler = |path: &Path| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| {
            name.starts_with("PROF_") || name.ends_with("_ascend_pt") || name == "ASCEND_PROFILER_OUTPUT"
        })
    };
    if [DATABASE_FILE, STATE_FOLDER].iter().any(|name| folder.join(name).symlink_metadata().is_ok()) {
        return false;
    }
    if is_of_profiler(folder) || folder.join("kernel_details.csv").exists() {
        return true;
    }
    // Profiles beside tables of a database without its file leave it one. Opening a folder that cannot be listed fails later.
    let entries = entries(folder).unwrap_or_default();
    let is_table = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "csv");
    entries.iter().any(|path| is_of_profiler(path) && path.is_dir()) && !entries.iter().any(is_table)
}

/// File stems of tables, by the stem in lower case: a folder of 10,000 tables is not listed for each of them.
#[derive(Debug, Default)]
struct TableStems {
    /// Those of the folder, with the time of its last change.
    there: Option<(SystemTime, StemsByLowerCase)>,
    /// Those of new tables that may not be written yet: two new kernels whose names differ only by case must not get one file.
    new: StemsByLowerCase,
}

type StemsByLowerCase = HashMap<String, Vec<String>>;

impl TableStems {
    fn add(stems: &mut StemsByLowerCase, stem: String) {
        let alike = stems.entry(stem.to_ascii_lowercase()).or_default();
        if !alike.contains(&stem) {
            alike.push(stem);
        }
    }

    fn stem_of(&mut self, folder: &Path, kernel: &KernelName) -> String {
        // A folder that cannot be listed cannot be written either, which is reported at the write.
        let changed =
            fs::metadata(folder).and_then(|folder| folder.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
        if self.there.as_ref().is_none_or(|(listed, _)| *listed != changed) {
            let mut there = StemsByLowerCase::new();
            for name in file_names(folder).unwrap_or_default() {
                table_stem(&name).into_iter().for_each(|stem| Self::add(&mut there, stem.to_owned()));
            }
            self.there = Some((changed, there));
        }
        let there = self.there.iter().map(|(_, there)| there).chain([&self.new]);
        let alike = kernel.own_file_stems().map(|stem| stem.to_ascii_lowercase());
        let stems = there.flat_map(|stems| alike.iter().filter_map(|stem| stems.get(stem)).flatten());
        kernel.file_stem_among(stems.map(String::as_str))
    }
}

#[derive(Clone, Debug)]
pub struct Database {
    folder: PathBuf,
    pub(super) file: DatabaseFile,
    has_file: bool,
    stems: Arc<Mutex<TableStems>>,
}

impl Database {
    /// Opens a folder. Without `database.yaml` its kind is `npu`. Fails with [`DatabaseError::NotADatabase`] if the folder
    /// does not exist or has neither tables nor files of npubench; [`DatabaseError::Yaml`].
    pub fn open(folder: &Path) -> Result<Self, DatabaseError> {
        let not_a_database = || DatabaseError::NotADatabase { path: folder.to_owned() };
        let folder =
            folder.canonicalize().ok().filter(|folder| folder.is_dir()).ok_or_else(not_a_database)?;
        if is_profile(&folder) {
            return Err(DatabaseError::Profile { path: folder });
        }
        let path = folder.join(DATABASE_FILE);
        let (file, has_file) = match read_regular_text(&path, MAX_DOCUMENT) {
            Ok(text) => (DatabaseFile::parse(&path, &text)?, true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                (DatabaseFile::new(DataKind::Npu), false)
            }
            Err(error) => return Err(DatabaseError::io("read", &path)(error)),
        };
        if has_file || has_database_files(&folder)? {
            Ok(Self { folder, file, has_file, stems: Arc::default() })
        } else {
            Err(not_a_database())
        }
    }

    pub fn open_as(folder: &Path, wanted: DataKind) -> Result<Self, DatabaseError> {
        Self::open_as_given(folder, wanted, "--host rehearsal")
    }

    /// `option` is how the command is given the kind `rehearsal`.
    pub(crate) fn open_as_given(
        folder: &Path,
        wanted: DataKind,
        option: &'static str,
    ) -> Result<Self, DatabaseError> {
        let database = Self::open(folder)?;
        if database.kind() != wanted {
            let (path, actual) = (folder.to_owned(), database.kind());
            let is_stated = database.has_file;
            return Err(DatabaseError::WrongKind { path, actual, wanted, is_stated, option });
        }
        Ok(database)
    }

    pub const fn kind(&self) -> DataKind {
        self.file.kind
    }

    pub fn device(&self) -> &str {
        &self.file.device
    }

    /// Returns true if measured durations compare with those of the profiles: all are of devices, or all rehearsed.
    pub(crate) fn has_comparable_production(&self) -> bool {
        self.file.kind == DataKind::Npu || self.file.has_rehearsed_profiles
    }

    pub(super) fn set_file(&self, file: &DatabaseFile) -> Result<(), DatabaseError> {
        if *file != self.file {
            write_atomic(&self.folder.join(DATABASE_FILE), file.print().as_bytes())?;
        }
        Ok(())
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn state_folder(&self) -> PathBuf {
        self.folder.join(STATE_FOLDER)
    }

    pub fn ledger_path(&self) -> PathBuf {
        ledger_path(&self.folder)
    }

    pub fn run_folder(&self, run: &str) -> PathBuf {
        self.state_folder().join("runs").join(run)
    }

    pub(crate) fn collection_folder(&self, run: &str, collection: u32) -> PathBuf {
        self.run_folder(run).join(collection_path(collection))
    }

    /// Folder with the records of running programs.
    pub(crate) fn processes(&self) -> PathBuf {
        self.state_folder().join("processes")
    }

    /// Locks the folder for writing, ends programs of killed writers, and removes their temporary files. Fails with the
    /// owner of another lock.
    pub fn lock(&self) -> Result<FolderLock, DatabaseError> {
        let lock = FolderLock::take(&self.folder, &self.state_folder())?;
        note_ended(end_orphans(&self.processes()));
        // A merge replaces the ledger through one of them.
        for folder in [&self.folder, &self.state_folder()] {
            stale::remove_unfinished_files(folder);
        }
        // Removes drafts of this database, which remain if the command that created it was killed and repeated.
        for place in self.folder.parent().into_iter().chain([&*self.folder]) {
            remove_abandoned(place, DRAFT);
        }
        Ok(lock)
    }

    /// Locks the folder for a command that changes no result, also one that is not writable; `None` if no command has ever locked it.
    /// Fails with [`DatabaseError::File`] with the owner.
    pub(crate) fn lock_for_reading(&self) -> Result<Option<FolderLock>, DatabaseError> {
        Ok(FolderLock::take_for_reading(&self.folder, &self.state_folder())?)
    }

    pub fn lock_state(&self) -> LockState {
        LockState::read_state(&self.state_folder())
    }

    pub fn make_state_folder(&self) -> Result<(), DatabaseError> {
        let state = self.state_folder();
        fs::create_dir_all(&state).map_err(DatabaseError::io("create", &state))?;
        crate::base::files::lock::ignore_state(&state).map_err(DatabaseError::io("write into", &state))
    }

    /// Writes the `database.yaml` that folders of older tools lack, before the first row is written.
    pub fn initialise(&self, lock: &mut FolderLock) -> Result<(), DatabaseError> {
        lock.keep_state();
        if !self.has_file {
            write_atomic(&self.folder.join(DATABASE_FILE), self.file.print().as_bytes())?;
        }
        Ok(())
    }

    /// Opens the ledger, whose runs must be of the folder's kind: `database.yaml` may have been changed or lost. A lost ledger is
    /// not replaced by an empty one.
    pub fn ledger(&self) -> Result<Ledger, DatabaseError> {
        check_not_lost(&self.ledger_path())?;
        let ledger = Ledger::open(&self.ledger_path())?;
        if let Some(found) = ledger.run_kinds()?.into_iter().find(|kind| *kind != self.kind()) {
            return Err(DatabaseError::LedgerKind { path: self.folder.clone(), stated: self.kind(), found });
        }
        Ok(ledger)
    }

    pub fn existing_ledger(&self) -> Result<Option<Ledger>, DatabaseError> {
        let path = self.ledger_path();
        check_not_lost(&path)?;
        if DatabaseError::is_missing(&path)? { Ok(None) } else { self.ledger().map(Some) }
    }

    /// Returns the path of a kernel's CSV, which may not exist; no other kernel has it, also where case is ignored.
    pub fn kernel_path(&self, kernel: &KernelName) -> PathBuf {
        self.folder.join(format!("{}.csv", self.stem_of(kernel)))
    }

    pub(crate) fn has_table(&self, kernel: &KernelName) -> Result<bool, DatabaseError> {
        Ok(!DatabaseError::is_missing(&self.kernel_path(kernel))?)
    }

    fn stem_of(&self, kernel: &KernelName) -> String {
        self.stems.lock().unwrap_or_else(PoisonError::into_inner).stem_of(&self.folder, kernel)
    }

    pub fn kernels(&self) -> Result<Vec<KernelName>, DatabaseError> {
        Ok(self.kernels_and_collectives()?.into_iter().filter(|kernel| !kernel.is_collective()).collect())
    }

    pub(crate) fn collectives(&self) -> Result<Vec<KernelName>, DatabaseError> {
        Ok(self.kernels_and_collectives()?.into_iter().filter(KernelName::is_collective).collect())
    }

    pub(crate) fn kernels_and_collectives(&self) -> Result<Vec<KernelName>, DatabaseError> {
        // A file whose name stands for no kernel is ignored; `db check` reports it.
        let tables = file_names(&self.folder)?.into_iter().filter_map(|name| {
            // A name that is not UTF-8 stands for no kernel either.
            let stem = table_stem(&name).filter(|stem| !stem.contains(char::REPLACEMENT_CHARACTER))?;
            let kernel = KernelName::from_file_stem(stem)?;
            let is_table = kernel.is_collective() || kernel.may_have_file_stem(stem);
            is_table.then_some((kernel.is_collective(), kernel))
        });
        Ok(tables.collect::<BTreeSet<_>>().into_iter().map(|(_, kernel)| kernel).collect())
    }

    /// Loads the CSV of a kernel or collective; returns an empty table with the columns of the contract if it does not exist.
    pub fn kernel_csv(&self, kernel: &KernelName) -> Result<KernelCsv, DatabaseError> {
        let path = self.kernel_path(kernel);
        if DatabaseError::is_missing(&path)? {
            let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            TableStems::add(&mut self.stems.lock().unwrap_or_else(PoisonError::into_inner).new, stem);
            let collective = kernel.is_collective().then(|| collective_columns(kernel));
            return Ok(KernelCsv::new(&path, collective.as_ref().unwrap_or(&COMPUTE_COLUMNS)));
        }
        let table = KernelCsv::load(&path)?;
        if self.kind() == DataKind::Npu && table.contains_cell_prefix(REHEARSAL_RUN) {
            return Err(DatabaseError::RehearsedRows { path });
        }
        Ok(table)
    }
}

/// Copies the shapes of a database into a new folder of the given kind: all rows and columns, with the replay's
/// measurements empty. Measurements of production profiles are kept, unless a rehearsal is copied to kind `npu`, whose
/// profiles may be simulated. Returns the number of rows. Fails with [`DatabaseError::Exists`] if the new folder
/// exists; on an error nothing is created.
pub(crate) fn copy_shapes(source: &Database, target: &Path, kind: DataKind) -> Result<usize, DatabaseError> {
    if source.kernels()?.is_empty() {
        return Err(DatabaseError::NotADatabase { path: source.folder.clone() });
    }
    copy_rows(source, target, kind, None, |_| Ok(()))
}

/// Copies as [`copy_shapes`] the rows of some cases, or all; `add` writes further files before the folder appears.
pub(crate) fn copy_rows(
    source: &Database,
    target: &Path,
    kind: DataKind,
    cases: Option<&BTreeSet<CaseId>>,
    add: impl FnOnce(&Path) -> Result<(), DatabaseError>,
) -> Result<usize, DatabaseError> {
    if target.exists() {
        return Err(DatabaseError::Exists { path: target.to_owned() });
    }
    let appended = CacheState::ALL.iter().flat_map(|cache| columns::appended_columns(*cache));
    let measured = columns::microbench_counters().chain(appended).chain([columns::AVERAGE]);
    let mut measured: Vec<&str> = measured.collect();
    if source.kind() == DataKind::Rehearsal && kind == DataKind::Npu {
        measured.extend(columns::PROFILING.into_iter().chain(columns::profiling_counters()));
    }
    let mut rows = 0;
    let file = DatabaseFile { kind, ..source.file.clone() };
    Database::create(target, &file, |draft| {
        for kernel in source.kernels()? {
            let mut table = source.kernel_csv(&kernel)?;
            let is_copied: Vec<bool> = match cases {
                Some(cases) => {
                    let is_copied = |row: RowCase| row.case.is_ok_and(|case| cases.contains(&case.id()));
                    row_cases(&kernel, &table)?.into_iter().map(is_copied).collect()
                }
                None => vec![true; table.len()],
            };
            let copied = is_copied.iter().filter(|is_copied| **is_copied).count();
            if cases.is_some() && copied == 0 {
                continue;
            }
            let cleared = measured.iter().copied().filter(|name| table.column_index(name).is_some());
            let cleared: Vec<&str> = cleared.collect();
            for (row, is_copied) in is_copied.into_iter().enumerate() {
                if is_copied {
                    table.empty_cells(row, cleared.iter().copied())?;
                } else {
                    table.remove_row(row);
                }
            }
            rows += copied;
            table.save_as(&draft.join(format!("{}.csv", source.stem_of(&kernel))))?;
        }
        let mapping = source.folder.join(MAPPING_FILE);
        if !DatabaseError::is_missing(&mapping)? {
            let text = read_regular(&mapping, MAX_DOCUMENT).map_err(DatabaseError::io("read", &mapping))?;
            write_atomic(&draft.join(MAPPING_FILE), &text)?;
        }
        add(draft)
    })?;
    Ok(rows)
}

/// Returns the tables that a copy of a database's shapes lacks: collectives, and files that are no kernel's.
pub(crate) fn tables_left_out(source: &Database, copy: &Path) -> Result<Vec<String>, DatabaseError> {
    let mut names = file_names(&source.folder)?;
    names.retain(|name| table_stem(name).is_some() && !copy.join(name).exists());
    Ok(names)
}
