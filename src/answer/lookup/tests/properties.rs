//! The index against a comparison of every row, in databases of random rows.

use proptest::prelude::*;

use super::{TestDatabase, query, shown, tensors};
use crate::{
    answer::{
        lookup::{
            KernelIndex,
            kernel_rows::{IndexedRow, KernelRows},
            match_rows::{KernelsQuery, find_exact},
            query::{InputVariant, input_slots, input_variants},
        },
        op_mapping::KernelPolicy,
    },
    database::Database,
    kernel::KernelName,
};

const KERNELS: [&str; 6] = ["MatMulV2", "GroupedMatmul", "DynamicQuant", "RmsNorm", "Index", "Add"];

fn shape() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(prop::sample::select(vec![1_u64, 2, 3, 6, 16]), 1..=4)
}

/// Shapes of a row with its types.
fn inputs() -> impl Strategy<Value = (Vec<Vec<u64>>, Vec<&'static str>)> {
    prop::collection::vec(shape(), 1..=3).prop_flat_map(|shapes| {
        let count = shapes.len();
        let dtypes = prop::collection::vec(prop::sample::select(vec!["DT_BF16", "FLOAT", "INT8"]), count);
        (Just(shapes), dtypes)
    })
}

fn join(shapes: &[Vec<u64>]) -> String {
    let shape = |dims: &Vec<u64>| dims.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    shapes.iter().map(shape).collect::<Vec<_>>().join(";")
}

fn row_text((shapes, dtypes): &(Vec<Vec<u64>>, Vec<&str>), latency: usize) -> String {
    let blocked = shapes.iter().map(|shape| if shape.len() == 4 { "FRACTAL_NZ" } else { "ND" });
    let formats = blocked.collect::<Vec<_>>().join(";");
    format!("{} | {} | {formats} | | | {latency}", join(shapes), dtypes.join(";"))
}

fn load(database: &TestDatabase, kernel: &str) -> KernelIndex {
    let kernel = KernelName::new(kernel).expect("a name");
    let table = Database::open(database.path()).and_then(|database| database.kernel_csv(&kernel));
    let rows = KernelRows::load(&kernel, &table.expect("a table"), KernelPolicy::default(), true);
    KernelIndex::new(rows.expect("rows"))
}

