//! Reads the records of a collection and assesses every case by them. Launches that ran as another kernel with the same call, which is
//! the choice of CANN, are a measurement of the kernel that ran, and of every row of the call under one of its names.

use std::{collections::BTreeSet, path::Path};

use serde::{Deserialize, Serialize};

use super::{
    JournalLine, LaunchJournal,
    controls::ControlFindings,
    ranks::{
        CacheFlushes, RankLaunches, RankOutput, Sentinels, collective_launches, fastest_durations,
        merge_ranks, rank_spread, slowest_records, split_by_rank,
    },
    record_rules::{CaseRecords, broken_rule, cycle_rate, throttling},
    samples::{accepted_samples, noise_reason, pattern_reason, published_interval},
};
use crate::{
    base::{process::ExitKind, stats::median},
    kernel::{
        Attempt, Case, CaseId, CaseOutcome, Cause, CollectiveKind, EqualCallAttempt, IdentifiedCase,
        KernelName, Launch, LogicalDeviceId, Nanos, Reason, RecordedTask, Slot, SoftwareFingerprint, Verdict,
        cause::OtherKernel,
        render::{Manifest, ManifestCase},
    },
    profile::{
        COUNTERS, Column, CoreClocks, KernelRow, LossOfExporter, LowClock, ProfileError, RecordReader,
        collection_summaries, exporter_loss, only_device,
    },
};

#[derive(Clone, Debug)]
pub struct RawRecord {
    pub kernel: String,
    pub start: Nanos,
    pub duration: Nanos,
    /// Device by the runtime's number; `None` if the record does not name it.
    pub device: Option<LogicalDeviceId>,
    /// Place of the host of its device in a gang of several hosts; 0 for one host.
    pub host: usize,
    /// True if the table has a column for the device, so that a record without one is damaged.
    pub has_device_column: bool,
    pub inputs: Vec<Slot>,
    pub outputs: Vec<Slot>,
    pub task: RecordedTask,
    /// Values of [`COUNTERS`].
    pub counters: Vec<Option<f64>>,
    pub blocks: Option<u32>,
    pub stream: Option<u32>,
    /// True for a product of FLOAT in HF32; `None` if the mode is not recorded.
    pub is_hf32: Option<bool>,
    /// Clock of the cores, if it was below the set one; `None` also if the profile does not show it.
    pub low_clock: Option<LowClock>,
}

#[derive(Clone, Debug)]
pub struct ExpectedLaunches<'a> {
    pub case: &'a Case,
    /// Names of the kernel in profiles, its type first; the row's name may be any of them.
    pub names: Vec<&'a str>,
    pub equal_kernels: Vec<EqualKernel<'a>>,
    pub equal_cases: &'a [IdentifiedCase],
    pub also_launched: &'a [String],
    pub fastest: Nanos,
    /// Assumptions about values that shapes do not determine: remarks of the outcome.
    pub notes: &'a [Cause],
    pub is_on_ai_cpu: bool,
    /// Input slots that the kernel reads from the host: their form in the profile depends on the launching library, not
    /// on the work.
    pub host_slots: Vec<usize>,
}

impl<'a> ExpectedLaunches<'a> {
    pub(crate) const fn without_rules(case: &'a Case) -> Self {
        Self {
            case,
            names: Vec::new(),
            equal_kernels: Vec::new(),
            equal_cases: &[],
            also_launched: &[],
            fastest: Nanos(0),
            notes: &[],
            is_on_ai_cpu: false,
            host_slots: Vec::new(),
        }
    }

    /// Returns the names of the kernel that ran: the case's, or the equal kernel with this index.
    pub(super) fn names_of(&self, ran_as: Option<usize>) -> &[&'a str] {
        let other = ran_as.and_then(|index| self.equal_kernels.get(index));
        other.map_or(&self.names, |other| &other.names)
    }
}

#[derive(Clone, Debug)]
pub struct EqualKernel<'a> {
    pub kernel: &'a KernelName,
    pub names: Vec<&'a str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CollectionTermination {
    /// Its exit status is not reliable.
    Exited,
    TimedOut,
    TooMuchOutput,
    Stopped,
}

