//! Which cases, collections and devices faults affect.

use proptest::prelude::*;

use super::*;
use crate::{
    kernel::{
        CaseId, DataKind as HostKind, LogicalDeviceId, ProfilerSettings,
        render::{ExpectedRecord, HostNumbers, PinnedEnvironment, SentinelLengths},
    },
    rehearsal::fault_plan::ValidNames,
};

const VALID_NAMES: ValidNames<'_> = ValidNames { kernels: &["Add", "Mul"], devices: 16 };

fn case(ordinal: u32, id: u64) -> ManifestCase {
    ManifestCase {
        ordinal,
        case: CaseId::from_stored(format!("{id:016x}")),
        seed: 1,
        kernel: if id.is_multiple_of(2) { "Add" } else { "Mul" }.to_owned(),
        shapes: format!("{id},64;64 -> {id},64"),
        form: String::new(),
        api: String::new(),
        arguments: Vec::new(),
        returns: Vec::new(),
        record: ExpectedRecord::default(),
        measured: None,
    }
}

fn faults(text: &str, folder: Option<&Path>, collection: u32, device: u32, ids: &[u64]) -> ActiveFaults {
    let plan = FaultPlan::parse(Path::new("f.yaml"), text, &VALID_NAMES).expect("a plan");
    let manifest = Manifest {
        gang: Vec::new(),
        hosts: Vec::new(),
        host: 0,
        host_numbers: HostNumbers::default(),
        run: "r".to_owned(),
        collection,
        kind: HostKind::Rehearsal,
        device: LogicalDeviceId(device),
        seed: 1,
        warm_up: 1,
        measured: 1,
        flush_bytes: None,
        expert_skew: 0.0,
        profiler: ProfilerSettings::default(),
        environment: PinnedEnvironment::default(),
        sentinels: SentinelLengths::default(),
        controls: None,
        cases: (0..).zip(ids).map(|(ordinal, id)| case(ordinal, *id)).collect(),
    };
    let config = HostConfig { seed: 9, faults: plan, ..HostConfig::default() };
    ActiveFaults::new(&config, folder, Some(&manifest))
}

/// The ids of the cases that a plan selects.
fn selected(text: &str, collection: u32, device: u32, ids: &[u64]) -> Vec<u64> {
    let faults = faults(text, None, collection, device, ids);
    (0..)
        .zip(ids)
        .filter(|(ordinal, _)| !faults.fire_for_case(*ordinal).is_empty())
        .map(|(_, id)| *id)
        .collect()
}

#[test]
fn all_conditions_of_a_target_must_hold() {
    let ids = |target: &str| {
        selected(&format!("faults: [{{hang: {{}}, where: {{{target}}}}}]"), 7, 3, &[10, 11, 12, 13, 14, 15])
    };
    assert_eq!(ids(""), [10, 11, 12, 13, 14, 15]);
    assert_eq!(ids("kernel: Add"), [10, 12, 14]);
    assert_eq!(ids("kernel: [Add, Mul], ordinal: [0, 5]"), [10, 15]);
    assert_eq!(ids("case: [000000000000000c, \"000000000000000d\"]"), [12, 13]);
    assert_eq!(ids("case: \"0000\", every: 4"), [13]);
    assert_eq!(ids("shapes: \"11,64; 64\""), [11], "a whole cell");
    assert_eq!(ids("shapes: [\"12,64\", \"13\"]"), [12], "one slot of it");
    assert_eq!(ids("devices: 3, collections: [6, 7], kernel: Mul, ordinal: 1"), [11]);
    assert_eq!(ids("devices: [0, 4]"), [0_u64; 0]);
    assert_eq!(ids("collections: 6"), [0_u64; 0]);
}

#[test]
fn fault_of_a_collection_fires_if_a_case_matches() {
    let of = |target: &str, collection, ids: &[u64]| {
        let text = format!("faults: [{{disk_full: {{}}, where: {{{target}}}}}]");
        faults(&text, None, collection, 0, ids).fire_for_collection().len()
    };
    assert_eq!((of("", 1, &[1]), of("kernel: Add", 1, &[1, 3]), of("kernel: Add", 1, &[1, 2])), (1, 0, 1));
    assert_eq!((of("every: 3", 5, &[1]), of("every: 3", 6, &[1])), (0, 1));
}

