"""The stand-in for msprof: starts a program with the simulated NPU, and exports the records of its launches.

Exit codes, console lines and folders are the real one's, with its weaknesses: the program's exit status is not passed on, and
every message goes to standard output.
"""
import json
import marshal
import os
import shutil
import signal
import sys
import time

from . import corrupt, raw, tables
from .faults import HostError, device_count, read_host
from .hashes import pick_number

FAILED = 255
LOST_HEAD = 20  # First records that a host with the defect `lost_head` loses, more than the padding of a replay.
OTHER_CHIP_CORES = 4  # Matrix cores that the chip of a host with the defect `other_chip` lacks.
OUTPUT = "mindstudio_profiler_output"
TABLES = ("op_statistic", "task_time", "op_summary", "api_statistic")
LOG = "mindstudio_profiler_log"
# Lines that the exporter logs for a whole collection, errors too, and the line for raw data that it drops (Ascend/msprof 9ba1ac7: run
# without a device).
LOGGED = (
    "[WARNING] [data_preparation_parser.py:104] - No data preparation data, data list is empty!",
    "[ERROR] [common.py:247] - invalid item -1",
    "[ERROR] [ms_time_parser.py:157] - time_sync message check integer value failed",
)
LOSS = "[ERROR] [tensor_add_info_parser.py:120] - An exception occurred when parsing the format data. Some data may be lost."
# Written in place of a table where none can be exported.
NOT_EXPORTABLE = "not_exportable"
USAGE = """\
Usage: msprof [options] <app> [args]
       msprof --export=on --output=DIR     exports a PROF_* folder, or those in a folder, once more
Rehearsal: the stand-in collects at task-time l0 or l1, and nothing but the tasks and their counters."""
# Options by their values; the stand-in needs no others.
ACCEPTED = {"type": ("text",), "aic-mode": ("task-based",), "summary-format": ("csv",), "task-time": ("l0", "l1", "on")}
for _name in ("ascendcl", "runtime-api", "aicpu", "hccl", "model-execution", "clear", "ai-core", "export"):
    ACCEPTED[_name] = ("on", "off")
ACCEPTED["aic-metrics"] = tuple(tables.METRICS)
# Characters that the real one refuses in paths.
NOT_IN_PATHS = "\"'\\%><|&$;`"


class Failure(Exception):
    """An error that ends msprof, and whether its usage is printed."""


class WrongOption(Failure):
    pass


def main(arguments=None):
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        options, program = parse(arguments)
        if "help" in options:
            say(USAGE)
            return 0
        if options.get("export") == "on":
            return export_again(options["output"])
        if not program:
            say(USAGE)
            return FAILED
        return collect(options, program)
    except WrongOption as error:
        say("[ERROR] %s" % error)
        say(USAGE)
    except HostError as error:
        say("[ERROR] %s" % error.args[0])
        say("hint: %s" % error.args[1])
    except Failure as error:
        say("[ERROR] %s" % error)
    except OSError as error:
        say("[ERROR] cannot write `%s`: %s" % (error.filename, error.strerror))
    return FAILED


def say(line):
    try:
        print(line, flush=True)
    except OSError:
        pass  # A closed standard output is not an error of the stand-in.


def parse(arguments):
    options, rest = {}, list(arguments)
    while rest and rest[0].startswith("--"):
        word = rest.pop(0)
        if word == "--help":
            return {"help": ""}, []
        name, _, value = word[2:].partition("=")
        if name == "output" and (not value or any(each in NOT_IN_PATHS or ord(each) < 32 for each in value)):
            raise WrongOption("--output: `%s` is not a path that msprof accepts" % value)
        if name != "output" and value not in ACCEPTED.get(name, ()):
            known = ", ".join(ACCEPTED.get(name, ("no such option",)))
            raise WrongOption("`%s`: options are --name=value, the stand-in supports %s" % (word, known))
        options[name] = value
    if options.get("export") == "on" and (rest or "output" not in options):
        raise WrongOption("--export=on needs --output=DIR, the folder to export, and takes no program")
    return options, rest


