//! Number of a device inside the environment of the replays.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Number of a device for `torch.npu.set_device`, HCCL and the profiler's `Device_id`. The runtime counts the devices
/// that it sees from 0, so that the number differs from the physical one (`u32` elsewhere) in a container that sees a
/// part of the host's devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LogicalDeviceId(pub u32);

impl fmt::Display for LogicalDeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
