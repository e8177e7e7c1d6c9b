//! Cases that an audit of workloads and steps of models misses.

use std::path::{Path, PathBuf};

use crate::{
    answer::{
        coverage::{CoverageAnalyzer, add_equal_calls, audit_questions},
        lookup_database::{LookupDatabase, load_workloads},
        step_cases::StepSelection,
        workload::{DurationKind, QuestionDefaults, Workload},
    },
    base::{assets::AssetFiles, command_error::CommandError, count_text::format_count, print::print_note},
    cases::grid::{GridAuditor, ListedCase, ListedCases, definition::DensityFile},
    database::Database,
    kernel::{KernelName, catalogue::Catalogue},
};

const ORIGIN: &str = "grid audit";

/// Returns the cases that rows do not answer as the density standard requires, of the questions of workloads and of the
/// steps of models, with notes on questions without one. The cases belong to the `wanted` kernels, or to all kernels if
/// none is named.
pub(crate) fn missing_cases(
    folder: &Path,
    workload_files: &[(PathBuf, f64)],
    models: &[String],
    steps: &StepSelection,
    wanted: &[KernelName],
    assets: &AssetFiles,
    catalogue: &Catalogue,
) -> Result<ListedCases, CommandError> {
    if workload_files.is_empty() && models.is_empty() {
        let hint =
            "give `--workload FILE` or `--models NAME`, with `--tp` and `--batch` for some of its steps";
        return Err(CommandError::bad_input("`--fill-audit` needs workloads or models", hint));
    }
    let lookup = LookupDatabase::open(folder, None)?;
    let mut workloads = load_workloads(workload_files, &QuestionDefaults::default())?;
    if !models.is_empty() {
        let questions = steps.derive_named(assets, models)?.questions;
        workloads.push(Workload::new("steps of models".to_owned(), DurationKind::Unknown, questions));
    }
    for workload in &mut workloads {
        add_equal_calls(workload, catalogue);
        workload.notes.iter().for_each(|note| print_note(note));
    }
    let analyzer = CoverageAnalyzer { engine: &lookup.engine, catalogue };
    let coverages = analyzer.answer_workloads(&workloads)?;
    let density = DensityFile::load(assets, catalogue)?;
    let auditor = GridAuditor { catalogue, density: &density };
    let audited = audit_questions(&analyzer, auditor, &Database::open(folder)?, &coverages)?;
    let [mut planned, mut impossible] = [0_usize; 2];
    let mut cases = ListedCases::new();
    for row in audited.into_iter().filter(|row| !row.is_answered()) {
        match row.case {
            Some(case) if wanted.is_empty() || wanted.contains(&case.kernel) => {
                let listed = ListedCase { case, origin: ORIGIN.to_owned() };
                cases.entry(listed.case.kernel.clone()).or_default().push(listed);
            }
            Some(_) => {}
            None if row.is_planned => planned += 1,
            None => impossible += 1,
        }
    }
    for (count, text) in [(planned, "the row has no latency"), (impossible, "no row is possible")] {
        if count > 0 {
            print_note(&format!("{} without an answer: {text}", format_count(count, "question")));
        }
    }
    Ok(cases)
}
