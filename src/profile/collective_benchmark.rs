//! Output of the collective benchmarks hccl_test and nccl-tests.
//!
//! hccl_test prints `data_size(Bytes): | aveg_time(us): | alg_bandwidth(GB/s): | check_result:` (its manual has `avg_time`). Of
//! gathers and scatters newer versions print the size of all ranks together, older ones that of one rank, and older ones count
//! 2^30 bytes as a GB: the bandwidth shows which one it is. nccl-tests prints the size of all ranks together.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use crate::domain::{CollectiveKind, Dtype, truncate_for_message};

/// Limit of the size of a file in bytes; a sweep has a few kilobytes.
const MOST_BYTES: u64 = 16 << 20;
/// Relative difference between a bandwidth and size by time that is not due to rounding.
const TOLERANCE: f64 = 0.02;

/// Unreadable output of a benchmark.
#[derive(Debug, thiserror::Error)]
#[error("`{}`{}: {problem}", .file.display(), .line.map_or_else(String::new, |line| format!(":{line}")))]
pub(crate) struct BenchmarkError {
    file: PathBuf,
    /// Line from 1, where known.
    line: Option<usize>,
    problem: String,
    hint: &'static str,
}

impl BenchmarkError {
    pub(crate) const fn hint(&self) -> &'static str {
        self.hint
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

/// Durations of a benchmark, and the sizes that are left out.
#[derive(Clone, Debug, Default)]
pub(crate) struct BenchmarkDurations {
    pub(crate) durations: Vec<BenchmarkDuration>,
    /// Sizes with wrong results, as printed.
    pub(crate) failed: Vec<u64>,
}

impl CollectiveBenchmark {
    /// Returns the largest announced and the largest printed size if the output ends before its header's last one: it may be
    /// cut.
    pub(crate) fn missing_end(&self) -> Option<(u64, u64)> {
        let last = self.lines.iter().map(|line| line.bytes).max()?;
        self.announced.filter(|announced| last < *announced).map(|announced| (announced, last))
    }

    /// Reads the output of one run. Lines that are no part of its table are skipped.
    pub(crate) fn read(file: &Path) -> Result<Self, BenchmarkError> {
        let error = |problem: String| BenchmarkError {
            file: file.to_owned(),
            line: None,
            problem,
            hint: "give the text that hccl_test or nccl-tests printed, one run per file",
        };
        let cannot = |source: std::io::Error| error(format!("cannot be read: {source}"));
        let found = fs::metadata(file).map_err(cannot)?;
        if !found.is_file() {
            return Err(error("is not a regular file".to_owned()));
        }
        if found.len() > MOST_BYTES {
            return Err(error(format!("has {} bytes, the limit is {MOST_BYTES}", found.len())));
        }
        let bytes = fs::read(file).map_err(cannot)?;
        Self::parse(file, &String::from_utf8_lossy(&bytes))
    }

    fn parse(file: &Path, text: &str) -> Result<Self, BenchmarkError> {
        let mut parser = BenchmarkParser::new(file);
        for (line, number) in text.lines().zip(1..) {
            parser.add_line(number, line.trim())?;
        }
        parser.finish()
    }

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

/// Meaning of a printed size; both are the same for collectives but gathers and scatters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PrintedSize {
    OfAllRanks,
    OfOneRank,
}

/// Returns the number behind `maxbytes` or `maxBytes` in a line of the header.
fn announced_bytes(line: &str) -> Option<u64> {
    let lower = line.to_ascii_lowercase();
    let rest = lower.split_once("maxbytes")?.1;
    let digits = rest.trim_start_matches([' ', ':', '=']).trim_start_matches("is ");
    digits.split(|end: char| !end.is_ascii_digit()).next()?.parse().ok()
}

/// Reads the lines of one output.
struct BenchmarkParser<'f> {
    file: &'f Path,
    tool: Option<BenchmarkTool>,
    /// Columns of nccl-tests.
    columns: Vec<String>,
    listed_ranks: u64,
    lines: Vec<BenchmarkLine>,
    failed: BTreeSet<u64>,
    announced: Option<u64>,
}

impl<'f> BenchmarkParser<'f> {
    const fn new(file: &'f Path) -> Self {
        Self {
            file,
            tool: None,
            columns: Vec::new(),
            listed_ranks: 0,
            lines: Vec::new(),
            failed: BTreeSet::new(),
            announced: None,
        }
    }