def run(program, variables):
    """Runs a program, and returns its exit code, or the negative number of the signal that ended it."""
    # Python itself ignores this signal.
    child = os.posix_spawnp(program[0], program, variables, setsigdef=[signal.SIGPIPE])
    _, status = os.waitpid(child, 0)
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


class Process:
    def __init__(self, path):
        self.devices, self.operations, self.launches = [], [], []
        self.facts = {"faults": [], "records": "idle_driver", "slowness": 1.0, "medians": {}, "finalised": False}
        with open(path, "rb") as file:
            while True:
                try:
                    kind, value = marshal.load(file)
                except (EOFError, ValueError):
                    return  # The end; a process that was killed may have written a part of a fact.
                if kind == "launches":
                    self.launches.extend(value)
                elif kind == "operation":
                    self.operations.append(value)
                elif kind == "device":
                    self.devices.append(value)
                elif kind == "medians":
                    self.facts["medians"].update(value)
                else:
                    self.facts[kind] = value


def collect(options, program):
    if shutil.which(program[0]) is None:
        raise Failure("application %s does not exist" % program[0])
    host, folder = read_host()
    try:
        with open("manifest.json", encoding="utf-8") as file:
            json.load(file)
    except FileNotFoundError:
        pass  # A script without a manifest.
    except (OSError, ValueError) as error:
        raise Failure("`manifest.json` is not this rehearsal host's: %s" % error) from None
    started = time.time_ns()
    written = os.path.join(folder, "launches", str(os.getpid()))
    os.makedirs(written, exist_ok=True)
    say("[INFO] Start profiling....")
    variables = dict(os.environ, NPUBENCH_REHEARSAL_LAUNCHES=written, NPUBENCH_REHEARSAL_STARTED=str(started))
    try:
        status = run(program, variables)
        processes = [Process(os.path.join(written, name)) for name in sorted(os.listdir(written))]
    except OSError as error:
        raise Failure("cannot start `%s`: %s" % (program[0], error.strerror)) from None
    finally:
        for name in os.listdir(written):
            os.remove(os.path.join(written, name))
        os.rmdir(written)
    append_medians(folder, processes)
    if status != 0:
        # The real one prints the exit status as an `errno`: 1 is "Operation not permitted".
        reason = os.strerror(status) if status > 0 else "killed by signal %d" % -status
        say("[WARNING] An exception has occurred in process App, return code: %s." % reason)
    processes = [each for each in processes if each.devices and each.facts["records"] != "none"]
    if not processes:
        raise Failure(
            "Failed to find profiling data, please check that the application executes AI-related business, or ensure that "
            "aclInit/GEInitialize is invoked in the application"
        )
    began, ended = time.monotonic(), time.time_ns()
    defects, slowness = host["faults"]["defects"], 1.0
    for number, process in enumerate(processes):
        if "lost_head" in defects:
            process.launches = corrupt.without_ends(process.launches, LOST_HEAD, 0)
        if not process.facts["finalised"]:
            process.launches = corrupt.written_before_end(process.launches, process.facts["records"])
        launched = process.launches
        process.launches = corrupt.corrupt_records(
            process.launches, process.operations, process.facts["faults"], device_count(host)
        )
        report(host, process, number, options, (started, ended), launched)
        slowness = max(slowness, process.facts["slowness"])
    plan = host["faults"]
    delay = plan["costs"]["export"] / plan["speed"] * slowness + (time.monotonic() - began) * (slowness - 1.0)
    if delay > 0.0:
        time.sleep(delay)
    return (status if 0 <= status < 256 else FAILED) if "msprof_exit_code" in defects else 0


def append_medians(folder, processes):
    lines = [
        "%s,%s,%s\n" % (case, kernel, tables.micros(median))
        for process in processes
        for (case, kernel), median in sorted(process.facts["medians"].items())
    ]
    try:
        # One write, because several collections append at once.
        with open(os.path.join(folder, "truth.csv"), "a", encoding="utf-8") as file:
            file.write("".join(lines))
    except OSError:
        pass  # A disk that is full or cannot be written is reported by the export.


