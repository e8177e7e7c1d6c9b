//! `npubench comm run`: sweeps of collectives on the rehearsal host, and with gloo on this one.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt as _,
    time::{Duration, Instant},
};

use crate::prelude::*;

/// Options of a sweep but its devices.
pub(crate) const SWEEP: &str =
    "comm run --db db --host rehearsal --rehearsal-model steady --warm-up 2 --launches 8 --devices";

fn sweep(context: &Context, more: &(impl Words + ?Sized)) -> Ran {
    context.run(&(SWEEP, more))
}

type Rows = Vec<BTreeMap<String, String>>;

/// Messages in bytes with the durations in microseconds.
fn durations(rows: &Rows) -> Vec<(u64, f64)> {
    let number = |row: &BTreeMap<String, String>, column: &str| row[column].parse::<f64>().expect("a number");
    rows.iter().map(|row| (number(row, "message_bytes") as u64, number(row, "Duration(us)"))).collect()
}

/// The model of the rehearsal host by the size of bandwidths: start in microseconds, and 10^9 bytes per second.
pub(crate) fn modelled(size: u64) -> f64 {
    let (start, bandwidth) = match size {
        0..=32_768 => (12.0, 20.0),
        32_769..=2_097_152 => (22.0, 70.0),
        _ => (60.0, 170.0),
    };
    start + size as f64 / bandwidth / 1e3
}

#[test]
fn sweep_of_8_ranks_is_verified_and_repeated_without_a_new_row() {
    let context = Context::new();
    // 32 KiB and 2 MiB are among them, behind which the model changes.
    let sizes: Vec<u64> = (2..23).step_by(3).map(|power| 128 << power).collect();
    let list = sizes.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let all = ["0-7", "--ranks", "8", "--tiers", "1", "--sizes", &list];
    sweep(&context, &all).ended(0);
    for (table, parts, factor) in [
        ("hcom_allReduce_", 1, 7.0 / 4.0),
        ("hcom_allGather_", 8, 7.0),
        ("hcom_reduceScatter_", 8, 7.0),
        ("hcom_alltoall_", 1, 7.0 / 8.0),
    ] {
        let rows = context.rows("db", table);
        assert_eq!(rows.len(), sizes.len(), "{table}");
        for ((message, duration), row) in durations(&rows).into_iter().zip(&rows) {
            assert_eq!(
                (&*row["MicroBench Verdict"], &*row["Result Check"]),
                ("ok", "ok"),
                "{table} {message}"
            );
            assert_eq!(row["Duration Method"], "last end - last start");
            let expected = modelled(parts * message);
            assert!(
                (duration / expected - 1.0).abs() < 0.012,
                "{table} {message}: {duration}, not {expected}"
            );
            // The first rank waits for the last one, so that its duration is longer.
            let longest: f64 = row["Rank Max Duration(us)"].parse().expect("a number");
            assert!(longest > duration || message > 1 << 20, "{table} {message}: {longest}");
            let bus: f64 = row["Bus Bandwidth(GB/s)"].parse().expect("a number");
            let expected = message as f64 * factor / duration / 1e3;
            assert!((bus / expected - 1.0).abs() < 1e-3, "{table} {message}: {bus}, not {expected}");
        }
        let measured: Vec<u64> = durations(&rows).into_iter().map(|(message, _)| message).collect();
        assert_eq!(measured, sizes);
    }
    let before = context.csv_files();
    let again = sweep(&context, &all).ended(0);
    let known = format!("{} already measured", 4 * sizes.len());
    again.err_has(&known);
    assert_eq!(context.csv_files(), before);
    let query = "query --db db --op hcom_allReduce_ --inputs 131072 --dtypes BF16";
    let found = context.run(&(query, "--ranks 8 --tier 1"));
    found.out_has("comm");
}

