//! Rows that fit by a rule.

use std::fs;

use super::{HEADER, TestDatabase, check, query, shown, tensors};
use crate::{answer::lookup::OpQuery, kernel::TensorFormat};

const RULES_MAPPING: &str = "operator_mappings:\n  mm: {kernel_type: MatMulV2, alternate_kernel_types: [MatMulV3]}\n  \
    gmm: {kernel_type: GroupedMatmul, tc_input_count: 2}\n  index: {kernel_type: Index, tc_input_count: 2}\n  \
    quant: {kernel_type: DynamicQuant, tc_input_count: 1}\n  norm: {kernel_type: RmsNorm}\n  \
    rope: {kernel_type: _triton_rope, tc_input_count: 2}\n  swiglu: {kernel_type: SwiGlu}\n  \
    view: {zero_cost: true}\n  absent: {accepted_miss: never profiled}\n  lost: {kernel_type: Conv2D}\n  \
    qmm: {kernel_type: QuantBatchMatmulV3, tc_input_count: 2, compute_subcategory: quantized_matmul, \
    expected_input_formats: [ND, FRACTAL_NZ]}\n  mla: {composite: true, decomposer: true}\n";

#[test]
fn shape_differences_are_bridged_by_the_rules() {
    let database = TestDatabase::new(&[
        (
            "MatMulV2",
            &[
                "136,5120;768,5120 | DT_BF16;DT_BF16 | | 136,768 | DT_BF16 | 10",
                "136,5120;320,48,16,16 | DT_BF16;DT_BF16 | ND;FRACTAL_NZ | 136,5120 | DT_BF16 | 99",
                "512,64;64,32 | FLOAT;FLOAT | | 512,32 | FLOAT | 30",
            ],
        ),
        ("MatMulV3", &["4096,5120;768,5120 | DT_BF16;DT_BF16 | | 4096,768 | DT_BF16 | 200"]),
        ("GroupedMatmul", &["64,512;8,256,512;8 | DT_BF16;DT_BF16;INT64 | | 64,256 | DT_BF16 | 40"]),
        ("Index", &["9,128;77,1;1 | DT_BF16;INT64;INT64 | | 77,128 | DT_BF16 | 5"]),
        (
            "DynamicQuant",
            &[
                "12,1024 | DT_BF16 | | 12,1024;12 | INT8;FLOAT | 6",
                "15,512;512 | DT_BF16;FLOAT | | 15,512 | INT8 | 8",
                "30,1024 | DT_BF16 | | 30,1024;30 | INT8;FLOAT | 9",
            ],
        ),
        ("RmsNorm", &["136,5120;5120 | DT_BF16;DT_BF16 | | 136,5120;136,1 | DT_BF16;FLOAT | 7"]),
        (
            "_triton_rope",
            &["1,136,8,128;1,136,64,128;1,136,1,128;1,136,1,128 | FLOAT;DT_BF16;FLOAT;FLOAT | | | | 9"],
        ),
        ("SwiGlu", &["7,128 | DT_BF16 | | 7,64 | DT_BF16 | 3"]),
        (
            "QuantBatchMatmulV3",
            &[
                "16,64;2,4,16,32;64 | INT8;INT8;INT64 | ND;FRACTAL_NZ;ND | 16,64 | DT_BF16 | 11",
                "16,64;64,64;64 | INT8;INT8;INT64 | | 16,64 | DT_BF16 | 12",
            ],
        ),
    ]);
    let engine = database.engine(RULES_MAPPING);
    check(
        &engine,
        &[
            ("mm", "136,5120;768,5120", "BF16", "10 identity MatMulV2:2"),
            ("torch.ops.mm", "136,5120;5120,768", "BF16", "10 transpose MatMulV2:2"),
            ("mm", "1,136,5120;5120,768", "BF16", "10 batch_strip MatMulV2:2"),
            ("mm", "144,5120;5120,768", "BF16", "10 padding MatMulV2:2"),
            ("mm", "160,5120;5120,768", "BF16", "10 padding MatMulV2:2"),
            ("mm", "1,144,5120;5120,768", "BF16", "10 batch_strip+padding MatMulV2:2"),
            ("mm", "130,5120;5120,768", "BF16", "shape_mismatch"),
            ("mm", "136,5136;5136,768", "BF16", "shape_mismatch"),
            ("mm", "512,64;64,32", "BF16", "30 identity+relaxed_dtype MatMulV2:4"),
            ("mm", "512,64;64,32", "FLOAT16", "dtype_mismatch"),
            ("mm", "4096,5120;5120,768", "BF16", "200 transpose MatMulV3:2"),
            ("mm", "136,5120", "BF16", "input_count_mismatch"),
            ("mm", "512,64;64,32", "", "30 identity MatMulV2:4"),
            ("gmm", "64,512;8,512,256", "BF16", "40 batched_transpose GroupedMatmul:2"),
            ("index", "9,128;1,77", "DT_BF16;INT64", "5 singleton_axis_transpose Index:2"),
            ("quant", "3,4,1024", "BF16", "6 flatten_3d DynamicQuant:2"),
            ("quant", "12,8,128", "BF16", "6 merge_last_dims DynamicQuant:2"),
            (
                "quant",
                "16,8,128",
                "BF16",
                "6.666667 interpolated_1d_linear over axis 0 DynamicQuant:2 DynamicQuant:4",
            ),
            ("quant", "32,8,128", "BF16", "9 merge_last_dims+padding DynamicQuant:4"),
            ("quant", "4,8,1024", "BF16", "9 flatten_3d+padding DynamicQuant:4"),
            ("norm", "1,144,5120;5120", "BF16", "7 batch_strip+padding RmsNorm:2"),
            ("norm", "8,17,5120;5120", "BF16", "7 flatten_3d RmsNorm:2"),
            (
                "rope",
                "1,64,136,128;1,8,136,128;1,136,128;1,136,128",
                "BF16",
                "9 identity+relaxed_dtype _triton_rope:2",
            ),
            ("swiglu", "1,7,64;7,64", "BF16", "3 identity SwiGlu:2"),
            ("SwiGlu", "7,64;7,64", "BF16", "input_count_mismatch"),
            ("view", "7", "BF16", "0 zero_cost"),
            ("absent", "7", "BF16", "0 accepted_miss"),
            ("mla", "7", "BF16", "unsupported query mode decomposer"),
            ("unknown", "7", "BF16", "unmapped"),
            ("qmm", "16,64;64,64", "INT8", "11 identity QuantBatchMatmulV3:2"),
            ("MatMulV2", "136,5120;5120,768", "BF16", "10 transpose MatMulV2:2"),
        ],
    );
    let lost = engine.lookup(&query("lost", "7", "BF16")).expect("an answer");
    assert!(shown(&lost).starts_with("csv_not_found: Conv2D ("), "{}", shown(&lost));
    assert!(shown(&lost).ends_with("op_mapping.yaml:11)"), "{}", shown(&lost));
    let mut blocked = query("MatMulV2", "136,5120;5120,768", "BF16");
    blocked.inputs[1].format = TensorFormat::parse("FRACTAL_NZ");
    assert_eq!(shown(&engine.lookup(&blocked).expect("an answer")), "99 identity MatMulV2:3");
    // As the profiler records it.
    blocked.inputs[1].dims = vec![320, 48, 16, 16];
    assert_eq!(shown(&engine.lookup(&blocked).expect("an answer")), "99 identity MatMulV2:3");
    blocked.inputs[1].dims = vec![48, 320, 16, 16];
    assert_ne!(shown(&engine.lookup(&blocked).expect("an answer")), "99 identity MatMulV2:3");
    blocked.inputs[0].format = TensorFormat::parse("FRACTAL_NZ");
    assert_eq!(shown(&engine.lookup(&blocked).expect("an answer")), "format_mismatch");
}

