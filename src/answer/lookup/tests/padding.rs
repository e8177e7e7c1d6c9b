//! Tokens that a framework padded.

use super::*;

const MAPPING: &str = "operator_mappings:\n  mm: {kernel_type: MatMulV2, alternate_kernel_types: [MatMulV3]}\n  \
    gmm: {kernel_type: GroupedMatmul, tc_input_count: 2}\n  norm: {kernel_type: AddRmsNorm}\n  \
    bmm: {kernel_type: BatchMatMulV2}\n  sum: {composite: true, sub_kernels: [MatMulV2, AddRmsNorm]}\n";

fn padding_database() -> TestDatabase {
    let product = |tokens: u64, latency: &str| {
        format!("{tokens},512;512,64 | DT_BF16;DT_BF16 | | {tokens},64 | DT_BF16 | {latency}")
    };
    let norm = |tokens: u64, latency: &str| {
        format!(
            "{tokens},512;{tokens},512;512 | DT_BF16;DT_BF16;DT_BF16 | | {tokens},512 | DT_BF16 | {latency}"
        )
    };
    let [second, third, norms] = [
        [product(3, "2"), product(136, "10"), product(400, "30")],
        [product(144, "12"), product(152, "14"), product(1000, "90")],
        [norm(1, "3"), norm(128, "12"), norm(300, "20")],
    ];
    let rows = |rows: &[String]| {
        rows.iter().map(|row| Box::leak(row.clone().into_boxed_str()) as &str).collect::<Vec<_>>()
    };
    TestDatabase::new(&[
        ("MatMulV2", &rows(&second)),
        ("MatMulV3", &rows(&third)),
        ("AddRmsNorm", &rows(&norms)),
        ("GroupedMatmul", &["56,512;8,512,64;8 | DT_BF16;DT_BF16;INT64 | | 56,64 | DT_BF16 | 20"]),
        ("BatchMatMulV2", &["120,64,128;120,128,64 | DT_BF16;DT_BF16 | | 120,64,64 | DT_BF16 | 20"]),
    ])
}

fn source_and_rule(engine: &LookupEngine, op: &str, shapes: &str) -> String {
    let answer = engine.lookup(&query(op, shapes, "BF16")).expect("readable tables");
    format!("{} {}", answer.source, shown(&answer))
}

#[test]
fn tokens_of_a_framework_may_be_padded_by_a_quarter() {
    let database = padding_database();
    let engine = database.engine(MAPPING);
    for (op, shapes, expected) in [
        ("mm", "144,512;512,64", "measured 12 identity MatMulV3:2"),
        // Rows on both sides precede one that fits by padding, also those of another kernel.
        (
            "mm",
            "148,512;512,64",
            "interpolated 10.909091 interpolated_1d_linear over M MatMulV2:3 MatMulV2:4",
        ),
        (
            "mm",
            "416,512;512,64",
            "interpolated 37.660377 interpolated_1d_linear over M MatMulV3:3 MatMulV3:4",
        ),
        ("mm", "1008,512;512,64", "padded 90 padding MatMulV3:4"),
        ("mm", "1024,512;512,64", "padded 90 padding MatMulV3:4"),
        ("mm", "1040,512;512,64", "miss shape_mismatch"),
        ("norm", "304,512;304,512;512", "padded 20 padding AddRmsNorm:4"),
        ("norm", "320,512;320,512;512", "padded 20 padding AddRmsNorm:4"),
        ("norm", "384,512;384,512;512", "miss shape_mismatch"),
        (
            "norm",
            "296,512;296,512;512",
            "interpolated 19.813953 interpolated_1d_linear over axis 0 AddRmsNorm:3 AddRmsNorm:4",
        ),
        // Each expert has its own tokens, and other ones are read for more of them.
        ("gmm", "64,512;8,512,64", "padded 20 padding GroupedMatmul:2"),
        ("gmm", "72,512;8,512,64", "miss shape_mismatch"),
        // The first dimension of a product of batches is no number of tokens.
        ("bmm", "128,64,128;128,128,64", "miss shape_mismatch"),
        // The sum is as good as its worst part.
        ("sum", "304,512;512,64", "padded 42.727273 sum_of_parts"),
    ] {
        let answer = source_and_rule(&engine, op, shapes);
        assert!(answer.starts_with(expected), "{op} {shapes}: {answer}, not {expected}");
    }
    let padded = engine.lookup(&query("mm", "1008,512;512,64", "BF16")).expect("readable");
    assert!(padded.confidence < 0.61, "{}", padded.confidence);
}

/// One tile of the cube unit has 16 rows, whatever number of them a plain product has.
#[test]
fn plain_products_fill_one_tile() {
    let rows = "3,512;512,64 | DT_BF16;DT_BF16 | | 3,64 | DT_BF16 | 2";
    let norm = "3,8;3,8 | DT_BF16;DT_BF16 | | 3,8 | DT_BF16 | 1";
    let database = TestDatabase::new(&[("MatMulV2", &[rows]), ("AddRmsNorm", &[norm])]);
    let engine = database.engine(MAPPING);
    assert_eq!(source_and_rule(&engine, "mm", "16,512;512,64"), "padded 2 padding MatMulV2:2");
    assert_eq!(source_and_rule(&engine, "mm", "32,512;512,64"), "miss shape_mismatch");
    assert_eq!(source_and_rule(&engine, "norm", "16,8;16,8"), "miss shape_mismatch");
    let rows = "144,512;512,64 | DT_BF16;DT_BF16 | | 144,64 | DT_BF16 | 2";
    let database = TestDatabase::new(&[("MatMulV2", &[rows])]);
    let engine = database.engine(MAPPING);
    assert_eq!(source_and_rule(&engine, "mm", "136,512;512,64"), "padded 2 row_padding MatMulV2:2");
    assert_eq!(source_and_rule(&engine, "mm", "17,512;512,64"), "miss shape_mismatch");
}

/// A profile, and a step of a model, have the tokens that run.
#[test]
fn kernels_by_their_own_names_are_not_padded() {
    let database = padding_database();
    let engine = database.engine(MAPPING);
    for (kernel, shapes, expected) in [
        ("MatMulV3", "1008,512;512,64", "miss shape_mismatch"),
        ("GroupedMatmul", "64,512;8,512,64;8", "miss shape_mismatch"),
    ] {
        assert_eq!(source_and_rule(&engine, kernel, shapes), expected, "{kernel} {shapes}");
    }
    let mut before = 0.0;
    for tokens in 1..=300 {
        for op in ["AddRmsNorm", "norm"] {
            let shapes = format!("{tokens},512;{tokens},512;512");
            let answer = engine.lookup(&query(op, &shapes, "BF16")).expect("readable");
            let latency = answer.latency.expect("between rows").0;
            assert!(latency >= before, "{op}: {tokens} tokens take {latency} us, fewer of them {before} us");
            before = latency;
        }
    }
}
