//! Sources of the variance of measured medians: launches, the offset of a case in a collection, effects of collections, devices,
//! runs and hosts; and what each design of a measurement makes of them.

use super::{
    CollectionMedian,
    joint_fit::{EffectGroup, effect_variances, group_by_case},
    measurement_rounds::MEDIAN_VARIANCE,
};

/// Iterations of the fit. Variances of devices and runs converge more slowly than variances of collections.
const ITERATIONS: usize = 40;

/// Device, run and host of a collection, as numbers from 0. Devices of different hosts have different numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CollectionPlace {
    pub(crate) device: usize,
    pub(crate) run: usize,
    pub(crate) host: usize,
}

/// Standard deviations of the sources, relative to the median of a case with typical launch noise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct VarianceSources {
    /// Standard deviation of a launch: the middle value over all medians.
    pub(crate) launch: f64,
    /// Standard deviation of the offset of a case in a collection, which its launches do not explain.
    pub(crate) offset: f64,
    /// Standard deviation of the effect of a collection on all its cases in proportion to their launch noise.
    pub(crate) proportional: f64,
    /// Standard deviation of the effect of a collection on all its cases alike, such as the effect of its clock.
    pub(crate) common: f64,
    pub(crate) device: Option<f64>,
    pub(crate) run: Option<f64>,
    pub(crate) host: Option<f64>,
}

/// Numbers of measurements of a case.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, schemars::JsonSchema)]
pub(crate) struct MeasurementDesign {
    /// Of launches in a collection.
    pub(crate) launches: f64,
    pub(crate) collections: f64,
    pub(crate) devices: f64,
    pub(crate) runs: f64,
    pub(crate) hosts: f64,
}

impl VarianceSources {
    /// Fits the sources to medians. `places` are those of the collections, `launches` is the typical number of samples of a
    /// median. `None` without a case of two collections.
    pub(crate) fn fit(
        medians: &[CollectionMedian],
        cases: usize,
        places: &[CollectionPlace],
        launches: f64,
    ) -> Option<Self> {
        let groups = group_by_case(medians, cases);
        if groups.iter().all(|group| group.count() < 2.0) {
            return None;
        }
        let devices: Vec<usize> = places.iter().map(|place| place.device).collect();
        let runs: Vec<usize> = places.iter().map(|place| place.run).collect();
        let hosts: Vec<usize> = places.iter().map(|place| place.host).collect();
        let has_several = |numbers: &[usize]| numbers.iter().any(|number| *number != numbers[0]);
        let shared =
            [devices, runs, hosts].map(|numbers| has_several(&numbers).then(|| EffectGroup::shared(numbers)));
        let [has_devices, has_runs, has_hosts] = shared.each_ref().map(Option::is_some);
        let variances =
            effect_variances(medians, &groups, shared.into_iter().flatten().collect(), ITERATIONS)?;
        let mut noise: Vec<f64> = medians.iter().map(|median| median.launch_noise).collect();
        noise.sort_unstable_by(f64::total_cmp);
        let launch = noise[noise.len() / 2];
        let mut deviations = variances.groups.iter().map(|variance| variance.sqrt());
        let (common, proportional) = (deviations.next()?, deviations.next()?);
        let of_launches = MEDIAN_VARIANCE / launches;
        Some(Self {
            launch,
            offset: launch * (variances.own - of_launches).max(0.0).sqrt(),
            proportional: launch * proportional,
            common,
            device: if has_devices { deviations.next() } else { None },
            run: if has_runs { deviations.next() } else { None },
            host: if has_hosts { deviations.next() } else { None },
        })
    }

    /// Returns the variance that each source gives the mean of a case's medians: launches, offset, both effects of collections,
    /// devices, runs, hosts.
    pub(crate) fn contributions(&self, design: &MeasurementDesign) -> [f64; 7] {
        let square = |deviation: f64, count: f64| deviation * deviation / count;
        let MeasurementDesign { launches, collections, devices, runs, hosts } = *design;
        [
            MEDIAN_VARIANCE * square(self.launch, launches * collections),
            square(self.offset, collections),
            square(self.proportional, collections),
            square(self.common, collections),
            square(self.device.unwrap_or_default(), devices),
            square(self.run.unwrap_or_default(), runs),
            square(self.host.unwrap_or_default(), hosts),
        ]
    }

