//! Options of `npubench grid --fill-audit`: rows that an audit of workloads and steps of models misses.

use std::path::{Path, PathBuf};

use clap::Args;

use super::grid_steps::GridStepOptions;
use crate::{
    catalogue::Catalogue,
    config::AssetFiles,
    coverage::{CoverageAnalyzer, WorkloadCoverage, add_equal_calls, audit_questions},
    database::Database,
    domain::KernelName,
    grid::{GridAuditor, ListedCase, ListedCases, definition::DensityFile},
    report::print_note,
    session::{CommandError, LookupDatabase, WorkloadDefaults},
    workload::{DurationKind, Workload, parse_weighted_path},
};

/// Heading of the options in the help.
const HEADING: &str = "Rows that an audit misses";

/// Origin of the rows.
const ORIGIN: &str = "grid audit";

/// Workloads that are audited.
#[derive(Debug, Args)]
pub(super) struct FillAuditOptions {
    /// Instead of grids: the rows that `npubench grid audit` misses for workloads and for the steps of `--models`
    #[arg(long, help_heading = HEADING, conflicts_with_all = ["grids", "plot", "mutate"])]
    fill_audit: bool,
    /// Workloads whose questions are audited
    #[arg(long = "workload", help_heading = HEADING, value_name = "FILE[=WEIGHT]", num_args = 1..,
          requires = "fill_audit", value_parser = parse_weighted_path)]
    workloads: Vec<(PathBuf, f64)>,
}

impl FillAuditOptions {
    pub(super) const fn is_requested(&self) -> bool {
        self.fill_audit
    }

    /// Returns the cases that rows do not answer as the density standard requires, of the wanted kernels or of all.
    pub(super) fn missing_cases(
        &self,
        (assets, catalogue): (&AssetFiles, &Catalogue),
        folder: &Path,
        (models, steps): (&[String], &GridStepOptions),
        wanted: &[KernelName],
    ) -> Result<ListedCases, CommandError> {
        if self.workloads.is_empty() && models.is_empty() {
            let hint =
                "give `--workload FILE` or `--models NAME`, with `--tp` and `--batch` for some of its steps";
            return Err(CommandError::bad_input("`--fill-audit` needs workloads or models", hint));
        }
        let lookup = LookupDatabase::open(folder, None)?;
        let mut workloads = WorkloadDefaults::default().load_workloads(&self.workloads)?;
        if !models.is_empty() {
            let questions = steps.derive_steps(assets, models)?.questions;
            workloads.push(Workload::new("steps of models".to_owned(), DurationKind::Unknown, questions));
        }
        workloads.iter_mut().for_each(|workload| add_equal_calls(workload, catalogue));
        workloads.iter().flat_map(|workload| &workload.notes).for_each(|note| print_note(note));
        let analyzer = CoverageAnalyzer { engine: &lookup.engine, catalogue };
        let coverages = workloads.iter().map(|workload| analyzer.answer_workload(workload));
        let coverages: Vec<WorkloadCoverage<'_>> = coverages.collect::<Result<_, _>>()?;
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
        for (count, text) in [(planned, "have a row without a latency"), (impossible, "cannot have a row")] {
            if count > 0 {
                print_note(&format!("{count} questions without an answer {text}"));
            }
        }
        Ok(cases)
    }
}
