//! Containers that see a part of the host's devices: npu-smi shows the host's numbers, torch counts from 0.

use std::{fs, path::Path};

use serde_json::Value;

use crate::prelude::*;
use crate::{
    gang::{collections, manifest},
    rehearsal::ledger,
};

fn run_in_container(container: &str, more: &(impl Words + ?Sized)) -> (Context, Ran) {
    let context = Context::of_layer();
    context.write("plan.yaml", &format!("container: {container}\n"));
    let ran = rehearse(&context, "db", &("--rehearsal-faults plan.yaml", more));
    (context, ran)
}

/// Kernels of a few short cases.
const FEW: [&str; 2] = ["--kernels", "RmsNorm,SwiGlu,Add,Mul,Slice,Sort"];

/// Devices of the collections in the ledger, and those of their manifests and records by torch's number.
fn devices_of_run(context: &Context) -> (String, Vec<(Value, Value, Value)>) {
    let sql = "SELECT group_concat(device) FROM (SELECT DISTINCT device FROM collections ORDER BY 1)";
    let mut numbers: Vec<(Value, Value, Value)> = collections(context)
        .iter()
        .map(|folder| {
            let manifest = manifest(folder);
            let journal = fs::read_to_string(folder.join("launched.jsonl")).expect("a journal");
            let first: Value = serde_json::from_str(journal.lines().next().expect("a line")).expect("JSON");
            let physical = manifest["host_numbers"]["devices"][0].clone();
            (physical, manifest["device"].clone(), first["device_count"].clone())
        })
        .collect();
    numbers.sort_by_key(|(physical, ..)| physical.as_u64());
    numbers.dedup();
    (ledger(context, "db", sql), numbers)
}

fn assert_all_ok(context: &Context, ran: &Ran) {
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    let verdicts = ledger(context, "db", "SELECT group_concat(DISTINCT verdict) FROM verdicts");
    assert_eq!(verdicts, "ok");
}

#[test]
fn a_container_with_a_part_of_the_devices_is_measured_by_the_hosts_numbers() {
    for visible in [&[3, 4, 5, 6, 7][..], &[4, 5], &[1, 2]] {
        let (context, ran) = run_in_container(&format!("{{visible: {visible:?}}}"), "");
        assert_all_ok(&context, &ran);
        let listed: Vec<String> = visible.iter().map(ToString::to_string).collect();
        let (devices, numbers) = devices_of_run(&context);
        assert_eq!(devices, listed.join(","), "the ledger has the host's numbers");
        let expected: Vec<(Value, Value, Value)> = (0..)
            .zip(visible)
            .map(|(logical, physical): (u32, &u32)| {
                ((*physical).into(), logical.into(), visible.len().into())
            })
            .collect();
        assert_eq!(numbers, expected, "torch counts from 0");
        let pairs: Vec<String> = visible
            .iter()
            .enumerate()
            .map(|(logical, physical)| format!("{physical} is {logical}"))
            .collect();
        let note = format!("devices are numbered for torch by `npu-smi info -m`: {}", pairs.join(", "));
        ran.err_has(&note);
    }
}

#[test]
fn devices_are_selected_by_the_numbers_of_npu_smi() {
    let (context, ran) = run_in_container("{visible: [3, 4, 5, 6, 7]}", &(FEW, "--devices 4,6"));
    assert_all_ok(&context, &ran);
    let (devices, numbers) = devices_of_run(&context);
    assert_eq!(devices, "4,6");
    assert_eq!(numbers, [(4.into(), 1.into(), 5.into()), (6.into(), 3.into(), 5.into())]);
    let (_, ran) = run_in_container("{visible: [3, 4, 5, 6, 7]}", "--devices 0-1");
    assert_eq!(ran.code, 3, "{}", ran.stderr);
    insta::assert_snapshot!(
        ran.stderr.lines().filter(|line| !line.starts_with("note")).collect::<Vec<_>>().join("\n")
    );
}

