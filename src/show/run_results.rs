//! Results of one run: its cases with the numbers of the run, its devices, and the cases to look at.

use super::{cases::shown_cases, prelude::*};
use crate::{
    base::{files::read_end, stats::median_of_floats},
    database::{DatabaseError, ledger::DeviceReading},
};

const MAX_NOTABLE: usize = 20;
/// Length of the end of a log from which its last lines are taken, in bytes.
const LOG_END: u64 = 8 << 10;
/// Number of lines of an excerpt, and the largest width of one in characters.
const LOG_LINES: usize = 12;
const LOG_WIDTH: usize = 240;
/// Largest number of cases of one cause that are listed with their logs; the table has all.
pub(crate) const MAX_OF_CAUSE: usize = 20;
/// Largest number of logs: reasons with sizes or shapes may make a cause of each case.
const MAX_LOGS: usize = 200;
/// Half width of an interval, in percent of the median, above which a case is notable.
const WIDE: f64 = 5.0;
/// Logarithm of the ratio to production, in percent, above which a case is notable.
const FAR: f64 = 20.0;

pub(crate) fn verdict_word(case: &ShownCase) -> &'static str {
    case.verdict.map_or("open", Verdict::as_str)
}

/// Returns true if a case was tried and has no usable result.
pub(crate) fn has_failed(case: &ShownCase) -> bool {
    case.verdict
        .is_some_and(|verdict| !verdict.is_done() && !verdict.has_samples() && !verdict.keeps_the_row())
}

/// Returns true if the run has a result of a case, of its kernel or of the one that runs in its place.
pub(crate) fn has_result(case: &ShownCase) -> bool {
    case.verdict.is_some_and(|verdict| verdict.has_samples() || verdict.is_done())
}

fn cause(case: &ShownCase) -> String {
    case.finding.as_ref().map_or_else(|| "the run has not finished it".to_owned(), Cause::to_string)
}

fn cause_group(case: &ShownCase) -> [&str; 3] {
    case.finding.as_ref().map(Cause::group).unwrap_or_default()
}

pub(crate) fn ratio_to_production(case: &ShownCase) -> Option<f64> {
    Some(1.0 + case.production_percent? / 100.0)
}

/// Returns the least, the median and the greatest ratio to production; `None` without one.
pub(crate) fn ratio_range(cases: &[&ShownCase]) -> Option<[f64; 3]> {
    let mut ratios: Vec<f64> = cases.iter().filter_map(|case| ratio_to_production(case)).collect();
    let median = median_of_floats(&mut ratios)?;
    Some([ratios[0], median, ratios[ratios.len() - 1]])
}

#[derive(Clone, Debug, Default)]
pub(crate) struct DeviceResults {
    pub(crate) collections: usize,
    /// Time of its collections in seconds, and that part of the run in percent.
    pub(crate) busy_seconds: f64,
    pub(crate) busy_percent: f64,
    pub(crate) readings: Vec<DeviceReading>,
    /// Median of each control kernel in microseconds by position, by the times of its collections.
    pub(crate) controls: BTreeMap<String, Vec<f64>>,
    /// Reason why the run did not use the device at its end; `None` if it did, or if its status file is missing.
    pub(crate) unused_reason: Option<String>,
}

impl DeviceResults {
    /// Returns the least and the greatest temperature in degrees Celsius; `None` without a reading.
    pub(crate) fn temperatures(&self) -> Option<(i64, i64)> {
        let all = || self.readings.iter().filter_map(|reading| reading.temperature);
        Some((all().min()?, all().max()?))
    }

    pub(crate) fn problems(&self) -> Vec<&str> {
        let mut problems: Vec<&str> = self
            .readings
            .iter()
            .map(|reading| reading.health.as_str())
            .filter(|health| *health != "OK")
            .collect();
        problems.sort_unstable();
        problems.dedup();
        problems.extend(self.unused_reason.as_deref());
        problems
    }
}

#[derive(Clone, Debug)]
pub(crate) struct RunResults {
    pub(crate) past: PastRun,
    pub(crate) database: PathBuf,
    pub(crate) device_profile: String,
    pub(crate) cases: Vec<ShownCase>,
    pub(crate) collections: Vec<CollectionRecord>,
    pub(crate) devices: BTreeMap<u32, DeviceResults>,
    pub(crate) notable: Vec<(usize, String)>,
    /// Tables that cannot be read, so that numbers of their kernels are missing: kernel and problem.
    pub(crate) unread_tables: Vec<String>,
    pub(crate) logs: BTreeMap<PathBuf, String>,
}

impl RunResults {
    pub(crate) fn read(
        database: &Database,
        ledger: &Ledger,
        past: &PastRun,
        cache: CacheState,
    ) -> Result<Self, DatabaseError> {
        let run = &past.record.run;
        let collections = ledger.run_collections(run)?;
        let records = ledger.run_cases(run)?;
        let numbers = RunNumbers::read(database, ledger, (run, &past.folder, cache), &records)?;
        let cases = shown_cases(records, &numbers, &past.folder);
        let mut results = Self {
            past: past.clone(),
            database: database.folder().to_owned(),
            device_profile: database.device().to_owned(),
            devices: device_results(ledger, past, &collections, cache)?,
            notable: notable_cases(&cases),
            unread_tables: numbers.unread_tables,
            logs: BTreeMap::new(),
            cases,
            collections,
        };
        let causes = results.causes();
        let listed = causes.iter().flat_map(|(.., of_cause)| of_cause.iter().take(MAX_OF_CAUSE));
        let paths: BTreeSet<&PathBuf> =
            listed.filter_map(|index| results.cases[*index].log.as_ref()).take(MAX_LOGS).collect();
        let logs = paths.into_iter().filter_map(|path| Some((path.clone(), log_excerpt(path)?)));
        results.logs = logs.collect();
        Ok(results)
    }

