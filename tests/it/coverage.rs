//! `coverage`: questions of workloads, metrics, gaps with what closes them, and the files of the result.

use std::{collections::BTreeMap, fs};

use npubench::{
    answer::{
        coverage::{
            AnswerClass, CoverageAnalyzer, WorkloadCoverage, coverage_gaps, coverage_metrics, kernel_coverage,
        },
        lookup::LookupEngine,
        op_mapping::OpMapping,
        workload::{QuestionDefaults, load_workload},
    },
    base::assets::AssetFiles,
    database::Database,
    kernel::catalogue::Catalogue,
};
use proptest::prelude::*;
use serde_json::Value;

use crate::{
    context::{Context, Ran},
    requirements::shared,
};

const HEADER: &str = "Input Shapes,Input Data Types,Input Formats,Output Shapes,Output Data Types,Output Formats,\
                      Average Duration(us),Profiling Average Duration(us)\n";

/// A database of three kernels and a collective, with a mapping.
fn database() -> Context {
    let context = Context::new();
    let rows = [
        "\"100,64;64,32\",DT_BF16;DT_BF16,ND;ND,\"100,32\",DT_BF16,ND,10,\n",
        "\"200,64;64,32\",DT_BF16;DT_BF16,ND;ND,\"200,32\",DT_BF16,ND,20,\n",
        "\"8,64;64,32\",DT_BF16;DT_BF16,ND;ND,\"8,32\",DT_BF16,ND,,\n",
    ];
    context.write("db/MatMulV2.csv", &(HEADER.to_owned() + &rows.concat()));
    let row = "\"8,64\",DT_BF16,ND,\"8,32\",DT_BF16,ND,3,\n";
    context.write("db/SwiGlu.csv", &(HEADER.to_owned() + row));
    let rows = "message_bytes,num_devices,dtype,topology_tier,Duration(us)\n16384,8,DT_BF16,1,30\n32768,8,DT_BF16,1,40\n";
    context.write("db/hcom_allReduce_.csv", rows);
    context.write(
        "db/op_mapping.yaml",
        "operator_mappings:\n  aten.mm.default: {kernel_type: MatMulV2}\n  aten.view.default: {zero_cost: true}\n  \
         tensor_cast.swiglu.default: {kernel_type: SwiGlu}\n  tensor_cast.matmul_all_reduce.default: {composite: true, \
         sub_kernels: [MatMulV2, hcom_allReduce_]}\n  tensor_cast.grouped_matmul.default: {kernel_type: MatMulV2}\n  \
         tensor_cast.all_to_all.default: {kernel_type: hcom_alltoallv_, category: communication}\n  \
         tensor_cast.mlapo.default: {composite: true, decomposer: true}\n  aten.convolution.default: {kernel_type: Conv2D}\n  \
         aten.odd.default: {kernel_type: NobodyHasThisKernel}\n  \
         tensor_cast.attention.default: {kernel_type: FusedInferAttentionScore, query_mode: attention_special}\n  \
         aten.permute.default: {zero_cost: true}\n  aten.index.Tensor: {kernel_type: Index, accepted_miss: true}\n",
    );
    context
}

fn opened(context: &Context) -> (LookupEngine, Catalogue) {
    let database = Database::open(&context.path("db")).expect("a database");
    let mapping = OpMapping::load(&context.path("db/op_mapping.yaml")).expect("a mapping");
    let engine = LookupEngine::new(database, Some(mapping)).expect("an engine");
    (engine, Catalogue::load(&AssetFiles::embedded()).expect("a catalogue"))
}

fn question(op: &str, inputs: &str, count: u64, micros: f64) -> String {
    format!("  - {{op: {op}, inputs: \"{inputs}\", dtypes: bf16, count: {count}, duration_us: {micros}}}\n")
}

/// A workload with every class of answer and every kind of gap.
fn mixed_workload() -> String {
    let mut text = "name: mixed\nquestions:\n".to_owned();
    for (op, inputs, count, micros) in [
        ("aten.mm.default", "100,64;64,32", 10, 10.0),
        ("aten.mm.default", "150,64;64,32", 4, 15.0),
        ("aten.mm.default", "8,64;64,32", 2, 5.0),
        ("aten.mm.default", "400,64;64,32", 3, 40.0),
        ("aten.mm.default", "800,64;64,32", 3, 80.0),
        ("aten.mm.default", "1600,64;64,32", 3, 160.0),
        ("aten.view.default", "8,64", 50, 0.0),
        ("tensor_cast.swiglu.default", "8,64", 6, 3.0),
        ("tensor_cast.matmul_all_reduce.default", "100,64;64,32", 1, 50.0),
        ("tensor_cast.all_to_all.default", "100,64", 1, 25.0),
        ("tensor_cast.mlapo.default", "100,64", 1, 20.0),
        ("aten.unknown.default", "100,64", 1, 15.0),
        ("aten.convolution.default", "100,64", 1, 14.0),
        ("aten.odd.default", "100,64", 1, 13.0),
        ("MemSet", "100", 1, 12.0),
        ("tensor_cast.attention.default", "8,4,128;512,128,1,128", 1, 11.0),
    ] {
        text.push_str(&question(op, inputs, count, micros));
    }
    text
}

