//! Calls of catalogue entries beside those of products and attention: what the entries accept runs on the rehearsal host and is
//! accepted by the vendor's own code, and what is known to be wrong is refused by the rules.

use std::{collections::BTreeSet, ffi::OsString, sync::LazyLock};

use crate::prelude::*;
use crate::vendor;

/// Kernels for whose functions the vendor has no Meta kernel.
const WITHOUT_META: [&str; 5] = ["AsStrided", "BroadcastTo", "Slice", "_triton_rope", "muls_add_kernel"];

/// Kernel, input shapes and types, output shapes and types. Those of the first rows of a kernel are from real profiles where
/// there are some. Shapes `N/A` are not recorded.
const GOOD: [&str; 212] = [
    "ArgMaxV2|64,151936;|DT_BF16;INT64|64|INT32",
    "ArgMaxV2|8,32000|FLOAT|8|INT32",
    "ArgMaxV2|4,16,128;|FLOAT16;INT64|4,1,128|INT32",
    "ArgMaxV2|4096;|INT32;INT64||INT32",
    "Cast|4096,1,1,128|FLOAT|4096,1,1,128|DT_BF16",
    "Cast|1024|FLOAT|1024|DT_BF16",
    "Cast|1,4096,1024|DT_BF16|1,4096,1024|FLOAT",
    "Cast|16,4096|INT32|16,4096|INT64",
    "Cast|16,4096|BOOL|16,4096|FLOAT",
    "Cast|1024|FLOAT|1024|INT64",
    "Muls|1,4096,1024|DT_BF16|1,4096,1024|DT_BF16",
    "Muls|4096|FLOAT16|4096|FLOAT16",
    "Muls|2,8,64,64|FLOAT16|2,8,64,64|FLOAT16",
    "Sub|;|INT64;INT64||INT64",
    "Sub|512,1024;512,1024|DT_BF16;DT_BF16|512,1024|DT_BF16",
    "Sub|512,1024;1024|FLOAT16;FLOAT16|512,1024|FLOAT16",
    "Sub|4096;|FLOAT;FLOAT|4096|FLOAT",
    "Sub|16,1;1,32|INT32;INT32|16,32|INT32",
    "RealDiv|;|FLOAT;FLOAT||FLOAT",
    "RealDiv|512,1024;512,1|DT_BF16;DT_BF16|512,1024|DT_BF16",
    "RealDiv|2,3,4,5;5|FLOAT16;FLOAT16|2,3,4,5|FLOAT16",
    "Neg|512,1024|DT_BF16|512,1024|DT_BF16",
    "Neg|4096|FLOAT|4096|FLOAT",
    "Neg|2,3,4|INT64|2,3,4|INT64",
    "Neg|128|FLOAT16|128|FLOAT16",
    "Equal|;|FLOAT;FLOAT||BOOL",
    "Equal|5,32;5,32|INT64;INT64|5,32|BOOL",
    "Equal|5,32;1|INT32;INT32|5,32|BOOL",
    "Equal|5,32;5,32|DT_BF16;DT_BF16|5,32|BOOL",
    "Less|4096;|FLOAT;FLOAT|4096|BOOL",
    "Less|64,1;1,128|INT64;INT64|64,128|BOOL",
    "Less|7,9;7,9|FLOAT16;FLOAT16|7,9|BOOL",
    "Greater|4;|FLOAT;FLOAT|4|BOOL",
    "Greater|1,1024;1,1|INT64;INT64|1,1024|BOOL",
    "Greater|2,2,2,2;2|DT_BF16;DT_BF16|2,2,2,2|BOOL",
    "NotEqual|;|FLOAT;FLOAT||BOOL",
    "NotEqual|512,32;512,32|INT32;INT32|512,32|BOOL",
    "NotEqual|512;512|FLOAT16;FLOAT16|512|BOOL",
    "GreaterEqual|4;|FLOAT;FLOAT|4|BOOL",
    "GreaterEqual|64,1;1,128|INT64;INT64|64,128|BOOL",
    "GreaterEqual|2,3,4;2,3,4|DT_BF16;DT_BF16|2,3,4|BOOL",
    "FloorDiv|512,32;512,32|INT32;INT32|512,32|INT32",
    "FloorDiv|512,32;32|FLOAT;FLOAT|512,32|FLOAT",
    "FloorDiv|77;77|DT_BF16;DT_BF16|77|DT_BF16",
    "FloorMod|512,32;1|INT64;INT64|512,32|INT64",
    "FloorMod|2,8,16;2,1,16|FLOAT16;FLOAT16|2,8,16|FLOAT16",
    "FloorMod|77;77|DT_BF16;DT_BF16|77|DT_BF16",
    "Log|64,151936|FLOAT|64,151936|FLOAT",
    "Log|2,3,4|FLOAT16|2,3,4|FLOAT16",
    "Log|77|DT_BF16|77|DT_BF16",
    "Pack|16,64;16,64|DT_BF16;DT_BF16|2,16,64|DT_BF16",
    "Pack|16,64;16,64;16,64|FLOAT;FLOAT;FLOAT|16,64,3|FLOAT",
    "Pack|;;;|INT64;INT64;INT64;INT64|4|INT64",
    "LogicalAnd|512,32;512,32|BOOL;BOOL|512,32|BOOL",
    "LogicalAnd|1,32;512,1|BOOL;BOOL|512,32|BOOL",
    "LogicalAnd|9;9|BOOL;BOOL|9|BOOL",
    "LogicalNot|512,32|BOOL|512,32|BOOL",
    "LogicalNot|9|BOOL|9|BOOL",
    "LogicalNot|2,3,4,5|BOOL|2,3,4,5|BOOL",
    "ZerosLike|4096,1,8,128|DT_BF16|4096,1,8,128|DT_BF16",
    "ZerosLike|4096,1,16,128|DT_BF16|4096,1,16,128|DT_BF16",
    "ZerosLike|4,24|FLOAT|4,24|FLOAT",
    "Fill|1;|INT64;FLOAT|1|FLOAT",
    "Fill|2;|INT64;DT_BF16|512,1024|DT_BF16",
    "Fill|3;1|INT64;INT32|2,3,4|INT32",
    "Fill|1;|INT64;BOOL|77|BOOL",
    "BroadcastTo|1,32;2|INT64;INT64|5,32|INT64",
    "BroadcastTo|1024;2|DT_BF16;INT64|64,1024|DT_BF16",
    "BroadcastTo|4,1,1,8;4|FLOAT16;INT64|4,16,2,8|FLOAT16",
    "ConcatD|4096,1,8,256;4096,1,8,128;4096,1,8,128|DT_BF16;DT_BF16;DT_BF16|4096,1,8,512|DT_BF16",
    "ConcatD|4096,64;4096,64|FLOAT;FLOAT|4096,128|FLOAT",
    "ConcatD|10;20;30;40;50|INT32;INT32;INT32;INT32;INT32|150|INT32",
    "Tile|1,32;2|INT64;INT64|5,32|INT64",
    "Tile|8,16;2|DT_BF16;INT64|16,48|DT_BF16",
    "Tile|2,1,4;3|FLOAT16;INT64|2,3,4|FLOAT16",
    "Cumsum|64,151936;|FLOAT;INT64|64,151936|FLOAT",
    "Cumsum|4096;1|INT32;INT64|4096|INT32",
    "Cumsum|8,1024|FLOAT16|8,1024|FLOAT16",
    "Cumsum|2,3,1024;|DT_BF16;INT64|2,3,1024|DT_BF16",
    "ReduceSum|32,4096;1|FLOAT;INT64|1,4096|FLOAT",
    "ReduceSum|32,256,169;2|FLOAT;INT64|256|FLOAT",
    "ReduceSum|32;1|FLOAT;INT64|1|FLOAT",
    "ReduceSum|160;1|DT_BF16;INT64||DT_BF16",
    "ReduceSum|64,1024;1|FLOAT16;INT64|64|FLOAT16",
    "AsStrided|64,128;2;2;1|DT_BF16;INT64;INT64;INT64|64,64|DT_BF16",
    "AsStrided|2,3,4;3;3;1|FLOAT;INT64;INT64;INT64|1,2,4|FLOAT",
    "AsStrided|4096;1;1;1|INT32;INT64;INT64;INT64|1024|INT32",
    "SoftmaxV2|64,151936|FLOAT|64,151936|FLOAT",
    "SoftmaxV2|2,8,128,128|DT_BF16|2,8,128,128|DT_BF16",
    "SoftmaxV2|1024|FLOAT16|1024|FLOAT16",
    "MaskedFill|64,1024;64,1024;|FLOAT;BOOL;FLOAT|64,1024|FLOAT",
    "MaskedFill|64,1024;64,1;1|DT_BF16;BOOL;DT_BF16|64,1024|DT_BF16",
    "MaskedFill|2,8,64,64;64,64|FLOAT16;BOOL|2,8,64,64|FLOAT16",
    "MaskedFill|77;77;|INT64;BOOL;INT64|77|INT64",
    "PadV3|60,512;4;|DT_BF16;INT64;DT_BF16|64,512|DT_BF16",
    "PadV3|6,7,8;6;1|FLOAT;INT32;FLOAT|6,9,16|FLOAT",
    "PadV3|100;2|INT32;INT64|128|INT32",
    "Transpose|32,256,1,6,6;5|FLOAT;INT64|32,1,6,6,256|FLOAT",
    "Transpose|32,1,6,6,256;5|FLOAT;INT64|32,256,1,6,6|FLOAT",
    "Transpose|32,5;2|INT64;INT64|5,32|INT64",
    "Transpose|8192,1,6,6;4|FLOAT;INT64|1,6,6,8192|FLOAT",
    "Transpose|128,128;2|DT_BF16;INT64|128,128|DT_BF16",
    "Index|4096,128;1;2;77|DT_BF16;INT64;INT64;INT64|77,128|DT_BF16",
    "Index|4096;1;1;77|FLOAT;INT64;INT64;INT64|77|FLOAT",
    "Index|100,64,8;2;2;33;33|FLOAT16;INT64;INT64;INT64;INT64|33,8|FLOAT16",
    "Index|163840,64;1;3;4,16|DT_BF16;INT64;INT64;INT64|4,16,64|DT_BF16",
    "Index|4096,128;1;7;1|DT_BF16;INT64;INT64;INT64|7,128|DT_BF16",
    "MaskedFill|1,128;1,128|INT32;BOOL;INT32|1,128|INT32",
    "Slice|32,256;2;2|INT32;INT64;INT64|32,8|INT32",
    "Slice|1,128;2;2;2;2|INT32;INT64;INT64|1,64|INT32",
    "AsStrided|8,4,16;3;3;|DT_BF16;INT64;INT64;INT64|8,2,16|DT_BF16",
    "Mul|64,128;|FLOAT16;FLOAT16|64,128|FLOAT16",
    "GatherV2|103424,1024;1,1;|FLOAT16;INT64;INT64|1,1,1024|FLOAT16",
    "GatherV2|3,2,4,16;5;1|FLOAT16;INT64;INT64|5,2,4,16|FLOAT16",
    "LayerNormV3|8,64;64;64|FLOAT16;FLOAT16;FLOAT16|8,64;8,1;8,1|FLOAT16;FLOAT16;FLOAT16",
    "LayerNormV3|8,64;64;64|DT_BF16;FLOAT;FLOAT|8,64;8,1;8,1|DT_BF16;FLOAT;FLOAT",
    "NonZero|4|BOOL|1|INT64",
    "NonZero|128,50|BOOL|2,94|INT64",
    "NonZero|128,50|FLOAT|94,2|INT64",
    "NonZero|64|BOOL|1,64|INT64",
    "Scatter|1,2,1024,128;1;1,2,1,128|FLOAT16;INT64;FLOAT16|1,2,1024,128|FLOAT16",
    "Scatter|4,8,2048,128;4;4,8,1,128|DT_BF16;INT32;DT_BF16|4,8,2048,128|DT_BF16",
    "ScatterUpdate|1024,128;16;16,128|DT_BF16;INT64;DT_BF16|1024,128|DT_BF16",
    "IndexPutV2|128,50;94;2;2;94;94|INT64;INT64;INT64;INT64;INT64;INT64|128,50|INT64",
    "IndexPutV2|4096,128;77,128;1;1;77|DT_BF16;DT_BF16;INT64;INT64;INT64|4096,128|DT_BF16",
    "IndexPutV2|4096,64;77,64;1;1;77|INT64;INT64;INT64;INT64;INT64|4096,64|INT64",
    "IndexPutV2|4096,70;100,70;1;1;100|INT64;INT64;INT64;INT64;INT64|4096,70|INT64",
    "IndexPutV2|65536,101;77,101;1;1;77|UINT8;UINT8;INT64;INT64;INT64|65536,101|UINT8",
    "IndexPutV2|64,1024,128;77,128;2;2;77;77|INT64;INT64;INT64;INT64;INT64;INT64|64,1024,128|INT64",
    "RepeatInterleave|1024;1|FLOAT;INT64|4096|FLOAT",
    "RepeatInterleave|1024;1024|INT32;INT64|4000|INT32",
    "RepeatInterleaveV2|16,8,128;1|DT_BF16;INT64|16,64,128|DT_BF16",
    "RepeatInterleaveV2|512,7168;1|DT_BF16;INT64|4096,7168|DT_BF16",
    "RepeatInterleaveV2|64,32;1|FLOAT;INT64|64,64|FLOAT",
    "RepeatInterleaveV2|512,128;512|DT_BF16;INT64|777,128|DT_BF16",
    "HistogramV2|64,512;;|FLOAT;FLOAT;FLOAT|100|INT32",
    "HistogramV2|4096;;|INT32;INT32;INT32|256|INT32",
    "IndexFill|1024,128;16;|DT_BF16;INT64;DT_BF16|1024,128|DT_BF16",
    "GatherV2|64,8,4,128;16;1|DT_BF16;INT64;INT64|16,8,4,128|DT_BF16",
    "GatherV2|64,8,4,128;16;|DT_BF16;INT64;INT64|16,8,4,128|DT_BF16",
    "GatherV2|64,1024;16;1|DT_BF16;INT64;INT64|64,16|DT_BF16",
    "GatherV2|64,1024,8;16;|FLOAT;INT32;INT64|64,16,8|FLOAT",
    "IndexFill|1024;16;|BOOL;INT64;BOOL|1024|BOOL",
    "RmsNormGrad|4096,1,1024;4096,1,1024;4096,1,1;1024|DT_BF16;DT_BF16;FLOAT;DT_BF16|4096,1,1024;1024|DT_BF16;FLOAT",
    "RmsNormGrad|4096,1,16,128;4096,1,16,128;4096,1,16,1;128|DT_BF16;DT_BF16;FLOAT;DT_BF16|4096,1,16,128;128|DT_BF16;FLOAT",
    "RmsNormGrad|64,512;64,512;64,1;512|FLOAT16;FLOAT16;FLOAT;FLOAT|64,512;512|FLOAT16;FLOAT",
    "SwiGluGrad|4096,3072;4096,6144|DT_BF16;DT_BF16|4096,6144|DT_BF16",
    "RotaryPositionEmbeddingGrad|4096,1,8,128;4096,1,1,128;4096,1,1,128;|DT_BF16;DT_BF16;DT_BF16;DT_UNDEFINED|4096,1,8,128;;|DT_BF16;DT_BF16;DT_BF16",
    "FlashAttentionScoreGrad|4096,1,2048;4096,1,1024;4096,1,1024;4096,1,2048;2048,2048;1,16,4096,8;1,16,4096,8;;4096,1,2048;;;;;;|DT_BF16;DT_BF16;DT_BF16;DT_BF16;BOOL;FLOAT;FLOAT;DT_BF16;DT_BF16;INT64;FLOAT;FLOAT;FLOAT;FLOAT;FLOAT|4096,1,2048;4096,1,1024;4096,1,1024;;;|DT_BF16;DT_BF16;DT_BF16;DT_BF16;DT_BF16;DT_BF16",
    "FlashAttentionScoreGrad|2,8,512,64;2,2,512,64;2,2,512,64;2,8,512,64;2048,2048;2,8,512,8;2,8,512,8;;2,8,512,64;;;;;;|DT_BF16;DT_BF16;DT_BF16;DT_BF16;BOOL;FLOAT;FLOAT;DT_BF16;DT_BF16;INT64;FLOAT;FLOAT;FLOAT;FLOAT;FLOAT|2,8,512,64;2,2,512,64;2,2,512,64;;;|DT_BF16;DT_BF16;DT_BF16;DT_BF16;DT_BF16;DT_BF16",
    "EmbeddingDenseGradV2|1,4096,1024;4096;4096|FLOAT;INT32;INT32|151936,1024|FLOAT",
    "ApplyAdamWV2|128;128;128;128;1|FLOAT;FLOAT;FLOAT;FLOAT;INT64|N/A|N/A",
    "ApplyAdamWV2|64,32;64,32;64,32;64,32;1|FLOAT;FLOAT;FLOAT;FLOAT;FLOAT|N/A|N/A",
    "ForeachAddList|64,3,11,11;64;192,64,5,5;192;1000,512;1000;64,3,11,11;64;192,64,5,5;192;1000,512;1000;|FLOAT;FLOAT;FLOAT;FLOAT;FLOAT;FLOAT;FLOAT;FLOAT;FLOAT;FLOAT;FLOAT;FLOAT;FLOAT|23232;64;307200;192;512000;1000|FLOAT;FLOAT;FLOAT;FLOAT;FLOAT;FLOAT",
    "ForeachAddList|64,32;64,32;|DT_BF16;DT_BF16;FLOAT|2048|DT_BF16",
    "ForeachMulScalar|64,3,11,11;64;192,64,5,5;192;1000,512;1000;|FLOAT;FLOAT;FLOAT;FLOAT;FLOAT;FLOAT;FLOAT|23232;64;307200;192;512000;1000|FLOAT;FLOAT;FLOAT;FLOAT;FLOAT;FLOAT",
    "AdaptiveAvgPool3d|32,1,6,6,256|FLOAT|32,1,6,6,256|FLOAT",
    "AdaptiveAvgPool3d|2,4,13,13,64|DT_BF16|2,2,6,6,64|DT_BF16",
    "AdaptiveAvgPool3d|2,1,13,13,64|FLOAT16|2,1,6,6,64|FLOAT16",
    "AdaptiveAvgPool3dGrad|1,6,6,8192;32,256,1,6,6|FLOAT;FLOAT|1,6,6,8192|FLOAT",
    "AdaptiveAvgPool3dGrad|2,6,6,128;2,64,4,13,13|DT_BF16;DT_BF16|4,13,13,128|DT_BF16",
    "Abs||FLOAT||FLOAT",
    "Abs|64,32|INT32|64,32|INT32",
    "Cos|4096,1,1,128|FLOAT|4096,1,1,128|FLOAT",
    "Sin|4096,1,1,128|FLOAT|4096,1,1,128|FLOAT",
    "Pows|;|FLOAT;FLOAT||FLOAT",
    "Range|;;|DOUBLE;DOUBLE;DOUBLE|4096|FLOAT",
    "Range|;;|INT32;FLOAT;INT32|1024|FLOAT",
    "OnesLike|1|FLOAT|1|FLOAT",
    "OnesLike|1000|FLOAT|1000|FLOAT",
    "LpNormV2|3145728|FLOAT||FLOAT",
    "LpNormV2|64,32|FLOAT|64|FLOAT",
    "LpNormV2|64,32|DT_BF16|64,1|DT_BF16",
    "LpNormV2|64,32|FLOAT|32|FLOAT",
    "LpNormV2|64,32|FLOAT|1,32|FLOAT",
    "LpNormV2|4,6,8|FLOAT|4|FLOAT",
    "LpNormV2|4,6,8|FLOAT|1,6,1|FLOAT",
    "LpNormV2|4,6,8|FLOAT|1,1,1|FLOAT",
    "Relu|32,256,13,13|FLOAT|32,256,13,13|FLOAT",
    "ReluGrad|32,4096;32,4096|FLOAT;FLOAT|32,4096|FLOAT",
    "Exp|64,512|DT_BF16|64,512|DT_BF16",
    "Sqrt|64,512|FLOAT|64,512|FLOAT",
    "Rsqrt|64,1|FLOAT|64,1|FLOAT",
    "Sigmoid|64,256|FLOAT16|64,256|FLOAT16",
    "Swish|64,512|DT_BF16|64,512|DT_BF16",
    "Tanh|64,512|DT_BF16|64,512|DT_BF16",
    "Reciprocal|64,512|FLOAT|64,512|FLOAT",
    "Maximum|64,512;512|DT_BF16;DT_BF16|64,512|DT_BF16",
    "Minimum|64;64|INT32;INT32|64|INT32",
    "LessEqual|64,1;1,128|INT64;INT64|64,128|BOOL",
    "LogicalOr|64;64|BOOL;BOOL|64|BOOL",
    "SelectV2|64,1;64,128;1,128|BOOL;FLOAT;FLOAT|64,128|FLOAT",
    "GatherElementsV2|64,1000;64,8|FLOAT;INT64|64,8|FLOAT",
    "ScatterElementsV2|64,1000;64,8;64,8|FLOAT;INT32;FLOAT|64,1000|FLOAT",
    "ClipByValueV2|64,128;;|INT64;INT64;INT64|64,128|INT64",
    "TopKV2|32,1000;|FLOAT;INT32|32,5;32,5|FLOAT;INT32",
    "LogSoftmaxV2|32,1000|FLOAT|32,1000|FLOAT",
    "LogSoftmaxGrad|32,1000;32,1000|FLOAT;FLOAT|32,1000|FLOAT",
    "NLLLoss|32,1000;32;1000|FLOAT;INT64;FLOAT|;|FLOAT;FLOAT",
    "NLLLossGrad|32,1000;;32;1000;|FLOAT;FLOAT;INT32;FLOAT;FLOAT|32,1000|FLOAT",
    "DropOutDoMask|32,9216;36864;1|FLOAT;UINT8;FLOAT|32,9216|FLOAT",
    "RmsNormQuant|16,512;512;512;1;1|DT_BF16;DT_BF16;DT_BF16;DT_BF16;INT8|16,512|INT8",
    "AddRmsNormQuant|16,512;16,512;512;512;;512;;|DT_BF16;DT_BF16;DT_BF16;DT_BF16;DT_UNDEFINED;DT_BF16;DT_UNDEFINED;DT_UNDEFINED|16,512;16,512;16,512|INT8;INT8;DT_BF16",
    "DynamicBlockQuant|16,200|DT_BF16|16,200;16,2|INT8;FLOAT",
    "GatherV3|4096,128;77;1|DT_BF16;INT64;INT64|77,128|DT_BF16",
    "GatherV3|64,4096;77;1|FLOAT;INT32;INT64|64,77|FLOAT",
    "GatherV3|4,8,16;3;1|FLOAT;INT64;INT64|4,3,16|FLOAT",
    "GatherV3|4,6,8,16;3;1|DT_BF16;INT64;INT64|4,6,3,16|DT_BF16",
    "LinearIndex|64,128;2|INT64;INT32|64,128|INT32",
    "ApplyTopKTopPWithSorted|8,1024;8,1024;8;8|FLOAT;INT32;FLOAT;INT32|8,1024|FLOAT",
    "muls_add_kernel|16,7168;16,7168|DT_BF16;DT_BF16|16,7168|DT_BF16",
    "_triton_rope|336,4,128;336,1,128;81920,128|DT_BF16;DT_BF16;DT_BF16|336,4,128;336,1,128|DT_BF16;DT_BF16",
];

