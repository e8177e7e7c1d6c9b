//! Composites whose kernels follow from the shapes: attention in latent space.

use std::fs;

use super::{HEADER, TestDatabase, query, shown};
use crate::answer::lookup::{
    AnswerSource, AttentionParameters, BatchPhase, LookupAnswer, LookupEngine, OpQuery, PartAnswer,
};

pub(super) const MAPPING: &str = "operator_mappings:\n  \
    tensor_cast.multihead_latent_attention.default: {composite: true, decomposer: true}\n  \
    tensor_cast.multihead_latent_attention_quant.default: {composite: true, decomposer: true}\n  \
    tensor_cast.mla_sparse_attention.default: {composite: true, decomposer: true, decomposer_options: {\
    dsa_cp_layout: {attention_heads_already_global: true, tail_width_partition: tp}, \
    prefill_tail_transpose: {requires_sequence_parallel: true, kernel_type: Transpose}}}\n  \
    tensor_cast.mlapo.default: {composite: true, decomposer: true, decomposer_options: {\
    kv_cache_query: {mode: pool_dim0_agnostic, block_size: 128}}}\n  \
    tensor_cast.mlapo_quant.default: {composite: true, decomposer: true, require_all_sub_kernels: true, \
    decomposer_options: {visible_kernel_regime: {requires_sequence_parallel: true, otherwise: opaque_kernel_query}, \
    projection_token_partition: tp, reconstruct_q_heads_by_tp: false, \
    kv_cache_query: {mode: pool_dim0_agnostic, block_size: 128}, opaque_kernel: {\
    kernel_type: mla_preprocess_0_mix_aic, query_mode: mlapo_preprocess, block_size: 128, cache_mode: krope_ctkv, \
    quant_mode: per_tensor_quant_asymm, enable_inner_out: true, weight_quantized: true, weight_format: FRACTAL_NZ}}}\n  \
    tensor_cast.dsa_indexer.default: {composite: true, decomposer: true, primary_kernel_type: LightningIndexer, \
    alternate_kernel_types: [LightningIndexerVllm]}\n  \
    scatter: {kernel_type: ScatterNdUpdate, query_mode: scatter_nd_update_mla}\n  \
    scores: {kernel_type: LightningIndexer, query_mode: attention_lightning_indexer}\n";

const LATENT: &str = "tensor_cast.multihead_latent_attention.default";
const RUNTIME: &str = "Runtime avg_seq_len,Runtime sparse_mode,Runtime num_key_value_heads,Runtime input_layout,\
    Runtime topk,Runtime block_size,Runtime actual_seq_lengths_values,Runtime actual_seq_lengths_kv_values";

/// Appends a table whose rows are `inputs | types | outputs | runtime columns | latency`.
pub(super) fn add_attention(database: &TestDatabase, kernel: &str, rows: &[(&str, &str, &str, &str, &str)]) {
    let mut text = format!("{HEADER},{RUNTIME}\n");
    for (inputs, types, outputs, columns, latency) in rows {
        let formats = types.split(';').map(|_| "ND").collect::<Vec<_>>().join(";");
        text.push_str(&format!(
            "\"{inputs}\",{types},{formats},\"{outputs}\",DT_BF16,ND,{latency},,,{columns}\n"
        ));
    }
    fs::write(database.path().join(format!("{kernel}.csv")), text).expect("written");
}

pub(super) fn parts(answer: &LookupAnswer) -> String {
    let part = |part: &PartAnswer| format!("{} {}", part.name, shown(&part.answer));
    answer.parts.iter().map(part).collect::<Vec<_>>().join(" + ")
}

pub(super) fn lookup(engine: &LookupEngine, query: &OpQuery) -> LookupAnswer {
    engine.lookup(query).expect("readable tables")
}

