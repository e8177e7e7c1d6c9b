//! Model of simulated durations. The same inputs give the same bits on every machine, because only additions,
//! multiplications and divisions of IEEE 754 are used.
//!
//! A kernel's **base** is `fastest(work) × inefficiency + 1.3 µs`, where `fastest` is the bound of the device profile
//! and the inefficiency is 1.6 on the cube unit, 1.9 on the vector unit and 1.7 for pure data movement, each varied
//! by up to ±15 % by a hash of the kernel's name.
//!
//! | model | duration of a launch |
//! |---|---|
//! | steady | base × (1 ± up to 0.5 %), by a hash of seed, signature and the launch's number since the last sentinel |
//! | lifelike | base × collection's offset (normal, sd 0.5 %, by seed, collection and device) × launch's noise (log-normal, sd 1 %), or other noise of a plan; the first three launches of a signature in a process are slower: × 1.10 + 8 µs, × 1.03 + 2 µs, × 1.01 + 0.5 µs |
//!
//! Of a script without cases, as those of a selftest, launches whose tensors are not in the cache have all their traffic
//! at the bandwidth of device memory, and so have launches of cases after a kernel that flushes the cache. Other
//! launches of cases have a warm cache, from which a part of the traffic up to its size comes.
//!
//! Durations are multiples of 20 ns, as of the device's 50 MHz counter, and without faults never below `fastest(work)`.
//! They are rounded once, after noise and faults. Nothing was fitted to a device: the numbers contain no information
//! about a kernel.

use super::NoiseModel;
use crate::{
    base::stats::{hash_numbers, hash_text, signed_unit_deviate},
    kernel::{
        Nanos,
        device::{ComputeUnit, DeviceProfile, KernelWork},
    },
    rehearsal::fault_plan::{NoisyLaunch, RehearsedNoise},
};

/// The tick of the counter behind the profiler's times.
pub(super) const TICK_NS: i64 = 20;
/// Fixed part of every launch, in nanoseconds.
const FIXED_NS: f64 = 1_300.0;
/// Largest relative deviation of a kernel's inefficiency from that of its unit.
const INEFFICIENCY_SPREAD: f64 = 0.15;
const STEADY_SPREAD: f64 = 0.005;
/// (factor, nanoseconds) of the first launches of a signature in a process.
const COLD: [(f64, f64); 3] = [(1.10, 8_000.0), (1.03, 2_000.0), (1.01, 500.0)];

/// Inputs of a launch's duration besides the work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LaunchContext {
    pub(super) model: NoiseModel,
    pub(super) noise: RehearsedNoise,
    /// Factor of the durations on the device, in the lifelike model.
    pub(super) device_factor: f64,
    /// Factor of the duration by faults.
    pub(super) slowdown: f64,
    pub(super) seed: u64,
    pub(super) collection: u32,
    pub(super) device: u32,
    /// Hash of kernel, inputs and outputs.
    pub(super) signature: u64,
    /// Launches of the same signature since the last sentinel.
    pub(super) since_sentinel: u32,
    /// Launches of the same signature in this process before.
    pub(super) in_process: u32,
}

/// Mean duration of a kernel with a warm cache, without noise.
pub(super) fn base(profile: &DeviceProfile, kernel: &str, work: &KernelWork) -> Nanos {
    base_above(profile.fastest(work), kernel, work)
}

/// Mean duration of a kernel whose tensors are not in the cache, without noise.
pub(super) fn cold_base(profile: &DeviceProfile, kernel: &str, work: &KernelWork) -> Nanos {
    let traffic = Nanos::from_seconds(work.bytes / profile.hbm_bytes_per_second());
    base_above(profile.fastest(work).max(traffic), kernel, work)
}

/// Mean duration of a kernel with this bound.
fn base_above(bound: Nanos, kernel: &str, work: &KernelWork) -> Nanos {
    let inefficiency = match work.unit {
        ComputeUnit::Cube => 1.6,
        ComputeUnit::Vector => 1.9,
        ComputeUnit::Mte => 1.7,
    };
    let spread = 1.0 + INEFFICIENCY_SPREAD * signed_unit_deviate(hash_text(kernel));
    rounded(nanos(bound) * inefficiency * spread + FIXED_NS)
}

/// Duration of one launch with that base.
pub(super) fn duration(
    profile: &DeviceProfile,
    work: &KernelWork,
    base: Nanos,
    context: &LaunchContext,
) -> Nanos {
    let base = nanos(base);
    let varied = match context.model {
        NoiseModel::Steady => base * (1.0 + STEADY_SPREAD * signed_unit_deviate(variation(context))),
        NoiseModel::Lifelike => {
            let LaunchContext { seed, collection, device, signature, in_process, .. } = *context;
            let launch = NoisyLaunch { seed, collection, device, signature, in_process };
            let cold = usize::try_from(context.in_process).ok().and_then(|index| COLD.get(index));
            let (factor, more) = cold.copied().unwrap_or((1.0, 0.0));
            context.noise.apply(base, &launch) * context.device_factor * factor + more
        }
    };
    let floor = profile.fastest(work).0;
    let least = floor + (TICK_NS - floor.rem_euclid(TICK_NS)) % TICK_NS;
    rounded(varied.max(least as f64) * context.slowdown)
}

/// A hash of the inputs of the duration, for other quantities that vary with a launch.
pub(super) fn variation(context: &LaunchContext) -> u64 {
    let LaunchContext { seed, signature, .. } = *context;
    match context.model {
        NoiseModel::Steady => hash_numbers(&[seed, signature, u64::from(context.since_sentinel)]),
        NoiseModel::Lifelike => {
            let [collection, device] = [context.collection, context.device].map(u64::from);
            hash_numbers(&[seed, collection, device, signature, u64::from(context.in_process)])
        }
    }
}

