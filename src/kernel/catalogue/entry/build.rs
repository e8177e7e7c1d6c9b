//! Builds an entry from its YAML; an error names the contradiction.

use std::{collections::BTreeMap, path::Path};

use super::{
    CallRequirements, CatalogueEntry, DeclaredArgument, EntryForm, Fill, FillKind, ImpliedValue, InputSlot,
    LaunchOperator, OutputDtype, TensorSlot, TensorSource,
    checks::{check_api, check_form, check_recorded_inputs, check_roles, check_slots, check_version},
    error::{Below, EntryError, fault, no_such_argument, value_fault},
    example::example_case,
    lists::{expand_lists, is_identifier},
    named_shapes::with_positional_rule,
    names::names_of_call,
    raw::{MOST_SLOTS, RawArgument, RawEntry, RawForm, RawImplied, RawInput, RawOutput},
};
use crate::{
    base::{yaml, yaml::YamlError},
    kernel::{
        CaseAttributes, Dtype, KernelName, TensorFormat,
        catalogue::{OperatorSchema, ReturnShapes, ShapeRule},
        expression::Expr,
        normalize_cell,
    },
};

const HINT: &str = "docs/adding-a-kernel.md explains every key";

impl CatalogueEntry {
    pub(crate) fn parse(file: &Path, text: &str) -> Result<Self, YamlError> {
        let raw: RawEntry = yaml::parse(file, text)?;
        build(&raw, file).map_err(|error| {
            let path = match &error.argument {
                Some(argument) => declaration_path(&raw, argument, &error.path),
                None => error.path,
            };
            let path: Vec<&str> = path.iter().map(String::as_str).collect();
            YamlError::at(file, yaml::find_value(text, &path), &error.problem, HINT)
        })
    }
}

/// Parses the kernel's name in a file without further keys of an entry.
pub(super) fn parse_kernel(name: &str, file: &Path, text: &str) -> Result<KernelName, YamlError> {
    kernel_of_file(name, file)
        .map_err(|error| YamlError::at(file, yaml::find_value(text, &["kernel"]), &error.problem, HINT))
}

/// Checks the kernel's name, which must be that of the file as well.
fn kernel_of_file(name: &str, file: &Path) -> Result<KernelName, EntryError> {
    let kernel = KernelName::new(name)?;
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    if stem != kernel.file_stem() {
        return Err(value_fault(format!("kernel `{kernel}` is declared in a file named `{stem}`")));
    }
    Ok(kernel)
}

/// Path of the declaration of an argument: in the form that `path` leads to if it has one, else in the entry.
fn declaration_path(raw: &RawEntry, argument: &str, path: &[String]) -> Vec<String> {
    let slot_of = |slots: &[Option<RawInput>]| {
        let slot = slots.iter().flatten().find(|slot| slot.argument.as_deref() == Some(argument));
        slot.map(|slot| slot.item)
    };
    let (index, key) = match path {
        [forms, index, key] if forms == "forms" => (Some(index), key.as_str()),
        [.., key] => (None, key.as_str()),
        [] => (None, ""),
    };
    let form = index.and_then(|index| Some((index.as_str(), raw.forms.get(index.parse::<usize>().ok()?)?)));
    let own = form.and_then(|(index, form)| {
        let steps = if form.arguments.contains_key(argument) {
            vec!["arguments".to_owned(), argument.to_owned(), key.to_owned()]
        } else if let Some(slot) = form.inputs.as_deref().and_then(slot_of) {
            vec!["inputs".to_owned(), slot.to_string(), key.to_owned()]
        } else {
            let slot = form.transposed.iter().position(|name| name == argument)?;
            vec!["transposed".to_owned(), slot.to_string()]
        };
        Some([vec!["forms".to_owned(), index.to_owned()], steps].concat())
    });
    own.unwrap_or_else(|| match slot_of(&raw.inputs) {
        Some(slot) => vec!["inputs".to_owned(), slot.to_string(), key.to_owned()],
        None => vec!["arguments".to_owned(), argument.to_owned(), key.to_owned()],
    })
}

