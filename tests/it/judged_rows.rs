//! Judgement of rows: each row for itself, wherever it stands, and the verdicts of rows that the entry lacks and of rows that
//! contradict themselves.

use crate::plain_rows::write_database;
use crate::prelude::*;

/// Shapes and types of a row's inputs and outputs, and its runtime columns as words `column=cell`, of which the last counts.
pub(crate) type RowText<'a> = (&'static str, [&'a str; 4], &'a str);

pub(crate) fn row_of(
    (kernel, [shapes, dtypes, outputs, output_dtypes], attributes): &RowText<'_>,
) -> PlainRow {
    let mut row = PlainRow::new(kernel, shapes.split(';').count());
    for (slot, (shape, dtype)) in shapes.split(';').zip(dtypes.split(';')).enumerate() {
        row.set_input(slot, shape, dtype);
    }
    for (column, cell) in attributes.split_whitespace().filter_map(|word| word.split_once('=')) {
        row.set_attribute(column, cell);
    }
    row.outputs(outputs, output_dtypes)
}

/// Returns verdict and reason of each case that a plan does not launch, and the number of launched cases.
pub(crate) fn planned_verdicts(context: &Context) -> (Vec<(String, String)>, usize) {
    let (refused, launched) = planned(context);
    (refused.into_iter().map(|[_, verdict, reason]| (verdict, reason)).collect(), launched)
}

/// Asserts that one plan refuses each row with this verdict and a reason that contains the text beside it.
#[track_caller]
pub(crate) fn assert_judged<'a>(rows: impl Iterator<Item = (PlainRow, &'a str)>, expected: &str) {
    let rows: Vec<(PlainRow, &str)> = rows.collect();
    let context = Context::new();
    write_database(&context, &rows.iter().map(|(row, _)| row.clone()).collect::<Vec<_>>());
    let (refused, _) = planned(&context);
    for (row, text) in rows {
        let is_expected = |[kernel, verdict, reason]: &[String; 3]| {
            kernel == row.kernel && verdict == expected && reason.contains(text)
        };
        assert!(refused.iter().any(is_expected), "{} {expected} {text}: {refused:#?}", row.kernel);
    }
}

