//! Whole runs on the rehearsal host: the rendered scripts really run.

use std::{
    fs,
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};

use crate::prelude::*;

pub(crate) fn rehearse(context: &Context, database: &str, more: &(impl Words + ?Sized)) -> Ran {
    context.run(&(&["run", "--db", database, "--host", "rehearsal", "--rehearsal-model", "steady"], more))
}

/// The CSVs of a database without the column that names the run.
pub(crate) fn tables(context: &Context, database: &str) -> Vec<(PathBuf, Vec<Vec<String>>)> {
    let mut tables = Vec::new();
    for (path, bytes) in context.snapshot(database) {
        if path.extension().is_some_and(|extension| extension == "csv") && path.components().count() == 2 {
            let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(bytes.as_slice());
            let rows: Vec<Vec<String>> =
                reader.records().map(|row| row.expect("a row").iter().map(String::from).collect()).collect();
            let run = rows[0].iter().position(|name| name == "MicroBench Run");
            let keep = |row: &Vec<String>| {
                row.iter()
                    .enumerate()
                    .filter(|(index, _)| Some(*index) != run)
                    .map(|(_, cell)| cell.clone())
                    .collect()
            };
            tables.push((path.file_name().expect("a name").into(), rows.iter().map(keep).collect()));
        }
    }
    tables
}

/// Tables are long; only their first difference is worth reading.
pub(crate) fn assert_same(left: &[(PathBuf, Vec<Vec<String>>)], right: &[(PathBuf, Vec<Vec<String>>)]) {
    assert_eq!(left.len(), right.len());
    for ((file, left), (_, right)) in left.iter().zip(right) {
        assert_eq!(left.len(), right.len(), "{}", file.display());
        for (number, (left, right)) in left.iter().zip(right).enumerate() {
            assert_eq!(left, right, "{} row {number}", file.display());
        }
    }
}

#[test]
fn a_decoder_layer_is_measured_on_four_devices() {
    let context = Context::of_layer();
    let ran = rehearse(&context, "db", "--devices 0-3").ended(0);
    // The numbers depend on the order of the cases on their devices; `shown_numbers` compares them with the rows.
    let (by_kernel, lists) = ran.stdout.split_once("\n\n").expect("two tables");
    insta::with_settings!({ filters => vec![(r" +[+-]?\d+\.\d+", " NUMBER")] }, {
        insta::assert_snapshot!(by_kernel);
    });
    assert!(lists.starts_with("slowest:\n") && lists.contains("\nfarthest from production:\n"), "{lists}");
    let verdicts =
        ledger(&context, "db", "SELECT DISTINCT kind || ' ' || verdict FROM verdicts JOIN runs USING (run)");
    assert_eq!(verdicts, "rehearsal ok");
    let devices = ledger(
        &context,
        "db",
        "SELECT group_concat(device) FROM (SELECT DISTINCT device FROM collections ORDER BY 1)",
    );
    assert_eq!(devices, "0,1,2,3");
    let launches = "SELECT DISTINCT count(*) || ' ' || sum(is_measured) FROM launches GROUP BY attempt";
    assert_eq!(ledger(&context, "db", launches), "25 20");
    for row in context.rows("db", "MatMulV3") {
        let number =
            |column: &str| row[column].parse::<f64>().unwrap_or_else(|_| panic!("{column}: {row:?}"));
        assert!(number("MicroBench CI95 Low(us)") <= number("MicroBench Median Duration(us)"));
        assert!(number("MicroBench Median Duration(us)") <= number("MicroBench CI95 High(us)"));
        assert!(number("MicroBench Min Duration(us)") <= number("Average Duration(us)"));
        assert!(number("MicroBench aic_mac_time(us)") > 0.0, "counters of the same launches");
    }
}

