"""Functions of torch that the simulated NPU has besides the kernels of the catalogue.

`BUILTIN` has those that a replay calls: devices, views, sentinels, scaling in place. `FREE` has the calls of scripts without
cases, as those of a selftest, and of control kernels, whose durations depend on the model of the cache.
"""
from . import collectives, values
from .memory import UNINITIALISED, UNKNOWN, Tensor
from .schema import bind_to, value_text
from .tensors import CUBE, FLOATS, VECTOR, Operation, element_count, plain_operation, require, tensor, tensor_bytes

# Error of the runtime for an exception of a core.
CORE_EXCEPTION = 507015
# CANN's number of the format.
FRACTAL_NZ = 29


def check_device(session, device):
    text = (
        "SetDevice: NPU function error: aclrtSetDevice(%d), error code is 107001. [Error]: Invalid device ID. Check whether "
        "the device ID is valid. (the rehearsal host shows torch %d devices)"
    )
    require(0 <= device < session.devices, text, device, session.devices)


def place_argument(session, given):
    """Parses `npu:3`, `npu`, `cpu`; returns None for the CPU, also where no device is given."""
    if given is None or given == "cpu":
        return None
    require(isinstance(given, str), "rehearsal: a device is named by a text, not %s", value_text(given))
    name, colon, index = given.partition(":")
    why = "meta tensors need the vendor's own torch" if given == "meta" else "no such device"
    require(name == "npu" and (not colon or index.isdigit()), "rehearsal: `%s`: %s", given, why)
    device = int(index) if colon else session.current
    check_device(session, device)
    return device


def readable(name, given):
    is_written = given.known_values() != UNINITIALISED
    require(is_written, "rehearsal: %s: uninitialised input: nothing wrote the tensor", name)
    return given


def set_device(session, args, kwargs):
    device = bind_to("set_device(Device device) -> ()", args, kwargs)["device"]
    device = device if type(device) is int else place_argument(session, device)
    require(device is not None, "set_device: expected an NPU, not the CPU")
    check_device(session, device)
    session.set_current(device)
    session.log.open(device)


def set_compile_mode(session, args, kwargs):
    bind_to("set_compile_mode(*, bool jit_compile) -> ()", args, kwargs)


def operator_schemas(session, args, kwargs):
    return [session.entries.installed(operator) for operator in session.entries.operators()]


def join_group(session, args, kwargs):
    from .store import Link  # Only gangs need sockets.

    session.link = Link(*args)


def known_elements(name, given):
    elements = given.elements()
    require(elements is not None, "rehearsal: %s: the values of the tensor are not known", name)
    return elements


def equal(session, args, kwargs):
    bound = bind_to("equal(Tensor self, Tensor other) -> bool", args, kwargs)
    return values.equals(known_elements("equal", bound["self"]), known_elements("equal", bound["other"]))


def to_list(session, args, kwargs):
    given = bind_to("tolist(Tensor self) -> ()", args, kwargs)["self"]
    return tuple(values.to_list(known_elements("tolist", given), 1 << 16))


def negate(session, args, kwargs):
    source = readable("torch.neg", bind_to("neg(Tensor self) -> Tensor", args, kwargs)["self"])
    dims, dtype, _ = recorded = source.recorded()
    require(dtype != "BOOL", "Negation, the `-` operator, on a bool tensor is not supported.")
    place = source._storage.place
    result = session.memory.allocate(dims, dtype, place)
    if place is not None:
        if len(dims) == 1 and dtype == "INT32":
            session.log.sentinel(dims[0])
        # A fused kernel has the name of the generator of fused kernels.
        names = ("dvm_fused_0", "DvmFused") if session.fuses_elementwise else ("aclnnNeg_Neg_Neg", "Neg")
        session.log.launch(place, plain_operation(*names, [recorded], tensor(dims, dtype)), [source._storage])
    return result


def is_sentinel(args):
    """Returns True for a call of `torch.neg` that can be a sentinel: on whole numbers, which the entry Neg does not accept."""
    source = args[0] if args else None
    return not isinstance(source, Tensor) or source._storage.dtype == "INT32" or source._storage.place is None


