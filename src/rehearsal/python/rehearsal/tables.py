"""The tables of a profile: `op_summary`, `op_statistic`, `task_time`, `api_statistic`, and the trace of the clock, formatted as by
the C++ part of the real exporter (Ascend/msprof 9ba1ac7), which joins raw strings by commas: shapes contain their own quotes, start
times end in a tab, rows are sorted as text.

Counters are consistent with each other as real ones are, and contain no information.
"""
import bisect
import json
import os
from itertools import takewhile

from . import hashes
from .tensors import CUBE, RANDOM, VECTOR, Operation, blocks, dims_text
from .timing import whole

PREFIX = "rehearsal_"
COLUMNS = (
    "Device_id,Model ID,Task ID,Stream ID,Op Name,OP Type,OP State,Task Type,Task Start Time(us),Task Duration(us),"
    "Task Wait Time(us),Block Num,Mix Block Num,HF32 Eligible,Input Shapes,Input Data Types,Input Formats,Output Shapes,"
    "Output Data Types,Output Formats,Context ID"
)
# The model of what runs operator by operator, and the stream.
SINGLE_OPERATOR, STREAM = (1 << 32) - 1, 2
# Numbers of tasks of a stream, which start again from 0.
TASK_IDS = 1 << 16
# Numbers of input slots of kernels whose records show all of them, with those of absent tensors at the end. Not read from the
# entries, so that a record does not follow from the catalogue that it is compared with; a test compares both.
RECORDED_INPUTS = {"FusedInferAttentionScore": 31, "KvRmsNormRopeCache": 12}
# Groups of counters, in the order of the real tables on A2 and A3: of matrix cores behind `aic_`, of vector cores behind `aiv_`,
# a pipe by its time and its ratio.
_GROUPS = {
    "PipeUtilization": (
        "=mac =scalar =mte1 =mte2 =fixpipe icache_miss_rate",
        "=vec =scalar =mte2 =mte3 icache_miss_rate",
    ),
    "ArithmeticUtilization": (
        "mac_fp16_ratio mac_int8_ratio cube_fops",
        "vec_fp32_ratio vec_fp16_ratio vec_int32_ratio vec_misc_ratio vector_fops",
    ),
    "Memory": (
        "l1_read_bw(GB/s) l1_write_bw(GB/s) main_mem_read_bw(GB/s) main_mem_write_bw(GB/s) l2_read_bw(GB/s) l2_write_bw(GB/s)",
        "ub_read_bw(GB/s) ub_write_bw(GB/s) main_mem_read_bw(GB/s) main_mem_write_bw(GB/s) l2_read_bw(GB/s) l2_write_bw(GB/s)",
    ),
    "MemoryL0": (
        "l0a_read_bw(GB/s) l0a_write_bw(GB/s) l0b_read_bw(GB/s) l0b_write_bw(GB/s) l0c_read_bw_cube(GB/s) "
        "l0c_write_bw_cube(GB/s)",
        "l0c_read_bw(GB/s) l0c_write_bw(GB/s)",
    ),
    "MemoryUB": (
        "ub_read_bw_scalar(GB/s) ub_write_bw_scalar(GB/s)",
        "ub_read_bw_vector(GB/s) ub_write_bw_vector(GB/s) ub_read_bw_scalar(GB/s) ub_write_bw_scalar(GB/s)",
    ),
    "L2Cache": (
        "write_cache_hit write_cache_miss_allocate r0_read_cache_hit r0_read_cache_miss_allocate r1_read_cache_hit "
        "r1_read_cache_miss_allocate",
    )
    * 2,
    "ResourceConflictRatio": ("", "vec_bankgroup_cflt_ratio vec_bank_cflt_ratio vec_resc_cflt_ratio"),
    "MemoryAccess": (
        "read_main_memory_datas(KB) write_main_memory_datas(KB) GM_to_L1_datas(KB) L0C_to_L1_datas(KB) L0C_to_GM_datas(KB) "
        "GM_to_UB_datas(KB) UB_to_GM_datas(KB)",
    )
    * 2,
}


def _columns(core, prefix, counters):
    pairs = [("%s_time(us),%s%s_ratio" % (name[1:], prefix, name[1:]) if name[0] == "=" else name) for name in counters.split()]
    return ["%s_time(us),%stotal_cycles" % (core, prefix)] + [prefix + pair for pair in pairs]


