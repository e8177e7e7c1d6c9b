//! Patterns of grid files: their keys, and the candidate spaces that they declare for a kernel, with and without models.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use serde::Deserialize;

use super::{
    AttributeTemplate, CandidateSpace, GridAxis, GridFiles, GridModels, ModelValues, SlotTemplate,
    TensorTemplate, segment::ladder_values,
};
use crate::{
    base::{
        assets::AssetFiles,
        suggest::{did_you_mean_one_of, did_you_mean_or},
        yaml::{self, Location, Spanned, YamlError, YamlMap, YamlNode, split_outside_brackets},
    },
    kernel::{
        CaseAttributes, Dtype, EP_SIZE, KernelName, RUNTIME, TensorFormat,
        catalogue::Catalogue,
        expression::{CompiledExpr, Expr, ExprError, SyntaxError, VariableSlot},
    },
};

pub(crate) type LadderValues = BTreeMap<String, Vec<i64>>;

pub(crate) const HINT: &str = "docs/grids.md explains every key";

const NO_AXIS: &str = "is neither a ladder, nor a list, nor `{model: TABLE}` with or without `ladder: NAME`";

pub(crate) const FORMATS: [&str; 6] = ["ND", "NCL", "NCHW", "NCDHW", "NHWC", "FRACTAL_NZ"];

