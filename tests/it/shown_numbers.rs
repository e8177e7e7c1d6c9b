//! Numbers on screen: `show`, the end of `run`, widths, colours, pagers.

use std::{
    collections::BTreeMap,
    env,
    fs::{self, File, Permissions},
    io::Read as _,
    os::{fd::OwnedFd, unix::fs::PermissionsExt as _},
    process::{Command, Stdio},
    thread,
};

use nix::pty::{Winsize, openpty};

use serde_json::Value;

use crate::prelude::*;
use crate::rehearsal::ledger;

fn lines(ran: &Ran) -> Vec<Value> {
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    ran.json()
}

fn show(context: &Context, more: &(impl Words + ?Sized)) -> Ran {
    context.run(&("show --db db", more))
}

fn number(row: &BTreeMap<String, String>, column: &str) -> f64 {
    row[column].parse().unwrap_or_else(|_| panic!("{column}: {row:?}"))
}

fn assert_near(value: &Value, expected: f64) {
    let value = value.as_f64().unwrap_or_else(|| panic!("{value} is not {expected}"));
    assert!((value - expected).abs() < 1e-9 * expected.abs().max(1.0), "{value} is not {expected}");
}

#[test]
fn show_has_the_numbers_of_the_rows_that_the_run_wrote() {
    let context = Context::of_layer();
    assert_eq!(rehearse(&context, "db", "--devices 0-1").code, 0);
    let cases = lines(&show(&context, "--format json"));
    let mut compared = 0;
    for case in &cases {
        let kernel = case["kernel"].text();
        let rows = context.rows("db", kernel);
        let row = rows.iter().find(|row| row["MicroBench Case"] == case["case"].text());
        let row = row.unwrap_or_else(|| panic!("no row of {case}"));
        let median = number(row, "MicroBench Median Duration(us)");
        let production = number(row, "Profiling Median Duration(us)");
        assert_near(&case["median_us"], median);
        assert_near(&case["interval_us"][0], number(row, "MicroBench CI95 Low(us)"));
        assert_near(&case["interval_us"][1], number(row, "MicroBench CI95 High(us)"));
        assert_near(&case["production_us"], production);
        assert_near(&case["production_percent"], 100.0 * (median / production - 1.0));
        assert!(case["change_percent"].is_null(), "no row had a number before: {case}");
        compared += 1;
    }
    assert_eq!(compared, 20);
    let shown = show(&context, "").stdout;
    for list in ["\nslowest:\n", "\nfarthest from production:\n"] {
        assert!(shown.contains(list), "{shown}");
    }
    assert!(!shown.contains("changed most"), "{shown}");
}

/// The numbers of a run whose rows a later one has replaced are those of its own samples.
#[test]
fn change_is_that_against_the_row_before_the_run() {
    let context = Context::new();
    context.small_database("db");
    assert_eq!(rehearse(&context, "db", "--devices 0").code, 0);
    let first = context.rows("db", "SwiGlu").remove(0);
    let other = "--devices 0 --update all --kernels SwiGlu --seed 7";
    context.run(&("run --db db --host rehearsal --rehearsal-model lifelike", other)).measured();
    let second = context.rows("db", "SwiGlu").remove(0);
    assert_ne!(first["MicroBench Run"], second["MicroBench Run"]);
    let [before, after] = [&first, &second].map(|row| number(row, "MicroBench Median Duration(us)"));
    let shown = lines(&show(&context, "--format json")).remove(0);
    assert_near(&shown["median_us"], after);
    let change = shown["change_percent"].float();
    assert!((change - 100.0 * (after / before - 1.0)).abs() < 1e-9, "{change}");
    let own = ledger(
        &context,
        "db",
        "SELECT CAST(avg(duration_ns) AS TEXT) FROM (
            SELECT duration_ns, row_number() OVER (ORDER BY duration_ns) AS place, count(*) OVER () AS total
            FROM samples JOIN attempts a USING (attempt) JOIN collections c USING (collection) JOIN cases k ON k.case_id = a.case_id
            WHERE is_accepted AND kernel = 'SwiGlu' AND run = (SELECT min(run) FROM runs))
         WHERE place IN ((total + 1) / 2, (total + 2) / 2)",
    );
    let earlier = lines(&show(&context, &[&first["MicroBench Run"], "--format", "json"]));
    let earlier = earlier.iter().find(|case| case["kernel"] == "SwiGlu").expect("a case");
    assert_near(&earlier["median_us"], own.parse::<f64>().expect("a number") / 1e3);
    assert!(earlier["interval_us"].is_null(), "{earlier}");
}

