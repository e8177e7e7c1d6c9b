//! Bad input: an error with file and line, exit code 3, and no file created or changed.

use std::{fs, os::unix::fs::PermissionsExt as _, process::Command};

use crate::prelude::*;
use crate::requirements;

/// Ingests a file that must be rejected; returns the error.
fn ingest_error(name: &str, text: &str) -> String {
    let context = Context::new();
    context.write(name, text);
    let before = context.snapshot("");
    let ran = context.run(&["ingest", name, "--db", "db"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (3, ""), "{}", ran.stderr);
    assert!(!context.path("db").exists(), "a database folder was created");
    assert_eq!(context.snapshot(""), before);
    ran.stderr
}

#[test]
fn invalid_profiles_are_rejected() {
    let ragged = profile(&[SWIGLU, SWIGLU]).replacen(",DT_BF16,ND,N/A", ",DT_BF16", 1);
    let errors = [
        ingest_error("lfs.csv", "version https://git-lfs.github.com/spec/v1\noid sha256:62a5\nsize 5528\n"),
        ingest_error("empty.csv", ""),
        ingest_error("blank.csv", "\u{feff}\r\n\r\n"),
        ingest_error("other.csv", "a,b,c\n1,2,3\n"),
        ingest_error("some.csv", &format!("{}\n", HEADER.replacen(",Output Data Types", "", 1))),
        ingest_error(
            "level0.csv",
            "Step Id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),Block Dim\n",
        ),
        ingest_error("ragged.csv", &ragged),
        ingest_error("wide.csv", &profile(&[&format!("{SWIGLU},x")])),
        ingest_error("shape.csv", &profile(&[&SWIGLU.replacen("512,6144", "512,__import__('os')", 1)])),
        ingest_error("time.csv", &profile(&[&SWIGLU.replacen("59.730", "fast", 1)])),
        ingest_error("none.csv", &profile(&["MemSet,1.200,N/A,N/A,N/A,N/A,N/A,N/A"])),
        ingest_error("rehearsed.csv", &profile(&[SWIGLU]).replace("aclnn_SwiGlu", "rehearsal_SwiGlu")),
    ];
    insta::assert_snapshot!(errors.join("\n"));
}

#[test]
fn missing_and_empty_folders_are_rejected() {
    let context = Context::new();
    fs::create_dir(context.path("nothing")).expect("created");
    let errors = [
        context.run("ingest nothing --db db"),
        context.run("ingest missing --db db"),
        context.run("run --db missing --host rehearsal"),
        context.run("db copy missing new --kind rehearsal"),
    ];
    assert!(errors.iter().all(|ran| ran.code == 3 && ran.stdout.is_empty()));
    assert!(!context.path("db").exists() && !context.path("new").exists());
    let errors: Vec<String> = errors.into_iter().map(|ran| ran.stderr).collect();
    insta::assert_snapshot!(errors.join("\n"));
}

#[test]
fn kinds_are_never_mixed() {
    let context = Context::new();
    context.write("k.csv", &profile(&[SWIGLU]));
    context.run("ingest k.csv --db real");
    context.run("ingest k.csv --db play --kind rehearsal");
    let before = context.snapshot("");
    let errors = [
        context.run("run --db real --host rehearsal"),
        context.run("run --db play --host npu"),
        context.run("ingest k.csv --db real --kind rehearsal"),
        context.run("ingest k.csv --db play --kind npu"),
    ];
    assert!(errors.iter().all(|ran| ran.code == 3), "{errors:?}");
    assert_eq!(context.snapshot(""), before);
    let errors: Vec<String> = errors.into_iter().map(|ran| ran.stderr).collect();
    insta::assert_snapshot!(errors.join("\n"));
}

#[test]
fn host_without_npus_cannot_measure() {
    let context = Context::new();
    context.write("k.csv", &profile(&[SWIGLU]));
    context.run("ingest k.csv --db real");
    if npubench::base::process::find_program("npu-smi", &std::env::var("PATH").unwrap_or_default()).is_some()
    {
        return requirements::skip("this host has npu-smi; the test needs one without");
    }
    let before = context.snapshot("real");
    let ran = context.exits(4, "run --db real");
    assert_eq!(context.snapshot("real"), before);
    insta::assert_snapshot!(ran.stderr, @r"
    error: the devices of this host are not known: there is no program `npu-smi`
    hint: measure on a host with the NPU driver, or rehearse: `npubench db copy DIR NEW --kind rehearsal`, then `npubench run --db NEW --host rehearsal`
    ");
}

#[test]
fn invalid_option_values_are_rejected() {
    let context = Context::new();
    context.small_database("db");
    let before = context.snapshot("db");
    let rehearse = |more: &str| context.run(&("run --db db --host rehearsal", more));
    assert_eq!(rehearse("--devices 3-1").code, 2);
    assert_eq!(rehearse("--launches 0").code, 2);
    assert_eq!(context.run("frobnicate").code, 2);
    let device = rehearse("--devices 0,16").ended(3);
    let kernel = rehearse("--kernels SwiGLU,Add").ended(3);
    insta::assert_snapshot!(format!("{}\n{}", device.stderr, kernel.stderr), @r"
    error: this host has no device 16; it has 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
    hint: select from these with `--devices`; they are numbered as in `npu-smi info`

    error: the database has no rows of `SwiGLU`
    hint: did you mean `SwiGlu`?
    ");
    assert_eq!(context.snapshot("db"), before);
}

#[test]
fn read_only_database_is_rejected_and_unchanged() {
    let context = Context::new();
    context.small_database("db");
    // No run may start whose rows cannot be written, although the state folder is writable.
    fs::create_dir(context.path("db/.npubench")).expect("created");
    fs::set_permissions(context.path("db/.npubench"), fs::Permissions::from_mode(0o777)).expect("set");
    fs::set_permissions(context.path("db"), fs::Permissions::from_mode(0o555)).expect("set");
    let before = context.snapshot("db");
    let arguments = ["run", "--db", "db", "--host", "rehearsal", "--devices", "0"];
    let mut command = context.command(&arguments);
    if nix::unistd::geteuid().is_root() {
        // File modes do not restrict root: run as another user.
        if !Command::new("setpriv").arg("--version").output().is_ok_and(|output| output.status.success()) {
            return requirements::skip(
                "root without the program `setpriv`; the test needs a user that file modes restrict",
            );
        }
        fs::set_permissions(context.path(""), fs::Permissions::from_mode(0o755)).expect("set");
        // The program may be in a folder that only root can enter.
        let program = context.path("npubench-copy");
        fs::copy(command.get_program(), &program).expect("copied");
        command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(program).args(arguments);
        command.current_dir(context.path(""));
    }
    let ran = context.ran(&command.output().expect("it runs"));
    fs::set_permissions(context.path("db"), fs::Permissions::from_mode(0o755)).expect("set");
    assert_eq!(ran.code, 3, "{}", ran.stderr);
    assert_eq!(context.snapshot("db"), before);
    insta::assert_snapshot!(ran.stderr, @r"
    error: cannot write into `ROOT/db`: Permission denied (os error 13)
    hint: the folder must be writable; check its owner, mode and mount
    ");
}

#[test]
fn error_of_a_damaged_kernel_csv_has_file_and_line() {
    let context = Context::new();
    context.small_database("db");
    let path = context.path("db/SwiGlu.csv");
    let mut text = fs::read_to_string(&path).expect("readable");
    text.push_str("one,cell\n");
    fs::write(&path, text).expect("written");
    context.write("db/notes.csv", "a,b\n");
    let before = context.snapshot("db");
    let damaged = context.run("run --db db --host rehearsal --kernels SwiGlu");
    let foreign = context.run("run --db db --host rehearsal --kernels notes");
    assert_eq!((damaged.code, foreign.code), (3, 3));
    assert_eq!(context.snapshot("db"), before);
    insta::assert_snapshot!(format!("{}\n{}", damaged.stderr, foreign.stderr), @r"
    error: ROOT/db/SwiGlu.csv:3: 2 fields, the header has 65; fields are missing at or before `Input Shapes` (column 3)
    hint: fix the line, or restore the file from version control, or move it out of the folder: `npubench db rebuild` writes the rows that runs have measured, and then `npubench ingest PROFILE` those of a profile

    error: ROOT/db/notes.csv:1: the header lacks `Input Shapes`
    hint: move it out of the folder if it is not a kernel's table
    ");
}

#[test]
fn unusable_python_changes_no_rows() {
    let context = Context::new();
    context.small_database("db");
    context.exits(3, "run --db db --host rehearsal --python /bin/false");
    // A Python that ends immediately, given by a relative path.
    let script = context.write("bin/python-broken", "#!/bin/sh\necho no torch here\nexit 1\n");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("set");
    let before = context.snapshot("db");
    let ran = context.exits(4, "run --db db --host rehearsal --devices 0 --python bin/python-broken");
    ran.err_has("no torch here");
    let mut after = context.snapshot("db");
    after.retain(|path, _| path.parent().is_some_and(|folder| folder.ends_with("db")));
    after.retain(|path, _| path.extension().is_some_and(|extension| extension == "csv"));
    assert_eq!(after.len(), 2, "two tables");
    assert!(after.iter().all(|(path, bytes)| before.get(path) == Some(bytes)), "rows were changed");
}

#[test]
fn unreadable_row_is_reported_and_not_measured() {
    let context = Context::new();
    context.small_database("db");
    let path = context.path("db/SwiGlu.csv");
    let text = fs::read_to_string(&path).expect("readable");
    fs::write(&path, text.replace("512,6144", "512,6k")).expect("written");
    let ran = context.exits(1, "run --db db --host rehearsal --devices 0");
    ran.err_has("db/SwiGlu.csv:2: `6k` is not a dimension (slot 0 of `512,6k`)");
}

/// A file in another unit, or a damaged one.
#[test]
fn durations_that_no_kernel_has_are_refused() {
    let context = Context::new();
    for (duration, problem) in [
        ("7200000000.000", "is more than an hour, which no kernel takes"),
        ("-1.000", "is negative"),
        ("nan", "is not a number of microseconds"),
        ("1e15", "is not a number of microseconds"),
    ] {
        context.write("k.csv", &profile(&[&ADD.replace("2.060", duration)]));
        let ran = context.run("ingest k.csv --db db --kind rehearsal");
        assert!(ran.code != 0 && ran.stderr.contains(problem), "{duration}: {} {}", ran.code, ran.stderr);
        ran.err_has("k.csv:2");
        assert!(!context.path("db").exists());
    }
}
