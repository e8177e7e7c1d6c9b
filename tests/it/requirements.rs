//! Requirements of some tests: shared data, the vendor's Python, permissions. A test that lacks one of these
//! ends early through this module and no other way.
//!
//! Where [`NO_SKIPPED_TESTS`] is set, as in `.ci/run`, such a test fails.

use std::{env, ffi::OsString, fs, path::PathBuf, process::Command, thread};

/// Environment variable that turns a skipped test into a failed one. An empty value counts as not set.
const NO_SKIPPED_TESTS: &str = "NPUBENCH_NO_SKIPPED_TESTS";

/// Environment variable with the path of a Python that has the vendor's torch and torch_npu.
const VENDOR_PYTHON: &str = "NPUBENCH_VENDOR_PYTHON";

fn variable(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

/// Reports that the calling test is skipped, because of `missing`; the caller returns.
///
/// # Panics
/// Where [`NO_SKIPPED_TESTS`] is set.
#[track_caller]
pub(crate) fn skip(missing: &str) {
    let test = test_name();
    assert!(
        variable(NO_SKIPPED_TESTS).is_none(),
        "{test} is skipped, but {NO_SKIPPED_TESTS} is set: {missing}"
    );
    say(&format!("skipped: {test}: {missing}"));
}

/// The test harness names the thread of a test after the test.
fn test_name() -> String {
    thread::current().name().unwrap_or("a test").to_owned()
}

#[expect(clippy::print_stderr, reason = "a skipped test is reported, and what a campaign found")]
pub(crate) fn say(line: &str) {
    eprintln!("{line}");
}

/// Returns a path of the folder `shared` beside the project, or skips the test.
#[track_caller]
pub(crate) fn shared(path: &str) -> Option<PathBuf> {
    let found = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared")).join(path);
    if found.exists() {
        return Some(found);
    }
    skip(&format!("../shared/{path} is missing"));
    None
}

/// Returns the value of the variable that switches a campaign on. Without it the campaign is skipped, also where all tests are
/// required.
pub(crate) fn campaign(name: &str, value: &str) -> Option<OsString> {
    let found = variable(name);
    if found.is_none() {
        say(&format!("skipped: {}: {name} does not name {value}", test_name()));
    }
    found
}

/// Returns the path of a Python that has the vendor's torch and torch_npu, or skips the test.
#[track_caller]
pub(crate) fn vendor_python() -> Option<OsString> {
    let python = variable(VENDOR_PYTHON);
    if python.is_none() {
        skip(&format!("{VENDOR_PYTHON} does not name a Python with the vendor's torch_npu"));
    }
    python
}

#[test]
fn a_skipped_test_is_reported_and_fails_where_all_are_required() {
    const TEST: &str = "vendor::vendor_accepts_every_call_of_the_decoder_layer";
    let run = |threads: &str, required: Option<&str>| {
        let mut command = Command::new(env::current_exe().expect("the test binary"));
        command.args([TEST, "--exact", "--nocapture", "--test-threads", threads]);
        command.env_remove(VENDOR_PYTHON).env_remove(NO_SKIPPED_TESTS);
        command.envs(required.map(|value| (NO_SKIPPED_TESTS, value)));
        let output = command.output().expect("the test binary starts");
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let missing = format!("{VENDOR_PYTHON} does not name a Python with the vendor's torch_npu");
    for (threads, not_required) in [("2", None), ("2", Some("")), ("1", None)] {
        let (passed, text) = run(threads, not_required);
        assert!(passed && text.contains(&format!("skipped: {TEST}: {missing}\n")), "{text}");
    }
    let (passed, text) = run("2", Some("1"));
    let failure = format!("{TEST} is skipped, but {NO_SKIPPED_TESTS} is set: {missing}");
    assert!(!passed && text.contains(&failure), "{text}");
}

#[test]
fn ci_requires_all_tests() {
    let read =
        |name: &str| fs::read_to_string(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(name)).expect("UTF-8");
    let line = format!("export {NO_SKIPPED_TESTS}=1");
    assert!(read(".ci/run").lines().any(|found| found == line), "`{line}` is no line of .ci/run");
    assert!(read("README.md").contains(NO_SKIPPED_TESTS), "README does not name {NO_SKIPPED_TESTS}");
}
