//! An entry's shape rule, compiled for one space of a grid: the ranks, types and formats of all its candidates
//! are the same, so that only numbers are left to compare.
//!
//! It answers one question: would [`CatalogueEntry::read`] take this candidate in this form? What it cannot say (rules that
//! look backwards from an output, lists of lengths, attributes) is not compiled, and what depends on types alone
//! is left to one [`CatalogueEntry::read`] for each form.

use std::collections::BTreeMap;

use crate::{
    catalogue::{
        CatalogueEntry, DeclaredArgument, EntryForm, Expr, Fill, TensorSlot, TensorSource,
        expr::{
            BinaryOperator,
            compiled::{CompileExprError, CompiledNode, LoweredValue, meaning_of, product},
        },
        shape_rule::{OutputTerm, PatternTerm},
    },
    domain::{Case, Tensor, TensorFormat},
    grid::definition::{CandidateSpace, SlotTemplate},
};

/// The forms of an entry that a space's candidates may have, in their order.
#[derive(Clone, Debug)]
pub struct CompiledRule {
    forms: Vec<QuickForm>,
}

#[derive(Clone, Debug, Default)]
struct QuickForm {
    /// Must hold, or the form does not fit.
    fits: Vec<CompiledNode>,
    /// Must hold besides, or the case is refused.
    needs: Vec<CompiledNode>,
}

/// Why a form is not compiled.
enum CompileError {
    /// It fits no candidate.
    Misfit,
    /// Only [`CatalogueEntry::read`] knows.
    Unsaid,
}

impl From<CompileExprError> for CompileError {
    fn from(error: CompileExprError) -> Self {
        match error {
            CompileExprError::Unknown(_) => Self::Misfit,
            CompileExprError::NotNumeric(_) => Self::Unsaid,
        }
    }
}

type Names = BTreeMap<String, LoweredValue>;

impl CompiledRule {
    /// The number of the form that takes a candidate; `None` where none does.
    #[must_use]
    pub fn form(&self, numbers: &[i64]) -> Option<usize> {
        let holds = |terms: &[CompiledNode]| terms.iter().all(|term| matches!(term.value(numbers), Ok(1..)));
        let form = self.forms.iter().position(|form| holds(&form.fits))?;
        holds(&self.forms[form].needs).then_some(form)
    }

    /// How many forms there are.
    #[must_use]
    pub const fn forms(&self) -> usize {
        self.forms.len()
    }
}

impl CatalogueEntry {
    /// The rule for the candidates of a space; `None` where it cannot be compiled.
    #[must_use]
    pub fn quick(&self, space: &CandidateSpace) -> Option<CompiledRule> {
        if !space.attributes.is_empty() {
            return None;
        }
        let sample = space.blank(1);
        let mut forms = Vec::new();
        for form in &self.forms {
            if (form.of_list && form.inputs.len() != sample.inputs.len())
                || self.check_slots(form, &sample).is_err()
            {
                continue;
            }
            match self.quick_form(form, space, &sample) {
                Ok(form) => forms.push(form),
                Err(CompileError::Misfit) => {}
                Err(CompileError::Unsaid) => return None,
            }
        }
        Some(CompiledRule { forms })
    }

