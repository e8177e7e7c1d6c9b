//! How the catalogue reads one case: which form it takes, what the call is given, what the work is.

mod names;

use super::{
    Bindings, CallArgument, CatalogueEntry, DeclaredArgument, EntryForm, ExprValue, InputSlot, OutputDtype,
    TensorSlot, arguments::ArgumentResolver,
};
use crate::{
    config::KernelWork,
    domain::{Case, CaseAttributes, Dtype, Slot, Tensor, TensorFormat},
};

/// A case as an entry of the catalogue reads it.
#[derive(Clone, Debug)]
pub struct ResolvedCall {
    /// Name of the form taken.
    pub form: String,
    /// What the shapes leave open and what it was taken for, in words; empty where nothing is open.
    pub notes: Vec<String>,
    /// The arguments, in the schema's order.
    pub arguments: Vec<CallArgument>,
    /// The outputs by the shape rule, as the profiler shows them.
    pub outputs: Vec<Tensor>,
    /// Shapes that Python sees.
    pub returns: Vec<Vec<u64>>,
    /// What the device must do at the least.
    pub work: KernelWork,
}

/// Why a case cannot be replayed, in words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotReplayable {
    /// The entry does not know such cases; nothing is wrong with the case.
    #[error("{0}")]
    NotCovered(String),
    /// The case contradicts the entry.
    #[error("{0}")]
    Contradiction(String),
}

/// Why a case cannot be meant by a form.
#[derive(Debug, thiserror::Error)]
enum FormMismatch {
    /// Its slots, types or attributes are others.
    #[error(transparent)]
    Refused(#[from] NotReplayable),
    /// Its shapes do not fit the rule.
    #[error("{0}")]
    Shapes(String),
}

pub(crate) fn contradiction(why: impl Into<String>) -> NotReplayable {
    NotReplayable::Contradiction(why.into())
}

impl CatalogueEntry {
    /// Reads a case by the shape rule.
    ///
    /// # Errors
    /// [`NotReplayable`] where slots, types, shapes or attributes contradict the entry; it says which.
    pub fn read(&self, case: &Case) -> Result<ResolvedCall, NotReplayable> {
        let attempts: Vec<(&EntryForm, Result<Bindings, FormMismatch>)> =
            self.forms_for(case).map(|form| (form, self.fit(form, case))).collect();
        if attempts.is_empty() {
            let (least, most) = self.forms.iter().fold((usize::MAX, 0), |(least, most), form| {
                (least.min(form.inputs.len()), most.max(form.inputs.len()))
            });
            let count = case.inputs.len();
            return Err(NotReplayable::NotCovered(format!(
                "{count} input slots are recorded, the entry of {} reads {least} to {most}",
                self.kernel
            )));
        }
        let fitting: Vec<(&EntryForm, &Bindings)> =
            attempts.iter().filter_map(|(form, bound)| bound.as_ref().ok().map(|b| (*form, b))).collect();
        let Some(&(form, bindings)) = fitting.first() else {
            return Err(no_form_fits(case, &attempts));
        };
        let inputs: Vec<Option<&Tensor>> = case.inputs.iter().map(Option::as_ref).collect();
        let recorded: Vec<Dtype> = case.outputs.iter().flatten().map(|tensor| tensor.dtype.clone()).collect();
        let outputs = self.outputs(form, bindings, &inputs, &recorded)?;
        let returns = form.returns.as_ref().map(|returns| returns.dims(bindings)).transpose();
        let returns = returns.map_err(contradiction)?;
        let mut bindings = bindings.clone();
        let present: Vec<&Tensor> = inputs.iter().flatten().copied().collect();
        bind_sizes(&mut bindings, &present, &outputs);
        for (slot, argument) in form.tensors().map(|(index, slot)| (index, &slot.argument)) {
            let bytes = inputs.get(slot).copied().flatten().map_or(0, Tensor::bytes);
            let bytes = ExprValue::Number(i64::try_from(bytes).unwrap_or(i64::MAX));
            bindings.set(&format!("{argument}_bytes"), bytes);
        }
        Ok(ResolvedCall {
            form: form.rule.name.clone(),
            notes: self.notes(form, &fitting, &inputs),
            arguments: ArgumentResolver { entry: self, form, bindings: &bindings, outputs: &outputs, case }
                .all()?,
            work: self.work(form, &bindings, &present)?,
            returns: returns.unwrap_or_else(|| outputs.iter().map(|tensor| tensor.dims.clone()).collect()),
            outputs,
        })
    }

