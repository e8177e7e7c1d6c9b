//! `npubench modules`: the vendor's module statistic on real profiles, utilisation, and the join with a database.

use std::{collections::BTreeMap, fs, path::PathBuf, process::Command};

use serde_json::Value;

use crate::prelude::*;
use crate::{
    timeline::{objects, write_database, write_text_profile},
    timeline_vendor::raw_database,
};

/// Row of the table: parent, module, operator, kernels, sum and mean in nanoseconds, calls.
type Row = (String, String, String, String, f64, f64, u64);

/// Makes a profile with ranges of mstx from the real database.
pub(crate) fn marked_profile(context: &Context, variant: &str) -> Option<PathBuf> {
    let (source, tool) =
        (shared("real/cnn_db_level1_rank0")?, shared("tools/model_analysis/make_mstx_db.py")?);
    let profile = context.path(&format!("{variant}_ascend_pt"));
    let made =
        Command::new("python3").args([&tool, &source, &profile]).arg(variant).output().expect("python3 runs");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    Some(profile)
}

pub(crate) fn reference(name: &str) -> Option<Value> {
    let path = shared(&format!("real/model_analysis/{name}"))?;
    Some(serde_json::from_str(&fs::read_to_string(path).expect("read")).expect("JSON"))
}

fn reference_rows(rows: &Value) -> Vec<Row> {
    let text = |cell: &Value| cell.as_str().unwrap_or_default().to_owned();
    let number = |cell: &Value| cell.float();
    let rows = rows.list().iter();
    rows.map(|row| {
        let calls = row[6].whole();
        (text(&row[0]), text(&row[1]), text(&row[2]), text(&row[3]), number(&row[4]), number(&row[5]), calls)
    })
    .collect()
}

fn without_mean(row: &Row) -> (&str, &str, &str, &str, f64, u64) {
    (&row.0, &row.1, &row.2, &row.3, row.4, row.6)
}

/// Returns the rows in modules, and the sum of the time outside.
fn own_rows(csv: &str) -> (Vec<Row>, f64) {
    let mut rows = Vec::new();
    let mut outside = 0.0;
    for row in csv::Reader::from_reader(csv.as_bytes()).deserialize() {
        let row: BTreeMap<String, String> = row.expect("a row");
        let text = |column: &str| row[column].clone();
        let number = |column: &str| row[column].parse::<f64>().expect("a number");
        if row["module"] == "[outside modules]" {
            outside += number("totalKernelDuration(ns)");
            continue;
        }
        rows.push((
            text("parentModule"),
            text("module"),
            text("opName"),
            text("kernelList"),
            number("totalKernelDuration(ns)"),
            number("avgKernelDuration(ns)"),
            row["opCount"].parse().expect("a count"),
        ));
    }
    (rows, outside)
}

#[test]
fn real_rows_are_those_of_the_vendors_statistic() {
    let context = Context::new();
    for variant in ["basic", "hostile"] {
        let Some(expected) = reference(&format!("module_statistic_{variant}_db.json")) else { return };
        let Some(profile) = marked_profile(&context, variant) else { return };
        let ran = context.run(&["modules", &profile.to_string_lossy(), "--format", "csv"]);
        let unfinished = "1 record of a range of mstx without an end behind its start, left out";
        assert_eq!((ran.code, ran.stderr.contains(unfinished)), (0, variant == "hostile"), "{}", ran.stderr);
        let (rows, outside) = own_rows(&ran.stdout);
        let expected = reference_rows(&expected["ModuleStatistic"]["rows"]);
        assert_eq!(rows.len(), expected.len(), "{variant}");
        for (own, theirs) in rows.iter().zip(&expected) {
            assert_eq!(without_mean(own), without_mean(theirs), "{variant}");
            assert!((own.5 - theirs.5).abs() < 1e-6, "{variant}: {own:?}, {theirs:?}");
        }
        if variant == "basic" {
            let Some(independent) = reference("module_statistic_basic_independent.json") else { return };
            assert_eq!(independent["outside_any_module_ns"].as_f64(), Some(outside));
            let attributed: f64 = rows.iter().map(|row| row.4).sum();
            assert_eq!(independent["attributed_ns"].as_f64(), Some(attributed));
        }
    }
}

