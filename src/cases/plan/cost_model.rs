//! Initial cost model of cases, before a run has measured any, and the numbers of launches that follow from it.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{
    base::stats::{CaseCosts, MIN_SAMPLES},
    kernel::{
        CacheState, Dtype, Nanos,
        device::{ComputeUnit, DeviceProfile, KernelWork},
    },
};

/// Share of a case in the start and the export of a collection, in seconds: 15 s for 50 cases.
const COLLECTION_SHARE: f64 = 0.3;
/// Seconds for which the record of a launch is exported, timeline and summary by the C++ part of Ascend/msprof 9ba1ac7 on two cores.
pub(crate) const EXPORTED_RECORD: f64 = 2.6e-4;
/// Launches that settle the clock of the device before a case: mostly those of one reading.
const SETTLING_LAUNCHES: u32 = 5;
/// Seconds of such a launch, with the time in which the host waits for them.
const SETTLING_LAUNCH: f64 = 6e-4;
/// Ratio of the offset of a case in a collection to the noise of its launches; no run has shown it yet.
const OFFSET_RATIO: f64 = 1.0;
/// Size of the tensor that flushes the cache, in sizes of the cache.
const FLUSHED_CACHES: u64 = 2;
/// Launches that are samples, for scripts without costs.
pub(crate) const DEFAULT_LAUNCHES: u32 = 20;
/// Numbers of launches that a user may give: fewer samples give no interval.
const MIN_LAUNCHES: u32 = 6;
const MAX_LAUNCHES: u32 = 10_000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum LaunchCount {
    /// The number that gives the narrowest interval for a device time, by the predicted duration of the kernel.
    #[default]
    #[serde(rename = "auto")]
    Adaptive,
    #[serde(untagged)]
    Fixed(u32),
}

impl LaunchCount {
    /// Returns what so few launches do not show; `None` for enough of them.
    pub(crate) fn unjudged_patterns(self) -> Option<String> {
        let Self::Fixed(launches) = self else { return None };
        ((launches as usize) < MIN_SAMPLES).then(|| {
            format!(
                "trends, steps and modes are not found in collections with {launches} samples of a case, only with {MIN_SAMPLES} or more"
            )
        })
    }
}

impl FromStr for LaunchCount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self::Adaptive);
        }
        let number = text.parse().ok().filter(|number| (MIN_LAUNCHES..=MAX_LAUNCHES).contains(number));
        number.map(Self::Fixed).ok_or_else(|| {
            format!("`{text}` is neither `auto` nor a number from {MIN_LAUNCHES} to {MAX_LAUNCHES}")
        })
    }
}

