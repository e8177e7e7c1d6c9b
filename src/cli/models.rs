//! `npubench models`: lists language models, or the kernels of a step of one.

use super::prelude::*;
use crate::{
    answer::lookup_database::step_of_model,
    cases::llm::LlmModel,
    show::models::{ModelRecord, StepKernelRecord, models_table, step_table},
};

/// Lists language models with their layouts, or the kernels of a step of one
///
/// Without a name, all models with the sizes of their layers, the parallel degrees that they run with, and their number
/// formats. With a name, the kernels of one step on one device with their shapes and counts, which `npubench coverage
/// --model` looks up.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  npubench models
  npubench models Qwen3-32B --tp 4 --batch 64")]
pub(super) struct ModelsOptions {
    /// Model, such as Qwen3-32B, or the path of a Hugging Face config.json
    #[arg(value_name = "MODEL", group = NAMED_MODEL)]
    model: Option<String>,
    #[command(flatten)]
    step: ModelStepOptions,
    #[command(flatten)]
    common: CommonOptions<TableOptions>,
}

pub(super) fn run(options: &ModelsOptions) -> Result<ExitStatus, CommandError> {
    let assets = options.common.assets.load()?;
    match &options.model {
        None => {
            let models = LlmModel::all(&assets)?;
            options
                .common
                .output
                .emit(models.iter().map(|(name, model)| ModelRecord::new(name, model)), |width| {
                    models_table(&models, width)
                });
        }
        Some(name) => {
            let workload = step_of_model(&assets, name, &options.step.step())?;
            options.common.output.emit(workload.questions.iter().map(StepKernelRecord::new), |width| {
                step_table(&workload, width)
            });
            workload.notes.iter().for_each(|note| print_note(note));
        }
    }
    Ok(ExitStatus::Done)
}
