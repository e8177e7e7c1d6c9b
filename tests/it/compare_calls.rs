//! `npubench compare --calls`: single calls of operators and modules, against their sums and against all references of the
//! vendor's tool.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::prelude::*;
use crate::{
    compare::{compare_with_options, example, rows_of},
    compare_vendor_sums::own_module,
    compare_vendor_tables::GPU,
    timeline::{write_database, write_text_profile},
};

fn calls_of<'a>(found: &'a [Value], part: &str) -> Vec<&'a Value> {
    found.iter().filter(|object| object["item"] == "call" && object["part"] == part).collect()
}

fn total(side: &Value) -> f64 {
    side["total_ns"].float()
}

fn assert_sums(found: &[Value], [calls, sums]: [&str; 2], key: &dyn Fn(&str) -> String, what: &str) {
    for (side, steps) in [("base", "base_steps"), ("other", "other_steps")] {
        let steps = found[0][steps].float();
        let mut of_calls: BTreeMap<String, (f64, f64)> = BTreeMap::new();
        for call in calls_of(found, calls).into_iter().filter(|call| !call[side].is_null()) {
            let time =
                if sums == "module" { call[side]["self_ns"].as_f64() } else { Some(total(&call[side])) };
            let sum = of_calls.entry(key(call["name"].text())).or_default();
            // Kernels without an operator are no calls.
            let is_call = call["name"] != "[outside operators]";
            *sum = (sum.0 + time.expect("a time"), sum.1 + f64::from(u8::from(is_call)));
        }
        let mut expected: BTreeMap<String, (f64, f64)> = BTreeMap::new();
        for row in rows_of(found, sums) {
            let name = row["name"].text();
            if name != "[outside modules]" && !row[side].is_null() {
                let number = |key: &str| row[side][key].float() * steps;
                let sum = expected.entry(key(name)).or_default();
                *sum = (sum.0 + number("total"), sum.1 + number("calls"));
            }
        }
        if sums == "module" {
            // Modules without any time have calls of their own, but no operator; the sums count operators.
            of_calls.retain(|name, _| expected.contains_key(name));
            of_calls.values_mut().chain(expected.values_mut()).for_each(|sum| sum.1 = 0.0);
        }
        assert_eq!(of_calls.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>(), "{what} {side}");
        for (name, expected) in expected {
            let found = of_calls[&name];
            assert!((found.0 - expected.0).abs() < 0.5, "{what} {side} {name}: {found:?} {expected:?}");
            assert!((found.1 - expected.1).abs() < 1e-6, "{what} {side} {name}: {found:?} {expected:?}");
        }
    }
}

/// Returns the path of a module without the numbers of calls with other operators.
fn plain_path(path: &str) -> String {
    let (names, is_backward) = own_module(path);
    format!("{names} {is_backward}")
}

fn assert_calls_have_the_sums(found: &[Value], what: &str) {
    assert_sums(found, ["operator_call", "operator"], &str::to_owned, what);
    assert_sums(found, ["module_call", "module"], &plain_path, what);
}

#[test]
fn calls_of_all_pairs_add_up_to_the_sums_of_operators_and_modules() {
    let mut profiles = vec![example(0), example(1)];
    let real = ["cnn_level1_rank0", "cnn_db_level1_rank0", "cnn_level0_rank0", "llm_step_rank0"];
    profiles.extend(real.iter().filter_map(|name| shared(&format!("real/{name}"))));
    profiles.extend(shared(GPU));
    for (place, base) in profiles.iter().enumerate() {
        for other in (0..3).map(|step| &profiles[(place + step) % profiles.len()]) {
            let found = compare_with_options(base, other, "--calls");
            let what = format!("{} {}", base.display(), other.display());
            assert_calls_have_the_sums(&found, &what);
            let has_operators = !rows_of(&found, "operator").is_empty();
            assert_eq!(!calls_of(&found, "operator_call").is_empty(), has_operators, "{what}");
            if base == other {
                let is_same = |call: &Value| call["difference_ns"] == 0 && call["base"] == call["other"];
                assert!(found.iter().filter(|object| object["item"] == "call").all(is_same), "{what}");
            }
        }
    }
}

/// Texts, and the outermost operators and modules of the synthetic run with an operator or kernel whose name contains them.
const FILTERED: [(&str, &[&str]); 2] =
    [("MM", &["aten::linear", "aclnnAddmm"]), ("linear", &["aten::linear", "Net/Linear"])];

#[test]
fn calls_are_those_of_the_selected_steps() {
    let context = Context::new();
    write_text_profile(&context, "text_ascend_pt", 0);
    write_database(&context.path("db_ascend_pt/ascend_pytorch_profiler_0.db"), "");
    let run = |options: &[&str]| -> Vec<Value> {
        let paths = ["text_ascend_pt", "db_ascend_pt"].map(|name| context.path(name));
        compare_with_options(&paths[0], &paths[1], options)
    };
    let mut counts = Vec::new();
    for step in ["7", "8", "7,8"] {
        let found = run(&["--calls", "--step", step]);
        assert_calls_have_the_sums(&found, step);
        let calls: Vec<&Value> = found.iter().filter(|object| object["item"] == "call").collect();
        // Text and database are forms of one run.
        assert!(calls.iter().all(|call| call["base"] == call["other"]), "{calls:?}");
        counts.push(calls.len());
    }
    assert!(counts[0] > 0 && counts[0] != counts[1] && counts[0] + counts[1] == counts[2], "{counts:?}");
    // A filter by name, in any case, leaves the others out, but not those with an inner operator of the name.
    let names = |options: &[&str]| -> Vec<String> {
        let found = run(options);
        let calls = found.iter().filter(|object| object["item"] == "call");
        calls.map(|call| call["name"].text().to_owned()).collect()
    };
    let all = names(&["--calls"]);
    for (wanted, expected) in FILTERED {
        let found = names(&[&format!("--calls={wanted}")]);
        let kept: Vec<&String> = all.iter().filter(|name| expected.contains(&name.as_str())).collect();
        assert!(!kept.is_empty() && kept.len() < all.len(), "{all:?}");
        assert_eq!(found.iter().collect::<Vec<_>>(), kept, "{wanted}");
    }
}

#[test]
fn tables_and_page_have_the_calls_that_differ_most() {
    let context = Context::new();
    let profiles = [0, 1].map(|rank| example(rank).to_string_lossy().into_owned());
    let run = |options: &[&str]| {
        let ran = context.done(&(&["compare", &profiles[0], &profiles[1]], options));
        ran.stdout
    };
    let text = run(&["--calls", "--rows", "4", "--html", "page.html"]);
    let from = text.find("\ncalls of operators").expect("a table");
    insta::assert_snapshot!(text[from..].replace(env!("CARGO_MANIFEST_DIR"), "PROJECT"));
    let page = context.read("page.html");
    assert!(page.contains("<h2>calls of operators") && page.contains("<h2>calls of modules"));
    assert!(!run(&["--rows", "4"]).contains("calls of operators with"));
    let none = run(&["--calls=nothing_of_this_name"]);
    assert!(!none.contains("calls of operators with"), "{none}");
    for format in ["plain", "csv", "json"] {
        let none =
            ["compare", &profiles[0], &profiles[1], "--calls=nothing_of_this_name", "--format", format];
        let text = "no call of both profiles contains `nothing_of_this_name` in the name of an operator, a kernel or a module\n";
        assert_eq!(context.run(&none).stderr, text, "{format}");
    }
    run(&["--html", "without.html"]);
    assert!(!context.read("without.html").contains("calls of operators with"));
}
