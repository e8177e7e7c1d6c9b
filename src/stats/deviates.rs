//! Deviates by hash: numbers that look random, depend on their inputs only, and are equal on every machine.

use super::SplitMix64;

/// A number from 0 to below `bound`, by hash of the others.
pub(crate) fn pick_number(numbers: &[u64], bound: u64) -> u64 {
    hash_numbers(numbers) % bound.max(1)
}

/// Hash of numbers, in order.
pub(crate) fn hash_numbers(numbers: &[u64]) -> u64 {
    numbers.iter().fold(0, |hash: u64, &number| SplitMix64::new(hash ^ number).next_u64())
}

/// Hash of a text.
pub(crate) fn hash_text(text: &str) -> u64 {
    text.bytes().fold(0, |hash: u64, byte| SplitMix64::new(hash ^ u64::from(byte)).next_u64())
}

/// Uniform over [0, 1), with all 53 bits of the mantissa.
fn unit_deviate(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

/// Uniform over [-1, 1).
pub(crate) fn signed_unit_deviate(bits: u64) -> f64 {
    2.0 * unit_deviate(bits) - 1.0
}

/// A normal deviate by the central limit, because logarithms differ in the last bit between machines.
pub(crate) fn normal_deviate(seed: u64) -> f64 {
    let mut random = SplitMix64::new(seed);
    (0..12).map(|_| unit_deviate(random.next_u64())).sum::<f64>() - 6.0
}

/// `e^x` for the small x that noise has: at |x| = 0.06 the terms left out are below 1e-12.
pub(crate) fn small_exponential(x: f64) -> f64 {
    1.0 + x * (1.0 + x / 2.0 * (1.0 + x / 3.0 * (1.0 + x / 4.0 * (1.0 + x / 5.0 * (1.0 + x / 6.0)))))
}
