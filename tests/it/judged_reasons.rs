//! Reasons of refusals, rows that are judged again, and how plans and lists of cases show rows that are alike.

use crate::{
    context::Context,
    judged_rows::{
        CACHE_CELLS, FUSED, FUSED_ARGUMENTS, FUSED_CELLS, INDEXER, INDEXER_CELLS, LENGTHS, NO_KEYS,
        planned_verdicts, row_of,
    },
    plain_rows::{PlainRow, write_database},
};

/// A case without the column, and one that states the value which the call has without it.
#[test]
fn cases_that_differ_in_a_stated_default_share_their_launches() {
    let context = Context::new();
    let modes: [&[(&str, &str)]; 3] = [&[], &[("cache_mode", "PA_BNSD")], &[("is_output_kv", "False")]];
    write_database(&context, &modes.map(|mode| row_of(&("KvRmsNormRopeCache", CACHE_CELLS, mode))));
    let plan = context.run(&["plan", "--db", "db", "--devices", "0"]).stdout;
    assert!(plan.contains("1 case with the same call as another one"), "{plan}");
    let ran = context.run(&["run", "--db", "db", "--host", "rehearsal", "--devices", "0"]);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    let rows = context.rows("db", "KvRmsNormRopeCache");
    let [bare, stated, other] = rows.as_slice() else { panic!("{rows:?}") };
    assert!(rows.iter().all(|row| row["MicroBench Verdict"] == "ok"), "{rows:?}");
    assert_ne!(bare["MicroBench Case"], stated["MicroBench Case"]);
    assert_eq!(bare["Average Duration(us)"], stated["Average Duration(us)"]);
    assert_ne!(bare["Average Duration(us)"], other["Average Duration(us)"]);
}

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
    let known = NO_KEYS.iter().filter(|(column, _)| *column != "actual_seq_lengths_kv_values");
    known.for_each(|(column, cell)| row.set_attribute(column, cell));
    row.set_attribute("actual_seq_lengths_kv_values", "300,400");
    row.outputs("2,4,1,128;", "DT_BF16;FLOAT")
}

/// A reason is about the form that a row almost fits, however many attributes other forms need.
#[test]
fn reason_of_a_refusal_is_about_the_form_with_the_fewest_differences() {
    let unpaged =
        ["2,4,16,128;2,1,64,128;2,1,64,128", "DT_BF16;DT_BF16;DT_BF16", "2,4,16,128;", "DT_BF16;FLOAT"];
    let mut blocks: Vec<(&str, &str)> = NO_KEYS[1..5].to_vec();
    blocks.push(("block_table_valid_blocks", "3,4"));
    let several = ["2,4,16,128;128,256;256;256", "INT8;INT8;FLOAT;INT32", "2,4,16,256", "DT_BF16"];
    for (row, expected) in [
        (
            row_of(&(FUSED, unpaged, &blocks)),
            "BNSD and 1 more: `Runtime block_table_valid_blocks` is recorded",
        ),
        (
            row_of(&("KvRmsNormRopeCache", CACHE_CELLS, &[("batch_size", "8")])),
            "paged: `Runtime batch_size` is recorded as 8, which the call does not use",
        ),
        (row_of(&("QuantBatchMatmulV3", several, &[])), "at most one batch dimension"),
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
        row_of(&("BatchMatMulV2", [&shapes, types, output, "DT_BF16"], &[]))
    };
    let lengths = |keys| {
        let recorded = [LENGTHS[0], ("actual_seq_lengths_kv_values", keys)];
        row_of(&(INDEXER, INDEXER_CELLS, &recorded))
    };
    let context = Context::new();
    write_database(&context, &[product(16), product(32), product(64), lengths("300"), lengths("5769")]);
    let plan = context.run(&["plan", "--db", "db", "--devices", "0"]).stdout;
    let reasons: Vec<&str> = plan.lines().filter(|line| line.contains("invalid_args")).collect();
    let [reason] = reasons.as_slice() else { panic!("{plan}") };
    assert!(reason.starts_with("3 cases of BatchMatMulV2, such as: invalid_args: the shapes "), "{reason}");
    context.run(&["run", "--db", "db", "--host", "rehearsal", "--devices", "0"]);
    let shown = context.run(&["show", "--db", "db"]).stdout;
    for keys in ["300", "5769"] {
        assert!(shown.contains(&format!(" actual_seq_lengths_kv_values={keys} ")), "{shown}");
    }
    assert!(!shown.contains("actual_seq_lengths_values"), "equal in both cases: {shown}");
    let json = context.run(&["show", "--db", "db", "--format", "json"]).stdout;
    assert!(json.contains("\"attributes\":\"Runtime actual_seq_lengths_kv_values=300;"), "{json}");
}

