//! Experiment 5: the clock of the cores settles at its setting after an idle time, and durations are steps of the timer.

use std::path::Path;

use serde_json::json;

use super::{
    evidence::SelftestContext,
    experiment::{EvidenceError, Experiment, Finding},
    kernel_steps::median_of,
    marked_launches::mark_length,
};
use crate::{
    kernel::Nanos,
    measure::verify::RawRecord,
    profile::{CoreClock, CoreClocks, REACHED},
};

pub(super) const EXPERIMENT: Experiment = Experiment {
    number: 5,
    name: "core-clock",
    assumption: "the clock of the cores settles at its rating after idle times, and durations are steps of 20 ns",
    expected: "the clock reaches 97 % of its setting during 5000 small kernels after 1 s of idle time and keeps it after \
               100 ms of matrix products; durations are multiples of 20 ns",
    fix: "see temperature and power in `npu-smi info`; durations at another clock are not those of the chip",
    run,
};

/// Number of small kernels after the idle time, and of those after matrix products.
const LAUNCHES: [u64; 2] = [5_000, 1_000];
const SMALL_LENGTH: u64 = 65_536;
const TIMER_STEP: i64 = 20;

fn run(context: &SelftestContext, folder: &Path) -> Result<Finding, EvidenceError> {
    let parameters = json!({ "launches": LAUNCHES, "length": SMALL_LENGTH, "idle": 1.0, "matmul": 0.1 });
    let evidence = context.script(folder, "clock", parameters).complete()?;
    let clocks =
        evidence.profile_folders().first().map(|profile| CoreClocks::read(profile)).unwrap_or_default();
    let clock = clocks.of_device(None).cloned().unwrap_or_default();
    if clock.samples.is_empty() {
        let reason =
            clock.unreadable.as_deref().unwrap_or("msprof wrote no `AI Core Freq` events into msprof_*.json");
        return Err(EvidenceError::missing(reason));
    }
    let phases = ClockPhases::find(evidence.readable_records()?)
        .ok_or_else(|| EvidenceError::missing("the marks of the phases are not recorded"))?;
    // The device may be set to a clock below the clock of its chip.
    let set_mhz = clock.set_mhz.unwrap_or_else(|| f64::from(context.host.profile.clock_mhz));
    // The exporter writes the set clock where it has no data of the clock (Ascend/msprof 9ba1ac7,
    // analysis/csrc/domain/data_process/system/aicore_freq_processor.cpp).
    if clock.samples.iter().all(|sample| sample.mhz == set_mhz) {
        let reason = "`AI Core Freq` is the set clock throughout, as the exporter also writes it without data of the clock";
        return Err(EvidenceError::missing(reason));
    }
    Ok(phases.compare(&clock, set_mhz))
}

/// Starts and durations of the small kernels after the idle time and after the matrix products; neither is empty.
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

    fn compare(&self, clock: &CoreClock, set_mhz: f64) -> Finding {
        let settled = REACHED * set_mhz;
        let value_at = |at| clock.value_at(at).unwrap_or_default();
        let ends = |kernels: &[(Nanos, Nanos)]| (kernels[0].0, kernels[kernels.len() - 1].0);
        let mut problems = Vec::new();
        let mut time = String::new();
        let (start, end) = ends(&self.after_idle);
        let at_end = value_at(end);
        match clock.samples.iter().find(|sample| sample.at >= start && sample.mhz >= settled) {
            _ if value_at(start) >= settled => time = "at once".to_owned(),
            Some(sample) if at_end >= settled => {
                time = format!("after {:.1} ms", Nanos(sample.at.0 - start.0).micros() / 1e3);
            }
            _ => problems.push(format!(
                "the clock is {at_end:.0} MHz after {} small kernels, {set_mhz:.0} MHz are set",
                self.after_idle.len()
            )),
        }
        let (start, end) = ends(&self.after_matmul);
        let lowest = clock.lowest_between(start, end).unwrap_or_default();
        if lowest < settled {
            problems.push(format!("the clock falls to {lowest:.0} MHz after matrix products"));
        }
        let durations = |kernels: &[(Nanos, Nanos)]| -> Vec<i64> {
            kernels.iter().map(|(_, duration)| duration.0).collect()
        };
        let [idle, matmul] = [&self.after_idle, &self.after_matmul].map(|kernels| durations(kernels));
        let odd = idle.iter().chain(&matmul).filter(|duration| *duration % TIMER_STEP != 0).count();
        if odd > 0 {
            problems.push(format!("{odd} durations are not multiples of {TIMER_STEP} ns"));
        }
        let [idle, matmul] = [idle, matmul].map(|durations| median_of(&durations) / 1e3);
        let seen = format!(
            "{set_mhz:.0} MHz {time}; small kernels take {idle:.2} us after the idle time, {matmul:.2} us after matrix products",
        );
        Finding::new(seen, problems)
    }
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

    fn compare(phases: &ClockPhases, samples: &[(i64, f64)]) -> Finding {
        let samples = samples.iter().map(|&(at, mhz)| ClockSample { at: Nanos(at), mhz });
        phases.compare(&CoreClock::new(samples.collect(), Some(SET_MHZ)), SET_MHZ)
    }

    #[test]
    fn clock_that_settles_during_the_small_kernels_passes() {
        let Finding { seen, problems, .. } = compare(&phases(), &[(0, 800.0), (1_500_000, 1_800.0)]);
        assert_eq!(problems, [""; 0]);
        assert!(seen.contains("after 0.5 ms") && seen.contains("2.02 us"), "{seen}");
        let Finding { seen, problems, .. } = compare(&phases(), &[(0, 1_800.0)]);
        assert!(problems.is_empty() && seen.contains("at once"), "{seen}");
    }

    #[test]
    fn clock_that_stays_low_or_falls_fails() {
        let problems = |samples: &[(i64, f64)]| compare(&phases(), samples).problems.join("; ");
        let low = problems(&[(0, 800.0), (1_500_000, 1_500.0)]);
        assert!(low.contains("1500 MHz after 100 small kernels"), "{low}");
        let falls = problems(&[(0, 1_800.0), (9_100_000, 1_200.0), (9_200_000, 1_800.0)]);
        assert!(falls.contains("falls to 1200 MHz"), "{falls}");
        let mut odd = phases();
        odd.after_idle[3].1 = Nanos(2_021);
        assert!(compare(&odd, &[(0, 1_800.0)]).problems[0].contains("1 durations"));
    }
}
