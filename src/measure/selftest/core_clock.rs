//! Experiment 5: the clock of the cores settles at its setting after an idle time, and durations are steps of the timer.

use std::path::Path;

use serde_json::json;

use super::{
    evidence::SelftestContext,
    finding::{EvidenceError, ExperimentFinding},
    record_loss::mark_length,
};
use crate::{
    base::stats::median_of_sorted,
    kernel::Nanos,
    measure::verify::RawRecord,
    profile::{CoreClock, REACHED},
};

/// Number of small kernels after the idle time, and of those after matrix products.
const LAUNCHES: [u64; 2] = [5_000, 1_000];
/// Length of the vector of a small kernel.
const SMALL_LENGTH: u64 = 65_536;
/// Step of the device's timer in nanoseconds.
const TIMER_STEP: i64 = 20;
const EXPECTED: &str = "the clock reaches 97 % of its setting during 5000 small kernels after 1 s of idle time and keeps it \
     after 100 ms of matrix products; durations are multiples of 20 ns";

/// Runs the experiment.
pub(super) fn run(context: &SelftestContext, folder: &Path) -> Result<ExperimentFinding, EvidenceError> {
    let parameters = json!({ "launches": LAUNCHES, "length": SMALL_LENGTH, "idle": 1.0, "matmul": 0.1 });
    let evidence = context.complete(folder, "clock", parameters)?;
    let clock =
        evidence.profile_folders().first().map(|profile| CoreClock::read(profile)).unwrap_or_default();
    if clock.samples().is_empty() {
        let reason = clock.unreadable().unwrap_or("msprof wrote no `AI Core Freq` events into msprof_*.json");
        return Ok(ExperimentFinding::unknown(EXPECTED, reason));
    }
    let phases = ClockPhases::find(evidence.readable_records()?)
        .ok_or_else(|| EvidenceError::Missing("the marks of the phases are not recorded".to_owned()))?;
    // The device may be set to a clock below that of its chip.
    let set_mhz = clock.set_mhz().unwrap_or_else(|| f64::from(context.profile.clock_mhz));
    let (seen, problems) = phases.compare(&clock, set_mhz);
    Ok(ExperimentFinding::from_problems(EXPECTED, seen, &problems))
}

/// Small kernels after the idle time and after the matrix products.
#[derive(Clone, Debug)]
struct ClockPhases {
    after_idle: Vec<(Nanos, Nanos)>,
    after_matmul: Vec<(Nanos, Nanos)>,
}

impl ClockPhases {
    /// Finds the phases between marks of the lengths 2 and 3, and 4 and 5.
    fn find(records: &[RawRecord]) -> Option<Self> {
        let between = |first: u64, last: u64| {
            let place = |length| records.iter().position(|record| mark_length(record) == Some(length));
            let phase = records.get(place(first)?..place(last)?)?;
            let small = phase.iter().filter(|record| mark_length(record) == Some(SMALL_LENGTH));
            let kernels: Vec<(Nanos, Nanos)> = small.map(|record| (record.start, record.duration)).collect();
            (!kernels.is_empty()).then_some(kernels)
        };
        Some(Self { after_idle: between(2, 3)?, after_matmul: between(4, 5)? })
    }

    /// Returns a description of the clock, and the problems.
    fn compare(&self, clock: &CoreClock, set_mhz: f64) -> (String, Vec<String>) {
        let settled = REACHED * set_mhz;
        let value_at = |at| clock.value_at(at).unwrap_or_default();
        let ends = |kernels: &[(Nanos, Nanos)]| Some((kernels.first()?.0, kernels.last()?.0));
        let mut problems = Vec::new();
        let mut time = String::new();
        if let Some((start, end)) = ends(&self.after_idle) {
            let at_end = value_at(end);
            let settles = clock.samples().iter().find(|sample| sample.at >= start && sample.mhz >= settled);
            match settles {
                _ if value_at(start) >= settled => time = "at once".to_owned(),
                Some(sample) if at_end >= settled => {
                    time = format!("after {:.1} ms", Nanos(sample.at.0 - start.0).micros() / 1e3);
                }
                _ => problems.push(format!(
                    "the clock is {at_end:.0} MHz after {} small kernels, {set_mhz:.0} MHz are set",
                    self.after_idle.len()
                )),
            }
        }
        if let Some((start, end)) = ends(&self.after_matmul) {
            let lowest = clock.lowest_between(start, end).unwrap_or_default();
            if lowest < settled {
                problems.push(format!("the clock falls to {lowest:.0} MHz after matrix products"));
            }
        }
        let kernels = || self.after_idle.iter().chain(&self.after_matmul);
        let odd = kernels().filter(|(_, duration)| duration.0 % TIMER_STEP != 0).count();
        if odd > 0 {
            problems.push(format!("{odd} durations are not multiples of {TIMER_STEP} ns"));
        }
        let seen = format!(
            "{set_mhz:.0} MHz {time}; small kernels take {} us after the idle time, {} us after matrix products",
            median_micros(&self.after_idle),
            median_micros(&self.after_matmul)
        );
        (seen, problems)
    }
}

fn median_micros(kernels: &[(Nanos, Nanos)]) -> String {
    let mut durations: Vec<i64> = kernels.iter().map(|(_, duration)| duration.0).collect();
    durations.sort_unstable();
    median_of_sorted(&durations).map_or_else(|| "no".to_owned(), |median| format!("{:.2}", median / 1e3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::ClockSample;

    const SET_MHZ: f64 = 1_800.0;

    fn phases() -> ClockPhases {
        let kernels = |from: i64| (0..100).map(|n| (Nanos(from + n * 10_000), Nanos(2_020))).collect();
        ClockPhases { after_idle: kernels(1_000_000), after_matmul: kernels(9_000_000) }
    }

    fn compare(phases: &ClockPhases, samples: &[(i64, f64)]) -> (String, Vec<String>) {
        let samples = samples.iter().map(|&(at, mhz)| ClockSample { at: Nanos(at), mhz });
        phases.compare(&CoreClock::new(samples.collect(), Some(SET_MHZ)), SET_MHZ)
    }

    #[test]
    fn clock_that_settles_during_the_small_kernels_passes() {
        let (seen, problems) = compare(&phases(), &[(0, 800.0), (1_500_000, 1_800.0)]);
        assert_eq!(problems, [""; 0]);
        assert!(seen.contains("after 0.5 ms") && seen.contains("2.02 us"), "{seen}");
        let (seen, problems) = compare(&phases(), &[(0, 1_800.0)]);
        assert!(problems.is_empty() && seen.contains("at once"), "{seen}");
    }

    #[test]
    fn clock_that_stays_low_or_falls_fails() {
        let problems = |samples: &[(i64, f64)]| compare(&phases(), samples).1.join("; ");
        let low = problems(&[(0, 800.0), (1_500_000, 1_500.0)]);
        assert!(low.contains("1500 MHz after 100 small kernels"), "{low}");
        let falls = problems(&[(0, 1_800.0), (9_100_000, 1_200.0), (9_200_000, 1_800.0)]);
        assert!(falls.contains("falls to 1200 MHz"), "{falls}");
        let mut odd = phases();
        odd.after_idle[3].1 = Nanos(2_021);
        assert!(compare(&odd, &[(0, 1_800.0)]).1[0].contains("1 durations"));
    }
}
