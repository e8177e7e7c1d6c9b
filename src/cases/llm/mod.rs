//! Language models: sizes of their layers, and the matrix products of a layer on one device after parallel
//! distribution and quantisation.
//!
//! A model comes from `grids/models/<NAME>.yaml` or from a Hugging Face `config.json`; both are checked
//! by the same rules. Only [`ParallelLayout`] defines the division of sizes among devices.

mod file;
mod hugging_face;
mod parallel_layout;
mod products;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

pub use parallel_layout::{DeviceShare, ParallelDegrees, ParallelLayout};
pub use products::{ProductKernel, QuantisationScheme, WeightProduct, WeightProductRole};
use serde::Deserialize;

use crate::base::{
    assets::{AssetFile, AssetFiles},
    suggest::nearest_name,
    yaml,
    yaml::YamlError,
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LlmModel {
    pub model: String,
    pub hidden_size: u64,
    /// Layers, without those for multi-token prediction.
    pub layers: u64,
    /// Size of the vocabulary; `lm_head` is padded beyond it.
    pub vocab_size: u64,
    pub attention: LlmAttention,
    /// Width of the dense feed-forward; `None` if all layers have experts.
    pub intermediate_size: Option<u64>,
    pub experts: Option<ExpertSizes>,
    pub layouts: ParallelDegrees,
    pub quantisation: Vec<QuantisationScheme>,
    /// Notes on parts of an imported file that are not used.
    pub left_open: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LlmAttention {
    /// Query heads share key and value heads (MHA and MQA are the extremes).
    Grouped(GroupedQuery),
    /// Keys and values come from a common low-rank vector (MLA).
    Latent(LatentAttention),
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupedQuery {
    pub heads: u64,
    pub kv_heads: u64,
    /// Width of a head; not always `hidden_size` over `heads`.
    pub head_dim: u64,
    #[serde(default)]
    pub qk_norm: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LatentAttention {
    pub heads: u64,
    /// Rank of the queries' vector; omitted if queries are projected directly.
    pub q_lora_rank: Option<u64>,
    pub kv_lora_rank: u64,
    pub nope_head_dim: u64,
    pub rope_head_dim: u64,
    pub v_head_dim: u64,
    pub indexer: Option<SparseIndexer>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SparseIndexer {
    pub heads: u64,
    pub head_dim: u64,
    pub top_k: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpertSizes {
    pub experts: u64,
    pub top_k: u64,
    pub intermediate_size: u64,
    /// Experts used by every token, computed as one feed-forward of their joint width.
    #[serde(default)]
    pub shared_experts: u64,
    /// Layers that have a dense feed-forward in place of experts (in most models the first ones).
    #[serde(default)]
    pub dense_layers: u64,
}

impl LlmModel {
    /// Loads a model by file name or id, or imports a Hugging Face `config.json` by its path or folder.
    pub fn load(assets: &AssetFiles, name: &str) -> Result<Self, YamlError> {
        let path = Path::new(name);
        if path.extension().is_some_and(|extension| extension == "json") {
            return Self::from_hugging_face(path);
        }
        if path.join("config.json").is_file() {
            return Self::from_hugging_face(&path.join("config.json"));
        }
        let all = Self::all(assets)?;
        let is_it = |other: &str| other.eq_ignore_ascii_case(name);
        let found = all.iter().find(|(file, model)| is_it(file) || is_it(&model.model));
        found.map(|(_, model)| model.clone()).ok_or_else(|| unknown(name, all.keys().map(String::as_str)))
    }

    pub fn all(assets: &AssetFiles) -> Result<BTreeMap<String, Self>, YamlError> {
        let models = assets.models()?.into_iter().map(|(file, asset)| {
            let (name, model) = (file.trim_end_matches(".yaml"), Self::parse(&asset.path, &asset.text)?);
            model.check_file_name(name, &asset)?;
            Ok((name.to_owned(), model))
        });
        models.collect()
    }

    /// Refuses a file that is not named after its model: the model would have two names, or one id two models.
    fn check_file_name(&self, name: &str, file: &AssetFile) -> Result<(), YamlError> {
        let expected = self.model.rsplit('/').next().unwrap_or_default();
        if name.eq_ignore_ascii_case(expected) {
            return Ok(());
        }
        let owner = self.model.strip_suffix(expected).unwrap_or_default();
        let problem = format!("the file of `{}` is named `{name}.yaml`", self.model);
        let hint = format!("rename the file to `{expected}.yaml`, or write `model: {owner}{name}`");
        Err(YamlError::at(&file.path, yaml::find_value(&file.text, &["model"]), &problem, &hint))
    }

    pub const fn heads(&self) -> u64 {
        match &self.attention {
            LlmAttention::Grouped(grouped) => grouped.heads,
            LlmAttention::Latent(latent) => latent.heads,
        }
    }

    /// Returns the sizes that it has by name, for expressions.
    pub(crate) fn constants(&self) -> BTreeMap<&'static str, u64> {
        let (grouped, latent) = match &self.attention {
            LlmAttention::Grouped(grouped) => (Some(grouped), None),
            LlmAttention::Latent(latent) => (None, Some(latent)),
        };
        let indexer = latent.and_then(|latent| latent.indexer.as_ref());
        let experts = self.experts.as_ref();
        let sizes = [
            ("hidden_size", Some(self.hidden_size)),
            ("layers", Some(self.layers)),
            ("vocab_size", Some(self.vocab_size)),
            ("heads", Some(self.heads())),
            ("kv_heads", grouped.map(|grouped| grouped.kv_heads)),
            ("head_dim", grouped.map(|grouped| grouped.head_dim)),
            ("kv_lora_rank", latent.map(|latent| latent.kv_lora_rank)),
            ("q_lora_rank", latent.and_then(|latent| latent.q_lora_rank)),
            ("nope_head_dim", latent.map(|latent| latent.nope_head_dim)),
            ("rope_head_dim", latent.map(|latent| latent.rope_head_dim)),
            ("v_head_dim", latent.map(|latent| latent.v_head_dim)),
            ("index_heads", indexer.map(|indexer| indexer.heads)),
            ("index_head_dim", indexer.map(|indexer| indexer.head_dim)),
            ("index_top_k", indexer.map(|indexer| indexer.top_k)),
            ("intermediate_size", self.intermediate_size),
            ("experts", experts.map(|experts| experts.experts)),
            ("top_k", experts.map(|experts| experts.top_k)),
            ("moe_intermediate_size", experts.map(|experts| experts.intermediate_size)),
            ("shared_experts", experts.map(|experts| experts.shared_experts)),
            ("dense_layers", experts.map(|experts| experts.dense_layers)),
        ];
        sizes.into_iter().filter_map(|(name, size)| Some((name, size?))).collect()
    }

    pub fn all_gemms(&self) -> BTreeSet<WeightProduct> {
        let layouts = self.layouts.usable(self);
        let each = layouts.iter().flat_map(|layout| self.quantisation.iter().map(move |q| (*layout, *q)));
        each.flat_map(|(layout, quantisation)| self.gemms(layout, quantisation).unwrap_or_default()).collect()
    }
}

fn unknown<'a>(name: &str, known: impl Iterator<Item = &'a str> + Clone) -> YamlError {
    let last = name.rsplit('/').next().unwrap_or(name).to_lowercase();
    let near = nearest_name(&last, known.clone());
    let listed = known.collect::<Vec<_>>().join(", ");
    let hint = near.map_or_else(String::new, |other| format!("did you mean `{other}`? "));
    let hint = format!("{hint}known models: {listed}; or give the path of a Hugging Face config.json");
    YamlError::of_file(Path::new(""), format!("the model `{name}` does not exist"), hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_found_by_file_name_and_id() {
        let assets = AssetFiles::embedded();
        for name in ["Qwen3-32B", "qwen3-32b", "Qwen/Qwen3-32B"] {
            assert_eq!(LlmModel::load(&assets, name).expect("there").model, "Qwen/Qwen3-32B");
        }
        let error = LlmModel::load(&assets, "Qwen/Qwen3-23B").expect_err("none of that name");
        assert!(
            error.hint.starts_with("did you mean `Qwen3-32B`? known models: DeepSeek-"),
            "{}",
            error.hint
        );
        let error = LlmModel::load(&assets, "gpt-2").expect_err("none of that name");
        assert!(error.hint.starts_with("known models: "), "{}", error.hint);
    }

    #[test]
    fn model_files_are_named_after_models() {
        for (file, model) in LlmModel::all(&AssetFiles::embedded()).expect("they load") {
            assert!(model.model.ends_with(&format!("/{file}")), "{file}: {}", model.model);
        }
    }

    #[test]
    fn constants_of_missing_parts_are_omitted() {
        let constants = |name| LlmModel::load(&AssetFiles::embedded(), name).expect("there").constants();
        let (dense, latent) = (constants("Qwen3-32B"), constants("DeepSeek-V2-Lite"));
        assert_eq!((dense["head_dim"], dense["intermediate_size"]), (128, 25600));
        assert_eq!((latent["kv_lora_rank"], latent["moe_intermediate_size"]), (512, 1408));
        assert!(!dense.contains_key("experts") && !latent.contains_key("kv_heads"));
        assert!(!latent.contains_key("q_lora_rank"), "its queries have no vector of low rank");
    }
}
