//! What the scheduler knows of a device: whether it is free, and whether it can be trusted.

use super::Seconds;

/// A device whose controls fail is tried again after this, then after twice as long.
const REST: Seconds = 600.0;
/// A device is tried again this often.
const MOST_RESTS: u32 = 3;

/// One device.
#[derive(Clone, Debug, Default)]
pub(super) struct DeviceRecord {
    /// The collection that runs on it.
    pub(super) running: Option<u32>,
    /// Whether somebody else has it.
    pub(super) is_lent: bool,
    /// Whether controls are to show that it works before anything else runs on it.
    pub(super) is_doubted: bool,
    aside: Option<QuarantinedUntil>,
    /// Whether it has been set aside and has not proved to work since.
    is_on_trial: bool,
    rests: u32,
    strikes: u32,
}

/// A device that is not used, and until when.
#[derive(Clone, Copy, Debug, PartialEq)]
struct QuarantinedUntil {
    until: Option<Seconds>,
}

impl DeviceRecord {
    /// Whether a collection may begin on it.
    pub(super) const fn is_free(&self) -> bool {
        self.running.is_none() && !self.is_lent && self.aside.is_none()
    }

    /// Whether collections may begin on it now or when it is free.
    pub(super) const fn is_usable(&self) -> bool {
        !self.is_lent && self.aside.is_none()
    }

    /// Whether it will never be used again in this run.
    pub(super) fn is_gone(&self) -> bool {
        self.aside.is_some_and(|aside| aside.until.is_none())
    }

    /// When it is to be tried again.
    pub(super) fn wakes_at(&self) -> Option<Seconds> {
        self.aside.and_then(|aside| aside.until)
    }

    /// A fault that no case explains; says how many there were since it last proved to work.
    pub(super) fn strike(&mut self) -> u32 {
        self.is_doubted = true;
        self.strikes += 1;
        self.strikes
    }

    /// It has proved to work; says whether it had been set aside before.
    pub(super) fn clear(&mut self) -> bool {
        self.is_doubted = false;
        self.strikes = 0;
        std::mem::take(&mut self.is_on_trial)
    }

    /// It is not used for a while, or not any more; says until when.
    pub(super) fn set_aside(&mut self, now: Seconds) -> Option<Seconds> {
        self.rests += 1;
        let until = (self.rests <= MOST_RESTS).then(|| now + REST * f64::from(1_u32 << (self.rests - 1)));
        self.aside = Some(QuarantinedUntil { until });
        self.is_doubted = true;
        self.is_on_trial = true;
        until
    }

    /// Its rest is over: it may be tried.
    pub(super) fn wake(&mut self, now: Seconds) {
        if self.wakes_at().is_some_and(|until| until <= now) {
            self.aside = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_never_works_is_given_up_after_three_rests() {
        let mut device = DeviceRecord::default();
        let mut now = 0.0;
        for rest in [600.0, 1200.0, 2400.0] {
            assert_eq!(device.set_aside(now), Some(now + rest));
            device.wake(now + rest - 1.0);
            assert!(!device.is_usable());
            now += rest;
            device.wake(now);
            assert!(device.is_free() && device.is_doubted);
        }
        assert_eq!(device.set_aside(now), None);
        assert!(device.is_gone());
        device.wake(1e9);
        assert!(!device.is_usable());
    }
}
