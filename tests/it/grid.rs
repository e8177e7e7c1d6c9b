//! Grids: declared candidates, selected rows, and errors in grid files.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::LazyLock,
};

use npubench::{
    base::assets::AssetFiles,
    cases::{
        grid::{
            CandidateSource, Candidates, CaseBuilder, ExistingCases, RejectReason, SelectedRows,
            SelectionRequest,
            definition::{GridFiles, GridModels, ModelValues, ValueTable},
            select_rows,
        },
        llm::LlmModel,
    },
    kernel::{KernelName, MemoryFootprint, catalogue::Catalogue, default_memory_budget},
};
use proptest::prelude::*;

use crate::context::{Context, Ran};

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
    const COUNTS: [(&str, &str, usize); 55] = [
        ("MatMulV2", "matmul", 50653),
        // One row for a product: CANN chooses between MatMulV2 and MatMulV3.
        ("MatMulV3", "matmul", 0),
        ("QuantBatchMatmulV3", "quant_matmul", 50653),
        ("TransposeBatchMatMul", "transpose_batch_matmul", 11840),
        // The superseded tool has its name in graphs, BatchMatMulNd.
        ("BatchMatMulV2", "batch_matmul", 5550),
        ("Add", "arithmetic", 481),
        ("muls_add_kernel", "arithmetic", 481),
        ("Equal", "comparison", 481),
        ("LogicalAnd", "logic", 481),
        ("MaskedFill", "masked_fill", 481),
        ("Cast", "unary", 481),
        ("ReduceSum", "unary", 481),
        ("RmsNorm", "rmsnorm", 481),
        ("AddRmsNorm", "add_rmsnorm", 481),
        ("AddRmsNormBias", "add_rmsnorm", 481),
        ("AddRmsNormDynamicQuant", "add_rmsnorm_dynamic_quant", 481),
        ("AscendQuantV2", "quant", 481),
        ("AscendQuantV2Aicore", "quant", 481),
        ("DynamicQuant", "dynamic_quant", 481),
        ("SwiGlu", "swiglu", 481),
        ("Slice", "slice", 481),
        ("Transpose", "transpose", 481),
        ("BroadcastTo", "broadcast_to", 481),
        ("TensorMove", "tensor_move", 321),
        ("InterleaveRope", "interleave_rope", 208),
        ("_triton_rope", "triton_rope", 208),
        ("split_qkv_rmsnorm_rope_kernel", "split_qkv_rmsnorm_rope", 65),
        ("KvRmsNormRopeCache", "kv_rmsnorm_rope_cache", 13),
        ("AttentionUpdate", "attention_update", 432),
        ("Pack", "unary", 481),
        // Of 273: a batch that has more sequences than tokens is none.
        ("PagedCacheLoadNdKernel", "paged_cache_load", 237),
        ("InplaceAddRmsNorm", "add_rmsnorm", 481),
        ("LinearIndex", "linear_index", 481),
        ("ApplyTopKTopPWithSorted", "apply_topk_top_p", 56),
        // On 32, 64, 128 and 256 devices, 11, 22, 55 and 55 of 143 as there, and those that it has for other layers.
        ("DispatchFFNCombine", "dispatch_ffn_combine_narrow", 220),
        ("GatherV2", "gather", 4329),
        ("GatherV3", "gather_v3", 6253),
        ("Index", "index", 3367),
        ("AsStrided", "as_strided", 147),
        ("ConcatD", "concat", 91),
        ("Tile", "tile", 78),
        ("PadV3", "pad", 925),
        ("Sort", "sort", 104),
        ("ArgMaxV2", "argmax", 56),
        ("ApplyTopKTopPCustom", "apply_topk_top_p", 56),
        ("ReshapeAndCacheNdKernel", "reshape_and_cache", 234),
        ("MoeGatingTopK", "moe_gating_topk", 117),
        // The superseded tool had 340: one width, divided by `tp` in both dimensions, where a layer has two products.
        ("GroupedMatmul", "grouped_matmul", 680),
        ("GroupedMatmulSwigluQuant", "grouped_matmul_swiglu_quant", 340),
        ("DispatchFFNCombine", "dispatch_ffn_combine", 275),
        ("DispatchFFNCombineBF16", "dispatch_ffn_combine_bf16", 275),
        ("FusedInferAttentionScore", "prefill", 200),
        ("FusedInferAttentionScore", "decode", 480),
        // The superseded tool had 102: it merged lengths that need the same blocks, though their times differ.
        ("FusedInferAttentionScore", "latent_prefill", 36),
        ("FusedInferAttentionScore", "latent_decode", 72),
    ];
    let grids = built_in();
    let wrong: Vec<String> = COUNTS
        .iter()
        .map(|&(name, pattern, count)| (name, pattern, count, declared(grids, name, pattern)))
        .filter(|(.., count, found)| count != found)
        .map(|(name, pattern, count, found)| format!("{name} ({pattern}): {found}, expected {count}"))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The superseded tool had 916 cases of fused attention: 680 of Qwen, 102 of DeepSeek-V3, 54 of latent attention at generic
