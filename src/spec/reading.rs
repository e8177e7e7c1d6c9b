//! How the catalogue reads one case: which form it takes, what the call is given, what the work is.

use super::{Argument, Bindings, Entry, Form, InputSlot, Value, Values, Work, entry::OutputDtype};
use crate::model::{Case, Dtype, Format, Slot, Tensor};

/// A case as an entry of the catalogue reads it.
#[derive(Clone, Debug)]
pub struct Reading {
    /// Name of the form taken.
    pub form: String,
    /// What the shapes leave open and what it was taken for, in words; empty where nothing is open.
    pub notes: Vec<String>,
    /// What the call is given, by argument, in the schema's order.
    pub arguments: Vec<(String, Supplied)>,
    /// The outputs by the shape rule.
    pub outputs: Vec<Tensor>,
    /// What the device must do at the least.
    pub work: Work,
}

/// What one argument of the call is given.
#[derive(Clone, Debug)]
pub enum Supplied {
    /// A tensor with values.
    Tensor {
        /// As it lies in device memory.
        tensor: Tensor,
        /// Whether the call sees its last two dimensions swapped.
        transposed: bool,
        /// What it is filled with.
        fill: Fill,
    },
    /// A Python number, where the profiler shows a scalar of that type.
    Number(Dtype),
    /// A constant or something that follows from the shapes.
    Constant(serde_json::Value),
    /// A buffer that the call writes.
    Destination(Tensor),
}

/// What a tensor is filled with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// See [`Values::Activation`].
    Activation,
    /// See [`Values::Weight`].
    Weight,
    /// Ones.
    Ones,
    /// Whole numbers, uniform from 0 to below this bound.
    Below(i64),
}

/// Why a case cannot be replayed, in words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The entry does not know such cases; nothing is wrong with the case.
    #[error("{0}")]
    NotCovered(String),
    /// The case contradicts the entry.
    #[error("{0}")]
    Contradiction(String),
}

fn contradiction(why: impl Into<String>) -> Refusal {
    Refusal::Contradiction(why.into())
}

impl Entry {
    /// Reads a case by the shape rule.
    ///
    /// # Errors
    /// [`Refusal`] where slots, types or shapes contradict the entry; it says which.
    pub fn read(&self, case: &Case) -> Result<Reading, Refusal> {
        let inputs = self.present_inputs(&case.inputs)?;
        self.check_dtypes(&inputs)?;
        if let Some(index) = inputs.iter().position(|tensor| tensor.elements() == 0) {
            return Err(contradiction(format!(
                "input {index} has no elements, so nothing would be launched"
            )));
        }
        let dims: Vec<Vec<u64>> = inputs.iter().map(|tensor| tensor.dims.clone()).collect();
        let recorded: Vec<Vec<u64>> =
            case.outputs.iter().flatten().map(|tensor| tensor.dims.clone()).collect();
        let recorded_dims = (!recorded.is_empty()).then_some(recorded.as_slice());

        let attempts: Vec<(&Form, Result<Bindings, String>)> = self
            .forms
            .iter()
            .map(|form| (form, form.bind(&dims, recorded_dims, Bindings::default())))
            .collect();
        let fitting: Vec<(&Form, &Bindings)> =
            attempts.iter().filter_map(|(form, bound)| bound.as_ref().ok().map(|b| (*form, b))).collect();
        let Some(&(form, bindings)) = fitting.first() else {
            return Err(no_form_fits(case, &attempts));
        };
        let outputs = self.outputs(form, bindings, &inputs)?;
        check_recorded_dtypes(&case.outputs, &outputs)?;
        let mut bindings = bindings.clone();
        bind_sizes(&mut bindings, &inputs, &outputs);
        Ok(Reading {
            form: form.name.clone(),
            notes: self.notes(form, &fitting, &inputs),
            arguments: self.supply(form, &bindings, &inputs, &outputs)?,
            work: self.work(&bindings, &inputs)?,
            outputs,
        })
    }

