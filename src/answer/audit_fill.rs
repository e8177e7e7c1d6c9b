//! Cases that an audit of workloads and steps of models misses.

use std::path::{Path, PathBuf};

use crate::{
    answer::{
        coverage::{CoverageAnalyzer, audit_questions},
        workload::{DurationKind, Workload},
    },
    base::{assets::AssetFiles, count_text::format_count, print::print_note},
    cases::grid::{GridAuditor, ListedCase, ListedCases, definition::DensityFile},
    database::Database,
    kernel::{KernelName, catalogue::Catalogue},
};
use crate::{
    answer::{
        fill_preview::coverage_of,
        lookup_database::{LookupDatabase, WorkloadDefaults, prepare_workloads},
        step_cases::StepSelection,
    },
    base::command_error::CommandError,
};

const ORIGIN: &str = "grid audit";

/// Workloads and steps whose questions are audited in a database.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AuditFill<'a> {
    pub(crate) folder: &'a Path,
    pub(crate) workloads: &'a [(PathBuf, f64)],
    /// Models by name, and their steps.
    pub(crate) models: &'a [String],
    pub(crate) steps: &'a StepSelection,
    /// Kernels of the cases; all if empty.
    pub(crate) wanted: &'a [KernelName],
}

impl AuditFill<'_> {
    /// Returns the cases that rows do not answer as the density standard requires, with notes on questions without one.
    pub(crate) fn missing_cases(
        &self,
        assets: &AssetFiles,
        catalogue: &Catalogue,
    ) -> Result<ListedCases, CommandError> {
        if self.workloads.is_empty() && self.models.is_empty() {
            let hint =
                "give `--workload FILE` or `--models NAME`, with `--tp` and `--batch` for some of its steps";
            return Err(CommandError::bad_input("`--fill-audit` needs workloads or models", hint));
        }
        let lookup = LookupDatabase::open(self.folder, None)?;
        let mut workloads = WorkloadDefaults::default().load_workloads(self.workloads)?;
        if !self.models.is_empty() {
            let questions = self.steps.derive_named(assets, self.models)?.questions;
            workloads.push(Workload::new("steps of models".to_owned(), DurationKind::Unknown, questions));
        }
        prepare_workloads(&mut workloads, catalogue);
        workloads.iter().flat_map(|workload| &workload.notes).for_each(|note| print_note(note));
        let analyzer = CoverageAnalyzer { engine: &lookup.engine, catalogue };
        let coverages = coverage_of(&analyzer, &workloads)?;
        let density = DensityFile::load(assets, catalogue)?;
        let auditor = GridAuditor { catalogue, density: &density };
        let audited = audit_questions(&analyzer, auditor, &Database::open(self.folder)?, &coverages)?;
        let [mut planned, mut impossible] = [0_usize; 2];
        let mut cases = ListedCases::new();
        for row in audited.into_iter().filter(|row| !row.is_answered()) {
            match row.case {
                Some(case) if self.wanted.is_empty() || self.wanted.contains(&case.kernel) => {
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
}
