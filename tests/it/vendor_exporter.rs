//! The vendor's exporter as a judge: a rehearsed run of every kernel of the catalogue has the same verdicts and numbers whether the
//! stand-in writes its own tables, or raw data from which the exporter of Ascend/msprof writes them.
//!
//! `NPUBENCH_EXPORTER` is the exporter's folder: `analysis` of Ascend/msprof, or that of an installed toolkit. Its C++ part is used
//! where `lib64/msprof_analysis.so` is in it.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use crate::{prelude::*, requirements::campaign};

/// Faults by case or by the number of the collection, so that both runs have the same ones.
const FAULTS: &str = "faults:
  - {crash: {signal: SIGKILL}, where: {probability: 0.03, drawn_by: case}, times_each: 1}
  - {crash: {signal: SIGSEGV, at: exit}, where: {collections: [4]}}
  - {crash: {signal: SIGKILL}, where: {kernel: SwiGlu}}
  - {ai_cpu_fallback: , where: {kernel: RmsNorm}}
  - {renamed_kernel: {}, where: {kernel: Sort}}
  - {one_core: , where: {kernel: Mul}}
  - {truncated_csv: {keeps: 0.5}, where: {collections: [2]}}
  - {ragged_csv: {rows: 40}, where: {collections: [3]}}
  - {lost_raw_data: , where: {collections: [5]}}
  - {missing_output: {}, where: {collections: [6]}}
  - {lost_records: {head: 0, tail: 200}, where: {collections: [7]}}
  - {disk_full: {keeps: 0.5, second_export: true}, where: {collections: [8]}}
  - {wrong_device_id: {shows: 9}, where: {collections: [9]}}
  - {repeated_records: , where: {collections: [10]}}
";
const THROTTLED: &str = "faults:
  - {throttling: {factor: 1.4}, where: {devices: [1]}}
";
const NO_FAULTS: &str = "faults: []
";
const RUN: &str = "run --db db --host rehearsal --rehearsal-model steady --rehearsal-faults plan.yaml";

/// A table by its rows' keys.
type Rows = BTreeMap<String, BTreeMap<String, String>>;

fn read_rows(text: &str, keys: &[&str]) -> Rows {
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(text.as_bytes());
    let header: Vec<String> = reader.headers().expect("a header").iter().map(str::to_owned).collect();
    let row = |cells: csv::StringRecord| {
        let row: BTreeMap<_, _> = header.iter().cloned().zip(cells.iter().map(str::to_owned)).collect();
        (
            keys.iter().map(|key| row.get(*key).map_or("", |cell| cell.trim())).collect::<Vec<_>>().join(" "),
            row,
        )
    };
    reader.records().map(|cells| row(cells.expect("a row"))).collect()
}

/// The exporter's C++ part, which the stand-in copies, or its Python part, which writes counters with two decimals, and waits from the
/// row above without records that are repeated.
#[derive(Clone, Copy, Debug)]
enum Part {
    Cpp,
    Python,
}

impl Part {
    /// Whether two cells are equal, numbers but for what the part rounds.
    fn finds_equal(self, column: &str, left: &str, right: &str) -> bool {
        if left == right {
            return true;
        }
        let (Ok(left), Ok(right)) = (left.trim().parse::<f64>(), right.trim().parse::<f64>()) else {
            return false;
        };
        let is_counter = ["aic", "aiv", "cube"].iter().any(|part| column.contains(part));
        let limit = match self {
            Self::Cpp if is_counter => 0.0011,
            Self::Python if is_counter => 0.011,
            Self::Python if column == "Task Wait Time(us)" => f64::INFINITY,
            _ => 0.0,
        };
        (left - right).abs() <= limit
    }

    /// Adds the differences of the rows that both tables have, and returns their number.
    fn compare(
        self,
        place: &str,
        [left, right]: [&Rows; 2],
        except: &[&str],
        differences: &mut Vec<String>,
    ) -> usize {
        let both = left.iter().filter_map(|(key, row)| right.get(key).map(|other| (key, row, other)));
        // A table that is cut ends in a part of a row.
        let both = both.filter(|(_, row, other)| row.len() == other.len());
        both.map(|(key, row, other)| {
            for (column, cell) in row.iter().filter(|(column, _)| !except.contains(&column.as_str())) {
                let exported = other.get(column).map_or("(no column)", String::as_str);
                if !self.finds_equal(column, cell, exported) {
                    differences.push(format!("{place} {key}, {column}: {cell}, exported {exported}"));
                }
            }
        })
        .count()
    }
}

