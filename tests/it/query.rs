//! `query`: one lookup, with the rule that answered.

use std::fs;

use serde_json::Value;

use crate::prelude::*;

const HEADER: &str = "Input Shapes,Input Data Types,Input Formats,Output Shapes,Output Data Types,Output Formats,\
                      Average Duration(us),Profiling Average Duration(us)\n";

/// A database of two kernels with a mapping.
fn database() -> Context {
    let context = Context::new();
    let rows = [
        "\"136,5120;768,5120\",DT_BF16;DT_BF16,ND;ND,\"136,768\",DT_BF16,ND,21.5,22\n",
        "\"4096,5120;768,5120\",DT_BF16;DT_BF16,ND;ND,\"4096,768\",DT_BF16,ND,,190.25\n",
        "\"400,5120;768,5120\",DT_BF16;DT_BF16,ND;ND,\"400,768\",DT_BF16,ND,,40\n",
        "\"64,5120;768,5120\",DT_BF16;DT_BF16,ND;ND,\"64,768\",DT_BF16,ND,,\n",
    ];
    context.write("db/MatMulV2.csv", &(HEADER.to_owned() + &rows.concat()));
    context.write(
        "db/Add.csv",
        &(HEADER.to_owned() + "\"8,64;8,64\",DT_BF16;DT_BF16,ND;ND,\"8,64\",DT_BF16,ND,3,\n"),
    );
    let mapping = "operator_mappings:\n  aten.mm.default: {kernel_type: MatMulV2}\n  \
                   aten.add.Tensor: {kernel_type: Add, query_mode: elementwise}\n  aten.view.default: {zero_cost: true}\n  \
                   tensor_cast.attention.default: {kernel_type: FusedInferAttentionScore, query_mode: attention_special}\n  \
                   tensor_cast.mlapo.default: {composite: true, decomposer: true}\n  \
                   aten.convolution.default: {kernel_type: Conv2D}\n  \
                   fused: {composite: true, sub_kernels: [MatMulV2, hcom_allReduce_]}\n";
    let rows = "\"8,4,128;512,128,128\",DT_BF16;DT_BF16,ND;ND,\"8,4,128\",DT_BF16,ND,58.2,,4096,3,1,TND\n";
    let runtime = "Runtime avg_seq_len,Runtime sparse_mode,Runtime num_key_value_heads,Runtime input_layout";
    let text = format!("{},{runtime}\n{rows}", HEADER.trim_end());
    context.write("db/FusedInferAttentionScore.csv", &text);
    let rows = "message_bytes,num_devices,dtype,topology_tier,Duration(us)\n196608,8,DT_BF16,1,30\n262144,8,DT_BF16,1,40\n";
    context.write("db/hcom_allReduce_.csv", rows);
    context.write("db/op_mapping.yaml", mapping);
    context
}

fn run_query(context: &Context, arguments: &[&str]) -> String {
    let ran = context.run(&("query --db db", arguments));
    format!("$ query {}\n[{}]\n{}{}", arguments.join(" "), ran.code, ran.stdout, ran.stderr)
}

#[test]
fn answers_have_latency_source_rule_and_rows() {
    let context = database();
    let shown: Vec<String> = [
        &["--op", "aten.mm.default", "--inputs", "(1, 144, 5120);(5120, 768)", "--dtypes", "bfloat16"][..],
        &["--op", "MatMulV2", "--inputs", "4096,5120;5120,768", "--dtypes", "bf16", "--formats", "nd"],
        &["--op", "torch.ops.aten.add.Tensor", "--inputs", "8,64;8,64", "--dtypes", "float32"],
        &["--op", "aten.view.default", "--inputs", "8,64"],
        &["--op", "aten.mm.default", "--inputs", "64,5120;5120,768", "--dtypes", "bf16"],
        &["--op", "aten.mm.default", "--inputs", "130,5120;5120,768", "--dtypes", "bf16"],
        &["--op", "aten.mm.default", "--inputs", "1000,5120;5120,768", "--dtypes", "bf16"],
        &["--op", "fused", "--inputs", "136,5120;5120,768", "--dtypes", "bf16", "--ranks", "8"],
        &["--op", "fused", "--inputs", "136,5120;5120,768", "--dtypes", "bf16"],
        &["--op", "hcom_allReduce_", "--inputs", "98304", "--dtypes", "bf16", "--ranks", "8", "--tier", "1"],
        &["--op", "aten.mn.default", "--inputs", "1"],
        &["--op", "tensor_cast.mlapo.default", "--inputs", "1"],
        &["--op", "tensor_cast.attention.default", "--inputs", "8,4,128;512,128,1,128", "--dtypes", "bf16"],
        &[
            "--op",
            "tensor_cast.attention.default",
            "--inputs",
            "8,4,128;512,128,1,128",
            "--dtypes",
            "bf16",
            "--kv-length",
            "4100",
        ],
        &["--op", "aten.convolution.default", "--inputs", "1"],
        &["--op", "MatMulV2", "--inputs", "4096,5120;5120,768", "--dtypes", "bf16", "--format", "json"],
        &["--op", "MatMulV2", "--inputs", "4096,5120", "--format", "json"],
    ]
    .iter()
    .map(|arguments| run_query(&context, arguments))
    .collect();
    insta::assert_snapshot!(shown.join("\n"));
}

