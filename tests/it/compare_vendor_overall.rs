//! `npubench compare`: overall times and kernels of all references of the vendor's tool, and the defects that these have.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::prelude::*;
use crate::{
    compare::{ROUNDING, rows_of, sheet, total_and_calls},
    compare_vendor_tables::{DATABASE, GPU, PAIRS, compare_pair, overall},
};

const LEVEL_0: &str = "real/cnn_level0_rank0";
/// Kernels of the unit for random numbers, which the text form of the reference does not classify: their number and time in
/// nanoseconds, which is that of `Other`.
const DROPPED_KERNELS: (f64, f64) = (2.0, 5_539.0);
/// Time before the first kernel of the GPU, which the reference counts as free time of the step.
const BEFORE_THE_GPU: f64 = 80e6;

/// Row of `OverallMetrics` for one side: its classes from the outermost, time in nanoseconds and number.
struct OverallRow {
    path: Vec<String>,
    time: f64,
    number: Option<f64>,
}

fn overall_rows(expected: &Value, cell: usize) -> Vec<OverallRow> {
    let mut path: Vec<String> = Vec::new();
    let rows = sheet(expected, "OverallMetrics").into_iter().map(|row| {
        let name = row[0].text();
        path.truncate(name.chars().take_while(|c| *c == '\t').count());
        path.push(name.trim().to_owned());
        let time = row[cell].float() * 1e6;
        OverallRow { path: path.clone(), time, number: row[cell + 2].as_f64() }
    });
    rows.collect()
}

/// Sums by class and unit (`cube`, `vector`): time in nanoseconds and number.
fn classes_of(found: &[Value], side: &str) -> BTreeMap<(String, String), (f64, f64)> {
    let text = |value: &Value| value.text().to_owned();
    let rows = rows_of(found, "kernel_class").into_iter();
    rows.map(|row| ((text(&row["name"]), text(&row["shapes"])), total_and_calls(&row[side]))).collect()
}

/// Returns class and unit of a row that is not divided further; `None` for sums and for what is no class.
fn class_of_row(path: &[String]) -> Option<(String, Option<&'static str>)> {
    match path {
        [_, class] if class == "SDMA (Tensor Move)" => Some((class.clone(), None)),
        [_, class, part] if part.ends_with("(Cube)") => Some((class.clone(), Some("cube"))),
        [_, class, part] if part.ends_with("(Vector)") => Some((class.clone(), Some("vector"))),
        [_, class, part] if class == "Vector" => Some((part.clone(), None)),
        _ => None,
    }
}

/// Every row of the overall sheet of every pair, each side. The text form of the reference leaves out two kernels, level 0 has
/// no classes (all time is in `Other`, all numbers are 0), and free time of databases and GPUs is wider by definition.
#[test]
fn overall_times_equal_all_references() {
    let mut compared = 0;
    for (pair, name) in PAIRS.map(|pair| (pair, pair.2)) {
        let Some((found, expected)) = compare_pair(pair) else { return };
        for (side, (key, profile, cell)) in
            [("base", pair.0, 1), ("other", pair.1, 4)].into_iter().enumerate()
        {
            let error = if [DATABASE, GPU].contains(&profile) { 0.5 } else { ROUNDING };
            let (is_text, is_level_0) = (error > 1.0, profile == LEVEL_0);
            let mine = |row: &str| overall(&found, row).map(|sides| sides[side]);
            let known = |row: &str| mine(row).unwrap_or_else(|| panic!("{name} {key}: no row `{row}`"));
            let equal = |found: f64, expected: f64, what: &str| {
                let what = format!("{name} {key} {what}: {found} ns, the reference has {expected} ns");
                assert!((found - expected).abs() <= error, "{what}");
            };
            let classes = classes_of(&found, key);
            let kernels: f64 =
                rows_of(&found, "kernel").into_iter().map(|row| total_and_calls(&row[key]).1).sum();
            let mut of_groups = 0.0;
            for row in overall_rows(&expected, cell) {
                let what = row.path.join("/");
                let parts: Vec<&str> = row.path.iter().map(String::as_str).collect();
                match *parts.as_slice() {
                    ["Computing Time"] => {
                        equal(known("computing"), row.time, &what);
                        let dropped = if is_text { DROPPED_KERNELS.0 } else { 0.0 };
                        let expected = if is_level_0 { 0.0 } else { kernels - dropped };
                        assert_eq!(row.number, Some(expected), "{name} {key}");
                    }
                    ["Computing Time", "Other"] => {
                        // All of level 0; of level 1 the kernels that the classes lack.
                        let expected = match (is_level_0, is_text) {
                            (true, _) => known("computing"),
                            (_, true) => DROPPED_KERNELS.1,
                            _ => 0.0,
                        };
                        equal(expected, row.time, &what);
                    }
                    ["Uncovered Communication Time"] => {
                        equal(known("communication, not overlapped"), row.time, &what);
                    }
                    ["Uncovered Communication Time", _] => of_groups += row.time,
                    ["Uncovered Communication Time", _, part] if row.time > 0.0 => {
                        let own = match part {
                            "Wait" => mine("of it waits for other ranks"),
                            _ => mine("of it transmission"),
                        };
                        match (own, is_text) {
                            (Some(own), false) => equal(own, row.time, &what),
                            // The text form of the reference has no waits, so that all is transmission.
                            (_, true) => {
                                assert_eq!(part, "Transmit", "{name} {key}");
                                equal(known("communication, not overlapped"), row.time, &what);
                                let below = own.is_none_or(|own| own < row.time);
                                assert!(below, "{name} {key}: {own:?} {}", row.time);
                            }
                            (None, false) => panic!("{name} {key}: no row of {what}"),
                        }
                    }
                    ["Free Time" | "E2E Time"] => {
                        let own = known(if parts == ["Free Time"] { "free" } else { "span of the step" });
                        match profile {
                            // Tasks that are no work widen the step of the reference, by as much as its free time.
                            DATABASE => {
                                let beyond = row.time - own;
                                assert!((5.6e6..5.7e6).contains(&beyond), "{name} {key} {what} {beyond}");
                            }
                            GPU => equal(own + BEFORE_THE_GPU, row.time, &what),
                            _ => equal(own, row.time, &what),
                        }
                    }
                    ["Free Time", "SDMA"] if row.time > 0.0 => {
                        let copies = known("copies in the free time")
                            + known("copies and other work outside the span");
                        equal(copies, row.time, &what);
                    }
                    // Parts of 0, and the rest of the free time.
                    ["Uncovered Communication Time", ..] | ["Free Time", _] => {}
                    ["Computing Time", ..] => {
                        let Some((class, unit)) = class_of_row(&row.path) else { continue };
                        if is_level_0 || rows_of(&found, "kernel_class").is_empty() {
                            // Classes of a level without types are not compared; the reference has zeros.
                            assert!(!is_level_0 || row.time == 0.0, "{name} {key} {what}");
                            assert_eq!(found[0]["by_kernel_name"], true, "{name}");
                            continue;
                        }
                        let of_class = classes.iter().filter(|((own, own_unit), _)| {
                            *own == class && unit.is_none_or(|unit| unit == own_unit)
                        });
                        let (mut time, mut number) =
                            of_class.fold((0.0, 0.0), |sum, (_, own)| (sum.0 + own.0, sum.1 + own.1));
                        if is_text && class == "Vector (No Trans)" {
                            (time, number) = (time - DROPPED_KERNELS.1, number - DROPPED_KERNELS.0);
                        }
                        equal(time, row.time, &what);
                        assert_eq!(row.number, Some(number), "{name} {key} {what}");
                    }
                    _ => panic!("{name}: unknown row {what}"),
                }
                compared += 1;
            }
            equal(known("communication, not overlapped"), of_groups, "groups");
        }
    }
    // All rows of both sides, but the sums of classes (4 of each side) and classes that level 0 cannot have.
    assert_eq!(compared, 148);
}

