//! Cases of candidates: one case for a whole space, whose dimensions are replaced for each candidate.

use super::definition::{AttributeTemplate, CandidateSpace};
use crate::kernel::{
    Case, CaseAttributes, Dims, MemoryFootprint, TensorFormat,
    expression::{Bindings, CompiledExpr, ExprValue},
};

/// Builder of a space's cases, one at a time.
#[derive(Clone, Debug)]
pub struct CaseBuilder<'a> {
    space: &'a CandidateSpace,
    case: Case,
    /// Bytes of an element, and true for blocked formats, of each input and output tensor.
    sizes: Vec<(u64, bool)>,
}

impl<'a> CaseBuilder<'a> {
    /// A case whose dimensions are not set.
    pub fn new(space: &'a CandidateSpace) -> Self {
        let sizes = space.inputs.iter().chain(&space.outputs).flatten().map(|tensor| {
            (tensor.dtype.bytes().unwrap_or(2), matches!(tensor.format, TensorFormat::Private(_)))
        });
        Self { space, case: space.blank(0), sizes: sizes.collect() }
    }

    /// Sets the dimensions and returns the memory; the error is the first expression without a value of at least 1.
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

    /// Sets the attributes and returns the case. The error is the reason why an attribute has no value.
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

    /// Returns the case as it was filled last.
    pub const fn filled(&self) -> &Case {
        &self.case
    }

    /// Returns the cells of the attribute columns, labels included.
    pub(crate) fn cells(&self, numbers: &[i64]) -> Result<Vec<(&'a str, String)>, String> {
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
