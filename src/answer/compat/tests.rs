//! Answers of the superseded tool, where npubench answers differently on purpose.

use std::fs;

use super::SupersededTool;
use crate::{
    answer::{
        lookup::{
            AttentionParameters, LookupAnswer, LookupEngine, OpQuery,
            tests::{HEADER, TestDatabase, query, shown},
        },
        op_mapping::OpMapping,
    },
    database::{Database, DatabaseError},
};

type NewEngine = fn(Database, Option<OpMapping>) -> Result<LookupEngine, DatabaseError>;

const BOTH: [NewEngine; 2] = [LookupEngine::new, SupersededTool::engine];

/// Looks a query up as npubench does, or as the tool does.
fn look_up(database: &TestDatabase, mapping: &str, tool: usize, query: &OpQuery) -> LookupAnswer {
    let query = if tool == 0 { query.clone() } else { SupersededTool::query(query) };
    database.engine_with(mapping, BOTH[tool]).lookup(&query).expect("readable tables")
}

/// Compares the answers of both rules to queries without more than shapes and types.
fn check_both(database: &TestDatabase, mapping: &str, cases: &[(&str, &str, &str, [&str; 2])]) {
    for (op, shapes, dtype, expected) in cases {
        let found = [0, 1].map(|tool| shown(&look_up(database, mapping, tool, &query(op, shapes, dtype))));
        assert_eq!(found, expected.map(str::to_owned), "{op} {shapes} {dtype}");
    }
}

#[test]
fn rows_are_chosen_by_their_order() {
    let row = |shapes: &str, rest: &str| format!("{shapes} | DT_BF16;DT_BF16 | | 1,1 | DT_BF16 | {rest}");
    let rows = [
        row("64,512;512,64", "30"),
        row("64,512;512,64", "10"),
        row("64,512;512,64", "20"),
        row("200,1000;1000,64", "7"),
        row("136,512;256,512", "5"),
        row("144,512;512,256", "6"),
        row("300,512;512,64", "2 | 3 | wrong_kernel"),
    ];
    let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
    let other = [
        "9,9;9,9 | FLOAT16;FLOAT16 | | 9,9 | FLOAT16 | 8",
        "9,9;9,9 | DT_BF16;DT_BF16 | | 9,9 | DT_BF16 | 4",
    ];
    let database = TestDatabase::new(&[("MatMulV3", &rows), ("BatchMatMulV2", &other)]);
    check_both(
        &database,
        "operator_mappings: {mm: {kernel_type: MatMulV3}, bmm: {kernel_type: BatchMatMulV2}}\n",
        &[
            // The median of equal rows, or the first one.
            ("mm", "64,512;512,64", "BF16", ["20 identity MatMulV3:4", "30 identity MatMulV3:2"]),
            // Padding of tokens, or of any dimension.
            ("mm", "200,1008;1008,64", "BF16", ["shape_mismatch", "7 padding MatMulV3:5"]),
            // A transposed weight hides that tokens are padded, so that an earlier row precedes the equal one.
            ("mm", "144,512;512,256", "BF16", ["6 identity MatMulV3:7", "5 transpose MatMulV3:6"]),
            // Replays with bad verdicts do not count, or they do.
            ("mm", "300,512;512,64", "BF16", ["3 identity MatMulV3:8", "2 identity MatMulV3:8"]),
            // FLOAT16 is a type of its own, or DT_BF16.
            ("bmm", "9,9;9,9", "FLOAT16", ["8 identity BatchMatMulV2:2", "4 identity BatchMatMulV2:3"]),
            // Rows with complete tiles answer for fewer tokens, or do not.
            ("mm", "60,512;512,64", "BF16", ["20 row_padding MatMulV3:4", "shape_mismatch"]),
        ],
    );
}

#[test]
fn elementwise_rows_are_scaled_before_interpolation() {
    let database = TestDatabase::new(&[(
        "Add",
        &[
            "100,64;100,64 | DT_BF16;DT_BF16 | | 100,64 | DT_BF16 | 4",
            "300,64;300,64 | DT_BF16;DT_BF16 | | 300,64 | DT_BF16 | 8",
            "200,64;200,64 | FLOAT;FLOAT | | 200,64 | FLOAT | 20",
        ],
    )]);
    check_both(
        &database,
        "operator_mappings: {add: {kernel_type: Add, query_mode: elementwise}}\n",
        &[(
            "add",
            "200,64;200,64",
            "BF16",
            ["6 interpolated_1d_linear over io_numel Add:2 Add:3", "10 elementwise+dtype_scale Add:4"],
        )],
    );
}

