//! Evidence of one case: its rows, the ledger's result, and every collection that contributed to it or was left out.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::Serialize;

use super::{
    ClockEvidence, ControlEvidence, LedgerComparison, RowComparison, control_evidence,
    find_case::{repeat_command, repeat_sweep},
};
use crate::{
    base::{
        files::{MAX_TABLE, file_digest, read_regular},
        stats::SampleSummary,
    },
    cases::plan::planned_case,
    database::{
        CellDifference, Database, DatabaseError, KernelCsv, TableRow,
        collective_rows::DURATION,
        columns,
        ledger::{CaseAttempt, DeviceReading, KnownCase, Ledger, PlannedVerdict, StoredControl},
        row_cases,
    },
    kernel::{
        CacheState, Case, CaseId, CaseOutcome, CollectiveCase, IdentifiedCase, IntervalMethod, KernelName,
        Launch, Nanos, Reason, RecordedTask, RowResult, SoftwareFingerprint, Verdict,
        catalogue::Catalogue,
        device::DeviceProfile,
        render::{
            Manifest,
            files::{COLLECT, EVIDENCE, JOURNAL, LOG, MANIFEST, PROFILE, REPLAY},
        },
    },
    measure::verify::{CaseReferences, RowNumbers, RuleResult, judge_row_rules},
};

/// Everything that is known of a case.
#[derive(Clone, Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct CaseEvidence {
    pub(crate) case: CaseId,
    /// State of the cache of result, collections and runs.
    pub(crate) cache: CacheState,
    pub(crate) kernel: String,
    /// Shapes of inputs and outputs; the canonical signature of a case without a row.
    pub(crate) shapes: String,
    /// Rows of the case.
    pub(crate) rows: Vec<RowEvidence>,
    /// Result that the ledger gives the case.
    pub(crate) result: Option<ResultEvidence>,
    /// Result in the other state of the cache.
    pub(crate) other_state: Option<StateEvidence>,
    pub(crate) collections: Vec<CollectionEvidence>,
    /// Verdicts of the runs that planned the case, oldest first.
    pub(crate) runs: Vec<RunVerdict>,
    pub(crate) roofline: Option<RooflineEvidence>,
    pub(crate) production: Option<ProductionEvidence>,
    /// Results of the rules for the row; empty without a measurement.
    pub(crate) rules: Vec<RuleResult>,
    /// Command that measures the case again.
    pub(crate) command: String,
}

/// Result of the case in another state of the cache.
#[derive(Clone, Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct StateEvidence {
    pub(crate) cache: CacheState,
    pub(crate) result: ResultEvidence,
    /// Median of the replay divided by that of production.
    pub(crate) production_ratio: Option<f64>,
}

/// A row of the case.
#[derive(Clone, Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct RowEvidence {
    pub(crate) file: PathBuf,
    pub(crate) line: u64,
    pub(crate) average_us: String,
    pub(crate) verdict: String,
    /// Relation to the ledger, in a sentence.
    pub(crate) ledger: String,
}

/// Result of a case by the ledger; durations in microseconds.
#[derive(Clone, Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct ResultEvidence {
    pub(crate) verdict: Verdict,
    pub(crate) reason: String,
    /// Name of the cause.
    pub(crate) cause: &'static str,
    #[serde(skip)]
    pub(crate) findings: Reason,
    pub(crate) average_us: f64,
    pub(crate) median_us: f64,
    pub(crate) std_us: Option<f64>,
    pub(crate) min_us: f64,
    pub(crate) p95_us: f64,
    pub(crate) samples: usize,
    pub(crate) collections: usize,
    pub(crate) interval: Option<IntervalEvidence>,
    pub(crate) software: Option<String>,
    /// The ranks' view of a collective.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ranks: Option<RankEvidence>,
}

