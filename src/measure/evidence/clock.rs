//! Clock of a collection by the cycles of a case: the rate by which low clocks are found, beside those of the case's
//! other collections with the same software.

use serde::Serialize;

use crate::{
    base::stats::{CycleRate, median_of_floats},
    kernel::SoftwareFingerprint,
};

/// Cycles per block and microsecond of a case in a collection.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub(crate) struct ClockEvidence {
    pub(crate) cycles_per_us: f64,
    /// Standard error in percent.
    pub(crate) error_percent: f64,
    /// Difference from the median of the case's collections with the same software in percent; `None` with one
    /// collection.
    pub(crate) difference_percent: Option<f64>,
}

impl From<CycleRate> for ClockEvidence {
    fn from(rate: CycleRate) -> Self {
        let CycleRate { per_microsecond, error } = rate;
        Self { cycles_per_us: per_microsecond, error_percent: 100.0 * error, difference_percent: None }
    }
}

impl ClockEvidence {
    /// Sets the differences of a case's collections from the median of those with the same software.
    pub(super) fn compare_all(clocks: &mut [(Option<SoftwareFingerprint>, &mut Self)]) {
        let known: Vec<(Option<SoftwareFingerprint>, f64)> =
            clocks.iter().map(|(software, clock)| (software.clone(), clock.cycles_per_us)).collect();
        for (software, clock) in clocks {
            let same = known.iter().filter(|(other, _)| other == software);
            let mut values: Vec<f64> = same.map(|(_, value)| *value).collect();
            if let Some(median) = median_of_floats(&mut values).filter(|_| values.len() > 1) {
                clock.difference_percent = Some(100.0 * (clock.cycles_per_us / median - 1.0));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Other software may have other kernels, whose cycles per time differ at the same clock.
    #[test]
    fn only_collections_with_the_same_software_are_compared() {
        let software = |version: &str| {
            Some(SoftwareFingerprint { cann: Some(version.to_owned()), ..SoftwareFingerprint::default() })
        };
        let mut clocks = [1_000.0, 1_020.0, 1_040.0, 1_500.0]
            .map(|per_microsecond| ClockEvidence::from(CycleRate { per_microsecond, error: 0.001 }));
        let versions = ["8.5", "8.5", "8.5", "8.3"].map(software);
        let mut all: Vec<_> = versions.into_iter().zip(clocks.iter_mut()).collect();
        ClockEvidence::compare_all(&mut all);
        let differences =
            clocks.map(|clock| clock.difference_percent.map(|percent| (percent * 100.0).round()));
        assert_eq!(differences, [Some(-196.0), Some(0.0), Some(196.0), None]);
    }
}
