//! Devices of records.

use std::fs;

use super::*;

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
