//! Existing cases of a kernel, and numbers of rows by origin.

use std::{
    collections::{BTreeMap, HashSet},
    hash::BuildHasher as _,
};

use foldhash::quality::FixedState;

use crate::kernel::Case;

/// Existing cases of a kernel, and the number of rows that each space or mutation added earlier. Signatures are hashes
/// of 64 bits: among a million cases, two share one with a probability of 1 to 30 million.
#[derive(Clone, Debug, Default)]
pub struct ExistingCases {
    signatures: HashSet<u64, FixedState>,
    /// By origin of a space or a mutation.
    pub(crate) rows: BTreeMap<String, usize>,
}

impl ExistingCases {
    /// No cases, but numbers of rows by origin of a space or a mutation.
    pub fn with_rows(rows: BTreeMap<String, usize>) -> Self {
        Self { rows, ..Self::default() }
    }

    /// Adds a case; returns true if it is new.
    pub fn insert(&mut self, case: &Case) -> bool {
        self.signatures.insert(Self::key(case))
    }

    pub fn contains(&self, case: &Case) -> bool {
        self.signatures.contains(&Self::key(case))
    }

    fn key(case: &Case) -> u64 {
        FixedState::with_seed(0).hash_one(case.signature())
    }
}