#[test]
fn only_rows_with_a_usable_latency_answer() {
    let row =
        |shape: u32, rest: &str| format!("{shape},{shape} | DT_BF16 | | {shape},{shape} | DT_BF16 | {rest}");
    let rows = [
        row(1000, "1.5 | 2 | ok"),
        row(2000, " | 2 |"),
        row(3000, "0 | 0 |"),
        row(4000, "1.5 | 2 | wrong_kernel"),
        row(5000, "1.5 | | implausible"),
        row(6000, "1.5 | 2 | noisy"),
        row(7000, "inf | nan |"),
        row(8000, "-1 | 3 |"),
        row(9000, "1e308 | 3 |"),
    ];
    let wrong = |line: u32| {
        format!("wrong_duration: a cell of line {line} is no duration; `npubench db check` names it")
    };
    let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
    let database = TestDatabase::new(&[("Neg", &rows)]);
    let engine = database.engine("");
    check(
        &engine,
        &[
            ("Neg", "1000,1000", "BF16", "1.5 identity Neg:2"),
            ("Neg", "2000,2000", "BF16", "2 identity Neg:3"),
            ("Neg", "3000,3000", "BF16", "not_measured"),
            ("Neg", "4000,4000", "BF16", "2 identity Neg:5"),
            ("Neg", "5000,5000", "BF16", "not_measured"),
            ("Neg", "6000,6000", "BF16", "1.5 identity Neg:7"),
            ("Neg", "7000,7000", "BF16", &wrong(8)),
            ("Neg", "8000,8000", "BF16", &wrong(9)),
            ("Neg", "9000,9000", "BF16", &wrong(10)),
        ],
    );
    let noisy = engine.lookup(&query("Neg", "6000,6000", "BF16")).expect("an answer");
    assert!((noisy.confidence - 0.9).abs() < 1e-12, "{}", noisy.confidence);
}

