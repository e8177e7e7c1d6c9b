//! A pretend NPU: judges each call that the stand-in of torch forwards, records what a profiler would
//! have recorded, and lets a clock of its own run.
//!
//! It computes nothing. A tensor is a handle with a shape, a type and what is known of its values;
//! the catalogue says what a call takes and gives.

mod arguments;
mod builtin;
mod course;
mod factories;
mod forms;
mod group;
mod judge;
mod memory;
mod server;
mod session;
mod tape;
#[cfg(test)]
mod tests;
mod wire;

pub(super) use course::Outcome;
pub(super) use server::{Server, ServerError};
pub(super) use session::Session;
#[cfg(test)]
pub(super) use tape::Operation;
pub(super) use tape::{Launch, Task};