    fn quick_form(
        &self,
        form: &EntryForm,
        space: &CandidateSpace,
        sample: &Case,
    ) -> Result<QuickForm, CompileError> {
        let mut quick = QuickForm::default();
        let inputs: Vec<Option<Vec<CompiledNode>>> =
            space.inputs.iter().take(sample.inputs.len()).map(terms_of).collect();
        let logical: Vec<Option<Vec<CompiledNode>>> = inputs
            .iter()
            .enumerate()
            .map(|(index, dims)| {
                let slot = form.tensors().find(|(place, _)| *place == index).map(|(_, slot)| slot);
                let format = space.inputs[index].as_ref().map(|tensor| &tensor.format);
                dims.clone().map(|dims| logical(dims, slot, format))
            })
            .collect();
        let mut names = Names::new();
        quick.bind_inputs(form, &logical, &mut names)?;
        let recorded: Vec<Vec<CompiledNode>> = space.outputs.iter().filter_map(terms_of).collect();
        if !form.rule.inferred.is_empty() {
            return Err(CompileError::Unsaid);
        }
        if !recorded.is_empty() {
            quick.bind_outputs(form, &recorded, &mut names)?;
        }
        for condition in &form.rule.conditions {
            match meaning(condition, &names)? {
                LoweredValue::Truth(term) => quick.fits.push(term),
                _ => return Err(CompileError::Misfit),
            }
        }
        let mut outputs = Vec::new();
        for terms in &form.rule.outputs {
            outputs.push(quick.dims(terms, &names)?);
        }
        for terms in form.returns.iter().flat_map(|returns| &returns.0) {
            quick.dims(terms, &names)?;
        }
        self.sizes(form, sample, &inputs, &outputs, &mut names);
        for (index, slot) in form.tensors() {
            let Some(dims) = logical.get(index).and_then(Option::as_ref) else {
                return Err(CompileError::Misfit);
            };
            match &slot.source {
                TensorSource::SameAs(other) => {
                    let other = form.tensor(other).and_then(|(place, _)| inputs.get(place)?.as_ref());
                    quick.same(inputs[index].as_ref(), other)?;
                }
                TensorSource::Fill(fill) => quick.values(fill, dims, &names)?,
            }
        }
        for argument in form.arguments.values() {
            quick.argument(argument, &names)?;
        }
        let work = [form.flops.as_ref().or(self.flops.as_ref()), form.bytes.as_ref().or(self.bytes.as_ref())];
        for expr in work.into_iter().flatten() {
            let term = number(expr, &names)?;
            quick.has_value(term);
        }
        quick.drop_what_is_certain()
    }

    /// Sizes that expressions of work may use. They stay far below what overflows: the memory is checked first.
    fn sizes(
        &self,
        form: &EntryForm,
        sample: &Case,
        inputs: &[Option<Vec<CompiledNode>>],
        outputs: &[Vec<CompiledNode>],
        names: &mut Names,
    ) {
        let bytes = |tensor: Option<&Tensor>| {
            let bytes = tensor.map_or(4, |tensor| tensor.dtype.bytes().unwrap_or(2));
            CompiledNode::Number(i64::try_from(bytes).unwrap_or(8))
        };
        let sum = |terms: &mut dyn Iterator<Item = CompiledNode>| {
            terms.fold(CompiledNode::Number(0), |sum, term| sum.compared(BinaryOperator::Add, term))
        };
        let inputs: Vec<(CompiledNode, CompiledNode)> = inputs
            .iter()
            .zip(&sample.inputs)
            .filter_map(|(dims, slot)| {
                let numel = product(dims.as_ref()?);
                Some((numel.clone(), numel.times(bytes(slot.as_ref()))))
            })
            .collect();
        let outputs: Vec<(CompiledNode, CompiledNode)> = outputs
            .iter()
            .enumerate()
            .map(|(index, dims)| {
                let numel = product(dims);
                (numel.clone(), numel.times(bytes(sample.outputs.get(index).and_then(Option::as_ref))))
            })
            .collect();
        let mut set =
            |name: &str, term: CompiledNode| names.insert(name.to_owned(), LoweredValue::Number(term));
        set("in_numel", sum(&mut inputs.iter().map(|(numel, _)| numel.clone())));
        set("in_bytes", sum(&mut inputs.iter().map(|(_, bytes)| bytes.clone())));
        set("out_numel", sum(&mut outputs.iter().map(|(numel, _)| numel.clone())));
        set("out_bytes", sum(&mut outputs.iter().map(|(_, bytes)| bytes.clone())));
        for (index, slot) in form.tensors() {
            let place = sample.inputs[..index.min(sample.inputs.len())].iter().flatten().count();
            let term = inputs.get(place).map_or(CompiledNode::Number(0), |(_, bytes)| bytes.clone());
            set(&format!("{}_bytes", slot.argument), term);
        }
    }
}

