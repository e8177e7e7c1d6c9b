//! Options of `npubench grid --mutate`: mutations and the cases that they change.

use std::path::PathBuf;

use clap::Args;

use crate::{
    domain::{DataKind, KernelName, did_you_mean_or},
    grid::{
        CasesByKernel, MutationCases, MutationCasesError, TargetDatabase,
        definition::{Mutation, MutationFile},
    },
    session::CommandError,
};

/// Heading of the options in the help.
const HEADING: &str = "Mutations";

/// Mutations, and the cases that they change.
#[derive(Debug, Args)]
pub(super) struct MutateOptions {
    /// Instead of grids: existing cases with one change each, by all mutations of grids/mutations.yaml or by these
    #[arg(
        long,
        help_heading = HEADING,
        value_name = "NAMES",
        num_args = 0..=1,
        require_equals = true,
        value_delimiter = ',',
        default_missing_value = "",
        conflicts_with_all = ["models", "grids", "plot"]
    )]
    mutate: Option<Vec<String>>,
    /// Mutate the cases of a profile instead of those of the database; may be repeated
    #[arg(long, help_heading = HEADING, value_name = "PROFILE", requires = "mutate")]
    from: Vec<PathBuf>,
}

impl MutateOptions {
    pub(super) const fn is_requested(&self) -> bool {
        self.mutate.is_some()
    }

    /// Refuses the name of a mutation in the place of a kernel: `--mutate scale` in place of `--mutate=scale`.
    pub(super) fn check_kernels(
        &self,
        mutations: &MutationFile,
        kernels: &[KernelName],
    ) -> Result<(), CommandError> {
        let mistaken = kernels.iter().find(|kernel| mutations.named(kernel.as_str()).is_some());
        mistaken.map_or(Ok(()), |name| {
            Err(CommandError::bad_input(
                format!("`{name}` is a mutation, not a kernel"),
                format!("write `--mutate={name}`, with an equals sign"),
            ))
        })
    }

    /// Returns the requested mutations, or all if none is named.
    pub(super) fn select_mutations<'a>(
        &self,
        mutations: &'a MutationFile,
    ) -> Result<Vec<&'a Mutation>, CommandError> {
        let names = self.mutate.iter().flatten().filter(|name| !name.is_empty());
        let selected = names.map(|name| {
            mutations.named(name).ok_or_else(|| {
                let known: Vec<&str> = mutations.all().iter().map(|one| one.name.as_str()).collect();
                let hint = did_you_mean_or(name, known.iter().copied(), || {
                    format!("known mutations: {}", known.join(", "))
                });
                CommandError::bad_input(format!("unknown mutation `{name}`"), hint)
            })
        });
        let selected: Vec<&Mutation> = selected.collect::<Result<_, _>>()?;
        Ok(if selected.is_empty() { mutations.all().iter().collect() } else { selected })
    }

    /// Reads the cases of the profiles or, if none is given, of the database.
    pub(super) fn read_cases(
        &self,
        target: &TargetDatabase<'_>,
        kind: DataKind,
    ) -> Result<CasesByKernel, MutationCasesError> {
        Ok(match (&self.from[..], target.existing()) {
            ([], None) => CasesByKernel::new(),
            ([], Some(database)) => MutationCases::read_database(database)?,
            (profiles, _) => MutationCases::read_profiles(profiles, kind)?,
        })
    }
}
