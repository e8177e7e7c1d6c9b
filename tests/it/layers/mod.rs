//! Checks the structure of `src`: imports point down, headers list them, and no files import each other in a circle.

mod sources;

pub(crate) use sources::rust_files;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use sources::{Sources, cycles};

/// The modules of each layer, lowest first, as in `docs/design/README.md`. A module imports from lower layers, and
/// from modules named before it in its own layer.
const LAYERS: [&[&str]; 7] = [
    &["exit", "stats", "domain"],
    &["files", "table", "config", "events"],
    &["process", "catalogue", "case_filter", "llm", "profile"],
    &[
        "render",
        "ledger",
        "database",
        "op_mapping",
        "op_query",
        "lookup",
        "workload",
        "timeline",
        "grid",
        "fault_plan",
    ],
    &["device", "collective", "plan", "sched", "verify", "evidence", "coverage", "adaptive", "nodes"],
    &[
        "simulated_memory",
        "rehearsal",
        "engine",
        "vendor_check",
        "report",
        "case_report",
        "coverage_report",
        "night_report",
        "selftest",
        "session",
        "run_analysis",
        "collect",
        "fleet",
    ],
    &["cli"],
];

static SOURCES: LazyLock<Sources> = LazyLock::new(Sources::read);

/// Modules in the order of imports.
fn order() -> Vec<&'static str> {
    LAYERS.concat()
}

#[test]
fn every_module_has_a_layer() {
    let expected: BTreeSet<&str> = order().into_iter().collect();
    assert_eq!(SOURCES.modules(), expected, "name each module of src in LAYERS, and no other");
}

#[test]
fn imports_point_down() {
    let sources = &*SOURCES;
    let order = order();
    let position = |module: &str| order.iter().position(|name| *name == module);
    let mut wrong = Vec::new();
    for module in sources.modules() {
        for import in sources.imports_of_module(module) {
            if position(import) >= position(module) {
                wrong.push(format!("`{module}` imports `{import}`"));
            }
        }
    }
    assert!(wrong.is_empty(), "imports must point down:\n{}", wrong.join("\n"));
}

/// Each header has the line `Layer N: imports ...` with the modules that are really imported.
#[test]
fn headers_list_the_imports() {
    let sources = &*SOURCES;
    let mut wrong = Vec::new();
    for (layer, modules) in LAYERS.iter().enumerate() {
        for module in *modules {
            let imports = sources.imports_of_module(module);
            let listed: Vec<String> = order()
                .iter()
                .filter(|name| imports.contains(*name))
                .map(|name| format!("`{name}`"))
                .collect();
            let expected = match listed.as_slice() {
                [] => format!("Layer {layer}: imports no module of this crate."),
                [one] => format!("Layer {layer}: imports {one}."),
                [rest @ .., last] => format!("Layer {layer}: imports {} and {last}.", rest.join(", ")),
            };
            let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
            if !words(sources.header(module)).contains(&words(&expected)) {
                wrong.push(format!("src/{module}: the header lacks: {expected}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    let sources = &*SOURCES;
    assert!(sources.len() >= 250, "only {} files of src were read", sources.len());
    let circles = cycles(&sources.imports_within_modules());
    assert!(circles.is_empty(), "files in a circle of imports:\n{}", circles.join("\n"));
}

#[test]
fn a_circle_is_found_through_any_number_of_files() {
    let imports = |pairs: &[(&str, &str)]| {
        let mut map: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (from, to) in pairs {
            map.entry((*from).to_owned()).or_default().insert((*to).to_owned());
            map.entry((*to).to_owned()).or_default();
        }
        map
    };
    assert!(cycles(&imports(&[("a", "b"), ("b", "c"), ("a", "c")])).is_empty());
    assert_eq!(cycles(&imports(&[("a", "b"), ("b", "c"), ("c", "a"), ("d", "a")])), ["a, b, c"]);
    assert_eq!(cycles(&imports(&[("a", "b"), ("b", "a"), ("x", "y"), ("y", "x")])), ["a, b", "x, y"]);
}
