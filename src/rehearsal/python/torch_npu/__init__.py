"""Stand-in for torch_npu on a rehearsal host; see the stand-in for torch."""
import torch

from rehearsal import memory as _memory
from rehearsal import npu as _npu

__version__ = "0+rehearsal"

# As the real one does, it brings the namespace `torch.npu`.
torch.npu = _memory.Name("torch.npu")
torch.npu.Event = _npu.Event
torch.npu.matmul, torch.npu.conv = _npu.MATMUL, _npu.CONV
torch.npu.OutOfMemoryError = torch.OutOfMemoryError
torch.npu.get_device_name = lambda device=None: "SoC of the rehearsal host"


class _Graph:
    """Launches that are captured and replayed; the simulated NPU holds them by a number."""

    _count = 0

    def __init__(self):
        _Graph._count += 1
        self._number = _Graph._count

    def capture_begin(self):
        _npu.call("torch.npu.NPUGraph.capture_begin", (self._number,), {})

    def capture_end(self):
        _npu.call("torch.npu.NPUGraph.capture_end", (self._number,), {})

    def replay(self):
        _npu.call("torch.npu.NPUGraph.replay", (self._number,), {})


class _Capture:
    """`with torch.npu.graph(captured):`"""

    def __init__(self, captured):
        self._captured = captured

    def __enter__(self):
        self._captured.capture_begin()

    def __exit__(self, *raised):
        self._captured.capture_end()


torch.npu.NPUGraph = _Graph
torch.npu.graph = _Capture


def __getattr__(name):
    if name == "npu":
        return torch.npu
    if name.startswith("__"):
        raise AttributeError("module 'torch_npu' has no attribute '%s'" % name)
    return _memory.Name("torch_npu." + name)
