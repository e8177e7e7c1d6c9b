//! Programs of others that hang, print without end, or cannot run: each command that starts one ends within its limit and
//! names it.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::PathBuf,
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use crate::{
    installation::{measuring_host, on_host},
    prelude::*,
};

/// States of a program with the script that has it; none is gone.
const STATES: [(&str, Option<&str>); 5] = [
    ("hangs", Some("#!/bin/sh\ntrap '' TERM\nexec sleep 600\n")),
    ("prints without end", Some("#!/bin/sh\nexec yes 'some words of a program'\n")),
    ("is killed", Some("#!/bin/sh\nkill -9 $$\n")),
    ("is garbage", Some("\u{7f}ELF garbage")),
    ("is gone", None),
];

/// A program, a command that starts it, and the exit code, in place of which a program that is gone has 4.
const COMMANDS: [(&str, &str, i32); 15] = [
    ("npu-smi", "doctor --db db", 4),
    ("python3", "doctor --db db", 4),
    ("npu-smi", "run --db db --without-selftest", 4),
    ("python3", "run --db db --without-selftest", 4),
    ("npu-smi", "selftest --db db --experiments 0", 4),
    ("npu-smi", "fill --db db --workload list.yaml", 4),
    ("npu-smi", "adapt SwiGlu --db db --models Qwen3-8B", 4),
    ("npu-smi", "comm run --db comm --ranks 2 --sizes 1024 --device ATLAS_800_A2_313T_64G", 4),
    ("npu-smi", "plan --db db", 4),
    ("python3", "check --db db", 4),
    ("python3", "new-kernel Unknown --api torch_npu.npu_swiglu", 4),
    ("python3", "collect analyse raw --logs logs --analysis-limit 1s", 1),
    ("sbatch", "slurm submit --db db --shards 1 --gres npu:1", 4),
    ("squeue", "slurm status --db submitted", 4),
    ("scancel", "slurm cancel --db submitted", 4),
];

const WORKLOAD: &str =
    "questions:\n  - {op: SwiGlu, inputs: \"77,4096\", dtypes: bf16, count: 1, duration_us: 9}\n";
fn in_path(name: &str) -> PathBuf {
    let path = std::env::var("PATH").expect("a PATH");
    path.split(':').map(|folder| PathBuf::from(folder).join(name)).find(|file| file.exists()).expect(name)
}

fn host() -> Context {
    let context = measuring_host();
    context.write("list.yaml", WORKLOAD);
    context.write("raw/a_ascend_pt/FRAMEWORK/x", "");
    fs::create_dir(context.path("tmp")).expect("created");
    fs::create_dir(context.path("tools")).expect("created");
    for name in ["sh", "cat", "sleep", "yes"] {
        symlink(in_path(name), context.path("tools").join(name)).expect("linked");
    }
    context.done("ingest k.csv --db submitted --device ATLAS_800_A2_313T_64G");
    let answers = Some("#!/bin/sh\necho 7\n");
    run_with(&context, "sbatch", answers, "slurm submit --db submitted --shards 1 --gres npu:1").0.ended(0);
    context
}

/// Runs a command with a program in a state.
fn run_with(context: &Context, program: &str, script: Option<&str>, arguments: &str) -> (Ran, Duration) {
    let mut command = on_host(context, arguments);
    let python = context.path("host/python3");
    let _ = fs::remove_file(&python);
    symlink(in_path("python3"), &python).expect("linked");
    for name in ["sbatch", "squeue", "scancel", "scontrol"] {
        let answer = if name == "squeue" { "7_1|RUNNING|node1|None" } else { "7" };
        let path = context.write(&format!("host/{name}"), &format!("#!/bin/sh\necho '{answer}'\n"));
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("executable");
    }
    let path = context.path("host").join(program);
    fs::remove_file(&path).expect("removed");
    if let Some(script) = script {
        fs::write(&path, script).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("executable");
    }
    let _ = fs::remove_dir_all(context.path("logs"));
    let folders = [context.path("host"), context.path("tools")].map(|path| path.display().to_string());
    command.env("PATH", folders.join(":"));
    command.env("TMPDIR", context.path("tmp")).env("NPUBENCH_QUERY_LIMIT", "1s");
    let started = Instant::now();
    (context.ran(&command.output().expect("npubench runs")), started.elapsed())
}

#[test]
fn commands_end_within_their_limits_and_name_the_program() {
    let jobs = COMMANDS.iter().flat_map(|command| STATES.map(|state| (command, state)));
    let (jobs, problems) = (Mutex::new(jobs.collect::<Vec<_>>()), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..5 {
            scope.spawn(|| {
                let context = host();
                loop {
                    let job = jobs.lock().expect("no panic").pop();
                    let Some((&(program, arguments, code), (state, script))) = job else { break };
                    let (ran, took) = run_with(&context, program, script, arguments);
                    // The analysis of a rank is named as that.
                    let names = ran.stdout.contains(program) || ran.stderr.contains(program) || ran.code == 1;
                    let left = processes_in(&context.path("."));
                    let is_expected = ran.code == code || (script.is_none() && ran.code == 4);
                    if !is_expected || !names || took > Duration::from_secs(30) || !left.is_empty() {
                        problems.lock().expect("no panic").push(format!(
                            "{program} {state}: {arguments}: {} after {took:?}, left {left:?}\n{}{}",
                            ran.code, ran.stdout, ran.stderr
                        ));
                    }
                }
            });
        }
    });
    let problems = problems.into_inner().expect("no panic");
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// What a broken driver looks like.
#[test]
fn doctor_names_a_hanging_import_and_goes_on() {
    let context = host();
    context.write("packages/torch_npu/__init__.py", "import time\ntime.sleep(600)\n");
    let mut doctor = on_host(&context, "doctor --db db");
    doctor.env("NPUBENCH_QUERY_LIMIT", "6s");
    let started = Instant::now();
    let ran = context.ran(&doctor.output().expect("npubench runs")).ended(4);
    assert!(started.elapsed() < Duration::from_secs(60), "{:?}", started.elapsed());
    ran.err_has("waiting for `python3`, for at most 6 s");
    ran.out_has("missing device use: `python3` cannot be used for checks: the import of torch_npu did not end within 6 s");
    ran.out_has(" GiB free below `db`");
}

/// A killed command leaves its programs; the next command of this user that starts one ends them.
#[test]
fn programs_of_a_killed_doctor_are_ended_by_the_next_command() {
    let context = host();
    let command = |arguments: &str| {
        let mut command = on_host(&context, arguments);
        command.env("TMPDIR", context.path("tmp"));
        command
    };
    let mut doctor = command("doctor --db db");
    // Its descendant has a group of its own.
    let script = "#!/bin/sh\nsetsid sleep 600 &\nexec sleep 600\n";
    fs::write(context.path("host/npu-smi"), script).expect("written");
    let mut child = doctor.spawn().expect("npubench starts");
    while processes_in(&context.path("tmp")).len() < 2 {
        assert!(child.try_wait().expect("a status").is_none(), "it ended");
        thread::sleep(Duration::from_millis(5));
    }
    child.kill().expect("killed");
    child.wait().expect("reaped");
    command("doctor --db db").output().expect("npubench runs");
    assert_eq!(processes_in(&context.path("tmp")), Vec::<String>::new());
    assert_eq!(fs::read_dir(context.path("tmp")).expect("listed").count(), 0);
}
