//! Clock of the cores, from the cycles of kernels: a case needs as many cycles at a lower clock, in a longer time. Cycles per
//! time depend on the kernel, so that a case is compared with itself in other collections, and a collection with the others
//! by all of its cases.

use std::{cmp::Ordering, collections::BTreeMap};

mod device_clocks;

use super::median_of_sorted;
use device_clocks::{ClockStanding, judge_devices};

/// Smallest relative difference of cycles per time that is reported.
pub(crate) const MIN_CLOCK_DEFICIT: f64 = 0.02;
/// Deficit of a case in standard errors from which it is not chance.
const CASE_ERRORS: f64 = 5.0;
/// Deficit of neighbouring cases in standard errors from which it is not chance.
const NEIGHBOUR_ERRORS: f64 = 4.0;
/// Assumed relative standard deviation between collections at equal clocks.
const COLLECTION_SD: f64 = 0.003;
/// Assumed relative standard deviation of single launches: a constant part, and one of the timer and of the start of the
/// kernel, in nanoseconds. Recorded profiles have 0.5 % above 50 us and 3 to 10 % below 5 us.
const LAUNCH_SD: f64 = 0.004;
const LAUNCH_SD_NS: f64 = 200.0;
/// Launches as which the assumed deviation counts beside the observed one.
const PRIOR_LAUNCHES: f64 = 4.0;
/// Logarithm of the ratio of durations by which launches at a lower clock may be shorter than those at a higher one: their own
/// differences between collections.
const MAX_SHORTER: f64 = 0.05;
const NEIGHBOURS: usize = 4;
const MIN_NEIGHBOURS: usize = 3;
/// Passes in which levels of slow collections are corrected before other collections are compared with them.
const PASSES: usize = 4;

/// Median of the cycles per time of a case's launches in one collection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CycleRate {
    /// Cycles per block and microsecond: the clock in MHz, times the share of the duration in which the cores work.
    pub per_microsecond: f64,
    /// Relative standard error.
    pub error: f64,
}

impl CycleRate {
    /// Computes the median from pairs of cycles of all blocks and duration in nanoseconds; `None` without valid launches.
    pub fn from_launches(launches: &[(f64, i64)], blocks: u32) -> Option<Self> {
        let valid =
            launches.iter().filter(|(cycles, nanos)| cycles.is_finite() && *cycles > 0.0 && *nanos > 0);
        let mut logarithms: Vec<f64> = valid
            .clone()
            .map(|&(cycles, nanos)| (cycles * 1e3 / (nanos as f64 * f64::from(blocks.max(1)))).ln())
            .collect();
        let median = median_of_floats(&mut logarithms)?;
        let mut deviations: Vec<f64> = logarithms.iter().map(|value| (value - median).abs()).collect();
        let observed = 1.4826 * median_of_floats(&mut deviations)?;
        let mut durations: Vec<i64> = valid.map(|(_, nanos)| *nanos).collect();
        durations.sort_unstable();
        let assumed = LAUNCH_SD + LAUNCH_SD_NS / median_of_sorted(&durations)?;
        let count = logarithms.len() as f64;
        let variance =
            (count * observed.powi(2) + PRIOR_LAUNCHES * assumed.powi(2)) / (count + PRIOR_LAUNCHES);
        Some(Self { per_microsecond: median.exp(), error: 1.2533 * (variance / count).sqrt() })
    }
}

pub(crate) fn median_of_floats(values: &mut [f64]) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    Some(if values.len().is_multiple_of(2) { f64::midpoint(values[middle - 1], upper) } else { upper })
}

pub(crate) fn medians_by_key<K: Ord>(values: impl IntoIterator<Item = (K, f64)>) -> BTreeMap<K, f64> {
    let mut by_key: BTreeMap<K, Vec<f64>> = BTreeMap::new();
    for (key, value) in values {
        by_key.entry(key).or_default().push(value);
    }
    let median = |(key, mut values): (K, Vec<f64>)| Some((key, median_of_floats(&mut values)?));
    by_key.into_iter().filter_map(median).collect()
}

