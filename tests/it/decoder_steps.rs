//! Kernels of a step of a model by name: shapes of recorded and simulated runs, and calls that the catalogue accepts.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use npubench::{
    answer::workload::{DecoderStep, StepPhase, Workload, WorkloadQuestion, decoder_step, load_workload},
    base::assets::AssetFiles,
    cases::llm::{LlmModel, ParallelLayout, QuantisationScheme},
    kernel::catalogue::Catalogue,
};
use serde_json::Value;

use crate::prelude::*;

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
    let arguments =
        "coverage --db db --model qwen3-32b --tp 4 --phase decode --batch 64 --context 4096 --json";
    let ran = context.exits(1, arguments);
    let lines: Vec<Value> = ran.json();
    assert_eq!(lines[0]["counts"]["measured"], 64);
    assert_eq!(lines[0]["durations"], "estimated");
    let gaps = lines[1]["gaps"].list();
    let closing: BTreeSet<&str> = gaps.iter().filter_map(|gap| gap["closing"].as_str()).collect();
    assert_eq!(closing, BTreeSet::from(["exact_case", "collective_rows"]));
    let shown = context.run("models Qwen3-32B --tp 4 --batch 64");
    insta::assert_snapshot!(shown.stdout);
}

#[test]
fn models_are_listed_with_their_layouts() {
    let context = Context::new();
    let listed = context.done("models");
    insta::assert_snapshot!(listed.stdout);
    let json = context.run("models --format json");
    let models: Vec<Value> = json.json();
    let model = models.iter().find(|model| model["name"] == "DeepSeek-V3").expect("there");
    assert_eq!((&model["sizes"]["kv_lora_rank"], &model["tp"][4]), (&Value::from(512), &Value::from(16)));
    let step = context.run("models DeepSeek-V3 --tp 8 --dtype w8a8 --format json");
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
