//! Grids: declared candidates, selected rows, and errors in grid files.

use std::{collections::BTreeSet, path::Path, sync::LazyLock};

use npubench::{
    base::assets::AssetFiles,
    cases::grid::{
        CandidateSource, Candidates, ExistingCases, SelectionRequest,
        definition::{GridFiles, GridModels},
        select_rows,
    },
    kernel::{KernelName, MemoryFootprint, catalogue::Catalogue, default_memory_budget},
};

use crate::prelude::*;

/// Returns the built-in grids without models, loaded once.
fn built_in() -> &'static GridFiles {
    static GRIDS: LazyLock<GridFiles> = LazyLock::new(|| of_models(&[]));
    &GRIDS
}

/// Returns the built-in catalogue, loaded once.
fn catalogue() -> &'static Catalogue {
    static CATALOGUE: LazyLock<Catalogue> =
        LazyLock::new(|| Catalogue::load(&AssetFiles::embedded()).expect("the catalogue"));
    &CATALOGUE
}

fn of_models(names: &[&str]) -> GridFiles {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let models = GridModels::load(&AssetFiles::embedded(), &names).unwrap_or_else(|error| panic!("{error}"));
    GridFiles::load(&AssetFiles::embedded(), &models).unwrap_or_else(|error| panic!("{error}"))
}

fn kernel(name: &str) -> KernelName {
    KernelName::new(name).expect("a name")
}

/// Returns the number of candidates of a pattern that meet all constraints.
fn declared(grids: &GridFiles, name: &str, pattern: &str) -> usize {
    let kernel = kernel(name);
    let spaces = grids.spaces_of_kernel(&kernel).filter(|space| space.pattern == pattern);
    spaces
        .map(|space| {
            let mut candidates = Candidates::new(space);
            let mut count = 0;
            while candidates.advance().is_some() {
                count += usize::from(candidates.check().is_ok());
            }
            count
        })
        .sum()
}