def report(host, process, number, options, times, launched):
    """Exports the records of a process, and prints the lines of the real one."""
    metrics, has_types = options.get("aic-metrics", "PipeUtilization"), options.get("task-time") != "l0"
    if options.get("ai-core") == "off" or not has_types:
        metrics = "Disabled"
    faults, profile, defects = dict(process.facts["faults"]), host["profile"], host["faults"]["defects"]
    missing, full = faults.get("missing_output"), faults.get("disk_full")
    if missing and not missing["folder"]:
        say("[INFO] Profiling finished.")
        return
    started, ended = times
    clocks = tables.clocks_of(profile, process.launches, "unsettled_clock" not in defects, times)
    exported = tables.tables(profile, process.operations, process.launches, metrics, has_types, clocks, len(launched))
    if exported:
        exported["op_summary"] = corrupt.corrupt_table(exported["op_summary"], process.facts["faults"])
    chip = dict(profile)
    if "other_chip" in defects:
        chip["cube_cores"] -= OTHER_CHIP_CORES
    name = folder_name(started, host["seed"] + number)
    root = os.path.join(options.get("output", "."), name)
    analysis, devices = raw.exporter(profile, process.operations, metrics, has_types), process.devices
    if analysis:
        # The devices of launches are those that their records show.
        shown = [each for each in process.facts["faults"] if each[0] == "wrong_device_id"]
        launched = corrupt.corrupt_records(launched, process.operations, shown, device_count(host))
        devices = sorted({launch[0] for launch in launched}) or devices
    write_folder(root, chip, host["version"], devices, times, metrics, has_types)
    if analysis:
        raw.write(root, devices, profile, process.operations, launched, process.launches, metrics, clocks, process.facts["faults"])
    else:
        write_log(root, ended, "lost_raw_data" in faults)
    say("[INFO] Start export data in %s." % name)
    if missing:
        store_for_later(missing["second_export"], root, exported)
        say("[ERROR] Analysis environment is not OK.")
    elif full:
        store_for_later(full["second_export"], root, exported)
        export(root, exported, ended, analysis, full["keeps"])
        say("[ERROR] Failed to export data in %s: [Errno 28] No space left on device" % name)
    else:
        export(root, exported, ended, analysis)
        say_exported(name)
    output = os.path.join(root, OUTPUT)
    if os.path.isdir(output) and not analysis:
        write(os.path.join(output, "msprof_%s.json" % stamp(ended)), tables.clock_events(profile, clocks))
    say("[INFO] Profiling finished.")
    say("[INFO] Process profiling data complete. Data is saved in %s" % os.path.realpath(root))


def say_exported(name):
    say("[INFO] Export all data in %s done." % name)
    say("[INFO] Start query data in %s." % name)
    say("[INFO] Query all data in %s done." % name)


