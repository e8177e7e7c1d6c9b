#!/usr/bin/env python3
"""Builds the files of a release and checks them; docs/releasing.md describes each step.

Usage: tools/release.py [--draft] [--arch ARCH] [--out DIR] [STEP ...]

Without steps, all are carried out in this order: versions, build, wheel, sbom, fresh, root, source, sums.
"""

import argparse
import hashlib
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

PROJECT = pathlib.Path(__file__).resolve().parent.parent
# ARCH: (name of readelf, name of Debian)
ARCHITECTURES = {"x86_64": ("X86-64", "amd64"), "aarch64": ("AArch64", "arm64")}
# Libraries that manylinux2014 allows and a Rust program may need.
LIBRARIES = re.compile(r"(libc|libm|libpthread|libdl|librt|libgcc_s)\.so\.\d|ld-linux-(x86-64|aarch64)\.so\.\d")
LARGEST_GCC = "4.8"
PROFILE = "examples/decoder-layer/kernel_details.csv"
# The main job with the installed program: profile, rehearsal, rows. Prints the verdict of each case as JSON.
JOURNEY = """set -eu
test "$(npubench --version)" = "npubench $1"
npubench ingest kernel_details.csv --db db --kind rehearsal >&2
npubench run --db db --host rehearsal --devices 0-1 >&2
npubench db check db >&2
npubench show --db db --format json
"""
COMPILERS = ("cc", "gcc", "clang", "cargo", "rustc")


class ReleaseError(Exception):
    def __init__(self, message, hint):
        super().__init__(message)
        self.hint = hint


def run_program(arguments, hint="", **options):
    """Runs a program, its output on this terminal unless captured, and returns its standard output."""
    arguments = [str(argument) for argument in arguments]
    print("+ " + " ".join(a if len(a) < 200 else "…" for a in arguments), file=sys.stderr, flush=True)
    try:
        return subprocess.run(arguments, check=True, text=True, **options).stdout
    except FileNotFoundError as error:
        raise ReleaseError(f"`{arguments[0]}` is not installed", hint or f"install {arguments[0]}") from error
    except subprocess.CalledProcessError as error:
        output = (error.stderr or error.stdout or "").strip()[-2000:]
        message = f"`{arguments[0]}` ended with status {error.returncode}" + (f": {output}" if output else "")
        raise ReleaseError(message, hint or "its output is above") from error


def read_version():
    text = (PROJECT / "Cargo.toml").read_text(encoding="utf-8")
    found = re.search(r'^\[package\][^\[]*?^version = "([^"]+)"', text, re.MULTILINE)
    if not found:
        raise ReleaseError("Cargo.toml: no `version` in [package]", "add it, such as version = \"0.1.0\"")
    return found.group(1)


def check_versions(options):
    """The versions of Cargo.toml, Cargo.lock, pyproject.toml and CHANGELOG.md agree, and all changes are committed."""
    version = read_version()
    locked = (PROJECT / "Cargo.lock").read_text(encoding="utf-8")
    if f'name = "npubench"\nversion = "{version}"\n' not in locked:
        raise ReleaseError(f"Cargo.lock: not version {version} of Cargo.toml", "run `cargo build` and commit Cargo.lock")
    metadata = (PROJECT / "pyproject.toml").read_text(encoding="utf-8")
    dynamic = re.search(r"^dynamic = \[([^\]]*)\]", metadata, re.MULTILINE)
    own = re.search(r'^version = "([^"]+)"', metadata, re.MULTILINE)
    if own and own.group(1) != version:
        raise ReleaseError(f"pyproject.toml: version {own.group(1)}, expected {version} as in Cargo.toml", "remove `version` there")
    if not own and not (dynamic and '"version"' in dynamic.group(1)):
        raise ReleaseError("pyproject.toml: no version", "add \"version\" to `dynamic`")
    if options.draft:
        return f"version {version} (draft)"
    changelog = (PROJECT / "CHANGELOG.md").read_text(encoding="utf-8")
    heading = re.search(r"^## (.*)$", changelog, re.MULTILINE)
    found = heading.group(1) if heading else "no heading"
    if not re.fullmatch(re.escape(version) + r" \(\d{4}-\d\d-\d\d\)", found):
        raise ReleaseError(
            f"CHANGELOG.md: the first section is `{found}`, expected `{version} (YYYY-MM-DD)`",
            "rename the section `Unreleased`, or build without a release by --draft",
        )
    changed = run_program(["git", "-C", PROJECT, "status", "--porcelain"], stdout=subprocess.PIPE)
    if changed.strip():
        raise ReleaseError(f"changes without a commit: {changed.strip()[:200]}", "commit them, or use --draft")
    return f"version {version}"