#[test]
fn run_ends_with_numbers_and_its_time() {
    let context = Context::new();
    context.small_database("db");
    let ran = rehearse(&context, "db", "--devices 0").ended(0);
    let elapsed = ran.stderr.lines().find(|line| line.ends_with(" elapsed")).expect("a time");
    assert!(elapsed.split([':', ' ']).take(2).all(|part| part.parse::<u32>().is_ok()), "{elapsed}");
    let tables: Vec<&str> = ran.stdout.split("\n\n").collect();
    assert_eq!(tables.len(), 2, "{}", ran.stdout);
    let header: Vec<&str> = tables[0].lines().next().expect("a header").split_whitespace().collect();
    assert_eq!(header.join(" "), "kernel cases ok +-% prod %");
    let median = number(&context.rows("db", "SwiGlu")[0], "MicroBench Median Duration(us)");
    let slowest = tables[1].lines().nth(1).expect("the slowest case");
    assert!(slowest.contains("SwiGlu") && slowest.contains(&format!(" {median:.3} ")), "{}", ran.stdout);
}

/// Runs a command on a terminal of 80 columns and returns what it shows.
fn on_terminal(command: &mut Command) -> String {
    let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
    let terminal = openpty(Some(&size), None).expect("a terminal");
    let slave: OwnedFd = terminal.slave;
    let other = || Stdio::from(slave.try_clone().expect("cloned"));
    let mut child = command.stdin(other()).stdout(other()).stderr(other()).spawn().expect("it runs");
    // The terminal ends when no process has it any more.
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    drop(slave);
    let mut shown = Vec::new();
    let mut master = File::from(terminal.master);
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = master.read(&mut buffer) {
        shown.extend_from_slice(&buffer[..count]);
    }
    child.wait().expect("it ends");
    String::from_utf8_lossy(&shown).replace("\r\n", "\n")
}

#[test]
fn a_pager_shows_long_output_on_a_terminal_only() {
    let context = Context::new();
    context.small_database("db");
    assert_eq!(rehearse(&context, "db", "--devices 0").code, 0);
    let with = |own: &str, of_all: &str| {
        let mut command = context.command("show --db db");
        command.env("TERM", "xterm").env("NPUBENCH_PAGER", own).env("PAGER", of_all);
        command
    };
    let paged = on_terminal(&mut with("sed 's/^/> /'", "false"));
    assert!(paged.lines().all(|line| line.starts_with("> ")) && paged.contains("SwiGlu"), "{paged}");
    assert!(paged.lines().take(3).all(|line| line.chars().count() <= 82), "{paged}");
    let mut of_all = with("", "sed 's/^/: /'");
    let of_all = on_terminal(of_all.env_remove("NPUBENCH_PAGER"));
    assert!(of_all.lines().all(|line| line.starts_with(": ")) && of_all.contains("SwiGlu"), "{of_all}");
    for own in ["", "cat"] {
        assert!(on_terminal(&mut with(own, "false")).starts_with(" case "), "{own}");
    }
    let missing = on_terminal(&mut with("no-such-pager-here", "false"));
    assert!(missing.contains("SwiGlu"), "the output is not lost: {missing}");
    for (pager, problem) in
        [("false", "failed with exit code 1"), ("no-such-pager-here", "cannot be started")]
    {
        let failed = on_terminal(&mut with(pager, "false"));
        let warning = format!("warning: the pager `{pager}` {problem}; the output follows without it\n");
        assert!(failed.contains(&warning) && failed.contains("SwiGlu"), "{failed}");
        assert!(failed.contains("hint: `NPUBENCH_PAGER=cat` switches pagers off"), "{failed}");
    }
    // Not even an early end of the pager is an error.
    assert_eq!(on_terminal(&mut with("true", "false")), "");
    let piped = with("sed 's/^/> /'", "false").output().expect("it runs");
    assert!(String::from_utf8_lossy(&piped.stdout).starts_with(" case "));
}

