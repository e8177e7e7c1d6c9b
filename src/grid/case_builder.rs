//! A candidate as a case: one draft for a whole space, whose dimensions are filled in anew for each candidate.

use super::{
    MemoryFootprint,
    definition::{AttributeTemplate, CandidateSpace},
};
use crate::{
    catalogue::{Bindings, CompiledExpr, ExprValue},
    domain::{Case, CaseAttributes, Dims, TensorFormat},
};

/// The cases of a space, one at a time.
#[derive(Clone, Debug)]
pub struct CaseBuilder<'a> {
    space: &'a CandidateSpace,
    case: Case,
    /// Bytes of an element and whether it is blocked, of inputs and outputs that are there.
    sizes: Vec<(u64, bool)>,
}

impl<'a> CaseBuilder<'a> {
    /// A draft without dimensions.
    #[must_use]
    pub fn new(space: &'a CandidateSpace) -> Self {
        let sizes = space.inputs.iter().chain(&space.outputs).flatten().map(|tensor| {
            (tensor.dtype.bytes().unwrap_or(2), matches!(tensor.format, TensorFormat::Private(_)))
        });
        Self { space, case: space.blank(0), sizes: sizes.collect() }
    }

    /// Fills in the dimensions of a candidate, and says what memory it needs.
    ///
    /// # Errors
    /// The dimension that has no value or is less than 1.
    pub fn fill(&mut self, numbers: &[i64]) -> Result<MemoryFootprint, &'a CompiledExpr> {
        let mut footprint = MemoryFootprint::default();
        let inputs = self.space.inputs.iter().zip(&mut self.case.inputs).map(|pair| (true, pair));
        let outputs = self.space.outputs.iter().zip(&mut self.case.outputs).map(|pair| (false, pair));
        let mut sizes = self.sizes.iter();
        for (is_input, (template, slot)) in inputs.chain(outputs) {
            let (Some(template), Some(tensor)) = (template, slot) else { continue };
            for (formula, dim) in template.dims.iter().zip(&mut tensor.dims) {
                let value = formula.evaluate_at(numbers).ok().and_then(|value| u64::try_from(value).ok());
                *dim = value.filter(|dim| *dim >= 1).ok_or(formula)?;
            }
            let Some((element, is_blocked)) = sizes.next() else { continue };
            if is_input {
                footprint.add_input(&tensor.dims, *element, *is_blocked);
            } else {
                footprint.add_output(&tensor.dims, *element, *is_blocked);
            }
        }
        Ok(footprint)
    }

    /// The case as it is filled in, with its attributes.
    ///
    /// # Errors
    /// The attribute that has no value, and why.
    pub fn case(&mut self, numbers: &[i64]) -> Result<&Case, String> {
        if !self.space.attributes.is_empty() {
            let mut attributes = CaseAttributes::default();
            for (column, text) in self.cells(numbers)? {
                attributes.set(column, &text);
            }
            self.case.attributes = attributes;
        }
        Ok(&self.case)
    }

    /// The case as it was filled in last.
    #[must_use]
    pub const fn filled(&self) -> &Case {
        &self.case
    }

    /// What stands in the columns of attributes, labels included.
    ///
    /// # Errors
    /// As [`CaseBuilder::case`].
    pub fn cells(&self, numbers: &[i64]) -> Result<Vec<(&'a str, String)>, String> {
        let mut bindings = None;
        let cells = self.space.attributes.iter().map(|(column, cell)| {
            let text = match cell {
                AttributeTemplate::Text(text) => text.clone(),
                AttributeTemplate::Expression(expr) => {
                    let bindings = bindings.get_or_insert_with(|| self.bindings(numbers));
                    match expr.evaluate(bindings).map_err(|error| error.to_string())? {
                        ExprValue::List(items) => Dims(&items).to_string(),
                        value => value.to_string(),
                    }
                }
            };
            Ok((column.as_str(), text))
        });
        cells.collect()
    }

    fn bindings(&self, numbers: &[i64]) -> Bindings {
        let mut bindings = Bindings::default();
        for (name, number) in self.space.names.iter().zip(numbers) {
            bindings.set(name, ExprValue::Number(*number));
        }
        for (name, number) in &self.space.constants {
            bindings.set(name, ExprValue::Number(*number));
        }
        bindings
    }
}
