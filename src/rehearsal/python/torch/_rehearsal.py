"""Protocol with the simulated NPU: one line of JSON in each direction."""
import atexit
import builtins
import json
import math
import os
import resource
import signal
import socket
import sys
import threading
import time
import types

DTYPES = {}
_SOCKET = "NPUBENCH_REHEARSAL_SOCKET"
# Variables of torch_npu that change its behaviour.
_VARIABLES = ("TASK_QUEUE_ENABLE", "TORCH_NPU_COMPACT_ERROR_OUTPUT", "TORCH_NPU_LAZY_FUSION")
_lock = threading.Lock()
_stream = None
_freed = []


class OutOfMemoryError(RuntimeError):
    """Device memory ran out."""


class dtype:
    def __init__(self, name, is_floating_point):
        self.name = name
        self.is_floating_point = is_floating_point

    def __repr__(self):
        return "torch." + self.name


class Generator:
    """A generator without values; its seed has no effect."""

    def __init__(self, device="cpu"):
        self.device = str(device)

    def manual_seed(self, seed):
        return self


class Event:
    """An event of a stream: the simulated time at which it was recorded."""

    def __init__(self, enable_timing=False):
        self.enable_timing = enable_timing
        self.nanoseconds = None

    def record(self):
        self.nanoseconds = call("torch.npu.Event.record", (), {})

    def synchronize(self):
        """Waits for nothing: simulated launches have ended when they return."""

    def elapsed_time(self, end):
        """Returns the time until another event in milliseconds."""
        if not (self.enable_timing and end.enable_timing):
            raise RuntimeError("Both events must be created with argument 'enable_timing=True'.")
        return (end.nanoseconds - self.nanoseconds) / 1e6


class Name:
    """A dotted name below torch or torch_npu: a namespace until it is called."""

    def __init__(self, path):
        self._path = path

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError("'%s' has no attribute '%s'" % (self._path, name))
        return Name(self._path + "." + name)

    def __call__(self, *args, **kwargs):
        return call(self._path, args, kwargs)


class _Methods(type):
    """`torch.Tensor.copy_`, without an instance."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError("type object 'Tensor' has no attribute '%s'" % name)
        return Name("torch.Tensor." + name)


class Tensor(metaclass=_Methods):
    def __init__(self, handle, shape, dtype, device):
        self.handle = handle
        self.shape = tuple(shape)
        self.dtype = DTYPES[dtype]
        self.device = device

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError("'Tensor' object has no attribute '%s'" % name)

        def method(*args, **kwargs):
            return call("torch.Tensor." + name, (self,) + args, kwargs)

        return method

    def __len__(self):
        return self.shape[0]

    def __repr__(self):
        return "tensor(shape=%s, dtype=%r, device='%s')" % (list(self.shape), self.dtype, self.device)

    def __del__(self):
        # May run during a call: the next call sends the handles.
        _freed.append(self.handle)


def call(path, args, kwargs):
    """Sends a call to the simulated NPU, which compares and records it."""
    if path == "torch.npu.device_count" and not os.environ.get(_SOCKET):
        return _device_count()
    given = {}
    request = {
        "call": path,
        "args": [_encode(value, given) for value in args],
        "kwargs": {name: _encode(value, given) for name, value in kwargs.items()},
    }
    with _lock:
        if _stream is None:
            request["environment"] = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
        request["freed"] = [_freed.pop() for _ in range(len(_freed))]
        stream = _connected()
        try:
            stream.write(json.dumps(request).encode() + b"\n")
            stream.flush()
            line = stream.readline()
        except OSError:
            line = b""
    if not line:
        # msprof was ended, and this process will be; it is no error of the call.
        print("the rehearsal host's NPU has ended with its msprof", file=sys.stderr, flush=True)
        os._exit(1)
    answer = json.loads(line)
    if "action" in answer:
        _perform(answer["action"])
    if "error" in answer:
        raise _exception(answer["error"])
    return _decode(answer["value"], given)


def _device_count():
    """Counts the devices outside a collection, by the host's settings."""
    with open(os.environ["NPUBENCH_REHEARSAL"], encoding="utf-8") as file:
        host = json.load(file)
    container = host.get("faults", {}).get("container")
    return len(container["torch_order"] or container["visible"]) if container else host["devices"]


def operator_schemas():
    """Returns the schemas of the installed operators, with the attributes of torch's own."""
    schemas = []
    for name, arguments in call("torch._C._jit_get_all_schemas", (), {}):
        base, _, overload = name.partition(".")
        arguments = [types.SimpleNamespace(name=name, kwarg_only=kwarg_only) for name, kwarg_only in arguments]
        schemas.append(types.SimpleNamespace(name=base, overload_name=overload, arguments=arguments))
    return schemas


def _finalise():
    """Finalises the profiler, which `os._exit` and a signal prevent."""
    if _stream is not None:
        try:
            _stream.write(b'{"call": "finalise"}\n')
            _stream.flush()
            _stream.readline()
        except OSError:
            pass


atexit.register(_finalise)


def _perform(action):
    """Carries out the action of a fault on the process."""
    if "at_exit" in action:
        atexit.register(_perform, action["at_exit"])
    elif "exit" in action:
        os._exit(action["exit"])
    elif "signal" in action:
        # An injected fault writes no core file.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.kill(os.getpid(), action["signal"])
        time.sleep(3600)
    elif "hang" in action:
        _hang(**action["hang"])


def _hang(seconds, ignores_sigterm, grandchild):
    if ignores_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if grandchild != "none":
        import subprocess

        own = {"own_session": os.setsid, "own_group": os.setpgrp}.get(grandchild)
        # The grandchild keeps standard input and output open.
        subprocess.Popen(["sleep", "%f" % seconds], preexec_fn=own)
    time.sleep(seconds)


def _connected():
    global _stream
    if _stream is None:
        path = os.environ.get(_SOCKET)
        if not path:
            raise RuntimeError(
                "this torch is the stand-in of a rehearsal host and %s is not set; "
                "start it under the stand-in msprof: sh collect.sh" % _SOCKET
            )
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(path)
        _stream = connection.makefile("rwb")
    return _stream


def _encode(value, given):
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, (list, tuple)):
        return [_encode(item, given) for item in value]
    if isinstance(value, Tensor):
        given[value.handle] = value
        return {"tensor": value.handle}
    if isinstance(value, dtype):
        return {"dtype": value.name}
    if isinstance(value, Generator):
        return {"generator": value.device}
    return {"object": type(value).__name__}


def _decode(value, given):
    if isinstance(value, list):
        return tuple(_decode(item, given) for item in value)
    if isinstance(value, dict):
        return given[value["same"]] if "same" in value else Tensor(**value["tensor"])
    return value


def _exception(error):
    if error["type"] == "OutOfMemoryError":
        return OutOfMemoryError(error["message"])
    return getattr(builtins, error["type"])(error["message"])
