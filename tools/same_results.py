#!/usr/bin/env python3
"""Compares the data output of two versions of npubench, command by command, on the same inputs.

Usage: tools/same_results.py OLD NEW [--shared DIR] [--keep DIR] [--only WORD]

Each version makes its own databases from the same profiles, runs the same rehearsals with the steady model, and
answers the same questions. CSV tables, JSON (its keys sorted) and exit codes must be equal. Times, run ids, folders
and versions are masked. Keys that only NEW has are listed once, as additions. --shared names real profiles.
"""

import argparse
import collections
import csv
import difflib
import gzip
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
DECODER = ROOT / "examples/decoder-layer/kernel_details.csv"
RANKS = ROOT / "examples/decoder_profile"

MASKS = [
    (re.compile(r"\d{8}-\d{6}(?:-[0-9a-f]+)*"), "RUN"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?"), "TIME"),
    (re.compile(r"\b\d\d:\d\d(?::\d\d)?\b"), "CLOCK"),
    (re.compile(r"took \d+ seconds?"), "took SECONDS"),
    (re.compile(r"\d+ collections(?: \(\d+ new\))?"), "COLLECTIONS"),
    (re.compile(r"_\d{14,17}(?:_[A-Z]{16})?"), "_STAMP"),
]
# Values that depend on the time of day, the speed of this machine, or the version.
VOLATILE = re.compile(
    r"(?i)^(age|age_.*|.*_at|time|started|finished|ended|elapsed.*|end|start|host|hostname|owner|pid|version|"
    r"npubench|software|digest|bytes|size|run|runs|last_run|seconds|wall.*|busy.*|idle.*|log|evidence|archive|cpu.*|"
    r"overhead.*|archive_sha256|(at|started|ended)_ns|predicted_end|free.*|until|utili[sz]ation|duration_s|now|date|devices_busy)$"
)


def masked(text, folder):
    text = text.replace(str(folder), "WORK").replace(str(ROOT), "ROOT")
    for pattern, name in MASKS:
        text = pattern.sub(name, text)
    return text


def plain(value, folder):
    if isinstance(value, dict):
        scalar = {key: not isinstance(item, (dict, list)) for key, item in value.items()}
        return {key: "VOLATILE" if VOLATILE.match(key) and scalar[key] or key == "readings" else plain(item, folder)
                for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item, folder) for item in value]
    if isinstance(value, float):
        return float(f"{value:.6g}")
    return masked(value, folder) if isinstance(value, str) else value


def json_lines(text):
    records = []
    for line in text.splitlines():
        if line.strip():
            records.append(json.loads(line))
    return records


def reduced(new, old, added, path=""):
    """`new` without the keys that `old` lacks; their paths are counted in `added`."""
    if isinstance(new, dict) and isinstance(old, dict):
        for key in new.keys() - old.keys():
            added[f"{path}.{key}"] += 1
        return {key: reduced(new[key], old[key], added, f"{path}.{key}") for key in new if key in old}
    if isinstance(new, list) and isinstance(old, list) and len(new) == len(old):
        return [reduced(a, b, added, path + "[]") for a, b in zip(new, old)]
    return new


class Version:
    def __init__(self, program, folder):
        self.program, self.folder = program, folder
        folder.mkdir(parents=True)

    def run(self, arguments):
        environment = {key: value for key, value in os.environ.items() if not key.startswith("NPUBENCH")}
        environment.update(NO_COLOR="1", HOME=str(self.folder), COLUMNS="200")
        done = subprocess.run([self.program, *arguments], cwd=self.folder, env=environment, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=900, check=False)
        return done.returncode, done.stdout, done.stderr

    def tables(self, database):
        found = {}
        for path in sorted((self.folder / database).glob("*.csv")):
            rows = list(csv.reader(io.StringIO(path.read_text(encoding="utf-8"))))
            head = rows[0] if rows else []
            run = [index for index, name in enumerate(head) if name == "MicroBench Run"]
            for row in rows[1:]:
                for index in run:
                    row[index] = "RUN" if index < len(row) and row[index] else ""
            found[path.name] = ["\x1f".join(masked(cell, self.folder) for cell in row) for row in rows]
        return found


