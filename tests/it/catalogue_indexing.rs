//! Kernels that find, select, repeat and write elements by position, and conversions to blocks: quoted rows and others run
//! on the rehearsal host and are accepted by the vendor's own code; known-wrong rows are refused by the rules.

use std::collections::BTreeSet;

use crate::{
    catalogue_cases::{
        CaseText, assert_accepted_by_vendor, assert_measured, assert_refused, assert_verdicts, run_profile,
    },
    context::{Context, profile},
};

const GOOD: &[CaseText<'static>] = &[
    // Nothing is true, so that the profiler shows one dimension of the result.
    ["NonZero", "4", "BOOL", "1", "INT64"],
    ["NonZero", "128,50", "BOOL", "2,94", "INT64"],
    ["NonZero", "128,50", "FLOAT", "94,2", "INT64"],
    ["NonZero", "64", "BOOL", "1,64", "INT64"],
    ["Scatter", "1,2,1024,128;1;1,2,1,128", "FLOAT16;INT64;FLOAT16", "1,2,1024,128", "FLOAT16"],
    ["Scatter", "4,8,2048,128;4;4,8,1,128", "DT_BF16;INT32;DT_BF16", "4,8,2048,128", "DT_BF16"],
    ["ScatterUpdate", "1024,128;16;16,128", "DT_BF16;INT64;DT_BF16", "1024,128", "DT_BF16"],
    ["IndexPutV2", "128,50;94;2;2;94;94", "INT64;INT64;INT64;INT64;INT64;INT64", "128,50", "INT64"],
    ["IndexPutV2", "4096,128;77,128;1;1;77", "DT_BF16;DT_BF16;INT64;INT64;INT64", "4096,128", "DT_BF16"],
    ["IndexPutV2", "4096,64;77,64;1;1;77", "INT64;INT64;INT64;INT64;INT64", "4096,64", "INT64"],
    ["IndexPutV2", "4096,70;100,70;1;1;100", "INT64;INT64;INT64;INT64;INT64", "4096,70", "INT64"],
    ["IndexPutV2", "65536,101;77,101;1;1;77", "UINT8;UINT8;INT64;INT64;INT64", "65536,101", "UINT8"],
    [
        "IndexPutV2",
        "64,1024,128;77,128;2;2;77;77",
        "INT64;INT64;INT64;INT64;INT64;INT64",
        "64,1024,128",
        "INT64",
    ],
    ["RepeatInterleave", "1024;1", "FLOAT;INT64", "4096", "FLOAT"],
    ["RepeatInterleave", "1024;1024", "INT32;INT64", "4000", "INT32"],
    ["RepeatInterleaveV2", "16,8,128;1", "DT_BF16;INT64", "16,64,128", "DT_BF16"],
    ["RepeatInterleaveV2", "512,7168;1", "DT_BF16;INT64", "4096,7168", "DT_BF16"],
    ["RepeatInterleaveV2", "64,32;1", "FLOAT;INT64", "64,64", "FLOAT"],
    ["RepeatInterleaveV2", "512,128;512", "DT_BF16;INT64", "777,128", "DT_BF16"],
    ["HistogramV2", "64,512;;", "FLOAT;FLOAT;FLOAT", "100", "INT32"],
    ["HistogramV2", "4096;;", "INT32;INT32;INT32", "256", "INT32"],
    ["IndexFill", "1024,128;16;", "DT_BF16;INT64;DT_BF16", "1024,128", "DT_BF16"],
    ["GatherV2", "64,8,4,128;16;1", "DT_BF16;INT64;INT64", "16,8,4,128", "DT_BF16"],
    ["GatherV2", "64,8,4,128;16;", "DT_BF16;INT64;INT64", "16,8,4,128", "DT_BF16"],
    ["GatherV2", "64,1024;16;1", "DT_BF16;INT64;INT64", "64,16", "DT_BF16"],
    ["GatherV2", "64,1024,8;16;", "FLOAT;INT32;INT64", "64,16,8", "FLOAT"],
    ["IndexFill", "1024;16;", "BOOL;INT64;BOOL", "1024", "BOOL"],
];

