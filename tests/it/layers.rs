//! Keeps the arrows of the layers: a module imports only from layers below its own.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The modules of each layer, lowest first, as in `docs/design/README.md`. A module imports from lower layers, and
/// from modules named before it in its own layer.
const LAYERS: [&[&str]; 7] = [
    &["exit", "stats", "domain"],
    &["files", "table", "config", "events"],
    &["process", "catalogue", "llm", "profile"],
    &["render", "ledger", "database", "grid"],
    &["device", "plan", "sched", "verify"],
    &["engine", "vendor_check", "rehearsal", "report", "session"],
    &["cli"],
];

/// Imports that still point up; each is cut in a commit of its own.
const REMAINING: [(&str, &str); 2] = [("catalogue", "grid"), ("session", "cli")];

/// Position of a module in the order of imports.
fn position(module: &str) -> Option<usize> {
    LAYERS.iter().flat_map(|layer| layer.iter()).position(|name| *name == module)
}

fn rust_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("src can be listed") {
        let path = entry.expect("src can be listed").path();
        if path.is_dir() {
            rust_files(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// Modules of this crate that a text names behind `crate::`, also inside braces.
fn imports(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("crate::") {
        let rest = &text[at + "crate::".len()..];
        if let Some(group) = rest.strip_prefix('{') {
            let mut depth = 1;
            let mut word = String::new();
            let mut fresh = true;
            for character in group.chars() {
                match character {
                    '{' => depth += 1,
                    '}' => depth -= 1,
                    _ => {}
                }
                if character.is_alphanumeric() || character == '_' {
                    word.push(character);
                    continue;
                }
                if fresh && !word.is_empty() {
                    found.push(std::mem::take(&mut word));
                }
                word.clear();
                fresh = character == ',' && depth == 1 || (fresh && character.is_whitespace());
                if depth == 0 {
                    break;
                }
            }
        } else {
            found.push(rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect());
        }
    }
    found
}

#[test]
fn imports_are_found_in_every_spelling() {
    let text = "use crate::{\n    model::{Case, Kind},\n    stats::Summary,\n};\nuse crate::spec::Entry; crate::store::x()";
    assert_eq!(imports(text), ["model", "stats", "spec", "store"]);
}

#[test]
fn every_import_points_down() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    rust_files(&source, &mut files);
    let mut wrong = Vec::new();
    for file in &files {
        let relative = file.strip_prefix(&source).expect("below src");
        let first = relative.components().next().expect("a name").as_os_str().to_string_lossy();
        let module = first.trim_end_matches(".rs").to_owned();
        if matches!(module.as_str(), "lib" | "main") {
            continue;
        }
        let own = position(&module).unwrap_or_else(|| panic!("`{module}` has no layer; name it in LAYERS"));
        let text = fs::read_to_string(file).expect("UTF-8");
        for import in imports(&text).into_iter().filter(|import| *import != module) {
            match position(&import) {
                Some(other) if other < own => {}
                _ if REMAINING.contains(&(&*module, &*import)) => {}
                _ => wrong.push(format!("{}: `{module}` imports `{import}`", relative.display())),
            }
        }
    }
    assert!(files.len() > 40, "only {} files were read", files.len());
    assert!(wrong.is_empty(), "imports must point down:\n{}", wrong.join("\n"));
}
