//! Errors of an entry, with the keys that lead to the faulty value in its file.

use crate::kernel::catalogue::OperatorSchema;

/// An error of an entry with the place of the faulty value.
pub(crate) struct EntryError {
    pub(crate) problem: String,
    /// An argument of the call: where it is declared, the path starts. Without one it starts at the file's top.
    pub(crate) argument: Option<String>,
    pub(crate) path: Vec<String>,
}

impl<E: std::error::Error> From<E> for EntryError {
    fn from(error: E) -> Self {
        Self { problem: error.to_string(), argument: None, path: Vec::new() }
    }
}

pub(crate) fn value_fault(problem: impl Into<String>) -> EntryError {
    EntryError { problem: problem.into(), argument: None, path: Vec::new() }
}

/// An error of the value below a key.
pub(crate) fn fault(key: &str, problem: impl Into<String>) -> EntryError {
    EntryError { problem: problem.into(), argument: None, path: vec![key.to_owned()] }
}

/// An error of a key of an argument's declaration.
pub(crate) fn argument_fault(argument: &str, key: &str, problem: impl Into<String>) -> EntryError {
    EntryError { argument: Some(argument.to_owned()), ..fault(key, problem) }
}

/// Adds the position of a value to the errors found in it.
pub(crate) trait Below<T> {
    /// Puts a key or a list index in front of the path of the error.
    fn below(self, step: impl ToString) -> Result<T, EntryError>;
}

impl<T, E: Into<EntryError>> Below<T> for Result<T, E> {
    fn below(self, step: impl ToString) -> Result<T, EntryError> {
        self.map_err(|error| {
            let mut error = error.into();
            error.path.insert(0, step.to_string());
            error
        })
    }
}

pub(crate) fn no_such_argument(schema: &OperatorSchema, name: &str) -> String {
    let names: Vec<&str> = schema.arguments.iter().map(|known| known.name.as_str()).collect();
    format!("the schema has no argument `{name}`; it has {}", names.join(", "))
}
