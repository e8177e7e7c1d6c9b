//! Lookups in small databases.

use std::{fs, path::Path};

use tempfile::TempDir;

use super::*;
use crate::{
    database::Database,
    domain::{Dtype, TensorFormat},
    lookup::op_mapping::OpMapping,
};

const HEADER: &str = "Input Shapes,Input Data Types,Input Formats,Output Shapes,Output Data Types,Output Formats,\
                      Average Duration(us),Profiling Average Duration(us),MicroBench Verdict";

/// A database of tables, each with rows of `inputs | types | formats | outputs | output types | average | production |
/// verdict`; missing cells at the end are empty, formats are row-major by default.
pub(super) struct TestDatabase {
    folder: TempDir,
}

impl TestDatabase {
    pub(super) fn new(tables: &[(&str, &[&str])]) -> Self {
        let database = Self { folder: tempfile::tempdir().expect("a folder") };
        for (kernel, rows) in tables {
            let mut text = format!("{HEADER}\n");
            for row in *rows {
                let mut cells: Vec<&str> = row.split('|').map(str::trim).collect();
                cells.resize(8, "");
                let formats = |types: &str| types.split(';').map(|_| "ND").collect::<Vec<_>>().join(";");
                let input_formats = if cells[2].is_empty() { formats(cells[1]) } else { cells[2].to_owned() };
                text.push_str(&format!(
                    "\"\"\"{}\"\"\",{},{input_formats},\"\"\"{}\"\"\",{},{},{},{},{}\n",
                    cells[0],
                    cells[1],
                    cells[3],
                    cells[4],
                    formats(cells[4]),
                    cells[5],
                    cells[6],
                    cells[7]
                ));
            }
            fs::write(database.folder.path().join(format!("{kernel}.csv")), text).expect("written");
        }
        database
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(super) fn engine(&self, mapping: &str) -> LookupEngine {
        let mapping = (!mapping.is_empty())
            .then(|| OpMapping::parse(&self.path().join("op_mapping.yaml"), mapping).expect(mapping));
        LookupEngine::new(Database::open(self.path()).expect("a database"), mapping).expect("tables")
    }
}

pub(super) fn tensors(shapes: &str, dtype: &str) -> Vec<QueryTensor> {
    let shape = |shape: &str| -> Vec<u64> {
        shape.split(',').filter(|dim| !dim.is_empty()).map(|dim| dim.parse().expect("a number")).collect()
    };
    let shapes = shapes.split(';').filter(|shape| !shape.is_empty());
    let count = shapes.clone().count();
    let dtypes: Vec<&str> = if dtype.contains(';') { dtype.split(';').collect() } else { vec![dtype; count] };
    shapes
        .zip(dtypes)
        .map(|(dims, dtype)| QueryTensor { dims: shape(dims), dtype: Dtype::parse(dtype), format: None })
        .collect()
}

pub(super) fn query(op: &str, shapes: &str, dtype: &str) -> OpQuery {
    OpQuery { op: op.to_owned(), inputs: tensors(shapes, dtype), ..OpQuery::default() }
}

/// Returns the answer as `latency rule kernel:line`, or the reason of a miss.
pub(super) fn shown(answer: &LookupAnswer) -> String {
    let (Some(latency), Some(rule)) = (answer.latency, answer.rule) else {
        return answer.miss.as_ref().expect("a reason").to_string();
    };
    let rows: Vec<String> =
        answer.rows.iter().map(|row| format!(" {}:{}", row.kernel.as_str(), row.line)).collect();
    format!("{} {rule}{}", (latency.0 * 1e6).round() / 1e6, rows.concat())
}

fn check(engine: &LookupEngine, cases: &[(&str, &str, &str, &str)]) {
    for (op, shapes, dtype, expected) in cases {
        let answer = engine.lookup(&query(op, shapes, dtype)).expect("readable tables");
        assert_eq!(shown(&answer), *expected, "{op} {shapes} {dtype}");
    }
}

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
            ("quant", "16,8,128", "BF16", "6 merge_last_dims+padding DynamicQuant:2"),
            ("quant", "4,4,1024", "BF16", "6 flatten_3d+padding DynamicQuant:2"),
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
    ];
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
            ("Neg", "7000,7000", "BF16", "not_measured"),
            ("Neg", "8000,8000", "BF16", "3 identity Neg:9"),
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
        "latency_policy: {kernel_overrides: {LightningIndexer: {prefer_profiling_rows: true}}}\n\
         query_selection_policy: {kernel_overrides: {KvRmsNormRopeCache: {require_semantic_unique: true}}}\n\
         operator_mappings:\n  li: {kernel_type: LightningIndexer, tc_input_count: 1}\n  \
         kv: {kernel_type: KvRmsNormRopeCache, tc_input_count: 1}\n  sort: {kernel_type: Sort, tc_input_count: 1}\n",
    );
    check(
        &engine,
        &[
            ("li", "64,8", "BF16", "20 identity LightningIndexer:3"),
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
            ("add", "200,64;200,1", "BF16", "6 elementwise Add:3"),
            ("add", "200,64;200,64", "FLOAT", "16 elementwise+dtype_scale Add:4"),
            ("add", "200,64;64", "FLOAT", "12 elementwise+dtype_scale Add:3"),
            ("add", "3,65;3,65", "BF16", "elementwise_output_shape_mismatch"),
        ],
    );
    let scaled = engine.lookup(&query("add", "100,64;100,64", "FLOAT")).expect("an answer");
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
    assert!(error.to_string().contains("is a Git LFS pointer") && error.hint().contains("git lfs pull"));
    assert_eq!(shown(&engine.lookup(&query("Add", "1", "BF16")).expect("readable")), "2 identity Add:2");
    assert!(engine.load_all().is_err());
}

