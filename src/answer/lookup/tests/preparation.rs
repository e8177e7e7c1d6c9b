//! Kernels around attention: its preparation, the selection of keys, and writes to caches.

use std::fs;

use super::{
    HEADER, TestDatabase, check,
    decomposed::{MAPPING, add_attention, lookup, parts},
    query, shown,
};
use crate::answer::lookup::{AnswerSource, AttentionParameters, OpQuery};

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

/// The inputs are the ones of an inventory: the second projection of queries is the part of one rank.
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
    let reason = "attention_sub_kernel_miss:LightningIndexer: attention_mismatch";
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
    assert_eq!(scores(&[100, 200]), "attention_mismatch");
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
    let cases = [
        // The inputs in the order of a framework: rows, cache, indices.
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
    ];
    check(&engine, &cases.map(|(shapes, types, expected)| ("scatter", shapes, types, expected)));
}

/// A kernel by its own name writes a cache of any capacity, too.
#[test]
fn kernels_that_write_caches_do_not_compare_the_capacity() {
    let norm = |tokens: u32, capacity: u32, latency: u32| {
        format!(
            "{tokens},1,1,576;512;{tokens},1,1,64;{tokens},1,1,64;{tokens};{capacity},128,1,64;{capacity},128,1,512 | \
             DT_BF16;DT_BF16;DT_BF16;DT_BF16;INT64;DT_BF16;DT_BF16 | | {capacity},128,1,64 | DT_BF16 | {latency}"
        )
    };
    let write = |tokens: u32, capacity: u32, latency: u32| {
        format!(
            "{tokens},1,128;{tokens},1,128;{capacity},128,1,128;{capacity},128,1,128;{tokens} | \
             DT_BF16;DT_BF16;DT_BF16;DT_BF16;INT32 | | {capacity},128,1,128 | DT_BF16 | {latency}"
        )
    };
    let norms = [norm(64, 5000, 7), norm(64, 400, 6), norm(128, 5000, 9)];
    let writes = [write(64, 5000, 3), write(128, 400, 5)];
    let [norms, writes] =
        [norms.as_slice(), &writes].map(|rows| rows.iter().map(String::as_str).collect::<Vec<_>>());
    let database = TestDatabase::new(&[("KvRmsNormRopeCache", &norms), ("ReshapeAndCacheNdKernel", &writes)]);
    let mapping = "operator_mappings: {cache: {kernel_type: ReshapeAndCacheNdKernel}}\n";
    let engine = database.engine(mapping);
    let norm_types = "BF16;BF16;BF16;BF16;INT64;BF16;BF16";
    let write_types = "BF16;BF16;BF16;BF16;INT32";
    let inputs = |row: String| row.split('|').next().unwrap_or_default().trim().to_owned();
    for (op, shapes, types, expected) in [
        ("KvRmsNormRopeCache", inputs(norm(64, 5000, 0)), norm_types, "7 identity KvRmsNormRopeCache:2"),
        (
            "KvRmsNormRopeCache",
            inputs(norm(64, 512, 0)),
            norm_types,
            "6 cache_pool_dim0_agnostic KvRmsNormRopeCache:3",
        ),
        (
            "KvRmsNormRopeCache",
            inputs(norm(96, 512, 0)),
            norm_types,
            "7.75 interpolated_1d_linear over tokens KvRmsNormRopeCache:3 KvRmsNormRopeCache:2 KvRmsNormRopeCache:4",
        ),
        ("KvRmsNormRopeCache", inputs(norm(200, 512, 0)), norm_types, "shape_mismatch"),
        (
            "ReshapeAndCacheNdKernel",
            inputs(write(64, 9000, 0)),
            write_types,
            "3 cache_pool_dim0_agnostic ReshapeAndCacheNdKernel:2",
        ),
        (
            "ReshapeAndCacheNdKernel",
            inputs(write(96, 9000, 0)),
            write_types,
            "4 interpolated_1d_linear over tokens ReshapeAndCacheNdKernel:2 ReshapeAndCacheNdKernel:3",
        ),
        // As a framework passes it.
        (
            "cache",
            "64,128;64,128;2,512,128,1,128;64".to_owned(),
            "BF16;BF16;BF16;INT32",
            "3 cache_pool_dim0_agnostic ReshapeAndCacheNdKernel:2",
        ),
        ("cache", "64,128;64,128;2,512,64,1,128;64".to_owned(), "BF16;BF16;BF16;INT32", "shape_mismatch"),
    ] {
        check(&engine, &[(op, &shapes, types, expected)]);
    }
}
