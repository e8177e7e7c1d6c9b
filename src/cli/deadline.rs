//! Deadline of a run: a time of day, or a length of time.

use clap::Args;

use crate::base::deadline::Deadline;

/// Deadline of a run.
#[derive(Debug, Default, Args)]
#[group(multiple = false)]
pub(crate) struct DeadlineOptions {
    /// End by this local time, such as 07:30; no collection is started that would end later
    #[arg(long, value_name = "HH:MM", value_parser = parse_until)]
    until: Option<Deadline>,
    /// End within this time, such as 8h or 1h30m
    #[arg(long, value_name = "TIME", value_parser = |text: &str| parse_budget(text).map(Deadline::after))]
    budget: Option<Deadline>,
}

/// Parses a time of day; one that has passed is tomorrow's.
fn parse_until(text: &str) -> Result<Deadline, String> {
    let seconds = seconds_until(&jiff::Zoned::now(), parse_clock(text)?);
    seconds.map(Deadline::after).ok_or_else(|| format!("`{text}` is not a time of the calendar"))
}

fn parse_clock(text: &str) -> Result<jiff::civil::Time, String> {
    let time = jiff::civil::Time::strptime("%H:%M", text);
    time.map_err(|_| format!("`{text}` is not a time of day; write hours and minutes, such as 07:30"))
}

/// Parses a length of time and returns seconds.
fn parse_budget(text: &str) -> Result<f64, String> {
    let span: Result<jiff::SignedDuration, _> = text.parse();
    let seconds = span.map(|span| span.as_secs_f64());
    let seconds =
        seconds.map_err(|_| format!("`{text}` is not a length of time; write it as 8h, 90m or 1h30m"))?;
    if seconds < 1.0 {
        return Err(format!("`{text}` is less than a second"));
    }
    Ok(seconds)
}

impl DeadlineOptions {
    pub(crate) const fn deadline(&self) -> Option<Deadline> {
        if self.until.is_some() { self.until } else { self.budget }
    }
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
