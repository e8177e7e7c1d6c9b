//! Errors of reading the cases that are mutated.

use thiserror::Error;

use crate::base::command_error::Failure;
use crate::{
    base::suggest::did_you_mean_or, database::DatabaseError, kernel::KernelName, profile::ProfileError,
};

/// Error of reading the cases that are mutated.
#[derive(Debug, Error)]
pub(crate) enum MutationCasesError {
    #[error(transparent)]
    Database(#[from] DatabaseError),
    #[error(transparent)]
    Profile(#[from] ProfileError),
    #[error("the database and `--from` contain no case to mutate")]
    NoCase,
    #[error("no case has mutants of `{kernel}`")]
    NoMutants { kernel: KernelName, known: Vec<KernelName> },
}

impl Failure for MutationCasesError {
    fn hint(&self) -> String {
        match self {
            Self::Database(error) => error.hint(),
            Self::Profile(error) => error.hint(),
            Self::NoCase => {
                "add cases to the database with `npubench ingest` or `npubench grid`, or give a profile with `--from`".to_owned()
            }
            Self::NoMutants { kernel, known } => {
                let known: Vec<&str> = known.iter().map(KernelName::as_str).collect();
                did_you_mean_or(kernel.as_str(), known.iter().copied(), || {
                    format!("kernels with mutants: {}", known.join(", "))
                })
            }
        }
    }
}
