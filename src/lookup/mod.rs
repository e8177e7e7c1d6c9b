//! Answers to the questions of performance models: the latency of an operator from the rows of a database.
//!
//! Layer 3: imports `domain`, `files`, `config` and `database`.

mod answer;
mod attention;
mod axis_tables;
mod broadcast;
mod collective;
mod composite;
mod elementwise;
mod engine;
mod index;
mod interpolation;
mod kernel_index;
mod kernel_rows;
mod linear;
mod match_rows;
mod moe;
mod nearest;
pub mod op_mapping;
#[cfg(test)]
mod property_tests;
mod query;
mod query_text;
mod rules;
mod slot_dims;
#[cfg(test)]
mod tests;

pub use answer::{
    AnswerSource, LatencyColumn, LookupAnswer, Micros, MissReason, NearestRow, PartAnswer, UsedRow,
};
pub use engine::LookupEngine;
pub use index::LookupError;
pub use query::{AttentionParameters, OpQuery, QueryError, QueryTensor};
pub(crate) use query_text::{parse_dims, parse_dtype, parse_shapes, query_tensors, split_list};
pub use rules::{LookupAxes, MatchRule, Padding, RuleKind};
