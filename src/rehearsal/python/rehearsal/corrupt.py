"""Effects of faults on the records of a collection and on their export."""
from .tensors import SENTINEL
from .timing import whole

# A process reads its records from the driver and writes them once it has so many bytes of a channel, which each device has for
# itself: from 2 MiB on as soon as the driver has no more, else from 4 MiB on. It writes the rest when the profiler is finalised,
# which a signal and `os._exit` prevent. Source: cann/oam-tools v8.5.0 to v9.2.0-beta.1 and cann/runtime 2026-08,
# transport/prof_channel.cpp, ChannelReader::Execute, UPLOAD_BUFFER_SIZE and MAX_BUFFER_SIZE.
WRITTEN_BYTES = {"idle_driver": 2 << 20, "busy_driver": 4 << 20}
# Bytes of a task in the channel of task times: records of its begin and of its end (Ascend/msprof 9ba1ac7, AcsqTask).
TASK_BYTES = 128
# Series of equal launches from which a record is repeated.
MIN_SERIES = 5


def written_before_end(launches, driver):
    """The launches whose records are on the disk when the process ends without finalising the profiler."""
    written, step = [], WRITTEN_BYTES[driver]
    for device in sorted({launch[0] for launch in launches}):
        of_device = [launch for launch in launches if launch[0] == device]
        written += of_device[: len(of_device) * TASK_BYTES // step * step // TASK_BYTES]
    return written


def corrupt_records(launches, operations, faults, devices):
    for kind, parameters in faults:
        if kind == "wrong_unit":
            factor = parameters["factor"]
            # The cores count the same cycles, from which the profiler computes their time.
            launches = [
                launch[:4] + (whole(launch[4] * factor), launch[5] * factor) + launch[6:] for launch in launches
            ]
        elif kind == "coarse_timer":
            step = parameters["step"]
            launches = [
                launch[:3] + tuple((time + step // 2) // step * step for time in launch[3:5]) + launch[5:]
                for launch in launches
            ]
        elif kind == "lost_records":
            launches = without_ends(launches, parameters["head"], parameters["tail"])
        elif kind == "repeated_records":
            launches = repeated(launches, operations)
        elif kind == "wrong_device_id":
            shown = parameters["shows"]
            launches = [
                ((launch[0] + 1) % max(devices, 2) if shown is None else shown,) + launch[1:] for launch in launches
            ]
    return launches


def without_ends(launches, head, tail):
    return launches[head : max(len(launches) - tail, head)]


def repeated(launches, operations):
    """Replaces one record of each series of equal launches, which are not sentinels, by the one before it."""
    launches, start = list(launches), 0
    for end in range(1, len(launches) + 1):
        if end == len(launches) or (launches[end][0], launches[end][8]) != (launches[start][0], launches[start][8]):
            if end - start >= MIN_SERIES and operations[launches[start][8]][1] != SENTINEL:
                middle = start + (end - start) // 2
                launches[middle] = launches[middle - 1]
            start = end
    return launches


def corrupt_table(table, faults):
    for kind, parameters in faults:
        if kind == "truncated_csv":
            table = truncated(table, parameters["keeps"])
        elif kind == "no_device_id":
            table = without_device_ids(table, parameters["column"])
        elif kind == "ragged_csv":
            table = with_ragged_rows(table, parameters["rows"])
    return table


def truncated(table, share):
    return table[: int(len(table) * share)]


def without_device_ids(table, keeps_column):
    lines = table.splitlines()
    bare = [line.partition(",")[2] for line in lines]
    if keeps_column:
        bare = lines[:1] + ["N/A," + line for line in bare[1:]]
    return "".join(line + "\n" for line in bare)


def with_ragged_rows(table, rows):
    """Removes the last cell of a number of rows, evenly over the table."""
    lines = table.splitlines()
    count = len(lines) - 1
    rows = min(rows, count)
    for line in {row * count // rows for row in range(1, rows + 1)}:
        lines[line] = lines[line].rpartition(",")[0]
    return "".join(line + "\n" for line in lines)