    /// The forms that can be meant: of those that differ in the length of a list, one.
    fn forms_for(&self, case: &Case) -> impl Iterator<Item = &EntryForm> + use<'_> {
        let slots = case.inputs.len();
        self.forms.iter().filter(move |form| !form.of_list || form.inputs.len() == slots)
    }

    /// The form that a case is read by, with the values of its names.
    pub(crate) fn form_of(&self, case: &Case) -> Result<(&EntryForm, Bindings), NotReplayable> {
        let mut fitting = self.forms_for(case).filter_map(|form| Some((form, self.fit(form, case).ok()?)));
        match fitting.next() {
            Some(found) => Ok(found),
            None => Err(self.read(case).err().unwrap_or_else(|| contradiction("it fits no form"))),
        }
    }

    /// Whether a case can be meant by a form.
    fn fit(&self, form: &EntryForm, case: &Case) -> Result<Bindings, FormMismatch> {
        self.check_slots(form, case)?;
        let mut dims: Vec<Option<Vec<u64>>> = Vec::with_capacity(case.inputs.len());
        for (index, (slot, tensor)) in form.inputs.iter().zip(&case.inputs).enumerate() {
            dims.push(match (slot, tensor) {
                (_, None) => None,
                (InputSlot::Tensor(slot), Some(tensor)) if form.rule.takes(index) => {
                    Some(logical_dims(slot, tensor)?)
                }
                (_, Some(tensor)) => Some(tensor.dims.clone()),
            });
        }
        let recorded: Vec<Vec<u64>> =
            case.outputs.iter().flatten().map(|tensor| tensor.dims.clone()).collect();
        let recorded = (!recorded.is_empty()).then_some(recorded.as_slice());
        let bindings =
            form.rule.bind(&dims, recorded, known(&case.attributes)).map_err(FormMismatch::Shapes)?;
        // A form that gives outputs of other types is not the one that was recorded.
        let inputs: Vec<Option<&Tensor>> = case.inputs.iter().map(Option::as_ref).collect();
        let types: Vec<Dtype> = case.outputs.iter().flatten().map(|tensor| tensor.dtype.clone()).collect();
        check_recorded_dtypes(&case.outputs, &self.outputs(form, &bindings, &inputs, &types)?)?;
        Ok(bindings)
    }

    /// Whether slots, types and attributes of a case are those of a form, whatever its dimensions are.
    pub(crate) fn check_slots(&self, form: &EntryForm, case: &Case) -> Result<(), NotReplayable> {
        for (column, values) in &form.with {
            match case.attributes.get(column) {
                Some(value) if values.iter().any(|wanted| wanted == value || wanted == "*") => {}
                Some(value) => {
                    let why = format!("`{column}` is {value}, not {}", values.join(" or "));
                    return Err(NotReplayable::NotCovered(why));
                }
                None => return Err(not_known(column)),
            }
        }
        for argument in form.arguments.values() {
            if let DeclaredArgument::Attribute(column) = argument
                && case.attributes.get(column).is_none()
            {
                return Err(not_known(column));
            }
        }
        let count = case.inputs.len();
        let needed =
            (0..form.inputs.len()).rev().find(|slot| form.rule.takes(*slot)).map_or(0, |last| last + 1);
        if count > form.inputs.len() || count < needed {
            let why =
                format!("{count} input slots are recorded, the entry of {} reads {needed}", self.kernel);
            return Err(NotReplayable::NotCovered(why));
        }
        for (index, (slot, tensor)) in form.inputs.iter().zip(&case.inputs).enumerate() {
            let Some(tensor) = tensor else {
                if form.rule.takes(index) {
                    return Err(contradiction(format!("input slot {index} is empty, the call needs it")));
                }
                continue;
            };
            if tensor.elements() == 0 {
                let why = format!("input {index} has no elements, so nothing would be launched");
                return Err(contradiction(why));
            }
            if let InputSlot::Host { dtype, .. } = slot
                && is_whole(dtype)
                && !is_whole(&tensor.dtype)
            {
                let why = format!("input {index} is read from the host as {dtype}, it is {}", tensor.dtype);
                return Err(contradiction(why));
            }
            if let InputSlot::Intermediate { dtype, .. } = slot
                && *dtype != tensor.dtype
            {
                let why = format!("input {index} is {}, the call makes it as {dtype}", tensor.dtype);
                return Err(contradiction(why));
            }
            if let InputSlot::Tensor(slot) = slot
                && form.rule.takes(index)
            {
                check_tensor(index, slot, tensor)?;
            }
        }
        check_same_types(form, case)
    }

