//! `npubench compare --calls`: single calls of operators and modules, against their sums and against all references of the
//! vendor's tool.

use std::{collections::BTreeMap, fs, path::PathBuf};

use serde_json::Value;

use crate::{
    compare::{ROUNDING, compare_with_options, example, rows_of, sheet},
    compare_vendor_sums::{COUNTED_IN_TEXT, ModulePath, own_module, vendor_module},
    compare_vendor_tables::{DATABASE, GPU, PAIRS, RealPair, read_pair},
    context::Context,
    requirements::shared,
    timeline::{objects, write_database, write_text_profile},
};

/// Returns the calls of a kind.
fn calls_of<'a>(found: &'a [Value], part: &str) -> Vec<&'a Value> {
    found.iter().filter(|object| object["item"] == "call" && object["part"] == part).collect()
}

fn total(side: &Value) -> f64 {
    side["total_ns"].as_f64().expect("a time")
}

/// Returns our comparison with calls, and the vendor's; `None` without the shared folder.
fn compare_calls_of_pair(pair: RealPair) -> Option<(Vec<Value>, Value)> {
    let ([base, other], expected) = read_pair(pair)?;
    Some((compare_with_options(&base, &other, &["--calls"]), expected))
}

/// Asserts that the calls of both sides have the sums of their names. `key` is the name of a call among the sums.
fn assert_sums(found: &[Value], [calls, sums]: [&str; 2], key: &dyn Fn(&str) -> String, what: &str) {
    for (side, steps) in [("base", "base_steps"), ("other", "other_steps")] {
        let steps = found[0][steps].as_f64().expect("a number");
        let mut of_calls: BTreeMap<String, (f64, f64)> = BTreeMap::new();
        for call in calls_of(found, calls).into_iter().filter(|call| !call[side].is_null()) {
            let time =
                if sums == "module" { call[side]["self_ns"].as_f64() } else { Some(total(&call[side])) };
            let sum = of_calls.entry(key(call["name"].as_str().expect("a name"))).or_default();
            // Kernels without an operator are no calls.
            let is_call = call["name"] != "[outside operators]";
            *sum = (sum.0 + time.expect("a time"), sum.1 + f64::from(u8::from(is_call)));
        }
        let mut expected: BTreeMap<String, (f64, f64)> = BTreeMap::new();
        for row in rows_of(found, sums) {
            let name = row["name"].as_str().expect("a name");
            if name != "[outside modules]" && !row[side].is_null() {
                let number = |key: &str| row[side][key].as_f64().expect("a number") * steps;
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
            let found = compare_with_options(base, other, &["--calls"]);
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
        calls.map(|call| call["name"].as_str().expect("a name").to_owned()).collect()
    };
    let all = names(&["--calls"]);
    for (wanted, expected) in FILTERED {
        let found = names(&[&format!("--calls={wanted}")]);
        let kept: Vec<&String> = all.iter().filter(|name| expected.contains(&name.as_str())).collect();
        assert!(!kept.is_empty() && kept.len() < all.len(), "{all:?}");
        assert_eq!(found.iter().collect::<Vec<_>>(), kept, "{wanted}");
    }
}

/// A call that only one run has: the other side is missing, and its time is not 0.
#[test]
fn call_without_a_match_has_no_other_side() {
    let context = Context::new();
    let call = "INSERT INTO STRING_IDS VALUES (900, 'aten::extra');
                INSERT INTO PYTORCH_API VALUES
                  ('1700000000000100000', '1700000000000100400', 17179869184001, NULL, 900, 50001)";
    write_database(&context.path("base/ascend_pytorch_profiler_0.db"), "");
    write_database(&context.path("other/ascend_pytorch_profiler_0.db"), call);
    let found = compare_with_options(&context.path("base"), &context.path("other"), &["--calls"]);
    let alone: Vec<&Value> = found
        .iter()
        .filter(|object| object["item"] == "call" && (object["base"].is_null() || object["other"].is_null()))
        .collect();
    assert_eq!(alone.len(), 1, "{alone:?}");
    assert_eq!((&alone[0]["name"], &alone[0]["base"]), (&"aten::extra".into(), &Value::Null));
    assert_eq!((&alone[0]["other"]["step"], &alone[0]["ratio"]), (&8.into(), &Value::Null));
    let csv = context.run(&["compare", "base", "other", "--calls", "--format", "csv"]).stdout;
    let mut lines = csv.lines();
    let header: Vec<&str> = lines.next().expect("a header").split(',').collect();
    let row: Vec<&str> =
        lines.find(|line| line.starts_with("operator_call,aten::extra")).expect("a row").split(',').collect();
    let cell = |name: &str| row[header.iter().position(|head| *head == name).expect("a column")];
    assert_eq!((cell("base"), cell("base calls"), cell("base step"), cell("base kernels")), ("", "", "", ""));
    assert_eq!((cell("other"), cell("other calls"), cell("other step")), ("0", "1", "8"));
}

#[test]
fn tables_and_page_have_the_calls_that_differ_most() {
    let context = Context::new();
    let profiles = [0, 1].map(|rank| example(rank).to_string_lossy().into_owned());
    let run = |options: &[&str]| {
        let ran = context.run(&[&["compare", &profiles[0], &profiles[1]], options].concat());
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        ran.stdout
    };
    let text = run(&["--calls", "--rows", "4", "--html", "page.html"]);
    let from = text.find("\ncalls of operators").expect("a table");
    insta::assert_snapshot!(text[from..].replace(env!("CARGO_MANIFEST_DIR"), "PROJECT"));
    let page = fs::read_to_string(context.path("page.html")).expect("a page");
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
    assert!(
        !fs::read_to_string(context.path("without.html"))
            .expect("a page")
            .contains("calls of operators with")
    );
}

/// Calls of a run with copies in the details of the reference.
const COPIES: usize = 11;
/// Calls with copies of a database, those with long details as well.
const COPIES_OF_DATABASE: usize = 17;

/// Call of the reference: name, time in nanoseconds, and its kernels as text, cut at 200 characters.
struct VendorCall {
    name: String,
    time: f64,
    details: String,
}

impl VendorCall {
    /// Returns the time of the copies and collectives that the details list.
    fn copies_and_collectives(&self) -> f64 {
        self.copies() + self.time_of("hcom_")
    }

    /// Returns the time of the copies that the details list.
    fn copies(&self) -> f64 {
        self.time_of("MEMCPY")
    }

    fn time_of(&self, prefix: &str) -> f64 {
        let time = |line: &str| line.split("duration: ").nth(1)?.trim_end_matches(']').parse::<f64>().ok();
        let lines = self.details.lines().filter(|line| line.starts_with(prefix));
        lines.filter_map(time).map(|time| time * 1e3).sum()
    }

    /// Returns true if the time is this one. The text form of the reference counts copies and collectives as kernels.
    fn has_time(&self, time: f64, error: f64, counts_copies: bool) -> bool {
        let counted = if counts_copies { self.copies_and_collectives() } else { 0.0 };
        let beyond = self.time - counted - time;
        // Copies behind the end of the details: there are some of 2 us in the forward pass and for each convolution.
        let is_cut = counts_copies && self.details.len() >= 200 && COUNTED_IN_TEXT.contains(&&*self.name);
        beyond.abs() <= error || (is_cut && (2_000.0..5_000.0).contains(&beyond))
    }
}

fn vendor_calls(expected: &Value, name_cell: usize) -> Vec<VendorCall> {
    let rows = sheet(expected, "OperatorCompare").into_iter().filter(|row| row[name_cell].is_string());
    rows.map(|row| VendorCall {
        name: row[name_cell].as_str().expect("a name").to_owned(),
        time: row[name_cell + 4].as_f64().expect("a time") * 1e3,
        details: row[name_cell + 3].as_str().unwrap_or_default().to_owned(),
    })
    .collect()
}

/// Each call of the references has its own time, in the order of its thread. The sums of the text include copies and
/// collectives (AccumulateGrad: 105.98 ms), which the details of the reference list.
#[test]
fn calls_of_operators_equal_all_references() {
    let (mut compared, mut copied) = (0, 0);
    for pair @ (base, other, name) in PAIRS {
        let Some((found, expected)) = compare_calls_of_pair(pair) else { return };
        if expected["OperatorCompare"].is_null() {
            continue;
        }
        let calls = calls_of(&found, "operator_call");
        for (side, profile, cell) in [("base", base, 1), ("other", other, 6)] {
            let mut of_vendor = vendor_calls(&expected, cell);
            if profile == GPU {
                // Two rows: a range of the user with all kernels and copies, and a call of the runtime.
                assert_eq!(of_vendor.len(), 2, "{name}");
                continue;
            }
            let counts_copies = profile != DATABASE;
            let error = if counts_copies { ROUNDING } else { 0.5 };
            let mine: Vec<&&Value> = calls.iter().filter(|call| !call[side].is_null()).collect();
            assert_eq!(mine.len(), of_vendor.len(), "{name} {side}");
            let mut places: BTreeMap<u64, usize> = BTreeMap::new();
            let mut taken = vec![false; of_vendor.len()];
            for call in mine {
                let from = places.entry(call["thread"].as_u64().expect("a number")).or_default();
                let (own_name, time) = (call["name"].as_str().expect("a name"), total(&call[side]));
                let is_equal = |at: &usize| {
                    let row = &of_vendor[*at];
                    !taken[*at] && row.name == own_name && row.has_time(time, error, counts_copies)
                };
                let at = (*from..of_vendor.len()).find(is_equal);
                let at = at.unwrap_or_else(|| panic!("{name} {side}: no row from {from} on of {call}"));
                (*from, taken[at]) = (at + 1, true);
                let kernels = call[side]["kernels"].as_array().expect("kernels");
                let sum: f64 = kernels.iter().map(|own| own["duration_ns"].as_f64().expect("a time")).sum();
                assert_eq!(sum, time, "{call}");
                let first = of_vendor[at].details.lines().find(|line| !line.starts_with("MEMCPY"));
                if let Some((first, _)) = first.and_then(|line| line.split_once(',')) {
                    assert!(kernels.iter().any(|own| own["kernel"] == first), "{first}: {call}");
                }
                let copies = call[side]["copies_ns"].as_f64();
                if !counts_copies {
                    // The reference has no copies of a database. Its run is that of the same program as the text.
                    let of_text = call["base"]["copies_ns"].as_f64().expect("a time");
                    let copies = copies.expect("a time");
                    assert_eq!(copies > 0.0, of_text > 0.0, "{call}");
                    assert!(copies > 0.3 * of_text && copies < 3.0 * of_text || copies == of_text, "{call}");
                    copied += usize::from(copies > 0.0);
                } else if of_vendor[at].details.len() < 200 {
                    let (copies, expected) = (copies.expect("a time"), of_vendor[at].copies());
                    assert!((copies - expected).abs() <= ROUNDING, "{name} {call}: {expected}");
                    copied += usize::from(expected > 0.0);
                }
                compared += 1;
            }
            assert!(taken.iter().all(|is_taken| *is_taken), "{name} {side}");
            of_vendor.clear();
        }
        if base != GPU {
            // The same program: every call has its match, as in the reference.
            assert!(calls.iter().all(|call| !call["base"].is_null() && !call["other"].is_null()), "{name}");
        }
    }
    assert_eq!(compared, 5 * 115, "calls of five sides");
    assert_eq!(
        copied,
        4 * COPIES + COPIES_OF_DATABASE,
        "calls with copies of four text sides and a database"
    );
}

/// A call of `aten::to` may consist of a copy, which is no kernel.
#[test]
fn copies_of_calls_are_shown_apart() {
    let Some((found, _)) = compare_calls_of_pair(PAIRS[2]) else { return };
    let calls = calls_of(&found, "operator_call");
    let inputs = calls.iter().find(|call| call["name"] == "aten::to").expect("a call");
    for (side, time) in [("base", 840_077.0), ("other", 996_960.0)] {
        let copies = inputs[side]["copies_ns"].as_f64().expect("a time");
        assert!((copies - time).abs() <= ROUNDING, "{inputs}");
        assert_eq!(inputs[side]["total_ns"], 0);
    }
}

/// Shapes of the inputs are those of the reference where its columns are right: it exchanges shapes and types of a database.
#[test]
fn shapes_of_calls_equal_the_references() {
    let mut compared = 0;
    for pair @ (base, other, name) in PAIRS {
        let Some((found, expected)) = compare_calls_of_pair(pair) else { return };
        if expected["OperatorCompare"].is_null() {
            continue;
        }
        let calls = calls_of(&found, "operator_call");
        for (side, profile, cell) in [("base", base, 1), ("other", other, 6)] {
            if profile == GPU {
                continue;
            }
            let plain = |text: &str| text.replace(['\r', '\n'], "").trim_end_matches(';').to_owned();
            let mut of_vendor: Vec<(String, String)> = sheet(&expected, "OperatorCompare")
                .into_iter()
                .filter_map(|row| {
                    let shapes = row[cell + 1].as_str().unwrap_or_default();
                    let shapes = if matches!(shapes, "N/A" | "None") { "" } else { shapes };
                    Some((row[cell].as_str()?.to_owned(), plain(shapes)))
                })
                .collect();
            let mut mine: Vec<(String, String)> = calls
                .iter()
                .filter(|call| !call[side].is_null())
                .map(|call| {
                    let text = |value: &Value| value.as_str().expect("text").to_owned();
                    (text(&call["name"]), text(&call[side]["shapes"]))
                })
                .collect();
            if profile == DATABASE {
                // The sheet has the types in this column: the same run as text has the shapes.
                assert!(of_vendor.iter().any(|(_, shapes)| shapes.contains("float")), "{name}");
                assert!(mine.iter().all(|(_, shapes)| !shapes.contains("float")), "{name}");
                assert!(calls.iter().all(|call| call["base"]["shapes"] == call["other"]["shapes"]), "{name}");
                compared += mine.len();
                continue;
            }
            of_vendor.sort_unstable();
            mine.sort_unstable();
            assert_eq!(mine, of_vendor, "{name} {side}");
            compared += mine.len();
        }
    }
    assert_eq!(compared, 5 * 115, "calls of five sides");
}

/// Call of a module: path and direction, self and total time in nanoseconds.
type ModuleTimes = (ModulePath, [f64; 2]);

fn own_module_calls(found: &[Value], side: &str) -> Vec<ModuleTimes> {
    let calls = calls_of(found, "module_call").into_iter().filter(|call| !call[side].is_null());
    calls
        .map(|call| {
            let times = ["self_ns", "total_ns"].map(|key| call[side][key].as_f64().expect("a time"));
            (own_module(call["name"].as_str().expect("a name")), times)
        })
        .collect()
}

/// Returns the calls of the reference. Adjacent rows of a module in the backward pass are one call.
fn vendor_module_calls(expected: &Value, cell: usize) -> Vec<ModuleTimes> {
    let mut calls: Vec<ModuleTimes> = Vec::new();
    for row in sheet(expected, "ModuleCompare") {
        let path = row[3].as_str().expect("a path");
        if row[4] != "TOTAL" || path.contains("Optimizer.") {
            continue;
        }
        let path = vendor_module(path);
        let times = [2, 3].map(|place| row[cell + place].as_f64().expect("a time") * 1e3);
        match calls.last_mut() {
            Some((last, sums)) if *last == path && path.1 => {
                sums.iter_mut().zip(times).for_each(|(sum, time)| *sum += time);
            }
            _ => calls.push((path, times)),
        }
    }
    // The reference has a call of the model around each operator of its own in the backward pass, without any time.
    calls.retain(|((_, is_backward), times)| !is_backward || times[1] > 0.0);
    calls
}

/// Calls of modules of text profiles, in their order, with self and total time. The reference counts copies, and ends a
/// linear layer in the backward pass before the sum of its bias is scaled.
#[test]
fn calls_of_modules_equal_all_references_of_text_profiles() {
    let mut compared = 0;
    for pair @ (base, other, name) in PAIRS {
        let Some((found, expected)) = compare_calls_of_pair(pair) else { return };
        if expected["ModuleCompare"].is_null() {
            continue;
        }
        for (side, profile, cell) in [("base", base, 4), ("other", other, 8)] {
            let (mine, of_vendor) = (own_module_calls(&found, side), vendor_module_calls(&expected, cell));
            let paths =
                |calls: &[ModuleTimes]| calls.iter().map(|(path, _)| path.clone()).collect::<Vec<_>>();
            assert_eq!(paths(&mine), paths(&of_vendor), "{name} {side}");
            let dropouts: Vec<usize> = (0..mine.len()).filter(|at| mine[*at].0 == dropout_path()).collect();
            assert_eq!(dropouts.len(), 2, "{name} {side}");
            for (at, ((path, times), (_, expected))) in mine.iter().zip(&of_vendor).enumerate() {
                let beyond = [0, 1].map(|place| expected[place] - times[place]);
                let what = format!("{name} {side} {path:?}: {times:?} ns, the reference has {expected:?} ns");
                let is_in = |range: std::ops::Range<f64>| beyond.iter().all(|beyond| range.contains(beyond));
                let leaf = path.0.rsplit('/').next().expect("a name");
                // Modules around the dropouts, which have the copies in their total.
                let encloses_dropouts = !path.1
                    && dropout_path().0.starts_with(&format!("{}/", path.0))
                    && at < dropouts[0]
                    && (leaf != "Sequential" || at + 1 == dropouts[0]);
                match (leaf, path.1) {
                    _ if profile == DATABASE => assert!(is_in(-1e9..0.51), "{what}"),
                    ("Dropout", false) => assert!(is_in(2_000.0..3_000.0), "{what}"),
                    ("Conv2d", true) => assert!(is_in(2_000.0..5_000.0), "{what}"),
                    ("Linear", true) => assert!(is_in(-25_000.0..-15_000.0), "{what}"),
                    _ if encloses_dropouts => {
                        assert!(beyond[0].abs() <= ROUNDING, "{what}");
                        assert!((4_000.0..6_000.0).contains(&beyond[1]), "{what}");
                    }
                    _ => assert!(is_in(-ROUNDING..ROUNDING), "{what}"),
                }
                compared += 1;
            }
        }
    }
    assert_eq!(compared, 4 * 48, "modules of four sides");
}

fn dropout_path() -> ModulePath {
    ("DistributedDataParallel/AlexNet/Sequential/Dropout".to_owned(), false)
}

/// The reference of a database keeps the last kernel of an operator in a module, and 20 calls of `Conv2D` for 5. The right
/// values: the sums of an independent program, and the operators of the other sheet.
#[test]
fn calls_of_modules_of_a_database_have_all_their_kernels() {
    let (Some(database), Some(independent)) =
        (shared(DATABASE), crate::compare::reference("module_statistic_basic_independent.json"))
    else {
        return;
    };
    let found = compare_with_options(&database, &database, &["--calls"]);
    let calls = own_module_calls(&found, "base");
    let mut expected: BTreeMap<String, i64> = BTreeMap::new();
    for row in independent["rows"].as_array().expect("rows") {
        let text = |cell: usize| row[cell].as_str().expect("text");
        *expected.entry(text(1).to_owned()).or_default() += row[4].as_i64().expect("a time");
    }
    let mut mine: BTreeMap<String, i64> = BTreeMap::new();
    for ((path, is_backward), [own, _]) in &calls {
        let leaf = path.rsplit('/').next().expect("a name");
        let name = format!("{}{leaf}", if *is_backward { "[Backward]" } else { "" });
        *mine.entry(name).or_default() += format!("{own:.0}").parse::<i64>().expect("whole");
    }
    mine.retain(|_, time| *time > 0);
    expected.retain(|_, time| *time > 0);
    assert_eq!(mine, expected);
    assert_eq!(mine["Linear"], 543_230);
    // Defect of the module sheet: 831.934 us of 2,341.748 us, which the sheet of operators has.
    assert_eq!(calls[0], (("DistributedDataParallel".to_owned(), false), [0.0, 2_341_748.0]));
    let Some((_, sheets)) = read_pair(PAIRS[1]) else { return };
    let forward =
        vendor_calls(&sheets, 6).into_iter().find(|call| call.name == "DistributedDataParallel.forward");
    assert!((forward.expect("a row").time - 2_341_748.0).abs() < 0.5);
    let convolutions =
        calls.iter().filter(|((path, is_backward), _)| path.ends_with("/Conv2d") && !is_backward);
    assert_eq!(convolutions.count(), 5);
}

/// A linear layer in the backward pass: its products, the sum of its bias and the scaling of both gradients.
#[test]
fn backward_calls_of_modules_have_all_operators_between_their_first_and_last() {
    let mut compared = 0;
    for pair @ (.., name) in PAIRS {
        let Some((found, expected)) = compare_calls_of_pair(pair) else { return };
        if expected["OperatorCompare"].is_null() || pair.0 == GPU {
            continue;
        }
        for (side, cell) in [("base", 1), ("other", 6)] {
            let rows = vendor_calls(&expected, cell);
            let linear: Vec<f64> = own_module_calls(&found, side)
                .into_iter()
                .filter(|((path, is_backward), _)| path.ends_with("/Linear") && *is_backward)
                .map(|(_, [_, total])| total)
                .collect();
            let products = rows
                .iter()
                .enumerate()
                .filter(|(_, row)| row.name == "autograd::engine::evaluate_function: AddmmBackward0");
            // The gradient of the bias is accumulated behind the products.
            let right: Vec<f64> = products.map(|(at, row)| row.time + rows[at + 1].time).collect();
            assert_eq!((linear.len(), right.len()), (3, 3), "{name} {side}");
            for (found, right) in linear.iter().zip(&right) {
                assert!((found - right).abs() <= ROUNDING, "{name} {side}: {found} {right}");
                compared += 1;
            }
        }
    }
    assert_eq!(compared, 12, "layers of four sides");
}

#[test]
fn calls_of_profiles_without_operators_are_named_as_not_compared() {
    let context = Context::new();
    let table = example(0).join("ASCEND_PROFILER_OUTPUT/kernel_details.csv");
    let copy: PathBuf = context.path("table/kernel_details.csv");
    context.write("table/kernel_details.csv", &fs::read_to_string(table).expect("read"));
    let ran = context.run(&["compare", "table", &example(0).to_string_lossy(), "--calls"]);
    assert_eq!(ran.code, 0, "{} {}", copy.display(), ran.stderr);
    assert!(ran.stderr.contains("no call of an operator or a module is recorded in both"), "{}", ran.stderr);
    assert!(ran.stdout.contains("not compared: operators: not recorded in base"), "{}", ran.stdout);
    let found = objects(&context.run(&["compare", "table", "table", "--calls", "--format", "json"]).stdout);
    assert!(found.iter().all(|object| object["item"] != "call"));
}