/// Latent attention of 16 sequences with 16 heads, and a prefill of 136 tokens.
fn latent_database(first: &str) -> TestDatabase {
    let database = TestDatabase::new(&[
        (first, &["16,16,128;16,128,512 | DT_BF16;DT_BF16 | | 16,16,512 | DT_BF16 | 5"]),
        ("TransposeBatchMatMul", &["16,16,512;16,512,128 | DT_BF16;DT_BF16 | | 16,16,128 | DT_BF16 | 4"]),
        ("MatMulV2", &["136,512;4096,512 | DT_BF16;DT_BF16 | | 136,4096 | DT_BF16 | 8"]),
    ]);
    let types = "DT_BF16;DT_BF16;DT_BF16";
    add_attention(
        &database,
        "FusedInferAttentionScore",
        &[
            ("16,16,1,512;256,1,16,512;256,1,16,512", types, "16,16,1,512", "4096,0,1,BNSD_NBSD,,,,", "50"),
            ("136,16,128;136,16,128;136,16,128", types, "136,16,128", "68,3,16,TND,,,,", "30"),
        ],
    );
    database
}

fn latent_query(inputs: &str, types: &str, kv_length: f64) -> OpQuery {
    let attention = AttentionParameters { kv_length: Some(kv_length), ..AttentionParameters::default() };
    OpQuery { attention, ..query(LATENT, inputs, types) }
}

const DECODE: &str = "16,16,192;256,16,576;16,16;16,128,512;16,512,128";
const DECODE_TYPES: &str = "BF16;BF16;INT32;BF16;BF16";
const PREFILL: &str = "136,16,192;256,16,576;2,16;512,4096";
const PREFILL_TYPES: &str = "BF16;BF16;INT32;BF16";

#[test]
fn latent_attention_decodes_in_the_space_of_the_cache() {
    let database = latent_database("BatchMatMulV2");
    let engine = database.engine(MAPPING);
    let answer = lookup(&engine, &latent_query(DECODE, DECODE_TYPES, 4096.0));
    assert_eq!(shown(&answer), "59 sum_of_parts");
    assert_eq!(
        parts(&answer),
        "BatchMatMulV2 5 identity BatchMatMulV2:2 + FusedInferAttentionScore 50 attention FusedInferAttentionScore:2 + \
         TransposeBatchMatMul 4 identity TransposeBatchMatMul:2"
    );
    assert!((answer.confidence - 0.8).abs() < 1e-12 && answer.source == AnswerSource::Measured);
    // The inputs are the ones of an inventory, with the weights of both phases. One query of each sequence is a decode
    // step.
    let both = format!("{DECODE};512,4096");
    let of_inventory = latent_query(&both, "BF16;BF16;INT64;BF16;BF16;BF16", 4096.0);
    assert_eq!(shown(&lookup(&engine, &of_inventory)), "59 sum_of_parts");
    let fallback = latent_database("BatchMatMulNd");
    let answer = lookup(&fallback.engine(MAPPING), &latent_query(DECODE, DECODE_TYPES, 4096.0));
    assert_eq!(shown(&answer), "59 sum_of_parts");
    assert_eq!(answer.parts[0].name, "BatchMatMulNd");
}

#[test]
fn latent_attention_projects_keys_in_prefill() {
    let database = latent_database("BatchMatMulV2");
    let engine = database.engine(MAPPING);
    let prefill = latent_query(PREFILL, PREFILL_TYPES, 68.0);
    let answer = lookup(&engine, &prefill);
    assert_eq!(
        parts(&answer),
        "MatMulV2 8 transpose MatMulV2:2 + FusedInferAttentionScore 30 attention FusedInferAttentionScore:3"
    );
    let both = "136,16,192;256,16,576;2,16;16,128,512;16,512,128;512,4096";
    let open = latent_query(both, "BF16;BF16;INT32;BF16;BF16;BF16", 68.0);
    assert_eq!(shown(&lookup(&engine, &open)), "semantic_context_missing:target:phase");
    for change in [
        |attention: &mut AttentionParameters| attention.phase = Some(BatchPhase::Prefill),
        |attention: &mut AttentionParameters| attention.kv_lengths = vec![68, 68],
    ] {
        let mut stated = open.clone();
        change(&mut stated.attention);
        assert_eq!(shown(&lookup(&engine, &stated)), "38 sum_of_parts");
    }
    let mut mixed = open;
    mixed.attention.phase = Some(BatchPhase::Mixed);
    assert_eq!(shown(&lookup(&engine, &mixed)), "decompose_failed");
}