pub(crate) fn ledger(context: &Context, database: &str, sql: &str) -> String {
    let path = context.path(database).join(".npubench/ledger.db");
    let connection = rusqlite::Connection::open(path).expect("a ledger");
    let mut statement = connection.prepare(sql).expect("a query");
    let rows = statement.query_map([], |row| row.get::<_, String>(0)).expect("rows");
    rows.collect::<Result<Vec<_>, _>>().expect("text").join("; ")
}

#[test]
fn measured_rows_are_skipped_unless_update_is_given() {
    let context = Context::of_layer();
    rehearse(&context, "db", "--devices 0-1 --kernels RmsNorm,SwiGlu").ended(0);
    let before = tables(&context, "db");
    let second = rehearse(&context, "db", "--devices 0-1 --kernels RmsNorm,SwiGlu");
    assert_eq!((second.code, second.stdout.as_str()), (0, ""), "{}", second.stderr);
    assert_eq!(tables(&context, "db"), before);
    assert_eq!(ledger(&context, "db", "SELECT count(*) || '' FROM collections"), "2");

    rehearse(&context, "db", "--devices 0-1 --kernels SwiGlu --update all").ended(0);
    let row = &context.rows("db", "SwiGlu")[0];
    assert_eq!((row["MicroBench Samples"].as_str(), row["MicroBench Collections"].as_str()), ("40", "2"));
    let untouched = &context.rows("db", "RmsNorm")[0];
    assert_eq!(untouched["MicroBench Collections"], "1");
    let rest = rehearse(&context, "db", "--devices 0-1");
    assert!(rest.stdout.contains("MatMulV3") && !rest.stdout.contains("SwiGlu"), "{}", rest.stdout);
}

#[test]
fn steady_results_do_not_depend_on_the_number_of_devices() {
    let context = Context::new();
    for (database, devices) in [("one", "5"), ("sixteen", "0-15")] {
        context.decoder_layer(database);
        rehearse(&context, database, &["--devices", devices, "--seed", "7"]).ended(0);
    }
    assert_same(&tables(&context, "one"), &tables(&context, "sixteen"));
    context.decoder_layer("other");
    rehearse(&context, "other", "--devices 5 --seed 8 --kernels SwiGlu").ended(0);
    let medians = |database: &str| -> Vec<String> {
        let rows = context.rows(database, "SwiGlu");
        rows.iter().map(|row| row["MicroBench Median Duration(us)"].clone()).collect()
    };
    assert_ne!(medians("one"), medians("other"), "the seed decides");
}

