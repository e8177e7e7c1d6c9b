//! The entries of attention, norms, rotary positions and caches: scenes of serving are replayed and taken by the
//! vendor's own torch_npu, and what it would take wrongly is refused.

use crate::prelude::*;
use crate::vendor::{self, VendorJournal};

const FIA: &str = "FusedInferAttentionScore";

/// Kernel, duration, then shapes and types of the inputs, shapes and types of the outputs. Some are of public
/// profiles, the rest of the sizes of DeepSeek and Qwen.
const CASES: [&str; 52] = [
    "ApplyTopKTopPCustom 9 64,151936;64,151936;64;64 FLOAT;INT32;FLOAT;INT32 64,151936 FLOAT",
    "ApplyTopKTopPCustom 9 8,32000;8,32000;;8 BF16;INT32;-;INT32 8,32000 BF16",
    "ApplyTopKTopPCustom 9 1,1024;1,1024;1; FLOAT16;INT32;FLOAT16;- 1,1024 FLOAT16",
    "AttentionUpdate 9 64;64;64,128;64,128 FLOAT;FLOAT;BF16;BF16 64,128;64 BF16;FLOAT",
    "AttentionUpdate 9 8;8;8;8,512;8,512;8,512 FLOAT;FLOAT;FLOAT;FLOAT16;FLOAT16;FLOAT16 8,512;8 FLOAT16;FLOAT",
    "AttentionUpdate 9 1;1;1;1;1,64;1,64;1,64;1,64 FLOAT;FLOAT;FLOAT;FLOAT;FLOAT;FLOAT;FLOAT;FLOAT 1,64;1 FLOAT;FLOAT",
    "PagedCacheLoadNdKernel 9 64,128,1,512;64,128,1,64;4,1;4;100,1,512;100,1,64;4 BF16;BF16;INT32;INT32;BF16;BF16;INT32 100,1,512;100,1,64 BF16;BF16",
    "PagedCacheLoadNdKernel 9 99,128,8,128;99,128,8,128;2,40;2;9000,8,128;9000,8,128; INT8;INT8;INT32;INT32;INT8;INT8;- 9000,8,128;9000,8,128 INT8;INT8",
    "AddRmsNorm 20 8,5120;8,5120;5120 BF16;BF16;BF16 8,5120;8,1;8,5120 BF16;FLOAT;BF16",
    "AddRmsNorm 20 4,16,7168;4,16,7168;7168 FLOAT16;FLOAT16;FLOAT16 4,16,7168;4,16,1;4,16,7168 FLOAT16;FLOAT;FLOAT16",
    "AddRmsNorm 20 1,64;1,64;64 FLOAT;FLOAT;FLOAT 1,64;1,1;1,64 FLOAT;FLOAT;FLOAT",
    "InplaceAddRmsNorm 2.62 1,1,1024;1,1,1024;1024 FLOAT16;FLOAT16;FLOAT16 1,1,1024;1,1,1;1,1,1024 FLOAT16;FLOAT;FLOAT16",
    "AddRmsNormBias 20 8,5120;8,5120;5120;5120 BF16;BF16;BF16;BF16 8,5120;8,1;8,5120 BF16;FLOAT;BF16",
    "AddRmsNormBias 20 8,5120;8,5120;5120; BF16;BF16;BF16;- 8,5120;8,1;8,5120 BF16;FLOAT;BF16",
    "AddRmsNormBias 90 4096,7168;4096,7168;7168;7168 BF16;BF16;BF16;BF16 4096,7168;4096,1;4096,7168 BF16;FLOAT;BF16",
    "AddRmsNormDynamicQuant 20 64,7168;64,7168;7168;7168 BF16;BF16;BF16;BF16 64,7168;64,7168;64,7168;64;64 INT8;INT8;BF16;FLOAT;FLOAT",
    "AddRmsNormDynamicQuant 20 1,512;1,512;512;512 FLOAT16;FLOAT16;FLOAT16;FLOAT16 1,512;1,512;1,512;1;1 INT8;INT8;FLOAT16;FLOAT;FLOAT",
    "AddRmsNormDynamicQuant 20 64,7168;64,7168;7168;7168;7168 BF16;BF16;BF16;BF16;BF16 64,7168;64,7168;64,7168;64;64 INT8;INT8;BF16;FLOAT;FLOAT",
    "LayerNormV3 20 8,5120;5120;5120 BF16;BF16;BF16 8,5120;8,1;8,1 BF16;FLOAT;FLOAT",
    "LayerNormV3 20 2,77,768;768;768 FLOAT16;FLOAT16;FLOAT16 2,77,768;2,77,1;2,77,1 FLOAT16;FLOAT;FLOAT",
    "LayerNormV3 20 1,128;128;128 FLOAT;FLOAT;FLOAT 1,128;1,1;1,1 FLOAT;FLOAT;FLOAT",
    "ApplyRotaryPosEmb 3.46 1,1,16,128;1,1,2,128;1,1,1,128;1,1,1,128 FLOAT16;FLOAT16;FLOAT16;FLOAT16 1,1,16,128;1,1,2,128 FLOAT16;FLOAT16",
    "ApplyRotaryPosEmb 30 64,16,128;64,2,128;64,1,128;64,1,128 BF16;BF16;BF16;BF16 64,16,128;64,2,128 BF16;BF16",
    "ApplyRotaryPosEmb 90 4,1024,8,128;4,1024,2,128;4,1024,1,128;4,1024,1,128 BF16;BF16;BF16;BF16 4,1024,8,128;4,1024,2,128 BF16;BF16",
    "RotaryPositionEmbedding 65.08 4096,1,16,128;4096,1,1,128;4096,1,1,128 BF16;BF16;BF16 4096,1,16,128 BF16",
    "InterleaveRope 20 8,16,1,64;8,1,1,64;8,1,1,64 BF16;BF16;BF16 8,16,1,64 BF16",
    "InterleaveRope 20 1,128,1,64;1,1,1,64;1,1,1,64 FLOAT16;FLOAT16;FLOAT16 1,128,1,64 FLOAT16",
    "InterleaveRope 20 512,1,1,64;512,1,1,64;512,1,1,64 BF16;BF16;BF16 512,1,1,64 BF16",
    "KvRmsNormRopeCache 20 1,1,1,576;512;1,1,1,64;1,1,1,64;1;16,128,1,64;16,128,1,512;;;;; BF16;BF16;BF16;BF16;INT64;BF16;BF16;-;-;-;-;- 16,128,1,64;16,128,1,512;1,1,1,64;1,1,1,512 BF16;BF16;BF16;BF16",
    "KvRmsNormRopeCache 20 64,1,1,576;512;64,1,1,64;64,1,1,64;64;512,128,1,64;512,128,1,512;;;;; BF16;BF16;BF16;BF16;INT64;BF16;BF16;-;-;-;-;- 512,128,1,64;512,128,1,512;64,1,1,64;64,1,1,512 BF16;BF16;BF16;BF16",
    "KvRmsNormRopeCache 40 4,1,16,576;512;4,1,16,64;4,1,16,64;64;32,128,1,64;32,128,1,512;;;;; BF16;BF16;BF16;BF16;INT64;BF16;BF16;-;-;-;-;- 32,128,1,64;32,128,1,512;4,1,16,64;4,1,16,512 BF16;BF16;BF16;BF16",
    "ReshapeAndCacheNdKernel 20 64,8,128;64,8,128;512,128,8,128;512,128,8,128;64 BF16;BF16;BF16;BF16;INT32 512,128,8,128;512,128,8,128 BF16;BF16",
    "ReshapeAndCacheNdKernel 20 1,1,512;1,1,64;16,128,1,512;16,128,1,64;1 BF16;BF16;BF16;BF16;INT32 16,128,1,512;16,128,1,64 BF16;BF16",
    "reshape_and_cache_200000000 20 16,1,128;16,1,128;16,128,1,128;16,128,1,128;16 INT8;INT8;INT8;INT8;INT32 16,128,1,128;16,128,1,128 INT8;INT8",
    "ScatterNdUpdate 20 2048,576;64,1;64,576 BF16;INT32;BF16 2048,576 BF16",
    "ScatterNdUpdate 20 131072,1,128;8,1;8,1,128 BF16;INT64;BF16 131072,1,128 BF16",
    "ScatterNdUpdate 20 16;16,1;16 FLOAT;INT32;FLOAT 16 FLOAT",
    "RINGMLAPrefillBF16Kernel 200 512,16,128;512,16,64;512,16,128;512,16,64;512,16,128;512,512 BF16;BF16;BF16;BF16;BF16;BF16 512,16,128;16,512 BF16;FLOAT",
    "split_qkv_rmsnorm_rope_kernel 40 64,10240;128 BF16;BF16 64,8192;64,1024;64,1024 BF16;BF16;BF16",
    "split_qkv_rmsnorm_rope_kernel_0 20 1,768;128 BF16;BF16 1,512;1,128;1,128 BF16;BF16;BF16",
    "IncreFlashAttention 21.2 1,16,1,128;1,2,1024,128;1,2,1024,128;1,1,1,1024 FLOAT16;FLOAT16;FLOAT16;BOOL 1,16,1,128 FLOAT16",
    "IncreFlashAttention 200 8,32,1,128;8,8,4096,128;8,8,4096,128;8,1,1,4096 BF16;BF16;BF16;BOOL 8,32,1,128 BF16",
    "FlashAttentionScore 881.64 4096,1,2048;4096,1,1024;4096,1,1024;;;;2048,2048;;;;;;;; BF16;BF16;BF16;BF16;UINT8;BF16;BOOL;INT64;INT64;INT64;INT64;INT64;FLOAT;FLOAT;FLOAT 1,16,4096,8;1,16,4096,8;;4096,1,2048 FLOAT;FLOAT;BF16;BF16",
    "FlashAttentionScore 881.64 4096,1,2048;4096,1,1024;4096,1,1024;;;;4096,4096;;;;;;;; BF16;BF16;BF16;BF16;UINT8;BF16;BOOL;INT64;INT64;INT64;INT64;INT64;FLOAT;FLOAT;FLOAT 1,16,4096,8;1,16,4096,8;;4096,1,2048 FLOAT;FLOAT;BF16;BF16",
    "FlashAttentionScore 800 2,2048,2048;2,2048,1024;2,2048,1024;;;;;;;;;;;; BF16;BF16;BF16;BF16;UINT8;BF16;BOOL;INT64;INT64;INT64;INT64;INT64;FLOAT;FLOAT;FLOAT 2,16,2048,8;2,16,2048,8;;2,2048,2048 FLOAT;FLOAT;BF16;BF16",
    "FlashAttentionScore 800 2,16,1024,128;2,8,1024,128;2,8,1024,128;;;;2048,2048;;;;;;;; BF16;BF16;BF16;BF16;UINT8;BF16;BOOL;INT64;INT64;INT64;INT64;INT64;FLOAT;FLOAT;FLOAT 2,16,1024,8;2,16,1024,8;;2,16,1024,128 FLOAT;FLOAT;BF16;BF16",
    "FlashAttentionScore 800 2,1024,16,128;2,77,8,128;2,77,8,128;;;;;;;;;;;; FLOAT16;FLOAT16;FLOAT16;BF16;UINT8;BF16;BOOL;INT64;INT64;INT64;INT64;INT64;FLOAT;FLOAT;FLOAT 2,16,1024,8;2,16,1024,8;;2,1024,16,128 FLOAT;FLOAT;FLOAT16;FLOAT16",
    "LightningIndexer 1000 8,64,128;100,128,1,128;8,64;3;3;3,32 BF16;BF16;BF16;INT32;INT32;INT32 8,1,2048 INT32",
    "LightningIndexer 1000 64,64,128;512,128,1,128;64,64;1;1;1,600 BF16;BF16;BF16;INT32;INT32;INT32 64,1,2048; INT32;BF16",
    "LightningIndexer 1000 8,64,128;100,128,1,128;8,64;3;3;3,32 BF16;BF16;FLOAT;INT32;INT32;INT32 8,1,2048;8,1,2048 INT32;BF16",
    "SparseFlashAttention 1000 8,128,512;100,128,1,512;100,128,1,512;8,1,2048;3,32;3;3;8,128,64;100,128,1,64 BF16;BF16;BF16;INT32;INT32;INT32;INT32;BF16;BF16 8,128,512 BF16",
    "SparseFlashAttention 1000 64,16,512;64,128,1,512;64,128,1,512;64,1,512;1,64;1;1;64,16,64;64,128,1,64 BF16;BF16;BF16;INT32;INT32;INT32;INT32;BF16;BF16 64,16,512;; BF16;FLOAT;FLOAT",
];

