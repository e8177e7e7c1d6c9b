//! Comparison of a profiler record with the signature of the launched case, from which it may differ in more ways than
//! equal cases do: the launching library decides how scalars, omitted slots and values from the host are shown.

use super::{Case, Slot, Tensor};

/// Slots of one side with their indices.
type NumberedSlots<'a> = Vec<(usize, &'a Slot)>;

/// Describes the first difference between a case and a record, inputs in `host_slots` left out; `None` if they match.
pub(crate) fn signature_mismatch(
    case: &Case,
    host_slots: &[usize],
    recorded_inputs: &[Slot],
    recorded_outputs: &[Slot],
) -> Option<String> {
    fn device_inputs<'a>(slots: &'a [Slot], host_slots: &[usize]) -> NumberedSlots<'a> {
        slots.iter().enumerate().filter(|(slot, _)| !host_slots.contains(slot)).collect()
    }
    let inputs = device_inputs(&case.inputs, host_slots);
    let mismatch = side_mismatch("input", &inputs, &device_inputs(recorded_inputs, host_slots));
    if mismatch.is_some() || case.outputs.is_empty() || recorded_outputs.is_empty() {
        // Kernels that work in place show no outputs.
        return mismatch;
    }
    let mut sides =
        [case.outputs.as_slice(), recorded_outputs].map(|slots| slots.iter().enumerate().collect());
    // Omitted results follow the others without dimensions, or are not shown.
    let length = case.outputs.len().min(recorded_outputs.len());
    let is_omitted = |(_, slot): &(usize, &Slot)| slot.as_ref().is_none_or(Tensor::is_scalar);
    for slots in &mut sides {
        let slots: &mut NumberedSlots<'_> = slots;
        while slots.len() > length && slots.last().is_some_and(is_omitted) {
            slots.pop();
        }
    }
    let [outputs, recorded_outputs] = sides;
    side_mismatch("output", &outputs, &recorded_outputs)
}

fn side_mismatch(side: &str, expected: &NumberedSlots<'_>, recorded: &NumberedSlots<'_>) -> Option<String> {
    if expected.len() != recorded.len() {
        return Some(format!("recorded with {} {side}s, the case has {}", recorded.len(), expected.len()));
    }
    let mut pairs = expected.iter().zip(recorded);
    let ((slot, expected), (_, recorded)) =
        pairs.find(|((_, expected), (_, recorded))| !slots_match(expected, recorded))?;
    let describe = |slot: &Slot| slot.as_ref().map_or_else(|| "nothing".to_owned(), ToString::to_string);
    Some(format!("{side} {slot} was recorded as {}, the case has {}", describe(recorded), describe(expected)))
}

fn slots_match(expected: &Slot, recorded: &Slot) -> bool {
    match (expected, recorded) {
        // The framework selects the type of a scalar, not the caller.
        (Some(expected), Some(recorded)) => {
            expected.dims == recorded.dims
                && (expected.is_scalar()
                    || (expected.dtype.may_be_recorded_as(&recorded.dtype)
                        && expected.format.same_layout(&recorded.format)))
        }
        (None, None) => true,
        // The library that launches shows an omitted slot as empty or without dimensions.
        (Some(only), None) | (None, Some(only)) => only.is_scalar(),
    }
}
