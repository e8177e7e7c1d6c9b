"""Compares a call with the manifest's case: tensors by shape, type, format, view, place and what is known of their values,
other arguments by value. The first difference is the error that Python raises."""
from .memory import Tensor, dtype
from .schema import type_name, value_text
from .tensors import BASE_FORMATS, dims_text, require, torch_name

LAYOUTS = {"contiguous": "a contiguous", "transposed": "a transposed view of a", "permuted": "a view in another order of a"}
BOUNDED_FILLS = ("index", "zipf", "counting", "distinct", "experts", "blocks")


def compare_call(case, schema, bound):
    """Compares the arguments of a call with those of the case that the installed schema has, and returns the NPU that holds the
    tensors."""
    expected_names = {argument["name"] for argument in case["arguments"]}
    for name in sorted(bound):
        if bound[name] is not None and name not in expected_names:
            raise _refused(case, name, "the manifest has no such argument, the call has %s" % describe(bound[name]))
    installed = {argument.name for argument in schema.arguments}
    device = None
    for argument in case["arguments"]:
        name = argument["name"]
        # The installed version of an operator may lack an argument of the catalogue's.
        if name not in installed:
            continue
        for place, wanted, given in _tensor_pairs(case, argument, bound):
            if not isinstance(given, Tensor):
                raise _refused(case, place, "the manifest has a tensor, the call has %s" % type_name(given))
            has, found = describe_expected_tensor(wanted), describe(given)
            if has != found:
                raise _refused(case, place, "the manifest has %s, the call has %s" % (has, found))
            problem = check_values(wanted, given.known_values())
            if problem:
                raise _refused(case, place, problem)
            found = given._storage.place
            text = "Expected all tensors to be on the same device, but found at least two devices, npu:%d and npu:%d!"
            require(found is None or device in (None, found), text, device, found)
            device = device if found is None else found
    require(device is not None, "rehearsal: %s: no argument is a tensor on an NPU", case["api"])
    return device


def _refused(case, name, problem):
    return RuntimeError("rehearsal: %s: `%s`: %s" % (case["api"], name, problem))


def _tensor_pairs(case, argument, bound):
    """The tensors of an argument that are still to compare, with their names and the manifest's; checks all other values."""
    name, given = argument["name"], bound.get(argument["name"])
    if "tensor" in argument or "destination" in argument:
        expected = argument.get("tensor") or argument["destination"]
        if isinstance(given, Tensor):
            return [(name, expected, given)]
    elif "tensors" in argument:
        expected = argument["tensors"]
        if isinstance(given, (list, tuple)) and len(given) == len(expected):
            return [("%s[%d]" % (name, at), one, item) for at, (one, item) in enumerate(zip(expected, given))]
    elif "same_as" in argument:
        if isinstance(given, Tensor) and bound.get(argument["same_as"]) is given:
            return []
    elif "dtype" in argument:
        if isinstance(given, dtype) and given.name == argument["dtype"]:
            return []
    elif "process_group" in argument:
        if ranks_of(given) == argument["process_group"]:
            return []
    elif is_same_value(argument["value"], given):
        return []
    has, found = describe_expected(argument), describe(given)
    raise _refused(case, name, "the manifest has %s, the call has %s" % (has, found))


def ranks_of(name):
    words = name.split() if isinstance(name, str) else []
    if words[:3] == ["rehearsal", "group", "of"] and words[4:] == ["ranks"]:
        return int(words[3])
    raise RuntimeError("rehearsal: `%s` is not the name of a group of processes" % (name if isinstance(name, str) else ""))


def check_values(wanted, known):
    fill, (kind, bounds) = wanted["fill"], known
    if kind == "uninitialised" and fill != "empty":
        return "the values are uninitialised: they come from `torch.empty` and were never written"
    if fill in BOUNDED_FILLS:
        low, high = 0, wanted["below"] - 1
    elif fill in ("cumulative", "counts"):
        low, high = 0, wanted["total"]
    elif fill == "listed" and wanted["items"]:
        low, high = min(wanted["items"]), max(wanted["items"])
    elif fill == "selection":
        low, high = -1, max(wanted["keys"], default=0) - 1
    elif fill in ("ones", "zeros", "leading"):
        low, high = {"ones": (1, 1), "zeros": (0, 0), "leading": (0, 1)}[fill]
    else:
        return None
    if bounds is None:
        found = "values that are not known"
    elif kind == "between" and fill == "distinct":
        found = "values that may repeat"
    elif kind != "ascending" and fill == "selection":
        found = "rows that do not ascend"
    elif bounds[0] >= low and bounds[1] <= high and (fill != "listed" or bounds == (low, high)):
        return None
    else:
        found = "values in [%d, %d]" % bounds
    return "the manifest has values in [%d, %d], the call has %s" % (low, high, found)


def is_same_value(expected, given):
    if isinstance(given, (list, tuple)):
        return (
            isinstance(expected, list)
            and len(expected) == len(given)
            and all(is_same_value(one, item) for one, item in zip(expected, given))
        )
    if type(given) is float:
        # Both were parsed from decimal text, which may differ in the last bit.
        is_number = type(expected) in (int, float)
        return is_number and (expected == given or abs(expected - given) <= 1e-12 * abs(expected))
    return type(expected) is type(given) and expected == given


def describe_expected(argument):
    (kind, value), = ((key, value) for key, value in argument.items() if key != "name")
    if kind in ("tensor", "destination"):
        return describe_expected_tensor(value)
    if kind == "tensors":
        return "a list of %s" % " and ".join(map(describe_expected_tensor, value))
    if kind == "value":
        import json

        return json.dumps(value, separators=(",", ":"))
    return {"same_as": "the tensor of `%s`", "dtype": "torch.%s", "process_group": "a group of %s ranks"}[kind] % value


def describe_expected_tensor(tensor):
    layout = "transposed" if tensor.get("transposed") else "contiguous"
    place = None if tensor.get("on_host") else 0
    return _describe(tensor["dtype"], tensor["shape"], tensor.get("format"), layout, place)


def describe(given):
    if isinstance(given, Tensor):
        form = given.recorded()[2]
        form = None if form in BASE_FORMATS else form
        storage = given._storage
        return _describe(torch_name(storage.dtype) or "", given.dims_in_memory(), form, given.layout(), storage.place)
    if isinstance(given, dtype):
        return "torch." + given.name
    if isinstance(given, (list, tuple)) and any(isinstance(item, Tensor) for item in given):
        return "a list of %s" % " and ".join(map(describe, given))
    return value_text(given)


def _describe(dtype, dims, form, layout, place):
    form = " in " + form if form else ""
    return "%s %s[%s]%s on the %s" % (LAYOUTS[layout], dtype, dims_text(dims), form, "host" if place is None else "NPU")