/// The vendor's tool leaves out what no module encloses: 46 kernels and collectives with 95 % of the time.
#[test]
fn time_outside_of_modules_is_counted_and_every_kernel_has_an_operator() {
    let context = Context::new();
    let Some(profile) = marked_profile(&context, "basic") else { return };
    let database = raw_database(&profile);
    let all = "SELECT count(*), sum(length) FROM (
        SELECT t.endNs - t.startNs AS length FROM TASK t JOIN COMPUTE_TASK_INFO USING (globalTaskId)
        UNION ALL SELECT endNs - startNs FROM COMMUNICATION_OP)";
    let counts = |query: &str| -> (i64, i64) {
        database.query_row(query, [], |row| Ok((row.get(0)?, row.get(1)?))).expect("a sum")
    };
    let ran = context.run(&["modules", &profile.to_string_lossy(), "--format", "json"]);
    let rows = ran.json();
    let operators: Vec<&Value> = rows.iter().filter(|row| row["item"] == "operator").collect();
    let number = |value: &Value| value.as_i64().expect("a whole number");
    let count = |rows: &mut dyn Iterator<Item = &&Value>| {
        rows.fold((0, 0), |(kernels, time), row| {
            let of_call = i64::try_from(row["kernels"].list().len()).expect("few");
            (kernels + of_call * number(&row["calls"]), time + number(&row["total_ns"]))
        })
    };
    assert_eq!(count(&mut operators.iter()), counts(all));
    let outside = count(&mut operators.iter().filter(|row| row["module"].is_null()));
    assert_eq!(outside, (46, 105_228_703));
    assert!(operators.iter().all(|row| row["operator"].as_str().is_some_and(|name| !name.is_empty())));
}

/// Asserts that `compare --db` has calls and times of the chosen steps, divided by the steps of each side. `products` are the lines
/// of the kernel table, and `alone` is the duration alone in nanoseconds.
fn assert_compared_per_step(context: &Context, products: &[String], alone: f64) {
    // Step 7 has two products of 10,000 ns each, step 8 one of 20,000 ns; `one_step` has step 7 only.
    let first: Vec<&str> =
        products.iter().map(String::as_str).filter(|line| !line.starts_with("8,")).collect();
    context.write("one_step/kernel_details.csv", &first.concat());
    let document = include_str!("../../docs/timeline.md");
    let compare = |format: &str, options: &[&str]| {
        let arguments = ["compare", "p_ascend_pt", "one_step", "--db", "db", "--format", format];
        let ran = context.done(&(&arguments, options));
        ran.stdout
    };
    for (options, expected) in [(&[][..], [1.5, 2.0]), (&["--step", "7"], [2.0, 2.0])] {
        let output = objects(&compare("json", options));
        let found = output.iter().filter(|row| row["item"] == "kernel" && row["kernel"] == "MatMulV2");
        let found: Vec<&Value> = found.collect();
        assert_eq!(found.iter().map(|row| &row["run"]).collect::<Vec<_>>(), ["base", "other"]);
        for (row, calls) in found.into_iter().zip(expected) {
            assert_eq!((&row["calls"], &row["total_ns"]), (&calls.into(), &20_000.0.into()), "{options:?}");
            let excess = row["excess_ns"].float();
            assert!((excess - (20_000.0 - calls * alone)).abs() < 1e-6, "{row}");
            for key in row.as_object().expect("an object").keys() {
                assert!(document.contains(&format!("`{key}`")), "`{key}` is not in docs/timeline.md");
            }
        }
        let csv = compare("csv", options);
        let mut reader = csv::Reader::from_reader(csv.as_bytes());
        let header: Vec<String> = reader.headers().expect("a header").iter().map(str::to_owned).collect();
        let records: Vec<csv::StringRecord> = reader.records().map(|record| record.expect("a row")).collect();
        let place = |name: &str| header.iter().position(|cell| cell == name).expect("a column");
        let of_part: Vec<_> = records.iter().filter(|record| &record[0] == "kernel_alone").collect();
        // Kernels without a duration alone are rows, too.
        let (with, without): (Vec<_>, Vec<_>) =
            of_part.into_iter().partition(|record| !record[place("alone")].is_empty());
        let [record] = *with else { panic!("{csv}") };
        assert!(without.iter().all(|record| &record[1] != "MatMulV2"), "{csv}");
        assert!(!without.is_empty(), "{csv}");
        let cell = |name: &str| &record[place(name)];
        let cells = ["name", "base", "base calls", "other", "other calls", "difference", "ratio"].map(cell);
        let [base, other] = expected.map(|calls: f64| calls.to_string());
        assert_eq!(cells, ["MatMulV2", "20000", &base, "20000", &other, "0", "1"], "{csv}");
        let ratios = ["alone", "base slowdown", "other slowdown"].map(|name| cell(name).parse::<f64>());
        let ratios = ratios.map(|ratio| ratio.expect("a number"));
        assert!((ratios[0] - alone).abs() < 1e-6, "{csv}");
        for (slowdown, calls) in ratios[1..].iter().zip(expected) {
            assert!((slowdown * alone * calls - 20_000.0).abs() < 1e-6, "{csv}");
        }
    }
}

