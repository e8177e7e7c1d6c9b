//! `npubench db`: what is done to a database as a whole.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use super::options::{DataKindArg, OutputFormat};
use crate::{
    database::{
        Database, IssueSeverity, LintReport, NormalizeChange, NormalizeReport, copy_shapes, lint_database,
        normalize_database, tables_left_out,
    },
    exit::ExitStatus,
    report::{print_data, print_note},
    session::CommandError,
};

/// Works on a database as a whole
#[derive(Debug, Subcommand)]
pub(super) enum DbCommand {
    Copy(CopyOptions),
    Check(LintOptions),
    Normalize(NormalizeOptions),
}

/// Copies the shapes of a database into a new folder and leaves its measurements behind
///
/// What production profiles measured is copied with the shapes. Use it to rehearse a run on real shapes
/// without touching the real rows.
#[derive(Debug, Args)]
pub(super) struct CopyOptions {
    /// The database
    #[arg(value_name = "DIR")]
    source: PathBuf,
    /// The new folder, which must not exist
    #[arg(value_name = "NEW")]
    target: PathBuf,
    /// Kind of the new database
    #[arg(long, value_enum)]
    kind: DataKindArg,
    /// How the outcome is printed
    #[arg(long, value_enum, default_value = "plain")]
    format: OutputFormat,
}

/// Finds what is wrong in a database, and writes nothing
///
/// Reads every table and lists what it finds as `file:line: severity: text [kind]`. Errors keep a file or a
/// row from being used, warnings from being used as it was meant; notes are good to know. Ends with 1 where
/// there are errors or warnings.
#[derive(Debug, Args)]
pub(super) struct LintOptions {
    /// The database
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// How findings are printed
    #[arg(long, value_enum, default_value = "plain")]
    format: OutputFormat,
}

/// Mends what can be mended in a database without losing anything
///
/// Removes byte-order marks, unifies line endings, renames columns of older tools, empties the zeros that
/// stand for "not measured", and makes one row of those that have one signature and do not contradict each
/// other. Each table is replaced at once or left as it is. Ends with 1 where a file could not be mended.
#[derive(Debug, Args)]
pub(super) struct NormalizeOptions {
    /// The database
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Says what would be done, and writes nothing
    #[arg(long)]
    dry_run: bool,
    /// How the changes are printed
    #[arg(long, value_enum, default_value = "plain")]
    format: OutputFormat,
}

pub(super) fn run(command: &DbCommand) -> Result<ExitStatus, CommandError> {
    match command {
        DbCommand::Copy(options) => run_copy(options),
        DbCommand::Check(options) => run_check(options),
        DbCommand::Normalize(options) => run_normalize(options),
    }
}

fn run_copy(options: &CopyOptions) -> Result<ExitStatus, CommandError> {
    let source = Database::open(&options.source)?;
    let rows = copy_shapes(&source, &options.target, options.kind.into())?;
    let left_out = tables_left_out(&source, &options.target)?;
    match options.format {
        OutputFormat::Json => {
            print_data(&format!("{}\n", serde_json::json!({"rows": rows, "left_out": left_out})));
        }
        OutputFormat::Plain => {
            for name in left_out {
                print_note(&format!("{name} is left out: it is no kernel's table"));
            }
            print_data(&format!("{rows} rows copied into {}\n", options.target.display()));
        }
    }
    Ok(ExitStatus::Done)
}

fn run_check(options: &LintOptions) -> Result<ExitStatus, CommandError> {
    let checked = lint_database(&options.folder)?;
    let [errors, warnings, notes] = [IssueSeverity::Error, IssueSeverity::Warning, IssueSeverity::Note]
        .map(|severity| checked.count_severity(severity));
    print_data(&match options.format {
        OutputFormat::Plain => findings(&options.folder, &checked),
        OutputFormat::Json => {
            let findings = checked.remarks.iter().map(|remark| {
                serde_json::json!({
                    "file": remark.file, "line": remark.line, "severity": remark.kind.severity().as_str(),
                    "kind": remark.kind.as_str(), "text": remark.text,
                })
            });
            let findings: Vec<serde_json::Value> = findings.collect();
            let all = serde_json::json!({
                "files": checked.files, "errors": errors, "warnings": warnings, "notes": notes,
                "findings": findings,
            });
            format!("{all}\n")
        }
    });
    print_note(&format!(
        "{}, {}, {} in {} of {}",
        counted(errors, "error"),
        counted(warnings, "warning"),
        counted(notes, "note"),
        counted(checked.files, "file"),
        options.folder.display()
    ));
    Ok(if errors + warnings == 0 { ExitStatus::Done } else { ExitStatus::SomeNotOk })
}

fn findings(folder: &Path, checked: &LintReport) -> String {
    let lines = checked.remarks.iter().map(|remark| {
        let (kind, severity) = (remark.kind.as_str(), remark.kind.severity());
        format!("{}: {severity}: {} [{kind}]\n", place(folder, &remark.file, remark.line), remark.text)
    });
    lines.collect()
}

fn run_normalize(options: &NormalizeOptions) -> Result<ExitStatus, CommandError> {
    let all = normalize_database(&Database::open(&options.folder)?, options.dry_run)?;
    print_data(&match options.format {
        OutputFormat::Plain => {
            all.iter().map(|mended| changes(&options.folder, mended, options.dry_run)).collect()
        }
        OutputFormat::Json => {
            let list = |changes: &[NormalizeChange]| -> Vec<serde_json::Value> {
                let changes = changes.iter();
                changes.map(|c| serde_json::json!({"line": c.line, "text": c.text})).collect()
            };
            let files = all.iter().map(|mended| {
                let refused = mended.refused.as_slice();
                serde_json::json!({
                    "file": mended.file, "mended": list(&mended.done), "left": list(&mended.left),
                    "refused": list(refused).pop(),
                })
            });
            let files: Vec<serde_json::Value> = files.collect();
            format!("{}\n", serde_json::json!({"dry_run": options.dry_run, "files": files}))
        }
    });
    let count = |of: fn(&NormalizeReport) -> bool| all.iter().filter(|mended| of(mended)).count();
    let (mended, refused) = (count(|m| !m.done.is_empty()), count(|m| m.refused.is_some()));
    let left: usize = all.iter().map(|mended| mended.left.len()).sum();
    print_note(&format!(
        "{} {}, {refused} refused; {} left as they contradict each other",
        counted(mended, "file"),
        if options.dry_run { "would be mended (dry run: nothing was written)" } else { "mended" },
        counted(left, "duplicate"),
    ));
    Ok(if refused == 0 { ExitStatus::Done } else { ExitStatus::SomeNotOk })
}

fn changes(folder: &Path, mended: &NormalizeReport, dry_run: bool) -> String {
    let word = if dry_run { "would mend" } else { "mended" };
    let lines = mended.done.iter().map(|change| (word, change));
    let lines = lines.chain(mended.left.iter().map(|change| ("left", change)));
    let lines = lines.chain(mended.refused.iter().map(|change| ("refused", change)));
    lines
        .map(|(word, change)| {
            format!("{}: {word}: {}\n", place(folder, &mended.file, change.line), change.text)
        })
        .collect()
}

/// `folder/file:line`, on one line whatever the file's name is.
fn place(folder: &Path, file: &str, line: u64) -> String {
    let path: String = folder.join(file).display().to_string();
    let path = path.chars().map(|c| if c.is_control() { '?' } else { c });
    format!("{}:{line}", path.collect::<String>())
}

/// `1 error`, `2 errors`.
fn counted(count: usize, word: &str) -> String {
    format!("{count} {word}{}", if count == 1 { "" } else { "s" })
}
