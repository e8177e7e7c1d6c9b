//! Verdicts: the final state of a case in a run, best first, and which of them are worth a retry.
//!
//! Rules on records are in `verify/record_rules.rs`. `verify/rules.rs` only describes the other rules, whose verdicts are
//! assigned in `verify/journal.rs` (exceptions), `collection.rs`, `samples.rs`, `controls.rs`, `estimates.rs` and
//! `low_clocks.rs`. `sched/on_finished.rs` decides on new attempts by `is_worth_a_retry`, and `Cause::is_unclear`. Verdicts with samples are also in
//! `WITH_SAMPLES` of `database/ledger/mod.rs`.
//! The causes and their sentences are in `cause.rs`. docs/database.md explains each verdict.

use serde::{Deserialize, Serialize, Serializer};
use strum::{Display, EnumString, IntoStaticStr, VariantArray};

use super::{Cause, Reason};

/// The one final state of a case in a run, best first; a [`CaseOutcome`] adds the reason.
#[derive(Serialize, Deserialize, Display, EnumString, IntoStaticStr, VariantArray, schemars::JsonSchema)]
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

    /// Verdicts of the ranks of a gang by priority: the failure of one process makes the others fail too, and the first of
    /// these is the cause. A verdict that is not listed comes before all of them.
    pub(crate) const BLAME_ORDER: [Self; 9] = [
        Self::Oom,
        Self::Rejected,
        Self::Crashed,
        Self::Hung,
        Self::WrongResult,
        Self::WrongKernel,
        Self::Implausible,
        Self::LostRecords,
        Self::NotRun,
    ];

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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(transparent)]
pub(crate) struct FailingVerdicts(pub(crate) Vec<Verdict>);

impl FailingVerdicts {
    pub(crate) fn contains(&self, verdict: Verdict) -> bool {
        self.0.contains(&verdict)
    }

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

#[derive(Clone, Debug, PartialEq, Eq, schemars::JsonSchema)]
#[schemars(with = "CaseOutcomeRecord<'_>")]
pub struct CaseOutcome {
    pub verdict: Verdict,
    pub reason: Reason,
}

impl CaseOutcome {
    pub fn new(verdict: Verdict, reason: impl Into<Reason>) -> Self {
        Self { verdict, reason: reason.into() }
    }

    /// Returns true if another attempt may succeed: by the verdict, or because the error may not be that of the call.
    pub(crate) fn is_worth_a_retry(&self) -> bool {
        self.verdict.is_worth_a_retry() || self.reason.cause.is_unclear()
    }

    /// Returns true if a case of a killed run needs no further attempt after this number of attempts with a launch, of which the last had
    /// this outcome. One that ran out of memory is repeated alone; one that ran as another kernel, or whose error may not be
    /// that of the call, first on another device.
    pub(crate) fn ends_a_resumed_case(&self, attempts: usize) -> bool {
        match self.verdict {
            Verdict::Oom => false,
            Verdict::WrongKernel => attempts > 1,
            _ if self.reason.cause.is_unclear() => attempts > 1,
            verdict => !verdict.is_worth_a_retry(),
        }
    }

    pub(crate) fn with_remarks(
        verdict: Verdict,
        cause: Cause,
        remarks: impl IntoIterator<Item = Cause>,
    ) -> Self {
        Self { verdict, reason: Reason::new(cause, remarks) }
    }

    pub(crate) fn with_remark(mut self, remark: Cause) -> Self {
        self.reason.add(remark);
        self
    }

    /// Returns the outcome of an attempt that something contradicts: `suspicious`, whatever its spread.
    pub(crate) fn of_contradicted_attempt(self, contradiction: Cause) -> Self {
        match self.verdict {
            Verdict::Noisy => {
                let Reason { cause, remarks } = self.reason;
                Self::with_remarks(Verdict::Suspicious, contradiction, [cause].into_iter().chain(remarks))
            }
            _ => self.with_contradiction(contradiction),
        }
    }

