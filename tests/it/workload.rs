//! Workloads: the kinds of files, and what is refused.

use std::path::Path;

use npubench::{
    answer::workload::{DurationKind, UnreadableReason, Workload, load_workload, read_predicted_time},
    kernel::{Dtype, Nanos},
};

use crate::prelude::*;

fn load(context: &Context, name: &str, text: &str) -> Workload {
    load_workload(&context.write(name, text)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Message and hint of the error for a file.
fn refusal(context: &Context, name: &str, text: &str) -> String {
    let path = context.write(name, text);
    let error = load_workload(&path).expect_err(name).to_string();
    let folder = path.parent().expect("a folder").display().to_string();
    error.trim_start_matches("error: ").replace(&folder, "DIR")
}

fn total_time(workload: &Workload) -> Nanos {
    Nanos(workload.questions.iter().filter_map(|question| question.time).map(|time| time.0).sum())
}

/// The example has all of its records in a kernel table: 10 kernels by signature.
#[test]
fn a_profile_is_a_workload() {
    let profile =
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/decoder-layer/kernel_details.csv"));
    let workload = load_workload(profile).expect("a profile");
    let mut reader = csv::Reader::from_path(profile).expect("a table");
    let header = reader.headers().expect("a header").clone();
    let column = header.iter().position(|cell| cell == "Duration(us)").expect("a column");
    let durations: Vec<Nanos> = reader
        .records()
        .map(|row| row.expect("a row")[column].parse::<Nanos>().expect("a duration"))
        .collect();
    assert_eq!(workload.invocations(), durations.len() as u64);
    assert_eq!(total_time(&workload), Nanos(durations.iter().map(|time| time.0).sum()));
    assert_eq!(workload.durations, DurationKind::Measured);
    assert!(
        workload.questions.iter().all(|question| question.case.is_some() && question.unreadable.is_none())
    );
    let product =
        workload.questions.iter().find(|question| question.query.op == "MatMulV3").expect("a product");
    assert!(
        product
            .query
            .inputs
            .iter()
            .all(|tensor| tensor.dtype == Some(Dtype::Bf16) && tensor.format.is_some())
    );
}

/// A collective has a record on a stream of its own and on that of its task: it counts once, as the longer one.
#[test]
fn collectives_that_are_recorded_twice_count_once() {
    let context = Context::new();
    let row = |kernel: &str, start: &str, duration: &str| {
        format!(
            "1,0,1,1,1,{kernel}_x,{kernel},N/A,COMMUNICATION,{start},{duration},0,0,0,NO,N/A,N/A,N/A,N/A,N/A,N/A,N/A\n"
        )
    };
    let rows = [
        row("hcom_allReduce_", "1000.100", "100.000"),
        row("hcom_allReduce_", "1000.100", "150.000"),
        row("hcom_allReduce_", "2000.100", "100.000"),
        row("hcom_allGather_", "1000.100", "7.000"),
    ];
    context.write("kernel_details.csv", &format!("{HEADER}\n{}", rows.concat()));
    let workload = load_workload(&context.path("kernel_details.csv")).expect("a profile");
    let asked: Vec<_> = workload
        .questions
        .iter()
        .map(|question| (question.query.op.as_str(), question.count, question.time))
        .collect();
    assert_eq!(
        asked,
        [("hcom_allGather_", 1, Some(Nanos(7_000))), ("hcom_allReduce_", 2, Some(Nanos(250_000)))]
    );
    assert_eq!(workload.notes, ["left out: 1 record of collectives, repeated on another stream"]);
}

/// The file states 2,392 operators and the sum of their predicted times; neither is changed by the division between
/// shapes.
#[test]
fn an_inventory_of_a_simulator_is_a_workload() {
    let Some(path) = shared("real/excerpts/ops_qwen3_32b_prefill.json") else { return };
    let workload = load_workload(&path).expect("an inventory");
    assert_eq!(workload.invocations(), 2392);
    let text = std::fs::read_to_string(&path).expect("read");
    let file: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let times = file["ops"].list().iter().map(|op| op["total_duration_us"].as_f64());
    let stated: f64 = times.map(|time| time.expect("a time")).sum();
    assert_eq!(total_time(&workload).seconds(), stated / 1e6);
    assert!(workload.name.starts_with("Qwen/Qwen3-32B prefill ("), "{}", workload.name);
    assert_eq!(workload.durations, DurationKind::Predicted);
    let products: Vec<_> =
        workload.questions.iter().filter(|question| question.query.op == "aten.mm.default").collect();
    assert_eq!(products.iter().map(|product| product.count).collect::<Vec<_>>(), [43, 43, 43]);
    assert_eq!(products.iter().map(|product| product.time.expect("a time").0).sum::<i64>(), 406_177_000);
    // The product of 10 tokens is not given a third of the time.
    assert!(products[2].time < products[0].time && products[0].time < products[1].time);
    assert_eq!(products[0].query.inputs[1].dims, [5120, 768]);
    assert_eq!(products[0].query.inputs[0].dtype, Some(Dtype::Float16));
    let line = products[0].line.expect("a line");
    let at_line = text.lines().nth(usize::try_from(line).expect("small") - 1).expect("a line");
    assert_eq!(at_line.trim(), "{", "the line of the variant");
    assert_eq!(workload.notes.len(), 1, "{:?}", workload.notes);
    assert!(workload.notes[0].contains("aten.mm.default"), "{}", workload.notes[0]);
}

#[test]
fn shapes_that_cannot_be_parsed_are_counted_with_their_reason() {
    let context = Context::new();
    let text = r#"{"ops": [
        {"op_name": "a", "count": 3, "total_duration_us": 7.5, "shape_variants": [{"input_shapes": ["(s0, 4)"]}]},
        {"op_name": "b", "count": 2},
        {"op_name": "c", "count": 1, "shape_variants": [{"input_shapes": ["(1, 1, 1, 1, 1, 1, 1, 1, 1)"]}]}
    ]}"#;
    let workload = load(&context, "ops.json", text);
    let reasons: Vec<String> = workload
        .questions
        .iter()
        .map(|question| question.unreadable.as_ref().map(ToString::to_string).unwrap_or_default())
        .collect();
    assert_eq!(
        reasons,
        [
            "unreadable_shape: `(s0, 4)`",
            "no_shapes",
            "unreadable_shape: input 1 has 9 dimensions, the limit is 8"
        ]
    );
    assert_eq!((workload.invocations(), total_time(&workload)), (6, Nanos(7_500)));
}

