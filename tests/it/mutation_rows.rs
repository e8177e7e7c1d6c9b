//! Rows of mutants: provenance, repeated commands, measurement, and errors in mutation files.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use npubench::cases::grid::definition::MutationFile;

use crate::prelude::*;

const PRODUCT: &str =
    "MatMulV2,9.5,\"\"\"64,5120;5120,640\"\"\",DT_BF16;DT_BF16,ND;ND,\"\"\"64,640\"\"\",DT_BF16,ND";

/// Returns the bytes of a database's tables.
fn tables(context: &Context, folder: &str) -> BTreeMap<String, Vec<u8>> {
    let files = context.snapshot(folder).into_iter().filter_map(|(path, bytes)| {
        let name = path.file_name()?.to_string_lossy().into_owned();
        name.ends_with(".csv").then_some((name, bytes))
    });
    files.collect()
}

fn grid(context: &Context, arguments: &(impl Words + ?Sized)) -> Ran {
    context.run(&("grid --db db", arguments))
}

/// Creates a database with a product and an activation.
fn create_database(context: &Context) {
    context.ingest_records("db", &[SWIGLU, PRODUCT], &[]);
}

#[test]
fn mutant_rows_have_provenance() {
    let context = Context::new();
    create_database(&context);
    let before = context.snapshot("db");
    let ran = grid(&context, "--mutate --rows 12 --seed 4 --dry-run");
    assert_eq!((ran.code, context.snapshot("db")), (0, before));
    insta::assert_snapshot!(format!("{}\n{}", ran.stdout, ran.stderr));
    let ran = grid(&context, "--mutate=scale,int8 --dry-run --format json");
    insta::assert_snapshot!(ran.stdout);
    assert_eq!(grid(&context, "--mutate=scale,int8,transpose --seed 4").code, 0);
    let lines: Vec<String> = ["SwiGlu", "MatMulV2", "QuantBatchMatmulV3"]
        .iter()
        .flat_map(|kernel| context.rows("db", kernel))
        .map(|row| format!("{} {}: {}", row["Input Shapes"], row["Output Shapes"], row["Grid"]))
        .collect();
    insta::assert_snapshot!(lines.join("\n"));
    let rows = context.rows("db", "QuantBatchMatmulV3");
    assert!(
        rows.iter()
            .all(|row| { row.iter().all(|(column, cell)| !column.contains("Duration") || cell.is_empty()) })
    );
}

#[test]
fn repeated_mutation_adds_no_rows_and_skips_mutants() {
    let context = Context::new();
    create_database(&context);
    let arguments = ["--mutate", "--rows", "40", "--seed", "9"];
    assert_eq!(grid(&context, &arguments).code, 0);
    let before = tables(&context, "db");
    assert_eq!(context.rows("db", "MatMulV2").len(), 1 + 38);
    assert_eq!(grid(&context, &arguments).code, 0);
    assert!(tables(&context, "db") == before, "rows were added");
    // All of them: twice adds nothing either, for mutants are no cases to mutate.
    assert_eq!(grid(&context, "--mutate --rows 0").code, 0);
    let before = tables(&context, "db");
    assert_eq!(grid(&context, "--mutate --rows 0 --seed 1").code, 0);
    assert!(tables(&context, "db") == before, "rows were added");
    // Rows of attention say it in a column of their own.
    assert_eq!(grid(&context, "FusedInferAttentionScore --rows 3").code, 0);
    let arguments = ["FusedInferAttentionScore", "--mutate", "--rows", "15"];
    assert_eq!(grid(&context, &arguments).code, 0);
    let rows = context.rows("db", "FusedInferAttentionScore");
    assert_eq!(rows.len(), 3 + 15);
    assert!(rows[3..].iter().all(|row| row["Runtime source_profile"].starts_with("mutation ")));
    assert!(rows.iter().all(|row| row["Runtime metadata_completeness"] == "complete"));
    let before = tables(&context, "db");
    assert_eq!(grid(&context, &arguments).code, 0);
    assert!(tables(&context, "db") == before, "rows were added");
    // Rows of grids are counted by themselves.
    assert_eq!(grid(&context, "SwiGlu --rows 5").code, 0);
    let grown = context.rows("db", "SwiGlu").iter().filter(|row| row["Grid"].starts_with("grid ")).count();
    assert_eq!(grown, 5);
}

/// Mutants can be measured without further steps.
#[test]
fn mutants_can_be_measured() {
    let context = Context::new();
    assert_eq!(
        grid(&context, "FusedInferAttentionScore MatMulV2 --kind rehearsal --rows 2 --max-hbm-gib 1").code,
        0
    );
    let names = "--mutate=scale,block_size,last_block,int8,format,transpose,batch";
    assert_eq!(grid(&context, &[names, "--rows", "6", "--max-hbm-gib", "1"]).code, 0);
    context.done("run --db db --host rehearsal --devices 0");
    let least =
        [("FusedInferAttentionScore", 6), ("MatMulV2", 2), ("MatMulV3", 2), ("QuantBatchMatmulV3", 6)];
    for (name, least) in least {
        let mut rows = context.rows("db", name);
        // Large products run as MatMulV3 and are rows of its table.
        rows.retain(|row| name != "MatMulV2" || row["MicroBench Verdict"] != "ran_as_other");
        let is_measured = |row: &BTreeMap<String, String>| row["MicroBench Verdict"] == "ok";
        assert!(rows.iter().all(is_measured), "{name}: {rows:?}");
        assert!(rows.len() >= least, "{} rows of {name}", rows.len());
        // As the profiler of the replay shows them.
        let is_shown = |row: &BTreeMap<String, String>| {
            row["OP State"] == "dynamic" && row["Accelerator Core"] == "AI_CORE"
        };
        assert!(rows.iter().all(is_shown), "{name}: {rows:?}");
    }
}

