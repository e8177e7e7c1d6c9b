//! The rendered calls on meta tensors, judged by the vendor's real torch_npu.

use std::process::Command;

use crate::context::Context;

/// A Python that has the vendor's torch and torch_npu.
const PYTHON: &str = "NPUBENCH_VENDOR_PYTHON";

#[test]
fn the_vendors_code_accepts_every_call_of_the_decoder_layer() {
    let Some(python) = std::env::var_os(PYTHON) else {
        eprintln!("skipped: {PYTHON} does not name a Python with the vendor's torch_npu");
        return;
    };
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
        for (name, more) in [("replay.py", None), ("manifest.json", Some("--manifest"))] {
            let mut arguments = vec!["render", kernel, "--db", "db"];
            arguments.extend(more);
            let ran = context.run(&arguments);
            assert_eq!(ran.code, 0, "{kernel}: {}", ran.stderr);
            context.write(&format!("{kernel}/{name}"), &ran.stdout);
        }
        let output = Command::new(&python)
            .args(["replay.py", "manifest.json", "--mode", "check"])
            .current_dir(context.path(kernel))
            .env("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
            .output()
            .expect("the vendor's Python runs");
        let journal =
            std::fs::read_to_string(context.path(kernel).join("launched.jsonl")).unwrap_or_default();
        let errors: Vec<&str> = journal.lines().filter(|line| line.contains("\"message\"")).collect();
        // The vendor has no Meta kernel for npu_slice; its schema was judged all the same.
        let allowed = kernel == "Slice" && errors.iter().all(|error| error.contains("NotImplementedError"));
        assert!(
            errors.is_empty() || allowed,
            "{kernel}: {errors:?}\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(journal.contains("\"done\": true"), "{kernel}: {}", String::from_utf8_lossy(&output.stderr));
        accepted += usize::from(errors.is_empty());
    }
    assert!(accepted >= 9, "only {accepted} kernels were accepted");
}

#[test]
fn every_schema_is_the_vendors_word_for_word() {
    let Some(python) = std::env::var_os(PYTHON) else {
        eprintln!("skipped: {PYTHON} does not name a Python with the vendor's torch_npu");
        return;
    };
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
