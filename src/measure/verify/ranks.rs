//! Results of the processes of a collection: one, or one per device of a gang, and which rank's verdict is the cause.
//!
//! Each process has a journal and the records of its device. The kernel of a gang ends with its slowest rank: a
//! sample is the maximum of the ranks' durations of one launch. The minimum is stored as well: a rank that starts early
//! waits inside its kernel for the last one, so that the maximum contains this wait and the minimum hardly does.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use super::{LaunchJournal, RawRecord, record_rules::highest_clock};
use crate::{
    base::stats::{median, median_of_sorted},
    kernel::{
        CaseOutcome, Cause, CollectiveKind, Dtype, Launch, LogicalDeviceId, Nanos, Verdict, render::Manifest,
    },
};

pub(super) struct RankOutput<'a> {
    pub(super) device: LogicalDeviceId,
    pub(super) physical_id: u32,
    /// Name of its host in a gang of several hosts; empty for one host.
    pub(super) host: &'a str,
    pub(super) journal: &'a LaunchJournal,
    pub(super) records: Cow<'a, [RawRecord]>,
    /// Clock in GHz with which the profiler computed the times of the cores; `None` if the records do not show it.
    pub(super) highest_clock: Option<f64>,
}

impl RankOutput<'_> {
    fn place(&self) -> String {
        if self.host.is_empty() { String::new() } else { format!(" of {}", self.host) }
    }

    pub(super) fn device_name(&self) -> String {
        let (physical, logical) = (self.physical_id, self.device);
        let note =
            if physical == logical.0 { String::new() } else { format!(" (device {logical} of torch)") };
        format!("device {physical}{note}{}", self.place())
    }
}

pub(super) struct RankLaunches<'a> {
    pub(super) launched: u32,
    pub(super) records: &'a [RawRecord],
    pub(super) own: Vec<&'a RawRecord>,
    pub(super) ran_as: Option<usize>,
}

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
        let highest_clock = highest_clock(&records);
        RankOutput { device, physical_id, host, journal, records, highest_clock }
    })
    .collect()
}

pub(super) fn merge_ranks<'a>(
    ordinal: u32,
    ranks: &[RankOutput<'_>],
    evidence: Vec<Result<RankLaunches<'a>, CaseOutcome>>,
) -> Result<Vec<RankLaunches<'a>>, CaseOutcome> {
    let findings: Vec<RankFailure<'_>> = evidence
        .iter()
        .zip(ranks)
        .enumerate()
        .filter_map(|(number, (evidence, rank))| {
            let is_silent = !rank.journal.lines.contains_key(&ordinal);
            Some(RankFailure { number, is_silent, outcome: evidence.as_ref().err()? })
        })
        .collect();
    if let Some(outcome) = blamed_outcome(&findings, ranks) {
        return Err(outcome);
    }
    let evidence: Vec<RankLaunches<'a>> = evidence.into_iter().flatten().collect();
    let counts: Vec<u32> = evidence.iter().map(|evidence| evidence.launched).collect();
    if counts.windows(2).any(|pair| pair[0] != pair[1]) {
        return Err(CaseOutcome::new(Verdict::LostRecords, Cause::LaunchesOfRanks { launches: counts }));
    }
    if evidence.windows(2).any(|pair| pair[0].ran_as != pair[1].ran_as) {
        return Err(CaseOutcome::new(Verdict::WrongKernel, Cause::KernelsOfRanks));
    }
    Ok(evidence)
}

struct RankFailure<'a> {
    number: usize,
    is_silent: bool,
    outcome: &'a CaseOutcome,
}

