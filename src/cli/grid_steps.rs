//! Options of `npubench grid` for the kernels of steps of models.

use clap::Args;

use super::step_options::{PhaseChoice, StepFormat};
use crate::answer::step_cases::StepSelection;

/// Heading of the options in the help.
const HEADING: &str = "Steps of models (instead of grids: exactly the kernels of the steps of --models)";

/// Steps of models.
#[derive(Debug, Args)]
#[group(id = "steps", multiple = true, requires = "models", conflicts_with_all = ["grids", "plot", "mutate"])]
pub(super) struct GridStepOptions {
    /// Tensor parallel degrees; by default those of each model
    #[arg(long, help_heading = HEADING, value_name = "N,N", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=65536))]
    tp: Vec<u64>,
    /// Expert parallel degrees; by default those of each model
    #[arg(long, help_heading = HEADING, value_name = "N,N", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=65536))]
    ep: Vec<u64>,
    /// Data parallel degrees; by default those of each model
    #[arg(long, help_heading = HEADING, value_name = "N,N", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=65536))]
    dp: Vec<u64>,
    /// Phases; by default both
    #[arg(long, help_heading = HEADING, value_enum, value_delimiter = ',')]
    phase: Vec<PhaseChoice>,
    /// Sequences of a step; by default 1 to 128 in decode, 1 to 8 in prefill
    #[arg(long, help_heading = HEADING, value_name = "N,N", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    batch: Vec<u64>,
    /// Lengths of the sequences; by default 1024 to 32768 in decode, 512 to 8192 in prefill
    #[arg(long, help_heading = HEADING, value_name = "TOKENS,TOKENS", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=16_777_216))]
    context: Vec<u64>,
    /// Number formats of the products; by default those of each model
    #[arg(long, help_heading = HEADING, value_enum, value_delimiter = ',')]
    dtype: Vec<StepFormat>,
}

impl GridStepOptions {
    pub(super) const fn is_requested(&self) -> bool {
        !(self.tp.is_empty()
            && self.ep.is_empty()
            && self.dp.is_empty()
            && self.phase.is_empty()
            && self.batch.is_empty()
            && self.context.is_empty()
            && self.dtype.is_empty())
    }

    /// Returns the steps that are given.
    pub(super) fn selection(&self) -> StepSelection {
        StepSelection {
            tp: self.tp.clone(),
            ep: self.ep.clone(),
            dp: self.dp.clone(),
            phases: self.phase.iter().map(|phase| (*phase).into()).collect(),
            batches: self.batch.clone(),
            contexts: self.context.clone(),
            formats: self.dtype.iter().map(|format| format.scheme()).collect(),
        }
    }
}
