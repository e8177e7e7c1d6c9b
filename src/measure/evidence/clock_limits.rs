//! Clocks that a run cannot judge, because nothing is compared with them.

use std::collections::BTreeSet;

use crate::{
    database::ledger::{ClockOfRun, Ledger, LedgerError},
    kernel::Cause,
};

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
