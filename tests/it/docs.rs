//! Consistency of README, documentation, CI and catalogue.

use std::{env, fs, os::unix::fs::symlink, path::Path, process::Command};

use crate::prelude::*;

fn read(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name))
        .expect("a readable file of the project")
}

#[test]
fn ci_runs_the_test_command_of_the_readme() {
    let readme = read("README.md");
    let section = readme.split("## Test").nth(1).expect("README has a section on tests");
    let command = section.split("```").nth(1).expect("a block").trim_start_matches("sh").trim();
    assert_eq!(command.lines().count(), 1, "one command");
    let ci = read(".ci/run");
    assert!(ci.lines().any(|line| line == command), "`{command}` is not a line of .ci/run");
}

/// README, CHANGELOG and every Markdown file below `docs`, relative to the project.
fn documents() -> Vec<String> {
    let mut found = vec!["README.md".to_owned(), "CHANGELOG.md".to_owned()];
    for folder in ["docs", "docs/design"] {
        for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)).expect("a folder") {
            let name = entry.expect("a file").file_name().to_string_lossy().into_owned();
            if name.ends_with(".md") {
                found.push(format!("{folder}/{name}"));
            }
        }
    }
    found
}

#[test]
fn linked_files_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for document in documents() {
        let text = read(&document);
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let path = root.join(&document).parent().expect("a folder").join(target);
            assert!(target.starts_with("http") || path.exists(), "{document} links to `{target}`");
        }
    }
}

#[test]
fn every_event_and_its_keys_are_documented() {
    let source = read("src/measure/events/mod.rs");
    let variants = source.split("pub(crate) enum RunEvent {").nth(1).expect("the events");
    let runs = read("docs/runs.md");
    let table = runs.split("## Events").nth(1).expect("a section");
    let mut row = "";
    let mut events = 0;
    for line in variants.lines().take_while(|line| *line != "}") {
        let is_of =
            |indent: &str| line.strip_prefix(indent).filter(|rest| !rest.starts_with([' ', '/', '#', '}']));
        if let Some(variant) = is_of("    ") {
            let variant = variant.trim_end_matches([' ', '{', ',']);
            let mut name = String::new();
            for character in variant.chars() {
                if character.is_uppercase() && !name.is_empty() {
                    name.push('_');
                }
                name.extend(character.to_lowercase());
            }
            let found = table
                .lines()
                .find(|row| row.split('|').nth(1).is_some_and(|cell| cell.contains(&format!("`{name}`"))));
            row = found.unwrap_or_else(|| panic!("the event `{name}` is not documented"));
            events += 1;
        } else if let Some((key, _)) = is_of("        ").and_then(|field| field.split_once(':')) {
            // An outcome has four keys; the path of the ledger is that of its file.
            let keys = if key == "outcome" && !row.contains("`outcome`") {
                vec!["verdict", "reason", "cause", "findings"]
            } else {
                vec![key]
            };
            let is_named = keys.iter().all(|key| row.contains(&format!("`{key}`")));
            assert!(is_named, "the key `{key}` is not documented in {row}");
        }
    }
    assert!(events > 20, "{events} events");
}

/// The verdicts that the program names are those of the table, so that no row has a word without a meaning.
#[test]
fn every_verdict_is_documented() {
    let context = Context::new();
    context.small_database("db");
    let ran = context.run(&["plan", "--db", "db", "--filter", "verdict = x"]);
    let verdicts = ran.stderr.split_once("verdicts are ").expect("the list").1.trim();
    assert!(verdicts.split(", ").count() > 15, "{verdicts}");
    let page = read("docs/database.md");
    let table = page.split("\n## ").find(|part| part.starts_with("Verdicts\n")).expect("the table");
    for verdict in verdicts.split(", ") {
        let is_explained = |line: &str| {
            line.starts_with("| `")
                && line.split('|').nth(1).is_some_and(|cell| cell.contains(&format!("`{verdict}`")))
        };
        assert!(table.lines().any(is_explained), "{verdict}");
    }
}

/// Cells of the rows of a Markdown table, without header and separator, and without rows that are titles.
fn rows_of_table(text: &str, header: &str) -> Vec<Vec<String>> {
    let table = text.split(header).nth(1).unwrap_or_else(|| panic!("no table `{header}`"));
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let cells = |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
    rows.filter(|line| !line.starts_with("| **")).map(cells).collect()
}

#[test]
fn every_assumption_has_a_source_or_what_decides_it() {
    let text = read("docs/rehearsal.md");
    let sources = rows_of_table(&text, "| source | repository | version |");
    assert!(sources.iter().all(|row| row.len() == 3 && row.iter().all(|cell| !cell.is_empty())));
    let selftest = read("docs/selftest.md");
    let experiments = rows_of_table(&selftest, "| number | name | expected |");
    let is_experiment = |text: &str| {
        !text.is_empty()
            && text.split(", ").all(|number| experiments.iter().any(|experiment| experiment[0] == number))
    };
    let is_command = |text: &str| text.starts_with("`npubench ");
    let is_file = |text: &str| {
        text.split_once(": ").is_some_and(|(source, path)| {
            sources.iter().any(|row| row[0] == source) && !path.is_empty() && !path.contains(' ')
        })
    };
    let assumptions = rows_of_table(&text, "| assumption | known by |");
    assert!(assumptions.len() > 50, "{}", assumptions.len());
    for row in &assumptions {
        let [assumption, known] = row.as_slice() else { panic!("{row:?} has not two cells") };
        let (known, decides) = known.split_once("; ").unwrap_or((known, ""));
        let is_stated = match known {
            "unproven" => decides.split("; ").all(|part| is_experiment(part) || is_command(part)),
            _ => is_file(known) && (decides.is_empty() || is_experiment(decides)),
        };
        assert!(is_stated, "`{assumption}` has neither a source nor what decides it");
    }
    for experiment in experiments {
        let is_named = |row: &Vec<String>| {
            row[1].split("; ").any(|part| part.split(", ").any(|one| one == experiment[0]))
        };
        let is_used = assumptions.iter().any(is_named);
        assert!(is_used, "experiment {} tests no listed assumption", experiment[0]);
    }
}

