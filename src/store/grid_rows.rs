//! Rows that nobody has measured yet: cases of grids, with where they are from.

use csv::StringRecord;

use super::{
    KernelCsv, StoreError,
    columns::{self, COMPLETENESS, GRID, SOURCE},
    rows::RowColumns,
};
use crate::model::{Attention, Case, KernelName, Slot};

/// How the provenance of such rows begins, in a cell of their own.
const FROM_GRID: &str = "grid ";
/// How that of mutants begins.
const FROM_MUTATION: &str = "mutation ";

/// The cases that a table has.
#[derive(Debug, Default)]
pub struct Tenants {
    /// Cases of all rows that can be read as one.
    pub cases: Vec<Case>,
    /// Rows that are from grids.
    pub grown: usize,
    /// Rows that are mutants of others.
    pub mutated: usize,
    /// For each of the cases, whether it is a mutant.
    is_mutant: Vec<bool>,
}

impl Tenants {
    /// The cases that are no mutants.
    pub fn into_originals(self) -> impl Iterator<Item = Case> {
        let cases = self.cases.into_iter().zip(self.is_mutant);
        cases.filter(|(_, is_mutant)| !is_mutant).map(|(case, _)| case)
    }
}

/// Reads what a table has.
///
/// # Errors
/// [`StoreError::NotRows`] where a signature column is missing.
pub fn tenants(kernel: &KernelName, table: &KernelCsv) -> Result<Tenants, StoreError> {
    let mut tenants = Tenants::default();
    if table.is_empty() {
        return Ok(tenants);
    }
    let columns = RowColumns::of(table)?;
    let provenance = table.column(provenance_column(kernel));
    table.for_each_row(|_, cells| {
        let said = provenance.and_then(|column| cells.get(column)).unwrap_or_default();
        let is_mutant = said.starts_with(FROM_MUTATION.as_bytes());
        tenants.grown += usize::from(said.starts_with(FROM_GRID.as_bytes()));
        tenants.mutated += usize::from(is_mutant);
        if let Ok(case) = columns.case(kernel, cells) {
            tenants.cases.push(case);
            tenants.is_mutant.push(is_mutant);
        }
        Ok(())
    })?;
    Ok(tenants)
}

fn provenance_column(kernel: &KernelName) -> &'static str {
    if kernel.as_str() == Attention::KERNEL { SOURCE } else { GRID }
}

/// Appends cases to a table, without measurements.
#[derive(Debug)]
pub struct GridRows<'a> {
    table: &'a mut KernelCsv,
    signature: [usize; 6],
    provenance: usize,
    is_attention: bool,
}

impl<'a> GridRows<'a> {
    /// Appends to a table, which gets the columns that it lacks.
    #[must_use]
    pub fn new(kernel: &KernelName, table: &'a mut KernelCsv) -> Self {
        let signature = columns::SIGNATURE.map(|name| table.ensure_column(name));
        let provenance = table.ensure_column(provenance_column(kernel));
        let is_attention = kernel.as_str() == Attention::KERNEL;
        Self { table, signature, provenance, is_attention }
    }

    /// Appends a case; `attributes` are the cells of its columns, `provenance` begins with `grid ` or `mutation `.
    pub fn append(&mut self, case: &Case, attributes: &[(&str, String)], provenance: &str) {
        let is_known = [FROM_GRID, FROM_MUTATION].iter().any(|begin| provenance.starts_with(begin));
        debug_assert!(is_known, "else it is not known again");
        let mut cells: Vec<(usize, String)> = Vec::with_capacity(8 + attributes.len());
        let sides = [cells_of(&case.inputs), cells_of(&case.outputs)].into_iter().flatten();
        cells.extend(self.signature.into_iter().zip(sides));
        for (column, text) in attributes {
            cells.push((self.table.ensure_column(column), text.clone()));
        }
        if self.is_attention {
            cells.push((self.table.ensure_column(COMPLETENESS), Attention::new(case).completeness()));
        }
        cells.push((self.provenance, provenance.to_owned()));
        cells.sort_by_key(|(column, _)| *column);
        let mut record = StringRecord::with_capacity(256, self.table.columns().len());
        for (column, text) in &cells {
            (record.len()..*column).for_each(|_| record.push_field(""));
            record.push_field(text);
        }
        self.table.append_record(record);
    }
}

/// Shapes, types and formats as the profiler writes them: shapes in literal quotes, and names of nothing for
/// slots that hold nothing.
fn cells_of(slots: &[Slot]) -> [String; 3] {
    let [mut shapes, mut dtypes, mut formats] = ["\"".to_owned(), String::new(), String::new()];
    for (index, slot) in slots.iter().enumerate() {
        if index > 0 {
            [&mut shapes, &mut dtypes, &mut formats].into_iter().for_each(|cell| cell.push(';'));
        }
        let Some(tensor) = slot else {
            dtypes.push_str("DT_UNDEFINED");
            formats.push_str("NULL");
            continue;
        };
        for (position, dim) in tensor.dims.iter().enumerate() {
            if position > 0 {
                shapes.push(',');
            }
            shapes.push_str(&dim.to_string());
        }
        dtypes.push_str(tensor.dtype.as_str());
        formats.push_str(tensor.format.as_str());
    }
    shapes.push('"');
    [shapes, dtypes, formats]
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{
        model::{Attributes, Cells},
        store::COMPUTE_COLUMNS,
    };

    #[test]
    fn what_is_appended_is_read_as_the_same_case() {
        let kernel = KernelName::new("GroupedMatmul").expect("a name");
        let slots = |shapes, dtypes, formats| Cells { shapes, dtypes, formats }.parse().expect("cells");
        let mut attributes = Attributes::default();
        attributes.set("EP Size", "4");
        let case = Case {
            kernel: kernel.clone(),
            inputs: slots(
                "16,64;2,64,32;;;2",
                "INT8;INT8;DT_UNDEFINED;FLOAT;INT64",
                "ND;FRACTAL_NZ;NULL;ND;ND",
            ),
            outputs: slots("16,32;", "DT_BF16;INT32", "ND;ND"),
            attributes,
        };
        let mut table = KernelCsv::new(Path::new("GroupedMatmul.csv"), &COMPUTE_COLUMNS);
        let mut rows = GridRows::new(&kernel, &mut table);
        rows.append(&case, &[("EP Size", "4".to_owned())], "grid moe.yaml: grouped, seed 0");
        let found = tenants(&kernel, &table).expect("rows");
        assert_eq!((&found.cases, found.grown, found.mutated), (&vec![case.clone()], 1, 0));
        assert_eq!(found.into_originals().collect::<Vec<_>>(), std::slice::from_ref(&case));
        GridRows::new(&kernel, &mut table).append(&case, &[], "mutation scale: M 8 to 16 of case x, seed 0");
        let found = tenants(&kernel, &table).expect("rows");
        assert_eq!((found.cases.len(), found.grown, found.mutated), (2, 1, 1));
        assert_eq!(found.into_originals().collect::<Vec<_>>(), [case], "the mutant is none");
        let measured = ["Average Duration(us)", "Profiling Average Duration(us)", "OP State"];
        assert!(measured.iter().all(|column| table.cell(0, column).as_deref() == Some("")));
    }
}
