//! A database folder: its kind, its kernels' files, its state.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{
    COMPUTE_COLUMNS, KernelCsv, Ledger, Lock, MICROBENCH_COLUMNS, StoreError, columns, write_atomic,
};
use crate::{
    model::{KernelName, Kind},
    profile::COUNTERS,
    spec::DatabaseFile,
};

/// Files of a database folder that are not a kernel's rows.
pub const KERNEL_FOLDER_FILES: [&str; 2] = ["database.yaml", "op_mapping.yaml"];
const DATABASE_FILE: &str = "database.yaml";
const STATE_FOLDER: &str = ".npubench";

/// A database folder that exists.
#[derive(Clone, Debug)]
pub struct Database {
    folder: PathBuf,
    file: DatabaseFile,
    has_file: bool,
}

impl Database {
    /// Opens a folder. One without `database.yaml` is of kind `npu`, as older tools leave it.
    ///
    /// # Errors
    /// [`StoreError::NoDatabase`] where there is no such folder; [`StoreError::Spec`].
    pub fn open(folder: &Path) -> Result<Self, StoreError> {
        let resolved = folder.canonicalize().ok().filter(|folder| folder.is_dir());
        let folder = resolved.ok_or_else(|| StoreError::NoDatabase { path: folder.to_owned() })?;
        let path = folder.join(DATABASE_FILE);
        let (file, has_file) = match fs::read_to_string(&path) {
            Ok(text) => (DatabaseFile::parse(&path, &text)?, true),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                (DatabaseFile::new(Kind::Npu), false)
            }
            Err(error) => return Err(StoreError::io("read", &path)(error)),
        };
        Ok(Self { folder, file, has_file })
    }

    /// Opens a folder that must be of that kind.
    ///
    /// # Errors
    /// [`StoreError::WrongKind`], and as [`Database::open`].
    pub fn open_as(folder: &Path, wanted: Kind) -> Result<Self, StoreError> {
        let database = Self::open(folder)?;
        if database.kind() != wanted {
            return Err(StoreError::WrongKind { path: folder.to_owned(), actual: database.kind(), wanted });
        }
        Ok(database)
    }

    /// Opens a folder, or makes it: an empty folder and a missing one become a database of that kind.
    ///
    /// # Errors
    /// As [`Database::open_as`]; [`StoreError::Io`] where the folder cannot be made.
    pub fn open_or_create(folder: &Path, kind: Kind) -> Result<Self, StoreError> {
        let is_new = match fs::read_dir(folder) {
            Ok(mut entries) => entries.next().is_none(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => true,
            Err(error) => return Err(StoreError::io("open", folder)(error)),
        };
        if is_new {
            fs::create_dir_all(folder).map_err(StoreError::io("create", folder))?;
            write_atomic(&folder.join(DATABASE_FILE), DatabaseFile::new(kind).print().as_bytes())?;
        }
        Self::open_as(folder, kind)
    }

    /// Measured or rehearsed.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.file.kind
    }

    /// Name of the device profile.
    #[must_use]
    pub fn device(&self) -> &str {
        &self.file.device
    }

    /// The folder, resolved.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where ledger, lock and runs are kept.
    #[must_use]
    pub fn state_folder(&self) -> PathBuf {
        self.folder.join(STATE_FOLDER)
    }

    /// Where the ledger is.
    #[must_use]
    pub fn ledger_path(&self) -> PathBuf {
        self.state_folder().join("ledger.db")
    }

    /// Where the scripts, logs and raw output of a run are.
    #[must_use]
    pub fn run_folder(&self, run: &str) -> PathBuf {
        self.state_folder().join("runs").join(run)
    }

    /// Takes the folder's lock for writing, and gives a folder of older tools its `database.yaml`.
    ///
    /// # Errors
    /// [`StoreError::Locked`] with the owner; [`StoreError::Io`] where the folder is not writable.
    pub fn lock(&self) -> Result<Lock, StoreError> {
        let lock = Lock::take(&self.folder, &self.state_folder())?;
        if !self.has_file {
            write_atomic(&self.folder.join(DATABASE_FILE), self.file.print().as_bytes())?;
        }
        Ok(lock)
    }

    /// Opens the ledger, whose runs must be of the folder's kind: a changed or lost `database.yaml`
    /// does not turn simulated durations into measured ones.
    ///
    /// # Errors
    /// As [`Ledger::open`], and [`StoreError::WrongKind`].
    pub fn ledger(&self) -> Result<Ledger, StoreError> {
        let ledger = Ledger::open(&self.ledger_path())?;
        match ledger.kind()? {
            Some(kind) if kind != self.kind() => {
                Err(StoreError::LedgerKind { path: self.folder.clone(), stated: self.kind(), found: kind })
            }
            _ => Ok(ledger),
        }
    }

    /// Checks that the ledger, where there is one, is of the folder's kind.
    ///
    /// # Errors
    /// As [`Database::ledger`].
    pub fn check_ledger(&self) -> Result<(), StoreError> {
        if self.ledger_path().exists() { self.ledger().map(drop) } else { Ok(()) }
    }

    /// The CSV of a kernel, whether it exists or not.
    #[must_use]
    pub fn kernel_path(&self, kernel: &KernelName) -> PathBuf {
        self.folder.join(format!("{}.csv", kernel.file_stem()))
    }

    /// Every kernel with a CSV, in the order of names. Collectives are left out, they have a schema of
    /// their own.
    ///
    /// # Errors
    /// [`StoreError::Io`] where the folder cannot be listed.
    pub fn kernels(&self) -> Result<Vec<KernelName>, StoreError> {
        let mut kernels = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(StoreError::io("list", &self.folder))? {
            let name = entry.map_err(StoreError::io("list", &self.folder))?.file_name();
            let name = name.to_string_lossy();
            if let Some(stem) = name.strip_suffix(".csv").filter(|stem| !stem.starts_with('.')) {
                kernels.extend(KernelName::from_file_stem(stem).filter(|kernel| !kernel.is_collective()));
            }
        }
        kernels.sort();
        Ok(kernels)
    }

    /// Loads a kernel's CSV, or an empty one with the 62 columns.
    ///
    /// # Errors
    /// As [`KernelCsv::load`].
    pub fn kernel_csv(&self, kernel: &KernelName) -> Result<KernelCsv, StoreError> {
        let path = self.kernel_path(kernel);
        if path.exists() { KernelCsv::load(&path) } else { Ok(KernelCsv::new(&path, &COMPUTE_COLUMNS)) }
    }
}

