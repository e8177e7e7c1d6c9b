//! The language of conditions and dimensions in catalogue entries, grids and `--filter`: text to tree, and the
//! evaluation on whole numbers.
//!
//! Operators in the order of increasing precedence: `or` or `|`, `and` or `&`, `not` or `!`, comparisons (`=` or `==`, `!=`,
//! `<`, `<=`, `>`, `>=`, `~`, `!~`), `+ -`, `* / %`, unary `-`. `/` must divide exactly, so that a shape rule such as `D/2`
//! rejects an odd width. An overflow is an error.
//!
//! [`Expr::evaluate`] computes on `i64`, or on the nodes of compiled expressions: there it computes what is constant and
//! returns the rest as a node, which a grid evaluates for each candidate. Filters evaluate the same tree on the texts and
//! times of a case (`case_filter`).

mod arithmetic;
mod bindings;
mod compiled;
mod constraints;
mod error;
mod evaluate;
mod functions;
mod parse;
mod shape_functions;
mod tree;

pub(crate) use arithmetic::{BinaryOperator, ExprNumber, product};
pub(crate) use bindings::{Bindings, ExprValue};
pub use compiled::CompiledExpr;
pub(crate) use compiled::{CompiledNode, VariableSlot};
pub(crate) use constraints::{AlignedLists, NameEquality};
pub(crate) use error::{ExprError, ExprErrorKind, SyntaxError};
pub use evaluate::Expr;
pub(crate) use evaluate::{equal_values, evaluate};
pub(crate) use tree::{ExprKind, ExprNode};
