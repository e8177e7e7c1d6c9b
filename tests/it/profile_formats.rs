//! Every variant of `kernel_details.csv` and `op_summary_*.csv` that CANN and torch_npu have written, made from
//! its documented header, and held against sums that are made here.

use std::collections::BTreeMap;

use npubench::profile::COUNTERS;

use crate::prelude::*;

const CELLS: &str =
    "Input Shapes,Input Data Types,Input Formats,Output Shapes,Output Data Types,Output Formats";

/// A kernel that ran; times are in nanoseconds.
#[derive(Clone, Copy)]
struct Run {
    kernel: &'static str,
    core: &'static str,
    duration: u64,
    cells: [&'static str; 6],
}

const MATMUL: [&str; 6] =
    ["1024,1024;64,160,16,16", "DT_BF16;DT_BF16", "ND;FRACTAL_NZ", "1024,2560", "DT_BF16", "ND"];
const CAST: [&str; 6] = [";1", "DT_BF16;INT64", "ND;ND", "", "FLOAT", "ND"];
const ABSENT: [&str; 6] = ["N/A"; 6];

const fn run(kernel: &'static str, core: &'static str, duration: u64, cells: [&'static str; 6]) -> Run {
    Run { kernel, core, duration, cells }
}

/// Two signatures of one kernel, another, an even and an odd number of runs, and what has no shapes.
const RUNS: [Run; 9] = [
    run("MatMulV2", "MIX_AIC", 63_700, MATMUL),
    run("MatMulV2", "AI_CORE", 69_280, MATMUL),
    run("Cast", "AI_VECTOR_CORE", 1_801, CAST),
    run("MatMulV2", "AI_CORE", 64_001, MATMUL),
    run("hcom_allReduce_", "COMMUNICATION", 910_123, ABSENT),
    run("Cast", "AI_VECTOR_CORE", 2_400, CAST),
    run("DSARandomNormal", "DSA_SQE", 12_000, ABSENT),
    run(
        "MatMulV2",
        "AI_CORE",
        5_000_000_020,
        ["16,16;16,16", "FLOAT;FLOAT", "ND;ND", "16,16", "FLOAT", "ND"],
    ),
    run("hcom_allReduce_", "COMMUNICATION", 20_000, ABSENT),
];

/// How a table is written beyond its header.
#[derive(Clone, Copy, Debug)]
struct Style {
    newline: &'static str,
    mark: &'static str,
    /// Task Type of a collective.
    collective: &'static str,
    /// Whole microseconds without a tab behind them, and formats as they were called in 2023.
    of_2023: bool,
}

const STYLE: Style = Style { newline: "\n", mark: "", collective: "COMMUNICATION", of_2023: false };

/// A value that differs by counter and run, with three decimals.
fn counter(column: usize, index: usize) -> u64 {
    (column as u64 + 1) * 1_000 + (index as u64 + 1) * 7
}

fn decimals(thousandths: u64) -> String {
    format!("{}.{:03}", thousandths / 1_000, thousandths % 1_000)
}

/// One cell as the exporter prints it, without quotes around it.
fn cell(column: &str, run: &Run, index: usize, style: Style) -> String {
    let start = 1_764_246_877_073_569_640 + index as u64 * 1_000_000;
    let is_collective = run.kernel.starts_with("hcom_");
    let plain = match column {
        "Step Id" => if index == 0 { "" } else { "50" }.to_owned(),
        "Device_id" => "4".to_owned(),
        "Task ID" | "Stream ID" | "Model ID" | "Infer ID" if is_collective => "N/A".to_owned(),
        "Model ID" => "4294967295".to_owned(),
        "Model Name" => "resnet50".to_owned(),
        "Task ID" | "Stream ID" | "Infer ID" => index.to_string(),
        "Name" | "Op Name" if is_collective => format!("hcom_allReduce__534_{index}_1"),
        "Name" | "Op Name" => format!("aclnn{}_{index}", run.kernel),
        "Type" | "OP Type" => run.kernel.to_owned(),
        "OP State" => if is_collective { "N/A" } else { "dynamic" }.to_owned(),
        "Accelerator Core" | "Task Type" if is_collective => style.collective.to_owned(),
        "Accelerator Core" | "Task Type" => run.core.to_owned(),
        "Start Time(us)" | "Task Start Time(us)" if style.of_2023 => (start / 1_000).to_string(),
        "Start Time(us)" | "Task Start Time(us)" => format!("{}\t", decimals(start)),
        "Duration(us)" | "Task Duration(us)" => decimals(run.duration),
        "Wait Time(us)" | "Task Wait Time(us)" => if index == 0 { "0" } else { "11.406250" }.to_owned(),
        "Block Dim" | "Block Num" => "20".to_owned(),
        "Mix Block Dim" | "Mix Block Num" if !is_collective => "40".to_owned(),
        "HF32 Eligible" if !is_collective => "NO".to_owned(),
        _ => match (
            CELLS.split(',').position(|name| name == column),
            COUNTERS.iter().position(|name| *name == column),
        ) {
            (Some(at), _) if run.cells[0] != "N/A" && at % 3 == 0 => format!("\"{}\"", run.cells[at]),
            (Some(at), _) if style.of_2023 => run.cells[at].replace("ND", "FORMAT_ND"),
            (Some(at), _) => run.cells[at].to_owned(),
            (None, Some(counted)) if run.cells[0] != "N/A" => decimals(counter(counted, index)),
            _ => "N/A".to_owned(),
        },
    };
    // The writer joins what it has with commas; shapes come with quotes of their own.
    if plain.starts_with('"') { format!("\"{}\"", plain.replace('"', "\"\"")) } else { plain }
}

fn table(header: &str, runs: &[Run], style: Style) -> String {
    let mut text = format!("{}{header}{}", style.mark, style.newline);
    for (index, run) in runs.iter().enumerate() {
        let cells: Vec<String> = header.split(',').map(|column| cell(column, run, index, style)).collect();
        text.push_str(&cells.join(","));
        text.push_str(style.newline);
    }
    text
}

/// `kernel_details.csv` of 2025: what stands in front of the signature, by its version.
fn kernel_details(front: &str, blocks: &str, counters: &[&str]) -> String {
    let mut header = format!(
        "{front}Model ID,Task ID,Stream ID,Name,Type,OP State,Accelerator Core,Start Time(us),Duration(us),\
         Wait Time(us),Block {blocks},Mix Block {blocks},HF32 Eligible,{CELLS},Context ID"
    );
    counters.iter().for_each(|counter| header.extend([",", counter]));
    header
}

fn op_summary(blocks: &str, counters: &[&str]) -> String {
    kernel_details("Device_id,", blocks, counters).replacen(",Name,Type,", ",Op Name,OP Type,", 1).replacen(
        "Accelerator Core,Start Time(us),Duration(us),Wait Time(us)",
        "Task Type,Task Start Time(us),Task Duration(us),Task Wait Time(us)",
        1,
    )
}

/// Without times of the pipes: 15 counters, as in 2023.
fn ratios() -> Vec<&'static str> {
    let is_kept =
        |name: &&str| !name.ends_with("_time(us)") || matches!(*name, "aicore_time(us)" | "aiv_time(us)");
    COUNTERS.into_iter().filter(is_kept).take(15).collect()
}

/// Variants by name, with their file's name, header, number of columns, and whether they are of 2023.
fn variants() -> Vec<(&'static str, &'static str, String, usize, bool)> {
    let of_2023 = |blocks: &str| {
        format!(
            "Step Id,Model ID,Task ID,Stream ID,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),\
             {blocks},{CELLS},{}",
            ratios().join(",")
        )
    };
    let current = kernel_details("Step Id,Device_id,", "Dim", &COUNTERS);
    // A chip with unified cores has no vector cores, and no columns for what it lacks.
    let unified = "aicore_time(us),total_cycles,vec_time(us),vec_ratio,mac_time(us),mac_ratio,scalar_time(us),\
                   scalar_ratio,mte1_time(us),mte1_ratio,mte2_time(us),mte2_ratio,mte3_time(us),mte3_ratio,\
                   icache_miss_rate,memory_bound";
    let op_summary_310p =
        op_summary("Dim", &[unified]).replace(",Mix Block Dim", "").replace(",Context ID", "");
    let older = op_summary("Dim", &COUNTERS)
        .replacen("Device_id,Model ID,", "Model Name,Model ID,", 1)
        .replacen(",Stream ID,", ",Stream ID,Infer ID,", 1)
        .replacen(",OP State", "", 1);
    let test_copy = op_summary("Dim", &COUNTERS).replacen("Device_id,", "Step Id,", 1).replacen(
        "Task Start Time(us)",
        "Start Time(us)",
        1,
    );
    let l0a =
        kernel_details("Step Id,Device_id,", "Dim", &["aic_l0a_read_bw(GB/s)", "aic_l0a_write_bw(GB/s)"]);
    let exe = op_summary("Dim", &["aic_mac_exe_time(us)", "aiv_vec_exe_time(us)"]);
    vec![
        ("32 columns of 2023", "kernel_details.csv", of_2023("Block Dim"), 32, true),
        ("33 columns of 2023", "kernel_details.csv", of_2023("Block Dim,Mix Block Dim"), 33, true),
        ("46 columns", "kernel_details.csv", kernel_details("Step Id,", "Dim", &COUNTERS), 46, false),
        ("47 with Device_id", "kernel_details.csv", current, 47, false),
        (
            "47 with Block Num",
            "kernel_details.csv",
            kernel_details("Step Id,Device_id,", "Num", &COUNTERS),
            47,
            false,
        ),
        ("no steps", "kernel_details.csv", kernel_details("Device_id,", "Num", &COUNTERS), 46, false),
        ("AiCoreNone", "kernel_details.csv", kernel_details("Step Id,Device_id,", "Dim", &[]), 22, false),
        ("MemoryL0", "kernel_details.csv", l0a, 24, false),
        ("op_summary", "op_summary_20251127100000.csv", op_summary("Num", &COUNTERS), 46, false),
        ("op_summary of a 310P", "op_summary_20251127100000.csv", op_summary_310p, 35, false),
        ("op_summary with exe times", "op_summary_20251127100000.csv", exe, 23, false),
        ("older op_summary", "op_summary_0_1_1.csv", older, 46, false),
        ("op_summary with steps", "op_summary_slice_0_20251127100000.csv", test_copy, 46, false),
    ]
}

/// Holds a database against the runs: numbers of rows, and in each average, median and counters.
fn assert_holds(context: &Context, database: &str, header: &str, runs: &[Run], of_2023: bool, what: &str) {
    let mut groups: BTreeMap<(&str, &str), Vec<(usize, &Run)>> = BTreeMap::new();
    for (index, run) in runs.iter().enumerate().filter(|(_, run)| run.cells[0] != "N/A") {
        groups.entry((run.kernel, run.cells[0])).or_default().push((index, run));
    }
    for kernel in ["MatMulV2", "Cast"] {
        let rows = context.rows(database, kernel);
        assert_eq!(rows.len(), groups.keys().filter(|(of, _)| *of == kernel).count(), "{what}: {kernel}");
        for row in rows {
            let shapes = row["Input Shapes"].trim_matches('"');
            let records = &groups[&(kernel, shapes)];
            let first = records[0].1;
            let mut durations: Vec<u64> = records.iter().map(|(_, run)| run.duration).collect();
            durations.sort_unstable();
            let half = durations.len() / 2;
            let is = |column: &str, expected: f64| {
                let written: f64 =
                    row[column].parse().unwrap_or_else(|_| panic!("{what}: {column} `{}`", row[column]));
                assert!(
                    (written - expected).abs() < 1.1e-6,
                    "{what}: {kernel} {column} {written} {expected}"
                );
            };
            let count = records.len() as f64;
            is("Profiling Average Duration(us)", durations.iter().sum::<u64>() as f64 / count / 1e3);
            is(
                "Profiling Median Duration(us)",
                (durations[(durations.len() - 1) / 2] + durations[half]) as f64 / 2e3,
            );
            assert_eq!(row["Accelerator Core"], first.core, "{what}");
            assert_eq!(row["OP State"], if header.contains("OP State") { "dynamic" } else { "" }, "{what}");
            let formats =
                if of_2023 { first.cells[2].replace("ND", "FORMAT_ND") } else { first.cells[2].to_owned() };
            assert_eq!(
                (row["Input Data Types"].as_str(), &row["Input Formats"]),
                (first.cells[1], &formats),
                "{what}"
            );
            assert_eq!(row["Output Shapes"].trim_matches('"'), first.cells[3], "{what}");
            for (number, name) in COUNTERS.iter().enumerate() {
                let column = format!("Profiling Average {name}");
                if header.split(',').any(|column| column == *name) {
                    let sum: u64 = records.iter().map(|(index, _)| counter(number, *index)).sum();
                    is(&column, sum as f64 / count / 1e3);
                } else {
                    assert_eq!(row[&column], "", "{what}: {column}");
                }
            }
        }
    }
}

#[test]
fn every_profile_format_gives_same_rows() {
    let context = Context::new();
    let styles = [
        STYLE,
        Style { newline: "\r\n", ..STYLE },
        Style { mark: "\u{feff}", collective: "HCCL", ..STYLE },
        Style { newline: "\r\n", mark: "\u{feff}", collective: "HCCL", ..STYLE },
    ];
    for (number, (what, file, header, columns, of_2023)) in variants().into_iter().enumerate() {
        assert_eq!(header.split(',').count(), columns, "{what}: {header}");
        let style = Style { of_2023, ..styles[number % styles.len()] };
        let path = format!("{number}/{file}");
        context.write(&path, &table(&header, &RUNS, style));
        let database = format!("{number}/db");
        let ran = context.done(&["ingest", &path, "--db", &database]);
        ran.out_has(": 2 kernels, 3 rows added");
        assert!(ran.stdout.starts_with("9 records of 1 file "), "{what} {style:?}: {}", ran.stdout);
        ran.err_has("1 record without input shapes is left out: DSARandomNormal 1\n");
        ran.err_has("beside the table, has the sizes) are left out: hcom_allReduce_ 2\n");
        assert_holds(&context, &database, &header, &RUNS, of_2023, what);
    }
}

#[test]
fn profile_without_shapes_is_refused_with_reason() {
    let context = Context::new();
    // At level 0 neither types nor cores are recorded.
    let level0 = "Step Id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),Block Dim";
    let untyped: Vec<Run> = RUNS.map(|run| Run { kernel: "N/A", core: "N/A", ..run }).to_vec();
    context.write("level0/kernel_details.csv", &table(level0, &untyped, Style { newline: "\r\n", ..STYLE }));
    // Where only collectives ran, msprof leaves the columns out.
    let bare = "Device_id,Model ID,Task ID,Stream ID,Op Name,OP Type,Task Type,Task Start Time(us),Task Duration(us),\
                Task Wait Time(us),Block Dim,Context ID";
    let collectives = [RUNS[4], RUNS[8]];
    context.write("comm/op_summary_20251127100000.csv", &table(bare, &collectives, STYLE));
    // `--task-time=l0` of msprof: the columns are there, and nothing is in them.
    let shapeless: Vec<Run> = RUNS.map(|run| Run { cells: ABSENT, ..run }).to_vec();
    context.write("l0/op_summary_20251127100000.csv", &table(&op_summary("Dim", &[]), &shapeless, STYLE));
    for (folder, message) in [
        ("level0", "has no shape columns: it was taken at profiler level 0\n"),
        ("comm", "has no shape columns: it holds collectives and no other kernel\n"),
        ("l0", "none of the 9 records has input shapes\n"),
    ] {
        let ran = context.run(&["ingest", folder, "--db", "db"]);
        assert_eq!((ran.code, ran.stdout.as_str()), (3, ""), "{folder}");
        ran.err_has(message);
        assert!(!context.path("db").exists(), "{folder}");
    }
}

#[test]
fn op_summary_slices_are_one_table_without_older_export() {
    let context = Context::new();
    let header = op_summary("Num", &COUNTERS);
    let output = "PROF_000001_20251127100000000_ABCDEFGHIJKLMNOP/mindstudio_profiler_output";
    // Rows of a slice have numbers of their own, so the counters are those of the runs in their slice.
    for (name, runs) in [
        ("op_summary_slice_0_20251127110000.csv", &RUNS[..5]),
        ("op_summary_slice_1_20251127110000.csv", &RUNS[5..]),
        ("op_summary_20251127100000.csv", &RUNS[..]),
        ("op_summary_slice_0_20251127103000.csv", &RUNS[..5]),
    ] {
        context.write(&format!("{output}/{name}"), &table(&header, runs, STYLE));
    }
    context.write(&format!("{output}/op_statistic_20251127110000.csv"), "Device_id,OP Type\n0,Cast\n");
    let ran = context.run("ingest PROF_000001_20251127100000000_ABCDEFGHIJKLMNOP --db db");
    ran.out_has("9 records of 2 files in db: 2 kernels, 3 rows");
    let rows = context.rows("db", "Cast");
    assert_eq!(rows[0]["Profiling Average Duration(us)"], "2.100500");
    assert_eq!(rows[0]["Profiling Median Duration(us)"], "2.100500");
}

#[test]
fn profile_folders_of_older_releases_are_found() {
    let context = Context::new();
    let header = op_summary("Dim", &COUNTERS).replacen("Device_id,", "", 1);
    let root = "PROF_000001_20210127100000000_ABCDEFGHIJKLMNOP";
    for (device, runs) in [(0, &RUNS[..3]), (10, &RUNS[3..])] {
        let name = format!("{root}/device_{device}/summary/op_summary_{device}_1_1.csv");
        context.write(&name, &table(&header, runs, Style { newline: "\r\n", ..STYLE }));
        context.write(
            &format!("{root}/device_{device}/summary/task_time_{device}_1_1.csv"),
            "Time(%),Time(us)\n1,2\n",
        );
        context.write(&format!("{root}/device_{device}/timeline/task_time_{device}_1_1.json"), "[]");
    }
    let ran = context.run(&["ingest", root, "--db", "db"]);
    ran.out_has("9 records of 2 files in db: 2 kernels, 3 rows");
    assert_eq!(context.rows("db", "Cast")[0]["Profiling Average Duration(us)"], "2.100500");
}

#[test]
fn other_profiler_tables_are_recognized() {
    let context = Context::new();
    let operators = "Name,Input Shapes,Call Stack,Host Self Duration(us),Host Total Duration(us)";
    let of_database = format!("OP State,Accelerator Core,{CELLS},Average Duration(us)");
    for (text, message, hint) in [
        (
            "Device_id,OP Type,Core Type,Count,Total Time(us),Ratio(%)",
            "sums per kernel",
            "of the same profile",
        ),
        (operators, "operators of the framework", "of the same profile"),
        ("Device_id,kernel_name,kernel_type,task_time(us)", "times of tasks", "of the same profile"),
        ("Device_id,Level,API Name,Time(us),Count", "calls on the host", "of the same profile"),
        ("Step,Computing,Communication(Not Overlapped),Free", "times of steps", "of the same profile"),
        ("Component,Timestamp(us),Total Allocated(MB)", "uses of memory", "of the same profile"),
        (&of_database, "a kernel's rows as a database has them", "copy it into the database folder"),
        ("\u{feff} [{\"ph\": \"M\"}]", "is JSON, not a table of kernels", "of the same profile"),
        ("Type,Price\nApple,1", "the header lacks `Duration(us)`", "not a kernel table of msprof"),
        (
            "Type;Duration(us)\nAdd;1",
            "has no comma; is the table separated by ';'?",
            "CSV with commas in UTF-8",
        ),
    ] {
        context.write("table.csv", &format!("{text}\n"));
        let ran = context.run("ingest table.csv --db db");
        assert_eq!((ran.code, ran.stdout.as_str()), (3, ""), "{text}");
        assert!(ran.stderr.contains(message) && ran.stderr.contains(hint), "{text}: {}", ran.stderr);
    }
}
