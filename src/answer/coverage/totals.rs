//! Sums of counts and times by class.

use crate::kernel::Nanos;

/// Class of an answer, as metrics count it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::Display)]
#[strum(serialize_all = "snake_case")]
pub enum AnswerClass {
    /// By a row.
    Measured,
    /// Between rows.
    Interpolated,
    /// Not, or only in part.
    Missing,
}

impl AnswerClass {
    /// All classes.
    pub const ALL: [Self; 3] = [Self::Measured, Self::Interpolated, Self::Missing];
}

/// Counts and times of answers. Each invocation is in one class, and its time, if it is known, in the same one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoverageTotals {
    counts: [u64; 3],
    /// In nanoseconds.
    times: [i64; 3],
    /// Invocations without a time.
    pub untimed: u64,
}

impl CoverageTotals {
    pub(super) fn add_invocations(&mut self, class: AnswerClass, count: u64, time: Option<Nanos>) {
        let class = class as usize;
        self.counts[class] = self.counts[class].saturating_add(count);
        match time {
            Some(time) => self.times[class] = self.times[class].saturating_add(time.0),
            None => self.untimed = self.untimed.saturating_add(count),
        }
    }

    /// Returns the invocations of a class.
    pub const fn count(&self, class: AnswerClass) -> u64 {
        self.counts[class as usize]
    }

    /// Returns the time of a class in nanoseconds.
    pub const fn time(&self, class: AnswerClass) -> i64 {
        self.times[class as usize]
    }

    /// Returns all invocations.
    pub fn all_count(&self) -> u64 {
        self.counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Returns the time of all classes in nanoseconds.
    pub fn all_time(&self) -> i64 {
        self.times.iter().fold(0, |sum, time| sum.saturating_add(*time))
    }

    /// Returns the share of a class in the invocations; `None` without any.
    pub fn count_share(&self, class: AnswerClass) -> Option<f64> {
        ratio(self.count(class), self.all_count())
    }

    /// Returns the share of a class in the time; `None` without any.
    pub fn time_share(&self, class: AnswerClass) -> Option<f64> {
        ratio(self.time(class).unsigned_abs(), self.all_time().unsigned_abs())
    }
}

#[expect(clippy::cast_precision_loss, reason = "a share is printed with a few digits")]
fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}
