//! Composites whose kernels follow from the shapes, and kernels that write caches.

use std::fs;

use super::{HEADER, TestDatabase, query, shown};
use crate::lookup::{
    AnswerSource, AttentionParameters, BatchPhase, LookupAnswer, LookupEngine, OpQuery, PartAnswer,
};

const MAPPING: &str = "operator_mappings:\n  \
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
fn add_attention(database: &TestDatabase, kernel: &str, rows: &[(&str, &str, &str, &str, &str)]) {
    let mut text = format!("{HEADER},{RUNTIME}\n");
    for (inputs, types, outputs, columns, latency) in rows {
        let formats = types.split(';').map(|_| "ND").collect::<Vec<_>>().join(";");
        text.push_str(&format!(
            "\"{inputs}\",{types},{formats},\"{outputs}\",DT_BF16,ND,{latency},,,{columns}\n"
        ));
    }
    fs::write(database.path().join(format!("{kernel}.csv")), text).expect("written");
}

fn parts(answer: &LookupAnswer) -> String {
    let part = |part: &PartAnswer| format!("{} {}", part.name, shown(&part.answer));
    answer.parts.iter().map(part).collect::<Vec<_>>().join(" + ")
}

fn lookup(engine: &LookupEngine, query: &OpQuery) -> LookupAnswer {
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
    // As an inventory has it: with the weights of both phases. One query of each sequence is a decode step.
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
            "attention_sub_kernel_miss:FusedInferAttentionScore: shape_mismatch",
        ),
        (DECODE, DECODE_TYPES, 9000.0, "attention_sub_kernel_miss:FusedInferAttentionScore: shape_mismatch"),
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
    let other = "attention_sub_kernel_miss:SparseFlashAttention: shape_mismatch";
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

const PREPROCESS_INPUTS: &str = "136,5120;1,136,64;1,136,64;1536,5120;1536;3072,1536;576,5120;512";

#[test]
fn preparation_is_the_sum_of_projections_norm_and_cache() {
    let types = "DT_BF16;DT_BF16;DT_BF16;DT_BF16;INT64;DT_BF16;DT_BF16";
    let cache = |tokens: u32, blocks: u32, latency: u32| {
        format!(
            "{tokens},1,1,576;512;{tokens},1,1,64;{tokens},1,1,64;{tokens};{blocks},128,1,64;{blocks},128,1,512 | {types} | \
             | | | {latency}"
        )
    };
    let rows = [cache(136, 900, 3), cache(200, 900, 7), cache(400, 50, 11)];
    let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
    let products = [
        "136,5120;2112,5120 | DT_BF16;DT_BF16 | | 136,2112 | DT_BF16 | 8",
        "136,1536;3072,1536 | DT_BF16;DT_BF16 | | 136,3072 | DT_BF16 | 6",
        "300,5120;2112,5120 | DT_BF16;DT_BF16 | | 300,2112 | DT_BF16 | 10",
        "300,1536;3072,1536 | DT_BF16;DT_BF16 | | 300,3072 | DT_BF16 | 9",
    ];
    let norms = [
        "136,1536;1536 | DT_BF16;DT_BF16 | | 136,1536 | DT_BF16 | 2",
        "300,1536;1536 | DT_BF16;DT_BF16 | | 300,1536 | DT_BF16 | 4",
    ];
    let database =
        TestDatabase::new(&[("MatMulV2", &products), ("RmsNorm", &norms), ("KvRmsNormRopeCache", &rows)]);
    let engine = database.engine(MAPPING);
    let answer = lookup(&engine, &query("tensor_cast.mlapo.default", PREPROCESS_INPUTS, "BF16"));
    assert_eq!(
        parts(&answer),
        "MatMulV2 8 identity MatMulV2:2 + RmsNorm 2 identity RmsNorm:2 + MatMulV2 6 identity MatMulV2:3 + \
         KvRmsNormRopeCache 3 cache_pool_dim0_agnostic KvRmsNormRopeCache:2"
    );
    assert_eq!(shown(&answer), "19 sum_of_parts");
    // Between 200 and 400 tokens, whatever the capacity.
    let more = PREPROCESS_INPUTS.replace("136", "300");
    let answer = lookup(&engine, &query("tensor_cast.mlapo.default", &more, "BF16"));
    let between = "9 interpolated_1d_linear over tokens KvRmsNormRopeCache:3 KvRmsNormRopeCache:4";
    assert_eq!(shown(&answer.parts[3].answer), between);
    for inputs in
        ["136,5120", "136,5120;1536,5120;1536;576,5120;512", &PREPROCESS_INPUTS.replace(";512", ";600")]
    {
        let answer = lookup(&engine, &query("tensor_cast.mlapo.default", inputs, "BF16"));
        assert_eq!(shown(&answer), "decompose_failed", "{inputs}");
    }
}

