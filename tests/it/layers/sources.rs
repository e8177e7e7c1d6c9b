//! The source files of the crate and the imports between them, read by syn.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use syn::{Item, UseTree, Visibility, visit::Visit};

/// Names of modules from the root of the crate, such as `["sched", "queue"]`.
type ModulePath = Vec<String>;

/// One source file without its test code.
#[derive(Debug, Default)]
struct SourceFile {
    /// Names that the file defines.
    defined: BTreeSet<String>,
    /// Imported names and the paths that they stand for.
    imported: BTreeMap<String, ModulePath>,
    /// Paths of all private imports and of expressions, from the root of the crate.
    used: BTreeSet<ModulePath>,
    /// Paths of re-exports, of glob imports (without the `*`), and of paths in the arguments of macros. They count as
    /// imports of the module; which file of the module they belong to is unknown.
    indirect: BTreeSet<ModulePath>,
    /// Paths of expressions that begin with a name of this file.
    relative: BTreeSet<ModulePath>,
    /// Text of the module header.
    header: String,
}

/// All source files by module path.
#[derive(Debug)]
pub(super) struct Sources {
    files: BTreeMap<ModulePath, SourceFile>,
}

impl Sources {
    /// Reads every file below `src`, except test modules.
    pub(super) fn read() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut paths = Vec::new();
        rust_files(&root, &mut paths);
        let mut files = BTreeMap::new();
        for path in paths {
            let relative = path.strip_prefix(&root).expect("a path below src").with_extension("");
            let mut module: ModulePath =
                relative.iter().map(|part| part.to_string_lossy().into_owned()).collect();
            if matches!(module.last().map(String::as_str), Some("tests" | "main" | "lib")) {
                continue;
            }
            if module.last().is_some_and(|name| name == "mod") {
                module.pop();
            }
            let text = fs::read_to_string(&path).expect("a source file is UTF-8");
            files.insert(module.clone(), SourceFile::parse(&text, &module));
        }
        Self { files }
    }

    /// Number of files read.
    pub(super) fn len(&self) -> usize {
        self.files.len()
    }

    /// Names of the modules at the root of the crate.
    pub(super) fn modules(&self) -> BTreeSet<&str> {
        self.files.keys().map(|module| module[0].as_str()).collect()
    }

    /// Header of a module at the root of the crate.
    pub(super) fn header(&self, module: &str) -> &str {
        &self.files[&vec![module.to_owned()]].header
    }

    /// Modules that a module at the root imports, itself excluded.
    pub(super) fn imports_of_module(&self, module: &str) -> BTreeSet<&str> {
        let own = self.files.iter().filter(|(path, _)| path[0] == module);
        own.flat_map(|(_, file)| file.used.iter().chain(&file.indirect))
            .filter_map(|path| self.modules().get(path.first()?.as_str()).copied())
            .filter(|other| *other != module)
            .collect()
    }

    /// Files of the same module that each file imports from.
    pub(super) fn imports_within_modules(&self) -> BTreeMap<String, BTreeSet<String>> {
        let imports = self.files.iter().map(|(module, file)| {
            let targets = file.used.iter().filter_map(|path| self.defining_file(path, 0));
            let targets = targets.filter(|target| target[0] == module[0] && *target != *module);
            (module.join("::"), targets.map(|target| target.join("::")).collect())
        });
        imports.collect()
    }

    /// The file that defines the item at a path, following re-exports.
    fn defining_file(&self, path: &[String], depth: usize) -> Option<ModulePath> {
        let end = (1..=path.len()).rev().find(|end| self.files.contains_key(&path[..*end]))?;
        let (module, rest) = path.split_at(end);
        let Some(name) = rest.first() else { return Some(module.to_vec()) };
        let file = &self.files[module];
        match file.imported.get(name) {
            Some(target) if !file.defined.contains(name) && depth < 8 => {
                let longer: ModulePath = target.iter().chain(&rest[1..]).cloned().collect();
                self.defining_file(&longer, depth + 1)
            }
            _ => Some(module.to_vec()),
        }
    }
}