/// Means of the accepted launches of a collective over its ranks.
#[derive(Clone, Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct RankEvidence {
    pub(crate) shortest_us: f64,
    pub(crate) longest_us: f64,
    pub(crate) skew_percent: f64,
    /// Rank that started last in most launches.
    pub(crate) latest: Option<f64>,
    /// Share of the launches whose time is that by the clocks of the ranks; else it is that of the shortest rank.
    pub(crate) by_clocks: f64,
}

impl RankEvidence {
    fn of_counters(counters: &[Option<f64>]) -> Option<Self> {
        let [shortest, _, longest, skew, latest, by_clocks] = *counters else { return None };
        Some(Self {
            shortest_us: shortest? / 1e3,
            longest_us: longest? / 1e3,
            skew_percent: skew?,
            latest,
            by_clocks: by_clocks?,
        })
    }
}

#[derive(Clone, Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct IntervalEvidence {
    pub(crate) estimate_us: f64,
    pub(crate) low_us: f64,
    pub(crate) high_us: f64,
    pub(crate) method: IntervalMethod,
    /// Effect of the collections that the joint fit removed.
    pub(crate) correction_percent: Option<f64>,
}

/// An attempt at the case.
#[derive(Clone, Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct CollectionEvidence {
    pub(crate) run: String,
    pub(crate) number: u32,
    pub(crate) devices: Vec<u32>,
    pub(crate) started_ns: Nanos,
    pub(crate) seconds: Option<f64>,
    pub(crate) verdict: Verdict,
    pub(crate) reason: String,
    /// Name of the cause.
    pub(crate) cause: &'static str,
    #[serde(skip)]
    outcome: CaseOutcome,
    pub(crate) launched: u32,
    pub(crate) recorded: usize,
    pub(crate) median_us: Option<f64>,
    /// True if its samples are part of the row.
    pub(crate) is_used: bool,
    /// Reason why its samples are not part of the row.
    pub(crate) left_out: Option<String>,
    pub(crate) software: Option<String>,
    /// Operator, state and unit of its launches.
    pub(crate) task: RecordedTask,
    pub(crate) clock: Option<ClockEvidence>,
    /// Control kernels at the ends of the collection.
    pub(crate) controls: Vec<ControlEvidence>,
    pub(crate) readings: Vec<ReadingEvidence>,
    /// Accepted samples in nanoseconds, in launch order.
    pub(crate) samples_ns: Vec<i64>,
    /// Severe outliers in nanoseconds, which are left out.
    pub(crate) outliers_ns: Vec<i64>,
    pub(crate) folder: PathBuf,
    /// Launches between which the records of the case are; `None` if it is not planned in the collection, as a case of
    /// an equal call, or the manifest cannot be read.
    pub(crate) bracket: Option<BracketEvidence>,
    /// SHA-256 of the compressed evidence when the collection ended.
    pub(crate) archive_sha256: Option<String>,
    /// State of the compressed evidence.
    pub(crate) archive: Option<String>,
    /// Files with the raw records that exist.
    pub(crate) records: Vec<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub(crate) struct ReadingEvidence {
    pub(crate) device: u32,
    pub(crate) at_ns: Nanos,
    pub(crate) health: String,
    pub(crate) temperature_c: Option<i64>,
    pub(crate) power_w: Option<f64>,
}

/// Sentinels around the launches of a case, by their kernel and numbers of elements.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub(crate) struct BracketEvidence {
    pub(crate) kernel: String,
    pub(crate) opening: u64,
    pub(crate) closing: u64,
}

/// Verdict of a run that planned the case.
#[derive(Clone, Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct RunVerdict {
    pub(crate) run: String,
    /// `None` while the case is open.
    pub(crate) verdict: Option<Verdict>,
    pub(crate) reason: String,
    /// Name of the cause.
    pub(crate) cause: Option<&'static str>,
}

