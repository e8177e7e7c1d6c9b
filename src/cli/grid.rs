//! `npubench grid`: declared spaces into rows without measurements.

use std::{collections::BTreeSet, path::PathBuf};

use clap::Args;

use super::{
    Failure,
    grid_mutate::{self, MutateOptions},
    grid_tables::{Target, in_parallel},
    options::{self, AssetOptions, Format, KindWord},
};
use crate::{
    exit::Exit,
    grid::{Grown, Known, Order, default_budget, grow},
    model::{KernelName, meant},
    report::{GrownKernel, coverage_plot, grid_json, grid_table, print_data, print_note},
    spec::{
        Catalogue, DeviceProfile,
        grid::{Grids, Models},
    },
    store::{Database, GridRows, KernelCsv, StoreError, tenants, write_atomic},
};

/// Expands grids into cases without measurements
///
/// Candidates that contradict a grid's constraints or the catalogue's shape rule, do not fit the memory, or stand
/// in the database already are left out; of the rest a sample over small and large shapes becomes rows.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Only rows of these kernels; of all where none is given
    #[arg(value_name = "KERNEL", value_delimiter = ',')]
    pub(super) kernels: Vec<String>,
    /// Database folder; it is made where it is missing
    #[arg(long, value_name = "DIR")]
    pub(super) db: PathBuf,
    /// Kind of the database: a new one is of kind `npu` where not given, an existing one keeps its own
    #[arg(long, value_enum)]
    pub(super) kind: Option<KindWord>,
    /// Models whose layers are to be covered, such as Qwen3-32B, or paths of a config.json; else ladders are
    #[arg(long, value_name = "IDS", value_delimiter = ',')]
    models: Vec<String>,
    /// Rows of each kernel that are from grids, or mutants, those of earlier growths included; 0 for all that are
    /// valid
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub(super) rows: usize,
    /// Decides which rows are taken where not all are
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub(super) seed: u64,
    /// Device memory that a case may need; by default 15/16 of the device's
    #[arg(long, value_name = "G", value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub(super) max_hbm_gib: Option<u64>,
    /// Say what would be done, and write nothing
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Draw the rows of each kernel over its two longest axes
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    #[command(flatten)]
    pub(super) mutate: MutateOptions,
    #[command(flatten)]
    pub(super) assets: AssetOptions,
    /// How the summary is printed
    #[arg(long, value_enum, default_value = "plain")]
    pub(super) format: Format,
}

pub(super) fn run(options: &Options) -> Result<Exit, Failure> {
    if options.mutate.is_wanted() {
        return grid_mutate::run(options);
    }
    let assets = options.assets.load()?;
    let catalogue = Catalogue::load(&assets)?;
    let grids = Grids::load(&assets, &Models::load(&assets, &options.models)?)?;
    let kernels = chosen(&grids, &options::kernels(&options.kernels)?)?;
    let target = Target::open(&options.db, options.kind)?;
    let device = DeviceProfile::load(&assets, target.device())?;
    let work = Work {
        grids: &grids,
        catalogue: &catalogue,
        kernels: &kernels,
        budget: options.max_hbm_gib.map_or_else(|| default_budget(device.hbm_bytes()), |gib| gib << 30),
        rows: (options.rows > 0).then_some(options.rows),
        seed: options.seed,
    };
    let grown =
        target.grow(options.dry_run, |database| Ok(work.grow(database)?), |one| one.table.as_ref())?;
    tell(options, &catalogue, &device, &grown)
}

fn chosen(grids: &Grids, wanted: &[KernelName]) -> Result<Vec<KernelName>, Failure> {
    let known = grids.kernels();
    if let Some(missing) = wanted.iter().find(|kernel| !known.contains(kernel)) {
        let hint = meant(missing.as_str(), known.iter().map(KernelName::as_str), || {
            "`npubench grid --dry-run` lists the kernels that grids speak of; of models, only those that have such layers count".to_owned()
        });
        return Err(Failure::bad_input(format!("no grid speaks of `{missing}`"), hint));
    }
    let wanted: BTreeSet<&KernelName> = wanted.iter().collect();
    Ok(known.into_iter().filter(|kernel| wanted.is_empty() || wanted.contains(kernel)).collect())
}

/// What is to be grown.
struct Work<'a> {
    grids: &'a Grids,
    catalogue: &'a Catalogue,
    kernels: &'a [KernelName],
    budget: u64,
    rows: Option<usize>,
    seed: u64,
}

/// One kernel, with its table where there is one and rows were added.
struct Grew<'a> {
    kernel: &'a KernelName,
    grown: Grown<'a>,
    table: Option<KernelCsv>,
}

impl<'a> Work<'a> {
    /// Grows all kernels in memory, on all cores.
    fn grow(&self, database: Option<&Database>) -> Result<Vec<Grew<'a>>, StoreError> {
        let done = in_parallel(self.kernels.len(), |index| {
            let kernel = &self.kernels[index];
            let table = database.map(|database| database.kernel_csv(kernel)).transpose()?;
            self.grow_kernel(kernel, table)
        });
        done.into_iter().collect()
    }

    fn grow_kernel(&self, kernel: &'a KernelName, table: Option<KernelCsv>) -> Result<Grew<'a>, StoreError> {
        let tenants = table.as_ref().map(|table| tenants(kernel, table)).transpose()?.unwrap_or_default();
        let mut known = Known::default();
        for case in &tenants.cases {
            known.insert(case);
        }
        let order = Order {
            entry: self.catalogue.entry(kernel),
            budget: self.budget,
            rows: self.rows,
            seed: self.seed,
        };
        let grown = grow(self.grids.of(kernel).collect(), &order, &known, tenants.grown);
        let Some(mut table) = table.filter(|_| grown.rows() > 0) else {
            return Ok(Grew { kernel, grown, table: None });
        };
        let mut rows = GridRows::new(kernel, &mut table);
        grown.for_each(|space, numbers, draft| {
            // A candidate whose attributes have no value was refused.
            let attributes = draft.cells(numbers).unwrap_or_default();
            rows.append(draft.filled(), &attributes, &space.provenance(self.seed));
            Ok::<(), StoreError>(())
        })?;
        Ok(Grew { kernel, grown, table: Some(table) })
    }
}

fn tell(
    options: &Options,
    catalogue: &Catalogue,
    device: &DeviceProfile,
    grown: &[Grew<'_>],
) -> Result<Exit, Failure> {
    let kernels: Vec<GrownKernel<'_>> = grown
        .iter()
        .map(|Grew { kernel, grown, .. }| GrownKernel {
            kernel,
            grown,
            fastest: catalogue
                .entry(kernel)
                .filter(|_| options.dry_run)
                .map(|entry| grown.fastest(entry, device)),
        })
        .collect();
    if let Some(plot) = &options.plot {
        write_atomic(plot, coverage_plot(&kernels).as_bytes())?;
    }
    match options.format {
        Format::Json => print_data(&grid_json(&kernels)),
        Format::Plain => print_data(&grid_table(&kernels)),
    }
    for GrownKernel { kernel, grown, .. } in &kernels {
        if let Some(example) = &grown.example {
            print_note(&format!("{kernel}: the rule refuses such as: {example}"));
        }
    }
    if options.dry_run {
        print_note("nothing is written; without `--dry-run` these rows are");
    }
    Ok(Exit::Done)
}