#[test]
fn policies_choose_among_rows() {
    let database = TestDatabase::new(&[
        (
            "LightningIndexer",
            &["64,8 | DT_BF16 | | 64 | INT32 | 10", "64,8;4 | DT_BF16;INT32 | | 64 | INT32 | | 20"],
        ),
        (
            "KvRmsNormRopeCache",
            &[
                "64,8;4 | DT_BF16;INT32 | | | | 10",
                "64,8;5 | DT_BF16;INT32 | | | | 20",
                "32,8;4 | DT_BF16;INT32 | | | | 7",
                "32,8;9 | DT_BF16;INT32 | | | | 7",
            ],
        ),
        ("ScatterNdUpdate", &["8,64 | DT_BF16 | | | | 10 | 100", "24,64 | DT_BF16 | | | | 30 | 300"]),
        (
            "Sort",
            &[
                "64;4 | DT_BF16;INT32 | | | | 30",
                "64;5 | DT_BF16;INT32 | | | | 10",
                "64;6 | DT_BF16;INT32 | | | | 20",
            ],
        ),
        ("Tile", &["64 | DT_BF16 | | | | 30", "64 | FLOAT | | | | 30"]),
    ]);
    let engine = database.engine(
        "latency_policy: {kernel_overrides: {LightningIndexer: {prefer_profiling_rows: true}, \
         ScatterNdUpdate: {prefer_profiling_rows: true}}}\n\
         query_selection_policy: {kernel_overrides: {KvRmsNormRopeCache: {require_semantic_unique: true}}}\n\
         operator_mappings:\n  li: {kernel_type: LightningIndexer, tc_input_count: 1}\n  \
         kv: {kernel_type: KvRmsNormRopeCache, tc_input_count: 1}\n  sort: {kernel_type: Sort, tc_input_count: 1}\n  \
         write: {kernel_type: ScatterNdUpdate}\n",
    );
    check(
        &engine,
        &[
            ("li", "64,8", "BF16", "20 identity LightningIndexer:3"),
            // The column is the same at a row and between rows.
            ("write", "8,64", "BF16", "100 identity ScatterNdUpdate:2"),
            (
                "write",
                "16,64",
                "BF16",
                "200 interpolated_1d_linear over axis 0 ScatterNdUpdate:2 ScatterNdUpdate:3",
            ),
            ("kv", "64,8", "BF16", "ambiguous_semantic_match:KvRmsNormRopeCache"),
            ("kv", "32,8", "BF16", "7 identity KvRmsNormRopeCache:4"),
            ("sort", "64", "BF16", "20 identity Sort:4"),
            ("Tile", "64", "", "ambiguous_dtype"),
            ("Tile", "64", "FLOAT", "30 identity Tile:3"),
        ],
    );
    assert_eq!(engine.lookup(&query("sort", "64", "BF16")).expect("an answer").equal_rows, 3);
}