/// The same, and what the refusal says.
const WRONG: &[(CaseText<'static>, &str)] = &[
    (["NonZero", "64,8", "BOOL", "3,94", "INT64"], "R == rank(X)"),
    (["NonZero", "64,8", "BOOL", "2,600", "INT64"], "N <= numel(X)"),
    (["NonZero", "64,8", "BOOL", "2,94", "INT32"], "recorded as INT32"),
    (
        ["Scatter", "1,2,1024,128;2;1,2,1,128", "FLOAT16;INT64;FLOAT16", "1,2,1024,128", "FLOAT16"],
        "B is both 1 and 2",
    ),
    (
        ["ScatterUpdate", "1024,128;16;17,128", "DT_BF16;INT64;DT_BF16", "1024,128", "DT_BF16"],
        "I is both 16 and 17",
    ),
    // The kernel IndexPut of the AI CPU takes them.
    (
        ["IndexPutV2", "128,50;3172;2;2;3172;3172", "INT64;INT64;INT64;INT64;INT64;INT64", "128,50", "INT64"],
        "`I <= 100` does not hold",
    ),
    (
        ["IndexPutV2", "4096,96;77,96;1;1;77", "INT64;INT64;INT64;INT64;INT64", "4096,96", "INT64"],
        "`numel(D) <= 70 or numel(D) > 100` does not hold",
    ),
    (
        ["IndexPutV2", "4096,129;77,129;1;1;77", "UINT8;UINT8;INT64;INT64;INT64", "4096,129", "UINT8"],
        "`numel(D) <= 128` does not hold",
    ),
    (
        ["IndexPutV2", "90001,60;77,60;1;1;77", "INT64;INT64;INT64;INT64;INT64", "90001,60", "INT64"],
        "`V * numel(D) <= 5400000 or numel(D) > 100` does not hold",
    ),
    (
        ["IndexPutV2", "300,18001;77;2;2;77;77", "INT64;INT64;INT64;INT64;INT64;INT64", "300,18001", "INT64"],
        "`V * W * numel(D) <= 5400000 or numel(D) > 100` does not hold",
    ),
    (["RepeatInterleave", "1024;1", "FLOAT;INT64", "4097", "FLOAT"], "P % N == 0"),
    (["RepeatInterleaveV2", "4,8;1", "DT_BF16;INT64", "4,16", "DT_BF16"], ">= 256"),
    (["HistogramV2", "64,512;;", "BOOL;BOOL;BOOL", "100", "INT32"], "takes FLOAT"),
    (["IndexFill", "16,128;17;", "DT_BF16;INT64;DT_BF16", "16,128", "DT_BF16"], "I <= V"),
    (["GatherV2", "64,8,4,128;;", "DT_BF16;INT64;INT64", "8,4,128", "DT_BF16"], "only a compiled graph"),
    (
        ["GatherV2", "64,8,4,128;3,5;1", "DT_BF16;INT64;INT64", "3,5,8,4,128", "DT_BF16"],
        "indices of several dimensions into a table of more than two",
    ),
    (
        ["GatherV2", "64,1024;16;1", "DT_BF16;INT64;INT64", "65,16", "DT_BF16"],
        "parts along the second dimension: output 0 is [65,16], the inputs give [64,16]",
    ),
    (["TransData", "32,64", "DT_BF16", "4,2,16,16", "DT_BF16"], "the call gives FRACTAL_NZ"),
];

/// Shapes, type and format of input and output of conversions that are steps of convolutions and poolings.
const STEPS: [&str; 4] = [
    "\"\"\"32,3,224,224\"\"\",FLOAT,NCHW,\"\"\"32,1,224,224,8\"\"\",FLOAT,NC1HWC0",
    "\"\"\"32,12,13,13,16\"\"\",FLOAT,NC1HWC0:1,\"\"\"32,192,13,13\"\"\",FLOAT,NCHW",
    "\"\"\"192,64,5,5\"\"\",FLOAT,NCHW,\"\"\"200,12,16,8\"\"\",FLOAT,FRACTAL_Z",
    "\"\"\"121,4,16,8\"\"\",FLOAT,FRACTAL_Z,\"\"\"64,3,11,11\"\"\",FLOAT,NCHW",
];

/// Names in profiles of graphs that kernels got after their entries.
const GRAPH_NAMES: [&str; 33] = [
    "AbsAiCore",
    "AdaptiveAvgPool3dAiCore",
    "AdaptiveAvgPool3dGradAiCore",
    "ArangeAiCore",
    "ClipByValueV2AiCore",
    "CosAiCore",
    "DropoutDoMaskAiCore",
    "ExpAiCore",
    "ForeachAddListV2",
    "ForeachMulScalarV2",
    "GatherV3AiCore",
    "HistogramAiCore",
    "LessEqualAiCore",
    "LogSoftmaxAiCore",
    "LogicalOrAiCore",
    "MaximumAiCore",
    "MinimumAiCore",
    "NLLLossAiCore",
    "NLLLossGradAiCore",
    "NonzeroAiCore",
    "OnesLikeAiCore",
    "PowsAiCore",
    "ReciprocalAiCore",
    "RsqrtAiCore",
    "ScatterAiCore",
    "ScatterUpdateAiCore",
    "SelectV2AiCore",
    "SigmoidAiCore",
    "SiluAiCore",
    "SinAiCore",
    "SqrtAiCore",
    "TopkV2AiCore",
    "TransDataSpecial",
];

#[test]
fn indexing_kernels_run_on_the_rehearsal_host() {
    assert_measured(GOOD, &["ok"]);
}

/// The number of positions depends on values, so that the vendor's code gives a symbol for it.
#[test]
fn indexing_kernels_are_accepted_by_the_vendor() {
    assert_accepted_by_vendor(GOOD, &[], "");
}

#[test]
fn known_invalid_indexing_calls_are_refused_by_the_rules() {
    assert_refused(WRONG);
}

/// A matrix converted to blocks, and one out of them: the record has the format.
#[test]
fn conversions_of_matrices_run_on_the_rehearsal_host() {
    let record = |shapes: [&str; 2], dtype: &str, formats: [&str; 2]| {
        let [input, output] =
            [0, 1].map(|side| format!("\"\"\"{}\"\"\",{dtype},{}", shapes[side], formats[side]));
        format!("TransData,5.000,{input},{output}")
    };
    let records = [
        record(["32,64", "4,2,16,16"], "DT_BF16", ["ND", "FRACTAL_NZ"]),
        record(["8,32,64", "8,2,2,16,32"], "INT8", ["ND", "FRACTAL_NZ"]),
        record(["4,2,16,16", "32,64"], "DT_BF16", ["FRACTAL_NZ", "ND"]),
    ];
    let context = run_profile(&profile(&records.each_ref().map(String::as_str)));
    assert_eq!(assert_verdicts(&context, &BTreeSet::from(["TransData"]), &["ok", "noisy"]), records.len());
}

#[test]
fn conversions_of_convolutions_are_unsupported_with_their_reason() {
    let records = STEPS.map(|step| format!("TransData,5.000,{step}"));
    let context = run_profile(&profile(&records.each_ref().map(String::as_str)));
    let plan = context.run(&["plan", "--db", "db", "--devices", "0", "--format", "json"]);
    let reason = "a step of convolutions and of poolings";
    let count =
        plan.stdout.lines().filter(|line| line.contains("unsupported") && line.contains(reason)).count();
    assert_eq!(count, STEPS.len(), "{}", plan.stdout);
}

#[test]
fn names_in_graphs_belong_to_an_entry() {
    let context = Context::new();
    let records = GRAPH_NAMES.map(|name| format!("{name},5.000,N/A,N/A,N/A,N/A,N/A,N/A"));
    context.write("kernel_details.csv", &profile(&records.each_ref().map(String::as_str)));
    let ran = context.run(&["kernels", "--missing", "kernel_details.csv", "--format", "json"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    for line in ran.stdout.lines() {
        assert!(line.contains("\"gap\":\"without_shapes\""), "{line}");
    }
    assert_eq!(ran.stdout.lines().count(), GRAPH_NAMES.len());
}
