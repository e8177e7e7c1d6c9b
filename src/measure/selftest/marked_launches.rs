//! Experiments with marked launches: `Neg` of an int32 vector whose length is the mark, between launches of padding with
//! length 1.

use std::{fs, ops::RangeBounds, path::Path};

use serde_json::json;

use super::{
    evidence::{CollectedEvidence, SelftestContext},
    experiment::{EvidenceError, Experiment, Finding},
};
use crate::{
    base::process::ExitKind,
    kernel::{Dtype, Slot, Verdict, render::SentinelLengths},
    measure::verify::{JournalLine, RawRecord},
};

/// Compares exit codes and exports of msprof for programs that end in different ways, and a second export.
///
/// Sources of the expectations, the same in cann/oam-tools v8.5.0 to v9.2.0-beta.1 and cann/runtime 2026-08: `running_mode.cpp`
/// (the exit status of the program is not passed on; msprof ends with 0 where it leaves a profile, and with 255, -1, where the
/// program used no device) and `transport/prof_channel.cpp` (a process that does not finalise the profiler writes no record of
/// a device before it has read 2 MiB of a channel, about 16,000 tasks). Nothing in a run depends on what a killed process
/// leaves, so it is stated in the result and fails no experiment.
pub(super) const EXIT_CODES: Experiment = Experiment {
    number: 2,
    name: "exit-codes",
    assumption: "exit codes and exports of msprof are those of its source, and a second export recovers tables",
    expected: "exit code 0 and all records after a clean end and exit code 3; 255 and no profile without a device; tables \
               again by a second export. After SIGSEGV and SIGTERM exit code 0 and no records, which is not required",
    fix: "compare collect.log with docs/selftest.md; a run trusts records and not exit codes",
    run: compare_exit_codes,
};

pub(super) const RECORD_LOSS: Experiment = Experiment {
    number: 3,
    name: "record-loss",
    assumption: "every launch between the padding is recorded, in order, with type and shape",
    expected: "40 launches of Neg between 16 of padding, all recorded in order with type and shape; at most 16 records \
               lost at either end. After os._exit no records, which is not required",
    fix: "use another version of CANN; rows of this host would end as lost_records",
    run: count_lost_records,
};

pub(super) const CALL_ERRORS: Experiment = Experiment {
    number: 10,
    name: "call-errors",
    assumption: "errors of calls are recognised by their texts, and the next collection works",
    expected: "a wrong shape is rejected, too large a tensor is oom, an index out of range is crashed; the next \
               collection on the device works",
    fix: "report the text of the error; until then such cases end with another verdict",
    run: recognise_call_errors,
};

/// Number of marked launches of a script that is not about lost records, and its padding, more than a profiler loses.
const FEW_MARKS: usize = 20;
const PADDING: u32 = 100;
const TABLES: &str = "mindstudio_profiler_output";
/// End of the script, exit code of msprof, and whether it leaves a profile.
const ENDS: [(&str, i32, bool); 3] =
    [("clean", 0, true), ("exit_3", 0, true), ("without_device", 255, false)];
/// Ends of the script without finalising the profiler.
const KILLS: [&str; 2] = ["SIGSEGV", "SIGTERM"];
const MARKS: u64 = 40;
const CALLS: [(&str, Verdict); 3] = [
    ("wrong_shape", Verdict::Rejected),
    ("out_of_memory", Verdict::Oom),
    ("index_out_of_range", Verdict::Crashed),
];

/// Length of the int32 vector of a launch of Neg; `None` for other records.
pub(super) fn mark_length(record: &RawRecord) -> Option<u64> {
    let [Some(tensor)] = record.inputs.as_slice() else { return None };
    let is_mark = record.kernel.starts_with("Neg") && tensor.dtype == Dtype::Int32;
    if let ([length], true) = (tensor.dims.as_slice(), is_mark) { Some(*length) } else { None }
}

pub(super) fn count_marks(records: &[RawRecord], lengths: impl RangeBounds<u64>) -> usize {
    records.iter().filter_map(mark_length).filter(|length| lengths.contains(length)).count()
}

