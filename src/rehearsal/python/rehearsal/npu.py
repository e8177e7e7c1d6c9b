"""The simulated NPU of a process: compares each call of torch with the manifest's case, and records launches as a profiler would.

It computes no kernel. Not modelled: transfers between host and device, kernels that communicate (a rank of a gang takes as long
as alone; collectives of a sweep wait for all ranks and exchange data), several streams.
"""
import atexit
import json
import os
import time
import types

from . import entries, factories, faults, functions, log
from .compare import compare_call, ranks_of
from .entries import kernel_of_call
from .injector import Injector
from .memory import UNKNOWN, Memory, Name, OutOfMemoryError, Tensor
from .schema import bind, parse
from .tensors import BASE_FORMATS, CUBE, VECTOR, Operation, plain_operation, recorded_tensor, require, row_major_format, shown

EVENT_RECORD = "torch.npu.Event.record"
# Arguments by kernel whose rows must ascend; otherwise a core raises an exception, which the next `synchronize` returns.
ASCENDING = {"SparseFlashAttention": "sparse_indices"}
# Kernel that a host with the defect `other_kernel_name` records under another name.
RENAMED = ("LayerNormV3", "LayerNormV4")
# Numbers of ranks that calls take, with the text for others. Gather and scatter: Ascend/op-plugin, AllGatherBaseMatmulKernelNpuOpApi.cpp
# and MatmulReduceScatterBaseKernelNpuOpApi.cpp in op_plugin/ops/opapi, versions 6.0.0 to 26.1.0 and commit 517f2e7. All-reduce:
# CheckRanksizePlatformSupported in matmul_all_reduce_tiling.cpp (ops-transformer, October 2025).
PAIRWISE = (2, 4, 8, 16, 32), "world_size should be in [2, 4, 8, 16, 32], but the actual value is %d."
REDUCED = (1, 2, 4, 8, 16, 32, 64), (
    "call aclnnMatmulAllReduce failed, detail:EZ9999: Inner Error!\n        rank size %d is not supported by socversion id:1 yet;"
    "A2 supports rank size 1,2,4,8A5 supports rank size 1,2,4,8,16,32,64Ascend 310P supports rank size 1,2,4"
)
RANKS = {"npu_all_gather_base_mm": PAIRWISE, "npu_mm_reduce_scatter_base": PAIRWISE, "npu_mm_all_reduce_base": REDUCED}
# Switches with torch_npu's defaults (Ascend/pytorch 9e73e708, torch_npu/csrc/framework/LazyInitAclops.cpp).
MATMUL, CONV = types.SimpleNamespace(allow_hf32=False), types.SimpleNamespace(allow_hf32=True)
# Files of the processes that use a device, for npu-smi, and the seconds after which one is renewed.
BUSY, RENEWED = "busy", 0.1