/// Cycles per time of a case in a collection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CycleReading {
    pub case: usize,
    pub collection: usize,
    pub run: usize,
    /// Device as the host numbers it.
    pub device: u32,
    pub rate: CycleRate,
    /// Cycles of a launch, in a unit that is the same for all readings of the case; `None` if they are not known.
    pub cycles: Option<f64>,
    /// True for a control kernel, which every collection has at both ends.
    pub is_control: bool,
}

impl CycleReading {
    /// Returns true if the difference to another reading of the case is not one of clocks: with a lower clock, launches would
    /// be shorter. Kernels that need more cycles, such as for another placement of memory, work for a larger part of
    /// their duration.
    fn is_of_other_work(&self, other: &Self) -> bool {
        let log_nanos = |reading: &Self| Some((reading.cycles? / reading.rate.per_microsecond).ln());
        let Some((own, others)) = log_nanos(self).zip(log_nanos(other)) else { return false };
        let is_lower = self.rate.per_microsecond < other.rate.per_microsecond;
        let shorter = if is_lower { others - own } else { own - others };
        shorter > MAX_SHORTER
    }
}

/// Clock of a reading that is lower than the clock of other readings, or higher than the clock of most devices.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClockDeficit {
    /// Relative difference of the clocks: up to 1 for a lower one, below 0 for a higher one.
    pub deficit: f64,
    /// Index of the reading of the same case with which it was compared; `None` if the deficit was computed from the
    /// neighbours.
    pub reference: Option<usize>,
    /// Number of cases whose deficits were combined.
    pub cases: usize,
    /// True if the device has a lower clock than another one, and no majority of devices shows which one is right.
    pub is_undecided: bool,
}

#[derive(Clone, Copy, Debug)]
struct Deficit {
    value: f64,
    error: f64,
    reference: Option<usize>,
    cases: usize,
}

impl Deficit {
    fn is_significant(&self, errors: f64) -> bool {
        self.value >= MIN_CLOCK_DEFICIT && self.value > errors * self.error
    }
}

/// Returns for each reading how much lower the clock was than elsewhere; `None` if it was not, or if nothing shows it.
/// Readings of a collection are in the order of their launches. A case whose clock cannot be compared, or not exactly enough,
/// is judged by its neighbours in the same collection. A device with a higher clock than most devices is no reference of
/// others, and has deficits below 0 if another device of its run confirms it. `awaited` has devices, each with its run, whose
/// first readings are not known yet: they may contradict a majority of the others.
pub fn find_clock_deficits(readings: &[CycleReading], awaited: &[(usize, u32)]) -> Vec<Option<ClockDeficit>> {
    let standings = judge_devices(readings, awaited);
    let by_case = group_by(readings, |reading| reading.case);
    let by_collection = group_by(readings, |reading| reading.collection);
    let mut of_neighbours: Vec<Option<Deficit>> = vec![None; readings.len()];
    let mut own = Vec::new();
    for _ in 0..PASSES {
        own = own_deficits(readings, &standings, &by_case, &of_neighbours);
        of_neighbours = neighbour_deficits(&by_collection, &own);
        add_control_deficits(readings, &by_collection, &own, &mut of_neighbours);
    }
    let judged = own.iter().zip(&of_neighbours).zip(&standings).map(|((own, neighbours), standing)| {
        // A device with a higher clock is judged in the same way as a device with a lower clock.
        let sign = if *standing == ClockStanding::Fast { -1.0 } else { 1.0 };
        let signed = |found: Deficit| Deficit { value: sign * found.value, ..found };
        let (own, neighbours) = (own.map(signed), neighbours.map(signed));
        let own_deficit = own.filter(|own| own.is_significant(CASE_ERRORS));
        let is_refuted = own.is_some_and(|own| own.value + NEIGHBOUR_ERRORS * own.error < MIN_CLOCK_DEFICIT);
        let neighbours = neighbours.filter(|found| !is_refuted && found.is_significant(NEIGHBOUR_ERRORS));
        own_deficit.or(neighbours).map(|Deficit { value, reference, cases, .. }| ClockDeficit {
            deficit: -(-sign * value).exp_m1(),
            reference,
            cases,
            is_undecided: *standing == ClockStanding::Undecided,
        })
    });
    judged.collect()
}