#[test]
fn latent_attention_without_its_attention_has_no_answer() {
    let database = latent_database("BatchMatMulV2");
    let engine = database.engine(MAPPING);
    for (inputs, types, length, expected) in [
        (
            "99,16,192;256,16,576;99,16;16,128,512;16,512,128",
            DECODE_TYPES,
            4096.0,
            "attention_sub_kernel_miss:FusedInferAttentionScore: attention_mismatch",
        ),
        (
            DECODE,
            DECODE_TYPES,
            9000.0,
            "attention_sub_kernel_miss:FusedInferAttentionScore: attention_mismatch",
        ),
        // Several queries of each sequence.
        ("16,16,192;256,16,576;8,16;16,128,512;16,512,128", DECODE_TYPES, 4096.0, "decompose_failed"),
        ("16,16,192;256,16,576;16,16", "BF16;BF16;INT32", 4096.0, "decompose_failed"),
        ("136,5120", "BF16", 68.0, "decompose_failed"),
        (DECODE, "", 4096.0, "decompose_failed"),
    ] {
        let answer = lookup(&engine, &latent_query(inputs, types, length));
        assert_eq!(shown(&answer), expected, "{inputs} {length}");
    }
    let unknown =
        OpQuery { attention: AttentionParameters::default(), ..latent_query(DECODE, DECODE_TYPES, 1.0) };
    assert_eq!(shown(&lookup(&engine, &unknown)), "semantic_context_missing:target:avg_seq_len");
    // Other kernels may be missing: the sum is partial.
    fs::remove_file(database.path().join("TransposeBatchMatMul.csv")).expect("removed");
    let partial = lookup(&database.engine(MAPPING), &latent_query(DECODE, DECODE_TYPES, 4096.0));
    assert_eq!((partial.source, shown(&partial).as_str()), (AnswerSource::Partial, "55 sum_of_parts"));
    assert!((partial.confidence - 2.0 / 3.0).abs() < 1e-12);
    let reason = partial.miss.expect("a reason").to_string();
    assert!(reason.starts_with("sub_kernel_miss:TransposeBatchMatMul: csv_not_found"), "{reason}");
}

#[test]
fn interpolated_kernels_lower_the_confidence_of_a_composite() {
    let database = latent_database("BatchMatMulV2");
    add_attention(
        &database,
        "FusedInferAttentionScore",
        &[
            ("16,16,1,512;256,1,16,512", "DT_BF16;DT_BF16", "16,16,1,512", "1000,0,1,BNSD_NBSD,,,,", "100"),
            ("16,16,1,512;256,1,16,512", "DT_BF16;DT_BF16", "16,16,1,512", "4000,0,1,BNSD_NBSD,,,,", "1600"),
        ],
    );
    let answer = lookup(&database.engine(MAPPING), &latent_query(DECODE, DECODE_TYPES, 2000.0));
    assert_eq!((answer.source, shown(&answer).as_str()), (AnswerSource::Interpolated, "609 sum_of_parts"));
    assert!((answer.confidence - 0.5).abs() < 1e-12);
}

const SPARSE: &str = "tensor_cast.mla_sparse_attention.default";

