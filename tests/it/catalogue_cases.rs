//! Cases of catalogue entries as text: runs on the rehearsal host, checks by the vendor's code, and refusals by the rules.

use std::{collections::BTreeSet, ffi::OsString};

use serde_json::Value;

use crate::{
    context::{Context, profile},
    vendor,
};

/// Kernel, input shapes and types, output shapes and types.
pub(crate) type CaseText<'a> = [&'a str; 5];

/// Writes a `kernel_details.csv` of such cases; shapes `N/A` are not recorded.
fn records<'a>(cases: impl IntoIterator<Item = &'a CaseText<'a>>) -> String {
    let records: Vec<String> = cases
        .into_iter()
        .map(|[kernel, shapes, dtypes, output, dtype]| {
            let formats = |dtypes: &str| vec!["ND"; dtypes.split(';').count()].join(";");
            let side = |shapes: &str, dtypes: &str| match shapes {
                "N/A" => "N/A,N/A,N/A".to_owned(),
                _ => format!("\"\"\"{shapes}\"\"\",{dtypes},{}", formats(dtypes)),
            };
            format!("{kernel},5.000,{},{}", side(shapes, dtypes), side(output, dtype))
        })
        .collect();
    profile(&records.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Creates a database of such cases, and runs them on a rehearsal host.
pub(crate) fn run_cases<'a>(cases: impl IntoIterator<Item = &'a CaseText<'a>>) -> Context {
    run_profile(&records(cases))
}

/// Creates a database of a profile, and runs its cases on a rehearsal host.
pub(crate) fn run_profile(text: &str) -> Context {
    let context = Context::new();
    context.write("profile.csv", text);
    let ran = context.run(&["ingest", "profile.csv", "--db", "db", "--kind", "rehearsal"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    context.run(&["run", "--db", "db", "--host", "rehearsal", "--devices", "0-3"]);
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

/// Checks that a plan refuses each case by the rules, with a reason that contains the text beside it.
pub(crate) fn assert_refused(context: &Context, cases: &[(CaseText<'_>, &str)]) {
    let plan = context.run(&["plan", "--db", "db", "--devices", "0", "--format", "json"]);
    let lines: Vec<Value> =
        plan.stdout.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    for ([kernel, shapes, dtypes, output, dtype], message) in cases {
        // Empty slots at the end are not shown.
        let [given, result] = [shapes, output].map(|side| side.trim_end_matches(';'));
        let is_case = |line: &&Value| {
            let shown = line["inputs"].as_str().unwrap_or_default();
            line["kernel"] == *kernel
                && shown.starts_with(given)
                && (result == "N/A" || shown.contains(&format!(" -> {result}")))
        };
        let found: Vec<&Value> = lines.iter().filter(is_case).collect();
        let is_refused = |line: &&Value| {
            matches!(line["verdict"].as_str(), Some("invalid_args" | "unsupported"))
                && line["not_launched"].as_str().is_some_and(|reason| reason.contains(message))
        };
        assert!(found.iter().any(is_refused), "{kernel} {shapes} {dtypes} -> {dtype}: {found:#?}");
    }
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