#[test]
fn bad_queries_are_refused() {
    let context = database();
    context.write("cyclic.yaml", "operator_mappings:\n  a: {composite: true, sub_kernels: [a]}\n");
    context.write("db/Mul.csv", "version https://git-lfs.github.com/spec/v1\noid sha256:62a5\nsize 5528\n");
    let before = context.snapshot("");
    let shown: Vec<String> = [
        &["--op", "MatMulV2", "--inputs", "4096x5120"][..],
        &["--op", "MatMulV2", "--inputs", "1;2;3", "--dtypes", "bf16;int8"],
        &["--op", "MatMulV2", "--inputs", "1,1,1,1,1,1,1,1,1"],
        &["--op", "MatMulV2", "--inputs", "1", "--mapping", "missing.yaml"],
        &["--op", "MatMulV2", "--inputs", "1", "--mapping", "cyclic.yaml"],
        &["--op", "Mul", "--inputs", "1"],
        &["--op", "MatMulV2", "--inputs", "18446744073709551616"],
    ]
    .iter()
    .map(|arguments| run_query(&context, arguments))
    .collect();
    assert_eq!(context.snapshot(""), before);
    insta::assert_snapshot!(shown.join("\n"));
}

/// The superseded tool takes FLOAT16 for DT_BF16.
#[test]
fn compat_gives_the_answer_of_the_superseded_tool() {
    let context = database();
    let arguments =
        "query --db db --op aten.mm.default --inputs 136,5120;5120,768 --dtypes fp16 --format json";
    let answer = |extra: &str| {
        let arguments: Vec<&str> = arguments.split(' ').collect();
        let ran = context.run(&(&arguments, extra));
        (ran.code, serde_json::from_str::<Value>(&ran.stdout).expect("JSON"))
    };
    let (code, current) = answer("");
    assert_eq!((code, &current["compat"], &current["reason"]), (1, &false.into(), &"dtype_mismatch".into()));
    let (code, superseded) = answer("--compat");
    assert_eq!((code, &superseded["compat"], &superseded["latency_us"]), (0, &true.into(), &21.5.into()));
}

#[test]
fn keys_of_the_answer_are_documented() {
    let context = database();
    let documented =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/lookup.md")).expect("a document");
    for (op, inputs) in
        [("MatMulV2", "136,5120;5120,768"), ("MatMulV2", "7,7"), ("fused", "136,5120;5120,768")]
    {
        let arguments = [
            "query", "--db", "db", "--op", op, "--inputs", inputs, "--dtypes", "bf16", "--ranks", "8",
            "--format", "json",
        ];
        let answer: Value = serde_json::from_str(&context.run(&arguments).stdout).expect("JSON");
        let lists =
            ["rows", "nearest", "parts"].map(|list| answer[list].as_array().cloned().unwrap_or_default());
        for object in lists.concat().iter().chain([&answer]) {
            for key in object.as_object().expect("an object").keys() {
                assert!(documented.contains(&format!("`{key}`")), "`{key}` is not documented");
            }
        }
    }
}

#[test]
fn lines_of_json_are_answered_one_by_one() {
    let context = database();
    let lines = "{\"op\": \"aten.mm.default\", \"inputs\": [[136, 5120], [5120, 768]], \"dtypes\": [\"bf16\"]}\n\n\
                 {\"op\": \"hcom_allReduce_\", \"inputs\": [[98304]], \"dtypes\": [\"bf16\"], \"ranks\": 8}\n\
                 {\"op\": \"MatMulV2\", \"inputs\": [[7, 7]]}\n";
    context.write("queries.jsonl", lines);
    let ran = context.run("query --db db --queries queries.jsonl");
    let answers: Vec<Value> = ran.json();
    let latencies: Vec<Option<f64>> = answers.iter().map(|answer| answer["latency_us"].as_f64()).collect();
    assert_eq!((ran.code, latencies), (1, vec![Some(21.5), Some(30.0), None]), "{}", ran.stderr);
    assert_eq!(answers[2]["reason"], "input_count_mismatch");
    for (line, problem) in [
        ("{\"op\": \"A\", \"input\": []}", "bad.jsonl:1: unknown field `input`"),
        ("{\"op\": \"A\", \"inputs\": [[-1]]}", "bad.jsonl:1: invalid value: integer `-1`, expected"),
        ("{\"op\": \"A\", \"inputs\": [[\"a\"]]}", "bad.jsonl:1: invalid type: string \"a\", expected"),
        ("{\"op\": \"A\", \"ranks\": 0}", "bad.jsonl:1: `ranks` is 0"),
        ("[", "bad.jsonl:1: EOF while parsing"),
    ] {
        context.write("bad.jsonl", line);
        let ran = context.run("query --db db --queries bad.jsonl");
        assert_eq!((ran.code, ran.stdout.as_str()), (3, ""), "{line}");
        ran.err_has(problem);
    }
    let missing = context.run("query --db db --queries missing.jsonl");
    assert!(
        missing.code == 3 && missing.stderr.contains("cannot read `missing.jsonl`"),
        "{}",
        missing.stderr
    );
    assert_eq!(context.run("query --db db").code, 2);
    assert_eq!(context.run("query --db db --op MatMulV2").code, 2);
}

