"""Stand-in for torchrun: starts a process per rank on this host and ends all of them when one fails.

Like the real one, it starts each in a session of its own, with no open files but the standard ones.
"""
import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time
import zlib

from rehearsal.store import Store

# Seconds that processes have to end.
GRACE = 30.0


def environment(local_rank, options, store):
    first, size = places(options)
    variables = {
        "RANK": first + local_rank,
        "LOCAL_RANK": local_rank,
        "WORLD_SIZE": size,
        "LOCAL_WORLD_SIZE": options.nproc_per_node,
        "GROUP_RANK": options.node_rank,
        "GROUP_WORLD_SIZE": options.nnodes,
        "MASTER_ADDR": options.local_addr if options.standalone else options.master_addr,
        "MASTER_PORT": store.getsockname()[1] if store else options.master_port,
        "TORCHELASTIC_USE_AGENT_STORE": True,
    }
    return dict(os.environ, **{name: str(value) for name, value in variables.items()})


def places(options):
    """Returns the first rank of this host and the number of all ranks. The torchruns of several hosts exchange their numbers
    of processes; this one takes them from the manifest."""
    if options.nnodes == 1:
        return 0, options.nproc_per_node
    with open(options.arguments[0], encoding="utf-8") as file:
        ranks = [host["ranks"] for host in json.load(file)["hosts"]]
    if len(ranks) != options.nnodes or ranks[options.node_rank] != options.nproc_per_node:
        sys.exit("rehearsal: the manifest has other hosts than the options of torchrun")
    return sum(ranks[: options.node_rank]), sum(ranks)


def store_port():
    """Returns the port of the store: 0, so that the system chooses one, or the port of a host where all gangs share it."""
    path = os.environ.get("NPUBENCH_REHEARSAL", "")
    if not path:
        return 0
    with open(path, encoding="utf-8") as file:
        defects = json.load(file).get("faults", {}).get("defects", [])
    # Below the ports that the system chooses, and different for each rehearsal host.
    return 20000 + zlib.crc32(path.encode()) % 12000 if "shared_rendezvous_port" in defects else 0


def end(workers):
    """SIGTERM, grace, SIGKILL."""
    for worker in workers:
        if worker.poll() is None:
            worker.terminate()
    deadline = time.monotonic() + GRACE
    for worker in workers:
        try:
            worker.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()


class SignalReceived(Exception):
    """A signal to end."""


def on_signal(number, frame):
    raise SignalReceived(number)


def main():
    parser = argparse.ArgumentParser(prog="torchrun", allow_abbrev=False)
    parser.add_argument("--nnodes", type=int, default=1)
    parser.add_argument("--nproc_per_node", "--nproc-per-node", type=int, default=1)
    parser.add_argument("--standalone", action="store_true")
    parser.add_argument("--local-addr", "--local_addr", default="127.0.0.1")
    parser.add_argument("--node-rank", "--node_rank", type=int, default=0)
    parser.add_argument("--master-addr", "--master_addr", default="127.0.0.1")
    parser.add_argument("--master-port", "--master_port", type=int, default=0)
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if options.standalone == (options.nnodes != 1):
        parser.error("rehearsal: --standalone is for one host, and several hosts need a place to meet")
    if os.environ.get("TORCH_DISABLE_SHARE_RDZV_TCP_STORE") == "1":
        parser.error("rehearsal: without --standalone and a shared store, gangs may take each other's ports")
    # As the store of the real one: of a single host, the system chooses the port, which is taken until the end.
    store = None
    if options.standalone:
        store = socket.create_server((options.local_addr, store_port()))
    elif options.node_rank == 0:
        store = socket.create_server((options.master_addr, options.master_port))
    if store is not None:
        Store(store)
    workers = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, on_signal)
    try:
        for rank in range(options.nproc_per_node):
            command = [sys.executable, "-u", options.script] + options.arguments
            workers.append(subprocess.Popen(command, env=environment(rank, options, store), start_new_session=True))
        while any(worker.poll() is None for worker in workers):
            if any(worker.poll() for worker in workers):
                break
            time.sleep(0.01)
    except SignalReceived as received:
        end(workers)
        return 128 + received.args[0]
    failed = [(rank, worker) for rank, worker in enumerate(workers) if worker.poll()]
    end(workers)
    for rank, worker in failed:
        failure = (worker.returncode, rank, worker.pid, sys.executable)
        print("failed (exitcode: %d) local_rank: %d (pid: %d) of binary: %s" % failure, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
