//! Options that several commands share.

use std::str::FromStr;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use strum::VariantNames as _;

use super::{
    option_values::{
        DeviceList, parse_budget, parse_case_prefix, parse_devices, parse_percent, parse_skew, parse_until,
    },
    prelude::*,
};
pub(super) use crate::show::emit::OutputFormat;
use crate::{
    base::{process::find_program, stats::PrecisionAim},
    kernel::{AicMetrics, FailingVerdicts, ProfilerSettings},
    measure::device::search_path,
    show::terminal::output_width,
};

/// Variable with the database folder of commands without `--db`.
pub(super) const DATABASE_VARIABLE: &str = "NPUBENCH_DB";

#[derive(Debug, Args)]
pub(super) struct DatabaseFolder {
    /// Database folder
    #[arg(long, value_name = "DIR", env = DATABASE_VARIABLE)]
    pub(super) db: PathBuf,
}

/// Returns the given database folder, else the folder that the environment names; the command also works without a
/// folder.
pub(super) fn given_or_usual_folder(given: Option<&Path>) -> Option<PathBuf> {
    let usual = || env::var_os(DATABASE_VARIABLE).filter(|folder| !folder.is_empty()).map(PathBuf::from);
    given.map(Path::to_owned).or_else(usual)
}

#[derive(Debug, Default, Args)]
pub(super) struct OutputOptions {
    /// Output format; `json` prints JSON Lines
    #[arg(long, value_enum, default_value = "plain")]
    pub(super) format: OutputFormat,
}

#[derive(Debug, Args)]
pub(super) struct WideOption {
    /// Print all columns that have content and whole cells, also on a narrow terminal
    #[arg(long)]
    wide: bool,
}

impl WideOption {
    pub(super) fn width(&self) -> Option<usize> {
        output_width().filter(|_| !self.wide)
    }
}

#[derive(Debug, Args)]
pub(super) struct TableOptions {
    /// Output format; `json` prints JSON Lines
    #[arg(long, value_enum, default_value = "plain")]
    pub(super) format: OutputFormat,
    #[command(flatten)]
    pub(super) wide: WideOption,
}

impl TableOptions {
    pub(super) fn emit<R: Serialize>(
        &self,
        records: impl IntoIterator<Item = R>,
        text: impl FnOnce(Option<usize>) -> String,
    ) {
        emit(self.format, records, || text(self.wide.width()));
    }
}

