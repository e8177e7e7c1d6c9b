//! Resolves a case: the form that it fits, the arguments of the call, its outputs and its work.

mod attributes;
mod mismatch;

use std::collections::BTreeSet;

use attributes::{check_implied, check_numbers, unused_attributes};
use mismatch::{FormMismatch, MatchStage, no_form_fits};

use super::{
    Bindings, CallArgument, CatalogueEntry, DeclaredArgument, EntryForm, Expr, ExprValue, InputSlot,
    NotReplayable, OutputDtype, ShapeRule, TensorSlot,
    arguments::ArgumentResolver,
    blocked_layout::unblocked_dims,
    not_replayable::{contradiction, missing_attribute, not_covered},
    rule_error::RuleMismatch,
    shape_rule::to_signed,
};
use crate::kernel::expression::{BinaryOperator, ExprNumber};
use crate::kernel::{
    Case, CaseAttributes, Cause, Dtype, KernelName, Slot, Tensor, TensorFormat, device::KernelWork,
};

#[derive(Clone, Debug)]
pub struct ResolvedCall {
    pub(crate) form: String,
    /// The kernel whose entry defines the call: that of the case, or the one as which the form runs.
    pub(crate) definition: KernelName,
    /// The Python function that launches the form.
    pub(crate) api: String,
    /// Assumptions about what the shapes do not determine.
    pub(crate) notes: Vec<Cause>,
    pub(crate) arguments: Vec<CallArgument>,
    /// Outputs by the shape rule, as the profiler shows them.
    pub(crate) outputs: Vec<Tensor>,
    /// Shapes of the tensors that the call returns in Python.
    pub(crate) returns: Vec<Vec<u64>>,
    /// Least work of the device.
    pub(crate) work: KernelWork,
}

impl CatalogueEntry {
    /// Resolves the call by the first form that fits; the error lists what contradicts the entry.
    pub fn resolve_call(&self, case: &Case) -> Result<ResolvedCall, NotReplayable> {
        if let Some(why) = case.attributes.contradicting_shape() {
            return Err(contradiction(why));
        }
        check_numbers(self, &case.attributes)?;
        check_elements(case)?;
        let attempts: Vec<(&EntryForm, Result<Bindings, FormMismatch>)> =
            self.forms_for(case).map(|form| (form, self.match_form(form, case))).collect();
        if attempts.is_empty() {
            let (least, most) = self.forms.iter().fold((usize::MAX, 0), |(least, most), form| {
                (least.min(form.inputs.len()), most.max(form.inputs.len()))
            });
            let count = case.inputs.len();
            return Err(not_covered(format!(
                "recorded input slots: {count}, the entry of {} reads {least} to {most}",
                self.kernel
            )));
        }
        let fitting: Vec<(&EntryForm, &Bindings)> =
            attempts.iter().filter_map(|(form, bound)| bound.as_ref().ok().map(|b| (*form, b))).collect();
        let Some(&(form, bindings)) = fitting.first() else {
            return Err(no_form_fits(case, &self.mismatches(case, attempts)));
        };
        check_replayed(form)?;
        let outputs = self.output_tensors(form, bindings, &case.inputs, &case.outputs)?;
        let returns = form.returns.as_ref().map(|returns| returns.evaluate_shapes(bindings)).transpose();
        let returns = returns.map_err(contradiction)?;
        let mut bindings = bindings.clone();
        let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let sizes = |tensor: &Tensor| (signed(tensor.element_count()), signed(tensor.bytes()));
        let input_sizes: Vec<_> = case.inputs.iter().map(|slot| slot.as_ref().map(sizes)).collect();
        let output_sizes: Vec<_> = outputs.iter().map(sizes).collect();
        bind_sizes(&mut bindings, form, &input_sizes, &output_sizes);
        Ok(ResolvedCall {
            form: form.rule.name.clone(),
            definition: self.definition_of(form).clone(),
            api: self.operator_of(form).api.clone(),
            notes: self.collect_notes(form, &fitting, &case.inputs),
            arguments: ArgumentResolver { entry: self, form, bindings: &bindings, outputs: &outputs, case }
                .all()?,
            work: self.kernel_work(form, &bindings, case)?,
            returns: returns.unwrap_or_else(|| outputs.iter().map(|tensor| tensor.dims.clone()).collect()),
            outputs,
        })
    }

