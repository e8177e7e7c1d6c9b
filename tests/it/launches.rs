//! Numbers of launches of a case in a collection.

use std::collections::BTreeMap;

use crate::prelude::*;

/// Runs with the default number of launches.
fn run(context: &Context, more: &(impl Words + ?Sized)) -> Ran {
    let mut command = context.command("run --db db --host rehearsal --devices 0-1");
    command.args(more.words()).env_remove("NPUBENCH_LAUNCHES");
    context.ran(&command.output().expect("it runs"))
}

/// Numbers of samples of each attempt, by kernel and case.
fn samples(context: &Context) -> BTreeMap<(String, String), Vec<u32>> {
    let ledger = ledger(context).expect("a ledger");
    let sql = "SELECT c.kernel, a.case_id, count(*) FROM attempts a JOIN cases c USING (case_id)
               JOIN samples s USING (attempt) GROUP BY a.attempt ORDER BY a.attempt";
    let mut statement = ledger.prepare(sql).expect("a query");
    let rows = statement.query_map([], |row| Ok(((row.get(0)?, row.get(1)?), row.get(2)?)));
    let mut by_case: BTreeMap<(String, String), Vec<u32>> = BTreeMap::new();
    for row in rows.expect("rows") {
        let (case, count) = row.expect("a row");
        by_case.entry(case).or_default().push(count);
    }
    by_case
}

/// A kernel of a microsecond has more samples than one of a millisecond, and each as many in every collection.
#[test]
fn default_number_of_samples_follows_the_duration() {
    let context = Context::of_layer();
    assert_eq!(run(&context, "").code, 0);
    assert_eq!(run(&context, "--update all").code, 0);
    let counts = samples(&context);
    assert_eq!(counts.len(), 20);
    assert!(counts.values().all(|counts| counts.len() == 2 && counts[0] == counts[1]), "{counts:?}");
    let of_kernel = |kernel: &str| {
        let counts = counts.iter().filter(|((name, _), _)| name == kernel).map(|(_, counts)| counts[0]);
        (counts.clone().min().expect("a case"), counts.max().expect("a case"))
    };
    assert_eq!(of_kernel("Mul"), (40, 40));
    let (fewest, most) = of_kernel("MatMulV3");
    assert!((8..25).contains(&fewest) && most <= 45, "{fewest} {most}");
    let row = context.rows("db", "Mul").remove(0);
    assert_eq!((row["MicroBench Samples"].as_str(), row["MicroBench Verdict"].as_str()), ("80", "ok"));
}

#[test]
fn number_of_samples_can_be_given() {
    let context = Context::of_layer();
    assert_eq!(run(&context, "--launches 7").code, 0);
    assert!(samples(&context).values().all(|counts| *counts == [7]));
    for wrong in ["5", "many", "10001"] {
        let refused = run(&context, &["--launches", wrong]).ended(2);
        let problem = format!("`{wrong}` is neither `auto` nor a number from 6 to 10000");
        refused.err_has(&problem);
    }
}
