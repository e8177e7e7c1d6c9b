//! Deviates by hash: numbers that look random, depend on their inputs only, and are equal on every machine.

use super::SplitMix64;

pub(crate) fn hash_numbers(numbers: &[u64]) -> u64 {
    numbers.iter().fold(0, |hash: u64, &number| SplitMix64::new(hash ^ number).next_u64())
}

/// Uniform over [0, 1), with all 53 bits of the mantissa.
fn unit_deviate(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

/// Uniform over [-1, 1).
pub(crate) fn signed_unit_deviate(bits: u64) -> f64 {
    2.0 * unit_deviate(bits) - 1.0
}

/// A normal deviate for simulated data, by the central limit, because logarithms differ in the last bit between machines.
#[cfg(test)]
pub(crate) fn normal_deviate(seed: u64) -> f64 {
    let mut random = SplitMix64::new(seed);
    (0..12).map(|_| unit_deviate(random.next_u64())).sum::<f64>() - 6.0
}