fn group_by(readings: &[CycleReading], group: impl Fn(&CycleReading) -> usize) -> Vec<Vec<usize>> {
    let groups = readings.iter().map(|reading| group(reading) + 1).max().unwrap_or_default();
    let mut grouped = vec![Vec::new(); groups];
    readings.iter().enumerate().for_each(|(index, reading)| grouped[group(reading)].push(index));
    grouped
}

/// Returns the deficit of each reading compared with the highest clock of the same case in other collections, but not
/// on devices with a higher clock than most; one for which this is not confirmed is compared with itself. The level of
/// a collection with a low clock is corrected by the deficit of its cases, but not that of a case with a lower clock
/// elsewhere: where the clock fell within the collection, it may be one before the fall.
fn own_deficits(
    readings: &[CycleReading],
    standings: &[ClockStanding],
    by_case: &[Vec<usize>],
    of_neighbours: &[Option<Deficit>],
) -> Vec<Option<Deficit>> {
    let levels: Vec<ClockLevel> = readings
        .iter()
        .zip(of_neighbours)
        .map(|(reading, neighbours)| {
            let CycleRate { per_microsecond, error } = reading.rate;
            let is_higher =
                || by_case[reading.case].iter().any(|&other| is_reading_above(reading, &readings[other]));
            let corrected = neighbours.filter(|found| found.is_significant(NEIGHBOUR_ERRORS) && !is_higher());
            let (by, its_error) = corrected.map_or((0.0, 0.0), |found| (found.value, found.error));
            ClockLevel {
                value: per_microsecond.ln() + by,
                error: error.hypot(COLLECTION_SD).hypot(its_error),
                is_corrected: corrected.is_some(),
            }
        })
        .collect();
    let mut deficits = vec![None; readings.len()];
    for of_case in by_case {
        let is_unconfirmed = |index: &usize| standings[*index] == ClockStanding::Unconfirmed;
        let (mut unconfirmed, compared): (Vec<usize>, Vec<usize>) =
            of_case.iter().partition(|index| is_unconfirmed(index));
        let references: Vec<usize> =
            compared.iter().copied().filter(|&index| standings[index] != ClockStanding::Fast).collect();
        compare_with_highest(&compared, &references, readings, &levels, &mut deficits);
        let device = |index: usize| (readings[index].run, readings[index].device);
        unconfirmed.sort_by_key(|&index| device(index));
        for of_device in unconfirmed.chunk_by(|&one, &other| device(one) == device(other)) {
            compare_with_highest(of_device, of_device, readings, &levels, &mut deficits);
        }
    }
    deficits
}

/// Sets the deficits of readings of a case beside the highest of its `references`, which is that of all but the
/// readings of its own collection and those that differ by more than their clocks.
fn compare_with_highest(
    compared: &[usize],
    references: &[usize],
    readings: &[CycleReading],
    levels: &[ClockLevel],
    deficits: &mut [Option<Deficit>],
) {
    let mut references = references.to_vec();
    references.sort_by(|&one, &other| compare_levels(&levels[one], &levels[other]));
    for &index in compared {
        let reading = &readings[index];
        let reference = references.iter().rev().copied().find(|&reference| {
            let other = &readings[reference];
            other.collection != reading.collection && !reading.is_of_other_work(other)
        });
        let Some(reference) = reference else { continue };
        let highest = levels[reference];
        let CycleRate { per_microsecond, error } = reading.rate;
        deficits[index] = Some(Deficit {
            value: highest.value - per_microsecond.ln(),
            error: highest.error.hypot(error).hypot(COLLECTION_SD),
            reference: Some(reference),
            cases: 1,
        });
    }
}

