//! Options that name the questions of workloads.

use super::prelude::*;
use crate::answer::workload::{Workload, parse_weighted_path};

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
    pub(super) defaults: QuestionDefaults,
    /// Operators with their kernels; by default `op_mapping.yaml` of the database, if it has one
    #[arg(long, value_name = "FILE")]
    pub(super) mapping: Option<PathBuf>,
}

impl QuestionOptions {
    pub(super) const fn is_requested(&self) -> bool {
        !self.workloads.is_empty() || self.model.is_some()
    }

    pub(super) fn files(&self) -> impl Iterator<Item = &Path> {
        self.workloads.iter().map(|(path, _)| path.as_path()).chain(self.mapping.as_deref())
    }

    pub(super) fn open(&self, db: &Path) -> Result<LookupDatabase, CommandError> {
        LookupDatabase::open(db, self.mapping.as_deref())
    }

    pub(super) fn load(
        &self,
        assets: &AssetFiles,
        database: &LookupDatabase,
        analyzer: &CoverageAnalyzer<'_>,
    ) -> Result<Vec<Workload>, CommandError> {
        let model =
            self.model.as_deref().map(|model| (model, self.step.step(self.defaults.tp, self.defaults.ep)));
        let selection = WorkloadSelection { files: &self.workloads, model, defaults: self.defaults.clone() };
        selection.load_with_durations(assets, database, analyzer)
    }
}
