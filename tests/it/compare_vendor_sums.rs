//! `npubench compare`: operators and modules of all references of the vendor's tool, and the defects that these have.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::prelude::*;
use crate::{
    compare::{ROUNDING, rows_of, sheet, total_and_calls},
    compare_vendor_tables::{DATABASE, GPU, PAIRS, compare_pair, overall},
};

/// Copies that the reference counts among the kernels of text profiles, by operator, and the collectives.
pub(crate) const COUNTED_IN_TEXT: [&str; 5] = [
    "DistributedDataParallel.forward",
    "aten::to",
    "autograd::engine::evaluate_function: ConvolutionBackward0",
    "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad",
    "torch.distributed.ddp.reducer::copy_bucket_to_grad",
];

fn rows_by_name<'a>(found: &'a [Value], part: &str) -> BTreeMap<&'a str, &'a Value> {
    rows_of(found, part).into_iter().map(|row| (row["name"].text(), row)).collect()
}

fn number(row: &[Value], cell: usize) -> f64 {
    row[cell].as_f64().unwrap_or_default()
}

/// Returns what the reference has beyond our time of each operator, in nanoseconds.
fn beyond_by_operator(
    found: &[Value],
    rows: &[&Vec<Value>],
    side: &str,
    cell: usize,
) -> BTreeMap<String, f64> {
    let operators = rows_by_name(found, "operator");
    let mut beyond = BTreeMap::new();
    for row in rows {
        let name = row[1].text();
        let mine = operators.get(name).unwrap_or_else(|| panic!("no row of `{name}`"));
        let (total, calls) = total_and_calls(&mine[side]);
        assert_eq!(calls, number(row, cell + 1), "{side} {name}");
        let more = number(row, cell) * 1e6 - total;
        if more.abs() > ROUNDING {
            beyond.insert(name.to_owned(), more);
        }
    }
    beyond
}

#[test]
fn operators_equal_all_references_without_their_copies_and_collectives() {
    let mut compared = 0;
    for pair @ (base, other, name) in PAIRS {
        let Some((found, expected)) = compare_pair(pair) else { return };
        if expected["OperatorCompareStatistic"].is_null() {
            continue;
        }
        let rows = sheet(&expected, "OperatorCompareStatistic");
        for (side, profile, cell) in [("base", base, 2), ("other", other, 4)] {
            if profile == GPU {
                // The reference has all kernels and copies in the range of the user around them.
                let of_vendor: f64 = rows.iter().map(|row| number(row, cell) * 1e6).sum();
                let mine: f64 =
                    rows_of(&found, "operator").iter().map(|row| total_and_calls(&row[side]).0).sum();
                let copies = overall(&found, "copies and other work outside the span").expect("copies")[0];
                assert!((of_vendor - copies - mine).abs() < 0.5, "{of_vendor} {copies} {mine}");
                assert!(rows_of(&found, "operator").len() > rows.len());
                continue;
            }
            let of_npu: Vec<&Vec<Value>> =
                rows.iter().copied().filter(|row| number(row, cell + 1) > 0.0).collect();
            let mut beyond = beyond_by_operator(&found, &of_npu, side, cell);
            compared += of_npu.len();
            if profile == DATABASE {
                assert_eq!(beyond, BTreeMap::new(), "{name}");
                continue;
            }
            assert_eq!(
                beyond.keys().map(String::as_str).collect::<Vec<_>>(),
                COUNTED_IN_TEXT,
                "{name} {side}"
            );
            let collectives = rows_by_name(&found, "collective")["hcom_allReduce_"][side]["total"].as_f64();
            let counted = beyond.remove(COUNTED_IN_TEXT[3]).expect("the collectives");
            // The trace has fractions of nanoseconds for each of the four.
            assert!((counted - collectives.expect("a total")).abs() <= ROUNDING, "{name} {side} {counted}");
            assert!(
                beyond.values().all(|copies| (4_000.0..1e6).contains(copies)),
                "{name} {side} {beyond:?}"
            );
        }
    }
    assert_eq!(compared, 2 * 2 * 35 + 35, "operators of five sides");
}

/// Path of modules without their numbers, and true for the backward pass.
pub(crate) type ModulePath = (String, bool);

/// Returns the path of a module of the reference, such as `/ [ BACKWARD ]/ AlexNet_0`.
pub(crate) fn vendor_module(path: &str) -> ModulePath {
    let names: Vec<&str> = path.split('/').map(str::trim).filter(|name| !name.is_empty()).collect();
    let plain = names.iter().filter(|name| **name != "[ BACKWARD ]").map(|name| without_number(name));
    (plain.collect::<Vec<_>>().join("/"), names.contains(&"[ BACKWARD ]"))
}

pub(crate) fn own_module(path: &str) -> ModulePath {
    let plain = path.split('/').map(|name| without_number(name.trim_start_matches("[Backward]")));
    (plain.collect::<Vec<_>>().join("/"), path.contains("[Backward]"))
}

fn without_number(name: &str) -> String {
    let is_number = |end: &str| !end.is_empty() && end.bytes().all(|byte| byte.is_ascii_digit());
    match name.rsplit_once('_') {
        Some((start, end)) if is_number(end) => start.to_owned(),
        _ => name.to_owned(),
    }
}

/// Modules without others in them, of text profiles: the reference of a database has one kernel of each operator only.
#[test]
fn modules_equal_all_references_of_text_profiles() {
    let mut compared = 0;
    for pair @ (base, other, name) in PAIRS {
        let Some((found, expected)) = compare_pair(pair) else { return };
        if expected["ModuleCompareStatistic"].is_null() {
            continue;
        }
        for (side, profile, cell) in [("base", base, 8), ("other", other, 12)] {
            let mut of_vendor: BTreeMap<ModulePath, f64> = BTreeMap::new();
            for row in sheet(&expected, "ModuleCompareStatistic") {
                if row[4].as_str().is_some_and(|operator| operator.trim() == "[ TOTAL ]") {
                    let path = vendor_module(row[3].text());
                    *of_vendor.entry(path).or_default() += number(row, cell) * 1e6;
                }
            }
            let mut mine: BTreeMap<ModulePath, f64> = BTreeMap::new();
            for row in rows_of(&found, "module") {
                let path = own_module(row["name"].text());
                *mine.entry(path).or_default() += total_and_calls(&row[side]).0;
            }
            for (path, total) in &mine {
                let (leaf, is_backward) = (path.0.rsplit('/').next().expect("a name"), path.1);
                let is_leaf = !mine.keys().any(|(other, _)| other.starts_with(&format!("{}/", path.0)));
                let Some(expected) = of_vendor.get(path).filter(|_| is_leaf) else { continue };
                let beyond = expected - total;
                let what = format!("{name} {side} {path:?}: {total} ns, the reference has {expected} ns");
                match (leaf, is_backward) {
                    // The database of the reference: only the last kernel of an operator.
                    _ if profile == DATABASE => assert!(beyond <= 0.5, "{what}"),
                    // Copies, which are no kernels.
                    ("Dropout", false) => assert!((4_000.0..5_000.0).contains(&beyond), "{what}"),
                    ("Conv2d", true) => assert!((12_000.0..13_000.0).contains(&beyond), "{what}"),
                    // The range of a backward pass has all operators in it, also the sum of the bias and its scaling.
                    ("Linear", true) => assert!((-65_000.0..-50_000.0).contains(&beyond), "{what}"),
                    _ => assert!(beyond.abs() <= ROUNDING, "{what}"),
                }
                compared += 1;
            }
        }
    }
    assert_eq!(compared, 4 * 14, "modules of four sides");
}
