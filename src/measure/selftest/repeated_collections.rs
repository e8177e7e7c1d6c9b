//! Experiment 7: durations of equal launches agree within a collection, between collections and between devices.

use std::path::Path;

use super::{
    evidence::{SelftestContext, SelftestScript},
    experiment::{EvidenceError, Experiment, Finding},
    kernel_steps::{LaunchStep, StepKernel, StepSettings, WARM_UP, median_of, percent, step_durations},
};

pub(super) const EXPERIMENT: Experiment = Experiment {
    number: 7,
    name: "repeated-collections",
    assumption: "durations of equal launches agree within and between collections and devices",
    expected: "the middle half of 20 launches differs by less than 5 %, medians of 3 collections by less than 3 %, medians \
               of 2 devices by less than 5 %",
    fix: "see temperature and power of the devices in `npu-smi info`; leave out a slower one with `--devices`",
    run,
};

const COLLECTIONS: u32 = 3;
const DEVICES: usize = 2;
pub(super) const MEASURED: u32 = 20;
/// Name of each kernel in the summary, and the kernel: a product bound by arithmetic, a copy and a normalisation whose
/// tensors fit in the cache.
pub(super) const KERNELS: [(&str, StepKernel); 3] = [
    ("mm", StepKernel::Matmul { rows: 4_096, inner: 4_096, columns: 4_096 }),
    ("copy", StepKernel::Copy { mib: 32 }),
    ("rms_norm", StepKernel::RmsNorm { rows: 2_048, width: 7_168 }),
];
const LIMITS: [(&str, f64); 3] = [("launches", 5.0), ("collections", 3.0), ("devices", 5.0)];

/// Durations of one kernel in nanoseconds, by device and collection.
type KernelSamples = Vec<Vec<Vec<i64>>>;

/// Runs the experiment. The collections of the devices alternate, so that a drift of the host affects both.
fn run(context: &SelftestContext, folder: &Path) -> Result<Finding, EvidenceError> {
    let devices = context.devices.get(..DEVICES).unwrap_or(&context.devices);
    let steps = KERNELS.map(|(_, kernel)| LaunchStep::hot(kernel, WARM_UP + MEASURED));
    let mut samples: [KernelSamples; KERNELS.len()] = Default::default();
    samples.iter_mut().for_each(|kernel| kernel.resize(devices.len(), Vec::new()));
    for number in 1..=COLLECTIONS {
        for (place, device) in devices.iter().enumerate() {
            let folder = folder.join(format!("device-{device}-{number}"));
            let script = context.script(folder, "steps", StepSettings::default().parameters(&steps));
            let devices = std::slice::from_ref(device);
            let evidence = SelftestScript { devices, number, ..script }.complete()?;
            let records = evidence.readable_records()?;
            for ((step, kernel), n) in steps.iter().zip(&mut samples).zip(0_u64..) {
                kernel[place].push(step_durations(records, n, step)?);
            }
        }
    }
    let (mut seen, mut problems) = (Vec::new(), Vec::new());
    for ((name, _), kernel) in KERNELS.iter().zip(&samples) {
        let differences = differences(kernel);
        problems.extend(first_above(differences).map(|problem| format!("{name}: {problem}")));
        let median = median_of(&kernel.concat().concat()) / 1e3;
        seen.push(format!("{name} {median:.2} us ({})", describe(differences)));
    }
    let alone = if devices.len() < DEVICES { "; one device only" } else { "" };
    Ok(Finding::new(format!("{}{alone}", seen.join(", ")), problems))
}

/// Returns the largest differences within a collection, between the collections of a device, and between devices; `None` for
/// the devices if there is one.
fn differences(devices: &KernelSamples) -> [Option<f64>; 3] {
    let largest = |values: &mut dyn Iterator<Item = f64>| Some(values.fold(0.0, f64::max));
    let medians = |collections: &Vec<Vec<i64>>| -> Vec<f64> {
        collections.iter().map(|durations| median_of(durations)).collect()
    };
    let of_devices: Vec<f64> = devices.iter().map(|device| median_of(&device.concat())).collect();
    [
        largest(&mut devices.iter().flatten().map(|collection| middle_half(collection))),
        largest(&mut devices.iter().map(|device| range(&medians(device)))),
        (of_devices.len() > 1).then(|| range(&of_devices)),
    ]
}

fn describe(differences: [Option<f64>; 3]) -> String {
    let shown = LIMITS.iter().zip(differences);
    let shown = shown.filter_map(|((name, _), value)| Some(format!("{name} {:.1} %", value?)));
    shown.collect::<Vec<_>>().join(", ")
}

fn first_above(differences: [Option<f64>; 3]) -> Option<String> {
    LIMITS.iter().zip(differences).find_map(|((name, limit), value)| {
        let value = value.filter(|value| value >= limit)?;
        Some(format!("{name} differ by {value:.1} %, expected less than {limit:.0} %"))
    })
}

/// Returns the range of the middle half of durations in percent of their median.
fn middle_half(durations: &[i64]) -> f64 {
    let mut sorted = durations.to_vec();
    sorted.sort_unstable();
    let middle = sorted.get(sorted.len() / 4..sorted.len() - sorted.len() / 4).unwrap_or_default();
    let ends = middle.first().zip(middle.last());
    ends.map_or(0.0, |(first, last)| percent((last - first) as f64, median_of(durations)))
}

/// Returns the difference of the largest and the smallest value in percent of the smallest.
fn range(values: &[f64]) -> f64 {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(0.0, f64::max);
    percent(most - least, least)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(devices: &[&[i64]]) -> KernelSamples {
        let collection = |median: &i64| (-10..=10).map(|n| median + 10 * n).collect();
        devices.iter().map(|medians| medians.iter().map(collection).collect()).collect()
    }

    #[test]
    fn equal_collections_and_devices_pass() {
        let found = differences(&samples(&[&[10_000, 10_100, 10_050], &[10_200, 10_150, 10_180]]));
        assert_eq!(first_above(found), None);
        assert_eq!(describe(found), "launches 1.0 %, collections 1.0 %, devices 1.3 %");
        let alone = differences(&samples(&[&[10_000, 10_100, 10_050]]));
        assert_eq!((alone[2], first_above(alone)), (None, None), "one device");
    }

    #[test]
    fn each_difference_has_its_limit() {
        let problem = |samples: &KernelSamples| first_above(differences(samples)).unwrap_or_default();
        let devices = samples(&[&[10_000, 10_000, 10_000], &[11_000, 11_000, 11_000]]);
        assert_eq!(problem(&devices), "devices differ by 10.0 %, expected less than 5 %");
        let collections = samples(&[&[10_000, 10_400, 10_000]]);
        assert_eq!(problem(&collections), "collections differ by 4.0 %, expected less than 3 %");
        let mut noisy = samples(&[&[10_000]]);
        noisy[0][0].iter_mut().for_each(|duration| *duration += (*duration - 10_000) * 5);
        assert!(problem(&noisy).starts_with("launches differ by 6.0 %"), "{}", problem(&noisy));
    }
}
