//! `npubench coverage`: the answers of a database for workloads, and what is missing.

use super::prelude::*;
use crate::{
    answer::coverage::{coverage_gaps, production_note, untimed_note},
    show::{
        coverage::{CoverageReport, coverage_csv, coverage_records, coverage_text},
        coverage_page::coverage_page,
    },
};

/// Shows which questions of workloads a database answers, and what would close the gaps
///
/// Each kernel and operator of a workload is looked up as `npubench query` does it. Prints the invocations and the time
/// that are measured, interpolated or missing, the metrics M1 to M5, the kernels, and the gaps by the time that they
/// stand for. A workload is a profile (kernel_details.csv, op_summary_*.csv, or a folder), an inventory or a chrome
/// trace of a simulator, or a list in YAML or CSV; docs/coverage.md describes them. Nothing in the database is changed.
#[derive(Debug, Args)]
#[command(mut_arg("model", |arg| arg.alias("models")))]
#[command(group(ArgGroup::new("questions").args(["workloads", "model"]).multiple(true).required(true)))]
#[command(after_help = "Examples:
  npubench coverage --db a3 --workload kernel_details.csv
  npubench coverage --db a3 --model Qwen3-32B --tp 4 --batch 64")]
pub(super) struct CoverageOptions {
    #[command(flatten)]
    database: DatabaseFolder,
    #[command(flatten)]
    questions: QuestionOptions,
    /// Number of gaps in the table
    #[arg(long, value_name = "N", default_value_t = 20)]
    gaps: usize,
    /// Write every question with its answer to a CSV
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write a page with all tables, which needs no other file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    common: CommonOptions<JsonOutput>,
}

pub(super) fn run(options: &CoverageOptions) -> Result<ExitStatus, CommandError> {
    let database = options.questions.open(&options.database.db)?;
    let file = |path: &Option<PathBuf>, extension| {
        let checked = |path: &PathBuf| {
            ResultFile::new(path, Some(&database.folder), extension)?.apart_from(options.questions.files())
        };
        path.as_ref().map(checked).transpose()
    };
    let (csv, html) = (file(&options.csv, "csv")?, file(&options.html, "html")?);
    let (assets, catalogue) = options.common.assets.load_catalogue()?;
    let analyzer = CoverageAnalyzer { engine: &database.engine, catalogue: &catalogue };
    let workloads = options.questions.load(&assets, &database, &analyzer)?;
    let coverages = analyzer.answer_workloads(&workloads)?;
    let gaps = coverage_gaps(&analyzer, &coverages);
    let report = CoverageReport {
        database: options.database.db.display().to_string(),
        kind: database.kind,
        coverages: &coverages,
        gaps: &gaps,
        shown_gaps: options.gaps,
        errors: &database.errors,
    };
    if let Some(file) = csv {
        file.write(coverage_csv(&report))?;
    }
    if let Some(file) = html {
        file.write(&coverage_page(&assets, &report)?)?;
    }
    options.common.output.emit(coverage_records(&report), |width| coverage_text(&report, width));
    workloads.iter().flat_map(|workload| &workload.notes).for_each(|note| print_note(note));
    untimed_note(&coverages).iter().for_each(|note| print_note(note));
    production_note(&coverages).iter().for_each(|note| print_note(note));
    note_simulated(database.kind);
    Ok(ExitStatus::done_if(gaps.is_empty()))
}
