//! Collectives of production profiles as rows.

use crate::prelude::*;

/// Groups of the run: `group_name_0` has the digits 612, `group_name_5` the digits 097.
const METADATA: &str = r#"{"ENV_VARIABLES": {"HCCL_RDMA_TC": "", "HCCL_ALGO": "level0:ring"},
  "parallel_group_info": {
    "group_name_0": {"group_name": "default_group", "group_rank": 0, "global_ranks": [0, 1, 2, 3]},
    "group_name_5": {"group_name": "dp", "group_rank": 0, "global_ranks": [0, 2]}}}"#;

const DEVICE: [&str; 2] = ["--device", "ATLAS_800_A3_752T_128G_DIE"];

fn event(name: &str, micros: f64, dtype: &str, count: u64) -> String {
    format!(
        r#"{{"ph": "X", "name": "{name}", "pid": 7, "tid": 0, "ts": "1.0", "dur": {micros},
            "args": {{"data_type": "{dtype}", "alg_type": "MESH-RING", "count": {count}}}}}"#
    )
}

/// Writes the profile of one rank, whose table has no sizes of collectives.
fn write_rank(context: &Context, rank: u64, events: &[String]) {
    let output = format!("run/rank{rank}_ascend_pt/ASCEND_PROFILER_OUTPUT");
    context.write(
        &format!("{output}/kernel_details.csv"),
        &profile(&[ADD, &ADD.replace("2.060", &format!("{}.5", rank + 1))]),
    );
    context.write(&format!("{output}/trace_view.json"), &format!("[{}]", events.join(",")));
    context.write(&format!("run/rank{rank}_ascend_pt/profiler_metadata.json"), METADATA);
    context.write(
        &format!("run/rank{rank}_ascend_pt/profiler_info_{rank}.json"),
        &format!("{{\"rank_id\": {rank}}}"),
    );
}

#[test]
fn sizes_ranks_and_tiers_follow_from_trace_and_groups() {
    let context = Context::new();
    for rank in [0, 2] {
        let wait = 10.0 * rank as f64;
        write_rank(
            &context,
            rank,
            &[
                event("hcom_allReduce__612_0_1", 100.0 + wait, "BFP16", 1000),
                event("hcom_allReduce__612_1_1", 50.0, "BFP16", 1000),
                event("hcom_reduceScatter__097_0_1", 30.0, "FP32", 256),
                event("hcom_alltoall__612_2_1", 40.0, "INT8", 64),
                event("hcom_alltoallv__612_3_1", 40.0, "INT8", 64),
                event("hcom_batchSendRecv__097_1_1", 40.0, "INT8", 64),
                event("hcom_allGather__999_1_1", 40.0, "INT8", 64),
                event("hcom_allGather__612_4_1", 40.0, "INVALID_TYPE", 64),
            ],
        );
    }
    let ingest = |more: &[&str]| context.run(&("ingest run --db db", more));
    let first = ingest(&DEVICE).ended(0);
    for note in [
        "2 collectives whose parts are not recorded are left out: hcom_alltoallv_ 2",
        "2 collectives of a type without a table are left out: hcom_batchSendRecv_ 2",
        "2 collectives of a group whose ranks are not recorded (`--world-size N` gives their number if all ranks of the run \
         are in it) are left out: hcom_allGather_ 2",
        "2 collectives without a size, an element type or a duration are left out: hcom_allGather_ 2",
    ] {
        first.err_has(note);
    }
    let row = |kernel: &str| {
        let rows = context.rows("db", kernel);
        assert_eq!(rows.len(), 1, "{kernel}");
        let cell = |column: &str| rows[0][column].clone();
        [
            "message_bytes",
            "num_devices",
            "dtype",
            "topology_tier",
            "Profiling Median Duration(us)",
            "Profiling Records",
            "Profiling Ranks",
        ]
        .map(cell)
    };
    // 2 bytes each; ranks 0 to 3 are on two chips; durations 100, 50, 120 and 50 us.
    assert_eq!(row("hcom_allReduce_"), ["2000", "4", "DT_BF16", "1", "75.000000", "4", "2"]);
    assert_eq!(row("hcom_reduceScatter_"), ["1024", "2", "FLOAT", "1", "30.000000", "2", "2"]);
    // HCCL counts the elements for one rank, the table those for all.
    assert_eq!(row("hcom_alltoall_"), ["256", "4", "INT8", "1", "40.000000", "2", "2"]);
    let reduced = &context.rows("db", "hcom_allReduce_")[0];
    assert_eq!(
        (&*reduced["Profiling Algorithm Type"], &*reduced["HCCL Environment"], &*reduced["Duration(us)"]),
        ("MESH-RING", "HCCL_ALGO=level0:ring", "")
    );
    let again = ingest(&[]);
    assert!(again.stdout.ends_with("0 rows added, 0 updated, 4 unchanged\n"), "{}", again.stdout);
    let checked = context.run("db check db");
    checked.err_has("0 errors, 0 warnings");
    // A duration in a model contains the wait for the other ranks and answers no query.
    let query = "query --op hcom_allReduce_ --db db --ranks 4 --inputs 1000 --dtypes bf16";
    let missed = context.run(query);
    missed.out_has("no answer: no_rows_of_group: 4 ranks");
}

