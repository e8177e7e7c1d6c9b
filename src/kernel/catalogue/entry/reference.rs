//! An entry that is parsed when it is needed first. Its names are known before.

use std::{collections::BTreeSet, sync::OnceLock};

use serde::Deserialize;

use super::{CatalogueEntry, build::parse_kernel};
use crate::{
    base::{assets::AssetFile, yaml, yaml::YamlError},
    kernel::{Case, KernelName},
};

/// The file and the names of an entry, and the entry once it has been parsed.
#[derive(Clone, Debug)]
pub(crate) struct EntryReference {
    pub(crate) kernel: KernelName,
    pub(crate) also_named: Vec<String>,
    /// The kernel whose entry defines this one; `None` for an entry with a definition of its own.
    pub(crate) same_as: Option<String>,
    pub(crate) file: AssetFile,
    parsed: OnceLock<CatalogueEntry>,
}

/// The names of an entry. A file with `same_as:` has no other keys.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct EntryNames {
    kernel: String,
    same_as: Option<String>,
    #[serde(default)]
    also_named: Vec<String>,
}

impl EntryReference {
    /// Reads the names of an entry. A file of the user is parsed and checked here; an embedded one, which tests have
    /// checked, when it is needed.
    pub(crate) fn read(file: AssetFile) -> Result<Self, YamlError> {
        let is_shared = file.text.lines().any(|line| line.starts_with("same_as:"));
        if !is_shared && !file.is_built_in {
            let entry = CatalogueEntry::parse(&file.path, &file.text)?;
            let (kernel, also_named) = (entry.kernel.clone(), entry.also_named.clone());
            return Ok(Self { kernel, also_named, same_as: None, file, parsed: OnceLock::from(entry) });
        }
        let names: EntryNames = if is_shared {
            yaml::parse(&file.path, &file.text)?
        } else {
            yaml::parse(&file.path, &lines_of_names(&file.text))?
        };
        let kernel = parse_kernel(&names.kernel, &file.path, &file.text)?;
        let EntryNames { same_as, also_named, .. } = names;
        Ok(Self { kernel, also_named, same_as, file, parsed: OnceLock::new() })
    }

    /// Returns the kernel whose entry has the definition: itself, or that of `same_as:`.
    pub(crate) fn definition(&self) -> &str {
        self.same_as.as_deref().unwrap_or(self.kernel.as_str())
    }

    /// Returns the names under which the profiler may show the kernel.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.kernel.as_str()).chain(self.also_named.iter().map(String::as_str))
    }

    /// Returns the entry, parsed at the first call. `definition` is the entry of `same_as:`, where there is one.
    pub(crate) fn entry<'a>(&'a self, definition: Option<&'a Self>) -> &'a CatalogueEntry {
        self.parsed.get_or_init(|| match definition {
            Some(definition) => self.with_definition(definition.entry(None)),
            None => CatalogueEntry::parse(&self.file.path, &self.file.text)
                .unwrap_or_else(|error| panic!("an embedded entry is invalid: {error}")),
        })
    }

    /// Returns the kernels to whose definitions the file refers, with the path of each key: in `same_as:`, and in the forms
    /// of an entry that has been parsed, as those of the user are.
    pub(crate) fn referenced_definitions(&self) -> Vec<(&str, Vec<String>)> {
        let shared = self.same_as.iter().map(|kernel| (kernel.as_str(), vec!["same_as".to_owned()]));
        let forms = self.parsed.get().map(|entry| entry.forms.as_slice()).unwrap_or_default();
        // A list of tensors makes a form several times, with one name.
        let mut names = BTreeSet::new();
        let of_forms = forms.iter().filter_map(|form| {
            names.insert(form.rule.name.as_str());
            let key = vec!["forms".to_owned(), (names.len() - 1).to_string(), "runs_as".to_owned()];
            Some((form.runs_as.as_ref()?.as_str(), key))
        });
        shared.chain(of_forms).collect()
    }

    #[cfg(test)]
    pub(crate) fn is_parsed(&self) -> bool {
        self.parsed.get().is_some()
    }

    fn with_definition(&self, definition: &CatalogueEntry) -> CatalogueEntry {
        let example = definition.example.clone();
        CatalogueEntry {
            kernel: self.kernel.clone(),
            also_named: self.also_named.clone(),
            defined_by: Some(definition.kernel.clone()),
            example: example.map(|example| Case { kernel: self.kernel.clone(), ..example }),
            file: self.file.path.clone(),
            ..definition.clone()
        }
    }
}

/// Returns the lines of the keys `kernel:` and `also_named:`, with those of their values.
fn lines_of_names(text: &str) -> String {
    let mut is_name = false;
    let of_names = text.split_inclusive('\n').filter(|line| {
        if !line.starts_with([' ', '-', '#']) {
            is_name = ["kernel:", "also_named:"].iter().any(|key| line.starts_with(key));
        }
        is_name
    });
    of_names.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::assets::AssetFiles;

    #[test]
    fn embedded_entries_have_the_names_that_are_read_before_they_are_parsed() {
        let files = AssetFiles::embedded().catalogue().expect("embedded");
        let entries = files.into_values().filter(|file| !file.text.contains("\nnot_launchable:"));
        for file in entries {
            let reference = EntryReference::read(file).expect("valid");
            if reference.same_as.is_none() {
                let entry = CatalogueEntry::parse(&reference.file.path, &reference.file.text).expect("valid");
                assert_eq!((&reference.kernel, &reference.also_named), (&entry.kernel, &entry.also_named));
            }
        }
    }

    #[test]
    fn names_have_the_lines_of_their_keys() {
        let text = "kernel: A\nsummary: x\n  kernel: no\nalso_named:\n  - B\n# and\n- C\nunit: cube\n";
        assert_eq!(lines_of_names(text), "kernel: A\nalso_named:\n  - B\n# and\n- C\n");
    }
}
