//! Where a script is on its way through its cases, as its calls tell, and which faults strike it there.
//!
//! A script sets up, says so by the first `synchronize`, and then goes from case to case; `empty_cache` ends each.
//! Between the sentinels of a case every call is a launch of it.

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

/// The way of one script.
#[derive(Clone, Debug)]
pub(super) struct FaultInjector {
    faults: ActiveFaults,
    pub(super) pace: SimulatedLatency,
    /// The case at hand; none while the script sets up.
    case: Option<u32>,
    /// Calls since the case's opening sentinel.
    launches: u32,
    /// What strikes the case at hand.
    striking: Vec<FaultKind>,
    /// What strikes the collection, once the script has begun.
    of_collection: Option<Vec<FaultKind>>,
    /// The code of an error that a kernel has ended in. It arrives late, and stays.
    error: Option<u32>,
    order: Option<PyAction>,
    slowness: f64,
    records: RecordsKept,
}

/// What msprof has to know when the script has ended.
#[derive(Debug)]
pub(in crate::rehearsal) struct ScriptOutcome {
    /// What struck the collection.
    pub(in crate::rehearsal) struck: Vec<FaultKind>,
    /// What a crash has left of the records.
    pub(in crate::rehearsal) records: RecordsKept,
    /// How many times as long msprof takes.
    pub(in crate::rehearsal) slowness: f64,
}

const SYNCHRONIZE: &str = "torch.npu.synchronize";
const SET_DEVICE: &str = "torch.npu.set_device";
/// Ends a case.
const EMPTY_CACHE: &str = "torch.npu.empty_cache";
/// Calls that ask no device.
const ASK_NO_DEVICE: [&str; 2] = ["torch.npu.device_count", "torch.npu.is_available"];
/// How long a hang lasts that has no end, in real seconds: whatever fails to end it, it does not stay for ever.
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

    /// Before a call is judged. Raises what strikes it.
    pub(super) fn before(
        &mut self,
        api: &str,
        tape: &mut LaunchLog,
        memory: &mut TensorMemory,
    ) -> Result<(), PyError> {
        if self.of_collection.is_none() {
            self.begin();
        }
        self.look_at_the_device(api, tape, memory)?;
        match api {
            SET_DEVICE => self.pace.owe(self.faults.costs().init),
            SYNCHRONIZE => {
                if let Some(code) = self.error {
                    return Err(device_error(code, "synchronize", self.faults.device()));
                }
            }
            _ if tape.is_in_case() => self.on_launch(tape, memory),
            _ => {}
        }
        Ok(())
    }

    /// When a call has been answered.
    pub(super) fn after(&mut self, api: &str, tape: &mut LaunchLog, memory: &mut TensorMemory) {
        match (api, self.case) {
            (SYNCHRONIZE, None) => self.enter(0, tape, memory),
            (EMPTY_CACHE, Some(case)) => self.enter(case + 1, tape, memory),
            _ => {}
        }
    }

    /// What Python is to do when it has the answer.
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
        tape: &mut LaunchLog,
        memory: &mut TensorMemory,
    ) -> Result<(), PyError> {
        let device = self.faults.device();
        let state = self.faults.of_device(device);
        self.slowness = state.slowness;
        self.pace.slow_down(state.slowness);
        tape.throttle(state.throttling.map_or(1.0, |throttling| throttling.factor));
        memory.hold(device, state.held_by.as_ref().map(|process| process.free_mb.saturating_mul(1 << 20)));
        if state.is_lost && !ASK_NO_DEVICE.contains(&api) {
            return Err(device_error(LOST, api, device));
        }
        if api == SET_DEVICE && state.held_by.is_some_and(|process| process.holds == HeldResource::Device) {
            return Err(device_error(BUSY, api, device));
        }
        Ok(())
    }

    fn enter(&mut self, case: u32, tape: &mut LaunchLog, memory: &mut TensorMemory) {
        self.case = Some(case);
        tape.leave_case();
        self.launches = 0;
        self.striking = self.faults.of_case(case);
        if self.faults.has_case(case) {
            self.pace.owe(self.faults.costs().case);
        }
        let exhausted = |kind: &FaultKind| matches!(kind, FaultKind::OutOfMemory(found) if found.at == MemoryAt::Arguments);
        memory.exhaust(self.striking.iter().any(exhausted));
    }

    fn on_launch(&mut self, tape: &mut LaunchLog, memory: &mut TensorMemory) {
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
                    tape.jump(Nanos((jump.seconds * 1e9) as i64));
                }
                FaultKind::DeviceError(error) => self.error = Some(error.code),
                FaultKind::OutOfMemory(found) if found.at == MemoryAt::Launch => memory.exhaust(true),
                _ => {}
            }
        }
    }
}

/// How a crash ends the process.
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

/// An error of the runtime, worded as torch_npu passes it on.
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