class Session:
    def __init__(self):
        self.host, self.folder = faults.read_host()
        self.manifest = None
        try:
            with open("manifest.json", encoding="utf-8") as file:
                self.manifest = json.load(file)
        except OSError:
            pass  # A script without a manifest.
        manifest, plan = self.manifest, self.host["faults"]
        self.devices = faults.device_count(self.host)
        # The device of `npu` without a number.
        self.current = 0
        self.memory = Memory(self.host["profile"]["hbm_gib"] << 30)
        self.log = log.open_log(self.host, manifest)
        self.faults = faults.Faults(self.host, self.folder, manifest)
        # Of a slow device, the start of Python takes longer as well.
        started = time.monotonic() - (time.time_ns() - int(os.environ["NPUBENCH_REHEARSAL_STARTED"])) / 1e9
        self.injector = Injector(plan, self.faults, self.log, self.memory, started)
        self.entries = entries.Entries(self.host, self.folder, [case["kernel"] for case in self.log.cases.values()])
        # `TASK_QUEUE_ENABLE=2`: workspace memory is allocated in another thread, whose errors are raised at the next
        # synchronize.
        self.injector.has_deferred_errors = os.environ.get("TASK_QUEUE_ENABLE") == "2"
        # Errors of CANN have no code.
        self.has_compact_errors = os.environ.get("TORCH_NPU_COMPACT_ERROR_OUTPUT") == "1"
        # Element-wise operators are fused into kernels of other names.
        self.fuses_elementwise = os.environ.get("TORCH_NPU_LAZY_FUSION") == "True"
        self.gang = (manifest or {}).get("gang") or ([manifest["device"]] if manifest else [])
        ranks = [host["ranks"] for host in (manifest or {}).get("hosts", [])] or [len(self.gang)]
        place = (manifest or {}).get("host", 0)
        self.first_rank, self.ranks = sum(ranks[:place]), len(self.gang)
        self.gang = self.gang[self.first_rank : self.first_rank + ranks[place]]
        self.has_collectives = any(case["kernel"].startswith("hcom_") for case in self.log.cases.values())
        # Number of calls so far that all processes of the gang must make, and the connection to their store.
        self.common_calls, self.link = 0, None
        self.renewed = 0.0
        atexit.register(self.finalise)

    def finalise(self):
        """Finalises the profiler, which `os._exit` and a signal prevent."""
        self.log.flush()
        self.log.emit("finalised", True)

    def rank(self):
        place = self.gang.index(self.current) if self.current in self.gang else 0
        return self.first_rank + place

    def set_current(self, device):
        self.current = device
        self.faults.rank = self.rank()

    def check_common(self, kernel, inputs):
        """Counts a call that all ranks must make, and checks that the first rank made the same."""
        self.common_calls += 1
        if self.link is None:
            return
        own = "%s of %s" % (kernel, " and ".join(shown(each) for each in inputs if each is not None))
        first = self.link.ask("check", self.common_calls, own)
        text = "rehearsal: the ranks of a group launch different kernels: %s, another rank %s"
        require(first == own, text, own, first)

    def call(self, api, args, kwargs):
        injector = self.injector
        try:
            injector.before_call(api)
            try:
                return self.dispatch(api, args, kwargs)
            finally:
                injector.after_call(api)
                if time.monotonic() - self.renewed >= RENEWED:
                    self.record_activity()
        except RuntimeError as error:
            raise self.compact(error) from None
        finally:
            injector.end_call()

    def compact(self, error):
        """An error as torch_npu raises it: with compact output, only the description of an error of CANN is left."""
        _, mark, description = str(error).partition("[Error]: ")
        if self.has_compact_errors and mark and not isinstance(error, OutOfMemoryError):
            return type(error)("CANN error: " + " ".join(description.split()))
        return error

    def record_activity(self):
        """Records that the process uses its devices now. On a failure the devices are shown as idle."""
        for device in self.log.streams:
            self.renewed = time.monotonic()
            name = "%d.%d" % (faults.physical_id(self.host, device), os.getpid())
            folder = os.path.join(self.folder, BUSY)
            try:
                os.makedirs(folder, exist_ok=True)
                draft = os.path.join(folder, "draft." + name)
                with open(draft, "w", encoding="utf-8") as file:
                    file.write(str(time.time_ns()))
                os.rename(draft, os.path.join(folder, name))
            except OSError:
                pass

    def dispatch(self, api, args, kwargs):
        """A function of the simulated NPU's own, or the launch of the manifest's case."""
        if not self.log.cases or api == EVENT_RECORD or self.is_control_call(api, args):
            free = functions.FREE.get(api)
            if free and not (api == "torch.Tensor.copy_" and args and getattr(args[0], "_part", None)):
                return free(self, args, kwargs)
        own = functions.find(self, api, args)
        if own:
            return own(self, args, kwargs)
        if api in factories.FACTORIES and "out" not in kwargs:
            return factories.create(self, api, args, kwargs)
        if not self.entries.has_api(api):
            module, _, name = api.rpartition(".")
            raise AttributeError(
                "module '%s' has no attribute '%s' (the rehearsal host has the functions of op_replay/ only)" % (module, name)
            )
        case = self.log.current_case()
        text = "rehearsal: %s is called outside the sentinels of a case, so the manifest does not describe it"
        require(case is not None, text, api)
        kernel = case["kernel"]
        text = "rehearsal: %s is called, the kernel %s of the case is launched by %s"
        require(api == case["api"], text, api, kernel, case["api"])
        entry, operator = self.entries.operator(kernel, api)
        require(operator is not None, "rehearsal: %s does not launch the kernel %s", api, kernel)
        schema = self.entries.installed(operator)
        numbers = [argument["name"] for argument in case["arguments"] if "value" in argument]
        bound = bind(schema, args, kwargs, numbers)
        if schema.short_name in RANKS:
            (numbers, text), ranks = RANKS[schema.short_name], ranks_of(bound["hcom"])
            require(ranks in numbers, text, ranks)
        device = compare_call(case, schema, bound)
        return self.execute(entry, parse(operator["schema"]), case, device, bound)

    def is_control_call(self, api, args):
        if not self.log.controls or self.log.case is not None:
            return False
        tensors = [each for each in args if isinstance(each, Tensor)]
        return self.log.is_control_call(api, [list(each.dims_in_memory()) for each in tensors])

    def execute(self, entry, schema, case, device, bound):
        kernel, log_ = case["kernel"], self.log
        ascending = bound.get(ASCENDING.get(kernel))
        if isinstance(ascending, Tensor) and ascending.known_values()[0] != "ascending":
            self.injector.error = functions.CORE_EXCEPTION
        known = case.get("_known")
        if known is None:
            known = case["_known"] = LaunchedCase(self, entry, schema, case)
        destinations = [
            (output, bound[name]) for name, output in known.form["destinations"].items() if isinstance(bound.get(name), Tensor)
        ]
        if any("process_group" in argument for argument in case["arguments"]):
            self.check_common(kernel, known.inputs)
        # Memory is taken before the launch, so that a call which finds none leaves no record.
        results = []
        for index, (dims, dtype) in enumerate(known.results):
            given = next((tensor for output, tensor in destinations if output == index), None)
            results.append(self.memory.allocate(dims, dtype, device) if given is None else given)
        log_.case_kernel = known.operation.kernel
        log_.launch(device, known.operation)
        for beside in known.beside:
            log_.launch(device, beside)
        for _, tensor in destinations:
            tensor._storage.write(UNKNOWN)
        results = results[: schema.returns]
        return results[0] if schema.returns == 1 and not schema.returns_list and results else tuple(results)


