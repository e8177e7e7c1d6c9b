//! `npubench.toml`: defaults of options, below the command line and the environment.

use crate::{context::Context, kill_resume::ingested};

#[test]
fn options_of_files_are_defaults_that_others_precede() {
    let context = ingested();
    let settings = context.path("settings");
    context.write("settings/npubench/npubench.toml", "db = \"nothere\"\n[plan]\ndevices = \"0\"\n");
    let run = |arguments: &[&str], variables: &[(&str, &str)]| {
        let mut command = context.command(arguments);
        command.env("XDG_CONFIG_HOME", &settings).envs(variables.iter().copied());
        context.ran(&command.output().expect("it runs"))
    };
    let user = run(&["plan"], &[]);
    assert!(user.code == 3 && user.stderr.contains("`nothere` is not a database folder"), "{}", user.stderr);
    // The file of the current folder precedes that of the user, a variable both, and the command line all.
    context.write("npubench.toml", "db = \"db\"\n[comm.run]\nranks = [2, 4]\n[plan]\nupdate = \"all\"\n");
    let both = run(&["plan", "--format", "json"], &[]);
    assert_eq!(both.code, 0, "{}", both.stderr);
    let given = context.run(&["plan", "--db", "db", "--devices", "0", "--update", "all", "--format", "json"]);
    assert_eq!(both.stdout, given.stdout);
    assert!(run(&["plan"], &[("NPUBENCH_DB", "other")]).stderr.contains("`other` is not a database folder"));
    assert!(run(&["plan", "--db", "third"], &[("NPUBENCH_DB", "other")]).stderr.contains("`third`"));
    // Of a command with the folder as an argument, too.
    assert!(run(&["db", "check"], &[("NPUBENCH_DB", "other")]).stderr.contains("`other` is not a database"));
    assert!(run(&["db", "check"], &[]).code <= 1);
    assert!(run(&["db", "check", "third"], &[]).stderr.contains("`third`"));
    let shown = run(&["config"], &[]);
    assert_eq!(shown.code, 0);
    insta::assert_snapshot!(format!("{}---\n{}", shown.stderr, shown.stdout));
    let lines = run(&["config", "--format", "json"], &[]).stdout;
    let first: serde_json::Value = serde_json::from_str(lines.lines().next().expect("a line")).expect("JSON");
    assert_eq!((&first["option"], &first["line"]), (&"db".into(), &1.into()), "{lines}");
}

/// The hint of an error names help, which must not end with the same error.
#[test]
fn help_and_completions_need_no_valid_file() {
    let context = ingested();
    context.write("npubench.toml", "[run]\nnosuch = 1\n");
    for arguments in [
        &["--version"][..],
        &["--help"],
        &["help", "run"],
        &["run", "--help"],
        &["completions", "bash"],
        &["man"],
    ] {
        let ran = context.run(arguments);
        assert_eq!(ran.code, 0, "{arguments:?}: {}", ran.stderr);
        assert!(!ran.stdout.is_empty(), "{arguments:?}");
    }
    for arguments in [&["plan", "--db", "db"][..], &["config"], &["plan", "--nosuch"]] {
        let ran = context.run(arguments);
        assert_eq!(ran.code, 3, "{arguments:?}");
        assert!(
            ran.stderr.contains("npubench.toml:2: `npubench run` has no option `--nosuch`"),
            "{}",
            ran.stderr
        );
    }
}

/// Options such as `--verbose` belong to no command.
#[test]
fn options_of_all_commands_stand_above_the_tables() {
    let context = ingested();
    context.write("npubench.toml", "[run]\nverbose = true\n");
    let ran = context.run(&["runs", "--db", "db"]);
    assert_eq!(ran.code, 3);
    insta::assert_snapshot!(ran.stderr, @r"
    error: npubench.toml:2: `--verbose` is an option of all commands, not of one
    hint: set it above the first table
    ");
}

/// A wrong value has the line that sets it.
#[test]
fn wrong_values_have_their_line() {
    let context = ingested();
    context.write("npubench.toml", "db = \"db\"\n\n[run]\nprecision = \"abc\"\n");
    let ran = context.run(&["run"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(ran.stderr.ends_with("npubench.toml:4: `--precision` is set here\n"), "{}", ran.stderr);
}

#[test]
fn options_of_one_command_precede_those_of_all() {
    let context = ingested();
    let plan = |text: &str, further: &[&str]| {
        context.write("npubench.toml", text);
        context.run(&[&["plan", "--devices", "0"][..], further].concat())
    };
    // Tables are in the order of their names: `check` is before `db`, `plan` behind it.
    for command in ["check", "plan"] {
        let text = format!("db = \"nothere\"\n[{command}]\ndb = \"db\"\n");
        context.write("npubench.toml", &text);
        let ran = context.run(&[command]);
        assert!(!ran.stderr.contains("nothere"), "{command}: {}", ran.stderr);
    }
    // A deadline of the command line excludes the other form of the file.
    let until = "db = \"db\"\n[plan]\nuntil = \"00:00\"\n";
    let direct = context.run(&["plan", "--db", "db", "--devices", "0", "--budget", "5s"]);
    let without_time =
        |text: &str| text.lines().filter(|line| !line.contains(" ends at ")).collect::<Vec<_>>().join("\n");
    let by_budget = plan(until, &["--budget", "5s"]).stdout;
    assert_eq!(without_time(&by_budget), without_time(&direct.stdout));
    assert_ne!(without_time(&plan(until, &[]).stdout), without_time(&direct.stdout));
    // `json` is no format of `report`, whose own format stays.
    let general = "db = \"db\"\nformat = \"json\"\n";
    assert!(plan(general, &[]).stdout.starts_with('{'));
    let report = context.run(&["report"]);
    assert!(report.code != 2, "{}", report.stderr);
    // Flags can be switched off again.
    let settings = context.path("settings");
    context.write("settings/npubench/npubench.toml", "quiet = true\n");
    let notes = |text: &str, further: &[&str]| {
        context.write("npubench.toml", text);
        let mut command = context.command(&[&["config"][..], further].concat());
        context.ran(&command.env("XDG_CONFIG_HOME", &settings).output().expect("it runs")).stderr
    };
    assert_eq!(notes("", &[]), "");
    assert!(notes("quiet = false\n", &[]).contains("is used"));
    assert!(notes("", &["--verbose"]).contains("is used"), "`--verbose` excludes `quiet`");
}

#[test]
fn wrong_files_are_refused_with_line_and_suggestion() {
    let context = Context::new();
    let mut errors = String::new();
    for text in [
        "[run]\ndevces = \"0\"\n",
        "db = \"a\"\n\n[rum]\ndevices = \"0\"\n",
        "[run\n",
        "[run]\ndevices = 2026-11-25\n",
        "[stand-in]\nx = 1\n",
        "nosuchoption = true\n",
        "[run]\ndevices = \"x\"\n",
        "[run]\nbudget = [\"1h\", \"2h\"]\n",
        "format = \"jsn\"\n",
        "[run]\nupdate = \"al\"\n",
    ] {
        context.write("npubench.toml", text);
        let ran = context.run(&["run", "--db", "db"]);
        assert!(matches!(ran.code, 2 | 3) && ran.stdout.is_empty(), "{text}: {}", ran.stdout);
        errors += &format!("{}\n{}", ran.code, ran.stderr);
    }
    insta::assert_snapshot!(errors);
}
