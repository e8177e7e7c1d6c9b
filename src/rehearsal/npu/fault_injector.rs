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
    domain::Nanos,
    rehearsal::{
        fault_plan::{CrashAt, CrashSignal, FaultKind, HeldResource, MemoryAt, ProcessCrash, RecordsKept},
        faults::{ActiveFaults, SimulatedLatency},
    },
};

/// The position of one script, and the faults that fire there.
#[derive(Clone, Debug)]
pub(super) struct FaultInjector {
    faults: ActiveFaults,
    pub(super) pace: SimulatedLatency,
    /// The current case; `None` during setup.
    case: Option<u32>,
    /// Calls since the case's opening sentinel.
    launches: u32,
    /// Faults of the current case.
    striking: Vec<FaultKind>,
    /// Faults of the collection, after the script's start.
    of_collection: Option<Vec<FaultKind>>,
    /// Code of a kernel's error. It is raised late, and stays.
    error: Option<u32>,
    order: Option<PyAction>,
    slowness: f64,
    records: RecordsKept,
}

/// Effects of faults that msprof needs when the script has ended.
#[derive(Debug)]
pub(in crate::rehearsal) struct ScriptOutcome {
    /// Faults of the collection.
    pub(in crate::rehearsal) struck: Vec<FaultKind>,
    /// Records kept after a crash.
    pub(in crate::rehearsal) records: RecordsKept,
    /// Factor on the time of msprof.
    pub(in crate::rehearsal) slowness: f64,
}

const SYNCHRONIZE: &str = "torch.npu.synchronize";
const SET_DEVICE: &str = "torch.npu.set_device";
/// Ends a case.
const EMPTY_CACHE: &str = "torch.npu.empty_cache";
/// Calls that use no device.
const ASK_NO_DEVICE: [&str; 2] = ["torch.npu.device_count", "torch.npu.is_available"];
/// Duration of a hang without `seconds`, in real seconds, so that a process that cannot be ended does not stay for ever.
const A_DAY: f64 = 86_400.0;
const LOST: u32 = 507_033;
const BUSY: u32 = 507_899;

impl FaultInjector {
    pub(super) fn new(faults: ActiveFaults) -> Self {
        Self {
            pace: faults.pace(),
            faults,
            case: None,
            launches: 0,
            striking: Vec::new(),
            of_collection: None,
            error: None,
            order: None,
            slowness: 1.0,
            records: RecordsKept::Kept,
        }
    }

    /// Injects faults before a call is compared; the error is the exception of a fault.
    pub(super) fn before(
        &mut self,
        api: &str,
        log: &mut LaunchLog,
        memory: &mut TensorMemory,
    ) -> Result<(), PyError> {
        if self.of_collection.is_none() {
            self.begin();
        }
        self.look_at_the_device(api, log, memory)?;
        match api {
            SET_DEVICE => self.pace.owe(self.faults.costs().init),
            SYNCHRONIZE => {
                if let Some(code) = self.error {
                    return Err(device_error(code, "synchronize", self.faults.device()));
                }
            }
            _ if log.is_in_case() => self.on_launch(log, memory),
            _ => {}
        }
        Ok(())
    }

    /// Updates the position after a call.
    pub(super) fn after(&mut self, api: &str, log: &mut LaunchLog, memory: &mut TensorMemory) {
        match (api, self.case) {
            (SYNCHRONIZE, None) => self.enter(0, log, memory),
            (EMPTY_CACHE, Some(case)) => self.enter(case + 1, log, memory),
            _ => {}
        }
    }

    /// Returns the action for Python after the answer.
    pub(super) fn take_order(&mut self) -> Option<PyAction> {
        self.order.take()
    }

    pub(super) fn end(&mut self) -> ScriptOutcome {
        let struck = self.of_collection.take().unwrap_or_default();
        ScriptOutcome { struck, records: self.records, slowness: self.slowness }
    }

    fn begin(&mut self) {
        self.pace.owe(self.faults.costs().start);
        let struck = self.faults.of_collection();
        let at_exit = |kind: &FaultKind| match kind {
            FaultKind::Crash(crash) if crash.at == CrashAt::Exit => Some(crash.clone()),
            _ => None,
        };
        if let Some(crash) = struck.iter().find_map(at_exit) {
            self.records = crash.records;
            self.order = Some(PyAction::AtExit(Box::new(ending(&crash))));
        }
        self.of_collection = Some(struck);
    }