    /// The outputs that a form gives. `recorded` are the types that the profiler shows, where it does.
    pub(crate) fn outputs(
        &self,
        form: &EntryForm,
        bindings: &Bindings,
        inputs: &[Option<&Tensor>],
        recorded: &[Dtype],
    ) -> Result<Vec<Tensor>, NotReplayable> {
        let shapes = form.rule.outputs(bindings).map_err(NotReplayable::Contradiction)?;
        let outputs = form.output_dtypes.iter().zip(shapes).enumerate().map(|(index, (dtype_of, dims))| {
            let dtype = match dtype_of {
                OutputDtype::SameAs(argument) => {
                    let tensor =
                        form.tensor(argument).and_then(|(slot, _)| inputs.get(slot).copied().flatten());
                    let tensor = tensor.ok_or_else(|| {
                        contradiction(format!(
                            "output {index} is of the type of `{argument}`, which is left out"
                        ))
                    })?;
                    tensor.dtype.clone()
                }
                OutputDtype::Fixed(dtype) => dtype.clone(),
                OutputDtype::Promoted => promoted(&inputs.iter().flatten().copied().collect::<Vec<_>>())?,
                OutputDtype::Recorded(allowed) | OutputDtype::RecordedUnlike(allowed, _) => {
                    match recorded.get(index) {
                        Some(dtype) if allowed.contains(dtype) => {
                            let other = match dtype_of {
                                OutputDtype::RecordedUnlike(_, other) => form.tensor(other),
                                _ => None,
                            };
                            let tensor = other.and_then(|(slot, _)| inputs.get(slot).copied().flatten());
                            if let (Some((_, other)), Some(tensor)) = (other, tensor)
                                && tensor.dtype == *dtype
                            {
                                return Err(contradiction(format!(
                                    "output {index} is {dtype} as `{}` is: nothing would be launched",
                                    other.argument
                                )));
                            }
                            dtype.clone()
                        }
                        Some(dtype) => {
                            let allowed: Vec<&str> = allowed.iter().map(Dtype::as_str).collect();
                            let allowed = allowed.join(", ");
                            return Err(contradiction(format!(
                                "output {index} is recorded as {dtype}, the kernel gives {allowed}"
                            )));
                        }
                        None => allowed[0].clone(),
                    }
                }
            };
            Ok(Tensor::new(dims, dtype))
        });
        outputs.collect()
    }

    fn notes(
        &self,
        form: &EntryForm,
        fitting: &[(&EntryForm, &Bindings)],
        inputs: &[Option<&Tensor>],
    ) -> Vec<String> {
        let mut notes = Vec::new();
        let others: Vec<&str> = fitting.iter().skip(1).map(|(other, _)| other.rule.name.as_str()).collect();
        if !others.is_empty() {
            notes.push(format!("read as {}; the shapes also fit {}", form.rule.name, others.join(", ")));
        }
        for (index, TensorSlot { argument, number_for, .. }) in form.tensors() {
            let Some(tensor) = inputs.get(index).copied().flatten() else { continue };
            if tensor.is_scalar() && !number_for.is_empty() {
                let read = if number_for.contains(&tensor.dtype) {
                    "a Python number"
                } else {
                    "a tensor without dimensions"
                };
                notes.push(format!("scalar `{argument}` read as {read}"));
            }
        }
        notes.extend(self.assumption.clone());
        notes
    }

    #[expect(clippy::cast_precision_loss, reason = "estimates of work need no more than 53 bits")]
    fn work(
        &self,
        form: &EntryForm,
        bindings: &Bindings,
        inputs: &[&Tensor],
    ) -> Result<KernelWork, NotReplayable> {
        let number =
            |expr: &super::Expr| expr.number(bindings).map_err(|error| contradiction(error.to_string()));
        let size = |name: &str| bindings.get(name).and_then(|value| value.number().ok()).unwrap_or_default();
        let (flops, bytes) =
            (form.flops.as_ref().or(self.flops.as_ref()), form.bytes.as_ref().or(self.bytes.as_ref()));
        let flops = flops.map_or(Ok(size("out_numel")), number)?;
        let bytes = bytes.map_or(Ok(size("in_bytes").saturating_add(size("out_bytes"))), number)?;
        let dtype = inputs.first().map_or(Dtype::Float, |tensor| tensor.dtype.clone());
        Ok(KernelWork { flops: flops as f64, bytes: bytes as f64, unit: self.unit, dtype })
    }
}