fn blamed_outcome(findings: &[RankFailure<'_>], ranks: &[RankOutput<'_>]) -> Option<CaseOutcome> {
    // A failed link and an unclear error may follow from the failure of another rank, which comes first.
    let weight = |failure: &&RankFailure<'_>| {
        let (verdict, cause) = (failure.outcome.verdict, &failure.outcome.reason.cause);
        let place = if cause.is_unclear() { Verdict::Hung } else { verdict };
        let place = Verdict::BLAME_ORDER.iter().position(|verdict| *verdict == place);
        (place, cause.is_unclear() || matches!(cause, Cause::LinkFault { .. }))
    };
    // If a process was ended during the case, errors of other processes may follow from that, except out of memory.
    let is_cut = findings.iter().any(|failure| failure.is_silent);
    let counts = |one: &&RankFailure<'_>| one.is_silent || !is_cut || one.outcome.verdict == Verdict::Oom;
    let blamed = findings.iter().filter(counts).min_by_key(weight)?.outcome;
    let (verdict, is_unclear) = (blamed.verdict, blamed.reason.cause.is_unclear());
    // A process that reported its error is more informative than those that torchrun ended because of it.
    let found = findings.iter().filter(|RankFailure { outcome, .. }| {
        outcome.verdict == verdict && outcome.reason.cause.is_unclear() == is_unclear
    });
    let &RankFailure { number, outcome, .. } =
        found.min_by_key(|failure| (failure.is_silent, weight(failure)))?;
    // A failure of all ranks, and a case that did not run, are not attributed to one rank.
    let by_all = findings.iter().filter(|failure| failure.outcome == outcome).count() == ranks.len();
    if by_all || verdict == Verdict::NotRun {
        return Some(outcome.clone());
    }
    let rank = &ranks[number];
    let device = format!("device {}{}", rank.physical_id, rank.place());
    let failure = Box::new(outcome.reason.clone());
    Some(CaseOutcome::new(verdict, Cause::OnRank { rank: number, device, failure }))
}

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

pub(super) fn fastest_durations(evidence: &[RankLaunches<'_>]) -> Vec<Nanos> {
    let [first, _, ..] = evidence else { return Vec::new() };
    let fastest = |one: usize| evidence.iter().filter_map(|rank| Some(rank.own.get(one)?.duration)).min();
    (0..first.own.len()).filter_map(fastest).collect()
}

pub(super) struct CollectiveLaunches {
    pub(super) records: Vec<RawRecord>,
    views: Vec<RankView>,
    end_difference: Option<Cause>,
}

struct RankView {
    shortest: Nanos,
    median: f64,
    longest: Nanos,
    is_by_clocks: bool,
    /// Rank that started last, and the time from the median start of the ranks to it.
    latest: (usize, Nanos),
}

/// Delay of the last rank, as a part of the duration and at least, above which it is late: smaller delays are those of the
/// launches on the host, which differ from launch to launch, and of the resolution of the clocks.
const LATE_PART: f64 = 0.05;
const LATE_NS: i64 = 5_000;
/// Part of the shortest duration by which the time by the clocks may exceed it before the clocks are in doubt.
const CLOCK_PART: f64 = 0.05;

struct LaunchRecords<'a> {
    slowest: &'a RawRecord,
    by_rank: Vec<&'a RawRecord>,
    durations: Vec<i64>,
    first_start: i64,
    last_start: i64,
    first_end: i64,
    last_end: i64,
}

impl<'a> LaunchRecords<'a> {
    fn new(slowest: &'a RawRecord, by_rank: Vec<&'a RawRecord>) -> Option<Self> {
        let end = |record: &&RawRecord| record.start.0.saturating_add(record.duration.0);
        let (starts, ends) = (|| by_rank.iter().map(|record| record.start.0), || by_rank.iter().map(end));
        let mut durations: Vec<i64> = by_rank.iter().map(|record| record.duration.0).collect();
        durations.sort_unstable();
        Some(Self {
            slowest,
            durations,
            first_start: starts().min()?,
            last_start: starts().max()?,
            first_end: ends().min()?,
            last_end: ends().max()?,
            by_rank,
        })
    }

    fn overlaps(&self) -> bool {
        self.last_start < self.first_end
    }

    fn by_clocks(&self) -> i64 {
        self.last_end.saturating_sub(self.last_start)
    }

    fn shortest(&self) -> i64 {
        self.durations.first().copied().unwrap_or_default()
    }

