//! Final state of a case in a run.

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
    /// Measured while the device's clock was below its rating.
    Throttled,
    /// The profiler's records do not account for the launches.
    LostRecords,
    /// The launches ran as another kernel, or with other shapes.
    WrongKernel,
    /// Recorded, but physically impossible or from another device.
    Implausible,
    /// Out of device memory.
    Oom,
    /// The call was refused, or the recorded shapes contradict the kernel's shape rule.
    InvalidArgs,
    /// The catalogue has no entry that covers the case.
    Unsupported,
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

/// A verdict and its reason in plain text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaseOutcome {
    /// The verdict.
    pub verdict: Verdict,
    /// Reason, which states a cause that the user can remove.
    pub reason: String,
}

impl CaseOutcome {
    /// Creates an outcome.
    pub fn new(verdict: Verdict, reason: impl Into<String>) -> Self {
        Self { verdict, reason: reason.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdict_names_are_parsed_and_serialized_alike() {
        for &verdict in Verdict::ALL {
            assert_eq!(verdict.as_str().parse(), Ok(verdict));
            let json = serde_json::to_string(&verdict).expect("a word");
            assert_eq!(json, format!("\"{verdict}\""));
        }
    }
}
