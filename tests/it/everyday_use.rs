//! Behaviour common to all commands: the same error for the same mistake, the same options everywhere, and the next step.

use std::fs;

use crate::prelude::*;
use crate::{
    comm::write_planted,
    timeline::{TABLE, write_text_profile},
};

/// A database of a decoder layer and a kernel without catalogue entry.
fn database_with_a_mystery() -> Context {
    let context = Context::of_layer();
    context.write("more.csv", &profile(&[&SWIGLU.replacen("SwiGlu", "Mystery", 1)]));
    context.done("ingest more.csv --db db");
    context
}

/// Commands that read a database, with `DB` in place of its folder.
const READERS: [&str; 30] = [
    "plan --db DB --devices 0",
    "run --db DB --host rehearsal --devices 0",
    "run --db DB",
    "resume --db DB",
    "status --db DB",
    "pause --db DB --devices 0",
    "unpause --db DB",
    "runs --db DB",
    "show --db DB",
    "why Add.csv:2 --db DB",
    "diff DB DB",
    "noise --db DB",
    "report --db DB",
    "reparse --db DB",
    "render Add --db DB",
    "query --db DB --op Add --inputs 4,4;4,4",
    "coverage --db DB --model Qwen3-8B",
    "fill --db DB --model Qwen3-8B --host rehearsal",
    "adapt MatMulV2 --db DB --models Qwen3-8B --host rehearsal",
    "check --db DB",
    "grid audit --db DB",
    "shard --db DB --shards 2",
    "fia-backfill --db DB --dump calls.jsonl",
    "selftest --db DB --host rehearsal",
    "db check DB",
    "db normalize DB",
    "db rebuild DB",
    "db copy DB new --kind rehearsal",
    "db merge new DB",
    "comm fit --db DB",
];

#[test]
fn all_commands_refuse_a_folder_that_is_no_database_with_one_error() {
    let context = Context::new();
    context.write("text/notes.md", "notes\n");
    fs::create_dir(context.path("empty")).expect("created");
    for folder in ["missing", "empty", "text"] {
        let expected = format!("error: `{folder}` is not a database folder\nhint: create one with ");
        for reader in &READERS[if folder == "missing" { 0 } else { READERS.len() - 3 }..] {
            let ran = context.exits(3, &reader.replace("DB", folder));
            assert!(ran.stderr.starts_with(&expected), "{reader}: {}", ran.stderr);
            assert_eq!(ran.stdout, "", "{reader}");
        }
    }
    assert!(!context.path("new").exists());
    let doctor = context.run("doctor --db text").stdout;
    assert!(doctor.contains("warning database: `text` is not a database folder\n"), "{doctor}");
    let doctor = context.run("doctor --db missing").stdout;
    assert!(doctor.contains(" GiB free below `missing`"), "{doctor}");
}

/// A folder with other files can become a database, which leaves them alone.
#[test]
fn a_database_is_created_beside_other_files() {
    let context = Context::new();
    context.write("db/notes.md", "notes\n");
    context.small_database("db");
    assert_eq!(context.read("db/notes.md"), "notes\n");
    let listed = context.run("runs --db db");
    assert_eq!((listed.code, listed.stderr.trim()), (0, "no run has been started on this database"));
    let file = context.read("db/database.yaml");
    assert!(file.contains("kind: rehearsal"), "{file}");
}

#[test]
fn ingest_ends_with_what_can_be_replayed_and_the_next_step() {
    let context = database_with_a_mystery();
    let ran = context.run("ingest more.csv --db db");
    let next: Vec<&str> = ran.stderr.lines().skip(1).collect();
    assert_eq!(
        next,
        [
            "0 of 1 kernel can be replayed with all recorded shapes, 0.00 % of the time on AI cores: `npubench kernels --missing \
             more.csv` lists the rest",
            "next: `npubench plan --db db`, `npubench run --db db --host rehearsal`",
        ],
        "{}",
        ran.stderr
    );
    let both = context.path("both");
    fs::create_dir(&both).expect("created");
    let records = [SWIGLU, &SWIGLU.replacen("SwiGlu,59.730", "Mystery,20.270", 1)];
    context.write("both/kernel_details.csv", &profile(&records));
    let ran = context.done(&["ingest", "both", "--db", "real data"]);
    let replayable =
        "1 of 2 kernels can be replayed with all recorded shapes, 74.66 % of the time on AI cores";
    ran.err_has(replayable);
    let next = "next: `npubench doctor --db 'real data'`, `npubench plan --db 'real data'`, `npubench run --db 'real data'`";
    ran.err_has(next);
}