/// Two runs of one model, one exported as text and one as database, have messages of the same sizes.
#[test]
fn both_forms_of_a_real_profile_have_the_same_messages() {
    let (Some(text), Some(database)) = (shared("real/cnn_level1_rank0"), shared("real/cnn_db_level1_rank0"))
    else {
        return;
    };
    let context = Context::new();
    let ingest = |path: &std::path::Path, db: &str| {
        context.done(&[
            "ingest",
            &path.to_string_lossy(),
            "--db",
            db,
            "--device",
            "ATLAS_800_A2_376T_64G",
            "--world-size",
            "8",
        ]);
        let rows = context.rows(db, "hcom_allReduce_");
        let key = |row: &std::collections::BTreeMap<String, String>| {
            ["message_bytes", "num_devices", "dtype", "topology_tier", "Profiling Algorithm Type"]
                .map(|name| row[name].clone())
        };
        rows.iter().map(key).collect::<Vec<_>>()
    };
    // 2,469,696, 4,097,000, 16,781,312 and 37,752,832 elements of FP32.
    let expected = ["9878784", "16388000", "67125248", "151011328"]
        .map(|size| [size, "8", "FLOAT", "1", "MESH-RING"].map(str::to_owned));
    assert_eq!(ingest(&text, "text"), expected);
    assert_eq!(ingest(&database, "database"), expected);
}

/// The recorded group of the profile decides the tier, and rows of other tiers do not answer.
#[test]
fn collectives_of_a_profile_are_questions_with_sizes_and_tiers() {
    let context = Context::new();
    write_rank(
        &context,
        0,
        &[
            event("hcom_reduceScatter__097_0_1", 30.0, "FP32", 256),
            event("hcom_allReduce__612_0_1", 70.0, "BFP16", 500),
        ],
    );
    context.done(&(&["ingest", "run", "--db", "db"][..], DEVICE));
    let header =
        "message_bytes,num_devices,dtype,topology_tier,Duration(us),bandwidth_gbps,MicroBench Verdict\n";
    context.write(
        "db/hcom_reduceScatter_.csv",
        &format!("{header}1024,2,FLOAT,0,99,0.01,ok\n1024,2,FLOAT,1,12.5,0.08,ok\n1024,2,FLOAT,2,5,0.2,ok\n"),
    );
    let ran = context.run("coverage --db db --workload run --format json");
    assert!(ran.code < 2, "{}", ran.stderr);
    let last = ran.stdout.lines().last().expect("a line");
    let summary: serde_json::Value = serde_json::from_str(last).expect("JSON");
    let gaps = summary["gaps"].list();
    let found: Vec<[&str; 2]> =
        gaps.iter().map(|gap| ["op", "reason"].map(|key| gap[key].as_str().unwrap_or_default())).collect();
    // The table has rows of these tiers for the size of the reduction only.
    assert_eq!(found, [["hcom_allReduce_", "no_rows_of_group: 4 ranks"]]);
}
