//! Options that name the questions of workloads.

use super::{
    prelude::*,
    step_options::{NAMED_MODEL, StepOptions},
};
use crate::{
    answer::{
        coverage::CoverageAnalyzer,
        lookup::{parse_known_dtype, parse_length},
        lookup_database::{LookupDatabase, WorkloadSelection},
        workload::{QuestionDefaults, Workload, parse_weighted_path},
    },
    kernel::Dtype,
};

/// Workloads, a step of a model, and the mapping by which they are looked up.
#[derive(Debug, Args)]
pub(super) struct QuestionOptions {
    /// Workloads, each with a factor of its counts and times, 1 by default
    #[arg(long = "workload", value_name = "FILE[=WEIGHT]", num_args = 1..,
          value_parser = parse_weighted_path)]
    workloads: Vec<(PathBuf, f64)>,
    /// Look one step of a model up, such as Qwen3-32B or the path of a config.json: its kernels follow from the sizes
    /// of its layers. `npubench models` lists the models
    #[arg(long, value_name = "MODEL", group = NAMED_MODEL)]
    model: Option<String>,
    #[command(flatten)]
    step: StepOptions,
    #[command(flatten)]
    defaults: DefaultOptions,
    /// Operators with their kernels; by default `op_mapping.yaml` of the database, if it has one
    #[arg(long, value_name = "FILE")]
    mapping: Option<PathBuf>,
}

/// Parameters of questions that do not state them.
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
    pub(super) fn is_given(&self) -> bool {
        self.defaults() != QuestionDefaults::default()
    }

    pub(super) fn defaults(&self) -> QuestionDefaults {
        QuestionDefaults {
            tp: self.tp,
            ep: self.ep,
            ranks: self.ranks,
            tier: self.tier,
            kv_length: self.kv_length,
            dtypes: self.treat_dtype.clone(),
        }
    }
}

fn parse_dtype_pair(text: &str) -> Result<(Dtype, Dtype), String> {
    let known = |name: &str| {
        let dtype = parse_known_dtype(name).map_err(|error| format!("{}; {}", error.message, error.hint))?;
        dtype.ok_or_else(|| format!("`{text}` is not of the form `float16=bf16`"))
    };
    match text.split_once('=') {
        Some((from, to)) => Ok((known(from)?, known(to)?)),
        None => Err(format!("`{text}` is not of the form `float16=bf16`")),
    }
}

impl QuestionOptions {
    /// Returns true if workloads or a step of a model are named.
    pub(super) const fn is_requested(&self) -> bool {
        !self.workloads.is_empty() || self.model.is_some()
    }

    /// Returns true if options state something about workloads that are not named.
    pub(super) fn is_incomplete(&self) -> bool {
        !self.is_requested() && (self.defaults.is_given() || self.mapping.is_some())
    }

    pub(super) fn files(&self) -> impl Iterator<Item = &Path> {
        self.workloads.iter().map(|(path, _)| path.as_path()).chain(self.mapping.as_deref())
    }

    pub(super) fn open(&self, db: &Path) -> Result<LookupDatabase, CommandError> {
        LookupDatabase::open(db, self.mapping.as_deref())
    }

    /// Loads the workloads, and estimates the durations that none of their questions has.
    pub(super) fn load(
        &self,
        assets: &AssetFiles,
        database: &LookupDatabase,
        analyzer: &CoverageAnalyzer<'_>,
    ) -> Result<Vec<Workload>, CommandError> {
        let model =
            self.model.as_deref().map(|model| (model, self.step.step(self.defaults.tp, self.defaults.ep)));
        let selection =
            WorkloadSelection { files: &self.workloads, model, defaults: self.defaults.defaults() };
        selection.load_with_durations(assets, database, analyzer)
    }
}
