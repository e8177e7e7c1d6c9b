//! Evidence of production rows: numbers of records, ranks and profiles. A profile with less evidence replaces no row.

use std::fs;

use crate::prelude::*;

fn write_ranks(context: &Context, folder: &str, ranks: u32, records: u32) {
    for rank in 0..ranks {
        let of_rank = |record: u32| SWIGLU.replacen("59.730", &format!("{}.{rank}00", 50 + record), 1);
        let mut all: Vec<String> = (0..records).map(of_rank).collect();
        all.push(ADD.replacen("2.060", &format!("2.{rank}00"), 1));
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        let root = format!("{folder}/host_{rank}_20260101000000000_ascend_pt");
        context.write(&format!("{root}/profiler_info_{rank}.json"), &format!("{{\"rank_id\": {rank}}}"));
        context.write(&format!("{root}/ASCEND_PROFILER_OUTPUT/kernel_details.csv"), &profile(&all));
    }
}

fn ingest(context: &Context, path: &str, more: &(impl Words + ?Sized)) -> Ran {
    context.done(&(&["ingest", path, "--db", "db"], more))
}

fn evidence(context: &Context, kernel: &str) -> [String; 4] {
    let row = context.rows("db", kernel).remove(0);
    let columns =
        ["Profiling Records", "Profiling Ranks", "Profiling Profiles", "Profiling Average Duration(us)"];
    columns.map(|column| row[column].clone())
}

/// Fails in the state in which the numbers of one rank replaced those of eight.
#[test]
fn one_rank_does_not_replace_eight() {
    let context = Context::new();
    write_ranks(&context, "night", 8, 3);
    ingest(&context, "night", "");
    assert_eq!(evidence(&context, "SwiGlu"), ["24", "8", "8", "51.350000"]);
    assert_eq!(evidence(&context, "Add")[..3], ["8", "8", "8"]);
    let before = context.snapshot("db");
    let one = "night/host_1_20260101000000000_ascend_pt";
    let ran = ingest(&context, one, "");
    ran.err_has("2 rows keep more evidence");
    ran.out_has("0 rows added, 0 updated");
    assert_eq!(context.snapshot("db"), before);
    // Another run with as many ranks and records replaces the row, and so does one rank on request.
    write_ranks(&context, "more", 8, 4);
    ingest(&context, "more", "");
    assert_eq!(evidence(&context, "SwiGlu")[..3], ["32", "8", "8"]);
    ingest(&context, one, "--replace");
    assert_eq!(evidence(&context, "SwiGlu"), ["3", "1", "1", "51.100000"]);
}

#[test]
fn more_ranks_replace_fewer() {
    let context = Context::new();
    write_ranks(&context, "one", 1, 30);
    ingest(&context, "one", "");
    write_ranks(&context, "eight", 8, 2);
    ingest(&context, "eight", "");
    assert_eq!(evidence(&context, "SwiGlu")[..3], ["16", "8", "8"], "ranks count more than records");
}

#[test]
fn the_same_profile_under_two_paths_counts_once() {
    let context = Context::new();
    write_ranks(&context, "a", 1, 3);
    write_ranks(&context, "b", 1, 3);
    let ran = context.done("ingest a b --db db");
    ran.err_has("it has the same content as");
    assert_eq!(evidence(&context, "SwiGlu")[..3], ["3", "1", "1"]);
}

/// Rows of other tools have no evidence: a profile fills it in, or replaces the row by the earlier rule.
#[test]
fn rows_of_unknown_evidence_get_it() {
    let context = Context::new();
    write_ranks(&context, "night", 8, 3);
    ingest(&context, "night", "");
    for kernel in ["SwiGlu", "Add"] {
        let path = context.path("db").join(format!("{kernel}.csv"));
        let text = fs::read_to_string(&path).expect("a table");
        let without = text.lines().map(|line| line.rsplitn(4, ',').last().expect("cells").to_owned() + "\n");
        fs::write(&path, without.collect::<String>()).expect("written");
    }
    // A single record does not replace several.
    context.write("k.csv", &profile(&[ADD]));
    let ran = ingest(&context, "k.csv", "");
    ran.err_has("1 row keeps more evidence");
    ingest(&context, "night", "");
    assert_eq!(evidence(&context, "SwiGlu"), ["24", "8", "8", "51.350000"]);
}