const QUANTIZED: &str = "tensor_cast.mlapo_quant.default";
const QUANTIZED_TYPES: &str = "BF16;BF16;BF16;INT8;BF16;INT8;INT8;BF16";

/// As an inventory has it: the second projection of queries is the part of a rank.
fn quantized_query(tokens: u64) -> OpQuery {
    let inputs = format!("{tokens},7168;1,{tokens},64;1,{tokens},64;1536,7168;1536;384,1536;576,7168;512");
    let outputs = super::tensors(&format!("{tokens},16,192;{tokens},512;{tokens},64"), "BF16");
    OpQuery { outputs, ..query(QUANTIZED, &inputs, QUANTIZED_TYPES) }
}

#[test]
fn quantized_preparation_is_visible_under_sequence_parallelism() {
    let types = "DT_BF16;DT_BF16;DT_BF16;DT_BF16;INT64;DT_BF16;DT_BF16";
    let cache = format!("64,1,1,576;512;64,1,1,64;64,1,1,64;64;9,128,1,64;9,128,1,512 | {types} | | | | 3");
    let database = TestDatabase::new(&[
        (
            "AscendQuantV2",
            &[
                "64,7168;7168;7168 | DT_BF16;DT_BF16;DT_BF16 | | 64,7168 | INT8 | 1",
                "64,1536;1536;1536 | DT_BF16;DT_BF16;DT_BF16 | | 64,1536 | INT8 | 2",
            ],
        ),
        (
            "QuantBatchMatmulV3",
            &[
                "64,7168;2112,7168;2112 | INT8;INT8;INT64 | | 64,2112 | DT_BF16 | 10",
                "64,1536;3072,1536;3072 | INT8;INT8;INT64 | | 64,3072 | DT_BF16 | 20",
            ],
        ),
        ("RmsNorm", &["64,1536;1536 | DT_BF16;DT_BF16 | | 64,1536 | DT_BF16 | 4"]),
        ("KvRmsNormRopeCache", &[&cache]),
    ]);
    let parallel = OpQuery { is_sequence_parallel: true, tp_size: Some(4), ..quantized_query(256) };
    let answer = lookup(&database.engine(MAPPING), &parallel);
    let names: Vec<&str> = answer.parts.iter().map(|part| part.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "AscendQuantV2",
            "QuantBatchMatmulV3",
            "RmsNorm",
            "AscendQuantV2",
            "QuantBatchMatmulV3",
            "KvRmsNormRopeCache"
        ]
    );
    assert_eq!(shown(&answer), "40 sum_of_parts");
    // All kernels are required.
    fs::remove_file(database.path().join("RmsNorm.csv")).expect("removed");
    let reason = shown(&lookup(&database.engine(MAPPING), &parallel));
    assert!(reason.starts_with("sub_kernel_miss:RmsNorm: csv_not_found"), "{reason}");
    let odd = OpQuery { tp_size: Some(3), ..parallel };
    assert_eq!(shown(&lookup(&database.engine(MAPPING), &odd)), "decompose_failed");
}