fn build(raw: &RawEntry, file: &Path) -> Result<CatalogueEntry, EntryError> {
    let kernel = kernel_of_file(&raw.kernel, file).below("kernel")?;
    if raw.summary.starts_with("TODO") {
        return Err(fault("summary", "this is a draft; complete what is marked TODO"));
    }
    let mut operators = vec![launch_operator(&raw.api, &raw.schema, &raw.other_schemas)?];
    check_parts(&raw.inputs, &raw.outputs, &raw.arguments, raw, &operators[0].schema)?;
    let mut operator_of_form = Vec::new();
    for (index, form) in raw.forms.iter().enumerate() {
        let operator = form_operator(form, &mut operators).below(index).below("forms")?;
        operator_of_form.push(operator);
        let inputs = form.inputs.as_deref().unwrap_or_default();
        let outputs = form.outputs.as_deref().unwrap_or_default();
        let schema = &operators[operator].schema;
        check_parts(inputs, outputs, &form.arguments, raw, schema).below(index).below("forms")?;
    }
    // Forms with the index of their declaration: a form of lists is expanded to several.
    let mut forms = Vec::new();
    for (index, form) in raw.forms.iter().enumerate() {
        let expanded = with_positional_rule(form, raw).and_then(|form| {
            let operator = operator_of_form[index];
            let expanded = expand_lists(&form, raw)?.into_iter();
            expanded
                .map(|(form, of_list)| Ok(EntryForm { of_list, operator, ..entry_form(&form, raw)? }))
                .collect()
        });
        let expanded: Vec<EntryForm> = expanded.below(index).below("forms")?;
        forms.extend(expanded.into_iter().map(|form| (index, form)));
    }
    let (indices, forms): (Vec<usize>, Vec<EntryForm>) = forms.into_iter().unzip();
    check_needs(&raw.needs).below("needs")?;
    let mut entry = CatalogueEntry {
        kernel,
        summary: raw.summary.clone(),
        operators,
        also_named: raw.also_named.clone(),
        defined_by: None,
        unit: raw.unit,
        needs: raw.needs.clone(),
        check_method: raw.check_method,
        forms,
        flops: raw.cost.flops.as_deref().map(Expr::parse).transpose().below("flops").below("cost")?,
        bytes: raw.cost.bytes.as_deref().map(Expr::parse).transpose().below("bytes").below("cost")?,
        also_launches: raw.also_launches.clone(),
        recorded_inputs: raw.recorded_inputs.unwrap_or_default(),
        roles: raw.roles.clone(),
        example: None,
        file: file.to_owned(),
    };
    if entry.forms.is_empty() {
        return Err(fault("forms", "there is no form, so no case can be replayed"));
    }
    for (index, form) in indices.iter().zip(&entry.forms) {
        check_slots(form).below(rule_key(&raw.forms[*index])).below(index).below("forms")?;
    }
    check_recorded_inputs(&entry)?;
    check_roles(&entry)?;
    for (index, form) in indices.iter().zip(&entry.forms) {
        check_form(&entry, form).below(index).below("forms")?;
    }
    entry.example = raw.example.as_ref().map(|raw| example_case(raw, &entry)).transpose().below("example")?;
    Ok(entry)
}

/// Parses and checks a Python function with its schemas.
fn launch_operator(
    api: &str,
    schema_text: &str,
    other_schemas: &[String],
) -> Result<LaunchOperator, EntryError> {
    if !is_python_path(api) {
        return Err(fault("api", format!("`{api}` is not a function of `torch` or `torch_npu`")));
    }
    let schema = OperatorSchema::parse(schema_text).below("schema")?;
    check_api(api, &schema)?;
    let others = other_schemas.iter().enumerate().map(|(index, text)| {
        let other = OperatorSchema::parse(text).below(index).below("other_schemas")?;
        check_version(&schema, &other).below(index).below("other_schemas")?;
        Ok(other)
    });
    let other_schemas = others.collect::<Result<_, EntryError>>()?;
    Ok(LaunchOperator { api: api.to_owned(), schema, schema_text: schema_text.to_owned(), other_schemas })
}

