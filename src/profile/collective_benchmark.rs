//! Output of the collective benchmarks hccl_test and nccl-tests.
//!
//! hccl_test prints `data_size(Bytes): | aveg_time(us): | alg_bandwidth(GB/s): | check_result:` (its manual has
//! `avg_time`). Of gathers and scatters newer versions print the size of all ranks together, older ones the size of one
//! rank, and older ones count 2^30 bytes as a GB: the bandwidth shows which one it is. nccl-tests prints the size of
//! all ranks together.

#[cfg(test)]
mod tests;

use std::{fmt::Display, str::FromStr};

use super::prelude::*;
use crate::{
    base::{command_error::CommandError, suggest::truncate_for_message},
    kernel::{CollectiveKind, is_kernel_micros},
};

/// Relative difference between a bandwidth and size by time that is not due to rounding.
const TOLERANCE: f64 = 0.02;

#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
pub(crate) enum BenchmarkTool {
    #[strum(serialize = "hccl_test")]
    HcclTest,
    #[strum(serialize = "nccl-tests")]
    NcclTests,
}

#[derive(Clone, Debug)]
struct BenchmarkLine {
    number: u64,
    bytes: u64,
    micros: f64,
    gigabytes_per_second: f64,
    dtype: Option<Dtype>,
    /// Result of the benchmark's check of the received data; `None` if it was switched off, or beyond what can be checked.
    is_right: Option<bool>,
}

#[derive(Clone, Debug)]
pub(crate) struct CollectiveBenchmark {
    file: PathBuf,
    pub(crate) tool: BenchmarkTool,
    pub(crate) ranks: Option<u64>,
    lines: Vec<BenchmarkLine>,
    pub(crate) failed: BTreeSet<u64>,
    /// Largest size that the header announces.
    announced: Option<u64>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BenchmarkDuration {
    /// Size in the sense of the tables.
    pub(crate) message: u64,
    pub(crate) micros: f64,
    pub(crate) dtype: Dtype,
    /// True if the benchmark compared the received data with the expected ones.
    pub(crate) is_checked: bool,
}

/// Parses an element type by its name in a benchmark, torch or a profile, in any case.
pub(crate) fn parse_element_type(name: &str) -> Option<Dtype> {
    let lower = name.to_ascii_lowercase();
    let found = match lower.as_str() {
        "half" => Some(Dtype::Float16),
        "bfp16" => Some(Dtype::Bf16),
        _ => Dtype::from_torch(&lower).or_else(|| Dtype::parse(&name.to_ascii_uppercase())),
    };
    found.filter(|dtype| dtype.bytes().is_some())
}

fn announced_bytes(line: &str) -> Option<u64> {
    let lower = line.to_ascii_lowercase();
    let rest = lower.split_once("maxbytes")?.1;
    let digits = rest.trim_start_matches([' ', ':', '=']).trim_start_matches("is ");
    digits.split(|end: char| !end.is_ascii_digit()).next()?.parse().ok()
}

#[derive(Clone, Copy)]
struct LinePlace<'f> {
    file: &'f Path,
    number: u64,
}

impl LinePlace<'_> {
    fn error(self, problem: impl Display) -> CommandError {
        let hint = "give the complete output of one run of hccl_test or nccl-tests";
        CommandError::in_file(self.file, Some(self.number), problem, hint)
    }

    fn number<T: FromStr>(self, cell: &str, column: &str) -> Result<T, CommandError> {
        let problem = || format!("`{}` in column `{column}` is no number", truncate_for_message(cell));
        cell.parse().map_err(|_| self.error(problem()))
    }

    fn hccl_line(self, line: &str) -> Result<BenchmarkLine, CommandError> {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [size, time, bandwidth, check] = *cells else {
            return Err(self.error(format!("{} cells between `|`, expected 4", cells.len())));
        };
        let is_right = match check {
            "success" => Some(true),
            "failed" => Some(false),
            "NULL" => None,
            other => {
                let other = truncate_for_message(other);
                let problem = format!("`{other}` in column `check_result`, expected success, failed or NULL");
                return Err(self.error(problem));
            }
        };
        Ok(BenchmarkLine {
            number: self.number,
            bytes: self.number(size, "data_size")?,
            micros: self.number(time, "aveg_time")?,
            gigabytes_per_second: self.number(bandwidth, "alg_bandwidth")?,
            dtype: None,
            is_right,
        })
    }

    fn nccl_line(self, line: &str, columns: &[&str]) -> Result<BenchmarkLine, CommandError> {
        let mut cells: Vec<&str> = line.split_whitespace().collect();
        let place = |name: &str| columns.iter().position(|column| *column == name);
        // Collectives without a reduction leave the column empty in some versions.
        if let Some(place) = place("redop").filter(|_| cells.len() + 1 == columns.len()) {
            cells.insert(place, "none");
        }
        if cells.len() != columns.len() {
            return Err(self.error(format!("{} cells, the header has {}", cells.len(), columns.len())));
        }
        // The first of several columns of a name is out of place.
        let cell = |name: &str| {
            place(name).map(|place| cells[place]).ok_or_else(|| self.error(format!("no column `{name}`")))
        };
        let is_right = match cell("#wrong") {
            Ok("0") => Some(true),
            Ok(wrong) if wrong.parse::<f64>().is_ok() => Some(false),
            _ => None,
        };
        let dtype = cell("type")?;
        let is_no_type = || format!("`{}` in column `type` is no element type", truncate_for_message(dtype));
        let dtype = parse_element_type(dtype).ok_or_else(|| self.error(is_no_type()))?;
        Ok(BenchmarkLine {
            number: self.number,
            bytes: self.number(cell("size")?, "size")?,
            micros: self.number(cell("time")?, "time")?,
            gigabytes_per_second: self.number(cell("algbw")?, "algbw")?,
            dtype: Some(dtype),
            is_right,
        })
    }
}

