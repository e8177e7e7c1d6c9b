//! What most files of this folder use.

pub(super) use schemars::JsonSchema;
pub(super) use serde::Serialize;

pub(super) use super::{
    cells::{
        counted, decimals3, float, joined, micros, millis, or_dash, or_empty, percent, signed, unless_zero,
        with_counts, yes_no,
    },
    emit::{json_record, record},
    table::{DETAIL, Table, rank},
};
pub(super) use crate::{
    base::count_text::format_count,
    kernel::timestamp::{Timestamp, format_clock, format_duration},
};
