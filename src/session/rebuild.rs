//! `npubench db rebuild`: a readable ledger from a damaged one, and the rows that tables have lost from the ledger alone.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use super::{
    CommandError,
    reparse::{rebuild_rows, reparse_collections, write_rows},
};
use crate::{
    catalogue::Catalogue,
    config::AssetFiles,
    database::Database,
    domain::{CaseId, IdentifiedCase, case_of_signature},
    evidence::missing_rows,
    exit::ExitStatus,
    files::ScratchFolder,
    ledger::{Ledger, LedgerError, SalvagedLedger, salvage},
    report::{MissingKernelRows, RebuildReport, SalvageReport},
};

/// Suffix of the journal that SQLite rolls back when it opens a ledger.
const JOURNAL: &str = "-journal";

/// Salvages a damaged ledger, reads the results that it has lost or that differ again from the evidence, and adds the rows that the tables lack, with the ledger's results. If it does not `write`, it
/// works on copies and reports what it would do. The caller holds the lock of the database.
///
/// Fails if nothing of a damaged ledger can be read; it is left as it is.
pub(crate) fn rebuild_database(
    database: &Database,
    assets: &AssetFiles,
    writes: bool,
) -> Result<RebuildReport, CommandError> {
    let path = database.ledger_path();
    let scratch = ScratchFolder::create().map_err(CommandError::no_temporary_folder)?;
    let salvaged = salvage_ledger(&path, scratch.path(), writes)?;
    let used = match &salvaged {
        Some(salvaged) if !writes => salvaged.new.clone(),
        _ => path,
    };
    let mut ledger = match used.exists() {
        true => Ledger::open(&used)?,
        false => return Ok(RebuildReport { salvage: None, missing: Vec::new(), written: None }),
    };
    let mut report = RebuildReport { salvage: None, missing: Vec::new(), written: None };
    if let Some(NewLedger { report: salvage, .. }) = salvaged {
        // What SQLite could still read may be wrong, and what it could not is in the evidence.
        let archived = ledger.archived_collections()?;
        let compared = reparse_collections(database, &mut ledger, assets, &archived, writes)?;
        report.salvage = Some(SalvageReport {
            compared: compared.collections,
            changed: compared.differences.len(),
            without_evidence: compared.left.len(),
            lost_results: ledger.count_lost_results()?,
            ..salvage
        });
    }
    let catalogue = Catalogue::load(assets)?;
    let order = ledger.planned_order()?;
    let lost = add_lost_rows(database, &ledger, &catalogue, &order, writes)?;
    report.missing = lost.missing;
    if writes {
        report.written = Some(write_rows(database, &mut ledger, &catalogue, &lost.insertable)?);
    }
    Ok(report)
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

/// A ledger with what could be read of a damaged one.
struct NewLedger {
    report: SalvageReport,
    /// Place of the new file.
    new: PathBuf,
}

/// Salvages the ledger if it is damaged. If it `writes`, the new ledger takes its place, and the damaged one is kept beside it.
fn salvage_ledger(path: &Path, scratch: &Path, writes: bool) -> Result<Option<NewLedger>, CommandError> {
    let problem = match Ledger::find_damage(path) {
        Ok(None) => return Ok(None),
        Ok(Some(problem)) | Err(LedgerError::Damaged { problem, .. }) => problem,
        Err(error) => return Err(error.into()),
    };
    let failed = |action: &str, path: &Path| {
        let place = path.display().to_string();
        let action = action.to_owned();
        move |error: io::Error| CommandError {
            message: format!("cannot {action} `{place}`: {error}"),
            hint: "check free space and permissions; no content of the ledger was changed".to_owned(),
            exit: ExitStatus::BadInput,
        }
    };
    // SQLite may change the file that it opens.
    let copy = scratch.join("damaged.db");
    fs::copy(path, &copy).map_err(failed("copy", path))?;
    let journal = with_suffix(path, JOURNAL);
    if journal.exists() {
        fs::copy(&journal, with_suffix(&copy, JOURNAL)).map_err(failed("copy", &journal))?;
    }
    let drafted = scratch.join("new.db");
    let salvaged: SalvagedLedger = salvage(&copy, &drafted)?;
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
    let kept = with_suffix(path, &format!(".damaged-{}", jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ")));
    let report = SalvageReport {
        problem,
        kept: kept.clone(),
        salvaged,
        compared: 0,
        changed: 0,
        without_evidence: 0,
        lost_results: 0,
    };
    if !writes {
        return Ok(Some(NewLedger { report, new: drafted }));
    }
    // On the file system of the ledger, so that it takes its place at once.
    let new = with_suffix(path, ".salvaged");
    fs::copy(&drafted, &new).and_then(|_| fs::File::open(&new)?.sync_all()).map_err(failed("write", &new))?;
    if journal.exists() {
        fs::rename(&journal, with_suffix(&kept, JOURNAL)).map_err(failed("move", &journal))?;
    }
    // A hard link first: at each instant one of both is the ledger.
    fs::hard_link(path, &kept)
        .or_else(|_| fs::copy(path, &kept).map(|_| ()))
        .map_err(failed("keep", path))?;
    fs::rename(&new, path).map_err(failed("replace", path))?;
    Ok(Some(NewLedger { report, new: path.to_owned() }))
}

/// Returns the path with a text behind its name.
fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
