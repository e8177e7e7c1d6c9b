//! The keys of `op_replay/<Kernel>.yaml`, and the entry that they declare.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    rc::Rc,
};

use serde::{Deserialize, Deserializer};

use super::{
    CallRequirements, CatalogueEntry, Cost, DeclaredArgument, DimensionRole, EntryForm, Fill, FillKind,
    ImpliedValue, InputSlot, LaunchOperator, OutputDtype, TensorSlot, TensorSource,
    lists::{expand_lists, is_identifier, positional_rule},
};
use crate::{
    base::yaml::{self, Location, Spanned, YamlError, YamlMap, YamlNode},
    kernel::{
        Case, CaseAttributes, CheckMethod, Dtype, KernelName, Slot, Tensor, TensorFormat,
        catalogue::{OperatorSchema, ReturnShapes, SchemaType, ShapeRule},
        device::ComputeUnit,
        expression::Expr,
        normalize_cell,
        operator_schema::SchemaArgument,
        render::PINNED_SWITCHES,
        tensor::WITHOUT_TORCH_TYPE,
    },
};

pub(crate) const HINT: &str = "docs/adding-a-kernel.md explains every key";

const MAX_SLOT: usize = 100;

pub(crate) type Fault = (Location, String);

pub(super) fn at<E: ToString>(place: Location) -> impl FnOnce(E) -> Fault {
    move |error| (place, error.to_string())
}

fn fault<T>(place: Location, problem: impl Into<String>) -> Result<T, Fault> {
    Err((place, problem.into()))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EntryFile {
    kernel: Spanned<String>,
    summary: Spanned<String>,
    api: Spanned<String>,
    schema: Spanned<String>,
    #[serde(default)]
    other_schemas: Vec<Spanned<String>>,
    #[serde(default)]
    also_named: Vec<String>,
    unit: ComputeUnit,
    #[serde(default)]
    needs: CallRequirements,
    #[serde(default)]
    check_method: CheckMethod,
    pub(super) inputs: InputList,
    pub(super) outputs: Vec<Spanned<DeclaredOutput>>,
    forms: Spanned<Vec<DeclaredForm>>,
    #[serde(default)]
    pub(super) arguments: YamlMap<DeclaredValue>,
    #[serde(default)]
    cost: Cost,
    assumption: Option<String>,
    #[serde(default, deserialize_with = "by_column")]
    implied: BTreeMap<String, ImpliedValue>,
    #[serde(default)]
    also_launches: Vec<String>,
    recorded_inputs: Option<Spanned<usize>>,
    #[serde(default)]
    roles: YamlMap<Spanned<DimensionRole>>,
    hf32_switch: Option<Spanned<String>>,
    example: Option<Spanned<DeclaredExample>>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DeclaredForm {
    pub(super) name: Spanned<String>,
    api: Option<Spanned<String>>,
    schema: Option<Spanned<String>>,
    unsupported: Option<String>,
    pub(super) shapes: Spanned<YamlNode>,
    pub(super) output_shapes: Option<Spanned<String>>,
    #[serde(skip)]
    pub(super) rule: String,
    #[serde(default)]
    transposed: Vec<Spanned<String>>,
    #[serde(default, rename = "where")]
    pub(super) conditions: Vec<Expr>,
    #[serde(default)]
    pub(super) limits: Vec<Expr>,
    returns: Option<ReturnShapes>,
    #[serde(default)]
    pub(super) infer: BTreeMap<String, Expr>,
    #[serde(default, deserialize_with = "by_column")]
    with: BTreeMap<String, Vec<String>>,
    #[serde(default, deserialize_with = "by_column")]
    implied: BTreeMap<String, ImpliedValue>,
    assumption: Option<String>,
    #[serde(default)]
    special_case: bool,
    pub(super) inputs: Option<InputList>,
    pub(super) outputs: Option<Vec<Spanned<DeclaredOutput>>>,
    #[serde(default)]
    pub(super) arguments: YamlMap<DeclaredValue>,
    #[serde(default)]
    cost: Cost,
    #[serde(default)]
    quantises: Vec<Spanned<String>>,
    runs_as: Option<Spanned<String>>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct DeclaredInput {
    slot: Option<Spanned<usize>>,
    name: Option<String>,
    pub(super) argument: Option<Spanned<String>>,
    values: Option<Spanned<FillKind>>,
    below: Option<Spanned<Expr>>,
    total: Option<Spanned<Expr>>,
    dtypes: Vec<Dtype>,
    same_type_as: Option<Spanned<String>>,
    number_for: Vec<Dtype>,
    formats: Vec<String>,
    shown_whole: bool,
    only_blocked: bool,
    host_dims: Option<Expr>,
    intermediate: Option<Spanned<Expr>>,
    used: Option<Spanned<Expr>>,
    items: Option<Spanned<Expr>>,
    queries: Option<Spanned<Expr>>,
    keys: Option<Spanned<Expr>>,
    omitted: Option<Dtype>,
    same_as: Option<Spanned<String>>,
}

/// The slots; those of a list of tensors share one declaration.
#[derive(Clone, Deserialize)]
#[serde(from = "Vec<Spanned<Option<DeclaredInput>>>")]
pub(super) struct InputList(pub(super) Vec<Rc<Spanned<Option<DeclaredInput>>>>);

#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct DeclaredValue {
    #[serde(deserialize_with = "explicit_value")]
    constant: Option<Spanned<serde_json::Value>>,
    pub(super) expression: Option<Expr>,
    inverse_root: Option<Expr>,
    destination: Option<usize>,
    dtype_of_output: Option<usize>,
    quantised: bool,
    attribute: Option<AttributeColumn>,
    process_group: Option<Expr>,
    ranks: Vec<i64>,
    same_as: Option<Spanned<String>>,
    tensor: Option<Spanned<ReturnShapes>>,
    dtype: Option<Dtype>,
    values: Option<Spanned<FillKind>>,
    below: Option<Spanned<Expr>>,
    total: Option<Spanned<Expr>>,
    used: Option<Spanned<Expr>>,
    items: Option<Spanned<Expr>>,
    on_host: bool,
}

/// Reads a constant; an explicit `null` is one as well.
fn explicit_value<'de, D: Deserializer<'de>>(
    value: D,
) -> Result<Option<Spanned<serde_json::Value>>, D::Error> {
    Spanned::deserialize(value).map(Some)
}

/// An argument's name, `promoted`, a type, `{recorded: [types], unlike: argument}`, or `{like: argument, format: NAME}`.
#[derive(Clone, Deserialize)]
#[serde(
    untagged,
    deny_unknown_fields,
    expecting = "expected an argument, a type, `{recorded: [TYPE …], unlike: ARGUMENT}` or `{like: ARGUMENT, format: NAME}`"
)]
pub(super) enum DeclaredOutput {
    Word(String),
    Recorded { recorded: Vec<String>, unlike: Option<String> },
    Blocked { like: String, format: String },
}

