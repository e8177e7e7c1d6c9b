"""Launches on the simulated NPU, with a virtual clock that never waits; they are written to a file for msprof.

A launch is a tuple: device, number of the task on its device, seed of its counters, start and duration in nanoseconds, factor
by which the clock was slower, factor by which the recorded clock was slower, True if it used one core, and the place of its
operation among those of the process.
"""
import marshal
import os
import time

from . import hashes, timing
from .faults import HOST, physical_id
from .tensors import AI_CPU, SENTINEL, blocks, require, signature_seed, tensor_bytes

# Pause between two queued tasks in ticks. In a recorded training step (msinsight's test data, CANN 8.3.RC1, kernel_details.csv) half
# of the kernels behind one of 100 us and more start 0.03 to 1.4 us after its end.
PAUSE_TICKS = 70
# Time of a call on the host until its task is in the queue of the device, in ns. In the same step (api_statistic.csv) 336 calls of
# aclnnMatmul take 11.8 to 54.3 us (mean 17.0, deviation 5.0), and 121 of aclrtRecordEvent 6.4 to 42.5 us (mean 15.0). One of 2,467
# launches takes 713 us: a collective, but a late thread delays any launch. What torch does before is not contained: in msinsight's
# traces of a CNN, with stacks of Python, it is mostly 66 to 243 us from the call of torch to the kernel on an idle device.
CALL_TIMES = [1000 * each for each in (12, 13, 13, 14, 14, 14, 15, 15, 16, 16, 17, 18, 19, 21, 24, 30)]
LONG_CALL, LONG_CALL_PART, LATE_CALL, LATE_CALL_PART = 54000, 336, 713000, 2467
# Shortest time between the end of a task and a collective behind it, and the range of its starts on the ranks in ticks.
COLLECTIVE_GAP, COLLECTIVE_TICKS = 4000, 100
# A host with the defect `small_cache` has this part of the cache.
SMALL_CACHE_DIVISOR = 4
# A host with the defect `unequal_devices` has this slower device, and with `profiler_overhead` slower kernels.
UNEQUAL_DEVICE, UNEQUAL_FACTOR, OVERHEAD_FACTOR = 1, 1.1, 1.05
# A host with the defect `slow_while_queried` has slower kernels while npu-smi runs. Its script writes a text into the file when it
# starts, and the program empties it when it ends.
QUERIED, QUERIED_FACTOR = "queried", 1.1
# Part of the recorded median of a case that its launches take with a warm cache, and the factor of the defect
# `slower_than_production`.
WARM_SHARE, SLOWER_FACTOR = 0.92, 1.3
NEIGHBOUR, CALL, PARTS = 0x6E656967, 0x63616C6C, 1 << 20
# Greatest difference between the ends of the ranks of a collective, in ticks.
END_TICKS = 3
FLUSHED_LAUNCHES = 4096


class Cache:
    def __init__(self, capacity):
        self.capacity, self.storages = capacity, {}

    def use(self, number, size):
        """Uses a storage; returns True if it was in the cache."""
        was_cached = self.storages.pop(number, None) is not None
        self.storages[number] = size
        total = sum(self.storages.values())
        while total > self.capacity:
            total -= self.storages.pop(next(iter(self.storages)))
        return was_cached


class KnownOperation:
    def __init__(self, place, operation, log):
        self.place, self.operation = place, operation
        self.signature = signature_seed(operation)
        self.bases = [None, None]
        self.cores = max(blocks(operation, log.profile), 1)
        read = sum(tensor_bytes(each) for each in operation.inputs if each is not None and each[1] == "INT32")
        # It replaces the content of the cache: it reads more whole numbers than fit.
        self.is_flush = operation.kernel == SENTINEL and read > log.profile["l2_mib"] << 20
        self.is_empty = bool(operation.outputs) and all(0 in each[0] for each in operation.outputs)