/// The same, and why each is refused.
const WRONG: [&str; 30] = [
    "AttentionUpdate 9 63;64;64,128;64,128 FLOAT;FLOAT;BF16;BF16 64,128;64 BF16;FLOAT => stacked tensors must have the same shape",
    "ApplyTopKTopPCustom 9 64,1024;64,1024;64;64 FLOAT;INT64;FLOAT;INT32 64,1024 FLOAT => input 1 is INT64, the call makes it as INT32",
    "ApplyTopKTopPCustom 9 64,1024;64,1024;64;63 FLOAT;INT32;FLOAT;INT32 64,1024 FLOAT => B is both 64 and 63",
    "AttentionUpdate 9 64;64;63,128;64,128 FLOAT;FLOAT;BF16;BF16 63,128;64 BF16;FLOAT => input 3: S is both 63 and 64",
    "AttentionUpdate 9 64;64;64,12;64,12 FLOAT;FLOAT;BF16;BF16 64,12;64 BF16;FLOAT => `D % 8 == 0`",
    "AttentionUpdate 9 64;64;64,128;64,128 BF16;BF16;BF16;BF16 64,128;64 BF16;BF16 => is DT_BF16, the kernel takes FLOAT",
    "PagedCacheLoadNdKernel 9 64,128,1,512;64,128,1,64;4,1;4;3,1,512;3,1,64;4 BF16;BF16;INT32;INT32;BF16;BF16;INT32 3,1,512;3,1,64 BF16;BF16 => `T >= B` does not hold",
    "PagedCacheLoadNdKernel 9 64,128,1,512;64,128,1,64;4,1;4;600,1,512;600,1,64;4 BF16;BF16;INT32;INT32;BF16;BF16;INT32 600,1,512;600,1,64 BF16;BF16 => `block_table` has 1 blocks in a row, a sequence needs 2",
    "AddRmsNorm 9 8,512;8,512;256 BF16;BF16;BF16 8,512;8,1;8,512 BF16;FLOAT;BF16 => input 2: D is both 512 and 256",
    "AddRmsNorm 9 8,512;8,512 BF16;BF16 8,512;8,1;8,512 BF16;FLOAT;BF16 => recorded input slots: 2, the entry of AddRmsNorm reads 3",
    "AddRmsNorm 9 8,512;8,512;512 BF16;BF16;FLOAT 8,512;8,1;8,512 BF16;FLOAT;BF16 => input 2 (gamma) is FLOAT, `x1` is DT_BF16",
    "AddRmsNormBias 9 8,512;8,512;512;64 BF16;BF16;BF16;BF16 8,512;8,1;8,512 BF16;FLOAT;BF16 => input 3: D is both 512 and 64",
    "AddRmsNormDynamicQuant 9 8,512;8,512;512;8 BF16;BF16;BF16;BF16 8,512;8,512;8,512;8;8 INT8;INT8;BF16;FLOAT;FLOAT => input 3: D is both 512 and 8",
    "LayerNormV3 9 8,512;512;64 BF16;BF16;BF16 8,512;8,1;8,1 BF16;FLOAT;FLOAT => D is both 512 and 64",
    "ApplyRotaryPosEmb 9 1,1,16,128;1,1,2,64;1,1,1,128;1,1,1,128 BF16;BF16;BF16;BF16 1,1,16,128;1,1,2,64 BF16;BF16 => batched: input 1: D is both 128 and 64",
    "RotaryPositionEmbedding 9 4096,1,16,128;4096,2,1,128;4096,2,1,128 BF16;BF16;BF16 4096,1,16,128 BF16 => `broadcast(X, C) == X` does not hold",
    "InterleaveRope 9 8,16,1,128;8,1,1,128;8,1,1,128 BF16;BF16;BF16 8,16,1,128 BF16 => must be 64",
    "KvRmsNormRopeCache 9 8,1,1,576;512;8,1,1,64;8,1,1,64;8;1,4,1,64;1,4,1,512 BF16;BF16;BF16;BF16;INT64;BF16;BF16 1,4,1,64;1,4,1,512;8,1,1,64;8,1,1,512 BF16;BF16;BF16;BF16 => `index` needs 8 different values, there are 4",
    "KvRmsNormRopeCache 9 8,1,1,512;512;8,1,1,64;8,1,1,64;8;9,4,1,64;9,4,1,512 BF16;BF16;BF16;BF16;INT64;BF16;BF16 9,4,1,64;9,4,1,512;8,1,1,64;8,1,1,512 BF16;BF16;BF16;BF16 => `W == C + R` does not hold",
    "ReshapeAndCacheNdKernel 9 8,1,128;8,1,128;9,128,1,128;9,128,1,128;8 BF16;BF16;BF16;BF16;INT64 9,128,1,128;9,128,1,128 BF16;BF16 => input 4 (slot_indices) is INT64, the kernel takes INT32",
    "ReshapeAndCacheNdKernel 9 8,1,128;8,1,128;1,4,1,128;1,4,1,128;8 BF16;BF16;BF16;BF16;INT32 1,4,1,128;1,4,1,128 BF16;BF16 => `slot_indices` needs 8 different values, there are 4",
    "ScatterNdUpdate 9 4,64;8,1;8,64 BF16;INT32;BF16 4,64 BF16 => `indices` needs 8 different values, there are 4",
    "RINGMLAPrefillBF16Kernel 9 512,16,128;512,16,64;900,16,128;900,16,64;900,16,128;512,512 BF16;BF16;BF16;BF16;BF16;BF16 512,16,128;16,512 BF16;FLOAT => input 2: T is both 512 and 900",
    "split_qkv_rmsnorm_rope_kernel 9 64,10240;128 BF16;BF16 64,8192;64,2048;64,2048 BF16;BF16;BF16 => `W == Q + 2 * V` does not hold",
    "IncreFlashAttention 9 1,16,1,128;1,2,1024,128;1,2,1024,128;1,1,1,512 BF16;BF16;BF16;BOOL 1,16,1,128 BF16 => input 3: S is both 1024 and 512",
    "FlashAttentionScore 9 4096,1,2048;512,1,1024;512,1,1024;;;;2048,2048;;;;;;;; BF16;BF16;BF16;BF16;UINT8;BF16;BOOL;INT64;INT64;INT64;INT64;INT64;FLOAT;FLOAT;FLOAT 1,16,4096,8;1,16,4096,8;;4096,1,2048 FLOAT;FLOAT;BF16;BF16 => SBH, causal: `S == K` does not hold",
    "FlashAttentionScore 9 4096,1,2048;4096,1,1024;4096,1,1024;;;;4096,4095;;;;;;;; BF16;BF16;BF16;BF16;UINT8;BF16;BOOL;INT64;INT64;INT64;INT64;INT64;FLOAT;FLOAT;FLOAT 1,16,4096,8;1,16,4096,8;;4096,1,2048 FLOAT;FLOAT;BF16;BF16 => SBH, whole mask: input 6: K is both 4096 and 4095",
    "LightningIndexer 9 8,64,128;100,128,1,128;8,64;3;3;3,32 BF16;BF16;BF16;INT32;INT32;INT32 8,1,4096 INT32 => `C <= 2048` does not hold",
    "SparseFlashAttention 9 2,16,512;64,128,1,512;64,128,1,512;2,1,2048;3,8;3;3;2,16,64;64,128,1,64 BF16;BF16;BF16;INT32;INT32;INT32;INT32;BF16;BF16 2,16,512 BF16 => unknown lengths: `T >= B` does not hold",
    "SparseFlashAttention 9 8,16,512;64,128,1,512;64,64,1,512;8,1,512;3,8;3;3;8,16,64;64,128,1,64 BF16;BF16;BF16;INT32;INT32;INT32;INT32;BF16;BF16 8,16,512 BF16 => input 2: L is both 128 and 64",
];

