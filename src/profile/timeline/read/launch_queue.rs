//! Queue of torch_npu, through which a thread of its own calls CANN for the operators of other threads.
//!
//! A database connects kernels with operators by `CONNECTION_IDS`, but not the copies of the device. Their `connectionId` is
//! that of a call of CANN only. Such a call is made by the operator around it on its thread, or while an entry of the queue is
//! carried out, for the operator that made the entry; `CONNECTION_IDS` connects both ends of an entry. In a recorded
//! training step this gives all 483 kernels and tasks of collectives the operator that the database connects with them.

use crate::profile::timeline::prelude::*;

/// Start of the names of both ends of an entry: `Enqueue` and `Dequeue@aclnnMul`.
const ENQUEUE: &str = "Enqueue";
const DEQUEUE: &str = "Dequeue";

type HostPlace = (u64, i64);

#[derive(Debug, Default)]
pub(super) struct LaunchQueue {
    enqueued: HashMap<i64, HostPlace>,
    dequeued: HashMap<u64, Vec<(TimeSpan, i64)>>,
    ends: HashMap<i64, Vec<i64>>,
    /// Id at which an entry was made by that at which it was carried out.
    made_at: HashMap<i64, i64>,
}

impl LaunchQueue {
    pub(super) fn add_end(&mut self, name: &str, id: i64, thread: u64, span: TimeSpan) {
        if name.starts_with(ENQUEUE) {
            self.enqueued.insert(id, (thread, span.start));
        } else if name.starts_with(DEQUEUE) {
            self.dequeued.entry(thread).or_default().push((span, id));
        }
    }

    pub(super) fn add_connection(&mut self, id: i64, connection: i64) {
        self.ends.entry(connection).or_default().push(id);
    }

    pub(super) fn connect_ends(&mut self) {
        for ids in std::mem::take(&mut self.ends).into_values() {
            let Some(made) = ids.iter().find(|id| self.enqueued.contains_key(id)) else { continue };
            self.made_at.extend(ids.iter().filter(|id| *id != made).map(|id| (*id, *made)));
        }
        self.dequeued.values_mut().for_each(|entries| entries.sort_unstable_by_key(|(span, _)| span.start));
    }

    /// Returns the operator that made a call of CANN, on its thread or through the queue; `None` if none is recorded.
    pub(super) fn operator_of_call(
        &self,
        (thread, time): HostPlace,
        nesting: &OperatorNesting<'_>,
    ) -> Option<OperatorId> {
        let (thread, time) = match self.entry_at(thread, time) {
            Some(id) => *self.enqueued.get(self.made_at.get(&id)?)?,
            None => (thread, time),
        };
        nesting.operator_at(thread, time)
    }

    fn entry_at(&self, thread: u64, time: i64) -> Option<i64> {
        let entries = self.dequeued.get(&thread)?;
        let before = entries.partition_point(|(span, _)| span.start <= time);
        let (span, id) = entries[..before].last()?;
        (time <= span.end).then_some(*id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::timeline::{names::NameId, run::HostOperator};

    fn operator(thread: u64, start: i64, end: i64) -> HostOperator {
        let span = TimeSpan::new(start, end);
        HostOperator { span, thread, name: NameId::EMPTY, shapes: NameId::EMPTY }
    }

    #[test]
    fn a_call_belongs_to_the_operator_that_made_its_entry() {
        // Thread 1 has two operators, an inner one and an outer one; thread 2 carries out what they enqueue.
        let operators = [operator(1, 0, 100), operator(1, 10, 50), operator(1, 200, 300)];
        let nesting = OperatorNesting::new(&operators);
        let mut queue = LaunchQueue::default();
        queue.add_end("Enqueue", 1, 1, TimeSpan::new(20, 21));
        queue.add_end("Enqueue@copy", 2, 1, TimeSpan::new(210, 211));
        queue.add_end("Dequeue@aclnnMul", 11, 2, TimeSpan::new(220, 240));
        queue.add_end("Dequeue@copy", 12, 2, TimeSpan::new(250, 260));
        queue.add_end("Dequeue@unknown", 13, 2, TimeSpan::new(270, 280));
        for (id, connection) in [(1, 7), (11, 7), (12, 8), (2, 8)] {
            queue.add_connection(id, connection);
        }
        queue.connect_ends();
        let found = |place: HostPlace| queue.operator_of_call(place, &nesting).map(|id| id.0);
        assert_eq!(found((2, 230)), Some(1), "the inner operator, which has ended");
        assert_eq!(found((2, 260)), Some(2));
        assert_eq!(found((2, 275)), None, "no end where it was made");
        assert_eq!(found((2, 245)), None, "outside of all entries");
        assert_eq!(found((1, 60)), Some(0), "called by the thread of the operator");
    }
}