#[test]
fn firings_are_counted_across_processes() {
    let folder = tempfile::tempdir().expect("a folder");
    FireCounter::of_host(folder.path()).record_start(crate::rehearsal::now()).expect("written");
    let fired = |text: &str, collection| {
        let faults = faults(text, Some(folder.path()), collection, 0, &[10, 11]);
        (0..2).map(|ordinal| faults.fire_for_case(ordinal).len()).sum::<usize>()
    };
    let in_all = "faults: [{hang: {}, times: 3}]";
    assert_eq!((fired(in_all, 1), fired(in_all, 2), fired(in_all, 3)), (2, 1, 0));
    let each = "faults: [{device_lost: {}}, {hang: {}, times_each: 1, where: {kernel: Add}}]";
    assert_eq!((fired(each, 1), fired(each, 2)), (1, 0));
}

#[test]
fn faults_of_devices_hold_during_their_time_window() {
    let folder = tempfile::tempdir().expect("a folder");
    let long_ago = Nanos(crate::rehearsal::now().0 - 10_000_000_000);
    FireCounter::of_host(folder.path()).record_start(long_ago).expect("written");
    // Ten seconds ago, at sixty times the speed: ten minutes of the plan.
    let state = |when: &str, device| {
        let text = format!(
            "speed: 60\nfaults: [{{device_lost: {{}}, where: {{devices: [1, 2]}}, when: {{{when}}}}}]"
        );
        faults(&text, Some(folder.path()), 1, 0, &[1]).device_state(device).is_lost
    };
    assert!(state("", 1) && state("from: 500", 2) && state("from: 500, until: 9000", 1));
    assert!(!state("", 0) && !state("from: 5000", 1) && !state("until: 590", 1));
    let gone = "speed: 60\nfaults: [{leftover_process: {seconds: 300}}, {slow_device: {factor: 4}}]";
    let state = faults(gone, Some(folder.path()), 1, 0, &[1]).device_state(5);
    assert_eq!((state.leftover_process, state.slowness), (None, 4.0));
}

#[test]
fn share_of_selected_cases_equals_the_probability() {
    let ids: Vec<u64> = (0_u64..4_000).map(|id| id.wrapping_mul(0x9E37_79B9_7F4A_7C15)).collect();
    let count = |probability: f64, drawn_by: &str, device| {
        let target = format!("{{probability: {probability}, drawn_by: {drawn_by}}}");
        selected(&format!("faults: [{{hang: {{}}, where: {target}}}]"), 1, device, &ids)
    };
    let (here, there) = (count(0.02, "case_and_device", 1), count(0.02, "case_and_device", 2));
    assert!((50..=110).contains(&here.len()), "{} of 4000 at 2 %", here.len());
    assert!(here.iter().filter(|id| there.contains(id)).count() < 10, "other devices, other cases");
    assert_eq!(count(0.02, "case", 1), count(0.02, "case", 2));
    assert_eq!((count(0.0, "case", 1).len(), count(1.0, "case", 1).len()), (0, 4_000));
    let devices = (0..16).filter(|device| !count(0.5, "device", *device).is_empty()).count();
    assert!((3..=13).contains(&devices), "{devices} of 16 devices at 50 %");
}

proptest! {
    #[test]
    fn selection_does_not_depend_on_the_order_of_cases(ids in prop::collection::hash_set(any::<u64>(), 1..40), turn: u8, collection: u32, device in 0_u32..16) {
        let text = "seed: 4\nfaults: [{hang: {}, where: {probability: 0.4}}]";
        let mut ids: Vec<u64> = ids.into_iter().collect();
        let mut before = selected(text, 0, device, &ids);
        let by = usize::from(turn) % ids.len();
        ids.rotate_left(by);
        let mut after = selected(text, collection, device, &ids);
        before.sort_unstable();
        after.sort_unstable();
        prop_assert_eq!(before, after);
    }
}
