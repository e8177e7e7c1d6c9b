//! Attention.

use super::*;
use crate::{
    database::row_cases::row_cases,
    kernel::{Case, KernelName},
};

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
        ("98,64,128", 4096.0, "attention_mismatch"),
        ("100,64,128", 9000.0, "ambiguous_semantic_match:FusedInferAttentionScore"),
        ("100,64,128", 2000.0, "attention_mismatch"),
        ("100,64,128", 20.0, "attention_mismatch"),
        ("100,16,128", 3000.0, "attention_mismatch"),
        ("7,64,1,128", 505.0, "5 attention FusedInferAttentionScore:9"),
        ("7,64,1,128", 516.0, "attention_mismatch"),
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
    assert_eq!(shown_at(ATTENTION_MAPPING, "100,64,128", 4100.0), "attention_mismatch");
    let sqrt = format!(
        "interpolation_policy: {{kernel_overrides: {{FusedInferAttentionScore: {{axis_transform: sqrt_seq}}}}}}\n{ATTENTION_MAPPING}"
    );
    let expected = format!("15 interpolated_1d_linear_sqrt over seq {}", rows(4));
    assert_eq!(shown_at(&sqrt, "200,64,128", 225.0), expected);
    let expected = format!("20 interpolated_1d_linear over heads {}", rows(6));
    assert_eq!(shown_at(&sqrt, "300,32,128", 1000.0), expected);
}

fn decode_query(batch: u64, kv_length: f64, heads: &str) -> OpQuery {
    let query = attention_query(&format!("{batch},{heads};512,128,8,128"), kv_length);
    OpQuery { attention: AttentionParameters { batch: Some(batch), ..query.attention }, ..query }
}

/// Lists of sequences; in decode each has one query.
fn lists(columns: &str, queries: &[u64], keys: &[u64]) -> String {
    let text = |numbers: &[u64]| numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    format!("{columns},\"{}\",\"{}\"", text(queries), text(keys))
}

/// A table with lists of sequences: rows of tokens, queries of each sequence, keys of each sequence, latency.
fn sequence_table(rows: &[(u64, Vec<u64>, Vec<u64>, u64)]) -> TestDatabase {
    let database = TestDatabase::new(&[]);
    let columns = "Runtime sparse_mode,Runtime num_key_value_heads,Runtime input_layout,\
                   Runtime actual_seq_lengths_values,Runtime actual_seq_lengths_kv_values";
    let mut text = format!("{HEADER},{columns}\n");
    for (tokens, queries, keys, latency) in rows {
        let ends: Vec<u64> = queries
            .iter()
            .scan(0, |sum, length| {
                *sum += length;
                Some(*sum)
            })
            .collect();
        let cells = lists("3,8,TND", &ends, keys);
        let shapes = format!("{tokens},64,128;512,8,128,128;512,8,128,128;;;;;;;;;;;;{},512", keys.len());
        let types = shapes.split(';').map(|_| "DT_BF16").collect::<Vec<_>>().join(";");
        let formats = shapes.split(';').map(|_| "ND").collect::<Vec<_>>().join(";");
        text.push_str(&format!(
            "\"{shapes}\",{types},{formats},\"{tokens},64,128\",DT_BF16,ND,{latency},,,{cells}\n"
        ));
    }
    fs::write(database.path().join("FusedInferAttentionScore.csv"), text).expect("written");
    database
}

/// The number of sequences of a decode step is no rounded length.
#[test]
fn sequences_of_a_decode_step_are_not_padded() {
    let keys = |count: usize| vec![4096; count];
    let database = sequence_table(&[(1, vec![1], keys(1), 10), (128, vec![1; 128], keys(128), 900)]);
    let engine = database.engine(ATTENTION_MAPPING);
    let mut before = 0.0;
    for batch in [1, 2, 48, 63, 64, 65, 127, 128] {
        let answer = engine.lookup(&decode_query(batch, 4096.0, "64,128")).expect("readable");
        let latency = answer.latency.expect("between rows").0;
        let is_row = batch == 1 || batch == 128;
        assert_eq!(answer.source.to_string(), if is_row { "measured" } else { "interpolated" }, "{batch}");
        assert!(latency > before, "{batch}: {latency}");
        before = latency;
        let other = engine.lookup(&decode_query(batch, 4096.0, "32,128")).expect("readable");
        assert_eq!(shown(&other), "attention_mismatch");
    }
    let answer = engine.lookup(&decode_query(64, 4096.0, "64,128")).expect("readable");
    assert!(shown(&answer).starts_with("451.496063 interpolated_1d_linear over batch"), "{}", shown(&answer));
    // If the number of sequences is unknown, 64 tokens are not padded to 128.
    let unknown = attention_query("64,64,128;512,128,8,128", 4096.0);
    assert_eq!(shown(&engine.lookup(&unknown).expect("readable")), "attention_mismatch");
    let database = sequence_table(&[(64, vec![1; 64], keys(64), 900)]);
    let reversed = database.engine(ATTENTION_MAPPING);
    for batch in [1, 60, 63] {
        let answer = reversed.lookup(&decode_query(batch, 4096.0, "64,128")).expect("readable");
        assert_eq!(shown(&answer), "attention_mismatch", "{batch}");
    }
}

