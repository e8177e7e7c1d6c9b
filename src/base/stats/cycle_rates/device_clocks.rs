//! Devices whose clock deviates from the clock of most devices: a device in a run is compared with the others of the
//! run, and with devices of other runs, by the launches that they have in common.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
};

use super::{COLLECTION_SD, CycleReading, Deficit, MIN_CLOCK_DEFICIT, NEIGHBOUR_ERRORS, combined_deficit};

/// Smallest difference between all readings of two devices by which one has the higher clock. It is below the reported one,
/// because the lowest of one device is compared with the highest of the other.
const MIN_DIFFERENCE: f64 = MIN_CLOCK_DEFICIT / 2.0;
const MAX_OTHERS: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClockStanding {
    /// The clock is as high as most clocks, or lower than most.
    Usual,
    /// Lower than the clock of another device, while no majority shows which one is right.
    Undecided,
    /// Higher than the clock of most devices in other runs, which agree with each other, while no other device of its
    /// run shows whether it is this device or the run that differs.
    Unconfirmed,
    /// Higher than the clock of most devices, also in the same run, and these agree with each other.
    Fast,
}

#[derive(Debug)]
struct DeviceInRun {
    run: usize,
    device: u32,
    /// The lowest and the highest reading of each case, in the order of the cases.
    extremes: Vec<(usize, [Reading; 2])>,
}

#[derive(Clone, Copy, Debug)]
struct Reading {
    reading: CycleReading,
    value: f64,
    error: f64,
}

