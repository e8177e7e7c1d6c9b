"""Injects faults into a script, by its position in the list of cases.

The position follows from the calls: the first `synchronize` ends the setup, `empty_cache` ends a case. Between the sentinels of
a case every call is a launch of it.
"""
import atexit
import os
import resource
import signal
import time

from .hashes import pick_number

SYNCHRONIZE, SET_DEVICE, EMPTY_CACHE = "torch.npu.synchronize", "torch.npu.set_device", "torch.npu.empty_cache"
WITHOUT_DEVICE = ("torch.npu.device_count", "torch.npu.is_available", "torch._C._jit_get_all_schemas")
# Duration of a hang without `seconds`, in real seconds, so that a process that cannot be ended does not stay for ever.
DEFAULT_HANG = 86400.0
CORE_EXCEPTION, DEVICE_LOST, DEVICE_BUSY = 507015, 507033, 507899
MEANINGS = {
    107001: "Invalid device ID.",
    107002: "The context is empty.",
    507015: "The aicore execution is abnormal.",
    507018: "The aicpu execution is abnormal.",
    507033: "Failed to start the device.",
    507035: "The vector core execution is abnormal.",
    DEVICE_BUSY: "EL0005: The resources are busy.",
}
# Shorter sleeps are accumulated, because the system's resolution is not finer.
MIN_SLEEP = 0.001


class Latency:
    """Sleep on top of the real time of the stand-ins. A slow device stretches the time between calls."""

    def __init__(self, speed, started):
        self.speed, self.slowness, self.pending, self.last = speed, 1.0, 0.0, started

    def add(self, simulated):
        self.pending += simulated / self.speed * self.slowness

    def sleep(self):
        now = time.monotonic()
        self.pending += (now - self.last) * (self.slowness - 1.0)
        self.last = now
        if self.pending >= MIN_SLEEP:
            pending, self.pending = self.pending, 0.0
            time.sleep(pending)
            # The sleep itself is not stretched again.
            self.last = time.monotonic()


class Injector:
    def __init__(self, plan, faults, log, memory, started):
        self.costs, self.faults, self.log, self.memory = plan["costs"], faults, log, memory
        self.latency = Latency(plan["speed"], started)
        # The current case; None during setup.
        self.case = None
        # Calls since the case's opening sentinel.
        self.launches = 0
        self.case_faults = []
        # The code of a kernel's error, which is raised late and stays, and an error of a call that is raised at the next
        # synchronize and stays.
        self.error = self.deferred = None
        # True if errors of workspace memory are deferred.
        self.has_deferred_errors = False
        # Action of the process after the present call.
        self.action = None
        self.has_started = False

    def before_call(self, api):
        """Injects faults before a call is compared."""
        if not self.has_started:
            self._start_script()
        if self.faults.of_devices:
            self._apply_device_faults(api)
        if api == SET_DEVICE:
            self.latency.add(self.costs["init"])
        elif api == SYNCHRONIZE:
            if self.deferred is not None:
                raise self.deferred
            if self.error is not None:
                raise device_error(self.error, "synchronize", self.faults.logical_id)
        elif self.log.case is not None:
            self._on_launch()

    def after_call(self, api):
        if api == SYNCHRONIZE:
            self.log.flush()
        if api == SYNCHRONIZE and self.case is None:
            self._start_case(0)
        elif api == EMPTY_CACHE and self.case is not None:
            self.log.busy_since_idle = 0
            self._start_case(self.case + 1)

    def end_call(self):
        self.latency.sleep()
        if self.action is not None:
            action, self.action = self.action, None
            self.log.flush()
            action()

    def _start_script(self):
        self.has_started = True
        self.latency.add(self.costs["start"])
        fired = self.faults.for_collection()
        self.log.emit("faults", fired)
        crash = next((parameters for kind, parameters in fired if kind == "crash"), None)
        if crash is not None:
            self.log.emit("records", crash["records"])
            self.action = lambda: atexit.register(self._crash_at_exit, crash)

    def _crash_at_exit(self, crash):
        self.log.flush()
        _crash(crash)

    def _apply_device_faults(self, api):
        log, state = self.log, self.faults.of_device(self.faults.device)
        slowness = state.get("slow_device", {}).get("factor", 1.0)
        if slowness != self.latency.slowness:
            self.latency.slowness = log.host_slowness = slowness
            log.emit("slowness", slowness)
        log.shown_slowdown = state.get("throttling", {}).get("factor", 1.0)
        log.slowdown = log.shown_slowdown * state.get("slow_kernels", {}).get("factor", 1.0)
        log.idle_clock, log.neighbour = state.get("idle_clock"), state.get("neighbour")
        leftover = state.get("leftover_process")
        self.memory.free_limits = {self.faults.logical_id: leftover["free_mb"] << 20} if leftover else {}
        if "device_lost" in state and api not in WITHOUT_DEVICE:
            raise device_error(DEVICE_LOST, api, self.faults.logical_id)
        if api == SET_DEVICE and leftover and leftover["holds"] == "device":
            raise device_error(DEVICE_BUSY, api, self.faults.logical_id)

    def _start_case(self, case):
        self.case, self.launches = case, 0
        self.log.start_case()
        self.case_faults = self.faults.for_case(case)
        self.memory.is_exhausted = False
        for kind, parameters in self.case_faults:
            if kind == "late_rank":
                self.log.late_start = int(parameters["microseconds"] * 1e3)
            elif kind == "wrong_result":
                self.log.wrong_element = parameters["element"]
            elif kind == "out_of_memory" and parameters["at"] == "arguments":
                self.memory.is_exhausted = True
        if any(each["ordinal"] == case for each in self.faults.cases):
            self.latency.add(self.costs["case"])

    def _on_launch(self):
        self.launches += 1
        self.latency.add(self.costs["launch"])
        log = self.log
        for kind, parameters in self.case_faults:
            is_now = parameters.get("launch") == self.launches
            if kind == "crash" and is_now:
                log.emit("records", parameters["records"])
                self.action = lambda crash=parameters: _crash(crash)
            elif kind == "hang" and is_now:
                seconds = parameters["seconds"]
                seconds = DEFAULT_HANG if seconds is None else seconds / self.latency.speed
                self.action = lambda hang=parameters: _hang(seconds, hang["ignores_sigterm"], hang["grandchild"])
            elif kind == "clock_jump" and is_now:
                log.jump(int(parameters["seconds"] * 1e9))
            elif kind == "device_error":
                self.error = parameters["code"]
            elif kind == "error_text" and self.launches == 1:
                if parameters["at"] == "launch":
                    raise RuntimeError(parameters["text"])
                self.deferred = RuntimeError(parameters["text"])
            elif kind == "ai_cpu_fallback":
                log.is_on_ai_cpu = True
            elif kind == "one_core":
                log.is_on_one_core = True
            elif kind == "renamed_kernel" and self.launches >= parameters["launch"]:
                log.renaming = parameters
            elif kind == "unsteady_kernel":
                log.unsteadiness = launch_factor(parameters, self.case, self.launches)
            elif kind == "out_of_memory" and parameters["at"] == "launch":
                if self.has_deferred_errors:
                    self.deferred = self.memory.out_of_memory_error(self.faults.device, 1 << 20, 0)
                else:
                    self.memory.is_exhausted = True


