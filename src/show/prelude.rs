//! What most files of this folder use.

pub(super) use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

pub(super) use schemars::JsonSchema;
pub(super) use serde::Serialize;
pub(super) use serde_json::{Value, json, value::RawValue};

pub(super) use super::{
    cases::ShownCase,
    cells::{
        counted, decimals3, float, joined, micros, millis, or_dash, or_empty, percent, signed, unless_zero,
        with_counts, yes_no,
    },
    emit::{csv_text, json_record, record},
    run_results::{RunResults, ratio_range, seconds_between},
    runs::PastRun,
    svg::{Plot, PlotArea},
    table::{DETAIL, Table, rank},
};

pub(super) use crate::{
    answer::coverage::{CoverageGap, InModelKernel},
    base::{
        assets::AssetFiles,
        count_text::format_count,
        print::{print_data, print_note, print_warning},
        printable::{printable, printable_json},
    },
    database::{
        Database,
        ledger::{CollectionRecord, Ledger},
    },
    kernel::{
        CacheState, CaseId, Cause, DataKind, Dtype, KernelName, Nanos, Verdict,
        collective::CommNetwork,
        render::{RenderError, render_template},
        timestamp::{Timestamp, format_clock, format_duration},
    },
    measure::{
        case_numbers::RunNumbers,
        collective::size_text,
        run_state::{DeviceActivity, DeviceStatus, RunStatusFile},
    },
    profile::timeline::{ComparedCall, RunTimeline},
};