/// A record of `kernel_details.csv`.
fn record(case: &str) -> String {
    let cells: Vec<&str> = case.split(' ').collect();
    let [kernel, duration, shapes, types, output_shapes, output_types] = cells.as_slice() else {
        panic!("{case}");
    };
    let formats = |types: &str| {
        let formats = types.split(';').map(|name| if name == "-" { "NULL" } else { "ND" });
        formats.collect::<Vec<_>>().join(";")
    };
    format!(
        "{kernel},{duration},\"\"\"{shapes}\"\"\",{},{},\"\"\"{output_shapes}\"\"\",{output_types},{}",
        types.replace('-', "DT_UNDEFINED"),
        formats(types),
        formats(output_types)
    )
}

fn database(context: &Context, records: &[String]) {
    context.ingest_records("db", &records.iter().map(String::as_str).collect::<Vec<_>>(), &[]);
}

/// A call of fused attention.
#[derive(Clone)]
struct Call {
    query: Vec<u64>,
    key: Vec<u64>,
    masked: bool,
    table: Option<[u64; 2]>,
    rope: u64,
    output: &'static str,
    query_lengths: Vec<u64>,
    kv_lengths: Vec<u64>,
    heads: u64,
    kv_heads: u64,
    layout: &'static str,
    block_size: u64,
}

