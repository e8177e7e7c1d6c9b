//! What grids may know of a model: its sizes by name, and its products and heads in all layouts as tables.

use std::collections::BTreeSet;

use super::{ModelValues, Table};
use crate::{
    model::Dtype,
    spec::{Gemm, GemmRole, LlmAttention, LlmModel, Product},
};

impl ModelValues {
    /// Those of a model. Tables have each row once, and those without rows are missing:
    ///
    /// | table | columns |
    /// |---|---|
    /// | `products`, `products_int8` | n, k |
    /// | `batched` | count, n, k |
    /// | `experts`, `experts_int8` | count, n, k |
    /// | `expert_gate_up`, `expert_gate_up_int8` | count, n, k |
    /// | `heads` | heads, heads of keys and values, of grouped attention |
    /// | `latent_heads` | heads, of latent attention |
    #[must_use]
    pub fn of(model: &LlmModel) -> Self {
        let whole = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let numbers = model.constants().into_iter().map(|(name, number)| (name.to_owned(), whole(number)));
        let mut values = Self { id: model.model.clone(), numbers: numbers.collect(), ..Self::default() };
        let gemms = model.all_gemms();
        let mut table = |name: &str, product: Product, role: Option<GemmRole>, dtype: &Dtype| {
            let of_table = gemms.iter().filter(|gemm| {
                gemm.role.product() == product
                    && role.is_none_or(|role| role == gemm.role)
                    && [&gemm.weights, &gemm.activations] == [dtype, dtype]
            });
            let rows: BTreeSet<[i64; 3]> =
                of_table.map(|gemm| [whole(gemm.count), whole(gemm.n), whole(gemm.k)]).collect();
            // A single product's count is always 1.
            let from = usize::from(product == Product::Single);
            let numbers: Vec<i64> = rows.iter().flat_map(|row| row[from..].to_vec()).collect();
            if !numbers.is_empty() {
                values.tables.insert(name.to_owned(), Table { width: 3 - from, numbers });
            }
        };
        table("products", Product::Single, None, &Dtype::Bf16);
        table("products_int8", Product::Single, None, &Dtype::Int8);
        table("batched", Product::Batched, None, &Dtype::Bf16);
        table("experts", Product::Grouped, None, &Dtype::Bf16);
        table("experts_int8", Product::Grouped, None, &Dtype::Int8);
        table("expert_gate_up", Product::Grouped, Some(GemmRole::ExpertGateUp), &Dtype::Bf16);
        table("expert_gate_up_int8", Product::Grouped, Some(GemmRole::ExpertGateUp), &Dtype::Int8);
        let layouts = model.layouts.usable(model);
        let shares = layouts.iter().filter_map(|layout| model.share(*layout).ok());
        let heads: BTreeSet<(i64, i64)> =
            shares.map(|share| (whole(share.heads), whole(share.kv_heads))).collect();
        match model.attention {
            LlmAttention::Grouped(_) => values.tables.insert("heads".to_owned(), Table::pairs(heads)),
            LlmAttention::Latent(_) => {
                let heads: BTreeSet<i64> = heads.into_iter().map(|(heads, _)| heads).collect();
                values.tables.insert("latent_heads".to_owned(), Table::list(heads))
            }
        };
        values
    }
}

/// The products of a model that no table has, because it is run in number formats alone that no grid is of.
pub(super) fn without_table(model: &LlmModel) -> Option<String> {
    let gemms = model.all_gemms();
    let has_table = |gemm: &&Gemm| {
        [&Dtype::Bf16, &Dtype::Int8].contains(&&gemm.weights) && gemm.weights == gemm.activations
    };
    let covered: BTreeSet<GemmRole> = gemms.iter().filter(has_table).map(|gemm| gemm.role).collect();
    let lost: BTreeSet<GemmRole> =
        gemms.iter().map(|gemm| gemm.role).filter(|role| !covered.contains(role)).collect();
    let words: Vec<&str> = lost.into_iter().map(GemmRole::as_str).collect();
    let formats: Vec<&str> = model.quantisation.iter().map(|format| format.as_str()).collect();
    (!words.is_empty()).then(|| {
        format!(
            "no grid has the products {} in {} alone; docs/models.md says which it has",
            words.join(", "),
            formats.join(" and ")
        )
    })
}