#[test]
fn kernels_are_compared_with_a_database_and_the_missing_ones_are_listed() {
    let context = Context::new();
    write_text_profile(&context, "p_ascend_pt", 0);
    let table = fs::read_to_string(context.path("p_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv"));
    let products: Vec<String> = table
        .expect("read")
        .lines()
        .filter(|line| line.starts_with("Step Id") || line.contains("MatMulV2"))
        .map(|line| format!("{line}\n"))
        .collect();
    context.write("products/kernel_details.csv", &products.concat());
    context.done("ingest products --db db --kind rehearsal");
    let ran = context.done("modules p_ascend_pt --db db --missing missing.csv --xlsx all.xlsx");
    // The row has the duration of this profile only, which is not that of the kernel alone.
    ran.out_has("without a duration alone: 3 kernels, 0.044 ms\n");
    ran.out_has("`npubench fill` or `run` measures it  measurement of the row of MatMulV2\n");
    ran.out_lacks("slowdown");
    let one = context.run("modules products --db db");
    one.out_has("without a duration alone: 1 kernel, 0.040 ms\n");
    let compared = context.run("compare p_ascend_pt products --db db");
    compared.out_has("no kernel of base or other has a measured row");
    compared.out_has("`npubench run --db db --host rehearsal` measures its rows");
    assert_eq!(compared.stderr.matches("are simulated").count(), 1, "{}", compared.stderr);
    context.done(&STEADY_RUN);
    let measured = context.run("modules p_ascend_pt --db db --format json");
    let rows = measured.json();
    let product = rows.iter().find(|row| row["kernel"] == "MatMulV2").expect("a kernel");
    let number = |key: &str| product[key].float();
    assert!((number("slowdown") - 13_333.333_333 / number("alone_ns")).abs() < 1e-6, "{product}");
    assert!((number("excess_ns") - (40_000.0 - 3.0 * number("alone_ns"))).abs() < 1e-6, "{product}");
    let linear = rows.iter().find(|row| row["module"] == "Linear").expect("a row");
    assert!((linear["excess_ns"].float() - number("excess_ns")).abs() < 1e-6, "{linear}");
    assert_compared_per_step(&context, &products, number("alone_ns"));
    let compared = context.done("compare p_ascend_pt p_ascend_pt --db db --html page.html");
    let (slowdown, alone) =
        (format!("{:.3}", number("slowdown")), format!("{:.3}", number("alone_ns") / 1e3));
    let (_, table) =
        compared.stdout.split_once("\nkernels against their durations alone\n").expect("a table");
    let without = "2 kernels without a duration alone: `npubench modules p_ascend_pt/ASCEND_PROFILER_OUTPUT --db db` has the \
                   reasons\n";
    assert!(table.contains(without), "{table}");
    let line = table.lines().find(|line| line.contains("MatMulV2")).expect("a row");
    let cells: Vec<&str> = line.split_whitespace().rev().take(6).collect();
    assert_eq!(cells, ["0.000", &slowdown, "13.333", &slowdown, "13.333", &alone], "{line}");
    let page = context.read("page.html");
    let cells =
        format!("<td class=\"n\">{alone}</td><td class=\"n\">13.333</td><td class=\"n\">{slowdown}</td>");
    assert!(page.contains(&cells), "{page}");
    let book = fs::read(context.path("all.xlsx")).expect("written");
    assert!(book.starts_with(b"PK"), "a workbook is an archive");
    let missing = context.read("missing.csv");
    assert!(missing.starts_with("Name,Type,Duration(us),Input Shapes,"), "{missing}");
    context.run("coverage --db db --workload missing.csv --format json").measured();
    // Without operators on the host, no time can belong to a module, and the output says so.
    let table = context.run("modules products");
    table.err_has("no range of a module is recorded in the domain `Module`");
    table.out_has("\nnot recorded: host operators and what they launched");
    // The result is neither an input nor in the database.
    for (option, path) in
        [("--missing", "p_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv"), ("--missing", "db/a.csv")]
    {
        let ran = context.run(&["modules", "p_ascend_pt", "--db", "db", option, path]);
        assert!(matches!(ran.code, 2 | 3) && ran.stderr.contains("\nhint: "), "{ran:?}");
    }
}

