//! `m6`: forward passes of recorded runs, communication counted once, predictions of traces and of databases.

use std::fs;

use npubench::{
    answer::workload::{FORWARD_ANCHOR, read_passes_of_kernels, read_predicted_time},
    kernel::Nanos,
};
use serde_json::Value;

use crate::prelude::*;

const HEADER: &str = "Type,Duration(us),Start Time(us),Input Shapes\n";

/// Kernel, duration and start in microseconds.
type Record<'a> = (&'a str, f64, f64);

fn table(records: &[Record<'_>]) -> String {
    let rows =
        records.iter().map(|(kernel, duration, start)| format!("{kernel},{duration:.3},{start:.3}\t,\n"));
    HEADER.to_owned() + &rows.collect::<String>()
}

fn event(dur: f64, args: &str) -> String {
    format!(
        "{{\"name\": \"op\", \"ph\": \"X\", \"ts\": 0, \"dur\": {dur}, \"pid\": 0, \"tid\": 0, \"args\": {{{args}}}}}"
    )
}

fn trace(events: &[String]) -> String {
    format!("{{\"traceEvents\": [{}]}}", events.join(",\n"))
}

/// The worked example: 64 x 53 us of attention and 128 x 20 us of products, beside operators without a kernel and
/// misses.
fn predicted_events() -> Vec<String> {
    let attention = event(53.0, "\"source\": \"MEASURED\", \"kernel_type\": \"FusedInferAttentionScore\"");
    let product = event(20.0, "\"source\": \"MEASURED\", \"kernel_type\": \"MatMulV2\"");
    let free = event(0.0, "\"source\": \"MEASURED\", \"kernel_type\": \"zero_cost\"");
    let mut events = vec![attention; 64];
    events.extend(vec![product; 128]);
    events.extend(vec![free; 100]);
    events.extend(vec![event(2.0, "\"simulation_shapes\": \"[[8, 64]]\""); 3]);
    events
}

/// Its recorded pass: 6,600 us on cores, 6,400 us of collectives.
fn recorded_pass() -> String {
    let mut records: Vec<Record<'_>> = Vec::new();
    let mut start = 0.0;
    for (kernel, count, duration) in [
        ("FusedInferAttentionScore", 64, 50.0),
        ("MatMulV2", 128, 25.0),
        ("hcom_allReduce_", 64, 100.0),
        ("Sort", 1, 200.0),
    ] {
        for _ in 0..count {
            records.push((kernel, duration, start));
            start += duration + 10.0;
        }
    }
    table(&records)
}

fn json_lines(context: &Context, arguments: &(impl Words + ?Sized)) -> Vec<Value> {
    let ran = context.done(&("m6", arguments, "--json"));
    ran.json()
}

fn value(object: &Value, key: &str) -> f64 {
    object[key].as_f64().unwrap_or_else(|| panic!("{key}: {object}"))
}

#[test]
fn the_worked_example_has_its_result() {
    let context = Context::new();
    context.write("trace.json", &trace(&predicted_events()));
    context.write(
        "op_summary_0.csv",
        &recorded_pass()
            .replace("Type,", "OP Type,")
            .replace("Start Time", "Task Start Time")
            .replace("Duration", "Task Duration"),
    );
    context.write("kernel_details.csv", &recorded_pass());
    for table in ["kernel_details.csv", "op_summary_0.csv"] {
        let lines = json_lines(&context, &[table, "--whole", "--predicted", "trace.json"]);
        assert_eq!(lines.len(), 3);
        assert!((value(&lines[1], "M6") - 5952.0 / 13000.0).abs() < 1e-12, "{}", lines[1]);
        assert_eq!((value(&lines[0], "compute_us"), value(&lines[0], "communication_us")), (6600.0, 6400.0));
        assert_eq!(value(&lines[2], "predicted_compute_us"), 5952.0);
        assert_eq!((value(&lines[2], "other_invocations"), value(&lines[2], "other_us")), (3.0, 6.0));
    }
    let ran = context.run("m6 kernel_details.csv --whole --predicted trace.json");
    insta::assert_snapshot!(ran.stdout);
}

#[test]
fn compute_and_communication_are_apart() {
    let context = Context::new();
    let compute = event(6600.0, "\"source\": \"INTERPOLATED\", \"kernel_type\": \"MatMulV2\"");
    let sums = "\"source\": \"MEASURED\", \"kernel_type\": \"MatMulV2,hcom_allReduce_\", \
                \"sub_kernel_durations\": \"[('MatMulV2', 30.0), ('hcom_allReduce_', 10.0)]\"";
    context.write("trace.json", &trace(std::slice::from_ref(&compute)));
    context.write("kernel_details.csv", &table(&[("hcom_allGather_", 6400.0, 0.0)]));
    let lines = json_lines(&context, "kernel_details.csv --whole --predicted trace.json");
    assert_eq!(value(&lines[1], "M6"), 1.03125);
    assert_eq!(lines[1]["M6_compute"], Value::Null, "no kernel is recorded");
    assert_eq!(value(&lines[1], "M6_communication"), 0.0);
    context.write("parts.json", &trace(&[event(80.0, sums)]));
    let predicted = read_predicted_time(&context.path("parts.json"), false).expect("a trace");
    assert_eq!((predicted.compute, predicted.communication), (Nanos(60_000), Nanos(20_000)));
    context.write("both.json", &trace(&[compute, event(80.0, sums)]));
    let measured = read_predicted_time(&context.path("both.json"), true).expect("a trace");
    assert_eq!(
        (measured.compute, measured.communication, measured.others),
        (Nanos(60_000), Nanos(20_000), 1)
    );
}

/// Two records of one collective count as the longer one, 150 us; others at other times or of other types count by
/// themselves.
#[test]
fn communication_counts_once() {
    let context = Context::new();
    let path = context.write(
        "kernel_details.csv",
        &table(&[
            ("hcom_allReduce_", 100.0, 1000.2),
            ("hcom_allReduce_", 150.0, 1000.9),
            ("hcom_allReduce_", 120.0, 1000.5),
            ("allreduceAicpuKernel", 500.0, 1000.0),
            ("MatMulV2", 50.0, 2000.0),
        ]),
    );
    let pass = &read_passes_of_kernels(&path, None, &[]).expect("a pass").passes[0];
    assert_eq!(
        (pass.compute, pass.communication, pass.aicpu),
        (Nanos(50_000), Nanos(150_000), Nanos(500_000))
    );
    assert_eq!(pass.kernels, 3);
    let more = table(&[
        ("hcom_allReduce_", 100.0, 1000.0),
        ("hcom_allReduce_", 100.0, 1001.0),
        ("hcom_allGather_", 100.0, 1000.0),
        ("hcom_allReduce_", 100.0, 1000.0),
    ]);
    let pass =
        &read_passes_of_kernels(&context.write("more.csv", &more), None, &[]).expect("a pass").passes[0];
    assert_eq!((pass.communication, pass.kernels), (Nanos(300_000), 3));
}

/// Passes end with their anchor; what precedes the first one is whole only if another pass has as many kernels and
/// tokens.
#[test]
fn forward_passes_are_cut_behind_their_anchors() {
    let context = Context::new();
    let header = "Device_id,Type,Start Time(us),Duration(us),Input Shapes\n";
    let row = |device: u32, kernel: &str, start: u32, tokens: u32| {
        format!("{device},{kernel},{start}.000,10.000,\"\"\"{tokens},64;64,32\"\"\"\n")
    };
    let pass = |device: u32, start: u32, tokens: u32, products: u32| -> String {
        let products: String =
            (0..products).map(|at| row(device, "MatMulV2", start + 20 * at, tokens)).collect();
        products
            + &row(device, "ArgMaxV2", start + 900, tokens)
            + &row(device, "ArgMaxV2", start + 950, tokens)
    };
    // Device 0: half a prefill, two prefills, two decodes, an open end; device 1: two decodes. Rows are in no order.
    let mut rows = [
        pass(0, 1000, 4096, 2),
        pass(0, 2000, 4096, 4),
        pass(0, 3000, 4096, 4),
        pass(0, 4000, 8, 4),
        pass(0, 5000, 8, 4),
        row(0, "MatMulV2", 6000, 8),
        pass(1, 1000, 8, 4),
        pass(1, 2000, 8, 4),
    ];
    rows.reverse();
    let path = context.write("kernel_details.csv", &(header.to_owned() + &rows.concat()));
    let found = read_passes_of_kernels(&path, Some(FORWARD_ANCHOR), &[]).expect("passes");
    let shown: Vec<_> = found
        .passes
        .iter()
        .map(|pass| {
            (pass.device.as_str(), pass.tokens, pass.kernels, pass.compute.0 / 1000, pass.is_complete)
        })
        .collect();
    assert_eq!(
        shown,
        [
            ("0", Some(4096), 4, 40, false),
            ("0", Some(4096), 6, 60, true),
            ("0", Some(4096), 6, 60, true),
            ("0", Some(8), 6, 60, true),
            ("0", Some(8), 6, 60, true),
            ("1", Some(8), 6, 60, true),
            ("1", Some(8), 6, 60, true),
        ]
    );
    assert_eq!(found.left_out, 1);
    context.write(
        "trace.json",
        &trace(&[event(30.0, "\"source\": \"MEASURED\", \"kernel_type\": \"MatMulV2\"")]),
    );
    let lines = json_lines(&context, "kernel_details.csv --predicted trace.json --tokens 8");
    assert_eq!(lines.len(), 6);
    assert_eq!((value(&lines[4], "M6"), value(&lines[4], "passes")), (0.5, 4.0));
    // The means of phases are apart, and the first pass is in neither.
    let lines = json_lines(&context, "kernel_details.csv --predicted trace.json");
    let means: Vec<_> =
        lines[7..9].iter().map(|mean| (value(mean, "tokens"), value(mean, "passes"))).collect();
    assert_eq!((lines.len(), means), (10, vec![(8.0, 4.0), (4096.0, 2.0)]));
}

/// A database predicts a workload: complete answers count, those of collectives apart, and misses do not.
#[test]
fn a_database_predicts_a_forward_pass() {
    let context = Context::new();
    let header = "Input Shapes,Input Data Types,Input Formats,Output Shapes,Output Data Types,Output Formats,Average Duration(us)\n";
    context.write(
        "db/MatMulV2.csv",
        &format!("{header}\"8,64;32,64\",DT_BF16;DT_BF16,ND;ND,\"8,32\",DT_BF16,ND,10\n"),
    );
    context.write(
        "db/hcom_allReduce_.csv",
        "message_bytes,num_devices,dtype,topology_tier,Duration(us)\n512,8,DT_BF16,1,7\n",
    );
    context.write(
        "db/op_mapping.yaml",
        "operator_mappings:\n  fused: {composite: true, sub_kernels: [MatMulV2, hcom_allReduce_]}\n  aten.view: {zero_cost: true}\n",
    );
    context.write(
        "list.csv",
        "op,inputs,dtypes,count\nMatMulV2,\"8,64;64,32\",bf16,3\nfused,\"8,64;64,32\",bf16,2\n\
         hcom_allReduce_,\"256\",bf16,1\naten.view,\"8\",bf16,9\nAdd,\"8;8\",bf16,5\n",
    );
    context
        .write("kernel_details.csv", &table(&[("MatMulV2", 100.0, 0.0), ("hcom_allReduce_", 42.0, 200.0)]));
    let arguments = "kernel_details.csv --whole --db db --workload list.csv --ranks 8";
    let lines = json_lines(&context, arguments);
    let predicted =
        ["predicted_compute_us", "predicted_communication_us", "predicted_invocations", "other_invocations"];
    assert_eq!(predicted.map(|key| value(&lines[2], key)), [50.0, 21.0, 6.0, 5.0]);
    assert_eq!((value(&lines[1], "M6"), value(&lines[1], "M6_communication")), (0.5, 0.5));
    // Of one kernel: what its rows answer, also within an operator, against its records.
    let lines = json_lines(&context, &(arguments, "--kernels MatMulV2"));
    assert_eq!(predicted.map(|key| value(&lines[2], key)), [50.0, 0.0, 5.0, 0.0]);
    assert_eq!((value(&lines[1], "M6"), lines[1]["M6_communication"].is_null()), (0.5, true));
    // A case that was measured under another name of its call answers, as in `coverage`.
    fs::rename(context.path("db/MatMulV2.csv"), context.path("db/MatMulV3.csv")).expect("renamed");
    context.write("one.csv", "op,inputs,dtypes,count\nMatMulV2,\"8,64;64,32\",bf16,3\n");
    let lines = json_lines(&context, "kernel_details.csv --whole --db db --workload one.csv");
    assert_eq!(predicted.map(|key| value(&lines[2], key)), [30.0, 0.0, 3.0, 0.0]);
}

#[test]
fn passes_that_cannot_be_cut_are_refused() {
    let context = Context::new();
    context.write("trace.json", &trace(&predicted_events()));
    context.write("db/MatMulV2.csv", "Input Shapes\n");
    context.write("none/kernel_details.csv", &recorded_pass());
    context.write("empty/kernel_details.csv", HEADER);
    context.write("columns/kernel_details.csv", "Type,Start Time(us)\na,1\n");
    context.write("cell/kernel_details.csv", &format!("{HEADER}a,1.5,2,\na,x,3,\n"));
    context.write("ragged/kernel_details.csv", &format!("{HEADER}a,1.5\n"));
    context.write("negative/kernel_details.csv", &format!("{HEADER}a,-1,2,\n"));
    let shown: Vec<String> = [
        &["none/kernel_details.csv", "--predicted", "trace.json"][..],
        &["none/kernel_details.csv", "--predicted", "trace.json", "--anchor", "sort"],
        &["none/kernel_details.csv", "--predicted", "trace.json", "--whole", "--tokens", "8"],
        &["none/kernel_details.csv", "--whole"],
        &["none/kernel_details.csv", "--whole", "--db", "db"],
        &["none/kernel_details.csv", "--whole", "--predicted", "none/kernel_details.csv"],
        &["empty/kernel_details.csv", "--predicted", "trace.json"],
        &["columns/kernel_details.csv", "--predicted", "trace.json"],
        &["cell/kernel_details.csv", "--predicted", "trace.json"],
        &["ragged/kernel_details.csv", "--predicted", "trace.json"],
        &["negative/kernel_details.csv", "--predicted", "trace.json"],
        &["trace.json", "--predicted", "trace.json"],
    ]
    .iter()
    .map(|arguments| {
        let ran = context.run(&("m6", *arguments));
        format!("$ m6 {}\n[{}]\n{}{}", arguments.join(" "), ran.code, ran.stdout, ran.stderr)
    })
    .collect();
    insta::assert_snapshot!(shown.join("\n"));
}

/// A real table of 2,463 records with a tab behind each start. Its collectives have one record each; one step of
/// training has no anchor.
#[test]
fn a_real_run_is_summed() {
    let Some(path) = shared("real/llm_step_rank0/ASCEND_PROFILER_OUTPUT/kernel_details.csv") else { return };
    let passes = read_passes_of_kernels(&path, None, &[]).expect("a pass").passes;
    assert_eq!(passes.len(), 1);
    let mut reader = csv::Reader::from_path(&path).expect("a table");
    let header = reader.headers().expect("a header").clone();
    let column = |name: &str| header.iter().position(|cell| cell == name).expect("a column");
    let (kernel, duration) = (column("Type"), column("Duration(us)"));
    let mut sums = [0, 0];
    for row in reader.records().map(|row| row.expect("a row")) {
        let time: Nanos = row[duration].parse().expect("a duration");
        sums[usize::from(row[kernel].starts_with("hcom_"))] += time.0;
    }
    assert_eq!([passes[0].compute.0, passes[0].communication.0], sums);
    assert!(read_passes_of_kernels(&path, Some(FORWARD_ANCHOR), &[]).is_err());
}
