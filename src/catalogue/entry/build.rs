//! From the YAML of an entry to the entry, with every contradiction named.

use std::{collections::BTreeMap, path::Path};

use super::{
    CallRequirements, CatalogueEntry, DeclaredArgument, DeclaredFill, EntryForm, InputSlot, OutputDtype,
    TensorSlot,
    checks::{check_api, check_form, check_forms, check_roles},
    lists::expanded,
    raw::{RawArgument, RawEntry, RawForm, RawInput, RawNeeds, RawOutput, RawValues},
};
use crate::{
    catalogue::{Expr, ExprError, OperatorSchema, ReturnShapes, RuleError, SchemaError, ShapeRule},
    config::{YamlError, yaml},
    domain::{CaseAttributes, Dtype, KernelName, KernelNameError},
};

/// What is wrong with an entry, before it is tied to a line.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EntryError {
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

pub(crate) fn fault(needle: &str, problem: String) -> EntryError {
    EntryError::Other { needle: needle.to_owned(), problem }
}

/// Parses and checks an entry.
pub(crate) fn entry(file: &Path, text: &str) -> Result<CatalogueEntry, YamlError> {
    let raw: RawEntry = yaml::parse(file, text)?;
    build(raw, file).map_err(|error| {
        let needle = match &error {
            EntryError::Kernel(_) => "kernel:".to_owned(),
            EntryError::Schema(_) => "schema:".to_owned(),
            EntryError::Rule(RuleError::NoArrow(rule) | RuleError::Term { rule, .. }) => rule.clone(),
            EntryError::Rule(RuleError::TwoSequences(slot)) => slot.clone(),
            EntryError::Rule(RuleError::Expr(inner)) | EntryError::Expr(inner) => expr_text(inner),
            EntryError::Other { needle, .. } => needle.clone(),
        };
        YamlError::at(file, text, &needle, error.to_string(), "docs/adding-a-kernel.md explains every key")
    })
}

fn expr_text(error: &ExprError) -> String {
    match error {
        ExprError::Syntax { source_text, .. } | ExprError::Value { source_text, .. } => source_text.clone(),
        ExprError::Unknown(text) | ExprError::NotConstant(text) => text.clone(),
    }
}

fn build(raw: RawEntry, file: &Path) -> Result<CatalogueEntry, EntryError> {
    let kernel = KernelName::new(&raw.kernel)?;
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    if stem != kernel.file_stem() {
        return Err(fault("kernel:", format!("kernel `{kernel}` stands in a file named for `{stem}`")));
    }
    if !is_python_path(&raw.api) {
        let problem = format!("`{}` is not a function of `torch` or `torch_npu`", raw.api);
        return Err(fault("api:", problem));
    }
    if raw.summary.starts_with("TODO") {
        return Err(fault("summary:", "this is a draft; complete what is marked TODO".to_owned()));
    }
    let schema = OperatorSchema::parse(&raw.schema)?;
    let slots = raw.forms.iter().filter_map(|form| form.inputs.as_ref()).chain([&raw.inputs]);
    let mut named = slots.flatten().flatten().filter_map(|slot| slot.argument.as_ref());
    if let Some(name) = named.find(|name| schema.argument(name).is_none()) {
        return Err(no_such_argument(&schema, name));
    }
    let mut forms = Vec::new();
    for form in &raw.forms {
        for form in expanded(form, &raw)? {
            forms.push(form);
        }
    }
    let entry = CatalogueEntry {
        kernel,
        summary: raw.summary,
        api: raw.api,
        schema,
        schema_text: raw.schema,
        also_named: raw.also_named,
        unit: raw.unit,
        needs: needs(raw.needs)?,
        judged_by: raw.judged_by,
        forms,
        flops: raw.cost.flops.as_deref().map(Expr::parse).transpose()?,
        bytes: raw.cost.bytes.as_deref().map(Expr::parse).transpose()?,
        assumption: raw.leaves_open,
        also_launches: raw.beside,
        roles: raw.roles,
        file: file.to_owned(),
    };
    check_api(&entry)?;
    check_forms(&entry)?;
    check_roles(&entry)?;
    entry.forms.iter().try_for_each(|form| check_form(&entry, form))?;
    Ok(entry)
}

