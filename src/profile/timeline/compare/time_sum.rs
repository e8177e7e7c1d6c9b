//! Sums of records by name.

use std::collections::BTreeMap;

/// Sum of records of one name, per step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct TimeSum {
    /// Nanoseconds, or bytes of memory.
    pub(crate) total: f64,
    pub(crate) calls: f64,
    /// Shortest and longest record; `None` for sums of other kinds.
    pub(crate) shortest: Option<i64>,
    pub(crate) longest: Option<i64>,
    /// Part of the total in which no call inside runs; `None` for others than calls of the host.
    pub(crate) self_total: Option<f64>,
}

impl TimeSum {
    #[expect(clippy::cast_precision_loss, reason = "times of runs have fewer than 53 bits")]
    pub(super) fn add(&mut self, time: i64) {
        self.shortest = Some(self.shortest.map_or(time, |shortest| shortest.min(time)));
        self.longest = self.longest.max(Some(time));
        self.total += time as f64;
        self.calls += 1.0;
    }

    /// Adds the records of another sum.
    pub(super) fn merge(&mut self, other: Self) {
        self.shortest = self.shortest.into_iter().chain(other.shortest).min();
        self.longest = self.longest.max(other.longest);
        self.total += other.total;
        self.calls += other.calls;
    }

    pub(super) const fn of_total(total: f64) -> Self {
        Self { total, calls: 0.0, shortest: None, longest: None, self_total: None }
    }

    pub(super) fn per_step(self, steps: f64) -> Self {
        let self_total = self.self_total.map(|time| time / steps);
        Self { total: self.total / steps, calls: self.calls / steps, self_total, ..self }
    }
}

/// Sums by name, and by shapes or another detail.
pub(super) type Sums = BTreeMap<(String, String), TimeSum>;

/// Returns the key of a name without shapes.
pub(super) fn key(name: &str) -> (String, String) {
    (name.to_owned(), String::new())
}