def scale(session, args, kwargs):
    """`tensor.mul_(number)`: `Mul` with a scalar in single precision, `Muls` in 16 bits, as in real profiles."""
    bound = bind_to("mul_(Tensor self, Tensor other) -> Tensor", args, kwargs, ["other"])
    target, factor = readable("torch.Tensor.mul_", bound["self"]), bound["other"]
    dims, dtype, _ = recorded = target.recorded()
    require(not isinstance(factor, Tensor), "rehearsal: mul_ supports numbers only")
    can_hold = not isinstance(factor, float) or dtype in FLOATS
    require(can_hold, "result type Float can't be cast to the desired output type %s", dtype)
    target._storage.write(UNKNOWN)
    if target._storage.place is not None:
        names = ("aclnnInplaceMuls_Muls_Muls", "Muls", [recorded])
        if dtype == "FLOAT":
            names = ("aclnnInplaceMuls_MulAiCore_Mul", "Mul", [recorded, tensor((), "FLOAT")])
        session.log.launch(target._storage.place, plain_operation(*names, tensor(dims, dtype)))
    return target


def swapped(source, first, second):
    order, rank = list(source._order), len(source._order)
    for dim in (first, second):
        require(-rank <= dim < rank, "Dimension out of range: %d of a tensor with %d dimensions", dim, rank)
    order[first], order[second] = order[second], order[first]
    return Tensor(source._storage, tuple(order), source._part)


def transpose(session, args, kwargs):
    bound = bind_to("transpose(Tensor self, int dim0, int dim1) -> Tensor", args, kwargs)
    return swapped(bound["self"], bound["dim0"], bound["dim1"])


def matrix_transpose(session, args, kwargs):
    source = bind_to("t(Tensor self) -> Tensor", args, kwargs)["self"]
    require(len(source.shape) == 2, "t() expects a tensor with 2 dimensions, but self is %dD", len(source.shape))
    return swapped(source, 0, 1)


def upper_triangle(session, args, kwargs):
    """`torch.triu` on the host, which creates causal masks."""
    source = readable("torch.triu", bind_to("triu(Tensor self, int diagonal=0) -> Tensor", args, kwargs)["self"])
    require(source._storage.place is None, "rehearsal: triu is known on the host only")
    dims, dtype, _ = source.recorded()
    return session.memory.allocate(dims, dtype, None)


def copy_to_device(session, args, kwargs):
    """`tensor.to(device)`: a copy, which launches no kernel."""
    bound = bind_to("to(Tensor self, Device device) -> Tensor", args, kwargs)
    source = readable("to", bound["self"])
    place = place_argument(session, bound["device"])
    return session.memory.allocate(source.dims_in_memory(), source._storage.dtype, place, source.known_values())


def view(session, args, kwargs):
    """`tensor.view(shape)`: the same memory in another shape, which becomes the shape of the storage."""
    bound = bind_to("view(Tensor self, int[] size) -> Tensor", args, kwargs)
    source, dims = bound["self"], size_argument(bound["size"])
    count = element_count(source.dims_in_memory())
    fits = not source._part and source.layout() == "contiguous" and element_count(dims) == count
    require(fits, "shape '%s' is invalid for input of size %d", list(dims), count)
    source._storage.dims = dims
    return Tensor(source._storage, tuple(range(len(dims))))


def size_argument(size):
    require(isinstance(size, (list, tuple)), "`size` must be a list of whole numbers")
    is_valid = all(type(dim) is int and dim >= 0 for dim in size)
    require(is_valid, "Trying to create tensor with negative dimension: %s", value_text(size))
    return tuple(size)


def narrow(session, args, kwargs):
    bound = bind_to("narrow(Tensor self, int dim, int start, int length) -> Tensor", args, kwargs)
    source, start, length = bound["self"], bound["start"], bound["length"]
    dims = source._storage.dims
    require(bound["dim"] == 0 and start >= 0 and length >= 0, "rehearsal: narrow is known for the first dimension only")
    require(len(dims) == 1, "rehearsal: narrow is known for vectors only")
    text = "start (%d) + length (%d) exceeds dimension size (%d)."
    require(start + length <= dims[0], text, start, length, dims[0])
    return Tensor(source._storage, source._order, (start, length))


def copy_part(session, args, kwargs):
    """`part.copy_(values)` of equal types: a copy of memory, which launches no kernel."""
    bound = bind_to("copy_(Tensor self, Tensor src) -> Tensor", args, kwargs)
    session.memory.write_part(bound["self"], readable("copy_", bound["src"]))
    return bound["self"]


