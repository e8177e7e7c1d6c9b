//! Numbers of the cases of a run: median, interval, change against the row before and against production.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fs, io,
    path::Path,
};

use crate::{
    base::files::{FileError, MAX_TABLE, atomic::write_atomic, read_regular},
    cases::plan::EarlierResult,
    database::{
        Database, KernelCsv, columns,
        ledger::{CaseRecord, Ledger, LedgerError},
    },
    kernel::{CacheState, CaseId, KernelName, Verdict, parse_kernel_micros},
};

/// Numbers of a case, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct CaseNumbers {
    pub(crate) median_us: Option<f64>,
    pub(crate) average_us: Option<f64>,
    /// 95 % interval of the median; `None` also if a later run has replaced the row.
    pub(crate) interval_us: Option<[f64; 2]>,
    estimate_us: Option<f64>,
    earlier: EarlierResult,
    pub(crate) production_us: Option<f64>,
}

impl CaseNumbers {
    pub(crate) fn half_width_percent(&self) -> Option<f64> {
        let [low, high] = self.interval_us?;
        let centre = self.estimate_us.or(self.median_us)?;
        Some(100.0 * (high - low) / 2.0 / centre)
    }

    /// Returns the change against the row before the run in percent: of the medians, or of the means where that row had a mean
    /// alone.
    pub(crate) fn change_percent(&self) -> Option<f64> {
        let EarlierResult { median_us, average_us } = self.earlier;
        match median_us {
            Some(earlier) => Some(percent_above(self.median_us?, earlier)),
            None => Some(percent_above(self.average_us?, average_us?)),
        }
    }

    pub(crate) fn production_percent(&self) -> Option<f64> {
        Some(percent_above(self.median_us?, self.production_us?))
    }
}

fn percent_above(value: f64, reference: f64) -> f64 {
    100.0 * (value / reference - 1.0)
}

#[derive(Debug, Default)]
pub(crate) struct RunNumbers {
    by_case: HashMap<CaseId, CaseNumbers>,
    pub(crate) unread_tables: Vec<String>,
}

impl RunNumbers {
    /// Reads the numbers of the cases of a run with this folder from the rows that the run wrote; for cases whose rows
    /// a later run has replaced, or that are not written yet, the samples of the run in the ledger.
    pub(crate) fn read(
        database: &Database,
        ledger: &Ledger,
        (run, folder, cache): (&str, &Path, CacheState),
        cases: &[CaseRecord],
    ) -> Result<Self, LedgerError> {
        let mut numbers = Self { by_case: HashMap::with_capacity(cases.len()), ..Self::default() };
        let mut kernels: BTreeMap<&KernelName, HashSet<&CaseId>> = BTreeMap::new();
        for case in cases {
            kernels.entry(&case.kernel).or_default().insert(&case.case);
        }
        for (kernel, cases) in kernels {
            match database.kernel_csv(kernel) {
                Ok(table) => numbers.add_rows(&table, run, cache, &cases),
                Err(error) => numbers.unread_tables.push(format!("{kernel}: {error}")),
            }
        }
        let is_open = |case: &&CaseRecord| {
            let is_measured = match &case.outcome {
                Some(outcome) => outcome.verdict.has_samples(),
                None => case.attempts.iter().any(|attempt| attempt.outcome.verdict.has_samples()),
            };
            is_measured && numbers.of_case(&case.case).median_us.is_none()
        };
        let open: HashSet<&CaseId> = cases.iter().filter(is_open).map(|case| &case.case).collect();
        if !open.is_empty() {
            for (case, [average, median]) in ledger.run_durations(run, &open)? {
                let found = numbers.by_case.entry(case).or_default();
                (found.average_us, found.median_us) = (Some(average), Some(median));
            }
        }
        let earlier = read_earlier_rows(folder);
        let earlier = earlier.inspect_err(|error| numbers.unread_tables.push(format!("{FILE}: {error}")));
        for (case, earlier) in earlier.unwrap_or_default() {
            if let Some(found) = numbers.by_case.get_mut(&case) {
                found.earlier = earlier;
            }
        }
        Ok(numbers)
    }

    pub(crate) fn of_case(&self, case: &CaseId) -> CaseNumbers {
        self.by_case.get(case).copied().unwrap_or_default()
    }

    fn add_rows(&mut self, table: &KernelCsv, run: &str, cache: CacheState, cases: &HashSet<&CaseId>) {
        let wanted = [
            columns::CASE,
            columns::RUN,
            columns::VERDICT,
            columns::MEDIAN,
            columns::AVERAGE,
            columns::CI95_LOW,
            columns::CI95_HIGH,
            columns::ESTIMATE,
        ];
        let names = wanted.map(|column| columns::result_column(cache, column));
        let names = names.into_iter().chain([Some(columns::PROFILING[1])]);
        // Rows have no cell of a column that is missing.
        let index = |name: Option<&str>| name.and_then(|name| table.column_index(name)).unwrap_or(usize::MAX);
        table.for_each_cells(&names.map(index).collect::<Vec<_>>(), |_, cells| {
            let text = |column: usize| std::str::from_utf8(cells[column]).unwrap_or_default().trim();
            let number = |column: usize| parse_kernel_micros(text(column).as_bytes()).ok().flatten();
            let case = CaseId::from_stored(text(0));
            if !cases.contains(&case) {
                return;
            }
            let found = self.by_case.entry(case).or_default();
            found.production_us = found.production_us.or_else(|| number(8));
            let has_samples = text(2).parse::<Verdict>().is_ok_and(Verdict::has_samples);
            if text(1) != run || !has_samples || found.median_us.is_some() {
                return;
            }
            (found.median_us, found.average_us, found.estimate_us) = (number(3), number(4), number(7));
            found.interval_us = number(5).zip(number(6)).map(|(low, high)| [low, high]);
        });
    }
}

