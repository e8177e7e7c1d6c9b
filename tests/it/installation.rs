//! Installations of torch_npu and of other packages that differ from the catalogue.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::prelude::*;
use crate::rehearsal::ledger;

/// Torch with two devices that can be used unless `DEVICE_ERROR` is set.
const TORCH: &str = "
import os
class npu:
    def device_count():
        return 2
    def set_device(index):
        if 'DEVICE_ERROR' in os.environ:
            raise RuntimeError(os.environ['DEVICE_ERROR'])
    def synchronize():
        pass
";

/// A database of measurements of an A2, and the software of a host that can measure it.
pub(crate) fn measuring_host() -> Context {
    let context = Context::new();
    context.write("k.csv", &profile(&[SWIGLU]));
    context.done("ingest k.csv --db db --device ATLAS_800_A2_313T_64G");
    context.write("cann/ascend_toolkit_install.info", "version=8.3.RC1\n");
    context.write("packages/torch/__init__.py", TORCH);
    context.write("packages/torch_npu/__init__.py", "");
    for package in ["torch", "torch_npu"] {
        let metadata = format!("Metadata-Version: 2.1\nName: {package}\nVersion: 2.9.0\n");
        context.write(&format!("packages/{package}-2.9.0.dist-info/METADATA"), &metadata);
    }
    program(&context, "msprof", "exec sleep 600");
    context
}

/// Writes a program into the first folder of the `PATH`.
fn program(context: &Context, name: &str, script: &str) {
    let path = context.write(&format!("host/{name}"), &format!("#!/bin/sh\n{script}\n"));
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("executable");
}

pub(crate) fn on_host(context: &Context, arguments: &(impl Words + ?Sized)) -> Command {
    let mut command = context.command_on_host("910B3", arguments);
    // The leases of this machine are shared with other tests, and a device that is in use is not tried.
    let leases = context.path("leases");
    fs::create_dir_all(&leases).expect("created");
    command.env("NPUBENCH_LEASES", leases);
    command.env("ASCEND_HOME_PATH", context.path("cann")).env("PYTHONPATH", context.path("packages"));
    command
}

/// Runs a command on a host with a change of its software; returns its error line.
fn refused(context: &Context, arguments: &str, change: impl Fn(&mut Command) -> &mut Command) -> String {
    let before = tables(context);
    let mut command = on_host(context, arguments);
    change(&mut command);
    let Ran { code, stderr, .. } = context.ran(&command.output().expect("npubench runs"));
    assert_eq!(code, 4, "{stderr}");
    assert_eq!(tables(context), before);
    assert!(stderr.contains("hint: "), "{stderr}");
    stderr.lines().find_map(|line| line.strip_prefix("error: ")).expect("an error").to_owned()
}

/// Each collection would fail on such hosts, three times on each device.
#[test]
fn hosts_that_cannot_measure_are_refused_before_the_run() {
    const RUN: &str = "run --db db";
    const DEVICE_ERROR: &str = "set_device, error code is 507899";
    let context = measuring_host();
    let without_cann = refused(&context, RUN, |command| command.env_remove("ASCEND_HOME_PATH"));
    assert_eq!(without_cann, "this host cannot measure: CANN: ASCEND_HOME_PATH is not set");
    context.write("old/ascend_toolkit_install.info", "version=7.0.1\n");
    let old = context.path("old");
    let old_cann = refused(&context, RUN, |command| command.env("ASCEND_HOME_PATH", &old));
    assert!(old_cann.starts_with("this host cannot measure: CANN version: 7.0.1; "), "{old_cann}");
    fs::remove_file(context.path("host/msprof")).expect("removed");
    let without_msprof = refused(&context, RUN, |command| command);
    assert_eq!(without_msprof, "this host cannot measure: msprof: not in the PATH");
    program(&context, "msprof", "exec sleep 600");
    program(&context, "python3", "echo Python 3.6.8");
    let old_python = refused(&context, RUN, |command| command);
    assert_eq!(old_python, "this host cannot measure: python3 of the export: Python 3.6.8");
    fs::remove_file(context.path("host/python3")).expect("removed");
    assert_eq!(
        refused(&context, RUN, |command| command),
        "this host has no selftest with its present software"
    );
    fn refuse_device(command: &mut Command) -> &mut Command {
        command.env("DEVICE_ERROR", DEVICE_ERROR)
    }
    assert_eq!(
        refused(&context, "run --db db --without-selftest", refuse_device),
        format!("this host cannot measure: device use: {DEVICE_ERROR}")
    );
    let mut doctor = on_host(&context, "doctor --db db");
    let ran = context.ran(&doctor.output().expect("npubench runs"));
    ran.out_has("ok      device use: torch_npu uses device 0 of torch\n");
    refuse_device(&mut doctor);
    let ran = context.ran(&doctor.output().expect("npubench runs"));
    ran.out_has(&format!("missing device use: {DEVICE_ERROR}\n"));
}