/// The same, and what the refusal says.
const WRONG: [&str; 109] = [
    "Neg|64|INT32|64|INT32 => takes FLOAT",
    "Sub|4096;4096|FLOAT;DT_BF16|4096|FLOAT => one type",
    "Sub|64,128;64,127|FLOAT;FLOAT|64,128|FLOAT => do not broadcast",
    "RealDiv|64;64|INT32;INT32|64|INT32 => the kernel takes",
    "LogicalAnd|64;64|FLOAT;FLOAT|64|BOOL => takes BOOL",
    "Greater|64;64|FLOAT;FLOAT|64|FLOAT => recorded as FLOAT",
    "GreaterEqual|64;64|FLOAT;FLOAT|64|FLOAT => recorded as FLOAT",
    "FloorDiv|64;63|FLOAT;FLOAT|64|FLOAT => do not broadcast",
    "FloorDiv|64;64|BOOL;BOOL|64|BOOL => the kernel takes",
    "FloorMod|64;64|INT8;INT8|64|INT8 => the kernel takes",
    "Log|64|INT32|64|INT32 => takes FLOAT",
    "Pack|64,32;64,31|FLOAT;FLOAT|2,64,32|FLOAT => by stacking along no dimension",
    "Pack|64,32;64,32|FLOAT;FLOAT|64,64|FLOAT => by stacking along no dimension",
    "Cast|64|FLOAT|64|FLOAT => nothing would be launched",
    "Cast|64|FLOAT|63|DT_BF16 => inputs give",
    "Transpose|32,5;2|FLOAT;INT64|32,5|FLOAT => no order",
    "Transpose|32,5;3|FLOAT;INT64|5,32|FLOAT => R == rank(X)",
    "ConcatD|64,32;64,31|FLOAT;FLOAT|64,64|FLOAT => by concatenation along no dimension",
    "ConcatD|64,32;64,32|FLOAT;FLOAT16|64,64|FLOAT => one type",
    "Tile|8,16;2|DT_BF16;INT64|16,47|DT_BF16 => not a multiple",
    "Cumsum|64,32;|INT64;INT64|64,32|INT64 => takes FLOAT",
    "ReduceSum|32,4096;2|FLOAT;INT64|32|FLOAT => of the input's dimensions",
    "ArgMaxV2|64,1000;|DT_BF16;INT64|63|INT32 => of the input's dimensions",
    "ArgMaxV2|64,1000;|DT_BF16;INT64|64|INT64 => recorded as INT64",
    "BroadcastTo|3,32;2|INT64;INT64|5,32|INT64 => do not broadcast",
    "MaskedFill|64,1;64,1024;|FLOAT;BOOL;FLOAT|64,1|FLOAT => broadcast(X, M) == X",
    "MaskedFill|64;64;|FLOAT;FLOAT;FLOAT|64|FLOAT => takes BOOL",
    "PadV3|64,512;4;|DT_BF16;INT64;DT_BF16|60,512|DT_BF16 => padded at the end",
    "PadV3|64,512;3;|DT_BF16;INT64;DT_BF16|70,512|DT_BF16 => P == 2 * rank(X)",
    "Muls|4096|FLOAT|4096|FLOAT => takes FLOAT16",
    "SoftmaxV2|64,32|INT32|64,32|INT32 => takes FLOAT",
    "Fill|2;|INT64;FLOAT|64|FLOAT => R == max(1, rank(Y))",
    "AsStrided|64,32;2;2;1|FLOAT;INT64;INT64;INT64|64,33|FLOAT => all_le(Y, X)",
    "Index|4096,128;1;2;77|DT_BF16;INT64;INT64;FLOAT|77,128|DT_BF16 => takes INT32",
    "Index|4096,128;1;2;77|DT_BF16;INT64;INT64;INT64|76,128|DT_BF16 => inputs give",
    "Index|4096,128;1;7;1|DT_BF16;INT64;INT64;INT64|8,128|DT_BF16 => inputs give [7,128]",
    "Slice|1,128;2;2;2;2|INT32;INT64;INT64|1,129|INT32 => all_le(Y, X)",
    "AsStrided|8,4,16;3;3;|DT_BF16;INT64;INT64;INT64|8,5,16|DT_BF16 => all_le(Y, X)",
    "Mul|64,128;63,128|FLOAT16;FLOAT16|64,128|FLOAT16 => do not broadcast",
    "GatherV2|300,16;5;|FLOAT16;INT64;INT64|5,17|FLOAT16 => inputs give [5,16]",
    "GatherV2|3,2,4,16;5;1|FLOAT16;INT64;INT64|5,2,3,16|FLOAT16 => inputs give [5,2,4,16]",
    "LayerNormV3|8,64;64;63|FLOAT16;FLOAT16;FLOAT16|8,64;8,1;8,1|FLOAT16;FLOAT16;FLOAT16 => D is both",
    "NonZero|64,8|BOOL|3,94|INT64 => R == rank(X)",
    "NonZero|64,8|BOOL|2,600|INT64 => N <= numel(X)",
    "NonZero|64,8|BOOL|2,94|INT32 => recorded as INT32",
    "Scatter|1,2,1024,128;2;1,2,1,128|FLOAT16;INT64;FLOAT16|1,2,1024,128|FLOAT16 => B is both 1 and 2",
    "ScatterUpdate|1024,128;16;17,128|DT_BF16;INT64;DT_BF16|1024,128|DT_BF16 => I is both 16 and 17",
    "IndexPutV2|128,50;3172;2;2;3172;3172|INT64;INT64;INT64;INT64;INT64;INT64|128,50|INT64 => `I <= 100` does not hold",
    "IndexPutV2|4096,96;77,96;1;1;77|INT64;INT64;INT64;INT64;INT64|4096,96|INT64 => `numel(D) <= 70 or numel(D) > 100` does not hold",
    "IndexPutV2|4096,129;77,129;1;1;77|UINT8;UINT8;INT64;INT64;INT64|4096,129|UINT8 => `numel(D) <= 128` does not hold",
    "IndexPutV2|90001,60;77,60;1;1;77|INT64;INT64;INT64;INT64;INT64|90001,60|INT64 => `V * numel(D) <= 5400000 or numel(D) > 100` does not hold",
    "IndexPutV2|300,18001;77;2;2;77;77|INT64;INT64;INT64;INT64;INT64;INT64|300,18001|INT64 => `V * W * numel(D) <= 5400000 or numel(D) > 100` does not hold",
    "RepeatInterleave|1024;1|FLOAT;INT64|4097|FLOAT => P % N == 0",
    "RepeatInterleaveV2|4,8;1|DT_BF16;INT64|4,16|DT_BF16 => >= 256",
    "HistogramV2|64,512;;|BOOL;BOOL;BOOL|100|INT32 => takes FLOAT",
    "IndexFill|16,128;17;|DT_BF16;INT64;DT_BF16|16,128|DT_BF16 => I <= V",
    "GatherV2|64,8,4,128;;|DT_BF16;INT64;INT64|8,4,128|DT_BF16 => only a compiled graph",
    "GatherV2|64,8,4,128;3,5;1|DT_BF16;INT64;INT64|3,5,8,4,128|DT_BF16 => indices of several dimensions into a table of more than two",
    "GatherV2|64,1024;16;1|DT_BF16;INT64;INT64|65,16|DT_BF16 => parts along the second dimension: output 0 is [65,16], the inputs give [64,16]",
    "TransData|32,64|DT_BF16|4,2,16,16|DT_BF16 => the call gives FRACTAL_NZ",
    "RmsNormGrad|64,512;64,512;64,1;256|DT_BF16;DT_BF16;FLOAT;DT_BF16|64,512;256|DT_BF16;FLOAT => input 3",
    "SwiGluGrad|64,512;64,512|DT_BF16;DT_BF16|64,512|DT_BF16 => D == 2 * H",
    "RotaryPositionEmbeddingGrad|64,1,8,128;64,1,3,128;64,1,3,128;|DT_BF16;DT_BF16;DT_BF16;DT_UNDEFINED|64,1,8,128;;|DT_BF16;DT_BF16;DT_BF16 => do not broadcast",
    "FlashAttentionScoreGrad|512,1,2048;512,1,1024;512,1,1024;512,1,2048;2048,2048;1,16,256,8;1,16,256,8;;512,1,2048;;;;;;|DT_BF16;DT_BF16;DT_BF16;DT_BF16;BOOL;FLOAT;FLOAT;DT_BF16;DT_BF16;INT64;FLOAT;FLOAT;FLOAT;FLOAT;FLOAT|512,1,2048;512,1,1024;512,1,1024;;;|DT_BF16;DT_BF16;DT_BF16;DT_BF16;DT_BF16;DT_BF16 => fit no form",
    "EmbeddingDenseGradV2|64,128;63;63|FLOAT;INT32;INT32|1024,128|FLOAT => N == numel(B)",
    "ApplyAdamWV2|128;128;64;128;1|FLOAT;FLOAT;FLOAT;FLOAT;INT64|N/A|N/A => input 2",
    "ForeachAddList|64,32;64;64,32;63;|FLOAT;FLOAT;FLOAT;FLOAT;FLOAT|2048;64|FLOAT;FLOAT => input 3: X_1 is both",
    "ForeachAddList|64;64;|FLOAT;FLOAT;FLOAT|65|FLOAT => inputs give [64]",
    "ForeachMulScalar|64,32;64;|FLOAT;FLOAT;FLOAT|2048;65|FLOAT;FLOAT => output 1 is [65], the inputs give [64]",
    "AdaptiveAvgPool3d|32,1,6,6,256|FLOAT|32,1,1,1,256|FLOAT => P * Q * R > 1",
    "AdaptiveAvgPool3dGrad|1,6,6,8191;32,256,1,6,6|FLOAT;FLOAT|1,6,6,8191|FLOAT => N == B * C",
    "Abs|64|BOOL|64|BOOL => the kernel takes",
    "Cos|64|INT32|64|INT32 => takes FLOAT",
    "Sin|64|FLOAT|63|FLOAT => inputs give",
    "Pows|64;|INT32;INT32|64|INT32 => takes FLOAT",
    "Range|;;|INT64;INT64;INT64|64,2|INT64 => output 0",
    "OnesLike|64|FLOAT|64|INT32 => recorded as INT32",
    "LpNormV2|64,32|FLOAT|16|FLOAT => fit no form",
    "Relu|64|BOOL|64|BOOL => the kernel takes",
    "ReluGrad|64;63|FLOAT;FLOAT|64|FLOAT => input 1",
    "GatherV3|4096,128;77;1|DT_BF16;FLOAT;INT64|77,128|DT_BF16 => takes INT32",
    "GatherV3|4096,128;77;1|DT_BF16;INT64;INT64|76,128|DT_BF16 => inputs give",
    "LinearIndex|64,128;3|INT64;INT32|64,128|INT32 => R == rank(X) + 1",
    "ApplyTopKTopPWithSorted|8,1;8,1;8;8|FLOAT;INT32;FLOAT;INT32|8,1|FLOAT => V > 1",
    "Exp|64|INT32|64|INT32 => takes FLOAT",
    "Sqrt|64|INT32|64|INT32 => takes FLOAT",
    "Rsqrt|64|FLOAT|65|FLOAT => inputs give",
    "Sigmoid|64|BOOL|64|BOOL => takes FLOAT",
    "Swish|64|INT8|64|INT8 => takes FLOAT",
    "Tanh|64|FLOAT|64|FLOAT16 => recorded as FLOAT16",
    "Reciprocal|64|INT64|64|INT64 => takes FLOAT",
    "Maximum|64;63|FLOAT;FLOAT|64|FLOAT => do not broadcast",
    "Minimum|64;64|FLOAT;DT_BF16|64|FLOAT => one type",
    "LessEqual|64;64|FLOAT;FLOAT|64|FLOAT => recorded as FLOAT",
    "LogicalOr|64;64|INT32;INT32|64|BOOL => takes BOOL",
    "SelectV2|64;64;64|FLOAT;FLOAT;FLOAT|64|FLOAT => takes BOOL",
    "GatherElementsV2|64,1000;63,8|FLOAT;INT64|63,8|FLOAT => an index as long as",
    "ScatterElementsV2|64,8;64,9;64,9|FLOAT;INT32;FLOAT|64,8|FLOAT => I <= V",
    "ClipByValueV2|64;;|BOOL;BOOL;BOOL|64|BOOL => the kernel takes",
    "TopKV2|32,4;|FLOAT;INT32|32,5;32,5|FLOAT;INT32 => K <= V",
    "LogSoftmaxV2||FLOAT||FLOAT => rank(X) > 0",
    "LogSoftmaxGrad|32,10;32,9|FLOAT;FLOAT|32,10|FLOAT => input 1",
    "NLLLoss|32,1000;32;999|FLOAT;INT64;FLOAT|;|FLOAT;FLOAT => input 2",
    "NLLLossGrad|32,1000;;32;1000;|FLOAT;FLOAT;FLOAT;FLOAT;FLOAT|32,1000|FLOAT => takes INT32",
    "DropOutDoMask|32,9216;36863;1|FLOAT;UINT8;FLOAT|32,9216|FLOAT => align(numel(X), 128)",
    "RmsNormQuant|16,512;512;512;2;1|DT_BF16;DT_BF16;DT_BF16;DT_BF16;INT8|16,512|INT8 => input 3",
    "DynamicBlockQuant|16,200|DT_BF16|16,200;16,3|INT8;FLOAT => output 1",
    "muls_add_kernel|16,64;64|DT_BF16;DT_BF16|16,64|DT_BF16 => input 1",
    "_triton_rope|336,4,128;336,1,128;81920,256|DT_BF16;DT_BF16;DT_BF16|336,4,128;336,1,128|DT_BF16;DT_BF16 => R <= D",
];

