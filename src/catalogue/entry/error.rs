//! Errors of an entry, before they are tied to a line of its file.

use crate::{
    catalogue::{ExprError, OperatorSchema, RuleError, SchemaError},
    domain::KernelNameError,
};

/// A contradiction in an entry.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EntryError {
    #[error(transparent)]
    Kernel(#[from] KernelNameError),
    #[error(transparent)]
    Schema(#[from] SchemaError),
    #[error(transparent)]
    Rule(#[from] RuleError),
    #[error(transparent)]
    Expr(#[from] ExprError),
    #[error("{problem}")]
    Other { needle: String, problem: String },
}

impl EntryError {
    /// Text that the faulty line contains.
    pub(crate) fn needle(&self) -> String {
        match self {
            Self::Kernel(_) => "kernel:".to_owned(),
            Self::Schema(_) => "schema:".to_owned(),
            Self::Rule(RuleError::NoArrow(rule) | RuleError::Term { rule, .. }) => rule.clone(),
            Self::Rule(RuleError::TwoSequences(slot)) => slot.clone(),
            Self::Rule(RuleError::Expr(inner)) | Self::Expr(inner) => match inner {
                ExprError::Syntax { source_text, .. } | ExprError::Value { source_text, .. } => {
                    source_text.clone()
                }
                ExprError::Unknown(name) => name.clone(),
            },
            Self::Other { needle, .. } => needle.clone(),
        }
    }
}

/// An error in the line that contains `needle`.
pub(crate) fn fault(needle: &str, problem: String) -> EntryError {
    EntryError::Other { needle: needle.to_owned(), problem }
}

/// The error for an argument that the schema does not have.
pub(crate) fn no_such_argument(schema: &OperatorSchema, name: &str) -> EntryError {
    let names: Vec<&str> = schema.arguments.iter().map(|known| known.name.as_str()).collect();
    fault(name, format!("the schema has no argument `{name}`; it has {}", names.join(", ")))
}
