//! `npubench ingest` on profiles made up for the purpose.

use std::{fs, process::Stdio};

use crate::prelude::*;

#[test]
fn groups_have_average_median_and_sample_deviation() {
    let context = Context::new();
    let again = |duration: &str| SWIGLU.replacen("59.730", duration, 1);
    let (first, second, third) = (again("10.000"), again("20.000"), again("60.000"));
    context.write("k.csv", &profile(&[&first, &second, ADD, &third]));
    let ran = context.done("ingest k.csv --db db");
    assert_eq!(ran.stdout, "4 records of 1 file in db: 2 kernels, 2 rows added, 0 updated, 0 unchanged\n");
    let rows = context.rows("db", "SwiGlu");
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0]["Profiling Average Duration(us)"], "30.000000");
    assert_eq!(rows[0]["Profiling Median Duration(us)"], "20.000000");
    // The sample deviation of 10, 20, 60: the root of (400 + 100 + 900) / 2.
    assert_eq!(rows[0]["Profiling Std Duration(us)"], "26.457513");
    assert_eq!(rows[0]["Average Duration(us)"], "", "nothing was replayed");
    assert_eq!(rows[0]["Input Shapes"], "\"512,6144\"");
    assert_eq!(context.rows("db", "Add")[0]["Profiling Std Duration(us)"], "", "one record has no deviation");
}

/// A lookup takes the first of several fitting rows, so that the order of the profile decides.
#[test]
fn rows_have_the_order_of_the_profile() {
    let context = Context::new();
    let record = |length: u64| format!("Neg,2.5,\"\"\"{length}\"\"\",FLOAT,ND,\"\"\"{length}\"\"\",FLOAT,ND");
    let lengths = [900, 20, 4000, 20, 1000, 900, 8];
    let records = lengths.map(record);
    context.ingest_records("db", &records.each_ref().map(String::as_str), &[]);
    let rows = context.rows("db", "Neg");
    let shapes: Vec<&str> = rows.iter().map(|row| row["Input Shapes"].as_str()).collect();
    assert_eq!(shapes, ["\"900\"", "\"20\"", "\"4000\"", "\"1000\"", "\"8\""]);
}

#[test]
fn ingest_of_same_profile_changes_nothing() {
    let context = Context::new();
    context.write("k.csv", &profile(&[SWIGLU, ADD]));
    context.run("ingest k.csv --db db");
    let before = context.snapshot("db");
    let ran = context.run("ingest k.csv --db db");
    assert!(ran.stdout.ends_with("0 rows added, 0 updated, 2 unchanged\n"), "{}", ran.stdout);
    assert_eq!(context.snapshot("db"), before);
}

#[test]
fn concurrent_first_ingests_lose_no_rows() {
    let context = Context::new();
    context.write("k.csv", &profile(&[SWIGLU, ADD]));
    for round in 0..5 {
        let database = format!("db{round}");
        let mut children: Vec<_> = (0..4)
            .map(|_| {
                let mut command = context.command(&["ingest", "k.csv", "--db", &database]);
                command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("npubench runs")
            })
            .collect();
        let done = children.iter_mut().filter_map(|child| child.wait().expect("it ends").code());
        assert!(done.filter(|code| *code == 0).count() >= 1);
        assert_eq!(context.rows(&database, "SwiGlu").len() + context.rows(&database, "Add").len(), 2);
        let names = context.snapshot(&database).len();
        assert_eq!(names, 3, "two tables and database.yaml");
    }
    let drafts =
        fs::read_dir(context.path("")).expect("listed").map(|entry| entry.expect("listed").file_name());
    assert!(drafts.filter(|name| name.to_string_lossy().starts_with('.')).count() == 0, "no draft is left");
}

#[test]
fn ingest_keeps_foreign_columns_and_rows() {
    let context = Context::new();
    context.write("k.csv", &profile(&[SWIGLU]));
    let theirs = "\u{feff}Input Shapes,Input Data Types,Input Formats,Output Shapes,Output Data Types,\
                  Output Formats,Average Duration(us),my note\r\n\
                  \"7,8\",FLOAT,ND,\"7,4\",FLOAT,ND,3.5,\"keep, please\"\r\n\
                  \"\"\"512,6144\"\"\",DT_BF16,ND,\"\"\"512,3072\"\"\",DT_BF16,ND,51,mine\r\n";
    context.write("db/SwiGlu.csv", theirs);
    let ran = context.run("ingest k.csv --db db");
    ran.out_has("0 rows added, 1 updated");
    let text = context.read("db/SwiGlu.csv");
    let lines: Vec<&str> = text.split("\r\n").collect();
    assert!(lines[0].starts_with("\u{feff}Input Shapes,") && lines[0].contains(",my note,Profiling Average"));
    assert!(
        lines[1].starts_with("\"7,8\",FLOAT,ND,\"7,4\",FLOAT,ND,3.5,\"keep, please\",,,"),
        "{}",
        lines[1]
    );
    assert!(lines[2].contains(",51,mine,59.730000,59.730000,,"), "{}", lines[2]);
    let database = context.read("db/database.yaml");
    assert!(database.contains("kind: npu"), "{database}");
}

