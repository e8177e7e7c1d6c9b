//! Reasons of refusals, rows that are judged again, and how plans and lists of cases show rows that are alike.

use crate::prelude::*;
use crate::{
    catalogue_calls::fields,
    judged_rows::{
        CACHE_CELLS, FUSED, INDEXER, INDEXER_CELLS, LENGTHS, NO_KEYS, assert_judged, planned_verdicts, row_of,
    },
    plain_rows::write_database,
};

/// Keys of INT8 in pages, with the scales of both caches and, as given, with offsets and lengths of queries.
fn int8_cache_row(has_offsets: bool, has_query_lengths: bool) -> PlainRow {
    let mut row = PlainRow::new(FUSED, 31);
    let caches =
        [(1, "9,128,128", "INT8"), (2, "9,128,128", "INT8"), (6, "2", "INT64"), (14, "2,8", "INT32")];
    let scale = |slot| (slot, "1,1,1,128", "DT_BF16");
    let offsets = [scale(18), scale(20)].into_iter().filter(|_| has_offsets);
    let lengths = [(5, "2", "INT64")].into_iter().filter(|_| has_query_lengths);
    let slots = [(0, "2,4,1,128", "DT_BF16"), scale(17), scale(19)];
    for (slot, shape, dtype) in caches.into_iter().chain(slots).chain(offsets).chain(lengths) {
        row.set_input(slot, shape, dtype);
    }
    for (column, cell) in NO_KEYS.split(' ').filter_map(|word| word.split_once('=')) {
        row.set_attribute(column, cell);
    }
    row.set_attribute("actual_seq_lengths_kv_values", "300,400");
    row.outputs("2,4,1,128;", "DT_BF16;FLOAT")
}

/// A reason is about the form that a row almost fits, however many attributes other forms need.
#[test]
fn reason_of_a_refusal_is_about_the_form_with_the_fewest_differences() {
    let unpaged =
        ["2,4,16,128;2,1,64,128;2,1,64,128", "DT_BF16;DT_BF16;DT_BF16", "2,4,16,128;", "DT_BF16;FLOAT"];
    let blocks =
        "input_layout=BNSD sparse_mode=0 num_heads=4 num_key_value_heads=1 block_table_valid_blocks=3,4";
    let several = ["2,4,16,128;128,256;256;256", "INT8;INT8;FLOAT;INT32", "2,4,16,256", "DT_BF16"];
    for (row, expected) in [
        (
            row_of(&(FUSED, unpaged, blocks)),
            "BNSD and 1 more: `Runtime block_table_valid_blocks` is recorded",
        ),
        (
            row_of(&("KvRmsNormRopeCache", CACHE_CELLS, "batch_size=8")),
            "paged: `Runtime batch_size` is recorded as 8, which the call does not use",
        ),
        (row_of(&("QuantBatchMatmulV3", several, "")), "at most one batch dimension"),
        (int8_cache_row(false, false), "BNSD, paged INT8: input slot 18 is empty, the call needs it"),
        (int8_cache_row(true, true), "BNSD, paged INT8: input 5: the rule leaves it out"),
    ] {
        let context = Context::new();
        write_database(&context, &[row]);
        let (refused, _) = planned_verdicts(&context);
        assert!(refused.iter().all(|(verdict, _)| verdict == "unsupported"), "{refused:?}");
        assert!(refused.iter().any(|(_, reason)| reason.contains(expected)), "{expected}: {refused:?}");
    }
    let context = Context::new();
    write_database(&context, &[int8_cache_row(true, false)]);
    assert_eq!(planned_verdicts(&context), (Vec::new(), 1), "the form exists");
}

