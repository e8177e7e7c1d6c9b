//! Kinds of faults with their parameters.

use serde::{Deserialize, Serialize};

/// Kind of a fault.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// The script's process ends.
    Crash(ProcessCrash),
    /// The script's process does not end.
    Hang(ProcessHang),
    /// The device's memory is not enough for a case.
    OutOfMemory(OutOfMemory),
    /// A kernel ends in an error of the runtime, after which the script cannot use the device.
    DeviceError(RuntimeDeviceError),
    /// The profiler's clock is set to another time.
    ClockJump(ClockJump),
    /// The profiler loses records.
    LostRecords(LostRecords),
    /// The exported table ends in the middle of a row.
    TruncatedCsv(TruncatedCsv),
    /// Rows of the exported table have too few cells.
    RaggedCsv(RaggedCsv),
    /// msprof exports nothing and exits with 0.
    MissingOutput(MissingOutput),
    /// Records carry the number of another device.
    WrongDeviceId(WrongDevice),
    /// The disk is full when msprof exports.
    DiskFull(DiskFull),
    /// All steps except kernels take longer.
    SlowDevice(SlowDevice),
    /// The device is hot and its clock is reduced.
    Throttling(DeviceThrottling),
    /// The device is no longer listed and cannot be used.
    DeviceLost(NoParameters),
    /// A foreign process occupies the device.
    LeftoverProcess(LeftoverProcess),
}

/// The part of a run that a fault affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultScope {
    /// One case.
    Case,
    /// A collection, also if only some of its cases match.
    Collection,
    /// A device, during the time window of the fault.
    Device,
}

impl FaultKind {
    /// Returns the part of a run that it affects.
    pub const fn scope(&self) -> FaultScope {
        match self {
            Self::Crash(ProcessCrash { at: CrashAt::Launch, .. })
            | Self::Hang(_)
            | Self::OutOfMemory(_)
            | Self::DeviceError(_)
            | Self::ClockJump(_) => FaultScope::Case,
            Self::Crash(_)
            | Self::LostRecords(_)
            | Self::TruncatedCsv(_)
            | Self::RaggedCsv(_)
            | Self::MissingOutput(_)
            | Self::WrongDeviceId(_)
            | Self::DiskFull(_) => FaultScope::Collection,
            Self::SlowDevice(_) | Self::Throttling(_) | Self::DeviceLost(_) | Self::LeftoverProcess(_) => {
                FaultScope::Device
            }
        }
    }
}

/// A fault without parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoParameters {}

/// Parameters of a crash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProcessCrash {
    /// Exit code, instead of a signal.
    pub exit: Option<u8>,
    /// Signal; SIGSEGV by default.
    pub signal: Option<CrashSignal>,
    /// Point of the fault.
    pub at: CrashAt,
    /// Launch of the case, from 1.
    pub launch: u32,
    /// Records that msprof exports.
    pub records: RecordsKept,
}

impl Default for ProcessCrash {
    fn default() -> Self {
        Self { exit: None, signal: None, at: CrashAt::Launch, launch: 1, records: RecordsKept::Kept }
    }
}

/// Signals of crashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CrashSignal {
    /// Invalid memory access.
    SIGSEGV,
    /// Sent by the system when the host runs out of memory.
    SIGKILL,
    /// An abort, such as after an uncaught C++ exception.
    SIGABRT,
    /// A bus error.
    SIGBUS,
}

/// The point of a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CrashAt {
    /// While a case is launched.
    Launch,
    /// When Python exits, after all launches and output.
    Exit,
}

/// Records left by a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordsKept {
    /// All records.
    Kept,
    /// All except those of the last second of device time, which were not finalised.
    LastSecondLost,
    /// None; msprof finds no profiling data.
    None,
}

/// Parameters of a hang.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProcessHang {
    /// True if SIGTERM does not end it.
    pub ignores_sigterm: bool,
    /// A process started before the hang that keeps standard input and output open.
    pub grandchild: GrandchildLocation,
    /// Launch of the case, from 1.
    pub launch: u32,
    /// Seconds after which it continues normally and its grandchild ends; by default one real day.
    pub seconds: Option<f64>,
}

