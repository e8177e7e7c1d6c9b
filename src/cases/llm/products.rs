//! Matrix products of a layer, as inference engines do them: projections that read the same rows are merged, experts
//! are one grouped product, and the latent projections of keys and values come in both forms.

use serde::Deserialize;

use super::{DeviceShare, GroupedQuery, LatentAttention, LlmAttention, LlmModel, ParallelLayout};
use crate::kernel::Dtype;

#[derive(Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, clap::ValueEnum)]
pub enum QuantisationScheme {
    /// Weights and activations in BF16
    Bf16,
    /// Weights in INT8, activations in bfloat16.
    #[value(skip)]
    W8a16,
    /// Both in INT8
    W8a8,
    /// As [`QuantisationScheme::W8a8`], and the weights of routed experts in INT4.
    #[value(skip)]
    W4a8,
}

impl QuantisationScheme {
    pub(crate) fn as_str(self) -> &'static str {
        self.into()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum WeightProductRole {
    /// Queries, keys and values at once.
    QkvProj,
    /// Low-rank queries, low-rank keys and values and the keys' rotary part at once; not cut by `tp`.
    FusedQkvAProj,
    /// Low-rank keys and values and the keys' rotary part; not cut by `tp`.
    KvAProj,
    /// Queries of latent attention without a low rank.
    QProj,
    #[strum(serialize = "q_b_proj")]
    QBProj,
    /// From low-rank keys and values to heads (prefill).
    KvBProj,
    /// Queries into the keys' low rank, a product for each head (decode).
    AbsorbedK,
    /// Values out of the low rank, a product for each head (decode).
    AbsorbedV,
    /// The indexer's queries; not cut by `tp`.
    IndexerQ,
    /// The indexer's keys; not cut by `tp`.
    IndexerK,
    /// The indexer's weights of heads; not cut by `tp`.
    IndexerWeights,
    OProj,
    /// Into the dense feed-forward, both halves at once.
    GateUpProj,
    DownProj,
    /// Scores of experts; not cut by `tp`.
    Router,
    /// Into the experts, both halves at once.
    ExpertGateUp,
    ExpertDown,
    /// Into the shared experts, both halves at once.
    SharedGateUp,
    SharedDown,
    LmHead,
}

impl WeightProductRole {
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    pub const fn product(self) -> ProductKernel {
        match self {
            Self::AbsorbedK | Self::AbsorbedV => ProductKernel::Batched,
            Self::ExpertGateUp | Self::ExpertDown => ProductKernel::Grouped,
            _ => ProductKernel::Single,
        }
    }

    /// Returns true if quantised checkpoints quantise it: not products that decide (routing, picking of keys, tokens), and
    /// not the latent projection of keys and values, which is split up into the absorbed ones.
    pub(crate) const fn is_quantised(self) -> bool {
        !matches!(
            self,
            Self::Router
                | Self::LmHead
                | Self::KvBProj
                | Self::AbsorbedK
                | Self::AbsorbedV
                | Self::IndexerK
                | Self::IndexerWeights
        )
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProductKernel {
    Single,
    Grouped,
    Batched,
}

/// A product with a weight of `n` columns and `k` rows, `count` of them; its rows are the tokens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WeightProduct {
    pub role: WeightProductRole,
    /// Columns of the result.
    pub n: u64,
    /// Length of the sums.
    pub k: u64,
    /// Weights: experts or heads on the device, else 1.
    pub count: u64,
    pub weights: Dtype,
    pub activations: Dtype,
}

impl LlmModel {
    /// The products that a device does in that layout, in the order of a layer. An error if a size is not divisible.
    pub fn gemms(
        &self,
        layout: ParallelLayout,
        quantisation: QuantisationScheme,
    ) -> Result<Vec<WeightProduct>, String> {
        let share = self.share(layout)?;
        let mut gemms = WeightProducts { quantisation, found: Vec::new() };
        match &self.attention {
            LlmAttention::Grouped(grouped) => gemms.grouped(self.hidden_size, grouped, &share),
            LlmAttention::Latent(latent) => gemms.latent(self.hidden_size, latent, &share),
        }
        gemms.feed_forward(self, &share);
        gemms.one(WeightProductRole::LmHead, share.vocab_size, self.hidden_size);
        Ok(gemms.found)
    }
}

struct WeightProducts {
    quantisation: QuantisationScheme,
    found: Vec<WeightProduct>,
}

impl WeightProducts {
    fn one(&mut self, role: WeightProductRole, n: u64, k: u64) {
        self.many(role, 1, n, k);
    }

