//! Kinds of faults with their parameters.

use serde::{Deserialize, Serialize};

/// Defines structs of parameters, each with its default.
macro_rules! parameters {
    ($($name:ident { $($(#[doc = $doc:literal])? $field:ident: $type:ty = $default:expr,)* })*) => { $(
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub(crate) struct $name { $($(#[doc = $doc])? pub(crate) $field: $type,)* }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }
    )* };
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FaultKind {
    /// The script's process ends.
    Crash(ProcessCrash),
    /// The script's process does not end.
    Hang(ProcessHang),
    /// The device's memory is not enough for a case.
    OutOfMemory(OutOfMemory),
    /// A kernel ends in an error of the runtime, after which the script cannot use the device.
    DeviceError(RuntimeDeviceError),
    /// The kernel runs on an AI CPU, as one without a binary for the AI cores does.
    AiCpuFallback(NoParameters),
    /// Launches of the case take longer than others of the same case, in more cycles.
    UnsteadyKernel(UnsteadyKernel),
    /// Launches of the case run as another kernel with the same shapes.
    RenamedKernel(RenamedKernel),
    /// Launches of the case use one core, and take longer by the number of cores.
    OneCore(NoParameters),
    /// A rank starts the collectives of the case later than the others.
    LateRank(LateRank),
    /// A rank receives wrong data from the collective of the case.
    WrongResult(WrongData),
    /// The profiler's clock is set to another time.
    ClockJump(ClockJump),
    /// The profiler loses records.
    LostRecords(LostRecords),
    /// Records of launches replace those of the launches after them, so that the count is right.
    RepeatedRecords(NoParameters),
    /// The exported table ends in the middle of a row.
    TruncatedCsv(TruncatedCsv),
    /// Rows of the exported table have too few cells.
    RaggedCsv(RaggedCsv),
    /// msprof exports nothing and exits with 0.
    MissingOutput(MissingOutput),
    /// Records carry the number of another device.
    WrongDeviceId(WrongDevice),
    /// Durations in the table are in another unit than its header states.
    WrongUnit(WrongUnit),
    /// The timer has larger steps than the documented ones.
    CoarseTimer(CoarseTimer),
    /// Records carry no number of a device.
    NoDeviceId(NoDeviceId),
    /// The disk is full when msprof exports.
    DiskFull(DiskFull),
    /// All steps except kernels take longer.
    SlowDevice(SlowDevice),
    /// Kernels take longer for the same cycles, and no reading of the device shows its lower clock.
    SlowKernels(SlowKernels),
    /// The clock falls while a case is prepared and rises only after some time of launches; no reading shows it.
    IdleClock(IdleClock),
    /// Another program uses the device, so that some kernels wait.
    Neighbour(NeighbourProgram),
    /// The device is hot and its clock is reduced.
    Throttling(DeviceThrottling),
    /// The device is no longer listed and cannot be used.
    DeviceLost(NoParameters),
    /// A foreign process occupies the device.
    LeftoverProcess(LeftoverProcess),
}

/// The part of a run that a fault affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultScope {
    Case,
    /// A collection, also if only some of its cases match.
    Collection,
    /// A device, during the time window of the fault.
    Device,
}

impl FaultKind {
    /// Returns the rank of a fault of one rank.
    pub(crate) const fn rank(&self) -> Option<usize> {
        match self {
            Self::LateRank(LateRank { rank, .. }) | Self::WrongResult(WrongData { rank, .. }) => Some(*rank),
            _ => None,
        }
    }

    pub(crate) const fn scope(&self) -> FaultScope {
        match self {
            Self::Crash(ProcessCrash { at: CrashAt::Launch, .. })
            | Self::Hang(_)
            | Self::OutOfMemory(_)
            | Self::DeviceError(_)
            | Self::AiCpuFallback(_)
            | Self::UnsteadyKernel(_)
            | Self::RenamedKernel(_)
            | Self::OneCore(_)
            | Self::LateRank(_)
            | Self::WrongResult(_)
            | Self::ClockJump(_) => FaultScope::Case,
            Self::Crash(_)
            | Self::LostRecords(_)
            | Self::RepeatedRecords(_)
            | Self::TruncatedCsv(_)
            | Self::RaggedCsv(_)
            | Self::MissingOutput(_)
            | Self::WrongDeviceId(_)
            | Self::WrongUnit(_)
            | Self::CoarseTimer(_)
            | Self::NoDeviceId(_)
            | Self::DiskFull(_) => FaultScope::Collection,
            Self::SlowDevice(_)
            | Self::SlowKernels(_)
            | Self::IdleClock(_)
            | Self::Neighbour(_)
            | Self::Throttling(_)
            | Self::DeviceLost(_)
            | Self::LeftoverProcess(_) => FaultScope::Device,
        }
    }
}

parameters! {
    ProcessCrash {
        /// Exit code, instead of a signal.
        exit: Option<u8> = None,
        /// Signal; SIGSEGV by default.
        signal: Option<CrashSignal> = None,
        at: CrashAt = CrashAt::Launch,
        /// Launch of the case, from 1.
        launch: u32 = 1,
        /// Records that msprof exports.
        records: RecordsKept = RecordsKept::Kept,
    }
    ProcessHang {
        /// True if SIGTERM does not end it.
        ignores_sigterm: bool = false,
        /// A process started before the hang that keeps standard input and output open.
        grandchild: GrandchildLocation = GrandchildLocation::None,
        /// Launch of the case, from 1.
        launch: u32 = 1,
        /// Seconds after which it continues normally and its grandchild ends; by default one real day.
        seconds: Option<f64> = None,
    }
    OutOfMemory {
        at: MemoryAt = MemoryAt::Arguments,
    }
    RuntimeDeviceError {
        /// 107xxx or 507xxx; by default an exception of a core.
        code: u32 = 507_015,
    }
    UnsteadyKernel {
        pattern: UnsteadyPattern = UnsteadyPattern::Drift,
        /// Factor of the durations.
        factor: f64 = 1.08,
        /// Launch of the case, from 1, at which a drift reaches the factor, or from which a step or a burst has it.
        launch: u32 = 15,
        /// Share of the launches in the upper mode, from 0 to 1.
        share: f64 = 0.5,
        /// Number of launches of a burst.
        length: u32 = 12,
    }
    RenamedKernel {
        /// Type of the kernel in the records.
        name: String = "RenamedKernel".to_owned(),
        /// Launch of the case, from 1, from which on it has the name.
        launch: u32 = 1,
        /// True if the type stays, and the name is that of the operator: another binary of the kernel.
        operator_only: bool = false,
    }
    ClockJump {
        /// Seconds forwards, or backwards if negative.
        seconds: f64 = -3600.0,
        /// Launch of the case, from 1.
        launch: u32 = 1,
    }
    LateRank {
        rank: usize = 0,
        /// Time after which it starts.
        microseconds: f64 = 500.0,
    }
    WrongData {
        rank: usize = 0,
        /// Place of the wrong element, from 0.
        element: u64 = 0,
    }
    LostRecords {
        /// Number of first records.
        head: u32 = 0,
        /// Number of last records.
        tail: u32 = 0,
    }
    TruncatedCsv {
        /// Remaining share of its bytes, from 0 to 1.
        keeps: f64 = 0.5,
    }
    RaggedCsv {
        /// Number of rows without their last cell, spread over the table.
        rows: u32 = 1,
    }
    MissingOutput {
        /// True if a `PROF_*` folder exists.
        folder: bool = true,
        /// True if a later `msprof --export=on` exports from it.
        second_export: bool = true,
    }
    WrongDevice {
        /// Number of the device; the next one by default.
        shows: Option<u32> = None,
    }
    WrongUnit {
        /// Factor of the durations.
        factor: f64 = 1e3,
    }
    CoarseTimer {
        /// Step of the timer in nanoseconds.
        step: u32 = 1_000,
    }
    NoDeviceId {
        /// True if the column exists, with `N/A` in place of the numbers.
        column: bool = true,
    }
    DiskFull {
        /// Written share of the table's bytes, from 0 (an empty file) to 1.
        keeps: f64 = 0.0,
        /// True if a later `msprof --export=on` has enough space.
        second_export: bool = false,
    }
    SlowDevice {
        /// Factor of the time of all steps except kernels.
        factor: f64 = 3.0,
    }
    SlowKernels {
        /// Factor of the time of kernels.
        factor: f64 = 1.04,
    }
    IdleClock {
        /// Factor of the time of kernels at the lower clock.
        factor: f64 = 1.2,
        /// Milliseconds of kernels after which the clock has risen.
        milliseconds: f64 = 3.0,
    }
    NeighbourProgram {
        /// Factor of the time of kernels that wait for the other program.
        factor: f64 = 1.3,
        /// Share of such kernels, from 0 to 1.
        share: f64 = 0.3,
    }
    DeviceThrottling {
        /// Factor of the time of kernels.
        factor: f64 = 1.4,
        /// Temperature shown by npu-smi, in degrees Celsius.
        temperature: i64 = 98,
    }
    LeftoverProcess {
        /// Seconds after which it ends; never by default.
        seconds: Option<f64> = None,
        /// Process id shown by npu-smi. No process is started.
        pid: u32 = 4_100_017,
        name: String = "python3.11".to_owned(),
        /// Free memory of the device, in MB.
        free_mb: u64 = 0,
        /// Resource that others cannot use.
        holds: HeldResource = HeldResource::Memory,
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoParameters {}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
#[repr(i32)]
pub(crate) enum CrashSignal {
    Sigsegv = nix::libc::SIGSEGV,
    /// Sent by the system when the host runs out of memory.
    Sigkill = nix::libc::SIGKILL,
    Sigabrt = nix::libc::SIGABRT,
    Sigbus = nix::libc::SIGBUS,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CrashAt {
    /// While a case is launched.
    Launch,
    /// When Python exits, after all launches and output.
    Exit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RecordsKept {
    Kept,
    /// All except those of the last second of device time, which were not finalised.
    LastSecondLost,
    /// None; msprof finds no profiling data.
    None,
}

/// Pattern of the durations of a case's launches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum UnsteadyPattern {
    /// Durations rise in equal steps, beyond the factor after its launch.
    Drift,
    /// Launches from one on take longer.
    Step,
    /// A number of launches from one on take longer.
    Burst,
    /// A part of the launches takes longer, at random.
    TwoModes,
}

/// Process group of a grandchild.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum GrandchildLocation {
    None,
    /// In the script's process group.
    SameGroup,
    /// In a process group of its own.
    OwnGroup,
    /// In a session of its own.
    OwnSession,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum MemoryAt {
    /// While the case's tensors are created.
    Arguments,
    /// When the call allocates its results.
    Launch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum HeldResource {
    /// Memory: others run out of memory.
    Memory,
    /// The device: others cannot initialise it.
    Device,
}