class LaunchedCase:
    def __init__(self, session, entry, schema, case):
        record = case["record"]
        # The row's name of a row-major format differs from the one that torch_npu takes by rank.
        inputs = [recorded_tensor(slot) for slot in record["inputs"]]
        self.inputs = [
            (slot[0], slot[1], row_major_format(len(slot[0]))) if slot and slot[2] in BASE_FORMATS else slot for slot in inputs
        ]
        outputs = [each for each in map(recorded_tensor, record["outputs"]) if each is not None]
        self.form = next((form for form in entry["forms"] if form["name"] == case["form"]), None)
        require(self.form is not None, "rehearsal: %s has no form `%s`", case["kernel"], case["form"])
        casts = self.form["casts"] if "Cast" in entry["also_launches"] else []
        self.results = []
        for index, dims in enumerate(map(tuple, case["returns"])):
            # Results that are returned in another order are identified by their shapes.
            same = [place for place, output in enumerate(outputs) if output[0] == dims]
            place = index if index in same or not same else same[0]
            # A result that the kernel does not write, and types that torch lacks.
            dtype = outputs[place][1] if place < len(outputs) else "FLOAT"
            dtype = "INT64" if place in casts else "INT32" if dtype == "INT4" else dtype
            self.results.append((dims, dtype))
        task = CUBE if entry["unit"] == "cube" else VECTOR
        name = aclnn_name(schema.short_name)
        dtype = next((slot[1] for slot in self.inputs if slot), "FLOAT")
        kernel = kernel_of_call(entry, self.form, case, inputs, outputs, session.host["profile"]["cube_cores"])
        if case["kernel"] == RENAMED[0] and "other_kernel_name" in session.log.defects:
            kernel = RENAMED[1]
        # The profiler shows bits that the call has as INT64 as UINT64.
        shown = [
            (slot[0], "UINT64", slot[2]) if slot and slot[1] == "INT64" and index in self.form["bits"] else slot
            for index, slot in enumerate(self.inputs)
        ]
        flops = float(record["flops"])
        if entry["unit"] == "cube" and dtype == "FLOAT":
            # Peaks of FLOAT are those in HF32. A product in FLOAT takes twice as long.
            dtype, flops = ("HF32", flops) if MATMUL.allow_hf32 else (dtype, 2.0 * flops)
        work = (flops, float(record["bytes"]), entry["unit"], dtype)
        record_name = "aclnn%s_%s_%s" % (name, kernel, kernel)
        self.operation = Operation(record_name, kernel, task, tuple(shown), tuple(outputs), *work)
        self.beside = []
        for kernel in entry["also_launches"]:
            place = casts[0] if casts else 0
            if place < len(outputs):
                dims, dtype, form = outputs[place]
                to = (dims, "INT64" if kernel == "Cast" else dtype, form)
                record_name = "aclnn%s_%s_%s" % (name, kernel, kernel)
                self.beside.append(plain_operation(record_name, kernel, [outputs[place]], to))


