//! `npubench volcano render`: a job manifest for the shards of a plan.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::prelude::*;

/// Schema of the Job resource of Volcano at commit ed72c7c (August 2026), without its status: the `openAPIV3Schema` of
/// `config/crd/volcano/bases/batch.volcano.sh_jobs.yaml` as JSON. The schema of pods is part of it.
const JOB_SCHEMA: &str = include_str!("fixtures/kubernetes/volcano_job.json");

const VALUES: &str = "
image: registry.example/npubench:8.3
database: /data/a3
volumes:
  - {name: data, mount_path: /data, source: {persistentVolumeClaim: {claimName: npubench}}}
";

/// A database whose plan is divided into two shards.
fn divided() -> Context {
    let context = Context::of_layer();
    let arguments = "shard --db db --devices 0-1 --kernels Add,SwiGlu --shards 2";
    context.done(arguments);
    context
}

fn render(context: &Context, values: &str) -> Ran {
    let values = context.write("values.yaml", values);
    context.run(&["volcano", "render", "--db", "db", "--values", values.to_str().expect("text")])
}

/// Makes keys that a schema does not have an error, as strict validation of the API server does.
fn refuse_unknown_keys(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            let keeps_unknown = map.contains_key("x-kubernetes-preserve-unknown-fields");
            if map.contains_key("properties") && !map.contains_key("additionalProperties") && !keeps_unknown {
                map.insert("additionalProperties".to_owned(), Value::Bool(false));
            }
            map.values_mut().for_each(refuse_unknown_keys);
        }
        Value::Array(items) => items.iter_mut().for_each(refuse_unknown_keys),
        _ => {}
    }
}

