//! The cases of a run, as JSON objects or as a table with a summary.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use serde::Serialize;

use super::{
    PastRun, Timestamp,
    history::verdict_counts,
    recorder::{case_log, collection_log},
    summary_tables::{align_right, plain_table, trim_lines},
    text::{device_ranges, format_count},
    timestamp::format_clock,
};
use crate::{
    domain::{CaseId, KernelName, RUNTIME, Verdict, signature_attributes, split_signature},
    ledger::{CaseRecord, CollectionRecord},
};

/// A case of a run. The fields are in the order of the JSON keys.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ShownCase {
    pub case: CaseId,
    pub kernel: KernelName,
    /// Verdict; `None` while the case is open.
    pub verdict: Option<Verdict>,
    pub reason: Option<String>,
    /// Device of the last attempt; of a gang the first one.
    pub device: Option<u32>,
    pub attempts: usize,
    /// Numbers of the collections of the attempts.
    pub collections: Vec<u32>,
    /// Inputs as in the canonical signature.
    pub inputs: String,
    /// Outputs as in the canonical signature.
    pub outputs: String,
    /// Attributes as in the canonical signature, such as `EP Size=16`; empty without any.
    pub(crate) attributes: String,
    /// Log of the last attempt; the link named by the case if its verdict is not `ok`.
    pub log: Option<PathBuf>,
}

/// Returns the cases of a run in the order of its plan.
pub(crate) fn shown_cases(cases: Vec<CaseRecord>, folder: &Path) -> Vec<ShownCase> {
    cases.into_iter().map(|case| shown_case(case, folder)).collect()
}

fn shown_case(record: CaseRecord, folder: &Path) -> ShownCase {
    let CaseRecord { case, kernel, signature, outcome, attempts, .. } = record;
    let (verdict, reason) = outcome.map(|outcome| (outcome.verdict, outcome.reason)).unzip();
    let last = attempts.last();
    let log = last.map(|attempt| {
        let by_name = folder.join(case_log(&case, attempt.collection));
        let is_there = !verdict.is_some_and(Verdict::is_done) && fs::symlink_metadata(&by_name).is_ok();
        if is_there { by_name } else { folder.join(collection_log(attempt.collection)) }
    });
    let (inputs, outputs) = split_signature(&kernel, &signature);
    ShownCase {
        attributes: signature_attributes(&kernel, &signature).to_owned(),
        inputs: inputs.to_owned(),
        outputs: outputs.to_owned(),
        device: last.map(|attempt| attempt.device),
        attempts: attempts.len(),
        collections: attempts.iter().map(|attempt| attempt.collection).collect(),
        case,
        kernel,
        verdict,
        reason,
        log,
    }
}

/// Kernel, inputs, outputs and attributes of a case, as in its signature.
pub(super) type SignatureParts<'a> = [&'a str; 4];

/// Returns for each case the inputs, followed by the attributes that other cases of the kernel with the same inputs and outputs
/// do not have, without the prefix of runtime columns.
pub(super) fn distinguishable_inputs(cases: &[SignatureParts<'_>]) -> Vec<String> {
    let attributes = |case: usize| cases[case][3].split(';').filter(|attribute| !attribute.is_empty());
    let mut alike: BTreeMap<&[&str], Vec<usize>> = BTreeMap::new();
    for (index, case) in cases.iter().enumerate() {
        alike.entry(&case[..3]).or_default().push(index);
    }
    let mut texts: Vec<String> = cases.iter().map(|case| case[1].to_owned()).collect();
    for group in alike.into_values().filter(|group| group.len() > 1) {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        let all = group.iter().copied().flat_map(attributes);
        all.for_each(|attribute| *counts.entry(attribute).or_default() += 1);
        for &case in &group {
            for attribute in attributes(case).filter(|attribute| counts[attribute] < group.len()) {
                texts[case] += " ";
                texts[case] += attribute.strip_prefix(RUNTIME).unwrap_or(attribute);
            }
        }
    }
    texts
}

pub(crate) fn cases_table(cases: &[ShownCase], folder: &Path) -> String {
    let has_logs =
        |case: &ShownCase| case.verdict.is_some_and(|verdict| !verdict.is_done()) && case.log.is_some();
    let has_log = cases.iter().any(has_logs);
    let header = ["case", "kernel", "inputs", "verdict", "device", "attempts", "collections", "reason"];
    let mut table = plain_table(header.into_iter().chain(has_log.then_some("log")));
    let parts =
        cases.iter().map(|case| [case.kernel.as_str(), &case.inputs, &case.outputs, &case.attributes]);
    let parts: Vec<SignatureParts<'_>> = parts.collect();
    for (case, inputs) in cases.iter().zip(distinguishable_inputs(&parts)) {
        let collections: Vec<String> = case.collections.iter().map(ToString::to_string).collect();
        let log = case.log.as_ref().filter(|_| has_logs(case));
        let log = log.map(|log| log.strip_prefix(folder).unwrap_or(log).display().to_string());
        let cells = [
            case.case.to_string(),
            case.kernel.to_string(),
            inputs,
            case.verdict.map_or("open", Verdict::as_str).to_owned(),
            case.device.map_or_else(String::new, |device| device.to_string()),
            case.attempts.to_string(),
            collections.join(","),
            case.reason.clone().unwrap_or_default(),
        ];
        table.add_row(cells.into_iter().chain(has_log.then(|| log.unwrap_or_default())));
    }
    align_right(&mut table, 4..7);
    trim_lines(&table)
}

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
