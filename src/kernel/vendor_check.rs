//! Results of checks of calls by the vendor's code, without a launch.

use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, IntoStaticStr};

use super::{CaseOutcome, Verdict};

/// Result of a check, best first.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    Display,
    EnumString,
    IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub(crate) enum CheckVerdict {
    /// Names, types and shapes are valid.
    Accepted,
    /// The vendor's code refused the call.
    Rejected,
    /// The recorded shapes contradict each other.
    InvalidArgs,
    /// No form of the kernel's entry covers the case.
    Unsupported,
    /// The case needs more memory than the device has.
    Oom,
    NoEntry,
    /// The operator exists, but has no implementation that checks a call without a device.
    NoMeta,
    NotInTorchNpu,
}

/// Implementation that checks a call.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    Display,
    EnumString,
    IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum CheckMethod {
    /// The operator's Meta kernel.
    #[default]
    Meta,
    /// The operator's fake implementation, under FakeTensorMode.
    Fake,
    /// npubench's own catalogue.
    Rule,
}

/// Result of one check with its method and message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckOutcome {
    pub(crate) verdict: CheckVerdict,
    #[serde(rename = "judge")]
    pub(crate) by: CheckMethod,
    /// Text of the raised exception; empty for an accepted call.
    pub(crate) message: String,
}

impl CheckVerdict {
    pub(crate) fn as_str(self) -> &'static str {
        self.into()
    }

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

impl CheckMethod {
    pub(crate) fn as_str(self) -> &'static str {
        self.into()
    }
}

impl CheckOutcome {
    /// Creates the result of a case that the catalogue refuses, so that there is no call to check.
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
