"""Model of simulated durations. The same inputs give the same bits on every machine, because only additions,
multiplications, divisions and square roots of IEEE 754 are used.

A kernel's base is `fastest(work) * inefficiency + 1.3 us`: `fastest` is the bound of the device profile, and the
inefficiency is 1.6 on the cube unit, 1.9 on the vector unit and 1.7 for data movement, varied by up to 15 % by a hash of the
kernel's name.

| model | duration of a launch |
|---|---|
| steady | base * (1 up to 0.5 % more or less), by a hash of seed, signature and the launch's number since the last sentinel |
| lifelike | base * collection's offset * launch's noise; the first three launches of a signature in a process are slower |

Durations are multiples of 20 ns, the step of the device's counter, and without faults never below `fastest(work)`. They are
rounded once, after noise and faults. Nothing was fitted to a device: the numbers contain no information about a kernel.
"""
import math

from . import hashes

TICK = 20
FIXED = 1300.0
INEFFICIENCY = {"cube": 1.6, "vector": 1.9, "mte": 1.7}
INEFFICIENCY_SPREAD = 0.15
STEADY_SPREAD = 0.005
# Factor and nanoseconds of the first launches of a signature in a process.
COLD = ((1.10, 8000.0), (1.03, 2000.0), (1.01, 500.0))
# Distinguish the hashes of the parts of the noise.
STATE, OFFSET, CASE, DEVICE = 0x73746174, 0x6F666673, 0x63617365, 0x64657669
# A fifth of the collections is in the upper of two modes; in standard deviations, with mean 0 and deviation 1.
UPPER_MODE_PART = 5
MODES = (2.0, -0.5)


def whole(number):
    """The nearest whole number of a number above 0; halves are rounded up."""
    floor = math.floor(number)
    return floor + 1 if number - floor >= 0.5 else floor


def rounded(nanoseconds):
    return whole(nanoseconds / TICK) * TICK


def fastest(profile, flops, moved, unit, dtype):
    rates = profile["cube_tflops" if unit == "cube" else "vector_tflops"]
    peak = rates.get("FLOAT" if dtype == "HF32" else dtype, max(rates.values(), default=0.0)) * 1e12
    compute = flops / peak if peak > 0.0 else 0.0
    cached = moved / (profile["l2_ceiling_tb_per_s"] * 1e12)
    memory = max(moved - float(profile["l2_mib"] << 20), 0.0) / hbm_rate(profile)
    return seconds(max(compute, cached, memory))


def hbm_rate(profile):
    return profile["hbm_tib_per_s"] * 1099511627776.0


def seconds(value):
    return whole(value * 1e9)


def base(profile, operation, is_cold=False):
    """Mean duration of a kernel, with a warm cache or with all traffic from device memory, without noise."""
    bound = fastest(profile, operation.flops, operation.bytes, operation.unit, operation.dtype)
    if is_cold:
        bound = max(bound, seconds(operation.bytes / hbm_rate(profile)))
    spread = 1.0 + INEFFICIENCY_SPREAD * hashes.signed_unit_deviate(hashes.hash_text(operation.kernel))
    return rounded(bound * INEFFICIENCY[operation.unit] * spread + FIXED)


class Model:
    def __init__(self, host, collection):
        self.is_steady = host["model"] == "steady"
        plan = host["faults"]
        self.noise = plan["noise"]
        # Lifelike durations of a run are not those of an earlier run with the same seed.
        is_repeated = not self.is_steady and host["earlier_runs"] > 0
        self.seed = hashes.hash_numbers([host["seed"], host["earlier_runs"]]) if is_repeated else host["seed"]
        self.seed_hash = hashes.mix(self.seed)
        self.collection = collection
        self.own_seed, self.devices = host["seed"], host["devices"]
        self._prefixes, self._device_factors, self._case_deviations = {}, {}, {}

    def variation(self, signature, device, since_sentinel, in_process):
        """A hash of the inputs of a duration, for other quantities that vary with a launch."""
        key = signature if self.is_steady else (signature, device)
        prefix = self._prefixes.get(key)
        if prefix is None:
            place = [signature] if self.is_steady else [self.collection, device, signature]
            prefix = self._prefixes[key] = hashes.hash_numbers(place, self.seed_hash)
        return hashes.mix(prefix ^ (since_sentinel if self.is_steady else in_process))

    def varied(self, base, variation, signature, device, in_process):
        """The duration in nanoseconds with its noise, not rounded."""
        if self.is_steady:
            return base * (1.0 + STEADY_SPREAD * hashes.signed_unit_deviate(variation))
        factor, more = COLD[in_process] if in_process < len(COLD) else (1.0, 0.0)
        device_factor = 1.0 if device == NO_DEVICE else self.device_factor(device)
        return self._noisy(base, signature, device, in_process) * device_factor * factor + more

    def _noisy(self, duration, signature, device, in_process):
        noise = self.noise
        place = hashes.hash_numbers([self.collection, device], self.seed_hash)
        deviation = self._case_deviations.get(signature)
        if deviation is None:
            bits = hashes.hash_numbers([CASE, signature])
            deviation = self._case_deviations[signature] = hashes.log_uniform_deviate(*noise["launch"], bits)
        common = 1.0 + noise["collection"] * hashes.normal_deviate(place)
        of_case = hashes.mix(place ^ signature)
        launch = hashes.dependent_deviate(
            noise["dependence"], in_process, lambda number: hashes.normal_deviate(hashes.mix(of_case ^ number))
        )
        varied = duration * common * hashes.exponential(deviation * launch)
        offset = noise["offset"] * deviation * self._offset(place, of_case) if noise["offset"] else 0.0
        return varied if offset == 0.0 else varied * hashes.exponential(offset)

    def _offset(self, place, of_case):
        own = hashes.mix(of_case ^ OFFSET)
        if self.noise["two_modes"]:
            own = MODES[0] if hashes.mix(own) % UPPER_MODE_PART == 0 else MODES[1]
        else:
            own = hashes.normal_deviate(own)
        shared = self.noise["shared"]
        state = hashes.normal_deviate(hashes.mix(place ^ STATE))
        return shared * state + math.sqrt(1.0 - shared * shared) * own

    def device_factor(self, device):
        """Factor of the durations on a device; the mean effect of the devices of the host is 0."""
        if self.noise["devices"] == 0.0:
            return 1.0
        if device not in self._device_factors:
            def effect(number):
                return hashes.normal_deviate(hashes.hash_numbers([self.own_seed, DEVICE, number]))

            mean = 0.0
            for number in range(self.devices):
                mean += effect(number)
            mean /= max(self.devices, 1)
            self._device_factors[device] = hashes.exponential(self.noise["devices"] * (effect(device) - mean))
        return self._device_factors[device]


# Stands for the device of a collective, which is that of no rank.
NO_DEVICE = (1 << 32) - 1