    fn error(&self, number: usize, problem: String) -> BenchmarkError {
        let hint = "give the complete output of one run of hccl_test or nccl-tests";
        BenchmarkError { file: self.file.to_owned(), line: Some(number), problem, hint }
    }

    fn set_tool(&mut self, number: usize, tool: BenchmarkTool) -> Result<(), BenchmarkError> {
        if self.tool.is_some() {
            return Err(self.error(number, "a second table begins here".to_owned()));
        }
        self.tool = Some(tool);
        Ok(())
    }

    fn add_line(&mut self, number: usize, line: &str) -> Result<(), BenchmarkError> {
        let comment = line.strip_prefix('#').map(str::trim);
        self.announced = self.announced.or_else(|| announced_bytes(line));
        if line.starts_with("data_size") && line.contains('|') {
            return self.set_tool(number, BenchmarkTool::HcclTest);
        }
        if let Some(comment) = comment {
            let words: Vec<&str> = comment.split_whitespace().collect();
            if words.first() == Some(&"size") && words.contains(&"algbw") {
                self.columns = words.into_iter().map(str::to_owned).collect();
                return self.set_tool(number, BenchmarkTool::NcclTests);
            }
            if words.first() == Some(&"Rank") && words.get(1).is_some_and(|word| word.parse::<u64>().is_ok())
            {
                self.listed_ranks += 1;
            }
            return Ok(());
        }
        match self.tool {
            Some(BenchmarkTool::HcclTest) if line.contains('|') => self.add_hccl_line(number, line),
            Some(BenchmarkTool::NcclTests) if line.starts_with(|first: char| first.is_ascii_digit()) => {
                self.add_nccl_line(number, line)
            }
            _ => Ok(()),
        }
    }

    fn number<T: std::str::FromStr>(
        &self,
        number: usize,
        cell: &str,
        name: &str,
    ) -> Result<T, BenchmarkError> {
        cell.parse().map_err(|_| {
            self.error(number, format!("`{}` in column `{name}` is no number", truncate_for_message(cell)))
        })
    }

    /// Checks and adds a line of the table.
    fn push(&mut self, line: BenchmarkLine) -> Result<(), BenchmarkError> {
        if line.check == BenchmarkCheck::Failed {
            self.failed.insert(line.bytes);
        }
        // nccl-tests begins with sizes that are below one element per rank.
        if line.bytes == 0 {
            return Ok(());
        }
        if !(line.micros > 0.0 && line.micros.is_finite() && line.gigabytes_per_second >= 0.0) {
            let problem = format!("the time of {} bytes is {} us, expected above 0", line.bytes, line.micros);
            return Err(self.error(line.number, problem));
        }
        self.lines.push(line);
        Ok(())
    }

    fn add_hccl_line(&mut self, number: usize, line: &str) -> Result<(), BenchmarkError> {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [size, time, bandwidth, check] = cells.as_slice() else {
            return Err(self.error(number, format!("{} cells between `|`, expected 4", cells.len())));
        };
        // A rank other than the printing one reports its own failure: `local rank_id 3, check result failed, 8192 | …`.
        if let Some((prefix, size)) = size.rsplit_once(',')
            && prefix.contains("failed")
        {
            let bytes = self.number(number, size.trim(), "data_size")?;
            self.failed.insert(bytes);
            return Ok(());
        }
        let check = match *check {
            "success" => BenchmarkCheck::Passed,
            "failed" => BenchmarkCheck::Failed,
            "NULL" => BenchmarkCheck::NotChecked,
            other => {
                let other = truncate_for_message(other);
                return Err(self.error(
                    number,
                    format!("`{other}` in column `check_result`, expected success, failed or NULL"),
                ));
            }
        };
        self.push(BenchmarkLine {
            number,
            bytes: self.number(number, size, "data_size")?,
            micros: self.number(number, time, "aveg_time")?,
            gigabytes_per_second: self.number(number, bandwidth, "alg_bandwidth")?,
            dtype: None,
            check,
        })
    }