/// A plan has a line for each rule, and `show` the attributes in which cases of the same shapes differ.
#[test]
fn plan_and_show_tell_rules_and_cases_apart() {
    let product = |n: usize| {
        let (shapes, output) = (format!("4,16,{n};3,{n},8"), "4,16,8");
        let types = "DT_BF16;DT_BF16";
        row_of(&("BatchMatMulV2", [&shapes, types, output, "DT_BF16"], ""))
    };
    let lengths =
        |keys| row_of(&(INDEXER, INDEXER_CELLS, &format!("{LENGTHS} actual_seq_lengths_kv_values={keys}")));
    let context = Context::new();
    write_database(&context, &[product(16), product(32), product(64), lengths("300"), lengths("5769")]);
    let plan = context.run("plan --db db --devices 0").stdout;
    let reasons: Vec<&str> = plan.lines().filter(|line| line.contains("invalid_args")).collect();
    let [reason] = reasons.as_slice() else { panic!("{plan}") };
    assert!(reason.starts_with("3 cases of BatchMatMulV2, such as: invalid_args: the shapes "), "{reason}");
    context.run("run --db db --host rehearsal --devices 0");
    let shown = context.run("show --db db").stdout;
    for keys in ["300", "5769"] {
        assert!(shown.contains(&format!(" actual_seq_lengths_kv_values={keys} ")), "{shown}");
    }
    assert!(!shown.contains("actual_seq_lengths_values"), "equal in both cases: {shown}");
    let json = context.run("show --db db --format json").stdout;
    assert!(json.contains("\"attributes\":\"Runtime actual_seq_lengths_kv_values=300;"), "{json}");
}

/// Valid calls along a dimension that the forms do not have, or with other scales: kernel, cells, and the reason.
const ALONG_OTHER_DIMENSIONS: [&str; 30] = [
    "AddRmsNorm|8,512;8,512;512|DT_BF16;DT_BF16;FLOAT|8,512;8,1;8,512|DT_BF16;FLOAT;DT_BF16 => the kernel takes one type",
    "RmsNorm|0,512;512|DT_BF16;DT_BF16|0,512;0,1|DT_BF16;FLOAT => no elements",
    "TransposeBatchMatMul|4,16,64;16,64,512|DT_BF16;DT_BF16|4,16,512|DT_BF16 => `K % 128 == 0` does not hold",
    "QuantBatchMatmulV3|4,16,128;128,256;256;64|INT8;INT8;FLOAT;FLOAT|4,16,256|DT_BF16 => a scale for each row of all products",
    "BatchMatMulV2|1,16,1;4,1,256|DT_BF16;DT_BF16|4,16,256|DT_BF16 => `K > 1` does not hold",
    "GatherV2|3,2,4,64;16;1|DT_BF16;INT64;INT64|3,2,4,16|DT_BF16 => the forms have parts along the first three dimensions",
    "ScatterUpdate|8,128;16;16,128|DT_BF16;INT64;DT_BF16|8,128|DT_BF16 => `I <= V` does not hold",
    "SwiGlu|8,8|DT_BF16|4,8|DT_BF16 => halves the last dimension",
    "SwiGlu|4,6,8|DT_BF16|4,3,8|DT_BF16 => halves the last dimension",
    "SwiGlu|2,4,6,8|DT_BF16|2,4,3,8|DT_BF16 => halves the last dimension",
    "SwiGluGrad|4,8;8,8|DT_BF16;DT_BF16|8,8|DT_BF16 => halves the last dimension",
    "GatherElementsV2|8,9;4,9|FLOAT;INT64|4,9|FLOAT => along the last dimension",
    "GatherElementsV2|8,9;4,12|FLOAT;INT64|4,12|FLOAT => along the last dimension",
    "GatherElementsV2|8,9;12,9|FLOAT;INT64|12,9|FLOAT => along the last dimension",
    "GatherElementsV2|4,8,9;2,12,9|FLOAT;INT64|2,12,9|FLOAT => along the last dimension",
    "ScatterElementsV2|8,9;4,9;4,9|FLOAT;INT32;FLOAT|8,9|FLOAT => along the last dimension",
    "ScatterElementsV2|8,9;12,7;12,7|FLOAT;INT32;FLOAT|8,9|FLOAT => along the last dimension",
    "GatherV3|2,3,4,8,16;5;1|FLOAT;INT64;INT64|2,3,4,5,16|FLOAT => first three dimensions",
    "TopKV2|512,8;|FLOAT;INT32|64,8;64,8|FLOAT;INT32 => greatest elements of the last dimension",
    "TopKV2|2,512,8;|FLOAT;INT32|2,64,8;2,64,8|FLOAT;INT32 => greatest elements of the last",
    "Tile|8,9;3|FLOAT;INT64|2,8,9|FLOAT => along the dimensions that the input has",
    "DynamicQuant|16,128|DT_BF16|16,128;1|INT8;FLOAT => pertensor",
    "DynamicQuant|16,128|DT_BF16|16,128;128|INT8;FLOAT => perchannel",
    "DynamicQuant|16,128;128|DT_BF16;DT_BF16|16,128;1|INT8;FLOAT => pertensor",
    "DynamicQuant|4,16,128|DT_BF16|4,16,128;4,128|INT8;FLOAT => perchannel",
    "ScatterUpdate|8,16,4;3;8,3,4|FLOAT;INT64;FLOAT|8,16,4|FLOAT => along the first dimension",
    "Scatter|4,16,8;4;4,16,2|FLOAT16;INT64;FLOAT16|4,16,8|FLOAT16 => before the last",
    "RepeatInterleaveV2|4,6,8,9;1|FLOAT;INT64|4,6,64,9|FLOAT => first two dimensions",
    "AscendQuantV2|16,128;16;16|DT_BF16;DT_BF16;DT_BF16|16,128|INT8 => scales of the last",
    "Cast|16,128|DOUBLE|16,128|FLOAT => from DOUBLE the conversion runs on an AI CPU",
];

