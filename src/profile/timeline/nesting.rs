//! Operators of the host within each other, by thread.

use super::prelude::*;

#[derive(Debug)]
pub(crate) struct OperatorNesting<'a> {
    operators: &'a [HostOperator],
    parents: Vec<Option<OperatorId>>,
    by_thread: HashMap<u64, Vec<OperatorId>>,
}

impl<'a> OperatorNesting<'a> {
    /// Creates the nesting of operators that are sorted by start, the outer before the inner ones.
    pub(crate) fn new(operators: &'a [HostOperator]) -> Self {
        let mut parents = vec![None; operators.len()];
        let mut by_thread: HashMap<u64, Vec<OperatorId>> = HashMap::new();
        let mut open: HashMap<u64, Vec<(OperatorId, i64)>> = HashMap::new();
        for (operator, at) in operators.iter().zip(0..) {
            let id = OperatorId(at);
            let open = open.entry(operator.thread).or_default();
            while open.last().is_some_and(|(_, end)| *end < operator.span.end || *end <= operator.span.start)
            {
                open.pop();
            }
            parents[at as usize] = open.last().map(|(parent, _)| *parent);
            open.push((id, operator.span.end));
            by_thread.entry(operator.thread).or_default().push(id);
        }
        Self { operators, parents, by_thread }
    }

    pub(crate) fn chain(&self, operator: OperatorId) -> impl Iterator<Item = OperatorId> {
        std::iter::successors(Some(operator), |id| self.parents.get(id.0 as usize).copied().flatten())
    }

    pub(crate) fn outermost(&self, operator: OperatorId) -> OperatorId {
        self.chain(operator).last().unwrap_or(operator)
    }

    pub(crate) fn is_outermost(&self, operator: OperatorId) -> bool {
        self.parents.get(operator.0 as usize).is_some_and(Option::is_none)
    }

    pub(crate) fn operator_at(&self, thread: u64, time: i64) -> Option<OperatorId> {
        let ids = self.by_thread.get(&thread)?;
        let start =
            |id: &OperatorId| self.operators.get(id.0 as usize).map_or(i64::MAX, |own| own.span.start);
        let last = ids[..ids.partition_point(|id| start(id) <= time)].last()?;
        self.chain(*last).find(|id| self.operators.get(id.0 as usize).is_some_and(|own| time <= own.span.end))
    }

    pub(crate) fn outermost_at(&self, time: i64) -> Option<OperatorId> {
        let found = self.by_thread.keys().filter_map(|thread| self.operator_at(*thread, time));
        found.map(|id| self.outermost(id)).max()
    }
}

impl RunTimeline {
    pub(crate) fn nesting(&self) -> OperatorNesting<'_> {
        OperatorNesting::new(&self.operators)
    }
}
