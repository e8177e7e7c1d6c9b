//! State shared by the processes of a gang: torch's store, and the calls that all of them must make.

use std::collections::BTreeMap;

use super::protocol::{PyError, PyValue, runtime};
use crate::domain::Slot;

/// Shared by the sessions of one collection.
#[derive(Debug, Default)]
pub(super) struct ProcessGroup {
    store: BTreeMap<String, String>,
    /// Kernel and inputs of each common call, as the first rank gave them.
    calls: BTreeMap<u64, (String, Vec<Slot>)>,
}

impl ProcessGroup {
    pub(super) fn set(&mut self, key: &str, value: &str) {
        self.store.insert(key.to_owned(), value.to_owned());
    }

    pub(super) fn get(&self, key: &str) -> Option<String> {
        self.store.get(key).cloned()
    }

    /// Checks that the n-th call of a rank has the same kernel, shapes and types as that of every other rank.
    pub(super) fn check(&mut self, number: u64, kernel: &str, inputs: &[Slot]) -> Result<(), PyError> {
        let first = self.calls.entry(number).or_insert_with(|| (kernel.to_owned(), inputs.to_vec()));
        if first.0 == kernel && first.1 == inputs {
            return Ok(());
        }
        let shown = |kernel: &str, inputs: &[Slot]| {
            let inputs: Vec<String> = inputs.iter().flatten().map(ToString::to_string).collect();
            format!("{kernel} of {}", inputs.join(" and "))
        };
        Err(runtime(format!(
            "rehearsal: the ranks of a group launch different kernels: {}, another rank {}",
            shown(kernel, inputs),
            shown(&first.0, &first.1)
        )))
    }
}

/// Parses the number of ranks from the name of a group.
pub(super) fn ranks_of(given: Option<&PyValue>) -> Result<i64, PyError> {
    let name = if let Some(PyValue::Text(name)) = given { name.as_str() } else { "" };
    let size = name.strip_prefix("rehearsal group of ").and_then(|rest| rest.strip_suffix(" ranks"));
    size.and_then(|size| size.parse().ok())
        .ok_or_else(|| runtime(format!("rehearsal: `{name}` is not the name of a group of processes")))
}
