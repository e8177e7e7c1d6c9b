//! `npubench grid audit`: missing points, and errors in the density standard.

use std::{collections::BTreeSet, path::Path};

use npubench::{
    base::assets::AssetFiles, cases::grid::definition::DensityFile, kernel::catalogue::Catalogue,
};
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

fn audit(context: &Context, arguments: &(impl Words + ?Sized)) -> Ran {
    context.run(&("grid audit", arguments))
}

/// Endpoints, gaps, required points, rows without a latency, and pairs of N and K without rows are listed.
#[test]
fn audit_lists_missing_points_of_database() {
    let context = Context::new();
    let mut rows = Vec::new();
    let ladder = (1..=8).chain((10..=16).step_by(2)).chain((20..=32).step_by(4)).chain((40..=64).step_by(8));
    let ladder: Vec<u64> =
        ladder.chain([80, 96, 112, 128, 192, 256, 512, 768, 1024, 2048, 4096, 8192]).collect();
    // One pair has all but the two greatest, of which one is planned; the other has three rows that count.
    rows.extend(ladder.iter().map(|m| (*m, 1024, 7168, "12.5")));
    rows.push((16384, 1024, 7168, ""));
    rows.extend([(1, 512, 7168, "3"), (16, 512, 7168, "4"), (64, 512, 7168, "5")]);
    rows.extend([(2, 512, 7168, "0"), (4, 512, 7168, "inf"), (8, 512, 7168, "nan")]);
    write_products(&context, &rows);
    let ran = audit(&context, "--db db").ended(1);
    insta::assert_snapshot!(format!("{}\n{}", ran.stdout, ran.stderr));
    let json = audit(&context, "MatMulV2 --db db --format json").json();
    let m = &json[0];
    assert_eq!((&m["axis"], &m["least"], &m["greatest"]), (&"m".into(), &1.into(), &8192.into()));
    assert_eq!(m["missing"], serde_json::json!([16384, 32768]));
    assert_eq!((&m["planned"], &m["proposed"]), (&serde_json::json!([16384]), &serde_json::json!([32768])));
    assert_eq!(m["gaps"], serde_json::json!([{"from": 8192, "to": 32768, "allowed": "ratio 2"}]));
    let incomplete = m["groups"]["incomplete"].list();
    assert_eq!(incomplete[0]["key"], serde_json::json!([512, 7168]), "the worst first");
    assert_eq!(incomplete[0]["values"], 3, "zeros, infinities and NaN do not count");
    let closed: BTreeSet<i64> = incomplete[0]["proposed"].list().iter().filter_map(Value::as_i64).collect();
    assert!(!closed.contains(&2), "it is planned");
    assert!([3, 5, 10, 20, 32768].iter().all(|point| closed.contains(point)), "{closed:?}");
}

#[test]
fn built_in_grids_meet_density_standard() {
    let context = Context::new();
    let ran = audit(&context, "--format json");
    let lines = ran.json();
    let short: BTreeSet<&str> = lines
        .iter()
        .filter(|line| line["complete"] == false)
        .filter_map(|line| line["kernel"].as_str())
        .collect();
    assert_eq!(short, BTreeSet::from(["FusedInferAttentionScore"]));
    assert!(lines.len() >= 135, "{} axes; there were 136", lines.len());
    assert!(lines.iter().all(|line| line["unread_rows"] == 0));
    assert!(lines.iter().all(|line| line["values"].as_u64() > Some(0)), "an axis without a value");
    assert_eq!(audit(&context, "Add,QuantBatchMatmulV3").code, 0);
    // A given grid file is used alone.
    context.write(
        "own.yaml",
        "summary: few\npatterns:\n  add:\n    kernels: [Add]\n    axes: {t: [16, 32], d: [128]}\n    inputs: {shapes: \"t,d; \
         t,d\", dtypes: DT_BF16}\n    outputs: {shapes: \"t,d\", dtypes: DT_BF16}\n",
    );
    let ran = audit(&context, "--grids own.yaml --format json");
    let own = ran.json();
    assert!(own.iter().all(|line| line["kernel"] == "Add" && line["complete"] == false), "{}", ran.stderr);
    // The layers of a model do not cover the ladder of widths, but all numbers of rows.
    let ran = audit(&context, "MatMulV2 --models Qwen3-32B --format json");
    let of_model = ran.json();
    assert_eq!((&of_model[0]["complete"], &of_model[1]["complete"]), (&true.into(), &false.into()));
}

#[test]
fn invalid_audit_requests_are_reported() {
    let context = Context::new();
    write_products(&context, &[(1, 512, 512, "3")]);
    let errors =
        [&["SwiGlu", "--db", "db"][..], &["MatMulV3", "--db", "db"], &["AsStrided"], &["--db", "nowhere"]]
            .map(|arguments| {
                let ran = audit(&context, arguments);
                assert_eq!((ran.code, ran.stdout.as_str()), (3, ""), "{arguments:?}");
                ran.stderr
            });
    insta::assert_snapshot!(errors.concat());
    assert_eq!(audit(&context, "--db db --grids own.yaml").code, 2);
    assert_eq!(context.run("grid").code, 2);
}

#[test]
fn density_schema_lists_all_accepted_keys() {
    let schema: Value =
        serde_json::from_str(include_str!("../../grids/density-schema.json")).expect("a schema");
    let catalogue = Catalogue::load(&AssetFiles::embedded()).expect("the catalogue");
    let keys = |properties: &Value| -> BTreeSet<String> {
        properties["properties"].as_object().expect("properties").keys().cloned().collect()
    };
    let read = |text: &str| -> BTreeSet<String> {
        let error = DensityFile::parse(Path::new("d.yaml"), text, &catalogue).expect_err("a wrong key");
        error.problem.split('`').skip(3).step_by(2).map(str::to_owned).collect()
    };
    let of = |name: &str| keys(&schema["definitions"][name]);
    assert_eq!(keys(&schema), read("summary: x\nwrong: 1\n"));
    assert_eq!(of("standard"), read("summary: x\nstandards: {a: {wrong: 1}}\n"));
    assert_eq!(of("reading"), read("summary: x\nkernels: {a: {wrong: 1}}\n"));
    assert_eq!(of("axis"), read("summary: x\nkernels: {a: {axes: {t: {wrong: 1}}}}\n"));
}
