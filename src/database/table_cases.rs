//! The cases of a table: which ones it has, and an example of each arrangement of slots.

use std::{collections::HashSet, hash::BuildHasher};

use foldhash::fast::FixedState;

use super::{DatabaseError, KernelCsv, row_cases::RowColumns};
use crate::kernel::{Case, KernelName, Slot};

#[derive(Clone, Debug, Default)]
pub(crate) struct TableCases {
    /// Hashes of the signatures.
    signatures: HashSet<u64, FixedState>,
    /// The first row of each number of inputs with these ranks and formats.
    examples: Vec<Case>,
}

/// Rank and format of a slot; `None` for an empty one.
type SlotArrangement = Option<(usize, String)>;

impl TableCases {
    /// Reads the cases of a table; rows that are no case are left out.
    pub(crate) fn read(kernel: &KernelName, table: &KernelCsv) -> Result<Self, DatabaseError> {
        let mut found = Self::default();
        if table.is_empty() {
            return Ok(found);
        }
        let columns = RowColumns::from_table(table)?;
        let mut known: HashSet<Vec<SlotArrangement>> = HashSet::new();
        table.for_each_row(|_, cells| {
            let Ok(case) = columns.parse_case(kernel, cells) else { return };
            found.signatures.insert(hash_of(&case));
            if known.insert(arrangement(&case.inputs)) {
                found.examples.push(case);
            }
        });
        Ok(found)
    }

    /// Returns true if a row has the case.
    pub(crate) fn contains(&self, case: &Case) -> bool {
        self.signatures.contains(&hash_of(case))
    }

    /// Returns a case of each arrangement of the inputs.
    pub(crate) fn examples(&self) -> &[Case] {
        &self.examples
    }
}

fn hash_of(case: &Case) -> u64 {
    FixedState::with_seed(0).hash_one(case.signature())
}

fn arrangement(slots: &[Slot]) -> Vec<SlotArrangement> {
    let of_slot =
        |slot: &Slot| slot.as_ref().map(|tensor| (tensor.dims.len(), tensor.format.as_str().to_owned()));
    slots.iter().map(of_slot).collect()
}