/// Limit of the candidates of a file: about a minute of expansion, and few enough for memory.
const MAX_CANDIDATES: u64 = 1 << 26;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GridFile {
    #[serde(rename = "summary")]
    _summary: String,
    #[serde(default)]
    ladders: YamlMap<Spanned<Vec<Spanned<YamlNode>>>>,
    #[serde(default)]
    constants: BTreeMap<String, i64>,
    #[serde(default)]
    patterns: YamlMap<DeclaredPattern>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct DeclaredPattern {
    #[serde(rename = "summary")]
    _summary: Option<String>,
    kernels: Vec<Spanned<String>>,
    axes: Option<Spanned<YamlMap<Spanned<YamlNode>>>>,
    constants: BTreeMap<String, i64>,
    #[serde(rename = "let")]
    derived: Option<YamlMap<Spanned<Expr>>>,
    #[serde(rename = "where")]
    conditions: Option<Vec<Spanned<Expr>>>,
    inputs: Option<DeclaredSide>,
    outputs: Option<DeclaredSide>,
    attributes: Option<YamlMap<Spanned<Expr>>>,
    text: Option<YamlMap<String>>,
    with_models: Option<PatternOverride>,
    overrides: YamlMap<PatternOverride>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct PatternOverride {
    axes: Option<Spanned<YamlMap<Spanned<YamlNode>>>>,
    #[serde(rename = "let")]
    derived: Option<YamlMap<Spanned<Expr>>>,
    #[serde(rename = "where")]
    conditions: Option<Vec<Spanned<Expr>>>,
    inputs: Option<DeclaredSide>,
    outputs: Option<DeclaredSide>,
    attributes: Option<YamlMap<Spanned<Expr>>>,
    text: Option<YamlMap<String>>,
}

/// Three cells of a row: slots are separated by semicolons.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DeclaredSide {
    shapes: Spanned<SideShapes>,
    dtypes: Spanned<String>,
    #[serde(default)]
    formats: Option<Spanned<String>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
struct SideShapes(Vec<Option<Vec<Expr>>>);

impl TryFrom<String> for SideShapes {
    type Error = SyntaxError;

    fn try_from(text: String) -> Result<Self, SyntaxError> {
        let slots = text.split(';').map(|shape| match shape.trim() {
            "-" => Ok(None),
            "" => Ok(Some(Vec::new())),
            shape => {
                split_outside_brackets(shape).into_iter().map(Expr::parse).collect::<Result<_, _>>().map(Some)
            }
        });
        slots.collect::<Result<_, _>>().map(Self)
    }
}

impl DeclaredPattern {
    fn with_override(mut self, other: &PatternOverride) -> Self {
        let PatternOverride { axes, derived, conditions, inputs, outputs, attributes, text } = other.clone();
        self.axes = axes.or(self.axes);
        self.derived = derived.or(self.derived);
        self.conditions = conditions.or(self.conditions);
        self.inputs = inputs.or(self.inputs);
        self.outputs = outputs.or(self.outputs);
        self.attributes = attributes.or(self.attributes);
        self.text = text.or(self.text);
        self
    }
}

#[derive(Clone, Copy)]
pub(super) struct GridFileContext<'a> {
    pub(super) ladders: &'a LadderValues,
    pub(super) models: &'a GridModels,
    /// Assets with the catalogue, whose entries may define attribute columns of their own.
    pub(super) assets: &'a AssetFiles,
}

pub(super) fn parse_ladders(file: &Path, text: &str) -> Result<LadderValues, YamlError> {
    declared_ladders(&yaml::parse_with_hint(file, text, HINT)?, file)
}

fn declared_ladders(grid: &GridFile, file: &Path) -> Result<LadderValues, YamlError> {
    let ladders = grid.ladders.iter().map(|(name, items)| {
        let values = ladder_values(&items.value, items.defined).map_err(|(position, why)| {
            YamlError::at(file, position, &format!("ladder `{}`: {why}", name.value), HINT)
        })?;
        Ok((name.value.clone(), values))
    });
    ladders.collect()
}

pub(super) fn parse_spaces(
    name: &str,
    file: &Path,
    text: &str,
    shared: &GridFileContext<'_>,
) -> Result<GridFiles, YamlError> {
    let grid: GridFile = yaml::parse_with_hint(file, text, HINT)?;
    if let Some(twice) = grid.ladders.keys().find(|name| shared.ladders.contains_key(&name.value)) {
        let problem = format!("ladder `{}` is already declared in {}", twice.value, super::SHARED);
        return Err(YamlError::at(file, twice.defined, &problem, "give it another name"));
    }
    let mut ladders = declared_ladders(&grid, file)?;
    ladders.extend(shared.ladders.clone());
    let (mut parsed, mut count) = (GridFiles::default(), 0_u64);
    for (pattern_name, pattern) in &grid.patterns {
        let is_declared = |name: &str| pattern.kernels.iter().any(|kernel| kernel.value == name);
        if let Some(other) = pattern.overrides.keys().find(|kernel| !is_declared(&kernel.value)) {
            let kernels = pattern.kernels.iter().map(|kernel| kernel.value.as_str());
            let hint = did_you_mean_or(&other.value, kernels, || HINT.to_owned());
            let problem = format!("`{}` is not among the kernels of the pattern", other.value);
            return Err(YamlError::at(file, other.defined, &problem, &hint));
        }
        let with_models = pattern.with_models.as_ref().map(|other| pattern.clone().with_override(other));
        for kernel in &pattern.kernels {
            let own = pattern.overrides.iter().find(|(name, _)| name.value == kernel.value);
            let of_kernel = |base: &DeclaredPattern| PatternContext {
                file,
                name: pattern_name,
                pattern: own.map_or_else(|| base.clone(), |(_, own)| base.clone().with_override(own)),
                ladders: &ladders,
                // The pattern's constants take precedence.
                constants: (grid.constants.iter().chain(&pattern.constants))
                    .map(|(name, value)| (name.as_str(), *value))
                    .collect(),
                shared: *shared,
            };
            let plain = of_kernel(pattern);
            let (used, unused) = match with_models.as_ref().map(of_kernel) {
                Some(of_models) if shared.models.chosen.is_some() => (of_models, Some(plain)),
                other => (plain, other),
            };
            let kernel_name = KernelName::new(&kernel.value)
                .map_err(|error| used.error(kernel.defined, &error.to_string(), HINT))?;
            // Errors of the unused variant are reported as well, whether models are chosen or not.
            if let Some(unused) = unused {
                unused.spaces(&kernel_name, name, shared.models.all(), 1)?;
            }
            let spaces = used.spaces(&kernel_name, name, shared.models.used().iter(), usize::MAX)?;
            count = used.count_candidates(&kernel_name, &spaces, count)?;
            let problem = format!("the catalogue has no entry for `{kernel_name}`, so it gets no rows");
            parsed.named.push((kernel_name, used.error(kernel.defined, &problem, HINT)));
            parsed.spaces.extend(spaces);
        }
    }
    Ok(parsed)
}

struct PatternContext<'a> {
    file: &'a Path,
    name: &'a Spanned<String>,
    pattern: DeclaredPattern,
    ladders: &'a LadderValues,
    constants: BTreeMap<&'a str, i64>,
    shared: GridFileContext<'a>,
}

