//! The cases of a table: which ones it has, and an example of each arrangement of slots.

use std::collections::HashSet;

use super::{DatabaseError, KernelCsv, row_cases::RowColumns};
use crate::kernel::{Case, CaseSet, KernelName};

#[derive(Clone, Debug, Default)]
pub(crate) struct TableCases {
    pub(crate) ids: CaseSet,
    /// The first row of each number of inputs with these ranks and formats.
    pub(crate) examples: Vec<Case>,
}

impl TableCases {
    /// Reads the cases of a table; rows that are no case are left out.
    pub(crate) fn read(kernel: &KernelName, table: &KernelCsv) -> Result<Self, DatabaseError> {
        let mut found = Self::default();
        if table.is_empty() {
            return Ok(found);
        }
        let columns = RowColumns::from_table(table)?;
        let mut known = HashSet::new();
        table.for_each_row(|_, cells| {
            let Ok(case) = columns.parse_case(kernel, cells) else { return };
            found.ids.insert(case.id());
            let slots = case
                .inputs
                .iter()
                .map(|slot| Some((slot.as_ref()?.dims.len(), slot.as_ref()?.format.clone())));
            if known.insert(slots.collect::<Vec<_>>()) {
                found.examples.push(case);
            }
        });
        Ok(found)
    }
}
