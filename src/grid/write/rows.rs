//! Rows that nobody has measured yet: cases of grids, with where they are from.

use std::collections::BTreeMap;

use crate::{
    database::{
        DatabaseError, KernelCsv,
        columns::{self, COMPLETENESS, GRID, SOURCE},
        row_cases::RowColumns,
    },
    domain::{AttentionCase, Case, KernelName, Slot},
    grid::definition::{CandidateSpace, Mutation},
};

/// How the provenance of such rows begins, in a cell of their own.
const FROM_GRID: &str = "grid ";
/// How that of mutants begins.
const FROM_MUTATION: &str = "mutation ";

/// The cases that a table has.
#[derive(Debug, Default)]
pub struct ExistingRows {
    /// Cases of all rows that can be read as one.
    pub cases: Vec<Case>,
    /// Rows that are from grids, by the [`CandidateSpace::origin`] of each.
    pub grown: BTreeMap<String, usize>,
    /// Rows that are mutants of others, by the [`Mutation::origin`] of each.
    pub mutated: BTreeMap<String, usize>,
    /// For each of the cases, whether it is a mutant.
    is_mutant: Vec<bool>,
}

impl ExistingRows {
    /// The cases that are no mutants.
    pub fn into_originals(self) -> impl Iterator<Item = Case> {
        let cases = self.cases.into_iter().zip(self.is_mutant);
        cases.filter(|(_, is_mutant)| !is_mutant).map(|(case, _)| case)
    }
}

/// Reads what a table has.
///
/// # Errors
/// [`DatabaseError::MissingColumn`] where a signature column is missing.
pub fn tenants(kernel: &KernelName, table: &KernelCsv) -> Result<ExistingRows, DatabaseError> {
    let mut tenants = ExistingRows::default();
    if table.is_empty() {
        return Ok(tenants);
    }
    let columns = RowColumns::from_table(table)?;
    let provenance = table.column_index(provenance_column(kernel));
    table.for_each_row(|_, cells| {
        let said = provenance.and_then(|column| cells.get(column)).unwrap_or_default();
        let is_mutant = said.starts_with(FROM_MUTATION.as_bytes());
        if is_mutant {
            let said = String::from_utf8_lossy(said);
            *tenants.mutated.entry(Mutation::origin_in(&said).to_owned()).or_default() += 1;
        } else if said.starts_with(FROM_GRID.as_bytes()) {
            let said = String::from_utf8_lossy(said);
            *tenants.grown.entry(CandidateSpace::origin_in(&said).to_owned()).or_default() += 1;
        }
        if let Ok(case) = columns.parse_case(kernel, cells) {
            tenants.cases.push(case);
            tenants.is_mutant.push(is_mutant);
        }
    });
    Ok(tenants)
}

fn provenance_column(kernel: &KernelName) -> &'static str {
    if kernel.as_str() == AttentionCase::KERNEL { SOURCE } else { GRID }
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
        let is_attention = kernel.as_str() == AttentionCase::KERNEL;
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
            cells.push((self.table.ensure_column(COMPLETENESS), AttentionCase::new(case).completeness()));
        }
        cells.push((self.provenance, provenance.to_owned()));
        self.table.append_row_at(&cells);
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
        database::COMPUTE_COLUMNS,
        domain::{CaseAttributes, SignatureCells},
    };

    #[test]
    fn what_is_appended_is_read_as_the_same_case() {
        let kernel = KernelName::new("GroupedMatmul").expect("a name");
        let slots =
            |shapes, dtypes, formats| SignatureCells { shapes, dtypes, formats }.parse().expect("cells");
        let mut attributes = CaseAttributes::default();
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
        let of_grid = BTreeMap::from([("grid moe.yaml: grouped".to_owned(), 1)]);
        assert_eq!((&found.cases, &found.grown), (&vec![case.clone()], &of_grid));
        assert_eq!((found.mutated.len(), found.into_originals().collect()), (0, vec![case.clone()]));
        // A column that is given twice stands there once.
        let twice = [("EP Size", "4".to_owned()), ("EP Size", "8".to_owned())];
        let provenance = "mutation scale: M 8 to 16 of case x, seed 0";
        GridRows::new(&kernel, &mut table).append(&case, &twice, provenance);
        assert_eq!(table.row_cells(1).expect("UTF-8").len(), table.column_names().len());
        assert_eq!(table.cell_text(1, "EP Size").as_deref(), Some("8"));
        let found = tenants(&kernel, &table).expect("rows");
        let of_mutation = BTreeMap::from([("mutation scale: M 8 to 16".to_owned(), 1)]);
        assert_eq!((found.cases.len(), &found.grown, &found.mutated), (2, &of_grid, &of_mutation));
        assert_eq!(found.into_originals().collect::<Vec<_>>(), [case], "the mutant is none");
        let measured = ["Average Duration(us)", "Profiling Average Duration(us)", "OP State"];
        assert!(measured.iter().all(|column| table.cell_text(0, column).as_deref() == Some("")));
    }
}