def folder_name(started, seed):
    """`PROF_<count>_<time, 17 digits>_<16 capitals>`"""
    numbers = [seed & ((1 << 64) - 1), started, os.getpid()]
    letters = "".join(chr(65 + pick_number(numbers + [index], 26)) for index in range(16))
    return "PROF_000001_%s%03d_%s" % (stamp(started), started // 1000000 % 1000, letters)


def stamp(at):
    """`yyyymmddHHMMSS`, as everywhere in local time."""
    return time.strftime("%Y%m%d%H%M%S", time.localtime(at // 1000000000))


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def write_json(path, value):
    write(path, json.dumps(value, separators=(",", ":"), sort_keys=True))


def write_folder(root, profile, version, devices, times, metrics, has_types):
    sample = {
        "ai_core_metrics": "" if metrics == "Disabled" else metrics,
        "ai_core_profiling_mode": "task-based",
        "taskTime": "l1" if has_types else "l0",
    }
    places = [("host", "", None)] + [("device_%d" % device, ".%d" % device, device) for device in devices]
    for place, suffix, device in places:
        folder = os.path.join(root, place)
        for name in ("data", "sqlite"):
            os.makedirs(os.path.join(folder, name))
        write_json(os.path.join(folder, "info.json" + suffix), info(profile, version, devices, device))
        write_json(os.path.join(folder, "sample.json"), sample)
        for name, at in zip(("start_info", "end_info"), times):
            begin = {"collectionTimeBegin": at / 1e3, "time": stamp(at)}
            write_json(os.path.join(folder, name + suffix), begin)
    write(os.path.join(root, "host", "host_start.log"), "[Host]\nrehearsal: the device's clock is the host's\n")
    os.makedirs(os.path.join(root, LOG))


def write_log(root, at, is_lossy):
    time_of_day = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at // 1000000000))
    lines = LOGGED + ((LOSS,) if is_lossy else ())
    write(os.path.join(root, LOG, "collection_host.log"), "".join("%s %s\n" % (time_of_day, line) for line in lines))


def info(profile, version, devices, device):
    """Readers take the numbers of cores and clocks from here; the real one writes clocks as text."""
    described = {
        "id": device,
        "env_type": 3,
        "ai_core_num": profile["cube_cores"],
        "aiv_num": profile["vector_cores"],
        "aic_frequency": str(profile["clock_mhz"]),
        "aiv_frequency": str(profile["clock_mhz"]),
        "hwts_frequency": "50.000000",
    }
    return {
        "platform_version": "rehearsal",
        "hostname": "rehearsal",
        "version": version,
        "devices": ",".join(map(str, devices)) if device is None else str(device),
        "rank_id": -1,
        "pid": str(os.getpid()),
        "DeviceInfo": [] if device is None else [described],
    }


def raw_file(root, name):
    """Readers do not take this file for a table."""
    return os.path.join(root, "host", "data", "rehearsal." + name)


def export(root, exported, at, analysis=None, keeps=1.0):
    """Exports a part of the bytes of each table: by the stand-in itself, or from raw data by the vendor's exporter."""
    output = os.path.join(root, OUTPUT)
    os.makedirs(output, exist_ok=True)
    readme = "Written by npubench's rehearsal host. No number in this folder was measured.\n"
    write(os.path.join(output, "README.txt"), readme)
    for name, table in exported.items():
        path = os.path.join(output, "%s_%s.csv" % (name, stamp(at)))
        # A second export does not depend on the tables of the first.
        if analysis:
            write(raw_file(root, name), table)
            continue
        write(path, corrupt.truncated(table, keeps))
        if not os.path.exists(raw_file(root, name)):
            os.link(path, raw_file(root, name))
    if analysis:
        raw.export(analysis, root)
        for name in os.listdir(output):
            path = os.path.join(output, name)
            os.truncate(path, int(os.path.getsize(path) * keeps))


def store_for_later(later, root, exported):
    """Stores the tables for a later export, or a mark with which a later export fails."""
    for name, table in exported.items() if later else [(NOT_EXPORTABLE, "")]:
        write(raw_file(root, name), table)


def export_again(folder):
    """`msprof --export=on`: exports a folder, or all folders below it, again, beside an older export."""
    profiles = [folder]
    if not os.path.basename(os.path.normpath(folder)).startswith("PROF_") or not os.path.isdir(folder):
        names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
        profiles = [os.path.join(folder, name) for name in names if name.startswith("PROF_")]
    profiles = [profile for profile in profiles if os.path.isdir(profile)]
    if not profiles:
        raise Failure("there is no `PROF_*` folder in `%s`" % folder)
    for profile in profiles:
        name = os.path.basename(os.path.normpath(profile))
        say("[INFO] Start export data in %s." % name)
        stored = {}
        if not os.path.exists(raw_file(profile, NOT_EXPORTABLE)):
            stored = {name: read_table(profile, name) for name in TABLES}
            stored = {name: table for name, table in stored.items() if table is not None}
            export(profile, stored, time.time_ns(), raw.exporter_of(profile))
        if stored:
            say_exported(name)
        else:
            # A failed export prints an error, with status 0.
            say("[ERROR] Failed to export data in %s." % name)
    return 0


def read_table(root, name):
    """Returns a stored table, or the newest exported one; None if there is none."""
    output = os.path.join(root, OUTPUT)
    exported = sorted(each for each in os.listdir(output) if each.startswith(name + "_")) if os.path.isdir(output) else []
    for path in [raw_file(root, name)] + [os.path.join(output, each) for each in exported[-1:]]:
        try:
            with open(path, encoding="utf-8") as file:
                return file.read()
        except OSError:
            pass  # Stored in the other place, or not at all.
    return None