    /// Returns the forms that a case may fit: of those that differ in the length of a list, only one.
    pub(crate) fn forms_for(&self, case: &Case) -> impl Iterator<Item = &EntryForm> + use<'_> {
        let slots = case.inputs.len();
        self.forms.iter().filter(move |form| !form.of_list || form.inputs.len() == slots)
    }

    pub(crate) fn matching_form(&self, case: &Case) -> Result<(&EntryForm, Bindings), NotReplayable> {
        let mut fitting =
            self.forms_for(case).filter_map(|form| Some((form, self.match_form(form, case).ok()?)));
        match fitting.next() {
            Some((form, bindings)) => check_replayed(form).map(|()| (form, bindings)),
            None => Err(self.resolve_call(case).err().unwrap_or_else(|| contradiction("it fits no form"))),
        }
    }

    /// Returns the name of the form that a case fits, and the values of the names of its rule; `output` is the shape
    /// of the first output.
    pub(crate) fn bound_names(&self, case: &Case) -> Result<(&str, Bindings), NotReplayable> {
        let (form, mut bindings) = self.matching_form(case)?;
        let outputs = form.rule.outputs.evaluate_shapes(&bindings).map_err(contradiction)?;
        let first = outputs.first().map(|dims| to_signed(dims)).unwrap_or_default();
        bindings.set("output", ExprValue::List(first));
        Ok((&form.rule.name, bindings))
    }

    /// Returns the names that [`CatalogueEntry::bound_names`] may bind.
    pub(crate) fn bindable_names(&self) -> BTreeSet<&str> {
        let rules = self.forms.iter().map(|form| &form.rule);
        let conditions = rules.clone().flat_map(ShapeRule::conditions).flat_map(Expr::variable_names);
        rules.flat_map(ShapeRule::bound_names).chain(conditions).chain(["output"]).collect()
    }

    fn match_form(&self, form: &EntryForm, case: &Case) -> Result<Bindings, FormMismatch> {
        let refused_at = |stage| move |refusal: NotReplayable| FormMismatch::new(stage, &refusal);
        self.check_attributes(form, case).map_err(refused_at(MatchStage::Attributes))?;
        self.check_slots(form, case).map_err(refused_at(MatchStage::Structure))?;
        check_types(form, case).map_err(refused_at(MatchStage::Types))?;
        let bindings = bind_shapes(form, case)?;
        check_implied(form, &bindings, &case.attributes)
            .map_err(|refusal| FormMismatch::after_dimensions(&refusal))?;
        // A form with other output types is not the recorded one.
        let outputs = self.output_tensors(form, &bindings, &case.inputs, &case.outputs);
        let checked = outputs.and_then(|outputs| check_recorded_dtypes(&case.outputs, &outputs));
        checked.map_err(|refusal| FormMismatch::after_dimensions(&refusal))?;
        Ok(bindings)
    }

    /// Returns the mismatches of the forms that judge a case, with the numbers of their conflicts: of types whose form agrees
    /// with all dimensions, these are the only difference, and those of a form with other slots are one of several.
    fn mismatches<'a>(
        &self,
        case: &Case,
        attempts: Vec<(&'a EntryForm, Result<Bindings, FormMismatch>)>,
    ) -> Vec<(&'a EntryForm, FormMismatch)> {
        let misfits = attempts.into_iter().filter(|(form, _)| !form.special_case);
        let misfits = misfits.filter_map(|(form, bound)| Some((form, bound.err()?)));
        let misfits = misfits.map(|(form, mut mismatch)| {
            match mismatch.stage {
                MatchStage::Attributes => {
                    mismatch.conflicts = count_conflicts(form, case)
                        .saturating_add(self.attribute_conflicts(form, &case.attributes).count());
                }
                MatchStage::Types => match bind_shapes(form, case) {
                    Ok(_) => mismatch.stage = MatchStage::OnlyTypes,
                    Err(in_shapes) => {
                        if in_shapes.stage == MatchStage::Structure {
                            mismatch = in_shapes;
                        }
                        mismatch.conflicts = count_conflicts(form, case).saturating_add(1);
                    }
                },
                MatchStage::Structure | MatchStage::Conflict => {
                    mismatch.conflicts = count_conflicts(form, case);
                }
                MatchStage::OnlyTypes | MatchStage::Value | MatchStage::Limit => {}
            }
            (form, mismatch)
        });
        misfits.collect()
    }

    /// Checks that a form is for rows with the attributes of a case.
    pub(crate) fn check_attributes(&self, form: &EntryForm, case: &Case) -> Result<(), NotReplayable> {
        self.attribute_conflicts(form, &case.attributes).next().map_or(Ok(()), Err)
    }

    /// Returns the attributes that have another value than the form's, are not used by it, or are missing.
    fn attribute_conflicts<'a>(
        &'a self,
        form: &'a EntryForm,
        attributes: &'a CaseAttributes,
    ) -> impl Iterator<Item = NotReplayable> {
        let of_form = form.with.iter().filter_map(|(column, values)| match attributes.get(column) {
            Some(value) if values.iter().any(|wanted| wanted == value || wanted == "*") => None,
            Some(value) => Some(not_covered(format!("`{column}` is {value}, not {}", values.join(" or ")))),
            None => Some(missing_attribute(column)),
        });
        let arguments = form.arguments.values().filter_map(|argument| match argument {
            DeclaredArgument::Attribute(column) if !form.with.contains_key(column) => Some(column),
            _ => None,
        });
        let missing = arguments.filter(|column| attributes.get(column).is_none());
        let missing = missing.map(|column| missing_attribute(column));
        of_form.chain(unused_attributes(self, form, attributes)).chain(missing)
    }

    /// Checks that a form has the slots of a case.
    pub(crate) fn check_slots(&self, form: &EntryForm, case: &Case) -> Result<(), NotReplayable> {
        let count = case.inputs.len();
        let needed =
            (0..form.inputs.len()).rev().find(|slot| form.rule.takes_slot(*slot)).map_or(0, |last| last + 1);
        let is_missing = |slot: &usize| case.inputs[*slot].is_none() && form.rule.takes_slot(*slot);
        match (0..count.min(form.inputs.len())).find(is_missing) {
            Some(slot) => Err(not_covered(format!("input slot {slot} is empty, the call needs it"))),
            None if count > form.inputs.len() || count < needed => Err(not_covered(format!(
                "recorded input slots: {count}, the entry of {} reads {needed}",
                self.kernel
            ))),
            None => Ok(()),
        }
    }

    /// Returns the outputs of a form. `recorded` are the outputs in the profile, empty if there are none.
    pub(crate) fn output_tensors(
        &self,
        form: &EntryForm,
        bindings: &Bindings,
        inputs: &[Slot],
        recorded: &[Slot],
    ) -> Result<Vec<Tensor>, NotReplayable> {
        let shapes = form.rule.outputs.evaluate_shapes(bindings).map_err(contradiction)?;
        let dtype_of = |argument: &str| {
            let (slot, _) = form.tensor(argument)?;
            Some(&inputs.get(slot)?.as_ref()?.dtype)
        };
        let outputs = form.output_dtypes.iter().zip(shapes).enumerate().map(|(index, (declared, dims))| {
            let recorded = recorded.iter().flatten().nth(index);
            let dtype = match (declared, recorded) {
                (OutputDtype::SameAs(other) | OutputDtype::Blocked(other, _), _) => {
                    dtype_of(other).cloned().ok_or_else(|| {
                        not_covered(format!("output {index} is of the type of `{other}`, which is left out"))
                    })?
                }
                (OutputDtype::Fixed(dtype), _) => dtype.clone(),
                (OutputDtype::Promoted, _) => Dtype::promote_slots(inputs).map_err(not_covered)?,
                (OutputDtype::Recorded { allowed, .. }, None) => allowed[0].clone(),
                (OutputDtype::Recorded { allowed, unlike }, Some(Tensor { dtype, .. })) => {
                    if !allowed.contains(dtype) {
                        let allowed: Vec<&str> = allowed.iter().map(Dtype::as_str).collect();
                        let allowed = allowed.join(", ");
                        return Err(not_covered(format!(
                            "output {index} is recorded as {dtype}, the kernel gives {allowed}"
                        )));
                    }
                    if let Some(other) = unlike.as_ref().filter(|other| dtype_of(other) == Some(dtype)) {
                        return Err(not_covered(format!(
                            "output {index} is {dtype} as `{other}` is: nothing would be launched"
                        )));
                    }
                    dtype.clone()
                }
            };
            let OutputDtype::Blocked(_, format) = declared else { return Ok(Tensor::new(dims, dtype)) };
            match recorded.filter(|recorded| !recorded.format.same_layout(format)) {
                Some(Tensor { format: other, .. }) => Err(not_covered(format!(
                    "output {index} is recorded in the format {other}, the call gives {format}"
                ))),
                None => Ok(Tensor { format: format.clone(), ..Tensor::new(dims, dtype) }),
            }
        });
        outputs.collect()
    }

    fn collect_notes(
        &self,
        form: &EntryForm,
        fitting: &[(&EntryForm, &Bindings)],
        inputs: &[Slot],
    ) -> Vec<Cause> {
        let mut notes = Vec::new();
        let others = fitting.iter().skip(1).filter(|(other, _)| other.is_replayed());
        let others: Vec<String> = others.map(|(other, _)| other.rule.name.clone()).collect();
        if !others.is_empty() {
            notes.push(Cause::SeveralForms { form: form.rule.name.clone(), others });
        }
        for (index, TensorSlot { argument, number_for, .. }) in form.tensors() {
            let tensor = inputs.get(index).and_then(Option::as_ref).filter(|tensor| tensor.is_scalar());
            if let Some(tensor) = tensor.filter(|_| !number_for.is_empty()) {
                let is_number = number_for.contains(&tensor.dtype);
                notes.push(Cause::Scalar { argument: argument.clone(), is_number });
            }
        }
        notes.extend(form.assumption.clone().map(|text| Cause::Assumption { text }));
        notes
    }

    #[expect(clippy::cast_precision_loss, reason = "estimates of work need no more than 53 bits")]
    fn kernel_work(
        &self,
        form: &EntryForm,
        bindings: &Bindings,
        case: &Case,
    ) -> Result<KernelWork, NotReplayable> {
        let number =
            |expr: &Expr| expr.evaluate_number(bindings).map_err(|error| contradiction(error.to_string()));
        let size =
            |name: &str| bindings.get(name).and_then(|value| value.to_number().ok()).unwrap_or_default();
        let [flops, bytes] = self.cost_of(form);
        let flops = flops.map_or(Ok(size("out_numel")), number)?;
        let bytes = bytes.map_or(Ok(size("in_bytes").saturating_add(size("out_bytes"))), number)?;
        let dtype = case.inputs.iter().flatten().next().map_or(Dtype::Float, |tensor| tensor.dtype.clone());
        Ok(KernelWork { flops: flops as f64, bytes: bytes as f64, unit: self.unit, dtype })
    }
}

