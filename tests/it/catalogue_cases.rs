//! Cases of catalogue entries as text: runs on the rehearsal host, checks by the vendor's code, and refusals by the rules.

use std::{collections::BTreeSet, ffi::OsString};

use serde_json::Value;

use crate::{
    context::{Context, profile},
    requirements, vendor,
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

/// Runs cases on a rehearsal host and checks that the row of each has one of these verdicts; returns the number of kernels.
pub(crate) fn assert_measured(cases: &[CaseText<'_>], verdicts: &[&str]) -> usize {
    let kernels: BTreeSet<&str> = cases.iter().map(|case| case[0]).collect();
    assert_eq!(assert_verdicts(&run_cases(cases), &kernels, verdicts), cases.len());
    kernels.len()
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

/// Runs cases on a rehearsal host and checks that a plan refuses each by the rules, with a reason that contains the text
/// beside it. Returns the database.
pub(crate) fn assert_refused(cases: &[(CaseText<'_>, &str)]) -> Context {
    let context = run_cases(cases.iter().map(|(case, _)| case));
    let plan = context.run(&["plan", "--db", "db", "--devices", "0", "--format", "json"]);
    let lines: Vec<Value> =
        plan.stdout.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    for ([kernel, shapes, dtypes, output, dtype], message) in cases {
        // Empty slots at the end are not shown, those of scalars are.
        let is_side = |shown: &str, expected: &str| {
            expected == "N/A" || shown.trim_end_matches(';') == expected.trim_end_matches(';')
        };
        let is_case = |line: &&Value| {
            let shown = line["inputs"].as_str().and_then(|shown| shown.split_once(" -> "));
            line["kernel"] == *kernel
                && shown.is_some_and(|(given, result)| is_side(given, shapes) && is_side(result, output))
        };
        let found: Vec<&Value> = lines.iter().filter(is_case).collect();
        let is_refused = |line: &&Value| {
            matches!(line["verdict"].as_str(), Some("invalid_args" | "unsupported"))
                && line["not_launched"].as_str().is_some_and(|reason| reason.contains(message))
        };
        assert!(found.iter().any(is_refused), "{kernel} {shapes} {dtypes} -> {dtype}: {found:#?}");
    }
    context
}

/// Checks that the vendor's code accepts the calls of all cases but those of kernels `without_meta`, for whose functions it
/// has no Meta kernel, so that they end with `error`. Needs the vendor's Python.
pub(crate) fn assert_accepted_by_vendor(cases: &[CaseText<'_>], without_meta: &[&str], error: &str) {
    let Some(python) = requirements::vendor_python() else { return };
    let (accepted, errors) = check_run(&python, &run_cases(cases));
    let excluded = cases.iter().filter(|case| without_meta.contains(&case[0])).count();
    assert_eq!(errors.len(), excluded, "{errors:#?}");
    assert!(errors.iter().all(|found| found.contains(error)), "{errors:#?}");
    assert_eq!(accepted, cases.len() - excluded);
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
