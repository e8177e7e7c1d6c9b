//! Experiment 6: the shared cache has the size of the device profile, and no launch is faster than the roofline bound.
//!
//! Copies of growing size are launched in three ways: on the same tensors (hot), on another pair of tensors each time,
//! which together exceed the cache twice (rotated), and after a kernel that moves more than the cache holds (flushed).
//! Products of few rows with weights of growing size, as of a decode step, are launched hot and flushed.

use std::path::Path;

use super::{
    evidence::SelftestContext,
    experiment::{EvidenceError, Experiment, Finding},
    kernel_steps::{LaunchStep, StepCache, StepKernel, StepSettings, WARM_UP, median_of, step_durations},
};
use crate::kernel::{Nanos, device::DeviceProfile};

pub(super) const EXPERIMENT: Experiment = Experiment {
    number: 6,
    name: "cache-bandwidth",
    assumption: "the cache has the size of the device profile, and no kernel is faster than its roofline bound",
    expected: "the bandwidth of hot copies falls where source and destination together exceed the cache of the device \
               profile (within a factor of 2); cold launches are not faster than hot ones; none beneath the roofline bound",
    fix: "correct `l2_mib` and the rates of the device profile; true durations would end as implausible",
    run,
};

const COPY_MIB: [u64; 12] = [1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256, 512];
const WEIGHT_MIB: [u64; 4] = [8, 32, 64, 256];
const ROWS: u64 = 16;
/// Inner dimension of the products; a weight of one MiB has 128 columns.
const INNER: u64 = 4_096;
const COLUMNS_PER_MIB: u64 = 128;
const MEASURED: u32 = 8;
const KNEE_SHARE: f64 = 0.8;
const KNEE_FACTOR: f64 = 2.0;
/// Share of the roofline bound below which a duration is implausible, as for runs.
const PLAUSIBLE: f64 = 0.95;
/// Share and nanoseconds by which a cold median may be below a hot one.
const NOISE_SHARE: f64 = 0.03;
const NOISE_NANOS: f64 = 200.0;

fn run(context: &SelftestContext, folder: &Path) -> Result<Finding, EvidenceError> {
    let cache_mib = context.host.profile.l2_mib;
    let steps = launch_steps(cache_mib);
    let settings = StepSettings { flush_mib: 2 * cache_mib, ..StepSettings::default() };
    let evidence = context.script(folder, "steps", settings.parameters(&steps)).complete()?;
    let records = evidence.readable_records()?;
    let measured = (0..)
        .zip(steps)
        .map(|(number, step)| Ok(MeasuredStep { step, durations: step_durations(records, number, &step)? }));
    let steps: Vec<MeasuredStep> = measured.collect::<Result<_, EvidenceError>>()?;
    let (seen, knee_problem) = compare_knee(&steps, cache_mib);
    let mut problems: Vec<String> = knee_problem.into_iter().collect();
    problems.extend(order_problems(&steps));
    problems.extend(bound_problems(&steps, &context.host.profile));
    Ok(Finding::new(seen, problems))
}

fn launch_steps(cache_mib: u64) -> Vec<LaunchStep> {
    let launches = WARM_UP + MEASURED;
    let copies = COPY_MIB.into_iter().flat_map(|mib| {
        let hot = LaunchStep::hot(StepKernel::Copy { mib }, launches);
        // No more sets than launches: a kernel that flushes the cache precedes the step.
        let sets = ((2 * cache_mib).div_ceil(2 * mib) + 1).min(u64::from(launches));
        [
            hot,
            LaunchStep { cache: StepCache::Rotated, sets, ..hot },
            LaunchStep { cache: StepCache::Flushed, ..hot },
        ]
    });
    let products = WEIGHT_MIB.into_iter().flat_map(|mib| {
        let kernel = StepKernel::Matmul { rows: ROWS, inner: INNER, columns: mib * COLUMNS_PER_MIB };
        let hot = LaunchStep::hot(kernel, launches);
        [hot, LaunchStep { cache: StepCache::Flushed, ..hot }]
    });
    copies.chain(products).collect()
}

