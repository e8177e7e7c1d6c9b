//! README and CI say the same, and what they say is there.

use std::{fs, path::Path};

fn read(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).expect("it is there")
}

#[test]
fn ci_runs_the_tests_by_the_readmes_command() {
    let readme = read("README.md");
    let section = readme.split("## Test").nth(1).expect("README has a section on tests");
    let command = section.split("```").nth(1).expect("a block").trim_start_matches("sh").trim();
    assert_eq!(command.lines().count(), 1, "one command");
    let ci = read(".ci/run");
    assert!(ci.lines().any(|line| line == command), "`{command}` is no line of .ci/run");
}

#[test]
fn files_that_the_papers_name_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for paper in ["README.md", "CHANGELOG.md", "docs/design/README.md", "docs/adding-a-kernel.md"] {
        let text = read(paper);
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let path = root.join(paper).parent().expect("a folder").join(target);
            assert!(target.starts_with("http") || path.exists(), "{paper} names `{target}`");
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
    for entry in catalogue.entries().filter(|entry| entry.schema_text.starts_with("npu::")) {
        assert!(
            listed.lines().any(|line| line == entry.schema_text),
            "{}: {}",
            entry.kernel,
            entry.schema_text
        );
        checked += 1;
    }
    // Entries of torch's own functions (`aten::`) and of custom operators are in other lists.
    assert!(checked >= 30, "{checked} entries have an npu schema; there were 30, and entries are only added");
}
