//! Levels of devices and hosts: the clock of a case's collections, the control kernels of collections on other devices and in other
//! nights, and how much slower or faster kernels are on one host than on the others.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde::Serialize;

use crate::{
    base::stats::{ControlChange, CycleRate, median_of_floats, median_of_sorted, medians_by_key},
    database::ledger::{ClockOfRun, Ledger, LedgerError, StoredControl},
    kernel::{CacheState, Cause, CollectionEnd, ControlKernel, ControlReading, SoftwareFingerprint},
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
    let (own, others): (Vec<&ClockOfRun>, Vec<&ClockOfRun>) = clocks.iter().partition(|one| one.run == run);
    if others.iter().any(|clock| clock.is_compared) {
        return None;
    }
    let devices = own.iter().filter(|one| one.is_compared).map(|one| one.device).collect::<BTreeSet<_>>();
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

/// A control kernel in a collection.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub(crate) struct ControlEvidence {
    pub(crate) control: String,
    pub(crate) device: u32,
    /// Medians at the ends of the collection; `None` if its launches are not all recorded.
    pub(crate) begin_us: Option<f64>,
    pub(crate) end_us: Option<f64>,
    pub(crate) change_percent: Option<f64>,
    /// Difference of both ends together from the median of the other collections with the same software and kernel; `None`
    /// without another one.
    pub(crate) off_percent: Option<f64>,
}

pub(crate) fn control_evidence(all: &[StoredControl], run: &str, number: u32) -> Vec<ControlEvidence> {
    let is_own = |stored: &&StoredControl| stored.run == run && stored.number == number;
    let mut own: BTreeMap<(u32, ControlKernel), Vec<&StoredControl>> = BTreeMap::new();
    for stored in all.iter().filter(is_own) {
        own.entry((stored.reading.device, stored.reading.control)).or_default().push(stored);
    }
    let evidence = own.into_iter().map(|((device, control), readings)| {
        let at = |end: CollectionEnd| {
            readings.iter().map(|stored| &stored.reading).find(|reading| reading.end == end)
        };
        let median = |end: CollectionEnd| at(end).and_then(ControlReading::median).map(|median| median / 1e3);
        let change = at(CollectionEnd::Begin).zip(at(CollectionEnd::End)).and_then(|(begin, end)| {
            Some(100.0 * ControlChange::between(&begin.durations, &end.durations)?.log_change.exp_m1())
        });
        let mut others: Vec<f64> = all
            .iter()
            .filter(|other| other.collection != readings[0].collection && is_same_kernel(other, readings[0]))
            .filter_map(|other| other.reading.median())
            .collect();
        let mut own_medians: Vec<f64> = readings.iter().filter_map(|one| one.reading.median()).collect();
        ControlEvidence {
            control: control.to_string(),
            device,
            begin_us: median(CollectionEnd::Begin),
            end_us: median(CollectionEnd::End),
            change_percent: change,
            off_percent: median_of_floats(&mut own_medians)
                .zip(median_of_floats(&mut others))
                .map(|(own, others)| 100.0 * (own / others - 1.0)),
        }
    });
    evidence.collect()
}

/// Level of a device in a run by its control kernels.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub(crate) struct ControlLevel {
    pub(crate) run: String,
    pub(crate) device: u32,
    pub(crate) collections: usize,
    /// Differences of the median of each kernel from that over all devices and runs, in percent.
    pub(crate) off_percent: BTreeMap<String, f64>,
}

