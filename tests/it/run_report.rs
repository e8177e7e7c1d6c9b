//! `npubench report`: the page of a run in a real browser, markdown, and JUnit.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::{Command, Stdio},
    sync::LazyLock,
};

use rusqlite::{Connection, OpenFlags};
use serde_json::Value;

use crate::browser::{browser, show};
use crate::prelude::*;

fn crashed() -> Context {
    static CRASHED: LazyLock<Files> = LazyLock::new(|| {
        let context = Context::of_layer();
        context.write("faults.yaml", "faults:\n  - crash: {at: launch}\n    where: {kernel: SwiGlu}\n");
        context.exits(1, &(STEADY_RUN, "--rehearsal-faults faults.yaml"));
        context.snapshot("db")
    });
    Context::of_files(&CRASHED)
}

#[test]
fn page_has_failures_with_logs_and_a_table_that_is_searched_and_sorted() {
    let context = crashed();
    let ran = context.run("report --db db --output night.html");
    assert_eq!((ran.code, &*ran.stdout), (0, ""), "{}", ran.stderr);
    let page = context.read("night.html");
    for address in ["http://", "https://", "src=", "@import", "url("] {
        assert!(!page.replace("http://www.w3.org/2000/svg", "").contains(address), "{address}");
    }
    let excerpts: Vec<&str> =
        page.split("<pre>").skip(1).filter_map(|rest| rest.split("</pre>").next()).collect();
    assert!(!excerpts.is_empty() && excerpts.iter().all(|lines| lines.lines().count() > 1), "{excerpts:?}");
    let shown = context.run("show --db db --format json");
    let cases: Vec<Value> = shown.json();
    let failed: Vec<&Value> = cases.iter().filter(|case| case["kernel"] == "SwiGlu").collect();
    assert!(!failed.is_empty() && failed.len() < cases.len());
    let Some(browser) = browser() else { return };
    let script = r#"(async () => {
      while (page.body.dataset.ready !== "true") await new Promise(done => setTimeout(done, 5));
      const rows = () => [...page.getElementById("cases").tBodies[0].rows].map(row => [...row.cells].map(cell => cell.textContent));
      const heads = page.getElementById("cases").tHead.rows[0].cells;
      const all = rows();
      heads[3].click(); const longest = rows().map(row => row[3]);
      heads[3].click(); const shortest = rows().map(row => row[3]);
      const search = page.getElementById("search");
      search.value = "swiglu"; search.dispatchEvent(new Event("input")); const found = rows();
      search.value = " glu  SWI "; search.dispatchEvent(new Event("input")); const words = rows();
      search.value = ""; search.dispatchEvent(new Event("input"));
      const verdict = page.getElementById("verdict");
      verdict.value = "ok"; verdict.dispatchEvent(new Event("change")); const good = rows();
      return {all, longest, shortest, found, words, good, text: page.body.textContent, plots: page.querySelectorAll("svg").length,
              logs: [...page.querySelectorAll("pre")].map(log => log.textContent), width: page.documentElement.scrollWidth};
    })()"#;
    for width in [1200, 400] {
        let shown = show(&browser, &context, "night.html", width, script);
        assert_eq!(shown.console, Vec::<String>::new(), "{width}");
        let list =
            |key: &str| shown.value[key].as_array().unwrap_or_else(|| panic!("{}", shown.value)).clone();
        assert_eq!(list("all").len(), cases.len());
        assert_eq!(list("found").len(), failed.len());
        assert_eq!(list("words").len(), failed.len());
        assert_eq!(list("good").len(), cases.iter().filter(|case| case["verdict"] == "ok").count());
        let numbers = |key: &str| -> Vec<f64> {
            list(key).iter().filter_map(|cell| cell.text().parse().ok()).collect()
        };
        let (longest, shortest) = (numbers("longest"), numbers("shortest"));
        assert!(
            longest.is_sorted_by(|one, other| one >= other) && shortest.is_sorted(),
            "{longest:?} {shortest:?}"
        );
        assert!(shown.value["plots"].as_u64().is_some_and(|plots| plots >= 4), "{}", shown.value["plots"]);
        let text = shown.value["text"].text();
        assert!(
            text.contains("Rehearsal: all durations are simulated")
                && text.contains("the process ended while it ran")
        );
        let logs = list("logs");
        assert!(
            logs.iter().any(|log| log.as_str().is_some_and(|lines| lines.lines().count() > 1)),
            "{logs:?}"
        );
        assert!(
            shown.value["width"].as_u64().is_some_and(|found| found <= width.into()),
            "{width}: {}",
            shown.value["width"]
        );
    }
}

