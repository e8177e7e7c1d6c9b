//! The rehearsed host among several.

use serde::{Deserialize, Serialize};

/// Name and clock of the rehearsal host, by which the nodes of a sweep differ.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RehearsedHost {
    /// Name of the host; that of the system by default.
    pub(crate) name: Option<String>,
    /// Simulated seconds by which the clock of its devices is ahead of that of the system.
    pub(crate) clock_ahead: f64,
}

impl RehearsedHost {
    /// Greatest difference of clocks in seconds.
    pub(super) const MOST: f64 = 1e6;
}
