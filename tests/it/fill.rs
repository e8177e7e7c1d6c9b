//! `fill`: gaps of workloads become rows, are measured, and are answered afterwards.

use std::{collections::BTreeMap, time::Instant};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::prelude::*;

/// Products, activations and sums of a model at these numbers of tokens, with stated durations.
fn workload(tokens: &[u64]) -> String {
    let mut text = "name: other shapes\nquestions:\n".to_owned();
    for tokens in tokens {
        let mut add = |op: &str, inputs: String, count: u64, micros: u64| {
            text += &format!(
                "  - {{op: {op}, inputs: \"{inputs}\", dtypes: bf16, count: {count}, duration_us: {micros}}}\n"
            );
        };
        add("MatMulV2", format!("{tokens},4096;4096,6144"), 36, tokens * 6144 / 60_000 + 5);
        add("SwiGlu", format!("{tokens},24576"), 36, tokens * 24576 / 900_000 + 3);
        add("Add", format!("{tokens},4096;{tokens},4096"), 72, tokens * 4096 / 400_000 + 2);
    }
    text
}

fn fill(context: &Context, arguments: &(impl Words + ?Sized)) -> Ran {
    fill_on(context, "0-3", arguments)
}

fn fill_on(context: &Context, devices: &str, arguments: &(impl Words + ?Sized)) -> Ran {
    let fill = "fill --db db --workload list.yaml --host rehearsal --devices";
    context.run_all_rounds(&(fill, [devices], arguments))
}

/// M5 of the workload by `coverage`.
fn covered_share(context: &Context) -> f64 {
    let ran = context.run("coverage --db db --workload list.yaml --json");
    let line: Value = serde_json::from_str(ran.stdout.lines().next().expect("a line")).expect("JSON");
    line["metrics"]["M5"]["value"].float()
}

