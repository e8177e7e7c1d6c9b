//! A pattern of a grid file, parsed: axes with the source of their values, expressions and slots. All names are
//! checked; no model is bound yet.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use super::{
    AttributeTemplate, GridModels,
    ladder::ladder_values,
    raw::{RawPattern, RawSide},
};
use crate::{
    base::{
        assets::AssetFiles,
        suggest::did_you_mean_or,
        yaml::{Location, Spanned, YamlError, YamlNode, split_outside_brackets},
    },
    kernel::{
        CaseAttributes, Dtype, EP_SIZE, KernelName, RUNTIME, TensorFormat, catalogue::Catalogue,
        expression::Expr,
    },
};

/// Values of ladders by name.
pub(crate) type LadderValues = BTreeMap<String, Vec<i64>>;

/// Hint of errors without a more specific one.
pub(crate) const HINT: &str = "docs/grids.md explains every key";

/// Error of an axis value of a wrong kind.
const NO_AXIS: &str = "is neither a ladder, nor a list, nor `{model: TABLE}` with or without `ladder: NAME`";

/// Formats that a template can have.
pub(crate) const FORMATS: [&str; 6] = ["ND", "NCL", "NCHW", "NCDHW", "NHWC", "FRACTAL_NZ"];

/// One pattern for one kernel, with the names that its expressions may use.
pub(crate) struct PatternContext<'a> {
    pub(crate) file: &'a Path,
    pub(crate) name: &'a Spanned<String>,
    pub(crate) pattern: RawPattern,
    pub(crate) ladders: &'a LadderValues,
    pub(crate) constants: BTreeMap<&'a str, i64>,
    pub(crate) models: &'a GridModels,
    /// Assets with the catalogue, whose entries may define attribute columns of their own.
    pub(crate) assets: &'a AssetFiles,
}

/// Source of the values of an axis.
pub(crate) enum AxisSource {
    /// The file; rows of several numbers one after the other.
    Values(Vec<i64>),
    /// A table of each model, joined with values of the file.
    Table {
        name: String,
        /// Values used for every model, also for one without the table.
        beside: Option<Vec<i64>>,
    },
}

/// An axis: a name or several that move together.
pub(crate) struct ParsedAxis {
    pub(crate) names: Vec<String>,
    pub(crate) source: AxisSource,
    pub(crate) position: Location,
}

/// A pattern, parsed and not yet bound to a model.
pub(crate) struct ParsedPattern {
    pub(crate) axes: Vec<ParsedAxis>,
    pub(crate) derived: BTreeMap<String, Spanned<Expr>>,
    pub(crate) conditions: Vec<Spanned<Expr>>,
    pub(crate) inputs: Vec<Option<ParsedTensor>>,
    pub(crate) outputs: Vec<Option<ParsedTensor>>,
    /// By column.
    pub(crate) attributes: Vec<(String, Spanned<AttributeTemplate>)>,
}

pub(crate) struct ParsedTensor {
    pub(crate) dims: Vec<Spanned<Expr>>,
    pub(crate) dtype: Dtype,
    pub(crate) format: TensorFormat,
}

impl ParsedPattern {
    fn expressions(&self) -> impl Iterator<Item = (Location, &Expr)> {
        let attributes = self.attributes.iter().filter_map(|(_, template)| match &template.value {
            AttributeTemplate::Expression(expr) => Some((template.defined, expr)),
            AttributeTemplate::Text(_) => None,
        });
        let slots = self.inputs.iter().chain(&self.outputs).flatten();
        let others = self.derived.values().chain(&self.conditions).chain(slots.flat_map(|slot| &slot.dims));
        others.map(|expr| (expr.defined, &expr.value)).chain(attributes)
    }

