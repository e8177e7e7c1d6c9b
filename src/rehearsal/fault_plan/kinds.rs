//! What can go wrong, each with its parameters.

use serde::{Deserialize, Serialize};

/// What goes wrong.
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
    /// Rows of the exported table lack cells.
    RaggedCsv(RaggedCsv),
    /// msprof exports nothing and exits with 0.
    MissingOutput(MissingOutput),
    /// Records carry the number of another device.
    WrongDeviceId(WrongDevice),
    /// The disk is full when msprof exports.
    DiskFull(DiskFull),
    /// Everything takes longer, except the kernels.
    SlowDevice(SlowDevice),
    /// The device is hot and its clock is low.
    Throttling(DeviceThrottling),
    /// The device is not listed any more and cannot be used.
    DeviceLost(NoParameters),
    /// Somebody else's process holds the device.
    LeftoverProcess(LeftoverProcess),
}

/// What a fault strikes as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultScope {
    /// One case.
    Case,
    /// A collection, also where just some of its cases are named.
    Collection,
    /// A device, as long as the fault's time lasts.
    Device,
}

impl FaultKind {
    /// What it strikes.
    #[must_use]
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

/// How a process ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProcessCrash {
    /// With this exit code, and not by a signal.
    pub exit: Option<u8>,
    /// By this signal; SIGSEGV where nothing is said.
    pub signal: Option<CrashSignal>,
    /// At which point.
    pub at: CrashAt,
    /// At which launch of the case, from 1.
    pub launch: u32,
    /// What msprof exports of what ran before.
    pub records: RecordsKept,
}

impl Default for ProcessCrash {
    fn default() -> Self {
        Self { exit: None, signal: None, at: CrashAt::Launch, launch: 1, records: RecordsKept::Kept }
    }
}

/// The signals that end processes on such hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CrashSignal {
    /// A wrong address.
    SIGSEGV,
    /// As the system does when the host's memory runs out.
    SIGKILL,
    /// An abort, as of a C++ exception that nobody catches.
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
    /// When Python ends, with everything launched and said.
    Exit,
}

/// What a crash leaves of the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordsKept {
    /// All that were made.
    Kept,
    /// All but those of the last second of the device's time, which nobody finalised.
    LastSecondLost,
    /// None; msprof finds no profiling data.
    None,
}

/// How a process hangs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProcessHang {
    /// Whether SIGTERM does not end it.
    pub ignores_sigterm: bool,
    /// A process that it starts before and that keeps its standard input and output open.
    pub grandchild: GrandchildLocation,
    /// At which launch of the case, from 1.
    pub launch: u32,
    /// After so many seconds it goes on as if nothing had been, and its grandchild ends; not before a real day
    /// has passed where nothing is said.
    pub seconds: Option<f64>,
}

impl Default for ProcessHang {
    fn default() -> Self {
        Self { ignores_sigterm: false, grandchild: GrandchildLocation::None, launch: 1, seconds: None }
    }
}

/// Where a grandchild is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GrandchildLocation {
    /// There is none.
    None,
    /// In the script's process group.
    SameGroup,
    /// In a process group of its own.
    OwnGroup,
    /// In a session of its own.
    OwnSession,
}

/// When memory runs out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OutOfMemory {
    /// At which point.
    pub at: MemoryAt,
}

/// The point at which memory runs out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryAt {
    /// While the case's tensors are made.
    #[default]
    Arguments,
    /// When the call makes its results.
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

/// How far a clock jumps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClockJump {
    /// So many seconds forwards, or backwards where negative.
    pub seconds: f64,
    /// At which launch of the case, from 1.
    pub launch: u32,
}

impl Default for ClockJump {
    fn default() -> Self {
        Self { seconds: -3600.0, launch: 1 }
    }
}

/// How many records are lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LostRecords {
    /// So many of the first.
    pub head: u32,
    /// So many of the last.
    pub tail: u32,
}

/// Where a table is cut.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TruncatedCsv {
    /// The part of its bytes that is left, from 0 to 1.
    pub keeps: f64,
}

impl Default for TruncatedCsv {
    fn default() -> Self {
        Self { keeps: 0.5 }
    }
}

/// How many rows are ragged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RaggedCsv {
    /// So many rows, spread over the table, lack their last cell.
    pub rows: u32,
}

impl Default for RaggedCsv {
    fn default() -> Self {
        Self { rows: 1 }
    }
}

/// What msprof leaves where it exports nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MissingOutput {
    /// Whether there is a `PROF_*` folder.
    pub folder: bool,
    /// Whether `msprof --export=on` exports from it later.
    pub second_export: bool,
}

impl Default for MissingOutput {
    fn default() -> Self {
        Self { folder: true, second_export: true }
    }
}

/// Which device records name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WrongDevice {
    /// This one; the next one where nothing is said.
    pub shows: Option<u32>,
}

/// What a full disk leaves.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DiskFull {
    /// The part of the table's bytes that were written, from 0 (an empty file) to 1.
    pub keeps: f64,
    /// Whether `msprof --export=on` finds room later.
    pub second_export: bool,
}

impl Default for DiskFull {
    fn default() -> Self {
        Self { keeps: 0.0, second_export: false }
    }
}

/// How slow a device is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SlowDevice {
    /// Everything but the kernels takes so many times as long.
    pub factor: f64,
}

impl Default for SlowDevice {
    fn default() -> Self {
        Self { factor: 3.0 }
    }
}

/// How a hot device runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DeviceThrottling {
    /// Kernels take so many times as long.
    pub factor: f64,
    /// What npu-smi shows, in degrees Celsius.
    pub temperature: i64,
}

impl Default for DeviceThrottling {
    fn default() -> Self {
        Self { factor: 1.4, temperature: 98 }
    }
}

/// Who holds a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LeftoverProcess {
    /// It goes after so many seconds; not at all where nothing is said.
    pub seconds: Option<f64>,
    /// Its process id, as npu-smi shows it. No such process is started.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// What it leaves of the device's memory, in MB.
    pub free_mb: u64,
    /// What others are refused.
    pub holds: HeldResource,
}

/// What a leftover process holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeldResource {
    /// The memory: others run out of it.
    Memory,
    /// The device: others cannot take it into use.
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