/// The value of an attribute that follows from the others: an expression or `{mean: LIST}`; or the only one that the form
/// covers: a number, `{text: WORD}` or `{only: EXPRESSION}`; or `{ignored: REASON}` for one without effect.
#[derive(Deserialize)]
#[serde(
    untagged,
    deny_unknown_fields,
    expecting = "expected an expression, a number, `{mean: EXPRESSION}`, `{text: WORD}`, \
                 `{only: EXPRESSION}` or `{ignored: REASON}`"
)]
pub(super) enum DeclaredImplied {
    Number(i64),
    Expression(String),
    Mean { mean: String },
    Text { text: String },
    Only { only: String },
    Ignored { ignored: String },
}

impl TryFrom<DeclaredImplied> for ImpliedValue {
    type Error = String;

    fn try_from(value: DeclaredImplied) -> Result<Self, String> {
        let parse = |text: &str| Expr::parse(text).map_err(|error| error.to_string());
        Ok(match value {
            DeclaredImplied::Number(number) => Self::Expression(parse(&number.to_string())?),
            DeclaredImplied::Expression(text) => Self::Expression(parse(&text)?),
            DeclaredImplied::Mean { mean } => Self::Mean(parse(&mean)?),
            DeclaredImplied::Text { text } => Self::Text(text),
            DeclaredImplied::Only { only } => Self::Only(parse(&only)?),
            DeclaredImplied::Ignored { ignored } if ignored.trim().is_empty() => {
                return Err("state why the attribute has no effect".to_owned());
            }
            DeclaredImplied::Ignored { .. } => Self::Ignored,
        })
    }
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
struct AttributeColumn(String);

impl TryFrom<String> for AttributeColumn {
    type Error = String;