def tools_environment():
    """The variables of an environment with the programs of release-requirements.txt, which is made at first use."""
    requirements = PROJECT / "tools/release-requirements.txt"
    digest = hashlib.sha256(requirements.read_bytes()).hexdigest()[:12]
    folder = PROJECT / "target" / f"release-tools-{digest}"
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        run_program([sys.executable, "-m", "venv", folder])
        hint = "pip needs a package index; PIP_INDEX_URL sets it"
        run_program([folder / "bin/python", "-m", "pip", "install", "--quiet", "-r", requirements], hint)
        (folder / "complete").touch()
    time = run_program(["git", "-C", PROJECT, "log", "-1", "--format=%ct"], stdout=subprocess.PIPE).strip()
    cargo_home = os.environ.get("CARGO_HOME") or pathlib.Path.home() / ".cargo"
    # Without the time and the path of the build, the same commit gives the same files on every host.
    return {
        **os.environ,
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "SOURCE_DATE_EPOCH": time,
        "RUSTFLAGS": f"--remap-path-prefix={cargo_home}=/cargo",
        "CARGO_TARGET_DIR": str(PROJECT / "target" / "release-build"),
    }


def build_wheels(options):
    """The source distribution, and from it a wheel for each architecture, linked by zig to glibc 2.17."""
    environment = tools_environment()
    for old in files_of_release(options):
        old.unlink()
    for number, arch in enumerate(options.arch):
        target = f"{arch}-unknown-linux-gnu"
        command = ["maturin", "build", "--release", "--locked", "--zig", "--target", target, "--out", options.out]
        hint = f"the output is above; a missing crate `std` or `core` needs `rustup target add {target}`"
        run_program(command + (["--sdist"] if number == 0 else []), hint, cwd=PROJECT, env=environment)
    return ", ".join(path.name for path in files_of_release(options))


def files_of_release(options):
    patterns = ("npubench-*.whl", "npubench-*.tar.gz", "npubench-*.cdx.json")
    return sorted(path for pattern in patterns for path in options.out.glob(pattern))


def wheels_of_release(options):
    """The wheels by architecture."""
    found = {}
    for arch in options.arch:
        paths = list(options.out.glob(f"npubench-*_{arch}.whl"))
        if len(paths) != 1:
            raise ReleaseError(f"{options.out}: {len(paths)} wheels for {arch}, expected one", "run the step `build`")
        found[arch] = paths[0]
    return found


def version_tuple(text):
    return tuple(int(part) for part in text.split("."))


def newer_symbols(program, glibc):
    """Requirements of an ELF file that a host with this glibc does not meet, and libraries that it may lack."""
    environment = {**os.environ, "LC_ALL": "C"}

    def read_elf(*arguments):
        return run_program(
            ["readelf", "--wide", *arguments, program], "install binutils", env=environment, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE)

    needs = read_elf("--version-info").partition(".gnu.version_r")[2]
    problems = []
    for name in sorted(set(re.findall(r"Name: (\S+)", needs))):
        library, _, number = name.partition("_")
        limit = {"GLIBC": glibc, "GCC": LARGEST_GCC}.get(library)
        if limit is None or not re.fullmatch(r"\d+(\.\d+)*", number) or version_tuple(number) > version_tuple(limit):
            symbols = sorted(set(re.findall(rf"(\w+)@+{re.escape(name)}\b(?!\.)", read_elf("--dyn-syms"))))
            problems.append(name + (f" ({', '.join(symbols[:5])})" if symbols else ""))
    libraries = re.findall(r"\(NEEDED\)\s+Shared library: \[([^\]]+)\]", read_elf("--dynamic"))
    problems += [library for library in libraries if not LIBRARIES.fullmatch(library)]
    return problems, read_elf("--file-header")


