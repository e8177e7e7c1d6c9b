//! Language models and the kernels of their steps: tables and JSON lines.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    answer::workload::{Workload, WorkloadQuestion},
    cases::llm::{LlmAttention, LlmModel},
    show::{
        coverage::{dims_list, dtype_list, tensors_text},
        table::{DETAIL, FittedColumn, FittedRow, FittedTable},
    },
};

pub(crate) fn models_table(models: &BTreeMap<String, LlmModel>, width: Option<usize>) -> String {
    let columns = vec![
        FittedColumn::text("model", 0).shortened_to(16),
        FittedColumn::number("layers", 2),
        FittedColumn::number("hidden", 3),
        FittedColumn::text("attention", DETAIL).shortened_to(16).wanted(24),
        FittedColumn::number("feed-forward", DETAIL),
        FittedColumn::text("experts", DETAIL).shortened_to(16).wanted(24),
        FittedColumn::number("vocabulary", DETAIL),
        FittedColumn::text("tp", 0),
        FittedColumn::text("ep", 1),
        FittedColumn::text("dp", 1),
        FittedColumn::text("formats", 4),
    ];
    let row = |(name, model): (&String, &LlmModel)| {
        let formats: Vec<&str> = model.quantisation.iter().map(|format| format.as_str()).collect();
        FittedRow::from_cells(&[
            name.clone(),
            model.layers.to_string(),
            model.hidden_size.to_string(),
            attention_text(&model.attention),
            model.intermediate_size.map_or_else(String::new, |width| width.to_string()),
            experts_text(model),
            model.vocab_size.to_string(),
            list_text(&model.layouts.tp),
            list_text(&model.layouts.ep),
            list_text(&model.layouts.dp),
            formats.join(" "),
        ])
    };
    let rows = models.iter().map(row).collect();
    FittedTable { columns, rows, ..FittedTable::default() }.print(width, false)
}

fn attention_text(attention: &LlmAttention) -> String {
    match attention {
        LlmAttention::Grouped(grouped) => {
            format!("{} heads of {}, {} of keys", grouped.heads, grouped.head_dim, grouped.kv_heads)
        }
        LlmAttention::Latent(latent) => {
            let sparse = latent.indexer.as_ref().map(|indexer| format!(", sparse {} keys", indexer.top_k));
            format!("{} heads, latent {}{}", latent.heads, latent.kv_lora_rank, sparse.unwrap_or_default())
        }
    }
}

fn experts_text(model: &LlmModel) -> String {
    let Some(experts) = &model.experts else { return String::new() };
    let shared = match experts.shared_experts {
        0 => String::new(),
        count => format!(" + {count} shared"),
    };
    format!("{} of {}{shared}, width {}", experts.top_k, experts.experts, experts.intermediate_size)
}

fn list_text(degrees: &[u64]) -> String {
    degrees.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

/// A language model in JSON: all sizes by name, degrees and formats.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ModelRecord<'a> {
    name: &'a str,
    model: &'a str,
    attention: &'static str,
    sizes: BTreeMap<&'static str, u64>,
    tp: &'a [u64],
    ep: &'a [u64],
    dp: &'a [u64],
    formats: Vec<&'static str>,
}

impl<'a> ModelRecord<'a> {
    pub(crate) fn new(name: &'a str, model: &'a LlmModel) -> Self {
        let attention = match model.attention {
            LlmAttention::Grouped(_) => "grouped",
            LlmAttention::Latent(_) => "latent",
        };
        let formats = model.quantisation.iter().map(|format| format.as_str()).collect();
        let layouts = &model.layouts;
        Self {
            name,
            model: &model.model,
            attention,
            sizes: model.constants(),
            tp: &layouts.tp,
            ep: &layouts.ep,
            dp: &layouts.dp,
            formats,
        }
    }
}

/// Returns a table of the kernels of a step. The name of a kernel is followed by those that may run in its place.
pub(crate) fn step_table(workload: &Workload, width: Option<usize>) -> String {
    let columns = vec![
        FittedColumn::text("kernel", 0).shortened_to(12),
        FittedColumn::number("count", 0),
        FittedColumn::text("inputs", 0).shortened_to(16).wanted(30),
        FittedColumn::text("outputs", DETAIL).shortened_to(12),
        FittedColumn::number("keys", 1),
    ];
    let mut rows = Vec::new();
    for question in &workload.questions {
        let mut names: Vec<&str> = Vec::new();
        for query in question.queries() {
            if !names.contains(&query.op.as_str()) {
                names.push(&query.op);
            }
        }
        let query = &question.query;
        rows.push(FittedRow::from_cells(&[
            match query.ranks {
                Some(ranks) => format!("{} of {ranks} ranks", names.join(" or ")),
                None => names.join(" or "),
            },
            question.count.to_string(),
            tensors_text(&query.inputs),
            tensors_text(&query.outputs),
            query.attention.kv_length.map_or_else(String::new, |length| length.to_string()),
        ]));
    }
    let table = FittedTable { columns, rows, ..FittedTable::default() };
    format!("{}\n{}", workload.name, table.print(width, false))
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct StepKernelRecord<'a> {
    op: &'a str,
    count: u64,
    inputs: Vec<&'a [u64]>,
    dtypes: Vec<Option<&'a str>>,
    outputs: Vec<&'a [u64]>,
    output_dtypes: Vec<Option<&'a str>>,
    /// Kernels that may run in place of `op`.
    or: Vec<&'a str>,
    ranks: Option<u64>,
    ep: Option<u64>,
    kv_length: Option<f64>,
}

impl<'a> StepKernelRecord<'a> {
    pub(crate) fn new(question: &'a WorkloadQuestion) -> Self {
        let query = &question.query;
        Self {
            op: &query.op,
            count: question.count,
            inputs: dims_list(&query.inputs),
            dtypes: dtype_list(&query.inputs),
            outputs: dims_list(&query.outputs),
            output_dtypes: dtype_list(&query.outputs),
            or: question.alternates.iter().map(|query| query.op.as_str()).collect(),
            ranks: query.ranks,
            ep: query.ep_size,
            kv_length: query.attention.kv_length,
        }
    }
}