/// Returns an error for a form that no call launches.
fn check_replayed(form: &EntryForm) -> Result<(), NotReplayable> {
    match &form.unsupported {
        Some(reason) => Err(not_covered(reason.clone())),
        None => Ok(()),
    }
}

/// Refuses inputs without elements, for which torch launches nothing.
fn check_elements(case: &Case) -> Result<(), NotReplayable> {
    let is_empty = |slot: &Slot| slot.as_ref().is_some_and(|tensor| tensor.element_count() == 0);
    case.inputs.iter().position(is_empty).map_or(Ok(()), |index| {
        Err(not_covered(format!("input {index} has no elements, so nothing would be launched")))
    })
}

/// Logical dimensions of the input slots, and those of the recorded outputs.
type RecordedDims = (Vec<Option<Vec<i64>>>, Vec<Vec<i64>>);

fn recorded_dims(form: &EntryForm, case: &Case) -> Result<RecordedDims, RuleMismatch> {
    let inputs = case.inputs.iter().map(|slot| slot.as_ref().map(|tensor| to_signed(&tensor.dims)));
    let inputs = logical_inputs(form, case, inputs.collect(), &mut Vec::new())?;
    let outputs = case.outputs.iter().flatten().map(|tensor| to_signed(&tensor.dims)).collect();
    Ok((inputs, outputs))
}

