//! Counter events `AI Core Freq` in `msprof_*.json`, as msprof writes them: at each change of the clock, and at the end.

use std::collections::BTreeMap;

use serde_json::json;

use crate::{
    kernel::{Nanos, device::DeviceProfile},
    rehearsal::npu::LoggedLaunch,
};

/// Clock of an idle device in MHz.
const IDLE_MHZ: u32 = 800;
/// Time of tasks after which the clock has settled, and its value if it never does, as a share of the rated one.
const SETTLING_TIME: Nanos = Nanos(3_000_000);
const UNSETTLED_SHARE: f64 = 0.8;

/// Returns the events of all devices. Without settling, the clock stays below the set one. A throttled device has a clock
/// that is lower by the factor of its slowdown.
pub(super) fn clock_events(profile: &DeviceProfile, launches: &[LoggedLaunch], settles: bool) -> String {
    let mut of_devices: BTreeMap<u32, Vec<&LoggedLaunch>> = BTreeMap::new();
    for launch in launches {
        of_devices.entry(launch.device).or_default().push(launch);
    }
    let set = f64::from(profile.clock_mhz) * if settles { 1.0 } else { UNSETTLED_SHARE };
    let mut events = Vec::new();
    for (device, launches) in of_devices {
        events.push(json!({"name": "process_name", "pid": device, "tid": 0, "ph": "M", "args": {"name": "AI Core Freq"}}));
        events.extend(clock_samples(set, &launches).into_iter().map(|(at, mhz)| {
            json!({
                "name": "AI Core Freq", "pid": device, "tid": 0, "ts": at.to_string(), "ph": "C",
                "args": {"MHz": mhz},
            })
        }));
    }
    serde_json::Value::Array(events).to_string()
}

/// Returns the changes of the clock of one device in MHz, and its value at the end of the last launch.
fn clock_samples(set: f64, launches: &[&LoggedLaunch]) -> Vec<(Nanos, u32)> {
    let (Some(first), Some(last)) = (launches.first(), launches.last()) else { return Vec::new() };
    let end = Nanos(last.start.0 + last.duration.0);
    let settled = Nanos((first.start.0 + SETTLING_TIME.0).min(end.0));
    let mut samples = vec![(first.start, IDLE_MHZ)];
    for launch in launches {
        let mhz = (set / launch.shown_slowdown).round() as u32;
        let at = launch.start.max(settled);
        match samples.last() {
            Some((_, before)) if *before == mhz => {}
            // Until the clock has settled, only its last value counts.
            Some((time, _)) if *time == at => {
                samples.pop();
                samples.push((at, mhz));
            }
            _ => samples.push((at, mhz)),
        }
    }
    samples.push((end, samples.last().map_or(IDLE_MHZ, |(_, mhz)| *mhz)));
    samples
}