fn joined(numbers: &[u64]) -> String {
    numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(",")
}

impl Call {
    /// As many packed prompts of one length.
    fn prefill(batch: u64, length: u64, heads: u64, kv_heads: u64) -> Self {
        let ends: Vec<u64> = (1..=batch).map(|sequence| sequence * length).collect();
        Self {
            query: vec![batch * length, heads, 128],
            key: vec![batch * length, kv_heads, 128],
            masked: true,
            table: None,
            rope: 0,
            output: "",
            query_lengths: ends.clone(),
            kv_lengths: ends,
            heads,
            kv_heads,
            layout: "TND",
            block_size: 0,
        }
    }

    /// One new token of each sequence.
    fn decode(batch: u64, length: u64, heads: u64, kv_heads: u64) -> Self {
        let blocks = length.div_ceil(128);
        Self {
            query: vec![batch, heads, 128],
            key: vec![(batch * blocks).max(16), kv_heads, 128, 128],
            table: Some([batch, blocks]),
            query_lengths: (1..=batch).collect(),
            kv_lengths: vec![length; usize::try_from(batch).expect("small")],
            block_size: 128,
            ..Self::prefill(batch, 1, heads, kv_heads)
        }
    }

    fn latent(batch: u64, length: u64, queries: u64) -> Self {
        let decode = Self::decode(batch, length, 128, 1);
        Self {
            query: vec![batch, 128, queries, 512],
            key: vec![decode.key[0], 1, 128, 512],
            masked: queries > 1,
            rope: 64,
            query_lengths: vec![queries; usize::try_from(batch).expect("small")],
            layout: "BNSD_NBSD",
            ..decode
        }
    }

