"""Tests of the stand-ins of the rehearsal host; started by tests/it/rehearsal.rs with the packages in PYTHONPATH."""
import atexit
import collections
import json
import os
import random
import shutil
import statistics
import tempfile
import time
import unittest

import torch
import torch_npu
from rehearsal import corrupt, entries, faults, hashes, msprof, npu, raw, store, tables, tensors, timing, values

PROFILE = {
    "cube_tflops": {"FLOAT": 181.9, "DT_BF16": 363.7, "FLOAT16": 363.7, "INT8": 727.4},
    "vector_tflops": {"FLOAT": 11.37, "DT_BF16": 22.73, "FLOAT16": 22.73},
    "hbm_gib": 64,
    "hbm_tib_per_s": 1.6,
    "l2_mib": 192,
    "l2_ceiling_tb_per_s": 7.33,
    "cube_cores": 24,
    "vector_cores": 48,
    "clock_mhz": 1850,
}
NOISE = {"launch": [0.01, 0.01], "collection": 0.005, "offset": 0.0, "shared": 0.0, "two_modes": False}
NOISE.update(dependence=0.0, devices=0.0)
TARGET = {key: [] for key in ("kernel", "case", "shapes", "devices", "collections", "ordinal")}
TARGET.update(every=None, probability=None, drawn_by="case_and_device")
START = 1764246877073569650
SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../templates/replay.py.hbs")
SCHEMAS = {
    "Add": ("torch.add", "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"),
    "Mul": ("torch.mul", "aten::mul.Tensor(Tensor self, Tensor other) -> Tensor"),
    "SwiGlu": ("torch_npu.npu_swiglu", "npu::npu_swiglu(Tensor input, int dim=-1) -> Tensor"),
    "RmsNorm": (
        "torch_npu.npu_rms_norm",
        "npu::npu_rms_norm(Tensor input, Tensor gamma, float epsilon=1e-06) -> (Tensor, Tensor)",
    ),
    "Sort": ("torch.sort", "aten::sort(Tensor self, int dim=-1, bool descending=False) -> (Tensor values, Tensor indices)"),
    "MatMulV3": ("torch.mm", "aten::mm(Tensor self, Tensor mat2) -> Tensor"),
    "GatherV2": ("torch.embedding", "aten::embedding(Tensor weight, Tensor indices, int padding_idx=-1) -> Tensor"),
}


def host(**more):
    costs = dict.fromkeys(("start", "init", "case", "launch", "export"), 0.0)
    plan = {"seed": None, "speed": 1.0, "costs": costs, "noise": NOISE, "defects": [], "faults": [], "schemas": []}
    settings = {"model": "steady", "seed": 7, "earlier_runs": 0, "devices": 2, "recorded_medians": {}, "profile": PROFILE}
    return dict(settings, program="none", version="0", faults=dict(plan, **more))


def fault(kind, parameters=None, times=None, times_each=None, when=None, **target):
    when = dict({"from": 0.0, "until": None}, **(when or {}))
    where = dict(TARGET, **target)
    return {kind: parameters or {}, "where": where, "times": times, "times_each": times_each, "when": when}


def parsed(text):
    """Tensors written as `DT_BF16[4,1,8] FLOAT[]`."""
    slots = []
    for word in text.split():
        dtype, _, dims = word.rstrip("]").partition("[")
        slots.append({"dims": [int(dim) for dim in dims.split(",") if dim], "dtype": dtype, "format": "ND"})
    return slots


def case(ordinal, text, values=(), fills=None):
    """A case written as `kernel inputs -> outputs`; `values` are the arguments behind the tensors."""
    kernel, _, sides = text.partition(" ")
    inputs, outputs = (parsed(side) for side in sides.split("->"))
    names = [argument.name for argument in entries.parse(SCHEMAS[kernel][1]).arguments]
    arguments = []
    for name, slot in zip(names, inputs):
        if slot["dims"]:
            dtype = tensors.torch_name(slot["dtype"])
            arguments.append({"name": name, "tensor": {"shape": slot["dims"], "dtype": dtype, "fill": "activation"}})
            arguments[-1]["tensor"].update((fills or {}).get(name, {}))
    arguments += [{"name": name, "value": value} for name, value in values]
    identity = "%016x" % hashes.hash_text("%d %s" % (ordinal, text))
    record = {"inputs": inputs, "outputs": outputs, "flops": 1e6, "bytes": 1e9}
    described = {"ordinal": ordinal, "case": identity, "kernel": kernel, "form": "form", "api": SCHEMAS[kernel][0]}
    return dict(described, shapes="", arguments=arguments, returns=[each["dims"] for each in outputs], record=record)