#[test]
fn production_durations_far_above_the_cores_are_those_of_the_cores() {
    let database = TestDatabase::new(&[]);
    let header = format!(
        "Accelerator Core,{HEADER},Profiling Average aicore_time(us),Profiling Average aiv_time(us)\n"
    );
    let row = |core: &str, tokens: u32, times: &str| {
        format!("{core},\"{tokens},8\",INT8,ND,\"{tokens},8\",INT8,ND,{times}\n")
    };
    let rows = [
        row("MIX_AIC", 1000, ",30,,10,12"),
        row("MIX_AIC", 2000, ",17,,10,12"),
        row("AI_CORE", 3000, ",30,,10,12"),
        row("MIX_AIC", 4000, "31,30,,10,12"),
    ];
    fs::write(database.path().join("Q.csv"), header + &rows.concat()).expect("written");
    let policy = "latency_policy: {kernel_overrides: {Q: {profiling_core_envelope_fallback: \
                  {max_duration_to_core_ratio: 1.5}}}}\noperator_mappings: {q: {kernel_type: Q}}\n";
    check(
        &database.engine(policy),
        &[
            ("q", "1000,8", "INT8", "12 identity Q:2"),
            ("q", "2000,8", "INT8", "17 identity Q:3"),
            ("q", "3000,8", "INT8", "30 identity Q:4"),
            ("q", "4000,8", "INT8", "31 identity Q:5"),
        ],
    );
}

#[test]
fn elementwise_operators_are_found_by_their_output() {
    let database = TestDatabase::new(&[
        (
            "Add",
            &[
                "100,64;100,64 | DT_BF16;DT_BF16 | | 100,64 | DT_BF16 | 4",
                "200,64;64 | DT_BF16;DT_BF16 | | 200,64 | DT_BF16 | 6",
                "200,64;200,64 | DT_BF16;DT_BF16 | | 200,64 | DT_BF16 | 8",
            ],
        ),
        ("AddAiCore", &["300,64;300,64 | DT_BF16;DT_BF16 | | 300,64 | DT_BF16 | 9"]),
    ]);
    let engine = database.engine(
        "operator_mappings: {add: {kernel_type: Add, alternate_kernel_types: [AddAiCore], query_mode: elementwise}}\n",
    );
    check(
        &engine,
        &[
            ("add", "100,64;100,64", "BF16", "4 identity Add:2"),
            ("add", "300,64;300,64", "BF16", "9 identity AddAiCore:2"),
            ("add", "100,64;100,64", "FLOAT", "8 elementwise+dtype_scale Add:2"),
            ("add", "200,64;200,1", "BF16", "elementwise_output_shape_mismatch"),
            ("add", "100,64;64", "BF16", "elementwise_output_shape_mismatch"),
            ("add", "100,64;64", "FLOAT", "elementwise_output_shape_mismatch"),
            ("add", "200,64;200,64", "FLOAT", "16 elementwise+dtype_scale Add:4"),
            ("add", "200,64;64", "FLOAT", "12 elementwise+dtype_scale Add:3"),
            ("add", "3,65;3,65", "BF16", "elementwise_output_shape_mismatch"),
        ],
    );
    let scaled = engine.lookup(&query("add", "100,64;100,64", "FLOAT")).expect("an answer");
    assert_eq!(scaled.source.to_string(), "scaled");
    assert!((scaled.confidence - 0.9).abs() < 1e-12 && (scaled.rows[0].latency.0 - 4.0).abs() < 1e-12);
}

