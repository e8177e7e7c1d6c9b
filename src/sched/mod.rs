//! The scheduler: a pure state machine that is told what happened and answers what to do.
//!
//! Layer 3: imports `model` only. It has no clock, no threads and does no IO; the engine carries its actions out.
//! Cases are known by their index in the plan, collections by their number, moments by the seconds since the run
//! began. Nothing depends on the order of a hash map: the same events at the same moments give the same actions.
//!
//! A case is at any moment in one place: it waits ([`queue`]), it is tried alone, it waits for a search
//! ([`bisect`]), it runs, or it has its verdict.

mod bisect;
mod costs;
mod device;
mod forecast;
mod on_finished;
mod queue;
mod simulate;
mod start;
mod state;
mod types;

use bisect::Bisection;
use costs::LearnedCosts;
use device::DeviceRecord;
pub use forecast::RunForecast;
use queue::{CaseQueue, CollectionBudget};
pub use simulate::{SimulatedHost, simulate};
pub use state::SchedulerState;
pub use types::{
    CaseResult, CollectionExit, CollectionFinished, PriorCosts, SchedAction, SchedCase, SchedEvent,
    SchedLimits, Seconds, StartCollection,
};

#[cfg(test)]
mod tests;