/// Compares with the counts of the superseded tool's full grids.
#[test]
fn patterns_declare_expected_candidate_counts() {
    // Where the superseded tool has other counts: one row for a product, of which CANN chooses the kernel (MatMulV3); a
    // batch with more sequences than tokens is none (PagedCacheLoadNdKernel); further layers (narrow DispatchFFNCombine);
    // two products of a layer (GroupedMatmul); lengths that need the same blocks are not merged (latent attention).
    const COUNTS: [(usize, &str); 30] = [
        (50653, "MatMulV2/matmul QuantBatchMatmulV3/quant_matmul"),
        (0, "MatMulV3/matmul"),
        (11840, "TransposeBatchMatMul/transpose_batch_matmul"),
        (5550, "BatchMatMulV2/batch_matmul"),
        (
            481,
            "Add/arithmetic muls_add_kernel/arithmetic Equal/comparison LogicalAnd/logic \
             MaskedFill/masked_fill Cast/unary ReduceSum/unary RmsNorm/rmsnorm AddRmsNorm/add_rmsnorm \
             AddRmsNormBias/add_rmsnorm AddRmsNormDynamicQuant/add_rmsnorm_dynamic_quant \
             AscendQuantV2/quant AscendQuantV2Aicore/quant DynamicQuant/dynamic_quant SwiGlu/swiglu \
             Slice/slice Transpose/transpose BroadcastTo/broadcast_to Pack/unary \
             InplaceAddRmsNorm/add_rmsnorm LinearIndex/linear_index",
        ),
        (321, "TensorMove/tensor_move"),
        (208, "InterleaveRope/interleave_rope _triton_rope/triton_rope"),
        (65, "split_qkv_rmsnorm_rope_kernel/split_qkv_rmsnorm_rope"),
        (13, "KvRmsNormRopeCache/kv_rmsnorm_rope_cache"),
        (432, "AttentionUpdate/attention_update"),
        (237, "PagedCacheLoadNdKernel/paged_cache_load"),
        (
            56,
            "ApplyTopKTopPWithSorted/apply_topk_top_p ArgMaxV2/argmax \
             ApplyTopKTopPCustom/apply_topk_top_p",
        ),
        (220, "DispatchFFNCombine/dispatch_ffn_combine_narrow"),
        (4329, "GatherV2/gather"),
        (6253, "GatherV3/gather_v3"),
        (3367, "Index/index"),
        (147, "AsStrided/as_strided"),
        (91, "ConcatD/concat"),
        (78, "Tile/tile"),
        (925, "PadV3/pad"),
        (104, "Sort/sort"),
        (234, "ReshapeAndCacheNdKernel/reshape_and_cache"),
        (117, "MoeGatingTopK/moe_gating_topk"),
        (680, "GroupedMatmul/grouped_matmul"),
        (340, "GroupedMatmulSwigluQuant/grouped_matmul_swiglu_quant"),
        (275, "DispatchFFNCombine/dispatch_ffn_combine DispatchFFNCombineBF16/dispatch_ffn_combine_bf16"),
        (200, "FusedInferAttentionScore/prefill"),
        (480, "FusedInferAttentionScore/decode"),
        (36, "FusedInferAttentionScore/latent_prefill"),
        (72, "FusedInferAttentionScore/latent_decode"),
    ];
    let grids = built_in();
    let mut wrong = String::new();
    for (expected, patterns) in COUNTS {
        for pattern in patterns.split(' ') {
            let (name, of) = pattern.split_once('/').expect("kernel and pattern");
            let found = declared(grids, name, of);
            if found != expected {
                wrong += &format!("{pattern}: {found}, expected {expected}\n");
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// Every entry has a grid that gives rows, or docs/design/grids.md has the reason why it has none.
#[test]
fn every_entry_has_a_grid_or_a_reason() {
    let (grids, catalogue) = (built_in(), catalogue());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/design/grids.md");
    let text = std::fs::read_to_string(path).expect("UTF-8");
    let table = text.split("| kernel with an entry, without a grid | reason |").nth(1).expect("a table");
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let kernels = rows.filter_map(|row| row.split('|').nth(1)).flat_map(|cell| cell.split(','));
    let excepted: BTreeSet<&str> = kernels.map(|name| name.trim().trim_matches('`')).collect();
    for entry in catalogue.entries() {
        let declared = grids.spaces_of_kernel(&entry.kernel).next().is_some();
        assert!(declared || excepted.contains(entry.kernel.as_str()), "{} has no grid", entry.kernel);
    }
}

/// Every row of every kernel passes the shape rule, fits the memory and is unique.
#[test]
fn selected_rows_pass_shape_rule_and_fit_memory() {
    let (grids, catalogue) = (built_in(), catalogue());
    let budget = default_memory_budget(64 << 30);
    let mut rows = 0;
    for kernel in grids.kernels() {
        let entry = catalogue.entry(&kernel);
        let request = SelectionRequest { entry, budget, rows: Some(60), seed: 11, filter: None };
        let source = CandidateSource::Grid(grids.spaces_of_kernel(&kernel).collect());
        let selected = select_rows(&kernel, source, &request, &ExistingCases::default());
        let mut signatures = BTreeSet::new();
        selected.for_each(|row| {
            let (case, bytes) = (row.case, MemoryFootprint::from_case(row.case).bytes());
            assert!(bytes <= budget && bytes >= case.bytes(), "{}", case.shapes());
            if let Err(refusal) = entry.expect("an entry").resolve_call(case) {
                panic!("{} of {}: {refusal}", case.shapes(), row.provenance);
            }
            assert!(signatures.insert(case.signature()), "{} twice", case.shapes());
        });
        assert_eq!(entry.is_none(), selected.rows() == 0, "{kernel}");
        let rejected: u64 = selected.rejected().values().map(|rejected| rejected.count).sum();
        assert_eq!(rejected + selected.rows() as u64, selected.candidates, "{kernel}: each is counted once");
        rows += selected.rows();
    }
    assert!(rows >= 4_500, "{rows} rows");
}

/// With models, products have the sizes of their layers: fused queries, keys and values with grouped heads, merged gate
/// and up, whole latent projections, and none of other models.
#[test]
fn model_grids_have_layer_products() {
    let pairs = |models: &str, name: &str| -> BTreeSet<(u64, u64)> {
        let (grids, kernel) = (of_models(&[models]), kernel(name));
        let mut pairs = BTreeSet::new();
        for space in grids.spaces_of_kernel(&kernel) {
            let at = |wanted| space.names.iter().position(|name| name == wanted).expect("an axis");
            let (mut candidates, n, k) = (Candidates::new(space), at("n"), at("k"));
            while candidates.advance().is_some() {
                let numbers = candidates.numbers();
                pairs.insert((numbers[n].unsigned_abs(), numbers[k].unsigned_abs()));
            }
        }
        pairs
    };
    let dense = pairs("Qwen3-32B", "MatMulV2");
    // On one device and on four: 64 and 16 heads, 8 and 2 of keys and values.
    assert!(dense.contains(&((64 + 16) * 128, 5120)) && dense.contains(&((16 + 4) * 128, 5120)));
    assert!(dense.contains(&(2 * 25600 / 4, 5120)) && dense.contains(&(151_936, 5120)), "{dense:?}");
    let latent = pairs("deepseek-ai/DeepSeek-V3", "MatMulV2");
    assert!(latent.contains(&(1536 + 512 + 64, 7168)) && latent.contains(&(128 * 192, 1536)), "{latent:?}");
    assert!(!latent.contains(&((64 + 16) * 128, 5120)));
    let quantised = pairs("Qwen3-32B", "QuantBatchMatmulV3");
    assert!(quantised.contains(&(2 * 25600, 5120)) && !quantised.contains(&(151_936, 5120)), "{quantised:?}");
    let experts = pairs("DeepSeek-V3", "GroupedMatmul");
    assert!(experts.contains(&(2 * 2048, 7168)) && experts.contains(&(7168, 2048)), "{experts:?}");
    assert_eq!(
        of_models(&["Qwen3-32B"]).spaces_of_kernel(&kernel("GroupedMatmul")).count(),
        0,
        "it has no experts"
    );
}

#[test]
fn model_rows_pass_shape_rule() {
    let catalogue = catalogue();
    let grids = of_models(&["DeepSeek-V3", "Qwen3-32B", "Meta-Llama-3-70B", "GLM-5.1", "Mixtral-8x7B-v0.1"]);
    let mut kernels = 0;
    for kernel in grids.kernels() {
        let Some(entry) = catalogue.entry(&kernel) else { continue };
        let spaces: Vec<_> = grids.spaces_of_kernel(&kernel).filter(|space| space.model.is_some()).collect();
        if spaces.is_empty() {
            continue;
        }
        kernels += 1;
        let request = SelectionRequest {
            entry: Some(entry),
            budget: default_memory_budget(64 << 30),
            rows: Some(60),
            seed: 5,
            filter: None,
        };
        let source = CandidateSource::Grid(spaces);
        let selected = select_rows(&kernel, source, &request, &ExistingCases::default());
        let expected = match kernel.as_str() {
            // Fewer candidates than rows were requested.
            "MoeGatingTopK" => 26,
            "ApplyRotaryPosEmb"
            | "MoeTokenPermute"
            | "MoeTokenUnpermute"
            | "IncreFlashAttention"
            | "FlashAttentionScore"
            | "FlashAttentionScoreGrad" => selected.rows().clamp(26, 60),
            _ => 60,
        };
        assert_eq!(selected.rows(), expected, "{kernel}: {:?}", selected.rejected());
        selected
            .for_each(|row| assert!(entry.resolve_call(row.case).is_ok(), "{kernel} {}", row.case.shapes()));
    }
    assert!(kernels >= 44, "{kernels} kernels have grids of models; there were 44");
}

/// The compiled rule accepts the candidates that the catalogue resolves: of each space, with models and without, all
/// candidates if there are at most `EACH`, otherwise that many spread over the space. Memory limits none of them;
/// candidates that violate a constraint or have a dimension without a value are left out, as neither rule sees them.
#[test]
fn compiled_rule_accepts_the_candidates_that_the_catalogue_resolves() {
    // In a release build all of a space can be compared: 20,000 take less than a second.
    const EACH: u64 = if cfg!(debug_assertions) { 60 } else { 20_000 };
    let catalogue = catalogue();
    let (mut accepted, mut refused) = (0, 0);
    for grids in [built_in(), &of_models(&["DeepSeek-V3", "Qwen3-32B", "GLM-5.1"])] {
        for space in grids.spaces() {
            let Some(entry) = catalogue.entry(&space.kernel) else { continue };
            let Some(quick) = space.compile_rule(entry) else { continue };
            // An odd step has no factor with the lengths of most axes in common and meets all their values.
            let step = space.candidates().div_ceil(EACH);
            let step = if step > 1 { step | 1 } else { 1 };
            let mut candidates = Candidates::new(space);
            for index in (0..space.candidates()).step_by(usize::try_from(step).expect("small")) {
                candidates.go_to(index);
                if candidates.check().is_err() {
                    continue;
                }
                let numbers = candidates.numbers().to_vec();
                let case = candidates.case().expect("attributes");
                let (whole, form) = (entry.resolve_call(case), quick.matching_form(&numbers));
                assert_eq!(
                    form.is_some(),
                    whole.is_ok(),
                    "{} {}: {:?}",
                    space.kernel,
                    case.shapes(),
                    whole.err()
                );
                accepted += usize::from(form.is_some());
                refused += usize::from(form.is_none());
            }
        }
    }
    // Bounds that a rule without effect does not reach.
    assert!(accepted >= 5_000 && refused >= 1, "{accepted} and {refused}");
}

#[test]
fn rules_of_large_spaces_are_compiled() {
    let catalogue = catalogue();
    let grids = built_in();
    let interpreted = grids.spaces().iter().filter(|space| {
        catalogue.entry(&space.kernel).is_some_and(|entry| space.compile_rule(entry).is_none())
    });
    let interpreted: Vec<(&str, u64)> =
        interpreted.map(|space| (space.kernel.as_str(), space.candidates())).collect();
    assert!(interpreted.iter().all(|(_, candidates)| *candidates < 1000), "{interpreted:?}");
}

fn grid(context: &Context, arguments: &(impl Words + ?Sized)) -> Ran {
    context.run(&("grid --db db --kind rehearsal", arguments))
}

#[test]
fn grid_dry_run_prints_table_and_json() {
    let context = Context::new();
    let kernels =
        ["TensorMove", "BroadcastTo", "GatherV3", "ReshapeAndCacheNdKernel", "FusedInferAttentionScore"];
    let ran = grid(&context, &(&kernels[..], "--dry-run --rows 100")).ended(0);
    assert!(!context.path("db").exists());
    insta::assert_snapshot!(format!("{}\n{}", ran.stdout, ran.stderr));
    let ran = grid(&context, "TensorMove --dry-run --rows 100 --format json");
    insta::assert_snapshot!(ran.stdout);
}

#[test]
fn repeated_grid_command_adds_no_rows() {
    let context = Context::new();
    let kernels = ["SwiGlu", "FusedInferAttentionScore", "DispatchFFNCombine", "QuantBatchMatmulV3"];
    let arguments = [&kernels[..], &["--rows", "20", "--seed", "7"]].concat();
    grid(&context, &arguments).ended(0);
    let before = context.snapshot("db");
    assert_eq!(before.len(), kernels.len() + 1, "{:?}", before.keys());
    assert_eq!(grid(&context, &arguments).code, 0);
    assert_eq!(context.snapshot("db"), before, "the second command added rows");
    // Another order of the kernels and another folder give the same bytes.
    let mut turned = kernels.to_vec();
    turned.reverse();
    let again =
        [&turned[..], &["--rows", "20", "--seed", "7", "--kind", "rehearsal", "--db", "other"]].concat();
    context.done(&("grid", &again[..]));
    for name in kernels {
        let bytes =
            |folder: &str| std::fs::read(context.path(folder).join(format!("{name}.csv"))).expect("there");
        assert!(bytes("db") == bytes("other"), "{name}");
    }
    // More rows: existing ones stay first.
    assert_eq!(grid(&context, "SwiGlu --rows 30 --seed 7").code, 0);
    let rows = context.rows("db", "SwiGlu");
    assert_eq!(rows.len(), 30);
    for row in &rows {
        assert_eq!(row["Grid"], "grid elementwise.yaml: swiglu, seed 7");
        assert!(row.iter().all(|(column, cell)| !column.contains("Duration") || cell.is_empty()), "{row:?}");
    }
    let attention = context.rows("db", "FusedInferAttentionScore");
    assert!(attention.iter().all(|row| row["Runtime metadata_completeness"] == "complete"));
    assert!(attention[0]["Runtime source_profile"].starts_with("grid attention.yaml: "));
}

#[test]
fn grid_plot_draws_rows() {
    let context = Context::new();
    grid(&context, "MatMulV2 Sort --dry-run --rows 50 --plot p.svg").ended(0);
    let svg = context.read("p.svg");
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    assert_eq!(svg.matches("<g ").count(), svg.matches("</g>").count());
    assert_eq!(svg.matches("<circle").count(), 2 * 50, "a circle for each row of two kernels");
}

#[test]
fn grid_schema_lists_all_accepted_keys() {
    let schema: serde_json::Value =
        serde_json::from_str(include_str!("../../grids/schema.json")).expect("a schema");
    let keys = |properties: &serde_json::Value| -> BTreeSet<String> {
        properties["properties"].as_object().expect("properties").keys().cloned().collect()
    };
    let read = |text: &str| -> BTreeSet<String> {
        let shared = (Path::new("ladders.yaml"), "summary: none\n");
        let error = GridFiles::parse(Path::new("test.yaml"), text, shared, &GridModels::default())
            .expect_err("a wrong key");
        error.problem.split('`').skip(3).step_by(2).map(str::to_owned).collect()
    };
    assert_eq!(keys(&schema), read("summary: x\nwrong: 1\n"));
    assert_eq!(keys(&schema["definitions"]["pattern"]), read("summary: x\npatterns: {a: {wrong: 1}}\n"));
    let over = "summary: x\npatterns: {a: {with_models: {wrong: 1}}}\n";
    assert_eq!(keys(&schema["definitions"]["override"]), read(over));
    let side = "summary: x\npatterns: {a: {inputs: {wrong: 1}}}\n";
    assert_eq!(keys(&schema["definitions"]["side"]), read(side));
}
