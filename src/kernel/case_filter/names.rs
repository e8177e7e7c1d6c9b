//! Names of filters: what they stand for, the units of their values, and the check of a filter against them.

use std::collections::BTreeSet;

use super::{
    error::FilterFault,
    expr::{FilterExpr, FilterOperator, FilterWord},
};
use crate::{
    base::suggest::did_you_mean_or,
    kernel::{CaseAttributes, Dtype, Verdict, catalogue::CatalogueEntry},
};

/// Kind of the values of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FilterType {
    Text,
    /// The first digits of an id.
    CaseId,
    Dtype,
    Verdict,
    /// A number without a unit.
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

/// Names that every case has, with the kind of their values and their meaning.
pub(super) const FIXED_NAMES: [(&str, FilterType, &str); 18] = [
    ("kernel", FilterType::Text, "name of the kernel"),
    ("case", FilterType::CaseId, "id of the case, or its first digits"),
    ("shape", FilterType::Text, "shapes of inputs and outputs, such as `64,1024;1024,512 -> 64,512`"),
    ("dim", FilterType::Number, "any dimension of any tensor"),
    ("dtype", FilterType::Dtype, "type of any tensor, in any spelling"),
    ("format", FilterType::Text, "format of any tensor, such as ND or FRACTAL_NZ"),
    ("bytes", FilterType::Number, "memory of all tensors in bytes"),
    ("verdict", FilterType::Verdict, "verdict of the row, or of the run for `show`"),
    ("reason", FilterType::Text, "reason of the verdict"),
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

/// Returns the kind of the values of a name.
pub(super) fn type_of_name(name: &str) -> FilterType {
    let fixed = FIXED_NAMES.iter().find(|(fixed, ..)| *fixed == name);
    fixed.map_or(FilterType::Cell, |(_, of, _)| *of)
}

/// Parses a number in the unit of its kind. `None` for a text, and for numbers that are not finite.
pub(super) fn parse_number(of: FilterType, text: &str) -> Option<f64> {
    let parse = |text: &str| text.trim().parse::<f64>().ok().filter(|number| number.is_finite());
    let with_unit = |units: &[(&str, f64)]| {
        // The longest unit first: `5ms` ends with `s`, too.
        let mut units = units.to_vec();
        units.sort_by_key(|(unit, _)| std::cmp::Reverse(unit.len()));
        let (unit, factor) = units.into_iter().find(|(unit, _)| text.ends_with(unit))?;
        parse(text.strip_suffix(unit)?).map(|number| number * factor)
    };
    match of {
        FilterType::Text | FilterType::CaseId | FilterType::Dtype | FilterType::Verdict => None,
        FilterType::Number | FilterType::Cell => parse(text),
        FilterType::Percentage => parse(text.strip_suffix('%').unwrap_or(text)),
        FilterType::Duration => parse(text).or_else(|| with_unit(&DURATION_UNITS)),
        FilterType::Age => with_unit(&AGE_UNITS),
    }
}

/// Names that a command accepts.
#[derive(Clone, Debug, Default)]
pub(crate) struct FilterNames(BTreeSet<String>);

impl FilterNames {
    /// Adds the columns of a table, and the attributes among them by the names of expressions.
    pub(crate) fn add_columns<'a>(&mut self, columns: impl IntoIterator<Item = &'a str>) {
        for column in columns {
            self.0.insert(column.to_owned());
            if let Some(name) = CaseAttributes::name_of(column) {
                self.0.insert(CaseAttributes::variable_name(&name));
            }
        }
    }

    /// Adds the dimensions of a kernel, in small letters.
    pub(crate) fn add_dimensions(&mut self, entry: &CatalogueEntry) {
        self.0.extend(entry.bindable_names().into_iter().map(str::to_ascii_lowercase));
    }

    pub(super) fn check(&self, expr: &FilterExpr) -> Result<(), FilterFault> {
        match expr {
            FilterExpr::Comparison { name, operator, value } => {
                self.check_name(name)?;
                check_comparison(name, *operator, value)
            }
            FilterExpr::Has(name) => self.check_name(name),
            FilterExpr::Not(inner) => self.check(inner),
            FilterExpr::And(left, right) | FilterExpr::Or(left, right) => {
                self.check(left)?;
                self.check(right)
            }
        }
    }

    fn check_name(&self, name: &FilterWord) -> Result<(), FilterFault> {
        let word = name.text.as_str();
        let is_known = |word: &str| type_of_name(word) != FilterType::Cell || self.0.contains(word);
        if is_known(word) || self.0.contains(&word.to_ascii_lowercase()) {
            return Ok(());
        }
        let fixed = FIXED_NAMES.iter().map(|(fixed, ..)| *fixed);
        let hint = did_you_mean_or(word, fixed.clone().chain(self.0.iter().map(String::as_str)), || {
            let fixed: Vec<&str> = fixed.clone().collect();
            format!(
                "names are {}, dimensions such as m, attributes and columns in quotes (docs/filters.md)",
                fixed.join(", ")
            )
        });
        Err(FilterFault::new(name.place.clone(), format!("no case has a name `{word}`"), hint))
    }
}

/// Refuses comparisons that no value can fulfil.
fn check_comparison(
    name: &FilterWord,
    operator: FilterOperator,
    value: &FilterWord,
) -> Result<(), FilterFault> {
    let of = type_of_name(&name.text);
    let fault = |problem: String, hint: &str| Err(FilterFault::new(value.place.clone(), problem, hint));
    let is_text =
        matches!(of, FilterType::Text | FilterType::CaseId | FilterType::Dtype | FilterType::Verdict);
    if is_text && operator.is_order() {
        return fault(format!("`{}` is a text, which has no order", name.text), "use =, !=, ~ or !~");
    }
    if !is_text && of != FilterType::Cell && operator.is_search() {
        return fault(
            format!("`{}` is a number, which has no parts", name.text),
            "use =, !=, <, <=, > or >=",
        );
    }
    if of == FilterType::Verdict && !operator.is_search() && value.text.parse::<Verdict>().is_err() {
        let all = Verdict::ALL.iter().map(|verdict| verdict.as_str());
        let hint = did_you_mean_or(&value.text, all.clone(), || {
            format!("verdicts are {}", all.clone().collect::<Vec<_>>().join(", "))
        });
        return fault(format!("`{}` is no verdict", value.text), &hint);
    }
    let is_dtype = || Dtype::parse(&value.text.to_ascii_uppercase()).is_some_and(|dtype| dtype.is_of_cann());
    if of == FilterType::Dtype && !operator.is_search() && !is_dtype() {
        let hint = did_you_mean_or(&value.text, Dtype::cann_names(), || {
            "types are bf16, float16, float32, int8, int32 …; `~` finds parts of any name".to_owned()
        });
        return fault(format!("`{}` is no type of tensors", value.text), &hint);
    }
    let needs_number = !is_text && (of != FilterType::Cell || operator.is_order());
    if needs_number && parse_number(of, &value.text).is_none() {
        let hint = match of {
            FilterType::Duration => "write a time such as 12.5, 12.5us or 3ms; without a unit it is in µs",
            FilterType::Age => "write a time with its unit: s, min, h, d or w, such as 7d",
            FilterType::Percentage => "write a percentage such as 5 or 5%",
            _ => "write a number without a unit, such as 64",
        };
        return fault(format!("`{}` is no value of `{}`", value.text, name.text), hint);
    }
    Ok(())
}