impl fmt::Display for LaunchCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Adaptive => f.write_str("auto"),
            Self::Fixed(number) => write!(f, "{number}"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CacheFlush {
    /// Size of the tensor that it reads; it writes as much.
    pub(crate) bytes: u64,
    seconds: f64,
}

impl CacheFlush {
    pub(crate) fn of_device(profile: &DeviceProfile) -> Self {
        let bytes = (FLUSHED_CACHES * profile.l2_mib) << 20;
        let work = KernelWork {
            flops: (bytes / 4) as f64,
            bytes: 2.0 * bytes as f64,
            unit: ComputeUnit::Vector,
            dtype: Dtype::Int32,
        };
        let seconds = (work.bytes / profile.hbm_bytes_per_second()).max(profile.fastest(&work).seconds());
        Self { bytes, seconds }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct InitialCosts {
    /// Construction and release of the tensors of a case.
    pub case: f64,
    /// One launch, without the device time of the kernel.
    pub launch: f64,
    pub warm_up: u32,
    pub launches: LaunchCount,
    /// Kernel before each launch; `None` for a hot cache.
    pub(crate) flush: Option<CacheFlush>,
}

impl InitialCosts {
    pub(crate) const fn new(warm_up: u32, launches: LaunchCount) -> Self {
        Self { case: 0.02, launch: 50e-6, warm_up, launches, flush: None }
    }

    pub(crate) fn with_cache(self, cache: CacheState, profile: &DeviceProfile) -> Self {
        let flush = match cache {
            CacheState::Hot => None,
            CacheState::Cold => Some(CacheFlush::of_device(profile)),
        };
        Self { flush, ..self }
    }

    /// Returns the predicted seconds of a launch with its flush: about twice the roofline bound.
    fn launch_seconds(&self, fastest: Nanos) -> f64 {
        let flush = self.flush.map_or(0.0, |flush| self.launch + flush.seconds);
        self.launch + 2.0 * fastest.seconds() + flush
    }

    /// Returns the number of samples of a case whose kernel takes at least `fastest`. It depends on nothing else, so that a case
    /// has as many samples in each collection and after each interruption.
    pub(crate) fn sample_count(&self, fastest: Nanos) -> u32 {
        match self.launches {
            LaunchCount::Fixed(number) => number,
            LaunchCount::Adaptive => {
                let launch = self.launch_seconds(fastest);
                let fixed = COLLECTION_SHARE + self.case + f64::from(self.warm_up) * launch;
                CaseCosts { fixed, launch: launch + EXPORTED_RECORD }.best_launches(OFFSET_RATIO)
            }
        }
    }

    pub(crate) fn launch_count(&self, fastest: Nanos) -> u32 {
        self.warm_up + self.sample_count(fastest)
    }

    /// Returns the number of records in the profile: a flush of the cache has one of its own, and so have the launches that
    /// settle the clock.
    pub(crate) fn record_count(&self, fastest: Nanos) -> u32 {
        let of_launch = if self.flush.is_some() { 2 } else { 1 };
        self.launch_count(fastest).saturating_mul(of_launch).saturating_add(SETTLING_LAUNCHES)
    }

    pub(crate) fn case_seconds(&self, fastest: Nanos) -> f64 {
        let settling = f64::from(SETTLING_LAUNCHES) * SETTLING_LAUNCH;
        self.case + settling + f64::from(self.launch_count(fastest)) * self.launch_seconds(fastest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::assets::AssetFiles;

    #[test]
    fn long_kernels_have_fewer_samples() {
        let costs = InitialCosts::new(5, LaunchCount::Adaptive);
        let samples = |micros: i64| costs.sample_count(Nanos(micros * 1_000));
        let counts = [1, 10, 100, 500, 1_000, 5_000, 100_000].map(samples);
        assert!(counts.is_sorted_by(|one, other| one >= other), "{counts:?}");
        // sqrt(pi / 2 x 0.32 / 310e-6) samples of a kernel without duration.
        assert_eq!((counts[0], counts[6]), (40, 10));
        assert_eq!(InitialCosts::new(5, LaunchCount::Fixed(30)).sample_count(Nanos(1_000)), 30);
    }

    /// The flush reads 384 MiB and writes as much: about half a millisecond at 1.6 TB/s.
    #[test]
    fn a_cold_cache_costs_a_flush_before_each_launch() {
        let profile =
            DeviceProfile::load(&AssetFiles::embedded(), DeviceProfile::default_name()).expect("built in");
        let hot = InitialCosts::new(5, LaunchCount::Fixed(20));
        let cold = hot.with_cache(CacheState::Cold, &profile);
        assert_eq!(cold.flush.map(|flush| flush.bytes), Some((2 * profile.l2_mib) << 20));
        let launch = (cold.case_seconds(Nanos(1_000)) - hot.case_seconds(Nanos(1_000))) / 25.0;
        assert!((4e-4..7e-4).contains(&launch), "{launch}");
        let adaptive = InitialCosts::new(5, LaunchCount::Adaptive);
        let samples = |costs: InitialCosts| costs.sample_count(Nanos(1_000));
        assert!(samples(adaptive.with_cache(CacheState::Cold, &profile)) < samples(adaptive));
        assert_eq!(cold.with_cache(CacheState::Hot, &profile).flush, None);
    }

    #[test]
    fn counts_are_stored_as_they_are_written() {
        for text in ["auto", "6", "10000"] {
            let count: LaunchCount = text.parse().expect("valid");
            assert_eq!(count.to_string(), text);
            let stored = serde_json::to_string(&count).expect("JSON");
            assert_eq!(serde_json::from_str::<LaunchCount>(&stored).expect("stored"), count);
        }
        assert_eq!(serde_json::from_str::<LaunchCount>("20").expect("a number"), LaunchCount::Fixed(20));
        for wrong in ["5", "10001", "", "Auto", "-1", "7.5"] {
            assert!(wrong.parse::<LaunchCount>().is_err(), "{wrong}");
        }
        assert!(serde_json::from_str::<LaunchCount>("\"some\"").is_err());
    }
}
