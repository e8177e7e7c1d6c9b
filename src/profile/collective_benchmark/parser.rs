//! Parser of the text that a benchmark printed.

use std::{collections::BTreeSet, fs, path::Path};

use super::{BenchmarkCheck, BenchmarkError, BenchmarkLine, BenchmarkTool, CollectiveBenchmark};
use crate::{base::suggest::truncate_for_message, kernel::Dtype};

/// Limit of the size of a file in bytes; a sweep has a few kilobytes.
const MOST_BYTES: u64 = 16 << 20;

impl CollectiveBenchmark {
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

    pub(super) fn parse(file: &Path, text: &str) -> Result<Self, BenchmarkError> {
        let mut parser = BenchmarkParser::new(file);
        for (line, number) in text.lines().zip(1..) {
            parser.add_line(number, line.trim())?;
        }
        parser.finish()
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
