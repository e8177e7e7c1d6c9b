#!/usr/bin/env python3
"""Counts how names and comments of `src` follow docs/style.md; test code is left out.

Usage: tools/style_report.py [--check] [--list KIND]

--check ends with status 1 if a limit is exceeded. --list prints the places behind one figure:
types, shared, docs, verbs, functions, modules.
"""

import argparse
import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"

# Limits of the figures in percent or, for verbs and modules, as a count.
LIMITS = {"types": 25.0, "shared": 5.0, "docs": 8.0, "verbs": 0, "modules": 0}
LARGEST_MODULE = 6000
# One file per command without logic: its size is that of the command line.
WITHOUT_LIMIT = {"cli"}

TYPE = re.compile(r"^\s*(?:pub(?:\([^)]*\))?\s+)?(?:struct|enum|trait|union)\s+(\w+)")
FUNCTION = re.compile(
    r"^\s*(?:pub(?:\([^)]*\))?\s+)?(?:const\s+)?(?:async\s+)?(?:unsafe\s+)?fn\s+(\w+)"
)
VERBS = re.compile(
    r"(?<![A-Za-z])(says?|said|saying|tells?|told|telling|asks?|asked|asking|speaks?|spoke|spoken|speaking)(?![a-z])"
)


def without_tests(text):
    """Lines of a file as (number, text), items behind #[cfg(test)] left out."""
    lines = text.split("\n")
    kept, index = [], 0
    while index < len(lines):
        if lines[index].strip().startswith("#[cfg(test)]"):
            index += 1
            depth, opened = 0, False
            while index < len(lines):
                code = re.sub(r"//.*|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])'", "", lines[index])
                depth += code.count("{") - code.count("}")
                opened = opened or "{" in code
                index += 1
                if (opened and depth <= 0) or (not opened and code.rstrip().endswith(";")):
                    break
            continue
        kept.append((index + 1, lines[index]))
        index += 1
    return kept


def source_files():
    for path in sorted(SOURCE.rglob("*.rs")):
        if path.name == "tests.rs" or "tests" in path.relative_to(SOURCE).parts:
            continue
        yield path, without_tests(path.read_text(encoding="utf-8"))


def words_of_type(name):
    return re.findall(r"[A-Z][a-z0-9]*|[A-Z]+(?![a-z])", name)


def collect():
    places = collections.defaultdict(list)
    totals = collections.Counter()
    types = collections.defaultdict(list)
    lines_of_module = collections.Counter()
    for path, lines in source_files():
        relative = path.relative_to(SOURCE)
        lines_of_module[relative.parts[0]] += len(lines)
        before = ""
        for number, line in lines:
            place = f"src/{relative}:{number}"
            if found := TYPE.match(line):
                types[found.group(1)].append(place)
            if found := FUNCTION.match(line):
                totals["functions"] += 1
                if "_" not in found.group(1).strip("_"):
                    places["functions"].append(f"{place}: {found.group(1)}")
            text = line.strip()
            if text.startswith(("///", "//!")) and not before.startswith(text[:3]):
                totals["docs"] += 1
                if re.match(r"(What|Whether|How)\b", text[3:].strip()):
                    places["docs"].append(f"{place}: {text}")
            for found in VERBS.finditer(line.replace("_", " ")):
                places["verbs"].append(f"{place}: {text}")
            before = text
    totals["types"] = totals["shared"] = sum(map(len, types.values()))
    for name, found in sorted(types.items()):
        if len(words_of_type(name)) == 1:
            places["types"] += [f"{place}: {name}" for place in found]
        if len(found) > 1:
            places["shared"] += [f"{place}: {name}" for place in found]
    places["modules"] = [
        f"src/{module}: {count} lines"
        for module, count in lines_of_module.items()
        if count > LARGEST_MODULE and module not in WITHOUT_LIMIT
    ]
    return places, totals, sum(lines_of_module.values())


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--check", action="store_true")
    arguments.add_argument("--list", choices=["types", "shared", "docs", "verbs", "functions", "modules"])
    options = arguments.parse_args()
    places, totals, lines = collect()
    if options.list:
        print("\n".join(places[options.list]))
        return 0
    exceeded = []
    for figure, text in (
        ("types", "type names of one word"),
        ("shared", "types that share their name"),
        ("docs", "doc comments that open with What, Whether or How"),
        ("functions", "function names of one word"),
    ):
        count, total = len(places[figure]), totals[figure]
        share = 100 * count / max(total, 1)
        limit = LIMITS.get(figure)
        print(f"{text}: {count} of {total}, {share:.1f} %" + (f" (limit {limit} %)" if limit else ""))
        if limit is not None and share > limit:
            exceeded.append(text)
    for figure, text in (
        ("verbs", "say, tell, ask or speak"),
        ("modules", f"modules of more than {LARGEST_MODULE} lines"),
    ):
        print(f"{text}: {len(places[figure])} (limit {LIMITS[figure]})")
        if len(places[figure]) > LIMITS[figure]:
            exceeded.append(text)
    print(f"lines of src without tests: {lines}")
    if options.check and exceeded:
        print(f"error: over the limit: {', '.join(exceeded)}\nhint: --list KIND names the places")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