    fn try_from(column: String) -> Result<Self, String> {
        if CaseAttributes::is_name(&column) {
            return Ok(Self(column));
        }
        Err(format!("`{column}` is not a column of attributes, such as `Runtime num_heads`"))
    }
}

fn by_column<'de, D: Deserializer<'de>, V: Deserialize<'de>>(
    map: D,
) -> Result<BTreeMap<String, V>, D::Error> {
    let map = BTreeMap::<AttributeColumn, V>::deserialize(map)?;
    Ok(map.into_iter().map(|(column, value)| (column.0, value)).collect())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DeclaredExample {
    inputs: Vec<Option<ExampleTensor>>,
    outputs: Vec<Option<ExampleTensor>>,
    #[serde(default, deserialize_with = "by_column")]
    attributes: BTreeMap<String, String>,
}

/// `16,128 DT_BF16`, with a format behind the type if it is not `ND`, without dimensions for a scalar.
#[derive(Clone, Deserialize)]
#[serde(try_from = "String")]
struct ExampleTensor(Tensor);

impl TryFrom<String> for ExampleTensor {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let parse = || {
            let is_number = |word: &&str| word.starts_with(|letter: char| letter.is_ascii_digit());
            let mut words = text.split_whitespace().peekable();
            let dims = words.next_if(is_number).unwrap_or_default().split(',');
            let dims = dims.filter(|dim| !dim.is_empty()).map(|dim| dim.parse().ok());
            let (dims, dtype) = (dims.collect::<Option<_>>()?, Dtype::parse(words.next()?)?);
            let format = words.next().map_or_else(|| Some(TensorFormat::nd()), TensorFormat::parse)?;
            words.next().is_none().then_some(Self(Tensor { dims, dtype, format }))
        };
        parse().ok_or_else(|| {
            format!("`{text}` is not a tensor such as `16,128 DT_BF16` or `8,8,16,32 INT8 FRACTAL_NZ`")
        })
    }
}

impl CatalogueEntry {
    pub(crate) fn parse(file: &Path, text: &str) -> Result<Self, YamlError> {
        let declared: EntryFile = yaml::parse_with_hint(file, text, HINT)?;
        declared.into_entry(file).map_err(|(place, problem)| YamlError::at(file, place, &problem, HINT))
    }
}

pub(crate) fn kernel_of_file(name: &Spanned<String>, file: &Path) -> Result<KernelName, Fault> {
    let kernel = KernelName::new(&name.value).map_err(at(name.defined))?;
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    if stem != kernel.file_stem() {
        return fault(name.defined, format!("kernel `{kernel}` is declared in a file named `{stem}`"));
    }
    Ok(kernel)
}

impl EntryFile {
    fn into_entry(self, file: &Path) -> Result<CatalogueEntry, Fault> {
        let kernel = kernel_of_file(&self.kernel, file)?;
        if self.summary.value.starts_with("TODO") {
            return fault(self.summary.defined, "this is a draft; complete what is marked TODO");
        }
        let mut operators = vec![launch_operator(&self.api, &self.schema, &self.other_schemas)?];
        self.inputs.check(&operators[0].schema)?;
        let mut forms = Vec::new();
        for form in &self.forms.value {
            let operator = form.operator(&mut operators)?;
            form.inputs.iter().try_for_each(|inputs| inputs.check(&operators[operator].schema))?;
            let (place, rule) = positional_rule(form, &self)?;
            for (form, of_list) in expand_lists(DeclaredForm { rule, ..form.clone() }, &self)? {
                let built = self.build_form(form, place, &operators[operator].schema)?;
                forms.push(EntryForm { of_list, operator, ..built });
            }
        }
        if forms.is_empty() {
            return fault(self.forms.defined, "there is no form, so no case can be replayed");
        }
        if let Some(Spanned { value: recorded, defined, .. }) = self.recorded_inputs
            && let Some(form) = forms.iter().find(|form| recorded > 0 && form.inputs.len() > recorded)
        {
            let (name, slots) = (&form.rule.name, form.inputs.len());
            let problem = format!("records have {recorded} input slots, the form `{name}` has {slots}");
            return fault(defined, problem);
        }
        if let Some(switch) = &self.hf32_switch
            && !PINNED_SWITCHES.iter().any(|(name, ..)| *name == switch.value)
        {
            return fault(switch.defined, format!("`{}` is no switch that runs set", switch.value));
        }
        let known: BTreeSet<&str> = forms.iter().flat_map(|form| form.rule.bound_names()).collect();
        if let Some((name, role)) = self.roles.iter().find(|(name, _)| !known.contains(name.value.as_str())) {
            let known = known.into_iter().collect::<Vec<_>>().join(", ");
            let problem = format!("no form has a dimension `{}`; the dimensions are {known}", name.value);
            return fault(role.defined, problem);
        }
        let mut entry = CatalogueEntry {
            kernel,
            summary: self.summary.value,
            operators,
            also_named: self.also_named,
            defined_by: None,
            unit: self.unit,
            needs: self.needs,
            hf32_switch: self.hf32_switch.map(|switch| switch.value),
            check_method: self.check_method,
            forms,
            cost: self.cost,
            also_launches: self.also_launches,
            recorded_inputs: self.recorded_inputs.map_or(0, |recorded| recorded.value),
            roles: self.roles.into_iter().map(|(name, role)| (name.value, role.value)).collect(),
            example: None,
            file: file.to_owned(),
        };
        if let Some(example) = self.example {
            let case = example.value.into_case(&entry.kernel);
            entry.resolve_call(&case).map_err(|problem| {
                (example.defined, format!("the example is not a case of this entry: {problem}"))
            })?;
            entry.example = Some(case);
        }
        Ok(entry)
    }

