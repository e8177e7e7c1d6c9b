//! Rows of mutants: provenance, repeated commands, measurement, and errors in mutation files.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use npubench::cases::grid::definition::MutationFile;

use crate::{
    context::{Context, Ran, SWIGLU, profile},
    requirements,
};

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

fn grid(context: &Context, arguments: &[&str]) -> Ran {
    context.run(&[&["grid", "--db", "db"], arguments].concat())
}

/// Creates a database with a product and an activation.
fn create_database(context: &Context) {
    context.write("p.csv", &profile(&[SWIGLU, PRODUCT]));
    let ran = context.run(&["ingest", "p.csv", "--db", "db", "--kind", "rehearsal"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
}

#[test]
fn mutant_rows_have_provenance() {
    let context = Context::new();
    create_database(&context);
    let before = context.snapshot("db");
    let ran = grid(&context, &["--mutate", "--rows", "12", "--seed", "4", "--dry-run"]);
    assert_eq!((ran.code, context.snapshot("db")), (0, before));
    insta::assert_snapshot!(format!("{}\n{}", ran.stdout, ran.stderr));
    let ran = grid(&context, &["--mutate=scale,int8", "--dry-run", "--format", "json"]);
    insta::assert_snapshot!(ran.stdout);
    assert_eq!(grid(&context, &["--mutate=scale,int8,transpose", "--seed", "4"]).code, 0);
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
    assert_eq!(grid(&context, &["--mutate", "--rows", "0"]).code, 0);
    let before = tables(&context, "db");
    assert_eq!(grid(&context, &["--mutate", "--rows", "0", "--seed", "1"]).code, 0);
    assert!(tables(&context, "db") == before, "rows were added");
    // Rows of attention say it in a column of their own.
    assert_eq!(grid(&context, &["FusedInferAttentionScore", "--rows", "3"]).code, 0);
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
    assert_eq!(grid(&context, &["SwiGlu", "--rows", "5"]).code, 0);
    let grown = context.rows("db", "SwiGlu").iter().filter(|row| row["Grid"].starts_with("grid ")).count();
    assert_eq!(grown, 5);
}

/// The profiler shows all input slots of these kernels, and other readers of the tables refuse rows with fewer.
#[test]
fn grown_rows_have_all_recorded_slots() {
    let context = Context::new();
    create_database(&context);
    for (kernel, slots) in [("FusedInferAttentionScore", 31), ("KvRmsNormRopeCache", 12)] {
        assert_eq!(grid(&context, &[kernel, "--rows", "30"]).code, 0);
        assert_eq!(grid(&context, &[kernel, "--mutate", "--rows", "30"]).code, 0);
        let rows = context.rows("db", kernel);
        assert!(rows.len() > 40, "{kernel} has {} rows", rows.len());
        for row in rows {
            for column in ["Input Shapes", "Input Data Types", "Input Formats"] {
                assert_eq!(row[column].split(';').count(), slots, "{kernel}: {}", row[column]);
            }
        }
    }
}

#[test]
fn same_seed_and_cases_give_same_mutant_bytes() {
    let context = Context::new();
    context.write("p.csv", &profile(&[SWIGLU, PRODUCT]));
    let run = |folder: &str, seed: &str| {
        let ran = context.run(&[
            "grid",
            "--db",
            folder,
            "--kind",
            "rehearsal",
            "--mutate",
            "--from",
            "p.csv",
            "--rows",
            "10",
            "--seed",
            seed,
        ]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        tables(&context, folder)
    };
    let (one, again, other) = (run("one", "1"), run("again", "1"), run("other", "2"));
    assert!(one == again && one.len() == 3);
    assert!(one != other);
    // Of a profile only what was changed becomes rows.
    let rows = context.rows("one", "SwiGlu");
    assert_eq!(rows.len(), 10);
    let is_source = |row: &BTreeMap<String, String>| {
        (row["Input Shapes"].as_str(), row["Input Data Types"].as_str()) == ("\"512,6144\"", "DT_BF16")
    };
    assert!(rows.iter().all(|row| row["Grid"].starts_with("mutation ") && !is_source(row)));
}

/// Mutants can be measured without further steps.
#[test]
fn mutants_can_be_measured() {
    let context = Context::new();
    assert_eq!(
        grid(
            &context,
            &[
                "FusedInferAttentionScore",
                "MatMulV2",
                "--kind",
                "rehearsal",
                "--rows",
                "2",
                "--max-hbm-gib",
                "1"
            ]
        )
        .code,
        0
    );
    let names = "--mutate=scale,block_size,last_block,int8,format,transpose,batch";
    assert_eq!(grid(&context, &[names, "--rows", "6", "--max-hbm-gib", "1"]).code, 0);
    let ran = context.run(&["run", "--db", "db", "--host", "rehearsal", "--devices", "0"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
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

/// The vendor's code accepts the mutants that the catalogue accepts.
#[test]
fn vendor_code_accepts_mutants() {
    let Some(python) = requirements::vendor_python() else { return };
    let context = Context::new();
    let layer = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/decoder-layer");
    let layer = layer.to_string_lossy();
    let ran = grid(&context, &["--kind", "rehearsal", "--mutate", "--from", &layer, "--rows", "40"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let python = python.to_string_lossy();
    let ran = context.run(&["check", "--db", "db", "--python", &python, "--format", "json"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let mut verdicts = BTreeMap::new();
    for line in ran.stdout.lines() {
        let check: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let text = |key: &str| check[key].as_str().expect("text").to_owned();
        *verdicts.entry((text("kernel"), text("verdict"))).or_insert(0) += 1;
    }
    // npu_slice has no Meta kernel. QuantBatchMatmulV3 is what the mutation `int8` makes of a product.
    assert_eq!(verdicts.remove(&("Slice".to_owned(), "no_meta".to_owned())), Some(40), "--rows 40");
    assert!(verdicts.keys().all(|(_, verdict)| verdict == "accepted"), "{verdicts:?}");
    assert_eq!((verdicts.len(), verdicts.values().sum::<usize>()), (11, 335), "{verdicts:?}");
}

#[test]
fn mutation_file_errors_have_line_and_column() {
    let good = "summary: a test\nmutations:\n  half:\n    factors: [1/2, 3]\n    roles: [tokens]\n  near:\n    \
                bytes: [32]\n    steps: [-1]\n  type:\n    types: {DT_BF16: FLOAT16}\n  lie:\n    formats: {ND: \
                FRACTAL_NZ}\n  ladder:\n    values: TOKENS\n  turn:\n    transposed: true\n";
    let context = Context::new();
    create_database(&context);
    let run = |name: &str, text: &str| {
        context.write(&format!("{name}/grids/mutations.yaml"), text);
        grid(&context, &["--mutate", "--dry-run", "--assets", name])
    };
    assert_eq!(run("good", good).code, 0, "{}", run("good", good).stderr);
    let wrong = [
        ("key", "factors:", "factor:"),
        ("factor", "[1/2, 3]", "[1/2, 0]"),
        ("no factor", "[1/2, 3]", "[half]"),
        ("role", "[tokens]", "[token]"),
        ("segment", "[32]", "[32..16]"),
        ("dtype", "DT_BF16: FLOAT16", "DT_BF16: FLAOT16"),
        ("format", "ND: FRACTAL_NZ", "ND: FRACTAL_ZN"),
        ("ladder", "TOKENS", "TOKEN"),
        ("false", "transposed: true", "transposed: false"),
        ("two", "    steps: [-1]", "    cores: true"),
        ("none", "    transposed: true", "    summary: nothing"),
        ("steps", "    roles: [tokens]", "    steps: [1]"),
        ("roles", "    types:", "    roles: [tokens]\n    types:"),
    ];
    let errors: Vec<String> = wrong
        .iter()
        .map(|(name, right, wrong)| {
            assert!(good.contains(right), "{name}");
            let ran = run(name, &good.replacen(right, wrong, 1));
            assert_eq!(ran.code, 3, "{name}: {}", ran.stderr);
            ran.stderr
        })
        .collect();
    insta::assert_snapshot!(errors.join("\n"));
}

#[test]
fn invalid_mutation_requests_are_reported() {
    let context = Context::new();
    create_database(&context);
    let ran = grid(&context, &["--mutate=scal"]);
    insta::assert_snapshot!(ran.stderr, @r"
    error: unknown mutation `scal`
    hint: did you mean `scale`?
    ");
    let ran = grid(&context, &["SwiGl", "--mutate"]);
    insta::assert_snapshot!(ran.stderr, @r"
    error: no case has mutants of `SwiGl`
    hint: did you mean `SwiGlu`?
    ");
    let ran = context.run(&["grid", "--db", "none", "--mutate"]);
    insta::assert_snapshot!(ran.stderr, @r"
    error: the database and `--from` contain no case to mutate
    hint: add cases to the database with `npubench ingest` or `npubench grid`, or give a profile with `--from`
    ");
    assert!(!context.path("none").exists());
    assert_eq!(grid(&context, &["--from", "p.csv"]).code, 2, "`--from` needs `--mutate`");
    assert_eq!(grid(&context, &["--mutate", "--models", "Qwen3-32B"]).code, 2);
    assert_eq!(grid(&context, &["--mutate", "--grids", "g.yaml"]).code, 2);
    let ran = grid(&context, &["--mutate", "--device", "ATLAS_800_A2_313T_64G"]);
    insta::assert_snapshot!(ran.stderr, @r"
    error: the device of `db` is `ATLAS_800_A3_752T_128G_DIE`, not `ATLAS_800_A2_313T_64G`
    hint: use another folder for another device; if the device of the database is wrong, correct `device` in its database.yaml: the profiling columns do not depend on it, and `run --update all` assesses measured rows again
    ");
    context.write(
        "a/op_replay/SwiGlu.yaml",
        &include_str!("../../op_replay/SwiGlu.yaml").replace("B: tokens", "X: tokens"),
    );
    let ran = grid(&context, &["--mutate", "--assets", "a"]);
    insta::assert_snapshot!(ran.stderr, @r"
    error: a/op_replay/SwiGlu.yaml:6:12: no form has a dimension `X`; the dimensions are A, B, C, D
    hint: docs/adding-a-kernel.md explains every key
    ");
}

/// The schema for editors has the keys that the parser accepts.
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
    let roles = schema["definitions"]["role"]["enum"].as_array().expect("roles").iter();
    let roles: BTreeSet<String> = roles.filter_map(|role| role.as_str().map(str::to_owned)).collect();
    assert_eq!(roles, read("summary: x\nmutations: {a: {roles: [wrong]}}\n"));
}