fn run_coverage(context: &Context, arguments: &[&str]) -> Ran {
    context.run(&[&["coverage", "--db", "db"], arguments].concat())
}

fn json_lines(ran: &Ran) -> Vec<Value> {
    ran.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn totals_metrics_kernels_and_gaps_are_shown() {
    let context = database();
    context.write("mixed.yaml", &mixed_workload());
    let before = context.snapshot("db");
    let ran = run_coverage(&context, &["--workload", "mixed.yaml"]);
    assert_eq!(context.snapshot("db"), before);
    assert_eq!(ran.code, 1);
    insta::assert_snapshot!(format!("{}{}", ran.stdout, ran.stderr));
    let mut narrow = context.command(&["coverage", "--db", "db", "--workload", "mixed.yaml"]);
    let narrow = context.ran(&narrow.env("COLUMNS", "80").output().expect("it runs")).stdout;
    let gaps: Vec<&str> = narrow.lines().skip_while(|line| !line.starts_with(" gap ")).take(4).collect();
    insta::assert_snapshot!(gaps.join("\n"), @r"
     gap                inputs            time ms    share  closed by
     aten.mm.default    DT_BF16...64,32]    0.480  40.40 %  interpolati...ose 3 gaps
     aten.mm.default    DT_BF16...64,32]    0.240  20.20 %  interpolati...ose 3 gaps
     aten.mm.default    DT_BF16...64,32]    0.120  10.10 %  interpolati...ose 3 gaps
    ");
}

/// The metrics of the workload, by hand.
#[test]
fn metrics_follow_their_definitions() {
    let context = database();
    context.write("mixed.yaml", &mixed_workload());
    let ran = run_coverage(&context, &["--workload", "mixed.yaml", "--json", "--ranks", "8", "--tier", "1"]);
    let lines = json_lines(&ran);
    let metric = |name: &str| {
        let metric = &lines[0]["metrics"][name];
        (metric["hits"].as_f64().expect("hits"), metric["total"].as_f64().expect("a total"))
    };
    // Hits: mm 10 + 4, view 50, swiglu 6. The message of the composite, 100 x 32 elements of two bytes, is below the
    // table's.
    assert_eq!(metric("M1"), (70.0, 89.0));
    // Functions: mm, view, swiglu, MC2, DispatchFFNCombine (all_to_all), MLAPO, unknown, convolution, odd, MemSet,
    // attention; mm has misses.
    assert_eq!(metric("M2"), (2.0, 11.0));
    assert_eq!(metric("M3"), (1.0, 10.0));
    // Shapes: 6 of mm of which 2 hit, swiglu, and 8 others.
    assert_eq!(metric("M4"), (3.0, 15.0));
    // 10 x 10 + 4 x 15 + 6 x 3 of these and 2 x 5 + 3 x 280 + 160 us.
    assert_eq!(metric("M5"), (178_000.0, 178_000.0 + 10_000.0 + 840_000.0 + 160_000.0));
    let gaps = lines[1]["gaps"].as_array().expect("gaps");
    let closing: BTreeMap<&str, &str> = gaps
        .iter()
        .map(|gap| (gap["op"].as_str().expect("a name"), gap["closing"].as_str().expect("a kind")))
        .collect();
    assert_eq!(closing["tensor_cast.matmul_all_reduce.default"], "collective_rows");
    assert_eq!(closing["tensor_cast.all_to_all.default"], "collective_rows");
    assert_eq!(closing["tensor_cast.mlapo.default"], "query_parameter");
    assert_eq!(closing["aten.unknown.default"], "mapping_entry");
    assert_eq!(closing["aten.convolution.default"], "not_launchable");
    assert_eq!(closing["aten.odd.default"], "catalogue_entry");
    assert_eq!(closing["MemSet"], "not_launchable");
    assert_eq!(closing["tensor_cast.attention.default"], "query_parameter");
    let of_mm: Vec<(&str, &str)> = gaps
        .iter()
        .filter(|gap| gap["op"] == "aten.mm.default")
        .map(|gap| (gap["closing"].as_str().expect("a kind"), gap["reason"].as_str().expect("a reason")))
        .collect();
    let bracket = ("interpolation_bracket", "shape_mismatch");
    assert_eq!(of_mm, [bracket, bracket, bracket, ("existing_row", "not_measured")]);
    assert_eq!(gaps[0]["closed_by"], "interpolation bracket of MatMulV2: 400 and 1600 tokens close 3 gaps");
    // The longest time first.
    let times: Vec<f64> = gaps.iter().map(|gap| gap["time_us"].as_f64().expect("a time")).collect();
    assert!(times.is_sorted_by(|one, other| one >= other), "{times:?}");
    let documented =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/coverage.md")).expect("a document");
    let kernels = lines[0]["kernels"].as_array().expect("kernels");
    for object in lines.iter().chain(kernels).chain(gaps) {
        for key in object.as_object().expect("an object").keys() {
            assert!(documented.contains(&format!("`{key}`")), "`{key}` is not documented");
        }
    }
}