#[test]
fn all_collectives_are_measured_in_groups_that_span_their_tier() {
    let context = Context::new();
    let ops = "all_to_all_v,broadcast,send_receive";
    sweep(&context, &["0-3", "--ops", ops, "--ranks", "2", "--sizes", "4K", "--dtypes", "fp16,int8"])
        .ended(0);
    for table in ["hcom_alltoallv_", "hcom_broadcast_", "hcom_send_"] {
        let rows = context.rows("db", table);
        let key = |row: &BTreeMap<String, String>| {
            format!("{} {} {}", row["topology_tier"], row["dtype"], row["MicroBench Verdict"])
        };
        let mut keys: Vec<String> = rows.iter().map(key).collect();
        keys.sort();
        assert_eq!(keys, ["1 FLOAT16 ok", "1 INT8 ok", "2 FLOAT16 ok", "2 INT8 ok"], "{table}");
    }
    // Collections of two groups would share links.
    let ledger = ledger(&context).expect("a ledger");
    let mut statement =
        ledger.prepare("SELECT started_ns, ended_ns FROM collections ORDER BY started_ns").expect("a query");
    let times = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).expect("rows");
    let times: Vec<(i64, i64)> = times.map(|row| row.expect("a row")).collect();
    assert!(times.len() > 1 && times.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{times:?}");
    // Tier 1 connects cards of two dies, tier 2 the dies of a card.
    let manifests = context.snapshot("db/.npubench/runs").into_iter();
    let manifests = manifests.filter(|(path, _)| path.ends_with("manifest.json"));
    for (path, text) in manifests {
        let manifest: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
        let gang: Vec<u64> = serde_json::from_value(manifest["gang"].clone()).expect("devices");
        for case in manifest["cases"].list() {
            let tier = case["arguments"][1]["value"]["tier"].whole();
            assert_eq!(gang[0] / 2 == gang[1] / 2, tier == 2, "{gang:?} {}", path.display());
        }
    }
}

/// Rows of a sweep of two collectives and five sizes with the faults of a plan.
fn with_faults(faults: &str) -> (Context, Ran) {
    let context = Context::new();
    let plan = context.write("faults.yaml", faults);
    let plan = plan.to_str().expect("text");
    let ops = "--ops all_reduce,all_gather --from 1K --to 16K --ranks 4 --tiers 1";
    let ran = sweep(&context, &(&["0-7", "--rehearsal-faults", plan], ops));
    assert_eq!(processes_in(&context.path("db")), Vec::<String>::new(), "no rank is left");
    (context, ran)
}

#[test]
fn late_rank_is_named_and_does_not_lengthen_the_collective() {
    let fault =
        "faults:\n  - late_rank: {rank: 2, microseconds: 400}\n    where: {kernel: hcom_allReduce_}\n";
    let (context, ran) = with_faults(fault);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    let rows = context.rows("db", "hcom_allReduce_");
    for ((message, duration), row) in durations(&rows).into_iter().zip(&rows) {
        assert!((duration / modelled(message) - 1.0).abs() < 0.012, "{message}: {duration}");
        assert_eq!(row["Latest Rank"], "2");
        let reason = &row["MicroBench Reason"];
        assert!(reason.contains("rank 2 (device ") && reason.contains("us after the others"), "{reason}");
        let longest: f64 = row["Rank Max Duration(us)"].parse().expect("a number");
        assert!(longest > 400.0, "the others wait inside their kernels: {longest}");
    }
    assert!(context.rows("db", "hcom_allGather_").iter().all(|row| row["Latest Rank"] != "2"));
}

/// Rows of all parts are beside each other, and only those of equal ones answer a lookup.
#[test]
fn unequal_parts_of_all_to_all_v_have_rows_of_their_own() {
    let context = Context::new();
    let weights = context.write("weights.csv", "0,1,2,3\n1,0,0,0\n0,0,0,9\n4,4,4,4\n");
    let weights = weights.to_str().expect("text");
    let group = "0-7 --ops all_to_all_v --ranks 4 --tiers 1";
    let unequal = "--sizes 1000,2M --parts";
    for parts in ["hot:4", weights, weights] {
        sweep(&context, &(group, unequal, &[parts])).ended(0);
    }
    sweep(&context, &(group, "--sizes 1K")).ended(0);
    let rows = context.rows("db", "hcom_alltoallv_");
    let keys: Vec<String> =
        rows.iter().map(|row| format!("{} {}", row["message_bytes"], row["Part Weights"])).collect();
    let matrix = "0,1,2,3/1,0,0,0/0,0,0,9/4,4,4,4";
    let expected = [
        "1024 ".to_owned(),
        format!("1000 {matrix}"),
        format!("2097152 {matrix}"),
        "1000 hot:4".to_owned(),
        "2097152 hot:4".to_owned(),
    ];
    assert_eq!(keys, expected);
    // Largest transfer of a rank with others, of the message of the busiest sender: 3 * 4/7; 12/16 sent by rank 3.
    for (row, factor) in [(&rows[4], 12.0 / 7.0), (&rows[2], 0.75)] {
        let number = |column: &str| row[column].parse::<f64>().expect("a number");
        let bus = 2_097_152.0 * factor / number("Duration(us)") / 1e3;
        assert!((number("Bus Bandwidth(GB/s)") / bus - 1.0).abs() < 1e-3, "{row:?}");
        // The model is of equal parts, of which 3/4 are for others.
        let expected = modelled((2_097_152.0 * factor / 0.75) as u64);
        assert!((number("Duration(us)") / expected - 1.0).abs() < 0.012, "{row:?}");
    }
    let query = "query --db db --op hcom_alltoallv_ --dtypes BF16 --ranks 4 --tier 1";
    let found = context.run(&(query, "--inputs 512"));
    found.out_has("hcom_alltoallv_.csv:2");
    let found = context.run(&(query, "--inputs 1048576"));
    found.out_lacks(".csv:");
    let why = context.run("why --db db hcom_alltoallv_:5");
    why.out_has("--parts hot:4 --sizes 1000 --update all");
    let other = "--ops all_to_all_v --ranks 8 --sizes 1K --parts 0,1/1,0";
    let refused = sweep(&context, &("0-7", other)).ended(3);
    refused.err_has("the matrix of parts is of 2 ranks, not of 8");
}