#[test]
fn ingest_reports_records_left_out() {
    let context = Context::new();
    context.write(
        "k.csv",
        &profile(&[SWIGLU, "MemSet,1.200,N/A,N/A,N/A,N/A,N/A,N/A", &ADD.replacen("2.060", "N/A", 1)]),
    );
    let ran = context.run("ingest k.csv --db db");
    insta::assert_snapshot!(ran.stderr, @r"
    1 record without input shapes is left out: MemSet 1
    1 record without a duration is left out: Add 1
    device ATLAS_800_A3_752T_128G_DIE (given by NPUBENCH_DEVICE)
    1 of 1 kernel can be replayed with all recorded shapes, 100.00 % of the time on AI cores
    next: `npubench doctor --db db`, `npubench plan --db db`, `npubench run --db db`
    ");
    context.done("ingest k.csv --db db --format json");
}

#[test]
fn ingest_refuses_profile_of_other_software() {
    let context = Context::new();
    for (name, cann) in [("old", "8.3.RC1"), ("new", "8.5.0")] {
        context.write(&format!("{name}/ASCEND_PROFILER_OUTPUT/kernel_details.csv"), &profile(&[SWIGLU]));
        let info =
            format!("{{\"cann_version\": \"{cann}\", \"torch_npu_version\": \"2.7.1\", \"rank_id\": 0}}");
        context.write(&format!("{name}/profiler_info_0.json"), &info);
    }
    context.exits(3, "ingest old new --db both");
    assert!(!context.path("both").exists());
    context.done("ingest old --db db");
    let before = context.snapshot("db");
    let other = context.exits(3, "ingest new --db db");
    assert_eq!(context.snapshot("db"), before);
    insta::assert_snapshot!(other.stderr, @"
    error: `ROOT/new/ASCEND_PROFILER_OUTPUT/kernel_details.csv` was recorded with CANN 8.5.0, torch_npu 2.7.1, `db` with CANN 8.3.RC1, torch_npu 2.7.1
    hint: keep one database per software stack, or merge them with `--mix-stacks`
    ");
    context.write("k.csv", &profile(&[ADD]));
    context.done("ingest k.csv --db db");
    context.done("ingest new --db db --mix-stacks");
    let file = context.read("db/database.yaml");
    assert!(file.contains("cann: 8.3.RC1"), "nothing changed, so nothing is written: {file}");
}

#[test]
fn ingest_counts_profile_in_several_forms_once() {
    let context = Context::new();
    let output = "t/a_ascend_pt/ASCEND_PROFILER_OUTPUT";
    let csv = format!("{output}/kernel_details.csv");
    context.write(&csv, &profile(&[SWIGLU, ADD]));
    let summary = "t/a_ascend_pt/PROF_1/mindstudio_profiler_output/op_summary_20260101000000.csv";
    context.write(summary, &profile(&[SWIGLU, ADD]));
    let dotted = format!("./t/../{csv}");
    std::os::unix::fs::symlink(context.path("t"), context.path("link")).expect("linked");
    let linked = "link/a_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv";
    for (number, more) in [csv.as_str(), &dotted, linked, "link", output, summary].into_iter().enumerate() {
        let database = format!("db{number}");
        let ran = context.run(&["ingest", "t", more, "--db", &database]);
        assert!(ran.stdout.starts_with("2 records of 1 file in "), "{more}: {}{}", ran.stdout, ran.stderr);
        let message = if more == summary {
            format!("`{summary}` is left out: `ROOT/{csv}` is an export of the same profile\n")
        } else {
            String::new()
        };
        let device = "device ATLAS_800_A3_752T_128G_DIE (given by NPUBENCH_DEVICE)\n";
        let replayable =
            "2 of 2 kernels can be replayed with all recorded shapes, 100.00 % of the time on AI cores\n";
        assert!(ran.stderr.starts_with(&format!("{message}{device}{replayable}next: ")), "{}", ran.stderr);
        let given_first = context.run(&["ingest", more, "t", "--db", &database]);
        given_first.out_has(" 0 rows added, 0 updated");
    }
}

/// The folder of a user holds the profile and the database, whose runs contain the profiles of replays.
#[test]
fn replays_below_a_database_are_no_production_profiles() {
    let context = Context::new();
    let profile = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/decoder-layer/kernel_details.csv");
    context.write("profile/kernel_details.csv", &fs::read_to_string(profile).expect("it ships"));
    let ingest =
        |path: &str, database: &str| context.run(&["ingest", path, "--db", database, "--kind", "rehearsal"]);
    assert_eq!(ingest("profile", "db").code, 0);
    assert_eq!(ingest("profile", "alone").code, 0);
    context.done("run --db db --host rehearsal --devices 0-1");
    // A tree with a database gives the rows of the profile alone.
    ingest(".", "new").ended(0);
    let rows = |database: &str| -> Vec<_> {
        context
            .snapshot(database)
            .into_iter()
            .map(|(path, text)| (path.file_name().map(ToOwned::to_owned), text))
            .collect()
    };
    assert_eq!(rows("new"), rows("alone"));
    for path in ["db", "db/.npubench", "db/.npubench/runs"] {
        let before = context.snapshot("alone");
        let ran = ingest(path, "alone");
        assert_eq!(
            (ran.code, ran.stderr.contains("belongs to a database")),
            (3, true),
            "{path}: {}",
            ran.stderr
        );
        assert_eq!(context.snapshot("alone"), before);
    }
}

#[test]
fn profile_with_a_column_twice_is_refused() {
    let context = Context::new();
    let text = profile(&[SWIGLU]);
    let (header, rows) = text.split_once('\n').expect("a header");
    context.write("k.csv", &format!("{header},Duration(us)\n{},1.5\n", rows.trim_end()));
    let ran = context.exits(3, "ingest k.csv --db db");
    insta::assert_snapshot!(ran.stderr, @"
    error: `ROOT/k.csv` has the column `Duration(us)` twice
    hint: export the profile again, or remove the wrong column
    ");
}