pub(crate) fn rust_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() {
            rust_files(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

impl SourceFile {
    fn parse(text: &str, module: &[String]) -> Self {
        let parsed = syn::parse_file(text).expect("a source file that compiles");
        let header = text.lines().map_while(|line| line.strip_prefix("//!"));
        let mut collector = PathCollector {
            module,
            file: Self { header: header.collect::<Vec<_>>().join("\n"), ..Self::default() },
        };
        for item in &parsed.items {
            collector.visit_item(item);
        }
        let PathCollector { mut file, .. } = collector;
        // A path that begins with an imported name continues the import.
        let continued: Vec<ModulePath> = file
            .relative
            .iter()
            .filter_map(|path| {
                let target = file.imported.get(path.first()?)?;
                Some(target.iter().chain(&path[1..]).cloned().collect())
            })
            .collect();
        file.used.extend(continued);
        file
    }
}

/// Collects the definitions and paths of one file.
struct PathCollector<'a> {
    module: &'a [String],
    file: SourceFile,
}

impl PathCollector<'_> {
    /// The path from the root of the crate, `None` for a path into another crate.
    fn resolve_path(&self, path: &[String]) -> Option<ModulePath> {
        match path.first()?.as_str() {
            "crate" => Some(path[1..].to_vec()),
            "self" => Some([self.module, &path[1..]].concat()),
            "super" => {
                let levels = path.iter().take_while(|name| *name == "super").count();
                let parent = self.module.len().checked_sub(levels)?;
                Some([&self.module[..parent], &path[levels..]].concat())
            }
            _ => None,
        }
    }

    fn add_import(&mut self, tree: &UseTree, before: &[String], is_reexport: bool) {
        match tree {
            UseTree::Path(path) => {
                let longer = [before, &[path.ident.to_string()]].concat();
                self.add_import(&path.tree, &longer, is_reexport);
            }
            UseTree::Group(group) => {
                for item in &group.items {
                    self.add_import(item, before, is_reexport);
                }
            }
            UseTree::Name(name) => self.add_name(before, &name.ident, &name.ident, is_reexport),
            UseTree::Rename(rename) => self.add_name(before, &rename.ident, &rename.rename, is_reexport),
            UseTree::Glob(_) => self.file.indirect.extend(self.resolve_path(before)),
        }
    }

    fn add_name(&mut self, before: &[String], name: &syn::Ident, alias: &syn::Ident, is_reexport: bool) {
        let mut path = before.to_vec();
        if name != "self" {
            path.push(name.to_string());
        }
        let is_child = path.first().is_some_and(|first| self.file.defined.contains(first));
        let target = match self.resolve_path(&path) {
            Some(target) => target,
            // `use child::Item` in the file that declares `mod child`.
            None if is_child => [self.module, &path].concat(),
            None => return,
        };
        let imports = if is_reexport { &mut self.file.indirect } else { &mut self.file.used };
        imports.insert(target.clone());
        let alias =
            if alias == "self" { target.last().cloned().unwrap_or_default() } else { alias.to_string() };
        self.file.imported.insert(alias, target);
    }
}

impl<'ast> Visit<'ast> for PathCollector<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        let (attributes, name) = match item {
            Item::Const(item) => (&item.attrs, Some(&item.ident)),
            Item::Enum(item) => (&item.attrs, Some(&item.ident)),
            Item::Fn(item) => (&item.attrs, Some(&item.sig.ident)),
            Item::Macro(item) => (&item.attrs, item.ident.as_ref()),
            Item::Mod(item) => (&item.attrs, item.content.is_some().then_some(&item.ident)),
            Item::Static(item) => (&item.attrs, Some(&item.ident)),
            Item::Struct(item) => (&item.attrs, Some(&item.ident)),
            Item::Trait(item) => (&item.attrs, Some(&item.ident)),
            Item::Type(item) => (&item.attrs, Some(&item.ident)),
            Item::Use(item) => (&item.attrs, None),
            Item::Impl(item) => (&item.attrs, None),
            _ => return,
        };
        if attributes.iter().any(is_test_only) {
            return;
        }
        self.file.defined.extend(name.map(ToString::to_string));
        match item {
            Item::Use(item) => {
                let is_public = !matches!(item.vis, Visibility::Inherited);
                self.add_import(&item.tree, &[], is_public);
            }
            // Paths of an inline module are relative to that module; its imports are rare and of the crate.
            _ => syn::visit::visit_item(self, item),
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: ModulePath = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if names.len() > 1 {
            match self.resolve_path(&names) {
                Some(names) => self.file.used.insert(names),
                None => self.file.relative.insert(names),
            };
        }
        syn::visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        let tokens = call.tokens.to_string();
        let name = |rest: &str| -> String {
            rest.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
        };
        self.file.indirect.extend(tokens.split("crate ::").skip(1).map(|rest| vec![name(rest)]));
        syn::visit::visit_macro(self, call);
    }
}

fn is_test_only(attribute: &syn::Attribute) -> bool {
    attribute.path().is_ident("cfg")
        && attribute.parse_args::<syn::Path>().is_ok_and(|condition| condition.is_ident("test"))
}

/// Groups of files that import each other in a circle, the shortest description of each.
pub(super) fn cycles(imports: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let mut found = Vec::new();
    let mut reachable: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for start in imports.keys() {
        let mut seen = BTreeSet::new();
        let mut open: Vec<&str> = imports[start].iter().map(String::as_str).collect();
        while let Some(next) = open.pop() {
            if seen.insert(next) {
                open.extend(imports.get(next).into_iter().flatten().map(String::as_str));
            }
        }
        reachable.insert(start, seen);
    }
    let mut done: BTreeSet<&str> = BTreeSet::new();
    for (file, targets) in &reachable {
        if !targets.contains(file) || done.contains(file) {
            continue;
        }
        let circle: Vec<&str> =
            targets.iter().filter(|other| reachable[*other].contains(file)).copied().collect();
        done.extend(circle.iter().copied());
        found.push(circle.join(", "));
    }
    found
}

#[test]
fn imports_are_found_in_every_spelling() {
    let text = "use crate::{domain::{Case, DataKind}, stats::Summary};\n\
        pub(crate) use crate::report::print_note;\n\
        use crate::table::*;\n\
        fn f() { let a = crate::ledger::open(); println!(\"{}\", crate::plan::X); super::config::load(); }\n\
        #[cfg(test)]\nmod tests { use crate::cli::main; }";
    let module = vec!["engine".to_owned()];
    let files = BTreeMap::from([(module.clone(), SourceFile::parse(text, &module))]);
    let file = &files[&module];
    let found: BTreeSet<&str> = file.used.iter().chain(&file.indirect).map(|path| path[0].as_str()).collect();
    assert_eq!(found, BTreeSet::from(["config", "domain", "ledger", "plan", "report", "stats", "table"]));
}
