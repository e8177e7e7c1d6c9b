//! Kernels that communicate with other devices: one process per device, all of them or none.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::prelude::*;

const TEMPLATE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/templates/replay.py.hbs");

/// A record of DispatchFFNCombine with this duration in µs, this number of tokens and 8 of 16 experts per rank.
fn dispatch(duration: usize, tokens: u64) -> String {
    format!(
        "DispatchFFNCombine,{duration},\"\"\"{tokens},1024;16,1024,512;16,256,1024;{tokens},8;1;1;{tokens},8\"\"\",\
         DT_BF16;INT8;INT8;INT32;FLOAT;FLOAT;FLOAT,ND;FRACTAL_NZ;FRACTAL_NZ;ND;ND;ND;ND,\"\"\"{tokens},1024;1,16\"\"\",\
         DT_BF16;INT32,ND;ND"
    )
}

/// A database `db` with cases of these numbers of tokens at each of these EP sizes, and two single-device cases.
pub(crate) fn database(tokens: &[u64], sizes: &[&str]) -> Context {
    let context = Context::new();
    context.write("plain.csv", &profile(&[SWIGLU, ADD]));
    let ingest = |more: &[&str]| {
        context.done(&("ingest --db db --kind rehearsal", more));
    };
    ingest(&["plain.csv"]);
    for (index, size) in sizes.iter().enumerate() {
        // Own durations: the same records with another EP size would correct the first one.
        let records: Vec<String> = tokens.iter().map(|&tokens| dispatch(50 + index, tokens)).collect();
        context.write("gang.csv", &profile(&records.iter().map(String::as_str).collect::<Vec<_>>()));
        ingest(&["gang.csv", "--ep-size", size]);
    }
    context
}

const RUN: [&str; 7] = ["run", "--db", "db", "--host", "rehearsal", "--rehearsal-model", "steady"];

fn rehearse(context: &Context, more: &(impl Words + ?Sized)) -> Ran {
    context.run(&(RUN, more))
}

/// Verdicts and samples of the gang's rows, by tokens and EP size.
fn rows(context: &Context) -> Vec<(String, String, String, String)> {
    let mut rows: Vec<_> = context
        .rows("db", "DispatchFFNCombine")
        .into_iter()
        .map(|row| {
            let cell = |name: &str| row[name].clone();
            let tokens = cell("Input Shapes").trim_matches('"').split(',').next().unwrap_or("").to_owned();
            let ended = format!("{} {}", cell("MicroBench Verdict"), cell("MicroBench Samples"));
            (cell("EP Size"), tokens, ended, cell("Average Duration(us)"))
        })
        .collect();
    rows.sort();
    rows
}

/// Folders of the collections, in order.
pub(crate) fn collections(context: &Context) -> Vec<PathBuf> {
    let folders = |path: &Path| {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        let mut folders: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        folders.sort();
        folders
    };
    let runs = folders(&context.path("db/.npubench/runs"));
    runs.iter().flat_map(|run| folders(&run.join("collections"))).collect()
}

pub(crate) fn manifest(folder: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(folder.join("manifest.json")).expect("text")).expect("JSON")
}

