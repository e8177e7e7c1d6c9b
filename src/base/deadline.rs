//! Time at which a command ends its work.

use std::time::{Duration, Instant};

/// A deadline, made once when the command line is parsed, and passed on unchanged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline(Instant);

impl Deadline {
    pub(crate) fn after(seconds: f64) -> Self {
        Self(Instant::now() + Duration::from_secs_f64(seconds))
    }

    /// Returns the seconds until the deadline, 0 once it has passed.
    pub(crate) fn rest(self) -> f64 {
        self.0.saturating_duration_since(Instant::now()).as_secs_f64()
    }
}

pub(crate) fn parse_limit(text: &str) -> Result<Duration, String> {
    let limit = text.parse::<jiff::SignedDuration>().ok().and_then(|limit| Duration::try_from(limit).ok());
    let limit = limit.filter(|limit| !limit.is_zero());
    limit.ok_or_else(|| format!("`{text}` is not a length of time; write it as 30s, 10m or 1h30m"))
}
