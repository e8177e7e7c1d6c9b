//! The simulated NPU through its protocol: the records of calls that equal the manifest, the errors of others.

use serde_json::{Value, json};

use super::{ApiSession, LoggedLaunch, TaskEngine, tensors::KnownValues};
use crate::{
    base::assets::AssetFiles,
    kernel::{
        Case, CaseAttributes, DataKind, Dtype, IdentifiedCase, KernelName, LogicalDeviceId, Nanos,
        ProfilerSettings, Slot, Tensor, TensorFormat,
        catalogue::Catalogue,
        render::{HostNumbers, Manifest, ManifestCase, PinnedEnvironment, SentinelLengths},
    },
    rehearsal::{HostConfig, NoiseModel, faults::ActiveFaults},
};

mod gang_calls;

const START: Nanos = Nanos(1_764_246_877_073_569_650);

/// Slots written as `DT_BF16[4,1,8] FLOAT[]`.
fn slots(text: &str) -> Vec<Slot> {
    let slot = |slot: &str| {
        let (slot, format) = slot.split_once(':').unwrap_or((slot, "ND"));
        let (dtype, dims) = slot.trim_end_matches(']').split_once('[').expect("a type and dimensions");
        let dims = dims.split(',').filter(|dim| !dim.is_empty()).map(|dim| dim.parse().expect("a number"));
        let dtype = Dtype::parse(dtype).expect("a type");
        let format = TensorFormat::parse(format).expect("a format");
        Some(Tensor { dims: dims.collect(), dtype, format })
    };
    text.split_whitespace().map(slot).collect()
}

/// A session in front of a manifest with these cases, each written as `kernel inputs -> outputs`, on groups of
/// two ranks.
fn session(cases: &[&str]) -> ApiSession {
    let catalogue = Catalogue::load(&AssetFiles::embedded()).expect("the built-in catalogue");
    let case = |(ordinal, text): (u32, &&str)| {
        let (kernel, sides) = text.split_once(' ').expect("a kernel and slots");
        let (inputs, outputs) = sides.split_once("->").expect("inputs and outputs");
        let mut attributes = CaseAttributes::default();
        if kernel == "DispatchFFNCombine" {
            attributes.set("EP Size", "2");
        }
        let kernel = KernelName::new(kernel).expect("a name");
        let case = Case { kernel, inputs: slots(inputs), outputs: slots(outputs), attributes };
        let entry = catalogue.entry(&case.kernel).expect("an entry");
        let call = entry.resolve_call(&case).unwrap_or_else(|error| panic!("{text}: {error}"));
        ManifestCase::new(ordinal, &IdentifiedCase::new(case), &call, 1)
    };
    let manifest = Manifest {
        run: "r".to_owned(),
        collection: 0,
        kind: DataKind::Rehearsal,
        device: LogicalDeviceId(0),
        gang: Vec::new(),
        hosts: Vec::new(),
        host: 0,
        host_numbers: HostNumbers::default(),
        seed: 0,
        warm_up: 1,
        measured: 1,
        flush_bytes: None,
        expert_skew: 0.0,
        profiler: ProfilerSettings::default(),
        environment: PinnedEnvironment::default(),
        sentinels: SentinelLengths::default(),
        controls: None,
        cases: (0..).zip(cases).map(case).collect(),
    };
    let config = HostConfig { model: NoiseModel::Steady, devices: 2, ..HostConfig::default() };
    let mut session =
        ApiSession::new(&config, Some(&manifest), START, ActiveFaults::new(&config, None, Some(&manifest)))
            .expect("the built-in catalogue");
    call(&mut session, "torch.npu.set_device", json!([0]), json!({})).expect("a device");
    session
}

