"""The faults that fire, by target and time; their effects are in `injector.py`, `corrupt.py` and `npu_smi.py`."""
import json
import os
import time

from .hashes import MASK, pick_number

# Faults of one case; a crash at exit is a fault of its collection. The faults of DEVICE last for a time window.
CASE = (
    "crash hang out_of_memory device_error error_text ai_cpu_fallback unsteady_kernel renamed_kernel one_core late_rank"
    " wrong_result clock_jump"
).split()
DEVICE = "slow_device slow_kernels idle_clock neighbour throttling device_lost leftover_process".split()
# Keys of a fault besides its kind.
CRITERIA = ("where", "times", "times_each", "when")
HOST = "NPUBENCH_REHEARSAL"


def read_host():
    path = os.environ.get(HOST)
    if path is None:
        raise HostError(
            "`%s` is not set, so there is no rehearsal host here" % HOST,
            "start it through the `collect.sh` of a run with `--host rehearsal`",
        )
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file), os.path.dirname(path)
    except OSError as error:
        raise HostError("cannot read `%s`: %s" % (path, error), "check the folder's permissions and the disk") from None
    except ValueError as error:
        hint = "remove the folder, `npubench run --host rehearsal` makes it anew"
        raise HostError("`%s` is not a rehearsal host's file: %s" % (path, error), hint) from None


class HostError(Exception):
    """A problem of the host, and the corrective action."""


def physical_id(host, device):
    """The host's number of a device that torch counts as `device`."""
    counted = counted_devices(host)
    return counted[device] if counted is not None and device < len(counted) else device


def counted_devices(host):
    """The devices that torch counts inside a container, in its order; None outside of one."""
    container = host["faults"].get("container")
    return container and (container["torch_order"] or container["visible"])


def device_count(host):
    counted = counted_devices(host)
    return host["devices"] if counted is None else len(counted)


def scope(fault):
    (kind, parameters), = ((key, value) for key, value in fault.items() if key not in CRITERIA)
    if kind == "crash" and parameters["at"] == "exit":
        return kind, parameters, "collection"
    return kind, parameters, "case" if kind in CASE else "device" if kind in DEVICE else "collection"


class Faults:
    def __init__(self, host, folder, manifest=None):
        plan = host["faults"]
        manifest = manifest or {}
        self.speed = plan["speed"]
        self.seed = host["seed"] if plan.get("seed") is None else plan["seed"]
        self.faults = [(index, fault) + scope(fault) for index, fault in enumerate(plan["faults"])]
        self.of_devices = [each for each in self.faults if each[4] == "device"]
        self.folder = os.path.join(folder, "faults")
        with open(os.path.join(self.folder, "started"), encoding="utf-8") as file:
            self.started = int(file.read())
        self.collection = manifest.get("collection", 0)
        self.logical_id = manifest.get("device", 0)
        self.device = physical_id(host, self.logical_id) if manifest else 0
        self.cases = manifest.get("cases", [])
        self.rank = 0

    def now(self):
        """Simulated seconds since the start of the host."""
        return max(time.time_ns() - self.started, 0) / 1e9 * self.speed

    def for_case(self, ordinal):
        case = next((case for case in self.cases if case["ordinal"] == ordinal), None)

        def subject(index, fault, parameters):
            target = fault["where"]
            fires = (
                selects(target, case)
                and parameters.get("rank", self.rank) == self.rank
                and (target["every"] is None or (ordinal + 1) % target["every"] == 0)
                and self._matches_collection(target)
                and self._is_drawn(index, target, int(case["case"], 16), self.device)
            )
            return case["case"] if fires else None

        return [] if case is None else self._fire("case", subject)

    def for_collection(self):
        # The same set of cases has the same faults in any order.
        cases = sum(int(case["case"], 16) for case in self.cases) & MASK

        def subject(index, fault, _):
            target = fault["where"]
            selects_all = not any(target[key] for key in ("kernel", "case", "shapes", "ordinal"))
            fires = (
                (selects_all or any(selects(target, case) for case in self.cases))
                and (target["every"] is None or self.collection % target["every"] == 0)
                and self._matches_collection(target)
                and self._is_drawn(index, target, cases, self.device)
            )
            return "%016x" % cases if fires else None

        return self._fire("collection", subject)

    def of_device(self, device):
        state, now = {}, self.now() if self.of_devices else 0.0
        for index, fault, kind, parameters, _ in self.of_devices:
            target, window = fault["where"], fault["when"]
            if not holds(window, now) or target["devices"] and device not in target["devices"]:
                continue
            if not self._is_drawn(index, target, 0, device):
                continue
            if kind == "leftover_process" and parameters["seconds"] is not None:
                if now >= window["from"] + parameters["seconds"]:
                    continue
            state[kind] = parameters
        return state

    def _fire(self, of_scope, subject):
        now, fired = self.now(), []
        for index, fault, kind, parameters, own_scope in self.faults:
            if own_scope == of_scope and holds(fault["when"], now):
                found = subject(index, fault, parameters)
                if found is not None and self._count_firing(index, fault, found):
                    fired.append((kind, parameters))
        return fired

    def _count_firing(self, index, fault, subject):
        each = fault["times_each"] is None or self._count("%d.%s" % (index, subject), fault["times_each"])
        return each and (fault["times"] is None or self._count("%d.all" % index, fault["times"]))

    def _count(self, name, limit):
        """Counts a firing, or returns False once `limit` were counted. A file is created exclusively, so that processes at the
        same time never count one firing twice."""
        for number in range(limit):
            try:
                path = os.path.join(self.folder, "%s.%d" % (name, number))
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
                return True
            except OSError:
                pass  # Counted before; in a folder that cannot be written the fault does not fire.
        return False

    def _matches_collection(self, target):
        return (not target["devices"] or self.device in target["devices"]) and (
            not target["collections"] or self.collection in target["collections"]
        )

    def _is_drawn(self, index, target, subject, device):
        if target["probability"] is None:
            return True
        subject = 0 if target["drawn_by"] == "device" else subject
        device = 0 if target["drawn_by"] == "case" else device + 1
        return float(pick_number([self.seed, index, subject, device], 1 << 53)) < target["probability"] * (1 << 53)


def holds(window, now):
    return now >= window["from"] and (window["until"] is None or now < window["until"])


def selects(target, case):
    """Returns True if a target selects the case; a target without criteria selects all."""
    inputs = case.get("shapes", "").split(" -> ")[0]
    slots = inputs.split(";")
    wanted = [shape.replace(" ", "").replace('"', "") for shape in target["shapes"]]
    return (
        (not target["kernel"] or case["kernel"] in target["kernel"])
        and (not target["case"] or case["case"].startswith(tuple(target["case"])))
        and (not wanted or any(shape == inputs or shape in slots for shape in wanted))
        and (not target["ordinal"] or case["ordinal"] in target["ordinal"])
    )
