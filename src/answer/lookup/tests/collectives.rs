//! Collectives and static composites.

use super::*;

/// A database with tables of collectives in the folder that the mapping names, and one of its own.
fn collectives() -> TestDatabase {
    let database = TestDatabase::new(&[
        ("MatMulV3", &["64,512;5120,512 | DT_BF16;DT_BF16 | | 64,5120 | DT_BF16 | 30"]),
        ("QuantBatchMatmulV3", &["64,512;512,5120;5120 | INT8;INT8;INT64 | | 64,5120 | DT_BF16 | 20"]),
        ("RmsNorm", &["64,512;512 | DT_BF16;DT_BF16 | | 64,512 | DT_BF16 | 4"]),
        ("DynamicQuant", &["64,512 | DT_BF16 | | 64,512;64 | INT8;FLOAT | 3"]),
    ]);
    let folder = database.path().join("hccl");
    fs::create_dir(&folder).expect("created");
    let header = "message_bytes,num_devices,dtype,topology_tier,Duration(us),bandwidth_gbps\n";
    let rows = "655360,16,DT_BF16,0,412.5,1\n1310720,16,DT_BF16,0,689.96,1\n1310720,16,DT_BF16,0,700,1\n\
                1310720,16,DT_BF16,0,650,1\n2621440,16,DT_BF16,0,0,1\n655360,8,DT_BF16,1,90,1\n655360,8,DT_BF16,0,100,1\n";
    fs::write(folder.join("hcom_allReduce_.csv"), format!("{header}{rows}")).expect("written");
    let rows = "40960,16,DT_BF16,0,50,1\n81920,16.0,DT_BF16,0,90,1\n";
    fs::write(folder.join("hcom_reduceScatter_.csv"), format!("{header}{rows}")).expect("written");
    fs::write(database.path().join("hcom_allGather_.csv"), "Type,Duration(us)\nx,1\n").expect("written");
    database
}

const COLLECTIVE_MAPPING: &str = "communication_data_ref: hccl\noperator_mappings:\n  \
    all_reduce: {kernel_type: hcom_allReduce_, category: communication}\n  \
    all_gather: {kernel_type: hcom_allGather_, category: communication}\n  \
    all_to_all: {kernel_type: hcom_alltoallv_, category: communication}\n  \
    reduce_scatter: {kernel_type: hcom_reduceScatter_, category: communication}\n  \
    mm_all_reduce: {composite: true, sub_kernels: [MatMulV2, MatMulV3, hcom_allReduce_]}\n  \
    q_all_reduce:\n    composite: true\n    sub_kernels: [QuantBatchMatmulV3, hcom_allReduce_]\n    tc_input_count: 2\n    \
    runtime_comm_variants: {sequence_parallel: {source_kernel_type: hcom_allReduce_, kernel_type: hcom_reduceScatter_, \
    message_bytes_mode: per_rank_output, group_type: tensor_parallel, interpolation_method: bracket_linear}}\n  \
    norm_quant: {composite: true, sub_kernels: [RmsNorm, DynamicQuant]}\n  \
    twice: {composite: true, sub_kernels: [norm_quant, norm_quant]}\n  \
    norm_other: {composite: true, sub_kernels: [RmsNorm, Conv2D]}\n";

