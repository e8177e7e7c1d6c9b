//! A parsed pattern bound to a model, or to none: its axes have values, its expressions are compiled.

use super::{
    AttributeTemplate, CandidateSpace, GridAxis, ModelValues, SlotTemplate, TensorTemplate,
    pattern::{AxisSource, HINT, ParsedPattern, ParsedTensor, PatternContext},
};
use crate::{
    catalogue::{CompiledExpr, Expr, ExprError, VariableSlot},
    config::YamlError,
    domain::KernelName,
};

/// A pattern and the model that gives it values.
#[derive(Clone, Copy)]
pub(crate) struct PatternBinding<'a> {
    pub(crate) words: &'a PatternContext<'a>,
    pub(crate) parts: &'a ParsedPattern,
    pub(crate) model: Option<&'a ModelValues>,
}

impl PatternBinding<'_> {
    /// The space of a kernel.
    pub(crate) fn space(&self, kernel: &KernelName, grid: &str) -> Result<CandidateSpace, YamlError> {
        let axes = self.axes()?;
        let mut names: Vec<String> = axes.iter().flat_map(|axis| axis.names.clone()).collect();
        let derived = self.derived(&mut names)?;
        let conditions = self.parts.conditions.iter().map(|expr| self.condition(expr, &names));
        Ok(CandidateSpace {
            kernel: kernel.clone(),
            grid: grid.to_owned(),
            pattern: self.words.name.to_owned(),
            model: self.model.map(|model| model.id.clone()),
            conditions: conditions.collect::<Result<_, _>>()?,
            inputs: self.side("inputs", &self.parts.inputs, &names)?,
            outputs: self.side("outputs", &self.parts.outputs, &names)?,
            attributes: self.parts.attributes.clone(),
            constants: self.constants_of_attributes(&names),
            axes,
            derived,
            names,
        })
    }

    fn axes(&self) -> Result<Vec<GridAxis>, YamlError> {
        let axes = self.parts.axes.iter().map(|(names, source)| {
            let values = match source {
                AxisSource::Values(values) => values.clone(),
                AxisSource::Table { name, beside: None } => self.column_values(name, names.len())?,
                AxisSource::Table { name, beside: Some(beside) } => self.values_beside(name, beside),
            };
            Ok(GridAxis { names: names.clone(), values })
        });
        axes.collect()
    }

    fn column_values(&self, name: &str, width: usize) -> Result<Vec<i64>, YamlError> {
        let table = self.model.and_then(|model| model.tables.get(name));
        if let Some(table) = table.filter(|table| table.width == width) {
            return Ok(table.numbers.clone());
        }
        let has = table.map_or(0, |table| table.width);
        let problem = format!("table `{name}` has {has} columns for {width} names");
        Err(self.words.error("axes", name, &problem, HINT))
    }

    /// Values of the file with those of a model that has any, ascending.
    fn values_beside(&self, name: &str, beside: &[i64]) -> Vec<i64> {
        let table = self.model.and_then(|model| model.tables.get(name)).filter(|table| table.width == 1);
        let mut values = beside.to_vec();
        values.extend(table.iter().flat_map(|table| &table.numbers));
        values.sort_unstable();
        values.dedup();
        values
    }

    /// Puts what is derived into an order in which each can be computed; their names join the others.
    fn derived(&self, names: &mut Vec<String>) -> Result<Vec<CompiledExpr>, YamlError> {
        let mut formulas = Vec::new();
        let mut left: Vec<(&String, &Expr)> = self.parts.derived.iter().collect();
        while !left.is_empty() {
            let is_ready = |(_, expr): &&(&String, &Expr)| {
                expr.variable_names().iter().all(|name| self.place(name, names).is_some())
            };
            let Some((name, expr)) = left.iter().find(is_ready).copied() else {
                let problem = format!("`{}` needs itself", left[0].0);
                let hint = "derive it from axes and constants";
                return Err(self.words.error("let", left[0].0, &problem, hint));
            };
            formulas.push(self.number("let", expr, names)?);
            names.push(name.clone());
            left.retain(|(other, _)| *other != name);
        }
        Ok(formulas)
    }

    fn side(
        &self,
        key: &str,
        slots: &[Option<ParsedTensor>],
        names: &[String],
    ) -> Result<Vec<SlotTemplate>, YamlError> {
        let slots = slots.iter().map(|slot| {
            let Some(ParsedTensor { dims, dtype, format }) = slot else { return Ok(None) };
            let dims = dims.iter().map(|expr| self.number(key, expr, names)).collect::<Result<_, _>>()?;
            Ok(Some(TensorTemplate { dims, dtype: dtype.clone(), format: format.clone() }))
        });
        slots.collect()
    }

    /// What attributes are computed from besides the numbers of a candidate.
    fn constants_of_attributes(&self, names: &[String]) -> Vec<(String, i64)> {
        let expressions = self.parts.attributes.iter().filter_map(|(_, cell)| match cell {
            AttributeTemplate::Expression(expr) => Some(expr),
            AttributeTemplate::Text(_) => None,
        });
        let constants =
            expressions.flat_map(Expr::variable_names).filter_map(|name| match self.place(name, names) {
                Some(VariableSlot::Is(number)) => Some((name.to_owned(), number)),
                _ => None,
            });
        constants.collect()
    }

    fn place(&self, name: &str, names: &[String]) -> Option<VariableSlot> {
        let at = names.iter().position(|known| known == name).map(VariableSlot::At);
        let constant = || self.words.constants.get(name).copied();
        let of_model = || self.model.and_then(|model| model.numbers.get(name)).copied();
        at.or_else(|| constant().or_else(of_model).map(VariableSlot::Is))
    }

    fn compile(&self, key: &str, expr: &Expr, names: &[String]) -> Result<CompiledExpr, YamlError> {
        CompiledExpr::compile(expr, &|name| self.place(name, names)).map_err(|error| {
            let problem = match error {
                ExprError::Unknown(name) => format!("`{name}` in `{expr}` stands for nothing"),
                error => error.to_string(),
            };
            self.words.error(key, &expr.to_string(), &problem, HINT)
        })
    }

    fn number(&self, key: &str, expr: &Expr, names: &[String]) -> Result<CompiledExpr, YamlError> {
        let formula = self.compile(key, expr, names)?;
        if formula.is_comparison() {
            let problem = format!("`{expr}` is a comparison, expected a number");
            return Err(self.words.error(key, formula.source(), &problem, HINT));
        }
        Ok(formula)
    }

    fn condition(&self, expr: &Expr, names: &[String]) -> Result<CompiledExpr, YamlError> {
        let formula = self.compile("where", expr, names)?;
        if formula.is_comparison() {
            return Ok(formula);
        }
        let problem = format!("`{expr}` is a number, expected a comparison");
        Err(self.words.error("where", formula.source(), &problem, HINT))
    }
}
