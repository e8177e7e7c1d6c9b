//! Noise of the lifelike model, by hashes of seed, collection, device, signature and number of the launch.
//!
//! The logarithm of a duration is that of the base, plus the effect of the device, that of the collection, the offset of the
//! case in the collection, and the noise of the launch. The case's launch noise and the effects of the devices are the same
//! in all runs.

use super::RehearsedNoise;
use crate::base::stats::{
    dependent_deviate, exponential, hash_numbers, log_uniform_deviate, normal_deviate, pick_number,
};

/// Inputs of the noise of a launch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoisyLaunch {
    pub(crate) seed: u64,
    pub(crate) collection: u32,
    pub(crate) device: u32,
    /// Hash of kernel, inputs and outputs.
    pub(crate) signature: u64,
    /// Launches of the same signature in this process before.
    pub(crate) in_process: u32,
}

/// Distinguish the hashes of the parts.
const STATE: u64 = 0x7374_6174;
const OFFSET: u64 = 0x6f66_6673;
const CASE: u64 = 0x6361_7365;
const DEVICE: u64 = 0x6465_7669;
/// Share of the collections in the upper mode, one of so many, and the modes in standard deviations: mean 0, deviation 1.
const UPPER_MODE_PART: u64 = 5;
const MODES: (f64, f64) = (2.0, -0.5);

impl RehearsedNoise {
    /// Multiplies the duration of a launch by its noise, except that of the device.
    pub(crate) fn apply(&self, duration: f64, launch: &NoisyLaunch) -> f64 {
        apply_noise(self, duration, launch)
    }

    /// Returns the factor of the durations on a device of a host with so many.
    pub(crate) fn device_factor(&self, seed: u64, device: u32, devices: u32) -> f64 {
        device_factor(self, seed, device, devices)
    }
}

fn apply_noise(noise: &RehearsedNoise, duration: f64, launch: &NoisyLaunch) -> f64 {
    let NoisyLaunch { seed, collection, device, signature, in_process } = *launch;
    let place = [seed, u64::from(collection), u64::from(device)];
    let deviation = case_deviation(noise, signature);
    let common = 1.0 + noise.collection * normal_deviate(hash_numbers(&place));
    let launch = |number: u32| {
        let [seed, collection, device] = place;
        normal_deviate(hash_numbers(&[seed, collection, device, signature, u64::from(number)]))
    };
    let varied =
        duration * common * exponential(deviation * dependent_deviate(noise.dependence, in_process, launch));
    let offset = noise.offset * deviation * case_offset(noise, &place, signature);
    if offset == 0.0 { varied } else { varied * exponential(offset) }
}

fn device_factor(noise: &RehearsedNoise, seed: u64, device: u32, devices: u32) -> f64 {
    if noise.devices == 0.0 {
        return 1.0;
    }
    let effect = |device: u32| normal_deviate(hash_numbers(&[seed, DEVICE, u64::from(device)]));
    let mean = (0..devices).map(effect).sum::<f64>() / f64::from(devices.max(1));
    exponential(noise.devices * (effect(device) - mean))
}

/// Relative standard deviation of the launches of a case.
fn case_deviation(noise: &RehearsedNoise, signature: u64) -> f64 {
    log_uniform_deviate(noise.launch, hash_numbers(&[CASE, signature]))
}