/// lengths, and 80 of Llama at generic lengths that Qwen did not have. It merged lengths that need the same blocks: 6 of
/// DeepSeek-V3.
#[test]
fn attention_grids_declare_expected_case_counts() {
    let (grids, catalogue) = (built_in(), catalogue());
    let name = kernel("FusedInferAttentionScore");
    let request = SelectionRequest {
        entry: catalogue.entry(&name),
        budget: u64::MAX,
        rows: None,
        seed: 0,
        filter: None,
    };
    let of = |patterns: &[&str]| {
        let spaces = grids.spaces_of_kernel(&name).filter(|space| patterns.contains(&space.pattern.as_str()));
        let source = CandidateSource::Grid(spaces.collect());
        select_rows(&name, source, &request, &ExistingCases::default()).rows()
    };
    let (qwen, latent) = (["prefill", "decode"], ["latent_prefill", "latent_decode"]);
    let (llama, glm) =
        (["generic_prefill", "generic_decode"], ["generic_latent_prefill", "generic_latent_decode"]);
    assert_eq!([of(&qwen), of(&latent), of(&glm)], [680, 102 + 6, 54]);
    assert_eq!(of(&[qwen, llama].concat()), 680 + 80);
    assert_eq!(of(&[qwen, latent, llama, glm].concat()), 916 + 6);
    // 4100 and 4224 need the same number of blocks and differ only in their lengths.
    let blocks = |length: u64| length.div_ceil(128);
    assert_eq!(blocks(4100), blocks(4224));
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
                panic!("{} of {}: {refusal}", case.shapes(), row.provenance());
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    /// A selection has the requested number of rows or all, is repeatable, and skips existing rows.
    #[test]
    fn grid_selection_is_repeatable_and_adds_missing_rows(
        name in prop::sample::select(vec!["PadV3", "Slice", "FusedInferAttentionScore", "InterleaveRope"]),
        (first, second) in (0_usize..400, 0_usize..400),
        seed in any::<u64>(),
        gib in 1_u64..64,
    ) {
        let (grids, catalogue) = (built_in(), catalogue());
        let kernel = kernel(name);
        let spaces = || grids.spaces_of_kernel(&kernel).collect::<Vec<_>>();
        let select = |rows, existing: &ExistingCases| {
            let request = SelectionRequest { entry: catalogue.entry(&kernel), budget: gib << 30, rows, seed, filter: None };
            select_rows(&kernel, CandidateSource::Grid(spaces()), &request, existing)
        };
        let all = select(None, &ExistingCases::default()).rows();
        let selected = select(Some(first), &ExistingCases::default());
        prop_assert_eq!(selected.rows(), first.min(all));
        prop_assert_eq!(&select(Some(first), &ExistingCases::default()).selected, &selected.selected);
        let counts = spaces().into_iter().zip(&selected.selected);
        let counts = counts.map(|(space, selected)| (space.origin(), selected.len()));
        let mut existing = ExistingCases::with_rows(counts.collect());
        selected.for_each(|row| assert!(existing.insert(row.case), "{} twice", row.case.shapes()));
        let more = select(Some(second), &existing);
        prop_assert_eq!(more.rows(), second.saturating_sub(first).min(all - selected.rows()));
        // If a row exists, all candidates of the same case are existing ones.
        let count = |rows: &SelectedRows<'_>, reason| rows.rejected().get(&reason).map_or(0, |rejected| rejected.count);
        let (existing_now, duplicates) = (count(&more, RejectReason::Existing), count(&more, RejectReason::Duplicate));
        prop_assert_eq!(existing_now + duplicates, selected.rows() as u64 + count(&selected, RejectReason::Duplicate));
        more.for_each(|row| assert!(!existing.contains(row.case), "{} exists", row.case.shapes()));
    }
}

