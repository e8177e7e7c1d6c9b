//! Counter events `AI Core Freq` in `msprof_*.json`, as msprof writes them: at each change of the clock, and at the end.

use std::collections::BTreeMap;

use serde_json::json;

use crate::{config::DeviceProfile, domain::Nanos, rehearsal::npu::LoggedLaunch};

/// Clock of an idle device in MHz.
const IDLE_MHZ: u32 = 800;
/// Time of tasks after which the clock has settled, and its value if it never does, as a share of the rated one.
const SETTLING_TIME: Nanos = Nanos(3_000_000);
const UNSETTLED_SHARE: f64 = 0.8;

/// Returns the events of all devices. Without settling, the clock stays below the rated one.
pub(super) fn clock_events(profile: &DeviceProfile, launches: &[LoggedLaunch], settles: bool) -> String {
    let mut spans: BTreeMap<u32, (Nanos, Nanos)> = BTreeMap::new();
    for launch in launches {
        let end = Nanos(launch.start.0 + launch.duration.0);
        let span = spans.entry(launch.device).or_insert((launch.start, end));
        *span = (span.0.min(launch.start), span.1.max(end));
    }
    let rated = f64::from(profile.clock_mhz) * if settles { 1.0 } else { UNSETTLED_SHARE };
    let mut events = Vec::new();
    for (device, (start, end)) in spans {
        let settled = Nanos((start.0 + SETTLING_TIME.0).min(end.0));
        events.push(json!({"name": "process_name", "pid": device, "tid": 0, "ph": "M", "args": {"name": "AI Core Freq"}}));
        let samples = [(start, f64::from(IDLE_MHZ)), (settled, rated), (end, rated)];
        events.extend(samples.map(|(at, mhz)| {
            json!({
                "name": "AI Core Freq", "pid": device, "tid": 0, "ts": at.to_string(), "ph": "C",
                "args": {"MHz": mhz.round() as u32},
            })
        }));
    }
    serde_json::Value::Array(events).to_string()
}