/// A trace of two models of time has every operator twice; the analytic one counts.
#[test]
fn a_chrome_trace_of_a_simulator_is_a_workload() {
    let context = Context::new();
    let event = |name: &str, pid: u64, dur: f64, args: &str| {
        format!(
            r#"{{"name": "{name}", "ph": "X", "ts": 0, "dur": {dur}, "pid": {pid}, "tid": 0, "args": {{{args}}}}}"#
        )
    };
    let tensor = "tensor(..., device='meta', size=(8, 64), dtype=torch.bfloat16)";
    let shapes = format!(
        r#""Inputs": "({tensor}, {tensor}) kwargs: {{}}", "simulation_shapes": "[[8, 64], [64, 32]]""#
    );
    let looked_up = format!(r#"{shapes}, "source": "MEASURED", "kernel_type": "MatMulV2""#);
    let reduced =
        r#""simulation_shapes": "[[8, 32]]", "source": "INTERPOLATED", "kernel_type": "hcom_allReduce_""#;
    let events = [
        r#"{"name": "process_name", "ph": "M", "pid": 0, "args": {"name": "analytic"}}"#.to_owned(),
        event("aten.mm.default", 0, 10.0, &shapes),
        event("aten.mm.default", 1, 12.0, &looked_up),
        event("aten.mm.default", 0, 10.0, &shapes),
        event("aten.mm.default", 1, 12.0, &looked_up),
        event("all_reduce", 1, 30.0, reduced),
        event("all_reduce", 0, 25.0, r#""simulation_shapes": "[[8, 32]]""#),
        event("aten.cat.default", 0, 2.0, r#""simulation_shapes": "[]""#),
        event("aten.cat.default", 1, 2.5, r#""simulation_shapes": "[]""#),
        event("aten.view.default", 1, 0.0, r#""source": "MEASURED", "kernel_type": "zero_cost""#),
        event("aten.view.default", 0, 0.0, r#""Inputs": "(2,)""#),
        // An event that encloses others is no operator.
        event("layer 0", 0, 100.0, ""),
    ];
    let list = format!("[{}]", events.join(",\n"));
    for (name, text) in [("trace.json", format!("{{\"traceEvents\": {list}}}")), ("list.json", list)] {
        let workload = load(&context, name, &text);
        let asked: Vec<_> = workload
            .questions
            .iter()
            .map(|question| (question.query.op.as_str(), question.count, question.time))
            .collect();
        assert_eq!(
            asked,
            [
                ("aten.mm.default", 2, Some(Nanos(20_000))),
                ("all_reduce", 1, Some(Nanos(25_000))),
                ("aten.cat.default", 1, Some(Nanos(2_000))),
                ("aten.view.default", 1, Some(Nanos(0)))
            ],
            "{name}"
        );
        let notes = workload.notes.join("\n");
        assert!(notes.contains("2 processes with the same operators: process 0 is read"), "{notes}");
        assert!(notes.contains("1 events without shapes, inputs, kernel and source"), "{notes}");
        let product = &workload.questions[0].query;
        assert_eq!(product.inputs[1].dims, [64, 32]);
        assert_eq!(product.inputs[1].dtype, Some(Dtype::Bf16));
        assert_eq!(workload.questions[2].unreadable, Some(UnreadableReason::NoShapes));
        let predicted = read_predicted_time(&context.path(name), false).expect("a trace");
        assert_eq!((predicted.compute, predicted.communication), (Nanos(24_000), Nanos(30_000)), "{name}");
        // The operator without an answer of the same process.
        assert_eq!((predicted.events, predicted.others), (3, 1), "{name}");
    }
}

#[test]
fn lists_in_yaml_and_csv_are_the_same_workload() {
    let context = Context::new();
    let yaml = "name: two products\ntp: 4\nquestions:\n  - {op: MatMulV2, shapes: \"8,64;64,32\", dtypes: bf16, count: 3, duration_us: 2.5}\n  \
                - op: FusedInferAttentionScore\n    inputs: 8,4,128;512,128,1,128\n    dtypes: bf16\n    kv_length: 4096\n";
    let parameters = "questions:\n  - {op: LightningIndexer, inputs: \"2,32,128\", dtypes: bf16, topk: 2048, block_size: 128, \
                      kv_lengths: [4096, 512], query_lengths: [1, 1], batch: 2, phase: decode}\n";
    let table = "op,inputs,dtypes,topk,block_size,kv_lengths,query_lengths,batch,phase\n\
                 LightningIndexer,\"2,32,128\",bf16,2048,128,4096;512,\"1,1\",2,decode\n";
    let [parameters, table] =
        [("p.yaml", parameters), ("p.csv", table)].map(|(name, text)| load(&context, name, text));
    assert_eq!(parameters.questions[0].query, table.questions[0].query);
    let attention = &table.questions[0].query.attention;
    assert_eq!((attention.topk, attention.block_size, attention.batch), (Some(2048), Some(128), Some(2)));
    assert_eq!((&*attention.kv_lengths, &*attention.query_lengths), (&[4096, 512][..], &[1, 1][..]));
    let csv = "op,inputs,dtypes,count,duration_us,kv_length,tp\nMatMulV2,\"8,64;64,32\",bf16,3,2.5,,4\n\
               FusedInferAttentionScore,\"8,4,128;512,128,1,128\",bf16,,,4096,4\n";
    let json = r#"{"name": "two products", "tp": 4, "questions": [{"op": "MatMulV2", "inputs": "8,64;64,32",
        "dtypes": "bf16", "count": 3, "duration_us": 2.5}, {"op": "FusedInferAttentionScore",
        "inputs": "8,4,128;512,128,1,128", "dtypes": "bf16", "kv_length": 4096}]}"#;
    let [yaml, csv, json] =
        [("a.yaml", yaml), ("a.csv", csv), ("a.json", json)].map(|(name, text)| load(&context, name, text));
    assert_eq!(yaml.name, "two products");
    assert_eq!((yaml.invocations(), total_time(&yaml)), (4, Nanos(7_500)));
    assert_eq!(yaml.questions[1].query.attention.kv_length, Some(4096.0));
    let queries = |workload: &Workload| -> Vec<_> {
        workload
            .questions
            .iter()
            .map(|question| (question.query.clone(), question.count, question.time))
            .collect()
    };
    assert_eq!(queries(&yaml), queries(&csv));
    assert_eq!(queries(&yaml), queries(&json));
    assert_eq!((yaml.questions[0].line, csv.questions[0].line), (Some(4), Some(2)));
}

#[test]
fn files_that_are_no_workload_are_refused_with_their_place() {
    let context = Context::new();
    let shown: Vec<String> = [
        ("empty.yaml", ""),
        ("none.yaml", "questions: []\n"),
        ("key.yaml", "questions:\n  - {op: a}\n  - {op: b, cuont: 2}\n"),
        ("shape.yaml", "questions:\n  - {op: a, inputs: \"8,4\"}\n  - {op: b, inputs: \"8,x;4\"}\n"),
        ("types.yaml", "questions:\n  - {op: b, inputs: \"8;4;2\", dtypes: \"bf16;int8\"}\n"),
        ("degrees.yaml", "ranks: 0\nquestions:\n  - {op: b, inputs: \"8\"}\n"),
        ("length.yaml", "tp: 2\nkv_length: -4\nquestions:\n  - {op: b, inputs: \"8\"}\n"),
        ("lengths.yaml", "questions:\n  - {op: b, inputs: \"8\", kv_length: 8, kv_lengths: [8, 8]}\n"),
        ("dtype.yaml", "questions:\n  - {op: b, inputs: \"8\", dtypes: fp99}\n"),
        ("format.yaml", "questions:\n  - {op: b, inputs: \"8\", dtypes: bf16, formats: FRACTAL_N}\n"),
        ("phase.csv", "op,inputs,phase\na,8,warm\n"),
        ("degree.yaml", "questions:\n  - {op: b, inputs: \"8\", tp: 0}\n"),
        ("time.yaml", "questions:\n  - {op: b, inputs: \"8\", duration_us: -1}\n"),
        ("nan.yaml", "questions:\n  - {op: b, inputs: \"8\", duration_us: .nan}\n"),
        ("name.yaml", "questions:\n  - {inputs: \"8\"}\n"),
        ("rank.yaml", "questions:\n  - {op: a, inputs: \"1,1,1,1,1,1,1,1,1\"}\n"),
        ("column.csv", "op,input,count\na,1,1\n"),
        ("twice.csv", "op,inputs,op\na,1,a\n"),
        ("header.csv", "inputs,count\n1,1\n"),
        ("ragged.csv", "op,inputs,count\na,8,4,1\n"),
        ("count.csv", "op,inputs,count\na,8,1\na,8,-1\n"),
        ("other.json", "{\"rows\": [1], \"x\": 2}"),
        ("broken.json", "{\"ops\": [\n  {\"op_name\": \"a\",\n"),
        ("type.json", "{\"ops\": [\n  {\"op_name\": \"a\", \"count\": 1},\n  {\"op_name\": \"a\",\n   \"count\": \"x\"}]}"),
        ("sum.json", "{\"ops\": [\n{\"op_name\": \"a\", \"count\": 9, \"shape_variants\": [{\"count\": 1, \"input_shapes\": [\"(8)\"]}]}]}"),
        ("long.json", "{\"ops\": [\n{\"op_name\": \"a\", \"count\": 9, \"total_duration_us\": 1e300}]}"),
        ("profiler.json", "[{\"name\": \"k\", \"ph\": \"X\", \"ts\": \"1.5\", \"dur\": 2, \"pid\": 1, \"args\": {\"Task Type\": \"AI_CORE\"}}]"),
        ("cut.json", "{\"traceEvents\": [\n{\"name\": \"k\", \"ph\": \"X\", \"dur\": 2,\n"),
        ("negative.json", "{\"traceEvents\": [\n{\"name\": \"k\", \"ph\": \"X\", \"dur\": -2}]}"),
        ("op_statistic.csv", "Device_id,OP Type,Core Type,Count,Total Time(us)\n0,Add,AI_CORE,1,2\n"),
        ("trace_view.csv", "Name,Size(KB)\na,1\n"),
    ]
    .iter()
    .map(|(name, text)| refusal(&context, name, text))
    .collect();
    insta::assert_snapshot!(shown.join("\n\n"));
}
