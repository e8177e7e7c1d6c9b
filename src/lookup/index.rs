//! The tables of a database, loaded when they are first needed.

use std::{collections::BTreeMap, sync::OnceLock};

use super::{kernel_index::KernelIndex, kernel_rows::KernelRows, op_mapping::OpMapping};
use crate::{
    database::{Database, DatabaseError},
    domain::KernelName,
};

/// A table that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct LookupError {
    message: String,
    hint: String,
}

impl LookupError {
    /// Returns the recommended action.
    pub fn hint(&self) -> String {
        self.hint.clone()
    }
}

impl From<&DatabaseError> for LookupError {
    fn from(error: &DatabaseError) -> Self {
        Self { message: error.to_string(), hint: error.hint() }
    }
}

/// The tables of a database.
#[derive(Debug)]
pub(crate) struct DatabaseIndex {
    database: Database,
    kernels: BTreeMap<KernelName, OnceLock<Result<KernelIndex, LookupError>>>,
}

impl DatabaseIndex {
    pub(crate) fn new(database: Database) -> Result<Self, DatabaseError> {
        let kernels = database.kernels()?.into_iter().map(|kernel| (kernel, OnceLock::new())).collect();
        Ok(Self { database, kernels })
    }

    /// Returns the names of all kernels with a table.
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
            let rows = self
                .database
                .kernel_csv(kernel)
                .and_then(|table| KernelRows::load(kernel, &table, mapping.policy(kernel.as_str())));
            rows.map(KernelIndex::new).map_err(|error| LookupError::from(&error))
        });
        loaded.as_ref().map(Some).map_err(Clone::clone)
    }
}
