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

mod evaluate;
mod functions;
mod parse;
mod shape_functions;
mod value;

pub(crate) use evaluate::{AlignedLists, CompiledNode, NameEquality, VariableSlot, evaluate};
pub use evaluate::{CompiledExpr, Expr};
pub(crate) use parse::{ExprKind, ExprNode, SyntaxError};
pub(crate) use value::{
    ArithmeticError, BinaryOperator, Bindings, ExprError, ExprNumber, ExprValue, product,
};