#[test]
fn collectives_are_fitted_to_all_sizes() {
    let database = TestDatabase::new(&[]);
    // Replays with bad verdicts count.
    let verdicts =
        "message_bytes,num_devices,Duration(us),MicroBench Verdict\n64,8,3,implausible\n64,8,5,ok\n";
    fs::write(database.path().join("hcom_allGather_.csv"), verdicts).expect("written");
    let gathered = OpQuery { ranks: Some(8), ..query("hcom_allGather_", "32", "BF16") };
    let found = [0, 1].map(|tool| shown(&look_up(&database, "", tool, &gathered)));
    assert_eq!(found, ["5 comm hcom_allGather_:3", "3 comm hcom_allGather_:2"]);
    let table = "message_bytes,num_devices,topology_tier,Duration(us)\n100,8,0,10\n100,8,0,30\n100,8,0,20\n200,8,0,60\n\
                 400,8,0,70\n";
    fs::write(database.path().join("hcom_allReduce_.csv"), table).expect("written");
    let mapping = "operator_mappings: {reduce: {kernel_type: hcom_allReduce_, category: communication}}\n";
    for (tool, exact, between) in [
        (0, "20 comm hcom_allReduce_:4", "65 comm_bracket_linear hcom_allReduce_:5 hcom_allReduce_:6"),
        (1, "10 comm hcom_allReduce_:2", "60 comm_alpha_beta hcom_allReduce_:5 hcom_allReduce_:6"),
    ] {
        let shown_of = |elements: &str| {
            let query = OpQuery { ranks: Some(8), tier: Some(0), ..query("reduce", elements, "BF16") };
            shown(&look_up(&database, mapping, tool, &query))
        };
        assert_eq!(shown_of("50"), exact);
        assert_eq!(shown_of("150"), between);
    }
}

#[test]
fn static_composites_run_one_kernel() {
    let database = TestDatabase::new(&[
        ("RmsNorm", &["64,512;512 | DT_BF16;DT_BF16 | | 64,512 | DT_BF16 | 4"]),
        ("DynamicQuant", &["64,512 | DT_BF16 | | 64,512;64 | INT8;FLOAT | 3"]),
    ]);
    check_both(
        &database,
        "operator_mappings: {norm: {composite: true, sub_kernels: [RmsNorm, DynamicQuant]}}\n",
        &[("norm", "64,512;512", "BF16", ["7 sum_of_parts", "4 sum_of_parts"])],
    );
}

#[test]
fn attention_is_at_most_16_tokens_away_at_any_length() {
    let database = TestDatabase::new(&[]);
    let row = |tokens: u32, length: &str, latency: u32| {
        format!(
            "\"{tokens},64,128;512,128,8,128\",DT_BF16;DT_BF16,ND;ND,\"{tokens},64,128\",DT_BF16,ND,{latency},,,{length},3,8,TND\n"
        )
    };
    let rows = [row(300, "500", 5), row(100, "4096", 70), row(100, "4096", 50), row(96, "4090", 1)];
    let columns = "Runtime avg_seq_len,Runtime sparse_mode,Runtime num_key_value_heads,Runtime input_layout";
    let text = format!("{HEADER},{columns}\n{}", rows.concat());
    fs::write(database.path().join("FusedInferAttentionScore.csv"), text).expect("written");
    let mapping =
        "operator_mappings: {attn: {kernel_type: FusedInferAttentionScore, query_mode: attention_special}}\n";
    let name = "FusedInferAttentionScore";
    for (tokens, length, current, superseded) in [
        // 16 tokens are more than 2 % of 516.
        (300, 516.9, "attention_mismatch".to_owned(), format!("5 attention {name}:2")),
        // The first of two equal rows.
        (100, 4096.9, format!("50 attention {name}:4"), format!("70 attention {name}:3")),
        // The fraction of a length does not count.
        (100, 4112.9, "attention_mismatch".to_owned(), format!("70 attention {name}:3")),
    ] {
        for (tool, expected) in [current, superseded].into_iter().enumerate() {
            let attention = AttentionParameters { kv_length: Some(length), ..AttentionParameters::default() };
            let query =
                OpQuery { attention, ..query("attn", &format!("{tokens},64,128;512,128,8,128"), "BF16") };
            let answer = look_up(&database, mapping, tool, &query);
            assert_eq!(shown(&answer), expected, "{tool} {tokens} {length}");
        }
    }
}
