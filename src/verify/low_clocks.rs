//! Attempts of a ledger during which the clock of the device was lower than during others.

use std::collections::{BTreeMap, HashMap};

use super::equal_calls::{failed_as_other, is_measured_as};
use crate::{
    catalogue::Catalogue,
    domain::{CaseId, CaseOutcome, KernelName, Verdict},
    ledger::{EqualAttempt, Ledger, LedgerError, StoredCycleRate},
    stats::{ClockDeficit, CycleReading, find_clock_deficits},
};

/// Least number of cases by which a collection is judged.
const LEAST_CASES: usize = 3;

/// An attempt at a low clock.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LowClockAttempt {
    pub(crate) attempt: StoredCycleRate,
    /// `throttled`, with the deficit and what it was compared with.
    pub(crate) outcome: CaseOutcome,
}

/// An accepted attempt that does not count any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Withdrawal {
    /// Key of the attempt.
    pub(crate) attempt: i64,
    pub(crate) case: CaseId,
    /// Key of its collection.
    pub(crate) collection: i64,
    pub(crate) outcome: CaseOutcome,
}

/// Attempts at a low clock, and the collections with a low clock.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LowClocks {
    pub(crate) attempts: Vec<LowClockAttempt>,
    /// Keys of the collections of which most cases had a low clock, by run and device, with the median deficit.
    slow_collections: BTreeMap<(String, u32), BTreeMap<i64, f64>>,
}

impl LowClocks {
    /// Compares the cycles per time of all attempts with the same software. Fails with [`LedgerError`] if the ledger cannot be
    /// read.
    pub(crate) fn from_ledger(ledger: &Ledger) -> Result<Self, LedgerError> {
        Ok(Self::from_rates(ledger.cycle_rates()?))
    }

    /// Compares those of the collections with the same software as this one.
    pub(crate) fn of_software(ledger: &Ledger, collection: i64) -> Result<Self, LedgerError> {
        Ok(Self::from_rates(ledger.cycle_rates_of_software(collection)?))
    }

    fn from_rates(rates: Vec<StoredCycleRate>) -> Self {
        let mut by_software: BTreeMap<Option<String>, Vec<StoredCycleRate>> = BTreeMap::new();
        for rate in rates {
            by_software.entry(rate.software.clone()).or_default().push(rate);
        }
        let mut found = Self::default();
        by_software.into_values().for_each(|rates| found.add_software(&rates));
        found
    }

    /// Adds the attempts of one software.
    fn add_software(&mut self, rates: &[StoredCycleRate]) {
        let mut cases: HashMap<&CaseId, usize> = HashMap::new();
        let mut collections: BTreeMap<i64, usize> = BTreeMap::new();
        let readings: Vec<CycleReading> = rates
            .iter()
            .map(|stored| {
                let next = cases.len();
                let case = *cases.entry(&stored.case).or_insert(next);
                let next = collections.len();
                let collection = *collections.entry(stored.collection).or_insert(next);
                CycleReading { case, collection, rate: stored.rate }
            })
            .collect();
        let deficits = find_clock_deficits(&readings);
        for of_collection in rates.chunk_by(|one, other| one.collection == other.collection) {
            let from = rates.partition_point(|stored| stored.collection < of_collection[0].collection);
            let mut low: Vec<f64> = deficits[from..from + of_collection.len()]
                .iter()
                .flatten()
                .map(|found| found.deficit)
                .collect();
            if of_collection.len() >= LEAST_CASES && low.len() * 2 > of_collection.len() {
                low.sort_unstable_by(f64::total_cmp);
                let place = (of_collection[0].run.clone(), of_collection[0].device);
                let collections = self.slow_collections.entry(place).or_default();
                collections.insert(of_collection[0].collection, low[low.len() / 2]);
            }
        }
        for (stored, deficit) in rates.iter().zip(&deficits) {
            let Some(deficit) = deficit.as_ref().filter(|_| stored.verdict != Verdict::Throttled) else {
                continue;
            };
            let outcome = CaseOutcome::new(Verdict::Throttled, deficit_reason(stored, deficit, rates));
            self.attempts.push(LowClockAttempt { attempt: stored.clone(), outcome });
        }
    }

    /// Returns true if an attempt at a low clock is accepted.
    pub(crate) const fn has_accepted(&self) -> bool {
        !self.attempts.is_empty()
    }

    /// Returns the accepted attempts in their order, with those that share their launches: rows of the same call under
    /// another name, and cases that ran as another kernel.
    pub(crate) fn withdrawals(
        &self,
        ledger: &Ledger,
        catalogue: &Catalogue,
    ) -> Result<Vec<Withdrawal>, LedgerError> {
        let mut withdrawn = BTreeMap::new();
        for LowClockAttempt { attempt: stored, outcome } in &self.attempts {
            for other in ledger.attempts_of_same_signature(stored.attempt)? {
                let Some(outcome) = equal_outcome(&other, outcome, catalogue) else { continue };
                let EqualAttempt { attempt, case, .. } = other;
                withdrawn.entry(attempt).or_insert(Withdrawal {
                    attempt,
                    case,
                    collection: stored.collection,
                    outcome,
                });
            }
            let (attempt, case, collection) = (stored.attempt, stored.case.clone(), stored.collection);
            withdrawn.insert(attempt, Withdrawal { attempt, case, collection, outcome: outcome.clone() });
        }
        Ok(withdrawn.into_values().collect())
    }

