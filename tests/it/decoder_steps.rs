//! Kernels of a step of a model by name: shapes of recorded and simulated runs, and calls that the catalogue accepts.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use npubench::{
    answer::workload::{DecoderStep, StepPhase, Workload, WorkloadQuestion, decoder_step, load_workload},
    base::assets::AssetFiles,
    cases::llm::{LlmAttention, LlmModel, ParallelLayout, QuantisationScheme},
    kernel::{Dtype, catalogue::Catalogue},
};
use serde_json::Value;

use crate::{context::Context, requirements::shared};

/// Batch and context of a step.
type Sequences = (u64, u64);

fn step(model: &str, layout: [u64; 3], phase: StepPhase, (batch, context): Sequences) -> Workload {
    step_in(model, layout, phase, (batch, context), QuantisationScheme::Bf16)
}

fn step_in(
    model: &str,
    [tp, ep, dp]: [u64; 3],
    phase: StepPhase,
    (batch, context): Sequences,
    quantisation: QuantisationScheme,
) -> Workload {
    let model = LlmModel::load(&AssetFiles::embedded(), model).expect("there");
    let step = DecoderStep { layout: ParallelLayout { tp, ep, dp }, phase, batch, context, quantisation };
    decoder_step(&model, &step).expect("a step")
}

/// Rows, depth and columns of plain products, with their counts.
fn products(workload: &Workload) -> BTreeMap<(u64, u64, u64), u64> {
    let mut found = BTreeMap::new();
    for question in &workload.questions {
        let query = &question.query;
        if let ("MatMulV2" | "QuantBatchMatmulV3", [rows, ..], [output, ..]) =
            (query.op.as_str(), &*query.inputs, &*query.outputs)
        {
            *found.entry((rows.dims[0], rows.dims[1], output.dims[1])).or_default() += question.count;
        }
    }
    found
}

fn calls_of<'w>(workload: &'w Workload, kernel: &str) -> Vec<&'w WorkloadQuestion> {
    workload.questions.iter().filter(|question| question.query.op == kernel).collect()
}

/// Returns the shapes of the inputs that a call has; attention keeps the places of others.
fn shapes(question: &WorkloadQuestion) -> Vec<Vec<u64>> {
    let shapes = question.query.inputs.iter().map(|tensor| tensor.dims.clone());
    shapes.filter(|dims| !dims.is_empty()).collect()
}

/// The dense model: the products and the attention of a simulated prefill of 10 prompts on 16 devices.
#[test]
fn products_and_attention_of_a_dense_model_are_those_of_a_run() {
    let derived = step("Qwen3-32B", [16, 1, 1], StepPhase::Prefill, (10, 4104));
    let expected = [
        ((10, 5120, 9496), 1),
        ((41040, 512, 5120), 64),
        ((41040, 1600, 5120), 64),
        ((41040, 5120, 768), 64),
        ((41040, 5120, 3200), 64),
    ];
    assert_eq!(products(&derived), BTreeMap::from(expected));
    let attention = calls_of(&derived, "FusedInferAttentionScore");
    assert_eq!((attention.len(), attention[0].count), (1, 64));
    assert_eq!(shapes(attention[0])[..2], [vec![41040, 4, 128], vec![41040, 1, 128]]);
    assert_eq!(attention[0].query.attention.kv_length, Some(4104.0));

    let Some(path) = shared("real/excerpts/ops_qwen3_32b_prefill.json") else { return };
    let run = load_workload(&path).expect("an inventory");
    let is_product = |question: &&WorkloadQuestion| {
        ["aten.mm.default", "tensor_cast.matmul_all_reduce.default"].contains(&question.query.op.as_str())
    };
    let recorded: BTreeSet<(u64, u64, u64)> = run
        .questions
        .iter()
        .filter(is_product)
        .map(|question| {
            (
                question.query.inputs[0].dims[0],
                question.query.inputs[0].dims[1],
                question.query.inputs[1].dims[1],
            )
        })
        .collect();
    assert_eq!(recorded, products(&derived).into_keys().collect());
    let count =
        |op: &str, workload: &Workload| calls_of(workload, op).iter().map(|call| call.count).sum::<u64>();
    assert_eq!(count("tensor_cast.attention.default", &run), 64);
    assert_eq!(count("tensor_cast.all_gather.default", &run), count("hcom_allGather_", &derived));
    // Products with their sums, and the sum of the embedding.
    assert_eq!(
        count("tensor_cast.matmul_all_reduce.default", &run) + count("tensor_cast.all_reduce.default", &run),
        count("hcom_allReduce_", &derived)
    );
    assert_eq!(
        products(&derived).values().sum::<u64>(),
        count("aten.mm.default", &run) + count("tensor_cast.matmul_all_reduce.default", &run)
    );
}

