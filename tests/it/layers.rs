//! The folders of `src` import only from folders above them in docs/design/README.md.

use std::{collections::BTreeSet, fs, path::Path};

const FOLDERS: [&str; 9] =
    ["base", "kernel", "profile", "database", "cases", "measure", "answer", "show", "cli"];
/// What the stand-ins may import, so that they repeat no assumption of the engine.
const OF_REHEARSAL: [&str; 3] = ["base", "kernel", "profile"];

/// Files that still import from below. None may be added.
const STILL_WRONG: [&str; 1] = ["measure/run_options.rs imports rehearsal"];

#[test]
fn folders_import_only_from_folders_above_them() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut wrong = BTreeSet::new();
    for folder in FOLDERS.iter().copied().chain(["rehearsal"]) {
        let place = FOLDERS.iter().position(|name| *name == folder);
        let allowed = place.map_or(&OF_REHEARSAL[..], |place| &FOLDERS[..place]);
        visit(&source.join(folder), &mut |file, text| {
            for imported in imported_folders(text) {
                // Only the command line starts the stand-ins.
                let is_allowed = imported == folder
                    || allowed.contains(&imported.as_str())
                    || (folder == "cli" && imported == "rehearsal");
                if !is_allowed {
                    wrong.insert(format!(
                        "{} imports {imported}",
                        file.strip_prefix(&source).expect("below").display()
                    ));
                }
            }
        });
    }
    let known = STILL_WRONG.map(str::to_owned);
    assert_eq!(wrong, BTreeSet::from(known));
}

/// Calls `each` with the files below a folder and their text up to the tests.
fn visit(folder: &Path, each: &mut impl FnMut(&Path, &str)) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "tests") {
                visit(&path, each);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs")
            && path.file_name().is_some_and(|name| name != "tests.rs")
        {
            let text = fs::read_to_string(&path).expect("UTF-8");
            each(&path, text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default());
        }
    }
}

/// The folders after `crate::` in a text, also in braces.
fn imported_folders(text: &str) -> BTreeSet<String> {
    let is_code = |line: &&str| !line.trim_start().starts_with("//");
    let code: Vec<&str> = text.lines().filter(is_code).collect();
    let code = code.join("\n");
    let mut found = BTreeSet::new();
    for (_, rest) in code.match_indices("crate::").map(|(start, name)| (start, &code[start + name.len()..])) {
        match rest.strip_prefix('{') {
            Some(group) => found.extend(items_of_group(group).iter().filter_map(|item| first_segment(item))),
            None => found.extend(first_segment(rest)),
        }
    }
    found
}

/// The parts of `a::b, c::{d, e}}` that are separated by the commas outside of inner braces.
fn items_of_group(text: &str) -> Vec<String> {
    let (mut items, mut depth) = (vec![String::new()], 0);
    for character in text.chars() {
        match character {
            '}' if depth == 0 => break,
            ',' if depth == 0 => items.push(String::new()),
            _ => items.last_mut().expect("there is one").push(character),
        }
        depth += i32::from(character == '{') - i32::from(character == '}');
    }
    items
}

fn first_segment(path: &str) -> Option<String> {
    let (name, _) = path.trim_start().split_once("::")?;
    name.chars().all(|character| character.is_alphanumeric() || character == '_').then(|| name.to_owned())
}