/// Mean duration of a kernel from its recorded median and the factor of the state of the cache, without noise.
pub(super) fn recorded_base(median: Nanos, factor: f64) -> Nanos {
    rounded(nanos(median) * factor)
}

fn nanos(time: Nanos) -> f64 {
    time.0 as f64
}

fn rounded(nanos: f64) -> Nanos {
    Nanos((nanos / TICK_NS as f64).round() as i64 * TICK_NS)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::{base::assets::AssetFiles, kernel::Dtype};

    fn profile() -> DeviceProfile {
        DeviceProfile::load(&AssetFiles::embedded(), DeviceProfile::default_name())
            .expect("the default profile")
    }

    fn work(flops: f64, bytes: f64) -> KernelWork {
        KernelWork { flops, bytes, unit: ComputeUnit::Vector, dtype: Dtype::Bf16 }
    }

    fn context(model: NoiseModel) -> LaunchContext {
        LaunchContext {
            model,
            noise: RehearsedNoise::default(),
            device_factor: 1.0,
            slowdown: 1.0,
            seed: 7,
            collection: 0,
            device: 0,
            signature: 11,
            since_sentinel: 3,
            in_process: 9,
        }
    }

    #[test]
    fn steady_durations_do_not_depend_on_collection_device_or_history() {
        let (profile, work) = (profile(), work(1e6, 1e8));
        let base = base(&profile, "RmsNorm", &work);
        let first = duration(&profile, &work, base, &context(NoiseModel::Steady));
        let elsewhere =
            LaunchContext { collection: 5, device: 3, in_process: 0, ..context(NoiseModel::Steady) };
        assert_eq!(duration(&profile, &work, base, &elsewhere), first);
        let numbers: Vec<Nanos> = (0..20)
            .map(|since_sentinel| LaunchContext { since_sentinel, ..context(NoiseModel::Steady) })
            .map(|context| duration(&profile, &work, base, &context))
            .collect();
        assert!(numbers.iter().any(|number| *number != numbers[0]), "{numbers:?}");
        let spread = nanos(base) * STEADY_SPREAD + nanos(Nanos(TICK_NS));
        assert!(numbers.iter().all(|number| (nanos(*number) - nanos(base)).abs() <= spread));
    }

    #[test]
    fn durations_are_pinned() {
        // Rehearsed databases are compared byte for byte: a change here is a change of the model.
        let (profile, work) = (profile(), work(1e6, 1e10));
        let base = base(&profile, "RmsNorm", &work);
        let steady = duration(&profile, &work, base, &context(NoiseModel::Steady));
        let lifelike = duration(&profile, &work, base, &context(NoiseModel::Lifelike));
        assert_eq!((base, steady, lifelike), (Nanos(9_160_700), Nanos(9_157_340), Nanos(9_189_460)));
    }

    #[test]
    fn slower_durations_are_rounded_once() {
        let profile = profile();
        let base = Nanos(1_309);
        let mut context = context(NoiseModel::Steady);
        let (mut unchanged, mut slower) = (BTreeSet::new(), BTreeSet::new());
        for since_sentinel in 0..200 {
            context.since_sentinel = since_sentinel;
            for (slowdown, durations) in [(1.0, &mut unchanged), (3.0, &mut slower)] {
                context.slowdown = slowdown;
                durations.insert(duration(&profile, &work(0.0, 0.0), base, &context).0);
            }
        }
        // 1302.5 to 1315.5 ns, and three times as long: 3907.4 to 3946.6 ns.
        assert_eq!(unchanged, BTreeSet::from([1_300, 1_320]));
        assert_eq!(slower, BTreeSet::from([3_900, 3_920, 3_940]));
    }

    #[test]
    fn collections_differ_and_first_launches_are_slow() {
        let (profile, work) = (profile(), work(0.0, 4e8));
        let base = base(&profile, "TensorMove", &work);
        let of = |collection, in_process| {
            duration(
                &profile,
                &work,
                base,
                &LaunchContext { collection, in_process, ..context(NoiseModel::Lifelike) },
            )
        };
        let mean = |collection| (10..500).map(|n| of(collection, n).0).sum::<i64>() / 490;
        let means: Vec<i64> = (0..40).map(mean).collect();
        let overall = means.iter().sum::<i64>() / 40;
        let spread = means.iter().map(|mean| (mean - overall).pow(2)).sum::<i64>() / 39;
        let relative = (spread as f64).sqrt() / overall as f64;
        assert!((0.003..0.008).contains(&relative), "offsets have sd {relative}");
        assert!((0..20).all(|collection| of(collection, 0).0 > mean(collection) + 8_000));
    }

    proptest! {
        #[test]
        fn no_duration_is_below_the_bound_of_the_device(
            flops in 0.0..1e15, bytes in 0.0..1e11, kernel in "[A-Z][a-z]{2,9}", seed: u64,
            signature: u64, collection in 0_u32..100, n in 0_u32..100, steady: bool,
        ) {
            let (profile, work) = (profile(), work(flops, bytes));
            let model = if steady { NoiseModel::Steady } else { NoiseModel::Lifelike };
            let base = base(&profile, &kernel, &work);
            let context = LaunchContext { seed, collection, device: 1, signature, since_sentinel: n, in_process: n, ..context(model) };
            let taken = duration(&profile, &work, base, &context);
            prop_assert!(taken >= profile.fastest(&work));
            prop_assert_eq!(taken.0 % TICK_NS, 0);
            prop_assert_eq!(taken, duration(&profile, &work, base, &context));
        }
    }
}