#[test]
fn a_dense_model_decodes_one_token_of_each_sequence() {
    let derived = step("Qwen3-32B", [4, 1, 1], StepPhase::Decode, (64, 4096));
    let expected = [
        ((64, 2048, 5120), 64),
        ((64, 5120, 2560), 64),
        ((64, 5120, 12800), 64),
        ((64, 5120, 37984), 1),
        ((64, 6400, 5120), 64),
    ];
    assert_eq!(products(&derived), BTreeMap::from(expected));
    let attention = calls_of(&derived, "FusedInferAttentionScore")[0];
    // 32 blocks of 128 tokens for each of 64 sequences, as the recorded scenes have them.
    assert_eq!(
        shapes(attention),
        [
            vec![64, 16, 128],
            vec![2048, 2, 128, 128],
            vec![2048, 2, 128, 128],
            vec![2048, 2048],
            vec![64],
            vec![64],
            vec![64, 32]
        ]
    );
    let parameters = &attention.query.attention;
    assert_eq!(
        (
            parameters.kv_length,
            parameters.kv_heads,
            parameters.sparse_mode.as_deref(),
            parameters.layout.as_deref()
        ),
        (Some(4096.0), Some(2), Some("3"), Some("TND"))
    );
}

/// Latent attention and experts: DeepSeek-V3 on 8 devices, a batch of 8, as a simulator's decode has them: (8, 7168) x
/// (7168, 4608) into the dense layers, (8, 2304) and (8, 2048) out, weights of 16 heads (128, 512) and (512, 128).
#[test]
fn products_and_attention_of_a_latent_model_are_those_of_a_run() {
    let derived = step_in("DeepSeek-V3", [8, 8, 1], StepPhase::Decode, (8, 4096), QuantisationScheme::W8a8);
    let products = products(&derived);
    for (product, count) in [
        ((8, 7168, 2112), 61),
        ((8, 1536, 3072), 61),
        ((8, 2048, 7168), 61),
        ((8, 7168, 4608), 3),
        ((8, 2304, 7168), 3),
        ((8, 7168, 256), 58),
        ((8, 7168, 512), 58),
        ((8, 256, 7168), 58),
        ((8, 7168, 16160), 1),
    ] {
        assert_eq!(products.get(&product), Some(&count), "{product:?}");
    }
    assert_eq!(products.len(), 9, "{products:?}");
    let absorbed = |kernel: &str| calls_of(&derived, kernel)[0];
    assert_eq!(shapes(absorbed("BatchMatMulV2")), [vec![16, 8, 128], vec![16, 128, 512]]);
    assert_eq!(shapes(absorbed("TransposeBatchMatMul")), [vec![16, 8, 512], vec![16, 512, 128]]);
    let attention = absorbed("FusedInferAttentionScore");
    assert_eq!(attention.count, 61);
    assert_eq!(
        shapes(attention),
        [
            vec![8, 16, 1, 512],
            vec![256, 1, 128, 512],
            vec![256, 1, 128, 512],
            vec![8],
            vec![8],
            vec![8, 32],
            vec![8, 16, 1, 64],
            vec![256, 1, 128, 64]
        ]
    );
    let parameters = &attention.query.attention;
    assert_eq!(
        (parameters.kv_heads, parameters.sparse_mode.as_deref(), parameters.layout.as_deref()),
        (Some(1), Some("0"), Some("BNSD_NBSD"))
    );
    let prefill = step("DeepSeek-V3", [8, 8, 1], StepPhase::Prefill, (1, 4099));
    // (512, 4096) is the projection of keys and values of 16 heads.
    assert_eq!(self::products(&prefill).get(&(4099, 512, 4096)), Some(&61));
    assert_eq!(shapes(calls_of(&prefill, "FusedInferAttentionScore")[0])[0], [4099, 16, 128]);
    assert!(calls_of(&prefill, "BatchMatMulV2").is_empty());
}

