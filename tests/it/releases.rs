//! Files of a release: versions, functions of the system that the program needs, and the checks of `tools/release.py`.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::context::{Context, Ran, SEARCH_PATH};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Functions that glibc 2.17 has as well, with an older version of the symbol or under another name in its headers.
const ALSO_IN_GLIBC_2_17: [&str; 6] = ["__libc_start_main", "exp", "exp2", "fcntl64", "hypot", "pow"];
/// Functions of libdl and libpthread, which became part of libc with glibc 2.34.
const MOVED_TO_LIBC: [&str; 3] = ["dl", "pthread_", "sem_"];

fn project(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn read(name: &str) -> String {
    fs::read_to_string(project(name)).expect("a readable file of the project")
}

fn is_newer_than_2_17(version: &str) -> bool {
    let mut parts = version.trim_start_matches("GLIBC_").split('.').map(str::parse::<u32>);
    match (parts.next(), parts.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) > (2, 17),
        _ => true,
    }
}

/// CANN's images have an old glibc, and a wheel for them links only if its functions suffice. Weak symbols are those that
/// Rust's library looks up at run time and replaces where they are missing.
#[test]
fn program_needs_no_function_that_glibc_2_17_lacks() {
    let program = assert_cmd::cargo::cargo_bin!("npubench");
    let output =
        Command::new("readelf").args(["--wide", "--dyn-syms"]).arg(program).output().expect("readelf runs");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let mut functions = 0;
    let mut newer = BTreeSet::new();
    for line in text.lines() {
        let columns = line.split_whitespace().collect::<Vec<_>>();
        let [_, _, _, _, binding, _, "UND", symbol, ..] = columns[..] else { continue };
        let Some((name, version)) = symbol.split_once('@') else { continue };
        let version = version.trim_start_matches('@');
        functions += 1;
        // `stat64` and its like are inline functions of older headers, `log` and `log2` have an older version.
        let is_older = ALSO_IN_GLIBC_2_17.contains(&name)
            || MOVED_TO_LIBC.iter().any(|prefix| name.starts_with(prefix))
            || name.starts_with("log")
            || (name.contains("stat") && name.ends_with("64"));
        if version.starts_with("GLIBC_") && is_newer_than_2_17(version) && binding != "WEAK" && !is_older {
            newer.insert(symbol);
        }
    }
    assert!(functions > 50, "{functions} functions of the system in {}", program.display());
    assert!(newer.is_empty(), "glibc 2.17 lacks {newer:?}");
}

#[test]
fn versions_of_cargo_python_and_changelog_agree() {
    let metadata = read("pyproject.toml");
    let project =
        metadata.split("[project]").nth(1).expect("a section").split("\n[").next().expect("its lines");
    let dynamic = project.lines().find(|line| line.starts_with("dynamic = ")).expect("dynamic fields");
    assert!(dynamic.contains("\"version\""), "the version of the wheel is that of Cargo.toml: {dynamic}");
    assert!(!project.lines().any(|line| line.starts_with("version")), "two versions: {project}");
    let changelog = read("CHANGELOG.md");
    let mut headings = changelog.lines().filter_map(|line| line.strip_prefix("## ")).peekable();
    let has_changes = headings.next_if_eq(&"Unreleased").is_some();
    match headings.next() {
        // Changes after a release may belong to the next version already.
        Some(heading) if !has_changes => assert_eq!(heading.split(' ').next(), Some(VERSION), "{heading}"),
        None => assert!(has_changes, "CHANGELOG.md has no section"),
        Some(_) => {}
    }
    let ran = Context::new().release(Path::new(env!("CARGO_MANIFEST_DIR")), &["--draft", "versions"]);
    assert_eq!(
        (ran.code, ran.stdout),
        (0, format!("versions: version {VERSION} (draft)\n")),
        "{}",
        ran.stderr
    );
}

impl Context {
    /// Runs the script of a project's folder.
    fn release(&self, project: &Path, arguments: &[&str]) -> Ran {
        let mut command = Command::new("python3");
        command.arg(project.join("tools/release.py")).args(arguments).current_dir(self.path(""));
        command.env("PATH", &*SEARCH_PATH);
        self.ran(&command.env("PYTHONDONTWRITEBYTECODE", "1").output().expect("python3 runs"))
    }

