"""Raw data of a collection on an A2 or A3, and their export by the vendor's exporter, in place of the stand-in's own tables.

Formats: Ascend/msprof, commit 9ba1ac7, analysis/msparser/data_struct_size_constant.py and csrc/infrastructure/utils/prof_common.h.
The exporter reads a folder of host files, of device number 64, and one folder for each device.
"""
import glob
import json
import os
import shutil
import struct
import subprocess
import sys

from . import tables
from .hashes import hash_text
from .tensors import AI_CPU, COMMUNICATION, CUBE, RANDOM, VECTOR

# Environment variable with the folder of the exporter: `analysis` of Ascend/msprof, or that of an installed toolkit.
EXPORTER = "NPUBENCH_EXPORTER"
HOST_MAGIC, DEVICE_MAGIC, HOST_ID, PLATFORM = 0x5A5A, 0x6BD3, "64", "5"
# Levels of records of the host, and their types.
NODE, RUNTIME = 10000, 5000
LAUNCH, NODE_INFO, TENSORS, TASK, KERNEL_LAUNCH, FLIP = 5, 1, 2, 3, 12, 98
THREAD = 1
# By the engine: the type of the node, that of the runtime's task with its name, and that of the device's task.
TASKS = {
    CUBE: (0, 100, "KERNEL_AICORE", 0),
    AI_CPU: (1, 101, "KERNEL_AICPU", 1),
    VECTOR: (2, 102, "KERNEL_AIVEC", 2),
    RANDOM: (7, 105, "STARS_COMMON", 15),
}
DATA_TYPES = (
    "FLOAT FLOAT16 INT8 INT32 UINT8 - INT16 UINT16 UINT32 INT64 UINT64 DOUBLE BOOL STRING DUAL_SUB_INT8 DUAL_SUB_UINT8 COMPLEX64"
    " COMPLEX128 QINT8 QINT16 QINT32 QUINT8 QUINT16 RESOURCE STRING_REF DUAL DT_VARIANT DT_BF16 DT_UNDEFINED DT_INT4 DT_UINT1"
    " DT_INT2 DT_UINT2 DT_COMPLEX32 DT_HIFLOAT8 DT_FLOAT8_E5M2 DT_FLOAT8_E4M3FN DT_FLOAT8_E8M0 DT_FLOAT6_E3M2 DT_FLOAT6_E2M3"
    " DT_FLOAT4_E2M1 DT_FLOAT4_E1M2"
).split()
FORMATS = {"NCHW": 0, "NHWC": 1, "ND": 2, "NC1HWC0": 3, "FRACTAL_Z": 4, "NDHWC": 27, "FRACTAL_NZ": 29, "NCDHW": 30}
FORMATS.update(NULL=42, NCL=47)
ABSENT = ((), "DT_UNDEFINED", "NULL")
# Counters of the cube and of the vector cores in a record: the time of the first pipe is the sum of the first two, the last two are
# fetches of instructions and those that missed.
EVENTS = {CUBE: "0x416,0x417,0x9,0x302,0xc,0x303,0x54,0x55", VECTOR: "0x8,0xa,0x9,0xb,0xc,0xd,0x54,0x55"}
TENSORS_OF_RECORD, CLOCKS_OF_RECORD = 5, 55
API = "unaging.api_event.data.slice_0"
TICK = 20  # Nanoseconds of a tick of the device; a tick of the host has 10.
COUNT_AT_START, MONOTONIC_AT_START, HOST_COUNT_AT_START = 1 << 44, 1_000_000_000_000, 100_000_000_000


def exporter(profile, operations, metrics, has_types):
    """The folder of the vendor's exporter, where it is to export these records: it needs raw data that this module can write."""
    is_known = metrics in ("PipeUtilization", "Disabled") and has_types
    is_known = is_known and not any(soc.startswith("Ascend950") for soc in profile.get("soc", []))
    return os.environ.get(EXPORTER) if is_known and not any(each[2] == COMMUNICATION for each in operations) else None


def exporter_of(root):
    """The folder of the vendor's exporter, where it exported this folder."""
    return os.environ.get(EXPORTER) if os.path.exists(os.path.join(root, "host", "data", API)) else None


def write(root, devices, profile, operations, launched, recorded, metrics, clocks, faults):
    """Writes the raw files: those of the host for all launches, those of the devices for the recorded ones."""
    starts = [launch[3] for launch in launched + recorded] + [at for samples in clocks.values() for at, _ in samples]
    base = min(starts, default=0) // 1_000_000 * 1_000_000 - 1_000_000
    summed = [tables.Summed(profile, operation, True) for operation in operations]
    files = host_files(summed, launched, base)
    for place in ["host"] + ["device_%d" % device for device in devices]:
        files.update(settings(root, place, profile, metrics, base))
    for device in devices:
        rows = [launch for launch in recorded if launch[0] == device]
        files.update(device_files(device, profile, summed, rows, metrics, clocks.get(device, []), base))
    damage(files, dict(faults))
    for path, content in files.items():
        path = os.path.join(root, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)


