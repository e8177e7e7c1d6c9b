//! Options of `npubench grid` for rows that are not from grids: those that an audit misses, mutations, steps of models.

use super::prelude::*;
use crate::{
    answer::workload::parse_weighted_path,
    cases::grid::definition::{Mutation, MutationFile},
};

const AUDIT: &str = "Rows that an audit misses";
const MUTATIONS: &str = "Mutations";

#[derive(Debug, Args)]
pub(super) struct FillAuditOptions {
    /// Instead of grids: the rows that `npubench grid audit` misses for workloads and for the steps of `--models`
    #[arg(long, help_heading = AUDIT, conflicts_with_all = ["grids", "plot", "mutate"])]
    pub(super) fill_audit: bool,
    /// Workloads whose questions are audited
    #[arg(long = "workload", help_heading = AUDIT, value_name = "FILE[=WEIGHT]", num_args = 1..,
          requires = "fill_audit", value_parser = parse_weighted_path)]
    pub(super) workloads: Vec<(PathBuf, f64)>,
}

#[derive(Debug, Args)]
pub(super) struct MutateOptions {
    /// Instead of grids: existing cases with one change each, by all mutations of grids/mutations.yaml or by these,
    /// such as scale,int8
    #[arg(
        long,
        help_heading = MUTATIONS,
        value_name = "NAMES",
        num_args = 0..=1,
        value_delimiter = ',',
        default_missing_value = "",
        conflicts_with_all = ["models", "grids", "plot"]
    )]
    pub(super) mutate: Option<Vec<String>>,
    /// Mutate the cases of a profile instead of those of the database; may be repeated
    #[arg(long, help_heading = MUTATIONS, value_name = "PROFILE", requires = "mutate")]
    pub(super) from: Vec<PathBuf>,
}

impl MutateOptions {
    /// Returns the requested mutations, or all if none is named, and the kernels: the kernels of the other options, and
    /// those that follow `--mutate` in the place of mutations.
    pub(super) fn select_mutations<'a>(
        &self,
        mutations: &'a MutationFile,
        catalogue: &Catalogue,
        mut kernels: Vec<KernelName>,
    ) -> Result<(Vec<&'a Mutation>, Vec<KernelName>), CommandError> {
        if let Some(name) = kernels.iter().find(|kernel| mutations.named(kernel.as_str()).is_some()) {
            return Err(CommandError::bad_input(
                format!("`{name}` is a mutation, not a kernel"),
                "list mutations after `--mutate`, separated by commas",
            ));
        }
        let mut names = Vec::new();
        for name in self.mutate.iter().flatten().filter(|name| !name.is_empty()) {
            let kernel = KernelName::new(name).ok().filter(|kernel| catalogue.entry(kernel).is_some());
            match kernel.filter(|_| mutations.named(name).is_none()) {
                Some(kernel) => kernels.push(kernel),
                None => names.push(name),
            }
        }
        let selected = names.into_iter().map(|name| {
            mutations.named(name).ok_or_else(|| {
                let known = mutations.all().iter().map(|one| one.name.as_str());
                let hint = did_you_mean_one_of(name, known, "known mutations:");
                CommandError::bad_input(format!("unknown mutation `{name}`"), hint)
            })
        });
        let selected: Vec<&Mutation> = selected.collect::<Result<_, _>>()?;
        let selected = if selected.is_empty() { mutations.all().iter().collect() } else { selected };
        Ok((selected, kernels))
    }
}