impl QuickForm {
    fn bind_inputs(
        &mut self,
        form: &EntryForm,
        inputs: &[Option<Vec<CompiledNode>>],
        names: &mut Names,
    ) -> Result<(), CompileError> {
        if inputs.len() > form.rule.inputs.len() {
            return Err(CompileError::Misfit);
        }
        for (slot, terms) in form.rule.inputs.iter().enumerate() {
            match (terms, inputs.get(slot).and_then(Option::as_ref)) {
                (None, None) => {}
                (None, Some(dims)) if dims.is_empty() => {}
                (Some(terms), Some(dims)) => self.bind_slot(terms, dims, names)?,
                _ => return Err(CompileError::Misfit),
            }
        }
        Ok(())
    }

    fn bind_slot(
        &mut self,
        terms: &[PatternTerm],
        dims: &[CompiledNode],
        names: &mut Names,
    ) -> Result<(), CompileError> {
        let sequence = terms.iter().any(|term| matches!(term, PatternTerm::Rest(_)));
        let fixed = terms.len() - usize::from(sequence);
        if dims.len() < fixed || (!sequence && dims.len() != fixed) {
            return Err(CompileError::Misfit);
        }
        let (mut at, spread) = (0, dims.len() - fixed);
        for term in terms {
            match term {
                PatternTerm::Rest(name) => {
                    self.unify(name, LoweredValue::List(dims[at..at + spread].to_vec()), names)?;
                    at += spread;
                    continue;
                }
                PatternTerm::Name(name) => self.unify(name, LoweredValue::Number(dims[at].clone()), names)?,
                PatternTerm::Number(number) => {
                    self.fits.push(dims[at].clone().equal(CompiledNode::Number(*number)));
                }
            }
            at += 1;
        }
        Ok(())
    }

    fn unify(&mut self, name: &str, meaning: LoweredValue, names: &mut Names) -> Result<(), CompileError> {
        match (names.get(name), &meaning) {
            (None, _) => {
                names.insert(name.to_owned(), meaning);
            }
            (Some(LoweredValue::Number(known)), LoweredValue::Number(new)) => {
                self.fits.push(known.clone().equal(new.clone()));
            }
            (Some(LoweredValue::List(known)), LoweredValue::List(new)) if known.len() == new.len() => {
                self.fits.extend(known.iter().zip(new).map(|(l, r)| l.clone().equal(r.clone())));
            }
            _ => return Err(CompileError::Misfit),
        }
        Ok(())
    }

    fn bind_outputs(
        &mut self,
        form: &EntryForm,
        recorded: &[Vec<CompiledNode>],
        names: &mut Names,
    ) -> Result<(), CompileError> {
        let outputs = &form.rule.outputs;
        let left_out = outputs.iter().rev().take_while(|terms| terms.is_empty()).count();
        if recorded.len() > outputs.len() || recorded.len() < (outputs.len() - left_out).max(1) {
            return Err(CompileError::Misfit);
        }
        for (terms, recorded) in outputs.iter().zip(recorded) {
            if let [OutputTerm::Sequence(name)] = terms.as_slice()
                && !names.contains_key(name)
            {
                names.insert(name.clone(), LoweredValue::List(recorded.clone()));
                continue;
            }
            bind_open_names(terms, recorded, names)?;
            let expected = output_dims(terms, names)?;
            if expected.len() != recorded.len() {
                return Err(CompileError::Misfit);
            }
            self.fits.extend(expected.into_iter().zip(recorded).map(|(l, r)| l.equal(r.clone())));
        }
        Ok(())
    }

    /// Dimensions that must not be negative.
    fn dims(&mut self, terms: &[OutputTerm], names: &Names) -> Result<Vec<CompiledNode>, CompileError> {
        let dims = output_dims(terms, names).map_err(|_| CompileError::Unsaid)?;
        self.needs.extend(
            dims.iter()
                .map(|dim| dim.clone().compared(BinaryOperator::GreaterEqual, CompiledNode::Number(0))),
        );
        Ok(dims)
    }

