//! Verdicts: the final state of a case in a run, best first, and which of them are worth a retry.
//!
//! `verify/collection.rs` assigns most of them, `verify/ranks.rs` orders them by blame among the ranks of a gang,
//! `sched/on_finished.rs` decides on new attempts.

use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, IntoStaticStr, VariantArray};

/// The one final state of a case in a run, best first; a [`CaseOutcome`] adds the reason.
#[derive(Serialize, Deserialize, Display, EnumString, IntoStaticStr, VariantArray)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// Measured, every check passed.
    Ok,
    /// Measured, but the spread of the samples is above the stated target.
    Noisy,
    /// Measured, but the duration contradicts other known durations of the case, or is far above its roofline bound.
    Suspicious,
    /// Measured while the device's clock was below its rating.
    Throttled,
    /// The launches ran as another kernel with the same call, and were measured as a case of that kernel.
    RanAsOther,
    /// The profiler's records do not account for the launches.
    LostRecords,
    /// The launches ran as another kernel, or with other shapes.
    WrongKernel,
    /// A collective returned other data than it must.
    WrongResult,
    /// Recorded, but physically impossible or from another device.
    Implausible,
    /// Out of device memory.
    Oom,
    /// torch_npu or CANN refused the call.
    Rejected,
    /// The recorded shapes contradict each other by every form of the kernel that covers them.
    InvalidArgs,
    /// No form of the kernel's entry covers the case, or the call does not fit the installed packages or the devices.
    Unsupported,
    /// The catalogue has no entry for the kernel.
    NoEntry,
    /// Did not end within its time limit.
    Hung,
    /// The process ended while the case was running.
    Crashed,
    /// Excluded because it broke collections of other cases.
    Quarantined,
    /// Not started before the run ended.
    NotRun,
}

impl Verdict {
    /// Every verdict, best first.
    pub(crate) const ALL: &'static [Self] = <Self as VariantArray>::VARIANTS;

    pub(crate) fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns true if all launches of the case were recorded as its kernel, whatever their durations are worth.
    pub(crate) const fn is_recorded(self) -> bool {
        self.has_samples() || matches!(self, Self::Throttled)
    }

    /// Returns true if the durations are samples of the case's row.
    pub(crate) const fn has_samples(self) -> bool {
        matches!(self, Self::Ok | Self::Noisy | Self::Suspicious)
    }

    /// Returns true if a replay did not measure the case's kernel at its shapes, so that its duration is none of the row.
    pub(crate) const fn refutes_replay(self) -> bool {
        matches!(self, Self::WrongKernel | Self::WrongResult | Self::Implausible | Self::InvalidArgs)
    }

    /// Returns true if the case was not launched, so that its row does not change.
    pub(crate) const fn keeps_the_row(self) -> bool {
        matches!(self, Self::Unsupported | Self::NoEntry | Self::NotRun)
    }

    /// Returns true if nothing is left to measure: accepted, or measured under the kernel that ran.
    pub(crate) const fn is_done(self) -> bool {
        matches!(self, Self::Ok | Self::RanAsOther)
    }

    /// Returns true if another attempt may succeed, because the cause may lie in the collection, not in the case.
    pub(crate) const fn is_worth_a_retry(self) -> bool {
        matches!(
            self,
            Self::LostRecords
                | Self::Crashed
                | Self::Hung
                | Self::Implausible
                | Self::NotRun
                | Self::Throttled
        )
    }
}

/// Verdicts that make the exit code of a command 1.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct FailingVerdicts(Vec<Verdict>);

impl FailingVerdicts {
    pub(crate) const fn new(verdicts: Vec<Verdict>) -> Self {
        Self(verdicts)
    }

    pub(crate) fn contains(&self, verdict: Verdict) -> bool {
        self.0.contains(&verdict)
    }

    /// Adds a verdict.
    pub(crate) fn add(&mut self, verdict: Verdict) {
        if !self.contains(verdict) {
            self.0.push(verdict);
        }
    }
}

