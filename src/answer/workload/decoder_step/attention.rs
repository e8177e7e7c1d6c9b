//! Attention: projections, positions, caches, and the kernel itself.

use super::{CACHE_BLOCK, KernelCall, StepBuilder, rms_norm};
use crate::{
    cases::llm::{
        GroupedQuery, LatentAttention, LlmAttention, SparseIndexer, WeightProduct, WeightProductRole as Role,
    },
    kernel::{AttentionCase, Dims, Dtype, attention_attribute as name},
};

/// Length of the causal mask.
const MASK: u64 = 2048;
/// Width of the heads for which one kernel splits, norms and turns queries and keys.
const FUSED_HEAD: u64 = 128;
/// Least number of blocks of a cache in recorded calls.
const LEAST_BLOCKS: u64 = 16;
/// Most blocks of a cache that KvRmsNormRopeCache writes.
const MOST_LATENT_BLOCKS: u64 = 4096;

struct EqualLengths {
    batch: u64,
    length: u64,
}

impl EqualLengths {
    fn each(&self) -> String {
        let count = usize::try_from(self.batch).unwrap_or_default();
        Dims(&vec![self.length; count]).to_string()
    }

    fn ends(&self) -> String {
        let ends: Vec<u64> = (1..=self.batch).map(|number| number * self.length).collect();
        Dims(&ends).to_string()
    }
}

struct AttentionCall {
    layout: &'static str,
    sparse_mode: &'static str,
    heads: u64,
    kv_heads: u64,
    query_lengths: String,
    kv_lengths: String,
    is_paged: bool,
}

