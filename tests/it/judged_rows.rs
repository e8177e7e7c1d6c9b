//! Judgement of rows: each row for itself, wherever it stands, and the verdicts of rows that the entry lacks and of rows that
//! contradict themselves.

use serde_json::Value;

use crate::{
    context::Context,
    plain_rows::{PlainRow, write_database},
};

/// Shapes and types of a row's inputs and outputs, and its runtime columns.
pub(crate) type RowText<'a> = (&'static str, [&'a str; 4], &'a [(&'a str, &'a str)]);

pub(crate) fn row_of(
    (kernel, [shapes, dtypes, outputs, output_dtypes], attributes): &RowText<'_>,
) -> PlainRow {
    let mut row = PlainRow::new(kernel, shapes.split(';').count());
    for (slot, (shape, dtype)) in shapes.split(';').zip(dtypes.split(';')).enumerate() {
        row.set_input(slot, shape, dtype);
    }
    attributes.iter().for_each(|(column, cell)| row.set_attribute(column, cell));
    row.outputs(outputs, output_dtypes)
}

/// Returns verdict and reason of each case that a plan does not launch, and the number of launched cases.
pub(crate) fn planned_verdicts(context: &Context) -> (Vec<(String, String)>, usize) {
    let ran = context.run(&["plan", "--db", "db", "--devices", "0", "--format", "json"]);
    let lines: Vec<Value> =
        ran.stdout.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let refused = lines.iter().filter(|line| line.get("not_launched").is_some());
    let refused: Vec<_> = refused.map(|line| (text(&line["verdict"]), text(&line["not_launched"]))).collect();
    let launched = lines.len() - refused.len();
    (refused, launched)
}

pub(crate) const INDEXER: &str = "LightningIndexer";
pub(crate) const INDEXER_CELLS: [&str; 4] = [
    "1,32,128;1766,128,1,128;1,32;1;1;1,1584",
    "DT_BF16;DT_BF16;DT_BF16;INT32;INT32;INT32",
    "1,1,2048",
    "INT32",
];
const SPARSE: &str = "SparseFlashAttention";
const SPARSE_CELLS: [&str; 4] = [
    "1,16,512;1766,128,1,512;1766,128,1,512;1,1,2048;1,1584;1;1;1,16,64;1766,128,1,64",
    "DT_BF16;DT_BF16;DT_BF16;INT32;INT32;INT32;INT32;DT_BF16;DT_BF16",
    "1,16,512",
    "DT_BF16",
];
pub(crate) const FUSED: &str = "FusedInferAttentionScore";
/// A decode step of two sequences in blocks of 128.
pub(crate) const FUSED_CELLS: [&str; 4] = [
    "2,4,128;9,128,128;9,128,128;;2048,2048;2;2;;;;;;;;2,8",
    "DT_BF16;DT_BF16;DT_BF16;;INT8;INT64;INT64;;;;;;;;INT32",
    "2,4,128;",
    "DT_BF16;FLOAT",
];
pub(crate) const LENGTHS: [(&str, &str); 2] =
    [("actual_seq_lengths_values", "1"), ("actual_seq_lengths_kv_values", "5769")];
pub(crate) const FUSED_ARGUMENTS: [(&str, &str); 7] = [
    ("actual_seq_lengths_values", "1,2"),
    ("actual_seq_lengths_kv_values", "300,400"),
    ("input_layout", "TND"),
    ("sparse_mode", "3"),
    ("num_heads", "4"),
    ("num_key_value_heads", "1"),
    ("block_size", "128"),
];

const SHARED_BLOCKS: [(&str, &str); 7] = [
    FUSED_ARGUMENTS[0],
    ("actual_seq_lengths_kv_values", "900,1000"),
    FUSED_ARGUMENTS[2],
    FUSED_ARGUMENTS[3],
    FUSED_ARGUMENTS[4],
    FUSED_ARGUMENTS[5],
    FUSED_ARGUMENTS[6],
];
/// The same step in a layout that does not pack sequences.
const UNPACKED_CELLS: [&str; 4] = [
    "2,4,1,128;9,1,128,128;9,1,128,128;;;;2;;;;;;;;2,8",
    "DT_BF16;DT_BF16;DT_BF16;;;;INT64;;;;;;;;INT32",
    "2,4,1,128;",
    "DT_BF16;FLOAT",
];
pub(crate) const NO_KEYS: [(&str, &str); 6] = [
    ("actual_seq_lengths_kv_values", "300,0"),
    ("input_layout", "BNSD"),
    ("sparse_mode", "0"),
    FUSED_ARGUMENTS[4],
    FUSED_ARGUMENTS[5],
    FUSED_ARGUMENTS[6],
];

