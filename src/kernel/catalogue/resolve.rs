//! Resolves a case: the form that it fits, the arguments of the call, its outputs and its work.
//!
//! A case that fits no form contradicts itself only if its dimensions or attributes conflict in every form with its slots. It is
//! not covered if a form agrees with its dimensions and differs in types, in a limit, or in a value that the form fixes.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use super::{
    Bindings, CallArgument, CatalogueEntry, DeclaredArgument, EntryForm, Expr, ExprValue, FormMismatch,
    ImpliedValue, InputSlot, NotReplayable, OutputDtype, ShapeRule, TensorSlot,
    arguments::{ArgumentResolver, unblocked_dims},
    mismatch::{MatchStage, RuleMatch, missing_attribute},
    shape_rule::to_signed,
};
use crate::kernel::expression::{BinaryOperator, ExprNumber};
use crate::kernel::{
    ALLOW_HF32, Case, CaseAttributes, Cause, Dims, Dtype, KernelName, Slot, Tensor, TensorFormat,
    device::KernelWork, is_mean,
};

#[derive(Clone, Debug)]
pub struct ResolvedCall {
    pub(crate) form: String,
    /// The kernel whose entry defines the call: the kernel of the case, or the one as which the form runs.
    pub(crate) definition: KernelName,
    pub(crate) api: String,
    pub(crate) notes: Vec<Cause>,
    pub(crate) arguments: Vec<CallArgument>,
    pub(crate) outputs: Vec<Tensor>,
    pub(crate) returns: Vec<Vec<u64>>,
    /// Switches below `torch.npu` that have another value than in all other calls.
    pub(crate) switches: BTreeMap<String, bool>,
    pub(crate) work: KernelWork,
}

impl CatalogueEntry {
    pub fn resolve_call(&self, case: &Case) -> Result<ResolvedCall, NotReplayable> {
        case.attributes.contradicting_shape().map_or(Ok(()), |why| Err(FormMismatch::from(why)))?;
        check_numbers(self, &case.attributes)?;
        let is_empty = |slot: &Slot| slot.as_ref().is_some_and(|tensor| tensor.element_count() == 0);
        if let Some(index) = case.inputs.iter().position(is_empty) {
            let problem = format!("input {index} has no elements, so nothing would be launched");
            return Err(FormMismatch::not_covered(problem).into());
        }
        let (mut fitting, mut misfits) = (Vec::new(), Vec::new());
        for form in self.forms_for(case) {
            match self.match_form(form, case) {
                Ok(bindings) => fitting.push((form, bindings)),
                Err(mismatch) => misfits.push((form, mismatch)),
            }
        }
        if fitting.is_empty() && misfits.is_empty() {
            let lengths = || self.forms.iter().map(|form| form.inputs.len());
            let (least, most) = (lengths().min().unwrap_or_default(), lengths().max().unwrap_or_default());
            let (count, kernel) = (case.inputs.len(), &self.kernel);
            let problem =
                format!("recorded input slots: {count}, the entry of {kernel} reads {least} to {most}");
            return Err(FormMismatch::not_covered(problem).into());
        }
        let mut fitting = fitting.into_iter();
        let Some((form, mut bindings)) = fitting.next() else {
            return Err(no_form_fits(case, &self.mismatches(case, misfits)));
        };
        check_replayed(form)?;
        let returns = form.returns.as_ref().map(|returns| returns.evaluate_shapes(&bindings)).transpose()?;
        let outputs = self.sized_outputs(form, &mut bindings, case)?;
        Ok(ResolvedCall {
            form: form.rule.name.clone(),
            definition: self.definition_of(form).clone(),
            api: self.operator_of(form).api.clone(),
            notes: collect_notes(form, fitting.map(|(other, _)| other), &case.inputs),
            arguments: ArgumentResolver { entry: self, form, bindings: &bindings, outputs: &outputs, case }
                .all()?,
            switches: (self.hf32_switch.iter())
                .filter(|_| case.attributes.allows_hf32())
                .map(|switch| (switch.clone(), true))
                .collect(),
            work: self.kernel_work(form, &bindings, case)?,
            returns: returns.unwrap_or_else(|| outputs.iter().map(|tensor| tensor.dims.clone()).collect()),
            outputs,
        })
    }

