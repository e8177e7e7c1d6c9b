//! Records of the control kernels of a collection, and the change of the device between its ends.

use std::collections::BTreeMap;

use super::{
    LaunchJournal, RawRecord,
    ranks::{RankOutput, split_by_rank},
    record_rules::first_overlap,
    recorded_clock::{cycle_rate, excess_core_time},
    sentinels::sentinel_range,
};
use crate::{
    base::stats::{ControlChange, LEAST_CLOCK_DEFICIT},
    kernel::{
        CaseOutcome, Cause, CollectionEnd, ControlKernel, ControlReading, Reason, Verdict,
        cause::ControlClock, render::Manifest,
    },
};

/// Returns the readings of the control kernels by device, end and kernel. A kernel whose launches are not all recorded, or
/// not as one kernel with its shapes, has no reading: cases are assessed without it.
pub(crate) fn control_readings(
    manifest: &Manifest,
    journals: &[LaunchJournal],
    records: &[RawRecord],
) -> Vec<ControlReading> {
    let Some(controls) = &manifest.controls else { return Vec::new() };
    let mut readings = Vec::new();
    for rank in split_by_rank(manifest, journals, records) {
        for &end in CollectionEnd::ALL {
            let places = 0..controls.kernels.len();
            readings.extend(places.filter_map(|place| control_reading(manifest, place, end, &rank)));
        }
    }
    readings
}

/// Returns the records of the launches of a control kernel; `None` if they are not all recorded, or not as one kernel with its
/// shapes.
fn control_launches<'a>(
    manifest: &Manifest,
    place: usize,
    end: CollectionEnd,
    rank: &'a RankOutput<'_>,
) -> Option<&'a [RawRecord]> {
    let controls = manifest.controls.as_ref()?;
    let call = controls.kernels.get(place)?;
    let between = sentinel_range(manifest, &rank.records, manifest.control_ordinal(end, place))?;
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
    (is_complete && !is_repeated && records.iter().all(is_own)).then_some(records)
}

fn control_reading(
    manifest: &Manifest,
    place: usize,
    end: CollectionEnd,
    rank: &RankOutput<'_>,
) -> Option<ControlReading> {
    let records = control_launches(manifest, place, end, rank)?;
    let controls = manifest.controls.as_ref()?;
    let (call, first) = (controls.kernels.get(place)?, records.first()?);
    let read: Vec<&RawRecord> = records.iter().skip(controls.warm_up as usize).collect();
    Some(ControlReading {
        control: call.control,
        end,
        device: rank.physical_id,
        kernel: first.kernel.clone(),
        durations: read.iter().map(|record| record.duration.0).collect(),
        cycle_rate: cycle_rate(&read),
    })
}

/// Evidence on all cases of a collection from the launches beside theirs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ControlFindings {
    change: Option<DeviceChange>,
    /// Contradiction of the durations of the control kernels by their starts, or by the time of the cores.
    contradiction: Option<Cause>,
    /// Remarks on such launches that failed.
    remarks: Vec<Cause>,
    /// Remarks on single cases, by their ordinals.
    of_cases: BTreeMap<u32, Cause>,
}

impl ControlFindings {
    /// Reads the evidence of a collection from its records, and from its journals, `journal` of all processes together.
    pub(super) fn of_collection(
        manifest: &Manifest,
        journals: &[LaunchJournal],
        journal: &LaunchJournal,
        records: &[RawRecord],
    ) -> Self {
        let change = device_change(&control_readings(manifest, journals, records));
        let of_case = |ordinal: &u32| Some((*ordinal, journal.unsettled_remark(*ordinal)?));
        let of_cases = journal.lines.keys().filter_map(of_case).collect();
        let contradiction = control_contradiction(manifest, journals, records);
        Self { change, contradiction, remarks: journal.remarks(), of_cases }
    }