impl StepBuilder<'_> {
    pub(super) fn add_attention(&mut self, products: &[WeightProduct]) {
        let (layers, tokens) = (self.model.layers, self.step.tokens());
        match self.model.attention.clone() {
            LlmAttention::Grouped(grouped) => {
                self.add_role(products, Role::QkvProj, layers, tokens);
                self.add_grouped(&grouped);
            }
            LlmAttention::Latent(latent) => {
                for role in [Role::FusedQkvAProj, Role::QProj, Role::KvAProj] {
                    self.add_role(products, role, layers, tokens);
                }
                self.add_latent(&latent, products);
            }
        }
        self.add_role(products, Role::OProj, layers, tokens);
        self.add_all_reduce(layers);
    }

    fn add_grouped(&mut self, grouped: &GroupedQuery) {
        let (layers, tokens, dim) = (self.model.layers, self.step.tokens(), grouped.head_dim);
        let (heads, kv_heads) = (self.share.heads, self.share.kv_heads);
        if grouped.qk_norm && dim == FUSED_HEAD {
            let fused = KernelCall::new("split_qkv_rmsnorm_rope_kernel")
                .input(&[tokens, (heads + 2 * kv_heads) * dim], Dtype::Bf16)
                .input(&[dim], Dtype::Bf16)
                .output(&[tokens, heads * dim], Dtype::Bf16)
                .output(&[tokens, kv_heads * dim], Dtype::Bf16)
                .output(&[tokens, kv_heads * dim], Dtype::Bf16);
            self.add(layers, fused.or("split_qkv_rmsnorm_rope_kernel_0"));
        } else {
            for heads in [heads, kv_heads].into_iter().filter(|_| grouped.qk_norm) {
                self.add(layers, rms_norm(&[tokens, heads], dim));
            }
            let position = KernelCall::new("ApplyRotaryPosEmb")
                .input(&[tokens, heads, dim], Dtype::Bf16)
                .input(&[tokens, kv_heads, dim], Dtype::Bf16)
                .input(&[tokens, 1, dim], Dtype::Bf16)
                .input(&[tokens, 1, dim], Dtype::Bf16)
                .output(&[tokens, heads, dim], Dtype::Bf16)
                .output(&[tokens, kv_heads, dim], Dtype::Bf16);
            self.add(layers, position);
        }
        let pool = LEAST_BLOCKS.max(8 * tokens);
        let mut cache = KernelCall::new("ReshapeAndCacheNdKernel");
        for dims in [[tokens, kv_heads, dim].as_slice(), &[tokens, kv_heads, dim]] {
            cache = cache.input(dims, Dtype::Bf16);
        }
        for _ in 0..2 {
            cache = cache.input(&[pool, CACHE_BLOCK, kv_heads, dim], Dtype::Bf16);
        }
        cache = cache.input(&[tokens], Dtype::Int32);
        for _ in 0..2 {
            cache = cache.output(&[pool, CACHE_BLOCK, kv_heads, dim], Dtype::Bf16);
        }
        self.add(layers, cache.or("reshape_and_cache_200000000"));
        let call = if self.step.is_decode() {
            self.grouped_decode(heads, kv_heads, dim)
        } else {
            self.packed_prefill(heads, kv_heads, [dim, dim], None)
        };
        self.add(layers, call);
    }

    fn grouped_decode(&self, heads: u64, kv_heads: u64, dim: u64) -> KernelCall {
        let (batch, blocks, pool) = self.cache_size();
        let call = KernelCall::new(AttentionCase::KERNEL)
            .input(&[batch, heads, dim], Dtype::Bf16)
            .input(&[pool, kv_heads, CACHE_BLOCK, dim], Dtype::Bf16)
            .input(&[pool, kv_heads, CACHE_BLOCK, dim], Dtype::Bf16)
            .omitted(1)
            .input(&[MASK, MASK], Dtype::Int8)
            .input(&[batch], Dtype::Int64)
            .input(&[batch], Dtype::Int64)
            .omitted(7)
            .input(&[batch, blocks], Dtype::Int32)
            .output(&[batch, heads, dim], Dtype::Bf16);
        let attributes = AttentionCall {
            layout: "TND",
            sparse_mode: "3",
            heads,
            kv_heads,
            query_lengths: EqualLengths { batch, length: 1 }.ends(),
            kv_lengths: EqualLengths { batch, length: self.step.context }.each(),
            is_paged: true,
        };
        self.with_attributes(call, &attributes)
    }

    /// Attention of packed prompts, whose keys and values are the tokens themselves. That of the latent kind has the rotary parts
    /// apart, and returns the logarithms of the sums, by which it is joined with the context (vllm-ascend 0.18,
    /// `_forward_prefill` of `attention/mla_v1.py`).
    fn packed_prefill(
        &self,
        heads: u64,
        kv_heads: u64,
        [dim, v_dim]: [u64; 2],
        rope: Option<u64>,
    ) -> KernelCall {
        let (batch, tokens) = (self.step.batch, self.step.tokens());
        let mut call = KernelCall::new(AttentionCase::KERNEL)
            .input(&[tokens, heads, dim], Dtype::Bf16)
            .input(&[tokens, kv_heads, dim], Dtype::Bf16)
            .input(&[tokens, kv_heads, v_dim], Dtype::Bf16)
            .omitted(1)
            .input(&[MASK, MASK], Dtype::Int8)
            .input(&[batch], Dtype::Int64)
            .input(&[batch], Dtype::Int64);
        if let Some(rope) = rope {
            call = call
                .omitted(17)
                .input(&[tokens, heads, rope], Dtype::Bf16)
                .input(&[tokens, kv_heads, rope], Dtype::Bf16);
        }
        call = call.output(&[tokens, heads, v_dim], Dtype::Bf16);
        if rope.is_some() {
            call = call.output(&[tokens, heads, 1], Dtype::Float);
        }
        let ends = EqualLengths { batch, length: self.step.context }.ends();
        let attributes = AttentionCall {
            layout: "TND",
            sparse_mode: "3",
            heads,
            kv_heads,
            query_lengths: ends.clone(),
            kv_lengths: ends,
            is_paged: false,
        };
        self.with_attributes(call, &attributes)
    }

    fn with_attributes(&self, call: KernelCall, attributes: &AttentionCall) -> KernelCall {
        let (_, blocks, _) = self.cache_size();
        let call = call
            .attribute(name::LAYOUT, attributes.layout)
            .attribute(name::SPARSE_MODE, attributes.sparse_mode)
            .attribute(name::HEADS, &attributes.heads.to_string())
            .attribute(name::KV_HEADS, &attributes.kv_heads.to_string())
            .attribute(name::QUERY_LENGTHS, &attributes.query_lengths)
            .attribute(name::KV_LENGTHS, &attributes.kv_lengths)
            .attribute(name::AVG_SEQ_LEN, &self.step.context.to_string());
        match attributes.is_paged {
            true => {
                let valid = EqualLengths { batch: self.step.batch, length: blocks };
                call.attribute(name::BLOCK_SIZE, &CACHE_BLOCK.to_string())
                    .attribute(name::VALID_BLOCKS, &valid.each())
            }
            false => call.attribute(name::BLOCK_SIZE, "0"),
        }
    }

    /// Returns the sequences, the blocks of each, and the blocks of the cache.
    fn cache_size(&self) -> (u64, u64, u64) {
        let blocks = self.step.context.div_ceil(CACHE_BLOCK);
        (self.step.batch, blocks, LEAST_BLOCKS.max(self.step.batch * blocks))
    }

    fn add_latent(&mut self, latent: &LatentAttention, products: &[WeightProduct]) {
        let (layers, tokens) = (self.model.layers, self.step.tokens());
        let (heads, rope, rank) = (self.share.heads, latent.rope_head_dim, latent.kv_lora_rank);
        if let Some(width) = latent.q_lora_rank {
            self.add(layers, rms_norm(&[tokens], width));
            self.add_role(products, Role::QBProj, layers, tokens);
        }
        let position = KernelCall::new("InterleaveRope")
            .input(&[tokens, heads, 1, rope], Dtype::Bf16)
            .input(&[tokens, 1, 1, rope], Dtype::Bf16)
            .input(&[tokens, 1, 1, rope], Dtype::Bf16)
            .output(&[tokens, heads, 1, rope], Dtype::Bf16);
        self.add(layers, position);
        let pool = LEAST_BLOCKS.max(8 * tokens).min(MOST_LATENT_BLOCKS);
        let cache = KernelCall::new("KvRmsNormRopeCache")
            .input(&[tokens, 1, 1, rank + rope], Dtype::Bf16)
            .input(&[rank], Dtype::Bf16)
            .input(&[tokens, 1, 1, rope], Dtype::Bf16)
            .input(&[tokens, 1, 1, rope], Dtype::Bf16)
            .input(&[tokens], Dtype::Int64)
            .input(&[pool, CACHE_BLOCK, 1, rope], Dtype::Bf16)
            .input(&[pool, CACHE_BLOCK, 1, rank], Dtype::Bf16)
            .output(&[pool, CACHE_BLOCK, 1, rope], Dtype::Bf16)
            .output(&[pool, CACHE_BLOCK, 1, rank], Dtype::Bf16)
            .output(&[tokens, 1, 1, rope], Dtype::Bf16)
            .output(&[tokens, 1, 1, rank], Dtype::Bf16);
        self.add(layers, cache);
        if let Some(indexer) = &latent.indexer {
            for role in [Role::IndexerQ, Role::IndexerK, Role::IndexerWeights] {
                self.add_role(products, role, layers, tokens);
            }
            self.add_index_keys(indexer);
        }
        if self.step.is_decode() || latent.indexer.is_some() {
            self.add_absorbed(latent, products);
        } else {
            self.add_role(products, Role::KvBProj, layers, tokens);
            let (nope, v_dim) = (latent.nope_head_dim, latent.v_head_dim);
            let ring = KernelCall::new("RINGMLAPrefillBF16Kernel")
                .input(&[tokens, heads, nope], Dtype::Bf16)
                .input(&[tokens, heads, rope], Dtype::Bf16)
                .input(&[tokens, heads, nope], Dtype::Bf16)
                .input(&[tokens, heads, rope], Dtype::Bf16)
                .input(&[tokens, heads, v_dim], Dtype::Bf16)
                .input(&[512, 512], Dtype::Bf16)
                .output(&[tokens, heads, v_dim], Dtype::Bf16)
                .output(&[heads, tokens], Dtype::Float);
            // The rows of this kernel do not have the lengths of several prompts.
            let packed = self.packed_prefill(heads, heads, [nope, v_dim], Some(rope));
            self.add(layers, if self.step.batch == 1 { packed.or_call(ring) } else { packed });
        }
    }

    /// Adds attention in the low rank: queries into it, the kernel, values out of it.
    fn add_absorbed(&mut self, latent: &LatentAttention, products: &[WeightProduct]) {
        let (layers, tokens) = (self.model.layers, self.step.tokens());
        for product in products {
            let (heads, n, k) = (product.count, product.n, product.k);
            let inputs = |kernel: &str| {
                KernelCall::new(kernel)
                    .input(&[heads, tokens, k], Dtype::Bf16)
                    .input(&[heads, k, n], Dtype::Bf16)
            };
            match product.role {
                Role::AbsorbedK => {
                    let plain = inputs("BatchMatMulV2").output(&[heads, tokens, n], Dtype::Bf16);
                    let transposed = inputs("TransposeBatchMatMul").output(&[tokens, heads, n], Dtype::Bf16);
                    self.add(layers, plain.or("BatchMatMulNd").or_call(transposed));
                    let call = match &latent.indexer {
                        Some(indexer) => {
                            self.add_indexer(indexer);
                            self.sparse_attention(latent, indexer)
                        }
                        None => self.latent_decode(latent),
                    };
                    self.add(layers, call);
                }
                Role::AbsorbedV => {
                    let transposed = inputs("TransposeBatchMatMul").output(&[tokens, heads, n], Dtype::Bf16);
                    let plain = inputs("BatchMatMulV2").output(&[heads, tokens, n], Dtype::Bf16);
                    self.add(layers, transposed.or_call(plain));
                }
                _ => {}
            }
        }
    }

    fn latent_decode(&self, latent: &LatentAttention) -> KernelCall {
        let (batch, blocks, pool) = self.cache_size();
        let (heads, rank, rope) = (self.share.heads, latent.kv_lora_rank, latent.rope_head_dim);
        let call = KernelCall::new(AttentionCase::KERNEL)
            .input(&[batch, heads, 1, rank], Dtype::Bf16)
            .input(&[pool, 1, CACHE_BLOCK, rank], Dtype::Bf16)
            .input(&[pool, 1, CACHE_BLOCK, rank], Dtype::Bf16)
            .omitted(2)
            .input(&[batch], Dtype::Int64)
            .input(&[batch], Dtype::Int64)
            .omitted(7)
            .input(&[batch, blocks], Dtype::Int32)
            .omitted(9)
            .input(&[batch, heads, 1, rope], Dtype::Bf16)
            .input(&[pool, 1, CACHE_BLOCK, rope], Dtype::Bf16)
            .output(&[heads, batch, 1, rank], Dtype::Bf16);
        let attributes = AttentionCall {
            layout: "BNSD_NBSD",
            sparse_mode: "0",
            heads,
            kv_heads: 1,
            query_lengths: EqualLengths { batch, length: 1 }.each(),
            kv_lengths: EqualLengths { batch, length: self.step.context }.each(),
            is_paged: true,
        };
        self.with_attributes(call, &attributes)
    }

    /// Adds the norm of the index keys, which is computed in FLOAT, and their writing to their cache.
    fn add_index_keys(&mut self, indexer: &SparseIndexer) {
        let (layers, tokens, dim) = (self.model.layers, self.step.tokens(), indexer.head_dim);
        let cast = |from: Dtype, to: Dtype| {
            KernelCall::new("Cast").input(&[tokens, dim], from).output(&[tokens, dim], to)
        };
        let norm = KernelCall::new("LayerNormV3")
            .input(&[tokens, dim], Dtype::Float)
            .input(&[dim], Dtype::Float)
            .input(&[dim], Dtype::Float)
            .output(&[tokens, dim], Dtype::Float)
            .output(&[tokens, 1], Dtype::Float)
            .output(&[tokens, 1], Dtype::Float);
        self.add(layers, cast(Dtype::Bf16, Dtype::Float).or("CastAiCore"));
        self.add(layers, norm.or("LayerNormV3WithImplMode"));
        self.add(layers, cast(Dtype::Float, Dtype::Bf16).or("CastAiCore"));
        let (_, _, pool) = self.cache_size();
        let written = KernelCall::new("ScatterNdUpdate")
            .input(&[pool * CACHE_BLOCK, dim], Dtype::Bf16)
            .input(&[tokens, 1], Dtype::Int32)
            .input(&[tokens, dim], Dtype::Bf16)
            .output(&[pool * CACHE_BLOCK, dim], Dtype::Bf16);
        self.add(layers, written.or("ScatterNdUpdateAiCore"));
    }

    fn add_indexer(&mut self, indexer: &SparseIndexer) {
        let (layers, tokens) = (self.model.layers, self.step.tokens());
        let (batch, blocks, pool) = self.cache_size();
        let call = KernelCall::new("LightningIndexer")
            .input(&[tokens, indexer.heads, indexer.head_dim], Dtype::Bf16)
            .input(&[pool, CACHE_BLOCK, 1, indexer.head_dim], Dtype::Bf16)
            .input(&[tokens, indexer.heads], Dtype::Bf16)
            .input(&[batch], Dtype::Int32)
            .input(&[batch], Dtype::Int32)
            .input(&[batch, blocks], Dtype::Int32)
            .output(&[tokens, 1, indexer.top_k], Dtype::Int32)
            .output(&[], Dtype::Bf16);
        self.add(layers, self.with_lengths(call));
    }

    fn sparse_attention(&self, latent: &LatentAttention, indexer: &SparseIndexer) -> KernelCall {
        let (tokens, heads) = (self.step.tokens(), self.share.heads);
        let (batch, blocks, pool) = self.cache_size();
        let (rank, rope) = (latent.kv_lora_rank, latent.rope_head_dim);
        let call = KernelCall::new("SparseFlashAttention")
            .input(&[tokens, heads, rank], Dtype::Bf16)
            .input(&[pool, CACHE_BLOCK, 1, rank], Dtype::Bf16)
            .input(&[pool, CACHE_BLOCK, 1, rank], Dtype::Bf16)
            .input(&[tokens, 1, indexer.top_k], Dtype::Int32)
            .input(&[batch, blocks], Dtype::Int32)
            .input(&[batch], Dtype::Int32)
            .input(&[batch], Dtype::Int32)
            .input(&[tokens, heads, rope], Dtype::Bf16)
            .input(&[pool, CACHE_BLOCK, 1, rope], Dtype::Bf16)
            .output(&[tokens, heads, rank], Dtype::Bf16);
        self.with_lengths(call)
    }

    /// Sets the lengths of sparse attention: tokens by their ends, keys one by one.
    fn with_lengths(&self, call: KernelCall) -> KernelCall {
        let batch = self.step.batch;
        let queries = EqualLengths { batch, length: self.step.tokens() / batch.max(1) };
        let keys = EqualLengths { batch, length: self.step.context };
        call.attribute(name::QUERY_LENGTHS, &queries.ends()).attribute(name::KV_LENGTHS, &keys.each())
    }
}
