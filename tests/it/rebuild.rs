//! `npubench db rebuild`: rows from the ledger alone, and a readable ledger from a damaged one.

use std::{
    fs::{self, File, Permissions},
    os::unix::{
        fs::{FileExt as _, PermissionsExt as _},
        process::CommandExt as _,
    },
    path::Path,
    process::Command,
};

use rusqlite::Connection;

use crate::{
    context::{Context, LIFELIKE_RUN, STEADY_RUN},
    kill_resume::{ingested, tables},
};

/// Variable that runs all damages.
const CAMPAIGN: &str = "NPUBENCH_SALVAGE_CAMPAIGN";

/// Numbers of SplitMix64 (Steele, Lea and Flood, 2014), the same for a seed.
struct RandomNumbers(u64);

impl RandomNumbers {
    /// Returns a number from `first` up to, but without `end`.
    fn between(&mut self, first: u64, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        first + (mixed ^ (mixed >> 31)) % (end - first)
    }
}

fn measured() -> Context {
    let context = ingested();
    assert_eq!(context.run(&STEADY_RUN).code, 0);
    context
}

/// Attempts of a ledger with their launches, in an order that does not depend on keys.
fn attempts(ledger: &Path) -> Vec<String> {
    let connection = Connection::open(ledger).expect("a ledger");
    let sql = "SELECT c.run, c.number, a.case_id, a.verdict, a.cause || a.remarks, a.launched, a.counters, a.operator,
                      (SELECT group_concat(duration_ns) FROM launches l WHERE l.attempt = a.attempt)
               FROM attempts a JOIN collections c USING (collection) ORDER BY 1, 2, 3";
    let mut statement = connection.prepare(sql).expect("a query");
    let rows = statement.query_map([], |row| {
        let cell = |index: usize| row.get_ref(index).map(|cell| format!("{cell:?}"));
        (0..9).map(cell).collect::<rusqlite::Result<Vec<_>>>().map(|cells| cells.join(" "))
    });
    rows.expect("rows").map(|row| row.expect("a row")).collect()
}

#[test]
fn deleted_table_and_row_are_rebuilt_from_the_ledger_alone() {
    let context = measured();
    let cells = |context: &Context, table: &str| -> Vec<String> {
        let rows = context.rows("db", table).into_iter();
        let mut cells: Vec<String> = rows
            .map(|row| {
                let mut cells: Vec<String> = row
                    .iter()
                    .filter(|(column, _)| {
                        column.starts_with("MicroBench") || *column == "Average Duration(us)"
                    })
                    .map(|(column, cell)| format!("{column}={cell}"))
                    .collect();
                cells.sort();
                cells.join(" ")
            })
            .filter(|cells| cells.contains("MicroBench Verdict=ok"))
            .collect();
        cells.sort();
        cells
    };
    let before = [cells(&context, "Add"), cells(&context, "MatMulV2")];
    assert!(before.iter().all(|rows| !rows.is_empty()));
    // Without the evidence of the collections, of which `reparse` would rebuild them.
    fs::remove_dir_all(context.path("db/.npubench/runs")).expect("removed");
    fs::remove_file(context.path("db/Add.csv")).expect("removed");
    let path = context.path("db/MatMulV2.csv");
    let text = fs::read_to_string(&path).expect("text");
    let measured = text.lines().position(|line| line.contains(",ok,")).expect("a measured row");
    let rest: Vec<&str> =
        text.lines().enumerate().filter(|(number, _)| *number != measured).map(|(_, line)| line).collect();
    fs::write(&path, rest.join("\n") + "\n").expect("written");
    let snapshot = context.snapshot("db");
    let dry = context.run(&["db", "rebuild", "db", "--dry-run"]);
    assert_eq!(dry.code, 0, "{}{}", dry.stdout, dry.stderr);
    let without_lock = |mut files: std::collections::BTreeMap<std::path::PathBuf, Vec<u8>>| {
        files.retain(|path, _| !path.ends_with("lock"));
        files
    };
    assert_eq!(without_lock(context.snapshot("db")), without_lock(snapshot), "a dry run writes nothing");
    let rebuilt = context.run(&["db", "rebuild", "db"]);
    assert_eq!(rebuilt.code, 0, "{}{}", rebuilt.stdout, rebuilt.stderr);
    insta::assert_snapshot!(format!("{}---\n{}", dry.stdout, rebuilt.stdout));
    assert_eq!([cells(&context, "Add"), cells(&context, "MatMulV2")], before);
    let checked = context.run(&["db", "check", "db"]);
    assert_eq!(checked.code, 0, "{}{}", checked.stdout, checked.stderr);
    let again = context.run(&["db", "rebuild", "db", "--dry-run"]);
    assert_eq!(again.stdout, "the ledger is intact, and each of its results has a row\n");
}

