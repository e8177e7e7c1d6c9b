//! `npubench grid`: rows without measurements from grids, or from mutations of cases.

use super::{
    grid_options::{FillAuditOptions, MutateOptions},
    prelude::*,
};
use crate::{
    answer::step_cases::{StepSelection, missing_cases},
    base::{shell_argument::quoted_argument, yaml::YamlError},
    cases::{
        grid::{
            CandidateSource, CandidatesByKernel, CasesByKernel, RejectReason, RowWriter, SelectedRows,
            SelectionRequest, database_cases,
            definition::{GridFiles, MutationFile},
            mutate::CaseMutator,
            mutation_sources, profile_cases,
        },
        llm::LlmModel,
    },
    measure::{
        device_choice::{DeviceChoice, chip_of_host, choose_device},
        filtered_cases::candidate_filter,
    },
    profile::DeviceEvidence,
    show::{
        grid::{GridRecord, grid_notes, grid_shapes, grid_table},
        grid_plot::coverage_plot,
    },
};

#[derive(Debug, Args)]
pub(super) struct GridOptions {
    #[command(flatten)]
    kernels: KernelArguments,
    /// Database folder; created if it does not exist
    // Always given when this command runs; only a subcommand does without.
    #[arg(long, value_name = "DIR", env = DATABASE_VARIABLE, required = true)]
    db: Option<PathBuf>,
    /// Kind of the database: by default `npu` for a new one and its own for an existing one
    #[arg(long, value_enum)]
    kind: Option<DataKind>,
    /// Device profile of a new database, such as ATLAS_800_A2_313T_64G; by default that of NPUBENCH_DEVICE or of this
    /// host. A database of kind `rehearsal` and a dry run may assume one
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// Models whose layer sizes are used instead of ladders, such as Qwen3-32B,Qwen3-8B, or paths of a config.json
    #[arg(long, alias = "model", value_name = "ID,ID", value_delimiter = ',')]
    models: Vec<String>,
    /// Grid files to use instead of the built-in ones and those of `--assets`
    #[arg(long, value_name = "FILE,FILE", value_delimiter = ',')]
    grids: Vec<PathBuf>,
    /// Rows of each kernel from these grids and models, or from these mutations, existing ones included; 0 for all valid
    /// candidates
    #[arg(long, value_name = "N", default_value = "1000", allow_negative_numbers = true, value_parser = parse_rows)]
    rows: usize,
    /// Seed of the sample, if not all valid candidates become rows
    #[arg(long, value_name = "S", default_value = "0", allow_negative_numbers = true, value_parser = parse_seed)]
    seed: u64,
    /// Device memory in GiB that a case may need, such as 0.5, up to 1048576; by default 15/16 of the memory of the
    /// database's device
    #[arg(long, value_name = "G", allow_negative_numbers = true, value_parser = parse_gib)]
    max_hbm_gib: Option<u64>,
    /// Print the result without writing anything
    #[arg(long)]
    dry_run: bool,
    /// Also list the shapes of the rows; a dry run with steps of models lists them anyway
    #[arg(long)]
    shapes: bool,
    /// Draw the rows of each kernel over its two axes with most values
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    #[command(flatten)]
    filter: FilterOption,
    #[command(flatten)]
    steps: StepSelection,
    #[command(flatten)]
    audit: FillAuditOptions,
    #[command(flatten)]
    mutate: MutateOptions,
    #[command(flatten)]
    common: CommonOptions<TableOptions>,
}

impl GridOptions {
    fn folder(&self) -> &Path {
        self.db.as_deref().unwrap_or(Path::new("."))
    }
}

