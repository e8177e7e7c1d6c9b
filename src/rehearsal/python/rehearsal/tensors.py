"""Tensors as the profiler shows them, element types, operations, and the signatures that identify equal operations.

A tensor is a tuple of dimensions, the profiler's name of its type, and its format.
"""
from collections import namedtuple

# Torch's name and bytes by the profiler's name.
DTYPES = {
    "FLOAT": ("float32", 4),
    "FLOAT16": ("float16", 2),
    "DT_BF16": ("bfloat16", 2),
    "DOUBLE": ("float64", 8),
    "INT8": ("int8", 1),
    "UINT8": ("uint8", 1),
    "INT16": ("int16", 2),
    "INT32": ("int32", 4),
    "INT64": ("int64", 8),
    "BOOL": ("bool", 1),
}
FROM_TORCH = {torch: name for name, (torch, _) in DTYPES.items()}
FLOATS = ("FLOAT", "FLOAT16", "DT_BF16", "DOUBLE")
SPELLINGS = {"FLOAT32": "FLOAT", "FP32": "FLOAT", "FP16": "FLOAT16", "BF16": "DT_BF16", "BFLOAT16": "DT_BF16"}
SPELLINGS["FLOAT64"] = "DOUBLE"
EMPTY = ("", "UNDEFINED", "NULL", "NONE", "None", "N/A", "NA")
BASE_FORMATS = ("ND", "NCL", "NCHW", "NCDHW", "NHWC")

# Kernel of the launches around each case.
SENTINEL = "Neg"
# Engines of the device that execute a task.
CUBE, VECTOR, RANDOM, AI_CPU, COMMUNICATION = "AI_CORE", "AI_VECTOR_CORE", "DSA_SQE", "AI_CPU", "COMMUNICATION"

# A launched operation: `name` is the profiler's name without the mark of the rehearsal, `inputs` may contain None for a
# slot without a tensor; `flops`, `bytes`, `unit` and `dtype` are the least work that it does.
Operation = namedtuple("Operation", "name kernel task inputs outputs flops bytes unit dtype")


def require(holds, text, *values):
    """Raises an error of torch or of the rehearsal unless a condition holds."""
    if not holds:
        raise RuntimeError(text % values if values else text)


def tensor(dims, dtype, format="ND"):
    return (tuple(dims), dtype, format)


def torch_name(dtype):
    return DTYPES[dtype][0] if dtype in DTYPES else None


def element_bytes(dtype):
    """Bytes of an element; None for unknown types."""
    return 8 if dtype == "UINT64" else DTYPES[dtype][1] if dtype in DTYPES else None


def element_count(dims):
    count = 1
    for dim in dims:
        count *= dim
    return count


def tensor_bytes(tensor):
    """Bytes of device memory; unknown types count two bytes per element."""
    return element_count(tensor[0]) * (element_bytes(tensor[1]) or 2)


def parse_dtype(name):
    bare = name[3:] if name.startswith("DT_") else name
    if bare in EMPTY:
        return None
    bare = SPELLINGS.get(bare, bare)
    return bare if bare in DTYPES else "DT_BF16" if bare == "DT_BF16" else name


def recorded_tensor(recorded):
    if recorded is None:
        return None
    dtype, form = parse_dtype(recorded["dtype"]), recorded["format"]
    form = form[7:] if form.startswith("FORMAT_") else form
    return None if dtype is None or form in EMPTY else tensor(recorded["dims"], dtype, form)


def row_major_format(rank):
    """torch_npu's row-major format for a number of dimensions."""
    return {3: "NCL", 4: "NCHW", 5: "NCDHW"}.get(rank, "ND")


def shown(tensor):
    """A tensor in messages: `DT_BF16[4096,1024]`, with its format if that is not row-major."""
    dims, dtype, form = tensor
    return "%s[%s]%s" % (dtype, dims_text(dims), "" if form in BASE_FORMATS else " " + form)


def dims_text(dims):
    return ",".join(map(str, dims))


def plain_operation(name, kernel, inputs, output, task=VECTOR):
    moved = sum(map(tensor_bytes, inputs)) + tensor_bytes(output)
    work = (float(element_count(output[0])), float(moved), "vector", output[1])
    return Operation(name, kernel, task, tuple(inputs), (output,), *work)


