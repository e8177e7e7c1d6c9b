//! Rows of the forms of attention.

use super::{CACHE, FIA, RING};
use crate::plain_rows::PlainRow;

/// Calls of fused attention with two sequences of each form: layout; sparse mode, heads and heads of keys; input slots with
/// their shapes; outputs; and the lengths of queries and keys.
pub(super) const ATTENTION: [&str; 21] = [
    // Prompts of latent attention, with and without the log-sum-exp, and parts of their context.
    "TND 3,16,16 0:12,16,128 1:12,16,128 2:12,16,128 4:2048,2048 24:12,16,64 25:12,16,64 -> 12,16,128;12,16,1 queries 5,12 keys 5,12",
    "TND 3,16,16 0:12,16,128 1:12,16,128 2:12,16,128 4:2048,2048 24:12,16,64 25:12,16,64 -> 12,16,128; queries 5,12 keys 5,12",
    "TND 0,16,16 0:12,16,128 1:40,16,128 2:40,16,128 24:12,16,64 25:40,16,64 -> 12,16,128;12,16,1 queries 5,12 keys 15,40",
    "TND 3,16,16 0:12,16,192 1:12,16,192 2:12,16,192 4:2048,2048 -> 12,16,192;12,16,1 queries 5,12 keys 5,12",
    // Without a mask.
    "TND 0,16,4 0:12,16,128 1:40,4,128 2:40,4,128 -> 12,16,128; queries 5,12 keys 15,40",
    "TND 0,16,4 0:12,16,128 1:40,4,128 2:40,4,128 -> 12,16,128;12,16,1 queries 5,12 keys 15,40",
    "TND 0,16,4 0:2,16,128 1:64,128,512 2:64,128,512 14:2,8 -> 2,16,128;2,16,1 queries 1,2 keys 300,400",
    "TND 0,16,4 0:2,16,128 1:64,128,512 2:64,128,512 14:2,8 -> 2,16,128; queries 1,2 keys 300,400",
    "TND 3,16,4 0:2,16,128 1:64,4,128,128 2:64,4,128,128 4:2048,2048 14:2,8 -> 2,16,128;2,16,1 queries 1,2 keys 300,400",
    // Latent attention over a cache.
    "TND_NTD 3,16,1 0:4,16,512 1:64,1,128,512 2:64,1,128,512 4:2048,2048 14:2,8 24:4,16,64 25:64,1,128,64 -> 16,4,512; queries 2,4 keys 300,400",
    "TND 3,16,1 0:4,16,512 1:64,1,128,512 2:64,1,128,512 4:2048,2048 14:2,8 24:4,16,64 25:64,1,128,64 -> 4,16,512; queries 2,4 keys 300,400",
    // Without lengths of queries.
    "BNSD_NBSD 0,16,1 0:2,16,1,512 1:64,1,128,512 2:64,1,128,512 14:2,8 24:2,16,1,64 25:64,1,128,64 -> 16,2,1,512; keys 300,400",
    "BNSD 0,16,1 0:2,16,1,512 1:64,1,128,512 2:64,1,128,512 14:2,8 24:2,16,1,64 25:64,1,128,64 -> 2,16,1,512;2,16,1,1 keys 300,400",
    "BSND_NBSD 0,16,1 0:2,1,16,512 1:64,1,128,512 2:64,1,128,512 14:2,8 24:2,1,16,64 25:64,1,128,64 -> 16,2,1,512; keys 300,400",
    "BSND 0,16,1 0:2,1,16,512 1:64,1,128,512 2:64,1,128,512 14:2,8 24:2,1,16,64 25:64,1,128,64 -> 2,1,16,512;2,16,1,1 keys 300,400",
    "BSND_NBSD 0,16,1 0:2,1,16,512 1:64,1,32,128,16 2:64,1,32,128,16 14:2,8 24:2,1,16,64 25:64,1,4,128,16 -> 16,2,1,512; keys 300,400",
    "BNSD 0,16,4 0:2,16,64,128 1:2,4,90,128 2:2,4,90,128 -> 2,16,64,128;",
    "BNSD 0,16,4 0:2,16,64,128 1:2,4,90,128 2:2,4,90,128 -> 2,16,64,128;2,16,64,1",
    "BNSD 0,16,4 0:2,16,1,128 1:64,4,128,128 2:64,4,128,128 14:2,8 -> 2,16,1,128; keys 300,400",
    // A cache of INT8, with scales.
    "BNSD 0,16,4 0:2,16,1,128 1:64,4,4,128,32 2:64,4,4,128,32 14:2,8 17:4,1,128 19:4,1,128 -> 2,16,1,128; keys 300,400",
    C8_DECODE,
];

/// A decode step over a cache of INT8 with the dimensions of all heads in a row, with scales and offsets.
pub(super) const C8_DECODE: &str = "BNSD 0,16,4 0:2,16,1,128 1:64,128,512 2:64,128,512 14:2,8 17:1,4,1,128 18:1,4,1,128 19:1,4,1,128 20:1,4,1,128 -> 2,16,1,128; keys 300,400";