pub(super) fn run(options: &GridOptions) -> Result<ExitStatus, CommandError> {
    let (assets, catalogue) = options.common.assets.load_catalogue()?;
    let wanted = options.kernels.names()?;
    if options.mutate.mutate.is_some() {
        let mutations = MutationFile::load(&assets)?;
        let (mutations, wanted) = options.mutate.select_mutations(&mutations, &catalogue, wanted)?;
        let (target, device) = open_target(options, &assets)?;
        let mutator = CaseMutator { mutations: &mutations, catalogue: &catalogue, device: &device };
        let cases = match (&options.mutate.from[..], &target.existing) {
            ([], None) => CasesByKernel::new(),
            ([], Some(database)) => database_cases(database)?,
            (profiles, _) => profile_cases(profiles, target.file.kind)?,
        };
        let candidates = mutation_sources(&cases, mutator, &wanted)?;
        return add_rows(options, candidates, &catalogue, &target, &device, None);
    }
    let has_steps = options.steps != StepSelection::default();
    if options.audit.fill_audit || has_steps {
        let (folder, workloads, steps) = (options.folder(), &options.audit.workloads, &options.steps);
        let cases = match options.audit.fill_audit {
            true => missing_cases(folder, workloads, &options.models, steps, &wanted, &assets, &catalogue)?,
            false => steps.derive_rows(&assets, &options.models, &wanted)?,
        };
        if cases.is_empty() && options.audit.fill_audit {
            print_note("no row to add");
            return Ok(ExitStatus::Done);
        }
        let (target, device) = open_target(options, &assets)?;
        let listed = cases.iter();
        let listed =
            listed.map(|(kernel, cases)| (kernel.clone(), CandidateSource::Listed(cases.iter().collect())));
        return add_rows(options, listed.collect(), &catalogue, &target, &device, None);
    }
    let models = GridModels::load(&assets, &options.models)?;
    let grids = load_grids(&assets, &models, &options.grids)?;
    let kernels = select_kernels(&grids, &wanted, &assets, &catalogue)?;
    let plot = options.plot.as_deref();
    let plot = plot.map(|path| ResultFile::new(path, Some(options.folder()), "svg")).transpose()?;
    let (target, device) = open_target(options, &assets)?;
    models.left_out.iter().for_each(|note| print_note(note));
    for (kernel, place) in grids.without_entry(&catalogue) {
        if kernels.contains(&kernel) {
            print_note(&place.to_string());
            print_hint(&place.hint);
        }
    }
    let spaces = |kernel| CandidateSource::Grid(grids.spaces_of_kernel(kernel).collect());
    let candidates = kernels.iter().map(|kernel| (kernel.clone(), spaces(kernel))).collect();
    add_rows(options, candidates, &catalogue, &target, &device, plot.as_ref())
}

fn open_target<'a>(
    options: &'a GridOptions,
    assets: &AssetFiles,
) -> Result<(TargetDatabase<'a>, DeviceProfile), CommandError> {
    let given = options.device.as_deref();
    check_device(given, &options.common.assets, options.folder())?;
    let mut target = TargetDatabase::open(options.folder(), options.kind)?;
    if target.existing.is_none() {
        let assumable = if options.dry_run { DataKind::Rehearsal } else { target.file.kind };
        let DeviceChoice { name, source, .. } =
            choose_device(assets, assumable, given, &DeviceEvidence::default(), chip_of_host)?;
        if !source.starts_with("given") {
            print_note(&format!("device {name} ({source})"));
        }
        target.file.device = name;
    }
    let device = DeviceProfile::load(assets, &target.file.device)?;
    Ok((target, device))
}

