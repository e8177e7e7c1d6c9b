//! Candidates of a space: their enumeration, the last axis fastest, without an allocation per candidate; their cases; and the
//! existing cases with which they are compared.

use std::{
    collections::{BTreeMap, HashSet},
    hash::BuildHasher as _,
};

use foldhash::quality::FixedState;

use super::{
    RejectReason,
    definition::{AttributeTemplate, CandidateSpace},
};
use crate::kernel::{
    Case, CaseAttributes, Dims, MemoryFootprint,
    expression::{Bindings, CompiledExpr, ExprValue},
};

#[derive(Clone, Debug)]
pub struct Candidates<'a> {
    space: &'a CandidateSpace,
    digits: Vec<usize>,
    numbers: Vec<i64>,
    next: u64,
    total: u64,
}

impl<'a> Candidates<'a> {
    pub fn new(space: &'a CandidateSpace) -> Self {
        Self {
            space,
            digits: vec![0; space.axes.len()],
            numbers: vec![0; space.names.len()],
            next: 0,
            total: space.candidates(),
        }
    }

    pub fn advance(&mut self) -> Option<u64> {
        let index = self.next;
        (index < self.total).then(|| self.go_to(index))?;
        Some(index)
    }

    /// Moves to a candidate by its index, which must be less than the number of candidates.
    pub fn go_to(&mut self, index: u64) {
        let mut rest = index;
        let mut place = self.axis_names();
        for (axis, digit) in self.space.axes.iter().zip(&mut self.digits).rev() {
            let (width, length) = (axis.names.len(), axis.len() as u64);
            place -= width;
            *digit = usize::try_from(rest % length).unwrap_or_default();
            rest /= length;
            self.numbers[place..place + width]
                .copy_from_slice(&axis.values[*digit * width..(*digit + 1) * width]);
        }
        self.next = index + 1;
    }

    fn axis_names(&self) -> usize {
        self.space.names.len() - self.space.derived.len()
    }

    /// Computes the derived numbers and checks the constraints. The error is the first derived number without a value,
    /// or else the first constraint that has none or is violated.
    pub fn check(&mut self) -> Result<&[i64], RejectReason> {
        let no_value = |formula: &CompiledExpr| RejectReason::NoValue(formula.source.clone());
        for (place, formula) in (self.axis_names()..).zip(&self.space.derived) {
            self.numbers[place] = formula.evaluate_at(&self.numbers).map_err(|_| no_value(formula))?;
        }
        for formula in &self.space.conditions {
            if formula.evaluate_at(&self.numbers).map_err(|_| no_value(formula))? != 1 {
                return Err(RejectReason::Constraint(formula.source.clone()));
            }
        }
        Ok(&self.numbers)
    }

    /// Numbers in the order of [`CandidateSpace::names`]; derived ones are valid after [`Candidates::check`].
    pub fn numbers(&self) -> &[i64] {
        &self.numbers
    }
}

#[derive(Clone, Debug)]
pub struct CaseBuilder<'a> {
    space: &'a CandidateSpace,
    case: Case,
}

impl<'a> CaseBuilder<'a> {
    pub fn new(space: &'a CandidateSpace) -> Self {
        Self { space, case: space.blank(0) }
    }

    /// Sets the dimensions and returns the memory; the error is the first expression without a value of at least 1.
    pub fn fill(&mut self, numbers: &[i64]) -> Result<MemoryFootprint, &'a CompiledExpr> {
        let inputs = self.space.inputs.iter().zip(&mut self.case.inputs);
        let outputs = self.space.outputs.iter().zip(&mut self.case.outputs);
        for (template, slot) in inputs.chain(outputs) {
            let (Some(template), Some(tensor)) = (template, slot) else { continue };
            for (formula, dim) in template.dims.iter().zip(&mut tensor.dims) {
                let value = formula.evaluate_at(numbers).ok().and_then(|value| u64::try_from(value).ok());
                *dim = value.filter(|dim| *dim >= 1).ok_or(formula)?;
            }
        }
        Ok(MemoryFootprint::from_case(&self.case))
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

    pub const fn filled(&self) -> &Case {
        &self.case
    }

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

/// Existing cases of a kernel, and the number of rows that each space or mutation added earlier. Signatures are hashes
/// of 64 bits: among a million cases, two share one with a probability of 1 to 30 million.
#[derive(Clone, Debug, Default)]
pub struct ExistingCases {
    pub(super) signatures: HashSet<u64, FixedState>,
    pub(crate) rows: BTreeMap<String, usize>,
}

impl ExistingCases {
    /// Adds a case; returns true if it is new.
    pub fn insert(&mut self, case: &Case) -> bool {
        self.signatures.insert(Self::key(case))
    }

    pub fn contains(&self, case: &Case) -> bool {
        self.signatures.contains(&Self::key(case))
    }

    fn key(case: &Case) -> u64 {
        FixedState::with_seed(0).hash_one(case.signature())
    }
}
