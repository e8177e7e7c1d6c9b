//! The entries of matrix products, quantisation and mixtures of experts: real shapes are replayed and taken by
//! the vendor's own torch_npu, and what it would take wrongly is refused.

use crate::prelude::*;
use crate::vendor;

/// Kernel, duration, then shapes, types and formats of the inputs, shapes and types of the outputs. Most are
/// of public profiles, the rest of the sizes of DeepSeek and Qwen.
const CASES: [&str; 84] = [
    "MatMulV2 200 1,7168;256,7168 BF16;BF16 ND;ND 1,256 BF16",
    "MatMulV2 10 1,1024;64,160,16,16 FLOAT16;FLOAT16 ND;NZ 1,2560 FLOAT16",
    "MatMulV2 40 32,4096;4096,9216 FLOAT;FLOAT FORMAT_ND;FORMAT_ND 32,9216 FLOAT",
    "MatMulV3 40 1,3072;192,64,16,16 FLOAT16;FLOAT16 ND;NZ 1,1024 FLOAT16",
    "MatMulV3 300 4096,6144;4096,1024 BF16;BF16 ND;ND 6144,1024 BF16",
    "MatMulV3 300 64,5120;96,320,16,16 BF16;BF16 ND;NZ 64,1536 BF16",
    "MatMulCommon 30 3,6144;32,6144 BF16;BF16 ND;ND 3,32 BF16",
    "MatMulCommon 300 512,7168;7168,2112 BF16;BF16 ND;ND 512,2112 BF16",
    "MatMulCommon 300 512,7168;132,448,16,16 BF16;BF16 ND;NZ 512,2112 BF16",
    "BatchMatMulV2 5 2,3,4;2,5,4 BF16;BF16 ND;ND 2,3,5 BF16",
    "BatchMatMulV2 30 16,64,512;16,512,128 BF16;BF16 NCL;NCL 16,64,128 BF16",
    "BatchMatMulNd 30 8,128,64;8,128,96 FLOAT16;FLOAT16 ND;ND 8,64,96 FLOAT16",
    "BatchMatMulV3 30 128,96,128;128,512,128 BF16;BF16 ND;ND 128,96,512 BF16",
    "TransposeBatchMatMul 15 4,16,128;16,128,512 BF16;BF16 ND;ND 4,16,512 BF16",
    "TransposeBatchMatMul 12 4,16,512;16,512,128 BF16;BF16 ND;ND 4,16,128 BF16",
    "TransposeBatchMatMul 12 16,96,512;16,512,128 BF16;BF16 ND;ND 96,16,128 BF16",
    "TransposeBatchMatMul 5 1,1,128;1,128,256 BF16;BF16 ND;ND 1,1,256 BF16",
    "QuantBatchMatmulV3 60 136,7168;66,448,16,32;2112;2112 INT8;INT8;FLOAT;INT32 ND;NZ;ND;ND 136,2112 BF16",
    "QuantBatchMatmulV3 60 136,1536;96,96,16,32;3072;3072 INT8;INT8;FLOAT;INT32 ND;NZ;ND;ND 136,3072 INT32",
    "QuantBatchMatmulV3 30 1,2048;224,128,16,32;7168 INT8;INT8;FLOAT ND;NZ;ND 1,7168 BF16",
    "QuantBatchMatmulV3 60 96,7168;7168,4096;4096;96 INT8;INT8;FLOAT;FLOAT ND;ND;ND;ND 96,4096 BF16",
    "QuantBatchMatmulV3 60 96,7168;4096,7168;4096;96 INT8;INT8;FLOAT;FLOAT ND;ND;ND;ND 96,4096 FLOAT16",
    "QuantBatchMatmulV3 60 96,7168;4096,7168;1;1 INT8;INT8;INT64;FLOAT ND;ND;ND;ND 96,4096 INT8",
    "QuantBatchMatmulV3 60 96,7168;4096,7168;4096 INT8;INT8;INT64 ND;ND;ND 96,4096 FLOAT16",
    "QuantBatchMatmulV3 60 16,128;128,256;256 INT8;INT8;UINT64 ND;ND;ND 16,256 FLOAT16",
    "QuantBatchMatmulV3 60 16,128;128,256;256 INT8;INT8;UINT64 ND;ND;ND 16,256 INT8",
    "QuantBatchMatmulV3 60 96,7168;4096,7168;4096;;;96 INT8;INT8;BF16;-;-;FLOAT ND;ND;ND;-;-;ND 96,4096 BF16",
    "QuantBatchMatmulV3 60 96,7168;128,448,16,32;4096;;4096;96 INT8;INT8;FLOAT;-;INT32;FLOAT ND;NZ;ND;-;ND;ND 96,4096 BF16",
    "AscendQuantV2 10 64,7168;7168;7168 BF16;BF16;BF16 ND;ND;ND 64,7168 INT8",
    "AscendQuantV2 10 64,7168;1 FLOAT16;FLOAT16 ND;ND 64,7168 INT8",
    "AscendQuantV2 10 64,4,512;512; FLOAT;FLOAT;- ND;ND;- 64,4,512 INT8",
    "DynamicQuant 10 64,7168 BF16 ND 64,7168;64 INT8;FLOAT",
    "DynamicQuant 10 8,128,2048;2048 FLOAT16;FLOAT16 ND;ND 8,128,2048;8,128 INT8;FLOAT",
    "DynamicQuant 10 1,1 BF16 ND 1,1;1 INT8;FLOAT",
    "DynamicQuant 20 512,2048;16,2048;16 BF16;BF16;INT32 ND;ND;ND 512,2048;512 INT8;FLOAT",
    "GroupedMatmul 900 6656,2048;8,2048,6144;;;;;;8 BF16;BF16;FLOAT;UINT64;FLOAT;FLOAT16;FLOAT16;INT64 ND;NZ;ND;ND;ND;ND;ND;ND 6656,6144 BF16",
    "GroupedMatmul 500 384,2048;16,2048,7168;;16,7168;;;;16;384 INT8;INT8;-;BF16;-;-;-;INT64;FLOAT ND;NZ;-;ND;-;-;-;ND;ND 384,7168 BF16",
    "GroupedMatmul 200 256,7168;8,7168,4096;;8,4096;;;;8;256 INT8;INT8;-;FLOAT;-;-;-;INT64;FLOAT ND;ND;-;ND;-;-;-;ND;ND 256,4096 FLOAT16",
    "GroupedMatmul 300 256,2048;64,1536,2048;;;;;;64; FLOAT16;FLOAT16;-;-;-;-;-;INT64;- ND;ND;-;-;-;-;-;ND;- 256,1536 FLOAT16",
    "GroupedMatmulSwigluQuant 100 1,6144;8,128,384,16,32;8,4096;1;8 INT8;INT8;FLOAT;FLOAT;INT64 ND;NZ;ND;ND;ND 1,2048;1 INT8;FLOAT",
    "GroupedMatmulSwigluQuant 300 512,7168;16,128,448,16,32;16,4096;512;16 INT8;INT8;FLOAT;FLOAT;INT64 ND;NZ;ND;ND;ND 512,2048;512 INT8;FLOAT",
    "GroupedMatmulSwigluQuant 300 512,7168;16,128,448,16,32;16,4096;512;;16 INT8;INT8;FLOAT;FLOAT;-;INT64 ND;NZ;ND;ND;-;ND 512,2048;512 INT8;FLOAT",
    "MoeTokenPermute 10 1988,1;1988 FLOAT;INT32 ND;ND 1988,1;1988 FLOAT;INT32",
    "MoeTokenPermute 20 256,7168;256,8 BF16;INT64 ND;ND 2048,7168;2048 BF16;INT32",
    "MoeTokenPermute 20 256,7168;256,8 BF16;INT32 ND;ND 1024,7168;2048 BF16;INT32",
    "MoeTokenUnpermute 20 2048,6144;2048;256,8 BF16;INT32;BF16 ND;ND;ND 256,6144 BF16",
    "MoeTokenUnpermute 20 2048,7168;2048;256,8 BF16;INT32;FLOAT ND;ND;ND 256,7168 BF16",
    "MoeTokenUnpermute 20 1988,128;1988 FLOAT16;INT32 ND;ND 1988,128 FLOAT16",
    "MoeGatingTopK 20 64,256;256 FLOAT;FLOAT ND;ND 64,8;64,8;64,256 FLOAT;INT32;FLOAT",
    "MoeGatingTopK 20 512,128;128 BF16;BF16 ND;ND 512,8;512,8;512,128 BF16;INT32;FLOAT",
    "MoeGatingTopK 20 512,64 FLOAT16 ND 512,6;512,6;512,64 FLOAT16;INT32;FLOAT",
    "MatMulV2 40 32,9216;4096,9216;4096 FLOAT;FLOAT;FLOAT FORMAT_ND;FORMAT_ND;FORMAT_ND 32,4096 FLOAT",
    "MatMulV2 40 16,2,16,16;32,16,16,16 FLOAT16;FLOAT16 NZ;NZ 32,512 FLOAT16",
    "MatMulV3 40 64,5120;5120,1536;1536 FLOAT16;FLOAT16;FLOAT16 ND;ND;ND 64,1536 FLOAT16",
    "MatMulV3 40 64,5120;1536,5120;1536 BF16;BF16;FLOAT ND;ND;ND 64,1536 BF16",
    "MatMulCommon 40 64,5120;96,320,16,16;1536 BF16;BF16;FLOAT ND;NZ;ND 64,1536 BF16",
    "MatMul 10 1,1024;64,160,16,16 FLOAT16;FLOAT16 ND;NZ 1,2560 FLOAT16",
    "MatMul 10 1,7168;256,7168 BF16;BF16 ND;ND 1,256 BF16",
    "BatchMatMulV2 10 4,64,1;4,64,32 FLOAT16;FLOAT16 ND;ND 4,1,32 FLOAT16",
    "QuantBatchMatmulV3 60 4,96,7168;4096,7168;4096;96 INT8;INT8;FLOAT;FLOAT ND;ND;ND;ND 4,96,4096 BF16",
    "QuantBatchMatmulV3 60 4,96,7168;7168,4096;4096 INT8;INT8;FLOAT ND;ND;ND 4,96,4096 BF16",
    "QuantBatchMatmulV3 60 4,96,512;4,512,4096;4096 INT8;INT8;INT64 ND;ND;ND 4,96,4096 FLOAT16",
    "QuantBatchMatmulV3 60 4,96,7168;128,448,16,32;4096 INT8;INT8;BF16 ND;NZ;ND 4,96,4096 BF16",
    "AscendQuantV2 10 64,7168;7168;7168 BF16;BF16;BF16 ND;ND;ND 64,7168 INT4",
    "AscendQuantV2 10 64,7168;1 FLOAT16;FLOAT16 ND;ND 64,7168 INT4",
    "GroupedMatmul 500 64,256;4,256,512;4,512;;;;;4 FLOAT16;FLOAT16;FLOAT16;-;-;-;-;INT64 ND;ND;ND;-;-;-;-;ND 64,512 FLOAT16",
    "GroupedMatmul 500 64,256;4,512,256;4,512;;;;;4 BF16;BF16;FLOAT;-;-;-;-;INT64 ND;ND;ND;-;-;-;-;ND 64,512 BF16",
    "MatMul 10 1,1024;64,160,16,16;2560 FLOAT16;FLOAT16;FLOAT16 ND;NZ;ND 1,2560 FLOAT16",
    "MatMul 10 64,7168;256,7168;256 BF16;BF16;BF16 ND;ND;ND 64,256 BF16",
    "BatchMatMulV2 30 2,8,64,128;2,8,128,96 BF16;BF16 ND;ND 2,8,64,96 BF16",
    "BatchMatMulV2 30 2,8,64,128;2,8,96,128 FLOAT16;FLOAT16 ND;ND 2,8,64,96 FLOAT16",
    "BatchMatMulV2 10 1,64,128;16,128,96 BF16;BF16 ND;ND 16,64,96 BF16",
    "BatchMatMulV2 10 16,64,128;1,96,128 BF16;BF16 ND;ND 16,64,96 BF16",
    "BatchMatMulV2 10 2,1,64,128;2,8,128,96 BF16;BF16 ND;ND 2,8,64,96 BF16",
    "BatchMatMulV2 10 4,64,32;4,128,64 FLOAT16;FLOAT16 ND;ND 4,32,128 FLOAT16",
    "BatchMatMulV2 10 16,512;1024,512 BF16;BF16 ND;ND 16,1024 BF16",
    "QuantBatchMatmulV3 60 4,96,512;512,4096;4096;4096 INT8;INT8;FLOAT;INT32 ND;ND;ND;ND 4,96,4096 BF16",
    "QuantBatchMatmulV3 60 4,96,512;4,4096,512;4096;4,1,4096 INT8;INT8;INT64;INT32 ND;ND;ND;ND 4,96,4096 FLOAT16",
    "QuantBatchMatmulV3 60 4,96,512;4096,512;4096;;4,1,4096 INT8;INT8;BF16;-;INT32 ND;ND;ND;-;ND 4,96,4096 BF16",
    "QuantBatchMatmulV3 60 4,96,512;512,4096;4096;;4096 INT8;INT8;INT64;-;INT32 ND;ND;ND;-;ND 4,96,4096 INT8",
    "QuantBatchMatmulV3 60 4,96,512;512,4096;4096;;;96 INT8;INT8;FLOAT;-;-;FLOAT ND;ND;ND;-;-;ND 4,96,4096 FLOAT16",
    "QuantBatchMatmulV3 60 4,96,512;4096,512;4096;;4096;96 INT8;INT8;BF16;-;INT32;FLOAT ND;ND;ND;-;ND;ND 4,96,4096 BF16",
    "QuantBatchMatmulV3 60 4,96,512;128,32,16,32;4096;;4096;96 INT8;INT8;FLOAT;-;INT32;FLOAT ND;NZ;ND;-;ND;ND 4,96,4096 BF16",
    "GroupedMatmul 500 64,256;4,256,512;4,512;4,512;;;;4;64 INT8;INT8;INT32;BF16;-;-;-;INT64;FLOAT ND;NZ;ND;ND;-;-;-;ND;ND 64,512 BF16",
];

