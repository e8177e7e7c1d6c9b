//! One entry of the catalogue: `op_replay/<Kernel>.yaml`, parsed and checked against itself.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde::Deserialize;

use super::{Expr, ExprError, Form, RuleError, Schema, SchemaError, SpecError, device_profile::Unit, yaml};
use crate::model::{Dtype, KernelName, KernelNameError};

/// How a kernel is replayed.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The kernel, as the profiler names it.
    pub kernel: KernelName,
    /// What it computes, in a line.
    pub summary: String,
    /// The Python function, such as `torch_npu.npu_rms_norm`.
    pub api: String,
    /// The function's signature.
    pub schema: Schema,
    /// The schema as it is written in the file.
    pub schema_text: String,
    /// Other names under which the profiler shows the same kernel.
    pub also_named: Vec<String>,
    /// Which unit bounds its arithmetic.
    pub unit: Unit,
    /// What the profiler's input slots are, in their order.
    pub inputs: Vec<InputSlot>,
    /// Element types of the outputs, in their order.
    pub output_dtypes: Vec<OutputDtype>,
    /// The shape rule: the first form that fits is the reading taken.
    pub forms: Vec<Form>,
    /// Arguments that are not input slots.
    pub arguments: BTreeMap<String, Argument>,
    /// Floating-point operations; one per output element where the file says nothing.
    pub flops: Option<Expr>,
    /// Bytes that must move; all inputs and outputs once where the file says nothing.
    pub bytes: Option<Expr>,
    /// What recorded shapes do not tell, and what the replay takes it for.
    pub leaves_open: Option<String>,
    /// Kernels that the same call launches besides.
    pub beside: Vec<String>,
    /// Where the entry comes from, for messages.
    pub file: PathBuf,
}

/// What one input slot of the profiler is.
#[derive(Clone, Debug)]
pub enum InputSlot {
    /// A tensor argument of the call.
    Tensor {
        /// The argument's name in the schema.
        argument: String,
        /// What it is filled with.
        values: Values,
        /// Types that the kernel takes; any where empty.
        dtypes: Vec<Dtype>,
        /// Types for which a slot without dimensions is passed as a Python number.
        number_for: Vec<Dtype>,
    },
    /// Something the kernel reads from the host, which the profiler shows as a tensor.
    Host {
        /// Its length.
        dims: Expr,
        /// Its type.
        dtype: Dtype,
    },
}

/// What a tensor is filled with, seeded.
#[derive(Clone, Debug)]
pub enum Values {
    /// N(0,1); whole numbers in [-8, 8) for integer types; both values for `BOOL`.
    Activation,
    /// As activations, scaled by the root of the last dimension so that products keep their size.
    Weight,
    /// Ones, as norm weights and scales are at the start of training.
    Ones,
    /// Whole numbers, uniform over [0, bound).
    Index(Expr),
}

/// Where an argument that is no input slot comes from.
#[derive(Clone, Debug)]
pub enum Argument {
    /// A constant.
    Constant(serde_json::Value),
    /// Follows from the shapes.
    Expression(Expr),
    /// A buffer like that output, which the call writes.
    Destination(usize),
}