pub(crate) const INDEXER: &str = "LightningIndexer";
pub(crate) const INDEXER_CELLS: [&str; 4] = [
    "1,32,128;1766,128,1,128;1,32;1;1;1,1584",
    "DT_BF16;DT_BF16;DT_BF16;INT32;INT32;INT32",
    "1,1,2048",
    "INT32",
];
pub(crate) const SPARSE: &str = "SparseFlashAttention";
pub(crate) const SPARSE_CELLS: [&str; 4] = [
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
pub(crate) const LENGTHS: &str = "actual_seq_lengths_values=1 actual_seq_lengths_kv_values=5769";
pub(crate) const FUSED_ARGUMENTS: &str = "actual_seq_lengths_values=1,2 actual_seq_lengths_kv_values=300,400 \
    input_layout=TND sparse_mode=3 num_heads=4 num_key_value_heads=1 block_size=128";
/// The same step in a layout that does not pack sequences.
const UNPACKED_CELLS: [&str; 4] = [
    "2,4,1,128;9,1,128,128;9,1,128,128;;;;2;;;;;;;;2,8",
    "DT_BF16;DT_BF16;DT_BF16;;;;INT64;;;;;;;;INT32",
    "2,4,1,128;",
    "DT_BF16;FLOAT",
];
pub(crate) const NO_KEYS: &str = "actual_seq_lengths_kv_values=300,0 input_layout=BNSD sparse_mode=0 num_heads=4 \
    num_key_value_heads=1 block_size=128";
/// A decode step of two sequences of latent attention.
const LATENT_CELLS: [&str; 4] = [
    "2,4,1,512;9,1,128,512;9,1,128,512;;;2;2;;;;;;;;2,8;;;;;;;;;;2,4,1,64;9,1,128,64",
    "DT_BF16;DT_BF16;DT_BF16;;;INT64;INT64;;;;;;;;INT32;;;;;;;;;;DT_BF16;DT_BF16",
    "4,2,1,512;",
    "DT_BF16;FLOAT",
];

/// A correct row, one that states what follows from it, and one that contradicts it, before and behind them.
#[test]
fn row_with_a_contradicting_derived_value_neither_passes_nor_changes_other_rows() {
    for (kernel, cells, recorded, right, column, wrong, order) in [
        (INDEXER, INDEXER_CELLS, LENGTHS, "5769.0", "avg_seq_len", "5000", [0, 1, 2]),
        (SPARSE, SPARSE_CELLS, LENGTHS, "[46]", "block_table_valid_blocks", "45", [2, 1, 0]),
        (FUSED, FUSED_CELLS, FUSED_ARGUMENTS, "350", "avg_seq_len", "99", [1, 2, 0]),
        (FUSED, FUSED_CELLS, FUSED_ARGUMENTS, "3,4", "block_table_valid_blocks", "3,3", [2, 0, 1]),
    ] {
        let rows = [String::new(), format!(" {column}={right}"), format!(" {column}={wrong}")]
            .map(|more| row_of(&(kernel, cells, &(recorded.to_owned() + &more))));
        let context = Context::new();
        write_database(&context, &order.map(|row: usize| rows[row].clone()));
        let (refused, launched) = planned_verdicts(&context);
        assert_eq!(launched, 1, "{kernel} {wrong} {order:?}: {refused:?}");
        let [(verdict, reason)] = refused.as_slice() else { panic!("{kernel} {wrong}: {refused:?}") };
        assert_eq!(verdict, "invalid_args", "{reason}");
        assert!(reason.contains(column), "{reason}");
        context.exits(1, "run --db db --host rehearsal --devices 0");
        for (row, number) in context.rows("db", kernel).into_iter().zip(order) {
            let verdict = if number == 2 { "invalid_args" } else { "ok" };
            assert_eq!(row["MicroBench Verdict"], verdict, "{kernel} {wrong}");
            assert_eq!(row["Average Duration(us)"].is_empty(), number == 2, "{kernel} {wrong}");
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
        let context = Context::new();
        write_database(&context, &[wrong, right].map(|cells| row_of(&(kernel, cells, ""))));
        let (refused, launched) = planned_verdicts(&context);
        assert_eq!((launched, refused.len()), (1, 1), "{kernel} {wrong:?}: {refused:?}");
        assert_eq!(refused[0].0, "invalid_args", "{kernel} {wrong:?}: {refused:?}");
    }
}

pub(crate) const CACHE_CELLS: [&str; 4] = [
    "8,1,1,576;512;8,1,1,64;8,1,1,64;8;16,128,1,64;16,128,1,512",
    "DT_BF16;DT_BF16;DT_BF16;DT_BF16;INT64;DT_BF16;DT_BF16",
    "16,128,1,64;16,128,1,512;8,1,1,64;8,1,1,512",
    "DT_BF16;DT_BF16;DT_BF16;DT_BF16",
];

#[test]
fn truth_values_and_numbers_are_one_case_in_any_spelling() {
    let cache = "KvRmsNormRopeCache";
    // Spellings of truth values, numbers, defaults of the call, and two names of torch_npu for one layout of the caches.
    for (kernel, cells, recorded, more, expected) in [
        (
            cache,
            CACHE_CELLS,
            "",
            &["false", "False", "FALSE", "0", "true", "True", "1"].map(|text| format!("is_output_kv={text}"))
                [..],
            2,
        ),
        (
            INDEXER,
            INDEXER_CELLS,
            LENGTHS,
            &["128", "128.0", "[0128]"].map(|keys| format!("actual_seq_lengths_kv_values={keys}")),
            1,
        ),
        (
            FUSED,
            FUSED_CELLS,
            FUSED_ARGUMENTS,
            &["pre_tokens", "next_tokens"].map(|column| format!("{column}=2147483647")),
            2,
        ),
        (cache, CACHE_CELLS, "", &["PA", "PA_BNSD"].map(|mode| format!("cache_mode={mode}")), 1),
    ] {
        let rows: Vec<PlainRow> =
            more.iter().map(|more| row_of(&(kernel, cells, &format!("{recorded} {more}")))).collect();
        let context = Context::new();
        write_database(&context, &rows);
        assert_eq!(planned_verdicts(&context), (Vec::new(), expected), "{more:?}");
    }
}

/// Rows with the mean in two columns, and with shapes of inputs in columns of their own.
#[test]
fn columns_that_repeat_others_must_agree_with_them() {
    let row = |columns: &[(&str, &str)]| {
        let mut row = row_of(&(FUSED, FUSED_CELLS, FUSED_ARGUMENTS));
        columns.iter().for_each(|(column, cell)| row.set_column(column, cell));
        row
    };
    let mean = "Runtime avg_seq_len";
    let right = [
        row(&[]),
        row(&[(mean, "350"), ("avg_seq_len", "350.0")]),
        row(&[
            ("Runtime actual_seq_lengths_shape", "2"),
            ("Runtime actual_seq_lengths_kv_shape", "[2]"),
            ("Runtime block_table_shape", "2, 8"),
            ("avg_seq_len", "350"),
        ]),
    ];
    let context = Context::new();
    write_database(&context, &right);
    assert_eq!(planned_verdicts(&context), (Vec::new(), 1), "they are one case");
    let wrong = [
        (row(&[(mean, "350"), ("avg_seq_len", "99")]), "`Runtime avg_seq_len` is 350 and 99"),
        (row(&[(mean, "99"), ("avg_seq_len", "350")]), "`Runtime avg_seq_len` is 350 and 99"),
        (
            row(&[("Runtime block_table_shape", "3,8")]),
            "`Runtime block_table_shape` is 3,8, which is not the shape of the recorded",
        ),
        (row(&[("Runtime actual_seq_lengths_kv_shape", "7")]), "`Runtime actual_seq_lengths_kv_shape` is 7"),
        (
            row_of(&(INDEXER, INDEXER_CELLS, &format!("{LENGTHS} block_table_shape=1,1583"))),
            "`Runtime block_table_shape` is 1,1583",
        ),
    ];
    assert_judged(wrong.into_iter(), "invalid_args");
}

/// Calls that torch_npu takes with other arguments than those of the forms, and the reason why they are not replayed. 16 blocks
/// in a pool of 9: the sequences share some. A sequence without keys pads a captured batch.
#[test]
fn calls_that_the_entry_lacks_are_unsupported_and_contradictions_are_invalid() {
    let sparse_outputs = [SPARSE_CELLS[0], SPARSE_CELLS[1], "1,16,512;16,1;16,1", "DT_BF16;FLOAT;FLOAT"];
    let row =
        |kernel, cells, recorded: &str, more: &str| row_of(&(kernel, cells, &format!("{recorded} {more}")));
    let indexer = |more| row(INDEXER, INDEXER_CELLS, LENGTHS, more);
    let unsupported = [
        (indexer("cache_layout=PA_NZ"), "cache_layout` is PA_NZ"),
        (row("KvRmsNormRopeCache", CACHE_CELLS, "", "cache_mode=PA_BLK_BNSD"), "cache_mode` is PA_BLK_BNSD"),
        (row(SPARSE, sparse_outputs, LENGTHS, ""), "output 1 is [16,1], the inputs give [1,1,16]"),
        (
            row(FUSED, FUSED_CELLS, FUSED_ARGUMENTS, "actual_seq_lengths_kv_values=900,1000"),
            "different values",
        ),
        (row(FUSED, UNPACKED_CELLS, NO_KEYS, ""), "`min(actual_seq_lengths_kv_values) > 0` does not hold"),
        (
            row(
                FUSED,
                LATENT_CELLS,
                FUSED_ARGUMENTS,
                "actual_seq_lengths_values=1,0 input_layout=BNSD_NBSD sparse_mode=0",
            ),
            "`min(actual_seq_lengths_values) > 0` does not hold",
        ),
        (
            row(FUSED, FUSED_CELLS, FUSED_ARGUMENTS, "actual_seq_lengths_kv_values=300,0"),
            "`all_le(diff(actual_seq_lengths_values), ",
        ),
    ];
    assert_judged(unsupported.into_iter(), "unsupported");
    let contradictory = [
        (indexer("sparse_mode=0 block_size=64"), "`Runtime block_size` is 64, not 128"),
        (indexer("topk=512"), "`Runtime topk` is 512, not 2048"),
        (indexer("actual_seq_lengths_kv_values=5769,abc"), "is `5769,abc`"),
        (row(FUSED, UNPACKED_CELLS, "input_layout=BNSD", "actual_seq_lengths_kv_values=300,x"), "is `300,x`"),
    ];
    assert_judged(contradictory.into_iter(), "invalid_args");
}