#[derive(Debug, Args)]
pub(super) struct JsonOutput {
    #[command(flatten)]
    pub(super) table: TableOptions,
    /// The same as `--format json`
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

impl JsonOutput {
    pub(super) fn emit<R: Serialize>(
        &self,
        records: impl IntoIterator<Item = R>,
        text: impl FnOnce(Option<usize>) -> String,
    ) {
        let format = if self.json { OutputFormat::Json } else { self.table.format };
        emit(format, records, || text(self.table.wide.width()));
    }
}

/// Form of the output and files in place of built-in ones, which most commands have.
#[derive(Debug, Default, Args)]
pub(super) struct CommonOptions<O: Args> {
    #[command(flatten)]
    pub(super) output: O,
    #[command(flatten)]
    pub(super) assets: AssetOptions,
}

#[derive(Debug, Args)]
pub(super) struct KernelFilter {
    /// Only these kernels, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(super) kernels: Vec<String>,
}

impl KernelFilter {
    pub(super) fn names(&self) -> Result<Vec<KernelName>, CommandError> {
        parse_kernels(&self.kernels)
    }
}

#[derive(Debug, Args)]
pub(super) struct KernelArguments {
    /// Kernels, by default all
    #[arg(value_name = "KERNEL", value_delimiter = ',')]
    listed: Vec<String>,
    /// The same as KERNEL, as other commands name it
    #[arg(long, value_name = "NAMES", value_delimiter = ',', conflicts_with = "listed")]
    kernels: Vec<String>,
}

impl KernelArguments {
    pub(super) fn names(&self) -> Result<Vec<KernelName>, CommandError> {
        parse_kernels(if self.listed.is_empty() { &self.kernels } else { &self.listed })
    }
}

#[derive(Debug, Args)]
pub(super) struct DatabaseArgument {
    /// Database folder
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,
    /// The same as DIR, as other commands name it; by default that of NPUBENCH_DB
    #[arg(long, value_name = "DIR", conflicts_with = "folder")]
    db: Option<PathBuf>,
}

impl DatabaseArgument {
    pub(super) fn folder(&self) -> Result<PathBuf, CommandError> {
        let given = self.folder.as_deref().or(self.db.as_deref());
        given_or_usual_folder(given).ok_or_else(|| {
            CommandError::usage(
                "no database is given",
                format!("give its folder as an argument, with `--db DIR`, or by {DATABASE_VARIABLE}"),
            )
        })
    }
}

#[derive(Debug, Args)]
pub(super) struct FilterOption {
    /// Only cases for which this is true, such as 'kernel ~ MatMul & m <= 64 & verdict = noisy' (docs/filters.md)
    ///
    /// Names are kernel, case, shape, dim, dtype, format, bytes, verdict, reason, run, age, host, device, median, mean,
    /// production, deviation and collections, dimensions of the catalogue such as m, attributes such as num_heads, and
    /// columns in quotes. Operators are = != < <= > >= ~ (contains) !~ & | ! and parentheses; `has NAME` is true for cases
    /// with a value. A comparison with a missing value is false.
    #[arg(long, value_name = "EXPR")]
    pub(super) filter: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct RowOptions {
    #[command(flatten)]
    pub(super) kernels: KernelFilter,
    /// Only the cases with these ids, or first digits of ids, separated by commas
    #[arg(long = "case", value_name = "IDS", value_delimiter = ',', value_parser = parse_case_prefix)]
    cases: Vec<String>,
    #[command(flatten)]
    filter: FilterOption,
    /// Column with the weight of each row; the heaviest are measured first (with shards, within each shard)
    #[arg(long, value_name = "NAME")]
    pub(super) weight_column: Option<String>,
    /// Rows to measure
    #[arg(long, value_enum, default_value = "missing")]
    update: UpdateMode,
}

impl RowOptions {
    pub(super) fn add_to(&self, base: RunOptions) -> RunOptions {
        RunOptions {
            update: self.update,
            kernels: self.kernels.kernels.clone(),
            cases: self.cases.clone(),
            filter: self.filter.filter.clone(),
            weight_column: self.weight_column.clone(),
            ..base
        }
    }
}

#[derive(Debug, Args)]
pub(super) struct SelectionOptions {
    #[command(flatten)]
    pub(super) database: DatabaseFolder,
    #[command(flatten)]
    pub(super) rows: RowOptions,
    #[command(flatten)]
    pub(super) resources: ResourceOptions,
    /// State of the cache before each launch; results in another state do not count as measured
    ///
    /// A cold cache is one that a kernel larger than it has filled. Cold results have columns of their own
    /// (`MicroBench Cold …`) and are never pooled with hot ones.
    #[arg(long, value_enum, default_value = "hot", value_name = "STATE")]
    pub(super) cache: CacheChoice,
}

#[derive(Debug, Args)]
pub(super) struct ResourceOptions {
    /// Devices to use, by the numbers of `npu-smi info`, such as `0-3,8`; by default all of this host
    #[arg(long, value_name = "LIST", value_parser = parse_devices)]
    pub(super) devices: Option<DeviceList>,
    #[command(flatten)]
    pub(super) deadline: DeadlineOptions,
    #[command(flatten)]
    pub(super) precision: PrecisionOptions,
}

#[derive(Debug, Default, Args)]
#[group(multiple = false)]
pub(super) struct DeadlineOptions {
    /// End by this local time, such as 07:30; no collection is started that would end later
    #[arg(long, value_name = "HH:MM", value_parser = parse_until)]
    until: Option<Deadline>,
    /// End within this time, such as 8h or 1h30m
    #[arg(long, value_name = "TIME", value_parser = |text: &str| parse_budget(text).map(Deadline::after))]
    budget: Option<Deadline>,
}

impl DeadlineOptions {
    pub(super) const fn deadline(&self) -> Option<Deadline> {
        if self.until.is_some() { self.until } else { self.budget }
    }
}

#[derive(Debug, Args)]
pub(super) struct PrecisionOptions {
    /// Measure cases in further collections until half their 95 % interval is within this percentage of the estimate
    ///
    /// All cases of a small plan are measured twice, of a larger one a fifth; then those whose interval is wider and can
    /// reach the precision, on other devices and beside other cases. Measured rows whose interval is wider are measured
    /// again, too. See docs/design/statistics.md.
    #[arg(long, value_name = "PERCENT", default_value = "1", value_parser = parse_percentage)]
    precision: f64,
    /// Maximum number of collections of a case; 1 measures each once, whatever its interval
    #[arg(long, value_name = "N", default_value_t = 8, env = "NPUBENCH_MAX_COLLECTIONS",
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=100))]
    pub(super) max_collections: usize,
}

