//! A pattern of a grid file, parsed: axes, expressions and slots, every name known, bound to no model yet.

use std::collections::{BTreeMap, BTreeSet};

use serde_yaml::Value;

use super::{
    AttributeTemplate, GridModels, ladder,
    raw::{RawPattern, RawSide},
};
use crate::{
    catalogue::{Catalogue, Expr},
    config::{AssetFiles, YamlError, locate::YamlPath, yaml, yaml::split_outside_brackets},
    domain::{CaseAttributes, Dtype, EP_SIZE, KernelName, RUNTIME, TensorFormat, did_you_mean_or},
};

/// Values by the names of their ladders.
pub(crate) type LadderValues = BTreeMap<String, Vec<i64>>;

/// What to read where nothing else helps.
pub(crate) const HINT: &str = "docs/grids.md explains every key";

/// What is said of an axis that is none.
const NO_AXIS: &str = "is no ladder, no list and no `{model: TABLE}` with or without `ladder: NAME`";

/// Formats that a template can have.
pub(crate) const FORMATS: [&str; 6] = ["ND", "NCL", "NCHW", "NCDHW", "NHWC", "FRACTAL_NZ"];

/// One pattern for one kernel, with the words that it may use.
pub(crate) struct PatternContext<'a> {
    pub(crate) source: YamlPath<'a>,
    /// The pattern's name.
    pub(crate) name: &'a str,
    /// The keys below the pattern under which it was changed, such as `with_models`.
    pub(crate) below: Vec<&'a str>,
    pub(crate) pattern: RawPattern,
    pub(crate) ladders: &'a LadderValues,
    pub(crate) constants: BTreeMap<&'a str, i64>,
    pub(crate) models: &'a GridModels,
    /// Where the catalogue is, whose entries may ask for columns of their own.
    pub(crate) assets: &'a AssetFiles,
}

/// Where the values of an axis are from.
pub(crate) enum AxisSource {
    /// The file; rows of several numbers one after the other.
    Values(Vec<i64>),
    /// A table of each model, beside values of the file.
    Table {
        /// Its name.
        name: String,
        /// Values that are there for every model, also for one that has no such table.
        beside: Option<Vec<i64>>,
    },
}

/// A pattern, parsed and not yet bound to a model.
pub(crate) struct ParsedPattern {
    pub(crate) axes: Vec<(Vec<String>, AxisSource)>,
    pub(crate) derived: BTreeMap<String, Expr>,
    pub(crate) conditions: Vec<Expr>,
    pub(crate) inputs: Vec<Option<ParsedTensor>>,
    pub(crate) outputs: Vec<Option<ParsedTensor>>,
    pub(crate) attributes: Vec<(String, AttributeTemplate)>,
}

/// A slot that holds something.
pub(crate) struct ParsedTensor {
    pub(crate) dims: Vec<Expr>,
    pub(crate) dtype: Dtype,
    pub(crate) format: TensorFormat,
}

impl ParsedPattern {
    /// The names that the pattern gives itself, with the key below which each stands.
    fn names(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let axes = self.axes.iter().flat_map(|(names, _)| names).map(|name| ("axes", name.as_str()));
        axes.chain(self.derived.keys().map(|name| ("let", name.as_str())))
    }

    /// All expressions, with the key below which each stands.
    fn expressions(&self) -> impl Iterator<Item = (&'static str, &Expr)> {
        let cells = self.attributes.iter().filter_map(|(_, cell)| match cell {
            AttributeTemplate::Expression(expr) => Some(("attributes", expr)),
            AttributeTemplate::Text(_) => None,
        });
        (self.derived.values().map(|expr| ("let", expr)))
            .chain(self.conditions.iter().map(|expr| ("where", expr)))
            .chain(self.inputs.iter().flatten().flat_map(|slot| &slot.dims).map(|expr| ("inputs", expr)))
            .chain(self.outputs.iter().flatten().flat_map(|slot| &slot.dims).map(|expr| ("outputs", expr)))
            .chain(cells)
    }

    /// The tables of models from which axes take all of their values.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &String> {
        self.axes.iter().filter_map(|(_, source)| match source {
            AxisSource::Table { name, beside: None } => Some(name),
            AxisSource::Table { .. } | AxisSource::Values(_) => None,
        })
    }

    /// Whether axes take values of a model, be it some.
    pub(crate) fn has_tables(&self) -> bool {
        self.axes.iter().any(|(_, source)| matches!(source, AxisSource::Table { .. }))
    }
}