    /// Returns the work of a case whose call can be resolved, without the call itself.
    pub(crate) fn resolve_work(&self, case: &Case) -> Result<KernelWork, NotReplayable> {
        let (form, mut bindings) = self.matching_form(case)?;
        self.sized_outputs(form, &mut bindings, case)?;
        Ok(self.kernel_work(form, &bindings, case)?)
    }

    /// Returns the outputs of a form, and binds the sizes of inputs and outputs.
    fn sized_outputs(
        &self,
        form: &EntryForm,
        bindings: &mut Bindings,
        case: &Case,
    ) -> Result<Vec<Tensor>, FormMismatch> {
        let outputs = self.output_tensors(form, bindings, &case.inputs, &case.outputs)?;
        let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let sizes = |tensor: &Tensor| (signed(tensor.element_count()), signed(tensor.bytes()));
        let input_sizes: Vec<_> = case.inputs.iter().map(|slot| slot.as_ref().map(sizes)).collect();
        let output_sizes: Vec<_> = outputs.iter().map(sizes).collect();
        bind_sizes(bindings, form, &input_sizes, &output_sizes);
        Ok(outputs)
    }

    /// Returns the forms that a case may fit: of those that differ in the length of a list, only one.
    pub(crate) fn forms_for(&self, case: &Case) -> impl Iterator<Item = &EntryForm> + use<'_> {
        let slots = case.inputs.len();
        self.forms.iter().filter(move |form| !form.of_list || form.inputs.len() == slots)
    }

    pub(crate) fn matching_form(&self, case: &Case) -> Result<(&EntryForm, Bindings), NotReplayable> {
        let mut forms = self.forms_for(case);
        match forms.find_map(|form| Some((form, self.match_form(form, case).ok()?))) {
            Some((form, bindings)) => Ok(check_replayed(form).map(|()| (form, bindings))?),
            None => Err(match self.resolve_call(case) {
                Err(refusal) => refusal,
                Ok(_) => FormMismatch::from("it fits no form".to_owned()).into(),
            }),
        }
    }

    /// Returns the name of the form that a case fits, and the values of the names of its rule; `output` is the shape
    /// of the first output.
    pub(crate) fn bound_names(&self, case: &Case) -> Result<(&str, Bindings), NotReplayable> {
        let (form, mut bindings) = self.matching_form(case)?;
        let outputs = form.rule.outputs.evaluate_shapes(&bindings)?;
        let first = outputs.first().map(|dims| to_signed(dims)).unwrap_or_default();
        bindings.set("output", ExprValue::List(first));
        Ok((&form.rule.name, bindings))
    }

    pub(crate) fn bindable_names(&self) -> BTreeSet<&str> {
        let rules = self.forms.iter().map(|form| &form.rule);
        let conditions = rules.clone().flat_map(ShapeRule::conditions).flat_map(Expr::variable_names);
        rules.flat_map(ShapeRule::bound_names).chain(conditions).chain(["output"]).collect()
    }

    fn match_form(&self, form: &EntryForm, case: &Case) -> Result<Bindings, FormMismatch> {
        let at = |stage| move |reason: String| FormMismatch::at(stage, reason);
        self.check_attributes(form, case).map_err(at(MatchStage::Attributes))?;
        self.check_slots(form, case).map_err(at(MatchStage::Structure))?;
        check_types(form, case).map_err(at(MatchStage::Types))?;
        let bindings = bind_shapes(form, case)?;
        check_implied(form, &bindings, &case.attributes)?;
        // A form with other output types is not the recorded one.
        let outputs = self.output_tensors(form, &bindings, &case.inputs, &case.outputs)?;
        for (index, (slot, Tensor { dtype, .. })) in case.outputs.iter().zip(&outputs).enumerate() {
            if let Some(Tensor { dtype: other, .. }) = slot
                && other != dtype
            {
                let problem = format!("output {index} is recorded as {other}, the call gives {dtype}");
                return Err(FormMismatch::not_covered(problem));
            }
        }
        Ok(bindings)
    }

    /// Returns the mismatches of the forms that judge a case, with the numbers of their conflicts: of types whose form agrees
    /// with all dimensions, these are the only difference, and those of a form with other slots are one of several.
    fn mismatches<'a>(
        &self,
        case: &Case,
        misfits: Vec<(&'a EntryForm, FormMismatch)>,
    ) -> Vec<(&'a EntryForm, FormMismatch)> {
        let misfits = misfits.into_iter().filter(|(form, _)| !form.special_case);
        let misfits = misfits.map(|(form, mut mismatch)| {
            let conflicts = || {
                recorded_dims(form, case).map_or(usize::MAX, |(inputs, outputs)| {
                    form.rule.count_conflicts(&inputs, &outputs, attribute_bindings(&case.attributes))
                })
            };
            match mismatch.stage {
                MatchStage::Attributes => {
                    let of_attributes = self.attribute_conflicts(form, &case.attributes).count();
                    mismatch.conflicts = conflicts().saturating_add(of_attributes);
                }
                MatchStage::Types => match bind_shapes(form, case) {
                    Ok(_) => mismatch.stage = MatchStage::OnlyTypes,
                    Err(in_shapes) => {
                        if in_shapes.stage == MatchStage::Structure {
                            mismatch = in_shapes;
                        }
                        mismatch.conflicts = conflicts().saturating_add(1);
                    }
                },
                MatchStage::Structure | MatchStage::Conflict => mismatch.conflicts = conflicts(),
                _ => {}
            }
            (form, mismatch)
        });
        misfits.collect()
    }

    pub(super) fn check_attributes(&self, form: &EntryForm, case: &Case) -> Result<(), String> {
        self.attribute_conflicts(form, &case.attributes).next().map_or(Ok(()), Err)
    }

    /// Returns the attributes that have another value than the form's, are not used by it, or are missing.
    fn attribute_conflicts<'a>(
        &'a self,
        form: &'a EntryForm,
        attributes: &'a CaseAttributes,
    ) -> impl Iterator<Item = String> {
        let of_form = form.with.iter().filter_map(|(column, values)| match attributes.get(column) {
            Some(value) if values.iter().any(|wanted| wanted == value || wanted == "*") => None,
            Some(value) => Some(format!("`{column}` is {value}, not {}", values.join(" or "))),
            None => Some(missing_attribute(column)),
        });
        // The time of the recorded call may depend on an attribute that the form does not use.
        let unused = attributes.iter().filter(|(column, _)| {
            let is_switch = *column == ALLOW_HF32 && attributes.allows_hf32() && self.hf32_switch.is_some();
            !is_switch && !form.uses_attribute(column)
        });
        let unused = unused.map(|(column, value)| {
            let why = match self.forms.iter().any(|form| form.uses_attribute(column)) {
                true => "the form is for rows without it",
                false => "which the call does not use",
            };
            format!("`{column}` is recorded as {value}, {why}")
        });
        let arguments = form.given_attributes().filter(|column| !form.with.contains_key(*column));
        let missing = arguments.filter(|column| attributes.get(column).is_none());
        of_form.chain(unused).chain(missing.map(|column| missing_attribute(column)))
    }

    pub(super) fn check_slots(&self, form: &EntryForm, case: &Case) -> Result<(), String> {
        let (count, known) = (case.inputs.len(), form.inputs.len());
        let last = (0..known).rev().find(|slot| form.rule.takes_slot(*slot));
        let needed = last.map_or(0, |last| last + 1);
        let is_missing = |slot: &usize| case.inputs[*slot].is_none() && form.rule.takes_slot(*slot);
        match (0..count.min(known)).find(is_missing) {
            Some(slot) => Err(format!("input slot {slot} is empty, the call needs it")),
            None if count > known || count < needed => {
                Err(format!("recorded input slots: {count}, the entry of {} reads {needed}", self.kernel))
            }
            None => Ok(()),
        }
    }

    pub(super) fn output_tensors(
        &self,
        form: &EntryForm,
        bindings: &Bindings,
        inputs: &[Slot],
        recorded: &[Slot],
    ) -> Result<Vec<Tensor>, FormMismatch> {
        let shapes = form.rule.outputs.evaluate_shapes(bindings)?;
        let dtype_of = |argument: &str| {
            let (slot, _) = form.tensor(argument)?;
            Some(&inputs.get(slot)?.as_ref()?.dtype)
        };
        let outputs = form.output_dtypes.iter().zip(shapes).enumerate().map(|(index, (declared, dims))| {
            let refused = |problem: String| FormMismatch::not_covered(format!("output {index} {problem}"));
            let recorded = recorded.iter().flatten().nth(index);
            let dtype = match (declared, recorded) {
                (OutputDtype::SameAs(other) | OutputDtype::Blocked(other, _), _) => {
                    let missing = || refused(format!("is of the type of `{other}`, which is left out"));
                    dtype_of(other).cloned().ok_or_else(missing)?
                }
                (OutputDtype::Fixed(dtype), _) => dtype.clone(),
                (OutputDtype::Promoted, _) => {
                    Dtype::promote_slots(inputs).map_err(FormMismatch::not_covered)?
                }
                (OutputDtype::Recorded { allowed, .. }, None) => allowed[0].clone(),
                (OutputDtype::Recorded { allowed, unlike }, Some(Tensor { dtype, .. })) => {
                    if !allowed.contains(dtype) {
                        let allowed: Vec<&str> = allowed.iter().map(Dtype::as_str).collect();
                        let allowed = allowed.join(", ");
                        return Err(refused(format!("is recorded as {dtype}, the kernel gives {allowed}")));
                    }
                    if let Some(other) = unlike.as_ref().filter(|other| dtype_of(other) == Some(dtype)) {
                        return Err(refused(format!(
                            "is {dtype} as `{other}` is: nothing would be launched"
                        )));
                    }
                    dtype.clone()
                }
            };
            let tensor = Tensor::new(dims, dtype);
            let OutputDtype::Blocked(_, format) = declared else { return Ok(tensor) };
            match recorded.filter(|recorded| !recorded.format.same_layout(format)) {
                Some(Tensor { format: other, .. }) => {
                    Err(refused(format!("is recorded in the format {other}, the call gives {format}")))
                }
                None => Ok(Tensor { format: format.clone(), ..tensor }),
            }
        });
        outputs.collect()
    }

    fn kernel_work(
        &self,
        form: &EntryForm,
        bindings: &Bindings,
        case: &Case,
    ) -> Result<KernelWork, FormMismatch> {
        let number = |expr: &Expr| expr.evaluate_number(bindings);
        let size =
            |name: &str| bindings.get(name).and_then(|value| value.to_number().ok()).unwrap_or_default();
        let [flops, bytes] = self.cost_of(form);
        let flops = flops.map_or(Ok(size("out_numel")), number)?;
        let bytes = bytes.map_or(Ok(size("in_bytes").saturating_add(size("out_bytes"))), number)?;
        let dtype = case.inputs.iter().flatten().next().map_or(Dtype::Float, |tensor| tensor.dtype.clone());
        Ok(KernelWork { flops: flops as f64, bytes: bytes as f64, unit: self.unit, dtype })
    }
}

