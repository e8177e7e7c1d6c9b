//! `npubench kernels`: the kernels of the catalogue.

use super::prelude::*;
use crate::kernel::catalogue::Catalogue;

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

pub(crate) fn kernels_table(kernels: &[KernelRecord<'_>], width: Option<usize>) -> String {
    Table::new(kernels)
        .text("kernel", rank(0).min(12), |kernel| kernel.kernel)
        .text("launched by", rank(1).min(16), |kernel| kernel.api)
        .text("checked by", 3, |kernel| kernel.check_method)
        .text("launchable", 2, |kernel| yes_no(kernel.launchable))
        .text("needs", rank(4).min(16), |kernel| kernel.needs.join(", "))
        .print(width)
}
