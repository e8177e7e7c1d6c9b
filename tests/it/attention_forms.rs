//! Forms of attention and of its caches that serving frameworks call: layouts, log-sum-exp outputs, quantised caches,
//! later steps of a ring. Each is replayed and accepted by the vendor's code, and a wrong call of it is refused.

use crate::{
    context::Context,
    plain_rows::{PlainRow, write_database},
    requirements::vendor_python,
    vendor::{VendorJournal, check_kernels},
};

const FIA: &str = "FusedInferAttentionScore";
const RING: &str = "RINGMLAPrefillBF16Kernel";
const CACHE: &str = "KvRmsNormRopeCache";

/// A call of fused attention: layout, sparse mode, heads, heads of keys; input slots with their shapes; outputs; and
/// the lengths of queries and keys.
type AttentionRow =
    (&'static str, [u64; 3], &'static [(usize, &'static str)], &'static str, &'static str, &'static str);

const MASK: (usize, &str) = (4, "2048,2048");
const TABLE: (usize, &str) = (14, "2,8");

/// Two sequences of each form.
const ATTENTION: [AttentionRow; 21] = [
    // Prompts of latent attention, with and without the log-sum-exp, and parts of their context.
    (
        "TND",
        [3, 16, 16],
        &[(0, "12,16,128"), (1, "12,16,128"), (2, "12,16,128"), MASK, (24, "12,16,64"), (25, "12,16,64")],
        "12,16,128;12,16,1",
        "5,12",
        "5,12",
    ),
    (
        "TND",
        [3, 16, 16],
        &[(0, "12,16,128"), (1, "12,16,128"), (2, "12,16,128"), MASK, (24, "12,16,64"), (25, "12,16,64")],
        "12,16,128;",
        "5,12",
        "5,12",
    ),
    (
        "TND",
        [0, 16, 16],
        &[(0, "12,16,128"), (1, "40,16,128"), (2, "40,16,128"), (24, "12,16,64"), (25, "40,16,64")],
        "12,16,128;12,16,1",
        "5,12",
        "15,40",
    ),
    (
        "TND",
        [3, 16, 16],
        &[(0, "12,16,192"), (1, "12,16,192"), (2, "12,16,192"), MASK],
        "12,16,192;12,16,1",
        "5,12",
        "5,12",
    ),
    // Without a mask.
    ("TND", [0, 16, 4], &[(0, "12,16,128"), (1, "40,4,128"), (2, "40,4,128")], "12,16,128;", "5,12", "15,40"),
    (
        "TND",
        [0, 16, 4],
        &[(0, "12,16,128"), (1, "40,4,128"), (2, "40,4,128")],
        "12,16,128;12,16,1",
        "5,12",
        "15,40",
    ),
    (
        "TND",
        [0, 16, 4],
        &[(0, "2,16,128"), (1, "64,128,512"), (2, "64,128,512"), TABLE],
        "2,16,128;2,16,1",
        "1,2",
        "300,400",
    ),
    (
        "TND",
        [0, 16, 4],
        &[(0, "2,16,128"), (1, "64,128,512"), (2, "64,128,512"), TABLE],
        "2,16,128;",
        "1,2",
        "300,400",
    ),
    (
        "TND",
        [3, 16, 4],
        &[(0, "2,16,128"), (1, "64,4,128,128"), (2, "64,4,128,128"), MASK, TABLE],
        "2,16,128;2,16,1",
        "1,2",
        "300,400",
    ),
    // Latent attention over a cache.
    (
        "TND_NTD",
        [3, 16, 1],
        &[
            (0, "4,16,512"),
            (1, "64,1,128,512"),
            (2, "64,1,128,512"),
            MASK,
            TABLE,
            (24, "4,16,64"),
            (25, "64,1,128,64"),
        ],
        "16,4,512;",
        "2,4",
        "300,400",
    ),
    (
        "TND",
        [3, 16, 1],
        &[
            (0, "4,16,512"),
            (1, "64,1,128,512"),
            (2, "64,1,128,512"),
            MASK,
            TABLE,
            (24, "4,16,64"),
            (25, "64,1,128,64"),
        ],
        "4,16,512;",
        "2,4",
        "300,400",
    ),
    // Without lengths of queries.
    (
        "BNSD_NBSD",
        [0, 16, 1],
        &[
            (0, "2,16,1,512"),
            (1, "64,1,128,512"),
            (2, "64,1,128,512"),
            TABLE,
            (24, "2,16,1,64"),
            (25, "64,1,128,64"),
        ],
        "16,2,1,512;",
        "",
        "300,400",
    ),
    (
        "BNSD",
        [0, 16, 1],
        &[
            (0, "2,16,1,512"),
            (1, "64,1,128,512"),
            (2, "64,1,128,512"),
            TABLE,
            (24, "2,16,1,64"),
            (25, "64,1,128,64"),
        ],
        "2,16,1,512;2,16,1,1",
        "",
        "300,400",
    ),
    (
        "BSND_NBSD",
        [0, 16, 1],
        &[
            (0, "2,1,16,512"),
            (1, "64,1,128,512"),
            (2, "64,1,128,512"),
            TABLE,
            (24, "2,1,16,64"),
            (25, "64,1,128,64"),
        ],
        "16,2,1,512;",
        "",
        "300,400",
    ),
    (
        "BSND",
        [0, 16, 1],
        &[
            (0, "2,1,16,512"),
            (1, "64,1,128,512"),
            (2, "64,1,128,512"),
            TABLE,
            (24, "2,1,16,64"),
            (25, "64,1,128,64"),
        ],
        "2,1,16,512;2,16,1,1",
        "",
        "300,400",
    ),
    (
        "BSND_NBSD",
        [0, 16, 1],
        &[
            (0, "2,1,16,512"),
            (1, "64,1,32,128,16"),
            (2, "64,1,32,128,16"),
            TABLE,
            (24, "2,1,16,64"),
            (25, "64,1,4,128,16"),
        ],
        "16,2,1,512;",
        "",
        "300,400",
    ),
    ("BNSD", [0, 16, 4], &[(0, "2,16,64,128"), (1, "2,4,90,128"), (2, "2,4,90,128")], "2,16,64,128;", "", ""),
    (
        "BNSD",
        [0, 16, 4],
        &[(0, "2,16,64,128"), (1, "2,4,90,128"), (2, "2,4,90,128")],
        "2,16,64,128;2,16,64,1",
        "",
        "",
    ),
    (
        "BNSD",
        [0, 16, 4],
        &[(0, "2,16,1,128"), (1, "64,4,128,128"), (2, "64,4,128,128"), TABLE],
        "2,16,1,128;",
        "",
        "300,400",
    ),
    // A cache of INT8, with scales.
    (
        "BNSD",
        [0, 16, 4],
        &[
            (0, "2,16,1,128"),
            (1, "64,4,4,128,32"),
            (2, "64,4,4,128,32"),
            TABLE,
            (17, "4,1,128"),
            (19, "4,1,128"),
        ],
        "2,16,1,128;",
        "",
        "300,400",
    ),
    C8_DECODE,
];

/// A decode step over a cache of INT8 with the dimensions of all heads in a row, with scales and offsets.
const C8_DECODE: AttentionRow = (
    "BNSD",
    [0, 16, 4],
    &[
        (0, "2,16,1,128"),
        (1, "64,128,512"),
        (2, "64,128,512"),
        TABLE,
        (17, "1,4,1,128"),
        (18, "1,4,1,128"),
        (19, "1,4,1,128"),
        (20, "1,4,1,128"),
    ],
    "2,16,1,128;",
    "",
    "300,400",
);

/// Calls that are wrong in one place, and the reasons why they are refused.
const WRONG: [(AttentionRow, &str); 10] = [
    (
        (
            "TND",
            [3, 16, 16],
            &[(0, "12,16,128"), (1, "12,16,128"), (2, "12,16,128"), MASK, (24, "12,16,64"), (25, "12,16,64")],
            "12,16,128;16,12",
            "5,12",
            "5,12",
        ),
        "output 1 is [16,12], the inputs give [12,16,1]",
    ),
    (
        (
            "TND",
            [0, 16, 4],
            &[(0, "12,16,128"), (1, "40,4,128"), (2, "40,4,128"), MASK],
            "12,16,128;",
            "5,12",
            "15,40",
        ),
        "packed and 1 more: input 4: the rule leaves it out",
    ),
    (
        (
            "TND",
            [0, 16, 4],
            &[(0, "12,16,128"), (1, "40,4,128"), (2, "40,4,128")],
            "12,16,128;",
            "5,12",
            "15,39",
        ),
        "last(actual_seq_lengths_kv_values) == S` does not hold",
    ),
    (
        (
            "TND_NTD",
            [3, 16, 1],
            &[
                (0, "4,16,512"),
                (1, "64,1,128,512"),
                (2, "64,1,128,512"),
                MASK,
                TABLE,
                (24, "4,16,64"),
                (25, "64,1,128,64"),
            ],
            "4,16,512;",
            "2,4",
            "300,400",
        ),
        "output 0 is [4,16,512], the inputs give [16,4,512]",
    ),
    (
        (
            "BNSD",
            [0, 16, 4],
            &[
                (0, "2,16,1,128"),
                (1, "64,4,4,128,32"),
                (2, "64,4,4,128,32"),
                TABLE,
                (17, "4,1,128"),
                (19, "4,1,64"),
            ],
            "2,16,1,128;",
            "",
            "300,400",
        ),
        "D is both 128 and 64",
    ),
    (
        (
            "BNSD",
            [0, 16, 4],
            &[(0, "2,16,1,128"), (1, "64,4,4,128,32"), (2, "64,4,4,128,32"), TABLE],
            "2,16,1,128;",
            "",
            "300,400",
        ),
        "BNSD, paged INT8 blocks of 32: 15 input slots are recorded",
    ),
    (
        (
            "BNSD",
            [0, 16, 4],
            &[(0, "2,16,1,128"), (1, "64,4,128,128"), (2, "64,4,128,128"), TABLE],
            "2,16,1,128;",
            "",
            "300,1025",
        ),
        "max(actual_seq_lengths_kv_values) <= W * L` does not hold",
    ),
    (
        (
            "BSND_NBSD",
            [0, 16, 1],
            &[
                (0, "2,1,16,512"),
                (1, "64,1,16,128,16"),
                (2, "64,1,16,128,16"),
                TABLE,
                (24, "2,1,16,64"),
                (25, "64,1,4,128,16"),
            ],
            "16,2,1,512;",
            "",
            "300,400",
        ),
        "`16 * C == D and 16 * E == R` does not hold",
    ),
    (
        (
            "BNSD",
            [0, 16, 4],
            &[
                (0, "2,16,1,128"),
                (1, "64,128,256"),
                (2, "64,128,256"),
                TABLE,
                (17, "1,4,1,128"),
                (18, "1,4,1,128"),
                (19, "1,4,1,128"),
                (20, "1,4,1,128"),
            ],
            "2,16,1,128;",
            "",
            "300,400",
        ),
        "`K * D == R` does not hold",
    ),
    (
        (
            "SH",
            [0, 16, 4],
            &[(0, "2,16,64,128"), (1, "2,4,90,128"), (2, "2,4,90,128")],
            "2,16,64,128;",
            "",
            "",
        ),
        "`Runtime input_layout` is SH, not BNSD",
    ),
];

fn attention_row(row: &AttentionRow) -> PlainRow {
    let (layout, [sparse_mode, heads, kv_heads], slots, outputs, queries, keys) = *row;
    let is_cached_as_int8 = slots.iter().any(|(slot, _)| *slot == 17);
    let mut plain = PlainRow::new(FIA, 31);
    for (slot, shape) in slots {
        let dtype = match slot {
            4 => "INT8",
            14 => "INT32",
            1 | 2 if is_cached_as_int8 => "INT8",
            _ => "DT_BF16",
        };
        plain.set_input(*slot, shape, dtype);
    }
    let block_size = match slots.iter().find(|(slot, _)| *slot == 14) {
        Some(_) => "128",
        None => "0",
    };
    for (slot, column, lengths) in
        [(5, "actual_seq_lengths_values", queries), (6, "actual_seq_lengths_kv_values", keys)]
    {
        if !lengths.is_empty() {
            plain.set_input(slot, &lengths.split(',').count().to_string(), "INT64");
            plain.set_attribute(column, lengths);
        }
    }
    for (column, value) in [
        ("input_layout", layout.to_owned()),
        ("sparse_mode", sparse_mode.to_string()),
        ("num_heads", heads.to_string()),
        ("num_key_value_heads", kv_heads.to_string()),
        ("block_size", block_size.to_owned()),
    ] {
        plain.set_attribute(column, &value);
    }
    plain.outputs(outputs, "DT_BF16;FLOAT")
}

/// Calls of a ring: the first one, and one with the partial results of an earlier one. Profiles show the second output
/// with and without dimensions.
fn ring_rows() -> Vec<PlainRow> {
    let outputs = [("12,16,128;", "DT_BF16;UNDEFINED"), ("12,16,128;16,12", "DT_BF16;FLOAT")];
    let rows = outputs.iter().flat_map(|(shapes, dtypes)| {
        [12, 40].map(|keys| {
            let mut row = PlainRow::new(RING, 15);
            for (slot, shape) in [
                (0, "12,16,128".to_owned()),
                (1, "12,16,64".to_owned()),
                (2, format!("{keys},16,128")),
                (3, format!("{keys},16,64")),
                (4, format!("{keys},16,128")),
                (5, "512,512".to_owned()),
            ] {
                row.set_input(slot, &shape, "DT_BF16");
            }
            if keys == 40 {
                row.set_input(13, "12,16,128", "DT_BF16");
                row.set_input(14, "16,12", "FLOAT");
            }
            row.outputs(shapes, dtypes)
        })
    });
    rows.collect()
}

/// A write of eight tokens to the caches.
fn cache_row(width: u64, is_output_kv: &str) -> PlainRow {
    let (latent, rope) = (width - 64, 64);
    let mut row = PlainRow::new(CACHE, 12);
    for (slot, shape) in [
        (0, format!("8,1,1,{width}")),
        (1, latent.to_string()),
        (2, format!("8,1,1,{rope}")),
        (3, format!("8,1,1,{rope}")),
        (5, format!("16,128,1,{rope}")),
        (6, format!("16,128,1,{latent}")),
    ] {
        row.set_input(slot, &shape, "DT_BF16");
    }
    row.set_input(4, "8", "INT64");
    row.set_attribute("is_output_kv", is_output_kv);
    let shapes = format!("16,128,1,{rope};16,128,1,{latent};8,1,1,{rope};8,1,1,{latent}");
    row.outputs(&shapes, "DT_BF16;DT_BF16;DT_BF16;DT_BF16")
}

fn every_row() -> Vec<PlainRow> {
    let cache = ["", "True", "False"].map(|is_output_kv| cache_row(576, is_output_kv));
    let in_blocks = ["", "False"].map(|is_output_kv| {
        let mut row = cache_row(576, is_output_kv);
        row.set_attribute("cache_mode", "PA_NZ");
        row
    });
    ATTENTION.iter().map(attention_row).chain(ring_rows()).chain(cache).chain(in_blocks).collect()
}

/// A call with an argument recorded for its precision, of a cache in blocks of INT8 or of another one.
fn row_with_precision(is_in_blocks: bool, inner_precise: &str) -> PlainRow {
    let row = ATTENTION.iter().find(|row| is_in_blocks && row.2.contains(&(1, "64,4,4,128,32")));
    let mut row = attention_row(row.unwrap_or(&C8_DECODE));
    row.set_attribute("inner_precise", inner_precise);
    row
}

/// The vendor's kernel takes a cache in blocks of INT8 only with the value 1; the other calls leave it at 0.
#[test]
fn recorded_precision_is_that_of_the_call() {
    let context = Context::new();
    write_database(&context, &[row_with_precision(true, "1"), row_with_precision(false, "0")]);
    let ran = context.run(&["run", "--db", "db", "--host", "rehearsal", "--devices", "0"]);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    for row in context.rows("db", FIA) {
        assert_eq!(row["MicroBench Verdict"], "ok", "{}", row["Input Shapes"]);
    }
    for (is_in_blocks, value, expected) in [(true, "0", "1"), (false, "1", "0")] {
        let context = Context::new();
        write_database(&context, &[row_with_precision(is_in_blocks, value)]);
        let ran = context.run(&["render", FIA, "--db", "db", "--manifest"]);
        let reason = format!("`Runtime inner_precise` is {value}, the entry has only calls with {expected}");
        assert!(ran.code != 0 && ran.stderr.contains(&reason), "{reason}: {}", ran.stderr);
    }
}

#[test]
fn forms_of_serving_frameworks_are_replayed() {
    let context = Context::new();
    write_database(&context, &every_row());
    let ran = context.run(&["run", "--db", "db", "--host", "rehearsal", "--devices", "0-1"]);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    let count = every_row().len().to_string();
    let all = ran.stdout.lines().find(|line| line.trim_start().starts_with("all ")).unwrap_or_default();
    assert_eq!(all.split_whitespace().collect::<Vec<_>>(), ["all", &count, &count], "{}", ran.stdout);
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
        let cases = manifest["cases"].as_array().expect("cases");
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
    let wrong = WRONG.iter().map(|(row, reason)| (attention_row(row), *reason)).chain([
        (ring(14, "12,16", "FLOAT"), "N is both 16 and 12"),
        (ring(14, "16,12", "DT_BF16"), "input 14 (prev_lse) is DT_BF16, the kernel takes FLOAT"),
        (ring(13, "", ""), "input slot 13 is empty, the call needs it"),
        (cache_row(320, ""), "`C == 512 and R == 64` does not hold"),
        (cache_row(576, "maybe"), "`Runtime is_output_kv` is maybe, not True"),
    ]);
    for (row, reason) in wrong {
        let context = Context::new();
        write_database(&context, std::slice::from_ref(&row));
        let ran = context.run(&["render", row.kernel, "--db", "db", "--manifest"]);
        assert_ne!(ran.code, 0, "accepted instead of: {reason}");
        assert!(ran.stderr.contains(reason), "{reason}: {}", ran.stderr);
    }
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