pub(crate) fn not_known(column: &str) -> NotReplayable {
    NotReplayable::NotCovered(format!("`{column}` is not known"))
}

/// Whether sizes, orders and axes are of that type.
const fn is_whole(dtype: &Dtype) -> bool {
    matches!(dtype, Dtype::Int32 | Dtype::Int64)
}

/// The attributes that expressions may use: `Runtime num_heads` is `num_heads`, `EP Size` is `ep_size`.
pub(crate) fn known(attributes: &CaseAttributes) -> Bindings {
    let mut known = Bindings::default();
    for (column, _) in attributes.iter() {
        let name = CaseAttributes::variable(column);
        let numbers = attributes.numbers(column).unwrap_or_default();
        let numbers: Option<Vec<i64>> =
            numbers.into_iter().map(|number| i64::try_from(number).ok()).collect();
        match numbers.as_deref() {
            Some([]) | None => {}
            Some([single]) => known.set(&name, ExprValue::Number(*single)),
            Some(several) => known.set(&name, ExprValue::List(several.to_vec())),
        }
    }
    known
}

fn check_tensor(index: usize, slot: &TensorSlot, tensor: &Tensor) -> Result<(), NotReplayable> {
    let TensorSlot { argument, dtypes, formats, .. } = slot;
    if !dtypes.is_empty() && !dtypes.contains(&tensor.dtype) {
        let allowed: Vec<&str> = dtypes.iter().map(Dtype::as_str).collect();
        let (dtype, allowed) = (&tensor.dtype, allowed.join(", "));
        return Err(contradiction(format!(
            "input {index} ({argument}) is {dtype}, the kernel takes {allowed}"
        )));
    }
    if tensor.dtype.torch_name().is_none() {
        let why = format!("input {index} ({argument}) is {}, which torch does not have", tensor.dtype);
        return Err(NotReplayable::NotCovered(why));
    }
    match &tensor.format {
        TensorFormat::Private(format) if !formats.contains(format) => {
            let why = format!("input {index} ({argument}) is in {format}, which the entry does not build");
            Err(NotReplayable::NotCovered(why))
        }
        _ => Ok(()),
    }
}

/// Types that must be those of another argument, or of a list's first tensor.
fn check_same_types(form: &EntryForm, case: &Case) -> Result<(), NotReplayable> {
    let tensor = |slot: usize| case.inputs.get(slot).and_then(Option::as_ref);
    for (index, slot) in form.tensors() {
        let first = form.tensor(&slot.argument).and_then(|(first, _)| tensor(first));
        if let (Some(first), Some(tensor)) = (first, tensor(index))
            && first.dtype != tensor.dtype
        {
            return Err(contradiction(format!(
                "input {index} is {}, the first of `{}` is {}: the kernel takes one type",
                tensor.dtype, slot.argument, first.dtype
            )));
        }
        let other = slot.same_type_as.as_deref().and_then(|name| form.tensor(name));
        if let (Some((other, known)), Some(tensor)) = (other, tensor(index))
            && let Some(wanted) = case.inputs.get(other).and_then(Option::as_ref)
            && tensor.dtype != wanted.dtype
        {
            return Err(contradiction(format!(
                "input {index} ({}) is {}, `{}` is {}: the kernel takes one type",
                slot.argument, tensor.dtype, known.argument, wanted.dtype
            )));
        }
    }
    Ok(())
}

/// The dimensions that torch sees. In FRACTAL_NZ a matrix of r rows and c columns lies as
/// (⌈c/c0⌉, ⌈r/r0⌉, r0, c0), with the dimensions of a batch in front.
pub(crate) fn logical_dims(slot: &TensorSlot, tensor: &Tensor) -> Result<Vec<u64>, NotReplayable> {
    match (&tensor.format, tensor.dims.as_slice()) {
        (TensorFormat::Private(_), [batch @ .., c1, r1, r0, c0])
            if slot.formats.iter().any(|f| f == "FRACTAL_NZ") =>
        {
            let product = |one: u64, other: u64| {
                one.checked_mul(other).ok_or_else(|| contradiction("a dimension does not fit 64 bits"))
            };
            let width = 32 / tensor.dtype.bytes().unwrap_or(2).max(1);
            if (*r0, *c0) != (16, width) {
                let dtype = &tensor.dtype;
                return Err(contradiction(format!(
                    "blocks of {r0} by {c0}, in FRACTAL_NZ those of {dtype} are 16 by {width}"
                )));
            }
            let matrix = [product(*r1, *r0)?, product(*c1, *c0)?];
            Ok(batch.iter().copied().chain(matrix).collect())
        }
        _ => Ok(tensor.dims.clone()),
    }
}

