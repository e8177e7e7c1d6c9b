//! From what a grid file says to spaces: names resolved, expressions compiled, everything checked.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use serde_yaml::Value;

use super::{
    Axis, Cell, ModelValues, Models, SlotTemplate, Space, TensorTemplate, ladder,
    ladder::nearest,
    place::Source,
    raw::{File, Pattern, Side},
};
use crate::{
    model::{Dtype, EP_SIZE, Format, KernelName, RUNTIME},
    spec::{Expr, Formula, FormulaError, Place, SpecError, yaml, yaml::split_outside_brackets},
};

/// Values by the names of their ladders.
pub(super) type Ladders = BTreeMap<String, Vec<i64>>;

/// What all files share.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    pub(super) ladders: &'a Ladders,
    pub(super) models: &'a Models,
}

const HINT: &str = "docs/grids.md explains every key";

/// The ladders of a file.
pub(super) fn ladders(file: &Path, text: &str) -> Result<Ladders, SpecError> {
    let raw: File = yaml::parse_with_column(file, text)?;
    own_ladders(&raw, Source { file, text })
}

fn own_ladders(raw: &File, source: Source<'_>) -> Result<Ladders, SpecError> {
    let ladders = raw.ladders.iter().map(|(name, items)| {
        let values = ladder::values(items).map_err(|(needle, why)| {
            source.error(&["ladders", name], &needle, format!("ladder `{name}`: {why}"), HINT)
        })?;
        Ok((name.clone(), values))
    });
    ladders.collect()
}

/// All spaces of a file.
pub(super) fn spaces(
    name: &str,
    file: &Path,
    text: &str,
    context: &Context<'_>,
) -> Result<Vec<Space>, SpecError> {
    let raw: File = yaml::parse_with_column(file, text)?;
    let source = Source { file, text };
    let mut ladders = own_ladders(&raw, source)?;
    if let Some(twice) = ladders.keys().find(|name| context.ladders.contains_key(*name)) {
        let problem = format!("ladder `{twice}` is among the shared ones already");
        return Err(source.error(&["ladders"], twice, problem, "give it a name of its own"));
    }
    ladders.extend(context.ladders.clone());
    let mut spaces = Vec::new();
    for (pattern_name, pattern) in &raw.patterns.0 {
        if let Some(other) = pattern.overrides.keys().find(|kernel| !pattern.kernels.contains(kernel)) {
            let near = nearest(other, pattern.kernels.iter().map(String::as_str));
            let hint = near.map_or(HINT.to_owned(), |near| format!("did you mean `{near}`?"));
            let problem = format!("`{other}` is none of the pattern's kernels");
            return Err(source.error(&["patterns", pattern_name, "overrides"], other, problem, &hint));
        }
        let with_models = pattern.with_models.as_ref().map(|other| pattern.clone().with(other));
        let (used, unused) = match with_models {
            Some(with_models) if context.models.chosen.is_some() => (with_models, Some(pattern.clone())),
            with_models => (pattern.clone(), with_models),
        };
        for kernel in &pattern.kernels {
            let own = pattern.overrides.get(kernel);
            let builder = |meant: &Pattern| Builder {
                source,
                grid: name,
                name: pattern_name,
                pattern: own.map_or_else(|| meant.clone(), |own| meant.clone().with(own)),
                ladders: &ladders,
                constants: raw.constants.iter().chain(&pattern.constants).collect(),
                models: context.models,
            };
            // What is wrong is said whether models are chosen or not.
            unused.as_ref().map(|unused| builder(unused).parts().map(drop)).transpose()?;
            spaces.extend(builder(&used).spaces(kernel)?);
        }
    }
    Ok(spaces)
}

/// One pattern for one kernel.
struct Builder<'a> {
    source: Source<'a>,
    grid: &'a str,
    name: &'a str,
    pattern: Pattern,
    ladders: &'a Ladders,
    constants: BTreeMap<&'a String, &'a i64>,
    models: &'a Models,
}

/// Where the values of an axis are from.
enum AxisSource {
    Values(Vec<i64>),
    Table(String),
}

