"""Stand-in for torch_npu on a rehearsal host; see the stand-in for torch."""
import torch
from torch import _rehearsal

__version__ = "0+rehearsal"

# As the real one does, it brings the namespace `torch.npu`.
torch.npu = _rehearsal.Name("torch.npu")
torch.npu.OutOfMemoryError = torch.OutOfMemoryError
torch.npu.get_device_name = lambda device=None: "SoC of the rehearsal host"


def __getattr__(name):
    if name == "npu":
        return torch.npu
    if name.startswith("__"):
        raise AttributeError("module 'torch_npu' has no attribute '%s'" % name)
    return _rehearsal.Name("torch_npu." + name)
