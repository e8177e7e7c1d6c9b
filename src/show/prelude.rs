//! What most files of this folder use.

pub(super) use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

pub(super) use schemars::JsonSchema;
pub(super) use serde::Serialize;
pub(super) use serde_json::value::RawValue;

pub(super) use super::{
    cells::{
        counted, decimals3, float, joined, micros, millis, or_dash, or_empty, percent, signed, unless_zero,
        with_counts, yes_no,
    },
    emit::{json_record, record},
    table::{DETAIL, Table, rank},
};
pub(super) use crate::{
    base::{
        count_text::format_count,
        print::{print_data, print_note, print_warning},
    },
    kernel::{
        CacheState, CaseId, Cause, DataKind, Dtype, KernelName, Nanos, Verdict,
        timestamp::{Timestamp, format_clock, format_duration},
    },
};