    fn build_form(
        &self,
        form: DeclaredForm,
        place: Location,
        schema: &OperatorSchema,
    ) -> Result<EntryForm, Fault> {
        let transposed = form.transposed.iter().map(|name| name.value.clone()).collect();
        let rule = ShapeRule::parse(&form.name.value, &form.rule, form.conditions, transposed);
        let mut rule = rule.map_err(at(place))?;
        rule.inferred.extend(form.infer);
        rule.limits.extend(form.limits);
        let inputs = form.inputs.as_ref().unwrap_or(&self.inputs).0.iter().map(|input| match &input.value {
            Some(declared) => declared.slot(input.defined),
            None => Ok(InputSlot::Ignored),
        });
        let mut inputs = inputs.collect::<Result<Vec<_>, _>>()?;
        // `inputs:` may leave out empty slots at the end.
        while inputs.len() < rule.inputs.len() && !rule.takes_slot(inputs.len()) {
            inputs.push(InputSlot::Ignored);
        }
        let outputs = form.outputs.as_ref().unwrap_or(&self.outputs).iter();
        let output_dtypes = outputs.map(|output| self.output_dtype(output)).collect::<Result<_, _>>()?;
        let mut arguments = BTreeMap::new();
        for (name, declared) in self.arguments.iter().chain(&form.arguments) {
            let value = declared.build(name)?;
            if form.unsupported.is_none() {
                declared.check(name, schema, &value)?;
            }
            arguments.insert(name.value.clone(), value);
        }
        let mut with = form.with;
        for values in with.values_mut() {
            let normal = values.drain(..).map(|value| normalize_cell(&value).unwrap_or(value));
            *values = normal.collect();
            values.dedup();
        }
        let kernel_name = |name: &Spanned<String>| KernelName::new(&name.value).map_err(at(name.defined));
        let mut implied = self.implied.clone();
        implied.extend(form.implied);
        let runs_as = form
            .runs_as
            .as_ref()
            .map(|name| kernel_name(name).map(|kernel| Spanned::new(kernel, name.referenced, name.defined)));
        let mut built = EntryForm {
            rule,
            operator: 0,
            unsupported: form.unsupported,
            inputs,
            output_dtypes,
            arguments,
            with,
            implied,
            names: BTreeSet::new(),
            assumption: form.assumption.or_else(|| self.assumption.clone()),
            returns: form.returns,
            of_list: false,
            special_case: form.special_case,
            cost: form.cost,
            quantises: form.quantises.iter().map(kernel_name).collect::<Result<_, _>>()?,
            runs_as: runs_as.transpose()?,
        };
        check_slots(&built).map_err(at(place))?;
        check_form(&built, schema, &form.transposed, form.name.defined)?;
        built.names = built.names_of_call();
        Ok(built)
    }

