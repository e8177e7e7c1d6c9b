//! Results of the processes of a collection: one, or one per device of a gang, and which rank's verdict is the cause.
//!
//! Each process has a journal and the records of its device. The kernel of a gang ends with its slowest rank: a
//! sample is the maximum of the ranks' durations of one launch. The minimum is stored as well: a rank that starts early
//! waits inside its kernel for the last one, so that the maximum contains this wait and the minimum hardly does.

use std::borrow::Cow;

use super::{LaunchJournal, RawRecord, recorded_clock::rated_clock};
use crate::{
    domain::{CaseOutcome, Launch, LogicalDeviceId, Nanos, Verdict},
    render::Manifest,
    stats::median_of_sorted,
};

/// Journal and records of one process.
pub(super) struct RankOutput<'a> {
    pub(super) device: LogicalDeviceId,
    /// The device as the host numbers it.
    pub(super) physical_id: u32,
    pub(super) journal: &'a LaunchJournal,
    /// Sorted by start time.
    pub(super) records: Cow<'a, [RawRecord]>,
    /// Clock in GHz with which the profiler computed the times of the cores; `None` if the records do not show it.
    pub(super) rated_clock: Option<f64>,
}

impl RankOutput<'_> {
    /// Returns `device 5`, or `device 5 (device 2 of torch)` if the numbers differ.
    pub(super) fn device_name(&self) -> String {
        let (physical, logical) = (self.physical_id, self.device);
        let note =
            if physical == logical.0 { String::new() } else { format!(" (device {logical} of torch)") };
        format!("device {physical}{note}")
    }
}

/// Launches of a case by one process, all of them recorded.
pub(super) struct RankLaunches<'a> {
    pub(super) launched: u32,
    /// All records between the sentinels of the case.
    pub(super) records: &'a [RawRecord],
    /// Records of the kernel that ran, one per launch.
    pub(super) own: Vec<&'a RawRecord>,
    /// Index of the equal kernel that ran; `None` for the case's own kernel.
    pub(super) ran_as: Option<usize>,
}

/// Splits the records by process, that is by device.
pub(super) fn split_by_rank<'a>(
    manifest: &Manifest,
    journals: &'a [LaunchJournal],
    records: &'a [RawRecord],
) -> Vec<RankOutput<'a>> {
    let devices = manifest.devices();
    let of = |device: LogicalDeviceId| {
        if devices.len() < 2 {
            return Cow::Borrowed(records);
        }
        let of_device = |wanted: &dyn Fn(LogicalDeviceId) -> bool| -> Vec<RawRecord> {
            records.iter().filter(|record| record.device.is_some_and(wanted)).cloned().collect()
        };
        let own = of_device(&|other| other == device);
        // A process without records on its device may have used a device outside the gang.
        Cow::Owned(if own.is_empty() { of_device(&|other| !devices.contains(&other)) } else { own })
    };
    let each = devices.iter().zip(journals).enumerate();
    each.map(|(rank, (&device, journal))| {
        let physical_id = manifest.host_numbers.devices.get(rank).copied().unwrap_or(device.0);
        let records = of(device);
        let rated_clock = rated_clock(&records);
        RankOutput { device, physical_id, journal, records, rated_clock }
    })
    .collect()
}

/// Verdicts by priority: the failure of one process makes the others fail too, and the first of these is the cause.
const BLAME_ORDER: [Verdict; 8] = [
    Verdict::Oom,
    Verdict::Rejected,
    Verdict::Crashed,
    Verdict::Hung,
    Verdict::WrongKernel,
    Verdict::Implausible,
    Verdict::LostRecords,
    Verdict::NotRun,
];

/// Merges the launches of all processes of a case, if all have them and launched equally often.
pub(super) fn merge_ranks<'a>(
    ordinal: u32,
    ranks: &[RankOutput<'_>],
    evidence: Vec<Result<RankLaunches<'a>, CaseOutcome>>,
) -> Result<Vec<RankLaunches<'a>>, CaseOutcome> {
    let findings = evidence.iter().zip(ranks).enumerate();
    let findings: Vec<RankFailure<'_>> = findings
        .filter_map(|(number, (evidence, rank))| {
            let is_silent = !rank.journal.lines.contains_key(&ordinal);
            let device = rank.physical_id;
            Some(RankFailure { number, device, is_silent, outcome: evidence.as_ref().err()? })
        })
        .collect();
    if let Some(outcome) = blamed_outcome(&findings, ranks.len()) {
        return Err(outcome);
    }
    let evidence: Vec<RankLaunches<'a>> = evidence.into_iter().flatten().collect();
    let counts: Vec<u32> = evidence.iter().map(|evidence| evidence.launched).collect();
    if counts.windows(2).any(|pair| pair[0] != pair[1]) {
        let counts: Vec<String> = counts.iter().map(ToString::to_string).collect();
        let reason = format!("the ranks launched it {} times", counts.join(", "));
        return Err(CaseOutcome::new(Verdict::LostRecords, reason));
    }
    if evidence.windows(2).any(|pair| pair[0].ran_as != pair[1].ran_as) {
        return Err(CaseOutcome::new(Verdict::WrongKernel, "the ranks ran it as different kernels"));
    }
    Ok(evidence)
}