const INTERPOLATION_MAPPING: &str = "interpolation_policy: {kernel_overrides: {MatMulV2: {max_interpolation_dim: 1}, \
    GatherV2: {generic_compute: {axis: output_numel}}, Conv: {max_interpolation_dim: 0}}}\noperator_mappings:\n  \
    mm: {kernel_type: MatMulV2}\n  mm3: {kernel_type: MatMulV3}\n  norm: {kernel_type: RmsNorm}\n  \
    emb: {kernel_type: GatherV2, tc_input_count: 2}\n  add: {kernel_type: Add, query_mode: elementwise}\n  \
    quant: {kernel_type: DynamicQuant, tc_input_count: 1, compute_subcategory: compute_scale}\n  conv: {kernel_type: Conv}\n";

#[test]
fn values_between_rows_are_interpolated() {
    let product = |m: u64, k: u64, n: u64, latency: &str| {
        format!("{m},{k};{n},{k} | DT_BF16;DT_BF16 | | {m},{n} | DT_BF16 | {latency}")
    };
    let products = [
        product(100, 512, 64, "10"),
        product(200, 512, 64, "20"),
        product(200, 512, 128, "30"),
        product(400, 512, 128, "60"),
        product(400, 512, 128, "62"),
        product(400, 512, 128, "90"),
        product(100, 1024, 256, "7 |"),
        product(300, 1024, 256, "| 9"),
        product(100, 2048, 256, "| 4"),
        product(300, 2048, 256, "| 8"),
    ];
    let products: Vec<&str> = products.iter().map(String::as_str).collect();
    let database = TestDatabase::new(&[
        ("MatMulV2", &products),
        ("MatMulV3", &products),
        (
            "RmsNorm",
            &[
                "100,5120;5120 | DT_BF16;DT_BF16 | | 100,5120 | DT_BF16 | 10",
                "500,5120;5120 | DT_BF16;DT_BF16 | | 500,5120 | DT_BF16 | 30",
                "900,5120;5120 | FLOAT;FLOAT | | 900,5120 | FLOAT | 90",
                "900,4096;4096 | DT_BF16;DT_BF16 | | 900,4096 | DT_BF16 | 90",
            ],
        ),
        (
            "GatherV2",
            &[
                "1000,64;10;1 | DT_BF16;INT64;INT64 | | 10,64 | DT_BF16 | 10",
                "9000,64;30;1 | DT_BF16;INT64;INT64 | | 30,64 | DT_BF16 | 30",
            ],
        ),
        (
            "Add",
            &[
                "100,64;100,64 | DT_BF16;DT_BF16 | | 100,64 | DT_BF16 | 10",
                "300,64;300,64 | DT_BF16;DT_BF16 | | 300,64 | DT_BF16 | 30",
                "300,64;64 | DT_BF16;DT_BF16 | | 300,64 | DT_BF16 | 25",
            ],
        ),
        (
            "DynamicQuant",
            &[
                "100,512 | DT_BF16 | | 100,512;100 | INT8;FLOAT | 10",
                "300,512 | DT_BF16 | | 300,512;300 | INT8;FLOAT | 30",
            ],
        ),
        ("Conv", &["100,8 | DT_BF16 | | 100,8 | DT_BF16 | 10", "300,8 | DT_BF16 | | 300,8 | DT_BF16 | 30"]),
    ]);
    check(
        &database.engine(INTERPOLATION_MAPPING),
        &[
            ("mm", "150,512;512,64", "BF16", "15 interpolated_1d_linear over M MatMulV2:2 MatMulV2:3"),
            ("mm", "1,150,512;512,64", "BF16", "15 interpolated_1d_linear over M MatMulV2:2 MatMulV2:3"),
            // The median of three equal rows is 62.
            (
                "mm",
                "300,512;512,128",
                "BF16",
                "46 interpolated_1d_linear over M MatMulV2:4 MatMulV2:5 MatMulV2:6 MatMulV2:7",
            ),
            ("mm", "200,512;512,96", "BF16", "25 interpolated_1d_linear over N MatMulV2:3 MatMulV2:4"),
            ("mm", "150,512;512,96", "BF16", "shape_mismatch"),
            ("mm", "150,768;768,64", "BF16", "shape_mismatch"),
            ("mm", "90,512;512,64", "BF16", "shape_mismatch"),
            ("mm", "150,512;512,64", "INT8", "shape_mismatch"),
            // Replay and production are not mixed.
            ("mm", "200,1024;1024,256", "BF16", "shape_mismatch"),
            ("mm", "200,2048;2048,256", "BF16", "6 interpolated_1d_linear over M MatMulV2:10 MatMulV2:11"),
            (
                "mm3",
                "220,512;512,80",
                "BF16",
                "25.7 interpolated_2d_griddata_linear over M, N MatMulV3:3 MatMulV3:4 MatMulV3:5 MatMulV3:6 MatMulV3:7",
            ),
            ("norm", "300,5120;5120", "BF16", "20 interpolated_1d_linear over axis 0 RmsNorm:2 RmsNorm:3"),
            ("norm", "700,5120;5120", "BF16", "shape_mismatch"),
            ("norm", "300,4096;4096", "BF16", "shape_mismatch"),
            (
                "emb",
                "5000,64;20",
                "BF16;INT64",
                "20 interpolated_1d_linear over output_numel GatherV2:2 GatherV2:3",
            ),
            ("add", "200,64;200,64", "BF16", "20 interpolated_1d_linear over io_numel Add:2 Add:3"),
            ("add", "200,64;64", "BF16", "elementwise_output_shape_mismatch"),
            ("quant", "200,512", "BF16", "20 interpolated_1d_linear over M DynamicQuant:2 DynamicQuant:3"),
            ("quant", "2,100,512", "BF16", "20 interpolated_1d_linear over M DynamicQuant:2 DynamicQuant:3"),
            ("conv", "200,8", "BF16", "shape_mismatch"),
            ("Conv", "200,8", "BF16", "shape_mismatch"),
        ],
    );
}

