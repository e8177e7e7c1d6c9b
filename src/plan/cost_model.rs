//! What cases are thought to cost before a run has learned better.

use crate::domain::Nanos;

/// What launches cost on a host, in seconds.
#[derive(Clone, Copy, Debug)]
pub struct InitialCosts {
    /// Building a case's tensors and freeing them.
    pub case: f64,
    /// One launch besides the kernel's own time.
    pub launch: f64,
    /// Launches per case, warm-up included.
    pub launches: u32,
}

impl InitialCosts {
    /// What is thought of a host of which nothing is known, for so many launches of each case.
    #[must_use]
    pub const fn new(launches: u32) -> Self {
        Self { case: 0.02, launch: 50e-6, launches }
    }

    /// Predicted seconds of a case whose kernel takes at least `fastest`.
    #[must_use]
    pub fn seconds(&self, fastest: Nanos) -> f64 {
        // Kernels reach about half of what the roofline allows.
        self.case + f64::from(self.launches) * (self.launch + 2.0 * fastest.seconds())
    }
}
