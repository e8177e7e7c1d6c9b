//! `reparse`: results of the ledger, assessed again from the artefacts of their collections.

use std::{collections::BTreeMap, fs, io::Write as _, path::PathBuf, process::Stdio, thread, time::Duration};

use rusqlite::Connection;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::prelude::*;

fn reparse(context: &Context, more: &(impl Words + ?Sized)) -> Ran {
    context.run(&("reparse --db db", more))
}

/// Report of a comparison, or of a rewrite with `--write`, and the exit code.
fn report(context: &Context, more: &(impl Words + ?Sized)) -> (i32, Value) {
    let ran = reparse(context, &(more, "--format json"));
    let report = serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {}", ran.stderr));
    (ran.code, report)
}

/// All files of the database but that of its lock, which names its last owner.
fn files(context: &Context) -> BTreeMap<PathBuf, Vec<u8>> {
    context.snapshot("db").into_iter().filter(|(path, _)| !path.ends_with(".npubench/lock")).collect()
}

/// Content of the ledger: attempts with their launches, and verdicts.
fn content(context: &Context) -> Vec<String> {
    let ledger = ledger(context).expect("a ledger");
    let read = |sql: &str| -> Vec<String> {
        let mut statement = ledger.prepare(sql).expect(sql);
        let columns = statement.column_count();
        let rows = statement.query_map([], |row| {
            let cells = (0..columns).map(|column| format!("{:?}", row.get_ref(column)));
            Ok(cells.collect::<Vec<_>>().join("|"))
        });
        rows.expect(sql).map(|row| row.expect(sql)).collect()
    };
    let tables = ["attempts", "launches", "verdicts", "collections", "cases", "runs"];
    tables.iter().flat_map(|table| read(&format!("SELECT * FROM {table} ORDER BY 1, 2"))).collect()
}

fn change(context: &Context, sql: &str) {
    ledger(context).expect("a ledger").execute_batch(sql).expect(sql);
}

fn differences(report: &Value) -> Vec<(String, String, String)> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let listed = report["differences"].list().iter();
    let mut found: Vec<_> = listed
        .map(|found| {
            let differs = found["differs"].list().iter().map(text);
            (text(&found["case"]), text(&found["collection"]), differs.collect::<Vec<_>>().join(" "))
        })
        .collect();
    found.sort();
    found
}

#[test]
fn artefacts_give_the_results_of_the_ledger() {
    let context = Context::of_measured_layer();
    let before = (files(&context), content(&context));
    let (code, compared) = report(&context, "");
    assert_eq!(code, 0, "{compared}");
    assert_eq!(compared["attempts"], 20, "{compared}");
    assert_eq!(compared["differences"], serde_json::json!([]), "{compared}");
    assert_eq!(compared["written"], Value::Null);
    assert!(files(&context) == before.0, "a comparison writes nothing");
    let ran = reparse(&context, "last --write").ended(0);
    assert!(ran.stdout.ends_with("replaced 0 attempts in the ledger; wrote 0 rows\n"), "{}", ran.stdout);
    assert_eq!(content(&context), before.1);
    assert!(files(&context) == before.0, "nothing differs, so that nothing is written");
}

/// Attempts that a low clock withdrew are not accepted again, although their own collection does not show it.
#[test]
fn attempts_withdrawn_for_a_low_clock_stay_withdrawn() {
    let context = Context::of_layer();
    context.write("plan.yaml", "faults:\n  - slow_kernels: {factor: 1.3}\n    where: {devices: 1}\n");
    let run = "run --db db --host rehearsal --devices 0-3 --rehearsal-model lifelike";
    let ran = context.run(&(run, "--max-collections 3 --rehearsal-faults plan.yaml")).measured();
    let withdrawn = "SELECT count(*) FROM attempts WHERE is_withdrawn";
    assert!(number(&ledger(&context).expect("a ledger"), withdrawn) > 0, "{}", ran.stderr);
    let before = (context.csv_files(), content(&context));
    let (code, compared) = report(&context, "--write");
    assert_eq!((code, differences(&compared)), (0, Vec::new()), "{compared}");
    assert_eq!(content(&context), before.1);
    // An attempt whose withdrawal was lost is judged again.
    change(
        &context,
        "UPDATE attempts SET verdict = 'ok', cause = json_object('cause', 'recorded', 'text', 'changed'), remarks = '[]', is_withdrawn = 0 WHERE is_withdrawn",
    );
    let (code, written) = report(&context, "--write");
    assert_eq!(code, 0, "{written}");
    assert!(written["written"]["withdrawn"].as_u64() > Some(0), "{written}");
    assert_eq!(report(&context, "").0, 0);
    assert!(context.csv_files() == before.0);
}