METRICS = {
    name: ",".join(_columns("aicore", "aic_", matrix) + _columns("aiv", "aiv_", vector)) for name, (matrix, vector) in _GROUPS.items()
}
METRICS["PipeUtilization"] += ",cube_utilization(%)"
PIPES = METRICS["PipeUtilization"].split(",")
# Shares of a core's time that its pipes are busy, in thousandths: mac, scalar, mte1, mte2, fixpipe on matrix cores; vec, scalar,
# mte2, mte3 on vector cores.
CUBE_SHARES, VECTOR_SHARES = (640, 90, 410, 720, 120), (260, 80, 680, 350)
IDLE_CUBE, IDLE_VECTOR = "0.0,0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0", "0.0,0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0"
CYCLES = hashes.MASK - 1
# Number of the row of the clock in the trace; times that a sample is written.
CLOCK_ROW, CLOCK_REPEATS = 15, 2
# Clock of an idle device in MHz; time of tasks after which the clock has settled, and its share of the rated one if it never
# does.
IDLE_MHZ, SETTLING_TIME, UNSETTLED_SHARE = 800, 3000000, 0.8


def micros(nanoseconds):
    """Nanoseconds as the real exporter writes microseconds."""
    if nanoseconds < 0:
        return "-" + micros(-nanoseconds)
    return "%d.%03d" % divmod(nanoseconds, 1000)


def counter(value):
    """A counter as the exporter writes it: rounded to three decimals by SQLite, halves up, without zeros at the end."""
    text = micros(whole(value * 1e3 + 1e-10)).rstrip("0")
    return text + "0" if text.endswith(".") else text


def is_sorted(launches):
    """By device, then start, both as text: device 10 precedes device 2."""
    return sorted(launches, key=lambda launch: (str(launch[0]), micros(launch[3])))


def tables(profile, operations, launches, metrics, has_types, clocks, launched):
    if not launches:
        return {}
    rows = is_sorted(launches)
    result = {"op_statistic": op_statistic(operations, launches)} if has_types else {}
    result["task_time"] = task_time(operations, rows)
    if has_types:
        result["api_statistic"] = api_statistic(launched)
    result["op_summary"] = op_summary(profile, operations, rows, metrics, has_types, clocks)
    return result


def api_statistic(launched):
    """Calls on the host: also of launches whose record is lost."""
    lines = ["Device_id,Level,API Name,Time(us),Count,Avg(us),Min(us),Max(us),Variance"]
    for level, name, each in (("runtime", "KernelLaunch", 3), ("node", "launch", 10)):
        lines.append("host,%s,%s,%d,%d,%d,%d,%d,0" % (level, name, each * launched, launched, each, each, each))
    return "\n".join(lines) + "\n"


class Summed:
    """The cells that all launches of an operation have in common."""

    def __init__(self, profile, operation, has_types):
        self.operation = operation = Operation(*operation)
        inputs = list(operation.inputs) if operation.task != RANDOM else []
        inputs += [None] * (RECORDED_INPUTS.get(operation.kernel, 0) - len(inputs)) if operation.task != RANDOM else []
        self.blocks = blocks(operation, profile)
        self.name = PREFIX + operation.name
        self.inputs, self.outputs = inputs, operation.outputs
        kernel, task, outputs = operation.kernel, operation.task, operation.outputs
        if not has_types:
            kernel = task = "N/A"
            inputs = outputs = ()
        self.before = "%s,%s,dynamic,%s" % (self.name, kernel, task)
        # The mode of the launch: hicann/opbase aa3cd74, src/nnopbase/composite_op/aclnn_engine/op_dfx.cpp.
        hf32 = ("YES" if operation.dtype == "HF32" else "NO") if has_types else "N/A"
        self.after = "0,%s,%s,%s,N/A" % (hf32, cells_of(inputs), cells_of(outputs))
        # They start and stop in 1 to 3.5 us, of short kernels in a third of the duration, and wait for each other in up to 2 % of
        # it, in matrix products in up to 15 %.
        hashed = hashes.hash_text(operation.kernel)
        drawn = [(hashes.signed_unit_deviate(hashes.hash_numbers([hashed, CYCLES, number])) + 1.0) / 2.0 for number in (0, 1)]
        self.start_and_stop = 1.0 + 2.5 * drawn[0]
        self.waiting = (0.15 if operation.task == CUBE else 0.02) * drawn[1]


def cells_of(slots):
    if not slots:
        return "N/A,N/A,N/A"
    # The exporter cuts a shape at its first 0 (Ascend/msprof 9ba1ac7, cann_trace_db_dumper.cpp, AddTensorShapeInfo).
    shapes = ";".join("" if slot is None else dims_text(takewhile(bool, slot[0])) for slot in slots)
    types = ";".join("DT_UNDEFINED" if slot is None else slot[1] for slot in slots)
    return '"""%s""",%s,%s' % (shapes, types, ";".join("NULL" if slot is None else slot[2] for slot in slots))