/// Shortest possible time of the call on the device.
#[derive(Clone, Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct RooflineEvidence {
    pub(crate) device: String,
    pub(crate) bound_us: Option<f64>,
    /// Bound divided by the median, in percent.
    pub(crate) share_percent: Option<f64>,
    /// Reason why there is no bound.
    pub(crate) problem: Option<String>,
}

/// Duration of the row in production profiles.
#[derive(Clone, Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct ProductionEvidence {
    pub(crate) median_us: f64,
    pub(crate) records: u64,
    /// Median of the replay divided by that of production.
    pub(crate) ratio: Option<f64>,
}

pub(crate) struct EvidenceSources<'a> {
    pub(crate) database: &'a Database,
    pub(crate) ledger: Option<&'a Ledger>,
    pub(crate) catalogue: &'a Catalogue,
    pub(crate) device: &'a DeviceProfile,
}

impl EvidenceSources<'_> {
    pub(crate) fn collect(
        &self,
        known: &KnownCase,
        cache: CacheState,
    ) -> Result<CaseEvidence, DatabaseError> {
        let kernel = KernelName::new(&known.kernel).ok();
        let table = kernel.as_ref().map(|kernel| self.database.kernel_csv(kernel)).transpose()?;
        let read = |cache| {
            self.ledger.map(|ledger| LedgerComparison::read(ledger, self.database, cache)).transpose()
        };
        let comparison = read(cache)?;
        let CaseRows { rows, case, production: production_row } = match kernel.as_ref().zip(table.as_ref()) {
            Some((kernel, table)) => CaseRows::read(kernel, table, &known.case, cache, comparison.as_ref())?,
            None => CaseRows::default(),
        };
        let production = production_row.map(|(median, _)| median);
        let result = comparison.as_ref().and_then(|ledger| ledger.judged_row(&known.case, production));
        let (mut collections, mut runs) = (Vec::new(), Vec::new());
        if let Some(ledger) = self.ledger {
            let mut attempts = ledger.case_attempts(&known.case)?;
            attempts.retain(|attempt| attempt.cache == cache);
            let controls = ledger.all_controls(cache)?;
            for attempt in &attempts {
                let place = (attempt, controls.as_slice());
                collections.push(self.collection(ledger, &known.case, place, result.as_ref())?);
            }
            let software = attempts.into_iter().map(|attempt| attempt.software);
            let clocks = software.zip(&mut collections);
            let clocks = clocks.filter_map(|(software, one)| Some((software, one.clock.as_mut()?)));
            ClockEvidence::compare_all(&mut clocks.collect::<Vec<_>>());
            runs = ledger.planned_verdicts(&known.case)?;
        }
        let runs = runs.into_iter().filter(|planned| planned.cache == cache);
        let runs = runs.map(|PlannedVerdict { run, outcome, .. }| RunVerdict {
            run,
            verdict: outcome.as_ref().map(|outcome| outcome.verdict),
            reason: outcome.as_ref().map_or_else(String::new, |outcome| outcome.reason.to_string()),
            cause: outcome.map(|outcome| outcome.reason.cause.name()),
        });
        let median = result.as_ref().and_then(|row| Some(row.measurement.as_ref()?.summary.median));
        let roofline = case.as_ref().map(|case| self.roofline(case.clone(), median));
        let references = comparison.as_ref();
        let references =
            references.and_then(|ledger| ledger.rows.estimates.cases.get(&known.case)?.references.as_ref());
        let comparable = match production {
            None => Err("no production profile has the case"),
            Some(_) if !self.database.has_comparable_production() => {
                Err("rehearsed durations are not judged by profiles of devices")
            }
            Some(median) => Ok(median),
        };
        let rules = result
            .as_ref()
            .and_then(|row| rule_results(row, &collections, references, comparable, roofline.as_ref()));
        let other_cache = if cache.is_hot() { CacheState::Cold } else { CacheState::Hot };
        let other = read(other_cache)?.and_then(|ledger| ledger.judged_row(&known.case, production));
        let other_state = other.as_ref().and_then(ResultEvidence::from_row).map(|result| StateEvidence {
            cache: other_cache,
            production_ratio: production.map(|production| result.median_us / production.micros()),
            result,
        });
        let hosts = collections.iter().rev().map(|one| collection_hosts(&one.folder));
        let hosts = hosts.into_iter().find(|hosts| !hosts.is_empty()).unwrap_or_default();
        Ok(CaseEvidence {
            case: known.case.clone(),
            cache,
            kernel: known.kernel.clone(),
            shapes: case.as_ref().map_or_else(|| known.signature.clone(), Case::shapes),
            rows,
            result: result.as_ref().and_then(ResultEvidence::from_row),
            other_state,
            collections,
            runs: runs.collect(),
            roofline,
            production: production_row.map(|(production, records)| ProductionEvidence {
                median_us: production.micros(),
                records,
                ratio: median.map(|median| median / 1e3 / production.micros()),
            }),
            rules: rules.unwrap_or_default(),
            command: match case.as_ref().and_then(CollectiveCase::of_case) {
                Some(collective) => repeat_sweep(self.database, &collective, &hosts),
                None => repeat_command(self.database, cache, known.case.as_str()),
            },
        })
    }

    fn collection(
        &self,
        ledger: &Ledger,
        case: &CaseId,
        (attempt, controls): (&CaseAttempt, &[StoredControl]),
        result: Option<&RowResult>,
    ) -> Result<CollectionEvidence, DatabaseError> {
        let CaseAttempt { run, collection, devices, started, ended, outcome, software, archive, .. } =
            attempt;
        let measured = attempt.launches.iter().filter(|launch| launch.is_measured);
        let (accepted, outliers): (Vec<_>, Vec<_>) = measured.partition(|launch| launch.is_accepted);
        let durations = |launches: Vec<&Launch>| {
            launches.into_iter().map(|launch| launch.duration.0).collect::<Vec<i64>>()
        };
        let (samples_ns, outliers_ns) = (durations(accepted), durations(outliers));
        let summary = SampleSummary::from_samples(&mut samples_ns.clone());
        let left_out = reason_left_out(attempt, samples_ns.is_empty(), result);
        let until = ended.unwrap_or(*started);
        let readings = ledger.readings_during(run, devices, *started, until)?.into_iter();
        let readings = readings.map(|DeviceReading { device, at, health, temperature, power, .. }| {
            ReadingEvidence { device, at_ns: at, health, temperature_c: temperature, power_w: power }
        });
        let folder = self.database.collection_folder(run, *collection);
        Ok(CollectionEvidence {
            run: run.clone(),
            number: *collection,
            devices: devices.clone(),
            started_ns: *started,
            seconds: ended.map(|ended| Nanos(ended.0.saturating_sub(started.0)).seconds()),
            verdict: outcome.verdict,
            reason: outcome.reason.to_string(),
            cause: outcome.reason.cause.name(),
            outcome: outcome.clone(),
            launched: attempt.launched,
            recorded: attempt.launches.len(),
            median_us: summary.as_ref().map(|summary| summary.median / 1e3),
            is_used: left_out.is_none(),
            left_out,
            software: software.as_ref().map(SoftwareFingerprint::cell_text),
            task: attempt.task.clone(),
            clock: attempt.cycle_rate.map(ClockEvidence::from),
            controls: control_evidence(controls, run, *collection),
            readings: readings.collect(),
            samples_ns,
            outliers_ns,
            bracket: case_bracket(&folder, case),
            archive: archive.as_ref().map(|digest| archive_state(&folder, digest).to_string()),
            archive_sha256: archive.clone(),
            records: record_files(&folder),
            folder,
        })
    }

    fn roofline(&self, case: Case, median: Option<f64>) -> RooflineEvidence {
        let device = self.device.device.clone();
        let planned = planned_case(self.catalogue, self.device, IdentifiedCase::new(case));
        let (bound_us, problem) = match planned {
            Ok(planned) => (Some(planned.fastest.micros()), None),
            Err((_, outcome)) => (None, Some(format!("{}: {}", outcome.verdict, outcome.reason))),
        };
        let share_percent = bound_us.zip(median).map(|(bound, median)| 100.0 * bound * 1e3 / median);
        RooflineEvidence { device, bound_us, share_percent, problem }
    }
}

