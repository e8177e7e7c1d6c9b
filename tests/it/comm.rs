//! `comm`: groups of devices for collectives, fits of sweeps, their comparison with a model, results of other benchmarks.

use std::fs;

use crate::{context::Context, requirements::shared};

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
    let ran = context.run(&["comm", "fit", "all_reduce", "--db", "db", "--format", "json"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let lines: Vec<serde_json::Value> =
        ran.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines.len(), 5, "four numbers of ranks, one comparison");
    let whole = &lines[3];
    assert_eq!((&whole["ranks"], &whole["collective"]), (&16.into(), &"all_reduce".into()));
    let changes = whole["changes"].as_array().expect("changes");
    let places: Vec<(u64, u64)> = changes
        .iter()
        .map(|change| {
            (change["before"].as_u64().expect("a size"), change["behind"].as_u64().expect("a size"))
        })
        .collect();
    assert_eq!(places, [(1 << 15, 1 << 16), (1 << 21, 1 << 22)]);
    assert!(changes[0]["discontinuity"] == true && changes[0]["located"] == false, "{}", changes[0]);
    assert!(changes[0]["refining_sizes"].as_array().expect("sizes").contains(&40_960.into()));
    for (line, (alpha, gigabytes)) in
        whole["lines"].as_array().expect("lines").iter().zip([(12.0, 20.0), (22.0, 70.0), (60.0, 170.0)])
    {
        let latency = line["latency_us"].as_f64().expect("a number");
        assert!((latency / alpha - 1.0).abs() < 0.05, "{line}");
        // The bandwidth of the first regime is known to its interval only.
        let interval = line["algbw_ci95_gb_per_s"].as_array().expect("an interval");
        assert!(interval[0].as_f64().expect("low") <= gigabytes, "{line}");
        assert!(interval[1].as_f64().is_none_or(|high| high >= gigabytes), "{line}");
    }
    // 512 MiB: bus bandwidth of 30/16 times the algorithm bandwidth.
    let last = whole["points"].as_array().expect("points").last().expect("a point");
    let ratio = last["busbw_gb_per_s"].as_f64().expect("bus") / last["algbw_gb_per_s"].as_f64().expect("alg");
    assert!((ratio - 1.875).abs() < 1e-9, "{last}");
    assert_eq!(whole["link_peak_gb_per_s"], 196.0);
    let scaling = &lines[4]["scaling"];
    assert_eq!(scaling["small_messages"]["algorithm"], "ring", "{scaling}");
    assert_eq!(scaling["large_messages"]["algorithm"], "ring", "{scaling}");

    fs::create_dir(context.path("images")).expect("a folder");
    let plain = context.run(&["comm", "fit", "--db", "db", "--svg", "images"]);
    assert_eq!(plain.code, 0, "{}", plain.stderr);
    for expected in [
        "all_reduce 16 ranks tier 1 FLOAT16",
        "change between 32K and 64K (by fit), +",
        "do not interpolate across; sizes that locate it: 18432,20480,",
        "npubench comm run --db db --host rehearsal --ops all_reduce --ranks 16 --tiers 1 --dtypes float16 --sizes 18432,20480,",
        "small messages: ring — ring off by",
        "of the link's peak of 196.0 GB/s",
    ] {
        assert!(plain.stdout.contains(expected), "{expected}\n{}", plain.stdout);
    }
    let image = fs::read_to_string(context.path("images/hcom_allReduce_.svg")).expect("an image");
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
    let none = context.run(&["comm", "validate", "broadcast", "--db", "db"]);
    assert_eq!(none.code, 3, "{}", none.stdout);
    assert!(none.stderr.contains("`ROOT/db` has no measured row of broadcast"), "{}", none.stderr);
    let wrong = context.run(&["comm", "validate", "allreduce", "--db", "db"]);
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
    let ran = context.run(&["comm", "validate", "--db", "db", "--format", "json"]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    let rows: Vec<serde_json::Value> =
        ran.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let verdict = |dtype: &str, tier: Option<u64>| {
        let row = rows.iter().find(|row| row["dtype"] == dtype && row["tier"].as_u64() == tier);
        row.expect("a row")["verdict"].as_str().expect("a verdict").to_owned()
    };
    assert_eq!(verdict("FLOAT16", Some(1)), "pass");
    assert_eq!(verdict("DT_BF16", Some(1)), "warn");
    assert_eq!(verdict("FLOAT", Some(1)), "fail");
    assert_eq!(verdict("INT8", None), "no_model");
    let scatter = rows.iter().find(|row| row["collective"] == "reduce_scatter").expect("a row");
    assert!((scatter["ratio"].as_f64().expect("a ratio") - 1.0).abs() < 0.001, "{scatter}");
    assert!(ran.stderr.contains("without a verdict: other tools wrote them"), "{}", ran.stderr);
    let loose = context.run(&["comm", "validate", "--db", "db", "--tolerance", "10"]);
    assert_eq!(loose.code, 0, "{}{}", loose.stdout, loose.stderr);
    assert!(
        loose.stdout.contains("0 FAIL, 1 without a model, by ATLAS_800_A3_752T_128G_DIE"),
        "{}",
        loose.stdout
    );
    let unknown = context.run(&["comm", "validate", "--db", "db", "--device", "ATLAS_800_A2_280T_32G_PCIE"]);
    assert_eq!(unknown.code, 3, "{}", unknown.stdout);
    assert!(unknown.stderr.contains("nothing is validated"), "{}", unknown.stderr);
    assert_eq!(context.run(&["comm", "validate", "--db", "db", "--tolerance", "1"]).code, 2);
}

/// Results of other benchmarks become rows with their source, and never replace a measurement.
#[test]
fn results_of_other_benchmarks_are_imported() {
    let context = Context::new();
    let table = "data_size(Bytes): | aveg_time(us): | alg_bandwidth(GB/s): | check_result:\n";
    let rows = "1048576 | 100.00 | 10.48576 | success\n2097152 | 150.00 | 13.98101 | failed\n4194304 | 250.00 | 16.77722 | success\n";
    context.write("gather.txt", &format!("{table}{rows}"));
    let import = |arguments: &[&str]| {
        context.run(
            &[&["comm", "import", "gather.txt", "--db", "db", "--collective", "all_gather"], arguments]
                .concat(),
        )
    };
    let device = ["--device", "ATLAS_800_A3_752T_128G_DIE"];
    let unknown = import(&["--devices", "0-7", "--dtype", "bf16"]);
    assert!(
        unknown.code == 3 && unknown.stderr.contains("the device of the new database"),
        "{}",
        unknown.stderr
    );
    let untyped = import(&[&["--devices", "0-7"][..], &device].concat());
    assert!(
        untyped.code == 3 && untyped.stderr.contains("gather.txt:2: hccl_test does not print"),
        "{}",
        untyped.stderr
    );
    assert!(!context.path("db").exists(), "a refused import creates nothing");
    let ran = import(&[&["--devices", "0-7", "--dtype", "bf16"][..], &device].concat());
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (0, "2 rows added, 0 updated, 0 unchanged, 0 keep their own measurement\n"),
        "{}",
        ran.stderr
    );
    assert!(ran.stderr.contains("wrong results left out: 2097152 bytes"), "{}", ran.stderr);
    let rows = context.rows("db", "hcom_allGather_");
    let cell = |row: usize, column: &str| rows[row][column].clone();
    // The printed size is that of all ranks; the table has that of one.
    assert_eq!(
        (cell(0, "message_bytes"), cell(0, "num_devices"), cell(0, "topology_tier")),
        ("131072".to_owned(), "8".to_owned(), "1".to_owned())
    );
    assert_eq!(
        (cell(0, "Duration(us)"), cell(0, "dtype"), cell(0, "Imported From")),
        ("100.000000".to_owned(), "DT_BF16".to_owned(), "gather.txt".to_owned())
    );
    assert_eq!(
        (cell(0, "Algorithm Bandwidth(GB/s)"), cell(0, "MicroBench Verdict")),
        ("10.485760".to_owned(), String::new())
    );
    // Variables have the key of a sweep with them: in the order of names, and without defaults.
    for (given, key) in [
        ("HCCL_BUFFSIZE=400;HCCL_ALGO=level0:ring", "HCCL_ALGO=level0:ring;HCCL_BUFFSIZE=400"),
        ("HCCL_BUFFSIZE=200", ""),
    ] {
        let other = context.path("environment");
        let _ = fs::remove_dir_all(&other);
        let mut arguments =
            vec!["comm", "import", "gather.txt", "--db", "environment", "--collective", "all_gather"];
        arguments.extend(["--devices", "0-7", "--dtype", "bf16", "--environment", given]);
        arguments.extend(device);
        assert_eq!(context.run(&arguments).code, 0);
        assert_eq!(context.rows("environment", "hcom_allGather_")[0]["HCCL Environment"], key);
    }
    for (option, value, problem) in [
        ("--environment", "FOO=1", "`FOO` is no variable of HCCL"),
        ("--environment", "ring", "`ring` has no variable, expected NAME=value"),
        ("--tier", "99", "tier 99 does not exist: the grid [48, 8, 2] has the tiers 0 to 2"),
    ] {
        let refused = import(&["--ranks", "8", "--dtype", "bf16", option, value]);
        assert!(refused.code != 0 && refused.stderr.contains(problem), "{}", refused.stderr);
    }
    let again = import(&["--tier", "1", "--ranks", "8", "--dtype", "DT_BF16"]);
    assert_eq!(
        again.stdout, "0 rows added, 0 updated, 2 unchanged, 0 keep their own measurement\n",
        "{}",
        again.stderr
    );
    let checked = context.run(&["db", "check", "db"]);
    assert_eq!(checked.code, 0, "{}{}", checked.stdout, checked.stderr);
    for (arguments, expected) in [
        (&["--tier", "1", "--dtype", "bf16"][..], "the number of ranks is unknown"),
        (&["--tier", "1", "--ranks", "4", "--dtype", "quarter"], "`quarter` is no element type"),
        (&["--devices", "0-1023", "--dtype", "bf16"], "is outside of the grid"),
    ] {
        let ran = import(arguments);
        assert!(ran.code == 3 && ran.stderr.contains(expected), "{arguments:?} {}", ran.stderr);
    }
    let rehearsal = Context::new();
    write_planted(&rehearsal, 0.0);
    rehearsal.write("gather.txt", &format!("{table}1048576 | 100.00 | 10.48576 | success\n"));
    let refused = rehearsal.run(&[
        "comm",
        "import",
        "gather.txt",
        "--db",
        "db",
        "--collective",
        "all_reduce",
        "--devices",
        "0-7",
        "--dtype",
        "bf16",
    ]);
    assert!(refused.code == 3 && refused.stderr.contains("its numbers are simulated"), "{}", refused.stderr);
}

/// The sample of the vendor's manual, of a version whose GB are 2^30 bytes.
#[test]
fn the_output_in_the_vendors_manual_is_imported() {
    let Some(sample) = shared("real/text/execution.md.all_reduce_8npu.txt") else { return };
    let context = Context::new();
    let file = sample.to_str().expect("UTF-8");
    let device = "ATLAS_800_A2_376T_64G";
    let ran = context.run(&[
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
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let rows = context.rows("db", "hcom_allReduce_");
    assert_eq!(rows.len(), 14);
    let last = &rows[13];
    assert_eq!((last["message_bytes"].as_str(), last["Duration(us)"].as_str()), ("67108864", "2630.200000"));
    assert_eq!((last["topology_tier"].as_str(), last["dtype"].as_str()), ("1", "FLOAT"));
    // 67108864 bytes in 2630.2 us, in 10^9 bytes.
    assert_eq!(last["Algorithm Bandwidth(GB/s)"], "25.514738");
    let fit = context.run(&["comm", "fit", "--db", "db"]);
    assert!(
        fit.code == 0 && fit.stdout.contains("all_reduce 8 ranks tier 1 FLOAT"),
        "{}{}",
        fit.stdout,
        fit.stderr
    );
}