/// Launches the opening sentinel of a case.
fn open(session: &mut ApiSession, ordinal: u32) {
    let length = SentinelLengths::default().opening(ordinal);
    let vector = made(session, "torch.ones", json!([[length]]), "int32");
    call(session, "torch.neg", json!([vector]), json!({})).expect("a sentinel");
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

/// Indices as the script makes them: on the host, then copied.
fn indices(session: &mut ApiSession, below: u64, shape: &[u64], dtype: &str) -> Value {
    let on_host = json!({ "dtype": { "dtype": dtype } });
    let value = call(session, "torch.randint", json!([0, below, shape]), on_host).expect("a tensor");
    let host = json!({ "tensor": value["tensor"]["handle"] });
    let value = call(session, "torch.Tensor.to", json!([host, "npu:0"]), json!({})).expect("a copy");
    json!({ "tensor": value["tensor"]["handle"] })
}

fn random(session: &mut ApiSession, shape: &[u64], dtype: &str) -> Value {
    made(session, "torch.randn", json!([shape]), dtype)
}

/// Weights in INT8 and FRACTAL_NZ.
fn blocked(session: &mut ApiSession, shape: &[u64]) -> Value {
    let plain = made(session, "torch.ones", json!([shape]), "int8");
    let value = call(session, "torch_npu.npu_format_cast", json!([plain, 29]), json!({})).expect("a copy");
    json!({ "tensor": value["tensor"]["handle"] })
}

fn transposed(session: &mut ApiSession, tensor: &Value) -> Value {
    let value = call(session, "torch.Tensor.transpose", json!([tensor, -1, -2]), json!({})).expect("a view");
    json!({ "tensor": value["tensor"]["handle"] })
}

/// Calls, and gives the launches that this call alone made, as `kernel inputs -> outputs`.
fn launched(session: &mut ApiSession, api: &str, args: Value, kwargs: Value) -> Vec<String> {
    session.log.take_launches();
    call(session, api, args, kwargs).unwrap_or_else(|(class, message)| panic!("{class}: {message}"));
    session.log.take_launches().iter().map(shown).collect()
}

fn shown(launch: &LoggedLaunch) -> String {
    let side =
        |tensors: &[Tensor]| tensors.iter().map(|t| format!("{t}{}", t.format)).collect::<Vec<_>>().join(" ");
    let operation = &launch.operation;
    let inputs: Vec<Tensor> = operation.inputs.iter().flatten().cloned().collect();
    format!("{} {} -> {}", operation.kernel, side(&inputs), side(&operation.outputs))
}

fn refused(session: &mut ApiSession, api: &str, args: Value, kwargs: Value) -> (String, String) {
    session.log.take_launches();
    let error = call(session, api, args, kwargs).expect_err("must be refused");
    assert_eq!(session.log.take_launches(), Vec::new(), "a refused call leaves no record");
    error
}

#[test]
fn calls_equal_to_the_manifest_are_recorded_as_by_the_profiler() {
    let none = || json!({});
    let cases = [
        "Add DT_BF16[4,1,8] DT_BF16[8] -> DT_BF16[4,1,8]",
        "Mul FLOAT[4,1,8] FLOAT[] -> FLOAT[4,1,8]",
        "Muls DT_BF16[4,1,8] -> DT_BF16[4,1,8]",
        "SwiGlu DT_BF16[4,1,8] -> DT_BF16[4,1,4]",
        "RmsNorm DT_BF16[4,1,8] FLOAT[8] -> DT_BF16[4,1,8] FLOAT[4,1,1]",
        "Slice DT_BF16[4,1,8] INT64[3] INT64[3] -> DT_BF16[2,1,8]",
        "Sort DT_BF16[4,1,8] -> DT_BF16[4,1,8] INT32[4,1,8]",
        "TensorMove DT_BF16[4,1,8] -> DT_BF16[4,1,8]",
        "GatherV2 FLOAT16[100,16] INT64[3,2] INT64[1] -> FLOAT16[3,2,16]",
    ];
    let s = &mut session(&cases);
    let x = random(s, &[4, 1, 8], "bfloat16");
    let y = random(s, &[8], "bfloat16");
    let single = random(s, &[4, 1, 8], "float32");
    let gamma = made(s, "torch.ones", json!([[8]]), "float32");
    let target = made(s, "torch.empty", json!([[4, 1, 8]]), "bfloat16");
    let table = random(s, &[100, 16], "float16");
    let indices = indices(s, 100, &[3, 2], "int64");
    let calls = [
        ("torch.add", json!([x, y]), none(), "Add DT_BF16[4,1,8]NCL DT_BF16[8]ND -> DT_BF16[4,1,8]ND"),
        ("torch.mul", json!([single, 1.5]), none(), "Mul FLOAT[4,1,8]NCL FLOAT[]ND -> FLOAT[4,1,8]ND"),
        ("torch.mul", json!([x, 1.5]), none(), "Muls DT_BF16[4,1,8]NCL -> DT_BF16[4,1,8]ND"),
        (
            "torch_npu.npu_swiglu",
            json!([x]),
            json!({ "dim": -1 }),
            "SwiGlu DT_BF16[4,1,8]NCL -> DT_BF16[4,1,4]ND",
        ),
        (
            "torch_npu.npu_rms_norm",
            json!([x, gamma]),
            none(),
            "RmsNorm DT_BF16[4,1,8]NCL FLOAT[8]ND -> DT_BF16[4,1,8]ND FLOAT[4,1,1]ND",
        ),
        (
            "torch_npu.npu_slice",
            json!([x, [0, 0, 0], [2, 1, 8]]),
            none(),
            "Slice DT_BF16[4,1,8]NCL INT64[3]ND INT64[3]ND -> DT_BF16[2,1,8]ND",
        ),
        (
            "torch.sort",
            json!([x]),
            json!({ "dim": -1 }),
            "Sort DT_BF16[4,1,8]NCL -> DT_BF16[4,1,8]ND INT32[4,1,8]ND",
        ),
        (
            "torch.Tensor.copy_",
            json!([target, x]),
            none(),
            "TensorMove DT_BF16[4,1,8]NCL -> DT_BF16[4,1,8]ND",
        ),
        (
            "torch.embedding",
            json!([table, indices]),
            none(),
            "GatherV2 FLOAT16[100,16]ND INT64[3,2]ND INT64[1]ND -> FLOAT16[3,2,16]ND",
        ),
    ];
    for (ordinal, (api, args, kwargs, expected)) in (0..).zip(calls) {
        open(s, ordinal);
        let found = launched(s, api, args, kwargs);
        assert_eq!(found[0], expected);
        let also_launched = found.get(1).map(String::as_str);
        assert_eq!(also_launched, (api == "torch.sort").then_some("Cast INT32[4,1,8]ND -> INT64[4,1,8]ND"));
    }
}

/// Only the traffic that the cache could hold is faster with a warm cache.
#[test]
fn launches_after_a_flush_take_the_time_of_device_memory() {
    let ratio = |rows: u64| {
        let s = &mut session(&[&format!("SwiGlu DT_BF16[{rows},8192] -> DT_BF16[{rows},4096]")]);
        let tensor = random(s, &[rows, 8192], "bfloat16");
        let flush = made(s, "torch.ones", json!([[2, 100 << 20]]), "int32");
        open(s, 0);
        for is_cold in [false, true, false] {
            if is_cold {
                call(s, "torch.neg", json!([flush]), json!({})).expect("a flush");
            }
            call(s, "torch_npu.npu_swiglu", json!([tensor]), json!({ "dim": -1 })).expect("a launch");
        }
        let (_, launches, _) = s.take_results();
        let own = launches.iter().filter(|launch| launch.operation.kernel == "SwiGlu");
        let durations: Vec<f64> = own.map(|launch| launch.duration.micros()).collect();
        assert_eq!(durations.len(), 3);
        assert!((durations[0] / durations[2] - 1.0).abs() < 0.02, "hot again: {durations:?}");
        durations[1] / durations[0]
    };
    let (small, large) = (ratio(4_096), ratio(262_144));
    assert!(small > 1.5, "{small}");
    assert!((1.0..1.2).contains(&large), "{large}");
}

#[test]
fn kernel_of_a_product_depends_on_its_size() {
    let shapes = "DT_BF16[16,64] DT_BF16[32,64] -> DT_BF16[16,32]";
    let cases = ["MatMulV3", "MatMulV2"].map(|kernel| format!("{kernel} {shapes}"));
    let s = &mut session(&cases.each_ref().map(String::as_str));
    let a = random(s, &[16, 64], "bfloat16");
    let b = random(s, &[32, 64], "bfloat16");
    let b = transposed(s, &b);
    let (_, outside) = refused(s, "torch.mm", json!([a, b]), json!({}));
    assert!(outside.contains("outside the sentinels of a case"), "{outside}");
    for ordinal in [0, 1] {
        open(s, ordinal);
        let found = launched(s, "torch.mm", json!([a, b]), json!({})).remove(0);
        assert_eq!(found, "MatMulV2 DT_BF16[16,64]ND DT_BF16[32,64]ND -> DT_BF16[16,32]ND");
    }
    // Products of the weight gradient, and of the same number of multiplications with few rows, in public profiles.
    for (m, k, n, kernel) in [(4096, 32, 9216, "MatMulV3"), (32, 4096, 9216, "MatMulV2")] {
        let tensor = |rows: u64, columns: u64| format!("FLOAT[{rows},{columns}]");
        let (first, second, output) = (tensor(m, k), tensor(k, n), tensor(m, n));
        let s = &mut session(&[&format!("MatMulV2 {first} {second} -> {output}")]);
        let (a, b) = (random(s, &[m, k], "float32"), random(s, &[k, n], "float32"));
        open(s, 0);
        let found = launched(s, "torch.mm", json!([a, b]), json!({})).remove(0);
        assert_eq!(found, format!("{kernel} {first}ND {second}ND -> {output}ND"));
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of calls with their errors")]
fn calls_that_differ_from_the_manifest_are_refused_with_the_argument() {
    let s = &mut session(&[
        "MatMulV3 DT_BF16[64,128] DT_BF16[32,128] -> DT_BF16[64,32]",
        "RmsNorm DT_BF16[64,128] DT_BF16[128] -> DT_BF16[64,128] FLOAT[64,1]",
        "SwiGlu DT_BF16[64,128] -> DT_BF16[64,64]",
        "Slice DT_BF16[64,128] INT64[2] INT64[2] -> DT_BF16[32,128]",
        "TensorMove DT_BF16[64,128] -> DT_BF16[64,128]",
        "GatherV2 DT_BF16[64,128] INT32[3,2] INT64[1] -> DT_BF16[3,2,128]",
        "Mul FLOAT[64,128] FLOAT[] -> FLOAT[64,128]",
    ]);
    let x = random(s, &[64, 128], "bfloat16");
    let single = random(s, &[64, 128], "float32");
    let weight = random(s, &[32, 128], "bfloat16");
    let view = transposed(s, &weight);
    let gamma = made(s, "torch.ones", json!([[128]]), "bfloat16");
    let random_gamma = random(s, &[128], "bfloat16");
    let whole = made(s, "torch.randint", json!([-8, 8, [64, 128]]), "int8");
    let blank = made(s, "torch.empty", json!([[64, 128]]), "bfloat16");
    let small = made(s, "torch.empty", json!([[64, 7]]), "bfloat16");
    let beyond = indices(s, 65, &[3, 2], "int32");
    let unknown = call(s, "torch.neg", json!([beyond]), json!({})).expect("whole numbers");
    let unknown = json!({ "tensor": unknown["tensor"]["handle"] });
    let cpu = call(s, "torch.randn", json!([[64, 128]]), json!({ "dtype": { "dtype": "bfloat16" } }));
    let cpu = json!({ "tensor": cpu.expect("a tensor")["tensor"]["handle"] });
    let other_place = json!({ "device": "npu:1", "dtype": { "dtype": "bfloat16" } });
    let other = call(s, "torch.ones", json!([[128]]), other_place).expect("a tensor");
    let other = json!({ "tensor": other["tensor"]["handle"] });
    let none = || json!({});
    let cases = [
        (
            0,
            "torch.mm",
            json!([x, weight]),
            none(),
            "RuntimeError",
            "`mat2`: the manifest has a transposed view",
        ),
        (
            0,
            "torch.mm",
            json!([view, x]),
            none(),
            "RuntimeError",
            "`self`: the manifest has a contiguous bfloat16[64,128] on the NPU, the call has a transposed view of a bfloat16[32,128] on the NPU",
        ),
        (
            0,
            "torch.mm",
            json!([x, 2.0]),
            none(),
            "TypeError",
            "argument 'mat2' (position 2) must be Tensor, not float",
        ),
        (0, "torch.mm", json!([x]), none(), "TypeError", "\"mat2\""),
        (
            0,
            "torch_npu.npu_swiglu",
            json!([x]),
            none(),
            "RuntimeError",
            "MatMulV3 of the case is launched by torch.mm",
        ),
        (
            1,
            "torch_npu.npu_rms_norm",
            json!([x, random_gamma]),
            none(),
            "RuntimeError",
            "`gamma`: the manifest has values in [1, 1], the call has values that are not known",
        ),
        (
            1,
            "torch_npu.npu_rms_norm",
            json!([x, gamma]),
            json!({"eps": 1e-5}),
            "TypeError",
            "unexpected keyword argument 'eps'",
        ),
        (
            1,
            "torch_npu.npu_rms_norm",
            json!([x, gamma]),
            json!({"epsilon": 1e-5}),
            "RuntimeError",
            "`epsilon`: the manifest has no such argument, the call has 0.00001",
        ),
        (1, "torch_npu.npu_rms_norm", json!([x, other]), none(), "RuntimeError", "on the same device"),
        (
            2,
            "torch_npu.npu_swiglu",
            json!([x]),
            json!({"dim": 0}),
            "RuntimeError",
            "`dim`: the manifest has -1, the call has 0",
        ),
        (
            2,
            "torch_npu.npu_swiglu",
            json!([x]),
            none(),
            "RuntimeError",
            "`dim`: the manifest has -1, the call has None",
        ),
        (
            2,
            "torch_npu.npu_swiglu",
            json!([blank, -1]),
            none(),
            "RuntimeError",
            "`input`: the values are uninitialised",
        ),
        (
            2,
            "torch_npu.npu_swiglu",
            json!([whole, -1]),
            none(),
            "RuntimeError",
            "the call has a contiguous int8[64,128]",
        ),
        (2, "torch_npu.npu_swiglu", json!([cpu, -1]), none(), "RuntimeError", "bfloat16[64,128] on the host"),
        (
            3,
            "torch_npu.npu_slice",
            json!([x, [1, 0], [32, 128]]),
            none(),
            "RuntimeError",
            "`offsets`: the manifest has [0,0], the call has [1,0]",
        ),
        (
            4,
            "torch.Tensor.copy_",
            json!([small, x]),
            none(),
            "RuntimeError",
            "`self`: the manifest has a contiguous bfloat16[64,128]",
        ),
        (
            5,
            "torch.embedding",
            json!([x, beyond]),
            none(),
            "RuntimeError",
            "`indices`: the manifest has values in [0, 63], the call has values in [0, 64]",
        ),
        (5, "torch.embedding", json!([x, unknown]), none(), "RuntimeError", "values that are not known"),
        (
            6,
            "torch.mul",
            json!([single, 2.5]),
            none(),
            "RuntimeError",
            "`other`: the manifest has 1.5, the call has 2.5",
        ),
        (6, "torch.mul", json!([2.0, single]), none(), "TypeError", "argument 'self' (position 1)"),
        (
            6,
            "torch_npu.npu_nothing",
            json!([x]),
            none(),
            "AttributeError",
            "module 'torch_npu' has no attribute 'npu_nothing'",
        ),
    ];
    for (ordinal, api, args, kwargs, class, part) in cases {
        open(s, ordinal);
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
    s.log.take_launches();
    random(s, &[8], "float16");
    let tasks: Vec<TaskEngine> = s.log.take_launches().iter().map(|launch| launch.operation.task).collect();
    assert_eq!(tasks, [TaskEngine::Random, TaskEngine::Vector]);
    let wrong_place = json!({ "device": "npu:0", "generator": { "generator": "cpu" } });
    assert!(refused(s, "torch.randn", json!([[8]]), wrong_place).1.contains("generator"));
    let unsigned = json!({ "device": "npu:0", "dtype": { "dtype": "uint8" } });
    assert!(refused(s, "torch.randint", json!([-8, 8, [4]]), unsigned).1.contains("out of bounds"));
}

#[test]
fn unknown_devices_and_full_memory_are_refused() {
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
fn failed_allocation_of_results_frees_memory() {
    let s = &mut session(&["Sort FLOAT16[8589934592] -> FLOAT16[8589934592] INT32[8589934592]"]);
    let place = json!({ "device": "npu:0", "dtype": { "dtype": "bfloat16" } });
    call(s, "torch.empty", json!([[15_u64 << 30]]), place).expect("30 of 64 GiB");
    // 16 GiB in; 16 GiB of values and 32 GiB of positions as Python sees them do not fit.
    let x = made(s, "torch.ones", json!([[8_u64 << 30]]), "float16");
    open(s, 0);
    let before = refused(s, "torch.sort", json!([x, -1]), json!({})).1;
    assert!(before.contains("out of memory"), "{before}");
    assert_eq!(refused(s, "torch.sort", json!([x, -1]), json!({})).1, before);
}

/// 14 GiB of INT8 need 56 GiB more while random numbers are converted; in parts they need little more than their size.
#[test]
fn tensors_are_filled_in_parts_without_a_copy_in_single_precision() {
    let s = &mut session(&[]);
    let place = json!({ "device": "npu:0", "dtype": { "dtype": "int8" } });
    let size = 14_u64 << 30;
    let error = refused(s, "torch.randint", json!([-8, 8, [size]]), place).1;
    assert!(error.contains("Tried to allocate 70.00 GiB"), "{error}");
    let whole = made(s, "torch.empty", json!([[size]]), "int8");
    let chunk = made(s, "torch.randint", json!([-8, 8, [size / 4]]), "int8");
    let part = |s: &mut ApiSession, start: u64| {
        let value =
            call(s, "torch.Tensor.narrow", json!([whole, 0, start, size / 4]), json!({})).expect("a part");
        json!({ "tensor": value["tensor"]["handle"] })
    };
    let third = part(s, size / 2);
    let early = refused(s, "torch.Tensor.copy_", json!([third, chunk]), json!({})).1;
    assert!(early.contains("in order"), "{early}");
    for start in [0, size / 4, size / 2, size / 4 * 3] {
        let target = part(s, start);
        assert_eq!(launched(s, "torch.Tensor.copy_", json!([target, chunk]), json!({})), [""; 0]);
        let is_filled =
            s.memory.operand(whole["tensor"].as_u64().expect("a handle")).expect("there").contents;
        assert_eq!(is_filled == KnownValues::Uninitialised, start < size / 4 * 3);
    }
    let view = call(s, "torch.Tensor.view", json!([whole, [14, 1 << 30]]), json!({})).expect("a view");
    assert_eq!(view["tensor"]["shape"], json!([14, 1 << 30]));
    assert!(refused(s, "torch.Tensor.view", json!([whole, [15, 1 << 30]]), json!({})).1.contains("invalid"));
    assert!(
        refused(s, "torch.Tensor.narrow", json!([chunk, 0, 1, size / 4]), json!({})).1.contains("exceeds")
    );
}

#[test]
fn clock_advances_and_steady_durations_repeat_after_every_sentinel() {
    let case = "SwiGlu DT_BF16[512,8192] -> DT_BF16[512,4096]";
    let s = &mut session(&[case, case]);
    let x = random(s, &[512, 8192], "bfloat16");
    let sentinels: Vec<Value> = (2..=5).map(|n| made(s, "torch.ones", json!([[n]]), "int32")).collect();
    s.log.take_launches();
    for bracket in sentinels.chunks(2) {
        call(s, "torch.neg", json!([bracket[0]]), json!({})).expect("a sentinel");
        for _ in 0..5 {
            call(s, "torch_npu.npu_swiglu", json!([x, -1]), json!({})).expect("a launch");
        }
        call(s, "torch.neg", json!([bracket[1]]), json!({})).expect("a sentinel");
    }
    let launches = s.log.take_launches();
    assert!(launches[0].start > START);
    assert!(launches.windows(2).all(|pair| pair[1].start.0 >= pair[0].start.0 + pair[0].duration.0 + 4_000));
    assert!(launches.iter().all(|launch| launch.start.0 % 20 == 0));
    let durations = |from: usize| launches[from..from + 5].iter().map(|l| l.duration).collect::<Vec<_>>();
    assert_eq!(durations(1), durations(8));
    assert!(durations(1).iter().any(|duration| *duration != durations(1)[0]));
}
