//! A parsed pattern bound to a model, or used without one: its axes get values, its expressions are compiled.

use super::{
    AttributeTemplate, CandidateSpace, GridAxis, ModelValues, SlotTemplate, TensorTemplate,
    pattern::{AxisSource, HINT, ParsedAxis, ParsedPattern, ParsedTensor, PatternContext},
};
use crate::{
    base::yaml::{Spanned, YamlError},
    kernel::{
        KernelName,
        expression::{CompiledExpr, Expr, ExprError, VariableSlot},
    },
};

/// A pattern and the model that gives it values.
#[derive(Clone, Copy)]
pub(crate) struct PatternBinding<'a> {
    pub(crate) context: &'a PatternContext<'a>,
    pub(crate) pattern: &'a ParsedPattern,
    pub(crate) model: Option<&'a ModelValues>,
}

impl PatternBinding<'_> {
    pub(crate) fn bind(&self, kernel: &KernelName, grid: &str) -> Result<CandidateSpace, YamlError> {
        let axes = self.pattern.axes.iter().map(|axis| self.bind_axis(axis));
        let axes = axes.collect::<Result<Vec<_>, _>>()?;
        let mut names: Vec<String> = axes.iter().flat_map(|axis| axis.names.clone()).collect();
        let derived = self.order_derived(&mut names)?;
        let conditions = self.pattern.conditions.iter().map(|expr| self.compile(expr, &names, true));
        let attributes = self.pattern.attributes.iter();
        Ok(CandidateSpace {
            kernel: kernel.clone(),
            grid: grid.to_owned(),
            pattern: self.context.name.value.clone(),
            model: self.model.map(|model| model.id.clone()),
            conditions: conditions.collect::<Result<_, _>>()?,
            inputs: self.compile_side(&self.pattern.inputs, &names)?,
            outputs: self.compile_side(&self.pattern.outputs, &names)?,
            attributes: attributes.map(|(column, cell)| (column.clone(), cell.value.clone())).collect(),
            constants: self.constants_of_attributes(&names),
            axes,
            derived,
            names,
        })
    }

    fn bind_axis(&self, axis: &ParsedAxis) -> Result<GridAxis, YamlError> {
        let values = match &axis.source {
            AxisSource::Values(values) => values.clone(),
            AxisSource::Table { name, beside: None } => self.column_values(name, axis)?,
            AxisSource::Table { name, beside: Some(beside) } => self.values_beside(name, beside),
        };
        Ok(GridAxis { names: axis.names.clone(), values })
    }

    fn column_values(&self, name: &str, axis: &ParsedAxis) -> Result<Vec<i64>, YamlError> {
        let (table, width) = (self.model.and_then(|model| model.tables.get(name)), axis.names.len());
        if let Some(table) = table.filter(|table| table.width == width) {
            return Ok(table.numbers.clone());
        }
        let has = table.map_or(0, |table| table.width);
        let problem = format!("table `{name}` has {has} columns for {width} names");
        Err(self.context.error(axis.position, &problem, HINT))
    }

    /// Returns the values of the file and those of the model's table, if it has it, in ascending order.
    fn values_beside(&self, name: &str, beside: &[i64]) -> Vec<i64> {
        let table = self.model.and_then(|model| model.tables.get(name)).filter(|table| table.width == 1);
        let mut values = beside.to_vec();
        values.extend(table.iter().flat_map(|table| &table.numbers));
        values.sort_unstable();
        values.dedup();
        values
    }

    /// Compiles derived names in an order in which each can be computed, and appends them to `names`.
    fn order_derived(&self, names: &mut Vec<String>) -> Result<Vec<CompiledExpr>, YamlError> {
        let mut compiled = Vec::new();
        let mut left: Vec<(&String, &Spanned<Expr>)> = self.pattern.derived.iter().collect();
        while !left.is_empty() {
            let is_ready = |(_, expr): &&(&String, &Spanned<Expr>)| {
                expr.value.variable_names().iter().all(|name| self.find_variable(name, names).is_some())
            };
            let Some((name, expr)) = left.iter().find(is_ready).copied() else {
                let (name, expr) = left[0];
                let problem = format!("`{name}` depends on itself");
                return Err(self.context.error(expr.defined, &problem, "derive it from axes and constants"));
            };
            compiled.push(self.compile(expr, names, false)?);
            names.push(name.clone());
            left.retain(|(other, _)| *other != name);
        }
        Ok(compiled)
    }

    fn compile_side(
        &self,
        slots: &[Option<ParsedTensor>],
        names: &[String],
    ) -> Result<Vec<SlotTemplate>, YamlError> {
        let slots = slots.iter().map(|slot| {
            let Some(ParsedTensor { dims, dtype, format }) = slot else { return Ok(None) };
            let dims = dims.iter().map(|expr| self.compile(expr, names, false)).collect::<Result<_, _>>()?;
            Ok(Some(TensorTemplate { dims, dtype: dtype.clone(), format: format.clone() }))
        });
        slots.collect()
    }

    fn constants_of_attributes(&self, names: &[String]) -> Vec<(String, i64)> {
        let expressions = self.pattern.attributes.iter().filter_map(|(_, cell)| match &cell.value {
            AttributeTemplate::Expression(expr) => Some(expr),
            AttributeTemplate::Text(_) => None,
        });
        let constants = expressions.flat_map(Expr::variable_names).filter_map(|name| {
            match self.find_variable(name, names) {
                Some(VariableSlot::Is(number)) => Some((name.to_owned(), number)),
                _ => None,
            }
        });
        constants.collect()
    }

    fn find_variable(&self, name: &str, names: &[String]) -> Option<VariableSlot> {
        let at = names.iter().position(|known| known == name).map(VariableSlot::At);
        let constant = || self.context.constants.get(name).copied();
        let of_model = || self.model.and_then(|model| model.numbers.get(name)).copied();
        at.or_else(|| constant().or_else(of_model).map(VariableSlot::Is))
    }

    /// Compiles an expression that must be a comparison, or else a number.
    fn compile(
        &self,
        expr: &Spanned<Expr>,
        names: &[String],
        is_comparison: bool,
    ) -> Result<CompiledExpr, YamlError> {
        let compiled = CompiledExpr::compile(&expr.value, &|name| self.find_variable(name, names));
        let problem = match compiled {
            Ok(compiled) if compiled.is_comparison == is_comparison => return Ok(compiled),
            Ok(_) if is_comparison => format!("`{}` is a number, expected a comparison", expr.value),
            Ok(_) => format!("`{}` is a comparison, expected a number", expr.value),
            Err(ExprError::Unknown(name)) => format!("`{name}` in `{}` is not defined", expr.value),
            Err(error) => error.to_string(),
        };
        Err(self.context.error(expr.defined, &problem, HINT))
    }
}
