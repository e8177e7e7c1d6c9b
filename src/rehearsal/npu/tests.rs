//! The pretend NPU through its lines: what it records of right calls, what it says of wrong ones.

use serde_json::{Value, json};

use super::{ApiSession, LoggedLaunch, TaskEngine};
use crate::{
    domain::{CaseId, DataKind, Nanos},
    rehearsal::{HostConfig, NoiseModel, faults::ActiveFaults},
    render::{Manifest, ManifestArgument, ManifestCase, SentinelLengths},
};

const START: Nanos = Nanos(1_764_246_877_073_569_650);

fn session(kernels: &[&str]) -> ApiSession {
    let case = |(ordinal, kernel): (u32, &&str)| ManifestCase {
        ordinal,
        case: CaseId::from_stored("0"),
        seed: 1,
        kernel: (*kernel).to_owned(),
        shapes: String::new(),
        reading: String::new(),
        arguments: if *kernel == "DispatchFFNCombine" {
            vec![ManifestArgument { process_group: Some(4), ..ManifestArgument::default() }]
        } else {
            Vec::new()
        },
        outputs: Vec::new(),
    };
    let manifest = Manifest {
        run: "r".to_owned(),
        collection: 0,
        kind: DataKind::Rehearsal,
        device: 0,
        gang: Vec::new(),
        seed: 0,
        warm_up: 1,
        measured: 1,
        expert_skew: 0.0,
        sentinels: SentinelLengths::default(),
        cases: (0..).zip(kernels).map(case).collect(),
    };
    let config = HostConfig { model: NoiseModel::Steady, devices: 2, ..HostConfig::default() };
    let mut session =
        ApiSession::new(&config, Some(&manifest), START, ActiveFaults::new(&config, None, Some(&manifest)))
            .expect("the built-in catalogue");
    call(&mut session, "torch.npu.set_device", json!([0]), json!({})).expect("a device");
    session
}

/// What Python would get: a value, or the exception's type and message.
fn call(session: &mut ApiSession, api: &str, args: Value, kwargs: Value) -> Result<Value, (String, String)> {
    let line = Value::from_iter([("call", Value::from(api)), ("args", args), ("kwargs", kwargs)]).to_string();
    let answer: Value = serde_json::from_str(&session.answer(&line).0).expect("a line of JSON");
    let text = |key: &str| answer["error"][key].as_str().map(str::to_owned);
    match (text("type"), text("message")) {
        (Some(class), Some(message)) => Err((class, message)),
        _ => Ok(answer["value"].clone()),
    }
}

fn made(session: &mut ApiSession, api: &str, args: Value, dtype: &str) -> Value {
    let kwargs = json!({ "dtype": { "dtype": dtype }, "device": "npu:0" });
    let value = call(session, api, args, kwargs).expect("a tensor");
    json!({ "tensor": value["tensor"]["handle"] })
}

fn random(session: &mut ApiSession, shape: &[u64], dtype: &str) -> Value {
    made(session, "torch.randn", json!([shape]), dtype)
}

fn transposed(session: &mut ApiSession, tensor: &Value) -> Value {
    let value = call(session, "torch.Tensor.transpose", json!([tensor, -1, -2]), json!({})).expect("a view");
    json!({ "tensor": value["tensor"]["handle"] })
}

/// Calls, and gives the launches that this call alone made, as `kernel inputs -> outputs`.
fn launched(session: &mut ApiSession, api: &str, args: Value, kwargs: Value) -> Vec<String> {
    session.take_launches();
    call(session, api, args, kwargs).unwrap_or_else(|(class, message)| panic!("{class}: {message}"));
    session.take_launches().iter().map(shown).collect()
}

fn shown(launch: &LoggedLaunch) -> String {
    let side = |tensors: &[crate::domain::Tensor]| {
        tensors.iter().map(|t| format!("{t}{}", t.format)).collect::<Vec<_>>().join(" ")
    };
    let operation = &launch.operation;
    let inputs: Vec<crate::domain::Tensor> = operation.inputs.iter().flatten().cloned().collect();
    format!("{} {} -> {}", operation.kernel, side(&inputs), side(&operation.outputs))
}

fn refused(session: &mut ApiSession, api: &str, args: Value, kwargs: Value) -> (String, String) {
    session.take_launches();
    let error = call(session, api, args, kwargs).expect_err("must be refused");
    assert_eq!(session.take_launches(), Vec::new(), "a refused call leaves no record");
    error
}

