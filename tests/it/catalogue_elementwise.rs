//! The element-wise, reducing and moving kernels of the catalogue: what they accept runs on the rehearsal host and
//! is accepted by the vendor's own code, and what is known to be wrong is refused by the catalogue's own rules.

use serde_json::Value;

use crate::catalogue_cases::{
    CaseText, assert_accepted_by_vendor, assert_measured, assert_refused, run_cases,
};

/// The vendor has no Meta kernel for what these call.
const WITHOUT_META: [&str; 3] = ["AsStrided", "BroadcastTo", "Slice"];

/// Kernel, input shapes and types, output shape and type. Those of the first rows of a kernel are from real
/// profiles where there are some.
const GOOD: &[CaseText<'static>] = &[
    ["ArgMaxV2", "64,151936;", "DT_BF16;INT64", "64", "INT32"],
    ["ArgMaxV2", "8,32000", "FLOAT", "8", "INT32"],
    ["ArgMaxV2", "4,16,128;", "FLOAT16;INT64", "4,1,128", "INT32"],
    ["ArgMaxV2", "4096;", "INT32;INT64", "", "INT32"],
    ["Cast", "4096,1,1,128", "FLOAT", "4096,1,1,128", "DT_BF16"],
    ["Cast", "1024", "FLOAT", "1024", "DT_BF16"],
    ["Cast", "1,4096,1024", "DT_BF16", "1,4096,1024", "FLOAT"],
    ["Cast", "16,4096", "INT32", "16,4096", "INT64"],
    ["Cast", "16,4096", "BOOL", "16,4096", "FLOAT"],
    ["Cast", "1024", "FLOAT", "1024", "INT64"],
    ["Muls", "1,4096,1024", "DT_BF16", "1,4096,1024", "DT_BF16"],
    ["Muls", "4096", "FLOAT16", "4096", "FLOAT16"],
    ["Muls", "2,8,64,64", "FLOAT16", "2,8,64,64", "FLOAT16"],
    ["Sub", ";", "INT64;INT64", "", "INT64"],
    ["Sub", "512,1024;512,1024", "DT_BF16;DT_BF16", "512,1024", "DT_BF16"],
    ["Sub", "512,1024;1024", "FLOAT16;FLOAT16", "512,1024", "FLOAT16"],
    ["Sub", "4096;", "FLOAT;FLOAT", "4096", "FLOAT"],
    ["Sub", "16,1;1,32", "INT32;INT32", "16,32", "INT32"],
    ["RealDiv", ";", "FLOAT;FLOAT", "", "FLOAT"],
    ["RealDiv", "512,1024;512,1", "DT_BF16;DT_BF16", "512,1024", "DT_BF16"],
    ["RealDiv", "2,3,4,5;5", "FLOAT16;FLOAT16", "2,3,4,5", "FLOAT16"],
    ["Neg", "512,1024", "DT_BF16", "512,1024", "DT_BF16"],
    ["Neg", "4096", "FLOAT", "4096", "FLOAT"],
    ["Neg", "2,3,4", "INT64", "2,3,4", "INT64"],
    ["Neg", "128", "FLOAT16", "128", "FLOAT16"],
    ["Equal", ";", "FLOAT;FLOAT", "", "BOOL"],
    ["Equal", "5,32;5,32", "INT64;INT64", "5,32", "BOOL"],
    ["Equal", "5,32;1", "INT32;INT32", "5,32", "BOOL"],
    ["Equal", "5,32;5,32", "DT_BF16;DT_BF16", "5,32", "BOOL"],
    ["Less", "4096;", "FLOAT;FLOAT", "4096", "BOOL"],
    ["Less", "64,1;1,128", "INT64;INT64", "64,128", "BOOL"],
    ["Less", "7,9;7,9", "FLOAT16;FLOAT16", "7,9", "BOOL"],
    ["Greater", "4;", "FLOAT;FLOAT", "4", "BOOL"],
    ["Greater", "1,1024;1,1", "INT64;INT64", "1,1024", "BOOL"],
    ["Greater", "2,2,2,2;2", "DT_BF16;DT_BF16", "2,2,2,2", "BOOL"],
    ["NotEqual", ";", "FLOAT;FLOAT", "", "BOOL"],
    ["NotEqual", "512,32;512,32", "INT32;INT32", "512,32", "BOOL"],
    ["NotEqual", "512;512", "FLOAT16;FLOAT16", "512", "BOOL"],
    ["GreaterEqual", "4;", "FLOAT;FLOAT", "4", "BOOL"],
    ["GreaterEqual", "64,1;1,128", "INT64;INT64", "64,128", "BOOL"],
    ["GreaterEqual", "2,3,4;2,3,4", "DT_BF16;DT_BF16", "2,3,4", "BOOL"],
    ["FloorDiv", "512,32;512,32", "INT32;INT32", "512,32", "INT32"],
    ["FloorDiv", "512,32;32", "FLOAT;FLOAT", "512,32", "FLOAT"],
    ["FloorDiv", "77;77", "DT_BF16;DT_BF16", "77", "DT_BF16"],
    ["FloorMod", "512,32;1", "INT64;INT64", "512,32", "INT64"],
    ["FloorMod", "2,8,16;2,1,16", "FLOAT16;FLOAT16", "2,8,16", "FLOAT16"],
    ["FloorMod", "77;77", "DT_BF16;DT_BF16", "77", "DT_BF16"],
    ["Log", "64,151936", "FLOAT", "64,151936", "FLOAT"],
    ["Log", "2,3,4", "FLOAT16", "2,3,4", "FLOAT16"],
    ["Log", "77", "DT_BF16", "77", "DT_BF16"],
    ["Pack", "16,64;16,64", "DT_BF16;DT_BF16", "2,16,64", "DT_BF16"],
    ["Pack", "16,64;16,64;16,64", "FLOAT;FLOAT;FLOAT", "16,64,3", "FLOAT"],
    ["Pack", ";;;", "INT64;INT64;INT64;INT64", "4", "INT64"],
    ["LogicalAnd", "512,32;512,32", "BOOL;BOOL", "512,32", "BOOL"],
    ["LogicalAnd", "1,32;512,1", "BOOL;BOOL", "512,32", "BOOL"],
    ["LogicalAnd", "9;9", "BOOL;BOOL", "9", "BOOL"],
    ["LogicalNot", "512,32", "BOOL", "512,32", "BOOL"],
    ["LogicalNot", "9", "BOOL", "9", "BOOL"],
    ["LogicalNot", "2,3,4,5", "BOOL", "2,3,4,5", "BOOL"],
    ["ZerosLike", "4096,1,8,128", "DT_BF16", "4096,1,8,128", "DT_BF16"],
    ["ZerosLike", "4096,1,16,128", "DT_BF16", "4096,1,16,128", "DT_BF16"],
    ["ZerosLike", "4,24", "FLOAT", "4,24", "FLOAT"],
    ["Fill", "1;", "INT64;FLOAT", "1", "FLOAT"],
    ["Fill", "2;", "INT64;DT_BF16", "512,1024", "DT_BF16"],
    ["Fill", "3;1", "INT64;INT32", "2,3,4", "INT32"],
    ["Fill", "1;", "INT64;BOOL", "77", "BOOL"],
    ["BroadcastTo", "1,32;2", "INT64;INT64", "5,32", "INT64"],
    ["BroadcastTo", "1024;2", "DT_BF16;INT64", "64,1024", "DT_BF16"],
    ["BroadcastTo", "4,1,1,8;4", "FLOAT16;INT64", "4,16,2,8", "FLOAT16"],
    [
        "ConcatD",
        "4096,1,8,256;4096,1,8,128;4096,1,8,128",
        "DT_BF16;DT_BF16;DT_BF16",
        "4096,1,8,512",
        "DT_BF16",
    ],
    ["ConcatD", "4096,64;4096,64", "FLOAT;FLOAT", "4096,128", "FLOAT"],
    ["ConcatD", "10;20;30;40;50", "INT32;INT32;INT32;INT32;INT32", "150", "INT32"],
    ["Tile", "1,32;2", "INT64;INT64", "5,32", "INT64"],
    ["Tile", "8,16;2", "DT_BF16;INT64", "16,48", "DT_BF16"],
    ["Tile", "2,1,4;3", "FLOAT16;INT64", "2,3,4", "FLOAT16"],
    ["Cumsum", "64,151936;", "FLOAT;INT64", "64,151936", "FLOAT"],
    ["Cumsum", "4096;1", "INT32;INT64", "4096", "INT32"],
    ["Cumsum", "8,1024", "FLOAT16", "8,1024", "FLOAT16"],
    ["Cumsum", "2,3,1024;", "DT_BF16;INT64", "2,3,1024", "DT_BF16"],
    ["ReduceSum", "32,4096;1", "FLOAT;INT64", "1,4096", "FLOAT"],
    ["ReduceSum", "32,256,169;2", "FLOAT;INT64", "256", "FLOAT"],
    ["ReduceSum", "32;1", "FLOAT;INT64", "1", "FLOAT"],
    ["ReduceSum", "160;1", "DT_BF16;INT64", "", "DT_BF16"],
    ["ReduceSum", "64,1024;1", "FLOAT16;INT64", "64", "FLOAT16"],
    ["AsStrided", "64,128;2;2;1", "DT_BF16;INT64;INT64;INT64", "64,64", "DT_BF16"],
    ["AsStrided", "2,3,4;3;3;1", "FLOAT;INT64;INT64;INT64", "1,2,4", "FLOAT"],
    ["AsStrided", "4096;1;1;1", "INT32;INT64;INT64;INT64", "1024", "INT32"],
    ["SoftmaxV2", "64,151936", "FLOAT", "64,151936", "FLOAT"],
    ["SoftmaxV2", "2,8,128,128", "DT_BF16", "2,8,128,128", "DT_BF16"],
    ["SoftmaxV2", "1024", "FLOAT16", "1024", "FLOAT16"],
    ["MaskedFill", "64,1024;64,1024;", "FLOAT;BOOL;FLOAT", "64,1024", "FLOAT"],
    ["MaskedFill", "64,1024;64,1;1", "DT_BF16;BOOL;DT_BF16", "64,1024", "DT_BF16"],
    ["MaskedFill", "2,8,64,64;64,64", "FLOAT16;BOOL", "2,8,64,64", "FLOAT16"],
    ["MaskedFill", "77;77;", "INT64;BOOL;INT64", "77", "INT64"],
    ["PadV3", "60,512;4;", "DT_BF16;INT64;DT_BF16", "64,512", "DT_BF16"],
    ["PadV3", "6,7,8;6;1", "FLOAT;INT32;FLOAT", "6,9,16", "FLOAT"],
    ["PadV3", "100;2", "INT32;INT64", "128", "INT32"],
    ["Transpose", "32,256,1,6,6;5", "FLOAT;INT64", "32,1,6,6,256", "FLOAT"],
    ["Transpose", "32,1,6,6,256;5", "FLOAT;INT64", "32,256,1,6,6", "FLOAT"],
    ["Transpose", "32,5;2", "INT64;INT64", "5,32", "INT64"],
    ["Transpose", "8192,1,6,6;4", "FLOAT;INT64", "1,6,6,8192", "FLOAT"],
    ["Transpose", "128,128;2", "DT_BF16;INT64", "128,128", "DT_BF16"],
    ["Index", "4096,128;1;2;77", "DT_BF16;INT64;INT64;INT64", "77,128", "DT_BF16"],
    ["Index", "4096;1;1;77", "FLOAT;INT64;INT64;INT64", "77", "FLOAT"],
    ["Index", "100,64,8;2;2;33;33", "FLOAT16;INT64;INT64;INT64;INT64", "33,8", "FLOAT16"],
    ["Index", "163840,64;1;3;4,16", "DT_BF16;INT64;INT64;INT64", "4,16,64", "DT_BF16"],
    ["Index", "4096,128;1;7;1", "DT_BF16;INT64;INT64;INT64", "7,128", "DT_BF16"],
    ["MaskedFill", "1,128;1,128", "INT32;BOOL;INT32", "1,128", "INT32"],
    ["Slice", "32,256;2;2", "INT32;INT64;INT64", "32,8", "INT32"],
    ["Slice", "1,128;2;2;2;2", "INT32;INT64;INT64", "1,64", "INT32"],
    ["AsStrided", "8,4,16;3;3;", "DT_BF16;INT64;INT64;INT64", "8,2,16", "DT_BF16"],
    ["Mul", "64,128;", "FLOAT16;FLOAT16", "64,128", "FLOAT16"],
    ["GatherV2", "103424,1024;1,1;", "FLOAT16;INT64;INT64", "1,1,1024", "FLOAT16"],
    ["GatherV2", "3,2,4,16;5;1", "FLOAT16;INT64;INT64", "5,2,4,16", "FLOAT16"],
    ["LayerNormV3", "8,64;64;64", "FLOAT16;FLOAT16;FLOAT16", "8,64;8,1;8,1", "FLOAT16;FLOAT16;FLOAT16"],
    ["LayerNormV3", "8,64;64;64", "DT_BF16;FLOAT;FLOAT", "8,64;8,1;8,1", "DT_BF16;FLOAT;FLOAT"],
];