#[test]
fn kernels_without_an_entry_have_a_line_and_an_option_of_their_own() {
    let context = database_with_a_mystery();
    let planned = context.run("plan --db db --devices 0");
    let shares = planned.stdout.lines().find(|line| line.starts_with("of the recorded time of the rows: "));
    let not_launched = shares.and_then(|line| line.rsplit_once(", ")).expect("two shares").1;
    let ran = rehearse(&context, "db", "--devices 0").ended(0);
    ran.err_has("failed: none of 21 cases\n");
    let line =
        ran.stderr.lines().find(|line| line.starts_with("without a catalogue entry: ")).expect("a line");
    let share =
        line.split([':', ',']).nth(2).expect("a share").trim().trim_end_matches(" of the recorded time");
    assert_eq!(format!("{share} not launched"), not_launched);
    assert!(line.ends_with(": Mystery 1; they do not count as failed without `--require-entries`"), "{line}");
    let ran = rehearse(&context, "db", "--devices 0 --require-entries").ended(1);
    ran.err_has("failed: 1 of 1 case, ");
    // The option adds to the verdicts that are given.
    let given = "--devices 0 --fail-on crashed --require-entries";
    assert_eq!(rehearse(&context, "db", given).code, 1);
    assert_eq!(rehearse(&context, "db", "--devices 0 --fail-on crashed").code, 0);
}

#[test]
fn kernels_and_the_database_are_options_of_all_commands() {
    let context = Context::new();
    context.small_database("db");
    // A database without a ledger has nothing to rebuild.
    context.run("run --db db --host rehearsal --devices 0").measured();
    for (one, other) in [
        (
            "grid Add,Mul --db new --dry-run --kind rehearsal",
            "grid --kernels Add,Mul --db new --dry-run --kind rehearsal",
        ),
        ("grid audit Add --db db", "grid audit --kernels Add --db db"),
        ("grid --db db --dry-run --mutate=scale", "grid --db db --dry-run --mutate scale"),
        ("grid Add --db db --dry-run --mutate", "grid --db db --dry-run --mutate Add"),
        ("db check db", "db check --db db"),
        ("db normalize db --dry-run", "db normalize --db db --dry-run"),
        ("db rebuild db --dry-run", "db rebuild --db db --dry-run"),
    ] {
        let [one, other] = [one, other].map(|words| context.run(words));
        assert!(one.code <= 1, "{}", one.stderr);
        assert_eq!((one.code, one.stdout, one.stderr), (other.code, other.stdout, other.stderr));
    }
    let audit = |more: &str| {
        let mut command = context.command(&("grid audit --format json", more));
        context.ran(&command.env("NPUBENCH_DB", "db").output().expect("npubench runs"))
    };
    let given = context.run("grid audit --format json --db db");
    assert_eq!(audit("").stdout, given.stdout);
    // The grids are audited where they are named.
    assert_ne!(audit("--models Qwen3-8B --kernels MatMulV2").stdout, given.stdout);
    context.write("list.csv", "op,inputs,count\nAdd,\"4096;\",2\n");
    let m6 = |arguments: &str, folder: &str| {
        let mut command = context.command(&("m6 db.csv --whole", arguments));
        context.ran(&command.env("NPUBENCH_DB", folder).output().expect("npubench runs"))
    };
    let given = m6("--workload list.csv --db db", "nowhere").ended(0);
    assert_eq!(m6("--workload list.csv", "db").stdout, given.stdout);
    // A trace needs no database.
    let traced = m6("--predicted trace.json", "nowhere");
    assert!(traced.stderr.starts_with("error: trace.json: cannot be read"), "{}", traced.stderr);
    for arguments in ["db check", "adapt --db db"] {
        let without = context.exits(2, arguments);
        without.err_has("hint: give ");
    }
    let questions = context.run("grid audit --model Qwen3-8B");
    assert!(questions.code == 2 && questions.stderr.contains("`--db DIR`"), "{}", questions.stderr);
}

#[test]
fn unknown_words_have_one_suggestion() {
    let context = Context::new();
    context.small_database("db");
    for (words, hint) in [
        ("render Matmul --db db", "did you mean `MatMul`?"),
        (
            "render Unknown --db db",
            "`npubench kernels` lists the entries; docs/adding-a-kernel.md explains how to add one",
        ),
        ("grid scale --db db --mutate --dry-run", "list mutations after `--mutate`, separated by commas"),
        ("grid --db db --mutate scal --dry-run", "did you mean `scale`?"),
        (
            "render Add --db db --case ffff",
            "the column `MicroBench Case` and the output of `run` show the ids",
        ),
    ] {
        let ran = context.run(&words.split(' ').collect::<Vec<_>>());
        assert_eq!((ran.code, ran.stdout.as_str()), (3, ""), "{words}: {}", ran.stderr);
        assert_eq!(ran.stderr.lines().last(), Some(&*format!("hint: {hint}")), "{words}");
    }
    assert_eq!(rehearse(&context, "db", "--devices 0").code, 0);
    let case = context.rows("db", "Add")[0]["MicroBench Case"].clone();
    let shown = context.run(&["show", &case, "--db", "db"]);
    let hint = format!("hint: `npubench why {case} --db ");
    shown.err_has(&hint);
    let script = context.run(&["render", "Add", "--db", "db", "--case", &case[..4]]);
    assert_eq!(script.stdout, context.run("render --kernels Add --db db").stdout);
    // Hints name the database, so that they can be copied.
    fs::create_dir(context.path("a b")).expect("created");
    fs::copy(context.path("db/database.yaml"), context.path("a b/database.yaml")).expect("copied");
    for command in [&["plan", "--db", "a b"][..], &["why", "abcd", "--db", "a b"]] {
        let ran = context.run(command);
        ran.err_has("`npubench ingest PROFILE --db 'ROOT/a b'`");
    }
}