def format_cast(session, args, kwargs):
    """`npu_format_cast(tensor, 29)`: the same values in FRACTAL_NZ."""
    bound = bind_to("npu_format_cast(Tensor self, int acl_format) -> Tensor", args, kwargs)
    source = readable("npu_format_cast", bound["self"])
    require(bound["acl_format"] == FRACTAL_NZ, "rehearsal: npu_format_cast supports FRACTAL_NZ (29) only")
    text = "rehearsal: npu_format_cast of a view would block the view, not what lies in memory"
    require(source.layout() == "contiguous", text)
    recorded, place = source.recorded(), source._storage.place
    result = session.memory.allocate(source.dims_in_memory(), recorded[1], place, source.known_values())
    require(len(result._storage.dims) >= 2, "npu_format_cast: FRACTAL_NZ needs at least two dimensions")
    result._storage.is_blocked = True
    if place is not None:
        name = "aclnnNpuFormatCast_TransData_TransData"
        session.log.launch(place, plain_operation(name, "TransData", [recorded], result.recorded()))
    return result


def ignore(session, args, kwargs):
    """A call without an effect."""


BUILTIN = {
    "torch.npu.set_device": set_device,
    "torch.npu.synchronize": lambda session, args, kwargs: session.log.wait(session.current),
    "torch.npu.empty_cache": ignore,
    "torch.npu.manual_seed": ignore,
    "torch.manual_seed": ignore,
    "torch.npu.set_compile_mode": set_compile_mode,
    "torch.npu.device_count": lambda session, args, kwargs: session.devices,
    "torch.npu.current_device": lambda session, args, kwargs: session.current,
    "torch.npu.is_available": lambda session, args, kwargs: session.devices > 0,
    "torch._C._jit_get_all_schemas": operator_schemas,
    "torch.distributed.join_group": join_group,
    "torch.distributed.all_reduce": collectives.all_reduce,
    "torch.equal": equal,
    "torch.Tensor.tolist": to_list,
    "torch.neg": negate,
    "torch.Tensor.mul_": scale,
    "torch.transpose": transpose,
    "torch.Tensor.transpose": transpose,
    "torch.t": matrix_transpose,
    "torch.Tensor.t": matrix_transpose,
    "torch.triu": upper_triangle,
    "torch.Tensor.to": copy_to_device,
    "torch.Tensor.view": view,
    "torch.Tensor.narrow": narrow,
    "torch.Tensor.copy_": copy_part,
    "torch_npu.npu_format_cast": format_cast,
    "torch.npu.NPUGraph.capture_begin": lambda session, args, kwargs: session.log.begin_capture(args[0]),
    "torch.npu.NPUGraph.capture_end": lambda session, args, kwargs: session.log.begin_capture(None),
    "torch.npu.NPUGraph.replay": lambda session, args, kwargs: session.log.replay(args[0]),
}


def find(session, api, args):
    """Returns the function of the simulated NPU's own; None for one that launches a kernel of the catalogue."""
    if session.has_collectives and api in collectives.CALLS:
        return lambda session, args, kwargs: collectives.call(session, api, args, kwargs)
    if api == "torch.neg" and not is_sentinel(args):
        return None
    # Between the sentinels of a case these are the launches of kernels.
    if api == "torch.Tensor.copy_" and session.log.case is not None:
        return None
    if api == "torch_npu.npu_format_cast":
        case = session.log.current_case()
        if case is not None and case["api"] == api:
            return None
    return BUILTIN.get(api)


def launch(session, names, kernel, sources, outputs, task, flops, moved, unit):
    """Launches a kernel that reads some tensors on their device, and returns its results. The first output's type decides the
    rates."""
    device = sources[0]._storage.place
    require(device is not None, "rehearsal: the tensor is on the host")
    results = tuple(session.memory.allocate(output[0], output[1], device) for output in outputs)
    inputs = tuple(source.recorded() for source in sources)
    operation = Operation(names, kernel, task, inputs, tuple(outputs), float(flops), float(moved), unit, outputs[0][1])
    session.log.launch(device, operation, [source._storage for source in sources])
    return results


