//! `npubench grid audit` of workloads: questions that rows answer, and rows that are missing or too far apart.

use serde_json::Value;

use crate::prelude::*;

const HEADER: &str = "Input Shapes,Input Data Types,Input Formats,Output Shapes,Output Data Types,Output Formats,\
                      Average Duration(us)\n";

/// Writes a table of products `m,k; n,k -> m,n`, each with the text of its duration cell.
fn write_products(context: &Context, rows: &[(u64, u64, u64, &str)]) {
    let rows = rows.iter().map(|(m, n, k, duration)| {
        let types = "DT_BF16;DT_BF16,ND;ND";
        format!("\"{m},{k};{n},{k}\",{types},\"{m},{n}\",DT_BF16,ND,{duration}\n")
    });
    context.write("db/MatMulV2.csv", &(HEADER.to_owned() + &rows.collect::<String>()));
}

/// Writes a workload that asks for these products.
fn write_workload(context: &Context, products: &[(u64, u64, u64)]) {
    let questions = products.iter().map(|(m, n, k)| {
        format!("  - {{op: MatMulV2, inputs: \"{m},{k};{n},{k}\", outputs: \"{m},{n}\", dtypes: bf16, count: 2}}\n")
    });
    context.write("asked.yaml", &("questions:\n".to_owned() + &questions.collect::<String>()));
}

fn audit(context: &Context, arguments: &(impl Words + ?Sized)) -> Ran {
    context.run(&("grid audit --db db", arguments))
}

/// States of the questions, with the reasons, in the order of the workload.
fn states(ran: &Ran) -> Vec<(String, Value, bool, bool)> {
    let lines = ran.stdout.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let state = |line: Value| {
        let text = line["state"].text().to_owned();
        (text, line["reason"].clone(), line["planned"] == true, line["add"] == true)
    };
    lines.map(state).collect()
}

/// A question is answered by its row, or between rows that are as near as the standard asks.
#[test]
fn questions_are_audited_by_density_of_their_rows() {
    let context = Context::new();
    write_workload(&context, &[(1, 2560, 5120), (512, 2560, 5120), (64, 2048, 4096), (8, 512, 512)]);
    let far = [(1, 2560, 5120, "10"), (4096, 2560, 5120, "100"), (8, 512, 512, "")];
    write_products(&context, &far);
    let arguments = "--workload asked.yaml --format json";
    let ran = audit(&context, arguments).ended(1);
    let found = states(&ran);
    let state = |index: usize| (found[index].0.as_str(), found[index].2, found[index].3);
    assert_eq!(state(0), ("measured", false, false));
    assert_eq!(state(1), ("too_far_apart", false, true));
    assert_eq!(found[1].1, "m 1 to 4096 (step 1)");
    assert_eq!(state(2), ("missing", false, true));
    assert_eq!(state(3), ("missing", true, false), "its row is planned");
    ran.err_has("1 of 4 questions answered");
    let table = audit(&context, "--workload asked.yaml");
    table.out_has("512,5120;2560,5120 -> 512,2560");
    // Nearer rows.
    let near = [(384, 2560, 5120, "11"), (640, 2560, 5120, "12"), (64, 2048, 4096, "9"), (8, 512, 512, "3")];
    write_products(&context, &[&far[..2], &near[..]].concat());
    let ran = audit(&context, arguments);
    let found: Vec<String> = states(&ran).into_iter().map(|(state, ..)| state).collect();
    assert_eq!(found, ["measured", "between_rows", "measured", "measured"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
}

#[test]
fn missing_rows_of_audit_are_added() {
    let context = Context::new();
    write_workload(&context, &[(1, 2560, 5120), (512, 2560, 5120), (64, 2048, 4096), (8, 512, 512)]);
    write_products(&context, &[(1, 2560, 5120, "10"), (4096, 2560, 5120, "100"), (8, 512, 512, "")]);
    let before = context.snapshot("db");
    let fill = ["grid", "--db", "db", "--fill-audit", "--workload", "asked.yaml"];
    let preview = context.done(&(&fill[..], "--dry-run"));
    for shapes in ["512,5120;2560,5120 -> 512,2560", "64,4096;2048,4096 -> 64,2048"] {
        preview.out_has(shapes);
    }
    preview.err_has("1 question without an answer: the row has no latency");
    assert_eq!(context.snapshot("db"), before);
    context.done(&fill);
    let table = || context.read("db/MatMulV2.csv");
    assert_eq!(table().matches("\"grid audit, seed 0\"").count(), 2, "{}", table());
    let rows = table();
    let again = context.run(&fill);
    assert!(again.code == 0 && again.stderr.contains("no row to add"), "{}", again.stderr);
    assert_eq!(table(), rows);
    let found = states(&audit(&context, "--workload asked.yaml --format json"));
    assert!(found[1..].iter().all(|(_, _, planned, add)| *planned && !add), "{found:?}");
    // Of a step, only the wanted kernel.
    let step = "--models Qwen3-32B --tp 4 --phase decode --batch 64 --context 4096";
    context.done(&("grid SwiGlu --db db --fill-audit", step));
    assert!(context.path("db/SwiGlu.csv").exists() && !context.path("db/RmsNorm.csv").exists());
    let ran = context.run("grid --db db --fill-audit");
    assert!(ran.code == 3 && ran.stderr.contains("needs workloads or models"), "{}", ran.stderr);
}