/// The named rows close their gaps: an exact case its own, the two of a bracket all between them.
#[test]
fn gaps_are_closed_by_what_they_name() {
    let context = database();
    context.write("mixed.yaml", &mixed_workload());
    let row = |tokens: u32| {
        format!("\"{tokens},64;64,32\",DT_BF16;DT_BF16,ND;ND,\"{tokens},32\",DT_BF16,ND,{tokens},\n")
    };
    let path = context.path("db/MatMulV2.csv");
    let table = fs::read_to_string(&path).expect("a table").replace("ND,,\n", "ND,1,\n");
    fs::write(&path, table + &row(400) + &row(1600)).expect("written");
    let messages = "message_bytes,num_devices,dtype,topology_tier,Duration(us)\n4096,8,DT_BF16,1,20\n16384,8,DT_BF16,1,30\n";
    context.write("db/hcom_allReduce_.csv", messages);
    context.write("db/FusedInferAttentionScore.csv", &attention_table());
    let more = ["--ranks", "8", "--kv-length", "4100", "--json"];
    let lines = json_lines(&run_coverage(&context, &[&["--workload", "mixed.yaml"], &more[..]].concat()));
    let open: Vec<&str> =
        lines[1]["gaps"].as_array().expect("gaps").iter().filter_map(|gap| gap["op"].as_str()).collect();
    assert_eq!(
        open,
        [
            "tensor_cast.all_to_all.default",
            "tensor_cast.mlapo.default",
            "aten.unknown.default",
            "aten.convolution.default",
            "aten.odd.default",
            "MemSet"
        ]
    );
    // 10 x 10, 4 x 15, 2 x 1, 3 x (400 + 800 + 1600), swiglu 6 x 3, 10 + 20 + 10 x 2304 / 12288 of the sum, attention
    // 58, and the times of the six gaps.
    let composite = 10.0 + 20.0 + 10.0 * 2304.0 / 12288.0;
    let modelled = 100.0 + 60.0 + 2.0 + 8400.0 + 18.0 + composite + 58.0 + 99.0;
    assert!(
        (lines[0]["modelled_us"].as_f64().expect("a time") - modelled).abs() < 1e-6,
        "{}",
        lines[0]["modelled_us"]
    );
}

fn attention_table() -> String {
    let runtime = "Runtime avg_seq_len,Runtime sparse_mode,Runtime num_key_value_heads,Runtime input_layout";
    let row = "\"8,4,128;512,128,128\",DT_BF16;DT_BF16,ND;ND,\"8,4,128\",DT_BF16,ND,58,,4096,3,1,TND\n";
    format!("{},{runtime}\n{row}", HEADER.trim_end())
}

/// A partial answer counts as missing, and its known parts are modelled.
#[test]
fn partial_answers_are_missing() {
    let context = Context::new();
    let header = HEADER.trim_end();
    let row = "\"8,64;4,64,32;4,16,64;8,2;128;256;8,2\",DT_BF16;INT8;INT8;INT32;INT64;INT64;FLOAT,ND;ND;ND;ND;ND;ND;ND,\"8,64;4\",\
               DT_BF16;INT32,ND;ND,70,,2\n";
    context.write("db/DispatchFFNCombine.csv", &format!("{header},EP Size\n{row}"));
    let mapping = "operator_mappings:\n  fused_moe: {kernel_type: DispatchFFNCombine, query_mode: moe_fused, embedded_compute: \
                   [{kernel_type: Cast, input_projection: routing_weight_cast}]}\n";
    context.write("db/op_mapping.yaml", mapping);
    context.write(
        "list.csv",
        "op,inputs,dtypes,count,ep,duration_us\nfused_moe,\"8,64;4,64,32;4,16,64;8,2;128;256;8,2\",\
         \"bf16,int8,int8,int32,int64,int64,float32\",3,2,90\n",
    );
    let lines = json_lines(&run_coverage(&context, &["--workload", "list.csv", "--json"]));
    assert_eq!(lines[0]["metrics"]["M1"]["hits"], 0.0, "{}", lines[0]);
    assert_eq!(
        (&lines[0]["metrics"]["M5"]["total"], &lines[0]["modelled_us"]),
        (&Value::from(270_000.0), &Value::from(210.0))
    );
}