    fn many(&mut self, role: WeightProductRole, count: u64, n: u64, k: u64) {
        let routed = role.product() == ProductKernel::Grouped;
        let (weights, activations) = match self.quantisation {
            QuantisationScheme::W4a8 if routed => (Dtype::Other("INT4".to_owned()), Dtype::Int8),
            QuantisationScheme::W8a8 | QuantisationScheme::W4a8 if role.is_quantised() => {
                (Dtype::Int8, Dtype::Int8)
            }
            QuantisationScheme::W8a16 if role.is_quantised() => (Dtype::Int8, Dtype::Bf16),
            _ => (Dtype::Bf16, Dtype::Bf16),
        };
        self.found.push(WeightProduct { role, n, k, count, weights, activations });
    }

    fn grouped(&mut self, hidden: u64, attention: &GroupedQuery, share: &DeviceShare) {
        // Heads of keys and values stand on several devices where there are too few of them.
        let width = (share.heads + 2 * share.kv_heads) * attention.head_dim;
        self.one(WeightProductRole::QkvProj, width, hidden);
        self.one(WeightProductRole::OProj, hidden, share.heads * attention.head_dim);
    }

    fn latent(&mut self, hidden: u64, attention: &LatentAttention, share: &DeviceShare) {
        let LatentAttention { kv_lora_rank, nope_head_dim, rope_head_dim, v_head_dim, .. } = *attention;
        let low_rank = kv_lora_rank + rope_head_dim;
        let queries = share.heads * (nope_head_dim + rope_head_dim);
        if let Some(rank) = attention.q_lora_rank {
            self.one(WeightProductRole::FusedQkvAProj, rank + low_rank, hidden);
            self.one(WeightProductRole::QBProj, queries, rank);
        } else {
            self.one(WeightProductRole::QProj, queries, hidden);
            self.one(WeightProductRole::KvAProj, low_rank, hidden);
        }
        self.one(WeightProductRole::KvBProj, share.heads * (nope_head_dim + v_head_dim), kv_lora_rank);
        self.many(WeightProductRole::AbsorbedK, share.heads, kv_lora_rank, nope_head_dim);
        self.many(WeightProductRole::AbsorbedV, share.heads, v_head_dim, kv_lora_rank);
        if let Some(indexer) = &attention.indexer {
            // The indexer scores all keys on every device, from queries of low rank where there are any.
            let from = attention.q_lora_rank.unwrap_or(hidden);
            self.one(WeightProductRole::IndexerQ, indexer.heads * indexer.head_dim, from);
            self.one(WeightProductRole::IndexerK, indexer.head_dim, hidden);
            self.one(WeightProductRole::IndexerWeights, indexer.heads, hidden);
        }
        self.one(WeightProductRole::OProj, hidden, share.heads * v_head_dim);
    }

    fn feed_forward(&mut self, model: &LlmModel, share: &DeviceShare) {
        let hidden = model.hidden_size;
        if let Some(width) = share.intermediate_size {
            self.one(WeightProductRole::GateUpProj, 2 * width, hidden);
            self.one(WeightProductRole::DownProj, hidden, width);
        }
        if let Some(experts) = &model.experts {
            self.one(WeightProductRole::Router, experts.experts, hidden);
        }
        if let (Some(count), Some(width)) = (share.experts, share.expert_intermediate_size) {
            self.many(WeightProductRole::ExpertGateUp, count, 2 * width, hidden);
            self.many(WeightProductRole::ExpertDown, count, hidden, width);
        }
        if let Some(width) = share.shared_intermediate_size {
            self.one(WeightProductRole::SharedGateUp, 2 * width, hidden);
            self.one(WeightProductRole::SharedDown, hidden, width);
        }
    }
}