const PACKED_NO_KEYS: [(&str, &str); 7] = [
    FUSED_ARGUMENTS[0],
    ("actual_seq_lengths_kv_values", "300,0"),
    FUSED_ARGUMENTS[2],
    FUSED_ARGUMENTS[3],
    FUSED_ARGUMENTS[4],
    FUSED_ARGUMENTS[5],
    FUSED_ARGUMENTS[6],
];

/// A decode step of two sequences of latent attention.
const LATENT_CELLS: [&str; 4] = [
    "2,4,1,512;9,1,128,512;9,1,128,512;;;2;2;;;;;;;;2,8;;;;;;;;;;2,4,1,64;9,1,128,64",
    "DT_BF16;DT_BF16;DT_BF16;;;INT64;INT64;;;;;;;;INT32;;;;;;;;;;DT_BF16;DT_BF16",
    "4,2,1,512;",
    "DT_BF16;FLOAT",
];
const LATENT_NO_QUERIES: [(&str, &str); 7] = [
    ("actual_seq_lengths_values", "1,0"),
    FUSED_ARGUMENTS[1],
    ("input_layout", "BNSD_NBSD"),
    ("sparse_mode", "0"),
    FUSED_ARGUMENTS[4],
    FUSED_ARGUMENTS[5],
    FUSED_ARGUMENTS[6],
];

/// A correct row, one that states what follows from it, and one that contradicts it, in every order.
#[test]
fn row_with_a_contradicting_derived_value_neither_passes_nor_changes_other_rows() {
    for (kernel, cells, recorded, right, wrong) in [
        (INDEXER, INDEXER_CELLS, &LENGTHS[..], ("avg_seq_len", "5769.0"), ("avg_seq_len", "5000")),
        (
            SPARSE,
            SPARSE_CELLS,
            &LENGTHS[..],
            ("block_table_valid_blocks", "[46]"),
            ("block_table_valid_blocks", "45"),
        ),
        (FUSED, FUSED_CELLS, &FUSED_ARGUMENTS[..], ("avg_seq_len", "350"), ("avg_seq_len", "99")),
        (
            FUSED,
            FUSED_CELLS,
            &FUSED_ARGUMENTS[..],
            ("block_table_valid_blocks", "3,4"),
            ("block_table_valid_blocks", "3,3"),
        ),
    ] {
        let with = |more: Option<(&'static str, &'static str)>| {
            let attributes: Vec<_> = recorded.iter().copied().chain(more).collect();
            row_of(&(kernel, cells, &attributes))
        };
        let rows = [with(None), with(Some(right)), with(Some(wrong))];
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
            let context = Context::new();
            write_database(&context, &order.map(|row| rows[row].clone()));
            let (refused, launched) = planned_verdicts(&context);
            assert_eq!(launched, 1, "{kernel} {wrong:?} {order:?}: {refused:?}");
            let [(verdict, reason)] = refused.as_slice() else { panic!("{kernel} {wrong:?}: {refused:?}") };
            assert_eq!(verdict, "invalid_args", "{reason}");
            assert!(reason.contains(wrong.0), "{reason}");
            let ran = context.run(&["run", "--db", "db", "--host", "rehearsal", "--devices", "0"]);
            assert_eq!(ran.code, 1, "{}{}", ran.stdout, ran.stderr);
            let rows = context.rows("db", kernel);
            let verdicts: Vec<&str> = rows.iter().map(|row| row["MicroBench Verdict"].as_str()).collect();
            let expected = order.map(|row| if row == 2 { "invalid_args" } else { "ok" });
            assert_eq!(verdicts, expected, "{kernel} {wrong:?}");
            let wrong = order.iter().position(|row| *row == 2).expect("it is there");
            assert_eq!(rows[wrong].get("Average Duration(us)").map(String::as_str).unwrap_or_default(), "");
        }
    }
}