pub(crate) fn processes_of(folder: &Path) -> Vec<i32> {
    let folder = folder.canonicalize().expect("a folder");
    let entries = fs::read_dir("/proc").expect("listed").flatten();
    let working = entries.filter(|entry| {
        let is_zombie = fs::read_to_string(entry.path().join("stat")).is_ok_and(|stat| stat.contains(") Z "));
        !is_zombie && fs::read_link(entry.path().join("cwd")).is_ok_and(|place| place.starts_with(&folder))
    });
    working.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Replaces the launch of a case in the replay script.
fn with_fault(context: &Context, fault: &str) {
    let template = fs::read_to_string(TEMPLATE).expect("it ships");
    let before = "        error = place.agree(ordinal, error)\n";
    assert!(template.contains(before));
    let tokens = "case[\"arguments\"][0].get(\"tensor\", {}).get(\"shape\", [0])[0]";
    let fault = format!("        tokens = {tokens}\n        {fault}\n{before}");
    context.write("assets/templates/replay.py.hbs", &template.replace(before, &fault));
}

#[test]
fn gang_is_measured_beside_single_device_cases_on_any_devices() {
    let mut durations = Vec::new();
    for devices in ["4-7", "0-3"] {
        let context = database(&[64, 128], &["2", "4"]);
        rehearse(&context, &["--devices", devices]).ended(0);
        let rows = rows(&context);
        let ended: Vec<_> =
            rows.iter().map(|(size, tokens, ended, _)| format!("{size} {tokens} {ended}")).collect();
        assert_eq!(ended, ["2 128 ok 20", "2 64 ok 20", "4 128 ok 20", "4 64 ok 20"]);
        durations.push(rows.into_iter().map(|(.., duration)| duration).collect::<Vec<_>>());
        let first: u64 = devices[..1].parse().expect("a number");
        let gangs: Vec<Value> =
            collections(&context).iter().map(|folder| manifest(folder)["gang"].clone()).collect();
        let four: Vec<u64> = (first..first + 4).collect();
        assert!(gangs.contains(&Value::from(four)), "{gangs:?}");
        let two = gangs.iter().filter_map(Value::as_array).find(|gang| gang.len() == 2).expect("one of two");
        assert!(two.iter().all(|device| (first..first + 4).contains(&device.whole())));
    }
    assert_eq!(durations[0], durations[1], "a steady result does not depend on the devices");
}

#[test]
fn each_rank_has_a_profile_a_journal_and_experts_of_all_ranks() {
    let context = database(&[64], &["4"]);
    assert_eq!(rehearse(&context, "--devices 8-11").code, 0);
    let folders = collections(&context);
    let folder = folders.iter().find(|folder| manifest(folder)["gang"].is_array()).expect("a gang");
    for journal in ["launched.jsonl", "launched.1.jsonl", "launched.2.jsonl", "launched.3.jsonl"] {
        let text = fs::read_to_string(folder.join(journal)).expect(journal);
        assert!(text.contains("\"launched\": 25") && text.contains("\"done\": true"), "{journal}: {text}");
    }
    let profiles: Vec<_> = fs::read_dir(folder.join("profile")).expect("listed").flatten().collect();
    assert_eq!(profiles.len(), 4, "msprof leaves a profile per process");
    let arguments = manifest(folder)["cases"][0]["arguments"].clone();
    let experts = arguments.list().iter().find(|given| given["name"] == "expert_idx");
    assert_eq!(experts.expect("is there")["tensor"]["below"], 64, "16 experts on each of 4 ranks");
}

#[test]
fn gang_larger_than_the_host_is_not_started() {
    let context = database(&[64], &["2", "16"]);
    let plan = context.run("plan --db db --devices 0-3").stdout;
    let text = "unsupported: it needs 16 devices of one host at once, the run has 4";
    assert!(plan.contains(text), "{plan}");
    let ran = rehearse(&context, "--devices 0-3").ended(1);
    ran.err_has("unsupported: 1 case: it needs 16 devices of one host at once, the run has 4");
    let ended: Vec<_> =
        rows(&context).into_iter().map(|(size, _, ended, _)| format!("{size} {ended}")).collect();
    assert_eq!(ended, ["16  ", "2 ok 20"]);
    assert!(
        collections(&context)
            .iter()
            .all(|folder| manifest(folder)["gang"].as_array().is_none_or(|g| g.len() == 2))
    );
}

#[test]
fn crash_of_a_rank_affects_only_its_case() {
    let context = database(&[32, 64, 128], &["2"]);
    with_fault(&context, "place.rank == 1 and tokens == 64 and os.kill(os.getpid(), 9)");
    let ran = rehearse(&context, "--devices 4-7 --assets assets").ended(1);
    let ended: Vec<_> =
        rows(&context).into_iter().map(|(_, tokens, ended, _)| format!("{tokens} {ended}")).collect();
    assert_eq!(ended, ["128 ok 20", "32 ok 20", "64 quarantined "]);
    let guilty = &context.rows("db", "DispatchFFNCombine");
    let guilty = guilty.iter().find(|row| row["MicroBench Verdict"] == "quarantined").expect("one");
    // torchrun ends the other ranks too: its summary names the one that failed.
    assert!(guilty["MicroBench Reason"].contains("the process ended while it ran; on device "), "{guilty:?}");
    ran.err_has("failed (exitcode: -9) local_rank: 1");
    assert_eq!(context.rows("db", "SwiGlu")[0]["MicroBench Verdict"], "ok");
    assert_eq!(processes_of(&context.path("db")), Vec::<i32>::new());
    // The devices of the gang are free again.
    assert_eq!(rehearse(&context, "--devices 4-7 --update all --kernels Add").code, 0);
}

#[test]
fn gang_of_a_killed_run_keeps_its_devices_until_the_next_run_ends_it() {
    let context = database(&[64], &["4"]);
    with_fault(&context, "tokens == 64 and not os.path.exists(\"../go\") and time.sleep(1000)");
    let options = "--devices 4-7 --kernels DispatchFFNCombine --assets assets";
    let mut command = context.command(&(RUN, options));
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs");
    let deadline = Instant::now() + Duration::from_secs(60);
    // msprof, torchrun and four ranks, all of which can use their device.
    let is_up = || {
        let journal =
            |folder: &PathBuf| fs::read_to_string(folder.join("launched.3.jsonl")).unwrap_or_default();
        collections(&context).first().map(journal).is_some_and(|text| text.contains("started"))
    };
    while !is_up() {
        assert!(Instant::now() < deadline, "the gang does not start");
        thread::sleep(Duration::from_millis(20));
    }
    child.kill().expect("killed");
    child.wait().expect("reaped");
    let left = processes_of(&context.path("db"));
    assert!(left.len() >= 6, "{left:?}");
    for device in 4..8 {
        let lease = context.path("db").join(format!(".npubench/leases/device-{device}.lease"));
        let lease = fs::File::open(&lease).expect("a lease");
        assert!(lease.try_lock().is_err(), "device {device} is still used");
    }
    fs::write(collections(&context)[0].with_file_name("go"), "").expect("written");
    context.done("resume --db db");
    assert_eq!(rows(&context)[0].2, "ok 20");
    assert_eq!(processes_of(&context.path("db")), Vec::<i32>::new());
}

#[test]
fn gang_that_is_stopped_at_once_leaves_no_process_and_no_verdict() {
    let context = database(&[64], &["4"]);
    // A rank that ignores SIGTERM during a case.
    let deaf = "place.rank == 1 and (__import__(\"signal\").signal(15, __import__(\"signal\").SIG_IGN), open(\"deaf\", \"w\"), time.sleep(1000))";
    with_fault(&context, deaf);
    let options = "--devices 4-7 --kernels DispatchFFNCombine --assets assets";
    let mut command = context.command(&(RUN, options));
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it runs");
    let deadline = Instant::now() + Duration::from_secs(60);
    while !collections(&context).first().is_some_and(|folder| folder.join("deaf").exists()) {
        assert!(Instant::now() < deadline, "the gang does not start");
        thread::sleep(Duration::from_millis(20));
    }
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).expect("an id"));
    for _ in 0..2 {
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).expect("sent");
        // Closer together they count as one request.
        thread::sleep(Duration::from_millis(300));
    }
    let ran = context.finish(child).ended(5);
    assert_eq!(processes_of(&context.path("db")), Vec::<i32>::new());
    let head: Vec<&str> = ran.stdout.lines().next().expect("a table").split_whitespace().collect();
    assert_eq!(head, ["kernel", "cases", "not_run"]);
}

