//! Clocks of collections: the rate of a case's cycles by which low clocks are found, and the clocks that a run cannot judge,
//! because nothing is compared with them.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::{
    base::stats::{CycleRate, median_of_floats},
    database::ledger::{ClockOfRun, Ledger, LedgerError},
    kernel::{Cause, SoftwareFingerprint},
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

/// Returns lines about the clocks that a run could not have found, unless other runs with its software and its state of the
/// cache show them or it has no cycles at all, and about devices that differ without a majority.
pub(crate) fn clock_limits(ledger: &Ledger, run: &str) -> Result<Vec<String>, LedgerError> {
    let undecided = undecided_line(ledger.count_attempts_with(run, &Cause::UndecidedClock)?);
    Ok(limits_of(&ledger.clocks_of_software(run)?, run).into_iter().chain(undecided).collect())
}

/// Returns the line about attempts that were rejected at a clock that may have been the right one; `None` without one.
fn undecided_line(attempts: u32) -> Option<String> {
    (attempts > 0).then(|| {
        let attempts = if attempts == 1 { "1 attempt was".to_owned() } else { format!("{attempts} attempts were") };
        format!(
            "clock: {attempts} rejected while no majority of devices showed which clock was right, because the highest counts; if rows differ \
             from production, `npubench run --update all` on more devices decides it"
        )
    })
}

fn limits_of(clocks: &[ClockOfRun], run: &str) -> Option<String> {
    let (own, others): (Vec<&ClockOfRun>, Vec<&ClockOfRun>) =
        clocks.iter().partition(|clock| clock.run == run);
    if others.iter().any(|clock| clock.is_compared) {
        return None;
    }
    let devices =
        own.iter().filter(|clock| clock.is_compared).map(|clock| clock.device).collect::<BTreeSet<_>>();
    let no_other = if others.is_empty() {
        "no other run with this software"
    } else {
        "no other run with this software in this state of the cache"
    };
    let (devices, limit) = match devices.len() {
        0 => return None,
        1 => ("one device".to_owned(), "a clock that is low all the time cannot be seen"),
        2 => (
            "two devices".to_owned(),
            "a low clock of both cannot be seen, and of two that differ the higher one counts",
        ),
        count => (format!("{count} devices"), "a low clock of most of them cannot be seen"),
    };
    Some(format!("clock: {devices}, {no_other}: {limit}"))
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

    #[test]
    fn line_counts_attempts_without_a_majority() {
        assert_eq!(undecided_line(0), None);
        let line = undecided_line(3).expect("a line");
        let start =
            "clock: 3 attempts were rejected while no majority of devices showed which clock was right";
        assert!(line.starts_with(start), "{line}");
    }

    #[test]
    fn line_names_what_nothing_shows() {
        let clock = |run: &str, device: u32, is_compared: bool| ClockOfRun {
            run: run.to_owned(),
            device,
            is_compared,
        };
        let found = |clocks: &[ClockOfRun]| limits_of(clocks, "r2");
        assert_eq!(found(&[]), None);
        assert_eq!(found(&[clock("r1", 0, true), clock("r2", 0, true)]), None);
        assert_eq!(found(&[clock("r1", 0, false)]), None);
        let of = |count: u32| (0..count).map(|device| clock("r2", device, true)).collect::<Vec<_>>();
        let other_state = [of(2), vec![clock("r1", 0, false)]].concat();
        let all = [of(1), of(2), of(4), other_state];
        insta::assert_snapshot!(all.map(|clocks| found(&clocks).expect("a line")).join("\n"), @r"
        clock: one device, no other run with this software: a clock that is low all the time cannot be seen
        clock: two devices, no other run with this software: a low clock of both cannot be seen, and of two that differ the higher one counts
        clock: 4 devices, no other run with this software: a low clock of most of them cannot be seen
        clock: two devices, no other run with this software in this state of the cache: a low clock of both cannot be seen, and of two that differ the higher one counts
        ");
    }
}
