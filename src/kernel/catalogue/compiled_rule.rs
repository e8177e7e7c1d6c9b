//! The forms of an entry, compiled for cases whose ranks, types and formats are the same, as the candidates of a grid
//! space are: a condition over their numbers for each check of [`CatalogueEntry::resolve_call`]. Forms with rules
//! backwards from an output, lists of lengths or attributes are not compiled.

use super::{
    Bindings, CatalogueEntry, CompiledExpr, DeclaredArgument, EntryForm, Expr, ExprValue, Fill, FormMismatch,
    TensorSource,
    mismatch::{MatchStage, RuleMatch},
    resolve::{bind_sizes, check_types, logical_inputs, require_group},
};
use crate::kernel::Case;
use crate::kernel::expression::{BinaryOperator, CompiledNode, ExprNumber, product};

#[derive(Clone, Debug)]
pub struct CompiledRule {
    pub(crate) forms: Vec<CompiledForm>,
}

#[derive(Clone, Debug)]
pub(crate) struct CompiledForm {
    fits: Vec<CompiledNode>,
    needs: Vec<CompiledNode>,
}

type SlotNodes = [Option<Vec<CompiledNode>>];

impl CompiledRule {
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
                Err(mismatch) if mismatch.stage == MatchStage::NotConstant => return None,
                Err(_) => {}
            }
        }
        Some(CompiledRule { forms })
    }

    fn compile_form(
        &self,
        form: &EntryForm,
        sample: &Case,
        inputs: &SlotNodes,
        outputs: &[Vec<CompiledNode>],
    ) -> Result<CompiledForm, FormMismatch> {
        let mut found = RuleMatch::new(Bindings::default());
        let logical = logical_inputs(form, sample, inputs.to_vec(), &mut found)?;
        let recorded = (!outputs.is_empty()).then_some(outputs);
        form.rule.bind(&logical, recorded, &mut found)?;
        require_group(form, &mut found)?;
        if !form.is_replayed() {
            return Ok(CompiledForm { fits: found.conditions, needs: vec![CompiledNode::Constant(0)] });
        }
        let outputs = form.rule.outputs.shape_nodes(&mut found)?;
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
        bind_sizes(&mut found.bindings, form, &input_sizes, &output_sizes);
        let fits = std::mem::take(&mut found.conditions);
        // The resolver takes a form that fits, and fails if the call contradicts it.
        let needed = self.require_call(form, inputs, &logical, &mut found);
        needed.map_err(|_| FormMismatch::not_constant())?;
        Ok(CompiledForm { fits, needs: found.conditions })
    }

    fn require_call(
        &self,
        form: &EntryForm,
        inputs: &SlotNodes,
        logical: &SlotNodes,
        found: &mut RuleMatch<CompiledNode>,
    ) -> Result<(), FormMismatch> {
        if let Some(returns) = &form.returns {
            returns.shape_nodes(found)?;
        }
        let dims = |dims: &SlotNodes, index: usize| {
            dims.get(index).cloned().flatten().ok_or_else(FormMismatch::not_constant)
        };
        for (index, slot) in form.tensors() {
            match &slot.source {
                TensorSource::SameAs(other) => {
                    let (other, _) = form.tensor(&other.value).ok_or_else(FormMismatch::not_constant)?;
                    let other = ExprValue::List(dims(inputs, other)?);
                    found.require(ExprValue::List(dims(inputs, index)?).equals(&other)?, String::new)?;
                }
                TensorSource::Fill(fill) => require_fill(fill, &dims(logical, index)?, found)?,
            }
        }
        for argument in form.arguments.values() {
            require_argument(argument, found)?;
        }
        self.cost_of(form).into_iter().flatten().try_for_each(|expr| require_number(expr, found))
    }
}

fn require_number(expr: &Expr, found: &mut RuleMatch<CompiledNode>) -> Result<(), FormMismatch> {
    let number = expr.evaluate_number(&found.bindings)?;
    found.require_value(&ExprValue::Number(number))
}

fn require_fill(
    fill: &Fill<Expr>,
    dims: &[CompiledNode],
    found: &mut RuleMatch<CompiledNode>,
) -> Result<(), FormMismatch> {
    let bound = |bound: &Expr| bound.evaluate_number(&found.bindings).map_err(FormMismatch::from);
    let list = |list: &Expr| {
        let items = list.evaluate_as(&found.bindings, ExprValue::to_items)?;
        items.iter().map(|item| item.constant().ok_or_else(FormMismatch::not_constant)).collect()
    };
    let fill = fill.try_map(bound, list)?;
    found.check_fill(&fill, "", dims)
}

fn require_argument(
    argument: &DeclaredArgument,
    found: &mut RuleMatch<CompiledNode>,
) -> Result<(), FormMismatch> {
    match argument {
        DeclaredArgument::Constant(_)
        | DeclaredArgument::Destination(_)
        | DeclaredArgument::SameAs(_)
        | DeclaredArgument::DtypeOf { .. } => Ok(()),
        DeclaredArgument::ProcessGroup { ranks, .. } => require_number(ranks, found),
        DeclaredArgument::Expression(expr) => {
            let value = expr.evaluate(&found.bindings)?;
            found.require_value(&value)
        }
        DeclaredArgument::InverseRoot(expr) => {
            let number = expr.evaluate_number(&found.bindings)?;
            found.compare(&number, BinaryOperator::GreaterEqual, 1, String::new)?;
            found.compare(&number, BinaryOperator::LessEqual, i64::from(u32::MAX), String::new)
        }
        DeclaredArgument::Tensor { dims, fill, .. } => {
            let dims = dims.shape_nodes(found)?.into_iter().next();
            require_fill(fill, &dims.unwrap_or_default(), found)
        }
        DeclaredArgument::Attribute(_) => Err(FormMismatch::not_constant()),
    }
}