#[test]
fn outputs_and_host_slots_that_contradict_a_row_make_another_case() {
    let types = "DT_BF16;INT64;INT64;INT64";
    for (kernel, right, wrong) in [
        ("Index", ["100,64;1;2;7", types, "7,64", "DT_BF16"], ["100,64;1;9;8", types, "7,64", "DT_BF16"]),
        ("Index", ["100,64;1;2;7", types, "7,64", "DT_BF16"], ["100,64;1;3;7", types, "7,64", "DT_BF16"]),
        ("Slice", ["64,128;2;2", types, "64,32", "DT_BF16"], ["64,128;5;5", types, "64,32", "DT_BF16"]),
        ("Transpose", ["32,5;2", types, "5,32", "DT_BF16"], ["32,5;3", types, "5,32", "DT_BF16"]),
    ] {
        for order in [[right, wrong], [wrong, right]] {
            let context = Context::new();
            write_database(&context, &order.map(|cells| row_of(&(kernel, cells, &[]))));
            let (refused, launched) = planned_verdicts(&context);
            assert_eq!((launched, refused.len()), (1, 1), "{kernel} {wrong:?}: {refused:?}");
            assert_eq!(refused[0].0, "invalid_args", "{kernel} {wrong:?}: {refused:?}");
        }
    }
}

/// A row without the arguments that its shapes imply is the case of a row with them, which alone can be replayed.
#[test]
fn complete_row_is_replayed_behind_an_incomplete_one_of_its_case() {
    let bare = row_of(&(FUSED, FUSED_CELLS, &FUSED_ARGUMENTS[..2]));
    let complete = row_of(&(FUSED, FUSED_CELLS, &FUSED_ARGUMENTS));
    for rows in [[bare.clone(), complete.clone()], [complete, bare]] {
        let context = Context::new();
        write_database(&context, &rows);
        assert_eq!(planned_verdicts(&context), (Vec::new(), 1));
    }
}

#[test]
fn truth_values_and_numbers_are_one_case_in_any_spelling() {
    let cells = [
        "8,1,1,576;512;8,1,1,64;8,1,1,64;8;16,128,1,64;16,128,1,512",
        "DT_BF16;DT_BF16;DT_BF16;DT_BF16;INT64;DT_BF16;DT_BF16",
        "16,128,1,64;16,128,1,512;8,1,1,64;8,1,1,512",
        "DT_BF16;DT_BF16;DT_BF16;DT_BF16",
    ];
    let kernel = "KvRmsNormRopeCache";
    let spelled = |text| row_of(&(kernel, cells, &[("is_output_kv", text)]));
    let context = Context::new();
    write_database(&context, &["false", "False", "FALSE", "0", "true", "True", "1"].map(spelled));
    assert_eq!(planned_verdicts(&context), (Vec::new(), 2));
    let lengths = |keys| {
        row_of(&(
            INDEXER,
            INDEXER_CELLS,
            &[("actual_seq_lengths_values", "1"), ("actual_seq_lengths_kv_values", keys)],
        ))
    };
    let context = Context::new();
    write_database(&context, &["128", "128.0", "[0128]"].map(lengths));
    assert_eq!(planned_verdicts(&context), (Vec::new(), 1));
    let with_default = |column| {
        let attributes: Vec<_> = FUSED_ARGUMENTS.into_iter().chain([(column, "2147483647")]).collect();
        row_of(&(FUSED, FUSED_CELLS, &attributes))
    };
    let context = Context::new();
    write_database(&context, &["pre_tokens", "next_tokens"].map(with_default));
    assert_eq!(planned_verdicts(&context).0, Vec::new(), "defaults of the call");
    // torch_npu has two names for one layout of the caches.
    let context = Context::new();
    write_database(
        &context,
        &["PA", "PA_BNSD"].map(|mode| row_of(&(kernel, cells, &[("cache_mode", mode)]))),
    );
    assert_eq!(planned_verdicts(&context), (Vec::new(), 1));
}

pub(crate) const CACHE_CELLS: [&str; 4] = [
    "8,1,1,576;512;8,1,1,64;8,1,1,64;8;16,128,1,64;16,128,1,512",
    "DT_BF16;DT_BF16;DT_BF16;DT_BF16;INT64;DT_BF16;DT_BF16",
    "16,128,1,64;16,128,1,512;8,1,1,64;8,1,1,512",
    "DT_BF16;DT_BF16;DT_BF16;DT_BF16",
];