/// The dimensions that the profiler shows for a matrix in FRACTAL_NZ, which is filled up to whole blocks; the
/// other way around than [`logical_dims`].
pub(crate) fn blocked_dims(dims: &[u64], dtype: &Dtype) -> Option<Vec<u64>> {
    let [batch @ .., rows, columns] = dims else { return None };
    let width = 32 / dtype.bytes().unwrap_or(2).clamp(1, 32);
    let blocks = [columns.div_ceil(width), rows.div_ceil(16), 16, width];
    Some(batch.iter().copied().chain(blocks).collect())
}

/// One reason where all forms have the same, else the reason of each. Only where no form covers the case at
/// all, nothing is wrong with it.
fn no_form_fits(case: &Case, attempts: &[(&EntryForm, Result<Bindings, FormMismatch>)]) -> NotReplayable {
    let misfits: Vec<(&str, &FormMismatch)> = attempts
        .iter()
        .filter_map(|(form, bound)| bound.as_ref().err().map(|why| (form.rule.name.as_str(), why)))
        .collect();
    if let Some((_, FormMismatch::Refused(first))) = misfits.first()
        && misfits.iter().all(|(_, why)| matches!(why, FormMismatch::Refused(refusal) if refusal == first))
    {
        return first.clone();
    }
    let reasons: Vec<String> = misfits.iter().map(|(name, why)| format!("{name}: {why}")).collect();
    let text = format!("the shapes {} fit no form of {}: {}", case.shapes(), case.kernel, reasons.join("; "));
    if misfits.iter().all(|(_, why)| matches!(why, FormMismatch::Refused(NotReplayable::NotCovered(_)))) {
        return NotReplayable::NotCovered(text);
    }
    NotReplayable::Contradiction(text)
}

fn check_recorded_dtypes(recorded: &[Slot], outputs: &[Tensor]) -> Result<(), NotReplayable> {
    for (index, (slot, output)) in recorded.iter().zip(outputs).enumerate() {
        if let Some(tensor) = slot
            && tensor.dtype != output.dtype
        {
            return Err(contradiction(format!(
                "output {index} is recorded as {}, the call gives {}",
                tensor.dtype, output.dtype
            )));
        }
    }
    Ok(())
}

/// Torch's promotion: tensors with dimensions decide, scalars only where there is nothing else.
fn promoted(inputs: &[&Tensor]) -> Result<Dtype, NotReplayable> {
    let with_dims: Vec<&&Tensor> = inputs.iter().filter(|tensor| !tensor.is_scalar()).collect();
    let deciding = if with_dims.is_empty() { inputs.iter().collect() } else { with_dims };
    let mut dtypes = deciding.into_iter().map(|tensor| &tensor.dtype);
    let first =
        dtypes.next().cloned().ok_or_else(|| contradiction("no input decides the output type".to_owned()))?;
    dtypes.try_fold(first, |left, right| {
        left.promote(right).ok_or_else(|| contradiction(format!("{left} and {right} have no common type")))
    })
}

/// Sizes that cost expressions may use: `in_bytes`, `out_bytes`, `in_numel`, `out_numel`.
fn bind_sizes(bindings: &mut Bindings, inputs: &[&Tensor], outputs: &[Tensor]) {
    let sum = |values: &mut dyn Iterator<Item = u64>| {
        ExprValue::Number(i64::try_from(values.fold(0_u64, u64::saturating_add)).unwrap_or(i64::MAX))
    };
    bindings.set("in_bytes", sum(&mut inputs.iter().map(|tensor| tensor.bytes())));
    bindings.set("out_bytes", sum(&mut outputs.iter().map(Tensor::bytes)));
    bindings.set("in_numel", sum(&mut inputs.iter().map(|tensor| tensor.elements())));
    bindings.set("out_numel", sum(&mut outputs.iter().map(Tensor::elements)));
}
