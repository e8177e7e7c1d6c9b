//! Simulated latency: sleep on top of the real time of the stand-ins.

use std::time::{Duration, Instant};

/// Sleep that is due before the next answer. Simulated seconds are divided by the speed; a slow device stretches the
/// time between answers.
#[derive(Clone, Debug)]
pub(in crate::rehearsal) struct SimulatedLatency {
    speed: f64,
    /// Factor by which the device is slower.
    pub(in crate::rehearsal) slowness: f64,
    pending: Duration,
    last: Instant,
}

/// Shorter sleeps are accumulated, because the system's resolution is not finer.
const MIN_SLEEP: Duration = Duration::from_millis(1);

impl SimulatedLatency {
    pub(in crate::rehearsal) fn new(speed: f64) -> Self {
        Self { speed, slowness: 1.0, pending: Duration::ZERO, last: Instant::now() }
    }

    /// Adds simulated seconds.
    pub(in crate::rehearsal) fn add(&mut self, simulated: f64) {
        let seconds = simulated / self.speed * self.slowness;
        self.pending = self.pending.saturating_add(Duration::try_from_secs_f64(seconds).unwrap_or_default());
    }

    /// Returns the sleep that is due before the next answer.
    pub(in crate::rehearsal) fn take_pending(&mut self) -> Duration {
        let elapsed = self.last.elapsed();
        self.pending = self.pending.saturating_add(elapsed.mul_f64(self.slowness - 1.0));
        let delay = if self.pending < MIN_SLEEP { Duration::ZERO } else { std::mem::take(&mut self.pending) };
        // The sleep itself is not stretched again.
        self.last = Instant::now() + delay;
        delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simulated_seconds_are_divided_by_the_speed() {
        let mut latency = SimulatedLatency::new(100.0);
        assert_eq!(latency.take_pending(), Duration::ZERO);
        latency.add(30.0);
        assert_eq!(latency.take_pending(), Duration::from_millis(300));
        (0..9).for_each(|_| latency.add(0.01));
        assert_eq!(latency.take_pending(), Duration::ZERO, "0.9 ms are accumulated");
        latency.add(0.02);
        assert_eq!(latency.take_pending(), Duration::from_micros(1_100));
        latency.slowness = 3.0;
        latency.add(1.0);
        assert!(latency.take_pending() >= Duration::from_millis(30));
    }
}