def launch_factor(unsteady, ordinal, launch):
    """Factor of the duration of a launch, which counts from 1, of the case with an ordinal."""
    pattern, first = unsteady["pattern"], unsteady["launch"]
    if pattern == "drift":
        part = launch / first
    elif pattern == "step":
        part = float(launch >= first)
    elif pattern == "burst":
        part = float(first <= launch < first + unsteady["length"])
    else:
        part = float(float(pick_number([ordinal, launch], 1 << 20)) < unsteady["share"] * (1 << 20))
    return 1.0 + (unsteady["factor"] - 1.0) * part


def device_error(code, api, device):
    """An error of the runtime, in torch_npu's wording."""
    step, call = "synchronize", "c10_npu::acl::AclrtSynchronizeStreamWithTimeout(stream())"
    if api == SET_DEVICE:
        step, call = "Initialize", "c10_npu::SetDevice(device_id_)"
    return RuntimeError(
        "%s:build/CMakeFiles/torch_npu.dir/compiler_depend.ts:361 NPU function error: %s, error code is %d\n"
        "[ERROR] %s (PID:%d, Device:%d, RankID:-1) ERR00100 PTA call acl api failed\n[Error]: %s\n        "
        "Rectify the fault based on the error information in the ascend log."
        % (
            step,
            call,
            code,
            time.strftime("%Y-%m-%d-%H:%M:%S"),
            os.getpid(),
            device,
            MEANINGS.get(code, "An error of the runtime."),
        )
    )


def _crash(crash):
    if crash["exit"] is not None:
        os._exit(crash["exit"])
    # An injected fault writes no core file.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.kill(os.getpid(), getattr(signal, crash["signal"] or "SIGSEGV"))
    time.sleep(3600)


def _hang(seconds, ignores_sigterm, grandchild):
    if ignores_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if grandchild != "none":
        import subprocess

        own = {"own_session": os.setsid, "own_group": os.setpgrp}.get(grandchild)
        # The grandchild keeps standard input and output open.
        subprocess.Popen(["sleep", "%f" % seconds], preexec_fn=own)
    time.sleep(seconds)