/// The same, and what the refusal says.
const WRONG: &[(CaseText<'static>, &str)] = &[
    (["Neg", "64", "INT32", "64", "INT32"], "takes FLOAT"),
    (["Sub", "4096;4096", "FLOAT;DT_BF16", "4096", "FLOAT"], "one type"),
    (["Sub", "64,128;64,127", "FLOAT;FLOAT", "64,128", "FLOAT"], "do not broadcast"),
    (["RealDiv", "64;64", "INT32;INT32", "64", "INT32"], "the kernel takes"),
    (["LogicalAnd", "64;64", "FLOAT;FLOAT", "64", "BOOL"], "takes BOOL"),
    (["Greater", "64;64", "FLOAT;FLOAT", "64", "FLOAT"], "recorded as FLOAT"),
    (["GreaterEqual", "64;64", "FLOAT;FLOAT", "64", "FLOAT"], "recorded as FLOAT"),
    (["FloorDiv", "64;63", "FLOAT;FLOAT", "64", "FLOAT"], "do not broadcast"),
    (["FloorDiv", "64;64", "BOOL;BOOL", "64", "BOOL"], "the kernel takes"),
    (["FloorMod", "64;64", "INT8;INT8", "64", "INT8"], "the kernel takes"),
    (["Log", "64", "INT32", "64", "INT32"], "takes FLOAT"),
    (["Pack", "64,32;64,31", "FLOAT;FLOAT", "2,64,32", "FLOAT"], "by stacking along no dimension"),
    (["Pack", "64,32;64,32", "FLOAT;FLOAT", "64,64", "FLOAT"], "by stacking along no dimension"),
    (["Cast", "64", "FLOAT", "64", "FLOAT"], "nothing would be launched"),
    (["Cast", "64", "FLOAT", "63", "DT_BF16"], "inputs give"),
    (["Transpose", "32,5;2", "FLOAT;INT64", "32,5", "FLOAT"], "no order"),
    (["Transpose", "32,5;3", "FLOAT;INT64", "5,32", "FLOAT"], "R == rank(X)"),
    (["ConcatD", "64,32;64,31", "FLOAT;FLOAT", "64,64", "FLOAT"], "by concatenation along no dimension"),
    (["ConcatD", "64,32;64,32", "FLOAT;FLOAT16", "64,64", "FLOAT"], "one type"),
    (["Tile", "8,16;2", "DT_BF16;INT64", "16,47", "DT_BF16"], "not a multiple"),
    (["Cumsum", "64,32;", "INT64;INT64", "64,32", "INT64"], "takes FLOAT"),
    (["ReduceSum", "32,4096;2", "FLOAT;INT64", "32", "FLOAT"], "of the input's dimensions"),
    (["ArgMaxV2", "64,1000;", "DT_BF16;INT64", "63", "INT32"], "of the input's dimensions"),
    (["ArgMaxV2", "64,1000;", "DT_BF16;INT64", "64", "INT64"], "recorded as INT64"),
    (["BroadcastTo", "3,32;2", "INT64;INT64", "5,32", "INT64"], "do not broadcast"),
    (["MaskedFill", "64,1;64,1024;", "FLOAT;BOOL;FLOAT", "64,1", "FLOAT"], "broadcast(X, M) == X"),
    (["MaskedFill", "64;64;", "FLOAT;FLOAT;FLOAT", "64", "FLOAT"], "takes BOOL"),
    (["PadV3", "64,512;4;", "DT_BF16;INT64;DT_BF16", "60,512", "DT_BF16"], "padded at the end"),
    (["PadV3", "64,512;3;", "DT_BF16;INT64;DT_BF16", "70,512", "DT_BF16"], "P == 2 * rank(X)"),
    (["Muls", "4096", "FLOAT", "4096", "FLOAT"], "takes FLOAT16"),
    (["SoftmaxV2", "64,32", "INT32", "64,32", "INT32"], "takes FLOAT"),
    (["Fill", "2;", "INT64;FLOAT", "64", "FLOAT"], "R == max(1, rank(Y))"),
    (["AsStrided", "64,32;2;2;1", "FLOAT;INT64;INT64;INT64", "64,33", "FLOAT"], "all_le(Y, X)"),
    (["Index", "4096,128;1;2;77", "DT_BF16;INT64;INT64;FLOAT", "77,128", "DT_BF16"], "takes INT32"),
    (["Index", "4096,128;1;2;77", "DT_BF16;INT64;INT64;INT64", "76,128", "DT_BF16"], "inputs give"),
    (["Index", "4096,128;1;7;1", "DT_BF16;INT64;INT64;INT64", "8,128", "DT_BF16"], "inputs give [7,128]"),
    (["Slice", "1,128;2;2;2;2", "INT32;INT64;INT64", "1,129", "INT32"], "all_le(Y, X)"),
    (["AsStrided", "8,4,16;3;3;", "DT_BF16;INT64;INT64;INT64", "8,5,16", "DT_BF16"], "all_le(Y, X)"),
    (["Mul", "64,128;63,128", "FLOAT16;FLOAT16", "64,128", "FLOAT16"], "do not broadcast"),
    (["GatherV2", "300,16;5;", "FLOAT16;INT64;INT64", "5,17", "FLOAT16"], "inputs give [5,16]"),
    (["GatherV2", "3,2,4,16;5;1", "FLOAT16;INT64;INT64", "5,2,3,16", "FLOAT16"], "inputs give [5,2,4,16]"),
    (
        ["LayerNormV3", "8,64;64;63", "FLOAT16;FLOAT16;FLOAT16", "8,64;8,1;8,1", "FLOAT16;FLOAT16;FLOAT16"],
        "D is both",
    ),
];

/// Forms that real profiles have and no call launches, with the reason.
const UNSUPPORTED: &[(CaseText<'static>, &str)] = &[
    (["Cast", "64,128", "FLOAT", "64,128", "DOUBLE"], "the conversion runs on an AI CPU"),
    (["Cast", "16,4096", "INT32", "16,4096", "UINT64"], "torch_npu has no tensors of this type"),
    (["Mul", "3,1,1,128;", "FLOAT;FLOAT", "3,1,1,128", "FLOAT16"], "a compiled graph fuses the conversion"),
    (
        ["GatherV2", "3,1,1,16;;1", "FLOAT16;INT64;INT64", "1,1,16", "FLOAT16"],
        "only a compiled graph launches it",
    ),
];

#[test]
fn every_accepted_call_runs() {
    let list: Vec<String> = [vec!["1,128"; 32].join(";"), vec!["FLOAT16"; 32].join(";")].to_vec();
    let long = ["ConcatD", list[0].as_str(), list[1].as_str(), "32,128", "FLOAT16"];
    assert_eq!(assert_measured(&[GOOD, &[long]].concat(), &["ok"]), 34);
}

#[test]
fn the_vendors_code_accepts_them() {
    assert_accepted_by_vendor(GOOD, &WITHOUT_META, "NotImplementedError");
}

#[test]
fn forms_that_no_call_launches_are_unsupported() {
    let context = run_cases(UNSUPPORTED.iter().map(|(case, _)| case));
    let plan = context.run(&["plan", "--db", "db", "--devices", "0", "--format", "json"]);
    for ([kernel, shapes, _, output, _], reason) in UNSUPPORTED {
        let found = plan.stdout.lines().any(|line| {
            let line: Value = serde_json::from_str(line).expect("JSON");
            line["kernel"] == *kernel
                && line["inputs"] == format!("{shapes} -> {output}")
                && line["verdict"] == "unsupported"
                && line["not_launched"].as_str().is_some_and(|why| why.contains(reason))
        });
        assert!(found, "{kernel} {shapes} {reason}: {}{}", plan.stdout, plan.stderr);
    }
}

#[test]
fn known_invalid_calls_are_not_launched() {
    let context = assert_refused(WRONG);
    // A contradiction is stated in the row; a form that the entry lacks does not change it.
    let verdicts = |kernel: &str| -> Vec<String> {
        let rows = context.rows("db", kernel);
        rows.iter().map(|row| row.get("MicroBench Verdict").cloned().unwrap_or_default()).collect()
    };
    assert_eq!(verdicts("BroadcastTo"), ["invalid_args"]);
    assert_eq!(verdicts("Log"), [""]);
}
