//! Purpose of a collection.

use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, IntoStaticStr};

/// Reason for the start of a collection.
#[derive(Serialize, Deserialize, Display, EnumString, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CollectionPurpose {
    /// Measurement of its cases.
    Measure,
    /// A single case that may have broken an earlier collection.
    Alone,
    /// Bisection for the case that broke a collection.
    Search,
    /// Test of the device: its cases have their verdicts, and its samples are not stored.
    Control,
}

impl CollectionPurpose {
    pub(crate) fn as_str(self) -> &'static str {
        self.into()
    }
}
