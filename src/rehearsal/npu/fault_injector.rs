//! Where a script is on its way through its cases, as its calls tell, and which faults strike it there.
//!
//! A script sets up, says so by the first `synchronize`, and then goes from case to case; `empty_cache` ends each.
//! Between the sentinels of a case every call is a launch of it.

use super::{
    launch_log::Tape,
    protocol::{Order, Raised, runtime},
    tensors::Memory,
};
use crate::{
    domain::Nanos,
    rehearsal::{
        fault_plan::{Crash, CrashAt, Holds, Kind, MemoryAt, Records, Signal},
        faults::{Faults, Pace},
    },
};

/// The way of one script.
#[derive(Clone, Debug)]
pub(super) struct Course {
    faults: Faults,
    pub(super) pace: Pace,
    /// The case at hand; none while the script sets up.
    case: Option<u32>,
    /// Calls since the case's opening sentinel.
    launches: u32,
    /// What strikes the case at hand.
    striking: Vec<Kind>,
    /// What strikes the collection, once the script has begun.
    of_collection: Option<Vec<Kind>>,
    /// The code of an error that a kernel has ended in. It arrives late, and stays.
    error: Option<u32>,
    order: Option<Order>,
    slowness: f64,
    records: Records,
}

/// What msprof has to know when the script has ended.
#[derive(Debug)]
pub(in crate::rehearsal) struct Outcome {
    /// What struck the collection.
    pub(in crate::rehearsal) struck: Vec<Kind>,
    /// What a crash has left of the records.
    pub(in crate::rehearsal) records: Records,
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

impl Course {
    pub(super) fn new(faults: Faults) -> Self {
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
            records: Records::Kept,
        }
    }

    /// Before a call is judged. Raises what strikes it.
    pub(super) fn before(&mut self, api: &str, tape: &mut Tape, memory: &mut Memory) -> Result<(), Raised> {
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
    pub(super) fn after(&mut self, api: &str, tape: &mut Tape, memory: &mut Memory) {
        match (api, self.case) {
            (SYNCHRONIZE, None) => self.enter(0, tape, memory),
            (EMPTY_CACHE, Some(case)) => self.enter(case + 1, tape, memory),
            _ => {}
        }
    }

    /// What Python is to do when it has the answer.
    pub(super) fn take_order(&mut self) -> Option<Order> {
        self.order.take()
    }

    pub(super) fn end(&mut self) -> Outcome {
        let struck = self.of_collection.take().unwrap_or_default();
        Outcome { struck, records: self.records, slowness: self.slowness }
    }

    fn begin(&mut self) {
        self.pace.owe(self.faults.costs().start);
        let struck = self.faults.of_collection();
        let at_exit = |kind: &Kind| match kind {
            Kind::Crash(crash) if crash.at == CrashAt::Exit => Some(crash.clone()),
            _ => None,
        };
        if let Some(crash) = struck.iter().find_map(at_exit) {
            self.records = crash.records;
            self.order = Some(Order::AtExit(Box::new(ending(&crash))));
        }
        self.of_collection = Some(struck);
    }

    fn look_at_the_device(&mut self, api: &str, tape: &mut Tape, memory: &mut Memory) -> Result<(), Raised> {
        let device = self.faults.device();
        let state = self.faults.of_device(device);
        self.slowness = state.slowness;
        self.pace.slow_down(state.slowness);
        tape.throttle(state.throttling.map_or(1.0, |throttling| throttling.factor));
        memory.hold(device, state.held_by.as_ref().map(|process| process.free_mb.saturating_mul(1 << 20)));
        if state.is_lost && !ASK_NO_DEVICE.contains(&api) {
            return Err(device_error(LOST, api, device));
        }
        if api == SET_DEVICE && state.held_by.is_some_and(|process| process.holds == Holds::Device) {
            return Err(device_error(BUSY, api, device));
        }
        Ok(())
    }

    fn enter(&mut self, case: u32, tape: &mut Tape, memory: &mut Memory) {
        self.case = Some(case);
        tape.leave_case();
        self.launches = 0;
        self.striking = self.faults.of_case(case);
        if self.faults.has_case(case) {
            self.pace.owe(self.faults.costs().case);
        }
        let exhausted =
            |kind: &Kind| matches!(kind, Kind::OutOfMemory(found) if found.at == MemoryAt::Arguments);
        memory.exhaust(self.striking.iter().any(exhausted));
    }

    fn on_launch(&mut self, tape: &mut Tape, memory: &mut Memory) {
        self.launches += 1;
        self.pace.owe(self.faults.costs().launch);
        for kind in &self.striking {
            match kind {
                Kind::Crash(crash) if crash.launch == self.launches => {
                    self.records = crash.records;
                    self.order = Some(ending(crash));
                }
                Kind::Hang(hang) if hang.launch == self.launches => {
                    let seconds = hang.seconds.map_or(A_DAY, |seconds| self.faults.real(seconds));
                    let (ignores_sigterm, grandchild) = (hang.ignores_sigterm, hang.grandchild);
                    self.order = Some(Order::Hang { ignores_sigterm, grandchild, seconds });
                }
                Kind::ClockJump(jump) if jump.launch == self.launches => {
                    tape.jump(Nanos((jump.seconds * 1e9) as i64));
                }
                Kind::DeviceError(error) => self.error = Some(error.code),
                Kind::OutOfMemory(found) if found.at == MemoryAt::Launch => memory.exhaust(true),
                _ => {}
            }
        }
    }
}

/// How a crash ends the process.
fn ending(crash: &Crash) -> Order {
    match (crash.exit, crash.signal.unwrap_or(Signal::SIGSEGV)) {
        (Some(code), _) => Order::Exit(code),
        (None, signal) => Order::Signal(match signal {
            Signal::SIGSEGV => nix::libc::SIGSEGV,
            Signal::SIGKILL => nix::libc::SIGKILL,
            Signal::SIGABRT => nix::libc::SIGABRT,
            Signal::SIGBUS => nix::libc::SIGBUS,
        }),
    }
}

/// An error of the runtime, worded as torch_npu passes it on.
fn device_error(code: u32, api: &str, device: u32) -> Raised {
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
