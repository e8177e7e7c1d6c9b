//! Runs over several hosts: shards of a plan, and the merge of their databases.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use rusqlite::Connection;

use crate::prelude::*;

/// Files of a folder without the lock, which contains the last process.
fn files(context: &Context, folder: &str) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = context.snapshot(folder);
    files.retain(|path, _| !path.ends_with(".npubench/lock"));
    files
}

/// Runs `run` for some kernels of a database under the steady model.
fn measure(context: &Context, database: &str, kernels: &str) {
    let mut arguments = STEADY_RUN.to_vec();
    arguments[2] = database;
    arguments.extend(["--kernels", kernels]);
    context.run(&arguments).ended(0);
}

/// Copies a database folder.
fn copy(context: &Context, from: &str, into: &str) {
    for (path, content) in context.snapshot(from) {
        let rest = path.strip_prefix(from).expect("below");
        let target = context.path(into).join(rest);
        fs::create_dir_all(target.parent().expect("a folder")).expect("created");
        fs::write(target, content).expect("written");
    }
}

fn ledger_of(context: &Context, database: &str) -> PathBuf {
    context.path(database).join(".npubench/ledger.db")
}

fn change(ledger: &Path, sql: &str) {
    Connection::open(ledger).expect("a ledger").execute_batch(sql).expect("changed");
}

fn rename_host(ledger: &Path, name: &str) {
    change(ledger, &format!("UPDATE runs SET host = json_set(host, '$.host', '{name}')"));
}

/// Merges databases and returns the output.
fn merge(context: &Context, into: &str, from: &(impl Words + ?Sized)) -> String {
    let ran = context.done(&(&["db", "merge", into], from));
    ran.stdout
}

#[test]
fn merged_databases_of_two_hosts_have_the_rows_of_one_host_in_any_order() {
    let context = Context::of_layer();
    copy(&context, "db", "single");
    copy(&context, "db", "one");
    copy(&context, "db", "other");
    copy(&context, "db", "reverse");
    measure(&context, "single", "Add,SwiGlu,Mul");
    measure(&context, "one", "Add,Mul");
    measure(&context, "other", "SwiGlu");
    rename_host(&ledger_of(&context, "one"), "node1");
    rename_host(&ledger_of(&context, "other"), "node2");
    let sources = [files(&context, "one"), files(&context, "other")];
    let dry = context.run("db merge db one other --dry-run");
    assert!(dry.code == 0 && dry.stdout.contains("would have 2 runs (2 new)"), "{dry:?}");
    assert!(!ledger_of(&context, "db").exists());
    let text = merge(&context, "db", "one other one/");
    assert!(text.contains("2 runs (2 new)") && text.contains("from 2 ledgers"), "{text}");
    assert!(!text.contains("slower") && !text.contains("faster"), "{text}");
    assert!([files(&context, "one"), files(&context, "other")] == sources, "a source was changed");
    let merged = tables(&context);
    let again = files(&context, "db");
    let text = merge(&context, "db", "other one");
    assert!(text.contains("was not changed") && text.contains("0 rows written"), "{text}");
    assert!(files(&context, "db") == again, "a second merge changed a byte");
    // One after the other, in the other order.
    merge(&context, "reverse", "other");
    merge(&context, "reverse", "one");
    let without_folder = |files: BTreeMap<PathBuf, Vec<u8>>| -> BTreeMap<PathBuf, Vec<u8>> {
        files
            .into_iter()
            .map(|(path, content)| (path.iter().skip(1).collect(), content))
            .filter(|(path, _): &(PathBuf, _)| path.components().count() == 1 || path.ends_with("ledger.db"))
            .collect()
    };
    assert!(without_folder(files(&context, "reverse")) == without_folder(again), "the order changed a byte");
    fs::remove_dir_all(context.path("db")).expect("removed");
    fs::rename(context.path("single"), context.path("db")).expect("renamed");
    assert_eq!(merged, tables(&context), "rows of one host");
}

