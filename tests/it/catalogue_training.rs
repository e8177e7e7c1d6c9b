//! Kernels of training steps and of served models that no element-wise call launches: their real rows run on the
//! rehearsal host and are accepted by the vendor's own code; known-wrong rows are refused by the rules.

use crate::catalogue_cases::{CaseText, assert_accepted_by_vendor, assert_measured, assert_refused};

/// Custom operators, of which the vendor's torch_npu has no Meta kernel.
const WITHOUT_META: [&str; 2] = ["_triton_rope", "muls_add_kernel"];

const FLASH_GRAD: [&str; 2] = [
    "DT_BF16;DT_BF16;DT_BF16;DT_BF16;BOOL;FLOAT;FLOAT;DT_BF16;DT_BF16;INT64;FLOAT;FLOAT;FLOAT;FLOAT;FLOAT",
    "DT_BF16;DT_BF16;DT_BF16;DT_BF16;DT_BF16;DT_BF16",
];

/// Kernel, input shapes and types, output shapes and types. Those of the first rows of a kernel are from real profiles
/// where there are some.
const GOOD: &[CaseText<'static>] = &[
    [
        "RmsNormGrad",
        "4096,1,1024;4096,1,1024;4096,1,1;1024",
        "DT_BF16;DT_BF16;FLOAT;DT_BF16",
        "4096,1,1024;1024",
        "DT_BF16;FLOAT",
    ],
    [
        "RmsNormGrad",
        "4096,1,16,128;4096,1,16,128;4096,1,16,1;128",
        "DT_BF16;DT_BF16;FLOAT;DT_BF16",
        "4096,1,16,128;128",
        "DT_BF16;FLOAT",
    ],
    ["RmsNormGrad", "64,512;64,512;64,1;512", "FLOAT16;FLOAT16;FLOAT;FLOAT", "64,512;512", "FLOAT16;FLOAT"],
    ["SwiGluGrad", "4096,3072;4096,6144", "DT_BF16;DT_BF16", "4096,6144", "DT_BF16"],
    [
        "RotaryPositionEmbeddingGrad",
        "4096,1,8,128;4096,1,1,128;4096,1,1,128;",
        "DT_BF16;DT_BF16;DT_BF16;DT_UNDEFINED",
        "4096,1,8,128;;",
        "DT_BF16;DT_BF16;DT_BF16",
    ],
    [
        "FlashAttentionScoreGrad",
        "4096,1,2048;4096,1,1024;4096,1,1024;4096,1,2048;2048,2048;1,16,4096,8;1,16,4096,8;;4096,1,2048;;;;;;",
        FLASH_GRAD[0],
        "4096,1,2048;4096,1,1024;4096,1,1024;;;",
        FLASH_GRAD[1],
    ],
    [
        "FlashAttentionScoreGrad",
        "2,8,512,64;2,2,512,64;2,2,512,64;2,8,512,64;2048,2048;2,8,512,8;2,8,512,8;;2,8,512,64;;;;;;",
        FLASH_GRAD[0],
        "2,8,512,64;2,2,512,64;2,2,512,64;;;",
        FLASH_GRAD[1],
    ],
    ["EmbeddingDenseGradV2", "1,4096,1024;4096;4096", "FLOAT;INT32;INT32", "151936,1024", "FLOAT"],
    ["ApplyAdamWV2", "128;128;128;128;1", "FLOAT;FLOAT;FLOAT;FLOAT;INT64", "N/A", "N/A"],
    ["ApplyAdamWV2", "64,32;64,32;64,32;64,32;1", "FLOAT;FLOAT;FLOAT;FLOAT;FLOAT", "N/A", "N/A"],
    [
        "ForeachAddList",
        "64,3,11,11;64;192,64,5,5;192;1000,512;1000;64,3,11,11;64;192,64,5,5;192;1000,512;1000;",
        "FLOAT;FLOAT;FLOAT;FLOAT;FLOAT;FLOAT;FLOAT;FLOAT;FLOAT;FLOAT;FLOAT;FLOAT;FLOAT",
        "23232;64;307200;192;512000;1000",
        "FLOAT;FLOAT;FLOAT;FLOAT;FLOAT;FLOAT",
    ],
    ["ForeachAddList", "64,32;64,32;", "DT_BF16;DT_BF16;FLOAT", "2048", "DT_BF16"],
    [
        "ForeachMulScalar",
        "64,3,11,11;64;192,64,5,5;192;1000,512;1000;",
        "FLOAT;FLOAT;FLOAT;FLOAT;FLOAT;FLOAT;FLOAT",
        "23232;64;307200;192;512000;1000",
        "FLOAT;FLOAT;FLOAT;FLOAT;FLOAT;FLOAT",
    ],
    ["AdaptiveAvgPool3d", "32,1,6,6,256", "FLOAT", "32,1,6,6,256", "FLOAT"],
    ["AdaptiveAvgPool3d", "2,4,13,13,64", "DT_BF16", "2,2,6,6,64", "DT_BF16"],
    ["AdaptiveAvgPool3d", "2,1,13,13,64", "FLOAT16", "2,1,6,6,64", "FLOAT16"],
    ["AdaptiveAvgPool3dGrad", "1,6,6,8192;32,256,1,6,6", "FLOAT;FLOAT", "1,6,6,8192", "FLOAT"],
    ["AdaptiveAvgPool3dGrad", "2,6,6,128;2,64,4,13,13", "DT_BF16;DT_BF16", "4,13,13,128", "DT_BF16"],
    ["Abs", "", "FLOAT", "", "FLOAT"],
    ["Abs", "64,32", "INT32", "64,32", "INT32"],
    ["Cos", "4096,1,1,128", "FLOAT", "4096,1,1,128", "FLOAT"],
    ["Sin", "4096,1,1,128", "FLOAT", "4096,1,1,128", "FLOAT"],
    ["Pows", ";", "FLOAT;FLOAT", "", "FLOAT"],
    ["Range", ";;", "DOUBLE;DOUBLE;DOUBLE", "4096", "FLOAT"],
    ["Range", ";;", "INT32;FLOAT;INT32", "1024", "FLOAT"],
    ["OnesLike", "1", "FLOAT", "1", "FLOAT"],
    ["OnesLike", "1000", "FLOAT", "1000", "FLOAT"],
    ["LpNormV2", "3145728", "FLOAT", "", "FLOAT"],
    ["LpNormV2", "64,32", "FLOAT", "64", "FLOAT"],
    ["LpNormV2", "64,32", "DT_BF16", "64,1", "DT_BF16"],
    ["LpNormV2", "64,32", "FLOAT", "32", "FLOAT"],
    ["LpNormV2", "64,32", "FLOAT", "1,32", "FLOAT"],
    ["LpNormV2", "4,6,8", "FLOAT", "4", "FLOAT"],
    ["LpNormV2", "4,6,8", "FLOAT", "1,6,1", "FLOAT"],
    ["LpNormV2", "4,6,8", "FLOAT", "1,1,1", "FLOAT"],
    ["Relu", "32,256,13,13", "FLOAT", "32,256,13,13", "FLOAT"],
    ["ReluGrad", "32,4096;32,4096", "FLOAT;FLOAT", "32,4096", "FLOAT"],
    ["Exp", "64,512", "DT_BF16", "64,512", "DT_BF16"],
    ["Sqrt", "64,512", "FLOAT", "64,512", "FLOAT"],
    ["Rsqrt", "64,1", "FLOAT", "64,1", "FLOAT"],
    ["Sigmoid", "64,256", "FLOAT16", "64,256", "FLOAT16"],
    ["Swish", "64,512", "DT_BF16", "64,512", "DT_BF16"],
    ["Tanh", "64,512", "DT_BF16", "64,512", "DT_BF16"],
    ["Reciprocal", "64,512", "FLOAT", "64,512", "FLOAT"],
    ["Maximum", "64,512;512", "DT_BF16;DT_BF16", "64,512", "DT_BF16"],
    ["Minimum", "64;64", "INT32;INT32", "64", "INT32"],
    ["LessEqual", "64,1;1,128", "INT64;INT64", "64,128", "BOOL"],
    ["LogicalOr", "64;64", "BOOL;BOOL", "64", "BOOL"],
    ["SelectV2", "64,1;64,128;1,128", "BOOL;FLOAT;FLOAT", "64,128", "FLOAT"],
    ["GatherElementsV2", "64,1000;64,8", "FLOAT;INT64", "64,8", "FLOAT"],
    ["ScatterElementsV2", "64,1000;64,8;64,8", "FLOAT;INT32;FLOAT", "64,1000", "FLOAT"],
    ["ClipByValueV2", "64,128;;", "INT64;INT64;INT64", "64,128", "INT64"],
    ["TopKV2", "32,1000;", "FLOAT;INT32", "32,5;32,5", "FLOAT;INT32"],
    ["LogSoftmaxV2", "32,1000", "FLOAT", "32,1000", "FLOAT"],
    ["LogSoftmaxGrad", "32,1000;32,1000", "FLOAT;FLOAT", "32,1000", "FLOAT"],
    ["NLLLoss", "32,1000;32;1000", "FLOAT;INT64;FLOAT", ";", "FLOAT;FLOAT"],
    ["NLLLossGrad", "32,1000;;32;1000;", "FLOAT;FLOAT;INT32;FLOAT;FLOAT", "32,1000", "FLOAT"],
    ["DropOutDoMask", "32,9216;36864;1", "FLOAT;UINT8;FLOAT", "32,9216", "FLOAT"],
    ["RmsNormQuant", "16,512;512;512;1;1", "DT_BF16;DT_BF16;DT_BF16;DT_BF16;INT8", "16,512", "INT8"],
    [
        "AddRmsNormQuant",
        "16,512;16,512;512;512;;512;;",
        "DT_BF16;DT_BF16;DT_BF16;DT_BF16;DT_UNDEFINED;DT_BF16;DT_UNDEFINED;DT_UNDEFINED",
        "16,512;16,512;16,512",
        "INT8;INT8;DT_BF16",
    ],
    ["DynamicBlockQuant", "16,200", "DT_BF16", "16,200;16,2", "INT8;FLOAT"],
    ["GatherV3", "4096,128;77;1", "DT_BF16;INT64;INT64", "77,128", "DT_BF16"],
    ["GatherV3", "64,4096;77;1", "FLOAT;INT32;INT64", "64,77", "FLOAT"],
    ["GatherV3", "4,8,16;3;1", "FLOAT;INT64;INT64", "4,3,16", "FLOAT"],
    ["GatherV3", "4,6,8,16;3;1", "DT_BF16;INT64;INT64", "4,6,3,16", "DT_BF16"],
    ["LinearIndex", "64,128;2", "INT64;INT32", "64,128", "INT32"],
    ["ApplyTopKTopPWithSorted", "8,1024;8,1024;8;8", "FLOAT;INT32;FLOAT;INT32", "8,1024", "FLOAT"],
    ["muls_add_kernel", "16,7168;16,7168", "DT_BF16;DT_BF16", "16,7168", "DT_BF16"],
    [
        "_triton_rope",
        "336,4,128;336,1,128;81920,128",
        "DT_BF16;DT_BF16;DT_BF16",
        "336,4,128;336,1,128",
        "DT_BF16;DT_BF16",
    ],
];