impl From<ExitKind> for CollectionTermination {
    fn from(exit: ExitKind) -> Self {
        match exit {
            ExitKind::Exited(_) | ExitKind::Signalled(_) => Self::Exited,
            ExitKind::TimedOut => Self::TimedOut,
            ExitKind::TooMuchOutput => Self::TooMuchOutput,
            ExitKind::CutOff | ExitKind::Stopped => Self::Stopped,
        }
    }
}

/// Greatest ratio of the median to the roofline bound and [`LAUNCH_PART`] together. Recorded profiles reach 11.
pub(super) const MAX_BOUNDS: i64 = 100;
/// Size of the tensors of a case on the vector cores from which it should run on several blocks. Kernels on one block in recorded
/// profiles have tensors of 48 KiB at most; those that treat a row of a vocabulary on one core may have more.
pub(super) const ONE_BLOCK_BYTES: u64 = 4 << 20;
pub(super) const LAUNCH_PART: Nanos = Nanos(10_000);

#[derive(Debug, Default)]
pub struct CollectionRecords {
    pub records: Vec<RawRecord>,
    /// First row that is no record, and the number of such rows. A case whose record is such a row is lost by the count of its launches.
    pub damaged: Option<(String, usize)>,
    /// Line of the exporter's log about lost data: what is recorded may be a part, also where it looks complete.
    pub(crate) loss: Option<LossOfExporter>,
}

impl CollectionRecords {
    pub(crate) fn into_complete(self) -> Result<Vec<RawRecord>, String> {
        self.damaged.map_or(Ok(self.records), |(problem, _)| Err(problem))
    }
}