def steps(shared, unpacked):
    steady = ["--host", "rehearsal", "--rehearsal-model", "steady", "--seed", "7"]
    yield "ingest", ["ingest", str(DECODER), "--db", "a", "--kind", "rehearsal", "--format", "json"]
    yield "plan", ["plan", "--db", "a", "--devices", "0-1"]
    yield "run", ["run", "--db", "a", *steady, "--devices", "0-1"]
    yield "CSV", "a"
    for name, arguments in {
        "show": ["show"], "show wide": ["show", "--wide"], "runs": ["runs"], "noise": ["noise"],
        "report": ["report"], "why": ["why", "SwiGlu.csv:2"], "db check": ["db", "check"],
        "reparse": ["reparse"], "show filter": ["show", "--filter", "kernel ~ MatMul & median > 1us"],
        "coverage": ["coverage", "--workload", str(DECODER)],
        "coverage model": ["coverage", "--model", "Qwen3-32B", "--tp", "4", "--batch", "64"],
        "grid dry": ["grid", "--models", "Qwen3-32B", "--tp", "4", "--phase", "decode", "--batch", "64", "--dry-run"],
        "grid audit": ["grid", "audit"],
        "query": ["query", "--op", "MatMulV2", "--inputs", "136,5120;5120,768", "--dtypes", "bf16"],
        "query swiglu": ["query", "--op", "SwiGlu", "--inputs", "100,8192", "--dtypes", "bf16"],
        "kernels missing": ["kernels", "--missing", str(DECODER)],
    }.items():
        yield name, [*arguments, "--db", "a", "--format", "json"] if name not in ("report", "kernels missing") else (
            [*arguments, "--db", "a", "--format", "markdown"] if name == "report" else [*arguments, "--format", "json"])
    yield "plan after", ["plan", "--db", "a", "--devices", "0-1"]
    yield "fill dry", ["fill", "--db", "a", "--model", "Qwen3-32B", "--tp", "4", "--batch", "16", "--dry-run",
                       "--host", "rehearsal", "--format", "json"]
    yield "status error", ["status", "--db", "a"]
    yield "grid", ["grid", "--db", "a", "--models", "Qwen3-32B", "--tp", "4", "--phase", "decode", "--batch", "64"]
    yield "run grid", ["run", "--db", "a", *steady, "--devices", "0-3"]
    yield "CSV", "a"
    yield "mutate", ["grid", "--db", "a", "--mutate", "--rows", "20", "--seed", "5"]
    yield "run again", ["run", "--db", "a", *steady, "--devices", "0-3", "--update", "all"]
    yield "CSV", "a"
    yield "coverage after", ["coverage", "--db", "a", "--model", "Qwen3-32B", "--tp", "4", "--batch", "64", "--format", "json"]
    yield "query between", ["query", "--db", "a", "--op", "MatMulV2", "--inputs", "70,5120;5120,768", "--dtypes", "bf16",
                            "--format", "json"]
    yield "diff", ["diff", "a", "a", "--format", "json"]
    yield "copy", ["db", "copy", "a", "copy", "--kind", "rehearsal"]
    yield "CSV", "copy"
    yield "shard", ["shard", "--db", "copy", "--shards", "2"]
    yield "shard run", ["run", "--db", "copy", "--shard", "1/2", *steady, "--devices", "0-1"]
    yield "shard run 2", ["run", "--db", "copy", "--shard", "2/2", *steady, "--devices", "0-1"]
    yield "merge", ["db", "merge", "copy", "--shards"]
    yield "CSV", "copy"
    yield "rebuild", ["db", "rebuild", "copy", "--dry-run"]
    yield "comm run", ["comm", "run", "--db", "comm", *steady, "--devices", "0-3", "--ranks", "2,4", "--from", "1K",
                       "--to", "1M"]
    yield "CSV", "comm"
    for name in ("fit", "validate"):
        yield f"comm {name}", ["comm", name, "--db", "comm", "--format", "json"]
    yield "comm groups", ["comm", "groups", "--device", "ATLAS_800_A3_752T_128G_DIE", "--devices", "0-15", "--format", "json"]
    for name in ("models", "kernels", "rules"):
        yield name, [name, "--format", "json"]
    yield "step", ["models", "DeepSeek-V3", "--tp", "8", "--batch", "16", "--format", "json"]
    yield "render", ["render", "SwiGlu", "--db", "a"]
    yield "manifest", ["render", "MatMulV2", "--db", "a", "--manifest"]
    yield "timeline", ["timeline", str(RANKS), "--format", "json"]
    yield "modules", ["modules", str(RANKS), "--format", "json"]
    yield "compare", ["compare", str(RANKS / "rank0_ascend_pt"), str(RANKS / "rank1_ascend_pt"), "--format", "json"]
    yield "ranks", ["ingest", str(RANKS), "--db", "ranks", "--kind", "rehearsal"]
    yield "CSV", "ranks"
    yield "new-kernel error", ["new-kernel", "NotThere", "--db", "a"]
    yield "filter error", ["show", "--db", "a", "--filter", "kernel ="]
    if not shared:
        return
    real = shared / "real"
    for profile, device in (("llm_step_rank0", "ATLAS_800_A2_313T_64G"), ("cnn_level1_rank0", "ATLAS_800_A2_376T_64G"),
                            ("cnn_db_level1_rank0", "ATLAS_800_A2_376T_64G")):
        for command in ("timeline", "modules"):
            yield f"{command} {profile}", [command, str(real / profile), "--format", "json"]
        yield f"missing {profile}", ["kernels", "--missing", str(real / profile), "--format", "json"]
        yield f"ingest {profile}", ["ingest", str(real / profile), "--db", profile, "--kind", "npu", "--device", device]
        yield "CSV", profile
        yield f"check {profile}", ["db", "check", profile, "--format", "json"]
        yield f"coverage {profile}", ["coverage", "--db", profile, "--workload", str(real / profile), "--format", "json"]
    yield "level 0 error", ["ingest", str(real / "cnn_level0_rank0"), "--db", "none", "--kind", "npu"]
    for trace in sorted((real / "simulator_traces").glob("*.json.gz")):
        plain_trace = pathlib.Path(unpacked) / trace.stem
        plain_trace.write_bytes(gzip.decompress(trace.read_bytes()))
        yield f"coverage {trace.stem}", ["coverage", "--db", "a", "--workload", str(plain_trace), "--format", "json"]
    for name in ("kernel_details_910b_fractal_nz.csv", "op_summary_a2_dsa.csv"):
        yield f"ingest {name}", ["ingest", str(real / "excerpts" / name), "--db", f"x-{name}", "--kind", "npu",
                                 "--device", "ATLAS_800_A2_313T_64G"]
        yield "CSV", f"x-{name}"
    yield "inventory", ["coverage", "--db", "a", "--workload", str(real / "excerpts/ops_qwen3_32b_prefill.json"), "--format",
                        "json"]
    yield "compare real", ["compare", str(real / "llm_step_rank0"), str(real / "llm_step_rank0"), "--format", "json"]