/// Overwrites the root page of an index, so that SQLite reports damage although every table can be read.
fn damage_an_index(ledger: &Path) {
    let connection = Connection::open(ledger).expect("a ledger");
    let sql = "SELECT rootpage, page_size FROM sqlite_schema, pragma_page_size WHERE type = 'index' AND tbl_name = 'attempts'";
    let (page, size): (u64, u64) = connection
        .query_row(sql, [], |row| {
            Ok((row.get::<_, i64>(0)?.cast_unsigned(), row.get::<_, i64>(1)?.cast_unsigned()))
        })
        .expect("an index");
    drop(connection);
    let file = File::options().write(true).open(ledger).expect("a file");
    file.write_all_at(&vec![0xA5; size as usize], (page - 1) * size).expect("written");
}

/// The results of an earlier version of CANN are lost and come back from the evidence: they stay the earlier ones of their cases.
#[test]
fn restored_results_are_not_newer_than_those_behind_them() {
    let context = ingested();
    let upgraded = context.write("upgraded.yaml", "software: {cann: 9.9}\n");
    let upgraded = upgraded.to_str().expect("text");
    let kernels = ["--kernels", "Add,SwiGlu", "--update", "all"];
    let first = [&LIFELIKE_RUN[..], &kernels, &["--seed", "1"]].concat();
    let second = [&LIFELIKE_RUN[..], &kernels, &["--seed", "2", "--rehearsal-faults", upgraded]].concat();
    for arguments in [first, second] {
        let ran = context.run(&arguments);
        assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    }
    let ledger = context.path("db/.npubench/ledger.db");
    let (rows, expected) = (tables(&context), attempts(&ledger));
    let lost = "DELETE FROM launch_lists WHERE attempt IN (SELECT attempt FROM attempts JOIN collections USING (collection)
                    WHERE run = (SELECT min(run) FROM runs));
                DELETE FROM attempts WHERE collection IN (SELECT collection FROM collections
                    WHERE run = (SELECT min(run) FROM runs));";
    Connection::open(&ledger).expect("a ledger").execute_batch(lost).expect("deleted");
    assert!(attempts(&ledger).len() < expected.len());
    damage_an_index(&ledger);
    // The table is lost, too, and comes back from the restored ledger.
    fs::remove_file(context.path("db/Add.csv")).expect("removed");
    let ran = context.run(&["db", "rebuild", "db"]);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    assert_eq!(attempts(&ledger), expected);
    let without_add = |tables: Vec<(String, String)>| -> Vec<(String, String)> {
        tables.into_iter().filter(|(name, _)| name != "Add.csv").collect()
    };
    assert_eq!(without_add(tables(&context)), without_add(rows), "an older result has replaced a row");
    let added = context.rows("db", "Add").len();
    assert!(added > 0);
    assert!(
        ran.stdout.contains(&format!("the table of Add was missing, with {added} cases")),
        "{}",
        ran.stdout
    );
    assert!(ran.stdout.contains(&format!("{added} rows written from the ledger")), "{}", ran.stdout);
    assert!(ran.stdout.contains("`npubench ingest PROFILE` fills"), "{}", ran.stdout);
    let checked = context.run(&["db", "check", "db"]);
    assert_eq!(checked.code, 0, "{}{}", checked.stdout, checked.stderr);
}