/// With models, products have the sizes of their layers: fused queries, keys and values with grouped heads, merged gate
/// and up, whole latent projections, and none of other models.
#[test]
fn model_grids_have_layer_products() {
    let pairs = |models: &[&str], name: &str| -> BTreeSet<(u64, u64)> {
        let (grids, kernel) = (of_models(models), kernel(name));
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
    let dense = pairs(&["Qwen3-32B"], "MatMulV2");
    // On one device and on four: 64 and 16 heads, 8 and 2 of keys and values.
    assert!(dense.contains(&((64 + 16) * 128, 5120)) && dense.contains(&((16 + 4) * 128, 5120)));
    assert!(dense.contains(&(2 * 25600 / 4, 5120)) && dense.contains(&(151_936, 5120)), "{dense:?}");
    let latent = pairs(&["deepseek-ai/DeepSeek-V3"], "MatMulV2");
    assert!(latent.contains(&(1536 + 512 + 64, 7168)) && latent.contains(&(128 * 192, 1536)), "{latent:?}");
    assert!(!latent.contains(&((64 + 16) * 128, 5120)));
    let quantised = pairs(&["Qwen3-32B"], "QuantBatchMatmulV3");
    assert!(quantised.contains(&(2 * 25600, 5120)) && !quantised.contains(&(151_936, 5120)), "{quantised:?}");
    let experts = pairs(&["DeepSeek-V3"], "GroupedMatmul");
    assert!(experts.contains(&(2 * 2048, 7168)) && experts.contains(&(7168, 2048)), "{experts:?}");
    assert_eq!(
        of_models(&["Qwen3-32B"]).spaces_of_kernel(&kernel("GroupedMatmul")).count(),
        0,
        "it has no experts"
    );
}

/// Kernels without a weight have the widths of a model in addition to those of the ladder.
#[test]
fn model_grids_have_layer_widths() {
    let widths = |models: &[&str], name: &str| -> BTreeSet<i64> {
        let (grids, kernel) = (of_models(models), kernel(name));
        let axes = grids.spaces_of_kernel(&kernel).flat_map(|space| &space.axes);
        axes.filter(|axis| axis.names == ["d"]).flat_map(|axis| axis.values.clone()).collect()
    };
    let ladder = widths(&[], "SwiGlu");
    let beside = |model: &str, name: &str| -> Vec<i64> {
        let all = widths(&[model], name);
        assert!(ladder.is_subset(&all), "{name}");
        all.difference(&ladder).copied().collect()
    };
    // 25600 on 1, 2, 4, 8 and 16 devices, of which the ladder has none; halves of what is merged.
    assert_eq!(beside("Qwen3-32B", "SwiGlu"), [1600, 3200, 6400, 12800, 25600]);
    assert_eq!(beside("Qwen3-32B", "RmsNorm"), [0_i64; 0], "5120 is on the ladder");
    let quantised = beside("Qwen3-32B", "DynamicQuant");
    assert!(quantised.contains(&6400) && !quantised.contains(&151_936), "{quantised:?}");
    assert!(widths(&["Qwen3-32B"], "DynamicQuant").contains(&512), "64 heads of 128 on 16 devices");
    // Latent attention: 512 + 64, and 128 heads of 128 + 64 on 16 devices.
    let latent = beside("DeepSeek-V3", "Add");
    assert!(latent.contains(&576) && widths(&["DeepSeek-V3"], "Add").contains(&(8 * 192)), "{latent:?}");
    assert!(widths(&["DeepSeek-V3"], "RmsNorm").is_superset(&[512, 1536, 7168].into()));
    // A model that is not quantised to INT8 has the ladder and is not skipped.
    let text = "model: a/Plain\nhidden_size: 1000\nlayers: 1\nvocab_size: 512\ngqa: {heads: 8, kv_heads: 8, \
                head_dim: 64}\nintermediate_size: 2048\nlayouts: {tp: [1]}\nquantisation: [bf16]\n";
    let context = Context::new();
    context.write("own/grids/models/Plain.yaml", text);
    let arguments =
        ["DynamicQuant,RmsNorm", "--models", "Plain", "--assets", "own", "--dry-run", "--rows", "0"];
    let ran = grid(&context, &[&arguments[..], &["--format", "json"]].concat());
    let lines = ran.stdout.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"));
    let counts: Vec<u64> = lines.filter_map(|line| line["candidates"].as_u64()).collect();
    assert_eq!(counts, [481, 481 + 13], "{}", ran.stderr);
}

/// Rows of every model pass the shape rule of every kernel with models.
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
            rows: Some(300),
            seed: 5,
            filter: None,
        };
        let source = CandidateSource::Grid(spaces);
        let selected = select_rows(&kernel, source, &request, &ExistingCases::default());
        let expected = match kernel.as_str() {
            // Fewer candidates than rows were requested.
            "MoeGatingTopK" => 26,
            "split_qkv_rmsnorm_rope_kernel" | "split_qkv_rmsnorm_rope_kernel_0" => 117,
            "ApplyRotaryPosEmb"
            | "MoeTokenPermute"
            | "MoeTokenUnpermute"
            | "IncreFlashAttention"
            | "FlashAttentionScore"
            | "FlashAttentionScoreGrad" => selected.rows().clamp(26, 300),
            _ => 300,
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
    const EACH: u64 = if cfg!(debug_assertions) { 250 } else { 20_000 };
    let catalogue = catalogue();
    let names = LlmModel::all(&AssetFiles::embedded()).expect("they load").into_keys().collect::<Vec<_>>();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (mut accepted, mut refused) = (0, 0);
    for grids in [built_in(), &of_models(&names)] {
        for space in grids.spaces() {
            let Some(entry) = catalogue.entry(&space.kernel) else { continue };
            let Some(quick) = space.compile_rule(entry) else { continue };
            // An odd step has no factor with the lengths of most axes in common and meets all their values.
            let step = space.candidates().div_ceil(EACH);
            let step = if step > 1 { step | 1 } else { 1 };
            let (mut candidates, mut draft) = (Candidates::new(space), CaseBuilder::new(space));
            for index in (0..space.candidates()).step_by(usize::try_from(step).expect("small")) {
                candidates.go_to(index);
                let Ok(numbers) = candidates.check() else { continue };
                let numbers = numbers.to_vec();
                if draft.fill(&numbers).is_err() {
                    continue;
                }
                let case = draft.case(&numbers).expect("attributes");
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
    assert!(accepted >= 175_000 && refused >= 250, "{accepted} and {refused}");
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

fn grid(context: &Context, arguments: &[&str]) -> Ran {
    context.run(&[&["grid", "--db", "db", "--kind", "rehearsal"], arguments].concat())
}

#[test]
fn grid_dry_run_prints_table_and_json() {
    let context = Context::new();
    let kernels =
        ["TensorMove", "BroadcastTo", "GatherV3", "ReshapeAndCacheNdKernel", "FusedInferAttentionScore"];
    let ran = grid(&context, &[&kernels[..], &["--dry-run", "--rows", "100"]].concat());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(!context.path("db").exists());
    insta::assert_snapshot!(format!("{}\n{}", ran.stdout, ran.stderr));
    let ran = grid(&context, &["TensorMove", "--dry-run", "--rows", "100", "--format", "json"]);
    insta::assert_snapshot!(ran.stdout);
}

#[test]
fn repeated_grid_command_adds_no_rows() {
    let context = Context::new();
    let kernels = ["SwiGlu", "FusedInferAttentionScore", "DispatchFFNCombine", "QuantBatchMatmulV3"];
    let arguments = [&kernels[..], &["--rows", "20", "--seed", "7"]].concat();
    let ran = grid(&context, &arguments);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let before = context.snapshot("db");
    assert_eq!(before.len(), kernels.len() + 1, "{:?}", before.keys());
    assert_eq!(grid(&context, &arguments).code, 0);
    assert_eq!(context.snapshot("db"), before, "the second command added rows");
    // Another order of the kernels and another folder give the same bytes.
    let mut turned = kernels.to_vec();
    turned.reverse();
    let again =
        [&turned[..], &["--rows", "20", "--seed", "7", "--kind", "rehearsal", "--db", "other"]].concat();
    assert_eq!(context.run(&[&["grid"], &again[..]].concat()).code, 0);
    for name in kernels {
        let bytes =
            |folder: &str| std::fs::read(context.path(folder).join(format!("{name}.csv"))).expect("there");
        assert!(bytes("db") == bytes("other"), "{name}");
    }
    // More rows: existing ones stay first.
    assert_eq!(grid(&context, &["SwiGlu", "--rows", "30", "--seed", "7"]).code, 0);
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

/// Rows of grids can be measured without further steps.
#[test]
fn grid_rows_can_be_measured() {
    let context = Context::new();
    assert_eq!(grid(&context, &["RmsNorm,MatMulV2", "--rows", "3", "--max-hbm-gib", "1"]).code, 0);
    let ran = context.run(&["run", "--db", "db", "--host", "rehearsal", "--devices", "0"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    for name in ["RmsNorm", "MatMulV2"] {
        let rows = context.rows("db", name);
        assert_eq!(rows.len(), 3);
        let is_done = |row: &BTreeMap<String, String>| {
            // Large products are measured as rows of MatMulV3.
            row["MicroBench Verdict"] == "ok"
                || name == "MatMulV2" && row["MicroBench Verdict"] == "ran_as_other"
        };
        assert!(rows.iter().all(is_done), "{rows:?}");
    }
    let is_ok = |row: &&BTreeMap<String, String>| row["MicroBench Verdict"] == "ok";
    let measured = |name: &str| context.rows("db", name).iter().filter(is_ok).count();
    assert_eq!(measured("MatMulV2") + measured("MatMulV3"), 3, "a measured row for each product");
}

#[test]
fn grid_skips_rows_of_profiles() {
    let context = Context::new();
    context.small_database("db");
    let before = context.rows("db", "SwiGlu");
    assert_eq!(before[0]["Input Shapes"], "\"512,6144\"");
    assert_eq!(grid(&context, &["SwiGlu", "--rows", "0"]).code, 0);
    let rows = context.rows("db", "SwiGlu");
    // All rows of the grid but the existing one, which is unchanged.
    assert_eq!(rows.len(), 481);
    assert_eq!(rows.iter().filter(|row| row["Input Shapes"] == "\"512,6144\"").count(), 1);
    assert_eq!(rows[0]["Profiling Average Duration(us)"], "59.730000");
}

#[test]
fn grid_plot_draws_rows() {
    let context = Context::new();
    let ran = grid(&context, &["MatMulV2", "Sort", "--dry-run", "--rows", "50", "--plot", "p.svg"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let svg = std::fs::read_to_string(context.path("p.svg")).expect("drawn");
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    assert_eq!(svg.matches("<g ").count(), svg.matches("</g>").count());
    assert_eq!(svg.matches("<circle").count(), 2 * 50, "a circle for each row of two kernels");
}

/// Patterns use numbers and tables of models by name; models without one are skipped.
#[test]
fn patterns_use_numbers_and_tables_of_models() {
    let text = "summary: a test\npatterns:\n  layer:\n    kernels: [MatMulV2]\n    axes: {m: [1, 16], \"n,k\": \
                {model: gemm}}\n    inputs: {shapes: \"m,k; n,k\", dtypes: DT_BF16}\n    outputs: {shapes: \"m,n\", \
                dtypes: DT_BF16}\n  experts:\n    kernels: [SwiGlu]\n    axes: {t: [1, 2, 4]}\n    where: [t <= \
                experts]\n    inputs: {shapes: \"t,2*expert_width\", dtypes: DT_BF16}\n    outputs: {shapes: \
                \"t,expert_width\", dtypes: DT_BF16}\n";
    let model = |id: &str, numbers: &[(&str, i64)], pairs: &[(i64, i64)]| ModelValues {
        id: id.to_owned(),
        numbers: numbers.iter().map(|(name, number)| ((*name).to_owned(), *number)).collect(),
        tables: BTreeMap::from([("gemm".to_owned(), ValueTable::pairs(pairs.iter().copied()))]),
    };
    let dense = model("dense", &[("hidden", 64)], &[(64, 128), (128, 64)]);
    let sparse =
        model("sparse", &[("hidden", 64), ("experts", 2), ("expert_width", 256)], &[(64, 128), (32, 64)]);
    let shared = (Path::new("ladders.yaml"), "summary: none\n");
    let grids = {
        let models = vec![dense, sparse];
        let models = GridModels::new(models.clone(), Some(models));
        GridFiles::parse(Path::new("test.yaml"), text, shared, &models).expect("a grid")
    };
    let models = |name: &str| -> Vec<Option<String>> {
        let kernel = kernel(name);
        grids.spaces_of_kernel(&kernel).map(|space| space.model.clone()).collect()
    };
    assert_eq!(models("MatMulV2"), [Some("dense".to_owned()), Some("sparse".to_owned())]);
    assert_eq!(models("SwiGlu"), [Some("sparse".to_owned())]);
    assert_eq!(declared(&grids, "SwiGlu", "experts"), 2);
    let catalogue = catalogue();
    let name = kernel("MatMulV2");
    let request = SelectionRequest {
        entry: catalogue.entry(&name),
        budget: 1 << 30,
        rows: None,
        seed: 0,
        filter: None,
    };
    let source = CandidateSource::Grid(grids.spaces_of_kernel(&name).collect());
    let selected = select_rows(&name, source, &request, &ExistingCases::default());
    // The pair that both models have is one row.
    assert_eq!(
        (selected.candidates, selected.rows(), selected.rejected()[&RejectReason::Duplicate].count),
        (8, 6, 2)
    );
}

/// The schema for editors has the keys that the parser accepts.
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
