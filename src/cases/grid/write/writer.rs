//! Rows of some kernels, selected, appended to their tables in memory, and written to a database, existing or new.

use std::{collections::BTreeMap, path::Path};

use rayon::prelude::*;

use super::{GridRows, MutationCases, read_existing_rows};
use crate::{
    cases::grid::{
        CandidateSource, ExistingCases, ListedCase, SelectedRows, SelectionRequest, definition::GridFiles,
        mutate::CaseMutator, select_rows,
    },
    database::{Database, DatabaseError, KernelCsv, database_file::DatabaseFile, save_tables},
    kernel::{Case, DataKind, KernelName, catalogue::Catalogue, device::DeviceProfile},
};

pub(crate) type ListedCases = BTreeMap<KernelName, Vec<ListedCase>>;

#[derive(Clone, Copy, Debug)]
pub(crate) enum RowSource<'a> {
    Grids { files: &'a GridFiles, kernels: &'a [KernelName] },
    Mutations { mutator: CaseMutator<'a>, cases: &'a MutationCases },
    Listed(&'a ListedCases),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct RowWriter<'a> {
    pub(crate) source: RowSource<'a>,
    pub(crate) catalogue: &'a Catalogue,
    /// The request for each kernel, with the catalogue entry of the kernel.
    pub(crate) request: SelectionRequest<'a>,
    /// Device for [`SelectedRows::fastest`], which is not computed for `None`.
    pub(crate) timed_on: Option<&'a DeviceProfile>,
}

/// Selected rows of a kernel, and its table if it has new rows that are not written yet.
type ExtendedTable<'a> = (SelectedRows<'a>, Option<KernelCsv>);

impl<'a> RowSource<'a> {
    fn kernels(&self) -> Vec<&'a KernelName> {
        match self {
            Self::Grids { kernels, .. } => kernels.iter().collect(),
            Self::Mutations { cases, .. } => cases.kernels().collect(),
            Self::Listed(cases) => cases.keys().collect(),
        }
    }

    fn candidates(&self, kernel: &'a KernelName) -> CandidateSource<'a> {
        match self {
            Self::Grids { files, .. } => CandidateSource::Grid(files.spaces_of_kernel(kernel).collect()),
            Self::Mutations { mutator, cases } => {
                CandidateSource::Mutation { mutator: *mutator, cases: cases.sources(kernel) }
            }
            Self::Listed(cases) => CandidateSource::Listed(
                cases.get(kernel).map(Vec::as_slice).unwrap_or_default().iter().collect(),
            ),
        }
    }

    /// Returns the source cases of a kernel. No mutant may repeat one of them, although cases of a profile have no row.
    fn source_cases(&self, kernel: &KernelName) -> &'a [Case] {
        match self {
            Self::Grids { .. } | Self::Listed(_) => &[],
            Self::Mutations { cases, .. } => cases.of_kernel(kernel),
        }
    }
}

