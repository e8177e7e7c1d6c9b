//! The catalogue: how each kernel is called, as `op_replay/<Kernel>.yaml` declares it; with the shape rules and
//! expressions of these files, and the resolution of a case to its call.

mod arguments;
mod case_editor;
mod compiled_rule;
mod entry;
mod loader;
mod mismatch;
mod resolve;
mod shape_rule;

pub use crate::kernel::operator_schema::OperatorSchema;
pub(crate) use crate::kernel::operator_schema::SchemaType;
pub(crate) use arguments::{ArgumentValue, CallArgument, group_size};
pub use case_editor::{CaseEditor, FormDimension};
pub use compiled_rule::CompiledRule;
pub use entry::CatalogueEntry;
pub(crate) use entry::{
    DeclaredArgument, DimensionRole, EntryForm, Fill, FillKind, ImpliedValue, InputSlot, LaunchOperator,
    OutputDtype, TensorSlot, TensorSource,
};
pub use loader::Catalogue;
pub(crate) use mismatch::FormMismatch;
pub use mismatch::NotReplayable;
pub use resolve::ResolvedCall;
pub(crate) use shape_rule::PatternTerm;
pub use shape_rule::{ReturnShapes, ShapeRule};

use super::expression::{Bindings, CompiledExpr, Expr, ExprError, ExprValue};