/// The same, and why each is refused.
const WRONG: [&str; 32] = [
    "MatMulV2 9 64,512;256,512 FLOAT16;BF16 ND;ND 64,256 FLOAT16 => input 1 (mat2) is DT_BF16, `self` is FLOAT16: the kernel takes one type",
    "MatMulV3 9 1,1024;64,160,16,16 BF16;BF16 ND;NZ 1,2048 BF16 => output 0 is [1,2048], the inputs give [1,2560]",
    "MatMulV2 9 8,64;32,64;31 FLOAT16;FLOAT16;FLOAT16 ND;ND;ND 8,32 FLOAT16 => A x B^T, bias: input 2: N is both 32 and 31",
    "MatMul 9 1,7168;256,7167 BF16;BF16 ND;ND 1,256 BF16 => A x B^T: input 1: K is both 7168 and 7167",
    "BatchMatMulV2 9 1,64,1;1,1,32768 FLOAT;FLOAT ND;ND 1,64,32768 FLOAT => launches no matrix product",
    "BatchMatMulV3 9 4,1,64;4,1,32 FLOAT;FLOAT ND;ND 4,64,32 FLOAT => launches no matrix product",
    "QuantBatchMatmulV3 9 4,96,512;3,512,256;256 INT8;INT8;FLOAT ND;ND;ND 4,96,256 BF16 => scale, batch: `rank(C) == 0 or numel(C) == B` does not hold",
    "AscendQuantV2 9 64,510;510 BF16;BF16 ND;ND 64,510 INT4 => `D % 8 == 0` does not hold",
    "AscendQuantV2 9 64,512;512;512 BF16;BF16;BF16 ND;ND;ND 64,512 UINT8 => run as the kernel Quantize",
    "GroupedMatmul 9 64,256;4,256,512;4,511;;;;;4 BF16;BF16;FLOAT;-;-;-;-;INT64 ND;ND;ND;-;-;-;-;ND 64,512 BF16 => DT_BF16 with a bias in FLOAT: input 2: N is both 512 and 511",
    "BatchMatMulV2 9 4,8,16;3,16,8 BF16;BF16 ND;ND 4,8,8 BF16 => A x B and 3 more: input 1: B is both 4 and 3",
    "BatchMatMulV2 9 64,512;128,500 BF16;BF16 ND;ND 64,128 BF16 => A x B^T, no batch: input 1: K is both 512 and 500",
    "BatchMatMulV2 9 2,8,64,128;2,4,128,96 BF16;BF16 ND;ND 2,8,64,96 BF16 => A x B, several batch dimensions and 3 more: input 1: C is both 8 and 4",
    "MatMul 9 1,7168;256,7168;255 BF16;BF16;BF16 ND;ND;ND 1,256 BF16 => A x B^T, bias: input 2: N is both 256 and 255",
    "QuantBatchMatmulV3 9 4,96,512;512,256;256;2,1,256 INT8;INT8;FLOAT;INT32 ND;ND;ND;ND 4,96,256 BF16 => `rank(F) == 0 or rank(F) == 2 and numel(F) == B and last(F) == 1` does not hold",
    "TransposeBatchMatMul 9 4,16,64;16,64,512 BF16;BF16 ND;ND 4,16,512 BF16 => `K % 128 == 0` does not hold",
    "TransposeBatchMatMul 9 4,16,128;8,128,512 BF16;BF16 ND;ND 4,16,512 BF16 => B is both 16 and 8",
    "TransposeBatchMatMul 9 4,128,512;128,512,128 BF16;BF16 ND;ND 4,128,128 BF16 => `B * K < 65536` does not hold",
    "QuantBatchMatmulV3 9 64,512;512,256;256 BF16;BF16;FLOAT ND;ND;ND 64,256 BF16 => input 0 (x1) is DT_BF16, the kernel takes INT8",
    "QuantBatchMatmulV3 9 64,512;768,256;256 INT8;INT8;FLOAT ND;ND;ND 64,256 BF16 => scale: input 1: K is both 512 and 768",
    "QuantBatchMatmulV3 9 64,512;512,256;256;99 INT8;INT8;INT64;FLOAT ND;ND;ND;ND 64,256 INT8 => `O == N or O == 1` does not hold",
    "QuantBatchMatmulV3 9 64,512;512,256;256 INT8;INT8;INT64 ND;ND;ND 64,256 BF16 => output 0 is recorded as DT_BF16, the kernel gives FLOAT16, INT8",
    "QuantBatchMatmulV3 9 1,2304;4840,144,16,32;154880 INT8;INT8;FLOAT ND;NZ;ND 1,154880 BF16 => `N < 65536` does not hold",
    "AscendQuantV2 9 64,512;63 BF16;BF16 ND;ND 64,512 INT8 => `S == D or S == 1` does not hold",
    "AscendQuantV2 9 64,512;512 BF16;BF16 ND;ND 64,512 INT32 => run as the kernel Quantize",
    "DynamicQuant 9 512 BF16 ND 512;1 INT8;FLOAT => rows: output 1 is [1], the inputs give []",
    "GroupedMatmul 9 64,512;8,512,256;;;;;;4 BF16;BF16;-;-;-;-;-;INT64 ND;ND;-;-;-;-;-;ND 64,256 BF16 => input 7: E is both 8 and 4",
    "GroupedMatmul 9 64,512;8,512,256 BF16;BF16 ND;ND 64,256 BF16 => recorded input slots: 2, the entry of GroupedMatmul reads 8",
    "GroupedMatmulSwigluQuant 9 64,512;8,512,255;8,255;64;8 INT8;INT8;FLOAT;FLOAT;INT64 ND;ND;ND;ND;ND 64,127;64 INT8;FLOAT => 255 is not a multiple of 2",
    "MoeTokenPermute 9 64,512;64,8 BF16;INT32 ND;ND 1024,512;512 BF16;INT32 => several experts: output 0 is [1024,512], the inputs give [512,512]",
    "MoeTokenUnpermute 9 512,256;512;100,8 BF16;INT32;BF16 ND;ND;ND 100,256 BF16 => `R == T * K` does not hold",
    "MoeGatingTopK 9 64,4 BF16 ND 64,8;64,8;64,4 BF16;INT32;FLOAT => `K <= E` does not hold",
];