#[test]
fn collectives_are_found_by_message_ranks_and_tier() {
    let database = collectives();
    let engine = database.engine(COLLECTIVE_MAPPING);
    let shown_with = |op: &str, elements: u64, ranks: Option<u64>, tier: Option<u64>| {
        let query = OpQuery { ranks, tier, ..query(op, &elements.to_string(), "BF16") };
        shown(&engine.lookup(&query).expect("readable"))
    };
    for (op, elements, ranks, tier, expected) in [
        ("all_reduce", 327_680, Some(16), Some(0), "412.5 comm hcom_allReduce_:2"),
        // The median of three rows.
        ("all_reduce", 655_360, Some(16), Some(0), "689.96 comm hcom_allReduce_:3"),
        (
            "all_reduce",
            491_520,
            Some(16),
            Some(0),
            "551.23 comm_bracket_linear hcom_allReduce_:2 hcom_allReduce_:3",
        ),
        (
            "hcom_allReduce_",
            491_520,
            Some(16),
            None,
            "551.23 comm_bracket_linear hcom_allReduce_:2 hcom_allReduce_:3",
        ),
        (
            "all_reduce",
            100,
            Some(16),
            Some(0),
            "message_out_of_range: 200 B, measured are 655360 to 1310720 B",
        ),
        (
            "all_reduce",
            655_361,
            Some(16),
            Some(0),
            "message_out_of_range: 1310722 B, measured are 655360 to 1310720 B",
        ),
        ("all_reduce", 327_680, Some(8), Some(1), "90 comm hcom_allReduce_:7"),
        ("all_reduce", 327_680, Some(8), None, "ambiguous_topology_tier"),
        ("all_reduce", 327_680, Some(4), Some(0), "no_rows_of_group: 4 ranks"),
        ("all_reduce", 327_680, None, Some(0), "ranks_not_given"),
        ("reduce_scatter", 0, Some(0), Some(0), "ranks_not_given"),
        // The input of an operator is the input of all ranks, the message of a kernel is the output of one rank.
        ("reduce_scatter", 327_680, Some(16), Some(0), "50 comm hcom_reduceScatter_:2"),
        ("hcom_reduceScatter_", 40_960, Some(16), Some(0), "90 comm hcom_reduceScatter_:3"),
        ("reduce_scatter", 327_681, Some(16), Some(0), "message_bytes_unknown"),
        ("all_gather", 8, Some(16), Some(0), "csv_format_raw: no column message_bytes, num_devices"),
    ] {
        assert_eq!(shown_with(op, elements, ranks, tier), expected, "{op} {elements}");
    }
    assert!(shown_with("all_to_all", 8, Some(16), None).starts_with("csv_not_found: hcom_alltoallv_ ("));
    let untyped = OpQuery { ranks: Some(16), ..query("all_reduce", "8", "") };
    assert_eq!(shown(&engine.lookup(&untyped).expect("readable")), "message_bytes_unknown");
}

#[test]
fn composites_are_the_sum_of_their_parts() {
    let database = collectives();
    let engine = database.engine(COLLECTIVE_MAPPING);
    let lookup = |op: &str, shapes: &str, dtype: &str, is_sequence_parallel: bool| {
        let (ranks, tier) = (Some(16), Some(0));
        let query = OpQuery { ranks, tier, tp_size: ranks, is_sequence_parallel, ..query(op, shapes, dtype) };
        engine.lookup(&query).expect("readable")
    };
    let parts = |answer: &LookupAnswer| -> String {
        let part = |part: &PartAnswer| format!("{} {}", part.name, shown(&part.answer));
        answer.parts.iter().map(part).collect::<Vec<_>>().join(" + ")
    };
    let fused = lookup("mm_all_reduce", "64,512;512,5120", "BF16", false);
    assert_eq!(shown(&fused), "442.5 sum_of_parts");
    assert_eq!(
        parts(&fused),
        "MatMulV3 30 transpose MatMulV3:2 + hcom_allReduce_ 412.5 comm hcom_allReduce_:2"
    );
    assert!((fused.confidence - 0.9).abs() < 1e-12 && fused.source == AnswerSource::Measured);
    let quantized = lookup("q_all_reduce", "64,512;512,5120", "INT8", false);
    assert_eq!(shown(&quantized), "432.5 sum_of_parts");
    let scattered = lookup("q_all_reduce", "64,512;512,5120", "INT8", true);
    assert_eq!(
        parts(&scattered),
        "QuantBatchMatmulV3 20 identity QuantBatchMatmulV3:2 + hcom_reduceScatter_ 50 comm hcom_reduceScatter_:2"
    );
    // Both kernels run, not the first one only.
    let normalised = lookup("norm_quant", "64,512;512", "BF16", false);
    assert_eq!(parts(&normalised), "RmsNorm 4 identity RmsNorm:2 + DynamicQuant 3 identity DynamicQuant:2");
    assert!((normalised.confidence - 0.8).abs() < 1e-12);
    assert_eq!(shown(&lookup("twice", "64,512;512", "BF16", false)), "14 sum_of_parts");
    for (op, shapes, expected) in [
        ("mm_all_reduce", "65,512;512,5120", "sub_kernel_miss:MatMulV2: shape_mismatch"),
        ("norm_other", "64,512;512", "sub_kernel_miss:Conv2D: csv_not_found"),
    ] {
        let reason = shown(&lookup(op, shapes, "BF16", false));
        assert!(reason.starts_with(expected), "{op}: {reason}");
    }
    let without_ranks = engine.lookup(&query("mm_all_reduce", "64,512;512,5120", "BF16")).expect("readable");
    assert_eq!(shown(&without_ranks), "comm_sub_kernel_miss:hcom_allReduce_: ranks_not_given");
}

