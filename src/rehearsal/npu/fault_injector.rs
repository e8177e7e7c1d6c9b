//! Injects faults into a script, by its position in the list of cases.
//!
//! The position follows from the calls: the first `synchronize` ends the setup, `empty_cache` ends a case. Between the
//! sentinels of a case every call is a launch of it.

use super::{
    launch_log::LaunchLog,
    protocol::{PyAction, PyError, runtime},
    tensors::TensorMemory,
};
use crate::{
    base::stats::pick_number,
    kernel::{LogicalDeviceId, Nanos},
    rehearsal::{
        fault_plan::{
            CrashAt, CrashSignal, FaultKind, HeldResource, MemoryAt, ProcessCrash, RecordsKept,
            UnsteadyKernel, UnsteadyPattern,
        },
        faults::{ActiveFaults, SimulatedLatency},
    },
};

/// The position of one script, and the faults that fire there.
#[derive(Clone, Debug)]
pub(super) struct FaultInjector {
    faults: ActiveFaults,
    pub(super) latency: SimulatedLatency,
    /// The current case; `None` during setup.
    case: Option<u32>,
    /// Calls since the case's opening sentinel.
    launches: u32,
    case_faults: Vec<FaultKind>,
    /// `None` before the script's start.
    collection_faults: Option<Vec<FaultKind>>,
    /// Code of a kernel's error. It is raised late, and stays.
    error: Option<u32>,
    /// An error of a call that is raised at the next synchronize, and stays.
    deferred: Option<PyError>,
    /// True if errors of workspace memory are deferred.
    pub(super) has_deferred_errors: bool,
    /// Action of the Python process after the next answer.
    pub(super) action: Option<PyAction>,
    slowness: f64,
    records: RecordsKept,
}

/// Effects of faults that msprof needs when the script has ended.
#[derive(Debug)]
pub(in crate::rehearsal) struct ScriptOutcome {
    /// Faults of the collection.
    pub(in crate::rehearsal) faults: Vec<FaultKind>,
    pub(in crate::rehearsal) records: RecordsKept,
    /// Factor on the time of msprof.
    pub(in crate::rehearsal) slowness: f64,
    /// True if the program ended regularly.
    pub(in crate::rehearsal) is_finalised: bool,
}

const SYNCHRONIZE: &str = "torch.npu.synchronize";
const SET_DEVICE: &str = "torch.npu.set_device";
/// Ends a case.
const EMPTY_CACHE: &str = "torch.npu.empty_cache";
/// Calls that use no device.
const CALLS_WITHOUT_DEVICE: [&str; 3] =
    ["torch.npu.device_count", "torch.npu.is_available", "torch._C._jit_get_all_schemas"];
/// Duration of a hang without `seconds`, in real seconds, so that a process that cannot be ended does not stay for
/// ever.
const DEFAULT_HANG_SECONDS: f64 = 86_400.0;
const DEVICE_LOST: u32 = 507_033;
const DEVICE_BUSY: u32 = 507_899;

impl FaultInjector {
    pub(super) fn new(faults: ActiveFaults) -> Self {
        Self {
            latency: SimulatedLatency::new(faults.plan.speed),
            faults,
            case: None,
            launches: 0,
            case_faults: Vec::new(),
            collection_faults: None,
            error: None,
            deferred: None,
            has_deferred_errors: false,
            action: None,
            slowness: 1.0,
            records: RecordsKept::Kept,
        }
    }

    /// Injects faults before a call is compared; the error is the exception of a fault.
    pub(super) fn before_call(
        &mut self,
        api: &str,
        log: &mut LaunchLog,
        memory: &mut TensorMemory,
    ) -> Result<(), PyError> {
        if self.collection_faults.is_none() {
            self.start_script();
        }
        self.apply_device_faults(api, log, memory)?;
        match api {
            SET_DEVICE => self.latency.add(self.faults.plan.costs.init),
            SYNCHRONIZE => {
                if let Some(error) = &self.deferred {
                    return Err(error.clone());
                }
                if let Some(code) = self.error {
                    return Err(device_error(code, "synchronize", self.faults.logical_id));
                }
            }
            _ if log.case.is_some() => self.on_launch(log, memory),
            _ => {}
        }
        Ok(())
    }

