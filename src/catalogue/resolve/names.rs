//! Values of the names of a shape rule in a case, for audits of its axes.

use std::collections::BTreeSet;

use crate::{
    catalogue::{
        Bindings, CatalogueEntry, Expr, ExprValue, NotReplayable, ShapeRule, not_replayable::contradiction,
        shape_rule::to_signed,
    },
    domain::Case,
};

impl CatalogueEntry {
    /// Returns the name of the form that a case fits, and the values of the names of its rule; `output` is the shape
    /// of the first output. Errors are those of [`CatalogueEntry::resolve_call`].
    pub(crate) fn bound_names(&self, case: &Case) -> Result<(&str, Bindings), NotReplayable> {
        let fitting = self.forms.iter().find_map(|form| Some((form, self.match_form(form, case).ok()?)));
        let Some((form, mut bindings)) = fitting else {
            // This gives the reason of each form.
            return self.resolve_call(case).and(Err(contradiction("no form fits")));
        };
        let outputs = form.rule.outputs.evaluate_shapes(&bindings).map_err(NotReplayable::Contradiction)?;
        let first = outputs.first().map(|dims| to_signed(dims)).unwrap_or_default();
        bindings.set("output", ExprValue::List(first));
        Ok((&form.rule.name, bindings))
    }

    /// Returns the names that [`CatalogueEntry::bound_names`] may bind.
    pub(crate) fn bindable_names(&self) -> BTreeSet<&str> {
        let rules = self.forms.iter().map(|form| &form.rule);
        let conditions = rules.clone().flat_map(|rule| &rule.conditions).flat_map(Expr::variable_names);
        rules.flat_map(ShapeRule::bound_names).chain(conditions).chain(["output"]).collect()
    }
}