    fn output_dtype(&self, output: &Spanned<DeclaredOutput>) -> Result<OutputDtype, Fault> {
        let forms = self.forms.value.iter().filter_map(|form| form.inputs.as_ref());
        let is_argument = |name: &str| {
            let mut inputs = forms.clone().chain([&self.inputs]).flat_map(InputList::arguments);
            inputs.any(|argument| argument == name)
        };
        let built = match &output.value {
            DeclaredOutput::Recorded { recorded, .. } if recorded.is_empty() => {
                Err("`recorded:` must list the types that the output can have".to_owned())
            }
            DeclaredOutput::Recorded { recorded, unlike } => {
                let dtype = |name: &String| {
                    let is_of_torch = |dtype: &Dtype| dtype.torch_name().is_some();
                    let dtype = Dtype::parse(name)
                        .filter(|dtype| is_of_torch(dtype) || WITHOUT_TORCH_TYPE.contains(&dtype.as_str()));
                    dtype.ok_or_else(|| format!("`{name}` is not a type of outputs"))
                };
                let allowed = recorded.iter().map(dtype).collect::<Result<_, _>>();
                allowed.map(|allowed| OutputDtype::Recorded { allowed, unlike: unlike.clone() })
            }
            DeclaredOutput::Blocked { like, .. } if !is_argument(like) => {
                Err(format!("`{like}` is not the argument of a slot"))
            }
            DeclaredOutput::Blocked { like, format } => {
                let blocked = TensorFormat::parse(format).filter(|format| format.private().is_some());
                let blocked = blocked.map(|format| OutputDtype::Blocked(like.clone(), format));
                blocked.ok_or_else(|| format!("`{format}` is not a blocked format such as FRACTAL_NZ"))
            }
            DeclaredOutput::Word(name) if is_argument(name) => Ok(OutputDtype::SameAs(name.clone())),
            DeclaredOutput::Word(word) if word == "promoted" => Ok(OutputDtype::Promoted),
            DeclaredOutput::Word(word) => {
                let dtype = Dtype::parse(word).filter(|dtype| dtype.torch_name().is_some());
                let problem = || format!("`{word}` is neither an argument, `promoted` nor a type");
                dtype.map(OutputDtype::Fixed).ok_or_else(problem)
            }
        };
        built.map_err(at(output.defined))
    }
}

impl DeclaredForm {
    fn operator(&self, operators: &mut Vec<LaunchOperator>) -> Result<usize, Fault> {
        let (api, schema) = match (&self.api, &self.schema) {
            (None, None) => return Ok(0),
            (Some(api), Some(schema)) => (api, schema),
            (Some(api), None) => return fault(api.defined, "a form with `api:` needs a `schema:` as well"),
            (None, Some(schema)) => {
                return fault(schema.defined, "a form with `schema:` needs an `api:` as well");
            }
        };
        let operator = launch_operator(api, schema, &[])?;
        let known = operators.iter().position(|known| known.api == api.value);
        if let Some(known) = known.filter(|known| operators[*known].schema != operator.schema) {
            let problem = format!("`{}` has another schema: `{}`", api.value, operators[known].schema_text);
            return fault(schema.defined, problem);
        }
        Ok(known.unwrap_or_else(|| {
            operators.push(operator);
            operators.len() - 1
        }))
    }
}

fn launch_operator(
    api: &Spanned<String>,
    schema_text: &Spanned<String>,
    other_schemas: &[Spanned<String>],
) -> Result<LaunchOperator, Fault> {
    // `torch.mm`, `torch.nn.functional.embedding`, `torch_npu.npu_swiglu`: nothing else is rendered.
    let path = api.value.split_once('.').filter(|(module, _)| matches!(*module, "torch" | "torch_npu"));
    if !path.is_some_and(|(_, rest)| rest.split('.').all(is_identifier)) {
        return fault(api.defined, format!("`{}` is not a function of `torch` or `torch_npu`", api.value));
    }
    let schema = OperatorSchema::parse(&schema_text.value).map_err(at(schema_text.defined))?;
    // torch appends the name of an overload.
    let overload = schema.name.split_once('.').map(|(_, overload)| format!(".{overload}"));
    let without = overload.and_then(|overload| api.value.strip_suffix(&overload)).unwrap_or(&api.value);
    if without.rsplit('.').next() != Some(schema.short_name()) {
        let problem = format!("`{}` is not the function of the schema, `{}`", api.value, schema.short_name());
        return fault(api.defined, problem);
    }
    let others = other_schemas.iter().map(|text| {
        let other = OperatorSchema::parse(&text.value).map_err(at(text.defined))?;
        if other.name != schema.name {
            return fault(text.defined, format!("`{}` is not a version of `{}`", other.name, schema.name));
        }
        // Another version must take the arguments of the first.
        let unknown = |own: &&SchemaArgument| !own.has_default && schema.argument(&own.name).is_none();
        match other.arguments.iter().find(unknown) {
            Some(own) => fault(text.defined, no_such_argument(&schema, &own.name)),
            None => Ok(other),
        }
    });
    let other_schemas = others.collect::<Result<_, Fault>>()?;
    Ok(LaunchOperator {
        api: api.value.clone(),
        schema,
        schema_text: schema_text.value.clone(),
        other_schemas,
    })
}