#[test]
fn a_list_of_missing_kernels_is_not_written_without_any() {
    let context = Context::new();
    context.small_database("db");
    context.run("run --db db --host rehearsal --devices 0").measured();
    let ran = context.done("modules db.csv --db db --missing missing.csv");
    ran.err_has("no kernel is missing in the database: `missing.csv` is not written");
    assert!(!context.path("missing.csv").exists());
}

/// A profile that was ingested answers its own kernels, but with durations in the model: `fill` measures what `modules` lists.
#[test]
fn kernels_without_a_measurement_are_listed_and_then_measured_by_fill() {
    let context = Context::new();
    let example = |path: &str| format!("{}/examples/decoder_profile{path}", env!("CARGO_MANIFEST_DIR"));
    let rank = example("/rank0_ascend_pt");
    context.done(&["ingest", &example(""), "--db", "db", "--kind", "rehearsal"]);
    let missing = |file: &str| -> Vec<(String, String)> {
        let ran = context.done(&["modules", &rank, "--db", "db", "--missing", file, "--format", "json"]);
        let command =
            format!("`npubench fill --db db --workload {file} --host rehearsal` measures those that can be");
        ran.err_has(&command);
        let kernels = ran.json().into_iter().filter(|object| object["item"] == "kernel");
        let without = kernels.filter(|kernel| kernel["alone_ns"].is_null());
        let text = |value: &Value| value.text().to_owned();
        let closing =
            |kernel: &Value| format!("{}; closed by {}", text(&kernel["reason"]), text(&kernel["closed_by"]));
        without.map(|kernel| (text(&kernel["kernel"]), closing(&kernel))).collect()
    };
    // As `coverage` names it, below.
    let length = "semantic_context_missing:target:avg_seq_len; closed by parameter of the query: kv_length";
    let attention = ("FusedInferAttentionScore".to_owned(), length.to_owned());
    let mut before = missing("missing.csv");
    before.sort_unstable();
    let not_measured = "row without a measurement; `npubench fill` or `run` measures it";
    let rows = ["Add", "MatMulV2", "RmsNorm", "SwiGlu"];
    let closed_by = |kernel: &str| format!("{not_measured}; closed by measurement of the row of {kernel}");
    let mut expected = rows.map(|kernel| (kernel.to_owned(), closed_by(kernel))).to_vec();
    expected.insert(1, attention.clone());
    assert_eq!(before, expected);
    let covered = context.run("coverage --db db --workload missing.csv");
    let note = "54 invocations are answered with durations of production profiles, which are those in a model: \
                `npubench fill` measures their kernels alone";
    covered.err_has(note);
    covered.out_has("parameter of the query: kv_length");
    let fill = |more: &str| {
        let arguments = ["fill", "--db", "db", "--workload", "missing.csv", "--host", "rehearsal"];
        let devices = "--rehearsal-model steady --devices 0-3";
        context.run(&(&arguments, devices, more))
    };
    let planned = fill("--dry-run --format json").json();
    let forecast = planned.last().expect("a forecast");
    assert_eq!((&forecast["cases"], &forecast["unmeasured_rows"]), (&4.into(), &4.into()), "{forecast}");
    assert_eq!(forecast["m5_before"], forecast["m5_forecast"], "these rows count in M5 already");
    let filled = fill("").ended(0);
    let text =
        "4 rows have durations of production profiles only: they count in M5, and are measured as well\n";
    filled.out_has(text);
    // Only the length of the keys of attention is not recorded.
    assert_eq!(missing("rest.csv"), [attention]);
    let again = fill("--dry-run --format json");
    let forecast = again.json().pop().expect("a forecast");
    assert_eq!((&forecast["cases"], &forecast["unmeasured_rows"]), (&0.into(), &0.into()), "{forecast}");
    let covered = context.run("coverage --db db --workload missing.csv");
    covered.err_lacks("production profiles");
}