    /// Writes a wheel of this architecture that has a small program of the system in place of npubench.
    fn write_wheel(&self, change: &str) -> String {
        let script = r#"
import json, platform, sys, zipfile
folder, version, change = sys.argv[1:]
arch = platform.machine()
information = f"npubench-{version}.dist-info"
tag = f"py3-none-manylinux_2_17_{arch}.manylinux2014_{arch}"
components = [{"name": name} for name in ("csv", "libsqlite3-sys")]
bill = {"bomFormat": "CycloneDX", "components": components, "dependencies": [
    {"ref": "path+file:///build/npubench#npubench@1", "dependsOn": ["registry#libsqlite3-sys@1"]},
    {"ref": "registry#libsqlite3-sys@1"}]}
files = {
    f"npubench-{version}.data/scripts/npubench": open("/bin/sh", "rb").read(),
    f"{information}/METADATA": f"Metadata-Version: 2.4\nName: npubench\nVersion: {version}\n",
    f"{information}/WHEEL": "", f"{information}/RECORD": "",
    f"{information}/licenses/LICENSE-MIT": "", f"{information}/licenses/LICENSE-APACHE": "",
    f"{information}/sboms/npubench.cyclonedx.json": json.dumps(bill),
}
exec(change)
with zipfile.ZipFile(f"{folder}/npubench-{version}-{tag}.whl", "w") as wheel:
    for name, content in files.items():
        entry = zipfile.ZipInfo(name)
        entry.external_attr = (0o644 if "mode" in change else 0o755) << 16
        wheel.writestr(entry, content)
print(arch)
"#;
        fs::create_dir_all(self.path("dist")).expect("created");
        let output = Command::new("python3")
            .args(["-c", script])
            .arg(self.path("dist"))
            .args([VERSION, change])
            .env("PATH", &*SEARCH_PATH)
            .output()
            .expect("python3 runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("UTF-8").trim().to_owned()
    }

    /// Runs steps of the script on the files of `dist`.
    fn check_files(&self, arguments: &[&str]) -> Ran {
        let folder = self.path("dist");
        let out = ["--out", folder.to_str().expect("UTF-8"), "--without-auditwheel"];
        self.release(Path::new(env!("CARGO_MANIFEST_DIR")), &[&out[..], arguments].concat())
    }
}

/// A copy of the files that have a version, one of them changed.
fn changed_project(name: &str, from: &str, to: &str) -> Context {
    let context = Context::new();
    for file in ["Cargo.toml", "Cargo.lock", "pyproject.toml", "CHANGELOG.md", "tools/release.py"] {
        let text = read(file);
        assert!(file != name || text.contains(from), "{name} has no `{from}`");
        context.write(file, &if file == name { text.replacen(from, to, 1) } else { text });
    }
    context
}

#[test]
fn release_needs_equal_versions_and_a_section_of_the_changelog() {
    let cargo = format!("version = \"{VERSION}\"");
    let lock = format!("name = \"npubench\"\nversion = \"{VERSION}\"");
    let cases = [
        ("Cargo.toml", &*cargo, "version = \"9.9.9\"", "Cargo.lock: not version 9.9.9"),
        ("Cargo.lock", &*lock, "name = \"npubench\"\nversion = \"9.9.9\"", "Cargo.lock: not version"),
        ("pyproject.toml", "dynamic = [\"version\", ", "dynamic = [", "pyproject.toml: no version"),
        (
            "pyproject.toml",
            "dynamic = [\"version\", ",
            "version = \"9.9.9\"\ndynamic = [",
            "version 9.9.9, expected",
        ),
    ];
    for (name, from, to, expected) in cases {
        let context = changed_project(name, from, to);
        let ran = context.release(&context.path(""), &["--draft", "versions"]);
        assert_eq!(ran.code, 1, "{name}: {}", ran.stdout);
        assert!(ran.stderr.contains(expected) && ran.stderr.contains("\nhint: "), "{}", ran.stderr);
    }

    let context = Context::new();
    for file in ["Cargo.toml", "Cargo.lock", "pyproject.toml", "tools/release.py"] {
        context.write(file, &read(file));
    }
    context.write("CHANGELOG.md", "# Changelog\n\n## Unreleased\n\n- A change.\n");
    let ran = context.release(&context.path(""), &["versions"]);
    assert_eq!(ran.code, 1, "{}", ran.stdout);
    let expected = format!("the first section is `Unreleased`, expected `{VERSION} (YYYY-MM-DD)`");
    assert!(ran.stderr.contains(&expected), "{}", ran.stderr);

    // With its section, a release still needs all changes in a commit.
    context.write("CHANGELOG.md", &format!("# Changelog\n\n## {VERSION} (2026-11-25)\n\n- A change.\n"));
    let created = Command::new("git").args(["init", "-q"]).current_dir(context.path("")).status();
    assert!(created.expect("git runs").success());
    let ran = context.release(&context.path(""), &["versions"]);
    assert_eq!(ran.code, 1, "{}", ran.stdout);
    assert!(ran.stderr.contains("changes without a commit"), "{}", ran.stderr);
}

#[test]
fn wheel_with_a_newer_symbol_or_another_content_is_refused() {
    let context = Context::new();
    let arch = context.write_wheel("");
    let accepted = context.check_files(&["--arch", &arch, "--glibc", "99.0", "wheel"]);
    assert_eq!(accepted.code, 0, "{}", accepted.stderr);
    assert_eq!(accepted.stdout, "wheel: 1 wheels need no symbol newer than GLIBC_99.0\n");

    // Every program needs a function of the first version of glibc for its architecture.
    let ran = context.check_files(&["--arch", &arch, "--glibc", "2.1", "wheel"]);
    assert_eq!(ran.code, 1, "{}", ran.stdout);
    assert!(ran.stderr.contains("needs more than glibc 2.1: GLIBC_2."), "{}", ran.stderr);

    for (change, expected) in [
        ("# mode", "mode 644 of npubench"),
        ("del files[f\"{information}/sboms/npubench.cyclonedx.json\"]", "missing ['npubench"),
        ("files['npubench.libs/libsqlite3.so'] = ''", "not expected ['npubench.libs/libsqlite3.so']"),
        ("files[f\"{information}/METADATA\"] = 'Version: 9.9.9'", "METADATA has Version: 9.9.9"),
        ("files[f\"npubench-{version}.data/scripts/npubench\"] = '#!/bin/sh'", "is not an ELF file"),
    ] {
        context.write_wheel(change);
        let ran = context.check_files(&["--arch", &arch, "--glibc", "99.0", "wheel"]);
        assert_eq!(ran.code, 1, "{change}: {}", ran.stdout);
        assert!(ran.stderr.contains(expected) && ran.stderr.contains("\nhint: "), "{change}: {}", ran.stderr);
    }

    let other = if arch == "x86_64" { "aarch64" } else { "x86_64" };
    let ran = context.check_files(&["--arch", other, "wheel"]);
    assert_eq!(ran.code, 1, "{}", ran.stdout);
    assert!(ran.stderr.contains(&format!("0 wheels for {other}, expected one")), "{}", ran.stderr);
}

#[test]
fn bill_of_materials_has_the_bundled_sqlite_and_every_file_a_checksum() {
    let context = Context::new();
    let arch = context.write_wheel("");
    let ran = context.check_files(&["--arch", &arch, "sbom", "sums"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let text = fs::read(context.path(&format!("dist/npubench-{VERSION}-{arch}.cdx.json"))).expect("written");
    let bill: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
    let components = bill["components"].as_array().expect("a list");
    let sqlite = components.iter().find(|component| component["name"] == "sqlite").expect("a component");
    assert_eq!(sqlite["version"], rusqlite::version());
    assert_eq!(bill["dependencies"][0]["ref"], "pkg:cargo/npubench@1", "no folder of the build");
    assert_eq!(bill["dependencies"][1]["dependsOn"][0], sqlite["bom-ref"]);

    let check = |expected: bool| {
        let output =
            Command::new("sha256sum").args(["-c", "SHA256SUMS"]).current_dir(context.path("dist")).output();
        let output = output.expect("sha256sum runs");
        assert_eq!(output.status.success(), expected, "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("UTF-8").lines().count()
    };
    assert_eq!(check(true), 2, "the wheel and the bill of materials");
    context.write_wheel("files[f\"{information}/WHEEL\"] = 'changed'");
    check(false);

    context.write_wheel(
        "components.append({'name': 'unknown-crate'}); files[f\"{information}/sboms/npubench.cyclonedx.json\"] = json.dumps(bill)",
    );
    let ran = context.check_files(&["--arch", &arch, "sbom"]);
    assert_eq!(ran.code, 1, "{}", ran.stdout);
    assert!(ran.stderr.contains("['unknown-crate'] that Cargo.lock lacks"), "{}", ran.stderr);
}
