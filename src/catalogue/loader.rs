//! The catalogue: every kernel that can be replayed.

use std::collections::{BTreeMap, BTreeSet};

use super::{CatalogueEntry, DeclaredArgument};
use crate::{
    config::{AssetFiles, YamlError, device_profile::from_assets, yaml},
    domain::KernelName,
};

/// All entries, by kernel and by the other names that the profiler gives it.
#[derive(Clone, Debug)]
pub struct Catalogue {
    entries: BTreeMap<String, CatalogueEntry>,
    aliases: BTreeMap<String, String>,
}

impl Catalogue {
    /// Loads and checks every entry.
    ///
    /// # Errors
    /// [`YamlError`] for the first file that is wrong, or where two entries claim one name.
    pub fn load(assets: &AssetFiles) -> Result<Self, YamlError> {
        let mut catalogue = Self { entries: BTreeMap::new(), aliases: BTreeMap::new() };
        for asset in assets.catalogue().map_err(|error| from_assets(&error))?.into_values() {
            let entry = CatalogueEntry::parse(&asset.path, &asset.text)?;
            for name in entry.names() {
                if let Some(other) =
                    catalogue.aliases.insert(name.to_owned(), entry.kernel.as_str().to_owned())
                {
                    let problem = format!("`{name}` is already a name of `{other}`");
                    let hint =
                        "a kernel's name belongs to one entry; remove it from the other's `also_named:`";
                    let index = entry.also_named.iter().position(|other| other == name);
                    let index = index.map(|index| index.to_string());
                    let path = index.as_deref().map_or(vec!["kernel"], |index| vec!["also_named", index]);
                    let position = yaml::find_value(&asset.text, &path);
                    return Err(YamlError::at(&asset.path, position, &problem, hint));
                }
            }
            catalogue.entries.insert(entry.kernel.as_str().to_owned(), entry);
        }
        Ok(catalogue)
    }

    /// The entry that replays a kernel.
    #[must_use]
    pub fn entry(&self, kernel: &KernelName) -> Option<&CatalogueEntry> {
        self.entries.get(self.aliases.get(kernel.as_str())?)
    }

    /// Every name of a kernel that has an entry, in the order of names.
    pub fn names(&self) -> impl Iterator<Item = &str> + Clone {
        self.aliases.keys().map(String::as_str)
    }

    /// Every entry, by name.
    pub fn entries(&self) -> impl Iterator<Item = &CatalogueEntry> {
        self.entries.values()
    }

    /// The columns of rows that entries read besides shapes: what arguments are taken from, and what decides between
    /// forms.
    #[must_use]
    pub fn attribute_columns(&self) -> BTreeSet<String> {
        let forms = self.entries().flat_map(|entry| &entry.forms);
        let columns = forms.flat_map(|form| {
            let taken = form.arguments.values().filter_map(|argument| match argument {
                DeclaredArgument::Attribute(column) => Some(column),
                _ => None,
            });
            form.with.keys().chain(taken)
        });
        columns.cloned().collect()
    }

    /// Every entry that calls that Python function.
    pub fn callers<'a>(&'a self, api: &'a str) -> impl Iterator<Item = &'a CatalogueEntry> {
        self.entries().filter(move |entry| entry.api == api)
    }
}