#[test]
fn run_is_written_as_markdown_and_junit() {
    let context = crashed();
    let ran = context.done("report --db db --format markdown --junit results.xml");
    let cause =
        ran.stdout.lines().find(|line| line.contains("the process ended while it ran")).expect("a cause");
    assert!(
        cause.starts_with("| ") && ran.stdout.contains("**rehearsal: simulated durations**"),
        "{}",
        ran.stdout
    );
    // The parser of Python is not that of this program.
    let script = "import sys, json, xml.etree.ElementTree as t; r = t.parse(sys.argv[1]).getroot(); c = list(r.iter('testcase')); \
                  print(json.dumps([len(c), [x.get('classname') for x in c if x.find('failure') is not None], r.get('tests'), \
                  len([x for x in c if x.find('properties') is not None])]))";
    let output = Command::new("python3").args(["-c", script]).arg(context.path("results.xml")).output();
    let output = output.expect("python3");
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let shown = context.run("show --db db --format json");
    let cases: Vec<Value> = shown.json();
    assert_eq!(found[0], cases.len());
    assert_eq!(found[2].as_str().and_then(|count| count.parse().ok()), Some(cases.len()));
    let failed = cases.iter().filter(|case| case["kernel"] == "SwiGlu").count();
    assert_eq!(found[1].as_array().map(Vec::len), Some(failed), "{found}");
    assert!(found[3].as_u64().is_some_and(|measured| measured > 5), "{found}");
}

/// Tests of a run as JUnit: verdicts by case with `success`, `failure`, `error` or `skipped`, and the medians.
fn junit(context: &Context, run: &str) -> BTreeMap<String, (String, Option<f64>)> {
    context.done(&["report", run, "--db", "db", "--format", "markdown", "--junit", "results.xml"]);
    let script = "import sys, json, xml.etree.ElementTree as t
kind = lambda c: next((k for k in ('failure', 'error', 'skipped') if c.find(k) is not None), 'success')
median = lambda c: next((float(p.get('value')) for p in c.iter('property') if p.get('name') == 'median_us'), None)
print(json.dumps({c.get('name').split()[0]: (kind(c), median(c)) for c in t.parse(sys.argv[1]).getroot().iter('testcase')}))";
    let output = Command::new("python3").args(["-c", script]).arg(context.path("results.xml")).output();
    serde_json::from_slice(&output.expect("python3").stdout).expect("JSON")
}

/// A run whose rows a later one has replaced, one with a crash, and one that was killed.
#[test]
fn numbers_and_results_are_those_of_the_run() {
    let context = Context::of_layer();
    context.write("faults.yaml", "faults:\n  - crash: {at: launch}\n    where: {kernel: SwiGlu}\n");
    let run = |seed: &'static str, further: &str| {
        (LIFELIKE_RUN, ["--update", "all", "--seed", seed], further).words().join(" ")
    };
    for (arguments, code) in [(run("1", ""), 0), (run("2", "--rehearsal-faults faults.yaml"), 1)] {
        let ran = context.run(&arguments.split(' ').collect::<Vec<_>>());
        assert_eq!(ran.code, code, "{}", ran.stderr);
    }
    let killed = run("3", "");
    let mut killed = context.command(&killed.split(' ').collect::<Vec<_>>());
    let mut killed = killed.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs");
    let ledger = context.path("db/.npubench/ledger.db");
    wait_for("a collection of the third run", || {
        let count =
            Connection::open_with_flags(&ledger, OpenFlags::SQLITE_OPEN_READ_ONLY).and_then(|ledger| {
                let sql = "SELECT count(*) FROM collections WHERE run = (SELECT max(run) FROM runs)
                       AND (SELECT count(*) FROM runs) = 3";
                ledger.query_row(sql, [], |row| row.get::<_, i64>(0))
            });
        count.is_ok_and(|count| count > 0).then_some(())
    });
    killed.kill().expect("killed");
    killed.wait().expect("ended");
    let runs = context.run("runs --db db --format json").stdout;
    let runs: Vec<Value> = runs.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(runs.len(), 3);
    let (mut kinds, mut medians) = (BTreeSet::new(), 0);
    for run in &runs {
        let run = run["run"].text();
        let shown = context.run(&["show", run, "--db", "db", "--format", "json"]).stdout;
        let tests = junit(&context, run);
        for case in shown.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON")) {
            let (kind, median) = &tests[case["case"].text()];
            let expected = match case["verdict"].as_str() {
                Some("ok" | "ran_as_other") => "success",
                Some("not_run" | "unsupported" | "no_entry") => "skipped",
                None => "error",
                Some(_) => "failure",
            };
            assert_eq!(kind, expected, "{case}");
            let shown = case["median_us"].as_f64().map(|median| (median * 1e3).round());
            assert_eq!(median.map(|median| (median * 1e3).round()), shown, "{case}");
            medians += usize::from(shown.is_some());
            kinds.insert(expected);
        }
    }
    assert!(
        kinds.is_superset(&BTreeSet::from(["error", "failure", "success"])) && medians > 20,
        "{kinds:?} {medians}"
    );
    // All cases of one crash are one cause, and one of the cases to look at.
    let second = runs
        .iter()
        .find(|run| run["exit_code"] == 1)
        .and_then(|run| run["run"].as_str())
        .expect("the second run");
    let markdown = context.run(&["report", second, "--db", "db", "--format", "markdown"]).stdout;
    let lines: Vec<&str> = markdown.lines().filter(|line| line.contains("| quarantined |")).collect();
    assert_eq!(lines.len(), 1, "{markdown}");
    assert_eq!(
        markdown.lines().filter(|line| line.contains("quarantined: crashed: ")).count(),
        1,
        "{markdown}"
    );
    let unfinished = runs.iter().find(|run| run["exit_code"].is_null()).and_then(|run| run["run"].as_str());
    context.done(&["report", unfinished.expect("the third run"), "--db", "db", "--output", "open.html"]);
    let page = context.read("open.html");
    assert!(page.contains("open: the run has not finished it") && !page.contains("Each case has a result"));
}

