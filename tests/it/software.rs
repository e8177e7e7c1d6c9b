//! Software of results: samples of different software are never pooled, and a measurement after an upgrade starts a new
//! generation of evidence. Upgrades are rehearsed by fault plans with other versions.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
};

use rusqlite::Connection;

use crate::{
    context::{Context, Ran, SWIGLU, profile},
    equal_kernels::ingested,
};

impl Context {
    /// Runs `npubench run` on a rehearsal host with the given versions, as the entry `software:` of a fault plan.
    fn run_with_software(&self, software: &str, more: &[&str]) -> Ran {
        let plan = self.write("host.yaml", &format!("software: {{{software}}}\n"));
        let plan = plan.to_string_lossy().into_owned();
        let command =
            ["run", "--db", "db", "--host", "rehearsal", "--devices", "0", "--rehearsal-faults", &plan];
        let ran = self.run(&[&command, more].concat());
        assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
        ran
    }

    fn query<T: rusqlite::types::FromSql>(&self, sql: &str) -> Vec<T> {
        let ledger = Connection::open(self.path("db/.npubench/ledger.db")).expect("the ledger");
        let mut statement = ledger.prepare(sql).expect("valid SQL");
        let rows = statement.query_map([], |row| row.get(0)).expect("a query");
        rows.map(|row| row.expect("a row")).collect()
    }
}

#[test]
fn measurement_after_an_upgrade_starts_a_new_generation() {
    let context = Context::new();
    context.small_database("db");
    context.run_with_software("cann: 8.3.RC1, torch: 2.7.1", &[]);
    let row = |context: &Context| context.rows("db", "Add").remove(0);
    let before = row(&context);
    assert_eq!(before["MicroBench Samples"], "20");
    assert!(before["MicroBench Software"].starts_with("CANN 8.3.RC1, "), "{}", before["MicroBench Software"]);
    assert!(before["MicroBench Software"].contains("torch 2.7.1, "), "{}", before["MicroBench Software"]);

    // The same software: samples are pooled.
    context.run_with_software("cann: 8.3.RC1, torch: 2.7.1", &["--update", "all"]);
    assert_eq!(row(&context)["MicroBench Samples"], "40");
    assert_eq!(row(&context)["MicroBench Software"], before["MicroBench Software"]);

    // After an upgrade, results are kept and reported.
    let pooled = row(&context);
    let ran = context.run_with_software("cann: 8.5.0, torch: 2.7.1", &[]);
    let note = "2 cases were measured with CANN 8.3.RC1, not 8.5.0: these results are kept, `--update all` measures \
                the cases again";
    assert!(ran.stderr.contains(note), "{}", ran.stderr);
    assert_eq!(row(&context), pooled);

    // New samples replace 40 earlier ones of another CANN, which stay in the ledger.
    let ran = context.run_with_software("cann: 8.5.0, torch: 2.7.1", &["--update", "all"]);
    let note = "2 cases were measured with CANN 8.3.RC1, not 8.5.0: new samples are not pooled with them";
    assert!(ran.stderr.contains(note), "{}", ran.stderr);
    let upgraded = row(&context);
    assert_eq!(upgraded["MicroBench Samples"], "20");
    assert!(
        upgraded["MicroBench Software"].starts_with("CANN 8.5.0, "),
        "{}",
        upgraded["MicroBench Software"]
    );
    let versions: Vec<String> =
        context.query("SELECT fingerprint ->> 'cann' FROM software ORDER BY fingerprint ->> 'cann'");
    assert_eq!(versions, ["8.3.RC1", "8.5.0"]);
    let counts: Vec<i64> =
        context.query("SELECT count(*) FROM attempts JOIN collections USING (collection) GROUP BY software");
    assert_eq!(
        {
            let mut counts = counts;
            counts.sort_unstable();
            counts
        },
        [2, 4]
    );

    let ran = context.run_with_software("cann: 8.5.0, torch: 2.7.1", &[]);
    assert!(!ran.stderr.contains("were measured with"), "{}", ran.stderr);
    assert_eq!(row(&context), upgraded);
}

