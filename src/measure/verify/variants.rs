//! Binaries of one kernel: collections of a case that ran different ones have no common median.

use std::collections::BTreeMap;

use crate::kernel::{Cause, RecordedTask, cause::TaskProperty};

/// Returns how the collections of a row differ in operator, `OP State` or unit, the properties of a binary that the profiler shows;
/// `None` if they agree. A property that is not recorded agrees with any.
pub(super) fn variant_contradiction(tasks: &[&RecordedTask]) -> Option<Cause> {
    let find_difference = |property, read: fn(&RecordedTask) -> &str| {
        let mut collections: BTreeMap<&str, usize> = BTreeMap::new();
        for value in tasks.iter().map(|task| read(task)).filter(|value| !value.is_empty()) {
            *collections.entry(value).or_default() += 1;
        }
        (collections.len() > 1).then(|| Cause::Variants {
            property,
            collections: collections.iter().map(|(value, count)| ((*value).to_owned(), *count)).collect(),
        })
    };
    find_difference(TaskProperty::Operator, |task| &task.operator)
        .or_else(|| find_difference(TaskProperty::State, |task| &task.state))
        .or_else(|| find_difference(TaskProperty::Unit, |task| &task.core))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_properties_are_compared() {
        let task = |operator: &str, state: &str, core: &str| {
            let [operator, state, core] = [operator, state, core].map(str::to_owned);
            RecordedTask { state, core, operator }
        };
        let find = |tasks: &[RecordedTask]| {
            variant_contradiction(&tasks.iter().collect::<Vec<_>>()).map(|cause| cause.to_string())
        };
        let add = task("AddAiCore", "dynamic", "AI_VECTOR_CORE");
        assert_eq!(find(&[]), None);
        assert_eq!(find(&[add.clone(), add.clone(), RecordedTask::default()]), None);
        assert_eq!(find(&[add.clone(), task("", "dynamic", "")]), None);
        let other = task("AddV3", "static", "AI_VECTOR_CORE");
        let text = "its collections ran as different operators: AddAiCore in 2, AddV3 in 1";
        assert_eq!(find(&[add.clone(), other, add.clone()]).as_deref(), Some(text));
        let text = "its collections ran with different `OP State`: dynamic in 1, static in 1";
        assert_eq!(find(&[add.clone(), task("", "static", "")]).as_deref(), Some(text));
        let text = "its collections ran on different units: AI_VECTOR_CORE in 1, MIX_AIV in 1";
        assert_eq!(find(&[add, task("AddAiCore", "dynamic", "MIX_AIV")]).as_deref(), Some(text));
    }
}
