//! Attention: projections, positions, caches, and the kernel itself.

use super::{KernelCall, StepBuilder, rms_norm};
use crate::{
    answer::attention_call::{AttentionCall, CACHE_BLOCK},
    cases::llm::{
        GroupedQuery, LatentAttention, LlmAttention, SparseIndexer, WeightProduct, WeightProductRole as Role,
    },
    kernel::{AttentionCase, CaseAttributes, Dtype, SequenceLengths, Tensor},
};

/// Width of the heads for which one kernel splits, norms and turns queries and keys.
const FUSED_HEAD: u64 = 128;
/// Minimum number of blocks of a cache in recorded calls.
const MIN_BLOCKS: u64 = 16;
/// Maximum number of blocks of a cache that KvRmsNormRopeCache writes.
const MAX_LATENT_BLOCKS: u64 = 4096;

impl StepBuilder<'_> {
    pub(super) fn add_attention(&mut self, products: &[WeightProduct]) {
        self.count = self.model.layers;
        let tokens = self.step.tokens();
        match self.model.attention.clone() {
            LlmAttention::Grouped(grouped) => {
                self.add_role(products, Role::QkvProj, tokens);
                self.add_grouped(&grouped);
            }
            LlmAttention::Latent(latent) => {
                for role in [Role::FusedQkvAProj, Role::QProj, Role::KvAProj] {
                    self.add_role(products, role, tokens);
                }
                self.add_latent(&latent, products);
            }
        }
        self.add_role(products, Role::OProj, tokens);
        self.add_all_reduce();
    }

    fn add_grouped(&mut self, grouped: &GroupedQuery) {
        let (t, dim) = (self.step.tokens(), grouped.head_dim);
        let (heads, kv_heads) = (self.share.heads, self.share.kv_heads);
        if grouped.qk_norm && dim == FUSED_HEAD {
            let (q, k) = (heads * dim, kv_heads * dim);
            let all = q + 2 * k;
            self.add(format!(
                "split_qkv_rmsnorm_rope_kernel|split_qkv_rmsnorm_rope_kernel_0: BF16[{t},{all}] BF16[{dim}] \
                     -> BF16[{t},{q}] BF16[{t},{k}] BF16[{t},{k}]"
            ));
        } else {
            for heads in [heads, kv_heads].into_iter().filter(|_| grouped.qk_norm) {
                self.add(rms_norm(&format!("{t},{heads}"), dim));
            }
            self.add(format!(
                    "ApplyRotaryPosEmb: BF16[{t},{heads},{dim}] BF16[{t},{kv_heads},{dim}] BF16[{t},1,{dim}] BF16[{t},1,{dim}] \
                     -> BF16[{t},{heads},{dim}] BF16[{t},{kv_heads},{dim}]"
                ),
            );
        }
        let pool = MIN_BLOCKS.max(8 * t);
        let (keys, cache) =
            (format!("BF16[{t},{kv_heads},{dim}]"), format!("BF16[{pool},{CACHE_BLOCK},{kv_heads},{dim}]"));
        self.add(format!(
            "ReshapeAndCacheNdKernel|reshape_and_cache_200000000: {keys} {keys} {cache} {cache} INT32[{t}] \
                 -> {cache} {cache}"
        ));
        let min_blocks = if self.step.is_decode() { MIN_BLOCKS } else { 0 };
        let call = self.packed_attention([heads, kv_heads]);
        self.add(KernelCall::of_cases(vec![call.packed_case(&Dtype::Bf16, t, [dim, dim], min_blocks)]));
    }

    /// Returns the call for packed tokens: of complete prompts, whose keys and values are the tokens themselves, or of a decode step.
    fn packed_attention(&self, [heads, kv_heads]: [u64; 2]) -> AttentionCall {
        let lengths = match self.step.is_decode() {
            true => self.equal_lengths(1),
            false => SequenceLengths { block: None, ..self.equal_lengths(self.step.context) },
        };
        AttentionCall { layout: "TND", sparse_mode: "3", heads, kv_heads, lengths }
    }

    fn equal_lengths(&self, queries: u64) -> SequenceLengths {
        SequenceLengths::equal(self.step.batch, [queries, self.step.context], Some(CACHE_BLOCK))
    }

    /// Returns the sequences, the blocks of each, and the blocks of the cache.
    fn cache_size(&self) -> (u64, u64, u64) {
        let blocks = self.step.context.div_ceil(CACHE_BLOCK);
        (self.step.batch, blocks, MIN_BLOCKS.max(self.step.batch * blocks))
    }

    fn add_latent(&mut self, latent: &LatentAttention, products: &[WeightProduct]) {
        let t = self.step.tokens();
        let (heads, rope, rank) = (self.share.heads, latent.rope_head_dim, latent.kv_lora_rank);
        if let Some(width) = latent.q_lora_rank {
            self.add(rms_norm(&t.to_string(), width));
            self.add_role(products, Role::QBProj, t);
        }
        let turned = format!("BF16[{t},1,1,{rope}]");
        self.add(format!(
            "InterleaveRope: BF16[{t},{heads},1,{rope}] {turned} {turned} -> BF16[{t},{heads},1,{rope}]"
        ));
        let pool = MIN_BLOCKS.max(8 * t).min(MAX_LATENT_BLOCKS);
        let caches = format!("BF16[{pool},{CACHE_BLOCK},1,{rope}] BF16[{pool},{CACHE_BLOCK},1,{rank}]");
        let width = rank + rope;
        self.add(format!(
            "KvRmsNormRopeCache: BF16[{t},1,1,{width}] BF16[{rank}] {turned} {turned} INT64[{t}] {caches} \
                 -> {caches} {turned} BF16[{t},1,1,{rank}]"
        ));
        if let Some(indexer) = &latent.indexer {
            for role in [Role::IndexerQ, Role::IndexerK, Role::IndexerWeights] {
                self.add_role(products, role, t);
            }
            self.add_index_keys(indexer);
        }
        if self.step.is_decode() || latent.indexer.is_some() {
            self.add_absorbed(latent, products);
        } else {
            self.add_role(products, Role::KvBProj, t);
            self.add_latent_prompts(latent);
        }
    }

    /// Adds attention of packed prompts in the full width. The rotary parts are inputs of their own, and the logarithms of the sums
    /// are outputs, by which it is joined with the context (vllm-ascend 0.18, `_forward_prefill` of `attention/mla_v1.py`).
    fn add_latent_prompts(&mut self, latent: &LatentAttention) {
        let (heads, t, rope) = (self.share.heads, self.step.tokens(), latent.rope_head_dim);
        let (nope, v_dim) = (latent.nope_head_dim, latent.v_head_dim);
        let mut packed = self.packed_attention([heads, heads]).packed_case(&Dtype::Bf16, t, [nope, v_dim], 0);
        packed.inputs.resize(24, None);
        packed.inputs.extend([(); 2].map(|()| Some(Tensor::new([t, heads, rope], Dtype::Bf16))));
        packed.outputs.push(Some(Tensor::new([t, heads, 1], Dtype::Float)));
        let mut call = KernelCall::of_cases(vec![packed]);
        // The rows of this kernel do not have the lengths of several prompts.
        if self.step.batch == 1 {
            let pair = format!("BF16[{t},{heads},{nope}] BF16[{t},{heads},{rope}]");
            call = call.or(format!(
                "RINGMLAPrefillBF16Kernel: {pair} {pair} BF16[{t},{heads},{v_dim}] BF16[512,512] \
                 -> BF16[{t},{heads},{v_dim}] FLOAT[{heads},{t}]"
            ));
        }
        self.add(call);
    }

    /// Adds attention in the low rank: queries into it, the kernel, values out of it.
    fn add_absorbed(&mut self, latent: &LatentAttention, products: &[WeightProduct]) {
        let t = self.step.tokens();
        for &WeightProduct { role, count: heads, n, k, .. } in products {
            let inputs = format!("BF16[{heads},{t},{k}] BF16[{heads},{k},{n}]");
            let plain = format!("{inputs} -> BF16[{heads},{t},{n}]");
            let transposed = format!("TransposeBatchMatMul: {inputs} -> BF16[{t},{heads},{n}]");
            match role {
                Role::AbsorbedK => {
                    let product = KernelCall::from(format!("BatchMatMulV2|BatchMatMulNd: {plain}"));
                    self.add(product.or(transposed));
                    let call = match &latent.indexer {
                        Some(indexer) => {
                            self.add_indexer(indexer);
                            self.sparse_attention(latent, indexer)
                        }
                        None => self.latent_decode(latent),
                    };
                    self.add(call);
                }
                Role::AbsorbedV => {
                    self.add(KernelCall::from(transposed).or(format!("BatchMatMulV2: {plain}")));
                }
                _ => {}
            }
        }
    }

    fn latent_decode(&self, latent: &LatentAttention) -> KernelCall {
        let (batch, blocks, pool) = self.cache_size();
        let (heads, rank, rope) = (self.share.heads, latent.kv_lora_rank, latent.rope_head_dim);
        let cache = format!("BF16[{pool},1,{CACHE_BLOCK},{rank}]");
        let call = KernelCall::from(format!(
            "{}: BF16[{batch},{heads},1,{rank}] {cache} {cache} -*2 INT64[{batch}] INT64[{batch}] -*7 INT32[{batch},{blocks}] -*9 \
             BF16[{batch},{heads},1,{rope}] BF16[{pool},1,{CACHE_BLOCK},{rope}] -> BF16[{heads},{batch},1,{rank}]",
            AttentionCase::KERNEL
        ));
        let lengths = SequenceLengths { packed: false, ..self.equal_lengths(1) };
        let (layout, sparse_mode, kv_heads) = ("BNSD_NBSD", "0", 1);
        call.with_attributes(AttentionCall { layout, sparse_mode, heads, kv_heads, lengths }.attributes())
    }

    /// Adds the norm of the index keys, which is computed in FLOAT, and their writing to their cache.
    fn add_index_keys(&mut self, indexer: &SparseIndexer) {
        let (t, dim) = (self.step.tokens(), indexer.head_dim);
        let (_, _, pool) = self.cache_size();
        let cache = format!("BF16[{},{dim}]", pool * CACHE_BLOCK);
        for call in [
            format!("Cast|CastAiCore: BF16[{t},{dim}] -> FLOAT[{t},{dim}]"),
            format!(
                "LayerNormV3|LayerNormV3WithImplMode: FLOAT[{t},{dim}] FLOAT[{dim}] FLOAT[{dim}] \
                 -> FLOAT[{t},{dim}] FLOAT[{t},1] FLOAT[{t},1]"
            ),
            format!("Cast|CastAiCore: FLOAT[{t},{dim}] -> BF16[{t},{dim}]"),
            format!("ScatterNdUpdate|ScatterNdUpdateAiCore: {cache} INT32[{t},1] BF16[{t},{dim}] -> {cache}"),
        ] {
            self.add(call);
        }
    }

    fn add_indexer(&mut self, &SparseIndexer { heads, head_dim, top_k, .. }: &SparseIndexer) {
        let t = self.step.tokens();
        let (batch, blocks, pool) = self.cache_size();
        let call = KernelCall::from(format!(
            "LightningIndexer: BF16[{t},{heads},{head_dim}] BF16[{pool},{CACHE_BLOCK},1,{head_dim}] BF16[{t},{heads}] INT32[{batch}] \
             INT32[{batch}] INT32[{batch},{blocks}] -> INT32[{t},1,{top_k}] BF16[]"
        ));
        self.add(self.with_lengths(call));
    }

    fn sparse_attention(&self, latent: &LatentAttention, indexer: &SparseIndexer) -> KernelCall {
        let (t, heads, top_k) = (self.step.tokens(), self.share.heads, indexer.top_k);
        let (batch, blocks, pool) = self.cache_size();
        let (rank, rope) = (latent.kv_lora_rank, latent.rope_head_dim);
        let cache = format!("BF16[{pool},{CACHE_BLOCK},1,{rank}]");
        self.with_lengths(KernelCall::from(format!(
            "SparseFlashAttention: BF16[{t},{heads},{rank}] {cache} {cache} INT32[{t},1,{top_k}] INT32[{batch},{blocks}] \
             INT32[{batch}] INT32[{batch}] BF16[{t},{heads},{rope}] BF16[{pool},{CACHE_BLOCK},1,{rope}] -> BF16[{t},{heads},{rank}]"
        )))
    }

    fn with_lengths(&self, call: KernelCall) -> KernelCall {
        let lengths = self.equal_lengths(self.step.tokens() / self.step.batch.max(1));
        call.with_attributes(lengths.to_attributes(&CaseAttributes::default()))
    }
}