/// Experts on their devices: the kernel that exchanges tokens has the shapes of the recorded rows, (m, H), (E, H, n),
/// (E, n/2, H), (m, k), and the number of ranks.
#[test]
fn experts_are_computed_where_they_are() {
    let fused = step_in("DeepSeek-V3", [8, 16, 2], StepPhase::Decode, (8, 4096), QuantisationScheme::W8a8);
    let call = calls_of(&fused, "DispatchFFNCombine")[0];
    assert_eq!((call.count, call.query.ep_size), (58, Some(16)));
    assert_eq!(
        shapes(call),
        [
            vec![1, 7168],
            vec![16, 7168, 4096],
            vec![16, 2048, 7168],
            vec![1, 8],
            vec![65536],
            vec![114_688],
            vec![1, 8]
        ]
    );
    // Each of 8 devices had one of the 8 tokens, and has all of them again; shared experts are a sum of its own.
    assert_eq!(
        collectives(&fused, 58),
        [("hcom_allGather_", 8, vec![1, 7168]), ("hcom_allReduce_", 8, vec![8, 7168])]
    );
    // Without expert parallelism each device has a slice of every expert, and 8 rows of each token.
    let sliced = step("Qwen3-30B-A3B", [4, 1, 1], StepPhase::Decode, (64, 4096));
    let grouped: Vec<Vec<Vec<u64>>> = calls_of(&sliced, "GroupedMatmul").into_iter().map(shapes).collect();
    assert_eq!(
        grouped,
        [
            [vec![512, 2048], vec![128, 2048, 384], vec![128]],
            [vec![512, 192], vec![128, 192, 2048], vec![128]]
        ]
    );
    assert_eq!(shapes(calls_of(&sliced, "MoeGatingTopK")[0]), [[64, 128]]);
    // More experts than the kernel takes: tokens are exchanged by a collective.
    let exchanged = step("Qwen3-30B-A3B", [1, 4, 4], StepPhase::Decode, (64, 4096));
    assert!(calls_of(&exchanged, "DispatchFFNCombineBF16").is_empty());
    let there_and_back = ("hcom_alltoallv_", 4, vec![512, 2048]);
    assert_eq!(collectives(&exchanged, 48), [there_and_back.clone(), there_and_back]);
    assert_eq!(shapes(calls_of(&exchanged, "GroupedMatmul")[0])[0], [512, 2048]);
}

/// Kernel, ranks and message of the collectives that a step has as often.
fn collectives(workload: &Workload, count: u64) -> Vec<(&str, u64, Vec<u64>)> {
    let found = workload.questions.iter().filter(|question| question.count == count);
    found
        .filter_map(|question| {
            let dims = question.query.inputs[0].dims.clone();
            Some((question.query.op.as_str(), question.query.ranks?, dims))
        })
        .collect()
}

/// Results of experts that are cut are summed over their slices; tokens that were divided are gathered.
#[test]
fn experts_that_are_cut_are_summed() {
    let step = |layout| step("Qwen3-30B-A3B", layout, StepPhase::Decode, (64, 4096));
    let both = step([4, 2, 1]);
    // 4 devices hold 2 halves of the experts in 2 slices: 32 tokens each, 256 rows to the other half and back.
    assert_eq!(
        collectives(&both, 48),
        [
            ("hcom_allReduce_", 4, vec![64, 2048]),
            ("hcom_alltoallv_", 2, vec![256, 2048]),
            ("hcom_alltoallv_", 2, vec![256, 2048]),
            ("hcom_allReduce_", 2, vec![32, 2048]),
            ("hcom_allGather_", 2, vec![32, 2048]),
        ]
    );
    // As many groups of tokens as of experts, each cut by all devices of a group: one sum.
    let as_many = step([2, 2, 2]);
    assert_eq!(collectives(&as_many, 48).last(), Some(&("hcom_allReduce_", 2, vec![64, 2048])));
    assert_eq!(collectives(&as_many, 48).len(), 4);
    // Without expert parallelism, groups of tokens are joined.
    let joined = step([2, 1, 2]);
    assert_eq!(
        collectives(&joined, 48),
        [
            ("hcom_allReduce_", 2, vec![64, 2048]),
            ("hcom_allGather_", 2, vec![64, 2048]),
            ("hcom_allGather_", 2, vec![64, 128]),
            ("hcom_reduceScatter_", 2, vec![128, 2048]),
            ("hcom_allReduce_", 2, vec![64, 2048]),
        ]
    );
    assert_eq!(shapes(calls_of(&joined, "GroupedMatmul")[0])[0], [1024, 2048]);
}

