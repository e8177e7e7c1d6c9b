//! Trace of a run in the JSON trace event format, for Perfetto and chrome://tracing: a track per device, a slice per collection
//! (`"ph":"X"`), and counters of verdicts (`"C"`). Times are microseconds since the start of the run.

use std::{
    fs::File,
    io::{self, BufReader},
};

use serde::Deserialize;

use super::prelude::*;
use crate::{
    base::{
        command_error::CommandError,
        files::{open_regular, write_atomic},
    },
    database::ledger::CaseRecord,
    show::runs::RunStatus,
};

const TOOL: &str = "npubench";
const PROCESS: u32 = 1;

pub(crate) fn timeline_json(
    past: &PastRun,
    collections: &[CollectionRecord],
    cases: &[CaseRecord],
) -> String {
    let start = past.record.started;
    let mut events = track_events(&past.record.run, collections);
    let kernels: BTreeMap<&CaseId, &KernelName> =
        cases.iter().map(|case| (&case.case, &case.kernel)).collect();
    let end = last_known_time(past, collections);
    for collection in collections {
        events.extend(collection_slices(collection, &kernels, start, end, past.state));
    }
    events.extend(verdict_counters(cases, start));
    let lines: Vec<String> = events.iter().map(ToString::to_string).collect();
    let metadata = json!({
        "tool": TOOL, "run": past.record.run, "kind": past.record.kind, "started": Timestamp(start),
    });
    let trace = format!(
        "{{\"otherData\":{metadata},\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n{}\n]}}\n",
        lines.join(",\n")
    );
    printable_json(&trace).into_owned()
}

/// Writes a trace. An older trace is replaced, any other file is not. Fails for another file, and if it cannot be
/// written; the file is then unchanged.
pub(crate) fn write_timeline(path: &Path, trace: &str) -> Result<(), CommandError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct TraceHead {
        other_data: TraceMetadata,
    }
    #[derive(Deserialize)]
    struct TraceMetadata {
        tool: String,
    }
    let is_trace = |file: File| {
        let head = serde_json::from_reader(BufReader::new(file));
        head.is_ok_and(|head: TraceHead| head.other_data.tool == TOOL)
    };
    let is_foreign = match open_regular(path) {
        Ok(file) => !is_trace(file),
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    };
    if is_foreign {
        return Err(CommandError::bad_input(
            format!("`{}` exists and is not a timeline of npubench", path.display()),
            "give another path, or remove the file",
        ));
    }
    Ok(write_atomic(path, trace.as_bytes())?)
}

/// Returns the thread id of the track of a device; Perfetto treats thread 0 as the idle thread.
const fn track_id(device: u32) -> u32 {
    device + 1
}

fn micros_since(at: Nanos, start: Nanos) -> f64 {
    Nanos(at.0.saturating_sub(start.0)).micros()
}

fn track_events(run: &str, collections: &[CollectionRecord]) -> Vec<Value> {
    let devices: BTreeSet<u32> = collections.iter().flat_map(|one| one.devices.iter().copied()).collect();
    let name = |device: u32| {
        let (thread, label) = (track_id(device), format!("device {device}"));
        [
            json!({"ph": "M", "name": "thread_name", "pid": PROCESS, "tid": thread, "args": {"name": label}}),
            json!({"ph": "M", "name": "thread_sort_index", "pid": PROCESS, "tid": thread,
                   "args": {"sort_index": device}}),
        ]
    };
    let process = json!({"ph": "M", "name": "process_name", "pid": PROCESS, "args": {"name": run}});
    std::iter::once(process).chain(devices.into_iter().flat_map(name)).collect()
}

fn last_known_time(past: &PastRun, collections: &[CollectionRecord]) -> Nanos {
    if past.state == RunStatus::Running {
        return Timestamp::now().0;
    }
    let written = past.last_status.as_ref().map(|status| status.written.0);
    let known = collections.iter().flat_map(|one| [Some(one.started), one.ended]).flatten();
    known.chain(past.record.ended).chain(written).max().unwrap_or(past.record.started)
}

fn collection_slices(
    collection: &CollectionRecord,
    kernels: &BTreeMap<&CaseId, &KernelName>,
    start: Nanos,
    end: Nanos,
    state: RunStatus,
) -> Vec<Value> {
    let CollectionRecord { number, devices, purpose, predicted, started, ended, outcome, cases } = collection;
    let names: BTreeSet<&str> =
        cases.iter().filter_map(|case| kernels.get(case).map(|kernel| kernel.as_str())).collect();
    let unfinished = if state == RunStatus::Running { "running" } else { "interrupted" };
    let outcome = outcome.as_deref().unwrap_or(unfinished);
    let length = micros_since(ended.unwrap_or(end), *started).max(0.0);
    let ids: Vec<&str> = cases.iter().map(CaseId::as_str).collect();
    let slice = |&device: &u32| {
        json!({
            "ph": "X", "name": format!("{number} {purpose}"), "cat": purpose.to_string(),
            "pid": PROCESS, "tid": track_id(device), "ts": micros_since(*started, start), "dur": length,
            "args": {
                "collection": number, "purpose": purpose, "outcome": outcome, "predicted_s": predicted,
                "cases": cases.len(), "case_ids": ids, "kernels": names,
            },
        })
    };
    devices.iter().map(slice).collect()
}

/// Returns counter events with the number of cases by verdict, at each time at which a case got its verdict.
fn verdict_counters(cases: &[CaseRecord], start: Nanos) -> Vec<Value> {
    let mut steps: BTreeMap<Nanos, Vec<&'static str>> = BTreeMap::new();
    for case in cases {
        if let (Some(at), Some(outcome)) = (case.concluded, &case.outcome) {
            steps.entry(at).or_default().push(outcome.verdict.as_str());
        }
    }
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    let step = |(at, verdicts): (Nanos, Vec<&'static str>)| {
        for verdict in verdicts {
            *counts.entry(verdict).or_default() += 1;
        }
        json!({"ph": "C", "name": "verdicts", "pid": PROCESS, "ts": micros_since(at, start), "args": counts})
    };
    steps.into_iter().map(step).collect()
}