#[test]
fn dimensions_of_all_ranks_are_divided() {
    let database = TestDatabase::new(&[(
        "QuantBatchMatmulV3",
        &["64,1024;1024,512 | INT8;INT8 | | 64,512 | DT_BF16 | 5"],
    )]);
    let engine = database.engine(
        "operator_mappings:\n  q:\n    kernel_type: QuantBatchMatmulV3\n    tc_input_count: 2\n    \
         tp_linear_projection: {shard_axis: input, logical_global_dims: [16384], otherwise: physical_local}\n",
    );
    let shown_with = |shapes: &str, tp: Option<u64>| {
        shown(&engine.lookup(&OpQuery { tp_size: tp, ..query("q", shapes, "INT8") }).expect("an answer"))
    };
    assert_eq!(shown_with("64,16384;16384,512", Some(16)), "5 identity QuantBatchMatmulV3:2");
    assert_eq!(shown_with("64,1024;1024,512", Some(16)), "5 identity QuantBatchMatmulV3:2");
    assert_eq!(shown_with("64,16384;16384,512", Some(1)), "shape_mismatch");
    assert_eq!(
        shown_with("64,16384;16384,512", None),
        "tp_projection_invalid:logical_dim=16384;shard_axis=input;tp_size=unknown"
    );
    assert!(shown_with("64,16384;16384,512", Some(3)).starts_with("tp_projection_invalid"));
}

#[test]
fn projections_that_halve_their_input_are_plain_products() {
    let database = TestDatabase::new(&[
        ("MatMulV2", &["8,512;256,512 | DT_BF16;DT_BF16 | | 8,256 | DT_BF16 | 3"]),
        (
            "Q",
            &[
                "8,512;512,256 | INT8;INT8 | | 8,256 | DT_BF16 | 5",
                "8,512;512,128 | INT8;INT8 | | 8,128 | DT_BF16 | 6",
            ],
        ),
    ]);
    let engine = database.engine(
        "operator_mappings: {p: {kernel_type: Q, tc_input_count: 2, query_mode: mtp_projection, mtp_projection_kernel_type: MatMulV2}}\n",
    );
    let with_output = |shapes: &str, output: &str| {
        let query = OpQuery { outputs: tensors(output, "BF16"), ..query("p", shapes, "INT8") };
        shown(&engine.lookup(&query).expect("an answer"))
    };
    assert_eq!(with_output("8,512;512,256", "8,256"), "3 transpose MatMulV2:2");
    assert_eq!(with_output("8,512;512,128", "8,128"), "6 identity Q:3");
    assert_eq!(with_output("8,512;512,256", ""), "5 identity Q:2");
}

#[test]
fn a_miss_shows_the_nearest_rows() {
    let database = TestDatabase::new(&[(
        "MatMulV2",
        &[
            "136,5120;768,5120 | DT_BF16;DT_BF16 | | 136,768 | DT_BF16 | 10",
            "4,4;4,4 | DT_BF16;DT_BF16 | | 4,4 | DT_BF16 | 1",
            "100,5120;768,5120 | INT8;INT8 | | 100,768 | INT8 |",
        ],
    )]);
    let engine = database.engine("");
    let nearest = engine.nearest_rows(&query("MatMulV2", "100,5120;5120,768", "BF16"), 2).expect("rows");
    let lines: Vec<_> = nearest.iter().map(|row| (row.line, row.latency.map(|latency| latency.0))).collect();
    assert_eq!(lines, [(2, Some(10.0)), (4, None)]);
}

#[test]
fn a_table_that_cannot_be_read_is_an_error() {
    let database = TestDatabase::new(&[("Add", &["1 | DT_BF16 | | 1 | DT_BF16 | 2"])]);
    fs::write(database.path().join("Mul.csv"), "version https://git-lfs.github.com/spec/v1\n")
        .expect("written");
    let engine = database.engine("");
    let error = engine.lookup(&query("Mul", "1", "BF16")).expect_err("a pointer");
    assert!(error.message.contains("is a Git LFS pointer") && error.hint.contains("git lfs pull"));
    assert_eq!(shown(&engine.lookup(&query("Add", "1", "BF16")).expect("readable")), "2 identity Add:2");
    assert!(engine.load_all().is_err());
}

