//! A run as a trace that Perfetto and chrome://tracing open: a track for each device, a slice for each collection,
//! and the verdicts as counters.
//!
//! The format is the JSON trace event format: complete events (`"ph":"X"`), metadata (`"M"`), counters (`"C"`);
//! times are microseconds, here since the run began.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{self, BufReader},
    path::{Path, PathBuf},
};

use serde::Deserialize;
use serde_json::{Value, json};

use super::{PastRun, RunStatus, Timestamp};
use crate::{
    domain::{CaseId, KernelName, Nanos},
    files::{FileError, write_atomic},
    ledger::{CaseRecord, CollectionRecord},
};

/// Tells our files from others.
const TOOL: &str = "npubench";
/// The process of all tracks.
const PROCESS: u32 = 1;

/// Why a timeline is not written.
#[derive(Debug, thiserror::Error)]
pub enum TimelineError {
    /// Something else stands there.
    #[error("`{}` is there already, and is no timeline of npubench", .path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be written.
    #[error(transparent)]
    File(#[from] FileError),
}

impl TimelineError {
    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::Foreign { .. } => "give another name, or remove the file".to_owned(),
            Self::File(error) => error.hint(),
        }
    }
}

/// The trace of a run.
#[must_use]
pub fn timeline(past: &PastRun, collections: &[CollectionRecord], cases: &[CaseRecord]) -> String {
    let start = past.record.started;
    let mut events = tracks(&past.record.run, collections);
    let kernels: BTreeMap<&CaseId, &KernelName> =
        cases.iter().map(|case| (&case.case, &case.kernel)).collect();
    let end = last_moment(past, collections);
    for collection in collections {
        events.extend(slices(collection, &kernels, start, end, past.life));
    }
    events.extend(counters(cases, start));
    let lines: Vec<String> = events.iter().map(ToString::to_string).collect();
    let about = json!({
        "tool": TOOL, "run": past.record.run, "kind": past.record.kind, "started": Timestamp(start),
    });
    format!(
        "{{\"otherData\":{about},\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n{}\n]}}\n",
        lines.join(",\n")
    )
}

/// Writes a trace; replaces an older one, and nothing else.
///
/// # Errors
/// [`TimelineError`]; what was there is then as it was.
pub fn write_timeline(path: &Path, trace: &str) -> Result<(), TimelineError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct TraceHead {
        other_data: TraceMetadata,
    }
    #[derive(Deserialize)]
    struct TraceMetadata {
        tool: String,
    }
    // Reading a pipe would wait for whoever writes into it.
    if path.metadata().is_ok_and(|found| !found.is_file()) {
        return Err(TimelineError::Foreign { path: path.to_owned() });
    }
    match File::open(path) {
        Ok(file) => {
            let head: Option<TraceHead> = serde_json::from_reader(BufReader::new(file)).ok();
            if head.is_none_or(|head| head.other_data.tool != TOOL) {
                return Err(TimelineError::Foreign { path: path.to_owned() });
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(_) => return Err(TimelineError::Foreign { path: path.to_owned() }),
    }
    Ok(write_atomic(path, trace.as_bytes())?)
}

/// Perfetto takes thread 0 for the idle one.
const fn track(device: u32) -> u32 {
    device + 1
}

fn micros(at: Nanos, start: Nanos) -> f64 {
    Nanos(at.0.saturating_sub(start.0)).micros()
}

/// The names of the tracks, in the order of devices.
fn tracks(run: &str, collections: &[CollectionRecord]) -> Vec<Value> {
    let devices: BTreeSet<u32> = collections.iter().flat_map(|one| one.devices.iter().copied()).collect();
    let name = |device: u32| {
        let (thread, label) = (track(device), format!("device {device}"));
        [
            json!({"ph": "M", "name": "thread_name", "pid": PROCESS, "tid": thread, "args": {"name": label}}),
            json!({"ph": "M", "name": "thread_sort_index", "pid": PROCESS, "tid": thread,
                   "args": {"sort_index": device}}),
        ]
    };
    let process = json!({"ph": "M", "name": "process_name", "pid": PROCESS, "args": {"name": run}});
    std::iter::once(process).chain(devices.into_iter().flat_map(name)).collect()
}

/// The last moment that is known of a run: collections that were cut off end there.
fn last_moment(past: &PastRun, collections: &[CollectionRecord]) -> Nanos {
    if past.life == RunStatus::Running {
        return Timestamp::now().0;
    }
    let said = past.status.as_ref().map(|status| status.written.0);
    let known = collections.iter().flat_map(|one| [Some(one.started), one.ended]).flatten();
    known.chain(past.record.ended).chain(said).max().unwrap_or(past.record.started)
}

/// A slice on the track of each device of a collection.
fn slices(
    collection: &CollectionRecord,
    kernels: &BTreeMap<&CaseId, &KernelName>,
    start: Nanos,
    end: Nanos,
    life: RunStatus,
) -> Vec<Value> {
    let CollectionRecord { number, devices, purpose, predicted, started, ended, outcome, cases } = collection;
    let names: BTreeSet<&str> =
        cases.iter().filter_map(|case| kernels.get(case).map(|kernel| kernel.as_str())).collect();
    let cut = if life == RunStatus::Running { "running" } else { "cut off" };
    let outcome = outcome.as_deref().unwrap_or(cut);
    let length = micros(ended.unwrap_or(end), *started).max(0.0);
    let ids: Vec<&str> = cases.iter().map(CaseId::as_str).collect();
    let slice = |&device: &u32| {
        json!({
            "ph": "X", "name": format!("{number} {purpose}"), "cat": purpose.as_str(),
            "pid": PROCESS, "tid": track(device), "ts": micros(*started, start), "dur": length,
            "args": {
                "collection": number, "purpose": purpose, "outcome": outcome, "predicted_s": predicted,
                "cases": cases.len(), "case_ids": ids, "kernels": names,
            },
        })
    };
    devices.iter().map(slice).collect()
}

/// How many cases have each verdict, at each moment when one got it.
fn counters(cases: &[CaseRecord], start: Nanos) -> Vec<Value> {
    let mut steps: BTreeMap<Nanos, Vec<&'static str>> = BTreeMap::new();
    for case in cases {
        if let (Some(at), Some(finding)) = (case.concluded, &case.finding) {
            steps.entry(at).or_default().push(finding.verdict.as_str());
        }
    }
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    let step = |(at, verdicts): (Nanos, Vec<&'static str>)| {
        for verdict in verdicts {
            *counts.entry(verdict).or_default() += 1;
        }
        json!({"ph": "C", "name": "verdicts", "pid": PROCESS, "ts": micros(at, start), "args": counts})
    };
    steps.into_iter().map(step).collect()
}
