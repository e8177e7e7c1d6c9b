//! Which cases, collections and devices faults strike.

use proptest::prelude::*;

use super::*;
use crate::{
    domain::{CaseId, DataKind as HostKind},
    rehearsal::fault_plan::ValidNames,
    render::{ExpectedRecord, SentinelLengths},
};

const KNOWN: ValidNames<'_> = ValidNames { kernels: &["Add", "Mul"], devices: 16 };

fn case(ordinal: u32, id: u64) -> ManifestCase {
    ManifestCase {
        ordinal,
        case: CaseId::from_stored(format!("{id:016x}")),
        seed: 1,
        kernel: if id.is_multiple_of(2) { "Add" } else { "Mul" }.to_owned(),
        shapes: format!("{id},64;64 -> {id},64"),
        form: String::new(),
        arguments: Vec::new(),
        returns: Vec::new(),
        record: ExpectedRecord::default(),
    }
}

fn faults(text: &str, folder: Option<&Path>, collection: u32, device: u32, ids: &[u64]) -> ActiveFaults {
    let plan = FaultPlan::parse(Path::new("f.yaml"), text, &KNOWN).expect("a plan");
    let manifest = Manifest {
        gang: Vec::new(),
        run: "r".to_owned(),
        collection,
        kind: HostKind::Rehearsal,
        device,
        seed: 1,
        warm_up: 1,
        measured: 1,
        expert_skew: 0.0,
        sentinels: SentinelLengths::default(),
        cases: (0..).zip(ids).map(|(ordinal, id)| case(ordinal, *id)).collect(),
    };
    let config = HostConfig { seed: 9, faults: plan, ..HostConfig::default() };
    ActiveFaults::new(&config, folder, Some(&manifest))
}

/// The ids of the cases that a plan strikes.
fn struck(text: &str, collection: u32, device: u32, ids: &[u64]) -> Vec<u64> {
    let faults = faults(text, None, collection, device, ids);
    (0..).zip(ids).filter(|(ordinal, _)| !faults.of_case(*ordinal).is_empty()).map(|(_, id)| *id).collect()
}

#[test]
fn places_narrow_each_other() {
    let strikes = |place: &str| {
        struck(&format!("faults: [{{hang: {{}}, where: {{{place}}}}}]"), 7, 3, &[10, 11, 12, 13, 14, 15])
    };
    assert_eq!(strikes(""), [10, 11, 12, 13, 14, 15]);
    assert_eq!(strikes("kernel: Add"), [10, 12, 14]);
    assert_eq!(strikes("kernel: [Add, Mul], ordinal: [0, 5]"), [10, 15]);
    assert_eq!(strikes("case: [000000000000000c, \"000000000000000d\"]"), [12, 13]);
    assert_eq!(strikes("case: \"0000\", every: 4"), [13]);
    assert_eq!(strikes("shapes: \"11,64; 64\""), [11], "a whole cell");
    assert_eq!(strikes("shapes: [\"12,64\", \"13\"]"), [12], "one slot of it");
    assert_eq!(strikes("devices: 3, collections: [6, 7], kernel: Mul, ordinal: 1"), [11]);
    assert_eq!(strikes("devices: [0, 4]"), [0_u64; 0]);
    assert_eq!(strikes("collections: 6"), [0_u64; 0]);
}

#[test]
fn a_collection_is_struck_where_it_holds_such_a_case() {
    let of = |place: &str, collection, ids: &[u64]| {
        let text = format!("faults: [{{disk_full: {{}}, where: {{{place}}}}}]");
        faults(&text, None, collection, 0, ids).of_collection().len()
    };
    assert_eq!((of("", 1, &[1]), of("kernel: Add", 1, &[1, 3]), of("kernel: Add", 1, &[1, 2])), (1, 0, 1));
    assert_eq!((of("every: 3", 5, &[1]), of("every: 3", 6, &[1])), (0, 1));
}

#[test]
fn strikes_are_counted_across_processes() {
    let folder = tempfile::tempdir().expect("a folder");
    FireCounter::of_host(folder.path()).begin(crate::rehearsal::now()).expect("written");
    let strikes = |text: &str, collection| {
        let faults = faults(text, Some(folder.path()), collection, 0, &[10, 11]);
        (0..2).map(|ordinal| faults.of_case(ordinal).len()).sum::<usize>()
    };
    let in_all = "faults: [{hang: {}, times: 3}]";
    assert_eq!((strikes(in_all, 1), strikes(in_all, 2), strikes(in_all, 3)), (2, 1, 0));
    let each = "faults: [{device_lost: {}}, {hang: {}, times_each: 1, where: {kernel: Add}}]";
    assert_eq!((strikes(each, 1), strikes(each, 2)), (1, 0));
}

#[test]
fn faults_of_devices_have_their_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let long_ago = Nanos(crate::rehearsal::now().0 - 10_000_000_000);
    FireCounter::of_host(folder.path()).begin(long_ago).expect("written");
    // Ten seconds ago, at sixty times the speed: ten minutes of the plan.
    let state = |when: &str, device| {
        let text = format!(
            "speed: 60\nfaults: [{{device_lost: {{}}, where: {{devices: [1, 2]}}, when: {{{when}}}}}]"
        );
        faults(&text, Some(folder.path()), 1, 0, &[1]).of_device(device).is_lost
    };
    assert!(state("", 1) && state("from: 500", 2) && state("from: 500, until: 9000", 1));
    assert!(!state("", 0) && !state("from: 5000", 1) && !state("until: 590", 1));
    let gone = "speed: 60\nfaults: [{leftover_process: {seconds: 300}}, {slow_device: {factor: 4}}]";
    let state = faults(gone, Some(folder.path()), 1, 0, &[1]).of_device(5);
    assert_eq!((state.held_by, state.slowness), (None, 4.0));
}

#[test]
fn as_many_are_struck_as_is_likely() {
    let ids: Vec<u64> = (0_u64..4_000).map(|id| id.wrapping_mul(0x9E37_79B9_7F4A_7C15)).collect();
    let count = |probability: f64, drawn_by: &str, device| {
        let place = format!("{{probability: {probability}, drawn_by: {drawn_by}}}");
        struck(&format!("faults: [{{hang: {{}}, where: {place}}}]"), 1, device, &ids)
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
    fn chance_knows_no_order(ids in prop::collection::hash_set(any::<u64>(), 1..40), turn: u8, collection: u32, device in 0_u32..16) {
        let text = "seed: 4\nfaults: [{hang: {}, where: {probability: 0.4}}]";
        let mut ids: Vec<u64> = ids.into_iter().collect();
        let mut before = struck(text, 0, device, &ids);
        let by = usize::from(turn) % ids.len();
        ids.rotate_left(by);
        let mut after = struck(text, collection, device, &ids);
        before.sort_unstable();
        after.sort_unstable();
        prop_assert_eq!(before, after);
    }
}