    /// Returns the outcome of a measured case: `implausible` if the control kernels contradict the durations, which those of short
    /// cases do not show; a change of the device is its cause if its verdict is the worse one, else a
    /// remark.
    pub(super) fn judge_outcome(&self, ordinal: u32, outcome: CaseOutcome) -> CaseOutcome {
        let remarks = self.remarks.iter().chain(self.of_cases.get(&ordinal)).cloned();
        if let Some(contradiction) = &self.contradiction {
            return CaseOutcome::with_remarks(Verdict::Implausible, contradiction.clone(), remarks);
        }
        let outcome = match &self.change {
            Some(DeviceChange { verdict, cause }) if *verdict > outcome.verdict => {
                CaseOutcome::with_remarks(*verdict, cause.clone(), outcome.reason.remarks)
            }
            Some(change) => outcome.with_remark(change.cause.clone()),
            None => outcome,
        };
        remarks.fold(outcome, CaseOutcome::with_remark)
    }
}

/// Returns how the durations of the control kernels contradict other columns of the table, whatever the case.
fn control_contradiction(
    manifest: &Manifest,
    journals: &[LaunchJournal],
    records: &[RawRecord],
) -> Option<Cause> {
    let controls = manifest.controls.as_ref()?;
    let places: Vec<usize> = (0..controls.kernels.len()).collect();
    split_by_rank(manifest, journals, records).iter().find_map(|rank| {
        let of_end = |&end| places.iter().map(move |&place| (end, place));
        CollectionEnd::ALL.iter().flat_map(of_end).find_map(|(end, place)| {
            let launches: Vec<&RawRecord> = control_launches(manifest, place, end, rank)?.iter().collect();
            let control = controls.kernels[place].control;
            control_overlap(&launches, control).or_else(|| control_core_time(&launches, control, rank))
        })
    })
}

/// Returns how a control kernel lasted beyond the start of its next launch. They follow each other closely, so that the durations
/// are in a larger unit than the starts.
fn control_overlap(launches: &[&RawRecord], control: ControlKernel) -> Option<Cause> {
    Some(Cause::ControlOverlap { control: control.to_string(), overlap: first_overlap(launches)? })
}

/// Returns how the cores worked longer than a control kernel took. They work during most of a long one, so that the durations are
/// in a smaller unit, or the clock is above its rating, also where short cases do not show it.
fn control_core_time(
    launches: &[&RawRecord],
    control: ControlKernel,
    rank: &RankOutput<'_>,
) -> Option<Cause> {
    let ratio = excess_core_time(launches, rank.rated_clock)?;
    Some(Cause::ControlCoreTime { control: control.to_string(), ratio })
}

/// Returns the cause or remark of a collection that states a change of the device.
pub(super) fn control_change(reason: &Reason) -> Option<&Cause> {
    reason.all().find(|finding| matches!(finding, Cause::ControlChange { .. }))
}

/// Change of a device between the start and the end of a collection.
#[derive(Clone, Debug, PartialEq, Eq)]
struct DeviceChange {
    /// `throttled` if the cycles per time fell as well, else `noisy`.
    verdict: Verdict,
    cause: Cause,
}

/// Returns the greatest change of a control kernel between the ends of a collection, if it is significant.
fn device_change(readings: &[ControlReading]) -> Option<DeviceChange> {
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
    let is_clock = fell >= LEAST_CLOCK_DEFICIT && of_shortest >= change.log_change / 2.0;
    let clock = match (is_clock, fell >= LEAST_CLOCK_DEFICIT) {
        (true, _) => ControlClock::Fell,
        (false, true) => ControlClock::FellInPart,
        (false, false) => ControlClock::Unchanged,
    };
    let cause = Cause::ControlChange {
        control: begin.control.to_string(),
        device: begin.device,
        percent: (change.log_change.exp_m1() * 100.0).into(),
        end_us: (end.median()? / 1e3).into(),
        begin_us: (begin.median()? / 1e3).into(),
        clock,
    };
    Some(DeviceChange { verdict: if is_clock { Verdict::Throttled } else { Verdict::Noisy }, cause })
}

/// Returns the change of a control kernel by a percentage.
#[cfg(test)]
pub(super) fn control_change_of(percent: f64) -> Cause {
    Cause::ControlChange {
        control: "copy".to_owned(),
        device: 1,
        percent: percent.into(),
        end_us: 10.4.into(),
        begin_us: 10.0.into(),
        clock: ControlClock::Unchanged,
    }
}
