//! Values of options that several commands share: numbers, times, lists of devices, ids.

use std::{ops::RangeBounds, str::FromStr};

use super::prelude::*;

/// Parses a number in a range; `expected` follows the text in the message, such as `not a number from 0 to 4`.
pub(super) fn parse_within<T: FromStr + PartialOrd>(
    text: &str,
    range: impl RangeBounds<T>,
    expected: &str,
) -> Result<T, String> {
    let number = text.trim().parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| format!("`{text}` is {expected}"))
}

/// Parses a number of rows. Accepts a leading minus sign in order to refuse it with a clear message.
pub(super) fn parse_rows(text: &str) -> Result<usize, String> {
    parse_within(text, .., "not a whole number from 0 on; 0 stands for all valid rows")
}

pub(super) fn parse_seed(text: &str) -> Result<u64, String> {
    parse_within(text, .., &format!("not a whole number from 0 to {}", u64::MAX))
}

pub(super) fn parse_shard_count(text: &str) -> Result<usize, String> {
    parse_within(text, 1..100_000, "no number of shards from 1 to 99999")
}

/// Parses an expert skew. Above 4 the first expert has nearly all tokens.
pub(super) fn parse_skew(text: &str) -> Result<f64, String> {
    parse_within(text, 0.0..=4.0, "not a number from 0 to 4")
}

/// Parses a percentage from 0.1 to `max`, also with a percent sign.
pub(super) fn parse_percent(text: &str, max: f64) -> Result<f64, String> {
    let number = text.trim_end_matches('%').trim().parse();
    let percent = number.map_err(|_| format!("`{text}` is no number"))?;
    let is_sensible = (0.1..=max).contains(&percent);
    is_sensible.then_some(percent).ok_or_else(|| format!("`{text}` is not between 0.1 and {max} percent"))
}

/// Upper limit of a memory size, above the memory of any device.
const MAX_GIB: u32 = 1 << 20;
/// Upper limit of device numbers, so that a mistyped range does not become a long list.
const MAX_DEVICES: u32 = 1024;

pub(super) fn parse_gib(text: &str) -> Result<u64, String> {
    let gib = text.parse::<f64>().ok().filter(|gib| *gib > 0.0 && *gib <= f64::from(MAX_GIB));
    gib.map(|gib| (gib * f64::from(1 << 30)) as u64)
        .ok_or_else(|| format!("`{text}` is not a number above 0, up to {MAX_GIB}"))
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DeviceList(pub(super) Vec<u32>);

pub(super) fn parse_devices(text: &str) -> Result<DeviceList, String> {
    let expected = || format!("`{text}` is not a list of devices such as `0-3,8`");
    let number = |part: &str| part.trim().parse::<u32>().ok().filter(|&device| device < MAX_DEVICES);
    let mut devices = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first).ok_or_else(expected)?, number(last).ok_or_else(expected)?);
        if first > last {
            return Err(expected());
        }
        devices.extend(first..=last);
    }
    devices.sort_unstable();
    devices.dedup();
    Ok(DeviceList(devices))
}

pub(super) fn parse_case_prefix(text: &str) -> Result<String, String> {
    let is_id = (1..=16).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let problem = || format!("`{text}` is not the id of a case, which has 16 hexadecimal digits");
    is_id.then(|| text.to_ascii_lowercase()).ok_or_else(problem)
}

pub(super) fn parse_budget(text: &str) -> Result<f64, String> {
    let span = text.parse::<jiff::SignedDuration>();
    let seconds = span.map(|span| span.as_secs_f64());
    let seconds =
        seconds.map_err(|_| format!("`{text}` is not a length of time; write it as 8h, 90m or 1h30m"))?;
    if seconds < 1.0 { Err(format!("`{text}` is less than a second")) } else { Ok(seconds) }
}

/// Parses a time of day; one that has passed is tomorrow's.
pub(super) fn parse_until(text: &str) -> Result<Deadline, String> {
    let seconds = seconds_until(&Timestamp::now().to_zoned(), parse_clock(text)?);
    seconds.map(Deadline::after).ok_or_else(|| format!("`{text}` is not a time of the calendar"))
}

fn parse_clock(text: &str) -> Result<jiff::civil::Time, String> {
    let time = jiff::civil::Time::strptime("%H:%M", text);
    time.map_err(|_| format!("`{text}` is not a time of day; write hours and minutes, such as 07:30"))
}

fn seconds_until(now: &jiff::Zoned, until: jiff::civil::Time) -> Option<f64> {
    let today = now.with().time(until).build().ok()?;
    let end = if today > *now { today } else { today.tomorrow().ok()?.with().time(until).build().ok()? };
    Some(now.duration_until(&end).as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_in_gib_have_limits() {
        assert_eq!(parse_gib("0.5"), Ok(1 << 29));
        assert_eq!(parse_gib("1048576"), Ok(1 << 50));
        for wrong in ["0", "-1", "nan", "inf", "1e9", "64G", ""] {
            assert!(parse_gib(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn device_lists_are_sorted_and_limited() {
        assert_eq!(parse_devices("0-3,8,2"), Ok(DeviceList(vec![0, 1, 2, 3, 8])));
        for wrong in ["", "3-1", "a", "1-", "-1", "0-99999999", "1,,2"] {
            assert!(parse_devices(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_time_of_day_that_has_passed_is_tomorrows() {
        let now: jiff::Zoned = "2026-03-01T22:00:00+00:00[UTC]".parse().expect("a time");
        let seconds = |text| seconds_until(&now, parse_clock(text).expect("a time of day"));
        assert_eq!(seconds("22:30"), Some(1800.0));
        assert_eq!(seconds("07:30"), Some(9.5 * 3600.0));
        assert_eq!(seconds("22:00"), Some(86400.0));
        assert!(parse_clock("25:00").is_err());
        assert!(parse_clock("7").is_err());
    }

    #[test]
    fn a_budget_is_at_least_a_second() {
        assert_eq!(parse_budget("1h30m"), Ok(5400.0));
        assert_eq!(parse_budget("90m"), Ok(5400.0));
        assert_eq!(parse_budget("20s"), Ok(20.0));
        for wrong in ["0s", "900ms", "-1h", "8", "", "tomorrow"] {
            assert!(parse_budget(wrong).is_err(), "{wrong}");
        }
    }
}