    fn present_inputs<'a>(&self, slots: &'a [Slot]) -> Result<Vec<&'a Tensor>, Refusal> {
        if slots.len() != self.inputs.len() {
            return Err(Refusal::NotCovered(format!(
                "{} input slots are recorded, the entry of {} reads {}",
                slots.len(),
                self.kernel,
                self.inputs.len()
            )));
        }
        let present = slots.iter().enumerate().map(|(index, slot)| {
            slot.as_ref()
                .ok_or_else(|| contradiction(format!("input slot {index} is empty, the call needs it")))
        });
        present.collect()
    }

    fn check_dtypes(&self, inputs: &[&Tensor]) -> Result<(), Refusal> {
        for (index, (slot, tensor)) in self.inputs.iter().zip(inputs).enumerate() {
            if let InputSlot::Tensor { dtypes, argument, .. } = slot {
                if !dtypes.is_empty() && !dtypes.contains(&tensor.dtype) {
                    let allowed: Vec<&str> = dtypes.iter().map(Dtype::as_str).collect();
                    let (dtype, allowed) = (&tensor.dtype, allowed.join(", "));
                    return Err(contradiction(format!(
                        "input {index} ({argument}) is {dtype}, the kernel takes {allowed}"
                    )));
                }
                if tensor.dtype.torch_name().is_none() {
                    let why =
                        format!("input {index} ({argument}) is {}, which torch does not have", tensor.dtype);
                    return Err(Refusal::NotCovered(why));
                }
                if let Format::Private(format) = &tensor.format {
                    let why =
                        format!("input {index} ({argument}) is in {format}, which the entry does not build");
                    return Err(Refusal::NotCovered(why));
                }
            }
        }
        Ok(())
    }

    /// The outputs that a form gives.
    pub(crate) fn outputs(
        &self,
        form: &Form,
        bindings: &Bindings,
        inputs: &[&Tensor],
    ) -> Result<Vec<Tensor>, Refusal> {
        let shapes = form.outputs(bindings).map_err(Refusal::Contradiction)?;
        let outputs = self.output_dtypes.iter().zip(shapes).map(|(dtype, dims)| {
            let dtype = match dtype {
                OutputDtype::SameAs(slot) => inputs[*slot].dtype.clone(),
                OutputDtype::Fixed(dtype) => dtype.clone(),
                OutputDtype::Promoted => promoted(inputs)?,
            };
            Ok(Tensor::new(dims, dtype))
        });
        outputs.collect()
    }

    fn notes(&self, form: &Form, fitting: &[(&Form, &Bindings)], inputs: &[&Tensor]) -> Vec<String> {
        let mut notes = Vec::new();
        let others: Vec<&str> = fitting.iter().skip(1).map(|(other, _)| other.name.as_str()).collect();
        if !others.is_empty() {
            notes.push(format!("read as {}; the shapes also fit {}", form.name, others.join(", ")));
        }
        for (slot, tensor) in self.inputs.iter().zip(inputs) {
            let InputSlot::Tensor { argument, number_for, .. } = slot else { continue };
            if tensor.is_scalar() && !number_for.is_empty() {
                let read = if number_for.contains(&tensor.dtype) {
                    "a Python number"
                } else {
                    "a tensor without dimensions"
                };
                notes.push(format!("scalar `{argument}` read as {read}"));
            }
        }
        notes.extend(self.leaves_open.clone());
        notes
    }

    fn supply(
        &self,
        form: &Form,
        bindings: &Bindings,
        inputs: &[&Tensor],
        outputs: &[Tensor],
    ) -> Result<Vec<(String, Supplied)>, Refusal> {
        let mut supplied = Vec::new();
        for name in self.schema.arguments.iter().map(|argument| &argument.name) {
            let slot = self
                .inputs
                .iter()
                .position(|slot| matches!(slot, InputSlot::Tensor { argument, .. } if argument == name));
            if let Some(slot) = slot {
                let tensor = inputs[slot];
                let transposed = form.transposed.contains(name);
                supplied.push((name.clone(), self.supply_tensor(slot, tensor, transposed, bindings)?));
            } else if let Some(argument) = self.arguments.get(name) {
                supplied.push((name.clone(), supply_other(argument, bindings, outputs)?));
            }
        }
        Ok(supplied)
    }

    fn supply_tensor(
        &self,
        slot: usize,
        tensor: &Tensor,
        transposed: bool,
        bindings: &Bindings,
    ) -> Result<Supplied, Refusal> {
        let InputSlot::Tensor { values, number_for, .. } = &self.inputs[slot] else {
            return Err(contradiction(format!("input slot {slot} is not a tensor")));
        };
        if tensor.is_scalar() && number_for.contains(&tensor.dtype) {
            return Ok(Supplied::Number(tensor.dtype.clone()));
        }
        let fill = match values {
            Values::Activation => Fill::Activation,
            Values::Weight => Fill::Weight,
            Values::Ones => Fill::Ones,
            Values::Index(bound) => {
                Fill::Below(bound.number(bindings).map_err(|error| contradiction(error.to_string()))?)
            }
        };
        if matches!(fill, Fill::Below(bound) if bound < 1) {
            return Err(contradiction(format!("input slot {slot} would index an empty range")));
        }
        Ok(Supplied::Tensor { tensor: tensor.clone(), transposed, fill })
    }

    #[expect(clippy::cast_precision_loss, reason = "estimates of work need no more than 53 bits")]
    fn work(&self, bindings: &Bindings, inputs: &[&Tensor]) -> Result<Work, Refusal> {
        let number =
            |expr: &super::Expr| expr.number(bindings).map_err(|error| contradiction(error.to_string()));
        let size = |name: &str| bindings.get(name).and_then(|value| value.number().ok()).unwrap_or_default();
        let flops = self.flops.as_ref().map_or(Ok(size("out_numel")), number)?;
        let bytes =
            self.bytes.as_ref().map_or(Ok(size("in_bytes").saturating_add(size("out_bytes"))), number)?;
        let dtype = inputs.first().map_or(Dtype::Float, |tensor| tensor.dtype.clone());
        Ok(Work { flops: flops as f64, bytes: bytes as f64, unit: self.unit, dtype })
    }
}

