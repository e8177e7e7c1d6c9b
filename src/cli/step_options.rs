//! Options of one step of a language model.

use clap::Args;

use crate::{
    config::AssetFiles,
    llm::{LlmModel, ParallelLayout, QuantisationScheme},
    session::CommandError,
    workload::{DecoderStep, StepPhase, Workload, decoder_step},
};

/// A step of a model by name.
#[derive(Debug, Args)]
pub(super) struct StepOptions {
    /// Data parallel: groups of `--tp` devices, each with its own sequences
    #[arg(long, value_name = "N", requires = "model", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=65536))]
    dp: u64,
    /// Phase of the step
    #[arg(long, value_enum, default_value = "decode", requires = "model")]
    phase: StepPhase,
    /// Sequences of a step, in each group of `--tp` devices
    #[arg(long, value_name = "N", requires = "model", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    batch: u64,
    /// Length of each sequence: of the prompt in prefill, of all keys in decode
    #[arg(long, value_name = "TOKENS", requires = "model", default_value_t = 4096, value_parser = clap::value_parser!(u64).range(1..=16_777_216))]
    context: u64,
    /// Number format of the products
    #[arg(long, value_enum, default_value = "bf16", requires = "model")]
    dtype: StepFormat,
}

/// Number formats of steps.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(super) enum StepFormat {
    /// Weights and activations in BF16
    Bf16,
    /// Both in INT8
    W8a8,
}

impl StepFormat {
    pub(super) const fn scheme(self) -> QuantisationScheme {
        match self {
            Self::Bf16 => QuantisationScheme::Bf16,
            Self::W8a8 => QuantisationScheme::W8a8,
        }
    }
}

impl StepOptions {
    /// Derives the kernels of the step of a model. Degrees that are not given are 1.
    pub(super) fn derive_workload(
        &self,
        assets: &AssetFiles,
        model: &str,
        tp: Option<u64>,
        ep: Option<u64>,
    ) -> Result<Workload, CommandError> {
        let model = LlmModel::load(assets, model)?;
        let step = DecoderStep {
            layout: ParallelLayout { tp: tp.unwrap_or(1), ep: ep.unwrap_or(1), dp: self.dp },
            phase: self.phase,
            batch: self.batch,
            context: self.context,
            quantisation: self.dtype.scheme(),
        };
        let derived = decoder_step(&model, &step);
        derived.map_err(|error| CommandError::bad_input(error.to_string(), error.hint()))
    }
}