pub(crate) fn control_levels(all: &[StoredControl]) -> Vec<ControlLevel> {
    let Some(newest) = all.last() else { return Vec::new() };
    let same: Vec<&StoredControl> = all.iter().filter(|stored| stored.software == newest.software).collect();
    let overall = medians_by_key(same.iter().filter_map(|stored| {
        let ControlReading { control, kernel, .. } = &stored.reading;
        Some(((*control, kernel.as_str()), stored.reading.median()?))
    }));
    let mut places: BTreeMap<(&str, u32), Vec<&StoredControl>> = BTreeMap::new();
    for stored in same {
        places.entry((&stored.run, stored.reading.device)).or_default().push(stored);
    }
    let levels = places.into_iter().map(|((run, device), readings)| {
        let mut collections: Vec<i64> = readings.iter().map(|stored| stored.collection).collect();
        collections.dedup();
        let off = readings.into_iter().filter_map(|stored| {
            let ControlReading { control, kernel, .. } = &stored.reading;
            let overall = overall.get(&(*control, kernel.as_str()))?;
            Some((control.to_string(), 100.0 * (stored.reading.median()? / overall - 1.0)))
        });
        ControlLevel {
            run: run.to_owned(),
            device,
            collections: collections.len(),
            off_percent: medians_by_key(off),
        }
    });
    levels.collect()
}

fn is_same_kernel(one: &StoredControl, other: &StoredControl) -> bool {
    one.software == other.software
        && one.reading.control == other.reading.control
        && one.reading.kernel == other.reading.kernel
}

/// Least difference of a host that is reported, as a logarithm of a ratio.
const MIN_EFFECT: f64 = 0.02;
/// Number of standard errors from which a difference is not chance.
const ERRORS: f64 = 3.0;
/// Assumed least relative standard deviation of the levels of the devices of one host.
const DEVICE_SD: f64 = 0.01;

/// Level of one host.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub(crate) struct HostLevel {
    pub(crate) host: String,
    /// Difference from the median over all hosts in percent; positive if the host is slower. Of two hosts, the difference of
    /// the slower one from the other, which has 0.
    pub(crate) percent: f64,
    /// Its standard error in percent.
    pub(crate) error_percent: f64,
    pub(crate) devices: usize,
    /// Number of compared control kernels, or of compared cases without control kernels on all hosts.
    pub(crate) kernels: usize,
    /// True if the difference matters and is not chance.
    pub(crate) is_significant: bool,
}

#[derive(Clone, Debug)]
struct DeviceMedian {
    kernel: String,
    host: String,
    device: u32,
    log_duration: f64,
}

/// Returns the levels of all hosts with measurements of the newest software, the slowest first; empty for fewer than two hosts.
/// The control kernels of the collections are compared, and if a host has none, the cases that several hosts have measured.
pub(crate) fn host_levels(ledger: &Ledger, cache: CacheState) -> Result<Vec<HostLevel>, LedgerError> {
    let (runs, hosts) = (ledger.collection_runs()?, ledger.run_hosts()?);
    let host_of = |collection: i64| hosts.get(runs.get(&collection)?).cloned();
    let mut cases: Vec<DeviceMedian> = Vec::new();
    let mut software: Vec<(i64, Option<Arc<str>>)> = Vec::new();
    ledger.for_each_measurement(cache, |measured| {
        let mut samples = measured.samples.clone();
        samples.sort_unstable();
        let median = median_of_sorted(&samples).filter(|median| *median > 0.0);
        if let (Some(median), Some(host)) = (median, host_of(measured.collection)) {
            software.push((measured.collection, measured.software.clone()));
            let (kernel, device) = (measured.case.to_string(), measured.device);
            cases.push(DeviceMedian { kernel, host, device, log_duration: median.ln() });
        }
    })?;
    let Some(newest) = software.iter().max_by_key(|(collection, _)| *collection).cloned() else {
        return Ok(Vec::new());
    };
    let mut same = software.iter().map(|(_, software)| *software == newest.1);
    cases.retain(|_| same.next().unwrap_or_default());
    let controls: Vec<DeviceMedian> = ledger
        .all_controls(cache)?
        .into_iter()
        .filter(|stored| stored.software.as_deref() == newest.1.as_deref())
        .filter_map(|stored| {
            let log_duration = stored.reading.median().filter(|median| *median > 0.0)?.ln();
            let kernel = format!("{} {}", stored.reading.control, stored.reading.kernel);
            let host = host_of(stored.collection)?;
            Some(DeviceMedian { kernel, host, device: stored.reading.device, log_duration })
        })
        .collect();
    let hosts_of = |medians: &[DeviceMedian]| -> BTreeSet<String> {
        medians.iter().map(|median| median.host.clone()).collect()
    };
    let has_controls = hosts_of(&cases).is_subset(&hosts_of(&controls));
    Ok(levels_of(if has_controls { &controls } else { &cases }))
}