impl From<Vec<Spanned<Option<DeclaredInput>>>> for InputList {
    /// Puts empty slots in front of those with a `slot:`. One out of order has no effect here; [`InputList::check`] refuses it.
    fn from(list: Vec<Spanned<Option<DeclaredInput>>>) -> Self {
        let mut slots = Vec::new();
        for input in list {
            let number = input.value.as_ref().and_then(|declared| declared.slot.as_ref()?.value.into());
            let number = number.filter(|slot| *slot <= MAX_SLOT).unwrap_or_default();
            let empty = Rc::new(Spanned::new(None, input.referenced, input.defined));
            slots.resize(slots.len().max(number), empty);
            slots.push(Rc::new(input));
        }
        Self(slots)
    }
}

impl InputList {
    fn arguments(&self) -> impl Iterator<Item = &str> {
        let declared = self.0.iter().filter_map(|input| input.value.as_ref()?.argument.as_ref());
        declared.map(|argument| argument.value.as_str())
    }

    fn check(&self, schema: &OperatorSchema) -> Result<(), Fault> {
        for (number, input) in self.0.iter().enumerate() {
            let Some(declared) = &input.value else { continue };
            if let Some(given) = declared.slot.as_ref().filter(|given| given.value != number) {
                let range = format!("between {number} and {MAX_SLOT}; slots are declared in order");
                return fault(given.defined, format!("`slot: {}` is not {range}", given.value));
            }
            if let Some(name) = &declared.argument
                && schema.argument(&name.value).is_none()
            {
                return fault(name.defined, no_such_argument(schema, &name.value));
            }
            declared.slot(input.defined)?;
        }
        Ok(())
    }
}

impl DeclaredInput {
    pub(super) fn shape_name(&self) -> &str {
        let argument = self.argument.as_ref().map(|argument| argument.value.as_str());
        self.name.as_deref().or(argument).unwrap_or_default()
    }

    fn slot(&self, place: Location) -> Result<InputSlot, Fault> {
        let dtypes = self.dtypes.clone();
        match (&self.argument, &self.host_dims, &self.omitted, &self.intermediate) {
            (None, None, Some(dtype), _) => Ok(InputSlot::Omitted(dtype.clone())),
            (None, None, None, Some(dims)) => match &dtypes[..] {
                [dtype] => Ok(InputSlot::Intermediate(dtype.clone())),
                _ => {
                    let problem = format!("`intermediate: {}` needs `dtypes:` with one type", dims.value);
                    fault(dims.defined, problem)
                }
            },
            (Some(argument), None, ..) => {
                let values = [&self.below, &self.total, &self.items, &self.used, &self.queries, &self.keys];
                let source = match &self.same_as {
                    Some(other) => TensorSource::SameAs(other.clone()),
                    None => {
                        let values = values.map(Option::as_ref);
                        TensorSource::Fill(tensor_fill(&argument.value, place, self.values.as_ref(), values)?)
                    }
                };
                Ok(InputSlot::Tensor(TensorSlot {
                    argument: argument.value.clone(),
                    place: argument.defined,
                    source,
                    dtypes,
                    same_type_as: self.same_type_as.clone(),
                    number_for: self.number_for.clone(),
                    formats: self.formats.clone(),
                    shown_whole: self.shown_whole,
                    only_blocked: self.only_blocked,
                }))
            }
            (None, Some(dims), ..) => {
                let dtype = dtypes.into_iter().next().unwrap_or(Dtype::Int64);
                let is_scalar = dims.as_str() == "scalar";
                Ok(if is_scalar { InputSlot::Omitted(dtype) } else { InputSlot::Host(dtype) })
            }
            _ => fault(
                place,
                "each input has one of `argument:`, `host_dims:`, `intermediate:` and `omitted:`",
            ),
        }
    }
}