fn schema_errors(manifest: &Value) -> Vec<String> {
    let mut schema: Value = serde_json::from_str(JOB_SCHEMA).expect("JSON");
    refuse_unknown_keys(&mut schema);
    // The metadata of the job itself are those of any object.
    schema["properties"]["metadata"] = serde_json::json!({"type": "object"});
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    validator.iter_errors(manifest).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

fn parsed(manifest: &str) -> Value {
    serde_saphyr::from_str(manifest).unwrap_or_else(|error| panic!("{error}\n{manifest}"))
}

#[test]
fn manifest_follows_the_published_schema() {
    let context = divided();
    let all = "
job: night-8
namespace: perf
queue: research
image: \"registry.example/npu: bench\"
image_pull_policy: Always
image_pull_secrets: [registry]
database: \"/data/my 'a3'\"
volumes:
  - {name: data, mount_path: /data, source: {nfs: {server: 10.0.0.1, path: /export}}}
  - {name: driver, mount_path: /usr/local/Ascend/driver, source: {hostPath: {path: /usr/local/Ascend/driver, type: Directory}}}
device_resource: huawei.com/Ascend910C
devices: 16
cpu: \"32\"
memory: 128Gi
node_selector: {accelerator-type: module-910b-8, host-arch: huawei-arm}
labels: {ring-controller.atlas: ascend-910b}
annotations: {note: \"a: b # c\"}
tolerations: [{key: npu, operator: Exists, effect: NoSchedule}]
host_network: false
on_eviction: RestartPod
max_retry: 3
grace_seconds: 120
run_options: [--until, \"07:30\", --without-selftest]
";
    for values in [VALUES, all] {
        let ran = render(&context, values).ended(0);
        let manifest = parsed(&ran.stdout);
        assert_eq!(schema_errors(&manifest), Vec::<String>::new(), "{}", ran.stdout);
        let spec = &manifest["spec"];
        assert_eq!((&spec["minAvailable"], &spec["minSuccess"]), (&1.into(), &2.into()));
        assert_eq!(spec["tasks"][0]["replicas"], 2);
    }
    let manifest = parsed(&render(&context, all).stdout);
    let pod = &manifest["spec"]["tasks"][0]["template"]["spec"];
    let container = &pod["containers"][0];
    assert_eq!(container["image"], "registry.example/npu: bench");
    assert_eq!(container["resources"]["limits"]["huawei.com/Ascend910C"], 16);
    assert_eq!(pod["nodeSelector"]["accelerator-type"], "module-910b-8");
    assert_eq!(pod["volumes"][0]["nfs"]["server"], "10.0.0.1");
    assert_eq!(container["volumeMounts"][1]["mountPath"], "/usr/local/Ascend/driver");
    assert_eq!(manifest["spec"]["tasks"][0]["template"]["metadata"]["annotations"]["note"], "a: b # c");
    let script = container["args"][0].text();
    let command = r#"npubench run --db '/data/my '\''a3'\''' --host rehearsal --until 07:30 --without-selftest --shard "$((VC_TASK_INDEX + 1))/2" &"#;
    assert!(script.lines().any(|line| line == command), "{script}");
    // The validation finds what it must find.
    let mut wrong = manifest.clone();
    wrong["spec"]["tasks"][0]["template"]["spec"]["nodeselector"] = serde_json::json!({});
    wrong["spec"]["minAvailable"] = "1".into();
    assert_eq!(schema_errors(&wrong).len(), 2);
}

/// Requests that mind-cluster's scheduler accepts: of an A3, pods that are no whole server are refused.
#[test]
fn requests_of_pods_follow_from_the_chip() {
    let context = divided();
    let request = |device: &str, more: &str| {
        let file = context.path("db/database.yaml");
        let text = fs::read_to_string(&file).expect("a database");
        let other = |line: &str| match line.starts_with("device:") {
            true => format!("device: {device}\n"),
            false => format!("{line}\n"),
        };
        fs::write(&file, text.lines().map(other).collect::<String>()).expect("written");
        let manifest = parsed(&render(&context, &format!("{VALUES}{more}\n")).ended(0).stdout);
        let pod = &manifest["spec"]["tasks"][0]["template"];
        let limits = &pod["spec"]["containers"][0]["resources"]["limits"];
        assert_eq!(pod["metadata"]["annotations"], manifest["metadata"]["annotations"], "{manifest}");
        let devices = limits.as_object().expect("limits").iter().find(|(name, _)| name.contains('/'));
        format!("{devices:?} {}", pod["metadata"]["annotations"])
    };
    let shown = [
        request("ATLAS_800_A2_376T_64G", ""),
        request("ATLAS_800_A3_752T_128G_DIE", ""),
        request("ATLAS_800_A3_752T_128G_DIE", "devices: 8\nnode_selector: {accelerator-type: module-a3-16}"),
        request("ASCEND_950PR", ""),
        request("ASCEND_950DT", ""),
        request("ASCEND_950DT", "annotations: {huawei.com/schedule_policy: chip8-node8-sp, sp-block: \"8\"}"),
    ];
    let expected = [
        "Some((\"huawei.com/Ascend910\", Number(8))) {}",
        "Some((\"huawei.com/Ascend910\", Number(16))) {\"sp-block\":\"16\"}",
        "Some((\"huawei.com/Ascend910\", Number(8))) {}",
        "Some((\"huawei.com/npu\", Number(8))) {\"huawei.com/schedule_policy\":\"chip1-node8\"}",
        "Some((\"huawei.com/npu\", Number(8))) {\"huawei.com/schedule_policy\":\"chip8-node8\"}",
        "Some((\"huawei.com/npu\", Number(8))) {\"huawei.com/schedule_policy\":\"chip8-node8-sp\",\"sp-block\":\"8\"}",
    ];
    assert_eq!(shown, expected);
    // The values as they are printed have no devices of their own.
    let values = context.done("volcano values").stdout;
    let values = values.replace("image: \"\"", "image: i").replace("database: \"\"", "database: /data/a3");
    let volumes = "volumes: [{name: d, mount_path: /data, source: {nfs: {server: s, path: /p}}}]";
    render(&context, &values.replace("volumes: []", volumes)).ended(0).out_has("huawei.com/npu");
    request("ATLAS_800_A3_752T_128G_DIE", "");
    for (more, expected) in [
        ("devices: 8", "values.yaml:6:10: the scheduler refuses 2 pods of 8 devices"),
        ("annotations: {sp-block: \"24\"}", "sp-block: 24`"),
        ("annotations: {sp-block: \"64\"}", "sp-block: 64`"),
    ] {
        render(&context, &format!("{VALUES}{more}\n")).ended(3).err_has(expected);
    }
}

#[test]
fn values_that_would_fail_in_the_cluster_are_refused_with_their_line() {
    let context = divided();
    let with = |more: &str| format!("{VALUES}{more}\n");
    for (values, expected) in [
        (with("job: Night"), "values.yaml:6:6: `job: Night` is no name of a job"),
        (with("devices: 0"), "values.yaml:6:10: `devices` is 0"),
        (with("devices: many"), "values.yaml:6:10: "),
        (with("on_eviction: AbortJob"), "expected RestartJob, RestartTask or RestartPod"),
        (with("nodeselector: {}"), "`node_selector`"),
        (
            VALUES.replace("database: /data/a3", "database: a3"),
            "values.yaml:3:11: `database: a3` is no absolute path",
        ),
        (VALUES.replace("database: /data/a3", "database: /db"), "no volume contains `database: /db`"),
        (VALUES.replace("mount_path: /data", "mount_path: data"), "values.yaml:5:30: `mount_path: data`"),
        (String::new(), "`image` is missing"),
        ("image: [".to_owned(), "values.yaml:"),
        ("{image: i}".to_owned(), "do not start at the first column"),
        ("# a site\n{image: i}".to_owned(), "do not start at the first column"),
        ("  image: i\n  database: /data/a3\n".to_owned(), "do not start at the first column"),
        (with("..."), "or an end mark"),
    ] {
        let ran = render(&context, &values).ended(3);
        assert!(ran.stderr.contains(expected) && ran.stdout.is_empty(), "{expected}: {}", ran.stderr);
        ran.err_has("hint: ");
    }
    let missing = context.run("volcano render --db db --values none.yaml");
    assert!(missing.code == 3 && missing.stderr.contains("none.yaml"), "{}", missing.stderr);
    let undivided = Context::of_layer();
    let ran = render(&undivided, VALUES);
    assert!(ran.code == 3 && ran.stderr.contains("has no shards"), "{}", ran.stderr);
}

/// A stand-in for `npubench` that writes its arguments to a file, then waits for SIGTERM if the variable `WAITS` is set.
/// If it is `signals`, the stand-in sends SIGTERM to the shell before it has a handler of its own.
const STAND_IN: &str = r#"#!/bin/sh
echo "$*" >> "$CALLS"
[ "$WAITS" != signals ] || kill -TERM "$PPID"
trap 'sleep 0.2; echo stopped >> "$CALLS"; exit 5' TERM
if [ -n "$WAITS" ]; then echo waiting >> "$CALLS"; while :; do sleep 0.05; done; fi
exit "$CODE"
"#;

fn script_command(context: &Context, script: &str, code: &str, waits: &str) -> Command {
    let folder = context.path("bin");
    let program = folder.join("npubench");
    fs::create_dir_all(&folder).expect("a folder");
    fs::write(&program, STAND_IN).expect("written");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("executable");
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").expect("a path"));
    let mut command = Command::new("sh");
    command
        .args(["-c", script])
        .env("PATH", path)
        .env("VC_TASK_INDEX", "1")
        .env("CODE", code)
        .env("WAITS", waits);
    command.env("CALLS", context.path("calls")).stdout(Stdio::null());
    command
}

#[test]
fn script_of_a_pod_passes_exit_codes_and_signals_on() {
    let context = divided();
    let manifest = parsed(&render(&context, VALUES).stdout);
    let container = &manifest["spec"]["tasks"][0]["template"]["spec"]["containers"][0];
    let script = container["args"][0].text();
    for (code, expected) in [("0", 0), ("1", 0), ("3", 3), ("5", 5)] {
        let status = script_command(&context, script, code, "").status().expect("sh");
        assert_eq!(status.code(), Some(expected), "npubench ended with {code}");
    }
    let calls = context.path("calls");
    let text = fs::read_to_string(&calls).expect("calls");
    assert!(text.lines().all(|line| line == "run --db /data/a3 --host rehearsal --shard 2/2"), "{text}");
    // SIGTERM to the shell alone, as the kubelet sends it: the shell waits for the end of the run.
    let mut shell = script_command(&context, script, "0", "yes").spawn().expect("sh");
    let contains =
        |calls: &PathBuf, word: &str| fs::read_to_string(calls).is_ok_and(|text| text.contains(word));
    wait_for("the run waits", || contains(&calls, "waiting").then_some(()));
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(shell.id().cast_signed()),
        nix::sys::signal::Signal::SIGTERM,
    )
    .expect("sent");
    assert_eq!(shell.wait().expect("ended").code(), Some(5));
    assert!(contains(&calls, "stopped"), "the shell ended before the run");
    // A pod that is deleted as soon as it has started.
    fs::remove_file(&calls).expect("removed");
    let status = script_command(&context, script, "0", "signals").status().expect("sh");
    assert_eq!(status.code(), Some(5));
    assert!(contains(&calls, "stopped"), "the shell ended before the run");
}