def blocks(operation, profile):
    """Cores that an operation occupies, as far as there are cores: one for every 16 KiB that it writes, and of the vector
    cores for every 16 KiB that it reads, because recorded reductions of large tensors run on all of them."""
    work = sum(map(tensor_bytes, operation.outputs))
    if operation.task == VECTOR:
        work = max(work, sum(tensor_bytes(each) for each in operation.inputs if each is not None))
    elif operation.task != CUBE:
        return 0
    cores = profile["cube_cores" if operation.task == CUBE else "vector_cores"]
    return min(max(-(-work // (16 << 10)), 1), max(cores, 1))


def signature_seed(operation):
    """Hash of kernel, inputs and outputs: the seed of the case that npubench makes of such a record, so that launches of
    one case have one seed. The rules are stated in src/kernel/signature.rs."""
    import hashlib  # Slow to import, and msprof does not need it.

    kernel, inputs, outputs = operation.kernel, operation.inputs, operation.outputs
    rule = _RULES.get(kernel)
    slots = rule(inputs, outputs) if rule else None
    text = kernel + "|" + _side(_slots(inputs) if slots is None else slots) + "|" + _side(_slots(outputs))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def _slots(slots):
    """The slots of one side without scalars beside tensors, whose types differ between tools."""
    only_scalars = all(slot is None or not slot[0] for slot in slots)
    return [slot if slot is not None and (only_scalars or slot[0]) else None for slot in slots]


def _side(slots):
    while slots and slots[-1] is None:
        slots = slots[:-1]
    return ";".join("-" if slot is None else "%s:%s:%s" % (dims_text(slot[0]), slot[1], slot[2]) for slot in slots)


def _matmul(inputs, outputs):
    """`(M,K);(N,K)` in whatever orientation and layout the operands are stored."""
    if len(inputs) < 2 or None in inputs[:2] or not outputs or len(outputs[0][0]) != 2:
        return None
    left, right = (_stored_matrix(each) for each in inputs[:2])
    if left is None or right is None:
        return None
    rows, columns = outputs[0][0]
    for one in _other_sides(left, rows):
        for other in _other_sides(right, columns):
            # The dimension with the smaller block is more exact.
            exact, rough = (one, other) if one[1] <= other[1] else (other, one)
            if _is_padded(rough, exact[0]):
                slots = _slots(inputs)
                slots[0] = ((rows, exact[0]),) + inputs[0][1:]
                slots[1] = ((columns, exact[0]),) + inputs[1][1:]
                return slots
    return None


def _stored_matrix(tensor):
    """The two dimensions of a matrix, each padded to a multiple of its block, with the block."""
    dims = tensor[0]
    if len(dims) == 2:
        return (dims[0], 1), (dims[1], 1)
    if len(dims) == 4 and tensor[2] == "FRACTAL_NZ" and dims[2] > 0 and dims[3] > 0:
        return (dims[1] * dims[2], dims[2]), (dims[0] * dims[3], dims[3])
    return None


def _other_sides(matrix, outer):
    """The other dimension for each dimension that may be the outer one."""
    rows, columns = matrix
    return [other for one, other in ((rows, columns), (columns, rows)) if _is_padded(one, outer)]


def _is_padded(side, length):
    stored, block = side
    return -(-length // block) * block == stored


def _index(inputs, outputs):
    """The source, and one index vector as long as the output's first dimension."""
    if not outputs or not inputs or None in inputs:
        return None
    source, further, output = inputs[0], inputs[1:], outputs[0][0]
    count, indices = 1, None
    if len(further) == 1:
        indices = further[0]
    elif len(further) == 3 and _is_host_vector(further[0], 1):
        if _is_host_vector(further[1], len(output)):
            indices = further[2]
        elif _is_host_vector(further[2], 1):
            indices = further[1]
    elif len(further) == 4 and _is_host_vector(further[0], 2) and _is_host_vector(further[1], len(output)):
        if further[2][:2] == further[3][:2]:
            count, indices = 2, further[2]
    if indices is None or not indices[0] or len(source[0]) < count or indices[0] + source[0][count:] != output:
        return None
    return [source, ((output[0],),) + indices[1:]]


def _first_input(inputs, outputs):
    """The first input, which with the output determines the offsets, sizes and permutations of further inputs."""
    source = inputs[0] if inputs else None
    if source is None or source[2] not in BASE_FORMATS:
        return None
    for further in inputs[1:]:
        if further is not None and further[0] and not _is_host_vector(further, len(source[0])):
            return None
    return [source[:2] + ("ND",)]


def _is_host_vector(tensor, length):
    return tensor[1] in ("INT32", "INT64", "DT_UNDEFINED") and tensor[0] == (length,)


_RULES = {name: _matmul for name in ("MatMulV2", "MatMulCommon", "MatMulV3", "MatMulV3Common")}
_RULES.update({name: _index for name in ("Index", "IndexAiCore")})
for _name in ("Slice", "SliceV2", "Transpose", "TransposeV2"):
    _RULES[_name] = _RULES[_name + "AiCore"] = _first_input
