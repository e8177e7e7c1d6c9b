//! Changes the dimensions of a case in the form that it fits. Inputs and outputs are rebuilt from the form's terms, and
//! names that a condition equates with others or that aligned lists share change as well. The result may be invalid;
//! [`CatalogueEntry::resolve_call`] checks it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use super::{
    Bindings, CatalogueEntry, DimensionRole, EntryForm, ExprValue, InputSlot, NotReplayable, TensorSlot,
    arguments::{blocked_dims, logical_dims},
    resolve::attribute_bindings,
    shape_rule::PatternTerm,
};
use crate::kernel::expression::{AlignedLists, NameEquality, evaluate};
use crate::kernel::{Case, CaseAttributes, Dims, Dtype, Slot, Tensor, TensorFormat};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FormDimension {
    name: String,
    place: Option<usize>,
}

impl fmt::Display for FormDimension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            None => f.write_str(&self.name),
            Some(place) => write!(f, "{}[{place}]", self.name),
        }
    }
}

#[derive(Clone, Debug)]
pub struct CaseEditor<'a> {
    pub(crate) entry: &'a CatalogueEntry,
    form: &'a EntryForm,
    pub(crate) case: &'a Case,
    bindings: Bindings,
    equalities: Vec<NameEquality>,
    pairs: Vec<AlignedLists>,
}

impl CatalogueEntry {
    pub fn edit_case<'a>(&'a self, case: &'a Case) -> Result<CaseEditor<'a>, NotReplayable> {
        let (form, bindings) = self.matching_form(case)?;
        let conditions = form.rule.conditions();
        let equalities =
            conditions.clone().flat_map(|condition| condition.root.equalities(&bindings)).collect();
        let pairs =
            conditions.chain(form.rule.outputs.exprs()).flat_map(super::Expr::aligned_lists).collect();
        Ok(CaseEditor { entry: self, form, case, bindings, equalities, pairs })
    }
}

impl<'a> CaseEditor<'a> {
    /// Returns the independent dimensions in the form's order, and only one of coupled ones.
    pub fn dimensions(&self) -> Vec<FormDimension> {
        let mut found: Vec<FormDimension> = Vec::new();
        for name in self.free_names() {
            let places = match self.bindings.get(name) {
                Some(ExprValue::Number(_)) => vec![None],
                Some(ExprValue::List(dims)) => (0..dims.len()).map(Some).collect(),
                _ => continue,
            };
            for place in places {
                let dimension = FormDimension { name: name.to_owned(), place };
                if !self.coupled_dimensions(&dimension).iter().any(|other| found.contains(other)) {
                    found.push(dimension);
                }
            }
        }
        found
    }