#[test]
fn vendor_code_accepts_mutants() {
    let Some(python) = vendor_python() else { return };
    let context = Context::new();
    let layer = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/decoder-layer");
    let layer = layer.to_string_lossy();
    grid(&context, &["--kind", "rehearsal", "--mutate", "--from", &layer, "--rows", "40"]).ended(0);
    let python = python.to_string_lossy();
    let ran = context.done(&["check", "--db", "db", "--python", &python, "--format", "json"]);
    let mut verdicts = BTreeMap::new();
    for line in ran.stdout.lines() {
        let check: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let text = |key: &str| check[key].text().to_owned();
        *verdicts.entry((text("kernel"), text("verdict"))).or_insert(0) += 1;
    }
    // npu_slice has no Meta kernel. QuantBatchMatmulV3 is what the mutation `int8` makes of a product.
    assert_eq!(verdicts.remove(&("Slice".to_owned(), "no_meta".to_owned())), Some(40), "--rows 40");
    assert!(verdicts.keys().all(|(_, verdict)| verdict == "accepted"), "{verdicts:?}");
    assert_eq!((verdicts.len(), verdicts.values().sum::<usize>()), (11, 335), "{verdicts:?}");
}

#[test]
fn invalid_mutation_requests_are_reported() {
    let context = Context::new();
    create_database(&context);
    let ran = grid(&context, "--mutate=scal");
    insta::assert_snapshot!(ran.stderr, @r"
    error: unknown mutation `scal`
    hint: did you mean `scale`?
    ");
    let ran = grid(&context, "SwiGl --mutate");
    insta::assert_snapshot!(ran.stderr, @r"
    error: no case has mutants of `SwiGl`
    hint: did you mean `SwiGlu`?
    ");
    let ran = context.run("grid --db none --mutate");
    insta::assert_snapshot!(ran.stderr, @r"
    error: the database and `--from` contain no case to mutate
    hint: add cases to the database with `npubench ingest` or `npubench grid`, or give a profile with `--from`
    ");
    assert!(!context.path("none").exists());
    assert_eq!(grid(&context, "--from p.csv").code, 2, "`--from` needs `--mutate`");
    assert_eq!(grid(&context, "--mutate --models Qwen3-32B").code, 2);
    assert_eq!(grid(&context, "--mutate --grids g.yaml").code, 2);
    let ran = grid(&context, "--mutate --device ATLAS_800_A2_313T_64G");
    insta::assert_snapshot!(ran.stderr, @r"
    error: the device of `db` is `ATLAS_800_A3_752T_128G_DIE`, not `ATLAS_800_A2_313T_64G`
    hint: use another folder for another device; if the device of the database is wrong, correct `device` in its database.yaml: the profiling columns do not depend on it, and `run --update all` assesses measured rows again
    ");
    context.write(
        "a/op_replay/SwiGlu.yaml",
        &include_str!("../../op_replay/SwiGlu.yaml").replace("B: tokens", "X: tokens"),
    );
    let ran = grid(&context, "--mutate --assets a");
    insta::assert_snapshot!(ran.stderr, @r"
    error: a/op_replay/SwiGlu.yaml:6:12: no form has a dimension `X`; the dimensions are A, B, C, D
    hint: docs/adding-a-kernel.md explains every key
    ");
}

#[test]
fn mutation_schema_lists_all_accepted_keys() {
    let schema: serde_json::Value =
        serde_json::from_str(include_str!("../../grids/mutations.schema.json")).expect("a schema");
    let keys = |properties: &serde_json::Value| -> BTreeSet<String> {
        properties["properties"].as_object().expect("properties").keys().cloned().collect()
    };
    let read = |text: &str| -> BTreeSet<String> {
        let error = MutationFile::parse(Path::new("test.yaml"), text).expect_err("a wrong word");
        error.problem.split('`').skip(3).step_by(2).map(str::to_owned).collect()
    };
    assert_eq!(keys(&schema), read("summary: x\nwrong: 1\n"));
    assert_eq!(keys(&schema["definitions"]["mutation"]), read("summary: x\nmutations: {a: {wrong: 1}}\n"));
    let roles = schema["definitions"]["role"]["enum"].list().iter();
    let roles: BTreeSet<String> = roles.filter_map(|role| role.as_str().map(str::to_owned)).collect();
    assert_eq!(roles, read("summary: x\nmutations: {a: {roles: [wrong]}}\n"));
}