/// Returns the index of a form's operator, which is added if no form before has it.
fn form_operator(form: &RawForm, operators: &mut Vec<LaunchOperator>) -> Result<usize, EntryError> {
    let (api, schema) = match (&form.api, &form.schema) {
        (None, None) => return Ok(0),
        (Some(api), Some(schema)) => (api, schema),
        (Some(_), None) => return Err(fault("api", "a form with `api:` needs a `schema:` as well")),
        (None, Some(_)) => return Err(fault("schema", "a form with `schema:` needs an `api:` as well")),
    };
    let operator = launch_operator(api, schema, &[])?;
    let known = operators.iter().position(|known| known.api == *api);
    if let Some(known) = known.filter(|known| operators[*known].schema != operator.schema) {
        let problem = format!("`{api}` has another schema: `{}`", operators[known].schema_text);
        return Err(fault("schema", problem));
    }
    Ok(known.unwrap_or_else(|| {
        operators.push(operator);
        operators.len() - 1
    }))
}

/// Parses slots and arguments before lists are expanded, so that errors have their path in the file.
fn check_parts(
    inputs: &[Option<RawInput>],
    outputs: &[RawOutput],
    arguments: &BTreeMap<String, RawArgument>,
    entry: &RawEntry,
    schema: &OperatorSchema,
) -> Result<(), EntryError> {
    for (number, slot) in inputs.iter().enumerate() {
        let Some(input) = slot else { continue };
        if let Some(given) = input.slot.filter(|given| *given != number) {
            let problem = format!(
                "`slot: {given}` is not between {number} and {MOST_SLOTS}; slots are declared in order"
            );
            return Err(fault("slot", problem)).below(input.item).below("inputs");
        }
        if let Some(name) = input.argument.as_ref().filter(|name| schema.argument(name).is_none()) {
            let error = fault("argument", no_such_argument(schema, name));
            return Err(error).below(input.item).below("inputs");
        }
        input_slot(slot).below(input.item).below("inputs")?;
    }
    for (index, output) in outputs.iter().enumerate() {
        output_dtype(output, entry).below(index).below("outputs")?;
    }
    for (name, argument) in arguments {
        other_argument(name, argument).below(name).below("arguments")?;
    }
    Ok(())
}

/// `torch.mm`, `torch.nn.functional.embedding`, `torch_npu.npu_swiglu`: nothing else is rendered.
fn is_python_path(api: &str) -> bool {
    let mut parts = api.split('.');
    matches!(parts.next(), Some("torch" | "torch_npu"))
        && parts.clone().count() > 0
        && parts.all(is_identifier)
}

fn check_needs(needs: &CallRequirements) -> Result<(), EntryError> {
    let is_module =
        |module: &String| module.strip_suffix("()").unwrap_or(module).split('.').all(is_identifier);
    if let Some(index) = needs.modules.iter().position(|module| !is_module(module)) {
        let problem = format!("`{}` is not the name of a Python module", needs.modules[index]);
        return Err(fault(&index.to_string(), problem)).below("modules");
    }
    Ok(())
}

/// Returns the key of errors in a form's rule; input shapes by name are checked before.
fn rule_key(raw: &RawForm) -> &'static str {
    if raw.output_shapes.is_some() { "output_shapes" } else { "shapes" }
}