fn step_name(step: &LaunchStep) -> String {
    let cache = step.cache;
    match step.kernel {
        StepKernel::Copy { mib } => format!("{cache} copy of {mib} MiB"),
        StepKernel::Matmul { columns, .. } => {
            format!("{cache} product with {} MiB of weights", columns / COLUMNS_PER_MIB)
        }
        StepKernel::RmsNorm { rows, .. } => format!("{cache} normalisation of {rows} rows"),
    }
}

/// A step with its durations in nanoseconds.
#[derive(Clone, Debug)]
struct MeasuredStep {
    step: LaunchStep,
    durations: Vec<i64>,
}

impl MeasuredStep {
    fn median(&self) -> f64 {
        median_of(&self.durations)
    }

    fn bandwidth(&self) -> f64 {
        self.step.kernel.work().bytes / self.median().max(1.0) / 1e3
    }
}

fn copies(steps: &[MeasuredStep], cache: StepCache) -> Vec<(u64, f64)> {
    let copy = |measured: &MeasuredStep| match measured.step.kernel {
        StepKernel::Copy { mib } if measured.step.cache == cache => Some((2 * mib, measured.bandwidth())),
        _ => None,
    };
    steps.iter().filter_map(copy).collect()
}

fn order_problems(steps: &[MeasuredStep]) -> Vec<String> {
    let problem = |measured: &MeasuredStep| {
        let is_hot =
            |other: &&MeasuredStep| other.step == LaunchStep::hot(measured.step.kernel, other.step.launches);
        let (hot, cold) = (steps.iter().find(is_hot)?.median(), measured.median());
        let is_faster = cold < hot * (1.0 - NOISE_SHARE) - NOISE_NANOS;
        let name = step_name(&measured.step);
        is_faster.then(|| format!("{name} takes {:.2} us, hot {:.2} us", cold / 1e3, hot / 1e3))
    };
    steps.iter().filter_map(problem).collect()
}

fn bound_problems(steps: &[MeasuredStep], profile: &DeviceProfile) -> Vec<String> {
    let problem = |measured: &MeasuredStep| {
        let shortest = Nanos(measured.durations.iter().min().copied()?);
        let bound = profile.fastest(&measured.step.kernel.work());
        let name = step_name(&measured.step);
        let is_implausible = shortest.seconds() < bound.seconds() * PLAUSIBLE;
        is_implausible.then(|| format!("{name} takes {shortest} us, the roofline bound is {bound} us"))
    };
    steps.iter().filter_map(problem).collect()
}

fn compare_knee(steps: &[MeasuredStep], cache_mib: u64) -> (String, Option<String>) {
    let (hot, rotated, flushed) =
        (copies(steps, StepCache::Hot), copies(steps, StepCache::Rotated), copies(steps, StepCache::Flushed));
    let best = highest(&hot);
    let knee = hot.iter().find(|(mib, rate)| *mib > best.0 && *rate < KNEE_SHARE * best.1);
    let ratio = knee.map(|(mib, _)| *mib as f64 / cache_mib as f64);
    let seen = format!(
        "copies up to {:.2} TB/s hot (at {} MiB), falling at {} MiB with a cache of {cache_mib} MiB; up to {:.2} \
         TB/s rotated and {:.2} TB/s flushed, {:.2} TB/s at {} MiB; {}",
        best.1,
        best.0,
        knee.map_or_else(|| "no".to_owned(), |(mib, _)| mib.to_string()),
        highest(&rotated).1,
        highest(&flushed).1,
        hot.last().map_or(0.0, |(_, rate)| *rate),
        hot.last().map_or(0, |(mib, _)| *mib),
        product_bandwidths(steps),
    );
    let problem = match ratio {
        Some(ratio) if (1.0 / KNEE_FACTOR..=KNEE_FACTOR).contains(&ratio) => None,
        Some(ratio) => Some(format!(
            "the bandwidth of hot copies falls at {ratio:.2} times the {cache_mib} MiB of the device profile's cache"
        )),
        None => Some(format!(
            "the bandwidth of hot copies does not fall up to {} MiB, the device profile has a cache of {cache_mib} MiB",
            hot.last().map_or(0, |(mib, _)| *mib)
        )),
    };
    (seen, problem)
}