#[test]
fn a_host_that_is_4_percent_slower_is_named() {
    let context = Context::of_layer();
    let nodes = ["node1", "node2", "node3"];
    copy(&context, "db", "node1");
    measure(&context, "node1", "SwiGlu");
    copy(&context, "node1", "node2");
    copy(&context, "node1", "node3");
    for (number, node) in nodes.into_iter().enumerate() {
        let ledger = ledger_of(&context, node);
        rename_host(&ledger, node);
        let run = format!(
            "PRAGMA foreign_keys = OFF; UPDATE runs SET run = run || '-{number}', started_ns = started_ns + {number};
             UPDATE planned SET run = run || '-{number}'; UPDATE collections SET run = run || '-{number}';
             UPDATE verdicts SET run = run || '-{number}'; UPDATE device_readings SET run = run || '-{number}';"
        );
        change(&ledger, &run);
    }
    let slower = "UPDATE controls SET durations_ns =
                  (SELECT json_group_array(CAST(value * 1.04 AS INTEGER)) FROM json_each(durations_ns))";
    let text = merge(&context, "equal", &nodes);
    assert!(!text.contains("slower") && !text.contains("faster"), "{text}");
    // Two devices on one host are enough to be certain of it.
    change(&ledger_of(&context, "node2"), slower);
    let text = merge(&context, "db", &nodes);
    let line = text.lines().find(|line| line.starts_with("host ")).unwrap_or_else(|| panic!("{text}"));
    assert!(line.starts_with("host node2 is 4.0 % slower than the median of 3 hosts"), "{text}");
    let json = context.run("db merge db node1 --format json").stdout;
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let slow: Vec<&serde_json::Value> = json["hosts"][0]["levels"]
        .list()
        .iter()
        .filter(|level| level["is_significant"] == true)
        .map(|level| &level["host"])
        .collect();
    assert_eq!(slow, ["node2"]);
}

#[test]
fn databases_that_do_not_belong_together_are_refused_and_nothing_is_changed() {
    let context = Context::of_layer();
    copy(&context, "db", "one");
    measure(&context, "one", "SwiGlu");
    let refused = |into: &str, from: &[&str], expected: &[&str]| {
        let before = files(&context, into);
        let ran = context.exits(3, &(&["db", "merge", into], from));
        for text in expected {
            ran.err_has(text);
        }
        ran.err_has("hint: ");
        assert!(files(&context, into) == before, "{into} was changed");
    };
    let variant = |name: &str, change: &dyn Fn(&Path)| {
        copy(&context, "one", name);
        change(&context.path(name));
    };
    let replace = |file: &Path, old: &str, new: &str| {
        let text = fs::read_to_string(file).expect("text");
        assert!(text.contains(old), "{text}");
        fs::write(file, text.replace(old, new)).expect("written");
    };
    // A rehearsal is never merged into measurements.
    context.done("db copy db npu --kind npu");
    refused("npu", &["one"], &["ROOT/npu` is of kind `npu`", "ROOT/one` of kind `rehearsal`"]);
    variant("posed", &|folder| replace(&folder.join("database.yaml"), "kind: rehearsal", "kind: npu"));
    refused(
        "npu",
        &["posed"],
        &["ROOT/posed` is of kind `npu`, but its ledger has runs of kind `rehearsal`"],
    );
    variant("device", &|folder| {
        replace(&folder.join("database.yaml"), "ATLAS_800_A3_752T_128G_DIE", "ATLAS_800_A2_313T_64G");
    });
    refused(
        "db",
        &["one", "device"],
        &["ATLAS_800_A3_752T_128G_DIE", "`ATLAS_800_A2_313T_64G`", "ROOT/device"],
    );
    variant("software", &|folder| {
        let sql = "UPDATE software SET fingerprint = json_set(fingerprint, '$.cann', '9.9.9')";
        change(&folder.join(".npubench/ledger.db"), sql);
    });
    refused("db", &["one", "software"], &["CANN ", "not 9.9.9", "ROOT/one`", "ROOT/software`"]);
    variant("skew", &|folder| {
        let sql = "UPDATE runs SET options = json_set(options, '$.expert_skew', 0.8), run = run || '-2';
                   UPDATE planned SET run = run || '-2'; UPDATE collections SET run = run || '-2';
                   UPDATE verdicts SET run = run || '-2'; UPDATE device_readings SET run = run || '-2';";
        change(&folder.join(".npubench/ledger.db"), &format!("PRAGMA foreign_keys = OFF; {sql}"));
    });
    refused("db", &["one", "skew"], &["expert skew 0", "has 0.8"]);
    variant("copied", &|folder| change(&folder.join(".npubench/ledger.db"), "UPDATE runs SET seed = 7"));
    refused("db", &["one", "copied"], &["ROOT/one/.npubench/ledger.db", "contradict", "seed 7, not 1"]);
    variant("cut", &|folder| {
        let ledger = folder.join(".npubench/ledger.db");
        let bytes = fs::read(&ledger).expect("bytes");
        fs::write(&ledger, &bytes[..bytes.len() / 2]).expect("cut");
    });
    refused("db", &["one", "cut"], &["ROOT/cut/.npubench/ledger.db` is damaged", "npubench db rebuild"]);
    refused("db", &["one", "missing"], &["missing"]);
    refused("new", &["one", "cut"], &["is damaged"]);
    assert!(!context.path("new").exists());
}

