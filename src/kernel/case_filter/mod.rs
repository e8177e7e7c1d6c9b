//! Filters of cases, as users type them after `--filter`: text to tree, names, evaluation, errors with a place.

mod case_values;
mod catalogue_names;
mod error;
mod evaluate;
mod expr;
mod lexer;
mod names;
mod parser;

pub(crate) use case_values::CaseValues;
pub(crate) use error::FilterError;
pub(crate) use names::FilterNames;

use expr::FilterExpr;

/// A filter of cases with the text that a user gave.
#[derive(Clone, Debug)]
pub struct CaseFilter {
    text: String,
    expr: FilterExpr,
}

impl CaseFilter {
    /// Parses a filter, such as `kernel ~ MatMul & m <= 64`. Fails with [`FilterError`] at the place of the fault.
    pub(crate) fn parse(text: &str) -> Result<Self, FilterError> {
        let expr = parser::parse_filter(text).map_err(|fault| FilterError::new(text, fault))?;
        Ok(Self { text: text.to_owned(), expr })
    }

    /// Fails with [`FilterError`] if a name does not exist, or its values cannot be compared in this way.
    pub(crate) fn check_names(&self, names: &FilterNames) -> Result<(), FilterError> {
        names.check(&self.expr).map_err(|fault| FilterError::new(&self.text, fault))
    }

    /// Returns true if the filter selects a case. Comparisons with missing values are false.
    pub(crate) fn matches(&self, case: &CaseValues<'_>) -> bool {
        evaluate::matches(&self.expr, &|name| case.lookup(name))
    }

    /// Returns the text of the filter.
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the names that the filter compares, each once.
    pub(crate) fn used_names(&self) -> Vec<&str> {
        let mut names = Vec::new();
        self.expr.visit_names(&mut |name| {
            if !names.contains(&name) {
                names.push(name);
            }
        });
        names
    }
}

#[cfg(test)]
mod tests;