#[test]
fn a_prefill_may_be_padded_by_a_quarter() {
    let cache = "512,128,8,128";
    let database = attention_table(&[
        ("100,64,128", cache, "4096,3,8,TND", "50"),
        ("20,64,128", cache, "2048,3,8,TND", "20"),
        ("300,64,128", cache, "1000,3,8,TND", "30"),
        ("300,64,128", cache, "3000,3,8,TND", "70"),
        ("310,64,128", cache, "2000,3,8,TND", "90"),
    ]);
    let engine = database.engine(ATTENTION_MAPPING);
    for (tokens, length, expected) in [
        (100, 4096.0, "measured 50 attention FusedInferAttentionScore:2"),
        (112, 4096.0, "padded 50 attention+padding FusedInferAttentionScore:2"),
        (128, 4096.0, "miss attention_mismatch"),
        (32, 2048.0, "miss attention_mismatch"),
        (19, 2048.0, "miss attention_mismatch"),
        // An interpolation between rows with as many tokens precedes a padded row.
        (
            300,
            2000.0,
            "interpolated 50 interpolated_1d_linear over seq FusedInferAttentionScore:4 FusedInferAttentionScore:5",
        ),
        (
            304,
            1500.0,
            "padded 40 interpolated_1d_linear+padding over seq FusedInferAttentionScore:4 FusedInferAttentionScore:5",
        ),
    ] {
        let answer =
            engine.lookup(&attention_query(&format!("{tokens},64,128;{cache}"), length)).expect("readable");
        assert_eq!(format!("{} {}", answer.source, shown(&answer)), expected, "{tokens} {length}");
        if answer.source.to_string() == "padded" {
            assert!(answer.confidence < 0.61, "{}", answer.confidence);
        }
    }
    let database = sequence_table(&[(100, vec![100], vec![100], 50)]);
    let one = database.engine(ATTENTION_MAPPING);
    let of_sequences = |count: u64| {
        let query = attention_query("112,64,128;512,8,128,128", 100.0);
        let query =
            OpQuery { attention: AttentionParameters { batch: Some(count), ..query.attention }, ..query };
        shown(&one.lookup(&query).expect("readable"))
    };
    assert_eq!(of_sequences(2), "attention_mismatch");
}

/// A cache is recorded with the heads in front of the tokens of a block; frameworks have them behind.
#[test]
fn keys_of_a_kernel_are_read_as_those_of_rows() {
    let database = attention_table(&[("64,16,128", "2048,2,128,128", "4096,3,2,TND", "31")]);
    let engine = database.engine(ATTENTION_MAPPING);
    let lookup = |op: &str, keys: &str| {
        let query = OpQuery { op: op.to_owned(), ..attention_query(&format!("64,16,128;{keys}"), 4096.0) };
        shown(&engine.lookup(&query).expect("readable"))
    };
    let found = "31 attention FusedInferAttentionScore:2";
    assert_eq!(lookup("FusedInferAttentionScore", "2048,2,128,128"), found);
    assert_eq!(lookup("FusedInferAttentionScore", "2048,128,256"), found);
    assert_eq!(lookup("FusedInferAttentionScore", "2048,4,128,128"), "attention_mismatch");
    assert_eq!(lookup("attn", "2048,128,2,128"), found);
    assert_eq!(lookup("attn", "2048,2,128,128"), "attention_mismatch");
}

#[test]
fn attention_without_a_latency_is_not_measured() {
    let cache = "512,128,8,128";
    let database = attention_table(&[
        ("100,64,128", cache, "4096,3,8,TND", ""),
        ("100,64,128", cache, "9000,3,8,TND", "90"),
    ]);
    let engine = database.engine(ATTENTION_MAPPING);
    let at = |length: f64| {
        shown(&engine.lookup(&attention_query(&format!("100,64,128;{cache}"), length)).expect("readable"))
    };
    assert_eq!(at(4096.0), "not_measured");
    assert_eq!(at(5000.0), "attention_mismatch");
    assert_eq!(at(9000.0), "90 attention FusedInferAttentionScore:3");
}

