//! Effects of treatments in complete blocks: each block has a measurement for each treatment, so that what changes between
//! blocks, as the drift of a host, changes no effect.

use statrs::distribution::{ContinuousCDF, StudentsT};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct BlockEffect {
    /// Mean over the blocks of the difference from the first treatment.
    pub(crate) difference: f64,
    pub(crate) half_width: f64,
}

/// Returns the effects of all treatments but the first. `error` is the probability that a measurement without an effect is
/// outside of its interval. No effects without two blocks of the same two or more treatments.
pub(crate) fn block_effects(blocks: &[Vec<f64>], error: f64) -> Vec<BlockEffect> {
    let treatments = blocks.first().map_or(0, Vec::len);
    if blocks.len() < 2 || treatments < 2 || blocks.iter().any(|block| block.len() != treatments) {
        return Vec::new();
    }
    let count = blocks.len() as f64;
    let mean = |values: &mut dyn Iterator<Item = f64>, count: f64| values.sum::<f64>() / count;
    let of_treatments: Vec<f64> = (0..treatments)
        .map(|treatment| mean(&mut blocks.iter().map(|block| block[treatment]), count))
        .collect();
    let of_all = mean(&mut of_treatments.iter().copied(), treatments as f64);
    let residuals = blocks.iter().flat_map(|block| {
        let of_block = mean(&mut block.iter().copied(), treatments as f64);
        let expected = of_treatments.iter().map(move |of_treatment| of_treatment + of_block - of_all);
        block.iter().zip(expected).map(|(value, expected)| value - expected)
    });
    let freedom = (count - 1.0) * (treatments as f64 - 1.0);
    let variance = residuals.map(|residual| residual * residual).sum::<f64>() / freedom;
    let quantile = StudentsT::new(0.0, 1.0, freedom)
        .map_or(f64::INFINITY, |student| student.inverse_cdf(1.0 - error / 2.0));
    let half_width = quantile * (2.0 * variance / count).sqrt();
    let effect = |mean: &f64| BlockEffect { difference: mean - of_treatments[0], half_width };
    of_treatments[1..].iter().map(effect).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: four residuals of 0.5 with two degrees of freedom.
    #[test]
    fn drift_between_blocks_changes_no_effect() {
        let blocks = |drift: f64| vec![vec![1.0, 4.0, 9.0], vec![drift + 2.0, drift + 3.0, drift + 9.0]];
        for drift in [0.0, 50.0] {
            let effects = block_effects(&blocks(drift), 0.05);
            let [first, second] = effects[..] else { panic!("{effects:?}") };
            assert!((first.difference - 2.0).abs() < 1e-12 && (second.difference - 7.5).abs() < 1e-12);
            // 4.302653 is the quantile of Student's t distribution with 2 degrees of freedom.
            let expected = 4.302_653 * (2.0_f64 * 0.5 / 2.0).sqrt();
            assert!((first.half_width - expected).abs() < 1e-5, "{} {expected}", first.half_width);
        }
        assert_eq!(block_effects(&[vec![1.0, 2.0]], 0.05), []);
    }
}
