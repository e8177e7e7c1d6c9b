//! `npubench db rebuild`: rows from the ledger and the evidence, and a readable ledger from a damaged one.

use std::{
    collections::BTreeSet,
    fs::{self, Permissions},
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::Path,
    process::Command,
};

use rusqlite::Connection;

use crate::prelude::*;

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
fn deleted_table_and_row_are_rebuilt_with_their_results() {
    let context = Context::of_measured_layer();
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
    fs::remove_file(context.path("db/Add.csv")).expect("removed");
    let path = context.path("db/MatMulV2.csv");
    let text = fs::read_to_string(&path).expect("text");
    let measured = text.lines().position(|line| line.contains(",ok,")).expect("a measured row");
    let rest: Vec<&str> =
        text.lines().enumerate().filter(|(number, _)| *number != measured).map(|(_, line)| line).collect();
    fs::write(&path, rest.join("\n") + "\n").expect("written");
    let snapshot = context.snapshot("db");
    let dry = context.done("db rebuild db --dry-run");
    let without_lock = |mut files: std::collections::BTreeMap<std::path::PathBuf, Vec<u8>>| {
        files.retain(|path, _| !path.ends_with("lock"));
        files
    };
    assert_eq!(without_lock(context.snapshot("db")), without_lock(snapshot), "a dry run writes nothing");
    let rebuilt = context.done("db rebuild db");
    insta::assert_snapshot!(format!("{}---\n{}", dry.stdout, rebuilt.stdout));
    assert_eq!([cells(&context, "Add"), cells(&context, "MatMulV2")], before);
    context.done("db check db");
    let again = context.run("db rebuild db --dry-run");
    assert_eq!(again.stdout, "the ledger is intact, and each of its results has a row\n");
}

#[test]
fn database_without_a_ledger_cannot_be_rebuilt() {
    let context = Context::of_layer();
    let ran = context.exits(3, "db rebuild db");
    assert!(ran.stderr.contains("ROOT/db` has no ledger") && ran.stderr.contains("hint: "), "{}", ran.stderr);
}

/// Without its ledger, a database has neither runs nor evidence of its rows: `db check` names it, whatever else is valid.
#[test]
fn a_removed_or_emptied_ledger_is_an_issue() {
    let context = Context::of_measured_layer();
    let ledger = context.path("db/.npubench/ledger.db");
    let rows = tables(&context);
    let checked = |code: i32, issue: &str| {
        let ran = context.run("db check db");
        assert_eq!(ran.code, code, "{}", ran.stdout);
        ran.out_has(issue);
    };
    fs::write(&ledger, "").expect("emptied");
    checked(1, "ledger.db:1: error: the file is empty; `npubench db rebuild ");
    checked(1, "ledger.db:1: note: rows are not compared with the ledger: it is empty [not-compared]");
    fs::remove_file(&ledger).expect("removed");
    let missing = "warning: the file is missing, although there were runs; `npubench db rebuild db` restores it from its copy";
    checked(1, missing);
    fs::remove_file(context.path("db/.npubench/ledger.copy.db")).expect("removed");
    checked(1, missing);
    // A clone of the tables alone has no folder of runs.
    fs::remove_dir_all(context.path("db/.npubench")).expect("removed");
    checked(0, "note: rows are not compared with the ledger: there is none, and ");
    assert_eq!(tables(&context), rows);
}

