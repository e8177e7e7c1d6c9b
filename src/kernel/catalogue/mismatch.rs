//! Reasons why a case does not fit a form, and why it cannot be replayed.

use super::{Bindings, ExprError, ExprValue};
use crate::kernel::{
    expression::{ArithmeticError, BinaryOperator, ExprNumber},
    ingest_option,
};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct NotReplayable {
    /// True if a form covers such cases, and the dimensions of this one contradict each other or a condition of the kernel.
    /// Else no form covers such slots, types, numbers of dimensions or attributes, and the case may be valid.
    pub(crate) is_contradiction: bool,
    pub(crate) problem: String,
    /// Nearest form if the problem is the difference from it, else empty.
    pub(crate) form: String,
}

impl From<FormMismatch> for NotReplayable {
    fn from(FormMismatch { stage, reason, .. }: FormMismatch) -> Self {
        Self { is_contradiction: stage == MatchStage::Conflict, problem: reason, form: String::new() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub(crate) struct FormMismatch {
    pub(super) stage: MatchStage,
    /// Number of attributes, slots, dimensions, outputs and conditions that conflict.
    pub(super) conflicts: usize,
    pub(super) reason: String,
}

/// The part in which a case and a form differ, of the farthest form first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum MatchStage {
    /// The form cannot be compiled: it needs more of a candidate than ranks and types.
    NotConstant,
    Attributes,
    Structure,
    /// Types or formats, and the dimensions conflict as well.
    Types,
    /// The dimensions conflict with each other, or attributes with them.
    Conflict,
    /// The dimensions agree; the form has another type or format of an input.
    OnlyTypes,
    /// The dimensions and types of the inputs agree; the form has another type of an output, or another attribute.
    Value,
    /// The dimensions and types agree, and are beyond a limit of the form.
    Limit,
}

impl FormMismatch {
    pub(super) fn at(stage: MatchStage, reason: impl Into<String>) -> Self {
        Self { stage, conflicts: 0, reason: reason.into() }
    }

    pub(crate) fn not_covered(reason: impl Into<String>) -> Self {
        Self::at(MatchStage::Value, reason)
    }

    pub(super) fn not_constant() -> Self {
        Self::at(MatchStage::NotConstant, "differs between candidates")
    }

    pub(super) fn into_limit(mut self) -> Self {
        if self.stage == MatchStage::Conflict {
            self.stage = MatchStage::Limit;
        }
        self
    }

    pub(super) fn prefixed(self, place: &str, slot: usize) -> Self {
        Self { reason: format!("{place} {slot}: {}", self.reason), ..self }
    }
}

impl From<String> for FormMismatch {
    fn from(reason: String) -> Self {
        Self::at(MatchStage::Conflict, reason)
    }
}

impl From<FormMismatch> for String {
    fn from(mismatch: FormMismatch) -> Self {
        mismatch.reason
    }
}

impl From<ExprError> for FormMismatch {
    fn from(error: ExprError) -> Self {
        match error {
            ExprError::NotConstant(_) => Self::not_constant(),
            error => error.to_string().into(),
        }
    }
}

impl From<ArithmeticError> for FormMismatch {
    fn from(error: ArithmeticError) -> Self {
        error.to_string().into()
    }
}

pub(super) fn missing_attribute(column: &str) -> String {
    let source = match ingest_option(column) {
        Some(option) => format!("`npubench ingest {option}` sets it"),
        None => "profiles do not contain it, see docs/attention.md".to_owned(),
    };
    format!("`{column}` is not known; {source}")
}

/// The names of a rule, bound to shapes. Rules are generic over the number: on `i64` they check a case, on nodes of compiled
/// expressions they collect the conditions on the numbers of a candidate.
pub(crate) struct RuleMatch<N = i64> {
    pub(super) bindings: Bindings<N>,
    pub(super) conditions: Vec<N>,
}

impl<N: ExprNumber> RuleMatch<N> {
    pub(super) const fn new(bindings: Bindings<N>) -> Self {
        Self { bindings, conditions: Vec::new() }
    }

    pub(super) fn require(
        &mut self,
        condition: N,
        reason: impl FnOnce() -> String,
    ) -> Result<(), FormMismatch> {
        match condition.constant() {
            Some(0) => return Err(reason().into()),
            Some(_) => {}
            None => self.conditions.push(condition),
        }
        Ok(())
    }

    pub(super) fn compare(
        &mut self,
        left: &N,
        operator: BinaryOperator,
        right: impl Into<N>,
        reason: impl FnOnce() -> String,
    ) -> Result<(), FormMismatch> {
        self.require(N::apply(operator, left.clone(), right.into())?, reason)
    }

    /// Requires that a value can be computed: no overflow, no inexact division.
    pub(super) fn require_value(&mut self, value: &ExprValue<N>) -> Result<(), FormMismatch> {
        let numbers = match value {
            ExprValue::Number(number) | ExprValue::Bool(number) => std::slice::from_ref(number),
            ExprValue::List(numbers) => numbers,
        };
        numbers.iter().try_for_each(|number| self.require(number.has_value(), String::new))
    }

    pub(super) fn unify(&mut self, name: &str, value: ExprValue<N>) -> Result<(), FormMismatch> {
        match self.bindings.get(name) {
            Some(known) if *known == value => Ok(()),
            Some(known) => {
                let known = known.clone();
                self.require(known.equals(&value)?, || format!("{name} is both {known} and {value}"))
            }
            None => {
                self.bindings.set(name, value);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        base::assets::AssetFiles,
        kernel::{Case, CaseAttributes, KernelName, SignatureCells, catalogue::Catalogue},
    };

    /// A row of any number of tokens without a batch is a call of another kernel; one token does not make it a product
    /// with a contracted dimension of 1, which no call launches.
    #[test]
    fn product_without_a_batch_is_a_call_of_another_kernel_for_any_number_of_tokens() {
        let catalogue = Catalogue::load(&AssetFiles::embedded()).expect("the catalogue");
        let kernel = KernelName::new("BatchMatMulV2").expect("a name");
        let entry = catalogue.entry(&kernel).expect("an entry");
        let resolve = |inputs: &str, output: &str| {
            let slots = |shapes, dtypes, formats| SignatureCells { shapes, dtypes, formats }.parse();
            let case = Case {
                kernel: kernel.clone(),
                inputs: slots(inputs, "DT_BF16;DT_BF16", "ND;ND").expect("inputs"),
                outputs: slots(output, "DT_BF16", "ND").expect("an output"),
                attributes: CaseAttributes::default(),
            };
            entry.resolve_call(&case)
        };
        for tokens in [1, 64] {
            let call =
                resolve(&format!("{tokens},4096;4096,512"), &format!("{tokens},512")).expect("a form fits");
            assert_eq!((call.form.as_str(), call.definition.as_str()), ("A x B, no batch", "MatMulV2"));
        }
        let call = resolve("4,64,512;4,512,128", "4,64,128").expect("a form fits");
        assert_eq!(call.definition, kernel);
        let refusal = |inputs: &str, output: &str| resolve(inputs, output).expect_err("no form fits");
        let batches = refusal("4,64,512;3,512,128", "4,64,128");
        assert!(batches.is_contradiction, "{batches:?}");
        let contracted = refusal("4,64,1;4,1,128", "4,64,128");
        assert!(!contracted.is_contradiction, "{contracted:?}");
    }
}
