//! Names of filters: what they stand for, the units of their values, and the check of a filter against them.

use std::collections::BTreeSet;

use super::{text_of, word};
use crate::{
    base::suggest::{did_you_mean_one_of, did_you_mean_or},
    kernel::{
        CaseAttributes, Cause, Dtype, Verdict,
        catalogue::CatalogueEntry,
        expression::{BinaryOperator, Expr, ExprKind, ExprNode, SyntaxError},
    },
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FilterType {
    Text,
    CaseId,
    Dtype,
    Verdict,
    Cause,
    Number,
    /// A time in microseconds; other units are given with the number.
    Duration,
    /// A time in seconds, given with a unit.
    Age,
    /// A percentage, with or without `%`.
    Percentage,
    /// A cell of a table or a dimension: a number or a text.
    Cell,
}

impl FilterType {
    const fn is_text(self) -> bool {
        matches!(self, Self::Text | Self::CaseId | Self::Dtype | Self::Verdict | Self::Cause)
    }
}

/// Names that every case has, with the kind of their values and their meaning.
pub(super) const FIXED_NAMES: [(&str, FilterType, &str); 19] = [
    ("kernel", FilterType::Text, "name of the kernel"),
    ("case", FilterType::CaseId, "id of the case, or its first digits"),
    ("shape", FilterType::Text, "shapes of inputs and outputs, such as `64,1024;1024,512 -> 64,512`"),
    ("dim", FilterType::Number, "any dimension of any tensor"),
    ("dtype", FilterType::Dtype, "type of any tensor, in any spelling"),
    ("format", FilterType::Text, "format of any tensor, such as ND or FRACTAL_NZ"),
    ("bytes", FilterType::Number, "memory of all tensors in bytes"),
    ("verdict", FilterType::Verdict, "verdict of the row, or of the run for `show`"),
    ("reason", FilterType::Text, "reason of the verdict"),
    ("cause", FilterType::Cause, "name of its cause, such as `oom`, which does not change with the wording"),
    ("run", FilterType::Text, "id of the run that measured the row"),
    ("age", FilterType::Age, "time since the start of that run"),
    ("host", FilterType::Text, "host of that run"),
    ("device", FilterType::Number, "devices that measured the case"),
    ("median", FilterType::Duration, "median"),
    ("mean", FilterType::Duration, "mean"),
    ("production", FilterType::Duration, "median in production profiles"),
    ("deviation", FilterType::Percentage, "median against production: 5 is 5 % slower, -5 is faster"),
    ("collections", FilterType::Number, "number of collections"),
];

const DURATION_UNITS: [(&str, f64); 5] = [("ns", 1e-3), ("us", 1.0), ("µs", 1.0), ("ms", 1e3), ("s", 1e6)];
const AGE_UNITS: [(&str, f64); 5] =
    [("s", 1.0), ("min", 60.0), ("h", 3600.0), ("d", 86_400.0), ("w", 604_800.0)];

pub(super) fn type_of_name(name: &str) -> FilterType {
    let fixed = FIXED_NAMES.iter().find(|(fixed, ..)| *fixed == name);
    fixed.map_or(FilterType::Cell, |(_, of, _)| *of)
}

/// Parses a number in the unit of its kind. `None` for a text, and for numbers that are not finite.
pub(super) fn parse_number(of: FilterType, text: &str) -> Option<f64> {
    let parse = |text: &str| text.trim().parse::<f64>().ok().filter(|number| number.is_finite());
    let with_unit = |units: &[(&str, f64)]| {
        // The longest unit: `5ms` ends with `s`, too.
        let units = units.iter().filter(|(unit, _)| text.ends_with(unit));
        let (unit, factor) = units.max_by_key(|(unit, _)| unit.len())?;
        parse(text.strip_suffix(unit)?).map(|number| number * factor)
    };
    match of {
        FilterType::Number | FilterType::Cell => parse(text),
        FilterType::Percentage => parse(text.strip_suffix('%').unwrap_or(text)),
        FilterType::Duration => parse(text).or_else(|| with_unit(&DURATION_UNITS)),
        FilterType::Age => with_unit(&AGE_UNITS),
        _ => None,
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct FilterNames(BTreeSet<String>);

impl FilterNames {
    pub(crate) fn add_columns<'a>(&mut self, columns: impl IntoIterator<Item = &'a str>) {
        for column in columns {
            self.0.insert(column.to_owned());
            if let Some(name) = CaseAttributes::name_of(column) {
                self.0.insert(CaseAttributes::variable_name(&name));
            }
        }
    }

    pub(crate) fn add_dimensions(&mut self, entry: &CatalogueEntry) {
        self.0.extend(entry.bindable_names().into_iter().map(str::to_ascii_lowercase));
    }

    pub(super) fn check(&self, expr: &Expr) -> Result<(), SyntaxError> {
        FilterCheck { names: self, expr }.check_condition(&expr.root)
    }
}

struct FilterCheck<'a> {
    names: &'a FilterNames,
    expr: &'a Expr,
}

impl FilterCheck<'_> {
    fn check_condition(&self, node: &ExprNode) -> Result<(), SyntaxError> {
        match &node.kind {
            ExprKind::Not(inner) => self.check_condition(inner),
            ExprKind::Binary(BinaryOperator::And | BinaryOperator::Or, left, right) => {
                self.check_condition(left)?;
                self.check_condition(right)
            }
            ExprKind::Has(name) => self.check_name(name),
            ExprKind::Binary(operator, left, right) if is_comparison(*operator) => {
                if let Some(name) = word(left) {
                    self.check_name(left)?;
                    return self.check_comparison(name, *operator, right);
                }
                if !operator.compares() {
                    let problem = "expected a name in front of `~`";
                    return Err(self.expr.syntax_error(left, problem, "such as `kernel`"));
                }
                self.check_number(left)?;
                self.check_number(right)
            }
            ExprKind::Call(..) => self.check_number(node),
            _ => {
                let text = text_of(self.expr, node);
                let hint = format!("compare it, such as `{text} = VALUE`, or write `has {text}`");
                let end = ExprNode { place: node.place.end..node.place.end, ..node.clone() };
                Err(self.expr.syntax_error(&end, "expected an operator (= != < <= > >= ~ !~)", &hint))
            }
        }
    }

    fn check_name(&self, node: &ExprNode) -> Result<(), SyntaxError> {
        let name = word(node).unwrap_or_default();
        if self.is_known(name) {
            return Ok(());
        }
        let fixed = FIXED_NAMES.iter().map(|(fixed, ..)| *fixed);
        let known = fixed.clone().chain(self.names.0.iter().map(String::as_str));
        let hint = did_you_mean_or(name, known, || {
            let fixed = fixed.clone().collect::<Vec<_>>().join(", ");
            format!(
                "names are {fixed}, dimensions such as m, attributes and columns in quotes (docs/filters.md)"
            )
        });
        Err(self.expr.syntax_error(node, format!("no case has a name `{name}`"), &hint))
    }

    fn is_known(&self, name: &str) -> bool {
        let names = &self.names.0;
        type_of_name(name) != FilterType::Cell
            || names.contains(name)
            || names.contains(&name.to_ascii_lowercase())
    }

    fn check_number(&self, node: &ExprNode) -> Result<(), SyntaxError> {
        const HINT: &str = "compute with dimensions, attributes and whole numbers";
        match &node.kind {
            ExprKind::Name(name) => {
                self.check_name(node)?;
                match type_of_name(name) {
                    FilterType::Number | FilterType::Cell => Ok(()),
                    _ => Err(self.expr.syntax_error(node, format!("`{name}` is no whole number"), HINT)),
                }
            }
            ExprKind::Text(text) => {
                Err(self.expr.syntax_error(node, format!("`{text}` is no whole number"), HINT))
            }
            ExprKind::Binary(BinaryOperator::Contains | BinaryOperator::ContainsNot, ..)
            | ExprKind::Has(_) => Err(self.expr.syntax_error(node, "expected a number", HINT)),
            _ => node.children().into_iter().try_for_each(|child| self.check_number(child)),
        }
    }

    fn check_comparison(
        &self,
        name: &str,
        operator: BinaryOperator,
        value: &ExprNode,
    ) -> Result<(), SyntaxError> {
        let (of, text) = (type_of_name(name), text_of(self.expr, value));
        let fault = |problem: String, hint: &str| Err(self.expr.syntax_error(value, problem, hint));
        let is_equality = matches!(operator, BinaryOperator::Equal | BinaryOperator::NotEqual);
        if !operator.compares() {
            if of.is_text() || of == FilterType::Cell {
                return Ok(());
            }
            return fault(format!("`{name}` is a number, which has no parts"), "use =, !=, <, <=, > or >=");
        }
        if of.is_text() && !is_equality {
            return fault(format!("`{name}` is a text, which has no order"), "use =, !=, ~ or !~");
        }
        let hint = match of {
            FilterType::Verdict if text.parse::<Verdict>().is_err() => {
                let all = Verdict::ALL.iter().map(|verdict| verdict.as_str());
                let hint = did_you_mean_one_of(text, all, "verdicts are");
                return fault(format!("`{text}` is no verdict"), &hint);
            }
            FilterType::Cause if !Cause::names().any(|name| name == text) => {
                let hint = did_you_mean_or(text, Cause::names(), || {
                    "`npubench show --format json` has the cause of each verdict".to_owned()
                });
                return fault(format!("`{text}` is no cause of a verdict"), &hint);
            }
            FilterType::Dtype
                if !Dtype::parse(&text.to_ascii_uppercase()).is_some_and(|dtype| dtype.is_of_cann()) =>
            {
                let hint = did_you_mean_or(text, Dtype::cann_names(), || {
                    "types are bf16, float16, float32, int8, int32 …; `~` finds parts of any name".to_owned()
                });
                return fault(format!("`{text}` is no type of tensors"), &hint);
            }
            FilterType::Cell if is_equality => return Ok(()),
            of if of.is_text() || parse_number(of, text).is_some() => return Ok(()),
            FilterType::Duration => "write a time such as 12.5, 12.5us or 3ms; without a unit it is in µs",
            FilterType::Age => "write a time with its unit: s, min, h, d or w, such as 7d",
            FilterType::Percentage => "write a percentage such as 5 or 5% (without a blank)",
            _ if value.names().iter().any(|name| self.is_known(name)) || value.name().is_none() => {
                return self.check_number(value);
            }
            _ => "write a number without a unit, such as 64",
        };
        fault(format!("`{text}` is no value of `{name}`"), hint)
    }
}

fn is_comparison(operator: BinaryOperator) -> bool {
    operator.compares() || matches!(operator, BinaryOperator::Contains | BinaryOperator::ContainsNot)
}