/// The same, and what the refusal says.
const WRONG: &[(CaseText<'static>, &str)] = &[
    (
        [
            "RmsNormGrad",
            "64,512;64,512;64,1;256",
            "DT_BF16;DT_BF16;FLOAT;DT_BF16",
            "64,512;256",
            "DT_BF16;FLOAT",
        ],
        "input 3",
    ),
    (["SwiGluGrad", "64,512;64,512", "DT_BF16;DT_BF16", "64,512", "DT_BF16"], "D == 2 * H"),
    (
        [
            "RotaryPositionEmbeddingGrad",
            "64,1,8,128;64,1,3,128;64,1,3,128;",
            "DT_BF16;DT_BF16;DT_BF16;DT_UNDEFINED",
            "64,1,8,128;;",
            "DT_BF16;DT_BF16;DT_BF16",
        ],
        "do not broadcast",
    ),
    (
        [
            "FlashAttentionScoreGrad",
            "512,1,2048;512,1,1024;512,1,1024;512,1,2048;2048,2048;1,16,256,8;1,16,256,8;;512,1,2048;;;;;;",
            FLASH_GRAD[0],
            "512,1,2048;512,1,1024;512,1,1024;;;",
            FLASH_GRAD[1],
        ],
        "fit no form",
    ),
    (["EmbeddingDenseGradV2", "64,128;63;63", "FLOAT;INT32;INT32", "1024,128", "FLOAT"], "N == numel(B)"),
    (["ApplyAdamWV2", "128;128;64;128;1", "FLOAT;FLOAT;FLOAT;FLOAT;INT64", "N/A", "N/A"], "input 2"),
    (
        ["ForeachAddList", "64,32;64;64,32;63;", "FLOAT;FLOAT;FLOAT;FLOAT;FLOAT", "2048;64", "FLOAT;FLOAT"],
        "input 3: X_1 is both",
    ),
    (["ForeachAddList", "64;64;", "FLOAT;FLOAT;FLOAT", "65", "FLOAT"], "inputs give [64]"),
    (
        ["ForeachMulScalar", "64,32;64;", "FLOAT;FLOAT;FLOAT", "2048;65", "FLOAT;FLOAT"],
        "output 1 is [65], the inputs give [64]",
    ),
    (["AdaptiveAvgPool3d", "32,1,6,6,256", "FLOAT", "32,1,1,1,256", "FLOAT"], "P * Q * R > 1"),
    (
        ["AdaptiveAvgPool3dGrad", "1,6,6,8191;32,256,1,6,6", "FLOAT;FLOAT", "1,6,6,8191", "FLOAT"],
        "N == B * C",
    ),
    (["Abs", "64", "BOOL", "64", "BOOL"], "the kernel takes"),
    (["Cos", "64", "INT32", "64", "INT32"], "takes FLOAT"),
    (["Sin", "64", "FLOAT", "63", "FLOAT"], "inputs give"),
    (["Pows", "64;", "INT32;INT32", "64", "INT32"], "takes FLOAT"),
    (["Range", ";;", "INT64;INT64;INT64", "64,2", "INT64"], "output 0"),
    (["OnesLike", "64", "FLOAT", "64", "INT32"], "recorded as INT32"),
    (["LpNormV2", "64,32", "FLOAT", "16", "FLOAT"], "fit no form"),
    (["Relu", "64", "BOOL", "64", "BOOL"], "the kernel takes"),
    (["ReluGrad", "64;63", "FLOAT;FLOAT", "64", "FLOAT"], "input 1"),
    (["GatherV3", "4096,128;77;1", "DT_BF16;FLOAT;INT64", "77,128", "DT_BF16"], "takes INT32"),
    (["GatherV3", "4096,128;77;1", "DT_BF16;INT64;INT64", "76,128", "DT_BF16"], "inputs give"),
    (["LinearIndex", "64,128;3", "INT64;INT32", "64,128", "INT32"], "R == rank(X) + 1"),
    (["ApplyTopKTopPWithSorted", "8,1;8,1;8;8", "FLOAT;INT32;FLOAT;INT32", "8,1", "FLOAT"], "V > 1"),
    (["Exp", "64", "INT32", "64", "INT32"], "takes FLOAT"),
    (["Sqrt", "64", "INT32", "64", "INT32"], "takes FLOAT"),
    (["Rsqrt", "64", "FLOAT", "65", "FLOAT"], "inputs give"),
    (["Sigmoid", "64", "BOOL", "64", "BOOL"], "takes FLOAT"),
    (["Swish", "64", "INT8", "64", "INT8"], "takes FLOAT"),
    (["Tanh", "64", "FLOAT", "64", "FLOAT16"], "recorded as FLOAT16"),
    (["Reciprocal", "64", "INT64", "64", "INT64"], "takes FLOAT"),
    (["Maximum", "64;63", "FLOAT;FLOAT", "64", "FLOAT"], "do not broadcast"),
    (["Minimum", "64;64", "FLOAT;DT_BF16", "64", "FLOAT"], "one type"),
    (["LessEqual", "64;64", "FLOAT;FLOAT", "64", "FLOAT"], "recorded as FLOAT"),
    (["LogicalOr", "64;64", "INT32;INT32", "64", "BOOL"], "takes BOOL"),
    (["SelectV2", "64;64;64", "FLOAT;FLOAT;FLOAT", "64", "FLOAT"], "takes BOOL"),
    (["GatherElementsV2", "64,1000;63,8", "FLOAT;INT64", "63,8", "FLOAT"], "an index as long as"),
    (["ScatterElementsV2", "64,8;64,9;64,9", "FLOAT;INT32;FLOAT", "64,8", "FLOAT"], "I <= V"),
    (["ClipByValueV2", "64;;", "BOOL;BOOL;BOOL", "64", "BOOL"], "the kernel takes"),
    (["TopKV2", "32,4;", "FLOAT;INT32", "32,5;32,5", "FLOAT;INT32"], "K <= V"),
    (["LogSoftmaxV2", "", "FLOAT", "", "FLOAT"], "rank(X) > 0"),
    (["LogSoftmaxGrad", "32,10;32,9", "FLOAT;FLOAT", "32,10", "FLOAT"], "input 1"),
    (["NLLLoss", "32,1000;32;999", "FLOAT;INT64;FLOAT", ";", "FLOAT;FLOAT"], "input 2"),
    (
        ["NLLLossGrad", "32,1000;;32;1000;", "FLOAT;FLOAT;FLOAT;FLOAT;FLOAT", "32,1000", "FLOAT"],
        "takes INT32",
    ),
    (["DropOutDoMask", "32,9216;36863;1", "FLOAT;UINT8;FLOAT", "32,9216", "FLOAT"], "align(numel(X), 128)"),
    (
        ["RmsNormQuant", "16,512;512;512;2;1", "DT_BF16;DT_BF16;DT_BF16;DT_BF16;INT8", "16,512", "INT8"],
        "input 3",
    ),
    (["DynamicBlockQuant", "16,200", "DT_BF16", "16,200;16,3", "INT8;FLOAT"], "output 1"),
    (["muls_add_kernel", "16,64;64", "DT_BF16;DT_BF16", "16,64", "DT_BF16"], "input 1"),
    (
        [
            "_triton_rope",
            "336,4,128;336,1,128;81920,256",
            "DT_BF16;DT_BF16;DT_BF16",
            "336,4,128;336,1,128",
            "DT_BF16;DT_BF16",
        ],
        "R <= D",
    ),
];

#[test]
fn training_kernels_run_on_the_rehearsal_host() {
    assert_measured(GOOD, &["ok", "noisy"]);
}

#[test]
fn training_kernels_are_accepted_by_the_vendor() {
    assert_accepted_by_vendor(GOOD, &WITHOUT_META, "No module named 'vllm_ascend'");
}

#[test]
fn known_invalid_training_calls_are_rejected_by_the_rules() {
    assert_refused(WRONG);
}