fn product_bandwidths(steps: &[MeasuredStep]) -> String {
    let highest_of = |cache: StepCache| {
        let is_product = |measured: &&MeasuredStep| {
            matches!(measured.step.kernel, StepKernel::Matmul { .. }) && measured.step.cache == cache
        };
        steps.iter().filter(is_product).map(MeasuredStep::bandwidth).fold(0.0, f64::max)
    };
    let [hot, flushed] = [StepCache::Hot, StepCache::Flushed].map(highest_of);
    format!("products up to {hot:.2} TB/s hot, {flushed:.2} TB/s flushed")
}

fn highest(rates: &[(u64, f64)]) -> (u64, f64) {
    rates.iter().copied().max_by(|one, other| one.1.total_cmp(&other.1)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::assets::AssetFiles;

    fn profile() -> DeviceProfile {
        DeviceProfile::load(&AssetFiles::embedded(), DeviceProfile::default_name()).expect("built in")
    }

    /// Durations of a device whose cache has a size in MiB: 2.5 TB/s in the cache, 1 TB/s beyond it, and 2 us for the
    /// start of a kernel.
    fn device(cache_mib: u64) -> Vec<MeasuredStep> {
        let measured = |step: LaunchStep| {
            let work = step.kernel.work();
            let is_cached = step.cache == StepCache::Hot && work.bytes <= (cache_mib << 20) as f64;
            let seconds = work.bytes / if is_cached { 2.5e12 } else { 1e12 } + 2e-6;
            let durations = vec![Nanos::from_seconds(seconds).0; 8];
            MeasuredStep { step, durations }
        };
        launch_steps(profile().l2_mib).into_iter().map(measured).collect()
    }

    #[test]
    fn knee_at_the_cache_of_the_profile_passes() {
        let profile = profile();
        let device = device(profile.l2_mib);
        let (seen, problem) = compare_knee(&device, profile.l2_mib);
        assert_eq!(problem, None, "{seen}");
        insta::assert_snapshot!(seen, @"copies up to 2.44 TB/s hot (at 192 MiB), falling at 256 MiB with a cache of 192 MiB; up to 1.00 TB/s rotated and 1.00 TB/s flushed, 1.00 TB/s at 1024 MiB; products up to 2.33 TB/s hot, 0.99 TB/s flushed");
        assert_eq!(order_problems(&device), [""; 0]);
        assert_eq!(bound_problems(&device, &profile), [""; 0]);
    }

    #[test]
    fn other_cache_sizes_fail() {
        let cache_mib = profile().l2_mib;
        let problem = |size: u64| compare_knee(&device(size), cache_mib).1.expect("another size");
        assert!(problem(cache_mib / 4).contains("falls at 0.33 times"), "{}", problem(cache_mib / 4));
        assert!(problem(cache_mib * 3).contains("falls at 5.33 times"), "{}", problem(cache_mib * 3));
        assert!(problem(cache_mib * 100).contains("does not fall up to 1024 MiB"));
    }

    #[test]
    fn launches_beneath_the_bound_or_faster_than_hot_ones_fail() {
        let profile = profile();
        let mut device = device(profile.l2_mib);
        let step = LaunchStep {
            cache: StepCache::Flushed,
            ..LaunchStep::hot(StepKernel::Copy { mib: 64 }, WARM_UP + MEASURED)
        };
        let place = device.iter().position(|measured| measured.step == step).expect("a step");
        device[place].durations = vec![1_000; 8];
        let order = order_problems(&device);
        assert_eq!(order, ["flushed copy of 64 MiB takes 1.00 us, hot 55.69 us"]);
        let bound = bound_problems(&device, &profile);
        assert_eq!(bound.len(), 1);
        assert!(
            bound[0].starts_with("flushed copy of 64 MiB takes 1.000 us, the roofline bound is"),
            "{bound:?}"
        );
    }

    #[test]
    fn rotated_tensors_exceed_the_cache_twice_or_are_used_once() {
        for step in launch_steps(192).iter().filter(|step| step.cache == StepCache::Rotated) {
            let StepKernel::Copy { mib } = step.kernel else { panic!("{step:?}") };
            assert!(step.sets * 2 * mib > 2 * 192 || step.sets == u64::from(step.launches), "{step:?}");
        }
    }
}