def check_wheel(path, arch, options):
    version = read_version()
    with zipfile.ZipFile(path) as wheel, tempfile.TemporaryDirectory() as folder:
        names = wheel.namelist()
        information = f"npubench-{version}.dist-info"
        program = f"npubench-{version}.data/scripts/npubench"
        sbom = f"{information}/sboms/npubench.cyclonedx.json"
        licences = [f"{information}/licenses/LICENSE-{name}" for name in ("MIT", "APACHE")]
        required = [program, sbom, *licences, f"{information}/METADATA", f"{information}/RECORD", f"{information}/WHEEL"]
        missing = [name for name in required if name not in names]
        foreign = [name for name in names if name not in required]
        if missing or foreign:
            raise ReleaseError(f"{path.name}: missing {missing}, not expected {foreign}", "see pyproject.toml; run the step `build`")
        mode = wheel.getinfo(program).external_attr >> 16
        if mode & 0o777 != 0o755:
            raise ReleaseError(f"{path.name}: mode {mode & 0o777:o} of {program}, expected 755", "run the step `build`")
        found = re.search(r"^Version: (.*)$", wheel.read(f"{information}/METADATA").decode(), re.MULTILINE)
        if not found or found.group(1) != version:
            raise ReleaseError(f"{path.name}: METADATA has {found and found.group(0)}, expected {version}", "run the step `build`")
        binary = pathlib.Path(wheel.extract(program, folder))
        if binary.read_bytes()[:4] != b"\x7fELF":
            raise ReleaseError(f"{path.name}: {program} is not an ELF file", "run the step `build`")
        problems, header = newer_symbols(binary, options.glibc)
        machine = ARCHITECTURES[arch][0]
        if not re.search(rf"Machine:.*{machine}", header):
            raise ReleaseError(f"{path.name}: {program} is not for {arch}", "run the step `build`")
        if problems:
            raise ReleaseError(
                f"{path.name}: {program} needs more than glibc {options.glibc}: {', '.join(problems)}",
                "build it with zig (step `build`); a new dependency may link a library of the system",
            )


def check_wheels(options):
    """Content of the wheels, and the symbols and libraries that their program needs."""
    wheels = wheels_of_release(options)
    for arch, path in wheels.items():
        check_wheel(path, arch, options)
        if not options.without_auditwheel:
            tag = f"manylinux_{options.glibc.replace('.', '_')}_{arch}"
            shown = run_program(["auditwheel", "show", path], env=tools_environment(), stdout=subprocess.PIPE)
            if f'"{tag}"' not in " ".join(shown.split()):
                raise ReleaseError(f"{path.name}: auditwheel does not find {tag}: {shown.strip()}", "run the step `build`")
    return f"{len(wheels)} wheels need no symbol newer than GLIBC_{options.glibc}"


def bundled_sqlite():
    """The SQLite that libsqlite3-sys compiles into the program, as a component of the bill of materials."""
    # Packages of other platforms would have to be downloaded.
    command = ["cargo", "metadata", "--locked", "--format-version=1", f"--manifest-path={PROJECT / 'Cargo.toml'}"]
    command.append(f"--filter-platform={platform.machine()}-unknown-linux-gnu")
    packages = json.loads(run_program(command, stdout=subprocess.PIPE))["packages"]
    manifest = next(package["manifest_path"] for package in packages if package["name"] == "libsqlite3-sys")
    header = (pathlib.Path(manifest).parent / "sqlite3/sqlite3.h").read_text(encoding="utf-8")
    version = re.search(r'^#define SQLITE_VERSION\s+"([^"]+)"', header, re.MULTILINE).group(1)
    return {
        "type": "library",
        "bom-ref": f"pkg:generic/sqlite@{version}",
        "name": "sqlite",
        "version": version,
        "description": "C library, compiled into the program by libsqlite3-sys",
        "scope": "required",
        "licenses": [{"expression": "blessing"}],
        "cpe": f"cpe:2.3:a:sqlite:sqlite:{version}:*:*:*:*:*:*:*",
        "purl": f"pkg:generic/sqlite@{version}",
    }