    fn has_value(&mut self, term: CompiledNode) {
        self.needs.push(term.clone().compared(BinaryOperator::GreaterEqual, term));
    }

    fn at_least(&mut self, bound: &Expr, least: CompiledNode, names: &Names) -> Result<(), CompileError> {
        let bound = number(bound, names)?;
        self.needs.push(bound.clone().compared(BinaryOperator::GreaterEqual, CompiledNode::Number(1)));
        self.needs.push(bound.compared(BinaryOperator::GreaterEqual, least));
        Ok(())
    }

    fn same(
        &mut self,
        own: Option<&Vec<CompiledNode>>,
        other: Option<&Vec<CompiledNode>>,
    ) -> Result<(), CompileError> {
        match (own, other) {
            (Some(own), Some(other)) if own.len() == other.len() => {
                self.needs.extend(own.iter().zip(other).map(|(l, r)| l.clone().equal(r.clone())));
                Ok(())
            }
            _ => Err(CompileError::Unsaid),
        }
    }

    fn values(
        &mut self,
        values: &Fill<Expr>,
        dims: &[CompiledNode],
        names: &Names,
    ) -> Result<(), CompileError> {
        let last = || dims.last().cloned().unwrap_or(CompiledNode::Number(1));
        match values {
            Fill::Activation
            | Fill::Weight
            | Fill::Ones
            | Fill::Zeros
            | Fill::Scales
            | Fill::Causal
            | Fill::Empty => Ok(()),
            Fill::Index { below: bound } | Fill::Zipf { below: bound } | Fill::Counting { below: bound } => {
                self.at_least(bound, CompiledNode::Number(1), names)
            }
            Fill::Distinct { below: bound } => self.at_least(bound, product(dims), names),
            Fill::Experts { below: bound } | Fill::Picks { below: bound } => {
                self.at_least(bound, last(), names)
            }
            Fill::Cumulative { total } | Fill::Counts { total } => {
                let term = number(total, names)?;
                self.has_value(term);
                Ok(())
            }
            Fill::Listed { .. } | Fill::Blocks { .. } => Err(CompileError::Unsaid),
        }
    }

    fn argument(&mut self, argument: &DeclaredArgument, names: &Names) -> Result<(), CompileError> {
        match argument {
            DeclaredArgument::Constant(_)
            | DeclaredArgument::Destination(_)
            | DeclaredArgument::DtypeOf { .. } => Ok(()),
            DeclaredArgument::ProcessGroup(ranks) => {
                let term = number(ranks, names)?;
                self.has_value(term);
                Ok(())
            }
            DeclaredArgument::Expression(expr) => {
                let terms = match meaning(expr, names).map_err(|_| CompileError::Unsaid)? {
                    LoweredValue::Number(term) | LoweredValue::Truth(term) => vec![term],
                    LoweredValue::List(terms) => terms,
                };
                terms.into_iter().for_each(|term| self.has_value(term));
                Ok(())
            }
            DeclaredArgument::InverseRoot(expr) => {
                let term = number(expr, names)?;
                self.needs.push(term.clone().compared(BinaryOperator::Greater, CompiledNode::Number(0)));
                self.needs.push(
                    term.compared(BinaryOperator::LessEqual, CompiledNode::Number(i64::from(u32::MAX))),
                );
                Ok(())
            }
            DeclaredArgument::Tensor { dims, fill, .. } => {
                let Some(terms) = dims.0.first() else { return Err(CompileError::Unsaid) };
                let dims = self.dims(terms, names)?;
                self.values(fill, &dims, names)
            }
            DeclaredArgument::Attribute(_) => Err(CompileError::Unsaid),
        }
    }

