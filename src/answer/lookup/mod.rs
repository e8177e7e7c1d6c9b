//! Answers to the questions of performance models: the latency of an operator or a kernel from the rows of a database.
//!
//! `query` and `query_fields` have the questions, `answer` the answers, `rules` the differences between the shapes of a
//! framework and those that the profiler records. `engine` chooses the way of looking an operator up by `op_mapping.yaml`;
//! each way is a file: `compute`, `attention`, `collective`, `composite`, `decomposer`, `cache_rows`.

mod answer;
mod attention;
mod cache_rows;
mod collective;
mod composite;
mod compute;
mod decomposer;
mod engine;
mod interpolation;
mod kernel_rows;
mod match_rows;
mod query;
mod query_fields;
mod rules;
#[cfg(test)]
pub(super) mod tests;

pub use self::{answer::*, engine::*, query::*, rules::*};
pub(crate) use self::{
    attention::*, cache_rows::*, collective::*, composite::*, compute::*, interpolation::*, kernel_rows::*,
    match_rows::*, query_fields::*,
};