/// A run that was killed before its first result, and one that had nothing to measure, have nothing to praise.
#[test]
fn reports_of_runs_without_results_state_that() {
    let context = Context::of_measured_layer();
    assert!(context.run(&STEADY_RUN).code <= 1);
    let runs = context.run("runs --db db --format json").stdout;
    let last: Value = serde_json::from_str(runs.lines().last().expect("a run")).expect("JSON");
    let last = last["run"].text();
    context.done(&["report", last, "--db", "db", "--output", "empty.html"]);
    let page = context.read("empty.html");
    for (text, is_expected) in [
        ("The run has no cases", true),
        ("no case has been measured", true),
        ("all intervals are narrow", false),
        ("Each case has a result", false),
    ] {
        assert_eq!(page.contains(text), is_expected, "{text}");
    }
    let markdown = context.run(&["report", last, "--db", "db", "--format", "markdown"]).stdout;
    assert!(markdown.contains("0 cases: none was left to measure"), "{markdown}");
}

/// Rows that the run was the first to measure are missing before it.
#[test]
fn coverage_of_a_workload_is_that_before_and_after_the_run() {
    let context = Context::new();
    let grid = "grid SwiGlu --db db --kind rehearsal --rows 4";
    context.done(grid);
    context.done(&STEADY_RUN);
    let row = context.rows("db", "SwiGlu")[0]["Input Shapes"].trim_matches('"').to_owned();
    context.write("work.csv", &format!("op,inputs,dtypes,count\nSwiGlu,\"{row}\",bf16,10\n"));
    context.done("report --db db --output night.html --workload work.csv");
    let page = context.read("night.html");
    let text = page.split("Coverage before and after").nth(1).expect("the section");
    let measured = text.lines().find(|line| line.contains("<td>measured</td>")).expect("a row");
    assert!(measured.contains("0.0 %") && measured.contains("100.0 %"), "{measured}");
}

#[test]
fn unusable_names_and_runs_are_refused() {
    let context = crashed();
    for (arguments, problem) in [
        (&["report", "--db", "db", "--output", "night.txt"][..], "does not end in `.html`"),
        (&["report", "--db", "db", "--output", "db/night.html"], "is in the database's folder"),
        (&["report", "--db", "db", "nosuchrun"], "nosuchrun"),
        (&["report", "--db", "missing"], "is not a database folder"),
        (&["report", "--db", "db", "--format", "markdown", "--output", "a.html"], "has neither a file nor"),
        (&["report", "--db", "db", "--format", "markdown", "--workload", "a.csv"], "has neither a file nor"),
    ] {
        let ran = context.run(arguments);
        assert!(ran.code >= 2 && ran.stderr.contains(problem), "{arguments:?}: {}", ran.stderr);
    }
}
