//! `npubench grid`: declared spaces into rows without measurements.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use clap::Args;

use super::{
    grid_mutate::{self, MutateOptions},
    options::{
        self, AssetOptions, DataKindArg, OutputFormat, check_device, parse_gib, parse_rows, parse_seed,
    },
};
use crate::{
    catalogue::Catalogue,
    config::{AssetFiles, DeviceProfile, YamlError},
    domain::{DataKind, KernelName, did_you_mean_or},
    exit::ExitStatus,
    grid::{
        GridWriter, RejectReason, SelectedCandidates, TargetDatabase, default_budget,
        definition::{GridFiles, GridModels},
    },
    llm::LlmModel,
    report::{
        GridRequest, GrownKernel, ImageFile, coverage_plot, grid_json, grid_notes, grid_table, print_data,
        print_note,
    },
    session::CommandError,
};

/// How a database is grown.
#[derive(Debug, Args)]
pub(super) struct GridOptions {
    /// Only rows of these kernels; of all where none is given
    #[arg(value_name = "KERNEL", value_delimiter = ',')]
    pub(super) kernels: Vec<String>,
    /// Database folder; it is made where it is missing
    // Always there where the command runs: only another command in its place does without.
    #[arg(long, value_name = "DIR", required = true)]
    db: Option<PathBuf>,
    /// Kind of the database: a new one is of kind `npu` where not given, an existing one keeps its own
    #[arg(long, value_enum)]
    pub(super) kind: Option<DataKindArg>,
    /// Device profile of a new database, such as ATLAS_800_A2_313T_64G; by default ATLAS_800_A3_752T_128G_DIE
    #[arg(long, value_name = "NAME")]
    pub(super) device: Option<String>,
    /// Models whose layers are to be covered, such as Qwen3-32B,Qwen3-8B, or paths of a config.json; else ladders are
    #[arg(long, value_name = "ID,ID", value_delimiter = ',')]
    models: Vec<String>,
    /// Only these grid files, in place of the built-in ones and those of `--assets`
    #[arg(long, value_name = "FILE,FILE", value_delimiter = ',')]
    grids: Vec<PathBuf>,
    /// Rows of each kernel from these grids and models, or from these mutations, those of earlier growths included; 0
    /// for all that are valid
    #[arg(long, value_name = "N", default_value = "1000", allow_negative_numbers = true, value_parser = parse_rows)]
    pub(super) rows: usize,
    /// Decides which rows are taken where not all are
    #[arg(long, value_name = "S", default_value = "0", allow_negative_numbers = true, value_parser = parse_seed)]
    pub(super) seed: u64,
    /// Device memory in GiB that a case may need, such as 0.5, up to 1048576; by default 15/16 of what the database's
    /// device has
    #[arg(long, value_name = "G", allow_negative_numbers = true, value_parser = parse_gib)]
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
    /// How the summary is printed; as JSON a line for each kernel (JSON Lines)
    #[arg(long, value_enum, default_value = "plain")]
    pub(super) format: OutputFormat,
}

impl GridOptions {
    /// The database folder.
    pub(super) fn folder(&self) -> &Path {
        self.db.as_deref().unwrap_or(Path::new("."))
    }
}

pub(super) fn run(options: &GridOptions) -> Result<ExitStatus, CommandError> {
    if options.mutate.is_wanted() {
        return grid_mutate::run(options);
    }
    let assets = options.assets.load()?;
    let catalogue = Catalogue::load(&assets)?;
    let models = GridModels::load(&assets, &options.models)?;
    let grids = load(&assets, &models, &options.grids)?;
    let kernels = select_kernels(&grids, &options::parse_kernels(&options.kernels)?, &assets)?;
    check_device(options.device.as_deref(), &options.assets, options.folder())?;
    let plot = options.plot.as_deref().map(|path| ImageFile::new(path, options.folder())).transpose()?;
    let target =
        TargetDatabase::open(options.folder(), options.kind.map(DataKind::from), options.device.as_deref())?;
    let device = DeviceProfile::load(&assets, target.device())?;
    let declared = GridWriter {
        grids: &grids,
        catalogue: &catalogue,
        kernels: &kernels,
        budget: options.max_hbm_gib.unwrap_or_else(|| default_budget(device.hbm_bytes())),
        rows: (options.rows > 0).then_some(options.rows),
        seed: options.seed,
    };
    let grown = target.grow(options.dry_run, |database| declared.grow(database))?;
    models.left_out().iter().for_each(|note| print_note(note));
    for (kernel, place) in grids.without_entry(&catalogue) {
        if kernels.contains(&kernel) {
            print_note(&format!("{place}\nhint: {}", place.hint));
        }
    }
    print_result(options, &catalogue, &device, target.kind(), &grown, plot.as_ref())
}