impl PrecisionOptions {
    pub(super) fn aim(&self) -> Option<PrecisionAim> {
        let Self { precision, max_collections } = *self;
        (max_collections > 1).then_some(PrecisionAim { half_width: precision / 100.0, max_collections })
    }
}

pub(super) fn parse_percentage(text: &str) -> Result<f64, String> {
    parse_percent(text, 50.0)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum CacheChoice {
    /// With the tensors of the launch before in the cache
    Hot,
    /// After a kernel that replaces the content of the cache
    Cold,
    /// Hot in one run, then cold in another one
    Both,
}

impl CacheChoice {
    pub(super) const fn states(self) -> &'static [CacheState] {
        match self {
            Self::Hot => &[CacheState::Hot],
            Self::Cold => &[CacheState::Cold],
            Self::Both => CacheState::ALL,
        }
    }
}

#[derive(Debug, Args)]
pub(super) struct CacheOption {
    /// State of the cache before the launches
    #[arg(long = "cache", value_name = "STATE", default_value = "hot", 
        value_parser = parser_of::<CacheState>(CacheState::ALL.iter().map(|state| state.as_str())))]
    pub(super) state: CacheState,
}

fn parser_of<T>(names: impl IntoIterator<Item = &'static str>) -> impl TypedValueParser<Value = T>
where
    T: FromStr<Err: std::error::Error + Send + Sync> + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(names).try_map(|name| name.parse::<T>())
}

#[derive(Debug, Args)]
pub(super) struct FailOnOption {
    /// Verdicts for which the exit code is 1, such as `rejected,crashed`; by default all but `ok`, `ran_as_other` and `no_entry`
    #[arg(long, value_name = "VERDICTS", value_delimiter = ',', 
        value_parser = parser_of::<Verdict>(Verdict::ALL[1..].iter().map(|verdict| verdict.as_str())))]
    fail_on: Vec<Verdict>,
    /// Also end with 1 if a kernel has no catalogue entry
    #[arg(long)]
    require_entries: bool,
}

impl FailOnOption {
    pub(super) fn verdicts(&self) -> FailingVerdicts {
        let mut failing = match &self.fail_on[..] {
            [] => FailingVerdicts::default(),
            given => FailingVerdicts(given.to_vec()),
        };
        if self.require_entries {
            failing.add(Verdict::NoEntry);
        }
        failing
    }
}

#[derive(Debug, Args)]
pub(super) struct SkewOption {
    /// Skew of the distribution of tokens over experts: the n-th expert has a share of n^-S; 0 is even
    #[arg(long, value_name = "S", default_value_t = 0.0, value_parser = parse_skew)]
    pub(super) expert_skew: f64,
}

#[derive(Debug, Args)]
pub(super) struct ProfilerOptions {
    /// Group of counters that msprof reads; `none` reads no counters. The database has columns for PipeUtilization
    #[arg(long, value_name = "NAME", default_value = "PipeUtilization", 
        value_parser = parser_of::<AicMetrics>(AicMetrics::VARIANTS.iter().copied()))]
    aic_metrics: AicMetrics,
}

impl ProfilerOptions {
    pub(super) fn settings(&self) -> ProfilerSettings {
        ProfilerSettings { aic_metrics: self.aic_metrics, ..ProfilerSettings::default() }
    }
}