pub(super) fn attention_row(text: &str) -> PlainRow {
    let (call, results) = text.split_once(" -> ").expect("a call and its outputs");
    let mut call = call.split(' ');
    let layout = call.next().expect("a layout");
    let numbers: Vec<&str> = call.next().expect("numbers").split(',').collect();
    let slots = call.map(|slot| slot.split_once(':').expect("a slot and its shape"));
    let slots: Vec<(usize, &str)> =
        slots.map(|(slot, shape)| (slot.parse().expect("a slot"), shape)).collect();
    let results: Vec<&str> = results.split(' ').collect();
    let lengths = |of: &str| results.iter().position(|word| *word == of).map(|at| results[at + 1]);
    let has = |wanted: usize| slots.iter().any(|(slot, _)| *slot == wanted);
    let mut plain = PlainRow::new(FIA, 31);
    for (slot, shape) in &slots {
        let dtype = match slot {
            4 => "INT8",
            14 => "INT32",
            // Scales of a cache of INT8.
            1 | 2 if has(17) => "INT8",
            _ => "DT_BF16",
        };
        plain.set_input(*slot, shape, dtype);
    }
    let of_lengths =
        [(5, "actual_seq_lengths_values", "queries"), (6, "actual_seq_lengths_kv_values", "keys")];
    for (slot, column, of) in of_lengths {
        if let Some(lengths) = lengths(of) {
            plain.set_input(slot, &lengths.split(',').count().to_string(), "INT64");
            plain.set_attribute(column, lengths);
        }
    }
    for (column, value) in [
        ("input_layout", layout),
        ("sparse_mode", numbers[0]),
        ("num_heads", numbers[1]),
        ("num_key_value_heads", numbers[2]),
        ("block_size", if has(14) { "128" } else { "0" }),
    ] {
        plain.set_attribute(column, value);
    }
    plain.outputs(results[0], "DT_BF16;FLOAT")
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
    ATTENTION.into_iter().map(attention_row).chain(ring_rows()).chain(cache).chain(in_blocks).collect()
}

/// Calls that are wrong in one place, and the reasons why they are refused.
pub(super) const WRONG: [&str; 10] = [
    "TND 3,16,16 0:12,16,128 1:12,16,128 2:12,16,128 4:2048,2048 24:12,16,64 25:12,16,64 -> 12,16,128;16,12 queries 5,12 keys 5,12 => output 1 is [16,12], the inputs give [12,16,1]",
    "TND 0,16,4 0:12,16,128 1:40,4,128 2:40,4,128 4:2048,2048 -> 12,16,128; queries 5,12 keys 15,40 => packed and 1 more: input 4: the rule leaves it out",
    "TND 0,16,4 0:12,16,128 1:40,4,128 2:40,4,128 -> 12,16,128; queries 5,12 keys 15,39 => last(actual_seq_lengths_kv_values) == S` does not hold",
    "TND_NTD 3,16,1 0:4,16,512 1:64,1,128,512 2:64,1,128,512 4:2048,2048 14:2,8 24:4,16,64 25:64,1,128,64 -> 4,16,512; queries 2,4 keys 300,400 => output 0 is [4,16,512], the inputs give [16,4,512]",
    "BNSD 0,16,4 0:2,16,1,128 1:64,4,4,128,32 2:64,4,4,128,32 14:2,8 17:4,1,128 19:4,1,64 -> 2,16,1,128; keys 300,400 => D is both 128 and 64",
    "BNSD 0,16,4 0:2,16,1,128 1:64,4,4,128,32 2:64,4,4,128,32 14:2,8 -> 2,16,1,128; keys 300,400 => BNSD, paged INT8 blocks of 32: recorded input slots: 15",
    "BNSD 0,16,4 0:2,16,1,128 1:64,4,128,128 2:64,4,128,128 14:2,8 -> 2,16,1,128; keys 300,1025 => max(actual_seq_lengths_kv_values) <= W * L` does not hold",
    "BSND_NBSD 0,16,1 0:2,1,16,512 1:64,1,16,128,16 2:64,1,16,128,16 14:2,8 24:2,1,16,64 25:64,1,4,128,16 -> 16,2,1,512; keys 300,400 => `16 * C == D and 16 * E == R` does not hold",
    "BNSD 0,16,4 0:2,16,1,128 1:64,128,256 2:64,128,256 14:2,8 17:1,4,1,128 18:1,4,1,128 19:1,4,1,128 20:1,4,1,128 -> 2,16,1,128; keys 300,400 => `K * D == R` does not hold",
    "SH 0,16,4 0:2,16,64,128 1:2,4,90,128 2:2,4,90,128 -> 2,16,64,128; => `Runtime input_layout` is SH, not BNSD",
];
