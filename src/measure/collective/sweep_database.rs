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
    /// Source of the device, for messages.
    device_source: String,
    scratch: ScratchFolder,
    folder: PathBuf,
}

impl SweepDatabase {
    /// Finds the database of a folder. A new one gets the given device or that of the host.
    pub(crate) fn find(
        folder: &Path,
        kind: DataKind,
        assets: &AssetFiles,
        device: Option<&str>,
    ) -> Result<Self, CommandError> {
        let folder = folder.to_owned();
        if !Database::is_new(&folder)? {
            return Ok(Self { folder, draft: None });
        }
        check_path(&folder, kind)?;
        let device = choose_device(assets, kind, device, &DeviceEvidence::default(), chip_of_host)?;
        let file = DatabaseFile { device: device.name, ..DatabaseFile::new(kind) };
        let scratch = ScratchFolder::create().map_err(CommandError::no_temporary_folder)?;
        let draft = scratch.path().join("database");
        create(&draft, &file)?;
        let draft = DatabaseDraft { file, device_source: device.source, scratch, folder: draft };
        Ok(Self { folder, draft: Some(draft) })
    }

    /// Returns the folder of the database, or of its draft.
    pub(crate) fn planning_folder(&self) -> &Path {
        self.draft.as_ref().map_or(&self.folder, |draft| &draft.folder)
    }

    /// Returns a note on a database that a preview does not create; `None` if it exists.
    pub(crate) fn draft_note(&self) -> Option<String> {
        self.draft.as_ref().map(|draft| draft.note("would create", &self.folder))
    }

    /// Creates the database if it is new; returns its folder, and a note on a new one.
    pub(crate) fn create(self) -> Result<(PathBuf, Option<String>), CommandError> {
        let Some(draft) = self.draft else { return Ok((self.folder, None)) };
        create(&self.folder, &draft.file)?;
        let note = draft.note("created", &self.folder);
        drop(draft.scratch);
        Ok((self.folder, Some(note)))
    }
}

impl DatabaseDraft {
    fn note(&self, verb: &str, folder: &Path) -> String {
        let (device, source) = (&self.file.device, &self.device_source);
        format!("{verb} the database `{}` for {device} ({source})", folder.display())
    }
}

fn create(folder: &Path, file: &DatabaseFile) -> Result<(), CommandError> {
    Ok(Database::create(folder, file, |_| Ok::<(), DatabaseError>(()))?)
}