#[test]
fn quantized_preparation_is_one_kernel_otherwise() {
    let database = TestDatabase::new(&[]);
    let row = |tokens: u64, mode: &str, latency: u64| {
        let shapes = format!(
            "{tokens},7168;1,224,2112,32;2112;1536;1536;1,48,3072,32;3072;512;{tokens},64;{tokens},64;16,128,512;\
             1,128,1,512;1,128,1,64;{tokens};1;1;2112;1;1;3072;1;1"
        );
        let types = "DT_BF16;INT8;FLOAT;DT_BF16;DT_BF16;INT8;FLOAT;DT_BF16;DT_BF16;DT_BF16;DT_BF16;DT_BF16;DT_BF16;\
                     INT32;DT_BF16;INT8;INT32;DT_BF16;INT8;INT32;DT_BF16;DT_BF16";
        let formats: Vec<&str> =
            (0..22).map(|slot| if slot == 1 || slot == 5 { "FRACTAL_NZ" } else { "ND" }).collect();
        format!(
            "\"{shapes}\",{types},{},\"{tokens},16,512\",DT_BF16,ND,{latency},,,{mode},True\n",
            formats.join(";")
        )
    };
    let rows = [row(8, "krope_ctkv", 40), row(16, "krope_ctkv", 60), row(12, "nzcache", 1)];
    let text = format!("{HEADER},Runtime cache_mode,Runtime enable_inner_out\n{}", rows.concat());
    fs::write(database.path().join("mla_preprocess_0_mix_aic.csv"), text).expect("written");
    let engine = database.engine(MAPPING);
    let answer = lookup(&engine, &quantized_query(8));
    assert_eq!(shown(&answer), "40 cache_pool_dim0_agnostic mla_preprocess_0_mix_aic:2");
    assert!((answer.confidence - 0.9).abs() < 1e-12);
    let answer = lookup(&engine, &quantized_query(12));
    let rows = "mla_preprocess_0_mix_aic:2 mla_preprocess_0_mix_aic:3";
    assert_eq!(shown(&answer), format!("50 interpolated_1d_linear over tokens {rows}"));
    assert!((answer.confidence - 0.75).abs() < 1e-12 && answer.source == AnswerSource::Interpolated);
    for (query, expected) in [
        (quantized_query(4), "sub_kernel_miss:mla_preprocess_0_mix_aic: shape_mismatch"),
        (quantized_query(1025), "decompose_failed"),
        (OpQuery { outputs: Vec::new(), ..quantized_query(8) }, "semantic_context_missing:target:outputs"),
    ] {
        assert_eq!(shown(&lookup(&engine, &query)), expected);
    }
}

#[test]
fn keys_are_selected_by_projections_norm_and_scores() {
    let bf16 = "DT_BF16;DT_BF16";
    let product = |shapes: &str, latency: u32| format!("{shapes} | {bf16} | | | | {latency}");
    let products =
        [product("8,6144;128,6144", 1), product("8,6144;32,6144", 2), product("8,2048;4096,2048", 3)];
    let products: Vec<&str> = products.iter().map(String::as_str).collect();
    let database = TestDatabase::new(&[
        ("MatMulV2", &products),
        ("LayerNormV3", &["8,128;128;128 | FLOAT;FLOAT;FLOAT | | 8,128 | FLOAT | 4"]),
        ("Cast", &["8,128 | DT_BF16 | | 8,128 | FLOAT | 5"]),
        (
            "ScatterNdUpdate",
            &[
                "65536,128;8,1;8,128 | DT_BF16;INT32;DT_BF16 | | 65536,128 | DT_BF16 | 6",
                "32768,128;8,1;8,128 | DT_BF16;INT32;DT_BF16 | | 32768,128 | DT_BF16 | 9",
            ],
        ),
    ]);
    let types = "DT_BF16;DT_BF16;DT_BF16;INT32;INT32;INT32";
    let inputs = "8,32,128;500,128,1,128;8,32;8;8;8,64";
    let columns = "4096,3,1,TND,2048,128,\"1,2,3,4,5,6,7,8\",\"4096,4096,4096,4096,4096,4096,4096,4096\"";
    add_attention(&database, "LightningIndexer", &[(inputs, types, "8,1,2048", columns, "70")]);
    let engine = database.engine(MAPPING);
    let shapes = "8,6144;8,2048;1,8,64;1,8,64;500,128,128;8;8,64;8;4096,2048;128,6144;32,6144;128";
    let types = "BF16;BF16;BF16;BF16;BF16;INT64;INT32;INT64;BF16;BF16;BF16;BF16";
    let attention =
        AttentionParameters { kv_lengths: vec![4096; 8], topk: Some(2048), ..AttentionParameters::default() };
    let decode = OpQuery { attention, ..query("tensor_cast.dsa_indexer.default", shapes, types) };
    let answer = lookup(&engine, &decode);
    // The capacity of the cache is 64000 rows, so that the row with 65536 answers.
    assert_eq!(shown(&answer), format!("{} sum_of_parts", 1 + 4 + 5 + 5 + 2 + 3 + 6 + 70));
    let mut other = decode.clone();
    other.attention.kv_lengths[0] = 4095;
    let reason = "attention_sub_kernel_miss:LightningIndexer: shape_mismatch";
    assert_eq!(shown(&lookup(&engine, &other)), reason);
    let mut unknown = decode;
    unknown.attention.topk = None;
    assert_eq!(shown(&lookup(&engine, &unknown)), "semantic_context_missing:target:topk");
    unknown.outputs = super::tensors("8,2048", "INT32");
    assert_eq!(shown(&lookup(&engine, &unknown)), shown(&answer));
}

