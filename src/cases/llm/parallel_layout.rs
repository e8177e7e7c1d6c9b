//! Distribution of a model over devices. `tp` devices share the heads and the widths of attention and dense
//! feed-forward; `dp` such groups work on different tokens. The `tp x dp` devices together hold the experts, in groups
//! of `ep`: a device has `experts / ep` of them, each cut into `tp x dp / ep` slices.

use std::fmt;

use serde::Deserialize;

use super::{LlmAttention, LlmModel};

/// The total number of rows of `lm_head` is padded to a multiple of this.
const VOCAB_PADDING: u64 = 64;

/// The widest layouts that are proposed for a model whose file names none.
const MAX_TP: u64 = 16;
const MAX_EP: u64 = 64;
const MAX_DP: u64 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ParallelLayout {
    /// Tensor parallel: devices that share each layer.
    pub tp: u64,
    /// Expert parallel: devices among which the experts are distributed.
    pub ep: u64,
    /// Data parallel: groups of `tp` devices, each with its own tokens.
    pub dp: u64,
}

impl fmt::Display for ParallelLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tp {} ep {} dp {}", self.tp, self.ep, self.dp)
    }
}

/// Degrees with which a model is run; a layout takes one value of each list.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParallelDegrees {
    pub tp: Vec<u64>,
    #[serde(default = "only_one")]
    pub ep: Vec<u64>,
    #[serde(default = "only_one")]
    pub dp: Vec<u64>,
}

fn only_one() -> Vec<u64> {
    vec![1]
}

impl ParallelDegrees {
    /// Returns empty lists, which [`ParallelDegrees::proposed`] fills later.
    pub(super) const fn none() -> Self {
        Self { tp: Vec::new(), ep: Vec::new(), dp: Vec::new() }
    }

    /// Returns the powers of two into which the model can be divided.
    pub(super) fn proposed(model: &LlmModel) -> Self {
        let powers = |most| (0..).map(|power| 1_u64 << power).take_while(move |degree| *degree <= most);
        let tp = powers(MAX_TP).filter(|tp| model.shared_by(*tp).is_ok()).collect();
        let Some(experts) = &model.experts else { return Self { tp, ep: only_one(), dp: only_one() } };
        let ep = powers(MAX_EP).filter(|ep| experts.experts.is_multiple_of(*ep)).collect();
        Self { tp, ep, dp: powers(MAX_DP).collect() }
    }