fn levels_of(medians: &[DeviceMedian]) -> Vec<HostLevel> {
    let of_devices =
        medians_by_key(medians.iter().map(|DeviceMedian { kernel, host, device, log_duration }| {
            ((kernel.as_str(), host.as_str(), *device), *log_duration)
        }));
    let of_hosts = medians_by_key(of_devices.iter().map(|((kernel, host, _), log)| ((*kernel, *host), *log)));
    let has_several =
        |kernel: &str| of_hosts.range((kernel, "")..).take_while(|((own, _), _)| *own == kernel).count() > 1;
    let mut overall = medians_by_key(of_hosts.iter().map(|((kernel, _), log)| (*kernel, *log)));
    overall.retain(|kernel, _| has_several(kernel));
    let devices =
        medians_by_key(of_devices.iter().filter_map(|((kernel, host, device), log)| {
            Some(((*host, *device), log - overall.get(kernel)?))
        }));
    let mut hosts: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for ((host, _), level) in devices {
        hosts.entry(host).or_default().push(level);
    }
    let mut levels: Vec<(&str, f64, f64, usize)> = hosts
        .into_iter()
        .filter_map(|(host, mut of_devices)| {
            let level = median_of_floats(&mut of_devices)?;
            let mut deviations: Vec<f64> = of_devices.iter().map(|one| (one - level).abs()).collect();
            let spread = (1.4826 * median_of_floats(&mut deviations)?).max(DEVICE_SD);
            let error = spread / (of_devices.len() as f64).sqrt();
            Some((host, level, error, of_devices.len()))
        })
        .collect();
    levels.sort_by(|one, other| other.1.total_cmp(&one.1).then_with(|| one.0.cmp(other.0)));
    // Their median is halfway between both, and cannot show which of them is off.
    if let [slow, fast] = &mut levels[..] {
        (slow.1, fast.1) = (slow.1 - fast.1, 0.0);
        slow.2 = slow.2.hypot(fast.2);
    }
    let level = |(host, level, error, devices): (&str, f64, f64, usize)| HostLevel {
        host: host.to_owned(),
        percent: 100.0 * level.exp_m1(),
        error_percent: 100.0 * error,
        devices,
        kernels: overall.keys().filter(|kernel| of_hosts.contains_key(&(**kernel, host))).count(),
        is_significant: level.abs() >= MIN_EFFECT && level.abs() > ERRORS * error,
    };
    levels.into_iter().map(level).collect()
}

#[cfg(test)]
mod clock_tests {
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

#[cfg(test)]
mod control_tests {
    use super::*;

    fn stored(
        collection: i64,
        run: &str,
        device: u32,
        end: CollectionEnd,
        duration: i64,
        software: &str,
    ) -> StoredControl {
        StoredControl {
            collection,
            run: run.to_owned(),
            number: u32::try_from(collection).expect("few"),
            software: Some(software.to_owned()),
            reading: ControlReading {
                control: ControlKernel::Matmul,
                end,
                device,
                kernel: "MatMulV2".to_owned(),
                durations: vec![duration; 8],
                cycle_rate: None,
            },
        }
    }

    fn readings() -> Vec<StoredControl> {
        use CollectionEnd::{Begin, End};
        vec![
            stored(1, "r1", 0, Begin, 500_000, "8.5"),
            stored(1, "r1", 0, End, 500_000, "8.5"),
            stored(2, "r1", 1, Begin, 520_000, "8.5"),
            stored(2, "r1", 1, End, 530_000, "8.5"),
            stored(3, "r2", 0, Begin, 500_000, "8.5"),
            stored(3, "r2", 0, End, 500_000, "8.5"),
            stored(4, "r2", 2, Begin, 900_000, "8.3"),
            stored(5, "r2", 2, Begin, 500_000, "8.5"),
        ]
    }

