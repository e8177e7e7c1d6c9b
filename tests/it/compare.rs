//! `npubench compare`: references of the vendor's tools on real profiles, the right values where these are wrong, and totals.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::prelude::*;
use crate::{
    browser::{browser, show},
    timeline::{kernels_outside_of_steps, objects, write_database, write_text_profile},
};

/// Error of a sum of durations that a kernel table has rounded, in nanoseconds.
pub(crate) const ROUNDING: f64 = 30.0;

/// Name and shapes of a row with the sums of base and other; `None` for a side without it.
type Rows = BTreeMap<(String, String), [Option<Side>; 2]>;

/// Sum of one side of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Side {
    /// Nanoseconds or bytes.
    total: f64,
    calls: f64,
}

pub(crate) fn example(rank: u32) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("examples/decoder_profile/rank{rank}_ascend_pt"))
}

pub(crate) fn compare(base: &Path, other: &Path) -> Vec<Value> {
    compare_with_options(base, other, "")
}

pub(crate) fn compare_with_options(base: &Path, other: &Path, options: &(impl Words + ?Sized)) -> Vec<Value> {
    let context = Context::new();
    let arguments = ["compare", &base.to_string_lossy(), &other.to_string_lossy(), "--format", "json"];
    let ran = context.done(&(&arguments, options));
    ran.json()
}

fn part(objects: &[Value], part: &str) -> Rows {
    let side = |row: &Value, side: &str| {
        let number = |key: &str| row[side][key].float();
        (!row[side].is_null()).then(|| Side { total: number("total"), calls: number("calls") })
    };
    // The number of steps has no total.
    let is_sum = |object: &&Value| object["part"] == part && object["name"] != "steps";
    let rows = objects.iter().filter(|object| object["item"] == "row").filter(is_sum);
    let text = |cell: &Value| cell.text().to_owned();
    rows.map(|row| ((text(&row["name"]), text(&row["shapes"])), [side(row, "base"), side(row, "other")]))
        .collect()
}

fn totals(rows: &Rows, name: &str) -> [f64; 2] {
    let found = &rows[&(name.to_owned(), String::new())];
    found.map(|side| side.expect("recorded").total)
}

pub(crate) fn reference(name: &str) -> Option<Value> {
    let path = shared(&format!("real/model_analysis/{name}"))?;
    Some(serde_json::from_str(&fs::read_to_string(path).expect("read")).expect("JSON"))
}

pub(crate) fn sheet<'a>(reference: &'a Value, name: &str) -> Vec<&'a Vec<Value>> {
    let rows = reference[name]["rows"].list();
    rows.iter().map(crate::context::Json::list).collect()
}

fn assert_total(found: f64, expected_us: f64, error: f64, what: &str) {
    assert!(
        (found - expected_us * 1e3).abs() <= error,
        "{what}: {found} ns, the reference has {expected_us} us"
    );
}

/// Level 0 has no types: the reference puts its kernels into `Other` and leaves 0 in all classes.
#[test]
fn what_one_profile_lacks_is_not_compared_and_never_zero() {
    let (Some(level1), Some(level0), Some(table)) =
        (shared("real/cnn_level1_rank0"), shared("real/cnn_level0_rank0"), shared("real/llm_step_rank0"))
    else {
        return;
    };
    let found = compare(&level1, &level0);
    assert_eq!(found[0]["by_kernel_name"], true);
    assert!(part(&found, "kernel_class").is_empty() && part(&found, "memory").is_empty());
    let missing = found[0]["not_compared"].to_string();
    assert!(
        missing.contains("types, shapes and classes of kernels") && missing.contains("memory"),
        "{missing}"
    );
    assert_total(
        totals(&part(&found, "overall"), "computing")[1],
        8_827.473,
        ROUNDING,
        "computing of level 0",
    );
    // A table of kernels alone has neither operators nor modules; the vendor's tool refuses it.
    let found = compare(&table, &level1);
    assert!(part(&found, "operator").is_empty() && part(&found, "module").is_empty());
    let missing = found[0]["not_compared"].to_string();
    assert!(missing.contains("operators") && missing.contains("modules"), "{missing}");
    let ratios =
        found.iter().filter(|row| row["item"] == "row" && (row["base"].is_null() || row["other"].is_null()));
    assert!(ratios.clone().count() > 10 && ratios.into_iter().all(|row| row["ratio"].is_null()));
}