    fn look_at_the_device(
        &mut self,
        api: &str,
        log: &mut LaunchLog,
        memory: &mut TensorMemory,
    ) -> Result<(), PyError> {
        let device = self.faults.device();
        let state = self.faults.of_device(device);
        self.slowness = state.slowness;
        self.pace.slow_down(state.slowness);
        log.throttle(state.throttling.map_or(1.0, |throttling| throttling.factor));
        memory.hold(device, state.held_by.as_ref().map(|process| process.free_mb.saturating_mul(1 << 20)));
        if state.is_lost && !ASK_NO_DEVICE.contains(&api) {
            return Err(device_error(LOST, api, device));
        }
        if api == SET_DEVICE && state.held_by.is_some_and(|process| process.holds == HeldResource::Device) {
            return Err(device_error(BUSY, api, device));
        }
        Ok(())
    }

    fn enter(&mut self, case: u32, log: &mut LaunchLog, memory: &mut TensorMemory) {
        self.case = Some(case);
        log.leave_case();
        self.launches = 0;
        self.striking = self.faults.of_case(case);
        if self.faults.has_case(case) {
            self.pace.owe(self.faults.costs().case);
        }
        let exhausted = |kind: &FaultKind| matches!(kind, FaultKind::OutOfMemory(found) if found.at == MemoryAt::Arguments);
        memory.exhaust(self.striking.iter().any(exhausted));
    }

    fn on_launch(&mut self, log: &mut LaunchLog, memory: &mut TensorMemory) {
        self.launches += 1;
        self.pace.owe(self.faults.costs().launch);
        for kind in &self.striking {
            match kind {
                FaultKind::Crash(crash) if crash.launch == self.launches => {
                    self.records = crash.records;
                    self.order = Some(ending(crash));
                }
                FaultKind::Hang(hang) if hang.launch == self.launches => {
                    let seconds = hang.seconds.map_or(A_DAY, |seconds| self.faults.real(seconds));
                    let (ignores_sigterm, grandchild) = (hang.ignores_sigterm, hang.grandchild);
                    self.order = Some(PyAction::Hang { ignores_sigterm, grandchild, seconds });
                }
                FaultKind::ClockJump(jump) if jump.launch == self.launches => {
                    log.jump(Nanos((jump.seconds * 1e9) as i64));
                }
                FaultKind::DeviceError(error) => self.error = Some(error.code),
                FaultKind::OutOfMemory(found) if found.at == MemoryAt::Launch => memory.exhaust(true),
                _ => {}
            }
        }
    }
}

/// The action with which a crash ends the process.
fn ending(crash: &ProcessCrash) -> PyAction {
    match (crash.exit, crash.signal.unwrap_or(CrashSignal::SIGSEGV)) {
        (Some(code), _) => PyAction::Exit(code),
        (None, signal) => PyAction::Signal(match signal {
            CrashSignal::SIGSEGV => nix::libc::SIGSEGV,
            CrashSignal::SIGKILL => nix::libc::SIGKILL,
            CrashSignal::SIGABRT => nix::libc::SIGABRT,
            CrashSignal::SIGBUS => nix::libc::SIGBUS,
        }),
    }
}

/// An error of the runtime, in torch_npu's wording.
fn device_error(code: u32, api: &str, device: u32) -> PyError {
    let meaning = match code {
        107_001 => "Invalid device ID.",
        107_002 => "The context is empty.",
        507_015 => "The aicore execution is abnormal.",
        507_018 => "The aicpu execution is abnormal.",
        507_033 => "Failed to start the device.",
        507_035 => "The vector core execution is abnormal.",
        BUSY => "EL0005: The resources are busy.",
        _ => "An error of the runtime.",
    };
    let (place, call) = match api {
        SET_DEVICE => ("Initialize", "c10_npu::SetDevice(device_id_)"),
        _ => ("synchronize", "c10_npu::acl::AclrtSynchronizeStreamWithTimeout(stream())"),
    };
    let now = jiff::Zoned::now().strftime("%Y-%m-%d-%H:%M:%S").to_string();
    runtime(format!(
        "{place}:build/CMakeFiles/torch_npu.dir/compiler_depend.ts:361 NPU function error: {call}, error code is {code}\n\
         [ERROR] {now} (PID:{}, Device:{device}, RankID:-1) ERR00100 PTA call acl api failed\n[Error]: {meaning}\n        \
         Rectify the fault based on the error information in the ascend log.",
        std::process::id()
    ))
}