/// Calls of the same kernels that no dimension makes valid.
const ALONG_NO_DIMENSION: [&str; 18] = [
    "RmsNorm|8,512;256|DT_BF16;DT_BF16|8,512;8,1|DT_BF16;FLOAT => D is both 512 and 256",
    "RmsNorm|8,512;512|DT_BF16;DT_BF16|8,256;8,1|DT_BF16;FLOAT => output 0 is [8,256]",
    "MatMulV2|1,7168;256,7167|DT_BF16;DT_BF16|1,256|DT_BF16 => K is both 7168 and 7167",
    "SwiGlu|8,7001|DT_BF16|8,3501|DT_BF16 => 7001 is not a multiple of 2",
    "SwiGlu|8,8|DT_BF16|8,5|DT_BF16 => output 0 is [8,5]",
    "SwiGluGrad|4,9;8,8|DT_BF16;DT_BF16|8,8|DT_BF16 => ",
    "GatherElementsV2|8,9;10,11|FLOAT;INT64|10,11|FLOAT => ",
    "ScatterElementsV2|8,9;4,9;4,9|FLOAT;INT32;FLOAT|4,9|FLOAT => ",
    "ScatterElementsV2|8,9;10,11;10,11|FLOAT;INT32;FLOAT|8,9|FLOAT => ",
    "GatherV3|4,8,16;3;1|FLOAT;INT64;INT64|4,5,16|FLOAT => ",
    "LpNormV2|4,8|FLOAT|2|FLOAT => ",
    "TopKV2|512,8;|FLOAT;INT32|600,8;600,8|FLOAT;INT32 => ",
    "Tile|8,9;3|FLOAT;INT64|2,7,9|FLOAT => ",
    "DynamicQuant|16,128|DT_BF16|16,128;15|INT8;FLOAT => ",
    "ScatterUpdate|8,16,4;3;8,5,4|FLOAT;INT64;FLOAT|8,16,4|FLOAT => ",
    "AscendQuantV2|16,128;128;127|DT_BF16;DT_BF16;DT_BF16|16,128|INT8 => 128 and 127",
    "AscendQuantV2|16,128;127;127|DT_BF16;DT_BF16;DT_BF16|16,128|INT8 => S == D or S == 1",
    "AscendQuantV2|16,128;128;127|DT_BF16;DT_BF16;DT_BF16|16,128|UINT8 => 128 and 127",
];

#[test]
fn calls_along_other_dimensions_are_unsupported_and_contradictions_are_invalid() {
    for (rows, verdict) in
        [(&ALONG_OTHER_DIMENSIONS[..], "unsupported"), (&ALONG_NO_DIMENSION, "invalid_args")]
    {
        let rows = rows.iter().map(|line| {
            let ([kernel, cells @ ..], reason) = fields(line);
            (row_of(&(kernel, cells, "")), reason)
        });
        assert_judged(rows, verdict);
    }
}