/// `torch.mm`, `torch.nn.functional.embedding`, `torch_npu.npu_swiglu`: nothing else is rendered.
fn is_python_path(api: &str) -> bool {
    let mut parts = api.split('.');
    matches!(parts.next(), Some("torch" | "torch_npu"))
        && parts.clone().count() > 0
        && parts.all(is_identifier)
}

pub(crate) fn is_identifier(part: &str) -> bool {
    !part.is_empty()
        && !part.as_bytes()[0].is_ascii_digit()
        && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn needs(raw: RawNeeds) -> Result<CallRequirements, EntryError> {
    if let Some(module) = raw
        .modules
        .iter()
        .find(|module| !module.strip_suffix("()").unwrap_or(module).split('.').all(is_identifier))
    {
        return Err(fault(module, format!("`{module}` is not the name of a Python module")));
    }
    Ok(CallRequirements {
        modules: raw.modules,
        custom_operators: raw.custom_operators,
        graph: raw.graph,
        several_devices: raw.several_devices,
    })
}

pub(crate) fn entry_form(raw: &RawForm, entry: &RawEntry) -> Result<EntryForm, EntryError> {
    let inferred = raw.infer.iter().map(|(name, text)| Ok((name.clone(), Expr::parse(text)?)));
    let inferred = inferred.collect::<Result<_, EntryError>>()?;
    let rule = ShapeRule::parse(&raw.name, &raw.shapes, &raw.conditions, raw.transposed.clone())?
        .with_inferred(inferred);
    let mut inputs: Vec<InputSlot> =
        raw.inputs.as_ref().unwrap_or(&entry.inputs).iter().map(input_slot).collect::<Result<_, _>>()?;
    // Slots at the end that a rule leaves out need not be told.
    while inputs.len() < rule.input_count() && !rule.takes_slot(inputs.len()) {
        inputs.push(InputSlot::Ignored);
    }
    let outputs = raw.outputs.as_ref().unwrap_or(&entry.outputs).iter();
    let output_dtypes = outputs.map(|output| output_dtype(output, entry)).collect::<Result<_, _>>()?;
    let mut arguments = BTreeMap::new();
    for (name, argument) in entry.arguments.iter().chain(&raw.arguments) {
        arguments.insert(name.clone(), other_argument(name, argument)?);
    }
    if let Some(column) = raw.with.keys().find(|column| CaseAttributes::name_of(column).is_none()) {
        return Err(fault(column, format!("`{column}` is no column that says what shapes do not carry")));
    }
    let with = raw.with.clone();
    let returns = raw.returns.as_deref().map(ReturnShapes::parse).transpose()?;
    let flops = raw.cost.flops.as_deref().map(Expr::parse).transpose()?;
    let bytes = raw.cost.bytes.as_deref().map(Expr::parse).transpose()?;
    let quantises = raw.quantises.iter().map(|name| KernelName::new(name)).collect::<Result<_, _>>()?;
    let of_list = false;
    Ok(EntryForm { rule, inputs, output_dtypes, arguments, with, returns, of_list, flops, bytes, quantises })
}

fn dtypes_of(names: &[String]) -> Result<Vec<Dtype>, EntryError> {
    let known = |name: &String| match Dtype::parse(name) {
        Some(dtype) if dtype.torch_name().is_some() => Ok(dtype),
        _ => Err(fault(name, format!("`{name}` is not a type of torch"))),
    };
    names.iter().map(known).collect()
}

fn input_slot(raw: &Option<RawInput>) -> Result<InputSlot, EntryError> {
    let Some(raw) = raw else { return Ok(InputSlot::Ignored) };
    let dtypes = dtypes_of(&raw.dtypes)?;
    if let (Some(dtype), None, None) = (&raw.left_out, &raw.argument, &raw.host_dims) {
        let dtype = dtypes_of(std::slice::from_ref(dtype))?.into_iter().next();
        return dtype
            .map(InputSlot::Omitted)
            .ok_or_else(|| fault("left_out:", "`left_out:` says the type".to_owned()));
    }
    if let (Some(dims), None, None) = (&raw.made, &raw.argument, &raw.host_dims) {
        let [dtype] = &dtypes[..] else {
            return Err(fault(dims, format!("`made: {dims}` needs `dtypes:` with one type")));
        };
        return Ok(InputSlot::Intermediate { dims: Expr::parse(dims)?, dtype: dtype.clone() });
    }
    match (&raw.argument, &raw.host_dims) {
        (Some(argument), None) => Ok(InputSlot::Tensor(TensorSlot {
            argument: argument.clone(),
            values: match &raw.same_as {
                Some(other) => DeclaredFill::SameAs(other.clone()),
                None => values(argument, raw.values, &FillDetails::of_input(raw))?,
            },
            dtypes,
            same_type_as: raw.same_type_as.clone(),
            number_for: dtypes_of(&raw.number_for)?,
            formats: raw.formats.clone(),
            shown_whole: raw.shown_whole,
        })),
        (None, Some(dims)) => {
            let dtype = dtypes.first().cloned().unwrap_or(Dtype::Int64);
            if dims == "scalar" {
                return Ok(InputSlot::Omitted(dtype));
            }
            Ok(InputSlot::Host { dims: Expr::parse(dims)?, dtype })
        }
        _ => Err(fault(
            "inputs:",
            "each input has one of `argument:`, `host_dims:`, `made:` and `left_out:`".to_owned(),
        )),
    }
}

fn values(
    argument: &str,
    values: Option<RawValues>,
    details: &FillDetails<'_>,
) -> Result<DeclaredFill, EntryError> {
    let Some(values) = values else {
        let problem = format!("`{argument}` needs `values:`, such as activation, weight, ones or index");
        return Err(fault(argument, problem));
    };
    let wanted: &[&str] = match values {
        RawValues::Index
        | RawValues::Zipf
        | RawValues::Counting
        | RawValues::Distinct
        | RawValues::Experts
        | RawValues::Picks => &["below"],
        RawValues::Cumulative | RawValues::Counts => &["total"],
        RawValues::Listed => &["items"],
        RawValues::Blocks => &["below", "used"],
        _ => &[],
    };
    let FillDetails { below, total, used, items } = *details;
    for (key, why, given) in [
        ("below", "over which range", below),
        ("total", "how many items are shared", total),
        ("used", "how many blocks each sequence uses", used),
        ("items", "which numbers", items),
    ] {
        match (wanted.contains(&key), given) {
            (true, None) => {
                let problem = format!("`{argument}` is {values:?}: `{key}:` must say {why}");
                return Err(fault(argument, problem));
            }
            (false, Some(_)) => {
                return Err(fault(key, format!("`{key}:` of `{argument}` does not go with `{values:?}`")));
            }
            _ => {}
        }
    }
    let bound = || Expr::parse(below.or(total).or(items).unwrap_or_default());
    Ok(match values {
        RawValues::Activation => DeclaredFill::Activation,
        RawValues::Weight => DeclaredFill::Weight,
        RawValues::Ones => DeclaredFill::Ones,
        RawValues::Zeros => DeclaredFill::Zeros,
        RawValues::Scales => DeclaredFill::Scales,
        RawValues::Causal => DeclaredFill::Causal,
        RawValues::Index => DeclaredFill::Index(bound()?),
        RawValues::Zipf => DeclaredFill::Zipf(bound()?),
        RawValues::Counting => DeclaredFill::Counting(bound()?),
        RawValues::Distinct => DeclaredFill::Distinct(bound()?),
        RawValues::Experts => DeclaredFill::Experts(bound()?),
        RawValues::Cumulative => DeclaredFill::Cumulative(bound()?),
        RawValues::Counts => DeclaredFill::Counts(bound()?),
        RawValues::Picks => DeclaredFill::Picks(bound()?),
        RawValues::Listed => DeclaredFill::Listed(bound()?),
        RawValues::Blocks => {
            DeclaredFill::Blocks { below: bound()?, used: Expr::parse(used.unwrap_or_default())? }
        }
    })
}

/// What stands beside `values:`.
struct FillDetails<'a> {
    below: Option<&'a str>,
    total: Option<&'a str>,
    used: Option<&'a str>,
    items: Option<&'a str>,
}

