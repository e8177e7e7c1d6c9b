//! `coverage`: questions of workloads, metrics, gaps with what closes them, and the files of the result.

use std::{collections::BTreeMap, fs};

use npubench::{
    answer::{
        coverage::{CoverageAnalyzer, coverage_metrics},
        lookup::LookupEngine,
        op_mapping::OpMapping,
        workload::{QuestionDefaults, load_workload},
    },
    base::assets::AssetFiles,
    database::Database,
    kernel::catalogue::Catalogue,
};
use serde_json::Value;

use crate::prelude::*;

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

fn run_coverage(context: &Context, arguments: &(impl Words + ?Sized)) -> Ran {
    context.run(&("coverage --db db", arguments))
}

#[test]
fn totals_metrics_kernels_and_gaps_are_shown() {
    let context = database();
    context.write("mixed.yaml", &mixed_workload());
    let before = context.snapshot("db");
    let ran = run_coverage(&context, "--workload mixed.yaml");
    assert_eq!(context.snapshot("db"), before);
    assert_eq!(ran.code, 1);
    insta::assert_snapshot!(format!("{}{}", ran.stdout, ran.stderr));
    let mut narrow = context.command("coverage --db db --workload mixed.yaml");
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
    let ran = run_coverage(&context, "--workload mixed.yaml --json --ranks 8 --tier 1");
    let lines = ran.json();
    let metric = |name: &str| {
        let metric = &lines[0]["metrics"][name];
        (metric["hits"].float(), metric["total"].float())
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
    let gaps = lines[1]["gaps"].list();
    let closing: BTreeMap<&str, &str> =
        gaps.iter().map(|gap| (gap["op"].text(), gap["closing"].text())).collect();
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
        .map(|gap| (gap["closing"].text(), gap["reason"].text()))
        .collect();
    let bracket = ("interpolation_bracket", "shape_mismatch");
    assert_eq!(of_mm, [bracket, bracket, bracket, ("existing_row", "not_measured")]);
    assert_eq!(gaps[0]["closed_by"], "interpolation bracket of MatMulV2: 400 and 1600 tokens close 3 gaps");
    // The longest time first.
    let times: Vec<f64> = gaps.iter().map(|gap| gap["time_us"].float()).collect();
    assert!(times.is_sorted_by(|one, other| one >= other), "{times:?}");
    let documented =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/coverage.md")).expect("a document");
    let kernels = lines[0]["kernels"].list();
    for object in lines.iter().chain(kernels).chain(gaps) {
        for key in object.as_object().expect("an object").keys() {
            assert!(documented.contains(&format!("`{key}`")), "`{key}` is not documented");
        }
    }
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

/// Weights multiply counts and times; functions and shapes are those of all workloads together.
#[test]
fn several_workloads_are_weighted() {
    let context = database();
    context
        .write("hit.yaml", &format!("questions:\n{}", question("aten.mm.default", "100,64;64,32", 10, 10.0)));
    context.write("miss.csv", "op,inputs,dtypes,count,duration_us\naten.mm.default,\"9,9;9,9\",bf16,10,10\n");
    let ran = run_coverage(&context, "--workload hit.yaml=3 miss.csv --format json");
    let lines = ran.json();
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[0]["weight"], 3.0);
    let all = &lines[2]["metrics"];
    assert_eq!(all["M1"]["value"], 0.75);
    assert_eq!(all["M5"]["value"], 0.75);
    assert_eq!(all["M2"]["value"], 0.0);
    assert_eq!(all["M4"]["value"], 0.5);
    assert_eq!(lines[2]["gaps"][0]["share"], 0.25);
    run_coverage(&context, "--workload hit.yaml").ended(0);
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
        context.done(&["ingest", profile, "--db", "db", "--kind", "rehearsal"]);
        let ran = run_coverage(&context, &["--workload", profile, "--json"]);
        let lines = ran.json();
        let reasons: Vec<&str> = lines[1]["gaps"]
            .list()
            .iter()
            .map(|gap| gap["reason"].text())
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
    let kernels = workload["kernels"].list();
    for object in kernels.iter().chain([workload]) {
        assert_eq!(Some(sum(&object["counts"])), object["invocations"].as_f64(), "{what}: {object}");
        let time = object["time_us"].float();
        assert!((sum(&object["times_us"]) - time).abs() <= 1e-9 * time, "{what}: {object}");
    }
    for key in ["invocations", "time_us", "untimed"] {
        let of_kernels: f64 = kernels.iter().filter_map(|kernel| kernel[key].as_f64()).sum();
        let all = workload[key].float();
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
    let hits = |more: &str| {
        let ran = run_coverage(&context, &(&arguments[..], more, "--json"));
        let lines = ran.json();
        assert_totals_add_up(&lines[0], "inventory");
        assert_eq!(lines[0]["invocations"], 2392);
        lines[0]["counts"]["measured"].whole()
    };
    // One of the three shapes of `aten.mm`; types of FLOAT16 are no BF16 by themselves.
    let free = hits("");
    assert_eq!(hits("--treat-dtype float16=bf16"), free + 43);
}

#[test]
fn questions_are_written_as_csv_and_page() {
    let context = database();
    let text = mixed_workload().replace("name: mixed", "name: \"<script>alert(1)</script>\"");
    context.write("mixed.yaml", &text);
    run_coverage(&context, "--workload mixed.yaml --csv out.csv --html out.html").ended(1);
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
    let page = context.read("out.html");
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
    context.exits(3, "coverage --db absent --workload a.yaml");
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
    let ran = run_coverage(&context, "--workload list.csv --csv out.csv --json");
    let lines = ran.json();
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

/// Sums beyond their limits are errors with the line where they exceed it, not the greatest number; a wrong value has
/// the message of its parser.
#[test]
fn wrong_numbers_of_workloads_are_named() {
    let context = Context::new();
    let product = |count: u64, micros: f64| question("aten.mm.default", "8,64;64,32", count, micros);
    let untimed = "  - {op: aten.mm.default, inputs: \"8,64;64,32\", count: 4503599627370496}\n";
    for (file, text, expected) in [
        ("a.yaml", product(u64::MAX, 0.001), "a.yaml:2: 18446744073709551615 invocations of this duration"),
        ("a.yaml", product(1, 1e13), "a.yaml:2: the duration 1e13 us is no duration of a kernel"),
        ("a.yaml", untimed.repeat(2), "a.yaml:3: the counts up to here add up to more than 4503599627370496"),
        (
            "a.yaml",
            product(100_000, 2e9).repeat(2),
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
        let ran = context.exits(3, arguments);
        for expected in ["is a profile, not a database", "run `npubench ingest "] {
            ran.err_has(expected);
        }
    }
    // The tables of a database decide.
    context.write("db/PROF_000003_1/x.txt", "");
    assert_eq!(context.run("db check db").code, 1);
}

/// M5 of a workload whose collectives have no time is 100 % beside a lower M1: a note states why.
#[test]
fn invocations_without_a_time_are_noted() {
    let context = database();
    let timed = question("aten.mm.default", "100,64;64,32", 3, 10.0);
    let untimed = "  - {op: hcom_allReduce_, inputs: \"64,1\", dtypes: bf16, ranks: 64, count: 5}\n";
    context.write("list.yaml", &format!("questions:\n{timed}{untimed}"));
    let ran = run_coverage(&context, "--workload list.yaml --json");
    let lines = ran.json();
    assert_eq!(
        (&lines[0]["metrics"]["M5"]["value"], &lines[0]["untimed"]),
        (&Value::from(1.0), &Value::from(5))
    );
    // Nanoseconds, as documented.
    assert_eq!(lines[0]["metrics"]["M5"]["hits"], 30_000.0);
    ran.err_has("5 invocations have no time (hcom_allReduce_): they count in M1 and not in M5; 5 of them have no answer");
    // Rows of 64 ranks are measured by a sweep.
    let closed_by = lines[1]["gaps"][0]["closed_by"].text();
    assert!(closed_by.starts_with("rows of hcom_allReduce_: `npubench comm run --db "), "{closed_by}");
    assert!(
        closed_by.ends_with(" --ops all_reduce --ranks 64 --dtypes bfloat16 --from 128 --to 128`"),
        "{closed_by}"
    );
    context.write("timed.yaml", &format!("questions:\n{timed}"));
    assert!(!run_coverage(&context, "--workload timed.yaml").stderr.contains("no time"));
}