/// A record of `kernel_details.csv`.
fn record(case: &str) -> String {
    let cells: Vec<&str> = case.split(' ').collect();
    let [kernel, duration, shapes, types, formats, output_shapes, output_types] = cells.as_slice() else {
        panic!("{case}");
    };
    let types = types.replace('-', "DT_UNDEFINED");
    let formats = formats.replace("NZ", "FRACTAL_NZ").replace('-', "NULL");
    let output_formats = vec!["ND"; output_shapes.split(';').count()].join(";");
    format!(
        "{kernel},{duration},\"\"\"{shapes}\"\"\",{types},{formats},\"\"\"{output_shapes}\"\"\",{output_types},{output_formats}"
    )
}

fn database(context: &Context, cases: &[&str]) {
    let records: Vec<String> = cases.iter().map(|case| record(case)).collect();
    context.ingest_records("db", &records.iter().map(String::as_str).collect::<Vec<_>>(), &[]);
}

fn kernels() -> Vec<&'static str> {
    let mut kernels: Vec<&str> = CASES.iter().filter_map(|case| case.split(' ').next()).collect();
    kernels.dedup();
    kernels
}

#[test]
fn real_shapes_are_replayed_on_four_devices() {
    let context = Context::new();
    database(&context, &CASES);
    let ran = context.done("run --db db --host rehearsal --devices 0-3");
    let all = ran.stdout.lines().find(|line| line.trim_start().starts_with("all ")).unwrap_or_default();
    let count = CASES.len().to_string();
    // Counts, and behind them the intervals.
    let words: Vec<&str> = all.split_whitespace().take(4).collect();
    // Large products and those of MatMulV3 that are small run as the other kernel.
    assert_eq!((words[0], words[1]), ("all", count.as_str()), "{}", ran.stdout);
    let counts: usize = words[2..].iter().map(|word| word.parse::<usize>().expect("a count")).sum();
    assert_eq!((words.len(), counts), (4, CASES.len()), "ok and ran_as_other: {}", ran.stdout);
}

