//! `npubench ingest --skip-bad`: a rank whose export is damaged costs that rank, and every bad line is named.

use std::{fs, path::Path};

use crate::prelude::*;

/// Ranks of the example, and copies of it under other times.
fn ranks(context: &Context) {
    for (number, rank) in [0, 1, 0].into_iter().enumerate() {
        let example = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!(
            "examples/decoder_profile/rank{rank}_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv"
        ));
        let text = fs::read_to_string(example).expect("a table");
        // Equal tables would be copies of one.
        let text = if number == 2 { text.replacen("MatMulV2", "MatMulV3", 1) } else { text };
        context.write(&table(number), &text);
    }
}

fn table(number: usize) -> String {
    format!("ranks/rank{number}_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv")
}

/// Cuts some lines, by their numbers from 1, within a cell.
fn cut_lines(context: &Context, number: usize, lines: &[usize]) {
    let path = context.path(&table(number));
    let text = fs::read_to_string(&path).expect("a table");
    let cut = text.lines().enumerate().map(|(at, line)| {
        if lines.contains(&(at + 1)) { line[..line.len() / 2].to_owned() } else { line.to_owned() }
    });
    fs::write(&path, cut.collect::<Vec<_>>().join("\n") + "\n").expect("written");
}

const INGEST: [&str; 8] =
    ["ingest", "ranks", "--db", "db", "--device", "ATLAS_800_A2_313T_64G", "--kind", "rehearsal"];

#[test]
fn one_damaged_rank_costs_that_rank_and_its_lines_are_named() {
    let context = Context::new();
    ranks(&context);
    cut_lines(&context, 1, &[3, 5, 9]);
    let refused = context.exits(3, &INGEST);
    assert!(!context.path("db").exists());
    let read = context.exits(1, &(INGEST, "--skip-bad"));
    insta::assert_snapshot!(format!("{}---\n{}{}", refused.stderr, read.stderr, read.stdout));
    // The rows are those of the two other ranks alone.
    let rows = context.csv_files();
    let good = Context::new();
    ranks(&good);
    fs::remove_file(good.path(&table(1))).expect("removed");
    assert_eq!(good.run(&INGEST).code, 0);
    assert!(rows == good.csv_files(), "the rows of both readable ranks");
}

#[test]
fn empty_and_incomplete_exports_are_left_out() {
    let context = Context::new();
    ranks(&context);
    fs::write(context.path(&table(0)), "").expect("written");
    context.write("ranks/PROF_1/mindstudio_profiler_output/op_summary_slice_1_20261120100000.csv", "cut");
    let read = context.exits(1, &(INGEST, "--skip-bad"));
    assert!(read.stderr.contains("slice 0") && read.stderr.contains("left out: "), "{}", read.stderr);
    // Without a profile that can be read, nothing is written.
    for number in [1, 2] {
        fs::write(context.path(&table(number)), "").expect("written");
    }
    let other = ["ingest", "ranks", "--db", "other", "--kind", "rehearsal", "--skip-bad"];
    let nothing = context.exits(3, &other);
    assert!(nothing.stderr.contains("no profile can be read") && !context.path("other").exists());
}

/// A pattern of the shell expands to all folders, also those of ranks without an export.
#[test]
fn folders_without_tables_and_dangling_links_are_left_out() {
    let context = Context::new();
    ranks(&context);
    fs::create_dir(context.path("ranks/rank8_ascend_pt")).expect("created");
    std::os::unix::fs::symlink("nowhere", context.path("ranks/rank9_ascend_pt")).expect("a link");
    let folders = [0, 1, 2, 8, 9].map(|number| format!("ranks/rank{number}_ascend_pt"));
    let folders: Vec<&str> = folders.iter().map(String::as_str).collect();
    let arguments = [&["ingest"][..], &folders, &INGEST[2..]].concat();
    assert_eq!(context.run(&arguments).code, 3);
    assert!(!context.path("db").exists());
    let ran = context.exits(1, &(&arguments[..], "--skip-bad"));
    for problem in [
        "below `ranks/rank8_ascend_pt`",
        "cannot read `ranks/rank9_ascend_pt`",
        "2 files that cannot be read",
    ] {
        ran.err_has(problem);
    }
    let all = Context::new();
    ranks(&all);
    assert_eq!(all.run(&INGEST).code, 0);
    assert_eq!(context.csv_files(), all.csv_files());
}

#[test]
fn database_of_the_environment_is_used() {
    let context = Context::new();
    ranks(&context);
    context.done(&INGEST);
    for arguments in [
        &["plan"][..],
        &["db", "check"],
        &["coverage", "--model", "Qwen3-8B"],
        &["runs"],
        &["query", "--op", "SwiGlu", "--inputs", "16,6912"],
    ] {
        let with = context.command(arguments).env("NPUBENCH_DB", "db").output().expect("it runs");
        let option: &[&str] = if arguments[0] == "db" { &["db"] } else { &["--db", "db"] };
        let given = context.run(&(arguments, option));
        let with = context.ran(&with);
        assert_eq!((with.code, &with.stdout), (given.code, &given.stdout), "{arguments:?}: {}", with.stderr);
    }
    context.exits(2, "plan");
}

/// A value that is cut off is still a number; profilers end each line with a line break.
#[test]
fn a_table_that_may_be_cut_off_inside_its_last_value_is_named() {
    let context = Context::new();
    ranks(&context);
    let whole = context.run(&INGEST);
    assert!(whole.code == 0 && !whole.stderr.contains("line break"), "{}", whole.stderr);
    let path = context.path(&table(1));
    let text = fs::read_to_string(&path).expect("a table");
    fs::write(&path, text.trim_end()).expect("written");
    fs::remove_dir_all(context.path("db")).expect("removed");
    let cut = context.done(&(INGEST, "-q"));
    let warning = "warning: the last line of `ROOT/ranks/rank1_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv` has no line break";
    cut.err_has(warning);
    assert_eq!(cut.stderr.lines().count(), 1, "{}", cut.stderr);
}

#[test]
fn dry_run_of_ingest_prints_the_result_and_writes_nothing() {
    let context = Context::new();
    ranks(&context);
    let dry_run = [&INGEST[..], &["--dry-run"]].concat();
    let expected = |context: &Context| {
        let planned = context.done(&dry_run);
        planned.err_lacks("next:");
        planned.stdout.strip_prefix("dry run, nothing is written: ").expect("a dry run").to_owned()
    };
    let planned = expected(&context);
    assert!(!context.path("db").exists());
    assert_eq!(context.run(&INGEST).stdout, planned);
    // A table gets another row.
    let text = context.read(&table(0));
    context.write(&table(0), &text.replacen(",SwiGlu,", ",Gelu,", 1));
    let before = context.snapshot("db");
    let planned = expected(&context);
    assert!(planned.contains(" 1 row added"), "{planned}");
    assert!(context.snapshot("db") == before, "a file was written");
    assert_eq!(context.run(&INGEST).stdout, planned);
}
