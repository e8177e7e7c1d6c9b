//! Language models and the kernels of their steps: tables and JSON lines.

use super::{
    coverage::{dims_list, dtype_list, tensors_text},
    prelude::*,
};
use crate::{
    answer::workload::{Workload, WorkloadQuestion},
    cases::llm::{LlmAttention, LlmModel},
};

pub(crate) fn models_table(models: &BTreeMap<String, LlmModel>, width: Option<usize>) -> String {
    Table::new(models)
        .text("model", rank(0).min(16), |(name, _)| name)
        .number("layers", 2, |(_, model)| model.layers)
        .number("hidden", 3, |(_, model)| model.hidden_size)
        .text("attention", rank(DETAIL).min(16).wanted(24), |(_, model)| attention_text(&model.attention))
        .number("feed-forward", DETAIL, |(_, model)| or_empty(model.intermediate_size))
        .text("experts", rank(DETAIL).min(16).wanted(24), |(_, model)| experts_text(model))
        .number("vocabulary", DETAIL, |(_, model)| model.vocab_size)
        .text("tp", 0, |(_, model)| joined(&model.layouts.tp, " "))
        .text("ep", 1, |(_, model)| joined(&model.layouts.ep, " "))
        .text("dp", 1, |(_, model)| joined(&model.layouts.dp, " "))
        .text("formats", 4, |(_, model)| joined(model.quantisation.iter().map(|format| format.as_str()), " "))
        .print(width)
}

fn attention_text(attention: &LlmAttention) -> String {
    match attention {
        LlmAttention::Grouped(grouped) => {
            format!("{} heads of {}, {} of keys", grouped.heads, grouped.head_dim, grouped.kv_heads)
        }
        LlmAttention::Latent(latent) => {
            let sparse = latent.indexer.as_ref().map(|indexer| format!(", sparse {} keys", indexer.top_k));
            format!("{} heads, latent {}{}", latent.heads, latent.kv_lora_rank, or_empty(sparse))
        }
    }
}

fn experts_text(model: &LlmModel) -> String {
    let Some(experts) = &model.experts else { return String::new() };
    let shared = Some(experts.shared_experts).filter(|count| *count > 0);
    let shared = or_empty(shared.map(|count| format!(" + {count} shared")));
    format!("{} of {}{shared}, width {}", experts.top_k, experts.experts, experts.intermediate_size)
}

record! {
    /// A language model in JSON: all sizes by name, degrees and formats.
    #[derive(JsonSchema)]
    pub(crate) ModelRecord<'a>(name: &'a str, model: &'a LlmModel) {
        name: &'a str = name,
        model: &'a str = &model.model,
        attention: &'static str = match model.attention {
            LlmAttention::Grouped(_) => "grouped",
            LlmAttention::Latent(_) => "latent",
        },
        sizes: BTreeMap<&'static str, u64> = model.constants(),
        tp: &'a [u64] = &model.layouts.tp,
        ep: &'a [u64] = &model.layouts.ep,
        dp: &'a [u64] = &model.layouts.dp,
        formats: Vec<&'static str> = model.quantisation.iter().map(|format| format.as_str()).collect(),
    }
}

/// Returns a table of the kernels of a step. The name of a kernel is followed by the names of kernels that may run in
/// its place.
pub(crate) fn step_table(workload: &Workload, width: Option<usize>) -> String {
    let kernel = |question: &WorkloadQuestion| {
        let mut names: Vec<&str> = Vec::new();
        for query in question.queries() {
            if !names.contains(&query.op.as_str()) {
                names.push(&query.op);
            }
        }
        names.join(" or ") + &or_empty(question.query.ranks.map(|ranks| format!(" of {ranks} ranks")))
    };
    let table = Table::new(&workload.questions)
        .text("kernel", rank(0).min(12), kernel)
        .number("count", 0, |question| question.count)
        .text("inputs", rank(0).min(16).wanted(30), |question| tensors_text(&question.query.inputs))
        .text("outputs", rank(DETAIL).min(12), |question| tensors_text(&question.query.outputs))
        .number("keys", 1, |question| or_empty(question.query.attention.kv_length));
    format!("{}\n{}", workload.name, table.print(width))
}

record! {
    #[derive(JsonSchema)]
    pub(crate) StepKernelRecord<'a>(question: &'a WorkloadQuestion) with { let query = &question.query; } {
        op: &'a str = &query.op,
        count: u64 = question.count,
        inputs: Vec<&'a [u64]> = dims_list(&query.inputs),
        dtypes: Vec<Option<&'a str>> = dtype_list(&query.inputs),
        outputs: Vec<&'a [u64]> = dims_list(&query.outputs),
        output_dtypes: Vec<Option<&'a str>> = dtype_list(&query.outputs),
        /// Kernels that may run in place of `op`.
        or: Vec<&'a str> = question.alternates.iter().map(|query| query.op.as_str()).collect(),
        ranks: Option<u64> = query.ranks,
        ep: Option<u64> = query.ep_size,
        kv_length: Option<f64> = query.attention.kv_length,
    }
}