#[test]
fn database_without_a_ledger_cannot_be_rebuilt() {
    let context = ingested();
    let ran = context.run(&["db", "rebuild", "db"]);
    assert_eq!(ran.code, 3, "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stderr.contains("ROOT/db` has no ledger") && ran.stderr.contains("hint: "), "{}", ran.stderr);
}

/// Without its ledger, a database has neither runs nor evidence of its rows: `db check` names it, whatever else is valid.
#[test]
fn a_removed_or_emptied_ledger_is_an_issue() {
    let context = measured();
    let ledger = context.path("db/.npubench/ledger.db");
    let rows = tables(&context);
    let checked = |code: i32, issue: &str| {
        let ran = context.run(&["db", "check", "db"]);
        assert_eq!(ran.code, code, "{}", ran.stdout);
        assert!(ran.stdout.contains(issue), "{issue}: {}", ran.stdout);
    };
    fs::write(&ledger, "").expect("emptied");
    checked(1, "ledger.db:1: error: the file is empty; `npubench db rebuild ");
    checked(1, "ledger.db:1: note: rows are not compared with the ledger: it is empty [not-compared]");
    let ran = context.run(&["db", "rebuild", "db"]);
    assert_eq!(ran.code, 3, "{}", ran.stdout);
    let problem = "nothing of the damaged ledger `ROOT/db/.npubench/ledger.db` can be read";
    assert!(ran.stderr.contains(problem), "{}", ran.stderr);
    assert_eq!(fs::metadata(&ledger).expect("kept").len(), 0);
    fs::remove_file(&ledger).expect("removed");
    checked(1, "warning: the ledger is missing, although the folder has collections of 1 run:");
    // A clone of the tables alone has no folder of runs.
    fs::remove_dir_all(context.path("db/.npubench")).expect("removed");
    checked(0, "note: rows are not compared with the ledger: there is none, and ");
    assert_eq!(tables(&context), rows);
}

/// Pages that are overwritten, zeroed or cut off: the results come back from the evidence, and no row loses a cell.
#[test]
fn damaged_ledgers_are_salvaged_without_a_lost_result() {
    let context = measured();
    let ledger = context.path("db/.npubench/ledger.db");
    let intact = fs::read(&ledger).expect("a ledger");
    let (rows, expected) = (tables(&context), attempts(&ledger));
    let all = std::env::var_os(CAMPAIGN).is_some();
    let (mut salvaged, mut unreadable) = (0, 0);
    for seed in 0..if all { 200 } else { 5 } {
        let mut random = RandomNumbers(seed);
        fs::write(&ledger, &intact).expect("restored");
        let file = File::options().write(true).open(&ledger).expect("a file");
        let length = intact.len() as u64;
        if seed % 3 == 0 {
            file.set_len(random.between(length / 2, length)).expect("cut");
        } else {
            for _ in 0..random.between(1, 4) {
                let bytes = vec![if seed % 3 == 1 { 0 } else { 0xA5 }; random.between(1, 9_000) as usize];
                let offset = random.between(4096, length - 9_000);
                file.write_all_at(&bytes, offset).expect("written");
            }
        }
        let ran = context.run(&["db", "rebuild", "db"]);
        assert!(tables(&context) == rows, "seed {seed}: a row is changed: {}{}", ran.stdout, ran.stderr);
        let checked = context.run(&["db", "check", "db"]);
        match ran.code {
            // Nothing can be read, which the hint explains; the damaged ledger is still there.
            3 => {
                unreadable += 1;
                assert!(
                    ran.stderr.contains("hint: keep it under another name"),
                    "seed {seed}: {}",
                    ran.stderr
                );
            }
            code => {
                salvaged += 1;
                assert!(!checked.stdout.contains("damaged-ledger"), "seed {seed}: {}", checked.stdout);
                let found = attempts(&ledger);
                assert!(found.iter().all(|attempt| expected.contains(attempt)), "seed {seed}: other results");
                if code == 0 {
                    assert_eq!(found, expected, "seed {seed}: {}{}", ran.stdout, ran.stderr);
                    assert_eq!(checked.code, 0, "seed {seed}: {}", checked.stdout);
                }
            }
        }
    }
    assert!(salvaged >= if all { 100 } else { 3 }, "{salvaged} salvaged, {unreadable} unreadable");
    eprintln!("{salvaged} salvaged, {unreadable} unreadable");
}

/// SQLite reads nothing of a file whose first page was overwritten.
#[test]
fn ledger_with_a_damaged_first_page_is_salvaged() {
    let context = measured();
    let ledger = context.path("db/.npubench/ledger.db");
    let intact = fs::read(&ledger).expect("a ledger");
    let (rows, expected) = (tables(&context), attempts(&ledger));
    for damage in [0..16, 16..100, 100..4096, 0..4096] {
        for byte in [0, 0xA5] {
            let mut bytes = intact.clone();
            bytes[damage.clone()].fill(byte);
            fs::write(&ledger, &bytes).expect("written");
            let ran = context.run(&["db", "rebuild", "db"]);
            assert_eq!(ran.code, 0, "{damage:?} {byte}: {}{}", ran.stdout, ran.stderr);
            assert!(
                tables(&context) == rows && attempts(&ledger) == expected,
                "{damage:?} {byte}: {}",
                ran.stdout
            );
            assert_eq!(context.run(&["db", "check", "db"]).code, 0, "{damage:?} {byte}");
        }
    }
    // A shorter file has no page with the definitions.
    fs::write(&ledger, [&[0; 4096][..], &intact[4096..3 * 4096]].concat()).expect("written");
    let ran = context.run(&["db", "rebuild", "db"]);
    assert!(ran.code == 3 && ran.stderr.contains("hint: keep it under another name"), "{}", ran.stderr);
}

/// Sets the permissions of a folder, its folders and its files.
fn set_modes(path: &Path, [folder, file]: [u32; 2]) {
    if path.is_dir() {
        fs::set_permissions(path, Permissions::from_mode(folder | 0o200)).expect("set");
        fs::read_dir(path)
            .expect("listed")
            .for_each(|entry| set_modes(&entry.expect("listed").path(), [folder, file]));
        fs::set_permissions(path, Permissions::from_mode(folder)).expect("set");
    } else {
        fs::set_permissions(path, Permissions::from_mode(file)).expect("set");
    }
}

/// A database of others, which the user may read alone.
#[test]
fn commands_that_write_nothing_need_no_permission_to_write() {
    let context = measured();
    let before = context.snapshot("db");
    let binary = context.path("npubench");
    if fs::hard_link(assert_cmd::cargo::cargo_bin!("npubench"), &binary).is_err() {
        fs::copy(assert_cmd::cargo::cargo_bin!("npubench"), &binary).expect("copied");
    }
    set_modes(&context.path("db"), [0o555, 0o444]);
    fs::set_permissions(context.path("."), Permissions::from_mode(0o755)).expect("set");
    let run = |arguments: &[&str]| {
        let prepared = context.command(arguments);
        let mut command = Command::new(&binary);
        command.args(arguments).current_dir(context.path("."));
        for (name, value) in prepared.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        // The root user may write everywhere.
        if nix::unistd::geteuid().is_root() {
            command.uid(65534);
        }
        context.ran(&command.output().expect("npubench runs"))
    };
    for arguments in [
        &["db", "check", "db"][..],
        &["db", "check", "db", "--evidence"],
        &["db", "rebuild", "db", "--dry-run"],
        &["reparse", "--db", "db"],
        &["runs", "--db", "db"],
        &["show", "--db", "db"],
        &["report", "--db", "db", "--format", "markdown"],
    ] {
        let ran = run(arguments);
        assert_eq!(ran.code, 0, "{arguments:?}: {}", ran.stderr);
    }
    for arguments in [&["db", "rebuild", "db"][..], &["reparse", "--db", "db", "--write"]] {
        let ran = run(arguments);
        assert_eq!(ran.code, 3, "{arguments:?}: {}", ran.stderr);
        assert!(
            ran.stderr.contains("/db`: Permission denied\nhint: the folder must be writable"),
            "{}",
            ran.stderr
        );
    }
    set_modes(&context.path("db"), [0o755, 0o644]);
    assert_eq!(context.snapshot("db"), before);
}
