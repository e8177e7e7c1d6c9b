//! State of a run as text.

use std::collections::BTreeSet;

use crate::{
    base::count_text::format_count,
    database::ledger::CollectionRecord,
    kernel::timestamp::{Timestamp, format_clock},
    show::{
        run_lines::device_ranges,
        runs::{PastRun, verdict_counts},
    },
};

/// Returns the text below the table: state of the run, cases by verdict, collections, folder.
pub(crate) fn run_summary(past: &PastRun, collections: &[CollectionRecord], now: Timestamp) -> String {
    let record = &past.record;
    let devices: BTreeSet<u32> = collections.iter().flat_map(|one| one.devices.iter().copied()).collect();
    let devices: Vec<u32> = devices.into_iter().collect();
    let on = match devices.as_slice() {
        [] => String::new(),
        [one] => format!(" on device {one}"),
        _ => format!(" on devices {}", device_ranges(&devices)),
    };
    let elapsed = past
        .elapsed_seconds(now)
        .map_or_else(String::new, |seconds| format!(", {} elapsed", format_clock(seconds)));
    let verdicts = if record.planned == 0 { String::new() } else { format!(": {}", verdict_counts(record)) };
    format!(
        "run {} ({}), {}, started {}{elapsed}\n{}{verdicts}; {}{on}\nlogs, scripts and raw output are in {}\n",
        record.run,
        record.kind,
        past.state,
        Timestamp(record.started).local_date_time(),
        format_count(record.planned, "case"),
        format_count(collections.len(), "collection"),
        past.folder.display(),
    )
}
