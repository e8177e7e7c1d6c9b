//! Results of one run: its cases with the numbers of their rows, its devices, and the cases to look at.

use std::{
    collections::{BTreeMap, HashMap},
    fs::File,
    io::{Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
};

use crate::{
    case_report::{RunNumbers, ShownCase, shown_cases},
    database::{Database, DatabaseError, columns},
    domain::{CacheState, CaseId, KernelName, Nanos, Verdict, reason_cause},
    ledger::{CollectionRecord, DeviceReading, Ledger, LedgerError},
    report::PastRun,
};

/// Number of cases that a reader should look at.
const MOST_NOTABLE: usize = 20;
/// Length of the end of a log from which its last lines are taken, in bytes.
const LOG_END: u64 = 8 << 10;
/// Number of lines of an excerpt, and the greatest length of one in characters.
const LOG_LINES: usize = 12;
const LOG_LINE: usize = 240;
/// Greatest number of logs that are read.
const MOST_LOGS: usize = 200;
/// Half width of an interval, in percent of the median, above which a case is notable.
const WIDE: f64 = 5.0;
/// Deviation from production, in percent, above which a case is notable.
const FAR: f64 = 20.0;

/// Numbers of the row of a case.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct RowNumbers {
    pub(crate) median_us: f64,
    /// Half width of the 95 % interval in percent of the median; `None` without an interval.
    pub(crate) half_percent: Option<f64>,
    /// Median by median of production profiles; `None` without one.
    pub(crate) to_production: Option<f64>,
}

/// A case of the run.
#[derive(Clone, Debug)]
pub(crate) struct ReportedCase {
    pub(crate) case: ShownCase,
    /// `None` without a measured row.
    pub(crate) numbers: Option<RowNumbers>,
}

impl ReportedCase {
    /// Returns the verdict as a word; `open` without one.
    pub(crate) fn verdict(&self) -> &'static str {
        self.case.verdict.map_or("open", Verdict::as_str)
    }

    /// Returns true if the case was tried and has no usable result.
    pub(crate) fn has_failed(&self) -> bool {
        self.case.verdict.is_some_and(is_failed)
    }

    /// Returns true if the case has no result of its own, tried or not.
    pub(crate) fn is_unmeasured(&self) -> bool {
        self.case.verdict.is_some_and(|verdict| is_failed(verdict) || verdict.keeps_the_row())
    }

    pub(crate) fn reason(&self) -> &str {
        self.case.reason.as_deref().unwrap_or_default()
    }
}

/// Returns true for the verdict of a case that was tried and has no usable result.
const fn is_failed(verdict: Verdict) -> bool {
    !verdict.is_done() && !verdict.has_samples() && !verdict.keeps_the_row()
}

/// A case to look at.
#[derive(Clone, Debug)]
pub(crate) struct NotableCase {
    /// Index in [`RunResults::cases`].
    pub(crate) index: usize,
    pub(crate) why: String,
}

/// A kernel of the run.
#[derive(Clone, Debug, Default)]
pub(crate) struct KernelResults {
    pub(crate) cases: usize,
    pub(crate) measured: usize,
    pub(crate) failed: usize,
    /// Ratios to production, sorted.
    pub(crate) ratios: Vec<f64>,
}

impl KernelResults {
    /// Returns the least, the median and the greatest ratio to production; `None` without one.
    pub(crate) fn ratio_range(&self) -> Option<[f64; 3]> {
        Some([*self.ratios.first()?, median(&self.ratios)?, *self.ratios.last()?])
    }
}

/// A device of the run.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeviceResults {
    pub(crate) collections: usize,
    /// Time of its collections in seconds, and that part of the run in percent.
    pub(crate) busy_seconds: f64,
    pub(crate) busy_percent: f64,
    /// Readings of its sensors, in the order of their times.
    pub(crate) readings: Vec<DeviceReading>,
    /// Median of each control kernel in microseconds by position, by the times of its collections.
    pub(crate) controls: BTreeMap<String, Vec<f64>>,
}

