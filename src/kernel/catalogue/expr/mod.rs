//! The expression language of the YAML files: whole numbers, lists of dimensions, comparisons.
//!
//! Operators in the order of increasing precedence: `or`, `and`, `not`, comparisons, `+ -`, `* / %`, unary `-`. `/`
//! must divide exactly, so that a shape rule such as `D/2` rejects an odd width. An overflow is an error.
//!
//! There is one evaluator, [`Expr::evaluate`]. On `i64` it computes values. On nodes of compiled expressions it
//! computes what is constant and returns the rest as a node, which a grid evaluates for each candidate.

mod arithmetic;
mod bindings;
mod compiled;
mod constraints;
mod error;
mod evaluate;
mod functions;
mod node;
mod parse;
mod shape_functions;

pub(super) use arithmetic::{BinaryOperator, ExprNumber, product};
pub(crate) use bindings::{Bindings, ExprValue};
pub use compiled::CompiledExpr;
pub(super) use compiled::CompiledNode;
pub(crate) use compiled::VariableSlot;
pub(super) use constraints::{AlignedLists, NameEquality};
pub(crate) use error::ExprError;
pub(super) use error::ExprErrorKind;
pub use evaluate::Expr;
pub(super) use evaluate::equal_values;