/// Worked examples of each metric: hits and total. Operators that the mapping lacks are misses.
#[test]
fn worked_examples_have_their_metrics() {
    let context = database();
    let (engine, catalogue) = opened(&context);
    let analyzer = CoverageAnalyzer { engine: &engine, catalogue: &catalogue };
    let product = ("aten.mm.default", "100,64;64,32", 1.0);
    let other = ("aten.mm.default", "9,9;9,9", 1.0);
    let free = ("aten.view.default", "8,64", 0.0);
    let permuted = ("aten.permute.default", "8,64", 0.0);
    let accepted = ("aten.index.Tensor", "8,64", 0.0);
    let gated = ("tensor_cast.swiglu.default", "8,64", 1.0);
    let wide = ("tensor_cast.swiglu.default", "8,999", 1.0);
    let embedding = ("aten.embedding.default", "8,64", 1.0);
    let experts = [
        ("tensor_cast.init_routing_v2.default", "8,64", 1.0),
        ("torch.ops.tensor_cast.grouped_matmul_quant_swiglu.default", "8,64", 1.0),
        ("tensor_cast.unpermute_tokens.default", "8,64", 1.0),
        ("tensor_cast.all_to_all.default", "8,64", 1.0),
    ];
    let with_experts = [&[product, gated, product, embedding], &experts[..]].concat();
    let long = |question: (&'static str, &'static str, f64), micros| (question.0, question.1, micros);
    // A fused group hits only if each of its members does, also where they are different operators.
    let grouped = ("tensor_cast.grouped_matmul.default", "100,64;64,32", 1.0);
    let exchange = ("tensor_cast.all_to_all.default", "100,64", 1.0);
    for (questions, metric, expected) in [
        (with_experts, "M2", [2.0, 4.0]),
        (vec![product, free, permuted, embedding], "M2", [3.0, 4.0]),
        (vec![product, free, permuted, embedding], "M3", [1.0, 2.0]),
        (vec![gated, product, free, wide, other, embedding], "M2", [1.0, 4.0]),
        (vec![gated, product, free, wide, other, embedding], "M3", [0.0, 3.0]),
        (vec![product, gated, other, wide], "M4", [2.0, 4.0]),
        (vec![product, free, permuted, other], "M4", [1.0, 2.0]),
        (vec![product, accepted], "M4", [1.0, 1.0]),
        (vec![product, product, product], "M4", [1.0, 1.0]),
        (vec![other], "M4", [0.0, 1.0]),
        (vec![product, gated, other], "M5", [2000.0, 3000.0]),
        (vec![product, long(other, 3.0)], "M5", [1000.0, 4000.0]),
        (vec![product, free, accepted, other], "M1", [3.0, 4.0]),
        (vec![grouped], "M2", [1.0, 1.0]),
        (vec![grouped, exchange], "M2", [0.0, 1.0]),
    ] {
        let list: String =
            questions.iter().map(|(op, inputs, micros)| question(op, inputs, 1, *micros)).collect();
        let mut workload =
            load_workload(&context.write("example.yaml", &format!("questions:\n{list}"))).expect("a list");
        workload.set_defaults(&QuestionDefaults { ranks: Some(8), ..QuestionDefaults::default() });
        let metrics = coverage_metrics(&[analyzer.answer_workload(&workload).expect("tables")]).all();
        let (_, found) = metrics.into_iter().find(|(name, _)| *name == metric).expect("a metric");
        assert_eq!([found.hits, found.total], expected, "{metric}: {list}");
    }
}

/// Gaps, by operator, of a list without durations.
fn gaps_of(context: &Context, questions: &str) -> Vec<Value> {
    context.write("gaps.yaml", &format!("questions:\n{questions}"));
    let ran = run_coverage(context, &["--workload", "gaps.yaml", "--json", "--ranks", "8"]);
    json_lines(&ran)[1]["gaps"].as_array().unwrap_or_else(|| panic!("{}", ran.stderr)).clone()
}

/// Products along their rows can be bracketed, along the number of their matrices they cannot: lookups compare it.
#[test]
fn brackets_lie_along_the_axes_of_lookups() {
    let context = database();
    let batched = |heads: u64, rows: u64| {
        let text = "  - {op: BatchMatMulV2, dtypes: bf16, duration_us: 10, inputs: ";
        format!("{text}\"{heads},{rows},128;{heads},128,512\"}}\n")
    };
    let closings = |list: &str| -> Vec<String> {
        let gaps = gaps_of(&context, list);
        gaps.iter().map(|gap| gap["closed_by"].as_str().expect("text").to_owned()).collect()
    };
    let heads: String = [8, 16, 32, 64, 128].map(|heads| batched(heads, 64)).concat();
    assert_eq!(closings(&heads), vec!["exact case of BatchMatMulV2"; 5]);
    let rows: String = [64, 128, 256].map(|rows| batched(8, rows)).concat();
    assert_eq!(
        closings(&rows),
        vec!["interpolation bracket of BatchMatMulV2: 64 and 256 tokens close 3 gaps"; 3]
    );
    // The depth is as large as some of the numbers of rows.
    let square: String = [64, 128, 256]
        .map(|rows| {
            format!("  - {{op: MatMulV2, dtypes: bf16, duration_us: 10, inputs: \"{rows},64;64,48\"}}\n")
        })
        .concat();
    assert_eq!(
        closings(&square),
        vec!["interpolation bracket of MatMulV2: 64 and 256 tokens close 3 gaps"; 3]
    );
    let sparse: String = [64, 128, 256]
        .map(|rows| {
            format!("  - {{op: SparseFlashAttention, dtypes: bf16, duration_us: 10, inputs: \"{rows},8,512;64,128,1,512\"}}\n")
        })
        .concat();
    assert!(closings(&sparse).iter().all(|closing| !closing.contains("bracket")), "{:?}", closings(&sparse));
}