def aclnn_name(function):
    """The function's name in aclnn: `npu_rms_norm` is `RmsNorm`, `copy_` is `InplaceCopy`."""
    bare = function[4:] if function.startswith("npu_") else function
    inplace = "Inplace" if bare.endswith("_") else ""
    bare = bare[:-1] if inplace else bare
    return inplace + "".join(word[:1].upper() + word[1:] for word in bare.split("_"))


_session = None


def session():
    global _session
    if _session is None:
        text = (
            "this torch is the stand-in of a rehearsal host and NPUBENCH_REHEARSAL_LAUNCHES is not set; "
            "start it under the stand-in msprof: sh collect.sh"
        )
        require(os.environ.get("NPUBENCH_REHEARSAL_LAUNCHES"), text)
        _session = Session()
    return _session


def call(path, args, kwargs):
    if path == "torch.npu.device_count" and not os.environ.get("NPUBENCH_REHEARSAL_LAUNCHES"):
        return faults.device_count(faults.read_host()[0])
    return session().call(path, args, kwargs)


Name.call = call


class Event:
    """An event of a stream: the simulated time at which it was recorded."""

    def __init__(self, enable_timing=False):
        self.enable_timing = enable_timing
        self.nanoseconds = None

    def record(self):
        self.nanoseconds = call(EVENT_RECORD, (), {})

    def synchronize(self):
        session().log.wait(session().current, self.nanoseconds)

    def elapsed_time(self, end):
        both = self.enable_timing and end.enable_timing
        require(both, "Both events must be created with argument 'enable_timing=True'.")
        return (end.nanoseconds - self.nanoseconds) / 1e6


def operator_schemas():
    """Returns the schemas of the installed operators of the manifest's kernels, with the attributes of torch's own."""
    schemas = []
    for schema in call("torch._C._jit_get_all_schemas", (), {}):
        base, _, overload = schema.name.partition(".")
        arguments = [types.SimpleNamespace(name=each.name, kwarg_only=each.keyword_only) for each in schema.arguments]
        schemas.append(types.SimpleNamespace(name=base, overload_name=overload, arguments=arguments))
    return schemas
