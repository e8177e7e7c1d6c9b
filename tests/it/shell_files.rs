//! `npubench completions` in a real shell, and the pages of `npubench man`.

use std::{fs, process::Command};

use crate::prelude::*;

/// Returns what bash proposes for the last of some words.
fn proposals(context: &Context, words: &[&str]) -> Vec<String> {
    let script = "source completions.bash; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); \
                  _npubench npubench \"${@: -1}\" \"${@: -2:1}\"; printf '%s\\n' \"${COMPREPLY[@]}\"";
    let output = Command::new("bash")
        .args(["--norc", "-c", script, "bash"])
        .args(words)
        .current_dir(context.path(""))
        .output()
        .expect("bash runs");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    String::from_utf8(output.stdout).expect("UTF-8").split_whitespace().map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_options_and_values() {
    let context = Context::new();
    let ran = context.done("completions bash");
    context.write("completions.bash", &ran.stdout);
    assert_eq!(proposals(&context, &["npubench", "tim"]), ["timeline"]);
    // Hidden commands, such as those of the rehearsal host, are not proposed.
    assert_eq!(proposals(&context, &["npubench", "st"]), ["status"]);
    assert_eq!(proposals(&context, &["npubench", "comm", "val"]), ["validate"]);
    assert_eq!(proposals(&context, &["npubench", "run", "--rehearsal-m"]), ["--rehearsal-model"]);
    assert_eq!(proposals(&context, &["npubench", "run", "--host", ""]), ["npu", "rehearsal"]);
    for shell in ["zsh", "fish", "elvish", "powershell"] {
        let ran = context.done(&["completions", shell]);
        assert!(ran.stdout.contains("timeline") && !ran.stdout.contains("stand-in"), "{shell}");
    }
    context.exits(2, "completions tcsh");
}

#[test]
fn each_command_has_a_manual_page_with_its_examples() {
    let context = Context::new();
    let missing = context.exits(3, "man --dir pages");
    assert_eq!(
        missing.stderr,
        "error: `pages` is not a folder\nhint: create it, or give another folder with `--dir`\n"
    );
    fs::create_dir(context.path("pages")).expect("created");
    let ran = context.done("man --dir pages");
    let names: Vec<String> = fs::read_dir(context.path("pages"))
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"))
        .collect();
    assert_eq!(ran.stderr, format!("{} pages are in pages\n", names.len()));
    for name in ["npubench.1", "npubench-run.1", "npubench-comm-fit.1", "npubench-db-check.1"] {
        assert!(names.iter().any(|found| found == name), "{name} of {names:?}");
    }
    assert!(!names.iter().any(|name| name.contains("stand-in") || name.contains("help")), "{names:?}");
    let page = context.read("pages/npubench-plan.1");
    let main = context.run("man").stdout;
    let example = "\n  npubench why MatMulV2.csv:2 \\-\\-db a3\n";
    assert!(main.split(".SH EXAMPLES\n.nf\n").nth(1).is_some_and(|text| text.contains(example)), "{main}");
    assert!(page.contains(".SH EXAMPLES\n.nf\n  npubench plan \\-\\-db a3 \\-\\-until 07:30\n"), "{page}");
    let first = context.run("man");
    first.out_has("npubench\\-timeline(1)");
}
