//! Tables of a model for grids: its sizes by name, and its products and heads in all layouts.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    cases::llm::{DeviceShare, LlmAttention, LlmModel, ProductKernel, WeightProduct, WeightProductRole},
    kernel::Dtype,
};

/// A model's numbers, as the expressions and axes of grid files name them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelValues {
    pub id: String,
    /// Constants, such as `hidden_size`. Patterns skip models that lack one of their constants.
    pub numbers: BTreeMap<String, i64>,
    /// Values for axes, such as the pairs of N and K of its layers.
    pub tables: BTreeMap<String, ValueTable>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueTable {
    pub(crate) width: usize,
    pub(crate) numbers: Vec<i64>,
}

impl ValueTable {
    pub(crate) fn list(numbers: impl IntoIterator<Item = i64>) -> Self {
        Self { width: 1, numbers: numbers.into_iter().collect() }
    }

    pub fn pairs(pairs: impl IntoIterator<Item = (i64, i64)>) -> Self {
        Self { width: 2, numbers: pairs.into_iter().flat_map(|(one, other)| [one, other]).collect() }
    }
}

impl ModelValues {
    /// Returns the values of a model; docs/grids.md lists the tables. They have distinct rows, and empty tables are omitted.
    pub fn from_model(model: &LlmModel) -> Self {
        let whole = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let numbers = model.constants().into_iter().map(|(name, number)| (name.to_owned(), whole(number)));
        let mut values = Self { id: model.model.clone(), numbers: numbers.collect(), ..Self::default() };
        let gemms = model.all_gemms();
        let mut table =
            |name: &str, product: ProductKernel, role: Option<WeightProductRole>, dtype: &Dtype| {
                let of_table = gemms.iter().filter(|gemm| {
                    gemm.role.product() == product
                        && role.is_none_or(|role| role == gemm.role)
                        && [&gemm.weights, &gemm.activations] == [dtype, dtype]
                });
                let rows: BTreeSet<[i64; 3]> =
                    of_table.map(|gemm| [whole(gemm.count), whole(gemm.n), whole(gemm.k)]).collect();
                // A single product's count is always 1.
                let from = usize::from(product == ProductKernel::Single);
                let numbers: Vec<i64> = rows.iter().flat_map(|row| row[from..].to_vec()).collect();
                if !numbers.is_empty() {
                    values.tables.insert(name.to_owned(), ValueTable { width: 3 - from, numbers });
                }
            };
        let gate_up = Some(WeightProductRole::ExpertGateUp);
        for (suffix, dtype) in [("", Dtype::Bf16), ("_int8", Dtype::Int8)] {
            table(&format!("products{suffix}"), ProductKernel::Single, None, &dtype);
            table(&format!("experts{suffix}"), ProductKernel::Grouped, None, &dtype);
            table(&format!("expert_gate_up{suffix}"), ProductKernel::Grouped, gate_up, &dtype);
        }
        table("batched", ProductKernel::Batched, None, &Dtype::Bf16);
        let layouts = model.layouts.usable(model);
        let shares: Vec<DeviceShare> =
            layouts.iter().filter_map(|layout| model.share(*layout).ok()).collect();
        let heads: BTreeSet<(i64, i64)> =
            shares.iter().map(|share| (whole(share.heads), whole(share.kv_heads))).collect();
        let int8 = gemms.iter().filter(|gemm| gemm.activations == Dtype::Int8).map(|gemm| gemm.k).collect();
        let widths = [
            ("widths", activation_widths(model, &shares)),
            ("norm_widths", normalised_widths(model)),
            ("quant_widths", int8),
            ("gate_widths", gate_widths(&shares)),
        ];
        for (name, widths) in widths.into_iter().filter(|(_, widths)| !widths.is_empty()) {
            values.tables.insert(name.to_owned(), ValueTable::list(widths.into_iter().map(whole)));
        }
        match model.attention {
            LlmAttention::Grouped(_) => values.tables.insert("heads".to_owned(), ValueTable::pairs(heads)),
            LlmAttention::Latent(_) => {
                let heads: BTreeSet<i64> = heads.into_iter().map(|(heads, _)| heads).collect();
                values.tables.insert("latent_heads".to_owned(), ValueTable::list(heads))
            }
        };
        values
    }
}

/// Returns a note on the products of a model that are missing in all tables, because no grid has their number formats.
pub(crate) fn without_table(model: &LlmModel) -> Option<String> {
    let gemms = model.all_gemms();
    let has_table = |gemm: &&WeightProduct| {
        [&Dtype::Bf16, &Dtype::Int8].contains(&&gemm.weights) && gemm.weights == gemm.activations
    };
    let covered: BTreeSet<WeightProductRole> = gemms.iter().filter(has_table).map(|gemm| gemm.role).collect();
    let lost: BTreeSet<WeightProductRole> =
        gemms.iter().map(|gemm| gemm.role).filter(|role| !covered.contains(role)).collect();
    let words: Vec<&str> = lost.into_iter().map(WeightProductRole::as_str).collect();
    let formats: Vec<&str> = model.quantisation.iter().map(|format| format.as_str()).collect();
    (!words.is_empty()).then(|| {
        format!(
            "no grid has the products {} in {} alone; docs/models.md lists those it has",
            words.join(", "),
            formats.join(" and ")
        )
    })
}

fn activation_widths(model: &LlmModel, shares: &[DeviceShare]) -> BTreeSet<u64> {
    let mut widths = normalised_widths(model);
    widths.extend(gate_widths(shares));
    for share in shares {
        match &model.attention {
            LlmAttention::Grouped(grouped) => {
                widths.extend([share.heads * grouped.head_dim, share.kv_heads * grouped.head_dim]);
            }
            LlmAttention::Latent(latent) => widths.extend([
                share.heads * (latent.nope_head_dim + latent.rope_head_dim),
                share.heads * latent.v_head_dim,
                latent.kv_lora_rank + latent.rope_head_dim,
            ]),
        }
    }
    widths
}

fn normalised_widths(model: &LlmModel) -> BTreeSet<u64> {
    let mut widths = BTreeSet::from([model.hidden_size]);
    if let LlmAttention::Latent(latent) = &model.attention {
        widths.insert(latent.kv_lora_rank);
        widths.extend(latent.q_lora_rank);
    }
    widths
}

fn gate_widths(shares: &[DeviceShare]) -> BTreeSet<u64> {
    let each = shares.iter().flat_map(|share| {
        [share.intermediate_size, share.shared_intermediate_size, share.expert_intermediate_size]
    });
    each.flatten().collect()
}