/// The work of attention follows from lengths, that of communicating kernels from the number of ranks.
#[test]
fn rows_with_open_attributes_do_not_answer_by_shapes() {
    let database = TestDatabase::new(&[]);
    let write = |kernel: &str, attribute: &str, rows: [(u32, u32, u32); 3]| {
        let rows = rows.map(|(tokens, value, latency)| {
            format!("\"{tokens},8\",DT_BF16,ND,\"{tokens},8\",DT_BF16,ND,{latency},,,{value}\n")
        });
        let text = format!("{HEADER},{attribute}\n{}", rows.concat());
        fs::write(database.path().join(format!("{kernel}.csv")), text).expect("written");
    };
    write("Attention", "Runtime avg_seq_len", [(100, 4096, 10), (100, 8192, 20), (300, 4096, 30)]);
    write("Combine", "EP Size", [(100, 8, 10), (300, 8, 30), (500, 8, 50)]);
    write("Cache", "Runtime cache_mode", [(100, 1, 10), (100, 2, 20), (300, 1, 30)]);
    check(
        &database.engine(""),
        &[
            ("Attention", "100,8", "BF16", "open_attributes: Runtime avg_seq_len"),
            ("Attention", "200,8", "BF16", "shape_mismatch"),
            ("Combine", "100,8", "BF16", "open_attributes: EP Size"),
            ("Combine", "200,8", "BF16", "shape_mismatch"),
            ("Cache", "100,8", "BF16", "open_attributes: Runtime cache_mode"),
            ("Cache", "300,8", "BF16", "30 identity Cache:4"),
            ("Cache", "200,8", "BF16", "shape_mismatch"),
        ],
    );
}

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
        // An operator's input is that of all ranks, a kernel's message the output of one.
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

