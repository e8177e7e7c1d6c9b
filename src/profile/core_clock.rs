//! Clock of the cores during a profile.
//!
//! msprof writes it as a counter into `msprof_*.json`, an array of events in the Chrome trace format: `{"name": "AI Core
//! Freq", "ph": "C", "ts": "1764246877073569.640", "args": {"MHz": 1850}}`. Times are in microseconds; a value holds until
//! the next event. Each device has a track with a `pid` of its own, whose device is in the event `process_labels` of this `pid`:
//! `NPU 3`. An Ascend 950 has two counters, `AI Core Freq Die 0` and `AI Core Freq Die 1`; a kernel uses the cores of both, so that
//! the lower one counts. Samples are repeated, and a sample of 0 MHz is an unknown clock, for which the exporter takes the rated one
//! and says so in its log. The clock for which the device is set is in `info.json`.
//!
//! Sources: Ascend/msprof 9ba1ac7, analysis/csrc/application/timeline/json_constant.h and low_power_assembler.cpp,
//! analysis/mscalculate/stars/ffts_pmu_calculator.py.

use std::borrow::Cow;

use super::{device_evidence::stated_facts, prelude::*, trace_events::for_each_trace_event};

pub(crate) const REACHED: f64 = 0.97;
const TRACK: &str = "AI Core Freq";
const DIES: [&str; 3] = ["", " Die 0", " Die 1"];
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ClockSample {
    pub(crate) at: Nanos,
    pub(crate) mhz: f64,
}

impl ClockSample {
    fn known(&self) -> Option<f64> {
        (self.mhz > 0.0).then_some(self.mhz)
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ClockArguments<'a> {
    #[serde(rename = "MHz")]
    mhz: Option<f64>,
    #[serde(borrow)]
    labels: Option<Cow<'a, str>>,
}

/// The clocks of the devices of a `PROF_*` folder.
#[derive(Clone, Debug, Default)]
pub(crate) struct CoreClocks {
    /// By device; `None` for a track without a label.
    by_device: BTreeMap<Option<u32>, CoreClock>,
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

impl CoreClocks {
    /// Reads the clocks of a `PROF_*` folder. What cannot be read is unknown.
    pub(crate) fn read(profile: &Path) -> Self {
        let (mut samples, mut unreadable) = (BTreeMap::<_, Vec<(usize, ClockSample)>>::new(), None);
        for path in
            named_entries(&profile.join("mindstudio_profiler_output"), "msprof_", ".json").unwrap_or_default()
        {
            let (mut found, mut devices) = (Vec::new(), HashMap::new());
            let read = for_each_trace_event(&path, &mut |event| {
                let name = event.name.strip_prefix(TRACK).filter(|_| event.ph == "C");
                if let Some(die) = name.and_then(|rest| DIES.iter().position(|die| *die == rest)) {
                    let mhz = event.arguments::<ClockArguments<'_>>().mhz;
                    let sample = event.start().zip(mhz).map(|(at, mhz)| (die, ClockSample { at, mhz }));
                    found.extend(sample.map(|sample| (event.process().to_owned(), sample)));
                } else if event.name == "process_labels" {
                    let label = event.arguments::<ClockArguments<'_>>().labels.unwrap_or_default();
                    let device = label.strip_prefix("NPU ").and_then(|device| device.parse::<u32>().ok());
                    devices.extend(device.map(|device| (event.process().to_owned(), device)));
                }
                Ok(())
            });
            match read {
                Ok(()) => {
                    for (process, sample) in found {
                        samples.entry(devices.get(&process).copied()).or_default().push(sample);
                    }
                }
                Err(problem) => {
                    let name = path.file_name().unwrap_or_default().display();
                    unreadable = Some(format!("`{name}` cannot be read: {problem}"));
                }
            }
        }
        if samples.is_empty() {
            samples.insert(None, Vec::new());
        }
        let set_mhz = stated_facts(profile).and_then(|facts| facts.clock_mhz).map(f64::from);
        let clock = |samples| {
            let unreadable = unreadable.clone();
            CoreClock { unreadable, ..CoreClock::new(lowest_of_dies(samples), set_mhz) }
        };
        let by_device = samples.into_iter().map(|(device, samples)| (device, clock(samples))).collect();
        Self { by_device }
    }

    /// Returns the clock of a device; `None` if the profile has only clocks of other devices. The only clock of a profile is that
    /// of its device, also without a label.
    pub(crate) fn of_device(&self, device: Option<u32>) -> Option<&CoreClock> {
        let only =
            || self.by_device.first_key_value().filter(|(label, _)| label.is_none() || device.is_none());
        let only = || only().filter(|_| self.by_device.len() == 1).map(|(_, clock)| clock);
        device.and_then(|device| self.by_device.get(&Some(device))).or_else(only)
    }
}

impl CoreClock {
    pub(crate) fn new(mut samples: Vec<ClockSample>, set_mhz: Option<f64>) -> Self {
        samples.sort_by_key(|sample| sample.at);
        Self { samples, set_mhz, unreadable: None }
    }

    /// Returns the clock at a time: the value of the last sample before this time, else of the first sample; `None` if it is
    /// unknown.
    pub(crate) fn value_at(&self, at: Nanos) -> Option<f64> {
        let after = self.samples.partition_point(|sample| sample.at <= at);
        self.samples.get(after.saturating_sub(1)).and_then(ClockSample::known)
    }