class SessionTest(unittest.TestCase):
    """A session of a manifest in a folder of its own."""

    def start(self, cases, settings=None):
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(folder)
        os.makedirs("faults")
        os.makedirs("catalogue")
        os.makedirs("launches")
        settings = settings or host()
        manifest = {"collection": 0, "device": 0, "cases": cases}
        for path, text in (("host.json", json.dumps(settings)), ("manifest.json", json.dumps(manifest))):
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        with open("faults/started", "w", encoding="utf-8") as file:
            file.write(str(time.time_ns()))
        for kernel, (api, schema) in SCHEMAS.items():
            sort = kernel == "Sort"
            form = {"name": "form", "runs_as": None, "casts": [1] if sort else [], "destinations": {}, "bits": []}
            entry = {"kernel": kernel, "unit": "cube" if kernel == "MatMulV3" else "vector", "forms": [form]}
            entry.update(also_launches=["Cast"] if sort else [], operators=[{"api": api, "schema": schema}])
            entries._write("catalogue", kernel, entry)
        os.environ["NPUBENCH_REHEARSAL"] = os.path.join(folder, "host.json")
        os.environ["NPUBENCH_REHEARSAL_LAUNCHES"] = os.path.join(folder, "launches")
        os.environ["NPUBENCH_REHEARSAL_STARTED"] = str(START)
        npu._session = None
        torch.npu.set_device(0)
        self.log = npu.session().log
        self.addCleanup(self.log.file.close)
        self.addCleanup(atexit.unregister, npu.session().finalise)

    def open_case(self, ordinal):
        torch.neg(torch.ones([2 * ordinal + 2], dtype=torch.int32, device="npu:0"))

    def launched(self, call):
        """The launches of a call, as `kernel inputs -> outputs`."""
        self.log.flush()
        call()
        launches, self.log.launches = self.log.launches, []
        operations = {known.place: known.operation for known in self.log.known.values()}
        sides = []
        for launch in launches:
            kernel, inputs, outputs = (operations[launch[8]][place] for place in (1, 3, 4))
            shown = [" ".join(tensors.shown(each) + each[2] for each in side if each) for side in (inputs, outputs)]
            sides.append("%s %s -> %s" % (kernel, shown[0], shown[1]))
        return sides

    def refused(self, error, part, call, *args, **kwargs):
        self.log.flush()
        with self.assertRaises(error) as raised:
            call(*args, **kwargs)
        self.assertIn(part, str(raised.exception))
        self.assertEqual(self.log.launches, [], "a refused call leaves no record")


