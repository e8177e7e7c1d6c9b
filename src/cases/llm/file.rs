//! Model files, `grids/models/*.yaml`, and the checks of all models, also imported ones.

use std::path::Path;

use serde::Deserialize;

use super::{
    ExpertSizes, GroupedQuery, LatentAttention, LlmAttention, LlmModel, ParallelDegrees, QuantisationScheme,
};
use crate::base::{yaml, yaml::YamlError};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelFile {
    model: String,
    hidden_size: u64,
    layers: u64,
    vocab_size: u64,
    gqa: Option<GroupedQuery>,
    mla: Option<LatentAttention>,
    intermediate_size: Option<u64>,
    moe: Option<ExpertSizes>,
    layouts: Option<ParallelDegrees>,
    quantisation: Option<Vec<QuantisationScheme>>,
}

pub(super) struct ModelFileError {
    pub(super) key: &'static str,
    /// `{key}` stands for the name of the size in the file.
    problem: String,
    pub(super) hint: &'static str,
}

impl ModelFileError {
    pub(super) fn problem(&self, key: &str) -> String {
        self.problem.replace("{key}", key)
    }
}

fn fault(key: &'static str, problem: impl Into<String>, hint: &'static str) -> ModelFileError {
    ModelFileError { key, problem: problem.into(), hint }
}