/// An upgrade between a run and its resumption can take away what the run was started with.
#[test]
fn resume_is_refused_where_the_host_cannot_measure_any_more() {
    let context = measuring_host();
    let mut run = on_host(&context, "run --db db --without-selftest");
    let mut child = run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs");
    let processes = context.path("db/.npubench/processes");
    while fs::read_dir(&processes).map_or(0, Iterator::count) == 0 {
        assert!(child.try_wait().expect("a status").is_none(), "the run ended before a collection");
        thread::sleep(Duration::from_millis(5));
    }
    let pid = Pid::from_raw(i32::try_from(child.id()).expect("a pid"));
    // The second signal ends the collection as well.
    while child.try_wait().expect("a status").is_none() {
        kill(pid, Signal::SIGINT).expect("sent");
        thread::sleep(Duration::from_millis(50));
    }
    let resume = "resume --db db";
    let error = refused(&context, resume, |command| command.env_remove("ASCEND_HOME_PATH"));
    assert_eq!(error, "this host cannot measure: CANN: ASCEND_HOME_PATH is not set");
}

/// Fault plan of an installation in which an operator has another schema.
fn other_schema(context: &Context, schema: &str) -> String {
    context.write("faults.yaml", &format!("schemas:\n- '{schema}'\n")).display().to_string()
}

/// With this schema the call would launch, with `dim` taken for another argument.
#[test]
fn calls_that_do_not_fit_the_installation_are_not_launched() {
    let context = Context::new();
    context.ingest_records("db", &[SWIGLU, ADD], &[]);
    let faults = other_schema(&context, "npu::npu_swiglu(Tensor input, int group=1, int dim=-1) -> Tensor");
    let ran = rehearse(&context, "db", &["--devices", "0-1", "--rehearsal-faults", &faults]).ended(1);
    let verdicts = "SELECT kernel || ' ' || verdict FROM verdicts JOIN cases USING (case_id) ORDER BY kernel";
    assert_eq!(ledger(&context, "db", verdicts), "Add ok; SwiGlu unsupported");
    let reason = "the catalogue's call does not fit the installed torch_npu 0+rehearsal: the catalogue has \
        npu::npu_swiglu(input, dim), torch has (input, group, dim)";
    ran.err_has(reason);
    let attempts = "SELECT count(*) || ' ' || sum(launched) FROM attempts JOIN cases USING (case_id) \
        WHERE kernel = 'SwiGlu'";
    assert_eq!(ledger(&context, "db", attempts), "1 0");
    // The row is not changed: a fitting installation measures it.
    assert_eq!(
        context.rows("db", "SwiGlu")[0].get("MicroBench Verdict").map(String::as_str).unwrap_or(""),
        ""
    );
    rehearse(&context, "db", "--devices 0-1").ended(0);
    assert_eq!(context.rows("db", "SwiGlu")[0]["MicroBench Verdict"], "ok");
}

/// A database `db` with a case of each kernel of vllm-ascend's operator on two devices.
fn gang_database() -> Context {
    let context = Context::new();
    let record = |kernel: &str, weight: &str| {
        format!(
            "{kernel},50,\"\"\"64,1024;16,1024,512;16,256,1024;64,8;1;1;64,8\"\"\",\
             DT_BF16;{weight};{weight};INT32;INT64;INT64;FLOAT,ND;FRACTAL_NZ;FRACTAL_NZ;ND;ND;ND;ND,\
             \"\"\"64,1024;1,16\"\"\",DT_BF16;INT32,ND;ND"
        )
    };
    let records = [record("DispatchFFNCombine", "INT8"), record("DispatchFFNCombineBF16", "DT_BF16")];
    context.ingest_records("db", &[&records[0], &records[1]], &["--ep-size", "2"]);
    context
}

/// The operator of vllm-ascend with these arguments behind the scales and behind the outputs.
fn gang_schema(middle: &str, end: &str) -> String {
    format!(
        "_C_ascend::dispatch_ffn_combine(Tensor x, Tensor[] weight1, Tensor[] weight2, Tensor expert_idx, \
         Tensor[] scale1, Tensor[] scale2, {middle}Tensor probs, str group, int max_output_size, Tensor! out, \
         Tensor! expert_token_nums{end}) -> (Tensor out, Tensor expert_token_nums)"
    )
}

/// Later versions of vllm-ascend have further arguments in the middle: the installed version decides the call.
#[test]
fn versions_of_an_operator_are_called_as_they_are_installed() {
    let biases = "Tensor[] bias1, Tensor[] bias2, ";
    let verdicts = "SELECT kernel || ' ' || verdict FROM verdicts JOIN cases USING (case_id) ORDER BY kernel";
    for (middle, end) in [
        ("", ""),
        (biases, ", Tensor? x_active_mask=None"),
        (biases, ", Tensor? x_active_mask=None, float swiglu_limit=0"),
    ] {
        let context = gang_database();
        let faults = other_schema(&context, &gang_schema(middle, end));
        rehearse(&context, "db", &["--devices", "0-1", "--rehearsal-faults", &faults]).ended(0);
        assert_eq!(ledger(&context, "db", verdicts), "DispatchFFNCombine ok; DispatchFFNCombineBF16 ok");
    }
}

#[test]
fn unknown_version_of_an_operator_is_the_fault_of_the_installation() {
    let context = gang_database();
    let faults = other_schema(&context, &gang_schema("Tensor[] bias1, ", ""));
    rehearse(&context, "db", &["--devices", "0-1", "--rehearsal-faults", &faults]).ended(1);
    let found = ledger(&context, "db", "SELECT verdict || ' ' || cause FROM verdicts");
    assert_eq!(found.matches(r#"unsupported {"cause":"installation_mismatch","#).count(), 2, "{found}");
    assert!(found.contains("scale2, bias1, probs"), "{found}");
}