/// All pairs of real profiles and of the example: each difference is attributed, and sums of parts are the whole.
#[test]
fn parts_add_up_to_the_difference_of_all_pairs() {
    let mut profiles = vec![example(0), example(1)];
    let real = ["cnn_level1_rank0", "cnn_db_level1_rank0", "cnn_level0_rank0", "llm_step_rank0"];
    profiles.extend(real.iter().filter_map(|name| shared(&format!("real/{name}"))));
    profiles.extend(shared("real/model_analysis/gpu_alexnet_a100.pt.trace.json"));
    for (place, base) in profiles.iter().enumerate() {
        // Each profile with itself and the two after it.
        for other in (0..3).map(|step| &profiles[(place + step) % profiles.len()]) {
            let found = compare(base, other);
            let what = format!("{} {}", base.display(), other.display());
            let difference = found[0]["span_difference_ns"].float();
            let parts = found.iter().filter(|object| object["item"] == "difference");
            let parts: Vec<f64> = parts.map(|part| part["difference_ns"].float()).collect();
            assert!((parts.iter().sum::<f64>() - difference).abs() < 1.0, "{what}: {parts:?} {difference}");
            if base == other {
                assert!(parts.is_empty(), "{what}: {parts:?}");
            }
            let overall = part(&found, "overall");
            let [span, computing, communication, free] =
                ["span of the step", "computing", "communication, not overlapped", "free"]
                    .map(|name| totals(&overall, name));
            for side in 0..2 {
                let sum = computing[side] + communication[side] + free[side];
                assert!((span[side] - sum).abs() < 1.0, "{what}");
                let sum_of = |name: &str| -> Option<f64> {
                    let rows = part(&found, name);
                    let sums = rows.values().filter_map(|sides| Some(sides[side]?.total));
                    (!rows.is_empty()).then(|| sums.sum())
                };
                let kernels = sum_of("kernel").expect("kernels");
                if let Some(sum) = sum_of("kernel_class") {
                    assert!((sum - kernels).abs() < 1.0, "{what}: {sum} {kernels}");
                }
                assert!(kernels >= computing[side] - 1.0, "{what}: a union is no longer than its parts");
                if let Some(modules) = sum_of("module") {
                    let device = kernels + sum_of("collective").unwrap_or_default();
                    assert!((modules - device).abs() < 1.0, "{what}: {modules} in modules, {device} in all");
                }
            }
        }
    }
}

#[test]
fn example_is_printed_with_the_difference_of_its_ranks() {
    let context = Context::new();
    let run = |more: &str| {
        let profiles = [0, 1].map(|rank| example(rank).to_string_lossy().into_owned());
        let ran = context.done(&(&["compare", &profiles[0], &profiles[1]], more));
        ran.stdout.replace(env!("CARGO_MANIFEST_DIR"), "PROJECT")
    };
    let csv = run("--format csv");
    let table = csv.lines().take(12).collect::<Vec<_>>().join("\n");
    insta::assert_snapshot!(format!("{}---\n{table}", run("--rows 6")));
}

/// One file that opens without a network, with all rows.
#[test]
fn page_has_all_rows_and_no_reference_to_a_network() {
    let context = Context::new();
    let profiles = [0, 1].map(|rank| example(rank).to_string_lossy().into_owned());
    context.done(&["compare", &profiles[0], &profiles[1], "--html", "page.html"]);
    let page = context.read("page.html");
    let found = compare(&example(0), &example(1));
    for object in found.iter().filter(|object| object["item"] == "row") {
        let total = |side: &str| object[side]["total"].as_f64().unwrap_or_default();
        if object["name"] != "steps" && total("base") + total("other") > 0.0 {
            let name = object["name"].text().replace('&', "&amp;").replace('<', "&lt;");
            assert!(page.contains(name.split('"').next().unwrap_or_default()), "{name}");
        }
    }
    for address in ["http://", "https://", "src=", "@import", "url("] {
        assert!(!page.contains(address), "{address}");
    }
}

