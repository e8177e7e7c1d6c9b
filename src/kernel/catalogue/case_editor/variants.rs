//! Variants of a case with other types, formats or forms: transposed weights, work in INT8.

use std::collections::BTreeMap;

use super::{CaseEditor, input_dims, stored_tensor, tensor_slot};
use crate::kernel::{
    Case, Dtype, Slot, Tensor, TensorFormat,
    catalogue::{
        CatalogueEntry, EntryForm, InputSlot, blocked_layout::logical_dims, slot_pattern::PatternTerm,
    },
};

impl<'a> CaseEditor<'a> {
    /// Returns the case with types replaced; `None` if it has none of them.
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

    /// Returns the case with one tensor at a time in another format, with the argument's name.
    pub(crate) fn with_formats(
        &self,
        formats: &BTreeMap<TensorFormat, TensorFormat>,
    ) -> Vec<(&'a str, Case)> {
        let mut found = Vec::new();
        for (index, slot) in self.form.tensors() {
            let Some(tensor) = self.case.input(index) else { continue };
            let other = formats.iter().find(|(from, _)| from.same_layout(&tensor.format)).map(|(_, to)| to);
            let Some(format) = other.filter(|format| !format.same_layout(&tensor.format)) else { continue };
            if tensor.dims.len() < 2 || !slot.builds(format) {
                continue;
            }
            let Ok(dims) = logical_dims(slot, tensor) else { continue };
            if let Ok(stored) = stored_tensor(Some(slot), dims, tensor.dtype.clone(), format.clone(), None) {
                let mut case = self.case.clone();
                case.inputs[index] = Some(stored);
                found.push((slot.argument.as_str(), case));
            }
        }
        found
    }

    /// Returns the case in forms that differ by the transposition of one tensor in memory, with the argument's name.
    pub(crate) fn transposed_variants(&self) -> Vec<(&'a str, Case)> {
        let mut found: Vec<(&'a str, Case)> = Vec::new();
        for form in self.entry.forms.iter().filter(|form| form.is_replayed()) {
            let differing: Vec<&str> = (form.tensors().map(|(_, slot)| slot.argument.as_str()))
                .filter(|name| form.is_transposed(name) != self.form.is_transposed(name))
                .collect();
            let [argument] = differing[..] else { continue };
            let is_other = |index: usize| form.tensor(argument).is_some_and(|(place, _)| place == index);
            let same = form.rule.inputs.len() == self.form.rule.inputs.len()
                && form.with == self.form.with
                && (form.rule.inputs.iter().zip(&self.form.rule.inputs).enumerate())
                    .all(|(index, (theirs, mine))| is_other(index) || theirs == mine);
            let Some(case) = self.rebuild_in_form(self.entry, form).ok().filter(|_| same) else { continue };
            let types = |case: &Case| -> Vec<Option<Dtype>> {
                let slots = case.inputs.iter().chain(&case.outputs);
                slots.map(|slot| slot.as_ref().map(|tensor| tensor.dtype.clone())).collect()
            };
            if types(&case) == types(self.case) {
                found.push((argument, case));
            }
        }
        found
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
        let forms = entry
            .forms
            .iter()
            .filter(|form| form.quantises.contains(&self.entry.kernel) && lying(form) == lying(self.form));
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
                let value = form.rule.conditions().find_map(|one| one.equated_value(name, &bindings));
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
        let outputs = outputs.map_err(|refusal| refusal.to_string())?.into_iter().map(Some).collect();
        while inputs.last().is_some_and(Option::is_none) {
            inputs.pop();
        }
        let own = entry.kernel == self.entry.kernel;
        let kernel = if own { &self.case.kernel } else { &entry.kernel };
        Ok(Case { kernel: kernel.clone(), inputs, outputs, attributes: self.case.attributes.clone() })
    }
}