#[test]
fn wrong_result_is_never_a_measurement() {
    let fault = "faults:\n  - wrong_result: {rank: 3, element: 1500}\n    where: {kernel: hcom_allGather_, shapes: '2048'}\n";
    let (context, ran) = with_faults(fault);
    assert_eq!(ran.code, 1, "{}{}", ran.stdout, ran.stderr);
    assert_eq!(context.rows("db", "hcom_allReduce_").len(), 5);
    let sizes: Vec<u64> =
        durations(&context.rows("db", "hcom_allGather_")).into_iter().map(|(message, _)| message).collect();
    assert_eq!(sizes, [1024, 2048, 8192, 16384], "that of 4096 bytes has no row");
    let shown = context.run("show --db db --format json");
    let verdict = shown.stdout.lines().find(|line| line.contains("wrong_result")).expect("a verdict");
    assert!(
        verdict.contains("rank 3 (device ") && verdict.contains("element 1500 of 8192, from rank 0, is "),
        "{verdict}"
    );
}

#[test]
fn rank_that_hangs_or_dies_costs_one_size() {
    let fault = |fault: &str, kernel: &str| {
        format!("  - {fault}: {{launch: 3}}\n    where: {{kernel: {kernel}, shapes: '2048'}}\n")
    };
    let faults = fault("hang", "hcom_allReduce_") + &fault("crash", "hcom_allGather_");
    let (context, ran) = with_faults(&format!("faults:\n{faults}"));
    assert_eq!(ran.code, 1, "{}{}", ran.stdout, ran.stderr);
    let sizes = |table: &str| -> Vec<u64> {
        durations(&context.rows("db", table)).into_iter().map(|(message, _)| message).collect()
    };
    assert_eq!(sizes("hcom_allReduce_"), [1024, 2048, 8192, 16384]);
    assert_eq!(sizes("hcom_allGather_"), [1024, 2048, 8192, 16384]);
}

#[test]
fn sweep_killed_at_any_time_ends_in_the_same_rows() {
    let arguments = "0-3 --ops all_reduce,all_to_all --from 1K --to 32K --ranks 4 --tiers 1";
    let undisturbed = Context::new();
    let started = Instant::now();
    assert_eq!(sweep(&undisturbed, arguments).code, 0);
    let whole = started.elapsed();
    let expected = tables(&undisturbed);
    let count = kills(2);
    for kill in 0..count {
        let context = Context::new();
        let delay = whole.mul_f64((f64::from(kill) + 0.5) / f64::from(count)).max(Duration::from_millis(50));
        killed_after(&context, &(SWEEP, arguments), delay);
        let resumed = context.run("resume --db db");
        if resumed.code != 0 {
            // It was killed before its run existed, or had ended.
            sweep(&context, arguments).ended(0);
        }
        assert_eq!(tables(&context), expected, "killed after {delay:?}");
        assert_eq!(processes_in(&context.path("db")), Vec::<String>::new());
    }
}

#[test]
fn impossible_sweeps_are_refused_before_anything_is_launched() {
    let context = Context::new();
    for (arguments, code, message) in [
        ("0-3 --ranks 8", 3, "8 ranks are more than the 4 devices"),
        ("0-3 --ranks 2 --tiers 0", 3, "tier 0"),
        ("0-3 --ranks 2 --tiers 7", 3, "tier 7 does not exist"),
        ("0-5 --ranks 3 --sizes 1K --ops all_to_all", 3, "which 3 ranks cannot share equally"),
        ("0-3 --ranks 2 --sizes 1023", 3, "1023 bytes are not a whole number of elements"),
        ("0-3 --from 2K --to 1K", 2, "`--from` is 2048 bytes"),
        ("0-3 --sizes 1T", 2, "`1T` is no size"),
    ] {
        sweep(&context, arguments).ended(code).err_has(message);
        assert!(!context.path("db").exists(), "{arguments}");
    }
}

