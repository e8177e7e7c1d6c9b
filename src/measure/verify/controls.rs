//! Records of the control kernels of a collection, and the change of the device between its ends.

use std::collections::BTreeMap;

use super::{
    JournalLine, LaunchJournal, RawRecord,
    ranks::{RankOutput, Sentinels, split_by_rank},
    record_rules::{cycle_rate, excess_core_time, first_overlap},
};
use crate::{
    base::stats::{ControlChange, MIN_CLOCK_DEFICIT},
    kernel::{
        CaseOutcome, Cause, CollectionEnd, ControlKernel, ControlReading, Reason, Verdict,
        cause::{ControlClock, ControlDifference},
        render::Manifest,
    },
};

struct ControlLaunches<'a> {
    control: ControlKernel,
    end: CollectionEnd,
    records: Vec<&'a RawRecord>,
}

/// Returns the launches of the control kernels. Those of a kernel that are not all recorded as one kernel with its shapes are left out.
fn control_launches<'a>(manifest: &Manifest, rank: &'a RankOutput<'_>) -> Vec<ControlLaunches<'a>> {
    let Some(controls) = &manifest.controls else { return Vec::new() };
    let sentinels = Sentinels::find(manifest, &rank.records);
    let places = |end| controls.kernels.iter().enumerate().map(move |(place, call)| (end, place, call));
    let launches = [CollectionEnd::Begin, CollectionEnd::End].into_iter().flat_map(places).filter_map(
        |(end, place, call)| {
            let between = sentinels.between(manifest, manifest.control_ordinal(end, place))?;
            let records = &rank.records[between];
            let first = records.first()?;
            // A copy reads its second tensor only.
            let is_own = |record: &RawRecord| {
                let mut inputs = record.inputs.iter().flatten();
                record.kernel == first.kernel
                    && record.device.is_none_or(|device| device == rank.device)
                    && inputs.any(|tensor| call.tensors.contains(&tensor.dims))
                    && record.duration.0 > 0
            };
            let is_complete = records.len() == (controls.warm_up + controls.measured) as usize;
            // One launch recorded twice, and another one lost.
            let is_repeated = records.windows(2).any(|pair| pair[0].start == pair[1].start);
            let records = (is_complete && !is_repeated && records.iter().all(is_own)).then_some(records)?;
            Some(ControlLaunches { control: call.control, end, records: records.iter().collect() })
        },
    );
    launches.collect()
}