fn add_rows(
    options: &GridOptions,
    candidates: CandidatesByKernel<'_>,
    catalogue: &Catalogue,
    target: &TargetDatabase<'_>,
    device: &DeviceProfile,
    plot: Option<&ResultFile>,
) -> Result<ExitStatus, CommandError> {
    let filter = candidate_filter(options.filter.filter.as_deref(), catalogue)?;
    let writer = RowWriter {
        candidates,
        catalogue,
        request: SelectionRequest {
            entry: None,
            budget: options.max_hbm_gib.unwrap_or_else(|| default_memory_budget(device.hbm_bytes())),
            rows: (options.rows > 0).then_some(options.rows),
            seed: options.seed,
            filter: filter.as_ref(),
        },
        timed_on: options.dry_run.then_some(device),
    };
    let kernels = writer.add_rows(target, options.dry_run)?;
    let has_shapes = options.shapes
        || (options.dry_run && (options.steps != StepSelection::default() || options.audit.fill_audit));
    let record = |kernel| GridRecord::new(kernel, &options.models, options.seed, options.dry_run, has_shapes);
    options.common.output.emit(kernels.iter().map(record), |width| {
        let shapes = if has_shapes { grid_shapes(&kernels, width) } else { String::new() };
        grid_table(&kernels, width) + &shapes
    });
    grid_notes(&kernels).iter().for_each(|note| print_note(note));
    print_note(&summary(options, device, target.file.kind, &kernels));
    if let Some(plot) = plot {
        plot.write(coverage_plot(&kernels)).map_err(|error| {
            let written = !options.dry_run && kernels.iter().any(|kernel| kernel.rows() > 0);
            let written = if written { "the rows are written, the plot is not: " } else { "" };
            CommandError::bad_input(format!("{written}{error}"), error.hint())
        })?;
        print_note(&format!("plot in {}", plot.path.display()));
    }
    Ok(ExitStatus::Done)
}

pub(super) fn load_grids(
    assets: &AssetFiles,
    models: &GridModels,
    files: &[PathBuf],
) -> Result<GridFiles, YamlError> {
    match files {
        [] => GridFiles::load(assets, models),
        _ => GridFiles::load_files(assets, models, files),
    }
}

pub(super) fn select_kernels(
    grids: &GridFiles,
    wanted: &[KernelName],
    assets: &AssetFiles,
    catalogue: &Catalogue,
) -> Result<Vec<KernelName>, CommandError> {
    let known = grids.kernels();
    if let Some(missing) = wanted.iter().find(|kernel| !known.contains(kernel)) {
        if LlmModel::load(assets, missing.as_str()).is_ok() {
            let hint = "give models with `--models`, separated by commas without spaces";
            return Err(CommandError::bad_input(format!("`{missing}` is a model, not a kernel"), hint));
        }
        let mut equal = catalogue.names_with_same_call(missing).into_iter().skip(1);
        if let Some(other) = equal.find(|name| known.contains(name)) {
            let problem = format!("no grid declares `{missing}`, which has the same call as `{other}`");
            let hint = format!("`{other}` has the rows; a run stores a result under the kernel that ran");
            return Err(CommandError::bad_input(problem, hint));
        }
        let hint = did_you_mean_or(
            missing.as_str(),
            known.iter().map(KernelName::as_str),
            || "`npubench grid --dry-run` lists the kernels of the grids; with `--models` only those of the models' layers",
        );
        return Err(CommandError::bad_input(format!("no grid declares `{missing}`"), hint));
    }
    let wanted: BTreeSet<&KernelName> = wanted.iter().collect();
    Ok(known.into_iter().filter(|kernel| wanted.is_empty() || wanted.contains(kernel)).collect())
}

fn summary(
    options: &GridOptions,
    device: &DeviceProfile,
    kind: DataKind,
    kernels: &[SelectedRows<'_>],
) -> String {
    let rows: usize = kernels.iter().map(SelectedRows::rows).sum();
    let has = |reason| kernels.iter().any(|kernel| kernel.rejected().contains_key(&reason));
    let (db, device) = (options.folder().display(), &device.device);
    let place = format!("{db} (kind {kind}, device {device})");
    if rows == 0 {
        let why = if has(RejectReason::NotSelected) {
            format!(
                "{} rows exist from earlier commands; a larger `--rows` adds more, another `--seed` does not",
                options.rows
            )
        } else if has(RejectReason::Existing) {
            "all valid candidates exist already".to_owned()
        } else {
            "no candidate is valid".to_owned()
        };
        return format!("no rows added to {place}: {why}");
    }
    if options.dry_run {
        return format!("dry run: {} would be added to {place}", format_count(rows, "row"));
    }
    let (db, host) = (quoted_argument(&options.folder().to_string_lossy()), kind.host_option());
    let rows = format_count(rows, "row");
    format!("{rows} added to {place}; next: `npubench check --db {db}`, `npubench run --db {db}{host}`")
}