fn compare_exit_codes(context: &SelftestContext, folder: &Path) -> Result<Finding, EvidenceError> {
    let mut problems = Vec::new();
    let script = |end: &str| {
        let parameters = json!({ "end": end, "marks": FEW_MARKS, "padding": PADDING });
        context.script(folder.join(end), "records", parameters)
    };
    for (end, code, has_profile) in ENDS {
        let problem = end_problem(&script(end).complete()?, code, has_profile);
        problems.extend(problem.map(|problem| format!("{end}: {problem}")));
    }
    let mut seen = vec![format!("as expected for {} ends and the second export", ENDS.len())];
    for end in KILLS {
        seen.push(format!("{end}: {}", describe_kill(&script(end).collect()?, FEW_MARKS)));
    }
    // The tables of a collection are deleted, and exported again.
    let clean = folder.join("clean");
    for profile in CollectedEvidence::read(&clean, ExitKind::Exited(0)).profile_folders() {
        let tables = profile.join(TABLES);
        if tables.is_dir() {
            fs::remove_dir_all(&tables).map_err(EvidenceError::io(&tables))?;
        }
    }
    let second = context.export_again(&clean, &context.devices[..1])?;
    problems.extend(end_problem(&second, 0, true).map(|problem| format!("second export: {problem}")));
    Ok(Finding::new(seen.join("; "), problems))
}

/// Describes what a process left that did not finalise the profiler.
fn describe_kill(evidence: &CollectedEvidence, launched: usize) -> String {
    let exit = match evidence.exit {
        ExitKind::Exited(code) => format!("msprof ended with {code}"),
        other => format!("msprof ended with {other:?}"),
    };
    let records = match (evidence.profile_folders().len(), &evidence.records) {
        (0, _) => "no profile".to_owned(),
        (_, Err(problem)) => problem.clone(),
        (_, Ok(records)) => left_marks(records, launched),
    };
    format!("{exit}, {records}")
}

fn left_marks(records: &[RawRecord], launched: usize) -> String {
    let marks: Vec<u64> = records.iter().filter_map(mark_length).filter(|length| *length > 1).collect();
    let is_prefix = marks.iter().copied().eq((2..).take(marks.len()));
    let which = match marks.len() {
        0 => "",
        _ if is_prefix => ", the first ones",
        _ => ", not the first ones",
    };
    format!("{} of {launched} marks{which}", marks.len())
}

fn end_problem(evidence: &CollectedEvidence, code: i32, has_profile: bool) -> Option<String> {
    let marks = evidence.records.as_ref().map(|records| count_marks(records, 2..));
    exit_problem(evidence.exit, evidence.profile_folders().len(), marks, code, has_profile)
}

fn exit_problem(
    exit: ExitKind,
    profiles: usize,
    marks: Result<usize, &String>,
    code: i32,
    has_profile: bool,
) -> Option<String> {
    if exit != ExitKind::Exited(code) {
        return Some(format!("msprof ended with {exit:?}, expected exit code {code}"));
    }
    match (has_profile, profiles, marks) {
        (false, 0, _) => None,
        (false, ..) => Some("msprof left a profile, expected none".to_owned()),
        (true, 0, _) => Some("msprof left no profile".to_owned()),
        (true, _, Err(problem)) => Some(problem.clone()),
        (true, _, Ok(marks)) => not_all(marks),
    }
}

fn not_all(marks: usize) -> Option<String> {
    (marks != FEW_MARKS).then(|| format!("{marks} of {FEW_MARKS} launches are recorded"))
}