class Calls(SessionTest):
    def test_calls_equal_to_the_manifest_are_recorded_as_by_the_profiler(self):
        cases = [
            case(0, "Add DT_BF16[4,1,8] DT_BF16[8] -> DT_BF16[4,1,8]"),
            case(1, "Mul FLOAT[4,1,8] FLOAT[] -> FLOAT[4,1,8]", [("other", 1.5)]),
            case(2, "RmsNorm DT_BF16[4,1,8] FLOAT[8] -> DT_BF16[4,1,8] FLOAT[4,1,1]", fills={"gamma": {"fill": "ones"}}),
            case(3, "Sort DT_BF16[4,1,8] -> DT_BF16[4,1,8] INT32[4,1,8]", [("dim", -1)]),
        ]
        self.start(cases)
        x = torch.randn([4, 1, 8], dtype=torch.bfloat16, device="npu:0")
        y = torch.randn(8, dtype=torch.bfloat16, device="npu:0")
        single = torch.randn([4, 1, 8], device="npu:0")
        gamma = torch.ones([8], device="npu:0")
        calls = [
            (lambda: torch.add(x, y), ["Add DT_BF16[4,1,8]NCL DT_BF16[8]ND -> DT_BF16[4,1,8]ND"]),
            (lambda: torch.mul(single, 1.5), ["Mul FLOAT[4,1,8]NCL FLOAT[]ND -> FLOAT[4,1,8]ND"]),
            (
                lambda: torch_npu.npu_rms_norm(x, gamma),
                ["RmsNorm DT_BF16[4,1,8]NCL FLOAT[8]ND -> DT_BF16[4,1,8]ND FLOAT[4,1,1]ND"],
            ),
            (
                lambda: torch.sort(x, dim=-1),
                ["Sort DT_BF16[4,1,8]NCL -> DT_BF16[4,1,8]ND INT32[4,1,8]ND", "Cast INT32[4,1,8]ND -> INT64[4,1,8]ND"],
            ),
        ]
        for ordinal, (call, expected) in enumerate(calls):
            self.open_case(ordinal)
            self.assertEqual(self.launched(call), expected)
        self.assertEqual(torch.sort(x, dim=-1)[1].dtype, torch.int64)

    def test_calls_that_differ_from_the_manifest_are_refused_with_the_argument(self):
        cases = [
            case(0, "MatMulV3 DT_BF16[64,128] DT_BF16[32,128] -> DT_BF16[64,32]", fills={"mat2": {"transposed": True}}),
            case(1, "RmsNorm DT_BF16[64,128] DT_BF16[128] -> DT_BF16[64,128] FLOAT[64,1]", fills={"gamma": {"fill": "ones"}}),
            case(2, "SwiGlu DT_BF16[64,128] -> DT_BF16[64,64]", [("dim", -1)]),
            case(
                3,
                "GatherV2 DT_BF16[64,128] INT32[3,2] -> DT_BF16[3,2,128]",
                fills={"indices": {"fill": "index", "below": 64}},
            ),
            case(4, "Mul FLOAT[64,128] FLOAT[] -> FLOAT[64,128]", [("other", 1.5)]),
        ]
        self.start(cases)
        place = {"dtype": torch.bfloat16, "device": "npu:0"}
        x, weight = torch.randn([64, 128], **place), torch.randn([32, 128], **place)
        single, gamma = torch.randn([64, 128], device="npu:0"), torch.ones([128], **place)
        blank, cpu = torch.empty([64, 128], **place), torch.randn([64, 128], dtype=torch.bfloat16)
        other, noise = torch.ones([128], dtype=torch.bfloat16, device="npu:1"), torch.randn([128], **place)
        beyond = torch.randint(0, 65, [3, 2], dtype=torch.int32).to("npu:0")
        self.refused(RuntimeError, "outside the sentinels of a case", torch.mm, x, weight.t())
        swiglu, norm = torch_npu.npu_swiglu, torch_npu.npu_rms_norm
        wrong = [
            (0, RuntimeError, "`mat2`: the manifest has a transposed view", torch.mm, (x, weight), {}),
            (0, TypeError, "argument 'mat2' (position 2) must be Tensor, not float", torch.mm, (x, 2.0), {}),
            (0, TypeError, '"mat2"', torch.mm, (x,), {}),
            (0, RuntimeError, "MatMulV3 of the case is launched by torch.mm", swiglu, (x,), {}),
            (1, RuntimeError, "has values in [1, 1], the call has values that are not known", norm, (x, noise), {}),
            (1, TypeError, "unexpected keyword argument 'eps'", norm, (x, gamma), {"eps": 1e-5}),
            (1, RuntimeError, "`epsilon`: the manifest has no such argument", norm, (x, gamma), {"epsilon": 1e-5}),
            (1, RuntimeError, "on the same device", norm, (x, other), {}),
            (2, RuntimeError, "`dim`: the manifest has -1, the call has 0", swiglu, (x,), {"dim": 0}),
            (2, RuntimeError, "`dim`: the manifest has -1, the call has None", swiglu, (x,), {}),
            (2, RuntimeError, "`input`: the values are uninitialised", swiglu, (blank, -1), {}),
            (2, RuntimeError, "bfloat16[64,128] on the host", swiglu, (cpu, -1), {}),
            (3, RuntimeError, "values in [0, 63], the call has values in [0, 64]", torch.embedding, (x, beyond), {}),
            (4, RuntimeError, "`other`: the manifest has 1.5, the call has 2.5", torch.mul, (single, 2.5), {}),
            (4, AttributeError, "module 'torch_npu' has no attribute 'npu_nothing'", torch_npu.npu_nothing, (x,), {}),
        ]
        for ordinal, error, part, call, args, kwargs in wrong:
            self.open_case(ordinal)
            self.refused(error, part, call, *args, **kwargs)

    def test_helpers_are_recorded_as_on_a_device(self):
        self.start([])
        generator = torch.Generator(device="npu:0")
        half = {"dtype": torch.bfloat16, "device": "npu:0"}
        made = self.launched(lambda: torch.randn([8, 8], generator=generator, **half))
        self.assertEqual(made, ["DSARandomNormal  -> FLOAT[8,8]ND", "Cast FLOAT[8,8]ND -> DT_BF16[8,8]ND"])
        made = self.launched(lambda: torch.arange(5, device="npu:0"))
        self.assertEqual(made, ["Range DOUBLE[]ND DOUBLE[]ND DOUBLE[]ND -> INT64[5]ND"])
        self.assertEqual(self.launched(lambda: torch.tensor([1, 2], device="npu:0")), [])
        wrong = {"device": "npu:0", "generator": torch.Generator()}
        self.refused(RuntimeError, "generator", torch.randn, [8], **wrong)
        unsigned = {"device": "npu:0", "dtype": torch.uint8}
        self.refused(RuntimeError, "out of bounds", torch.randint, -8, 8, [4], **unsigned)

    def test_memory_is_freed_with_the_last_view(self):
        self.start([])
        self.refused(RuntimeError, "107001", torch.npu.set_device, 2)
        half = {"dtype": torch.bfloat16, "device": "npu:0"}
        first = torch.empty([20 << 30], **half)
        view = first.narrow(0, 1, 2)
        message = "NPU out of memory. Tried to allocate 40.00 GiB"
        self.refused(torch.OutOfMemoryError, message, torch.empty, [20 << 30], **half)
        first = None
        self.refused(torch.OutOfMemoryError, message, torch.empty, [20 << 30], **half)
        view = None
        self.assertEqual(len(torch.empty([20 << 30], **half)), 20 << 30)
        # 14 GiB of INT8 need 56 GiB more while random numbers are converted.
        small = {"dtype": torch.int8, "device": "npu:0"}
        self.refused(torch.OutOfMemoryError, "Tried to allocate 70.00 GiB", torch.randint, -8, 8, [14 << 30], **small)

    def test_parts_of_vectors_are_filled_in_order(self):
        self.start([])
        whole, chunk = (torch.empty([16], device="npu:0"), torch.ones([4], device="npu:0"))
        self.refused(RuntimeError, "in order", whole.narrow(0, 8, 4).copy_, chunk)
        for start in (0, 4, 8, 12):
            self.assertEqual(whole.known_values()[0], "uninitialised")
            self.assertEqual(self.launched(lambda: whole.narrow(0, start, 4).copy_(chunk)), [])
        self.assertEqual(whole.known_values(), ("between", (1, 1)))
        self.assertEqual(whole.view([4, 4]).shape, (4, 4))
        self.refused(RuntimeError, "invalid", whole.view, [3, 4])

    def test_steady_durations_repeat_after_every_sentinel(self):
        text = "SwiGlu DT_BF16[512,8192] -> DT_BF16[512,4096]"
        self.start([case(0, text, [("dim", -1)]), case(1, text, [("dim", -1)])])
        x = torch.randn([512, 8192], dtype=torch.bfloat16, device="npu:0")
        durations = []
        for ordinal in (0, 1):
            self.open_case(ordinal)
            self.log.flush()
            for _ in range(5):
                torch_npu.npu_swiglu(x, -1)
            launches, self.log.launches = self.log.launches, []
            self.assertTrue(all(launch[3] % 20 == 0 for launch in launches))
            pairs = zip(launches, launches[1:])
            self.assertTrue(all(two[3] >= one[3] + one[4] for one, two in pairs))
            durations.append([launch[4] for launch in launches])
        self.assertEqual(durations[0], durations[1])
        self.assertGreater(len(set(durations[0])), 1)