    #[test]
    fn controls_are_compared_with_other_collections_of_the_same_software() {
        let found = control_evidence(&readings(), "r1", 2);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].begin_us, found[0].end_us), (Some(520.0), Some(530.0)));
        let change = found[0].change_percent.expect("both ends");
        assert!((change - 100.0 * (530.0 / 520.0 - 1.0)).abs() < 1e-9, "{change}");
        assert!((found[0].off_percent.expect("others") - 5.0).abs() < 1e-9);
        assert_eq!(control_evidence(&readings(), "r2", 4)[0].off_percent, None, "no other of its software");
    }

    #[test]
    fn levels_are_those_of_devices_and_runs() {
        let levels = control_levels(&readings());
        let places: Vec<(&str, u32, usize)> =
            levels.iter().map(|level| (level.run.as_str(), level.device, level.collections)).collect();
        assert_eq!(places, [("r1", 0, 1), ("r1", 1, 1), ("r2", 0, 1), ("r2", 2, 1)]);
        assert!((levels[1].off_percent["matmul"] - 5.0).abs() < 1e-9, "{levels:?}");
        assert_eq!(control_levels(&[]), []);
    }
}

#[cfg(test)]
mod host_tests {
    use super::*;
    use crate::base::stats::normal_deviate;

    /// Control kernels of `devices` devices of each host, with the factors of the hosts, and noise of collections and devices.
    fn controls(factors: &[f64], devices: u32, seed: u64) -> Vec<DeviceMedian> {
        let mut medians = Vec::new();
        for (number, factor) in factors.iter().enumerate() {
            for device in 0..devices {
                let place = seed * 1_000_000 + number as u64 * 10_000 + u64::from(device) * 100;
                let of_device = 0.008 * normal_deviate(place);
                for (collection, kernel) in [(1, "matmul"), (2, "matmul"), (3, "vector"), (4, "vector")] {
                    let noise = of_device + 0.005 * normal_deviate(place + collection);
                    let log_duration = (500_000.0 * factor).ln() + noise;
                    let (kernel, host) = (kernel.to_owned(), format!("node{number}"));
                    medians.push(DeviceMedian { kernel, host, device, log_duration });
                }
            }
        }
        medians
    }

    fn found(levels: &[HostLevel]) -> Vec<&str> {
        levels.iter().filter(|level| level.is_significant).map(|level| level.host.as_str()).collect()
    }

    #[test]
    fn a_host_that_is_4_percent_slower_is_found_and_no_other_is() {
        for seed in 0..200 {
            let factors = [1.0, 1.0, 1.0, 1.04, 1.0, 1.0];
            let levels = levels_of(&controls(&factors, 8, seed));
            assert_eq!(found(&levels), ["node3"], "{seed}: {levels:?}");
            assert!((levels[0].percent - 4.0).abs() < 1.5, "{levels:?}");
            assert_eq!((levels[0].devices, levels[0].kernels), (8, 2));
        }
    }

    #[test]
    fn equal_hosts_are_not_reported() {
        let wrong = (0..500).filter(|&seed| !found(&levels_of(&controls(&[1.0; 8], 8, seed))).is_empty());
        assert_eq!(wrong.count(), 0);
        let wrong = (0..500).filter(|&seed| !found(&levels_of(&controls(&[1.0; 8], 1, seed))).is_empty());
        assert!(wrong.count() <= 10, "one device of each host is little evidence");
    }

    #[test]
    fn of_two_hosts_the_slower_one_is_named() {
        let levels = levels_of(&controls(&[1.04, 1.0], 8, 1));
        assert_eq!(found(&levels), ["node0"]);
        assert!((levels[0].percent - 4.0).abs() < 1.5 && levels[1].percent == 0.0, "{levels:?}");
        assert_eq!(levels_of(&controls(&[1.0], 8, 1)), [], "one host has no other");
    }
}
