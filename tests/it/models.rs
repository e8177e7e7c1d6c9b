//! Models of `grids/models`, and what one device multiplies in each of their layouts.

use std::{collections::BTreeMap, fmt::Write as _, fs, path::Path};

use npubench::{
    base::assets::AssetFiles,
    cases::llm::{LlmAttention, LlmModel, ParallelLayout, QuantisationScheme},
};
use serde_json::{Value, json};

use crate::prelude::*;

fn model(name: &str) -> LlmModel {
    LlmModel::load(&AssetFiles::embedded(), name).expect("there")
}

fn products(name: &str, (tp, ep, dp): (u64, u64, u64)) -> Vec<(&'static str, u64, u64, u64)> {
    let gemms =
        model(name).gemms(ParallelLayout { tp, ep, dp }, QuantisationScheme::Bf16).expect("it divides");
    gemms.into_iter().map(|gemm| (gemm.role.as_str(), gemm.count, gemm.n, gemm.k)).collect()
}

/// Shipped models with all defaults and lists in full.
const QWEN3_32B: &str = include_str!("fixtures/models/Qwen3-32B.yaml");
const DEEPSEEK_V3: &str = include_str!("fixtures/models/DeepSeek-V3.yaml");

#[test]
fn ten_models_and_more_of_all_kinds_ship() {
    let all = LlmModel::all(&AssetFiles::embedded()).expect("they load");
    let count = |is: fn(&LlmModel) -> bool| all.values().filter(|model| is(model)).count();
    assert_eq!(all.len(), 14, "{:?}", all.keys());
    assert_eq!(count(|model| model.experts.is_none()), 4);
    assert_eq!(count(|model| model.experts.is_some()), 10);
    assert_eq!(count(|model| matches!(model.attention, LlmAttention::Latent(_))), 5);
    for (name, text) in [("Qwen3-32B", QWEN3_32B), ("DeepSeek-V3", DEEPSEEK_V3)] {
        let again = LlmModel::parse(Path::new("again.yaml"), text).expect("it is valid");
        assert_eq!(again, all[name], "{name}");
    }
}

#[test]
fn products_of_qwen3_32b() {
    // 64 query heads and 2 x 8 others of 128: 80 x 128 = 10240. Merged halves: 2 x 25600.
    let whole = [
        ("qkv_proj", 1, 10240, 5120),
        ("o_proj", 1, 5120, 8192),
        ("gate_up_proj", 1, 51200, 5120),
        ("down_proj", 1, 5120, 25600),
        ("lm_head", 1, 151_936, 5120),
    ];
    assert_eq!(products("Qwen3-32B", (1, 1, 1)), whole);
    let quarter = [
        ("qkv_proj", 1, 2560, 5120),
        ("o_proj", 1, 5120, 2048),
        ("gate_up_proj", 1, 12800, 5120),
        ("down_proj", 1, 5120, 6400),
        ("lm_head", 1, 37984, 5120),
    ];
    assert_eq!(products("Qwen3-32B", (4, 1, 1)), quarter);
    // 16 devices, 8 heads of keys: each head stands on two, so (4 + 1 + 1) x 128 = 768.
    let sixteenth = [
        ("qkv_proj", 1, 768, 5120),
        ("o_proj", 1, 5120, 512),
        ("gate_up_proj", 1, 3200, 5120),
        ("down_proj", 1, 5120, 1600),
        ("lm_head", 1, 9496, 5120),
    ];
    assert_eq!(products("Qwen3-32B", (16, 1, 1)), sixteenth);
}