    /// Types and shapes of the inputs.
    fn slots(&self) -> Vec<(&'static str, String)> {
        let mut slots = vec![("", String::new()); 31];
        let rope = |dims: &[u64]| joined(&[&dims[..dims.len() - 1], &[self.rope]].concat());
        slots[0] = ("DT_BF16", joined(&self.query));
        slots[1] = ("DT_BF16", joined(&self.key));
        slots[2] = slots[1].clone();
        slots[5] = ("INT64", self.query_lengths.len().to_string());
        slots[6] = ("INT64", self.kv_lengths.len().to_string());
        if self.masked {
            slots[4] = ("INT8", "2048,2048".to_owned());
        }
        if let Some(table) = &self.table {
            slots[14] = ("INT32", joined(table));
        }
        if self.rope > 0 {
            slots[24] = ("DT_BF16", rope(&self.query));
            slots[25] = ("DT_BF16", rope(&self.key));
        }
        slots
    }

    fn outputs(&self) -> String {
        let output = match self.query.as_slice() {
            [batch, heads, length, width] => joined(&[*heads, *batch, *length, *width]),
            packed => joined(packed),
        };
        format!("{output};{}", self.output)
    }

    fn record(&self) -> String {
        let (types, shapes): (Vec<&str>, Vec<String>) = self
            .slots()
            .into_iter()
            .map(|(dtype, shape)| (if dtype.is_empty() { "-" } else { dtype }, shape))
            .unzip();
        let (shapes, types) = (shapes.join(";"), types.join(";"));
        record(&format!("{FIA} 5000 {shapes} {types} {} DT_BF16;FLOAT", self.outputs()))
    }

