"""Binds the arguments of a call to a schema, as torch's own parser does: every error is a `TypeError` that names the
argument."""
import functools
import re
from collections import namedtuple

from .memory import Generator, Tensor, dtype

Argument = namedtuple("Argument", "name kind optional has_default keyword_only")
Schema = namedtuple("Schema", "name short_name arguments returns returns_list")
KINDS = {
    "Tensor": "Tensor",
    "Tensor[]": "tuple of Tensors",
    "int": "int",
    "SymInt": "int",
    "int[]": "tuple of ints",
    "SymInt[]": "tuple of ints",
    "float": "float",
    "float[]": "tuple of floats",
    "Scalar": "Number",
    "bool": "bool",
    "str": "str",
}


@functools.lru_cache(maxsize=None)
def parse(text):
    """Parses a schema as torch prints it, such as `npu::npu_x(Tensor self, *, float eps=1e-06) -> (Tensor, Tensor)`."""
    name, rest = text.strip().split("(", 1)
    inside, returns = rest.rsplit("->", 1)
    arguments, keyword_only = [], False
    for part in _split(inside.rstrip()[:-1]):
        if part == "*":
            keyword_only = True
            continue
        declared, has_default, _ = part.partition("=")
        kind, name_of = declared.strip().rsplit(" ", 1)
        optional = kind.endswith("?")
        base, bracket, _ = (kind[:-1] if optional else kind).partition("[")
        base = base.split("(")[0].rstrip("?!") + ("[]" if bracket else "")
        arguments.append(Argument(name_of, KINDS.get(base), optional, bool(has_default), keyword_only))
    returns = returns.strip()
    count = len(_split(returns[1:-1])) if returns.startswith("(") else 1
    short = name.strip().rsplit("::", 1)[-1].split(".")[0]
    return Schema(name.strip(), short, tuple(arguments), count, returns.endswith("[]"))


def _split(text):
    """The parts between commas outside of brackets."""
    parts, start, depth = [], 0, 0
    for match in re.finditer(r"[\[\](),]", text):
        if match.group() in "[(":
            depth += 1
        elif match.group() in "])":
            depth = max(depth - 1, 0)
        elif depth == 0:
            parts.append(text[start : match.start()])
            start = match.end()
    return [part.strip() for part in parts + [text[start:]] if part.strip()]


def bind(schema, args, kwargs, numbers=()):
    function = schema.short_name
    accepted = [known for known in schema.arguments if not known.keyword_only]
    if len(accepted) == 1 and accepted[0].kind == "tuple of ints" and args and all(type(each) is int for each in args):
        # `torch.randn(2, 3)` is `torch.randn([2, 3])`.
        args = (list(args),)
    if len(args) > len(accepted):
        raise TypeError("%s() takes %d positional arguments but %d were given" % (function, len(accepted), len(args)))
    bound = {}
    for index, (known, value) in enumerate(zip(accepted, args)):
        if not _fits(known, value, numbers):
            raise _wrong(function, known, value, " (position %d)" % (index + 1))
        bound[known.name] = value
    for name, value in sorted(kwargs.items()):
        known = next((known for known in schema.arguments if known.name == name), None)
        if known is None:
            raise TypeError("%s() got an unexpected keyword argument '%s'" % (function, name))
        if not _fits(known, value, numbers):
            raise _wrong(function, known, value, "")
        if name in bound:
            raise TypeError("%s() got multiple values for argument '%s'" % (function, name))
        bound[name] = value
    missing = ['"%s"' % known.name for known in schema.arguments if not known.has_default and known.name not in bound]
    if missing:
        text = "%s() missing %d required positional arguments: %s"
        raise TypeError(text % (function, len(missing), ", ".join(missing)))
    return bound


def bind_to(text, args, kwargs, numbers=()):
    return bind(parse(text), args, kwargs, numbers)


def _fits(known, value, numbers):
    if value is None:
        return known.optional or known.kind is None
    kind, given = known.kind, type(value)
    if kind == "Tensor":
        return given is Tensor or known.name in numbers and given in (int, float, bool)
    if kind == "int":
        # Torch's own parser accepts the number of a type.
        return given is int or given is dtype
    if kind is None:
        return True
    if kind.startswith("tuple"):
        types = {"tuple of Tensors": (Tensor,), "tuple of ints": (int,), "tuple of floats": (int, float)}[kind]
        return given in (list, tuple) and all(type(item) in types for item in value)
    return given in {"float": (int, float), "Number": (int, float, bool), "bool": (bool,), "str": (str,)}[kind]


def _wrong(function, known, value, at):
    message = "%s(): argument '%s'%s must be %s, not %s"
    return TypeError(message % (function, known.name, at, known.kind, type_name(value)))


def type_name(value):
    names = {type(None): "NoneType", tuple: "list", dtype: "torch.dtype", Generator: "torch.Generator"}
    return names.get(type(value), type(value).__name__)


def value_text(value):
    if isinstance(value, (list, tuple)):
        return "[%s]" % ",".join(map(value_text, value))
    if isinstance(value, str):
        return "'%s'" % value
    if isinstance(value, float) and value.is_integer():
        return "%d" % value
    return str(value) if value is None or isinstance(value, (bool, int, float)) else type_name(value)
