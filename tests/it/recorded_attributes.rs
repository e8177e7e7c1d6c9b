//! Recorded attributes of indexers and sparse attention: rows that differ only there are different cases, launched
//! with their lengths.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{
    context::Context,
    plain_rows::{PlainRow, write_database},
    requirements::vendor_python,
    vendor::{VendorJournal, check_kernels},
};

const INDEXER: &str = "LightningIndexer";
const SPARSE: &str = "SparseFlashAttention";

/// A decode step of one sequence, of which some databases have several rows with other numbers of keys.
const DECODE: [(&str, [&str; 4]); 2] = [
    (
        INDEXER,
        [
            "1,32,128;1766,128,1,128;1,32;1;1;1,1584",
            "DT_BF16;DT_BF16;DT_BF16;INT32;INT32;INT32",
            "1,1,2048;1,1,2048",
            "INT32;DT_BF16",
        ],
    ),
    (
        SPARSE,
        [
            "1,16,512;1766,128,1,512;1766,128,1,512;1,1,2048;1,1584;1;1;1,16,64;1766,128,1,64",
            "DT_BF16;DT_BF16;DT_BF16;INT32;INT32;INT32;INT32;DT_BF16;DT_BF16",
            "1,16,512",
            "DT_BF16",
        ],
    ),
];

/// Attributes of such rows besides the lengths.
const STATED: [(&str, &str); 8] = [
    ("input_layout", "TND"),
    ("cache_layout", "PA_BSND"),
    ("sparse_mode", "3"),
    ("topk", "2048"),
    ("block_size", "128"),
    ("num_key_value_heads", "1"),
    ("phase", "decode"),
    ("case_id", "case_1"),
];

/// Writes a rehearsal database with a row of a kernel for each set of attributes.
fn write_rows(context: &Context, kernel: &'static str, rows: &[Vec<(&str, &str)>]) {
    let (_, [shapes, dtypes, outputs, output_dtypes]) =
        DECODE.iter().find(|(name, _)| *name == kernel).expect("a kernel");
    let rows = rows.iter().map(|attributes| {
        let mut row = PlainRow::new(kernel, shapes.split(';').count());
        for (slot, (shape, dtype)) in shapes.split(';').zip(dtypes.split(';')).enumerate() {
            row.set_input(slot, shape, dtype);
        }
        for (column, cell) in attributes {
            row.set_attribute(column, cell);
        }
        row.outputs(outputs, output_dtypes)
    });
    write_database(context, &rows.collect::<Vec<_>>());
}

fn with_lengths<'a>(queries: &'a str, keys: &'a str) -> Vec<(&'a str, &'a str)> {
    let lengths = [("actual_seq_lengths_values", queries), ("actual_seq_lengths_kv_values", keys)];
    STATED.into_iter().chain(lengths).collect()
}

/// Arguments of the cases of the manifest, by name.
fn arguments(context: &Context, kernel: &str) -> Vec<BTreeMap<String, Value>> {
    let ran = context.run(&["render", kernel, "--db", "db", "--manifest"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let manifest: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let cases = manifest["cases"].as_array().expect("cases").iter();
    cases
        .map(|case| {
            let arguments = case["arguments"].as_array().expect("arguments").iter();
            arguments
                .map(|argument| (argument["name"].as_str().expect("a name").to_owned(), argument.clone()))
                .collect()
        })
        .collect()
}

#[test]
fn rows_that_differ_in_lengths_are_launched_and_timed_with_their_own() {
    let keys = ["256", "5769", "65536"];
    for kernel in [INDEXER, SPARSE] {
        let context = Context::new();
        write_rows(&context, kernel, &keys.map(|keys| with_lengths("1", keys)));
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
        let ran = context.run(&["run", "--db", "db", "--host", "rehearsal", "--devices", "0"]);
        assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
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
        let (_, [shapes, dtypes, outputs, output_dtypes]) = DECODE[0];
        let mut row = PlainRow::new(INDEXER, shapes.split(';').count());
        for (slot, (shape, dtype)) in shapes.split(';').zip(dtypes.split(';')).enumerate() {
            row.set_input(slot, shape, dtype);
        }
        row.set_column(columns[0], "1");
        row.set_column(columns[1], "257");
        write_database(&context, &[row.outputs(outputs, output_dtypes)]);
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
    write_rows(&context, INDEXER, &[STATED.to_vec()]);
    let ran = context.run(&["run", "--db", "db", "--host", "rehearsal", "--devices", "0"]);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    let reason = &context.rows("db", INDEXER)[0]["MicroBench Reason"];
    assert!(reason.contains("lengths are not recorded; queries are read as shared evenly"), "{reason}");
}

#[test]
fn contradictory_and_unused_attributes_are_refused() {
    for (kernel, changed, reason) in [
        (INDEXER, ("actual_seq_lengths_values", "2"), "`last(actual_seq_lengths_values) == T` does not"),
        (INDEXER, ("actual_seq_lengths_kv_values", "5769,1"), "(actual_seq_lengths_kv_values) == B"),
        (INDEXER, ("actual_seq_lengths_kv_values", "202753"), "(actual_seq_lengths_kv_values) <= W * L"),
        (INDEXER, ("avg_seq_len", "5000"), "`Runtime avg_seq_len` is 5000, not 5769.000000, the mean"),
        (INDEXER, ("block_table_valid_blocks", "45"), "`Runtime block_table_valid_blocks` is 45, not 46"),
        (INDEXER, ("topk", "1024"), "`Runtime topk` is 1024, not 2048"),
        (
            INDEXER,
            ("input_layout", "BSND"),
            "`Runtime input_layout` is BSND, the entry has only calls with TND",
        ),
        (INDEXER, ("sparse_mode", "0"), "`Runtime sparse_mode` is 0, the entry has only calls with 3"),
        (
            INDEXER,
            ("actual_seq_lengths_kv_values", "5769,abc"),
            "is `5769,abc`: expected a whole number or a list",
        ),
        (INDEXER, ("pre_tokens", "128"), "`Runtime pre_tokens` is recorded as 128, which the call does not"),
        (INDEXER, ("xyz", "1"), "`Runtime xyz` is recorded as 1, which the call does not use"),
        (SPARSE, ("sparse_indices_valid_count", "2047"), "valid_count` is 2047, not 2048"),
        (
            SPARSE,
            ("sparse_indices_pattern", "local"),
            "sparse_indices_pattern` is local, the entry has only calls with uniform",
        ),
    ] {
        let context = Context::new();
        let mut row = with_lengths("1", "5769");
        row.retain(|(column, _)| *column != changed.0);
        row.push(changed);
        write_rows(&context, kernel, &[row]);
        let ran = context.run(&["render", kernel, "--db", "db", "--manifest"]);
        assert_ne!(ran.code, 0, "{changed:?} is accepted");
        assert!(ran.stderr.contains(reason), "{changed:?}: {}", ran.stderr);
    }
}

#[test]
fn the_vendors_code_accepts_recorded_lengths() {
    let Some(python) = vendor_python() else { return };
    for kernel in [INDEXER, SPARSE] {
        let context = Context::new();
        write_rows(&context, kernel, &[with_lengths("1", "5769"), with_lengths("1", "256"), STATED.to_vec()]);
        for (_, VendorJournal { cases, .. }) in check_kernels(&python, &context, &[kernel]) {
            assert_eq!(cases.len(), 3, "{cases:?}");
            assert!(cases.iter().all(|line| line.contains("\"accepted\"")), "{cases:?}");
        }
    }
}