    /// A row with its runtime values.
    fn row(&self) -> PlainRow {
        let mut row = PlainRow::new(FIA, 31);
        for (slot, (dtype, shape)) in self.slots().iter().enumerate() {
            row.set_input(slot, shape, dtype);
        }
        row.set_attribute("input_layout", self.layout);
        row.set_attribute("num_heads", &self.heads.to_string());
        row.set_attribute("num_key_value_heads", &self.kv_heads.to_string());
        row.set_attribute("sparse_mode", if self.masked { "3" } else { "0" });
        row.set_attribute("block_size", &self.block_size.to_string());
        row.set_attribute("actual_seq_lengths_values", &joined(&self.query_lengths));
        row.set_attribute("actual_seq_lengths_kv_values", &joined(&self.kv_lengths));
        row.outputs(&self.outputs(), "DT_BF16;FLOAT")
    }

    fn line(&self) -> String {
        let mut line = serde_json::json!({
            "query": self.query, "key": self.key, "value": self.key,
            "actual_seq_lengths": self.query_lengths, "actual_seq_lengths_kv": self.kv_lengths,
            "num_heads": self.heads, "num_key_value_heads": self.kv_heads, "input_layout": self.layout,
            "sparse_mode": if self.masked { 3 } else { 0 }, "block_size": self.block_size,
        });
        let rope = |dims: &[u64]| [&dims[..dims.len() - 1], &[self.rope]].concat();
        if self.masked {
            line["atten_mask"] = serde_json::json!([2048, 2048]);
        }
        if let Some(table) = &self.table {
            line["block_table"] = serde_json::json!(table);
        }
        if self.rope > 0 {
            line["query_rope"] = serde_json::json!(rope(&self.query));
            line["key_rope"] = serde_json::json!(rope(&self.key));
        }
        format!("{line}\n")
    }
}