/// Chromium at the width of a desk and of a telephone: rows are sorted by a click and found by a search, and the page is not
/// wider than the screen.
#[test]
fn page_works_in_a_browser() {
    let Some(browser) = browser() else { return };
    let context = Context::new();
    let profiles = [0, 1].map(|rank| example(rank).to_string_lossy().into_owned());
    context.done(&["compare", &profiles[0], &profiles[1], "--html", "page.html"]);
    let script = r#"(() => {
      const table = [...page.querySelectorAll("table")].find(table => table.rows.length > 4 && table.textContent.includes("RmsNorm"));
      const names = () => [...table.tBodies[0].rows].filter(row => !row.hidden).map(row => row.cells[0].textContent);
      const heads = table.querySelectorAll("th");
      const before = names();
      heads[2].click(); const largest = names();
      heads[2].click(); const least = names();
      heads[0].click(); const byName = names();
      const search = page.getElementById("filter");
      search.value = "rmsnorm"; search.dispatchEvent(new Event("input"));
      return {before, largest, least, byName, found: names(), width: page.documentElement.scrollWidth};
    })()"#;
    for width in [1200, 400] {
        let shown = show(&browser, &context, "page.html", width, script);
        assert_eq!(shown.console, Vec::<String>::new(), "{width}");
        let names = |key: &str| -> Vec<&str> {
            shown.value[key]
                .as_array()
                .unwrap_or_else(|| panic!("{}", shown.value))
                .iter()
                .filter_map(Value::as_str)
                .collect()
        };
        let by_time = ["MatMulV2", "FusedInferAttentionScore", "RmsNorm", "SwiGlu", "Add"];
        assert_eq!(names("largest"), by_time);
        assert_eq!(names("least"), by_time.into_iter().rev().collect::<Vec<_>>());
        let mut sorted = names("before");
        sorted.sort_unstable();
        assert_eq!(names("byName"), sorted);
        assert_eq!(names("found"), ["RmsNorm"]);
        assert!(
            shown.value["width"].as_u64().is_some_and(|found| found <= width.into()),
            "{width}: {}",
            shown.value
        );
    }
}

#[test]
fn unusable_input_is_named_with_a_hint() {
    let context = Context::new();
    let profile = example(0).to_string_lossy().into_owned();
    context.write("empty/ascend_pytorch_profiler_0.db", "");
    let trace = fs::read(example(0).join("ASCEND_PROFILER_OUTPUT/trace_view.json")).expect("a trace");
    context.write("cut/trace_view.json", &String::from_utf8_lossy(&trace[..trace.len() / 2]));
    context.write("text/notes.txt", "no profile");
    let collectives = context.path("collectives/ascend_pytorch_profiler_0.db");
    write_database(&collectives, "DROP TABLE COMPUTE_TASK_INFO");
    let mut errors = String::new();
    for arguments in [
        vec!["compare", "nothere", &profile],
        vec!["compare", &profile, "text"],
        vec!["compare", "text/notes.txt", &profile],
        vec!["compare", "empty", &profile],
        vec!["compare", &profile, "cut"],
        vec!["compare", &profile, &profile, "--step", "99"],
        vec!["compare", &profile, &profile, "--step", "7,99"],
        vec!["compare", &profile, "collectives"],
        vec!["compare", &profile, &profile, "--rank", "7"],
        vec!["compare", &profile],
    ] {
        let ran = context.run(&arguments);
        assert!(ran.code >= 2 && ran.stdout.is_empty(), "{arguments:?}: {}{}", ran.code, ran.stdout);
        errors += &format!("{}\n{}", ran.code, ran.stderr.replace(env!("CARGO_MANIFEST_DIR"), "PROJECT"));
    }
    insta::assert_snapshot!(errors);
}

pub(crate) fn rows_of<'a>(objects: &'a [Value], part: &str) -> Vec<&'a Value> {
    objects.iter().filter(|object| object["item"] == "row" && object["part"] == part).collect()
}

/// Returns total and calls of a side; both 0 if the run has nothing of the name.
pub(crate) fn total_and_calls(side: &Value) -> (f64, f64) {
    (side["total"].as_f64().unwrap_or_default(), side["calls"].as_f64().unwrap_or_default())
}