fn tensor_fill(
    argument: &str,
    place: Location,
    kind: Option<&Spanned<FillKind>>,
    values: [Option<&Spanned<Expr>>; 6],
) -> Result<Fill<Expr>, Fault> {
    const FILL_KEYS: [&str; 6] = ["below", "total", "items", "used", "queries", "keys"];
    let Some(Spanned { value: kind, defined, .. }) = kind else {
        let problem = format!("`{argument}` needs `values:`, such as activation, weight, ones or index");
        return fault(place, problem);
    };
    let keys = || FILL_KEYS.iter().zip(values);
    if let Some((key, _)) = keys().find(|(key, value)| value.is_none() && kind.keys().contains(key)) {
        return fault(*defined, format!("`{argument}` with `values: {kind}`: missing field `{key}`"));
    }
    if let Some((key, Some(value))) =
        keys().find(|(key, value)| value.is_some() && !kind.keys().contains(key))
    {
        let problem = format!("`{key}:` of `{argument}` cannot be combined with `values: {kind}`");
        return fault(value.defined, problem);
    }
    let [below, total, items, used, queries, keys] =
        values.map(|value| value.map(|value| value.value.clone()));
    Ok(Fill { kind: *kind, below, total, items, used, queries, keys })
}

impl DeclaredValue {
    fn build(&self, name: &Spanned<String>) -> Result<DeclaredArgument, Fault> {
        let tensor = self.tensor.as_ref().map(|dims| {
            let missing = || (dims.defined, format!("tensor `{}` needs a `dtype:`", name.value));
            let values =
                [&self.below, &self.total, &self.items, &self.used, &None, &None].map(Option::as_ref);
            Ok(DeclaredArgument::Tensor {
                dims: dims.value.clone(),
                dtype: self.dtype.clone().ok_or_else(missing)?,
                fill: tensor_fill(&name.value, name.defined, self.values.as_ref(), values)?,
                on_host: self.on_host,
            })
        });
        let quantised = self.quantised;
        let given = [
            self.constant.clone().map(|constant| DeclaredArgument::Constant(constant.value)),
            self.expression.clone().map(DeclaredArgument::Expression),
            self.inverse_root.clone().map(DeclaredArgument::InverseRoot),
            self.destination.map(DeclaredArgument::Destination),
            self.dtype_of_output.map(|output| DeclaredArgument::DtypeOf { output, quantised }),
            self.process_group
                .clone()
                .map(|ranks| DeclaredArgument::ProcessGroup { ranks, allowed: self.ranks.clone() }),
            self.same_as.clone().map(|other| DeclaredArgument::SameAs(other.value)),
            self.attribute.clone().map(|column| DeclaredArgument::Attribute(column.0)),
            tensor.transpose()?,
        ];
        let mut given = given.into_iter().flatten();
        if let (Some(argument), None) = (given.next(), given.next()) {
            return Ok(argument);
        }
        let problem = format!(
            "argument `{}` has one of `constant:`, `expression:`, `inverse_root:`, `destination:`, \
             `dtype_of_output:`, `attribute:`, `process_group:`, `same_as:`, `tensor:`",
            name.value
        );
        fault(name.defined, problem)
    }

    fn check(
        &self,
        name: &Spanned<String>,
        schema: &OperatorSchema,
        value: &DeclaredArgument,
    ) -> Result<(), Fault> {
        let Some(known) = schema.argument(&name.value) else {
            return fault(name.defined, no_such_argument(schema, &name.value));
        };
        let is_type = format!("argument `{}` is {:?} in the schema", name.value, known.kind);
        match value {
            DeclaredArgument::Constant(constant)
                if !(known.kind.accepts_constant(constant) || (constant.is_null() && known.optional)) =>
            {
                let place = self.constant.as_ref().map_or(name.defined, |constant| constant.defined);
                fault(place, format!("{is_type}, which `{constant}` is not"))
            }
            DeclaredArgument::Tensor { .. } if !known.kind.is_tensor() => {
                let place = self.tensor.as_ref().map_or(name.defined, |tensor| tensor.defined);
                fault(place, format!("{is_type}, no tensor"))
            }
            _ => Ok(()),
        }
    }
}

