//! `npubench grid --mutate`: cases that are there into others that differ in one thing.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use clap::Args;

use super::{
    Failure, grid,
    grid_tables::{Target, in_parallel},
    options::{self, Format, check_device},
};
use crate::{
    exit::Exit,
    grid::{
        Known, default_budget,
        mutate::{MutationOrder, Mutator, mutate, targets},
    },
    model::{Case, KernelName, Kind, meant},
    profile::{Found, Groups, ProfileFile, ReadOptions, add_table, say_attributes},
    report::{Asked, MutatedKernel, mutants_json, mutants_notes, mutants_table, print_data, print_note},
    spec::{
        Catalogue, DeviceProfile,
        grid::{Mutation, Mutations},
    },
    store::{Database, GridRows, KernelCsv, StoreError, tenants},
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

    fn chosen<'a>(&self, mutations: &'a Mutations) -> Result<Vec<&'a Mutation>, Failure> {
        let names = self.mutate.iter().flatten().filter(|name| !name.is_empty());
        let chosen = names.map(|name| {
            mutations.named(name).ok_or_else(|| {
                let known: Vec<&str> = mutations.all().iter().map(|one| one.name.as_str()).collect();
                let hint = meant(name, known.iter().copied(), || format!("there are {}", known.join(", ")));
                Failure::bad_input(format!("there is no mutation `{name}`"), hint)
            })
        });
        let chosen: Vec<&Mutation> = chosen.collect::<Result<_, _>>()?;
        Ok(if chosen.is_empty() { mutations.all().iter().collect() } else { chosen })
    }
}

/// Cases by kernel.
type Cases = BTreeMap<KernelName, Vec<Case>>;

pub(super) fn run(options: &grid::Options) -> Result<Exit, Failure> {
    let assets = options.assets.load()?;
    let catalogue = Catalogue::load(&assets)?;
    let mutations = Mutations::load(&assets)?;
    let mutations = options.mutate.chosen(&mutations)?;
    let wanted: BTreeSet<KernelName> = options::kernels(&options.kernels)?.into_iter().collect();
    check_device(options.device.as_deref(), &options.assets, &options.db)?;
    let target = Target::open(&options.db, options.kind.map(Kind::from), options.device.as_deref())?;
    let device = DeviceProfile::load(&assets, target.device())?;
    let profiled = match &options.mutate.from[..] {
        [] => None,
        paths => Some(cases_of_profiles(paths, target.kind())?),
    };
    let budget = options.max_hbm_gib.unwrap_or_else(|| default_budget(device.hbm_bytes()));
    let order = MutationOrder {
        mutator: Mutator { mutations: &mutations, catalogue: &catalogue, device: &device },
        budget,
        rows: (options.rows > 0).then_some(options.rows),
        seed: options.seed,
    };
    let work = Work { order, profiled: profiled.as_ref(), wanted: &wanted, is_timed: options.dry_run };
    let grown = target.grow(options.dry_run, |database| work.grow(database), |(_, table)| table.as_ref())?;
    tell(options, &device, target.kind(), &grown.into_iter().map(|(kernel, _)| kernel).collect::<Vec<_>>());
    Ok(Exit::Done)
}

/// The cases of profiles, with the attributes that can be known.
fn cases_of_profiles(paths: &[PathBuf], kind: Kind) -> Result<Cases, Failure> {
    let mut groups = Groups::default();
    let Found { files, .. } = ProfileFile::find_all(paths)?;
    let read = ReadOptions { accept_rehearsed: kind == Kind::Rehearsal, workers: None };
    for (file, number) in files.iter().zip(0..) {
        add_table(&mut groups, &file.0, number, read)?;
    }
    let mut kernels = groups.into_kernels();
    say_attributes(&mut kernels, &files, None)?;
    let cases = kernels.into_iter().map(|(kernel, groups)| {
        let cases = groups.into_iter().map(|group| group.case);
        (kernel, cases.collect())
    });
    Ok(cases.collect())
}