/// Compares every row with every form of the inputs.
fn compare_all_rows(index: &KernelIndex, variants: &[InputVariant<'_>], is_prefix: bool) -> Vec<u32> {
    let fits = |row: &IndexedRow| {
        let form = index.rows.form(row);
        variants.iter().any(|variant| {
            let count = variant.slots.len();
            (form.inputs.len() == count || is_prefix && form.inputs.len() > count)
                && variant.slots.iter().enumerate().all(|(input, slot)| {
                    let recorded = index.rows.logical_input(row, input);
                    let dtype = slot.dtype.expect("a type");
                    index.traits.match_slot(input, &slot.dims, &recorded).is_some()
                        && index.traits.match_dtype(dtype, &form.inputs[input].dtype).0
                })
        })
    };
    (0..).zip(&index.rows.rows).filter(|(_, row)| fits(row)).map(|(number, _)| number).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_index_finds_the_rows_that_a_comparison_of_all_finds(
        kernel in prop::sample::select(KERNELS.to_vec()),
        rows in prop::collection::vec(inputs(), 1..40),
        wanted in inputs(),
        is_prefix in any::<bool>(),
    ) {
        let texts: Vec<String> = rows.iter().enumerate().map(|(at, row)| row_text(row, at + 1)).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let database = TestDatabase::new(&[(kernel, &texts)]);
        let index = load(&database, kernel);
        prop_assert_eq!(index.rows.rows.len(), rows.len());
        for (shapes, dtypes) in rows.iter().chain([&wanted]) {
            let inputs = tensors(&join(shapes), &dtypes.join(";"));
            let variants = input_variants(index.traits, input_slots(&inputs));
            let query = KernelsQuery { is_prefix, ..KernelsQuery::default() };
            let found = find_exact(&index, &variants, &query, &mut crate::answer::lookup::MissReason::InputCountMismatch);
            let mut found: Vec<u32> = found.iter().map(|found| found.row).collect();
            found.sort_unstable();
            prop_assert_eq!(found, compare_all_rows(&index, &variants, is_prefix));
        }
    }

    /// Each row answers its own inputs, unless an equal row has another latency. No answer is from a row of another
    /// type.
    #[test]
    fn rows_answer_for_themselves_and_for_no_other_type(rows in prop::collection::vec(inputs(), 1..30)) {
        let texts: Vec<String> =
            rows.iter().enumerate().map(|(at, row)| row_text(row, at + 1).replace("FRACTAL_NZ", "ND")).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let database = TestDatabase::new(&[("Concat", &texts)]);
        let engine = database.engine("");
        for (shapes, dtypes) in &rows {
            let wanted = query("Concat", &join(shapes), &dtypes.join(";"));
            let answer = engine.lookup(&wanted).expect("readable");
            prop_assert_eq!(answer.confidence.to_bits(), 1.0_f64.to_bits(), "{}", shown(&answer));
            let (row_shapes, row_dtypes) = &rows[answer.rows[0].line as usize - 2];
            let bare = |shape: &Vec<u64>| {
                let ones = shape.iter().take_while(|dim| **dim == 1).count().min(shape.len() - 1);
                shape[ones..].to_vec()
            };
            prop_assert_eq!(row_dtypes, dtypes);
            prop_assert_eq!(
                row_shapes.iter().map(bare).collect::<Vec<_>>(),
                shapes.iter().map(bare).collect::<Vec<_>>()
            );
        }
    }
}

/// Dimensions at the limits of numbers.
fn extreme_dim() -> impl Strategy<Value = u64> {
    prop_oneof![0_u64..40, prop::sample::select(vec![64, 1 << 20, 1 << 32, 1 << 63, u64::MAX - 1, u64::MAX]),]
}

fn extreme_shapes() -> impl Strategy<Value = Vec<Vec<u64>>> {
    prop::collection::vec(prop::collection::vec(extreme_dim(), 0..=5), 0..=5)
}

const ALL_ROUTES: &str = "interpolation_policy: {kernel_overrides: {Gather: {generic_compute: {axis: output_numel}}}}\n\
    operator_mappings:\n  mm: {kernel_type: MatMulV2}\n  gather: {kernel_type: Gather}\n  \
    add: {kernel_type: Add, query_mode: elementwise}\n  rope: {kernel_type: _triton_rope}\n  \
    swiglu: {kernel_type: SwiGlu}\n  cache: {kernel_type: ReshapeAndCacheNdKernel}\n  \
    quant: {kernel_type: DynamicQuant, compute_subcategory: compute_scale, tc_input_count: 1}\n  \
    moe: {kernel_type: DispatchFFNCombine, query_mode: moe_fused, project_full_shape: true}\n  \
    attn: {kernel_type: FusedInferAttentionScore, query_mode: attention_special}\n  \
    tp: {kernel_type: MatMulV2, tp_linear_projection: {shard_axis: output, logical_global_dims: [64]}}\n  \
    sum: {composite: true, sub_kernels: [MatMulV2, hcom_allReduce_]}\n  \
    scatter: {kernel_type: hcom_reduceScatter_, category: communication}\n";

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// For all rows and queries, an answer is a finite latency or a reason.
    #[test]
    fn any_rows_and_queries_have_an_answer_or_a_reason(
        rows in prop::collection::vec(extreme_shapes(), 1..12),
        wanted in prop::collection::vec(extreme_shapes(), 1..12),
        numbers in prop::collection::vec(extreme_dim(), 3),
    ) {
        let row = |shapes: &Vec<Vec<u64>>| {
            let types = vec!["DT_BF16"; shapes.len()].join(";");
            let output = shapes.first().cloned().unwrap_or_default();
            format!("{} | {types} | | {} | DT_BF16 | 7", join(shapes), join(&[output]))
        };
        let rows: Vec<String> = rows.iter().map(row).collect();
        let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
        let kernels = [
            "MatMulV2", "Gather", "Add", "_triton_rope", "SwiGlu", "ReshapeAndCacheNdKernel", "DynamicQuant",
            "DispatchFFNCombine", "FusedInferAttentionScore",
        ];
        let tables: Vec<(&str, &[&str])> = kernels.iter().map(|kernel| (*kernel, rows.as_slice())).collect();
        let database = TestDatabase::new(&tables);
        let engine = database.engine(ALL_ROUTES);
        let operators =
            ["mm", "gather", "add", "rope", "swiglu", "cache", "quant", "moe", "attn", "tp", "sum", "scatter"];
        for shapes in &wanted {
            for op in operators.iter().chain(&kernels) {
                let [ranks, tp, ep] = [0, 1, 2].map(|at| Some(numbers[at]));
                let kv_length = Some(numbers[0] as f64);
                let attention = super::AttentionParameters { kv_length, ..super::AttentionParameters::default() };
                let mut query = super::OpQuery { ranks, tp_size: tp, ep_size: ep, attention, ..query(op, "", "") };
                query.inputs = shapes
                    .iter()
                    .map(|dims| super::QueryTensor {
                        dims: dims.clone(),
                        dtype: Some(crate::kernel::Dtype::Bf16),
                        format: None,
                    })
                    .collect();
                let answer = engine.lookup(&query).expect("readable tables");
                prop_assert_eq!(answer.latency.is_none(), answer.miss.is_some(), "{} {:?}", op, shapes);
                prop_assert!(answer.latency.is_none_or(|latency| latency.0.is_finite() && latency.0 > 0.0));
                let _ = engine.nearest_rows(&query, 3).expect("readable tables");
            }
        }
    }
}
