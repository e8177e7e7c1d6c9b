//! `npubench db`: copies, checks, normalizes, rebuilds and merges whole databases.

use super::prelude::*;
use crate::{
    database::{
        IssueSeverity, LintIssue, LintReport, NormalizeReport, check_ledger, copy_shapes, lint_database,
        normalize_database, tables_left_out,
    },
    measure::{
        evidence::{DatabaseComparison, compare_database},
        fleet::{MergeRequest, merge_databases, started_shards},
        reparse::{check_evidence, rebuild_database},
    },
    show::repair::{merge_text, rebuild_text},
};

subcommands! {
    /// Copies, checks, normalizes, rebuilds or merges whole databases
    #[derive(Debug, Subcommand)]
    #[command(after_help = "Examples:
  npubench db check a3
  npubench db rebuild a3 --dry-run
  npubench db copy a3 rehearse --kind rehearsal")]
    pub(super) enum DbCommand {
        Copy(CopyOptions) => run_copy,
        Check(LintOptions) => run_check,
        Normalize(NormalizeOptions) => run_normalize,
        Rebuild(RebuildOptions) => run_rebuild,
        Merge(MergeOptions) => run_merge,
    }
}

/// Copies the shapes of a database into a new folder and leaves its measurements behind
///
/// Columns of production profiles are copied with the shapes. Use the copy to rehearse a run on real shapes without
/// changing the real rows.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  npubench db copy a3 rehearse --kind rehearsal")]
pub(super) struct CopyOptions {
    /// Database folder
    #[arg(value_name = "DIR")]
    source: PathBuf,
    /// New folder, which must not exist
    #[arg(value_name = "NEW")]
    target: PathBuf,
    /// Kind of the new database
    #[arg(long, value_enum)]
    kind: DataKind,
    #[command(flatten)]
    output: OutputOptions,
}

/// Finds problems in a database, and writes nothing
///
/// Reads every table, compares its measured rows with the ledger, and lists each problem as `file:line: severity: text
/// [kind]`. An error prevents the use of a file or
/// row, a warning means that it may be used differently than intended, a note is information. Ends with 1 if there are
/// errors or warnings.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  npubench db check a3
  npubench db check a3 --evidence")]
pub(super) struct LintOptions {
    #[command(flatten)]
    database: DatabaseArgument,
    /// Also assess the evidence of all collections again, as `npubench reparse` does, and list the results of the ledger that do
    /// not follow from it; needs the lock of the database, so that no run may be active
    #[arg(long)]
    evidence: bool,
    #[command(flatten)]
    common: CommonOptions<OutputOptions>,
}

/// Repairs a database as far as no information is lost
///
/// Removes byte-order marks, unifies line endings, renames columns of older tools, clears zeros that stand for "not
/// measured", and merges rows of one signature that do not contradict each other. Each table is replaced as a whole or
/// not at all. Ends with 1 if a file could not be repaired.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  npubench db normalize a3 --dry-run")]
pub(super) struct NormalizeOptions {
    #[command(flatten)]
    database: DatabaseArgument,
    /// Print the changes, and write nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    output: OutputOptions,
}

/// Rebuilds rows and tables from the ledger, and a damaged ledger from its copy and the evidence
///
/// Results of the ledger whose row or table was deleted get their row again, with the shapes that the evidence of their runs has, or
/// else those of the ledger. Each run writes a copy of the ledger at its start and at its end. A damaged or missing ledger is restored
/// from this copy and from the evidence of later collections; a damaged file stays beside it, and no table loses a result. Ends with 1
/// if something could not be rebuilt.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  npubench db rebuild a3 --dry-run
  npubench db rebuild a3")]
pub(super) struct RebuildOptions {
    #[command(flatten)]
    database: DatabaseArgument,
    /// Print what can be rebuilt, and write nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    common: CommonOptions<OutputOptions>,
}