/// Copies the shapes of a database into a new folder of that kind: all rows and columns, with every
/// measurement of the replay left empty. What production profiles measured stays.
///
/// # Errors
/// [`StoreError::Exists`] where the new folder is there already, and any error of reading or writing;
/// the new folder is then removed.
pub fn copy_shapes(source: &Database, target: &Path, kind: Kind) -> Result<usize, StoreError> {
    if target.exists() {
        return Err(StoreError::Exists { path: target.to_owned() });
    }
    let result = copy_into(source, target, kind);
    if result.is_err() {
        let _ = fs::remove_dir_all(target);
    }
    result
}

fn copy_into(source: &Database, target: &Path, kind: Kind) -> Result<usize, StoreError> {
    let copy = Database::open_or_create(target, kind)?;
    let measured: Vec<String> = COUNTERS
        .iter()
        .map(|counter| columns::microbench(counter))
        .chain(MICROBENCH_COLUMNS.map(String::from))
        .chain([columns::AVERAGE.to_owned()])
        .collect();
    let mut rows = 0;
    for kernel in source.kernels()? {
        let mut table = source.kernel_csv(&kernel)?;
        let cleared: Vec<(&str, String)> = measured
            .iter()
            .filter(|name| table.column(name).is_some())
            .map(|name| (name.as_str(), String::new()))
            .collect();
        for row in 0..table.len() {
            table.update(row, &cleared)?;
        }
        rows += table.len();
        table.save_as(&copy.kernel_path(&kernel))?;
    }
    let mapping = source.folder.join("op_mapping.yaml");
    if mapping.is_file() {
        let text = fs::read(&mapping).map_err(StoreError::io("read", &mapping))?;
        write_atomic(&copy.folder.join("op_mapping.yaml"), &text)?;
    }
    Ok(rows)
}