fn count_lost_records(context: &SelftestContext, folder: &Path) -> Result<Finding, EvidenceError> {
    let padding = SentinelLengths::default().padding;
    let script = |end: &str| {
        let parameters = json!({ "end": end, "marks": MARKS, "padding": padding });
        context.script(folder.join(end), "records", parameters)
    };
    let clean = script("clean").complete()?;
    let (seen, problems) = match record_loss(clean.readable_records()?, padding) {
        Ok((head, tail)) => (format!("clean: {head} lost at the head, {tail} at the tail"), Vec::new()),
        Err(problem) => (String::new(), vec![format!("clean: {problem}")]),
    };
    let left = describe_kill(&script("os_exit").collect()?, MARKS as usize);
    Ok(Finding::new(format!("{seen}; os_exit: {left}"), problems))
}

/// Returns the numbers of padding records lost at the head and at the tail; an error if a mark is not recorded as it
/// was launched.
fn record_loss(records: &[RawRecord], padding: u32) -> Result<(u32, u32), String> {
    let lengths: Vec<u64> = records.iter().filter_map(mark_length).collect();
    let expected: Vec<u64> = (2..MARKS + 2).collect();
    let marks: Vec<u64> = lengths.iter().copied().filter(|length| *length > 1).collect();
    if marks != expected {
        let position = marks.iter().zip(&expected).position(|(one, other)| one != other);
        let first = expected[position.unwrap_or_else(|| marks.len().min(expected.len() - 1))];
        return Err(format!(
            "{} of {MARKS} marks are recorded; the first that is missing or out of order is that of \
             length {first}",
            marks.len()
        ));
    }
    let shapes = |slots: &[Slot]| slots.iter().flatten().map(|slot| slot.dims.clone()).collect::<Vec<_>>();
    let mut marked = records.iter().filter(|record| mark_length(record).is_some());
    if marked.any(|record| shapes(&record.inputs) != shapes(&record.outputs)) {
        return Err("a record of Neg shows another shape of the output than of the input".to_owned());
    }
    let lost = |recorded: usize| padding.saturating_sub(u32::try_from(recorded).unwrap_or(u32::MAX));
    let head = lengths.iter().take_while(|length| **length == 1).count();
    let tail = lengths.iter().rev().take_while(|length| **length == 1).count();
    Ok((lost(head), lost(tail)))
}

fn recognise_call_errors(context: &SelftestContext, folder: &Path) -> Result<Finding, EvidenceError> {
    let mut problems = Vec::new();
    for (call, expected) in CALLS {
        let script = context.script(folder.join(call), "errors", json!({ "call": call }));
        let journal = script.complete()?.journal;
        let line = journal.into_iter().find(|line| line.get("ordinal").is_some());
        let line = line.ok_or_else(|| EvidenceError::missing("the journal has no line of the call"))?;
        let line = serde_json::from_value(line)?;
        problems.extend(error_problem(call, expected, &line));
        let parameters = json!({ "end": "clean", "marks": FEW_MARKS, "padding": PADDING });
        let after = context.script(folder.join(format!("after-{call}")), "records", parameters).collect()?;
        let marks = after.records.as_ref().map_or(0, |records| count_marks(records, 2..));
        problems.extend(not_all(marks).map(|lost| format!("after {call}: {lost} ({})", after.last_line())));
    }
    let verdicts = CALLS.map(|(call, verdict)| format!("{call} is {verdict}"));
    Ok(Finding::new(verdicts.join(", "), problems))
}