/// Returns the number of conflicts between a case and the shapes of a form.
fn count_conflicts(form: &EntryForm, case: &Case) -> usize {
    let known = attribute_bindings(&case.attributes);
    recorded_dims(form, case)
        .map_or(usize::MAX, |(inputs, outputs)| form.rule.count_conflicts(&inputs, &outputs, known))
}

/// Binds the names of a form's rule to the recorded shapes.
fn bind_shapes(form: &EntryForm, case: &Case) -> Result<Bindings, FormMismatch> {
    let (inputs, outputs) = recorded_dims(form, case)?;
    let recorded = (!outputs.is_empty()).then_some(outputs.as_slice());
    let known = attribute_bindings(&case.attributes);
    Ok(form.rule.bind(&inputs, recorded, known, &mut Vec::new())?)
}

/// Checks the types and formats of a case against a form that has its slots.
pub(crate) fn check_types(form: &EntryForm, case: &Case) -> Result<(), NotReplayable> {
    for (index, (slot, tensor)) in form.inputs.iter().zip(&case.inputs).enumerate() {
        let Some(tensor) = tensor else { continue };
        let found = &tensor.dtype;
        let why = match slot {
            InputSlot::Host(dtype)
                if dtype.is_index() && !found.is_index() && !found.is_undefined() =>
            {
                format!("input {index} is read from the host as {dtype}, it is {found}")
            }
            InputSlot::Intermediate(dtype) if dtype != found => {
                format!("input {index} is {found}, the call makes it as {dtype}")
            }
            InputSlot::Tensor(slot) if form.rule.takes_slot(index) => match tensor_mismatch(slot, tensor) {
                Some(why) => format!("input {index} ({}) is {why}", slot.argument),
                None => continue,
            },
            _ => continue,
        };
        return Err(not_covered(why));
    }
    check_same_types(form, case)
}

