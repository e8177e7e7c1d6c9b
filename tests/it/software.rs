//! Software of results: samples of different software are never pooled, and a measurement after an upgrade starts a new
//! generation of evidence. Upgrades are rehearsed by fault plans with other versions.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
};

use rusqlite::Connection;

use crate::prelude::*;

impl Context {
    /// Runs `npubench run` on a rehearsal host with the given versions, as the entry `software:` of a fault plan.
    fn run_with_software(&self, software: &str, more: &[&str]) -> Ran {
        let plan = self.write("host.yaml", &format!("software: {{{software}}}\n"));
        let plan = plan.to_string_lossy().into_owned();
        let command =
            ["run", "--db", "db", "--host", "rehearsal", "--devices", "0", "--rehearsal-faults", &plan];
        self.run(&(&command, more)).ended(0)
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
    ran.err_has(note);
    assert_eq!(row(&context), pooled);

    // New samples replace 40 earlier ones of another CANN, which stay in the ledger.
    let ran = context.run_with_software("cann: 8.5.0, torch: 2.7.1", &["--update", "all"]);
    let note = "2 cases were measured with CANN 8.3.RC1, not 8.5.0: new samples are not pooled with them";
    ran.err_has(note);
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
    ran.err_lacks("were measured with");
    assert_eq!(row(&context), upgraded);
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
    context.done(&run);
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
