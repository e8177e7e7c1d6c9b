//! Experiment 5: the clock of the cores settles at its rating after an idle time, and durations are steps of the timer.
//!
//! msprof writes the clock as a counter `AI Core Freq` into `msprof_*.json`, an array of events in the Chrome trace
//! format: `{"name": "AI Core Freq", "ph": "C", "ts": "1764246877073569.640", "args": {"MHz": 1850}}`. A value holds until
//! the next event.

use std::{fs, path::Path};

use serde_json::{Value, json};

use super::{
    evidence::{CollectedEvidence, ScriptRequest, SelftestContext},
    finding::{EvidenceError, ExperimentFinding},
    profiled_chip::ProfiledChip,
    record_loss::mark_length,
};
use crate::{domain::Nanos, stats::median_of_sorted, verify::RawRecord};

/// Number of small kernels after the idle time, and of those after matrix products.
const LAUNCHES: [u64; 2] = [5_000, 1_000];
/// Length of the vector of a small kernel.
const SMALL_LENGTH: u64 = 65_536;
/// Share of the rated clock from which it counts as settled.
const SETTLED: f64 = 0.97;
/// Step of the device's timer in nanoseconds.
const TIMER_STEP: i64 = 20;
const EXPECTED: &str = "the clock reaches 97 % of its rating during 5000 small kernels after 1 s of idle time and keeps it \
     after 100 ms of matrix products; durations are multiples of 20 ns";

/// Runs the experiment.
pub(super) fn run(context: &SelftestContext, folder: &Path) -> Result<ExperimentFinding, EvidenceError> {
    let devices = [context.first_device()];
    let parameters = json!({ "launches": LAUNCHES, "length": SMALL_LENGTH, "idle": 1.0, "matmul": 0.1 });
    let request = ScriptRequest { function: "clock", parameters, devices: &devices };
    let evidence = context.collect(folder, &request)?;
    evidence.require_completed()?;
    let track = read_clock_track(&evidence)?;
    if track.is_empty() {
        let reason = "msprof wrote no `AI Core Freq` events into msprof_*.json";
        return Ok(ExperimentFinding::unknown(EXPECTED, reason));
    }
    let phases = ClockPhases::find(evidence.readable_records()?)
        .ok_or_else(|| EvidenceError::Missing("the marks of the phases are not recorded".to_owned()))?;
    // The device may be set to a clock below that of its chip.
    let rated = ProfiledChip::read(&evidence).map_or(context.profile.clock_mhz, |chip| chip.clock_mhz);
    let (seen, problems) = phases.compare(&track, rated);
    Ok(ExperimentFinding::from_problems(EXPECTED, seen, &problems))
}

/// Value of the clock from a time on.
#[derive(Clone, Copy, Debug, PartialEq)]
struct ClockSample {
    at: Nanos,
    mhz: f64,
}

/// Reads the clock of all `msprof_*.json` of a collection, sorted by time.
fn read_clock_track(evidence: &CollectedEvidence) -> Result<Vec<ClockSample>, EvidenceError> {
    let mut samples = Vec::new();
    for profile in evidence.profile_folders() {
        let entries =
            fs::read_dir(profile.join("mindstudio_profiler_output")).into_iter().flatten().flatten();
        for path in entries.map(|entry| entry.path()) {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.starts_with("msprof_") && name.ends_with(".json") {
                let text = fs::read_to_string(&path).map_err(EvidenceError::io(&path))?;
                samples.extend(parse_clock_events(&text).map_err(|problem| {
                    EvidenceError::Missing(format!("`{}` cannot be read: {problem}", path.display()))
                })?);
            }
        }
    }
    samples.sort_by_key(|sample| sample.at);
    Ok(samples)
}

