//! The forms of an entry, compiled for cases whose ranks, types and formats are the same, as the candidates of a grid
//! space are: a condition over their numbers for each check of [`CatalogueEntry::resolve_call`]. Forms with rules
//! backwards from an output, lists of lengths or attributes are not compiled.

use super::{
    Bindings, CatalogueEntry, CompiledExpr, DeclaredArgument, EntryForm, Expr, ExprValue, Fill, TensorSource,
    arguments::check_fill,
    resolve::{bind_sizes, check_types, logical_inputs},
    rule_error::{RuleMismatch, require, require_value},
};
use crate::kernel::Case;
use crate::kernel::expression::{
    BinaryOperator, CompiledNode, ExprErrorKind, ExprNumber, equal_values, product,
};

/// The forms of an entry that cases of one kind may take, in the entry's order.
#[derive(Clone, Debug)]
pub struct CompiledRule {
    pub(crate) forms: Vec<CompiledForm>,
}

#[derive(Clone, Debug)]
pub(crate) struct CompiledForm {
    fits: Vec<CompiledNode>,
    /// Further conditions under which a case of this form can be called.
    needs: Vec<CompiledNode>,
}

impl CompiledRule {
    /// Returns the index of the form that accepts a candidate.
    pub fn matching_form(&self, numbers: &[i64]) -> Option<usize> {
        let hold = |conditions: &[CompiledNode]| {
            conditions.iter().all(|condition| matches!(condition.evaluate_at(numbers), Ok(1..)))
        };
        let form = self.forms.iter().position(|form| hold(&form.fits))?;
        hold(&self.forms[form].needs).then_some(form)
    }
}

impl CatalogueEntry {
    /// Compiles the forms for cases like `sample` with these dimensions; `None` if that is not possible.
    pub(crate) fn compile_rule(
        &self,
        sample: &Case,
        inputs: &[Option<&[CompiledExpr]>],
        outputs: &[Option<&[CompiledExpr]>],
    ) -> Option<CompiledRule> {
        let nodes = |dims: &[CompiledExpr]| dims.iter().map(|expr| expr.node.clone()).collect();
        let inputs: Vec<Option<Vec<CompiledNode>>> =
            inputs.iter().take(sample.inputs.len()).map(|dims| dims.map(nodes)).collect();
        let outputs: Vec<Vec<CompiledNode>> = outputs.iter().flatten().map(|dims| nodes(dims)).collect();
        let mut forms = Vec::new();
        for form in self.forms_for(sample) {
            let checked = self.check_attributes(form, sample);
            let checked = checked.and_then(|()| self.check_slots(form, sample));
            if checked.and_then(|()| check_types(form, sample)).is_err() {
                continue;
            }
            match self.compile_form(form, sample, &inputs, &outputs) {
                Ok(form) => forms.push(form),
                Err(RuleMismatch::Structure(_) | RuleMismatch::Dimensions(_) | RuleMismatch::Limit(_)) => {}
                Err(RuleMismatch::NotConstant) => return None,
            }
        }
        Some(CompiledRule { forms })
    }

    fn compile_form(
        &self,
        form: &EntryForm,
        sample: &Case,
        inputs: &[Option<Vec<CompiledNode>>],
        outputs: &[Vec<CompiledNode>],
    ) -> Result<CompiledForm, RuleMismatch> {
        let mut fits = Vec::new();
        let logical = logical_inputs(form, sample, inputs.to_vec(), &mut fits)?;
        let recorded = (!outputs.is_empty()).then_some(outputs);
        let mut bindings = form.rule.bind(&logical, recorded, Bindings::default(), &mut fits)?;
        if !form.is_replayed() {
            let never = CompiledNode::Constant(0);
            return Ok(CompiledForm { fits, needs: vec![never] });
        }
        let outputs = form.rule.outputs.shape_nodes(&bindings, &mut fits)?;
        let sizes = |dims: &Vec<CompiledNode>, bytes: Option<u64>| {
            let elements = product(dims).unwrap_or(CompiledNode::Constant(i64::MAX));
            let bytes = i64::try_from(bytes.unwrap_or(2)).unwrap_or(i64::MAX);
            let bytes = CompiledNode::apply(BinaryOperator::Multiply, elements.clone(), bytes.into());
            (elements, bytes.unwrap_or(CompiledNode::Constant(i64::MAX)))
        };
        let input_sizes: Vec<_> = (inputs.iter().zip(&sample.inputs))
            .map(|(dims, slot)| Some(sizes(dims.as_ref()?, slot.as_ref()?.dtype.bytes())))
            .collect();
        // The types of the outputs may follow from the inputs. No number of bytes makes a condition.
        let output_sizes: Vec<_> = outputs.iter().map(|dims| sizes(dims, None)).collect();
        bind_sizes(&mut bindings, form, &input_sizes, &output_sizes);
        let mut needs = Vec::new();
        // The resolver takes a form that fits, and fails if the call contradicts it.
        self.require_call(form, inputs, &logical, &bindings, &mut needs)
            .map_err(|_| RuleMismatch::NotConstant)?;
        Ok(CompiledForm { fits, needs })
    }