/// npu-smi of a hung driver takes a minute.
#[test]
fn a_silent_wait_is_named_on_a_terminal_only() {
    let context = Context::new();
    context.write("bin/npu-smi", "#!/bin/sh\nexec sleep 2.5\n");
    fs::set_permissions(context.path("bin/npu-smi"), Permissions::from_mode(0o755)).expect("executable");
    let path = format!("{}:{}", context.path("bin").display(), env::var("PATH").expect("a path"));
    let doctor = |more: &str| {
        let mut command = context.command(&("doctor --python no-such-python", more));
        command.env("PATH", &path);
        command
    };
    let line = "waiting for npu-smi, 0:0";
    let (shown, quiet, piped) = thread::scope(|scope| {
        let shown = scope.spawn(|| on_terminal(&mut doctor("")));
        let quiet = scope.spawn(|| on_terminal(&mut doctor("-q")));
        let piped = context.ran(&doctor("").output().expect("it runs"));
        (shown.join().expect("shown"), quiet.join().expect("quiet"), piped)
    });
    assert!(shown.contains(line), "{shown}");
    let last = shown.rsplit(line).next().expect("an end");
    assert!(last.contains("\u{1b}[2K") && last.contains("devices: "), "the line is removed: {shown:?}");
    assert!(!quiet.contains(line) && quiet.contains("devices: "), "{quiet}");
    assert!(!piped.stderr.contains("waiting"), "{}", piped.stderr);
}

#[test]
fn colours_are_for_terminals_unless_chosen() {
    let context = Context::new();
    context.small_database("db");
    assert_eq!(rehearse(&context, "db", "--devices 0").code, 0);
    let command = |arguments: &str| {
        let mut command = context.command(arguments);
        command.env("TERM", "xterm").env("NPUBENCH_PAGER", "cat").env_remove("NO_COLOR");
        command
    };
    let has_colors = |text: &str| text.contains("\u{1b}[");
    let shown = "show --db db";
    let ok = "\u{1b}[32mok\u{1b}[0m";
    assert!(on_terminal(&mut command(shown)).contains(ok));
    assert!(!has_colors(&on_terminal(command(shown).env("NO_COLOR", "1"))));
    assert!(!has_colors(&on_terminal(command(shown).env("TERM", "dumb"))));
    assert!(!has_colors(&on_terminal(&mut command("--color never show --db db"))));
    let piped = |arguments: &str| context.ran(&command(arguments).output().expect("it runs"));
    assert!(!has_colors(&piped(shown).stdout));
    assert!(piped("show --db db --color=always").stdout.contains(ok));
    let failed = piped("show --db nowhere --color always");
    assert!(failed.stderr.starts_with("\u{1b}[31merror:\u{1b}[0m "), "{}", failed.stderr);
    failed.err_has("\n\u{1b}[2mhint:\u{1b}[0m ");
    assert!(!has_colors(&piped("shw").stderr));
}

#[test]
fn quiet_and_verbose_runs_differ_in_their_notes() {
    let context = Context::new();
    context.small_database("db");
    let run = |more: &str| rehearse(&context, "db", &("--devices 0 --update all", more)).ended(0);
    let quiet = run("-q");
    assert_eq!(quiet.stderr, "");
    quiet.out_has("SwiGlu");
    assert!(!run("").stderr.contains("\nok: "));
    let verbose = run("--verbose").stderr;
    assert_eq!(verbose.lines().filter(|line| line.starts_with("ok: ")).count(), 2, "{verbose}");
    assert_eq!(context.run("show --db nowhere -q").stderr.lines().count(), 2);
    assert_eq!(context.run("show --db db -q -v").code, 2);
}