fn entry_form(raw: &RawForm, entry: &RawEntry) -> Result<EntryForm, EntryError> {
    let inferred = raw
        .infer
        .iter()
        .map(|(name, text)| Ok((name.clone(), Expr::parse(text).below(name).below("infer")?)));
    let inferred = inferred.collect::<Result<_, EntryError>>()?;
    for (index, condition) in raw.conditions.iter().enumerate() {
        Expr::parse(condition).below(index).below("where")?;
    }
    let rule = ShapeRule::parse(&raw.name, &raw.rule, &raw.conditions, raw.transposed.clone());
    let mut rule = ShapeRule { inferred, ..rule.below(rule_key(raw))? };
    for (index, limit) in raw.limits.iter().enumerate() {
        rule.limits.push(Expr::parse(limit).below(index).below("limits")?);
    }
    let mut inputs: Vec<InputSlot> =
        raw.inputs.as_ref().unwrap_or(&entry.inputs).iter().map(input_slot).collect::<Result<_, _>>()?;
    // `inputs:` may leave out empty slots at the end.
    while inputs.len() < rule.inputs.len() && !rule.takes_slot(inputs.len()) {
        inputs.push(InputSlot::Ignored);
    }
    let outputs = raw.outputs.as_ref().unwrap_or(&entry.outputs).iter();
    let output_dtypes = outputs.map(|output| output_dtype(output, entry)).collect::<Result<_, _>>()?;
    let mut arguments = BTreeMap::new();
    for (name, argument) in entry.arguments.iter().chain(&raw.arguments) {
        arguments.insert(name.clone(), other_argument(name, argument)?);
    }
    for column in raw.with.keys() {
        check_column(column).below(column).below("with")?;
    }
    let with = raw.with.iter().map(|(column, values)| (column.clone(), normal_spellings(values))).collect();
    let returns = raw.returns.as_deref().map(ReturnShapes::parse).transpose().below("returns")?;
    let flops = raw.cost.flops.as_deref().map(Expr::parse).transpose().below("flops").below("cost")?;
    let bytes = raw.cost.bytes.as_deref().map(Expr::parse).transpose().below("bytes").below("cost")?;
    let quantises = raw.quantises.iter().enumerate();
    let quantises = quantises.map(|(index, name)| KernelName::new(name).below(index).below("quantises"));
    let quantises = quantises.collect::<Result<_, _>>()?;
    let runs_as = raw.runs_as.as_deref().map(KernelName::new).transpose().below("runs_as")?;
    let mut implied = implied_values(&entry.implied)?;
    implied.extend(implied_values(&raw.implied)?);
    let names = names_of_call(&rule, &inputs, &arguments, returns.as_ref());
    Ok(EntryForm {
        rule,
        operator: 0,
        unsupported: raw.unsupported.clone(),
        inputs,
        output_dtypes,
        arguments,
        with,
        implied,
        names,
        assumption: raw.assumption.clone().or_else(|| entry.assumption.clone()),
        returns,
        of_list: false,
        special_case: raw.special_case,
        flops,
        bytes,
        quantises,
        runs_as,
    })
}

/// Returns values of an attribute as cases have them, each once.
fn normal_spellings(values: &[String]) -> Vec<String> {
    let mut normal: Vec<String> =
        values.iter().map(|value| normalize_cell(value).unwrap_or_else(|| value.clone())).collect();
    normal.dedup();
    normal
}

/// Checks that a key is a column of attributes.
fn check_column(column: &str) -> Result<(), EntryError> {
    if CaseAttributes::is_name(column) {
        return Ok(());
    }
    let problem = format!("`{column}` is not a column of attributes, such as `Runtime num_heads`");
    Err(value_fault(problem))
}

fn implied_values(raw: &BTreeMap<String, RawImplied>) -> Result<BTreeMap<String, ImpliedValue>, EntryError> {
    let values = raw.iter().map(|(column, value)| {
        check_column(column)?;
        let value = match value {
            RawImplied::Number(number) => ImpliedValue::Expression(Expr::parse(&number.to_string())?),
            RawImplied::Expression(text) => ImpliedValue::Expression(Expr::parse(text)?),
            RawImplied::Mean { mean } => ImpliedValue::Mean(Expr::parse(mean).below("mean")?),
            RawImplied::Text { text } => ImpliedValue::Text(text.clone()),
            RawImplied::Only { only } => ImpliedValue::Only(Expr::parse(only).below("only")?),
            RawImplied::Ignored { ignored } if ignored.trim().is_empty() => {
                return Err(fault("ignored", "state why the attribute has no effect"));
            }
            RawImplied::Ignored { .. } => ImpliedValue::Ignored,
        };
        Ok((column.clone(), value))
    });
    let values =
        values.zip(raw.keys()).map(|(value, column): (Result<_, EntryError>, _)| value.below(column));
    values.collect::<Result<_, _>>().below("implied")
}

fn dtypes_of(names: &[String]) -> Result<Vec<Dtype>, EntryError> {
    names.iter().enumerate().map(|(index, name)| dtype_of(name).below(index)).collect()
}