fn error_problem(call: &str, expected: Verdict, line: &JournalLine) -> Option<String> {
    let Some(error) = &line.error else { return Some(format!("{call}: the call raised no error")) };
    let verdict = error.outcome(line.usable).verdict;
    let text: String = error.message.chars().take(160).collect();
    (verdict != expected).then(|| format!("{call} is {verdict}, not {expected}: {}: {text}", error.class))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{kernel::Tensor, measure::selftest::kernel_steps::tests::record};

    #[test]
    fn differences_from_the_source_are_reported() {
        let cut = "cut".to_owned();
        let problem = |status, profiles, marks, code, has_profile| {
            exit_problem(ExitKind::Exited(status), profiles, marks, code, has_profile).unwrap_or_default()
        };
        assert_eq!(problem(0, 1, Ok(20), 0, true), "");
        assert_eq!(problem(255, 0, Ok(0), 255, false), "");
        assert!(problem(3, 1, Ok(20), 0, true).contains("expected exit code 0"));
        assert!(problem(0, 1, Ok(19), 0, true).contains("19 of 20"));
        assert!(problem(0, 0, Ok(0), 0, true).contains("no profile"));
        assert!(problem(255, 1, Ok(0), 255, false).contains("expected none"));
        assert!(problem(0, 1, Err(&cut), 0, true).contains("cut"));
        let killed = exit_problem(ExitKind::Signalled(15), 1, Ok(20), 0, true);
        assert!(killed.is_some_and(|problem| problem.contains("Signalled(15)")));
    }

    fn records(head: usize, marks: impl IntoIterator<Item = u64>, tail: usize) -> Vec<RawRecord> {
        let lengths = std::iter::repeat_n(1, head).chain(marks).chain(std::iter::repeat_n(1, tail));
        let mark = |(length, start)| record("Neg", Tensor::new([length], Dtype::Int32), start, 1_500);
        lengths.zip(0..).map(mark).collect()
    }

    #[test]
    fn lost_padding_is_counted_at_both_ends() {
        assert_eq!(record_loss(&records(16, 2..MARKS + 2, 16), 16), Ok((0, 0)));
        assert_eq!(record_loss(&records(9, 2..MARKS + 2, 0), 16), Ok((7, 16)));
        let mut others = records(16, 2..MARKS + 2, 16);
        others.insert(0, record("OnesLike", Tensor::new([5], Dtype::Int32), -1, 1_500));
        assert_eq!(record_loss(&others, 16), Ok((0, 0)), "records of other kernels do not count");
    }

    #[test]
    fn what_a_killed_process_left_is_described() {
        assert_eq!(left_marks(&[], 20), "0 of 20 marks");
        assert_eq!(left_marks(&records(100, 2..7, 0), 20), "5 of 20 marks, the first ones");
        assert_eq!(left_marks(&records(0, 3..7, 9), 20), "4 of 20 marks, not the first ones");
    }

    #[test]
    fn missing_or_exchanged_marks_are_reported() {
        let missing = record_loss(&records(0, 5..MARKS + 2, 16), 16).expect_err("three marks are lost");
        assert!(missing.contains("37 of 40") && missing.contains("length 2"), "{missing}");
        let tail = record_loss(&records(16, 2..MARKS, 0), 16).expect_err("two marks are lost");
        assert!(tail.contains(&format!("length {MARKS}")), "{tail}");
        let exchanged = record_loss(&records(16, [3, 2].into_iter().chain(4..MARKS + 2), 16), 16);
        assert!(exchanged.expect_err("out of order").contains("length 2"));
        let mut other_shape = records(16, 2..MARKS + 2, 16);
        other_shape[20].outputs = vec![Some(Tensor::new([99], Dtype::Int32))];
        assert!(record_loss(&other_shape, 16).is_err());
    }

    #[test]
    fn errors_with_unknown_texts_are_reported() {
        let problem = |expected: Verdict, class: &str, message: &str| {
            let line = json!({ "ordinal": 0, "launched": 0, "error": { "type": class, "message": message } });
            error_problem("call", expected, &serde_json::from_value(line).expect("a line"))
        };
        let fault = "NPU function error: synchronize, error code is 507015";
        assert_eq!(problem(Verdict::Crashed, "RuntimeError", fault), None);
        let memory = "NPU out of memory. Tried to allocate 1024.00 GiB";
        assert_eq!(problem(Verdict::Oom, "OutOfMemoryError", memory), None);
        let unknown = problem(Verdict::Crashed, "RuntimeError", "vendor failure 0x7");
        assert!(unknown.is_some_and(|text| text.contains("rejected, not crashed") && text.contains("0x7")));
        let none = serde_json::from_value(json!({ "ordinal": 0, "launched": 0, "error": null }));
        let none = error_problem("call", Verdict::Crashed, &none.expect("a line"));
        assert!(none.is_some_and(|text| text.contains("no error")));
    }
}
