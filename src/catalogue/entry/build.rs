//! Builds an entry from its YAML; an error names the contradiction.

use std::{collections::BTreeMap, path::Path};

use super::{
    CallRequirements, CatalogueEntry, DeclaredArgument, EntryForm, Fill, FillKind, InputSlot, OutputDtype,
    TensorSlot, TensorSource,
    checks::{check_api, check_form, check_forms, check_roles},
    error::{EntryError, fault, no_such_argument},
    lists::{expand_lists, is_identifier},
    named_shapes::with_positional_rule,
    raw::{RawArgument, RawEntry, RawForm, RawInput, RawNeeds, RawOutput, RawSharedEntry},
};
use crate::{
    catalogue::{Expr, OperatorSchema, ReturnShapes, ShapeRule},
    config::{YamlError, yaml},
    domain::{CaseAttributes, Dtype, KernelName},
};

const HINT: &str = "docs/adding-a-kernel.md explains every key";

/// Parses and checks an entry.
pub(crate) fn entry(file: &Path, text: &str) -> Result<CatalogueEntry, YamlError> {
    let raw: RawEntry = yaml::parse(file, text)?;
    build(raw, file).map_err(|error| YamlError::at(file, text, &error.needle(), error.to_string(), HINT))
}

/// Parses a file with `same_as:`: the kernel, and the one whose definition it has. `None` for any other file.
pub(crate) fn shared_entry(file: &Path, text: &str) -> Result<Option<(KernelName, String)>, YamlError> {
    if !text.lines().any(|line| line.starts_with("same_as:")) {
        return Ok(None);
    }
    let raw: RawSharedEntry = yaml::parse(file, text)?;
    let kernel = kernel_of_file(&raw.kernel, file);
    let kernel =
        kernel.map_err(|error| YamlError::at(file, text, &error.needle(), error.to_string(), HINT))?;
    Ok(Some((kernel, raw.same_as)))
}

/// The kernel's name, which must be the file's as well.
fn kernel_of_file(name: &str, file: &Path) -> Result<KernelName, EntryError> {
    let kernel = KernelName::new(name)?;
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    if stem != kernel.file_stem() {
        return Err(fault("kernel:", format!("kernel `{kernel}` stands in a file named for `{stem}`")));
    }
    Ok(kernel)
}

fn build(raw: RawEntry, file: &Path) -> Result<CatalogueEntry, EntryError> {
    let kernel = kernel_of_file(&raw.kernel, file)?;
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
        for (form, of_list) in expand_lists(&with_positional_rule(form, &raw)?, &raw)? {
            forms.push(EntryForm { of_list, ..entry_form(&form, &raw)? });
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

/// Returns true for names such as `torch.mm` and `torch_npu.npu_swiglu`; no other code is rendered into scripts.
fn is_python_path(api: &str) -> bool {
    let mut parts = api.split('.');
    matches!(parts.next(), Some("torch" | "torch_npu"))
        && parts.clone().count() > 0
        && parts.all(is_identifier)
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

fn entry_form(raw: &RawForm, entry: &RawEntry) -> Result<EntryForm, EntryError> {
    let inferred = raw.infer.iter().map(|(name, text)| Ok((name.clone(), Expr::parse(text)?)));
    let inferred = inferred.collect::<Result<_, EntryError>>()?;
    let rule = ShapeRule::parse(&raw.name, &raw.rule, &raw.conditions, raw.transposed.clone())?
        .with_inferred(inferred);
    let mut inputs: Vec<InputSlot> =
        raw.inputs.as_ref().unwrap_or(&entry.inputs).iter().map(input_slot).collect::<Result<_, _>>()?;
    // `inputs:` may leave out empty slots at the end.
    while inputs.len() < rule.input_count() && !rule.takes(inputs.len()) {
        inputs.push(InputSlot::Ignored);
    }
    let outputs = raw.outputs.as_ref().unwrap_or(&entry.outputs).iter();
    let output_dtypes = outputs.map(|output| output_dtype(output, entry)).collect::<Result<_, _>>()?;
    let mut arguments = BTreeMap::new();
    for (name, argument) in entry.arguments.iter().chain(&raw.arguments) {
        arguments.insert(name.clone(), other_argument(name, argument)?);
    }
    if let Some(column) = raw.with.keys().find(|column| CaseAttributes::name_of(column).is_none()) {
        return Err(fault(
            column,
            format!("`{column}` is not a column of attributes, such as `Runtime num_heads`"),
        ));
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
            .ok_or_else(|| fault("left_out:", "`left_out:` needs a type, such as INT64".to_owned()));
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
            source: match &raw.same_as {
                Some(other) => TensorSource::SameAs(other.clone()),
                None => TensorSource::Fill(tensor_fill(
                    argument,
                    raw.values,
                    [
                        ("below", &raw.below),
                        ("total", &raw.total),
                        ("used", &raw.used),
                        ("items", &raw.items),
                    ],
                )?),
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

/// Parses `values:` with the keys beside it.
fn tensor_fill(
    argument: &str,
    kind: Option<FillKind>,
    keys: [(&'static str, &Option<String>); 4],
) -> Result<Fill<Expr>, EntryError> {
    let kind = kind.ok_or_else(|| {
        fault(argument, format!("`{argument}` needs `values:`, such as activation, weight, ones or index"))
    })?;
    let given = keys.into_iter().filter_map(|(key, text)| Some((key, text.clone()?)));
    let fields: BTreeMap<&str, String> = given.chain([("fill", kind.to_string())]).collect();
    let fill: Fill<String> = serde_json::from_value(serde_json::json!(fields))
        .map_err(|error| fault(argument, format!("`{argument}` with `values: {kind}`: {error}")))?;
    let used = serde_json::to_value(&fill).unwrap_or_default();
    if let Some(key) = fields.keys().find(|key| used.get(key).is_none()) {
        return Err(fault(key, format!("`{key}:` of `{argument}` does not go with `values: {kind}`")));
    }
    let parse = |text: &String| Expr::parse(text);
    Ok(fill.try_map(parse, parse)?)
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
            return Err(fault(column, format!("`{column}` is not a column of attributes, such as `Runtime num_heads`")));
        }
        found.push(DeclaredArgument::Attribute(column.clone()));
    }
    if let Some(dims) = &raw.tensor {
        let dtype = dtypes_of(raw.dtype.as_slice())?.into_iter().next();
        let dtype = dtype.ok_or_else(|| fault(name, format!("tensor `{name}` needs a `dtype:`")))?;
        let fill = tensor_fill(
            name,
            raw.values,
            [("below", &raw.below), ("total", &raw.total), ("used", &raw.used), ("items", &raw.items)],
        )?;
        found.push(DeclaredArgument::Tensor {
            dims: ReturnShapes::parse(dims)?,
            dtype,
            fill,
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
