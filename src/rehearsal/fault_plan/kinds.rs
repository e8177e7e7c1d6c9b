//! Kinds of faults with their parameters, which docs/rehearsal.md describes. Their effects are in `python/rehearsal/`.

use serde::{Deserialize, Deserializer, Serialize};

use super::{FaultTarget, TimeWindow};

/// Defines the fault with a field for each kind, of which exactly one is given, and the part of a run that it affects.
macro_rules! kinds {
    ($($kind:ident: $type:ident = $scope:ident,)*) => {
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub(crate) struct PlannedFault {
            $(
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
            pub(super) fn given(&self) -> Vec<(&'static str, FaultScope)> {
                let all = [$((stringify!($kind), FaultScope::$scope, self.$kind.is_some()),)*];
                all.into_iter().filter(|kind| kind.2).map(|(key, scope, _)| (key, scope)).collect()
            }
        }
    };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FaultScope {
    Case,
    /// A collection, also if only some of its cases match. A crash at exit is such a fault.
    Collection,
    Device,
}

fn default_if_null<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    from: D,
) -> Result<Option<T>, D::Error> {
    Option::<T>::deserialize(from).map(|parameters| Some(parameters.unwrap_or_default()))
}

kinds! {
    crash: ProcessCrash = Case,
    hang: ProcessHang = Case,
    out_of_memory: OutOfMemory = Case,
    device_error: RuntimeDeviceError = Case,
    clock_jump: ClockJump = Case,
    lost_records: LostRecords = Collection,
    repeated_records: NoParameters = Collection,
    truncated_csv: TruncatedCsv = Collection,
    ragged_csv: RaggedCsv = Collection,
    missing_output: MissingOutput = Collection,
    wrong_device_id: WrongDevice = Collection,
    wrong_unit: WrongUnit = Collection,
    ai_cpu_fallback: NoParameters = Case,
    unsteady_kernel: UnsteadyKernel = Case,
    late_rank: LateRank = Case,
    wrong_result: WrongData = Case,
    renamed_kernel: RenamedKernel = Case,
    one_core: NoParameters = Case,
    coarse_timer: CoarseTimer = Collection,
    no_device_id: NoDeviceId = Collection,
    disk_full: DiskFull = Collection,
    slow_device: SlowDevice = Device,
    slow_kernels: SlowKernels = Device,
    idle_clock: IdleClock = Device,
    neighbour: NeighbourProgram = Device,
    throttling: DeviceThrottling = Device,
    device_lost: NoParameters = Device,
    leftover_process: LeftoverProcess = Device,
}

parameters! {
    pub(crate) ProcessCrash {
        exit: Option<u8> = None,
        signal: Option<CrashSignal> = None,
        at: CrashAt = CrashAt::Launch,
        launch: u32 = 1,
        records: RecordsKept = RecordsKept::Kept,
    }
    pub(crate) ProcessHang {
        ignores_sigterm: bool = false,
        grandchild: GrandchildLocation = GrandchildLocation::None,
        launch: u32 = 1,
        seconds: Option<f64> = None,
    }
    pub(crate) OutOfMemory {
        at: MemoryAt = MemoryAt::Arguments,
    }
    pub(crate) RuntimeDeviceError {
        code: u32 = 507_015,
    }
    pub(crate) UnsteadyKernel {
        pattern: UnsteadyPattern = UnsteadyPattern::Drift,
        factor: f64 = 1.08,
        launch: u32 = 15,
        share: f64 = 0.5,
        length: u32 = 12,
    }
    pub(crate) RenamedKernel {
        name: String = "RenamedKernel".to_owned(),
        launch: u32 = 1,
        operator_only: bool = false,
    }
    pub(crate) ClockJump {
        seconds: f64 = -3600.0,
        launch: u32 = 1,
    }
    pub(crate) LateRank {
        rank: usize = 0,
        microseconds: f64 = 500.0,
    }
    pub(crate) WrongData {
        rank: usize = 0,
        element: u64 = 0,
    }
    pub(crate) LostRecords {
        head: u32 = 0,
        tail: u32 = 0,
    }
    pub(crate) TruncatedCsv {
        keeps: f64 = 0.5,
    }
    pub(crate) RaggedCsv {
        rows: u32 = 1,
    }
    pub(crate) MissingOutput {
        folder: bool = true,
        second_export: bool = true,
    }
    pub(crate) WrongDevice {
        shows: Option<u32> = None,
    }
    pub(crate) WrongUnit {
        factor: f64 = 1e3,
    }
    pub(crate) CoarseTimer {
        step: u32 = 1_000,
    }
    pub(crate) NoDeviceId {
        column: bool = true,
    }
    pub(crate) DiskFull {
        keeps: f64 = 0.0,
        second_export: bool = false,
    }
    pub(crate) SlowDevice {
        factor: f64 = 3.0,
    }
    pub(crate) SlowKernels {
        factor: f64 = 1.04,
    }
    pub(crate) IdleClock {
        factor: f64 = 1.2,
        milliseconds: f64 = 3.0,
    }
    pub(crate) NeighbourProgram {
        factor: f64 = 1.3,
        share: f64 = 0.3,
    }
    pub(crate) DeviceThrottling {
        factor: f64 = 1.4,
        temperature: i64 = 98,
    }
    pub(crate) LeftoverProcess {
        seconds: Option<f64> = None,
        pid: u32 = 4_100_017,
        name: String = "python3.11".to_owned(),
        free_mb: u64 = 0,
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
    Sigkill,
    Sigabrt,
    Sigbus,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CrashAt {
    Launch,
    Exit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RecordsKept {
    Kept,
    LastSecondLost,
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum UnsteadyPattern {
    Drift,
    Step,
    Burst,
    TwoModes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum GrandchildLocation {
    None,
    SameGroup,
    OwnGroup,
    OwnSession,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum MemoryAt {
    Arguments,
    Launch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum HeldResource {
    Memory,
    Device,
}
