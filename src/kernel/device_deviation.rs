//! Devices on which all cases last longer or shorter than on others.

use serde::Serialize;

/// Device of a host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct HostDevice {
    /// Name of the host; empty if hosts cannot be separated from runs.
    pub(crate) host: String,
    /// Device as the host numbers it.
    pub(crate) device: u32,
}

/// Deviation of the durations of all cases on a device from the mean of devices.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct DeviceDeviation {
    #[serde(flatten)]
    pub(crate) place: HostDevice,
    /// Relative to the mean, above 0 for longer durations.
    pub(crate) deviation: f64,
}
