//! The database that rows are for: read in memory, then written, each table whole or not at all.

use std::path::Path;

use crate::{
    config::DatabaseFile,
    database::{Database, DatabaseError, KernelCsv},
    domain::DataKind,
    grid::in_parallel,
};

/// The database that rows are for, which need not be there yet.
#[derive(Debug)]
pub struct TargetDatabase<'a> {
    folder: &'a Path,
    database: Option<Database>,
    file: DatabaseFile,
}

/// What became of a kernel, with its table where that has more rows now.
#[derive(Debug)]
pub struct GrownTable<T> {
    /// What there is to tell.
    pub outcome: T,
    /// Not written yet.
    pub(crate) table: Option<KernelCsv>,
}

impl<'a> TargetDatabase<'a> {
    /// Opens what is there; kind and device are those of a new one.
    ///
    /// # Errors
    /// [`DatabaseError`] where the folder is no database, or one of another kind.
    pub fn open(
        folder: &'a Path,
        kind: Option<DataKind>,
        device: Option<&str>,
    ) -> Result<Self, DatabaseError> {
        let is_new = Database::is_new(folder)?;
        let database = match (is_new, kind) {
            (true, _) => None,
            (false, Some(kind)) => Some(Database::open_as(folder, kind)?),
            (false, None) => Some(Database::open(folder)?),
        };
        let mut file = DatabaseFile::new(kind.unwrap_or(DataKind::Npu));
        if let Some(device) = device {
            device.clone_into(&mut file.device);
        }
        Ok(Self { folder, database, file })
    }

    /// Name of its device profile.
    #[must_use]
    pub fn device(&self) -> &str {
        self.database.as_ref().map_or(self.file.device.as_str(), Database::device)
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> DataKind {
        self.database.as_ref().map_or(self.file.kind, Database::kind)
    }

    /// Lets tables grow, and writes those that did unless nothing is to be written. `grow` gets no database where
    /// there is none and none is to be made.
    ///
    /// # Errors
    /// Those of `grow`, before anything is written, and [`DatabaseError`].
    pub fn grow<T, E: From<DatabaseError>>(
        &self,
        dry_run: bool,
        mut grow: impl FnMut(Option<&Database>) -> Result<Vec<GrownTable<T>>, E>,
    ) -> Result<Vec<T>, E> {
        let grown = match (&self.database, dry_run) {
            (database, true) => grow(database.as_ref())?,
            (None, false) => {
                let mut grown = Vec::new();
                Database::create(self.folder, &self.file, |draft| {
                    let database = Database::open(draft)?;
                    grown = grow(Some(&database))?;
                    Ok::<(), E>(save(&grown)?)
                })?;
                grown
            }
            (Some(database), false) => {
                let mut lock = database.lock()?;
                database.existing_ledger()?;
                let grown = grow(Some(database))?;
                if grown.iter().any(|one| one.table.as_ref().is_some_and(KernelCsv::is_changed)) {
                    database.initialise(&mut lock)?;
                }
                save(&grown)?;
                grown
            }
        };
        Ok(grown.into_iter().map(|one| one.outcome).collect())
    }
}

/// Writes all tables.
fn save<T>(grown: &[GrownTable<T>]) -> Result<(), DatabaseError> {
    let tables: Vec<&KernelCsv> = grown.iter().filter_map(|one| one.table.as_ref()).collect();
    in_parallel(tables.len(), |index| tables[index].save().map(drop)).into_iter().collect()
}
