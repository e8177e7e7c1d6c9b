"""Numbers that look random, depend on their inputs only, and are equal on every machine."""

import math

MASK = (1 << 64) - 1


def mix(state):
    """The number that follows a state of 64 bits (SplitMix64)."""
    mixed = (state + 0x9E3779B97F4A7C15) & MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & MASK
    return mixed ^ (mixed >> 31)


def hash_numbers(numbers, start=0):
    """Hash of numbers, in order; `start` is the hash of the numbers before them."""
    for number in numbers:
        start = mix(start ^ number)
    return start


def hash_text(text):
    return hash_numbers(text.encode())


def pick_number(numbers, bound):
    return hash_numbers(numbers) % max(bound, 1)


def signed_unit_deviate(bits):
    """Uniform over [-1, 1)."""
    return 2.0 * ((bits >> 11) / 9007199254740992.0) - 1.0


def normal_deviate(seed):
    """A normal deviate by the central limit, because logarithms differ in the last bit between machines."""
    total = 0.0
    for number in range(12):
        total += (mix((seed + number * 0x9E3779B97F4A7C15) & MASK) >> 11) / 9007199254740992.0
    return total - 6.0


def log_uniform_deviate(least, most, bits):
    """Uniform in its logarithm over a range, by square roots of the ratio of its ends."""
    root, deviate = most / least, least
    for bit in range(20):
        root = math.sqrt(root)
        if bits >> bit & 1:
            deviate *= root
    return deviate


def dependent_deviate(correlation, number, fresh):
    """Normal deviate of a number in a series whose neighbours have a correlation; `fresh` returns independent ones."""
    if correlation == 0.0:
        return fresh(number)
    # Earlier numbers have no effect: 0.95 to the power of 120 is 0.002.
    first = max(number - 120, 0)
    share = math.sqrt(1.0 - correlation * correlation)
    value = fresh(first)
    for later in range(first + 1, number + 1):
        value = correlation * value + share * fresh(later)
    return value


def exponential(x):
    """`e^x` up to 3."""
    if abs(x) <= 0.06:
        return _small_exponential(x)
    value = _small_exponential(x / 256.0)
    for _ in range(8):
        value *= value
    return value


def _small_exponential(x):
    return 1.0 + x * (1.0 + x / 2.0 * (1.0 + x / 3.0 * (1.0 + x / 4.0 * (1.0 + x / 5.0 * (1.0 + x / 6.0)))))
