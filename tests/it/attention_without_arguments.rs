//! Rows of fused attention without recorded arguments, whose shapes determine the call or leave it open.

use crate::prelude::*;
use crate::{plain_rows::write_database, vendor::check_kernels};

const FIA: &str = "FusedInferAttentionScore";

/// A prompt of twelve tokens with this number of keys in this number of sequences, and without runtime columns.
fn row_without_arguments(keys: u64, sequences: &str, outputs: &str) -> PlainRow {
    let mut row = PlainRow::new(FIA, 31);
    for (slot, shape) in [
        (0, "12,16,128".to_owned()),
        (1, format!("{keys},16,128")),
        (2, format!("{keys},16,128")),
        (24, "12,16,64".to_owned()),
        (25, format!("{keys},16,64")),
    ] {
        row.set_input(slot, &shape, "DT_BF16");
    }
    row.set_input(4, "2048,2048", "INT8");
    row.set_input(5, sequences, "INT64");
    row.set_input(6, sequences, "INT64");
    row.outputs(outputs, "DT_BF16;FLOAT")
}

#[test]
fn shapes_that_determine_the_call_replace_recorded_arguments() {
    let context = Context::new();
    let row = row_without_arguments(12, "1", "12,16,128;12,16,1");
    let mut known_heads = row.clone();
    known_heads.set_attribute("num_heads", "16");
    write_database(&context, &[row, known_heads]);
    let rendered = context.run(&["render", FIA, "--db", "db", "--manifest"]);
    let manifest: serde_json::Value = serde_json::from_str(&rendered.stdout).expect("JSON");
    for argument in [
        r#"{"name":"actual_seq_lengths","value":[12]}"#,
        r#"{"name":"actual_seq_lengths_kv","value":[12]}"#,
        r#"{"name":"num_key_value_heads","value":16}"#,
        r#"{"name":"input_layout","value":"TND"}"#,
        r#"{"name":"sparse_mode","value":3}"#,
        r#"{"name":"softmax_lse_flag","value":true}"#,
    ] {
        let cases = manifest["cases"].list();
        let has = |case: &&serde_json::Value| case["arguments"].to_string().contains(argument);
        assert_eq!(cases.iter().filter(has).count(), 2, "{argument}");
    }
    context.done("run --db db --host rehearsal --devices 0-1");
    for row in context.rows("db", FIA) {
        let reason = &row["MicroBench Reason"];
        assert_eq!(row["MicroBench Verdict"], "ok", "{reason}");
        assert!(reason.contains("the mask of 2048,2048 is read as causal"), "{reason}");
    }
    let Some(python) = vendor_python() else { return };
    let journals = check_kernels(&python, &context, &[FIA]);
    let mut cases = journals.iter().flat_map(|(_, journal)| &journal.cases);
    assert!(cases.all(|line| line.contains("\"accepted\"")));
}

#[test]
fn rows_without_arguments_are_refused_if_several_calls_have_their_shapes() {
    let row = || row_without_arguments(12, "1", "12,16,128;12,16,1");
    let with = |column: &str, cell: &str| {
        let mut row = row();
        row.set_attribute(column, cell);
        row
    };
    let unknown = "`Runtime input_layout` is not known";
    assert_rows_refused(&[
        (row_without_arguments(12, "2", "12,16,128;12,16,1"), unknown),
        (row_without_arguments(40, "1", "12,16,128;12,16,1"), unknown),
        (row_without_arguments(12, "1", "12,16,128;"), unknown),
        (with("actual_seq_lengths_values", "12"), unknown),
        (with("num_heads", "8"), unknown),
        (with("input_layout", "BSH"), "and 16 more: `Runtime input_layout` is BSH, not TND"),
    ]);
}
