//! Attempts of a ledger during which the clock of the device was lower than during others, or higher than the clock of
//! most devices.

use std::collections::{BTreeMap, BTreeSet};

use indexmap::IndexSet;

use super::collection::{failed_as_other, is_measured_as};
use crate::{
    base::stats::{ClockDeficit, CycleRate, CycleReading, find_clock_deficits, median_of_floats},
    database::ledger::{EqualAttempt, Ledger, LedgerError, StoredControl, StoredCycleRate},
    kernel::{
        CacheState, CaseId, CaseOutcome, Cause, CollectionEnd, ControlKernel, KernelName, Verdict,
        catalogue::Catalogue, cause::ClockDifference,
    },
};

const MIN_CASES: usize = 3;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LowClockAttempt {
    pub(crate) attempt: StoredCycleRate,
    pub(crate) outcome: CaseOutcome,
}

/// An accepted attempt that does not count any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Withdrawal {
    pub(crate) attempt: i64,
    pub(crate) case: CaseId,
    pub(crate) collection: i64,
    pub(crate) outcome: CaseOutcome,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LowClocks {
    pub(crate) attempts: Vec<LowClockAttempt>,
    collections: BTreeMap<(String, u32), BTreeMap<i64, CollectionDeficit>>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct CollectionDeficit {
    /// Median of its cases; below 0 for a higher clock.
    median: f64,
    is_undecided: bool,
}

/// Devices of a run on which collections run: those without a finished one may have either of two clocks that differ.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunningDevices {
    pub(crate) run: String,
    pub(crate) devices: BTreeSet<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeviatingDevice {
    pub(crate) device: u32,
    pub(crate) reason: String,
    pub(crate) is_undecided: bool,
}

#[derive(Clone, Copy, Debug)]
struct ComparedRate<'a> {
    collection: i64,
    run: &'a str,
    /// Device as the host numbers it: the processes of a gang have clocks of their own.
    device: u32,
    /// Place in the order of launches: 0 for control kernels at the begin, 1 for cases, 2 for control kernels at the end.
    place: u8,
    kernel: ComparedKernel<'a>,
    rate: CycleRate,
    /// Cycles of a launch, in the same unit for all that are compared.
    cycles: Option<f64>,
    attempt: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum ComparedKernel<'a> {
    Case(&'a CaseId),
    Control(ControlKernel, &'a str),
}

impl<'a> ComparedRate<'a> {
    fn of_control(stored: &'a StoredControl) -> Option<Self> {
        let StoredControl { collection, run, reading, .. } = stored;
        let rate = reading.cycle_rate?;
        let mut durations: Vec<f64> = reading.durations.iter().map(|nanos| *nanos as f64).collect();
        Some(Self {
            collection: *collection,
            run,
            device: reading.device,
            place: match reading.end {
                CollectionEnd::Begin => 0,
                CollectionEnd::End => 2,
            },
            kernel: ComparedKernel::Control(reading.control, &reading.kernel),
            rate,
            cycles: median_of_floats(&mut durations).map(|median| median * rate.per_microsecond),
            attempt: None,
        })
    }
}

impl LowClocks {
    pub(crate) fn from_ledger(ledger: &Ledger, cache: CacheState) -> Result<Self, LedgerError> {
        let (rates, controls) = (ledger.cycle_rates(cache)?, ledger.all_controls(cache)?);
        Ok(Self::from_rates(rates, &controls, &RunningDevices::default()))
    }

    pub(crate) fn of_software(
        ledger: &Ledger,
        collection: i64,
        running: &RunningDevices,
    ) -> Result<Self, LedgerError> {
        let rates = ledger.cycle_rates_of_software(collection)?;
        Ok(Self::from_rates(rates, &ledger.controls_of_software(collection)?, running))
    }

    fn from_rates(rates: Vec<StoredCycleRate>, controls: &[StoredControl], running: &RunningDevices) -> Self {
        let mut by_software: BTreeMap<Option<String>, Vec<StoredCycleRate>> = BTreeMap::new();
        for rate in rates {
            by_software.entry(rate.software.clone()).or_default().push(rate);
        }
        let mut found = Self::default();
        for (software, rates) in by_software {
            // Readings of a collection whose attempts were all refused are no reference either.
            let judged: BTreeSet<i64> = rates.iter().map(|stored| stored.collection).collect();
            let same = controls
                .iter()
                .filter(|stored| stored.software == software && judged.contains(&stored.collection));
            found.add_software(&rates, same.filter_map(ComparedRate::of_control).collect(), running);
        }
        found
    }

    /// Control kernels are compared as cases are: every collection has them, also one without a common case.
    fn add_software(
        &mut self,
        rates: &[StoredCycleRate],
        controls: Vec<ComparedRate<'_>>,
        running: &RunningDevices,
    ) {
        let of_attempts = rates.iter().enumerate().map(|(index, stored)| {
            let &StoredCycleRate { collection, ref run, device, ref case, rate, cycles, .. } = stored;
            let (place, kernel) = (1, ComparedKernel::Case(case));
            ComparedRate { collection, run, device, place, kernel, rate, cycles, attempt: Some(index) }
        });
        let mut compared: Vec<ComparedRate<'_>> = of_attempts.chain(controls).collect();
        compared.sort_by_key(|one| (one.collection, one.device, one.place));
        let (mut kernels, mut collections, mut runs) = (IndexSet::new(), IndexSet::new(), IndexSet::new());
        let readings = compared.iter().map(|one| CycleReading {
            case: kernels.insert_full(one.kernel).0,
            collection: collections.insert_full((one.collection, one.device)).0,
            run: runs.insert_full(one.run).0,
            device: one.device,
            rate: one.rate,
            cycles: one.cycles,
            is_control: one.attempt.is_none(),
        });
        let readings: Vec<CycleReading> = readings.collect();
        let run = runs.get_index_of(running.run.as_str());
        let awaited: Vec<(usize, u32)> =
            run.iter().flat_map(|run| running.devices.iter().map(|device| (*run, *device))).collect();
        let mut deficits: Vec<Option<ClockDeficit>> = vec![None; rates.len()];
        let judged: Vec<(&ComparedRate<'_>, Option<ClockDeficit>)> =
            compared.iter().zip(find_clock_deficits(&readings, &awaited)).collect();
        let is_same = |one: &ComparedRate<'_>, other: &ComparedRate<'_>| {
            (one.collection, one.device) == (other.collection, other.device)
        };
        for of_collection in judged.chunk_by(|(one, _), (other, _)| is_same(one, other)) {
            // Control kernels help to find the deficits of cases, but are no cases.
            let cases = of_collection.iter().filter_map(|(one, found)| Some((one.attempt?, *found)));
            let cases: Vec<(usize, Option<ClockDeficit>)> = cases.collect();
            let mut off: Vec<ClockDeficit> = cases.iter().filter_map(|(_, found)| *found).collect();
            if let Some((first, _)) = cases.first().copied().filter(|_| cases.len() >= MIN_CASES)
                && off.len() * 2 > cases.len()
            {
                off.sort_unstable_by(|one, other| one.deficit.total_cmp(&other.deficit));
                let ClockDeficit { deficit: median, is_undecided, .. } = off[off.len() / 2];
                let place = (rates[first].run.clone(), rates[first].device);
                let collections = self.collections.entry(place).or_default();
                collections.insert(rates[first].collection, CollectionDeficit { median, is_undecided });
            }
            for (attempt, found) in cases {
                // The reference is a reading of the same case, so that it is one of an attempt.
                let reference = |one: ClockDeficit| one.reference.and_then(|index| compared[index].attempt);
                deficits[attempt] = found.map(|found| ClockDeficit { reference: reference(found), ..found });
            }
        }
        for (stored, deficit) in rates.iter().zip(&deficits) {
            let Some(deficit) = deficit.as_ref().filter(|_| stored.verdict != Verdict::Throttled) else {
                continue;
            };
            let outcome = deficit_outcome(stored, deficit, rates);
            self.attempts.push(LowClockAttempt { attempt: stored.clone(), outcome });
        }
    }

    /// Returns the accepted attempts with those that share their launches: rows of the same call, and cases that ran as another kernel.
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

    pub(crate) fn deviating_devices(&self, run: &str) -> Vec<DeviatingDevice> {
        let several =
            self.collections.iter().filter(|((of, _), collections)| of == run && collections.len() > 1);
        let devices = several.map(|((_, device), collections)| {
            let mut medians: Vec<f64> = collections.values().map(|found| found.median).collect();
            medians.sort_unstable_by(f64::total_cmp);
            let is_fast = medians[medians.len() / 2] < 0.0;
            medians.retain(|median| (*median < 0.0) == is_fast);
            let percent = medians.iter().map(|median| median.abs() * 100.0);
            let least = percent.clone().fold(f64::INFINITY, f64::min);
            let most = percent.fold(0.0, f64::max);
            let is_undecided = collections.values().all(|found| found.is_undecided);
            // Where most launches wait, cycles per time cannot separate these from a low clock.
            let direction = match is_fast {
                true => "higher than that of most devices",
                false => "lower than that of other collections, or its kernels waited for another process",
            };
            let undecided = if is_undecided { format!("; {}", Cause::UndecidedClock) } else { String::new() };
            let count = medians.len();
            let reason = format!(
                "its clock was {least:.1} to {most:.1} % {direction}, in {count} collections{undecided}"
            );
            DeviatingDevice { device: *device, reason, is_undecided }
        });
        devices.collect()
    }
}

fn equal_outcome(other: &EqualAttempt, outcome: &CaseOutcome, catalogue: &Catalogue) -> Option<CaseOutcome> {
    if other.outcome.verdict != Verdict::RanAsOther {
        return Some(outcome.clone());
    }
    let name = KernelName::new(&other.kernel).ok()?;
    let kernel = catalogue.entry(&name).map_or(&name, |entry| &entry.kernel);
    is_measured_as(&other.outcome, kernel).then(|| failed_as_other(kernel, outcome))
}

/// Relative difference of the measured rate of a reference from the expected one that is stated.
const STATED_DIFFERENCE: f64 = 0.002;

fn deficit_outcome(stored: &StoredCycleRate, found: &ClockDeficit, rates: &[StoredCycleRate]) -> CaseOutcome {
    let is_higher = found.deficit < 0.0;
    let (device, percent) = (stored.device, (100.0 * found.deficit.abs()).into());
    let reference = found.reference.and_then(|index| rates.get(index));
    let cause = match reference {
        None => Cause::ClockBeside { device, percent, is_higher, kernels: found.cases },
        Some(reference) => {
            let own = stored.rate.per_microsecond;
            // The clock that the others have; the reference itself may have had a lower one, which is corrected.
            let expected = own / (1.0 - found.deficit);
            let measured = reference.rate.per_microsecond;
            let is_corrected = (measured / expected - 1.0).abs() > STATED_DIFFERENCE;
            Cause::Clock(ClockDifference {
                device,
                percent,
                is_higher,
                other_device: reference.device,
                other_collection: reference.number,
                other_run: Some(&reference.run).filter(|run| **run != stored.run).cloned(),
                cycles: own.into(),
                expected_cycles: expected.into(),
                uncorrected_cycles: is_corrected.then(|| measured.into()),
            })
        }
    };
    // A device whose own clock was higher at another time does not need the others.
    let is_own = reference.is_some_and(|reference| reference.device == device);
    let remark = (found.is_undecided && !is_own).then_some(Cause::UndecidedClock);
    CaseOutcome::with_remarks(Verdict::Throttled, cause, remark)
}

#[cfg(test)]
mod tests;