#[test]
fn a_selected_step_has_its_own_modules_and_operators() {
    let context = Context::new();
    write_text_profile(&context, "text_ascend_pt", 0);
    write_database(&context.path("db_ascend_pt/ascend_pytorch_profiler_0.db"), "");
    let run = |options: &[&str]| {
        let arguments = "compare text_ascend_pt db_ascend_pt --format json";
        context.run(&(arguments, options)).json()
    };
    let sum = |output: &[Value], part: &str, side: &str| -> (f64, f64) {
        let sums = rows_of(output, part).into_iter().map(|row| total_and_calls(&row[side]));
        sums.fold((0.0, 0.0), |sum, own| (sum.0 + own.0, sum.1 + own.1))
    };
    let mut calls = Vec::new();
    for step in ["7", "8"] {
        let output = run(&["--step", step]);
        for side in ["base", "other"] {
            let device = sum(&output, "kernel", side).0 + sum(&output, "collective", side).0;
            assert!(device > 0.0);
            assert_eq!(sum(&output, "module", side).0, device, "{step} {side}");
        }
        // Both forms of one run are equal.
        assert!(output.iter().all(|object| object["item"] != "difference"), "{output:?}");
        calls.push(sum(&output, "operator", "other").1);
    }
    let both = sum(&run(&["--step", "7,8"]), "operator", "other").1;
    assert_eq!(calls[0] + calls[1], 2.0 * both, "{calls:?}");
    assert_ne!(calls[0], calls[1]);
}

/// Compares the synthetic run with one that has more records, as databases.
fn compare_with(statements: &str, options: &[&str]) -> (Vec<Value>, String) {
    let context = Context::new();
    write_database(&context.path("base/ascend_pytorch_profiler_0.db"), "");
    write_database(&context.path("other/ascend_pytorch_profiler_0.db"), statements);
    let run = |format: &str| {
        let ran = context.run(&(&["compare", "base", "other", "--format", format], options));
        assert_eq!((ran.code, &*ran.stderr), (0, ""));
        ran.stdout
    };
    (objects(&run("json")), run("csv"))
}

/// Kernels before and behind the steps are no part of them, and are not lost.
#[test]
fn work_outside_of_the_steps_has_a_row_of_its_own() {
    let (output, _) = compare_with(&kernels_outside_of_steps(), &[]);
    assert!(output.iter().all(|object| object["item"] != "difference"), "{output:?}");
    for (key, sides) in part(&output, "kernel") {
        assert_eq!(sides[0], sides[1], "{key:?}");
    }
    let overall = part(&output, "overall");
    let outside = overall[&("outside of all steps, whole run".to_owned(), String::new())];
    assert_eq!(outside, [None, Some(Side { total: 3_000.0, calls: 3.0 })]);
    // Kernels of the database: 44,500 ns in two steps, without the one of the collective.
    let kernels: f64 = part(&output, "kernel").values().filter_map(|sides| Some(sides[1]?.total)).sum();
    assert_eq!(kernels * 2.0, 44_500.0);
}

#[test]
fn a_call_at_the_end_of_a_step_belongs_to_the_next_one() {
    let call = "INSERT INTO STRING_IDS VALUES (900, 'aten::boundary');
                INSERT INTO PYTORCH_API VALUES
                  ('1700000000000100000', '1700000000000100400', 17179869184001, NULL, 900, 50001)";
    for (step, calls) in [("7", None), ("8", Some(1.0))] {
        let (output, _) = compare_with(call, &["--step", step]);
        for name in ["operator", "host_call"] {
            let found = part(&output, name);
            let side = found.get(&("aten::boundary".to_owned(), String::new())).and_then(|sides| sides[1]);
            assert_eq!(side.map(|side| side.calls), calls, "{step} {name}");
        }
    }
}

#[test]
fn numbers_that_are_not_recorded_are_null_and_zero_has_no_sign() {
    let (output, csv) = compare_with("", &[]);
    let mut with_extremes = std::collections::BTreeSet::new();
    for row in output.iter().filter(|object| object["item"] == "row") {
        let (name, side) = (row["part"].text(), &row["base"]);
        if !side["shortest"].is_null() {
            let [shortest, longest] = ["shortest", "longest"].map(|key| side[key].float());
            let mean = side["mean"].float();
            assert!(0.0 < shortest && shortest <= mean && mean <= longest, "{row}");
            with_extremes.insert(name);
        }
        assert_eq!(side["shortest"].is_null(), side["longest"].is_null(), "{row}");
    }
    let expected = ["collective", "collective_task", "host_call", "kernel", "kernel_class", "kernel_type"];
    assert_eq!(with_extremes.into_iter().collect::<Vec<_>>(), expected);
    let steps = output.iter().find(|row| row["name"] == "steps").expect("a row");
    assert!(steps["base"]["total"].is_null() && steps["difference"].is_null(), "{steps}");
    assert_eq!(steps["base"]["calls"], 2.0);
    assert!(csv.contains("\nmodule,[outside modules],,0,0,0,0,0,"), "{csv}");
    assert!(csv.lines().all(|line| line.split(',').all(|cell| cell != "-0")), "{csv}");
}
