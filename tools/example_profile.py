#!/usr/bin/env python3
"""Writes the profile of examples/decoder_profile: two ranks, two steps of three decoder layers, as torch_npu writes them.

All times are invented, so that the patterns of docs/reading-a-profile.md occur; the names of kernels start with `rehearsal_`, which
keeps them out of databases of kind npu. docs/reading-a-profile.md explains the output of the analyses."""

import csv
import json
import pathlib
import sys

EPOCH = 1_760_000_000_000_000  # us
PYTHON, CANN, HARDWARE, HCCL = 4100, 4200, 134_348_800, 134_348_864
MAIN, QUEUE = 4100, 4188  # threads of the host
COMPUTE, SIDE, LINK = 2, 5, 9  # streams
SHAPES = {
    "RmsNorm": ('"16,4096;4096"', "DT_BF16;DT_BF16", "ND;ND", '"16,4096;16,1"', "DT_BF16;FLOAT", "ND;ND"),
    "MatMulV2": ('"16,4096;4096,2560"', "DT_BF16;DT_BF16", "ND;ND", '"16,2560"', "DT_BF16", "ND"),
    "FusedInferAttentionScore": (
        '"16,1,8,128;16,2048,1,128;16,2048,1,128"', "DT_BF16;DT_BF16;DT_BF16", "ND;ND;ND",
        '"16,1,8,128"', "DT_BF16", "ND"),
    "SwiGlu": ('"16,6912"', "DT_BF16", "ND", '"16,3456"', "DT_BF16", "ND"),
    "Add": ('"16,4096;16,4096"', "DT_BF16;DT_BF16", "ND;ND", '"16,4096"', "DT_BF16", "ND"),
}
CORES = {"MatMulV2": "AI_CORE", "FusedInferAttentionScore": "MIX_AIC"}
OPERATORS = {
    "RmsNorm": "npu::npu_rms_norm", "MatMulV2": "aten::mm", "FusedInferAttentionScore": "npu::npu_fused_infer_attention_score",
    "SwiGlu": "npu::npu_swiglu", "Add": "aten::add",
}
HEADER = [
    "Step Id", "Device_id", "Model ID", "Task ID", "Stream ID", "Name", "Type", "OP State", "Accelerator Core",
    "Start Time(us)", "Duration(us)", "Wait Time(us)", "Block Dim", "Input Shapes", "Input Data Types", "Input Formats",
    "Output Shapes", "Output Data Types", "Output Formats", "aic_mac_time(us)",
]