/// Rows in INT8 travel with their scales, and both are ordered by the experts of the device.
#[test]
fn quantised_rows_are_exchanged_as_they_are_computed() {
    let exchanged =
        step_in("DeepSeek-V3", [8, 8, 1], StepPhase::Decode, (64, 4096), QuantisationScheme::W8a8);
    let sent = calls_of(&exchanged, "hcom_alltoallv_");
    let messages: Vec<(Vec<u64>, Option<Dtype>)> = sent
        .iter()
        .map(|call| (call.query.inputs[0].dims.clone(), call.query.inputs[0].dtype.clone()))
        .collect();
    assert_eq!(
        messages,
        [
            (vec![64], Some(Dtype::Float)),
            (vec![64, 7168], Some(Dtype::Int8)),
            (vec![64, 7168], Some(Dtype::Bf16))
        ]
    );
    let ordered: Vec<Vec<Vec<u64>>> =
        calls_of(&exchanged, "MoeTokenPermute").into_iter().map(shapes).collect();
    assert_eq!(ordered, [[vec![8, 7168], vec![8, 8]], [vec![64, 1], vec![64]], [vec![64, 7168], vec![64]]]);
    // 360 columns are no whole blocks of 32: the product, SwiGLU and the quantisation are kernels of their own.
    let uneven = step_in("gpt-oss-120b", [16, 1, 1], StepPhase::Decode, (64, 4096), QuantisationScheme::W8a8);
    assert!(calls_of(&uneven, "GroupedMatmulSwigluQuant").is_empty());
    let grouped: Vec<Vec<Vec<u64>>> = calls_of(&uneven, "GroupedMatmul").into_iter().map(shapes).collect();
    assert_eq!(grouped[0][..2], [vec![256, 2880], vec![128, 2880, 360]]);
    assert_eq!(grouped[1][..2], [vec![256, 180], vec![128, 180, 2880]]);
    assert_eq!(shapes(calls_of(&uneven, "SwiGlu")[0]), [[256, 360]]);
}

/// Rows of experts are conserved in all layouts of all models: what a device sends it computes and gets back, and all
/// devices together have each token as often as it has experts.
#[test]
fn rows_of_experts_are_conserved() {
    let mut layouts = 0;
    for (name, model) in LlmModel::all(&AssetFiles::embedded()).expect("models") {
        let Some(experts) = model.experts.clone() else { continue };
        let degrees = &model.layouts;
        let all = degrees.tp.iter().flat_map(|tp| {
            degrees.ep.iter().flat_map(move |ep| degrees.dp.iter().map(move |dp| [*tp, *ep, *dp]))
        });
        for [tp, ep, dp] in all {
            let layout = ParallelLayout { tp, ep, dp };
            let quantisation = QuantisationScheme::Bf16;
            let step = DecoderStep { layout, phase: StepPhase::Decode, batch: 48, context: 64, quantisation };
            let Ok(workload) = decoder_step(&model, &step) else {
                assert!(model.share(layout).is_err(), "{name} {layout}");
                continue;
            };
            layouts += 1;
            let counted = model.layers - experts.dense_layers;
            let first_rows = |kernel: &str| -> Vec<u64> {
                let calls = calls_of(&workload, kernel);
                assert!(calls.iter().all(|call| call.count == counted), "{name} {layout} {kernel}");
                calls.iter().map(|call| call.query.inputs[0].dims[0]).collect()
            };
            let fused = first_rows("DispatchFFNCombineBF16");
            let tokens = fused.first().copied().unwrap_or_else(|| first_rows("MoeTokenPermute")[0]);
            let rows = tokens * experts.top_k;
            for kernel in ["GroupedMatmul", "MoeTokenUnpermute", "hcom_alltoallv_"] {
                assert!(first_rows(kernel).iter().all(|found| *found == rows), "{name} {layout} {kernel}");
            }
            assert_eq!(first_rows("MoeGatingTopK"), [tokens], "{name} {layout}");
            let back = calls_of(&workload, "MoeTokenUnpermute");
            assert!(back.last().is_none_or(|call| call.query.outputs[0].dims[0] == tokens));
            // Devices with other slices of the same experts have the same rows.
            let (sent, chosen) = (rows * ep, 48 * experts.top_k * dp);
            assert!(
                (chosen..chosen + ep * experts.top_k).contains(&sent),
                "{name} {layout}: {sent} of {chosen}"
            );
            // All tokens are on all devices again.
            let counts_of = |kernel: &str| {
                let found = collectives(&workload, counted).into_iter().filter(|found| found.0 == kernel);
                found.map(|(_, ranks, dims)| ranks * dims[0]).collect::<Vec<u64>>()
            };
            if ep > dp {
                assert!(
                    counts_of("hcom_allGather_").iter().any(|gathered| *gathered >= 48),
                    "{name} {layout}"
                );
            }
        }
    }
    assert!(layouts > 300, "{layouts}");
}