#[test]
fn changed_results_are_found_and_restored() {
    let context = Context::of_measured_layer();
    let before = (context.csv_files(), content(&context));
    let cases: Vec<String> = {
        let ledger = ledger(&context).expect("a ledger");
        let mut statement = ledger.prepare("SELECT case_id FROM attempts ORDER BY attempt").expect("a query");
        let rows = statement.query_map([], |row| row.get(0)).expect("attempts");
        rows.map(|row| row.expect("a case")).collect()
    };
    let sql = format!(
        "UPDATE launch_lists SET durations_ns = (SELECT json_group_array(2 * value) FROM json_each(durations_ns))
         WHERE attempt = (SELECT attempt FROM attempts WHERE case_id = '{}');
         UPDATE attempts SET verdict = 'implausible', cause = json_object('cause', 'recorded', 'text', 'changed'), remarks = '[]' WHERE case_id = '{}';
         UPDATE verdicts SET verdict = 'implausible', cause = json_object('cause', 'recorded', 'text', 'changed'), remarks = '[]' WHERE case_id = '{1}';
         UPDATE attempts SET counters = '[1.0]' WHERE case_id = '{}';",
        cases[0], cases[5], cases[9]
    );
    change(&context, &sql);
    // A run writes the rows of the changed ledger.
    context.done(&(STEADY_RUN, "--kernels Sort"));
    assert!(context.csv_files() != before.0, "the rows show the changed ledger");
    let changed = content(&context);
    let (code, compared) = report(&context, "");
    assert_eq!(code, 1, "{compared}");
    // `db check` compares the rows with the ledger, and the ledger with the evidence only if it is told to.
    assert!(!context.run("db check db").stdout.contains("evidence"));
    let checked = context.run("db check db --evidence");
    let mismatches = checked
        .stdout
        .lines()
        .filter(|line| line.contains("/evidence.tar.gz:1: error: ") && line.ends_with("[evidence-mismatch]"));
    assert_eq!((checked.code, mismatches.count()), (1, 3), "{}", checked.stdout);
    let verdict = format!(" {}: the ledger has implausible, 20 x ", cases[5]);
    checked.out_has(&verdict);
    let found: Vec<(String, String)> =
        differences(&compared).into_iter().map(|(case, _, differs)| (case, differs)).collect();
    let mut expected = vec![
        (cases[0].clone(), "samples".to_owned()),
        (cases[5].clone(), "verdict reason".to_owned()),
        (cases[9].clone(), "counters".to_owned()),
    ];
    expected.sort();
    assert_eq!(found, expected);
    let of_verdict = compared["differences"].list().iter();
    let of_verdict = of_verdict.clone().find(|found| found["case"] == *cases[5]).expect("listed");
    assert_eq!(of_verdict["before"]["verdict"], "implausible");
    assert_eq!(of_verdict["after"]["verdict"], "ok");
    assert_eq!(content(&context), changed, "a comparison writes nothing");
    let plain = reparse(&context, "");
    assert!(plain.stdout.contains("20 attempts of") && plain.stdout.contains("3 differ from the ledger"));

    let (code, written) = report(&context, "--write");
    assert_eq!(code, 0, "{written}");
    assert!(context.csv_files() == before.0, "the rows are as they were");
    let restored = content(&context);
    let without_run = |content: &[String]| -> Vec<String> {
        let first = &before.1;
        content.iter().filter(|line| first.contains(line)).cloned().collect()
    };
    assert_eq!(without_run(&restored), before.1, "so is the ledger of the first run");
    let snapshot = files(&context);
    let (code, again) = report(&context, "--write");
    assert_eq!((code, differences(&again)), (0, Vec::new()));
    assert!(files(&context) == snapshot, "the second time changes nothing");
}

