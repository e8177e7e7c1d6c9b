"""Collective operations of `torch.distributed`. In a sweep, the kernel of a rank starts when it reaches it, waits for the last
rank and ends with the others; the ranks exchange the data element by element."""
import json

from . import values
from .memory import UNKNOWN
from .schema import bind_to
from .tensors import COMMUNICATION, Operation, element_bytes, require, tensor_bytes, torch_name

# Kinds of collectives and arguments by function; types of records by kind.
_SPLITS = ", int[]? output_splits=None, int[]? input_splits=None"
CALLS = {
    "torch.distributed." + text.partition("(")[0]: (kind, text + " -> ()")
    for kind, text in (
        ("all_reduce", "all_reduce(Tensor tensor)"),
        ("all_gather", "all_gather_into_tensor(Tensor output, Tensor input)"),
        ("reduce_scatter", "reduce_scatter_tensor(Tensor output, Tensor input)"),
        ("all_to_all", "all_to_all_single(Tensor output, Tensor input%s)" % _SPLITS),
        ("broadcast", "broadcast(Tensor tensor, int src)"),
        ("send_receive", "send(Tensor tensor, int dst)"),
        ("send_receive", "recv(Tensor tensor, int src)"),
    )
}
RECORDS = {
    "all_reduce": "hcom_allReduce_",
    "all_gather": "hcom_allGather_",
    "reduce_scatter": "hcom_reduceScatter_",
    "all_to_all": "hcom_alltoall_",
    "all_to_all_v": "hcom_alltoallv_",
    "broadcast": "hcom_broadcast_",
    "send_receive": "hcom_send_",
}
RECEIVE, RECEIVE_RECORD = "torch.distributed.recv", "hcom_receive_"


def operation(record, number, moved, dtype):
    """The profiler shows no tensors of a collective; its name has a hash of the group, the operation's index, and a number."""
    name = "%s_534_%d_1" % (record, number)
    return Operation(name, record, COMMUNICATION, (), (), 0.0, float(moved), "mte", dtype)


def all_reduce(session, args, kwargs):
    """Outside of sweeps: every rank sums a tensor of the same shape and type; the device does not wait for the others."""
    tensor = bind_to("all_reduce(Tensor tensor) -> ()", args, kwargs)["tensor"]
    require(tensor._storage.place is not None, "No backend type associated with device type cpu")
    recorded = tensor.recorded()
    session.check_common(RECORDS["all_reduce"], [recorded])
    tensor._storage.write(UNKNOWN)
    launched = operation(RECORDS["all_reduce"], session.common_calls, 2 * tensor_bytes(recorded), recorded[1])
    session.log.launch(tensor._storage.place, launched)


def call(session, api, args, kwargs):
    """Waits for the other ranks, exchanges the data and records the kernel of this rank."""
    rank, ranks, log = session.rank(), session.ranks, session.log
    collective = Collective(session, api, args, kwargs)
    case = log.current_case()
    if case is not None:
        collective.compare(case)
    session.common_calls += 1
    number, device = session.common_calls, session.current
    ahead = log.clock_ahead() + log.device_clock_ahead(device)
    start = log.collective_start(device, rank)
    # Launches between sentinels are measured, and no script reads their data.
    sent = None if collective.input is None or log.case is not None else collective.input.elements()
    # The start of its kernel by the clock of all devices and hosts.
    arrival = {"at": start - ahead, "sent": sent, "call": collective.describe(), "splits": collective.splits}
    arrivals = [arrival]
    if session.link is not None:
        arrivals = session.link.ask("meet", number, rank, ranks, rest=json.dumps(arrival).encode())
    calls = [each["call"] for each in arrivals]
    other = next((each for each in calls if each != calls[0]), None)
    text = "rehearsal: the ranks of a group launch different collectives: %s, another rank %s"
    require(other is None, text, calls[0], other)
    last = max(each["at"] + ahead for each in arrivals)
    message = collective.message_bytes()
    splits = [each["splits"] for each in arrivals]
    if None not in splits:
        size = equal_message_elements(splits) * collective.element_bytes
    else:
        size = message * ranks if collective.kind in ("all_gather", "reduce_scatter") else message
    duration = log.collective_duration(RECORDS[collective.kind], size)
    if collective.output is not None:
        vectors = [each["sent"] and [(size, tuple(period), at) for size, period, at in each["sent"]] for each in arrivals]
        received = collective.received(vectors, splits, rank)
        if log.wrong_element is not None and received is not None:
            found = values.to_list(values.part_of(received, log.wrong_element, 1), 1)
            wrong = values.constant(found[0] + 1 if found else 0, 1)
            received = values.replaced(received, log.wrong_element, wrong)
        collective.output._storage.write(UNKNOWN, received)
    launched = operation(collective.record, number, message, collective.dtype)
    log.append_collective(device, rank, launched, start, last + duration)


