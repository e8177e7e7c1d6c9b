//! Rows of grids and mutations in a database: existing rows are read, the selected candidates of all kernels are
//! appended in memory, on all cores, and then each kernel's CSV is written as a whole or not at all.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use rayon::prelude::*;

use super::{
    CandidateSource, ExistingCases, ListedCase, SelectedRows, SelectionRequest,
    definition::{CandidateSpace, Mutation},
    mutate::CaseMutator,
    select_rows,
};
use crate::{
    base::{command_error::CommandError, suggest::did_you_mean_one_of},
    database::{
        Database, DatabaseError, KernelCsv, TargetDatabase,
        columns::{self, COMPLETENESS, FROM_GRID, FROM_MUTATION, GRID, SOURCE},
        row_cases::{RowColumns, signature_cells},
    },
    kernel::{AttentionCase, Case, DataKind, KernelName, catalogue::Catalogue, device::DeviceProfile},
    profile::{
        DiscoveredProfiles, ProfileError, ProfileFile, RankCounts, RecordGroups, add_attributes, add_table,
    },
};

pub(crate) type CasesByKernel = BTreeMap<KernelName, Vec<Case>>;

pub(crate) type ListedCases = BTreeMap<KernelName, Vec<ListedCase>>;

pub(crate) type CandidatesByKernel<'a> = BTreeMap<KernelName, CandidateSource<'a>>;

/// Returns the mutants of cases for the `wanted` kernels, or for all; one without mutants is an error.
pub(crate) fn mutation_sources<'a>(
    cases: &'a CasesByKernel,
    mutator: CaseMutator<'a>,
    wanted: &[KernelName],
) -> Result<CandidatesByKernel<'a>, CommandError> {
    if cases.values().all(Vec::is_empty) {
        return Err(CommandError::bad_input(
            "the database and `--from` contain no case to mutate",
            "add cases to the database with `npubench ingest` or `npubench grid`, or give a profile with `--from`",
        ));
    }
    let targets = mutator.target_kernels(&cases.keys().cloned().collect());
    if let Some(missing) = wanted.iter().find(|kernel| !targets.contains_key(*kernel)) {
        let known = targets.keys().map(KernelName::as_str);
        let hint = did_you_mean_one_of(missing.as_str(), known, "kernels with mutants:");
        return Err(CommandError::bad_input(format!("no case has mutants of `{missing}`"), hint));
    }
    let wanted: BTreeSet<&KernelName> = wanted.iter().collect();
    let targets = targets.into_iter().filter(|(kernel, _)| wanted.is_empty() || wanted.contains(kernel));
    let sources = targets.map(|(kernel, sources)| {
        let cases = sources.iter().filter_map(|source| cases.get(source)).flatten().collect();
        (kernel, CandidateSource::Mutation { mutator, cases })
    });
    Ok(sources.collect())
}

pub(crate) fn profile_cases(paths: &[PathBuf], kind: DataKind) -> Result<CasesByKernel, ProfileError> {
    let mut groups = RecordGroups::default();
    let DiscoveredProfiles { files, .. } = ProfileFile::find_all(paths)?;
    for (file, number) in files.iter().zip(0..) {
        add_table(&mut groups, &file.0, number, kind == DataKind::Rehearsal)?;
    }
    let mut kernels = groups.into_kernels();
    add_attributes(&mut kernels, &files, RankCounts::default())?;
    let cases = kernels.into_iter().map(|(kernel, groups)| {
        let mut cases: Vec<Case> = groups.into_iter().map(|group| group.case).collect();
        // The selection of mutants does not depend on the order of the records.
        cases.sort_by_cached_key(Case::signature);
        (kernel, cases)
    });
    Ok(cases.collect())
}

pub(crate) fn database_cases(database: &Database) -> Result<CasesByKernel, DatabaseError> {
    let cases = database.kernels()?.into_par_iter().map(|kernel| {
        let rows = read_existing_rows(&kernel, &database.kernel_csv(&kernel)?)?;
        Ok((kernel, rows.into_originals().collect()))
    });
    cases.collect::<Vec<_>>().into_iter().collect()
}

#[derive(Debug, Default)]
struct ExistingRows {
    /// Cases of all rows that can be parsed as one, each with true for a mutant.
    cases: Vec<(Case, bool)>,
    /// Numbers of rows of grids and mutations by [`CandidateSpace::origin`] and [`Mutation::origin`].
    by_origin: BTreeMap<String, usize>,
}

impl ExistingRows {
    fn into_originals(self) -> impl Iterator<Item = Case> {
        self.cases.into_iter().filter(|(_, is_mutant)| !is_mutant).map(|(case, _)| case)
    }
}

/// Reads the cases of a table and counts its rows by origin. A missing signature column is an error.
fn read_existing_rows(kernel: &KernelName, table: &KernelCsv) -> Result<ExistingRows, DatabaseError> {
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
        rows.cases.extend(columns.parse_case(kernel, cells).ok().map(|case| (case, is_mutant)));
    });
    Ok(rows)
}

fn is_attention(kernel: &KernelName) -> bool {
    kernel.as_str() == AttentionCase::KERNEL
}

fn provenance_column(kernel: &KernelName) -> &'static str {
    if is_attention(kernel) { SOURCE } else { GRID }
}