/// Rotary parts that are inputs of their own are work of attention. A query by queries, keys and values leaves them open.
#[test]
fn rotary_parts_are_those_of_the_row() {
    let database = TestDatabase::new(&[]);
    let empty = ";".repeat(21);
    let record = |rope: &str| match rope {
        "" => "64,16,128;64,16,128;64,16,128;;2048,2048;2;2".to_owned(),
        rope => format!("64,16,128;64,16,128;64,16,128{empty};64,16,{rope};64,16,{rope}"),
    };
    let row = |rope: &str, latency: u32| {
        let shapes = record(rope);
        let types: Vec<&str> = shapes
            .split(';')
            .map(|shape| if shape.is_empty() { "DT_UNDEFINED" } else { "DT_BF16" })
            .collect();
        let formats = types.iter().map(|_| "ND").collect::<Vec<_>>().join(";");
        let types = types.join(";");
        format!("\"{shapes}\",{types},{formats},\"64,16,128\",DT_BF16,ND,{latency},,,32,3,16,TND\n")
    };
    let header = format!(
        "{HEADER},Runtime avg_seq_len,Runtime sparse_mode,Runtime num_key_value_heads,Runtime input_layout\n"
    );
    let table = [header, row("", 10), row("64", 20)].concat();
    fs::write(database.path().join("FusedInferAttentionScore.csv"), table).expect("written");
    let engine = database.engine(ATTENTION_MAPPING);
    let answered = |shapes: &str| {
        let inputs = shapes.split(';').map(|shape| QueryTensor {
            dims: shape.split(',').filter_map(|dim| dim.parse().ok()).collect(),
            dtype: (!shape.is_empty()).then_some(Dtype::Bf16),
            format: None,
        });
        let attention = AttentionParameters {
            kv_length: Some(32.0),
            layout: Some("TND".to_owned()),
            ..AttentionParameters::default()
        };
        let op = "FusedInferAttentionScore".to_owned();
        let query = OpQuery { op, inputs: inputs.collect(), attention, ..OpQuery::default() };
        shown(&engine.lookup(&query).expect("readable"))
    };
    assert_eq!(answered(&record("")), "10 attention FusedInferAttentionScore:2");
    assert_eq!(answered(&record("64")), "20 attention FusedInferAttentionScore:3");
    assert_eq!(answered(&record("128")), "attention_mismatch");
    assert_eq!(
        answered("64,16,128;64,16,128;64,16,128"),
        "ambiguous_semantic_match:FusedInferAttentionScore"
    );
}

/// One token for each sequence in front of the heads or behind them.
#[test]
fn queries_of_four_dimensions_have_their_heads_by_layout_and_keys() {
    let database = attention_table(&[
        ("16,1,8,128", "16,2048,2,128", "2048,3,2,BSND", "42"),
        ("16,8,1,128", "16,2,2048,128", "2048,3,2,BNSD_NBSD", "43"),
        ("16,8,1,128", "16,2,2048,128", "4096,3,2,BNSD", "44"),
        ("16,3,8,128", "16,2048,2,128", "2048,3,2,BSND", "45"),
        ("16,4,8,128", "16,2048,2,128", "2048,3,2,BSND", "46"),
        ("16,4,8,128", "16,2,2048,128", "2048,3,2,BNSD", "47"),
    ]);
    let engine = database.engine(ATTENTION_MAPPING);
    let shown_with = |shapes: &str, length: f64, layout: Option<&str>, op: &str| {
        let mut query = attention_query(shapes, length);
        query.op = op.to_owned();
        query.attention.layout = layout.map(str::to_owned);
        shown(&engine.lookup(&query).expect("readable"))
    };
    let [bsnd, bnsd] = ["16,1,8,128;16,2048,2,128", "16,8,1,128;16,2048,2,128"];
    for (shapes, length, layout, expected) in [
        (bsnd, 2048.0, None, "42 attention FusedInferAttentionScore:2"),
        (bsnd, 2048.0, Some("BSND"), "42 attention FusedInferAttentionScore:2"),
        (bnsd, 2048.0, None, "43 attention FusedInferAttentionScore:3"),
        (bnsd, 4096.0, Some("BNSD"), "44 attention FusedInferAttentionScore:4"),
        // Several tokens of one head each are no single token of several heads.
        (bsnd, 2048.0, Some("BNSD"), "semantic_context_missing:target:q_shape"),
        (bnsd, 2048.0, Some("BSND"), "semantic_context_missing:target:q_shape"),
        ("16,1,7,128;16,1,2048,128", 2048.0, None, "semantic_context_missing:target:q_shape"),
        ("16,1,8,128;16,1,2,128", 2048.0, None, "semantic_context_missing:target:q_shape"),
        // Several tokens of each sequence: 8 heads share 2 of the keys, and 3 cannot.
        ("16,3,8,128;16,2048,2,128", 2048.0, None, "45 attention FusedInferAttentionScore:5"),
        ("16,3,8,128;16,2048,2,128", 2048.0, Some("BNSD"), "semantic_context_missing:target:q_shape"),
        ("16,4,8,128;16,2048,2,128", 2048.0, None, "semantic_context_missing:target:input_layout"),
        ("16,4,8,128;16,2048,2,128", 2048.0, Some("BSND"), "46 attention FusedInferAttentionScore:6"),
        ("16,4,8,128;16,2048,2,128", 2048.0, Some("BNSD"), "47 attention FusedInferAttentionScore:7"),
        ("16,1,8,128;16,2048,4,128", 2048.0, None, "attention_mismatch"),
        // One head of keys in blocks.
        ("16,1,8,128;512,1,128,128", 2048.0, Some("BSND"), "attention_mismatch"),
        ("16,1,8,128;512,1,128,128", 2048.0, None, "attention_mismatch"),
    ] {
        assert_eq!(shown_with(shapes, length, layout, "attn"), expected, "{shapes} {layout:?}");
    }
    // A profile records the keys of this layout in the same order.
    let of_kernel = shown_with(bsnd, 2048.0, None, "FusedInferAttentionScore");
    assert_eq!(of_kernel, "42 attention FusedInferAttentionScore:2");
}