#[test]
fn keys_of_json_are_documented() {
    let context = Context::new();
    context.small_database("db");
    let ran = context.run("plan --db db --devices 0 --cache both --format json");
    let mut outputs = vec![ran];
    assert!(context.run("run --db db --host rehearsal --devices 0-1").code <= 1);
    for command in ["reparse", "why", "noise", "runs", "show", "status"] {
        let case: &[&str] = if command == "why" { &["SwiGlu.csv:2"] } else { &[] };
        let ran = context.run(&(&[command], case, "--db db --format json"));
        assert!(ran.code <= 1 || command == "status" || command == "noise", "{command}: {}", ran.stderr);
        outputs.push(ran);
    }
    let runs = read("docs/runs.md");
    let mut keys = 0;
    for ran in outputs {
        for line in ran.stdout.lines() {
            let object: serde_json::Value = serde_json::from_str(line).expect("JSON");
            for key in object.as_object().expect("an object").keys() {
                assert!(runs.contains(&format!("`{key}`")), "`{key}` is not documented: {line}");
                keys += 1;
            }
        }
    }
    assert!(keys > 40, "{keys} keys");
}

#[test]
fn every_entry_states_the_vendors_schema() {
    let Some(listed) = shared("vendor/torch_npu-2.9.0.post9-schemas.txt") else {
        return;
    };
    let listed = fs::read_to_string(listed).expect("UTF-8");
    let catalogue =
        npubench::kernel::catalogue::Catalogue::load(&npubench::base::assets::AssetFiles::embedded())
            .expect("it loads");
    let mut checked = 0;
    for entry in catalogue.entries() {
        for schema in entry.schema_texts().filter(|schema| schema.starts_with("npu::")) {
            assert!(listed.lines().any(|line| line == schema), "{}: {schema}", entry.kernel);
            checked += 1;
        }
    }
    // Entries of torch's own functions (`aten::`) and of custom operators are in other lists.
    assert!(checked >= 30, "{checked} entries have an npu schema; there were 30, and entries are only added");
}

/// Fence of a block with commands and their output.
const CONSOLE: &str = "```console";

/// Runs the commands of a document in a folder that has `examples`, and returns it with the output of each behind it.
fn with_current_output(document: &str) -> String {
    let context = Context::new();
    symlink(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples"), context.path("examples"))
        .expect("linked");
    let program = assert_cmd::cargo::cargo_bin!("npubench").parent().expect("a folder").to_owned();
    let folders = env::split_paths(&env::var_os("PATH").unwrap_or_default()).collect::<Vec<_>>();
    let path = env::join_paths(std::iter::once(program).chain(folders)).expect("folders without colons");
    let mut text = String::new();
    let mut is_console = false;
    for line in document.lines() {
        if is_console && line == "```" {
            is_console = false;
        }
        if line == CONSOLE {
            is_console = true;
        } else if let (true, Some(command)) = (is_console, line.strip_prefix("$ ")) {
            let mut shell = Command::new("sh");
            shell.args(["-c", command]).current_dir(context.path("")).env("PATH", &path).env("NO_COLOR", "1");
            for variable in ["NPUBENCH_LEASES", "NPUBENCH_DB", "NPUBENCH_DEVICE"] {
                shell.env_remove(variable);
            }
            let output = shell.env_remove("NPUBENCH_ASSETS").output().expect("sh runs");
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && errors.is_empty(), "`{command}`: {errors}");
            let printed = String::from_utf8(output.stdout).expect("UTF-8");
            assert!(!printed.is_empty(), "`{command}` prints nothing");
            text.push_str(&format!("{line}\n{printed}"));
            continue;
        } else if is_console {
            continue;
        }
        text.push_str(line);
        text.push('\n');
    }
    text
}

/// With `NPUBENCH_WRITE_DOCS=1` the output in the document is replaced by the current one.
#[test]
fn commands_of_the_page_on_profiles_print_what_it_shows() {
    compare_commands("docs/reading-a-profile.md", 9);
}

#[test]
fn commands_of_the_tutorial_print_what_it_shows() {
    compare_commands("docs/tutorial.md", 9);
}

/// Runs the commands of a document with this number of blocks, and compares what they print.
fn compare_commands(name: &str, blocks: usize) {
    let document = read(name);
    let current = with_current_output(&document);
    assert_eq!(document.matches(CONSOLE).count(), blocks);
    if env::var_os("NPUBENCH_WRITE_DOCS").is_some() {
        fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join(name), &current).expect("written");
        return;
    }
    for (line, (shown, printed)) in document.lines().zip(current.lines()).enumerate() {
        let place = format!("{name}:{}; NPUBENCH_WRITE_DOCS=1 writes the current output", line + 1);
        assert_eq!(shown, printed, "{place}");
    }
    assert_eq!(document.lines().count(), current.lines().count(), "{name}");
}
