//! The rehearsed host among several.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Name and clocks of the rehearsal host, by which the nodes of a sweep and the devices of a node differ.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RehearsedHost {
    /// Name of the host; that of the system by default.
    pub(crate) name: Option<String>,
    /// Simulated seconds by which the clock of its devices is ahead of that of the system.
    pub(crate) clock_ahead: f64,
    /// Microseconds by which the clocks of single devices are ahead of those of the others, by the host's numbers.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) device_clocks: BTreeMap<u32, f64>,
}

impl RehearsedHost {
    /// Greatest difference of clocks in seconds.
    pub(super) const MOST: f64 = 1e6;
    /// Greatest difference of the clocks of devices in microseconds.
    pub(super) const MOST_OF_DEVICE: f64 = 1e9;

    /// Returns the first device whose clock is not within the limit, with its value.
    pub(super) fn first_invalid_clock(&self) -> Option<(u32, f64)> {
        let mut clocks = self.device_clocks.iter().map(|(device, microseconds)| (*device, *microseconds));
        clocks.find(|(_, microseconds)| microseconds.is_nan() || microseconds.abs() > Self::MOST_OF_DEVICE)
    }
}
