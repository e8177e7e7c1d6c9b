//! Comparison of the control kernels of collections with control kernels on other devices and in other nights, with the
//! same software.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{
    base::stats::{ControlChange, median_of_floats, medians_by_key},
    database::ledger::StoredControl,
    kernel::{CollectionEnd, ControlKernel, ControlReading},
};

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

/// Returns the control kernels of a collection, by its run and number.
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
        let mut own_medians: Vec<f64> =
            readings.iter().filter_map(|stored| stored.reading.median()).collect();
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

/// Returns the levels of all devices and runs with the software of the newest collection.
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

#[cfg(test)]
mod tests {
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