class Journal:
    def note(self, **record):
        raise AssertionError(record)


class Controls(SessionTest):
    """Products of a collection without cases, as the script launches them to settle the clock."""

    SHAPES = [[4096, 4096], [4096, 4096]]
    LIMITS = {"tolerance": 0.02, "steady_ms": 10.0, "most_ms": 50.0, "first_ms": 100.0, "excess": 0.04}

    def prepare(self, model="steady"):
        self.start([], dict(host(), model=model))
        self.tensors = [self.tensor({"shape": shape, "dtype": "float16"}) for shape in self.SHAPES]
        torch.npu.synchronize()

    def tensor(self, spec):
        return torch.ones(spec["shape"], dtype=getattr(torch, spec["dtype"]), device="npu:0")

    def events(self, actions):
        """Times in microseconds of an event before the first and behind each action."""
        found = []
        for action in [lambda: None, *actions]:
            action()
            found.append(torch.npu.Event(enable_timing=True))
            found[-1].record()
        return [1e3 * found[0].elapsed_time(each) for each in found[1:]]

    def test_an_idle_device_waits_for_the_host_and_queued_tasks_follow_each_other(self):
        self.prepare()
        product = lambda: torch.mm(*self.tensors)
        first, second = self.events([product, product])
        durations = [launch[4] / 1e3 for launch in self.log.launches[-2:]]
        self.assertTrue(12 <= first - durations[0] < 60, (first, durations))
        # The second is in the queue before the first has ended.
        self.assertTrue(0 <= second - first - durations[1] < 2, (first, second, durations))
        # The host that has waited for the device launches from then on.
        torch.npu.synchronize()
        self.assertTrue(12 <= self.events([product])[0] - self.log.launches[-1][4] / 1e3 < 60)

    def test_calls_of_the_host_take_as_long_as_in_the_recorded_step(self):
        self.prepare()
        times = []
        for _ in range(20000):
            before = self.log.host_time
            self.log.call()
            times.append((self.log.host_time - before) / 1e3)
        times.sort()
        self.assertEqual((times[0], times[-1], max(each for each in times if each < 700)), (12, 713, 54))
        self.assertAlmostEqual(statistics.mean(each for each in times if each < 700), 17.0, delta=0.5)
        self.assertAlmostEqual(statistics.pstdev(each for each in times if each < 700), 5.0, delta=0.5)

    def settler(self):
        """The settler of the script, which is replaced as little as possible."""
        with open(SCRIPT, encoding="utf-8") as file:
            text = file.read()
        calls, settler = (text[text.index(name) :] for name in ("CONTROL_CALLS =", "class ClockSettler:"))
        names = {"torch": torch, "statistics": statistics, "collections": collections, "describe": str}
        exec(calls[: calls.index("class ")] + settler[: settler.index("\n\n\n")], names)
        kernel = {"api": "torch.mm", "tensors": self.SHAPES, "dtype": "float16"}
        return names["ClockSettler"](self, {"controls": {"kernels": [kernel], "settling": self.LIMITS}}, Journal())

    def settled(self, settler, cases, slowness):
        """The launches before each case and what the settler says of each, while calls of the host take longer by a factor."""
        log = self.log
        log.host_slowness = slowness
        found = []
        for _ in range(cases):
            log.busy_since_idle, before = 0, log.streams[0][1]
            found.append((settler.settle(), log.streams[0][1] - before))
            # The device is idle while the next case is prepared.
            torch.npu.synchronize()
            log.host_time += 2000000
        return found

    def test_a_settled_clock_costs_few_launches_however_late_the_host_is(self):
        for model in ("steady", "lifelike"):
            self.prepare(model)
            settler = self.settler()
            settler.settle()
            # At first the host is quiet, then others use it, and then it is quiet again.
            for slowness in (1.0, 3.0, 10.0, 1.0):
                found = self.settled(settler, 100, slowness)
                self.assertEqual([(case, said) for case, (said, _) in enumerate(found) if said is not None], [], slowness)
                self.assertLess(statistics.mean(count for _, count in found), 5.5, (model, slowness))

    def test_a_clock_that_fell_is_found_however_late_the_host_is(self):
        for milliseconds in (3, 70):
            for slowness in (1.0, 10.0):
                self.prepare()
                self.log.idle_clock = {"factor": 1.2, "milliseconds": milliseconds}
                settler = self.settler()
                settler.settle()
                for said, count in self.settled(settler, 20, slowness):
                    if milliseconds == 3:
                        # It rises, for which the device must work.
                        self.assertTrue(said is None and 10 <= count <= 20, (said, count))
                    else:
                        self.assertAlmostEqual(said, 0.2, delta=0.02)


