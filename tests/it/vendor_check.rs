//! `npubench check` with a small substitute for torch and torch_npu; tests/it/vendor.rs checks with the vendor's own code.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::prelude::*;

/// A torch that checks the shapes of matrix products.
const TORCH: &str = "
class Tensor:
    def __init__(self, shape): self.shape = tuple(shape)
    def transpose(self, a, b):
        shape = list(self.shape); shape[a], shape[b] = shape[b], shape[a]
        return Tensor(shape)
def empty(*shape, **keywords):
    return Tensor(shape[0] if isinstance(shape[0], (list, tuple)) else shape)
def mm(a, b):
    if a.shape[1] != b.shape[0]: raise RuntimeError('mat1 and mat2 shapes cannot be multiplied')
    return Tensor((a.shape[0], b.shape[1]))
def __getattr__(name):
    if name.startswith('__'): raise AttributeError(name)
    return name
";
/// A torch_npu with `npu_swiglu`, which ends the process for one width, lacks a Meta kernel for another and rejects a third.
const TORCH_NPU: &str = "
import os
from torch import Tensor
def npu_swiglu(self, dim=-1):
    width = self.shape[-1]
    if width == 6666: os._exit(11)
    if width == 4444: raise NotImplementedError('no Meta kernel. You may have run into this message while using an operator with PT2')
    if width == 2222: raise RuntimeError('width 2222 is not supported')
    return Tensor(self.shape[:-1] + (width // 2,))
";
const FAKE: &str = "
class FakeTensorMode:
    def __init__(self, shape_env): pass
    def __enter__(self): return self
    def __exit__(self, *error): return False
class UnsupportedOperatorException(RuntimeError): pass
";

/// A database, and the substitutes for torch and torch_npu.
struct CheckFixture {
    context: Context,
}

impl CheckFixture {
    fn new(records: &[&str]) -> Self {
        let context = Context::new();
        for (file, text) in [
            ("py/torch/__init__.py", TORCH),
            ("py/torch/_subclasses/__init__.py", ""),
            ("py/torch/_subclasses/fake_tensor.py", FAKE),
            ("py/torch/fx/__init__.py", ""),
            ("py/torch/fx/experimental/__init__.py", ""),
            ("py/torch/fx/experimental/symbolic_shapes.py", "class ShapeEnv: pass\n"),
            ("py/torch-9.9.dist-info/METADATA", "Metadata-Version: 2.1\nName: torch\nVersion: 9.9\n"),
            ("py/torch_npu/__init__.py", TORCH_NPU),
            (
                "py/torch_npu-9.9.post1.dist-info/METADATA",
                "Metadata-Version: 2.1\nName: torch_npu\nVersion: 9.9.post1\n",
            ),
        ] {
            context.write(file, text);
        }
        if records.is_empty() {
            return Self { context };
        }
        context.write("k.csv", &profile(records));
        context.done("ingest k.csv --db db --kind rehearsal");
        Self { context }
    }

    fn run_check(&self, more: &[&str]) -> Ran {
        let arguments = [&["check", "--db", "db"], more].concat();
        let mut command = self.context.command(&arguments);
        command.env("PYTHONPATH", self.context.path("py"));
        self.context.ran(&command.output().expect("npubench runs"))
    }

    /// Runs the check; returns verdict and method by input.
    fn verdicts(&self, more: &[&str]) -> BTreeMap<String, (String, String)> {
        let ran = self.run_check(&[&["--format", "json"], more].concat());
        let objects = ran.stdout.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        objects
            .map(|object| (text(&object["inputs"][0]), (text(&object["verdict"]), text(&object["by"]))))
            .collect()
    }
}

fn swiglu_record(width: u64) -> String {
    format!("SwiGlu,5,\"\"\"8,{width}\"\"\",FLOAT,ND,\"\"\"8,{}\"\"\",FLOAT,ND", width.div_ceil(2))
}

fn verdict_by(verdict: &str, by: &str) -> (String, String) {
    (verdict.to_owned(), by.to_owned())
}

#[test]
fn every_case_gets_one_verdict_although_one_ends_python() {
    let records: Vec<String> = [1000, 2222, 3000, 4444, 5000, 6666, 7001, 8000].map(swiglu_record).to_vec();
    let check = CheckFixture::new(&records.iter().map(String::as_str).collect::<Vec<_>>());
    let verdicts = check.verdicts(&["--processes", "1"]);
    let of = |width: u64| verdicts[&format!("FLOAT[8,{width}]")].clone();
    for width in [1000, 3000, 5000, 8000] {
        assert_eq!(of(width), verdict_by("accepted", "meta"), "{width}");
    }
    assert_eq!(of(2222), verdict_by("rejected", "meta"));
    assert_eq!(of(4444), verdict_by("no_meta", "meta"));
    assert_eq!(
        of(6666),
        verdict_by("rejected", "meta"),
        "the process also ends if the case is checked alone"
    );
    assert_eq!(of(7001), verdict_by("invalid_args", "rule"), "odd");
    let ran = check.run_check(&[]).ended(1);
    assert_eq!(check.run_check(&["--fail-on", "no_entry,unsupported"]).code, 0);
    assert_eq!(check.run_check(&["--fail-on", "unsupported,invalid_args"]).code, 1);
    insta::assert_snapshot!(ran.stdout, @r"
    SwiGlu 8,7001 -> 8,3501: invalid_args by rule: the shapes 8,7001 -> 8,3501 fit no form of SwiGlu: last dimension halved and 1 more: output 0: `D/2`: 7001 is not a multiple of 2; 2 other forms differ more
    SwiGlu 8,4444 -> 8,2222: no_meta by meta: NotImplementedError: no Meta kernel. You may have run into this message while using an operator with PT2
    SwiGlu 8,6666 -> 8,3333: rejected by meta: Python ended with exit code 11: no output
    SwiGlu 8,2222 -> 8,1111: rejected by meta: RuntimeError: width 2222 is not supported
    8 cases: 4 accepted, 2 rejected, 1 invalid_args, 1 no_meta; by torch 9.9, torch_npu 9.9.post1
    ");
}

#[test]
fn stored_outcomes_are_reused_and_run_leaves_out_rejected_cases() {
    let (good, bad) = (swiglu_record(1000), swiglu_record(2222));
    let check = CheckFixture::new(&[&good, &bad, ADD]);
    check.run_check(&["--kernels", "SwiGlu"]);
    // A torch_npu that would decide otherwise is not used.
    check.context.write("py/torch_npu/__init__.py", &TORCH_NPU.replace("width == 2222", "width == 1000"));
    let verdicts = check.verdicts(&["--kernels", "SwiGlu"]);
    assert_eq!(verdicts["FLOAT[8,1000]"], verdict_by("accepted", "meta"));
    check.context.exits(1, "run --db db --host rehearsal --devices 0");
    let rows = check.context.rows("db", "SwiGlu");
    let verdict = |shapes: &str| {
        let row = rows.iter().find(|row| row["Input Shapes"] == shapes).expect("a row");
        (row["MicroBench Verdict"].as_str(), row["MicroBench Reason"].as_str())
    };
    assert_eq!(verdict("\"8,1000\"").0, "ok");
    assert_eq!(verdict("\"8,2222\"").0, "rejected");
    assert!(
        verdict("\"8,2222\"").1.contains("rejected by torch 9.9, torch_npu 9.9.post1"),
        "{}",
        verdict("\"8,2222\"").1
    );
    check.context.exits(0, "run --db db --host rehearsal --devices 0 --ignore-check");
    // With `--again`, the new outcome replaces the stored one.
    let verdicts = check.verdicts(&["--kernels", "SwiGlu", "--again"]);
    assert_eq!(verdicts["FLOAT[8,1000]"], verdict_by("rejected", "meta"));
    // Outcomes of another version of torch_npu are not reused.
    check.context.write(
        "py/torch_npu-9.9.post1.dist-info/METADATA",
        "Metadata-Version: 2.1\nName: torch_npu\nVersion: 9.9.post2\n",
    );
    check.context.write("py/torch_npu/__init__.py", TORCH_NPU);
    assert_eq!(check.verdicts(&["--kernels", "SwiGlu"])["FLOAT[8,1000]"], verdict_by("accepted", "meta"));
}

#[test]
fn unusable_python_gives_no_outcomes() {
    let check = CheckFixture::new(&[&swiglu_record(1000)]);
    check.context.exits(4, "check --db db --python no-such-python");
    check
        .context
        .write("py/torch/__init__.py", "raise ImportError('libhccl.so: cannot open shared object file')\n");
    let ran = check.run_check(&[]).ended(4);
    ran.err_has("libhccl.so");
    // The script tests torch first: one that accepts any matrix product is unusable.
    check.context.write("py/torch/__init__.py", &TORCH.replace("!= b.shape[0]", "is None"));
    let ran = check.run_check(&[]).ended(4);
    ran.err_has("cannot be used as a check");
    assert_eq!(ran.stdout, "");
}

/// A run of the host that has the packages finds the same, and so does the plan of another one.
#[test]
fn operator_with_another_schema_is_unsupported_in_check_plan_and_run() {
    let check = CheckFixture::new(&[
        "MatMulV2,5,\"\"\"64,64;64,64\"\"\",FLOAT;FLOAT,ND;ND,\"\"\"64,64\"\"\",FLOAT,ND",
    ]);
    let schemas = "
class _C:
    @staticmethod
    def _jit_get_all_schemas():
        class Argument:
            def __init__(self, name): self.name, self.kwarg_only = name, False
        class Schema:
            name, overload_name, arguments = 'aten::mm', '', [Argument('mat2'), Argument('self')]
        return [Schema]
";
    check.context.write("py/torch/__init__.py", &format!("{TORCH}{schemas}"));
    let ran = check.run_check(&["--format", "json"]);
    let mismatch = "the catalogue has aten::mm(self, mat2), torch has (mat2, self)";
    ran.out_has(mismatch);
    ran.out_has("\"verdict\":\"unsupported\"");
    assert_eq!(ran.code, 1);
    assert_eq!(check.run_check(&["--fail-on", "rejected"]).code, 0);
    let ran = check.context.run("plan --db db --devices 0 --format json");
    ran.out_has("\"verdict\":\"unsupported\"");
    ran.out_has(mismatch);
    let ran = check.context.exits(1, "run --db db --host rehearsal --devices 0");
    ran.out_has("unsupported");
    let row = &check.context.rows("db", "MatMulV2")[0];
    assert_eq!(
        row.get("MicroBench Verdict").map(String::as_str).unwrap_or_default(),
        "",
        "the row is not changed"
    );
}

#[test]
fn python_ends_if_the_check_is_killed() {
    let check = CheckFixture::new(&[&swiglu_record(5556)]);
    let hangs = TORCH_NPU.replace("if width == 6666: os._exit(11)", "if width == 5556:\n        open('pid', 'w').write(str(os.getpid())); os.replace('pid', os.environ['PID'])\n        import time; time.sleep(1000)");
    check.context.write("py/torch_npu/__init__.py", &hangs);
    let pid = check.context.path("pid");
    let mut command = check.context.command("check --db db");
    command.env("PYTHONPATH", check.context.path("py")).env("PID", &pid);
    let mut child = command.spawn().expect("npubench starts");
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !pid.exists() {
        assert!(std::time::Instant::now() < deadline, "Python never started the call");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let python = std::fs::read_to_string(&pid).expect("a process id");
    child.kill().expect("killed");
    child.wait().expect("ended");
    let is_alive = || {
        let state = std::fs::read_to_string(format!("/proc/{python}/stat")).unwrap_or_default();
        !state.is_empty() && !state.contains(") Z ")
    };
    while is_alive() {
        assert!(std::time::Instant::now() < deadline, "Python {python} is still running");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}