/// Packed tokens of several heads, and sequences whose rows have all heads, are both of three dimensions.
#[test]
fn rows_of_all_heads_are_not_read_as_packed_tokens() {
    let database = attention_table(&[
        ("64,16,128", "2048,128,128", "4096,3,1,TND", "50"),
        ("64,1,1024", "64,2048,256", "2048,3,2,BSH", "51"),
        ("16,64,128", "2048,16,128", "64,3,16,NTD", "52"),
    ]);
    let engine = database.engine("operator_mappings: {}");
    let shown_with = |shapes: &str, length: f64, change: &dyn Fn(&mut AttentionParameters)| {
        let mut query = attention_query(shapes, length);
        query.op = "FusedInferAttentionScore".to_owned();
        change(&mut query.attention);
        let answer = engine.lookup(&query).expect("readable");
        answer.miss.as_ref().map_or_else(|| shown(&answer), ToString::to_string)
    };
    let ambiguous = "64,16,128;2048,128,128";
    let unknown = "semantic_context_missing:target:input_layout";
    let found = |latency: u32, line: u32| format!("{latency} attention FusedInferAttentionScore:{line}");
    assert_eq!(shown_with(ambiguous, 4096.0, &|_| {}), unknown);
    assert_eq!(shown_with(ambiguous, 4096.0, &|own| own.layout = Some("TND".to_owned())), found(50, 2));
    assert_eq!(shown_with(ambiguous, 4096.0, &|own| own.batch = Some(4)), found(50, 2));
    assert_eq!(shown_with(ambiguous, 4096.0, &|own| own.kv_lengths = vec![4096; 4]), found(50, 2));
    // 64 sequences of 16 tokens with one head.
    let rows = |own: &mut AttentionParameters| (own.layout, own.kv_heads) = (Some("BSH".to_owned()), Some(1));
    let refused = shown_with(ambiguous, 4096.0, &rows);
    assert!(refused.starts_with("attention_mismatch: ") && refused.contains("instead of 1024"), "{refused}");
    // A dimension of 1024 is no head, and the heads of the keys give its dimension.
    let rows = "64,1,1024;64,2048,256";
    assert_eq!(shown_with(rows, 2048.0, &|_| {}), "semantic_context_missing:target:kv_heads");
    assert_eq!(shown_with(rows, 2048.0, &|own| own.kv_heads = Some(2)), found(51, 3));
    // Heads in front of the tokens.
    let heads_first = |own: &mut AttentionParameters| own.layout = Some("NTD".to_owned());
    assert_eq!(shown_with("16,64,128;2048,16,128", 64.0, &heads_first), found(52, 4));
}

