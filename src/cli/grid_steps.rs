//! Options of `npubench grid` for the kernels of steps of models.

use std::collections::BTreeSet;

use clap::Args;

use super::step_options::StepFormat;
use crate::{
    config::AssetFiles,
    domain::{KernelName, did_you_mean_or},
    grid::ListedCases,
    llm::LlmModel,
    report::print_note,
    session::{CommandError, StepCases, StepSelection},
    workload::StepPhase,
};

/// Heading of the options in the help.
const HEADING: &str = "Steps of models (instead of grids: exactly the kernels of the steps of --models)";

/// Steps of models.
#[derive(Debug, Args)]
pub(super) struct GridStepOptions {
    /// Tensor parallel degrees; by default those of each model
    #[arg(long, value_name = "N,N", help_heading = HEADING, requires = "models", value_delimiter = ',',
          conflicts_with_all = ["grids", "plot", "mutate"], value_parser = clap::value_parser!(u64).range(1..=65536))]
    tp: Vec<u64>,
    /// Expert parallel degrees; by default those of each model
    #[arg(long, value_name = "N,N", help_heading = HEADING, requires = "models", value_delimiter = ',',
          conflicts_with_all = ["grids", "plot", "mutate"], value_parser = clap::value_parser!(u64).range(1..=65536))]
    ep: Vec<u64>,
    /// Phases; by default both
    #[arg(long, value_enum, help_heading = HEADING, requires = "models", value_delimiter = ',',
          conflicts_with_all = ["grids", "plot", "mutate"])]
    phase: Vec<StepPhase>,
    /// Sequences of a step; by default 1 to 128 in decode, 1 to 8 in prefill
    #[arg(long, value_name = "N,N", help_heading = HEADING, requires = "models", value_delimiter = ',',
          conflicts_with_all = ["grids", "plot", "mutate"], value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    batch: Vec<u64>,
    /// Lengths of the sequences; by default 1024 to 32768 in decode, 512 to 8192 in prefill
    #[arg(long, value_name = "TOKENS,TOKENS", help_heading = HEADING, requires = "models", value_delimiter = ',',
          conflicts_with_all = ["grids", "plot", "mutate"], value_parser = clap::value_parser!(u64).range(1..=16_777_216))]
    context: Vec<u64>,
    /// Number formats of the products; by default those of each model
    #[arg(long, value_enum, help_heading = HEADING, requires = "models", value_delimiter = ',',
          conflicts_with_all = ["grids", "plot", "mutate"])]
    dtype: Vec<StepFormat>,
}

impl GridStepOptions {
    pub(super) const fn is_requested(&self) -> bool {
        !(self.tp.is_empty()
            && self.ep.is_empty()
            && self.phase.is_empty()
            && self.batch.is_empty()
            && self.context.is_empty()
            && self.dtype.is_empty())
    }

    /// Derives the steps of models.
    pub(super) fn derive_steps(
        &self,
        assets: &AssetFiles,
        models: &[String],
    ) -> Result<StepCases, CommandError> {
        let models = models.iter().map(|name| LlmModel::load(assets, name));
        let models = models.collect::<Result<Vec<_>, _>>()?;
        let selection = StepSelection {
            tp: self.tp.clone(),
            ep: self.ep.clone(),
            phases: self.phase.clone(),
            batches: self.batch.clone(),
            contexts: self.context.clone(),
            formats: self.dtype.iter().map(|format| format.scheme()).collect(),
        };
        let steps = selection.derive_cases(&models)?;
        steps.notes.iter().for_each(|note| print_note(note));
        Ok(steps)
    }

    /// Derives the cases of the steps of models, of the wanted kernels or, if none is named, of all.
    pub(super) fn derive_cases(
        &self,
        assets: &AssetFiles,
        models: &[String],
        wanted: &[KernelName],
    ) -> Result<ListedCases, CommandError> {
        let mut steps = self.derive_steps(assets, models)?;
        if let Some(missing) = wanted.iter().find(|kernel| !steps.cases.contains_key(*kernel)) {
            let known = steps.cases.keys().map(KernelName::as_str);
            let hint = did_you_mean_or(missing.as_str(), known, || {
                let known: Vec<&str> = steps.cases.keys().map(KernelName::as_str).collect();
                format!("the steps have {}", known.join(", "))
            });
            return Err(CommandError::bad_input(format!("no step of the models has `{missing}`"), hint));
        }
        if !steps.collectives.is_empty() {
            let names: Vec<&str> = steps.collectives.iter().map(String::as_str).collect();
            print_note(&format!("no rows for collectives: {}", names.join(", ")));
        }
        let wanted: BTreeSet<&KernelName> = wanted.iter().collect();
        steps.cases.retain(|kernel, _| wanted.is_empty() || wanted.contains(kernel));
        Ok(steps.cases)
    }
}