/// Forms that real profiles have and no call launches, with the reason.
const UNSUPPORTED: [&str; 4] = [
    "Cast|64,128|FLOAT|64,128|DOUBLE => the conversion runs on an AI CPU",
    "Cast|16,4096|INT32|16,4096|UINT64 => torch_npu has no tensors of this type",
    "Mul|3,1,1,128;|FLOAT;FLOAT|3,1,1,128|FLOAT16 => a compiled graph fuses the conversion",
    "GatherV2|3,1,1,16;;1|FLOAT16;INT64;INT64|1,1,16|FLOAT16 => only a compiled graph launches it",
];

/// Shapes, type and format of input and output of conversions that are steps of convolutions and poolings.
const STEPS: [&str; 4] = [
    "\"\"\"32,3,224,224\"\"\",FLOAT,NCHW,\"\"\"32,1,224,224,8\"\"\",FLOAT,NC1HWC0",
    "\"\"\"32,12,13,13,16\"\"\",FLOAT,NC1HWC0:1,\"\"\"32,192,13,13\"\"\",FLOAT,NCHW",
    "\"\"\"192,64,5,5\"\"\",FLOAT,NCHW,\"\"\"200,12,16,8\"\"\",FLOAT,FRACTAL_Z",
    "\"\"\"121,4,16,8\"\"\",FLOAT,FRACTAL_Z,\"\"\"64,3,11,11\"\"\",FLOAT,NCHW",
];

