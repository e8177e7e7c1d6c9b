"""What the catalogue states of the manifest's kernels. npubench writes it as JSON into the folder of the host, the first time
that a collection needs a kernel."""
import json
import os

from .hashes import hash_text
from .schema import parse
from .tensors import element_bytes

# Pairs of kernels: for small and for large products.
PRODUCTS = (("MatMulV2", "MatMulV3"), ("BatchMatMulV2", "BatchMatMulV3"))
# Multiplications for each matrix core from which a product is large, and the least rows and columns of its output. CANN's rule
# is in a library without source; this one is fitted to the 20 products of two public profiles, see docs/rehearsal.md.
LARGE_PRODUCT, LARGE_SIDE = 33554432.0, 128
# Kernels of `torch.cat`: for few tensors, and for many along the first dimension whose rows are a multiple of 32 bytes.
CONCATENATIONS, FEW_TENSORS, ROW_ALIGNMENT = ("ConcatD", "ConcatDV2"), 32, 32


class Entries:
    def __init__(self, host, folder, kernels):
        folder = os.path.join(folder, "catalogue")
        kernels = sorted({kernel for kernel in kernels if not kernel.startswith("hcom_")})
        self.entries = {kernel: _read(folder, kernel) for kernel in kernels}
        missing = [kernel for kernel, entry in self.entries.items() if entry is None]
        if missing:
            import subprocess

            written = subprocess.run([host["program"], "stand-in", "entries"] + missing, stdout=subprocess.PIPE, check=True)
            for kernel, entry in json.loads(written.stdout.decode()).items():
                self.entries[kernel] = entry
                _write(folder, kernel, entry)
        self.entries = {kernel: entry for kernel, entry in self.entries.items() if entry}
        self.other_schemas = {parse(text).name: parse(text) for text in host["faults"].get("schemas", [])}

    def operator(self, kernel, api):
        entry = self.entries.get(kernel)
        operators = entry["operators"] if entry else []
        return entry, next((operator for operator in operators if operator["api"] == api), None)

    def operators(self):
        return [operator for kernel in sorted(self.entries) for operator in self.entries[kernel]["operators"]]

    def has_api(self, api):
        return any(operator["api"] == api for operator in self.operators())

    def installed(self, operator):
        schema = parse(operator["schema"])
        return self.other_schemas.get(schema.name, schema)


def _read(folder, kernel):
    try:
        with open(_path(folder, kernel), encoding="utf-8") as file:
            return json.load(file)
    except OSError:
        return None


def _write(folder, kernel, entry):
    """Collections of several devices may write the same file at once."""
    os.makedirs(folder, exist_ok=True)
    draft = "%s.%d" % (_path(folder, kernel), os.getpid())
    with open(draft, "w", encoding="utf-8") as file:
        json.dump(entry, file)
    os.rename(draft, _path(folder, kernel))


def _path(folder, kernel):
    return os.path.join(folder, "%016x.json" % hash_text(kernel))


def kernel_of_call(entry, form, case, inputs, outputs, cube_cores):
    """Returns the type of the kernel that a call runs on a device with so many matrix cores, where CANN chooses between several.
    Launches outside of graphs are recorded by their type, under whatever name the row of the case was recorded."""
    kernel = form["runs_as"] or entry["kernel"]
    tensors = [each for each in inputs if each is not None]
    for small, large in PRODUCTS:
        if kernel in (small, large):
            is_wide = bool(outputs) and all(side >= LARGE_SIDE for side in outputs[0][0][-2:])
            # A product with a square operand counts as small.
            is_square = any(len(each[0]) >= 2 and each[0][-1] == each[0][-2] for each in tensors)
            is_large = case["record"]["flops"] / 2.0 >= LARGE_PRODUCT * cube_cores
            return large if is_wide and is_large and not is_square else small
    if kernel in CONCATENATIONS:
        return CONCATENATIONS[_has_many_aligned(tensors, outputs)]
    return kernel


def _has_many_aligned(tensors, outputs):
    if not tensors or not outputs:
        return False
    is_along_first = tensors[0][0][:1] != outputs[0][0][:1]
    rows = [(each[0][-1] if each[0] else 1) * (element_bytes(each[1]) or 2) for each in tensors]
    return len(tensors) > FEW_TENSORS and is_along_first and all(row % ROW_ALIGNMENT == 0 for row in rows)