fn json_lines(ran: &Ran) -> Vec<Value> {
    ran.stdout.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// An evening: the database has the shapes of one profile, the workload has others. The forecast is that of a preview
/// which changes nothing.
#[test]
fn fill_answers_a_workload_of_other_shapes_as_forecast() {
    let context = Context::of_layer();
    context.write("list.yaml", &workload(&[256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096]));
    let before = covered_share(&context);
    assert!(before < 0.6, "{before}");
    let tables_before = tables(&context);
    let preview = fill(&context, "--dry-run --format json");
    assert_eq!(tables(&context), tables_before, "a preview writes nothing");
    assert!(!context.path("db/.npubench/ledger.db").exists());
    let lines = json_lines(&preview);
    let (forecast, cases) = lines.split_last().expect("a forecast");
    let share = |value: &Value| value.float();
    assert!((share(&forecast["m5_before"]) - before).abs() < 1e-9, "{forecast}");
    let ran = fill(&context, "").measured();
    let after = covered_share(&context);
    assert!(after > 0.95, "{after}: {}", ran.stdout);
    assert!((share(&forecast["m5_forecast"]) - after).abs() <= 0.03, "{forecast}: {after}");
    ran.out_has(&format!("{:.2} % reached", after * 100.0));
    // Two to four rows of each kernel bracket the others, and their values are the time of all gaps.
    let (rows, cases): (Vec<&Value>, Vec<&Value>) =
        cases.iter().partition(|case| case["unmeasured_row"] == true);
    let mut by_kernel: BTreeMap<&str, usize> = BTreeMap::new();
    for case in &cases {
        *by_kernel.entry(case["kernel"].text()).or_default() += 1;
    }
    assert!(by_kernel.values().all(|rows| (2..=4).contains(rows)), "{by_kernel:?}");
    let valued: f64 = cases.iter().map(|case| case["time_us"].float()).sum();
    let coverage = context.run("coverage --db db --workload list.yaml --json");
    let line: Value = serde_json::from_str(coverage.stdout.lines().next().expect("a line")).expect("JSON");
    let missing = (1.0 - before) * share(&line["time_us"]);
    assert!((valued / missing - 1.0).abs() < 1e-6, "{valued} {missing}");
    // The rows that answer the rest have durations of the profile only, and are measured as well.
    assert_eq!(forecast["unmeasured_rows"], rows.len(), "{forecast}");
    let answered: f64 = rows.iter().map(|case| case["time_us"].float()).sum();
    assert!((answered / (before * share(&line["time_us"])) - 1.0).abs() < 1e-6, "{answered} {before}");
    // Nothing is left.
    let again = fill(&context, "").ended(0);
    again.out_has("0 rows added");
}

/// With a deadline the rest of the time is spent on the cases between brackets, then on narrower intervals of the rows
/// that the workload uses.
#[test]
fn time_that_is_left_is_used_until_the_deadline() {
    let context = Context::of_layer();
    // A collective whose row has a measurement: sweeps repeat it, not this command.
    context.write(
        "db/hcom_allReduce_.csv",
        "message_bytes,num_devices,dtype,topology_tier,Duration(us),bandwidth_gbps,MicroBench Verdict\n\
         655360,8,DT_BF16,1,50,13.1,ok\n",
    );
    let sum = "  - {op: hcom_allReduce_, inputs: \"64,5120\", dtypes: bf16, count: 36, duration_us: 60, ranks: 8}\n";
    context.write("list.yaml", &(workload(&[256, 512, 768, 1024]) + sum));
    let started = Instant::now();
    // One device leaves the other cores to other tests until the deadline.
    let ran = fill_on(&context, "0", "--budget 40s");
    let seconds = started.elapsed().as_secs_f64();
    assert!(ran.code <= 1, "{}", ran.stderr);
    ran.err_has("the cases between brackets are measured as well");
    ran.out_has("were measured further in ");
    ran.err_has(" within 0.5 %");
    // A collection that runs at the deadline has its own limit of time.
    assert!(seconds < 90.0, "{seconds} s");
}

/// Gaps that no case closes are counted with the reason, and a workload that nothing can close is no error.
#[test]
fn gaps_without_a_case_are_named() {
    let context = Context::of_layer();
    context.write(
        "list.yaml",
        "name: others\nquestions:\n  - {op: hcom_allReduce_, inputs: \"64,5120\", dtypes: bf16, count: 3, duration_us: 50, ranks: 8}\n  \
         - {op: NoSuchKernel, inputs: \"64,5120\", dtypes: bf16, duration_us: 10}\n",
    );
    let ran = fill(&context, "").ended(0);
    ran.out_has("(collective_rows)");
    ran.out_has("(catalogue_entry)");
    ran.out_has("0 rows added; M5 0.00 % before, 0.00 % expected, 0.00 % reached");
    context.exits(2, "fill --db db");
}

/// Operators of a simulator's inventory, and the kernels as the profiler records them.
const INVENTORY_MAPPING: &str = "operator_mappings:
  tensor_cast.rms_norm.default: {kernel_type: RmsNorm}
  tensor_cast.add_rms_norm2.default: {kernel_type: AddRmsNormBias, alternate_kernel_types: [AddRmsNorm], tc_input_count: 3}
  tensor_cast.swiglu.default: {kernel_type: SwiGlu}
  tensor_cast.attention.default: {kernel_type: FusedInferAttentionScore, query_mode: attention_special}
  tensor_cast.apply_rope.default: {kernel_type: _triton_rope, tc_input_count: 2}
  tensor_cast.matmul_all_reduce.default: {composite: true, sub_kernels: [MatMulV2, hcom_allReduce_]}
";

fn operator(name: &str, inputs: &[&str], dtypes: &[&str], outputs: &[&str]) -> Value {
    json!({"op_name": name, "count": 4, "total_duration_us": 100.0, "shape_variants": [{
        "input_shapes": inputs, "input_dtypes": dtypes, "output_shapes": outputs,
        "output_dtypes": vec!["bfloat16"; outputs.len()],
    }]})
}

fn inventory() -> String {
    let types = ["bfloat16"; 4];
    json!({"model": "m", "scenario": "prefill", "ops": [
        operator("tensor_cast.rms_norm.default", &["(1, 96, 512)", "(512)"], &types[..2], &["(1, 96, 512)"]),
        operator(
            "tensor_cast.add_rms_norm2.default",
            &["(1, 96, 512)", "(96, 512)", "(512)"],
            &types[..3],
            &["(1, 96, 512)", "(1, 96, 512)"],
        ),
        operator("tensor_cast.swiglu.default", &["(1, 96, 160)"; 2], &types[..2], &["(1, 96, 160)"]),
        operator(
            "tensor_cast.attention.default",
            &["(96, 512)", "(9, 128, 1, 128)", "(9, 128, 1, 128)", "(3, 3)"],
            &["bfloat16", "bfloat16", "bfloat16", "int64"],
            &["(96, 512)"],
        ),
        operator(
            "tensor_cast.apply_rope.default",
            &["(1, 1, 96, 128)", "(1, 4, 96, 128)", "(1, 96, 128)", "(1, 96, 128)"],
            &types,
            &["(1, 96, 1, 128)", "(1, 96, 4, 128)"],
        ),
    ]})
    .to_string()
}

/// Operators of a framework have other inputs than the rows of their kernels: two inputs of SwiGlu are one, norms
/// have a batch of one and return more, and attention has lists. Cases follow where their rows would answer; else the
/// reason is stated.
#[test]
fn an_inventory_is_filled_by_cases_of_its_kernels() {
    let context = Context::of_layer();
    context.write("db/op_mapping.yaml", INVENTORY_MAPPING);
    context.write("list.yaml", &inventory());
    let cases = |more: &str| -> (BTreeMap<String, String>, Value) {
        let lines = json_lines(&fill(&context, &("--dry-run --format json", more)));
        let (forecast, cases) = lines.split_last().expect("a forecast");
        let text = |case: &Value, key: &str| case[key].text().to_owned();
        (cases.iter().map(|case| (text(case, "kernel"), text(case, "inputs"))).collect(), forecast.clone())
    };
    let (without_length, forecast) = cases("");
    assert_eq!(without_length.keys().collect::<Vec<_>>(), ["AddRmsNormBias", "RmsNorm", "SwiGlu"]);
    assert_eq!(
        forecast["reasons"]["query_parameter"][0],
        "tensor_cast.attention.default: parameter of the query: kv_length"
    );
    let (known, forecast) = cases("--kv-length 32");
    assert_eq!(known["SwiGlu"], "96,320 -> 96,160");
    assert_eq!(known["AddRmsNormBias"], "96,512;96,512;512 -> 96,512;96,1;96,512");
    assert_eq!(known["FusedInferAttentionScore"], "96,4,128;96,1,128;96,1,128;;2048,2048;3;3 -> 96,4,128");
    let reason = forecast["reasons"]["unknown_case"][0].text();
    assert!(
        reason.starts_with("tensor_cast.apply_rope.default: row of _triton_rope, whose case"),
        "{reason}"
    );
    assert_eq!(forecast["m5_forecast"], 0.8);
    let coverage = context.run("coverage --db db --workload list.yaml --json");
    let last: Value = serde_json::from_str(coverage.stdout.lines().last().expect("a line")).expect("JSON");
    let rope = last["gaps"].list().iter().find(|gap| gap["closing"] == "unknown_case");
    let closed_by = rope.expect("the gap of apply_rope")["closed_by"].text();
    assert!(reason.ends_with(closed_by), "{closed_by}");
    // The rows answer.
    let ran = fill(&context, "--kv-length 32").measured();
    ran.out_has("80.00 % expected, 80.00 % reached");
}

/// A signal while rows are added, while the run is planned or while it measures, whichever it meets: the rows stay, and the same
/// command goes on.
#[test]
fn a_stop_states_what_is_saved_and_what_goes_on() {
    let context = Context::of_layer();
    context.write("db/op_mapping.yaml", INVENTORY_MAPPING);
    context.write("list.yaml", &inventory());
    let arguments = "fill --db db --workload list.yaml --host rehearsal --devices 0-1";
    let mut child = context.start(&(arguments, "--kv-length 32"));
    while !context.path("db/AddRmsNormBias.csv").exists() && child.try_wait().expect("a child").is_none() {
        std::thread::yield_now();
    }
    signal(&child, Signal::SIGINT);
    let stopped = context.finish(child).ended(5);
    stopped.err_has("stopped: ");
    stopped.err_has("`npubench fill` with the same options measures what is left");
    assert!(context.path("db/AddRmsNormBias.csv").exists());
    let ran = fill(&context, "--kv-length 32").measured();
    ran.out_has("80.00 % reached");
}

/// A row that no call launches stays a reported gap: neither the preview nor the command fails, and no row is added.
#[test]
fn a_row_that_cannot_be_launched_is_no_failure() {
    let context = Context::of_layer();
    let header = "Input Shapes,Input Data Types,Input Formats,Output Shapes,Output Data Types,Output Formats,\
                  Profiling Average Duration(us)";
    let row = "\"8,64,128;8,128,256\",DT_BF16;FLOAT,ND;ND,\"8,64,256\",DT_BF16,ND,12.5";
    context.write("db/BatchMatMulV2.csv", &format!("{header}\n{row}\n"));
    let question =
        "op: BatchMatMulV2, inputs: \"8,64,128;8,128,256\", dtypes: [bf16, float], duration_us: 13";
    context.write("list.yaml", &format!("questions:\n  - {{{question}}}\n"));
    let preview = fill(&context, "--dry-run --format json");
    let lines = json_lines(&preview);
    let [case, forecast] = lines.as_slice() else { panic!("{}{}", preview.stdout, preview.stderr) };
    let reason = case["not_launched"].text();
    assert!(reason.starts_with("unsupported: ") && case["unmeasured_row"] == true, "{case}");
    assert_eq!((&forecast["cases"], &forecast["in_time"]), (&json!(1), &json!(0)), "{forecast}");
    assert_eq!(preview.code, 0, "{}", preview.stderr);
    let before = tables(&context);
    let ran = fill(&context, "").ended(0);
    assert!(ran.stdout.contains("unsupported: ") && ran.stdout.contains("0 rows added"), "{}", ran.stdout);
    assert_eq!(tables(&context), before);
}