    /// Sets the rank of the process, for faults of one rank.
    pub(super) fn set_rank(&mut self, rank: usize) {
        self.faults.rank = rank;
    }

    /// Makes the next `synchronize` raise an error of the runtime.
    pub(super) fn fail_at_synchronize(&mut self, code: u32) {
        self.error = Some(code);
    }

    /// Updates the position after a call.
    pub(super) fn after_call(&mut self, api: &str, log: &mut LaunchLog, memory: &mut TensorMemory) {
        match (api, self.case) {
            (SYNCHRONIZE, None) => self.start_case(0, log, memory),
            (EMPTY_CACHE, Some(case)) => {
                log.busy_since_idle = Nanos(0);
                self.start_case(case + 1, log, memory);
            }
            _ => {}
        }
    }

    pub(super) fn outcome(&mut self, is_finalised: bool) -> ScriptOutcome {
        let faults = self.collection_faults.take().unwrap_or_default();
        ScriptOutcome { faults, records: self.records, slowness: self.slowness, is_finalised }
    }

    fn start_script(&mut self) {
        self.latency.add(self.faults.plan.costs.start);
        let faults = self.faults.fire_for_collection();
        let at_exit = |kind: &FaultKind| match kind {
            FaultKind::Crash(crash) if crash.at == CrashAt::Exit => Some(crash.clone()),
            _ => None,
        };
        if let Some(crash) = faults.iter().find_map(at_exit) {
            self.records = crash.records;
            self.action = Some(PyAction::AtExit(Box::new(crash_action(&crash))));
        }
        self.collection_faults = Some(faults);
    }

    fn apply_device_faults(
        &mut self,
        api: &str,
        log: &mut LaunchLog,
        memory: &mut TensorMemory,
    ) -> Result<(), PyError> {
        let device = self.faults.logical_id;
        let state = self.faults.device_state(self.faults.device);
        self.slowness = state.slowness;
        self.latency.slowness = state.slowness;
        log.shown_slowdown = state.throttling.map_or(1.0, |throttling| throttling.factor);
        log.slowdown = log.shown_slowdown * state.kernel_slowness;
        log.idle_clock = state.idle_clock;
        log.neighbour = state.neighbour;
        memory.limit_free(
            device.0,
            state.leftover_process.as_ref().map(|process| process.free_mb.saturating_mul(1 << 20)),
        );
        if state.is_lost && !CALLS_WITHOUT_DEVICE.contains(&api) {
            return Err(device_error(DEVICE_LOST, api, device));
        }
        if api == SET_DEVICE
            && state.leftover_process.is_some_and(|process| process.holds == HeldResource::Device)
        {
            return Err(device_error(DEVICE_BUSY, api, device));
        }
        Ok(())
    }

    fn start_case(&mut self, case: u32, log: &mut LaunchLog, memory: &mut TensorMemory) {
        self.case = Some(case);
        log.case = None;
        log.is_on_ai_cpu = false;
        log.is_on_one_core = false;
        log.renaming = None;
        log.unsteadiness = 1.0;
        self.launches = 0;
        self.case_faults = self.faults.fire_for_case(case);
        log.late_start = Nanos(0);
        log.wrong_element = None;
        for kind in &self.case_faults {
            match kind {
                FaultKind::LateRank(late) => log.late_start = Nanos((late.microseconds * 1e3) as i64),
                FaultKind::WrongResult(wrong) => log.wrong_element = Some(wrong.element),
                _ => {}
            }
        }
        if self.faults.has_case(case) {
            self.latency.add(self.faults.plan.costs.case);
        }
        let exhausts_memory = |kind: &FaultKind| matches!(kind, FaultKind::OutOfMemory(found) if found.at == MemoryAt::Arguments);
        memory.is_exhausted = self.case_faults.iter().any(exhausts_memory);
    }

