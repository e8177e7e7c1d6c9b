//! Times of calls on the host: operators, and with GPUs also calls of the runtime and ranges of users.

use std::collections::HashMap;

use super::time_sum::{Sums, TimeSum, key};
use crate::profile::timeline::{
    nesting::OperatorNesting,
    run::{HostOperator, OperatorId, RunTimeline},
};

/// Returns total and self time of the calls that are selected, by name; `None` if no calls are recorded. The self time is
/// the time of a call in which none of the calls within it runs, on the same thread.
#[expect(clippy::cast_precision_loss, reason = "times of runs have fewer than 53 bits")]
pub(super) fn host_call_sums(run: &RunTimeline, is_selected: &dyn Fn(&HostOperator) -> bool) -> Option<Sums> {
    let mut calls = run.operators.clone();
    calls.extend_from_slice(&run.runtime_calls);
    calls.sort_by_key(|call| (call.span.start, -call.span.end));
    let nesting = OperatorNesting::new(&calls);
    // Length of the calls within a call, and the end of the last one: calls may overlap where times are rounded.
    let mut inside: HashMap<OperatorId, (i64, i64)> = HashMap::new();
    for (call, at) in calls.iter().zip(0..) {
        if let Some(parent) = nesting.chain(OperatorId(at)).nth(1) {
            let (length, end) = inside.entry(parent).or_insert((0, i64::MIN));
            *length += call.span.end.saturating_sub(call.span.start.max(*end)).max(0);
            *end = call.span.end.max(*end);
        }
    }
    let mut sums = Sums::new();
    for (call, at) in calls.iter().zip(0..).filter(|(call, _)| is_selected(call)) {
        let sum: &mut TimeSum = sums.entry(key(run.names.text(call.name))).or_default();
        let (within, _) = inside.get(&OperatorId(at)).copied().unwrap_or_default();
        sum.add(call.span.length());
        *sum.self_total.get_or_insert(0.0) += call.span.length().saturating_sub(within) as f64;
    }
    (!calls.is_empty()).then_some(sums)
}
