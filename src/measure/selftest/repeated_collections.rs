//! Experiment 7: durations of equal launches agree within a collection, between collections and between devices.

use std::path::Path;

use serde_json::json;

use super::{
    evidence::{CollectionVariant, ScriptRequest, SelftestContext},
    finding::{EvidenceError, ExperimentFinding},
    kernel_steps::{LaunchStep, PREHEAT, StepKernel, StepRecords, WARM_UP, median_of, percent},
};

/// Number of collections on each device.
const COLLECTIONS: u32 = 3;
/// Number of devices, as far as the host has them.
const DEVICES: usize = 2;
/// Number of launches of each kernel, without the warm-up.
const MEASURED: u32 = 20;
/// Name of each kernel in the summary, and the kernel: a product bound by arithmetic, a copy and a normalisation whose
/// tensors fit in the cache.
const KERNELS: [(&str, StepKernel); 3] = [
    ("mm", StepKernel::Matmul { rows: 4_096, inner: 4_096, columns: 4_096 }),
    ("copy", StepKernel::Copy { mib: 32 }),
    ("rms_norm", StepKernel::RmsNorm { rows: 2_048, width: 7_168 }),
];
/// Limits in percent of the median.
const LIMITS: SpreadPercent = SpreadPercent { launches: 5.0, collections: 3.0, devices: Some(5.0) };
const EXPECTED: &str = "the middle half of 20 launches differs by less than 5 %, medians of 3 collections by less than \
     3 %, medians of 2 devices by less than 5 %";

/// Runs the experiment. The collections of the devices alternate, so that a drift of the host affects both.
pub(super) fn run(context: &SelftestContext, folder: &Path) -> Result<ExperimentFinding, EvidenceError> {
    let devices = context.devices.get(..DEVICES).unwrap_or(&context.devices);
    let steps = KERNELS.map(|(_, kernel)| LaunchStep::hot(kernel, WARM_UP + MEASURED));
    let parameters =
        json!({ "steps": steps, "preheat": PREHEAT, "flush_mib": 0, "warm_up": WARM_UP, "events": false });
    let mut samples = vec![KernelSamples::default(); KERNELS.len()];
    for number in 1..=COLLECTIONS {
        for (place, device) in devices.iter().enumerate() {
            let variant = CollectionVariant { number, ..CollectionVariant::default() };
            let request = ScriptRequest {
                function: "steps",
                parameters: parameters.clone(),
                devices: std::slice::from_ref(device),
            };
            let subfolder = folder.join(format!("device-{device}-{number}"));
            let evidence = context.collect_variant(&subfolder, &request, &variant)?;
            evidence.require_completed()?;
            let records = evidence.readable_records()?;
            for ((step, kernel), n) in steps.iter().zip(&mut samples).zip(0_u64..) {
                let found = StepRecords::find(records, n, step).map_err(EvidenceError::Missing)?;
                kernel.add_collection(place, found.durations);
            }
        }
    }
    let (mut seen, mut problems) = (Vec::new(), Vec::new());
    for ((name, _), kernel) in KERNELS.iter().zip(&samples) {
        let spread = kernel.spread();
        problems.extend(spread.first_above(&LIMITS).map(|problem| format!("{name}: {problem}")));
        seen.push(format!("{name} {:.2} us ({})", kernel.median() / 1e3, spread.describe()));
    }
    let seen =
        format!("{}{}", seen.join(", "), if devices.len() < DEVICES { "; one device only" } else { "" });
    Ok(ExperimentFinding::from_problems(EXPECTED, seen, &problems))
}

/// Durations of one kernel in nanoseconds, by device and collection.
#[derive(Clone, Debug, Default)]
struct KernelSamples {
    devices: Vec<Vec<Vec<i64>>>,
}

impl KernelSamples {
    fn add_collection(&mut self, device: usize, durations: Vec<i64>) {
        if self.devices.len() <= device {
            self.devices.resize(device + 1, Vec::new());
        }
        self.devices[device].push(durations);
    }

    /// Returns the median of all launches.
    fn median(&self) -> f64 {
        median_of(&self.devices.concat().concat())
    }