/// A number that another tool or an earlier version wrote does not make a contradiction right; the row keeps it.
#[test]
fn contradicting_row_with_a_result_is_judged_again() {
    let row = |mean: &str| {
        let mut row = row_of(&(FUSED, FUSED_CELLS, &FUSED_ARGUMENTS));
        row.set_attribute("avg_seq_len", mean);
        row
    };
    let context = Context::new();
    write_database(&context, &[row("350"), row("350.00")]);
    let run = ["run", "--db", "db", "--host", "rehearsal", "--devices", "0"];
    let ran = context.run(&run);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    let table = std::fs::read_to_string(context.path("db/FusedInferAttentionScore.csv")).expect("rows");
    context.write("db/FusedInferAttentionScore.csv", &table.replace("350.00", "99"));
    let numbers = |context: &Context| -> Vec<String> {
        let rows = context.rows("db", FUSED);
        rows.iter().map(|row| row["Average Duration(us)"].clone()).collect()
    };
    let before = numbers(&context);
    let ran = context.run(&["plan", "--db", "db", "--devices", "0", "--max-collections", "1"]);
    assert!(ran.stdout.contains("1 case already measured"), "{}", ran.stdout);
    assert!(ran.stdout.contains("is 99, not 350"), "{}", ran.stdout);
    let ran = context.run(&run);
    assert_eq!(ran.code, 1, "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stderr.contains("is 99, not 350"), "{}", ran.stderr);
    assert_eq!(numbers(&context), before);
    assert!(!before[1].is_empty());
}

/// Valid calls along a dimension that the forms do not have, or with other scales: kernel, cells, and the reason.
const ALONG_OTHER_DIMENSIONS: &[(&str, [&str; 4], &str)] = &[
    ("SwiGlu", ["8,8", "DT_BF16", "4,8", "DT_BF16"], "halves the last dimension"),
    ("SwiGlu", ["4,6,8", "DT_BF16", "4,3,8", "DT_BF16"], "halves the last dimension"),
    ("SwiGlu", ["2,4,6,8", "DT_BF16", "2,4,3,8", "DT_BF16"], "halves the last dimension"),
    ("SwiGluGrad", ["4,8;8,8", "DT_BF16;DT_BF16", "8,8", "DT_BF16"], "halves the last dimension"),
    ("GatherElementsV2", ["8,9;4,9", "FLOAT;INT64", "4,9", "FLOAT"], "along the last dimension"),
    ("GatherElementsV2", ["8,9;4,12", "FLOAT;INT64", "4,12", "FLOAT"], "along the last dimension"),
    ("GatherElementsV2", ["8,9;12,9", "FLOAT;INT64", "12,9", "FLOAT"], "along the last dimension"),
    ("GatherElementsV2", ["4,8,9;2,12,9", "FLOAT;INT64", "2,12,9", "FLOAT"], "along the last dimension"),
    ("ScatterElementsV2", ["8,9;4,9;4,9", "FLOAT;INT32;FLOAT", "8,9", "FLOAT"], "along the last dimension"),
    ("ScatterElementsV2", ["8,9;12,7;12,7", "FLOAT;INT32;FLOAT", "8,9", "FLOAT"], "along the last dimension"),
    ("GatherV3", ["2,3,4,8,16;5;1", "FLOAT;INT64;INT64", "2,3,4,5,16", "FLOAT"], "first three dimensions"),
    (
        "TopKV2",
        ["512,8;", "FLOAT;INT32", "64,8;64,8", "FLOAT;INT32"],
        "greatest elements of the last dimension",
    ),
    ("TopKV2", ["2,512,8;", "FLOAT;INT32", "2,64,8;2,64,8", "FLOAT;INT32"], "greatest elements of the last"),
    ("Tile", ["8,9;3", "FLOAT;INT64", "2,8,9", "FLOAT"], "along the dimensions that the input has"),
    ("DynamicQuant", ["16,128", "DT_BF16", "16,128;1", "INT8;FLOAT"], "pertensor"),
    ("DynamicQuant", ["16,128", "DT_BF16", "16,128;128", "INT8;FLOAT"], "perchannel"),
    ("DynamicQuant", ["16,128;128", "DT_BF16;DT_BF16", "16,128;1", "INT8;FLOAT"], "pertensor"),
    ("DynamicQuant", ["4,16,128", "DT_BF16", "4,16,128;4,128", "INT8;FLOAT"], "perchannel"),
    (
        "ScatterUpdate",
        ["8,16,4;3;8,3,4", "FLOAT;INT64;FLOAT", "8,16,4", "FLOAT"],
        "along the first dimension",
    ),
    ("Scatter", ["4,16,8;4;4,16,2", "FLOAT16;INT64;FLOAT16", "4,16,8", "FLOAT16"], "before the last"),
    ("RepeatInterleaveV2", ["4,6,8,9;1", "FLOAT;INT64", "4,6,64,9", "FLOAT"], "first two dimensions"),
    ("AscendQuantV2", ["16,128;16;16", "DT_BF16;DT_BF16;DT_BF16", "16,128", "INT8"], "scales of the last"),
    ("Cast", ["16,128", "DOUBLE", "16,128", "FLOAT"], "from DOUBLE the conversion runs on an AI CPU"),
];

/// Calls of the same kernels that no dimension makes valid.
const ALONG_NO_DIMENSION: &[(&str, [&str; 4], &str)] = &[
    ("SwiGlu", ["8,8", "DT_BF16", "8,5", "DT_BF16"], "output 0 is [8,5]"),
    ("SwiGluGrad", ["4,9;8,8", "DT_BF16;DT_BF16", "8,8", "DT_BF16"], ""),
    ("GatherElementsV2", ["8,9;10,11", "FLOAT;INT64", "10,11", "FLOAT"], ""),
    ("ScatterElementsV2", ["8,9;4,9;4,9", "FLOAT;INT32;FLOAT", "4,9", "FLOAT"], ""),
    ("ScatterElementsV2", ["8,9;10,11;10,11", "FLOAT;INT32;FLOAT", "8,9", "FLOAT"], ""),
    ("GatherV3", ["4,8,16;3;1", "FLOAT;INT64;INT64", "4,5,16", "FLOAT"], ""),
    ("LpNormV2", ["4,8", "FLOAT", "2", "FLOAT"], ""),
    ("TopKV2", ["512,8;", "FLOAT;INT32", "600,8;600,8", "FLOAT;INT32"], ""),
    ("Tile", ["8,9;3", "FLOAT;INT64", "2,7,9", "FLOAT"], ""),
    ("DynamicQuant", ["16,128", "DT_BF16", "16,128;15", "INT8;FLOAT"], ""),
    ("ScatterUpdate", ["8,16,4;3;8,5,4", "FLOAT;INT64;FLOAT", "8,16,4", "FLOAT"], ""),
    ("AscendQuantV2", ["16,128;128;127", "DT_BF16;DT_BF16;DT_BF16", "16,128", "INT8"], "128 and 127"),
    ("AscendQuantV2", ["16,128;127;127", "DT_BF16;DT_BF16;DT_BF16", "16,128", "INT8"], "S == D or S == 1"),
    ("AscendQuantV2", ["16,128;128;127", "DT_BF16;DT_BF16;DT_BF16", "16,128", "UINT8"], "128 and 127"),
];

#[test]
fn calls_along_other_dimensions_are_unsupported_and_contradictions_are_invalid() {
    let mut wrong = Vec::new();
    for (rows, verdict) in [(ALONG_OTHER_DIMENSIONS, "unsupported"), (ALONG_NO_DIMENSION, "invalid_args")] {
        for (kernel, cells, reason) in rows {
            let context = Context::new();
            write_database(&context, &[row_of(&(kernel, *cells, &[]))]);
            let (refused, _) = planned_verdicts(&context);
            let is_expected = |(found, text): &(String, String)| found == verdict && text.contains(reason);
            if !refused.iter().any(is_expected) {
                wrong.push(format!("{kernel} {}: {refused:?}, expected {verdict}: {reason}", cells[0]));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The library turns scales of INT64 into UINT64, which profiles show; rows of earlier profiles have INT64.
#[test]
fn scales_as_bits_are_one_call_in_both_types() {
    let scales =
        |dtype| ["16,128;128,256;256", ["INT8;INT8;INT64", "INT8;INT8;UINT64"][dtype], "16,256", "FLOAT16"];
    let context = Context::new();
    write_database(&context, &[0, 1].map(|dtype| row_of(&("QuantBatchMatmulV3", scales(dtype), &[]))));
    let manifest = context.run(&["render", "QuantBatchMatmulV3", "--db", "db", "--manifest"]).stdout;
    assert!(manifest.contains("int64") && !manifest.contains("uint64"), "{manifest}");
    let ran = context.run(&["run", "--db", "db", "--host", "rehearsal", "--devices", "0"]);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    let rows = context.rows("db", "QuantBatchMatmulV3");
    assert!(rows.iter().all(|row| row["MicroBench Verdict"] == "ok"), "{rows:?}");
    assert!(rows.iter().all(|row| !row["MicroBench Reason"].contains("fourth slot")), "{rows:?}");
}