#[derive(Default)]
struct CaseRows {
    rows: Vec<RowEvidence>,
    case: Option<Case>,
    /// Median in production profiles, and number of their records, of the first row with them.
    production: Option<(Nanos, u64)>,
}

impl CaseRows {
    fn read(
        kernel: &KernelName,
        table: &KernelCsv,
        id: &CaseId,
        cache: CacheState,
        comparison: Option<&LedgerComparison>,
    ) -> Result<Self, DatabaseError> {
        let mut found = Self::default();
        for row in row_cases(kernel, table)? {
            if !row.case.as_ref().is_ok_and(|case| case.id() == *id) {
                continue;
            }
            let row = TableRow::read_cells(table, row);
            let cell = |column| {
                let column = columns::result_column(cache, column);
                column.map_or_else(String::new, |column| row.cell(column).into_owned())
            };
            found.rows.push(RowEvidence {
                file: table.path().to_owned(),
                line: row.parsed.line,
                average_us: match kernel.is_collective() {
                    true => row.cell(DURATION).into_owned(),
                    false => cell(columns::AVERAGE),
                },
                verdict: cell(columns::VERDICT),
                ledger: match comparison {
                    Some(ledger) => relation_text(ledger.compare_row(&row, id), cache),
                    None => "the database has no ledger".to_owned(),
                },
            });
            let production = row.parsed.production.map(|median| (median, row.parsed.production_records));
            found.production = found.production.or(production);
            found.case = found.case.or(row.parsed.case.ok());
        }
        Ok(found)
    }
}

