//! Results of the processes of a collection: one, or one per device of a gang, and which rank's verdict is the cause.
//!
//! Each process has a journal and the records of its device. The kernel of a gang ends with its slowest rank: a
//! sample is the maximum of the ranks' durations of one launch. The minimum is stored as well: a rank that starts early
//! waits inside its kernel for the last one, so that the maximum contains this wait and the minimum hardly does.

use std::{borrow::Cow, collections::BTreeMap};

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
    /// Name of its host in a gang of several hosts; empty for one host.
    pub(super) host: &'a str,
    pub(super) journal: &'a LaunchJournal,
    /// Sorted by start time.
    pub(super) records: Cow<'a, [RawRecord]>,
    /// Clock in GHz with which the profiler computed the times of the cores; `None` if the records do not show it.
    pub(super) rated_clock: Option<f64>,
}

impl RankOutput<'_> {
    /// Returns ` of` and the host, if there are several.
    fn place(&self) -> String {
        if self.host.is_empty() { String::new() } else { format!(" of {}", self.host) }
    }

    /// Returns `device 5`, or `device 5 (device 2 of torch)` if the numbers differ; with the host if there are several.
    pub(super) fn device_name(&self) -> String {
        let (physical, logical) = (self.physical_id, self.device);
        let note =
            if physical == logical.0 { String::new() } else { format!(" (device {logical} of torch)") };
        format!("device {physical}{note}{}", self.place())
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
    manifest: &'a Manifest,
    journals: &'a [LaunchJournal],
    records: &'a [RawRecord],
) -> Vec<RankOutput<'a>> {
    let devices = manifest.devices();
    let of = |device: LogicalDeviceId, host: usize| {
        if devices.len() < 2 {
            return Cow::Borrowed(records);
        }
        let of_device = |wanted: &dyn Fn(LogicalDeviceId) -> bool| -> Vec<RawRecord> {
            let of_host = records.iter().filter(|record| record.host == host);
            of_host.filter(|record| record.device.is_some_and(wanted)).cloned().collect()
        };
        let own = of_device(&|other| other == device);
        // A process without records on its device may have used a device outside the gang.
        Cow::Owned(if own.is_empty() { of_device(&|other| !devices.contains(&other)) } else { own })
    };
    let each = devices.iter().zip(journals).enumerate();
    each.map(|(rank, (&device, journal))| {
        let physical_id = manifest.host_numbers.devices.get(rank).copied().unwrap_or(device.0);
        let host = manifest.host_of_rank(rank);
        let records = of(device, host);
        let host = manifest.hosts.get(host).map_or("", |host| host.name.as_str());
        let rated_clock = rated_clock(&records);
        RankOutput { device, physical_id, host, journal, records, rated_clock }
    })
    .collect()
}