/// Scenes of the grids: Qwen and DeepSeek, prompts and new tokens.
fn scenes() -> Vec<Call> {
    let by_rows = Call { key: vec![1056, 128, 256], ..Call::decode(32, 4224, 4, 2) };
    vec![
        Call::prefill(1, 512, 64, 8),
        Call::prefill(8, 1024, 32, 4),
        Call::prefill(2, 3592, 8, 1),
        // vLLM-Ascend passes the size of blocks without a block table.
        Call { block_size: 128, ..Call::prefill(3, 700, 16, 2) },
        Call::decode(1, 1024, 64, 8),
        Call::decode(8, 3593, 8, 1),
        by_rows,
        // A prompt that goes on behind what is cached.
        Call { query: vec![48, 4, 128], query_lengths: vec![16, 48], ..Call::decode(2, 4096, 4, 1) },
        Call::latent(1, 512, 512),
        Call::latent(2, 4099, 64),
        Call::latent(1, 1024, 1),
        Call::latent(16, 5632, 1),
    ]
}

fn attention_database(context: &Context, calls: &[Call], more: &[String]) {
    let records: Vec<String> = calls.iter().map(Call::record).chain(more.iter().cloned()).collect();
    database(context, &records);
    context.write("dump.jsonl", &calls.iter().map(Call::line).collect::<String>());
    context.run("fia-backfill --db db --dump dump.jsonl");
}

fn everything(context: &Context) -> usize {
    let scenes = scenes();
    attention_database(context, &scenes, &CASES.map(record));
    scenes.len() + CASES.len()
}

fn kernels() -> Vec<&'static str> {
    let mut kernels: Vec<&str> = CASES.iter().filter_map(|case| case.split(' ').next()).collect();
    kernels.push(FIA);
    kernels.dedup();
    kernels
}

#[test]
fn scenes_of_serving_are_replayed_on_four_devices() {
    let context = Context::new();
    let count = everything(&context).to_string();
    let ran = context.done("run --db db --host rehearsal --devices 0-3");
    let all = ran.stdout.lines().find(|line| line.trim_start().starts_with("all ")).unwrap_or_default();
    // All are `ok`; behind the counts are the intervals.
    let words: Vec<&str> = all.split_whitespace().take(3).collect();
    assert_eq!(words, ["all", &count, &count], "{}", ran.stdout);
}