/// Parses the types of an output, which may be types that torch does not have.
fn recorded_dtypes(names: &[String]) -> Result<Vec<Dtype>, EntryError> {
    let dtype = |name: &String| {
        let dtype = Dtype::parse(name).filter(Dtype::is_recordable);
        dtype.ok_or_else(|| value_fault(format!("`{name}` is not a type of outputs")))
    };
    names.iter().enumerate().map(|(index, name)| dtype(name).below(index)).collect()
}

fn dtype_of(name: &str) -> Result<Dtype, EntryError> {
    let dtype = Dtype::parse(name).filter(|dtype| dtype.passed_torch_name().is_some());
    dtype.ok_or_else(|| value_fault(format!("`{name}` is not a type of torch")))
}

fn input_slot(raw: &Option<RawInput>) -> Result<InputSlot, EntryError> {
    let Some(raw) = raw else { return Ok(InputSlot::Ignored) };
    let dtypes = dtypes_of(&raw.dtypes).below("dtypes")?;
    if let (Some(dtype), None, None) = (&raw.omitted, &raw.argument, &raw.host_dims) {
        return dtype_of(dtype).below("omitted").map(InputSlot::Omitted);
    }
    if let (Some(dims), None, None) = (&raw.intermediate, &raw.argument, &raw.host_dims) {
        let [dtype] = &dtypes[..] else {
            return Err(fault(
                "intermediate",
                format!("`intermediate: {dims}` needs `dtypes:` with one type"),
            ));
        };
        Expr::parse(dims).below("intermediate")?;
        return Ok(InputSlot::Intermediate(dtype.clone()));
    }
    match (&raw.argument, &raw.host_dims) {
        (Some(argument), None) => Ok(InputSlot::Tensor(TensorSlot {
            argument: argument.clone(),
            source: match &raw.same_as {
                Some(other) => TensorSource::SameAs(other.clone()),
                None => TensorSource::Fill(tensor_fill(
                    argument,
                    raw.values,
                    &[
                        ("below", &raw.below),
                        ("total", &raw.total),
                        ("used", &raw.used),
                        ("items", &raw.items),
                        ("queries", &raw.queries),
                        ("keys", &raw.keys),
                    ],
                )?),
            },
            dtypes,
            same_type_as: raw.same_type_as.clone(),
            number_for: dtypes_of(&raw.number_for).below("number_for")?,
            formats: raw.formats.clone(),
            shown_whole: raw.shown_whole,
            only_blocked: raw.only_blocked,
        })),
        (None, Some(dims)) => {
            let dtype = dtypes.first().cloned().unwrap_or(Dtype::Int64);
            if dims == "scalar" {
                return Ok(InputSlot::Omitted(dtype));
            }
            Expr::parse(dims).below("host_dims")?;
            Ok(InputSlot::Host(dtype))
        }
        _ => {
            let problem = "each input has one of `argument:`, `host_dims:`, `intermediate:` and `omitted:`";
            Err(fault("argument", problem))
        }
    }
}

/// Parses `values:` with the keys beside it.
fn tensor_fill(
    argument: &str,
    kind: Option<FillKind>,
    keys: &[(&str, &Option<String>)],
) -> Result<Fill<Expr>, EntryError> {
    let kind = kind.ok_or_else(|| {
        fault("values", format!("`{argument}` needs `values:`, such as activation, weight, ones or index"))
    })?;
    let given = keys.iter().filter_map(|(key, text)| Some((*key, (*text).clone()?)));
    let fields: BTreeMap<&str, String> = given.chain([("fill", kind.to_string())]).collect();
    let fill: Fill<String> = serde_json::from_value(serde_json::json!(fields))
        .map_err(|error| fault("values", format!("`{argument}` with `values: {kind}`: {error}")))?;
    let used = serde_json::to_value(&fill).unwrap_or_default();
    if let Some(key) = fields.keys().find(|key| used.get(key).is_none()) {
        return Err(fault(key, format!("`{key}:` of `{argument}` cannot be combined with `values: {kind}`")));
    }
    let parse = |text: &String| {
        let key = fields.iter().find(|(_, other)| *other == text).map_or("values", |(key, _)| key);
        Expr::parse(text).below(key)
    };
    fill.try_map(parse, parse)
}