    fn on_launch(&mut self, log: &mut LaunchLog, memory: &mut TensorMemory) {
        self.launches += 1;
        self.latency.add(self.faults.plan.costs.launch);
        for kind in &self.case_faults {
            match kind {
                FaultKind::Crash(crash) if crash.launch == self.launches => {
                    self.records = crash.records;
                    self.action = Some(crash_action(crash));
                }
                FaultKind::Hang(hang) if hang.launch == self.launches => {
                    let seconds =
                        hang.seconds.map_or(DEFAULT_HANG_SECONDS, |seconds| seconds / self.faults.plan.speed);
                    let (ignores_sigterm, grandchild) = (hang.ignores_sigterm, hang.grandchild);
                    self.action = Some(PyAction::Hang { ignores_sigterm, grandchild, seconds });
                }
                FaultKind::ClockJump(jump) if jump.launch == self.launches => {
                    log.jump(Nanos((jump.seconds * 1e9) as i64));
                }
                FaultKind::DeviceError(error) => self.error = Some(error.code),
                FaultKind::AiCpuFallback(_) => log.is_on_ai_cpu = true,
                FaultKind::OneCore(_) => log.is_on_one_core = true,
                FaultKind::RenamedKernel(renamed) if self.launches >= renamed.launch => {
                    log.renaming = Some(renamed.clone());
                }
                FaultKind::UnsteadyKernel(unsteady) => {
                    let ordinal = self.case.unwrap_or_default();
                    log.unsteadiness = launch_factor(unsteady, ordinal, self.launches);
                }
                FaultKind::OutOfMemory(found) if found.at == MemoryAt::Launch => {
                    if self.has_deferred_errors {
                        self.deferred = Some(memory.out_of_memory_error(self.faults.device, 1 << 20, 0));
                    } else {
                        memory.is_exhausted = true;
                    }
                }
                _ => {}
            }
        }
    }
}

/// Returns the factor of the duration of a launch, which counts from 1, of the case with an ordinal.
fn launch_factor(unsteady: &UnsteadyKernel, ordinal: u32, launch: u32) -> f64 {
    let more = unsteady.factor - 1.0;
    let part = match unsteady.pattern {
        UnsteadyPattern::Drift => f64::from(launch) / f64::from(unsteady.launch),
        UnsteadyPattern::Step => f64::from(u8::from(launch >= unsteady.launch)),
        UnsteadyPattern::Burst => {
            let is_inside =
                launch.checked_sub(unsteady.launch).is_some_and(|number| number < unsteady.length);
            f64::from(u8::from(is_inside))
        }
        UnsteadyPattern::TwoModes => {
            const PARTS: u64 = 1 << 20;
            let draw = pick_number(&[u64::from(ordinal), u64::from(launch)], PARTS) as f64;
            f64::from(u8::from(draw < unsteady.share * PARTS as f64))
        }
    };
    1.0 + more * part
}

/// The action with which a crash ends the process.
fn crash_action(crash: &ProcessCrash) -> PyAction {
    match crash.exit {
        Some(code) => PyAction::Exit(code),
        None => PyAction::Signal(crash.signal.unwrap_or(CrashSignal::Sigsegv) as i32),
    }
}

/// An error of the runtime, in torch_npu's wording.
fn device_error(code: u32, api: &str, device: LogicalDeviceId) -> PyError {
    let meaning = match code {
        107_001 => "Invalid device ID.",
        107_002 => "The context is empty.",
        507_015 => "The aicore execution is abnormal.",
        507_018 => "The aicpu execution is abnormal.",
        507_033 => "Failed to start the device.",
        507_035 => "The vector core execution is abnormal.",
        DEVICE_BUSY => "EL0005: The resources are busy.",
        _ => "An error of the runtime.",
    };
    let (step, call) = match api {
        SET_DEVICE => ("Initialize", "c10_npu::SetDevice(device_id_)"),
        _ => ("synchronize", "c10_npu::acl::AclrtSynchronizeStreamWithTimeout(stream())"),
    };
    let now = jiff::Zoned::now().strftime("%Y-%m-%d-%H:%M:%S").to_string();
    runtime(format!(
        "{step}:build/CMakeFiles/torch_npu.dir/compiler_depend.ts:361 NPU function error: {call}, error code is {code}\n\
         [ERROR] {now} (PID:{}, Device:{device}, RankID:-1) ERR00100 PTA call acl api failed\n[Error]: {meaning}\n        \
         Rectify the fault based on the error information in the ascend log.",
        std::process::id()
    ))
}