impl DeclaredExample {
    fn into_case(self, kernel: &KernelName) -> Case {
        let slots = |slots: Vec<Option<ExampleTensor>>| -> Vec<Slot> {
            slots.into_iter().map(|slot| slot.map(|tensor| tensor.0)).collect()
        };
        let mut attributes = CaseAttributes::default();
        self.attributes.iter().for_each(|(column, cell)| attributes.set(column, cell));
        let (inputs, outputs) = (slots(self.inputs), slots(self.outputs));
        Case { kernel: kernel.clone(), inputs, outputs, attributes }
    }
}

pub(super) fn no_such_argument(schema: &OperatorSchema, name: &str) -> String {
    let names: Vec<&str> = schema.arguments.iter().map(|known| known.name.as_str()).collect();
    format!("the schema has no argument `{name}`; it has {}", names.join(", "))
}

pub(super) fn check_slots(form: &EntryForm) -> Result<(), String> {
    let (rule, name) = (&form.rule, &form.rule.name);
    let inputs = ("input", rule.inputs.len(), form.inputs.len());
    for (side, in_form, declared) in [inputs, ("output", rule.outputs.0.len(), form.output_dtypes.len())] {
        if in_form != declared {
            return Err(format!("form `{name}` has {in_form} {side} slots, `{side}s:` has {declared}"));
        }
    }
    let is_unused =
        |index: &usize| rule.takes_slot(*index) && matches!(form.inputs[*index], InputSlot::Ignored);
    (0..form.inputs.len()).find(is_unused).map_or(Ok(()), |index| {
        Err(format!("form `{name}` has a shape for slot {index}, which `inputs:` leaves out"))
    })
}

/// Checks that the arguments of a form exist and are given once, and that none is missing. Errors of the form have `place`.
pub(super) fn check_form(
    form: &EntryForm,
    schema: &OperatorSchema,
    transposed: &[Spanned<String>],
    place: Location,
) -> Result<(), Fault> {
    if !form.is_replayed() {
        return Ok(());
    }
    let slots = form.tensors().map(|(_, slot)| (slot.argument.as_str(), slot.place));
    let names = slots.clone().chain(transposed.iter().map(|name| (name.value.as_str(), name.defined)));
    for (name, place) in names {
        if schema.argument(name).is_none() {
            return Err((place, no_such_argument(schema, name)));
        }
    }
    let mut given: Vec<&str> = form.arguments.keys().map(String::as_str).collect();
    for (name, place) in slots {
        let is_list = schema.argument(name).is_some_and(|known| known.kind == SchemaType::TensorList);
        if given.contains(&name) && (!is_list || form.arguments.contains_key(name)) {
            return Err((place, format!("argument `{name}` is given twice")));
        }
        given.push(name);
    }
    if let Some(missing) =
        schema.arguments.iter().find(|known| !known.has_default && !given.contains(&known.name.as_str()))
    {
        return Err((place, format!("argument `{}` has no default and is not given", missing.name)));
    }
    let index_of = |name: &str| schema.arguments.iter().position(|argument| argument.name == name);
    let check_same = |argument: &str, other: &str, place: Location| {
        if form.tensor(other).is_some() && index_of(other) < index_of(argument) {
            return Ok(());
        }
        Err((place, format!("`{argument}` cannot be the same as `{other}`, which is not a tensor before it")))
    };
    for (argument, declared) in &form.arguments {
        if let DeclaredArgument::SameAs(other) = declared {
            check_same(argument, other, place)?;
        }
    }
    for (_, slot) in form.tensors() {
        if let Some(other) = slot.same_type_as.as_ref().filter(|name| form.tensor(&name.value).is_none()) {
            let (name, other_name) = (&form.rule.name, &other.value);
            let problem = format!("form `{name}` has no tensor `{other_name}` to take the type from");
            return Err((other.defined, problem));
        }
        if let TensorSource::SameAs(other) = &slot.source {
            check_same(&slot.argument, &other.value, other.defined)?;
        }
    }
    Ok(())
}
