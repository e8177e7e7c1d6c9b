//! Levels of hosts: how much slower or faster kernels are on one host than on the others.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde::Serialize;

use crate::{
    base::stats::{median_of_floats, median_of_sorted, medians_by_key},
    database::ledger::{Ledger, LedgerError},
    kernel::CacheState,
};

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
    /// Control kernel, or case.
    kernel: String,
    host: String,
    device: u32,
    /// Logarithm of nanoseconds.
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
            #[expect(clippy::cast_precision_loss, reason = "a host has few devices")]
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
mod tests {
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