#[test]
fn scores_are_interpolated_along_tokens_and_keys_of_one_phase() {
    let database = TestDatabase::new(&[]);
    let columns = |queries: &str, keys: &str| format!(",3,1,TND,2048,128,\"{queries}\",\"{keys}\"");
    let (small, large, prefill) =
        (columns("1,2", "1000,3000"), columns("1,2", "5000,7000"), columns("2", "2"));
    let types = "DT_BF16;DT_BF16;DT_BF16;INT32;INT32;INT32";
    let inputs = "2,32,128;500,128,1,128;2,32;2;2;2,64";
    add_attention(
        &database,
        "LightningIndexer",
        &[
            (inputs, types, "2,1,2048", &small, "20"),
            (inputs, types, "2,1,2048", &large, "60"),
            (inputs, types, "2,1,2048", &prefill, "1"),
        ],
    );
    let engine = database.engine(MAPPING);
    let scores = |keys: &[u64]| {
        let attention = AttentionParameters {
            kv_lengths: keys.to_vec(),
            topk: Some(2048),
            ..AttentionParameters::default()
        };
        let query = OpQuery { attention, ..query("scores", "2,32,128;500,128,1,128", "BF16") };
        shown(&lookup(&engine, &query))
    };
    assert_eq!(scores(&[1000, 3000]), "20 attention LightningIndexer:2");
    let line = "interpolated_1d_linear over effective_kv_len LightningIndexer:2 LightningIndexer:3";
    assert_eq!(scores(&[3000, 3000]), format!("30 {line}"));
    assert_eq!(scores(&[100, 200]), "shape_mismatch");
    let by_name = OpQuery {
        attention: AttentionParameters {
            kv_length: Some(2000.0),
            topk: Some(2048),
            ..AttentionParameters::default()
        },
        ..query("LightningIndexer", "2,32,128;500,128,1,128", "BF16")
    };
    assert_eq!(shown(&lookup(&engine, &by_name)), "20 attention LightningIndexer:2");
}

#[test]
fn writes_to_a_cache_do_not_depend_on_its_capacity() {
    let row = |capacity: u32, tokens: u32, latency: u32| {
        format!(
            "{capacity},576;{tokens},1;{tokens},576 | DT_BF16;INT32;DT_BF16 | | {capacity},576 | DT_BF16 | {latency}"
        )
    };
    let rows = [row(2048, 64, 4), row(4096, 64, 5), row(2048, 128, 8), row(2048, 256, 12)];
    let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
    let database = TestDatabase::new(&[("ScatterNdUpdate", &rows)]);
    let engine = database.engine(MAPPING);
    for (shapes, types, expected) in [
        // As a framework passes it: rows, cache, indices.
        ("64,576;2048,576;64", "BF16;BF16;INT32", "4 cache_pool_dim0_agnostic ScatterNdUpdate:2"),
        ("64,576;32,128,576;64,1", "BF16;BF16;INT32", "5 cache_pool_dim0_agnostic ScatterNdUpdate:3"),
        ("8,8,576;2048,576;64", "BF16;BF16;INT32", "4 cache_pool_dim0_agnostic ScatterNdUpdate:2"),
        ("2048,576;64,1;64,576", "BF16;INT32;BF16", "4 cache_pool_dim0_agnostic ScatterNdUpdate:2"),
        (
            "192,576;9999,576;192",
            "BF16;BF16;INT32",
            "10 interpolated_1d_linear over tokens ScatterNdUpdate:4 ScatterNdUpdate:5",
        ),
        ("512,576;2048,576;512", "BF16;BF16;INT32", "shape_mismatch"),
        ("64,512;2048,512;64", "BF16;BF16;INT32", "shape_mismatch"),
        ("64,576;2048,576;32", "BF16;BF16;INT32", "decompose_failed"),
        ("64,576;2048,576;64", "BF16;BF16;INT64", "shape_mismatch"),
        ("64,576;2048,576", "BF16", "input_count_mismatch"),
        ("64,576;2048,576;64", "", "semantic_context_missing:target:dtype"),
    ] {
        assert_eq!(shown(&lookup(&engine, &query("scatter", shapes, types))), expected, "{shapes} {types}");
    }
}