fn relation_text(compared: RowComparison, cache: CacheState) -> String {
    match compared {
        RowComparison::Equal => "the row is that of the ledger".to_owned(),
        RowComparison::Behind => {
            let run = match cache {
                CacheState::Hot => "run",
                CacheState::Cold => "run with `--cache cold`",
            };
            format!("the row lacks the newest result of the ledger; the next {run} writes it")
        }
        RowComparison::OtherLedger => "the row is of a run that is not in the ledger".to_owned(),
        RowComparison::UnknownRun { .. } => {
            "the row names no run of the ledger, which has a result of this case".to_owned()
        }
        RowComparison::Different { cells, .. } => {
            let cells = cells.iter().map(|CellDifference { column, found, expected }| {
                format!("`{column}` is `{found}`, the ledger has `{expected}`")
            });
            format!("the row differs from the ledger: {}", cells.collect::<Vec<_>>().join("; "))
        }
        RowComparison::NoMeasurement { .. } => "the ledger has no measurement of this case".to_owned(),
        RowComparison::NoSuchVerdict { run, verdict } => {
            format!("`{verdict}` is not a verdict of this case in run {run}")
        }
    }
}

fn reason_left_out(attempt: &CaseAttempt, is_empty: bool, result: Option<&RowResult>) -> Option<String> {
    if !attempt.outcome.verdict.has_samples() {
        return Some(format!("{}: {}", attempt.outcome.verdict, attempt.outcome.reason));
    }
    if is_empty {
        return Some("it has no accepted samples".to_owned());
    }
    let newest = result.and_then(|row| row.software.as_deref()).map(|software| &software.fingerprint);
    (attempt.software.as_ref() != newest).then(|| match (newest, &attempt.software) {
        (Some(newest), Some(own)) => {
            format!("measured with other software: {}", own.differences_from(newest))
        }
        _ => "measured with software that is not known to be the same".to_owned(),
    })
}

