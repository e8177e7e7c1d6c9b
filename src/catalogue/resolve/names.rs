//! The names of a shape rule and what they stand for in a case, for whoever asks about its axes.

use std::collections::BTreeSet;

use crate::{
    catalogue::{
        Bindings, CatalogueEntry, Expr, ExprValue, NotReplayable, ShapeRule, not_replayable::contradiction,
        shape_rule::to_signed,
    },
    domain::Case,
};

impl CatalogueEntry {
    /// The name of the form that a case takes, and the values of the names of its rule; `output` is the shape of
    /// the first output.
    ///
    /// # Errors
    /// As [`CatalogueEntry::read`].
    pub(crate) fn bound_names(&self, case: &Case) -> Result<(&str, Bindings), NotReplayable> {
        let fitting = self.forms.iter().find_map(|form| Some((form, self.match_form(form, case).ok()?)));
        let Some((form, mut bindings)) = fitting else {
            // It says why.
            return self.resolve_call(case).and(Err(contradiction("no form fits")));
        };
        let outputs = form.rule.output_shapes(&bindings).map_err(NotReplayable::Contradiction)?;
        let first = outputs.first().map(|dims| to_signed(dims)).unwrap_or_default();
        bindings.set("output", ExprValue::List(first));
        Ok((&form.rule.name, bindings))
    }

    /// Every name that [`CatalogueEntry::names_of`] may give a value.
    pub(crate) fn bindable_names(&self) -> BTreeSet<&str> {
        let rules = self.forms.iter().map(|form| &form.rule);
        let conditions = rules.clone().flat_map(|rule| &rule.conditions).flat_map(Expr::variable_names);
        rules.flat_map(ShapeRule::bound_names).chain(conditions).chain(["output"]).collect()
    }
}
