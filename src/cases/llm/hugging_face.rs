//! Import of a Hugging Face `config.json` of a known architecture; a guess would give plausible but wrong sizes.

use std::path::Path;

use serde_json::{Map, Value};

use super::{
    ExpertSizes, GroupedQuery, LatentAttention, LlmAttention, LlmModel, ParallelDegrees, SparseIndexer,
};
use crate::base::{
    files::{MAX_DOCUMENT, read_regular_text},
    yaml,
    yaml::YamlError,
};

#[derive(Clone, Copy, PartialEq, Eq)]
enum MoePlacement {
    None,
    /// All layers have experts of the feed-forward's width.
    EveryLayer,
    /// Some layers may be dense, by step or by index.
    ByStep,
    /// The first layers are dense, and experts may be shared.
    AfterFirst,
}

/// Names of architectures, true for latent attention, and the place of experts.
const FAMILIES: [(&[&str], bool, MoePlacement); 5] = [
    (&["llama", "mistral", "qwen2", "qwen3", "qwen3_vl"], false, MoePlacement::None),
    (&["mixtral", "gpt_oss"], false, MoePlacement::EveryLayer),
    (&["qwen3_moe", "qwen3_vl_moe"], false, MoePlacement::ByStep),
    (&["glm4_moe", "glm4v_moe"], false, MoePlacement::AfterFirst),
    (
        &["deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "glm4_moe_lite", "glm_moe_dsa"],
        true,
        MoePlacement::AfterFirst,
    ),
];

const COMPARE: &str = "compare with the model's public config.json";

/// Multimodal architectures, which keep the language model in `text_config`.
const IN_PARTS: [&str; 3] = ["qwen3_vl", "qwen3_vl_moe", "glm4v_moe"];

impl LlmModel {
    /// Reads the `config.json` of a Hugging Face model. Layouts are the powers of two that divide its sizes.
    pub fn from_hugging_face(path: &Path) -> Result<Self, YamlError> {
        let text = read_regular_text(path, MAX_DOCUMENT).map_err(|error| {
            YamlError::of_file(path, format!("cannot be read: {error}"), "give the path of a config.json")
        })?;
        let hint = "correct the file, or download the model's config.json again";
        // JSON is YAML, and the YAML parser refuses duplicate keys.
        let value = yaml::parse(path, &text).map_err(|error| YamlError { hint: hint.to_owned(), ..error })?;
        let Value::Object(outer) = value else {
            let hint = "give the path of a model's config.json";
            return Err(YamlError::of_file(path, "is no JSON object", hint));
        };
        // Multimodal models keep the sizes of the language model in `text_config`.
        let part = outer.get("text_config").and_then(Value::as_object);
        let prefix = part.map(|_| "text_config");
        let config = HuggingFaceConfig { path, text: &text, prefix, values: part.unwrap_or(&outer) };
        let kind = outer.get("model_type").and_then(Value::as_str).unwrap_or_default();
        if part.is_none() && IN_PARTS.contains(&kind) {
            let problem = format!("a `{kind}` keeps its language model in `text_config`, which is missing");
            return Err(config.fault("model_type", &problem, "give the whole config.json of the model"));
        }
        let mut model = config.model()?;
        let quantised = outer.get("quantization_config").or_else(|| config.values.get("quantization_config"));
        if let Some(quantised) = quantised.filter(|value| !value.is_null()) {
            let method = quantised.get("quant_method").and_then(Value::as_str).unwrap_or("unknown");
            let used = model.quantisation.iter().map(|format| format.as_str());
            model.left_open.push(format!(
                "`quantization_config` ({method}) is not read; its products are taken in {}",
                used.collect::<Vec<_>>().join(" and ")
            ));
        }
        Ok(model)
    }
}

struct HuggingFaceConfig<'a> {
    path: &'a Path,
    text: &'a str,
    /// Key of the mapping that holds the values, if it is not the whole file.
    prefix: Option<&'static str>,
    values: &'a Map<String, Value>,
}