#[test]
fn right_calls_of_every_kernel_are_recorded_as_a_profiler_would() {
    let none = || json!({});
    let s = &mut session(&[]);
    let x = random(s, &[4, 1, 8], "bfloat16");
    let y = random(s, &[8], "bfloat16");
    let found = launched(s, "torch.add", json!([x, y]), none());
    assert_eq!(found, ["Add DT_BF16[4,1,8]NCL DT_BF16[8]ND -> DT_BF16[4,1,8]ND"]);
    let single = random(s, &[4, 1, 8], "float32");
    let found = launched(s, "torch.mul", json!([single, 1.5]), none());
    assert_eq!(found, ["Mul FLOAT[4,1,8]NCL FLOAT[]ND -> FLOAT[4,1,8]ND"]);
    let found = launched(s, "torch.mul", json!([x, 1.5]), none());
    assert_eq!(found, ["Muls DT_BF16[4,1,8]NCL -> DT_BF16[4,1,8]ND"]);
    let found = launched(s, "torch_npu.npu_swiglu", json!([x]), json!({ "dim": -1 }));
    assert_eq!(found, ["SwiGlu DT_BF16[4,1,8]NCL -> DT_BF16[4,1,4]ND"]);
    let gamma = made(s, "torch.ones", json!([[8]]), "float32");
    let found = launched(s, "torch_npu.npu_rms_norm", json!([x, gamma]), none());
    assert_eq!(found, ["RmsNorm DT_BF16[4,1,8]NCL FLOAT[8]ND -> DT_BF16[4,1,8]ND FLOAT[4,1,1]ND"]);
    let found = launched(s, "torch_npu.npu_slice", json!([x, [0, 0, 0], [2, 1, 8]]), none());
    assert_eq!(found, ["Slice DT_BF16[4,1,8]NCL INT64[3]ND INT64[3]ND -> DT_BF16[2,1,8]ND"]);
    let found = launched(s, "torch.sort", json!([x]), json!({ "dim": -1 }));
    assert_eq!(found.len(), 2, "a Cast stands beside it: {found:?}");
    assert_eq!(found[0], "Sort DT_BF16[4,1,8]NCL -> DT_BF16[4,1,8]ND INT32[4,1,8]ND");
    assert_eq!(found[1], "Cast INT32[4,1,8]ND -> INT64[4,1,8]ND");
    let target = made(s, "torch.empty", json!([[4, 1, 8]]), "bfloat16");
    let found = launched(s, "torch.Tensor.copy_", json!([target, x]), none());
    assert_eq!(found, ["TensorMove DT_BF16[4,1,8]NCL -> DT_BF16[4,1,8]ND"]);
    // What was written can be read.
    launched(s, "torch.add", json!([target, y]), none());
}

#[test]
fn embeddings_read_the_whole_table() {
    let s = &mut session(&[]);
    let api = "torch.embedding";
    let table = random(s, &[100, 16], "float16");
    let indices = made(s, "torch.randint", json!([0, 100, [3, 2]]), "int64");
    let found = launched(s, api, json!([table, indices]), json!({}));
    assert_eq!(found, ["GatherV2 FLOAT16[100,16]ND INT64[3,2]ND INT64[1]ND -> FLOAT16[3,2,16]ND"]);
    let beyond = made(s, "torch.randint", json!([0, 101, [3, 2]]), "int64");
    let (class, message) = refused(s, api, json!([table, beyond]), json!({}));
    assert_eq!(class, "RuntimeError");
    assert!(message.contains("`indices` must lie in [0, 100), its values lie in [0, 100]"), "{message}");
    let unknown = call(s, "torch.neg", json!([indices]), json!({})).expect("whole numbers");
    let unknown = json!({ "tensor": unknown["tensor"]["handle"] });
    let (_, message) = refused(s, api, json!([table, unknown]), json!({}));
    assert!(message.contains("not known"), "{message}");
}

#[test]
fn matrix_products_follow_what_lies_in_memory_and_the_case_in_hand() {
    let s = &mut session(&["MatMulV3", "MatMulV2"]);
    let a = random(s, &[16, 64], "bfloat16");
    let b = random(s, &[32, 64], "bfloat16");
    let b = transposed(s, &b);
    let sentinels: Vec<Value> = (2..=5).map(|n| made(s, "torch.ones", json!([[n]]), "int32")).collect();
    let kernel = |s: &mut ApiSession| launched(s, "torch.mm", json!([a, b]), json!({})).remove(0);
    let shapes = "DT_BF16[16,64]ND DT_BF16[32,64]ND -> DT_BF16[16,32]ND";
    assert_eq!(kernel(s), format!("MatMulCommon {shapes}"), "outside of cases the first entry is played");
    for (sentinel, expected) in sentinels.iter().zip(["MatMulV3", "MatMulCommon", "MatMulV2", "MatMulCommon"])
    {
        launched(s, "torch.neg", json!([sentinel]), json!({}));
        assert_eq!(kernel(s), format!("{expected} {shapes}"));
    }
}

