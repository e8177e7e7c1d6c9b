//! `npubench grid --mutate`: cases that are there into others that differ in one thing.

use std::{collections::BTreeSet, path::PathBuf};

use clap::Args;

use super::{
    grid,
    options::{self, OutputFormat, check_device},
};
use crate::{
    catalogue::Catalogue,
    config::DeviceProfile,
    domain::{DataKind, KernelName, did_you_mean_or},
    exit::ExitStatus,
    grid::{
        MutantWriter, TargetDatabase, cases_of_profiles, default_budget,
        definition::{Mutation, MutationFile},
        mutate::{CaseMutator, MutationOrder, MutationSummary},
    },
    report::{GridRequest, mutants_json, mutants_notes, mutants_table, print_data, print_note},
    session::CommandError,
};

/// Where the options stand in the help.
const HEADING: &str = "Mutations";

/// What is changed, and in which cases.
#[derive(Debug, Args)]
pub(super) struct MutateOptions {
    /// Instead of grids: cases that are in the database already, each with one thing changed; all that
    /// grids/mutations.yaml declares, or these
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
    /// Change cases of a profile, not those of the database; may be given several times
    #[arg(long, help_heading = HEADING, value_name = "PROFILE", requires = "mutate")]
    from: Vec<PathBuf>,
}

impl MutateOptions {
    pub(super) const fn is_wanted(&self) -> bool {
        self.mutate.is_some()
    }

    fn selected_mutations<'a>(&self, mutations: &'a MutationFile) -> Result<Vec<&'a Mutation>, CommandError> {
        let names = self.mutate.iter().flatten().filter(|name| !name.is_empty());
        let chosen = names.map(|name| {
            mutations.named(name).ok_or_else(|| {
                let known: Vec<&str> = mutations.all().iter().map(|one| one.name.as_str()).collect();
                let hint = did_you_mean_or(name, known.iter().copied(), || {
                    format!("there are {}", known.join(", "))
                });
                CommandError::bad_input(format!("there is no mutation `{name}`"), hint)
            })
        });
        let chosen: Vec<&Mutation> = chosen.collect::<Result<_, _>>()?;
        Ok(if chosen.is_empty() { mutations.all().iter().collect() } else { chosen })
    }
}

pub(super) fn run(options: &grid::GridOptions) -> Result<ExitStatus, CommandError> {
    let assets = options.assets.load()?;
    let catalogue = Catalogue::load(&assets)?;
    let mutations = MutationFile::load(&assets)?;
    let mutations = options.mutate.selected_mutations(&mutations)?;
    let wanted: BTreeSet<KernelName> = options::parse_kernels(&options.kernels)?.into_iter().collect();
    check_device(options.device.as_deref(), &options.assets, options.folder())?;
    let target =
        TargetDatabase::open(options.folder(), options.kind.map(DataKind::from), options.device.as_deref())?;
    let device = DeviceProfile::load(&assets, target.device())?;
    let profiled = match &options.mutate.from[..] {
        [] => None,
        paths => Some(cases_of_profiles(paths, target.kind())?),
    };
    let budget = options.max_hbm_gib.unwrap_or_else(|| default_budget(device.hbm_bytes()));
    let order = MutationOrder {
        mutator: CaseMutator { mutations: &mutations, catalogue: &catalogue, device: &device },
        budget,
        rows: (options.rows > 0).then_some(options.rows),
        seed: options.seed,
    };
    let mutants =
        MutantWriter { order, profiled: profiled.as_ref(), wanted: &wanted, is_timed: options.dry_run };
    let grown = target.grow(options.dry_run, |database| mutants.grow(database))?;
    print_result(options, &device, target.kind(), &grown);
    Ok(ExitStatus::Done)
}

fn print_result(
    options: &grid::GridOptions,
    device: &DeviceProfile,
    kind: DataKind,
    kernels: &[MutationSummary],
) {
    let asked = GridRequest { models: &[], seed: options.seed, dry_run: options.dry_run };
    match options.format {
        OutputFormat::Json => print_data(&mutants_json(kernels, &asked)),
        OutputFormat::Plain => print_data(&mutants_table(kernels)),
    }
    mutants_notes(kernels).iter().for_each(|note| print_note(note));
    let rows = kernels.iter().map(|kernel| kernel.rows).sum();
    let has = |reason| kernels.iter().any(|kernel| kernel.refused.contains_key(&reason));
    print_note(&grid::print_summary(options, device, kind, rows, has));
}
