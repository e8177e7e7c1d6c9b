//! Numbers on screen: `show`, the end of `run`, widths, colours, pagers.

use std::{
    collections::BTreeMap,
    env,
    fs::{self, File, Permissions},
    io::Read as _,
    os::{fd::OwnedFd, unix::fs::PermissionsExt as _},
    process::{Command, Stdio},
    thread,
    time::Instant,
};

use nix::{
    pty::{Winsize, openpty},
    sys::resource::{UsageWho, getrusage},
};
use serde_json::Value;

use crate::{
    context::{Context, Ran, SWIGLU, profile},
    rehearsal::{decoder_layer, ledger, rehearse},
};

/// Variable with the number of cases of a large run.
pub(crate) const LARGE_RUN: &str = "NPUBENCH_LARGE_RUN";

fn lines(ran: &Ran) -> Vec<Value> {
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    ran.stdout.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

fn show(context: &Context, more: &[&str]) -> Ran {
    context.run(&[&["show", "--db", "db"], more].concat())
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
    let context = Context::new();
    decoder_layer(&context, "db");
    assert_eq!(rehearse(&context, "db", &["--devices", "0-1"]).code, 0);
    let cases = lines(&show(&context, &["--format", "json"]));
    let mut compared = 0;
    for case in &cases {
        let kernel = case["kernel"].as_str().expect("a name");
        let rows = context.rows("db", kernel);
        let row = rows.iter().find(|row| row["MicroBench Case"] == case["case"].as_str().expect("an id"));
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
    let shown = show(&context, &[]).stdout;
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
    assert_eq!(rehearse(&context, "db", &["--devices", "0"]).code, 0);
    let first = context.rows("db", "SwiGlu").remove(0);
    let other = ["--devices", "0", "--update", "all", "--kernels", "SwiGlu", "--seed", "7"];
    let ran = context.run(
        &[&["run", "--db", "db", "--host", "rehearsal", "--rehearsal-model", "lifelike"], &other[..]]
            .concat(),
    );
    assert!(ran.code <= 1, "{}", ran.stderr);
    let second = context.rows("db", "SwiGlu").remove(0);
    assert_ne!(first["MicroBench Run"], second["MicroBench Run"]);
    let [before, after] = [&first, &second].map(|row| number(row, "MicroBench Median Duration(us)"));
    let shown = lines(&show(&context, &["--format", "json"])).remove(0);
    assert_near(&shown["median_us"], after);
    let change = shown["change_percent"].as_f64().expect("the row had a number");
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
fn a_row_of_another_tool_is_compared_by_its_mean() {
    let context = Context::new();
    context.small_database("db");
    let path = context.path("db/SwiGlu.csv");
    let mut reader = csv::Reader::from_path(&path).expect("a table");
    let header = reader.headers().expect("a header").clone();
    let mut row: Vec<String> =
        reader.records().next().expect("a row").expect("cells").iter().map(str::to_owned).collect();
    let average = header.iter().position(|name| name == "Average Duration(us)").expect("a column");
    row[average] = "50.0".to_owned();
    let mut writer = csv::Writer::from_path(&path).expect("writable");
    writer.write_record(&header).and_then(|()| writer.write_record(&row)).expect("written");
    writer.flush().expect("written");
    drop(writer);
    let ran = rehearse(&context, "db", &["--devices", "0", "--update", "all"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let mean = number(&context.rows("db", "SwiGlu")[0], "Average Duration(us)");
    let cases = lines(&show(&context, &["--format", "json"]));
    let of = |kernel: &str| cases.iter().find(|case| case["kernel"] == kernel).expect("a case");
    let change = of("SwiGlu")["change_percent"].as_f64().expect("a number");
    assert!((change - 100.0 * (mean / 50.0 - 1.0)).abs() < 1e-9, "{change}");
    assert!(of("Add")["change_percent"].is_null());
}

#[test]
fn run_ends_with_numbers_and_its_time() {
    let context = Context::new();
    context.small_database("db");
    let ran = rehearse(&context, "db", &["--devices", "0"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
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

#[test]
fn tables_fit_the_terminal_unless_they_are_wide() {
    let context = Context::new();
    decoder_layer(&context, "db");
    assert_eq!(rehearse(&context, "db", &["--devices", "0-1"]).code, 0);
    for (table, least) in [
        (&["show", "--db", "db"][..], 120),
        (&["runs", "--db", "db"], 90),
        (&["diff", "db", "db", "--all"], 120),
    ] {
        let longest = |columns: Option<&str>, more: &[&str]| {
            let mut command = context.command(&[table, more].concat());
            columns.map(|columns| command.env("COLUMNS", columns));
            let shown = context.ran(&command.output().expect("it runs")).stdout;
            // Sentences begin at the first column, and are broken by the terminal.
            let lines = shown.lines().filter(|line| line.starts_with(' '));
            lines.map(|line| line.chars().count()).max().expect("a line")
        };
        for width in [60, 80, 120, 200] {
            let found = longest(Some(&width.to_string()), &[]);
            assert!(found <= width, "{table:?}: {found} of {width}");
        }
        let whole = longest(None, &[]);
        assert!(whole > least, "{table:?}: {whole}");
        assert_eq!(longest(Some("60"), &["--wide"]), whole);
        assert_eq!(longest(Some("wide"), &[]), whole, "no number");
    }
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
    assert_eq!(rehearse(&context, "db", &["--devices", "0"]).code, 0);
    let with = |own: &str, of_all: &str| {
        let mut command = context.command(&["show", "--db", "db"]);
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
    let doctor = |more: &[&str]| {
        let mut command = context.command(&[&["doctor", "--python", "no-such-python"], more].concat());
        command.env("PATH", &path);
        command
    };
    let line = "waiting for npu-smi, 0:0";
    let (shown, quiet, piped) = thread::scope(|scope| {
        let shown = scope.spawn(|| on_terminal(&mut doctor(&[])));
        let quiet = scope.spawn(|| on_terminal(&mut doctor(&["-q"])));
        let piped = context.ran(&doctor(&[]).output().expect("it runs"));
        (shown.join().expect("shown"), quiet.join().expect("quiet"), piped)
    });
    assert!(shown.contains(line), "{shown}");
    let last = shown.rsplit(line).next().expect("an end");
    assert!(last.contains("\u{1b}[2K") && last.contains("devices: "), "the line is removed: {shown:?}");
    assert!(!quiet.contains(line) && quiet.contains("devices: "), "{quiet}");
    assert_eq!(piped.stderr, "");
}

#[test]
fn colours_are_for_terminals_unless_chosen() {
    let context = Context::new();
    context.small_database("db");
    assert_eq!(rehearse(&context, "db", &["--devices", "0"]).code, 0);
    let command = |arguments: &[&str]| {
        let mut command = context.command(arguments);
        command.env("TERM", "xterm").env("NPUBENCH_PAGER", "cat").env_remove("NO_COLOR");
        command
    };
    let has_colors = |text: &str| text.contains("\u{1b}[");
    let shown = ["show", "--db", "db"];
    let ok = "\u{1b}[32mok\u{1b}[0m";
    assert!(on_terminal(&mut command(&shown)).contains(ok));
    assert!(!has_colors(&on_terminal(command(&shown).env("NO_COLOR", "1"))));
    assert!(!has_colors(&on_terminal(command(&shown).env("TERM", "dumb"))));
    assert!(!has_colors(&on_terminal(&mut command(&["--color", "never", "show", "--db", "db"]))));
    let piped = |arguments: &[&str]| context.ran(&command(arguments).output().expect("it runs"));
    assert!(!has_colors(&piped(&shown).stdout));
    assert!(piped(&["show", "--db", "db", "--color=always"]).stdout.contains(ok));
    let failed = piped(&["show", "--db", "nowhere", "--color", "always"]);
    assert!(failed.stderr.starts_with("\u{1b}[31merror:\u{1b}[0m "), "{}", failed.stderr);
    assert!(failed.stderr.contains("\n\u{1b}[2mhint:\u{1b}[0m "), "{}", failed.stderr);
    assert!(!has_colors(&piped(&["shw"]).stderr));
}

#[test]
fn quiet_and_verbose_runs_differ_in_their_notes() {
    let context = Context::new();
    context.small_database("db");
    let run = |more: &[&str]| {
        let ran = rehearse(&context, "db", &[&["--devices", "0", "--update", "all"], more].concat());
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        ran
    };
    let quiet = run(&["-q"]);
    assert_eq!(quiet.stderr, "");
    assert!(quiet.stdout.contains("SwiGlu"), "{}", quiet.stdout);
    assert!(!run(&[]).stderr.contains("\nok: "));
    let verbose = run(&["--verbose"]).stderr;
    assert_eq!(verbose.lines().filter(|line| line.starts_with("ok: ")).count(), 2, "{verbose}");
    assert_eq!(context.run(&["show", "--db", "nowhere", "-q"]).stderr.lines().count(), 2);
    assert_eq!(context.run(&["show", "--db", "db", "-q", "-v"]).code, 2);
}

#[test]
fn times_on_screen_have_their_zone() {
    let context = Context::new();
    context.small_database("db");
    assert_eq!(rehearse(&context, "db", &["--devices", "0"]).code, 0);
    for (zone, offset) in [("Asia/Shanghai", " +08:00"), ("UTC", " +00:00")] {
        for arguments in
            [&["show", "--db", "db"][..], &["runs", "--db", "db"], &["why", "SwiGlu.csv:2", "--db", "db"]]
        {
            let shown = context.ran(&context.command(arguments).env("TZ", zone).output().expect("it runs"));
            assert!(shown.stdout.contains(offset), "{arguments:?} in {zone}: {}", shown.stdout);
        }
    }
}

/// Adds cases to a run with one measured case, with rows, attempts and samples like those of that case.
pub(crate) fn multiply_cases(context: &Context, count: u32) {
    let path = context.path("db/SwiGlu.csv");
    let text = fs::read_to_string(&path).expect("readable");
    let (header, row) = text.trim_end().split_once('\n').expect("a row");
    let mut connection =
        rusqlite::Connection::open(context.path("db/.npubench/ledger.db")).expect("a ledger");
    let case: String =
        connection.query_row("SELECT case_id FROM planned", [], |row| row.get(0)).expect("a case");
    let mut table = format!("{header}\n{row}\n");
    let transaction = connection.transaction().expect("begun");
    for index in 1..count {
        let new = format!("{:016x}", u64::from(index) << 32);
        let shape = format!("{},6144", 1000 + index);
        table += &row.replace(&case, &new).replace("512,6144", &shape);
        table.push('\n');
        for sql in [
            "INSERT INTO cases SELECT ?1, kernel, replace(signature, '512,6144', ?2) FROM cases WHERE case_id = ?3",
            "INSERT INTO planned SELECT run, 9 + ?4, ?1 FROM planned WHERE run = (SELECT run FROM runs) AND case_id = ?3",
            "INSERT INTO verdicts SELECT run, ?1, verdict, cause, remarks, at_ns FROM verdicts WHERE run = (SELECT run FROM runs) AND case_id = ?3",
            "INSERT INTO attempts (collection, case_id, launched, verdict, cause, remarks, counters)
             SELECT collection, ?1, launched, verdict, cause, remarks, counters FROM attempts WHERE case_id = ?3",
            "INSERT INTO launch_lists
             SELECT (SELECT max(attempt) FROM attempts), states, start_ns, offsets_ns, durations_ns
             FROM launch_lists WHERE attempt = (SELECT min(attempt) FROM attempts)",
        ] {
            // Every statement uses some of the parameters, and all are given.
            let sql = format!(
                "{sql}{}",
                if sql.contains("FROM launch_lists") { "" } else { " AND ?2 || ?4 <> ''" }
            );
            let mut statement = transaction.prepare_cached(&sql).expect("valid");
            let changed = if sql.contains("?1") {
                statement.execute(rusqlite::params![new, shape, case, index])
            } else {
                statement.execute([])
            };
            assert!(changed.expect("inserted") > 0, "{sql}");
        }
    }
    transaction.commit().expect("stored");
    fs::write(path, table).expect("written");
}

/// With `NPUBENCH_LARGE_RUN=100000` and a release build, this is the measurement of time and memory of a large run.
#[test]
fn large_runs_are_shown() {
    let asked: Option<u32> = env::var(LARGE_RUN).ok().map(|count| count.parse().expect("a number of cases"));
    let count = asked.unwrap_or(500);
    let context = Context::new();
    context.write("one.csv", &profile(&[SWIGLU]));
    assert_eq!(context.run(&["ingest", "one.csv", "--db", "db", "--kind", "rehearsal"]).code, 0);
    assert_eq!(rehearse(&context, "db", &["--devices", "0"]).code, 0);
    multiply_cases(&context, count);
    let started = Instant::now();
    let ran = context
        .ran(&context.command(&["show", "--db", "db"]).env("COLUMNS", "120").output().expect("it runs"));
    let seconds = started.elapsed().as_secs_f64();
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let median = number(&context.rows("db", "SwiGlu")[0], "MicroBench Median Duration(us)");
    let shown = ran.stdout.lines().filter(|line| line.contains(&format!(" {median:.3} "))).count();
    assert_eq!(shown, count as usize + 10, "all cases, and the lists of the slowest and of the farthest");
    if asked.is_some() {
        // In KiB on Linux.
        let mebibytes = getrusage(UsageWho::RUSAGE_CHILDREN).expect("known").max_rss() / 1024;
        println!("{count} cases: {seconds:.2} s, {mebibytes} MiB");
        assert!(seconds < 2.0 || cfg!(debug_assertions), "{seconds} s");
        assert!(mebibytes < 200, "{mebibytes} MiB");
    }
}
