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

# Seconds that processes have to end.
GRACE = 30.0


def environment(rank, options, store):
    variables = {
        "RANK": rank,
        "LOCAL_RANK": rank,
        "WORLD_SIZE": options.nproc_per_node,
        "LOCAL_WORLD_SIZE": options.nproc_per_node,
        "MASTER_ADDR": options.local_addr,
        "MASTER_PORT": store.getsockname()[1],
        "TORCHELASTIC_USE_AGENT_STORE": True,
    }
    return dict(os.environ, **{name: str(value) for name, value in variables.items()})


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
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if options.nnodes != 1:
        parser.error("rehearsal: one host only")
    if not options.standalone or os.environ.get("TORCH_DISABLE_SHARE_RDZV_TCP_STORE") == "1":
        parser.error("rehearsal: without --standalone and a shared store, gangs may take each other's ports")
    # As the store of the real one: the system chooses the port, which is taken until the end.
    store = socket.create_server((options.local_addr, store_port()))
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