def op_summary(profile, operations, rows, metrics, has_types, clocks):
    """Every launch with its duration; at `--task-time=l0` without type, shapes and blocks."""
    columns = METRICS[metrics].split(",") if metrics != "Disabled" else []
    places = [PIPES.index(name) if name in PIPES else None for name in columns]
    summed = {}
    lines = [",".join([COLUMNS] + columns)]
    before = None
    for launch in rows:
        device, task, _, start, duration, _, _, is_on_one_core, place = launch
        common = summed.get(place)
        if common is None:
            common = summed[place] = Summed(profile, operations[place], has_types)
        # The gap to the row before, whatever stream or device that belongs to, with the rounding of a start as a double
        # (Ascend/msprof 9ba1ac7, csrc/application/summary/op_summary_assembler.cpp, CalculateWaitTime).
        times = (float(micros(start)), float(micros(duration)))
        wait = "0" if before is None else "%f" % max(times[0] - before[0] - before[1], 0.0)
        before = times
        used = min(common.blocks, 1) if is_on_one_core else common.blocks
        line = "%d,%d,%d,%d,%s,%s\t,%s,%s,%d,%s" % (
            device,
            SINGLE_OPERATOR,
            task % TASK_IDS,
            STREAM,
            common.before,
            micros(start),
            micros(duration),
            wait,
            used if has_types else 0,
            common.after,
        )
        if columns:
            cells = pipe_cells(profile, common, launch, used, clocks[device])
            if metrics != "PipeUtilization":
                # Zero for counters without a model.
                absent = "0.0" if common.operation.task in (CUBE, VECTOR) else "N/A"
                known = cells.split(",")
                cells = ",".join(absent if place is None else known[place] for place in places)
            line += "," + cells
        lines.append(line)
    return "\n".join(lines) + "\n"


def counts(profile, common, launch, used):
    """What the cores count in a launch: the cycles of all blocks, those in which each pipe is busy, and the misses among a thousand
    fetches of instructions. None where the task has no counters."""
    task = common.operation.task
    if task not in (CUBE, VECTOR):
        return None
    first = hashes.mix(launch[2])
    # A throttled clock does the same cycles in more time.
    duration = launch[4] / 1e3 / launch[5]
    cycles = whole(duration * working_share(common, first, duration) * float(profile["clock_mhz"]) * used)
    shares = CUBE_SHARES if task == CUBE else VECTOR_SHARES
    pipes = [whole(cycles * (share + hashes.mix(first ^ pipe) % 40) / 1e3) for pipe, share in enumerate(shares)]
    return cycles, pipes, hashes.mix(first ^ hashes.MASK) % 120


def pipe_cells(profile, common, launch, used, samples):
    """The cells of PipeUtilization; N/A where the task has no counters.

    The exporter computes the time of the cores from their cycles by the clock of the track at the end of the task, in whole MHz, and
    the utilisation of the cube by the rated clock (Ascend/msprof 9ba1ac7, csrc/domain/services/association/calculator/metric,
    mscalculate/stars/ffts_pmu_calculator.py, viewer/runtime_report.py). A deviating clock that the track does not show appears only
    as fewer or more cycles per duration.
    """
    counted = counts(profile, common, launch, used)
    if counted is None:
        return "N/A" + ",N/A" * 24
    cycles, pipes, misses = counted
    shown = samples[max(bisect.bisect_right(samples, (launch[3] + launch[4], 1 << 62)) - 1, 0)][1]
    busy = cycles / max(shown, 1) / used
    cells = ["%s,%d" % (counter(busy), cycles)]
    for pipe in pipes:
        ratio = pipe / max(cycles, 1)
        cells.append("%s,%s" % (counter(busy * ratio), counter(ratio)))
    cells.append(counter(misses / 1e3))
    core = ",".join(cells)
    if common.operation.task == VECTOR:
        return "%s,%s,0.000" % (IDLE_CUBE, core)
    rated = float(profile["clock_mhz"]) * max(profile["cube_cores"], 1) * (launch[4] / 1e3)
    return "%s,%s,%.3f" % (core, IDLE_VECTOR, 100.0 * cycles / rated if rated > 0.0 else 0.0)


