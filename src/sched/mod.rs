//! The scheduler: a pure state machine that is told what happened and answers what to do.
//!
//! Layer 3: imports `model` only. It has no clock, no threads and does no IO; the engine carries its actions out.
//! Cases are known by their index in the plan, collections by their number, moments by the seconds since the run
//! began. Nothing depends on the order of a hash map: the same events at the same moments give the same actions.
//!
//! A case is at any moment in one place: it waits ([`ready`]), it is tried alone, it waits for a search
//! ([`inquiry`]), it runs, or it has its verdict.

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

use bisect::Inquiry;
use costs::Costs;
use device::Device;
use queue::{Ready, Room};

pub use forecast::Forecast;
pub use simulate::{Host, simulate};
pub use state::State;
pub use types::{Action, CaseEnd, End, Ended, Event, Job, Limits, Prior, Seconds, Start};

#[cfg(test)]
mod tests;
