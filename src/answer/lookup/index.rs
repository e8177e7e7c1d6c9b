//! The tables of a database, loaded when they are first needed.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, OnceLock, PoisonError, RwLock},
};

use super::{
    answer::UsedRow,
    attention::{AttentionTable, work::AttentionFamily},
    collective::CollectiveTable,
    kernel_index::KernelIndex,
    kernel_rows::KernelRows,
};
use crate::base::command_error::Failure;
use crate::{
    answer::op_mapping::OpMapping,
    database::{Database, DatabaseError, KernelCsv, TableCases},
    kernel::{DataKind, KernelName},
};

/// A table that cannot be read.
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

#[derive(Debug)]
pub(crate) struct DatabaseIndex {
    database: Database,
    reads_verdicts: bool,
    kernels: BTreeMap<KernelName, OnceLock<Result<KernelIndex, LookupError>>>,
    attention: RwLock<BTreeMap<KernelName, Result<Arc<AttentionTable>, LookupError>>>,
    collectives: RwLock<BTreeMap<KernelName, LoadedCollective>>,
    cases: RwLock<BTreeMap<KernelName, Result<Arc<TableCases>, LookupError>>>,
}

type LoadedCollective = Result<Option<Arc<CollectiveTable>>, LookupError>;

impl DatabaseIndex {
    pub(crate) fn new(database: Database, reads_verdicts: bool) -> Result<Self, DatabaseError> {
        let kernels = database.kernels()?.into_iter().map(|kernel| (kernel, OnceLock::new())).collect();
        Ok(Self {
            database,
            reads_verdicts,
            kernels,
            attention: RwLock::default(),
            collectives: RwLock::default(),
            cases: RwLock::default(),
        })
    }

    pub(crate) fn with_table(
        &self,
        kernel: &KernelName,
        table: &KernelCsv,
        mapping: &OpMapping,
    ) -> Result<Self, DatabaseError> {
        let rows = KernelRows::load(kernel, table, mapping.policy(kernel.as_str()), self.reads_verdicts)?;
        let mut attention = BTreeMap::new();
        if let Some(family) = AttentionFamily::of_kernel(kernel) {
            let loaded = AttentionTable::load(family, &rows, table)?;
            attention.insert(kernel.clone(), Ok(Arc::new(loaded)));
        }
        Ok(Self {
            database: self.database.clone(),
            reads_verdicts: self.reads_verdicts,
            kernels: BTreeMap::from([(kernel.clone(), OnceLock::from(Ok(KernelIndex::new(rows))))]),
            attention: RwLock::new(attention),
            collectives: RwLock::default(),
            cases: RwLock::default(),
        })
    }

    pub(crate) fn folder(&self) -> &Path {
        self.database.folder()
    }

    pub(crate) fn kind(&self) -> DataKind {
        self.database.kind()
    }

    pub(crate) fn table_cases(&self, kernel: &KernelName) -> Result<Arc<TableCases>, LookupError> {
        let tables = self.cases.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(loaded) = tables.get(kernel) {
            return loaded.clone();
        }
        drop(tables);
        let table = self.database.kernel_csv(kernel);
        let loaded = table.and_then(|table| TableCases::read(kernel, &table));
        let loaded = loaded.map(Arc::new).map_err(|error| LookupError::from(&error));
        let mut tables = self.cases.write().unwrap_or_else(PoisonError::into_inner);
        tables.insert(kernel.clone(), loaded.clone());
        loaded
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

    /// Hides rows that were read, or shows them again.
    pub(crate) fn set_hidden(&mut self, rows: &[UsedRow], is_hidden: bool) {
        for row in rows {
            let loaded = self.kernels.get_mut(&row.kernel).and_then(OnceLock::get_mut);
            if let Some(Ok(index)) = loaded {
                index.rows.set_hidden(row.line, is_hidden);
            }
        }
    }

    /// Returns the parameters of attention of a kernel's rows.
    pub(crate) fn attention(&self, index: &KernelIndex) -> Result<Arc<AttentionTable>, LookupError> {
        let kernel = &index.rows.kernel;
        let tables = self.attention.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(loaded) = tables.get(kernel) {
            return loaded.clone();
        }
        drop(tables);
        let table = self.database.kernel_csv(kernel);
        // A mapping may name another kernel for the selection of keys.
        let family = AttentionFamily::of_kernel(kernel).unwrap_or(AttentionFamily::Indexer);
        let loaded = table.and_then(|table| AttentionTable::load(family, &index.rows, &table));
        let loaded = loaded.map(Arc::new).map_err(|error| LookupError::from(&error));
        let mut tables = self.attention.write().unwrap_or_else(PoisonError::into_inner);
        tables.insert(kernel.clone(), loaded.clone());
        loaded
    }

    /// Returns the table of a collective: from the folder that the mapping names, else from the database; `None`
    /// without one.
    pub(crate) fn collective(&self, kernel: &KernelName, mapping: &OpMapping) -> LoadedCollective {
        let tables = self.collectives.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(loaded) = tables.get(kernel) {
            return loaded.clone();
        }
        drop(tables);
        let folders = mapping.communication_folder().into_iter().chain([self.database.folder().to_owned()]);
        let mut loaded = Ok(None);
        for folder in folders {
            loaded = CollectiveTable::load(kernel, &folder, self.reads_verdicts)
                .map(|table| table.map(Arc::new))
                .map_err(|error| LookupError::from(&error));
            if !matches!(loaded, Ok(None)) {
                break;
            }
        }
        let mut tables = self.collectives.write().unwrap_or_else(PoisonError::into_inner);
        tables.insert(kernel.clone(), loaded.clone());
        loaded
    }
}