    fn add_nccl_line(&mut self, number: usize, line: &str) -> Result<(), BenchmarkError> {
        let mut cells: Vec<&str> = line.split_whitespace().collect();
        // Collectives without a reduction leave the column empty in some versions.
        let reduction = self.columns.iter().position(|column| column == "redop");
        if let Some(place) = reduction.filter(|_| cells.len() + 1 == self.columns.len()) {
            cells.insert(place, "none");
        }
        if cells.len() != self.columns.len() {
            return Err(
                self.error(number, format!("{} cells, the header has {}", cells.len(), self.columns.len()))
            );
        }
        // The first of several columns of a name is out of place.
        let cell = |name: &str| {
            let place = self.columns.iter().position(|column| column == name);
            place.map(|place| cells[place]).ok_or_else(|| self.error(number, format!("no column `{name}`")))
        };
        let check = match cell("#wrong") {
            Ok("0") => BenchmarkCheck::Passed,
            Ok(wrong) if wrong.parse::<f64>().is_ok() => BenchmarkCheck::Failed,
            _ => BenchmarkCheck::NotChecked,
        };
        let Some(dtype) = parse_element_type(cell("type")?) else {
            let name = truncate_for_message(cell("type")?);
            return Err(self.error(number, format!("`{name}` in column `type` is no element type")));
        };
        let line = BenchmarkLine {
            number,
            bytes: self.number(number, cell("size")?, "size")?,
            micros: self.number(number, cell("time")?, "time")?,
            gigabytes_per_second: self.number(number, cell("algbw")?, "algbw")?,
            dtype: Some(dtype),
            check,
        };
        self.push(line)
    }