fn archives(context: &Context) -> Vec<PathBuf> {
    let is_archive = |path: &PathBuf| path.ends_with("evidence.tar.gz");
    let archives: Vec<PathBuf> = context.snapshot("db").into_keys().filter(is_archive).collect();
    archives.into_iter().map(|path| context.path(&path.to_string_lossy())).collect()
}

/// Raw tables beside an archive may be removed or changed; the archive is the evidence.
#[test]
fn removed_and_changed_archives_are_named_and_their_results_kept() {
    let context = Context::of_layer();
    // A collection on each of four devices, two of which stay as they are.
    let run = [&STEADY_RUN[..6], &["0-3"], &STEADY_RUN[7..]].concat();
    context.done(&run);
    let found = archives(&context);
    assert!(found.len() >= 3, "{found:?}");
    for archive in &found {
        fs::remove_dir_all(archive.with_file_name("profile")).expect("removed");
    }
    assert_eq!(report(&context, "").0, 0);
    let before = context.csv_files();
    fs::remove_file(&found[0]).expect("removed");
    let mut bytes = fs::read(&found[1]).expect("an archive");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&found[1], bytes).expect("written");
    change(
        &context,
        "UPDATE attempts SET cause = json_object('cause', 'recorded', 'text', 'changed'), remarks = '[]'",
    );
    for arguments in [&[][..], &["--write"]] {
        let (code, report) = report(&context, arguments);
        assert_eq!(code, 1, "{report}");
        let left = report["left"].list();
        let problem = |index: usize| left[index]["problem"].text();
        assert_eq!(left.len(), 2, "{report}");
        assert!(problem(0).ends_with("evidence.tar.gz`: removed"), "{report}");
        assert!(problem(1).ends_with("its SHA-256 is not that of the ledger"), "{report}");
    }
    let kept = number(
        &ledger(&context).expect("a ledger"),
        "SELECT count(*) FROM attempts a JOIN collections c USING (collection) WHERE a.cause ->> 'text' = 'changed' AND c.number > 2",
    );
    assert_eq!(kept, 0, "the other collections are restored");
    assert!(context.csv_files().keys().eq(before.keys()));
}

/// Rows without a measurement show nothing from which a later run would see that they are out of date.
#[test]
fn second_call_writes_the_rows_that_a_killed_one_left() {
    let context = Context::of_measured_layer();
    let before = (context.csv_files(), content(&context));
    let damage = "UPDATE attempts SET verdict = 'implausible', cause = json_object('cause', 'recorded', 'text', 'changed'), remarks = '[]';
                  UPDATE verdicts SET verdict = 'implausible', cause = json_object('cause', 'recorded', 'text', 'changed'), remarks = '[]'";
    let changed = "SELECT count(*) FROM attempts WHERE cause ->> 'text' = 'changed'";
    let mut interrupted = 0;
    for kill in 0..10 {
        change(&context, damage);
        for path in before.0.keys() {
            let text = context.read(&path.to_string_lossy());
            fs::write(context.path(&path.to_string_lossy()), without_measurements(&text)).expect("written");
        }
        let is_changing = |ledger: &Connection| count(ledger, changed) == Some(0);
        let was_running = killed_when(&context, "reparse --db db --write", is_changing);
        let is_stale = context.csv_files() != before.0;
        interrupted += u32::from(was_running && is_stale);
        // The ledger of the killed call is complete.
        assert_eq!(report(&context, "").0, 0, "kill {kill}");
        let (code, second) = report(&context, "--write");
        assert_eq!((code, differences(&second)), (0, Vec::new()), "kill {kill}: {second}");
        assert_eq!(content(&context), before.1, "kill {kill}");
        assert!(context.csv_files() == before.0, "kill {kill}: rows are left out of date");
        assert_eq!(second["written"]["rows"].as_u64() > Some(0), is_stale, "kill {kill}: {second}");
        if interrupted == 3 {
            return;
        }
    }
    assert!(interrupted > 0, "each call had written its rows before it was killed");
}