/// Estimates count each product once: neither the number of matrices nor that of experts multiplies it, and a composite
/// takes as long as its product.
#[test]
fn estimates_are_those_of_the_products() {
    let context = database();
    let question = |op: &str, inputs: &str| format!("  - {{op: {op}, inputs: \"{inputs}\", dtypes: bf16}}\n");
    let list = [
        question("aten.mm.default", "4096,7168;7168,4096"),
        question("tensor_cast.matmul_all_reduce.default", "4096,7168;7168,4096"),
        question("GroupedMatmul", "4096,7168;64,7168,4096"),
        question("BatchMatMulV2", "128,64,128;128,128,512"),
    ]
    .concat();
    let gaps = gaps_of(&context, &list);
    let micros = |op: &str| {
        let gap = gaps.iter().find(|gap| gap["op"] == op);
        gap.and_then(|gap| gap["time_us"].as_f64()).unwrap_or_else(|| panic!("{op}: {gaps:?}"))
    };
    let product = micros("aten.mm.default");
    assert!((800.0..1200.0).contains(&product), "{product}");
    assert!((micros("tensor_cast.matmul_all_reduce.default") - product).abs() < 1e-6);
    // The weights of 64 experts, 3.8 GB, take longer than the product.
    let grouped = micros("GroupedMatmul");
    assert!((3000.0..4500.0).contains(&grouped), "{grouped}");
    let batched = micros("BatchMatMulV2");
    assert!((10.0..30.0).contains(&batched), "{batched}");
}

/// Weights multiply counts and times; functions and shapes are those of all workloads together.
#[test]
fn several_workloads_are_weighted() {
    let context = database();
    context
        .write("hit.yaml", &format!("questions:\n{}", question("aten.mm.default", "100,64;64,32", 10, 10.0)));
    context.write("miss.csv", "op,inputs,dtypes,count,duration_us\naten.mm.default,\"9,9;9,9\",bf16,10,10\n");
    let ran = run_coverage(&context, &["--workload", "hit.yaml=3", "miss.csv", "--format", "json"]);
    let lines = json_lines(&ran);
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[0]["weight"], 3.0);
    let all = &lines[2]["metrics"];
    assert_eq!(all["M1"]["value"], 0.75);
    assert_eq!(all["M5"]["value"], 0.75);
    assert_eq!(all["M2"]["value"], 0.0);
    assert_eq!(all["M4"]["value"], 0.5);
    assert_eq!(lines[2]["gaps"][0]["share"], 0.25);
    let answered = run_coverage(&context, &["--workload", "hit.yaml"]);
    assert_eq!(answered.code, 0, "{}", answered.stdout);
}

/// The rows of a profile answer it: the identity of kernels, shapes, types and formats survives both ways.
#[test]
fn a_profile_is_answered_by_its_own_rows() {
    let context = Context::new();
    let profile = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/decoder-layer/kernel_details.csv");
    let ingested = context.run(&["ingest", profile, "--db", "db", "--kind", "rehearsal"]);
    assert_eq!(ingested.code, 0, "{}", ingested.stderr);
    let ran = run_coverage(&context, &["--workload", profile, "--json"]);
    assert_eq!(ran.code, 0, "{}", ran.stdout);
    let lines = json_lines(&ran);
    assert_eq!(lines[0]["metrics"]["M1"]["value"], 1.0);
    assert_eq!(lines[0]["metrics"]["M5"]["value"], 1.0);
    assert_eq!(lines[0]["durations"], "measured");
    assert!(ran.stderr.contains("simulated"), "{}", ran.stderr);
}

/// Real profiles: all records with shapes are answered by rows of the same profile, and the rest is counted.
#[test]
fn real_profiles_are_answered_by_their_own_rows() {
    for path in
        ["real/llm_step_rank0", "real/cnn_level1_rank0", "real/excerpts/kernel_details_910b_fractal_nz.csv"]
    {
        let Some(profile) = shared(path) else { return };
        let profile = profile.to_str().expect("text");
        let context = Context::new();
        let ingested = context.run(&["ingest", profile, "--db", "db"]);
        assert_eq!(ingested.code, 0, "{}", ingested.stderr);
        let ran = run_coverage(&context, &["--workload", profile, "--json"]);
        let lines = json_lines(&ran);
        let reasons: Vec<&str> = lines[1]["gaps"]
            .as_array()
            .expect("gaps")
            .iter()
            .map(|gap| gap["reason"].as_str().expect("a reason"))
            // The groups of these collectives are not recorded.
            .filter(|reason| !matches!(*reason, "no_shapes" | "no_duration" | "ranks_not_given"))
            .collect();
        assert!(reasons.is_empty(), "{path}: {reasons:?}");
        assert!(lines[0]["metrics"]["M1"]["value"].as_f64() > Some(0.9), "{path}: {}", lines[0]["metrics"]);
        assert_totals_add_up(&lines[0], path);
    }
}

