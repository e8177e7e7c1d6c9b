//! What a new user wants, in at most six commands that the help shows.

use std::{fs, path::Path};

use crate::prelude::*;

/// Runs the commands of a user, with `--host rehearsal` and a model of durations for those that measure, and returns what the last
/// one prints on standard output. Each command is one of the examples in the help of the program.
fn follow(context: &Context, commands: &[&str]) -> String {
    assert!(commands.len() <= 6, "{commands:?}");
    let help = context.run("--help").stdout;
    let mut last = String::new();
    for command in commands {
        let words: Vec<&str> = command.split(' ').collect();
        let name: Vec<&str> = words
            .iter()
            .take_while(|word| word.bytes().all(|byte| byte.is_ascii_lowercase()))
            .copied()
            .collect();
        let name = if name[0] == "comm" { &name[..2] } else { &name[..1] };
        assert!(
            help.contains(&format!("\n  npubench {} ", name.join(" "))),
            "`{command}` is not in the help"
        );
        let mut words = words.clone();
        if name.last() == Some(&"run") {
            words.extend(["--host", "rehearsal", "--rehearsal-model", "steady"]);
        }
        let ran =
            context.command(&words).env("NPUBENCH_MAX_COLLECTIONS", "1").output().expect("npubench runs");
        let ran = context.ran(&ran).measured();
        last = ran.stdout;
    }
    last
}

/// A deadline that is hours away at any time of the day.
fn deadline() -> String {
    let hour = jiff::Zoned::now().hour();
    format!("{:02}:30", (hour + 6) % 24)
}

#[test]
fn eight_ranks_are_measured_until_the_morning() {
    let context = Context::new();
    for rank in 0..8 {
        let example = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!(
            "examples/decoder_profile/rank{}_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv",
            rank % 2
        ));
        // Equal tables would be copies of one.
        let text = fs::read_to_string(example).expect("a table").replace("\n7,", &format!("\n1{rank},"));
        context
            .write(&format!("night/host_{rank}_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv"), &text);
    }
    let until = deadline();
    let [plan, run] = ["plan", "run"].map(|command| format!("{command} --db a3 --until {until}"));
    follow(&context, &["ingest night --db a3 --kind rehearsal", &plan, &run, "report --db a3"]);
    assert_eq!(context.rows("a3", "MatMulV2")[0]["Profiling Ranks"], "8");
    let row = &context.rows("a3", "MatMulV2")[0];
    assert_eq!((&*row["MicroBench Verdict"], row["Average Duration(us)"].is_empty()), ("ok", false));
    let pages = fs::read_dir(context.path("")).expect("listed").map(|entry| entry.expect("listed").path());
    let page =
        pages.into_iter().find(|path| path.extension().is_some_and(|end| end == "html")).expect("a page");
    let page = fs::read_to_string(page).expect("text");
    assert!(page.contains("MatMulV2") && page.contains("input_layout"), "results, and why a case has none");
    let number = follow(&context, &["why MatMulV2.csv:2 --db a3"]);
    for part in ["median ", "interval ", "verdict    ok: ", "collections\n", "samples ", "raw ", "again "] {
        assert!(number.contains(&format!("\n{part}")), "{part}: {number}");
    }
}

#[test]
fn a_step_of_a_model_is_covered() {
    let context = Context::new();
    let step = "--tp 4 --batch 64";
    let answers = follow(
        &context,
        &[
            &format!("grid --db a3 --kind rehearsal --models Qwen3-32B --phase decode --context 4096 {step}"),
            &format!("run --db a3 --until {}", deadline()),
            &format!("comm run --db a3 --model Qwen3-32B {step} --ranks 4"),
            &format!("coverage --db a3 --model Qwen3-32B {step}"),
        ],
    );
    for metric in ["M1 invocations", "M4 shapes", "M5 time"] {
        let line = answers.lines().find(|line| line.trim_start().starts_with(metric)).expect("a metric");
        assert!(line.ends_with(" 100.00 %"), "{answers}");
    }
}
