//! Clock of the cores during a profile.
//!
//! msprof writes it as a counter into `msprof_*.json`, an array of events in the Chrome trace format: `{"name": "AI Core
//! Freq", "ph": "C", "ts": "1764246877073569.640", "args": {"MHz": 1850}}`. Times are in microseconds; a value holds until
//! the next event. An Ascend 950 has two counters, `AI Core Freq Die 0` and `AI Core Freq Die 1` (Ascend/msprof,
//! analysis/csrc/application/timeline/low_power_assembler.cpp, commit 9ba1ac7); a kernel uses the cores of both, so that the
//! lower one counts. The clock for which the device is set is in `info.json`.

use super::{device_evidence::stated_facts, prelude::*, trace_events::for_each_trace_event};

pub(crate) const REACHED: f64 = 0.97;
const TRACK: &str = "AI Core Freq";
const DIES: [&str; 3] = ["", " Die 0", " Die 1"];
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ClockSample {
    pub(crate) at: Nanos,
    pub(crate) mhz: f64,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ClockArguments {
    #[serde(rename = "MHz")]
    mhz: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LowClock {
    pub mhz: f64,
    pub set_mhz: f64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct CoreClock {
    /// Sorted by time; empty if the profile has no clock.
    pub(crate) samples: Vec<ClockSample>,
    pub(crate) set_mhz: Option<f64>,
    pub(crate) unreadable: Option<String>,
}

impl CoreClock {
    /// Reads the clock of a `PROF_*` folder. What cannot be read is unknown.
    pub(crate) fn read(profile: &Path) -> Self {
        let (mut samples, mut unreadable): (Vec<(usize, ClockSample)>, _) = (Vec::new(), None);
        for path in named_entries(&profile.join("mindstudio_profiler_output"), "msprof_", ".json") {
            let mut found = Vec::new();
            let read = for_each_trace_event(&path, &mut |event| {
                let name = event.name.strip_prefix(TRACK).filter(|_| event.ph == "C");
                if let Some(die) = name.and_then(|rest| DIES.iter().position(|die| *die == rest)) {
                    let mhz = event.arguments::<ClockArguments>().mhz;
                    found.extend(event.start().zip(mhz).map(|(at, mhz)| (die, ClockSample { at, mhz })));
                }
                Ok(())
            });
            match read {
                Ok(()) => samples.append(&mut found),
                Err(problem) => {
                    let name = path.file_name().unwrap_or_default().display();
                    unreadable = Some(format!("`{name}` cannot be read: {problem}"));
                }
            }
        }
        let set_mhz = stated_facts(profile).and_then(|facts| facts.clock_mhz).map(f64::from);
        Self { unreadable, ..Self::new(lowest_of_dies(samples), set_mhz) }
    }

    pub(crate) fn new(mut samples: Vec<ClockSample>, set_mhz: Option<f64>) -> Self {
        samples.sort_by_key(|sample| sample.at);
        Self { samples, set_mhz, unreadable: None }
    }

    /// Returns the clock at a time: the value of the last sample before this time, else of the first sample.
    pub(crate) fn value_at(&self, at: Nanos) -> Option<f64> {
        let after = self.samples.partition_point(|sample| sample.at <= at);
        let sample = self.samples.get(after.saturating_sub(1))?;
        Some(sample.mhz)
    }

    pub(crate) fn lowest_between(&self, start: Nanos, end: Nanos) -> Option<f64> {
        let from = self.samples.partition_point(|sample| sample.at <= start);
        let inside = self.samples.get(from..)?.iter().take_while(|sample| sample.at <= end);
        Some(inside.map(|sample| sample.mhz).fold(self.value_at(start)?, f64::min))
    }

    /// Returns the clock of a launch if it was below the set one. While the clock rises for the first time, after an idle
    /// time, a launch is not reported: warm-ups precede the measured ones.
    pub(crate) fn low_clock(&self, start: Nanos, duration: Nanos) -> Option<LowClock> {
        let set_mhz = self.set_mhz?;
        let reached = |mhz: f64| mhz >= REACHED * set_mhz;
        let mhz = self.lowest_between(start, Nanos(start.0.saturating_add(duration.0)))?;
        if reached(mhz) {
            return None;
        }
        let first = self.samples.iter().find(|sample| reached(sample.mhz));
        let is_rising = first.is_some_and(|first| first.at > start);
        (!is_rising).then_some(LowClock { mhz, set_mhz })
    }
}

/// Joins the samples of the dies: each has the lowest clock of all dies at its time.
fn lowest_of_dies(mut samples: Vec<(usize, ClockSample)>) -> Vec<ClockSample> {
    samples.sort_by_key(|(_, sample)| sample.at);
    let mut clocks = [f64::INFINITY; DIES.len()];
    let joined = samples.into_iter().map(|(die, ClockSample { at, mhz })| {
        clocks[die] = mhz;
        ClockSample { at, mhz: clocks.into_iter().fold(f64::INFINITY, f64::min) }
    });
    joined.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(samples: &[(i64, f64)]) -> CoreClock {
        let samples = samples.iter().map(|&(at, mhz)| ClockSample { at: Nanos(at), mhz });
        CoreClock::new(samples.collect(), Some(1_800.0))
    }

    #[test]
    fn launches_at_a_lower_clock_are_found() {
        let clock = clock(&[(0, 800.0), (1_000, 1_800.0), (5_000, 1_200.0), (9_000, 1_790.0)]);
        let low = |start, duration| clock.low_clock(Nanos(start), Nanos(duration)).map(|low| low.mhz);
        assert_eq!(low(0, 2_000), None, "the clock rises");
        assert_eq!(low(1_500, 3_000), None);
        assert_eq!(low(4_000, 2_000), Some(1_200.0), "it falls during the launch");
        assert_eq!(low(6_000, 10), Some(1_200.0));
        assert_eq!(low(9_500, 10), None, "within 3 % of the set clock");
    }

    #[test]
    fn a_clock_that_is_never_reached_is_low_from_the_first_launch_on() {
        let low = clock(&[(0, 800.0), (1_000, 1_200.0)]).low_clock(Nanos(10), Nanos(10));
        assert_eq!(low, Some(LowClock { mhz: 800.0, set_mhz: 1_800.0 }));
    }

    #[test]
    fn unknown_clocks_are_not_low() {
        assert_eq!(clock(&[]).low_clock(Nanos(10), Nanos(10)), None);
        let unset = CoreClock { set_mhz: None, ..clock(&[(0, 1.0)]) };
        assert_eq!(unset.low_clock(Nanos(10), Nanos(10)), None);
    }

    #[test]
    fn events_of_the_clock_are_read_among_others() {
        let text = r#"[{"name":"process_name","pid":7,"ph":"M","args":{"name":"AI Core Freq"}},
            {"name":"AI Core Freq","pid":7,"ts":"1764246877073569.640","ph":"C","args":{"MHz":1850}},
            {"name":"MatMulV2","pid":3,"ts":3.5,"dur":2,"ph":"X","args":"none"},{"pid":7},
            {"name":"AI Core Freq","pid":7,"ts":2,"ph":"C","args":{"MHz":800}}]"#;
        let profile = tempfile::tempdir().expect("a folder");
        let output = profile.path().join("mindstudio_profiler_output");
        fs::create_dir(&output).expect("created");
        fs::write(output.join("msprof_1.json"), text).expect("written");
        let read = CoreClock::read(profile.path());
        let expected = [(2_000, 800.0), (1_764_246_877_073_569_640, 1850.0)];
        assert_eq!(read.samples, expected.map(|(at, mhz)| ClockSample { at: Nanos(at), mhz }));
        let dies = r#"[{"name":"AI Core Freq Die 0","pid":7,"ts":2,"ph":"C","args":{"MHz":1650}},
            {"name":"AI Core Freq Die 1","pid":8,"ts":2,"ph":"C","args":{"MHz":1650}},
            {"name":"AI Core Freq Die 1","pid":8,"ts":5,"ph":"C","args":{"MHz":1000}},
            {"name":"AI Core Freq Die 0","pid":7,"ts":6,"ph":"C","args":{"MHz":1500}},
            {"name":"AI Core Freq Die 1","pid":8,"ts":7,"ph":"C","args":{"MHz":1600}},
            {"name":"AI Core Freq Limit","pid":8,"ts":8,"ph":"C","args":{"MHz":10}}]"#;
        fs::write(output.join("msprof_1.json"), dies).expect("written");
        let read = CoreClock::read(profile.path());
        let clocks: Vec<f64> = [2_000, 5_000, 6_000, 7_000, 9_000]
            .into_iter()
            .filter_map(|at| read.value_at(Nanos(at)))
            .collect();
        assert_eq!(clocks, [1650.0, 1000.0, 1000.0, 1500.0, 1500.0], "the lower one of both dies");
        fs::write(output.join("msprof_1.json"), &text[..90]).expect("written");
        assert!(CoreClock::read(profile.path()).unreadable.is_some());
    }
}