/// Failure of one process.
struct RankFailure<'a> {
    number: usize,
    /// Physical number of its device.
    device: u32,
    /// True if it was ended before it wrote its journal line.
    is_silent: bool,
    outcome: &'a CaseOutcome,
}

/// Returns the failure that caused the others, with its rank.
fn blamed_outcome(findings: &[RankFailure<'_>], ranks: usize) -> Option<CaseOutcome> {
    let weight = |failure: &&RankFailure<'_>| {
        BLAME_ORDER.iter().position(|verdict| *verdict == failure.outcome.verdict)
    };
    // If a process was ended during the case, errors of other processes may follow from that, except out of memory.
    let is_cut = findings.iter().any(|failure| failure.is_silent);
    let counts =
        |failure: &&RankFailure<'_>| failure.is_silent || !is_cut || failure.outcome.verdict == Verdict::Oom;
    let verdict = findings.iter().filter(counts).min_by_key(weight)?.outcome.verdict;
    // A process that reported its error is more informative than those that torchrun ended because of it.
    let found = findings.iter().filter(|failure| failure.outcome.verdict == verdict);
    let RankFailure { number, device, outcome, .. } = found.min_by_key(|failure| failure.is_silent)?;
    // A failure of all ranks, and a case that did not run, are not attributed to one rank.
    let by_all = findings.iter().filter(|failure| failure.outcome == *outcome).count() == ranks;
    if by_all || verdict == Verdict::NotRun {
        return Some((*outcome).clone());
    }
    Some(CaseOutcome::new(verdict, format!("rank {number} (device {device}): {}", outcome.reason)))
}

/// Returns the record of the slowest rank for each launch; of equal ones, that of the first rank.
pub(super) fn slowest_records<'a>(evidence: &[RankLaunches<'a>]) -> Vec<&'a RawRecord> {
    let [first, others @ ..] = evidence else { return Vec::new() };
    let mut slowest = first.own.clone();
    for rank in others {
        for (record, other) in slowest.iter_mut().zip(&rank.own) {
            if other.duration > record.duration {
                *record = other;
            }
        }
    }
    slowest
}

/// Returns the duration of the fastest rank for each launch; nothing for one rank.
pub(super) fn fastest_durations(evidence: &[RankLaunches<'_>]) -> Vec<Nanos> {
    let [first, others @ ..] = evidence else { return Vec::new() };
    if others.is_empty() {
        return Vec::new();
    }
    let mut fastest: Vec<Nanos> = first.own.iter().map(|record| record.duration).collect();
    for rank in others {
        for (duration, other) in fastest.iter_mut().zip(&rank.own) {
            *duration = (*duration).min(other.duration);
        }
    }
    fastest
}

/// Difference between the fastest and the slowest rank above which the reason of a case names it.
const RANK_SPREAD: f64 = 0.05;

/// Describes the difference between the ranks of a gang, from the medians of the measured launches; `None` if it is
/// small.
pub(super) fn rank_spread(launches: &[Launch], fastest: &[Nanos]) -> Option<String> {
    let measured = || launches.iter().zip(fastest).filter(|(launch, _)| launch.is_measured);
    let mut slow: Vec<i64> = measured().map(|(launch, _)| launch.duration.0).collect();
    let mut fast: Vec<i64> = measured().map(|(_, fastest)| fastest.0).collect();
    slow.sort_unstable();
    fast.sort_unstable();
    let (slow, fast) = (median_of_sorted(&slow)?, median_of_sorted(&fast)?);
    (fast < slow * (1.0 - RANK_SPREAD)).then(|| {
        let [fast, slow] = [fast, slow].map(|nanos| nanos / 1000.0);
        format!("the fastest rank takes {fast:.3} us, the slowest {slow:.3} us")
    })
}
