//! Attempts of a ledger during which the clock of the device was lower than during others.

use std::collections::{BTreeMap, HashMap};

use super::equal_calls::{failed_as_other, is_measured_as};
use crate::{
    catalogue::Catalogue,
    domain::{CacheState, CaseId, CaseOutcome, CollectionEnd, ControlKernel, KernelName, Verdict},
    ledger::{EqualAttempt, Ledger, LedgerError, StoredControl, StoredCycleRate},
    stats::{ClockDeficit, CycleRate, CycleReading, find_clock_deficits},
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

/// Cycles per time of a case or of a control kernel in a collection.
#[derive(Clone, Copy, Debug)]
struct ComparedRate<'a> {
    collection: i64,
    /// Device as the host numbers it: the processes of a gang have clocks of their own.
    device: u32,
    place: LaunchPlace,
    kernel: ComparedKernel<'a>,
    rate: CycleRate,
    /// Index of the attempt; `None` for a control kernel.
    attempt: Option<usize>,
}

/// Place in the order of launches of a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum LaunchPlace {
    Begin,
    Case,
    End,
}

/// Launches that have equal cycles at every clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum ComparedKernel<'a> {
    Case(&'a CaseId),
    /// A control kernel, by the kernel that ran.
    Control(ControlKernel, &'a str),
}

impl<'a> ComparedRate<'a> {
    /// Returns the rate of a control kernel; `None` without cycles.
    fn of_control(stored: &'a StoredControl) -> Option<Self> {
        let StoredControl { collection, reading, .. } = stored;
        Some(Self {
            collection: *collection,
            device: reading.device,
            place: match reading.end {
                CollectionEnd::Begin => LaunchPlace::Begin,
                CollectionEnd::End => LaunchPlace::End,
            },
            kernel: ComparedKernel::Control(reading.control, &reading.kernel),
            rate: reading.cycle_rate?,
            attempt: None,
        })
    }
}

impl LowClocks {
    /// Compares the cycles per time of all attempts in one state of the cache with the same software. Fails with
    /// [`LedgerError`] if the ledger cannot be read.
    pub(crate) fn from_ledger(ledger: &Ledger, cache: CacheState) -> Result<Self, LedgerError> {
        Ok(Self::from_rates(ledger.cycle_rates(cache)?, &ledger.all_controls(cache)?))
    }

    /// Compares those of the collections with the same software as this one, which has this state of the cache.
    pub(crate) fn of_software(
        ledger: &Ledger,
        collection: i64,
        cache: CacheState,
    ) -> Result<Self, LedgerError> {
        Ok(Self::from_rates(ledger.cycle_rates_of_software(collection)?, &ledger.all_controls(cache)?))
    }

    fn from_rates(rates: Vec<StoredCycleRate>, controls: &[StoredControl]) -> Self {
        let mut by_software: BTreeMap<Option<String>, Vec<StoredCycleRate>> = BTreeMap::new();
        for rate in rates {
            by_software.entry(rate.software.clone()).or_default().push(rate);
        }
        let mut found = Self::default();
        for (software, rates) in by_software {
            let same = controls.iter().filter(|stored| stored.software == software);
            found.add_software(&rates, same.filter_map(ComparedRate::of_control).collect());
        }
        found
    }

    /// Adds the attempts of one software. Control kernels are compared as cases are: every collection has them, so that they
    /// are evidence of the clock of collections without a common case.
    fn add_software(&mut self, rates: &[StoredCycleRate], controls: Vec<ComparedRate<'_>>) {
        let of_attempts = rates.iter().enumerate().map(|(index, stored)| ComparedRate {
            collection: stored.collection,
            device: stored.device,
            place: LaunchPlace::Case,
            kernel: ComparedKernel::Case(&stored.case),
            rate: stored.rate,
            attempt: Some(index),
        });
        let mut compared: Vec<ComparedRate<'_>> = of_attempts.chain(controls).collect();
        compared.sort_by_key(|one| (one.collection, one.device, one.place));
        let mut kernels: HashMap<ComparedKernel<'_>, usize> = HashMap::new();
        let mut collections: BTreeMap<(i64, u32), usize> = BTreeMap::new();
        let readings: Vec<CycleReading> = compared
            .iter()
            .map(|one| {
                let next = kernels.len();
                let case = *kernels.entry(one.kernel).or_insert(next);
                let next = collections.len();
                let collection = *collections.entry((one.collection, one.device)).or_insert(next);
                CycleReading { case, collection, rate: one.rate }
            })
            .collect();
        let all_deficits = find_clock_deficits(&readings);
        let mut deficits: Vec<Option<ClockDeficit>> = vec![None; rates.len()];
        let mut from = 0;
        let is_same = |one: &ComparedRate<'_>, other: &ComparedRate<'_>| {
            (one.collection, one.device) == (other.collection, other.device)
        };
        for of_collection in compared.chunk_by(is_same) {
            let found = &all_deficits[from..from + of_collection.len()];
            from += of_collection.len();
            // Control kernels help to find the deficits of cases, but are no cases.
            let cases: Vec<(usize, Option<ClockDeficit>)> = of_collection
                .iter()
                .zip(found)
                .filter_map(|(one, found)| Some((one.attempt?, *found)))
                .collect();
            let mut low: Vec<f64> = cases.iter().filter_map(|(_, found)| Some((*found)?.deficit)).collect();
            if let Some((first, _)) = cases.first().copied().filter(|_| cases.len() >= LEAST_CASES)
                && low.len() * 2 > cases.len()
            {
                low.sort_unstable_by(f64::total_cmp);
                let place = (rates[first].run.clone(), rates[first].device);
                let collections = self.slow_collections.entry(place).or_default();
                collections.insert(rates[first].collection, low[low.len() / 2]);
            }
            for (attempt, found) in cases {
                // The reference is a reading of the same case, so that it is one of an attempt.
                let reference =
                    |found: ClockDeficit| found.reference.and_then(|index| compared[index].attempt);
                deficits[attempt] = found.map(|found| ClockDeficit { reference: reference(found), ..found });
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
            "the clock of device {} was {percent:.1} % lower than that of other collections, by the cycles of {cases} kernels \
             launched beside it",
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
    use crate::domain::ControlReading;

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
        let found = LowClocks::from_rates(one.clone(), &[]);
        assert_eq!(found.attempts.len(), 6);
        let reason = "the clock of device 1 was 3.0 % lower than that of device 0 in collection 1: 1600 instead of 1650 cycles per \
                      block and us";
        assert_eq!(found.attempts[0].outcome, CaseOutcome::new(Verdict::Throttled, reason));
        assert_eq!(found.slow_devices("r1"), []);
        let again = [one, collection(3, 1, 1_570.0, "8.5")].concat();
        let reason = "its clock was 3.0 to 4.8 % lower than that of other collections, in 2 collections";
        assert_eq!(LowClocks::from_rates(again.clone(), &[]).slow_devices("r1"), [(1, reason.to_owned())]);
        assert_eq!(LowClocks::from_rates(again, &[]).slow_devices("r2"), []);
    }

    /// They are evidence of a slow device, but have their reason already.
    #[test]
    fn attempts_that_are_throttled_are_not_found_again() {
        let mut rates = [1, 2, 3].map(|number| collection(number, 1, 1_600.0, "8.5")).concat();
        rates.extend(collection(4, 0, 1_650.0, "8.5"));
        rates[..12].iter_mut().for_each(|stored| stored.verdict = Verdict::Throttled);
        let found = LowClocks::from_rates(rates, &[]);
        let collections = found.attempts.iter().map(|low| low.attempt.collection);
        assert_eq!(collections.collect::<Vec<_>>(), [3; 6]);
        let reason = "its clock was 3.0 to 3.0 % lower than that of other collections, in 3 collections";
        assert_eq!(found.slow_devices("r1"), [(1, reason.to_owned())]);
    }

    /// Another version of a kernel may wait more.
    #[test]
    fn collections_of_other_software_are_no_reference() {
        let rates = [collection(1, 0, 1_650.0, "8.3"), collection(2, 1, 1_500.0, "8.5")].concat();
        assert_eq!(LowClocks::from_rates(rates, &[]), LowClocks::default());
    }

    fn control(collection: u32, device: u32, rate: f64, software: &str) -> Vec<StoredControl> {
        let reading = |control: ControlKernel, end: CollectionEnd| ControlReading {
            control,
            end,
            device,
            kernel: control.to_string(),
            durations: vec![1_000; 8],
            cycle_rate: Some(CycleRate { per_microsecond: rate, error: 0.001 }),
        };
        let all = [ControlKernel::Matmul, ControlKernel::Copy, ControlKernel::Vector].into_iter().flat_map(
            |control| {
                CollectionEnd::ALL.iter().map(move |&end| StoredControl {
                    collection: i64::from(collection),
                    run: "r1".to_owned(),
                    number: collection,
                    software: Some(software.to_owned()),
                    reading: reading(control, end),
                })
            },
        );
        all.collect()
    }

    /// In the first round of a large plan no case is measured twice.
    #[test]
    fn controls_show_the_clock_of_collections_without_a_common_case() {
        let cases = |first: u32, collection: u32, device: u32, rate: f64| -> Vec<StoredCycleRate> {
            (first..first + 6).map(|case| stored(case, collection, device, rate, "8.5")).collect()
        };
        let rates = [cases(0, 1, 0, 900.0), cases(10, 2, 1, 400.0)].concat();
        let at = |clock: f64| [control(1, 0, 1_650.0, "8.5"), control(2, 1, clock, "8.5")].concat();
        assert_eq!(LowClocks::from_rates(rates.clone(), &at(1_645.0)), LowClocks::default());
        let found = LowClocks::from_rates(rates.clone(), &at(1_585.0));
        let collections = found.attempts.iter().map(|low| low.attempt.collection);
        assert_eq!(collections.collect::<Vec<_>>(), [2; 6]);
        let reason = "the clock of device 1 was 3.9 % lower than that of other collections, by the cycles of";
        assert!(found.attempts[0].outcome.reason.starts_with(reason), "{:?}", found.attempts[0].outcome);
        let other = [control(1, 0, 1_650.0, "8.3"), control(2, 1, 1_585.0, "8.5")].concat();
        assert_eq!(LowClocks::from_rates(rates, &other), LowClocks::default());
    }

    /// Six readings of control kernels are no three cases.
    #[test]
    fn collections_of_one_case_are_not_judged_by_their_controls() {
        let cases = |count: u32, collection: u32, device: u32, rate: f64| -> Vec<StoredCycleRate> {
            (0..count).map(|case| stored(collection * 10 + case, collection, device, rate, "8.5")).collect()
        };
        let controls: Vec<StoredControl> = [(1, 0, 1_650.0), (2, 1, 1_585.0), (3, 1, 1_585.0)]
            .into_iter()
            .flat_map(|(collection, device, clock)| control(collection, device, clock, "8.5"))
            .collect();
        let slow = |count: u32| {
            let rates =
                [cases(6, 1, 0, 900.0), cases(count, 2, 1, 400.0), cases(count, 3, 1, 300.0)].concat();
            LowClocks::from_rates(rates, &controls).slow_devices("r1").len()
        };
        assert_eq!([1, 2, 3, 6].map(slow), [0, 0, 1, 1]);
    }

    /// A slow device of a gang says nothing about the first one.
    #[test]
    fn controls_of_a_gang_are_those_of_their_own_devices() {
        let cases = |collection: u32, device: u32| -> Vec<StoredCycleRate> {
            (0..4).map(|case| stored(collection * 10 + case, collection, device, 400.0, "8.5")).collect()
        };
        let rates = [cases(1, 0), cases(2, 1)].concat();
        let with_gang = |first: f64, second: f64| {
            let of_gang =
                [control(2, 1, first, "8.5"), control(2, 2, second, "8.5"), control(2, 3, second, "8.5")];
            let controls = [control(1, 0, 1_650.0, "8.5"), of_gang.concat()].concat();
            let found = LowClocks::from_rates(rates.clone(), &controls);
            found.attempts.iter().map(|low| low.attempt.device).collect::<Vec<_>>()
        };
        assert_eq!(with_gang(1_650.0, 1_500.0), Vec::<u32>::new());
        assert_eq!(with_gang(1_500.0, 1_650.0), [1; 4]);
    }
}