#[test]
fn manifest_has_the_fills_of_the_entry() {
    let context = Context::new();
    everything(&context);
    for (kernel, argument, filled) in [
        (FIA, "atten_mask", &[r#""fill":"causal""#][..]),
        (
            FIA,
            "block_table",
            &[r#""fill":"blocks""#, r#""below":232"#, r#""used":[29,29,29,29,29,29,29,29]"#],
        ),
        (FIA, "actual_seq_lengths_kv", &[r#""value":[3593,3593,3593,3593,3593,3593,3593,3593]"#]),
        (FIA, "value", &[r#""same_as":"key""#]),
        ("KvRmsNormRopeCache", "index", &[r#""fill":"distinct""#, r#""below":65536"#]),
        ("ReshapeAndCacheNdKernel", "slot_indices", &[r#""fill":"distinct""#, r#""below":65536"#]),
        ("PagedCacheLoadNdKernel", "context_lens", &[r#""fill":"counts""#, r#""total":9000"#]),
        ("PagedCacheLoadNdKernel", "block_table", &[r#""fill":"blocks""#, r#""used":[36,36]"#]),
        ("ApplyTopKTopPCustom", "k", &[r#""fill":"listed""#, r#""items":[50,50,50,50,50,50,50,50]"#]),
        ("ScatterNdUpdate", "indices", &[r#""fill":"distinct""#, r#""below":131072"#]),
        ("LightningIndexer", "actual_seq_lengths_query", &[r#""fill":"listed""#, r#""items":[3,6,8]"#]),
        ("LightningIndexer", "actual_seq_lengths_key", &[r#""items":[4096,4096,4096]"#]),
        (
            "SparseFlashAttention",
            "sparse_indices",
            &[r#""fill":"selection""#, r#""queries":[3,6,8]"#, r#""keys":[4096,4096,4096]"#],
        ),
        ("RINGMLAPrefillBF16Kernel", "seqlen", &[r#""items":[512]"#, r#""on_host":true"#]),
        ("split_qkv_rmsnorm_rope_kernel", "positions", &[r#""fill":"index""#, r#""below":2048"#]),
    ] {
        let manifest = context.run(&["render", kernel, "--db", "db", "--manifest"]).stdout;
        let manifest: serde_json::Value = serde_json::from_str(&manifest).expect("JSON");
        let cases = manifest["cases"].list();
        let given = cases.iter().flat_map(|case| case["arguments"].list());
        let found = given.filter(|given| given["name"] == argument).any(|given| {
            let text = given.to_string();
            filled.iter().all(|wanted| text.contains(wanted))
        });
        assert!(found, "{kernel} {argument}: {manifest}");
    }
}

#[test]
fn case_outside_the_rule_is_rejected_with_reason() {
    let context = Context::new();
    let wrong = WRONG.map(|wrong| wrong.split_once(" => ").expect("a case and a reason"));
    database(&context, &wrong.map(|(case, _)| record(case)));
    let (refused, _) = planned(&context);
    for (case, text) in wrong {
        let is_it = |[kernel, _, reason]: &[String; 3]| {
            case.split(' ').next() == Some(kernel) && reason.contains(text)
        };
        assert!(refused.iter().any(is_it), "{case} {text}: {refused:#?}");
    }
}

#[test]
fn attention_is_refused_where_lengths_and_shapes_contradict_each_other() {
    let decode = Call::decode(2, 1000, 4, 1);
    let rows = [
        (
            Call { kv_lengths: vec![1000, 1025], ..decode.clone() },
            "`max(actual_seq_lengths_kv_values) <= W * L` does not hold",
        ),
        (Call { heads: 8, ..decode.clone() }, "`num_heads == N` does not hold"),
        (Call { kv_heads: 2, ..decode.clone() }, "`num_key_value_heads == K or"),
        (Call { block_size: 64, ..decode.clone() }, "`block_size == L` does not hold"),
        (
            Call { query_lengths: vec![1, 3], ..decode.clone() },
            "`last(actual_seq_lengths_values) == T` does not hold",
        ),
        (Call { query_lengths: vec![2, 2], ..decode.clone() }, "`min(diff(actual_seq_lengths_values)) > 0`"),
        (
            Call { key: vec![12, 1, 128, 128], ..decode.clone() },
            "`block_table` needs 16 different values, there are 12",
        ),
        (Call { output: "4,2", ..decode.clone() }, "output 1 is [4,2], the inputs give [2,4,1]"),
        (
            Call { layout: "BSH", ..decode.clone() },
            "packed, causal, paged BNSD and 16 more: `Runtime input_layout` is BSH, not TND",
        ),
        (
            Call { kv_lengths: vec![512, 900], ..Call::prefill(2, 512, 8, 1) },
            "last(actual_seq_lengths_kv_values) == S` does not hold",
        ),
        (
            Call { query_lengths: vec![65, 64], ..Call::latent(2, 4099, 64) },
            "max(actual_seq_lengths_values) <= S` does not hold",
        ),
    ];
    assert_rows_refused(&rows.map(|(call, reason)| (call.row(), reason)));
}

#[test]
fn attention_without_its_runtime_values_is_not_guessed() {
    let context = Context::new();
    database(&context, &[Call::decode(2, 1000, 4, 1).record()]);
    let ran = context.run("run --db db --host rehearsal --devices 0");
    let output = format!("{}{}", ran.stdout, ran.stderr);
    assert!(output.contains("unsupported: 1 case: `Runtime input_layout` is not known"), "{output}");
}

#[test]
fn the_vendors_code_accepts_every_call() {
    let Some(python) = vendor_python() else { return };
    let context = Context::new();
    everything(&context);
    for (kernel, VendorJournal { cases: lines, .. }) in vendor::check_kernels(&python, &context, &kernels()) {
        let expected = match kernel {
            // Of vllm-ascend.
            "AddRmsNormBias"
            | "ApplyTopKTopPCustom"
            | "split_qkv_rmsnorm_rope_kernel"
            | "split_qkv_rmsnorm_rope_kernel_0" => "\"not_in_torch_npu\"",
            // Names and types of the arguments were checked all the same.
            "RINGMLAPrefillBF16Kernel" | "PagedCacheLoadNdKernel" => "\"no_meta\"",
            // Its Meta kernel asks the device how it saturates.
            "FlashAttentionScore" => "aclrtSetDeviceSatMode",
            _ => "\"accepted\"",
        };
        assert!(!lines.is_empty(), "{kernel}");
        for line in lines {
            assert!(line.contains(expected), "{kernel}: {line}");
        }
    }
}