    pub(crate) fn deviation(&self, design: &MeasurementDesign) -> f64 {
        self.contributions(design).iter().sum::<f64>().sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::stats::{hash_numbers, normal_deviate};

    const LAUNCHES: f64 = 20.0;
    const DEVICES: u64 = 8;

    struct Drawn {
        sources: VarianceSources,
        expected: [f64; 5],
        /// Deviation of the drawn effects of hosts.
        host: f64,
    }

    fn deviation(values: &[f64]) -> f64 {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        (values.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>() / (values.len() - 1) as f64)
            .sqrt()
    }

    /// Ten runs on eight devices, each with one collection of 40 of 160 cases. Expected are the deviations of the drawn effects,
    /// not those that they were drawn with: eight devices vary by a quarter of them.
    fn draw(seed: u64, [own, proportional, common, device, run]: [f64; 5], host: f64) -> Drawn {
        let (cases, runs, per_collection) = (160, 10, 40);
        let deviate =
            |kind: u64, one: u64, other: u64| normal_deviate(hash_numbers(&[seed, kind, one, other]));
        let noise = |case: u64| 0.01 * (1.0 + (case % 5) as f64 / 4.0);
        let (mut medians, mut places) = (Vec::new(), Vec::new());
        for night in 0..runs {
            for place in 0..DEVICES {
                let collection = places.len();
                places.push(CollectionPlace {
                    device: place as usize,
                    run: night as usize,
                    host: if host > 0.0 { (place / 2) as usize } else { 0 },
                });
                for position in 0..per_collection {
                    let case = (position * 4 + place + night * 3) % cases;
                    let u = noise(case);
                    let index = collection as u64;
                    let shift = common * deviate(1, index, 0)
                        + u * proportional * deviate(2, index, 0)
                        + device * deviate(3, place, 0)
                        + run * deviate(4, night, 0)
                        + host * deviate(6, place / 2, 0)
                        + u * own * deviate(5, index, case);
                    let log_median = 10.0 + case as f64 / 100.0 + shift;
                    medians.push(CollectionMedian {
                        case: case as usize,
                        collection,
                        log_median,
                        launch_noise: u,
                    });
                }
            }
        }
        let sources =
            VarianceSources::fit(&medians, cases as usize, &places, LAUNCHES).expect("several collections");
        let drawn = |kind: u64, count: u64| {
            deviation(&(0..count).map(|index| deviate(kind, index, 0)).collect::<Vec<_>>())
        };
        let collections = places.len() as u64;
        let offset = (own * own - MEDIAN_VARIANCE / LAUNCHES).max(0.0).sqrt();
        let expected = [
            0.015 * offset,
            0.015 * proportional * drawn(2, collections),
            common * drawn(1, collections),
            device * drawn(3, DEVICES),
            run * drawn(4, runs),
        ];
        Drawn { sources, expected, host: host * drawn(6, DEVICES / 2) }
    }

    #[test]
    fn sources_are_those_of_the_drawn_effects() {
        for (seed, effects) in [
            (1, [1.0, 0.5, 0.004, 0.008, 0.006]),
            (2, [0.6, 0.0, 0.01, 0.0, 0.01]),
            (3, [1.5, 1.0, 0.012, 0.02, 0.0]),
        ] {
            let Drawn { sources, expected, .. } = draw(seed, effects, 0.0);
            assert!((sources.launch - 0.015).abs() < 1e-12);
            let found = [
                sources.offset,
                sources.proportional,
                sources.common,
                sources.device.expect("several devices"),
                sources.run.expect("several runs"),
            ];
            for (index, (found, expected)) in found.into_iter().zip(expected).enumerate() {
                // Small effects hide behind the offsets of the 40 cases of a collection.
                let tolerance = 0.2 * expected + 0.002;
                assert!(
                    (found - expected).abs() <= tolerance,
                    "{seed} {index}: {found} {expected} {sources:?}"
                );
            }
        }
    }

    /// Four hosts of two devices each.
    #[test]
    fn hosts_differ_beside_their_devices() {
        for seed in 1..5 {
            let Drawn { sources, host, .. } = draw(seed, [1.0, 0.5, 0.004, 0.0, 0.004], 0.02);
            let found = sources.host.expect("several hosts");
            assert!((found - host).abs() <= 0.2 * host + 0.002, "{seed}: {found} {host} {sources:?}");
        }
    }

    #[test]
    fn one_device_and_one_run_have_no_variance() {
        let median = |case: usize, collection: usize, log_median: f64| CollectionMedian {
            case,
            collection,
            log_median,
            launch_noise: 0.01,
        };
        let medians = [median(0, 0, 1.0), median(0, 1, 1.01), median(1, 0, 2.0), median(1, 1, 2.0)];
        let place = CollectionPlace { device: 0, run: 0, host: 0 };
        let sources = VarianceSources::fit(&medians, 2, &[place; 2], 20.0).expect("repeated");
        assert_eq!((sources.device, sources.run, sources.host), (None, None, None));
        assert_eq!(VarianceSources::fit(&medians[..1], 1, &[place], 20.0), None);
        assert_eq!(VarianceSources::fit(&[], 0, &[], 20.0), None);
    }

    #[test]
    fn contributions_shrink_with_their_own_numbers() {
        let sources = VarianceSources {
            launch: 0.02,
            offset: 0.01,
            proportional: 0.005,
            common: 0.004,
            device: Some(0.006),
            run: None,
            host: None,
        };
        let design =
            MeasurementDesign { launches: 20.0, collections: 2.0, devices: 2.0, runs: 1.0, hosts: 1.0 };
        let before = sources.contributions(&design);
        let more = sources.contributions(&MeasurementDesign { devices: 4.0, ..design });
        assert_eq!(more[4], before[4] / 2.0);
        assert_eq!((&more[..4], &more[5..]), (&before[..4], [0.0; 2].as_slice()));
        let expected = std::f64::consts::FRAC_PI_2 * 0.0004 / 40.0;
        assert!((before[0] - expected).abs() < 1e-18);
        assert!((sources.deviation(&design).powi(2) - before.iter().sum::<f64>()).abs() < 1e-18);
    }
}