/// Only models with norms of queries and keys have them.
#[test]
fn queries_and_keys_have_the_norms_of_the_model() {
    let kernels = |model: &str| -> Vec<String> {
        let derived = step(model, [1, 1, 1], StepPhase::Decode, (2, 64));
        let queries = derived.questions.iter().flat_map(WorkloadQuestion::queries);
        let names = queries.map(|query| query.op.clone());
        names.filter(|name| name.contains("rope") || name.contains("Rotary")).collect()
    };
    let fused = ["split_qkv_rmsnorm_rope_kernel", "split_qkv_rmsnorm_rope_kernel_0"];
    for (model, expected) in [
        ("Qwen3-32B", &fused[..]),
        ("GLM-4.5", &fused),
        ("Llama-3.1-8B", &["ApplyRotaryPosEmb"]),
        ("Mixtral-8x7B-v0.1", &["ApplyRotaryPosEmb"]),
        ("gpt-oss-120b", &["ApplyRotaryPosEmb"]),
    ] {
        assert_eq!(kernels(model), expected, "{model}");
    }
    // For heads of another width no kernel does both.
    let mut model = LlmModel::load(&AssetFiles::embedded(), "Qwen3-8B").expect("there");
    let LlmAttention::Grouped(grouped) = &mut model.attention else { panic!("grouped") };
    grouped.head_dim = 64;
    let step = DecoderStep {
        layout: ParallelLayout { tp: 1, ep: 1, dp: 1 },
        phase: StepPhase::Decode,
        batch: 2,
        context: 64,
        quantisation: QuantisationScheme::Bf16,
    };
    let derived = decoder_step(&model, &step).expect("a step");
    let norms: Vec<Vec<u64>> =
        calls_of(&derived, "RmsNorm").iter().map(|call| call.query.inputs[0].dims.clone()).collect();
    assert_eq!(norms, [vec![2, 4096], vec![2, 32, 64], vec![2, 8, 64]]);
    assert_eq!(calls_of(&derived, "ApplyRotaryPosEmb")[0].count, 36);
}

