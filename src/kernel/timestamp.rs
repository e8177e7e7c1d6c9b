//! Instants and durations, and their text in files and on screen.

use std::{
    fmt,
    str::FromStr,
    time::{SystemTime, UNIX_EPOCH},
};

use jiff::tz::TimeZone;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use crate::{base::command_error::CommandError, kernel::Nanos};

/// An instant, in nanoseconds since 1970; in files UTC with microseconds, such as `2026-03-01T22:15:03.250000Z`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, schemars::JsonSchema)]
#[schemars(with = "String")]
pub(crate) struct Timestamp(pub Nanos);

impl Timestamp {
    pub(crate) fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(Nanos(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)))
    }

    /// Checks that an instant can be the time of this host: years 2000 to 2200. Later times are not far from the greatest instant.
    pub(crate) fn check_clock(self) -> Result<(), CommandError> {
        const YEAR: i64 = 31_556_952_000_000_000;
        match (30 * YEAR..230 * YEAR).contains(&self.0.0) {
            true => Ok(()),
            false => Err(CommandError::cannot_measure(
                format!("the clock of this host is wrong: {self}, expected a year from 2000 to 2199"),
                "set the clock, for example with `timedatectl set-time`, and start the command again",
            )),
        }
    }

    pub(crate) fn plus_seconds(self, seconds: f64) -> Self {
        Self(Nanos(self.0.0.saturating_add(Nanos::from_seconds(seconds).0)))
    }

    pub(crate) fn seconds_since(self, earlier: Self) -> f64 {
        Nanos(self.0.0.saturating_sub(earlier.0.0)).seconds()
    }

    pub(crate) fn local_date_time(self) -> String {
        self.local("%Y-%m-%d %H:%M:%S %:z")
    }

    pub(crate) fn local_time(self) -> String {
        self.local("%H:%M:%S %:z")
    }

    /// Returns the time of day in the time zone of the user without the zone, for tables below a line with it.
    pub(crate) fn local_clock(self) -> String {
        self.local("%H:%M:%S")
    }

    fn local(self, format: &str) -> String {
        self.to_zoned().strftime(format).to_string()
    }

    /// Returns the instant in the time zone of the user.
    pub(crate) fn to_zoned(self) -> jiff::Zoned {
        self.to_jiff().to_zoned(TimeZone::system())
    }

    pub(crate) fn to_jiff(self) -> jiff::Timestamp {
        jiff::Timestamp::from_nanosecond(i128::from(self.0.0)).unwrap_or_default()
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.6}", self.to_jiff())
    }
}

impl FromStr for Timestamp {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let instant = text.parse::<jiff::Timestamp>().map_err(|error| error.to_string())?;
        Ok(Self(Nanos(i64::try_from(instant.as_nanosecond()).unwrap_or(i64::MAX))))
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

const UNITS: [(&str, f64); 6] = [
    ("year", 365.0 * 86_400.0),
    ("week", 7.0 * 86_400.0),
    ("day", 86_400.0),
    ("hour", 3_600.0),
    ("minute", 60.0),
    ("second", 1.0),
];

pub(crate) fn format_duration(seconds: f64) -> String {
    let seconds = seconds.max(0.0);
    let smaller = |place: usize| UNITS.get(place + 1).map_or(0.0, |(_, smaller)| *smaller);
    let mut units = UNITS.iter().enumerate();
    // `1 hour` would be off by up to a half: a unit is used from two of it on, rounded.
    let unit = units.find(|(place, (_, unit))| seconds + smaller(*place) / 2.0 >= 1.5 * unit);
    let (name, number) = match unit {
        Some((_, (name, unit))) => (*name, (seconds / unit).round().max(2.0)),
        None => ("second", seconds.round()),
    };
    format!("{number} {name}{}", if number == 1.0 { "" } else { "s" })
}

/// Returns a duration in hours, minutes and whole seconds: `0:07`, `12:30`, `1:02:03`.
pub(crate) fn format_clock(seconds: f64) -> String {
    let whole = seconds.max(0.0).round() as u64;
    let (hours, minutes, seconds) = (whole / 3600, whole / 60 % 60, whole % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamp_text_is_parsed_back() {
        let instant = Timestamp(Nanos(1_772_403_303_250_000_000));
        assert_eq!(instant.to_string(), "2026-03-01T22:15:03.250000Z");
        assert_eq!("2026-03-01T22:15:03.250000Z".parse(), Ok(instant));
        assert!((instant.plus_seconds(1.5).seconds_since(instant) - 1.5).abs() < 1e-9);
        assert!("yesterday".parse::<Timestamp>().is_err());
    }

    #[test]
    fn a_wrong_clock_is_refused() {
        let is_right = |time: &str| time.parse::<Timestamp>().expect("a time").check_clock().is_ok();
        assert!(
            ["2000-01-02T00:00:00Z", "2026-03-01T00:00:00Z", "2199-12-30T00:00:00Z"]
                .into_iter()
                .all(is_right)
        );
        let wrong =
            ["1970-01-01T00:00:00Z", "1999-12-30T00:00:00Z", "2200-01-02T00:00:00Z", "9999-12-30T00:00:00Z"];
        assert!(!wrong.into_iter().any(is_right));
    }

    #[test]
    fn rounded_durations_are_off_by_less_than_a_third() {
        let shown = [0.0, 0.6, 1.4, 1.5, 89.4, 89.5, 150.0, 5_369.0, 5_370.0, 129_600.0, 1_000_000.0, 1e8]
            .map(format_duration);
        let expected = [
            "0 seconds",
            "1 second",
            "1 second",
            "2 seconds",
            "89 seconds",
            "2 minutes",
            "3 minutes",
            "89 minutes",
            "2 hours",
            "2 days",
            "2 weeks",
            "3 years",
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn durations_are_shown_in_hours_minutes_and_seconds() {
        let shown = [0.2, 7.0, 59.6, 750.0, 3723.0, -3.0].map(format_clock);
        assert_eq!(shown, ["0:00", "0:07", "1:00", "12:30", "1:02:03", "0:00"]);
    }
}