/// A table of attention: rows of `query | key | runtime columns | latency`, the columns being length of keys, sparse
/// mode, heads of keys, layout.
fn attention_table(rows: &[(&str, &str, &str, &str)]) -> TestDatabase {
    let database = TestDatabase::new(&[]);
    let mut text = format!(
        "{HEADER},Runtime avg_seq_len,Runtime sparse_mode,Runtime num_key_value_heads,Runtime input_layout\n"
    );
    for (query, key, columns, latency) in rows {
        text.push_str(&format!(
            "\"{query};{key};{key}\",DT_BF16;DT_BF16;DT_BF16,ND;ND;ND,\"{query}\",DT_BF16,ND,{latency},,,{columns}\n"
        ));
    }
    fs::write(database.path().join("FusedInferAttentionScore.csv"), text).expect("written");
    database
}

const ATTENTION_MAPPING: &str = "query_selection_policy: {kernel_overrides: {FusedInferAttentionScore: \
    {require_semantic_unique: true}}}\noperator_mappings:\n  \
    attn: {kernel_type: FusedInferAttentionScore, query_mode: attention_special}\n";

fn attention_query(shapes: &str, kv_length: f64) -> OpQuery {
    let attention = AttentionParameters { kv_length: Some(kv_length), ..AttentionParameters::default() };
    OpQuery { attention, ..query("attn", shapes, "BF16") }
}

#[test]
fn attention_is_found_by_shape_and_mean_length_of_keys() {
    let cache = "512,128,8,128";
    let database = attention_table(&[
        ("100,64,128", cache, "4096,3,8,TND", "50"),
        ("100,64,128", cache, "4110,3,8,TND", "52"),
        ("100,64,128", cache, "9000,3,8,TND", "90"),
        ("100,64,128", cache, "9000,3,8,TND", "95"),
        ("100,64,128", cache, "2000,0,8,TND", "20"),
        ("100,64,128", cache, "3000,3,4,TND", "30"),
        ("100,32,128", cache, "3000,3,8,TND", "31"),
        ("7,64,1,128", cache, "500,3,8,BNSD_NBSD", "5"),
        ("100,64,128", cache, "-1,3,8,TND", "1"),
        ("100,64,128", cache, ",3,8,TND", "2"),
    ]);
    let engine = database.engine(ATTENTION_MAPPING);
    let shown_at = |shapes: &str, length: f64| {
        let answer = engine.lookup(&attention_query(shapes, length)).expect("readable");
        if answer.source == AnswerSource::Measured {
            assert!((answer.confidence - 0.9).abs() < 1e-12);
        }
        shown(&answer)
    };
    let keys = |query: &str| format!("{query};{cache}");
    for (query, length, expected) in [
        ("100,64,128", 4096.0, "50 attention FusedInferAttentionScore:2"),
        ("100,64,128", 4104.5, "52 attention FusedInferAttentionScore:3"),
        ("100,64,128", 4112.0, "52 attention FusedInferAttentionScore:3"),
        ("112,64,128", 4096.0, "50 attention+padding FusedInferAttentionScore:2"),
        ("98,64,128", 4096.0, "shape_mismatch"),
        ("100,64,128", 9000.0, "ambiguous_semantic_match:FusedInferAttentionScore"),
        ("100,64,128", 2000.0, "shape_mismatch"),
        ("100,64,128", 20.0, "shape_mismatch"),
        ("100,16,128", 3000.0, "shape_mismatch"),
        ("7,64,1,128", 505.0, "5 attention FusedInferAttentionScore:9"),
        ("7,64,1,128", 516.0, "shape_mismatch"),
        ("100,8192", 4096.0, "50 attention FusedInferAttentionScore:2"),
    ] {
        assert_eq!(shown_at(&keys(query), length), expected, "{query} {length}");
    }
    let mut bare = attention_query(&keys("100,64,128"), 4096.0);
    bare.attention.sparse_mode = Some("0".to_owned());
    bare.attention.kv_length = Some(2000.0);
    assert_eq!(shown(&engine.lookup(&bare).expect("readable")), "20 attention FusedInferAttentionScore:6");
    bare.attention.kv_length = None;
    assert_eq!(
        shown(&engine.lookup(&bare).expect("readable")),
        "semantic_context_missing:target:avg_seq_len"
    );
    let by_name =
        OpQuery { op: "FusedInferAttentionScore".to_owned(), ..attention_query(&keys("100,64,128"), 4096.0) };
    assert_eq!(shown(&engine.lookup(&by_name).expect("readable")), "50 attention FusedInferAttentionScore:2");
}