/// Counts and times of the classes add up to those of all, for the workload and its kernels.
fn assert_totals_add_up(workload: &Value, what: &str) {
    let sum =
        |object: &Value| object.as_object().expect("classes").values().filter_map(Value::as_f64).sum::<f64>();
    let kernels = workload["kernels"].as_array().expect("kernels");
    for object in kernels.iter().chain([workload]) {
        assert_eq!(Some(sum(&object["counts"])), object["invocations"].as_f64(), "{what}: {object}");
        let time = object["time_us"].as_f64().expect("a time");
        assert!((sum(&object["times_us"]) - time).abs() <= 1e-9 * time, "{what}: {object}");
    }
    for key in ["invocations", "time_us", "untimed"] {
        let of_kernels: f64 = kernels.iter().filter_map(|kernel| kernel[key].as_f64()).sum();
        let all = workload[key].as_f64().expect("a number");
        assert!((of_kernels - all).abs() <= 1e-9 * all, "{what}: {key} {of_kernels} {all}");
    }
}

/// A simulator's inventory with the mapping of the same tool; float16 there stands for BF16.
#[test]
fn an_inventory_is_looked_up_by_the_mapping() {
    let (Some(inventory), Some(mapping)) = (
        shared("real/excerpts/ops_qwen3_32b_prefill.json"),
        shared("op_mapping/vllm0.18.0_torch2.9.0_cann8.5.yaml"),
    ) else {
        return;
    };
    let context = Context::new();
    let row = "\"41040,5120;768,5120\",DT_BF16;DT_BF16,ND;ND,\"41040,768\",DT_BF16,ND,1100,\n";
    context.write("db/MatMulV2.csv", &(HEADER.to_owned() + row));
    let arguments =
        ["--workload", inventory.to_str().expect("text"), "--mapping", mapping.to_str().expect("text")];
    let hits = |more: &[&str]| {
        let ran = run_coverage(&context, &[&arguments[..], more, &["--json"]].concat());
        let lines = json_lines(&ran);
        assert_totals_add_up(&lines[0], "inventory");
        assert_eq!(lines[0]["invocations"], 2392);
        lines[0]["counts"]["measured"].as_u64().expect("a count")
    };
    // One of the three shapes of `aten.mm`; types of FLOAT16 are no BF16 by themselves.
    let free = hits(&[]);
    assert_eq!(hits(&["--treat-dtype", "float16=bf16"]), free + 43);
}

