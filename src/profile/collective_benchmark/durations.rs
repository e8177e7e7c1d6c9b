//! Durations of message sizes from the lines of an output.

use std::collections::BTreeMap;

use super::{BenchmarkCheck, BenchmarkError, BenchmarkLine, BenchmarkTool, CollectiveBenchmark};
use crate::kernel::{CollectiveKind, Dtype};

/// Relative difference between a bandwidth and size by time that is not due to rounding.
const TOLERANCE: f64 = 0.02;

/// Mean duration of a message size.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BenchmarkDuration {
    /// Size in the sense of the tables.
    pub(crate) message: u64,
    pub(crate) micros: f64,
    pub(crate) dtype: Dtype,
    /// True if the benchmark compared the received data with the expected ones.
    pub(crate) is_checked: bool,
}

/// Durations of a benchmark, and the sizes that are left out.
#[derive(Clone, Debug, Default)]
pub(crate) struct BenchmarkDurations {
    pub(crate) durations: Vec<BenchmarkDuration>,
    /// Sizes with wrong results, as printed.
    pub(crate) failed: Vec<u64>,
}

/// Meaning of a printed size; both are the same for collectives but gathers and scatters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PrintedSize {
    OfAllRanks,
    OfOneRank,
}

impl CollectiveBenchmark {
    /// Returns the durations for a collective. Several lines of one size stand for their median.
    pub(crate) fn durations(
        &self,
        kind: CollectiveKind,
        ranks: u64,
        dtype: Option<&Dtype>,
    ) -> Result<BenchmarkDurations, BenchmarkError> {
        let per_rank = kind.bandwidth_bytes(1, ranks).unwrap_or(1);
        let scale = self.size_scale(per_rank)?;
        let mut sizes: BTreeMap<(u64, Dtype), Vec<&BenchmarkLine>> = BTreeMap::new();
        for line in &self.lines {
            if self.failed.contains(&line.bytes) {
                continue;
            }
            let error = |problem: String, hint| self.error(line.number, problem, hint);
            let Some(dtype) = line.dtype.as_ref().or(dtype) else {
                return Err(error(
                    format!("{} does not print the element type", self.tool),
                    "give it with `--dtype`, such as FLOAT",
                ));
            };
            let message = match scale {
                PrintedSize::OfOneRank => line.bytes,
                PrintedSize::OfAllRanks if line.bytes.is_multiple_of(per_rank) => line.bytes / per_rank,
                PrintedSize::OfAllRanks => {
                    return Err(error(
                        format!("{} bytes cannot be divided among {ranks} ranks", line.bytes),
                        "correct `--ranks`, or remove the line: the benchmark measured a rounded size",
                    ));
                }
            };
            sizes.entry((message, dtype.clone())).or_default().push(line);
        }
        let durations = sizes.into_iter().map(|((message, dtype), mut lines)| {
            lines.sort_by(|one, other| one.micros.total_cmp(&other.micros));
            let (low, high) = (lines[(lines.len() - 1) / 2].micros, lines[lines.len() / 2].micros);
            BenchmarkDuration {
                message,
                micros: f64::midpoint(low, high),
                dtype,
                is_checked: lines.iter().all(|line| line.check == BenchmarkCheck::Passed),
            }
        });
        Ok(BenchmarkDurations {
            durations: durations.collect(),
            failed: self.failed.iter().copied().collect(),
        })
    }

    fn error(&self, number: usize, problem: String, hint: &'static str) -> BenchmarkError {
        BenchmarkError { file: self.file.clone(), line: Some(number), problem, hint }
    }

    /// Compares the bandwidths with size by time, and returns the meaning of the sizes.
    #[expect(clippy::cast_precision_loss, reason = "sizes of messages are below 2^53")]
    fn size_scale(&self, per_rank: u64) -> Result<PrintedSize, BenchmarkError> {
        const GIBI: f64 = 1.073_741_824;
        let mut found: Option<PrintedSize> = None;
        for line in &self.lines {
            // Bandwidths have 2 to 5 decimals, times 2: small ones are rounded too much.
            let decimals = if self.tool == BenchmarkTool::HcclTest { 5e-6 } else { 5e-3 };
            let rounding = decimals / line.gigabytes_per_second + 5e-3 / line.micros;
            // Not a number for a bandwidth of 0.
            if rounding.is_nan() || rounding >= TOLERANCE / 2.0 {
                continue;
            }
            let ratio = line.gigabytes_per_second * line.micros * 1e3 / line.bytes as f64;
            let is_near = |factor: f64| {
                [factor, factor / GIBI].iter().any(|expected| (ratio / expected - 1.0).abs() < TOLERANCE)
            };
            let meaning = match () {
                () if is_near(1.0) => PrintedSize::OfAllRanks,
                () if is_near(per_rank as f64) => PrintedSize::OfOneRank,
                () => {
                    let problem = format!(
                        "{} GB/s is not the bandwidth of {} bytes in {} us, nor of {per_rank} times as many",
                        line.gigabytes_per_second, line.bytes, line.micros
                    );
                    return Err(self.error(line.number, problem, "correct `--collective` and `--ranks`"));
                }
            };
            if found.is_some_and(|found| found != meaning) {
                let problem = "the sizes of this line and of earlier ones have different meanings";
                return Err(self.error(line.number, problem.to_owned(), "give one run per file"));
            }
            found = Some(meaning);
        }
        match found {
            Some(found) => Ok(found),
            None if per_rank == 1 || self.tool == BenchmarkTool::NcclTests => Ok(PrintedSize::OfAllRanks),
            None => Err(BenchmarkError {
                file: self.file.clone(),
                line: None,
                problem: "all bandwidths are rounded too much to show what the sizes mean".to_owned(),
                hint: "measure larger messages as well",
            }),
        }
    }
}