#[test]
fn manifest_has_the_fills_of_the_entry() {
    let context = Context::new();
    database(&context, &CASES);
    for (kernel, argument, filled) in [
        ("MoeTokenUnpermute", "sorted_indices", [r#""fill": "distinct""#, r#""below": 2048"#]),
        ("MoeTokenPermute", "indices", [r#""fill": "experts""#, r#""below": 256"#]),
        ("GroupedMatmul", "group_list", [r#""fill": "cumulative""#, r#""total": 6656"#]),
        ("GroupedMatmulSwigluQuant", "group_list", [r#""fill": "cumulative""#, r#""total": 512"#]),
        ("QuantBatchMatmulV3", "pertoken_scale", [r#""fill": "scales""#, r#""dtype": "float32""#]),
    ] {
        let manifest = context.run(&["render", kernel, "--db", "db", "--manifest"]).stdout;
        let manifest: serde_json::Value = serde_json::from_str(&manifest).expect("JSON");
        let cases = manifest["cases"].list();
        let given = cases.iter().flat_map(|case| case["arguments"].list());
        let found = given.filter(|given| given["name"] == argument).any(|given| {
            let text = serde_json::to_string(&given["tensor"]).expect("JSON").replace("\":", "\": ");
            filled.iter().all(|wanted| text.contains(wanted))
        });
        assert!(found, "{kernel} {argument}: {manifest}");
    }
}

#[test]
fn case_outside_the_rule_is_rejected_with_reason() {
    let context = Context::new();
    let wrong = WRONG.map(|wrong| wrong.split_once(" => ").expect("a case and a reason"));
    database(&context, &wrong.map(|(case, _)| case));
    let (refused, _) = planned(&context);
    for (case, text) in wrong {
        let is_it = |[kernel, _, reason]: &[String; 3]| {
            case.split(' ').next() == Some(kernel) && reason.contains(text)
        };
        assert!(refused.iter().any(is_it), "{case} {text}: {refused:#?}");
    }
}

#[test]
fn the_vendors_code_accepts_every_call() {
    let Some(python) = vendor_python() else { return };
    let context = Context::new();
    database(&context, &CASES);
    for (kernel, judged) in vendor::check_kernels(&python, &context, &kernels()) {
        let count = CASES.iter().filter(|case| case.split(' ').next() == Some(kernel)).count();
        assert_eq!(judged.accepted(), count, "{kernel}: {:?}", judged.errors);
    }
}
