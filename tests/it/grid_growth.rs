//! Rows added to databases that have rows already.

use std::collections::BTreeMap;

use crate::prelude::*;

fn grid(context: &Context, arguments: &(impl Words + ?Sized)) -> Ran {
    context.run(&("grid --db db --kind rehearsal", arguments))
}

/// Counts the rows of a kernel by pattern and model.
fn rows_by_origin(context: &Context, kernel: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for row in context.rows("db", kernel) {
        let origin = row["Grid"].split(", seed").next().unwrap_or_default().to_owned();
        *counts.entry(origin).or_default() += 1;
    }
    counts
}

#[test]
fn ladder_rows_do_not_count_as_model_rows() {
    let context = Context::new();
    let commands: [&[&str]; 3] = [
        &["MatMulV2", "--rows", "50"],
        &["MatMulV2", "--rows", "50", "--models", "Qwen3-32B"],
        &["MatMulV2", "--rows", "60", "--models", "Qwen3-32B,Qwen3-8B"],
    ];
    for arguments in commands {
        for _ in 0..2 {
            assert_eq!(grid(&context, arguments).code, 0);
        }
    }
    let from = |model: &str| format!("grid matmul.yaml: matmul{model}");
    let counts = [(from(""), 50), (from(" of Qwen/Qwen3-32B"), 50), (from(" of Qwen/Qwen3-8B"), 10)];
    assert_eq!(rows_by_origin(&context, "MatMulV2"), BTreeMap::from(counts));
    // Rows of another seed count too.
    assert_eq!(grid(&context, "MatMulV2 --rows 50 --seed 9").code, 0);
    assert_eq!(context.rows("db", "MatMulV2").len(), 110);
}

#[test]
fn products_without_a_grid_are_reported() {
    let context = Context::new();
    let text = include_str!("../../grids/models/DeepSeek-V3.yaml");
    let only = |format: &str| text.replace("[bf16, w8a8, w4a8]", &format!("[{format}]"));
    let mut messages = String::new();
    for format in ["w8a8", "w4a8", "w8a16", "w8a16, bf16"] {
        context.write("own/grids/models/DeepSeek-V3.yaml", &only(format));
        let own = "MatMulV2 --models DeepSeek-V3 --dry-run --assets own";
        let ran = grid(&context, own).ended(0);
        messages = format!("{messages}{format}: {}\n", ran.stderr);
    }
    let config = serde_json::json!({
        "model_type": "qwen3", "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 64, "num_attention_heads": 16,
        "head_dim": 64, "intermediate_size": 64, "quantization_config": {"quant_method": "fp8"},
    });
    context.write("tiny/config.json", &config.to_string());
    messages += &grid(&context, "MatMulV2 --models tiny --dry-run").stderr;
    insta::assert_snapshot!(messages);
}
