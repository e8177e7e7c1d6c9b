//! `npubench db rebuild`: a readable ledger from a damaged one, and the rows that tables have lost from the ledger alone.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
};

use crate::{
    base::command_error::CommandError,
    measure::reparse::{compare_with_evidence, rebuild_rows, write_rows},
};
use crate::{
    base::{
        assets::AssetFiles,
        files::{ScratchFolder, write_atomic_by},
    },
    database::{
        Database, DatabaseError,
        ledger::{
            Ledger, LedgerCopy, LedgerError, SalvagedLedger, copy_with_journal, journal_path, merge_ledgers,
            salvage,
        },
    },
    kernel::{CaseId, IdentifiedCase, case_of_signature, catalogue::Catalogue},
    measure::evidence::missing_rows,
    show::{
        rebuild::{RebuildReport, SalvageReport},
        reparse::MissingKernelRows,
    },
};

/// Salvages a damaged ledger, reads the results that it has lost or that differ again from the evidence, and adds the rows that the
/// tables lack, with the ledger's results. If it does not `write`, it works on copies and reports what it would do. The caller holds
/// the lock of the database.
///
/// Fails if there is no ledger, and if nothing of a damaged one can be read; it is left as it is.
pub(crate) fn rebuild_database(
    database: &Database,
    assets: &AssetFiles,
    writes: bool,
) -> Result<RebuildReport, CommandError> {
    let path = database.ledger_path();
    if !path.exists() {
        return Err(CommandError::bad_input(
            format!("`{}` has no ledger, from which its rows could be rebuilt", database.folder().display()),
            "a ledger is written by `npubench run`; rows of production profiles are read again by `npubench ingest PROFILE`",
        ));
    }
    let scratch = ScratchFolder::create().map_err(CommandError::no_temporary_folder)?;
    let catalogue = Catalogue::load(assets)?;
    let salvaged = salvage_ledger(database, scratch.path(), (&catalogue, assets))?;
    let used = match &salvaged {
        Some(SalvagedFile { report, file }) if writes => {
            replace_damaged(&path, file, &report.kept)?;
            path
        }
        Some(SalvagedFile { file, .. }) => file.clone(),
        None => path,
    };
    let mut ledger = if writes { Ledger::open(&used)? } else { Ledger::open_to_read(&used)? };
    let order = ledger.planned_order()?;
    let lost = add_lost_rows(database, &ledger, &catalogue, &order, writes)?;
    let written =
        writes.then(|| write_rows(database, &mut ledger, &catalogue, &lost.insertable)).transpose()?;
    Ok(RebuildReport { salvage: salvaged.map(|salvaged| salvaged.report), missing: lost.missing, written })
}

/// Cases with results in the ledger that had no row.
#[derive(Debug)]
pub(crate) struct LostRows {
    pub(crate) missing: Vec<MissingKernelRows>,
    /// Cases that get their rows with their results: collectives, and those that no run planned.
    pub(crate) insertable: Vec<IdentifiedCase>,
}

/// Adds rows without results for the planned cases of the ledger that have none, if it `writes`, in the `order` of cases.
pub(crate) fn add_lost_rows(
    database: &Database,
    ledger: &Ledger,
    catalogue: &Catalogue,
    order: &BTreeMap<CaseId, usize>,
    writes: bool,
) -> Result<LostRows, CommandError> {
    let missing = missing_rows(database, ledger)?;
    let known = ledger.cases_with_prefix("")?.into_iter();
    let signatures: BTreeMap<CaseId, String> = known.map(|known| (known.case, known.signature)).collect();
    let mut lost = LostRows { missing: Vec::new(), insertable: Vec::new() };
    for rows in &missing {
        let found: BTreeMap<CaseId, IdentifiedCase> = rows
            .cases
            .iter()
            .filter_map(|id| {
                let case = IdentifiedCase::new(case_of_signature(&rows.kernel, signatures.get(id)?)?);
                (case.id() == id).then(|| (id.clone(), case))
            })
            .collect();
        lost.missing.push(MissingKernelRows {
            kernel: rows.kernel.to_string(),
            has_table: rows.has_table,
            cases: rows.cases.len(),
            rebuilt: if writes {
                rebuild_rows(database, catalogue, rows, &found, order)?
            } else {
                found.len()
            },
        });
        let is_inserted =
            |case: &&IdentifiedCase| case.kernel.is_collective() || !order.contains_key(case.id());
        lost.insertable.extend(found.values().filter(is_inserted).cloned());
    }
    Ok(lost)
}

