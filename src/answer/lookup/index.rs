//! The tables of a database, loaded when they are first needed.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, OnceLock, PoisonError, RwLock},
};

use super::{AttentionFamily, AttentionTable, CollectiveTable, KernelIndex, KernelRows, UsedRow};
use crate::{
    answer::op_mapping::OpMapping,
    base::command_error::Failure,
    database::{Database, DatabaseError, KernelCsv, TableCases},
    kernel::{DataKind, KernelName},
};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct LookupError {
    message: String,
    hint: String,
}

impl Failure for LookupError {
    fn hint(&self) -> String {
        self.hint.clone()
    }
}

impl From<&DatabaseError> for LookupError {
    fn from(error: &DatabaseError) -> Self {
        Self { message: error.to_string(), hint: error.hint() }
    }
}

/// Tables by kernel, each of which is read when it is first needed.
#[derive(Debug)]
struct LoadedTables<T>(RwLock<BTreeMap<KernelName, Result<T, LookupError>>>);

impl<T> Default for LoadedTables<T> {
    fn default() -> Self {
        Self(RwLock::default())
    }
}

impl<T: Clone> LoadedTables<T> {
    fn get(
        &self,
        kernel: &KernelName,
        load: impl FnOnce() -> Result<T, DatabaseError>,
    ) -> Result<T, LookupError> {
        if let Some(loaded) = self.0.read().unwrap_or_else(PoisonError::into_inner).get(kernel) {
            return loaded.clone();
        }
        let loaded = load().map_err(|error| LookupError::from(&error));
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(kernel.clone(), loaded.clone());
        loaded
    }
}

#[derive(Debug)]
pub(crate) struct DatabaseIndex {
    database: Database,
    reads_verdicts: bool,
    kernels: BTreeMap<KernelName, OnceLock<Result<KernelIndex, LookupError>>>,
    attention: LoadedTables<Arc<AttentionTable>>,
    collectives: LoadedTables<Option<Arc<CollectiveTable>>>,
    cases: LoadedTables<Arc<TableCases>>,
}

impl DatabaseIndex {
    pub(crate) fn new(database: Database, reads_verdicts: bool) -> Result<Self, DatabaseError> {
        let kernels = database.kernels()?.into_iter().map(|kernel| (kernel, OnceLock::new())).collect();
        Ok(Self::with_kernels(database, reads_verdicts, kernels))
    }

    fn with_kernels(
        database: Database,
        reads_verdicts: bool,
        kernels: BTreeMap<KernelName, OnceLock<Result<KernelIndex, LookupError>>>,
    ) -> Self {
        let (attention, collectives, cases) = Default::default();
        Self { database, reads_verdicts, kernels, attention, collectives, cases }
    }

    /// Returns an index of the same database that has one table only.
    pub(crate) fn with_table(
        &self,
        kernel: &KernelName,
        table: &KernelCsv,
        mapping: &OpMapping,
    ) -> Result<Self, DatabaseError> {
        let rows = KernelRows::load(kernel, table, mapping.policy(kernel.as_str()), self.reads_verdicts)?;
        let attention = AttentionFamily::of_kernel(kernel);
        let attention = attention.map(|family| AttentionTable::load(family, &rows, table)).transpose()?;
        let kernels = BTreeMap::from([(kernel.clone(), OnceLock::from(Ok(KernelIndex::new(rows))))]);
        let index = Self::with_kernels(self.database.clone(), self.reads_verdicts, kernels);
        if let Some(loaded) = attention {
            let mut tables = index.attention.0.write().unwrap_or_else(PoisonError::into_inner);
            tables.insert(kernel.clone(), Ok(Arc::new(loaded)));
        }
        Ok(index)
    }

    pub(crate) fn folder(&self) -> &Path {
        self.database.folder()
    }

    pub(crate) fn kind(&self) -> DataKind {
        self.database.kind()
    }

    pub(crate) fn table_cases(&self, kernel: &KernelName) -> Result<Arc<TableCases>, LookupError> {
        self.cases.get(kernel, || Ok(Arc::new(TableCases::read(kernel, &self.database.kernel_csv(kernel)?)?)))
    }

    pub(crate) fn kernels(&self) -> impl Iterator<Item = &KernelName> {
        self.kernels.keys()
    }

    /// Returns the rows of a kernel; `None` without a table.
    pub(crate) fn kernel(
        &self,
        kernel: &KernelName,
        mapping: &OpMapping,
    ) -> Result<Option<&KernelIndex>, LookupError> {
        let Some((kernel, loaded)) = self.kernels.get_key_value(kernel) else { return Ok(None) };
        let loaded = loaded.get_or_init(|| {
            let policy = mapping.policy(kernel.as_str());
            let rows = self
                .database
                .kernel_csv(kernel)
                .and_then(|table| KernelRows::load(kernel, &table, policy, self.reads_verdicts));
            rows.map(KernelIndex::new).map_err(|error| LookupError::from(&error))
        });
        loaded.as_ref().map(Some).map_err(Clone::clone)
    }

    pub(crate) fn set_hidden(&mut self, rows: &[UsedRow], is_hidden: bool) {
        for row in rows {
            let loaded = self.kernels.get_mut(&row.kernel).and_then(OnceLock::get_mut);
            if let Some(Ok(index)) = loaded {
                index.rows.set_hidden(row.line, is_hidden);
            }
        }
    }

    pub(crate) fn attention(&self, index: &KernelIndex) -> Result<Arc<AttentionTable>, LookupError> {
        let kernel = &index.rows.kernel;
        // A mapping may name another kernel for the selection of keys.
        let family = AttentionFamily::of_kernel(kernel).unwrap_or(AttentionFamily::Indexer);
        self.attention.get(kernel, || {
            Ok(Arc::new(AttentionTable::load(family, &index.rows, &self.database.kernel_csv(kernel)?)?))
        })
    }

    /// Returns the table of a collective: from the folder that the mapping names, else from the database; `None`
    /// without one.
    pub(crate) fn collective(
        &self,
        kernel: &KernelName,
        mapping: &OpMapping,
    ) -> Result<Option<Arc<CollectiveTable>>, LookupError> {
        self.collectives.get(kernel, || {
            let own = self.database.folder().to_owned();
            for folder in mapping.communication_folder().into_iter().chain([own]) {
                if let Some(table) = CollectiveTable::load(kernel, &folder, self.reads_verdicts)? {
                    return Ok(Some(Arc::new(table)));
                }
            }
            Ok(None)
        })
    }
}