/// Returns for each reading the standing of its device in its run. `awaited` has devices, each with its run, that have no
/// readings yet.
pub(super) fn judge_devices(readings: &[CycleReading], awaited: &[(usize, u32)]) -> Vec<ClockStanding> {
    let mut grouped: BTreeMap<(usize, u32), BTreeMap<usize, [Reading; 2]>> = BTreeMap::new();
    for reading in readings {
        let one = Reading {
            reading: *reading,
            value: reading.rate.per_microsecond.ln(),
            error: reading.rate.error.hypot(COLLECTION_SD),
        };
        let of_device = grouped.entry((reading.run, reading.device)).or_default();
        let [lowest, highest] = of_device.entry(reading.case).or_insert([one; 2]);
        // Readings are compared by their bounds, so that an inexact reading is no extreme.
        if one.value + 2.0 * one.error < lowest.value + 2.0 * lowest.error {
            *lowest = one;
        }
        if one.value - 2.0 * one.error > highest.value - 2.0 * highest.error {
            *highest = one;
        }
    }
    let of_device = |((run, device), extremes): ((usize, u32), BTreeMap<usize, [Reading; 2]>)| DeviceInRun {
        run,
        device,
        extremes: extremes.into_iter().collect(),
    };
    let devices: Vec<DeviceInRun> = grouped.into_iter().map(of_device).collect();
    let is_known = |one: (usize, u32)| devices.iter().any(|known| (known.run, known.device) == one);
    let awaited: Vec<(usize, u32)> = awaited.iter().copied().filter(|one| !is_known(*one)).collect();
    let standings: HashMap<(usize, u32), ClockStanding> = devices
        .iter()
        .enumerate()
        .map(|(place, DeviceInRun { run, device, .. })| {
            let of_run = awaited.iter().filter(|(of, _)| of == run).map(|(_, device)| *device);
            ((*run, *device), standing(&devices, place, of_run))
        })
        .collect();
    readings.iter().map(|reading| standings[&(reading.run, reading.device)]).collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OtherClock {
    Lower,
    Equal,
    Higher,
}

/// Compares the clock of `other` with the clock of `one`; `None` if too little is common to both.
fn compare_devices(one: &DeviceInRun, other: &DeviceInRun) -> Option<OtherClock> {
    match (has_higher_readings(one, other), has_higher_readings(other, one)) {
        (Some(true), _) => Some(OtherClock::Lower),
        (_, Some(true)) => Some(OtherClock::Higher),
        (Some(false), Some(false)) => Some(OtherClock::Equal),
        _ => None,
    }
}

/// Returns true if all readings of a device are higher than the readings of another device; `None` if too little is
/// common to both.
fn has_higher_readings(one: &DeviceInRun, other: &DeviceInRun) -> Option<bool> {
    let mut rest = other.extremes.as_slice();
    let mut differences = Vec::new();
    for (case, [lowest, _]) in &one.extremes {
        let skipped = rest.iter().position(|(other, _)| other >= case).unwrap_or(rest.len());
        rest = &rest[skipped..];
        let Some((_, [_, highest])) = rest.first().filter(|(other, _)| other == case) else { continue };
        if lowest.reading.is_of_other_work(&highest.reading) {
            continue;
        }
        differences.push(Deficit {
            value: lowest.value - highest.value,
            error: lowest.error.hypot(highest.error),
            reference: None,
            cases: 1,
        });
    }
    let Deficit { value, error, .. } = combined_deficit(differences)?;
    let is_exact = NEIGHBOUR_ERRORS * error <= MIN_CLOCK_DEFICIT;
    let is_higher = value >= MIN_DIFFERENCE && value > NEIGHBOUR_ERRORS * error;
    (is_exact || is_higher).then_some(is_higher)
}

/// Clocks of another device, or of the judged device in other runs, compared with the clock of the judged device.
#[derive(Clone, Debug, Default)]
struct ComparedDevice {
    /// In the run of the judged one, with its place.
    in_run: Option<(OtherClock, usize)>,
    in_other_runs: Vec<(OtherClock, usize)>,
}

impl ComparedDevice {
    /// Returns the clock of the device in most other runs, else that in the same run, with the place of one that has it.
    fn clock(&self) -> Option<(OtherClock, usize)> {
        let most = [OtherClock::Lower, OtherClock::Equal, OtherClock::Higher].into_iter().find_map(|clock| {
            let has_it = |(other, _): &&(OtherClock, usize)| *other == clock;
            let count = self.in_other_runs.iter().filter(has_it).count();
            let is_most = 2 * count > self.in_other_runs.len();
            self.in_other_runs.iter().find(has_it).copied().filter(|_| is_most)
        });
        most.or(self.in_run)
    }

    fn all(&self) -> impl Iterator<Item = OtherClock> {
        self.in_run.iter().chain(&self.in_other_runs).map(|(clock, _)| *clock)
    }
}

/// Returns the standing of a device beside all others. Each counts once, so that a device with many runs is no
/// majority. The judged one counts as well if it had another clock in most other runs. `awaited` are the devices of the
/// run without readings. These, and those with too few common launches, may have either of two clocks: until they are
/// known, more than half of all devices must agree without them.
fn standing(devices: &[DeviceInRun], place: usize, awaited: impl Iterator<Item = u32>) -> ClockStanding {
    let judged = &devices[place];
    let run = devices.partition_point(|other| other.run < judged.run)
        ..devices.partition_point(|other| other.run <= judged.run);
    let of_run = || run.clone().filter(|&other| other != place);
    let mut compared: BTreeMap<u32, ComparedDevice> = BTreeMap::new();
    for other in of_run().chain(nearest_of_other_runs(&run, place, devices.len())) {
        let Some(clock) = compare_devices(judged, &devices[other]) else { continue };
        let device = compared.entry(devices[other].device).or_default();
        if run.contains(&other) {
            device.in_run = Some((clock, other));
        } else {
            device.in_other_runs.push((clock, other));
        }
    }
    let counts = |device: u32, clock: OtherClock| device != judged.device || clock != OtherClock::Equal;
    let clocks: Vec<(OtherClock, usize)> = compared
        .iter()
        .filter_map(|(device, compared)| compared.clock().filter(|(clock, _)| counts(*device, *clock)))
        .collect();
    let others = of_run().map(|other| devices[other].device).chain(awaited);
    let unknown = others.filter(|device| !compared.contains_key(device)).count();
    let is_majority = |count: usize| count > 1 && 2 * count > clocks.len() + 1 + unknown;
    let lower: Vec<usize> =
        clocks.iter().filter(|(clock, _)| *clock == OtherClock::Lower).map(|(_, other)| *other).collect();
    // Half of all devices that agree with each other are enough where others are lower still.
    let agreeing = most_that_agree(devices, &lower);
    if is_majority(lower.len()) && agreeing > 1 && 2 * agreeing > clocks.len() {
        let clock_in_run = |other: usize| {
            let in_run = compared.get(&devices[other].device).and_then(|compared| compared.in_run);
            in_run.map(|(clock, _)| clock).or_else(|| clock_by_lower_devices(devices, other, &lower))
        };
        let in_run: Vec<OtherClock> = of_run().filter_map(clock_in_run).collect();
        let lower_in_run = in_run.iter().filter(|clock| **clock == OtherClock::Lower).count();
        if in_run.is_empty() {
            return ClockStanding::Unconfirmed;
        }
        // A run does not deviate if most of its devices have a higher clock than the devices of other runs.
        if 2 * lower_in_run > in_run.len() {
            return ClockStanding::Fast;
        }
    }
    let higher = clocks.iter().filter(|(clock, _)| *clock == OtherClock::Higher).count();
    let is_lower = compared.values().flat_map(ComparedDevice::all).any(|clock| clock == OtherClock::Higher);
    if is_lower && !is_majority(higher) { ClockStanding::Undecided } else { ClockStanding::Usual }
}

/// Returns the places of other runs that are nearest to one in a run, of `count` places in the order of the runs.
fn nearest_of_other_runs(run: &Range<usize>, place: usize, count: usize) -> Vec<usize> {
    let before = run.start.saturating_sub(MAX_OTHERS)..run.start;
    let after = run.end..(run.end + MAX_OTHERS).min(count);
    let mut nearest: Vec<usize> = before.chain(after).collect();
    nearest.sort_by_key(|other| other.abs_diff(place));
    nearest.truncate(MAX_OTHERS);
    nearest
}

/// Returns the clock of another device of the run that has no common launches with the judged one, by devices that are
/// lower than the judged one: if it is higher than most of them as well, it is taken as equal. `None` if it has none in
/// common with them.
fn clock_by_lower_devices(devices: &[DeviceInRun], other: usize, lower: &[usize]) -> Option<OtherClock> {
    let clocks = lower.iter().filter_map(|&place| compare_devices(&devices[other], &devices[place]));
    let clocks: Vec<OtherClock> = clocks.collect();
    let below = clocks.iter().filter(|clock| **clock == OtherClock::Lower).count();
    let clock = if 2 * below > clocks.len() { OtherClock::Equal } else { OtherClock::Lower };
    (!clocks.is_empty()).then_some(clock)
}

/// Returns the number of devices of which none has a higher clock than a certain one of them, or a lower one.
fn most_that_agree(devices: &[DeviceInRun], places: &[usize]) -> usize {
    let agrees =
        |one: usize, other: usize| compare_devices(&devices[one], &devices[other]) == Some(OtherClock::Equal);
    let count = |&one: &usize| places.iter().filter(|&&other| one == other || agrees(one, other)).count();
    places.iter().map(count).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{
        super::{CycleRate, find_clock_deficits},
        *,
    };

    /// Readings of six kernels on devices with these clocks, each with its run.
    fn readings(clocks: &[(usize, u32, f64)]) -> Vec<CycleReading> {
        let of_device = |(collection, &(run, device, clock)): (usize, &(usize, u32, f64))| {
            (0..6).map(move |case| CycleReading {
                case,
                collection,
                run,
                device,
                rate: CycleRate { per_microsecond: clock, error: 0.001 },
                cycles: None,
                is_control: false,
            })
        };
        clocks.iter().enumerate().flat_map(of_device).collect()
    }

    /// Sign of the deficit of each collection: 0 without a deficit, 1.5 if it is undecided.
    fn judged(clocks: &[(usize, u32, f64)]) -> Vec<f64> {
        let found = find_clock_deficits(&readings(clocks), &[]);
        let sign = |of_collection: &[Option<super::super::ClockDeficit>]| {
            of_collection[0]
                .map_or(0.0, |found| found.deficit.signum() + if found.is_undecided { 0.5 } else { 0.0 })
        };
        found.chunks(6).map(sign).collect()
    }

    #[test]
    fn single_device_deviates_in_either_direction() {
        let of_three = |clock: f64| judged(&[(0, 0, clock), (0, 1, 1_650.0), (0, 2, 1_650.0)]);
        assert_eq!(of_three(1_833.0), [-1.0, 0.0, 0.0]);
        assert_eq!(of_three(1_690.0), [-1.0, 0.0, 0.0]);
        assert_eq!(of_three(1_670.0), [0.0; 3]);
        assert_eq!(of_three(1_610.0), [1.0, 0.0, 0.0]);
        assert_eq!(of_three(1_200.0), [1.0, 0.0, 0.0]);
    }

    #[test]
    fn slow_and_fast_device_beside_two_that_agree_both_deviate() {
        let of_four =
            |slow: f64, fast: f64| judged(&[(0, 0, slow), (0, 1, fast), (0, 2, 1_650.0), (0, 3, 1_650.0)]);
        assert_eq!(of_four(1_586.0, 1_718.0), [1.0, -1.0, 0.0, 0.0]);
        assert_eq!(of_four(1_500.0, 1_833.0), [1.0, -1.0, 0.0, 0.0]);
        // Two of five are no more than two others.
        let of_five =
            judged(&[(0, 0, 1_586.0), (0, 1, 1_586.0), (0, 2, 1_718.0), (0, 3, 1_650.0), (0, 4, 1_650.0)]);
        assert!(of_five[2] >= 0.0, "{of_five:?}");
    }

    #[test]
    fn tie_of_devices_is_undecided_and_earlier_runs_decide_it() {
        assert_eq!(judged(&[(0, 0, 1_833.0), (0, 1, 1_650.0)]), [0.0, 1.5]);
        let of_four = [(0, 0, 1_833.0), (0, 1, 1_650.0), (0, 2, 1_650.0), (0, 3, 1_833.0)];
        assert_eq!(judged(&of_four), [0.0, 1.5, 1.5, 0.0]);
        let before = [(0, 0, 1_650.0), (0, 1, 1_650.0)];
        assert_eq!(
            judged(&[&before[..], &[(1, 0, 1_833.0), (1, 1, 1_650.0)]].concat()),
            [0.0, 0.0, -1.0, 0.0]
        );
        // A device that is fast in all runs is no majority against two others.
        let of_run = |run: usize| [(run, 0, 1_833.0), (run, 1, 1_650.0), (run, 2, 1_650.0)];
        assert_eq!(judged(&[of_run(0), of_run(1), of_run(2)].concat()), [-1.0, 0.0, 0.0].repeat(3));
        assert_eq!(
            judged(&[&before[..], &[(1, 0, 1_500.0), (1, 1, 1_650.0)]].concat()),
            [0.0, 0.0, 1.0, 0.0]
        );
    }

    /// Three of four devices are throttled alike: without earlier runs they are the majority.
    #[test]
    fn earlier_runs_show_that_most_devices_are_slow() {
        let now = [(1, 0, 1_650.0), (1, 1, 1_500.0), (1, 2, 1_500.0), (1, 3, 1_500.0)];
        assert_eq!(judged(&now), [-1.0, 0.0, 0.0, 0.0]);
        let before = [0, 1, 2, 3].map(|device| (0, device, 1_650.0));
        assert_eq!(judged(&[before, now].concat())[4..], [0.0, 1.0, 1.0, 1.0]);
    }

    /// All devices were slow in two runs: the third one does not deviate.
    #[test]
    fn run_with_a_higher_clock_on_all_devices_is_a_reference() {
        let of_run = |run: usize, clock: f64| [0, 1, 2].map(|device| (run, device, clock));
        let found = judged(&[of_run(0, 1_500.0), of_run(1, 1_500.0), of_run(2, 1_650.0)].concat());
        assert!(found[..6].iter().all(|sign| *sign >= 1.0), "{found:?}");
        assert_eq!(found[6..], [0.0; 3]);
        // This also holds for one device after many slow runs on it.
        let of_one: Vec<(usize, u32, f64)> =
            (0..9).map(|run| (run, 0, if run == 8 { 1_650.0 } else { 1_500.0 })).collect();
        assert_eq!(judged(&of_one)[8], 0.0);
    }

    /// The first device of a run with a higher clock than before: another one of the run shows which was wrong.
    #[test]
    fn device_alone_in_its_run_is_neither_withdrawn_nor_a_reference() {
        let before = [0, 1, 2].map(|device| (0, device, 1_500.0));
        let with = |now: &[(usize, u32, f64)]| judged(&[&before[..], now].concat());
        assert_eq!(with(&[(1, 0, 1_650.0)]), [0.0; 4]);
        assert_eq!(with(&[(1, 3, 1_650.0)]), [0.0; 4]);
        let healthy = with(&[(1, 0, 1_650.0), (1, 1, 1_650.0)]);
        assert!(healthy[..3].iter().all(|sign| *sign >= 1.0), "{healthy:?}");
        assert_eq!(healthy[3..], [0.0; 2]);
        assert_eq!(with(&[(1, 0, 1_650.0), (1, 1, 1_500.0)]), [0.0, 0.0, 0.0, -1.0, 0.0]);
        // The collections of the device are compared with each other.
        assert_eq!(
            with(&[(1, 0, 1_650.0), (1, 0, 1_600.0), (1, 0, 1_650.0)]),
            [0.0, 0.0, 0.0, 0.0, 1.0, 0.0]
        );
        // A run between others that agree with each other.
        let after = [0, 1, 2].map(|device| (2, device, 1_500.0));
        assert_eq!(with(&[&[(1, 0, 1_650.0)], &after[..]].concat()), [0.0; 7]);
    }

    /// Two devices of a run without common launches are compared with the same devices of an earlier run.
    #[test]
    fn devices_of_a_run_are_compared_by_those_of_other_runs() {
        let of_run = |now: [f64; 2]| {
            let before = readings(&[0, 1, 2].map(|device| (0, device, 1_500.0)));
            let mut all: Vec<CycleReading> =
                before.iter().flat_map(|&one| [one, CycleReading { case: one.case + 6, ..one }]).collect();
            for (device, clock) in now.into_iter().enumerate() {
                all.extend(readings(&[(1, device as u32, clock)]).into_iter().map(|one| CycleReading {
                    case: one.case + 6 * device,
                    collection: 3 + device,
                    ..one
                }));
            }
            let found = find_clock_deficits(&all, &[]);
            let signs = found.iter().map(|found| found.map_or(0.0, |found| found.deficit.signum()));
            signs.collect::<Vec<_>>()
        };
        let healthy = of_run([1_650.0; 2]);
        assert_eq!((&healthy[..36], &healthy[36..]), (&[1.0; 36][..], &[0.0; 12][..]));
        let fast = of_run([1_650.0, 1_500.0]);
        assert_eq!(
            (&fast[..36], &fast[36..42], &fast[42..]),
            (&[0.0; 36][..], &[-1.0; 6][..], &[0.0; 6][..])
        );
    }

    /// Two slow devices of four are no majority against the first of the others that ends, nor against one whose cases the fourth
    /// has not had.
    #[test]
    fn majority_counts_devices_whose_clock_is_not_known_yet() {
        let two_of_three = readings(&[(0, 0, 1_500.0), (0, 1, 1_500.0), (0, 2, 1_650.0)]);
        let is_fast = |readings: &[CycleReading], awaited: &[(usize, u32)]| {
            judge_devices(readings, awaited).contains(&ClockStanding::Fast)
        };
        assert!(is_fast(&two_of_three, &[]));
        assert!(is_fast(&two_of_three, &[(0, 1), (1, 3)]), "known, and of another run");
        assert!(!is_fast(&two_of_three, &[(0, 3)]));
        let others = readings(&[(0, 3, 1_650.0)]).into_iter();
        let others = others.map(|one| CycleReading { case: one.case + 6, collection: 3, ..one });
        let with_others: Vec<CycleReading> = two_of_three.iter().copied().chain(others).collect();
        assert!(!is_fast(&with_others, &[]));
    }

    /// A device whose clock fell is no fast one, although the others had a low clock all the time.
    #[test]
    fn device_whose_clock_fell_shows_the_clock() {
        let clocks = [(0, 0, 1_650.0), (0, 0, 1_200.0), (0, 1, 1_200.0), (0, 2, 1_200.0)];
        let found = judged(&clocks);
        assert_eq!(found[0], 0.0);
        assert!(found[1..].iter().all(|sign| *sign >= 1.0), "{found:?}");
    }
}
