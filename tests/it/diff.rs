//! `diff`: two databases, or two runs of one, compared case by case.

use std::fs;

use serde_json::Value;

use crate::prelude::*;

fn measure(context: &Context, name: &str, more: &(impl Words + ?Sized)) {
    let run = ["run", "--db", name, "--host", "rehearsal", "--devices", "0-3"];
    context.run_all_rounds(&(run, "--rehearsal-model lifelike", more)).ended(0);
}

/// Measures a copy of the database until each case has an interval over collections.
fn measured_copy(context: &Context, name: &str, more: &(impl Words + ?Sized)) {
    context.done(&["db", "copy", "db", name, "--kind", "rehearsal"]);
    measure(context, name, more);
}

fn cases(context: &Context, arguments: &(impl Words + ?Sized)) -> Vec<Value> {
    let ran = context.done(&("diff", arguments, "--format json"));
    ran.json()
}

/// Kernels on a clock that is 6 % lower: each case is slower by about 6 %, in as many cycles.
#[test]
fn lower_clock_of_all_devices_is_found_in_every_case() {
    let context = Context::of_layer();
    fs::write(context.path("slow.yaml"), "faults:\n- slow_kernels: {factor: 1.06}\n").expect("written");
    measured_copy(&context, "first", "--seed 1");
    measured_copy(&context, "second", "--seed 2 --rehearsal-faults slow.yaml");
    let found = cases(&context, "first second");
    assert_eq!(found.len(), 20);
    // Which collections a case shares depends on which device is free first, and an interval misses the truth in one of 20 cases:
    // in more than four of 20 by chance in 3 of 1,000 runs.
    let [low, high] = [0, 1].map(|end| move |case: &Value| case["interval_percent"][end].float());
    let count = |holds: &dyn Fn(&Value) -> bool| found.iter().filter(|case| holds(case)).count();
    assert!(found.iter().all(|case| low(case) > 0.0 && high(case) < 15.0), "{found:?}");
    assert!(count(&|case| low(case) < 6.0 && high(case) > 6.0) >= 16, "{found:?}");
    let slow = count(&|case| case["verdict"] == "SLOW");
    let ambiguous = count(&|case| case["verdict"] == "AMBIGUOUS");
    assert!(slow >= 18 && slow + ambiguous == 20, "{found:?}");
    assert!(found.iter().all(|case| case["cycles_percent"].float().abs() < 5.0), "{found:?}");
    // The clock explains it wherever the cycles of short kernels do not vary as much.
    let of_clock = found.iter().filter(|case| case["remark"] == "the same cycles: the clock differs");
    assert!(of_clock.count() >= 10);
    let swapped = cases(&context, "second first --kernels MatMulV3");
    assert_eq!(swapped.len(), 5);
    assert!(swapped.iter().all(|case| case["verdict"] == "FAST"), "{swapped:?}");

    let plain = context.exits(1, "diff first second --fail-on-slow");
    let counts = format!("{slow} SLOW, 0 FAST, 0 SAME, {ambiguous} AMBIGUOUS at a margin of 2 %");
    plain.out_has(&counts);
    plain.out_has("20 cases in both, 0 only in A, 0 only in B");
}

#[test]
fn withdrawn_results_of_a_side_are_stated() {
    let context = Context::new();
    context.small_database("db");
    measured_copy(&context, "first", "");
    measured_copy(&context, "second", "");
    let ledger = rusqlite::Connection::open(context.path("second/.npubench/ledger.db")).expect("a ledger");
    let withdraw = r#"UPDATE attempts SET verdict = 'throttled', cause = '{"cause":"recorded","text":"a low clock"}', is_withdrawn = 1
                    WHERE case_id IN (SELECT case_id FROM cases WHERE kernel = 'Add')"#;
    ledger.execute_batch(withdraw).expect("withdrawn");
    for (sides, [only, other]) in [(["first", "second"], ["A", "B"]), (["second", "first"], ["B", "A"])] {
        let ran = context.done(&["diff", sides[0], sides[1]]);
        let note = format!(
            "1 of the cases only in {only} failed in {other}: 1 throttled; 1 of them withdrawn; the first is Add "
        );
        assert!(ran.stderr.contains(&note) && ran.stderr.contains(": a low clock"), "{}", ran.stderr);
    }
    let same = context.run("diff first first");
    same.err_lacks("failed in");
}