impl CollectiveBenchmark {
    /// Reads the output of one run. Lines that are no part of its table are skipped.
    pub(crate) fn read(file: &Path) -> Result<Self, CommandError> {
        let hint = "give the text that hccl_test or nccl-tests printed, one run per file";
        let error = |problem: String| CommandError::in_file(file, None, problem, hint);
        let cannot = |source: std::io::Error| error(format!("cannot be read: {source}"));
        let bytes = read_regular(file, MAX_DOCUMENT).map_err(cannot)?;
        Self::parse(file, &String::from_utf8_lossy(&bytes))
    }

    fn parse(file: &Path, text: &str) -> Result<Self, CommandError> {
        let (mut tool, mut columns) = (None, Vec::new());
        let (mut ranks, mut announced) = (None, None);
        let (mut lines, mut failed) = (Vec::new(), BTreeSet::new());
        for (line, number) in text.lines().map(str::trim).zip(1..) {
            let place = LinePlace { file, number };
            announced = announced.or_else(|| announced_bytes(line));
            let comment =
                line.strip_prefix('#').map(|comment| comment.split_whitespace().collect::<Vec<_>>());
            let begins = match &comment {
                Some(words) if words.first() == Some(&"size") && words.contains(&"algbw") => {
                    columns.clone_from(words);
                    Some(BenchmarkTool::NcclTests)
                }
                None if line.starts_with("data_size") && line.contains('|') => Some(BenchmarkTool::HcclTest),
                _ => None,
            };
            if begins.is_some() && tool.is_some() {
                return Err(place.error("a second table begins here"));
            }
            tool = tool.or(begins);
            let line = match (tool, comment) {
                (_, Some(words)) => {
                    if let ["Rank", rank, ..] = *words
                        && rank.parse::<u64>().is_ok()
                    {
                        *ranks.get_or_insert(0) += 1;
                    }
                    continue;
                }
                (Some(BenchmarkTool::HcclTest), None) if line.contains('|') && begins.is_none() => {
                    // A rank other than the printing one reports its own failure: `local rank_id 3, check result failed, 8192 | …`.
                    let size = line.split('|').next().and_then(|size| size.rsplit_once(','));
                    if let Some((_, size)) = size.filter(|(prefix, _)| prefix.contains("failed")) {
                        failed.insert(place.number(size.trim(), "data_size")?);
                        continue;
                    }
                    place.hccl_line(line)?
                }
                (Some(BenchmarkTool::NcclTests), None) if line.starts_with(|c: char| c.is_ascii_digit()) => {
                    place.nccl_line(line, &columns)?
                }
                _ => continue,
            };
            let BenchmarkLine { bytes, micros, gigabytes_per_second, is_right, .. } = line;
            if is_right == Some(false) {
                failed.insert(bytes);
            }
            let is_valid = is_kernel_micros(micros) && gigabytes_per_second >= 0.0;
            match bytes {
                // nccl-tests begins with sizes that are below one element per rank.
                0 => {}
                _ if is_valid => lines.push(line),
                _ => {
                    let problem =
                        format!("the time of {bytes} bytes is {micros:e} us, expected 0.001 us to an hour");
                    return Err(place.error(problem));
                }
            }
        }
        let hint = "give the text that hccl_test or nccl-tests printed, with its table";
        let error = |problem: &str| CommandError::in_file(file, None, problem, hint);
        let tool = tool.ok_or_else(|| error("contains no table of hccl_test or nccl-tests"))?;
        if lines.is_empty() {
            return Err(error("the table has no line: the benchmark measured nothing"));
        }
        Ok(Self { file: file.to_owned(), tool, ranks, lines, failed, announced })
    }

