//! Experiment 3: every launch between the padding is recorded, in order, with type and shape.

use std::path::Path;

use serde_json::json;

use super::{
    evidence::SelftestContext,
    finding::{EvidenceError, ExperimentFinding},
};
use crate::{
    kernel::{Dtype, Slot, render::SentinelLengths},
    measure::verify::RawRecord,
};

/// Number of marked launches between the padding.
const MARKS: u64 = 40;
const EXPECTED: &str = "40 launches of Neg between 16 of padding, all recorded in order with type and shape; at most \
     16 records lost at either end, also after os._exit";

/// Runs the experiment.
pub(super) fn run(context: &SelftestContext, folder: &Path) -> Result<ExperimentFinding, EvidenceError> {
    let padding = SentinelLengths::default().padding;
    let (mut problems, mut seen) = (Vec::new(), Vec::new());
    for end in ["clean", "os_exit"] {
        let parameters = json!({ "end": end, "marks": MARKS, "padding": padding });
        let evidence = context.complete(&folder.join(end), "records", parameters)?;
        match record_loss(evidence.readable_records()?, padding) {
            Ok((head, tail)) => seen.push(format!("{end}: {head} lost at the head, {tail} at the tail")),
            Err(problem) => problems.push(format!("{end}: {problem}")),
        }
    }
    Ok(ExperimentFinding::from_problems(EXPECTED, seen.join("; "), &problems))
}

/// Length of the int32 vector of a launch of Neg; `None` for other records.
pub(super) fn mark_length(record: &RawRecord) -> Option<u64> {
    let [Some(tensor)] = record.inputs.as_slice() else { return None };
    let is_mark = record.kernel.starts_with("Neg") && tensor.dtype == Dtype::Int32;
    if let ([length], true) = (tensor.dims.as_slice(), is_mark) { Some(*length) } else { None }
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
    let shows_output = |record: &RawRecord| {
        let shapes =
            |slots: &[Slot]| slots.iter().flatten().map(|slot| slot.dims.clone()).collect::<Vec<_>>();
        mark_length(record).is_none() || shapes(&record.inputs) == shapes(&record.outputs)
    };
    if !records.iter().all(shows_output) {
        return Err("a record of Neg shows another shape of the output than of the input".to_owned());
    }
    let lost = |recorded: usize| padding.saturating_sub(u32::try_from(recorded).unwrap_or(u32::MAX));
    let head = lengths.iter().take_while(|length| **length == 1).count();
    let tail = lengths.iter().rev().take_while(|length| **length == 1).count();
    Ok((lost(head), lost(tail)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{LogicalDeviceId, Nanos, RecordedTask, Tensor};

    fn record(length: u64, start: i64) -> RawRecord {
        let slot = Some(Tensor::new([length], Dtype::Int32));
        RawRecord {
            kernel: "Neg".to_owned(),
            start: Nanos(start),
            duration: Nanos(1_500),
            device: Some(LogicalDeviceId(0)),
            host: 0,
            has_device_column: true,
            task: RecordedTask::default(),
            inputs: vec![slot.clone()],
            outputs: vec![slot],
            counters: Vec::new(),
            blocks: None,
            stream: None,
            low_clock: None,
        }
    }

    fn records(head: usize, marks: impl IntoIterator<Item = u64>, tail: usize) -> Vec<RawRecord> {
        let lengths = std::iter::repeat_n(1, head).chain(marks).chain(std::iter::repeat_n(1, tail));
        lengths.zip(0..).map(|(length, start)| record(length, start)).collect()
    }

    #[test]
    fn lost_padding_is_counted_at_both_ends() {
        assert_eq!(record_loss(&records(16, 2..MARKS + 2, 16), 16), Ok((0, 0)));
        assert_eq!(record_loss(&records(9, 2..MARKS + 2, 0), 16), Ok((7, 16)));
        let mut others = records(16, 2..MARKS + 2, 16);
        others.insert(0, RawRecord { kernel: "OnesLike".to_owned(), ..record(5, -1) });
        assert_eq!(record_loss(&others, 16), Ok((0, 0)), "records of other kernels do not count");
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
}
