//! Rows of the forms of attention.

use super::{CACHE, FIA, RING};
use crate::plain_rows::PlainRow;

/// A call of fused attention: layout, sparse mode, heads, heads of keys; input slots with their shapes; outputs; and
/// the lengths of queries and keys.
pub(super) type AttentionRow =
    (&'static str, [u64; 3], &'static [(usize, &'static str)], &'static str, &'static str, &'static str);

pub(super) const MASK: (usize, &str) = (4, "2048,2048");
pub(super) const TABLE: (usize, &str) = (14, "2,8");

/// Two sequences of each form.
pub(super) const ATTENTION: [AttentionRow; 21] = [
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
pub(super) const C8_DECODE: AttentionRow = (
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

pub(super) fn attention_row(row: &AttentionRow) -> PlainRow {
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
pub(super) fn ring_rows() -> Vec<PlainRow> {
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
pub(super) fn cache_row(width: u64, is_output_kv: &str) -> PlainRow {
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

pub(super) fn every_row() -> Vec<PlainRow> {
    let cache = ["", "True", "False"].map(|is_output_kv| cache_row(576, is_output_kv));
    let in_blocks = ["", "False"].map(|is_output_kv| {
        let mut row = cache_row(576, is_output_kv);
        row.set_attribute("cache_mode", "PA_NZ");
        row
    });
    ATTENTION.iter().map(attention_row).chain(ring_rows()).chain(cache).chain(in_blocks).collect()
}
