//! Results of the experiments of a selftest.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::{base::process::ProcessError, kernel::render::RenderError, profile::ProfileError};

/// Outcome of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub(crate) enum ExperimentStatus {
    /// The assumption holds on this host.
    Pass,
    /// The assumption is wrong on this host.
    Fail,
    /// The evidence could not be collected.
    Unknown,
}

/// Comparison of the evidence of an experiment with its assumption.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExperimentFinding {
    pub(crate) expected: String,
    pub(crate) seen: String,
    pub(crate) status: ExperimentStatus,
}

impl ExperimentFinding {
    /// Creates a finding that passes if there are no problems; problems replace what was seen.
    pub(crate) fn from_problems(expected: &str, seen: impl Into<String>, problems: &[String]) -> Self {
        let (seen, status) = match problems {
            [] => (seen.into(), ExperimentStatus::Pass),
            problems => (problems.join("; "), ExperimentStatus::Fail),
        };
        Self { expected: expected.to_owned(), seen, status }
    }

    /// Creates a finding without evidence.
    pub(crate) fn unknown(expected: &str, reason: impl Into<String>) -> Self {
        Self { expected: expected.to_owned(), seen: reason.into(), status: ExperimentStatus::Unknown }
    }
}

/// Result of an experiment: one line of `results.jsonl`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ExperimentReport {
    pub(crate) number: u32,
    pub(crate) name: String,
    pub(crate) assumption: String,
    pub(crate) expected: String,
    pub(crate) seen: String,
    pub(crate) status: ExperimentStatus,
    pub(crate) seconds: f64,
    /// Folder of the scripts, logs and raw output.
    pub(crate) evidence: PathBuf,
    /// Action after a failure.
    #[serde(default)]
    pub(crate) fix: String,
}

/// Reason why evidence could not be collected.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EvidenceError {
    /// The selftest was interrupted; no further experiment starts.
    #[error("interrupted")]
    Interrupted,
    /// A program, a tool or a condition of the experiment is missing.
    #[error("{0}")]
    Missing(String),
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error(transparent)]
    Profile(#[from] ProfileError),
    #[error(transparent)]
    Render(#[from] RenderError),
    /// A file of the evidence cannot be written or read.
    #[error("`{}`: {source}", .path.display())]
    Io {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

impl EvidenceError {
    pub(crate) fn io(path: &std::path::Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }
}
