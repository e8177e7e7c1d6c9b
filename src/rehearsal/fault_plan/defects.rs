//! Defects of a rehearsal host: properties in which it differs from what the vendor's sources state. Each makes one
//! experiment of `npubench selftest` fail.

use serde::{Deserialize, Serialize};

/// A defect of the whole host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum HostDefect {
    /// The chip has other cores than the database's device profile.
    OtherChip,
    /// npu-smi shows the processes of a device on its neighbour.
    SwappedDevices,
    /// msprof ends with the exit code of the program.
    MsprofExitCode,
    /// The profiler loses more first records than the padding has.
    LostHead,
    /// The clock of the cores never reaches its rating.
    UnsettledClock,
    /// The cache has a quarter of the size in the device profile.
    SmallCache,
    /// Kernels take 10 % longer on device 1.
    UnequalDevices,
    /// Kernels take 5 % longer while counters are read.
    ProfilerOverhead,
    /// Kernels take 30 % longer than in production profiles.
    SlowerThanProduction,
    /// An index out of range raises an error without a code of the runtime.
    UnknownErrorText,
    /// A kernel has the name of its next version.
    OtherKernelName,
    /// The stores of all gangs listen on one port, which a second gang cannot take.
    SharedRendezvousPort,
}