    pub(crate) fn lowest_between(&self, start: Nanos, end: Nanos) -> Option<f64> {
        let from = self.samples.partition_point(|sample| sample.at <= start);
        let inside = self.samples.get(from..)?.iter().take_while(|sample| sample.at <= end);
        inside.filter_map(ClockSample::known).chain(self.value_at(start)).reduce(f64::min)
    }

    /// Returns the clock of a launch if it was below the set one. Until the clock has risen for the first time, after an idle
    /// time, it is not reported: warm-ups precede the measured launches.
    ///
    /// The first sample says nothing about the rise: without a record before the collection, the exporter states the set clock at its
    /// start (Ascend/msprof 9ba1ac7, analysis/csrc/domain/data_process/system/aicore_freq_processor.cpp).
    pub(crate) fn low_clock(&self, start: Nanos, duration: Nanos) -> Option<LowClock> {
        let set_mhz = self.set_mhz?;
        let reached = |mhz: f64| mhz >= REACHED * set_mhz;
        let begin = self.samples.first()?.at;
        let risen = self.samples.iter().find(|sample| sample.at > begin && reached(sample.mhz));
        let (start, end) =
            (risen.map_or(start, |risen| risen.at.max(start)), start.0.saturating_add(duration.0));
        let mhz = (start.0 <= end).then(|| self.lowest_between(start, Nanos(end)))??;
        (!reached(mhz)).then_some(LowClock { mhz, set_mhz })
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
    fn the_set_clock_at_the_start_of_a_track_is_no_rise() {
        let clock =
            clock(&[(0, 1_800.0), (500, 800.0), (1_000, 1_800.0), (5_000, 1_200.0), (9_000, 1_800.0)]);
        let low = |start, duration| clock.low_clock(Nanos(start), Nanos(duration)).map(|low| low.mhz);
        assert_eq!([low(600, 100), low(400, 2_000), low(600, 8_000)], [None, None, Some(1_200.0)]);
    }

    #[test]
    fn a_clock_that_is_never_reached_is_low_from_the_first_launch_on() {
        let low = clock(&[(0, 800.0), (1_000, 1_200.0)]).low_clock(Nanos(10), Nanos(10));
        assert_eq!(low, Some(LowClock { mhz: 800.0, set_mhz: 1_800.0 }));
    }

    #[test]
    fn unknown_clocks_are_not_low() {
        let zero = clock(&[(0, 1_800.0), (1_000, 0.0), (5_000, 1_800.0), (9_000, 1_200.0)]);
        let low = |start, duration| zero.low_clock(Nanos(start), Nanos(duration)).map(|low| low.mhz);
        assert_eq!([low(500, 600), low(2_000, 100), low(2_000, 4_000)], [None; 3], "0 MHz is no clock");
        assert_eq!([zero.value_at(Nanos(2_000)), low(2_000, 8_000)], [None, Some(1_200.0)]);
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
        let read = CoreClocks::read(profile.path());
        let expected = [(2_000, 800.0), (1_764_246_877_073_569_640, 1850.0)];
        assert_eq!(
            read.of_device(Some(3)).expect("the only one").samples,
            expected.map(|(at, mhz)| ClockSample { at: Nanos(at), mhz })
        );
        let dies = r#"[{"name":"AI Core Freq Die 0","pid":7,"ts":2,"ph":"C","args":{"MHz":1650}},
            {"name":"AI Core Freq Die 1","pid":8,"ts":2,"ph":"C","args":{"MHz":1650}},
            {"name":"AI Core Freq Die 1","pid":8,"ts":5,"ph":"C","args":{"MHz":1000}},
            {"name":"AI Core Freq Die 0","pid":7,"ts":6,"ph":"C","args":{"MHz":1500}},
            {"name":"AI Core Freq Die 1","pid":8,"ts":7,"ph":"C","args":{"MHz":1600}},
            {"name":"AI Core Freq Limit","pid":8,"ts":8,"ph":"C","args":{"MHz":10}}]"#;
        fs::write(output.join("msprof_1.json"), dies).expect("written");
        let read = CoreClocks::read(profile.path());
        let read = read.of_device(Some(0)).expect("both dies");
        let clocks: Vec<f64> = [2_000, 5_000, 6_000, 7_000, 9_000]
            .into_iter()
            .filter_map(|at| read.value_at(Nanos(at)))
            .collect();
        assert_eq!(clocks, [1650.0, 1000.0, 1000.0, 1500.0, 1500.0], "the lower one of both dies");
        fs::write(output.join("msprof_1.json"), &text[..90]).expect("written");
        assert!(CoreClocks::read(profile.path()).of_device(None).expect("none").unreadable.is_some());
        let track = |pid, device, mhz| {
            format!(
                r#"{{"name":"process_labels","pid":{pid},"tid":0,"ph":"M","args":{{"labels":"NPU {device}"}}}},
                {{"name":"AI Core Freq","pid":{pid},"ts":"2.000","ph":"C","args":{{"MHz":{mhz}}}}}"#
            )
        };
        let two = format!("[{},{}]", track(4_344_288, 0, 1_800), track(4_344_291, 3, 1_400));
        fs::write(output.join("msprof_1.json"), two).expect("written");
        let read = CoreClocks::read(profile.path());
        let mhz = |device| read.of_device(device).and_then(|clock| clock.value_at(Nanos(9_000)));
        assert_eq!(
            [mhz(Some(0)), mhz(Some(3)), mhz(Some(1)), mhz(None)],
            [Some(1_800.0), Some(1_400.0), None, None]
        );
    }
}