/// A decode step of 16 sequences, and the part of one of four ranks of a prefill of 1024 tokens.
fn sparse_database() -> TestDatabase {
    let database = TestDatabase::new(&[
        (
            "BatchMatMulV2",
            &[
                "16,16,128;16,128,512 | DT_BF16;DT_BF16 | | 16,16,512 | DT_BF16 | 5",
                "64,256,128;64,128,512 | DT_BF16;DT_BF16 | | 64,256,512 | DT_BF16 | 7",
            ],
        ),
        (
            "TransposeBatchMatMul",
            &[
                "16,16,512;16,512,128 | DT_BF16;DT_BF16 | | 16,16,128 | DT_BF16 | 4",
                "64,256,512;64,512,128 | DT_BF16;DT_BF16 | | 256,64,128 | DT_BF16 | 6",
            ],
        ),
        ("Transpose", &["256,4,2048;3 | DT_BF16;INT64 | | 4,256,2048 | DT_BF16 | 3"]),
    ]);
    let columns = |rest: &str| format!("{rest},3,1,TND,2048,16,,");
    let (short, long, listed) = (columns("4096"), columns("8192"), "256,3,1,TND,2048,16,256,256".to_owned());
    add_attention(
        &database,
        "SparseFlashAttention",
        &[
            ("16,16,512", "DT_BF16", "16,16,512", &short, "30"),
            ("32,16,512", "DT_BF16", "32,16,512", &long, "60"),
            ("256,64,512", "DT_BF16", "256,64,512", &listed, "90"),
        ],
    );
    database
}

#[test]
fn sparse_attention_needs_the_number_of_selected_keys() {
    let database = sparse_database();
    let engine = database.engine(MAPPING);
    let decode = |topk: Option<u64>| {
        let attention =
            AttentionParameters { kv_lengths: vec![4096; 16], topk, ..AttentionParameters::default() };
        OpQuery { attention, ..query(SPARSE, DECODE, DECODE_TYPES) }
    };
    let answer = lookup(&engine, &decode(Some(2048)));
    assert_eq!(shown(&answer), "39 sum_of_parts");
    assert_eq!(shown(&answer.parts[1].answer), "30 attention SparseFlashAttention:2");
    assert_eq!(shown(&lookup(&engine, &decode(None))), "semantic_context_missing:target:topk");
    let other = "attention_sub_kernel_miss:SparseFlashAttention: attention_mismatch";
    assert_eq!(shown(&lookup(&engine, &decode(Some(1024)))), other);
    // The indices say how many keys are selected; other blocks are other rows.
    let mut with_indices = decode(None);
    with_indices.inputs.extend(super::tensors("16,2048", "INT32"));
    assert_eq!(shown(&lookup(&engine, &with_indices)), "39 sum_of_parts");
    with_indices.inputs[1].dims[1] = 128;
    assert_eq!(shown(&lookup(&engine, &with_indices)), other);
}

#[test]
fn ranks_share_the_tokens_of_a_sparse_prefill() {
    let database = sparse_database();
    let engine = database.engine(MAPPING);
    let attention =
        AttentionParameters { kv_lengths: vec![1024], topk: Some(2048), ..AttentionParameters::default() };
    let inputs = "1024,64,192;256,16,576;1,64;64,128,512;64,512,128";
    let parallel = OpQuery {
        attention,
        is_sequence_parallel: true,
        tp_size: Some(4),
        ..query(SPARSE, inputs, DECODE_TYPES)
    };
    let answer = lookup(&engine, &parallel);
    assert_eq!(
        parts(&answer),
        "BatchMatMulV2 7 identity BatchMatMulV2:3 + SparseFlashAttention 90 attention SparseFlashAttention:4 + \
         TransposeBatchMatMul 6 identity TransposeBatchMatMul:3 + Transpose 3 identity Transpose:2"
    );
    let unknown = OpQuery { tp_size: None, ..parallel.clone() };
    assert_eq!(shown(&lookup(&engine, &unknown)), "semantic_context_missing:target:tp_size");
    // Two sequences whose queries are not known.
    let mut unknown = parallel;
    unknown.attention.kv_lengths = vec![1024, 4096];
    unknown.attention.phase = Some(BatchPhase::Prefill);
    let expected = "semantic_context_missing:target:actual_seq_lengths_values";
    assert_eq!(shown(&lookup(&engine, &unknown)), expected);
}