impl Default for ProcessHang {
    fn default() -> Self {
        Self { ignores_sigterm: false, grandchild: GrandchildLocation::None, launch: 1, seconds: None }
    }
}

/// Process group of a grandchild.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GrandchildLocation {
    /// No grandchild.
    None,
    /// In the script's process group.
    SameGroup,
    /// In a process group of its own.
    OwnGroup,
    /// In a session of its own.
    OwnSession,
}

/// Parameters of an out-of-memory error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OutOfMemory {
    /// Point of the fault.
    pub at: MemoryAt,
}

/// The point at which memory runs out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryAt {
    /// While the case's tensors are created.
    #[default]
    Arguments,
    /// When the call allocates its results.
    Launch,
}

/// An error of the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RuntimeDeviceError {
    /// Its code: 107xxx or 507xxx.
    pub code: u32,
}

impl Default for RuntimeDeviceError {
    /// An exception of a core.
    fn default() -> Self {
        Self { code: 507_015 }
    }
}

/// Parameters of a clock jump.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClockJump {
    /// Seconds forwards, or backwards if negative.
    pub seconds: f64,
    /// Launch of the case, from 1.
    pub launch: u32,
}

impl Default for ClockJump {
    fn default() -> Self {
        Self { seconds: -3600.0, launch: 1 }
    }
}

/// Numbers of lost records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LostRecords {
    /// Number of first records.
    pub head: u32,
    /// Number of last records.
    pub tail: u32,
}

/// Parameters of a truncated table.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TruncatedCsv {
    /// Remaining share of its bytes, from 0 to 1.
    pub keeps: f64,
}

impl Default for TruncatedCsv {
    fn default() -> Self {
        Self { keeps: 0.5 }
    }
}

/// Number of ragged rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RaggedCsv {
    /// Number of rows without their last cell, spread over the table.
    pub rows: u32,
}

impl Default for RaggedCsv {
    fn default() -> Self {
        Self { rows: 1 }
    }
}

/// Output of msprof without an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MissingOutput {
    /// True if a `PROF_*` folder exists.
    pub folder: bool,
    /// True if a later `msprof --export=on` exports from it.
    pub second_export: bool,
}

impl Default for MissingOutput {
    fn default() -> Self {
        Self { folder: true, second_export: true }
    }
}

/// Device of the records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WrongDevice {
    /// Number of the device; the next one by default.
    pub shows: Option<u32>,
}

/// Output of msprof on a full disk.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DiskFull {
    /// Written share of the table's bytes, from 0 (an empty file) to 1.
    pub keeps: f64,
    /// True if a later `msprof --export=on` has enough space.
    pub second_export: bool,
}

impl Default for DiskFull {
    fn default() -> Self {
        Self { keeps: 0.0, second_export: false }
    }
}

/// Parameters of a slow device.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SlowDevice {
    /// Factor of the time of all steps except kernels.
    pub factor: f64,
}

impl Default for SlowDevice {
    fn default() -> Self {
        Self { factor: 3.0 }
    }
}

/// Parameters of throttling.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DeviceThrottling {
    /// Factor of the time of kernels.
    pub factor: f64,
    /// Temperature shown by npu-smi, in degrees Celsius.
    pub temperature: i64,
}

impl Default for DeviceThrottling {
    fn default() -> Self {
        Self { factor: 1.4, temperature: 98 }
    }
}

/// A process that occupies a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LeftoverProcess {
    /// Seconds after which it ends; never by default.
    pub seconds: Option<f64>,
    /// Process id shown by npu-smi. No process is started.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// Free memory of the device, in MB.
    pub free_mb: u64,
    /// Resource that others cannot use.
    pub holds: HeldResource,
}

/// Resource held by a leftover process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeldResource {
    /// Memory: others run out of memory.
    Memory,
    /// The device: others cannot initialise it.
    Device,
}

impl Default for LeftoverProcess {
    fn default() -> Self {
        Self {
            seconds: None,
            pid: 4_100_017,
            name: "python3.11".to_owned(),
            free_mb: 0,
            holds: HeldResource::Memory,
        }
    }
}