enum AxisSource {
    /// The file; rows of several numbers one after the other.
    Values(Vec<i64>),
    /// A table of each model, joined with values of the file, which also a model without the table uses.
    Table { name: String, beside: Option<Vec<i64>> },
}

struct DeclaredAxis {
    names: Vec<String>,
    source: AxisSource,
    position: Location,
}

type SideTensors<'a> = Vec<Option<(&'a [Expr], Dtype, TensorFormat)>>;

impl PatternContext<'_> {
    fn error(&self, position: Location, problem: &str, hint: &str) -> YamlError {
        YamlError::at(self.file, position, &format!("pattern `{}`: {problem}", self.name.value), hint)
    }

    /// Returns one space, or one for each of the first `limit` models that have the values needed by the pattern.
    fn spaces<'m>(
        &self,
        kernel: &KernelName,
        grid: &str,
        models: impl Iterator<Item = &'m ModelValues>,
        limit: usize,
    ) -> Result<Vec<CandidateSpace>, YamlError> {
        let missing = |key: &str| self.error(self.name.defined, &format!("has no `{key}:`"), HINT);
        let axes = self.pattern.axes.as_ref().ok_or_else(|| missing("axes"))?;
        let axes = axes.value.iter().map(|(names, value)| self.parse_axis(names, value));
        let axes = axes.collect::<Result<Vec<_>, _>>()?;
        let inputs = self.pattern.inputs.as_ref().ok_or_else(|| missing("inputs"))?;
        let outputs = self.pattern.outputs.as_ref().ok_or_else(|| missing("outputs"))?;
        let (input_tensors, output_tensors) = (self.parse_side(inputs)?, self.parse_side(outputs)?);
        let attributes = self.parse_attributes()?;
        let needed = self.needed_of_models()?;
        let tables = axes.iter().filter_map(|axis| match &axis.source {
            AxisSource::Table { name, beside } => Some((name, beside.is_none())),
            AxisSource::Values(_) => None,
        });
        let bind = |model: Option<&ModelValues>| {
            let axes = axes.iter().map(|axis| self.bind_axis(axis, model));
            let axes = axes.collect::<Result<Vec<_>, _>>()?;
            let mut names: Vec<String> = axes.iter().flat_map(|axis| axis.names.clone()).collect();
            let derived = self.order_derived(&mut names, model)?;
            let compile = |expr: &Expr, place, is_comparison| {
                self.compile(expr, place, is_comparison, &|name| self.find_variable(name, &names, model))
            };
            let side = |tensors: &SideTensors<'_>, place: Location| -> Result<Vec<SlotTemplate>, YamlError> {
                let slots = tensors.iter().map(|slot| {
                    let Some((dims, dtype, format)) = slot else { return Ok(None) };
                    let dims =
                        dims.iter().map(|expr| compile(expr, place, false)).collect::<Result<_, _>>()?;
                    Ok(Some(TensorTemplate { dims, dtype: dtype.clone(), format: format.clone() }))
                });
                slots.collect()
            };
            let conditions = self.pattern.conditions.iter().flatten();
            let conditions = conditions.map(|expr| compile(&expr.value, expr.defined, true));
            let of_attributes = self.pattern.attributes.iter().flat_map(YamlMap::values);
            let constants = of_attributes.flat_map(|expr| expr.value.variable_names()).filter_map(|name| {
                match self.find_variable(name, &names, model) {
                    Some(VariableSlot::Is(number)) => Some((name.to_owned(), number)),
                    _ => None,
                }
            });
            Ok(CandidateSpace {
                kernel: kernel.clone(),
                grid: grid.to_owned(),
                pattern: self.name.value.clone(),
                model: model.map(|model| model.id.clone()),
                conditions: conditions.collect::<Result<_, _>>()?,
                inputs: side(&input_tensors, inputs.shapes.defined)?,
                outputs: side(&output_tensors, outputs.shapes.defined)?,
                attributes: attributes.clone(),
                constants: constants.collect(),
                axes,
                derived,
                names,
            })
        };
        if needed.is_empty() && tables.clone().next().is_none() {
            return Ok(vec![bind(None)?]);
        }
        let has_all = |model: &&ModelValues| {
            needed.iter().all(|name| model.numbers.contains_key(*name))
                && tables.clone().all(|(table, is_needed)| !is_needed || model.tables.contains_key(table))
        };
        models.filter(has_all).take(limit).map(|model| bind(Some(model))).collect()
    }

    fn count_candidates(
        &self,
        kernel: &KernelName,
        spaces: &[CandidateSpace],
        before: u64,
    ) -> Result<u64, YamlError> {
        let count = spaces.iter().fold(before, |sum, space| sum.saturating_add(space.candidates()));
        if count <= MAX_CANDIDATES {
            return Ok(count);
        }
        let problem =
            format!("{count} candidates of the file up to `{kernel}`, the limit is {MAX_CANDIDATES}");
        let hint = "shorten axes; `where:` is evaluated later and does not reduce the number of candidates";
        let position = self.pattern.axes.as_ref().map_or(self.name.defined, |axes| axes.defined);
        Err(self.error(position, &problem, hint))
    }

    fn parse_axis(
        &self,
        names: &Spanned<String>,
        value: &Spanned<YamlNode>,
    ) -> Result<DeclaredAxis, YamlError> {
        let wrong = |position: Location, why: &str, hint: &str| {
            self.error(position, &format!("axis `{}` {why}", names.value), hint)
        };
        let parts: Vec<String> = names.value.split(',').map(|name| name.trim().to_owned()).collect();
        let is_name = |name: &String| Expr::parse(name).is_ok_and(|expr| expr.bare_name().is_some());
        if let Some(name) = parts.iter().find(|name| !is_name(name)) {
            return Err(wrong(names.defined, &format!("has `{name}`, which is not a name"), HINT));
        }
        let ladder = |name: &str, position: Location| {
            self.ladders.get(name).cloned().ok_or_else(|| {
                let known = self.ladders.keys().map(String::as_str);
                let hint = did_you_mean_one_of(name, known, "the ladders are");
                wrong(position, &format!("refers to the ladder `{name}`, which is not declared"), &hint)
            })
        };
        let source = match &value.value {
            YamlNode::Map(entries) => {
                let text = |key: &str| {
                    let (_, value) = entries.iter().find(|(name, _)| name.value == key)?;
                    Some((value.value.as_text()?, value.defined))
                };
                let (table, beside) = (text("model"), text("ladder").filter(|_| parts.len() == 1));
                let table = table.filter(|_| entries.len() == 1 + usize::from(beside.is_some()));
                let (name, position) = table.ok_or_else(|| wrong(value.defined, NO_AXIS, HINT))?;
                let known =
                    self.shared.models.all().flat_map(|model| model.tables.keys().map(String::as_str));
                let known: BTreeSet<&str> = known.collect();
                if !known.contains(name) {
                    let hint = did_you_mean_one_of(name, known, "models have");
                    let why = format!("is of the table `{name}`, which no model has");
                    return Err(wrong(position, &why, &hint));
                }
                let beside = beside.map(|(name, position)| ladder(name, position)).transpose()?;
                AxisSource::Table { name: name.to_owned(), beside }
            }
            YamlNode::List(items) if items.iter().any(|item| matches!(item.value, YamlNode::List(_))) => {
                let values = parse_rows(items, parts.len());
                AxisSource::Values(values.map_err(|(position, why)| wrong(position, &why, HINT))?)
            }
            _ if parts.len() > 1 => {
                return Err(wrong(value.defined, &format!("needs rows of {} numbers", parts.len()), HINT));
            }
            YamlNode::List(items) => {
                let values = ladder_values(items, value.defined);
                let values = values
                    .map_err(|(position, why)| wrong(position, &format!("has a wrong value: {why}"), HINT));
                AxisSource::Values(values?)
            }
            YamlNode::Scalar(name) => AxisSource::Values(ladder(name, value.defined)?),
        };
        Ok(DeclaredAxis { names: parts, source, position: value.defined })
    }

    fn bind_axis(&self, axis: &DeclaredAxis, model: Option<&ModelValues>) -> Result<GridAxis, YamlError> {
        let (names, width) = (axis.names.clone(), axis.names.len());
        let values = match &axis.source {
            AxisSource::Values(values) => values.clone(),
            AxisSource::Table { name, beside } => {
                let table = model.and_then(|model| model.tables.get(name));
                let fitting = table.filter(|table| table.width == width).map(|table| &table.numbers);
                match (fitting, beside) {
                    (Some(numbers), None) => numbers.clone(),
                    (None, None) => {
                        let has = table.map_or(0, |table| table.width);
                        let problem = format!("table `{name}` has {has} columns for {width} names");
                        return Err(self.error(axis.position, &problem, HINT));
                    }
                    (numbers, Some(beside)) => {
                        let all: BTreeSet<i64> =
                            numbers.into_iter().flatten().chain(beside).copied().collect();
                        all.into_iter().collect()
                    }
                }
            }
        };
        Ok(GridAxis { names, values })
    }

    fn parse_side<'s>(&self, side: &'s DeclaredSide) -> Result<SideTensors<'s>, YamlError> {
        let shapes = &side.shapes.value.0;
        let nd = Spanned::new("ND".to_owned(), side.shapes.referenced, side.shapes.defined);
        let formats = side.formats.as_ref().unwrap_or(&nd);
        let dtype_names = self.split_cell("types", &side.dtypes, shapes.len())?;
        let format_names = self.split_cell("formats", formats, shapes.len())?;
        let slots = shapes.iter().zip(dtype_names.iter().zip(format_names)).map(|(dims, (dtype, format))| {
            let Some(dims) = dims else { return Ok(None) };
            let known_dtype = Dtype::parse(dtype).filter(|dtype| dtype.torch_name().is_some());
            let known_dtype = known_dtype.ok_or_else(|| {
                let hint = did_you_mean_one_of(dtype, Dtype::known_names(), "the types are");
                self.error(side.dtypes.defined, &format!("`{dtype}` is not a tensor type"), &hint)
            })?;
            let known_format = TensorFormat::parse(format).filter(|known| FORMATS.contains(&known.as_str()));
            let known_format = known_format.ok_or_else(|| {
                let hint = did_you_mean_one_of(format, FORMATS, "the formats are");
                self.error(formats.defined, &format!("`{format}` is not a format"), &hint)
            })?;
            Ok(Some((dims.as_slice(), known_dtype, known_format)))
        });
        slots.collect()
    }

    fn split_cell<'t>(
        &self,
        what: &str,
        cell: &'t Spanned<String>,
        slots: usize,
    ) -> Result<Vec<&'t str>, YamlError> {
        let names: Vec<&str> = cell.value.split(';').map(str::trim).collect();
        match names.len() {
            1 => Ok(vec![names[0]; slots]),
            count if count == slots => Ok(names),
            count => {
                let problem = format!("{count} {what} for {slots} shapes");
                Err(self.error(cell.defined, &problem, "give one for all slots, or one for each"))
            }
        }
    }

    fn parse_attributes(&self) -> Result<Vec<(String, AttributeTemplate)>, YamlError> {
        let texts = self.pattern.text.iter().flatten();
        let texts = texts.map(|(column, text)| (column, AttributeTemplate::Text(text.clone())));
        let expressions = self.pattern.attributes.iter().flatten();
        let expressions =
            expressions.map(|(column, expr)| (column, AttributeTemplate::Expression(expr.value.clone())));
        let mut seen = BTreeSet::new();
        let columns = texts.chain(expressions).map(|(column, template)| {
            self.check_column(column)?;
            if !seen.insert(&column.value) {
                let hint = "give a column below `text:` or below `attributes:`, not below both";
                return Err(self.error(column.defined, &format!("`{}` is given twice", column.value), hint));
            }
            Ok((column.value.clone(), template))
        });
        columns.collect()
    }

    fn check_column(&self, column: &Spanned<String>) -> Result<(), YamlError> {
        let (position, column) = (column.defined, column.value.as_str());
        if CaseAttributes::is_derived_column(column) {
            let problem = format!("`{column}` is filled in with each row");
            return Err(self.error(position, &problem, "leave it out"));
        }
        let known: BTreeSet<String> = CaseAttributes::grid_columns().collect();
        if known.contains(column) {
            return Ok(());
        }
        // Entries may define more columns. Loading the catalogue takes time, so it is done only here.
        let defined = Catalogue::load(self.shared.assets)?.attribute_columns();
        if defined.contains(column) {
            return Ok(());
        }
        let hint = did_you_mean_or(column, known.iter().chain(&defined).map(String::as_str), || {
            format!(
                "attributes are `{EP_SIZE}` and the columns `{RUNTIME}…` that an entry of the catalogue reads; \
                 docs/attention.md lists those of attention"
            )
        });
        Err(self.error(position, &format!("`{}` is not an attribute", column.escape_debug()), &hint))
    }

    /// The names of axes and of `let:`; a name given twice is an error.
    fn own_names(&self) -> Result<BTreeSet<&str>, YamlError> {
        let axes = self.pattern.axes.iter().flat_map(|axes| axes.value.keys());
        let axes = axes.flat_map(|key| key.value.split(',').map(|name| (name.trim(), key.defined)));
        let derived = self.pattern.derived.iter().flatten();
        let derived = derived.map(|(key, _)| (key.value.as_str(), key.defined));
        let mut own = BTreeSet::new();
        for (name, position) in axes.chain(derived) {
            if !own.insert(name) || self.constants.contains_key(name) {
                let problem = format!("`{name}` is given twice");
                return Err(self.error(position, &problem, "give it another name"));
            }
        }
        Ok(own)
    }

    fn needed_of_models(&self) -> Result<BTreeSet<&str>, YamlError> {
        let own = self.own_names()?;
        let DeclaredPattern { derived, conditions, inputs, outputs, attributes, .. } = &self.pattern;
        let values = [derived, attributes].map(|map| map.iter().flat_map(YamlMap::values));
        let [derived, attributes] = values.map(|exprs| exprs.map(|expr| (expr.defined, &expr.value)));
        let conditions = conditions.iter().flatten().map(|expr| (expr.defined, &expr.value));
        let dims = inputs.iter().chain(outputs).flat_map(|side| {
            side.shapes.value.0.iter().flatten().flatten().map(|expr| (side.shapes.defined, expr))
        });
        let models = self.shared.models.all();
        let known: BTreeSet<&str> =
            models.flat_map(|model| model.numbers.keys().map(String::as_str)).collect();
        let mut needed = BTreeSet::new();
        for (position, expr) in derived.chain(conditions).chain(dims).chain(attributes) {
            let names = expr.variable_names().into_iter();
            for name in names.filter(|name| !own.contains(name) && !self.constants.contains_key(name)) {
                if !known.contains(name) {
                    let names = own.iter().chain(self.constants.keys()).chain(&known).copied();
                    let hint = did_you_mean_or(name, names, || {
                        "it is neither an axis nor a constant nor in `let:`, and no model has it".to_owned()
                    });
                    let problem = format!("`{name}` in `{expr}` is not defined");
                    return Err(self.error(position, &problem, &hint));
                }
                needed.insert(name);
            }
        }
        Ok(needed)
    }

    /// Compiles derived names in an order in which each can be computed, and appends them to `names`.
    fn order_derived(
        &self,
        names: &mut Vec<String>,
        model: Option<&ModelValues>,
    ) -> Result<Vec<CompiledExpr>, YamlError> {
        let mut compiled = Vec::new();
        let mut left: Vec<(&Spanned<String>, &Spanned<Expr>)> =
            self.pattern.derived.iter().flatten().collect();
        left.sort_by_key(|(name, _)| name.value.as_str());
        while !left.is_empty() {
            let find = |name: &str| self.find_variable(name, names, model);
            let mut each = left.iter();
            let ready = each
                .position(|(_, expr)| expr.value.variable_names().iter().all(|name| find(name).is_some()));
            let Some(ready) = ready else {
                let (name, expr) = left[0];
                let problem = format!("`{}` depends on itself", name.value);
                return Err(self.error(expr.defined, &problem, "derive it from axes and constants"));
            };
            let (name, expr) = left.remove(ready);
            compiled.push(self.compile(&expr.value, expr.defined, false, &find)?);
            names.push(name.value.clone());
        }
        Ok(compiled)
    }

    fn find_variable(
        &self,
        name: &str,
        names: &[String],
        model: Option<&ModelValues>,
    ) -> Option<VariableSlot> {
        let at = names.iter().position(|known| known == name).map(VariableSlot::At);
        let constant = || self.constants.get(name).copied();
        let of_model = || model.and_then(|model| model.numbers.get(name)).copied();
        at.or_else(|| constant().or_else(of_model).map(VariableSlot::Is))
    }

    fn compile(
        &self,
        expr: &Expr,
        place: Location,
        is_comparison: bool,
        find: &dyn Fn(&str) -> Option<VariableSlot>,
    ) -> Result<CompiledExpr, YamlError> {
        let problem = match CompiledExpr::compile(expr, find) {
            Ok(compiled) if compiled.is_comparison == is_comparison => return Ok(compiled),
            Ok(_) if is_comparison => format!("`{expr}` is a number, expected a comparison"),
            Ok(_) => format!("`{expr}` is a comparison, expected a number"),
            Err(ExprError::Unknown(name)) => format!("`{name}` in `{expr}` is not defined"),
            Err(error) => error.to_string(),
        };
        Err(self.error(place, &problem, HINT))
    }
}

/// Returns the numbers of rows of equal width, one row after the other; an error has the position and the reason.
fn parse_rows(items: &[Spanned<YamlNode>], width: usize) -> Result<Vec<i64>, (Location, String)> {
    let mut numbers = Vec::new();
    for item in items {
        let YamlNode::List(row) = &item.value else {
            return Err((item.defined, format!("has a single value among rows of {width} numbers")));
        };
        if row.len() != width {
            return Err((item.defined, format!("has a row of {} values for {width} names", row.len())));
        }
        for value in row {
            let number = value.value.as_text().and_then(|text| text.parse().ok());
            let number = number.filter(|number| *number >= 1);
            numbers.push(number.ok_or_else(|| {
                let found = value.value.as_text().unwrap_or("a list or a mapping");
                (value.defined, format!("has `{found}` in a row, expected whole numbers of at least 1"))
            })?);
        }
    }
    Ok(numbers)
}
