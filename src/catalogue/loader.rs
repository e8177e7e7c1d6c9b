//! Loads the catalogue: the entries of all kernels that can be replayed.

use std::collections::{BTreeMap, BTreeSet};

use super::{CatalogueEntry, DeclaredArgument};
use crate::{
    config::{AssetFiles, YamlError, device_profile::from_assets, yaml},
    domain::KernelName,
};

/// All entries, by kernel and by the other names of the kernel in profiles.
#[derive(Clone, Debug)]
pub struct Catalogue {
    entries: BTreeMap<String, CatalogueEntry>,
    aliases: BTreeMap<String, String>,
}

impl Catalogue {
    /// Loads and checks every entry.
    ///
    /// # Errors
    /// [`YamlError`] for the first invalid file, or for a name of two entries.
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

    /// Returns the entry that replays a kernel.
    #[must_use]
    pub fn entry(&self, kernel: &KernelName) -> Option<&CatalogueEntry> {
        self.entries.get(self.aliases.get(kernel.as_str())?)
    }

    /// Returns all names of kernels that have an entry, sorted.
    pub fn kernel_names(&self) -> impl Iterator<Item = &str> + Clone {
        self.aliases.keys().map(String::as_str)
    }

    /// Returns all entries, sorted by kernel.
    pub fn entries(&self) -> impl Iterator<Item = &CatalogueEntry> {
        self.entries.values()
    }

    /// Returns the columns that entries read besides shapes: sources of arguments, and conditions of forms.
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

    /// Returns the entries that call a Python function.
    pub fn entries_calling<'a>(&'a self, api: &'a str) -> impl Iterator<Item = &'a CatalogueEntry> {
        self.entries().filter(move |entry| entry.api == api)
    }
}