/// Returns true if the clock of a reading was higher than the clock of another reading by more than chance explains.
fn is_reading_above(one: &CycleReading, other: &CycleReading) -> bool {
    let difference = (one.rate.per_microsecond / other.rate.per_microsecond).ln();
    let error = one.rate.error.hypot(other.rate.error).hypot(COLLECTION_SD);
    !one.is_of_other_work(other)
        && Deficit { value: difference, error, reference: None, cases: 1 }.is_significant(CASE_ERRORS)
}

#[derive(Clone, Copy, Debug)]
struct ClockLevel {
    value: f64,
    error: f64,
    is_corrected: bool,
}

/// Compares levels by their lower bounds. A corrected level counts only where all are corrected: the highest of several
/// corrected ones exceeds the true clock, and would raise the others with each pass.
fn compare_levels(one: &ClockLevel, other: &ClockLevel) -> Ordering {
    let rank = |level: &ClockLevel| (!level.is_corrected, level.value - 2.0 * level.error);
    let ((one, one_level), (other, other_level)) = (rank(one), rank(other));
    one.cmp(&other).then(one_level.total_cmp(&other_level))
}

fn neighbour_deficits(by_collection: &[Vec<usize>], own: &[Option<Deficit>]) -> Vec<Option<Deficit>> {
    let mut combined = vec![None; own.len()];
    for indices in by_collection {
        let compared: Vec<(usize, Deficit)> = indices
            .iter()
            .enumerate()
            .filter_map(|(position, index)| Some((position, own[*index]?)))
            .collect();
        for (position, index) in indices.iter().enumerate() {
            let middle = compared.partition_point(|(other, _)| *other < position);
            let after =
                middle + usize::from(compared.get(middle).is_some_and(|(other, _)| *other == position));
            let range = middle.saturating_sub(NEIGHBOURS)..(after + NEIGHBOURS).min(compared.len());
            combined[*index] = combined_deficit(compared[range].iter().map(|(_, found)| *found).collect());
        }
    }
    combined
}

/// Sets the deficit of the control kernels of a collection where its cases show none: cases that were measured only while the
/// clock was low agree with each other.
fn add_control_deficits(
    readings: &[CycleReading],
    by_collection: &[Vec<usize>],
    own: &[Option<Deficit>],
    of_neighbours: &mut [Option<Deficit>],
) {
    for indices in by_collection {
        let controls = indices.iter().filter(|&&index| readings[index].is_control);
        let found = combined_deficit(controls.filter_map(|&index| own[index]).collect());
        let Some(of_controls) = found.filter(|found| found.is_significant(NEIGHBOUR_ERRORS)) else {
            continue;
        };
        for &index in indices {
            if of_neighbours[index].is_none_or(|found| !found.is_significant(NEIGHBOUR_ERRORS)) {
                of_neighbours[index] = Some(of_controls);
            }
        }
    }
}

/// Returns the weighted median of deficits; `None` if they are too few.
fn combined_deficit(mut sorted: Vec<Deficit>) -> Option<Deficit> {
    if sorted.len() < MIN_NEIGHBOURS {
        return None;
    }
    let weight = |found: &Deficit| found.error.powi(-2);
    sorted.sort_unstable_by(|one, other| one.value.total_cmp(&other.value));
    let total: f64 = sorted.iter().map(weight).sum();
    let mut sum = 0.0;
    let median = sorted.iter().find(|found| {
        sum += weight(found);
        sum >= total / 2.0
    })?;
    let error = (1.2533 / total.sqrt()).max(COLLECTION_SD);
    Some(Deficit { value: median.value, error, reference: None, cases: sorted.len() })
}

#[cfg(test)]
mod tests;