    fn finish(self) -> Result<CollectiveBenchmark, BenchmarkError> {
        let Self { file, tool, listed_ranks, lines, failed, announced, .. } = self;
        let error = |problem: &str| BenchmarkError {
            file: file.to_owned(),
            line: None,
            problem: problem.to_owned(),
            hint: "give the text that hccl_test or nccl-tests printed, with its table",
        };
        let tool = tool.ok_or_else(|| error("contains no table of hccl_test or nccl-tests"))?;
        if lines.is_empty() {
            return Err(error("the table has no line: the benchmark measured nothing"));
        }
        let ranks = (listed_ranks > 0).then_some(listed_ranks);
        Ok(CollectiveBenchmark { file: file.to_owned(), tool, ranks, lines, failed, announced })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<CollectiveBenchmark, BenchmarkError> {
        CollectiveBenchmark::parse(Path::new("out.txt"), text)
    }

    fn hccl(rows: &str) -> String {
        format!(
            "the minbytes is 8192, maxbytes is 67108864, iters is 20, warmup_iters is 5\n\
                 data_size(Bytes): | aveg_time(us): | alg_bandwidth(GB/s): | check_result:\n{rows}"
        )
    }

    const NCCL: &str = "# nThread 1 nGpus 1 minBytes 1048576 maxBytes 2097152 step: 2(factor) warmup iters: 5 iters: 20\n\
        # Using devices\n#  Rank  0 Group  0 Pid  7 on host device  0 [0x07] X\n#  Rank  1 Group  0 Pid  8 on host device  1 [0x08] X\n\
        #\n#                                                out-of-place                       in-place\n\
        #       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n\
        #        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)\n\
             1048576        131072      half    none      -1    50.00   20.97   10.49      0    48.00   21.85   10.92      0\n\
             2097152        262144      half    none      -1    80.00   26.21   13.11    N/A    79.00   26.55   13.27    N/A\n\
        # Out of bounds values : 0 OK\n# Avg bus bandwidth    : 11.0\n";

    #[test]
    fn hccl_test_is_read_with_either_meaning_of_its_sizes() {
        // 1 MiB in 100 us is 10.48576 GB/s, or 9.76563 GiB/s.
        let kind = CollectiveKind::AllGather;
        for (bandwidth, message) in
            [("10.48576", 131_072), ("9.76563", 131_072), ("83.88608", 1 << 20), ("78.12500", 1 << 20)]
        {
            let read = parse(&hccl(&format!("1048576 | 100.00 | {bandwidth} | success\n"))).expect("a table");
            let found = read.durations(kind, 8, Some(&Dtype::Float)).expect("durations").durations;
            assert_eq!(
                (found[0].message, found[0].micros, found[0].is_checked),
                (message, 100.0, true),
                "{bandwidth}"
            );
        }
        let reduce = parse(&hccl("1048576 | 100.00 | 10.48576 | NULL\n")).expect("a table");
        let found = reduce.durations(CollectiveKind::AllReduce, 8, Some(&Dtype::Float)).expect("durations");
        assert_eq!((found.durations[0].message, found.durations[0].is_checked), (1 << 20, false));
        let odd = parse(&hccl("1048576 | 100.00 | 20.97152 | success\n")).expect("a table");
        let error = odd.durations(kind, 8, Some(&Dtype::Float)).expect_err("neither");
        assert!(
            error.to_string().contains("`out.txt`:3: 20.97152 GB/s is not the bandwidth of 1048576 bytes"),
            "{error}"
        );
        let untyped = reduce.durations(CollectiveKind::AllReduce, 8, None).expect_err("no type");
        assert!(untyped.to_string().contains("does not print the element type"), "{untyped}");
    }

    /// A rank that fails prints a line of its own, while the printing rank may still have success.
    #[test]
    fn sizes_with_wrong_results_are_left_out() {
        let rows = "local rank_id 3, check result failed, 1048576 | 100.00 | 10.48576 | failed\n\
                    1048576 | 100.00 | 10.48576 | success\n2097152 | 150.00 | 13.98101 | failed\n\
                    4194304 | 250.00 | 16.77722 | success\n4194304 | 260.00 | 16.13194 | success\n";
        let found = parse(&hccl(rows)).expect("a table");
        let found = found.durations(CollectiveKind::AllReduce, 8, Some(&Dtype::Float)).expect("durations");
        assert_eq!(found.failed, [1 << 20, 2 << 20]);
        assert_eq!(found.durations.len(), 1);
        assert_eq!(found.durations[0].micros, 255.0);
    }

    #[test]
    fn nccl_tests_has_sizes_of_all_ranks_and_lists_them() {
        let read = parse(NCCL).expect("a table");
        assert_eq!((read.tool, read.ranks), (BenchmarkTool::NcclTests, Some(2)));
        let found = read.durations(CollectiveKind::ReduceScatter, 2, None).expect("durations").durations;
        let expected = |message, micros, is_checked| BenchmarkDuration {
            message,
            micros,
            dtype: Dtype::Float16,
            is_checked,
        };
        assert_eq!(found, [expected(1 << 19, 50.0, true), expected(1 << 20, 80.0, false)]);
        // Without the name of the reduction, as some versions print gathers.
        let blank = parse(&NCCL.replace("    none      -1", "              -1")).expect("a table");
        assert_eq!(blank.durations(CollectiveKind::AllGather, 2, None).expect("durations").durations, found);
        let wrong = parse(&NCCL.replacen("10.49      0", "10.49      7", 1)).expect("a table");
        assert_eq!(wrong.durations(CollectiveKind::AllGather, 2, None).expect("durations").failed, [1 << 20]);
    }

    #[test]
    fn odd_outputs_are_errors_with_their_line() {
        let error = |text: &str| parse(text).expect_err(text).to_string();
        for (text, expected) in [
            ("", "`out.txt`: contains no table of hccl_test or nccl-tests"),
            (
                "hccl interface return err ./common/src/hccl_test_common.cc:538, retcode: 7\n",
                "contains no table",
            ),
            (&hccl(""), "the table has no line"),
            (&hccl("8192 | 764.55\n"), "`out.txt`:3: 2 cells between `|`, expected 4"),
            (
                &hccl("8192 | fast | 0.01 | success\n"),
                "`out.txt`:3: `fast` in column `aveg_time` is no number",
            ),
            (&hccl("-1 | 1 | 0.01 | success\n"), "`-1` in column `data_size` is no number"),
            (&hccl("8192 | 0 | 0.01 | success\n"), "the time of 8192 bytes is 0 us, expected above 0"),
            (&hccl("8192 | nan | 0.01 | success\n"), "expected above 0"),
            (&hccl("8192 | 1 | 0.01 | maybe\n"), "`maybe` in column `check_result`"),
            (&(hccl("8192 | 1 | 8.192 | success\n") + &hccl("")), "`out.txt`:5: a second table begins here"),
            (&NCCL.replace("20.97   10.49      0", "20.97"), "`out.txt`:9: 11 cells, the header has 13"),
            (&NCCL.replace("half", "quarter"), "`quarter` in column `type` is no element type"),
        ] {
            assert!(error(text).contains(expected), "{}\n{expected}", error(text));
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "(data_size\\(Bytes\\): \\| a \\| b \\| c\n)?[-0-9a-z|., #\n]{0,200}") {
            if let Ok(read) = parse(&text) {
                let _ = read.durations(CollectiveKind::AllGather, 8, Some(&Dtype::Float));
            }
        }
    }
}
