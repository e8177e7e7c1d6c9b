//! Errors in grid files and in options of `npubench grid`, and their messages.

use std::{
    fs,
    os::unix::{self, fs::FileTypeExt as _},
};

use crate::prelude::*;

const GOOD: &str = "summary: a test\nladders:\n  T: [1..8 ratio 2]\nconstants: {block: 16}\npatterns:\n  norm:\n    \
    kernels: [RmsNorm]\n    axes: {t: T, d: [64, 128]}\n    let: {w: d * block}\n    where: [w % 32 == 0]\n    \
    inputs: {shapes: \"t,w; w\", dtypes: DT_BF16}\n    outputs: {shapes: \"t,w; t,1\", dtypes: \"DT_BF16; FLOAT\"}\n";

fn grid(context: &Context, arguments: &(impl Words + ?Sized)) -> Ran {
    context.run(&("grid --db db --kind rehearsal", arguments))
}

/// Runs the valid file with one text replaced.
fn run_replaced(context: &Context, right: &str, wrong: &str) -> Ran {
    assert!(GOOD.contains(right), "{right}");
    context.write("own/grids/test.yaml", &GOOD.replacen(right, wrong, 1));
    context.run("grid --db db --kind rehearsal RmsNorm --rows 4 --assets own")
}

fn run_limited(context: &Context, limit: &str, arguments: &(impl Words + ?Sized)) -> Ran {
    let program = context.command("").get_program().to_owned();
    let mut shell = std::process::Command::new("bash");
    shell.arg("-c").arg(format!("{limit}; exec \"$0\" \"$@\"")).arg(program).args(arguments.words());
    shell.current_dir(context.path("")).env("NO_COLOR", "1").env_remove("NPUBENCH_ASSETS");
    context.ran(&shell.output().expect("a shell"))
}

fn column_cells(context: &Context, column: &str) -> Vec<String> {
    context.rows("db", "RmsNorm").iter().map(|row| row[column].clone()).collect()
}

#[test]
fn plot_never_replaces_foreign_files() {
    let context = Context::new();
    context.small_database("db");
    context.small_database("other");
    context.write("notes.txt", "mine");
    context.write("drawing.svg", "an older plot");
    unix::fs::symlink("drawing.svg", context.path("link.svg")).expect("linked");
    nix::unistd::mkfifo(&context.path("pipe.svg"), nix::sys::stat::Mode::S_IRWXU).expect("made");
    let (db, other) = (context.snapshot("db"), context.snapshot("other"));
    let places = [
        "notes.txt",
        "db/SwiGlu.csv",
        "db/database.yaml",
        "db/plot.svg",
        "other/plot.svg",
        "other/.npubench/plot.svg",
        "link.svg",
        "pipe.svg",
        "nowhere/plot.svg",
    ];
    fs::create_dir_all(context.path("other/.npubench")).expect("made");
    let mut messages = String::new();
    for place in places {
        for dry in [&["--dry-run"][..], &[]] {
            let ran = grid(&context, &(&["SwiGlu", "--rows", "3", "--plot", place], dry)).ended(3);
            messages = format!("{messages}{}\n", if dry.is_empty() { "" } else { &ran.stderr });
        }
    }
    insta::assert_snapshot!(messages.replace("\n\n\n", "\n"));
    assert_eq!(
        context.snapshot("db"),
        db,
        "a plot that cannot be written is reported before rows are written"
    );
    assert_eq!(context.snapshot("other"), other);
    assert_eq!(context.read("notes.txt"), "mine");
    assert_eq!(context.read("drawing.svg"), "an older plot");
    assert!(fs::symlink_metadata(context.path("pipe.svg")).expect("there").file_type().is_fifo());
    // An older plot is replaced.
    let ran = grid(&context, "SwiGlu --rows 3 --plot drawing.svg --dry-run").ended(0);
    assert!(ran.stderr.ends_with("plot in drawing.svg\n"), "{}", ran.stderr);
    assert!(context.read("drawing.svg").starts_with("<svg "));
}

