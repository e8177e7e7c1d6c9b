//! Origin of numbers: measured on an NPU or simulated by the rehearsal host.

use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, IntoStaticStr};

/// Kind of a database, a run and their numbers, which never changes; no command mixes the two.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, Display, EnumString, IntoStaticStr,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum DataKind {
    /// Measured on a real device, or recorded in production.
    Npu,
    /// Simulated by the rehearsal host.
    Rehearsal,
}

impl DataKind {
    pub(crate) fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns the text behind names and headings of its numbers: empty for measurements.
    pub(crate) fn mark(self) -> &'static str {
        match self {
            Self::Npu => "",
            Self::Rehearsal => " (rehearsal: simulated durations)",
        }
    }
}