/// Reads all kernel records below the profile folder. Fails with [`ProfileError`] if a table is none, or cannot be read.
pub fn read_records(profile: &Path) -> Result<CollectionRecords, ProfileError> {
    let mut read = CollectionRecords::default();
    if !profile.is_dir() {
        return Ok(read);
    }
    for table in collection_summaries(profile)? {
        let mut reader = RecordReader::open(&table.0)?;
        let folder = table.0.ancestors().nth(2);
        let clocks = folder.map(CoreClocks::read).unwrap_or_default();
        read.loss = read.loss.or_else(|| folder.and_then(exporter_loss));
        let only_device = folder.and_then(only_device);
        loop {
            let record = match reader.read_record() {
                Ok(None) => break,
                Ok(Some(row)) => raw_record(&row, &clocks, only_device),
                Err(error) => Err(error),
            };
            match record {
                Ok(record) => read.records.extend(record),
                Err(
                    error @ (ProfileError::Ragged { .. }
                    | ProfileError::CommaInName { .. }
                    | ProfileError::Cell { .. }),
                ) => {
                    read.damaged.get_or_insert_with(|| (error.to_string(), 0)).1 += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }
    // The profiler sorts devices and start times as text.
    read.records.sort_by_key(|record| record.start);
    Ok(read)
}

fn raw_record(
    row: &KernelRow<'_>,
    clocks: &CoreClocks,
    only_device: Option<u32>,
) -> Result<Option<RawRecord>, ProfileError> {
    let (Some(start), Some(duration)) = (row.start()?, row.duration()?) else { return Ok(None) };
    let device = row.device().or(only_device.filter(|_| !row.has_device_column()));
    Ok(Some(RawRecord {
        kernel: kernel_name(row.kernel()),
        start,
        duration,
        host: 0,
        device: device.map(LogicalDeviceId),
        task: row.task(),
        has_device_column: row.has_device_column(),
        // A helper whose cells cannot be read is still a record; it matches no case.
        inputs: row.input_cells()?.parse().unwrap_or_default(),
        outputs: row.output_cells()?.parse().unwrap_or_default(),
        counters: row.counters().collect(),
        blocks: row.number(Column::Blocks),
        stream: row.number(Column::Stream),
        is_hf32: row.is_hf32(),
        low_clock: clocks.of_device(device).and_then(|clock| clock.low_clock(start, duration)),
    }))
}

fn kernel_name(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    KernelName::new(&text).map_or_else(|_| text.clone().into_owned(), |name| name.as_str().to_owned())
}

/// Assesses every case of a manifest. `expected` has the cases in the order of the manifest, `journals` one journal per
/// process, by rank. The launches of every process must be recorded. `software` is the change of the host's software.
pub fn assess_collection(
    manifest: &Manifest,
    expected: &[ExpectedLaunches<'_>],
    journals: &[LaunchJournal],
    records: &[RawRecord],
    end: CollectionTermination,
    software: &SoftwareChange,
) -> Vec<Attempt> {
    let (flushes, records) = CacheFlushes::split(manifest, records);
    let ranks = split_by_rank(manifest, journals, &records);
    let sentinels: Vec<_> = ranks.iter().map(|rank| Sentinels::find(manifest, &rank.records)).collect();
    let all = LaunchJournal::merge_all(journals);
    let mut left = manifest.cases.iter().map(|case| case.ordinal).filter(|o| !all.lines.contains_key(o));
    let running = left.next().filter(|_| !all.has_ended);
    let controls = ControlFindings::of_collection(manifest, journals, &all, &records);
    let cases = manifest.cases.iter().zip(expected).map(|(case, expected)| {
        let ordinal = case.ordinal;
        let evidence = ranks.iter().zip(&sentinels).map(|(rank, sentinels)| {
            let Some(line) = rank.journal.lines.get(&ordinal) else {
                return Err(not_launched(ordinal, running, all.is_started, end));
            };
            if let Some(error) = &line.error {
                return Err(error.outcome(line.usable));
            }
            let between = sentinels.between(manifest, ordinal);
            let between = between.ok_or_else(|| without_sentinels(line, &rank.records, end, all.is_done))?;
            let records = &rank.records[between];
            let (own, ran_as) = kernel_records(expected, records)?;
            let launches = RankLaunches { launched: line.launched, records, own, ran_as };
            let (kind, flushes) = (manifest.kind, &flushes);
            match broken_rule(&CaseRecords { kind, rank, expected, line, launches: &launches, flushes }) {
                Some(outcome) => Err(outcome),
                None => Ok(launches),
            }
        });
        let evidence: Vec<Result<RankLaunches<'_>, CaseOutcome>> = evidence.collect();
        match merge_ranks(ordinal, &ranks, evidence) {
            Ok(evidence) => {
                let attempt = assess_case(manifest, case, expected, &ranks, &evidence);
                let outcome = controls.judge_outcome(ordinal, attempt.outcome);
                let attempt = Attempt { outcome: software.judge_outcome(outcome), ..attempt };
                share_attempt(attempt, expected, evidence.first().and_then(|first| first.ran_as))
            }
            Err(outcome) => {
                let launched = all.lines.get(&ordinal).map_or(0, |line| line.launched);
                Attempt::without_launches(case.case.clone(), launched, outcome)
            }
        }
    });
    cases.collect()
}

fn not_launched(number: u32, running: Option<u32>, started: bool, end: CollectionTermination) -> CaseOutcome {
    if Some(number) != running {
        return CaseOutcome::new(Verdict::NotRun, Cause::CollectionEnded);
    }
    let (verdict, cause) = match end {
        CollectionTermination::Stopped => (Verdict::NotRun, Cause::StoppedWhileRunning),
        _ if !started => (Verdict::NotRun, Cause::DeviceUnusable),
        CollectionTermination::TimedOut => (Verdict::Hung, Cause::TimeLimit),
        CollectionTermination::TooMuchOutput => (Verdict::Crashed, Cause::TooMuchOutput),
        CollectionTermination::Exited => (Verdict::Crashed, Cause::ProcessEnded),
    };
    CaseOutcome::new(verdict, cause)
}

fn without_sentinels(
    line: &JournalLine,
    records: &[RawRecord],
    end: CollectionTermination,
    is_done: bool,
) -> CaseOutcome {
    let (verdict, cause) = match (end, records.is_empty()) {
        (CollectionTermination::Exited, true) if !is_done => {
            (Verdict::LostRecords, Cause::EndedBeforeRecords)
        }
        (CollectionTermination::Exited, true) => (Verdict::LostRecords, Cause::NoRecords),
        (CollectionTermination::Exited, false) => {
            (Verdict::LostRecords, Cause::NoSentinels { launched: line.launched })
        }
        // The records of the collection were not exported, which is not a fault of the case.
        (CollectionTermination::TimedOut | CollectionTermination::TooMuchOutput, _) => {
            (Verdict::NotRun, Cause::EndedBeforeExport)
        }
        (CollectionTermination::Stopped, _) => (Verdict::NotRun, Cause::StoppedBeforeExport),
    };
    CaseOutcome::new(verdict, cause)
}

fn assess_case(
    manifest: &Manifest,
    case: &ManifestCase,
    expected: &ExpectedLaunches<'_>,
    ranks: &[RankOutput<'_>],
    evidence: &[RankLaunches<'_>],
) -> Attempt {
    let collective = CollectiveKind::of_kernel(&expected.case.kernel)
        .map(|kind| collective_launches(evidence, kind, manifest.spans_hosts()));
    let own: Vec<&RawRecord> = match &collective {
        Some(collective) => collective.records.iter().collect(),
        None => slowest_records(evidence),
    };
    let launched = evidence.first().map_or(0, |first| first.launched);
    let samples: Vec<i64> = own.iter().skip(manifest.warm_up as usize).map(|r| r.duration.0).collect();
    let mut keep = accepted_samples(&samples).into_iter();
    let launch = |(record, number): (&&RawRecord, u32)| {
        let is_measured = number >= manifest.warm_up;
        let is_accepted = is_measured && keep.next().unwrap_or(false);
        Launch { number, is_measured, is_accepted, start: record.start, duration: record.duration }
    };
    let launches: Vec<Launch> = own.iter().zip(0..).map(launch).collect();
    let accepted = own.iter().zip(&launches).filter(|(_, launch)| launch.is_accepted);
    let used: Vec<&RawRecord> = accepted.map(|(record, _)| *record).collect();
    let durations: Vec<i64> = used.iter().map(|record| record.duration.0).collect();
    let counters = match &collective {
        Some(collective) => collective.counters(&launches),
        None => counter_means(&used),
    };
    // Ranks of a gang wait for each other on devices with clocks of their own.
    let cycle_rate = if evidence.len() == 1 { cycle_rate(&used) } else { None };
    let task = used.first().map(|record| record.task.clone()).unwrap_or_default();
    let outliers = samples.len() - durations.len();
    let fastest_ranks = fastest_durations(evidence);
    let mut remarks: Vec<Cause> = expected.notes.to_vec();
    if outliers > 0 {
        remarks.push(Cause::Outliers { samples: outliers });
    }
    let ran_as = evidence.first().and_then(|first| first.ran_as);
    let names = expected.names_of(ran_as);
    let is_own_name = |kernel: &str| is_kernel_name(names, kernel);
    let foreign: BTreeSet<&str> = evidence
        .iter()
        .flat_map(|evidence| evidence.records)
        .map(|record| record.kernel.as_str())
        .filter(|kernel| !is_own_name(kernel) && !expected.also_launched.iter().any(|known| known == kernel))
        .collect();
    if !foreign.is_empty() {
        remarks.push(Cause::AlsoLaunched { kernels: foreign.into_iter().map(str::to_owned).collect() });
    }
    let noise =
        || noise_reason(&durations, published_interval(std::slice::from_ref(&durations), 0), None, outliers);
    let (verdict, cause) = match pattern_reason(&durations).or_else(noise) {
        Some(why) => (Verdict::Noisy, why),
        None => (Verdict::Ok, Cause::EveryLaunchRecorded),
    };
    let mut outcome = CaseOutcome::with_remarks(verdict, cause, remarks);
    let spread = match &collective {
        Some(collective) => collective.remarks(&launches, ranks),
        None => rank_spread(&launches, &fastest_ranks).into_iter().collect(),
    };
    outcome = spread.into_iter().fold(outcome, CaseOutcome::with_remark);
    let contradictions = [far_above_roofline(&durations, expected), on_one_block(&used, expected.case)];
    for contradiction in contradictions.into_iter().flatten() {
        outcome = outcome.of_contradicted_attempt(contradiction);
    }
    if let Some(cause) = throttling(&used) {
        outcome = CaseOutcome::with_remarks(Verdict::Throttled, cause, outcome.reason.remarks);
    }
    let without_launches = Attempt::without_launches(case.case.clone(), launched, outcome);
    Attempt { launches, fastest_ranks, counters, task, cycle_rate, ..without_launches }
}

/// Returns the cause for a large case that ran on one block. A matrix product may have a single output tile, so it is not judged.
fn on_one_block(used: &[&RawRecord], case: &Case) -> Option<Cause> {
    let is_on_vector_core = |core: &str| matches!(core, "AI_VECTOR_CORE" | "MIX_AIV");
    let is_on_one =
        used.iter().all(|record| record.blocks == Some(1) && is_on_vector_core(&record.task.core));
    let tensors = case.inputs.iter().chain(&case.outputs).flatten();
    let bytes = tensors.fold(0_u64, |sum, tensor| sum.saturating_add(tensor.bytes()));
    (is_on_one && bytes >= ONE_BLOCK_BYTES).then_some(Cause::OneBlock { mib: bytes >> 20 })
}

pub(super) fn one_block(reason: &Reason) -> Option<&Cause> {
    reason.all().find(|finding| matches!(finding, Cause::OneBlock { .. }))
}

fn far_above_roofline(durations: &[i64], expected: &ExpectedLaunches<'_>) -> Option<Cause> {
    let median = median(durations.iter().copied())?;
    let explained = Nanos(expected.fastest.0.saturating_add(LAUNCH_PART.0));
    let ratio = median / explained.0 as f64;
    let is_far = ratio > MAX_BOUNDS as f64;
    // The links of a collective are much slower than the memory of the roofline.
    (is_far && !expected.is_on_ai_cpu && !expected.case.kernel.is_collective()).then(|| {
        Cause::FarAboveRoofline { times: ratio.into(), launch_ns: LAUNCH_PART, explained_ns: explained }
    })
}

fn counter_means(used: &[&RawRecord]) -> Vec<Option<f64>> {
    let mean = |index: usize| {
        let values = used.iter().filter_map(|record| record.counters.get(index).copied().flatten());
        let (sum, count) = values.fold((0.0, 0_u32), |(sum, count), value| (sum + value, count + 1));
        (count > 0).then(|| sum / f64::from(count))
    };
    (0..COUNTERS.len()).map(mean).collect()
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SoftwareChange {
    None,
    DuringCollection(String),
    BeforeCollection(String),
}

impl SoftwareChange {
    pub(crate) fn of_collection(
        checked: &SoftwareFingerprint,
        at_start: &SoftwareFingerprint,
        at_end: &SoftwareFingerprint,
    ) -> Self {
        if at_end != at_start {
            Self::DuringCollection(at_end.differences_from(at_start))
        } else if at_end != checked {
            Self::BeforeCollection(at_end.differences_from(checked))
        } else {
            Self::None
        }
    }

    pub(super) fn judge_outcome(&self, outcome: CaseOutcome) -> CaseOutcome {
        match self {
            Self::None => outcome,
            Self::DuringCollection(differences) => {
                let differences = differences.clone();
                CaseOutcome::new(Verdict::Implausible, Cause::SoftwareChanged { differences })
            }
            Self::BeforeCollection(differences) => {
                outcome.with_remark(Cause::UncheckedSoftware { differences: differences.clone() })
            }
        }
    }
}

pub(super) fn is_kernel_name(names: &[&str], recorded: &str) -> bool {
    names.contains(&recorded)
        || KernelName::without_variant(recorded).is_some_and(|kernel| names.contains(&kernel))
}

/// Returns the records of the kernel that ran, and its index if it is an equal kernel. Launches that ran as several are an error.
fn kernel_records<'r>(
    expected: &ExpectedLaunches<'_>,
    records: &'r [RawRecord],
) -> Result<(Vec<&'r RawRecord>, Option<usize>), CaseOutcome> {
    let kernels = std::iter::once(None).chain((0..expected.equal_kernels.len()).map(Some));
    let mut found = kernels.filter_map(|ran_as| {
        let names = expected.names_of(ran_as);
        let is_launch = |record: &&RawRecord| is_kernel_name(names, &record.kernel);
        let launches: Vec<&RawRecord> = records.iter().filter(is_launch).collect();
        (!launches.is_empty()).then_some((launches, ran_as))
    });
    let first = found.next().unwrap_or_default();
    match found.next() {
        Some((others, _)) => {
            let kernels = [&first.0[0], &others[0]].map(|record| record.kernel.clone());
            Err(CaseOutcome::new(Verdict::WrongKernel, Cause::RanAsSeveral { kernels }))
        }
        None => Ok(first),
    }
}

/// Divides the attempt at a call among the cases with this call: the planned case, its equal cases, and a case of the type
/// of the kernel that ran, unless an equal case is of that type. Cases under any name of the kernel that ran get the launches
/// and the outcome; the others, of which the planned case may be one, end as `ran_as_other` without launches.
///
/// Launches that are no measurement (`throttled`, `implausible` …) are not divided: the planned case has the outcome, and
/// the launches too if its own kernel ran.
fn share_attempt(attempt: Attempt, expected: &ExpectedLaunches<'_>, ran_as: Option<usize>) -> Attempt {
    let other = ran_as.and_then(|index| expected.equal_kernels.get(index)).map(|other| other.kernel);
    if !attempt.outcome.verdict.has_samples() {
        let Some(kernel) = other else { return attempt };
        let outcome = failed_as_other(kernel, &attempt.outcome);
        return Attempt::without_launches(attempt.case, attempt.launched, outcome);
    }
    let mut cases = expected.equal_cases.to_vec();
    if let Some(kernel) = other.filter(|kernel| cases.iter().all(|case| case.kernel != **kernel)) {
        cases.push(IdentifiedCase::new(Case { kernel: kernel.clone(), ..expected.case.clone() }));
    }
    let names = expected.names_of(ran_as);
    let kernel = names.first().copied().unwrap_or(expected.case.kernel.as_str());
    let without_launches = |case: CaseId| {
        Attempt::without_launches(case, attempt.launched, ran_as_other_outcome(kernel, &attempt.outcome))
    };
    let of_equal_calls = cases.into_iter().map(|case| {
        let id = case.id().clone();
        let attempt = match is_kernel_name(names, case.kernel.as_str()) {
            true => Attempt { case: id, ..attempt.clone() },
            false => without_launches(id),
        };
        EqualCallAttempt { case, attempt }
    });
    let of_equal_calls = of_equal_calls.collect();
    let of_planned_case = if other.is_some() { without_launches(attempt.case.clone()) } else { attempt };
    Attempt { of_equal_calls, ..of_planned_case }
}

pub(super) fn failed_as_other(kernel: &KernelName, outcome: &CaseOutcome) -> CaseOutcome {
    outcome.clone().with_remark(Cause::RanAs { kernel: kernel.to_string() })
}

pub(super) fn is_measured_as(outcome: &CaseOutcome, kernel: &KernelName) -> bool {
    matches!(&outcome.reason.cause, Cause::MeasuredAs(other) if other.kernel == kernel.as_str())
}

fn ran_as_other_outcome(kernel: &str, outcome: &CaseOutcome) -> CaseOutcome {
    let CaseOutcome { verdict, reason } = outcome;
    let result = (*verdict != Verdict::Ok).then(|| (*verdict, Box::new(reason.cause.clone())));
    CaseOutcome::new(
        Verdict::RanAsOther,
        Cause::MeasuredAs(OtherKernel { kernel: kernel.to_owned(), result }),
    )
}

#[cfg(test)]
mod tests;
