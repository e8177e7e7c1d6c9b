//! Values of a case by the names of filters.

use super::evaluate::FilterValue;
use crate::kernel::{Case, CaseAttributes, CaseId, catalogue::CatalogueEntry, expression::ExprValue};

/// A case with what is known about it. A value that is `None` or empty is missing.
#[derive(Clone, Debug, Default)]
pub(crate) struct CaseValues<'a> {
    pub(crate) case: Option<&'a Case>,
    /// Id of the case; computed if it is needed and not given.
    pub(crate) id: Option<&'a CaseId>,
    /// Entry of the kernel, whose names the dimensions have.
    pub(crate) entry: Option<&'a CatalogueEntry>,
    pub(crate) verdict: Option<String>,
    pub(crate) reason: Option<String>,
    pub(crate) cause: Option<&'static str>,
    pub(crate) run: Option<String>,
    /// Time since the start of the run in seconds.
    pub(crate) age: Option<f64>,
    pub(crate) host: Option<String>,
    pub(crate) devices: Vec<u32>,
    /// In microseconds.
    pub(crate) median: Option<f64>,
    /// In microseconds.
    pub(crate) mean: Option<f64>,
    /// In microseconds.
    pub(crate) production: Option<f64>,
    pub(crate) collections: Option<usize>,
    pub(crate) cells: Vec<(String, String)>,
}

impl CaseValues<'_> {
    /// Returns the values of a name; empty if the case has none.
    pub(super) fn lookup(&self, name: &str) -> Vec<FilterValue> {
        let text = |text: Option<String>| text.map(FilterValue::Text).into_iter().collect();
        let number = |number: Option<f64>| number.map(FilterValue::Number).into_iter().collect();
        let Some(case) = self.case else { return Vec::new() };
        let tensors = || case.tensors();
        match name {
            "kernel" => text(Some(case.kernel.to_string())),
            "case" => text(Some(self.id.map_or_else(|| case.id().to_string(), ToString::to_string))),
            "shape" => text(Some(case.shapes())),
            "dim" => tensors().flat_map(|tensor| &tensor.dims).map(|dim| whole_number(*dim)).collect(),
            "dtype" => tensors().map(|tensor| FilterValue::Text(tensor.dtype.to_string())).collect(),
            "format" => tensors().map(|tensor| FilterValue::Text(tensor.format.to_string())).collect(),
            "bytes" => vec![whole_number(case.bytes())],
            "verdict" => text(self.verdict.clone()),
            "reason" => text(self.reason.clone()),
            "cause" => text(self.cause.map(str::to_owned)),
            "run" => text(self.run.clone()),
            "age" => number(self.age),
            "host" => text(self.host.clone()),
            "device" => self.devices.iter().map(|device| FilterValue::Number(f64::from(*device))).collect(),
            "median" => number(self.median),
            "mean" => number(self.mean),
            "production" => number(self.production),
            "deviation" => number(self.deviation()),
            "collections" => self.collections.map(|count| whole_number(count as u64)).into_iter().collect(),
            _ => self.other_values(case, name),
        }
    }

    /// Returns the difference of the median from production in percent.
    fn deviation(&self) -> Option<f64> {
        let (median, production) = self.median.zip(self.production)?;
        (production > 0.0).then(|| (median / production - 1.0) * 100.0)
    }

    /// Returns the values of a dimension, an attribute or a column, whichever the case has.
    fn other_values(&self, case: &Case, name: &str) -> Vec<FilterValue> {
        let dimensions = self.entry.map(|entry| dimension_values(entry, case, name)).unwrap_or_default();
        if !dimensions.is_empty() {
            return dimensions.into_iter().map(FilterValue::Number).collect();
        }
        let is_named =
            |column: &str| column == name || CaseAttributes::variable_name(column).eq_ignore_ascii_case(name);
        if let Some((_, value)) = case.attributes.iter().find(|(column, _)| is_named(column)) {
            return vec![FilterValue::Text(value.to_owned())];
        }
        let cell = self.cells.iter().find(|(column, cell)| column == name && CaseAttributes::has_value(cell));
        cell.map(|(_, cell)| FilterValue::Text(cell.trim().to_owned())).into_iter().collect()
    }
}

/// Returns the numbers of a dimension of a case, whatever the case of its letters; empty for a case that fits no form of
/// the entry.
fn dimension_values(entry: &CatalogueEntry, case: &Case, name: &str) -> Vec<f64> {
    let names = entry.bindable_names().into_iter().filter(|bound| bound.eq_ignore_ascii_case(name));
    let names: Vec<&str> = names.collect();
    if names.is_empty() {
        return Vec::new();
    }
    let Ok((_, bindings)) = entry.bound_names(case) else { return Vec::new() };
    let numbers = names.into_iter().filter_map(|name| bindings.get(name)).flat_map(|value| match value {
        ExprValue::Number(number) => vec![*number],
        ExprValue::List(numbers) => numbers.clone(),
        ExprValue::Bool(_) => Vec::new(),
    });
    #[expect(clippy::cast_precision_loss, reason = "dimensions are far below 2^53")]
    numbers.map(|number| number as f64).collect()
}

#[expect(clippy::cast_precision_loss, reason = "a comparison of sizes above 2^53 may round")]
const fn whole_number(number: u64) -> FilterValue {
    FilterValue::Number(number as f64)
}
