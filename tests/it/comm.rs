//! `comm`: groups of devices for collectives, fits of sweeps, their comparison with a model, results of other benchmarks.

use std::fs;

use crate::prelude::*;

/// Two ranks of tier 1 are on different chips; devices 0 and 1 are the dies of one.
#[test]
fn groups_of_a_tier_are_listed_and_span_it() {
    let context = Context::new();
    let ran = context.done("comm groups --devices 0-15 --ranks 2,16");
    let rows: Vec<Vec<&str>> =
        ran.stdout.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).collect();
    assert_eq!(rows[1], ["1", "clos", "196", "0.5", "2", "14", "0,2"]);
    assert_eq!(rows[2], ["1", "clos", "196", "0.5", "16", "1", "0-15"]);
    assert_eq!(rows[3], ["2", "clos", "224", "0.2", "2", "8", "0-1"]);
    assert_eq!(rows.len(), 4);
    ran.err_has("all 16 devices together span tier 1");
    let json = context.run("comm groups --devices 4-7 --tier 1 --format json");
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
        (&["--device", "ASCEND_950DT"], "the device profile `ASCEND_950DT` declares no network"),
        (&["--device", "A3"], "the device profile `A3` does not exist"),
    ] {
        let ran = context.exits(3, &("comm groups", arguments));
        assert!(ran.stderr.contains(expected) && ran.stderr.contains("hint: "), "{}", ran.stderr);
    }
    fs::create_dir_all(context.path("assets/grids/devices")).expect("a folder");
    let profile = "device: OWN\ncube_tflops: {}\nvector_tflops: {}\nhbm_gib: 1\nhbm_tib_per_s: 1\nl2_mib: 1\n\
                   l2_ceiling_tb_per_s: 1\ncube_cores: 1\nvector_cores: 1\nclock_mhz: 1\ncomm:\n  grid: [2, 8]\n  \
                   tiers: [{kind: clos, gb_per_s: 24, latency_us: 5, efficiency: 70}]\n";
    fs::write(context.path("assets/grids/devices/OWN.yaml"), profile).expect("written");
    let ran = context.exits(3, "comm groups --device OWN --assets assets");
    ran.err_has("OWN.yaml:13:10: the grid has 2 dimensions, `tiers` has 1");
}

/// Writes a database of kind `rehearsal` with a sweep of three planted regimes: 23 sizes, 16 ranks of tier 1.
pub(crate) fn write_planted(context: &Context, noise: f64) {
    fs::create_dir_all(context.path("db")).expect("a folder");
    fs::write(
        context.path("db/database.yaml"),
        "npubench_database: 1\nkind: rehearsal\ndevice: ATLAS_800_A3_752T_128G_DIE\n",
    )
    .expect("written");
    let mut text =
        "message_bytes,num_devices,dtype,topology_tier,Duration(us),bandwidth_gbps,MicroBench CI95 Low(us),\
                    MicroBench CI95 High(us),MicroBench Verdict\n"
            .to_owned();
    for ranks in [2_u32, 4, 8, 16] {
        let steps = f64::from(2 * (ranks - 1));
        let share = steps / f64::from(ranks);
        for (bits, sign) in (7..30_u32).zip([1.0, -1.0, 0.5, -0.5, 0.2, -0.8].into_iter().cycle()) {
            let bytes = f64::from(1_u32 << bits);
            let (alpha, gigabytes) = match bits {
                ..=15 => (12.0, 20.0),
                16..=21 => (22.0, 70.0),
                _ => (60.0, 170.0),
            };
            // A ring whose parameters of 16 ranks are the planted ones.
            let exact = alpha * steps / 30.0 + bytes * 1e-3 / gigabytes * share / (30.0 / 16.0);
            let micros = exact * (1.0 + noise * sign);
            text += &format!(
                "{},{ranks},FLOAT16,1,{micros:.6},{:.6},{:.6},{:.6},ok\n",
                1_u64 << bits,
                bytes / micros * 1e-3,
                micros * 0.99,
                micros * 1.01
            );
        }
    }
    fs::write(context.path("db/hcom_allReduce_.csv"), text).expect("written");
}