    fn launch(&self, is_by_clocks: bool, are_starts_comparable: bool) -> (RawRecord, RankView) {
        let shortest = self.shortest();
        let (start, duration) = match is_by_clocks {
            true => (self.last_start, self.by_clocks()),
            false => (self.by_rank.first().map_or(self.first_start, |first| first.start.0), shortest),
        };
        let ranked = || self.by_rank.iter().enumerate();
        let (latest, delay) = if are_starts_comparable {
            let mut starts: Vec<i64> = self.by_rank.iter().map(|record| record.start.0).collect();
            starts.sort_unstable();
            let latest = ranked().max_by_key(|(rank, record)| (record.start, usize::MAX - rank));
            (latest, self.last_start - starts[(starts.len() - 1) / 2])
        } else {
            // The kernel of the rank that starts last waits least.
            let latest = ranked().min_by_key(|(rank, record)| (record.duration, *rank));
            (latest, self.durations[self.durations.len() / 2] - shortest)
        };
        let view = RankView {
            shortest: Nanos(shortest),
            median: median_of_sorted(&self.durations).unwrap_or_default(),
            longest: Nanos(self.durations.last().copied().unwrap_or(shortest)),
            is_by_clocks,
            latest: (latest.map_or(0, |(rank, _)| rank), Nanos(delay)),
        };
        let record = RawRecord { start: Nanos(start), duration: Nanos(duration), ..self.slowest.clone() };
        (record, view)
    }
}