fn rule_results(
    row: &RowResult,
    collections: &[CollectionEvidence],
    references: Option<&CaseReferences>,
    production: Result<Nanos, &'static str>,
    roofline: Option<&RooflineEvidence>,
) -> Option<Vec<RuleResult>> {
    let measured = row.measurement.as_ref()?;
    let used = || collections.iter().filter(|one| one.is_used);
    let samples: Vec<&[i64]> = used().map(|one| one.samples_ns.as_slice()).collect();
    let left_out = collections.iter().filter(|one| !one.is_used).map(|one| &one.outcome);
    let clocks =
        used().filter_map(|one| one.clock.as_ref()?.difference_percent.map(|percent| percent / 100.0));
    let fastest = roofline.and_then(|roofline| Some(Nanos((roofline.bound_us? * 1e3).round() as i64)));
    Some(judge_row_rules(&RowNumbers {
        cache: row.cache,
        left_out: &left_out.collect::<Vec<_>>(),
        collections: &samples,
        reasons: &used().map(|one| &one.outcome.reason).collect::<Vec<_>>(),
        tasks: &used().map(|one| &one.task).collect::<Vec<_>>(),
        outliers: used().map(|one| one.outliers_ns.len()).sum(),
        median: measured.summary.median,
        interval: measured.interval.map(|interval| (interval.low, interval.high)),
        method: measured.interval.map(|interval| interval.method),
        references,
        production,
        fastest,
        clocks: &clocks.collect::<Vec<_>>(),
    }))
}

impl ResultEvidence {
    fn from_row(row: &RowResult) -> Option<Self> {
        let measured = row.measurement.as_ref()?;
        let interval = measured.interval.map(|interval| IntervalEvidence {
            estimate_us: interval.estimate / 1e3,
            low_us: interval.low / 1e3,
            high_us: interval.high / 1e3,
            method: interval.method,
            correction_percent: interval.correction.map(|factor| 100.0 * factor),
        });
        Some(Self {
            verdict: row.outcome.verdict,
            reason: row.outcome.reason.to_string(),
            cause: row.outcome.reason.cause.name(),
            findings: row.outcome.reason.clone(),
            average_us: measured.summary.mean / 1e3,
            median_us: measured.summary.median / 1e3,
            std_us: measured.summary.std.map(|std| std / 1e3),
            min_us: measured.summary.min / 1e3,
            p95_us: measured.summary.p95 / 1e3,
            samples: measured.samples,
            collections: measured.collections,
            interval,
            software: row.software.as_deref().map(|software| software.cell_text.clone()),
            ranks: RankEvidence::of_counters(&measured.counters),
        })
    }
}

/// Depth of the files of a collection below its folder: `profile/PROF_*/mindstudio_profiler_output/*.csv`, in a folder
/// of its rank for gangs, and one more for other layouts.
const MAX_DEPTH: usize = 5;

fn read_manifest(folder: &Path) -> Option<Manifest> {
    serde_json::from_slice(&read_regular(&folder.join(MANIFEST), MAX_TABLE).ok()?).ok()
}

fn case_bracket(folder: &Path, case: &CaseId) -> Option<BracketEvidence> {
    let Manifest { sentinels, cases, .. } = read_manifest(folder)?;
    let ordinal = cases.iter().find(|planned| planned.case == *case)?.ordinal;
    let (opening, closing) = (sentinels.opening(ordinal), sentinels.closing_length(ordinal));
    Some(BracketEvidence { kernel: sentinels.kernel, opening, closing })
}

fn collection_hosts(folder: &Path) -> Vec<String> {
    read_manifest(folder).into_iter().flat_map(|manifest| manifest.hosts).map(|host| host.name).collect()
}