#[test]
fn attention_is_interpolated_along_the_length_of_keys() {
    let cache = "512,128,8,128";
    let database = attention_table(&[
        ("100,64,128", cache, "1000,3,8,TND", "100"),
        ("100,64,128", cache, "4000,3,8,TND", "1600"),
        ("200,64,128", cache, "100,3,8,TND", "10"),
        ("200,64,128", cache, "400,3,8,TND", "20"),
        ("300,16,128", cache, "1000,3,8,TND", "10"),
        ("300,48,128", cache, "1000,3,8,TND", "30"),
    ]);
    let shown_at = |mapping: &str, shape: &str, length: f64| {
        let engine = database.engine(mapping);
        shown(&engine.lookup(&attention_query(&format!("{shape};{cache}"), length)).expect("readable"))
    };
    let rows =
        |first: u32| format!("FusedInferAttentionScore:{first} FusedInferAttentionScore:{}", first + 1);
    let line = |value: &str, first: u32| format!("{value} interpolated_1d_linear over seq {}", rows(first));
    assert_eq!(shown_at(ATTENTION_MAPPING, "100,64,128", 2000.0), line("600", 2));
    assert_eq!(shown_at(ATTENTION_MAPPING, "100,64,128", 4100.0), "shape_mismatch");
    let sqrt = format!(
        "interpolation_policy: {{kernel_overrides: {{FusedInferAttentionScore: {{axis_transform: sqrt_seq}}}}}}\n{ATTENTION_MAPPING}"
    );
    let expected = format!("15 interpolated_1d_linear_sqrt over seq {}", rows(4));
    assert_eq!(shown_at(&sqrt, "200,64,128", 225.0), expected);
    let expected = format!("20 interpolated_1d_linear over heads {}", rows(6));
    assert_eq!(shown_at(&sqrt, "300,32,128", 1000.0), expected);
}

const MOE_MAPPING: &str = "communication_data_ref: hccl\noperator_mappings:\n  \
    moe: {kernel_type: DispatchFFNCombine, query_mode: moe_fused, project_full_shape: true}\n  quant:\n    \
    kernel_type: DispatchFFNCombine\n    query_mode: moe_fused\n    project_full_shape: true\n    embedded_compute:\n      \
    - {kernel_type: AddRmsNormBias, input_projection: residual_norm_from_activation}\n      \
    - {kernel_type: Cast, input_projection: routing_weight_cast, output_dtype: FLOAT}\n    \
    embedded_communication: {kernel_type: hcom_alltoall_, message_bytes_mode: routed_input, \
    group_type: expert_parallel, interpolation_method: alpha_beta}\n";

