"""Functions that create tensors.

Creation launches helper kernels, as it does on a device, so that a reader that takes the n-th record for the n-th call fails.
Their names are those of real profiles where one was at hand (`DSARandomNormal`, `Cast`, `OnesLike`, `ZerosLike`, `Range`).
"""
from . import functions, values
from .memory import UNINITIALISED, UNKNOWN, Generator, ascending, between, different, dtype, place_text
from .schema import bind_to, type_name
from .tensors import FLOATS, RANDOM, plain_operation, require, tensor, tensor_bytes

KEYWORDS = (
    ", *, Generator? generator=None, Tensor? out=None, ScalarType? dtype=None, Layout? layout=None, Device? device=None, "
    "bool? requires_grad=False, bool? pin_memory=False) -> Tensor"
)
FACTORIES = {
    "torch.randn": "randn(int[] size",
    "torch.randint": "randint(int low, int high, int[] size",
    "torch.empty": "empty(int[] size",
    "torch.ones": "ones(int[] size",
    "torch.zeros": "zeros(int[] size",
    "torch.full": "full(int[] size, Scalar fill_value",
    "torch.arange": "arange(Scalar start, Scalar end, Scalar step=1",
    "torch.tensor": "tensor(Data data",
}
# Kernels that fill a tensor, and their records' names.
FILLING = {
    "torch.ones": ("OnesLike", "aclnnInplaceOne_OnesLikeAiCore_OnesLike"),
    "torch.zeros": ("ZerosLike", "aclnnInplaceZero_ZerosLikeAiCore_ZerosLike"),
    "torch.full": ("Fill", "aclnnInplaceFillScalar_FillAiCore_Fill"),
    "torch.arange": ("Range", "aclnnArange_ArangeAiCore_Range"),
}
GENERATORS = {
    "torch.randn": ("DSARandomNormal", "aclnnInplaceNormal"),
    "torch.randint": ("DSARandomUniform", "aclnnInplaceRandom"),
}
BOUNDS = {"BOOL": (0, 1), "UINT8": (0, 255), "INT8": (-128, 127), "INT16": (-(1 << 15), (1 << 15) - 1)}
BOUNDS["INT32"] = (-(1 << 31), (1 << 31) - 1)


def create(session, api, args, kwargs):
    # `low` or `start` is missing in some calls.
    if api == "torch.randint" and "low" not in kwargs and (len(args) < 2 or isinstance(args[1], (list, tuple))):
        args = (0,) + tuple(args)
    elif api == "torch.arange" and "start" not in kwargs and len(args) == 1 and "end" not in kwargs:
        args = (0,) + tuple(args)
    bound = bind_to(FACTORIES[api] + KEYWORDS, args, kwargs)
    place = functions.place_argument(session, bound.get("device"))
    generator = bound.get("generator")
    text = "Expected a '%s' device type for generator but found '%s'"
    device = generator.device if isinstance(generator, Generator) else place_text(place)
    require(device == place_text(place), text, place_text(place), device)
    dims, default, contents = described(api, bound)
    of_type = bound.get("dtype")
    if of_type is not None:
        require(isinstance(of_type, dtype), "`dtype` must be a torch.dtype, not %s", type_name(of_type))
        require(of_type.recorded is not None, "rehearsal: no type is called `%s`", of_type.name)
        default = of_type.recorded
    check_type(api, default, contents)
    new = tensor(dims, default)
    if place is not None:
        # Random numbers are made in single precision.
        temporary = tensor_bytes((dims, "FLOAT")) if api in GENERATORS and default != "FLOAT" else 0
        session.memory.check_free(place, tensor_bytes(new) + temporary)
        if api == "torch.randint" and default != "BOOL":
            # A device rounds uniform numbers in single precision, also up to the bound.
            contents = between(contents[1][0], contents[1][1] + 1)
    result = session.memory.allocate(dims, default, place, contents)
    if session.has_collectives and len(dims) == 1:
        result._storage.elements = elements_of(api, dims[0], bound.get("data"))
    if place is not None:
        session.log.open(place)
        for operation in helpers(api, new):
            session.log.launch(place, operation)
    return result


