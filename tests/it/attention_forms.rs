//! Forms of attention and of its caches that serving frameworks call: layouts, log-sum-exp outputs, quantised caches,
//! later steps of a ring. Each is replayed and accepted by the vendor's code, and a wrong call of it is refused.

use crate::prelude::*;
use crate::{
    plain_rows::write_database,
    vendor::{VendorJournal, check_kernels},
};

mod rows;

use rows::{ATTENTION, C8_DECODE, WRONG, attention_row, cache_row, every_row, ring_rows};

const FIA: &str = "FusedInferAttentionScore";
const RING: &str = "RINGMLAPrefillBF16Kernel";
const CACHE: &str = "KvRmsNormRopeCache";

/// A call with an argument recorded for its precision, of a cache in blocks of INT8 or of another one.
fn row_with_precision(is_in_blocks: bool, inner_precise: &str) -> PlainRow {
    let row = ATTENTION.into_iter().find(|row| is_in_blocks && row.contains(" 1:64,4,4,128,32 "));
    let mut row = attention_row(row.unwrap_or(C8_DECODE));
    row.set_attribute("inner_precise", inner_precise);
    row
}

/// The vendor's kernel takes a cache in blocks of INT8 only with the value 1; the other calls leave it at 0.
#[test]
fn recorded_precision_is_that_of_the_call() {
    let context = Context::new();
    write_database(&context, &[row_with_precision(true, "1"), row_with_precision(false, "0")]);
    context.done("run --db db --host rehearsal --devices 0");
    for row in context.rows("db", FIA) {
        assert_eq!(row["MicroBench Verdict"], "ok", "{}", row["Input Shapes"]);
    }
    let refused = [(true, "0", "1"), (false, "1", "0")].map(|(is_in_blocks, value, expected)| {
        let reason = format!("`Runtime inner_precise` is {value}, the entry has only calls with {expected}");
        (row_with_precision(is_in_blocks, value), reason)
    });
    assert_rows_refused(&refused.each_ref().map(|(row, reason)| (row.clone(), reason.as_str())));
}

#[test]
fn forms_of_serving_frameworks_are_replayed() {
    let context = Context::new();
    write_database(&context, &every_row());
    let ran = context.done("run --db db --host rehearsal --devices 0-1");
    let count = every_row().len().to_string();
    let all = ran.stdout.lines().find(|line| line.trim_start().starts_with("all ")).unwrap_or_default();
    // All are `ok`; behind the counts are the intervals.
    let words: Vec<&str> = all.split_whitespace().take(3).collect();
    assert_eq!(words, ["all", &count, &count], "{}", ran.stdout);
    // No row fits a second form.
    for row in context.rows("db", FIA) {
        assert_eq!(row["MicroBench Reason"], "every launch recorded", "{}", row["Input Shapes"]);
    }
    let is_output_kv = |row: &std::collections::BTreeMap<String, String>| {
        let reason = &row["MicroBench Reason"];
        (row["Runtime is_output_kv"].clone(), reason.contains("`Runtime is_output_kv` is not recorded"))
    };
    let mut stated: Vec<(String, bool)> = context.rows("db", CACHE).iter().map(is_output_kv).collect();
    stated.sort();
    let pair = |text: &str, is_assumed| (text.to_owned(), is_assumed);
    let expected =
        [pair("", true), pair("", true), pair("False", false), pair("False", false), pair("True", false)];
    assert_eq!(stated, expected);
}

#[test]
fn arguments_follow_the_recorded_outputs_and_attributes() {
    let context = Context::new();
    write_database(&context, &every_row());
    for (kernel, wanted, count) in [
        (FIA, r#"{"name":"softmax_lse_flag","value":true}"#, 9),
        (FIA, r#"{"name":"actual_seq_lengths","value":null}"#, 10),
        (FIA, r#"{"name":"key_antiquant_mode","value":0}"#, 2),
        (FIA, r#"{"name":"inner_precise","value":1}"#, 1),
        (RING, r#"{"name":"calc_type","value":"calc_type_default"}"#, 2),
        (RING, r#""items":[12,40]"#, 2),
        (CACHE, r#"{"name":"is_output_kv","value":false}"#, 3),
        (CACHE, r#"{"name":"cache_mode","value":"PA_NZ"}"#, 2),
    ] {
        let ran = context.run(&["render", kernel, "--db", "db", "--manifest"]);
        let manifest: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON");
        let cases = manifest["cases"].list();
        let has = |case: &&serde_json::Value| case["arguments"].to_string().contains(wanted);
        assert_eq!(cases.iter().filter(has).count(), count, "{kernel}: {wanted}");
    }
}

#[test]
fn wrong_calls_of_these_forms_are_refused() {
    let ring = |slot: usize, shape: &str, dtype: &str| {
        let mut row = ring_rows().swap_remove(1);
        row.set_input(slot, shape, dtype);
        row
    };
    let wrong = WRONG.map(|wrong| wrong.split_once(" => ").expect("a call and a reason"));
    let mut wrong: Vec<(PlainRow, &str)> =
        wrong.into_iter().map(|(row, reason)| (attention_row(row), reason)).collect();
    wrong.extend([
        (ring(14, "12,16", "FLOAT"), "N is both 16 and 12"),
        (ring(14, "16,12", "DT_BF16"), "input 14 (prev_lse) is DT_BF16, the kernel takes FLOAT"),
        (ring(13, "", ""), "input slot 13 is empty, the call needs it"),
        (cache_row(320, ""), "`C == 512 and R == 64` does not hold"),
        (cache_row(576, "maybe"), "`Runtime is_output_kv` is maybe, not True"),
    ]);
    assert_rows_refused(&wrong);
}

#[test]
fn the_vendors_code_accepts_these_forms() {
    let Some(python) = vendor_python() else { return };
    let context = Context::new();
    write_database(&context, &every_row());
    for (kernel, VendorJournal { cases, .. }) in check_kernels(&python, &context, &[FIA, RING, CACHE]) {
        // Names and types of the arguments are checked all the same.
        let expected = if kernel == RING { "\"no_meta\"" } else { "\"accepted\"" };
        assert!(!cases.is_empty() && cases.iter().all(|line| line.contains(expected)), "{kernel}: {cases:?}");
    }
}