    fn free_names(&self) -> Vec<&'a str> {
        let tensors = self.form.tensors().filter_map(|(index, _)| self.form.rule.inputs.get(index));
        let inputs = tensors.flatten().flatten().filter_map(PatternTerm::name);
        let outputs = self.form.rule.outputs.bare_names();
        let follows = |name: &str| {
            self.equalities.iter().any(|(equal, value)| equal == name && !value.names().is_empty())
        };
        let inferred = |name: &str| self.form.rule.inferred.iter().any(|(inferred, _)| inferred == name);
        let mut seen = BTreeSet::new();
        inputs.chain(outputs).filter(|name| !follows(name) && !inferred(name) && seen.insert(*name)).collect()
    }

    pub(crate) fn dimension_value(&self, dimension: &FormDimension) -> Option<u64> {
        let value = match (self.bindings.get(&dimension.name)?, dimension.place) {
            (ExprValue::Number(number), None) => *number,
            (ExprValue::List(dims), Some(place)) => *dims.get(place)?,
            _ => return None,
        };
        u64::try_from(value).ok()
    }

    pub(crate) fn dimension_role(&self, dimension: &FormDimension) -> Option<DimensionRole> {
        let role = *self.entry.roles.get(&dimension.name)?;
        (role.is_kept() || matches!(dimension.place, None | Some(0))).then_some(role)
    }

    pub(crate) fn row_element_bytes(&self, dimension: &FormDimension) -> Option<u64> {
        let (slot, _) = self.form.tensors().find(|(index, _)| {
            let terms = self.form.rule.inputs.get(*index).and_then(Option::as_ref);
            match terms.and_then(|terms| terms.last()) {
                Some(PatternTerm::Name(name)) => *name == dimension.name,
                Some(PatternTerm::Rest(name)) => {
                    let length = self.list_length(name);
                    *name == dimension.name && length == dimension.place.map(|place| place + 1)
                }
                _ => false,
            }
        })?;
        self.case.input(slot)?.dtype.bytes()
    }

    fn list_length(&self, name: &str) -> Option<usize> {
        self.bindings.get(name)?.as_list().ok().map(<[i64]>::len)
    }

    pub(crate) fn dimension_at(&self, slot: usize, place: usize) -> Option<FormDimension> {
        match self.form.rule.inputs.get(slot)?.as_ref()?.get(place)? {
            PatternTerm::Name(name) => Some(FormDimension { name: name.clone(), place: None }),
            _ => None,
        }
    }

    /// Returns the dimensions that are aligned with one, directly or through other lists, and have its value.
    fn coupled_dimensions(&self, dimension: &FormDimension) -> Vec<FormDimension> {
        let mut alike = vec![dimension.clone()];
        let mut next = 0;
        while let Some(one) = alike.get(next).cloned() {
            next += 1;
            let Some(place) = one.place else { continue };
            for AlignedLists { names: [left, right], from_the_end } in &self.pairs {
                let other = match (one.name == *left, one.name == *right) {
                    (true, _) => right,
                    (_, true) => left,
                    _ => continue,
                };
                let lengths = (self.list_length(&one.name), self.list_length(other));
                let (Some(mine), Some(theirs)) = lengths else { continue };
                let place = if *from_the_end { (place + theirs).checked_sub(mine) } else { Some(place) };
                let Some(place) = place.filter(|place| *place < theirs) else { continue };
                let other = FormDimension { name: other.clone(), place: Some(place) };
                if self.dimension_value(&other) == self.dimension_value(&one) && !alike.contains(&other) {
                    alike.push(other);
                }
            }
        }
        alike
    }

    pub fn build_case(
        &self,
        changes: &[(FormDimension, u64)],
        attributes: Option<&CaseAttributes>,
    ) -> Result<Case, String> {
        let mut bindings = self.bindings.clone();
        let attributes = attributes.unwrap_or(&self.case.attributes);
        bindings.extend(attribute_bindings(attributes));
        for (dimension, value) in changes {
            let value = i64::try_from(*value).map_err(|_| format!("{dimension} does not fit 63 bits"))?;
            for FormDimension { name, place } in self.coupled_dimensions(dimension) {
                match (bindings.get(&name).cloned(), place) {
                    (Some(ExprValue::List(mut dims)), Some(place)) if place < dims.len() => {
                        dims[place] = value;
                        bindings.set(&name, ExprValue::List(dims));
                    }
                    _ => bindings.set(&name, ExprValue::Number(value)),
                }
            }
        }
        self.propagate_equalities(&mut bindings, changes);
        let shape = |(index, slot): (usize, &Slot)| match (self.form.rule.inputs.get(index), slot) {
            (Some(Some(terms)), Some(tensor)) => {
                let dims = input_dims(terms, &bindings)?;
                let (dtype, format) = (tensor.dtype.clone(), tensor.format.clone());
                Ok(Some(stored_tensor(tensor_slot(self.form, index), dims, dtype, format, Some(tensor))?))
            }
            _ => Ok(slot.clone()),
        };
        let inputs = self.case.inputs.iter().enumerate().map(shape).collect::<Result<_, String>>()?;
        let mut shapes = self.form.rule.outputs.evaluate_shapes(&bindings)?.into_iter();
        let mut outputs = self.case.outputs.clone();
        for tensor in outputs.iter_mut().flatten() {
            tensor.dims = check_positive(shapes.next().ok_or("the case has more outputs than the form")?)?;
        }
        let attributes = updated_attributes(attributes, &bindings);
        Ok(Case { kernel: self.case.kernel.clone(), inputs, outputs, attributes })
    }

    fn propagate_equalities(&self, bindings: &mut Bindings, changes: &[(FormDimension, u64)]) {
        for _ in 0..self.equalities.len() {
            let before = bindings.clone();
            for (name, value) in &self.equalities {
                let is_given = changes.iter().any(|(dimension, _)| dimension.name == *name);
                if let Ok(value) = evaluate(value, bindings)
                    && !is_given
                {
                    bindings.set(name, value);
                }
            }
            if *bindings == before {
                break;
            }
        }
    }
}

