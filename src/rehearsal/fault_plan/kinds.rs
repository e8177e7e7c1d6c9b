//! Kinds of faults with their parameters. Their effects are in `python/rehearsal/`.

use serde::{Deserialize, Deserializer, Serialize};

use super::{FaultTarget, TimeWindow};

/// Defines structs of parameters, each with its default.
macro_rules! parameters {
    ($($name:ident { $($(#[doc = $doc:literal])? $field:ident: $type:ty = $default:expr,)* })*) => { $(
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub(super) struct $name { $($(#[doc = $doc])? pub(super) $field: $type,)* }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }
    )* };
}

/// Defines the fault with a field for each kind, of which exactly one is given, and the part of a run that it affects.
macro_rules! kinds {
    ($(#[doc = $doc:literal] $kind:ident: $type:ident = $scope:ident,)*) => {
        /// A fault as it is written, and as the stand-ins read it.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub(crate) struct PlannedFault {
            $(
                #[doc = $doc]
                #[serde(deserialize_with = "default_if_null", skip_serializing_if = "Option::is_none")]
                pub(super) $kind: Option<$type>,
            )*
            #[serde(rename = "where")]
            pub(super) target: FaultTarget,
            /// Limit of occurrences in total; none by default.
            pub(super) times: Option<u32>,
            /// Limit of occurrences for each case; for faults of a collection, for each set of cases.
            pub(super) times_each: Option<u32>,
            pub(super) when: TimeWindow,
        }

        impl PlannedFault {
            /// Returns the keys of the given kinds, with the part of a run that each affects.
            pub(super) fn given(&self) -> Vec<(&'static str, FaultScope)> {
                let all = [$((stringify!($kind), FaultScope::$scope, self.$kind.is_some()),)*];
                all.into_iter().filter(|kind| kind.2).map(|(key, scope, _)| (key, scope)).collect()
            }
        }
    };
}

/// The part of a run that a fault affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FaultScope {
    Case,
    /// A collection, also if only some of its cases match. A crash at exit is such a fault.
    Collection,
    /// A device, during the time window of the fault.
    Device,
}

/// Reads a fault without parameters as one with default parameters.
fn default_if_null<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    from: D,
) -> Result<Option<T>, D::Error> {
    Option::<T>::deserialize(from).map(|parameters| Some(parameters.unwrap_or_default()))
}

kinds! {
    /// The script's process ends.
    crash: ProcessCrash = Case,
    /// The script's process does not end.
    hang: ProcessHang = Case,
    /// The device's memory is not enough for a case.
    out_of_memory: OutOfMemory = Case,
    /// A kernel ends in an error of the runtime, after which the script cannot use the device.
    device_error: RuntimeDeviceError = Case,
    /// The profiler's clock is set to another time.
    clock_jump: ClockJump = Case,
    /// The profiler loses records.
    lost_records: LostRecords = Collection,
    /// Records of launches stand in the place of the records of later launches, so that the count is right.
    repeated_records: NoParameters = Collection,
    /// The exported table ends in the middle of a row.
    truncated_csv: TruncatedCsv = Collection,
    /// Rows of the exported table have too few cells.
    ragged_csv: RaggedCsv = Collection,
    /// msprof exports nothing and exits with 0.
    missing_output: MissingOutput = Collection,
    /// Records carry the number of another device.
    wrong_device_id: WrongDevice = Collection,
    /// Durations in the table are in another unit than its header states.
    wrong_unit: WrongUnit = Collection,
    /// The kernel runs on an AI CPU, as one without a binary for the AI cores does.
    ai_cpu_fallback: NoParameters = Case,
    /// Launches of the case take longer than others of the same case, in more cycles.
    unsteady_kernel: UnsteadyKernel = Case,
    /// A rank starts the collectives of the case later than the others.
    late_rank: LateRank = Case,
    /// A rank receives wrong data from the collective of the case.
    wrong_result: WrongData = Case,
    /// Launches of the case run as another kernel with the same shapes.
    renamed_kernel: RenamedKernel = Case,
    /// Launches of the case use one core, and take longer by the number of cores.
    one_core: NoParameters = Case,
    /// The timer has larger steps than the documented ones.
    coarse_timer: CoarseTimer = Collection,
    /// Records carry no number of a device.
    no_device_id: NoDeviceId = Collection,
    /// The disk is full when msprof exports.
    disk_full: DiskFull = Collection,
    /// All steps except kernels take longer.
    slow_device: SlowDevice = Device,
    /// Kernels take longer for the same cycles, and no reading of the device shows its lower clock.
    slow_kernels: SlowKernels = Device,
    /// The clock falls while a case is prepared and rises only after some time of launches; no reading shows it.
    idle_clock: IdleClock = Device,
    /// Another program uses the device, so that some kernels wait.
    neighbour: NeighbourProgram = Device,
    /// The device is hot and its clock is reduced.
    throttling: DeviceThrottling = Device,
    /// The device is no longer listed and cannot be used.
    device_lost: NoParameters = Device,
    /// A foreign process occupies the device.
    leftover_process: LeftoverProcess = Device,
}

parameters! {
    ProcessCrash {
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
        head: u32 = 0,
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
pub(super) struct NoParameters {}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum CrashSignal {
    Sigsegv,
    /// Sent by the system when the host runs out of memory.
    Sigkill,
    Sigabrt,
    Sigbus,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CrashAt {
    /// While a case is launched.
    Launch,
    /// When Python exits, after all launches and output.
    Exit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RecordsKept {
    Kept,
    /// All records except the ones of the last second of device time, which were not finalised.
    LastSecondLost,
    /// None; msprof finds no profiling data.
    None,
}

/// Pattern of the durations of a case's launches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum UnsteadyPattern {
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
pub(super) enum GrandchildLocation {
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
pub(super) enum MemoryAt {
    /// While the case's tensors are created.
    Arguments,
    /// When the call allocates its results.
    Launch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum HeldResource {
    /// Memory: others run out of memory.
    Memory,
    /// The device: others cannot initialise it.
    Device,
}