def export(analysis, root):
    """Exports a folder with its raw data, also once more. The exporter's status is 0 on errors, which it logs."""
    # Raw data that were read before are exported from databases.
    for mark in glob.glob(os.path.join(root, "*", "data", "*.complete")):
        os.remove(mark)
    for folder in glob.glob(os.path.join(root, "*", "sqlite")):
        shutil.rmtree(folder)
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for kind in ("timeline", "summary"):
        words = [sys.executable, "-B", os.path.join(analysis, "msprof", "msprof.py"), "export", kind, "-dir", root]
        subprocess.run(words, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


def settings(root, place, profile, metrics, base):
    device = place.partition("_")[2]
    suffix = "." + device if device else ""
    with open(os.path.join(root, place, "info.json" + suffix), encoding="utf-8") as file:
        info = json.load(file)
    info.update(platform_version=PLATFORM, drvVersion=467732, hostUid="1", pid_name="python3", jobInfo="NA", netCard=[])
    info.update(CPU=[{"Id": 0, "Frequency": "100.000000"}], memoryTotal=1000, cpuNums=192, sysClockFreq=100)
    info["devices"] = device or HOST_ID
    sample = {"devices": device or HOST_ID, "taskBlock": "off", "prof_level": "l1", "profLevel": "l1", "llc_profiling": ""}
    for core, task, name in (("ai_core", CUBE, "PipeUtilizationExct"), ("aiv", VECTOR, "PipeUtilization")):
        sample[core + "_profiling"] = "off" if metrics == "Disabled" else "on"
        sample.update({core + "_profiling_mode": "task-based", core + "_metrics": name, core + "_profiling_events": EVENTS[task]})
        sample[core.replace("_", "") + "_sampling_interval"] = 10
    begin = {"clockMonotonicRaw": str(MONOTONIC_AT_START), "collectionTimeBegin": str(base // 1000), "collectionDateBegin": ""}
    end = {"clockMonotonicRaw": str(MONOTONIC_AT_START + (60 << 30)), "collectionTimeEnd": str(base // 1000 + (60 << 20))}
    files = {"info.json" + suffix: json.dumps(info), "sample.json": json.dumps(sample)}
    files.update({"start_info" + suffix: json.dumps(begin), "end_info" + suffix: json.dumps(dict(end, collectionDateEnd=""))})
    clocks = (base, MONOTONIC_AT_START, HOST_COUNT_AT_START)
    files["host_start.log" + suffix] = "[Host]\nclock_realtime:%d\nclock_monotonic_raw:%d\ncntvct:%d\ncntvct_diff:0\n" % clocks
    if device:
        files["dev_start.log" + suffix] = "clock_monotonic_raw:%d\ncntvct:%d\n" % (MONOTONIC_AT_START, COUNT_AT_START)
    return {os.path.join(place, name): content for name, content in files.items()}


def host_files(summed, launched, base):
    names, api, tasks, nodes, tensors = {}, [], [], [], []
    last = {}
    for number, launch in enumerate(launched):
        device, task, place = launch[0], launch[1], launch[8]
        common = summed[place]
        node_type, task_type, _, _ = TASKS[common.operation.task]
        name, kernel = hash_text(common.name), hash_text(common.operation.kernel)
        names[name], names[kernel] = common.name, common.operation.kernel
        at = HOST_COUNT_AT_START + 1500 * number
        used = used_blocks(common, launch)
        api.append(struct.pack("=HHIIIQQQ", HOST_MAGIC, RUNTIME, KERNEL_LAUNCH, THREAD, 0, at + 300, at + 600, 0))
        api.append(struct.pack("=HHIIIQQQ", HOST_MAGIC, NODE, LAUNCH, THREAD, 0, at, at + 1000, name))
        head = (HOST_MAGIC, RUNTIME, TASK, THREAD, 40)
        for flip in range(last.get(device, 0) + 1, task // tables.TASK_IDS + 1):
            tasks.append(struct.pack("=HHIIIQHHHHQQ16x", *head, at + 400, device, tables.STREAM, 0, flip, FLIP, 0))
            last[device] = flip
        values = (at + 500, device, tables.STREAM, task % tables.TASK_IDS, task // tables.TASK_IDS, task_type, name, used, 0, 0)
        tasks.append(struct.pack("=HHIIIQHHHHQQHHB11x", *head, *values))
        values = (at + 900, name, node_type, kernel, used, 0, 0, 0)
        nodes.append(struct.pack("=HHIIIQQIQIIQI", HOST_MAGIC, NODE, NODE_INFO, THREAD, 40, *values))
        slots = [(0, slot or ABSENT) for slot in common.inputs] + [(1, slot or ABSENT) for slot in common.outputs]
        for first in range(0, len(slots), TENSORS_OF_RECORD):
            part = slots[first : first + TENSORS_OF_RECORD]
            words = [word for side, slot in part for word in tensor_words(side, *slot)]
            words += [0] * (11 * TENSORS_OF_RECORD - len(words))
            head = (HOST_MAGIC, NODE, TENSORS, THREAD, 232, at + 900, name, len(part))
            tensors.append(struct.pack("=HHIIIQQI55I", *head, *words))
    types = {(NODE, LAUNCH): "launch", (NODE, NODE_INFO): "node_basic_info", (NODE, TENSORS): "tensor_info"}
    types.update({(RUNTIME, TASK): "task_track", (RUNTIME, KERNEL_LAUNCH): "KernelLaunch", (RUNTIME, FLIP): "FLIP_TASK"})
    types.update({(RUNTIME, number): name for _, number, name, _ in TASKS.values()})
    # Nodes in files named `aging` are operators whose shapes are not static.
    return {
        "host/data/" + API: b"".join(api),
        "host/data/unaging.compact.task_track.slice_0": b"".join(tasks),
        "host/data/aging.compact.node_basic_info.slice_0": b"".join(nodes),
        "host/data/aging.additional.tensor_info.slice_0": b"".join(tensors),
        "host/data/unaging.additional.hash_dic.slice_0": "".join("%d:%s\n" % each for each in names.items()),
        "host/data/unaging.additional.type_info_dic.slice_0": "".join("%d_%d:%s\n" % (*key, name) for key, name in types.items()),
    }


def tensor_words(side, dims, dtype, form):
    dims = [dim & 0xFFFFFFFF for dim in dims]
    return [side, FORMATS[form], DATA_TYPES.index(dtype)] + dims + [0] * (8 - len(dims))


def used_blocks(common, launch):
    return min(common.blocks, 1) if launch[7] else common.blocks


def device_files(device, profile, summed, rows, metrics, samples, base):
    tasks, counters, flips, last = [], [], [], 0
    count = lambda at: COUNT_AT_START + (at - base) // TICK
    for launch in rows:
        task, start, common = launch[1], launch[3], summed[launch[8]]
        begin, end = count(start), count(start + launch[4])
        for flip in range(last + 1, task // tables.TASK_IDS + 1):
            flips.append(struct.pack("=BBHIQHHHH16x", 0, 14, 40, 0, begin - 1, tables.STREAM, flip, 0, 0))
            last = flip
        task %= tables.TASK_IDS
        for function, at in ((0, begin), (1, end)):
            kind = function | TASKS[common.operation.task][3] << 10
            tasks.append(struct.pack("=4HQHH44x", kind, DEVICE_MAGIC, tables.STREAM, task, at, 0, 0))
        counted = tables.counts(profile, common, launch, used_blocks(common, launch))
        if counted is not None and metrics != "Disabled":
            cycles, pipes, misses = counted
            if common.operation.task == CUBE:
                events = [pipes[0], 0, pipes[1], pipes[2], pipes[3], pipes[4]]
            else:
                events = [pipes[0], 0, pipes[1], 0, pipes[2], pipes[3]]
            core = (common.operation.task == VECTOR) << 13
            head = (40, DEVICE_MAGIC, tables.STREAM, task, 0, 0, 0, core, 0, 0, cycles, 0)
            counters.append(struct.pack("=4HQ4HQ12Q", *head, *events, 1000, misses, begin, end))
    clocks = []
    for first in range(0, len(samples), CLOCKS_OF_RECORD):
        part = samples[first : first + CLOCKS_OF_RECORD]
        words = [word for at, mhz in part for word in (count(at), mhz, 0)]
        words += [0] * (3 * CLOCKS_OF_RECORD - len(words))
        clocks.append(struct.pack("=II" + "QII" * CLOCKS_OF_RECORD, len(part), 0, *words))
    files = {"stars_soc": tasks, "ffts_profile": counters, "ts_track": flips, "lpmFreqConv": clocks}
    path = "device_%d/data/%%s.data.%d.slice_0" % (device, device)
    return {path % name: b"".join(records) for name, records in files.items() if records}


def damage(files, faults):
    """Faults of tables as those of raw files: the tasks of a device end within a record; tensors of the host end at a record's end;
    a file of the host, which the tables do not need, ends within a record."""
    if "truncated_csv" in faults:
        for path in files:
            if "stars_soc" in path:
                files[path] = files[path][: int(len(files[path]) * faults["truncated_csv"]["keeps"]) // 64 * 64 + 20]
    if "ragged_csv" in faults:
        path = "host/data/aging.additional.tensor_info.slice_0"
        files[path] = files[path][: max(len(files[path]) - 256 * faults["ragged_csv"]["rows"], 0)]
    if "lost_raw_data" in faults:
        files["host/data/unaging.additional.context_id_info.slice_0"] = bytes(256 + 20)