/// A slice has the inputs of any other one of its source.
#[test]
fn rows_with_other_outputs_do_not_answer() {
    let database = TestDatabase::new(&[(
        "Slice",
        &[
            "1000,64;2 | DT_BF16;INT64 | | 10,64 | DT_BF16 | 2",
            "1000,64;2 | DT_BF16;INT64 | | 900,64 | DT_BF16 | 20",
            "1000,64;2 | DT_BF16;INT64 | | 1,900,64 | DT_BF16 | 22",
            "500,64;2 | DT_BF16;INT64 | | 10,64 | DT_BF16 | 3",
            "500,64;2 | DT_BF16;INT64 | | 20,64 | DT_BF16 | 3",
        ],
    )]);
    let engine = database.engine("");
    let shown_with = |inputs: &str, outputs: &str| {
        let query = OpQuery { outputs: tensors(outputs, "BF16"), ..query("Slice", inputs, "BF16;INT64") };
        shown(&engine.lookup(&query).expect("readable"))
    };
    assert_eq!(shown_with("1000,64;2", ""), "ambiguous_output");
    assert_eq!(shown_with("1000,64;2", "10,64"), "2 identity Slice:2");
    assert_eq!(shown_with("1000,64;2", "900,64"), "20 identity Slice:3");
    assert_eq!(shown_with("1000,64;2", "500,64"), "output_mismatch");
    assert_eq!(shown_with("500,64;2", ""), "3 identity Slice:5");
    // Rows on both sides with outputs that do not grow with the tokens alike are no line.
    assert_eq!(shown_with("700,64;2", ""), "shape_mismatch");
}

/// Equal inputs of a kernel may belong to another operation, which the recorded output shows.
#[test]
fn rows_of_kernels_have_the_output_of_the_query() {
    let database = TestDatabase::new(&[
        (
            "MatMulV3",
            &[
                "4096,1024;4096,1024 | DT_BF16;DT_BF16 | | 4096,4096 | DT_BF16 | 166",
                "2048,1024;4096,1024 | DT_BF16;DT_BF16 | | 2048,4096 | DT_BF16 | 90",
                // The left side is transposed.
                "3072,1024;3072,1024 | DT_BF16;DT_BF16 | | 1024,1024 | DT_BF16 | 30",
            ],
        ),
        ("Cast", &["4096 | FLOAT | | 4096 | DT_BF16 | 5"]),
        (
            "Slice",
            &[
                "1000,8,512;3;3 | DT_BF16;INT64;INT64 | | 1000,8,128 | DT_BF16 | 2",
                "2000,8,512;3;3 | DT_BF16;INT64;INT64 | | 2000,8,256 | DT_BF16 | 8",
                "4000,8,512;3;3 | DT_BF16;INT64;INT64 | | 4000,8,128 | DT_BF16 | 5",
                "4000,8,512;3;3 | DT_BF16;INT64;INT64 | | 4000,8,256 | DT_BF16 | 9",
                "1000,8,512;3;3 | DT_BF16;INT64;INT64 | | 7,8,512 | DT_BF16 | 1",
                "3000,8,512;3;3 | DT_BF16;INT64;INT64 | | 7,8,512 | DT_BF16 | 1.5",
            ],
        ),
    ]);
    let engine = database.engine("operator_mappings:\n  mm: {kernel_type: MatMulV3}\n");
    let answered = |op: &str, inputs: &str, dtypes: &str, output: (&str, &str)| {
        let outputs = tensors(output.0, output.1);
        shown(&engine.lookup(&OpQuery { outputs, ..query(op, inputs, dtypes) }).expect("readable"))
    };
    let bf16 = "BF16;BF16";
    for (op, inputs, dtypes, output, expected) in [
        ("MatMulV3", "4096,1024;4096,1024", bf16, ("4096,4096", "BF16"), "166 identity MatMulV3:2"),
        ("MatMulV3", "4096,1024;4096,1024", bf16, ("1024,1024", "BF16"), "output_mismatch"),
        // A product that accumulates into FLOAT is another call.
        ("MatMulV3", "4096,1024;4096,1024", bf16, ("4096,4096", "FLOAT"), "output_mismatch"),
        // An operator has the output of a framework, which says nothing of the kernel's.
        ("mm", "4096,1024;4096,1024", bf16, ("1024,1024", "BF16"), "166 identity MatMulV3:2"),
        ("MatMulV3", "3072,1024;3072,1024", bf16, ("1024,1024", "BF16"), "30 identity MatMulV3:4"),
        // The transposed product is no row between the others.
        (
            "MatMulV3",
            "3072,1024;4096,1024",
            bf16,
            ("3072,4096", "BF16"),
            "128 interpolated_1d_linear over M MatMulV3:2 MatMulV3:3",
        ),
        ("MatMulV3", "3072,1024;4096,1024", bf16, ("1024,1024", "BF16"), "shape_mismatch"),
        ("Cast", "4096", "FLOAT", ("4096", "BF16"), "5 identity Cast:2"),
        ("Cast", "4096", "FLOAT", ("4096", "INT8"), "output_mismatch"),
        ("Slice", "4000,8,512;3;3", "BF16;INT64;INT64", ("4000,8,256", "BF16"), "9 identity Slice:5"),
        ("Slice", "4000,8,512;3;3", "BF16;INT64;INT64", ("1,1,1", "BF16"), "output_mismatch"),
        (
            "Slice",
            "3000,8,512;3;3",
            "BF16;INT64;INT64",
            ("3000,8,128", "BF16"),
            "4 interpolated_1d_linear over axis 0 Slice:2 Slice:4",
        ),
        (
            "Slice",
            "3000,8,512;3;3",
            "BF16;INT64;INT64",
            ("3000,8,256", "BF16"),
            "8.5 interpolated_1d_linear over axis 0 Slice:3 Slice:5",
        ),
        (
            "Slice",
            "2000,8,512;3;3",
            "BF16;INT64;INT64",
            ("7,8,512", "BF16"),
            "1.25 interpolated_1d_linear over axis 0 Slice:6 Slice:7",
        ),
    ] {
        assert_eq!(answered(op, inputs, dtypes, output), expected, "{op} {inputs} -> {output:?}");
    }
}