/// The kernel of each case, its verdict and the class of its cause.
fn verdicts(context: &Context) -> BTreeMap<String, String> {
    let ledger = ledger(context).expect("it ran");
    let sql = "SELECT case_id, kernel || ' ' || verdict || ' ' || json_extract(cause, '$.cause') FROM verdicts JOIN cases USING (case_id)";
    let mut statement = ledger.prepare(sql).expect("SQL");
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).expect("rows");
    rows.map(|row| row.expect("a row")).collect()
}

/// Compares the exporter's tables of each collection with those that the stand-in would have written; returns the numbers of
/// collections and rows.
fn compare_exports(part: Part, context: &Context, differences: &mut Vec<String>) -> (usize, usize) {
    let mut tables: BTreeMap<PathBuf, [Option<String>; 2]> = BTreeMap::new();
    for (path, content) in context.snapshot("db/.npubench/runs") {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let side = usize::from(name.starts_with("op_summary"));
        if side == 1 || name == "rehearsal.op_summary" {
            let above = |path: &Path, steps| path.ancestors().nth(steps).expect("a folder").to_owned();
            let text = String::from_utf8(content).expect("UTF-8");
            tables.entry(above(&path, if side == 1 { 2 } else { 3 })).or_default()[side] = Some(text);
        }
    }
    let (mut collections, mut rows) = (0, 0);
    let keys = ["Device_id", "Task ID", "Task Start Time(us)"];
    for (folder, [own, exported]) in &tables {
        let (Some(own), Some(exported)) = (own, exported) else { continue };
        let place = folder.display().to_string();
        collections += 1;
        rows += part.compare(
            &place,
            [own, exported].map(|text| read_rows(text, &keys)).each_ref(),
            &[],
            differences,
        );
    }
    (collections, rows)
}

#[test]
fn the_vendors_exporter_gives_the_same_verdicts() {
    let Some(exporter) = campaign("NPUBENCH_EXPORTER", "the folder of the vendor's exporter") else { return };
    let exporter = PathBuf::from(exporter).canonicalize().expect("the exporter's folder");
    assert!(exporter.join("msprof/msprof.py").exists(), "{} has no msprof/msprof.py", exporter.display());
    let part = if exporter.join("lib64/msprof_analysis.so").exists() { Part::Cpp } else { Part::Python };
    let base = Context::new();
    base.done("grid --db db --rows 2 --kind rehearsal");
    let files = base.snapshot("db");
    let (mut differences, mut report) = (Vec::new(), String::new());
    let runs = [
        ("faults", FAULTS, "--devices 0-2"),
        ("one throttled device of three", THROTTLED, "--devices 0-2"),
        ("a throttled device alone", THROTTLED, "--devices 1 --kernels Add,MatMulV2,SwiGlu"),
        (
            "kernels of 16 devices",
            NO_FAULTS,
            "--devices 0-15 --kernels DispatchFFNCombine,DispatchFFNCombineBF16",
        ),
    ];
    for (name, plan, more) in runs {
        let contexts = [(); 2].map(|()| Context::of_files(&files));
        for (context, variable) in contexts.iter().zip([None, Some(&exporter)]) {
            context.write("plan.yaml", plan);
            let output = context
                .command(&(RUN, more))
                .envs(variable.map(|folder| ("NPUBENCH_EXPORTER", folder)))
                .output();
            context.ran(&output.expect("npubench runs")).measured();
        }
        let [own, exported] = contexts.each_ref().map(verdicts);
        for (case, verdict) in &own {
            let other = exported.get(case).map_or("none", String::as_str);
            if other != verdict {
                differences.push(format!("{name} case {case}: {verdict}, exported {other}"));
            }
        }
        for (path, content) in contexts[0].csv_files() {
            let text = |content: Vec<u8>| String::from_utf8(content).expect("UTF-8");
            let rows = |content| read_rows(&text(content), &["MicroBench Case"]);
            let other = fs::read(contexts[1].path(&path.to_string_lossy())).expect("a table");
            let (rows, other) = (rows(content), rows(other));
            let place = format!("{name} {}", path.display());
            if !rows.keys().eq(other.keys()) {
                differences.push(format!("{place}: other rows"));
            }
            let except = ["MicroBench Run", "MicroBench Reason"];
            part.compare(&place, [&rows, &other], &except, &mut differences);
        }
        let (collections, rows) = compare_exports(part, &contexts[1], &mut differences);
        assert!(collections > 0 && rows > 0, "the exporter wrote no table");
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        own.values().for_each(|verdict| {
            *counts.entry(verdict.split(' ').nth(1).expect("a verdict")).or_default() += 1;
        });
        report += &format!("{name}: {} cases, {counts:?}, {collections} exports of {rows} rows\n", own.len());
    }
    let found = format!("{part:?} part: {} differences\n{report}", differences.len());
    assert!(differences.is_empty(), "{found}{}", differences[..differences.len().min(60)].join("\n"));
    crate::requirements::say(&found);
}