/// A custom catalogue entry may use a column that is not built in.
#[test]
fn grid_accepts_columns_of_custom_entries() {
    let context = Context::new();
    let entry = include_str!("../../op_replay/RmsNorm.yaml");
    let form = "forms:\n  - {with: {Runtime flavour: [sweet]}, ";
    assert!(entry.contains("forms:\n  - {"), "{entry}");
    let example = "\"16,1 FLOAT\"], attributes: {Runtime flavour: sweet}}";
    assert!(entry.contains("\"16,1 FLOAT\"]}"), "{entry}");
    let entry = entry.replacen("forms:\n  - {", form, 1).replace("\"16,1 FLOAT\"]}", example);
    context.write("own/op_replay/RmsNorm.yaml", &entry);
    run_replaced(&context, "    let:", "    text: {Runtime flavour: sweet}\n    let:").ended(0);
    assert_eq!(column_cells(&context, "Runtime flavour"), ["sweet"; 4], "the form needs it");
}

#[test]
fn empty_pattern_note_names_expression_and_example() {
    let context = Context::new();
    let large = "9223372036854775807";
    let wrong = [
        ("w % 32 == 0", "t > 100, d > 100".to_owned()),
        ("w % 32 == 0", "t / 0 == 1".to_owned()),
        ("w % 32 == 0", format!("t * {large} + {large} > 0")),
        ("w: d * block", format!("w: t * {large} + {large}")),
        ("w: d * block", "w: d / 24".to_owned()),
        ("\"t,w; t,1\"", "\"t,w; t,0\"".to_owned()),
        ("\"t,w; t,1\"", "\"t,w; t,2\"".to_owned()),
        ("block: 16", "block: 1000000000".to_owned()),
    ];
    let mut messages = String::new();
    for (right, wrong) in wrong {
        context.write("own/grids/norm.yaml", &GOOD.replacen(right, &wrong, 1));
        let own = "RmsNorm --assets own --dry-run --format json";
        let ran = grid(&context, own).ended(0);
        let line: serde_json::Value = serde_json::from_str(&ran.stdout).expect("a line");
        messages = format!("{messages}{wrong}\n{}\n{}", line["rejected"], ran.stderr);
    }
    insta::assert_snapshot!(messages);
}

#[test]
fn unused_asset_folders_are_reported() {
    let context = Context::new();
    let folder = |name: &str| fs::create_dir_all(context.path(name)).expect("made");
    ["empty", "near/grid", "both/grids", "both/op_repaly", "kind/grids/my.yaml"].into_iter().for_each(folder);
    context.write("yml/grids/my.yml", GOOD);
    context.write("model/grids/models/My.yml", "");
    folder("link/grids");
    unix::fs::symlink("nowhere.yaml", context.path("link/grids/my.yaml")).expect("linked");
    let mut messages = String::new();
    for name in ["empty", "near", "both", "kind", "yml", "model", "link"] {
        let ran = grid(&context, &["RmsNorm", "--dry-run", "--assets", name]).ended(3);
        messages = format!("{messages}{}\n", ran.stderr);
    }
    insta::assert_snapshot!(messages);
}

#[test]
fn unknown_kernel_is_reported_and_gets_no_rows() {
    let context = Context::new();
    let text = GOOD.replace("kernels: [RmsNorm]", "kernels: [RmsNorm, RmsNrom, my_own_thing]");
    context.write("mine.yaml", &text);
    let own = "--grids mine.yaml --rows 4 --device ATLAS_800_A2_313T_64G";
    let ran = grid(&context, own).ended(0);
    insta::assert_snapshot!(ran.stderr);
    let file = context.read("db/database.yaml");
    assert!(file.contains("device: ATLAS_800_A2_313T_64G"), "{file}");
    assert_eq!(context.rows("db", "RmsNorm").len(), 4, "only the given file is used");
    assert!(!context.path("db/RmsNrom.csv").exists() && !context.path("db/Add.csv").exists());
    let messages =
        [&["--rows", "4"][..], &["--rows", "4", "--seed", "3"], &["--rows", "9"], &["--rows", "0"]].map(
            |more| {
                let ran = grid(&context, &("RmsNorm --grids mine.yaml", more)).ended(0);
                ran.stderr
            },
        );
    let place = "db (kind rehearsal, device ATLAS_800_A2_313T_64G)";
    let reached =
        "4 rows exist from earlier commands; a larger `--rows` adds more, another `--seed` does not";
    let next = "next: `npubench check --db db`, `npubench run --db db --host rehearsal`";
    assert_eq!(
        messages,
        [
            format!("no rows added to {place}: {reached}\n"),
            format!("no rows added to {place}: {reached}\n"),
            format!("4 rows added to {place}; {next}\n"),
            format!("no rows added to {place}: all valid candidates exist already\n"),
        ]
    );
}