/// What is to be done to tables.
struct Work<'a> {
    order: MutationOrder<'a>,
    /// Cases of profiles, where they count in place of the database's.
    profiled: Option<&'a Cases>,
    wanted: &'a BTreeSet<KernelName>,
    is_timed: bool,
}

/// What became of a kernel, with its table where it has more rows now.
type Grew = (MutatedKernel, Option<KernelCsv>);

impl Work<'_> {
    fn grow(&self, database: Option<&Database>) -> Result<Vec<Grew>, Failure> {
        let own;
        let cases = match (self.profiled, database) {
            (Some(cases), _) => cases,
            (None, database) => {
                own = database.map_or(Ok(Cases::new()), cases_of_database)?;
                &own
            }
        };
        if cases.values().all(Vec::is_empty) {
            return Err(Failure::bad_input(
                "there is no case to mutate",
                "`npubench ingest` brings a profile's cases, `npubench grid` declared ones, `--from` names a profile",
            ));
        }
        let targets = targets(&self.order.mutator, &cases.keys().cloned().collect());
        if let Some(missing) = self.wanted.iter().find(|kernel| !targets.contains_key(*kernel)) {
            let known: Vec<&str> = targets.keys().map(KernelName::as_str).collect();
            let hint = meant(missing.as_str(), known.iter().copied(), || {
                format!("there are mutants of {}", known.join(", "))
            });
            return Err(Failure::bad_input(format!("no case has mutants of `{missing}`"), hint));
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
        Ok(grown.into_iter().collect::<Result<_, StoreError>>()?)
    }

    fn grow_kernel(
        &self,
        kernel: &KernelName,
        sources: Vec<&Case>,
        cases: &[Case],
        table: Option<KernelCsv>,
    ) -> Result<Grew, StoreError> {
        let tenants = table.as_ref().map(|table| tenants(kernel, table)).transpose()?.unwrap_or_default();
        let mut known = Known::with_rows(tenants.mutated);
        for case in tenants.cases.iter().chain(cases) {
            known.insert(case);
        }
        let mutated = mutate(kernel, sources, self.order, &known);
        let Mutator { catalogue, device, .. } = self.order.mutator;
        let fastest = self.is_timed.then(|| mutated.fastest(catalogue, device));
        let told = MutatedKernel::of(kernel, &mutated, fastest);
        let Some(mut table) = table.filter(|_| mutated.rows() > 0) else { return Ok((told, None)) };
        let mut rows = GridRows::new(kernel, &mut table);
        mutated.for_each(|case, provenance| {
            let attributes = case.attributes.iter().map(|(column, text)| (column, text.to_owned()));
            rows.append(case, &attributes.collect::<Vec<_>>(), provenance);
            Ok::<(), StoreError>(())
        })?;
        Ok((told, Some(table)))
    }
}

/// The cases of all rows that are no mutants.
fn cases_of_database(database: &Database) -> Result<Cases, StoreError> {
    let kernels = database.kernels()?;
    let cases = in_parallel(kernels.len(), |index| {
        let kernel = &kernels[index];
        let table = database.kernel_csv(kernel)?;
        Ok((kernel.clone(), tenants(kernel, &table)?.into_originals().collect()))
    });
    cases.into_iter().collect()
}

fn tell(options: &grid::Options, device: &DeviceProfile, kind: Kind, kernels: &[MutatedKernel]) {
    let asked = Asked { models: &[], seed: options.seed, dry_run: options.dry_run };
    match options.format {
        Format::Json => print_data(&mutants_json(kernels, &asked)),
        Format::Plain => print_data(&mutants_table(kernels)),
    }
    mutants_notes(kernels).iter().for_each(|note| print_note(note));
    let rows = kernels.iter().map(|kernel| kernel.rows).sum();
    let has = |reason| kernels.iter().any(|kernel| kernel.refused.contains_key(&reason));
    print_note(&grid::closing(options, device, kind, rows, has));
}