pub(crate) fn control_readings(
    manifest: &Manifest,
    journals: &[LaunchJournal],
    records: &[RawRecord],
) -> Vec<ControlReading> {
    let Some(controls) = &manifest.controls else { return Vec::new() };
    let mut readings = Vec::new();
    for rank in split_by_rank(manifest, journals, records) {
        for ControlLaunches { control, end, records } in control_launches(manifest, &rank) {
            let read = records.get(controls.warm_up as usize..).unwrap_or_default();
            readings.push(ControlReading {
                control,
                end,
                device: rank.physical_id,
                kernel: records.first().map_or_else(String::new, |first| first.kernel.clone()),
                durations: read.iter().map(|record| record.duration.0).collect(),
                cycle_rate: cycle_rate(read),
            });
        }
    }
    readings
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ControlFindings {
    change: Option<(Verdict, Cause)>,
    contradiction: Option<Cause>,
    remarks: Vec<Cause>,
    of_cases: BTreeMap<u32, Cause>,
}

impl ControlFindings {
    pub(super) fn of_collection(
        manifest: &Manifest,
        journals: &[LaunchJournal],
        journal: &LaunchJournal,
        records: &[RawRecord],
    ) -> Self {
        let change = device_change(&control_readings(manifest, journals, records));
        let of_case = |(ordinal, line): (&u32, &JournalLine)| {
            Some((*ordinal, Cause::ClockNotRisen { percent: (100.0 * line.unsettled?).into() }))
        };
        let of_cases = journal.lines.iter().filter_map(of_case).collect();
        // Control kernels follow each other closely, so that one that lasts beyond the start of the next shows durations in a larger
        // unit than the starts. The cores work during most of a long one: where they worked longer than it took, the durations are
        // in a smaller unit, or the clock is above its rating, also where short cases do not show it.
        let contradict =
            |rank: &RankOutput<'_>, ControlLaunches { control, records, .. }: ControlLaunches<'_>| {
                let control = control.to_string();
                match first_overlap(&records) {
                    Some(overlap) => Some(Cause::ControlOverlap { control, overlap }),
                    None => excess_core_time(&records, rank.highest_clock)
                        .map(|ratio| Cause::ControlCoreTime { control, ratio }),
                }
            };
        let contradiction = split_by_rank(manifest, journals, records).iter().find_map(|rank| {
            control_launches(manifest, rank).into_iter().find_map(|launches| contradict(rank, launches))
        });
        Self { change, contradiction, remarks: journal.remarks(), of_cases }
    }

    pub(super) fn judge_outcome(&self, ordinal: u32, outcome: CaseOutcome) -> CaseOutcome {
        let remarks = self.remarks.iter().chain(self.of_cases.get(&ordinal)).cloned();
        if let Some(contradiction) = &self.contradiction {
            return CaseOutcome::with_remarks(Verdict::Implausible, contradiction.clone(), remarks);
        }
        let outcome = match &self.change {
            Some((verdict, cause)) if *verdict > outcome.verdict => {
                CaseOutcome::with_remarks(*verdict, cause.clone(), outcome.reason.remarks)
            }
            Some((_, cause)) => outcome.with_remark(cause.clone()),
            None => outcome,
        };
        remarks.fold(outcome, CaseOutcome::with_remark)
    }
}

pub(super) fn control_change(reason: &Reason) -> Option<&Cause> {
    reason.all().find(|finding| matches!(finding, Cause::ControlChange(_)))
}

fn device_change(readings: &[ControlReading]) -> Option<(Verdict, Cause)> {
    let pairs = readings.iter().filter(|reading| reading.end == CollectionEnd::Begin).filter_map(|begin| {
        let is_same = |other: &&ControlReading| {
            other.end == CollectionEnd::End
                && (other.control, other.device) == (begin.control, begin.device)
                && other.kernel == begin.kernel
        };
        Some((begin, readings.iter().find(is_same)?))
    });
    let changes = pairs.filter_map(|(begin, end)| {
        let change = ControlChange::between(&begin.durations, &end.durations)?;
        change.is_significant().then_some((begin, end, change))
    });
    let (begin, end, change) = changes.max_by(|(.., one), (.., other)| {
        let size = |change: &ControlChange| change.log_change.abs();
        size(one).total_cmp(&size(other))
    })?;
    let fell = begin.cycle_rate.zip(end.cycle_rate).map_or(0.0, |(first, last)| {
        let fell = (first.per_microsecond / last.per_microsecond).ln();
        if fell > 5.0 * first.error.hypot(last.error) { fell } else { 0.0 }
    });
    // At a lower clock the fastest launches take longer as well; those that wait for another process are a part of all.
    let shortest = |reading: &ControlReading| reading.durations.iter().min().map(|&shortest| shortest as f64);
    let of_shortest = shortest(end).zip(shortest(begin)).map_or(0.0, |(end, begin)| (end / begin).ln());
    let clock = match fell >= MIN_CLOCK_DEFICIT {
        true if of_shortest >= change.log_change / 2.0 => ControlClock::Fell,
        true => ControlClock::FellInPart,
        false => ControlClock::Unchanged,
    };
    let cause = Cause::ControlChange(ControlDifference {
        control: begin.control.to_string(),
        device: begin.device,
        percent: (change.log_change.exp_m1() * 100.0).into(),
        end_us: (end.median()? / 1e3).into(),
        begin_us: (begin.median()? / 1e3).into(),
        clock,
    });
    let verdict = if clock == ControlClock::Fell { Verdict::Throttled } else { Verdict::Noisy };
    Some((verdict, cause))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns the change of a control kernel by a percentage.
    pub(in super::super) fn control_change_of(percent: f64) -> Cause {
        Cause::ControlChange(ControlDifference {
            control: "copy".to_owned(),
            device: 1,
            percent: percent.into(),
            end_us: 10.4.into(),
            begin_us: 10.0.into(),
            clock: ControlClock::Unchanged,
        })
    }
}
