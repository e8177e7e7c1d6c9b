//! The cases of a run, as JSON objects and as the content of tables.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::Serialize;

use crate::{
    database::ledger::CaseRecord,
    kernel::{CaseId, Cause, KernelName, Verdict, signature_attributes, split_signature},
    measure::case_numbers::{CaseNumbers, RunNumbers},
    measure::recorder::{case_log, collection_log},
};

/// A case of a run. The fields are in the order of the JSON keys.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ShownCase {
    pub case: CaseId,
    pub kernel: KernelName,
    /// Verdict; `None` while the case is open.
    pub verdict: Option<Verdict>,
    pub reason: Option<String>,
    /// Name of the cause.
    pub(crate) cause: Option<&'static str>,
    /// The cause itself.
    #[serde(skip)]
    pub(crate) finding: Option<Cause>,
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
    /// Median and its 95 % interval.
    pub(crate) median_us: Option<f64>,
    pub(crate) interval_us: Option<[f64; 2]>,
    /// Half the width of the interval, relative to its centre.
    pub(crate) half_width_percent: Option<f64>,
    /// Change against the row before the run.
    pub(crate) change_percent: Option<f64>,
    /// Median in production profiles, and the difference of the run's from it.
    pub(crate) production_us: Option<f64>,
    pub(crate) production_percent: Option<f64>,
}

/// Returns the cases of a run in the order of its plan.
pub(crate) fn shown_cases(cases: Vec<CaseRecord>, numbers: &RunNumbers, folder: &Path) -> Vec<ShownCase> {
    let shown = |case: CaseRecord| {
        let numbers = numbers.of_case(&case.case);
        shown_case(case, &numbers, folder)
    };
    cases.into_iter().map(shown).collect()
}

fn shown_case(record: CaseRecord, numbers: &CaseNumbers, folder: &Path) -> ShownCase {
    let CaseRecord { case, kernel, signature, outcome, attempts, .. } = record;
    let (verdict, reason) = outcome.map(|outcome| (outcome.verdict, outcome.reason)).unzip();
    let cause = reason.as_ref().map(|reason| reason.cause.name());
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
        reason: reason.as_ref().map(ToString::to_string),
        cause,
        finding: reason.map(|reason| reason.cause),
        log,
        median_us: numbers.median_us,
        interval_us: numbers.interval_us,
        half_width_percent: numbers.half_width_percent(),
        change_percent: numbers.change_percent(),
        production_us: numbers.production_us,
        production_percent: numbers.production_percent(),
    }
}