    /// Terms that are always true need not be asked; one that never is refuses the form.
    fn drop_what_is_certain(mut self) -> Result<Self, CompileError> {
        if self.fits.contains(&CompiledNode::Number(0)) {
            return Err(CompileError::Misfit);
        }
        self.fits.retain(|term| *term != CompiledNode::Number(1));
        self.needs.retain(|term| *term != CompiledNode::Number(1));
        Ok(self)
    }
}

fn meaning(expr: &Expr, names: &Names) -> Result<LoweredValue, CompileExprError> {
    meaning_of(&expr.root, &|name| names.get(name).cloned())
}

fn number(expr: &Expr, names: &Names) -> Result<CompiledNode, CompileError> {
    match meaning(expr, names).map_err(|_| CompileError::Unsaid)? {
        LoweredValue::Number(term) => Ok(term),
        LoweredValue::List(terms) => Ok(product(&terms)),
        LoweredValue::Truth(_) => Err(CompileError::Unsaid),
    }
}

/// As the slower rule does: names that the inputs leave open get the dimensions that stand in their places.
fn bind_open_names(
    terms: &[OutputTerm],
    recorded: &[CompiledNode],
    names: &mut Names,
) -> Result<(), CompileError> {
    let mut at = 0;
    for term in terms {
        if let OutputTerm::Expr(expr) = term
            && let Some(name) = expr.bare_name()
            && !names.contains_key(name)
            && let Some(dim) = recorded.get(at)
        {
            names.insert(name.to_owned(), LoweredValue::Number(dim.clone()));
        }
        match output_dims(std::slice::from_ref(term), names) {
            Ok(dims) => at += dims.len(),
            Err(CompileError::Misfit) => return Ok(()),
            Err(CompileError::Unsaid) => return Err(CompileError::Unsaid),
        }
    }
    Ok(())
}

fn output_dims(terms: &[OutputTerm], names: &Names) -> Result<Vec<CompiledNode>, CompileError> {
    let mut dims = Vec::new();
    for term in terms {
        let meaning = match term {
            OutputTerm::Sequence(name) => names.get(name).cloned().ok_or(CompileError::Misfit)?,
            OutputTerm::Expr(expr) => meaning(expr, names)?,
        };
        match meaning {
            LoweredValue::Number(term) => dims.push(term),
            LoweredValue::List(terms) => dims.extend(terms),
            LoweredValue::Truth(_) => return Err(CompileError::Misfit),
        }
    }
    Ok(dims)
}

fn terms_of(slot: &SlotTemplate) -> Option<Vec<CompiledNode>> {
    Some(slot.as_ref()?.dims.iter().map(|formula| formula.term.clone()).collect())
}

/// The dimensions that torch sees of a blocked matrix.
fn logical(
    dims: Vec<CompiledNode>,
    slot: Option<&TensorSlot>,
    format: Option<&TensorFormat>,
) -> Vec<CompiledNode> {
    match (format, slot, dims.as_slice()) {
        (Some(TensorFormat::Private(_)), Some(slot), [batch @ .., c1, r1, r0, c0])
            if slot.formats.iter().any(|format| format == "FRACTAL_NZ") =>
        {
            let matrix = [r1.clone().times(r0.clone()), c1.clone().times(c0.clone())];
            batch.iter().cloned().chain(matrix).collect()
        }
        _ => dims,
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        catalogue::Catalogue,
        config::AssetFiles,
        grid::definition::{GridFiles, GridModels},
    };

    #[test]
    fn the_large_grids_are_compiled() {
        let assets = AssetFiles::embedded();
        let models = GridModels::load(&assets, &[]).expect("the models");
        let grids = GridFiles::load(&assets, &models).expect("the grids");
        let catalogue = Catalogue::load(&assets).expect("the catalogue");
        let slow = grids.spaces().iter().filter_map(|space| {
            let entry = catalogue.entry(&space.kernel)?;
            entry.quick(space).is_none().then_some((space.kernel.as_str(), space.candidates()))
        });
        let slow: Vec<(&str, u64)> = slow.collect();
        assert!(slow.iter().all(|(_, candidates)| *candidates < 1000), "{slow:?}");
    }
}