    /// Returns the layouts of these degrees in which the model can be run, in order; those with `dp` above `ep` are left out.
    pub(crate) fn usable(&self, model: &LlmModel) -> Vec<ParallelLayout> {
        let mut found = Vec::new();
        for &tp in &self.tp {
            for &ep in &self.ep {
                for &dp in self.dp.iter().filter(|dp| **dp <= ep) {
                    found.push(ParallelLayout { tp, ep, dp });
                }
            }
        }
        found.retain(|layout| model.share(*layout).is_ok());
        found.sort_unstable();
        found.dedup();
        found
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceShare {
    pub heads: u64,
    /// Key and value heads, at least one; 1 where keys and values come from a vector that all heads share.
    pub(crate) kv_heads: u64,
    pub(crate) intermediate_size: Option<u64>,
    pub experts: Option<u64>,
    pub(crate) expert_intermediate_size: Option<u64>,
    pub(crate) shared_intermediate_size: Option<u64>,
    pub(crate) vocab_size: u64,
}

impl LlmModel {
    /// Returns the share of one device in a layout. An error if a size is not divisible.
    pub fn share(&self, layout: ParallelLayout) -> Result<DeviceShare, String> {
        let ParallelLayout { tp, ep, dp } = layout;
        for (axis, degree) in [("tp", tp), ("ep", ep), ("dp", dp)] {
            if degree == 0 {
                return Err(format!("{axis} must be at least 1"));
            }
        }
        let mut share = self.shared_by(tp)?;
        let Some(experts) = &self.experts else {
            let problem = format!("ep {ep} needs experts, and the model has none");
            return if ep == 1 { Ok(share) } else { Err(problem) };
        };
        let devices = tp.saturating_mul(dp);
        if !devices.is_multiple_of(ep) {
            let problem = format!("ep {ep} does not divide the {devices} devices of tp x dp");
            return Err(problem);
        }
        share.experts = Some(cut("experts", experts.experts, ep, "ep")?);
        let slices = devices / ep;
        let size = cut("an expert's width", experts.intermediate_size, slices, "tp x dp / ep")?;
        share.expert_intermediate_size = Some(size);
        Ok(share)
    }

    pub(super) fn shared_by(&self, tp: u64) -> Result<DeviceShare, String> {
        let heads = cut("attention heads", self.heads(), tp, "tp")?;
        let kv_heads = match &self.attention {
            LlmAttention::Latent(_) => 1,
            LlmAttention::Grouped(grouped) if grouped.kv_heads.is_multiple_of(tp) => grouped.kv_heads / tp,
            LlmAttention::Grouped(grouped) if tp.is_multiple_of(grouped.kv_heads) => 1,
            LlmAttention::Grouped(grouped) => {
                return Err(format!(
                    "{} key and value heads can be neither dealt out to tp {tp} nor repeated evenly",
                    grouped.kv_heads
                ));
            }
        };
        let dense = self.intermediate_size.map(|size| cut("a feed-forward's width", size, tp, "tp"));
        let shared = self.experts.as_ref().map(|experts| experts.shared_experts * experts.intermediate_size);
        let shared = shared.filter(|size| *size > 0).map(|size| cut("shared experts' width", size, tp, "tp"));
        Ok(DeviceShare {
            heads,
            kv_heads,
            intermediate_size: dense.transpose()?,
            experts: None,
            expert_intermediate_size: None,
            shared_intermediate_size: shared.transpose()?,
            vocab_size: padded(self.vocab_size, tp) / tp,
        })
    }
}

fn cut(what: &'static str, size: u64, into: u64, axis: &'static str) -> Result<u64, String> {
    if size.is_multiple_of(into) {
        Ok(size / into)
    } else {
        Err(format!("{what} ({size}) cannot be cut into {into} equal parts ({axis})"))
    }
}

fn padded(vocab_size: u64, tp: u64) -> u64 {
    let mut step = tp;
    while !step.is_multiple_of(VOCAB_PADDING) {
        step += tp;
    }
    vocab_size.next_multiple_of(step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::assets::AssetFiles;

    fn model(name: &str) -> LlmModel {
        LlmModel::load(&AssetFiles::embedded(), name).expect("there")
    }

    #[test]
    fn vocabularies_are_padded_as_little_as_possible() {
        assert_eq!([padded(151_936, 16), padded(32_000, 1), padded(100, 3)], [151_936, 32_000, 192]);
        assert_eq!(padded(151_937, 2), 152_000);
    }

    #[test]
    fn what_does_not_divide_is_refused_with_the_reason() {
        let refusal = |name, tp, ep, dp| {
            let refused = model(name).share(ParallelLayout { tp, ep, dp });
            refused.expect_err("it does not divide").to_string()
        };
        assert_eq!(refusal("Qwen3-32B", 0, 1, 1), "tp must be at least 1");
        assert_eq!(
            refusal("Qwen3-32B", 3, 1, 1),
            "attention heads (64) cannot be cut into 3 equal parts (tp)"
        );
        assert_eq!(refusal("Qwen3-32B", 2, 2, 1), "ep 2 needs experts, and the model has none");
        assert_eq!(refusal("DeepSeek-V3", 2, 8, 2), "ep 8 does not divide the 4 devices of tp x dp");
        assert_eq!(refusal("DeepSeek-V3", 8, 24, 3), "experts (256) cannot be cut into 24 equal parts (ep)");
        assert_eq!(
            refusal("Qwen3-30B-A3B", 1, 1, 512),
            "an expert's width (768) cannot be cut into 512 equal parts (tp x dp / ep)"
        );
        assert_eq!(
            refusal("GLM-4.5", 12, 1, 1),
            "8 key and value heads can be neither dealt out to tp 12 nor repeated evenly"
        );
    }

    #[test]
    fn proposed_layouts_are_those_that_divide() {
        let layouts = ParallelDegrees::proposed(&model("GLM-4.7-Flash"));
        assert_eq!(layouts.tp, [1, 2, 4], "20 heads");
        assert_eq!(layouts.ep, [1, 2, 4, 8, 16, 32, 64]);
        assert_eq!(ParallelDegrees::proposed(&model("Llama-3.1-8B")).dp, [1]);
    }

    #[test]
    fn experts_are_cut_no_finer_than_attention() {
        let model = model("DeepSeek-V3");
        let usable = model.layouts.usable(&model);
        assert!(usable.contains(&ParallelLayout { tp: 4, ep: 64, dp: 16 }));
        assert!(!usable.contains(&ParallelLayout { tp: 16, ep: 1, dp: 16 }));
        assert!(usable.iter().all(|layout| layout.tp * layout.dp / layout.ep <= layout.tp));
    }
}