/// Merges the results of other databases into one, such as those of several hosts
///
/// The ledger gets the union of all runs, by case, collection, host, device and software, and rows are written from it. Neither the
/// order of the databases nor a repetition changes a byte. Databases of another kind, device or software are refused, and so are
/// damaged ledgers; then nothing is changed. Hosts whose control kernels are slower or faster than those of the others are named.
/// Ends with 1 if a result has no row, a database has no ledger, or a shard was not started or is being measured.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  npubench db merge a3 node1/a3 node2/a3
  npubench db merge a3 --shards
  npubench db merge a3 node1/a3 --dry-run")]
pub(super) struct MergeOptions {
    /// Database that gets all results; a new one has the rows of measured cases alone
    #[arg(value_name = "INTO")]
    into: PathBuf,
    /// Databases whose results are merged; they are not changed
    #[arg(value_name = "FROM", required_unless_present = "shards")]
    from: Vec<PathBuf>,
    /// Merge all shards of INTO that were started; those that are being measured are left out
    #[arg(long)]
    shards: bool,
    /// Print what would be merged, and write nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    common: CommonOptions<OutputOptions>,
}

fn run_merge(options: &MergeOptions) -> Result<ExitStatus, CommandError> {
    let assets = options.common.assets.load()?;
    let mut from = options.from.clone();
    let mut not_started = 0;
    if options.shards {
        let (started, open) = started_shards(&Database::open(&options.into)?)?;
        from.extend(started);
        not_started = open;
    }
    let report = merge_databases(&MergeRequest {
        into: &options.into,
        from: &from,
        assets: &assets,
        writes: !options.dry_run,
        skips_used: options.shards,
    })?;
    if not_started > 0 {
        print_note(&format!("{} not started", format_count(not_started, "shard")));
    }
    emit(options.common.output.format, [&report], || merge_text(&report));
    let is_complete = report.is_complete() && not_started == 0;
    Ok(ExitStatus::done_if(is_complete))
}

fn run_rebuild(options: &RebuildOptions) -> Result<ExitStatus, CommandError> {
    let database = Database::open(&options.database.folder()?)?;
    let _lock = match options.dry_run {
        true => database.lock_for_reading()?,
        false => Some(database.lock()?),
    };
    let assets = options.common.assets.load()?;
    let report = rebuild_database(&database, &assets, !options.dry_run)?;
    emit(options.common.output.format, [&report], || rebuild_text(&report));
    Ok(ExitStatus::done_if(report.is_complete()))
}

fn run_copy(options: &CopyOptions) -> Result<ExitStatus, CommandError> {
    let source = Database::open(&options.source)?;
    Ledger::require_readable(&source.ledger_path())?;
    let rows = copy_shapes(&source, &options.target, options.kind)?;
    let left_out = tables_left_out(&source, &options.target)?;
    let record = CopyRecord { rows, left_out };
    emit(options.output.format, [&record], || {
        for name in &record.left_out {
            print_note(&format!("{name} is left out: it is not the table of a kernel"));
        }
        format!("{} copied into {}\n", format_count(rows, "row"), options.target.display())
    });
    Ok(ExitStatus::Done)
}

fn run_check(options: &LintOptions) -> Result<ExitStatus, CommandError> {
    let folder = &options.database.folder()?;
    let compare = || Database::open(folder).map(|database| compare_database(&database)).unwrap_or_default();
    let (checked, compared) = rayon::join(|| (lint_database(folder), check_ledger(folder)), compare);
    let DatabaseComparison { issues, production_rows } = compared;
    let (mut checked, of_ledger) = (checked.0?, checked.1?);
    // The issues of a damaged ledger state what to do first.
    let evidence = match options.evidence && of_ledger.is_none() {
        true => check_evidence(&Database::open(folder)?, &options.common.assets.load()?)?,
        false => Vec::new(),
    };
    checked.add_issues(of_ledger.into_iter().chain(issues).chain(evidence).collect());
    let record = CheckRecord::new(&checked, production_rows);
    let CheckRecord { errors, warnings, notes, .. } = record;
    emit(options.common.output.format, &[record], || issue_lines(folder, &checked));
    print_note(&format!(
        "{}, {}, {} in {} of {}",
        format_count(errors, "error"),
        format_count(warnings, "warning"),
        format_count(notes, "note"),
        format_count(checked.files, "file"),
        folder.display()
    ));
    if production_rows > 0 {
        print_note(&format!(
            "the `Profiling` cells of {} are not compared: the database does not have the profiles",
            format_count(production_rows, "row")
        ));
    }
    Ok(ExitStatus::done_if(errors + warnings == 0))
}