/// A lost ledger is neither "no run yet" nor replaced by an empty one, which would replace its copy, too.
#[test]
fn a_lost_ledger_is_refused_until_it_is_restored() {
    let context = Context::of_measured_layer();
    let [ledger, copy] = ["ledger.db", "ledger.copy.db"].map(|name| context.path("db/.npubench").join(name));
    let (expected, copied) = (attempts(&ledger), fs::read(&copy).expect("a copy"));
    fs::remove_file(&ledger).expect("removed");
    let commands = ["show", "report", "runs", "noise", "resume", "run --host rehearsal --update all"];
    for command in commands {
        let ran = context.exits(3, &format!("{command} --db db"));
        ran.err_has(
            "ledger.db` is damaged: the file is missing, although there were runs\nhint: `npubench db rebuild ROOT/db` restores it",
        );
        assert!(!ledger.exists() && fs::read(&copy).expect("a copy") == copied, "{command}");
    }
    context.done("db rebuild db").out_has("it was restored from its copy, with 0 collections");
    assert_eq!(attempts(&ledger), expected);
    // An older ledger of a backup is united with the copy, before a run replaces the copy.
    fs::remove_file(&ledger).expect("removed");
    fs::rename(&copy, context.path("copy.db")).expect("moved");
    fs::rename(context.path("db/.npubench/runs"), context.path("runs")).expect("moved");
    context.run("run --db db --host rehearsal --kernels Add --update all");
    let newer = attempts(&ledger);
    fs::rename(context.path("copy.db"), &copy).expect("moved");
    let ran = context.exits(3, "run --db db --host rehearsal --update all");
    ran.err_has("which its copy has\nhint: `npubench db rebuild ROOT/db` restores it");
    context.run("db rebuild db");
    let united = attempts(&ledger);
    assert!(!newer.is_empty() && expected.iter().chain(&newer).all(|attempt| united.contains(attempt)));
}

/// A signature lacks slots of `Slice` and the form of matrices. The evidence has them; without it, the rows are named.
#[test]
fn rebuilt_rows_have_the_slots_of_the_evidence() {
    let context = Context::of_measured_layer();
    let tables = ["Slice", "MatMulV3"];
    let slots = || {
        let cells = |row: std::collections::BTreeMap<String, String>| {
            ["Input Shapes", "Input Data Types", "Input Formats", "Output Shapes", "Output Formats"]
                .map(|column| row[column].clone())
        };
        tables.map(|table| context.rows("db", table).into_iter().map(cells).collect::<BTreeSet<_>>())
    };
    let remove = || {
        for table in tables {
            fs::remove_file(context.path(&format!("db/{table}.csv"))).expect("removed");
        }
    };
    let recorded = slots();
    remove();
    context.done("db rebuild db").out_lacks("evidence");
    assert_eq!(slots(), recorded);
    remove();
    fs::remove_dir_all(context.path("db/.npubench/runs")).expect("removed");
    let ran = context.exits(1, "db rebuild db");
    ran.out_has(
        " have the shapes of the ledger, because their evidence is missing: lookups may not find them",
    );
    ran.out_has(" lack complete shapes in the ledger: `npubench ingest` or `grid` writes these rows");
}

/// A run was killed, and its ledger is damaged: the copy of its start has the plan alone, and the evidence has the results.
#[test]
fn damaged_ledger_is_restored_from_its_copy_and_the_evidence() {
    let context = Context::of_measured_layer();
    let [ledger, copy] = ["ledger.db", "ledger.copy.db"].map(|name| context.path("db/.npubench").join(name));
    let (rows, expected) = (tables(&context), attempts(&ledger));
    let intact = fs::read(&ledger).expect("a ledger");
    let of_start =
        "DELETE FROM launch_lists; DELETE FROM attempts; DELETE FROM controls; DELETE FROM collections;
                    DELETE FROM verdicts; DELETE FROM device_readings;
                    UPDATE runs SET ended_ns = NULL, exit_code = NULL;";
    for damage in ["first page", "cut", "removed"] {
        fs::write(&copy, &intact).expect("written");
        Connection::open(&copy).expect("a copy").execute_batch(of_start).expect("deleted");
        let mut bytes = intact.clone();
        match damage {
            "first page" => bytes[..4096].fill(0xA5),
            _ => bytes.truncate(intact.len() / 2),
        }
        fs::write(&ledger, &bytes).expect("written");
        if damage == "removed" {
            fs::remove_file(&ledger).expect("removed");
        }
        let dry = context.done("db rebuild db --dry-run");
        dry.out_has("it would be restored from its copy, with ");
        assert_eq!(
            fs::read(&ledger).ok(),
            (damage != "removed").then_some(bytes),
            "a dry run writes nothing"
        );
        let ran = context.done("db rebuild db");
        assert!(tables(&context) == rows, "{damage}: a row is changed: {}", ran.stdout);
        assert_eq!(attempts(&ledger), expected, "{damage}: {}", ran.stdout);
        assert_eq!(attempts(&copy), expected, "{damage}: the copy is renewed");
        context.done("db check db");
        context.done("resume --db db");
        assert_eq!(attempts(&ledger), expected, "{damage}: nothing is measured again");
    }
    let kept = fs::read_dir(context.path("db/.npubench")).expect("listed").filter(|entry| {
        entry.as_ref().is_ok_and(|entry| entry.file_name().to_string_lossy().contains("damaged-"))
    });
    assert!(kept.count() > 0, "the damaged ledgers are kept");
}

