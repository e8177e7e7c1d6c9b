//! Runtime values of fused attention: from `operator_details.csv`, and from a dump of a serving process.

use std::process::Command;

use crate::prelude::*;

/// A decoding kernel of so many sequences over paged keys, as the profiler writes it.
pub(crate) fn decode(sequences: u64, duration: &str) -> String {
    let mut shapes = vec![String::new(); 31];
    let mut dtypes = vec!["DT_UNDEFINED"; 31];
    for (slot, shape, dtype) in [
        (0, format!("{sequences},4,128"), "DT_BF16"),
        (1, "64,128,128".to_owned(), "DT_BF16"),
        (2, "64,128,128".to_owned(), "DT_BF16"),
        (4, "2048,2048".to_owned(), "INT8"),
        (5, sequences.to_string(), "INT64"),
        (6, sequences.to_string(), "INT64"),
        (14, format!("{sequences},8"), "INT32"),
    ] {
        shapes[slot] = shape;
        dtypes[slot] = dtype;
    }
    let formats: Vec<&str> =
        dtypes.iter().map(|dtype| if *dtype == "DT_UNDEFINED" { "NULL" } else { "ND" }).collect();
    format!(
        "FusedInferAttentionScore,{duration},\"\"\"{}\"\"\",{},{},\"\"\"{sequences},4,128;\"\"\",DT_BF16;FLOAT,ND;ND",
        shapes.join(";"),
        dtypes.join(";"),
        formats.join(";")
    )
}

/// A host call with a cache of four dimensions.
fn host_call(sequences: u64) -> String {
    let mut arguments = vec![String::new(); 41];
    for (at, shape) in
        [(0, format!("{sequences},4,128")), (1, "64,128,1,128".into()), (2, "64,128,1,128".into())]
    {
        arguments[at] = shape;
    }
    arguments[4] = "2048,2048".into();
    arguments[18] = format!("{sequences},8");
    format!(
        "npu::npu_fused_infer_attention_score,\"{}\",\"a.py(1): f;\r\nb.py(2): g\",1,1\r\n",
        arguments.join(";\r\n")
    )
}

const DETAILS: &str = "Name,Input Shapes,Call Stack,Host Self Duration(us),Host Total Duration(us)\r\n";

fn column(context: &Context, row: usize, name: &str) -> String {
    context.rows("db", "FusedInferAttentionScore")[row]
        .get(&format!("Runtime {name}"))
        .cloned()
        .unwrap_or_default()
}

pub(crate) fn call(sequences: u64, lengths: &str) -> String {
    let queries: Vec<String> = (1..=sequences).map(|length| length.to_string()).collect();
    format!(
        "{{\"query\":[{sequences},4,128],\"key\":[64,128,128],\"value\":[64,128,128],\"atten_mask\":[2048,2048],\
         \"block_table\":[{sequences},8],\"actual_seq_lengths\":[{}],\"actual_seq_lengths_kv\":[{lengths}],\
         \"num_heads\":4,\"num_key_value_heads\":1,\"input_layout\":\"TND\",\"sparse_mode\":3,\"block_size\":128}}\n",
        queries.join(",")
    )
}

