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

/// Uniform in its logarithm over a range, by square roots: the power of the ratio of the ends with a fraction of 20 bits.
pub(crate) fn log_uniform_deviate([least, most]: [f64; 2], bits: u64) -> f64 {
    const BITS: u32 = 20;
    let mut root = most / least;
    (0..BITS).fold(least, |deviate, bit| {
        root = root.sqrt();
        if bits >> bit & 1 == 1 { deviate * root } else { deviate }
    })
}

/// Normal deviate of a number in a series whose neighbours have a correlation from 0 to 0.95; `fresh` has the independent ones.
pub(crate) fn dependent_deviate(correlation: f64, number: u32, fresh: impl Fn(u32) -> f64) -> f64 {
    // Those before have no effect: 0.95 to this power is 0.002.
    const MEMORY: u32 = 120;
    if correlation == 0.0 {
        return fresh(number);
    }
    let first = number.saturating_sub(MEMORY);
    let share = (1.0 - correlation * correlation).sqrt();
    (first + 1..=number).fold(fresh(first), |value, number| correlation * value + share * fresh(number))
}

/// `e^x` for the x that noise has, up to 3.
pub(crate) fn exponential(x: f64) -> f64 {
    const SMALL: f64 = 0.06;
    if x.abs() <= SMALL {
        return small_exponential(x);
    }
    let mut value = small_exponential(x / 256.0);
    (0..8).for_each(|_| value *= value);
    value
}

/// `e^x` for the small x that noise has: at |x| = 0.06 the terms left out are below 1e-12.
fn small_exponential(x: f64) -> f64 {
    1.0 + x * (1.0 + x / 2.0 * (1.0 + x / 3.0 * (1.0 + x / 4.0 * (1.0 + x / 5.0 * (1.0 + x / 6.0)))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponential_is_that_of_the_library() {
        for number in -300..=300 {
            let x = f64::from(number) / 100.0;
            assert!((exponential(x) / x.exp() - 1.0).abs() < 1e-12, "{x}");
        }
    }
}
