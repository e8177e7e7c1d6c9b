//! Database that gets rows of grids and mutations, existing or new.

use std::path::Path;

use super::{RowWriter, writer::ExtendedTable};
use crate::{
    cases::grid::SelectedRows,
    database::{Database, DatabaseError, KernelCsv, database_file::DatabaseFile, save_tables},
    kernel::DataKind,
};

/// Database that gets rows; its folder need not exist.
#[derive(Debug)]
pub(crate) struct TargetDatabase<'a> {
    folder: &'a Path,
    database: Option<Database>,
    file: DatabaseFile,
}

impl<'a> TargetDatabase<'a> {
    /// Opens a database, which must be of this kind if it exists.
    pub(crate) fn open(folder: &'a Path, kind: Option<DataKind>) -> Result<Self, DatabaseError> {
        let is_new = Database::is_new(folder)?;
        let database = match (is_new, kind) {
            (true, _) => None,
            (false, Some(kind)) => Some(Database::open_as(folder, kind)?),
            (false, None) => Some(Database::open(folder)?),
        };
        let file = DatabaseFile::new(kind.unwrap_or(DataKind::Npu));
        Ok(Self { folder, database, file })
    }

    pub(crate) fn set_device(&mut self, device: String) {
        self.file.device = device;
    }

    pub(crate) const fn existing(&self) -> Option<&Database> {
        self.database.as_ref()
    }

    pub(crate) fn device(&self) -> &str {
        self.database.as_ref().map_or(self.file.device.as_str(), Database::device)
    }

    pub(crate) fn kind(&self) -> DataKind {
        self.database.as_ref().map_or(self.file.kind, Database::kind)
    }

    /// Selects rows and, unless `dry_run`, writes them, also to a new database; all tables are read before.
    pub(crate) fn add_rows<'w>(
        &self,
        writer: &RowWriter<'w>,
        dry_run: bool,
    ) -> Result<Vec<SelectedRows<'w>>, DatabaseError> {
        let extended = match (&self.database, dry_run) {
            (database, true) => writer.extend_tables(database.as_ref())?,
            (None, false) => {
                let mut extended = Vec::new();
                Database::create(self.folder, &self.file, |draft| {
                    let database = Database::open(draft)?;
                    extended = writer.extend_tables(Some(&database))?;
                    save(&extended)
                })?;
                extended
            }
            (Some(database), false) => {
                let mut lock = database.lock()?;
                database.existing_ledger()?;
                let extended = writer.extend_tables(Some(database))?;
                if extended.iter().any(|(_, table)| table.as_ref().is_some_and(KernelCsv::is_changed)) {
                    database.initialise(&mut lock)?;
                }
                save(&extended)?;
                extended
            }
        };
        Ok(extended.into_iter().map(|(selected, _)| selected).collect())
    }
}

/// Writes all tables with new rows, on all cores.
fn save(extended: &[ExtendedTable<'_>]) -> Result<(), DatabaseError> {
    let tables: Vec<&KernelCsv> = extended.iter().filter_map(|(_, table)| table.as_ref()).collect();
    save_tables(&tables)
}