impl PatternContext<'_> {
    /// An error of the pattern below one of its keys.
    pub(crate) fn error(&self, key: &str, needle: &str, problem: &str, hint: &str) -> YamlError {
        self.error_below(&[key], needle, problem, hint)
    }

    fn error_below(&self, keys: &[&str], needle: &str, problem: &str, hint: &str) -> YamlError {
        let keys = [&["patterns", self.name], self.below.as_slice(), keys].concat();
        self.source.error(&keys, needle, &format!("pattern `{}`: {problem}", self.name), hint)
    }

    /// The name of one of its kernels.
    pub(crate) fn kernel(&self, name: &str) -> Result<KernelName, YamlError> {
        KernelName::new(name).map_err(|error| self.error("kernels", name, &error.to_string(), HINT))
    }

    /// What is to be said of a kernel that the catalogue does not know.
    pub(crate) fn without_entry(&self, kernel: &str) -> YamlError {
        let problem = format!("the catalogue has no entry for `{kernel}`, so it gets no rows");
        let keys = ["patterns", self.name, "kernels"];
        self.source.error(&keys, kernel, &format!("pattern `{}`: {problem}", self.name), HINT)
    }

    /// Parses the pattern.
    pub(crate) fn parts(&self) -> Result<ParsedPattern, YamlError> {
        let missing = |key: &str| self.error(key, "", &format!("has no `{key}:`"), HINT);
        let axes = self.pattern.axes.as_ref().ok_or_else(|| missing("axes"))?;
        let axes = axes.0.iter().map(|(names, value)| self.axis(names, value)).collect::<Result<_, _>>()?;
        let derived = self.pattern.derived.iter().flatten().map(|(name, value)| {
            let text =
                yaml::scalar(value).ok_or_else(|| self.error("let", name, "is no expression", HINT))?;
            Ok((name.clone(), self.expr("let", &text)?))
        });
        let conditions = self.pattern.conditions.iter().flatten().map(|text| self.expr("where", text));
        let inputs = self.pattern.inputs.as_ref().ok_or_else(|| missing("inputs"))?;
        let outputs = self.pattern.outputs.as_ref().ok_or_else(|| missing("outputs"))?;
        let parts = ParsedPattern {
            axes,
            derived: derived.collect::<Result<_, YamlError>>()?,
            conditions: conditions.collect::<Result<_, _>>()?,
            inputs: self.side("inputs", inputs)?,
            outputs: self.side("outputs", outputs)?,
            attributes: self.attributes()?,
        };
        self.needed_of_models(&parts)?;
        Ok(parts)
    }

    fn expr(&self, key: &str, text: &str) -> Result<Expr, YamlError> {
        Expr::parse(text).map_err(|error| self.error(key, text, &error.to_string(), HINT))
    }

    fn axis(&self, names: &str, value: &Value) -> Result<(Vec<String>, AxisSource), YamlError> {
        let wrong = |needle: &str, why: &str, hint: &str| {
            self.error_below(&["axes", names], needle, &format!("axis `{names}` {why}"), hint)
        };
        let parts: Vec<String> = names.split(',').map(|name| name.trim().to_owned()).collect();
        let is_name = |name: &String| Expr::parse(name).is_ok_and(|expr| expr.bare_name().is_some());
        if let Some(name) = parts.iter().find(|name| !is_name(name)) {
            return Err(wrong("", &format!("has `{name}`, which is no name"), HINT));
        }
        let ladder = |name: &str| {
            self.ladders.get(name).cloned().ok_or_else(|| {
                let known = self.ladders.keys().map(String::as_str);
                let hint =
                    did_you_mean_or(name, known.clone(), || format!("the ladders are {}", listed(known)));
                wrong(name, &format!("names the ladder `{name}`, there is none"), &hint)
            })
        };
        let source = match value {
            Value::Mapping(mapping) => {
                let word = |key: &str| mapping.get(key).and_then(Value::as_str);
                let (table, beside) = (word("model"), word("ladder").filter(|_| parts.len() == 1));
                let table = table.filter(|_| mapping.len() == 1 + usize::from(beside.is_some()));
                let name = table.ok_or_else(|| wrong("", NO_AXIS, HINT))?;
                self.known_table(name).map_err(|hint| {
                    wrong(name, &format!("is of the table `{name}`, which no model has"), &hint)
                })?;
                AxisSource::Table { name: name.to_owned(), beside: beside.map(ladder).transpose()? }
            }
            Value::Sequence(items) if items.iter().any(Value::is_sequence) => {
                let values = rows(items, parts.len());
                AxisSource::Values(values.map_err(|(needle, why)| wrong(&needle, &why, HINT))?)
            }
            _ if parts.len() > 1 => {
                return Err(wrong("", &format!("needs rows of {} numbers", parts.len()), HINT));
            }
            Value::Sequence(items) => AxisSource::Values(
                ladder::values(items)
                    .map_err(|(needle, why)| wrong(&needle, &format!("has a wrong value: {why}"), HINT))?,
            ),
            Value::String(name) => AxisSource::Values(ladder(name)?),
            _ => return Err(wrong("", NO_AXIS, HINT)),
        };
        Ok((parts, source))
    }

    fn known_table(&self, table: &str) -> Result<(), String> {
        let known = self.models.all().flat_map(|model| model.tables.keys().map(String::as_str));
        let known: BTreeSet<&str> = known.collect();
        if known.contains(table) {
            return Ok(());
        }
        Err(did_you_mean_or(table, known.iter().copied(), || {
            format!("models have {}", listed(known.iter().copied()))
        }))
    }

    fn side(&self, key: &str, side: &RawSide) -> Result<Vec<Option<ParsedTensor>>, YamlError> {
        let shapes: Vec<&str> = side.shapes.split(';').map(str::trim).collect();
        let dtypes = self.each(key, "types", &side.dtypes, shapes.len())?;
        let formats = self.each(key, "formats", side.formats.as_deref().unwrap_or("ND"), shapes.len())?;
        let slots = shapes.iter().zip(dtypes.iter().zip(formats));
        slots
            .map(|(shape, (dtype, format))| {
                if *shape == "-" {
                    return Ok(None);
                }
                let dims = if shape.is_empty() { Vec::new() } else { split_outside_brackets(shape) };
                Ok(Some(ParsedTensor {
                    dims: dims.iter().map(|term| self.expr(key, term)).collect::<Result<_, _>>()?,
                    dtype: self.dtype(key, dtype)?,
                    format: self.format(key, format)?,
                }))
            })
            .collect()
    }

    /// The words of a cell for each slot: one for all, or one for each.
    fn each<'t>(
        &self,
        key: &str,
        what: &str,
        cell: &'t str,
        slots: usize,
    ) -> Result<Vec<&'t str>, YamlError> {
        let words: Vec<&str> = cell.split(';').map(str::trim).collect();
        match words.len() {
            1 => Ok(vec![words[0]; slots]),
            count if count == slots => Ok(words),
            count => {
                let problem = format!("{count} {what} for {slots} shapes");
                Err(self.error(key, cell, &problem, "give one for all slots, or one for each"))
            }
        }
    }

    fn dtype(&self, key: &str, word: &str) -> Result<Dtype, YamlError> {
        Dtype::parse(word).filter(|dtype| dtype.torch_name().is_some()).ok_or_else(|| {
            let hint = did_you_mean_or(word, Dtype::known_names(), || {
                format!("the types are {}", listed(Dtype::known_names()))
            });
            self.error(key, word, &format!("`{word}` is no type of a slot that holds something"), &hint)
        })
    }

    fn format(&self, key: &str, word: &str) -> Result<TensorFormat, YamlError> {
        TensorFormat::parse(word).filter(|known| FORMATS.contains(&known.as_str())).ok_or_else(|| {
            let hint = did_you_mean_or(word, FORMATS, || format!("the formats are {}", FORMATS.join(", ")));
            self.error(key, word, &format!("`{word}` is no format"), &hint)
        })
    }

    fn attributes(&self) -> Result<Vec<(String, AttributeTemplate)>, YamlError> {
        let mut cells = Vec::new();
        for (column, text) in self.pattern.text.iter().flatten() {
            cells.push((column.clone(), AttributeTemplate::Text(text.clone())));
        }
        for (column, value) in self.pattern.attributes.iter().flat_map(|attributes| &attributes.0) {
            let text = yaml::scalar(value);
            let text = text.ok_or_else(|| self.error("attributes", column, "is no expression", HINT))?;
            cells.push((column.clone(), AttributeTemplate::Expression(self.expr("attributes", &text)?)));
        }
        let mut seen = BTreeSet::new();
        for (column, cell) in &cells {
            let key = if matches!(cell, AttributeTemplate::Text(_)) { "text" } else { "attributes" };
            self.column(key, column)?;
            if !seen.insert(column) {
                let hint = "give a column below `text:` or below `attributes:`, not below both";
                return Err(self.error(key, column, &format!("`{column}` is given twice"), hint));
            }
        }
        Ok(cells)
    }

    /// Whether the rows of grids may have such a column.
    fn column(&self, key: &str, column: &str) -> Result<(), YamlError> {
        if CaseAttributes::is_derived_column(column) {
            let problem = format!("`{column}` is filled in with each row");
            return Err(self.error(key, column, &problem, "leave it out"));
        }
        let known: BTreeSet<String> = CaseAttributes::grid_columns().collect();
        if known.contains(column) {
            return Ok(());
        }
        // Entries may ask for more, which is seldom and takes a while to find out.
        let asked = Catalogue::load(self.assets)?.attribute_columns();
        if asked.contains(column) {
            return Ok(());
        }
        let hint = did_you_mean_or(column, known.iter().chain(&asked).map(String::as_str), || {
            format!(
                "what shapes do not carry stands in `{EP_SIZE}` and in columns `{RUNTIME}…` that an entry of the \
                 catalogue reads; docs/attention.md lists those of attention"
            )
        });
        Err(self.error(key, column, &format!("`{}` is no attribute", column.escape_debug()), &hint))
    }

    /// The names that the pattern gives itself; none may be given twice.
    fn own_names<'p>(&self, parts: &'p ParsedPattern) -> Result<BTreeSet<&'p str>, YamlError> {
        let mut own = BTreeSet::new();
        for (key, name) in parts.names() {
            if !own.insert(name) || self.constants.contains_key(name) {
                return Err(self.error(
                    key,
                    name,
                    &format!("`{name}` is given twice"),
                    "give it another name",
                ));
            }
        }
        Ok(own)
    }

    /// Names that only models can give.
    pub(crate) fn needed_of_models<'p>(
        &self,
        parts: &'p ParsedPattern,
    ) -> Result<BTreeSet<&'p str>, YamlError> {
        let own = self.own_names(parts)?;
        let known: BTreeSet<&str> =
            self.models.all().flat_map(|model| model.numbers.keys().map(String::as_str)).collect();
        let mut needed = BTreeSet::new();
        for (key, expr) in parts.expressions() {
            let names = expr.names().into_iter();
            for name in names.filter(|name| !own.contains(name) && !self.constants.contains_key(name)) {
                if !known.contains(name) {
                    let words = own.iter().chain(self.constants.keys()).chain(&known).copied();
                    let hint = did_you_mean_or(name, words, || {
                        "it is no axis, no constant, nothing in `let:`, and no model has it".to_owned()
                    });
                    let text = expr.to_string();
                    return Err(self.error(
                        key,
                        &text,
                        &format!("`{name}` in `{text}` stands for nothing"),
                        &hint,
                    ));
                }
                needed.insert(name);
            }
        }
        Ok(needed)
    }
}

/// The numbers of rows that all have the same width, one after the other; an error is the text that is wrong, and why.
fn rows(items: &[Value], width: usize) -> Result<Vec<i64>, (String, String)> {
    let mut numbers = Vec::new();
    for item in items {
        let text =
            |value: &Value| yaml::scalar(value).unwrap_or_else(|| yaml::print(value).trim().to_owned());
        let Some(row) = item.as_sequence() else {
            let text = text(item);
            return Err((text.clone(), format!("has `{text}` among rows of {width} numbers")));
        };
        let words = || row.iter().map(text).collect::<Vec<_>>().join(", ");
        if row.len() != width {
            let why = format!("has the row `[{}]` of {} for {width} names", words(), row.len());
            return Err((format!("[{}]", words()), why));
        }
        for value in row {
            let number = value.as_i64().filter(|number| *number >= 1);
            let text = text(value);
            let why = || format!("has `{text}` in the row `[{}]`, expected whole numbers from 1 on", words());
            numbers.push(number.ok_or_else(|| (text.clone(), why()))?);
        }
    }
    Ok(numbers)
}

fn listed<'a>(words: impl Iterator<Item = &'a str>) -> String {
    words.collect::<Vec<_>>().join(", ")
}
