//! `comm`: groups of devices for collectives.

use std::fs;

use crate::context::Context;

/// Two ranks of tier 1 are on different chips; devices 0 and 1 are the dies of one.
#[test]
fn groups_of_a_tier_are_listed_and_span_it() {
    let context = Context::new();
    let ran = context.run(&["comm", "groups", "--devices", "0-15", "--ranks", "2,16"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let rows: Vec<Vec<&str>> =
        ran.stdout.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).collect();
    assert_eq!(rows[1], ["1", "clos", "196", "0.5", "2", "14", "0,2"]);
    assert_eq!(rows[2], ["1", "clos", "196", "0.5", "16", "1", "0-15"]);
    assert_eq!(rows[3], ["2", "clos", "224", "0.2", "2", "8", "0-1"]);
    assert_eq!(rows.len(), 4);
    assert!(ran.stderr.contains("all 16 devices together span tier 1"), "{}", ran.stderr);
    let json = context.run(&["comm", "groups", "--devices", "4-7", "--tier", "1", "--format", "json"]);
    let line = json.stdout.lines().next().expect("a line");
    assert!(line.contains("\"groups\":[[4,6],[5,7]]") && line.contains("\"ranks\":2"), "{line}");
}

#[test]
fn impossible_groups_and_networks_are_errors() {
    let context = Context::new();
    for (arguments, expected) in [
        (
            &["--ranks", "4", "--tier", "2"][..],
            "no 4 of these 16 devices span tier 2 of the grid [48, 8, 2]: at most 2 do",
        ),
        (&["--ranks", "32", "--tier", "1"], "32 ranks are more than the 16 devices"),
        (&["--ranks", "32"], "no group of the 16 devices has such a size or tier"),
        (&["--devices", "0-799"], "device 768 is outside of the grid [48, 8, 2], which has 768 devices"),
        (&["--device", "ASCEND_950"], "the device profile `ASCEND_950` declares no network"),
        (&["--device", "A3"], "the device profile `A3` does not exist"),
    ] {
        let ran = context.run(&[&["comm", "groups"], arguments].concat());
        assert_eq!(ran.code, 3, "{arguments:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(expected) && ran.stderr.contains("hint: "), "{}", ran.stderr);
    }
    fs::create_dir_all(context.path("assets/grids/devices")).expect("a folder");
    let profile = "device: OWN\ncube_tflops: {}\nvector_tflops: {}\nhbm_gib: 1\nhbm_tib_per_s: 1\nl2_mib: 1\n\
                   l2_ceiling_tb_per_s: 1\ncube_cores: 1\nvector_cores: 1\nclock_mhz: 1\ncomm:\n  grid: [2, 8]\n  \
                   tiers: [{kind: clos, gb_per_s: 24, latency_us: 5, efficiency: 70}]\n";
    fs::write(context.path("assets/grids/devices/OWN.yaml"), profile).expect("written");
    let ran = context.run(&["comm", "groups", "--device", "OWN", "--assets", "assets"]);
    assert_eq!(ran.code, 3, "{}", ran.stderr);
    assert!(
        ran.stderr.contains("OWN.yaml:13:10: the grid has 2 dimensions, `tiers` has 1"),
        "{}",
        ran.stderr
    );
}
