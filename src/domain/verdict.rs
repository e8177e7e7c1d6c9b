//! The one final state of a case in a run.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

macro_rules! verdicts {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal,)+) => {
        /// The one final state of a case in a run. It always stands beside a reason in words
        /// ([`CaseOutcome`]).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Verdict {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Verdict {
            /// Every verdict, best first.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The word used in files and on screen.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }
        }

        impl FromStr for Verdict {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                match text {
                    $($text => Ok(Self::$name),)+
                    other => Err(format!("`{other}` is not a verdict")),
                }
            }
        }
    };
}

verdicts! {
    /// Measured, every check passed.
    Ok = "ok",
    /// Measured, but the spread of the samples is above the stated target.
    Noisy = "noisy",
    /// Measured while the device's clock was below its rating.
    Throttled = "throttled",
    /// The profiler's records do not account for the launches.
    LostRecords = "lost_records",
    /// The launches ran as another kernel, or at other shapes.
    WrongKernel = "wrong_kernel",
    /// Recorded, but physically impossible or from another device.
    Implausible = "implausible",
    /// Device memory ran out.
    Oom = "oom",
    /// The call was refused, or the recorded shapes contradict the kernel's shape rule.
    InvalidArgs = "invalid_args",
    /// The catalogue has no entry that can replay it.
    Unsupported = "unsupported",
    /// It did not end within its time limit.
    Hung = "hung",
    /// The process ended while the case ran.
    Crashed = "crashed",
    /// Set aside because it took other cases down with it.
    Quarantined = "quarantined",
    /// The run ended before its turn.
    NotRun = "not_run",
}

impl Verdict {
    /// Whether another attempt may end better: the fault may lie in the collection, not in the case.
    #[must_use]
    pub const fn is_worth_a_retry(self) -> bool {
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

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A verdict and its reason in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaseOutcome {
    /// The state.
    pub verdict: Verdict,
    /// Why, in a sentence that a user can act on.
    pub reason: String,
}

impl CaseOutcome {
    /// A verdict with its reason.
    pub fn new(verdict: Verdict, reason: impl Into<String>) -> Self {
        Self { verdict, reason: reason.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_verdicts_are_one_to_one() {
        for &verdict in Verdict::ALL {
            assert_eq!(verdict.as_str().parse(), Ok(verdict));
            let json = serde_json::to_string(&verdict).expect("a word");
            assert_eq!(json, format!("\"{verdict}\""));
        }
    }
}
