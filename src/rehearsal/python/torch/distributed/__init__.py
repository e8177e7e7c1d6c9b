"""Stand-in for torch.distributed: the group of the processes that torchrun has started.

Their store is in the process of torchrun on the first host.
"""
import os

from rehearsal import npu as _npu

_state = {}


def _of_torchrun(name):
    if name in os.environ:
        return os.environ[name]
    text = "Error initializing torch.distributed using env:// rendezvous: environment variable %s expected, but not set"
    raise ValueError(text % name)


def init_process_group(backend=None):
    if backend != "hccl":
        raise RuntimeError("rehearsal: a process group of an NPU is of hccl, not of %s" % backend)
    if _state:
        raise ValueError("trying to initialize the default process group twice!")
    address, port = _of_torchrun("MASTER_ADDR"), int(_of_torchrun("MASTER_PORT"))
    rank, size = int(_of_torchrun("RANK")), int(_of_torchrun("WORLD_SIZE"))
    _npu.call("torch.distributed.join_group", (address, port), {})
    _state.update(rank=rank, size=size, store=_Store(), barriers=0)
    barrier()


def destroy_process_group():
    _state.clear()


def _joined():
    if not _state:
        raise ValueError("Default process group has not been initialized, please make sure to call init_process_group.")
    return _state


def get_rank():
    return _joined()["rank"]


def get_world_size():
    return _joined()["size"]


def barrier():
    """Returns when every rank has called it as often."""
    state = _joined()
    state["barriers"] += 1
    key = "barrier %d of rank %d"
    state["store"].set(key % (state["barriers"], state["rank"]), "here")
    for other in range(state["size"]):
        state["store"].get(key % (state["barriers"], other))


def _collective(name):
    """A collective of the simulated NPU. The device waits for the other ranks, the process does not."""

    def call(*args):
        _joined()
        _npu.call("torch.distributed." + name, args, {})

    return call


all_reduce, broadcast = _collective("all_reduce"), _collective("broadcast")
all_gather_into_tensor = _collective("all_gather_into_tensor")
reduce_scatter_tensor = _collective("reduce_scatter_tensor")
all_to_all_single = _collective("all_to_all_single")
send, recv = _collective("send"), _collective("recv")


class _Store:
    def set(self, key, value):
        _npu.session().link.ask("set", key, value)

    def get(self, key):
        return _npu.session().link.ask("get", key).encode()


class _Backend:
    def get_hccl_comm_name(self, rank):
        if rank != get_rank():
            raise RuntimeError("rehearsal: this process is rank %d, not %d" % (get_rank(), rank))
        return "rehearsal group of %d ranks" % get_world_size()


class _Group:
    def _get_backend(self, device):
        if device.type != "npu":
            raise RuntimeError("No backend type associated with device type %s" % device.type)
        return _Backend()


class distributed_c10d:
    @staticmethod
    def _get_default_group():
        _joined()
        return _Group()

    @staticmethod
    def _get_default_store():
        return _joined()["store"]