/// The example keeps one process for all of its queries.
#[test]
fn python_example_answers() {
    let context = database();
    let program = assert_cmd::cargo::cargo_bin!("npubench");
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/query.py");
    let output = std::process::Command::new("python3")
        .arg(example)
        .arg(context.path("db"))
        .arg(program)
        .output()
        .expect("python3 runs");
    let ran = context.ran(&output);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "21.5 measured transpose\n"), "{}", ran.stderr);
}

#[test]
fn interpolated_answers_show_the_coordinates_of_their_rows() {
    let context = Context::new();
    let header = "Input Shapes,Input Data Types,Input Formats,Output Shapes,Output Data Types,Output Formats,Average Duration(us)\n";
    let row = |rows: u32, micros: u32| {
        format!("\"{rows},64;64,32\",DT_BF16;DT_BF16,ND;ND,\"{rows},32\",DT_BF16,ND,{micros}\n")
    };
    context.write("db/MatMulV2.csv", &format!("{header}{}{}", row(100, 10), row(300, 30)));
    let messages = "message_bytes,num_devices,dtype,topology_tier,Duration(us)\n4096,8,DT_BF16,1,20\n16384,8,DT_BF16,1,30\n";
    context.write("db/hcom_allReduce_.csv", messages);
    let query = ["query", "--db", "db", "--op", "MatMulV2", "--inputs", "150,64;64,32", "--dtypes", "bf16"];
    let shown = context.run(&query).stdout;
    assert!(shown.contains("MatMulV2.csv:2  M 100  Average Duration(us) 10\n"), "{shown}");
    assert!(shown.contains("MatMulV2.csv:3  M 300  Average Duration(us) 30\n"), "{shown}");
    let answer: Value =
        serde_json::from_str(&context.run(&(&query[..], "--format json")).stdout).expect("JSON");
    assert_eq!(answer["rows"][1]["coordinates"], serde_json::json!({"M": 300.0}));
    let exact = [&query[..6], &["100,64;64,32", "--dtypes", "bf16", "--format", "json"]].concat();
    let answer: Value = serde_json::from_str(&context.run(&exact).stdout).expect("JSON");
    assert!(answer["rows"][0]["coordinates"].is_null(), "{answer}");
    let collective = "query --db db --op hcom_allReduce_ --inputs 4096 --dtypes bf16 --ranks 8";
    let shown = context.run(&collective.split(' ').collect::<Vec<_>>()).stdout;
    assert!(shown.contains("hcom_allReduce_.csv:2  message_bytes 4096  "), "{shown}");
}

#[test]
fn collectives_without_rows_name_their_sweep() {
    let context = Context::new();
    context.write(
        "db/Add.csv",
        "Input Shapes,Input Data Types,Input Formats,Output Shapes,Output Data Types,Output Formats\n",
    );
    let query = |op: &str, more: &str| {
        let base =
            ["query", "--db", "db", "--op", op, "--inputs", "64,5120", "--dtypes", "bf16", "--ranks", "16"];
        context.run(&(&base[..], more)).stderr
    };
    let shown = query("hcom_allGather_", "--tier 1");
    let command = "/db --ops all_gather --ranks 16 --tiers 1 --dtypes bfloat16 --from 1024 --to 1048576` measures its rows";
    assert!(shown.contains("hint: `npubench comm run --db ") && shown.contains(command), "{shown}");
    let header = "message_bytes,num_devices,dtype,topology_tier,Duration(us)\n";
    context.write("db/hcom_allReduce_.csv", &format!("{header}4096,16,DT_BF16,1,20\n"));
    let shown = query("hcom_allReduce_", "");
    assert!(shown.contains(" --ops all_reduce --ranks 16 --dtypes bfloat16 --sizes 655360`"), "{shown}");
    let of_six = "query --db db --op hcom_alltoall_ --inputs 60000 --dtypes int32 --ranks 6";
    let shown = context.run(&of_six.split(' ').collect::<Vec<_>>()).stderr;
    assert!(shown.contains(" --ops all_to_all --ranks 6 --dtypes int32 --from 768 --to 393216`"), "{shown}");
    // The command is one of comm run.
    let arguments = "comm run --db db --ops all_reduce --ranks 2 --tiers 1 --from 1024 --to 1048576 --dtypes bf16 --dry-run";
    let arguments: Vec<&str> =
        arguments.split(' ').chain(["--host", "rehearsal", "--devices", "0-3"]).collect();
    Context::of_layer().run(&arguments).ended(0);
}
