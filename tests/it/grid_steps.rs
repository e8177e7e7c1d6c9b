//! `npubench grid` with steps of models: rows of their kernels, and of no others.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::prelude::*;

const DECODE: [&str; 8] =
    ["--models", "Qwen3-32B", "--phase", "decode", "--batch", "64", "--context", "4096"];

fn grid(context: &Context, arguments: &(impl Words + ?Sized)) -> Ran {
    context.run(&("grid --db db --kind rehearsal", arguments))
}

fn shapes(lines: &[Value], kernel: &str) -> BTreeSet<String> {
    let rows = lines.iter().filter(|line| line["kernel"] == kernel);
    let rows = rows.flat_map(|line| line["shapes"].list());
    rows.map(|row| row["shapes"].text().to_owned()).collect()
}

/// A dry run lists the shapes of a decode step at one degree, and writes nothing.
#[test]
fn dry_run_lists_shapes_of_step() {
    let context = Context::new();
    let arguments = [&DECODE[..], &["--tp", "4", "--dtype", "bf16", "--dry-run"]].concat();
    let ran = grid(&context, &(&arguments[..], "--format json")).ended(0);
    let lines = ran.json();
    // Merged queries, keys and values; the output; gate and up; down; the part of the vocabulary.
    let products = [
        "64,5120;2560,5120 -> 64,2560",
        "64,2048;5120,2048 -> 64,5120",
        "64,5120;12800,5120 -> 64,12800",
        "64,6400;5120,6400 -> 64,5120",
        "64,5120;37984,5120 -> 64,37984",
    ];
    assert_eq!(shapes(&lines, "MatMulV2"), products.map(str::to_owned).into());
    let kernels: BTreeSet<&str> = lines.iter().filter_map(|line| line["kernel"].as_str()).collect();
    let expected = [
        "AddRmsNormBias",
        "ArgMaxV2",
        "FusedInferAttentionScore",
        "GatherV2",
        "MatMulV2",
        "ReshapeAndCacheNdKernel",
        "RmsNorm",
        "SwiGlu",
        "split_qkv_rmsnorm_rope_kernel",
    ];
    assert_eq!(kernels, expected.into());
    assert!(!context.path("db").exists());
    let table = grid(&context, &arguments);
    table.out_has("64,5120;2560,5120 -> 64,2560");
    table.err_has("no rows for collectives: hcom_allGather_, hcom_allReduce_");
}

/// The same command a second time adds nothing, another degree adds its own shapes.
#[test]
fn rows_of_steps_are_written_once() {
    let context = Context::new();
    let first = [&DECODE[..], &["MatMulV2,SwiGlu", "--dtype", "bf16", "--tp"]].concat();
    let rows = |tp: &str| {
        let ran = grid(&context, &(&first[..], &[tp, "--format", "json", "--shapes"])).ended(0);
        let lines = ran.json();
        (shapes(&lines, "MatMulV2").len(), shapes(&lines, "SwiGlu").len())
    };
    assert_eq!((rows("4"), rows("4"), rows("4,8")), ((5, 1), (0, 0), (5, 1)));
    let table = context.read("db/MatMulV2.csv");
    assert_eq!(table.matches("grid step: Qwen/Qwen3-32B").count(), 10, "{table}");
    assert!(!context.path("db/RmsNorm.csv").exists(), "not among the wanted kernels");
}

#[test]
fn wrong_steps_are_errors() {
    let context = Context::new();
    let failed = |code: i32, arguments: &str| {
        let ran = grid(&context, arguments);
        assert_eq!(ran.code, code, "{}", ran.stderr);
        assert!(!context.path("db").exists());
        ran.stderr
    };
    let text = failed(3, "--models Qwen3-32B --tp 4,7");
    assert!(text.contains("Qwen/Qwen3-32B does not run with") && text.contains("npubench models"), "{text}");
    let text = failed(3, "SwiGLU --models Qwen3-32B --tp 4");
    assert!(text.contains("no step of the models has `SwiGLU`") && text.contains("SwiGlu"), "{text}");
    let text = failed(2, "--tp 4");
    assert!(text.contains("--models"), "{text}");
    let text = failed(2, "--models Qwen3-32B --tp 4 --mutate");
    assert!(text.contains("--mutate"), "{text}");
}