#[test]
fn mixtures_of_experts_need_their_number_of_ranks() {
    let database = TestDatabase::new(&[
        (
            "AddRmsNormBias",
            &["100,64;100,64;64;64 | DT_BF16;DT_BF16;DT_BF16;DT_BF16 | | 100,64 | DT_BF16 | 3"],
        ),
        ("Cast", &["100,8 | DT_BF16 | | 100,8 | INT32 | 9", "100,8 | DT_BF16 | | 100,8 | FLOAT | 2"]),
    ]);
    let row = |tokens: u32, ep: &str, latency: u32| {
        format!(
            "\"{tokens},64;2,64,32;2,16,64;{tokens},8;64;128;{tokens},8\",DT_BF16;INT8;INT8;INT32;INT64;INT64;FLOAT,\
             ND;ND;ND;ND;ND;ND;ND,\"{tokens},64\",DT_BF16,ND,{latency},,,{ep}\n"
        )
    };
    let rows = [row(100, "16", 50), row(300, "16", 90), row(100, "8", 40), row(700, "", 70)];
    let text = format!("{HEADER},EP Size\n{}", rows.concat());
    fs::write(database.path().join("DispatchFFNCombine.csv"), text).expect("written");
    fs::create_dir(database.path().join("hccl")).expect("created");
    // The message of 100 tokens is 100·64·2·8 bytes.
    let table = "message_bytes,num_devices,topology_tier,Duration(us)\n102400,16,0,5\n204800,16,0,7\n";
    fs::write(database.path().join("hccl/hcom_alltoall_.csv"), table).expect("written");
    let engine = database.engine(MOE_MAPPING);
    let lookup = |op: &str, tokens: u32, ep_size: Option<u64>| {
        let shapes = format!("{tokens},64;{tokens},8;2,64,32;2,16,64");
        let query = OpQuery { ep_size, ..query(op, &shapes, "DT_BF16;INT64;INT8;INT8") };
        engine.lookup(&query).expect("readable")
    };
    for (tokens, ep_size, expected) in [
        (100, Some(16), "50 identity DispatchFFNCombine:2"),
        (100, Some(8), "40 identity DispatchFFNCombine:4"),
        (112, Some(16), "50 padding DispatchFFNCombine:2"),
        (200, Some(16), "70 interpolated_1d_linear over axis 0 DispatchFFNCombine:2 DispatchFFNCombine:3"),
        (200, Some(8), "shape_mismatch"),
        (100, Some(4), "shape_mismatch"),
        (700, Some(16), "shape_mismatch"),
        (100, None, "ep_size_not_configured"),
    ] {
        assert_eq!(shown(&lookup("moe", tokens, ep_size)), expected, "{tokens} {ep_size:?}");
    }
    let unfit = OpQuery { ep_size: Some(16), ..query("moe", "100,64;100,8", "BF16") };
    assert_eq!(shown(&engine.lookup(&unfit).expect("readable")), "decompose_failed");
    let fused = lookup("quant", 100, Some(16));
    assert_eq!(shown(&fused), "60 sum_of_parts");
    let parts: Vec<String> = fused.parts.iter().map(|part| shown(&part.answer)).collect();
    assert_eq!(
        parts,
        [
            "50 identity DispatchFFNCombine:2",
            "3 identity AddRmsNormBias:2",
            "2 identity Cast:3",
            "5 comm hcom_alltoall_:2"
        ]
    );
    // Without norm and cast the sum is partial; the message is larger than all measured ones, so that it is not sent.
    let partial = lookup("quant", 300, Some(16));
    assert_eq!((partial.source, partial.parts.len()), (AnswerSource::Partial, 3));
    assert!((partial.confidence - 1.0 / 3.0).abs() < 1e-12);
    assert!(
        partial
            .miss
            .as_ref()
            .is_some_and(|reason| reason.to_string().starts_with("sub_kernel_miss:AddRmsNormBias"))
    );
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
    assert_eq!(shown_with("1000,64;2", "500,64"), "ambiguous_output");
    assert_eq!(shown_with("500,64;2", ""), "3 identity Slice:5");
    // Rows on both sides with outputs that do not grow with the tokens alike are no line.
    assert_eq!(shown_with("700,64;2", ""), "shape_mismatch");
}