fn other_argument(name: &str, raw: &RawArgument) -> Result<DeclaredArgument, EntryError> {
    let mut found: Vec<DeclaredArgument> = Vec::new();
    found.extend(raw.constant.clone().map(DeclaredArgument::Constant));
    if let Some(text) = &raw.expression {
        found.push(DeclaredArgument::Expression(Expr::parse(text).below("expression")?));
    }
    if let Some(text) = &raw.inverse_root {
        found.push(DeclaredArgument::InverseRoot(Expr::parse(text).below("inverse_root")?));
    }
    found.extend(raw.destination.map(DeclaredArgument::Destination));
    found.extend(
        raw.dtype_of_output.map(|output| DeclaredArgument::DtypeOf { output, quantised: raw.quantised }),
    );
    if let Some(ranks) = &raw.process_group {
        found.push(DeclaredArgument::ProcessGroup(Expr::parse(ranks).below("process_group")?));
    }
    found.extend(raw.same_as.clone().map(DeclaredArgument::SameAs));
    if let Some(column) = &raw.attribute {
        check_column(column).below("attribute")?;
        found.push(DeclaredArgument::Attribute(column.clone()));
    }
    if let Some(dims) = &raw.tensor {
        let dtype = raw.dtype.as_deref().map(dtype_of).transpose().below("dtype")?;
        let dtype = dtype.ok_or_else(|| fault("dtype", format!("tensor `{name}` needs a `dtype:`")))?;
        let fill = tensor_fill(
            name,
            raw.values,
            &[("below", &raw.below), ("total", &raw.total), ("used", &raw.used), ("items", &raw.items)],
        )?;
        found.push(DeclaredArgument::Tensor {
            dims: ReturnShapes::parse(dims).below("tensor")?,
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
                 `dtype_of_output:`, `attribute:`, `process_group:`, `same_as:`, `tensor:`"
            );
            Err(value_fault(problem))
        }
    }
}

fn is_slot_argument(name: &str, entry: &RawEntry) -> bool {
    let slots = entry.forms.iter().filter_map(|form| form.inputs.as_ref()).chain([&entry.inputs]);
    slots.flatten().flatten().any(|slot| slot.argument.as_deref() == Some(name))
}

fn blocked_output(like: &str, format: &str, entry: &RawEntry) -> Result<OutputDtype, EntryError> {
    if !is_slot_argument(like, entry) {
        return Err(fault("like", format!("`{like}` is not the argument of a slot")));
    }
    match TensorFormat::parse(format).filter(|format| format.private().is_some()) {
        Some(format) => Ok(OutputDtype::Blocked(like.to_owned(), format)),
        None => Err(fault("format", format!("`{format}` is not a blocked format such as FRACTAL_NZ"))),
    }
}

fn output_dtype(raw: &RawOutput, entry: &RawEntry) -> Result<OutputDtype, EntryError> {
    let text = match raw {
        RawOutput::Recorded { recorded, .. } if recorded.is_empty() => {
            return Err(fault("recorded", "`recorded:` must list the types that the output can have"));
        }
        RawOutput::Recorded { recorded, unlike: None } => {
            return Ok(OutputDtype::Recorded(recorded_dtypes(recorded).below("recorded")?));
        }
        RawOutput::Recorded { recorded, unlike: Some(other) } => {
            return Ok(OutputDtype::RecordedUnlike(
                recorded_dtypes(recorded).below("recorded")?,
                other.clone(),
            ));
        }
        RawOutput::Blocked { like, format } => return blocked_output(like, format, entry),
        RawOutput::Word(text) => text,
    };
    match (is_slot_argument(text, entry), text.as_str()) {
        (true, _) => Ok(OutputDtype::SameAs(text.clone())),
        (false, "promoted") => Ok(OutputDtype::Promoted),
        (false, other) => match Dtype::parse(other) {
            Some(dtype) if dtype.torch_name().is_some() => Ok(OutputDtype::Fixed(dtype)),
            _ => {
                let problem = format!("`{other}` is neither an argument, `promoted` nor a type");
                Err(value_fault(problem))
            }
        },
    }
}