/// Sparse attention has the kernels that the lookup divides the operator of a simulator into.
#[test]
fn sparse_attention_has_the_kernels_of_its_operator() {
    let context = Context::new();
    let mapping = "operator_mappings:\n  tensor_cast.dsa_indexer.default: {composite: true, decomposer: true, \
                   primary_kernel_type: LightningIndexer}\n";
    context.write("db/op_mapping.yaml", mapping);
    // Without an answer of attention the parts are not listed.
    let lengths = "\"1,2,3,4,5,6,7,8\",\"4096,4096,4096,4096,4096,4096,4096,4096\"";
    let scores = format!(
        "Input Shapes,Input Data Types,Input Formats,Output Shapes,Output Data Types,Output Formats,Average Duration(us),\
         Runtime avg_seq_len,Runtime sparse_mode,Runtime num_key_value_heads,Runtime input_layout,Runtime topk,\
         Runtime block_size,Runtime actual_seq_lengths_values,Runtime actual_seq_lengths_kv_values\n\
         \"8,32,128;500,128,1,128;8,32;8;8;8,64\",DT_BF16;DT_BF16;DT_BF16;INT32;INT32;INT32,ND;ND;ND;ND;ND;ND,\
         \"8,1,2048\",INT32,ND,70,4096,3,1,TND,2048,128,{lengths}\n"
    );
    context.write("db/LightningIndexer.csv", &scores);
    let row = "Input Shapes,Input Data Types,Input Formats,Output Shapes,Output Data Types,Output Formats,Average Duration(us)\n\
               \"8,128\",DT_BF16,ND,\"8,128\",FLOAT,ND,5\n";
    context.write("db/Cast.csv", row);
    let query = serde_json::json!({
        "op": "tensor_cast.dsa_indexer.default",
        "inputs": [[8, 6144], [8, 2048], [1, 8, 64], [1, 8, 64], [256, 128, 128], [8], [8, 32], [8], [4096, 2048],
            [128, 6144], [32, 6144], [128]],
        "dtypes": ["bf16", "bf16", "bf16", "bf16", "bf16", "int64", "int32", "int64", "bf16", "bf16", "bf16", "bf16"],
        "kv_lengths": [4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096], "topk": 2048,
    });
    context.write("query.jsonl", &query.to_string());
    let ran = context.run(&["query", "--db", "db", "--queries", "query.jsonl"]);
    let answer: Value = serde_json::from_str(ran.stdout.lines().next().expect("a line")).expect("JSON");
    let parts = answer["parts"].as_array().filter(|parts| !parts.is_empty());
    let parts = parts.unwrap_or_else(|| panic!("{answer}"));
    let mut divided: BTreeMap<&str, u64> = BTreeMap::new();
    for part in parts {
        *divided.entry(part["op"].as_str().expect("a name")).or_default() += 1;
    }
    let derived = step("GLM-5.1", [1, 1, 1], StepPhase::Decode, (8, 4096));
    for (kernel, count) in divided {
        let calls = calls_of(&derived, kernel);
        let counts: u64 = calls.iter().map(|call| call.count).sum();
        match kernel {
            // Other products of a layer have the same kernel.
            "MatMulV2" => {
                let sizes = [(6144, 128), (6144, 32), (2048, 4096)];
                let found =
                    calls.iter().map(|call| (call.query.inputs[0].dims[1], call.query.outputs[0].dims[1]));
                assert_eq!(found.filter(|size| sizes.contains(size)).count() as u64, count);
            }
            _ => assert_eq!(counts, 78 * count, "{kernel}"),
        }
    }
}

/// Every kernel with an entry is a call that the catalogue accepts: for each model, a layout with and without experts
/// on devices of their own, both phases and formats.
#[test]
fn steps_are_calls_of_the_catalogue() {
    let assets = AssetFiles::embedded();
    let catalogue = Catalogue::load(&assets).expect("a catalogue");
    let (mut checked, mut without_entry) = (0, BTreeSet::new());
    let (mut refused, mut last) = (BTreeSet::<(String, String, String)>::new(), String::new());
    for (name, model) in LlmModel::all(&assets).expect("models") {
        let most = *model.layouts.ep.last().expect("a degree");
        let layouts = [[1, 1, 1], [4, 1, 1], [2, most.min(16), 8], [4, 2, 1], [16, 1, 1], [2, 2, 4]];
        for (layout, phase) in
            layouts.iter().flat_map(|layout| [(layout, StepPhase::Prefill), (layout, StepPhase::Decode)])
        {
            for quantisation in [QuantisationScheme::Bf16, QuantisationScheme::W8a8] {
                let [tp, ep, dp] = *layout;
                let step = DecoderStep {
                    layout: ParallelLayout { tp, ep, dp },
                    phase,
                    batch: 6,
                    context: 300,
                    quantisation,
                };
                let Ok(workload) = decoder_step(&model, &step) else {
                    assert!(model.share(step.layout).is_err(), "{name} {}", step.layout);
                    continue;
                };
                for case in workload.questions.iter().filter_map(|question| question.case.as_ref()) {
                    let Some(entry) = catalogue.entry(&case.kernel) else {
                        without_entry.insert(case.kernel.as_str().to_owned());
                        continue;
                    };
                    let Err(error) = entry.resolve_call(case) else {
                        checked += 1;
                        continue;
                    };
                    refused.insert((name.clone(), case.kernel.as_str().to_owned(), phase.to_string()));
                    last = format!(
                        "{name} {} {phase} {quantisation:?}: {error}\n{}",
                        step.layout,
                        case.shapes()
                    );
                }
            }
        }
    }
    assert!(checked > 1500, "{checked}");
    assert_eq!(refused, BTreeSet::new(), "{last}");
    assert!(without_entry.is_empty(), "{without_entry:?}");
}