#[test]
fn products_of_deepseek_v3() {
    // 16 heads on a device: 16 x (128 + 64), 16 x (128 + 128); 1536 + 512 + 64 = 2112 on every device.
    let eight_devices = [
        ("fused_qkv_a_proj", 1, 2112, 7168),
        ("q_b_proj", 1, 3072, 1536),
        ("kv_b_proj", 1, 4096, 512),
        ("absorbed_k", 16, 512, 128),
        ("absorbed_v", 16, 128, 512),
        ("o_proj", 1, 7168, 2048),
        ("gate_up_proj", 1, 4608, 7168),
        ("down_proj", 1, 7168, 2304),
        ("router", 1, 256, 7168),
        ("expert_gate_up", 32, 4096, 7168),
        ("expert_down", 32, 7168, 2048),
        ("shared_gate_up", 1, 512, 7168),
        ("shared_down", 1, 7168, 256),
        ("lm_head", 1, 16160, 7168),
    ];
    assert_eq!(products("DeepSeek-V3", (8, 8, 1)), eight_devices);
    // Without expert parallelism each device has a sixteenth of every expert.
    let cut = products("DeepSeek-V3", (16, 1, 1));
    assert_eq!(cut[9..11], [("expert_gate_up", 256, 256, 7168), ("expert_down", 256, 7168, 128)]);
    assert_eq!((cut[1], cut[5]), (("q_b_proj", 1, 1536, 1536), ("o_proj", 1, 7168, 1024)));
    // 16 groups of 4 devices with whole experts: 256 / 64 on each.
    let large = products("DeepSeek-V3", (4, 64, 16));
    assert_eq!(large[9..11], [("expert_gate_up", 4, 4096, 7168), ("expert_down", 4, 7168, 2048)]);
    assert_eq!((large[2], large[13]), (("kv_b_proj", 1, 8192, 512), ("lm_head", 1, 32320, 7168)));
    // 16 devices in groups of 4: half of each of 256 / 8 experts.
    let halves = products("DeepSeek-V3", (4, 8, 4));
    assert_eq!(halves[9], ("expert_gate_up", 32, 2048, 7168));
}

#[test]
fn quantisation_skips_router_lm_head_and_latent_products() {
    let layout = ParallelLayout { tp: 8, ep: 8, dp: 1 };
    let types = |quantisation| -> BTreeMap<&str, String> {
        let gemms = model("GLM-5.1").gemms(layout, quantisation).expect("it divides");
        gemms
            .into_iter()
            .map(|g| (g.role.as_str(), format!("{} x {}", g.activations.as_str(), g.weights.as_str())))
            .collect()
    };
    assert!(types(QuantisationScheme::Bf16).values().all(|types| types == "DT_BF16 x DT_BF16"));
    let (w8a8, w4a8, w8a16) =
        (types(QuantisationScheme::W8a8), types(QuantisationScheme::W4a8), types(QuantisationScheme::W8a16));
    for spared in
        ["router", "lm_head", "kv_b_proj", "absorbed_k", "absorbed_v", "indexer_k", "indexer_weights"]
    {
        for types in [&w8a8, &w4a8, &w8a16] {
            assert_eq!(types[spared], "DT_BF16 x DT_BF16", "{spared}");
        }
    }
    assert_eq!((w8a8["o_proj"].as_str(), w8a8["expert_down"].as_str()), ("INT8 x INT8", "INT8 x INT8"));
    assert_eq!((w4a8["o_proj"].as_str(), w4a8["expert_down"].as_str()), ("INT8 x INT8", "INT8 x INT4"));
    assert_eq!(w8a16["shared_down"], "DT_BF16 x INT8");
}

/// Keys of a `config.json` that state sizes, for the embedded models.
fn config(name: &str) -> Value {
    match name {
        "Qwen3-32B" => json!({
            "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 5120,
            "num_hidden_layers": 64, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128,
            "intermediate_size": 25600, "vocab_size": 151_936, "rope_scaling": null,
        }),
        "Meta-Llama-3-70B" => json!({
            "model_type": "llama", "hidden_size": 8192, "num_hidden_layers": 80, "num_attention_heads": 64,
            "num_key_value_heads": 8, "intermediate_size": 28672, "vocab_size": 128_256,
        }),
        "Mixtral-8x7B-v0.1" => json!({
            "model_type": "mixtral", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
            "num_key_value_heads": 8, "intermediate_size": 14336, "num_local_experts": 8,
            "num_experts_per_tok": 2, "vocab_size": 32000, "sliding_window": null,
        }),
        "gpt-oss-120b" => json!({
            "model_type": "gpt_oss", "hidden_size": 2880, "num_hidden_layers": 36, "num_attention_heads": 64,
            "num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 2880, "num_local_experts": 128,
            "experts_per_token": 4, "num_experts_per_tok": 4, "vocab_size": 201_088,
        }),
        "Qwen3-30B-A3B" => json!({
            "model_type": "qwen3_moe", "hidden_size": 2048, "num_hidden_layers": 48,
            "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 6144,
            "moe_intermediate_size": 768, "num_experts": 128, "num_experts_per_tok": 8,
            "decoder_sparse_step": 1, "mlp_only_layers": [], "vocab_size": 151_936,
        }),
        "GLM-4.5" => json!({
            "model_type": "glm4_moe", "hidden_size": 5120, "num_hidden_layers": 92,
            "num_attention_heads": 96, "num_key_value_heads": 8, "head_dim": 128,
            "intermediate_size": 12288, "moe_intermediate_size": 1536, "n_routed_experts": 160,
            "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 3,
            "vocab_size": 151_552, "use_qk_norm": true,
        }),
        "DeepSeek-V2-Lite" => json!({
            "model_type": "deepseek_v2", "hidden_size": 2048, "num_hidden_layers": 27,
            "num_attention_heads": 16, "num_key_value_heads": 16, "q_lora_rank": null, "kv_lora_rank": 512,
            "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "intermediate_size": 10944,
            "moe_intermediate_size": 1408, "n_routed_experts": 64, "n_shared_experts": 2,
            "num_experts_per_tok": 6, "first_k_dense_replace": 1, "moe_layer_freq": 1, "vocab_size": 102_400,
        }),
        "DeepSeek-V3" => json!({
            "model_type": "deepseek_v3", "hidden_size": 7168, "num_hidden_layers": 61,
            "num_attention_heads": 128, "num_key_value_heads": 128, "q_lora_rank": 1536,
            "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
            "intermediate_size": 18432, "moe_intermediate_size": 2048, "n_routed_experts": 256,
            "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 3,
            "moe_layer_freq": 1, "num_nextn_predict_layers": 1, "vocab_size": 129_280,
        }),
        "GLM-5.1" => json!({
            "model_type": "glm_moe_dsa", "hidden_size": 6144, "num_hidden_layers": 78,
            "num_attention_heads": 64, "num_key_value_heads": 64, "head_dim": 64, "q_lora_rank": 2048,
            "kv_lora_rank": 512, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "v_head_dim": 256,
            "index_head_dim": 128, "index_n_heads": 32, "index_topk": 2048, "intermediate_size": 12288,
            "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1,
            "num_experts_per_tok": 8, "first_k_dense_replace": 3, "vocab_size": 154_880,
        }),
        other => panic!("no config.json for {other}"),
    }
}

