//! Rows of grids and mutations in a table: cases without measurements, and their provenance.

use std::collections::BTreeMap;

use crate::{
    cases::grid::definition::{CandidateSpace, Mutation},
    database::{
        DatabaseError, KernelCsv,
        columns::{self, COMPLETENESS, FROM_GRID, FROM_MUTATION, GRID, SOURCE},
        row_cases::{RowColumns, signature_cells},
    },
    kernel::{AttentionCase, Case, KernelName},
};

#[derive(Debug, Default)]
pub(crate) struct ExistingRows {
    /// Cases of all rows that can be parsed as one.
    pub(crate) cases: Vec<Case>,
    /// Numbers of rows of grids and mutations by [`CandidateSpace::origin`] and [`Mutation::origin`].
    pub(crate) by_origin: BTreeMap<String, usize>,
    is_mutant: Vec<bool>,
}

impl ExistingRows {
    pub(crate) fn into_originals(self) -> impl Iterator<Item = Case> {
        let cases = self.cases.into_iter().zip(self.is_mutant);
        cases.filter(|(_, is_mutant)| !is_mutant).map(|(case, _)| case)
    }
}

/// Reads the cases of a table and counts its rows by origin. A missing signature column is an error.
pub(crate) fn read_existing_rows(
    kernel: &KernelName,
    table: &KernelCsv,
) -> Result<ExistingRows, DatabaseError> {
    let mut rows = ExistingRows::default();
    if table.is_empty() {
        return Ok(rows);
    }
    let columns = RowColumns::from_table(table)?;
    let provenance = table.column_index(provenance_column(kernel));
    table.for_each_row(|_, cells| {
        let provenance = provenance.and_then(|column| cells.get(column)).unwrap_or_default();
        let provenance = String::from_utf8_lossy(provenance);
        let is_mutant = provenance.starts_with(FROM_MUTATION);
        let origin = match is_mutant {
            true => Some(Mutation::origin_in(&provenance)),
            false => provenance.starts_with(FROM_GRID).then(|| CandidateSpace::origin_in(&provenance)),
        };
        if let Some(origin) = origin {
            *rows.by_origin.entry(origin.to_owned()).or_default() += 1;
        }
        if let Ok(case) = columns.parse_case(kernel, cells) {
            rows.cases.push(case);
            rows.is_mutant.push(is_mutant);
        }
    });
    Ok(rows)
}

fn provenance_column(kernel: &KernelName) -> &'static str {
    if kernel.as_str() == AttentionCase::KERNEL { SOURCE } else { GRID }
}

#[derive(Debug)]
pub(crate) struct GridRows<'a> {
    table: &'a mut KernelCsv,
    signature: [usize; 6],
    provenance: usize,
    is_attention: bool,
    recorded_inputs: usize,
}

impl<'a> GridRows<'a> {
    /// A writer for a table, which gets the columns that it lacks. Rows have at least `recorded_inputs` input slots, as the
    /// records of the kernel: other readers refuse rows with fewer.
    pub(crate) fn new(kernel: &KernelName, recorded_inputs: usize, table: &'a mut KernelCsv) -> Self {
        let signature = columns::SIGNATURE.map(|name| table.ensure_column(name));
        let provenance = table.ensure_column(provenance_column(kernel));
        let is_attention = kernel.as_str() == AttentionCase::KERNEL;
        Self { table, signature, provenance, is_attention, recorded_inputs }
    }

    /// Appends a case; `attributes` are the cells of its columns, `provenance` starts with `grid ` or `mutation `.
    pub(crate) fn append(&mut self, case: &Case, attributes: &[(&str, String)], provenance: &str) {
        let is_known = [FROM_GRID, FROM_MUTATION].iter().any(|prefix| provenance.starts_with(prefix));
        debug_assert!(is_known, "a row of this origin would not be counted");
        let mut cells: Vec<(usize, String)> = Vec::with_capacity(8 + attributes.len());
        cells.extend(self.signature.into_iter().zip(signature_cells(case, self.recorded_inputs)));
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

#[cfg(test)]
mod tests {
    use std::{path::Path, slice};

    use super::*;
    use crate::{
        database::COMPUTE_COLUMNS,
        kernel::{CaseAttributes, SignatureCells},
    };

    #[test]
    fn appended_rows_parse_as_same_case_with_origin() {
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
        let mut rows = GridRows::new(&kernel, 6, &mut table);
        rows.append(&case, &[("EP Size", "4".to_owned())], "grid moe.yaml: grouped, seed 0");
        let formats = "ND;FRACTAL_NZ;NULL;ND;ND;NULL";
        assert_eq!(table.cell_text(0, "Input Shapes").as_deref(), Some("\"16,64;2,64,32;;;2;\""));
        assert_eq!(table.cell_text(0, "Input Formats").as_deref(), Some(formats));
        let found = read_existing_rows(&kernel, &table).expect("rows");
        let of_grid = BTreeMap::from([("grid moe.yaml: grouped".to_owned(), 1)]);
        assert_eq!((&found.cases, &found.by_origin), (&vec![case.clone()], &of_grid));
        assert_eq!(found.into_originals().collect::<Vec<_>>(), slice::from_ref(&case));
        // The last of two cells of a column is written.
        let twice = [("EP Size", "4".to_owned()), ("EP Size", "8".to_owned())];
        let provenance = "mutation scale: M 8 to 16 of case x, seed 0";
        GridRows::new(&kernel, 0, &mut table).append(&case, &twice, provenance);
        assert_eq!(table.row_cells(1).expect("UTF-8").len(), table.column_names().len());
        assert_eq!(table.cell_text(1, "EP Size").as_deref(), Some("8"));
        let found = read_existing_rows(&kernel, &table).expect("rows");
        let of_both = of_grid
            .into_iter()
            .chain([("mutation scale: M 8 to 16".to_owned(), 1)])
            .collect::<BTreeMap<_, _>>();
        assert_eq!((found.cases.len(), &found.by_origin), (2, &of_both));
        assert_eq!(found.into_originals().collect::<Vec<_>>(), [case], "the mutant is not an original");
        let measured = ["Average Duration(us)", "Profiling Average Duration(us)", "OP State"];
        assert!(measured.iter().all(|column| table.cell_text(0, column).as_deref() == Some("")));
    }
}
