//! `npubench coverage`: the answers of a database for workloads, and what is missing.

use std::path::PathBuf;

use clap::Args;

use super::{
    options::{AssetOptions, DatabaseFolder, OutputFormat},
    step_options::StepOptions,
};
use crate::{
    catalogue::Catalogue,
    coverage::{CoverageAnalyzer, WorkloadCoverage, coverage_gaps, estimate_durations},
    domain::{DataKind, Dtype},
    exit::ExitStatus,
    lookup::parse_dtype,
    report::{
        CoverageReport, ResultFile, coverage_csv, coverage_json, coverage_page, coverage_text, print_data,
        print_note,
    },
    session::{CommandError, LookupDatabase, WorkloadDefaults},
    workload::{QuestionDefaults, Workload, parse_weighted_path},
};

/// Shows which questions of workloads a database answers, and what would close the gaps
///
/// Each kernel and operator of a workload is looked up as `npubench query` does it. Prints the invocations and the time
/// that are measured, interpolated or missing, the metrics M1 to M5, the kernels, and the gaps by the time that they
/// stand for. A workload is a profile (kernel_details.csv, op_summary_*.csv, or a folder), an inventory or a chrome
/// trace of a simulator, or a list in YAML or CSV; docs/coverage.md describes them. Nothing in the database is changed.
#[derive(Debug, Args)]
pub(super) struct CoverageOptions {
    #[command(flatten)]
    database: DatabaseFolder,
    /// Workloads, each with a factor of its counts and times, 1 by default
    #[arg(long = "workload", value_name = "FILE[=WEIGHT]", num_args = 1.., required_unless_present = "model",
          value_parser = parse_weighted_path)]
    workloads: Vec<(PathBuf, f64)>,
    /// Look one step of a model up, such as Qwen3-32B or the path of a config.json: its kernels follow from the sizes
    /// of its layers. `npubench models` lists the models
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    #[command(flatten)]
    step: StepOptions,
    #[command(flatten)]
    defaults: DefaultOptions,
    /// Operators with their kernels; by default `op_mapping.yaml` of the database, if it has one
    #[arg(long, value_name = "FILE")]
    mapping: Option<PathBuf>,
    /// Number of gaps in the table
    #[arg(long, value_name = "N", default_value_t = 20)]
    gaps: usize,
    /// Write every question with its answer to a CSV
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write a page with all tables, which needs no other file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    output: JsonOutput,
    #[command(flatten)]
    assets: AssetOptions,
}

/// What questions lack.
#[derive(Debug, Args)]
pub(super) struct DefaultOptions {
    /// Ranks that share the matrices of a layer, for questions that do not state them
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=65536))]
    pub(super) tp: Option<u64>,
    /// Ranks that share the experts, likewise
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=65536))]
    pub(super) ep: Option<u64>,
    /// Ranks of collectives, likewise
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    ranks: Option<u64>,
    /// Tier of the topology that collectives span, likewise
    #[arg(long, value_name = "TIER")]
    tier: Option<u64>,
    /// Mean length of the keys of attention, likewise
    #[arg(long, value_name = "TOKENS", value_parser = parse_length)]
    kv_length: Option<f64>,
    /// Look tensors of one type up as those of another, such as `float16=bf16` for a simulator that has no BF16
    #[arg(long, value_name = "TYPE=TYPE", value_parser = parse_dtype_pair)]
    treat_dtype: Vec<(Dtype, Dtype)>,
}

impl DefaultOptions {
    pub(super) fn defaults(&self) -> WorkloadDefaults {
        WorkloadDefaults {
            parameters: QuestionDefaults {
                tp: self.tp,
                ep: self.ep,
                ranks: self.ranks,
                tier: self.tier,
                kv_length: self.kv_length,
            },
            dtypes: self.treat_dtype.clone(),
        }
    }
}

/// The form of the output.
#[derive(Debug, Args)]
pub(super) struct JsonOutput {
    /// Output format; `json` prints JSON Lines
    #[arg(long, value_enum, default_value = "plain")]
    format: OutputFormat,
    /// The same as `--format json`
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

impl JsonOutput {
    pub(super) const fn is_json(&self) -> bool {
        self.json || matches!(self.format, OutputFormat::Json)
    }
}

fn parse_length(text: &str) -> Result<f64, String> {
    let length = text.parse::<f64>().ok().filter(|length| length.is_finite() && *length > 0.0);
    length.ok_or_else(|| format!("`{text}` is not a number of tokens above 0"))
}

fn parse_dtype_pair(text: &str) -> Result<(Dtype, Dtype), String> {
    let pair = text.split_once('=').and_then(|(from, to)| Some((parse_dtype(from)?, parse_dtype(to)?)));
    pair.ok_or_else(|| format!("`{text}` is not of the form `float16=bf16`"))
}

pub(super) fn run(options: &CoverageOptions) -> Result<ExitStatus, CommandError> {
    let database = LookupDatabase::open(&options.database.db, options.mapping.as_deref())?;
    let file = |path: &Option<PathBuf>, extension| {
        path.as_deref().map(|path| ResultFile::new(path, &database.folder, extension)).transpose()
    };
    let (csv, html) = (file(&options.csv, "csv")?, file(&options.html, "html")?);
    let assets = options.assets.load()?;
    let catalogue = Catalogue::load(&assets)?;
    let analyzer = CoverageAnalyzer { engine: &database.engine, catalogue: &catalogue };
    let mut workloads = options.defaults.defaults().load_workloads(&options.workloads)?;
    if let Some(model) = &options.model {
        let mut step =
            options.step.derive_workload(&assets, model, options.defaults.tp, options.defaults.ep)?;
        let defaults = options.defaults.defaults();
        // The step has its own parallel degrees.
        defaults.without_degrees().apply(&mut step);
        workloads.push(step);
    }
    let device = database.device(&assets)?;
    workloads.iter_mut().for_each(|workload| estimate_durations(workload, &analyzer, &device));
    let coverages: Vec<WorkloadCoverage<'_>> = (workloads.iter())
        .map(|workload: &Workload| analyzer.answer_workload(workload))
        .collect::<Result<_, _>>()?;
    let gaps = coverage_gaps(&analyzer, &coverages);
    let report = CoverageReport {
        database: options.database.db.display().to_string(),
        kind: database.kind,
        coverages: &coverages,
        gaps: &gaps,
        shown_gaps: options.gaps,
    };
    if let Some(file) = csv {
        file.write(&coverage_csv(&report))?;
    }
    if let Some(file) = html {
        file.write(&coverage_page(&assets, &report)?)?;
    }
    print_data(&if options.output.is_json() { coverage_json(&report) } else { coverage_text(&report) });
    workloads.iter().flat_map(|workload| &workload.notes).for_each(|note| print_note(note));
    if database.kind == DataKind::Rehearsal {
        print_note("the durations of this database are simulated");
    }
    Ok(if gaps.is_empty() { ExitStatus::Done } else { ExitStatus::SomeNotOk })
}