#[test]
fn collectives_with_bad_verdicts_or_of_other_types_are_trusted_less() {
    let database = TestDatabase::new(&[]);
    let header = "message_bytes,num_devices,dtype,Average Duration(us),Profiling Average Duration(us),MicroBench Verdict";
    let rows = "1024,8,FLOAT,10,,ok\n2048,8,FLOAT,3,20,implausible\n4096,8,FLOAT,5,,wrong_kernel\n\
                4096,8,FLOAT,40,,suspicious\n8192,8,FLOAT,80,,noisy\n2048,8,DT_BF16,22,,ok\n";
    fs::write(database.path().join("hcom_allReduce_.csv"), format!("{header}\n{rows}")).expect("written");
    for (elements, dtype, expected) in [
        (256, "FLOAT", "measured 0.90 10 comm hcom_allReduce_:2"),
        (512, "FLOAT", "interpolated 0.56 20 comm_bracket_linear hcom_allReduce_:2 hcom_allReduce_:5"),
        (1024, "FLOAT", "measured 0.63 40 comm hcom_allReduce_:5"),
        (2048, "FLOAT", "measured 0.81 80 comm hcom_allReduce_:6"),
        (1536, "FLOAT", "interpolated 0.56 60 comm_bracket_linear hcom_allReduce_:5 hcom_allReduce_:6"),
        (1024, "BF16", "measured 0.90 22 comm hcom_allReduce_:7"),
        // Outside the sizes of the type, rows of other types answer.
        (512, "BF16", "measured 0.81 10 comm hcom_allReduce_:2"),
        (3072, "BF16", "interpolated 0.50 60 comm_bracket_linear hcom_allReduce_:5 hcom_allReduce_:6"),
        (64, "BF16", "miss 0.00 message_out_of_range: 128 B, measured are 1024 to 8192 B"),
    ] {
        let engine = database.engine("");
        let query = OpQuery { ranks: Some(8), ..query("hcom_allReduce_", &elements.to_string(), dtype) };
        let answer = engine.lookup(&query).expect("readable");
        let found = format!("{} {:.2} {}", answer.source, answer.confidence, shown(&answer));
        assert_eq!(found, expected, "{elements} {dtype}");
    }
}

#[test]
fn rows_of_other_environments_and_with_bad_verdicts_do_not_answer() {
    let database = collectives();
    let table = "message_bytes,num_devices,dtype,topology_tier,Duration(us),bandwidth_gbps,HCCL Environment,MicroBench Verdict\n\
                 655360,16,DT_BF16,0,400,1,HCCL_ALGO=level0:ring,ok\n655360,16,DT_BF16,0,300,1,,ok\n\
                 1310720,16,DT_BF16,0,500,1,,wrong_kernel\n1310720,16,DT_BF16,0,600,1,HCCL_ALGO=level0:ring,ok\n";
    fs::write(database.path().join("hccl/hcom_allReduce_.csv"), table).expect("written");
    let engine = database.engine(COLLECTIVE_MAPPING);
    let latency = |elements: u64| {
        let query =
            OpQuery { ranks: Some(16), tier: Some(0), ..query("all_reduce", &elements.to_string(), "BF16") };
        shown(&engine.lookup(&query).expect("readable"))
    };
    assert_eq!(latency(327_680), "300 comm hcom_allReduce_:3");
    assert_eq!(latency(655_360), "message_out_of_range: 1310720 B, measured are 655360 to 655360 B");
}

