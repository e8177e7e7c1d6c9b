//! Clocks that a run cannot judge, because nothing is compared with them.

use std::collections::BTreeSet;

use crate::ledger::{Ledger, LedgerError};

/// Returns a line about the clocks that a run could not have found; `None` if earlier runs with its software show them, or if
/// the run has no cycles at all.
pub(crate) fn clock_limits(ledger: &Ledger, run: &str) -> Result<Option<String>, LedgerError> {
    let compared = ledger.compared_clocks(run)?;
    Ok(limits_of(&compared, run))
}

fn limits_of(compared: &BTreeSet<(String, u32)>, run: &str) -> Option<String> {
    let devices = compared.iter().filter(|(of, _)| of == run).count();
    if devices < compared.len() {
        return None;
    }
    match devices {
        0 => None,
        1 => Some(
            "clock: one device, no other run with this software: a clock that is low all the time cannot be seen"
                .to_owned(),
        ),
        2 => Some(
            "clock: two devices, no other run with this software: a low clock of both cannot be seen, and of two that differ \
             the higher one counts"
                .to_owned(),
        ),
        _ => Some(format!(
            "clock: {devices} devices, no other run with this software: a low clock of most of them cannot be seen"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_names_what_nothing_shows() {
        let found = |clocks: &[(&str, u32)]| {
            let clocks = clocks.iter().map(|(run, device)| ((*run).to_owned(), *device)).collect();
            limits_of(&clocks, "r2")
        };
        assert_eq!(found(&[]), None);
        assert_eq!(found(&[("r1", 0), ("r2", 0)]), None);
        let of = |count: u32| {
            let all: Vec<(&str, u32)> = (0..count).map(|device| ("r2", device)).collect();
            found(&all).expect("a line")
        };
        insta::assert_snapshot!([1, 2, 4].map(of).join("\n"), @r"
        clock: one device, no other run with this software: a clock that is low all the time cannot be seen
        clock: two devices, no other run with this software: a low clock of both cannot be seen, and of two that differ the higher one counts
        clock: 4 devices, no other run with this software: a low clock of most of them cannot be seen
        ");
    }
}