#[test]
fn other_versions_of_imported_modules_are_reported_after_a_run() {
    let context = Context::new();
    context.small_database("db");
    context.run_with_software("torch: 2.7.1", &[]);
    context.write("more.csv", &profile(&[&SWIGLU.replace("512,", "1024,")]));
    assert_eq!(context.run(&["ingest", "more.csv", "--db", "db"]).code, 0);
    let ran = context.run_with_software("torch: 2.9.0, vllm_ascend: 0.11.0", &[]);
    assert!(
        ran.stderr.contains(
            "2 cases were measured with torch 2.7.1, not 2.9.0; vllm_ascend unknown, not 0.11.0: these results are kept"
        ),
        "{}",
        ran.stderr
    );
    let software: Vec<String> =
        context.rows("db", "SwiGlu").into_iter().map(|row| row["MicroBench Software"].clone()).collect();
    assert!(
        software[0].contains("torch 2.7.1") && software[1].contains("vllm_ascend 0.11.0"),
        "{software:?}"
    );
}

/// Results of a ledger without recorded software are kept, reported, and not pooled with new ones.
#[test]
fn results_of_unknown_software_are_a_generation_of_their_own() {
    let context = Context::new();
    context.small_database("db");
    context.run_with_software("cann: 8.5.0", &[]);
    let ledger = Connection::open(context.path("db/.npubench/ledger.db")).expect("the ledger");
    ledger.execute_batch("UPDATE collections SET software = NULL; DELETE FROM software").expect("removed");
    drop(ledger);
    let ran = context.run_with_software("cann: 8.5.0", &[]);
    assert!(
        ran.stderr.contains("2 cases were measured with an unknown version of the software"),
        "{}",
        ran.stderr
    );
    context.run_with_software("cann: 8.5.0", &["--update", "all"]);
    assert_eq!(context.rows("db", "Add")[0]["MicroBench Samples"], "20");
    assert_eq!(context.query::<i64>("SELECT count(*) FROM attempts"), [4]);
}

#[test]
fn version_with_other_characters_is_refused() {
    let context = Context::new();
    context.small_database("db");
    let plan = context.write("host.yaml", "speed: 2\nsoftware:\n  cann: 8.5.0\n  torch: \"2.7\\\"\"\n");
    let plan = plan.to_string_lossy().into_owned();
    let ran = context.run(&["run", "--db", "db", "--host", "rehearsal", "--rehearsal-faults", &plan]);
    assert_eq!(ran.code, 3, "{}", ran.stderr);
    assert!(ran.stderr.contains("host.yaml:4:10"), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("`torch` is \"2.7\\\"\", expected a version such as 8.5.0"),
        "{}",
        ran.stderr
    );
}

/// Creates a Python interpreter that replaces the CANN of its host by 9.9.9 while a collection runs; returns its path.
fn python_that_replaces_cann(context: &Context) -> String {
    let wrapper = "#!/bin/sh\n\
        # Programs of collections run in .npubench/runs/RUN/collections/NUMBER.\n\
        for file in ../../host/Ascend/ascend-toolkit/latest/*/ascend_toolkit_install.info; do\n\
            if [ \"$1\" = replay.py ] && [ -f \"$file\" ]; then sed -i s/^version=.*/version=9.9.9/ \"$file\"; fi\n\
        done\n\
        exec python3 \"$@\"\n";
    let python = context.write("bin/python3-wrapper", wrapper);
    fs::set_permissions(&python, Permissions::from_mode(0o755)).expect("executable");
    python.to_string_lossy().into_owned()
}

const NOT_CHECKED: &str =
    "the software of the host changed during the run, and no selftest has checked the new one";

/// A CANN that is replaced while a collection runs: its samples are of no known software, and those of later collections
/// are of the new one.
#[test]
fn upgrade_during_a_run_starts_a_new_generation_and_is_stated() {
    let context = Context::new();
    context.small_database("db");
    let python = python_that_replaces_cann(&context);
    let run = ["run", "--db", "db", "--host", "rehearsal", "--devices", "0", "--python", &python];
    let ran = context.run(&run);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    let verdicts: Vec<String> = context.query("SELECT DISTINCT verdict FROM attempts ORDER BY attempt");
    assert_eq!(verdicts, ["implausible", "ok"]);
    let reasons: Vec<String> =
        context.query("SELECT DISTINCT cause FROM attempts WHERE verdict = 'implausible'");
    let changed = r#"{"cause":"software_changed","differences":"CANN 9.9.9, not 0+rehearsal"}"#;
    assert_eq!(reasons, [changed]);
    let row = context.rows("db", "Add").remove(0);
    assert!(row["MicroBench Software"].starts_with("CANN 9.9.9, "), "{}", row["MicroBench Software"]);
    assert!(row["MicroBench Reason"].contains(NOT_CHECKED), "{}", row["MicroBench Reason"]);
}