/// The question of a recorded call keeps the slots of its rotary parts and lengths.
#[test]
fn a_recorded_call_is_answered_by_its_own_row() {
    let database = TestDatabase::new(&[]);
    let header = format!(
        "{HEADER},Runtime avg_seq_len,Runtime sparse_mode,Runtime num_key_value_heads,Runtime input_layout\n"
    );
    let record = |slots: &[(usize, &str)], output: &str, latency: u32, columns: &str| {
        let mut shapes = [""; 31];
        slots.iter().for_each(|(slot, shape)| shapes[*slot] = shape);
        let types: Vec<&str> = (shapes.iter().enumerate())
            .map(|(slot, shape)| match (slot, *shape) {
                (_, "") => "DT_UNDEFINED",
                (5 | 6, _) => "INT64",
                (14, _) => "INT32",
                _ => "DT_BF16",
            })
            .collect();
        let formats = types.iter().map(|_| "ND").collect::<Vec<_>>().join(";");
        format!(
            "\"{}\",{},{formats},\"{output}\",DT_BF16,ND,{latency},,,{columns}\n",
            shapes.join(";"),
            types.join(";")
        )
    };
    let latent = [
        (0, "4,16,1,512"),
        (1, "1135,1,128,512"),
        (2, "1135,1,128,512"),
        (6, "4"),
        (14, "4,1135"),
        (24, "4,16,1,64"),
        (25, "1135,1,128,64"),
    ];
    let packed =
        [(0, "64,16,128"), (1, "2048,128,128"), (2, "2048,128,128"), (5, "64"), (6, "64"), (14, "64,32")];
    let table = [
        header,
        record(&latent, "16,4,1,512", 10, "4096,0,1,BNSD_NBSD"),
        record(&packed, "64,16,128", 20, "4096,3,1,"),
        record(&[&packed[..3], &packed[4..]].concat(), "64,16,128", 30, "2048,3,1,"),
    ];
    fs::write(database.path().join("FusedInferAttentionScore.csv"), table.concat()).expect("written");
    let engine = database.engine(ATTENTION_MAPPING);
    let kernel = KernelName::new("FusedInferAttentionScore").expect("a name");
    let table = Database::open(database.path()).and_then(|database| database.kernel_csv(&kernel));
    let rows = row_cases(&kernel, &table.expect("a table")).expect("readable");
    let answer = |case: &Case| shown(&engine.lookup(&LookupEngine::query_of_case(case)).expect("readable"));
    let answers: Vec<String> = rows.into_iter().map(|row| answer(&row.case.expect("a case"))).collect();
    // If the lengths of the queries are not listed, 64 sequences of 16 tokens have the same shapes.
    let expected = [
        "10 attention FusedInferAttentionScore:2",
        "20 attention FusedInferAttentionScore:3",
        "semantic_context_missing:target:input_layout",
    ];
    assert_eq!(answers, expected);
}

/// A miss names the attributes in which the nearest row deviates, with both values.
#[test]
fn attention_misses_name_what_deviates() {
    let cache = "512,128,8,128";
    let database = attention_table(&[
        ("100,64,128", cache, "4096,3,8,TND", "50"),
        ("100,64,128", cache, "9000,3,8,TND", "90"),
        ("64,16,1,128", cache, "500,0,8,BNSD_NBSD", "5"),
    ]);
    let engine = database.engine(ATTENTION_MAPPING);
    let reason = |query: &OpQuery| {
        let answer = engine.lookup(query).expect("readable");
        answer.miss.expect("a miss").to_string()
    };
    let at = |shapes: &str, length: f64| attention_query(&format!("{shapes};{cache}"), length);
    for (query, expected) in [
        (at("100,64,128", 3000.0), "line 2, has kv_length 4096 instead of 3000"),
        (at("100,32,128", 9000.0), "line 3, has heads 64 instead of 32"),
        (at("64,16,1,128", 500.0), "line 4, has sparse_mode 0 instead of 3"),
        (at("40,64,128", 4096.0), "line 2, has tokens 100 instead of 40"),
    ] {
        assert_eq!(reason(&query), format!("attention_mismatch: the nearest row, in {expected}"));
    }
    let mut other = at("100,64,128", 4096.0);
    other.attention.layout = Some("BSND".to_owned());
    other.attention.kv_heads = Some(2);
    assert_eq!(
        reason(&other),
        "attention_mismatch: the nearest row, in line 2, has kv_heads 8 instead of 2, layout TND instead of BSND"
    );
    let float = OpQuery { inputs: tensors(&format!("100,64,128;{cache}"), "FLOAT16"), ..at("", 4096.0) };
    assert!(reason(&float).ends_with("has dtype DT_BF16 instead of FLOAT16"), "{}", reason(&float));
}
