//! Answers to the questions of performance models: the latency of an operator or a kernel from the rows of a database.
//!
//! `query` and `query_fields` have the questions, `answer` the answers, `rules` the differences between the shapes of a
//! framework and those that the profiler records. `engine` chooses the way of looking an operator up by `op_mapping.yaml`;
//! each way is a file: `compute`, `elementwise`, `attention`, `collective`, `moe`, `composite`, `decomposer`, `cache_rows`.

pub(super) mod answer;
pub(super) mod attention;
mod axis_tables;
mod cache_rows;
pub(super) mod collective;
mod composite;
pub(super) mod compute;
mod decomposer;
pub(super) mod elementwise;
pub(super) mod engine;
mod index;
mod interpolation;
pub(super) mod kernel_index;
pub(super) mod kernel_rows;
pub(super) mod match_rows;
mod moe;
pub(super) mod query;
mod query_fields;
pub(super) mod row_answers;
pub(super) mod rules;
pub(super) mod slot_dims;
#[cfg(test)]
pub(super) mod tests;

pub use answer::{AnswerSource, LookupAnswer};
pub(crate) use answer::{DispatchOverhead, LatencyColumn, MissReason, NearestRow, PartAnswer, UsedRow};
pub(crate) use attention::{
    layout::KeyOrder,
    work::{AttentionFamily, AttentionWork},
};
pub(crate) use composite::{CompositeStep, composite_steps};
pub use engine::LookupEngine;
pub(crate) use engine::UsualRules;
pub use index::LookupError;
pub use query::{AttentionParameters, OpQuery, QueryTensor};
pub(crate) use query::{BatchLengths, BatchPhase};
pub(crate) use query_fields::{
    ListField, QueryFields, ShapeField, check_degrees, check_kv_length, parse_dims, parse_dtype,
    parse_known_dtype, parse_length, parse_phase, parse_shapes,
};
pub(crate) use rules::{KernelTraits, Padding, RuleKind};