    /// Returns the devices of a run with several collections at a low clock, each with a reason.
    pub(crate) fn slow_devices(&self, run: &str) -> Vec<(u32, String)> {
        let slow =
            self.slow_collections.iter().filter(|((of, _), collections)| of == run && collections.len() > 1);
        let slow = slow.map(|((_, device), collections)| {
            let (least, most) = collections
                .values()
                .fold((f64::INFINITY, 0.0_f64), |(least, most), value| (least.min(*value), most.max(*value)));
            let reason = format!(
                "its clock was {:.1} to {:.1} % lower than that of other collections, in {} collections",
                least * 100.0,
                most * 100.0,
                collections.len()
            );
            (*device, reason)
        });
        slow.collect()
    }
}

/// Returns the outcome of an attempt with the signature of one that is withdrawn with `outcome`; `None` if it is of
/// other launches.
fn equal_outcome(other: &EqualAttempt, outcome: &CaseOutcome, catalogue: &Catalogue) -> Option<CaseOutcome> {
    if other.outcome.verdict != Verdict::RanAsOther {
        return Some(outcome.clone());
    }
    let name = KernelName::new(&other.kernel).ok()?;
    let kernel = catalogue.entry(&name).map_or(&name, |entry| &entry.kernel);
    is_measured_as(&other.outcome, kernel).then(|| failed_as_other(kernel, outcome))
}

/// Returns the deficit of an attempt, and what it was compared with.
fn deficit_reason(stored: &StoredCycleRate, found: &ClockDeficit, rates: &[StoredCycleRate]) -> String {
    let percent = found.deficit * 100.0;
    let Some(reference) = found.reference.and_then(|index| rates.get(index)) else {
        let cases = found.cases;
        return format!(
            "the clock of device {} was {percent:.1} % lower than that of other collections, by the cycles of {cases} cases measured \
             beside it",
            stored.device
        );
    };
    let run = if reference.run == stored.run { String::new() } else { format!(" of run {}", reference.run) };
    format!(
        "the clock of device {} was {percent:.1} % lower than that of device {} in collection {}{run}: {:.0} instead of {:.0} cycles \
         per block and us",
        stored.device,
        reference.device,
        reference.number,
        stored.rate.per_microsecond,
        reference.rate.per_microsecond
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::CycleRate;

    fn stored(case: u32, collection: u32, device: u32, rate: f64, software: &str) -> StoredCycleRate {
        StoredCycleRate {
            attempt: i64::from(collection * 100 + case),
            case: CaseId::from_stored(format!("{case:016x}")),
            collection: i64::from(collection),
            run: "r1".to_owned(),
            number: collection,
            device,
            software: Some(software.to_owned()),
            verdict: Verdict::Ok,
            rate: CycleRate { per_microsecond: rate, error: 0.001 },
        }
    }

    fn collection(collection: u32, device: u32, rate: f64, software: &str) -> Vec<StoredCycleRate> {
        (0..6).map(|case| stored(case, collection, device, rate, software)).collect()
    }

    #[test]
    fn device_with_two_slow_collections_is_named_with_the_range_of_its_deficits() {
        let one = [collection(1, 0, 1_650.0, "8.5"), collection(2, 1, 1_600.0, "8.5")].concat();
        let found = LowClocks::from_rates(one.clone());
        assert_eq!(found.attempts.len(), 6);
        let reason = "the clock of device 1 was 3.0 % lower than that of device 0 in collection 1: 1600 instead of 1650 cycles per \
                      block and us";
        assert_eq!(found.attempts[0].outcome, CaseOutcome::new(Verdict::Throttled, reason));
        assert_eq!(found.slow_devices("r1"), []);
        let again = [one, collection(3, 1, 1_570.0, "8.5")].concat();
        let reason = "its clock was 3.0 to 4.8 % lower than that of other collections, in 2 collections";
        assert_eq!(LowClocks::from_rates(again.clone()).slow_devices("r1"), [(1, reason.to_owned())]);
        assert_eq!(LowClocks::from_rates(again).slow_devices("r2"), []);
    }

    /// They are evidence of a slow device, but have their reason already.
    #[test]
    fn attempts_that_are_throttled_are_not_found_again() {
        let mut rates = [1, 2, 3].map(|number| collection(number, 1, 1_600.0, "8.5")).concat();
        rates.extend(collection(4, 0, 1_650.0, "8.5"));
        rates[..12].iter_mut().for_each(|stored| stored.verdict = Verdict::Throttled);
        let found = LowClocks::from_rates(rates);
        let collections = found.attempts.iter().map(|low| low.attempt.collection);
        assert_eq!(collections.collect::<Vec<_>>(), [3; 6]);
        let reason = "its clock was 3.0 to 3.0 % lower than that of other collections, in 3 collections";
        assert_eq!(found.slow_devices("r1"), [(1, reason.to_owned())]);
    }

    /// Another version of a kernel may wait more.
    #[test]
    fn collections_of_other_software_are_no_reference() {
        let rates = [collection(1, 0, 1_650.0, "8.3"), collection(2, 1, 1_500.0, "8.5")].concat();
        assert_eq!(LowClocks::from_rates(rates), LowClocks::default());
    }
}
