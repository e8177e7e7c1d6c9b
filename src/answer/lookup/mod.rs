//! Answers to the questions of performance models: the latency of an operator from the rows of a database.

mod attention;
mod axis_tables;
mod cache_rows;
mod collective;
mod composite;
mod decomposer;
mod elementwise;
mod engine;
mod index;
mod interpolation;
mod kernel_index;
mod kernel_rows;
mod match_rows;
mod nearest;
mod row_answers;
mod row_choice;
mod superseded;
#[cfg(test)]
mod tests;

pub use engine::LookupEngine;
pub use index::LookupError;

pub use crate::answer::op_query::{
    AnswerSource, AttentionDifference, AttentionParameters, BatchPhase, DispatchOverhead, LatencyColumn,
    LookupAnswer, LookupAxes, LookupRules, MatchRule, Micros, MissReason, NearestRow, OpQuery, Padding,
    PartAnswer, QueryError, QueryTensor, RuleKind, UsedRow,
};
pub(crate) use crate::answer::op_query::{
    ListField, QueryFields, QueryTextError, ShapeField, check_degrees, check_kv_length, parse_dims,
    parse_dtype, parse_known_dtype, parse_length, parse_phase, parse_shapes,
};
use crate::{
    answer::op_query::{answer, attention_work, broadcast, moe_inputs, padding, query, rules, slot_dims},
    base::stats::simplex_interpolation as linear,
};