/// A device that failed runs its control cases, whose results are no attempts of a case.
#[test]
fn control_cases_are_no_attempts_after_a_rebuild() {
    let context = Context::of_layer();
    context.write(
        "faults.yaml",
        "faults:\n  - device_error: {code: 507015}\n    where: {kernel: SwiGlu}\n    times_each: 1\n",
    );
    context.done(&(STEADY_RUN, "--rehearsal-faults faults.yaml"));
    let ledger = context.path("db/.npubench/ledger.db");
    let (rows, expected) = (tables(&context), attempts(&ledger));
    let sql = "SELECT count(*) FROM collections WHERE purpose = 'control' AND archive IS NOT NULL";
    let count = |row: &rusqlite::Row<'_>| row.get::<_, u32>(0);
    assert!(Connection::open(&ledger).expect("a ledger").query_row(sql, [], count).expect("a count") > 0);
    fs::remove_file(&ledger).expect("removed");
    context.done("db rebuild db");
    assert_eq!(attempts(&ledger), expected);
    assert!(tables(&context) == rows, "a row is changed");
}

#[test]
fn damaged_ledger_without_an_intact_copy_is_left() {
    let context = Context::of_measured_layer();
    let [ledger, copy] = ["ledger.db", "ledger.copy.db"].map(|name| context.path("db/.npubench").join(name));
    let rows = tables(&context);
    fs::write(&ledger, "no ledger").expect("written");
    for content in [Some("no copy"), None] {
        match content {
            Some(content) => fs::write(&copy, content).expect("written"),
            None => fs::remove_file(&copy).expect("removed"),
        }
        let ran = context.exits(3, "db rebuild db");
        ran.err_has("hint: set the ledger, its copy and its runs aside: `(cd ");
        assert_eq!(fs::read(&ledger).expect("kept"), b"no ledger");
    }
    // Without it, the collections of its runs show that there was one.
    fs::remove_file(&ledger).expect("removed");
    context.exits(3, "db rebuild db").err_has("hint: set the ledger, its copy and its runs aside: `(cd ");
    context.exits(3, "runs --db db").err_has("`npubench db rebuild ROOT/db`");
    assert!(tables(&context) == rows);
    let state = context.path("db/.npubench");
    // `mv` moves what exists.
    let moved =
        Command::new("sh").args(["-c", "mkdir lost && mv ledger* runs lost"]).current_dir(state).output();
    moved.expect("run");
    context.done("runs --db db");
}

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
    let context = Context::of_measured_layer();
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
        run(arguments).ended(0);
    }
    for arguments in [&["db", "rebuild", "db"][..], &["reparse", "--db", "db", "--write"]] {
        let ran = run(arguments).ended(3);
        ran.err_has("/db`: Permission denied (os error 13)\nhint: the folder must be writable");
    }
    set_modes(&context.path("db"), [0o755, 0o644]);
    assert_eq!(context.snapshot("db"), before);
}