/// The same for a call that runs as another kernel, whose samples are not those of the planned row.
#[test]
fn upgrade_during_a_run_concerns_samples_of_other_kernels() {
    let context = ingested(&[("MatMulV3", "16,512;512,512", "DT_BF16", "16,512")]);
    let python = python_that_replaces_cann(&context);
    let run = ["run", "--db", "db", "--host", "rehearsal", "--devices", "0", "--python", &python];
    let ran = context.run(&run);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    let attempts: Vec<String> = context.query(
        "SELECT kernel || ' ' || verdict FROM attempts JOIN cases USING (case_id) ORDER BY collection, kernel DESC",
    );
    assert_eq!(attempts, ["MatMulV3 implausible", "MatMulV3 ran_as_other", "MatMulV2 ok"]);
    let reasons: Vec<String> =
        context.query("SELECT cause || remarks FROM attempts WHERE verdict = 'implausible'");
    let changed = r#"{"cause":"software_changed","differences":"CANN 9.9.9, not 0+rehearsal"}"#;
    assert_eq!(reasons, [format!(r#"{changed}[{{"cause":"ran_as","kernel":"MatMulV2"}}]"#)]);
    let row = context.rows("db", "MatMulV2").remove(0);
    assert_eq!(row["MicroBench Samples"], "20");
    assert!(row["MicroBench Software"].starts_with("CANN 9.9.9, "), "{}", row["MicroBench Software"]);
    assert!(row["MicroBench Reason"].contains(NOT_CHECKED), "{}", row["MicroBench Reason"]);
}

/// After an upgrade a call runs as another kernel: the row keeps the numbers of the earlier software and states it, and no
/// run recommends to measure it again. The rehearsal host chooses by the number of cores, so that another device has to
/// stand for the upgrade.
#[test]
fn row_that_runs_as_another_kernel_after_an_upgrade_keeps_its_numbers() {
    let context = ingested(&[("MatMulV3", "256,11264;11264,256", "DT_BF16", "256,256")]);
    let file = fs::read_to_string(context.path("db/database.yaml")).expect("database.yaml");
    let device = "ATLAS_800_A3_752T_128G_DIE";
    assert!(file.contains(device), "{file}");
    context.write("db/database.yaml", &file.replace(device, "ATLAS_800_A3_560T_128G_DIE"));
    context.run_with_software("cann: 8.3.RC1", &[]);
    let row = |kernel: &str| context.rows("db", kernel).remove(0);
    let before = row("MatMulV3");
    assert_eq!((before["MicroBench Verdict"].as_str(), before["MicroBench Samples"].as_str()), ("ok", "20"));
    context.write("db/database.yaml", &file);
    let ran = context.run_with_software("cann: 8.5.0", &[]);
    assert!(ran.stderr.contains("1 case was measured with CANN 8.3.RC1, not 8.5.0"), "{}", ran.stderr);
    assert_eq!(row("MatMulV3"), before);

    let ran = context.run_with_software("cann: 8.5.0", &["--update", "all"]);
    assert!(ran.stdout.contains("ran_as_other"), "{}", ran.stdout);
    let after = row("MatMulV3");
    let unchanged =
        ["MicroBench Verdict", "Average Duration(us)", "MicroBench Samples", "MicroBench Software"];
    unchanged.iter().for_each(|column| assert_eq!(after[*column], before[*column], "{column}"));
    let remark = "a later attempt with other software ran as MatMulV2";
    assert_eq!(after["MicroBench Reason"], format!("{}; {remark}", before["MicroBench Reason"]));
    assert!(row("MatMulV2")["MicroBench Software"].starts_with("CANN 8.5.0, "), "{:?}", row("MatMulV2"));

    let ran = context.run_with_software("cann: 8.5.0", &[]);
    assert!(!ran.stderr.contains("measured with"), "{}", ran.stderr);
    assert_eq!((ran.stdout.as_str(), row("MatMulV3")), ("", after));
}
