"""Values of the elements of a vector: runs that repeat a list, so that long messages of collectives are exchanged and
compared element by element without storing each.

A vector is a list of runs; a run is its length, the repeated numbers, and the place of its first element among them.
"""

# Elements whose sums are computed one by one.
MAX_SUMS = 1 << 20
MAX_SUM = (1 << 63) - 1


def from_list(numbers):
    return [(len(numbers), tuple(numbers), 0)] if numbers else []


def constant(value, length):
    return [(length, (value,), 0)] if length else []


def length_of(vector):
    return sum(run[0] for run in vector)


def _push(vector, length, period, phase):
    """Appends a run; one that continues the last becomes part of it."""
    if length == 0 or not period:
        return
    if vector:
        last, numbers, first = vector[-1]
        if numbers == period and (first + last) % len(period) == phase % len(period):
            vector[-1] = (last + length, numbers, first)
            return
    vector.append((length, period, phase))


def part_of(vector, start, length):
    part, first, end = [], 0, start + length
    for size, period, phase in vector:
        low, high = max(start, first), min(end, first + size)
        if low < high:
            _push(part, high - low, period, (phase + low - first) % len(period))
        first += size
    return part


def joined(vectors):
    whole = []
    for vector in vectors:
        for run in vector:
            _push(whole, *run)
    return whole


def replaced(vector, start, other):
    behind = start + length_of(other)
    return joined([part_of(vector, 0, start), other, part_of(vector, behind, max(length_of(vector) - behind, 0))])


def sum_of(vectors):
    """Sums of the elements of equally long vectors; None if their lengths differ or the pieces do not repeat."""
    if len({length_of(vector) for vector in vectors}) != 1:
        return None
    ends = set()
    for vector in vectors:
        end = 0
        for run in vector:
            end += run[0]
            ends.add(end)
    whole, start = [], 0
    for end in sorted(ends):
        pieces = [part_of(vector, start, end - start) for vector in vectors]
        runs = [run for piece in pieces for run in piece]
        size = len(runs[0][1])
        is_common = all(len(period) in (size, 1) for _, period, _ in runs)
        count = min(size, end - start) if is_common else end - start
        if len(runs) != len(vectors) or count > MAX_SUMS:
            return None
        rotated = [_elements(period, phase, count) for _, period, phase in runs]
        # Sums that are added to themselves at each launch exceed any number.
        _push(whole, end - start, tuple(min(sum(each), MAX_SUM) for each in zip(*rotated)), 0)
        start = end
    return whole


def _elements(period, phase, count):
    if len(period) == 1:
        return period * count
    first = period[phase:] + period[:phase]
    return (first * -(-count // len(first)))[:count]


def equals(one, other):
    if length_of(one) != length_of(other):
        return False
    left, right = list(reversed(one)), list(reversed(other))
    while left and right:
        (size, period, phase), (size2, period2, phase2) = left.pop(), right.pop()
        length = min(size, size2)
        # Beyond the product of the periods all pairs of elements repeat.
        repeat = len(period) if len(period) == len(period2) else len(period) * len(period2)
        count = min(length, repeat)
        if _elements(period, phase, count) != _elements(period2, phase2, count):
            return False
        if size > length:
            left.append((size - length, period, (phase + length) % len(period)))
        if size2 > length:
            right.append((size2 - length, period2, (phase2 + length) % len(period2)))
    return True


def to_list(vector, most):
    numbers = []
    for length, period, phase in vector:
        numbers.extend(_elements(period, phase, min(length, most - len(numbers))))
    return numbers
