//! Workloads: the kernels and operators that a model runs, each with its number of invocations and their time, from
//! profiles, inventories and traces of simulators, plain lists, or the sizes of a language model.

mod decoder_step;
mod forward_pass;
mod load;
mod profile_records;
mod question;
mod simulator;

pub use self::{decoder_step::*, forward_pass::*, load::*, question::*, simulator::*};
