//! `npubench grid` with steps of models: rows of their kernels, and of no others.

use std::{collections::BTreeSet, fs};

use serde_json::Value;

use crate::context::{Context, Ran};

const DECODE: [&str; 8] =
    ["--models", "Qwen3-32B", "--phase", "decode", "--batch", "64", "--context", "4096"];

fn grid(context: &Context, arguments: &[&str]) -> Ran {
    context.run(&[&["grid", "--db", "db", "--kind", "rehearsal"], arguments].concat())
}

fn json_lines(ran: &Ran) -> Vec<Value> {
    ran.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn shapes(lines: &[Value], kernel: &str) -> BTreeSet<String> {
    let rows = lines.iter().filter(|line| line["kernel"] == kernel);
    let rows = rows.flat_map(|line| line["shapes"].as_array().expect("shapes"));
    rows.map(|row| row["shapes"].as_str().expect("text").to_owned()).collect()
}

/// A dry run lists the shapes of a decode step at one degree, and writes nothing.
#[test]
fn dry_run_lists_shapes_of_step() {
    let context = Context::new();
    let arguments = [&DECODE[..], &["--tp", "4", "--dtype", "bf16", "--dry-run"]].concat();
    let ran = grid(&context, &[&arguments[..], &["--format", "json"]].concat());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let lines = json_lines(&ran);
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
    assert!(table.stdout.contains("64,5120;2560,5120 -> 64,2560"), "{}", table.stdout);
    assert!(
        table.stderr.contains("no rows for collectives: hcom_allGather_, hcom_allReduce_"),
        "{}",
        table.stderr
    );
}

/// The same command a second time adds nothing, another degree adds its own shapes.
#[test]
fn rows_of_steps_are_written_once() {
    let context = Context::new();
    let first = [&DECODE[..], &["MatMulV2,SwiGlu", "--dtype", "bf16", "--tp"]].concat();
    let rows = |tp: &str| {
        let ran = grid(&context, &[&first[..], &[tp, "--format", "json", "--shapes"]].concat());
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let lines = json_lines(&ran);
        (shapes(&lines, "MatMulV2").len(), shapes(&lines, "SwiGlu").len())
    };
    assert_eq!((rows("4"), rows("4"), rows("4,8")), ((5, 1), (0, 0), (5, 1)));
    let table = fs::read_to_string(context.path("db/MatMulV2.csv")).expect("a table");
    assert_eq!(table.matches("grid step: Qwen/Qwen3-32B").count(), 10, "{table}");
    assert!(!context.path("db/RmsNorm.csv").exists(), "not among the wanted kernels");
}

/// The catalogue accepts the cases of all layouts, of a dense model, one with experts, and one with latent attention.
#[test]
fn cases_of_all_layouts_are_valid() {
    let context = Context::new();
    for model in ["Qwen3-32B", "Qwen3-235B-A22B", "DeepSeek-V3"] {
        let ran = grid(
            &context,
            &[
                "--models",
                model,
                "--batch",
                "1,48",
                "--context",
                "1024",
                "--rows",
                "0",
                "--dry-run",
                "--format",
                "json",
            ],
        );
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let lines = json_lines(&ran);
        assert!(lines.len() >= 9, "{model}: {} kernels", lines.len());
        for line in lines {
            let rejected = line["rejected"].as_array().expect("a list");
            let is_wrong = |rejected: &&Value| rejected["reason"] != "memory";
            assert_eq!(rejected.iter().find(is_wrong), None, "{model}: {line}");
        }
    }
}

#[test]
fn wrong_steps_are_errors() {
    let context = Context::new();
    let failed = |code: i32, arguments: &[&str]| {
        let ran = grid(&context, arguments);
        assert_eq!(ran.code, code, "{}", ran.stderr);
        assert!(!context.path("db").exists());
        ran.stderr
    };
    let text = failed(3, &["--models", "Qwen3-32B", "--tp", "4,7"]);
    assert!(text.contains("Qwen/Qwen3-32B does not run with") && text.contains("npubench models"), "{text}");
    let text = failed(3, &["SwiGLU", "--models", "Qwen3-32B", "--tp", "4"]);
    assert!(text.contains("no step of the models has `SwiGLU`") && text.contains("SwiGlu"), "{text}");
    let text = failed(2, &["--tp", "4"]);
    assert!(text.contains("--models"), "{text}");
    let text = failed(2, &["--models", "Qwen3-32B", "--tp", "4", "--mutate"]);
    assert!(text.contains("--mutate"), "{text}");
}

#[test]
fn options_that_are_not_of_steps_are_above_the_heading_of_steps() {
    let help = Context::new().run(&["grid", "--help"]).stdout;
    let (above, below) = help.split_once("Steps of models (").expect("a heading");
    assert!(above.contains("--assets") && above.contains("--format"), "{help}");
    assert!(below.contains("--tp") && below.contains("--dtype"), "{help}");
}
