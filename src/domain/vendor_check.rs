//! Results of checks of calls by the vendor's code, without a launch.

use serde::Deserialize;
use strum::{Display, EnumString, IntoStaticStr, VariantArray};

/// Result of a check, best first.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Display, EnumString, IntoStaticStr, VariantArray,
)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum CheckVerdict {
    /// Names, types and shapes are valid.
    Accepted,
    Rejected,
    /// The operator exists, but has no implementation that checks a call without a device.
    NoMeta,
    NotInTorchNpu,
}

/// Implementation that checks a call.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, EnumString, IntoStaticStr,
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckOutcome {
    pub(crate) verdict: CheckVerdict,
    pub(crate) by: CheckMethod,
    /// Text of the raised exception; empty for an accepted call.
    pub(crate) message: String,
}

impl CheckVerdict {
    /// Every verdict, best first.
    pub(crate) const ALL: &'static [Self] = <Self as VariantArray>::VARIANTS;

    pub(crate) fn as_str(self) -> &'static str {
        self.into()
    }
}

impl CheckMethod {
    pub(crate) fn as_str(self) -> &'static str {
        self.into()
    }
}

impl CheckOutcome {
    /// Creates a rejection by npubench's own rules.
    pub(crate) fn by_rule(message: impl Into<String>) -> Self {
        Self { verdict: CheckVerdict::Rejected, by: CheckMethod::Rule, message: message.into() }
    }
}