/// File of the results that the rows of planned cases had before a run; missing if none had one.
const FILE: &str = "earlier_rows.csv";
const HEADER: [&str; 3] = ["case", "median_us", "average_us"];

pub(crate) fn write_earlier_rows(
    folder: &Path,
    results: &BTreeMap<CaseId, EarlierResult>,
) -> Result<(), FileError> {
    if results.is_empty() {
        return Ok(());
    }
    let mut text = HEADER.join(",") + "\n";
    for (case, EarlierResult { median_us, average_us }) in results {
        let [median, average] =
            [median_us, average_us].map(|value| value.map_or_else(String::new, |us| us.to_string()));
        text += &format!("{case},{median},{average}\n");
    }
    fs::create_dir_all(folder).map_err(FileError::io("create", folder))?;
    write_atomic(&folder.join(FILE), text.as_bytes())
}

fn read_earlier_rows(folder: &Path) -> Result<HashMap<CaseId, EarlierResult>, String> {
    let text = match read_regular(&folder.join(FILE), MAX_TABLE) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(HashMap::new()),
        read => read.map_err(|error| error.to_string())?,
    };
    let rows =
        csv::Reader::from_reader(text.as_slice()).into_deserialize::<(CaseId, Option<f64>, Option<f64>)>();
    let result = |(case, median_us, average_us)| (case, EarlierResult { median_us, average_us });
    rows.map(|row| row.map(result).map_err(|error| error.to_string())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(median: f64, average: f64, earlier: EarlierResult) -> CaseNumbers {
        CaseNumbers { median_us: Some(median), average_us: Some(average), earlier, ..CaseNumbers::default() }
    }

    #[test]
    fn medians_are_compared_with_medians_and_means_with_means() {
        let both = EarlierResult { median_us: Some(10.0), average_us: Some(20.0) };
        let mean = EarlierResult { median_us: None, average_us: Some(20.0) };
        let change = |earlier| numbers(11.0, 15.0, earlier).change_percent().map(f64::round);
        assert_eq!([both, mean, EarlierResult::default()].map(change), [Some(10.0), Some(-25.0), None]);
    }

    #[test]
    fn half_width_is_that_around_the_estimate() {
        let mut of_row = numbers(11.0, 11.0, EarlierResult::default());
        assert_eq!(of_row.half_width_percent(), None);
        of_row.interval_us = Some([9.0, 11.0]);
        of_row.estimate_us = Some(10.0);
        assert_eq!(of_row.half_width_percent(), Some(10.0));
    }

    /// Rows of other runs have other numbers, but the same production.
    #[test]
    fn only_rows_of_the_run_have_its_numbers() {
        let header = "MicroBench Case,MicroBench Run,MicroBench Verdict,MicroBench Median Duration(us),\
                      MicroBench CI95 Low(us),MicroBench CI95 High(us),Profiling Median Duration(us),\
                      MicroBench Cold Run,MicroBench Cold Verdict,MicroBench Cold Median Duration(us)\n";
        let rows = "00000000000000aa,one,ok,12.5,12.4,12.7,10,two,noisy,20\n\
                    00000000000000aa,one,ok,99,,,99,,,\n\
                    00000000000000bb,two,ok,3,,,\"6\",,,\n\
                    00000000000000cc,one,crashed,7,,,,,,\n\
                    00000000000000dd,one,ok,8,,,,,,\n";
        let table = KernelCsv::from_bytes(Path::new("Add.csv"), (header.to_owned() + rows).into_bytes())
            .expect("a table");
        let ids = ["aa", "bb", "cc"].map(|end| CaseId::from_stored(format!("00000000000000{end}")));
        let read = |run: &str, cache| {
            let mut numbers = RunNumbers::default();
            numbers.add_rows(&table, run, cache, &ids.iter().collect());
            assert!(numbers.by_case.len() <= 3, "the last row is of no case of the run");
            ids.each_ref().map(|id| {
                let found = numbers.of_case(id);
                (found.median_us, found.interval_us, found.production_us)
            })
        };
        let hot = read("one", CacheState::Hot);
        assert_eq!(hot[0], (Some(12.5), Some([12.4, 12.7]), Some(10.0)));
        assert_eq!(hot[1..], [(None, None, Some(6.0)), (None, None, None)]);
        assert_eq!(read("two", CacheState::Hot)[1].0, Some(3.0));
        assert_eq!(read("two", CacheState::Cold)[0], (Some(20.0), None, Some(10.0)));
    }

    #[test]
    fn results_are_read_back_and_other_content_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(read_earlier_rows(folder.path()), Ok(HashMap::new()));
        let [first, second] = ["00000000000000aa", "00000000000000bb"].map(CaseId::from_stored);
        let results = BTreeMap::from([
            (first, EarlierResult { median_us: Some(12.34), average_us: Some(12.5) }),
            (second, EarlierResult { median_us: None, average_us: Some(3.0) }),
        ]);
        write_earlier_rows(folder.path(), &results).expect("written");
        assert_eq!(read_earlier_rows(folder.path()), Ok(results.into_iter().collect()));
        fs::write(folder.path().join(FILE), "case,median_us,average_us\n00000000000000aa,1\n")
            .expect("written");
        assert!(read_earlier_rows(folder.path()).is_err());
    }
}