    /// Returns `suspicious` instead of `ok`; any other verdict gets the contradiction as a remark.
    pub(crate) fn with_contradiction(self, contradiction: Cause) -> Self {
        match self.verdict {
            Verdict::Ok => Self::with_remarks(Verdict::Suspicious, contradiction, self.reason.remarks),
            _ => self.with_remark(contradiction),
        }
    }
}

#[derive(Serialize, schemars::JsonSchema)]
struct CaseOutcomeRecord<'a> {
    verdict: Verdict,
    /// The cause and the remarks as a sentence.
    reason: String,
    cause: &'static str,
    #[schemars(with = "Vec<serde_json::Map<String, serde_json::Value>>")]
    findings: Vec<&'a Cause>,
}

impl Serialize for CaseOutcome {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { verdict, reason } = self;
        let record = CaseOutcomeRecord {
            verdict: *verdict,
            reason: reason.to_string(),
            cause: reason.cause.name(),
            findings: reason.all().collect(),
        };
        record.serialize(serializer)
    }
}

#[derive(Serialize, Deserialize, Display, EnumString, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CheckVerdict {
    Accepted,
    Rejected,
    InvalidArgs,
    Unsupported,
    Oom,
    NoEntry,
    NoMeta,
    NotInTorchNpu,
}

#[derive(Serialize, Deserialize, Display, EnumString, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CheckMethod {
    #[default]
    Meta,
    Fake,
    Rule,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckOutcome {
    pub(crate) verdict: CheckVerdict,
    #[serde(rename = "judge")]
    pub(crate) by: CheckMethod,
    pub(crate) message: String,
}

impl CheckVerdict {
    /// Returns the verdict that a run would give to the case; `None` if it would be launched.
    pub(crate) const fn run_verdict(self) -> Option<Verdict> {
        match self {
            Self::Accepted | Self::NoMeta | Self::NotInTorchNpu => None,
            Self::Rejected => Some(Verdict::Rejected),
            Self::InvalidArgs => Some(Verdict::InvalidArgs),
            Self::Unsupported => Some(Verdict::Unsupported),
            Self::Oom => Some(Verdict::Oom),
            Self::NoEntry => Some(Verdict::NoEntry),
        }
    }
}

impl CheckOutcome {
    pub(crate) fn by_rule(outcome: &CaseOutcome) -> Self {
        let verdict = match outcome.verdict {
            Verdict::Unsupported => CheckVerdict::Unsupported,
            Verdict::NoEntry => CheckVerdict::NoEntry,
            Verdict::Oom => CheckVerdict::Oom,
            _ => CheckVerdict::InvalidArgs,
        };
        Self { verdict, by: CheckMethod::Rule, message: outcome.reason.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remarks_follow_the_cause_once() {
        let remarks = ["skewed", "warm", "skewed"].map(Cause::from);
        let outcome = CaseOutcome::with_remarks(Verdict::Ok, "recorded".into(), remarks);
        assert_eq!(outcome.reason.to_string(), "recorded; skewed; warm");
        assert_eq!(outcome.clone().with_remark("warm".into()), outcome);
    }

    #[test]
    fn only_accepted_results_become_suspicious() {
        let attempt =
            |verdict| CaseOutcome::with_remarks(verdict, "a cause".into(), [Cause::from("a remark")]);
        let shown = |outcome: CaseOutcome| (outcome.verdict, outcome.reason.to_string());
        let contradicted = |verdict| shown(attempt(verdict).with_contradiction("too slow".into()));
        assert_eq!(contradicted(Verdict::Ok), (Verdict::Suspicious, "too slow; a remark".to_owned()));
        assert_eq!(contradicted(Verdict::Noisy), (Verdict::Noisy, "a cause; a remark; too slow".to_owned()));
        let noisy = attempt(Verdict::Noisy).of_contradicted_attempt("too slow".into());
        assert_eq!(shown(noisy), (Verdict::Suspicious, "too slow; a cause; a remark".to_owned()));
        let suspicious = attempt(Verdict::Ok).with_contradiction("too slow".into());
        assert_eq!(suspicious.clone().with_contradiction("too slow".into()), suspicious);
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