fn parse_clock_events(text: &str) -> Result<Vec<ClockSample>, serde_json::Error> {
    let events: Vec<Value> = serde_json::from_str(text)?;
    let sample = |event: &Value| {
        let is_clock = event.get("name")? == "AI Core Freq" && event.get("ph")? == "C";
        let time = event.get("ts")?;
        let time = time.as_str().map_or_else(|| time.to_string(), str::to_owned);
        let at: Nanos = time.parse().ok()?;
        is_clock.then_some(ClockSample { at, mhz: event.get("args")?.get("MHz")?.as_f64()? })
    };
    Ok(events.iter().filter_map(sample).collect())
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
    fn compare(&self, track: &[ClockSample], rated_mhz: u32) -> (String, Vec<String>) {
        let settled = SETTLED * f64::from(rated_mhz);
        let ends = |kernels: &[(Nanos, Nanos)]| Some((kernels.first()?.0, kernels.last()?.0));
        let mut problems = Vec::new();
        let mut time = String::new();
        if let Some((start, end)) = ends(&self.after_idle) {
            let at_end = clock_at(track, end);
            let settles = track.iter().find(|sample| sample.at >= start && sample.mhz >= settled);
            match settles {
                _ if clock_at(track, start) >= settled => time = "at once".to_owned(),
                Some(sample) if at_end >= settled => {
                    time = format!("after {:.1} ms", Nanos(sample.at.0 - start.0).micros() / 1e3);
                }
                _ => problems.push(format!(
                    "the clock is {at_end:.0} MHz after {} small kernels, {rated_mhz} MHz are rated",
                    self.after_idle.len()
                )),
            }
        }
        if let Some((start, end)) = ends(&self.after_matmul) {
            let inside = track.iter().filter(|sample| sample.at > start && sample.at <= end);
            let lowest = inside.map(|sample| sample.mhz).fold(clock_at(track, start), f64::min);
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
            "{rated_mhz} MHz {time}; small kernels take {} us after the idle time, {} us after matrix products",
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

/// Returns the clock at a time: the last sample before it, or the first.
fn clock_at(track: &[ClockSample], at: Nanos) -> f64 {
    let before = track.iter().take_while(|sample| sample.at <= at).last().or_else(|| track.first());
    before.map_or(0.0, |sample| sample.mhz)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATED: u32 = 1_800;

    fn phases() -> ClockPhases {
        let kernels = |from: i64| (0..100).map(|n| (Nanos(from + n * 10_000), Nanos(2_020))).collect();
        ClockPhases { after_idle: kernels(1_000_000), after_matmul: kernels(9_000_000) }
    }

    fn sample(at: i64, mhz: f64) -> ClockSample {
        ClockSample { at: Nanos(at), mhz }
    }

    #[test]
    fn clock_that_settles_during_the_small_kernels_passes() {
        let (seen, problems) = phases().compare(&[sample(0, 800.0), sample(1_500_000, 1_800.0)], RATED);
        assert_eq!(problems, [""; 0]);
        assert!(seen.contains("after 0.5 ms") && seen.contains("2.02 us"), "{seen}");
        let (seen, problems) = phases().compare(&[sample(0, 1_800.0)], RATED);
        assert!(problems.is_empty() && seen.contains("at once"), "{seen}");
    }

    #[test]
    fn clock_that_stays_low_or_falls_fails() {
        let problems = |track: &[ClockSample]| phases().compare(track, RATED).1.join("; ");
        let low = problems(&[sample(0, 800.0), sample(1_500_000, 1_500.0)]);
        assert!(low.contains("1500 MHz after 100 small kernels"), "{low}");
        let falls = problems(&[sample(0, 1_800.0), sample(9_100_000, 1_200.0), sample(9_200_000, 1_800.0)]);
        assert!(falls.contains("falls to 1200 MHz"), "{falls}");
        let mut odd = phases();
        odd.after_idle[3].1 = Nanos(2_021);
        assert!(odd.compare(&[sample(0, 1_800.0)], RATED).1[0].contains("1 durations"));
    }

    #[test]
    fn clock_events_are_parsed_with_times_as_text_or_number() {
        let text = r#"[{"name":"process_name","ph":"M","args":{"name":"AI Core Freq"}},
            {"name":"AI Core Freq","ph":"C","pid":9,"tid":0,"ts":"1764246877073569.640","args":{"MHz":1850}},
            {"name":"AI Core Freq","ph":"C","ts":12.5,"args":{"MHz":800}}]"#;
        let samples = parse_clock_events(text).expect("JSON");
        assert_eq!(samples, [sample(1_764_246_877_073_569_640, 1_850.0), sample(12_500, 800.0)]);
        assert!(parse_clock_events("[{").is_err());
    }
}