class Rank:
    """One rank: a host that launches ahead of its device, and the device."""

    def __init__(self, rank):
        self.rank = rank
        self.events, self.rows = [], []
        self.host = 0.0  # us since the epoch of the example
        self.free = {COMPUTE: 0.0, SIDE: 0.0, LINK: 0.0}
        self.connection = 0
        self.step = 0
        for pid, name in ((PYTHON, "Python"), (CANN, "CANN"), (HARDWARE + rank, "Ascend Hardware"), (HCCL + rank, "HCCL")):
            self.events.append({"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}})
        for pid in (HARDWARE + rank, HCCL + rank):
            self.events.append({"ph": "M", "name": "process_labels", "pid": pid, "tid": 0, "args": {"labels": f"NPU {rank}"}})
        self.events.append({"ph": "M", "name": "thread_name", "pid": HCCL + rank, "tid": 0, "args": {"name": "Group 0 Communication"}})

    def time(self, value):
        # Microseconds since the epoch have more digits than a floating point number.
        whole, nanoseconds = divmod(self.nanoseconds(value), 1000)
        return f"{whole}.{nanoseconds:03d}"

    def complete(self, name, pid, tid, start, duration, cat=None, args=None):
        event = {"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": self.time(start), "dur": round(duration, 3)}
        if cat:
            event["cat"] = cat
        event["args"] = args or {}
        self.events.append(event)

    def flow(self, start_ns, tid, host, pid, stream, device):
        for ph, pid, tid, time in (("s", PYTHON, tid, host), ("f", pid, stream, device)):
            self.events.append({"ph": ph, "bp": "e", "name": "torch_to_npu", "cat": "async_npu", "id": start_ns,
                                "pid": pid, "tid": tid, "ts": self.time(time)})

    def launch(self, operator, late=0.0):
        """Calls an operator on the host; returns its start and the end of its launch by CANN."""
        self.connection += 1
        start, self.host = self.host, self.host + 6.0
        begin = start + 7.0 + late
        self.complete(operator, PYTHON, MAIN, start, 5.0, "cpu_op")
        self.complete("Node@launch", CANN, QUEUE, begin, 3.0, None, {"level": "node", "connection_id": self.connection})
        return start, begin + 3.0

    def kernel(self, kind, duration, stream=COMPUTE, late=0.0, after=0.0):
        start, launched = self.launch(OPERATORS[kind], late)
        begin = round(max(self.free[stream], launched + 2.0, after), 3)
        self.free[stream] = round(begin + duration, 3)
        name = f"rehearsal_aclnn{kind}_{kind}"
        core = CORES.get(kind, "AI_VECTOR_CORE")
        self.complete(name, HARDWARE + self.rank, stream, begin, duration, None, {
            "Task Type": core, "Physic Stream Id": stream, "Task Id": self.connection, "connection_id": self.connection})
        self.flow(self.nanoseconds(begin), MAIN, start, HARDWARE + self.rank, stream, begin)
        mac = f"{duration * 0.6:.3f}" if core != "AI_VECTOR_CORE" else "0"
        self.row(stream, name, kind, core, begin, duration, SHAPES[kind], mac)
        return self.free[stream]

    def nanoseconds(self, value):
        return EPOCH * 1000 + round(value * 1000)

    def row(self, stream, name, kind, core, begin, duration, cells, mac):
        self.rows.append([self.step, self.rank, 4294967295, self.connection, stream, name, kind, "dynamic", core,
                          self.time(begin) + "\t", f"{duration:.3f}", 0, 20, *cells, mac])

    def collective(self, number, begin, end):
        start, _ = self.launch("c10d::allreduce_")
        name = f"hcom_allReduce__271_{number}_1"
        duration = round(end - begin, 3)
        self.complete(name, HCCL + self.rank, 0, begin, duration, None,
                      {"connection_id": self.connection, "data_type": "BFP16", "alg_type": "MESH", "count": 65536})
        self.flow(self.nanoseconds(begin), MAIN, start, HCCL + self.rank, 0, begin)
        self.row(LINK, name, "hcom_allReduce_", "HCCL", begin, duration, ("N/A",) * 6, "N/A")
        self.free[LINK] = end

    def task(self, name, kind, stream, begin, duration):
        self.connection += 1
        self.complete(name, HARDWARE + self.rank, stream, begin, duration, None,
                      {"Task Type": kind, "Physic Stream Id": stream, "Task Id": self.connection, "connection_id": self.connection})

    def write(self, folder):
        output = folder / f"rank{self.rank}_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
        output.mkdir(parents=True, exist_ok=True)
        (output.parent / f"profiler_info_{self.rank}.json").write_text(json.dumps({"rank_id": self.rank}) + "\n")
        (output / "trace_view.json").write_text("[" + ",\n".join(json.dumps(event) for event in self.events) + "]\n")
        with open(output / "kernel_details.csv", "w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(HEADER)
            writer.writerows(self.rows)


class Module:
    """Records the range of a module on the hosts of all ranks."""

    def __init__(self, ranks, name):
        self.ranks, self.name = ranks, name

    def __enter__(self):
        self.starts = [rank.host for rank in self.ranks]
        for rank in self.ranks:
            rank.host += 1.0

    def __exit__(self, *_):
        for rank, start in zip(self.ranks, self.starts):
            rank.complete(f"nn.Module: {self.name}", PYTHON, MAIN, start, rank.host - start, "python_function")
            rank.host += 1.0


def all_reduce(ranks, number, transfer):
    """The ranks meet when the last one arrives; those that arrived early wait inside the collective."""
    begins = [round(max(rank.free[COMPUTE] + 2.0, rank.free[LINK]), 3) for rank in ranks]
    end = round(max(begins) + transfer, 3)
    for rank, begin in zip(ranks, begins):
        rank.collective(number, begin, end)
    return end


def run_step(ranks, number):
    starts = [rank.host for rank in ranks]
    for rank in ranks:
        rank.step = number
        rank.host += 20.0
    with Module(ranks, "Decoder_0"):
        for layer in range(3):
            with Module(ranks, f"DecoderLayer_{layer}"):
                run_layer(ranks, number, layer)
    for rank, start in zip(ranks, starts):
        # The host waits for the device at the end of a step.
        rank.host = max(rank.host, max(rank.free.values()) + 15.0)
        rank.complete(f"ProfilerStep#{number}", PYTHON, MAIN, start, rank.host - start, "cpu_op")


def run_layer(ranks, number, layer):
    collectives = (number * 3 + layer) * 2
    with Module(ranks, f"Attention_{layer}"):
        for rank in ranks:
            if layer == 1 and number == 7:
                # The framework does something else, such as a log message or a garbage collection.
                rank.host = max(rank.host, rank.free[COMPUTE]) + 180.0
            rank.kernel("RmsNorm", 8.4)
            rank.kernel("MatMulV2", 31.2)
            # In layer 2 the launch is slow, for example because an operator is compiled; the host is still ahead of the device.
            rank.kernel("FusedInferAttentionScore", 42.6 if rank.rank == 0 else 44.1, late=140.0 if layer == 2 and number == 7 else 0.0)
            # Rank 1 is late: its product takes longer, and rank 0 waits in the collective.
            rank.kernel("MatMulV2", 24.8 if rank.rank == 0 else 63.5)
    end = all_reduce(ranks, collectives, 38.0)
    with Module(ranks, f"Mlp_{layer}"):
        for rank in ranks:
            if layer == 0:
                # A copy between host and device, for which the kernels wait.
                rank.task("MEMCPY_ASYNC", "PCIE_DMA_SQE", COMPUTE, end + 1.0, 55.0)
                end_of_copy = end + 57.0
            else:
                end_of_copy = end + 1.5
            rank.task("EVENT_WAIT", "EVENT_WAIT_SQE", COMPUTE, rank.free[COMPUTE], end - rank.free[COMPUTE])
            rank.kernel("Add", 6.2, after=end_of_copy)
            rank.kernel("RmsNorm", 8.4)
            rank.kernel("MatMulV2", 52.0)
            rank.kernel("SwiGlu", 11.3)
            rank.kernel("MatMulV2", 29.5)
    end = all_reduce(ranks, collectives + 1, 38.0)
    for rank in ranks:
        # A shared product on a second stream hides the collective.
        rank.kernel("MatMulV2", 36.0, stream=SIDE, after=rank.free[COMPUTE] + 1.0)
        rank.free[COMPUTE] = max(rank.free[COMPUTE], end)


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1] / "examples/decoder_profile")
    ranks = [Rank(0), Rank(1)]
    for number in (7, 8):
        run_step(ranks, number)
    for rank in ranks:
        rank.write(folder)


main()
