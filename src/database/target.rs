//! Database that a command writes tables into, existing or new.

use std::{env, path::Path};

use super::{
    Database, DatabaseError, KernelCsv, create::check_new_folder, database_file::DatabaseFile, save_tables,
};
use crate::{base::files::ScratchFolder, kernel::DataKind};

#[derive(Debug)]
pub(crate) struct TargetDatabase<'a> {
    pub(crate) folder: &'a Path,
    pub(crate) existing: Option<Database>,
    pub(crate) file: DatabaseFile,
}

impl<'a> TargetDatabase<'a> {
    /// Opens a database, which must be of this kind if it exists; a new one is of kind `npu` without one.
    pub(crate) fn open(folder: &'a Path, kind: Option<DataKind>) -> Result<Self, DatabaseError> {
        let existing = match (Database::is_new(folder)?, kind) {
            (true, _) => None,
            (false, Some(kind)) => Some(Database::open_as_given(folder, kind, "--kind rehearsal")?),
            (false, None) => Some(Database::open(folder)?),
        };
        let new = || DatabaseFile::new(kind.unwrap_or(DataKind::Npu));
        if existing.is_none() {
            check_new_folder(folder, kind.unwrap_or(DataKind::Npu))?;
        }
        let file = existing.as_ref().map_or_else(new, |database| database.file.clone());
        Ok(Self { folder, existing, file })
    }

    /// Writes the tables that `change` returns; all are changed in memory before the first is written. A dry run writes nothing.
    pub(crate) fn write<T, E: From<DatabaseError>>(
        &self,
        dry_run: bool,
        change: impl FnOnce(&Database) -> Result<(Vec<KernelCsv>, T), E>,
    ) -> Result<T, E> {
        let save = |tables: &[KernelCsv]| save_tables(&tables.iter().collect::<Vec<_>>());
        let Some(database) = &self.existing else {
            let scratch = dry_run.then(ScratchFolder::create).transpose();
            let scratch = scratch.map_err(DatabaseError::io("write into", &env::temp_dir()))?;
            let draft = scratch.as_ref().map(|scratch| scratch.path().join("database"));
            return Database::create(draft.as_deref().unwrap_or(self.folder), &self.file, |folder| {
                let (tables, changed) = change(&Database::open(folder)?)?;
                if !dry_run {
                    save(&tables)?;
                }
                Ok(changed)
            });
        };
        if dry_run {
            return Ok(change(database)?.1);
        }
        let mut lock = database.lock()?;
        database.existing_ledger()?;
        let (mut tables, changed) = change(database)?;
        tables.retain(KernelCsv::is_changed);
        if !tables.is_empty() {
            database.initialise(&mut lock)?;
            // Another command may have added profiles since this one began.
            let stored = Database::open(self.folder)?.file;
            let has_rehearsed_profiles = self.file.has_rehearsed_profiles && stored.has_rehearsed_profiles;
            let own = &self.file.profiled_on;
            let profiled_on = match stored.profiled_on == database.file.profiled_on {
                true => own.clone(),
                false => own.merge_versions(&stored.profiled_on),
            };
            database.set_file(&DatabaseFile { profiled_on, has_rehearsed_profiles, ..stored })?;
        }
        save(&tables)?;
        Ok(changed)
    }
}