const CONFIGURED: [&str; 9] = [
    "Qwen3-32B",
    "Meta-Llama-3-70B",
    "Mixtral-8x7B-v0.1",
    "gpt-oss-120b",
    "Qwen3-30B-A3B",
    "GLM-4.5",
    "DeepSeek-V2-Lite",
    "DeepSeek-V3",
    "GLM-5.1",
];

#[test]
fn imported_configs_equal_the_model_files() {
    let context = Context::new();
    for name in CONFIGURED {
        let ours = model(name);
        let cache = format!("models--{}/snapshots/0123", ours.model.replace('/', "--"));
        context.write(&format!("{cache}/config.json"), &config(name).to_string());
        let folder = context.path(&cache);
        let imported =
            LlmModel::load(&AssetFiles::embedded(), folder.to_str().expect("UTF-8")).expect("known");
        let LlmModel { layouts, quantisation, .. } = ours.clone();
        assert!(
            layouts.tp.iter().all(|tp| imported.layouts.tp.contains(tp)),
            "{name}: {:?}",
            imported.layouts
        );
        assert_eq!(LlmModel { layouts, quantisation, ..imported }, ours);
    }
}

#[test]
fn dense_layers_are_counted_in_every_spelling() {
    let context = Context::new();
    let dense_layers = |config: Value| {
        context.write("m/config.json", &config.to_string());
        let model = LlmModel::from_hugging_face(&context.path("m/config.json")).expect("known");
        assert_eq!(model.model, "m");
        let dense_layers = model.experts.expect("it has some").dense_layers;
        assert_eq!(model.intermediate_size.is_some(), dense_layers > 0);
        dense_layers
    };
    let with = |name: &str, changes: Value| {
        let mut config = config(name);
        let Value::Object(changes) = changes else { unreachable!() };
        config.as_object_mut().expect("an object").extend(changes);
        config
    };
    assert_eq!(dense_layers(with("Qwen3-30B-A3B", json!({"mlp_only_layers": [0, 5]}))), 2);
    // With a step of 2 the layers 1, 3, 5 … have experts; of the dense ones, 4 is named as well.
    assert_eq!(dense_layers(with("Qwen3-30B-A3B", json!({"decoder_sparse_step": 2}))), 24);
    assert_eq!(
        dense_layers(with("Qwen3-30B-A3B", json!({"decoder_sparse_step": 2, "mlp_only_layers": [4, 5]}))),
        25
    );
    // Behind 3 dense layers every second has experts: 4, 6 … 60 of 61.
    assert_eq!(dense_layers(with("DeepSeek-V3", json!({"moe_layer_freq": 2}))), 61 - 29);
    let kinds: Vec<&str> = (0..78).map(|layer| if layer < 5 { "dense" } else { "sparse" }).collect();
    let listed = json!({"first_k_dense_replace": null, "mlp_layer_types": kinds});
    assert_eq!(dense_layers(with("GLM-5.1", listed)), 5);
    let nested = json!({"model_type": "some_vl", "text_config": with("GLM-5.1", json!({}))});
    assert_eq!(dense_layers(nested), 3);
}

