//! `npubench kernels`: the kernels of the catalogue.

use super::prelude::*;
use crate::kernel::catalogue::CatalogueEntry;

record! {
    /// A kernel of the catalogue.
    #[derive(JsonSchema)]
    pub(crate) KernelRecord<'a>(entry: &'a CatalogueEntry) {
        kernel: &'a str = entry.kernel.as_str(),
        also_named: &'a [String] = &entry.also_named,
        /// Function that launches it.
        api: &'a str = &entry.main_operator().api,
        summary: &'a str = &entry.summary,
        needs: Vec<String> = entry.needs.words(),
        check_method: &'static str = entry.check_method.into(),
        launchable: bool = entry.can_be_launched(),
        /// Rules of its forms as they are written in the entry.
        forms: Vec<&'a str> = entry.forms.iter().map(|form| form.rule.source.as_str()).collect(),
    }
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