#[test]
fn tables_fit_the_terminal_and_wide_ones_are_whole() {
    let context = Context::of_layer();
    insta::assert_snapshot!(fitted_starts(
        &context,
        &[
            "kernels",
            "rules",
            "plan --db db --devices 0",
            "models",
            "models Qwen3-32B --tp 4 --batch 64",
            "coverage --db db --model Qwen3-32B --tp 4 --batch 64",
            "grid RmsNorm SwiGlu --db db --rows 20 --dry-run",
            "grid audit --db db",
            "grid audit --db db --model Qwen3-32B --tp 4 --batch 64",
            "fill --db db --model Qwen3-32B --tp 4 --batch 64 --host rehearsal --devices 0-3 --dry-run",
        ]
    ));
}

#[test]
fn tables_of_profiles_and_results_fit_the_terminal() {
    let context = Context::of_layer();
    for _ in 0..2 {
        context.done(&(STEADY_RUN, "--update all --kernels Add,Sort"));
    }
    write_text_profile(&context, "a_ascend_pt", 0);
    write_text_profile(&context, "b_ascend_pt", 1);
    let slower = TABLE.replacen(",MatMul", ",MatMulOfTheOtherRunWithALongName", 1);
    context.write("b_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv", &slower);
    insta::assert_snapshot!(fitted_starts(
        &context,
        &[
            "timeline a_ascend_pt b_ascend_pt",
            "modules a_ascend_pt --db db",
            "compare a_ascend_pt b_ascend_pt --calls --db db",
            "query --db db --op Add --inputs 3,5;3,5",
            "kernels --missing a_ascend_pt",
            "m6 a_ascend_pt --whole --db db --model Qwen3-32B --tp 4 --batch 64",
            "adapt SwiGlu RmsNorm --db db --host rehearsal --dry-run",
        ]
    ));
    let connection = rusqlite::Connection::open(context.path("db/.npubench/ledger.db")).expect("a ledger");
    connection
        .execute(
            r#"UPDATE attempts SET cause = '{"cause":"recorded","text":"changed"}' WHERE attempt = 1"#,
            [],
        )
        .expect("changed");
    // Run and times differ from call to call.
    fitted_starts(&context, &["noise --db db", "reparse --db db", "why Add.csv:2 --db db"]);
}

#[test]
fn tables_of_collectives_fit_the_terminal() {
    let context = Context::new();
    write_planted(&context, 0.004);
    insta::assert_snapshot!(fitted_starts(
        &context,
        &[
            "comm groups --devices 0-15",
            "comm fit --db db",
            "comm validate --db db",
            "comm run --db db --host rehearsal --devices 0-7 --ranks 2,8 --sizes 1K,32K,1M --dry-run",
        ]
    ));
}

/// Checks that tables fit 60 and 120 columns and are whole without a width; returns their first lines.
fn fitted_starts(context: &Context, tables: &[&str]) -> String {
    let mut starts = String::new();
    for table in tables {
        let table: Vec<&str> = table.split(' ').collect();
        let whole = context.run(&table).stdout;
        let cells = |text: &str| text.lines().count();
        for width in [60, 120] {
            let at = |more: &str| {
                let mut command = context.command(&(&table, more));
                context.ran(&command.env("COLUMNS", width.to_string()).output().expect("npubench runs"))
            };
            let fitted = at("").stdout;
            let start: Vec<&str> = fitted.lines().take(6).collect();
            starts += &format!("$ npubench {} ({width} columns)\n{}\n", table.join(" "), start.join("\n"));
            // Sentences begin at the first column or below a heading, and are broken by the terminal; so are reasons below one. Names of
            // files are whole.
            let is_cells = |line: &&str| {
                let others = [
                    ": rows of ",
                    " % narrower with ",
                    "profile/",
                    "SHA-256",
                    "the records of the case",
                    " messages: ",
                ];
                line.starts_with(' ') && !others.iter().any(|other| line.contains(other))
            };
            let lines = fitted.lines().filter(is_cells);
            let longest = lines.map(|line| line.chars().count()).max().expect("lines");
            assert!(longest <= width, "{table:?}: {longest} of {width} columns");
            assert!(cells(&fitted) >= cells(&whole), "{table:?}: a row is missing at {width} columns");
            if width == 60 {
                assert_eq!(at("--wide").stdout, whole, "{table:?}");
            }
        }
    }
    starts
}