/// Sums of kernels of one side in microseconds: total, longest, shortest, calls.
type KernelSums = [f64; 4];

/// Every row of both sheets of kernels, and no kernel besides them. The reference lists collectives among the kernels of text
/// profiles only.
#[test]
fn kernels_equal_all_references() {
    let mut compared = 0;
    for pair @ (.., name) in PAIRS {
        let Some((found, expected)) = compare_pair(pair) else { return };
        if expected["KernelCompare"].is_null() {
            continue;
        }
        for (side, profile, cell) in [("base", pair.0, 3), ("other", pair.1, 8)] {
            let plain = |text: &str| text.trim_matches('"').replace("N/A", "");
            let mut mine: BTreeMap<(String, String), KernelSums> = BTreeMap::new();
            for row in rows_of(&found, "kernel").into_iter().filter(|row| !row[side].is_null()) {
                let number = |key: &str| row[side][key].float();
                let sums = [
                    number("total") / 1e3,
                    number("longest") / 1e3,
                    number("shortest") / 1e3,
                    number("calls"),
                ];
                let text = |key: &str| row[key].text().to_owned();
                mine.insert((text("name"), text("shapes")), sums);
            }
            let mut collectives = 0.0;
            for row in sheet(&expected, "KernelCompare") {
                let number = |at: usize| row[cell + at].as_f64().unwrap_or_default();
                let sums = [number(0), number(2), number(3), number(4)];
                let kind = row[1].text();
                let shapes = plain(row[2].as_str().unwrap_or_default());
                // Cells of the reference are cut at 200 characters.
                let is_cut = row[2].as_str().is_some_and(|cell| cell.chars().count() >= 200);
                let is_same = |(own, own_shapes): &&(String, String)| {
                    own == kind && (*own_shapes == shapes || is_cut && own_shapes.starts_with(&shapes))
                };
                let key = mine.keys().find(is_same).cloned().unwrap_or((kind.to_owned(), shapes.clone()));
                if sums[3] == 0.0 {
                    assert!(!mine.contains_key(&key), "{name} {side}: {key:?} is missing in the reference");
                    continue;
                }
                if key.0.starts_with("hcom_") {
                    assert_ne!(profile, DATABASE, "{name}");
                    collectives += sums[0];
                    continue;
                }
                let own = mine.remove(&key).unwrap_or_else(|| panic!("{name} {side}: no row of {key:?}"));
                assert_eq!(own[3], sums[3], "{name} {side} {key:?}");
                for (own, expected) in own.into_iter().zip(sums).take(3) {
                    // The sheet is rounded to 0.01 us.
                    let error = 0.005 + if profile == DATABASE { 1e-6 } else { ROUNDING / 1e3 };
                    assert!((own - expected).abs() <= error, "{name} {side} {key:?}: {own} {expected}");
                }
                compared += 1;
            }
            assert!(mine.is_empty(), "{name} {side}: {mine:?}");
            let own = total_and_calls(&rows_of(&found, "collective")[0][side]).0 / 1e3;
            let expected = if profile == DATABASE { 0.0 } else { own };
            assert!((expected - collectives).abs() <= 0.005 + ROUNDING / 1e3, "{name} {own} {collectives}");
        }
    }
    assert_eq!(compared, 2 * 2 * 127, "kernels of two pairs");
}
