//! Sets of time: unions and differences of spans, in integer nanoseconds.

use crate::kernel::Nanos;

/// Time from `start` to `end` in nanoseconds since the epoch; the end does not belong to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TimeSpan {
    pub(crate) start: i64,
    pub(crate) end: i64,
}

/// Limit of recorded times: the year 2116. Sums of two of them do not overflow.
const LATEST: i64 = 1 << 62;

/// Returns a recorded time; `None` for one before 1970, or beyond the years that a clock may have.
pub(crate) fn valid_time(nanos: i64) -> Option<i64> {
    (0..LATEST).contains(&nanos).then_some(nanos)
}

/// Returns the sum of lengths, which damaged records cannot overflow.
pub(crate) fn sum_lengths(lengths: impl IntoIterator<Item = i64>) -> i64 {
    lengths.into_iter().fold(0, i64::saturating_add)
}

impl TimeSpan {
    pub(crate) const fn new(start: i64, end: i64) -> Self {
        Self { start, end }
    }

    /// Returns a recorded span; `None` if it ends before it starts, or if a time is not [valid](valid_time).
    pub(crate) fn recorded(start: i64, end: i64) -> Option<Self> {
        let (start, end) = (valid_time(start)?, valid_time(end)?);
        (start <= end).then_some(Self { start, end })
    }

    pub(crate) fn of_start((start, duration): (Nanos, Nanos)) -> Option<Self> {
        Self::recorded(start.0, start.0.saturating_add(duration.0))
    }

    /// Returns true for the span of a task of a device, with no [longer duration](Nanos::is_kernel_duration) unless it waits
    /// for others, by its vendor's kind such as `EVENT_WAIT`.
    pub(crate) fn is_of_task(self, kind: &str) -> bool {
        Nanos(self.length()) <= Nanos::MAX_KERNEL || kind.contains("WAIT")
    }

    /// Returns a key that sorts spans by start, the outer ones before the inner ones.
    pub(crate) const fn outer_first(self) -> (i64, i64) {
        (self.start, -self.end)
    }

    pub(crate) const fn length(self) -> i64 {
        self.end.saturating_sub(self.start)
    }

    pub(crate) const fn contains(self, other: Self) -> bool {
        self.start <= other.start && other.end <= self.end
    }

    pub(crate) fn intersection(self, other: Self) -> Option<Self> {
        let common = Self::new(self.start.max(other.start), self.end.min(other.end));
        (common.start < common.end).then_some(common)
    }
}

/// Set of time, as disjoint spans in ascending order that do not touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TimeSet(Vec<TimeSpan>);

impl TimeSet {
    pub(crate) fn union_of(spans: impl IntoIterator<Item = TimeSpan>) -> Self {
        let mut sorted: Vec<TimeSpan> = spans.into_iter().filter(|span| span.start < span.end).collect();
        sorted.sort_unstable();
        let mut merged: Vec<TimeSpan> = Vec::new();
        for span in sorted {
            match merged.last_mut() {
                Some(last) if span.start <= last.end => last.end = last.end.max(span.end),
                _ => merged.push(span),
            }
        }
        Self(merged)
    }

    pub(crate) fn union(&self, other: &Self) -> Self {
        Self::union_of(self.0.iter().chain(&other.0).copied())
    }

    pub(crate) fn difference(&self, other: &Self) -> Self {
        let mut rest = Vec::new();
        let mut others = other.0.iter().copied().peekable();
        for span in &self.0 {
            let mut start = span.start;
            while others.peek().is_some_and(|other| other.end <= start) {
                others.next();
            }
            // A span of the other set may reach into several of this one, so that it is not consumed here.
            let mut inner = others.clone();
            while let Some(other) = inner.next_if(|other| other.start < span.end) {
                if start < other.start {
                    rest.push(TimeSpan::new(start, other.start));
                }
                start = start.max(other.end);
            }
            if start < span.end {
                rest.push(TimeSpan::new(start, span.end));
            }
        }
        Self(rest)
    }

    pub(crate) fn intersection(&self, other: &Self) -> Self {
        self.difference(&self.difference(other))
    }

    pub(crate) fn length(&self) -> i64 {
        sum_lengths(self.0.iter().map(|span| span.length()))
    }

    pub(crate) fn spans(&self) -> &[TimeSpan] {
        &self.0
    }

    pub(crate) fn hull(&self) -> Option<TimeSpan> {
        Some(TimeSpan::new(self.0.first()?.start, self.0.last()?.end))
    }

    pub(crate) fn clip(&self, span: TimeSpan) -> Self {
        Self(self.parts_in(span).collect())
    }

    pub(crate) fn length_in(&self, span: TimeSpan) -> i64 {
        self.parts_in(span).map(TimeSpan::length).sum()
    }

    pub(crate) fn parts_in(&self, span: TimeSpan) -> impl Iterator<Item = TimeSpan> {
        let from = self.0.partition_point(|own| own.end <= span.start);
        let inside = self.0[from..].iter().take_while(move |own| own.start < span.end);
        inside.filter_map(move |own| own.intersection(span))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the nanoseconds of spans, one by one.
    fn points(spans: &[(i64, i64)]) -> std::collections::BTreeSet<i64> {
        spans.iter().flat_map(|&(start, length)| start..start + length).collect()
    }

    fn set(spans: &[(i64, i64)]) -> TimeSet {
        TimeSet::union_of(spans.iter().map(|&(start, length)| TimeSpan::new(start, start + length)))
    }

    proptest! {
        /// The oracle counts single nanoseconds.
        #[test]
        fn sets_equal_sets_of_nanoseconds(
            a in prop::collection::vec((0_i64..120, 0_i64..15), 0..12),
            b in prop::collection::vec((0_i64..120, 0_i64..15), 0..12),
            window in (0_i64..120, 0_i64..40),
        ) {
            let (all_a, all_b) = (points(&a), points(&b));
            let (set_a, set_b) = (set(&a), set(&b));
            let count = |length: i64| usize::try_from(length).expect("a length");
            prop_assert_eq!(count(set_a.length()), all_a.len());
            prop_assert_eq!(count(set_a.union(&set_b).length()), all_a.union(&all_b).count());
            let common = set_a.intersection(&set_b);
            prop_assert_eq!(count(common.length()), all_a.intersection(&all_b).count());
            let rest = set_a.difference(&set_b);
            prop_assert_eq!(count(rest.length()), all_a.difference(&all_b).count());
            for span in rest.spans() {
                prop_assert!((span.start..span.end).all(|point| all_a.contains(&point) && !all_b.contains(&point)));
            }
            prop_assert!(set_a.spans().windows(2).all(|pair| pair[0].end < pair[1].start));
            let window = TimeSpan::new(window.0, window.0 + window.1);
            let inside = all_a.range(window.start..window.end).count();
            prop_assert_eq!(count(set_a.length_in(window)), inside);
            prop_assert_eq!(set_a.clip(window), set_a.intersection(&TimeSet::union_of([window])));
        }
    }
}