impl DeviceResults {
    /// Returns the least and the greatest temperature in degrees Celsius; `None` without a reading.
    pub(crate) fn temperatures(&self) -> Option<(i64, i64)> {
        let all = || self.readings.iter().filter_map(|reading| reading.temperature);
        Some((all().min()?, all().max()?))
    }

    /// Returns problems that npu-smi has reported.
    pub(crate) fn problems(&self) -> Vec<&str> {
        let mut problems: Vec<&str> = self
            .readings
            .iter()
            .map(|reading| reading.health.as_str())
            .filter(|health| *health != "OK")
            .collect();
        problems.sort_unstable();
        problems.dedup();
        problems
    }
}

/// Results of a run.
#[derive(Clone, Debug)]
pub(crate) struct RunResults {
    pub(crate) past: PastRun,
    pub(crate) database: PathBuf,
    pub(crate) device_profile: String,
    pub(crate) cases: Vec<ReportedCase>,
    pub(crate) collections: Vec<CollectionRecord>,
    pub(crate) kernels: BTreeMap<KernelName, KernelResults>,
    pub(crate) devices: BTreeMap<u32, DeviceResults>,
    pub(crate) notable: Vec<NotableCase>,
    /// Last lines of the logs of failed cases.
    pub(crate) logs: BTreeMap<PathBuf, String>,
}

/// Error of reading a run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReportError {
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error(transparent)]
    Database(#[from] DatabaseError),
}

impl ReportError {
    pub(crate) fn hint(&self) -> String {
        match self {
            Self::Ledger(error) => error.hint(),
            Self::Database(error) => error.hint(),
        }
    }
}

impl RunResults {
    /// Reads the results of a run. Tables that cannot be read have no numbers.
    pub(crate) fn read(
        database: &Database,
        ledger: &Ledger,
        past: &PastRun,
        cache: CacheState,
    ) -> Result<Self, ReportError> {
        let run = &past.record.run;
        let collections = ledger.run_collections(run)?;
        let mut kernels: BTreeMap<KernelName, KernelResults> =
            ledger.run_kernels(run)?.into_iter().map(|kernel| (kernel, KernelResults::default())).collect();
        let mut numbers: HashMap<CaseId, RowNumbers> = HashMap::new();
        // Before the cases are in memory, too: a table with its rows takes the most of it.
        for kernel in kernels.keys() {
            // A table that is damaged or deleted is reported by the run itself.
            let _ = add_row_numbers(database, kernel, cache, &mut numbers);
        }
        let cases: Vec<ReportedCase> =
            shown_cases(ledger.run_cases(run)?, &RunNumbers::default(), &past.folder)
                .into_iter()
                .map(|case| ReportedCase { numbers: numbers.get(&case.case).copied(), case })
                .collect();
        for case in &cases {
            let Some(kernel) = kernels.get_mut(&case.case.kernel) else { continue };
            kernel.cases += 1;
            kernel.failed += usize::from(case.has_failed());
            kernel.measured += usize::from(case.case.verdict.is_some_and(Verdict::has_samples));
            kernel.ratios.extend(case.numbers.and_then(|numbers| numbers.to_production));
        }
        kernels.values_mut().for_each(|kernel| kernel.ratios.sort_by(f64::total_cmp));
        let devices = device_results(ledger, past, &collections, cache)?;
        let notable = notable_cases(&cases);
        let logs = failed_logs(&cases);
        Ok(Self {
            past: past.clone(),
            database: database.folder().to_owned(),
            device_profile: database.device().to_owned(),
            cases,
            collections,
            kernels,
            devices,
            notable,
            logs,
        })
    }