fn no_form_fits(case: &Case, attempts: &[(&Form, Result<Bindings, String>)]) -> Refusal {
    let reasons: Vec<String> = attempts
        .iter()
        .filter_map(|(form, bound)| bound.as_ref().err().map(|why| format!("{}: {why}", form.name)))
        .collect();
    contradiction(format!(
        "the shapes {} fit no form of {}: {}",
        case.shapes(),
        case.kernel,
        reasons.join("; ")
    ))
}

fn check_recorded_dtypes(recorded: &[Slot], outputs: &[Tensor]) -> Result<(), Refusal> {
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
fn promoted(inputs: &[&Tensor]) -> Result<Dtype, Refusal> {
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
        Value::Number(i64::try_from(values.fold(0_u64, u64::saturating_add)).unwrap_or(i64::MAX))
    };
    bindings.set("in_bytes", sum(&mut inputs.iter().map(|tensor| tensor.bytes())));
    bindings.set("out_bytes", sum(&mut outputs.iter().map(Tensor::bytes)));
    bindings.set("in_numel", sum(&mut inputs.iter().map(|tensor| tensor.elements())));
    bindings.set("out_numel", sum(&mut outputs.iter().map(Tensor::elements)));
}

fn supply_other(argument: &Argument, bindings: &Bindings, outputs: &[Tensor]) -> Result<Supplied, Refusal> {
    Ok(match argument {
        Argument::Constant(constant) => Supplied::Constant(constant.clone()),
        Argument::Expression(expr) => {
            let value = expr.value(bindings).map_err(|error| contradiction(error.to_string()))?;
            Supplied::Constant(match value {
                Value::Number(number) => number.into(),
                Value::Truth(truth) => truth.into(),
                Value::List(list) => list.into(),
            })
        }
        Argument::Destination(output) => {
            let tensor = outputs.get(*output).cloned();
            Supplied::Destination(
                tensor.ok_or_else(|| contradiction(format!("there is no output {output}")))?,
            )
        }
    })
}