#[test]
fn killed_merge_is_completed_by_the_same_command() {
    let context = Context::of_layer();
    copy(&context, "db", "one");
    copy(&context, "db", "other");
    measure(&context, "one", "Add,Mul");
    measure(&context, "other", "SwiGlu");
    copy(&context, "db", "whole");
    merge(&context, "whole", "one other");
    let content = |folder: &str| -> BTreeMap<PathBuf, Vec<u8>> {
        let files = files(&context, folder).into_iter();
        files.map(|(path, content)| (path.iter().skip(1).collect(), content)).collect()
    };
    let whole = content("whole");
    let mut killed = 0;
    for milliseconds in (0..).step_by(30) {
        let target = format!("killed-{milliseconds}");
        copy(&context, "db", &target);
        let mut command = context.command(&["db", "merge", &target, "one", "other"]);
        let mut merge_process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs");
        std::thread::sleep(Duration::from_millis(milliseconds));
        merge_process.kill().expect("killed or ended");
        let has_ended = merge_process.wait().expect("ended").success();
        killed += usize::from(!has_ended);
        if ledger_of(&context, &target).exists() {
            context.done(&["runs", "--db", &target]);
        }
        merge(&context, &target, "one other");
        let merged = content(&target);
        let paths: BTreeSet<&PathBuf> = merged.keys().chain(whole.keys()).collect();
        let different: Vec<_> =
            paths.into_iter().filter(|path| merged.get(*path) != whole.get(*path)).collect();
        assert!(different.is_empty(), "after {milliseconds} ms: {different:?}");
        if has_ended {
            break;
        }
    }
    assert!(killed > 1, "{killed}");
}

/// After an upgrade of CANN all cases are measured again as shards: their results are newer than those of the target.
#[test]
fn newer_results_of_other_software_are_merged_and_older_ones_are_refused() {
    let context = Context::of_layer();
    measure(&context, "db", "SwiGlu,Add");
    copy(&context, "db", "earlier");
    divide(&context, "--kernels SwiGlu,Add --update all --shards 2");
    let upgraded = context.write("upgraded.yaml", "software: {cann: 9.9}\n");
    for shard in ["1/2", "2/2"] {
        let faults = ["--rehearsal-faults", upgraded.to_str().expect("text")];
        context.done(&(&shard_arguments(shard)[..], &faults));
    }
    context.done("db merge db --shards");
    let ledger = Connection::open(ledger_of(&context, "db")).expect("a ledger");
    let newest: String = ledger
        .query_row(
            "SELECT s.fingerprint FROM attempts a JOIN collections c USING (collection) JOIN software s ON s.digest = c.software
             ORDER BY a.attempt DESC LIMIT 1",
            [],
            |row| row.get(0),
        )
        .expect("an attempt");
    assert!(newest.contains("9.9"), "{newest}");
    context.done("db check db");
    let before = files(&context, "db");
    let ran = context.exits(3, "db merge db earlier");
    for expected in ["ROOT/db` and", "ROOT/earlier` are of different software", "9.9"] {
        ran.err_has(expected);
    }
    assert!(files(&context, "db") == before, "nothing is changed");
    // Newer than one of two sources: the row of a case of that source would be the older version's.
    let late = "UPDATE runs SET started_ns = started_ns + 1000000000000000000;
                UPDATE collections SET started_ns = started_ns + 1000000000000000000,
                    ended_ns = ended_ns + 1000000000000000000;";
    let shards = fs::read_dir(context.path("db/.npubench/shards")).expect("a folder");
    let plan =
        shards.filter_map(|entry| Some(entry.ok()?.path())).find(|path| path.is_dir()).expect("a plan");
    let plan = plan.strip_prefix(context.path("")).expect("below").to_str().expect("text").to_owned();
    copy(&context, &format!("{plan}/1"), "first");
    copy(&context, &format!("{plan}/2"), "second");
    change(&ledger_of(&context, "second"), &late.replace("1000000000000000000", "2000000000000000000"));
    change(&ledger_of(&context, "earlier"), late);
    let ran = context.exits(3, "db merge earlier first second");
    ran.err_has("ROOT/first` are of different software");
}