def equal_message_elements(splits):
    """The message, in elements, whose equal parts take as long as the largest transfer of one rank with others. Fails if a rank
    sends a part of another size than its receiver expects, at which HCCL would hang or end."""
    most = 0
    for rank, own in enumerate(splits):
        for other, (sent, peer) in enumerate(zip(own["sent"], splits)):
            text = "rehearsal: rank %d sends %d elements to rank %d, which expects %d"
            require(sent == peer["received"][rank], text, rank, sent, other, peer["received"][rank])
        most = max(most, sum(own["sent"]) - own["sent"][rank], sum(own["received"]) - own["received"][rank])
    return most * len(splits) // max(len(splits) - 1, 1)


class Collective:
    def __init__(self, session, api, args, kwargs):
        self.kind, text = CALLS[api]
        bound, self.ranks = bind_to(text, args, kwargs), session.ranks
        if isinstance(bound.get("input_splits"), (list, tuple)):
            self.kind = "all_to_all_v"
        one = bound.get("tensor")
        # The receiver of a transfer has no input, its sender no output.
        self.input = None if api == RECEIVE else one if one is not None else bound["input"]
        self.output = one if one is not None else bound["output"]
        if self.kind == "send_receive" and api != RECEIVE:
            self.output = None
        self.dtype, self.elements = None, [0, 0]
        for place, tensor in enumerate((self.input, self.output)):
            if tensor is None:
                continue
            require(len(tensor.dims_in_memory()) == 1, "rehearsal: collectives are of vectors")
            require(tensor._storage.place == session.current, "No backend type associated with device type cpu")
            require(self.dtype in (None, tensor._storage.dtype), "Tensors are not equal in size or data type")
            self.dtype, self.elements[place] = tensor._storage.dtype, tensor.dims_in_memory()[0]
        self.element_bytes = element_bytes(self.dtype) or 1
        self.record = RECEIVE_RECORD if api == RECEIVE else RECORDS[self.kind]
        # Elements that it sends to each rank and receives from each rank, of an `all_to_all_v`.
        self.splits = None
        if self.kind == "all_to_all_v":
            self.splits = {"sent": bound["input_splits"], "received": bound.get("output_splits")}
            for parts in self.splits.values():
                is_valid = isinstance(parts, (list, tuple)) and len(parts) == self.ranks and min(parts) >= 0
                require(is_valid, "rehearsal: the splits are not %d whole numbers", self.ranks)
        self.check_sizes(bound)

    def check_sizes(self, bound):
        (given, returned), ranks = self.elements, self.ranks
        fits = {
            "all_gather": given * ranks == returned,
            "reduce_scatter": returned * ranks == given,
            "all_to_all": given == returned and given % max(ranks, 1) == 0,
            "all_to_all_v": self.splits is None
            or [sum(self.splits["sent"]), sum(self.splits["received"])] == self.elements,
            "broadcast": bound.get("src") == 0,
            "send_receive": ranks == 2,
        }
        text = "rehearsal: %s of %d and %d elements over %d ranks"
        require(fits.get(self.kind, True), text, self.kind, given, returned, ranks)

    def describe(self):
        """The call without the sizes that differ between the ranks of a transfer."""
        elements = "%d -> %d" % tuple(self.elements)
        if self.kind == "send_receive":
            elements = "%d" % max(self.elements)
        elif self.kind == "all_to_all_v":
            elements = "different"
        return "%s of %s elements of %s" % (self.kind, elements, self.dtype)

    def compare(self, case):
        wanted = next((each["value"] for each in case["arguments"] if isinstance(each.get("value"), dict)), None)
        require(wanted is not None, "rehearsal: %s is no collective", case["kernel"])
        sizes = [wanted.get("send", 0), wanted.get("receive", 0)]
        if self.splits is not None:
            # The manifest has the sizes of the busiest ranks.
            is_same_size = all(found <= most for found, most in zip(self.elements, sizes))
        else:
            is_same_size = self.elements == sizes or self.kind == "send_receive" and sizes[0] in self.elements
        is_same = wanted.get("kind") == self.kind and is_same_size and wanted.get("dtype") == torch_name(self.dtype)
        text = "rehearsal: the manifest has %s of %d -> %d elements of %s, the call is %s of %d -> %d elements of %s"
        require(is_same, text, wanted.get("kind"), *sizes, wanted.get("dtype"), self.kind, *self.elements, self.dtype)

    def message_bytes(self):
        """The message of the call in bytes; npubench states for each collective what its size is."""
        given, returned = self.elements
        elements = {"reduce_scatter": given // max(self.ranks, 1), "send_receive": max(given, returned)}
        return elements.get(self.kind, given) * self.element_bytes

    def received(self, sent, splits, rank):
        """The values that a rank receives; None if they are not known."""
        if self.kind in ("broadcast", "send_receive"):
            return sent[0]
        if any(vector is None for vector in sent):
            return None
        if self.kind == "all_to_all_v":
            parts = [
                values.part_of(vector, sum(split["sent"][:rank]), split["sent"][rank]) for vector, split in zip(sent, splits)
            ]
            return values.joined(parts)
        if self.kind == "all_gather":
            return values.joined(sent)
        if self.kind == "all_reduce":
            return values.sum_of(sent)
        lengths = [values.length_of(vector) // max(len(sent), 1) for vector in sent]
        parts = [values.part_of(vector, rank * length, length) for vector, length in zip(sent, lengths)]
        return values.sum_of(parts) if self.kind == "reduce_scatter" else values.joined(parts)
