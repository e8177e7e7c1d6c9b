//! Whether numbers were measured on an NPU or made up by the rehearsal host.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// The kind of a database folder, of a run and of every number in them. It is given when a folder
/// is made and never changes; no command mixes the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DataKind {
    /// Measured on a real device, or recorded in production.
    Npu,
    /// Simulated by the rehearsal host.
    Rehearsal,
}

impl DataKind {
    /// The word used in files and on the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Npu => "npu",
            Self::Rehearsal => "rehearsal",
        }
    }
}

impl fmt::Display for DataKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for DataKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "npu" => Ok(Self::Npu),
            "rehearsal" => Ok(Self::Rehearsal),
            other => Err(format!("`{other}` is neither `npu` nor `rehearsal`")),
        }
    }
}