impl<'a> FillDetails<'a> {
    fn of_input(raw: &'a RawInput) -> Self {
        let RawInput { below, total, used, items, .. } = raw;
        Self {
            below: below.as_deref(),
            total: total.as_deref(),
            used: used.as_deref(),
            items: items.as_deref(),
        }
    }

    fn of_argument(raw: &'a RawArgument) -> Self {
        let RawArgument { below, total, used, items, .. } = raw;
        Self {
            below: below.as_deref(),
            total: total.as_deref(),
            used: used.as_deref(),
            items: items.as_deref(),
        }
    }
}

fn other_argument(name: &str, raw: &RawArgument) -> Result<DeclaredArgument, EntryError> {
    let mut found: Vec<DeclaredArgument> = Vec::new();
    found.extend(raw.constant.clone().map(DeclaredArgument::Constant));
    if let Some(text) = &raw.expression {
        found.push(DeclaredArgument::Expression(Expr::parse(text)?));
    }
    if let Some(text) = &raw.inverse_root {
        found.push(DeclaredArgument::InverseRoot(Expr::parse(text)?));
    }
    found.extend(raw.destination.map(DeclaredArgument::Destination));
    found.extend(
        raw.dtype_of_output.map(|output| DeclaredArgument::DtypeOf { output, quantised: raw.quantised }),
    );
    if let Some(ranks) = &raw.process_group {
        found.push(DeclaredArgument::ProcessGroup(Expr::parse(ranks)?));
    }
    if let Some(column) = &raw.attribute {
        if CaseAttributes::name_of(column).is_none() {
            return Err(fault(column, format!("`{column}` is no column that says what shapes do not carry")));
        }
        found.push(DeclaredArgument::Attribute(column.clone()));
    }
    if let Some(dims) = &raw.tensor {
        let dtype = dtypes_of(raw.dtype.as_slice())?.into_iter().next();
        let dtype = dtype.ok_or_else(|| fault(name, format!("tensor `{name}` needs a `dtype:`")))?;
        let values = values(name, raw.values, &FillDetails::of_argument(raw))?;
        found.push(DeclaredArgument::Tensor {
            dims: ReturnShapes::parse(dims)?,
            dtype,
            values,
            on_host: raw.on_host,
        });
    }
    match (found.pop(), found.is_empty()) {
        (Some(argument), true) => Ok(argument),
        _ => {
            let problem = format!(
                "argument `{name}` has one of `constant:`, `expression:`, `inverse_root:`, `destination:`, \
                 `dtype_of_output:`, `attribute:`, `process_group:`, `tensor:`"
            );
            Err(fault(name, problem))
        }
    }
}

