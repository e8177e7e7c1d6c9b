//! Recorded attributes of indexers and sparse attention: rows that differ only there are different cases, launched
//! with their lengths.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::prelude::*;
use crate::{
    judged_rows::{self, INDEXER, INDEXER_CELLS, SPARSE, SPARSE_CELLS},
    plain_rows::write_database,
    vendor::{VendorJournal, check_kernels},
};

/// Attributes of rows besides the lengths.
const STATED: &str = "input_layout=TND cache_layout=PA_BSND sparse_mode=3 topk=2048 block_size=128 num_key_value_heads=1 \
    phase=decode case_id=case_1";

/// Returns a decode step of one sequence, of which some databases have several rows with other numbers of keys.
fn row_of(kernel: &'static str, attributes: &str) -> PlainRow {
    let cells = if kernel == INDEXER {
        [INDEXER_CELLS[0], INDEXER_CELLS[1], "1,1,2048;1,1,2048", "INT32;DT_BF16"]
    } else {
        SPARSE_CELLS
    };
    judged_rows::row_of(&(kernel, cells, attributes))
}

/// Writes a rehearsal database with a row of a kernel for each set of attributes.
fn write_rows(context: &Context, kernel: &'static str, rows: &[String]) {
    let rows = rows.iter().map(|attributes| row_of(kernel, attributes));
    write_database(context, &rows.collect::<Vec<_>>());
}

fn with_keys(keys: &str) -> String {
    format!("{STATED} actual_seq_lengths_values=1 actual_seq_lengths_kv_values={keys}")
}

/// Arguments of the cases of the manifest, by name.
fn arguments(context: &Context, kernel: &str) -> Vec<BTreeMap<String, Value>> {
    let ran = context.done(&["render", kernel, "--db", "db", "--manifest"]);
    let manifest: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let cases = manifest["cases"].list().iter();
    cases
        .map(|case| {
            let arguments = case["arguments"].list().iter();
            arguments.map(|argument| (argument["name"].text().to_owned(), argument.clone())).collect()
        })
        .collect()
}

#[test]
fn rows_that_differ_in_lengths_are_launched_and_timed_with_their_own() {
    let keys = ["256", "5769", "65536"];
    for kernel in [INDEXER, SPARSE] {
        let context = Context::new();
        write_rows(&context, kernel, &keys.map(with_keys));
        let mut launched: Vec<(i64, i64)> = arguments(&context, kernel)
            .iter()
            .map(|case| {
                let lengths =
                    if kernel == INDEXER { "actual_seq_lengths_key" } else { "actual_seq_lengths_kv" };
                let keys = case[lengths]["tensor"]["items"][0].as_i64().expect("a length");
                if kernel == SPARSE {
                    assert_eq!(case["sparse_indices"]["tensor"]["keys"], serde_json::json!([keys]));
                    assert_eq!(case["sparse_indices"]["tensor"]["fill"], "selection");
                }
                (keys, case["block_table"]["tensor"]["used"][0].as_i64().expect("blocks"))
            })
            .collect();
        launched.sort_unstable();
        assert_eq!(launched, [(256, 2), (5769, 46), (65536, 512)], "{kernel}");
        context.done("run --db db --host rehearsal --devices 0");
        let rows = context.rows("db", kernel);
        let times: Vec<f64> =
            rows.iter().map(|row| row["Average Duration(us)"].parse().expect("a time")).collect();
        // Sparse attention reads 2,048 keys at most.
        assert!(times[0] < times[1] && (kernel == SPARSE || times[1] < times[2]), "{kernel}: {times:?}");
        let reasons: Vec<&str> = rows.iter().map(|row| row["MicroBench Reason"].as_str()).collect();
        assert!(reasons.iter().all(|reason| !reason.contains("not recorded")), "{reasons:?}");
    }
}

/// A value that is ignored because of the spelling of its column would give the time of another length.
#[test]
fn columns_in_other_spellings_are_the_same_attributes() {
    let arguments_of = |columns: [&str; 2]| {
        let context = Context::new();
        let mut row = row_of(INDEXER, "");
        row.set_column(columns[0], "1");
        row.set_column(columns[1], "257");
        write_database(&context, &[row]);
        arguments(&context, INDEXER)
    };
    let right = arguments_of(["Runtime actual_seq_lengths_values", "Runtime actual_seq_lengths_kv_values"]);
    assert_eq!(right[0]["actual_seq_lengths_key"]["tensor"]["items"][0], 257);
    for other in [
        ["runtime actual_seq_lengths_values", "runtime actual_seq_lengths_kv_values"],
        ["Runtime_actual_seq_lengths_values", "Runtime_actual_seq_lengths_kv_values"],
        ["Runtime Actual Seq Lengths Values", "RUNTIME actual seq lengths kv values"],
        ["actual_seq_lengths_values", "actual_seq_lengths_kv_values"],
    ] {
        assert_eq!(arguments_of(other), right, "{other:?}");
    }
}

#[test]
fn assumed_lengths_are_stated_only_where_none_are_recorded() {
    let context = Context::new();
    write_rows(&context, INDEXER, &[STATED.to_owned()]);
    context.done("run --db db --host rehearsal --devices 0");
    let reason = &context.rows("db", INDEXER)[0]["MicroBench Reason"];
    assert!(reason.contains("lengths are not recorded; queries are read as shared evenly"), "{reason}");
}

#[test]
fn contradictory_and_unused_attributes_are_refused() {
    let rows = [
        (INDEXER, "actual_seq_lengths_values=2", "`last(actual_seq_lengths_values) == T` does not"),
        (INDEXER, "actual_seq_lengths_kv_values=5769,1", "(actual_seq_lengths_kv_values) == B"),
        (INDEXER, "actual_seq_lengths_kv_values=202753", "(actual_seq_lengths_kv_values) <= W * L"),
        (INDEXER, "avg_seq_len=5000", "`Runtime avg_seq_len` is 5000, not 5769.000000, the mean"),
        (INDEXER, "block_table_valid_blocks=45", "`Runtime block_table_valid_blocks` is 45, not 46"),
        (INDEXER, "input_layout=BSND", "`Runtime input_layout` is BSND, the entry has only calls with TND"),
        (INDEXER, "sparse_mode=0", "`Runtime sparse_mode` is 0, the entry has only calls with 3"),
        (INDEXER, "pre_tokens=128", "`Runtime pre_tokens` is recorded as 128, which the call does not"),
        (INDEXER, "xyz=1", "`Runtime xyz` is recorded as 1, which the call does not use"),
        (SPARSE, "sparse_indices_valid_count=2047", "valid_count` is 2047, not 2048"),
        (SPARSE, "sparse_indices_pattern=local", "pattern` is local, the entry has only calls with uniform"),
    ]
    .map(|(kernel, changed, reason)| (row_of(kernel, &format!("{} {changed}", with_keys("5769"))), reason));
    assert_rows_refused(&rows);
}

#[test]
fn the_vendors_code_accepts_recorded_lengths() {
    let Some(python) = vendor_python() else { return };
    for kernel in [INDEXER, SPARSE] {
        let context = Context::new();
        write_rows(&context, kernel, &[with_keys("5769"), with_keys("256"), STATED.to_owned()]);
        for (_, VendorJournal { cases, .. }) in check_kernels(&python, &context, &[kernel]) {
            assert_eq!(cases.len(), 3, "{cases:?}");
            assert!(cases.iter().all(|line| line.contains("\"accepted\"")), "{cases:?}");
        }
    }
}