impl HuggingFaceConfig<'_> {
    fn model(&self) -> Result<LlmModel, YamlError> {
        let (is_latent, mixture) = self.family()?;
        let experts = match mixture {
            MoePlacement::None => None,
            MoePlacement::EveryLayer => Some(self.experts("num_local_experts", "intermediate_size", 0)?),
            MoePlacement::ByStep => {
                let dense = self.dense_layers_by_step()?;
                Some(self.experts("num_experts", "moe_intermediate_size", dense)?)
            }
            MoePlacement::AfterFirst => {
                let dense = self.first_dense_layers()?;
                Some(self.experts("n_routed_experts", "moe_intermediate_size", dense)?)
            }
        };
        let has_dense = experts.as_ref().is_none_or(|experts| experts.dense_layers > 0);
        let model = LlmModel {
            model: self.name(),
            hidden_size: self.number("hidden_size")?,
            layers: self.number("num_hidden_layers")?,
            vocab_size: self.number("vocab_size")?,
            attention: match is_latent {
                true => LlmAttention::Latent(self.latent()?),
                false => LlmAttention::Grouped(self.grouped()?),
            },
            intermediate_size: if has_dense { Some(self.number("intermediate_size")?) } else { None },
            experts,
            layouts: ParallelDegrees::none(),
            quantisation: Vec::new(),
            left_open: Vec::new(),
        };
        model.completed().map_err(|fault| {
            let key = self.key_of(fault.key);
            self.fault(key, &fault.problem(key), COMPARE)
        })
    }

    fn key_of(&self, ours: &'static str) -> &'static str {
        let experts = ["n_routed_experts", "num_experts", "num_local_experts"];
        match ours {
            "layers" => "num_hidden_layers",
            "heads" => "num_attention_heads",
            "kv_heads" => "num_key_value_heads",
            "nope_head_dim" => "qk_nope_head_dim",
            "rope_head_dim" => "qk_rope_head_dim",
            "index_heads" => "index_n_heads",
            "index_top_k" => "index_topk",
            "top_k" => "num_experts_per_tok",
            "shared_experts" => "n_shared_experts",
            "dense_layers" => "first_k_dense_replace",
            "moe_intermediate_size" if !self.values.contains_key(ours) => "intermediate_size",
            "experts" => experts.into_iter().find(|key| self.values.contains_key(*key)).unwrap_or(ours),
            same => same,
        }
    }

    fn family(&self) -> Result<(bool, MoePlacement), YamlError> {
        let known = || FAMILIES.map(|family| family.0.join(", ")).join(", ");
        let Some(name) = self.text_of("model_type") else {
            let hint = format!("it names the architecture, one of {}", known());
            return Err(self.fault("model_type", "`model_type` is missing or is not text", &hint));
        };
        let bare = name.strip_suffix("_text").unwrap_or(name);
        let found = FAMILIES.iter().find(|family| family.0.contains(&bare));
        found.map(|family| (family.1, family.2)).ok_or_else(|| {
            let problem = format!("the layers of a `{name}` are not known");
            let hint = format!("known: {}; or write its sizes into a file, see docs/models.md", known());
            self.fault("model_type", &problem, &hint)
        })
    }

    fn grouped(&self) -> Result<GroupedQuery, YamlError> {
        let heads = self.number("num_attention_heads")?;
        let kv_heads = self.optional("num_key_value_heads")?.unwrap_or(heads);
        let head_dim = match self.optional("head_dim")? {
            Some(head_dim) => head_dim,
            None => {
                let hidden = self.number("hidden_size")?;
                if heads == 0 || !hidden.is_multiple_of(heads) {
                    let problem = format!("{hidden} does not divide by {heads} heads");
                    return Err(self.fault("num_attention_heads", &problem, "add `head_dim`"));
                }
                hidden / heads
            }
        };
        Ok(GroupedQuery { heads, kv_heads, head_dim, qk_norm: self.has_qk_norm()? })
    }

    /// Returns true if queries and keys have norms: in all models of some architectures, by a key in others.
    fn has_qk_norm(&self) -> Result<bool, YamlError> {
        let kind = self.text_of("model_type").unwrap_or_default();
        match self.values.get("use_qk_norm").filter(|value| !value.is_null()) {
            _ if kind.starts_with("qwen3") => Ok(true),
            Some(value) if kind.starts_with("glm4") => value.as_bool().ok_or_else(|| {
                self.fault("use_qk_norm", &format!("`use_qk_norm` is {value}, not true or false"), COMPARE)
            }),
            _ => Ok(false),
        }
    }

    fn latent(&self) -> Result<LatentAttention, YamlError> {
        let indexer = match self.optional("index_n_heads")? {
            None => None,
            Some(heads) => Some(SparseIndexer {
                heads,
                head_dim: self.number("index_head_dim")?,
                top_k: self.number("index_topk")?,
            }),
        };
        Ok(LatentAttention {
            heads: self.number("num_attention_heads")?,
            q_lora_rank: self.optional("q_lora_rank")?,
            kv_lora_rank: self.number("kv_lora_rank")?,
            nope_head_dim: self.number("qk_nope_head_dim")?,
            rope_head_dim: self.number("qk_rope_head_dim")?,
            v_head_dim: self.number("v_head_dim")?,
            indexer,
        })
    }

    fn experts(&self, experts: &str, width: &str, dense_layers: u64) -> Result<ExpertSizes, YamlError> {
        let top_k = match self.optional("experts_per_token")? {
            Some(top_k) => top_k,
            None => self.number("num_experts_per_tok")?,
        };
        Ok(ExpertSizes {
            experts: self.number(experts)?,
            top_k,
            intermediate_size: self.number(width)?,
            shared_experts: self.optional("n_shared_experts")?.unwrap_or(0),
            dense_layers,
        })
    }

    fn dense_layers_by_step(&self) -> Result<u64, YamlError> {
        let layers = self.number("num_hidden_layers")?;
        let step = self.optional("decoder_sparse_step")?.unwrap_or(1).max(1);
        let named = self.values.get("mlp_only_layers").and_then(Value::as_array);
        let is_named = |layer| named.is_some_and(|named| named.iter().any(|n| n.as_u64() == Some(layer)));
        Ok(count(layers, |layer| is_named(*layer) || !(layer + 1).is_multiple_of(step)))
    }

    /// Counts the layers before the first one with experts and those skipped by the frequency.
    fn first_dense_layers(&self) -> Result<u64, YamlError> {
        let layers = self.number("num_hidden_layers")?;
        if let (None, Some(kinds)) = (
            self.optional("first_k_dense_replace")?,
            self.values.get("mlp_layer_types").and_then(Value::as_array),
        ) {
            let dense = kinds.iter().filter(|kind| kind.as_str() == Some("dense")).count();
            return Ok(dense as u64);
        }
        let first = self.number("first_k_dense_replace")?;
        let every = self.optional("moe_layer_freq")?.unwrap_or(1).max(1);
        Ok(count(layers, |layer| *layer < first || !layer.is_multiple_of(every)))
    }

    fn number(&self, key: &str) -> Result<u64, YamlError> {
        self.optional(key)?.ok_or_else(|| {
            let kind = self.text_of("model_type").unwrap_or_default();
            let hint = format!("a `{kind}` needs it; {COMPARE}");
            self.fault(key, &format!("`{key}` is missing"), &hint)
        })
    }

    /// Returns `None` if the key is missing or null; some files have null for parts that a model lacks.
    fn optional(&self, key: &str) -> Result<Option<u64>, YamlError> {
        match self.values.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => value
                .as_u64()
                .map(Some)
                .ok_or_else(|| self.fault(key, &format!("`{key}` is {value}, not a whole number"), COMPARE)),
        }
    }

    fn text_of(&self, key: &str) -> Option<&str> {
        self.values.get(key).and_then(Value::as_str)
    }

    fn fault(&self, key: &str, problem: &str, hint: &str) -> YamlError {
        let keys: Vec<&str> = self.prefix.into_iter().chain([key]).collect();
        YamlError::at(self.path, yaml::find_value(self.text, &keys), problem, hint)
    }

    /// Returns the model's id if the path is in a Hugging Face cache, else the name of the folder.
    fn name(&self) -> String {
        let folders = || self.path.ancestors().skip(1).filter_map(|folder| folder.file_name()?.to_str());
        let cached = folders().find_map(|folder| folder.strip_prefix("models--"));
        cached
            .map_or_else(|| folders().next().unwrap_or("imported").to_owned(), |id| id.replacen("--", "/", 1))
    }
}

/// Counts layers by a condition. The count stops at 65536, which the check of sizes refuses.
fn count(layers: u64, is_dense: impl Fn(&u64) -> bool) -> u64 {
    (0..layers.min(1 << 16)).filter(is_dense).count() as u64
}
