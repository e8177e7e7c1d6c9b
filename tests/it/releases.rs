//! Files of a release: versions, and functions of the system that the program needs.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::prelude::*;

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
    let section =
        metadata.split("[project]").nth(1).expect("a section").split("\n[").next().expect("its lines");
    let dynamic = section.lines().find(|line| line.starts_with("dynamic = ")).expect("dynamic fields");
    assert!(dynamic.contains("\"version\""), "the version of the wheel is that of Cargo.toml: {dynamic}");
    assert!(!section.lines().any(|line| line.starts_with("version")), "two versions: {section}");
    let changelog = read("CHANGELOG.md");
    let mut headings = changelog.lines().filter_map(|line| line.strip_prefix("## ")).peekable();
    let has_changes = headings.next_if_eq(&"Unreleased").is_some();
    match headings.next() {
        // Changes after a release may belong to the next version already.
        Some(heading) if !has_changes => assert_eq!(heading.split(' ').next(), Some(VERSION), "{heading}"),
        None => assert!(has_changes, "CHANGELOG.md has no section"),
        Some(_) => {}
    }
    let mut command = Command::new("python3");
    command.arg(project("tools/release.py")).args(["--draft", "versions"]);
    command.env("PATH", &*SEARCH_PATH).env("PYTHONDONTWRITEBYTECODE", "1");
    let ran = Context::new().ran(&command.output().expect("python3 runs")).ended(0);
    assert_eq!(ran.stdout, format!("versions: version {VERSION} (draft)\n"));
}
