use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use rayon::prelude::*;

use super::read_existing_rows;
use crate::{
    base::{command_error::Failure, suggest::did_you_mean_or},
    cases::grid::mutate::CaseMutator,
    database::{Database, DatabaseError},
    kernel::{Case, DataKind, KernelName},
    profile::{
        DiscoveredProfiles, ProfileError, ProfileFile, RankCounts, ReadOptions, RecordGroups, add_attributes,
        add_table,
    },
};

pub(crate) type CasesByKernel = BTreeMap<KernelName, Vec<Case>>;

#[derive(Debug)]
pub(crate) struct MutationCases {
    cases: CasesByKernel,
    /// Kernels of the mutants, each with the kernels of its source cases.
    targets: BTreeMap<KernelName, Vec<KernelName>>,
}

impl MutationCases {
    /// Selects the kernels in `wanted` or, if it is empty, all; a wanted kernel without mutants is an error.
    pub(crate) fn new(
        cases: CasesByKernel,
        mutator: &CaseMutator<'_>,
        wanted: &BTreeSet<KernelName>,
    ) -> Result<Self, MutationCasesError> {
        if cases.values().all(Vec::is_empty) {
            return Err(MutationCasesError::NoCase);
        }
        let mut targets = mutator.target_kernels(&cases.keys().cloned().collect());
        if let Some(missing) = wanted.iter().find(|kernel| !targets.contains_key(*kernel)) {
            let known = targets.into_keys().collect();
            return Err(MutationCasesError::NoMutants { kernel: missing.clone(), known });
        }
        targets.retain(|kernel, _| wanted.is_empty() || wanted.contains(kernel));
        Ok(Self { cases, targets })
    }

    /// Reads the cases of profiles, with the attributes that can be derived.
    pub(crate) fn read_profiles(paths: &[PathBuf], kind: DataKind) -> Result<CasesByKernel, ProfileError> {
        let mut groups = RecordGroups::default();
        let DiscoveredProfiles { files, .. } = ProfileFile::find_all(paths)?;
        let read = ReadOptions { accept_rehearsed: kind == DataKind::Rehearsal, workers: None };
        for (file, number) in files.iter().zip(0..) {
            add_table(&mut groups, &file.0, number, read)?;
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

    /// Reads the cases of a database, on all cores, without mutants.
    pub(crate) fn read_database(database: &Database) -> Result<CasesByKernel, DatabaseError> {
        let cases = database.kernels()?.into_par_iter().map(|kernel| {
            let rows = read_existing_rows(&kernel, &database.kernel_csv(&kernel)?)?;
            Ok((kernel, rows.into_originals().collect()))
        });
        cases.collect::<Vec<_>>().into_iter().collect()
    }

    pub(super) fn kernels(&self) -> impl Iterator<Item = &KernelName> {
        self.targets.keys()
    }

    pub(super) fn sources(&self, kernel: &KernelName) -> Vec<&Case> {
        let sources = self.targets.get(kernel).into_iter().flatten();
        sources.filter_map(|source| self.cases.get(source)).flatten().collect()
    }

    pub(super) fn of_kernel(&self, kernel: &KernelName) -> &[Case] {
        self.cases.get(kernel).map(Vec::as_slice).unwrap_or_default()
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum MutationCasesError {
    #[error(transparent)]
    Database(#[from] DatabaseError),
    #[error(transparent)]
    Profile(#[from] ProfileError),
    #[error("the database and `--from` contain no case to mutate")]
    NoCase,
    #[error("no case has mutants of `{kernel}`")]
    NoMutants { kernel: KernelName, known: Vec<KernelName> },
}

impl Failure for MutationCasesError {
    fn hint(&self) -> String {
        match self {
            Self::Database(error) => error.hint(),
            Self::Profile(error) => error.hint(),
            Self::NoCase => {
                "add cases to the database with `npubench ingest` or `npubench grid`, or give a profile with `--from`".to_owned()
            }
            Self::NoMutants { kernel, known } => {
                let known: Vec<&str> = known.iter().map(KernelName::as_str).collect();
                did_you_mean_or(kernel.as_str(), known.iter().copied(), || {
                    format!("kernels with mutants: {}", known.join(", "))
                })
            }
        }
    }
}