class Durations(unittest.TestCase):
    def model(self, name, number=0, **noise):
        settings = host(noise=dict(NOISE, **noise))
        return timing.Model(dict(settings, model=name), number)

    def test_durations_are_pinned(self):
        # Rehearsed databases are compared byte for byte: a change here is a change of the model.
        operation = tensors.Operation("x", "RmsNorm", tensors.VECTOR, (), (), 1e6, 1e10, "vector", "DT_BF16")
        base = timing.base(PROFILE, operation)
        found = [base]
        for name in ("steady", "lifelike"):
            model = self.model(name)
            variation = model.variation(11, 0, 3, 9)
            found.append(timing.rounded(model.varied(float(base), variation, 11, 0, 9)))
        self.assertEqual(found, [9160700, 9157340, 9189460])

    def test_offsets_of_collections_have_their_deviation(self):
        means = []
        for number in range(300):
            model = self.model("lifelike", number, collection=0.0, offset=2.0, launch=[0.02, 0.02])
            means.append(statistics.mean(model.varied(1e6, 0, 1, 1, number) / 1e6 - 1.0 for number in range(10, 40)))
        self.assertLess(abs(statistics.mean(means)), 0.01)
        self.assertLess(abs(statistics.stdev(means) / 0.04 - 1.0), 0.15)

    def test_signatures_of_products_do_not_depend_on_the_orientation(self):
        def seed(left, right):
            inputs = (tensors.tensor(left, "DT_BF16"), tensors.tensor(right, "DT_BF16"))
            output = tensors.tensor((16, 32), "DT_BF16")
            return tensors.signature_seed(tensors.plain_operation("x", "MatMulV2", inputs, output))

        self.assertEqual(seed((16, 64), (32, 64)), seed((64, 16), (64, 32)))
        self.assertNotEqual(seed((16, 64), (32, 64)), seed((16, 65), (32, 65)))


