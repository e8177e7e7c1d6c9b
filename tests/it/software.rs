//! Software of results: samples of different software are never pooled, and a measurement after an upgrade starts a new
//! generation of evidence. Upgrades are rehearsed by fault plans with other versions.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
};

use rusqlite::Connection;

use crate::context::{Context, Ran, SWIGLU, profile};

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

/// A CANN that is replaced while a collection runs: its samples are of no known software, and those of later collections
/// are of the new one.
#[test]
fn upgrade_during_a_run_starts_a_new_generation_and_is_stated() {
    let context = Context::new();
    context.small_database("db");
    let wrapper = "#!/bin/sh\n\
        # Programs of collections run in .npubench/runs/RUN/collections/NUMBER.\n\
        for file in ../../host/Ascend/ascend-toolkit/latest/*/ascend_toolkit_install.info; do\n\
            if [ \"$1\" = replay.py ] && [ -f \"$file\" ]; then sed -i s/^version=.*/version=9.9.9/ \"$file\"; fi\n\
        done\n\
        exec python3 \"$@\"\n";
    let python = context.write("bin/python3-wrapper", wrapper);
    fs::set_permissions(&python, Permissions::from_mode(0o755)).expect("executable");
    let python = python.to_string_lossy();
    let run = ["run", "--db", "db", "--host", "rehearsal", "--devices", "0", "--python", &python];
    let ran = context.run(&run);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    let verdicts: Vec<String> = context.query("SELECT DISTINCT verdict FROM attempts ORDER BY attempt");
    assert_eq!(verdicts, ["implausible", "ok"]);
    let reasons: Vec<String> =
        context.query("SELECT DISTINCT reason FROM attempts WHERE verdict = 'implausible'");
    let changed = "the software of the host changed while the collection ran: CANN 9.9.9, not 0+rehearsal";
    assert_eq!(reasons, [changed]);
    let row = context.rows("db", "Add").remove(0);
    assert!(row["MicroBench Software"].starts_with("CANN 9.9.9, "), "{}", row["MicroBench Software"]);
    assert!(
        row["MicroBench Reason"]
            .contains("without a selftest of the software that replaced another during the run"),
        "{}",
        row["MicroBench Reason"]
    );
}