impl<'a> CaseEditor<'a> {
    pub(crate) fn with_dtypes(&self, types: &BTreeMap<Dtype, Dtype>) -> Option<Case> {
        let mut case = self.case.clone();
        let mut is_changed = false;
        for (index, slot) in case.inputs.iter_mut().enumerate() {
            let Some(tensor) = slot else { continue };
            let Some(dtype) = types.get(&tensor.dtype) else { continue };
            is_changed = true;
            let slot = tensor_slot(self.form, index);
            let logical = slot.and_then(|slot| logical_dims(slot, tensor).ok());
            let dims = logical.unwrap_or_else(|| tensor.dims.clone());
            *tensor = stored_tensor(slot, dims, dtype.clone(), tensor.format.clone(), Some(tensor)).ok()?;
        }
        for tensor in case.outputs.iter_mut().flatten() {
            if let Some(dtype) = types.get(&tensor.dtype) {
                tensor.dtype = dtype.clone();
            }
        }
        is_changed.then_some(case)
    }

    pub(crate) fn with_formats(
        &self,
        formats: &BTreeMap<TensorFormat, TensorFormat>,
    ) -> Vec<(&'a str, Case)> {
        let variant = |(index, slot): (usize, &'a TensorSlot)| {
            let tensor = self.case.input(index)?;
            let (_, format) = formats.iter().find(|(from, _)| from.same_layout(&tensor.format))?;
            let is_other =
                !format.same_layout(&tensor.format) && tensor.dims.len() >= 2 && slot.builds(format);
            let dims = logical_dims(slot, tensor).ok().filter(|_| is_other)?;
            let mut case = self.case.clone();
            let stored = stored_tensor(Some(slot), dims, tensor.dtype.clone(), format.clone(), None);
            case.inputs[index] = Some(stored.ok()?);
            Some((slot.argument.as_str(), case))
        };
        self.form.tensors().filter_map(variant).collect()
    }

    /// Returns the case in forms that differ by the transposition of one tensor in memory, with the argument's name.
    pub(crate) fn transposed_variants(&self) -> Vec<(&'a str, Case)> {
        let types = |case: &Case| -> Vec<Option<Dtype>> {
            let slots = case.inputs.iter().chain(&case.outputs);
            slots.map(|slot| slot.as_ref().map(|tensor| tensor.dtype.clone())).collect()
        };
        let variant = |form: &'a EntryForm| {
            let arguments = form.tensors().map(|(_, slot)| slot.argument.as_str());
            let differs = |name: &&str| form.is_transposed(name) != self.form.is_transposed(name);
            let differing: Vec<&'a str> = arguments.filter(differs).collect();
            let [argument] = differing[..] else { return None };
            let is_other = |index: usize| form.tensor(argument).is_some_and(|(place, _)| place == index);
            let mut slots = form.rule.inputs.iter().zip(&self.form.rule.inputs).enumerate();
            let is_same = form.rule.inputs.len() == self.form.rule.inputs.len()
                && form.with == self.form.with
                && slots.all(|(index, (theirs, mine))| is_other(index) || theirs == mine);
            let case = self.rebuild_in_form(self.entry, form).ok().filter(|_| is_same)?;
            (types(&case) == types(self.case)).then_some((argument, case))
        };
        self.entry.forms.iter().filter(|form| form.is_replayed()).filter_map(variant).collect()
    }

    /// Returns the same work in INT8, with the name of the form: forms of `entry` that quantise this kernel and have the
    /// same tensors transposed. If none of them has a case, the result is the error of the first.
    pub(crate) fn int8_variants<'b>(
        &self,
        entry: &'b CatalogueEntry,
    ) -> Vec<(&'b str, Result<Case, String>)> {
        let lying = |form: &EntryForm| -> Vec<usize> {
            let tensors = form.tensors().filter(|(_, slot)| form.is_transposed(&slot.argument));
            tensors.map(|(index, _)| index).collect()
        };
        let is_same = |form: &&EntryForm| {
            form.quantises.contains(&self.entry.kernel) && lying(form) == lying(self.form)
        };
        let forms = entry.forms.iter().filter(is_same);
        let mut cases: Vec<(&str, Result<Case, String>)> =
            forms.map(|form| (form.rule.name.as_str(), self.rebuild_in_form(entry, form))).collect();
        // Forms differ in the types of their outputs, so that some do not fit.
        if cases.iter().any(|(_, case)| case.is_ok()) {
            cases.retain(|(_, case)| case.is_ok());
        } else {
            cases.truncate(1);
        }
        cases
    }

    /// Returns the case in another form; types and formats that it does not accept become the first that it accepts.
    fn rebuild_in_form(&self, entry: &CatalogueEntry, form: &EntryForm) -> Result<Case, String> {
        let mut bindings = self.bindings.clone();
        let terms = || form.rule.inputs.iter().flatten().flatten();
        for term in terms() {
            let PatternTerm::Name(name) = term else { continue };
            if bindings.get(name).is_none() {
                let value = form.rule.conditions().find_map(|one| one.root.equated_value(name, &bindings));
                bindings.set(name, value.ok_or_else(|| format!("the form needs `{name}`"))?);
            }
        }
        let mut inputs: Vec<Slot> = Vec::with_capacity(form.inputs.len());
        for (index, (terms, declared)) in form.rule.inputs.iter().zip(&form.inputs).enumerate() {
            let Some(terms) = terms else {
                inputs.push(None);
                continue;
            };
            let dims = input_dims(terms, &bindings)?;
            let mine = self.case.input(index);
            inputs.push(Some(match declared {
                InputSlot::Tensor(slot) => {
                    let other = slot.same_type_as.as_ref().and_then(|name| form.tensor(&name.value));
                    let other = other.and_then(|(place, _)| inputs.get(place)?.as_ref());
                    let takes = |dtype: &&Dtype| slot.dtypes.is_empty() || slot.dtypes.contains(dtype);
                    let dtype = other.or(mine).map(|tensor| &tensor.dtype).filter(takes);
                    let dtype = dtype.or(slot.dtypes.first()).ok_or("the form does not determine a type")?;
                    let format = mine.map(|tensor| &tensor.format).filter(|format| slot.builds(format));
                    let format = format.cloned().unwrap_or_else(TensorFormat::nd);
                    stored_tensor(Some(slot), dims, dtype.clone(), format, None)?
                }
                InputSlot::Host(dtype) | InputSlot::Intermediate(dtype) | InputSlot::Omitted(dtype) => {
                    Tensor::new(dims, dtype.clone())
                }
                InputSlot::Ignored => return Err(format!("the type of slot {index} is not known")),
            }));
        }
        let outputs = entry.output_tensors(form, &bindings, &inputs, &self.case.outputs);
        let outputs = outputs?.into_iter().map(Some).collect();
        while inputs.last().is_some_and(Option::is_none) {
            inputs.pop();
        }
        let own = entry.kernel == self.entry.kernel;
        let kernel = if own { &self.case.kernel } else { &entry.kernel };
        Ok(Case { kernel: kernel.clone(), inputs, outputs, attributes: self.case.attributes.clone() })
    }
}

