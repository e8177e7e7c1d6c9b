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
    numbers: Vec<i64>,
    next: u64,
    total: u64,
    case: Case,
}

impl<'a> Candidates<'a> {
    pub fn new(space: &'a CandidateSpace) -> Self {
        let (numbers, total) = (vec![0; space.names.len()], space.candidates());
        Self { space, numbers, next: 0, total, case: space.blank(0) }
    }

    pub fn advance(&mut self) -> Option<u64> {
        let index = self.next;
        (index < self.total).then(|| self.go_to(index))?;
        Some(index)
    }

    /// Moves to a candidate by its index, which must be less than the number of candidates.
    pub fn go_to(&mut self, index: u64) {
        let is_next = index > 0 && index == self.next;
        let mut rest = index;
        let mut place = self.axis_names();
        for axis in self.space.axes.iter().rev() {
            let (width, length) = (axis.names.len(), axis.len() as u64);
            place -= width;
            let digit = usize::try_from(rest % length).unwrap_or_default();
            rest /= length;
            self.numbers[place..place + width]
                .copy_from_slice(&axis.values[digit * width..(digit + 1) * width]);
            // After the candidate before it, a slower axis moves only when this one starts again.
            if is_next && digit > 0 {
                break;
            }
        }
        self.next = index + 1;
    }

    fn axis_names(&self) -> usize {
        self.space.names.len() - self.space.derived.len()
    }

    /// Computes the derived numbers, checks the constraints and sets the dimensions; returns the memory of the case. The error
    /// is the first number without a value, violated constraint or dimension without a value of at least 1.
    pub fn check(&mut self) -> Result<MemoryFootprint, RejectReason> {
        let no_value = |formula: &CompiledExpr| RejectReason::NoValue(formula.source.clone());
        for (place, formula) in (self.axis_names()..).zip(&self.space.derived) {
            self.numbers[place] = formula.evaluate_at(&self.numbers).map_err(|_| no_value(formula))?;
        }
        for formula in &self.space.conditions {
            if formula.evaluate_at(&self.numbers).map_err(|_| no_value(formula))? != 1 {
                return Err(RejectReason::Constraint(formula.source.clone()));
            }
        }
        let inputs = self.space.inputs.iter().zip(&mut self.case.inputs);
        let outputs = self.space.outputs.iter().zip(&mut self.case.outputs);
        for (template, slot) in inputs.chain(outputs) {
            let (Some(template), Some(tensor)) = (template, slot) else { continue };
            for (formula, dim) in template.dims.iter().zip(&mut tensor.dims) {
                let value =
                    formula.evaluate_at(&self.numbers).ok().and_then(|value| u64::try_from(value).ok());
                let value = value.filter(|dim| *dim >= 1);
                *dim = value.ok_or_else(|| RejectReason::Dimension(formula.source.clone()))?;
            }
        }
        Ok(MemoryFootprint::from_case(&self.case))
    }

    /// Numbers in the order of [`CandidateSpace::names`]; derived ones are valid after [`Candidates::check`].
    pub fn numbers(&self) -> &[i64] {
        &self.numbers
    }

    /// Sets the attributes of a checked candidate and returns its case. The error is the reason why an attribute has no value.
    pub fn case(&mut self) -> Result<&Case, String> {
        if !self.space.attributes.is_empty() {
            let mut attributes = CaseAttributes::default();
            for (column, text) in self.cells()? {
                attributes.set(column, &text);
            }
            self.case.attributes = attributes;
        }
        Ok(&self.case)
    }

    /// Returns the case without attributes, or with those of the last call of [`Self::case`].
    pub(crate) const fn filled(&self) -> &Case {
        &self.case
    }

    /// Names and values of the axes.
    pub(crate) fn axes(&self) -> (&'a [String], &[i64]) {
        let count = self.axis_names();
        (&self.space.names[..count], &self.numbers[..count])
    }

    pub(crate) fn cells(&self) -> Result<Vec<(&'a str, String)>, String> {
        let mut bindings = None;
        let cells = self.space.attributes.iter().map(|(column, cell)| {
            let text = match cell {
                AttributeTemplate::Text(text) => text.clone(),
                AttributeTemplate::Expression(expr) => {
                    let bindings = bindings.get_or_insert_with(|| self.bindings());
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

    fn bindings(&self) -> Bindings {
        let numbers = self.space.names.iter().zip(&self.numbers);
        let constants = self.space.constants.iter().map(|(name, number)| (name, number));
        let mut bindings = Bindings::default();
        for (name, number) in numbers.chain(constants) {
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
    pub fn insert(&mut self, case: &Case) -> bool {
        self.signatures.insert(Self::key(case))
    }

    pub(super) fn key(case: &Case) -> u64 {
        FixedState::with_seed(0).hash_one(case.signature())
    }
}