/// Verdicts by priority: the failure of one process makes the others fail too, and the first of these is the cause.
const BLAME_ORDER: [Verdict; 9] = [
    Verdict::Oom,
    Verdict::Rejected,
    Verdict::Crashed,
    Verdict::Hung,
    Verdict::WrongResult,
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
            let device = format!("device {}{}", rank.physical_id, rank.place());
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
    /// Its device by the number of its host.
    device: String,
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
    Some(CaseOutcome::new(verdict, format!("rank {number} ({device}): {}", outcome.reason)))
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

/// Launches of a collective by all ranks as one record each, and the ranks' view of them.
pub(super) struct CollectiveLaunches {
    /// The record of the slowest rank, with start and duration of the launch.
    pub(super) records: Vec<RawRecord>,
    views: Vec<RankView>,
}

/// Durations and starts of one launch over the ranks.
struct RankView {
    shortest: Nanos,
    median: f64,
    longest: Nanos,
    /// True if the records of all ranks overlap.
    overlaps: bool,
    /// Rank that started last, and the time from the median start of the ranks to it.
    latest: (usize, Nanos),
}

/// Delay of the last rank, as a part of the duration and at least, above which the reason of a case names it.
const LATE_PART: f64 = 0.05;
const LATE_NS: i64 = 5_000;

/// Merges the records of a collective: a launch takes from the last start to the last end over the ranks, because a
/// rank that starts early waits inside its kernel for the others. If the records of the ranks do not all overlap, or
/// the ranks are on several hosts, their clocks differ, and the shortest duration is that of the rank that started
/// last.
pub(super) fn collective_launches(evidence: &[RankLaunches<'_>], spans_hosts: bool) -> CollectiveLaunches {
    let slowest = slowest_records(evidence);
    let mut launches = CollectiveLaunches { records: Vec::new(), views: Vec::new() };
    for (number, record) in slowest.into_iter().enumerate() {
        let of_ranks: Vec<&RawRecord> =
            evidence.iter().filter_map(|rank| rank.own.get(number).copied()).collect();
        let end = |record: &RawRecord| record.start.0.saturating_add(record.duration.0);
        let mut durations: Vec<i64> = of_ranks.iter().map(|record| record.duration.0).collect();
        let mut starts: Vec<i64> = of_ranks.iter().map(|record| record.start.0).collect();
        durations.sort_unstable();
        starts.sort_unstable();
        let (Some(&last_start), Some(&shortest), Some(&longest)) =
            (starts.last(), durations.first(), durations.last())
        else {
            continue;
        };
        let first_end = of_ranks.iter().map(|record| end(record)).min().unwrap_or_default();
        let last_end = of_ranks.iter().map(|record| end(record)).max().unwrap_or_default();
        // Clocks of different hosts may show an overlap by chance.
        let overlaps = last_start < first_end && !spans_hosts;
        let ranked = || of_ranks.iter().enumerate();
        let (latest, start, duration, delay) = if overlaps {
            let latest = ranked().max_by_key(|(rank, record)| (record.start, usize::MAX - rank));
            let delay = last_start - starts[(starts.len() - 1) / 2];
            (latest, last_start, last_end - last_start, delay)
        } else {
            // Starts of different clocks are not compared: the shortest kernel waited least.
            let latest = ranked().min_by_key(|(rank, record)| (record.duration, *rank));
            let start = of_ranks.first().map_or(record.start, |first| first.start);
            (latest, start.0, shortest, durations[durations.len() / 2] - shortest)
        };
        let latest = latest.map_or(0, |(rank, _)| rank);
        launches.records.push(RawRecord { start: Nanos(start), duration: Nanos(duration), ..record.clone() });
        launches.views.push(RankView {
            shortest: Nanos(shortest),
            median: median_of_sorted(&durations).unwrap_or_default(),
            longest: Nanos(longest),
            overlaps,
            latest: (latest, Nanos(delay)),
        });
    }
    launches
}

impl CollectiveLaunches {
    /// Returns the means over the accepted launches, in the order of the columns of tables of collectives: shortest,
    /// median and longest duration of the ranks in nanoseconds, skew in percent, the rank that started last in most
    /// of them, and the share of launches whose records overlap.
    #[expect(clippy::cast_precision_loss, reason = "durations and counts of launches")]
    pub(super) fn counters(&self, launches: &[Launch]) -> Vec<Option<f64>> {
        let accepted: Vec<&RankView> = self.accepted(launches).collect();
        let mean = |value: &dyn Fn(&RankView) -> f64| {
            let sum: f64 = accepted.iter().map(|view| value(view)).sum();
            (!accepted.is_empty()).then(|| sum / accepted.len() as f64)
        };
        let skew = |view: &RankView| 100.0 * (view.longest.0 - view.shortest.0) as f64 / view.median.max(1.0);
        vec![
            mean(&|view| view.shortest.0 as f64),
            mean(&|view| view.median),
            mean(&|view| view.longest.0 as f64),
            mean(&skew),
            self.latest_rank(launches).map(|(rank, _)| rank as f64),
            mean(&|view| f64::from(u8::from(view.overlaps))),
        ]
    }

    fn accepted(&self, launches: &[Launch]) -> impl Iterator<Item = &RankView> {
        self.views.iter().zip(launches).filter(|(_, launch)| launch.is_accepted).map(|(view, _)| view)
    }

    /// Returns the rank that started last in most of the accepted launches, and its median delay in nanoseconds.
    fn latest_rank(&self, launches: &[Launch]) -> Option<(usize, f64)> {
        let mut delays: BTreeMap<usize, Vec<i64>> = BTreeMap::new();
        for view in self.accepted(launches) {
            delays.entry(view.latest.0).or_default().push(view.latest.1.0);
        }
        let all = delays.values().map(Vec::len).sum::<usize>();
        let (rank, mut delays) = delays.into_iter().max_by_key(|(_, delays)| delays.len())?;
        if delays.len() * 2 <= all {
            return None;
        }
        delays.sort_unstable();
        Some((rank, median_of_sorted(&delays)?))
    }

    /// Returns a remark that names a rank which starts late in most launches; `None` without one.
    #[expect(clippy::cast_precision_loss, reason = "durations of launches")]
    pub(super) fn late_rank(&self, launches: &[Launch], ranks: &[RankOutput<'_>]) -> Option<String> {
        let (rank, delay) = self.latest_rank(launches)?;
        let mut durations: Vec<i64> =
            launches.iter().filter(|launch| launch.is_accepted).map(|launch| launch.duration.0).collect();
        durations.sort_unstable();
        let least = (LATE_PART * median_of_sorted(&durations)?).max(LATE_NS as f64);
        let name = ranks.get(rank).map(RankOutput::device_name)?;
        (delay > least).then(|| {
            format!(
                "rank {rank} ({name}) starts {:.3} us after the others, for which their kernels wait; the time does not contain it",
                delay / 1e3
            )
        })
    }
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