fn issue_lines(folder: &Path, checked: &LintReport) -> String {
    let lines = checked.remarks.iter().map(|remark| {
        let (kind, severity) = (remark.kind, remark.kind.severity());
        format!("{}: {severity}: {} [{kind}]\n", place(folder, &remark.file, remark.line), remark.text)
    });
    lines.collect()
}

fn run_normalize(options: &NormalizeOptions) -> Result<ExitStatus, CommandError> {
    let folder = &options.database.folder()?;
    let all = normalize_database(&Database::open(folder)?, options.dry_run)?;
    let record = NormalizeRecord { dry_run: options.dry_run, files: &all };
    emit(options.output.format, &[record], || {
        all.iter().map(|report| change_lines(folder, report, options.dry_run)).collect()
    });
    let count = |of: fn(&NormalizeReport) -> bool| all.iter().filter(|report| of(report)).count();
    let (repaired, refused) = (count(|m| !m.done.is_empty()), count(|m| m.refused.is_some()));
    let left: usize = all.iter().map(|report| report.left.len()).sum();
    print_note(&format!(
        "{} {}, {refused} refused; {} kept because their values contradict each other",
        format_count(repaired, "file"),
        if options.dry_run { "would be repaired (dry run: nothing was written)" } else { "repaired" },
        format_count(left, "duplicate"),
    ));
    Ok(ExitStatus::done_if(refused == 0))
}

fn change_lines(folder: &Path, report: &NormalizeReport, dry_run: bool) -> String {
    let word = if dry_run { "would repair" } else { "repaired" };
    let lines = report.done.iter().map(|change| (word, change));
    let lines = lines.chain(report.left.iter().map(|change| ("left", change)));
    let lines = lines.chain(report.refused.iter().map(|change| ("refused", change)));
    lines
        .map(|(word, change)| {
            format!("{}: {word}: {}\n", place(folder, &report.file, change.line), change.text)
        })
        .collect()
}

#[derive(Serialize, JsonSchema)]
struct CopyRecord {
    rows: usize,
    /// Tables that are not those of a kernel.
    left_out: Vec<String>,
}

record! {
    CheckRecord<'a>(checked: &'a LintReport, production_rows: usize) {
        files: usize = checked.files,
        errors: usize = checked.count_severity(IssueSeverity::Error),
        warnings: usize = checked.count_severity(IssueSeverity::Warning),
        notes: usize = checked.count_severity(IssueSeverity::Note),
        findings: Vec<FindingRecord<'a>> = checked.remarks.iter().map(FindingRecord::new).collect(),
        /// Number of rows whose `Profiling` cells are not compared.
        production_not_compared: usize = production_rows,
    }
}

record! {
    FindingRecord<'a>(issue: &'a LintIssue) {
        file: &'a str = &issue.file,
        line: u64 = issue.line,
        severity: &'static str = issue.kind.severity().into(),
        kind: &'static str = issue.kind.into(),
        text: &'a str = &issue.text,
    }
}

#[derive(Serialize, JsonSchema)]
struct NormalizeRecord<'a> {
    dry_run: bool,
    files: &'a [NormalizeReport],
}

/// `folder/file:line`; control characters of a file name become `?`, so that it stays on one line.
fn place(folder: &Path, file: &str, line: u64) -> String {
    let path: String = folder.join(file).display().to_string();
    let path = path.chars().map(|c| if c.is_control() { '?' } else { c });
    format!("{}:{line}", path.collect::<String>())
}