/// These grid files, or all where none is named.
pub(super) fn load(
    assets: &AssetFiles,
    models: &GridModels,
    files: &[PathBuf],
) -> Result<GridFiles, YamlError> {
    if files.is_empty() {
        GridFiles::load(assets, models)
    } else {
        GridFiles::load_files(assets, models, files)
    }
}

/// The kernels of grids, all or those that are wanted.
pub(super) fn select_kernels(
    grids: &GridFiles,
    wanted: &[KernelName],
    assets: &AssetFiles,
) -> Result<Vec<KernelName>, CommandError> {
    let known = grids.kernels();
    if let Some(missing) = wanted.iter().find(|kernel| !known.contains(kernel)) {
        if LlmModel::load(assets, missing.as_str()).is_ok() {
            let hint = "give models with `--models`, separated by commas and not by blanks";
            return Err(CommandError::bad_input(format!("`{missing}` is a model, no kernel"), hint));
        }
        let hint = did_you_mean_or(missing.as_str(), known.iter().map(KernelName::as_str), || {
            "`npubench grid --dry-run` lists the kernels that grids speak of; of models, only those that have such layers count".to_owned()
        });
        return Err(CommandError::bad_input(format!("no grid speaks of `{missing}`"), hint));
    }
    let wanted: BTreeSet<&KernelName> = wanted.iter().collect();
    Ok(known.into_iter().filter(|kernel| wanted.is_empty() || wanted.contains(kernel)).collect())
}

fn print_result(
    options: &GridOptions,
    catalogue: &Catalogue,
    device: &DeviceProfile,
    kind: DataKind,
    grown: &[(&KernelName, SelectedCandidates<'_>)],
    plot: Option<&ImageFile>,
) -> Result<ExitStatus, CommandError> {
    let kernels: Vec<GrownKernel<'_>> = grown
        .iter()
        .map(|(kernel, grown)| GrownKernel {
            kernel,
            grown,
            fastest: catalogue
                .entry(kernel)
                .filter(|_| options.dry_run)
                .map(|entry| grown.fastest(entry, device)),
        })
        .collect();
    let asked = GridRequest { models: &options.models, seed: options.seed, dry_run: options.dry_run };
    match options.format {
        OutputFormat::Json => print_data(&grid_json(&kernels, &asked)),
        OutputFormat::Plain => print_data(&grid_table(&kernels)),
    }
    grid_notes(&kernels).iter().for_each(|note| print_note(note));
    let rows = kernels.iter().map(|kernel| kernel.grown.rows()).sum();
    let has = |reason| kernels.iter().any(|kernel| kernel.grown.refused().contains_key(&reason));
    print_note(&print_summary(options, device, kind, rows, has));
    if let Some(plot) = plot {
        plot.write(&coverage_plot(&kernels)).map_err(|error| {
            let written = !options.dry_run && kernels.iter().any(|kernel| kernel.grown.rows() > 0);
            let written = if written { "the rows are written, the plot is not: " } else { "" };
            CommandError::bad_input(format!("{written}{error}"), error.hint())
        })?;
        print_note(&format!("plot in {}", plot.path().display()));
    }
    Ok(ExitStatus::Done)
}

/// Where the rows are or would be, and what comes next; `has` says which reasons refused some.
pub(super) fn print_summary(
    options: &GridOptions,
    device: &DeviceProfile,
    kind: DataKind,
    rows: usize,
    has: impl Fn(RejectReason) -> bool,
) -> String {
    let (db, device) = (options.folder().display(), &device.device);
    let place = format!("{db} (kind {kind}, device {device})");
    if rows == 0 {
        let why = if has(RejectReason::NotTaken) {
            format!(
                "there are {} by earlier growths; a larger `--rows` adds some, another `--seed` none",
                options.rows
            )
        } else if has(RejectReason::Known) {
            "all that are valid are there already".to_owned()
        } else {
            "no candidate is valid".to_owned()
        };
        return format!("no rows are added to {place}: {why}");
    }
    if options.dry_run {
        return format!("no rows are written; without `--dry-run` {rows} are, into {place}");
    }
    let host = if kind == DataKind::Rehearsal { " --host rehearsal" } else { "" };
    format!(
        "{rows} rows are added to {place}; next: `npubench check --db {db}`, `npubench run --db {db}{host}`"
    )
}
