//! `npubench grid audit`: comparison of a database or of grids with the density standard.

use super::{grid, prelude::*};
use crate::{
    answer::coverage::{AuditedQuestion, audit_questions},
    cases::grid::{GridAuditor, KernelAudit, definition::DensityFile},
    show::{
        audit::{AxisRecord, audit_table},
        question_audit::{QuestionRecord, question_table},
    },
};

/// Compares a database, or the grids themselves, with the density standard
///
/// Each axis of each kernel is compared with grids/density.yaml: its endpoints, its required points, and the allowed
/// distance of neighbouring values. Only rows with a latency count as measured; values of other rows are listed as
/// planned. With workloads, or a step of a model, the rows that answer their questions are audited instead: a question
/// is answered by its own row, or by rows between which the standard allows an interpolation. Exits with 1 if a point
/// or an answer is missing.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("questions").args(["workloads", "model"]).multiple(true)))]
#[command(after_help = "Examples:
  npubench grid audit --db a3
  npubench grid audit --db a3 --model Qwen3-32B --tp 4 --batch 64")]
pub(super) struct AuditOptions {
    #[command(flatten)]
    kernels: KernelArguments,
    /// Database folder, by default that of NPUBENCH_DB unless grids or models are given; without it the grids are audited as if all
    /// their candidates were measured
    #[arg(long, value_name = "DIR")]
    db: Option<PathBuf>,
    /// Grid files to use instead of the built-in ones and those of `--assets`
    #[arg(long, value_name = "FILE,FILE", value_delimiter = ',', conflicts_with = "db")]
    grids: Vec<PathBuf>,
    /// Models whose layer sizes the grids use, such as Qwen3-32B,Qwen3-8B, or paths of a config.json
    #[arg(long, value_name = "ID,ID", value_delimiter = ',', conflicts_with = "db")]
    models: Vec<String>,
    #[command(flatten)]
    questions: QuestionOptions,
    #[command(flatten)]
    common: CommonOptions<TableOptions>,
}

impl AuditOptions {
    fn folder(&self) -> Option<PathBuf> {
        let folder = given_or_usual_folder(self.db.as_deref());
        // A database that is always given, by a file or a variable, is not meant beside grids and models.
        folder.filter(|_| self.grids.is_empty() && self.models.is_empty())
    }
}

pub(super) fn run(options: &AuditOptions) -> Result<ExitStatus, CommandError> {
    let (assets, catalogue) = options.common.assets.load_catalogue()?;
    let density = DensityFile::load(&assets, &catalogue)?;
    let wanted = options.kernels.names()?;
    let auditor = GridAuditor { catalogue: &catalogue, density: &density };
    let has_options =
        options.questions.defaults != QuestionDefaults::default() || options.questions.mapping.is_some();
    if has_options && !options.questions.is_requested() {
        let problem = "options of workloads are given, but no workload";
        return Err(CommandError::bad_input(problem, "give `--workload FILE` or `--model NAME`"));
    }
    let folder = options.folder();
    if options.questions.is_requested() {
        let folder = folder.as_deref().ok_or_else(|| {
            CommandError::usage(
                "the questions of a workload are answered by a database, and none is given",
                "give its folder with `--db DIR`, or the models of the grids to audit with `--models`",
            )
        })?;
        return audit_workloads(options, folder, &assets, auditor, &wanted);
    }
    let audits = match &folder {
        Some(folder) => {
            let database = Database::open(folder)?;
            let kernels = audited_kernels(auditor, database_kernels(&database, &wanted)?, &wanted)?;
            auditor.audit_database(&kernels, &database)?
        }
        None => {
            let grids =
                grid::load_grids(&assets, &GridModels::load(&assets, &options.models)?, &options.grids)?;
            let kernels = audited_kernels(
                auditor,
                grid::select_kernels(&grids, &wanted, &assets, &catalogue)?,
                &wanted,
            )?;
            let device = DeviceProfile::load(&assets, DeviceProfile::default_name())?;
            auditor.audit_grids(&kernels, &grids, default_memory_budget(device.hbm_bytes()))
        }
    };
    Ok(print_audits(options, &audits))
}