    /// Returns the largest differences within a collection, between the collections of a device, and between devices.
    fn spread(&self) -> SpreadPercent {
        let largest = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::max);
        let medians = |device: &Vec<Vec<i64>>| -> Vec<f64> {
            device.iter().map(|collection| median_of(collection)).collect()
        };
        let device_medians: Vec<f64> =
            self.devices.iter().map(|device| median_of(&device.concat())).collect();
        SpreadPercent {
            launches: largest(&mut self.devices.iter().flatten().map(|collection| middle_half(collection))),
            collections: largest(&mut self.devices.iter().map(|device| range(&medians(device)))),
            devices: (device_medians.len() > 1).then(|| range(&device_medians)),
        }
    }
}

/// Returns the range of the middle half of durations in percent of their median.
fn middle_half(durations: &[i64]) -> f64 {
    let mut sorted = durations.to_vec();
    sorted.sort_unstable();
    let middle = sorted.get(sorted.len() / 4..sorted.len() - sorted.len() / 4).unwrap_or_default();
    let ends = middle.first().zip(middle.last());
    #[expect(clippy::cast_precision_loss, reason = "durations of kernels")]
    ends.map_or(0.0, |(first, last)| percent((last - first) as f64, median_of(durations)))
}

/// Returns the difference of the largest and the smallest value in percent of the smallest.
fn range(values: &[f64]) -> f64 {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(0.0, f64::max);
    percent(most - least, least)
}

/// Differences of durations in percent.
#[derive(Clone, Debug, PartialEq)]
struct SpreadPercent {
    /// Range of the middle half of the launches of a collection.
    launches: f64,
    /// Range of the medians of collections.
    collections: f64,
    /// Range of the medians of devices; `None` for one device.
    devices: Option<f64>,
}

impl SpreadPercent {
    fn parts(&self) -> [(&'static str, Option<f64>); 3] {
        [
            ("launches", Some(self.launches)),
            ("collections", Some(self.collections)),
            ("devices", self.devices),
        ]
    }

    fn describe(&self) -> String {
        let shown = |(name, value): (&str, Option<f64>)| Some(format!("{name} {:.1} %", value?));
        self.parts().into_iter().filter_map(shown).collect::<Vec<_>>().join(", ")
    }

    /// Returns the first difference above its limit.
    fn first_above(&self, limits: &Self) -> Option<String> {
        let pairs = self.parts().into_iter().zip(limits.parts());
        pairs.into_iter().find_map(|((name, value), (_, limit))| {
            let (value, limit) = value.zip(limit)?;
            (value >= limit)
                .then(|| format!("{name} differ by {value:.1} %, expected less than {limit:.0} %"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(devices: &[&[i64]]) -> KernelSamples {
        let mut samples = KernelSamples::default();
        for (place, device) in devices.iter().enumerate() {
            for median in *device {
                samples.add_collection(place, (-10..=10).map(|n| median + 10 * n).collect());
            }
        }
        samples
    }

    #[test]
    fn equal_collections_and_devices_pass() {
        let spread = samples(&[&[10_000, 10_100, 10_050], &[10_200, 10_150, 10_180]]).spread();
        assert_eq!(spread.first_above(&LIMITS), None);
        assert_eq!(spread.describe(), "launches 1.0 %, collections 1.0 %, devices 1.3 %");
    }

    #[test]
    fn each_difference_has_its_limit() {
        let problem = |devices: &[&[i64]]| samples(devices).spread().first_above(&LIMITS).unwrap_or_default();
        let devices = problem(&[&[10_000, 10_000, 10_000], &[11_000, 11_000, 11_000]]);
        assert_eq!(devices, "devices differ by 10.0 %, expected less than 5 %");
        let collections = problem(&[&[10_000, 10_400, 10_000]]);
        assert_eq!(collections, "collections differ by 4.0 %, expected less than 3 %");
        let mut noisy = samples(&[&[10_000]]);
        noisy.devices[0][0].iter_mut().for_each(|duration| *duration += (*duration - 10_000) * 5);
        let problem = noisy.spread().first_above(&LIMITS).unwrap_or_default();
        assert!(problem.starts_with("launches differ by 6.0 %"), "{problem}");
    }

    #[test]
    fn single_device_has_no_difference_of_devices() {
        let spread = samples(&[&[10_000, 10_100, 10_050]]).spread();
        assert_eq!((spread.devices, spread.first_above(&LIMITS)), (None, None));
    }
}
