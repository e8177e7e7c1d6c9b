//! `npubench.toml`: defaults of options, below the command line and the environment.

use crate::prelude::*;

#[test]
fn options_of_files_are_defaults_that_others_precede() {
    let context = Context::of_layer();
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
    let both = run(&["plan", "--format", "json"], &[]).ended(0);
    let given = context.run("plan --db db --devices 0 --update all --format json");
    assert_eq!(both.stdout, given.stdout);
    assert!(run(&["plan"], &[("NPUBENCH_DB", "other")]).stderr.contains("`other` is not a database folder"));
    assert!(run(&["plan", "--db", "third"], &[("NPUBENCH_DB", "other")]).stderr.contains("`third`"));
    // Of a command with the folder as an argument, too.
    assert!(run(&["db", "check"], &[("NPUBENCH_DB", "other")]).stderr.contains("`other` is not a database"));
    assert!(run(&["db", "check"], &[]).code <= 1);
    assert!(run(&["db", "check", "third"], &[]).stderr.contains("`third`"));
    let shown = run(&["config"], &[]).ended(0);
    insta::assert_snapshot!(format!("{}---\n{}", shown.stderr, shown.stdout));
    let lines = run(&["config", "--format", "json"], &[]).stdout;
    let first: serde_json::Value = serde_json::from_str(lines.lines().next().expect("a line")).expect("JSON");
    assert_eq!((&first["option"], &first["line"]), (&"db".into(), &1.into()), "{lines}");
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
        let ran = context.run("run --db db");
        assert!(matches!(ran.code, 2 | 3) && ran.stdout.is_empty(), "{text}: {}", ran.stdout);
        errors += &format!("{}\n{}", ran.code, ran.stderr);
    }
    insta::assert_snapshot!(errors);
}