/// A pattern, parsed and not yet bound to a model.
struct Parts {
    axes: Vec<(Vec<String>, AxisSource)>,
    derived: BTreeMap<String, Expr>,
    conditions: Vec<Expr>,
    inputs: Vec<Option<ParsedTensor>>,
    outputs: Vec<Option<ParsedTensor>>,
    attributes: Vec<(String, Cell)>,
}

struct ParsedTensor {
    dims: Vec<Expr>,
    dtype: Dtype,
    format: Format,
}

impl Builder<'_> {
    fn error(&self, key: &str, needle: &str, problem: &str, hint: &str) -> SpecError {
        let keys = ["patterns", self.name, key];
        self.source.error(&keys, needle, format!("pattern `{}`: {problem}", self.name), hint)
    }

    fn spaces(&self, kernel: &str) -> Result<Vec<Space>, SpecError> {
        let kernel = KernelName::new(kernel)
            .map_err(|error| self.error("kernels", kernel, &error.to_string(), HINT))?;
        let parts = self.parts()?;
        let needed = self.needed_of_models(&parts, &self.own_names(&parts)?)?;
        let tables: Vec<&String> = parts
            .axes
            .iter()
            .filter_map(|(_, source)| match source {
                AxisSource::Table(table) => Some(table),
                AxisSource::Values(_) => None,
            })
            .collect();
        if needed.is_empty() && tables.is_empty() {
            return Ok(vec![self.space(&kernel, &parts, None)?]);
        }
        let has_all = |model: &&ModelValues| {
            needed.iter().all(|name| model.numbers.contains_key(*name))
                && tables.iter().all(|table| model.tables.contains_key(*table))
        };
        self.models
            .used()
            .iter()
            .filter(has_all)
            .map(|model| self.space(&kernel, &parts, Some(model)))
            .collect()
    }

    fn parts(&self) -> Result<Parts, SpecError> {
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
        let parts = Parts {
            axes,
            derived: derived.collect::<Result<_, SpecError>>()?,
            conditions: conditions.collect::<Result<_, _>>()?,
            inputs: self.side("inputs", inputs)?,
            outputs: self.side("outputs", outputs)?,
            attributes: self.attributes()?,
        };
        self.needed_of_models(&parts, &self.own_names(&parts)?)?;
        Ok(parts)
    }

    fn expr(&self, key: &str, text: &str) -> Result<Expr, SpecError> {
        Expr::parse(text).map_err(|error| self.error(key, text, &error.to_string(), HINT))
    }

    fn axis(&self, names: &str, value: &Value) -> Result<(Vec<String>, AxisSource), SpecError> {
        let wrong = |needle: &str, why: &str, hint: &str| {
            let keys = ["patterns", self.name, "axes", names];
            self.source.error(&keys, needle, format!("pattern `{}`: axis `{names}` {why}", self.name), hint)
        };
        let parts: Vec<String> = names.split(',').map(|name| name.trim().to_owned()).collect();
        if let Some(name) =
            parts.iter().find(|name| Expr::parse(name).map_or(true, |e| e.bare_name().is_none()))
        {
            return Err(wrong("", &format!("has `{name}`, which is no name"), HINT));
        }
        let source = match value {
            Value::String(name) => match self.ladders.get(name) {
                Some(values) => AxisSource::Values(values.clone()),
                None => {
                    let near = nearest(name, self.ladders.keys().map(String::as_str));
                    let hint = near.map_or_else(
                        || format!("the ladders are {}", joined(self.ladders.keys())),
                        |near| format!("did you mean `{near}`?"),
                    );
                    return Err(wrong(name, &format!("names the ladder `{name}`, there is none"), &hint));
                }
            },
            Value::Sequence(items) if items.iter().any(Value::is_sequence) => {
                let rows = items.iter().map(|row| {
                    let numbers = row.as_sequence().map(|row| row.iter().filter_map(Value::as_i64));
                    let numbers: Vec<i64> = numbers.into_iter().flatten().filter(|n| *n >= 1).collect();
                    (numbers.len() == parts.len()).then_some(numbers)
                });
                let rows: Option<Vec<Vec<i64>>> = rows.collect();
                let why = format!("needs rows of {} whole numbers from 1 on", parts.len());
                AxisSource::Values(rows.ok_or_else(|| wrong("", &why, HINT))?.concat())
            }
            Value::Sequence(items) => AxisSource::Values(
                ladder::values(items)
                    .map_err(|(needle, why)| wrong(&needle, &format!("has a wrong value: {why}"), HINT))?,
            ),
            Value::Mapping(mapping) => {
                let table = mapping.get("model").and_then(Value::as_str).filter(|_| mapping.len() == 1);
                let why = "is no ladder, no list and no `{model: TABLE}`";
                let table = table.ok_or_else(|| wrong("", why, HINT))?;
                self.known_table(table).map_err(|hint| {
                    wrong(table, &format!("is of the table `{table}`, which no model has"), &hint)
                })?;
                AxisSource::Table(table.to_owned())
            }
            _ => return Err(wrong("", "is no ladder, no list and no `{model: TABLE}`", HINT)),
        };
        let is_list = !matches!(value, Value::Sequence(items) if items.iter().any(Value::is_sequence));
        if parts.len() > 1 && is_list && matches!(source, AxisSource::Values(_)) {
            return Err(wrong("", &format!("needs rows of {} numbers", parts.len()), HINT));
        }
        Ok((parts, source))
    }

    fn known_table(&self, table: &str) -> Result<(), String> {
        let known: BTreeSet<&String> = self.models.all().flat_map(|model| model.tables.keys()).collect();
        if known.contains(&table.to_owned()) {
            return Ok(());
        }
        let near = nearest(table, known.iter().map(|name| name.as_str()));
        Err(near.map_or_else(
            || format!("models have {}", joined(known)),
            |near| format!("did you mean `{near}`?"),
        ))
    }

    fn side(&self, key: &str, side: &Side) -> Result<Vec<Option<ParsedTensor>>, SpecError> {
        let shapes: Vec<&str> = side.shapes.split(';').map(str::trim).collect();
        let each = |what: &str, cell: &str| {
            let words: Vec<String> = cell.split(';').map(|word| word.trim().to_owned()).collect();
            match words.len() {
                1 => Ok(vec![words[0].clone(); shapes.len()]),
                count if count == shapes.len() => Ok(words),
                count => {
                    let problem = format!("{count} {what} for {} shapes", shapes.len());
                    Err(self.error(key, cell, &problem, "give one for all slots, or one for each"))
                }
            }
        };
        let dtypes = each("types", &side.dtypes)?;
        let formats = each("formats", side.formats.as_deref().unwrap_or("ND"))?;
        let mut slots = Vec::with_capacity(shapes.len());
        for ((shape, dtype), format) in shapes.iter().zip(&dtypes).zip(&formats) {
            if *shape == "-" {
                slots.push(None);
                continue;
            }
            let dims = if shape.is_empty() { Vec::new() } else { split_outside_brackets(shape) };
            let dims = dims.iter().map(|term| self.expr(key, term)).collect::<Result<_, _>>()?;
            let known = Dtype::parse(dtype).filter(|dtype| dtype.torch_name().is_some());
            let Some(known) = known else {
                let hint = nearest(dtype, Dtype::names()).map_or_else(
                    || format!("the types are {}", Dtype::names().collect::<Vec<_>>().join(", ")),
                    |near| format!("did you mean `{near}`?"),
                );
                return Err(self.error(
                    key,
                    dtype,
                    &format!("`{dtype}` is no type of a slot that holds something"),
                    &hint,
                ));
            };
            const FORMATS: [&str; 6] = ["ND", "NCL", "NCHW", "NCDHW", "NHWC", "FRACTAL_NZ"];
            let Some(format) = Format::parse(format).filter(|known| FORMATS.contains(&known.as_str())) else {
                let hint = nearest(format, FORMATS.into_iter()).map_or_else(
                    || format!("the formats are {}", FORMATS.join(", ")),
                    |near| format!("did you mean `{near}`?"),
                );
                return Err(self.error(key, format, &format!("`{format}` is no format"), &hint));
            };
            slots.push(Some(ParsedTensor { dims, dtype: known, format }));
        }
        Ok(slots)
    }

    fn attributes(&self) -> Result<Vec<(String, Cell)>, SpecError> {
        let mut cells = Vec::new();
        for (column, text) in self.pattern.text.iter().flatten() {
            cells.push((column.clone(), Cell::Text(text.clone())));
        }
        for (column, value) in self.pattern.attributes.iter().flat_map(|attributes| &attributes.0) {
            let text = yaml::scalar(value);
            let text = text.ok_or_else(|| self.error("attributes", column, "is no expression", HINT))?;
            cells.push((column.clone(), Cell::Expression(self.expr("attributes", &text)?)));
        }
        let is_column =
            |name: &str| name == EP_SIZE || name.strip_prefix(RUNTIME).is_some_and(|n| !n.is_empty());
        if let Some((column, _)) = cells.iter().find(|(column, _)| !is_column(column)) {
            let hint = format!("what shapes do not carry stands in `{EP_SIZE}` and in columns `{RUNTIME}…`");
            return Err(self.error("attributes", column, &format!("`{column}` is no attribute"), &hint));
        }
        Ok(cells)
    }

    /// The names that the pattern gives itself; none may be given twice.
    fn own_names<'p>(&self, parts: &'p Parts) -> Result<BTreeSet<&'p str>, SpecError>
    where
        Self: 'p,
    {
        let mut own = BTreeSet::new();
        let axes = parts.axes.iter().flat_map(|(names, _)| names);
        for (key, name) in
            axes.map(|name| ("axes", name)).chain(parts.derived.keys().map(|name| ("let", name)))
        {
            if !own.insert(name.as_str()) || self.constants.contains_key(name) {
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
    fn needed_of_models<'p>(
        &self,
        parts: &'p Parts,
        own: &BTreeSet<&str>,
    ) -> Result<BTreeSet<&'p str>, SpecError> {
        let known: BTreeSet<&str> =
            self.models.all().flat_map(|model| model.numbers.keys().map(String::as_str)).collect();
        let slots = |slots: &'p [Option<ParsedTensor>]| slots.iter().flatten().flat_map(|slot| &slot.dims);
        let cells = parts.attributes.iter().filter_map(|(_, cell)| match cell {
            Cell::Expression(expr) => Some(expr),
            Cell::Text(_) => None,
        });
        let all = (parts.derived.values().map(|expr| ("let", expr)))
            .chain(parts.conditions.iter().map(|expr| ("where", expr)))
            .chain(slots(&parts.inputs).map(|expr| ("inputs", expr)))
            .chain(slots(&parts.outputs).map(|expr| ("outputs", expr)))
            .chain(cells.map(|expr| ("attributes", expr)));
        let mut needed = BTreeSet::new();
        for (key, expr) in all {
            for name in expr.names() {
                if own.contains(name) || self.constants.contains_key(&name.to_owned()) {
                    continue;
                }
                if !known.contains(name) {
                    let words = own.iter().copied().chain(self.constants.keys().map(|name| name.as_str()));
                    let near = nearest(name, words.chain(known.iter().copied()));
                    let hint = near.map_or_else(
                        || "it is no axis, no constant, nothing in `let:`, and no model has it".to_owned(),
                        |near| format!("did you mean `{near}`?"),
                    );
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

    fn space(
        &self,
        kernel: &KernelName,
        parts: &Parts,
        model: Option<&ModelValues>,
    ) -> Result<Space, SpecError> {
        let mut axes = Vec::with_capacity(parts.axes.len());
        for (names, source) in &parts.axes {
            let values = match source {
                AxisSource::Values(values) => values.clone(),
                AxisSource::Table(name) => {
                    let table = model.and_then(|model| model.tables.get(name));
                    match table {
                        Some(table) if table.width == names.len() => table.numbers.clone(),
                        table => {
                            let width = table.map_or(0, |table| table.width);
                            let problem =
                                format!("table `{name}` has {width} columns for {} names", names.len());
                            return Err(self.error("axes", name, &problem, HINT));
                        }
                    }
                }
            };
            axes.push(Axis { names: names.clone(), values });
        }
        let mut names: Vec<String> = axes.iter().flat_map(|axis| axis.names.clone()).collect();
        let derived = self.derived(parts, model, &mut names)?;
        let place = |name: &str| self.place(name, model, &names);
        let compile = |key: &str, expr: &Expr| self.compile(key, expr, &place);
        let conditions = parts.conditions.iter().map(|expr| {
            let formula = compile("where", expr)?;
            if formula.is_truth() {
                return Ok(formula);
            }
            let problem = format!("`{expr}` is a number, expected a comparison");
            Err(self.error("where", formula.source(), &problem, HINT))
        });
        let conditions = conditions.collect::<Result<_, SpecError>>()?;
        let side = |key: &str, slots: &[Option<ParsedTensor>]| -> Result<Vec<SlotTemplate>, SpecError> {
            let slots = slots.iter().map(|slot| {
                let Some(ParsedTensor { dims, dtype, format }) = slot else { return Ok(None) };
                let dims = dims.iter().map(|expr| self.number(key, compile(key, expr)?));
                let dims = dims.collect::<Result<_, SpecError>>()?;
                Ok(Some(TensorTemplate { dims, dtype: dtype.clone(), format: format.clone() }))
            });
            slots.collect()
        };
        let constants = parts.attributes.iter().flat_map(|(_, cell)| match cell {
            Cell::Expression(expr) => expr.names(),
            Cell::Text(_) => BTreeSet::new(),
        });
        let constants = constants.filter_map(|name| match place(name) {
            Some(Place::Is(number)) => Some((name.to_owned(), number)),
            _ => None,
        });
        Ok(Space {
            constants: constants.collect(),
            kernel: kernel.clone(),
            grid: self.grid.to_owned(),
            pattern: self.name.to_owned(),
            model: model.map(|model| model.id.clone()),
            axes,
            inputs: side("inputs", &parts.inputs)?,
            outputs: side("outputs", &parts.outputs)?,
            attributes: parts.attributes.clone(),
            derived,
            conditions,
            names,
        })
    }

    /// Puts what is derived into an order in which each can be computed; their names join the others.
    fn derived(
        &self,
        parts: &Parts,
        model: Option<&ModelValues>,
        names: &mut Vec<String>,
    ) -> Result<Vec<Formula>, SpecError> {
        let mut formulas = Vec::new();
        let mut left: Vec<(&String, &Expr)> = parts.derived.iter().collect();
        while !left.is_empty() {
            let is_ready = |(_, expr): &&(&String, &Expr)| {
                expr.names().iter().all(|name| self.place(name, model, names).is_some())
            };
            let Some((name, expr)) = left.iter().find(is_ready).copied() else {
                let problem = format!("`{}` needs itself", left[0].0);
                return Err(self.error("let", left[0].0, &problem, "derive it from axes and constants"));
            };
            let formula = self.compile("let", expr, &|name| self.place(name, model, names))?;
            formulas.push(self.number("let", formula)?);
            names.push(name.clone());
            left.retain(|(other, _)| *other != name);
        }
        Ok(formulas)
    }

    fn place(&self, name: &str, model: Option<&ModelValues>, names: &[String]) -> Option<Place> {
        let at = names.iter().position(|known| known == name).map(Place::At);
        let constant = || self.constants.get(&name.to_owned()).map(|number| Place::Is(**number));
        let of_model = || model.and_then(|model| model.numbers.get(name)).map(|number| Place::Is(*number));
        at.or_else(constant).or_else(of_model)
    }

    fn compile(
        &self,
        key: &str,
        expr: &Expr,
        place: &dyn Fn(&str) -> Option<Place>,
    ) -> Result<Formula, SpecError> {
        Formula::compile(expr, place).map_err(|error| {
            let problem = match error {
                FormulaError::Unknown(name) => format!("`{name}` in `{expr}` stands for nothing"),
                FormulaError::NotNumeric(what) => {
                    format!("`{expr}`: {what} has no place in a grid's numbers")
                }
            };
            self.error(key, &expr.to_string(), &problem, HINT)
        })
    }

    fn number(&self, key: &str, formula: Formula) -> Result<Formula, SpecError> {
        if formula.is_truth() {
            let problem = format!("`{}` is a comparison, expected a number", formula.source());
            return Err(self.error(key, formula.source(), &problem, HINT));
        }
        Ok(formula)
    }
}

fn joined<'a>(words: impl IntoIterator<Item = &'a String>) -> String {
    words.into_iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}
