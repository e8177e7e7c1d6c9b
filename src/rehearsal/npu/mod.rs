//! A simulated NPU: compares each call that the stand-in of torch forwards with the manifest's case, records
//! launches as a profiler would, and advances a clock of its own.
//!
//! It computes no kernel. A tensor is a handle with a shape, a type and known properties of its values; collectives
//! exchange the values of messages.

mod api_args;
mod arguments;
mod builtin;
mod collective_calls;
mod compare_call;
mod dispatch_call;
mod factories;
mod fault_injector;
mod free_calls;
mod graph_calls;
mod kernel_choice;
mod launch_log;
mod server;
mod session;
#[cfg(test)]
mod tests;
mod torch_npu_environment;

pub(super) use fault_injector::ScriptOutcome;
pub(super) use launch_log::{LaunchedOperation, LoggedLaunch, TaskEngine};
pub(super) use server::{ApiServer, ServerError};
pub(super) use session::ApiSession;

use crate::rehearsal::simulated_memory::{
    cache_model, element_values, group_link, process_group, protocol, tensors,
};
