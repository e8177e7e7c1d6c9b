//! Runs that are killed and resumed: no result is lost or counted twice, no process is left running.

use std::{
    fs,
    path::Path,
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use rusqlite::Connection;

use crate::prelude::*;

/// Number of killed commands; an environment variable raises it.
pub(crate) fn kills(otherwise: u32) -> u32 {
    std::env::var("NPUBENCH_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// Names and texts of a database's tables, without the ids of runs.
pub(crate) fn tables(context: &Context) -> Vec<(String, String)> {
    tables_of(context, "db")
}

pub(crate) fn tables_of(context: &Context, database: &str) -> Vec<(String, String)> {
    let entries =
        fs::read_dir(context.path(database)).expect("listed").map(|entry| entry.expect("listed").path());
    let mut tables: Vec<(String, String)> = entries
        .filter(|path| path.extension().is_some_and(|extension| extension == "csv"))
        .map(|path| {
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            (name, without_run(&fs::read_to_string(&path).expect("text")))
        })
        .collect();
    tables.sort();
    tables
}

/// Removes run ids: `rehearsal-`, a date, a time and a number.
fn without_run(text: &str) -> String {
    let mut parts = text.split("rehearsal-");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| {
        all + "RUN" + part.trim_start_matches(|c: char| c.is_ascii_digit() || c == '-')
    })
}

pub(crate) fn ledger(context: &Context) -> Option<Connection> {
    let path = context.path("db/.npubench/ledger.db");
    path.exists().then(|| Connection::open(path).expect("a ledger"))
}

pub(crate) fn number(ledger: &Connection, sql: &str) -> i64 {
    ledger.query_row(sql, [], |row| row.get(0)).expect(sql)
}

/// Processes whose working directory is below a folder.
pub(crate) fn processes_in(folder: &Path) -> Vec<String> {
    let folder = folder.canonicalize().expect("a folder");
    let entries = fs::read_dir("/proc").expect("listed").flatten();
    let working = entries.filter(|entry| {
        fs::read_link(entry.path().join("cwd")).is_ok_and(|place| place.starts_with(&folder))
    });
    working.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Starts the program and kills it once `is_reached`; returns false if it has ended before.
pub(crate) fn killed_when(
    context: &Context,
    arguments: &(impl Words + ?Sized),
    is_reached: impl Fn(&Connection) -> bool,
) -> bool {
    let mut command = context.command(arguments);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs");
    // A new ledger has no tables yet.
    while !ledger(context).is_some_and(|ledger| is_reached(&ledger)) {
        if child.try_wait().expect("asked").is_some() {
            return false;
        }
        thread::sleep(Duration::from_millis(1));
    }
    let was_running = child.try_wait().expect("asked").is_none();
    child.kill().expect("killed");
    child.wait().expect("reaped");
    was_running
}

/// A count of the ledger; `None` without tables.
pub(crate) fn count(ledger: &Connection, sql: &str) -> Option<i64> {
    ledger.query_row(sql, [], |row| row.get(0)).ok()
}

/// Starts a run and kills it after a delay; returns true if it was still running.
pub(crate) fn killed_after(context: &Context, arguments: &(impl Words + ?Sized), delay: Duration) -> bool {
    let mut command = context.command(arguments);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs");
    thread::sleep(delay);
    let was_running = child.try_wait().expect("asked").is_none();
    child.kill().expect("killed");
    child.wait().expect("reaped");
    was_running
}

/// Resumes until no run is interrupted.
fn finish(context: &Context) -> Ran {
    let ran = context.run("resume --db db");
    if ran.code == 3 {
        ran.err_has("was interrupted");
        return context.run(&STEADY_RUN);
    }
    ran
}

#[test]
fn run_killed_at_any_time_ends_in_the_same_rows_after_resume() {
    let undisturbed = Context::of_layer();
    let begun = Instant::now();
    let ran = undisturbed.run(&STEADY_RUN);
    let takes = begun.elapsed();
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    let expected = tables(&undisturbed);
    let mut cut = 0;
    for kill in 0..u64::from(kills(3)) {
        let context = Context::of_layer();
        // Spread over the whole run, and twice during the resumed run.
        let part = |n: u64| takes.mul_f64(f64::from(u32::try_from(n * 389 % 1000).unwrap_or(0)) / 1000.0);
        cut += u32::from(killed_after(&context, &STEADY_RUN, part(kill)));
        if kill % 2 == 1 {
            killed_after(&context, "resume --db db", part(kill * 7 + 3));
        }
        let ran = finish(&context);
        assert!(matches!(ran.code, 0), "kill {kill}: {}{}", ran.stdout, ran.stderr);
        assert_eq!(tables(&context), expected, "kill {kill}");
        assert_eq!(processes_in(&context.path("db")), Vec::<String>::new(), "kill {kill}");
        assert_eq!(fs::read_dir(context.path("db/.npubench/processes")).map_or(0, Iterator::count), 0);
        let ledger = ledger(&context).expect("it ran");
        let twice = "SELECT count(*) FROM (SELECT case_id FROM attempts WHERE verdict = 'ok'
                     GROUP BY case_id HAVING count(*) > 1)";
        assert_eq!(number(&ledger, twice), 0, "kill {kill}: samples are counted twice");
        assert_eq!(number(&ledger, "SELECT count(*) FROM collections WHERE ended_ns IS NULL"), 0);
    }
    assert!(cut > 0, "every run ended before it was killed");
}

#[test]
fn resume_without_an_interrupted_run_is_an_error() {
    let context = Context::of_layer();
    let ran = context.exits(3, "resume --db db");
    insta::assert_snapshot!(ran.stderr, @r"
    error: no run of `ROOT/db` was interrupted
    hint: `npubench run --db ROOT/db --host rehearsal` measures what is missing
    ");
    context.run(&STEADY_RUN);
    assert_eq!(context.run("resume --db db").code, 3);
    let ledger = fs::read(context.path("db/.npubench/ledger.db")).expect("a ledger");
    let ended = context.exits(3, "resume last --db db");
    ended.err_has(" was not interrupted: it has ended\nhint: `npubench run --db ROOT/db --host rehearsal`");
    assert!(fs::read(context.path("db/.npubench/ledger.db")).expect("a ledger") == ledger);
    let ran = context.exits(3, "resume no-such-run --db db");
    ran.err_has("no run of this database begins with `no-such-run`");
}

#[test]
fn invalid_deadlines_and_weight_columns_are_rejected() {
    let context = Context::of_layer();
    for (arguments, message) in [
        (["--until", "7h"], "is not a time of day"),
        (["--budget", "soon"], "is not a length of time"),
        (["--budget", "0s"], "less than a second"),
    ] {
        let ran = context.exits(2, &(STEADY_RUN, &arguments[..]));
        ran.err_has(message);
    }
    let ran = context.exits(3, &(STEADY_RUN, "--weight-column Wieght"));
    ran.err_has("no kernel of the database has a column `Wieght`");
    let ran = context.done(&(STEADY_RUN, "--budget 5m"));
    ran.err_has("time limit 5 minutes");
}