/// Compares the times of the launches by the clocks with the shortest durations, which do not depend on the clocks. If all ranks end
/// together by their clocks, both are equal. Else the clocks differ, if the ranks of this collective must end together; the medians
/// are those over the launches.
fn end_difference(launches: &[LaunchRecords<'_>], kind: CollectiveKind) -> Option<Cause> {
    let median_of = |value: &dyn Fn(&LaunchRecords<'_>) -> i64| {
        median(launches.iter().filter(|launch| launch.overlaps()).map(value))
    };
    let by_clocks = median_of(&|launch| launch.by_clocks())?;
    let shortest = median_of(&|launch| launch.shortest())?;
    let ends = median_of(&|launch| launch.last_end - launch.first_end)?;
    let by_clocks_us = (by_clocks / 1e3).into();
    (by_clocks > shortest * (1.0 + CLOCK_PART)).then(|| match kind.ends_together() {
        true => Cause::ClocksMayDiffer { apart_us: (ends / 1e3).into(), by_clocks_us },
        false => Cause::RanksMayEndApart { by_clocks_us, shortest_us: (shortest / 1e3).into() },
    })
}

/// Merges the records of a collective: a launch takes from the last start to the last end over the ranks, because a
/// rank that starts early waits inside its kernel for the others. It takes the shortest duration, which is the duration
/// of the rank that started last, if the clocks of the ranks differ: the ranks are on several hosts, their records do
/// not all overlap, or they end apart although each needs the data of all.
pub(super) fn collective_launches(
    evidence: &[RankLaunches<'_>],
    kind: CollectiveKind,
    spans_hosts: bool,
) -> CollectiveLaunches {
    let slowest = slowest_records(evidence).into_iter().enumerate();
    let of_ranks = |number: usize| evidence.iter().filter_map(|rank| rank.own.get(number).copied()).collect();
    let launches: Vec<LaunchRecords<'_>> =
        slowest.filter_map(|(number, record)| LaunchRecords::new(record, of_ranks(number))).collect();
    // Clocks of different hosts may show an overlap by chance.
    let end_difference = if spans_hosts { None } else { end_difference(&launches, kind) };
    let are_clocks_equal = !spans_hosts && !matches!(end_difference, Some(Cause::ClocksMayDiffer { .. }));
    let merged = launches.iter().map(|launch| {
        let is_by_clocks = are_clocks_equal && launch.overlaps();
        launch.launch(is_by_clocks, is_by_clocks && !kind.ends_together())
    });
    let (records, views) = merged.unzip();
    CollectiveLaunches { records, views, end_difference }
}

impl CollectiveLaunches {
    /// Returns the means over the accepted launches, in the order of the columns of tables of collectives: shortest,
    /// median and longest duration of the ranks in nanoseconds, skew in percent, the rank that started last in most
    /// of them, and the share of launches whose time is that by the clocks.
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
            mean(&|view| f64::from(u8::from(view.is_by_clocks))),
        ]
    }

    fn accepted(&self, launches: &[Launch]) -> impl Iterator<Item = &RankView> {
        self.views.iter().zip(launches).filter(|(_, launch)| launch.is_accepted).map(|(view, _)| view)
    }

    fn latest_rank(&self, launches: &[Launch]) -> Option<(usize, f64)> {
        let mut delays: BTreeMap<usize, Vec<i64>> = BTreeMap::new();
        for view in self.accepted(launches) {
            delays.entry(view.latest.0).or_default().push(view.latest.1.0);
        }
        let all = delays.values().map(Vec::len).sum::<usize>();
        let (rank, delays) = delays.into_iter().max_by_key(|(_, delays)| delays.len())?;
        if delays.len() * 2 <= all {
            return None;
        }
        let delay = median(delays)?;
        let accepted = launches.iter().filter(|launch| launch.is_accepted);
        let typical = median(accepted.map(|launch| launch.duration.0))?;
        let least = (LATE_PART * typical).max(LATE_NS as f64);
        (delay > least).then_some((rank, delay))
    }

    pub(super) fn remarks(&self, launches: &[Launch], ranks: &[RankOutput<'_>]) -> Vec<Cause> {
        let late = self.latest_rank(launches).and_then(|(rank, delay)| {
            let device = ranks.get(rank)?.device_name();
            Some(Cause::LateRank { rank, device, delay_us: (delay / 1e3).into() })
        });
        self.end_difference.clone().into_iter().chain(late).collect()
    }
}

const RANK_SPREAD: f64 = 0.05;

pub(super) fn rank_spread(launches: &[Launch], fastest: &[Nanos]) -> Option<Cause> {
    let measured = || launches.iter().zip(fastest).filter(|(launch, _)| launch.is_measured);
    let slow = median(measured().map(|(launch, _)| launch.duration.0))?;
    let fast = median(measured().map(|(_, fastest)| fastest.0))?;
    (fast < slow * (1.0 - RANK_SPREAD))
        .then(|| Cause::RankSpread { fastest_us: (fast / 1e3).into(), slowest_us: (slow / 1e3).into() })
}

pub(super) struct Sentinels(BTreeMap<u64, Vec<usize>>);

impl Sentinels {
    pub(super) fn find(manifest: &Manifest, records: &[RawRecord]) -> Self {
        let mut positions: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for (index, record) in records.iter().enumerate() {
            if record.kernel.starts_with(&manifest.sentinels.kernel)
                && let [Some(tensor)] = record.inputs.as_slice()
                && let (Dtype::Int32, [length]) = (&tensor.dtype, tensor.dims.as_slice())
            {
                positions.entry(*length).or_default().push(index);
            }
        }
        Self(positions)
    }

    pub(super) fn between(&self, manifest: &Manifest, ordinal: u32) -> Option<Range<usize>> {
        let single = |length: u64| match self.0.get(&length).map(Vec::as_slice) {
            Some([index]) => Some(*index),
            _ => None,
        };
        let from = single(manifest.sentinels.opening(ordinal))?;
        let to = single(manifest.sentinels.closing_length(ordinal))?;
        (from < to).then_some(from + 1..to)
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct CacheFlushes(Option<BTreeSet<(Option<LogicalDeviceId>, Nanos)>>);

impl CacheFlushes {
    pub(super) fn split<'a>(manifest: &Manifest, records: &'a [RawRecord]) -> (Self, Cow<'a, [RawRecord]>) {
        let Some(dims) = manifest.flush_dims() else { return (Self::default(), Cow::Borrowed(records)) };
        let is_flush = |record: &&RawRecord| {
            let [Some(tensor)] = record.inputs.as_slice() else { return false };
            record.kernel.starts_with(&manifest.sentinels.kernel)
                && tensor.dtype == Dtype::Int32
                && tensor.dims == dims
        };
        let (flushes, others): (Vec<&RawRecord>, Vec<&RawRecord>) = records.iter().partition(is_flush);
        let starts = flushes.into_iter().map(|record| (record.device, record.start)).collect();
        (Self(Some(starts)), Cow::Owned(others.into_iter().cloned().collect()))
    }

    /// Returns the number of the first launch without a flush before it; other kernels of the call may be between both.
    pub(super) fn launch_without_flush(&self, launches: &[&RawRecord]) -> Option<usize> {
        let starts = self.0.as_ref()?;
        let mut earlier = Nanos(i64::MIN);
        launches.iter().position(|record| {
            let from = std::mem::replace(&mut earlier, record.start);
            from > record.start
                || starts.range((record.device, from)..(record.device, record.start)).next().is_none()
        })
    }
}