/// Appends a row without measurements, with at least `recorded_inputs` input slots, as the records of the kernel: other readers
/// refuse rows with fewer. `attributes` are the cells of its columns, `provenance` starts with `grid ` or `mutation `.
fn append_case(
    table: &mut KernelCsv,
    recorded_inputs: usize,
    case: &Case,
    attributes: &[(&str, String)],
    provenance: &str,
) {
    // The provenance stands before new columns of attributes.
    let origin = provenance_column(&case.kernel);
    columns::SIGNATURE.into_iter().chain([origin]).for_each(|column| _ = table.ensure_column(column));
    let signature = columns::SIGNATURE.into_iter().zip(signature_cells(case, recorded_inputs));
    let mut cells: Vec<(&str, String)> = signature.chain(attributes.iter().cloned()).collect();
    if is_attention(&case.kernel) {
        cells.push((COMPLETENESS, AttentionCase::new(case).completeness()));
    }
    cells.push((origin, provenance.to_owned()));
    table.append_row(&cells);
}

#[derive(Clone, Debug)]
pub(crate) struct RowWriter<'a> {
    pub(crate) candidates: CandidatesByKernel<'a>,
    pub(crate) catalogue: &'a Catalogue,
    pub(crate) request: SelectionRequest<'a>,
    /// Device for [`SelectedRows::fastest`], which is not computed for `None`.
    pub(crate) timed_on: Option<&'a DeviceProfile>,
}

impl RowWriter<'_> {
    /// Selects the rows of all kernels, and writes them unless `dry_run`; all tables are read before.
    pub(crate) fn add_rows(
        &self,
        target: &TargetDatabase<'_>,
        dry_run: bool,
    ) -> Result<Vec<SelectedRows<'_>>, DatabaseError> {
        target.write(dry_run, |database| {
            let extend = |(kernel, source)| self.extend_table(kernel, source, database, dry_run);
            // All results are collected first, so that the returned error belongs to the first failing kernel in order.
            let extended: Vec<_> = self.candidates.par_iter().map(extend).collect();
            let (selected, tables): (Vec<_>, Vec<Option<KernelCsv>>) =
                extended.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
            Ok((tables.into_iter().flatten().collect(), selected))
        })
    }

    /// Returns the cases of rows that have the same call under another name, as cases of this kernel. Kernels to which rows
    /// are added have rows of their own, so that the rows of one do not depend on the order of the tables.
    fn equal_cases(&self, kernel: &KernelName, database: &Database) -> Result<Vec<Case>, DatabaseError> {
        let mut cases = Vec::new();
        let others = self.catalogue.names_with_same_call(kernel).into_iter().skip(1);
        for name in others.filter(|name| !self.candidates.contains_key(name)) {
            let rows = read_existing_rows(&name, &database.kernel_csv(&name)?)?;
            cases.extend(rows.cases.into_iter().map(|(case, _)| Case { kernel: kernel.clone(), ..case }));
        }
        Ok(cases)
    }

    /// Returns the selected rows of a kernel, and its table if it has new rows that are not written yet.
    fn extend_table<'w>(
        &'w self,
        kernel: &'w KernelName,
        source: &'w CandidateSource<'w>,
        database: &Database,
        dry_run: bool,
    ) -> Result<(SelectedRows<'w>, Option<KernelCsv>), DatabaseError> {
        let mut table = database.kernel_csv(kernel)?;
        let equal_cases = self.equal_cases(kernel, database)?;
        let ExistingRows { cases, by_origin } = read_existing_rows(kernel, &table)?;
        let mut existing = ExistingCases { rows: by_origin, ..ExistingCases::default() };
        cases.iter().for_each(|(case, _)| _ = existing.insert(case));
        equal_cases.iter().for_each(|case| _ = existing.insert(case));
        // No mutant may repeat a source case, although cases of a profile have no row.
        if let CandidateSource::Mutation { cases, .. } = source {
            let own = cases.iter().filter(|case| case.kernel == *kernel);
            own.for_each(|case| _ = existing.insert(case));
        }
        let entry = self.catalogue.entry(kernel);
        let request = SelectionRequest { entry, ..self.request };
        let mut selected = select_rows(kernel, source.clone(), &request, &existing);
        selected.fastest =
            entry.zip(self.timed_on).map(|(entry, device)| selected.total_fastest(entry, device));
        let is_extended = selected.rows() > 0 && !dry_run;
        if is_extended {
            let recorded_inputs = entry.map_or(0, |entry| entry.recorded_inputs);
            selected.for_each(|row| {
                append_case(&mut table, recorded_inputs, row.case, &row.attributes(), row.provenance);
            });
        }
        Ok((selected, is_extended.then_some(table)))
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
        let cells = [("EP Size", "4".to_owned())];
        append_case(&mut table, 6, &case, &cells, "grid moe.yaml: grouped, seed 0");
        let formats = "ND;FRACTAL_NZ;NULL;ND;ND;NULL";
        assert_eq!(table.cell_text(0, "Input Shapes").as_deref(), Some("\"16,64;2,64,32;;;2;\""));
        assert_eq!(table.cell_text(0, "Input Formats").as_deref(), Some(formats));
        let found = read_existing_rows(&kernel, &table).expect("rows");
        let of_grid = BTreeMap::from([("grid moe.yaml: grouped".to_owned(), 1)]);
        assert_eq!((&found.cases, &found.by_origin), (&vec![(case.clone(), false)], &of_grid));
        assert_eq!(found.into_originals().collect::<Vec<_>>(), slice::from_ref(&case));
        // The last of two cells of a column is written.
        let twice = [("EP Size", "4".to_owned()), ("EP Size", "8".to_owned())];
        let provenance = "mutation scale: M 8 to 16 of case x, seed 0";
        append_case(&mut table, 0, &case, &twice, provenance);
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