def write_sbom(options):
    """The bill of materials that maturin wrote into each wheel, as a file, with the bundled SQLite."""
    version, written = read_version(), []
    for arch, path in wheels_of_release(options).items():
        with zipfile.ZipFile(path) as wheel:
            bill = json.loads(wheel.read(f"npubench-{version}.dist-info/sboms/npubench.cyclonedx.json"))
        present = {component["name"] for component in bill["components"]}
        locked = set(re.findall(r'^name = "([^"]+)"', (PROJECT / "Cargo.lock").read_text(encoding="utf-8"), re.MULTILINE))
        if bill.get("bomFormat") != "CycloneDX" or "libsqlite3-sys" not in present or not present <= locked:
            raise ReleaseError(
                f"{path.name}: its bill of materials has components {sorted(present - locked)} that Cargo.lock lacks, or "
                "is incomplete", "run the step `build`")
        # Only the reference of npubench itself contains the folder of the build.
        # Cargo leaves the name out if the folder has the name of the package.
        text = re.sub(r"path\+file://[^#\"]*#(?:npubench@)?(?=\d)", "pkg:cargo/npubench@", json.dumps(bill))
        if "path+file:" in text:
            raise ReleaseError(f"{path.name}: its bill of materials has a path of the build", "correct the pattern in `write_bills`")
        bill = json.loads(text)
        sqlite = bundled_sqlite()
        bill["components"].append(sqlite)
        for dependency in bill.get("dependencies", []):
            if "#libsqlite3-sys@" in dependency["ref"]:
                dependency.setdefault("dependsOn", []).append(sqlite["bom-ref"])
        target = options.out / f"npubench-{version}-{arch}.cdx.json"
        target.write_text(json.dumps(bill, indent=2) + "\n", encoding="utf-8")
        written.append(f"{target.name} ({len(bill['components'])} components)")
    return ", ".join(written)


def check_journey(shown, place):
    verdicts = [json.loads(line)["verdict"] for line in shown.splitlines()]
    if not verdicts or set(verdicts) != {"ok"}:
        raise ReleaseError(f"{place}: the verdicts of the rehearsal are {verdicts}, expected only `ok`", "its output is above")
    return f"{len(verdicts)} cases ok"


def run_journey(folder, path, place):
    shutil.copy(PROJECT / PROFILE, folder)
    variables = {"PATH": path, "HOME": str(folder), "LC_ALL": "C.UTF-8"}
    shown = run_program(["sh", "-c", JOURNEY, "sh", read_version()], cwd=folder, env=variables, stdout=subprocess.PIPE)
    return check_journey(shown, place)


def check_fresh_environment(options):
    """Installation of the wheel for this host into a fresh Python environment, and the main job there."""
    arch = platform.machine()
    if arch not in options.arch:
        return f"skipped: no wheel for {arch}, the architecture of this host"
    with tempfile.TemporaryDirectory() as folder:
        environment = pathlib.Path(folder, "environment")
        run_program([sys.executable, "-m", "venv", environment])
        python = environment / "bin/python"
        run_program([python, "-m", "pip", "install", "--quiet", "--no-index", wheels_of_release(options)[arch]])
        result = run_journey(pathlib.Path(folder), f"{environment / 'bin'}:/usr/bin:/bin", "fresh environment")
        run_program([python, "-m", "pip", "uninstall", "--quiet", "--yes", "npubench"])
        if (environment / "bin/npubench").exists():
            raise ReleaseError("pip uninstall leaves npubench", "see RECORD in the wheel")
        return result


def debian_root(arch, options):
    """A Debian root with Python and pip; made at first use. pip only recommends a compiler, and debootstrap installs no such packages."""
    folder = PROJECT / "target" / "release-roots" / f"{options.suite}-{arch}"
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        mirror = [options.mirror] if options.mirror else []
        hint = "install debootstrap and run as root; --mirror URL sets the source of packages, --suite NAME the release"
        run_program(
            ["debootstrap", "--foreign", "--variant=minbase", f"--arch={ARCHITECTURES[arch][1]}", "--include=python3-pip",
             "--no-check-gpg" if options.no_check_gpg else "--force-check-gpg", options.suite, folder, *mirror], hint)
        hint = f"programs for {arch} must be executable here: install qemu-user-static and register it in binfmt_misc with flag F"
        run_program(["chroot", folder, "/debootstrap/debootstrap", "--second-stage"], hint)
        (folder / "complete").touch()
    return folder