class Faults(SessionTest):
    def faults(self, plan, collection=1, device=0, count=6):
        os.makedirs("faults", exist_ok=True)
        cases = [
            {"case": "%016x" % number, "ordinal": number - 10, "kernel": "AddMul"[number % 2 * 3 :][:3]}
            for number in range(10, 10 + count)
        ]
        for case_ in cases:
            case_["shapes"] = "%d,64;64 -> 1" % (case_["ordinal"] + 10)
        settings = dict(host(faults=plan), devices=16)
        return faults.Faults(settings, os.getcwd(), {"collection": collection, "device": device, "cases": cases})

    def selected(self, plan, collection=7, device=3):
        found = self.faults(plan, collection, device)
        return [10 + ordinal for ordinal in range(6) if found.for_case(ordinal)]

    def test_all_conditions_of_a_target_must_hold(self):
        self.start([])
        everything = list(range(10, 16))
        for target, expected in [
            ({}, everything),
            ({"kernel": ["Add"]}, [10, 12, 14]),
            ({"kernel": ["Add", "Mul"], "ordinal": [0, 5]}, [10, 15]),
            ({"case": ["0000"], "every": 4}, [13]),
            ({"shapes": ["11,64; 64"]}, [11]),
            ({"shapes": ["12,64", "13"]}, [12]),
            ({"devices": [3], "collections": [6, 7], "kernel": ["Mul"], "ordinal": [1]}, [11]),
            ({"devices": [0, 4]}, []),
            ({"collections": [6]}, []),
        ]:
            self.assertEqual(self.selected([fault("hang", **target)]), expected, target)

    def test_firings_are_counted_across_processes(self):
        self.start([])
        plan = [fault("hang", times=3)]
        fired = [sum(bool(self.faults(plan).for_case(ordinal)) for ordinal in (0, 1)) for _ in range(3)]
        self.assertEqual(fired, [2, 1, 0])

    def test_faults_of_devices_hold_during_their_time_window(self):
        self.start([])
        with open("faults/started", "w", encoding="utf-8") as file:
            file.write(str(time.time_ns() - 10_000_000_000))
        windows = [({"from": 5.0}, 1, True), ({"from": 500.0}, 1, False), ({"until": 9.0}, 1, False), ({}, 0, False)]
        for when, device, holds in windows:
            found = self.faults([fault("device_lost", devices=[1, 2], when=when)])
            self.assertEqual("device_lost" in found.of_device(device), holds, when)

    def test_share_of_selected_cases_equals_the_probability(self):
        self.start([])
        found = self.faults([fault("hang")])
        target = dict(TARGET, probability=0.02)
        drawn = [subject for subject in range(4000) if found._is_drawn(0, target, hashes.mix(subject), 1)]
        self.assertTrue(50 <= len(drawn) <= 110, len(drawn))


