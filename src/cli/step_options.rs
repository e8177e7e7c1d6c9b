//! Options of one step of a language model.

use super::prelude::*;
use crate::{
    answer::workload::{DecoderStep, StepPhase},
    cases::llm::{ParallelLayout, QuantisationScheme},
};

/// Group of the option that names the model. A requirement of the option itself would be waived beside options with which it conflicts.
pub(super) const NAMED_MODEL: &str = "named_model";

#[derive(Debug, Args)]
pub(super) struct ModelStepOptions {
    /// Tensor parallel: devices that share the matrices of a layer of the model
    #[arg(long, value_name = "N", requires = NAMED_MODEL, value_parser = clap::value_parser!(u64).range(1..=65536))]
    tp: Option<u64>,
    /// Expert parallel: devices among which the experts of the model are distributed
    #[arg(long, value_name = "N", requires = NAMED_MODEL, value_parser = clap::value_parser!(u64).range(1..=65536))]
    ep: Option<u64>,
    #[command(flatten)]
    step: StepOptions,
}

impl ModelStepOptions {
    pub(super) fn step(&self) -> DecoderStep {
        self.step.step(self.tp, self.ep)
    }
}

#[derive(Debug, Args)]
pub(super) struct StepOptions {
    /// Data parallel: groups of `--tp` devices, each with its own sequences
    #[arg(long, value_name = "N", requires = NAMED_MODEL, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=65536))]
    dp: u64,
    /// Phase of the step
    #[arg(long, value_enum, default_value = "decode", requires = NAMED_MODEL)]
    phase: StepPhase,
    /// Sequences of a step, in each group of `--tp` devices
    #[arg(long, value_name = "N", requires = NAMED_MODEL, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    batch: u64,
    /// Length of each sequence: of the prompt in prefill, of all keys in decode
    #[arg(long, value_name = "TOKENS", requires = NAMED_MODEL, default_value_t = 4096, value_parser = clap::value_parser!(u64).range(1..=16_777_216))]
    context: u64,
    /// Number format of the products
    #[arg(long, value_enum, default_value = "bf16", requires = NAMED_MODEL)]
    dtype: QuantisationScheme,
}

impl StepOptions {
    pub(super) fn step(&self, tp: Option<u64>, ep: Option<u64>) -> DecoderStep {
        let (tp, ep) = (tp.unwrap_or(1), ep.unwrap_or(1));
        DecoderStep {
            layout: ParallelLayout { tp, ep, dp: self.dp },
            phase: self.phase,
            batch: self.batch,
            context: self.context,
            quantisation: self.dtype,
        }
    }
}