#[test]
fn wrong_calls_are_refused_and_say_why() {
    let s = &mut session(&[]);
    let x = random(s, &[64, 7168], "bfloat16");
    let wrong_k = random(s, &[2048, 7168], "bfloat16");
    let odd = random(s, &[4, 7], "bfloat16");
    let gamma = made(s, "torch.ones", json!([[64]]), "bfloat16");
    let whole = made(s, "torch.randint", json!([-8, 8, [64, 7168]]), "int8");
    let blank = made(s, "torch.empty", json!([[64, 7168]]), "bfloat16");
    let small = made(s, "torch.empty", json!([[64, 7]]), "bfloat16");
    let view = transposed(s, &x);
    let cpu = call(s, "torch.randn", json!([[4, 8]]), json!({})).expect("a tensor");
    let cpu = json!({ "tensor": cpu["tensor"]["handle"] });
    let none = || json!({});
    let cases = [
        ("torch.mm", json!([x, wrong_k]), none(), "RuntimeError", "K is both 7168 and 2048"),
        ("torch.mm", json!([view, x]), none(), "", ""),
        ("torch.mm", json!([view, wrong_k]), none(), "RuntimeError", "K is both 64 and 2048"),
        (
            "torch.mm",
            json!([x, 2.0]),
            none(),
            "TypeError",
            "argument 'mat2' (position 2) must be Tensor, not float",
        ),
        ("torch.mm", json!([x]), none(), "TypeError", "\"mat2\""),
        ("torch_npu.npu_rms_norm", json!([x, gamma]), none(), "RuntimeError", "D is both 7168 and 64"),
        (
            "torch_npu.npu_rms_norm",
            json!([x, gamma]),
            json!({"eps": 1e-5}),
            "TypeError",
            "unexpected keyword argument 'eps'",
        ),
        ("torch_npu.npu_swiglu", json!([odd]), none(), "RuntimeError", "7 is not a multiple of 2"),
        ("torch_npu.npu_swiglu", json!([x]), json!({"dim": 0}), "RuntimeError", "dim=0"),
        (
            "torch_npu.npu_swiglu",
            json!([view]),
            none(),
            "RuntimeError",
            "must be contiguous, it is a transposed view",
        ),
        ("torch_npu.npu_swiglu", json!([blank]), none(), "RuntimeError", "uninitialised input `input`"),
        (
            "torch_npu.npu_swiglu",
            json!([whole]),
            none(),
            "RuntimeError",
            "is INT8, the kernel SwiGlu takes FLOAT",
        ),
        ("torch.add", json!([x, gamma]), none(), "RuntimeError", "fit no form of Add"),
        ("torch.add", json!([x, cpu]), none(), "RuntimeError", "on the same device"),
        ("torch.add", json!([cpu, cpu]), none(), "RuntimeError", "no tensor on an NPU"),
        ("torch.mul", json!([whole, 1.5]), none(), "RuntimeError", "gives another type"),
        ("torch.mul", json!([2.0, x]), none(), "TypeError", "argument 'self' (position 1)"),
        ("torch_npu.npu_slice", json!([x, [0, 0], [64, 7169]]), none(), "RuntimeError", "all_le(Y, X)"),
        (
            "torch_npu.npu_slice",
            json!([x, [1, 0], [63, 7168]]),
            none(),
            "RuntimeError",
            "`offsets` is [1,0], the entry passes [0,0]",
        ),
        ("torch.Tensor.copy_", json!([small, x]), none(), "RuntimeError", "`self` is DT_BF16[64,7]"),
        (
            "torch_npu.npu_nothing",
            json!([x]),
            none(),
            "AttributeError",
            "module 'torch_npu' has no attribute 'npu_nothing'",
        ),
    ];
    for (api, args, kwargs, class, part) in cases {
        if class.is_empty() {
            launched(s, api, args, kwargs);
            continue;
        }
        let (found, message) = refused(s, api, args, kwargs);
        assert!(
            found == class && message.contains(part),
            "{api}: {found}: {message}, expected {class}: {part}"
        );
    }
}