/// The type of an output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutputDtype {
    /// That of an input slot.
    SameAs(usize),
    /// That of all tensor inputs together, by torch's promotion.
    Promoted,
    /// Always this one.
    Fixed(Dtype),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawEntry {
    kernel: String,
    summary: String,
    api: String,
    schema: String,
    #[serde(default)]
    also_named: Vec<String>,
    unit: Unit,
    inputs: Vec<RawInput>,
    outputs: Vec<String>,
    forms: Vec<RawForm>,
    #[serde(default)]
    arguments: BTreeMap<String, RawArgument>,
    #[serde(default)]
    cost: RawCost,
    leaves_open: Option<String>,
    #[serde(default)]
    beside: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawInput {
    argument: Option<String>,
    values: Option<RawValues>,
    below: Option<String>,
    #[serde(default)]
    dtypes: Vec<String>,
    #[serde(default)]
    number_for: Vec<String>,
    host_dims: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum RawValues {
    Activation,
    Weight,
    Ones,
    Index,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawForm {
    name: String,
    shapes: String,
    #[serde(default)]
    transposed: Vec<String>,
    #[serde(default, rename = "where")]
    conditions: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "lowercase")]
struct RawArgument {
    constant: Option<serde_json::Value>,
    expression: Option<String>,
    destination: Option<usize>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCost {
    flops: Option<String>,
    bytes: Option<String>,
}

/// What is wrong with an entry, before it is tied to a line.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error(transparent)]
    Kernel(#[from] KernelNameError),
    #[error(transparent)]
    Schema(#[from] SchemaError),
    #[error(transparent)]
    Rule(#[from] RuleError),
    #[error(transparent)]
    Expr(#[from] ExprError),
    #[error("{problem}")]
    Other { needle: String, problem: String },
}

fn fault(needle: &str, problem: String) -> Fault {
    Fault::Other { needle: needle.to_owned(), problem }
}

impl Entry {
    /// Parses and checks an entry.
    pub(super) fn parse(file: &Path, text: &str) -> Result<Self, SpecError> {
        let raw: RawEntry = yaml::parse(file, text)?;
        build(raw, file).map_err(|error| {
            let needle = match &error {
                Fault::Kernel(_) => "kernel:".to_owned(),
                Fault::Schema(_) => "schema:".to_owned(),
                Fault::Rule(RuleError::NoArrow(rule) | RuleError::Term { rule, .. }) => rule.clone(),
                Fault::Rule(RuleError::TwoSequences(slot)) => slot.clone(),
                Fault::Rule(RuleError::Expr(inner)) | Fault::Expr(inner) => expr_text(inner),
                Fault::Other { needle, .. } => needle.clone(),
            };
            SpecError::at(
                file,
                text,
                &needle,
                error.to_string(),
                "docs/adding-a-kernel.md explains every key",
            )
        })
    }

    /// Input slots that the kernel reads from the host.
    #[must_use]
    pub fn host_slots(&self) -> Vec<usize> {
        let slots = self.inputs.iter().enumerate();
        slots.filter(|(_, slot)| matches!(slot, InputSlot::Host { .. })).map(|(index, _)| index).collect()
    }

    /// The names under which the profiler may show the kernel.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.kernel.as_str()).chain(self.also_named.iter().map(String::as_str))
    }
}

fn expr_text(error: &ExprError) -> String {
    match error {
        ExprError::Syntax { source_text, .. } | ExprError::Value { source_text, .. } => source_text.clone(),
        ExprError::Unknown(name) => name.clone(),
    }
}

fn build(raw: RawEntry, file: &Path) -> Result<Entry, Fault> {
    let kernel = KernelName::new(&raw.kernel)?;
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    if stem != kernel.file_stem() {
        return Err(fault("kernel:", format!("kernel `{kernel}` stands in a file named for `{stem}`")));
    }
    if !is_python_path(&raw.api) {
        let problem = format!("`{}` is not a function of `torch` or `torch_npu`", raw.api);
        return Err(fault("api:", problem));
    }
    let schema = Schema::parse(&raw.schema)?;
    let inputs: Vec<InputSlot> = raw.inputs.into_iter().map(input_slot).collect::<Result<_, _>>()?;
    let forms: Vec<Form> = raw
        .forms
        .into_iter()
        .map(|form| Form::parse(&form.name, &form.shapes, &form.conditions, form.transposed))
        .collect::<Result<_, _>>()?;
    let arguments = raw
        .arguments
        .into_iter()
        .map(|(name, argument)| Ok((name.clone(), other_argument(&name, argument)?)))
        .collect::<Result<_, Fault>>()?;
    let output_dtypes: Vec<OutputDtype> =
        raw.outputs.iter().map(|text| output_dtype(text, &inputs)).collect();
    let entry = Entry {
        kernel,
        summary: raw.summary,
        api: raw.api,
        schema,
        schema_text: raw.schema,
        also_named: raw.also_named,
        unit: raw.unit,
        inputs,
        output_dtypes,
        forms,
        arguments,
        flops: raw.cost.flops.as_deref().map(Expr::parse).transpose()?,
        bytes: raw.cost.bytes.as_deref().map(Expr::parse).transpose()?,
        leaves_open: raw.leaves_open,
        beside: raw.beside,
        file: file.to_owned(),
    };
    check_arguments(&entry)?;
    check_call(&entry)?;
    check_forms(&entry)?;
    Ok(entry)
}

/// `torch.mm`, `torch.nn.functional.embedding`, `torch_npu.npu_swiglu`: nothing else is rendered.
fn is_python_path(api: &str) -> bool {
    let mut parts = api.split('.');
    let identifier = |part: &str| {
        !part.is_empty()
            && !part.as_bytes()[0].is_ascii_digit()
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    matches!(parts.next(), Some("torch" | "torch_npu")) && parts.clone().count() > 0 && parts.all(identifier)
}

fn dtypes_of(names: &[String]) -> Result<Vec<Dtype>, Fault> {
    let known = |name: &String| match Dtype::parse(name) {
        Some(dtype) if dtype.torch_name().is_some() => Ok(dtype),
        _ => Err(fault(name, format!("`{name}` is not a type of torch"))),
    };
    names.iter().map(known).collect()
}

fn input_slot(raw: RawInput) -> Result<InputSlot, Fault> {
    let dtypes = dtypes_of(&raw.dtypes)?;
    match (raw.argument, raw.host_dims) {
        (Some(argument), None) => {
            let values = match (raw.values, raw.below) {
                (Some(RawValues::Activation), None) => Values::Activation,
                (Some(RawValues::Weight), None) => Values::Weight,
                (Some(RawValues::Ones), None) => Values::Ones,
                (Some(RawValues::Index), Some(bound)) => Values::Index(Expr::parse(&bound)?),
                (Some(RawValues::Index), None) => {
                    let problem = format!("`{argument}` is an index: `below:` must say over which range");
                    return Err(fault(&argument, problem));
                }
                (_, Some(_)) => {
                    return Err(fault("below", format!("`below:` of `{argument}` is for `values: index`")));
                }
                (None, None) => {
                    let problem = format!("`{argument}` needs `values:` (activation, weight, ones or index)");
                    return Err(fault(&argument, problem));
                }
            };
            Ok(InputSlot::Tensor { argument, values, dtypes, number_for: dtypes_of(&raw.number_for)? })
        }
        (None, Some(dims)) => {
            let dtype = dtypes.first().cloned().unwrap_or(Dtype::Int64);
            Ok(InputSlot::Host { dims: Expr::parse(&dims)?, dtype })
        }
        _ => Err(fault("inputs:", "each input has either `argument:` or `host_dims:`".to_owned())),
    }
}

fn other_argument(name: &str, raw: RawArgument) -> Result<Argument, Fault> {
    match (raw.constant, raw.expression, raw.destination) {
        (Some(constant), None, None) => Ok(Argument::Constant(constant)),
        (None, Some(expression), None) => Ok(Argument::Expression(Expr::parse(&expression)?)),
        (None, None, Some(output)) => Ok(Argument::Destination(output)),
        _ => {
            let problem = format!("argument `{name}` has one of `constant:`, `expression:`, `destination:`");
            Err(fault(name, problem))
        }
    }
}

fn output_dtype(text: &str, inputs: &[InputSlot]) -> OutputDtype {
    let slot =
        inputs.iter().position(|slot| matches!(slot, InputSlot::Tensor { argument, .. } if argument == text));
    match (slot, text) {
        (Some(slot), _) => OutputDtype::SameAs(slot),
        (None, "promoted") => OutputDtype::Promoted,
        (None, other) => OutputDtype::Fixed(Dtype::parse(other).unwrap_or(Dtype::Other(other.to_owned()))),
    }
}

fn check_forms(entry: &Entry) -> Result<(), Fault> {
    if entry.forms.is_empty() {
        return Err(fault("forms:", "there is no form, so nothing can be replayed".to_owned()));
    }
    for form in &entry.forms {
        let counts = [
            ("input", form.input_count(), entry.inputs.len()),
            ("output", form.output_count(), entry.output_dtypes.len()),
        ];
        for (side, in_form, declared) in counts {
            if in_form != declared {
                let problem =
                    format!("form `{}` has {in_form} {side} slots, `{side}s:` has {declared}", form.name);
                return Err(fault(form.source(), problem));
            }
        }
    }
    for dtype in &entry.output_dtypes {
        if let OutputDtype::Fixed(Dtype::Other(name)) = dtype {
            let problem = format!("`{name}` is neither an argument, `promoted` nor a type");
            return Err(fault("outputs:", problem));
        }
    }
    Ok(())
}

/// The function is the schema's, and constants are of the types that it takes.
fn check_call(entry: &Entry) -> Result<(), Fault> {
    let function = entry.api.rsplit('.').next().unwrap_or(&entry.api);
    if function != entry.schema.short_name() {
        let problem =
            format!("`{}` is not the function of the schema, `{}`", entry.api, entry.schema.short_name());
        return Err(fault("api:", problem));
    }
    for (name, argument) in &entry.arguments {
        let (Argument::Constant(constant), Some(declared)) = (argument, entry.schema.argument(name)) else {
            continue;
        };
        let fits = declared.kind.takes(constant) || (constant.is_null() && declared.optional);
        if !fits {
            let problem =
                format!("argument `{name}` is {:?} in the schema, which `{constant}` is not", declared.kind);
            return Err(fault(name, problem));
        }
    }
    Ok(())
}

/// Every argument of the call exists in the schema, and every one without default is given.
fn check_arguments(entry: &Entry) -> Result<(), Fault> {
    let from_slots = entry.inputs.iter().filter_map(|slot| match slot {
        InputSlot::Tensor { argument, .. } => Some(argument.as_str()),
        InputSlot::Host { .. } => None,
    });
    let given: Vec<&str> = from_slots.chain(entry.arguments.keys().map(String::as_str)).collect();
    let transposed = entry.forms.iter().flat_map(|form| form.transposed.iter().map(String::as_str));
    for name in given.iter().copied().chain(transposed) {
        if entry.schema.argument(name).is_none() {
            let names: Vec<&str> = entry.schema.arguments.iter().map(|known| known.name.as_str()).collect();
            let problem = format!("the schema has no argument `{name}`; it has {}", names.join(", "));
            return Err(fault(name, problem));
        }
    }
    for (index, name) in given.iter().enumerate() {
        if given[..index].contains(name) {
            return Err(fault(name, format!("argument `{name}` is given twice")));
        }
    }
    let missing = entry.schema.arguments.iter().find(|a| !a.has_default && !given.contains(&a.name.as_str()));
    if let Some(argument) = missing {
        let problem = format!("argument `{}` has no default and is not given", argument.name);
        return Err(fault("schema:", problem));
    }
    Ok(())
}