    /// The model tables from which axes take all of their values.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &String> {
        self.axes.iter().filter_map(|axis| match &axis.source {
            AxisSource::Table { name, beside: None } => Some(name),
            AxisSource::Table { .. } | AxisSource::Values(_) => None,
        })
    }

    /// Returns true if at least one axis takes values of a model.
    pub(crate) fn has_tables(&self) -> bool {
        self.axes.iter().any(|axis| matches!(axis.source, AxisSource::Table { .. }))
    }
}

impl PatternContext<'_> {
    pub(crate) fn error(&self, position: Location, problem: &str, hint: &str) -> YamlError {
        YamlError::at(self.file, position, &format!("pattern `{}`: {problem}", self.name.value), hint)
    }

    pub(crate) fn kernel_name(&self, name: &Spanned<String>) -> Result<KernelName, YamlError> {
        KernelName::new(&name.value).map_err(|error| self.error(name.defined, &error.to_string(), HINT))
    }

    pub(crate) fn parse_pattern(&self) -> Result<ParsedPattern, YamlError> {
        let missing = |key: &str| self.error(self.name.defined, &format!("has no `{key}:`"), HINT);
        let axes = self.pattern.axes.as_ref().ok_or_else(|| missing("axes"))?;
        let axes = axes.value.iter().map(|(names, value)| self.parse_axis(names, value));
        let derived = self.pattern.derived.iter().flatten();
        let derived = derived.map(|(name, text)| Ok((name.value.clone(), self.parse_expr(text)?)));
        let conditions = self.pattern.conditions.iter().flatten().map(|text| self.parse_expr(text));
        let inputs = self.pattern.inputs.as_ref().ok_or_else(|| missing("inputs"))?;
        let outputs = self.pattern.outputs.as_ref().ok_or_else(|| missing("outputs"))?;
        let pattern = ParsedPattern {
            axes: axes.collect::<Result<_, _>>()?,
            derived: derived.collect::<Result<_, YamlError>>()?,
            conditions: conditions.collect::<Result<_, _>>()?,
            inputs: self.parse_side(inputs)?,
            outputs: self.parse_side(outputs)?,
            attributes: self.parse_attributes()?,
        };
        self.needed_of_models(&pattern)?;
        Ok(pattern)
    }

    fn parse_expr(&self, text: &Spanned<String>) -> Result<Spanned<Expr>, YamlError> {
        let expr = Expr::parse(&text.value);
        let expr = expr.map_err(|error| self.error(text.defined, &error.to_string(), HINT))?;
        Ok(Spanned::new(expr, text.referenced, text.defined))
    }

    fn parse_axis(
        &self,
        names: &Spanned<String>,
        value: &Spanned<YamlNode>,
    ) -> Result<ParsedAxis, YamlError> {
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
                let hint =
                    did_you_mean_or(name, known.clone(), || format!("the ladders are {}", join_names(known)));
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
                self.check_table(name).map_err(|hint| {
                    wrong(position, &format!("is of the table `{name}`, which no model has"), &hint)
                })?;
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
                let items = Spanned::new(items.clone(), value.referenced, value.defined);
                let values = ladder_values(&items);
                AxisSource::Values(
                    values.map_err(|(position, why)| {
                        wrong(position, &format!("has a wrong value: {why}"), HINT)
                    })?,
                )
            }
            YamlNode::Scalar(name) => AxisSource::Values(ladder(name, value.defined)?),
        };
        Ok(ParsedAxis { names: parts, source, position: value.defined })
    }

    /// Checks that some model has the table; the error is a hint.
    fn check_table(&self, table: &str) -> Result<(), String> {
        let known = self.models.all().flat_map(|model| model.tables.keys().map(String::as_str));
        let known: BTreeSet<&str> = known.collect();
        if known.contains(table) {
            return Ok(());
        }
        Err(did_you_mean_or(table, known.iter().copied(), || {
            format!("models have {}", join_names(known.iter().copied()))
        }))
    }

    fn parse_side(&self, side: &RawSide) -> Result<Vec<Option<ParsedTensor>>, YamlError> {
        let shapes: Vec<&str> = side.shapes.value.split(';').map(str::trim).collect();
        let nd = Spanned::new("ND".to_owned(), side.shapes.referenced, side.shapes.defined);
        let formats = side.formats.as_ref().unwrap_or(&nd);
        let dtype_names = self.split_cell("types", &side.dtypes, shapes.len())?;
        let format_names = self.split_cell("formats", formats, shapes.len())?;
        let slots = shapes.iter().zip(dtype_names.iter().zip(format_names));
        slots
            .map(|(shape, (dtype, format))| {
                if *shape == "-" {
                    return Ok(None);
                }
                let dims = if shape.is_empty() { Vec::new() } else { split_outside_brackets(shape) };
                let dims = dims.iter().map(|term| {
                    self.parse_expr(&Spanned::new(
                        (*term).to_owned(),
                        side.shapes.referenced,
                        side.shapes.defined,
                    ))
                });
                Ok(Some(ParsedTensor {
                    dims: dims.collect::<Result<_, _>>()?,
                    dtype: self.parse_dtype(dtype, side.dtypes.defined)?,
                    format: self.parse_format(format, formats.defined)?,
                }))
            })
            .collect()
    }

    /// Splits a cell at semicolons: one name for all slots, or one for each.
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

    fn parse_dtype(&self, name: &str, position: Location) -> Result<Dtype, YamlError> {
        Dtype::parse(name).filter(|dtype| dtype.torch_name().is_some()).ok_or_else(|| {
            let hint = did_you_mean_or(name, Dtype::known_names(), || {
                format!("the types are {}", join_names(Dtype::known_names()))
            });
            self.error(position, &format!("`{name}` is not a tensor type"), &hint)
        })
    }

    fn parse_format(&self, name: &str, position: Location) -> Result<TensorFormat, YamlError> {
        TensorFormat::parse(name).filter(|known| FORMATS.contains(&known.as_str())).ok_or_else(|| {
            let hint = did_you_mean_or(name, FORMATS, || format!("the formats are {}", FORMATS.join(", ")));
            self.error(position, &format!("`{name}` is not a format"), &hint)
        })
    }

    fn parse_attributes(&self) -> Result<Vec<(String, Spanned<AttributeTemplate>)>, YamlError> {
        let texts = self.pattern.text.iter().flatten();
        let texts = texts.map(|(column, text)| {
            let template = AttributeTemplate::Text(text.clone());
            Ok::<_, YamlError>((column, Spanned::new(template, column.referenced, column.defined)))
        });
        let expressions = self.pattern.attributes.iter().flatten();
        let expressions = expressions.map(|(column, text)| {
            let Spanned { value, referenced, defined } = self.parse_expr(text)?;
            Ok((column, Spanned::new(AttributeTemplate::Expression(value), referenced, defined)))
        });
        let mut seen = BTreeSet::new();
        let columns = texts.chain(expressions).map(|column| {
            let (column, template) = column?;
            self.check_column(column)?;
            if !seen.insert(&column.value) {
                let hint = "give a column below `text:` or below `attributes:`, not below both";
                return Err(self.error(column.defined, &format!("`{}` is given twice", column.value), hint));
            }
            Ok((column.value.clone(), template))
        });
        columns.collect()
    }

    /// Checks that rows of grids may have the column.
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
        let defined = Catalogue::load(self.assets)?.attribute_columns();
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

    /// The names in expressions that only models can give.
    pub(crate) fn needed_of_models<'p>(
        &self,
        pattern: &'p ParsedPattern,
    ) -> Result<BTreeSet<&'p str>, YamlError> {
        let own = self.own_names()?;
        let known: BTreeSet<&str> =
            self.models.all().flat_map(|model| model.numbers.keys().map(String::as_str)).collect();
        let mut needed = BTreeSet::new();
        for (position, expr) in pattern.expressions() {
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

fn join_names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}
