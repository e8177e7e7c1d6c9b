"""Tensors of the simulated NPU, which compute nothing and hold no data, and the device memory in use.

What is known of the values of a storage is a pair: a kind and the least and the greatest value.
"""
from . import values
from .tensors import FROM_TORCH, element_bytes, element_count, require, row_major_format, tensor, tensor_bytes, torch_name

UNINITIALISED, UNKNOWN = ("uninitialised", None), ("unknown", None)


def between(low, high):
    return ("between", (low, high))


def different(low, high):
    """Whole numbers, each at most once."""
    return ("different", (low, high))


def ascending(low, high):
    """Rows of whole numbers, ascending up to the first -1."""
    return ("ascending", (low, high))


class OutOfMemoryError(RuntimeError):
    """Device memory ran out."""


class dtype:
    """A type of torch; without a name of the profiler no tensor has it."""

    def __init__(self, name, is_floating_point):
        self.name, self.is_floating_point = name, is_floating_point
        self.recorded = FROM_TORCH.get(name)

    def __repr__(self):
        return "torch." + self.name


DTYPES = {}


class Generator:
    """A generator without values; its seed has no effect."""

    def __init__(self, device="cpu"):
        self.device = str(device)

    def manual_seed(self, seed):
        return self


class Name:
    """A dotted name below torch or torch_npu: a namespace until it is called."""

    # Calls a function by its path and its arguments.
    call = None

    def __init__(self, path):
        self._path = path

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError("'%s' has no attribute '%s'" % (self._path, name))
        return Name(self._path + "." + name)

    def __call__(self, *args, **kwargs):
        return Name.call(self._path, args, kwargs)


class _Methods(type):
    """`torch.Tensor.copy_`, without an instance."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError("type object 'Tensor' has no attribute '%s'" % name)
        return Name("torch.Tensor." + name)


class Tensor(metaclass=_Methods):
    """A view of a storage: its dimension for each dimension of the view, or the first element and the length of a part."""

    def __init__(self, storage, order, part=None):
        self._storage, self._order, self._part = storage, order, part

    @property
    def shape(self):
        return (self._part[1],) if self._part else tuple(self._storage.dims[dim] for dim in self._order)

    @property
    def dtype(self):
        return DTYPES[torch_name(self._storage.dtype)]

    @property
    def device(self):
        return place_text(self._storage.place)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError("'Tensor' object has no attribute '%s'" % name)

        def method(*args, **kwargs):
            return Name.call("torch.Tensor." + name, (self,) + args, kwargs)

        return method

    def __len__(self):
        return self.shape[0]

    def __repr__(self):
        return "tensor(shape=%s, dtype=%r, device='%s')" % (list(self.shape), self.dtype, self.device)

    # What calls read of it, beside the storage.

    def layout(self):
        order = self._order
        if order == tuple(range(len(order))):
            return "contiguous"
        return "transposed" if order[:-2] + order[:-3:-1] == tuple(range(len(order))) else "permuted"

    def dims_in_memory(self):
        """Dimensions in memory, without blocks."""
        return (self._part[1],) if self._part else self._storage.dims

    def recorded(self):
        """The tensor as the profiler shows it: blocked where it was cast, else in torch_npu's format for its rank."""
        storage = self._storage
        if not storage.is_blocked:
            return tensor(self.dims_in_memory(), storage.dtype, row_major_format(len(storage.dims)))
        rows, columns = storage.dims[-2:]
        width = 32 // max(element_bytes(storage.dtype) or 2, 1)
        dims = storage.dims[:-2] + (-(-columns // width), -(-rows // 16), 16, width)
        return tensor(dims, storage.dtype, "FRACTAL_NZ")

    def known_values(self):
        end = sum(self._part) if self._part else element_count(self._storage.dims)
        return UNINITIALISED if self._storage.written < end else self._storage.contents

    def elements(self):
        if self._storage.elements is None or not self._part:
            return self._storage.elements
        return values.part_of(self._storage.elements, *self._part)


class Storage:
    """Memory of tensors on the host (place None) or on a device; freed with the last tensor."""

    def __init__(self, memory, number, dims, dtype, place, contents):
        self.memory, self.number, self.dims, self.dtype, self.place = memory, number, dims, dtype, place
        self.bytes = tensor_bytes((dims, dtype))
        self.is_blocked = False
        # Values of the written elements of a vector; None if they are not known.
        self.elements = None
        self.contents = contents
        # Number of elements that have been written, from the first.
        self.written = 0 if contents == UNINITIALISED else element_count(dims)

    def write(self, contents, elements=None):
        self.contents, self.written, self.elements = contents, 1 << 64, elements

    def __del__(self):
        if self.place is not None:
            self.memory.used[self.place] -= self.bytes


class Memory:
    def __init__(self, capacity):
        self.capacity, self.last = capacity, 0
        self.used = {}
        # Bytes of a device that another process leaves free.
        self.free_limits = {}
        # True if no memory is free on any device.
        self.is_exhausted = False

    def check_free(self, place, needed):
        if place is None:
            return
        left = 0 if self.is_exhausted else self.free_limits.get(place)
        free = max(min(self.capacity, self.capacity if left is None else left) - self.used.get(place, 0), 0)
        if needed > free:
            raise self.out_of_memory_error(place, needed, free)

    def out_of_memory_error(self, device, needed, free):
        sizes = tuple(map(size_text, (needed, self.capacity, self.used.get(device, 0), free)))
        needed, capacity, used, free = sizes
        return OutOfMemoryError(
            "NPU out of memory. Tried to allocate %s (NPU %d; %s total capacity; %s already allocated; %s current active; %s "
            "free; %s reserved in total by PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb to "
            "avoid fragmentation." % (needed, device, capacity, used, used, free, used)
        )

    def allocate(self, dims, dtype, place, contents=UNKNOWN):
        dims = tuple(dims)
        self.check_free(place, tensor_bytes((dims, dtype)))
        self.last += 1
        storage = Storage(self, self.last, dims, dtype, place, contents)
        if place is not None:
            self.used[place] = self.used.get(place, 0) + storage.bytes
        return Tensor(storage, tuple(range(len(dims))))

    def write_part(self, target, source):
        """Copies values into a part of a vector. Parts are written in order, from the first."""
        storage, part = target._storage, target._part
        require(part is not None, "rehearsal: copy_ outside of a case is known for parts of vectors only")
        dims, dtype, _ = source.recorded()
        is_equal = (dtype, source._storage.place) == (storage.dtype, storage.place)
        is_equal = is_equal and source.layout() == "contiguous" and element_count(dims) == part[1]
        text = "rehearsal: copy_ into a part is known for equal vectors on one device, in order"
        require(is_equal and part[0] <= storage.written, text)
        contents, elements = source.known_values(), source.elements()
        earlier = [] if storage.written == 0 else storage.elements
        known = earlier is not None and elements is not None
        storage.elements = values.replaced(earlier, part[0], elements) if known else None
        storage.contents = contents if storage.written == 0 else merged(storage.contents, contents)
        storage.written = max(storage.written, sum(part))


def merged(one, other):
    if one[1] is None or other[1] is None:
        return UNKNOWN
    return between(min(one[1][0], other[1][0]), max(one[1][1], other[1][1]))


def place_text(place):
    return "cpu" if place is None else "npu:%d" % place


def size_text(count):
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if count >= 1 << shift:
            return "%.2f %s" % (count / (1 << shift), unit)
    return "%d bytes" % count