#[test]
fn questions_are_written_as_csv_and_page() {
    let context = database();
    let text = mixed_workload().replace("name: mixed", "name: \"<script>alert(1)</script>\"");
    context.write("mixed.yaml", &text);
    let ran = run_coverage(&context, &["--workload", "mixed.yaml", "--csv", "out.csv", "--html", "out.html"]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    let mut reader = csv::Reader::from_path(context.path("out.csv")).expect("a table");
    let header = reader.headers().expect("a header").clone();
    let rows: Vec<csv::StringRecord> = reader.records().map(|row| row.expect("a row")).collect();
    assert_eq!(rows.len(), 16);
    let cell = |row: usize, name: &str| {
        let column = header.iter().position(|cell| cell == name).expect("a column");
        rows[row][column].to_owned()
    };
    assert_eq!(
        ["op", "inputs", "count", "time_us", "class", "latency_us", "line"].map(|name| cell(1, name)),
        ["aten.mm.default", "150,64;64,32", "4", "60.000", "interpolated", "15", "4"]
    );
    assert_eq!(cell(3, "reason"), "shape_mismatch");
    let page = fs::read_to_string(context.path("out.html")).expect("a page");
    assert!(page.contains("&lt;script&gt;alert(1)") && !page.contains("<script"), "names are escaped");
    for outside in ["http://", "https://", "src=", "@import", "<link"] {
        assert!(!page.contains(outside), "the page needs {outside}");
    }
    assert!(page.contains("interpolation bracket of MatMulV2"));
}

#[test]
fn files_and_workloads_that_cannot_be_used_are_refused() {
    let context = database();
    context.write("a.yaml", &format!("questions:\n{}", question("aten.mm.default", "8,64;64,32", 1, 1.0)));
    context.write("cyclic.yaml", "operator_mappings:\n  a: {composite: true, sub_kernels: [a]}\n");
    context.write("wrong.yaml", "questions:\n  - {op: a, inputs: \"8;x\"}\n");
    let absent = context.run(&["coverage", "--db", "absent", "--workload", "a.yaml"]);
    assert_eq!(absent.code, 3, "{}", absent.stderr);
    let before = context.snapshot("");
    let shown: Vec<String> = [
        &["--workload", "missing.yaml"][..],
        &["--workload", "a.yaml=0"],
        &["--workload", "a.yaml", "a.yaml=2"],
        &["--workload", "wrong.yaml"],
        &["--workload", "a.yaml", "--html", "db/page.html"],
        &["--workload", "a.yaml", "--html", "page.txt"],
        &["--workload", "a.yaml", "--csv", "none/page.csv"],
        &["--workload", "a.yaml", "--mapping", "cyclic.yaml"],
        &["--workload", "a.yaml", "--treat-dtype", "float16"],
        &["--workload", "a.yaml", "--json", "--format", "plain"],
    ]
    .iter()
    .map(|arguments| {
        let ran = run_coverage(&context, arguments);
        format!("$ coverage {}\n[{}]\n{}{}", arguments.join(" "), ran.code, ran.stdout, ran.stderr)
    })
    .collect();
    assert_eq!(context.snapshot(""), before);
    insta::assert_snapshot!(shown.join("\n"));
}

/// Without durations kernels are weighed by a roofline, and operators without a kernel by nothing.
#[test]
fn workloads_without_durations_are_estimated() {
    let context = database();
    let list = "op,inputs,dtypes,count\naten.mm.default,\"100,64;64,32\",bf16,2\naten.view.default,\"100,64\",bf16,9\n\
                aten.mm.default,\"4096,8192;8192,8192\",bf16,1\nhcom_allReduce_,\"4096\",bf16,1\n";
    context.write("list.csv", list);
    let ran = run_coverage(&context, &["--workload", "list.csv", "--csv", "out.csv", "--json"]);
    let lines = json_lines(&ran);
    assert_eq!(lines[0]["durations"], "estimated");
    assert_eq!(lines[0]["untimed"], 1, "collectives have no estimate");
    let mut reader = csv::Reader::from_path(context.path("out.csv")).expect("a table");
    let times: Vec<f64> =
        reader.records().map(|row| row.expect("a row")[7].parse().unwrap_or(-1.0)).collect();
    // 2 x 4096 x 8192 x 8192 operations at 0.7 x 363.7 TFLOPS, and 5 us.
    let product = 2.0 * 4096.0 * 8192.0 * 8192.0 / (0.7 * 363.7e12) * 1e6 + 5.0;
    assert!((times[2] - product).abs() < 0.01, "{times:?} {product}");
    assert_eq!((times[1], times[3]), (0.0, -1.0));
    assert!((times[0] - 10.0).abs() < 0.2, "two launches: {times:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// Measured, interpolated and missing add up to all, in count and in time, for any workload.
    #[test]
    fn classes_add_up_for_any_workload(
        questions in proptest::collection::vec(
            (0_usize..9, 1_u64..2000, 0_u64..1_000_000, proptest::option::of(0_u32..1_000_000_000)), 1..20,
        ),
        weight in 0.01_f64..100.0,
    ) {
        const OPS: [&str; 9] = [
            "aten.mm.default", "MatMulV2", "aten.view.default", "aten.unknown", "hcom_allReduce_",
            "tensor_cast.matmul_all_reduce.default", "tensor_cast.swiglu.default", "Nothing", "tensor_cast.mlapo.default",
        ];
        let context = database();
        let mut text = "op,inputs,dtypes,count,duration_us\n".to_owned();
        for (op, tokens, count, micros) in &questions {
            let micros = micros.map(|micros| format!("{}.{:03}", micros / 1000, micros % 1000)).unwrap_or_default();
            text.push_str(&format!("{},\"{tokens},64;64,32\",bf16,{count},{micros}\n", OPS[*op]));
        }
        prop_assume!(questions.iter().any(|(_, _, count, _)| *count > 0));
        let mut workload = load_workload(&context.write("list.csv", &text)).expect("a list");
        workload.weight = weight;
        let (engine, catalogue) = opened(&context);
        let analyzer = CoverageAnalyzer { engine: &engine, catalogue: &catalogue };
        let coverages: Vec<WorkloadCoverage<'_>> = vec![analyzer.answer_workload(&workload).expect("tables")];
        let totals = coverages[0].totals();
        let count: u64 = questions.iter().map(|(_, _, count, _)| count).sum();
        prop_assert_eq!(totals.all_count(), count);
        prop_assert_eq!(AnswerClass::ALL.iter().map(|class| totals.count(*class)).sum::<u64>(), count);
        let nanos = |of: &(usize, u64, u64, Option<u32>)| of.3.map_or(0, |micros| i64::from(micros) * of.2 as i64);
        let time: i64 = questions.iter().map(nanos).sum();
        prop_assert_eq!(AnswerClass::ALL.iter().map(|class| totals.time(*class)).sum::<i64>(), time);
        let kernels = kernel_coverage(&coverages[0]);
        prop_assert_eq!(kernels.iter().map(|kernel| kernel.totals.all_count()).sum::<u64>(), count);
        prop_assert_eq!(kernels.iter().map(|kernel| kernel.totals.all_time()).sum::<i64>(), time);
        // The gaps are the missing invocations.
        let gaps = coverage_gaps(&analyzer, &coverages);
        let missing: f64 = gaps.iter().map(|gap| gap.count).sum();
        let expected = weight * totals.count(AnswerClass::Missing) as f64;
        prop_assert!((missing - expected).abs() <= 1e-9 * expected.max(1.0));
        for (name, metric) in coverage_metrics(&coverages).all() {
            let value = metric.value().unwrap_or(0.0);
            prop_assert!((0.0..=1.0 + 1e-12).contains(&value), "{} {}", name, value);
        }
    }
}

#[test]
fn a_result_never_replaces_a_workload() {
    let context = database();
    let list = "op,inputs,dtypes,count\nSwiGlu,\"9,10\",DT_BF16,1\n";
    context.write("list.csv", list);
    let ran = run_coverage(&context, &["--workload", "list.csv", "--csv", "./list.csv"]);
    assert_eq!(ran.code, 3, "{}", ran.stdout);
    assert!(ran.stderr.contains("is an input of this command"), "{}", ran.stderr);
    assert_eq!(fs::read_to_string(context.path("list.csv")).expect("readable"), list);
}

/// Sums beyond their limits are errors with the line where they exceed it, not the greatest number; a wrong value has
/// the message of its parser.
#[test]
fn wrong_numbers_of_workloads_are_named() {
    let context = Context::new();
    let product = |count: u64, micros: f64| question("aten.mm.default", "8,64;64,32", count, micros);
    let untimed = "  - {op: aten.mm.default, inputs: \"8,64;64,32\", count: 4503599627370496}\n";
    for (file, text, expected) in [
        ("a.yaml", product(u64::MAX, 0.001), "a.yaml:2: 18446744073709551615 invocations of this duration"),
        ("a.yaml", untimed.repeat(2), "a.yaml:3: the counts up to here add up to more than 4503599627370496"),
        (
            "a.yaml",
            product(1, 2e14).repeat(2),
            "a.yaml:3: the times up to here add up to more than ten years",
        ),
        (
            "a.yaml",
            "  - {op: a, inputs: \"8\", count: 18446744073709551616}\n".to_owned(),
            "expected a whole number of at least 0 and at most 18446744073709551615",
        ),
        ("a.json", r#"{"ops": 5}"#.to_owned(), "invalid type: integer `5`, expected a sequence"),
        (
            "a.json",
            r#"{"ops": [{"op_name": "a", "count": -1}]}"#.to_owned(),
            "invalid value: integer `-1`, expected u64",
        ),
        (
            "a.json",
            r#"{"ops": [{"op_name": "a", "count": 1, "shape_variants": [3]}]}"#.to_owned(),
            "invalid type: integer `3`, expected struct",
        ),
        ("a.json", r#"{"ops": [{"op_name": "a"}]}"#.to_owned(), "missing field `count`"),
        ("a.json", r#"{"ops": [{"op_name": "a", "count":"#.to_owned(), "EOF while parsing a value"),
    ] {
        let text = if file == "a.yaml" { format!("questions:\n{text}") } else { text };
        let error = load_workload(&context.write(file, &text)).expect_err("it is wrong").to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

/// A profile is no database, in any command.
#[test]
fn profiles_are_no_databases() {
    let context = database();
    context.write("PROF_000001_1/x.txt", "");
    context.write("host_1_ascend_pt/x.txt", "");
    context.write("run/kernel_details.csv", "Name\n");
    context.write("runs/PROF_000002_1/x.txt", "");
    for arguments in [
        &["coverage", "--workload", "a.yaml", "--db", "PROF_000001_1"][..],
        &["query", "--op", "Add", "--inputs", "8", "--db", "host_1_ascend_pt"],
        &["run", "--host", "rehearsal", "--db", "run"],
        &["db", "check", "runs"],
        &["show", "--db", "PROF_000001_1"],
        &["ingest", "profile", "--db", "runs"],
    ] {
        let ran = context.run(arguments);
        assert_eq!(ran.code, 3, "{arguments:?} {}{}", ran.stdout, ran.stderr);
        for expected in ["is a profile, not a database", "run `npubench ingest "] {
            assert!(ran.stderr.contains(expected), "{arguments:?}: {}", ran.stderr);
        }
    }
    // The tables of a database decide.
    context.write("db/PROF_000003_1/x.txt", "");
    assert_eq!(context.run(&["db", "check", "db"]).code, 1);
}

/// M5 of a workload whose collectives have no time is 100 % beside a lower M1: a note states why.
#[test]
fn invocations_without_a_time_are_noted() {
    let context = database();
    let timed = question("aten.mm.default", "100,64;64,32", 3, 10.0);
    let untimed = "  - {op: hcom_allReduce_, inputs: \"64,1\", dtypes: bf16, ranks: 64, count: 5}\n";
    context.write("list.yaml", &format!("questions:\n{timed}{untimed}"));
    let ran = run_coverage(&context, &["--workload", "list.yaml", "--json"]);
    let lines = json_lines(&ran);
    assert_eq!(
        (&lines[0]["metrics"]["M5"]["value"], &lines[0]["untimed"]),
        (&Value::from(1.0), &Value::from(5))
    );
    // Nanoseconds, as documented.
    assert_eq!(lines[0]["metrics"]["M5"]["hits"], 30_000.0);
    assert!(
        ran.stderr.contains(
            "5 invocations have no time (hcom_allReduce_): they count in M1 and not in M5; 5 of them have no answer"
        ),
        "{}",
        ran.stderr
    );
    // Rows of 64 ranks are measured by a sweep.
    let closed_by = lines[1]["gaps"][0]["closed_by"].as_str().expect("a text");
    assert!(closed_by.starts_with("rows of hcom_allReduce_: `npubench comm run --db "), "{closed_by}");
    assert!(
        closed_by.ends_with(" --ops all_reduce --ranks 64 --dtypes bfloat16 --from 128 --to 128`"),
        "{closed_by}"
    );
    context.write("timed.yaml", &format!("questions:\n{timed}"));
    assert!(!run_coverage(&context, &["--workload", "timed.yaml"]).stderr.contains("no time"));
}