/// Reads the cells of a workbook with the parsers of Python's standard library, and prints them as JSON.
const READ_WORKBOOK: &str = r#"
import json, sys, zipfile, xml.etree.ElementTree as tree
book = zipfile.ZipFile(sys.argv[1])
assert book.testzip() is None
parse = lambda name: tree.fromstring(book.read(name))
space = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
text = lambda node: "".join(part.text or "" for part in node.iter(space + "t"))
strings = [text(node) for node in parse("xl/sharedStrings.xml")]
names = [sheet.get("name") for sheet in parse("xl/workbook.xml").iter(space + "sheet")]
def column(cell):
    letters = "".join(letter for letter in cell.get("r") if letter.isalpha())
    place = 0
    for letter in letters:
        place = 26 * place + ord(letter) - 64
    return place - 1
rows = []
for row in parse("xl/worksheets/sheet1.xml").iter(space + "row"):
    cells = {}
    for cell in row.iter(space + "c"):
        assert cell.find(space + "f") is None, "a formula"
        value = cell.find(space + "v").text
        cells[column(cell)] = strings[int(value)] if cell.get("t") == "s" else float(value)
    rows.append([cells.get(place) for place in range(9)])
json.dump({"sheets": names, "rows": rows}, sys.stdout)
"#;

#[test]
fn a_workbook_has_the_cells_of_the_csv() {
    let context = Context::new();
    // Names that are no formula, no markup, and longer than a cell of a workbook may be.
    let statements = "UPDATE STRING_IDS SET value = '=1+1' WHERE value = 'aclnnAddmm_MatMulV2';
        UPDATE STRING_IDS SET value = '<a & \"b\">, \u{e4}' WHERE value = 'aclnnMul';
        UPDATE STRING_IDS SET value = hex(zeroblob(20000)) WHERE value = 'aclnnAdd_Add'";
    write_database(&context.path("ascend_pytorch_profiler_0.db"), statements);
    let base = "modules ascend_pytorch_profiler_0.db --peak 100 --format csv";
    let ran = context.run(&(base, "--xlsx all.xlsx"));
    assert_eq!((ran.code, &*ran.stderr), (0, "wrote `all.xlsx`\n"));
    let mut python = Command::new("python3");
    python.args(["-c", READ_WORKBOOK]).arg(context.path("all.xlsx"));
    let output = context.ran(&python.output().expect("python3 runs"));
    assert_eq!((output.code, &*output.stderr), (0, ""));
    let book: Value = serde_json::from_str(&output.stdout).expect("JSON");
    assert_eq!(book["sheets"], serde_json::json!(["module_statistic"]));
    let rows = book["rows"].list();
    let mut csv = csv::ReaderBuilder::new().has_headers(false).from_reader(ran.stdout.as_bytes());
    let expected: Vec<csv::StringRecord> = csv.records().map(|row| row.expect("a row")).collect();
    assert_eq!((rows.len(), expected.len()), (1 + 6, 1 + 6));
    for (number, (row, expected)) in rows.iter().zip(&expected).enumerate() {
        for (column, text) in expected.iter().enumerate() {
            let cell = &row[column];
            match cell.as_f64() {
                Some(value) if number > 0 => assert_eq!(Ok(value), text.parse(), "{row}"),
                _ if text.len() > 32_767 => {
                    let cell = cell.text();
                    assert!(
                        cell.chars().count() <= 32_767 && cell.starts_with("00000") && cell.contains("...")
                    );
                }
                _ => {
                    // In CSV, a formula has an apostrophe in front.
                    let text = text.strip_prefix('\'').filter(|text| text.starts_with('=')).unwrap_or(text);
                    assert_eq!(cell.as_str().unwrap_or_default(), text, "{row}");
                }
            }
        }
    }
    let cells: Vec<&str> = rows.iter().flat_map(|row| [&row[2], &row[3]]).filter_map(Value::as_str).collect();
    assert!(cells.contains(&"=1+1") && cells.contains(&"<a & \"b\">, \u{e4}"));
}