fn tensor_slot(form: &EntryForm, index: usize) -> Option<&TensorSlot> {
    match form.inputs.get(index) {
        Some(InputSlot::Tensor(slot)) => Some(slot),
        _ => None,
    }
}

/// Returns a tensor as the profiler shows it, with blocks if it shows the blocks of `like`, the tensor that it replaces.
fn stored_tensor(
    slot: Option<&TensorSlot>,
    dims: Vec<u64>,
    dtype: Dtype,
    format: TensorFormat,
    like: Option<&Tensor>,
) -> Result<Tensor, String> {
    let shows_blocks = match (slot, like) {
        (Some(slot), Some(tensor)) => logical_dims(slot, tensor).is_ok_and(|logical| logical != tensor.dims),
        (Some(slot), None) => !slot.shown_whole,
        (None, _) => false,
    };
    let dims = match &format {
        TensorFormat::Private(_) if shows_blocks => {
            blocked_dims(&dims, &dtype).ok_or("a blocked format needs a matrix")?
        }
        _ => dims,
    };
    Ok(Tensor { dims, dtype, format })
}

fn input_dims(terms: &[PatternTerm], bindings: &Bindings) -> Result<Vec<u64>, String> {
    let mut dims = Vec::with_capacity(terms.len());
    for term in terms {
        match (term, term.name().and_then(|name| bindings.get(name))) {
            (PatternTerm::Number(number), _) | (_, Some(ExprValue::Number(number))) => dims.push(*number),
            (_, Some(ExprValue::List(list))) => dims.extend(list),
            _ => return Err(format!("`{}` has no value", term.name().unwrap_or_default())),
        }
    }
    check_positive(dims.into_iter().map(|dim| u64::try_from(dim).unwrap_or_default()).collect())
}

fn check_positive(dims: Vec<u64>) -> Result<Vec<u64>, String> {
    if dims.contains(&0) { Err("a dimension of 0".to_owned()) } else { Ok(dims) }
}

fn updated_attributes(attributes: &CaseAttributes, bindings: &Bindings) -> CaseAttributes {
    let mut rewritten = attributes.clone();
    let before = attribute_bindings(attributes);
    for (column, _) in attributes.iter() {
        let name = CaseAttributes::variable_name(column);
        if let (Some(now), Some(then)) = (bindings.get(&name), before.get(&name))
            && now != then
            && let Ok(items) = now.to_items()
        {
            rewritten.set(column, &Dims(&items).to_string());
        }
    }
    rewritten
}
