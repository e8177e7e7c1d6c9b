//! Instants and lengths of time as files and people read them.

use std::{
    fmt,
    str::FromStr,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use indicatif::HumanDuration;
use jiff::tz::TimeZone;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use crate::domain::Nanos;

/// An instant. Files have it in UTC with microseconds, such as `2026-03-01T22:15:03.250000Z`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(pub Nanos);

impl Timestamp {
    /// This one.
    #[must_use]
    pub fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(Nanos(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)))
    }

    /// The moment so many seconds later.
    #[must_use]
    pub fn after(self, seconds: f64) -> Self {
        Self(Nanos(self.0.0.saturating_add(Nanos::from_seconds(seconds).0)))
    }

    /// Seconds since an earlier moment.
    #[must_use]
    pub fn since(self, earlier: Self) -> f64 {
        Nanos(self.0.0.saturating_sub(earlier.0.0)).seconds()
    }

    /// Date and time of day where the user is.
    #[must_use]
    pub fn local(self) -> String {
        self.timestamp().to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S").to_string()
    }

    /// The time of day where the user is.
    #[must_use]
    pub fn local_time(self) -> String {
        self.timestamp().to_zoned(TimeZone::system()).strftime("%H:%M:%S").to_string()
    }

    fn timestamp(self) -> jiff::Timestamp {
        jiff::Timestamp::from_nanosecond(i128::from(self.0.0)).unwrap_or_default()
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.6}", self.timestamp())
    }
}

impl FromStr for Timestamp {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let moment = text.parse::<jiff::Timestamp>().map_err(|error| error.to_string())?;
        Ok(Self(Nanos(i64::try_from(moment.as_nanosecond()).unwrap_or(i64::MAX))))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// A length of time in words: `3 minutes`.
pub(super) fn span(seconds: f64) -> String {
    HumanDuration(Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or_default()).to_string()
}

/// A length of time as a clock shows it: `0:07`, `12:30`, `1:02:03`.
pub(super) fn clock(seconds: f64) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole seconds, at least 0")]
    let whole = seconds.max(0.0).round() as u64;
    let (hours, minutes, seconds) = (whole / 3600, whole / 60 % 60, whole % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_and_read_back() {
        let moment = Timestamp(Nanos(1_772_403_303_250_000_000));
        assert_eq!(moment.to_string(), "2026-03-01T22:15:03.250000Z");
        assert_eq!("2026-03-01T22:15:03.250000Z".parse(), Ok(moment));
        assert!((moment.after(1.5).since(moment) - 1.5).abs() < 1e-9);
        assert!("yesterday".parse::<Timestamp>().is_err());
    }

    #[test]
    fn lengths_are_shown_as_a_clock_shows_them() {
        let shown = [0.2, 7.0, 59.6, 750.0, 3723.0, -3.0].map(clock);
        assert_eq!(shown, ["0:00", "0:07", "1:00", "12:30", "1:02:03", "0:00"]);
    }
}
