//! Output of one run as it was printed.

use std::{collections::BTreeSet, path::PathBuf};

use crate::base::command_error::Failure;
use crate::kernel::Dtype;

/// Unreadable output of a benchmark.
#[derive(Debug, thiserror::Error)]
#[error("{}{}: {problem}", .file.display(), .line.map_or_else(String::new, |line| format!(":{line}")))]
pub(crate) struct BenchmarkError {
    pub(super) file: PathBuf,
    /// Line from 1, where known.
    pub(super) line: Option<usize>,
    pub(super) problem: String,
    pub(super) hint: &'static str,
}

impl Failure for BenchmarkError {
    fn hint(&self) -> String {
        self.hint.to_owned()
    }
}

/// Program that printed the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
pub(crate) enum BenchmarkTool {
    #[strum(serialize = "hccl_test")]
    HcclTest,
    #[strum(serialize = "nccl-tests")]
    NcclTests,
}

/// Check of the received data by the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BenchmarkCheck {
    Passed,
    Failed,
    /// Switched off, or beyond what the benchmark can check.
    NotChecked,
}

/// One line of the table.
#[derive(Clone, Debug)]
pub(super) struct BenchmarkLine {
    pub(super) number: usize,
    pub(super) bytes: u64,
    pub(super) micros: f64,
    pub(super) gigabytes_per_second: f64,
    pub(super) dtype: Option<Dtype>,
    pub(super) check: BenchmarkCheck,
}

/// Output of one run of a benchmark.
#[derive(Clone, Debug)]
pub(crate) struct CollectiveBenchmark {
    pub(super) file: PathBuf,
    pub(crate) tool: BenchmarkTool,
    /// Number of ranks that the output lists.
    pub(crate) ranks: Option<u64>,
    pub(super) lines: Vec<BenchmarkLine>,
    /// Sizes with wrong results on some rank.
    pub(super) failed: BTreeSet<u64>,
    /// Largest size that the header announces.
    pub(super) announced: Option<u64>,
}

impl CollectiveBenchmark {
    /// Returns the largest announced and the largest printed size if the output ends before its header's last one: it may be
    /// cut.
    pub(crate) fn missing_end(&self) -> Option<(u64, u64)> {
        let last = self.lines.iter().map(|line| line.bytes).max()?;
        self.announced.filter(|announced| last < *announced).map(|announced| (announced, last))
    }
}