/// Offset of a case in a collection in standard deviations.
fn case_offset(noise: &RehearsedNoise, place: &[u64; 3], signature: u64) -> f64 {
    let [seed, collection, device] = *place;
    let own = hash_numbers(&[seed, collection, device, signature, OFFSET]);
    let own = match noise.two_modes {
        true if pick_number(&[own], UPPER_MODE_PART) == 0 => MODES.0,
        true => MODES.1,
        false => normal_deviate(own),
    };
    let state = normal_deviate(hash_numbers(&[seed, collection, device, STATE]));
    noise.shared * state + (1.0 - noise.shared * noise.shared).sqrt() * own
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log_factor(noise: &RehearsedNoise, collection: u32, signature: u64, in_process: u32) -> f64 {
        let launch = NoisyLaunch { seed: 5, collection, device: 1, signature, in_process };
        (noise.apply(1e6, &launch) / 1e6).ln()
    }

    fn moments(values: &[f64]) -> (f64, f64) {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        (mean, (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0)).sqrt())
    }

    fn correlation(pairs: &[(f64, f64)]) -> f64 {
        let (one, other): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
        let ((mean, sd), (other_mean, other_sd)) = (moments(&one), moments(&other));
        let products = pairs.iter().map(|(one, other)| (one - mean) * (other - other_mean)).sum::<f64>();
        products / pairs.len() as f64 / (sd * other_sd)
    }

    /// Logarithm of the mean factor of a case's launches in a collection.
    fn offset(noise: &RehearsedNoise, collection: u32, signature: u64) -> f64 {
        let factors: Vec<f64> =
            (0..60).map(|number| log_factor(noise, collection, signature, number)).collect();
        moments(&factors).0
    }

    #[test]
    fn launch_noise_of_cases_is_within_the_range() {
        let noise = RehearsedNoise { launch: [0.002, 0.05], ..Default::default() };
        let mut deviations: Vec<f64> =
            (0..2_000).map(|signature| case_deviation(&noise, signature)).collect();
        deviations.sort_by(f64::total_cmp);
        assert!(deviations[0] >= 0.002 && deviations[1_999] <= 0.05);
        // The median is the geometric mean of the ends.
        assert!((deviations[1_000] / 0.01 - 1.0).abs() < 0.1, "{}", deviations[1_000]);
        let launches: Vec<f64> = (0..4_000).map(|number| log_factor(&noise, 3, 17, number)).collect();
        assert!((moments(&launches).1 / case_deviation(&noise, 17) - 1.0).abs() < 0.05);
    }

    #[test]
    fn offsets_have_their_deviation_and_correlation() {
        let noise = RehearsedNoise {
            collection: 0.0,
            offset: 2.0,
            shared: 0.6,
            launch: [0.02; 2],
            ..Default::default()
        };
        let pairs: Vec<(f64, f64)> = (0..1_500)
            .map(|collection| (offset(&noise, collection, 1), offset(&noise, collection, 2)))
            .collect();
        let (mean, sd) = moments(&pairs.iter().map(|pair| pair.0).collect::<Vec<_>>());
        assert!(mean.abs() < 0.004 && (sd / 0.04 - 1.0).abs() < 0.05, "{mean} {sd}");
        // The square of the correlation with the common state.
        assert!((correlation(&pairs) - 0.36).abs() < 0.06, "{}", correlation(&pairs));
        let modes = RehearsedNoise { two_modes: true, shared: 0.0, ..noise };
        let offsets: Vec<f64> = (0..1_500).map(|collection| offset(&modes, collection, 1)).collect();
        let upper = offsets.iter().filter(|offset| **offset > 0.05).count();
        assert!((240..360).contains(&upper), "{upper}");
        let (mean, sd) = moments(&offsets);
        assert!(mean.abs() < 0.004 && (sd / 0.04 - 1.0).abs() < 0.1, "{mean} {sd}");
    }

    #[test]
    fn successive_launches_are_correlated() {
        for dependence in [0.0, 0.5, 0.9] {
            let noise = RehearsedNoise { dependence, ..Default::default() };
            let logs: Vec<f64> = (200..6_200).map(|number| log_factor(&noise, 1, 1, number)).collect();
            let pairs: Vec<(f64, f64)> = logs.windows(2).map(|pair| (pair[0], pair[1])).collect();
            assert!((correlation(&pairs) - dependence).abs() < 0.05, "{dependence} {}", correlation(&pairs));
            assert!((moments(&logs).1 / 0.01 - 1.0).abs() < 0.15, "{dependence} {}", moments(&logs).1);
        }
    }

    #[test]
    fn devices_differ_around_a_mean_of_0() {
        let noise = RehearsedNoise { devices: 0.02, ..Default::default() };
        let logs: Vec<f64> = (0..64).map(|device| device_factor(&noise, 3, device, 64).ln()).collect();
        let (mean, sd) = moments(&logs);
        assert!(mean.abs() < 1e-12 && (sd / 0.02 - 1.0).abs() < 0.3, "{mean} {sd}");
        assert_eq!(device_factor(&RehearsedNoise::default(), 3, 1, 16), 1.0);
    }
}