fn output_dtype(raw: &RawOutput, entry: &RawEntry) -> Result<OutputDtype, EntryError> {
    let text = match raw {
        RawOutput::Recorded { recorded, .. } if recorded.is_empty() => {
            return Err(fault(
                "recorded",
                "`recorded:` lists the types that the output can be of".to_owned(),
            ));
        }
        RawOutput::Recorded { recorded, unlike: None } => {
            return Ok(OutputDtype::Recorded(dtypes_of(recorded)?));
        }
        RawOutput::Recorded { recorded, unlike: Some(other) } => {
            return Ok(OutputDtype::RecordedUnlike(dtypes_of(recorded)?, other.clone()));
        }
        RawOutput::Word(text) => text,
    };
    let slots = entry.forms.iter().filter_map(|form| form.inputs.as_ref()).chain([&entry.inputs]);
    let is_argument =
        slots.flatten().flatten().any(|slot| slot.argument.as_ref().is_some_and(|name| name == text));
    match (is_argument, text.as_str()) {
        (true, _) => Ok(OutputDtype::SameAs(text.clone())),
        (false, "promoted") => Ok(OutputDtype::Promoted),
        (false, other) => match Dtype::parse(other) {
            Some(dtype) if dtype.torch_name().is_some() => Ok(OutputDtype::Fixed(dtype)),
            _ => {
                let problem = format!("`{other}` is neither an argument, `promoted` nor a type");
                Err(fault("outputs:", problem))
            }
        },
    }
}

pub(crate) fn no_such_argument(schema: &OperatorSchema, name: &str) -> EntryError {
    let names: Vec<&str> = schema.arguments.iter().map(|known| known.name.as_str()).collect();
    fault(name, format!("the schema has no argument `{name}`; it has {}", names.join(", ")))
}
