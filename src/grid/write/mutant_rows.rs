//! Rows of mutants: cases of a database or of profiles, each with one thing changed.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use crate::{
    database::{Database, DatabaseError, KernelCsv},
    domain::{Case, DataKind, KernelName},
    grid::{
        ExistingCases, GridRows, GridWriteError, GrownTable, in_parallel,
        mutate::{MutationOrder, MutationSummary, select_mutants, targets},
        tenants,
    },
    profile::{
        DiscoveredProfiles, ProfileError, ProfileFile, ReadOptions, RecordGroups, add_attributes, add_table,
    },
};

/// Cases by kernel.
pub type CasesByKernel = BTreeMap<KernelName, Vec<Case>>;

/// The cases of profiles, with the attributes that can be known.
///
/// # Errors
/// [`ProfileError`].
pub fn cases_of_profiles(paths: &[PathBuf], kind: DataKind) -> Result<CasesByKernel, ProfileError> {
    let mut groups = RecordGroups::default();
    let DiscoveredProfiles { files, .. } = ProfileFile::find_all(paths)?;
    let read = ReadOptions { accept_rehearsed: kind == DataKind::Rehearsal, workers: None };
    for (file, number) in files.iter().zip(0..) {
        add_table(&mut groups, &file.0, number, read)?;
    }
    let mut kernels = groups.into_kernels();
    add_attributes(&mut kernels, &files, None)?;
    let cases = kernels.into_iter().map(|(kernel, groups)| {
        let cases = groups.into_iter().map(|group| group.case);
        (kernel, cases.collect())
    });
    Ok(cases.collect())
}

/// What is to be done to tables.
#[derive(Clone, Copy, Debug)]
pub struct MutantWriter<'a> {
    /// The mutations, and what is asked of each kernel.
    pub order: MutationOrder<'a>,
    /// Cases of profiles, where they count in place of the database's.
    pub profiled: Option<&'a CasesByKernel>,
    /// The kernels that get rows; all where empty.
    pub wanted: &'a BTreeSet<KernelName>,
    /// Whether the time of the rows is added up.
    pub is_timed: bool,
}

impl MutantWriter<'_> {
    /// Grows all kernels in memory, on all cores; without a database and profiles there is nothing to mutate.
    ///
    /// # Errors
    /// [`GridWriteError`] where a table cannot be read, or there is nothing to mutate.
    pub fn grow(
        &self,
        database: Option<&Database>,
    ) -> Result<Vec<GrownTable<MutationSummary>>, GridWriteError> {
        let own;
        let cases = match (self.profiled, database) {
            (Some(cases), _) => cases,
            (None, database) => {
                own = database.map_or(Ok(CasesByKernel::new()), cases_of_database)?;
                &own
            }
        };
        if cases.values().all(Vec::is_empty) {
            return Err(GridWriteError::NoCase);
        }
        let targets = targets(&self.order.mutator, &cases.keys().cloned().collect());
        if let Some(missing) = self.wanted.iter().find(|kernel| !targets.contains_key(*kernel)) {
            let known = targets.keys().cloned().collect();
            return Err(GridWriteError::NoMutants { kernel: missing.clone(), known });
        }
        let is_wanted = |kernel: &KernelName| self.wanted.is_empty() || self.wanted.contains(kernel);
        let targets: Vec<_> = targets.iter().filter(|(kernel, _)| is_wanted(kernel)).collect();
        let grown = in_parallel(targets.len(), |index| {
            let (kernel, sources) = targets[index];
            let sources = sources.iter().filter_map(|source| cases.get(source)).flatten();
            let known = cases.get(kernel).map(Vec::as_slice).unwrap_or_default();
            let table = database.map(|database| database.kernel_csv(kernel)).transpose()?;
            self.grow_kernel(kernel, sources.collect(), known, table)
        });
        Ok(grown.into_iter().collect::<Result<_, DatabaseError>>()?)
    }

    fn grow_kernel(
        &self,
        kernel: &KernelName,
        sources: Vec<&Case>,
        cases: &[Case],
        table: Option<KernelCsv>,
    ) -> Result<GrownTable<MutationSummary>, DatabaseError> {
        let tenants = table.as_ref().map(|table| tenants(kernel, table)).transpose()?.unwrap_or_default();
        let mut known = ExistingCases::with_rows(tenants.mutated);
        for case in tenants.cases.iter().chain(cases) {
            known.insert(case);
        }
        let mutated = select_mutants(kernel, sources, self.order, &known);
        let outcome = mutated.summary(self.is_timed);
        let Some(mut table) = table.filter(|_| mutated.rows() > 0) else {
            return Ok(GrownTable { outcome, table: None });
        };
        let mut rows = GridRows::new(kernel, &mut table);
        mutated.for_each(|case, provenance| {
            let attributes = case.attributes.iter().map(|(column, text)| (column, text.to_owned()));
            rows.append(case, &attributes.collect::<Vec<_>>(), provenance);
            Ok::<(), DatabaseError>(())
        })?;
        Ok(GrownTable { outcome, table: Some(table) })
    }
}

/// The cases of all rows that are no mutants.
fn cases_of_database(database: &Database) -> Result<CasesByKernel, DatabaseError> {
    let kernels = database.kernels()?;
    let cases = in_parallel(kernels.len(), |index| {
        let kernel = &kernels[index];
        let table = database.kernel_csv(kernel)?;
        Ok((kernel.clone(), tenants(kernel, &table)?.into_originals().collect()))
    });
    cases.into_iter().collect()
}
