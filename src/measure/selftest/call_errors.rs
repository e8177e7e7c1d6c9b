//! Experiment 10: errors of calls are recognised by their texts, and the next collection on the device works.

use std::path::Path;

use serde_json::json;

use super::{
    evidence::{CollectedEvidence, ScriptRequest, SelftestContext},
    finding::{EvidenceError, ExperimentFinding},
    record_loss::mark_length,
};
use crate::{kernel::Verdict, measure::verify::JournalLine};

/// Wrong calls and the verdicts of cases with their errors.
const CALLS: [(&str, Verdict); 3] = [
    ("wrong_shape", Verdict::Rejected),
    ("out_of_memory", Verdict::Oom),
    ("index_out_of_range", Verdict::Crashed),
];
/// Number of marked launches of the collection after each error.
const MARKS: u64 = 20;
const EXPECTED: &str = "a wrong shape is rejected, too large a tensor is oom, an index out of range is crashed; the next \
     collection on the device works";

/// Runs the experiment.
pub(super) fn run(context: &SelftestContext, folder: &Path) -> Result<ExperimentFinding, EvidenceError> {
    let devices = [context.first_device()];
    let mut problems = Vec::new();
    for (call, expected) in CALLS {
        let parameters = json!({ "call": call });
        let evidence = context.complete(&folder.join(call), "errors", parameters)?;
        problems.extend(error_problem(call, expected, &error_line(&evidence)?));
        let parameters = json!({ "end": "clean", "marks": MARKS, "padding": 100 });
        let next = ScriptRequest { function: "records", parameters, devices: &devices };
        let after = context.collect(&folder.join(format!("after-{call}")), &next)?;
        let marks =
            after.records.iter().flatten().filter_map(mark_length).filter(|length| *length > 1).count();
        if marks as u64 != MARKS {
            problems.push(format!(
                "after {call}: {marks} of {MARKS} launches are recorded ({})",
                after.last_line()
            ));
        }
    }
    let verdicts = CALLS.map(|(call, verdict)| format!("{call} is {verdict}"));
    Ok(ExperimentFinding::from_problems(EXPECTED, verdicts.join(", "), &problems))
}

/// Returns the line of the wrong call in the journal.
fn error_line(evidence: &CollectedEvidence) -> Result<JournalLine, EvidenceError> {
    let lines = evidence.journal.iter().filter(|line| line.get("ordinal").is_some());
    let parsed = lines.into_iter().find_map(|line| serde_json::from_value(line.clone()).ok());
    parsed.ok_or_else(|| EvidenceError::Missing("the journal has no line of the call".to_owned()))
}

/// Returns the difference from the expected verdict, with the error's text.
fn error_problem(call: &str, expected: Verdict, line: &JournalLine) -> Option<String> {
    let Some(error) = &line.error else { return Some(format!("{call}: the call raised no error")) };
    let verdict = if error.is_out_of_memory() {
        Verdict::Oom
    } else if error.is_device_fault() {
        Verdict::Crashed
    } else {
        Verdict::Rejected
    };
    let text: String = error.message.chars().take(160).collect();
    (verdict != expected).then(|| format!("{call} is {verdict}, not {expected}: {}: {text}", error.class))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(call: &str, expected: Verdict, error: &serde_json::Value) -> Option<String> {
        let line = json!({ "ordinal": 0, "launched": 0, "error": error });
        error_problem(call, expected, &serde_json::from_value(line).expect("a line"))
    }

    #[test]
    fn errors_with_unknown_texts_are_reported() {
        let raised = |class: &str, message: &str| json!({ "type": class, "message": message });
        let fault = raised("RuntimeError", "NPU function error: synchronize, error code is 507015");
        assert_eq!(problem("index", Verdict::Crashed, &fault), None);
        let memory = raised("OutOfMemoryError", "NPU out of memory. Tried to allocate 1024.00 GiB");
        assert_eq!(problem("memory", Verdict::Oom, &memory), None);
        let unknown = problem("index", Verdict::Crashed, &raised("RuntimeError", "vendor failure 0x7"));
        assert!(unknown.is_some_and(|text| text.contains("rejected, not crashed") && text.contains("0x7")));
        assert!(
            problem("index", Verdict::Crashed, &json!(null)).is_some_and(|text| text.contains("no error"))
        );
    }
}
