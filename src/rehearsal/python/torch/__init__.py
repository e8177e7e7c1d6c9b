"""Stand-in for torch on a rehearsal host. It computes nothing and holds no data: every function, known or not, is one of the
simulated NPU, which returns tensors without values or raises the exception that torch would raise."""
from rehearsal import memory as _memory
from rehearsal import npu as _npu
from rehearsal.memory import Generator, OutOfMemoryError, Tensor, dtype

__version__ = "0+rehearsal"

for _names, _is_floating in (
    ("bfloat16 float16 float32 float64", True),
    ("bool int8 uint8 int16 int32 int64 qint8 quint8 quint4x2 qint32", False),
):
    for _name in _names.split():
        globals()[_name] = _memory.DTYPES[_name] = dtype(_name, _is_floating)
half, float, double, short, int, long = (_memory.DTYPES[each] for each in "float16 float32 float64 int16 int32 int64".split())


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