/// A table whose rows show the verdict of `implausible` measurements.
fn without_measurements(table: &str) -> String {
    let mut reader = csv::Reader::from_reader(table.as_bytes());
    let header = reader.headers().expect("a header").clone();
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(&header).expect("written");
    for row in reader.records() {
        let row = row.expect("a row");
        writer
            .write_record(header.iter().zip(&row).map(|(column, cell)| match column {
                "MicroBench Verdict" => "implausible",
                "MicroBench Reason" => "changed",
                "MicroBench Case" | "MicroBench Run" => cell,
                "Average Duration(us)" => "",
                _ if column.starts_with("MicroBench ") => "",
                _ => cell,
            }))
            .expect("written");
    }
    String::from_utf8(writer.into_inner().expect("written")).expect("text")
}

/// Evidence without `conditions.json` cannot be used; unknown runs and a held lock are refused.
#[test]
fn evidence_without_conditions_is_named_and_an_active_run_refused() {
    let context = Context::of_measured_layer();
    reparse(&context, "nothing").ended(3);
    let archive = archives(&context).remove(1);
    let mut builder = tar::Builder::new(Vec::new());
    builder
        .append_path_with_name(archive.with_file_name("manifest.json"), "manifest.json")
        .expect("a manifest");
    let mut compressed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    compressed.write_all(&builder.into_inner().expect("an archive")).expect("compressed");
    let bytes = compressed.finish().expect("compressed");
    fs::write(&archive, &bytes).expect("written");
    let digest: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    change(
        &context,
        &format!(
            "UPDATE collections SET archive = NULL WHERE number = 1;
             UPDATE collections SET archive = '{digest}' WHERE number = 2;"
        ),
    );
    let plain = reparse(&context, "").ended(1);
    plain.out_has("left as it is: collection 1 of run ");
    plain.out_has("the ledger has no SHA-256 of its evidence");
    plain.out_has("evidence.tar.gz` has no conditions.json");

    let run = ["run", "--db", "db", "--host", "rehearsal", "--devices", "0", "--update", "all"];
    let mut command = context.command(&run);
    let child = command.stderr(Stdio::null()).stdout(Stdio::null()).spawn();
    let mut child = child.expect("it runs");
    while number(&ledger(&context).expect("a ledger"), "SELECT count(*) FROM runs") < 2 {
        assert!(child.try_wait().expect("asked").is_none(), "it ended before it started a run");
        thread::sleep(Duration::from_millis(5));
    }
    let refused = reparse(&context, "--write").ended(3);
    refused.err_has("in use");
    assert!(child.wait().expect("ended").success());
}

/// The catalogue of this version states more work, so that the measured time is impossible; or launches another call.
#[test]
fn other_rules_withdraw_a_result_and_other_calls_are_left() {
    let context = Context::of_measured_layer();
    let before = (context.csv_files(), content(&context));
    let entry = |name: &str, from: &str, to: &str| {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/op_replay/SwiGlu.yaml");
        let text = fs::read_to_string(path).expect("an entry");
        assert!(text.contains(from), "{text}");
        context.write(&format!("{name}/op_replay/SwiGlu.yaml"), &text.replace(from, to));
    };
    entry("work", "flops: 3 * B * D", "flops: 3000000 * B * D");
    entry("call", "{constant: -1}", "{constant: 1}");
    let (code, compared) = report(&context, "--assets call");
    assert_eq!((code, differences(&compared)), (1, Vec::new()), "{compared}");
    assert_eq!(compared["left"][0]["problem"], "this version launches another call for it");

    let (code, written) = report(&context, "--assets work --write");
    assert_eq!(code, 0, "{written}");
    let rows = context.rows("db", "SwiGlu");
    let found: Vec<String> = differences(&written).into_iter().map(|(_, _, differs)| differs).collect();
    assert_eq!(
        found,
        vec!["verdict reason samples counters operator task cycles withdrawn"; rows.len()],
        "{written}"
    );
    for row in rows {
        assert_eq!(row["MicroBench Verdict"], "implausible", "{row:?}");
        assert!(row["MicroBench Reason"].contains("roofline"), "{row:?}");
        assert_eq!((row["Average Duration(us)"].as_str(), row["MicroBench Samples"].as_str()), ("", ""));
    }
    assert_eq!(report(&context, "--assets work").0, 0);
    assert_eq!(report(&context, "").0, 1);
    assert_eq!(report(&context, "--write").0, 0);
    assert_eq!(content(&context), before.1);
    assert!(context.csv_files() == before.0);
}