#[test]
fn bad_imports_name_file_and_key() {
    let context = Context::new();
    let without = |name: &str, key: &str, value: Option<Value>| {
        let mut config = config(name);
        let keys = config.as_object_mut().expect("an object");
        keys.remove(key).expect("it is there");
        keys.extend(value.map(|value| (key.to_owned(), value)));
        serde_json::to_string_pretty(&config).expect("JSON")
    };
    let texts = [
        String::new(),
        "[1]".to_owned(),
        "{\"model_type\": \"qwen3\"".to_owned(),
        "{\"hidden_size\": 1}".to_owned(),
        "{\"model_type\": \"qwen3\",\n \"hidden_size\": 1, \"hidden_size\": 2}".to_owned(),
        without("Qwen3-32B", "model_type", Some(json!("qwen3_vl"))),
        without("Qwen3-32B", "model_type", Some(json!("mamba"))),
        without("Qwen3-32B", "vocab_size", None),
        without("Qwen3-32B", "hidden_size", Some(json!("5120"))),
        without("Qwen3-32B", "num_key_value_heads", Some(json!(7))),
        without("Qwen3-32B", "num_attention_heads", Some(json!(0))),
        without("Meta-Llama-3-70B", "num_attention_heads", Some(json!(60))),
        without("Mixtral-8x7B-v0.1", "num_local_experts", None),
        without("Qwen3-30B-A3B", "num_experts_per_tok", Some(json!(200))),
        without("Mixtral-8x7B-v0.1", "num_local_experts", Some(json!(0))),
        without("Mixtral-8x7B-v0.1", "intermediate_size", Some(json!(0))),
        without("DeepSeek-V3", "kv_lora_rank", None),
        without("DeepSeek-V3", "first_k_dense_replace", Some(json!(100))),
        without("DeepSeek-V3", "first_k_dense_replace", None),
        without("DeepSeek-V3", "num_hidden_layers", Some(json!(-61))),
        without("GLM-5.1", "index_topk", None),
        without("GLM-5.1", "hidden_size", Some(json!(18_446_744_073_709_551_615_u64))),
    ];
    let mut message = String::new();
    for text in texts {
        context.write("config.json", &text);
        let path = context.path("config.json");
        let error = LlmModel::from_hugging_face(&path).expect_err(&text);
        assert_eq!(error.file, path);
        let text = error.to_string().replace(path.to_str().expect("UTF-8"), "config.json");
        let _ = writeln!(message, "{text}\n  hint: {}", error.hint);
    }
    let missing = LlmModel::from_hugging_face(Path::new("nowhere/config.json")).expect_err("not there");
    let _ = writeln!(message, "{missing}\n  hint: {}", missing.hint);
    insta::assert_snapshot!(message);
}

#[test]
fn model_file_with_the_name_of_another_model_is_refused() {
    let context = Context::new();
    fs::create_dir_all(context.path("mine/grids/models")).expect("made");
    context.write("mine/grids/models/Qwen3-32B-TP4.yaml", QWEN3_32B);
    let ran = context.exits(3, "models --assets mine");
    insta::assert_snapshot!(ran.stderr, @r"
    error: mine/grids/models/Qwen3-32B-TP4.yaml:1:8: the file of `Qwen/Qwen3-32B` is named `Qwen3-32B-TP4.yaml`
    hint: rename the file to `Qwen3-32B.yaml`, or write `model: Qwen/Qwen3-32B-TP4`
    ");
}

#[test]
fn asset_folder_overrides_built_in_models() {
    let context = Context::new();
    fs::create_dir_all(context.path("mine/grids/models")).expect("made");
    let text = QWEN3_32B.replace("layers: 64", "layers: 2");
    context.write("mine/grids/models/Qwen3-32B.yaml", &text);
    context.write("mine/grids/models/Small.yaml", &text.replace("Qwen/Qwen3-32B", "me/Small"));
    let assets = AssetFiles::overlaid(&context.path("mine")).expect("it is there");
    assert_eq!(LlmModel::load(&assets, "Qwen3-32B").expect("there").layers, 2);
    assert_eq!(LlmModel::load(&assets, "me/small").expect("there").model, "me/Small");
    assert_eq!(LlmModel::load(&assets, "DeepSeek-V3").expect("there").layers, 61);
}