    pub(crate) fn kernels(&self) -> BTreeMap<&KernelName, Vec<&ShownCase>> {
        let mut kernels: BTreeMap<&KernelName, Vec<&ShownCase>> = BTreeMap::new();
        self.cases.iter().for_each(|case| kernels.entry(&case.kernel).or_default().push(case));
        kernels
    }

    pub(crate) fn verdicts(&self) -> Vec<(&'static str, usize)> {
        let mut counts: BTreeMap<&'static str, usize> = BTreeMap::new();
        self.cases.iter().for_each(|case| *counts.entry(verdict_word(case)).or_default() += 1);
        let mut counts: Vec<_> = counts.into_iter().collect();
        counts.sort_by_key(|(word, count)| (usize::MAX - count, *word));
        counts
    }

    /// Returns the cases without a result by verdict and cause, the most frequent cause first.
    pub(crate) fn causes(&self) -> Vec<(&'static str, String, Vec<usize>)> {
        let cases = &self.cases;
        let mut causes: BTreeMap<(&'static str, [&str; 3]), Vec<usize>> = BTreeMap::new();
        for (index, case) in cases.iter().enumerate().filter(|(_, case)| !has_result(case)) {
            causes.entry((verdict_word(case), cause_group(case))).or_default().push(index);
        }
        let text = |of: &[usize]| {
            let first = cause(&cases[of[0]]);
            let is_one = of.iter().all(|index| cause(&cases[*index]) == first);
            if is_one { first } else { format!("such as: {first}") }
        };
        let mut causes: Vec<_> =
            causes.into_iter().map(|((verdict, _), of)| (verdict, text(&of), of)).collect();
        causes.sort_by_key(|(.., cases)| usize::MAX - cases.len());
        causes
    }

    /// Returns start and end of the run; if the run did not end regularly, the end of its last collection counts.
    pub(crate) fn span(&self) -> (Nanos, Nanos) {
        let started = self.past.record.started;
        let last = self.collections.iter().filter_map(|collection| collection.ended).max();
        (started, self.past.record.ended.or(last).unwrap_or(started).max(started))
    }
}

pub(crate) const fn seconds_between(start: Nanos, end: Nanos) -> f64 {
    float(end.0.saturating_sub(start.0)) / 1e9
}

fn device_results(
    ledger: &Ledger,
    past: &PastRun,
    collections: &[CollectionRecord],
    cache: CacheState,
) -> Result<BTreeMap<u32, DeviceResults>, DatabaseError> {
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
    for status in RunStatusFile::load(&past.folder)?.map(|file| file.state.devices).unwrap_or_default() {
        if let Some(reason) = describe_unused(&status, past.record.ended.is_some()) {
            devices.entry(status.device).or_default().unused_reason = Some(reason);
        }
    }
    Ok(devices)
}

fn describe_unused(status: &DeviceStatus, has_ended: bool) -> Option<String> {
    let reason = status.reason.as_deref().unwrap_or("no reason was recorded");
    let time = if has_ended { "at the end" } else { "in the last status" };
    match status.state {
        DeviceActivity::Paused if status.retry_at.is_none() => Some(format!("excluded: {reason}")),
        DeviceActivity::Paused => Some(format!("paused {time}: {reason}")),
        DeviceActivity::Reserved => Some(format!("not used {time}: {reason}")),
        _ => None,
    }
}

/// Chooses the cases to look at: one failure of each cause, then contradictions, then wide intervals and the greatest deviations from
/// production; half as fast deviates as much as twice as fast.
fn notable_cases(cases: &[ShownCase]) -> Vec<(usize, String)> {
    let mut scored: Vec<(f64, usize, String)> = Vec::new();
    let mut named: BTreeSet<(Verdict, [&str; 3])> = BTreeSet::new();
    for (index, case) in cases.iter().enumerate() {
        let half = case.half_width_percent.unwrap_or_default();
        let by_cause = |verdict: Verdict| format!("{verdict}: {}", cause(case));
        let (score, why) = match case.verdict {
            Some(verdict) if has_failed(case) => {
                if !named.insert((verdict, cause_group(case))) {
                    continue;
                }
                (1e6, by_cause(verdict))
            }
            Some(verdict @ (Verdict::Suspicious | Verdict::Noisy)) => (1e4 + half, by_cause(verdict)),
            _ => {
                let deviation = |percent: f64| 100.0 * (1.0 + percent / 100.0).ln().abs();
                let far = case.production_percent.map(|percent| (percent, deviation(percent)));
                match far.filter(|(_, far)| *far > FAR) {
                    Some((percent, far)) => (far, format!("{percent:+.1} % from production")),
                    None if half > WIDE => (half, format!("known to ±{half:.1} %")),
                    None => continue,
                }
            }
        };
        scored.push((score, index, why));
    }
    scored.sort_by(|(one, a, _), (other, b, _)| other.total_cmp(one).then(a.cmp(b)));
    scored.into_iter().take(MAX_NOTABLE).map(|(_, index, why)| (index, why)).collect()
}

fn log_excerpt(path: &Path) -> Option<String> {
    let text = read_end(path, LOG_END).ok()?;
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let shortened = |line: &&str| match line.char_indices().nth(LOG_WIDTH) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => (*line).to_owned(),
    };
    let last: Vec<String> = lines.iter().skip(lines.len().saturating_sub(LOG_LINES)).map(shortened).collect();
    (!last.is_empty()).then(|| last.join("\n"))
}