fn key_path(size: &'static str, is_grouped: bool) -> Vec<&'static str> {
    let attention = if is_grouped { "gqa" } else { "mla" };
    match size {
        "experts" | "top_k" | "shared_experts" | "dense_layers" => vec!["moe", size],
        "tp" | "ep" | "dp" => vec!["layouts", size],
        "moe_intermediate_size" => vec!["moe", "intermediate_size"],
        "index_heads" => vec![attention, "indexer", "heads"],
        "index_head_dim" => vec![attention, "indexer", "head_dim"],
        "index_top_k" => vec![attention, "indexer", "top_k"],
        size if size.ends_with("heads") || size.ends_with("_dim") || size.ends_with("_rank") => {
            vec![attention, size]
        }
        size => vec![size],
    }
}

impl LlmModel {
    pub fn parse(path: &Path, text: &str) -> Result<Self, YamlError> {
        let file: ModelFile = yaml::parse(path, text)?;
        let at = |error: ModelFileError| {
            let position = yaml::find_value(text, &key_path(error.key, file.gqa.is_some()));
            YamlError::at(path, position, &error.problem(error.key), error.hint)
        };
        let attention = match (file.gqa.clone(), file.mla.clone()) {
            (Some(gqa), None) => LlmAttention::Grouped(gqa),
            (None, Some(mla)) => LlmAttention::Latent(mla),
            (Some(_), Some(_)) => {
                return Err(at(fault("mla", "attention is either `gqa` or `mla`", "remove one of them")));
            }
            (None, None) => {
                let hint = "write `gqa: {heads: .., kv_heads: .., head_dim: ..}`, or `mla`";
                return Err(at(fault("model", "neither `gqa` nor `mla` is given", hint)));
            }
        };
        let model = Self {
            model: file.model,
            hidden_size: file.hidden_size,
            layers: file.layers,
            vocab_size: file.vocab_size,
            attention,
            intermediate_size: file.intermediate_size,
            experts: file.moe,
            layouts: file.layouts.unwrap_or(ParallelDegrees::none()),
            quantisation: file.quantisation.unwrap_or_default(),
            left_open: Vec::new(),
        };
        model.completed().map_err(at)
    }

    /// Checks the sizes and adds default layouts and number formats if none are given.
    pub(super) fn completed(mut self) -> Result<Self, ModelFileError> {
        self.check_sizes()?;
        if self.layouts == ParallelDegrees::none() {
            self.layouts = ParallelDegrees::proposed(&self);
        }
        if self.quantisation.is_empty() {
            self.quantisation = vec![QuantisationScheme::Bf16, QuantisationScheme::W8a8];
        }
        self.check_layouts()?;
        Ok(self)
    }

    fn check_sizes(&self) -> Result<(), ModelFileError> {
        // A larger size is a mistake; below it no product of sizes overflows.
        const MAX_SIZE: u64 = 1 << 24;
        let may_be_none = ["shared_experts", "dense_layers"];
        for (name, size) in self.constants() {
            let least = u64::from(!may_be_none.contains(&name));
            if !(least..=MAX_SIZE).contains(&size) {
                let problem = format!("`{{key}}` cannot be {size}, expected {least} to {MAX_SIZE}");
                return Err(fault(name, problem, "compare with its config.json"));
            }
        }
        if let LlmAttention::Grouped(GroupedQuery { heads, kv_heads, .. }) = &self.attention
            && !heads.is_multiple_of(*kv_heads)
        {
            let problem = format!("{heads} heads cannot share {kv_heads} key and value heads evenly");
            return Err(fault("kv_heads", problem, "`heads` is a multiple of `kv_heads`"));
        }
        self.check_feed_forward()
    }

    fn check_feed_forward(&self) -> Result<(), ModelFileError> {
        let Some(ExpertSizes { experts, top_k, dense_layers, .. }) = &self.experts else {
            let hint = "give the width of the feed-forward, or experts as `moe`";
            return self
                .intermediate_size
                .map(drop)
                .ok_or_else(|| fault("model", "neither `intermediate_size` nor `moe` is given", hint));
        };
        if top_k > experts {
            let problem = format!("a token cannot go to {top_k} of {experts} experts");
            return Err(fault("top_k", problem, "`top_k` is at most `experts`"));
        }
        if *dense_layers >= self.layers {
            let problem = format!("{dense_layers} dense layers of {} leave none with experts", self.layers);
            return Err(fault("dense_layers", problem, "for a dense model remove `moe`"));
        }
        match (dense_layers, self.intermediate_size) {
            (0, Some(_)) => {
                let hint = "remove `intermediate_size`, or give `dense_layers` in `moe`";
                Err(fault("intermediate_size", "no layer has a dense feed-forward of this width", hint))
            }
            (1.., None) => {
                let hint = "give the width of their feed-forward as `intermediate_size`";
                Err(fault("dense_layers", "the dense layers have no width", hint))
            }
            _ => Ok(()),
        }
    }

    fn check_layouts(&self) -> Result<(), ModelFileError> {
        let ParallelDegrees { tp, ep, dp } = &self.layouts;
        for (axis, degrees) in [("tp", tp), ("ep", ep), ("dp", dp)] {
            if degrees.is_empty() || degrees.iter().any(|degree| !(1..=1 << 16).contains(degree)) {
                let hint = "`[1]` where the model is not spread that way";
                return Err(fault(axis, "`{key}` must list numbers from 1 to 65536", hint));
            }
        }
        for tp in tp {
            self.shared_by(*tp)
                .map_err(|problem| fault("tp", problem, "list only degrees that divide the model"))?;
        }
        let experts = self.experts.as_ref().map_or(1, |experts| experts.experts);
        if let Some(ep) = ep.iter().find(|ep| !experts.is_multiple_of(**ep)) {
            let problem = match self.experts {
                Some(_) => format!("{experts} experts cannot be divided by ep {ep}"),
                None => format!("ep {ep} needs experts, and the model has none"),
            };
            return Err(fault("ep", problem, "list only degrees that divide the model"));
        }
        if self.experts.is_none() && self.quantisation.contains(&QuantisationScheme::W4a8) {
            let hint = "use `w8a8`: only the weights of experts are in INT4";
            return Err(fault("quantisation", "`w4a8` needs experts, and the model has none", hint));
        }
        if self.layouts.usable(self).is_empty() {
            let hint = "experts need `ep` to divide tp x dp, and `dp` of at most `ep`";
            return Err(fault("layouts", "no layout of these degrees can be run", hint));
        }
        Ok(())
    }
}