/// The ranks of fused products follow from the rows that are gathered or scattered; those of a reduced one are not recorded.
#[test]
fn products_with_communication_run_on_the_ranks_of_their_shapes() {
    let context = Context::new();
    let record = |kernel: &str, inputs: &str, outputs: &str| {
        let types = |shapes: &str, of: &str| vec![of; shapes.split(';').count()].join(";");
        format!(
            "{kernel},50,\"\"\"{inputs}\"\"\",{},{},\"\"\"{outputs}\"\"\",{},{}",
            types(inputs, "DT_BF16"),
            types(inputs, "ND"),
            types(outputs, "DT_BF16"),
            types(outputs, "ND")
        )
    };
    let records = [
        record("AllGatherMatmul", "64,512;128,512", "256,128;256,512"),
        record("MatmulReduceScatter", "64,256;256,128", "32,128"),
        record("MatmulReduceScatter", "64,128;128,128", "32,128"),
        record("MatmulAllReduce", "64,256;256,128", "64,128"),
        // 3 ranks, which torch_npu refuses.
        record("AllGatherMatmul", "32,512;128,512", "96,128;96,512"),
    ];
    context.write("fused.csv", &profile(&records.each_ref().map(String::as_str)));
    let ingest = "ingest fused.csv --db db --kind rehearsal";
    let unknown = context.run(ingest);
    unknown.err_has("`Runtime world_size` is unknown; `--world-size N` sets it");
    context.done(&(ingest, "--world-size 2"));
    let ran = rehearse(&context, "--devices 0-3 --launches 8 --max-collections 1");
    ran.err_has("fit no form of MatmulReduceScatter: A x B and 1 more: `K >= 256` does not hold");
    ran.err_has("A x B^T: a group of 3 ranks; the call takes 2, 4, 8, 16, 32 ranks");
    for kernel in ["AllGatherMatmul", "MatmulReduceScatter", "MatmulAllReduce"] {
        let row = &context.rows("db", kernel)[0];
        assert_eq!(row["MicroBench Verdict"], "ok", "{kernel}: {}", row["MicroBench Reason"]);
    }
    let gangs = collections(&context);
    let mut gangs: Vec<usize> =
        gangs.iter().map(|folder| manifest(folder)["gang"].as_array().map_or(0, Vec::len)).collect();
    gangs.sort_unstable();
    gangs.dedup();
    assert_eq!(gangs, [2, 4]);
}