class Log:
    """All launches of a process, and the state that durations depend on."""

    def __init__(self, host, manifest, started, file):
        self.host, self.profile, self.file = host, host["profile"], file
        self.defects = host["faults"]["defects"]
        manifest = manifest or {}
        self.cases = {case["ordinal"]: case for case in manifest.get("cases", [])}
        self.controls = (manifest.get("controls") or {}).get("kernels", [])
        metrics = manifest.get("profiler", {}).get("aic_metrics", "PipeUtilization")
        self.reads_counters = metrics != "none"
        self.began = started
        self.model = timing.Model(host, manifest.get("collection", 0))
        self.started = started - started % timing.TICK
        # Time and number of tasks by device.
        self.streams = {}
        # Time of the host since the start, number of its calls, and factor of their time.
        self.host_time, self.host_calls, self.host_slowness = 0, 0, 1.0
        self.case = self.case_kernel = None
        self.since_sentinel, self.in_process = {}, {}
        self.known, self.renamed, self.launches = {}, {}, []
        self.medians = {}
        self.graphs, self.capturing = {}, None
        self.is_flushed = False
        self.slowdown = self.shown_slowdown = 1.0
        self.idle_clock = self.neighbour = None
        self.busy_since_idle = 0
        self.caches = {}
        self.start_case()

    def start_case(self):
        """Ends the effects of faults of a case."""
        self.case = None
        self.is_on_ai_cpu = self.is_on_one_core = False
        self.renaming = None
        self.unsteadiness = 1.0
        self.late_start, self.wrong_element = 0, None

    def is_queried(self):
        """Returns True if npu-smi runs, or has run since msprof started this process."""
        try:
            file = os.stat(os.path.join(os.path.dirname(os.environ[HOST]), QUERIED))
        except OSError:
            return False
        return file.st_size > 0 or file.st_mtime_ns > self.began

    def emit(self, kind, value):
        """Writes a fact for msprof, which reads it also if this process is killed."""
        marshal.dump((kind, value), self.file)
        self.file.flush()

    def flush(self):
        if self.launches:
            marshal.dump(("launches", self.launches), self.file)
            marshal.dump(("medians", self.medians), self.file)
            self.file.flush()
            self.launches, self.medians = [], {}

    def clock_ahead(self):
        """Nanoseconds by which the clock of the host is ahead."""
        return int((self.host["faults"].get("host") or {}).get("clock_ahead", 0.0) * 1e9)

    def device_clock_ahead(self, device):
        """Nanoseconds by which the clock of a device is ahead of those of the other devices of its host."""
        clocks = (self.host["faults"].get("host") or {}).get("device_clocks", {})
        return int(clocks.get(str(physical_id(self.host, device)), 0.0) * 1e3)

    def open(self, device):
        if device not in self.streams:
            self.streams[device] = [self.started + self.device_clock_ahead(device), 0]
            self.emit("device", device)

    def stream_time(self, device):
        return self.streams[device][0] if device in self.streams else self.started

    def call(self):
        """Adds the time of a call that puts a task into the queue of the device."""
        seed = hashes.hash_numbers([self.host_calls, CALL], self.model.seed_hash)
        time_ = CALL_TIMES[seed % len(CALL_TIMES)]
        time_ = LONG_CALL if hashes.mix(seed) % LONG_CALL_PART == 0 else time_
        time_ = LATE_CALL if hashes.mix(seed) % LATE_CALL_PART == 1 else time_
        self.host_calls += 1
        self.host_time += timing.rounded(time_ * self.host_slowness)

    def arrival(self, device):
        """Time at which a task that the host puts into the queue now is there."""
        return self.started + self.device_clock_ahead(device) + self.host_time

    def record_event(self, device):
        """The time of an event, which has no duration: at once on a device that has nothing else to do."""
        self.call()
        return max(self.stream_time(device), self.arrival(device))

    def wait(self, device, until=None):
        """Lets the host wait until a time of a device, which is the end of its tasks by default."""
        until = self.stream_time(device) if until is None else until
        self.host_time += max(until - self.arrival(device), 0)

    def jump(self, nanoseconds):
        self.started += nanoseconds
        for stream in self.streams.values():
            stream[0] += nanoseconds

    def current_case(self):
        return None if self.case is None else self.cases.get(self.case)

    def sentinel(self, length):
        """Records a sentinel: an even length opens a case, an odd one closes it."""
        self.since_sentinel.clear()
        self.case = self.case_kernel = None
        ordinal = (length - 2) // 2
        # Launches of control kernels belong to no case.
        if length >= 2 and length % 2 == 0 and not (self.controls and ordinal not in self.cases):
            self.case = ordinal

    def is_control_call(self, api, shapes):
        """Returns True for a call of a control kernel with these shapes of tensors, outside of a case."""
        if self.case is not None or not self.controls:
            return False
        return any(call["api"] == api and call["tensors"] == shapes for call in self.controls)

    def launch(self, device, operation, storages=None):
        """Appends a launch. The duration of one outside of cases depends on whether its storages are in the cache."""
        self.call()
        is_cold = False
        if storages and not self.cases:
            if device not in self.caches:
                divisor = SMALL_CACHE_DIVISOR if "small_cache" in self.defects else 1
                self.caches[device] = Cache((self.profile["l2_mib"] << 20) // divisor)
            # Each storage is used, also behind one that is not cached.
            is_cold = not all([self.caches[device].use(storage.number, storage.bytes) for storage in storages])
        self._append(device, operation, is_cold)

    def _known(self, operation):
        known = self.known.get(operation)
        if known is None:
            known = self.known[operation] = KnownOperation(len(self.known) + len(self.renamed), operation, self)
            self.emit("operation", tuple(operation))
        return known

    def _append(self, device, operation, is_cold):
        if self.is_on_ai_cpu and self.case is not None and self.capturing is None:
            operation = operation._replace(task=AI_CPU)
        known = self._known(operation)
        if known.is_empty:
            # CANN launches nothing for tensors without elements.
            return
        if self.capturing is not None:
            self.graphs[self.capturing].append((device, operation))
            return
        self.open(device)
        in_case, model, signature = self.case is not None, self.model, known.signature
        since_sentinel = self.since_sentinel.get(signature, 0)
        self.since_sentinel[signature] = since_sentinel + 1
        key = (device, signature)
        in_process = self.in_process.get(key, 0)
        self.in_process[key] = in_process + 1
        chip = physical_id(self.host, device)
        is_cold = is_cold or self.is_flushed and in_case and not known.is_flush
        base = self._base(known, is_cold)
        self.is_flushed = known.is_flush
        variation = model.variation(signature, chip, since_sentinel, in_process)
        waiting = 1.0
        if self.neighbour is not None:
            if float(hashes.hash_numbers([variation, NEIGHBOUR]) % PARTS) < self.neighbour["share"] * PARTS:
                waiting = self.neighbour["factor"]
        if self.idle_clock is not None and float(self.busy_since_idle) < self.idle_clock["milliseconds"] * 1e6:
            waiting *= self.idle_clock["factor"]
        slowdown = self.slowdown
        if self.defects:
            if "unequal_devices" in self.defects and chip == UNEQUAL_DEVICE:
                slowdown *= UNEQUAL_FACTOR
            if "profiler_overhead" in self.defects and self.reads_counters:
                slowdown *= OVERHEAD_FACTOR
            if "slow_while_queried" in self.defects and self.is_queried():
                slowdown *= QUERIED_FACTOR
        is_on_one_core = self.is_on_one_core and in_case
        unsteadiness = self.unsteadiness if in_case else 1.0
        total = slowdown * waiting * unsteadiness * (float(known.cores) if is_on_one_core else 1.0)
        duration = self._duration(known, base, variation, signature, chip, in_process, total)
        self.busy_since_idle += duration
        place = known.place
        if self.renaming is not None and in_case:
            place = self._renamed(known)
        stream = self.streams[device]
        clock, task = stream
        pause = hashes.mix(model.seed_hash ^ task) % PAUSE_TICKS * timing.TICK
        start = max(clock + pause, self.arrival(device))
        slowdown = self.slowdown * waiting
        self.launches.append((device, task, variation, start, duration, slowdown, self.shown_slowdown, is_on_one_core, place))
        stream[0], stream[1] = start + duration, task + 1
        if len(self.launches) >= FLUSHED_LAUNCHES:
            self.flush()

    def _base(self, known, is_cold):
        """Mean duration without noise, from the recorded median of the case if there is one."""
        base = known.bases[is_cold]
        if base is None:
            base = known.bases[is_cold] = timing.base(self.profile, known.operation, is_cold)
        if self.case_kernel != known.operation.kernel or known.is_flush:
            return base
        case = self.current_case()
        if case is None:
            return base
        # A recorded median is that with a cold cache.
        median = self.host["recorded_medians"].get(case["case"])
        if median is not None:
            factor = 1.0 if self.is_flushed else WARM_SHARE
            factor *= SLOWER_FACTOR if "slower_than_production" in self.defects else 1.0
            base = timing.rounded(median * factor)
        # The factors of the lifelike model have a median of 1.
        self.medians[case["case"], self.case_kernel] = base
        return base

    def _duration(self, known, base, variation, signature, device, in_process, slowdown):
        varied = self.model.varied(float(base), variation, signature, device, in_process)
        if known is None:
            return timing.rounded(max(varied, 0.0) * slowdown)
        if len(known.bases) == 2:
            operation = known.operation
            floor = timing.fastest(self.profile, operation.flops, operation.bytes, operation.unit, operation.dtype)
            known.bases.append(float(floor + (timing.TICK - floor % timing.TICK) % timing.TICK))
        return timing.rounded(max(varied, known.bases[2]) * slowdown)

    def _renamed(self, known):
        """The place of an operation with another kernel, or with another name only."""
        name, operator_only = self.renaming["name"], self.renaming["operator_only"]
        key = (known.place, name, operator_only)
        if key not in self.renamed:
            self.renamed[key] = len(self.known) + len(self.renamed)
            renamed = known.operation._replace(**{"name" if operator_only else "kernel": name})
            self.emit("operation", tuple(renamed))
        return self.renamed[key]

    def begin_capture(self, graph):
        self.capturing = graph
        if graph is not None:
            self.graphs[graph] = []

    def replay(self, graph):
        require(graph in self.graphs, "Called NPUGraph::replay without a capture")
        self.call()
        for device, operation in list(self.graphs[graph]):
            self._append(device, operation, False)

    def collective_start(self, device, rank):
        """Returns the time at which the next collective of a rank, which is in the queue, starts on its device."""
        self.open(device)
        launch = self._launch_seed(device)
        ticks = hashes.pick_number([launch], COLLECTIVE_TICKS) + hashes.pick_number([launch, rank], COLLECTIVE_TICKS)
        return self.stream_time(device) + COLLECTIVE_GAP + ticks * timing.TICK + self.late_start

    def _launch_seed(self, device):
        """Seed of the differences between the ranks at the next collective of a device. Within a case it depends on the case
        and the number of its launch only, so that a case has the same durations in any collection."""
        case = self.current_case()
        if case is None:
            return hashes.mix(self.model.seed_hash ^ (self.streams[device][1] if device in self.streams else 0))
        seed = int(case["case"], 16)
        return hashes.hash_numbers([seed, self.since_sentinel.get(seed, 0)], self.model.seed_hash)

    def collective_duration(self, kernel, size):
        """Duration of a collective from the last arrival on, by the size of its bandwidths; the same on all ranks."""
        case = self.current_case()
        signature = hashes.hash_numbers([hashes.hash_text(kernel), size]) if case is None else int(case["case"], 16)
        since_sentinel = self.since_sentinel.get(signature, 0)
        self.since_sentinel[signature] = since_sentinel + 1
        key = (timing.NO_DEVICE, signature)
        in_process = self.in_process.get(key, 0)
        self.in_process[key] = in_process + 1
        regimes = self.host["faults"]["collectives"]["regimes"]
        regime = next(each for each in regimes if each.get("up_to") is None or size <= each["up_to"])
        base = timing.whole(regime["start_us"] * 1e3 + size / regime["gigabytes_per_second"])
        variation = self.model.variation(signature, timing.NO_DEVICE, since_sentinel, in_process)
        slowdown = self.unsteadiness if self.case is not None else 1.0
        return self._duration(None, base, variation, signature, timing.NO_DEVICE, in_process, slowdown)

    def append_collective(self, device, rank, operation, start, end):
        """Appends the kernel of one rank of a collective, which ends with those of the others but for some ticks."""
        if self.case is not None:
            self.case_kernel = operation.kernel
        known = self._known(operation)
        stream = self.streams[device]
        end += hashes.pick_number([self._launch_seed(device), rank, 1], END_TICKS) * timing.TICK
        variation = hashes.mix(self.model.seed_hash ^ stream[1])
        self.launches.append((device, stream[1], variation, start, end - start, 1.0, 1.0, False, known.place))
        stream[0], stream[1] = end, stream[1] + 1


def open_log(host, manifest):
    folder, started = os.environ["NPUBENCH_REHEARSAL_LAUNCHES"], int(os.environ["NPUBENCH_REHEARSAL_STARTED"])
    file = open(os.path.join(folder, "%020d.%d" % (time.time_ns(), os.getpid())), "wb")
    log = Log(host, manifest, started, file)
    log.started += log.clock_ahead()
    log.started -= log.started % timing.TICK
    return log