#[derive(Debug, Args)]
pub(super) struct PythonOption {
    /// Python interpreter that has torch and torch_npu
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    pub(super) python: String,
}

impl PythonOption {
    /// Returns the interpreter as rendered scripts name it.
    ///
    /// msprof accepts only programs whose name begins with `python`. A path becomes absolute, because scripts run in
    /// folders of their own; links are kept, because a virtual environment is recognised by its link.
    pub(super) fn program(&self) -> Result<String, CommandError> {
        let named = &self.python;
        if find_program(named, &search_path(&[])).is_none() {
            return Err(CommandError::cannot_measure(
                format!("program `{named}`, which runs the replay scripts, was not found"),
                "install Python 3.8 or later, or give another interpreter with `--python PROGRAM`",
            ));
        }
        let path = Path::new(named);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if !name.starts_with("python") {
            return Err(CommandError::bad_input(
                format!("the file name of `{named}` does not begin with `python`, which msprof requires"),
                "give the interpreter itself with `--python`, such as `venv/bin/python3`",
            ));
        }
        let absolute = std::path::absolute(path).ok().filter(|_| named.contains('/'));
        Ok(absolute.map_or_else(|| named.clone(), |path| path.to_string_lossy().into_owned()))
    }
}

#[derive(Debug, Args)]
pub(super) struct LeaseOption {
    /// Existing folder of the files that reserve devices, which containers share; see docs/devices.md
    #[arg(long, value_name = "DIR", env = "NPUBENCH_LEASES")]
    leases: Option<PathBuf>,
}

impl LeaseOption {
    pub(super) fn folder(&self) -> Option<PathBuf> {
        self.leases.as_ref().map(|folder| std::path::absolute(folder).unwrap_or_else(|_| folder.clone()))
    }
}

#[derive(Clone, Debug, Default, Args)]
pub(super) struct AssetOptions {
    /// Folder with `templates`, `op_replay` or `grids`, whose files replace the built-in ones of the same name
    #[arg(long, value_name = "DIR", env = "NPUBENCH_ASSETS")]
    pub(super) assets: Option<PathBuf>,
}

impl AssetOptions {
    /// Loads the files for a command that may create the folder: a missing one stands for the built-in files.
    pub(super) fn load_or_embedded(&self) -> Result<AssetFiles, CommandError> {
        match &self.assets {
            Some(folder) if !folder.exists() => Ok(AssetFiles::embedded()),
            // Not checked for completeness: the command may be about to write the missing file.
            Some(folder) => Ok(AssetFiles::overlaid(folder)?),
            None => self.load(),
        }
    }

    /// Returns the option with an absolute path, for a command in another folder; `None` for the built-in files.
    pub(super) fn absolute_option(&self) -> Option<String> {
        let folder = self.assets.as_ref()?;
        let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.clone());
        Some(format!("--assets={}", folder.display()))
    }

    pub(super) fn load_catalogue(&self) -> Result<(AssetFiles, Catalogue), CommandError> {
        let assets = self.load()?;
        let catalogue = Catalogue::load(&assets)?;
        Ok((assets, catalogue))
    }

    pub(super) fn load(&self) -> Result<AssetFiles, CommandError> {
        let assets = match &self.assets {
            Some(folder) => AssetFiles::overlaid(folder)?,
            None => AssetFiles::embedded(),
        };
        assets.check()?;
        Ok(assets)
    }
}

/// Refuses an unknown device profile, and one that differs from the profile of an existing database.
pub(super) fn check_device(
    device: Option<&str>,
    assets: &AssetOptions,
    db: &Path,
) -> Result<(), CommandError> {
    let Some(device) = device else { return Ok(()) };
    DeviceProfile::load(&assets.load()?, device)?;
    match Database::open(db) {
        Ok(database) if database.device() != device => Err(CommandError::bad_input(
            format!("the device of `{}` is `{}`, not `{device}`", db.display(), database.device()),
            CORRECT_DEVICE,
        )),
        _ => Ok(()),
    }
}

pub(super) fn parse_kernels(names: &[String]) -> Result<Vec<KernelName>, CommandError> {
    names.iter().map(|name| Ok(KernelName::new(name)?)).collect()
}
