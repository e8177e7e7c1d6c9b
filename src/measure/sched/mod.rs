//! The scheduler: a pure state machine from events to actions.
//!
//! A case is in exactly one state: waiting ([`queue`]), queued to run alone, waiting for a bisection ([`bisect`]),
//! running, or concluded.

mod bisect;
mod costs;
mod device;
mod on_finished;
mod queue;
mod rounds;
mod simulate;
mod start;
mod state;
mod types;

use bisect::Bisection;
use costs::LearnedCosts;
use device::DeviceRecord;
pub(crate) use device::KernelCounts;
use queue::{CaseQueue, CollectionBudget};
pub use simulate::{SimulatedHost, simulate};
pub use state::{RunForecast, SchedulerState};
use types::GangKey;
pub use types::{
    CaseResult, CollectionExit, CollectionFinished, SchedAction, SchedCase, SchedLimits, Seconds,
    StartCollection,
};
pub(crate) use types::{PriorCosts, SchedEvent};

#[cfg(test)]
mod tests;