#[test]
fn a_sweep_is_fitted_with_its_regimes_and_algorithm() {
    let context = Context::new();
    write_planted(&context, 0.004);
    let ran = context.done("comm fit all_reduce --db db --format json");
    let lines: Vec<serde_json::Value> = ran.json();
    assert_eq!(lines.len(), 5, "four numbers of ranks, one comparison");
    let whole = &lines[3];
    assert_eq!((&whole["ranks"], &whole["collective"]), (&16.into(), &"all_reduce".into()));
    let changes = whole["changes"].list();
    let places: Vec<(u64, u64)> =
        changes.iter().map(|change| (change["before"].whole(), change["behind"].whole())).collect();
    assert_eq!(places, [(1 << 15, 1 << 16), (1 << 21, 1 << 22)]);
    assert!(changes[0]["discontinuity"] == true && changes[0]["located"] == false, "{}", changes[0]);
    assert!(changes[0]["refining_sizes"].list().contains(&40_960.into()));
    for (line, (alpha, gigabytes)) in
        whole["lines"].list().iter().zip([(12.0, 20.0), (22.0, 70.0), (60.0, 170.0)])
    {
        let latency = line["latency_us"].float();
        assert!((latency / alpha - 1.0).abs() < 0.05, "{line}");
        // The bandwidth of the first regime is known to its interval only.
        let interval = line["algbw_ci95_gb_per_s"].list();
        assert!(interval[0].float() <= gigabytes, "{line}");
        assert!(interval[1].as_f64().is_none_or(|high| high >= gigabytes), "{line}");
    }
    // 512 MiB: bus bandwidth of 30/16 times the algorithm bandwidth.
    let last = whole["points"].list().last().expect("a point");
    let ratio = last["busbw_gb_per_s"].float() / last["algbw_gb_per_s"].float();
    assert!((ratio - 1.875).abs() < 1e-9, "{last}");
    assert_eq!(whole["link_peak_gb_per_s"], 196.0);
    let scaling = &lines[4]["scaling"];
    assert_eq!(scaling["small_messages"]["algorithm"], "ring", "{scaling}");
    assert_eq!(scaling["large_messages"]["algorithm"], "ring", "{scaling}");

    fs::create_dir(context.path("images")).expect("a folder");
    let plain = context.done("comm fit --db db --svg images");
    for expected in [
        "all_reduce 16 ranks tier 1 FLOAT16",
        "change between 32K and 64K (by fit), +",
        "do not interpolate across; sizes that locate it: 18432,20480,",
        "npubench comm run --db db --host rehearsal --ops all_reduce --ranks 16 --tiers 1 --dtypes float16 --sizes 18432,20480,",
        "small messages: ring — ring off by",
        "of the link's peak of 196.0 GB/s",
    ] {
        plain.out_has(expected);
    }
    let image = context.read("images/hcom_allReduce_.svg");
    assert_eq!(image.matches("class=\"segment\"").count(), 12);
    assert_eq!(image.matches("class=\"band\"").count(), 12);
    assert_eq!(image.matches("class=\"peak\"").count(), 4);
    assert_eq!(image.matches("<circle").count(), 92);
    assert!(!image.contains("NaN") && !image.contains("inf"), "a coordinate is no number");
}

/// A validator that finds no rows must not pass, and both sides count the same bytes.
#[test]
fn rows_are_compared_with_the_model_of_a_profile() {
    let context = Context::new();
    write_planted(&context, 0.0);
    let none = context.exits(3, "comm validate broadcast --db db");
    none.err_has("`ROOT/db` has no measured row of broadcast");
    let wrong = context.run("comm validate allreduce --db db");
    assert!(wrong.code == 3 && wrong.stderr.contains("did you mean `all_reduce`?"), "{}", wrong.stderr);
    // 65536 bytes over 16 ranks of tier 1 take 4.955 us by the model.
    let header = "message_bytes,num_devices,dtype,topology_tier,Duration(us),bandwidth_gbps\n";
    let write = |name: &str, rows: &str| {
        fs::write(context.path("db").join(name), format!("{header}{rows}")).expect("written");
    };
    write(
        "hcom_allReduce_.csv",
        "65536,16,DT_FP16,1,4.96,1\n65536,16,BF16,1,15,1\n65536,16,FLOAT,1,40,1\n65536,16,INT8,2,40,1\n65536,16,INT8,,40,1\n",
    );
    write("hcom_reduceScatter_.csv", "655360,16,FLOAT16,1,73.65,1\n");
    let ran = context.exits(1, "comm validate --db db --format json");
    let rows: Vec<serde_json::Value> = ran.json();
    let verdict = |dtype: &str, tier: Option<u64>| {
        let row = rows.iter().find(|row| row["dtype"] == dtype && row["tier"].as_u64() == tier);
        row.expect("a row")["verdict"].text().to_owned()
    };
    assert_eq!(verdict("FLOAT16", Some(1)), "pass");
    assert_eq!(verdict("DT_BF16", Some(1)), "warn");
    assert_eq!(verdict("FLOAT", Some(1)), "fail");
    assert_eq!(verdict("INT8", None), "no_model");
    let scatter = rows.iter().find(|row| row["collective"] == "reduce_scatter").expect("a row");
    assert!((scatter["ratio"].float() - 1.0).abs() < 0.001, "{scatter}");
    ran.err_has("without a verdict: other tools wrote them");
    let loose = context.done("comm validate --db db --tolerance 10");
    loose.out_has("0 FAIL, 1 without a model, by ATLAS_800_A3_752T_128G_DIE");
    let unknown = context.exits(3, "comm validate --db db --device ATLAS_800_A2_280T_32G_PCIE");
    unknown.err_has("nothing is validated");
    assert_eq!(context.run("comm validate --db db --tolerance 1").code, 2);
}

/// The sample of the vendor's manual, of a version whose GB are 2^30 bytes.
#[test]
fn the_output_in_the_vendors_manual_is_imported() {
    let Some(sample) = shared("real/text/execution.md.all_reduce_8npu.txt") else { return };
    let context = Context::new();
    let file = sample.to_str().expect("UTF-8");
    let device = "ATLAS_800_A2_376T_64G";
    context.done(&[
        "comm",
        "import",
        file,
        "--db",
        "db",
        "--collective",
        "all_reduce",
        "--devices",
        "0-7",
        "--dtype",
        "fp32",
        "--device",
        device,
    ]);
    let rows = context.rows("db", "hcom_allReduce_");
    assert_eq!(rows.len(), 14);
    let last = &rows[13];
    assert_eq!((last["message_bytes"].as_str(), last["Duration(us)"].as_str()), ("67108864", "2630.200000"));
    assert_eq!((last["topology_tier"].as_str(), last["dtype"].as_str()), ("1", "FLOAT"));
    // 67108864 bytes in 2630.2 us, in 10^9 bytes.
    assert_eq!(last["Algorithm Bandwidth(GB/s)"], "25.514738");
    let fit = context.run("comm fit --db db");
    assert!(
        fit.code == 0 && fit.stdout.contains("all_reduce 8 ranks tier 1 FLOAT"),
        "{}{}",
        fit.stdout,
        fit.stderr
    );
}