/// Ledger with what could be read of a damaged one and of the evidence, in a scratch folder.
struct SalvagedFile {
    report: SalvageReport,
    file: PathBuf,
}

/// Salvages the ledger if it is damaged, into a new file of the scratch folder; `None` for an intact one.
fn salvage_ledger(
    database: &Database,
    scratch: &Path,
    (catalogue, assets): (&Catalogue, &AssetFiles),
) -> Result<Option<SalvagedFile>, CommandError> {
    let path = database.ledger_path();
    let problem = match Ledger::find_damage(&path) {
        Ok(None) => return Ok(None),
        Ok(Some(problem)) | Err(LedgerError::Damaged { problem, .. }) => problem,
        Err(error) => return Err(error.into()),
    };
    // SQLite may change the file that it opens.
    let copy = scratch.join("damaged.db");
    copy_with_journal(&path, &copy).map_err(file_error("copy", &path))?;
    let read = scratch.join("read.db");
    let salvaged: SalvagedLedger = salvage(&copy, &read)?;
    if salvaged.is_empty() {
        return Err(CommandError::bad_input(
            format!("nothing of the damaged ledger `{}` can be read: {problem}", path.display()),
            format!(
                "keep it under another name: `mv '{0}' '{0}.damaged'`; the CSVs keep their results, and `npubench run` measures what \
                 is missing",
                path.display()
            ),
        ));
    }
    // Cells may be wrong, and what SQLite could not read is in the evidence.
    let mut ledger = Ledger::open(&read)?;
    let archived = ledger.archived_collections()?;
    let compared =
        compare_with_evidence(database, &mut ledger, catalogue, assets, (&archived, &BTreeSet::new()), true)?
            .report;
    let lost_results = ledger.count_lost_results()?;
    drop(ledger);
    // The newest attempt of a case is that with the greatest key, and attempts from the evidence have new keys.
    let file = scratch.join("ordered.db");
    let copy = LedgerCopy::create(&read, &scratch.join("checked.db"))?;
    merge_ledgers(&[&copy], &scratch.join("union.db"), &file)?;
    let time = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ");
    let report = SalvageReport {
        problem,
        kept: path.with_added_extension(format!("damaged-{time}")),
        salvaged,
        compared: compared.collections,
        changed: compared.differences.len(),
        without_evidence: compared.left.len(),
        lost_results,
    };
    Ok(Some(SalvagedFile { report, file }))
}

/// Replaces a damaged ledger, which is kept under another name with its journal.
fn replace_damaged(path: &Path, new: &Path, kept: &Path) -> Result<(), CommandError> {
    copy_with_journal(path, kept)
        .and_then(|_| fs::File::open(kept)?.sync_all())
        .map_err(file_error("keep", path))?;
    let mut new = fs::File::open(new).map_err(file_error("read", new))?;
    // The journal of the damaged file must not be applied to the new one.
    match fs::remove_file(journal_path(path)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(file_error("remove the journal of", path)(error));
        }
        _ => {}
    }
    Ok(write_atomic_by(path, |out| io::copy(&mut new, out).map(|_| ())).map_err(DatabaseError::from)?)
}

fn file_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> CommandError + use<> {
    let place = path.display().to_string();
    move |error| {
        CommandError::bad_input(
            format!("cannot {action} `{place}`: {error}"),
            "check free space and permissions; no content of the ledger was changed",
        )
    }
}
