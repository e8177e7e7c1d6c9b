//! The processes of a collection: one, or one per device of a gang.
//!
//! Each has its journal and the records of its device. A gang's kernel is done when its slowest rank is: a sample
//! is the longest of the ranks' durations of one launch.

use std::borrow::Cow;

use super::{LaunchJournal, RawRecord};
use crate::{
    domain::{CaseOutcome, Verdict},
    render::Manifest,
};

/// What one process left.
pub(super) struct RankOutput<'a> {
    pub(super) device: u32,
    pub(super) journal: &'a LaunchJournal,
    /// In the order of their start.
    pub(super) records: Cow<'a, [RawRecord]>,
}

/// A case's launches by one process, which account for themselves.
pub(super) struct RankLaunches<'a> {
    pub(super) launched: u32,
    /// Everything between the case's sentinels.
    pub(super) records: &'a [RawRecord],
    /// Those of the case's kernel, one per launch.
    pub(super) own: Vec<&'a RawRecord>,
}

/// Gives each process the records of its device.
pub(super) fn ranks<'a>(
    manifest: &Manifest,
    journals: &'a [LaunchJournal],
    records: &'a [RawRecord],
) -> Vec<RankOutput<'a>> {
    let devices = manifest.devices();
    let of = |device: u32| {
        if devices.len() < 2 {
            return Cow::Borrowed(records);
        }
        let of_device = |wanted: &dyn Fn(u32) -> bool| -> Vec<RawRecord> {
            records.iter().filter(|record| record.device.is_some_and(wanted)).cloned().collect()
        };
        let own = of_device(&|other| other == device);
        // A process that has left nothing where it should may have left it where nobody should.
        Cow::Owned(if own.is_empty() { of_device(&|other| !devices.contains(&other)) } else { own })
    };
    let each = devices.iter().zip(journals);
    each.map(|(&device, journal)| RankOutput { device, journal, records: of(device) }).collect()
}

/// Which finding explains the others, the first of these: what a process met keeps the others from their work.
const BLAME_ORDER: [Verdict; 8] = [
    Verdict::Oom,
    Verdict::InvalidArgs,
    Verdict::Crashed,
    Verdict::Hung,
    Verdict::WrongKernel,
    Verdict::Implausible,
    Verdict::LostRecords,
    Verdict::NotRun,
];

/// The evidence of all processes of the case at a place, where all have some and launched as often.
pub(super) fn merge_ranks<'a>(
    ordinal: u32,
    ranks: &[RankOutput<'_>],
    evidence: Vec<Result<RankLaunches<'a>, CaseOutcome>>,
) -> Result<Vec<RankLaunches<'a>>, CaseOutcome> {
    let findings = evidence.iter().zip(ranks).enumerate();
    let findings: Vec<RankFailure<'_>> = findings
        .filter_map(|(number, (evidence, rank))| {
            let is_silent = !rank.journal.lines.contains_key(&ordinal);
            Some(RankFailure { number, device: rank.device, is_silent, finding: evidence.as_ref().err()? })
        })
        .collect();
    if let Some(finding) = explanation(&findings, ranks.len()) {
        return Err(finding);
    }
    let evidence: Vec<RankLaunches<'a>> = evidence.into_iter().flatten().collect();
    let counts: Vec<u32> = evidence.iter().map(|evidence| evidence.launched).collect();
    if counts.windows(2).any(|pair| pair[0] != pair[1]) {
        let counts: Vec<String> = counts.iter().map(ToString::to_string).collect();
        let reason = format!("the ranks launched it {} times", counts.join(", "));
        return Err(CaseOutcome::new(Verdict::LostRecords, reason));
    }
    Ok(evidence)
}

/// What one process met.
struct RankFailure<'a> {
    number: usize,
    device: u32,
    /// Whether it was ended before it could say so.
    is_silent: bool,
    finding: &'a CaseOutcome,
}

/// The finding that explains the others, with the rank that met it.
fn explanation(findings: &[RankFailure<'_>], ranks: usize) -> Option<CaseOutcome> {
    let weight =
        |met: &&RankFailure<'_>| BLAME_ORDER.iter().position(|verdict| *verdict == met.finding.verdict);
    // Where a process was ended in the middle, errors of others may follow from that; but for want of memory.
    let is_cut = findings.iter().any(|met| met.is_silent);
    let counts = |met: &&RankFailure<'_>| met.is_silent || !is_cut || met.finding.verdict == Verdict::Oom;
    let verdict = findings.iter().filter(counts).min_by_key(weight)?.finding.verdict;
    // One that could still say what it met says more than those that torchrun ended because of it.
    let found = findings.iter().filter(|met| met.finding.verdict == verdict);
    let RankFailure { number, device, finding, .. } = found.min_by_key(|met| met.is_silent)?;
    // What all of them met is none's own, and what did not run is none's fault.
    let by_all = findings.iter().filter(|met| met.finding == *finding).count() == ranks;
    if by_all || verdict == Verdict::NotRun {
        return Some((*finding).clone());
    }
    Some(CaseOutcome::new(verdict, format!("rank {number} (device {device}): {}", finding.reason)))
}

/// The slowest rank's record of each launch; the first rank's of equals.
pub(super) fn slowest<'a>(evidence: &[RankLaunches<'a>]) -> Vec<&'a RawRecord> {
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
