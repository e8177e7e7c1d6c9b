//! Database of a sweep.

use std::path::{Path, PathBuf};

use crate::{
    base::{assets::AssetFiles, command_error::CommandError, files::ScratchFolder},
    database::{Database, DatabaseError, database_file::DatabaseFile},
    kernel::DataKind,
    measure::{
        device_choice::{chip_of_host, choose_device},
        environment::check_path,
    },
    profile::DeviceEvidence,
};

/// Database of a sweep. A new one is created after everything that can refuse the sweep, so that a refused sweep leaves
/// none.
#[derive(Debug)]
pub(crate) struct SweepDatabase {
    folder: PathBuf,
    /// Draft of a database that does not exist yet.
    draft: Option<DatabaseDraft>,
}

/// Empty database in a temporary folder, by which a sweep is planned.
#[derive(Debug)]
struct DatabaseDraft {
    file: DatabaseFile,
    device_source: String,
    folder: PathBuf,
    _scratch: ScratchFolder,
}

impl SweepDatabase {
    /// Finds the database of a folder. A new one gets the given device or that of the host.
    pub(crate) fn find(
        folder: &Path,
        kind: DataKind,
        assets: &AssetFiles,
        device: Option<&str>,
    ) -> Result<Self, CommandError> {
        let mut found = Self { folder: folder.to_owned(), draft: None };
        if Database::is_new(folder)? {
            check_path(folder, kind)?;
            let device = choose_device(assets, kind, device, &DeviceEvidence::default(), chip_of_host)?;
            let file = DatabaseFile { device: device.name, ..DatabaseFile::new(kind) };
            let scratch = ScratchFolder::create().map_err(CommandError::no_temporary_folder)?;
            let folder = scratch.path().join("database");
            create(&folder, &file)?;
            found.draft =
                Some(DatabaseDraft { file, device_source: device.source, folder, _scratch: scratch });
        }
        Ok(found)
    }

    pub(crate) fn planning_folder(&self) -> &Path {
        self.draft.as_ref().map_or(&self.folder, |draft| &draft.folder)
    }

    /// Returns a note on a database that a preview does not create; `None` if it exists.
    pub(crate) fn draft_note(&self) -> Option<String> {
        self.note("would create")
    }

    /// Creates the database if it is new; returns its folder, and a note on a new one.
    pub(crate) fn create(self) -> Result<(PathBuf, Option<String>), CommandError> {
        if let Some(draft) = &self.draft {
            create(&self.folder, &draft.file)?;
        }
        let note = self.note("created");
        Ok((self.folder, note))
    }

    fn note(&self, verb: &str) -> Option<String> {
        let DatabaseDraft { file, device_source, .. } = self.draft.as_ref()?;
        Some(format!("{verb} the database `{}` for {} ({device_source})", self.folder.display(), file.device))
    }
}

fn create(folder: &Path, file: &DatabaseFile) -> Result<(), CommandError> {
    Ok(Database::create(folder, file, |_| Ok::<(), DatabaseError>(()))?)
}
