//! `npubench kernels`: the kernels of the catalogue.

use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    kernel::catalogue::Catalogue,
    show::table::{FittedColumn, fitted_text},
};

/// A kernel of the catalogue.
#[derive(Serialize, JsonSchema)]
pub(crate) struct KernelRecord<'a> {
    kernel: &'a str,
    also_named: &'a [String],
    /// Function that launches it.
    api: &'a str,
    summary: &'a str,
    needs: Vec<String>,
    check_method: &'static str,
    launchable: bool,
    /// Rules of its forms as they are written in the entry.
    forms: Vec<&'a str>,
}

/// Returns the kernels of a catalogue.
pub(crate) fn kernel_records(catalogue: &Catalogue) -> Vec<KernelRecord<'_>> {
    let records = catalogue.entries().map(|entry| KernelRecord {
        kernel: entry.kernel.as_str(),
        also_named: &entry.also_named,
        api: &entry.main_operator().api,
        summary: &entry.summary,
        needs: entry.needs.words(),
        check_method: entry.check_method.as_str(),
        launchable: entry.can_be_launched(),
        forms: entry.forms.iter().map(|form| form.rule.source.as_str()).collect(),
    });
    records.collect()
}

/// Returns the kernels as a table: API, method of the vendor check, rehearsal, requirements.
pub(crate) fn kernels_table(kernels: &[KernelRecord<'_>], width: Option<usize>) -> String {
    let columns = vec![
        FittedColumn::text("kernel", 0).shortened_to(12),
        FittedColumn::text("launched by", 1).shortened_to(16),
        FittedColumn::text("checked by", 3),
        FittedColumn::text("launchable", 2),
        FittedColumn::text("needs", 4).shortened_to(16),
    ];
    let row = |kernel: &KernelRecord<'_>| {
        let launchable = if kernel.launchable { "yes" } else { "no" };
        let cells = [kernel.kernel, kernel.api, kernel.check_method, launchable, &kernel.needs.join(", ")];
        cells.map(str::to_owned).to_vec()
    };
    fitted_text(columns, kernels.iter().map(row), width)
}
