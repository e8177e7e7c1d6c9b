//! The names of a shape rule and what they stand for in a case, for whoever asks about its axes.

use std::collections::BTreeSet;

use super::{Refusal, contradiction};
use crate::{
    catalogue::{Bindings, Entry, Expr, Form, Value, shape_rule::signed},
    domain::Case,
};

impl Entry {
    /// The name of the form that a case takes, and the values of the names of its rule; `output` is the shape of
    /// the first output.
    ///
    /// # Errors
    /// As [`Entry::read`].
    pub(crate) fn names_of(&self, case: &Case) -> Result<(&str, Bindings), Refusal> {
        let fitting = self.forms.iter().find_map(|form| Some((form, self.fit(form, case).ok()?)));
        let Some((form, mut bindings)) = fitting else {
            // It says why.
            return self.read(case).and(Err(contradiction("no form fits")));
        };
        let outputs = form.rule.outputs(&bindings).map_err(Refusal::Contradiction)?;
        let first = outputs.first().map(|dims| signed(dims)).unwrap_or_default();
        bindings.set("output", Value::List(first));
        Ok((&form.rule.name, bindings))
    }

    /// Every name that [`Entry::names_of`] may give a value.
    pub(crate) fn known_names(&self) -> BTreeSet<&str> {
        let rules = self.forms.iter().map(|form| &form.rule);
        let conditions = rules.clone().flat_map(|rule| &rule.conditions).flat_map(Expr::names);
        rules.flat_map(Form::names).chain(conditions).chain(["output"]).collect()
    }
}