#[test]
fn lines_that_mark_modules_are_python() {
    let context = Context::new();
    let output = context.command("modules --snippet").env("NPUBENCH_DB", "db").output();
    let snippet = context.ran(&output.expect("npubench runs"));
    assert_eq!((snippet.code, &*snippet.stderr), (0, ""));
    context.write("mark_modules.py", &snippet.stdout);
    // Stand-ins for torch record what is called.
    context.write(
        "torch/__init__.py",
        "class nn:\n    class Module:\n        def __call__(self, x):\n            return self.forward(x)\n",
    );
    context.write(
        "torch_npu/__init__.py",
        "calls = []\nclass npu:\n    class mstx:\n        def range_start(*a):\n            calls.append(a)\n            return len(calls)\n        \
         def range_end(*a):\n            calls.append(a)\n        def mark(*a):\n            calls.append(a)\n",
    );
    let script = "import torch, torch_npu, mark_modules\nmark_modules.mark_modules()\n\
                  class Net(torch.nn.Module):\n    def forward(self, x):\n        return x + 1\n\
                  assert Net()(1) == 2\nmark_modules.mark_attention('BSND', 3, [1, 2])\nprint(torch_npu.calls)\n\
                  del torch_npu.calls[:]\nends = range(1000, 33000, 1000)\nmark_modules.mark_attention('TND', 3, ends, ends)\n\
                  marks = [call[0] for call in torch_npu.calls]\nassert max(map(len, marks)) < 156, marks\n\
                  print(''.join(mark.split(':', 2)[2] for mark in marks) == mark_modules.json.dumps({'input_layout': 'TND', \
                  'sparse_mode': 3, 'actual_seq_qlen': list(ends), 'actual_seq_kvlen': list(ends)}, separators=(',', ':')), \
                  [mark.split(':', 2)[:2] for mark in marks])";
    let ran = Command::new("python3")
        .args(["-c", script])
        .current_dir(context.path(""))
        .output()
        .expect("python3 runs");
    let expected = "[('Net', None, 'Module'), (1, 'Module'), ('{\"input_layout\":\"BSND\",\"sparse_mode\":3,\
                    \"actual_seq_qlen\":[1,2]}', None, 'flash_attn_args')]\n\
                    True [['0', '1/4'], ['0', '2/4'], ['0', '3/4'], ['0', '4/4']]\n";
    assert_eq!(String::from_utf8_lossy(&ran.stdout), expected, "{}", String::from_utf8_lossy(&ran.stderr));
}

#[test]
fn wrong_options_and_profiles_without_work_are_refused() {
    let context = Context::new();
    write_text_profile(&context, "p_ascend_pt", 0);
    context.write(
        "empty/kernel_details.csv",
        "Step Id,Name,Type,Accelerator Core,Start Time(us),Duration(us)\n",
    );
    for (arguments, expected) in [
        (&[][..], "required"),
        (&["p_ascend_pt", "--snippet"], "cannot be used with"),
        (&["p_ascend_pt", "--missing", "a.csv"], "--db"),
        (&["p_ascend_pt", "--peak", "0"], "give a number above 0"),
        (&["p_ascend_pt", "--peak", "nan"], "give a number above 0"),
        (&["p_ascend_pt", "--device-profile", "none"], "none"),
        (&["p_ascend_pt", "--db", "nowhere"], "nowhere"),
        (&["p_ascend_pt", "--xlsx", "a.csv"], "does not end in `.xlsx`"),
        // A table of a range that launched nothing is no module without time.
        (&["empty/kernel_details.csv"], "neither a kernel nor a collective"),
    ] {
        let ran = context.run(&("modules", arguments));
        assert!(matches!(ran.code, 2 | 3), "{arguments:?}: {ran:?}");
        assert!(ran.stderr.contains(expected) && ran.stdout.is_empty(), "{arguments:?}: {ran:?}");
    }
}
