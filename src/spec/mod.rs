//! What is declared in YAML: the catalogue of kernels, device profiles, a database's own file; with
//! the shape rules and expressions that these files hold.
//!
//! Layer 1: imports `model` only, and is the only user of the YAML crate. Errors name file, line and
//! what to write instead. It measures nothing and opens nothing but the files it is asked for.

mod anatomy;
mod assets;
mod bindings;
mod catalogue;
mod database_file;
mod device_profile;
mod draft;
mod entry;
mod expr;
pub mod faults;
mod formula;
pub mod grid;
mod llm;
mod quick_rule;
mod reading;
mod schema;
mod shape_rule;
mod shapes;
mod source;
mod supply;
mod yaml;

pub use anatomy::{Anatomy, Dimension};
pub use assets::{Assets, AssetsError};
pub use bindings::{Bindings, Value};
pub use catalogue::Catalogue;
pub use database_file::DatabaseFile;
pub use device_profile::{DeviceProfile, Unit, Work};
pub use draft::draft_entry;
pub use entry::{
    Argument, Entry, EntryForm, InputSlot, JudgedBy, Needs, OutputDtype, Role, TensorSlot, Values,
};
pub use expr::{Expr, ExprError};
pub use formula::{Formula, FormulaError, NoValue, Place};
pub use llm::{
    Experts, Gemm, GemmRole, GroupedQuery, Indexer, Latent, Layout, LayoutError, Layouts, LlmAttention,
    LlmModel, Product, Quantisation, Share,
};
pub use quick_rule::QuickRule;
pub(crate) use reading::logical_dims;
pub use reading::{Reading, Refusal};
pub use schema::{Schema, SchemaArgument, SchemaError, SchemaType};
pub use shape_rule::{Form, Returns, RuleError};
pub use supply::{Fill, Supplied, SuppliedTensor};
pub use yaml::{SpecError, check_yaml};
