//! Attention.

use super::*;

/// A table of attention: rows of `query | key | runtime columns | latency`, the columns being length of keys, sparse
/// mode, heads of keys, layout.
fn attention_table(rows: &[(&str, &str, &str, &str)]) -> TestDatabase {
    let database = TestDatabase::new(&[]);
    let mut text = format!(
        "{HEADER},Runtime avg_seq_len,Runtime sparse_mode,Runtime num_key_value_heads,Runtime input_layout\n"
    );
    for (query, key, columns, latency) in rows {
        text.push_str(&format!(
            "\"{query};{key};{key}\",DT_BF16;DT_BF16;DT_BF16,ND;ND;ND,\"{query}\",DT_BF16,ND,{latency},,,{columns}\n"
        ));
    }
    fs::write(database.path().join("FusedInferAttentionScore.csv"), text).expect("written");
    database
}

const ATTENTION_MAPPING: &str = "query_selection_policy: {kernel_overrides: {FusedInferAttentionScore: \
    {require_semantic_unique: true}}}\noperator_mappings:\n  \
    attn: {kernel_type: FusedInferAttentionScore, query_mode: attention_special}\n";

fn attention_query(shapes: &str, kv_length: f64) -> OpQuery {
    let attention = AttentionParameters { kv_length: Some(kv_length), ..AttentionParameters::default() };
    OpQuery { attention, ..query("attn", shapes, "BF16") }
}

#[test]
fn attention_is_found_by_shape_and_mean_length_of_keys() {
    let cache = "512,128,8,128";
    let database = attention_table(&[
        ("100,64,128", cache, "4096,3,8,TND", "50"),
        ("100,64,128", cache, "4110,3,8,TND", "52"),
        ("100,64,128", cache, "9000,3,8,TND", "90"),
        ("100,64,128", cache, "9000,3,8,TND", "95"),
        ("100,64,128", cache, "2000,0,8,TND", "20"),
        ("100,64,128", cache, "3000,3,4,TND", "30"),
        ("100,32,128", cache, "3000,3,8,TND", "31"),
        ("7,64,1,128", cache, "500,3,8,BNSD_NBSD", "5"),
        ("100,64,128", cache, "-1,3,8,TND", "1"),
        ("100,64,128", cache, ",3,8,TND", "2"),
    ]);
    let engine = database.engine(ATTENTION_MAPPING);
    let shown_at = |shapes: &str, length: f64| {
        let answer = engine.lookup(&attention_query(shapes, length)).expect("readable");
        if answer.source == AnswerSource::Measured {
            assert!((answer.confidence - 0.9).abs() < 1e-12);
        }
        shown(&answer)
    };
    let keys = |query: &str| format!("{query};{cache}");
    for (query, length, expected) in [
        ("100,64,128", 4096.0, "50 attention FusedInferAttentionScore:2"),
        ("100,64,128", 4104.5, "52 attention FusedInferAttentionScore:3"),
        ("100,64,128", 4112.0, "52 attention FusedInferAttentionScore:3"),
        ("112,64,128", 4096.0, "50 attention+padding FusedInferAttentionScore:2"),
        ("98,64,128", 4096.0, "shape_mismatch"),
        ("100,64,128", 9000.0, "ambiguous_semantic_match:FusedInferAttentionScore"),
        ("100,64,128", 2000.0, "shape_mismatch"),
        ("100,64,128", 20.0, "shape_mismatch"),
        ("100,16,128", 3000.0, "shape_mismatch"),
        ("7,64,1,128", 505.0, "5 attention FusedInferAttentionScore:9"),
        ("7,64,1,128", 516.0, "shape_mismatch"),
        ("100,8192", 4096.0, "50 attention FusedInferAttentionScore:2"),
    ] {
        assert_eq!(shown_at(&keys(query), length), expected, "{query} {length}");
    }
    let mut bare = attention_query(&keys("100,64,128"), 4096.0);
    bare.attention.sparse_mode = Some("0".to_owned());
    bare.attention.kv_length = Some(2000.0);
    assert_eq!(shown(&engine.lookup(&bare).expect("readable")), "20 attention FusedInferAttentionScore:6");
    bare.attention.kv_length = None;
    assert_eq!(
        shown(&engine.lookup(&bare).expect("readable")),
        "semantic_context_missing:target:avg_seq_len"
    );
    let by_name =
        OpQuery { op: "FusedInferAttentionScore".to_owned(), ..attention_query(&keys("100,64,128"), 4096.0) };
    assert_eq!(shown(&engine.lookup(&by_name).expect("readable")), "50 attention FusedInferAttentionScore:2");
}

#[test]
fn attention_is_interpolated_along_the_length_of_keys() {
    let cache = "512,128,8,128";
    let database = attention_table(&[
        ("100,64,128", cache, "1000,3,8,TND", "100"),
        ("100,64,128", cache, "4000,3,8,TND", "1600"),
        ("200,64,128", cache, "100,3,8,TND", "10"),
        ("200,64,128", cache, "400,3,8,TND", "20"),
        ("300,16,128", cache, "1000,3,8,TND", "10"),
        ("300,48,128", cache, "1000,3,8,TND", "30"),
    ]);
    let shown_at = |mapping: &str, shape: &str, length: f64| {
        let engine = database.engine(mapping);
        shown(&engine.lookup(&attention_query(&format!("{shape};{cache}"), length)).expect("readable"))
    };
    let rows =
        |first: u32| format!("FusedInferAttentionScore:{first} FusedInferAttentionScore:{}", first + 1);
    let line = |value: &str, first: u32| format!("{value} interpolated_1d_linear over seq {}", rows(first));
    assert_eq!(shown_at(ATTENTION_MAPPING, "100,64,128", 2000.0), line("600", 2));
    assert_eq!(shown_at(ATTENTION_MAPPING, "100,64,128", 4100.0), "shape_mismatch");
    let sqrt = format!(
        "interpolation_policy: {{kernel_overrides: {{FusedInferAttentionScore: {{axis_transform: sqrt_seq}}}}}}\n{ATTENTION_MAPPING}"
    );
    let expected = format!("15 interpolated_1d_linear_sqrt over seq {}", rows(4));
    assert_eq!(shown_at(&sqrt, "200,64,128", 225.0), expected);
    let expected = format!("20 interpolated_1d_linear over heads {}", rows(6));
    assert_eq!(shown_at(&sqrt, "300,32,128", 1000.0), expected);
}