#[test]
fn host_calls_are_matched_by_shapes_not_order() {
    let context = Context::new();
    context.write("p/kernel_details.csv", &profile(&[&decode(2, "50"), &decode(3, "60"), &decode(5, "70")]));
    // Turned around, one made twice, one of another size, and none of five sequences.
    let calls =
        [host_call(3), host_call(9), "aten::mm,\"2,4;\r\n4,4\",,1,1\r\n".into(), host_call(2), host_call(2)];
    context.write("p/operator_details.csv", &format!("{DETAILS}{}", calls.concat()));
    context.done("ingest p --db db");
    for (row, sequences) in [(0, 2), (1, 3)] {
        let raw = column(&context, row, "operator_input_shapes_raw");
        assert!(
            raw.starts_with(&format!("{sequences},4,128;64,128,1,128;64,128,1,128;;2048,2048;{sequences};")),
            "{raw}"
        );
        assert_eq!(raw.split(';').count(), 31);
        assert_eq!(column(&context, row, "block_table_shape"), format!("{sequences},8"));
        assert_eq!(column(&context, row, "source_profile"), "host calls by shapes");
    }
    assert_eq!(column(&context, 2, "operator_input_shapes_raw"), "", "no call is known");
    assert_eq!(
        column(&context, 0, "metadata_completeness"),
        "partial: no input_layout, num_heads, num_key_value_heads, sparse_mode, block_size, \
         actual_seq_lengths_values, actual_seq_lengths_kv_values"
    );
    let before = context.snapshot("db");
    context.done("ingest p --db db");
    assert_eq!(context.snapshot("db"), before, "twice is once");
}

