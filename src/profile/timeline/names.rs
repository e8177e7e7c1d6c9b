//! Texts of a profile, each stored once: a run of a million operators has a few hundred names.

use indexmap::IndexSet;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NameId(u32);

impl NameId {
    /// The empty text, which stands for a name that is not recorded.
    pub(crate) const EMPTY: Self = Self(0);

    pub(crate) fn is_recorded(self) -> bool {
        self != Self::EMPTY
    }
}

#[derive(Debug)]
pub(crate) struct NameTable(IndexSet<Box<str>, foldhash::fast::RandomState>);

impl Default for NameTable {
    fn default() -> Self {
        let mut names = IndexSet::default();
        names.insert(Box::from(""));
        Self(names)
    }
}

impl NameTable {
    pub(crate) fn insert(&mut self, text: &str) -> NameId {
        if matches!(text, "N/A" | "NA") {
            return NameId::EMPTY;
        }
        let place = self.0.get_index_of(text).unwrap_or_else(|| self.0.insert_full(text.into()).0);
        // Beyond four billion texts, which no memory holds, names would be missing.
        u32::try_from(place).map_or(NameId::EMPTY, NameId)
    }

    pub(crate) fn insert_bytes(&mut self, text: &[u8]) -> NameId {
        match std::str::from_utf8(text) {
            Ok(text) => self.insert(text),
            Err(_) => self.insert(&String::from_utf8_lossy(text)),
        }
    }

    pub(crate) fn text(&self, id: NameId) -> &str {
        self.0.get_index(id.0 as usize).map_or("", |text| text)
    }
}