/// Returns the attributes as names of expressions: `Runtime num_heads` is `num_heads`, `EP Size` is `ep_size`.
pub(crate) fn attribute_bindings(attributes: &CaseAttributes) -> Bindings {
    let mut known = Bindings::default();
    for (column, _) in attributes.iter() {
        let numbers = attributes.numbers(column).unwrap_or_default();
        let numbers: Option<Vec<i64>> =
            numbers.into_iter().map(|number| i64::try_from(number).ok()).collect();
        let value = match numbers.as_deref() {
            Some([]) | None => continue,
            Some([single]) => ExprValue::Number(*single),
            Some(several) => ExprValue::List(several.to_vec()),
        };
        known.set(&CaseAttributes::variable_name(column), value);
    }
    known
}

fn tensor_mismatch(slot: &TensorSlot, Tensor { dtype, format, .. }: &Tensor) -> Option<String> {
    let TensorSlot { dtypes, formats, .. } = slot;
    match format {
        _ if dtype.is_undefined() => Some("recorded without a type".to_owned()),
        _ if !dtypes.is_empty() && !dtypes.contains(dtype) => {
            let allowed: Vec<&str> = dtypes.iter().map(Dtype::as_str).collect();
            Some(format!("{dtype}, the kernel takes {}", allowed.join(", ")))
        }
        _ if dtypes.is_empty() && dtype.torch_name().is_none() => {
            Some(format!("{dtype}, which torch does not have"))
        }
        TensorFormat::Private(format) if !formats.contains(format) => {
            Some(format!("in {format}, which the entry does not build"))
        }
        TensorFormat::Base(_) if slot.only_blocked => {
            Some(format!("row-major, the kernel reads it as {}", formats.join(" or ")))
        }
        _ => None,
    }
}

