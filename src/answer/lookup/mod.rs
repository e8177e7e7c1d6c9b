//! Answers to the questions of performance models: the latency of an operator or a kernel from the rows of a database.
//!
//! `query` and `query_fields` have the questions, `answer` the answers, `rules` the differences between the shapes of a
//! framework and those that the profiler records. `engine` chooses the way of looking an operator up by `op_mapping.yaml`;
//! each way is a file: `compute`, `elementwise`, `attention`, `collective`, `moe`, `composite`, `decomposer`, `cache_rows`.

mod answer;
mod attention;
mod axis_tables;
mod cache_rows;
mod collective;
mod composite;
mod compute;
mod decomposer;
mod elementwise;
mod engine;
mod index;
mod interpolation;
mod kernel_index;
mod kernel_rows;
mod match_rows;
mod moe;
mod query;
mod query_fields;
mod recorded_case;
mod row_answers;
mod rules;
mod slot_dims;
mod superseded;
#[cfg(test)]
mod tests;

pub use answer::{
    AnswerSource, AttentionDifference, DispatchOverhead, LatencyColumn, LookupAnswer, Micros, MissReason,
    NearestRow, PartAnswer, UsedRow,
};
pub(crate) use attention::{
    layout::KeyOrder,
    work::{AttentionFamily, AttentionWork},
};
pub use engine::LookupEngine;
pub use index::LookupError;
pub(crate) use query::BatchLengths;
pub use query::{AttentionParameters, BatchPhase, OpQuery, QueryError, QueryTensor};
pub(crate) use query_fields::{
    ListField, QueryFields, QueryTextError, ShapeField, check_degrees, check_kv_length, parse_dims,
    parse_dtype, parse_known_dtype, parse_length, parse_phase, parse_shapes,
};
pub(crate) use rules::KernelTraits;
pub use rules::{LookupAxes, LookupRules, MatchRule, Padding, RuleKind};