def described(api, bound):
    if api == "torch.arange":
        return arange(bound)
    if api == "torch.tensor":
        return from_data(bound["data"])
    if api == "torch.randint":
        low, high = bound["low"], bound["high"]
        require(low < high, "random_ expects 'from' to be less than 'to', but got from=%d >= to=%d", low, high)
        return functions.size_argument(bound["size"]), "INT64", between(low, high - 1)
    dims = functions.size_argument(bound["size"])
    if api == "torch.full":
        value = bound["fill_value"]
        if type(value) is int:
            return dims, "INT64", between(value, value)
        return dims, "BOOL" if type(value) is bool else "FLOAT", UNKNOWN
    known = {"torch.randn": UNKNOWN, "torch.ones": between(1, 1), "torch.zeros": between(0, 0), "torch.empty": UNINITIALISED}
    return dims, "FLOAT", known[api]


def arange(bound):
    start, end, step = bound["start"], bound["end"], bound.get("step", 1)
    is_whole = all(type(number) is int for number in (start, end, step))
    require(is_whole, "rehearsal: arange supports whole numbers only")
    require(step >= 1 and end >= start, "upper bound and lower bound inconsistent with step sign")
    return (-(-(end - start) // step),), "INT64", between(start, max(end - 1, start))


def from_data(data):
    """Numbers copied from the host, in a list for each dimension."""
    dims, items = [], [data]
    while items and isinstance(items[0], (list, tuple)):
        length = len(items[0])
        is_even = all(isinstance(item, (list, tuple)) and len(item) == length for item in items)
        require(is_even, "expected sequence of length %d at dim %d", length, len(dims))
        dims.append(length)
        items = [inner for item in items for inner in item]
    require(all(type(item) in (int, float, bool) for item in items), "rehearsal: torch.tensor takes numbers")
    if not items or any(type(item) is not int for item in items):
        return tuple(dims), "FLOAT", UNKNOWN
    low, high = min(items), max(items)
    if has_ascending_rows(dims, items):
        return tuple(dims), "INT64", ascending(low, high)
    contents = different if len(set(items)) == len(items) else between
    return tuple(dims), "INT64", contents(low, high)


def has_ascending_rows(dims, numbers):
    """Returns True if the rows of a tensor of three or more dimensions ascend up to the first -1, as selected positions do."""
    if len(dims) < 3:
        return False
    width = max(dims[-1], 1)
    for start in range(0, len(numbers), width):
        row = numbers[start : start + width]
        used = row.index(-1) if -1 in row else len(row)
        if any(one >= other for one, other in zip(row[:used], row[1:used])) or any(rest != -1 for rest in row[used:]):
            return False
    return True


def check_type(api, of_type, contents):
    require(api != "torch.randn" or of_type in FLOATS, "\"normal_kernel\" not implemented for '%s'", of_type)
    bounds = contents[1]
    if of_type in BOUNDS and bounds is not None:
        low, high = BOUNDS[of_type]
        for bound in bounds:
            require(low <= bound <= high, "value %d cannot be converted to type %s: out of bounds", bound, of_type)


def elements_of(api, length, data):
    if api in ("torch.zeros", "torch.ones"):
        return values.constant(int(api == "torch.ones"), length)
    if api == "torch.tensor" and all(type(item) is int for item in data):
        return values.from_list(data)
    return None


def helpers(api, new):
    dims, of_type, _ = new
    if api in FILLING:
        kernel, name = FILLING[api]
        inputs = [new]
        if kernel == "Range":
            inputs = [tensor((), "DOUBLE")] * 3
        elif kernel == "Fill":
            inputs = [tensor((len(dims),), "INT64"), tensor((), of_type)]
        return [plain_operation(name, kernel, inputs, new)]
    if api not in GENERATORS:
        return []
    kernel, name = GENERATORS[api]
    single = tensor(dims, "FLOAT")
    operations = [plain_operation("%s_%s_%s" % (name, kernel, kernel), kernel, [], single, RANDOM)]
    if of_type != "FLOAT":
        operations.append(plain_operation(name + "_CastAiCore_Cast", "Cast", [single], new))
    return operations