#[test]
fn dump_completes_rows_that_later_ingest_keeps() {
    let context = Context::new();
    context
        .write("k.csv", &profile(&[&decode(2, "50"), &decode(2, "52"), &decode(3, "60"), &decode(5, "70")]));
    context.run("ingest k.csv --db db");
    let dump =
        [call(2, "1000,129"), call(2, "1000,129"), call(3, "7,8,9"), call(3, "8,9,10"), call(4, "1,2,3,4")];
    context.write("d.jsonl", &dump.concat());
    let ran = context.exits(1, "fia-backfill --db db --dump d.jsonl");
    insta::assert_snapshot!(ran.stdout, @r"
    FusedInferAttentionScore.csv:2: 9 values filled in from 1 call: complete
    FusedInferAttentionScore.csv:3: 7 values filled in from 2 calls: partial: no actual_seq_lengths_kv_values (2 calls of the dump differ)
    FusedInferAttentionScore.csv:4: 0 values filled in from 0 calls: partial: no input_layout, num_heads, num_key_value_heads, sparse_mode, block_size, actual_seq_lengths_values, actual_seq_lengths_kv_values
    1 of 3 rows complete, 0 added; 1 of 4 calls without a row
    ");
    assert_eq!(column(&context, 0, "actual_seq_lengths_kv_values"), "1000,129");
    assert_eq!(column(&context, 0, "block_table_valid_blocks"), "8,2");
    assert_eq!(column(&context, 0, "metadata_completeness"), "complete");
    let table = || context.read("db/FusedInferAttentionScore.csv");
    let before = table();
    context.run("fia-backfill --db db --dump d.jsonl");
    assert_eq!(table(), before, "the same dump twice changes nothing");
    // The profile does not know the lengths; its numbers show that the row is the same.
    let ran = context.run("ingest k.csv --db db");
    assert!(ran.stdout.ends_with("0 rows added, 0 updated, 3 unchanged\n"), "{}", ran.stdout);
    assert_eq!(table(), before);
    // Other numbers of the same shapes are of unknown lengths again.
    context.write("other.csv", &profile(&[&decode(2, "99")]));
    let ran = context.run("ingest other.csv --db db");
    assert!(ran.stdout.ends_with("1 row added, 0 updated, 0 unchanged\n"), "{}", ran.stdout);
    assert_eq!(
        context.rows("db", "FusedInferAttentionScore")[0]["Profiling Average Duration(us)"],
        "51.000000"
    );
}

#[test]
fn add_variants_adds_rows_for_differing_calls() {
    let context = Context::new();
    context.write("k.csv", &profile(&[&decode(3, "60")]));
    context.run("ingest k.csv --db db");
    context.write("d.jsonl", &[call(3, "7,8,9"), call(3, "8,9,10")].concat());
    let ran = context.run("fia-backfill --db db --dump d.jsonl --add-variants --format json");
    let summary: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON");
    assert_eq!(summary["added"], 2);
    assert_eq!(context.rows("db", "FusedInferAttentionScore").len(), 3);
    let ran = context.run("db check db");
    ran.out_lacks("[duplicate]");
}

/// A module in place of torch_npu whose calls take the vendor's keywords.
const TORCH_NPU: &str = "class Tensor:
    def __init__(self, *shape): self.shape = shape
def npu_fused_infer_attention_score(query, key, value, **keywords): return query
def out(query, key, value, **keywords): return query
npu_fused_infer_attention_score.out = out
";

#[test]
fn example_snippet_writes_readable_dump() {
    let context = Context::new();
    context.write("torch_npu.py", TORCH_NPU);
    let script = "import attention_dump, torch_npu
from torch_npu import Tensor as T
attention_dump.record('calls')
def call(function, kv):
    return function(T(2, 4, 128), T(64, 128, 128), T(64, 128, 128), atten_mask=T(2048, 2048), block_table=T(2, 8),
        actual_seq_lengths=[1, 2], actual_seq_lengths_kv=kv, num_heads=4, num_key_value_heads=1,
        input_layout='TND', sparse_mode=3, block_size=128, scale=0.1)
assert call(torch_npu.npu_fused_infer_attention_score, [1000, 129]).shape == (2, 4, 128)
call(torch_npu.npu_fused_infer_attention_score, [1000, 129])
call(torch_npu.npu_fused_infer_attention_score.out, [1001, 130])
";
    context.write("serve.py", script);
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
    serve(&context, "python3", &[examples, &context.path("").to_string_lossy()]);
    check_dump(&context, 2);
}

#[test]
fn example_snippet_records_calls_of_vendor_torch_npu() {
    let Some(python) = vendor_python() else { return };
    let context = Context::new();
    let script = "import torch, torch_npu, attention_dump
attention_dump.record('calls')
def T(*shape, dtype=torch.bfloat16): return torch.empty(*shape, dtype=dtype, device='meta')
tensors = dict(atten_mask=T(2048, 2048, dtype=torch.int8), block_table=T(2, 8, dtype=torch.int32))
common = dict(num_key_value_heads=1, input_layout='TND', sparse_mode=3, block_size=128)
q, k = T(2, 4, 128), T(64, 128, 128)
torch_npu.npu_fused_infer_attention_score(q, k, k, actual_seq_lengths=[1, 2], actual_seq_lengths_kv=[1000, 129],
    num_heads=4, **tensors, **common)
torch_npu.npu_fused_infer_attention_score_v2(q, k, k, actual_seq_qlen=[1, 2], actual_seq_kvlen=[1001, 130],
    num_query_heads=4, **tensors, **common)
";
    context.write("serve.py", script);
    serve(
        &context,
        python.to_str().expect("a path in UTF-8"),
        &[concat!(env!("CARGO_MANIFEST_DIR"), "/examples")],
    );
    check_dump(&context, 2);
}

fn serve(context: &Context, python: &str, path: &[&str]) {
    let output = Command::new(python)
        .arg("serve.py")
        .current_dir(context.path(""))
        .env("PYTHONPATH", path.join(":"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
        .output()
        .expect("Python runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The calls that were recorded become rows.
fn check_dump(context: &Context, calls: usize) {
    let dump = std::fs::read_dir(context.path("")).expect("listed").find_map(|entry| {
        let name = entry.expect("listed").file_name().to_string_lossy().into_owned();
        name.starts_with("calls-").then_some(name)
    });
    let dump = dump.expect("a dump was written");
    context.write("k.csv", &profile(&[&decode(2, "50")]));
    context.run("ingest k.csv --db db");
    let ran = context.run(&["fia-backfill", "--db", "db", "--dump", &dump, "--add-variants"]);
    let summary = format!("0 of 1 row complete, {calls} added; 0 of {calls} calls without a row\n");
    assert!(ran.stdout.ends_with(&summary), "{}{}", ran.stdout, ran.stderr);
    assert_eq!(column(context, 2, "actual_seq_lengths_kv_values"), "1001,130");
    assert_eq!(column(context, 2, "metadata_completeness"), "complete");
}
