//! Initial cost model of cases, before a run has measured any.

use crate::domain::Nanos;

/// Costs of launches on a host, in seconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InitialCosts {
    /// Construction and release of the tensors of a case.
    pub case: f64,
    /// One launch, without the device time of the kernel.
    pub launch: f64,
    /// Launches per case, warm-up included.
    pub launches: u32,
}

impl InitialCosts {
    /// Creates the default costs for this number of launches per case.
    pub(crate) const fn new(launches: u32) -> Self {
        Self { case: 0.02, launch: 50e-6, launches }
    }

    /// Returns the predicted seconds of a case whose kernel takes at least `fastest`.
    pub(crate) fn case_seconds(&self, fastest: Nanos) -> f64 {
        // Kernels take about twice their roofline bound.
        self.case + f64::from(self.launches) * (self.launch + 2.0 * fastest.seconds())
    }
}