#[test]
fn devices_are_numbered_without_a_usable_chip_map() {
    for chip_map in ["refused", "host"] {
        let (context, ran) = run_in_container(&format!("{{visible: [4, 5, 9], chip_map: {chip_map}}}"), &FEW);
        assert_all_ok(&context, &ran);
        let (devices, numbers) = devices_of_run(&context);
        assert_eq!(devices, "4,5,9", "{chip_map}");
        let expected = [(4, 0), (5, 1), (9, 2)].map(|(physical, logical): (u32, u32)| {
            (Value::from(physical), Value::from(logical), Value::from(3))
        });
        assert_eq!(numbers, expected, "{chip_map}");
    }
    let (_, ran) = run_in_container("{visible: [4, 5, 9], chip_map: refused}", "--kernels Add");
    let note = ran.stderr.lines().find(|line| line.contains("numbered for torch")).unwrap_or_default();
    insta::assert_snapshot!(note);
}

/// Fails in the state in which npu-smi's number was torch's: a case ran on a device with another one's lease and health.
#[test]
fn a_count_of_torch_that_contradicts_npu_smi_is_the_hosts_fault() {
    // npu-smi lists four devices, of which the runtime sees two.
    let (context, ran) = run_in_container("{visible: [0, 1, 2, 3], torch_order: [2, 3]}", &FEW);
    assert_eq!(ran.code, 4, "{}{}", ran.stdout, ran.stderr);
    let outcome = "SELECT group_concat(DISTINCT outcome) FROM collections";
    insta::assert_snapshot!(ledger(&context, "db", outcome));
    assert_eq!(ledger(&context, "db", "SELECT group_concat(DISTINCT verdict) FROM verdicts"), "not_run");
    assert_eq!(ledger(&context, "db", "SELECT CAST(count(*) AS TEXT) FROM launches"), "0");
}

/// Fails in the state in which each container had leases of its own.
#[test]
fn containers_that_share_a_folder_exclude_each_other_by_the_address_of_a_device() {
    let context = Context::of_layer();
    context.write("plan.yaml", "container: {visible: [4, 5]}\n");
    fs::create_dir(context.path("shared")).expect("created");
    // Device 4 of the host, as another container holds it: card 2, first die.
    let lease = context.path("shared/rehearsal-pci-0000-95-00-0.lease");
    let other = fs::File::create(&lease).expect("created");
    other.lock().expect("free");
    let more = "--rehearsal-faults plan.yaml --leases shared";
    let ran = rehearse(&context, "db", &(more, FEW));
    assert_all_ok(&context, &ran);
    assert_eq!(devices_of_run(&context).0, "5", "device 4 is in use");
    let reserved = ran.stderr.lines().find(|line| line.contains("in use by another run")).unwrap_or_default();
    assert!(reserved.contains("ROOT/shared/rehearsal-pci-0000-95-00-0.lease"), "{}", ran.stderr);
    assert!(context.path("shared/rehearsal-pci-0000-97-00-0.lease").exists());
    let ran = rehearse(&context, "db", "--leases missing --update all").ended(4);
    insta::assert_snapshot!(ran.stderr);
}

#[test]
fn a_gang_in_a_container_has_torchs_numbers_and_the_durations_of_its_ranks() {
    let context = crate::gang::database(&[64, 128], &["2"]);
    context.write("plan.yaml", "container: {visible: [3, 4, 5, 6, 7]}\n");
    let more = "--rehearsal-faults plan.yaml --kernels DispatchFFNCombine --devices 4-7";
    let ran = rehearse(&context, "db", more);
    assert_all_ok(&context, &ran);
    for folder in collections(&context) {
        let manifest = manifest(&folder);
        let numbers =
            |value: &Value| -> Vec<u64> { value.list().iter().map(crate::context::Json::whole).collect() };
        let [gang, physical] = [&manifest["gang"], &manifest["host_numbers"]["devices"]].map(numbers);
        assert_eq!(gang.iter().map(|logical| logical + 3).collect::<Vec<_>>(), physical);
        assert_rank_durations(&folder);
    }
}

/// Each launch has the durations of the fastest and of the slowest rank, which are equal on the rehearsal host.
fn assert_rank_durations(folder: &Path) {
    let text = fs::read_to_string(folder.join("ranks.jsonl")).expect("a file");
    assert!(!text.is_empty());
    for line in text.lines() {
        let line: Value = serde_json::from_str(line).expect("JSON");
        let count = |key: &str| line[key].as_array().map_or(0, Vec::len);
        assert_eq!((count("fastest_ns"), count("slowest_ns")), (25, 25), "{line}");
        assert_eq!(line["fastest_ns"], line["slowest_ns"]);
    }
}
