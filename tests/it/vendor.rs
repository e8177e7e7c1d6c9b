//! The rendered calls on meta tensors, judged by the vendor's real torch_npu.

use std::{ffi::OsString, fs, path::Path, process::Command};

use crate::context::Context;

/// A Python that has the vendor's torch and torch_npu; a test without one says that it is skipped.
#[expect(clippy::print_stderr, reason = "whoever reads what a test said learns that it was skipped")]
pub(crate) fn python() -> Option<OsString> {
    const PYTHON: &str = "NPUBENCH_VENDOR_PYTHON";
    let python = std::env::var_os(PYTHON);
    if python.is_none() {
        eprintln!("skipped: {PYTHON} does not name a Python with the vendor's torch_npu");
    }
    python
}

/// Renders a kernel's script and manifest into a folder of its name.
pub(crate) fn render(context: &Context, kernel: &str) {
    for (name, more) in [("replay.py", None), ("manifest.json", Some("--manifest"))] {
        let mut arguments = vec!["render", kernel, "--db", "db"];
        arguments.extend(more);
        let ran = context.run(&arguments);
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{kernel}");
        context.write(&format!("{kernel}/{name}"), &ran.stdout);
    }
}

/// What the vendor's code said of the calls of a script.
pub(crate) struct Judged {
    /// The lines of the cases.
    pub(crate) cases: Vec<String>,
    /// The lines that say why a case was not accepted.
    pub(crate) errors: Vec<String>,
}

impl Judged {
    pub(crate) fn accepted(&self) -> usize {
        self.cases.iter().filter(|line| line.contains("\"verdict\": \"accepted\"")).count()
    }
}

/// Has the vendor's code judge the script and the manifest of a folder; it must come to its end.
pub(crate) fn judge(python: &OsString, folder: &Path) -> Judged {
    let output = Command::new(python)
        .args(["replay.py", "manifest.json", "--mode", "check", "--journal", "check.jsonl"])
        .current_dir(folder)
        .env("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
        .output()
        .expect("the vendor's Python runs");
    let journal = fs::read_to_string(folder.join("check.jsonl")).unwrap_or_default();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(journal.contains("\"done\": true"), "{}: {said}", folder.display());
    let lines = |what: &str| journal.lines().filter(|line| line.contains(what)).map(str::to_owned).collect();
    Judged { cases: lines("\"ordinal\""), errors: lines("\"message\"") }
}

#[test]
fn the_vendors_code_accepts_every_call_of_the_decoder_layer() {
    let Some(python) = python() else { return };
    let context = Context::new();
    let profile = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/decoder-layer/kernel_details.csv");
    context.run(&["ingest", profile, "--db", "db", "--kind", "rehearsal"]);
    let catalogue = npubench::spec::Catalogue::load(&npubench::spec::Assets::embedded()).expect("it loads");
    let mut accepted = 0;
    for entry in catalogue.entries() {
        let kernel = entry.kernel.as_str();
        if !context.path("db").join(format!("{}.csv", entry.kernel.file_stem())).exists() {
            continue;
        }
        render(&context, kernel);
        let judged = judge(&python, &context.path(kernel));
        let errors = &judged.errors;
        // The vendor has no Meta kernel for npu_slice; its schema was judged all the same.
        let allowed = kernel == "Slice" && errors.iter().all(|error| error.contains("NotImplementedError"));
        assert!(errors.is_empty() || allowed, "{kernel}: {errors:?}");
        accepted += usize::from(errors.is_empty());
    }
    assert!(accepted >= 9, "only {accepted} kernels were accepted");
}

#[test]
fn every_schema_is_the_vendors_word_for_word() {
    let Some(python) = python() else { return };
    let script = "import torch, torch_npu\nfor s in torch._C._jit_get_all_schemas(): print(s)";
    let output = Command::new(&python)
        .args(["-c", script])
        .env("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
        .output()
        .expect("the vendor's Python runs");
    let listed = String::from_utf8_lossy(&output.stdout);
    assert!(listed.lines().count() > 1000, "{}", String::from_utf8_lossy(&output.stderr));
    let catalogue = npubench::spec::Catalogue::load(&npubench::spec::Assets::embedded()).expect("it loads");
    // Operators of other packages are not the vendor's to list.
    for entry in catalogue.entries().filter(|entry| !entry.needs.custom_operators) {
        assert!(
            listed.lines().any(|line| line == entry.schema_text),
            "{}: {}",
            entry.kernel,
            entry.schema_text
        );
    }
}
