//! The catalogue: how each kernel is called, as `op_replay/<Kernel>.yaml` declares it; with the shape rules and
//! expressions of these files, and the resolution of a case to its call.
//!
//! Layer 2: imports `domain` and `config`.

mod arguments;
mod blocked_layout;
mod case_editor;
mod compiled_rule;
mod entry;
mod expr;
mod loader;
mod not_replayable;
mod resolve;
mod scaffold;
mod schema;
mod shape_rule;

pub use arguments::{ArgumentValue, CallArgument, TensorArgument, group_size};
pub use case_editor::{CaseEditor, FormDimension};
pub use compiled_rule::CompiledRule;
pub use entry::{
    CallRequirements, CatalogueEntry, DeclaredArgument, DimensionRole, EntryForm, Fill, InputSlot,
    OutputDtype, TensorSlot, TensorSource,
};
pub use expr::{Bindings, CompiledExpr, EvalError, Expr, ExprError, ExprValue, VariableSlot};
pub use loader::Catalogue;
pub use not_replayable::NotReplayable;
pub use resolve::ResolvedCall;
pub use scaffold::scaffold_entry;
pub use schema::{OperatorSchema, SchemaArgument, SchemaError, SchemaType};
pub use shape_rule::{ReturnShapes, RuleError, ShapeRule};
