//! Queries for the latency of an operator, their answers, and the rules between shapes of a framework and those that
//! the profiler records.

pub(crate) mod answer;
mod attention_layout;
pub(crate) mod attention_work;
pub(crate) mod broadcast;
pub(crate) mod collective_message;
pub(crate) mod fused_products;
mod list_fields;
pub(crate) mod moe_inputs;
pub(crate) mod padding;
pub(crate) mod query;
mod query_fields;
mod query_text;
pub(crate) mod rules;
pub(crate) mod slot_dims;
pub(crate) mod sweep_of_query;

pub use answer::{
    AnswerSource, AttentionDifference, DispatchOverhead, LatencyColumn, LookupAnswer, Micros, MissReason,
    NearestRow, PartAnswer, UsedRow,
};
pub(crate) use list_fields::{ListField, ShapeField};
pub(crate) use query::BatchLengths;
pub use query::{AttentionParameters, BatchPhase, OpQuery, QueryError, QueryTensor};
pub(crate) use query_fields::{QueryFields, check_degrees, check_kv_length, parse_length, parse_phase};
pub(crate) use query_text::{QueryTextError, parse_dims, parse_dtype, parse_known_dtype, parse_shapes};
pub use rules::{LookupAxes, LookupRules, MatchRule, Padding, RuleKind};
