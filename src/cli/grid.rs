//! `npubench grid`: declared spaces into rows without measurements.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use clap::Args;

use super::{
    Failure,
    options::{self, AssetOptions, Format, KindWord},
};
use crate::{
    exit::Exit,
    grid::{Grown, Known, Order, default_budget, grow},
    model::{KernelName, Kind, meant},
    report::{GrownKernel, coverage_plot, grid_json, grid_table, print_data, print_note},
    spec::{
        Catalogue, DatabaseFile, DeviceProfile,
        grid::{Grids, Models},
    },
    store::{Database, GridRows, KernelCsv, StoreError, tenants, write_atomic},
};

/// How a database is grown.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Only these kernels; all of the grids where none is given
    #[arg(value_name = "KERNEL", value_delimiter = ',')]
    kernels: Vec<String>,
    /// Database folder; it is made where it is missing
    // Always there where the command runs: only another command in its place does without.
    #[arg(long, value_name = "DIR", required = true)]
    db: Option<PathBuf>,
    /// Kind of the database: a new one is of kind `npu` where not given, an existing one keeps its own
    #[arg(long, value_enum)]
    kind: Option<KindWord>,
    /// Models whose layers are to be covered, such as Qwen3-32B, or paths of a config.json; else ladders are
    #[arg(long, value_name = "IDS", value_delimiter = ',')]
    models: Vec<String>,
    /// Rows of each kernel that are from grids, those of earlier growths included; 0 for all that are valid
    #[arg(long, value_name = "N", default_value_t = 1000)]
    rows: usize,
    /// Decides which rows are taken where not all are
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// Device memory that a case may need; by default 15/16 of the device's
    #[arg(long, value_name = "G", value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    max_hbm_gib: Option<u64>,
    /// Say what would be done, and write nothing
    #[arg(long)]
    dry_run: bool,
    /// Draw the rows of each kernel over its two longest axes
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    #[command(flatten)]
    assets: AssetOptions,
    /// How the summary is printed
    #[arg(long, value_enum, default_value = "plain")]
    format: Format,
}

pub(super) fn run(options: &Options) -> Result<Exit, Failure> {
    let folder = options.db.as_deref().unwrap_or(Path::new("."));
    let assets = options.assets.load()?;
    let catalogue = Catalogue::load(&assets)?;
    let grids = Grids::load(&assets, &Models::load(&assets, &options.models)?)?;
    let kernels = chosen(&grids, &options::kernels(&options.kernels)?)?;
    let is_new = fs::read_dir(folder).map_or(true, |mut entries| entries.next().is_none());
    let kind = options.kind.map(Kind::from);
    let database = match (is_new, kind) {
        (true, _) => None,
        (false, Some(kind)) => Some(Database::open_as(folder, kind)?),
        (false, None) => Some(Database::open(folder)?),
    };
    let file = DatabaseFile::new(kind.unwrap_or(Kind::Npu));
    let device = database.as_ref().map_or(file.device.as_str(), Database::device);
    let device = DeviceProfile::load(&assets, device)?;
    let work = Work {
        grids: &grids,
        catalogue: &catalogue,
        kernels: &kernels,
        budget: options.max_hbm_gib.map_or_else(|| default_budget(device.hbm_bytes()), |gib| gib << 30),
        rows: (options.rows > 0).then_some(options.rows),
        seed: options.seed,
    };
    let grown = match (&database, options.dry_run) {
        (None, true) => work.grow(None)?,
        (Some(database), true) => work.grow(Some(database))?,
        (None, false) => {
            let mut grown = Vec::new();
            Database::create(folder, &file, |draft| {
                let database = Database::open(draft)?;
                grown = work.grow(Some(&database))?;
                save(&grown)
            })?;
            grown
        }
        (Some(database), false) => {
            let mut lock = database.lock()?;
            database.existing_ledger()?;
            let grown = work.grow(Some(database))?;
            if grown.iter().any(|kernel| kernel.table.as_ref().is_some_and(KernelCsv::is_changed)) {
                database.adopt(&mut lock)?;
            }
            save(&grown)?;
            grown
        }
    };
    tell(options, &catalogue, &device, &grown)
}

pub(super) fn chosen(grids: &Grids, wanted: &[KernelName]) -> Result<Vec<KernelName>, Failure> {
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

/// Writes all tables; each is written whole or not at all.
fn save(grown: &[Grew<'_>]) -> Result<(), StoreError> {
    let tables: Vec<&KernelCsv> = grown.iter().filter_map(|kernel| kernel.table.as_ref()).collect();
    in_parallel(tables.len(), |index| tables[index].save().map(drop)).into_iter().collect()
}

/// Does so many things on all cores; results are in the order of their numbers.
pub(super) fn in_parallel<T: Send>(count: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(count));
    let workers = thread::available_parallelism().map_or(1, usize::from).min(count);
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        break;
                    }
                    let result = work(index);
                    done.lock().unwrap_or_else(PoisonError::into_inner).push((index, result));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
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