/// Names in profiles of graphs that kernels got after their entries.
const GRAPH_NAMES: &str = "AbsAiCore AdaptiveAvgPool3dAiCore AdaptiveAvgPool3dGradAiCore ArangeAiCore ClipByValueV2AiCore CosAiCore DropoutDoMaskAiCore ExpAiCore ForeachAddListV2 ForeachMulScalarV2 GatherV3AiCore HistogramAiCore LessEqualAiCore LogSoftmaxAiCore LogicalOrAiCore MaximumAiCore MinimumAiCore NLLLossAiCore NLLLossGradAiCore NonzeroAiCore OnesLikeAiCore PowsAiCore ReciprocalAiCore RsqrtAiCore ScatterAiCore ScatterUpdateAiCore SelectV2AiCore SigmoidAiCore SiluAiCore SinAiCore SqrtAiCore TopkV2AiCore TransDataSpecial";

/// Fields of a case, and the text behind it.
pub(crate) fn fields(line: &str) -> ([&str; 5], &str) {
    let (case, text) = line.split_once(" => ").unwrap_or((line, ""));
    let fields: Vec<&str> = case.split('|').collect();
    (fields.try_into().expect("five fields"), text)
}

/// A `kernel_details.csv` of cases.
fn records(lines: &[&str]) -> String {
    let record = |line: &&str| {
        let ([kernel, shapes, dtypes, output, dtype], _) = fields(line);
        let formats = |dtypes: &str| vec!["ND"; dtypes.split(';').count()].join(";");
        let side = |shapes: &str, dtypes: &str| match shapes {
            "N/A" => "N/A,N/A,N/A".to_owned(),
            _ => format!("\"\"\"{shapes}\"\"\",{dtypes},{}", formats(dtypes)),
        };
        format!("{kernel},5.000,{},{}", side(shapes, dtypes), side(output, dtype))
    };
    let records: Vec<String> = lines.iter().map(record).collect();
    profile(&records.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Creates a database of a profile, and runs its cases on a rehearsal host.
fn run_profile(text: &str) -> Context {
    let context = Context::new();
    context.write("profile.csv", text);
    context.done("ingest profile.csv --db db --kind rehearsal");
    context.run("run --db db --host rehearsal --devices 0-3");
    context
}

/// Checks that each row of the kernels has one of these verdicts; returns the number of rows.
pub(crate) fn assert_verdicts(context: &Context, kernels: &BTreeSet<&str>, verdicts: &[&str]) -> usize {
    let mut rows = 0;
    for kernel in kernels {
        for row in context.rows("db", kernel) {
            let verdict = row["MicroBench Verdict"].as_str();
            let reason = &row["MicroBench Reason"];
            assert!(verdicts.contains(&verdict), "{kernel} {}: {verdict}: {reason}", row["Input Shapes"]);
            rows += 1;
        }
    }
    rows
}

/// Checks the scripts and manifests of a run on the rehearsal host, as they would run on a device, by the vendor's code:
/// the number of accepted calls, and the errors.
pub(crate) fn check_run(python: &OsString, context: &Context) -> (usize, Vec<String>) {
    let runs = context.path("db/.npubench/runs");
    let run = std::fs::read_dir(runs).expect("listed").next().expect("a run").expect("listed").path();
    let folders = std::fs::read_dir(run.join("collections")).expect("listed");
    let mut collections: Vec<_> = folders.map(|entry| entry.expect("listed").path()).collect();
    collections.retain(|folder| folder.join("manifest.json").exists());
    let journals = vendor::check_by_vendor(python, &collections);
    let accepted: usize = journals.iter().map(vendor::VendorJournal::accepted).sum();
    (accepted, journals.into_iter().flat_map(|journal| journal.errors).collect())
}

/// The good cases after their run, for all tests.
static MEASURED: LazyLock<Context> = LazyLock::new(|| {
    let [shapes, types] = ["1,128", "FLOAT16"].map(|slot| vec![slot; 32].join(";"));
    let long = format!("ConcatD|{shapes}|{types}|32,128|FLOAT16");
    run_profile(&records(&[&GOOD[..], &[&long]].concat()))
});

#[test]
fn every_accepted_call_runs() {
    let kernels: BTreeSet<&str> = GOOD.iter().map(|line| fields(line).0[0]).collect();
    assert_eq!(assert_verdicts(&MEASURED, &kernels, &["ok", "noisy"]), GOOD.len() + 1);
}

/// The number of positions may depend on values, so that the vendor's code gives a symbol for it.
#[test]
fn the_vendors_code_accepts_them() {
    let Some(python) = vendor_python() else { return };
    let (accepted, errors) = check_run(&python, &MEASURED);
    let excluded = GOOD.iter().filter(|line| WITHOUT_META.contains(&fields(line).0[0])).count();
    assert_eq!(errors.len(), excluded, "{errors:#?}");
    let missing = ["NotImplementedError", "No module named 'vllm_ascend'"];
    assert!(errors.iter().all(|found| missing.iter().any(|error| found.contains(error))), "{errors:#?}");
    assert_eq!(accepted, GOOD.len() + 1 - excluded);
}

/// Asserts that a plan refuses each case with a reason that contains the text beside it.
fn assert_refused(context: &Context, lines: &[&str], verdicts: &[&str]) {
    let (refused, _) = planned(context);
    for line in lines {
        let ([kernel, ..], text) = fields(line);
        let is_it = |[found, verdict, reason]: &[String; 3]| {
            found == kernel && verdicts.contains(&verdict.as_str()) && reason.contains(text)
        };
        assert!(refused.iter().any(is_it), "{line}: {refused:#?}");
    }
}

#[test]
fn known_invalid_calls_are_not_launched() {
    let context = run_profile(&records(&[&WRONG[..], &UNSUPPORTED].concat()));
    assert_refused(&context, &WRONG, &["invalid_args", "unsupported"]);
    assert_refused(&context, &UNSUPPORTED, &["unsupported"]);
    // A contradiction is stated in the row; a form that the entry lacks does not change it.
    let verdicts = |kernel: &str| -> Vec<String> {
        let rows = context.rows("db", kernel);
        rows.iter().map(|row| row.get("MicroBench Verdict").cloned().unwrap_or_default()).collect()
    };
    assert_eq!(verdicts("BroadcastTo"), ["invalid_args"]);
    assert_eq!(verdicts("Log"), [""]);
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
    let plan = context.run("plan --db db --devices 0 --format json");
    let reason = "a step of convolutions and of poolings";
    let count =
        plan.stdout.lines().filter(|line| line.contains("unsupported") && line.contains(reason)).count();
    assert_eq!(count, STEPS.len(), "{}", plan.stdout);
}

#[test]
fn names_in_graphs_belong_to_an_entry() {
    let context = Context::new();
    let records: Vec<String> =
        GRAPH_NAMES.split(' ').map(|name| format!("{name},5.000,N/A,N/A,N/A,N/A,N/A,N/A")).collect();
    context.write("kernel_details.csv", &profile(&records.iter().map(String::as_str).collect::<Vec<_>>()));
    let ran = context.done("kernels --missing kernel_details.csv --format json");
    for line in ran.stdout.lines() {
        assert!(line.contains("\"gap\":\"without_shapes\""), "{line}");
    }
    assert_eq!(ran.stdout.lines().count(), records.len());
}
