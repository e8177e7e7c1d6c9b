//! Effects of devices, which all collections on a device share. They are no noise of collections: further collections on the same
//! devices do not average them out.

use std::{collections::BTreeSet, ops::Range};

use statrs::distribution::{ContinuousCDF, FisherSnedecor};

use super::{CollectionMedian, symmetric_matrix::SquareMatrix};

const MIN_PROBABILITY: f64 = 0.001;

/// Effects of devices, relative to their mean.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceEffects {
    /// Effects by the number of the device, as logarithms.
    pub effects: Vec<f64>,
    /// Variance of the mean of the effects over the devices of this host: other devices may differ as much.
    pub(super) mean_variance: f64,
}

impl DeviceEffects {
    pub(super) fn from_posterior(effects: &[f64], covariance: &SquareMatrix, range: Range<usize>) -> Self {
        let count = range.len() as f64;
        let mean = effects[range.clone()].iter().sum::<f64>() / count;
        let pairs = range.clone().flat_map(|row| range.clone().map(move |column| covariance[row][column]));
        Self {
            effects: effects[range.clone()].iter().map(|effect| effect - mean).collect(),
            mean_variance: pairs.sum::<f64>() / (count * count),
        }
    }

    /// Returns the degrees of freedom of a variance that contains that of the mean of devices, while the rest has `freedom`:
    /// F. E. Satterthwaite, An approximate distribution of estimates of variance components, Biometrics Bulletin 2 (1946).
    pub(super) fn combined_freedom(&self, variance: f64, freedom: f64) -> f64 {
        let of_devices = self.mean_variance.min(variance);
        let own = variance - of_devices;
        let device_freedom = (self.effects.len() as f64 - 1.0).max(1.0);
        let spread = own * own / freedom + of_devices * of_devices / device_freedom;
        if spread > 0.0 { (variance * variance / spread).min(super::KNOWN_VARIANCE) } else { freedom }
    }
}

/// Returns the variance of devices by a one-way analysis of variance of the effects of collections: S. R. Searle, G. Casella and
/// C. E. McCulloch, Variance Components (1992), section 3.6. `None` if the devices do not differ significantly, or if too
/// few collections show it.
pub(super) fn device_variance(
    collection_effects: &[f64],
    medians: &[CollectionMedian],
    devices: &[usize],
) -> Option<f64> {
    let measured: BTreeSet<usize> = medians.iter().map(|median| median.collection).collect();
    let of_device = |device: usize| {
        let own = measured.iter().filter(move |&&collection| devices[collection] == device);
        own.map(|&collection| collection_effects[collection]).collect::<Vec<f64>>()
    };
    let numbers: BTreeSet<usize> = measured.iter().map(|&collection| devices[collection]).collect();
    let groups: Vec<Vec<f64>> = numbers.into_iter().map(of_device).collect();
    let (all, count) = (measured.len() as f64, groups.len() as f64);
    let (between_freedom, within_freedom) = (count - 1.0, all - count);
    if between_freedom < 1.0 || within_freedom < 1.0 {
        return None;
    }
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let total_mean = groups.iter().flatten().sum::<f64>() / all;
    let between: f64 =
        groups.iter().map(|group| group.len() as f64 * (mean(group) - total_mean).powi(2)).sum();
    let within: f64 =
        groups.iter().flat_map(|group| group.iter().map(|effect| (effect - mean(group)).powi(2))).sum();
    let (between, within) = (between / between_freedom, (within / within_freedom).max(f64::MIN_POSITIVE));
    let distribution = FisherSnedecor::new(between_freedom, within_freedom).ok()?;
    let squares: f64 = groups.iter().map(|group| (group.len() as f64).powi(2)).sum();
    let typical_size = (all - squares / all) / between_freedom;
    let variance = (between - within) / typical_size;
    (variance > 0.0 && distribution.sf(between / within) < MIN_PROBABILITY).then_some(variance)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected values are from scipy: `stats.f_oneway([1, 2, 3], [2, 3, 4], [7, 8, 9])` has F = 31 and p =
    /// 0.00068, with a mean square of 1 within the groups, so that the variance is 30 / 3. With 6, 7, 8 instead F is 21
    /// and p 0.0019.
    #[test]
    fn variance_of_devices_is_that_of_an_analysis_of_variance() {
        let medians: Vec<CollectionMedian> = (0..9)
            .map(|collection| CollectionMedian { case: 0, collection, log_median: 0.0, launch_noise: 0.01 })
            .collect();
        let effects = [1.0, 7.0, 2.0, 2.0, 8.0, 3.0, 3.0, 9.0, 4.0];
        let devices = [0, 1, 2, 0, 1, 2, 0, 1, 2];
        let variance = device_variance(&effects, &medians, &devices).expect("they differ");
        assert!((variance - 10.0).abs() < 1e-12, "{variance}");
        let nearer = effects.map(|effect| if effect > 5.0 { effect - 1.0 } else { effect });
        assert_eq!(device_variance(&nearer, &medians, &devices), None);
        // One device, and a device for each collection.
        assert_eq!(device_variance(&effects, &medians, &[0; 9]), None);
        assert_eq!(device_variance(&effects, &medians, &[0, 1, 2, 3, 4, 5, 6, 7, 8]), None);
        assert_eq!(device_variance(&[], &[], &[]), None);
    }

    /// Two parts of 0.5 with 4 and 3 degrees of freedom: 1 / (0.25 / 4 + 0.25 / 3).
    #[test]
    fn degrees_of_freedom_are_between_those_of_the_parts() {
        let devices = DeviceEffects { effects: vec![0.0; 4], mean_variance: 0.5 };
        assert!((devices.combined_freedom(1.0, 4.0) - 48.0 / 7.0).abs() < 1e-12);
        assert!((devices.combined_freedom(0.5, 4.0) - 3.0).abs() < 1e-12);
        let none = DeviceEffects { effects: vec![0.0; 4], mean_variance: 0.0 };
        assert_eq!(none.combined_freedom(1.0, 4.0), 4.0);
    }
}