#[test]
fn helpers_are_recorded_as_on_a_device() {
    let s = &mut session(&[]);
    let device =
        json!({ "device": "npu:0", "dtype": { "dtype": "bfloat16" }, "generator": { "generator": "npu:0" } });
    let found = launched(s, "torch.randn", json!([[8, 8]]), device);
    assert_eq!(found, ["DSARandomNormal  -> FLOAT[8,8]ND", "Cast FLOAT[8,8]ND -> DT_BF16[8,8]ND"]);
    let single = random(s, &[8], "float32");
    assert!(
        launched(s, "torch.Tensor.mul_", json!([single, 0.5]), json!({}))[0]
            .starts_with("Mul FLOAT[8]ND FLOAT[]ND")
    );
    let half = random(s, &[8], "float16");
    assert!(
        launched(s, "torch.Tensor.mul_", json!([half, 0.5]), json!({}))[0]
            .starts_with("Muls FLOAT16[8]ND ->")
    );
    let on_device = || json!({ "device": "npu:0" });
    assert_eq!(
        launched(s, "torch.arange", json!([5]), on_device())[0],
        "Range DOUBLE[]ND DOUBLE[]ND DOUBLE[]ND -> INT64[5]ND"
    );
    assert_eq!(launched(s, "torch.empty", json!([[5]]), on_device()), Vec::<String>::new());
    assert_eq!(launched(s, "torch.tensor", json!([[1, 2]]), on_device()), Vec::<String>::new());
    s.take_launches();
    random(s, &[8], "float16");
    let tasks: Vec<TaskEngine> = s.take_launches().iter().map(|launch| launch.operation.task).collect();
    assert_eq!(tasks, [TaskEngine::Random, TaskEngine::Vector]);
    let wrong_place = json!({ "device": "npu:0", "generator": { "generator": "cpu" } });
    assert!(refused(s, "torch.randn", json!([[8]]), wrong_place).1.contains("generator"));
    let unsigned = json!({ "device": "npu:0", "dtype": { "dtype": "uint8" } });
    assert!(refused(s, "torch.randint", json!([-8, 8, [4]]), unsigned).1.contains("out of bounds"));
}

#[test]
fn devices_and_memory_have_bounds() {
    let s = &mut session(&[]);
    let (class, message) = refused(s, "torch.npu.set_device", json!([2]), json!({}));
    assert!(class == "RuntimeError" && message.contains("107001"), "{message}");
    let large = json!({ "device": "npu:0", "dtype": { "dtype": "bfloat16" } });
    // 40 GiB fit once, and again when the first are gone.
    let shape = json!([[20_u64 << 30]]);
    let first = call(s, "torch.empty", shape.clone(), large.clone()).expect("fits");
    let (class, message) = refused(s, "torch.empty", shape.clone(), large.clone());
    assert_eq!(class, "OutOfMemoryError");
    assert!(message.starts_with("NPU out of memory. Tried to allocate 40.00 GiB"), "{message}");
    let freed = first["tensor"]["handle"].clone();
    let line = json!({ "call": "torch.empty", "args": shape, "kwargs": large, "freed": [freed] }).to_string();
    assert!(s.answer(&line).0.contains("tensor"));
}

#[test]
fn results_that_find_no_memory_take_none() {
    let s = &mut session(&[]);
    let place = json!({ "device": "npu:0", "dtype": { "dtype": "bfloat16" } });
    call(s, "torch.empty", json!([[15_u64 << 30]]), place).expect("30 of 64 GiB");
    // 16 GiB in; 16 GiB of values and 32 GiB of positions as Python sees them do not fit.
    let x = random(s, &[8 << 30], "float16");
    let before = refused(s, "torch.sort", json!([x]), json!({})).1;
    assert_eq!(refused(s, "torch.sort", json!([x]), json!({})).1, before);
}

