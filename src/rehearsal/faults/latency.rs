//! Simulated latency: sleep on top of the real time of the stand-ins.

use std::time::{Duration, Instant};

/// Sleep that is due before the next answer. Simulated seconds are divided by the speed; a slow device stretches the
/// time between answers.
#[derive(Clone, Debug)]
pub(in crate::rehearsal) struct SimulatedLatency {
    speed: f64,
    slowness: f64,
    owed: Duration,
    last: Instant,
}

/// Shorter sleeps are accumulated, because the system's resolution is no finer.
const LEAST: Duration = Duration::from_millis(1);

impl SimulatedLatency {
    pub(super) fn new(speed: f64) -> Self {
        Self { speed, slowness: 1.0, owed: Duration::ZERO, last: Instant::now() }
    }

    /// Sets the factor by which the device is slower from now on.
    pub(in crate::rehearsal) fn slow_down(&mut self, factor: f64) {
        self.slowness = factor;
    }

    /// Adds simulated seconds.
    pub(in crate::rehearsal) fn owe(&mut self, pretended: f64) {
        self.owed = self.owed.saturating_add(seconds(pretended / self.speed * self.slowness));
    }

    /// Returns the sleep that is due before the next answer.
    pub(in crate::rehearsal) fn due(&mut self) -> Duration {
        let passed = self.last.elapsed();
        self.owed = self.owed.saturating_add(passed.mul_f64(self.slowness - 1.0));
        let due = if self.owed < LEAST { Duration::ZERO } else { std::mem::take(&mut self.owed) };
        // The sleep itself is not stretched again.
        self.last = Instant::now() + due;
        due
    }
}

/// Converts seconds to a duration; zero for a number that is no duration.
fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pretended_seconds_pass_as_fast_as_the_speed_says() {
        let mut pace = SimulatedLatency::new(100.0);
        assert_eq!(pace.due(), Duration::ZERO);
        pace.owe(30.0);
        assert_eq!(pace.due(), Duration::from_millis(300));
        (0..9).for_each(|_| pace.owe(0.01));
        assert_eq!(pace.due(), Duration::ZERO, "0.9 ms are saved up");
        pace.owe(0.02);
        assert_eq!(pace.due(), Duration::from_micros(1_100));
        pace.slow_down(3.0);
        pace.owe(1.0);
        assert!(pace.due() >= Duration::from_millis(30));
    }
}
