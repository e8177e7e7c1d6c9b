//! What keeps a database from growing.

use thiserror::Error;

use crate::{
    database::DatabaseError,
    domain::{KernelName, did_you_mean_or},
    profile::ProfileError,
};

/// Why nothing grows.
#[derive(Debug, Error)]
pub enum GridWriteError {
    /// A table or the folder.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// A profile whose cases were to be mutated.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// Neither the database nor a profile has a case.
    #[error("there is no case to mutate")]
    NoCase,
    /// A kernel that was asked for.
    #[error("no case has mutants of `{kernel}`")]
    NoMutants {
        /// The kernel.
        kernel: KernelName,
        /// Those that there are mutants of.
        known: Vec<KernelName>,
    },
}

impl GridWriteError {
    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::Database(error) => error.hint(),
            Self::Profile(error) => error.hint().to_owned(),
            Self::NoCase => {
                "`npubench ingest` brings a profile's cases, `npubench grid` declared ones, `--from` names a profile".to_owned()
            }
            Self::NoMutants { kernel, known } => {
                let known: Vec<&str> = known.iter().map(KernelName::as_str).collect();
                did_you_mean_or(kernel.as_str(), known.iter().copied(), || {
                    format!("there are mutants of {}", known.join(", "))
                })
            }
        }
    }
}
