//! Output of the collective benchmarks hccl_test and nccl-tests.
//!
//! hccl_test prints `data_size(Bytes): | aveg_time(us): | alg_bandwidth(GB/s): | check_result:` (its manual has `avg_time`). Of
//! gathers and scatters newer versions print the size of all ranks together, older ones that of one rank, and older ones count
//! 2^30 bytes as a GB: the bandwidth shows which one it is. nccl-tests prints the size of all ranks together.

mod durations;
mod parser;
#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, path::PathBuf};

pub(crate) use durations::BenchmarkDurations;
pub(crate) use parser::parse_element_type;

use crate::{base::command_error::Failure, kernel::Dtype};

/// Unreadable output of a benchmark.
#[derive(Debug, thiserror::Error)]
#[error("{}{}: {problem}", .file.display(), .line.map_or_else(String::new, |line| format!(":{line}")))]
pub(crate) struct BenchmarkError {
    file: PathBuf,
    /// Line from 1, where known.
    line: Option<usize>,
    problem: String,
    hint: &'static str,
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
enum BenchmarkCheck {
    Passed,
    Failed,
    /// Switched off, or beyond what the benchmark can check.
    NotChecked,
}

/// One line of the table.
#[derive(Clone, Debug)]
struct BenchmarkLine {
    number: usize,
    bytes: u64,
    micros: f64,
    gigabytes_per_second: f64,
    dtype: Option<Dtype>,
    check: BenchmarkCheck,
}

/// Output of one run of a benchmark.
#[derive(Clone, Debug)]
pub(crate) struct CollectiveBenchmark {
    file: PathBuf,
    pub(crate) tool: BenchmarkTool,
    /// Number of ranks that the output lists.
    pub(crate) ranks: Option<u64>,
    lines: Vec<BenchmarkLine>,
    /// Sizes with wrong results on some rank.
    failed: BTreeSet<u64>,
    /// Largest size that the header announces.
    announced: Option<u64>,
}

impl CollectiveBenchmark {
    /// Returns the largest announced and the largest printed size if the output ends before its header's last one: it may be
    /// cut.
    pub(crate) fn missing_end(&self) -> Option<(u64, u64)> {
        let last = self.lines.iter().map(|line| line.bytes).max()?;
        self.announced.filter(|announced| last < *announced).map(|announced| (announced, last))
    }
}
