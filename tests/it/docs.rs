//! Consistency of README, documentation, CI and catalogue.

use std::{fs, path::Path};

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
fn every_entry_states_the_vendors_schema() {
    let Some(listed) = crate::requirements::shared("vendor/torch_npu-2.9.0.post9-schemas.txt") else {
        return;
    };
    let listed = fs::read_to_string(listed).expect("UTF-8");
    let catalogue =
        npubench::catalogue::Catalogue::load(&npubench::config::AssetFiles::embedded()).expect("it loads");
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