fn record_files(folder: &Path) -> Vec<PathBuf> {
    let own = [EVIDENCE, COLLECT, REPLAY, MANIFEST, JOURNAL, LOG].map(|name| folder.join(name));
    let own = own.into_iter().filter(|path| path.is_file());
    let tables = archived_files(&folder.join(PROFILE), MAX_DEPTH - 1);
    own.chain(tables.into_iter().filter(|path| is_kernel_table(path))).collect()
}

#[derive(Clone, Debug, PartialEq, Eq, strum::Display)]
pub(crate) enum ArchiveState {
    #[strum(to_string = "unchanged since the collection")]
    Unchanged,
    #[strum(to_string = "changed: its SHA-256 is not that of the ledger")]
    Changed,
    #[strum(to_string = "removed")]
    Missing,
    #[strum(to_string = "not readable: {0}")]
    Unreadable(String),
}

pub(crate) fn archive_state(folder: &Path, digest: &str) -> ArchiveState {
    match file_digest(&folder.join(EVIDENCE)) {
        Ok(found) if found == digest => ArchiveState::Unchanged,
        Ok(_) => ArchiveState::Changed,
        Err(error) if error.kind() == io::ErrorKind::NotFound => ArchiveState::Missing,
        Err(error) => ArchiveState::Unreadable(error.to_string()),
    }
}

/// Returns the files that the compressed evidence of a collection contains, in the order of their paths: all but the profiler's
/// binary data and databases, whose content is in the tables.
pub(crate) fn files_to_archive(folder: &Path) -> Vec<PathBuf> {
    archived_files(folder, MAX_DEPTH)
}

fn archived_files(folder: &Path, depth: usize) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let Ok(kind) = entry.file_type() else { continue };
        let is_database = path.extension().is_some_and(|extension| extension == "db");
        if kind.is_dir() && depth > 0 && name != "data" {
            files.extend(archived_files(&path, depth - 1));
        } else if kind.is_file() && !is_database && name != EVIDENCE {
            files.push(path);
        }
    }
    files.sort();
    files
}

fn is_kernel_table(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    ["op_summary", "kernel_details"].iter().any(|prefix| name.starts_with(prefix)) && name.ends_with(".csv")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::files::write_archive;

    #[test]
    fn archive_has_every_listed_table() {
        let folder = tempfile::tempdir().expect("a folder");
        for depth in 0..8 {
            let levels = ["level"; 8];
            let below: PathBuf = folder.path().join(PROFILE).join(levels[..depth].join("/"));
            fs::create_dir_all(&below).expect("created");
            fs::write(below.join("op_summary_1.csv"), "").expect("written");
        }
        let archived = files_to_archive(folder.path());
        let listed = record_files(folder.path());
        assert_eq!(listed.len(), MAX_DEPTH);
        assert_eq!(listed, archived);
    }

    #[test]
    fn unreadable_archive_is_not_a_removed_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(EVIDENCE);
        assert_eq!(archive_state(folder.path(), ""), ArchiveState::Missing);
        let digest = write_archive(&path, folder.path(), &[]).expect("written");
        assert_eq!(archive_state(folder.path(), &digest), ArchiveState::Unchanged);
        assert_eq!(archive_state(folder.path(), ""), ArchiveState::Changed);
        fs::remove_file(&path).expect("removed");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
        let state = archive_state(folder.path(), &digest);
        assert!(matches!(state, ArchiveState::Unreadable(_)), "{state}");
        assert!(
            state.to_string().starts_with("not readable: ") && state.to_string().contains("pipe"),
            "{state}"
        );
    }

    /// A manifest with an ordinal beyond all limits is damaged.
    #[test]
    fn damaged_manifest_has_no_bracket() {
        let folder = tempfile::tempdir().expect("a folder");
        let case = CaseId::from_stored("00000000000000ff");
        let text = format!(r#"{{"cases": [{{"case": "{case}", "ordinal": {}}}]}}"#, u64::MAX);
        fs::write(folder.path().join(MANIFEST), text).expect("written");
        assert_eq!(case_bracket(folder.path(), &case), None);
    }
}