const KERNELS: &str = "Add,SwiGlu,Mul,RmsNorm";

/// Starts a shard of the database `db`.
fn shard_arguments(shard: &'static str) -> Vec<&'static str> {
    let mut arguments = STEADY_RUN.to_vec();
    arguments.extend(["--shard", shard]);
    arguments
}

fn run_shard(context: &Context, shard: &'static str) -> String {
    let ran = context.run(&shard_arguments(shard)).ended(0);
    ran.stderr
}

/// Divides the plan of the database `db` and returns the id of the plan.
fn divide(context: &Context, further: &(impl Words + ?Sized)) -> String {
    let arguments = "shard --db db --devices 0-1 --format json";
    let ran = context.done(&(arguments, further));
    let first = ran.stdout.lines().next().expect("a shard");
    let shard: serde_json::Value = serde_json::from_str(first).expect("JSON");
    shard["plan"].text().to_owned()
}

fn tables_without_runs(context: &Context) -> Vec<(String, String)> {
    let shard = |number: usize| format!("RUNshard-{number}-of-3");
    let text = |text: String| (1..=3).fold(text, |text, number| text.replace(&shard(number), "RUN"));
    tables(context).into_iter().map(|(name, table)| (name, text(table))).collect()
}

#[test]
fn merged_shards_have_the_rows_of_one_run_also_after_a_kill() {
    let context = Context::of_layer();
    copy(&context, "db", "single");
    let plan = divide(&context, &["--kernels", KERNELS, "--shards", "3"]);
    assert_eq!(divide(&context, &["--kernels", KERNELS, "--shards", "3"]), plan, "the same plan again");
    let folder = |number: u32| format!("db/.npubench/shards/{plan}/{number}");
    // Killed while its first collection is measured.
    let mut killed = context.command(&shard_arguments("1/3"));
    let mut killed = killed.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs");
    let is_measuring = || {
        let ledger = Connection::open_with_flags(
            ledger_of(&context, &folder(1)),
            rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY,
        );
        let count = ledger.and_then(|ledger| {
            ledger.query_row("SELECT count(*) FROM collections", [], |row| row.get::<_, i64>(0))
        });
        count.is_ok_and(|count| count > 0)
    };
    let until = Instant::now() + Duration::from_secs(60);
    while !is_measuring() {
        assert!(Instant::now() < until, "no collection was started");
        std::thread::sleep(Duration::from_millis(2));
    }
    killed.kill().expect("killed");
    killed.wait().expect("ended");
    let text = run_shard(&context, "1/3");
    assert!(text.contains("shard 1/3 continues run rehearsal-"), "{text}");
    let measured = files(&context, &folder(1));
    let text = run_shard(&context, "1/3");
    assert!(text.contains("shard 1/3 is complete by run rehearsal-"), "{text}");
    assert!(files(&context, &folder(1)) == measured, "a complete shard was changed");
    let ran = context.run("db merge db --shards");
    assert!(ran.code == 1 && ran.stderr.contains("2 shards not started"), "{ran:?}");
    run_shard(&context, "2/3");
    run_shard(&context, "3/3");
    let ran = context.run("db merge db --shards");
    assert!(ran.code == 0 && ran.stdout.contains("3 runs (2 new)"), "{ran:?}");
    let ledger = Connection::open(ledger_of(&context, "db")).expect("a ledger");
    let count = |sql: &str| -> i64 { ledger.query_row(sql, [], |row| row.get(0)).expect(sql) };
    let cases = count("SELECT count(DISTINCT case_id) FROM planned");
    assert!(cases > 3);
    assert_eq!(count("SELECT count(*) FROM verdicts"), cases, "each case has one verdict");
    assert_eq!(count("SELECT count(*) FROM verdicts WHERE verdict <> 'ok'"), 0);
    assert_eq!(count("SELECT count(*) FROM attempts"), cases, "no case was measured twice");
    let merged = tables_without_runs(&context);
    measure(&context, "single", KERNELS);
    fs::rename(context.path("db"), context.path("merged")).expect("renamed");
    fs::rename(context.path("single"), context.path("db")).expect("renamed");
    assert_eq!(merged, tables_without_runs(&context), "rows of one run");
}

#[test]
fn a_shard_of_another_plan_is_refused_and_nothing_is_changed() {
    let context = Context::of_layer();
    let refused = |arguments: &[&str], expected: &[&str]| {
        let before = files(&context, "db");
        let ran = context.exits(3, arguments);
        for text in expected {
            ran.err_has(text);
        }
        assert!(files(&context, "db") == before, "the database was changed");
    };
    let shard = ["shard", "--db", "db", "--devices", "0-1", "--kernels", "SwiGlu,Add"];
    refused(&shard_arguments("1/2"), &["ROOT/db` has no shards", "npubench shard --db"]);
    refused(&["db", "merge", "db", "--shards"], &["ROOT/db` has no shards"]);
    let ran = context.run(&(&shard[..], "--shards 0"));
    ran.err_has("`0` is no number of shards from 1 to 99999");
    refused(&[&shard[..], &["--shards", "999"]].concat(), &["fewer than 999 shards", "hint: give at most"]);
    let first = divide(&context, "--kernels SwiGlu,Add --shards 2");
    run_shard(&context, "1/2");
    refused(&shard_arguments("3/3"), &["has 2 shards, so shard 3/3 is of another plan", "--shard 2/2"]);
    let other = [&shard[..], &["--shards", "1"]].concat();
    refused(&other, &["another plan of 2 shards", &first, "npubench db merge", "--replace"]);
    // Results that are in a shard alone are not left behind unasked.
    let replacing = [&other[..], &["--replace"]].concat();
    refused(
        &replacing,
        &["have results that are not merged", "db merge ROOT/db --shards", "--discard-results"],
    );
    let ran = context.run(&(&replacing[..], "--discard-results"));
    assert!(
        ran.code == 0
            && ran.stderr.contains(&format!("results of 1 shard of the replaced plan {first} stay in")),
        "{ran:?}"
    );
    let second = divide(&context, "--kernels SwiGlu,Add --shards 1");
    assert_ne!(first, second);
    let old = format!("db/.npubench/shards/{first}/1");
    refused(&["db", "merge", "db", &old], &["is shard 1/2 of plan", &first, &second]);
    // Selections belong to the plan.
    context.exits(2, &(&shard_arguments("1/1")[..], "--kernels Add"));
    fs::write(context.path("db/.npubench/shards/plan.json"), "{").expect("written");
    refused(
        &shard_arguments("1/1"),
        &["plan.json` is no plan of shards", "hint: `mv ROOT/db/.npubench/shards/plan.json "],
    );
    refused(
        &replacing,
        &["have results that are not merged", "hint: `mv ROOT/db/.npubench/shards/plan.json "],
    );
    // A new folder takes the shards of a plan, whichever it is.
    let text = merge(&context, "new", &[&old]);
    assert!(text.contains("1 run (1 new)"), "{text}");
    // The way that the hint of a damaged plan names.
    let plan = context.path("db/.npubench/shards/plan.json");
    fs::rename(&plan, plan.with_extension("json.damaged")).expect("renamed");
    merge(&context, "db", &[&old]);
    divide(&context, "--kernels SwiGlu,Add --update all --shards 2");
    // All results are merged, so that nothing is lost.
    divide(&context, "--kernels SwiGlu,Add --update all --shards 1 --replace");
}