fn audit_workloads(
    options: &AuditOptions,
    folder: &Path,
    assets: &AssetFiles,
    auditor: GridAuditor<'_>,
    wanted: &[KernelName],
) -> Result<ExitStatus, CommandError> {
    let lookup = options.questions.open(folder)?;
    let analyzer = CoverageAnalyzer { engine: &lookup.engine, catalogue: auditor.catalogue };
    let workloads = options.questions.load(assets, &lookup, &analyzer)?;
    workloads.iter().flat_map(|workload| &workload.notes).for_each(|note| print_note(note));
    let coverages = analyzer.answer_workloads(&workloads)?;
    let mut audited = audit_questions(&analyzer, auditor, &Database::open(folder)?, &coverages)?;
    if let Some(missing) =
        wanted.iter().find(|kernel| audited.iter().all(|row| row.kernel != kernel.as_str()))
    {
        let hint = did_you_mean_or(
            missing.as_str(),
            audited.iter().map(|row| row.kernel.as_str()),
            || "without names of kernels, all kernels of the workloads are audited",
        );
        return Err(CommandError::bad_input(format!("no workload has a question about `{missing}`"), hint));
    }
    audited.retain(|row| wanted.is_empty() || wanted.iter().any(|kernel| row.kernel == kernel.as_str()));
    options
        .common
        .output
        .emit(audited.iter().map(QuestionRecord::new), |width| question_table(&audited, width));
    let answered = audited.iter().filter(|row| row.is_answered()).count();
    print_note(&format!(
        "{answered} of {} answered as the density standard requires",
        format_count(audited.len(), "question")
    ));
    Ok(ExitStatus::done_if(audited.iter().all(AuditedQuestion::is_answered)))
}

fn database_kernels(database: &Database, wanted: &[KernelName]) -> Result<Vec<KernelName>, CommandError> {
    let known = database.kernels()?;
    if let Some(missing) = wanted.iter().find(|kernel| !known.contains(kernel)) {
        let hint = did_you_mean_or(missing.as_str(), known.iter().map(KernelName::as_str), || {
            format!("`npubench grid {missing} --db {}` adds rows of it", quoted_path(database.folder()))
        });
        let folder = database.folder().display();
        return Err(CommandError::bad_input(format!("`{folder}` has no rows of `{missing}`"), hint));
    }
    Ok(if wanted.is_empty() { known } else { wanted.to_vec() })
}

fn audited_kernels(
    auditor: GridAuditor<'_>,
    kernels: Vec<KernelName>,
    wanted: &[KernelName],
) -> Result<Vec<KernelName>, CommandError> {
    let (covered, others): (Vec<_>, Vec<_>) =
        kernels.into_iter().partition(|kernel| !auditor.axes(kernel).is_empty());
    if let Some(other) = others.iter().find(|kernel| wanted.contains(kernel)) {
        return Err(CommandError::bad_input(
            format!("the density standard does not cover `{other}`"),
            "declare its axes in grids/density.yaml of a folder, and give that with `--assets`",
        ));
    }
    if !others.is_empty() {
        let names: Vec<&str> = others.iter().map(KernelName::as_str).collect();
        print_note(&format!("not covered by the standard: {}", names.join(", ")));
    }
    Ok(covered)
}

fn print_audits(options: &AuditOptions, audits: &[KernelAudit<'_>]) -> ExitStatus {
    let axes = || audits.iter().flat_map(|audit| audit.axes.iter().map(move |axis| (audit, axis)));
    let records = axes().map(|(audit, axis)| AxisRecord::new(audit, axis));
    options.common.output.emit(records, |width| audit_table(audits, width));
    for KernelAudit { kernel, unread, .. } in audits.iter().filter(|audit| audit.unread > 0) {
        let rows = format_count(*unread, "row");
        print_note(&format!("{kernel}: {rows} ignored, which the catalogue cannot read"));
    }
    let complete = axes().filter(|(_, axis)| axis.is_complete()).count();
    print_note(&format!("{complete} of {} axes meet the density standard", axes().count()));
    ExitStatus::done_if(complete == axes().count())
}
