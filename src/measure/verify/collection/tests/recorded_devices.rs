//! Devices of records.

use std::fs;

use super::*;

#[test]
fn other_device_is_implausible_and_named() {
    let (verdict, reason) = after(|c| c.own(0).for_each(|record| record.device = Some(LogicalDeviceId(5))));
    assert_eq!(
        (verdict, reason.as_str()),
        (Verdict::Implausible, "launched on device 3, recorded on device 5")
    );
}

/// Fails in the state in which a record without a device matched every device.
#[test]
fn record_without_a_device_is_implausible() {
    let mut collection = Collection::without_faults();
    collection.own(0).take(2).for_each(|record| record.device = None);
    let outcome = collection.outcomes().remove(0);
    assert_eq!(outcome.verdict, Verdict::Implausible);
    assert_eq!(outcome.reason, "launched on device 3, but 2 of 10 records name no device");
    let mut collection = Collection::without_faults();
    for record in &mut collection.records {
        (record.device, record.has_device_column) = (None, false);
    }
    let outcome = collection.outcomes().remove(0);
    assert_eq!(outcome.verdict, Verdict::Implausible);
    let reason = "launched on device 3, but the profile has no column for the device, and not one folder `device_N` that replaces it";
    assert_eq!(outcome.reason, reason);
}

/// Tables of earlier versions of the profiler have no column for the device.
#[test]
fn device_of_a_table_without_such_a_column_is_that_of_the_profile() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path().join("PROF_000001_1_A");
    let output = root.join("mindstudio_profiler_output");
    fs::create_dir_all(&output).expect("created");
    let header = "OP Type,Task Start Time(us),Task Duration(us),Input Shapes,Input Data Types,Input Formats,Output Shapes,Output Data Types,Output Formats";
    let row = r#"Add,100.5,12.3,"""8""",FLOAT,ND,"""8""",FLOAT,ND"#;
    fs::write(output.join("op_summary_1.csv"), format!("{header}\n{row}\n")).expect("written");
    let device = || read_records(folder.path()).expect("a table").records[0].device;
    assert_eq!(device(), None);
    fs::create_dir(root.join("device_5")).expect("created");
    assert_eq!(device(), Some(LogicalDeviceId(5)));
    fs::create_dir(root.join("device_6")).expect("created");
    assert_eq!(device(), None);
}
