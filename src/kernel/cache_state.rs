//! State of the device's cache before a launch.

use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, IntoStaticStr, VariantArray};

/// State of the cache before each launch of a collection. Samples of different states are never pooled or compared.
#[derive(Serialize, Deserialize, Display, EnumString, IntoStaticStr, VariantArray)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CacheState {
    /// The launches before used the same tensors.
    #[default]
    Hot,
    /// A kernel that moves more than the cache holds precedes each launch.
    Cold,
}

impl CacheState {
    pub(crate) const ALL: &'static [Self] = <Self as VariantArray>::VARIANTS;

    pub(crate) fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns true for the state of runs without the option, which their options in the ledger do not name.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
    pub(crate) fn is_hot(&self) -> bool {
        *self == Self::Hot
    }
}