#[test]
fn invalid_grid_options_are_reported() {
    let context = Context::new();
    let mut messages = String::new();
    for (code, wrong) in [
        (2, &["--rows", "-1"][..]),
        (2, &["--rows", "many"]),
        (2, &["--seed", "-3"]),
        (2, &["--max-hbm-gib", "0"]),
        (2, &["--max-hbm-gib", "-0.5"]),
        (3, &["--device", "ATLAS"]),
        (3, &["--models", "Qwen3-32B", "Qwen3-8B"]),
        (3, &["--models", "qwen3-23b"]),
        (3, &["--grids", "missing.yaml"]),
    ] {
        let ran = grid(&context, &("--dry-run", wrong));
        assert_eq!(ran.code, code, "{wrong:?}: {}", ran.stderr);
        messages = format!("{messages}{}\n", ran.stderr);
    }
    insta::assert_snapshot!(messages);
    let large =
        |gib: &str| grid(&context, &["RmsNorm", "--dry-run", "--rows", "0", "--max-hbm-gib", gib]).stdout;
    assert!(large("0.1").lines().count() == 3 && large("0.1") != large("0.2"));
}

#[test]
fn invalid_grid_files_are_reported() {
    let context = Context::new();
    let own = ["grid", "--db", "db", "--dry-run", "--grids", "own.yaml"];
    let error_of = |text: &[u8]| {
        fs::write(context.path("own.yaml"), text).expect("written");
        let started = std::time::Instant::now();
        let ran = run_limited(&context, "ulimit -v 4000000", &own).ended(3);
        assert!(started.elapsed().as_secs() < 20, "{}", ran.stderr);
        ran.stderr
    };
    let large = format!("summary: {}\n", "a".repeat(2 << 20));
    let deep = format!("patterns: {{p: {{axes: {{t: {}\n", "[".repeat(100_000));
    let dashes = format!("patterns:\n  p:\n    axes:\n      t:\n        {}\n", "- ".repeat(100_000));
    let long = GOOD.replace("d * block", &format!("d * {}blok", "block + ".repeat(5000)));
    let unclosed = GOOD.replace("d * block", &format!("d * {}", "(block + 1) * ".repeat(5000)));
    let axes = GOOD.replace("    let:", "    axes: {t: T}\n    let:");
    let constants = GOOD.replace("{block: 16}", "\n  block: 16\n  block: 32");
    let texts = [
        "42",
        "null",
        "[]",
        "",
        "summary: a\npatterns: []\n",
        "summary: a\npatterns: {a: 3}\n",
        "summary: a\nladders: {A: 3}\n",
        "summary: a\n---\nsummary: b\n",
        &axes,
        &constants,
        "summary: a\nconstants: {a: 1, a: 2}\n",
        &large,
        &deep,
        &dashes,
        &long,
        &unclosed,
    ];
    let mut all: String = texts.iter().map(|text| error_of(text.as_bytes()) + "\n").collect();
    all += &error_of(b"summary: a\nladders: {\xff: [1]}\n");
    insta::assert_snapshot!(all);
    // A byte-order mark is accepted.
    context.write("own.yaml", &format!("\u{feff}{GOOD}"));
    context.done(&own);
}