/// A step is looked up like any workload; kernels that may run in each other's place are alternatives.
#[test]
fn a_model_is_a_workload_by_name() {
    let context = Context::new();
    let header = "Input Shapes,Input Data Types,Input Formats,Output Shapes,Output Data Types,Output Formats,Average Duration(us)\n";
    // Recorded transposed, and as another kernel than the first.
    let row = "\"64,5120;5120,12800\",DT_BF16;DT_BF16,ND;ND,\"64,12800\",DT_BF16,ND,200\n";
    context.write("db/MatMulV3.csv", &format!("{header}{row}"));
    let arguments = [
        "coverage",
        "--db",
        "db",
        "--model",
        "qwen3-32b",
        "--tp",
        "4",
        "--phase",
        "decode",
        "--batch",
        "64",
        "--context",
        "4096",
        "--json",
    ];
    let ran = context.run(&arguments);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    let lines: Vec<Value> =
        ran.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines[0]["counts"]["measured"], 64);
    assert_eq!(lines[0]["durations"], "estimated");
    let gaps = lines[1]["gaps"].as_array().expect("gaps");
    let closing: BTreeSet<&str> = gaps.iter().filter_map(|gap| gap["closing"].as_str()).collect();
    assert_eq!(closing, BTreeSet::from(["exact_case", "collective_rows"]));
    let shown = context.run(&["models", "Qwen3-32B", "--tp", "4", "--batch", "64"]);
    insta::assert_snapshot!(shown.stdout);
}

#[test]
fn models_are_listed_with_their_layouts() {
    let context = Context::new();
    let listed = context.run(&["models"]);
    assert_eq!(listed.code, 0, "{}", listed.stderr);
    insta::assert_snapshot!(listed.stdout);
    let json = context.run(&["models", "--format", "json"]);
    let models: Vec<Value> =
        json.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let model = models.iter().find(|model| model["name"] == "DeepSeek-V3").expect("there");
    assert_eq!((&model["sizes"]["kv_lora_rank"], &model["tp"][4]), (&Value::from(512), &Value::from(16)));
    let step = context.run(&["models", "DeepSeek-V3", "--tp", "8", "--dtype", "w8a8", "--format", "json"]);
    let documented =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/models.md")).expect("a document");
    for line in json.stdout.lines().chain(step.stdout.lines()) {
        let object: Value = serde_json::from_str(line).expect("JSON");
        for key in object.as_object().expect("an object").keys() {
            assert!(documented.contains(&format!("`{key}`")), "`{key}` is not documented");
        }
    }
}

#[test]
fn steps_that_no_model_has_are_refused() {
    let context = Context::new();
    context.write("db/MatMulV2.csv", "Input Shapes,Input Data Types,Input Formats,Output Shapes,Output Data Types,Output Formats,Average Duration(us)\n");
    // Largest sizes, whose products do not fit into 64 bits.
    let wide = r#"{"model_type": "qwen3_moe", "hidden_size": 16777216, "num_hidden_layers": 2, "vocab_size": 1024,
        "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 64, "num_experts": 65536,
        "num_experts_per_tok": 65536, "moe_intermediate_size": 1024}"#;
    context.write("wide/config.json", wide);
    let shown: Vec<String> = [
        &["models", "Qwen3-23B"][..],
        &["models", "wide", "--ep", "65536", "--dp", "65536", "--phase", "prefill", "--context", "16777216"],
        &["models", "wide", "--dp", "1048576", "--phase", "prefill", "--context", "16777216"],
        &["models", "Qwen3-30B-A3B", "--tp", "4", "--ep", "4", "--dp", "3"],
        &["models", "Qwen3-32B", "--batch", "1000000"],
        &["models", "Qwen3-32B", "--tp", "3"],
        &["models", "Qwen3-32B", "--ep", "2"],
        &["models", "Qwen3-32B", "--batch", "0"],
        &["models", "Qwen3-32B", "--phase", "prefill", "--batch", "100000", "--context", "100000"],
        &["models", "Qwen3-32B", "--dtype", "w4a8"],
        &["models", "--tp", "4"],
        &["models", "--batch", "4"],
        &["coverage", "--db", "db"],
        &["coverage", "--db", "db", "--workload", "a.yaml", "--batch", "4"],
        &["coverage", "--db", "db", "--model", "DeepSeek-V3", "--tp", "8", "--ep", "3"],
    ]
    .iter()
    .map(|arguments| {
        let ran = context.run(arguments);
        format!("$ {}\n[{}]\n{}{}", arguments.join(" "), ran.code, ran.stdout, ran.stderr)
    })
    .collect();
    insta::assert_snapshot!(shown.join("\n"));
}
