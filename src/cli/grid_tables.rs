//! Tables that grow: read in memory on all cores, then written, each whole or not at all.

use std::{
    path::Path,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use super::Failure;
use crate::{
    model::Kind,
    spec::DatabaseFile,
    store::{Database, KernelCsv, StoreError},
};

/// The database that rows are for, which need not be there yet.
pub(super) struct Target<'a> {
    folder: &'a Path,
    database: Option<Database>,
    file: DatabaseFile,
}

impl<'a> Target<'a> {
    /// Opens what is there; kind and device are those of a new one.
    pub(super) fn open(folder: &'a Path, kind: Option<Kind>, device: Option<&str>) -> Result<Self, Failure> {
        let is_new = Database::is_new(folder)?;
        let database = match (is_new, kind) {
            (true, _) => None,
            (false, Some(kind)) => Some(Database::open_as(folder, kind)?),
            (false, None) => Some(Database::open(folder)?),
        };
        let mut file = DatabaseFile::new(kind.unwrap_or(Kind::Npu));
        if let Some(device) = device {
            device.clone_into(&mut file.device);
        }
        Ok(Self { folder, database, file })
    }

    /// Name of its device profile.
    pub(super) fn device(&self) -> &str {
        self.database.as_ref().map_or(self.file.device.as_str(), Database::device)
    }

    /// Its kind.
    pub(super) fn kind(&self) -> Kind {
        self.database.as_ref().map_or(self.file.kind, Database::kind)
    }

    /// Lets tables grow, and writes those that did unless nothing is to be written.
    pub(super) fn grow<T>(
        &self,
        dry_run: bool,
        mut grow: impl FnMut(Option<&Database>) -> Result<Vec<T>, Failure>,
        table: fn(&T) -> Option<&KernelCsv>,
    ) -> Result<Vec<T>, Failure> {
        let save = |grown: &[T]| -> Result<(), StoreError> {
            let tables: Vec<&KernelCsv> = grown.iter().filter_map(table).collect();
            in_parallel(tables.len(), |index| tables[index].save().map(drop)).into_iter().collect()
        };
        match (&self.database, dry_run) {
            (database, true) => grow(database.as_ref()),
            (None, false) => {
                let mut grown = Vec::new();
                Database::create(self.folder, &self.file, |draft| {
                    let database = Database::open(draft)?;
                    grown = grow(Some(&database))?;
                    Ok::<(), Failure>(save(&grown)?)
                })?;
                Ok(grown)
            }
            (Some(database), false) => {
                let mut lock = database.lock()?;
                database.existing_ledger()?;
                let grown = grow(Some(database))?;
                if grown.iter().any(|one| table(one).is_some_and(KernelCsv::is_changed)) {
                    database.adopt(&mut lock)?;
                }
                save(&grown)?;
                Ok(grown)
            }
        }
    }
}

/// Does so many things on all cores; results are in the order of their numbers.
pub(super) fn in_parallel<T: Send>(count: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(count));
    let workers = thread::available_parallelism().map_or(1, usize::from).min(count);
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        break;
                    }
                    let result = work(index);
                    done.lock().unwrap_or_else(PoisonError::into_inner).push((index, result));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}