/// Rows with the mean in two columns, and with shapes of inputs in columns of their own.
#[test]
fn columns_that_repeat_others_must_agree_with_them() {
    let row = |columns: &[(&str, &str)], old_mean: &str| {
        let mut row = row_of(&(FUSED, FUSED_CELLS, &FUSED_ARGUMENTS));
        columns.iter().for_each(|(column, cell)| row.set_attribute(column, cell));
        if !old_mean.is_empty() {
            row.set_column("avg_seq_len", old_mean);
        }
        row
    };
    let right = [
        row(&[], ""),
        row(&[("avg_seq_len", "350")], "350.0"),
        row(
            &[
                ("actual_seq_lengths_shape", "2"),
                ("actual_seq_lengths_kv_shape", "[2]"),
                ("block_table_shape", "2, 8"),
            ],
            "350",
        ),
    ];
    let context = Context::new();
    write_database(&context, &right);
    assert_eq!(planned_verdicts(&context), (Vec::new(), 1), "they are one case");
    for (columns, old_mean, expected) in [
        (&[("avg_seq_len", "350")][..], "99", "`Runtime avg_seq_len` is 350 and 99"),
        (&[("avg_seq_len", "99")], "350", "`Runtime avg_seq_len` is 350 and 99"),
        (
            &[("block_table_shape", "3,8")],
            "",
            "`Runtime block_table_shape` is 3,8, which is not the shape of the recorded",
        ),
        (&[("actual_seq_lengths_kv_shape", "7")], "", "`Runtime actual_seq_lengths_kv_shape` is 7"),
    ] {
        let context = Context::new();
        write_database(&context, &[right[0].clone(), row(columns, old_mean)]);
        let (refused, launched) = planned_verdicts(&context);
        let [(verdict, reason)] = refused.as_slice() else { panic!("{columns:?}: {refused:?}") };
        assert_eq!((launched, verdict.as_str()), (1, "invalid_args"), "{reason}");
        assert!(reason.contains(expected), "{reason}");
    }
    let mut indexer = row_of(&(INDEXER, INDEXER_CELLS, &LENGTHS));
    indexer.set_attribute("block_table_shape", "1,1584");
    let mut wrong = indexer.clone();
    wrong.set_attribute("block_table_shape", "1,1583");
    let context = Context::new();
    write_database(&context, &[indexer, wrong]);
    let (refused, launched) = planned_verdicts(&context);
    assert_eq!((launched, refused.len()), (1, 1), "{refused:?}");
    assert_eq!(refused[0].0, "invalid_args");
}

