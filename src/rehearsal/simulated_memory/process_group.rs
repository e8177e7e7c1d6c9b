//! State shared by the processes of a gang: torch's store, the calls that all of them must make, and the data that
//! they exchange.

use std::{
    collections::BTreeMap,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

use serde::{Deserialize, Serialize};

use super::{
    element_values::ElementValues,
    protocol::{PyError, PyValue, runtime},
};
use crate::kernel::{Nanos, Slot};

/// One rank at a collective.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RankArrival {
    /// Start of its kernel by the clock that all hosts of a gang have in common.
    pub(crate) at: Nanos,
    /// Data that it sends; `None` if they are not known.
    pub(crate) sent: Option<ElementValues>,
    /// The call, which must be equal on all ranks.
    pub(crate) call: String,
    /// Elements that it sends to each rank and receives from each rank, of an `all_to_all_v`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) splits: Option<RankSplits>,
}

/// Parts of the input and the output of one rank in elements.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RankSplits {
    pub(crate) sent: Vec<u64>,
    pub(crate) received: Vec<u64>,
}

/// The n-th collective call of a rank.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CollectiveCall {
    pub(crate) number: u64,
    pub(crate) rank: usize,
    /// Number of ranks that must make the call.
    pub(crate) ranks: usize,
    pub(crate) arrival: RankArrival,
}

/// Returns the error of a collective whose other ranks have ended.
pub(super) fn rank_has_ended() -> PyError {
    runtime("rehearsal: another rank has ended")
}

/// Shared by the sessions of one collection; a collective waits for all ranks.
#[derive(Debug, Default)]
pub(crate) struct SharedGroup {
    state: Mutex<ProcessGroup>,
    changed: Condvar,
}

impl SharedGroup {
    pub(crate) fn lock(&self) -> MutexGuard<'_, ProcessGroup> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends all waiting: the program has ended, perhaps without some of its ranks.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// Waits until all ranks have made their n-th collective call, and returns their arrivals by rank. Fails if their
    /// calls differ.
    pub(crate) fn meet(&self, call: CollectiveCall) -> Result<Vec<Arc<RankArrival>>, PyError> {
        let CollectiveCall { number, rank, ranks, arrival } = call;
        let mut group = self.lock();
        group.meetings.entry(number).or_default().arrivals.insert(rank, Arc::new(arrival));
        self.changed.notify_all();
        loop {
            let meeting = group.meetings.entry(number).or_default();
            if meeting.arrivals.len() >= ranks {
                break;
            }
            if group.is_closed {
                return Err(rank_has_ended());
            }
            group = self.changed.wait(group).unwrap_or_else(PoisonError::into_inner);
        }
        let meeting = group.meetings.entry(number).or_default();
        let arrivals: Vec<Arc<RankArrival>> = meeting.arrivals.values().cloned().collect();
        meeting.left += 1;
        if meeting.left >= ranks {
            group.meetings.remove(&number);
        }
        let calls = arrivals.iter().map(|arrival| arrival.call.as_str());
        match calls.clone().find(|call| *call != arrivals[0].call) {
            Some(other) => Err(runtime(format!(
                "rehearsal: the ranks of a group launch different collectives: {}, another rank {other}",
                arrivals[0].call
            ))),
            None => Ok(arrivals),
        }
    }
}

/// Ranks at one collective.
#[derive(Debug, Default)]
struct Meeting {
    arrivals: BTreeMap<usize, Arc<RankArrival>>,
    /// Number of ranks that have read them.
    left: usize,
}

#[derive(Debug, Default)]
pub(crate) struct ProcessGroup {
    store: BTreeMap<String, String>,
    /// Kernel and inputs of each common call, as the first rank gave them.
    calls: BTreeMap<u64, (String, Vec<Slot>)>,
    meetings: BTreeMap<u64, Meeting>,
    is_closed: bool,
    /// True once other hosts can connect.
    is_open: bool,
}

impl ProcessGroup {
    /// Returns true at the first call.
    pub(crate) const fn open_once(&mut self) -> bool {
        !std::mem::replace(&mut self.is_open, true)
    }

    pub(crate) fn set(&mut self, key: &str, value: &str) {
        self.store.insert(key.to_owned(), value.to_owned());
    }

    pub(crate) fn get(&self, key: &str) -> Option<String> {
        self.store.get(key).cloned()
    }

    /// Checks that the n-th call of a rank has the same kernel, shapes and types as that of every other rank.
    pub(crate) fn check(&mut self, number: u64, kernel: &str, inputs: &[Slot]) -> Result<(), PyError> {
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
pub(crate) fn ranks_of(given: Option<&PyValue>) -> Result<i64, PyError> {
    let name = if let Some(PyValue::Text(name)) = given { name.as_str() } else { "" };
    let size = name.strip_prefix("rehearsal group of ").and_then(|rest| rest.strip_suffix(" ranks"));
    size.and_then(|size| size.parse().ok())
        .ok_or_else(|| runtime(format!("rehearsal: `{name}` is not the name of a group of processes")))
}