/// All verdicts but `ok`, `ran_as_other` and `no_entry`: profiles of models have kernels that no call of torch_npu
/// launches alone.
impl Default for FailingVerdicts {
    fn default() -> Self {
        let is_failure = |verdict: &Verdict| !verdict.is_done() && *verdict != Verdict::NoEntry;
        Self(Verdict::ALL.iter().copied().filter(is_failure).collect())
    }
}

/// A verdict and its reason in plain text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaseOutcome {
    /// The verdict.
    pub verdict: Verdict,
    /// Reason, which states a cause that the user can remove.
    pub reason: String,
}

impl CaseOutcome {
    /// Creates an outcome. Control characters of the reason, which may quote a damaged file, are escaped: a CSV with a
    /// NUL byte is not a text file.
    pub fn new(verdict: Verdict, reason: impl Into<String>) -> Self {
        let reason: String = reason.into();
        if !reason.bytes().any(|byte| byte.is_ascii_control() && byte != b'\n') {
            return Self { verdict, reason };
        }
        let is_raw = |c: char| c.is_ascii_control() && c != '\n';
        let escape = |c: char| if is_raw(c) { c.escape_default().to_string() } else { c.to_string() };
        Self { verdict, reason: reason.chars().map(escape).collect() }
    }

    /// Creates an outcome whose reason is a cause followed by distinct remarks.
    pub(crate) fn with_remarks<'a>(
        verdict: Verdict,
        cause: &str,
        remarks: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let mut clauses = vec![cause];
        for remark in remarks {
            if !clauses.contains(&remark) {
                clauses.push(remark);
            }
        }
        Self::new(verdict, clauses.join(CLAUSE_SEPARATOR))
    }
}

/// Separator of the clauses of a reason.
pub(crate) const CLAUSE_SEPARATOR: &str = "; ";

/// Returns the first clause of a reason: the cause of the verdict.
pub(crate) fn reason_cause(reason: &str) -> &str {
    reason.split_once(CLAUSE_SEPARATOR).map_or(reason, |(cause, _)| cause)
}

/// Returns the clauses of a reason after the cause: properties of the call and of the host.
pub(crate) fn reason_remarks(reason: &str) -> impl Iterator<Item = &str> {
    reason.split(CLAUSE_SEPARATOR).skip(1)
}

/// Returns the first clause of a reason that begins so.
pub(crate) fn find_clause<'a>(reason: &'a str, beginning: &str) -> Option<&'a str> {
    reason.split(CLAUSE_SEPARATOR).find(|clause| clause.starts_with(beginning))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_of_reasons_are_escaped() {
        let reason = CaseOutcome::new(Verdict::LostRecords, "`a\0\u{1b}[31mé`").reason;
        assert_eq!(reason, r"`a\u{0}\u{1b}[31mé`");
        assert_eq!(CaseOutcome::new(Verdict::Ok, "5 µs").reason, "5 µs");
    }

    #[test]
    fn remarks_follow_the_cause_once() {
        let outcome = CaseOutcome::with_remarks(Verdict::Ok, "recorded", ["skewed", "warm", "skewed"]);
        assert_eq!(outcome.reason, "recorded; skewed; warm");
        assert_eq!(reason_remarks(&outcome.reason).collect::<Vec<_>>(), ["skewed", "warm"]);
        assert_eq!(reason_cause(&outcome.reason), "recorded");
        assert_eq!(reason_remarks("recorded").next(), None);
        assert_eq!(find_clause(&outcome.reason, "wa"), Some("warm"));
        assert_eq!(find_clause(&outcome.reason, "arm"), None);
    }

    #[test]
    fn verdict_names_are_parsed_and_serialized_alike() {
        for &verdict in Verdict::ALL {
            assert_eq!(verdict.as_str().parse(), Ok(verdict));
            let json = serde_json::to_string(&verdict).expect("a word");
            assert_eq!(json, format!("\"{verdict}\""));
        }
    }
}