    /// Returns the largest announced and the largest printed size if the output ends before its header's last one: it may be
    /// cut.
    pub(crate) fn missing_end(&self) -> Option<(u64, u64)> {
        let last = self.lines.iter().map(|line| line.bytes).max()?;
        self.announced.filter(|announced| last < *announced).map(|announced| (announced, last))
    }

    /// Returns the durations for a collective. Several lines of one size stand for their median.
    pub(crate) fn durations(
        &self,
        kind: CollectiveKind,
        ranks: u64,
        dtype: Option<&Dtype>,
    ) -> Result<Vec<BenchmarkDuration>, CommandError> {
        let per_rank = kind.bandwidth_bytes(1, ranks).unwrap_or(1);
        let is_of_all_ranks = self.sizes_are_of_all_ranks(per_rank)?;
        let mut sizes: BTreeMap<(u64, Dtype), Vec<&BenchmarkLine>> = BTreeMap::new();
        for line in self.lines.iter().filter(|line| !self.failed.contains(&line.bytes)) {
            let error = |problem: String, hint: &str| {
                CommandError::in_file(&self.file, Some(line.number), problem, hint)
            };
            let Some(dtype) = line.dtype.as_ref().or(dtype) else {
                return Err(error(
                    format!("{} does not print the element type", self.tool),
                    "give it with `--dtype`, such as FLOAT",
                ));
            };
            let message = match is_of_all_ranks {
                false => line.bytes,
                true if line.bytes.is_multiple_of(per_rank) => line.bytes / per_rank,
                true => {
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
            let is_checked = lines.iter().all(|line| line.is_right == Some(true));
            BenchmarkDuration { message, micros: f64::midpoint(low, high), dtype, is_checked }
        });
        Ok(durations.collect())
    }

    /// Compares the bandwidths with size by time. Returns true if sizes are those of all ranks, false for those of one rank;
    /// both are the same for collectives but gathers and scatters.
    fn sizes_are_of_all_ranks(&self, per_rank: u64) -> Result<bool, CommandError> {
        const GIBI: f64 = 1.073_741_824;
        let error =
            |line, problem: String, hint: &str| Err(CommandError::in_file(&self.file, line, problem, hint));
        let mut found: Option<bool> = None;
        // Bandwidths have 2 to 5 decimals, times 2: small ones are rounded too much.
        let decimals = if self.tool == BenchmarkTool::HcclTest { 5e-6 } else { 5e-3 };
        for &BenchmarkLine { number, bytes, micros, gigabytes_per_second, .. } in &self.lines {
            let rounding = decimals / gigabytes_per_second + 5e-3 / micros;
            // Not a number for a bandwidth of 0.
            if rounding.is_nan() || rounding >= TOLERANCE / 2.0 {
                continue;
            }
            let ratio = gigabytes_per_second * micros * 1e3 / bytes as f64;
            let is_near = |factor: f64| {
                [factor, factor / GIBI].iter().any(|expected| (ratio / expected - 1.0).abs() < TOLERANCE)
            };
            let meaning = match is_near(1.0) {
                true => true,
                false if is_near(per_rank as f64) => false,
                false => {
                    let problem = format!(
                        "{gigabytes_per_second} GB/s is not the bandwidth of {bytes} bytes in {micros} us, nor of \
                         {per_rank} times as many"
                    );
                    return error(Some(number), problem, "correct `--collective` and `--ranks`");
                }
            };
            if found.is_some_and(|found| found != meaning) {
                let problem = "the sizes of this line and of earlier ones have different meanings".to_owned();
                return error(Some(number), problem, "give one run per file");
            }
            found = Some(meaning);
        }
        let is_known = per_rank == 1 || self.tool == BenchmarkTool::NcclTests;
        found.or(is_known.then_some(true)).map_or_else(
            || {
                let problem = "all bandwidths are rounded too much to show what the sizes mean".to_owned();
                error(None, problem, "measure larger messages as well")
            },
            Ok,
        )
    }
}