/// A run compared with its database, and databases without measurements or of another kind.
#[test]
fn sides_are_folders_or_runs_and_have_measurements_of_one_kind() {
    let context = Context::new();
    context.small_database("db");
    measured_copy(&context, "first", "");
    let ids = context.run("runs --db first --format json");
    let run: Value = serde_json::from_str(ids.stdout.lines().next().expect("a run")).expect("JSON");
    let side = format!("first@{}", run["run"].text());
    let same = cases(&context, &[&side, "first@last"]);
    assert!(same.iter().all(|case| case["change_percent"] == 0.0), "{same:?}");
    assert!(
        same.iter().all(|case| matches!(case["verdict"].as_str(), Some("SAME" | "AMBIGUOUS"))),
        "{same:?}"
    );
    context.done(&["diff", &side, "first", "--fail-on-slow"]);

    context.done("db copy db npu --kind npu");
    context.done("db copy db once --kind rehearsal");
    context.done("run --db once --host rehearsal");
    let once = context.run("diff first once");
    once.err_has("2 of the cases of both sides have no interval over collections");
    once.err_has("2 AMBIGUOUS cases are known less well in B: `npubench run --db ");
    for (second, problem) in [
        ("db", "db` has no measurements of npubench"),
        ("npu", "A is of kind rehearsal and B of kind npu"),
        ("first@zz", "the id of no run of this database begins with `zz`"),
        ("none", "none` is not a database folder"),
    ] {
        let refused = context.run(&["diff", "first", second]);
        assert_eq!((refused.code, refused.stdout.as_str()), (3, ""), "{second}: {}", refused.stderr);
        refused.err_has(problem);
    }
    context.exits(2, "diff first first --margin 0");
}

/// A second night has one collection per case: the first one shows how much collections differ, so that an equal night is SAME.
/// `last` is the newest run with measurements.
#[test]
fn one_collection_per_case_is_compared_by_the_variance_of_the_whole_ledger() {
    let context = Context::of_layer();
    measured_copy(&context, "first", "--seed 1");
    measured_copy(&context, "second", "--seed 2");
    let once = "--update all --max-collections 1";
    measure(&context, "second", &(once, "--seed 3"));
    measure(&context, "second", "--kernels SwiGlu");
    let runs = context.run("runs --db second --format json");
    let runs: Vec<Value> = runs.json();
    let id = |run: usize| runs[run]["run"].text().to_owned();

    let verdicts = |arguments: &[&str]| {
        let found = cases(&context, arguments);
        let count = |verdict: &str| found.iter().filter(|case| case["verdict"] == verdict).count();
        [count("SLOW"), count("FAST"), count("SAME"), count("AMBIGUOUS")]
    };
    let [slow, fast, same, ambiguous] = verdicts(&["second@last", "first", "--margin", "5"]);
    assert!(slow + fast == 0 && same >= 15 && same + ambiguous == 20, "{slow} {fast} {same} {ambiguous}");
    let nights = [id(0), id(1)].map(|run| format!("second@{run}"));
    let [slow, fast, same, _] = verdicts(&[&nights[0], &nights[1], "--margin", "5"]);
    assert!(slow + fast == 0 && same >= 15, "{slow} {fast} {same}");
    let plain = context.run("diff second@last first");
    let name = format!("second@{} (its last run with measurements; 1 run later without one): 20", id(1));
    plain.out_has(&name);
}
