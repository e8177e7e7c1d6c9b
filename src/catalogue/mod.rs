//! The catalogue: how each kernel is called, as `op_replay/<Kernel>.yaml` declares it; with the shape rules and
//! expressions of these files, and the resolution of a case to its call.

mod arguments;
mod case_editor;
mod compiled_rule;
mod entry;
mod expr;
mod loader;
mod resolve;
mod scaffold;
mod schema;
mod shape_rule;

pub use arguments::{Fill, Supplied, SuppliedTensor};
pub use case_editor::{Anatomy, Dimension};
pub use compiled_rule::QuickRule;
pub use entry::{
    Argument, Entry, EntryForm, InputSlot, JudgedBy, Needs, OutputDtype, Role, TensorSlot, Values,
};
pub use expr::{
    Expr, ExprError,
    bindings::{Bindings, Value},
    compiled::{Formula, FormulaError, NoValue, Place},
};
pub use loader::Catalogue;
pub(crate) use resolve::logical_dims;
pub use resolve::{Reading, Refusal};
pub use scaffold::draft_entry;
pub use schema::{Schema, SchemaArgument, SchemaError, SchemaType};
pub use shape_rule::{Form, Returns, RuleError};