def check_root(options):
    """Installation of each wheel in a Debian root without a compiler and without Rust, and the main job there."""
    results = []
    for arch, wheel in wheels_of_release(options).items():
        root = debian_root(arch, options)
        path = "/usr/local/bin:/usr/bin:/bin"
        work = pathlib.Path(tempfile.mkdtemp(dir=root / "tmp"))
        try:
            shutil.copy(wheel, work)
            shutil.copy(PROJECT / PROFILE, work)
            inside = f"/tmp/{work.name}"
            script = f"""set -eu
cd {inside}
for program in {' '.join(COMPILERS)}; do
    if command -v $program >&2; then echo "error: the root has $program" >&2; exit 1; fi
done
python3 -m pip install --quiet --no-index --force-reinstall ./{wheel.name} >&2
{JOURNEY}"""
            # The mount of /proc ends with the namespace.
            outside = f'mount -t proc proc "$0/proc" && exec chroot "$0" env -i PATH={path} HOME={inside} LC_ALL=C.UTF-8 sh -c "$1" sh "$2"'
            shown = run_program(
                ["unshare", "--mount", "sh", "-c", outside, root, script, read_version()], stdout=subprocess.PIPE)
            glibc = run_program(["chroot", root, "ldd", "--version"], stdout=subprocess.PIPE).split("\n")[0].split()[-1]
            results.append(f"{options.suite} {arch}, glibc {glibc}: {check_journey(shown, root)}")
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return "; ".join(results)


def check_source(options):
    """Installation from source by cargo, and the main job with it."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["cargo", "install", "--path", PROJECT, "--locked", "--root", folder]
        environment = {**os.environ, "CARGO_TARGET_DIR": str(PROJECT / "target" / "release-build")}
        run_program(command, cwd=PROJECT, env=environment)
        return run_journey(pathlib.Path(folder), f"{folder}/bin:/usr/bin:/bin", "cargo install")


def write_sums(options):
    """SHA256SUMS of all files of the release."""
    files = files_of_release(options)
    if not files:
        raise ReleaseError(f"{options.out}: no files of a release", "run the step `build`")
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (options.out / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")
    return f"{len(files)} files in {options.out / 'SHA256SUMS'}"


STEPS = {
    "versions": check_versions,
    "build": build_wheels,
    "wheel": check_wheels,
    "sbom": write_sbom,
    "fresh": check_fresh_environment,
    "root": check_root,
    "source": check_source,
    "sums": write_sums,
}


def main():
    arguments = argparse.ArgumentParser(
        description=__doc__.split("\n")[0], formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="steps:\n" + "\n".join(f"  {name:9} {step.__doc__ or ''}" for name, step in STEPS.items()))
    arguments.add_argument("steps", nargs="*", metavar="STEP", help="only these steps; default: all")
    arguments.add_argument("--out", type=pathlib.Path, default=PROJECT / "target/dist", help="folder of the files")
    arguments.add_argument("--arch", action="append", choices=ARCHITECTURES, help="may be repeated; default: all")
    arguments.add_argument("--draft", action="store_true", help="without a section in CHANGELOG.md, with uncommitted changes")
    arguments.add_argument("--glibc", default="2.17", help="newest glibc whose symbols are allowed (default: 2.17)")
    arguments.add_argument("--without-auditwheel", action="store_true", help="only readelf checks the symbols")
    arguments.add_argument("--suite", default="bullseye", help="Debian release of the root (default: bullseye)")
    arguments.add_argument("--mirror", help="source of its packages; default: that of debootstrap")
    arguments.add_argument("--no-check-gpg", action="store_true", help="for a mirror without signatures")
    options = arguments.parse_args()
    options.arch = options.arch or list(ARCHITECTURES)
    options.out = options.out.resolve()
    for name in options.steps:
        if name not in STEPS:
            arguments.error(f"no step `{name}`; the steps are {', '.join(STEPS)}")
    for name in options.steps or STEPS:
        try:
            print(f"{name}: {STEPS[name](options)}", flush=True)
        except ReleaseError as error:
            print(f"error: {name}: {error}\nhint: {error.hint}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