def differences(old, new, limit=12):
    lines = difflib.unified_diff(old, new, "old", "new", lineterm="", n=0)
    return [line[:400] for line in lines][:limit]


def compared(name, step, versions, added):
    """Lines that state the differences of one step."""
    if name == "CSV":
        old, new = (version.tables(step) for version in versions)
        found = [f"only one has {sorted(old.keys() ^ new.keys())}"] if old.keys() != new.keys() else []
        for table in sorted(old.keys() & new.keys()):
            if old[table] != new[table]:
                found += [table, *differences(old[table], new[table], 6)]
        return found
    (code, out, errors), (new_code, new_out, new_errors) = (version.run(step) for version in versions)
    found = []
    if code != new_code:
        found += [f"exit {code}, now {new_code}", *errors.splitlines()[-2:], *new_errors.splitlines()[-3:]]
    try:
        if "json" not in step:
            raise ValueError
        old = [plain(record, versions[0].folder) for record in json_lines(out)]
        new = [plain(record, versions[1].folder) for record in json_lines(new_out)]
        new = [reduced(a, b, added, name) for a, b in zip(new, old)] + new[len(old):]
        old, new = ([json.dumps(record, sort_keys=True, indent=1) for record in records] for records in (old, new))
        old, new = "\n".join(old).splitlines(), "\n".join(new).splitlines()
    except ValueError:
        old, new = (masked(text, version.folder).splitlines() for text, version in zip((out, new_out), versions))
    if old != new:
        found += differences(old, new)
    if code not in (0, 1) and not name.endswith("error"):
        found += [f"exit {code} of both", *errors.splitlines()[-2:]]
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--shared", type=pathlib.Path)
    parser.add_argument("--keep", type=pathlib.Path)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    shared = options.shared.resolve() if options.shared else None
    failed, added = 0, collections.Counter()
    with tempfile.TemporaryDirectory() as temporary:
        base = options.keep.resolve() if options.keep else pathlib.Path(temporary)
        versions = [Version(os.path.abspath(options.old), base / "old"), Version(os.path.abspath(options.new), base / "new")]
        count = 0
        for name, step in steps(shared, temporary):
            if options.only and options.only not in name:
                continue
            count += 1
            found = compared(name, step, versions, added)
            if found:
                failed += 1
                print(f"DIFFERS {name}: {step if isinstance(step, str) else ' '.join(step)}")
                print("\n".join(f"    {line}" for line in found))
    for path, times in sorted(added.items()):
        print(f"added {path} ({times})")
    print(f"{count} steps, {failed} differ")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