#[test]
fn second_run_on_the_same_database_is_refused_with_the_first() {
    let context = Context::new();
    context.small_database("db");
    assert_eq!(rehearse(&context, "db", "--devices 0").code, 0);
    let lock = context.path("db/.npubench/lock");
    let held = fs::File::options().read(true).write(true).open(&lock).expect("there");
    fs::write(&lock, "npubench, process 4711 on host\n").expect("written");
    held.try_lock().expect("free");
    let ran = rehearse(&context, "db", "").ended(3);
    insta::assert_snapshot!(ran.stderr, @r"
    error: `ROOT/db` is in use by npubench, process 4711 on host
    hint: wait until it ends, or stop it
    ");
}

/// Starts a run and waits until its first collection is in the ledger.
fn start_run(context: &Context) -> std::process::Child {
    let arguments = "run --db db --host rehearsal --rehearsal-model steady --devices 0";
    let child = context.start(arguments);
    wait_for_a_launch(context);
    child
}

fn wait_for_a_launch(context: &Context) {
    let deadline = Instant::now() + Duration::from_secs(60);
    let replay = |path: &PathBuf| path.ends_with("launched.jsonl");
    while !context.snapshot("db").keys().any(replay) {
        assert!(Instant::now() < deadline, "no collection started");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn signal(child: &std::process::Child, signal: nix::sys::signal::Signal) {
    let pid = nix::unistd::Pid::from_raw(child.id().cast_signed());
    nix::sys::signal::kill(pid, signal).expect("it runs");
}

#[test]
fn ctrl_c_stops_the_run_and_the_same_command_resumes_it() {
    let context = Context::of_layer();
    context.decoder_layer("undisturbed");
    let child = start_run(&context);
    signal(&child, nix::sys::signal::Signal::SIGINT);
    let ran = context.finish(child);
    // With a single collection nothing was left to stop.
    assert!(matches!(ran.code, 0 | 5), "{} {}", ran.code, ran.stderr);
    ran.err_has("stopping: ");
    assert_eq!(rehearse(&context, "db", "--devices 0").code, 0);
    assert_eq!(rehearse(&context, "undisturbed", "--devices 0").code, 0);
    assert_same(&tables(&context, "db"), &tables(&context, "undisturbed"));
}

#[test]
fn a_collection_can_be_started_again_by_hand() {
    let context = Context::new();
    context.small_database("db");
    assert_eq!(rehearse(&context, "db", "--devices 0").code, 0);
    let script =
        context.snapshot("db").into_keys().find(|path| path.ends_with("collect.sh")).expect("a script");
    let folder = context.path(&script.parent().expect("a folder").to_string_lossy());
    let profiles = || fs::read_dir(folder.join("profile")).expect("listed").count();
    let before = profiles();
    let start = |until: Option<&str>| {
        let mut command = Command::new("sh");
        command.arg(context.path(&script.to_string_lossy()));
        let output = command.envs(until.map(|until| ("NPUBENCH_LAUNCH_UNTIL", until))).output();
        let output = output.expect("sh runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        fs::read_to_string(folder.join("launched.jsonl")).expect("a journal")
    };
    assert!(start(None).contains(r#"{"done": true, "in_time": true}"#));
    assert_eq!(profiles(), before + 1);
    let is_summary = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("op_summary"))
    };
    // Its time is over: no case begins, and the profile is exported nevertheless.
    for until in ["[1.5, null]", "[9e18, 1.5]"] {
        let journal = start(Some(until));
        assert!(journal.contains(r#"{"done": true, "in_time": false}"#), "{journal}");
        assert!(!journal.contains("ordinal") && journal.contains(r#""started": true"#), "{journal}");
    }
    let tables = context.snapshot("db").into_keys().filter(|path| is_summary(path));
    assert_eq!((profiles(), tables.count()), (before + 3, before + 3));
}

#[test]
fn rows_keep_their_samples_if_the_ledger_is_lost() {
    let context = Context::new();
    context.small_database("db");
    assert_eq!(rehearse(&context, "db", "--devices 0").code, 0);
    fs::remove_dir_all(context.path("db/.npubench")).expect("as in a clone of the folder");
    let before = tables(&context, "db");
    let ran = rehearse(&context, "db", "--devices 0 --update all --launches 6").ended(0);
    ran.err_has("1 row of SwiGlu keeps results with more samples than the ledger has");
    assert_same(&tables(&context, "db"), &before);
}

#[test]
fn immediate_stop_fails_no_case() {
    let context = Context::of_layer();
    let child = context.start("run --db db --host rehearsal --devices 0-3 --launches 3000");
    wait_for_a_launch(&context);
    signal(&child, nix::sys::signal::Signal::SIGINT);
    // Two signals at once would be one request.
    std::thread::sleep(Duration::from_millis(100));
    signal(&child, nix::sys::signal::Signal::SIGTERM);
    context.finish(child).ended(5);
    let verdicts = ledger(&context, "db", "SELECT DISTINCT verdict FROM verdicts ORDER BY 1");
    assert!(matches!(verdicts.as_str(), "not_run" | "not_run; ok"), "{verdicts}");
}

#[test]
fn stand_ins_pass_their_own_tests() {
    let root = env!("CARGO_MANIFEST_DIR");
    let mut command = Command::new("python3");
    command.args(["-B", &format!("{root}/tests/stand_ins/test_stand_ins.py")]);
    let output =
        command.env("PYTHONPATH", format!("{root}/src/rehearsal/python")).output().expect("Python runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