/// Calls that torch_npu takes with other arguments than those of the forms, and the reason why they are not replayed.
const NOT_COVERED: &[(RowText<'static>, &str)] = &[
    (
        (INDEXER, INDEXER_CELLS, &[LENGTHS[0], LENGTHS[1], ("sparse_mode", "0")]),
        "sparse_mode` is 0, the entry has only",
    ),
    (
        (INDEXER, INDEXER_CELLS, &[LENGTHS[0], LENGTHS[1], ("cache_layout", "PA_NZ")]),
        "cache_layout` is PA_NZ",
    ),
    ((INDEXER, INDEXER_CELLS, &[LENGTHS[0], LENGTHS[1], ("input_layout", "BSND")]), "input_layout` is BSND"),
    (("KvRmsNormRopeCache", CACHE_CELLS, &[("cache_mode", "PA_BLK_BNSD")]), "cache_mode` is PA_BLK_BNSD"),
    (
        (SPARSE, SPARSE_CELLS, &[LENGTHS[0], LENGTHS[1], ("sparse_indices_pattern", "sorted")]),
        "pattern` is sorted",
    ),
    (
        (SPARSE, [SPARSE_CELLS[0], SPARSE_CELLS[1], "1,16,512;16,1;16,1", "DT_BF16;FLOAT;FLOAT"], &LENGTHS),
        "output 1 is [16,1], the inputs give [1,1,16]",
    ),
    (
        (
            "AddRmsNorm",
            ["8,512;8,512;512", "DT_BF16;DT_BF16;FLOAT", "8,512;8,1;8,512", "DT_BF16;FLOAT;DT_BF16"],
            &[],
        ),
        "the kernel takes one type",
    ),
    (("RmsNorm", ["0,512;512", "DT_BF16;DT_BF16", "0,512;0,1", "DT_BF16;FLOAT"], &[]), "no elements"),
    (
        ("TransposeBatchMatMul", ["4,16,64;16,64,512", "DT_BF16;DT_BF16", "4,16,512", "DT_BF16"], &[]),
        "`K % 128 == 0` does not hold",
    ),
    // 16 blocks in a pool of 9: the sequences share some. A sequence without keys pads a captured batch.
    ((FUSED, FUSED_CELLS, &SHARED_BLOCKS), "different values"),
    ((FUSED, UNPACKED_CELLS, &NO_KEYS), "`min(actual_seq_lengths_kv_values) > 0` does not hold"),
    ((FUSED, LATENT_CELLS, &LATENT_NO_QUERIES), "`min(actual_seq_lengths_values) > 0` does not hold"),
    ((FUSED, FUSED_CELLS, &PACKED_NO_KEYS), "`all_le(diff(actual_seq_lengths_values), "),
    (
        (
            "QuantBatchMatmulV3",
            ["4,16,128;128,256;256;64", "INT8;INT8;FLOAT;FLOAT", "4,16,256", "DT_BF16"],
            &[],
        ),
        "a scale for each row of all products of a batch",
    ),
    (
        ("BatchMatMulV2", ["1,16,1;4,1,256", "DT_BF16;DT_BF16", "4,16,256", "DT_BF16"], &[]),
        "`K > 1` does not hold",
    ),
    (
        ("GatherV2", ["3,2,4,64;16;1", "DT_BF16;INT64;INT64", "3,2,4,16", "DT_BF16"], &[]),
        "the forms have parts along the first three dimensions",
    ),
    (
        ("ScatterUpdate", ["8,128;16;16,128", "DT_BF16;INT64;DT_BF16", "8,128", "DT_BF16"], &[]),
        "`I <= V` does not hold",
    ),
];

/// Calls that no arguments make valid.
const CONTRADICTORY: &[(RowText<'static>, &str)] = &[
    ((INDEXER, INDEXER_CELLS, &[LENGTHS[0], LENGTHS[1], ("topk", "512")]), "`Runtime topk` is 512, not 2048"),
    (
        (INDEXER, INDEXER_CELLS, &[LENGTHS[0], LENGTHS[1], ("sparse_mode", "0"), ("block_size", "64")]),
        "`Runtime block_size` is 64, not 128",
    ),
    ((INDEXER, INDEXER_CELLS, &[LENGTHS[0], ("actual_seq_lengths_kv_values", "5769,abc")]), "is `5769,abc`"),
    ((FUSED, UNPACKED_CELLS, &[("actual_seq_lengths_kv_values", "300,x"), NO_KEYS[1]]), "is `300,x`"),
    (
        ("RmsNorm", ["8,512;256", "DT_BF16;DT_BF16", "8,512;8,1", "DT_BF16;FLOAT"], &[]),
        "D is both 512 and 256",
    ),
    (("RmsNorm", ["8,512;512", "DT_BF16;DT_BF16", "8,256;8,1", "DT_BF16;FLOAT"], &[]), "output 0 is [8,256]"),
    (
        ("MatMulV2", ["1,7168;256,7167", "DT_BF16;DT_BF16", "1,256", "DT_BF16"], &[]),
        "K is both 7168 and 7167",
    ),
    (("SwiGlu", ["8,7001", "DT_BF16", "8,3501", "DT_BF16"], &[]), "7001 is not a multiple of 2"),
];

#[test]
fn calls_that_the_entry_lacks_are_unsupported_and_contradictions_are_invalid() {
    let mut wrong = Vec::new();
    for (rows, expected) in [(NOT_COVERED, "unsupported"), (CONTRADICTORY, "invalid_args")] {
        for (row, text) in rows {
            let context = Context::new();
            write_database(&context, &[row_of(row)]);
            let (refused, _) = planned_verdicts(&context);
            let is_expected =
                |(verdict, reason): &(String, String)| verdict == expected && reason.contains(text);
            if !refused.iter().any(is_expected) {
                wrong.push(format!("{} {}: {refused:?}, expected {expected}: {text}", row.0, row.1[0]));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