/// Rows of several numbers of ranks have the same inputs: the ranks of the query decide, and without them none answers.
#[test]
fn products_that_communicate_are_answered_by_rows_of_their_ranks() {
    let database = TestDatabase::new(&[
        (
            "MatmulReduceScatter",
            &[
                "64,512;512,128 | DT_BF16;DT_BF16 | | 32,128 | DT_BF16 | 10",
                "64,512;512,128 | DT_BF16;DT_BF16 | | 16,128 | DT_BF16 | 20",
            ],
        ),
        ("AllGatherMatmul", &["64,512;512,128 | DT_BF16;DT_BF16 | | 256,128;256,512 | DT_BF16;DT_BF16 | 30"]),
    ]);
    let header = "Input Shapes,Input Data Types,Input Formats,Output Shapes,Output Data Types,Output Formats,\
                  Average Duration(us),Runtime world_size\n";
    let row = |micros: u64, ranks: u64| {
        format!(
            "\"\"\"64,512;512,128\"\"\",DT_BF16;DT_BF16,ND;ND,\"\"\"64,128\"\"\",DT_BF16,ND,{micros},{ranks}\n"
        )
    };
    fs::write(database.path().join("MatmulAllReduce.csv"), format!("{header}{}{}", row(40, 4), row(80, 8)))
        .expect("written");
    let engine = database.engine("");
    let answered = |kernel: &str, ranks: Option<u64>| {
        shown(
            &engine.lookup(&OpQuery { ranks, ..query(kernel, "64,512;512,128", "BF16") }).expect("readable"),
        )
    };
    for (kernel, ranks, expected) in [
        ("MatmulReduceScatter", Some(2), "10 identity MatmulReduceScatter:2"),
        ("MatmulReduceScatter", Some(4), "20 identity MatmulReduceScatter:3"),
        ("MatmulReduceScatter", Some(8), "rank_count_mismatch: rows with these inputs are of 2, 4 ranks"),
        ("MatmulReduceScatter", Some(5), "shape_mismatch: 5 ranks cannot share 64 rows"),
        ("MatmulReduceScatter", None, "ranks_not_given"),
        ("AllGatherMatmul", Some(4), "30 identity AllGatherMatmul:2"),
        ("AllGatherMatmul", None, "ranks_not_given"),
        ("MatmulAllReduce", Some(4), "40 identity MatmulAllReduce:2"),
        ("MatmulAllReduce", Some(8), "80 identity MatmulAllReduce:3"),
        ("MatmulAllReduce", Some(2), "rank_count_mismatch: rows with these inputs are of 4, 8 ranks"),
        ("MatmulAllReduce", None, "open_attributes: Runtime world_size"),
    ] {
        assert_eq!(answered(kernel, ranks), expected, "{kernel} {ranks:?}");
    }
}