    /// Returns the number of cases by verdict, the most first.
    pub(crate) fn verdicts(&self) -> Vec<(&'static str, usize)> {
        let mut counts: BTreeMap<&'static str, usize> = BTreeMap::new();
        for case in &self.cases {
            *counts.entry(case.verdict()).or_default() += 1;
        }
        let mut counts: Vec<_> = counts.into_iter().collect();
        counts.sort_by_key(|(word, count)| (usize::MAX - count, *word));
        counts
    }

    /// Returns the cases without a result by verdict and cause, the most frequent cause first.
    pub(crate) fn causes(&self) -> Vec<(&'static str, &str, Vec<usize>)> {
        let mut causes: BTreeMap<(&'static str, &str), Vec<usize>> = BTreeMap::new();
        for (index, case) in self.cases.iter().enumerate().filter(|(_, case)| case.is_unmeasured()) {
            causes.entry((case.verdict(), reason_cause(case.reason()))).or_default().push(index);
        }
        let mut causes: Vec<_> =
            causes.into_iter().map(|((verdict, cause), cases)| (verdict, cause, cases)).collect();
        causes.sort_by_key(|(.., cases)| usize::MAX - cases.len());
        causes
    }

    /// Returns start and end of the run; the end is that of its last collection without a regular one.
    pub(crate) fn span(&self) -> (Nanos, Nanos) {
        let started = self.past.record.started;
        let last = self.collections.iter().filter_map(|collection| collection.ended).max();
        (started, self.past.record.ended.or(last).unwrap_or(started).max(started))
    }

    /// Returns the half widths of the intervals in percent, sorted.
    pub(crate) fn half_widths(&self) -> Vec<f64> {
        let mut widths: Vec<f64> = self.cases.iter().filter_map(|case| case.numbers?.half_percent).collect();
        widths.sort_by(f64::total_cmp);
        widths
    }
}

#[expect(clippy::cast_precision_loss, reason = "instants and durations of a run")]
pub(crate) fn seconds_between(start: Nanos, end: Nanos) -> f64 {
    end.0.saturating_sub(start.0) as f64 / 1e9
}

/// Returns the median of sorted numbers; `None` without one.
fn median(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    Some(if sorted.len().is_multiple_of(2) { f64::midpoint(sorted[middle - 1], upper) } else { upper })
}

/// Reads the numbers of the measured rows of a kernel, by the ids of their cases.
fn add_row_numbers(
    database: &Database,
    kernel: &KernelName,
    cache: CacheState,
    numbers: &mut HashMap<CaseId, RowNumbers>,
) -> Result<(), DatabaseError> {
    let table = database.kernel_csv(kernel)?;
    let column = |name| columns::result_column(cache, name).and_then(|name| table.column_index(name));
    let [case, median, average, low, high] =
        [columns::CASE, columns::MEDIAN, columns::AVERAGE, columns::CI95_LOW, columns::CI95_HIGH].map(column);
    let production = table.column_index(columns::PROFILING[1]);
    table.for_each_row(|_, cells| {
        let text = |index: Option<usize>| {
            std::str::from_utf8(cells.get(index?).unwrap_or_default()).ok().map(str::trim)
        };
        let number = |index| text(index)?.parse::<f64>().ok().filter(|number| number.is_finite());
        let positive = |index| number(index).filter(|number| *number > 0.0);
        let Some(case) = text(case).filter(|case| !case.is_empty()) else { return };
        let Some(median_us) = positive(median).or_else(|| positive(average)) else { return };
        let half_percent = number(low)
            .zip(number(high))
            .map(|(low, high)| 100.0 * (high - median_us).max(median_us - low) / median_us);
        let to_production = positive(production).map(|production| median_us / production);
        numbers.insert(CaseId::from_stored(case), RowNumbers { median_us, half_percent, to_production });
    });
    Ok(())
}

fn device_results(
    ledger: &Ledger,
    past: &PastRun,
    collections: &[CollectionRecord],
    cache: CacheState,
) -> Result<BTreeMap<u32, DeviceResults>, LedgerError> {
    let mut devices: BTreeMap<u32, DeviceResults> = BTreeMap::new();
    for collection in collections {
        let Some(ended) = collection.ended else { continue };
        for device in &collection.devices {
            let results = devices.entry(*device).or_default();
            results.collections += 1;
            results.busy_seconds += seconds_between(collection.started, ended);
        }
    }
    for reading in ledger.run_readings(&past.record.run)? {
        if let Some(results) = devices.get_mut(&reading.device) {
            results.readings.push(reading);
        }
    }
    for control in ledger.all_controls(cache)?.into_iter().filter(|control| control.run == past.record.run) {
        let reading = control.reading;
        let (Some(results), Some(median)) = (devices.get_mut(&reading.device), reading.median()) else {
            continue;
        };
        results.controls.entry(reading.control.to_string()).or_default().push(median / 1e3);
    }
    let first = collections.iter().map(|collection| collection.started).min();
    let last = collections.iter().filter_map(|collection| collection.ended).max();
    let whole = first.zip(last).map_or(0.0, |(first, last)| seconds_between(first, last));
    for results in devices.values_mut() {
        results.busy_percent = if whole > 0.0 { 100.0 * results.busy_seconds / whole } else { 0.0 };
    }
    Ok(devices)
}

/// Chooses the cases to look at: failures, then contradictions, then wide intervals and the greatest deviations from production.
fn notable_cases(cases: &[ReportedCase]) -> Vec<NotableCase> {
    let mut scored: Vec<(f64, NotableCase)> = Vec::new();
    for (index, case) in cases.iter().enumerate() {
        let deviation =
            case.numbers.and_then(|numbers| numbers.to_production).map(|ratio| 100.0 * (ratio - 1.0));
        let half = case.numbers.and_then(|numbers| numbers.half_percent).unwrap_or_default();
        let (score, why) = match case.case.verdict {
            Some(verdict) if is_failed(verdict) => {
                (1e6, format!("{verdict}: {}", reason_cause(case.reason())))
            }
            Some(verdict @ (Verdict::Suspicious | Verdict::Noisy)) => {
                (1e4 + half, format!("{verdict}: {}", reason_cause(case.reason())))
            }
            _ => match deviation.filter(|deviation| deviation.abs() > FAR) {
                Some(deviation) => (deviation.abs(), format!("{deviation:+.1} % from production")),
                None if half > WIDE => (half, format!("known to ±{half:.1} %")),
                None => continue,
            },
        };
        scored.push((score, NotableCase { index, why }));
    }
    scored.sort_by(|(one, a), (other, b)| other.total_cmp(one).then(a.index.cmp(&b.index)));
    scored.into_iter().take(MOST_NOTABLE).map(|(_, notable)| notable).collect()
}

/// Reads the ends of the logs of failed cases.
fn failed_logs(cases: &[ReportedCase]) -> BTreeMap<PathBuf, String> {
    let mut logs = BTreeMap::new();
    for path in cases.iter().filter(|case| case.has_failed()).filter_map(|case| case.case.log.as_ref()) {
        if logs.len() >= MOST_LOGS {
            break;
        }
        if !logs.contains_key(path)
            && let Some(excerpt) = log_excerpt(path)
        {
            logs.insert(path.clone(), excerpt);
        }
    }
    logs
}

/// Returns the last lines of a log; `None` if it cannot be read or is empty.
fn log_excerpt(path: &Path) -> Option<String> {
    let mut file = File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LOG_END))).ok()?;
    let mut end = Vec::new();
    file.take(LOG_END).read_to_end(&mut end).ok()?;
    let text = String::from_utf8_lossy(&end);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let shortened = |line: &&str| -> String {
        if line.chars().count() > LOG_LINE {
            line.chars().take(LOG_LINE).chain("…".chars()).collect()
        } else {
            (*line).to_owned()
        }
    };
    let last: Vec<String> = lines.iter().skip(lines.len().saturating_sub(LOG_LINES)).map(shortened).collect();
    (!last.is_empty()).then(|| last.join("\n"))
}
