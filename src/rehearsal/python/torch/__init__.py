"""Stand-in for torch on a rehearsal host. It computes nothing and holds no data: every function, known or not, is one of the
simulated NPU, which returns tensors without values or raises the exception that torch would raise."""
from rehearsal import memory as _memory
from rehearsal import npu as _npu
from rehearsal.memory import Generator, OutOfMemoryError, Tensor, dtype

__version__ = "0+rehearsal"

bfloat16 = dtype("bfloat16", True)
float16 = half = dtype("float16", True)
float32 = float = dtype("float32", True)
float64 = double = dtype("float64", True)
bool = dtype("bool", False)
int8 = dtype("int8", False)
uint8 = dtype("uint8", False)
int16 = short = dtype("int16", False)
int32 = int = dtype("int32", False)
int64 = long = dtype("int64", False)
qint8 = dtype("qint8", False)
quint8 = dtype("quint8", False)
quint4x2 = dtype("quint4x2", False)
qint32 = dtype("qint32", False)

_memory.DTYPES.update((each.name, each) for each in tuple(globals().values()) if isinstance(each, dtype))


def compile(function, *, backend=None, dynamic=None):
    """A graph of one call is the call; what torchair makes of it, only a device shows."""
    if backend != "npu":
        raise RuntimeError("rehearsal: compile knows torchair's backend only")
    return function


class _C:
    """The operators of the catalogue, in place of torch's registry."""

    @staticmethod
    def _jit_get_all_schemas():
        return _npu.operator_schemas()


class device:
    """Where tensors lie."""

    def __init__(self, name):
        self.type, _, self.index = name.partition(":")


def __getattr__(name):
    # `torch.npu` comes with torch_npu, `torch.distributed` is a module of its own, and Python asks modules for names
    # such as `__path__`.
    if name in ("npu", "distributed") or name.startswith("__"):
        raise AttributeError("module 'torch' has no attribute '%s'" % name)
    return _memory.Name("torch." + name)