#[test]
fn preview_of_a_sweep_writes_nothing() {
    let context = Context::new();
    context.small_database("db");
    let before = context.snapshot("db");
    let ran = sweep(&context, "0-7 --ops all_reduce --ranks 2,8 --dry-run").ended(0);
    let lines: Vec<Vec<&str>> = ran.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    let groups: Vec<_> = lines.iter().filter(|line| line.first() == Some(&"all_reduce")).collect();
    assert_eq!(groups.len(), 3, "2 ranks on two tiers, 8 on one: {}", ran.stdout);
    assert_eq!(groups[2][1..5], ["8", "1", "DT_BF16", "0-7"]);
    ran.out_has("60 cases in ");
    assert_eq!(context.snapshot("db"), before);
}

/// The model changes behind 32 KiB. The first further size behind it is 9/8 of that.
#[test]
fn refined_sweep_locates_the_change_of_the_algorithm() {
    let context = Context::new();
    let refined = "0-1 --ops all_reduce --ranks 2 --tiers 2 --from 2K --to 512K --refine";
    let ran = sweep(&context, refined).ended(0);
    ran.err_has("all changes of the algorithm are located");
    let fit = context.run("comm fit --db db --format json");
    let fit: serde_json::Value =
        serde_json::from_str(fit.stdout.lines().next().expect("a line")).expect("JSON");
    let changes = fit["changes"].list();
    assert_eq!(changes.len(), 1, "{fit}");
    assert_eq!((&changes[0]["before"], &changes[0]["behind"]), (&32_768.into(), &36_864.into()), "{fit}");
    let rows = context.rows("db", "hcom_allReduce_").len();
    assert_eq!(rows, 9 + 8, "four sizes in each of the two cells around the change");
    let again = sweep(&context, refined);
    assert!(again.stderr.contains("0 cases") && again.code == 0, "{}", again.stderr);
    assert_eq!(context.rows("db", "hcom_allReduce_").len(), rows);
}

/// A decoder step of Qwen3-32B: all_reduce of 64 rows of 5120 numbers in 2 bytes, all_gather of the logits of 151936 / 4 words.
#[test]
fn messages_of_a_model_are_measured_in_their_groups() {
    let context = Context::new();
    context.small_database("db");
    let model = ["0-7", "--model", "Qwen3-32B", "--tp", "4", "--batch", "64", "--tiers", "1", "--dry-run"];
    let ran = sweep(&context, &model).ended(0);
    let lines: Vec<Vec<&str>> = ran.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    let line =
        |name: &str| lines.iter().find(|line| line.first() == Some(&name)).map(|line| line[1..4].join(" "));
    assert_eq!(line("all_reduce").as_deref(), Some("4 1 DT_BF16"), "{}", ran.stdout);
    ran.out_has("640K");
    ran.out_has("4748K");
    let others = sweep(&context, &(&model[..], "--ranks 8")).ended(2);
    others.err_has("the messages of the model are of 4 ranks, `--ranks` is 8");
    assert_eq!(sweep(&context, &(&model[..], "--ranks 4")).stdout, ran.stdout);
    let beyond = sweep(&context, "0-1 --model Qwen3-32B --tp 4 --dry-run").ended(3);
    beyond.err_has("4 ranks are more than the 2 devices");
}

#[test]
fn evidence_of_a_sweep_is_read_again_and_shown() {
    let context = Context::new();
    let one = "0-1 --ops reduce_scatter --ranks 2 --tiers 2 --sizes 64K";
    assert_eq!(sweep(&context, one).code, 0);
    let before = context.csv_files();
    context.done("reparse --db db");
    assert_eq!(context.csv_files(), before);
    fs::remove_file(context.path("db/hcom_reduceScatter_.csv")).expect("removed");
    context.done("reparse --db db --write");
    assert_eq!(context.csv_files(), before, "a lost table is written from the ledger");
    let case = context.rows("db", "hcom_reduceScatter_")[0]["MicroBench Case"].clone();
    let why = context.done(&["why", &case, "--db", "db"]);
    let lines: Vec<&str> = why.stdout.lines().collect();
    assert!(
        lines.iter().any(|line| line.starts_with("ranks ")
            && line.ends_with("the time is from the last start to the last end by their clocks")),
        "{lines:?}"
    );
    let command = "npubench comm run --db ROOT/db --host rehearsal --ops reduce_scatter --ranks 2 --tiers 2 --dtypes bfloat16 --sizes 65536";
    why.out_has(command);
    context.done("db check db");
    // A changed number is found, because the ledger determines the row.
    let path = context.path("db/hcom_reduceScatter_.csv");
    let text = fs::read_to_string(&path).expect("text");
    let duration = context.rows("db", "hcom_reduceScatter_")[0]["Duration(us)"].clone();
    fs::write(&path, text.replacen(&duration, "9.000000", 1)).expect("written");
    let checked = context.run("db check db");
    checked.out_has("ledger-mismatch");
}