fn collect_notes<'a>(
    form: &EntryForm,
    others: impl Iterator<Item = &'a EntryForm>,
    inputs: &[Slot],
) -> Vec<Cause> {
    let mut notes = Vec::new();
    let others = others.filter(|other| other.is_replayed());
    let others: Vec<String> = others.map(|other| other.rule.name.clone()).collect();
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

fn check_replayed(form: &EntryForm) -> Result<(), FormMismatch> {
    form.unsupported.as_ref().map_or(Ok(()), |reason| Err(FormMismatch::not_covered(reason)))
}

type RecordedDims = (Vec<Option<Vec<i64>>>, Vec<Vec<i64>>);

fn recorded_dims(form: &EntryForm, case: &Case) -> Result<RecordedDims, FormMismatch> {
    let inputs = case.inputs.iter().map(|slot| slot.as_ref().map(|tensor| to_signed(&tensor.dims)));
    let mut found = RuleMatch::new(Bindings::default());
    let inputs = logical_inputs(form, case, inputs.collect(), &mut found)?;
    let outputs = case.outputs.iter().flatten().map(|tensor| to_signed(&tensor.dims)).collect();
    Ok((inputs, outputs))
}

fn bind_shapes(form: &EntryForm, case: &Case) -> Result<Bindings, FormMismatch> {
    let (inputs, outputs) = recorded_dims(form, case)?;
    let recorded = (!outputs.is_empty()).then_some(outputs.as_slice());
    let mut found = RuleMatch::new(attribute_bindings(&case.attributes));
    form.rule.bind(&inputs, recorded, &mut found)?;
    require_group(form, &mut found)?;
    Ok(found.bindings)
}

/// Requires that the call takes a group of as many processes as the names of the rule give.
pub(super) fn require_group<N: ExprNumber>(
    form: &EntryForm,
    found: &mut RuleMatch<N>,
) -> Result<(), FormMismatch> {
    for argument in form.arguments.values() {
        let DeclaredArgument::ProcessGroup { ranks, allowed } = argument else { continue };
        if allowed.is_empty() {
            continue;
        }
        let number = ranks.evaluate_number(&found.bindings)?;
        let fits = allowed.iter().try_fold(N::from(0), |fits, allowed| {
            let equal = N::apply(BinaryOperator::Equal, number.clone(), N::from(*allowed))?;
            N::apply(BinaryOperator::Or, fits, equal)
        })?;
        let text = || {
            let allowed: Vec<String> = allowed.iter().map(i64::to_string).collect();
            let number = number.constant().unwrap_or_default();
            format!("a group of {number} ranks; the call takes {} ranks", allowed.join(", "))
        };
        found.require(fits, text).map_err(FormMismatch::into_limit)?;
    }
    Ok(())
}

pub(super) fn check_types(form: &EntryForm, case: &Case) -> Result<(), String> {
    for (index, (slot, tensor)) in form.inputs.iter().zip(&case.inputs).enumerate() {
        let Some(tensor) = tensor else { continue };
        let found = &tensor.dtype;
        match slot {
            InputSlot::Host(dtype) if dtype.is_index() && !found.is_index() && !found.is_undefined() => {
                return Err(format!("input {index} is read from the host as {dtype}, it is {found}"));
            }
            InputSlot::Intermediate(dtype) if dtype != found => {
                return Err(format!("input {index} is {found}, the call makes it as {dtype}"));
            }
            InputSlot::Tensor(slot) if form.rule.takes_slot(index) => {
                if let Some(why) = tensor_mismatch(slot, tensor) {
                    return Err(format!("input {index} ({}) is {why}", slot.argument));
                }
            }
            _ => {}
        }
    }
    check_same_types(form, case)
}

/// Returns the attributes as names of expressions: `Runtime num_heads` is `num_heads`, `EP Size` is `ep_size`.
pub(super) fn attribute_bindings(attributes: &CaseAttributes) -> Bindings {
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
        known.set(CaseAttributes::variable_name(column), value);
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

/// Checks types that must equal the type of another argument, or of the first tensor of a list.
fn check_same_types(form: &EntryForm, case: &Case) -> Result<(), String> {
    for (index, slot) in form.tensors() {
        let Some(Tensor { dtype, .. }) = case.input(index) else { continue };
        let other_dtype = |name: &str| {
            let (slot, _) = form.tensor(name)?;
            case.input(slot).map(|tensor| &tensor.dtype).filter(|other| *other != dtype)
        };
        let argument = &slot.argument;
        let difference = match other_dtype(argument) {
            Some(first) => format!("input {index} is {dtype}, the first of `{argument}` is {first}"),
            None => match slot.same_type_as.as_ref().map(|other| (&other.value, other_dtype(&other.value))) {
                Some((other, Some(wanted))) => {
                    format!("input {index} ({argument}) is {dtype}, `{other}` is {wanted}")
                }
                _ => continue,
            },
        };
        return Err(format!("{difference}: the kernel takes one type"));
    }
    Ok(())
}

/// Binds the sizes that cost expressions may use, such as `in_bytes`, `out_numel` and `X_bytes` for a tensor argument X.
pub(super) fn bind_sizes<N: ExprNumber>(
    bindings: &mut Bindings<N>,
    form: &EntryForm,
    inputs: &[Option<(N, N)>],
    outputs: &[(N, N)],
) {
    let mut set = |name: String, size: N| bindings.set(name, ExprValue::Number(size));
    let add = |sum: N, size: &N| {
        N::apply(BinaryOperator::Add, sum, size.clone()).unwrap_or_else(|_| N::from(i64::MAX))
    };
    let sides: [([&str; 2], Vec<&(N, N)>); 2] = [
        (["in_numel", "in_bytes"], inputs.iter().flatten().collect()),
        (["out_numel", "out_bytes"], outputs.iter().collect()),
    ];
    for ([numel, bytes], sizes) in sides {
        set(numel.to_owned(), sizes.iter().fold(N::from(0), |sum, (elements, _)| add(sum, elements)));
        set(bytes.to_owned(), sizes.iter().fold(N::from(0), |sum, (_, bytes)| add(sum, bytes)));
    }
    for (index, slot) in form.tensors() {
        let bytes = inputs.get(index).and_then(Option::as_ref).map_or(N::from(0), |(_, bytes)| bytes.clone());
        set(slot.argument.clone() + "_bytes", bytes);
    }
}

/// Returns the dimensions of the input slots of a case without the blocks of blocked formats, as the shape rule has them.
pub(super) fn logical_inputs<N: ExprNumber>(
    form: &EntryForm,
    case: &Case,
    dims: Vec<Option<Vec<N>>>,
    found: &mut RuleMatch<N>,
) -> Result<Vec<Option<Vec<N>>>, FormMismatch> {
    let slots = dims.into_iter().zip(&form.inputs).zip(&case.inputs).enumerate();
    let slots = slots.map(|(index, ((dims, slot), tensor))| match (slot, tensor, dims) {
        (InputSlot::Tensor(slot), Some(tensor), Some(dims)) if form.rule.takes_slot(index) => {
            unblocked_dims(slot, tensor, dims, found).map(Some)
        }
        (_, _, dims) => Ok(dims),
    });
    slots.collect()
}

fn check_numbers(entry: &CatalogueEntry, attributes: &CaseAttributes) -> Result<(), FormMismatch> {
    let is_text = |column: &str| {
        let variable = CaseAttributes::variable_name(column);
        let is_numeric = |form: &EntryForm| {
            form.rule.conditions().any(|condition| condition.variable_names().contains(&*variable))
                || !form.given_attributes().any(|given| given == column) && form.names.contains(&variable)
        };
        attributes.numbers(column).is_none() && entry.forms.iter().any(is_numeric)
    };
    match attributes.iter().find(|(column, _)| is_text(column)) {
        Some((column, value)) => {
            let expected = "expected a whole number or a list of them, such as `128,256`";
            Err(format!("`{column}` is `{value}`: {expected}").into())
        }
        None => Ok(()),
    }
}

/// Checks recorded attributes that follow from the shapes and other attributes, or of which the form covers one value.
fn check_implied(
    form: &EntryForm,
    bindings: &Bindings,
    attributes: &CaseAttributes,
) -> Result<(), FormMismatch> {
    for (column, value) in &form.implied {
        let Some(recorded) = attributes.get(column) else { continue };
        let contradicts = |expected: String| format!("`{column}` is {recorded}, not {expected}").into();
        let only = |covered: &str| {
            let problem = format!("`{column}` is {recorded}, the entry has only calls with {covered}");
            FormMismatch::not_covered(problem)
        };
        let items = |expr: &Expr| {
            let items = expr.evaluate_as(bindings, ExprValue::to_items);
            items.map_err(|error| contradicts(format!("known: {error}")))
        };
        match value {
            ImpliedValue::Text(text) if text != recorded => return Err(only(text)),
            ImpliedValue::Text(_) | ImpliedValue::Ignored => {}
            ImpliedValue::Mean(expr) => {
                let items = items(expr)?;
                let mean = items.iter().map(|item| *item as f64).sum::<f64>() / items.len().max(1) as f64;
                if !is_mean(recorded, mean) {
                    return Err(contradicts(format!("{mean:.6}, the mean of `{expr}`")));
                }
            }
            ImpliedValue::Expression(expr) | ImpliedValue::Only(expr) => {
                let text = Dims(&items(expr)?).to_string();
                let is_fixed = matches!(value, ImpliedValue::Only(_)) || expr.variable_names().is_empty();
                if text != recorded {
                    let follows = || contradicts(format!("{text}, which is `{expr}`"));
                    return Err(if is_fixed { only(&text) } else { follows() });
                }
            }
        }
    }
    Ok(())
}

/// Returns the error of a case that fits no form, with the reason of the nearest one and the number of the others.
fn no_form_fits(case: &Case, misfits: &[(&EntryForm, FormMismatch)]) -> NotReplayable {
    // A form that no call launches is not the nearest because of its types. Other attributes and other slots are equally far:
    // one attribute too many is less than two slots.
    let nearest = misfits.iter().rev().max_by_key(|(form, mismatch)| {
        let is_replayed = form.is_replayed();
        let stage = if is_replayed { mismatch.stage } else { mismatch.stage.min(MatchStage::Conflict) };
        (stage.max(MatchStage::Structure), is_replayed, Reverse(mismatch.conflicts), mismatch.stage)
    });
    let Some((nearest, mismatch)) = nearest else {
        return FormMismatch::not_covered(format!("{} has no form for such rows", case.kernel)).into();
    };
    let reason = &mismatch.reason;
    let is_about_shapes =
        matches!(mismatch.stage, MatchStage::Structure | MatchStage::Conflict | MatchStage::Limit);
    let same = misfits.iter().filter(|(_, other)| other.reason == *reason).count();
    let problem = if same == misfits.len() && !is_about_shapes {
        reason.clone()
    } else {
        let more = if same > 1 { format!(" and {} more", same - 1) } else { String::new() };
        let others = match misfits.len() - same {
            0 => String::new(),
            1 => "; another form differs more".to_owned(),
            count => format!("; {count} other forms differ more"),
        };
        let subject = match is_about_shapes {
            true => format!("the shapes {} fit no form of {}: ", case.shapes(), case.kernel),
            false => String::new(),
        };
        format!("{subject}{}{more}: {reason}{others}", nearest.rule.name)
    };
    let agrees = misfits.iter().any(|(_, mismatch)| mismatch.stage > MatchStage::Conflict);
    let is_conflict = |(form, mismatch): &(&EntryForm, FormMismatch)| {
        form.is_replayed() && mismatch.stage == MatchStage::Conflict
    };
    let is_contradiction = misfits.iter().any(is_conflict) && !agrees;
    NotReplayable { problem, form: nearest.rule.name.clone(), is_contradiction }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use crate::{
        base::assets::AssetFiles,
        kernel::{Case, CaseAttributes, EP_SIZE, attention_attribute, catalogue::Catalogue},
    };

    const UNKNOWN: &str = "Runtime xyz";
    /// Lengths of the examples among them.
    const VALUES: [&str; 20] = [
        "0",
        "1",
        "2",
        "3",
        "4",
        "8",
        "64",
        "127",
        "128",
        "511",
        "512",
        "2048",
        "2147483647",
        "1,2",
        "3,6,8",
        "2,6,8",
        "4096,3000,64",
        "4096,3000,65",
        "TND",
        "BSH",
    ];

    /// Otherwise two rows with different cells would be measured by the same call.
    #[test]
    fn each_recorded_attribute_changes_the_call_or_refuses_the_case() {
        let catalogue = Catalogue::load(&AssetFiles::embedded()).expect("the catalogue");
        let columns = attention_attribute::ALL.into_iter().chain([EP_SIZE, UNKNOWN]).map(str::to_owned);
        let columns: BTreeSet<String> = columns.chain(catalogue.attribute_columns()).collect();
        for entry in catalogue.entries() {
            let example = entry.example.as_ref().expect("an example");
            let bare = Case { attributes: CaseAttributes::default(), ..example.clone() };
            for (case, column) in
                [example, &bare].into_iter().flat_map(|case| columns.iter().map(move |column| (case, column)))
            {
                let mut calls: Vec<(&str, _)> = Vec::new();
                for value in VALUES {
                    let mut changed = case.clone();
                    changed.attributes.set(column, value);
                    let Ok(call) = entry.resolve_call(&changed) else { continue };
                    let same = calls.iter().find(|(_, arguments)| *arguments == call.arguments);
                    let (kernel, other) = (&entry.kernel, same.map(|(other, _)| *other));
                    assert_eq!(other, None, "{kernel}: `{column}` {value} has the call of this value");
                    calls.push((value, call.arguments));
                }
                assert!(column != UNKNOWN || calls.is_empty(), "{}: `{column}` is ignored", entry.kernel);
            }
        }
    }

    /// Otherwise a table with the attribute in another spelling would be measured without it.
    #[test]
    fn attributes_of_entries_are_found_without_their_prefix() {
        let catalogue = Catalogue::load(&AssetFiles::embedded()).expect("the catalogue");
        for column in catalogue.attribute_columns() {
            let bare = column.strip_prefix("Runtime ").unwrap_or(&column);
            let found = CaseAttributes::name_of(bare);
            assert!(bare == "batch_size" || found.as_deref() == Some(&*column), "{column}: {found:?}");
        }
    }

    #[test]
    fn unused_column_is_named() {
        let catalogue = Catalogue::load(&AssetFiles::embedded()).expect("the catalogue");
        let entry = catalogue.entries().find(|entry| entry.kernel.as_str() == "RmsNorm").expect("an entry");
        let mut case = entry.example.clone().expect("an example");
        case.attributes.set("Runtime num_heads", "8");
        let refused = entry.resolve_call(&case).expect_err("it is not used");
        assert_eq!(refused.to_string(), "`Runtime num_heads` is recorded as 8, which the call does not use");
    }
}
