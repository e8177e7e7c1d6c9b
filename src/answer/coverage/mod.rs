//! Coverage: the answers of a database to the questions of workloads, metrics over them, and the gaps with what would
//! close each.

mod answers;
mod case_builder;
mod density;
mod estimate;
mod fill_cases;
mod gaps;
mod in_model;

pub use self::{answers::*, gaps::*};
pub(crate) use self::{density::*, estimate::*, fill_cases::*, in_model::*};