impl<'a> RowWriter<'a> {
    /// Selects the rows of all kernels and appends them to the tables in memory, on all cores.
    fn extend_tables(&self, database: Option<&Database>) -> Result<Vec<ExtendedTable<'a>>, DatabaseError> {
        let tables = self.source.kernels().into_par_iter().map(|kernel| {
            let table = database.map(|database| database.kernel_csv(kernel)).transpose()?;
            let equal = database.map(|database| self.equal_cases(kernel, database)).transpose()?;
            self.extend_table(kernel, table, &equal.unwrap_or_default())
        });
        // All results are collected first, so that the returned error belongs to the first failing kernel in order.
        tables.collect::<Vec<_>>().into_iter().collect()
    }

    /// Returns the cases of rows that have the same call under another name, as cases of this kernel. Kernels to which rows
    /// are added have rows of their own, so that the rows of one do not depend on the order of the tables.
    fn equal_cases(&self, kernel: &KernelName, database: &Database) -> Result<Vec<Case>, DatabaseError> {
        let mut cases = Vec::new();
        let others = self.catalogue.names_with_same_call(kernel).into_iter().skip(1);
        let extended = self.source.kernels();
        for name in others.filter(|name| !extended.contains(&name)) {
            let rows = read_existing_rows(&name, &database.kernel_csv(&name)?)?;
            cases.extend(rows.cases.into_iter().map(|case| Case { kernel: kernel.clone(), ..case }));
        }
        Ok(cases)
    }

    fn extend_table(
        &self,
        kernel: &'a KernelName,
        table: Option<KernelCsv>,
        equal_cases: &[Case],
    ) -> Result<ExtendedTable<'a>, DatabaseError> {
        let rows = table.as_ref().map(|table| read_existing_rows(kernel, table)).transpose()?;
        let rows = rows.unwrap_or_default();
        let mut existing = ExistingCases::with_rows(rows.by_origin);
        for case in rows.cases.iter().chain(equal_cases).chain(self.source.source_cases(kernel)) {
            existing.insert(case);
        }
        let entry = self.catalogue.entry(kernel);
        let request = SelectionRequest { entry, ..self.request };
        let mut selected = select_rows(kernel, self.source.candidates(kernel), &request, &existing);
        selected.fastest =
            entry.zip(self.timed_on).map(|(entry, device)| selected.total_fastest(entry, device));
        let table = table.filter(|_| selected.rows() > 0).map(|mut table| {
            let recorded_inputs = entry.map_or(0, |entry| entry.recorded_inputs);
            let mut rows = GridRows::new(kernel, recorded_inputs, &mut table);
            selected.for_each(|row| rows.append(row.case, &row.attributes(), &row.provenance()));
            table
        });
        Ok((selected, table))
    }
}

/// Database that gets rows; its folder need not exist.
#[derive(Debug)]
pub(crate) struct TargetDatabase<'a> {
    folder: &'a Path,
    database: Option<Database>,
    file: DatabaseFile,
}

impl<'a> TargetDatabase<'a> {
    /// Opens a database, which must be of this kind if it exists.
    pub(crate) fn open(folder: &'a Path, kind: Option<DataKind>) -> Result<Self, DatabaseError> {
        let is_new = Database::is_new(folder)?;
        let database = match (is_new, kind) {
            (true, _) => None,
            (false, Some(kind)) => Some(Database::open_as(folder, kind)?),
            (false, None) => Some(Database::open(folder)?),
        };
        let file = DatabaseFile::new(kind.unwrap_or(DataKind::Npu));
        Ok(Self { folder, database, file })
    }

    pub(crate) fn set_device(&mut self, device: String) {
        self.file.device = device;
    }

    pub(crate) const fn existing(&self) -> Option<&Database> {
        self.database.as_ref()
    }

    pub(crate) fn device(&self) -> &str {
        self.database.as_ref().map_or(self.file.device.as_str(), Database::device)
    }

    pub(crate) fn kind(&self) -> DataKind {
        self.database.as_ref().map_or(self.file.kind, Database::kind)
    }

    /// Selects rows and, unless `dry_run`, writes them, also to a new database; all tables are read before.
    pub(crate) fn add_rows<'w>(
        &self,
        writer: &RowWriter<'w>,
        dry_run: bool,
    ) -> Result<Vec<SelectedRows<'w>>, DatabaseError> {
        let extended = match (&self.database, dry_run) {
            (database, true) => writer.extend_tables(database.as_ref())?,
            (None, false) => {
                let mut extended = Vec::new();
                Database::create(self.folder, &self.file, |draft| {
                    let database = Database::open(draft)?;
                    extended = writer.extend_tables(Some(&database))?;
                    save(&extended)
                })?;
                extended
            }
            (Some(database), false) => {
                let mut lock = database.lock()?;
                database.existing_ledger()?;
                let extended = writer.extend_tables(Some(database))?;
                if extended.iter().any(|(_, table)| table.as_ref().is_some_and(KernelCsv::is_changed)) {
                    database.initialise(&mut lock)?;
                }
                save(&extended)?;
                extended
            }
        };
        Ok(extended.into_iter().map(|(selected, _)| selected).collect())
    }
}

fn save(extended: &[ExtendedTable<'_>]) -> Result<(), DatabaseError> {
    let tables: Vec<&KernelCsv> = extended.iter().filter_map(|(_, table)| table.as_ref()).collect();
    save_tables(&tables)
}