#[test]
fn sweep_with_gloo_exchanges_data_on_the_host() {
    let Some(python) = vendor_python() else { return };
    let context = Context::new();
    let python = python.to_str().expect("text");
    let arguments =
        ["0-3", "--backend", "gloo", "--python", python, "--ranks", "4", "--tiers", "1", "--dtypes", "fp32"];
    let ran = sweep(&context, &(&arguments[..], "--sizes 4K,64K")).measured();
    for table in ["hcom_allReduce_", "hcom_allGather_", "hcom_reduceScatter_", "hcom_alltoall_"] {
        let rows = context.rows("db", table);
        let sizes: Vec<u64> = durations(&rows).into_iter().map(|(message, _)| message).collect();
        assert_eq!(sizes, [4096, 65536], "{table}: {}{}", ran.stdout, ran.stderr);
        // Times on a busy host may be noisy, and are measured all the same.
        assert!(rows.iter().all(|row| row["Result Check"] == "ok"), "{table}");
    }
    let parts = "--ops all_to_all_v --sizes 1000 --parts hot:4";
    sweep(&context, &(&arguments[..], parts)).measured();
    assert_eq!(context.rows("db", "hcom_alltoallv_")[0]["Result Check"], "ok");
    // A Python without torch is refused before anything is created.
    let without = context.write("python-without-torch", "#!/bin/sh\nexec python3 -S -E \"$@\"\n");
    fs::set_permissions(&without, fs::Permissions::from_mode(0o755)).expect("set");
    let without = without.to_str().expect("text");
    let refused = [
        "--db",
        "none",
        "--device",
        "ATLAS_800_A3_752T_128G_DIE",
        "--host",
        "rehearsal",
        "--backend",
        "gloo",
    ];
    let refused = context.exits(4, &("comm run", &refused[..], &["--python", without]));
    assert!(
        refused.stderr.contains("the backend gloo cannot run: ") && !context.path("none").exists(),
        "{}",
        refused.stderr
    );
    context.exits(2, &["comm", "run", "--db", "other", "--backend", "gloo", "--python", python]);
    assert!(!context.path("other").exists());
}

#[test]
fn variables_of_hccl_are_part_of_the_key_and_of_the_collections() {
    let context = Context::new();
    let one = "0-1 --ops all_reduce --ranks 2 --tiers 2 --sizes 4K";
    assert_eq!(sweep(&context, one).code, 0);
    let mut command = context.command(&(SWEEP, one));
    command.env("HCCL_ALGO", "level0:ring").env("HCCL_BUFFSIZE", "400").env("HCCL_CONNECT_TIMEOUT", "300");
    context.ran(&command.output().expect("it runs")).ended(0).err_lacks("earlier versions");
    // Earlier versions left this variable out of the key.
    let mut command = context.command(&(SWEEP, one));
    command.env("HCCL_RDMA_TC", "132").env("HCCL_IF_IP", "10.0.0.1");
    let ran = context.ran(&command.output().expect("it runs")).ended(0);
    ran.err_has("1 measured row of hcom_allReduce_ without HCCL_RDMA_TC in the key: earlier versions");
    let rows = context.rows("db", "hcom_allReduce_");
    let environments: Vec<&str> = rows.iter().map(|row| row["HCCL Environment"].as_str()).collect();
    assert_eq!(environments, ["", "HCCL_ALGO=level0:ring;HCCL_BUFFSIZE=400", "HCCL_RDMA_TC=132"]);
    let scripts = context.snapshot("db/.npubench/runs").into_iter();
    let scripts = scripts.filter(|(path, _)| path.ends_with("collect.sh"));
    let exports: Vec<String> = scripts
        .map(|(_, text)| {
            let text = String::from_utf8(text).expect("text");
            text.lines().filter(|line| line.starts_with("export HCCL_")).collect::<Vec<_>>().join(" ")
        })
        .collect();
    assert_eq!(
        exports,
        [
            "export HCCL_BUFFSIZE='200'",
            "export HCCL_ALGO='level0:ring' export HCCL_BUFFSIZE='400'",
            "export HCCL_BUFFSIZE='200' export HCCL_RDMA_TC='132'",
        ]
    );
}
