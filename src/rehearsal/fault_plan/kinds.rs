//! Kinds of faults with their parameters, which docs/rehearsal.md describes. Their effects are in `python/rehearsal/`.

use serde::{Deserialize, Deserializer, Serialize};

use super::{FaultTarget, TimeWindow};

/// Defines the fault with a field for each kind, of which exactly one is given, and for each kind the part of a run that it
/// affects, and its parameters with their defaults.
macro_rules! kinds {
    ($($kind:ident: $type:ident = $scope:ident { $($parameter:tt)* })*) => {
        parameters! { $(pub(crate) $type { $($parameter)* })* }

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
    crash: ProcessCrash = Case {
        exit: Option<u8> = None,
        signal: Option<CrashSignal> = None,
        at: CrashAt = CrashAt::Launch,
        launch: u32 = 1,
        records: UnfinalisedRecords = UnfinalisedRecords::IdleDriver,
    }
    hang: ProcessHang = Case {
        ignores_sigterm: bool = false,
        grandchild: GrandchildLocation = GrandchildLocation::None,
        launch: u32 = 1,
        seconds: Option<f64> = None,
    }
    out_of_memory: OutOfMemory = Case {
        at: MemoryAt = MemoryAt::Arguments,
    }
    device_error: RuntimeDeviceError = Case {
        code: u32 = 507_015,
    }
    error_text: RaisedError = Case {
        text: String = String::new(),
        at: RaisedAt = RaisedAt::Synchronize,
    }
    clock_jump: ClockJump = Case {
        seconds: f64 = -3600.0,
        launch: u32 = 1,
    }
    lost_records: LostRecords = Collection {
        head: u32 = 0,
        tail: u32 = 0,
    }
    repeated_records: RepeatedRecords = Collection {}
    truncated_csv: TruncatedCsv = Collection {
        keeps: f64 = 0.5,
    }
    ragged_csv: RaggedCsv = Collection {
        rows: u32 = 1,
    }
    lost_raw_data: LostRawData = Collection {}
    missing_output: MissingOutput = Collection {
        folder: bool = true,
        second_export: bool = true,
    }
    wrong_device_id: WrongDevice = Collection {
        shows: Option<u32> = None,
    }
    wrong_unit: WrongUnit = Collection {
        factor: f64 = 1e3,
    }
    ai_cpu_fallback: AiCpuFallback = Case {}
    unsteady_kernel: UnsteadyKernel = Case {
        pattern: UnsteadyPattern = UnsteadyPattern::Drift,
        factor: f64 = 1.08,
        launch: u32 = 15,
        share: f64 = 0.5,
        length: u32 = 12,
    }
    late_rank: LateRank = Case {
        rank: usize = 0,
        microseconds: f64 = 500.0,
    }
    wrong_result: WrongData = Case {
        rank: usize = 0,
        element: u64 = 0,
    }
    renamed_kernel: RenamedKernel = Case {
        name: String = "RenamedKernel".to_owned(),
        launch: u32 = 1,
        operator_only: bool = false,
    }
    one_core: OneCore = Case {}
    coarse_timer: CoarseTimer = Collection {
        step: u32 = 1_000,
    }
    no_device_id: NoDeviceId = Collection {
        column: bool = true,
    }
    disk_full: DiskFull = Collection {
        keeps: f64 = 0.0,
        second_export: bool = false,
    }
    slow_device: SlowDevice = Device {
        factor: f64 = 3.0,
    }
    slow_kernels: SlowKernels = Device {
        factor: f64 = 1.04,
    }
    idle_clock: IdleClock = Device {
        factor: f64 = 1.2,
        milliseconds: f64 = 3.0,
    }
    neighbour: NeighbourProgram = Device {
        factor: f64 = 1.3,
        share: f64 = 0.3,
    }
    throttling: DeviceThrottling = Device {
        factor: f64 = 1.4,
        temperature: i64 = 98,
    }
    device_lost: DeviceLost = Device {}
    leftover_process: LeftoverProcess = Device {
        seconds: Option<f64> = None,
        pid: u32 = 4_100_017,
        name: String = "python3.11".to_owned(),
        free_mb: u64 = 0,
        holds: HeldResource = HeldResource::Memory,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum CrashSignal {
    Sigsegv,
    Sigkill,
    Sigabrt,
    Sigbus,
}

words! {
    pub(super) CrashAt { Launch, Exit }
    pub(super) UnfinalisedRecords { IdleDriver, BusyDriver, None }
    pub(super) RaisedAt { Synchronize, Launch }
    pub(super) UnsteadyPattern { Drift, Step, Burst, TwoModes }
    pub(super) GrandchildLocation { None, SameGroup, OwnGroup, OwnSession }
    pub(super) MemoryAt { Arguments, Launch }
    pub(super) HeldResource { Memory, Device }
}