/// Checks types that must equal that of another argument, or of the first tensor of a list.
fn check_same_types(form: &EntryForm, case: &Case) -> Result<(), NotReplayable> {
    for (index, slot) in form.tensors() {
        let Some(Tensor { dtype, .. }) = case.input(index) else { continue };
        let other_dtype = |name: &str| {
            let (slot, _) = form.tensor(name)?;
            case.input(slot).map(|tensor| &tensor.dtype).filter(|other| *other != dtype)
        };
        let argument = &slot.argument;
        if let Some(first) = other_dtype(argument) {
            return Err(not_covered(format!(
                "input {index} is {dtype}, the first of `{argument}` is {first}: the kernel takes one type"
            )));
        }
        if let Some(other) = &slot.same_type_as
            && let (other, Some(wanted)) = (&other.value, other_dtype(&other.value))
        {
            return Err(not_covered(format!(
                "input {index} ({argument}) is {dtype}, `{other}` is {wanted}: the kernel takes one type"
            )));
        }
    }
    Ok(())
}

fn check_recorded_dtypes(recorded: &[Slot], outputs: &[Tensor]) -> Result<(), NotReplayable> {
    for (index, (slot, output)) in recorded.iter().zip(outputs).enumerate() {
        if let Some(tensor) = slot
            && tensor.dtype != output.dtype
        {
            return Err(not_covered(format!(
                "output {index} is recorded as {}, the call gives {}",
                tensor.dtype, output.dtype
            )));
        }
    }
    Ok(())
}

/// Binds the sizes that cost expressions may use: `in_bytes`, `out_bytes`, `in_numel`, `out_numel`, and `X_bytes` for a
/// tensor argument X. The sizes of a tensor are its elements and its bytes.
pub(crate) fn bind_sizes<N: ExprNumber>(
    bindings: &mut Bindings<N>,
    form: &EntryForm,
    inputs: &[Option<(N, N)>],
    outputs: &[(N, N)],
) {
    let (in_numel, in_bytes) = sum_sizes(inputs.iter().flatten());
    let (out_numel, out_bytes) = sum_sizes(outputs.iter());
    for (name, size) in
        [("in_numel", in_numel), ("in_bytes", in_bytes), ("out_numel", out_numel), ("out_bytes", out_bytes)]
    {
        bindings.set(name, ExprValue::Number(size));
    }
    for (index, slot) in form.tensors() {
        let bytes = inputs.get(index).and_then(Option::as_ref).map_or(N::from(0), |(_, bytes)| bytes.clone());
        bindings.set(&format!("{}_bytes", slot.argument), ExprValue::Number(bytes));
    }
}

fn sum_sizes<'a, N: ExprNumber + 'a>(sizes: impl Iterator<Item = &'a (N, N)>) -> (N, N) {
    let add = |sum: N, size: &N| {
        N::apply(BinaryOperator::Add, sum, size.clone()).unwrap_or_else(|_| N::from(i64::MAX))
    };
    sizes.fold((N::from(0), N::from(0)), |(elements, bytes), size| {
        (add(elements, &size.0), add(bytes, &size.1))
    })
}

/// Returns the dimensions of the input slots of a case without the blocks of blocked formats, as the shape rule has them.
pub(crate) fn logical_inputs<N: ExprNumber>(
    form: &EntryForm,
    case: &Case,
    dims: Vec<Option<Vec<N>>>,
    conditions: &mut Vec<N>,
) -> Result<Vec<Option<Vec<N>>>, RuleMismatch> {
    let slots = dims.into_iter().zip(&form.inputs).zip(&case.inputs).enumerate();
    let slots = slots.map(|(index, ((dims, slot), tensor))| match (slot, tensor, dims) {
        (InputSlot::Tensor(slot), Some(tensor), Some(dims)) if form.rule.takes_slot(index) => {
            unblocked_dims(slot, tensor, dims, conditions).map(Some)
        }
        (_, _, dims) => Ok(dims),
    });
    slots.collect()
}
