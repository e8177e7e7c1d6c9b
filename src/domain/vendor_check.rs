//! What the vendor's own code says of a call that is not launched.

use std::{fmt, str::FromStr};

/// Whether a call would be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CheckVerdict {
    /// Names, types and shapes are right.
    Accepted,
    /// The call is wrong.
    Rejected,
    /// The operator is there and has nothing that judges a call without a device.
    NoMeta,
    /// The operator is not there.
    NotInTorchNpu,
}

/// Who says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CheckMethod {
    /// The operator's Meta kernel.
    Meta,
    /// Its fake implementation, under FakeTensorMode.
    Fake,
    /// npubench's own catalogue.
    Rule,
}

/// The outcome of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckOutcome {
    /// Whether the call would be taken.
    pub verdict: CheckVerdict,
    /// Who says so.
    pub by: CheckMethod,
    /// What was raised; empty for a call that is accepted.
    pub message: String,
}

const VERDICTS: [(CheckVerdict, &str); 4] = [
    (CheckVerdict::Accepted, "accepted"),
    (CheckVerdict::Rejected, "rejected"),
    (CheckVerdict::NoMeta, "no_meta"),
    (CheckVerdict::NotInTorchNpu, "not_in_torch_npu"),
];
const JUDGES: [(CheckMethod, &str); 3] =
    [(CheckMethod::Meta, "meta"), (CheckMethod::Fake, "fake"), (CheckMethod::Rule, "rule")];

/// A word that names none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no outcome of a check")]
pub struct UnknownOutcome(String);

fn find<T: Copy>(words: &[(T, &str)], text: &str) -> Result<T, UnknownOutcome> {
    let found = words.iter().find(|(_, word)| *word == text);
    found.map(|(value, _)| *value).ok_or_else(|| UnknownOutcome(text.to_owned()))
}

fn label_of<T: Copy + PartialEq>(words: &[(T, &'static str)], value: T) -> &'static str {
    words.iter().find(|(known, _)| *known == value).map_or("", |(_, word)| word)
}

impl CheckVerdict {
    /// Every verdict, the best first.
    pub const ALL: [Self; 4] = [Self::Accepted, Self::Rejected, Self::NoMeta, Self::NotInTorchNpu];

    /// Its word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        label_of(&VERDICTS, self)
    }
}

impl CheckMethod {
    /// Its word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        label_of(&JUDGES, self)
    }
}

impl FromStr for CheckVerdict {
    type Err = UnknownOutcome;
    fn from_str(text: &str) -> Result<Self, UnknownOutcome> {
        find(&VERDICTS, text)
    }
}

impl FromStr for CheckMethod {
    type Err = UnknownOutcome;
    fn from_str(text: &str) -> Result<Self, UnknownOutcome> {
        find(&JUDGES, text)
    }
}

impl fmt::Display for CheckVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl CheckOutcome {
    /// What npubench's own rules say.
    #[must_use]
    pub fn by_rule(message: impl Into<String>) -> Self {
        Self { verdict: CheckVerdict::Rejected, by: CheckMethod::Rule, message: message.into() }
    }
}
