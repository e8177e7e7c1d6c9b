"""The stand-in for `npu-smi`: the table of `npu-smi info` and the numbers of `npu-smi info -m`
of an A3 host with two dies per card, line by line as in a capture of driver 25.0.rc1 and, for the numbers, in the public source of the
driver's tool."""
import atexit
import os
import sys
import time

from .faults import Faults, HostError, read_host
from .log import QUERIED

HBM_TOTAL = 65536
VERSION = "25.0.rc1"
DIES = 2
WHOLE = 96
BETWEEN_DIES = "+" + "-" * WHOLE + "+\n"
THIN = "+---------------------------+---------------+----------------------------------------------------+\n"
THICK = THIN.replace("-", "=")
# Device memory of a replay in MB, seconds after its last call for which a process counts as busy, and its use of the cores.
PROCESS_MB, BUSY_TIME, BUSY_PERCENT = 1024, 2.0, 97
# Difference between the id of a process on the host, which is invented, and inside the container.
HOST_PID_OFFSET = 3000000


def main(arguments=None):
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        host, folder = read_host()
    except HostError as error:
        print("rehearsal: %s\nhint: %s" % error.args)
        return 1
    store_interpreter(folder)
    if "slow_while_queried" in host["faults"]["defects"]:
        atexit.register(note_end, folder)
    container = host["faults"].get("container")
    faults = Faults(host, folder)
    readings = [reading(host, faults, folder, device) for device in range(host["devices"])]
    if arguments == ["info"]:
        print(info_table(readings, container and container["process_ids"]), end="")
    elif arguments == ["info", "-m"]:
        numbers = chip_map(readings, container)
        print("This device does not support querying mapping." if numbers is None else numbers)
        return int(numbers is None)
    else:
        print("rehearsal: the stand-in of npu-smi answers `npu-smi info` and `npu-smi info -m` only")
        return 1
    return 0


def note_end(folder):
    with open(os.path.join(folder, QUERIED), "w"):
        pass


def store_interpreter(folder):
    """Stores the path of this interpreter for the next stand-ins, because `python3` may be a script that takes long to find
    it. No link: whoever changes the modes of a database's files would change those of the interpreter."""
    try:
        with open(os.path.join(folder, "interpreter"), "x", encoding="utf-8") as file:
            file.write(sys.executable + "\n")
    except OSError:
        pass  # It is there, or the folder cannot be written.


def reading(host, faults, folder, device):
    """The readings of a device; one that the container does not see is not listed. Idle devices differ a little."""
    state, container = faults.of_device(device), host["faults"].get("container")
    values = {
        "temperature": 41 + device * 7 % 9,
        "power": 158.2 + device * 5 % 11 / 2.0,
        "memory": 2880 + device * 3 % 8,
        "percent": 0,
        "processes": [],
        "is_lost": "device_lost" in state or container is not None and device not in container["visible"],
    }
    if "throttling" in state:
        values["temperature"] = state["throttling"]["temperature"]
        values["power"] += 150.0
    leftover = state.get("leftover_process")
    if leftover:
        held = max(HBM_TOTAL - values["memory"] - leftover["free_mb"], 0)
        values["memory"] += held
        values["processes"].append((leftover["pid"], leftover["name"], held))
    shown = device ^ 1 if "swapped_devices" in host["faults"]["defects"] else device
    for pid, is_busy in processes_of(folder, shown):
        values["percent"] = max(values["percent"], BUSY_PERCENT if is_busy else 0)
        values["memory"] += PROCESS_MB
        values["processes"].append((pid, "python3", PROCESS_MB))
    return values


def processes_of(folder, device):
    """The running processes that use a device, and whether they are busy: a file for each, written while the process calls the
    simulated NPU."""
    found, busy = [], os.path.join(folder, "busy")
    for name in os.listdir(busy) if os.path.isdir(busy) else []:
        number, _, pid = name.partition(".")
        if number != str(device) or not os.path.exists("/proc/" + pid):
            continue
        try:
            with open(os.path.join(busy, name), encoding="utf-8") as file:
                found.append((int(pid), time.time() - int(file.read()) / 1e9 < BUSY_TIME))
        except (OSError, ValueError):
            pass  # The file is being replaced.
    return sorted(found)