def working_share(common, first, duration):
    """Share of a duration in us, at the rated clock, in which the cores work. In recorded profiles it is 0.59 at 1.3 us, 0.7 to
    0.9 at 10 us, 0.83 to 0.98 at 100 us, and 0.989 to 0.999 above 300 us, except in matrix products. It varies by 0.4 %, and by
    100 ns, so that cycles per time of short kernels vary as much as there."""
    start_and_stop = min(common.start_and_stop / max(duration, 2.2250738585072014e-308), 0.35)
    deviation = 0.004 + 0.1 / max(duration, 1.0)
    deviate = min(max(hashes.normal_deviate(hashes.mix(first ^ CYCLES)), -3.0), 3.0)
    share = (1.0 - start_and_stop - common.waiting) * (1.0 + deviation * deviate)
    return min(max(share, 0.5), 0.999)


def op_statistic(operations, launches):
    groups, totals = {}, {}
    for launch in launches:
        _, kernel, task = operations[launch[8]][:3]
        groups.setdefault((launch[0], kernel, task), []).append(launch[4])
        totals[launch[0]] = totals.get(launch[0], 0) + launch[4]
    lines = ["Device_id,OP Type,Core Type,Count,Total Time(us),Min Time(us),Avg Time(us),Max Time(us),Ratio(%)"]
    for (device, kernel, core), times in sorted(sorted(groups.items()), key=lambda each: -sum(each[1])):
        total = sum(times)
        numbers = [micros(each) for each in (total, min(times), total // len(times), max(times))]
        numbers.append("%.3f" % (100.0 * total / max(totals[device], 1)))
        numbers = [number.rstrip("0").rstrip(".") for number in numbers]
        lines.append("%d,%s,%s,%d,%s" % (device, kernel, core, len(times), ",".join(numbers)))
    return "\n".join(lines) + "\n"


def task_time(operations, rows):
    lines = ["Device_id,kernel_name,kernel_type,stream_id,task_id,task_time(us),task_start(us),task_stop(us)"]
    for device, task, _, start, duration, _, _, _, place in rows:
        name, _, engine = operations[place][:3]
        times = (micros(duration), micros(start), micros(start + duration))
        lines.append("%d,%s%s,%s,%d,%d,%s,%s\t,%s\t" % ((device, PREFIX, name, engine, STREAM, task % TASK_IDS) + times))
    return "\n".join(lines) + "\n"


def clocks_of(profile, launches, settles, times):
    """The samples of the clock of each device. A throttled device has a clock that is lower by the factor of its slowdown."""
    rated = float(profile["clock_mhz"]) * (1.0 if settles else UNSETTLED_SHARE)
    devices = sorted({launch[0] for launch in launches})
    return {device: clock_samples(rated, [launch for launch in launches if launch[0] == device], times) for device in devices}


def clock_events(profile, clocks):
    """Counter events `AI Core Freq` as the C++ part writes them: at each change of the clock, first from the rated one, and at the
    end of the collection, each several times; each device has a process with its number as label. An Ascend 950 has a counter for
    each die (Ascend/msprof, analysis/csrc/application/timeline/low_power_assembler.cpp, commit 9ba1ac7)."""
    has_dies = any(soc.startswith("Ascend950") for soc in profile.get("soc", []))
    events = []
    for device, samples in clocks.items():
        pid = os.getpid() << 10 | CLOCK_ROW << 5 | device
        for at, mhz in [(samples[0][0] - 1000000, profile["clock_mhz"])] + samples:
            for name in [" Die 0", " Die 1"] if has_dies else [""]:
                event = {"name": "AI Core Freq" + name, "pid": pid, "tid": 0, "ts": micros(at), "ph": "C", "args": {"MHz": mhz}}
                events.extend([event] * CLOCK_REPEATS)
        named = (("name", "AI Core Freq"), ("labels", "NPU %d" % device), ("sort_index", CLOCK_ROW))
        for key, value in named:
            events.append({"name": "process_" + key, "pid": pid, "tid": 0, "ph": "M", "args": {key: value}})
    return json.dumps(events, separators=(",", ":"), sort_keys=True)


def clock_samples(rated, launches, times):
    """The changes of the clock of one device in MHz, from the start to the end of the collection."""
    begin, end = launches[0][3], launches[-1][3] + launches[-1][4]
    settled = min(begin + SETTLING_TIME, end)
    samples = [(min(begin, times[0]), IDLE_MHZ)]
    for launch in launches:
        mhz, at = int(rated / launch[6] + 0.5), max(launch[3], settled)
        if samples[-1][1] == mhz:
            continue
        if samples[-1][0] == at:
            # Until the clock has settled, only its last value counts.
            samples.pop()
        samples.append((at, mhz))
    return samples + [(max(end, times[1]), samples[-1][1])]