/// Rows of 16 ranks by a sweep, by an older tool, whose durations contain the time to dispatch, and by a production profile.
#[test]
fn overhead_of_the_dispatch_is_added_to_rows_without_it() {
    let database = TestDatabase::new(&[]);
    let table = "message_bytes,num_devices,dtype,topology_tier,Duration(us),bandwidth_gbps,Profiling Average Duration(us),\
                 MicroBench Verdict\n1024,16,DT_BF16,1,20,1,,ok\n2048,16,DT_BF16,1,30,1,,\n4096,16,DT_BF16,1,,,40,\n\
                 1024,8,DT_BF16,1,10,1,,ok\n";
    fs::write(database.path().join("hcom_allGather_.csv"), table).expect("written");
    let overheads = "npubench_collective_overheads: 1\noverheads:\n\
                     - {kernel: hcom_allGather_, ranks: 16, overhead_us: 14.6, source: A3}\n";
    let answered = |elements: u64, ranks: u64| {
        let query = OpQuery { ranks: Some(ranks), ..query("hcom_allGather_", &elements.to_string(), "BF16") };
        let answer = database.engine("operator_mappings: {}\n").lookup(&query).expect("readable");
        (answer.latency.map(|latency| latency.0), answer.overhead.map(|overhead| overhead.latency.0))
    };
    assert_eq!(answered(512, 16), (Some(20.0), None), "without the file");
    fs::write(database.path().join("collective_overheads.yaml"), overheads).expect("written");
    assert_eq!(answered(512, 16), (Some(34.6), Some(14.6)));
    assert_eq!(answered(1024, 16), (Some(30.0), None), "a duration of an older tool");
    assert_eq!(
        answered(2048, 16),
        (None, None),
        "a production duration, which contains the wait for other ranks"
    );
    // Half way between a row that lacks the overhead and one that contains it.
    assert_eq!(answered(768, 16), (Some(25.0 + 7.3), Some(7.3)));
    assert_eq!(answered(512, 8), (Some(10.0), None), "another number of ranks");
    fs::write(database.path().join("collective_overheads.yaml"), "overheads: []\n").expect("written");
    let query = OpQuery { ranks: Some(16), ..query("hcom_allGather_", "512", "BF16") };
    let error = database.engine("operator_mappings: {}\n").lookup(&query).expect_err("an invalid file");
    assert!(error.to_string().contains("collective_overheads.yaml:1"), "{error}");
}

/// Rows of different variables of HCCL are of different algorithms.
#[test]
fn rows_of_several_environments_do_not_answer_together() {
    let database = TestDatabase::new(&[]);
    let table = |environments: [&str; 3]| {
        let rows = [(1024, 20), (2048, 30), (4096, 50)].into_iter().zip(environments);
        let rows: String = rows
            .map(|((bytes, micros), environment)| {
                format!("{bytes},8,DT_BF16,1,{micros},1,{environment},ok\n")
            })
            .collect();
        let header = "message_bytes,num_devices,dtype,topology_tier,Duration(us),bandwidth_gbps,HCCL Environment,\
                      MicroBench Verdict\n";
        fs::write(database.path().join("hcom_allGather_.csv"), format!("{header}{rows}")).expect("written");
    };
    let answered = || {
        let query = OpQuery { ranks: Some(8), ..query("hcom_allGather_", "768", "BF16") };
        shown(&database.engine("operator_mappings: {}\n").lookup(&query).expect("readable"))
    };
    table(["HCCL_BUFFSIZE=400", "HCCL_BUFFSIZE=400", ""]);
    assert!(answered().starts_with("message_out_of_range"), "{}", answered());
    table(["HCCL_BUFFSIZE=400", "HCCL_BUFFSIZE=200", "HCCL_BUFFSIZE=200"]);
    assert_eq!(answered(), "open_attributes: HCCL Environment");
    table(["HCCL_BUFFSIZE=400"; 3]);
    assert_eq!(answered(), "25 comm_bracket_linear hcom_allGather_:2 hcom_allGather_:3");
}

/// A line between two algorithms is a guess.
#[test]
fn lines_across_a_change_of_the_algorithm_are_trusted_less() {
    let database = TestDatabase::new(&[]);
    let header = "message_bytes,num_devices,dtype,Duration(us),Algorithm Type,MicroBench Verdict";
    let rows = "1024,8,DT_BF16,10,,ok\n2048,8,DT_BF16,12,RING,ok\n4096,8,DT_BF16,20,HD,ok\n8192,8,DT_BF16,60,HD,ok\n";
    fs::write(database.path().join("hcom_allReduce_.csv"), format!("{header}\n{rows}")).expect("written");
    let engine = database.engine("");
    for (elements, expected) in [
        (768, "0.8 11 comm_bracket_linear hcom_allReduce_:2 hcom_allReduce_:3"),
        (1536, "0.5 16 comm_bracket_across_change hcom_allReduce_:3 hcom_allReduce_:4"),
        (3072, "0.5 40 comm_bracket_across_change hcom_allReduce_:4 hcom_allReduce_:5"),
    ] {
        let query = OpQuery { ranks: Some(8), ..query("hcom_allReduce_", &elements.to_string(), "BF16") };
        let answer = engine.lookup(&query).expect("readable");
        assert_eq!(format!("{} {}", answer.confidence, shown(&answer)), expected, "{elements}");
    }
}