    fn require_call(
        &self,
        form: &EntryForm,
        inputs: &[Option<Vec<CompiledNode>>],
        logical: &[Option<Vec<CompiledNode>>],
        bindings: &Bindings<CompiledNode>,
        needs: &mut Vec<CompiledNode>,
    ) -> Result<(), RuleMismatch> {
        if let Some(returns) = &form.returns {
            returns.shape_nodes(bindings, needs)?;
        }
        let dims = |dims: &[Option<Vec<CompiledNode>>], index: usize| {
            dims.get(index).cloned().flatten().ok_or(RuleMismatch::NotConstant)
        };
        for (index, slot) in form.tensors() {
            match &slot.source {
                TensorSource::SameAs(other) => {
                    let (other, _) = form.tensor(&other.value).ok_or(RuleMismatch::NotConstant)?;
                    let (own, other) = (dims(inputs, index)?, dims(inputs, other)?);
                    let is_same = equal_values(&ExprValue::List(own), &ExprValue::List(other));
                    require(is_same.map_err(ExprErrorKind::from)?, needs, String::new)?;
                }
                TensorSource::Fill(fill) => require_fill(fill, &dims(logical, index)?, bindings, needs)?,
            }
        }
        for argument in form.arguments.values() {
            require_argument(argument, bindings, needs)?;
        }
        for expr in self.cost_of(form).into_iter().flatten() {
            require_value(&ExprValue::Number(expr.evaluate_number(bindings)?), needs)?;
        }
        Ok(())
    }
}

fn require_fill(
    fill: &Fill<Expr>,
    dims: &[CompiledNode],
    bindings: &Bindings<CompiledNode>,
    needs: &mut Vec<CompiledNode>,
) -> Result<(), RuleMismatch> {
    let bound = |bound: &Expr| bound.evaluate_number(bindings).map_err(RuleMismatch::from);
    let list = |list: &Expr| {
        let items = list.evaluate_as(bindings, ExprValue::to_items)?;
        items.iter().map(|item| item.constant().ok_or(RuleMismatch::NotConstant)).collect()
    };
    check_fill(&fill.try_map(bound, list)?, "", dims, needs)
}

fn require_argument(
    argument: &DeclaredArgument,
    bindings: &Bindings<CompiledNode>,
    needs: &mut Vec<CompiledNode>,
) -> Result<(), RuleMismatch> {
    match argument {
        DeclaredArgument::Constant(_)
        | DeclaredArgument::Destination(_)
        | DeclaredArgument::SameAs(_)
        | DeclaredArgument::DtypeOf { .. } => Ok(()),
        DeclaredArgument::ProcessGroup(expr) => {
            require_value(&ExprValue::Number(expr.evaluate_number(bindings)?), needs)
        }
        DeclaredArgument::Expression(expr) => require_value(&expr.evaluate(bindings)?, needs),
        DeclaredArgument::InverseRoot(expr) => {
            let number = expr.evaluate_number(bindings)?;
            let limit = CompiledNode::Constant(i64::from(u32::MAX));
            for (number, least) in [(number.clone(), CompiledNode::Constant(1)), (limit, number)] {
                let is_enough = CompiledNode::apply(BinaryOperator::GreaterEqual, number, least);
                require(is_enough.map_err(ExprErrorKind::from)?, needs, String::new)?;
            }
            Ok(())
        }
        DeclaredArgument::Tensor { dims, fill, .. } => {
            let dims = dims.shape_nodes(bindings, needs)?.into_iter().next();
            require_fill(fill, &dims.unwrap_or_default(), bindings, needs)
        }
        DeclaredArgument::Attribute(_) => Err(RuleMismatch::NotConstant),
    }
}