def product(session, args, kwargs):
    bound = bind_to("mm(Tensor self, Tensor mat2) -> Tensor", args, kwargs)
    left, right = bound["self"], bound["mat2"]
    dims, others = left.dims_in_memory(), right.dims_in_memory()
    require(len(dims) == 2 and len(others) == 2, "self must be a matrix")
    text = "mat1 and mat2 shapes cannot be multiplied (%dx%d and %dx%d)"
    require(dims[1] == others[0], text, *dims, *others)
    output = tensor((dims[0], others[1]), left._storage.dtype)
    moved = tensor_bytes(left.recorded()) + tensor_bytes(right.recorded()) + tensor_bytes(output)
    flops = 2.0 * float(dims[0]) * float(dims[1]) * float(others[1])
    name = "aclnnMm_MatMulCommon_MatMulV2"
    return launch(session, name, "MatMulV2", [left, right], [output], CUBE, flops, moved, "cube")[0]


def copy(session, args, kwargs):
    bound = bind_to("copy_(Tensor self, Tensor src) -> Tensor", args, kwargs)
    target, source = bound["self"], bound["src"]
    keys = [(each.dims_in_memory(), each._storage.dtype, each._storage.place) for each in (target, source)]
    require(keys[0] == keys[1], "rehearsal: copy_ is known for equal tensors on one device")
    require(target._storage.place is not None, "rehearsal: the tensor is on the host")
    to, origin = target.recorded(), source.recorded()
    work = (0.0, float(tensor_bytes(to) + tensor_bytes(origin)), "mte", to[1])
    name = "aclnnInplaceCopy_TensorMove_TensorMove"
    operation = Operation(name, "TensorMove", VECTOR, (origin,), (to,), *work)
    session.log.launch(target._storage.place, operation, [target._storage, source._storage])
    return target


def absolute(session, args, kwargs):
    source = bind_to("abs(Tensor self) -> Tensor", args, kwargs)["self"]
    output, count = tensor(source.dims_in_memory(), source._storage.dtype), element_count(source.dims_in_memory())
    moved = tensor_bytes(source.recorded()) + tensor_bytes(output)
    return launch(session, "aclnnAbs_Abs_Abs", "Abs", [source], [output], VECTOR, count, moved, "vector")[0]


def rms_norm(session, args, kwargs):
    """`npu_rms_norm(input, gamma)`: the normalised tensor, and a number in single precision per row."""
    text = "npu_rms_norm(Tensor self, Tensor gamma, float epsilon=1e-06) -> (Tensor, Tensor)"
    bound = bind_to(text, args, kwargs)
    source, gamma = bound["self"], bound["gamma"]
    dims, lengths = source.dims_in_memory(), gamma.dims_in_memory()
    require(len(dims) == 2 and len(lengths) == 1, "rehearsal: npu_rms_norm is known for a matrix and a vector")
    require(dims[1] == lengths[0], "npu_rms_norm: gamma has %d elements, expected %d", lengths[0], dims[1])
    outputs = [tensor(dims, source._storage.dtype), tensor((dims[0], 1), "FLOAT")]
    flops, moved = 4.0 * element_count(dims), 2 * tensor_bytes(source.recorded())
    name = "aclnnRmsNorm_RmsNorm_RmsNorm"
    return launch(session, name, "RmsNorm", [source, gamma], outputs, VECTOR, flops, moved, "vector")


def select(session, args, kwargs):
    """`torch.index_select`: an index out of range is an exception of a core, which the next `synchronize` raises."""
    bound = bind_to("index_select(Tensor self, int dim, Tensor index) -> Tensor", args, kwargs)
    table, index = bound["self"], bound["index"]
    dims, bounds = table.dims_in_memory(), index.known_values()[1]
    if bound["dim"] != 0 or bounds is None or bounds[0] < 0 or not dims or bounds[1] >= dims[0]:
        if "unknown_error_text" in session.log.defects:
            raise RuntimeError("vendor failure 0x7")
        session.injector.error = CORE_EXCEPTION
    rows = index.dims_in_memory()[0] if index.dims_in_memory() else 0
    return session.memory.allocate((rows,) + dims[1:], table._storage.dtype, table._storage.place)


FREE = {
    "torch.mm": product,
    "torch.Tensor.copy_": copy,
    "torch.abs": absolute,
    "torch_npu.npu_rms_norm": rms_norm,
    "torch.npu.Event.record": lambda session, args, kwargs: session.log.record_event(session.current),
    "torch.index_select": select,
}
