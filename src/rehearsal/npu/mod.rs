//! A pretend NPU: judges each call that the stand-in of torch forwards, records what a profiler would
//! have recorded, and lets a clock of its own run.
//!
//! It computes nothing. A tensor is a handle with a shape, a type and what is known of its values;
//! the catalogue says what a call takes and gives.

mod arguments;
mod builtin;
mod compare_call;
mod factories;
mod fault_injector;
mod launch_log;
mod process_group;
mod protocol;
mod server;
mod session;
mod tensors;
#[cfg(test)]
mod tests;

pub(super) use fault_injector::ScriptOutcome;
#[cfg(test)]
pub(super) use launch_log::LaunchedOperation;
pub(super) use launch_log::{LoggedLaunch, TaskEngine};
pub(super) use server::{ApiServer, ServerError};
pub(super) use session::ApiSession;
