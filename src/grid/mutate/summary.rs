//! What there is to tell of mutants.

use std::collections::BTreeMap;

use super::{MutationCount, SelectedMutants};
use crate::{
    domain::KernelName,
    grid::{RejectCount, RejectReason},
};

/// What became of the mutants of a kernel, without the cases that they were made of.
#[derive(Clone, Debug)]
pub struct MutationSummary {
    /// The kernel that they are of.
    pub kernel: KernelName,
    /// Cases that they were made of, those that cannot be read included.
    pub sources: usize,
    /// Those that cannot be read.
    pub unread: usize,
    /// What the catalogue says of the first of those.
    pub unread_example: Option<String>,
    /// All mutants.
    pub candidates: u64,
    /// Those that become rows.
    pub rows: usize,
    /// Those that do not, by reason.
    pub refused: BTreeMap<RejectReason, RejectCount>,
    /// By mutation.
    pub mutations: Vec<(String, MutationCount)>,
    /// Seconds that one launch of each row takes at the least, where somebody computed it.
    pub fastest: Option<f64>,
}

impl SelectedMutants<'_> {
    /// What there is to tell; with the time of the rows where that is wanted, which takes as long as making them.
    #[must_use]
    pub fn summary(&self, is_timed: bool) -> MutationSummary {
        MutationSummary {
            kernel: self.kernel.clone(),
            sources: self.sources.len(),
            unread: self.unread,
            unread_example: self.unread_example.clone(),
            candidates: self.candidates,
            rows: self.rows(),
            refused: self.refused.clone(),
            mutations: self.mutations().map(|(name, tried)| (name.to_owned(), tried)).collect(),
            fastest: is_timed.then(|| self.fastest()),
        }
    }
}
