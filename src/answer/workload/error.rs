//! Error type of workloads.

use std::path::{Path, PathBuf};

use crate::base::command_error::Failure;
use crate::{base::yaml::YamlError, profile::ProfileError};

/// Workload that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// Content of a file.
    #[error("{}{}: {problem}", .file.display(), .line.map_or_else(String::new, |line| format!(":{line}")))]
    Content {
        /// The file.
        file: PathBuf,
        /// Line, from 1.
        line: Option<u64>,
        /// The wrong value and the expected one.
        problem: String,
        /// The recommended action.
        hint: String,
    },
    /// A profile.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// A YAML file.
    #[error(transparent)]
    Yaml(#[from] YamlError),
}

impl WorkloadError {
    pub(super) fn of_file(file: &Path, problem: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Content { file: file.to_owned(), line: None, problem: problem.into(), hint: hint.into() }
    }

    pub(super) fn at_line(
        file: &Path,
        line: u64,
        problem: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        let (problem, hint) = (problem.into(), hint.into());
        Self::Content { file: file.to_owned(), line: Some(line), problem, hint }
    }
}

impl Failure for WorkloadError {
    fn hint(&self) -> String {
        match self {
            Self::Content { hint, .. } => hint.clone(),
            Self::Profile(error) => error.hint(),
            Self::Yaml(error) => error.hint.clone(),
        }
    }
}
