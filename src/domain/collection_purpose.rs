//! Why a collection is begun.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// Why a collection is begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CollectionPurpose {
    /// To measure its cases.
    Measure,
    /// To see whether its one case ends well by itself.
    Alone,
    /// To find out which of the cases of a broken collection is guilty.
    Search,
    /// To see whether the device works: its cases have their verdicts, and its samples do not count.
    Control,
}

impl CollectionPurpose {
    /// Every purpose.
    pub const ALL: [Self; 4] = [Self::Measure, Self::Alone, Self::Search, Self::Control];

    /// The word used in files and on screen.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Measure => "measure",
            Self::Alone => "alone",
            Self::Search => "search",
            Self::Control => "control",
        }
    }
}

impl fmt::Display for CollectionPurpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for CollectionPurpose {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|purpose| purpose.as_str() == text);
        found.ok_or_else(|| format!("`{text}` is no purpose of a collection"))
    }
}