def line(*cells):
    return "".join("|" + text.ljust(width) for width, text in cells) + "|\n"


def cards_of(readings):
    dies = [(device, values) for device, values in enumerate(readings) if not values["is_lost"]]
    cards = sorted({device // DIES for device, _ in dies})
    return [(card, [each for each in dies if each[0] // DIES == card]) for card in cards]


def info_table(readings, process_ids=None):
    """The table of `npu-smi info`. Inside a container, process ids are those of the host (`host`), and newer drivers have those
    of the container in a column of their own (`container`)."""
    table = BETWEEN_DIES + line((WHOLE, " npu-smi %-24s Version: %s" % (VERSION, VERSION))) + THIN
    table += "| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|\n"
    table += "| Chip  Phy-ID              | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |\n" + THICK
    cards = cards_of(readings)
    for card, dies in cards:
        table += BETWEEN_DIES.join(chip(card, device, values) for device, values in dies) + THICK
    table += THIN
    if process_ids == "container":
        table += "| NPU     Chip              | Process id    | Process name | Process memory(MB) | Process id in container |\n"
    else:
        table += "| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |\n"
    table += THICK
    for card, dies in cards:
        table += process_lines(card, dies, process_ids) + THICK
    return table


def chip(card, device, values):
    """The two lines of one die; the power is that of the card, at its first die only."""
    die = device % DIES
    power = "-" if die else "%.1f" % values["power"]
    # The addresses of the capture, counted down from 9D by card; every eight cards have another domain.
    bus = "%04X:%02X:00.0" % (card // 8, 0x9D - 4 * (card % 8) + 2 * die)
    first = " %-11s %-17d 0    / 0" % (power, values["temperature"])
    second = " %-11d 0    / 0          %-5d/ %d" % (values["percent"], values["memory"], HBM_TOTAL)
    lines = line((27, " %-5d Ascend910" % card), (15, " OK"), (52, first))
    return lines + line((27, " %-5d %d" % (die, device)), (15, " " + bus), (52, second))


def process_lines(card, dies, process_ids):
    lines = ""
    for device, values in dies:
        for pid, name, memory in values["processes"]:
            # A name as the kernel keeps it, 15 bytes long; what would break the frame becomes `?`.
            name = "".join(each if 31 < ord(each) < 127 and each != "|" else "?" for each in name[:15])
            inside = "NA"
            # A process that does not run here is outside the container, and its id is the host's.
            if process_ids and os.path.exists("/proc/%d" % pid):
                pid, inside = pid + HOST_PID_OFFSET, str(pid)
            cells = [(27, " %-7d %d" % (card, device % DIES)), (15, " %d" % pid)]
            if process_ids == "container":
                cells += [(14, " " + name), (20, " %d" % memory), (25, " " + inside)]
            else:
                cells += [(26, " " + name), (25, " %d" % memory)]
            lines += line(*cells)
    return lines or line((WHOLE, " No running processes found in NPU %d" % card))


def chip_map(readings, container):
    """The numbers of `npu-smi info -m`; None where the host refuses the command. Each card has a microcontroller besides its
    dies."""
    answer = container["chip_map"] if container else "host"
    if answer == "refused":
        return None
    row = "\t%-30s %-30s %-30s %-30s %s"
    lines = [row % ("NPU ID", "Chip ID", "Chip Logic ID", "Chip Phy-ID", "Chip Name")]
    for card, dies in cards_of(readings):
        for device, _ in dies:
            logic_id = container["visible"].index(device) if answer == "container" else device
            lines.append(row % (card, device % DIES, logic_id, device, "Ascend910"))
        lines.append(row % (card, DIES, "-", "-", "Mcu"))
    return "\n".join(lines)