class Values(unittest.TestCase):
    def test_runs_behave_as_the_lists_of_their_elements(self):
        draw = random.Random(3)
        for _ in range(300):
            period = tuple(draw.randrange(3) for _ in range(1 + draw.randrange(3)))
            one = [(7, period, draw.randrange(len(period)))]
            other = values.joined([values.part_of(one, 1, 3), [(4, period, 0)]])
            a, b = values.to_list(one, 99), values.to_list(other, 99)
            self.assertEqual(values.equals(one, other), a == b)
            self.assertEqual(values.to_list(values.sum_of([one, other]), 99), [x + y for x, y in zip(a, b)])
            self.assertEqual(values.to_list(values.part_of(other, 2, 4), 99), b[2:6])
            changed = values.replaced(one, 4, values.part_of(other, 0, 3))
            self.assertEqual(values.to_list(changed, 99), a[:4] + b[:3])

    def test_one_wrong_element_of_a_long_message_is_found(self):
        long = values.joined([values.from_list(list(range(251)))] * 1000)
        self.assertEqual(len(long), 1)
        self.assertFalse(values.equals(long, values.replaced(long, 123456, values.constant(7, 1))))


class Msprof(unittest.TestCase):
    def test_command_lines(self):
        self.assertEqual(msprof.parse(["--output=/x", "python3", "a.py", "--b=c"])[1], ["python3", "a.py", "--b=c"])
        self.assertEqual(msprof.parse(["--export=on", "--output=/x"])[0]["output"], "/x")
        wrong = ["--aic-metrics=none", "--ai-core=maybe", "--task-time=l2", "--outptu=x", "--output", "--output=a;b"]
        for word in wrong + ["--export=on"]:
            with self.assertRaises(msprof.WrongOption) as raised:
                msprof.parse([word, "app"])
            self.assertIn(word.lstrip("-").split("=")[0], str(raised.exception))

    def test_cells_are_formatted_as_the_real_ones(self):
        inputs = (tensors.tensor((4, 1, 8), "DT_BF16", "NCL"), tensors.tensor((), "DT_BF16"))
        output = tensors.tensor((4, 1, 8), "DT_BF16")
        operations = [
            tensors.Operation("aclnnMuls_Mul_Mul", "Mul", task, inputs, (output,), 0.0, 0.0, "vector", "DT_BF16")
            for task in (tensors.VECTOR, tensors.RANDOM)
        ]
        launches = [(0, 3, 3, START - 10 + 7460 * at, 2460, 1.0, 1.0, False, at) for at in (0, 1)]
        clocks = tables.clocks_of(PROFILE, launches, True, (START - 5000, START + 9_000_000_000))
        written = tables.tables(PROFILE, operations, launches, "PipeUtilization", True, clocks, 3)
        header, first, second = written["op_summary"].splitlines()
        self.assertEqual(len(header.split(",")), 46)
        expected = (
            "0,4294967295,3,2,rehearsal_aclnnMuls_Mul_Mul,Mul,dynamic,AI_VECTOR_CORE,1764246877073569.640\t,2.460,0,1,0,NO,"
            '"""4,1,8;""",DT_BF16;DT_BF16,NCL;ND,"""4,1,8""",DT_BF16,ND,N/A,0.0,0,'
        )
        self.assertTrue(first.startswith(expected), first)
        self.assertTrue(second.endswith(",N/A" * 26), second)
        self.assertIn("\nhost,node,launch,30,3,10,10,10,0\n", written["api_statistic"])
        bare = tables.tables(PROFILE, operations, launches[:1], "Disabled", False, clocks, 1)["op_summary"].splitlines()[1]
        self.assertTrue(bare.endswith("N/A,dynamic,N/A,1764246877073569.640\t,2.460,0,0,0" + ",N/A" * 8), bare)
        far = [launch[:3] + (5_000_000,) + launch[4:] for launch in launches]
        rows = tables.is_sorted([(device,) + launch[1:] for device, launch in zip((2, 10), far)])
        self.assertEqual([row[0] for row in rows], [10, 2], "rows are sorted as text")

    def test_time_of_the_cores_follows_the_track_at_the_end_of_the_task(self):
        output = tensors.tensor((4, 1, 8), "DT_BF16")
        operations = [tensors.Operation("a", "Mul", tensors.VECTOR, (output,), (output,), 0.0, 0.0, "vector", "DT_BF16")]
        # The clock rises in the first 3 ms; the last launch is throttled and takes twice as long.
        starts = ((0, 1.0), (5_000_000, 1.0), (5_100_000, 2.0))
        launches = [(7, at, 3, START + start, int(20_000 * slow), slow, slow, False, 0) for at, (start, slow) in enumerate(starts)]
        clocks = tables.clocks_of(PROFILE, launches, True, (START - 5000, START + 9_000_000))
        rated = PROFILE["clock_mhz"]
        expected = [(START - 5000, 800), (START + 3_000_000, rated), (START + 5_100_000, rated // 2), (START + 9_000_000, rated // 2)]
        self.assertEqual(clocks, {7: expected})
        lines = tables.tables(PROFILE, operations, launches, "PipeUtilization", True, clocks, 3)["op_summary"].splitlines()
        names = lines[0].split(",")
        cells = [dict(zip(names[-12:], line.split(",")[-12:])) for line in lines[1:]]
        times = [float(each["aiv_time(us)"]) for each in cells]
        cycles = [float(each["aiv_total_cycles"]) for each in cells]
        for time, of_blocks, mhz in zip(times, cycles, (800, rated, rated // 2)):
            self.assertAlmostEqual(of_blocks / time / mhz, cycles[1] / times[1] / rated, delta=1e-3 * cycles[1] / times[1] / rated)
        events = json.loads(tables.clock_events(PROFILE, clocks))
        labels = [event["args"]["labels"] for event in events if event["name"] == "process_labels"]
        self.assertEqual((labels, len({event["pid"] for event in events})), (["NPU 7"], 1))

    def test_raw_data_hold_all_launches_and_the_damage_of_their_faults(self):
        slot = tensors.tensor((4, 8), "DT_BF16")
        operation = tensors.Operation("a", "Mul", tensors.VECTOR, (slot,) * 5, (slot,), 0.0, 0.0, "vector", "DT_BF16")
        launches = [(7, at, 3, START // 20 * 20 + 9000 * at, 2460, 1.0, 1.0, False, 0) for at in range(70_000, 70_004)]
        clocks = tables.clocks_of(PROFILE, launches, True, (START, START + 9_000_000))
        sizes = []
        for faults_of_tables in ([], [("truncated_csv", {"keeps": 0.5}), ("ragged_csv", {"rows": 1}), ("lost_raw_data", {})]):
            with tempfile.TemporaryDirectory() as root:
                msprof.write_folder(root, PROFILE, "0", [7], (START, START), "PipeUtilization", True)
                data = (launches, launches[1:], "PipeUtilization", clocks, faults_of_tables)
                raw.write(root, [7], PROFILE, [operation], *data)
                folder = os.path.join(root, "device_7", "data")
                found = {name: os.path.getsize(os.path.join(folder, name)) for name in os.listdir(folder)}
                folder = os.path.join(root, "host", "data")
                found.update({name: os.path.getsize(os.path.join(folder, name)) for name in os.listdir(folder)})
                sizes.append({name.replace(".data.7", "").replace(".slice_0", ""): size for name, size in found.items()})
        whole, damaged = sizes
        # Behind 65,536 tasks both sides record that their numbers start again.
        self.assertEqual((whole["stars_soc"], whole["ffts_profile"], whole["ts_track"]), (3 * 2 * 64, 3 * 128, 40))
        self.assertEqual((whole["unaging.compact.task_track"], whole["aging.additional.tensor_info"]), (5 * 64, 4 * 2 * 256))
        self.assertEqual((damaged["stars_soc"], damaged["aging.additional.tensor_info"]), (3 * 64 + 20, 7 * 256))
        self.assertEqual(damaged["unaging.additional.context_id_info"] % 256, 20)

    def test_only_the_given_number_of_rows_lacks_a_cell(self):
        table = "a,b,c\n1,2,3\n4,5,6\n7,8,9\n"
        self.assertEqual(corrupt.with_ragged_rows(table, 1), "a,b,c\n1,2,3\n4,5,6\n7,8\n")
        self.assertEqual(corrupt.with_ragged_rows(table, 9), "a,b,c\n1,2\n4,5\n7,8\n")


class Stores(unittest.TestCase):
    def test_ranks_meet_and_share_keys(self):
        import socket
        import threading

        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)
        store.Store(listener)
        links = [store.Link(*listener.getsockname()) for _ in range(2)]
        met = []

        def rank(number):
            arrival = json.dumps({"rank": number}).encode()
            met.append(links[number].ask("meet", 1, number, 2, rest=arrival))
            links[number].ask("set", "key %d" % number, "value")
            met.append(links[number].ask("get", "key %d" % (1 - number)))

        threads = [threading.Thread(target=rank, args=(number,)) for number in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(met.count([{"rank": 0}, {"rank": 1}]), 2)
        self.assertEqual(met.count("value"), 2)
        self.assertEqual([link.ask("check", 7, "call %d" % at) for at, link in enumerate(links)], ["call 0", "call 0"])
        for link in links:
            link.stream.close()


if __name__ == "__main__":
    unittest.main()