#[test]
fn the_clock_runs_on_and_steady_durations_repeat_in_every_bracket() {
    let s = &mut session(&["SwiGlu", "SwiGlu"]);
    let x = random(s, &[512, 8192], "bfloat16");
    let sentinels: Vec<Value> = (2..=5).map(|n| made(s, "torch.ones", json!([[n]]), "int32")).collect();
    s.take_launches();
    for bracket in sentinels.chunks(2) {
        call(s, "torch.neg", json!([bracket[0]]), json!({})).expect("a sentinel");
        for _ in 0..5 {
            call(s, "torch_npu.npu_swiglu", json!([x]), json!({})).expect("a launch");
        }
        call(s, "torch.neg", json!([bracket[1]]), json!({})).expect("a sentinel");
    }
    let launches = s.take_launches();
    assert!(launches[0].start > START);
    assert!(launches.windows(2).all(|pair| pair[1].start.0 >= pair[0].start.0 + pair[0].duration.0 + 4_000));
    assert!(launches.iter().all(|launch| launch.start.0 % 20 == 0));
    let durations = |from: usize| launches[from..from + 5].iter().map(|l| l.duration).collect::<Vec<_>>();
    assert_eq!(durations(1), durations(8));
    assert!(durations(1).iter().any(|duration| *duration != durations(1)[0]));
}

/// A call of DispatchFFNCombine: so many tokens of so many features, 8 of so many experts of this rank each, named
/// below a bound.
fn dispatched(
    session: &mut ApiSession,
    (tokens, features, experts): (u64, u64, u64),
    bound: u64,
    ranks: &str,
) -> Result<Value, (String, String)> {
    let x = random(session, &[tokens, features], "bfloat16");
    let first = random(session, &[experts, features, 64], "bfloat16");
    let second = random(session, &[experts, 32, features], "bfloat16");
    let named = made(session, "torch.randint", json!([0, bound, [tokens, 8]]), "int32");
    let scale = made(session, "torch.ones", json!([[1]]), "float32");
    let shares = made(session, "torch.ones", json!([[tokens, 8]]), "float32");
    let out = made(session, "torch.empty", json!([[tokens, features]]), "bfloat16");
    let counts = made(session, "torch.zeros", json!([[1, experts]]), "int32");
    let most = (tokens * 8).max(65536);
    let args =
        json!([x, [first], [second], named, [scale.clone()], [scale], shares, ranks, most, out, counts]);
    call(session, "torch.ops._C_ascend.dispatch_ffn_combine", args, json!({}))
}

#[test]
fn a_gang_is_judged_as_one() {
    const TWO: &str = "rehearsal group of 2 ranks";
    let first = session(&[]);
    let said = |size, bound, ranks: &str| {
        let mut alone = session(&[]);
        dispatched(&mut alone, size, bound, ranks).expect_err("must be refused").1
    };
    // 16 experts on each of 2 ranks are named from 0 to 31.
    let mut one = first.clone();
    dispatched(&mut one, (64, 128, 16), 32, TWO).expect("it is right");
    let beyond = said((64, 128, 16), 33, TWO);
    assert!(beyond.contains("`expert_idx` must lie in [0, 32), its values lie in [0, 32]"), "{beyond}");
    let many = said((64, 128, 18), 36, TWO);
    assert!(many.contains("`E <= 17` does not hold"), "{many}");
    let long = said((8192, 1024, 16), 32, TWO);
    assert!(long.contains("T * H * K <= 60817408"), "{long}");
    let stranger = said((64, 128, 16), 32, "group");
    assert!(stranger.contains("`group` is not the name of a group"), "{stranger}");
    // Another rank must make the same call.
    let mut other = first.clone();
    let differs = dispatched(&mut other, (32, 128, 16), 32, TWO).expect_err("fewer tokens").1;
    assert!(differs.contains("different kernels: DispatchFFNCombine of DT_BF16[32,128]"), "{differs}");
    let mut same = first.clone();
    dispatched(&mut same, (64, 128, 16), 32, TWO).expect("it is the same");
    // What one says at the store, the others hear.
    let set = json!(["key", "value"]);
    call(&mut one, "torch.distributed.store_set", set, json!({})).expect("it is kept");
    let heard = call(&mut other, "torch.distributed.store_get", json!(["key"]), json!({}));
    assert_eq!(heard.expect("an answer"), "value");
    let silence = call(&mut other, "torch.distributed.store_get", json!(["other"]), json!({}));
    assert_eq!(silence.expect("an answer"), Value::Null);
}

#[test]
fn a_group_has_as_many_ranks_as_the_case_says() {
    let mut rank = session(&["DispatchFFNCombine"]);
    let vector = made(&mut rank, "torch.ones", json!([[2]]), "int32");
    call(&mut rank, "torch.neg", json!([vector]), json!({})).expect("a sentinel");
    let fewer = dispatched(&mut rank, (64, 128, 16), 32, "rehearsal group of 2 ranks");
    let (_, fewer) = fewer.expect_err("the case is of 4");
    assert!(fewer.contains("a group of 2 ranks, the case is of 4"), "{fewer}");
}
