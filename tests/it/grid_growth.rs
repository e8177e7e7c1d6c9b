//! Rows added to databases that have rows already.

use std::collections::BTreeMap;

use npubench::{
    base::assets::AssetFiles,
    cases::{
        grid::{
            Candidates, CaseBuilder,
            definition::{GridFiles, GridModels, ModelValues},
        },
        llm::LlmModel,
    },
};

use crate::context::{Context, Ran};

fn grid(context: &Context, arguments: &[&str]) -> Ran {
    context.run(&[&["grid", "--db", "db", "--kind", "rehearsal"], arguments].concat())
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
    assert_eq!(grid(&context, &["MatMulV2", "--rows", "50", "--seed", "9"]).code, 0);
    assert_eq!(context.rows("db", "MatMulV2").len(), 110);
}

/// Latent attention has the rotary width of the model.
#[test]
fn rotary_width_is_that_of_the_model() {
    let all = LlmModel::all(&AssetFiles::embedded()).expect("they load");
    let mut values = ModelValues::from_model(&all["DeepSeek-V3"]);
    values.numbers.insert("rope_head_dim".to_owned(), 32);
    let models = GridModels::new(all.values().map(ModelValues::from_model).collect(), Some(vec![values]));
    let grids = GridFiles::load(&AssetFiles::embedded(), &models).expect("they load");
    let latent = grids.spaces().iter().filter(|space| space.pattern.starts_with("latent_"));
    let mut patterns = 0;
    for space in latent {
        let (mut candidates, mut builder) = (Candidates::new(space), CaseBuilder::new(space));
        candidates.go_to(0);
        builder.fill(candidates.check().expect("numbers")).expect("dimensions");
        let inputs = &builder.filled().inputs;
        let width = |slot: usize| inputs[slot].as_ref().and_then(|tensor| tensor.dims.last().copied());
        assert_eq!([width(24), width(25)], [Some(32), Some(32)]);
        patterns += 1;
    }
    assert_eq!(patterns, 2);
}

#[test]
fn products_without_a_grid_are_reported() {
    let context = Context::new();
    let text = include_str!("../../grids/models/DeepSeek-V3.yaml");
    let only = |format: &str| text.replace("[bf16, w8a8, w4a8]", &format!("[{format}]"));
    let mut messages = String::new();
    for format in ["w8a8", "w4a8", "w8a16", "w8a16, bf16"] {
        context.write("own/grids/models/DeepSeek-V3.yaml", &only(format));
        let own = ["MatMulV2", "--models", "DeepSeek-V3", "--dry-run", "--assets", "own"];
        let ran = grid(&context, &own);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        messages = format!("{messages}{format}: {}\n", ran.stderr);
    }
    let config = serde_json::json!({
        "model_type": "qwen3", "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 64, "num_attention_heads": 16,
        "head_dim": 64, "intermediate_size": 64, "quantization_config": {"quant_method": "fp8"},
    });
    context.write("tiny/config.json", &config.to_string());
    messages += &grid(&context, &["MatMulV2", "--models", "tiny", "--dry-run"]).stderr;
    insta::assert_snapshot!(messages);
}
